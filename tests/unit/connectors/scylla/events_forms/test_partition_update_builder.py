"""Scylla's log rows as partition updates: folded in any order they give the table that the writers made.

Hypothesis covers: inserts, updates, deletes of rows, ranges and partitions, static columns, every kind of multicell column
(overwritten, added to, removed from, nulled), images, TTLs, changes cut by pages and by the bound of a message, in any order
and with repetitions, through Avro and JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.cql.encoding import encode_partition_key
from connectors.cql.values import BadCell
from connectors.errors import Fatal
from connectors.formats import timeuuid
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    ClusteringBound,
    RangeDeletion,
    UpdateDeletion,
    UpdateRow,
)
from connectors.formats.partition_update_codec import decode_update
from connectors.schema import BYTES
from connectors.scylla.events.partition_update import PartitionUpdateBuilder
from connectors.scylla.model import (
    INSERT,
    PARTITION_DELETE,
    POSTIMAGE,
    PREIMAGE,
    RANGE_END_EXCLUSIVE,
    RANGE_START_INCLUSIVE,
    ROW_DELETE,
    UPDATE,
    CdcOptions,
    StreamRun,
)
from connectors.scylla.positions import OFFSET_SEQ, OFFSET_TIME
from tests.support.partition_merge import Table
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
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.read import avro_reader
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from connectors.api import BadRecord, SourceRecord
    from connectors.scylla.model import LogRow, TableVersion

SETTINGS = scylla_events(topic_prefix="my-cluster", output_format="partition-update")
TIME = timeuuid.make_uuid(START_US, 0x8080_8080_8080_8080)
KEY = {"p": 1, "q": "a"}
HERE = {**KEY, "x": 1, "y": "b"}
SMALL = version_of([("pk", "int", "partition_key", 0), ("v", "text", "regular")])

_AVRO = AvroSettings()
_SCHEMA = PartitionUpdateBuilder(VERSION, SETTINGS).layout.schema
_AVRO_ENCODE = compile_avro(_SCHEMA, _AVRO, b"")
_AVRO_READER = avro_reader(avro_text(_SCHEMA, _AVRO), _AVRO)
_PLAIN = JsonConverter({"schemas.enable": "false"})
_ENVELOPED = JsonConverter({"schemas.enable": "true"})


def through(way: str, value: Any) -> Any:
    if way == "avro":
        data = _AVRO_ENCODE(value)
        assert data is not None
        assert _AVRO_READER.schema == _SCHEMA
        return decode_update(_AVRO_READER.decode(data), _AVRO_READER.schema)
    if way == "value":
        return decode_update(value, _SCHEMA)
    converter = _PLAIN if way == "json" else _ENVELOPED
    schema, read = converter.to_connect("t", converter.encoder("t", _SCHEMA)(value))
    return decode_update(read, schema or _SCHEMA)


def build(
    rows: list[LogRow], version: TableVersion = VERSION, **options: Any
) -> tuple[list[SourceRecord], list[BadRecord]]:
    out: list[SourceRecord] = []
    bad: list[BadRecord] = []
    PartitionUpdateBuilder(version, SETTINGS, **options).feed(StreamRun(PARTITION, OFFSET, rows, last=True), out, bad)
    return out, bad


def build_single(operation: int, cells: dict[str, Any], ttl: int | None = None, version: TableVersion = VERSION) -> Any:
    out, bad = build([log_row(version, TIME, 0, operation, cells, ttl=ttl, end=True)], version)
    assert not bad
    assert len(out) == 1
    return decode_update(out[0].value, out[0].value_schema)  # type: ignore[arg-type]


@given(st.data(), histories(), st.sampled_from(["avro", "json", "enveloped json", "value"]))
@settings(max_examples=150, deadline=None)
def test_folded_updates_are_the_table(data: st.DataObject, history: tuple[list[list[LogRow]], Any], way: str) -> None:
    changes, model = history
    builder = PartitionUpdateBuilder(
        VERSION, SETTINGS, max_rows=data.draw(st.integers(1, 3)), max_bytes=data.draw(st.sampled_from([1, 1 << 20]))
    )
    out: list[SourceRecord] = []
    bad: list[BadRecord] = []
    for run in data.draw(runs(changes)):
        builder.feed(run, out, bad)
    assert not bad, bad[0].error
    updates = [through(way, record.value) for record in out]
    for record, update in zip(out, updates, strict=True):
        assert record.key == encode_partition_key([column.type for column in VERSION.partition_key], update.key)
        assert record.timestamp == update.write_time // 1000
    repeated = data.draw(st.lists(st.sampled_from(updates), max_size=4)) if updates else []
    shuffled = data.draw(st.permutations(updates + repeated))
    assert Table(VERSION.columns).apply_all(shuffled).contents() == model.contents()


@given(st.data(), histories())
@settings(max_examples=60, deadline=None)
def test_a_restart_at_any_record_loses_nothing(data: st.DataObject, history: tuple[list[list[LogRow]], Any]) -> None:
    changes, _ = history
    rows = [row for change in changes for row in change]
    whole, _ = build(rows, max_rows=1)
    if not whole:
        return
    stopped = data.draw(st.integers(0, len(whole) - 1))
    offset = whole[stopped].source_offset
    time = bytes.fromhex(offset[OFFSET_TIME].replace("-", ""))
    resumed: list[SourceRecord] = []
    later = [row for row in rows if row[1] >= time]
    PartitionUpdateBuilder(VERSION, SETTINGS, max_rows=1).feed(
        StreamRun(PARTITION, OFFSET, later, skip=(time, offset[OFFSET_SEQ]), last=True), resumed, []
    )
    expected = [record.value | {"source": None} for record in whole[stopped + 1 :]]
    assert [record.value | {"source": None} for record in resumed] == expected


def test_insert_has_liveness_and_update_has_not() -> None:
    stamp = CellStamp(START_US)
    cells = (Cell("v", None, "w", stamp),)
    assert build_single(INSERT, HERE | {"v": "w"}).rows == (UpdateRow((1, "b"), stamp, None, cells),)
    assert build_single(UPDATE, HERE | {"v": "w"}).rows == (UpdateRow((1, "b"), None, None, cells),)


def test_insert_of_a_key_alone_is_a_row() -> None:
    assert build_single(INSERT, HERE).rows == (UpdateRow((1, "b"), CellStamp(START_US)),)
    assert build_single(INSERT, {"pk": 7}, version=SMALL).rows == (UpdateRow((), CellStamp(START_US)),)


def test_ttl_is_written_once_and_gives_the_expiry() -> None:
    update = build_single(INSERT, HERE | {"v": "w", "cdc$deleted_n": True}, ttl=60)
    stamp = CellStamp(START_US, 60, START_US // 1_000_000 + 60)
    assert update.rows[0].liveness == stamp
    assert update.rows[0].cells == (Cell("n", None, None, CellStamp(START_US)), Cell("v", None, "w", stamp))


def test_rows_of_one_change_keep_their_own_ttl() -> None:
    rows = [
        log_row(VERSION, TIME, 0, INSERT, HERE | {"v": "w"}, ttl=60),
        log_row(VERSION, TIME, 1, UPDATE, HERE | {"n": 1}),
        log_row(VERSION, TIME, 2, UPDATE, HERE | {"cdc$deleted_big": True}, ttl=5, end=True),
    ]
    (record,), bad = build(rows)
    assert not bad
    second = START_US // 1_000_000
    update = through("avro", record.value)
    assert [row.cells[0].stamp for row in update.rows] == [
        CellStamp(START_US, 60, second + 60),
        CellStamp(START_US),
        CellStamp(START_US),
    ]


def test_deletion_of_a_multicell_column_is_before_its_elements() -> None:
    update = build_single(
        INSERT, HERE | {"m": [{"key": "k", "value": 1}], "cdc$deleted_m": True, "cdc$deleted_s": True}
    )
    deletion = UpdateDeletion(START_US - 1, START_US // 1_000_000)
    assert update.rows[0].complex_deletions == (("m", deletion), ("s", deletion))
    assert update.rows[0].cells == (Cell("m", "k", 1, CellStamp(START_US)),)


def test_elements_are_cells_with_paths() -> None:
    name = timeuuid.make_uuid(START_US - 5, 7)
    update = build_single(
        UPDATE,
        HERE
        | {
            "l": [(TIME, 4)],
            "cdc$deleted_elements_l": [name],
            "s": [2],
            "cdc$deleted_elements_s": [3],
            "m": [{"key": "a", "value": 9}],
            "cdc$deleted_elements_m": ["b"],
            "u": {"street": "x", "zip code": None},
            "cdc$deleted_elements_u": [1],
        },
    )
    assert [cell[:3] for cell in update.rows[0].cells] == [
        ("l", timeuuid.format_uuid(TIME), 4),
        ("l", timeuuid.format_uuid(name), None),
        ("m", "a", 9),
        ("m", "b", None),
        ("s", 2, True),
        ("s", 3, None),
        ("u", "street", "x"),
        ("u", "zip code", None),
    ]


def test_deletes() -> None:
    deletion = UpdateDeletion(START_US, START_US // 1_000_000)
    assert build_single(ROW_DELETE, HERE).rows == (UpdateRow((1, "b"), None, deletion),)
    assert build_single(ROW_DELETE, {"pk": 1}, version=SMALL).rows == (UpdateRow((), None, deletion),)
    update = build_single(PARTITION_DELETE, KEY)
    assert (update.deletion, update.rows, update.key) == (deletion, (), (1, "a"))
    (record,), bad = build(
        [
            log_row(VERSION, TIME, 0, RANGE_START_INCLUSIVE, KEY | {"x": 1}),
            log_row(VERSION, TIME, 1, RANGE_END_EXCLUSIVE, KEY | {"x": 1, "y": "b"}, end=True),
        ],
        max_rows=1,
    )
    assert not bad
    assert through("avro", record.value).ranges == (
        RangeDeletion(ClusteringBound((1,)), ClusteringBound((1, "b"), inclusive=False), deletion),
    )
    assert record.source_offset[OFFSET_SEQ] == 1


def test_a_static_row_in_a_batch_is_apart_from_its_rows() -> None:
    (record,), bad = build(
        [
            log_row(VERSION, TIME, 0, INSERT, HERE | {"v": "w"}),
            log_row(VERSION, TIME, 1, UPDATE, KEY | {"st": "s"}, end=True),
        ]
    )
    assert not bad
    update = through("json", record.value)
    assert update.static == UpdateRow((), None, None, (Cell("st", None, "s", CellStamp(START_US)),))
    assert len(update.rows) == 1


def test_two_writes_of_the_static_row_are_two_messages() -> None:
    out, bad = build(
        [
            log_row(VERSION, TIME, 0, UPDATE, KEY | {"st": "s"}, ttl=9),
            log_row(VERSION, TIME, 1, UPDATE, KEY | {"sm": ["s"]}, end=True),
        ]
    )
    assert not bad
    rows = [decode_update(record.value, _SCHEMA).static for record in out]
    assert [row and [cell.column for cell in row.cells] for row in rows] == [["st"], ["sm"]]


def test_images_change_nothing_and_are_passed_by() -> None:
    rows = [
        log_row(VERSION, TIME, 0, PREIMAGE, HERE | {"v": "old"}),
        log_row(VERSION, TIME, 1, UPDATE, HERE | {"v": "w"}),
        log_row(VERSION, TIME, 2, POSTIMAGE, HERE | {"v": "w", "n": 1}, end=True),
    ]
    (record,), _ = build(rows)
    assert decode_update(record.value, _SCHEMA).rows == (
        UpdateRow((1, "b"), None, None, (Cell("v", None, "w", CellStamp(START_US)),)),
    )
    assert record.source_offset == {**OFFSET, OFFSET_TIME: timeuuid.format_uuid(TIME), OFFSET_SEQ: 2}


def test_where_it_comes_from() -> None:
    (record,), _ = build([log_row(VERSION, TIME, 0, INSERT, HERE, end=True)])
    source = through("avro", record.value).source
    assert (source.connector, source.cluster, source.keyspace, source.table) == ("scylla", "my-cluster", "ks", "t")
    assert (source.table_id, source.schema_version, source.snapshot) == (VERSION.table_id, "a1b2", False)
    assert source.position == {"window": START_US // 1000, "stream": STREAM, "time": TIME, "sequence": 0}
    assert (record.topic, record.key_schema, record.value_schema) == ("my-cluster.ks.t", BYTES, _SCHEMA)


def test_a_cell_that_was_not_decoded_makes_the_change_bad() -> None:
    good = log_row(VERSION, TIME, 0, INSERT, HERE)
    broken = log_row(VERSION, TIME, 1, INSERT, HERE | {"v": BadCell(b"\xff", ValueError("no UTF-8"))}, end=True)
    out, (bad,) = build([good, broken])
    assert not out
    assert (bad.raw, bad.source_offset[OFFSET_SEQ]) == (b"\xff", 1)
    assert "no UTF-8" in str(bad.error)


def test_half_a_range_is_bad() -> None:
    out, (bad,) = build([log_row(VERSION, TIME, 0, RANGE_START_INCLUSIVE, KEY | {"x": 1}, end=True)])
    assert not out
    assert "does not end" in str(bad.error)


def test_counters_are_refused() -> None:
    with pytest.raises(Fatal, match="counters"):
        PartitionUpdateBuilder(version_of([("pk", "int", "partition_key", 0), ("c", "counter", "regular")]), SETTINGS)


def test_a_log_without_values_is_refused() -> None:
    with pytest.raises(Fatal, match="delta"):
        PartitionUpdateBuilder(version_of([("pk", "int", "partition_key", 0)], CdcOptions(delta="keys")), SETTINGS)


def test_reset_forgets_what_is_held() -> None:
    builder = PartitionUpdateBuilder(VERSION, SETTINGS)
    out: list[SourceRecord] = []
    builder.feed(StreamRun(PARTITION, OFFSET, [log_row(VERSION, TIME, 0, INSERT, HERE)]), out, [])
    assert not out
    builder.reset()
    builder.feed(StreamRun(PARTITION, OFFSET, [], last=True), out, [])
    assert not out


def test_a_snapshot_row_that_was_written_with_a_time_before_1970_has_a_time_that_brokers_take() -> None:
    out: list[SourceRecord] = []
    bad: list[BadRecord] = []
    cells = [{"p": 1, "q": "a", "x": 1, "y": "b", "v": "w"}.get(column.name) for column in VERSION.columns]
    PartitionUpdateBuilder(VERSION, SETTINGS).snapshot_row(PARTITION, OFFSET, cells, -5, out, bad)
    assert not bad, bad[0].error
    assert (out[0].timestamp, out[0].value["write_time"]) == (0, -5)


def test_snapshot_row_wins_over_what_it_was_read_from() -> None:
    cells = {
        "p": 1,
        "q": "a",
        "x": 1,
        "y": "b",
        "st": "s",
        "sm": ["e"],
        "v": "w",
        "n": None,
        "big": b"",
        "a b": 1.0,
        "m": [{"key": "k", "value": 2}],
        "l": [7, 7],
        "s": [1],
        "u": {"street": "x", "zip code": None},
        "f": None,
    }
    out: list[SourceRecord] = []
    bad: list[BadRecord] = []
    builder = PartitionUpdateBuilder(VERSION, SETTINGS)
    builder.snapshot_row(PARTITION, OFFSET, [cells[column.name] for column in VERSION.columns], START_US, out, bad)
    assert not bad, bad[0].error
    snapshot = through("avro", out[0].value)
    assert snapshot.source.snapshot
    earlier = [
        through("value", record.value)
        for record in build(
            [
                log_row(
                    VERSION,
                    timeuuid.make_uuid(START_US - 10, 1),
                    0,
                    INSERT,
                    HERE | {"v": "old", "l": [(TIME, 1)], "s": [9]},
                    end=True,
                ),
                log_row(VERSION, TIME, 0, UPDATE, HERE | {"l": [(TIME, 7)], "v": "w"}, end=True),
            ]
        )[0]
    ]
    expected = {
        "x": 1,
        "y": "b",
        "v": "w",
        "n": None,
        "big": b"",
        "a b": 1.0,
        "m": {"'k'": 2},
        "l": [7, 7],
        "s": [1],
        "u": {"street": "x"},
        "f": None,
    }
    for updates in ([snapshot, *earlier], [*earlier, snapshot]):
        assert Table(VERSION.columns).apply_all(updates).contents() == {
            "(1, 'a')": ({"st": "s", "sm": ["e"]}, [expected])
        }


@given(
    st.lists(
        st.tuples(
            st.sampled_from([INSERT, UPDATE, ROW_DELETE, PARTITION_DELETE]),
            st.integers(0, 2),
            st.none() | st.text(max_size=2),
            st.booleans(),
            st.none() | st.integers(1, 9),
            st.sampled_from([{}, {"s": [1]}, {"cdc$deleted_s": True}, {"cdc$deleted_elements_s": [4]}]),
        )
    )
)
@settings(max_examples=100, deadline=None)
def test_rows_without_detours_give_the_same(writes: list[tuple[Any, ...]]) -> None:
    version = version_of(
        [
            ("pk", "int", "partition_key", 0),
            ("ck", "int", "clustering", 0),
            ("v", "text", "regular"),
            ("s", "set<int>", "regular"),
        ]
    )
    rows = []
    for index, (operation, key, text, null, ttl, more) in enumerate(writes):
        cells: dict[str, Any] = {"pk": key} if operation == PARTITION_DELETE else {"pk": key, "ck": 1}
        if operation in {INSERT, UPDATE}:
            cells |= {"v": text, "cdc$deleted_v": True if null and text is None else None, **more}
        rows.append(log_row(version, timeuuid.make_uuid(START_US + index, 5), 0, operation, cells, ttl=ttl, end=True))
    outputs = []
    for suspicious in (False, True):
        out: list[SourceRecord] = []
        bad: list[BadRecord] = []
        PartitionUpdateBuilder(version, SETTINGS).feed(
            StreamRun(PARTITION, OFFSET, rows, may_be_bad=suspicious), out, bad
        )
        assert not bad
        for record in out:
            record.value["source"]["read_time"] = 0
        outputs.append(out)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == len(rows)
