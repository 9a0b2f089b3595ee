"""The records of the Java connector, case by case: keys, values, schemas, headers, order and tombstones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from connectors.cql.encoding import make_encoder
from connectors.cql.types import raw_timeuuids, timed_list
from connectors.cql.values import make_decoder
from connectors.scylla.events import build_events
from connectors.scylla.model import StreamRun
from connectors.scylla.positions import OFFSET_SEQ, OFFSET_TIME
from tests.unit.connectors.scylla.events import golden_cases
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from connectors.api import BadRecord, SourceRecord
    from connectors.schema import Schema

CONVERTER = JsonConverter({"schemas.enable": "true"})
NOW = 1_795_250_000.25
# No recording shows a form in which the Java connector is wrong and ours is not: their lists have one order in both, their
# dates are after 1582, their writes have the images that Java waits for. Such forms have tests of their own.


def build_records(case: dict[str, Any], config: dict[str, str]) -> list[SourceRecord]:
    version = golden_cases.table_of(case)
    maker = build_events(version, golden_cases.settings_of(config), lambda: NOW)
    out: list[SourceRecord] = []
    bad: list[BadRecord] = []
    maker.feed(StreamRun({"p": 1}, {"window_start": "x"}, golden_cases.rows_of(case, version), last=True), out, bad)
    assert not bad
    return out


def encoded(schema: Schema | None, value: Any) -> Any:
    """Parsed; None for a tombstone."""
    data = CONVERTER.encoder("t", schema)(value)
    return None if data is None else json.loads(data)


def steady(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """A value without the version and the times of processing, of which only stays whether they are there."""
    if value is None:
        return None
    payload = value["payload"]
    payload["source"].pop("version")
    assert payload.pop("ts_ms") is not None
    for name in ("ts_us", "ts_ns"):
        payload[name] = payload[name] is not None
    return value


@pytest.mark.parametrize(("name", "run"), golden_cases.runs())
def test_records_are_those_of_the_java_connector(name: str, run: str) -> None:
    case = golden_cases.load(name)
    expected = case["runs"][run]
    records = build_records(case, expected["config"])
    assert len(records) == len(expected["records"])
    for record, golden in zip(records, expected["records"], strict=True):
        assert record.topic == f"PREFIX.g.{name}"
        assert encoded(record.key_schema, record.key) == golden["key"]
        assert steady(encoded(record.value_schema, record.value)) == steady(golden["value"])
        assert [[header.key, header.value] for header in record.headers] == golden["headers"]
        assert record.source_partition == {"p": 1}
        assert set(record.source_offset) == {"window_start", OFFSET_TIME, OFFSET_SEQ}


def test_fields_of_the_payload_come_in_the_order_of_the_schema() -> None:
    case = golden_cases.load("img_update")
    expected = case["runs"]["adv_pk"]
    (record,) = build_records(case, expected["config"])
    data = CONVERTER.encoder("t", record.value_schema)(record.value)
    assert data is not None
    document, golden = json.loads(data)["payload"], expected["records"][0]["value"]["payload"]
    assert list(document) == list(golden)
    assert list(document["before"]) == list(golden["before"])
    assert list(document["source"]) == list(golden["source"])


def test_times_of_processing_are_those_of_the_clock() -> None:
    case = golden_cases.load("insert_basic")
    (record,) = build_records(case, case["runs"]["legacy"]["config"])
    assert (record.value["ts_ms"], record.value["ts_us"], record.value["ts_ns"]) == (
        1_795_250_000_250,
        1_795_250_000_250_000,
        1_795_250_000_250_000_000,
    )


@pytest.mark.parametrize("name", golden_cases.names())
def test_rows_of_the_cases_have_the_values_that_decoded_cells_have(name: str) -> None:
    """The rows of the cases are those that bytes give: each cell survives encoding and decoding."""
    case = golden_cases.load(name)
    version = golden_cases.table_of(case)
    lists = {
        column.name: column.type
        for column in version.columns
        if column.type.name == "list" and column.type.is_multicell
    }
    for row in golden_cases.rows_of(case, version):
        for (column, kind), value in zip(version.log_columns, row[6:], strict=True):
            if value is None:
                continue
            wire = kind
            if column in lists:
                wire = timed_list(lists[column].arguments[0])
            elif column.removeprefix("cdc$deleted_elements_") in lists:
                wire = raw_timeuuids()
            assert make_decoder(wire)(make_encoder(wire)(value)) == value
