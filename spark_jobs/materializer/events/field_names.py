"""Names of the fields of user-defined types: a type's fields may be renamed, and values of the state keep the earlier names.

Fields are never removed or moved, so that a value's members, which are in the order of the fields, say what they are.
"""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from connectors.cql.encoding import make_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.cql.types import CqlType
    from spark_jobs.materializer.engine.model import StateColumn
    from spark_jobs.materializer.events.forms import EventCodec, TableShape

    Change = Callable[[Any], Any]


def field_key(position: int) -> bytes:
    """The name of a field of a UDT that is not frozen among its cells in the state."""
    return position.to_bytes(2, "big")


def make_field_namer(kind: CqlType | None) -> Change | None:
    """Return the function that gives the fields of UDTs in a value the names that ``kind`` has; None where it has no UDT."""
    if kind is None:
        return None
    changes = [make_field_namer(member) for member in kind.arguments]
    if kind.name == "udt":
        return _name_members(kind.field_names, changes)
    if not any(changes):
        return None
    if kind.name == "tuple":
        return _name_members([f"field_{index}" for index in range(len(changes))], changes)
    if kind.name == "map":
        key, item = changes
        return lambda entries: (
            entries and [{"key": _apply(key, entry["key"]), "value": _apply(item, entry["value"])} for entry in entries]
        )
    return lambda items: items and [_apply(changes[0], item) for item in items]


def _name_members(names: Sequence[str], changes: Sequence[Change | None]) -> Change:
    members = list(zip(names, changes, strict=True))
    # What a type got later is null in values from before.
    return lambda value: (
        value
        and {
            name: _apply(change, part)
            for (name, change), part in zip(members, chain(value.values(), repeat(None)), strict=False)
        }
    )


def _apply(change: Change | None, value: Any) -> Any:
    return value if change is None else change(value)


def make_serializer(kind: CqlType) -> Callable[[Any], bytes]:
    """As ``make_encoder``, of values of the state."""
    encode, change = make_encoder(kind), make_field_namer(kind)
    return encode if change is None else lambda value: encode(change(value))


def make_row_namer(columns: Sequence[StateColumn]) -> Callable[[Sequence[Any]], Sequence[Any]] | None:
    """As ``make_field_namer``, of the values of ``columns``."""
    changes = [
        (index, change) for index, column in enumerate(columns) if (change := make_field_namer(column.type)) is not None
    ]
    if not changes:
        return None

    def name_fields(values: Sequence[Any]) -> list[Any]:
        named = list(values)
        for index, change in changes:
            named[index] = change(named[index])
        return named

    return name_fields


class NamedFieldsCodec:
    """An ``EventCodec`` that gets values of the state, around one that wants the names of its table's version."""

    def __init__(self, inner: EventCodec, shape: TableShape) -> None:
        self._inner = inner
        self._name_key = make_row_namer(shape.keys)
        self._name_image = make_row_namer(shape.columns)
        self.event = inner.event

    def key(self, values: Sequence[Any]) -> bytes:
        """See ``EventCodec``."""
        return self._inner.key(values if self._name_key is None else self._name_key(values))

    def image(self, values: Sequence[Any]) -> bytes:
        """See ``EventCodec``."""
        return self._inner.image(values if self._name_image is None else self._name_image(values))
