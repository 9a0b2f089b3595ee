"""Compares the rows before and after a step: rows that it leaves out, and rows whose operation it changes. Pure."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

HIDDEN: Final = "***"
_LONGEST: Final = 1000


@dataclass(frozen=True, slots=True)
class Line:
    """A change at one point of a flow.

    Attributes:
        uid: tells rows apart, and stays the same from step to step.
        record: topic, partition and offset of its record.
        op: its operation.
        values: by column, as JSON has them.
    """

    uid: str
    record: str
    op: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference that a step makes for a table before it.

    Attributes:
        dropped: rows that no table has after the step.
        changed: rows that have another operation after it.
    """

    dropped: tuple[Line, ...]
    changed: tuple[tuple[Line, str], ...]


def compare_rows(
    before: Sequence[Line], after: Mapping[str, Collection[str]], records: Collection[str], failed: Collection[str]
) -> Difference:
    """The rows of ``before`` that are gone or changed.

    Args:
        before: rows of a table before the step.
        after: operations after the step by uid.
        records: records of which a row is left after the step: the image before an update may become one with its update.
        failed: uids of rows that the step can't compute, which are reported as errors.
    """
    dropped, changed = [], []
    for line in before:
        if line.uid in failed:
            continue
        operations = after.get(line.uid)
        if operations is None:
            if line.op != "b" or line.record not in records:
                dropped.append(line)
        elif line.op not in operations:
            changed.append((line, min(operations)))
    return Difference(tuple(dropped), tuple(changed))


def reason_of(conditions: Mapping[str, Any] | None, otherwise: str) -> str:
    """Why a row does not pass.

    Args:
        conditions: what each condition gives for the row, by its text; None where it is not known.
        otherwise: the reason where every condition holds.
    """
    for condition, value in (conditions or {}).items():
        if value is not True:
            return f"the condition {condition} is {'false' if value is False else 'null'}"
    return otherwise


def json_value(value: Any) -> Any:
    """A value of Arrow as JSON has it; long strings are cut off."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}... ({len(value)} characters)"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return json_value(base64.b64encode(value).decode())
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): json_value(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(member) for member in value]
    return str(value) if isinstance(value, Decimal | timedelta) else json_value(str(value))


def hide_values(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The values with those of ``names`` hidden; null stays null, as masks keep it."""
    return {name: HIDDEN if name in names and value is not None else value for name, value in values.items()}
