"""``type=view``: the rows of a query over changing tables, and how they change."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Fatal
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, between, non_empty
from spark_jobs.contract import KAFKA_COLUMNS, SYSTEM_COLUMNS, Column, TableChanges, TableSchema
from spark_jobs.steps.contract import Step, StepTable
from spark_jobs.steps.planning.dialect import text_of
from spark_jobs.steps.planning.model import StepRefused
from spark_jobs.steps.planning.names import find_table, qualified_name
from spark_jobs.steps.state.tables import ORDER
from spark_jobs.steps.view.query import ViewResolver, column_name, names_read, parse_view
from spark_jobs.steps.view.small import GONE, find_links

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as t
    from sqlglot import exp

    from spark_jobs.steps.contract import StepContext, StepRun
    from spark_jobs.steps.planning.model import OutputTable
    from spark_jobs.steps.state.tables import StepState
    from spark_jobs.steps.view.query import ViewQuery
    from spark_jobs.steps.view.small import Links, SmallTable

_TIME: Final = "at_"
_PLAIN: Final = re.compile(r"[a-z0-9_]+\Z")
#: Names of the step's values in its state.
_DEFINITION: Final = "definition"
_READY: Final = "ready"
_LAST_ORDER: Final = "order"
_LAST_TIME: Final = "time_us"


@dataclass(frozen=True, slots=True)
class _Input:
    """One table that the view reads, in a batch.

    Attributes:
        schema: of the table.
        positions: the columns that are kept, by their positions.
        before: its rows before the batch, under their stored names.
        after: its rows after the batch.
        changed: the newest row of each key that changed; None if none did.
        count: how many.
    """

    schema: TableSchema
    positions: tuple[int, ...]
    before: DataFrame
    after: DataFrame
    changed: DataFrame | None
    count: int


@dataclass(frozen=True, slots=True)
class _Moment:
    """The newest change of a batch: its order number, time (us since 1970) and position in Kafka."""

    order: int
    time_us: int
    position: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Resolved:
    """All that follows from the schemas of the tables.

    Attributes:
        tables: all tables that the step was given.
        query: the SELECT.
        links: how rows are looked up; None if they can't be.
        schema: of the view.
        empty: a frame of it without rows.
    """

    tables: tuple[TableSchema, ...]
    query: ViewQuery
    links: Links | None
    schema: TableSchema
    empty: DataFrame


class ViewStep(Step):
    """See docs/jobs/views.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="sql",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                validator=non_empty,
                example="SELECT o.id, o.amount, c.region FROM shop.orders o JOIN shop.customers c ON o.customer = c.id",
                doc="One SELECT in Spark SQL over up to five tables, joined by JOIN and LEFT JOIN with equalities; WHERE, "
                "GROUP BY with count, sum, min, max, avg, collect_list and collect_set (sorted), HAVING. The table of the view "
                "has the name of the step.",
            ),
            ConfigKey(
                name="key",
                type=ConfigType.LIST,
                importance=Importance.HIGH,
                validator=non_empty,
                example="id",
                doc="The columns of the output that tell its rows apart: with GROUP BY what rows are grouped by, else columns "
                "from which the joins find one row of every table.",
            ),
            ConfigKey(
                name="keep.inputs",
                type=ConfigType.BOOLEAN,
                default=False,
                doc="Whether the tables that the view reads also pass on to the next step.",
            ),
            ConfigKey(
                name="deleted.retention.ms",
                type=ConfigType.LONG,
                default=7 * 24 * 3_600_000,
                validator=between(0, 10 * 365 * 86_400_000),
                importance=Importance.LOW,
                doc="How long a deleted row of an input is remembered, so that an older change of it that comes later does not "
                "bring it back; by the time of changes.",
            ),
        ]
    )
    extra_jars: ClassVar[tuple[str, ...]] = ("delta",)
    stateful: ClassVar[bool] = True

    def __init__(self, context: StepContext) -> None:
        super().__init__(context)
        self._resolution: _Resolved | None = None

    @property
    def combines(self) -> bool:
        """See ``Step.combines``."""
        return True

    def check(self) -> list[str]:
        """See ``Step.check``."""
        try:
            parse_view(self.name, self.context.options["sql"])
        except StepRefused as error:
            return [f"sql: {error}"]
        return []

    def state(self) -> str:
        """See ``Step.state``."""
        names = ", ".join(dict.fromkeys(names_read(self._select)))
        return f"the current rows of {names} (the columns that the view reads), in Delta tables in the checkpoint"

    def makes(self) -> list[str]:
        """See ``Step.makes``."""
        return [self.name]

    def definition(self) -> dict[str, Any]:
        """See ``Step.definition``."""
        sql = text_of(self._select)
        return super().definition() | {"sql": sql, "key": self.context.options["key"]}

    def unmatched(self, tables: Sequence[TableSchema]) -> list[str]:
        """See ``Step.unmatched``."""
        names = dict.fromkeys(names_read(self._select))
        return [name for name in names if find_table(self.name, name, tables) is None]

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        query = self._resolve_query(tables)
        return [*self._list_other_tables(tables), *([] if query is None else [query.output(self.name)])]

    def apply(self, tables: Sequence[StepTable], run: StepRun) -> list[StepTable]:
        """See ``Step.apply``. Runs Spark jobs: what affects the view is computed before the view."""
        schemas = [table.changes.schema for table in tables]
        others = {table.namespace for table in self._list_other_tables(schemas)}
        passed = [table for table in tables if table.changes.schema.namespace in others]
        state = run.state(self.name)
        self._demand_same(state)
        resolved = self._resolve_view(schemas, run)
        query = None if resolved is None else resolved.query
        read = {table.namespace for table in self._read_tables(schemas)}
        inputs = [table for table in tables if table.changes.schema.namespace in read]
        values = {**state.values, _DEFINITION: self._definition_hash}
        result = None
        if resolved is not None and resolved.links is not None and values.get(_READY) and state.has_lookups():
            result = self._small_batch(inputs, resolved.query, resolved.links, state, run.spark)
        if result is None:
            result = self._whole_batch(inputs, query, state, first=not values.get(_READY))
        output, moments = result
        if moments:
            newest = max(moments, key=lambda moment: moment.order)
            values[_LAST_ORDER] = max(values.get(_LAST_ORDER, -1) + 1, newest.order)
            values[_LAST_TIME] = max(values.get(_LAST_TIME, 0), *(moment.time_us for moment in moments))
        values[_READY] = values.get(_READY, False) or resolved is not None
        state.keep_values(values)
        if resolved is None:
            return passed
        schema = resolved.schema
        if output is None:
            return [*passed, StepTable(TableChanges(schema, resolved.empty), present=False)]
        from spark_jobs.steps.view.frames import compute_now

        position = max(moments, key=lambda moment: moment.order).position if moments else ("", 0, 0)
        frame = _with_system(schema, output, values.get(_LAST_ORDER, 0), values.get(_LAST_TIME, 0), position)
        return [*passed, StepTable(TableChanges(schema, compute_now(frame)))]

    def _whole_batch(
        self, tables: Sequence[StepTable], query: ViewQuery | None, state: StepState, *, first: bool
    ) -> tuple[DataFrame | None, list[_Moment]]:
        """The changes of the view's rows (see ``_plan_output``; None: there are none) and the newest changes of the tables."""
        moments: list[_Moment] = []
        inputs = {table.changes.schema.namespace: self._find_input(table, query, state, moments) for table in tables}
        if query is None or not (moments or first):
            return None, moments
        return self._plan_output(query, inputs, first=first), moments

    def _small_batch(
        self, tables: Sequence[StepTable], query: ViewQuery, links: Links, state: StepState, spark: SparkSession
    ) -> tuple[DataFrame | None, list[_Moment]] | None:
        """As ``_whole_batch``, without Spark jobs that read the state; None: the batch needs them."""
        from pyspark.sql import types as t

        from spark_jobs.steps.view.frames import Recomputing, compute_changes, local_rows
        from spark_jobs.steps.view.small import MOST_LOADED, SmallBatch, SmallBatchTooLarge

        def look_up(table: SmallTable, columns: Mapping[str, pa.Array]) -> pa.Table:
            rows = state.lookup(
                table.name, table.fields, table.key, columns, MOST_LOADED, self._build_kept_condition(state)
            )
            if rows is None:
                raise SmallBatchTooLarge
            return rows

        try:
            inputs = {
                table.changes.schema.namespace: self._small_input(table, query, state, look_up) for table in tables
            }
            changed = {name: table for name, table in inputs.items() if table.changed.num_rows}
            if not changed:
                return None, []
            rows = SmallBatch(query, links, [inputs[s.schema.namespace] for s in query.sources], look_up).rows()
        except SmallBatchTooLarge:
            return None
        for table in changed.values():
            state.append(table.name, table.changed.select(table.fields.names), key=table.key)
        sides: tuple[list[DataFrame], list[DataFrame]] = ([], [])
        for number, (source, pair) in enumerate(zip(query.sources, rows, strict=True)):
            positions = sorted(query.read[number])
            columns = [inputs[source.schema.namespace].names[position] for position in positions]
            fields = t.StructType(
                [t.StructField(column_name(number, at), source.schema.columns[at].type) for at in positions]
            )
            for side, side_rows in zip(sides, pair, strict=True):
                side.append(local_rows(spark, side_rows.select(columns), fields))
        recomputing = Recomputing(self.name, query, [])
        before, after = (recomputing.rows(side) for side in sides)
        changes = compute_changes(query, before, after.hint("merge"), images=self.context.before_rows)
        return changes, [_find_newest_moment(table.changed) for table in changed.values()]

    # Tables.

    @cached_property
    def _select(self) -> exp.Select:
        return parse_view(self.name, self.context.options["sql"])

    def _resolve_view(self, tables: Sequence[TableSchema], run: StepRun) -> _Resolved | None:
        """All that follows from the schemas of the tables; None as long as not all of the view's have been seen."""
        if self._resolution is None or self._resolution.tables != tuple(tables):
            query = self._resolve_query(tables)
            if query is None:
                return None
            self._resolution = _Resolved(tuple(tables), query, find_links(query), *self._make_view_shape(query, run))
        return self._resolution

    def _read_tables(self, tables: Sequence[TableSchema]) -> list[TableSchema]:
        """The tables of FROM that have been seen, each once."""
        names = names_read(self._select)
        matches = (find_table(self.name, name, tables) for name in names)
        return list({table.namespace: table for table in matches if table is not None}.values())

    def _list_other_tables(self, tables: Sequence[TableSchema]) -> list[TableSchema]:
        read = {table.namespace for table in self._read_tables(tables)}
        return [table for table in tables if self.context.options["keep.inputs"] or table.namespace not in read]

    def _resolve_query(self, tables: Sequence[TableSchema]) -> ViewQuery | None:
        """The resolved SELECT; None as long as not all of its tables have been seen."""
        select = self._select
        matches = [find_table(self.name, name, tables) for name in names_read(select)]
        known_tables = [table for table in matches if table is not None]
        if len(known_tables) < len(matches):
            return None
        return ViewResolver(self.name, select, known_tables).resolve(self.context.options["key"])

    @cached_property
    def _definition_hash(self) -> str:
        select = self._select
        definition_text = f"{text_of(select)}\n{','.join(self.context.options['key'])}"
        return hashlib.sha256(definition_text.encode()).hexdigest()

    def _demand_same(self, state: StepState) -> None:
        if state.values and state.values.get(_DEFINITION) != self._definition_hash:
            raise Fatal(
                f"step {self.name}: its SELECT or its key is another one than that of the state in the checkpoint "
                f"{state.checkpoint}, so rows that the old one has written would stay. Give the flow another name or "
                "checkpoint.location, and the view another target; or take the old SELECT back"
            )

    # Inputs.

    def _find_input(
        self, table: StepTable, query: ViewQuery | None, state: StepState, moments: list[_Moment]
    ) -> _Input:
        """The rows of a table before and after the batch; what changed goes into the state at the end of the batch."""
        from pyspark.sql import functions as f

        schema = table.changes.schema
        positions, key, fields = self._stored_columns(schema, query)
        name = table_folder(schema.namespace)
        stored = state.read(name, fields, key, self._build_kept_condition(state))
        before = stored.where(f"NOT {GONE}")
        from spark_jobs.steps.view.frames import compute_now

        if not table.present:
            return _Input(schema, positions, before, before, None, 0)
        newest = self._select_newest_changes(_select_changes(table, positions), key)
        there = stored.select(*key, f.col(ORDER).alias("known_"))
        changed = compute_now(
            newest.join(there, key, "left").where(f"known_ IS NULL OR {ORDER} >= known_").drop("known_")
        )
        count, *totals = changed.agg(
            f.count(f.lit(1)),
            f.max(ORDER),
            f.max(f.unix_micros(_TIME)),
            *(f.max_by(column, ORDER) for column in KAFKA_COLUMNS),
        ).collect()[0]
        if not count:
            return _Input(schema, positions, before, before, None, 0)
        moments.append(_Moment(totals[0], totals[1] or 0, tuple(totals[2:])))
        rows = changed.select(*fields.names)
        state.append(name, rows, files=1 + count // 500_000, key=key)
        unchanged = before.join(
            f.broadcast(rows.select(*key)) if count <= 50_000 else rows.select(*key), key, "left_anti"
        )
        after = unchanged.select(*fields.names).unionByName(rows.where(f"NOT {GONE}"))
        return _Input(schema, positions, before, after, changed, count)

    def _small_input(
        self, table: StepTable, query: ViewQuery, state: StepState, look_up: Callable[..., pa.Table]
    ) -> SmallTable:
        """The changes of a table and the rows that they replace. Runs a Spark job.

        Raises:
            TooLarge: there are too many.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyspark.sql import types as t
        from pyspark.sql.pandas.types import to_arrow_schema

        from spark_jobs.steps import arrow_rows
        from spark_jobs.steps.view import small

        schema = table.changes.schema
        positions, key, fields = self._stored_columns(schema, query)
        names = {position: stored_name(schema.columns[position].name) for position in positions}
        kafka = zip(KAFKA_COLUMNS, (t.StringType(), t.IntegerType(), t.LongType()), strict=True)
        kinds: dict[str, t.DataType] = {"ums_uid_": t.StringType(), **dict(kafka)}
        whole = t.StructType([*fields.fields, *(t.StructField(name, kind) for name, kind in kinds.items())])
        columns = to_arrow_schema(whole, timezone="UTC")
        empty = to_arrow_schema(fields, timezone="UTC").empty_table()
        result = small.SmallTable(
            table_folder(schema.namespace), names, tuple(key), fields, empty, columns.empty_table()
        )
        if not table.present:
            return result
        collected = _select_changes(table, positions).limit(small.MOST_CHANGED + 1).toArrow()
        if collected.num_rows > small.MOST_CHANGED:
            raise small.SmallBatchTooLarge
        if not collected.num_rows:
            return result
        rows = arrow_rows.select_newest(
            collected.select(columns.names).cast(columns), key, (ORDER, "kafka_offset_", "ums_uid_")
        )
        stored = look_up(result, {name: pc.unique(rows.column(name)) for name in key})
        remembered = pa.scalar(self._compute_retention_start(state), pa.timestamp("us", "UTC"))
        stored = stored.filter(
            pc.or_kleene(pc.invert(stored.column(GONE)), pc.greater_equal(stored.column(_TIME), remembered))
        )
        changed = small.select_newer(rows, stored, key)
        old = arrow_rows.keep_matches(small.select_existing(stored), changed, key)
        return replace(result, old=old, changed=changed)

    def _stored_columns(
        self, schema: TableSchema, query: ViewQuery | None
    ) -> tuple[tuple[int, ...], list[str], t.StructType]:
        """The positions of the columns that are kept, the names of the key in the state, and the columns of the state."""
        from pyspark.sql import types as t

        positions = self._key_positions(schema, query)
        key = [stored_name(schema.columns[position].name) for position in positions if schema.columns[position].key]
        fields = [t.StructField(stored_name(schema.columns[at].name), schema.columns[at].type) for at in positions]
        system = [(ORDER, t.LongType()), (GONE, t.BooleanType()), (_TIME, t.TimestampType())]
        return positions, key, t.StructType([*fields, *(t.StructField(name, kind) for name, kind in system)])

    def _key_positions(self, schema: TableSchema, query: ViewQuery | None) -> tuple[int, ...]:
        """The columns of a table that are kept: all of them until the SELECT can be resolved."""
        if query is None:
            return tuple(range(len(schema.columns)))
        read = [
            positions
            for source, positions in zip(query.sources, query.read, strict=True)
            if source.schema.namespace == schema.namespace
        ]
        return tuple(sorted(frozenset().union(*read)))

    def _build_kept_condition(self, state: StepState) -> str:
        """The condition for rows that the state keeps."""
        return f"NOT {GONE} OR {_TIME} >= timestamp_micros({self._compute_retention_start(state)})"

    def _compute_retention_start(self, state: StepState) -> int:
        """The time from which on deleted rows are remembered (us since 1970)."""
        retention: int = self.context.options["deleted.retention.ms"]
        return int(state.values.get(_LAST_TIME, 0)) - 1000 * retention

    def _select_newest_changes(self, rows: DataFrame, key: Sequence[str]) -> DataFrame:
        """The newest change of each key in the batch."""
        from pyspark.sql import functions as f

        others = [name for name in rows.columns if name not in key]
        newest = rows.groupBy(*key).agg(
            f.max_by(f.struct(*others), f.struct(ORDER, "kafka_offset_", "ums_uid_")).alias("newest_")
        )
        return newest.select(*key, "newest_.*").drop("ums_uid_")

    # The view.

    def _plan_output(self, query: ViewQuery, inputs: dict[str, _Input], *, first: bool) -> DataFrame:
        """The changes of the view's rows, as ``v<number>`` and ``ums_op_``."""
        from pyspark.sql import functions as f

        from spark_jobs.steps.view.frames import Recomputing, ViewTableChange, compute_changes, named_rows

        changes = []
        for number, source in enumerate(query.sources):
            source_rows = inputs[source.schema.namespace]
            columns = {
                position: stored_name(source.schema.columns[position].name) for position in sorted(query.read[number])
            }
            keys = None
            if source_rows.changed is not None:
                key_positions = [position for position, column in enumerate(source.schema.columns) if column.key]
                keys = source_rows.changed.select(
                    *(f.col(columns[position]).alias(f"k{position}") for position in key_positions)
                )
            changes.append(
                ViewTableChange(
                    named_rows(source_rows.before, columns, number),
                    named_rows(source_rows.after, columns, number),
                    keys,
                    source_rows.count,
                )
            )
        recomputing = Recomputing(self.name, query, changes)
        if first:
            after = recomputing.everything()
            return after.withColumn("ums_op_", f.lit("i"))
        before, after = recomputing.affected()
        return compute_changes(query, before, after, images=self.context.before_rows)

    def _make_view_shape(self, query: ViewQuery, run: StepRun) -> tuple[TableSchema, DataFrame]:
        """The schema of the view, and a frame of it without rows."""
        from pyspark.errors import PySparkException
        from pyspark.sql import types as t

        from spark_jobs.steps.derive import first_line
        from spark_jobs.steps.view.frames import Recomputing, ViewTableChange

        changes = []
        for number, source in enumerate(query.sources):
            fields = t.StructType(
                [
                    t.StructField(column_name(number, position), source.schema.columns[position].type)
                    for position in sorted(query.read[number])
                ]
            )
            empty = run.spark.createDataFrame([], fields)
            changes.append(ViewTableChange(empty, empty, None, 0))
        try:
            rows = Recomputing(self.name, query, changes).everything()
            kinds = [entry.dataType for entry in rows.schema.fields]
        except PySparkException as error:
            raise StepRefused(f"step {self.name}: {first_line(error)}") from error
        schema = TableSchema(
            self.name, tuple(self._build_view_column(query, number, kind) for number, kind in enumerate(kinds))
        )
        from spark_jobs.sources.decoding import frame_type

        return schema, run.spark.createDataFrame([], frame_type(schema))

    def _build_view_column(self, query: ViewQuery, number: int, kind: Any) -> Column:
        from pyspark.sql import types as t

        name, in_key, position = query.names[number], number < query.key, query.direct[number]
        if isinstance(kind, t.NullType | t.MapType | t.DayTimeIntervalType | t.YearMonthIntervalType):
            raise StepRefused(
                f"step {self.name}: column {name} has the type {kind.simpleString()}, whose values a view can't compare or "
                "keep: write CAST(... AS <type>), or to_json(...) for a map"
            )
        if position is None:
            return Column(name, kind, nullable=not in_key, key=in_key)
        source = query.sources[position[0]]
        origin = source.schema.columns[position[1]]
        nullable = not in_key and (origin.nullable or source.left)
        return replace(origin, name=name, nullable=nullable, key=in_key)


def _select_changes(table: StepTable, positions: Sequence[int]) -> DataFrame:
    """The changes of a table in the batch, under stored names."""
    from pyspark.sql import functions as f

    from spark_jobs.spark.frames import number_columns

    schema = table.changes.schema
    rows = number_columns(table.changes.frame, len(schema.columns)).where("ums_op_ <> 'b'")
    return rows.select(
        *(f.col(f"c{position}").alias(stored_name(schema.columns[position].name)) for position in positions),
        f.col("ums_id_").alias(ORDER),
        f.expr("ums_op_ = 'd'").alias(GONE),
        f.col("ums_ts_").alias(_TIME),
        "ums_uid_",
        *KAFKA_COLUMNS,
    )


def _find_newest_moment(changed: pa.Table) -> _Moment:
    """The newest of some changes, and the latest of their times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    order = changed.column(ORDER).to_pylist()
    row = order.index(max(order))
    position = tuple(changed.column(name)[row].as_py() for name in KAFKA_COLUMNS)
    return _Moment(order[row], pc.max(changed.column(_TIME).cast(pa.int64())).as_py() or 0, position)


def _with_system(
    schema: TableSchema, changes: DataFrame, order: int, time_us: int, position: Sequence[Any]
) -> DataFrame:
    """The rows with the system columns: all changes of a batch have the order number and position of its newest change."""
    from pyspark.sql import functions as f

    count = len(schema.columns)
    keys = f.to_json(f.struct(*(f.col(f"v{n}") for n, column in enumerate(schema.columns) if column.key)))
    system = [
        f.lit(order).cast("bigint").alias("ums_id_"),
        f.timestamp_micros(f.lit(time_us)).alias("ums_ts_"),
        f.col("ums_op_"),
        f.concat_ws("-", f.lit(schema.namespace), f.lit(order), "ums_op_", f.md5(keys)).alias("ums_uid_"),
        f.lit(position[0]).alias(KAFKA_COLUMNS[0]),
        f.lit(position[1]).cast("int").alias(KAFKA_COLUMNS[1]),
        f.lit(position[2]).cast("bigint").alias(KAFKA_COLUMNS[2]),
    ]
    rows = changes.select(*(f.col(f"v{n}") for n in range(count)), *system)
    return rows.toDF(*(column.name for column in schema.columns), *SYSTEM_COLUMNS)


def stored_name(name: str) -> str:
    """The name of a column in a state table: Delta allows fewer characters, and no two that differ in case only."""
    return f"c_{name}" if _PLAIN.match(name) else f"x_{name.encode().hex()}"


def table_folder(namespace: str) -> str:
    """The folder of a table's state, by what stays the same when the version of a table changes."""
    name = qualified_name(namespace)
    return name if re.fullmatch(r"[A-Za-z0-9_.-]+", name) else name.encode().hex()
