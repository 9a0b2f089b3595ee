"""The differences between two schemas, field by field, for messages about schemas that a registry refuses. All pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How many differences a message names.
_SHOWN: Final = 10
_MAX_DEPTH: Final = 50
#: How many fields are looked at: types that use each other many times have no end of them.
_MAX_FIELDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class FieldShape:
    """The properties of a field that its compatibility depends on.

    Attributes:
        type: its type as the schema language spells it; for Protobuf with its number.
        safe: whether data without it can be read with the schema, and the other way round: it has a default, or its language
            needs none.
    """

    type: str
    safe: bool = True


Shapes = dict[str, FieldShape]


def find_differences(new: Mapping[str, FieldShape], old: Mapping[str, FieldShape]) -> list[str]:
    """Differences from ``old`` to ``new``, ``field x: ...``; harmless ones only if there are no others. At most ten."""
    serious: list[str] = []
    harmless: list[str] = []
    for path, shape in new.items():
        before = old.get(path)
        if before is None:
            (harmless if shape.safe else serious).append(
                f"field {path}: added ({shape.type})" + ("" if shape.safe else " without a default")
            )
        elif before.type != shape.type:
            serious.append(f"field {path}: type changed from {before.type} to {shape.type}")
        elif before.safe and not shape.safe:
            harmless.append(f"field {path}: its default is gone")
    for path, shape in old.items():
        if path not in new:
            (harmless if shape.safe else serious).append(
                f"field {path}: removed ({shape.type})" + ("" if shape.safe else ", which has no default")
            )
    reported = serious or harmless
    return [*reported[:_SHOWN], f"and {len(reported) - _SHOWN} more"] if len(reported) > _SHOWN else reported


def find_lacking(ours: Mapping[str, FieldShape], theirs: Mapping[str, FieldShape]) -> list[str]:
    """Paths of the fields that ``ours`` has and ``theirs`` lacks; inner fields of a lacking one are not named."""
    paths = [path for path in ours if path not in theirs]
    return [path for path in paths if not any(path.startswith((f"{outer}.", f"{outer}[")) for outer in paths)]


# Avro.


def avro_shapes(schema: Any) -> Shapes:
    """The fields of an Avro schema by path."""
    shapes: Shapes = {}
    _add_avro(schema, "", "", {}, frozenset(), shapes, 0)
    return shapes


def _add_avro(
    schema: Any,
    path: str,
    space: str,
    named: dict[str, tuple[Any, str]],
    within: frozenset[str],
    shapes: Shapes,
    depth: int,
) -> None:
    """Put the fields below ``path`` into ``shapes``.

    Args:
        schema: the schema at ``path``.
        path: the names that lead to it.
        space: its enclosing namespace.
        named: the records met so far, by full name, with their enclosing namespaces.
        within: the records that enclose it: one that contains itself is not followed.
        shapes: receives the fields.
        depth: its nesting depth.
    """
    if depth > _MAX_DEPTH or len(shapes) > _MAX_FIELDS:
        return
    if isinstance(schema, list):
        for branch in schema:
            _add_avro(branch, path, space, named, within, shapes, depth + 1)
    elif isinstance(schema, str):
        full = _full_name(schema, space)
        name = full if full in named else schema
        if name in named and name not in within:
            definition, where = named[name]
            _add_avro(definition, path, where, named, within, shapes, depth + 1)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind == "record":
            name = _full_name(str(schema.get("name")), str(schema.get("namespace") or space))
            named[name] = schema, space
            for member in schema.get("fields", ()):
                member_path = f"{path}.{member['name']}" if path else str(member["name"])
                shapes.setdefault(member_path, FieldShape(_avro_type(member["type"]), "default" in member))
                _add_avro(
                    member["type"], member_path, name.rpartition(".")[0], named, within | {name}, shapes, depth + 1
                )
        elif kind in ("array", "map"):
            _add_avro(
                schema["items" if kind == "array" else "values"], f"{path}[]", space, named, within, shapes, depth + 1
            )
        elif isinstance(kind, dict | list):
            _add_avro(kind, path, space, named, within, shapes, depth + 1)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _avro_type(schema: Any) -> str:
    if isinstance(schema, list):
        return " or ".join(_avro_type(branch) for branch in schema)
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind in ("record", "enum", "fixed"):
            return str(schema.get("name")).rpartition(".")[2]
        if kind == "array":
            return f"array of {_avro_type(schema['items'])}"
        if kind == "map":
            return f"map of {_avro_type(schema['values'])}"
        if isinstance(kind, dict | list):
            return _avro_type(kind)
        logical = schema.get("logicalType")
        size = f"({schema.get('precision')},{schema.get('scale', 0)})" if logical == "decimal" else ""
        return f"{kind} {logical}{size}" if logical else str(kind)
    return str(schema).rpartition(".")[2]  # a type's simple name, as where it is defined


# JSON Schema.


def json_shapes(schema: Any) -> Shapes:
    """The properties of a JSON Schema by path; those behind references to other documents are not known."""
    shapes: Shapes = {}
    _add_json(schema, schema, "", shapes, set(), 0)
    return shapes


def _add_json(schema: Any, root: Any, path: str, shapes: Shapes, followed: set[tuple[str, str]], depth: int) -> None:
    if depth > _MAX_DEPTH or len(shapes) > _MAX_FIELDS or not isinstance(schema, dict):
        return
    reference = str(schema.get("$ref", ""))
    if reference and (path, reference) not in followed:  # a second time it leads to the same fields
        followed.add((path, reference))
        _add_json(_find_referred(root, reference), root, path, shapes, followed, depth + 1)
    for combined in ("oneOf", "anyOf", "allOf"):
        for part in schema.get(combined, ()):
            _add_json(part, root, path, shapes, followed, depth + 1)
    required = schema.get("required", ())
    for name, member in schema.get("properties", {}).items():
        member_path = f"{path}.{name}" if path else str(name)
        shapes.setdefault(member_path, FieldShape(_json_type(member), name not in required))
        _add_json(member, root, member_path, shapes, followed, depth + 1)
    _add_json(schema.get("items"), root, f"{path}[]", shapes, followed, depth + 1)
    _add_json(schema.get("additionalProperties"), root, f"{path}[]", shapes, followed, depth + 1)


def _find_referred(root: Any, reference: str) -> Any:
    """Return the target of a reference into the same document; None for other references, and where the target is missing."""
    if not reference.startswith("#"):
        return None
    node = root
    for step in reference[1:].split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _json_type(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "anything"
    for combined in ("oneOf", "anyOf"):
        if combined in schema:
            return " or ".join(_json_type(part) for part in schema[combined])
    if "$ref" in schema:
        return str(schema["$ref"])
    kind = schema.get("type", "enum" if "enum" in schema else "anything")
    type_name = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)
    return f"array of {_json_type(schema['items'])}" if type_name == "array" and "items" in schema else type_name
