"""The things that pass through a rule group: records, where their line comes from, and how a step refuses one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Fields in order, by name.
Record = dict[str, Any]
#: The names of a record's fields in order; None where only the line itself tells (JSON, key=value).
Shape = tuple[str, ...] | None
#: How a rule names a field: by name, or by its index in the record (negative from the end).
FieldName = str | int
#: The only field of a record that no step has changed.
LINE: Final = "line"


class LineOrigin(msgspec.Struct, frozen=True, gc=False):
    """Where a line comes from; rules read its members as ``@host``, ``@file``, ``@severity`` and so on.

    Attributes:
        host: the machine that wrote the line, or "".
        file: the file or topic that it was read from.
        position: where it starts in there.
        timestamp: when it was read or sent, milliseconds since 1970; it gives dates without a year their year.
        priority: syslog's number of facility and severity; this and what follows is None where the sender does not say it.
        facility: the name of syslog's facility.
        severity: how grave it is, as the sender names it.
        app: the program that wrote it.
        procid: its process.
        msgid: the type of message.
        data: what else the sender says, as a JSON object: structured data, attributes, fields.
    """

    host: str = ""
    file: str = ""
    position: int = 0
    timestamp: int = 0
    priority: int | None = None
    facility: str | None = None
    severity: str | None = None
    app: str | None = None
    procid: str | None = None
    msgid: str | None = None
    data: str | None = None


#: Why a step can't handle a document whose lists and objects are inside one another too often.
TOO_DEEP: Final = "a document in the record is nested too deep"
#: How rules name the members of ``LineOrigin``.
ORIGIN_FIELDS: Final = {f"@{name}": name for name in LineOrigin.__struct_fields__}


class StepFailed(Exception):
    """A step can't handle this record; the message says why, for ``unknown_table`` and the preview."""


class Dropped(NamedTuple):
    """A record that a ``drop`` step ended on purpose: its line is accepted and makes no row of it."""

    reason: str


def name_of(fields: Iterable[str], field: FieldName) -> str:
    """The name of a record's field.

    Raises:
        StepFailed: the record has no such field.
    """
    names = tuple(fields)
    if isinstance(field, str):
        if field in names:
            return field
        raise StepFailed(f"there is no field {field!r}; the record has {', '.join(names) or 'no fields'}")
    if -len(names) <= field < len(names):
        return names[field]
    raise StepFailed(f"there is no field at index {field}; the record has {len(names)}: {', '.join(names)}")


def read_field(record: Record, field: FieldName, origin: LineOrigin) -> Any:
    """The value of a field, or of a member of the origin.

    Raises:
        StepFailed: the record has no such field.
    """
    if field in record:
        return record[field]
    if isinstance(field, str) and field in ORIGIN_FIELDS:
        return getattr(origin, ORIGIN_FIELDS[field])
    return record[name_of(record, field)]


def replace_in_shape(names: tuple[str, ...], source: str, new: tuple[str, ...], *, keep: bool) -> tuple[str, ...]:
    """The names after ``new`` fields took the position of ``source``; those of the same name move there.

    Args:
        names: before.
        source: the field that the new ones were taken from; if it is not one of ``names``, they go to the end.
        new: the new fields.
        keep: whether the source stays, in front of them.
    """
    result: list[str] = []
    for name in names:
        if name == source:
            result += [source, *new] if keep and source not in new else new
        elif name not in new:
            result.append(name)
    return tuple(result) if source in names else (*result, *new)
