"""TABLE_MAP events of both servers, made here."""

from __future__ import annotations

from struct import pack

import msgspec
import pytest

from connectors.errors import Fatal
from connectors.mysql.model import MySqlColumn, MySqlTable, TableName
from connectors.mysql.schema import table_map
from connectors.mysql.schema import type_codes as codes


def extra(number: int, data: bytes) -> bytes:
    return bytes([number, len(data)]) + data


def body(columns: list[tuple[int, bytes]], nulls: int, *extras: bytes, number: int = 7) -> bytes:
    """The event of the table ``d.t`` with these type codes and metadata."""
    metas = b"".join(meta for _, meta in columns)
    return (
        number.to_bytes(6, "little")
        + b"\x01\0"
        + b"\x01d\0\x01t\0"
        + bytes([len(columns)])
        + bytes(code for code, _ in columns)
        + bytes([len(metas)])
        + metas
        + nulls.to_bytes((len(columns) + 7) // 8, "little")
        + b"".join(extras)
    )


def names(*column_names: str) -> bytes:
    return extra(4, b"".join(bytes([len(text.encode())]) + text.encode() for text in column_names))


#: BIGINT UNSIGNED, VARCHAR, GEOMETRY, YEAR, INT, CHAR(255) of 4 bytes each, ENUM, DECIMAL, BIT(9), BLOB
COLUMNS = [
    (codes.LONGLONG, b""),
    (codes.VARCHAR, pack("<H", 400)),
    (codes.GEOMETRY, b"\x04"),
    (codes.YEAR, b""),
    (codes.LONG, b""),
    (codes.STRING, bytes([0xFE ^ 0x30, 1020 & 0xFF])),
    (codes.STRING, b"\xf7\x01"),
    (codes.DECIMAL, b"\x0a\x02"),
    (codes.BIT, b"\x01\x01"),
    (codes.BLOB, b"\x02"),
]
NAMES = names("id", "näme", "g", "y", "n", "c", "e", "d", "b", "l")
#: id unsigned, y unsigned (as servers have it), n signed, d unsigned.
SIGNS = extra(1, b"\xd0")
MEMBERS = extra(6, b"\x02\x01a\x02\xc3\xa4")


def test_mysql_with_full_metadata() -> None:
    # Collations of the text columns without the geometry: utf8mb4, latin1 for the second (c), binary for the third.
    met = table_map.parse_table_map(
        body(
            COLUMNS,
            0b1111111110,
            SIGNS,
            extra(2, b"\x2d\x01\x08\x02\x3f"),
            extra(10, b"\x2d"),
            NAMES,
            MEMBERS,
            extra(7, b"\x01"),
            extra(8, b"\x00\x04"),
            extra(12, b"\xff\x80"),
        )
    )
    assert met.full
    assert met.name == TableName("d", "t")
    assert met.table_id == 7
    assert met.key == ("id", "n")
    by_name = {column.name: column for column in met.columns}
    assert [(column.type, column.meta) for column in met.columns] == [
        (codes.LONGLONG, 0),
        (codes.VARCHAR, 400),
        (codes.GEOMETRY, 4),
        (codes.YEAR, 0),
        (codes.LONG, 0),
        (codes.STRING, 1020),
        (codes.ENUM, 1),
        (codes.DECIMAL, 10 << 8 | 2),
        (codes.BIT, 9),
        (codes.BLOB, 2),
    ]
    assert [name for name, column in by_name.items() if column.unsigned] == ["id", "d"]
    assert {name: column.collation for name, column in by_name.items() if column.collation is not None} == {
        "näme": 45,
        "c": 8,
        "e": 45,
        "l": 63,
    }
    assert by_name["e"].members == ("a", "ä")
    assert by_name["g"].geometry == 1
    assert [name for name, column in by_name.items() if not column.visible] == ["b"] or by_name["b"].visible
    assert not by_name["id"].nullable
    assert by_name["l"].nullable


def test_mariadb_lists_collations_of_geometries_too() -> None:
    met = table_map.parse_table_map(body(COLUMNS, 0, SIGNS, extra(2, b"\x2d\x01\x3f\x02\x08\x03\x3f"), NAMES, MEMBERS))
    assert {column.name: column.collation for column in met.columns if column.collation is not None} == {
        "näme": 45,
        "c": 8,
        "l": 63,
    }
    met = table_map.parse_table_map(
        body(COLUMNS, 0, SIGNS, extra(3, b"\x2d\x3f\xfc\x00\x09\x3f"), NAMES, MEMBERS, extra(9, b"\x01\x0a\x00\x00"))
    )
    assert {column.name: column.collation for column in met.columns if column.collation is not None} == {
        "näme": 45,
        "c": 2304,
        "l": 63,
    }
    assert met.key == ("näme", "id")


def test_members_are_of_their_own_charset() -> None:
    met = table_map.parse_table_map(
        body(
            [(codes.STRING, b"\xf8\x01"), (codes.STRING, b"\xf7\x01")],
            0,
            extra(11, b"\x08\x23"),
            names("s", "e"),
            extra(5, b"\x02\x01\xe4\x01x"),
            extra(6, b"\x01\x02\x00\xe4"),
        )
    )
    assert [column.members for column in met.columns] == [("ä", "x"), ("ä",)]


def test_a_fingerprint_is_that_of_name_and_structure() -> None:
    first, second = body(COLUMNS, 0, NAMES, number=7), body(COLUMNS, 0, NAMES, number=8)
    assert table_map.parse_table_map(first).fingerprint == table_map.parse_table_map(second).fingerprint
    assert (
        table_map.parse_table_map(first).fingerprint != table_map.parse_table_map(body(COLUMNS, 1, NAMES)).fingerprint
    )


@pytest.mark.parametrize("cut", [5, 9, 14, 20, 39, 60])
def test_a_cut_event_is_fatal(cut: int) -> None:
    with pytest.raises(Fatal, match="TABLE_MAP"):
        table_map.parse_table_map(body(COLUMNS, 0, SIGNS, NAMES)[:cut])


BARE = table_map.parse_table_map(body(COLUMNS[:2], 0b10))
FULL = table_map.parse_table_map(
    body(COLUMNS[:2], 0b10, extra(1, b"\x80"), extra(2, b"\x2d"), names("id", "v"), extra(8, b"\x00"))
)
CATALOG_TABLE = MySqlTable(
    name=TableName("d", "t"),
    completed=True,
    key=("v",),
    columns=(
        MySqlColumn(
            name="id",
            type=codes.LONGLONG,
            unsigned=True,
            nullable=False,
            declared="bigint(20) unsigned",
            extra="auto_increment",
        ),
        MySqlColumn(
            name="v", type=codes.VARCHAR, meta=400, collation=45, declared="varchar(100)", default="'x'", comment="text"
        ),
    ),
)


def test_completed_from_the_catalog() -> None:
    assert BARE.key is None
    assert not BARE.full
    table = table_map.complete_table(BARE, CATALOG_TABLE)
    assert table.columns == CATALOG_TABLE.columns
    assert (table.key, table.completed) == (("v",), True)
    table = table_map.complete_table(FULL, CATALOG_TABLE)
    assert (table.columns, table.key) == (CATALOG_TABLE.columns, ("id",))
    table = table_map.complete_table(FULL, None)
    assert (table.key, table.completed, table.columns[1].declared, table.columns[1].collation) == (
        ("id",),
        False,
        "",
        45,
    )


def altered(index: int, **changes: object) -> MySqlTable:
    columns = list(CATALOG_TABLE.columns)
    columns[index] = msgspec.structs.replace(columns[index], **changes)
    return msgspec.structs.replace(CATALOG_TABLE, columns=tuple(columns))


@pytest.mark.parametrize(
    "catalog_table",
    [
        None,
        msgspec.structs.replace(CATALOG_TABLE, columns=CATALOG_TABLE.columns[:1]),
        altered(0, type=codes.LONG),
        altered(1, nullable=False),
        altered(1, meta=40),
    ],
)
def test_without_names_all_has_to_agree(catalog_table: MySqlTable | None) -> None:
    with pytest.raises(table_map.Mismatch):
        table_map.complete_table(BARE, catalog_table)


@pytest.mark.parametrize(
    "catalog_table", [altered(0, name="other"), altered(0, unsigned=False), altered(1, type=codes.BLOB, meta=2)]
)
def test_with_names_they_have_to_agree(catalog_table: MySqlTable) -> None:
    with pytest.raises(table_map.Mismatch):
        table_map.complete_table(FULL, catalog_table)


def test_a_vector_is_stored_in_two_ways() -> None:
    catalog_table = MySqlTable(
        name=TableName("d", "t"),
        columns=(
            MySqlColumn(name="v", type=codes.VECTOR, meta=4, nullable=False, declared="vector(3)"),
            CATALOG_TABLE.columns[1],
        ),
    )
    for code, meta in ((codes.VECTOR, b"\x04"), (codes.VARCHAR, pack("<H", 12))):
        visible = extra(12, b"\xc0") if code == codes.VECTOR else b""
        met = table_map.parse_table_map(
            body([(code, meta), COLUMNS[1]], 2, extra(2, b"\x3f\x01\x2d"), names("v", "v"), visible)
        )
        assert [column.collation for column in met.columns] == [None if code == codes.VECTOR else 63, 45]
        table = table_map.complete_table(msgspec.structs.replace(met, full=False), catalog_table)
        assert [column.type for column in table.columns] == [code, codes.VARCHAR]


def test_types_that_the_catalog_can_not_tell_apart() -> None:
    old = table_map.parse_table_map(
        body([(codes.TIMESTAMP, b""), (codes.VARCHAR_COMPRESSED, pack("<H", 401)), (codes.BLOB_COMPRESSED, b"\x02")], 0)
    )
    catalog_table = MySqlTable(
        name=TableName("d", "t"),
        columns=(
            MySqlColumn(name="ts", type=codes.TIMESTAMP2, nullable=False),
            MySqlColumn(name="v", type=codes.VARCHAR, meta=400, nullable=False),
            MySqlColumn(name="b", type=codes.BLOB, meta=2, nullable=False),
        ),
    )
    table = table_map.complete_table(old, catalog_table)
    assert [(column.name, column.type) for column in table.columns] == [
        ("ts", codes.TIMESTAMP),
        ("v", codes.VARCHAR_COMPRESSED),
        ("b", codes.BLOB_COMPRESSED),
    ]
