"""Rows of files as changes of a table: types, keys, what happened to a row, and what is wrong with bad ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t

from connectors.errors import ConfigInvalid, Fatal, Skippable
from spark_jobs import registry
from spark_jobs.contract import Column, Source, TableChanges
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.inputs.files import options
from spark_jobs.inputs.files.reading import CORRUPT, EXTRA_COLUMNS, LINE, MODIFIED, NUMBER, PATH, ROW
from spark_jobs.json_options import WHOLE
from spark_jobs.metrics import JobMetric
from spark_jobs.sources.plain import PLAIN_KEYS
from spark_jobs.sources.records.flat import WORDS, Flat, flat_of
from spark_jobs.sources.tables import SchemaFiles, from_json, make_nullable, merge_schema, restore_table, to_json
from spark_jobs.spark.frames import get_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import Batch, JobContext, TableSchema

_KEY_OPTION: Final = "source.key.columns"
_TYPES_OPTION: Final = "source.table.columns"
#: Why a row can't be used; null: it can.
_REASON: Final = "millrace_reason_"
_SHOWN: Final = 100
_CORRUPT: Final = (
    "the row has another number of fields than the header says, or a quote that is not closed: {}; correct the file, or "
    f"{options.READER}* (sep, quote, escape)"
)


class FilesSource(Source):
    """Gives the rows of files as changes: of JSON by ``source.format``, of the other formats as plain rows."""

    config_def: ClassVar[ConfigDef] = options.make_definition(*PLAIN_KEYS)
    pass_through: ClassVar[tuple[str, ...]] = (f"{_KEY_OPTION}.", f"{_TYPES_OPTION}.", options.READER)
    metrics: ClassVar[tuple[JobMetric, ...]] = (
        JobMetric("files_read_total", "counter", "files", "Files that were read in this run."),
        JobMetric("files_bad_total", "counter", "files", "Files that can't be read and were put aside in this run."),
    )

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        config = context.config
        self._is_update = config[options.OPERATION] == options.UPDATE
        self._rows: Source = (
            registry.source_class(config["source.format"] or "plain")(context)
            if config[options.FORMAT] == options.JSON
            else PlainRows(context)
        )

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        problems = options.check_options(config)
        name, column_list = _types_option(config, str(config[options.NAMESPACE]))
        mistake = options.check_columns(column_list) if column_list else ""
        return [*problems, f"{name}: {mistake}"] if mistake else problems

    def changes(self, batch: Batch) -> list[TableChanges]:
        """See ``Source.changes``."""
        tables = self._rows.changes(batch)
        if not self._is_update:
            return tables
        op = f.when(f.col("ums_op_") == "i", "u").otherwise(f.col("ums_op_"))
        return [replace(table, frame=table.frame.withColumn("ums_op_", op)) for table in tables]

    def schemas(self) -> list[TableSchema]:
        """See ``Source.schemas``."""
        return self._rows.schemas()

    def refused(self, namespace: str) -> None:
        """See ``Source.refused``."""
        self._rows.refused(namespace)

    def written(self) -> None:
        """See ``Source.written``."""
        self._rows.written()

    def close(self) -> None:
        """See ``Source.close``."""
        self._rows.close()


class PlainRows(Source):
    """Rows of CSV, text, Avro, Parquet and ORC."""

    config_def: ClassVar[ConfigDef] = FilesSource.config_def

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        config = context.config
        self._namespace = str(config[options.NAMESPACE])
        self._keys = key_columns(config, self._namespace)
        self._types = declared_types(config, self._namespace)
        self._positions = bool(config[options.POSITION_COLUMNS])
        self._files = SchemaFiles(context.spark, config.get("checkpoint.location"))
        self._tables: dict[str, TableSchema] = {}
        self._before: dict[str, TableSchema] = {}
        self._loaded = self._unsaved = False

    def changes(self, batch: Batch) -> list[TableChanges]:
        """See ``Source.changes``; runs a Spark job that reports bad rows, where there can be some."""
        del batch
        self._load_tables()
        rows = self.context.input.rows
        names = [name for name in rows.columns if name not in EXTRA_COLUMNS]
        if not names:
            return []
        try:
            flat = flat_of(names, self.context.config)
        except Skippable as error:
            raise Fatal(str(error)) from error
        columns = self._read_columns([field for field in rows.schema.fields if field.name in names], flat)
        where = f"(Schemas are kept in {self._files.folder}.)" if self._files.folder else ""
        self._before = dict(self._tables)
        schema = make_nullable(
            merge_schema(self._tables.get(self._namespace), self._namespace, columns, where), columns
        )
        self._tables[self._namespace] = schema
        self._unsaved |= self._before != self._tables
        checks = self._build_checks(names, flat)
        if checks:
            rows = rows.withColumn(_REASON, f.coalesce(*checks))
            self._report_bad(rows.where(f.col(_REASON).isNotNull()), names)
            rows = rows.where(f.col(_REASON).isNull())
        return [TableChanges(schema, self._build_frame(rows, schema, flat))]

    def _load_tables(self) -> None:
        if not self._loaded:
            tables_json = self._files.load()
            if tables_json is not None:
                self._tables, _ = from_json(tables_json)
            self._loaded = True

    def _read_columns(self, fields: Sequence[t.StructField], flat: Flat) -> tuple[Column, ...]:
        types = {field.name: self._types.get(field.name, field.dataType) for field in fields}
        types = {name: kind for name, kind in types.items() if name not in flat.hidden}
        if self._positions:
            types |= {PATH: t.StringType(), ROW: t.LongType()}
        missing = [name for name in self._keys if name not in types]
        if missing:
            raise Fatal(
                f"{_KEY_OPTION}: the files have no column {', '.join(missing)}; they have {', '.join(types)}. Correct it, or "
                f"use {options.POSITION_COLUMNS}"
            )
        ordered = [*self._keys, *(name for name in types if name not in self._keys)]
        return tuple(
            Column(name, types[name], nullable=name not in self._keys, key=name in self._keys) for name in ordered
        )

    # Bad rows.

    def _build_checks(self, names: Sequence[str], flat: Flat) -> list[Expression]:
        """Expressions, each null for a good row."""
        form = self.context.config[options.FORMAT]
        checks: list[Expression] = []
        if form == options.CSV:
            shown_value = _shorten_value(get_column(CORRUPT))
            before, after = _CORRUPT.split("{}")
            checks.append(f.when(get_column(CORRUPT).isNotNull(), f.concat(f.lit(before), shown_value, f.lit(after))))
        if form == options.TEXT:
            checks.append(f.when(~f.is_valid_utf8(get_column(LINE)), f.lit("the line is not text in UTF-8")))
        for name, kind in self._types.items():
            if name in names:
                checks.append(
                    _find_misfit_reason(name, get_column(name), get_column(name).try_cast(kind), kind.simpleString())
                )
        checks += [
            f.when(get_column(name).isNull(), f.lit(f"the key column {name} is null"))
            for name in self._keys
            if name in names
        ]
        if flat.op:
            checks.append(
                _find_misfit_reason(
                    flat.op, get_column(flat.op), _build_operation(flat, ""), f"one of {', '.join(WORDS)}"
                )
            )
        if flat.order:
            checks.append(
                f.when(
                    get_column(flat.order).isNull(), f.lit(f"the column {flat.order}, which orders changes, is null")
                )
            )
            checks.append(
                _find_misfit_reason(
                    flat.order, get_column(flat.order), get_column(flat.order).try_cast("long"), "a whole number"
                )
            )
        if flat.time:
            checks.append(
                _find_misfit_reason(flat.time, get_column(flat.time), self._build_time_column(flat), "a time")
            )
        return checks

    def _report_bad(self, bad: DataFrame, names: Sequence[str]) -> None:
        row_text = f.coalesce(get_column(CORRUPT), f.to_json(f.struct(*map(get_column, names)), WHOLE))
        letters = DeadLetters.of(self.context)
        rows = bad.select(
            f.lit(self._namespace).alias("topic"),
            get_column(NUMBER).alias("offset"),
            row_text.cast("binary").alias("value"),
            f.col(_REASON).alias("reason"),
        )
        rows.mapInArrow(_make_reporting_task(letters), "n long").collect()

    # Rows.

    def _build_frame(self, rows: DataFrame, schema: TableSchema, flat: Flat) -> DataFrame:
        there = set(rows.columns)
        number = get_column(NUMBER)
        time = f.coalesce(self._build_time_column(flat), get_column(MODIFIED)) if flat.time else get_column(MODIFIED)
        order = get_column(flat.order).try_cast("long") if flat.order else number
        system = [
            order.alias("ums_id_"),
            time.alias("ums_ts_"),
            _build_operation(flat, "i").alias("ums_op_"),
            f.concat(f.lit(f"{self._namespace}-0-"), number.cast("string")).alias("ums_uid_"),
            f.lit(self._namespace).alias("kafka_topic_"),
            f.lit(0).alias("kafka_partition_"),
            number.alias("kafka_offset_"),
        ]
        columns = [
            (
                get_column(target.name).try_cast(target.type) if target.name in there else f.lit(None).cast(target.type)
            ).alias(target.name)
            for target in schema.columns
        ]
        return rows.select(*columns, *system)

    def _build_time_column(self, flat: Flat) -> Expression:
        kind = self._find_column_type(flat.time)
        value = get_column(flat.time)
        if isinstance(kind, t.NumericType):
            return f.timestamp_micros((value * f.lit(flat.up) / f.lit(flat.down)).try_cast("long"))
        return value.try_cast("timestamp")

    def _find_column_type(self, name: str) -> t.DataType:
        shape: t.StructType = self.context.input.rows.schema
        return self._types.get(name, shape[name].dataType)

    def schemas(self) -> list[TableSchema]:
        """See ``Source.schemas``."""
        return list(self._tables.values())

    def refused(self, namespace: str) -> None:
        """See ``Source.refused``."""
        restore_table(self._tables, self._before, namespace)

    def written(self) -> None:
        """See ``Source.written``."""
        if self._unsaved:
            self._files.save(to_json(self._tables, {}))
            self._unsaved = False


def key_columns(config: Config, namespace: str) -> tuple[str, ...]:
    """The columns of the key, as the options say for the table."""
    names = config.raw.get(f"{_KEY_OPTION}.{namespace}")
    if names is not None:
        return tuple(name.strip() for name in names.split(",") if name.strip())
    return tuple(config.get(_KEY_OPTION) or ())


def _types_option(config: Config, namespace: str) -> tuple[str, str]:
    """The option that declares types of the table, and its text."""
    name = f"{_TYPES_OPTION}.{namespace}"
    name = name if name in config.raw else _TYPES_OPTION
    return name, config.raw.get(name, "").strip()


def declared_types(config: Config, namespace: str) -> dict[str, t.DataType]:
    """The columns and types that ``source.table.columns`` declares for the table.

    Raises:
        ConfigInvalid: it is no list of columns and types.
    """
    name, column_list = _types_option(config, namespace)
    if not column_list:
        return {}
    try:
        fields = t.StructType(t.StructType.fromDDL(column_list).fields).fields  # type: ignore[attr-defined]  # text with commas is a struct
    except Exception as error:
        raise ConfigInvalid(f"{name}: {column_list!r} is no list of columns with types as in SQL: {error}") from error
    return {field.name: field.dataType for field in fields}


def _build_operation(flat: Flat, default: str) -> Expression:
    """``ums_op_`` of a row; null where its word is unknown. ``default``: of rows without a word."""
    op: Expression = f.lit(default or "i")
    if flat.op:
        word = f.lower(get_column(flat.op).cast("string"))
        op = f.when(word.isNull(), f.lit("i"))
        for letter in dict.fromkeys(WORDS.values()):
            op = op.when(word.isin([name for name, meaning in WORDS.items() if meaning == letter]), f.lit(letter))
        if default:
            op = f.coalesce(op, f.lit(default))
    if flat.deleted:
        op = f.when(f.lower(get_column(flat.deleted).cast("string")) == "true", f.lit("d")).otherwise(op)
    return op


def _find_misfit_reason(name: str, value: Expression, converted: Expression, expected: str) -> Expression:
    """The reason, where a value is there and its conversion is null."""
    reason = f.concat(f.lit(f"column {name}: "), _shorten_value(value.cast("string")), f.lit(f" is not {expected}"))
    return f.when(value.isNotNull() & converted.isNull(), reason)


def _shorten_value(value: Expression) -> Expression:
    return f.concat(f.lit("'"), f.substring(value, 1, _SHOWN), f.lit("'"))


def _make_reporting_task(letters: DeadLetters) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        count = 0
        with letters:
            for batch in batches:
                for row in batch.to_pylist():
                    letters.report(row["topic"], 0, row["offset"], None, row["value"], Skippable(row["reason"]))
                    count += 1
        yield pa.RecordBatch.from_pydict({"n": pa.array([count], pa.int64())})

    return run
