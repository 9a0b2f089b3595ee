"""Schemas of columns: Debezium's names, versions and parameters."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from connectors.mysql.model import MySqlColumn
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema.catalog_types import column_from_catalog, members_of
from connectors.mysql.schema.fields import field_schema
from connectors.mysql.schema.types import DeclaredType, ValueOptions, declared
from connectors.mysql.schema.types_defaults import default_value, missing_value
from connectors.schema import Schema, Type
from tests.support.settings import mysql_values

T = "io.debezium.time."
D = "io.debezium.data."


def shown(schema: Schema) -> tuple[str, str | None, int | None, dict[str, str]]:
    return str(schema.type), schema.name, schema.version, dict(schema.parameters)


def column(code: int, **others: Any) -> MySqlColumn:
    return MySqlColumn(name="c", type=code, **others)


UTF8 = {"collation": 45}
SCHEMAS: list[tuple[MySqlColumn, dict[str, Any], tuple[Any, ...]]] = [
    (column(codes.TINY), {}, ("int16",)),
    (column(codes.TINY, unsigned=True), {}, ("int16",)),
    (column(codes.SHORT), {}, ("int16",)),
    (column(codes.SHORT, unsigned=True), {}, ("int32",)),
    (column(codes.INT24), {}, ("int32",)),
    (column(codes.INT24, unsigned=True), {}, ("int32",)),
    (column(codes.LONG), {}, ("int32",)),
    (column(codes.LONG, unsigned=True), {}, ("int64",)),
    (column(codes.LONGLONG), {}, ("int64",)),
    (column(codes.LONGLONG, unsigned=True), {}, ("int64",)),
    (
        column(codes.LONGLONG, unsigned=True),
        {"bigint_unsigned_mode": "precise"},
        ("bytes", "org.apache.kafka.connect.data.Decimal", 1, {"scale": "0", "connect.decimal.precision": "20"}),
    ),
    (
        column(codes.DECIMAL, meta=10 << 8 | 2),
        {},
        ("bytes", "org.apache.kafka.connect.data.Decimal", 1, {"scale": "2", "connect.decimal.precision": "10"}),
    ),
    (column(codes.DECIMAL, meta=10 << 8 | 2), {"decimal_mode": "string"}, ("string",)),
    (column(codes.DECIMAL, meta=10 << 8 | 2), {"decimal_mode": "double"}, ("double",)),
    (column(codes.FLOAT), {}, ("float",)),
    (column(codes.FLOAT, declared="float(7,4)"), {}, ("double",)),
    (column(codes.FLOAT, declared="float unsigned"), {}, ("float",)),
    (column(codes.DOUBLE), {}, ("double",)),
    (column(codes.BIT, meta=1), {}, ("boolean",)),
    (column(codes.BIT, meta=9), {}, ("bytes", D + "Bits", 1, {"length": "9"})),
    (column(codes.VARCHAR, meta=20, **UTF8), {}, ("string",)),
    (column(codes.BLOB, meta=2, collation=63), {}, ("bytes",)),
    (column(codes.BLOB, meta=2, collation=63), {"binary_mode": "hex"}, ("string",)),
    (column(codes.ENUM, meta=1, members=("a", "b,c")), {}, ("string", D + "Enum", 1, {"allowed": "a,b\\,c"})),
    (column(codes.SET, meta=1, members=("x", "y")), {}, ("string", D + "EnumSet", 1, {"allowed": "x,y"})),
    (column(codes.YEAR), {}, ("int32", T + "Year", 1)),
    (column(codes.DATE), {}, ("int32", T + "Date", 1)),
    (column(codes.DATE), {"time_mode": "connect"}, ("int32", "org.apache.kafka.connect.data.Date", 1)),
    (column(codes.DATE), {"time_mode": "isostring"}, ("string", T + "IsoDate", 1)),
    (column(codes.TIME2), {}, ("int64", T + "MicroTime", 1)),
    (column(codes.TIME2, meta=3), {"time_mode": "adaptive"}, ("int32", T + "Time", 1)),
    (column(codes.TIME2, meta=4), {"time_mode": "adaptive"}, ("int64", T + "MicroTime", 1)),
    (column(codes.TIME2), {"time_mode": "connect"}, ("int32", "org.apache.kafka.connect.data.Time", 1)),
    (column(codes.TIME2), {"time_mode": "isostring"}, ("string", T + "IsoTime", 1)),
    (column(codes.TIME2), {"time_mode": "nanoseconds"}, ("int64", T + "NanoTime", 1)),
    (column(codes.DATETIME2, meta=3), {}, ("int64", T + "Timestamp", 1)),
    (column(codes.DATETIME2, meta=4), {}, ("int64", T + "MicroTimestamp", 1)),
    (
        column(codes.DATETIME2, meta=6),
        {"time_mode": "connect"},
        ("int64", "org.apache.kafka.connect.data.Timestamp", 1),
    ),
    (column(codes.DATETIME2), {"time_mode": "microseconds"}, ("int64", T + "MicroTimestamp", 1)),
    (column(codes.DATETIME2), {"time_mode": "nanoseconds"}, ("int64", T + "NanoTimestamp", 1)),
    (column(codes.DATETIME2), {"time_mode": "isostring"}, ("string", T + "IsoTimestamp", 1)),
    (column(codes.TIMESTAMP2, meta=6), {"time_mode": "connect"}, ("string", T + "ZonedTimestamp", 1)),
    (column(codes.JSON, meta=4), {}, ("string", D + "Json", 1)),
    (column(codes.VECTOR, meta=4), {}, ("array", D + "FloatVector", 1)),
    (column(codes.VARCHAR, meta=12, collation=63, declared="vector(3)"), {}, ("array", D + "FloatVector", 1)),
    (column(codes.STRING, meta=16, collation=63, declared="uuid"), {}, ("string", D + "Uuid", 1)),
    (column(codes.STRING, meta=16, collation=63, declared="inet6"), {}, ("string",)),
    (column(codes.GEOMETRY, meta=4, geometry=1), {}, ("struct", D + "geometry.Point", 1)),
    (column(codes.GEOMETRY, meta=4, geometry=2), {}, ("struct", D + "geometry.Geometry", 1)),
]


@pytest.mark.parametrize(("mysql_column", "mode", "expected"), SCHEMAS)
def test_schemas(mysql_column: MySqlColumn, mode: dict[str, Any], expected: tuple[Any, ...]) -> None:
    schema = shown(field_schema(mysql_column, mysql_values(**mode)))
    assert schema == (*expected, *(None, None, {})[len(expected) - 1 :])


def test_what_is_optional() -> None:
    options = mysql_values()
    assert field_schema(column(codes.LONG), options).optional
    assert not field_schema(column(codes.LONG, nullable=False), options).optional
    # Debezium's geometry can always be null, its point only where the column can.
    assert field_schema(column(codes.GEOMETRY, meta=4, geometry=0, nullable=False), options).optional
    assert not field_schema(column(codes.GEOMETRY, meta=4, geometry=1, nullable=False), options).optional


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int(10) unsigned zerofill", DeclaredType("INT UNSIGNED ZEROFILL", 10)),
        ("varchar(20)", DeclaredType("VARCHAR", 20)),
        ("decimal(10,2)", DeclaredType("DECIMAL", 10, 2)),
        ("decimal", DeclaredType("DECIMAL", 10, 0)),
        ("double", DeclaredType("DOUBLE")),
        ("float(7,4) unsigned", DeclaredType("FLOAT UNSIGNED", 7, 4)),
        ("bit(1)", DeclaredType("BIT", 1)),
        ("longtext", DeclaredType("LONGTEXT")),
        ("timestamp(3)", DeclaredType("TIMESTAMP", 3)),
        ("varchar(100) /*M!100301 COMPRESSED*/", DeclaredType("VARCHAR", 100)),
        ("timestamp /* mariadb-5.3 */", DeclaredType("TIMESTAMP")),
    ],
)
def test_declared_types(text: str, expected: DeclaredType) -> None:
    assert declared(column(codes.LONG, declared=text)) == expected


@pytest.mark.parametrize(
    ("mysql_column", "expected"),
    [
        (column(codes.LONG, unsigned=True), DeclaredType("INT UNSIGNED")),
        (column(codes.VARCHAR, meta=80, collation=45), DeclaredType("VARCHAR", 20)),
        (column(codes.STRING, meta=20, collation=63), DeclaredType("BINARY", 20)),
        (column(codes.BLOB, meta=4, collation=45), DeclaredType("LONGTEXT")),
        (column(codes.BLOB, meta=1, collation=63), DeclaredType("TINYBLOB")),
        (column(codes.DECIMAL, meta=10 << 8 | 2), DeclaredType("DECIMAL", 10, 2)),
        (column(codes.TIMESTAMP2, meta=3), DeclaredType("TIMESTAMP", 3)),
        (column(codes.SET, members=("a", "b", "c")), DeclaredType("SET", 5)),
        (column(codes.ENUM, members=("a", "b", "c")), DeclaredType("ENUM", 1)),
        (column(codes.BIT, meta=9), DeclaredType("BIT", 9)),
    ],
)
def test_types_that_only_the_binlog_tells(mysql_column: MySqlColumn, expected: DeclaredType) -> None:
    assert declared(mysql_column) == expected


def test_source_parameters() -> None:
    mysql_column = column(codes.DECIMAL, meta=10 << 8 | 2, declared="decimal(10,2)", comment="price")
    prefix = "__debezium.source.column."
    parameters = field_schema(
        mysql_column, mysql_values(decimal_mode="string", comments=True), propagate=True
    ).parameters
    assert parameters == (
        (prefix + "type", "DECIMAL"),
        (prefix + "length", "10"),
        (prefix + "scale", "2"),
        (prefix + "comment", "price"),
        (prefix + "name", "c"),
    )
    assert not field_schema(mysql_column, mysql_values(decimal_mode="string")).parameters


MARIADB, MYSQL = mysql_values(), mysql_values(flavor="mysql")


@pytest.mark.parametrize(
    ("mysql_column", "options", "expected"),
    [
        (column(codes.VARCHAR, default="'a''b\\\\'", **UTF8), MARIADB, "a'b\\"),
        (column(codes.VARCHAR, default="NULL", **UTF8), MARIADB, None),
        (column(codes.VARCHAR, default="NULL", **UTF8), MYSQL, "NULL"),
        (column(codes.VARCHAR, default="uuid()", **UTF8), MARIADB, None),
        (column(codes.VARCHAR, default="uuid()", extra="DEFAULT_GENERATED", **UTF8), MYSQL, None),
        (column(codes.VARCHAR, default="_utf8mb4'x'", **UTF8), MARIADB, "x"),
        (column(codes.LONG, default="1.5"), MYSQL, 2),
        (column(codes.LONG, default="-3"), MARIADB, -3),
        (column(codes.LONG, default="x"), MYSQL, None),
        (column(codes.LONGLONG, unsigned=True, default="18446744073709551615"), MARIADB, -1),
        (column(codes.BIT, meta=9, default="b'100000010'"), MYSQL, b"\x02\x01"),
        (column(codes.BIT, meta=1, default="b'0'"), MARIADB, False),
        (column(codes.DECIMAL, meta=10 << 8 | 2, default="1.555"), MYSQL, Decimal("1.56")),
        (column(codes.DATE, default="'0000-00-00'"), MARIADB, None),
        (column(codes.DATE, nullable=False, default="'0000-00-00'"), MARIADB, 0),
        (column(codes.DATE, default="2023-02-31"), MYSQL, None),
        (column(codes.DATETIME2, meta=3, nullable=False, default="'2024-05-06 07:08:09.5'"), MARIADB, 1714979289500),
        (column(codes.DATETIME2, nullable=False, default="current_timestamp()"), MARIADB, 0),
        (column(codes.DATETIME2, nullable=False, default="CURRENT_TIMESTAMP", extra="DEFAULT_GENERATED"), MYSQL, 0),
        (column(codes.TIMESTAMP2, default="current_timestamp()", extra="on update current_timestamp()"), MARIADB, None),
        (
            column(codes.TIMESTAMP2, meta=6, nullable=False, default="current_timestamp(6)"),
            MARIADB,
            "1970-01-01T00:00:00Z",
        ),
        (column(codes.TIMESTAMP2, nullable=False, default="'0000-00-00 00:00:00'"), MARIADB, "1970-01-01T00:00:00Z"),
        (column(codes.TIME2, default="'-838:59:59'"), MARIADB, -3020399000000),
        (column(codes.YEAR, default="'70'"), MARIADB, 1970),
        (column(codes.LONG, default="7", extra="STORED GENERATED"), MYSQL, None),
        (column(codes.VARCHAR, meta=3, collation=63, default="0x61FF"), MYSQL, b"a\xff"),
        (column(codes.STRING, meta=3, collation=63, default="'a'"), mysql_values(binary_mode="hex"), "610000"),
        # It does not fit into 64 bits, and so is left out.
        (column(codes.DATETIME2, default="'1582-10-10 00:00:01'"), mysql_values(time_mode="nanoseconds"), None),
        (
            column(codes.DATETIME2, default="'2024-02-29 00:00:01'"),
            mysql_values(time_mode="nanoseconds"),
            1709164801000000000,
        ),
    ],
)
def test_defaults(mysql_column: MySqlColumn, options: ValueOptions, expected: Any) -> None:
    default = default_value(mysql_column, options)
    assert repr(default) == repr(expected)


def test_what_stands_for_a_missing_value() -> None:
    assert missing_value(column(codes.DATE), MARIADB) is None
    assert missing_value(column(codes.DATE, nullable=False, default="'2024-02-29'"), MARIADB) == 19782
    assert (
        missing_value(column(codes.DATETIME2, nullable=False), mysql_values(time_mode="isostring"))
        == "1970-01-01T00:00:00Z"
    )


def catalog(declared_type: str, data_type: str, **others: Any) -> MySqlColumn:
    row: dict[str, Any] = dict.fromkeys(
        (
            "CHARACTER_OCTET_LENGTH",
            "NUMERIC_PRECISION",
            "NUMERIC_SCALE",
            "DATETIME_PRECISION",
            "CHARACTER_SET_NAME",
            "COLUMN_DEFAULT",
        )
    )
    row |= {
        "COLUMN_NAME": "c",
        "DATA_TYPE": data_type,
        "COLUMN_TYPE": declared_type,
        "IS_NULLABLE": "NO",
        "COLUMN_COMMENT": "",
        "EXTRA": "",
    }
    return column_from_catalog(row | others)


def test_columns_of_the_catalog() -> None:
    mysql_column = catalog("bigint(20) unsigned", "bigint", EXTRA="auto_increment INVISIBLE")
    assert (mysql_column.type, mysql_column.unsigned, mysql_column.visible, mysql_column.nullable) == (
        codes.LONGLONG,
        True,
        False,
        False,
    )
    mysql_column = catalog("enum('unsigned','it''s','a\\\\b)')", "enum", CHARACTER_SET_NAME="latin1")
    assert (mysql_column.members, mysql_column.unsigned, mysql_column.meta, mysql_column.collation) == (
        ("unsigned", "it's", "a\\b)"),
        False,
        1,
        5,
    )
    assert catalog("mediumtext", "mediumtext", CHARACTER_SET_NAME="utf8mb4", COLLATION_ID=309).collation == 309
    assert catalog("longblob", "longblob").meta == 4
    assert catalog("vector(3)", "vector", CHARACTER_OCTET_LENGTH=12).type == codes.VECTOR
    assert catalog("datetime(6)", "datetime", DATETIME_PRECISION=6).meta == 6
    assert catalog("timestamp /* mariadb-5.3 */", "timestamp").type == codes.TIMESTAMP
    assert catalog("int(10) zerofill", "int").unsigned
    assert catalog("point", "point").geometry == 1
    assert members_of("set('a,b','c')") == ("a,b", "c")


def test_a_column_of_no_known_type_is_refused_by_name() -> None:
    from connectors.errors import Fatal

    with pytest.raises(Fatal, match="column c has the type hologram"):
        catalog("hologram", "hologram")


def test_wire_types_are_those_of_connect() -> None:
    assert field_schema(column(codes.FLOAT), MARIADB).type is Type.FLOAT32
