"""Policies for changed tables: which columns a sink gets, of which types, and what becomes of their values. Pure.

The sink has a schema of each table (``SinkTableState.accepted``). A batch brings rows of another one. ``resolve_changes``
compares both and applies the sink's policy to each difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal
from spark_jobs.config.schema_options import (
    DROPPED_COLUMN,
    EVOLVE,
    FAIL,
    IGNORE,
    INCOMPATIBLE_TYPE,
    LENIENT,
    NEW_COLUMN,
    NEW_TABLE,
    PREFIX,
    TRY_EVOLVE,
    WIDER_TYPE,
)
from spark_jobs.sources.types import find_wider_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.config.schema_options import SchemaPolicies
    from spark_jobs.contract import Column, TableSchema

#: Ends the name of the column with the strings of values that don't fit (``lenient``).
TEXT_SUFFIX: Final = "_as_text"


class Value(StrEnum):
    """How a column of the sink gets its values from the column of the batch."""

    SAME = "same"
    #: Converted to the column's type; null where that would change the value.
    FITTING = "fitting"
    #: The text of values that ``FITTING`` makes null.
    REST = "rest"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A difference between the schema that a sink has of a table and the one that a batch brings.

    Attributes:
        kind: one of ``schema_options.KINDS``.
        column: its name; empty for a table.
        before: the type that the sink has; empty for what is new.
        after: the type of the new rows; empty for what was dropped.
        policy: what decides on it.
        effect: what the sink does about it.
    """

    kind: str
    column: str
    before: str
    after: str
    policy: str
    effect: str


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column that the sink gets."""

    column: Column
    source: str
    value: Value = Value.SAME


@dataclass(frozen=True, slots=True)
class SinkTableState:
    """The state of a table between batches.

    Attributes:
        accepted: the schema as the sink has it.
        reported: changes that were reported: they are not reported again.
        dropped: columns that the source has dropped.
        string_columns: for a column, the name of the one with the strings of values that don't fit.
    """

    accepted: TableSchema
    reported: tuple[SchemaChange, ...] = ()
    dropped: tuple[str, ...] = ()
    string_columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resolution:
    """The form that a batch's rows of a table get.

    Attributes:
        targets: the columns that the sink gets, in order.
        state: of the table, once the batch is written.
        changes: those that were not reported yet.
        asis: whether the rows are what the batch brought.
    """

    targets: tuple[TargetColumn, ...]
    state: SinkTableState
    changes: tuple[SchemaChange, ...]
    asis: bool

    def schema(self, new: TableSchema) -> TableSchema:
        """The table as the sink sees it."""
        return new if self.asis else replace(new, columns=tuple(target.column for target in self.targets))


def first_state(new: TableSchema) -> SinkTableState:
    """The state of a table that the sink gets for the first time."""
    return SinkTableState(new)


def new_table(namespace: str, policies: SchemaPolicies, *, refused: bool) -> SchemaChange:
    """Describe the appearance of a new table as a change; ``refused``: the target can't create it.

    Raises:
        Fatal: the policy is ``fail``.
    """
    policy = policies[NEW_TABLE]
    if policy == FAIL:
        raise Fatal(_describe_refusal(namespace, NEW_TABLE, "the table is new"))
    put_aside = policy == IGNORE or (policy == TRY_EVOLVE and refused)
    effect = "its records go to the dead letter topic" if put_aside else "the sink makes the table if it is not there"
    return SchemaChange(NEW_TABLE, "", "", "", policy, effect)


def resolve_changes(
    state: SinkTableState, new: TableSchema, lacking: frozenset[str], policies: SchemaPolicies, *, refused: bool = False
) -> Resolution:
    """Apply the policies to the differences between what the sink has of a table and what a batch brings.

    Args:
        state: of the table.
        new: the batch's schema of it.
        lacking: columns that some version of the batch's rows does not have.
        policies: the sink's.
        refused: whether the target has refused to follow: then ``try_evolve`` means ``ignore``.

    Raises:
        Fatal: a policy is ``fail``.
    """
    sink_columns = {column.name: column for column in state.accepted.columns}
    targets: list[TargetColumn] = []
    wide: dict[str, Column] = {}
    changes: list[SchemaChange] = []
    brought = {column.name.lower() for column in new.columns}
    # A column that the source has got since then keeps its name: the strings get another column.
    string_columns = {column: name for column, name in state.string_columns.items() if name.lower() not in brought}
    names = {column.name for column in (*new.columns, *state.accepted.columns)}
    for column in new.columns:
        old = sink_columns.get(column.name)
        kind = kind_of(old, column)
        policy = _choose_policy(policies, kind, column, refused=refused)
        if policy == FAIL:
            raise Fatal(_describe_refusal(new.namespace, kind, _describe_difference(old, column)))
        if kind == NEW_COLUMN:
            if policy != IGNORE:
                targets.append(TargetColumn(column, column.name))
            changes.append(_make_change(kind, None, column, policy, "left out" if policy == IGNORE else "added"))
        elif not kind or old is None:
            targets.append(TargetColumn(column, column.name))
            # The sink's column may hold more than these rows need.
            wide[column.name] = column if old is None else replace(old, nullable=old.nullable or column.nullable)
        elif policy in (EVOLVE, TRY_EVOLVE):
            targets.append(TargetColumn(column, column.name))
            changes.append(_make_change(kind, old, column, policy, "the column gets the new type"))
        else:
            targets.append(TargetColumn(replace(old, nullable=True), column.name, Value.FITTING))
            effect = "values that don't fit are null"
            if policy == LENIENT:
                name = string_columns.setdefault(column.name, _free_name(column.name, names))
                names.add(name)
                effect += f", their text is in {name}"
            changes.append(_make_change(kind, old, column, policy, effect))
    fitting = {target.source for target in targets if target.value == Value.FITTING}
    targets += [
        TargetColumn(_text_column(new, name), source, Value.REST)
        for source, name in string_columns.items()
        if source in fitting
        and _choose_policy(
            policies, kind_of(sink_columns[source], _find_column(new, source)), _find_column(new, source)
        )
        == LENIENT
    ]
    dropped = sorted(lacking & sink_columns.keys() - set(state.dropped))
    for name in dropped:
        policy = policies[DROPPED_COLUMN]
        if policy == FAIL:
            raise Fatal(_describe_refusal(new.namespace, DROPPED_COLUMN, f"the source has dropped the column {name}"))
        changes.append(_make_change(DROPPED_COLUMN, sink_columns[name], None, policy, "stays, and is null in new rows"))
    fresh = tuple(change for change in changes if change not in state.reported)
    asis = [(target.column, target.value) for target in targets] == [(column, Value.SAME) for column in new.columns]
    accepted = replace(new, columns=tuple(wide.get(target.column.name, target.column) for target in targets))
    return Resolution(
        tuple(targets),
        SinkTableState(accepted, (*state.reported, *fresh)[-_KEPT:], (*state.dropped, *dropped), string_columns),
        fresh,
        asis,
    )


#: Reported changes of a table that are remembered.
_KEPT: Final = 1000


def kind_of(old: Column | None, new: Column) -> str:
    """The kind of change between two definitions of a column; empty where the sink's one holds the new values."""
    if old is None:
        return NEW_COLUMN
    if old.meaning != new.meaning and old.type == new.type:
        return INCOMPATIBLE_TYPE
    if old.type == new.type:
        longer = old.length is not None and (new.length is None or new.length > old.length)
        return WIDER_TYPE if longer else ""
    both = find_wider_type(old.type, new.type)
    if both is None:
        return INCOMPATIBLE_TYPE
    return "" if both == old.type else WIDER_TYPE


def _choose_policy(policies: SchemaPolicies, kind: str, column: Column, *, refused: bool = False) -> str:
    if not kind:
        return EVOLVE
    policy = policies[kind]
    if column.key and policy not in (FAIL, EVOLVE):
        return EVOLVE  # without its key a row would be another one
    return IGNORE if refused and policy == TRY_EVOLVE else policy


def _find_column(schema: TableSchema, name: str) -> Column:
    return next(column for column in schema.columns if column.name == name)


def _text_column(schema: TableSchema, name: str) -> Column:
    from pyspark.sql.types import StringType

    return replace(schema.columns[0], name=name, type=StringType(), nullable=True, key=False, length=None, meaning="")


def _free_name(column: str, names: set[str]) -> str:
    lowered = {name.lower() for name in names}
    name, number = f"{column}{TEXT_SUFFIX}", 1
    while name.lower() in lowered:
        number += 1
        name = f"{column}{TEXT_SUFFIX}_{number}"
    return name


def _make_change(kind: str, old: Column | None, new: Column | None, policy: str, effect: str) -> SchemaChange:
    column = new or old
    assert column is not None, "one of them is there"  # noqa: S101 - for the type checker
    return SchemaChange(kind, column.name, _type_text(old), _type_text(new), policy, effect)


def _type_text(column: Column | None) -> str:
    if column is None:
        return ""
    length = f"({column.length})" if column.length is not None else ""
    return f"{column.type.simpleString()}{length}" + (f" ({column.meaning})" if column.meaning else "")


def _describe_difference(old: Column | None, new: Column) -> str:
    if old is None:
        return f"the column {new.name} ({_type_text(new)}) is new"
    return f"the column {new.name} was {_type_text(old)} and is {_type_text(new)} now"


def _describe_refusal(namespace: str, kind: str, reason: str) -> str:
    return (
        f"table {namespace}: {reason}, and the policy for this is fail ({PREFIX}{kind}). Nothing of the batch was written. To "
        f"continue, set {PREFIX}{kind}, for example to {EVOLVE} or {LENIENT}; see docs/jobs/schema-changes.md"
    )


def put_aside(change: SchemaChange) -> bool:
    """Whether the records of a new table go to the dead letter topic."""
    return change.effect.startswith("its records go")
