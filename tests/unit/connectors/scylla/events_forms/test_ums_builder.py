"""Scylla's log rows as UMS messages.

Hypothesis covers: random histories with images, cut anywhere, in messages of any size, restarted at any message: the newest
``ums_id_`` per key is the row as the log's images have it, and no tuple is lost or made twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.formats import timeuuid, ums
from connectors.scylla.events.ums import UmsBuilder
from connectors.scylla.model import (
    INSERT,
    PARTITION_DELETE,
    POSTIMAGE,
    PREIMAGE,
    RANGE_END_EXCLUSIVE,
    RANGE_START_INCLUSIVE,
    ROW_DELETE,
    UPDATE,
    StreamRun,
)
from connectors.scylla.positions import OFFSET_SEQ, OFFSET_TIME
from tests.support.settings import scylla_events
from tests.unit.connectors.scylla.events_forms.model import (
    OFFSET,
    PARTITION,
    START_US,
    STREAM,
    VERSION,
    log_row,
    version_of,
)
from tests.unit.connectors.scylla.events_forms.strategies import histories, runs
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from connectors.api import BadRecord, SourceRecord
    from connectors.scylla.events.contract import ScyllaEventSettings
    from connectors.scylla.model import LogRow, TableVersion

SETTINGS = scylla_events(topic_prefix="my.cluster", output_format="ums")
WITH_BEFORE = scylla_events(topic_prefix="my.cluster", output_format="ums", preimages=True)
TIME = timeuuid.make_uuid(START_US + 123_456, 0x8080_8080_8080_8080)
TEXT = timeuuid.format_uuid(TIME)
ID = START_US + 123_456
FLAT = version_of(
    [
        ("pk", "int", "partition_key", 0),
        ("ck", "int", "clustering", 0),
        ("v", "text", "regular"),
        ("n", "bigint", "regular"),
    ]
)
SMALL = version_of([("pk", "int", "partition_key", 0), ("v", "text", "regular")])
HERE = {"pk": 1, "ck": 2}
_JSON = JsonConverter({"schemas.enable": "false"})


def build(
    rows: list[LogRow], version: TableVersion = FLAT, options: ScyllaEventSettings = SETTINGS, **bounds: Any
) -> tuple[list[SourceRecord], list[BadRecord]]:
    out: list[SourceRecord] = []
    bad: list[BadRecord] = []
    UmsBuilder(version, options, **bounds).feed(StreamRun(PARTITION, OFFSET, rows, last=True), out, bad)
    return out, bad


def tuples(records: list[SourceRecord]) -> list[list[str | None]]:
    return [row["tuple"] for record in records for row in record.value["payload"]]


def rows_of(*writes: tuple[int, dict[str, Any]], version: TableVersion = FLAT) -> list[LogRow]:
    return [
        log_row(version, TIME, seq, operation, cells, end=True if seq == len(writes) - 1 else None)
        for seq, (operation, cells) in enumerate(writes)
    ]


def test_the_document() -> None:
    (record,), bad = build(rows_of((INSERT, HERE | {"v": "é", "n": 5})))
    assert not bad
    data = _JSON.encoder("t", record.value_schema)(record.value)
    assert json.loads(data or b"") == {
        "protocol": {"type": "data_increment_data", "version": "1.3", "part": None},
        "schema": {
            "namespace": "scylla.my_cluster.ks.t.0.0.0",
            "batchId": 0,
            "fields": [
                {"name": "ums_id_", "type": "long", "nullable": False},
                {"name": "ums_ts_", "type": "datetime", "nullable": False},
                {"name": "ums_op_", "type": "string", "nullable": False},
                {"name": "ums_uid_", "type": "string", "nullable": False},
                {"name": "pk", "type": "int", "nullable": False},
                {"name": "ck", "type": "int", "nullable": True},
                {"name": "n", "type": "long", "nullable": True},
                {"name": "v", "type": "string", "nullable": True},
            ],
        },
        "payload": [{"tuple": [str(ID), "2026-09-21 14:13:20.123456", "i", f"{TEXT}.0", "1", "2", "5", "é"]}],
    }
    assert record.key == f"data_increment_data.scylla.my_cluster.ks.t.0.0.0...{STREAM.hex()}"
    assert (record.topic, record.timestamp) == ("my.cluster.ks.t", (START_US + 123_456) // 1000)
    assert record.source_offset == {**OFFSET, OFFSET_TIME: TEXT, OFFSET_SEQ: 0}


@pytest.mark.parametrize(("operation", "letter"), [(INSERT, "i"), (UPDATE, "u"), (ROW_DELETE, "d")])
def test_operations(operation: int, letter: str) -> None:
    (row,) = tuples(build(rows_of((operation, HERE)))[0])
    assert row[2:] == [letter, f"{TEXT}.0", "1", "2", None, None]


def test_the_image_after_is_the_row() -> None:
    written = tuples(
        build(
            rows_of(
                (PREIMAGE, HERE | {"v": "old", "n": 1}),
                (UPDATE, HERE | {"v": "new"}),
                (POSTIMAGE, HERE | {"v": "new", "n": 1}),
            )
        )[0]
    )
    assert [row[2:] for row in written] == [["u", f"{TEXT}.1", "1", "2", "1", "new"]]


def test_the_image_before_comes_first_where_wanted() -> None:
    rows = rows_of((PREIMAGE, HERE | {"v": "old", "n": 1}), (UPDATE, HERE | {"v": "new"}))
    written = tuples(build(rows, options=WITH_BEFORE)[0])
    assert [row[2:] for row in written] == [
        ["b", f"{TEXT}.0", "1", "2", "1", "old"],
        ["u", f"{TEXT}.1", "1", "2", None, "new"],
    ]
    assert written[0][0] == written[1][0]


def test_a_deleted_row_has_the_values_it_had() -> None:
    written = tuples(build(rows_of((PREIMAGE, HERE | {"v": "old", "n": 1}), (ROW_DELETE, HERE)))[0])
    assert [row[2:] for row in written] == [["d", f"{TEXT}.1", "1", "2", "1", "old"]]


def test_one_row_in_two_log_rows_is_one_tuple() -> None:
    written = tuples(build(rows_of((INSERT, HERE | {"v": "w"}), (UPDATE, HERE | {"n": 3})))[0])
    assert [row[2:] for row in written] == [["i", f"{TEXT}.1", "1", "2", "3", "w"]]


def test_a_deletion_beats_a_write_of_the_same_time() -> None:
    written = tuples(build(rows_of((ROW_DELETE, HERE), (INSERT, HERE | {"v": "w"})))[0])
    assert [row[2] for row in written] == ["d"]


def test_deletes_of_many_rows_are_left_out_or_reported() -> None:
    rows = rows_of((RANGE_START_INCLUSIVE, HERE), (RANGE_END_EXCLUSIVE, {"pk": 1}))
    assert build(rows) == ([], [])
    loud = scylla_events(topic_prefix="p", output_format="ums", deletes_mode="events")
    out, bad = build(rows, options=loud)
    assert not out
    assert [bad_record.source_offset[OFFSET_SEQ] for bad_record in bad] == [0, 1]
    assert len(build(rows_of((PARTITION_DELETE, {"pk": 1})), options=loud)[1]) == 1
    (row,) = tuples(build(rows_of((PARTITION_DELETE, {"pk": 1}), version=SMALL), SMALL, loud)[0])
    assert row[2:] == ["d", f"{TEXT}.0", "1", None]


def test_collections_are_json() -> None:
    cells = {
        "p": 1,
        "q": "a",
        "x": 1,
        "y": "b",
        "l": [(TIME, 3), (TIME, 1)],
        "m": [{"key": "k", "value": 1}],
        "s": [2],
        "u": {"street": "x", "zip code": None},
        "big": b"\x00\xff",
        "a b": float("nan"),
    }
    (record,), _ = build(rows_of((POSTIMAGE, cells), (UPDATE, cells), version=VERSION), VERSION)
    names = [field["name"] for field in record.value["schema"]["fields"]]
    values = dict(zip(names, record.value["payload"][0]["tuple"], strict=True))
    assert {name: values[name] for name in ("l", "m", "s", "u", "big", "a b", "v")} == {
        "l": "[3,1]",
        "m": '[{"key":"k","value":1}]',
        "s": "[2]",
        "u": '{"street":"x","zip code":null}',
        "big": "AP8=",
        "a b": "NaN",
        "v": None,
    }


def test_snapshot_rows_lose_to_any_change_from_their_time_on() -> None:
    out: list[SourceRecord] = []
    builder = UmsBuilder(FLAT, SETTINGS)
    for _ in range(2):
        builder.snapshot_row(PARTITION, OFFSET, [1, 2, None, "w"][: len(FLAT.columns)], START_US, out, [])
    builder.snapshot_row(PARTITION, OFFSET, [1, 3, None, "w"], START_US, out, [])
    first, repeated, other = tuples(out)
    assert out[0].value["protocol"]["type"] == ums.INITIAL
    assert (first[0], first[2], first[4:]) == (str(START_US), "i", ["1", "2", None, "w"])
    assert first == repeated
    assert first[3] != other[3]
    assert int(first[0] or 0) < int(tuples(build(rows_of((UPDATE, HERE)))[0])[0][0] or 0) < 1 << 63


def test_a_snapshot_row_that_was_written_with_a_time_before_1970_has_a_time_that_brokers_take() -> None:
    out: list[SourceRecord] = []
    UmsBuilder(FLAT, SETTINGS).snapshot_row(PARTITION, OFFSET, [1, 2, None, "w"], -5, out, [])
    assert out[0].timestamp == 0
    assert tuples(out)[0][0] == "-5"


@given(st.data(), histories())
@settings(max_examples=80, deadline=None)
def test_a_restart_at_any_message_loses_and_repeats_nothing(
    data: st.DataObject, history: tuple[list[list[LogRow]], Any]
) -> None:
    changes, _ = history
    bounds = {"max_rows": data.draw(st.integers(1, 4)), "max_bytes": data.draw(st.sampled_from([1, 1 << 20]))}
    options = data.draw(st.sampled_from([SETTINGS, WITH_BEFORE]))
    builder = UmsBuilder(VERSION, options, **bounds)
    records: list[SourceRecord] = []
    bad: list[BadRecord] = []
    for run in data.draw(runs(changes)):
        builder.feed(run, records, bad)
    assert not bad
    whole = tuples(records)
    assert len({row[3] for row in whole}) == len(whole)
    rows = [row for change in changes for row in change]
    assert whole == tuples(build(rows, VERSION, options)[0])
    if records:
        stopped = data.draw(st.integers(0, len(records) - 1))
        offset = records[stopped].source_offset
        time = bytes.fromhex(offset[OFFSET_TIME].replace("-", ""))
        resumed: list[SourceRecord] = []
        later = [row for row in rows if row[1] >= time]
        run = StreamRun(PARTITION, OFFSET, later, skip=(time, offset[OFFSET_SEQ]), last=True)
        UmsBuilder(VERSION, options, **bounds).feed(run, resumed, [])
        assert tuples(records[: stopped + 1]) + tuples(resumed) == whole


@given(histories())
@settings(max_examples=60, deadline=None)
def test_the_newest_id_of_a_key_is_its_last_change(history: tuple[list[list[LogRow]], Any]) -> None:
    changes, _ = history
    whole = tuples(build([row for change in changes for row in change], VERSION)[0])
    newest: dict[tuple[Any, ...], tuple[int, str]] = {}
    for written_row in whole:
        key = tuple(written_row[4:8])
        identity = int(written_row[0] or 0)
        assert identity > newest.get(key, (-1, ""))[0]
        newest[key] = identity, str(written_row[3])
    last: dict[tuple[Any, ...], str] = {}
    for change in changes:
        for row in change:
            if row[3] in {INSERT, UPDATE, ROW_DELETE}:
                key = tuple(None if value is None else str(value) for value in row[6:10])
                last[key] = f"{timeuuid.format_uuid(row[1])}.{row[2]}"
    assert {key: uid for key, (_, uid) in newest.items()} == last
