"""A rule set that was checked: a plan for every step, the columns of every table, and what a group needs in a line."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from connectors.errors import ConfigInvalid
from connectors.logs.rules.errors import OperatorOptionInvalid, RuleProblem, RulesInvalid
from connectors.logs.rules.model import MOST_DOCUMENT, parse_rules, read_rules
from connectors.logs.rules.operators.repeating import FlattenJsonArray, FlattenUms
from connectors.logs.rules.operators.saving import SaveAs
from connectors.logs.rules.plans import ExtractFields, KeepRecord, Plan, UniqueRecords
from connectors.logs.rules.records import LINE, TOO_DEEP, Dropped, LineOrigin, Record, Shape, StepFailed
from connectors.logs.rules.types import TYPES
from connectors.schema import Schema, struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.logs.rules.model import GoldenLine, LogRuleGroup, LogRuleSet, LogRuleStep, LogRuleTable


#: Loops that Python lets be inside each other, and some to spare.
_MOST_SPLITS: Final = 12


class StepStatus(StrEnum):
    """How a step went for a line."""

    SUCCESS = "success"
    #: Its condition is not fulfilled.
    SKIPPED = "skipped"
    #: No record is left, or it ended on purpose.
    DROPPED = "dropped"
    #: It can't handle the record, and the rule says that this does not matter.
    IGNORED = "ignored"
    #: It can't handle the record: the group does not accept the line.
    ERROR = "error"


class Attempt(NamedTuple):
    """The result of a step for a record.

    Attributes:
        records: what comes out.
        status: how it went.
        reason: why, with ``IGNORED`` and ``ERROR``.
    """

    records: list[Record | Dropped]
    status: StepStatus
    reason: str = ""


class BuiltStep(NamedTuple):
    """One step that can be run.

    Attributes:
        number: from 1.
        operator: its name.
        plan: what it does.
        condition: when it is done; None for always.
        ignore_failure: whether a record that it can't handle stays as it is.
    """

    number: int
    operator: str
    plan: Plan
    condition: KeepRecord | None
    ignore_failure: bool

    @property
    def is_plain(self) -> bool:
        """Whether it is done for every record, and a failure counts."""
        return self.condition is None and not self.ignore_failure

    def attempt(self, record: Record, origin: LineOrigin) -> Attempt:
        """Run the step on one record, and say how that went."""
        if isinstance(self.plan, UniqueRecords):
            raise TypeError("deduplicate looks at all records of a line")
        try:
            if self.condition is not None and not self.condition.passes(record, origin):
                return Attempt([record], StepStatus.SKIPPED)
            records = self.plan.apply(record, origin)
        except (StepFailed, RecursionError) as error:
            reason = str(error) if isinstance(error, StepFailed) else TOO_DEEP
            if self.ignore_failure:
                return Attempt([record], StepStatus.IGNORED, reason)
            return Attempt([], StepStatus.ERROR, reason)
        passed = bool(records) and not isinstance(records[0], Dropped)
        return Attempt(records, StepStatus.SUCCESS if passed else StepStatus.DROPPED)

    def run(self, record: Record, origin: LineOrigin) -> list[Record | Dropped]:
        """Run the step on one record.

        Raises:
            StepFailed: it can't handle it.
        """
        attempt = self.attempt(record, origin)
        if attempt.status is StepStatus.ERROR:
            raise StepFailed(attempt.reason)
        return attempt.records


class BuiltGroup(NamedTuple):
    """One group that can be run.

    Attributes:
        table: the table's name.
        name: the group's.
        steps: in order.
        needle: an RE2 expression that every line that the group accepts matches, or "".
    """

    table: str
    name: str
    steps: tuple[BuiltStep, ...]
    needle: str


class BuiltRules(NamedTuple):
    """A rule set that can be run.

    Attributes:
        name: its name.
        groups: of all tables, in order.
        schemas: of the rows of each table, with the table's version.
        most_characters: the longest line that is given to rules.
        golden: lines whose rows must not change.
    """

    name: str
    groups: tuple[BuiltGroup, ...]
    schemas: dict[str, Schema]
    most_characters: int
    golden: tuple[GoldenLine, ...]


def build_rules(rules: LogRuleSet) -> BuiltRules:
    """Check the options of every step, and that the fields that it names exist.

    Raises:
        RulesInvalid: with every complaint.
    """
    problems: list[RuleProblem] = []
    groups: list[BuiltGroup] = []
    schemas: dict[str, Schema] = {}
    for table in rules.tables:
        groups += [_build_group(table, group, problems) for group in table.groups]
        schema = _schema_of(table, problems)
        if schema is not None:
            schemas[table.name] = schema
    if problems:
        raise RulesInvalid(rules.name, problems)
    return BuiltRules(rules.name, tuple(groups), schemas, rules.most_characters, rules.golden)


def build_any(rules: Any, name: str = "rules") -> BuiltRules:
    """As ``build_rules``, for a rule set as it comes in a request: text, or a decoded document.

    Raises:
        RulesInvalid: something in it is wrong.
        ConfigInvalid: it is too long.
    """
    if isinstance(rules, str):
        return build_rules(parse_rules(rules, name))
    size = len(msgspec.json.encode(rules))
    if size > MOST_DOCUMENT:
        raise ConfigInvalid(f"The rule set {name} has {size} bytes as JSON; {MOST_DOCUMENT} are allowed")
    return build_rules(read_rules(rules, name))


def _build_group(table: LogRuleTable, group: LogRuleGroup, problems: list[RuleProblem]) -> BuiltGroup:
    steps: list[BuiltStep] = []
    shape: Shape = (LINE,)
    saves = [number for number, step in enumerate(group.steps, 1) if isinstance(step.options, SaveAs)]
    if saves != [len(group.steps)]:
        problems.append(
            RuleProblem(
                table.name, group.name, 0, "", "", "the last step, and no other, must be saveAs; it makes the row"
            )
        )
    if sum(isinstance(step.options, FlattenJsonArray | FlattenUms) for step in group.steps) > _MOST_SPLITS:
        problems.append(
            RuleProblem(
                table.name, group.name, 0, "", "", f"more than {_MOST_SPLITS} steps flatten documents; divide the group"
            )
        )
    for number, step in enumerate(group.steps, 1):
        try:
            built = _build_step(number, step)
            steps.append(built)
            shape = _shape_after(built, shape)
        except OperatorOptionInvalid as error:
            shape = None
            problems.append(RuleProblem(table.name, group.name, number, step.operator, error.option, error.message))
    return BuiltGroup(table.name, group.name, tuple(steps), _needle_of(steps))


def _build_step(number: int, step: LogRuleStep) -> BuiltStep:
    plan = step.options.make_plan()
    try:
        condition = step.when.make_plan() if step.when is not None else None
    except OperatorOptionInvalid as error:
        raise OperatorOptionInvalid(f"when.{error.option}", error.message) from None
    always = isinstance(step.options, SaveAs) or isinstance(plan, UniqueRecords)
    if always and (condition is not None or step.ignore_failure):
        raise OperatorOptionInvalid(
            "when", f"{step.operator} is done for every record; leave out when and ignoreFailure"
        )
    return BuiltStep(number, step.operator, plan, condition, step.ignore_failure)


def _shape_after(step: BuiltStep, shape: Shape) -> Shape:
    """The fields after a step; None if they may be there or not."""
    try:
        after = step.plan.shape_after(shape)
    except OperatorOptionInvalid:
        if step.ignore_failure:
            return None
        raise
    return after if step.is_plain or after == shape else None


def _needle_of(steps: Sequence[BuiltStep]) -> str:
    """From the first steps, as long as they are filters of the line: what the line must match."""
    needle = ""
    for step in steps:
        plan = step.plan
        if not step.is_plain or not isinstance(plan, KeepRecord | ExtractFields) or plan.source not in (LINE, 0):
            break
        needle = plan.needle or needle
        if isinstance(plan, ExtractFields):
            break
    return needle


def _schema_of(table: LogRuleTable, problems: list[RuleProblem]) -> Schema | None:
    """The schema of the table's rows, on which its groups must agree."""
    schemas = [
        (group.name, {column.name: column.make_schema() for column in step.options.columns})
        for group in table.groups
        for step in group.steps[-1:]
        if isinstance(step.options, SaveAs) and _types_known(step.options)
    ]
    if not schemas:
        return None
    first_name, first = schemas[0]
    for name, columns in schemas[1:]:
        if list(columns.items()) != list(first.items()):
            different = next(
                (column for column in (*columns, *first) if columns.get(column) != first.get(column)), "their order"
            )
            problems.append(
                RuleProblem(
                    table.name,
                    name,
                    0,
                    "saveAs",
                    "columns",
                    f"the columns differ from those of group {first_name} in {different}; all groups of a table make the "
                    "same columns, with the same types, in the same order",
                )
            )
    return struct(table.name, first, version=table.version)


def _types_known(options: SaveAs) -> bool:
    return all(column.type in TYPES for column in options.columns)
