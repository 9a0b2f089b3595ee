"""UMS messages without rows: what is said of a table, and by whom."""

from __future__ import annotations

from dataclasses import replace

from connectors.api import EVERY_PARTITION, SourceRecord
from connectors.cql.types import CqlType
from connectors.scylla.events.ums import UmsBuilder
from connectors.scylla.events.ums_signals import ScyllaUmsSignals, parts_of
from connectors.scylla.model import INSERT, CdcOptions, ScyllaColumn, StreamRun, TableId, TableVersion
from connectors.scylla.source.feeds import TableFeed
from connectors.scylla.source.windows import start_of
from tests.support.settings import scylla_events

SETTINGS = scylla_events(topic_prefix="p", output_format="ums")
FIRST = TableVersion(TableId("ks", "t"), (ScyllaColumn("pk", CqlType("int"), "partition_key", 0),), CdcOptions(), "v1")
SECOND = replace(FIRST, version="v2", since_us=5_000_000)
AT = ({"vnode": "1"}, {"window_start": "x"})


def test_a_change_of_the_definition_ends_the_older_one() -> None:
    signals = ScyllaUmsSignals(SETTINGS, {"ks.t": "0/2"})
    feed = TableFeed(FIRST.id, (FIRST, SECOND), lambda version: UmsBuilder(version, SETTINGS))
    said = [
        record
        for time_ms in (3_000, 3_000, 4_999, 7_000, 8_000)
        for record in signals.promise(feed.version_in_force(time_ms * 1000), time_ms, AT)
    ]
    assert [
        (record.value["protocol"]["type"], record.value["schema"]["namespace"], record.value["payload"][0]["tuple"][0])
        for record in said
    ] == [
        ("data_increment_heartbeat", "scylla.p.ks.t.0.0.0", "1970-01-01 00:00:03.000000"),
        ("data_increment_heartbeat", "scylla.p.ks.t.0.0.0", "1970-01-01 00:00:04.999000"),
        ("data_increment_termination", "scylla.p.ks.t.0.0.0", "1970-01-01 00:00:05.000000"),
        ("data_increment_heartbeat", "scylla.p.ks.t.5.0.0", "1970-01-01 00:00:07.000000"),
        ("data_increment_heartbeat", "scylla.p.ks.t.5.0.0", "1970-01-01 00:00:08.000000"),
    ]
    assert {record.partition for record in said} == {EVERY_PARTITION}, "streams have keys of their own"
    assert said[0].key == "data_increment_heartbeat.scylla.p.ks.t.0.0.0...0/2"
    assert {record.topic for record in said} == {feed.builder(FIRST).topic}  # type: ignore[attr-defined]


def test_rows_of_a_definition_that_was_in_force_before_are_in_the_namespace_that_is_spoken_of() -> None:
    """A column that is added and dropped, or a table that is recreated as it was: the older namespace was terminated."""
    third = replace(FIRST, since_us=9_000_000)
    fourth = replace(FIRST, since_us=12_000_000, table_id="another")
    feed = TableFeed(FIRST.id, (FIRST, SECOND, third, fourth), lambda version: UmsBuilder(version, SETTINGS))
    for time_ms, namespace in ((1_000, "0"), (6_000, "5"), (10_000, "9"), (13_000, "12")):
        row = (b"s" * 16, start_of(time_ms), 0, INSERT, None, True, 1)
        ((version, rows),) = feed.parts(FIRST, ("pk",), [row])
        out: list[SourceRecord] = []
        feed.builder(version).feed(StreamRun({}, {}, rows, last=True), out, [])
        (promised, *_) = reversed(ScyllaUmsSignals(SETTINGS, {}).promise(version, time_ms, AT))
        namespaces = [record.value["schema"]["namespace"] for record in (*out, promised)]
        assert namespaces == [f"scylla.p.ks.t.{namespace}.0.0"] * 2


def test_a_task_speaks_for_its_part_of_each_table() -> None:
    first, second = TableId("ks", "one"), TableId("ks", "two")
    assert parts_of([{first, second}, {second}, {second}]) == [{"ks.two": "0/3"}, {"ks.two": "1/3"}, {"ks.two": "2/3"}]
    assert parts_of([{first}, set(), {first}]) == [{"ks.one": "0/2"}, {}, {"ks.one": "1/2"}]
    assert parts_of([]) == []
