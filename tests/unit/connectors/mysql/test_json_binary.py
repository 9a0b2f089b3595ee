"""MySQL's binary JSON and partial updates of it, on documents stored here as the server does."""

from __future__ import annotations

import json
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.mysql.model import ColumnPlan, MySqlColumn, MySqlTable, TableName
from connectors.mysql.rows.decode import BadRow, compile_rows
from connectors.mysql.rows.json_binary import double_text, from_server_text, json_text, parse_document
from connectors.mysql.rows.json_diff import Diff, apply_diffs, parse_path, read_diffs
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema.fields import field_schema
from tests.support.settings import mysql_values


def varint(number: int) -> bytes:
    parts = []
    while True:
        parts.append(number & 0x7F | (0x80 if number > 0x7F else 0))
        number >>= 7
        if not number:
            return bytes(parts)


def lenenc(data: bytes) -> bytes:
    return (bytes([len(data)]) if len(data) < 251 else b"\xfc" + pack("<H", len(data))) + data


def stored(value: Any, *, large: bool = False) -> bytes:
    """A document as the server stores it."""
    kind, data = _stored(value, large=large)
    return bytes([kind]) + data


def _stored(value: Any, *, large: bool) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        for kind, form, low, high in (
            (5, "<h", -(1 << 15), 1 << 15),
            (6, "<H", 0, 1 << 16),
            (7, "<i", -(1 << 31), 1 << 31),
            (8, "<I", 0, 1 << 32),
            (9, "<q", -(1 << 63), 1 << 63),
            (10, "<Q", 0, 1 << 64),
        ):
            if low <= value < high:
                return kind, pack(form, value)
    if isinstance(value, float):
        return 11, pack("<d", value)
    if isinstance(value, str):
        return 12, varint(len(value.encode())) + value.encode()
    if isinstance(value, bytes):  # an opaque value: its type, then its bytes
        return 15, value[:1] + varint(len(value) - 1) + value[1:]
    keys = sorted((key.encode() for key in value), key=lambda key: (len(key), key)) if isinstance(value, dict) else []
    values = [value[key.decode()] for key in keys] if isinstance(value, dict) else value
    width = 4 if large else 2
    number = "<I" if large else "<H"
    at = 2 * width + len(keys) * (width + 2) + len(values) * (1 + width)
    entries, body = b"", b""
    for key in keys:
        entries += pack(number, at + len(body)) + pack("<H", len(key))
        body += key
    for element in values:
        kind, data = _stored(element, large=large)
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            entries += bytes([kind]) + data.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + pack(number, at + len(body))
            body += data
    content = pack(number, len(values)) + pack(number, at + len(body)) + entries + body
    return (0 if isinstance(value, dict) else 2) + large, content


DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(DOCUMENTS, st.booleans())
def test_text_is_the_document_whatever_its_size(document: Any, large: bool) -> None:
    assert json.loads(json_text(stored(document, large=large)) or "") == document


@settings(deadline=None)
@given(DOCUMENTS)
def test_the_servers_text_gives_the_same(document: Any) -> None:
    text = json_text(stored(document)) or ""
    assert from_server_text(text) == text


def test_form_of_the_text() -> None:
    assert json_text(stored({"bb": [1, "x"], "a": None, "ä": {}})) == '{"a":null,"bb":[1,"x"],"ä":{}}'
    assert json_text(stored('"\\\b\t\n\f\r\x01\x7f/é')) == '"\\"\\\\\\b\\t\\n\\f\\r\\u0001\x7f/é"'
    assert json_text(b"") == "null"
    assert from_server_text('{"a": [1, 2.50, 1e5, "b, c"], "n": 1.0}') == '{"a":[1,2.50,100000.0,"b, c"],"n":1.0}'


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.5, "1.5"),
        (100.0, "100.0"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (9999999.0, "9999999.0"),
        (1e7, "10000000"),
        (0.001, "0.001"),
        (1e-4, "0.000100000000000000004792173602385929598312941379845142364501953125"),
        (1e300, str(int(1e300))),
    ],
)
def test_doubles_have_no_exponent(number: float, text: str) -> None:
    assert double_text(number) == text


def test_values_without_a_type_in_json() -> None:
    def packed(year: int, month: int, day: int, clock: int, micros: int) -> bytes:
        return pack("<q", ((year * 13 + month) << 5 | day) << 41 | clock << 24 | micros)

    clock = 1 << 12 | 2 << 6 | 3
    document = [
        bytes([codes.DECIMAL]) + b"\x04\x02\x8c\x22",
        bytes([codes.DATE]) + packed(2024, 2, 29, 0, 0),
        bytes([codes.DATETIME]) + packed(2024, 2, 29, clock, 40000),
        bytes([codes.TIME]) + pack("<q", -(clock << 24 | 5)),
        bytes([codes.BLOB]) + b"\0\xff",
    ]
    assert json_text(stored(document)) == (
        '[12.34,"2024-02-29","2024-02-29 01:02:03.040000","-01:02:03.000005","base64:type252:AP8="]'
    )


@pytest.mark.parametrize(
    "data", [b"\x0e\0", b"\x00\xff", b"\x0c\x05ab", b"\x02\x01\x00\x20\x00\x0c\xff\xff", b"\x0c\xff\xff\xff\xff\xff"]
)
def test_bytes_that_are_no_document(data: bytes) -> None:
    with pytest.raises(ValueError, match="JSON"):
        parse_document(data)


def test_a_small_document_does_not_become_a_large_one() -> None:
    """Sixty arrays, each with the next one twice, would be 2^60 values."""
    level = pack("<HH", 2, 10) + 2 * (b"\x02" + pack("<H", 10))
    with pytest.raises(ValueError, match="more values than bytes"):
        parse_document(b"\x02" + 60 * level + pack("<HH", 0, 4))
    text = b"x" * 100
    shared = pack("<HH", 200, 900) + 200 * (b"\x0c" + pack("<H", 604)) + varint(len(text)) + text
    with pytest.raises(ValueError, match="more values than bytes"):
        parse_document(b"\x02" + shared)


def diff(operation: int, path: str, value: Any = None) -> bytes:
    change = bytes([operation]) + lenenc(path.encode())
    return change if operation == 2 else change + lenenc(stored(value))


def test_changes_are_applied_in_order() -> None:
    before = stored({"a": [1, 2, {"b": "x"}], "c d": 1, "z": 0})
    changes = (
        diff(0, "$.a[1]", "two")
        + diff(1, "$.a[0]", {"new": []})
        + diff(2, "$.z")
        + diff(0, '$."c d"', None)
        + diff(1, "$.bb", 7)
        + diff(2, "$.a[3].b")
        + diff(1, "$.a[9]", "end")
    )
    assert apply_diffs(before, changes) == '{"a":[{"new":[]},1,"two",{},"end"],"bb":7,"c d":null}'
    ends = diff(0, "$[last-1]", 7) + diff(2, "$[last]") + diff(1, "$[last]", 0) + diff(1, "$[last-9]", -1)
    assert apply_diffs(stored([1, 2, 3]), ends) == "[-1,1,0,7]"
    assert read_diffs(changes)[0] == Diff(0, ("a", 1), "two")
    assert apply_diffs(stored([1]), diff(0, "$", {"whole": 1})) == '{"whole":1}'


def test_paths() -> None:
    assert parse_path('$.a."b.c\\""[12].d') == ("a", 'b.c"', 12, "d")
    assert parse_path("$[last].last[last-3]") == (-1, "last", -4)
    assert parse_path("$") == ()
    with pytest.raises(ValueError, match="no path"):
        parse_path("$a")


@pytest.mark.parametrize(
    "change",
    [
        diff(0, "$.x", 1),
        diff(2, "$.x"),
        diff(0, "$.a[5]", 1),
        diff(0, "$.a[last-1]", 1),
        diff(1, "$.a.b", 1),
        diff(2, "$"),
        b"\x07\0",
        b"\x00\x05$",
    ],
)
def test_changes_that_do_not_fit(change: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|path"):
        apply_diffs(stored({"a": [1]}), change)


def test_partial_rows() -> None:
    table = MySqlTable(
        name=TableName("d", "t"),
        columns=(
            MySqlColumn(name="id", type=codes.LONG, nullable=False),
            MySqlColumn(name="j", type=codes.JSON, meta=4),
            MySqlColumn(name="k", type=codes.JSON, meta=4),
        ),
        key=("id",),
    )
    options = mysql_values()
    plans = [ColumnPlan(column, field_schema(column, options)) for column in table.columns]

    def long(data: bytes) -> bytes:
        return pack("<I", len(data)) + data

    json_object, json_array = stored({"a": 1}), stored([1])
    before = b"\xf8" + pack("<i", 1) + long(json_object) + long(json_array)
    # k is whole, j holds changes; then a row without any, then one whose document was null.
    partial = b"\x01\x01" + b"\xf8" + pack("<i", 1) + long(diff(0, "$.a", 2)) + long(json_object)
    whole = b"\x00" + b"\xfa" + pack("<i", 1) + long(json_array)
    null = b"\xfa" + pack("<i", 2) + long(json_array)
    lost = b"\x01\x01" + b"\xf8" + pack("<i", 2) + long(diff(0, "$.a", 2)) + long(json_object)
    rows = compile_rows(table, plans, options, kind="partial", present=b"\x07", present_after=b"\x07")
    data = before + partial + before + whole
    assert rows(data, 0, len(data)) == [
        {"id": 1, "j": '{"a":1}', "k": "[1]"},
        {"id": 1, "j": '{"a":2}', "k": '{"a":1}'},
        {"id": 1, "j": '{"a":1}', "k": "[1]"},
        {"id": 1, "j": None, "k": "[1]"},
    ]
    data = null + lost + before + partial
    with pytest.raises(BadRow, match=r"column j.*binlog_row_value_options") as caught:
        rows(data, 0, len(data))
    assert caught.value.rows[:2] == [None, None]
    assert caught.value.rows[3] == {"id": 1, "j": '{"a":2}', "k": '{"a":1}'}
