"""Rows of the text protocol, on packets made here; values are compared with the stream's on real servers elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.mysql.model import ColumnPlan, MySqlColumn, MySqlTable, TableName
from connectors.mysql.rows.text_rows import BadTextRow, compile_text, select_expression, select_list
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema.fields import field_schema
from tests.support.settings import mysql_values

OPTIONS = mysql_values()


def plans(table: MySqlTable) -> list[ColumnPlan | None]:
    return [ColumnPlan(column, field_schema(column, OPTIONS)) for column in table.columns]


def packet(*values: bytes | None) -> bytes:
    parts = []
    for value in values:
        if value is None:
            parts.append(b"\xfb")
            continue
        size = len(value)
        head = (
            bytes([size])
            if size < 251
            else b"\xfc" + size.to_bytes(2, "little")
            if size < 1 << 16
            else b"\xfd" + size.to_bytes(3, "little")
        )
        parts.append(head + value)
    return b"".join(parts)


TABLE = MySqlTable(
    name=TableName("d", "t"),
    columns=(
        MySqlColumn(name="id", type=codes.LONG),
        MySqlColumn(name="a`b", type=codes.BLOB, meta=4, collation=45),
        MySqlColumn(name="x", type=codes.LONG),
        MySqlColumn(name="l", type=codes.VARCHAR, meta=9, collation=8),
        MySqlColumn(name="f", type=codes.FLOAT),
        MySqlColumn(name="ts", type=codes.TIMESTAMP2, meta=3),
        MySqlColumn(name="dt", type=codes.DATETIME2),
    ),
)


def test_values_of_every_length() -> None:
    chosen = plans(TABLE)
    chosen[2] = None
    assert select_list(TABLE, chosen) == [
        "`id`",
        "`a``b`",
        "CAST(`l` AS BINARY)",
        "`f` + 0e0",
        "UNIX_TIMESTAMP(`ts`)",
        "`dt`",
    ]
    decode = compile_text(TABLE, chosen, OPTIONS)
    for size in (0, 1, 250, 251, 65535, 65536, 70000):
        data = packet(
            b"-5", b"y" * size, b"\xe9\x80", b"1.100000023841858", b"1714979289.120", b"2024-05-06 07:08:09", b"more"
        )
        assert decode(data) == {
            "id": -5,
            "a`b": "y" * size,
            "l": "é€",
            "f": 1.100000023841858,
            "ts": "2024-05-06T07:08:09.120Z",
            "dt": 1714979289000,
        }
    assert decode(packet(None, None, None, None, None, None)) == dict.fromkeys(("id", "a`b", "l", "f", "ts", "dt"))


def test_masks_see_values_and_nulls_as_their_plan_says() -> None:
    table = MySqlTable(
        name=TABLE.name, columns=(MySqlColumn(name="d", type=codes.DATE), MySqlColumn(name="e", type=codes.LONG))
    )
    chosen: list[ColumnPlan | None] = [
        ColumnPlan(table.columns[0], field_schema(table.columns[0], OPTIONS), lambda day: int(str(day)) + 1),
        ColumnPlan(table.columns[1], field_schema(table.columns[1], OPTIONS), str, nulls=True),
    ]
    decode = compile_text(table, chosen, OPTIONS)
    assert decode(packet(b"0000-00-00", None)) == {"d": None, "e": "None"}
    assert decode(packet(b"1970-01-01", b"4")) == {"d": 1, "e": "4"}


def test_a_bad_value_names_its_column() -> None:
    data = packet(b"1", b"", b"2", b"", b"x", b"0", None)
    with pytest.raises(BadTextRow, match="column f can't be decoded") as caught:
        compile_text(TABLE, plans(TABLE), OPTIONS)(data)
    assert (caught.value.column, caught.value.raw) == ("f", data)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (MySqlColumn(name="c", type=codes.ENUM, members=("a",), collation=8), "CAST(`c` AS BINARY)"),
        (MySqlColumn(name="c", type=codes.SET, members=("a",), collation=45), "`c`"),
        (MySqlColumn(name="c", type=codes.DOUBLE), "`c` + 0e0"),
        (MySqlColumn(name="c", type=codes.GEOMETRY, meta=4), "`c`"),
        (MySqlColumn(name="c", type=codes.BIT, meta=9), "`c`"),
        (MySqlColumn(name="c", type=codes.JSON, meta=4), "CAST(`c` AS CHAR CHARACTER SET utf8mb4)"),
    ],
)
def test_how_columns_are_asked_for(column: MySqlColumn, expected: str) -> None:
    assert select_expression(column) == expected


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        (MySqlColumn(name="c", type=codes.DECIMAL, meta=10 << 8 | 2), b"-0.00", "Decimal('0.00')"),
        (
            MySqlColumn(name="c", type=codes.DECIMAL, meta=65 << 8 | 30),
            b"9" * 35 + b"." + b"9" * 30,
            f"Decimal('{'9' * 35}.{'9' * 30}')",
        ),
        (MySqlColumn(name="c", type=codes.LONGLONG, unsigned=True), b"18446744073709551615", "-1"),
        (MySqlColumn(name="c", type=codes.LONG, unsigned=True), b"0000000042", "42"),
        (MySqlColumn(name="c", type=codes.YEAR), b"0000", "1900"),
        (MySqlColumn(name="c", type=codes.BIT, meta=9), b"\x01\x02", repr(b"\x02\x01")),
        (MySqlColumn(name="c", type=codes.BIT, meta=1), b"\x01", "True"),
        (MySqlColumn(name="c", type=codes.TIME2, meta=6), b"-838:59:59.000001", "-3020399000001"),
        (MySqlColumn(name="c", type=codes.TIMESTAMP2), b"0", "'1970-01-01T00:00:00Z'"),
        (MySqlColumn(name="c", type=codes.TIMESTAMP2, meta=6), b"0", "'1970-01-01T00:00:00.000000Z'"),
        (MySqlColumn(name="c", type=codes.DATETIME2, meta=6), b"1969-12-31 23:59:59.999999", "-1"),
        (MySqlColumn(name="c", type=codes.DATETIME2, meta=1), b"1969-12-31 23:59:59.9", "-100"),
        (MySqlColumn(name="c", type=codes.DATE), b"0069-12-31", "36524"),
        (MySqlColumn(name="c", type=codes.JSON, meta=4), b'{"a": 1.0}', "'{\"a\":1.0}'"),
    ],
)
def test_values(column: MySqlColumn, text: bytes, expected: Any) -> None:
    table = MySqlTable(name=TABLE.name, columns=(column,))
    assert repr(compile_text(table, plans(table), OPTIONS)(packet(text))["c"]) == expected
