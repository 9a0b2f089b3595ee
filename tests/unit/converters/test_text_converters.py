"""StringConverter, ByteArrayConverter, SimpleHeaderConverter and the factory that makes all of them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.entry_points import own_entries
from connectors.errors import ConfigInvalid, Skippable
from connectors.formats.ums import date_text
from connectors.schema import BYTES, INT32, OPTIONAL_BYTES, OPTIONAL_STRING, STRING, Schema, date, struct
from tests.unit.converters.strategies import cases
from worker.converters.base import ENTRY_POINTS, HEADER_ENTRY_POINTS, create_converter, create_header_converter
from worker.converters.bytearray import ByteArrayConverter
from worker.converters.json import JsonConverter
from worker.converters.simple_header import SimpleHeaderConverter
from worker.converters.string import StringConverter
from worker.converters.values import parse_text, to_text

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("org.apache.kafka.connect.json.JsonConverter", JsonConverter),
        ("JsonConverter", JsonConverter),
        ("Json", JsonConverter),
        ("json", JsonConverter),
        (" org.apache.kafka.connect.storage.StringConverter ", StringConverter),
        ("org.apache.kafka.connect.converters.ByteArrayConverter", ByteArrayConverter),
        ("ByteArray", ByteArrayConverter),
    ],
)
def test_java_names_and_short_names_are_known(name: str, kind: type) -> None:
    assert isinstance(create_converter(name, {}, True), kind)


def test_another_package_offers_a_converter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shouting_converter.py").write_text(
        "from worker.converters.string import StringConverter\n\n\n"
        "class Shouting(StringConverter):\n"
        "    def encoder(self, topic, schema):\n"
        "        return lambda value: str(value).upper().encode()\n"
    )
    metadata = tmp_path / "shouting-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[millrace.converters]\nshouting = shouting_converter:Shouting\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("shouting", "Shouting", "shouting_converter:Shouting"):
        assert create_converter(name, {}, False).from_connect("t", None, "hey") == b"HEY"


def test_an_unknown_converter_names_the_property_and_what_there_is() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        create_converter("com.example.Nope", {}, False)
    text = str(caught.value)
    assert "value.converter" in text
    assert "com.example.Nope" in text
    assert "org.apache.kafka.connect.json.JsonConverter" in text


def test_a_header_converter_is_no_value_converter() -> None:
    with pytest.raises(ConfigInvalid, match=r"key\.converter"):
        create_converter("SimpleHeaderConverter", {}, True)
    converter = create_header_converter("org.apache.kafka.connect.storage.SimpleHeaderConverter", {})
    assert isinstance(converter, SimpleHeaderConverter)
    with pytest.raises(ConfigInvalid, match=r"header\.converter"):
        create_header_converter("io.confluent.connect.avro.AvroConverter", {"schema.registry.url": "http://x:1"})


def test_a_wrong_option_names_the_property_of_the_converter() -> None:
    with pytest.raises(ConfigInvalid, match=r"key\.converter .*schemas\.enable"):
        create_converter("JsonConverter", {"schemas.enable": "perhaps"}, True)
    with pytest.raises(ConfigInvalid, match=r"schema\.registry\.url"):
        create_converter("io.confluent.connect.avro.AvroConverter", {}, False)


@pytest.mark.parametrize(
    "entry", {**own_entries(ENTRY_POINTS), **own_entries(HEADER_ENTRY_POINTS)}.values(), ids=lambda entry: entry.name
)
def test_every_converter_declares_its_options_and_its_java_name(entry: EntryPoint) -> None:
    kind = entry.load()
    definition = kind.config_def
    assert kind.aliases[0].endswith(f".{entry.name}")
    # Kafka Connect's SimpleHeaderConverter has no options at all.
    assert ("converter.type" in definition.keys) is not entry.name.endswith("SimpleHeaderConverter")
    assert all(key.doc for key in definition.keys.values())


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_strings_pass_unchanged(text: str) -> None:
    converter = StringConverter({})
    assert converter.to_connect("t", converter.from_connect("t", STRING, text)) == (OPTIONAL_STRING, text)


def test_strings_of_other_values() -> None:
    converter = StringConverter({})
    schema = struct("S", {"a": INT32, "b": OPTIONAL_STRING})
    expected: list[tuple[Any, Any, bytes | None]] = [
        (None, {"a": [1, None, 2.0], "b": True}, b"{a=[1, null, 2.0], b=true}"),
        (schema, {"a": 1, "b": None}, b"Struct{a=1}"),
        (schema, {"b": "x", "a": 1}, b"Struct{a=1,b=x}"),
        (None, Decimal("1E+3"), b"1E+3"),
        (None, None, None),
        (date(), 0, b"Thu Jan 01 00:00:00 UTC 1970"),
    ]
    for kind, value, text in expected:
        assert converter.from_connect("t", kind, value) == text


def test_other_encodings_and_what_they_lack() -> None:
    assert StringConverter({"converter.encoding": "ISO-8859-1"}).from_connect("t", STRING, "ü€") == b"\xfc?"
    with pytest.raises(ConfigInvalid, match=r"converter\.encoding"):
        StringConverter({"converter.encoding": "no-such"})


def test_bytes_pass_unchanged_and_nothing_else_does() -> None:
    converter = ByteArrayConverter({})
    assert converter.from_connect("t", BYTES, bytearray(b"ab")) == b"ab"
    assert converter.from_connect("t", None, None) is None
    assert converter.to_connect("t", b"x") == (OPTIONAL_BYTES, b"x")
    with pytest.raises(Skippable, match="str"):
        converter.from_connect("t", None, "x")
    with pytest.raises(Skippable, match="STRING"):
        converter.encoder("t", STRING)


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (BYTES, b"x", "eA=="),
        (None, [b"x", None], '["eA==",null]'),
        (None, {"a": b"x"}, '{"a":"eA=="}'),
        (struct("s", {"b": BYTES}), {"b": b"x"}, '{"b":"eA=="}'),
    ],
)
def test_bytes_inside_of_something_are_quoted(schema: Schema | None, value: Any, text: str) -> None:
    """As Kafka 4.1.2's Values.convertToString writes them."""
    encoded = SimpleHeaderConverter({}).from_connect_header("t", "h", schema, value)
    assert encoded == text.encode()


@given(st.text())
def test_any_text_is_some_header_value(text: str) -> None:
    schema, value = parse_text(text)
    assert schema is None or value is not None


@pytest.mark.parametrize(
    ("text", "month"),
    [("9999-12-31", "9999-12"), ("9999-99-31", "10007-03"), ("9600-99-31", "9608-03"), ("2024-14-31", "2025-02")],
)
def test_a_month_beyond_its_range_rolls_over_also_beyond_the_year_9999(text: str, month: str) -> None:
    schema, value = parse_text(text)
    assert schema == date()
    assert date_text(value - 30) == f"{month}-01"
    assert parse_text(f"{text}T00:00:01.000Z")[1] == value * 86_400_000 + 1000


@pytest.mark.parametrize(
    "text",
    [
        "[" * 2000,
        "{" * 2000,
        "1e99999999999999999999",
        "-1e-99999999999999999999",
        "99999999e999999999999",
        "5\\",
        "[2024-02-29,70000]",
        "[5000000000,2024-02-29]",
        "[1.5,2023-11-14T22:13:20.123Z]",
        "{1:22:13:20.123Z,2:0.5}",
    ],
)
def test_what_spells_no_value_that_there_can_be_is_a_string(text: str) -> None:
    assert parse_text(text) == (STRING, text)


@pytest.mark.parametrize("text", ['["a",0.3]', "[[0.3],1]", '{1:0.3,2:"a"}'])
def test_a_number_among_other_values_keeps_its_digits(text: str) -> None:
    assert to_text(*parse_text(text)) == text


@given(cases())
def test_any_value_has_a_header_text_that_can_be_parsed(case: tuple[Any, Any]) -> None:
    schema, value = case
    converter = SimpleHeaderConverter({})
    data = converter.from_connect_header("t", "h", schema, value)
    assert (data is None) == (value is None)
    converter.to_connect_header("t", "h", data)
