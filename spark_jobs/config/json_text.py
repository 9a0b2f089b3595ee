"""JSON job files: values as they are written, duplicates refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from connectors.errors import ConfigInvalid
from spark_jobs.config.keys import NAMED_LISTS

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as written: duplicates are still there."""


def flatten_json(json_text: str, path: str = "") -> tuple[dict[str, str], dict[str, int]]:
    """The dotted properties of a JSON object, and the line of each where it is known. Numbers keep their digits.

    Raises:
        ConfigInvalid: it is not JSON, not an object, names an option twice, or holds a list of anything but scalars.
    """
    try:
        document = json.loads(json_text, object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        raise ConfigInvalid(f"{path}:{error.lineno}: is not JSON: {error.msg} (column {error.colno})") from None
    if not isinstance(document, _Pairs):
        raise ConfigInvalid(f"{path}: must be an object with the job's options")
    result: dict[str, str] = {}

    def visit(prefix: str, pairs: _Pairs) -> None:
        for key, value in pairs:
            name = f"{prefix}{key}"
            if isinstance(value, _Pairs):
                visit(f"{name}.", value)
                continue
            if (
                name in NAMED_LISTS
                and isinstance(value, list)
                and value
                and all(isinstance(item, _Pairs) for item in value)
            ):
                value = [visit_named(name, item) for item in value]  # noqa: PLW2901 - the names of the steps or sinks
            if name in result:
                raise ConfigInvalid(f"{path}: {name} is given twice; remove one")
            if value is not None:
                result[name] = _format_plain(name, value, f"{path}: ")

    def visit_named(option: str, pairs: _Pairs) -> str:
        prefix, noun = NAMED_LISTS[option]
        names = [str(value) for key, value in pairs if key == "name"]
        if len(names) != 1:
            raise ConfigInvalid(f"{path}: {option}: each {noun} of the list needs one name")
        visit(f"{prefix}{names[0]}.", _Pairs(pair for pair in pairs if pair[0] != "name"))
        return names[0]

    visit("", document)
    lines = json_text.splitlines()
    return result, {name: line_number for name in result if (line_number := _line_of(name, lines))}


def _line_of(name: str, lines: Sequence[str]) -> int:
    """The line on which the last part of ``name`` is written as a key; 0 unless there is exactly one."""
    parts = name.split(".")
    for start in range(len(parts)):
        quoted_name = f'"{".".join(parts[start:])}"'
        line_numbers = [number for number, line in enumerate(lines, 1) if quoted_name in line]
        if len(line_numbers) == 1:
            return line_numbers[0]
    return 0


def _format_plain(name: str, value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and not isinstance(value, _Pairs):
        return ",".join(
            list_item(name, _format_plain(name, item, where), where)
            for item in value
            if _format_scalar(name, item, where)
        )
    return str(value)


def _format_scalar(name: str, item: Any, where: str) -> bool:
    if isinstance(item, list) or item is None:
        raise ConfigInvalid(f"{where}{name}: a list may hold strings, numbers and booleans only")
    return True


def list_item(name: str, item: str, where: str) -> str:
    """``item`` of a list that will be joined by commas."""
    if "," in item:
        raise ConfigInvalid(
            f"{where}{name}: the item {item!r} holds a comma, which separates items; write two items instead"
        )
    return item
