"""``sink.type=console``: shows the first rows of each batch, for looking."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, ClassVar, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, at_least, between, one_of
from spark_jobs.contract import Batch, Sink
from spark_jobs.json_options import TIMES
from spark_jobs.spark.frames import columns_of, get_column
from spark_jobs.spark.map_keys import with_text_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from connectors.options import Config

_GROUP: Final = "Console"
_MOST: Final = 10_000


class ConsoleSink(Sink):
    """Prints to standard output; a job's process sends that to its log. Memory: the rows it prints."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        (
            ConfigKey(
                name="sink.console.rows",
                type=ConfigType.INT,
                default=20,
                validator=between(0, _MOST),
                unit="rows",
                group=_GROUP,
                doc="How many rows of each table are shown per batch, the first ones of each partition of Kafka "
                "first. Rows beyond are not even decoded, where that can be helped. 0: only how many there are.",
            ),
            ConfigKey(
                name="sink.console.format",
                type=ConfigType.STRING,
                default="table",
                validator=one_of("table", "json"),
                group=_GROUP,
                doc="`table`, or `json`: one JSON object per row and line, with the table's name in `table_`.",
            ),
            ConfigKey(
                name="sink.console.truncate",
                type=ConfigType.INT,
                default=40,
                validator=at_least(0),
                unit="characters",
                group=_GROUP,
                importance=Importance.LOW,
                doc="Longest text of a cell of a table; 0: no limit.",
            ),
            ConfigKey(
                name="sink.console.content",
                type=ConfigType.STRING,
                default="rows",
                validator=one_of("rows", "records"),
                group=_GROUP,
                doc="`rows`: changes of tables, decoded; `records`: Kafka's records as they are, as text.",
            ),
            ConfigKey(
                name="sink.console.count",
                type=ConfigType.BOOLEAN,
                default=True,
                group=_GROUP,
                importance=Importance.LOW,
                doc="Whether all rows are counted, for which they must all be decoded.",
            ),
        )
    )
    guarantees: ClassVar[tuple[str, ...]] = ("none",)
    not_read_back: ClassVar[str] = "it prints rows and keeps none"

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Describe what the sink would show."""
        return [f"shows at most {config['sink.console.rows']} rows per table and batch on standard output"]

    def write(self, batch: Batch) -> int:
        """Show a batch; returns its rows (without ``sink.console.count``: those shown)."""
        config = self.context.config
        if config["sink.console.content"] == "records":
            return self._show_table(batch, "records", _as_text(batch.raw))
        tables = batch.changes()
        if not tables:
            print(f"batch {batch.id}: no changes", flush=True)  # noqa: T201 - that is what it is for
        return sum(self._show_table(batch, changes.schema.namespace, changes.frame) for changes in tables)

    def _show_table(self, batch: Batch, name: str, frame: DataFrame) -> int:
        config = self.context.config
        limit: int = config["sink.console.rows"]
        shown = frame.limit(limit)
        lines: Sequence[str]
        if config["sink.console.format"] == "json":
            json_rows = _as_json(shown) if limit else []
            head = f'{{"table_":{_quote_name(name)},'
            lines = [head + line[1:] if line != "{}" else head[:-1] + "}" for line in json_rows]
            rows = frame.count() if config["sink.console.count"] else len(json_rows)
        else:
            collected = _with_time_text(shown).collect() if limit else []
            rows = frame.count() if config["sink.console.count"] else len(collected)
            title = f"batch {batch.id}, {name}: {rows} rows" + (
                f", the first {len(collected)}" if rows > len(collected) else ""
            )
            lines = (
                [title, *format_table(frame.columns, collected, config["sink.console.truncate"])]
                if collected
                else [title]
            )
        sys.stdout.write("\n".join(lines) + "\n" if lines else "")
        sys.stdout.flush()
        return rows


def format_table(names: Sequence[str], rows: Sequence[Sequence[object]], longest: int) -> list[str]:
    """Lines of a table with headings; cells are cut to ``longest`` characters (0: not)."""
    cells = [[cut_cell(format_cell(name), longest) for name in names]] + [
        [cut_cell(format_cell(value), longest) for value in row] for row in rows
    ]
    widths = [max(len(row[index]) for row in cells) for index in range(len(names))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def format_cell(value: object) -> str:
    """A cell's text on one line."""
    if value is None:
        return "null"
    if isinstance(value, bytes | bytearray):
        return "0x" + bytes(value).hex()
    return str(value).replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def cut_cell(cell: str, longest: int) -> str:
    """``cell``, at most ``longest`` characters long."""
    return cell if longest < 1 or len(cell) <= longest else cell[: max(0, longest - 1)] + "…"


def _with_time_text(frame: DataFrame) -> DataFrame:
    """The rows with times as text in UTC: Python would show them in the zone of the machine, and has fewer years."""
    columns = zip(columns_of(frame.columns), frame.schema, strict=True)
    return frame.select(*(column.cast(_time_as_text(field.dataType)) for column, field in columns))


def _time_as_text(kind: DataType) -> DataType:
    from pyspark.sql import types as t

    match kind:
        case t.DateType() | t.TimestampType() | t.TimestampNTZType():
            return t.StringType()
        case t.ArrayType():
            return t.ArrayType(_time_as_text(kind.elementType))
        case t.MapType():
            return t.MapType(_time_as_text(kind.keyType), _time_as_text(kind.valueType))
        case t.StructType():
            return t.StructType([t.StructField(field.name, _time_as_text(field.dataType)) for field in kind])
    return kind


def _as_json(frame: DataFrame) -> list[str]:
    from pyspark.sql import functions as f

    columns = [
        with_text_keys(get_column(field.name), field.dataType).alias(field.name) for field in frame.schema.fields
    ]
    return [row.json for row in frame.select(f.to_json(f.struct(*columns), TIMES).alias("json")).collect()]


def _as_text(raw: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return raw.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        f.col("key").cast("string").alias("key"),
        f.col("value").cast("string").alias("value"),
    )


def _quote_name(name: str) -> str:
    return json.dumps(name)
