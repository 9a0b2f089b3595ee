"""``source.type=history``: what a files sink has written, again, as it was when the job started first.

The tables are cut into chunks by order number before the first batch; a batch reads one chunk. Chunks name rows, not files, so
rolling and compaction of the history may continue meanwhile. Spark's file stream source starts the batches: it finds one empty
file per chunk in a folder of the checkpoint, and its log says which chunk a batch is.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from connectors.errors import Fatal
from spark_jobs.contract import SYSTEM_COLUMNS, UMS_COLUMNS
from spark_jobs.history.known_rows import is_known
from spark_jobs.history.log import HistoryLog
from spark_jobs.history.reader import HistoryTableEntry, find_tables, prune_files, read_range, time_bounds
from spark_jobs.history.storage import open_storage
from spark_jobs.inputs.contract import Input, InputBatch
from spark_jobs.inputs.files.listing import HEADERS, list_files
from spark_jobs.inputs.files.log import is_log, log_files, move_entries, offset_of
from spark_jobs.inputs.history.chunks import OrderRange, Span, cut_ranges
from spark_jobs.inputs.history.options import BEFORE, PATH, SINCE, UNTIL, parse_time
from spark_jobs.inputs.positions import position_after, position_file, save_position
from spark_jobs.json_options import WHOLE
from spark_jobs.kafka.ranges import parse_offsets
from spark_jobs.sources.table_filter import is_selected
from spark_jobs.spark.checkpoint import open_folder, spark_path
from spark_jobs.spark.frames import get_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.contract import JobContext
    from spark_jobs.inputs.contract import InputRun
    from spark_jobs.kafka.ranges import Offsets, Ranges
    from spark_jobs.spark.checkpoint import Folder

_PLAN: Final = "_millrace_history"
_TICKS: Final = "millrace_chunks"
#: A file counts by its name, so that a checkpoint that a savepoint has brought elsewhere knows it again.
_OPTIONS: Final = {"maxFilesPerTrigger": "1", "fileNameOnly": "true"}
#: The rows of a key are in one of these partitions, so that sinks write in that many tasks.
_PARTITIONS: Final = 4
#: Quantiles of a table that are asked for, at most.
_MOST_SPANS: Final = 1000
_KAFKA_TOPIC, _KAFKA_PARTITION, _KAFKA_OFFSET = "kafka_topic_", "kafka_partition_", "kafka_offset_"


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """A table of the plan.

    Attributes:
        path: its directory.
        namespace: its name for sinks.
        keys: its primary key.
        offsets: topic -> partition (as text) -> the offset after the last one that counts: what came later is left out.
        delta: whether it is a Delta table.
    """

    path: str
    namespace: str
    keys: tuple[str, ...]
    offsets: dict[str, dict[str, int]]
    delta: bool = False


@dataclass(frozen=True, slots=True)
class HistoryPlan:
    """The work of the job.

    Attributes:
        tables: the tables.
        chunks: (index of a table, smallest and largest order number), in the order of reading.
        options: what the plan was made for: path, tables and times.
    """

    tables: tuple[HistoryTable, ...]
    chunks: tuple[tuple[int, int, int], ...]
    options: dict[str, Any]

    @classmethod
    def from_json(cls, plan_json: str) -> HistoryPlan:
        """Read what ``to_json`` wrote."""
        data = json.loads(plan_json)
        tables = tuple(HistoryTable(**{**table, "keys": tuple(table["keys"])}) for table in data["tables"])
        return cls(tables, tuple((table, low, high) for table, low, high in data["chunks"]), data["options"])

    def to_json(self) -> str:
        """As text, for the checkpoint."""
        return json.dumps(asdict(self))


class HistoryInput(Input):
    """Reads a history. ``frames`` are the rows of the batch by table."""

    frames: list[tuple[HistoryTable, DataFrame]]

    def __init__(self, run: InputRun) -> None:
        super().__init__(run)
        self._plan: HistoryPlan
        self.frames = []
        config = run.config
        self._since, self._until = parse_time(config[SINCE]), parse_time(config[UNTIL])

    def position(self, batch: int) -> Offsets:
        """See ``Input.position``."""
        return position_after(self.run.folder, batch)

    @classmethod
    def position_files(cls, folder: Folder, batch: int) -> list[str]:
        """See ``Input.position_files``: the plan, the chunks that were read, and the files that stand for chunks."""
        ticks = sorted(f"{_TICKS}/{name}" for name in folder.list(_TICKS) if name.isdigit())
        return [_PLAN, *log_files(folder, batch), position_file(batch), *ticks]

    @classmethod
    def moved(cls, files: Mapping[str, str], checkpoint: str) -> dict[str, str]:
        """See ``Input.moved``: the log of chunks names files of the checkpoint."""
        folder = f"{spark_path(checkpoint)}/{_TICKS}"
        return {name: move_entries(content, folder) if is_log(name) else content for name, content in files.items()}

    def prepare(self, context: JobContext) -> None:
        """Make the plan, or read it where an earlier run made it.

        Raises:
            Fatal: there is no table, or the options are others than those of the plan.
        """
        context.input = self
        config = self.run.config
        tables = list(config["source.tables"] or ())
        options = {"path": config[PATH], "tables": tables, "since": config[SINCE], "until": config[UNTIL]}
        plan_json = self.run.folder.read(_PLAN)
        if plan_json is None:
            plan = self._make_plan(options)
            ticks = open_folder(f"{self.run.job.checkpoint.rstrip('/')}/{_TICKS}", self.run.spark)
            for number in range(max(1, len(plan.chunks))):  # a history without a row is a batch without one
                ticks.write(f"{number:08d}", "")
            self.run.folder.write(_PLAN, plan.to_json())
        else:
            plan = HistoryPlan.from_json(plan_json)
        if plan.options != options:
            changed = ", ".join(name for name, value in options.items() if plan.options.get(name) != value)
            raise Fatal(
                f"source.history.*: {changed} changed since the job began to read the history; set it back, or give the job a "
                "checkpoint of its own (or another name)"
            )
        self._plan = plan
        self._metrics = context.metrics
        self._metrics["history_chunks"] = float(len(plan.chunks))

    def _make_plan(self, options: dict[str, Any]) -> HistoryPlan:
        spark = self.run.spark
        existing = find_tables(spark, str(options["path"]))
        chosen = [table for table in existing if is_selected(options["tables"], (table.name, *table.namespaces))]
        if not chosen:
            there = ", ".join(table.name for table in existing) or "none"
            raise Fatal(f"{PATH}: no table of {options['path']} is chosen by source.tables; there are: {there}")
        tables: list[HistoryTable] = []
        chunks: list[tuple[int, int, int]] = []
        for table in chosen:
            offsets, ranges = self._look_at_table(table)
            if not ranges:
                continue
            chunks += [(len(tables), low, high) for low, high in ranges]
            tables.append(HistoryTable(table.path, _newest_name(table), table.keys, offsets, table.delta))
        return HistoryPlan(tuple(tables), tuple(chunks), options)

    def _look_at_table(self, table: HistoryTableEntry) -> tuple[dict[str, dict[str, int]], list[OrderRange]]:
        """The end of a table, and the ranges of its chunks."""
        offsets, spans = self._find_spans(table)
        if not offsets and spans:
            raise Fatal(
                f"{table.path}: the table has rows, but no Kafka offsets: no files sink of Millrace wrote it; choose others by "
                "source.tables"
            )
        return offsets, cut_ranges(spans, self.run.config["source.max.offsets.per.trigger"])

    def _find_spans(self, table: HistoryTableEntry) -> tuple[dict[str, dict[str, int]], list[Span]]:
        """The end of a table, and where its rows are. Blocks."""
        spark, target = self.run.spark, self.run.config["source.max.offsets.per.trigger"]
        if table.delta:
            from spark_jobs.history.delta import read_progress

            offsets = _newest_offsets(read_progress(spark, table.path).offsets)
            rows = read_range(spark, table, since=self._since, until=self._until)
            return offsets, _find_quantiles(rows, target)
        state = HistoryLog(open_storage(spark, table.path)).load()
        low, high = time_bounds(self._since, self._until)
        files = prune_files(state.files.values(), low=low, high=high)
        spans = [
            Span(file.min_id, file.max_id, file.rows)
            for file in files
            if file.min_id is not None and file.max_id is not None
        ]
        return _newest_offsets(state.offsets), spans

    def stream(self, spark: SparkSession) -> DataFrame:
        """One file for each chunk."""
        return list_files(spark, f"{self.run.job.checkpoint.rstrip('/')}/{_TICKS}", _OPTIONS)

    def batch(self, frame: DataFrame, number: int) -> InputBatch:
        """See ``Input.batch``; blocks while it reads the rows of the chunk."""
        del frame
        self._release_frames()
        folder = self.run.folder
        start = position_after(folder, number - 1)
        first = offset_of(folder, number - 1) + 1 if number else 0
        chunks = self._plan.chunks[first : offset_of(folder, number) + 1]
        self._metrics["history_chunks_read"] = float(first + len(chunks))
        merged: dict[int, OrderRange] = {}
        for index, low, high in chunks:
            part = merged.get(index, OrderRange(low, high))
            merged[index] = OrderRange(min(part.low, low), max(part.high, high))
        position: Offsets = dict(start)
        ranges: Ranges = {}
        for index, bounds in merged.items():
            table = self._plan.tables[index]
            rows = self._read_chunk(table, bounds, start).persist()
            self.frames.append((table, rows))
            for figures in rows.groupBy(_KAFKA_PARTITION).count().collect():
                where = (table.namespace, int(figures[_KAFKA_PARTITION]))
                begin = start.get(where, 0)
                position[where] = begin + int(figures["count"])
                ranges[where] = (begin, position[where])
        save_position(folder, number, position)
        return InputBatch(
            self._build_raw_records(), ranges, position, sum(end - begin for begin, end in ranges.values())
        )

    def _read_chunk(self, table: HistoryTable, bounds: OrderRange, start: Offsets) -> DataFrame:
        """The rows of a chunk: as they were written, but for their positions, which follow those of earlier chunks."""
        directory = HistoryTableEntry(table.path, table.namespace, table.delta, (table.namespace,), table.keys)
        rows = read_range(
            self.run.spark, directory, since=self._since, until=self._until, low_id=bounds.low, high_id=bounds.high
        )
        rows = rows.where(is_known(parse_offsets(json.dumps(table.offsets))))
        if not self.run.config[BEFORE]:
            rows = rows.where(f.col("ums_op_") != "b")
        key = [get_column(name) for name in table.keys] or [f.col("ums_uid_")]
        partition = f.pmod(f.xxhash64(*key), f.lit(_PARTITIONS)).cast("int")
        # An image before an update comes before its update.
        order = Window.partitionBy(partition).orderBy(
            "ums_id_", _KAFKA_TOPIC, _KAFKA_PARTITION, _KAFKA_OFFSET, f.col("ums_op_") != "b", "ums_uid_"
        )
        first = f.lit(0).cast("long")
        for part in range(_PARTITIONS):
            first = f.when(partition == part, f.lit(start.get((table.namespace, part), 0)).cast("long")).otherwise(
                first
            )
        columns = [get_column(name) for name in rows.columns if name not in SYSTEM_COLUMNS]
        return rows.select(
            *columns,
            *UMS_COLUMNS,
            f.lit(table.namespace).alias(_KAFKA_TOPIC),
            partition.alias(_KAFKA_PARTITION),
            (first + f.row_number().over(order) - 1).alias(_KAFKA_OFFSET),
        )

    def _build_raw_records(self) -> DataFrame:
        """The rows as records: what a dead letter of one shows."""
        shape = f"key binary, value binary, headers {HEADERS}, topic string, partition int, offset long, timestamp timestamp"
        whole = self.run.spark.createDataFrame([], shape)
        for _, rows in self.frames:
            value = f.to_json(
                f.struct(*[get_column(name) for name in rows.columns if name not in SYSTEM_COLUMNS]), WHOLE
            )
            whole = whole.unionAll(
                rows.select(
                    f.lit(None).cast("binary"),
                    value.cast("binary"),
                    f.lit(None).cast(HEADERS),
                    _KAFKA_TOPIC,
                    _KAFKA_PARTITION,
                    _KAFKA_OFFSET,
                    "ums_ts_",
                )
            )
        return whole

    def shapes(self) -> list[tuple[HistoryTable, DataFrame]]:
        """Frames of all tables of the plan that have their columns; not to be read."""
        return [(table, self._read_chunk(table, OrderRange(0, -1), {})) for table in self._plan.tables]

    def _release_frames(self) -> None:
        for _, rows in self.frames:
            rows.unpersist()
        self.frames = []

    def close(self) -> None:
        """See ``Input.close``."""
        self._release_frames()


def _find_quantiles(rows: DataFrame, target: int) -> list[Span]:
    """Spans of order numbers with about equally many rows each. Blocks: reads the numbers."""
    low, high, count = rows.agg(f.min("ums_id_"), f.max("ums_id_"), f.count(f.lit(1))).collect()[0]
    if not count:
        return []
    parts = min(_MOST_SPANS, math.ceil(count / target))
    shares = [number / parts for number in range(1, parts)]
    inner = rows.approxQuantile("ums_id_", shares, 0.1 / parts) if shares else []
    begins = [low, *sorted({int(number) for number in inner if low < number < high})]
    ends = [*(begin - 1 for begin in begins[1:]), high]
    return [Span(begin, end, math.ceil(count / len(begins))) for begin, end in zip(begins, ends, strict=True)]


def _newest_offsets(by_source: dict[str, dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """The largest offset of every partition over all values of ``sink.files.source.id``."""
    newest: dict[str, dict[str, int]] = {}
    for topics in by_source.values():
        for topic, partitions in topics.items():
            offsets = newest.setdefault(topic, {})
            for partition, offset in partitions.items():
                offsets[partition] = max(offset, offsets.get(partition, 0))
    return newest


def _newest_name(table: HistoryTableEntry) -> str:
    """The namespace of the newest version that was written."""
    return table.namespaces[-1] if table.namespaces else table.name
