"""Events that the Java connector leaves out: deletions of many rows, deltas of collections, TTL; and its counts instead."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.errors import Skippable
from connectors.scylla.events import build_events
from connectors.scylla.events.debezium import DebeziumBuilder
from connectors.scylla.model import (
    INSERT,
    PARTITION_DELETE,
    PREIMAGE,
    RANGE_END_EXCLUSIVE,
    RANGE_END_INCLUSIVE,
    RANGE_START_EXCLUSIVE,
    RANGE_START_INCLUSIVE,
    ROW_DELETE,
    UPDATE,
    StreamRun,
)
from connectors.scylla.positions import OFFSET_SEQ
from tests.support.settings import scylla_events
from tests.unit.connectors.scylla.events.making import OFFSET, PARTITION, make, row, table, time_of
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from connectors.api import BadRecord, SourceRecord

TABLE = table()
KEY: dict[str, Any] = {"pk": 1, "c1": "a", "c2": 1}
FORMATS = ("legacy", "advanced")
FIRST, SECOND = uuid.uuid1().bytes, uuid.uuid1().bytes


def written(record: SourceRecord) -> Any:
    """The value as it is in Kafka: it fits its schema then."""
    data = JsonConverter({"schemas.enable": "false"}).encoder("t", record.value_schema)(record.value)
    assert data is not None
    return json.loads(data)


@pytest.mark.parametrize("output_format", FORMATS)
def test_partition_delete_is_an_event(output_format: str) -> None:
    rows = [row(TABLE, 1, 0, PARTITION_DELETE, end=True, pk=7)]
    (record,) = make(TABLE, rows, output_format=output_format, deletes_mode="events")
    value = written(record)
    assert record.key == {"pk": 7, "c1": None, "c2": None}
    assert (value["op"], value["before"], value["after"]) == ("d", None, None)
    assert value["deletion"] == {"kind": "partition", "start": None, "end": None}
    assert value["source"]["ttl"] is None
    assert record.source_offset[OFFSET_SEQ] == 0


@pytest.mark.parametrize("images", [{}, {"output_format": "advanced", "include_before": "full"}])
@pytest.mark.parametrize(
    ("start", "start_cells", "end", "end_cells", "expected"),
    [
        (
            RANGE_START_INCLUSIVE,
            {"c1": "a", "c2": 1},
            RANGE_END_EXCLUSIVE,
            {"c1": "a", "c2": 9},
            ({"prefix": {"c1": "a", "c2": 1}, "inclusive": True}, {"prefix": {"c1": "a", "c2": 9}, "inclusive": False}),
        ),
        (
            RANGE_START_EXCLUSIVE,
            {"c1": "a"},
            RANGE_END_INCLUSIVE,
            {},
            ({"prefix": {"c1": "a", "c2": None}, "inclusive": False}, None),
        ),
        (
            RANGE_START_INCLUSIVE,
            {},
            RANGE_END_INCLUSIVE,
            {"c1": "b"},
            (None, {"prefix": {"c1": "b", "c2": None}, "inclusive": True}),
        ),
    ],
)
def test_range_delete_is_one_event_with_its_bounds(
    images: dict[str, Any],
    start: int,
    start_cells: dict[str, Any],
    end: int,
    end_cells: dict[str, Any],
    expected: tuple[Any, Any],
) -> None:
    rows = [row(TABLE, 1, 0, start, pk=7, **start_cells), row(TABLE, 1, 1, end, end=True, pk=7, **end_cells)]
    (record,) = make(TABLE, rows, deletes_mode="events", **images)
    value = written(record)
    assert value["deletion"] == {"kind": "range", "start": expected[0], "end": expected[1]}
    assert (value["op"], value["before"], value["after"]) == ("d", None, None)
    assert record.key == {"pk": 7, "c1": None, "c2": None}
    assert record.source_offset[OFFSET_SEQ] == 1


@pytest.mark.parametrize("images", [{}, {"preimages": True}])
def test_without_events_they_are_counted(images: dict[str, Any]) -> None:
    maker = build_events(TABLE, scylla_events(topic_prefix="p", **images))
    assert isinstance(maker, DebeziumBuilder)
    out: list[SourceRecord] = []
    bad: list[BadRecord] = []
    maker.feed(
        StreamRun(
            PARTITION,
            OFFSET,
            [
                row(TABLE, 1, 0, PARTITION_DELETE, pk=7),
                row(TABLE, 1, 1, RANGE_START_INCLUSIVE, pk=7),
                row(TABLE, 1, 2, RANGE_END_INCLUSIVE, end=True, pk=7),
            ],
            last=True,
        ),
        out,
        bad,
    )
    assert (out, bad) == ([], [])
    assert maker.skipped == {"partition_delete": 1, "range_delete": 1}


def test_partition_delete_without_clustering_key_deletes_a_row() -> None:
    version = table(clustering=False)
    rows = [row(version, 1, 0, PREIMAGE, pk=1, v="x"), row(version, 1, 1, PARTITION_DELETE, end=True, pk=1)]
    for mode in ("rows", "events"):
        deleted, tombstone = make(version, rows, output_format="advanced", include_before="full", deletes_mode=mode)
        assert (deleted.value["op"], deleted.value["before"]["v"], "deletion" in deleted.value) == ("d", "x", False)
        assert (tombstone.value, tombstone.key, tombstone.value_schema) == (None, {"pk": 1}, None)


@given(cut=st.integers(0, 4), skip=st.integers(-1, 4), images=st.booleans())
@settings(max_examples=40, deadline=None)
def test_range_deletes_cut_and_resumed_anywhere(cut: int, skip: int, images: bool) -> None:
    rows = [
        row(TABLE, 1, 0, INSERT, **KEY, v="x"),
        row(TABLE, 1, 1, RANGE_START_INCLUSIVE, pk=1, c1="a"),
        row(TABLE, 1, 2, RANGE_END_INCLUSIVE, pk=1, c1="b"),
        row(TABLE, 1, 3, UPDATE, end=True, **KEY, v="y"),
    ]
    maker = build_events(TABLE, scylla_events(topic_prefix="p", deletes_mode="events", preimages=images))
    out: list[SourceRecord] = []
    bad: list[BadRecord] = []
    resumed = (time_of(1), skip)
    maker.feed(StreamRun(PARTITION, OFFSET, rows[:cut], resumed), out, bad)
    maker.feed(StreamRun(PARTITION, OFFSET, rows[cut:], resumed, last=True), out, bad)
    assert not bad
    assert [record.source_offset[OFFSET_SEQ] for record in out] == [seq for seq in (0, 2, 3) if seq > skip]
    assert [record.value["op"] for record in out] == ["c", "d", "u"][3 - len(out) :]


def test_half_a_range_delete_is_bad_input() -> None:
    for rows, missing in (
        ([row(TABLE, 1, 0, RANGE_START_INCLUSIVE, end=True, pk=1)], "without its end"),
        ([row(TABLE, 1, 0, RANGE_END_INCLUSIVE, end=True, pk=1)], "without its start"),
        (
            [
                row(TABLE, 1, 0, RANGE_START_INCLUSIVE, end=True, pk=1),
                row(TABLE, 2, 0, RANGE_END_INCLUSIVE, end=True, pk=1),
            ],
            "without its",
        ),
    ):
        bad: list[BadRecord] = []
        assert make(TABLE, rows, bad, deletes_mode="events") == []
        assert len(bad) == len(rows)
        assert missing in str(bad[0].error)
        assert "ks.t, pk=1" in str(bad[0].error)


def test_unknown_operation_is_bad_input() -> None:
    bad: list[BadRecord] = []
    assert make(TABLE, [row(TABLE, 1, 0, 17, end=True, pk=1)], bad) == []
    assert isinstance(bad[0].error, Skippable)
    assert "cdc$operation 17" in str(bad[0].error)


@pytest.mark.parametrize("output_format", FORMATS)
def test_deltas_of_every_kind_of_column(output_format: str) -> None:
    first = row(
        TABLE,
        1,
        0,
        UPDATE,
        end=True,
        ttl=60,
        **KEY,
        v="x",
        deleted_n=True,
        fu={"street": "s", "zip": None},
        l=[(FIRST, 1), (SECOND, 2)],
        deleted_l=True,
        m=[{"key": "a", "value": 1}],
        deleted_elements_m=["b"],
        deleted_s=True,
        u={"street": "t", "zip": None},
        deleted_elements_u=[1],
    )
    (record,) = make(TABLE, [first], output_format=output_format, collections_mode="delta")
    value = written(record)
    assert value["delta"] == {
        "fu": {"value": {"street": "s", "zip": None}},
        "l": {
            "mode": "overwrite",
            "added": [
                {"key": str(uuid.UUID(bytes=FIRST)), "value": 1},
                {"key": str(uuid.UUID(bytes=SECOND)), "value": 2},
            ],
            "removed": None,
        },
        "m": {"mode": "modify", "added": [{"key": "a", "value": 1}], "removed": ["b"]},
        "n": {"value": None},
        "s": {"mode": "delete", "added": None, "removed": None},
        "st": None,
        "u": {"mode": "modify", "added": {"street": "t", "zip": None}, "removed": ["zip"]},
        "v": {"value": "x"},
    }
    assert value["source"]["ttl"] == 60


def test_deltas_of_lists_and_types_that_lose_elements() -> None:
    rows = [row(TABLE, 1, 0, UPDATE, end=True, **KEY, deleted_elements_l=[FIRST], deleted_elements_u=[0, 7])]
    (record,) = make(TABLE, rows, collections_mode="delta")
    delta = written(record)["delta"]
    assert delta["l"] == {"mode": "modify", "added": None, "removed": [str(uuid.UUID(bytes=FIRST))]}
    assert delta["u"] == {"mode": "modify", "added": None, "removed": ["street", "7"]}
    assert delta["m"] is None


def test_deletions_and_rows_of_snapshots_have_no_delta() -> None:
    deleted, _ = make(
        TABLE, [row(TABLE, 1, 0, ROW_DELETE, end=True, **KEY)], collections_mode="delta", deletes_mode="events"
    )
    assert (deleted.value["delta"], deleted.value["deletion"]) == (None, None)
    written(deleted)


def test_without_extended_modes_nothing_is_added() -> None:
    (record,) = make(TABLE, [row(TABLE, 1, 0, UPDATE, end=True, ttl=60, **KEY, v="x")])
    assert not {"delta", "deletion"} & set(record.value)
    assert "ttl" not in record.value["source"]


def test_legacy_with_all_columns() -> None:
    rows = [
        row(
            TABLE,
            1,
            0,
            UPDATE,
            end=True,
            **KEY,
            l=[(FIRST, 4)],
            deleted_l=True,
            fu={"street": "s", "zip": 1},
            deleted_m=True,
        )
    ]
    (record,) = make(TABLE, rows, legacy_columns="all")
    assert written(record)["after"] == {
        **KEY,
        "fu": {"value": {"street": "s", "zip": 1}},
        "l": {"value": [4]},
        "m": {"value": None},
        "n": None,
        "s": None,
        "st": None,
        "u": None,
        "v": None,
    }
    (record,) = make(TABLE, rows)
    assert written(record)["after"] == {**KEY, "n": None, "st": None, "v": None}


@pytest.mark.parametrize("images", [{}, {"preimages": True}])
@pytest.mark.parametrize(
    ("skipped", "operations"), [("c", "uddr"), ("u", "cddr"), ("d", "cur"), ("cu", "ddr"), ("cudr", ""), ("r", "cudd")]
)
def test_skipped_operations_are_counted(skipped: str, operations: str, images: dict[str, Any]) -> None:
    """The last d is a range delete."""
    maker = build_events(
        TABLE,
        scylla_events(
            topic_prefix="p", skipped_operations=frozenset(skipped), deletes_mode="events", tombstones=False, **images
        ),
    )
    assert isinstance(maker, DebeziumBuilder)
    rows = [
        row(TABLE, 1, 0, INSERT, **KEY),
        row(TABLE, 1, 1, UPDATE, **KEY),
        row(TABLE, 1, 2, ROW_DELETE, **KEY),
        row(TABLE, 1, 3, RANGE_START_INCLUSIVE, pk=1),
        row(TABLE, 1, 4, RANGE_END_INCLUSIVE, end=True, pk=1),
    ]
    out: list[SourceRecord] = []
    bad: list[BadRecord] = []
    maker.feed(StreamRun(PARTITION, OFFSET, rows, last=True), out, bad)
    maker.snapshot_row(PARTITION, {}, [None] * len(TABLE.columns), 0, out, bad)
    assert "".join(record.value["op"] for record in out) == operations
    assert not bad
    assert maker.skipped == {
        kind: count for kind, count in (("operation", len(skipped)), ("range_delete", int("d" in skipped))) if count
    }
