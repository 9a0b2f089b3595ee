"""Connect schemas of CQL types are those that the Java connector's advanced format has.

The expected forms are those of its recorded output (names with PREFIX.g.<table> in front); types that it never had (vectors)
follow the same rules.
"""

import pytest

from connectors import schema
from connectors.cql.schemas import connect_schema, type_name
from connectors.cql.types import CqlType, parse_type, timed_list, udt_resolver
from connectors.errors import Fatal

RESOLVE = udt_resolver(
    "g",
    {
        "addr": (["street", "zip"], ["text", "int"]),
        "person": (["name", "home", "tags"], ["text", "frozen<addr>", "frozen<set<text>>"]),
        "a.b-c": (["x"], ["int"]),
    },
)
PREFIX = "PREFIX.g.t."
ADDR = schema.struct(
    PREFIX + "UDT_addr", {"street": schema.OPTIONAL_STRING, "zip": schema.OPTIONAL_INT32}, optional=True
)


def of(text: str) -> schema.Schema:
    return connect_schema(parse_type(text, RESOLVE, keyspace="g"), name_prefix=PREFIX)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ascii", schema.OPTIONAL_STRING),
        ("decimal", schema.OPTIONAL_STRING),
        ("inet", schema.OPTIONAL_STRING),
        ("duration", schema.OPTIONAL_STRING),
        ("varint", schema.OPTIONAL_STRING),
        ("timeuuid", schema.OPTIONAL_STRING),
        ("tinyint", schema.OPTIONAL_INT8),
        ("smallint", schema.OPTIONAL_INT16),
        ("time", schema.OPTIONAL_INT64),
        ("counter", schema.OPTIONAL_INT64),
        ("blob", schema.OPTIONAL_BYTES),
        ("float", schema.OPTIONAL_FLOAT32),
        ("date", schema.date(optional=True)),
        ("timestamp", schema.timestamp(optional=True)),
        ("'com.example.Type'", schema.OPTIONAL_BYTES),
        ("list<int>", schema.array(schema.OPTIONAL_INT32, optional=True)),
        ("frozen<set<text>>", schema.array(schema.OPTIONAL_STRING, optional=True)),
        ("vector<float, 3>", schema.array(schema.OPTIONAL_FLOAT32, optional=True)),
        (
            "map<timeuuid, text>",
            schema.array(
                schema.struct(
                    PREFIX + "MapEntry_TIMEUUID_VARCHAR",
                    {"key": schema.OPTIONAL_STRING, "value": schema.OPTIONAL_STRING},
                ),
                optional=True,
            ),
        ),
        (
            "map<int, frozen<list<text>>>",
            schema.array(
                schema.struct(
                    PREFIX + "MapEntry_INT_List_VARCHAR",
                    {"key": schema.OPTIONAL_INT32, "value": schema.array(schema.OPTIONAL_STRING, optional=True)},
                ),
                optional=True,
            ),
        ),
        (
            "frozen<tuple<int,text,frozen<list<int>>>>",
            schema.struct(
                PREFIX + "Tuple_INT_VARCHAR_List_INT",
                {
                    "field_0": schema.OPTIONAL_INT32,
                    "field_1": schema.OPTIONAL_STRING,
                    "field_2": schema.array(schema.OPTIONAL_INT32, optional=True),
                },
                optional=True,
            ),
        ),
        ("addr", ADDR),
        (
            "frozen<person>",
            schema.struct(
                PREFIX + "UDT_person",
                {
                    "name": schema.OPTIONAL_STRING,
                    "home": ADDR,
                    "tags": schema.array(schema.OPTIONAL_STRING, optional=True),
                },
                optional=True,
            ),
        ),
    ],
)
def test_schema(text: str, expected: schema.Schema) -> None:
    assert of(text) == expected


def test_equal_types_share_one_schema() -> None:
    assert of("map<text, frozen<person>>") is of("map<text,frozen<person>>")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("text", "VARCHAR"),
        ("map<text,int>", "Map_VARCHAR_INT"),
        ("set<frozen<addr>>", "Set_UDT_addr"),
        ('frozen<"a.b-c">', "UDT_a_b_c"),
        ("tuple<int,tuple<text>>", "Tuple_INT_Tuple_VARCHAR"),
        ("vector<float, 3>", "Vector_FLOAT_3"),
    ],
)
def test_type_names(text: str, name: str) -> None:
    assert type_name(parse_type(text, RESOLVE, keyspace="g")) == name


def test_decoding_forms_and_unknown_types() -> None:
    assert connect_schema(timed_list(CqlType("int")), name_prefix=PREFIX) == of("list<int>")
    with pytest.raises(Fatal, match="no Connect schema"):
        connect_schema(CqlType("hyperlog"), name_prefix=PREFIX)
