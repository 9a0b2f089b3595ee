"""The way of given lines through a rule set, step by step; the changes between two rule sets; and whether golden lines hold.

Pure functions. The preview works on raw lines with the plans that the compiled functions are written from, so that it is exact
after any edit.
"""

from __future__ import annotations

import time
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from connectors.logs.rules.built import StepStatus
from connectors.logs.rules.errors import RuleProblem
from connectors.logs.rules.plans import UniqueRecords
from connectors.logs.rules.records import LINE, Dropped, LineOrigin, Record
from connectors.logs.rules.tools.interpreted import explain_line, run_step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.logs.rules.built import BuiltGroup, BuiltRules, BuiltStep

#: Of the records of a line, the status that says most about a step.
_WORST_FIRST: Final = (StepStatus.ERROR, StepStatus.IGNORED, StepStatus.SUCCESS, StepStatus.DROPPED, StepStatus.SKIPPED)
NO_ORIGIN: Final = LineOrigin()


class LineStep(msgspec.Struct, frozen=True):
    """A step and a line.

    Attributes:
        line: the number of the line from 0.
        status: how it went.
        records_in: the records before the step.
        records_out: after it.
        reason: why, with ``ignored``, ``dropped`` on purpose, and ``error``.
    """

    line: int
    status: StepStatus
    records_in: list[Record]
    records_out: list[Record]
    reason: str = ""


class StepPreview(msgspec.Struct):
    """A step and all lines that reached it.

    Attributes:
        step: its number from 1.
        operator: its operator.
        counts: how many lines it went which way for.
        microseconds: how long it took, for all lines.
        lines: each line.
    """

    step: int
    operator: str
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    microseconds: float = 0.0
    lines: list[LineStep] = msgspec.field(default_factory=list)


class GroupPreview(msgspec.Struct):
    """A group and all lines.

    Attributes:
        table: the table's name.
        group: the group's.
        tried: lines that it was given: those that no earlier group of the table accepts.
        accepted: lines that it accepts.
        percent: accepted lines of all lines, in percent.
        steps: its steps.
    """

    table: str
    group: str
    tried: int
    accepted: int
    percent: float
    steps: list[StepPreview]


class LineRows(msgspec.Struct, frozen=True):
    """The result for one line.

    Attributes:
        line: the line.
        rows: by table; {} if no group accepts it.
        unknown: whether it goes to ``unknown_table``.
    """

    line: str
    rows: dict[str, list[Record]]
    unknown: bool


class Preview(msgspec.Struct, frozen=True):
    """The result of a preview.

    Attributes:
        groups: each group with its steps.
        lines: each line with its rows.
    """

    groups: list[GroupPreview]
    lines: list[LineRows]


class LineChange(msgspec.Struct, frozen=True):
    """A line whose rows differ between two rule sets.

    Attributes:
        number: the number of the line from 0.
        line: the line.
        changes: what differs: ``table``, ``columns``, ``rows`` (their number) or ``values``.
        before: its rows by table with the first rule set.
        after: with the second.
    """

    number: int
    line: str
    changes: list[str]
    before: dict[str, list[Record]]
    after: dict[str, list[Record]]


class GoldenFailure(NamedTuple):
    """A golden line that makes other rows than it must.

    Attributes:
        line: the line.
        expected: the rows that it must make, by table.
        actual: the rows that it makes.
    """

    line: str
    expected: dict[str, list[Record]]
    actual: dict[str, list[Record]]


def preview_rules(
    rules: BuiltRules,
    lines: Sequence[str],
    origins: Sequence[LineOrigin] = (),
    clock: Callable[[], float] = time.perf_counter,
    spend: Callable[[Sequence[Record]], None] | None = None,
) -> Preview:
    """Run lines through a rule set, step by step.

    Args:
        rules: the rule set.
        lines: raw lines.
        origins: where each comes from; () for nowhere.
        clock: seconds, for the time of each step.
        spend: called with the records after each step; what it raises ends the preview.
    """
    rows: list[dict[str, list[Record]]] = [{} for _ in lines]
    groups: list[GroupPreview] = []
    for group in rules.groups:
        waiting = [
            number
            for number, line in enumerate(lines)
            if group.table not in rows[number] and len(line) <= rules.most_characters
        ]
        steps = [StepPreview(step.number, step.operator) for step in group.steps]
        accepted = 0
        for number in waiting:
            origin = origins[number] if origins else NO_ORIGIN
            created = _preview_line(group, steps, number, lines[number], origin, clock, spend)
            if created is not None:
                accepted += 1
                rows[number][group.table] = created
        percent = round(100 * accepted / len(lines), 2) if lines else 0.0
        groups.append(GroupPreview(group.table, group.name, len(waiting), accepted, percent, steps))
    return Preview(
        groups, [LineRows(line, created, unknown=not created) for line, created in zip(lines, rows, strict=True)]
    )


def _preview_line(
    group: BuiltGroup,
    steps: list[StepPreview],
    number: int,
    line: str,
    origin: LineOrigin,
    clock: Callable[[], float],
    spend: Callable[[Sequence[Record]], None] | None,
) -> list[Record] | None:
    """The rows that a group makes of a line; None if it does not accept it."""
    records: list[Record | Dropped] = [{LINE: line}]
    for step, shown in zip(group.steps, steps, strict=True):
        before = _only_records(records)
        started = clock()
        records, status, reason = _attempt_all(step, records, origin)
        shown.microseconds += (clock() - started) * 1_000_000
        after = _only_records(records)
        if spend is not None:
            spend(after)
        shown.counts[status] = shown.counts.get(status, 0) + 1
        shown.lines.append(LineStep(number, status, before, after, reason))
        if status is StepStatus.ERROR or not records:
            return None
    return _only_records(records)


def _attempt_all(
    step: BuiltStep, records: list[Record | Dropped], origin: LineOrigin
) -> tuple[list[Record | Dropped], StepStatus, str]:
    """Run a step on the records of a line; the records after it, and the status that says most."""
    if isinstance(step.plan, UniqueRecords):
        return run_step(step, records, origin), StepStatus.SUCCESS, ""
    result: list[Record | Dropped] = []
    statuses: Counter[StepStatus] = Counter()
    reasons: list[str] = []
    for record in records:
        if isinstance(record, Dropped):
            result.append(record)
            statuses[StepStatus.SKIPPED] += 1
            continue
        attempt = step.attempt(record, origin)
        if attempt.status is StepStatus.ERROR:
            return [], StepStatus.ERROR, attempt.reason
        statuses[attempt.status] += 1
        reasons += [attempt.reason] if attempt.reason else []
        reasons += [item.reason for item in attempt.records if isinstance(item, Dropped)]
        result += attempt.records
    status = next(status for status in _WORST_FIRST if statuses[status])
    return result, status, reasons[0] if reasons else ""


def _only_records(records: Sequence[Record | Dropped]) -> list[Record]:
    return [record for record in records if not isinstance(record, Dropped)]


def diff_rules(
    before: BuiltRules, after: BuiltRules, lines: Sequence[str], origins: Sequence[LineOrigin] = ()
) -> list[LineChange]:
    """The lines whose table, columns, number of rows or values differ between two rule sets."""
    changes: list[LineChange] = []
    for number, line in enumerate(lines):
        origin = origins[number] if origins else NO_ORIGIN
        first, second = _rows_of(before, line, origin), _rows_of(after, line, origin)
        kinds = _compare_rows(first, second)
        if kinds:
            changes.append(LineChange(number, line, kinds, first, second))
    return changes


def _rows_of(rules: BuiltRules, line: str, origin: LineOrigin) -> dict[str, list[Record]]:
    return {table: _only_records(rows) for table, rows in explain_line(rules, line, origin)[0]}


def _compare_rows(first: dict[str, list[Record]], second: dict[str, list[Record]]) -> list[str]:
    kinds: set[str] = set()
    if first.keys() != second.keys():
        kinds.add("table")
    for table in first.keys() & second.keys():
        if len(first[table]) != len(second[table]):
            kinds.add("rows")
        for old, new in zip(first[table], second[table], strict=False):
            if tuple(old) != tuple(new):
                kinds.add("columns")
            if any(
                old[name] != new[name] or type(old[name]) is not type(new[name]) for name in old.keys() & new.keys()
            ):
                kinds.add("values")
    return [kind for kind in ("table", "columns", "rows", "values") if kind in kinds]


def check_versions(before: BuiltRules, after: BuiltRules) -> list[RuleProblem]:
    """Complaints about tables of a new rule set whose columns changed although their version did not rise."""
    problems: list[RuleProblem] = []
    for table, schema in after.schemas.items():
        old = before.schemas.get(table)
        if old is None or (schema.version or 0) > (old.version or 0):
            continue
        if schema.version == old.version and schema.fields == old.fields:
            continue
        problems.append(
            RuleProblem(
                table,
                "",
                0,
                "",
                "version",
                f"version {schema.version} follows version {old.version}, and the columns changed; give the table version "
                f"{(old.version or 0) + 1}"
                if schema.fields != old.fields
                else f"version {schema.version} follows version {old.version}; versions only rise",
            )
        )
    return problems


def check_golden(rules: BuiltRules) -> list[GoldenFailure]:
    """The golden lines of a rule set that make other rows than they must."""
    failures: list[GoldenFailure] = []
    for golden in rules.golden:
        actual = {
            table: [_plain_row(row) for row in rows] for table, rows in _rows_of(rules, golden.line, NO_ORIGIN).items()
        }
        if actual != golden.rows:
            failures.append(GoldenFailure(golden.line, golden.rows, actual))
    return failures


def _plain_row(row: Record) -> dict[str, Any]:
    """A row as a document writes it: decimals are strings."""
    return {name: format(value, "f") if isinstance(value, Decimal) else value for name, value in row.items()}
