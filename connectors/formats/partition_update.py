"""The partition update: one mutation of one partition, without loss. Its words, and its schema for a table.

The layout, its rules and an example are in PARTITION_UPDATE.md; ``partition_update_codec`` writes and reads it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol
from zlib import crc32

import msgspec

from connectors.cql.types import to_text
from connectors.errors import Fatal
from connectors.formats.cql_schema import CQL_TYPE, cql_schema, typed_schema
from connectors.formats.names import field_name, schema_part
from connectors.schema import (
    BOOLEAN,
    INT64,
    OPTIONAL_BOOLEAN,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    STRING,
    Schema,
    array,
    struct,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.cql.types import CqlType

FORM: Final = "partition-update"
FORM_VERSION: Final = "1"
#: Members of ``UpdateSource`` that are parameters of the message's schema.
CONSTANTS: Final = ("connector", "cluster", "keyspace", "table", "table_id", "schema_version")
#: Parameter of a clustering column's schema: ASC or DESC.
ORDER: Final = "clustering.order"
#: Last parts of the names of structs by which a multicell column is known: one element of a collection, the fields of a UDT.
ELEMENT: Final = "Element"
UDT_FIELDS: Final = "Fields"


class ColumnLike(Protocol):
    """A column of a table."""

    @property
    def name(self) -> str:
        """As it is, without quotes."""

    @property
    def type(self) -> CqlType:
        """Its type."""

    @property
    def kind(self) -> Literal["partition_key", "clustering", "static", "regular"]:
        """Its part in the table."""

    @property
    def position(self) -> int:
        """Place in the partition or clustering key."""

    @property
    def reversed(self) -> bool:
        """Whether its clustering order is DESC."""


class CellStamp(NamedTuple):
    """When something was written (µs), for how long (s), and when it expires (s since 1970)."""

    write_time: int
    ttl: int | None = None
    expires: int | None = None


class UpdateDeletion(NamedTuple):
    """Hides what was written at ``write_time`` (µs) or before; made at ``local_deletion_time`` (s since 1970)."""

    write_time: int
    local_deletion_time: int


class Cell(NamedTuple):
    """One cell.

    Attributes:
        column: the column's name.
        path: None in a simple column; in a multicell one the element's name: of a list the time uuid as text, of a set the
            element, of a map the key, of a UDT the field's name.
        value: the value; None is a tombstone. A cell of a set has True.
        stamp: when it was written.
    """

    column: str
    path: Any
    value: Any
    stamp: CellStamp


class UpdateRow(NamedTuple):
    """The part of a mutation that is about one row; ``clustering`` is empty in the static row."""

    clustering: tuple[Any, ...] = ()
    liveness: CellStamp | None = None
    deletion: UpdateDeletion | None = None
    cells: tuple[Cell, ...] = ()
    complex_deletions: tuple[tuple[str, UpdateDeletion], ...] = ()


class ClusteringBound(NamedTuple):
    """One end of a range: the first clustering values (none: open), and whether rows that begin with them are in it."""

    prefix: tuple[Any, ...] = ()
    inclusive: bool = True


class RangeDeletion(NamedTuple):
    """A deletion of the rows between two bounds, in the table's clustering order."""

    start: ClusteringBound
    end: ClusteringBound
    deletion: UpdateDeletion


class UpdateSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a mutation was read. The first six are the same in all messages of a schema, and stand in its parameters.

    Attributes:
        connector: which wrote it.
        cluster: the name that the configuration gives the cluster.
        keyspace: of the table.
        table: its name.
        table_id: the server's id of it.
        schema_version: of its definition.
        position: where in the source it stood, in the connector's own members (node, segment, offset; stream, time ...).
        read_time: when it was read, ms since 1970.
        snapshot: whether it was read from the table and not from a log of changes.
    """

    connector: str
    cluster: str
    keyspace: str
    table: str
    table_id: str = ""
    schema_version: str = ""
    position: dict[str, Any] | None = None
    read_time: int | None = None
    snapshot: bool = False

    @property
    def schema(self) -> str:
        """The short text by which a message says of what definition of what table it is: equal for equal ones."""
        return f"{crc32(self.table_id.encode()):08x}.{self.schema_version}"


class PartitionUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """One mutation of one partition.

    Attributes:
        source: where it was read.
        key: values of the partition key.
        write_time: µs since 1970; of the mutation as a whole, in the source's words.
        deletion: of the whole partition.
        static: the static row.
        rows: in any order; a row may come several times.
        ranges: deletions of ranges of rows.
    """

    source: UpdateSource
    key: tuple[Any, ...]
    write_time: int
    deletion: UpdateDeletion | None = None
    static: UpdateRow | None = None
    rows: tuple[UpdateRow, ...] = ()
    ranges: tuple[RangeDeletion, ...] = ()


class UpdateLayout:
    """The schema of one table's partition updates, and the columns that it is made of.

    Attributes:
        schema: of the message.
        source: the members of ``source`` that all messages share.
        key: columns of the partition key in order.
        clustering: columns of the clustering key in order.
        static: static columns by name.
        regular: the other columns by name.
    """

    def __init__(self, *, source: UpdateSource, columns: Sequence[ColumnLike], position: Mapping[str, Schema]) -> None:
        """Make it.

        Args:
            source: the members that all messages share.
            columns: of the table.
            position: schemas of the members of ``source.position``; optional ones.

        Raises:
            Fatal: the table has counters, whose changes can't be merged.
        """
        counters = [column.name for column in columns if column.type.name == "counter"]
        if counters:
            raise Fatal(
                f"{source.keyspace}.{source.table} has counters ({', '.join(counters)}): changes of a counter can't be "
                "merged, so it has no partition updates. Choose another output format for it."
            )
        self.source = source
        self.key = sorted(
            (column for column in columns if column.kind == "partition_key"), key=lambda column: column.position
        )
        self.clustering = sorted(
            (column for column in columns if column.kind == "clustering"), key=lambda column: column.position
        )
        self.static = sorted((column for column in columns if column.kind == "static"), key=lambda column: column.name)
        self.regular = sorted(
            (column for column in columns if column.kind == "regular"), key=lambda column: column.name
        )
        self.schema = self._build_schema(position)

    def _build_schema(self, position: Mapping[str, Schema]) -> Schema:
        source = self.source
        base = ".".join(
            map(
                schema_part,
                (
                    source.cluster or source.connector,
                    source.keyspace,
                    source.table,
                    f"t_{source.table_id}",
                    f"v_{source.schema_version}",
                ),
            )
        )
        stamp = struct(
            f"{base}.Stamp", {"write_time": INT64, "ttl": OPTIONAL_INT32, "expires": OPTIONAL_INT64}, optional=True
        )
        deletion = struct(f"{base}.Deletion", {"write_time": INT64, "local_deletion_time": INT64}, optional=True)
        members: dict[str, Schema] = {
            "source": struct(
                f"{base}.Source",
                {
                    "schema": STRING,
                    "snapshot": BOOLEAN,
                    "read_time": OPTIONAL_INT64,
                    "position": struct(f"{base}.Position", position, optional=True),
                },
            ),
            "key": struct(f"{base}.Key", _key_members(self.key, f"{base}.key", optional=False)),
            "write_time": INT64,
            "ttl": OPTIONAL_INT32,
            "expires": OPTIONAL_INT64,
            "deletion": deletion,
        }
        if self.static:
            members["static"] = struct(
                f"{base}.StaticRow",
                {"stamp": stamp, **_cell_members(self.static, f"{base}.static", stamp)},
                optional=True,
            )
        row: dict[str, Schema] = {}
        if self.clustering:
            keys = _key_members(self.clustering, f"{base}.clustering", optional=False)
            row["clustering"] = struct(f"{base}.Clustering", keys)
        row |= {
            "liveness": struct(f"{base}.Liveness", {"stamp": stamp}, optional=True),
            "deletion": deletion,
            "stamp": stamp,
            **_cell_members(self.regular, f"{base}.row", stamp),
        }
        members["rows"] = array(struct(f"{base}.Row", row), optional=True)
        if self.clustering:
            prefix = struct(f"{base}.Prefix", _key_members(self.clustering, f"{base}.prefix", optional=True))
            bound = struct(f"{base}.Bound", {"prefix": prefix, "inclusive": BOOLEAN})
            members["ranges"] = array(
                struct(
                    f"{base}.Range", {"start": bound, "end": bound, "write_time": INT64, "local_deletion_time": INT64}
                ),
                optional=True,
            )
        return struct(
            f"{base}.PartitionUpdate",
            members,
            parameters=(
                ("form", FORM),
                ("form.version", FORM_VERSION),
                *((name, getattr(source, name)) for name in CONSTANTS),
            ),
        )


def _key_members(columns: Sequence[ColumnLike], base: str, *, optional: bool) -> dict[str, Schema]:
    members = {}
    for column in columns:
        field = field_name(column.name)
        schema = typed_schema(column.type, f"{base}.{field}", optional=optional)
        if column.kind == "clustering":
            schema = replace(schema, parameters=(*schema.parameters, (ORDER, "DESC" if column.reversed else "ASC")))
        members[field] = schema
    return members


def _cell_members(columns: Sequence[ColumnLike], base: str, stamp: Schema) -> dict[str, Schema]:
    """The members ``cells``, ``deleted``, ``stamps`` and ``complex_deletions``, as far as ``columns`` need them."""
    if not columns:
        return {}
    simple = [column for column in columns if not column.type.is_multicell]
    cells = {
        field_name(column.name): _multicell_schema(column.type, f"{base}.{field_name(column.name)}", stamp)
        if column.type.is_multicell
        else typed_schema(column.type, f"{base}.{field_name(column.name)}", optional=True)
        for column in columns
    }
    members = {"cells": struct(f"{base}.Cells", cells, optional=True)}
    if simple:
        members["deleted"] = array(STRING, optional=True)
        members["stamps"] = struct(
            f"{base}.Stamps", {field_name(column.name): stamp for column in simple}, optional=True
        )
    if len(simple) < len(columns):
        members["complex_deletions"] = array(
            struct(f"{base}.ComplexDeletion", {"column": STRING, "write_time": INT64, "local_deletion_time": INT64}),
            optional=True,
        )
    return members


def _multicell_schema(kind: CqlType, base: str, stamp: Schema) -> Schema:
    parameters = ((CQL_TYPE, to_text(kind)),)
    if kind.name == "udt":
        names = [field_name(name) for name in kind.field_names]
        fields = {
            name: typed_schema(member, f"{base}.{name}", optional=True)
            for name, member in zip(names, kind.arguments, strict=True)
        }
        return struct(
            f"{base}.{UDT_FIELDS}",
            {
                "fields": struct(f"{base}.Values", fields),
                "deleted": array(STRING, optional=True),
                "stamps": struct(f"{base}.Stamps", dict.fromkeys(names, stamp), optional=True),
            },
            optional=True,
            parameters=parameters,
        )
    path = STRING if kind.name == "list" else cql_schema(kind.arguments[0], f"{base}.path", optional=False)
    value = {"set": OPTIONAL_BOOLEAN}.get(kind.name) or cql_schema(kind.arguments[-1], f"{base}.value", optional=True)
    return replace(
        array(struct(f"{base}.{ELEMENT}", {"path": path, "value": value, "stamp": stamp}), optional=True),
        parameters=parameters,
    )
