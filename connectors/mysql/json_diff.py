"""Partial updates of JSON columns (``binlog_row_value_options=PARTIAL_JSON``), applied to the image before. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from connectors.mysql.json_binary import parse, write

REPLACE: Final = 0
INSERT: Final = 1
REMOVE: Final = 2
_NAMES: Final = {REPLACE: "REPLACE", INSERT: "INSERT", REMOVE: "REMOVE"}


class Diff(NamedTuple):
    """One change: ``path`` has member names and cell numbers."""

    operation: int
    path: tuple[str | int, ...]
    value: Any = None


def apply(stored: bytes | None, diffs: bytes) -> str:
    """The document after the changes, as text.

    Args:
        stored: the document before, as the binlog has it; None: the image before doesn't hold it.
        diffs: the changes as the binlog has them.

    Raises:
        ValueError: they can't be applied.
    """
    if stored is None:
        raise ValueError(
            "a part of a JSON column was updated, and the row's image before does not hold the column: have the "
            "server log whole values (SET GLOBAL binlog_row_value_options = '') or whole images "
            "(binlog_row_image = FULL)"
        )
    tree = parse(stored)
    for diff in read(diffs):
        tree = _changed(tree, diff)
    return write(tree)


def read(data: bytes) -> list[Diff]:
    """The changes in the order in which they are to be made.

    Raises:
        ValueError: the bytes are cut off or not understood.
    """
    diffs: list[Diff] = []
    at = 0
    try:
        while at < len(data):
            operation = data[at]
            if operation not in _NAMES:
                raise ValueError(f"a JSON change has the operation {operation}, which is unknown")
            size, at = _length(data, at + 1)
            path = parse_path(data[at : at + size].decode("utf-8"))
            at += size
            value = None
            if operation != REMOVE:
                size, at = _length(data, at)
                value = parse(data[at : at + size])
                at += size
            diffs.append(Diff(operation, path, value))
    except IndexError as error:
        raise ValueError("a JSON change is cut off") from error
    return diffs


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded number, and where it ends."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def parse_path(text: str) -> tuple[str | int, ...]:
    """The legs of a path such as ``$.a."b c"[3]``.

    Raises:
        ValueError: it is no path to one place.
    """
    legs: list[str | int] = []
    at = 1 if text.startswith("$") else 0
    while at < len(text):
        if text[at] == "[":
            end = text.index("]", at)
            legs.append(int(text[at + 1 : end]))
            at = end + 1
        elif text.startswith('."', at):
            name, at = json.JSONDecoder().raw_decode(text, at + 1)
            legs.append(name)
        elif text[at] == ".":
            end = at + 1
            while end < len(text) and text[end] not in ".[":
                end += 1
            legs.append(text[at + 1 : end])
            at = end
        else:
            raise ValueError(f"{text!r} is no path into a JSON document")
    return tuple(legs)


def _changed(tree: Any, diff: Diff) -> Any:
    """The tree after one change; it is changed in place where that can be."""
    if not diff.path:
        if diff.operation != REPLACE:
            raise _lost(diff)
        return diff.value
    place = tree
    for leg in diff.path[:-1]:
        place = _child(place, leg, diff)
    leg = diff.path[-1]
    if isinstance(place, dict) and isinstance(leg, str):
        if diff.operation == REMOVE:
            if leg not in place:
                raise _lost(diff)
            del place[leg]
        elif diff.operation == REPLACE and leg not in place:
            raise _lost(diff)
        else:
            place[leg] = diff.value
            _sort(place)
    elif isinstance(place, list) and isinstance(leg, int):
        if diff.operation == INSERT:
            place.insert(leg, diff.value)
        elif leg >= len(place):
            raise _lost(diff)
        elif diff.operation == REMOVE:
            del place[leg]
        else:
            place[leg] = diff.value
    else:
        raise _lost(diff)
    return tree


def _sort(members: dict[str, Any]) -> None:
    """Bring a new member to where MySQL keeps it: by the length of the name in bytes, then by its bytes."""
    ordered = sorted(members.items(), key=lambda item: (len(item[0].encode()), item[0].encode()))
    members.clear()
    members.update(ordered)


def _child(place: Any, leg: str | int, diff: Diff) -> Any:
    try:
        if isinstance(place, dict) == isinstance(leg, str) and isinstance(place, (dict, list)):
            return place[leg]  # type: ignore[index]
    except (KeyError, IndexError):
        pass
    raise _lost(diff)


def _lost(diff: Diff) -> ValueError:
    path = "$" + "".join(f"[{leg}]" if isinstance(leg, int) else f".{leg}" for leg in diff.path)
    return ValueError(
        f"{_NAMES[diff.operation]} at {path} of a JSON column doesn't fit the document in the row's image before"
    )
