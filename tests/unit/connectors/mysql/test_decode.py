"""The generated row decoders, on bytes made here."""

from __future__ import annotations

from decimal import Decimal
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Fatal
from connectors.mysql.model import BLOCK, ColumnPlan, MySqlColumn, MySqlTable, TableName
from connectors.mysql.position.shards import shard_of_table
from connectors.mysql.rows.decode import BadRow, compile_rows, count_rows
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema.fields import field_schema
from tests.support.settings import mysql_values

if TYPE_CHECKING:
    from connectors.mysql.schema.types import ValueOptions

OPTIONS = mysql_values()
NAME = TableName("shop", "orders")


def table(*columns: MySqlColumn, key: tuple[str, ...] = ()) -> MySqlTable:
    return MySqlTable(name=NAME, columns=columns, key=key)


def plans(definition: MySqlTable, options: ValueOptions = OPTIONS) -> list[ColumnPlan | None]:
    return [ColumnPlan(column, field_schema(column, options)) for column in definition.columns]


def every(definition: MySqlTable) -> bytes:
    """The bitmap of all columns, with the bits beyond them set as servers do."""
    return b"\xff" * ((len(definition.columns) + 7) // 8)


def decode(definition: MySqlTable, data: bytes, kind: str = "write", **more: Any) -> list[Any]:
    options = more.pop("options", OPTIONS)
    chosen = more.pop("chosen", None) or plans(definition, options)
    head = b"head of the event"
    return compile_rows(definition, chosen, options, kind=kind, present=more.pop("present", every(definition)), **more)(
        head + data, len(head), len(head) + len(data)
    )


ID = MySqlColumn(name="id", type=codes.LONG, nullable=False)
TEXT = MySqlColumn(name="t", type=codes.VARCHAR, meta=100, collation=45)


def text_row(number: int, text: str | None) -> bytes:
    """A row of ID and TEXT."""
    if text is None:
        return b"\xfe" + pack("<i", number)
    stored = text.encode()
    return b"\xfc" + pack("<i", number) + bytes([len(stored)]) + stored


def test_rows_with_and_without_nulls() -> None:
    definition = table(ID, TEXT)
    data = text_row(1, "eins") + text_row(-2, None) + text_row(3, "")
    # Bit 1 of the bitmap is the text's; the bits beyond the columns are set and mean nothing.
    assert decode(definition, data.replace(b"\xfe" + pack("<i", -2), b"\xfe" + pack("<i", -2))) == [
        {"id": 1, "t": "eins"},
        {"id": -2, "t": None},
        {"id": 3, "t": ""},
    ]


@pytest.mark.parametrize("count", [7, 8, 9, 20, 33, 64, 65, 250])
def test_bitmaps_of_every_width(count: int) -> None:
    definition = table(
        *(MySqlColumn(name=f"c{number}", type=codes.SHORT, nullable=number % 3 != 0) for number in range(count))
    )
    expected = {f"c{number}": None if number % 3 and number % 2 else number for number in range(count)}
    bits = sum(1 << number for number in range(count) if expected[f"c{number}"] is None)
    size = (count + 7) // 8
    bits |= ~((1 << count) - 1) & ((1 << 8 * size) - 1)
    data = bits.to_bytes(size, "little") + b"".join(
        pack("<h", number) for number in expected.values() if number is not None
    )
    full = b"\0" * size + b"".join(pack("<h", number) for number in range(count))
    assert decode(definition, data + full + data) == [
        expected,
        {f"c{number}": number for number in range(count)},
        expected,
    ]


def test_columns_that_the_image_lacks_and_that_are_left_out() -> None:
    definition = table(
        ID,
        TEXT,
        MySqlColumn(name="n", type=codes.LONGLONG),
        MySqlColumn(name="b", type=codes.BLOB, meta=2, collation=63),
    )
    # The image has t, n and b; n is stepped over.
    data = b"\xf8" + b"\x02ab" + pack("<q", 7) + b"\x01\x00\xff" + b"\xfb" + b"\x01c" + pack("<q", 8)
    data = data.replace(b"\xfb\x01c", b"\xfc\x01c")
    chosen = plans(definition)
    chosen[2] = None
    assert decode(definition, data, present=b"\x0e", chosen=chosen) == [
        {"t": "ab", "b": b"\xff"},
        {"t": "c", "b": None},
    ]


def test_updates_with_different_images() -> None:
    definition = table(ID, TEXT)
    data = b"\xfe" + pack("<i", 5) + b"\xfe\x01x" + b"\xfe" + pack("<i", 6) + b"\xff"
    rows = compile_rows(definition, plans(definition), OPTIONS, kind="update", present=b"\x01", present_after=b"\x02")(
        data, 0, len(data)
    )
    assert rows == [{"id": 5}, {"t": "x"}, {"id": 6}, {"t": None}]
    assert (
        count_rows(definition, OPTIONS, kind="update", present=b"\x01", present_after=b"\x02")(data, 0, len(data)) == 2
    )


def test_masks_see_values_and_nulls_as_their_plan_says() -> None:
    definition = table(ID, TEXT, MySqlColumn(name="d", type=codes.DATE))
    data = b"\xf8" + pack("<i", 1) + b"\x01a" + b"\0\0\0" + b"\xfe" + pack("<i", 2)
    chosen = [
        ColumnPlan(column, field_schema(column, OPTIONS), transform, nulls)
        for column, transform, nulls in zip(
            definition.columns,
            (lambda number: -number, lambda text: f"<{text}>", lambda day: day + 1),
            (False, True, False),
            strict=True,
        )
    ]
    # A zero date is null without a null bit, and must not reach a mask that takes no nulls.
    assert decode(definition, data, chosen=chosen) == [
        {"id": -1, "t": "<a>", "d": None},
        {"id": -2, "t": "<None>", "d": None},
    ]


KEYED = table(ID, TEXT, key=("id",))


def test_rows_of_other_shards_are_none() -> None:
    numbers = [0, BLOCK - 1, BLOCK, -1, 3 * BLOCK]
    data = b"".join(text_row(number, "x" * index) for index, number in enumerate(numbers))
    first, second = (decode(KEYED, data, owner=(index, 2)) for index in (0, 1))
    assert [row is None for row in first] == [False, False, True, True, True]
    assert [row is None for row in second] == [True, True, False, False, False]
    assert [row or other_row for row, other_row in zip(first, second, strict=True)] == decode(KEYED, data)


def test_an_update_that_moves_a_row_to_another_shard() -> None:
    data = text_row(1, "a") + text_row(BLOCK, "b")
    assert decode(KEYED, data, "update", owner=(0, 2)) == [{"id": 1, "t": "a"}, None]
    assert decode(KEYED, data, "update", owner=(1, 2)) == [None, {"id": BLOCK, "t": "b"}]


def test_an_image_without_the_key_belongs_where_the_one_before_does() -> None:
    data = b"\xfe" + pack("<i", BLOCK) + b"\xfe\x01x"
    for index, expected in ((0, [None, None]), (1, [{"id": BLOCK}, {"t": "x"}])):
        assert decode(KEYED, data, "update", present=b"\x01", present_after=b"\x02", owner=(index, 2)) == expected


def test_owner_columns_behind_others_and_of_every_size() -> None:
    for code, size, unsigned in (
        (codes.TINY, 1, True),
        (codes.SHORT, 2, True),
        (codes.INT24, 3, False),
        (codes.LONGLONG, 8, True),
    ):
        key = MySqlColumn(name="k", type=code, nullable=False, unsigned=unsigned)
        definition = table(TEXT, key, MySqlColumn(name="z", type=codes.DOUBLE), key=("k",))
        number = (-5 if not unsigned else 200) % (1 << 8 * size)
        data = (
            b"\xf8\x01q" + number.to_bytes(size, "little") + pack("<d", 1.5) + b"\xfd" + number.to_bytes(size, "little")
        )
        options = mysql_values(bigint_unsigned_mode="precise")
        signed = -5 if not unsigned else 200
        shard = (signed & (1 << 64) - 1) // BLOCK % 3
        for index in range(3):
            rows = decode(definition, data, owner=(index, 3), options=options)
            assert rows == (
                [{"t": "q", "k": signed, "z": 1.5}, {"t": None, "k": signed, "z": None}]
                if index == shard
                else [None, None]
            )


def test_a_table_that_is_not_divided_belongs_to_one_shard() -> None:
    definition = table(ID, TEXT)
    data = text_row(1, "a") + text_row(2, None)
    for index in range(2):
        rows = decode(definition, data, owner=(index, 2))
        assert rows == (decode(definition, data) if index == shard_of_table(NAME, 2) else [None, None])


def test_a_bad_row_does_not_take_the_others_with_it() -> None:
    definition = table(ID, TEXT, MySqlColumn(name="e", type=codes.ENUM, meta=1, members=("a",)))
    rows = [b"\xf8" + pack("<i", number) + b"\x01t" + bytes([member]) for number, member in enumerate((1, 2, 0, 9))]
    with pytest.raises(
        BadRow, match=r"row 1 of a rows event of shop.orders: column e can't be decoded.*1 more"
    ) as caught:
        decode(definition, b"".join(rows))
    error = caught.value
    assert error.rows == [{"id": 0, "t": "t", "e": "a"}, None, {"id": 2, "t": "t", "e": ""}, None]
    assert (error.row, error.column, error.raw) == (1, "e", rows[1])
    assert [row for row, *_ in error.bad] == [1, 3]
    with pytest.raises(BadRow) as caught:
        decode(definition, rows[0] + rows[1] + rows[2] + rows[0], "update")
    assert caught.value.rows == [None, None, {"id": 2, "t": "t", "e": ""}, {"id": 0, "t": "t", "e": "a"}]


@pytest.mark.parametrize("cut", [1, 3, 7])
def test_bytes_of_another_structure_are_fatal(cut: int) -> None:
    data = text_row(1, "abc") + text_row(2, "def")
    with pytest.raises(Fatal, match="does not have the structure"):
        decode(table(ID, TEXT), data[:-cut])


def test_invalid_text_by_policy() -> None:
    definition = table(ID, TEXT)
    data = b"\xfc" + pack("<i", 1) + b"\x03a\xffb" + text_row(2, "ok")
    assert decode(definition, data) == [{"id": 1, "t": "a�b"}, {"id": 2, "t": "ok"}]
    assert decode(definition, data, options=mysql_values(charset_errors="ignore"))[0] == {"id": 1, "t": "ab"}
    with pytest.raises(BadRow, match="column t") as caught:
        decode(definition, data, options=mysql_values(charset_errors="strict"))
    assert caught.value.rows == [None, {"id": 2, "t": "ok"}]


def test_an_invalid_date_is_a_bad_row_or_the_epoch() -> None:
    definition = table(ID, MySqlColumn(name="d", type=codes.DATE))
    data = b"\xfc" + pack("<i", 1) + (2023 << 9 | 2 << 5 | 31).to_bytes(3, "little")
    with pytest.raises(BadRow, match=r"2023-02-31 is no date.*failure.handling.mode"):
        decode(definition, data)
    assert decode(definition, data, options=mysql_values(invalid_dates="epoch")) == [{"id": 1, "d": 0}]


def test_times_without_a_form_in_their_mode() -> None:
    free, bound = MySqlColumn(name="c", type=codes.TIME2), MySqlColumn(name="c", type=codes.TIME2, nullable=False)
    data = b"\xfe" + (0x800000 - 1).to_bytes(3)
    connect = mysql_values(time_mode="connect")
    assert decode(table(free), data, options=connect) == [{"c": None}]
    for column, options in ((bound, connect), (free, mysql_values(time_mode="connect", failures="fail"))):
        with pytest.raises(BadRow, match=r"time.precision.mode=connect"):
            decode(table(column), data, options=options)


def test_temporal_forms_from_before_mysql_5_6() -> None:
    definition = table(
        MySqlColumn(name="ts", type=codes.TIMESTAMP),
        MySqlColumn(name="dt", type=codes.DATETIME),
        MySqlColumn(name="t", type=codes.TIME),
        MySqlColumn(name="nd", type=codes.NEWDATE),
        MySqlColumn(name="z", type=codes.DATETIME),
    )
    data = (
        b"\xe0"
        + pack("<I", 1714979289)
        + pack("<q", 20240506070809)
        + (-8385959 & 0xFFFFFF).to_bytes(3, "little")
        + (2024 << 9 | 2 << 5 | 29).to_bytes(3, "little")
        + pack("<q", 0)
    )
    assert decode(definition, data) == [
        {"ts": "2024-05-06T07:08:09Z", "dt": 1714979289000, "t": -3020399000000, "nd": 19782, "z": None}
    ]
    [iso_row] = decode(definition, data, options=mysql_values(time_mode="isostring"))
    assert (iso_row["dt"], iso_row["nd"]) == ("2024-05-06T07:08:09Z", "2024-02-29Z")
    [nano_row] = decode(definition, data, options=mysql_values(time_mode="nanoseconds"))
    assert nano_row["dt"] == 1714979289 * 10**9
    old = MySqlColumn(name="ts", type=codes.TIMESTAMP, declared="timestamp(3) /* mariadb-5.3 */")
    with pytest.raises(Fatal, match="FORCE"):
        compile_rows(table(old), plans(table(old)), OPTIONS, kind="write", present=b"\x01")


def test_types_of_mysql_alone() -> None:
    definition = table(
        MySqlColumn(name="v", type=codes.VECTOR, meta=4),
        MySqlColumn(name="g", type=codes.GEOMETRY, meta=4, geometry=1),
        MySqlColumn(name="n", type=codes.DECIMAL, meta=5 << 8 | 5),
    )
    wkb = b"\x01" + pack("<Idd", 1, 1.0, -2.0)
    data = b"\xf8" + pack("<I2f", 8, 1.5, -2.0) + pack("<II", 25, 4326) + wkb + b"\x7f\xfe\x0c"
    [row] = decode(definition, data)
    assert row["v"] == [1.5, -2.0]
    assert row["g"] == {"x": 1.0, "y": -2.0, "wkb": wkb, "srid": 4326}
    assert str(row["n"]) == str(Decimal("-0.00499"))


def test_names_are_quoted_in_the_source() -> None:
    quoted_name = 'it\'s "a" \\ {name}\n'
    assert decode(table(MySqlColumn(name=quoted_name, type=codes.TINY)), b"\xfe\x05") == [{quoted_name: 5}]


def test_a_type_that_is_unknown_is_refused_by_name() -> None:
    definition = table(MySqlColumn(name="array", type=243))
    with pytest.raises(Fatal, match=r"column array has the type type 243.*column.exclude.list"):
        compile_rows(definition, plans(definition), OPTIONS, kind="write", present=b"\x01")


def stored_decimal(number: int, precision: int, scale: int) -> bytes:
    """A DECIMAL as MySQL stores it, built digit by digit from its documentation."""
    digits = str(abs(number)).rjust(precision, "0")
    whole, part = digits[: precision - scale], digits[precision - scale :]
    first = len(whole) % 9
    groups = [whole[:first], *(whole[at : at + 9] for at in range(first, len(whole), 9))]
    groups += [part[at : at + 9] for at in range(0, len(part), 9)]
    data = bytearray(
        b"".join(int(group).to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[len(group)]) for group in groups if group)
    )
    data[0] ^= 0x80
    return bytes(byte ^ 0xFF for byte in data) if number < 0 else bytes(data)


@pytest.mark.parametrize("precision", range(1, 66))
def test_decimals_of_every_precision_and_scale(precision: int) -> None:
    largest = 10**precision - 1
    for scale in range(min(precision, 38) + 1):
        one_column = table(MySqlColumn(name="n", type=codes.DECIMAL, meta=precision << 8 | scale, nullable=False))
        numbers = [0, 1, -1, largest, -largest, largest // 7, -(largest // 3), 10 ** (precision // 2)]
        data = b"".join(b"\xfe" + stored_decimal(number, precision, scale) for number in numbers)
        assert [str(row["n"]) for row in decode(one_column, data)] == [str(Decimal(f"{n}e-{scale}")) for n in numbers]
