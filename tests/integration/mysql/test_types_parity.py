"""Every type at its edges, on a real server: the stream, a snapshot and Debezium's documented values are the same."""

from __future__ import annotations

from decimal import Decimal
from struct import pack, unpack
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from connectors.mysql.rows.charsets import charset_of, first_collation
from connectors.mysql.rows.decode import compile_rows
from connectors.mysql.schema import table_map
from connectors.mysql.source import binlog_events
from tests.integration.mysql.rows_world import World, plans, streamed, structure
from tests.support.settings import mysql_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connectors.mysql.schema.types import ValueOptions

EPOCH_ZONED = "1970-01-01T00:00:00Z"
WKB_POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
WKB_LINE = bytes.fromhex("01020000000200000000000000000000000000000000000000000000000000f03f000000000000f03f")


def single(number: float) -> float:
    """The number as a FLOAT holds it."""
    return float(unpack("<f", pack("<f", number))[0])


#: Declared type, then SQL literals with what Debezium gives for them with its default options.
CASES: list[tuple[str, list[tuple[str, Any]]]] = [
    ("TINYINT", [("-128", -128), ("127", 127)]),
    ("TINYINT(1)", [("1", 1), ("-1", -1)]),
    ("BOOL", [("TRUE", 1), ("FALSE", 0)]),
    ("TINYINT UNSIGNED", [("255", 255), ("0", 0)]),
    ("SMALLINT", [("-32768", -32768), ("32767", 32767)]),
    ("SMALLINT UNSIGNED", [("65535", 65535)]),
    ("MEDIUMINT", [("-8388608", -8388608), ("8388607", 8388607), ("-1", -1)]),
    ("MEDIUMINT UNSIGNED", [("16777215", 16777215), ("65536", 65536)]),
    ("INT", [("-2147483648", -2147483648), ("2147483647", 2147483647)]),
    ("INT UNSIGNED", [("4294967295", 4294967295)]),
    ("INT(10) UNSIGNED ZEROFILL", [("42", 42)]),
    ("BIGINT", [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)]),
    ("BIGINT UNSIGNED", [("18446744073709551615", -1), ("9223372036854775808", -(2**63)), ("7", 7)]),
    (
        "DECIMAL(65,30)",
        [
            ("9" * 35 + "." + "9" * 30, Decimal("9" * 35 + "." + "9" * 30)),
            ("-" + "9" * 35 + "." + "9" * 30, Decimal("-" + "9" * 35 + "." + "9" * 30)),
            ("0." + "0" * 29 + "1", Decimal("0." + "0" * 29 + "1")),
        ],
    ),
    ("DECIMAL(10,2)", [("-12345678.99", Decimal("-12345678.99")), ("0", Decimal("0.00")), ("-0.01", Decimal("-0.01"))]),
    ("DECIMAL(5)", [("-99999", Decimal(-99999))]),
    ("DECIMAL(9,0) UNSIGNED ZEROFILL", [("12", Decimal(12))]),
    ("DECIMAL(18,9)", [("-123456789.987654321", Decimal("-123456789.987654321"))]),
    ("DECIMAL(30,0)", [("-" + "9" * 30, Decimal("-" + "9" * 30))]),
    (
        "FLOAT",
        [
            ("1.1", single(1.1)),
            ("-3.4e38", single(-3.4e38)),
            ("16777217", 16777216.0),
            ("1.2345678", single(1.2345678)),
        ],
    ),
    ("FLOAT(7,4)", [("999.00009", single(999.0001))]),
    (
        "DOUBLE",
        [
            ("1.7976931348623157e308", 1.7976931348623157e308),
            ("5e-324", 5e-324),
            ("0.1", 0.1),
            ("-1e22", -1e22),
            ("123456789.123456789", 123456789.123456789),
        ],
    ),
    ("DOUBLE(20,5)", [("123456789012.34567", 123456789012.34567)]),
    ("BIT(1)", [("b'1'", True), ("b'0'", False)]),
    ("BIT(9)", [("b'100000001'", b"\x01\x01"), ("1", b"\x01\x00")]),
    ("BIT(64)", [("18446744073709551614", b"\xfe" + b"\xff" * 7), ("1", b"\x01" + b"\0" * 7)]),
    ("YEAR", [("1901", 1901), ("2155", 2155), ("0", 1900), ("'69'", 2069)]),
    (
        "DATE",
        [
            ("'1000-01-01'", -354285),
            ("'9999-12-31'", 2932896),
            ("'1969-12-31'", -1),
            ("'0000-00-00'", None),
            ("'2024-00-00'", None),
            ("'0069-01-01'", 36160),
            ("'2024-02-29'", 19782),
        ],
    ),
    (
        "TIME",
        [
            ("'-838:59:59'", -3020399000000),
            ("'838:59:59'", 3020399000000),
            ("'00:00:00'", 0),
            ("'-00:00:01'", -1000000),
        ],
    ),
    ("TIME(1)", [("'-12:34:56.7'", -45296700000), ("'23:59:59.9'", 86399900000)]),
    ("TIME(3)", [("'-00:00:00.001'", -1000), ("'00:00:01.999'", 1999000)]),
    (
        "TIME(6)",
        [("'-838:59:58.999999'", -3020398999999), ("'12:00:00.123456'", 43200123456), ("'-00:00:00.000001'", -1)],
    ),
    (
        "DATETIME",
        [
            ("'1000-01-01 00:00:00'", -30610224000000),
            ("'9999-12-31 23:59:59'", 253402300799000),
            ("'0000-00-00 00:00:00'", None),
            ("'2024-05-06 07:08:09'", 1714979289000),
        ],
    ),
    ("DATETIME(1)", [("'2024-05-06 07:08:09.9'", 1714979289900)]),
    ("DATETIME(3)", [("'1969-12-31 23:59:59.999'", -1), ("'2024-05-06 07:08:09.001'", 1714979289001)]),
    ("DATETIME(4)", [("'2024-05-06 07:08:09.1234'", 1714979289123400)]),
    ("DATETIME(6)", [("'9999-12-31 23:59:59.999999'", 253402300799999999), ("'1969-12-31 23:59:59.999999'", -1)]),
    (
        "TIMESTAMP NULL",
        [
            ("'1970-01-01 00:00:01'", "1970-01-01T00:00:01Z"),
            ("'2038-01-19 03:14:07'", "2038-01-19T03:14:07Z"),
            ("'0000-00-00 00:00:00'", EPOCH_ZONED),
        ],
    ),
    (
        "TIMESTAMP(3) NULL",
        [
            ("'2024-05-06 07:08:09.120'", "2024-05-06T07:08:09.120Z"),
            ("'2024-05-06 07:08:09'", "2024-05-06T07:08:09.000Z"),
        ],
    ),
    ("TIMESTAMP(5) NULL", [("'2024-05-06 07:08:09.01234'", "2024-05-06T07:08:09.01234Z")]),
    ("TIMESTAMP(6) NULL", [("'2024-05-06 07:08:09.000001'", "2024-05-06T07:08:09.000001Z")]),
    ("CHAR(5)", [("'ab '", "ab"), ("''", ""), ("'äöü€ß'", "äöü€ß")]),
    ("CHAR(255) CHARACTER SET utf8mb4", [("REPEAT('𝄞', 255)", "𝄞" * 255)]),
    ("VARCHAR(20)", [("'ab '", "ab "), ("'a\\\\b\\n'", "a\\b\n")]),
    ("VARCHAR(300)", [("REPEAT('é', 300)", "é" * 300), ("''", "")]),
    ("TINYTEXT", [("'x'", "x")]),
    ("TEXT", [("REPEAT('y', 300)", "y" * 300)]),
    ("MEDIUMTEXT", [("REPEAT('z', 70000)", "z" * 70000)]),
    ("LONGTEXT", [("'long'", "long")]),
    ("BINARY(4)", [("X'0100'", b"\x01\0\0\0"), ("X'00000000'", b"\0" * 4), ("X'61622020'", b"ab  ")]),
    ("VARBINARY(300)", [("X'00FF00'", b"\0\xff\0"), ("''", b"")]),
    ("TINYBLOB", [("X'80'", b"\x80")]),
    ("BLOB", [("X'DEADBEEF00'", b"\xde\xad\xbe\xef\0")]),
    ("LONGBLOB", [("X'00'", b"\0")]),
    ("ENUM('a','b,c','d''e','')", [("'a'", "a"), ("'b,c'", "b,c"), ("'d''e'", "d'e"), ("''", "")]),
    ("ENUM('ä','ö') CHARACTER SET latin1", [("'ö'", "ö")]),
    ("SET('r','g','b')", [("'b,r'", "r,b"), ("''", ""), ("'r,g,b'", "r,g,b")]),
    (
        "SET(" + ",".join(f"'m{number}'" for number in range(64)) + ")",
        [("'m0,m63'", "m0,m63"), ("'m31,m32'", "m31,m32")],
    ),
    (
        "POINT",
        [
            ("ST_GeomFromText('POINT(1 2)', 3857)", {"x": 1.0, "y": 2.0, "wkb": WKB_POINT, "srid": 3857}),
            ("POINT(1, 2)", {"x": 1.0, "y": 2.0, "wkb": WKB_POINT, "srid": None}),
        ],
    ),
    (
        "GEOMETRY",
        [
            ("ST_GeomFromText('LINESTRING(0 0,1 1)')", {"wkb": WKB_LINE, "srid": None}),
            ("POINT(1, 2)", {"wkb": WKB_POINT, "srid": None}),
        ],
    ),
    ("LINESTRING", [("ST_GeomFromText('LINESTRING(0 0,1 1)', 3857)", {"wkb": WKB_LINE, "srid": 3857})]),
]
MARIADB_CASES: list[tuple[str, list[tuple[str, Any]]]] = [
    ("DECIMAL(38,38)", [("0." + "1234567890" * 3 + "12345678", Decimal("0." + "1234567890" * 3 + "12345678"))]),
    ("JSON", [("'{\"a\": [1, 2.50, null]}'", '{"a": [1, 2.50, null]}')]),
    (
        "UUID",
        [
            ("'550e8400-e29b-41d4-a716-446655440000'", "550e8400-e29b-41d4-a716-446655440000"),
            ("'6ccd780c-baba-1026-9564-5b8c656024db'", "6ccd780c-baba-1026-9564-5b8c656024db"),
            ("'ffffffff-ffff-ffff-ffff-ffffffffffff'", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
            ("'00000000-0000-0000-0000-000000000000'", "00000000-0000-0000-0000-000000000000"),
            ("'017f22e2-79b0-7cc3-98c4-dc0c0c07398f'", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),
        ],
    ),
    ("INET4", [("'1.2.3.4'", "1.2.3.4"), ("'255.255.255.0'", "255.255.255.0"), ("'0.0.0.0'", "0.0.0.0")]),  # noqa: S104
    (
        "INET6",
        [
            ("'2001:db8::ff00:42:8329'", "2001:db8::ff00:42:8329"),
            ("'::'", "::"),
            ("'::1'", "::1"),
            ("'::ffff:1.2.3.4'", "::ffff:1.2.3.4"),
            ("'::1.2.3.4'", "::1.2.3.4"),
            ("'1:0:0:2::'", "1:0:0:2::"),
            ("'fe80:0:1:0:1:0:1:0'", "fe80::1:0:1:0:1:0"),
            ("'1:2:3:4:5:6:7:8'", "1:2:3:4:5:6:7:8"),
            ("'::ffff:0:0'", "::ffff:0.0.0.0"),
            ("'::1:0:0'", "::1:0:0"),
        ],
    ),
    ("VARCHAR(100) COMPRESSED", [("REPEAT('abc', 33)", "abc" * 33), ("'ü'", "ü"), ("''", "")]),
    ("TEXT COMPRESSED", [("REPEAT('äx', 400)", "äx" * 400)]),
    ("BLOB COMPRESSED", [("REPEAT(X'00FF', 400)", b"\0\xff" * 400)]),
    ("INT INVISIBLE", [("5", 5)]),
    ("TIME(6)", [("'-838:59:59.999999'", -3020399999999)]),
]
MYSQL_CASES: list[tuple[str, list[tuple[str, Any]]]] = [
    ("VECTOR(3)", [("TO_VECTOR('[1, 2.5, -3]')", [1.0, 2.5, -3.0])]),
    ("VARCHAR(9) CHARACTER SET gb18030", [("'𝄞中'", "𝄞中")]),
    ("INT INVISIBLE", [("5", 5)]),
]
CHARSETS = {
    "armscii8": "Հայ",
    "big5": "中文字",
    "cp1250": "Žluť",
    "cp1251": "Привет",
    "cp1256": "مرحبا",
    "cp1257": "Šėą",
    "cp850": "é╬ñ",
    "cp852": "Łódź",
    "cp866": "Привет",
    "cp932": "日本①",
    "dec8": "éœ",
    "eucjpms": "日本①～",  # noqa: RUF001
    "euckr": "한국",
    "gb2312": "中国",
    "gbk": "中國",
    "geostd8": "ქართ",
    "greek": "Ελλ",
    "hebrew": "שלום",
    "hp8": "éà",
    "keybcs2": "ščřž",
    "koi8r": "Привет",
    "koi8u": "Їжак",
    "latin1": "é€œ",
    "latin2": "łódź",
    "latin5": "ığş",
    "latin7": "ąčę",
    "macce": "ěšč",
    "macroman": "é∑",
    "sjis": "日本ｱ",
    "swe7": "ÅÄÖ",
    "tis620": "ไทย",
    "ucs2": "é中",
    "ujis": "日本語",
    "utf16": "𝄞é",
    "utf16le": "𝄞é",
    "utf32": "𝄞é",
    "utf8mb3": "é中",
    "utf8mb4": "𝄞é中",
    "ascii": "plain",
}


@pytest.fixture(scope="module")
def world(mariadb: Any) -> Iterator[World]:
    world = World("127.0.0.1", mariadb.port, mariadb.user, mariadb.password, "millrace_types", 2101)
    yield world
    world.close()


def rows_of(cases: list[tuple[str, list[tuple[str, Any]]]], table: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Statements that make and fill a table with a column per case, and the rows expected."""
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(cases))
    most = max(len(values) for _, values in cases)
    expected: list[dict[str, Any]] = []
    inserts = []
    for row in range(most + 1):
        names, literals = ["id"], [str(row)]
        shown: dict[str, Any] = {"id": row}
        for number, (_, values) in enumerate(cases):
            literal, value = values[row] if row < len(values) else ("NULL", None)
            names.append(f"c{number}")
            literals.append(literal)
            shown[f"c{number}"] = value
        expected.append(shown)
        inserts.append(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(literals)})")
    return [f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4", *inserts], expected


def check(rows: list[Any], expected: list[dict[str, Any]], cases: list[tuple[str, list[tuple[str, Any]]]]) -> None:
    """Compare with a message that names the type."""
    assert len(rows) == len(expected)
    for row, expected_row in zip(rows, expected, strict=True):
        wrong = {
            name: (cases[int(name[1:])][0] if name != "id" else "", row[name], value)
            for name, value in expected_row.items()
            if repr(row[name]) != repr(value)
        }
        assert not wrong, f"row {expected_row['id']}: type, found, wanted: {wrong}"
        assert list(row) == list(expected_row)


@pytest.mark.parametrize("cases", [CASES, MARIADB_CASES], ids=["common", "mariadb"])
def test_every_type_at_its_edges(world: World, cases: list[tuple[str, list[tuple[str, Any]]]]) -> None:
    table = "edges" if cases is CASES else "edges_mariadb"
    statements, expected = rows_of(cases, table)
    captured = world.capture("SET sql_mode = 'ALLOW_INVALID_DATES'", *statements)
    definition = world.definition(table)
    options = mysql_values()
    check(streamed(captured, definition, options), expected, cases)
    check(world.pulled(definition, options), expected, cases)


def test_types_follow_from_the_binlog_alone(world: World) -> None:
    statements, expected = rows_of(CASES, "alone")
    captured = world.capture("SET sql_mode = 'ALLOW_INVALID_DATES'", *statements)
    check(streamed(captured, None, mysql_values()), expected, CASES)


def test_what_must_not_be_null_falls_back_as_in_debezium(world: World) -> None:
    captured = world.capture(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "CREATE TABLE fallbacks (id INT PRIMARY KEY, d DATE NOT NULL, dd DATE NOT NULL DEFAULT '2020-02-02', t "
        "DATETIME NOT NULL, td DATETIME(6) NOT NULL DEFAULT '2020-02-02 01:02:03.000004', ts TIMESTAMP NOT NULL "
        "DEFAULT '2020-01-01 00:00:00')",
        "INSERT INTO fallbacks VALUES (1, '0000-00-00', '0000-00-00', '0000-00-00', '2024-00-01', '0000-00-00 00:00:00')",
    )
    definition = world.definition("fallbacks")
    expected = {"id": 1, "d": 0, "dd": 18294, "t": 0, "td": 1580605323000004, "ts": EPOCH_ZONED}
    assert streamed(captured, definition, mysql_values()) == [expected]
    assert world.pulled(definition, mysql_values()) == [expected]


MODES: list[tuple[dict[str, Any], str, str, Any]] = [
    ({"decimal_mode": "string"}, "DECIMAL(10,2)", "1234.5", "1234.50"),
    ({"decimal_mode": "string"}, "DECIMAL(38,30)", "0." + "0" * 29 + "1", "0." + "0" * 29 + "1"),
    ({"decimal_mode": "double"}, "DECIMAL(10,2)", "1234.5", 1234.5),
    ({"bigint_unsigned_mode": "precise"}, "BIGINT UNSIGNED", "18446744073709551615", Decimal(2**64 - 1)),
    ({"binary_mode": "base64"}, "BINARY(3)", "X'FB'", "+wAA"),
    ({"binary_mode": "base64-url-safe"}, "VARBINARY(3)", "X'FBFF'", "-_8="),
    ({"binary_mode": "hex"}, "BLOB", "X'FB0A'", "fb0a"),
    ({"time_mode": "adaptive"}, "TIME", "'-01:00:00'", -3600000),
    ({"time_mode": "adaptive"}, "TIME(3)", "'00:00:00.123'", 123),
    ({"time_mode": "adaptive"}, "TIME(6)", "'00:00:00.000123'", 123),
    ({"time_mode": "connect"}, "TIME(6)", "'12:00:00.123456'", 43200123),
    ({"time_mode": "connect"}, "TIME", "'24:00:00'", 86400000),
    ({"time_mode": "connect"}, "TIME", "'-00:00:01'", None),
    ({"time_mode": "connect"}, "DATETIME(6)", "'1969-12-31 23:59:59.999999'", -1),
    ({"time_mode": "connect"}, "DATE", "'2024-02-29'", 19782),
    ({"time_mode": "isostring"}, "TIME(6)", "'12:00:00.120000'", "12:00:00.12Z"),
    ({"time_mode": "isostring"}, "TIME", "'24:00:00'", "00:00:00Z"),
    ({"time_mode": "isostring"}, "TIME", "'25:00:00'", None),
    ({"time_mode": "isostring"}, "DATE", "'2024-02-29'", "2024-02-29Z"),
    ({"time_mode": "isostring"}, "DATETIME(3)", "'2024-02-29 01:02:03.040'", "2024-02-29T01:02:03.04Z"),
    ({"time_mode": "isostring"}, "DATETIME", "'0000-00-00'", None),
    ({"time_mode": "microseconds"}, "DATETIME", "'2024-05-06 07:08:09'", 1714979289000000),
    ({"time_mode": "microseconds"}, "TIME", "'-00:00:01'", -1000000),
    ({"time_mode": "nanoseconds"}, "DATETIME(6)", "'2024-05-06 07:08:09.000001'", 1714979289000001000),
    ({"time_mode": "nanoseconds"}, "DATETIME", "'2262-04-12 00:00:00'", None),
    ({"time_mode": "nanoseconds"}, "TIME(6)", "'-00:00:00.000001'", -1000),
    ({"enable_time_adjuster": False}, "DATE", "'0069-01-01'", -694325),
    ({"invalid_dates": "epoch"}, "DATE", "'2023-02-31'", 0),
]


def test_modes(world: World) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, (_, kind, _, _) in enumerate(MODES))
    literals = ", ".join(literal for _, _, literal, _ in MODES)
    captured = world.capture(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        f"CREATE TABLE modes (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO modes VALUES (1, {literals})",
    )
    definition = world.definition("modes")
    for number, (mode, kind, literal, expected) in enumerate(MODES):
        options = mysql_values(**({"invalid_dates": "epoch"} | mode))
        name = f"c{number}"
        [row], [pulled] = streamed(captured, definition, options), world.pulled(definition, options)
        assert repr(row[name]) == repr(expected), (mode, kind, literal)
        assert repr(pulled[name]) == repr(expected), (mode, kind, literal)


def test_every_charset(world: World) -> None:
    columns = ", ".join(
        f"{name} VARCHAR(20) CHARACTER SET {name}, e_{name} ENUM({text!r}, 'x') CHARACTER SET {name}"
        for name, text in CHARSETS.items()
    )
    values = ", ".join(f"{text!r}, 1" for text in CHARSETS.values())
    captured = world.capture(
        f"CREATE TABLE charsets (id INT PRIMARY KEY, {columns})", f"INSERT INTO charsets VALUES (1, {values})"
    )
    expected: dict[str, Any] = {"id": 1}
    for name, text in CHARSETS.items():
        expected |= {name: text, f"e_{name}": text}
    definition = world.definition("charsets")
    options = mysql_values(charset_errors="strict")
    assert streamed(captured, None, options) == [expected]
    assert streamed(captured, definition, options) == [expected]
    # Whether the session converts results or not, the stored bytes are read.
    for session in ("SET NAMES utf8mb4", "SET character_set_results = NULL"):
        assert world.pulled(definition, options, session=session) == [expected]
    world.sql("SET NAMES utf8mb4")


def test_collations_of_all_numbers_are_known(world: World) -> None:
    with world.driver.cursor() as cursor:
        cursor.execute(
            "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID > 0"
        )
        listed = cursor.fetchall()
    assert len(listed) > 300
    assert {number: charset_of(number).name for number, _ in listed} == dict(listed)
    assert {charset_of(first_collation(name)).name for _, name in listed} == {name for _, name in listed}


def test_updates_deletes_and_row_images(world: World) -> None:
    captured = world.capture(
        "CREATE TABLE images (id INT PRIMARY KEY, a VARCHAR(10), b BLOB, gen INT AS (id + 1) STORED,"
        " virt INT AS (id + 2) VIRTUAL)",
        "INSERT INTO images (id, a, b) VALUES (1, 'x', 'blob'), (2, NULL, NULL)",
        "UPDATE images SET a = 'y'",
        "SET SESSION binlog_row_image = 'MINIMAL'",
        "UPDATE images SET a = 'z' WHERE id = 1",
        "SET SESSION binlog_row_image = 'NOBLOB'",
        "UPDATE images SET a = 'w' WHERE id = 1",
        "DELETE FROM images WHERE id = 2",
        "SET SESSION binlog_row_image = 'FULL'",
        "DELETE FROM images WHERE id = 1",
    )
    definition = world.definition("images")
    first, second = (
        {"id": 1, "a": "x", "b": b"blob", "gen": 2, "virt": 3},
        {"id": 2, "a": None, "b": None, "gen": 3, "virt": 4},
    )
    images = streamed(captured, definition, mysql_values())
    assert images[:2] == [first, second]
    assert images[2:6] == [first, first | {"a": "y"}, second, second | {"a": "y"}]
    assert images[6:8] == [{"id": 1}, {"a": "z", "gen": 2}]
    assert images[8]["id"] == 1
    assert "b" not in images[8]
    assert images[9]["a"] == "w"
    assert images[10]["id"] == 2
    assert "b" not in images[10]
    assert images[11] == first | {"a": "w"}


DEFAULTS = """CREATE TABLE defaults (id INT PRIMARY KEY AUTO_INCREMENT, i INT NOT NULL DEFAULT 7, n INT DEFAULT NULL,
    d DECIMAL(10,2) NOT NULL DEFAULT 1.5, f FLOAT DEFAULT 1.25, b BIT(1) NOT NULL DEFAULT b'1',
    b9 BIT(9) DEFAULT b'100000001', v VARCHAR(20) NOT NULL DEFAULT 'it''s \\\\ NULL', e ENUM('a','b') DEFAULT 'b',
    s SET('x','y') DEFAULT 'x,y', y YEAR DEFAULT 2024, dt DATE DEFAULT '2024-02-29', t TIME(3) DEFAULT '-01:00:00.500',
    ts TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, tn TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP,
    tl TIMESTAMP(3) NOT NULL DEFAULT '2024-05-06 07:08:09.5', dn DATETIME(6) NOT NULL DEFAULT NOW(6),
    ex VARCHAR(36) DEFAULT (UUID()), bn BINARY(3) DEFAULT 'a', bo BOOL NOT NULL DEFAULT TRUE, bu BIGINT UNSIGNED DEFAULT 7,
    nu VARCHAR(9) DEFAULT 'NULL', g INT AS (i + 1) STORED, c INT NOT NULL DEFAULT 3 COMMENT 'a comment')"""
DEFAULT_VALUES = {
    "id": None,
    "i": 7,
    "n": None,
    "d": Decimal("1.50"),
    "f": 1.25,
    "b": True,
    "b9": b"\x01\x01",
    "v": "it's \\ NULL",
    "e": "b",
    "s": "x,y",
    "y": 2024,
    "dt": 19782,
    "t": -3600500000,
    "ts": EPOCH_ZONED,
    "tn": None,
    "tl": "2024-05-06T07:08:09.500Z",
    "dn": 0,
    "ex": None,
    "bn": b"a\0\0",
    "bo": 1,
    "bu": 7,
    "nu": "NULL",
    "g": None,
    "c": 3,
}


def check_defaults(world: World, flavor: str) -> None:
    world.sql(DEFAULTS)
    table = world.definition("defaults")
    column_plans = plans(table, mysql_values(comments=True, flavor=flavor))
    schemas = {plan.column.name: plan.schema for plan in column_plans if plan is not None}
    assert {name: schema.default for name, schema in schemas.items()} == DEFAULT_VALUES
    assert schemas["c"].doc == "a comment"
    assert not schemas["i"].optional
    assert schemas["n"].optional


def test_defaults_become_those_of_the_schema(world: World) -> None:
    check_defaults(world, "mariadb")


def test_without_names_the_catalog_has_to_agree(world: World) -> None:
    statements, expected = rows_of(CASES, "bare")
    world.sql("SET SESSION sql_mode = 'ALLOW_INVALID_DATES'")
    captured = world.capture(*statements)
    definition = world.definition("bare")
    bare = table_map.parse_table_map(captured[0].body)
    nameless = msgspec.structs.replace(
        bare,
        full=False,
        key=None,
        columns=tuple(
            msgspec.structs.replace(column, name="", unsigned=False, collation=None, members=(), geometry=None)
            for column in bare.columns
        ),
    )
    table = table_map.complete_table(nameless, definition)
    assert [column.name for column in table.columns] == [column.name for column in definition.columns]
    assert table.key == ("id",)
    rows = []
    for change in captured:
        head = binlog_events.rows_header(change.event)
        rows += compile_rows(table, plans(table, mysql_values()), mysql_values(), kind="write", present=head.present)(
            change.event, head.start, len(change.event)
        )
    check(rows, expected, CASES)
    world.sql("ALTER TABLE bare MODIFY c0 INT")
    with pytest.raises(table_map.Mismatch, match=r"column c0 is TINYINT .* int"):
        table_map.complete_table(nameless, world.definition("bare"))
    assert structure(captured[0], None).key == ("id",)


JSON_VALUES = [
    (
        '\'{"b": 1, "a": [true, false, null, -32768, 65535, 4294967295, 18446744073709551615, -9223372036854775808]}\'',
        '{"a":[true,false,null,-32768,65535,4294967295,18446744073709551615,-9223372036854775808],"b":1}',
    ),
    ("'[1.5, 100.0, 1e7, 12345678.5, 0.0001, -0.0, 1e300]'", None),
    (r"""'"quote \\" back \\\\ slash / tab \\t nl \\n ctl \\u0001 é 𝄞"'""", None),
    ("'{}'", "{}"),
    ("'[]'", "[]"),
    ("'null'", "null"),
    ("'\"\"'", '""'),
    (
        (
            "JSON_OBJECT('d', CAST('2024-02-29' AS DATE), 't', CAST('-12:34:56.5' AS TIME(6)),"
            " 'm', CAST('2024-02-29 01:02:03.04' AS DATETIME(6)), 'n', CAST(1.10 AS DECIMAL(5,2)), 'b', X'00FF')"
        ),
        '{"b":"base64:type15:AP8=","d":"2024-02-29","m":"2024-02-29 01:02:03.040000","n":1.10,"t":"-12:34:56.500000"}',
    ),
    ("CONCAT('{\"long\": \"', REPEAT('x', 70000), '\", \"after\": [', REPEAT('7,', 20000), '8]}')", None),
    ("CAST(JSON_QUOTE('text') AS JSON)", '"text"'),
]


def test_mysql_itself(mysql: Any) -> None:
    world = World("127.0.0.1", mysql.port, mysql.user, mysql.password, "millrace_types", 2102)
    try:
        cases = CASES + MYSQL_CASES
        statements, expected = rows_of(cases, "edges")
        captured = world.capture("SET sql_mode = 'ALLOW_INVALID_DATES'", "SET NAMES utf8mb4", *statements)
        definition = world.definition("edges")
        options = mysql_values(flavor="mysql")
        check(streamed(captured, definition, options), expected, cases)
        check(streamed(captured, None, options), expected, cases)
        check(world.pulled(definition, options), expected, cases)
        check_defaults(world, "mysql")
        _json_in_mysql(world, options)
    finally:
        world.close()


def _json_in_mysql(world: World, options: ValueOptions) -> None:
    inserts = [
        f"INSERT INTO documents VALUES ({number}, {literal}, NULL)" for number, (literal, _) in enumerate(JSON_VALUES)
    ]
    captured = world.capture("CREATE TABLE documents (id INT PRIMARY KEY, j JSON, k JSON)", *inserts)
    definition = world.definition("documents")
    documents = streamed(captured, definition, options)
    assert documents == world.pulled(definition, options)
    assert [row["j"] for row, (_, expected) in zip(documents, JSON_VALUES, strict=True) if expected] == [
        expected for _, expected in JSON_VALUES if expected
    ]
    assert documents[1]["j"].startswith("[1.5,100.0,10000000,12345678.5,0.000100000000000000004792")
    changes = world.capture(
        "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
        "UPDATE documents SET j = JSON_SET(j, '$.a[1]', 'new', '$.b', 2) WHERE id = 0",
        "UPDATE documents SET j = JSON_REMOVE(j, '$.a[0]', '$.b') WHERE id = 0",
        "UPDATE documents SET j = JSON_SET(j, '$.\"c d\"', CAST('{\"x\": [1]}' AS JSON)) WHERE id = 0",
        "UPDATE documents SET j = JSON_ARRAY_INSERT(j, '$.a[1]', 'in') WHERE id = 0",
        "UPDATE documents SET j = JSON_REPLACE(j, '$.after[20000]', 9) WHERE id = 8",
        "UPDATE documents SET k = '[1]', j = JSON_SET(j, '$.b', 3) WHERE id = 0",
        "SET SESSION binlog_row_value_options = ''",
    )
    assert any(change.event[4] == 39 for change in changes)
    captured = world.capture(
        "SET sql_mode = ''",
        "CREATE TABLE lacking (id INT PRIMARY KEY, j JSON NOT NULL)",
        "INSERT INTO lacking (id) VALUES (1)",
    )
    lacking = world.definition("lacking")
    assert streamed(captured, lacking, options) == world.pulled(lacking, options) == [{"id": 1, "j": "null"}]
    last = {row["id"]: row for row in streamed(changes, definition, options)[1::2]}
    pulled = {row["id"]: row for row in world.pulled(definition, options)}
    assert last == {number: pulled[number] for number in last}
