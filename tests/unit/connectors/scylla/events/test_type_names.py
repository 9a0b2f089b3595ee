"""Decimals, varints, uuids and times with Debezium's names, where the options ask for them; the defaults are in the goldens."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import pytest

from connectors.cql.debezium_names import NANO_TIME, UUID, VARIABLE_SCALE_DECIMAL, ValueForms
from connectors.cql.types import CqlType
from connectors.schema import DECIMAL, OPTIONAL_FLOAT64, OPTIONAL_INT64, OPTIONAL_STRING, Schema
from connectors.scylla.config.settings import CONFIG, event_settings
from connectors.scylla.model import INSERT, PARTITION_DELETE, CdcOptions, ScyllaColumn, TableId, TableVersion
from tests.unit.connectors.scylla.events.making import make, row
from worker.converters.json import JsonConverter

NUMBER, WHOLE, UID, AT = CqlType("decimal"), CqlType("varint"), CqlType("timeuuid"), CqlType("time")
PRECISE = ValueForms("precise", "precise", logical=True)
ELEMENT = uuid.uuid1().bytes
TABLE = TableVersion(
    TableId("ks", "t"),
    (
        ScyllaColumn("pk", NUMBER, "partition_key", 0),
        ScyllaColumn("c", UID, "clustering", 0),
        ScyllaColumn("at", AT, "regular"),
        ScyllaColumn("list", CqlType("list", (NUMBER,)), "regular"),
        ScyllaColumn("map", CqlType("map", (WHOLE, NUMBER)), "regular"),
        ScyllaColumn("price", NUMBER, "regular"),
        ScyllaColumn("set", CqlType("set", (WHOLE,)), "regular"),
        ScyllaColumn("whole", WHOLE, "regular"),
    ),
    CdcOptions(),
    "v1",
)
CELLS: dict[str, Any] = {
    "pk": "1.10",
    "c": "50554d6e-29bb-11e5-b345-feff819cdc9f",
    "at": 49559123456789,
    "price": "-1E+3",
    "whole": "123456789012345678901234567890",
    "list": [(ELEMENT, "0.5")],
    "map": [{"key": "-1", "value": "2.50"}],
    "set": ["7"],
    "deleted_elements_set": ["8"],
}


def schema_of(value: Schema | None, *path: str) -> Schema:
    assert value is not None
    for name in path:
        member = value.field(name)
        assert member is not None
        value = member.schema
    return value


def test_values_and_schemas_have_the_form_that_the_options_ask_for() -> None:
    (record,) = make(
        TABLE,
        [row(TABLE, 1, 0, INSERT, end=True, **CELLS)],
        legacy_columns="all",
        collections_mode="delta",
        names=PRECISE,
    )
    assert record.key == {"c": CELLS["c"], "pk": {"scale": 2, "value": b"\x6e"}}
    assert schema_of(record.key_schema, "pk") == VARIABLE_SCALE_DECIMAL
    after = record.value["after"]
    assert after["price"] == {"value": {"scale": -3, "value": b"\xff"}}
    assert after["whole"] == {"value": Decimal(123456789012345678901234567890)}
    assert (after["at"], after["c"]) == ({"value": CELLS["at"]}, CELLS["c"])
    assert after["list"] == {"value": [{"scale": 1, "value": b"\x05"}]}
    assert after["map"] == {"value": [{"key": Decimal(-1), "value": {"scale": 2, "value": b"\x00\xfa"}}]}
    delta = record.value["delta"]
    assert delta["list"]["added"][0]["value"] == {"scale": 1, "value": b"\x05"}
    assert delta["map"]["added"] == after["map"]["value"]
    assert (delta["set"]["added"], delta["set"]["removed"]) == ([Decimal(7)], [Decimal(8)])
    value = record.value_schema
    assert schema_of(value, "after", "c") == UUID
    assert schema_of(value, "after", "at", "value") == NANO_TIME
    assert schema_of(value, "after", "whole", "value").name == DECIMAL
    assert schema_of(value, "after", "list", "value").value_schema == VARIABLE_SCALE_DECIMAL
    assert JsonConverter({"schemas.enable": "true"}).from_connect("t", value, record.value)  # it fits its schema


def test_the_keys_of_events_for_more_than_one_row_have_it_too() -> None:
    (record,) = make(
        TABLE, [row(TABLE, 1, 0, PARTITION_DELETE, end=True, pk="1.10")], deletes_mode="events", names=PRECISE
    )
    assert record.key == {"c": None, "pk": {"scale": 2, "value": b"\x6e"}}


@pytest.mark.parametrize(
    ("options", "price", "schema"),
    [
        ({}, "-1E+3", OPTIONAL_STRING),
        ({"decimal.handling.mode": "Double"}, -1000.0, OPTIONAL_FLOAT64),
        ({"decimal.handling.mode": "precise"}, {"scale": -3, "value": b"\xff"}, VARIABLE_SCALE_DECIMAL),
    ],
)
def test_the_options(options: dict[str, str], price: Any, schema: Schema) -> None:
    config = CONFIG.parse(
        {
            "topic.prefix": "p",
            "scylla.name": "p",
            "scylla.cluster.ip.addresses": "h:9042",
            "scylla.table.names": "ks.t",
            **options,
        }
    )
    names = event_settings(config).names
    (record,) = make(TABLE, [row(TABLE, 1, 0, INSERT, end=True, **CELLS)], names=names)
    assert record.value["after"]["price"] == {"value": price}
    assert schema_of(record.value_schema, "after", "price", "value") == schema
    assert schema_of(record.value_schema, "after", "at", "value") == OPTIONAL_INT64
    assert schema_of(record.value_schema, "after", "whole", "value") == OPTIONAL_STRING
    assert schema_of(record.key_schema, "c") == OPTIONAL_STRING
    assert (names.varints, names.logical) == ("string", False)


def test_named_types_are_asked_for_by_an_option() -> None:
    config = CONFIG.parse(
        {
            "topic.prefix": "p",
            "scylla.name": "p",
            "scylla.cluster.ip.addresses": "h:9042",
            "scylla.table.names": "ks.t",
            "scylla.logical.types": "Named",
            "varint.handling.mode": "precise",
        }
    )
    assert event_settings(config).names == ValueForms("string", "precise", logical=True)
