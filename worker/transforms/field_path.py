"""Names of nested fields: KIP-821's syntax, version 2. Version 1 knows names of the outermost fields only."""

from __future__ import annotations

from typing import Any, Final

from connectors.errors import ConfigInvalid, Skippable
from connectors.options import ConfigKey, ConfigType, Importance, one_of
from connectors.schema import Field, Schema, Type
from worker.transforms.java.conversions import class_name

SYNTAX_KEY: Final = ConfigKey(
    name="field.syntax.version",
    type=ConfigType.STRING,
    default="V1",
    validator=one_of("V1", "V2", ignore_case=True),
    importance=Importance.HIGH,
    example="V2",
    doc="How field names are read. V1: as they are, fields of the outermost level. V2: dots lead into nested fields; a name "
    "that has a dot itself is put in backticks (`a.b`.c), and a backtick in such a name has a backslash before it.",
)
_PURPOSE: Final = "nested field access"


def parse_path(path: str, version: str) -> tuple[str, ...]:
    """The steps of a path.

    Args:
        path: the path.
        version: ``V1`` or ``V2``.

    Raises:
        ConfigInvalid: a backtick without its counterpart; or a V2 path without any step.
    """
    if version.upper() == "V1":
        return (path,)
    if not path:
        raise ConfigInvalid("An empty path names no field; name one, or use field.syntax.version=V1")
    steps: list[str] = []
    at = 0
    while at < len(path):
        if path[at] == "`":
            step, at = _parse_quoted(path, at)
            steps.append(step)
        else:
            end = path.find(".", at)
            end = len(path) if end < 0 else end
            steps.append(path[at:end])
            at = end + 1
    if path.endswith("."):
        steps.append("")
    return tuple(steps)


def _parse_quoted(path: str, opened: int) -> tuple[str, int]:
    """The step in backticks that starts at ``opened``, and where the next one starts."""
    step, start, at = "", opened + 1, opened + 1
    while True:
        at = path.find("`", at)
        if at < 0:
            break
        escaped = path[at - 1] == "\\"
        last = at == len(path) - 1
        if last and not escaped:
            return step + path[start:at], at + 1
        if last:
            break
        if path[at + 1] == ".":
            if not escaped:
                return step + path[start:at], at + 2
            step += path[start : at - 1] + "`"
            start = at + 1
        at += 1
    raise ConfigInvalid(
        f"Incomplete backtick pair in path: [{path}], consider adding a backslash before backtick at position "
        f"{opened} to escape it"
    )


def field_at(schema: Schema, steps: tuple[str, ...]) -> Field | None:
    """Return the field that a path leads to; None if it does not exist.

    Raises:
        Skippable: a step leads into a value without fields.
    """
    current = schema
    field = None
    for step in steps:
        if current.type is not Type.STRUCT:
            raise Skippable("Cannot look up fields on non-struct type")
        field = current.field(step)
        if field is None:
            return None
        current = field.schema
    return field


def map_value(value: dict[str, Any], steps: tuple[str, ...]) -> Any:
    """Return the value that a path leads to in a schemaless map; None if it does not exist.

    Raises:
        Skippable: a step leads into a value that is not a map.
    """
    current: Any = value
    for step in steps[:-1]:
        current = current.get(step)
        if current is None:
            return None
        if not isinstance(current, dict):
            raise Skippable(
                f"Only Map objects supported in absence of schema for [{_PURPOSE}], found: {class_name(current)}"
            )
    return current.get(steps[-1])
