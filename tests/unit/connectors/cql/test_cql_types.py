"""Type strings of system_schema to types and back.

hypothesis: for random types (nested, quoted names, frozen or not) the text of a type is parsed to an equal type.
"""

import pytest
from hypothesis import given

from connectors.cql.types import (
    CqlType,
    UnknownType,
    freeze_type,
    has_newer_fields,
    parse_type,
    quote_name,
    raw_timeuuids,
    same_on_the_wire,
    timed_list,
    to_text,
    udt_resolver,
)
from tests.unit.connectors.cql.strategies import TYPES

INT, TEXT = CqlType("int"), CqlType("text")
ADDR = CqlType("udt", (TEXT, INT), keyspace="k", udt_name="addr", field_names=("street", "zip"))
RESOLVE = udt_resolver(
    "k",
    {
        "addr": (["street", "zip"], ["text", "int"]),
        'Odd "Name': (["Home.Addr"], ["frozen<addr>"]),
        "deep": (["a", "l"], ["frozen<addr>", 'frozen<list<frozen<"Odd ""Name">>>']),
        "loop": (["x"], ["frozen<loop>"]),
        "broken": (["x"], ["frozen<gone>"]),
    },
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int", INT),
        ("  TEXT ", TEXT),
        ("varchar", CqlType("varchar")),
        ("list<int>", CqlType("list", (INT,))),
        ("map<text, frozen<set<int>>>", CqlType("map", (TEXT, CqlType("set", (INT,), frozen=True)))),
        ("frozen<map<text,list<int>>>", CqlType("map", (TEXT, CqlType("list", (INT,), frozen=True)), frozen=True)),
        ("tuple<int, text>", CqlType("tuple", (INT, TEXT), frozen=True)),
        ("frozen<tuple<int, text>>", CqlType("tuple", (INT, TEXT), frozen=True)),
        ("vector<float, 3>", CqlType("vector", (CqlType("float"),), frozen=True, dimension=3)),
        ("addr", ADDR),
        ("k.addr", ADDR),
        ("frozen<addr>", freeze_type(ADDR)),
        ("list<frozen<addr>>", CqlType("list", (freeze_type(ADDR),))),
        (
            "'org.apache.cassandra.db.marshal.DynamicCompositeType(s=>UTF8Type)'",
            CqlType("custom", class_name="org.apache.cassandra.db.marshal.DynamicCompositeType(s=>UTF8Type)"),
        ),
        ("frozen<int>", INT),
    ],
)
def test_parses(text: str, kind: CqlType) -> None:
    assert parse_type(text, RESOLVE, keyspace="k") == kind


def test_quoted_udt_and_frozen_inward() -> None:
    deep = parse_type("frozen<deep>", RESOLVE, keyspace="k")
    assert deep.frozen
    udt = deep.arguments[1].arguments[0]
    assert (udt.udt_name, udt.field_names, udt.frozen) == ('Odd "Name', ("Home.Addr",), True)
    assert udt.arguments[0] == freeze_type(ADDR)
    loose = parse_type("deep", RESOLVE, keyspace="k")
    assert not loose.frozen
    assert loose.is_multicell
    assert freeze_type(loose) == deep
    assert to_text(CqlType("list", (udt,))) == 'list<frozen<"Odd ""Name">>'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "list<>",
        "list<int",
        "map<int>",
        "list<int,int>",
        "gone",
        "int>",
        "vector<float>",
        "vector<float, 0>",
        "frozen<>",
        "tuple<>",
        "other.addr",
        "lis t<int>",
        "int;",
        "broken",
        "loop",
        "set<int> x",
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(UnknownType) as caught:
        parse_type(text, RESOLVE, keyspace="k")
    assert "k" in str(caught.value)


@given(TYPES)
def test_text_round_trip(kind: CqlType) -> None:
    def resolve(name: str) -> CqlType | None:
        parts = [part for part in _all(kind) if part.name == "udt" and part.udt_name == name]
        return parts[0] if len(set(parts)) == 1 else None

    names = [part.udt_name for part in _all(kind) if part.name == "udt"]
    if len(names) != len(set(names)):
        return
    assert freeze_type(parse_type(to_text(freeze_type(kind)), resolve)) == freeze_type(kind)
    assert parse_type(to_text(kind), resolve).name == kind.name


def _all(kind: CqlType) -> list[CqlType]:
    return [kind, *(part for member in kind.arguments for part in _all(member))]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a_1", "a_1"),
        ("A", '"A"'),
        ("a b", '"a b"'),
        ('x"y', '"x""y"'),
        ("table", '"table"'),
        ("1a", '"1a"'),
        ("cdc$time", '"cdc$time"'),
    ],
)
def test_quote(name: str, text: str) -> None:
    assert quote_name(name) == text


def test_same_on_the_wire() -> None:
    grown = CqlType(
        "udt", (*ADDR.arguments, INT), keyspace="k", udt_name="addr", field_names=("street", "zip", "floor")
    )
    assert same_on_the_wire(CqlType("list", (ADDR,), frozen=True), CqlType("list", (grown,)))
    assert has_newer_fields(CqlType("list", (ADDR,)), CqlType("list", (grown,)))
    assert not has_newer_fields(CqlType("list", (grown,)), CqlType("list", (ADDR,)))
    assert same_on_the_wire(CqlType("varchar"), TEXT)
    assert not same_on_the_wire(INT, TEXT)
    assert not same_on_the_wire(CqlType("list", (INT,)), CqlType("set", (INT,)))
    assert same_on_the_wire(timed_list(ADDR), CqlType("map", (CqlType("timeuuid"), grown)))
    assert has_newer_fields(timed_list(ADDR), CqlType("map", (CqlType("timeuuid"), grown)))
    assert not same_on_the_wire(timed_list(ADDR), CqlType("list", (ADDR,)))
    assert same_on_the_wire(raw_timeuuids(), CqlType("set", (CqlType("timeuuid"),)))
