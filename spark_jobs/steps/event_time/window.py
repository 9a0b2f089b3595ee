"""``type=window``: aggregates over windows of event time, given once when a window is closed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlglot import exp

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, at_least, non_empty, one_of
from spark_jobs.contract import KAFKA_COLUMNS, SYSTEM_COLUMNS, Column, TableChanges, TableSchema
from spark_jobs.steps.contract import Step, StepTable
from spark_jobs.steps.event_time import rows as event_rows
from spark_jobs.steps.event_time.rows import ROW_ID, TIME, EventInput
from spark_jobs.steps.event_time.times import Grid, choose_later, next_watermark
from spark_jobs.steps.planning.dialect import AGGREGATES, function_name, parse_statements, unstable_function
from spark_jobs.steps.planning.model import StepRefused
from spark_jobs.steps.planning.names import find_column, find_table
from spark_jobs.steps.planning.resolve import INPUT, plan_expression, rows_of, select_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from spark_jobs.steps.contract import StepRun
    from spark_jobs.steps.planning.model import Expression, OutputTable

TUMBLING: Final = "tumbling"
SLIDING: Final = "sliding"
SESSION: Final = "session"
START: Final = "window_start"
END: Final = "window_end"
_ROWS: Final = "rows"
_DAY: Final = 24 * 3_600_000_000  # in microseconds, as all times of rows
_START: Final = "start_"
_END: Final = "end_"
_CLOSED: Final = "order_"  # of the state's key: 0 for a row, 1 once its session was closed
#: Aggregates whose result depends on the order of rows, which a repeated batch may have another one of.
_UNORDERED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("first", "first_value", "any_value", "any"), "min_by(..., ums_id_)"),
    **dict.fromkeys(("last", "last_value"), "max_by(..., ums_id_)"),
    **dict.fromkeys(("collect_list", "array_agg", "listagg", "string_agg"), "array_sort(collect_list(...))"),
}
_SORTS: Final = ("array_sort", "sort_array")


class WindowStep(Step):
    """See docs/jobs/steps.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="table",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                validator=non_empty,
                example="shop.orders",
                doc="The table: its namespace, `database.table`, the table alone, or the name of an earlier step.",
            ),
            ConfigKey(
                name="window",
                type=ConfigType.STRING,
                default=TUMBLING,
                importance=Importance.HIGH,
                validator=one_of(TUMBLING, SLIDING, SESSION),
                doc="`tumbling`: one window after the other. `sliding`: a window starts every `slide.ms`. `session`: a window "
                "per group of rows with less than `size.ms` from one row to the next.",
            ),
            ConfigKey(
                name="size.ms",
                type=ConfigType.LONG,
                importance=Importance.HIGH,
                unit="ms",
                validator=at_least(1),
                example="3600000",
                doc="The length of a window; of sessions the time without rows that ends one. Windows start at multiples of it "
                "(sliding ones of `slide.ms`) since 1970, UTC.",
            ),
            ConfigKey(
                name="slide.ms",
                type=ConfigType.LONG,
                default=None,
                unit="ms",
                example="300000",
                doc="The time from the start of a sliding window to the start of the next one.",
            ),
            ConfigKey(
                name="session.max.ms",
                type=ConfigType.LONG,
                default=None,
                unit="ms",
                example="14400000",
                doc="The longest session, which bounds the state: a row that is this much or more after the first row of its "
                "session starts a new one, and the session before it ends there. Not set: a day, or ten times `size.ms` where "
                "that is more.",
            ),
            ConfigKey(
                name="group",
                type=ConfigType.LIST,
                default=None,
                importance=Importance.HIGH,
                example="region",
                doc="The columns by whose values rows are grouped; none of them may be null.",
            ),
            ConfigKey(
                name="aggregates",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                validator=non_empty,
                example="count(*) AS orders, sum(amount) AS total",
                doc="The aggregates, in Spark SQL: `<expression> AS <name>`, separated by commas.",
            ),
            event_rows.time_key("time"),
            event_rows.WATERMARK,
            event_rows.CHANGES,
            event_rows.LATE,
            event_rows.KEEP_INPUTS,
        ]
    )
    extra_jars: ClassVar[tuple[str, ...]] = ("delta",)
    stateful: ClassVar[bool] = True

    _measured: Mapping[str, float] = {}

    @property
    def combines(self) -> bool:
        """See ``Step.combines``: it needs its table also in batches without a row of it."""
        return True

    def check(self) -> list[str]:
        """See ``Step.check``."""
        options = self.context.options
        problems = event_rows.changing_input(self.context, {"table": options["table"]})
        slide, size = options["slide.ms"], options["size.ms"]
        if options["window"] == SLIDING:
            if slide is None or not 1 <= slide <= size:
                problems.append(f"slide.ms: a sliding window needs a number from 1 to size.ms ({size})")
        elif slide is not None:
            problems.append(f"slide.ms: is of sliding windows only: remove it, or set window={SLIDING}")
        if options["session.max.ms"] is not None:
            if not self._is_session:
                problems.append(f"session.max.ms: is of sessions only: remove it, or set window={SESSION}")
            elif options["session.max.ms"] < size:
                problems.append(f"session.max.ms: a session lasts at least size.ms ({size})")
        try:
            self._parse_aggregates()
        except StepRefused as error:
            problems.append(f"aggregates: {error}")
        return problems

    def state(self) -> str:
        """See ``Step.state``."""
        options = self.context.options
        longest = self._longest_session if self._is_session else event_rows.read_micros(options, "size.ms")
        span = f"for {(longest + event_rows.read_micros(options, 'watermark.ms')) / 1_000_000:g} s"
        span = f"of open sessions, {span} at most," if self._is_session else span
        return f"rows of {options['table']} {span} of event time, in a Delta table in the checkpoint"

    def definition(self) -> dict[str, Any]:
        """See ``Step.definition``."""
        options = self.context.options
        window = SESSION if self._is_session else f"{TUMBLING} or {SLIDING}"
        return super().definition() | {"table": options["table"], "time": options["time"], "window": window}

    def remarks(self) -> list[str]:
        """See ``Step.remarks``."""
        return event_rows.list_option_remarks(self.context.options)

    def makes(self) -> list[str]:
        """See ``Step.makes``."""
        return [self.name]

    def unmatched(self, tables: Sequence[TableSchema]) -> list[str]:
        """See ``Step.unmatched``."""
        name = self.context.options["table"]
        return [] if find_table(self.name, name, tables) is not None else [name]

    def left_out(self) -> str:
        """See ``Step.left_out``."""
        return "its window is open, or it is one of the rows of a window"

    def measure_state(self) -> dict[str, float]:
        """See ``Step.measure_state``."""
        return dict(self._measured)

    # Plan.

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        from spark_jobs.steps.planning.plans import type_of

        source = self._find_input(tables)
        if source is None:
            return list(tables)
        kept = [table for table in tables if self._is_passed_on(table, source)]
        aggregates = self._bind_aggregates(source.schema)
        kinds = [type_of(part, source.schema) for part in aggregates.values()]
        return [*kept, self._make_output_schema(source.schema, list(aggregates), kinds), *self._late_schemas(source)]

    def _is_passed_on(self, table: TableSchema, source: EventInput) -> bool:
        return bool(self.context.options["keep.inputs"]) or table.namespace != source.schema.namespace

    def _late_schemas(self, source: EventInput) -> list[TableSchema]:
        late = self.context.options["late"] == "keep"
        return [replace(source.schema, namespace=f"{self.name}_late")] if late else []

    def _find_input(self, tables: Sequence[TableSchema]) -> EventInput | None:
        options = self.context.options
        schema = find_table(self.name, options["table"], tables)
        return (
            None if schema is None else event_rows.input_of(self.name, schema, options["time"], options["group"] or ())
        )

    def _parse_aggregates(self) -> exp.Select:
        """The aggregates as a query, checked as far as it goes without a table."""
        statements = parse_statements(self.name, f"SELECT {self.context.options['aggregates']} FROM {INPUT}")  # noqa: S608 - parsed only
        if len(statements) != 1 or not isinstance(statements[0], exp.Select):
            raise StepRefused(f"step {self.name}: write <aggregate> AS <name>, separated by commas")
        select = statements[0]
        for star in list(select.find_all(exp.Star)):
            if function_name(star.parent) == "count" if star.parent is not None else False:
                star.replace(exp.Literal.number(1))
        for part in select.expressions:
            self._check_aggregate(part)
        return select

    def _check_aggregate(self, part: exp.Expr) -> None:
        sql = part.sql(dialect="spark")
        if not part.alias:
            raise StepRefused(f"step {self.name}: `{sql}` has no name: write AS <column>")
        if unstable_function(part):
            raise StepRefused(
                f"step {self.name}: {unstable_function(part)}() gives another value each time: take columns"
            )
        functions = [node for node in part.walk() if function_name(node) in AGGREGATES or isinstance(node, exp.AggFunc)]
        if not functions:
            raise StepRefused(f"step {self.name}: `{sql}` is no aggregate: name columns to group by in group")
        for node in functions:
            name = function_name(node)
            sorted_after = node.parent is not None and function_name(node.parent) in _SORTS
            if name in _UNORDERED and not sorted_after:
                raise StepRefused(
                    f"step {self.name}: {name}() depends on the order of rows, which is not defined: use {_UNORDERED[name]}"
                )

    def _bind_aggregates(self, schema: TableSchema) -> dict[str, Expression]:
        rows = select_rows(self.name, self._parse_aggregates(), rows_of(schema), {INPUT})
        return {name: plan_expression(node, schema) for name, node in zip(rows.names, rows.nodes, strict=True)}

    def _make_output_schema(self, source: TableSchema, names: Sequence[str], kinds: Sequence[Any]) -> TableSchema:
        """The output's schema."""
        from pyspark.sql import types as t

        groups = [source.columns[number] for number in self._group_columns(source)]
        listed = [*(column.name.lower() for column in groups), START, END, *(name.lower() for name in names)]
        twice = next((name for name in listed if listed.count(name) > 1), "")
        if twice:
            raise StepRefused(
                f"step {self.name}: gives two columns {twice}: rename one by AS, or in a step of type select"
            )
        columns = [
            *(replace(column, key=True, nullable=False) for column in groups),
            Column(START, t.TimestampType(), nullable=False, key=True),
            Column(END, t.TimestampType(), nullable=False),
            *(Column(name, kind) for name, kind in zip(names, kinds, strict=True)),
        ]
        return TableSchema(self.name, tuple(columns))

    def _group_columns(self, schema: TableSchema) -> list[int]:
        return [find_column(self.name, name, schema) for name in self.context.options["group"] or ()]

    # Rows.

    def apply(self, tables: Sequence[StepTable], run: StepRun) -> list[StepTable]:
        """See ``Step.apply``. Blocks: counts the rows of the batch and of the state."""
        from pyspark.sql import types as t

        options = self.context.options
        source = self._find_input([table.changes.schema for table in tables])
        if source is None:
            return list(tables)
        table = next(table for table in tables if table.changes.schema.namespace == source.schema.namespace)
        result = [step_table for step_table in tables if self._is_passed_on(step_table.changes.schema, source)]
        state = run.state(self.name)
        values = state.values
        event_rows.check_origin(self.name, values, self.definition())
        before: int | None = values.get("watermark")
        floor: int | None = values.get("floor")
        fields = event_rows.state_fields(source.schema)
        if self._is_session:
            fields.add(_CLOSED, t.LongType())
            kept = state.read(_ROWS, fields, ROW_ID, keep=f"{_CLOSED} = 0").drop(_CLOSED)
        else:
            kept = state.read(_ROWS, fields, keep="" if floor is None else f"{TIME} >= {floor}")
        old = event_rows.from_state(kept, source.schema)
        if not table.present:
            self._measured = event_rows.list_state_numbers(values)
            empty = self._aggregate_rows(source, old.where("false").withColumns(_no_window()))
            return [*result, replace(empty, present=False), *self._late(source, table.changes.frame, present=False)]
        batch = event_rows.read_events(source, table, run, ignore=options["changes"] == event_rows.IGNORE)
        # Of a sliding window's rows one that misses a window is late, and still counts in the others.
        late = event_rows.late_sql(before if self._is_session else self._first_open(before), TIME)
        gone = event_rows.late_sql(before if self._is_session else self._window_grid.oldest_kept(before), TIME)
        counts = event_rows.count_rows({_ROWS: batch}, {_ROWS: old}, late)
        count = counts[_ROWS, True]
        watermark = next_watermark(
            before,
            [choose_later(values.get("newest"), count.newest)],
            event_rows.read_micros(options, "watermark.ms"),
            -1,
        )
        new = batch.where(f"{TIME} IS NOT NULL AND NOT {gone}")
        cut = 0
        if self._is_session:
            windows, cut = self._select_closed_sessions(source, old, new, watermark, run)
            windows = event_rows.at_last_record(windows, counts, "old_").drop("old_")
        else:
            if count.rows or count.late:
                state.append(_ROWS, event_rows.to_state(new, source.schema))
            old = event_rows.at_last_record(old, counts)
            windows = self._select_closed_windows(old.unionAll(new), before, watermark)
            floor = choose_later(floor, self._window_grid.oldest_kept(watermark))
        totals = {name: values.get(name, 0) + getattr(count, name) for name in ("late", "ignored")}
        if self._is_session:
            totals["sessions_cut"] = values.get("sessions_cut", 0) + cut
        newest = choose_later(values.get("newest"), count.newest)
        kept_values = {
            "of": self.definition(),
            "newest": newest,
            "watermark": watermark,
            "floor": floor,
            "rows": counts[_ROWS, False].rows + count.rows,
            **totals,
        }
        state.keep_values(kept_values)
        self._measured = event_rows.list_state_numbers(kept_values)
        late_rows = batch.where(late).drop(TIME)
        return [*result, self._aggregate_rows(source, windows), *self._late(source, late_rows, present=True)]

    def _late(self, source: EventInput, rows: DataFrame, *, present: bool) -> list[StepTable]:
        names = [column.name for column in source.schema.columns]
        return [
            StepTable(TableChanges(schema, rows.toDF(*names, *SYSTEM_COLUMNS)), present)
            for schema in self._late_schemas(source)
        ]

    @property
    def _is_session(self) -> bool:
        return bool(self.context.options["window"] == SESSION)

    @property
    def _window_grid(self) -> Grid:
        size = event_rows.read_micros(self.context.options, "size.ms")
        slide = self.context.options["slide.ms"]
        return Grid(size, size if slide is None else event_rows.read_micros(self.context.options, "slide.ms"))

    @property
    def _longest_session(self) -> int:
        options = self.context.options
        if options["session.max.ms"] is not None:
            return event_rows.read_micros(options, "session.max.ms")
        return max(_DAY, 10 * event_rows.read_micros(options, "size.ms"))

    def _first_open(self, watermark: int | None) -> int | None:
        """The smallest time of which no window is closed."""
        return self._window_grid.last_end(watermark)

    def _select_closed_windows(self, rows: DataFrame, before: int | None, watermark: int | None) -> DataFrame:
        """Rows of the windows that this batch closes, with ``_START`` and ``_END``."""
        from pyspark.sql import functions as f

        grid = self._window_grid
        end, last = grid.last_end(watermark), grid.last_end(before)
        if end is None or end == last:
            return rows.where("false").withColumns(_no_window())
        starts = f"sequence({grid.first_start(TIME)}, {grid.last_start(TIME)}, {grid.slide}L)"
        rows = rows.where(f"{TIME} < {end}").withColumn(_START, f.explode(f.expr(starts)))
        rows = rows.withColumn(_END, f.col(_START) + grid.size).where(f"{_END} <= {end}")
        return rows if last is None else rows.where(f"{_END} > {last}")

    def _select_closed_sessions(
        self, source: EventInput, old: DataFrame, new: DataFrame, watermark: int | None, run: StepRun
    ) -> tuple[DataFrame, int]:
        """Rows of the sessions that this batch closes (``old_``: from the state), and how many of these were cut. Blocks.

        Keeps the other rows.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        gap, longest = event_rows.read_micros(self.context.options, "size.ms"), self._longest_session
        rows = old.withColumn("old_", f.lit(True)).unionAll(new.withColumn("old_", f.lit(False)))
        group = [f"c{number}" for number in self._group_columns(source.schema)]
        order = Window.partitionBy(*group).orderBy(TIME, *ROW_ID)
        first = f.col(TIME) - f.lag(TIME).over(order) >= gap
        number = f.sum(f.coalesce(first, f.lit(True)).cast("bigint")).over(order)
        session = Window.partitionBy(*group, "session_")
        rows = rows.withColumn("session_", number)
        rows = rows.withColumn(_START, f.min(TIME).over(session)).withColumn(_END, f.max(TIME).over(session) + gap)
        rows = rows.persist()
        run.persisted.append(rows)
        closed = f"{_END} <= {watermark}" if watermark is not None else "false"
        cut = 0
        if rows.where(f"{_END} - {_START} > {longest}").limit(1).collect():
            rows, ends = self._cut_sessions(rows, [*group, "session_"])
            cut = ends.where(f"natural_ > {_END} AND {closed}").count()
        changed = rows.where(f"old_ = ({closed})").withColumn(_CLOSED, f.expr(f"CAST({closed} AS bigint)"))
        changed = changed.drop("old_", "session_", _START, _END)
        run.state(self.name).append(_ROWS, event_rows.to_state(changed, source.schema))
        return rows.where(closed).drop("session_"), cut

    def _cut_sessions(self, rows: DataFrame, session: Sequence[str]) -> tuple[DataFrame, DataFrame]:
        """Sessions that are too long as several: each begins with the first row that is too late for the one before.

        So the sessions don't depend on batches: what is left of one whose beginning was closed is cut as before.

        Returns:
            The rows of all sessions, and a row for each that was too long, with its end without the bound (``natural_``).
        """
        from pyspark.sql import functions as f

        gap, longest = event_rows.read_micros(self.context.options, "size.ms"), self._longest_session
        long = rows.where(f"{_END} - {_START} > {longest}")
        later = (
            f"IF(size(starts) = 0 OR time - element_at(starts, -1) >= {longest}, array_append(starts, time), starts)"
        )
        times = f"array_sort(collect_set({TIME}))"
        starts = f"aggregate({times}, CAST(array() AS array<bigint>), (starts, time) -> {later})"
        begins = long.groupBy(*session).agg(f.expr(starts).alias("starts_"))
        long = long.join(begins, list(session)).select(
            *(name for name in rows.columns if name not in (_START, _END)),
            f.expr(f"array_max(filter(starts_, start -> start <= {TIME}))").alias(_START),
        )
        ends = long.groupBy(*session, _START).agg((f.max(TIME) + gap).alias("natural_"))
        ends = ends.withColumn(_END, f.least("natural_", f.col(_START) + longest))
        long = long.join(ends.drop("natural_"), [*session, _START])
        return rows.where(f"{_END} - {_START} <= {longest}").unionByName(long), ends

    def _aggregate_rows(self, source: EventInput, windows: DataFrame) -> StepTable:
        """The output from rows with ``_START`` and ``_END``."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as f

        from spark_jobs.steps.derive import first_line

        aggregates = self._bind_aggregates(source.schema)
        groups = [f"c{number}" for number in self._group_columns(source.schema)]
        newest = f"struct(ums_id_, {', '.join(KAFKA_COLUMNS)}, ums_uid_)"
        system = [
            f.expr("max(ums_id_) AS ums_id_"),
            f.expr("max(ums_ts_) AS ums_ts_"),
            f.expr("'i' AS ums_op_"),
            f.expr(f"concat(max({newest}).ums_uid_, '/', {_START}) AS ums_uid_"),
            *(f.expr(f"max({newest}).{name} AS {name}") for name in KAFKA_COLUMNS),
        ]
        try:
            rows = windows.groupBy(*groups, _START, _END).agg(
                *(f.expr(part.sql).alias(f"a{number}") for number, part in enumerate(aggregates.values())), *system
            )
        except PySparkException as error:
            raise StepRefused(f"step {self.name}: aggregates: {first_line(error)}") from None
        rows = rows.withColumn(_START, f.expr(f"timestamp_micros({_START})"))
        rows = rows.withColumn(_END, f.expr(f"timestamp_micros({_END})"))
        kinds = [field.dataType for field in rows.schema.fields[len(groups) + 2 : len(groups) + 2 + len(aggregates)]]
        schema = self._make_output_schema(source.schema, list(aggregates), kinds)
        return StepTable(TableChanges(schema, rows.toDF(*(column.name for column in schema.columns), *SYSTEM_COLUMNS)))


def _no_window() -> dict[str, Any]:
    from pyspark.sql import functions as f

    return {name: f.lit(None).cast("bigint") for name in (_START, _END)}
