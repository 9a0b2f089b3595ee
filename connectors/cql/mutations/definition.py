"""A table's definition, as a reader of serialized mutations needs it: bytes carry names of columns, never types."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from connectors.cql.types import CqlType, to_text
from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = Literal["partition_key", "clustering", "static", "regular"]
_KIND_ORDER: Final = {"partition_key": 0, "clustering": 1, "static": 2, "regular": 3}


@dataclass(frozen=True, slots=True)
class CqlColumn:
    """A column; meets ``connectors.formats.partition_update.ColumnLike``.

    Attributes:
        name: as it is, without quotes.
        type: with the fields of its UDTs filled in.
        kind: its part in the table.
        position: place in the partition or clustering key, else -1.
        reversed: whether the clustering order is DESC.
    """

    name: str
    type: CqlType
    kind: Kind
    position: int = -1
    reversed: bool = False


@dataclass(frozen=True, slots=True)
class DroppedColumn:
    """A column that was dropped; its cells with a write time up to ``dropped_us`` are hidden, also under a re-added name.

    Attributes:
        name: as it was.
        type: as it was; the server has made tuples of UDTs in it.
        kind: static or regular.
        dropped_us: when, µs since 1970.
    """

    name: str
    type: CqlType
    kind: Kind
    dropped_us: int


# Not slots: cached properties.
@dataclass(frozen=True)
class CqlTableDefinition:
    """A table as it is defined at one time. Later definitions of one table id read older bytes too.

    Attributes:
        keyspace: its keyspace.
        table: its name.
        table_id: the server's id of it, as canonical text; another one after DROP and CREATE.
        columns: partition key, clustering key, static by name, regular by name.
        dropped: columns that are gone, or were and are there again.
        cdc: whether changes are captured (``cdc = true``).
        compact: whether ``COMPACT STORAGE`` makes statements show other columns than these, which the log has.
    """

    keyspace: str
    table: str
    table_id: str
    columns: tuple[CqlColumn, ...]
    dropped: tuple[DroppedColumn, ...] = ()
    cdc: bool = False
    compact: bool = False

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.table}"

    def __hash__(self) -> int:
        # Definitions are keys of caches that are asked for each mutation: a hash of all columns would cost more than that.
        return hash((self.table_id, len(self.columns), len(self.dropped)))

    @cached_property
    def key(self) -> tuple[CqlColumn, ...]:
        """Columns of the partition key in order."""
        return tuple(column for column in self.columns if column.kind == "partition_key")

    @cached_property
    def clustering(self) -> tuple[CqlColumn, ...]:
        """Columns of the clustering key in order."""
        return tuple(column for column in self.columns if column.kind == "clustering")

    @cached_property
    def static(self) -> tuple[CqlColumn, ...]:
        """Static columns by name."""
        return tuple(column for column in self.columns if column.kind == "static")

    @cached_property
    def regular(self) -> tuple[CqlColumn, ...]:
        """The other columns by name."""
        return tuple(column for column in self.columns if column.kind == "regular")

    @cached_property
    def has_counters(self) -> bool:
        """Whether it is a table of counters, whose changes can't be merged."""
        return any(column.type.name == "counter" for column in self.columns)

    @cached_property
    def refusal(self) -> str:
        """Why its changes can't be captured; empty: they can."""
        if self.has_counters:
            return "changes of counters can't be merged"
        # Only COMPACT STORAGE makes columns of the type empty, and they stay when it is dropped.
        if self.compact or any(column.type.name == "empty" for column in self.columns):
            return "COMPACT STORAGE keeps its rows in columns that statements don't show"
        return ""

    @cached_property
    def version(self) -> str:
        """A short text that is equal for equal columns: names, types, kinds, order; ``cdc`` does not count.

        A column that was dropped and added again is another one than before; other dropped columns do not count.
        """
        parts: list[tuple[Any, ...]] = [
            (column.name, to_text(column.type), column.kind, column.position, column.reversed, _field_tree(column.type))
            for column in self.columns
        ]
        names = {column.name for column in self.columns}
        parts += [(column.name, column.dropped_us) for column in self.dropped if column.name in names]
        return hashlib.blake2b(repr(parts).encode(), digest_size=4).hexdigest()

    def text(self) -> str:
        """The definition as JSON; ``parse_definition`` reads it."""
        return msgspec.json.encode(
            _Stored(
                self.keyspace,
                self.table,
                self.table_id,
                self.cdc,
                [
                    _StoredColumn(
                        column.name, _type_to_dict(column.type), column.kind, column.position, column.reversed
                    )
                    for column in self.columns
                ],
                [
                    _StoredDropped(column.name, _type_to_dict(column.type), column.kind, column.dropped_us)
                    for column in self.dropped
                ],
                self.compact,
            )
        ).decode()


def make_definition(
    keyspace: str,
    table: str,
    table_id: str,
    columns: Iterable[CqlColumn],
    *,
    dropped: Iterable[DroppedColumn] = (),
    cdc: bool = False,
    compact: bool = False,
) -> CqlTableDefinition:
    """A definition with its columns put in order."""
    ordered = sorted(columns, key=lambda column: (_KIND_ORDER[column.kind], column.position, column.name))
    return CqlTableDefinition(
        keyspace,
        table,
        table_id,
        tuple(ordered),
        tuple(sorted(dropped, key=lambda dropped_column: dropped_column.name)),
        cdc,
        compact,
    )


def parse_definition(definition_json: str) -> CqlTableDefinition:
    """The inverse of ``CqlTableDefinition.text``.

    Raises:
        Fatal: it is not a table's definition; the message says why.
    """
    try:
        stored = msgspec.json.decode(definition_json, type=_Stored)
    except msgspec.MsgspecError as error:
        raise Fatal(f"The saved definition of a table can't be read: {error}: {definition_json[:200]}") from None
    return make_definition(
        stored.keyspace,
        stored.table,
        stored.table_id,
        [
            CqlColumn(column.name, _dict_to_type(column.type), column.kind, column.position, column.reversed)
            for column in stored.columns
        ],
        dropped=[
            DroppedColumn(column.name, _dict_to_type(column.type), column.kind, column.dropped_us)
            for column in stored.dropped
        ],
        cdc=stored.cdc,
        compact=stored.compact,
    )


class _StoredColumn(msgspec.Struct, array_like=True):
    name: str
    type: dict[str, Any]
    kind: Kind
    position: int
    reversed: bool


class _StoredDropped(msgspec.Struct, array_like=True):
    name: str
    type: dict[str, Any]
    kind: Kind
    dropped_us: int


class _Stored(msgspec.Struct, omit_defaults=True):
    keyspace: str
    table: str
    table_id: str
    cdc: bool
    columns: list[_StoredColumn]
    dropped: list[_StoredDropped]
    compact: bool = False


def _field_tree(kind: CqlType) -> tuple[Any, ...]:
    return (kind.field_names, tuple(_field_tree(argument) for argument in kind.arguments))


def _type_to_dict(kind: CqlType) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.to_builtins(kind)
    return {name: value for name, value in members.items() if value not in (None, "", (), [], 0, False)} | (
        {"arguments": [_type_to_dict(argument) for argument in kind.arguments]} if kind.arguments else {}
    )


def _dict_to_type(value: dict[str, Any]) -> CqlType:
    return msgspec.convert(value, CqlType)
