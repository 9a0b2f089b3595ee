"""Request bodies. Pure: bytes in, checked values out.

Kafka Connect answers a body it can't read with 500 and its parser's text; here it is 400 and says what was expected.
"""
from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

import msgspec

from worker.rest.facade import RestError

_MOST_PRIORITY: Final = 1_000_000
_SNAPSHOT_ID: Final = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]{1,64}\Z")
INITIAL_STATES: Final = ("RUNNING", "PAUSED", "STOPPED")


class _Number(str):
    """A number as it was written: a configuration value keeps its digits."""

    __slots__ = ()


class CreateRequest(msgspec.Struct, frozen=True):
    """The body of ``POST /connectors``; ``initial_state`` is None where it isn't given."""

    name: str
    config: dict[str, str | None]
    initial_state: str | None


def read_json(data: bytes, *, numbers_as_text: bool = False) -> Any:
    """The parsed body.

    Raises:
        RestError: 400.
    """
    if not data.strip():
        bad("The request has no body; a JSON document is expected")
    try:
        if numbers_as_text:
            return json.loads(data, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else _position(error)
        bad(f"The request body is not valid JSON: {reason}")


def read_config(data: bytes) -> dict[str, str | None]:
    """A configuration: an object of strings. Numbers and booleans become strings, null stays None.

    Raises:
        RestError: 400.
    """
    return _config(read_json(data, numbers_as_text=True), "The request body")


def read_create(data: bytes) -> CreateRequest:
    """The body of ``POST /connectors``; the name is trimmed, and empty where it isn't given.

    Raises:
        RestError: 400.
    """
    body = _object(read_json(data, numbers_as_text=True), "The request body")
    unknown = sorted(set(body) - {"name", "config", "initial_state"})
    if unknown:
        bad(f"Unknown field '{unknown[0]}' in the request body; known fields are name, config, initial_state")
    if body.get("config") is None:
        bad("The field 'config' is missing: an object with the connector's configuration is expected")
    state = body.get("initial_state")
    if state is not None:
        state = state.upper() if isinstance(state, str) else str(state)
        if state not in INITIAL_STATES:
            bad(f"Invalid initial_state '{body['initial_state']}'; it must be one of {', '.join(INITIAL_STATES)}")
    name = _text(body.get("name"), "The field 'name'")
    return CreateRequest("" if name is None else name.strip(), _config(body["config"], "The field 'config'"), state)


def read_offsets(data: bytes) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """The body of ``PATCH .../offsets``: (partition, offset) pairs, an offset of None resets its partition.

    Raises:
        RestError: 400.
    """
    body = _object(read_json(data), "The request body")
    if set(body) - {"offsets"}:
        bad(f"Unknown field '{min(set(body) - {'offsets'})}' in the request body; the only known field is offsets")
    entries = body.get("offsets")
    if entries is None or entries == []:
        bad("Partitions / offsets need to be provided for an alter offsets request")
    if not isinstance(entries, list):
        bad("The field 'offsets' must be a list of {\"partition\": {...}, \"offset\": {...}}")
    result: list[tuple[dict[str, Any], dict[str, Any] | None]] = []
    for number, entry in enumerate(entries):
        where = f"Entry {number} of 'offsets'"
        fields = _object(entry, where)
        unknown = sorted(set(fields) - {"partition", "offset"})
        if unknown:
            bad(f"Unknown field '{unknown[0]}' in entry {number} of 'offsets'; known fields are partition, offset")
        offset = fields.get("offset")
        result.append((_object(fields.get("partition"), f"{where}: 'partition'"),
                       None if offset is None else _object(offset, f"{where}: 'offset'")))
    return result


def read_snapshot(data: bytes) -> dict[str, Any]:
    """The body of ``POST .../snapshots``: the fields that are given, each of its type.

    Raises:
        RestError: 400.
    """
    body = {name: value for name, value in _object(read_json(data), "The request body").items() if value is not None}
    unknown = sorted(set(body) - {"id", "tables", "conditions", "priority"})
    if unknown:
        bad(f"Unknown field '{unknown[0]}' in the request body; known fields are tables, conditions, priority, id")
    tables = body.get("tables", [])
    if not isinstance(tables, list) or not all(isinstance(table, str) and table.strip() for table in tables):
        bad("The field 'tables' must be a list of names or patterns of tables, each a text that is not empty")
    for table, condition in _object(body.get("conditions", {}), "The field 'conditions'").items():
        if not isinstance(condition, str) or not condition.strip():
            bad(f"The condition of '{table}' must be a text that is not empty")
    priority = body.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > _MOST_PRIORITY:
        bad(f"The field 'priority' must be a whole number from -{_MOST_PRIORITY} to {_MOST_PRIORITY}; the highest goes first")
    if "id" in body and (not isinstance(body["id"], str) or not _SNAPSHOT_ID.match(body["id"])):
        bad("The field 'id' must be 1 to 64 letters, digits, '.', '_' or '-'; without it an id is chosen")
    return body


def read_level(data: bytes) -> str | None:
    """The ``level`` in the body of ``PUT /admin/loggers/{name}``.

    Raises:
        RestError: 400.
    """
    return _config(read_json(data, numbers_as_text=True), "The request body").get("level")


def read_task_configs(data: bytes) -> list[dict[str, str]]:
    """The body of the internal ``POST /connectors/{name}/tasks``.

    Raises:
        RestError: 400.
    """
    body = read_json(data, numbers_as_text=True)
    if not isinstance(body, list):
        bad("The request body must be a list of task configurations")
    return [{name: value for name, value in _config(item, f"Task configuration {number}").items() if value is not None}
            for number, item in enumerate(body)]


def bad(message: str) -> NoReturn:
    """Refuse the request.

    Raises:
        RestError: 400, always.
    """
    raise RestError(400, message)


def _config(value: Any, what: str) -> dict[str, str | None]:
    return {name: _text(item, f"The value of '{name}'") for name, item in _object(value, what).items()}


def _text(value: Any, what: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str(value)
    bad(f"{what} must be a string, a number or a boolean")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        bad(f"{what} must be a JSON object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _position(error: ValueError) -> str:
    # The text of a decoding error quotes nothing of the body, so no secret can get out through it.
    return str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
