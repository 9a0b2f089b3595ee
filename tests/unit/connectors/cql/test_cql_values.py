"""Bytes to values and back.

hypothesis: over random nested types and values of them, decoding what was encoded gives the value; our bytes are those of the
driver's own encoder where it can encode the value, and rows cut by C and by Python are equal; decoders of broken bytes raise
only ValueError and struct.error, and rows with them give BadCell.
"""

import random
import struct
from decimal import Decimal
from typing import Any

import pytest
from cassandra import cqltypes
from cassandra.util import Date, Duration, Time
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.cql.encoding import (
    NotEncodable,
    encode_partition_key,
    join_partition_key,
    make_encoder,
    signed_vint,
    split_partition_key,
    unsigned_vint,
)
from connectors.cql.rows import HAVE_C, CqlRowDecoder, RawRows
from connectors.cql.types import CqlType, freeze_type, parse_type, raw_timeuuids, timed_list
from connectors.cql.values import (
    BadCell,
    decimal_text,
    duration_text,
    make_decoder,
    read_unsigned_vint,
    read_vint,
    timeuuid_order,
)
from connectors.errors import Fatal, Retriable
from tests.unit.connectors.cql.strategies import TYPES, same, typed_values, values

NULL = b"\xff\xff\xff\xff"
WIDTHS = {"tinyint": 1, "smallint": 2, "int": 4, "float": 4, "bigint": 8, "double": 8, "timestamp": 8, "time": 8}


def cell(data: bytes | None) -> bytes:
    return NULL if data is None else struct.pack(">i", len(data)) + data


def body(*rows: list[bytes | None]) -> bytes:
    return struct.pack(">i", len(rows)) + b"".join(cell(data) for row in rows for data in row)


@given(typed_values())
def test_round_trip(pair: tuple[CqlType, Any]) -> None:
    kind, value = pair
    assert same(make_decoder(kind)(make_encoder(kind)(value)), value)


@given(typed_values())
def test_python_and_c_cut_rows_alike(pair: tuple[CqlType, Any]) -> None:
    kind, value = pair
    data = body([make_encoder(kind)(value), None, b"\x01\x02"], [None, b"", None])
    kinds = [kind, CqlType("text"), None]
    rows = CqlRowDecoder(["a", "b", "c"], kinds).decode(data)
    assert rows == CqlRowDecoder(["a", "b", "c"], kinds, use_c=False).decode(data)
    assert same(rows[0][0], value)
    assert rows[0][1:] == (None, b"\x01\x02")
    assert rows[1] == (None, "", None)


@given(TYPES, st.binary(max_size=64))
@example(CqlType("int"), b"\0\0\0\1x")
def test_garbage_is_a_bad_cell_or_a_value(kind: CqlType, data: bytes) -> None:
    try:
        expected = make_decoder(kind)(data)
    except (ValueError, struct.error):
        expected = BadCell
    for use_c in {HAVE_C, False}:
        ((value, after),) = CqlRowDecoder(["a", "b"], [kind, CqlType("int")], use_c=use_c).decode(
            body([data, b"\0\0\0\7"])
        )
        assert after == 7
        if use_c and kind.name in WIDTHS and len(data) > WIDTHS[kind.name]:
            # C takes the bytes it needs and leaves the rest; servers never store such a cell.
            assert not isinstance(value, BadCell)
        elif expected is BadCell:
            assert isinstance(value, BadCell)
            assert value.raw == data
        elif kind.name not in {"boolean", "float", "double"}:
            assert value == expected


_DRIVER = {
    "ascii": cqltypes.AsciiType,
    "text": cqltypes.UTF8Type,
    "blob": cqltypes.BytesType,
    "boolean": cqltypes.BooleanType,
    "tinyint": cqltypes.ByteType,
    "smallint": cqltypes.ShortType,
    "int": cqltypes.Int32Type,
    "bigint": cqltypes.LongType,
    "double": cqltypes.DoubleType,
    "float": cqltypes.FloatType,
    "varint": cqltypes.IntegerType,
    "inet": cqltypes.InetAddressType,
    "date": cqltypes.SimpleDateType,
    "time": cqltypes.TimeType,
    "decimal": cqltypes.DecimalType,
}
_TO_DRIVER: dict[str, Any] = {"varint": int, "date": Date, "time": Time, "decimal": Decimal}


def driver_type(kind: CqlType) -> Any:
    if kind.name in _DRIVER:
        return _DRIVER[kind.name]
    base = {"list": cqltypes.ListType, "set": cqltypes.SetType, "map": cqltypes.MapType, "tuple": cqltypes.TupleType}[
        kind.name
    ]
    return base.apply_parameters([driver_type(member) for member in kind.arguments])


def driver_value(kind: CqlType, value: Any) -> Any:
    if value is None:
        return None
    if kind.name in {"list", "set"}:
        return [driver_value(kind.arguments[0], member) for member in value]
    if kind.name == "map":
        key, item = kind.arguments
        return [(driver_value(key, entry["key"]), driver_value(item, entry["value"])) for entry in value]
    if kind.name == "tuple":
        return tuple(driver_value(member, value[f"field_{index}"]) for index, member in enumerate(kind.arguments))
    return _TO_DRIVER.get(kind.name, lambda same_: same_)(value)


def _known_to_driver(names: tuple[str, ...]) -> st.SearchStrategy[CqlType]:
    natives = st.sampled_from(names).map(CqlType)
    return st.recursive(
        natives,
        lambda inner: st.one_of(
            inner.map(lambda member: CqlType("list", (member,))),
            st.lists(inner, min_size=1, max_size=3).map(lambda members: freeze_type(CqlType("tuple", tuple(members)))),
        ),
        max_leaves=4,
    )


@given(_known_to_driver(tuple(_DRIVER)).flatmap(lambda kind: st.tuples(st.just(kind), values(kind))))
def test_bytes_are_the_drivers(pair: tuple[CqlType, Any]) -> None:
    kind, value = pair
    assert make_encoder(kind)(value) == driver_type(kind).serialize(driver_value(kind, value), 4)


@given(st.integers(0, (1 << 64) - 1))
def test_unsigned_vint(number: int) -> None:
    data = unsigned_vint(number)
    assert read_unsigned_vint(data + b"x", 0) == (number, len(data))
    assert len(data) == min(9, max(1, (number.bit_length() + 6) // 7))


@given(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_duration_bytes_are_the_drivers(months: int, days: int, nanos: int) -> None:
    data = signed_vint(months) + signed_vint(days) + signed_vint(nanos)
    assert data == cqltypes.DurationType.serialize(Duration(months, days, nanos), 4)
    assert read_vint(data, 0)[0] == months


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((14, 25, ((5 * 60 + 6) * 60 + 7) * 10**9 + 8_009_010), "1y2mo25d5h6m7s8ms9us10ns"),
        ((0, 0, 0), ""),
        ((-1, 0, 0), "-1mo"),
        ((0, -8, -1), "-8d1ns"),
        ((12, 0, 0), "1y"),
        ((0, 30, 3_600_000_000_000 * 50), "30d50h"),
        ((-(1 << 31), 0, -(1 << 63)), "-178956970y8mo2562047h47m16s854ms775us808ns"),
    ],
)
def test_duration_text(parts: tuple[int, int, int], text: str) -> None:
    assert duration_text(*parts) == text


@pytest.mark.parametrize(
    ("unscaled", "scale", "text"),
    [
        # Expected strings are those of Java's BigDecimal.toString.
        (12300, 4, "1.2300"),
        (0, 0, "0"),
        (0, 2, "0.00"),
        (0, -2, "0E+2"),
        (0, 7, "0E-7"),
        (0, 6, "0.000000"),
        (1, -3, "1E+3"),
        (123, -1, "1.23E+3"),
        (-123, -10, "-1.23E+12"),
        (123, 9, "1.23E-7"),
        (123, 8, "0.00000123"),
        (-5, 1, "-0.5"),
        (5, 2147483647, "5E-2147483647"),
        (5, -2147483648, "5E+2147483648"),
        (-100, 2, "-1.00"),
        (10**30, 0, "1" + "0" * 30),
    ],
)
def test_decimal_text(unscaled: int, scale: int, text: str) -> None:
    assert decimal_text(unscaled, scale) == text
    kind = CqlType("decimal")
    data = struct.pack(">i", scale) + make_encoder(CqlType("varint"))(str(unscaled))
    assert make_decoder(kind)(data) == text
    if abs(scale) < 1000:
        assert make_encoder(kind)(text) == data


def test_long_numbers_and_texts() -> None:
    kind, number = CqlType("varint"), -(7**20_000)
    text = make_decoder(kind)(number.to_bytes(8000, "big", signed=True))
    assert text == str(Decimal(number))
    assert int.from_bytes(make_encoder(kind)(text), "big", signed=True) == number
    long = "é" * (8 << 20)
    rows = CqlRowDecoder(["a"], [CqlType("text")]).decode(body([long.encode()]))
    assert rows == [(long,)]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (bytes([127, 0, 0, 1]), "127.0.0.1"),
        (bytes(15) + b"\1", "0:0:0:0:0:0:0:1"),
        (bytes(16), "0:0:0:0:0:0:0:0"),
        (bytes.fromhex("20010db8000000000000ff0000428329"), "2001:db8:0:0:0:ff00:42:8329"),
        (bytes(10) + b"\xff\xff\x01\x02\x03\x04", "1.2.3.4"),
    ],
)
def test_inet_as_java_prints_it(data: bytes, text: str) -> None:
    assert make_decoder(CqlType("inet"))(data) == text


@pytest.mark.parametrize(
    ("data", "days"),
    [
        (b"\x80\0\0\0", 0),
        (b"\0\0\0\0", -(1 << 31)),
        (b"\xff\xff\xff\xff", (1 << 31) - 1),
        ((0x80000000 - 141428).to_bytes(4, "big"), -141428),
    ],
)  # 1582-10-14
def test_dates(data: bytes, days: int) -> None:
    assert make_decoder(CqlType("date"))(data) == days
    assert make_encoder(CqlType("date"))(days) == data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("int", None),
        ("bigint", None),
        ("boolean", None),
        ("uuid", None),
        ("timeuuid", None),
        ("decimal", None),
        ("varint", None),
        ("inet", None),
        ("duration", None),
        ("date", None),
        ("time", None),
        ("timestamp", None),
        ("float", None),
        ("double", None),
        ("smallint", None),
        ("tinyint", None),
        ("counter", None),
        ("empty", None),
        ("text", ""),
        ("ascii", ""),
        ("blob", b""),
        ("list<int>", []),
        ("set<int>", []),
        ("map<int,int>", []),
        ("tuple<int,text>", {"field_0": None, "field_1": None}),
        ("vector<float, 2>", None),
        ("vector<text, 2>", None),
    ],
)
def test_zero_bytes(text: str, value: Any) -> None:
    kind = parse_type(text)
    for use_c in {HAVE_C, False}:
        assert CqlRowDecoder(["a"], [kind], use_c=use_c).decode(body([b""])) == [(value,)]


def test_nulls_inside_and_fields_that_came_later() -> None:
    old = CqlType("udt", (CqlType("text"), CqlType("int")), keyspace="k", udt_name="u", field_names=("a", "b"))
    new = CqlType("udt", (*old.arguments, CqlType("int")), keyspace="k", udt_name="u", field_names=("a", "b", "c"))
    data = make_encoder(old)({"a": "x", "b": None})
    assert make_decoder(new)(data) == {"a": "x", "b": None, "c": None}
    grown = make_encoder(new)({"a": "x", "b": 1, "c": 2})
    assert make_decoder(old)(grown) == {"a": "x", "b": 1}
    assert make_decoder(parse_type("list<int>"))(struct.pack(">i", 2) + NULL + cell(b"\0\0\0\1")) == [None, 1]
    assert make_decoder(parse_type("map<int,int>"))(struct.pack(">i", 1) + cell(b"\0\0\0\1") + NULL) == [
        {"key": 1, "value": None}
    ]
    assert make_decoder(parse_type("tuple<int,int>"))(NULL) == {"field_0": None, "field_1": None}


def test_vectors() -> None:
    fixed, variable = parse_type("vector<float, 3>"), parse_type("vector<smallint, 2>")
    assert make_encoder(fixed)([1.0, -2.5, 0.0]) == struct.pack(">3f", 1.0, -2.5, 0.0)
    # Cassandra writes the length of elements whose type it does not call fixed, smallint among them.
    assert make_encoder(variable)([1, -1]) == b"\x02\x00\x01\x02\xff\xff"
    assert make_decoder(parse_type("vector<vector<int, 2>, 2>"))(struct.pack(">4i", 1, 2, 3, 4)) == [[1, 2], [3, 4]]
    assert make_decoder(parse_type("vector<boolean, 2>"))(b"\1\0") == [True, False]
    with pytest.raises(NotEncodable):
        make_encoder(fixed)([1.0])


def test_timed_list_is_sorted_by_time_then_signed_bytes() -> None:
    def named(time: int, tail: int) -> bytes:
        low, middle, high = time & 0xFFFFFFFF, time >> 32 & 0xFFFF, time >> 48 | 0x1000
        return struct.pack(">IHHQ", low, middle, high, tail)

    # The newest low half belongs to the oldest time; of equal times negative bytes come first, and 0x7f after 0x01.
    ordered = [
        named(0x0FFFFFFFF, 1),
        named(0x100000000, 0x80 << 56),
        named(0x100000000, 1),
        named(0x100000000, 0x7F << 56),
        named(0xFFFFFFFFFFFFFFF, 0),
    ]
    shuffled = random.Random(4).sample(list(enumerate(ordered)), len(ordered))
    data = struct.pack(">i", len(ordered)) + b"".join(
        cell(name) + cell(struct.pack(">i", index)) for index, name in shuffled
    )
    assert make_decoder(timed_list(CqlType("int")))(data) == [(name, index) for index, name in enumerate(ordered)]
    assert sorted(ordered, key=timeuuid_order) == ordered
    assert make_decoder(raw_timeuuids())(struct.pack(">i", 1) + cell(ordered[0])) == [ordered[0]]


def test_bad_cells_do_not_kill_the_page() -> None:
    kinds = [CqlType("text"), CqlType("int"), CqlType("ascii"), CqlType("uuid")]
    data = body([b"\xff\xfe", b"\0\0\0\1", b"a", bytes(16)], [b"good", b"\0", b"\x80", b"short"])
    first, second = CqlRowDecoder(["a", "b", "c", "d"], kinds).decode(data)
    assert isinstance(first[0], BadCell)
    assert isinstance(first[0].error, UnicodeDecodeError)
    assert first[0].raw == b"\xff\xfe"
    assert first[1:] == (1, "a", "00000000-0000-0000-0000-000000000000")
    assert second[0] == "good"
    assert all(isinstance(cell, BadCell) for cell in second[1:])


@given(st.data())
def test_a_cut_page_is_retriable(data: st.DataObject) -> None:
    whole = body([b"\0\0\0\1", b"abc"], [None, b""], [b"\0\0\0\2", b"x"])
    cut = data.draw(st.integers(0, len(whole) - 1))
    for use_c in {HAVE_C, False}:
        with pytest.raises(Retriable, match="a page of"):
            CqlRowDecoder(["a", "b"], [CqlType("int"), CqlType("text")], use_c=use_c).decode(whole[:cut])


def test_raw_rows_know_their_number() -> None:
    assert RawRows(None, body([b""], [b""]), None).count == 2


def test_unknown_types_and_wrong_numbers() -> None:
    with pytest.raises(Fatal, match="not known"):
        make_decoder(CqlType("hyperlog"))
    with pytest.raises(Fatal):
        make_encoder(CqlType("hyperlog"))
    with pytest.raises(ValueError, match="2 types for 1"):
        CqlRowDecoder(["a"], [None, None])


def test_a_short_text_makes_no_enormous_number() -> None:
    encode = make_encoder(CqlType("varint"))
    assert encode("1E3") == encode(1000)
    assert encode("9" * 200_000) == encode(10**200_000 - 1)
    for kind, digits in (("varint", "1E999999999"), ("decimal", "1E-9999999999"), ("decimal", "1E9999999999")):
        with pytest.raises(NotEncodable):
            make_encoder(CqlType(kind))(digits)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_partition_keys(parts: list[bytes]) -> None:
    assert split_partition_key(join_partition_key(parts), len(parts)) == parts


def test_partition_key_framing() -> None:
    kinds = [CqlType("int"), CqlType("text")]
    assert encode_partition_key(kinds[:1], [7]) == b"\0\0\0\7"
    assert encode_partition_key(kinds, [7, "ab"]) == b"\0\4\0\0\0\7\0\0\2ab\0"
    with pytest.raises(NotEncodable):
        join_partition_key([b"x" * 65536, b""])
    for broken in (b"\0\4\0\0", b"\0\1a\0\0\1b\0x"):
        with pytest.raises(NotEncodable):
            split_partition_key(broken, 2)
