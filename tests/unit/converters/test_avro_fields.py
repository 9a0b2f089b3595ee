"""Some fields of records in Avro: what is read of them is what is read of the whole record."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from connectors.errors import Skippable
from connectors.schema import (
    INT64,
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT32,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    array,
    decimal,
    map_of,
    struct,
)
from connectors.verify.events import ROW_EVENT_FIELDS
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.read import avro_reader
from worker.converters.avro_form.schema import AvroSettings, avro_text

SETTINGS = AvroSettings()
SOURCE = struct(
    "Source",
    {"version": STRING, "ts": OPTIONAL_INT64, "db": STRING, "table": OPTIONAL_STRING, "file": STRING, "pos": INT64},
)
BLOCK = struct("Block", {"id": STRING, "tags": array(STRING)}, optional=True)


def envelope(column: Schema) -> Schema:
    """The schema of events, with fields that no comparison needs."""
    row = struct("Value", {"id": INT64, "v": column}, optional=True)
    fields = {
        "before": row,
        "after": row,
        "source": SOURCE,
        "transaction": BLOCK,
        "op": STRING,
        "ts_ms": OPTIONAL_INT64,
    }
    return struct("Envelope", fields)


def event(value: Any, *, transaction: Any = None) -> dict[str, Any]:
    """An event of a row with this value."""
    source = {"version": "1" * 300, "ts": -(1 << 62), "db": "shop", "table": None, "file": "bin.000002", "pos": 1 << 40}
    return {
        "before": None,
        "after": {"id": -1, "v": value},
        "source": source,
        "transaction": transaction,
        "op": "c",
        "ts_ms": 7,
    }


VALUES = [
    (OPTIONAL_BOOLEAN, True),
    (OPTIONAL_INT64, None),
    (OPTIONAL_INT64, (1 << 63) - 1),
    (OPTIONAL_INT64, -(1 << 63)),
    (OPTIONAL_INT64, 64),
    (OPTIONAL_INT64, 1_767_323_045_678_901),
    (OPTIONAL_FLOAT32, 1.5),
    (OPTIONAL_FLOAT64, -0.1),
    (OPTIONAL_STRING, ""),
    (OPTIONAL_STRING, "é\U0001f600" * 100),
    (OPTIONAL_BYTES, b"\x00\xff" * 40),
    (decimal(2, optional=True), Decimal("-123456789012345678901234.50")),
    (array(OPTIONAL_STRING), ["a", None]),
    (struct("Point", {"x": OPTIONAL_FLOAT64, "wkb": OPTIONAL_BYTES}, optional=True), {"x": 1.5, "wkb": b"\x01"}),
]


@pytest.mark.parametrize(("column", "value"), VALUES)
@pytest.mark.parametrize("transaction", [None, {"id": "x", "tags": ["a", "b"]}])
def test_fields_of_an_event_are_those_of_the_whole_event(column: Schema, value: Any, transaction: Any) -> None:
    schema = envelope(column)
    text = avro_text(schema, SETTINGS)
    data = compile_avro(schema, SETTINGS, b"")(event(value, transaction=transaction))
    assert data is not None
    whole = avro_reader(text, SETTINGS).decode(data)
    reader = avro_reader(text, SETTINGS, ROW_EVENT_FIELDS)
    read = reader.decode(data)
    source = {name: whole["source"][name] for name in ("db", "table", "file", "pos")}
    assert read == {"before": None, "after": whole["after"], "source": source, "op": "c"}
    assert reader.schema is not None
    assert [field.name for field in reader.schema.fields] == ["before", "after", "source", "op"]
    end = data.rindex(b"c") + 1
    assert reader.decode(data[:end]) == read
    for size in range(end):
        with pytest.raises(Skippable, match="does not match its Avro schema"):
            reader.decode(data[:size])


@pytest.mark.parametrize(
    "schema",
    [
        envelope(map_of(STRING, OPTIONAL_STRING)),
        struct("Row", {"id": INT64, "op": STRING, "source": SOURCE}),
        struct("Envelope", {"before": STRING, "after": STRING, "source": STRING, "op": STRING}),
    ],
)
def test_records_of_other_forms_are_read_whole(schema: Schema) -> None:
    text = avro_text(schema, SETTINGS)
    assert avro_reader(text, SETTINGS, ROW_EVENT_FIELDS).schema == avro_reader(text, SETTINGS).schema


def test_unions_of_several_types_are_read_whole() -> None:
    avro = json.loads(avro_text(envelope(OPTIONAL_STRING), SETTINGS))
    avro["fields"][0]["type"][1]["fields"][1]["type"] = ["null", "string", "long"]
    text = json.dumps(avro)
    assert avro_reader(text, SETTINGS, ROW_EVENT_FIELDS).schema == avro_reader(text, SETTINGS).schema


def test_a_type_that_a_field_which_is_left_out_defines() -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "long"}]}
    fields = [{"name": "left_out", "type": point}, {"name": "kept", "type": ["null", "Point"]}]
    text = json.dumps({"type": "record", "name": "Shape", "fields": fields})
    assert avro_reader(text, SETTINGS, {"kept": None}).decode(b"\x02\x02\x04")["kept"] == {"x": 2}
