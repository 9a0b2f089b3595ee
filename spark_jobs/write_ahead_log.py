"""A template for sinks of systems without transactions: each batch is put into a log before any of it is sent.

The log is a folder of the checkpoint, on the same storage. It holds one batch at most, as Parquet files that Spark's tasks
write, so neither memory nor disk grow while the target is unavailable. A batch goes through these steps:

1. log: its rows are written to the log. A crash in this step leaves a section without a seal, which is written from scratch.
2. seal (pre-commit): a small file says that the section is complete, and what ``prepare`` returned. From now on this batch is
   these rows: whatever a lookup or a Python step would return a second time, the same rows are sent.
3. send: ``send`` writes the section to the target. After a crash it is called again with the same rows; those of one partition
   of a frame are together again, in the same order.
4. commit: the number of the batch is saved as committed.
5. remove: the section is deleted.

A target that refuses a table's schema (``SchemaRefused``) aborts the section: it is removed, and the batch is logged without
what the target refuses.

Rows that ``send`` had written before a crash come to it a second time, so this alone is at least once, as Flink's
GenericWriteAheadSink is. A sink is exactly once if a second write changes nothing, or if ``send`` can tell what it had written:
the log fixes the rows, so a count (the size of a file, a sequence number) that ``prepare`` puts into the seal is enough where
``send`` sorts them.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Fatal
from spark_jobs.contract import Batch, Column, SchemaRefused, Sink, TableChanges, TableSchema
from spark_jobs.spark.checkpoint import open_folder, spark_path
from spark_jobs.spark.frames import number_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.spark.checkpoint import Folder

#: The log's folder in the checkpoint.
FOLDER: Final = "write-ahead-log"
#: Values of ``WriteAheadLogSink.logged``.
RECORDS: Final = "records"
ROWS: Final = "rows"
_COMMITTED: Final = "committed.json"
#: The number of a row in its section: the part of the frame in the upper bits, then the row in this part.
_NUMBER: Final = "number_in_section_"
_PART_BITS: Final = 33
_NO_TYPE: Final = "void"


class BatchStep(StrEnum):
    """The step with which a batch continues."""

    LOG = "log"
    SEND = "send"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class LogState:
    """The contents of the log.

    Attributes:
        committed: the number of the last committed batch; None before the first.
        sealed: the number of the batch with a sealed section; None without one.
        ranges: the offsets of the sealed batch, or else of the committed one, as ``ranges_of`` returns them.
    """

    committed: int | None = None
    sealed: int | None = None
    ranges: tuple[tuple[str, int, int, int], ...] = ()


def decide_step(state: LogState, batch: int, ranges: tuple[tuple[str, int, int, int], ...]) -> BatchStep:
    """The step with which a batch continues. Pure.

    Raises:
        Fatal: the log is not of this batch's checkpoint.
    """
    pending = state.sealed if state.sealed not in (None, state.committed) else None
    last = state.committed if pending is None else pending
    if last is None or (batch > last and pending is None):
        return BatchStep.LOG
    if batch != last or (state.ranges and ranges != state.ranges):
        raise Fatal(
            f"write-ahead log: it holds batch {last} with other offsets than batch {batch}, which is to be written: the "
            f"folder {FOLDER} in the checkpoint is of another checkpoint. Restore the checkpoint as a whole, or remove this "
            "folder (rows of the last batch may then be written a second time)"
        )
    return BatchStep.SKIP if pending is None else BatchStep.SEND


def ranges_of(batch: Batch) -> tuple[tuple[str, int, int, int], ...]:
    """The offsets of a batch in a form that JSON keeps, sorted. Pure."""
    return tuple(sorted((topic, part, start, end) for (topic, part), (start, end) in batch.ranges.items()))


@dataclass(frozen=True, slots=True)
class BatchSection:
    """The part of the log that holds one batch.

    Attributes:
        batch: the batch, with frames that read the log (without a log: the batch itself). Its ``changes()`` (``logged`` is
            ``rows``) or its ``raw`` (``records``) return the same rows on every call.
        prepared: what ``prepare`` returned before the section was sealed.
        repeated: whether an earlier call may have sent a part of it.
    """

    batch: Batch
    prepared: Mapping[str, Any] = field(default_factory=dict)
    repeated: bool = False


def no_points(name: str) -> None:
    """Do nothing."""
    del name


class WriteAheadLogSink(Sink):
    """Derive from it, and write ``send`` (and ``prepare`` where it helps) instead of ``write``.

    With a guarantee below ``exactly-once`` there is no log: ``send`` is called with the batch itself.
    """

    #: What goes into the log: ``rows`` (``Batch.changes``, decoded and after the flow's steps) or ``records`` (``Batch.raw``).
    logged: ClassVar[str] = ROWS
    #: Called at the end of each step; only tests set it.
    points: Callable[[str], None] = staticmethod(no_points)

    def uses_log(self) -> bool:
        """Whether this job writes a log. Pure."""
        return self.context.config.get("guarantee") in (None, "exactly-once")

    def prepare(self, batch: Batch) -> dict[str, Any]:
        """Facts about the target before the batch, as JSON values; the section keeps them. May block.

        Called once per section, before it is sealed. Raises as ``Sink.write``.
        """
        del batch
        return {}

    @abstractmethod
    def send(self, section: BatchSection) -> int:
        """Write a section to the target; returns rows written. Rows are safe there when it returns. May block.

        Raises:
            connectors.errors.Retriable, connectors.errors.Fatal, SchemaRefused: as ``Sink.write``. It is called again with the
                same rows.
        """

    def write(self, batch: Batch) -> int:
        """See the module and ``Sink.write``. Blocks."""
        if not self.uses_log():
            return self.send(BatchSection(batch))
        log = BatchLog(self.context.spark, str(self.context.config["checkpoint.location"]))
        step = decide_step(log.state(), batch.id, ranges_of(batch))
        if step is BatchStep.SKIP:
            self.context.log.info("batch %d was committed before and is left out", batch.id)
            log.remove(batch.id)
            return 0
        if step is BatchStep.LOG:
            log.append(batch, self.logged)
            self.points("logged")
            log.seal(batch, self.prepare(batch), self.logged)
            self.points("sealed")
        elif self.logged == ROWS:
            batch.changes()  # The source learns from it which tables there are; the rows come from the log.
        section = log.section(batch, repeated=step is BatchStep.SEND)
        try:
            rows = self.send(section)
        except SchemaRefused:
            log.remove(batch.id)
            raise
        self.points("sent")
        log.commit(batch)
        self.points("committed")
        log.remove(batch.id)
        return rows


class BatchLog:
    """The log in a checkpoint. All methods block.

    Args:
        spark: the session.
        checkpoint: ``checkpoint.location``.
    """

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._spark = spark
        self._location = f"{checkpoint.rstrip('/')}/{FOLDER}"
        self._folder: Folder = open_folder(self._location, spark)

    def state(self) -> LogState:
        """The batches in the log."""
        committed = _read_json(self._folder, _COMMITTED)
        sealed = [
            int(name.removesuffix(".json")) for name in self._folder.list("") if name.removesuffix(".json").isdecimal()
        ]
        last = max((number for number in sealed if _read_json(self._folder, _seal_of(number))), default=None)
        newest = _read_json(self._folder, _seal_of(last)) if last is not None else committed
        return LogState(
            committed["batch"] if committed else None,
            last,
            tuple((topic, part, start, end) for topic, part, start, end in newest["ranges"]) if newest else (),
        )

    def append(self, batch: Batch, logged: str) -> None:
        """Write the rows of a batch. A section that is not complete is overwritten."""
        self.remove(batch.id)
        if logged == RECORDS:
            self._write_rows(batch.raw, batch.id, 0)
            return
        for number, changes in enumerate(batch.changes()):
            self._write_rows(number_columns(changes.frame, len(changes.schema.columns)), batch.id, number)

    def seal(self, batch: Batch, prepared: Mapping[str, Any], logged: str) -> None:
        """Say that the section of a batch is complete."""
        tables = [] if logged == RECORDS else [_table_as_json(changes) for changes in batch.changes()]
        seal = {"ranges": ranges_of(batch), "logged": logged, "prepared": dict(prepared), "tables": tables}
        self._folder.write(_seal_of(batch.id), json.dumps(seal))

    def section(self, batch: Batch, *, repeated: bool) -> BatchSection:
        """The sealed section of a batch.

        Raises:
            Fatal: its seal is gone.
        """
        seal = _read_json(self._folder, _seal_of(batch.id))
        if seal is None:
            raise Fatal(
                f"write-ahead log: {self._location}/{_seal_of(batch.id)} was removed while the job ran; restart it"
            )
        if seal["logged"] == RECORDS:
            logged = replace(batch, raw=self._read_rows(batch.id, 0, batch.raw.schema.json()))
            return BatchSection(logged, seal["prepared"], repeated)
        tables = [
            _table_of(table, self._read_rows(batch.id, number, table["frame"]))
            for number, table in enumerate(seal["tables"])
        ]
        return BatchSection(replace(batch, changes=lambda: tables), seal["prepared"], repeated)

    def commit(self, batch: Batch) -> None:
        """Save that the target has the batch."""
        self._folder.write(_COMMITTED, json.dumps({"batch": batch.id, "ranges": ranges_of(batch)}))

    def remove(self, batch: int) -> None:
        """Delete the section of a batch, if there is one; the seal first."""
        self._folder.delete(_seal_of(batch))
        self._folder.remove(str(batch))

    def _write_rows(self, frame: DataFrame, batch: int, number: int) -> None:
        from pyspark.sql import functions as f

        with_type = [name for name, kind in frame.dtypes if kind != _NO_TYPE]
        rows = frame.select(*with_type, f.monotonically_increasing_id().alias(_NUMBER))
        # No file ends with a row of another part, and rows of a part keep their order.
        rows.write.mode("overwrite").parquet(f"{spark_path(self._location)}/{batch}/{number}")

    def _read_rows(self, batch: int, number: int, schema: str) -> DataFrame:
        """The rows of a table as they were written: the same parts, each in its order. Lazy."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import LongType, NullType, StructField, StructType

        columns = StructType.fromJson(json.loads(schema))
        stored = [column for column in columns.fields if not isinstance(column.dataType, NullType)]
        read = self._spark.read.schema(StructType([*stored, StructField(_NUMBER, LongType())]))
        rows = read.parquet(f"{spark_path(self._location)}/{batch}/{number}")
        ordered = rows.repartition(f.shiftright(_NUMBER, _PART_BITS)).sortWithinPartitions(_NUMBER)
        return ordered.select(
            *(f.col(column.name) if column in stored else f.lit(None).alias(column.name) for column in columns.fields)
        )


def _seal_of(batch: int) -> str:
    return f"{batch}.json"


def _read_json(folder: Folder, name: str) -> Any:
    """A JSON file of the log; None where it is missing or was not written to its end."""
    file_text = folder.read(name)
    try:
        return json.loads(file_text) if file_text else None
    except ValueError:
        return None


def _table_as_json(changes: TableChanges) -> dict[str, Any]:
    schema = changes.schema
    columns = [
        {
            "name": column.name,
            "type": column.type.json(),
            "nullable": column.nullable,
            "key": column.key,
            "length": column.length,
            "meaning": column.meaning,
            "volatile": column.volatile,
        }
        for column in schema.columns
    ]
    return {
        "namespace": schema.namespace,
        "sharded": schema.sharded,
        "columns": columns,
        "lacking": sorted(changes.lacking),
        "frame": number_columns(changes.frame, len(columns)).schema.json(),
    }


def _table_of(data: Mapping[str, Any], rows: DataFrame) -> TableChanges:
    from pyspark.sql.types import _parse_datatype_json_string

    columns = tuple(
        Column(**{**column, "type": _parse_datatype_json_string(column["type"])}) for column in data["columns"]
    )
    frame = rows.toDF(*(column.name for column in columns), *rows.columns[len(columns) :])
    return TableChanges(TableSchema(data["namespace"], columns, data["sharded"]), frame, frozenset(data["lacking"]))
