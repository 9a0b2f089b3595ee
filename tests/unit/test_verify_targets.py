"""Targets of flows: which flows are refused, and how a report is turned."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import pytest

from connectors.errors import ConfigInvalid, Fatal
from connectors.verify.differences import RowDifference
from connectors.verify.rows import ChecksumRange, TableReport
from worker.verify.rows import tables_by_topic
from worker.verify.targets import KeyedRow, open_messages, open_target, swap_sides


def test_the_write_with_the_largest_order_number_counts_and_of_equal_ones_the_last() -> None:
    table: Any = None
    assert KeyedRow(table, [], 0).rows == {}
    assert KeyedRow(table, [["set", 1, {"v": 1}], ["gone", 1]], 0).rows == {}
    assert KeyedRow(table, [["gone", 1], ["set", 1, {"v": 1}]], 0).rows == {b"null": {"v": 1}}
    # An older change comes again, as from a worker with at-least-once: sinks leave it out.
    repeated = [["set", 1, {"v": 1}], ["set", 2, {"v": 2}], ["set", 1, {"v": 1}]]
    assert KeyedRow(table, repeated, 0).rows == {b"null": {"v": 2}}
    assert KeyedRow(table, [["set", 1, {"v": 1}], ["gone", 2], ["set", 1, {"v": 1}]], 0).rows == {}


def test_all_rows_that_a_target_has_of_a_key_count() -> None:
    table: Any = None
    assert KeyedRow(table, [["row", {"v": 1}]], 0).rows == {b"null": {"v": 1}}
    expected = {b"null": {"v": 1}, b"[1]": {"v": 1}, b"[2]": {"v": 2}}
    assert KeyedRow(table, [["row", {"v": 2}], ["row", {"v": 1}], ["row", {"v": 1}]], 0).rows == expected


def test_the_topic_is_the_source_of_a_target() -> None:
    report = TableReport("t", total=ChecksumRange(1, 2, 3, 4), missing=5, extra=6, examples={"missing": ["m"]})
    report.differences = [
        RowDifference("missing", "m", {"v": "1"}, None),
        RowDifference("different", "d", {"v": "1"}, {"v": "2"}),
    ]
    report = swap_sides(report)
    assert report.differences == [
        RowDifference("extra", "m", None, {"v": "1"}),
        RowDifference("different", "d", {"v": "2"}, {"v": "1"}),
    ]
    assert (report.missing, report.extra, report.examples) == (6, 5, {"missing": [], "extra": ["m"]})
    assert report.total == ChecksumRange(2, 1, 4, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sink.type": "console"}, r"it prints rows and keeps none\. Verify reads .*sinks back: .*jdbc, .*opensearch"),
        (
            {"sink.type": "kafka"},
            r"a topic keeps every change as a record: there is no row of a key to compare\. Verify",
        ),
        ({"sink.type": "nothing"}, "there is no such sink"),
        ({"sink.type": "json:JSONDecoder"}, "its class has no method read_back"),
        ({"sink.type": "json:Nothing"}, "the sink can't be loaded where verify runs"),
        ({"sinks": "a,b"}, "sinks=a,b: verify reads targets of flows with one sink"),
        ({"steps": "a"}, "changes rows on their way"),
        ({"transform.steps": "a"}, r"transform\.steps: the flow changes rows on their way"),
        ({"mask.rules": "m"}, "changes rows on their way"),
        ({"source.topics": ""}, "source.topics"),
    ],
)
def test_flows_that_can_not_be_compared(change: dict[str, str], message: str) -> None:
    flow = {"sink.type": "jdbc", "source.format": "debezium", "source.topics": "t", "sink.jdbc.url": "jdbc:sqlite:/x"}
    with pytest.raises(ConfigInvalid, match=message):
        open_target({**flow, **change})


@pytest.mark.parametrize("sink", ["jdbc", "delta", "iceberg"])
def test_a_table_with_the_rows_of_several_topics_can_not_be_compared(sink: str) -> None:
    flow = {
        "sink.type": sink,
        "source.format": "debezium",
        f"sink.{sink}.table.shared": "true",
        "sink.jdbc.url": "jdbc:sqlite:/x",
        "sink.delta.path": "/x/t",
        "sink.iceberg.table": "t",
        "sink.iceberg.catalog.type": "sql",
        "sink.iceberg.catalog.uri": "sqlite://",
    }
    assert open_target({**flow, "source.topics": "t,"})
    with pytest.raises(Fatal, match=rf"sink\.{sink}\.table\.shared=true: the rows of several topics are in one table"):
        open_target({**flow, "source.topics": "t,u"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source.format": "partition-update"}, "partition-update: an update of a partition is no image of a row"),
        ({"source.format": "nothing"}, r"there is no such form\. Verify reads .* forms: debezium, plain, ums"),
        ({"source.format": "json:Nothing"}, "the form can't be loaded where verify runs"),
        ({"source.format": "json:JSONDecoder"}, "its class has no method read_messages"),
        ({"source.value.encoding": "avro", "source.key.encoding": "avro"}, "source.schema.registry.url is missing"),
        ({"sink.shards": "separate"}, "sink.shards=separate makes the numbers of a shard part of the key"),
    ],
)
def test_topics_that_can_not_be_read(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        open_messages({"source.format": "debezium", **change})


def test_each_sink_can_be_read_back_or_says_why() -> None:
    for entry in entry_points(group="millrace.sinks"):
        sink = entry.load()
        assert hasattr(sink, "read_back") != bool(sink.not_read_back), entry.name


def test_tables_of_one_topic_are_compared_together() -> None:
    homes: Any = {
        name: type("Home", (), {"topic": topic}) for name, topic in (("a", "one"), ("b", "two"), ("c", "one"))
    }
    assert tables_by_topic(homes) == [["a", "c"], ["b"]]
