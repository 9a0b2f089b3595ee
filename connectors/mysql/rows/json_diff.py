"""Partial updates of JSON columns (``binlog_row_value_options=PARTIAL_JSON``), applied to the image before. Pure."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from connectors.mysql.rows.json_binary import parse_document, write_json

REPLACE: Final = 0
INSERT: Final = 1
REMOVE: Final = 2
_NAMES: Final = {REPLACE: "REPLACE", INSERT: "INSERT", REMOVE: "REMOVE"}


class Diff(NamedTuple):
    """One change: ``path`` has member names and cell numbers, those from the end below zero."""

    operation: int
    path: tuple[str | int, ...]
    value: Any = None


def apply_diffs(stored: bytes | None, diffs: bytes) -> str:
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
    tree = parse_document(stored)
    for diff in read_diffs(diffs):
        tree = _apply_diff(tree, diff)
    return write_json(tree)


def read_diffs(data: bytes) -> list[Diff]:
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
            size, at = _read_length(data, at + 1)
            path = parse_path(data[at : at + size].decode("utf-8"))
            at += size
            value = None
            if operation != REMOVE:
                size, at = _read_length(data, at)
                value = parse_document(data[at : at + size])
                at += size
            diffs.append(Diff(operation, path, value))
    except IndexError as error:
        raise ValueError("a JSON change is cut off") from error
    return diffs


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded number, and where it ends."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def parse_path(path: str) -> tuple[str | int, ...]:
    """The legs of a path such as ``$.a."b c"[3][last-1]``.

    Raises:
        ValueError: it is no path to one place.
    """
    legs: list[str | int] = []
    at = 1 if path.startswith("$") else 0
    while at < len(path):
        if path[at] == "[":
            end = path.index("]", at)
            cell = path[at + 1 : end]
            legs.append(int(cell.removeprefix("last") or 0) - 1 if cell.startswith("last") else int(cell))
            at = end + 1
        elif path.startswith('."', at):
            name, at = json.JSONDecoder().raw_decode(path, at + 1)
            legs.append(name)
        elif path[at] == ".":
            end = at + 1
            while end < len(path) and path[end] not in ".[":
                end += 1
            legs.append(path[at + 1 : end])
            at = end
        else:
            raise ValueError(f"{path!r} is no path into a JSON document")
    return tuple(legs)


def _apply_diff(tree: Any, diff: Diff) -> Any:
    """The tree after one change; it is changed in place where that can be."""
    if not diff.path:
        if diff.operation != REPLACE:
            raise _mismatch_error(diff)
        return diff.value
    container = tree
    for leg in diff.path[:-1]:
        container = _find_child(container, leg, diff)
    leg = diff.path[-1]
    if isinstance(container, dict) and isinstance(leg, str):
        if diff.operation == REMOVE:
            if leg not in container:
                raise _mismatch_error(diff)
            del container[leg]
        elif diff.operation == REPLACE and leg not in container:
            raise _mismatch_error(diff)
        else:
            container[leg] = diff.value
            _sort_members(container)
    elif isinstance(container, list) and isinstance(leg, int):
        if diff.operation == INSERT:
            container.insert(leg, diff.value)
        elif not -len(container) <= leg < len(container):
            raise _mismatch_error(diff)
        elif diff.operation == REMOVE:
            del container[leg]
        else:
            container[leg] = diff.value
    else:
        raise _mismatch_error(diff)
    return tree


def _sort_members(members: dict[str, Any]) -> None:
    """Bring a new member to where MySQL keeps it: by the length of the name in bytes, then by its bytes."""
    ordered = sorted(members.items(), key=lambda item: (len(item[0].encode()), item[0].encode()))
    members.clear()
    members.update(ordered)


def _find_child(container: Any, leg: str | int, diff: Diff) -> Any:
    try:
        if isinstance(container, dict) == isinstance(leg, str) and isinstance(container, (dict, list)):
            return container[leg]  # type: ignore[index]
    except (KeyError, IndexError):
        pass
    raise _mismatch_error(diff)


def _mismatch_error(diff: Diff) -> ValueError:
    path = "$" + "".join(f"[{leg}]" if isinstance(leg, int) else f".{leg}" for leg in diff.path)
    return ValueError(
        f"{_NAMES[diff.operation]} at {path} of a JSON column doesn't fit the document in the row's image before"
    )
