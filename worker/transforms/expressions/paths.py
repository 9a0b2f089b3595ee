"""The parts of a record that an expression names, fetched without touching the rest of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.schema import Schema, Type
from worker.transforms.base import SchemaCache
from worker.transforms.expressions.syntax import CallNode, ItemNode, Literal, MemberNode, NameNode, SyntaxNode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from connectors.api import SourceRecord

#: The variables of an expression.
VARIABLES: Final = ("value", "key", "valueSchema", "keySchema", "topic", "header", "headers")

_ABSENT: Final = object()


class Unresolved(Exception):
    """The record has nothing at that path; the message says why."""


class PathMatch(NamedTuple):
    """The value at a path, and its schema if it has one."""

    value: Any
    schema: Schema | None


class PathStep(NamedTuple):
    """One name of a path. A safe step from a null gives null."""

    name: str
    safe: bool


@dataclass(frozen=True, slots=True)
class Path:
    """A variable and the names behind it."""

    root: str
    steps: tuple[PathStep, ...]

    def __str__(self) -> str:
        """The path as a user writes it."""
        return self.root + "".join(f"{'?' if safe else ''}.{name}" for name, safe in self.steps)


def path_of(node: SyntaxNode, bound: Collection[str] = ()) -> Path | None:
    """The path that a part of an expression is; None if it is something else.

    Args:
        node: the part.
        bound: names that macros gave to something else.
    """
    steps: list[PathStep] = []
    while True:
        match node:
            case NameNode(name=name):
                return Path(name, tuple(reversed(steps))) if name in VARIABLES and name not in bound else None
            case MemberNode(of=of, name=name, safe=safe):
                steps.append(PathStep(name, safe))
                node = of
            case ItemNode(of=of, index=Literal(value=str() as name)):
                steps.append(PathStep(name, safe=False))
                node = of
            case CallNode(of=SyntaxNode() as of, name="get", arguments=(Literal(value=str() as name),), safe=safe):
                steps.append(PathStep(name, safe))
                node = of
            case _:
                return None


class Walk(NamedTuple):
    """How values of one schema are gone through: a name, its default and whether it is safe, for each step.

    Attributes:
        steps: those whose schema is known.
        schema: the schema at their end.
        error: why there is nothing at the next step, for any value.
        rest: steps behind, in data without a schema.
    """

    steps: tuple[tuple[str, Any, bool], ...]
    schema: Schema | None
    error: str
    rest: tuple[PathStep, ...]


def make_resolver(path: Path, *, lenient: bool = False) -> Callable[[SourceRecord], PathMatch]:
    """Return a function that returns the value at the path in a record, or raises ``Unresolved``.

    A null in a field that has a default counts as the default, as in Debezium.

    Args:
        path: the path of the value.
        lenient: whether a name that a map does not have gives null, as in Groovy.
    """
    walks: SchemaCache[Walk] = SchemaCache(partial(walk_of, steps=path.steps))
    root = path.root

    def value(record: SourceRecord) -> PathMatch:
        return _follow_path(path, record.value, walks.get(record.value_schema), lenient=lenient)

    def key(record: SourceRecord) -> PathMatch:
        return _follow_path(path, record.key, walks.get(record.key_schema), lenient=lenient)

    def topic(record: SourceRecord) -> PathMatch:
        if path.steps:
            raise Unresolved(f"topic is a string: it has no {path.steps[0].name}")
        return PathMatch(record.topic, None)

    def schema(record: SourceRecord) -> PathMatch:
        described = describe_schema(record.value_schema if root == "valueSchema" else record.key_schema)
        return _follow_path(path, described, Walk((), None, "", path.steps), lenient=lenient)

    def headers(record: SourceRecord) -> PathMatch:
        listed = [{"key": header.key, "value": PathMatch(header.value, header.schema)} for header in record.headers]
        if path.steps:
            name = path.steps[0].name
            raise Unresolved(f"headers is a list: it has no {name}; header.{name}.value is the value of a header")
        return PathMatch(listed, None)

    if root == "header":
        return partial(_read_header, path, lenient=lenient)
    return {"value": value, "key": key, "topic": topic, "valueSchema": schema, "keySchema": schema, "headers": headers}[
        root
    ]


def _read_header(path: Path, record: SourceRecord, *, lenient: bool) -> PathMatch:
    """``header.NAME.value`` and ``header.NAME.schema`` of the last header of a name."""
    if not path.steps:
        return PathMatch(
            {
                header.key: {"value": PathMatch(header.value, header.schema), "schema": describe_schema(header.schema)}
                for header in record.headers
            },
            None,
        )
    name, *steps = path.steps
    header = next((candidate for candidate in reversed(record.headers) if candidate.key == name.name), None)
    if header is None:
        if lenient or not steps:
            return (
                _follow_path(path, None, Walk((), None, "", tuple(steps)), lenient=lenient)
                if lenient
                else _no_header(name.name)
            )
        _no_header(name.name)
    assert header is not None  # noqa: S101 - refused above
    if not steps:
        return PathMatch(
            {"value": PathMatch(header.value, header.schema), "schema": describe_schema(header.schema)}, None
        )
    part, *remaining = steps
    if part.name == "value":
        return _follow_path(path, header.value, walk_of(header.schema, steps=tuple(remaining)), lenient=lenient)
    if part.name == "schema":
        return _follow_path(path, describe_schema(header.schema), Walk((), None, "", tuple(remaining)), lenient=lenient)
    raise Unresolved(f"a header has value and schema, and no {part.name}")


def _no_header(name: str) -> PathMatch:
    raise Unresolved(f"the record has no header {name!r}")


def walk_of(schema: Schema | None, *, steps: tuple[PathStep, ...]) -> Walk:
    """How values of a schema are gone through; see ``Walk``."""
    walk_steps: list[tuple[str, Any, bool]] = []
    for index, (name, safe) in enumerate(steps):
        if schema is None:
            return Walk(tuple(walk_steps), None, "", steps[index:])
        if schema.type is Type.MAP:
            # Keys are looked up when there is a value.
            return Walk(tuple(walk_steps), schema, "", steps[index:])
        field = schema.field(name) if schema.type is Type.STRUCT else None
        if field is None:
            kind = (
                f"the struct has no field {name!r}"
                if schema.type is Type.STRUCT
                else (f"a value of type {schema.type.name} has no field {name!r}")
            )
            return Walk(tuple(walk_steps), schema, kind, steps[index:])
        walk_steps.append((name, field.schema.default, safe))
        schema = field.schema
    return Walk(tuple(walk_steps), schema, "", ())


def _follow_path(path: Path, value: Any, walk: Walk, *, lenient: bool) -> PathMatch:
    for name, default, safe in walk.steps:
        if value is None:
            if safe:
                continue
            raise Unresolved(f"{_path_before(path, name)} is null, so it has no {name!r}")
        value = value.get(name)
        if value is None:
            value = default
    schema = walk.schema
    for index, (name, safe) in enumerate(walk.rest):
        if value is None:
            if safe:
                continue
            raise Unresolved(f"{_path_before(path, name)} is null, so it has no {name!r}")
        if walk.error:
            raise Unresolved(f"{path}: {walk.error}")
        if schema is not None and schema.type is Type.STRUCT:
            return _follow_path(path, value, walk_of(schema, steps=walk.rest[index:]), lenient=lenient)
        if not isinstance(value, dict):
            raise Unresolved(f"{path}: there is no map or struct to take {name!r} from")
        value = value.get(name, _ABSENT)
        if value is _ABSENT:
            if not lenient:
                raise Unresolved(f"{path}: the map has no key {name!r}")
            value = None
        schema = schema.value_schema if schema is not None else None
    return PathMatch(value, schema)


def _path_before(path: Path, name: str) -> str:
    """The path up to a step."""
    step_index = next((index for index, step in enumerate(path.steps) if step.name == name), 0)
    return str(Path(path.root, path.steps[:step_index]))


def describe_schema(schema: Schema | None) -> dict[str, Any] | None:
    """Return a schema as expressions see it; None for None."""
    if schema is None:
        return None
    return {
        "name": schema.name,
        "type": schema.type.name,
        "version": schema.version,
        "doc": schema.doc,
        "optional": schema.optional,
        "parameters": dict(schema.parameters),
        "fields": [field.name for field in schema.fields],
    }
