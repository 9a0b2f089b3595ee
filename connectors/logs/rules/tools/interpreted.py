"""Rules run step by step: what a group makes of a line, or the step at which it fails and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from connectors.logs.rules.plans import UniqueRecords
from connectors.logs.rules.records import LINE, TOO_DEEP, Dropped, LineOrigin, Record, StepFailed

if TYPE_CHECKING:
    from connectors.logs.rules.built import BuiltGroup, BuiltRules, BuiltStep


class Failure(NamedTuple):
    """Why a group does not accept a line.

    Attributes:
        table: the table's name; "" if the line was given to no group.
        group: the group's name.
        step: the number of the step at which it failed, from 1.
        operator: the step's operator.
        reason: why.
    """

    table: str
    group: str
    step: int
    operator: str
    reason: str


def run_group(group: BuiltGroup, line: str, origin: LineOrigin) -> list[Record | Dropped] | Failure:
    """The rows that a group makes of a line, with the records that were dropped on purpose; or why it makes none."""
    records: list[Record | Dropped] = [{LINE: line}]
    for step in group.steps:
        try:
            records = run_step(step, records, origin)
        except StepFailed as error:
            return Failure(group.table, group.name, step.number, step.operator, str(error))
        if not records:
            return Failure(group.table, group.name, step.number, step.operator, "no record passes")
    return records


def explain_line(
    rules: BuiltRules, line: str, origin: LineOrigin
) -> tuple[list[tuple[str, list[Record | Dropped]]], list[Failure]]:
    """The rows of each table that accepts a line; and where the line failed in every group that was tried and does not."""
    if len(line) > rules.most_characters:
        reason = (
            f"the line has {len(line)} characters; rules are given at most {rules.most_characters} (mostCharacters)"
        )
        return [], [Failure("", "", 0, "", reason)]
    result: list[tuple[str, list[Record | Dropped]]] = []
    failures: list[Failure] = []
    done = ""
    for group in rules.groups:
        if group.table != done:
            outcome = run_group(group, line, origin)
            if isinstance(outcome, Failure):
                failures.append(outcome)
            else:
                result.append((group.table, outcome))
                done = group.table
    return result, failures


def run_step(step: BuiltStep, records: list[Record | Dropped], origin: LineOrigin) -> list[Record | Dropped]:
    """Run a step on the records of a line; raises ``StepFailed``."""
    if isinstance(step.plan, UniqueRecords):
        try:
            return step.plan.apply_all(records, origin)
        except RecursionError:
            raise StepFailed(TOO_DEEP) from None
    result: list[Record | Dropped] = []
    for record in records:
        if isinstance(record, Dropped):
            result.append(record)
        else:
            result += step.run(record, origin)
    return result
