"""``type=join``: rows of two streams whose columns are equal and whose times are near each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, at_least, non_empty, one_of
from spark_jobs.contract import KAFKA_COLUMNS, SYSTEM_COLUMNS, TableChanges, TableSchema
from spark_jobs.spark.frames import union_frames
from spark_jobs.steps.contract import Step, StepTable
from spark_jobs.steps.event_time import rows as event_rows
from spark_jobs.steps.event_time.rows import TIME, Count, EventInput
from spark_jobs.steps.event_time.times import choose_later, next_watermark, subtract_span
from spark_jobs.steps.lookup.model import parse_on
from spark_jobs.steps.planning.model import StepRefused
from spark_jobs.steps.planning.names import find_column, find_table, table_part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from spark_jobs.contract import Column
    from spark_jobs.steps.contract import StepRun
    from spark_jobs.steps.planning.model import OutputTable
    from spark_jobs.steps.state.tables import StepState

LEFT: Final = "left"
RIGHT: Final = "right"
SIDES: Final = (LEFT, RIGHT)
INNER: Final = "inner"
FULL: Final = "full"
SEMI: Final = "semi"
#: Sides whose rows come out also without a match.
OUTER: Final[Mapping[str, tuple[str, ...]]] = {LEFT: (LEFT,), RIGHT: (RIGHT,), FULL: SIDES}


@dataclass(frozen=True, slots=True)
class Joined:
    """The output of a join.

    Attributes:
        schema: of the output.
        columns: by column of the output the positions in the left and in the right table; -1: it is not of that one.
        on: the positions of the columns that must be equal, left and right.
    """

    schema: TableSchema
    columns: tuple[tuple[int, int], ...]
    on: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _JoinSide:
    """The rows of one input in a batch: names begin with ``l_`` or ``r_``."""

    new: DataFrame
    old: DataFrame
    count: Count

    @property
    def all(self) -> DataFrame:
        return self.old.unionAll(self.new)


class JoinStep(Step):
    """See docs/jobs/steps.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            *(
                ConfigKey(
                    name=side,
                    type=ConfigType.STRING,
                    importance=Importance.HIGH,
                    validator=non_empty,
                    example=example,
                    doc=f"The table on the {side}: its namespace, `database.table`, the table alone, or the name of an "
                    "earlier step.",
                )
                for side, example in ((LEFT, "shop.orders"), (RIGHT, "shop.payments"))
            ),
            ConfigKey(
                name="on",
                type=ConfigType.LIST,
                importance=Importance.HIGH,
                validator=non_empty,
                example="customer, id = order_id",
                doc="The columns that must be equal: `<left column> = <right column>`, or one name for both. Null equals "
                "nothing.",
            ),
            ConfigKey(
                name="range.ms",
                type=ConfigType.LONG,
                importance=Importance.HIGH,
                unit="ms",
                validator=at_least(0),
                example="900000",
                doc="How far the times of two rows may be apart, in either direction.",
            ),
            ConfigKey(
                name="how",
                type=ConfigType.STRING,
                default=INNER,
                importance=Importance.HIGH,
                validator=one_of(INNER, LEFT, RIGHT, FULL, SEMI),
                doc="`inner`: pairs. `left`, `right`, `full`: also rows of that side, or of both, that have no match, once "
                "the watermark has passed their range. `semi`: rows of the left that have a match, once, without columns of "
                "the right.",
            ),
            event_rows.time_key("left.time"),
            event_rows.time_key("right.time"),
            event_rows.WATERMARK,
            ConfigKey(
                name="idle.ms",
                type=ConfigType.LONG,
                default=86_400_000,
                unit="ms",
                validator=at_least(-1),
                doc="An input whose newest row is older than that of the other input by more than this does not hold the "
                "watermark any longer. It bounds the state while an input has no rows. `-1`: it holds the watermark forever.",
            ),
            ConfigKey(
                name="key",
                type=ConfigType.LIST,
                default=None,
                example="order_id",
                doc="The columns of the output that tell its rows apart. Not set: the keys of both tables (`inner`), the key "
                "of the left (`semi`); none for the others, whose rows may lack one side.",
            ),
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
        """See ``Step.combines``."""
        return True

    def check(self) -> list[str]:
        """See ``Step.check``."""
        options = self.context.options
        problems = event_rows.changing_input(self.context, {side: options[side] for side in SIDES})
        if options[LEFT] == options[RIGHT]:
            problems.append("right: is the same table as left: give one of two tables")
        try:
            parse_on(options["on"])
        except ValueError as error:
            problems.append(f"on: {error}")
        return problems

    def remarks(self) -> list[str]:
        """See ``Step.remarks``."""
        options = self.context.options
        remarks = event_rows.list_option_remarks(options)
        if options["how"] not in OUTER or options["key"]:
            return remarks
        return [
            *remarks,
            f"how={options['how']} gives a table without a key: name columns that no row lacks in key if the sink needs one",
        ]

    def state(self) -> str:
        """See ``Step.state``."""
        options = self.context.options
        factors = {side: self._count_kept_ranges(side) for side in SIDES}
        kept = ", ".join(
            f"rows of {options[side]} for {(factors[side] * options['range.ms'] + options['watermark.ms']) / 1000:g} s"
            for side in SIDES
        )
        return f"{kept} of event time, in Delta tables in the checkpoint"

    def definition(self) -> dict[str, Any]:
        """See ``Step.definition``."""
        options = (*SIDES, "left.time", "right.time")
        return super().definition() | {name: self.context.options[name] for name in options}

    def makes(self) -> list[str]:
        """See ``Step.makes``."""
        return [self.name]

    def unmatched(self, tables: Sequence[TableSchema]) -> list[str]:
        """See ``Step.unmatched``."""
        names = [self.context.options[side] for side in SIDES]
        return [name for name in names if find_table(self.name, name, tables) is None]

    def left_out(self) -> str:
        """See ``Step.left_out``."""
        return "it has no match among these rows, or waits for one"

    def measure_state(self) -> dict[str, float]:
        """See ``Step.measure_state``."""
        return dict(self._measured)

    # Plan.

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        inputs = self._find_inputs(tables)
        read = {source.schema.namespace for source in inputs.values()}
        result: list[OutputTable | TableSchema] = [
            table for table in tables if self.context.options["keep.inputs"] or table.namespace not in read
        ]
        if len(inputs) == len(SIDES):
            result.append(self._plan_join(inputs[LEFT].schema, inputs[RIGHT].schema).schema)
        if self.context.options["late"] == "keep":
            result += [replace(source.schema, namespace=f"{self.name}_late_{side}") for side, source in inputs.items()]
        return result

    def _find_inputs(self, tables: Sequence[TableSchema]) -> dict[str, EventInput]:
        """The inputs that have been seen, by side."""
        options = self.context.options
        inputs = {side: find_table(self.name, options[side], tables) for side in SIDES}
        return {
            side: event_rows.input_of(self.name, schema, options[f"{side}.time"])
            for side, schema in inputs.items()
            if schema is not None
        }

    def _plan_join(self, left: TableSchema, right: TableSchema) -> Joined:
        from pyspark.sql import types as t

        how = self.context.options["how"]
        on = self._find_join_columns(left, right)
        same = {pair[1]: pair[0] for pair in on if left.columns[pair[0]].name == right.columns[pair[1]].name}
        outer = OUTER.get(how, ())
        columns: list[tuple[Column, tuple[int, int]]] = []
        merged = {here: there for there, here in same.items()}
        for number, column in enumerate(left.columns):
            shared = number in merged and how != SEMI
            kind = column.type if not shared or right.columns[merged[number]].type == column.type else t.LongType()
            lacking = RIGHT in outer and not shared
            position = (number, merged[number] if shared else -1)
            columns.append((replace(column, type=kind, key=False, nullable=column.nullable or lacking), position))
        names = {column.name.lower() for column in left.columns}
        for number, column in enumerate(right.columns if how != SEMI else ()):
            if number in same:
                continue
            name = column.name if column.name.lower() not in names else f"{table_part(right.namespace)}_{column.name}"
            if name.lower() in names:
                raise StepRefused(
                    f"step {self.name}: both tables have columns {column.name} and {name}: rename one by a step of type select"
                )
            names.add(name.lower())
            columns.append(
                (replace(column, name=name, key=False, nullable=column.nullable or LEFT in outer), (-1, number))
            )
        key = self._find_output_key(left, right, columns)
        order = [*key, *(item for item in columns if item[0].name not in {column.name for column, _ in key})]
        schema = [
            replace(column, key=number < len(key), nullable=column.nullable and number >= len(key))
            for number, (column, _) in enumerate(order)
        ]
        return Joined(TableSchema(self.name, tuple(schema)), tuple(position for _, position in order), tuple(on))

    def _find_join_columns(self, left: TableSchema, right: TableSchema) -> list[tuple[int, int]]:
        """The numbers of the columns that ``on`` compares, left and right."""
        from pyspark.sql import types as t

        pairs = []
        for left_name, right_name in parse_on(self.context.options["on"]):
            pair = (find_column(self.name, left_name, left), find_column(self.name, right_name, right))
            left_type, right_type = left.columns[pair[0]].type, right.columns[pair[1]].type
            if left_type != right_type and not (
                isinstance(left_type, t.IntegralType) and isinstance(right_type, t.IntegralType)
            ):
                raise StepRefused(
                    f"step {self.name}: on: {left_name} is a {left_type.simpleString()} and {right_name} a "
                    f"{right_type.simpleString()}: cast one by a step of type select before it"
                )
            pairs.append(pair)
        return pairs

    def _find_output_key(
        self, left: TableSchema, right: TableSchema, columns: Sequence[tuple[Column, tuple[int, int]]]
    ) -> list[tuple[Column, tuple[int, int]]]:
        """The columns of the output's key."""
        how, chosen = self.context.options["how"], self.context.options["key"]
        outer = OUTER.get(how, ())
        if chosen:
            by_name = {item[0].name: item for item in columns}
            missing = next((name for name in chosen if name not in by_name), "")
            if missing:
                raise StepRefused(
                    f"step {self.name}: key names the column {missing}, which is not in its output: {', '.join(by_name)}"
                )
            for name in chosen:
                position = by_name[name][1]
                if (LEFT in outer and position[0] < 0) or (RIGHT in outer and position[1] < 0):
                    raise StepRefused(
                        f"step {self.name}: key: rows without a match lack {name} (how={how}): take columns that every row "
                        "has, or compute one by a step of type select before it"
                    )
            return [by_name[name] for name in chosen]
        if outer or not left.key or (how != SEMI and not right.key):
            return []
        return [
            item
            for item in columns
            if (item[1][0] >= 0 and left.columns[item[1][0]].key)
            or (how != SEMI and item[1][1] >= 0 and right.columns[item[1][1]].key)
        ]

    # Rows.

    def apply(self, tables: Sequence[StepTable], run: StepRun) -> list[StepTable]:
        """See ``Step.apply``. Blocks: counts the rows of the batch and of the state."""
        options = self.context.options
        by_name = {table.changes.schema.namespace: table for table in tables}
        inputs = self._find_inputs([table.changes.schema for table in tables])
        read = {side: by_name[source.schema.namespace] for side, source in inputs.items()}
        consumed = {source.schema.namespace for source in inputs.values()}
        result = [table for table in tables if options["keep.inputs"] or table.changes.schema.namespace not in consumed]
        present = any(table.present for table in read.values())
        joined = self._plan_join(inputs[LEFT].schema, inputs[RIGHT].schema) if len(inputs) == len(SIDES) else None
        if not present:
            self._measured = event_rows.list_state_numbers(run.state(self.name).values)
            return [*result, *self._make_empty_tables(inputs, joined, run)]
        state, values = run.state(self.name), run.state(self.name).values
        event_rows.check_origin(self.name, values, self.definition())
        before, floors = values.get("watermark"), values.get("floors", {})
        batch = {
            side: event_rows.read_events(source, read[side], run, ignore=options["changes"] == event_rows.IGNORE)
            for side, source in inputs.items()
        }
        old, floors = self._read_kept(inputs, state, before, floors)
        late = event_rows.late_sql(before)
        counts = event_rows.count_rows(batch, old, late)
        new = {side: frame.where(f"{TIME} IS NOT NULL AND NOT {late}") for side, frame in batch.items()}
        newest = {
            side: choose_later(values.get("newest", {}).get(side), _find_newest_time(counts, side)) for side in SIDES
        }
        watermark = before
        if joined is not None:
            watermark = next_watermark(
                before,
                list(newest.values()),
                event_rows.read_micros(options, "watermark.ms"),
                event_rows.read_micros(options, "idle.ms"),
            )
        released = {
            side: choose_later(values.get("released", {}).get(side), subtract_span(watermark, self._read_range()))
            for side in SIDES
        }
        for side, source in inputs.items():
            if counts[side, True].rows:
                state.append(side, event_rows.to_state(new[side], source.schema))
        totals = {
            name: values.get(name, 0) + sum(getattr(counts[side, True], name) for side in inputs)
            for name in ("late", "ignored")
        }
        kept_values = {
            "of": self.definition(),
            "newest": newest,
            "watermark": watermark,
            "released": released,
            "floors": floors,
            "rows": sum(counts[side, of_batch].rows for side in inputs for of_batch in (False, True)),
            **totals,
        }
        state.keep_values(kept_values)
        self._measured = event_rows.list_state_numbers(kept_values)
        if joined is not None:
            sides = {
                side: _JoinSide(
                    _prefix_columns(new[side], side),
                    _prefix_columns(event_rows.at_last_record(old[side], counts), side),
                    counts[side, True],
                )
                for side in SIDES
            }
            frame = self._select_output(joined, sides, values.get("released", {}), released)
            result.append(StepTable(TableChanges(joined.schema, frame)))
        if options["late"] == "keep":
            result += [
                event_rows.late_table(f"{self.name}_late_{side}", batch[side].where(late), source.schema, present=True)
                for side, source in inputs.items()
            ]
        return result

    def _make_empty_tables(
        self, inputs: Mapping[str, EventInput], joined: Joined | None, run: StepRun
    ) -> list[StepTable]:
        """The tables of a batch that has no rows of the inputs."""
        tables = [] if joined is None else [_make_empty_table(joined.schema, run)]
        if self.context.options["late"] == "keep":
            tables += [
                _make_empty_table(replace(source.schema, namespace=f"{self.name}_late_{side}"), run)
                for side, source in inputs.items()
            ]
        return tables

    def _read_kept(
        self, inputs: Mapping[str, EventInput], state: StepState, watermark: int | None, floors: dict[str, int | None]
    ) -> tuple[dict[str, DataFrame], dict[str, int | None]]:
        """The rows that wait on each side, and the time below which none is needed any more."""
        old = {}
        for side, source in inputs.items():
            floor = choose_later(
                floors.get(side), subtract_span(watermark, self._count_kept_ranges(side) * self._read_range())
            )
            kept = state.read(
                side, event_rows.state_fields(source.schema), keep="" if floor is None else f"{TIME} >= {floor}"
            )
            old[side] = event_rows.from_state(kept, source.schema)
            floors = floors | {side: floor}
        return old, floors

    def _select_output(
        self,
        joined: Joined,
        sides: Mapping[str, _JoinSide],
        before: Mapping[str, int | None],
        released: Mapping[str, int | None],
    ) -> DataFrame:
        """The rows of the output: pairs with a new row, then rows that have stayed without a match."""
        left, right = sides[LEFT], sides[RIGHT]
        how = self.context.options["how"]
        on = self._join_condition(joined)
        parts: list[DataFrame] = []
        if how == SEMI:
            parts.append(_select_single_rows(joined, left.new.join(right.all, on, "left_semi"), LEFT))
            first = left.old.join(right.new, on, "left_semi").join(right.old, on, "left_anti")
            parts.append(_select_single_rows(joined, first, LEFT))
        else:
            # A pair has the position of a record of this batch, so that a later step can put it aside.
            parts.append(_pair_rows(joined, left.new.join(right.all, on), "l_"))
            if right.count.rows:
                parts.append(_pair_rows(joined, left.old.join(right.new, on), "r_"))
            for side in OUTER.get(how, ()):
                start, end = before.get(side), released[side]
                if end is None or end == start:
                    continue
                other_side, letter = sides[RIGHT if side == LEFT else LEFT], side[0]
                due = f"{letter}_{TIME} < {end}" + ("" if start is None else f" AND {letter}_{TIME} >= {start}")
                alone = sides[side].all.where(due).join(other_side.all, on, "left_anti")
                parts.append(_select_single_rows(joined, alone, side))
        rows = union_frames(parts)
        key = len(joined.schema.key)
        if self.context.options["key"]:
            names = [f"c{number}" for number in range(key)]
            rows = rows.repartition(*names).sortWithinPartitions(*names, "ums_id_", "ums_uid_")
        return rows.toDF(*(column.name for column in joined.schema.columns), *SYSTEM_COLUMNS)

    def _join_condition(self, joined: Joined) -> SparkColumn:
        from pyspark.sql import functions as f

        equal = [f"l_c{here} = r_c{there}" for here, there in joined.on]
        near = f"r_{TIME} BETWEEN l_{TIME} - {self._read_range()} AND l_{TIME} + {self._read_range()}"
        return f.expr(" AND ".join([*equal, near]))

    def _read_range(self) -> int:
        return event_rows.read_micros(self.context.options, "range.ms")

    def _count_kept_ranges(self, side: str) -> int:
        """For how many ranges after the watermark rows of a side are kept.

        A row without a match is known to have none only when its whole range has passed, so a match at the start of the range
        must still be there then.
        """
        how = self.context.options["how"]
        waiting = OUTER.get(how, (LEFT,) if how == SEMI else ())
        return 2 if (RIGHT if side == LEFT else LEFT) in waiting else 1


def _find_newest_time(counts: Mapping[tuple[str, bool], Count], side: str) -> int | None:
    count = counts.get((side, True))
    return None if count is None else count.newest


def _prefix_columns(frame: DataFrame, side: str) -> DataFrame:
    return frame.toDF(*(f"{side[0]}_{name}" for name in frame.columns))


def _make_empty_table(schema: TableSchema, run: StepRun) -> StepTable:
    from spark_jobs.steps.flow import empty_changes

    return StepTable(empty_changes(run.spark, [schema])[0], present=False)


def _pair_rows(joined: Joined, frame: DataFrame, new: str) -> DataFrame:
    """Rows of the output from pairs; ``new`` begins the columns of the side that is of this batch."""
    from pyspark.sql import functions as f

    columns = [
        f.col(f"l_c{here}" if here >= 0 else f"r_c{there}").cast(column.type).alias(f"c{number}")
        for number, (column, (here, there)) in enumerate(zip(joined.schema.columns, joined.columns, strict=True))
    ]
    largest_number = "CASE WHEN l_ums_id_ > 0 THEN 9223372036854775807 ELSE -9223372036854775808 END"
    return frame.select(
        *columns,
        # It grows with the number of either row, whatever the scales of the two sources are.
        f.expr(f"coalesce(try_add(l_ums_id_, r_ums_id_), {largest_number}) AS ums_id_"),
        f.expr("greatest(l_ums_ts_, r_ums_ts_) AS ums_ts_"),
        f.lit("i").alias("ums_op_"),
        f.expr("concat(l_ums_uid_, '+', r_ums_uid_) AS ums_uid_"),
        *(f.col(f"{new}{name}").alias(name) for name in KAFKA_COLUMNS),
    )


def _select_single_rows(joined: Joined, frame: DataFrame, side: str) -> DataFrame:
    """Rows of the output from rows of one side."""
    from pyspark.sql import functions as f

    letter, index = side[0], SIDES.index(side)
    columns = []
    for number, (column, position) in enumerate(zip(joined.schema.columns, joined.columns, strict=True)):
        value = f.col(f"{letter}_c{position[index]}") if position[index] >= 0 else f.lit(None)
        columns.append(value.cast(column.type).alias(f"c{number}"))
    return frame.select(*columns, *(f.col(f"{letter}_{name}").alias(name) for name in SYSTEM_COLUMNS))
