"""Rows of the source and of messages in one form: what differs differs, whatever its type, and what is equal is equal."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from connectors.api import SourceRecord
from connectors.schema import (
    BOOLEAN,
    INT64,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT32,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    date,
    decimal,
    struct,
    timestamp,
)
from connectors.verify.events import EventSource, RowEvent
from connectors.verify.rows import Comparison, TableReport
from worker.converters.json import JsonConverter
from worker.verify.forms import Forms

if TYPE_CHECKING:
    from pathlib import Path

KEY = struct("Key", {"id": INT64})
SOURCE = struct("Source", {"db": STRING, "table": STRING, "file": STRING, "pos": INT64, "more": OPTIONAL_STRING})
POSITION = {"db": "shop", "table": "t", "file": "bin.000002", "pos": 7, "more": None}
NAN = float("nan")
#: Milliseconds since 1970.
MOMENT = 1_767_323_045_678


def envelope(column: Schema) -> Schema:
    """The schema of events of a table with this column."""
    row = struct("Value", {"id": INT64, "v": column}, optional=True)
    return struct("Envelope", {"before": row, "after": row, "source": SOURCE, "op": STRING, "ts_ms": OPTIONAL_INT64})


def record(column: Schema, value: Any, *, number: int = 1) -> SourceRecord:
    """A row as a snapshot would send it."""
    row = {"id": number, "v": value}
    event = {"before": None, "after": row, "source": POSITION, "op": "r", "ts_ms": None}
    return SourceRecord({}, {}, "s.shop.t", event, envelope(column), {"id": number}, KEY)


def config(*, schemas: bool, decimals: str = "BASE64") -> dict[str, str]:
    """Converters of a connector."""
    options = {"": "JsonConverter", ".schemas.enable": str(schemas).lower(), ".decimal.format": decimals}
    return {
        f"{converter}{name}": value
        for converter in ("key.converter", "value.converter")
        for name, value in options.items()
    }


def compare(
    source: list[SourceRecord],
    sent: list[SourceRecord],
    folder: Path,
    *,
    schemas: bool = False,
    decimals: str = "BASE64",
) -> TableReport:
    """Compare rows of the source with messages of these records."""
    forms = Forms(config(schemas=schemas, decimals=decimals), {})
    converter = JsonConverter({"schemas.enable": str(schemas).lower(), "decimal.format": decimals})
    with Comparison({"shop.t": ("id", "v")}, folder=str(folder)) as comparison:
        for message in sent:
            key = forms.read(message.topic, 0, converter.from_connect("", message.key_schema, message.key))
            event = forms.read_value(message.topic, converter.from_connect("", message.value_schema, message.value))
            assert isinstance(event, RowEvent)
            comparison.topics.row("shop.t", key, event.after)
        for source_record in source:
            for key, row in forms.written_rows([source_record]):
                # What transforms leave of it is read in the same way.
                written = forms.written_value(source_record.value_schema, source_record.value)
                assert (written.op, written.source, written.before) == (
                    "r",
                    EventSource("shop", "t", "bin.000002", 7),
                    None,
                )
                assert repr(written.after) == repr(row)
                comparison.source("shop.t", key, row)
        list(comparison.compare())
    return comparison.reports["shop.t"]


@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize(
    ("column", "left", "right"),
    [
        (OPTIONAL_STRING, None, ""),
        (OPTIONAL_STRING, "null", None),
        (OPTIONAL_STRING, "é", "e\u0301"),
        (OPTIONAL_STRING, "a ", "a"),
        (OPTIONAL_BYTES, None, b""),
        (OPTIONAL_BYTES, b"\x00", b"\x00\x00"),
        (OPTIONAL_BYTES, b"\xff\xfe", b"\xff\xff"),
        (OPTIONAL_INT64, 0, None),
        (OPTIONAL_INT64, (1 << 63) - 1, (1 << 63) - 2),
        (OPTIONAL_INT64, -1, 1),
        (decimal(2, optional=True), Decimal("1.10"), Decimal("1.11")),
        (decimal(2, optional=True), Decimal("-0.01"), Decimal("0.01")),
        (decimal(2, optional=True), Decimal("0.00"), None),
        (decimal(20, optional=True), Decimal("0.12345678901234567890"), Decimal("0.12345678901234567891")),
        (OPTIONAL_FLOAT64, 0.0, -0.0),
        (OPTIONAL_FLOAT64, NAN, None),
        (OPTIONAL_FLOAT64, NAN, float("inf")),
        (OPTIONAL_FLOAT64, float("inf"), float("-inf")),
        (OPTIONAL_FLOAT64, 0.1, 0.1 + 2**-55),
        (OPTIONAL_FLOAT64, 1e300, 1.0000000000000002e300),
        (OPTIONAL_FLOAT32, 1.5, 1.5000001192092896),
        (BOOLEAN, True, False),
        (timestamp(optional=True), MOMENT, MOMENT + 1),
        (timestamp(optional=True), MOMENT, None),
        (date(optional=True), 20_455, 20_456),
    ],
)
def test_values_that_differ_are_found_and_equal_ones_are_not(
    tmp_path: Path, column: Schema, left: Any, right: Any, *, schemas: bool
) -> None:
    for value, changed in ((left, right), (right, left)):
        report = compare([record(column, value)], [record(column, changed)], tmp_path, schemas=schemas)
        assert (report.different, report.missing, report.extra) == (1, 0, 0)
        assert report.total.source_checksum != report.total.topic_checksum
        assert compare([record(column, value)], [record(column, value)], tmp_path, schemas=schemas).equal


@pytest.mark.parametrize("schemas", [False, True])
def test_decimals_that_are_numbers_are_compared_with_all_digits(tmp_path: Path, *, schemas: bool) -> None:
    column = decimal(4)
    left, right = (record(column, Decimal(f"1234567890123456.789{digit}")) for digit in (1, 2))
    short = record(column, Decimal("0.1000"))
    assert compare([left], [right], tmp_path, schemas=schemas, decimals="NUMERIC").different == 1
    # Both are the same double, 90071992547409.94.
    near = [record(decimal(3), Decimal(f"90071992547409.93{digit}")) for digit in (1, 2)]
    assert compare(near[:1], near[1:], tmp_path, schemas=schemas, decimals="NUMERIC").different == 1
    doubles = record(OPTIONAL_FLOAT64, 0.1 + 0.2)
    for same in (left, short, near[0], doubles):
        assert compare([same], [same], tmp_path, schemas=schemas, decimals="NUMERIC").equal


def test_numbers_in_java_s_form_are_those_in_others() -> None:
    forms = Forms(config(schemas=False), {})
    for java, other in ((b"5.684341886080802E-14", b"5.6843418860808015e-14"), (b"1.0E20", b"100000000000000000000.0")):
        assert forms.read("t", 1, java) == forms.read("t", 1, other)


def test_rows_of_one_side_are_found(tmp_path: Path) -> None:
    rows = [record(OPTIONAL_STRING, "x", number=number) for number in range(-300, 300)]
    report = compare(rows, [*rows[1:], record(OPTIONAL_STRING, "x", number=900)], tmp_path)
    assert (report.missing, report.extra, report.different) == (1, 1, 0)
    assert report.examples == {"missing": ['{"id":-300}'], "extra": ['{"id":900}']}


def test_a_row_event_is_what_an_event_says() -> None:
    forms = Forms(config(schemas=False), {})
    event = {"op": "u", "before": {"id": 1}, "after": {"id": 2}, "source": {"db": "d", "table": "t", "pos": 4}, "ts": 1}
    read = forms.read_value("t", msgspec.json.encode(event))
    assert read == RowEvent("u", EventSource("d", "t", None, 4), {"id": 1}, {"id": 2}) == RowEvent.of(event)
    assert forms.read_value("t", b'{"op":null,"source":{}}') == RowEvent(None, EventSource())


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "text",
        [{"op": "c", "source": {}}],
        {"id": 1, "op": "c"},
        {"id": 1, "op": "c", "source": "text"},
        {"source": {"db": "d"}},
        {"protocol": {"type": "data"}, "schema": {}, "payload": []},
    ],
)
@pytest.mark.parametrize("schemas", [False, True])
def test_a_message_of_another_form_is_read_as_it_is(value: Any, *, schemas: bool) -> None:
    forms = Forms(config(schemas=schemas), {})
    data = msgspec.json.encode({"schema": None, "payload": value} if schemas else value)
    assert forms.read_value("t", data) == value
    assert forms.read_value("t", None) is None


def test_what_is_no_json_is_refused() -> None:
    for schemas in (False, True):
        with pytest.raises(msgspec.DecodeError):
            Forms(config(schemas=schemas), {}).read_value("t", b'{"op":')


def test_a_value_without_an_image_is_written_whole() -> None:
    forms = Forms(config(schemas=False), {})
    row = struct("Value", {"id": INT64}, optional=True)
    schema = struct("Envelope", {"after": row, "source": SOURCE, "op": STRING})
    value = {"after": {"id": 1}, "source": POSITION, "op": "c"}
    assert forms.written_value(schema, value) == value
    assert forms.written_value(row, {"id": 1}) == {"id": 1}
    assert forms.written_value(row, None) is None
    assert forms.written_value(None, value) == value
    assert forms.written_value(None, None) is None


def test_json_needs_no_schemas_from_elsewhere() -> None:
    class Message:
        topic, key, value = "t", b"{}", b"{}"

    asyncio.run(Forms(config(schemas=False), {}).prepare(Message()))
