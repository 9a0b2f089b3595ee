"""Types by their Java classes and by the protocol's numbers, read from bytes as a server sends them."""

import io
import struct

import pytest

from connectors.cql.marshal import PACKAGE, parse_class, read_type
from connectors.cql.types import CqlType, UnknownType, freeze_type, parse_type, to_text

INT, TEXT = CqlType("int"), CqlType("text")
ADDR = CqlType("udt", (TEXT, INT), keyspace="ks", udt_name="addr", field_names=("street", "zip"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("org.apache.cassandra.db.marshal.UTF8Type", TEXT),
        ("Int32Type", INT),
        ("ReversedType(org.apache.cassandra.db.marshal.TimestampType)", CqlType("timestamp")),
        ("MapType(UTF8Type,ListType(Int32Type))", CqlType("map", (TEXT, CqlType("list", (INT,))))),
        ("FrozenType(MapType(UTF8Type, ListType(Int32Type)))", parse_type("frozen<map<text, list<int>>>")),
        ("TupleType(Int32Type,UTF8Type)", parse_type("tuple<int, text>")),
        ("VectorType(org.apache.cassandra.db.marshal.FloatType , 3)", parse_type("vector<float, 3>")),
        ("VectorType(VectorType(UTF8Type , 1) , 2)", parse_type("vector<vector<text, 1>, 2>")),
        ("UserType(ks,61646472,737472656574:UTF8Type,7a6970:Int32Type)", ADDR),
        ("FrozenType(UserType(ks,61646472,737472656574:UTF8Type,7a6970:Int32Type))", freeze_type(ADDR)),
        ("com.example.Own(a,b(c))", CqlType("custom", class_name="com.example.Own(a,b(c))")),
        ("LexicalUUIDType", CqlType("custom", class_name="LexicalUUIDType")),
    ],
)
def test_classes(text: str, kind: CqlType) -> None:
    assert parse_class(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "ListType(Int32Type",
        "ListType(a(b)",
        "ListType(a)b)",
        "VectorType(FloatType)",
        "UserType(ks)",
        "UserType(ks,zz,00:Int32Type)",
        "UserType(ks,61,61Int32Type)",
    ],
)
def test_classes_that_make_no_sense(text: str) -> None:
    with pytest.raises(UnknownType):
        parse_class(text)


def short(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}H", *numbers)


def string(text: str) -> bytes:
    return short(len(text.encode())) + text.encode()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (short(9), "int"),
        (short(13), "text"),
        (short(10), "text"),
        (short(0x15), "duration"),
        (short(0x20, 9), "list<int>"),
        (short(0x22, 15), "set<timeuuid>"),
        (short(0x21, 13, 0x20, 2), "map<text, list<bigint>>"),
        (short(0x31, 2, 9, 13), "frozen<tuple<int, text>>"),
        (short(0) + string(PACKAGE + "DurationType"), "duration"),
        (short(0) + string("VectorType(FloatType"), "'VectorType(FloatType'"),
        (short(0x30) + string("k") + string("Ü") + short(1) + string("f") + short(9), '"Ü"'),
    ],
)
def test_numbers(data: bytes, text: str) -> None:
    stream = io.BytesIO(data + b"rest")
    assert to_text(read_type(stream.read)) == text
    assert stream.read() == b"rest"


def test_unknown_number() -> None:
    with pytest.raises(UnknownType, match="0x0077"):
        read_type(io.BytesIO(short(0x77)).read)
