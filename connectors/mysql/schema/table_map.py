"""TABLE_MAP events: a table's structure as the binlog tells it, completed from the catalog. Pure.

With ``binlog_row_metadata=FULL`` names, signs, charsets, members and the primary key are in the event; the catalog only adds
what the event can't hold (declared types, defaults, comments). Without it, names come from the catalog, and only where all
types agree.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from connectors.errors import Fatal
from connectors.mysql.model import MySqlColumn, MySqlTable, TableName
from connectors.mysql.rows.charsets import charset_of, make_decoder
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema.catalog_types import column_from_catalog
from connectors.mysql.schema.types import ColumnKind, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Mismatch", "TableMap", "column_from_catalog", "complete_altered", "complete_table", "parse_table_map"]

_SIGNS: Final = 1
_CHARSET: Final = 2
_CHARSETS: Final = 3
_NAMES: Final = 4
_SET_MEMBERS: Final = 5
_ENUM_MEMBERS: Final = 6
_GEOMETRIES: Final = 7
_KEY: Final = 8
_KEY_WITH_PREFIX: Final = 9
_MEMBERS_CHARSET: Final = 10
_MEMBERS_CHARSETS: Final = 11
_VISIBILITY: Final = 12
#: Bytes of metadata by type code; others have none.
_META_SIZES: Final[dict[int, int]] = {
    codes.FLOAT: 1,
    codes.DOUBLE: 1,
    codes.TINY_BLOB: 1,
    codes.MEDIUM_BLOB: 1,
    codes.LONG_BLOB: 1,
    codes.BLOB: 1,
    codes.JSON: 1,
    codes.GEOMETRY: 1,
    codes.VECTOR: 1,
    codes.BLOB_COMPRESSED: 1,
    codes.TIMESTAMP2: 1,
    codes.DATETIME2: 1,
    codes.TIME2: 1,
    codes.VARCHAR: 2,
    codes.VAR_STRING: 2,
    codes.VARCHAR_COMPRESSED: 2,
    codes.BIT: 2,
    codes.DECIMAL: 2,
    codes.STRING: 2,
    codes.ENUM: 2,
    codes.SET: 2,
}
_KEPT_META: Final = frozenset(_META_SIZES) - {codes.FLOAT, codes.DOUBLE}
_TYPED_ARRAY: Final = 20
_U16: Final = struct.Struct("<H").unpack_from


class Mismatch(Exception):
    """The catalog's structure is not the one of the event; the text says where they differ."""


class TableMap(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a TABLE_MAP event.

    Attributes:
        table_id: the number that rows events refer to; valid until the server says otherwise.
        name: the table.
        columns: in order; without FULL their names are "" and signs, charsets and members unknown.
        key: names of the primary key's columns, () for none; None: the event doesn't say.
        full: whether the event names its columns.
        fingerprint: the same for events of the same table and structure.
    """

    table_id: int
    name: TableName
    columns: tuple[MySqlColumn, ...]
    key: tuple[str, ...] | None
    full: bool
    fingerprint: bytes


def parse_table_map(body: bytes) -> TableMap:
    """Read a TABLE_MAP event.

    Args:
        body: the event without its header of 19 bytes and without checksum.

    Raises:
        Fatal: the bytes are cut off, or a column has a type that can't be read.
    """
    try:
        return _parse_body(body)
    except (IndexError, struct.error, KeyError, UnicodeDecodeError) as error:
        raise Fatal(
            f"a TABLE_MAP event of {len(body)} bytes can't be read ({error!r}): {body[:64].hex()}..."
        ) from error


class _TableMapReader:
    """Reads numbers and strings one after the other."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """A length-encoded number."""
        first = self.byte()
        if first < 251:
            return first
        return int.from_bytes(self.take({252: 2, 253: 3, 254: 8}[first]), "little")

    def take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        if len(part) != size:
            raise IndexError(f"{size} bytes are wanted and {len(part)} left")
        self.at += size
        return part

    def text(self) -> bytes:
        """A string with its length before it."""
        return self.take(self.number())

    @property
    def more(self) -> bool:
        return self.at < len(self.data)


def _parse_body(body: bytes) -> TableMap:
    reader = _TableMapReader(body)
    table_id = int.from_bytes(reader.take(6), "little")
    reader.take(2)
    names = []
    for _ in range(2):
        names.append(reader.text().decode("utf-8"))
        reader.byte()
    name = TableName(*names)
    count = reader.number()
    types = reader.take(count)
    metas = _TableMapReader(reader.text())
    physical = [_physical_type(name, code, metas) for code in types]
    nulls = int.from_bytes(reader.take((count + 7) // 8), "little")
    extra: dict[int, bytes] = {}
    while reader.more:
        number = reader.byte()
        extra[number] = reader.text()
    columns = _make_columns(physical, nulls, extra)
    key: tuple[str, ...] | None = None
    if _NAMES in extra:
        key = tuple(columns[column_index].name for column_index in _key_columns(extra))
    return TableMap(
        table_id=table_id,
        name=name,
        columns=columns,
        key=key,
        full=_NAMES in extra,
        fingerprint=blake2b(body[8:], digest_size=16).digest(),
    )


def _physical_type(name: TableName, code: int, metas: _TableMapReader) -> tuple[int, int]:
    """Type code and ``MySqlColumn.meta`` of a column."""
    if code == _TYPED_ARRAY:
        raise Fatal(f"{name} has a column of type array, which can't be read from the binlog")
    size = _META_SIZES.get(code, 0)
    raw = metas.take(size)
    if code == codes.STRING:
        # The upper byte is the real type, with the length's bits 8 and 9 folded in upside down.
        real, length = raw
        if real & 0x30 != 0x30:
            length |= ((real & 0x30) ^ 0x30) << 4
            real |= 0x30
        return (real or codes.STRING), length
    if code == codes.BIT:
        return code, raw[0] + 8 * raw[1]
    if code == codes.DECIMAL:
        return code, raw[0] << 8 | raw[1]
    if code in (codes.ENUM, codes.SET):
        return code, raw[1]
    if code in _KEPT_META:
        return code, _U16(raw)[0] if size == 2 else raw[0]
    return code, 0


def _key_columns(extra: dict[int, bytes]) -> list[int]:
    """Places of the primary key's columns."""
    reader = _TableMapReader(extra.get(_KEY) or extra.get(_KEY_WITH_PREFIX) or b"")
    indexes: list[int] = []
    while reader.more:
        indexes.append(reader.number())
        if _KEY not in extra:
            reader.number()
    return indexes


def _make_columns(physical: Sequence[tuple[int, int]], nulls: int, extra: dict[int, bytes]) -> tuple[MySqlColumn, ...]:
    """The columns, from what the event says at several places."""
    names = _read_strings(extra.get(_NAMES, b""))
    signs = _bit_reader(extra.get(_SIGNS, b""))
    shown = _bit_reader(extra.get(_VISIBILITY, b""))
    # MySQL tells a collation of vectors too, MariaDB of geometries; MySQL alone tells visibility, and always (from 8.0.23 on).
    listed = codes.STRINGS | {codes.VECTOR if _VISIBILITY in extra else codes.GEOMETRY}
    string_indexes = [index for index, (code, _) in enumerate(physical) if code in listed]
    members = [index for index, (code, _) in enumerate(physical) if code in (codes.ENUM, codes.SET)]
    collations = _read_collations(string_indexes, extra.get(_CHARSET), extra.get(_CHARSETS)) | _read_collations(
        members, extra.get(_MEMBERS_CHARSET), extra.get(_MEMBERS_CHARSETS)
    )
    sets, enums = iter(_read_members(extra.get(_SET_MEMBERS, b""))), iter(_read_members(extra.get(_ENUM_MEMBERS, b"")))
    shapes = _TableMapReader(extra.get(_GEOMETRIES, b""))
    numbers = [index for index, (code, _) in enumerate(physical) if code in codes.NUMBERS]
    unsigned = {index for bit, index in enumerate(numbers) if signs(bit)}
    columns = []
    for index, (code, meta) in enumerate(physical):
        collation = None if code in (codes.GEOMETRY, codes.VECTOR) else collations.get(index)
        raw = next(sets, ()) if code == codes.SET else next(enums, ()) if code == codes.ENUM else ()
        decode = make_decoder(charset_of(collation).name if collation is not None else "utf8mb4")
        columns.append(
            MySqlColumn(
                name=names[index] if names else "",
                type=code,
                meta=meta,
                nullable=bool(nulls >> index & 1),
                unsigned=index in unsigned and code != codes.YEAR,
                collation=collation,
                members=tuple(map(decode, raw)),
                geometry=shapes.number() if code == codes.GEOMETRY and shapes.more else None,
                visible=shown(index) if _VISIBILITY in extra else True,
            )
        )
    return tuple(columns)


def _bit_reader(data: bytes) -> Callable[[int], bool]:
    """A function that tells a bit, the first one being the highest of the first byte."""

    def bit(number: int) -> bool:
        return number >> 3 < len(data) and bool(data[number >> 3] & 0x80 >> (number & 7))

    return bit


def _read_strings(data: bytes) -> list[str]:
    reader = _TableMapReader(data)
    strings = []
    while reader.more:
        strings.append(reader.text().decode("utf-8"))
    return strings


def _read_members(data: bytes) -> list[tuple[bytes, ...]]:
    """The members of each ENUM or SET."""
    reader = _TableMapReader(data)
    member_lists = []
    while reader.more:
        member_lists.append(tuple(reader.text() for _ in range(reader.number())))
    return member_lists


def _read_collations(indexes: Sequence[int], default: bytes | None, single_collations: bytes | None) -> dict[int, int]:
    """Collations by column: a default with exceptions, or one per column."""
    if single_collations is not None:
        reader = _TableMapReader(single_collations)
        return {index: reader.number() for index in indexes}
    if default is None:
        return {}
    reader = _TableMapReader(default)
    common = reader.number()
    collations = dict.fromkeys(indexes, common)
    while reader.more:
        number = reader.number()
        collations[indexes[number]] = reader.number()
    return collations


def complete_table(table_map: TableMap, definition: MySqlTable | None) -> MySqlTable:
    """The table, with what only the catalog knows.

    Args:
        table_map: what the event says.
        definition: what the catalog says now; None: nothing.

    Raises:
        Mismatch: the catalog describes another structure; or it says nothing and the event doesn't name its columns.
    """
    if definition is None:
        if not table_map.full:
            raise Mismatch("the event does not name its columns, and the catalog does not have the table")
        return MySqlTable(name=table_map.name, columns=table_map.columns, key=table_map.key or ())
    catalog_columns, met = definition.columns, table_map.columns
    if len(catalog_columns) != len(met):
        raise Mismatch(f"the event has {len(met)} columns, the catalog {len(catalog_columns)}")
    columns = []
    for index, (mine, theirs) in enumerate(zip(met, catalog_columns, strict=True)):
        if table_map.full and mine.name != theirs.name:
            raise Mismatch(f"column {index + 1} is called {mine.name} in the event, {theirs.name} in the catalog")
        if not _can_match(mine, theirs, full=table_map.full):
            raise Mismatch(
                f"column {theirs.name} is {_describe_column(mine)} in the event, "
                f"{theirs.declared or _describe_column(theirs)} in the catalog"
            )
        columns.append(_join_columns(mine, theirs, full=table_map.full))
    key, primary = table_map.key, True
    if key is None or (not key and not definition.primary):
        # An event tells each primary key, but not all unique indexes. A primary key that it lacks was made later.
        key, primary = definition.key, definition.primary
    return MySqlTable(name=table_map.name, columns=tuple(columns), key=key, completed=True, primary=primary)


def complete_altered(table_map: TableMap, definition: MySqlTable | None) -> MySqlTable:
    """The table of an event that names its columns, where the catalog has another structure, or no such table.

    A column that the catalog has under the same name and with the same storage counts as the same one: only the catalog
    tells a UUID from other bytes.
    """
    alike = {column.name: column for column in definition.columns} if definition is not None else {}
    columns = [
        _join_columns(mine, theirs, full=True)
        if (theirs := alike.get(mine.name)) is not None and _can_match(mine, theirs, full=True)
        else mine
        for mine in table_map.columns
    ]
    return MySqlTable(name=table_map.name, columns=tuple(columns), key=table_map.key or ())


#: Types from before MySQL 5.6, by the present ones; and those with the attribute COMPRESSED.
_SAME: Final = {
    codes.TIMESTAMP: codes.TIMESTAMP2,
    codes.DATETIME: codes.DATETIME2,
    codes.TIME: codes.TIME2,
    codes.NEWDATE: codes.DATE,
    codes.VAR_STRING: codes.VARCHAR,
    codes.BLOB_COMPRESSED: codes.BLOB,
    codes.VARCHAR_COMPRESSED: codes.VARCHAR,
}
_SHORT: Final = 255
#: Bytes of the types that are strings of bytes in an event.
_ADDRESS_BYTES: Final = {ColumnKind.UUID: 16, ColumnKind.INET4: 4, ColumnKind.INET6: 16}


def _can_match(mine: MySqlColumn, theirs: MySqlColumn, *, full: bool) -> bool:
    """Whether two descriptions can be of the same column."""
    if kind_of(theirs) is ColumnKind.VECTOR and mine.type in (codes.VARCHAR, codes.VECTOR):
        return mine.nullable == theirs.nullable
    code = _SAME.get(mine.type, mine.type)
    if code != _SAME.get(theirs.type, theirs.type) or mine.nullable != theirs.nullable:
        return False
    if full and (mine.unsigned != theirs.unsigned or not _same_members(mine.members, theirs.members)):
        return False
    if mine.type in (codes.TIMESTAMP, codes.DATETIME, codes.TIME):
        return True
    if (size := _ADDRESS_BYTES.get(kind_of(theirs))) is not None:
        return mine.meta == size
    if full and code in (codes.VARCHAR, codes.STRING):
        # The catalog may have been asked after the charset was changed; only the length prefix matters then.
        return (mine.meta > _SHORT) == (theirs.meta > _SHORT)
    if mine.type in (codes.VARCHAR_COMPRESSED, codes.BLOB_COMPRESSED):
        return True
    return mine.meta == theirs.meta


def _same_members(mine: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """The catalog writes a question mark for what its own charset lacks."""
    return len(mine) == len(theirs) and all(
        event_member == catalog_member or ("?" in catalog_member and len(event_member) == len(catalog_member))
        for event_member, catalog_member in zip(mine, theirs, strict=True)
    )


def _join_columns(mine: MySqlColumn, theirs: MySqlColumn, *, full: bool) -> MySqlColumn:
    """One column from both descriptions: its storage is the event's."""
    if not full:
        return msgspec.structs.replace(theirs, type=mine.type, meta=mine.meta, nullable=mine.nullable)
    return msgspec.structs.replace(
        mine,
        declared=theirs.declared,
        default=theirs.default,
        comment=theirs.comment,
        extra=theirs.extra,
        visible=theirs.visible,
        geometry=theirs.geometry if mine.geometry is None else mine.geometry,
        collation=theirs.collation if mine.collation is None else mine.collation,
        members=mine.members or theirs.members,
    )


def _describe_column(column: MySqlColumn) -> str:
    null = "" if column.nullable else " NOT NULL"
    return f"{codes.type_name(column.type)} ({column.meta}){' UNSIGNED' if column.unsigned else ''}{null}"
