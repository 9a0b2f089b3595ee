"""Request bodies. Pure: bytes in, checked values out. What fits is declared in ``schemas.py``, and nowhere else.

Kafka Connect answers a body it can't read with 500 and its parser's text; here it is 400 and says what was expected.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Any, Final, NoReturn

from msgspec import Struct, inspect

from connectors.options import BLANKS
from worker.rest.facade import RestError
from worker.rest.shapes.flow_schemas import PreviewRequest
from worker.rest.shapes.rule_schemas import (
    ReplayRequest,
    RulesDiffRequest,
    RuleSetRequest,
    RulesPreviewRequest,
    RulesProposalRequest,
    RulesRead,
)
from worker.rest.shapes.schemas import ConfigBody, CreateConnector, OffsetsRequest, SavepointRequest, SnapshotRequest
from worker.rest.shapes.verify_schemas import VerifyRequest

_BODY: Final = "The request body"
#: A file with what would be a body.
FILE: Final = "The file"
_SCALAR: Final = "must be a string, a number or a boolean"


class _Number(str):
    """A number as it was written: a configuration value keeps its digits."""

    __slots__ = ()


class CreateRequest(Struct, frozen=True):
    """The body of ``POST /connectors`` as it was read; ``initial_state`` is None where it isn't given."""

    name: str
    config: dict[str, str | None]
    initial_state: str | None


def read_json(data: bytes, subject: str = _BODY, *, numbers_as_text: bool = False) -> Any:
    """The parsed body.

    Args:
        data: as it came.
        subject: begins the sentences of refusals.
        numbers_as_text: keep the digits of numbers.

    Raises:
        RestError: 400.
    """
    if not data.strip():
        refuse_body(f"{subject} is empty; a JSON document is expected")
    try:
        # Decoded here: json decodes bytes with halves of surrogate pairs, too.
        text = data.decode(json.detect_encoding(data))
        if numbers_as_text:
            value = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)
        else:
            value = json.loads(text, parse_float=_read_float, parse_constant=_no_constant)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        refuse_body(f"{subject} is not valid JSON: it has a string with half of a surrogate pair (\\ud800 to \\udfff)")
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else _error_position(error)
        refuse_body(f"{subject} is not valid JSON: {reason}")
    return value


def read_config(data: bytes, subject: str = _BODY) -> dict[str, str | None]:
    """A configuration: an object of strings. Numbers and booleans become strings, null stays None.

    Raises:
        RestError: 400.
    """
    config: dict[str, str | None] = _read_value(
        read_json(data, subject, numbers_as_text=True), _declared_type(ConfigBody), subject
    )
    return config


def read_create(data: bytes, subject: str = _BODY) -> CreateRequest:
    """The body of ``POST /connectors``; the name is trimmed, and empty where it isn't given.

    Raises:
        RestError: 400.
    """
    body = _read_value(read_json(data, subject, numbers_as_text=True), _declared_type(CreateConnector), subject)
    return CreateRequest(body["name"].strip(BLANKS), body["config"], body.get("initial_state"))


def read_offsets(data: bytes) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """The body of ``PATCH .../offsets``: (partition, offset) pairs, an offset of None resets its partition.

    Raises:
        RestError: 400.
    """
    body = _read_value(read_json(data), _declared_type(OffsetsRequest), _BODY)
    return [(entry["partition"], entry.get("offset")) for entry in body["offsets"]]


def read_snapshot(data: bytes) -> dict[str, Any]:
    """The body of ``POST .../snapshots``: the fields that are given, each of its type.

    Raises:
        RestError: 400.
    """
    body: dict[str, Any] = _read_value(read_json(data), _declared_type(SnapshotRequest), _BODY)
    return {name: value for name, value in body.items() if value is not None}


def read_savepoint(data: bytes) -> dict[str, Any]:
    """The body of ``POST .../savepoints``.

    Raises:
        RestError: 400.
    """
    body: dict[str, Any] = _read_value(read_json(data), _declared_type(SavepointRequest), _BODY)
    return body


def read_preview(data: bytes) -> tuple[dict[str, str | None], dict[str, Any]]:
    """The body of ``POST /flows/preview``: the configuration, and the other fields that are given.

    Raises:
        RestError: 400.
    """
    parsed, written = read_json(data), read_json(data, numbers_as_text=True)
    if isinstance(parsed, dict) and "config" in parsed:
        # The configuration keeps its numbers' digits; rows have numbers.
        parsed["config"] = written["config"]
    body: dict[str, Any] = _read_value(parsed, _declared_type(PreviewRequest), _BODY)
    return body["config"], {name: value for name, value in body.items() if name != "config" and value is not None}


def read_rules_preview(data: bytes) -> dict[str, Any]:
    """The body of ``POST /rules/preview``.

    Raises:
        RestError: 400.
    """
    body: dict[str, Any] = _read_value(read_json(data), _declared_type(RulesPreviewRequest), _BODY)
    return body


def read_rules_diff(data: bytes) -> dict[str, Any]:
    """The body of ``POST /rules/diff``.

    Raises:
        RestError: 400.
    """
    body: dict[str, Any] = _read_value(read_json(data), _declared_type(RulesDiffRequest), _BODY)
    return body


def read_rules_proposal(data: bytes) -> dict[str, Any]:
    """The body of ``POST /rules/propose``.

    Raises:
        RestError: 400.
    """
    body: dict[str, Any] = _read_value(read_json(data), _declared_type(RulesProposalRequest), _BODY)
    return body


def read_replay(data: bytes) -> dict[str, Any]:
    """The body of ``POST .../replay``: the fields that are given; no body is an empty one.

    Raises:
        RestError: 400.
    """
    body: dict[str, Any] = _read_value(read_json(data) if data.strip() else {}, _declared_type(ReplayRequest), _BODY)
    return {name: value for name, value in body.items() if value is not None}


def read_rule_set(data: bytes) -> dict[str, Any]:
    """The body of ``PUT /rules/{name}``.

    Raises:
        RestError: 400.
    """
    body: dict[str, Any] = _read_value(read_json(data), _declared_type(RuleSetRequest), _BODY)
    return body


def read_rules(data: bytes) -> Any:
    """The rules in the body of ``POST /console/rules/read``: an object or a string.

    Raises:
        RestError: 400.
    """
    return _read_value(read_json(data), _declared_type(RulesRead), _BODY)["rules"]


def read_verify(data: bytes) -> dict[str, Any]:
    """The body of ``POST .../verify``; no body is an empty one.

    Raises:
        RestError: 400.
    """
    body: dict[str, Any] = _read_value(read_json(data) if data.strip() else {}, _declared_type(VerifyRequest), _BODY)
    return body


def read_level(data: bytes) -> str | None:
    """The ``level`` in the body of ``PUT /admin/loggers/{name}``, or None; whether there is such a level is asked later.

    Raises:
        RestError: 400.
    """
    return read_config(data).get("level")


def read_task_configs(data: bytes) -> list[dict[str, str]]:
    """The body of the internal ``POST /connectors/{name}/tasks``.

    Raises:
        RestError: 400.
    """
    configs = _read_value(read_json(data, numbers_as_text=True), _declared_type(list[ConfigBody]), _BODY)
    return [{name: value for name, value in config.items() if value is not None} for config in configs]


def refuse_body(message: str) -> NoReturn:
    """Refuse the request.

    Raises:
        RestError: 400, always.
    """
    raise RestError(400, message)


# Reading by declaration.


@cache
def _declared_type(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _read_value(value: Any, kind: inspect.Type, where: str) -> Any:
    """``value`` as its declaration says it shall be.

    Args:
        value: parsed JSON.
        kind: the declaration.
        where: begins a sentence, for instance ``The field 'config'``.

    Raises:
        RestError: 400.
    """
    extra: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata):
        extra = {**(kind.extra or {}), **extra}
        kind = kind.type
    if "refusal" in extra:
        try:
            return _read_plain(value, kind, where, extra)
        except RestError:
            refuse_body(extra["refusal"].replace("{value}", str(value)))
    return _read_plain(value, kind, where, extra)


def _read_plain(value: Any, kind: inspect.Type, where: str, extra: dict[str, Any]) -> Any:
    match kind:
        case inspect.UnionType():
            return _read_union(value, kind, where)
        case inspect.StructType():
            return _read_struct(_require_object(value, where), kind, where)
        case inspect.DictType():
            return {
                name: _read_item(name, item, kind.value_type) for name, item in _require_object(value, where).items()
            }
        case inspect.ListType():
            return _read_list(value, kind, where, extra)
        case inspect.StrType():
            return _read_text(value, kind, where, lenient="text" in extra)
        case inspect.LiteralType():
            # In any case, as Kafka Connect takes names of states.
            if isinstance(value, str) and value.upper() in kind.values:
                return value.upper()
            refuse_body(f"{where} must be one of {', '.join(map(str, kind.values))}")
        case inspect.IntType(ge=least, le=most):
            if (
                isinstance(value, int)
                and not isinstance(value, bool)
                and (least is None or most is None or least <= value <= most)
            ):
                return value
            refuse_body(f"{where} must be a whole number")
        case inspect.BoolType():
            if isinstance(value, bool):
                return value
            refuse_body(f"{where} must be true or false")
        case inspect.AnyType():
            return value
    raise TypeError(f"no body is declared with {kind}")


def _read_union(value: Any, kind: inspect.UnionType, where: str) -> Any:
    if value is None:
        return None
    members = [member_type for member_type in kind.types if not isinstance(member_type, inspect.NoneType)]
    if len(members) == 1:
        return _read_value(value, members[0], where)
    return _read_text(value, inspect.StrType(), where, lenient=True)  # the values of configurations


def _read_struct(body: dict[str, Any], kind: inspect.StructType, where: str) -> dict[str, Any]:
    known_fields = [struct_field.encode_name for struct_field in kind.fields]
    unknown = sorted(set(body) - set(known_fields)) if kind.forbid_unknown_fields else []
    if unknown:
        hint = (
            f"known fields are {', '.join(known_fields)}"
            if len(known_fields) > 1
            else f"the only known field is {known_fields[0]}"
        )
        refuse_body(f"Unknown field '{unknown[0]}' in {where[0].lower()}{where[1:]}; {hint}")
    result: dict[str, Any] = {}
    for struct_field in kind.fields:
        name = struct_field.encode_name
        extra = struct_field.type.extra or {} if isinstance(struct_field.type, inspect.Metadata) else {}
        value = body.get(name)
        if value is None and "absent" in extra:
            value = extra["absent"]
        if value is None and "missing" in extra:
            refuse_body(extra["missing"])
        if value is not None or struct_field.required:
            result[name] = _read_value(
                value, struct_field.type, f"The field '{name}'" if where in {_BODY, FILE} else f"{where}: '{name}'"
            )
    return result


def _read_list(value: Any, kind: inspect.ListType, where: str, extra: dict[str, Any]) -> list[Any]:
    if not isinstance(value, list):
        refuse_body(extra.get("shape", f"{where} must be a JSON list"))
    if kind.min_length and not value:
        refuse_body(extra.get("missing", f"{where} must not be empty"))
    if kind.max_length is not None and len(value) > kind.max_length:
        refuse_body(f"{where} must have {kind.max_length} entries at most")
    of = where.removeprefix("The field ") if where != _BODY else "the request body"
    return [_read_value(item, kind.item_type, f"Entry {number} of {of}") for number, item in enumerate(value)]


def _read_item(name: str, value: Any, kind: inspect.Type) -> Any:
    try:
        return _read_value(value, kind, f"The value of '{name}'")
    except RestError as error:
        refuse_body(str(error).replace("{key}", name))


def _read_text(value: Any, kind: inspect.StrType, where: str, *, lenient: bool) -> str:
    if isinstance(value, bool) and lenient:
        return "true" if value else "false"
    if not isinstance(value, str):
        refuse_body(f"{where} {_SCALAR if lenient else 'must be a string'}")
    if kind.pattern is not None and not _compile_pattern(kind.pattern).search(value):
        refuse_body(f"{where} must match {kind.pattern}")
    return str(value)


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern of JSON Schema, where ``$`` is the end of the text and nothing else."""
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


def _require_object(value: Any, subject: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        refuse_body(f"{subject} must be a JSON object")
    return value


def _read_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):  # it would be saved as null
        refuse_body(f"The number {digits[:20]} is too large: numbers with a fraction or an exponent are doubles")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _error_position(error: ValueError) -> str:
    # The text of a decoding error quotes nothing of the body, so no secret can get out through it.
    return str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
