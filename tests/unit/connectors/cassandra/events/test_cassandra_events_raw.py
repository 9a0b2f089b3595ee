"""``partition-update-raw``: the bytes of the log in a thin struct, and what reads them."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.cassandra.events.raw import RawEvents
from connectors.cassandra.model import LogPosition
from connectors.cql.encoding import encode_partition_key
from connectors.cql.mutations.definition import CqlTableDefinition, DroppedColumn, make_definition
from connectors.cql.mutations.encode import write_update
from connectors.cql.mutations.head import least_write_time
from connectors.cql.mutations.reference import UnknownColumn, read_update
from connectors.cql.types import CqlType, parse_type
from connectors.errors import Fatal, Skippable
from connectors.formats.partition_update import Cell, PartitionUpdate, UpdateRow, UpdateSource
from connectors.formats.partition_update_raw import RawForm, decode_raw, form_of, is_raw, read_message
from tests.unit.connectors.cassandra.events.cassandra_event_world import (
    DAY,
    KEY,
    LATER,
    NOW,
    PARTITION,
    PLAIN,
    READ_MS,
    SEGMENT,
    TABLE,
    UDT,
    UpdateFeed,
    deleted,
    row,
    through_avro,
    through_json,
    update,
    where,
)
from tests.unit.connectors.cql.mutation_world import VERSIONS, tables, updates

if TYPE_CHECKING:
    from connectors.api import SourceRecord

RAW: dict[str, Any] = {"output_format": "partition-update-raw"}


def form(record: SourceRecord) -> RawForm:
    assert record.value_schema is not None
    assert is_raw(record.value_schema)
    return form_of(record.value_schema.parameter)


def with_columns(
    table: CqlTableDefinition, names: set[str], *, dropped: tuple[DroppedColumn, ...] = ()
) -> CqlTableDefinition:
    return make_definition(
        table.keyspace,
        table.table,
        table.table_id,
        [column for column in table.columns if column.name not in names],
        dropped=dropped,
        cdc=True,
    )


@given(st.data(), VERSIONS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_update_is_its_bytes(data: st.DataObject, version: int) -> None:
    table = data.draw(tables())
    drawn = data.draw(updates(table, version))
    records = UpdateFeed(table, version, **RAW)(drawn)
    if not (drawn.rows or drawn.ranges or drawn.static or drawn.deletion):
        assert not records
        return
    (record,) = records
    written = write_update(drawn, table, version)
    assert record.value["update"] == written
    assert record.value["write_time"] == least_write_time(written, 0, version)
    assert record.key == encode_partition_key([column.type for column in table.key], drawn.key)
    raw_form = form(record)
    assert (raw_form.version, raw_form.definition.columns) == (version, table.columns)
    for value in (
        through_avro(record.value, record.value_schema),  # type: ignore[arg-type]
        through_json(record.value, record.value_schema),  # type: ignore[arg-type]
    ):
        decoded = decode_raw(value, raw_form)
        assert decoded == read_update(written, 0, table, version, decoded.source)[0]
        assert decoded.source.position == {"node": "n1", "segment": SEGMENT, "position": 1300, "index": 0}
        assert (decoded.source.read_time, decoded.source.keyspace, decoded.source.schema_version) == (
            READ_MS,
            "ks",
            table.version,
        )


def test_where_it_was_read() -> None:
    feed = UpdateFeed(**RAW)
    at = where(done=2, last=False)
    (record,) = feed(update(row({"v": "x"})), at)
    assert at.done == 3
    assert LogPosition.of(record.source_offset) == LogPosition(SEGMENT, 1000, 3)
    assert record.value["source"]["position"] == {"node": "n1", "segment": SEGMENT, "position": 1300, "index": 2}
    (record,) = feed(update(row({"v": "x"})))
    assert LogPosition.of(record.source_offset) == LogPosition(SEGMENT, 1300)
    assert record.topic == "c.ks.t"
    assert record.timestamp == NOW.write_time // 1000


def test_nothing_said_is_no_record() -> None:
    assert UpdateFeed(**RAW)(update()) == []


def test_a_column_that_the_definition_lacks() -> None:
    """A reader of the message could not decode it, so the definition has to be read again first."""
    for written, name in (
        (update(row({"v": "x", "n": 1})), "n"),
        (update(row({"v": "x"}), static=row({"s": 1}, (), inserted=False)), "s"),
    ):
        old = RawEvents(with_columns(TABLE, {name}), 7, UpdateFeed(**RAW).events._settings)  # type: ignore[attr-defined]
        data = write_update(written, TABLE, 7)
        records: list[SourceRecord] = []
        at = where(done=1)
        for _ in range(2):
            with pytest.raises(UnknownColumn, match=f"column {name} that its definition") as raised:
                old.update(data, 0, len(data), at, records)
            assert raised.value.column == name
        assert (records, at.done) == ([], 1)
        # Updates of columns that the old definition has still work.
        old_data = write_update(update(row({"v": "x"})), TABLE, 7)
        assert old.update(old_data, 0, len(old_data), at, records) == len(old_data)
        assert len(records) == 1


def test_a_dropped_column_is_no_stranger() -> None:
    gone = DroppedColumn("n", parse_type("int"), "regular", NOW.write_time)
    events = RawEvents(with_columns(TABLE, {"n"}, dropped=(gone,)), 7, UpdateFeed(**RAW).events._settings)  # type: ignore[attr-defined]
    data = write_update(update(row({"v": "x", "n": 1})), TABLE, 7)
    records: list[SourceRecord] = []
    events.update(data, 0, len(data), where(), records)
    assert decode_raw(records[0].value, form(records[0])).rows[0].cells == (Cell("v", None, "x", NOW),)


def test_a_field_that_the_definition_lacks() -> None:
    grown = replace(UDT, arguments=(*UDT.arguments, parse_type("int")), field_names=(*UDT.field_names, "zip"))
    frozen = replace(grown, frozen=True)
    newer = make_definition(
        "ks",
        "t",
        TABLE.table_id,
        [
            replace(column, type=grown if column.name == "u" else frozen if column.name == "f" else column.type)
            for column in TABLE.columns
        ],
    )
    events = UpdateFeed(**RAW).events
    records: list[SourceRecord] = []
    for written, name in (
        (update(row({"f": {"street": "s", "host": None, "zip": 7}})), "f"),
        (update(UpdateRow(ROW_OF_TABLE, NOW, None, (Cell("u", "zip", 7, NOW),))), "u"),
    ):
        data = write_update(written, newer, 7)
        with pytest.raises(UnknownColumn) as raised:
            events.update(data, 0, len(data), where(), records)
        assert raised.value.column == name
    assert records == []


ROW_OF_TABLE = (5, DAY)


def test_many_shapes_in_turn() -> None:
    table = make_definition(
        "ks",
        "wide",
        TABLE.table_id,
        [PLAIN.columns[0], *(replace(PLAIN.columns[1], name=f"v{index:02}") for index in range(40))],
    )
    feed = UpdateFeed(table, **RAW)
    for _ in range(3):
        for index in range(39):
            written = update(row({f"v{index:02}": "x", f"v{index + 1:02}": "y"}, ()), key=(1,))
            (record,) = feed(written)
            assert decode_raw(record.value, form(record)).rows == written.rows


@pytest.mark.parametrize(("cut", "end"), [(20, False), (30, False), (18, True), (30, True)])
def test_bytes_that_end_before(cut: int, end: bool) -> None:
    data = write_update(update(row({"v": "x"})), TABLE, 7)[:cut]
    with pytest.raises(Skippable, match=r"ks\.t"):
        UpdateFeed(**RAW).events.update(data, 0, len(data) if end else None, where(), [])


def test_a_partition_that_was_read_from_the_table() -> None:
    feed = UpdateFeed(max_rows=2, **RAW)
    source = UpdateSource(
        connector="cassandra", cluster="c", keyspace="ks", table="t", snapshot=True, read_time=READ_MS
    )
    rows = tuple(row({"v": "x"}, (index, DAY)) for index in range(5))
    records: list[SourceRecord] = []
    offset = {"state": "running"}
    feed.events.add_snapshot_rows(
        PartitionUpdate(source=source, key=KEY, write_time=LATER.write_time, rows=rows, deletion=deleted(NOW)),
        PARTITION,
        offset,
        records,
    )
    parts = [decode_raw(record.value, form(record)) for record in records]
    assert [updated_row for part in parts for updated_row in part.rows] == list(rows)
    assert [part.deletion for part in parts] == [deleted(NOW), None, None]
    assert all(
        part.source.snapshot and part.source.position is None and part.source.read_time == READ_MS for part in parts
    )
    assert all(record.source_offset is offset and record.timestamp == READ_MS for record in records)
    assert {record.key for record in records} == {encode_partition_key([column.type for column in TABLE.key], KEY)}


def test_schemas_of_other_forms_and_versions() -> None:
    (record,) = UpdateFeed(**RAW)(update(row({"v": "x"})))
    assert record.value_schema is not None
    parameters = dict(record.value_schema.parameters)
    assert parameters["log.version"] == "7"
    for name, value, message in (
        ("form", "partition-update", "needs? form=partition-update-raw"),
        ("form.version", "2", "Update the reader"),
        ("log.version", "6", "7, 8, 9"),
        ("log.version", "", "7, 8, 9"),
        ("definition", "{}", "definition"),
    ):
        with pytest.raises(Fatal, match=message):
            form_of({**parameters, name: value}.get)
    (decoded,) = UpdateFeed()(update(row({"v": "x"})))
    assert decoded.value_schema is not None
    assert not is_raw(decoded.value_schema)


def test_messages_that_are_none() -> None:
    (record,) = UpdateFeed(**RAW)(update(row({"v": "x"})))
    raw_form = form(record)
    good: dict[str, Any] = record.value
    for bad in ({**good, "update": "!"}, {**good, "source": None}, {"source": good["source"]}, {}):
        with pytest.raises(Skippable, match=r"ks\.t"):
            read_message(bad, raw_form.source)
    longer = {**good, "update": base64.b64encode(good["update"] + b"\x00").decode()}
    with pytest.raises(Skippable, match="ends at byte"):
        decode_raw(longer, raw_form)
    with pytest.raises(Skippable):
        decode_raw({**good, "update": good["update"][:-4]}, raw_form)


def test_types_with_fields_are_found_at_any_depth() -> None:
    deep = CqlType("map", (parse_type("text"), replace(CqlType("tuple", (replace(UDT, frozen=True),)), frozen=True)))
    table = make_definition("ks", "t", TABLE.table_id, [*PLAIN.columns, replace(PLAIN.columns[1], name="m", type=deep)])
    assert RawEvents(table, 7, UpdateFeed(**RAW).events._settings)._checking is not None  # type: ignore[attr-defined]
    assert UpdateFeed(PLAIN, **RAW).events._checking is None  # type: ignore[attr-defined]
