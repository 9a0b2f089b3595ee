"""Frames of tables whose records are Avro: expressions for the JVM.

Records that can't be decoded stop the job with their position, or are put aside by a pass of their own before the frame is
given out (``errors.tolerance=all``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t

from connectors.errors import Skippable
from connectors.formats.order_number import BY_WRITE_TIME, FILE_UNIT, LAST_FILE, MEMBERS, NO_FILE_NUMBER, NO_POSITION
from connectors.schema import Type
from spark_jobs.contract import SYSTEM_COLUMNS
from spark_jobs.rows.shards import NUMBERS, second_shard
from spark_jobs.sources.avro.decimals import find_decimal_problem
from spark_jobs.sources.avro.expressions import HEAD_SIZE, build_value, decode_column, encode_head
from spark_jobs.sources.records.events import NO_AFTER, NO_KEY, TRUNCATE
from spark_jobs.sources.records.flat import WORDS
from spark_jobs.sources.types import suit_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from spark_jobs.contract import TableSchema
    from spark_jobs.dead_letters import DeadLetters
    from spark_jobs.rows.shards import Shard
    from spark_jobs.sources.layout import RecordLayout
    from spark_jobs.sources.records.flat import Flat

#: Members of an envelope that are read, as ``avro.decoded`` takes them.
ENVELOPE_MEMBERS: Final = {"before": None, "after": None, "op": None, "source": frozenset((*MEMBERS, *NUMBERS))}
_MALFORMED: Final = "The bytes don't match the schema that the record names."
_NO_ORDER: Final = f"There is no order number of the event: {NO_FILE_NUMBER}, and {NO_POSITION}."


@dataclass(frozen=True, slots=True)
class AvroFrameTable:
    """The settings of a frame: its table, and how to read the records.

    Attributes:
        schema: the table.
        layouts: the versions of its records in this batch.
        before: whether rows before an update are wanted.
        truncates: whether a truncate is left out (else it is a bad record).
        tombstones: whether a record without a value is a delete (flat rows).
        separate: whether rows begin with the numbers of their shard.
        shard: the only one that records may be of; None: any.
        moves: whether an update may change the key: it is a delete of the old row then, and an insert.
    """

    schema: TableSchema
    layouts: tuple[RecordLayout, ...]
    before: bool
    truncates: bool
    tombstones: bool = False
    separate: bool = False
    shard: Shard | None = None
    moves: bool = False


def build_frame(records: DataFrame, table: AvroFrameTable, report: DeadLetters) -> DataFrame:
    """The frame of one table from ``records`` (``FIELDS``; values are not null); runs a job where bad records are put aside."""
    layouts = {layout.ids: layout for layout in table.layouts}
    several_keys = tells_keys_apart(table.layouts)
    version: Column = f.lit(None).cast("int")
    columns = []
    for number, layout in enumerate(layouts.values()):
        mine = f.substring("value", 1, HEAD_SIZE) == encode_head(layout.ids[0])
        if several_keys and layout.ids[1] >= 0:
            mine &= f.substring("key", 1, HEAD_SIZE) == encode_head(layout.ids[1])
        version = f.when(mine, f.lit(number)).otherwise(version)
        members = ENVELOPE_MEMBERS if layout.flat is None else None
        columns.append(f.when(mine, decode_column(f.col("value"), layout.avro[0], members)).alias(f"d{number}"))
    if table.tombstones:
        version = f.when(f.col("value").isNull(), f.lit(0)).otherwise(version)
    rows = records.select(
        *[name for name in records.columns if name != "value" or report.tolerant],
        f.col("value").isNull().alias("empty"),
        version.alias("version"),
        # Spark pushes filters through a projection and decodes for each of them again; not through this.
        f.explode(f.array(f.struct(*columns))).alias("decoded"),
    ).where(f.col("version").isNotNull())
    rows = rows.select(
        *(name for name in rows.columns if name != "decoded"),
        *(f.col("decoded").getField(f"d{number}").alias(f"d{number}") for number in range(len(columns))),
    )
    versions = [_Version(number, layout, table) for number, layout in enumerate(layouts.values())]
    for layout_version in versions:
        rows = rows.withColumn(layout_version.file_number, layout_version.find_file_number())
    rows = rows.withColumn(
        "op",
        f.when(f.col("empty"), f.lit("d")).otherwise(
            _choose_version(versions, lambda layout_version: layout_version.op)
        ),
    )
    left_out = ["m", "t"] if table.truncates else ["m"]
    rows = rows.where(f.coalesce(~f.col("op").isin(*left_out), f.lit(True)))
    if table.shard is not None and any(layout.sharded for layout in table.layouts):
        rows = rows.where(_of_shard(versions, table.schema.namespace, table.shard))
    error = _find_record_error(versions, table)
    if report.tolerant:
        bad = rows.withColumn("error", error).where(f.col("error").isNotNull())
        bad.select("topic", "partition", "offset", "key", "value", "error").mapInArrow(
            putting_aside(report), "n long"
        ).collect()
        rows = rows.where(error.isNull())
    else:
        position_text = f.concat(
            f.lit("the record at "),
            f.col("topic"),
            f.lit("-"),
            f.col("partition").cast("string"),
            f.lit(" offset "),
            f.col("offset").cast("string"),
            f.lit(" can't be decoded: "),
        )
        rows = rows.withColumn(
            "op", f.when(error.isNull(), f.col("op")).otherwise(f.raise_error(f.concat(position_text, error)))
        )
    return _select_output(rows, versions, table)


def tells_keys_apart(layouts: Iterable[RecordLayout | None]) -> bool:
    """Whether values of one schema have keys of several, so that both say how a record is read. Pure."""
    ids = {layout.ids for layout in layouts if layout is not None}
    return len({key for _, key in ids}) > 1 and len({value for value, _ in ids}) < len(ids)


class _Version:
    """Expressions of one layout; its struct is the column ``d<number>``."""

    def __init__(self, number: int, layout: RecordLayout, table: AvroFrameTable) -> None:
        self._layout = layout
        self._table = table
        self.data = f.col(f"d{number}")
        #: The column with the number of the binlog file, which costs too much to find it twice.
        self.file_number = f"file{number}"
        self._row = {field.name: field.schema for field in layout.row}
        self._key = {field.name: field.schema for field in layout.key}
        flat = layout.flat
        self.after = self.data if flat is not None else self.data.getField("after")
        self.before = self.data if flat is not None else self.data.getField("before")
        self.op = self.data.getField("op") if flat is None else self._flat_op(flat)
        if flat is None:
            self.malformed = self.op.isNull()
            self.no_after = self.after.isNull()
        else:
            self.malformed = f.lit(True)
            for name in self._row:
                self.malformed &= self.data.getField(name).isNull()
            self.no_after = f.lit(False)

    def _flat_op(self, flat: Flat) -> Column:
        op: Column = f.lit("c")
        if flat.op:
            word = f.lower(self.data.getField(flat.op))
            op = f.when(word.isNull(), f.lit("c"))
            for kind in ("c", "u", "d", "b"):
                words = [
                    operation_word for operation_word, meant in WORDS.items() if meant == ("i" if kind == "c" else kind)
                ]
                op = op.when(word.isin(*words), f.lit(kind))
            op = op.otherwise(word)
        if flat.deleted:
            op = f.when(f.lower(self.data.getField(flat.deleted).cast("string")) == "true", f.lit("d")).otherwise(op)
        return op

    def image(self, row: Column, name: str, target: t.DataType) -> Column:
        """A column of the row ``row``; of a key column that it lacks, the record's key."""
        own_value = build_value(row.getField(name), self._row[name], target) if name in self._row else None
        if name not in self._key or not any(
            column.name == name and column.key for column in self._table.schema.columns
        ):
            return own_value if own_value is not None else f.lit(None).cast(target)
        from_key = build_value(
            decode_column(f.col("key"), self._layout.avro[1]).getField(name), self._key[name], target
        )
        return f.coalesce(own_value, from_key) if own_value is not None else from_key

    def problems(self, row: Column) -> list[Column]:
        """Why columns of the row ``row`` (or of the record's key) can't be read; each is null where nothing is wrong."""
        result = []
        for column in self._table.schema.columns:
            problem_columns = []
            if column.name in self._row:
                row_schema = suit_column(self._row[column.name], column.type)
                problem_columns.append(find_decimal_problem(row.getField(column.name), row_schema))
            if column.key and column.name in self._key:
                key_schema = suit_column(self._key[column.name], column.type)
                problem_columns.append(
                    find_decimal_problem(
                        decode_column(f.col("key"), self._layout.avro[1]).getField(column.name), key_schema
                    )
                )
            where = f.lit(f"Table {self._table.schema.namespace}, column {column.name}: ")
            result += [
                f.concat(where, problem_column) for problem_column in problem_columns if problem_column is not None
            ]
        return result

    def find_file_number(self) -> Column:
        """The number of the binlog file; null if the record has no such number."""
        if self._layout.flat is not None or not self._layout.members.issuperset(("file", "pos")):
            return f.lit(None).cast("long")
        return file_number(self.data.getField("source"))

    def identity(self) -> Column:
        """``ums_id_``; null where a record has no order number that could be."""
        flat = self._layout.flat
        if flat is not None:
            return self.data.getField(flat.order).cast("long") if flat.order else f.col("offset")
        return order_column(self.data.getField("source"), self._layout.members, f.col(self.file_number))

    def number(self, name: str) -> Column:
        """A number of the record's shard."""
        if not self._layout.sharded or name not in self._layout.members:
            return f.lit(0).cast("long")
        return f.coalesce(self.data.getField("source").getField(name).cast("long"), f.lit(0).cast("long"))

    def time(self) -> Column:
        """``ums_ts_``."""
        flat = self._layout.flat
        if flat is not None:
            if not flat.time:
                return f.col("timestamp")
            member = self.data.getField(flat.time)
            if self._row[flat.time].type is Type.STRING:
                return f.coalesce(member.cast("timestamp"), f.col("timestamp"))
            scaled = member.cast("long") * f.lit(flat.up)
            return f.coalesce(
                f.timestamp_micros(f.call_function("div", scaled - f.pmod(scaled, f.lit(flat.down)), f.lit(flat.down))),
                f.col("timestamp"),
            )
        times = [
            f.timestamp_micros(micros) for micros in _change_micros(self.data.getField("source"), self._layout.members)
        ]
        return f.coalesce(*times, f.col("timestamp"))


def file_number(source: Column) -> Column:
    """The number in the name of the binlog file; null where it has none."""
    return f.regexp_extract(source.getField("file"), r"\.([0-9]+)\z", 1).try_cast("long")


def order_column(source: Column, members: frozenset[str], file: Column | None = None) -> Column:
    """``connectors.formats.order_number.order_number`` as an expression, else Kafka's offset.

    Null where that function raises: the file's name has no number, or a number is too large.

    Args:
        source: the envelope's ``source``.
        members: the names of what it has.
        file: ``file_number`` of it, where that is at hand.
    """

    def has(*names: str) -> bool:
        return members.issuperset(names)

    result = f.col("offset")
    if has("file", "pos"):
        name, pos = source.getField("file"), source.getField("pos").cast("long")
        digits = file_number(source) if file is None else file
        row = f.coalesce(source.getField("row").cast("long"), f.lit(0)) if has("row") else f.lit(0)
        fits = digits.between(0, LAST_FILE) & (pos + row).between(0, FILE_UNIT - 1)
        result = f.when((name != "") & pos.isNotNull(), f.when(fits, digits * f.lit(FILE_UNIT) + pos + row)).otherwise(
            result
        )
    if has("lsn"):
        lsn = source.getField("lsn").cast("long")
        result = f.when(lsn.isNotNull(), lsn).otherwise(result)
    if has("connector"):
        time = f.coalesce(*_change_micros(source, members), f.col("offset"))
        result = f.when(source.getField("connector").isin(*BY_WRITE_TIME), time).otherwise(result)
    if has("ums_id"):
        own_number = source.getField("ums_id").cast("long")
        result = f.when(own_number.isNotNull(), own_number).otherwise(result)
    return result


def _change_micros(source: Column, members: frozenset[str]) -> list[Column]:
    """The time of a change in µs since 1970 by the members that are there, the finest first."""
    times = []
    if "ts_us" in members:
        times.append(source.getField("ts_us"))
    if "ts_ns" in members:
        nanos = source.getField("ts_ns")
        times.append(f.call_function("div", nanos - f.pmod(nanos, f.lit(1000)), f.lit(1000)))
    if "ts_ms" in members:
        times.append(source.getField("ts_ms") * f.lit(1000))
    return times


def _choose_version(versions: list[_Version], of: Callable[[_Version], Column]) -> Column:
    """``of`` the version that the record has."""
    if len(versions) == 1:
        return of(versions[0])
    result = f.when(f.col("version") == 0, of(versions[0]))
    for number, version in enumerate(versions[1:], 1):
        result = result.when(f.col("version") == number, of(version))
    return result


def _of_shard(versions: list[_Version], namespace: str, shard: Shard) -> Column:
    """True; raises for a record of another shard. For a filter, which Spark can't leave out."""
    shard_numbers = [
        _choose_version(versions, lambda version, name=name: version.number(name))  # type: ignore[misc]  # bound in the loop
        for name in NUMBERS
    ]
    before, behind = second_shard(namespace, shard, ("{}", "{}")).split("{}.{}")
    message = f.concat(
        f.lit(before), shard_numbers[0].cast("string"), f.lit("."), shard_numbers[1].cast("string"), f.lit(behind)
    )
    is_other_shard = (shard_numbers[0] != shard[0]) | (shard_numbers[1] != shard[1])
    return f.when(is_other_shard, f.raise_error(message).cast("boolean")).otherwise(f.lit(True))


def _find_record_error(versions: list[_Version], table: AvroFrameTable) -> Column:
    """Return the problem of a record; null if it has none."""
    op = f.col("op")
    unknown = f.concat(f.lit("The event's op is "), op, f.lit("; known are c, r, u, d, t, m."))
    malformed = _choose_version(versions, lambda version: version.malformed) & ~f.col("empty")
    result = (
        f.when(malformed, f.lit(_MALFORMED))
        .when(op == "t", f.lit(TRUNCATE))
        .when(~op.isin("c", "r", "u", "d", "b"), unknown)
    )
    result = result.when((op != "d") & _choose_version(versions, lambda version: version.no_after), f.lit(NO_AFTER))
    flat = table.layouts[0].flat
    if flat is None:
        result = result.when(_choose_version(versions, _Version.identity).isNull(), f.lit(_NO_ORDER))
    if unreadable := [_choose_version(versions, of) for of in _problem_getters(versions, table)]:
        unread = f.coalesce(*unreadable)
        result = result.when(unread.isNotNull(), unread)
    if table.tombstones and (not table.schema.key or (flat is not None and flat.order)):
        result = result.when(
            f.col("empty"),
            f.lit(
                "The record has no value (a tombstone), so it has no key columns or no "
                "order of changes. Set "
                "source.tombstones=ignore, or source.key.columns."
            ),
        )
    for column in table.schema.key:
        missing = _choose_version(
            versions,
            lambda version, column=column: version.image(  # type: ignore[misc]  # bound in the loop
                f.when(op == "d", version.before).otherwise(version.after), column.name, column.type
            ).isNull(),
        )
        result = result.when(missing, f.lit(f"The key column {column.name} is null" + NO_KEY))
    return result


def _problem_getters(versions: list[_Version], table: AvroFrameTable) -> list[Callable[[_Version], Column]]:
    """Return expressions that find unreadable values in the rows taken from a record; empty if every value can be read."""
    op = f.col("op")

    def find_problems(version: _Version, images: Sequence[Column]) -> Column:
        return f.coalesce(
            f.lit(None).cast("string"),
            *(problem_column for image in images for problem_column in version.problems(image)),
        )

    def of_result(version: _Version) -> Column:
        return find_problems(version, [f.when(op == "d", version.before).otherwise(version.after)])

    if not any(version.problems(version.after) for version in versions):
        return []
    if not (table.before or table.moves) or table.layouts[0].flat is not None:
        return [of_result]
    return [of_result, lambda version: find_problems(version, [version.before])]


def _select_output(rows: DataFrame, versions: list[_Version], table: AvroFrameTable) -> DataFrame:
    uid = f.concat_ws("-", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    if (table.before or table.moves) and table.layouts[0].flat is None:
        old = _choose_version(versions, lambda version: version.before.isNotNull())
        kinds = f.array(_build_operation_letter())
        if table.before:
            kinds = f.when((f.col("op") == "u") & old, f.array(f.lit("b"), f.lit("u"))).otherwise(kinds)
        if table.moves:
            has_moved = (f.col("op") == "u") & old & _has_moved(versions, table)
            kinds = f.when(has_moved, f.array(f.lit("d"), f.lit("i"))).otherwise(kinds)
        rows = rows.withColumn("kind", f.explode(kinds))
        is_first = (f.col("op") == "u") & f.col("kind").isin("b", "d")
        uid = f.when(is_first, f.concat(uid, f.lit("-"), f.col("kind"))).otherwise(uid)
    else:
        rows = rows.withColumn("kind", _build_operation_letter())
    kind = f.col("kind")
    columns = [
        _choose_version(
            versions,
            lambda version, column=column: version.image(  # type: ignore[misc]  # bound in the loop
                f.when(kind.isin("b", "d"), version.before).otherwise(version.after), column.name, column.type
            ),
        ).alias(column.name)
        for column in table.schema.columns
    ]
    system = [
        _choose_version(versions, _Version.identity),
        _choose_version(versions, _Version.time),
        kind,
        uid,
        f.col("topic"),
        f.col("partition"),
        f.col("offset"),
    ]
    if table.separate:
        numbers = [
            _choose_version(versions, lambda version, name=name: version.number(name)).alias(name)  # type: ignore[misc]  # as above
            for name in NUMBERS
        ]
        columns = numbers + columns
    return rows.select(*columns, *[column.alias(name) for column, name in zip(system, SYSTEM_COLUMNS, strict=True)])


def _has_moved(versions: list[_Version], table: AvroFrameTable) -> Column:
    """Whether an update has changed the key; not where the image before it lacks a part of the key."""
    is_known, differs = f.lit(True), f.lit(False)
    for column in table.schema.key:
        old, new = (
            _choose_version(
                versions,
                lambda version, image=image, column=column: version.image(  # type: ignore[misc]  # bound in the loop
                    getattr(version, image), column.name, column.type
                ),
            )
            for image in ("before", "after")
        )
        is_known &= old.isNotNull()
        differs |= f.coalesce(old != new, f.lit(False))
    return is_known & differs


def _build_operation_letter() -> Column:
    return f.when(f.col("op").isin("c", "r"), f.lit("i")).otherwise(f.col("op"))


def putting_aside(report: DeadLetters) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that reports rows with ``error`` and the record they are of."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        count = 0
        with report:
            for batch in batches:
                rows: list[dict[str, Any]] = batch.to_pylist()
                for row in rows:
                    report.report(
                        row["topic"],
                        row["partition"],
                        row["offset"],
                        row["key"],
                        row["value"],
                        Skippable(row["error"]),
                    )
                count += len(rows)
        yield pa.RecordBatch.from_pydict({"n": pa.array([count], pa.int64())})

    return run
