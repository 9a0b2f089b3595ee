"""Targets of flows: what messages say, which flows are refused, and how a report is turned."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from typing import Any

import pytest

from connectors.errors import ConfigInvalid
from connectors.verify.differences import RowDifference
from connectors.verify.rows import ChecksumRange, TableReport
from worker.verify.rows import tables_by_topic
from worker.verify.targets import KeyedRow, open_target, read_event, swap_sides

KEY = b'{"id":1}'


def event(op: str, **source: Any) -> dict[str, Any]:
    """An event of Debezium's form."""
    return {"op": op, "source": {"db": "shop", "table": "t", **source}, "before": None, "after": {"id": 1, "v": "a"}}


def test_messages_with_and_without_schemas() -> None:
    plain = json.dumps(event("c")).encode()
    said = read_event(KEY, plain)
    assert said is not None
    assert (said.namespace, said.key, said.row) == ("shop.t", {"id": 1}, {"id": 1, "v": "a"})
    enveloped = json.dumps({"schema": {}, "payload": event("d")}).encode()
    said = read_event(b'{"schema":{},"payload":{"id":1}}', enveloped)
    assert said is not None
    assert said.row is None
    assert read_event(KEY, json.dumps(event("r", db=None, keyspace_name="k")).encode()) == (
        "k.t",
        {"id": 1},
        {"id": 1, "v": "a"},
    )
    for nothing in (None, b"null", b'{"ts_ms":1}', json.dumps(event("m")).encode()):
        assert read_event(KEY, nothing) is None
    with pytest.raises(ValueError, match="no key"):
        read_event(None, plain)


def test_times_of_day_are_nanoseconds_where_schemas_name_them() -> None:
    columns = [
        {"field": "id", "type": "int64"},
        {"field": "v", "type": "int64", "name": "io.debezium.time.MicroTime"},
        {"field": "n", "type": "int32", "name": "org.apache.kafka.connect.data.Time"},
    ]
    schema = {"fields": [{"field": "before", "fields": columns}, {"field": "after", "fields": columns}]}
    payload = {**event("c"), "after": {"id": 1, "v": 3_600_000_000, "n": None}}
    said = read_event(KEY, json.dumps({"schema": schema, "payload": payload}).encode())
    assert said is not None
    assert said.row == {"id": 1, "v": 3_600_000_000_000, "n": None}
    assert read_event(KEY, json.dumps(payload).encode()) == ("shop.t", {"id": 1}, payload["after"])


def test_cells_are_their_values_where_schemas_name_them() -> None:
    member = {"field": "value", "type": "int64", "name": "io.debezium.time.MicroTime", "optional": True}
    cell = {"type": "struct", "name": "ks.t.v.Cell", "fields": [member], "optional": True}
    columns = [{"field": "id", "type": "int64"}, *({**cell, "field": name} for name in "vno")]
    schema = {"fields": [{"field": "after", "fields": columns}]}
    after = {"id": 1, "v": {"value": 5}, "n": {"value": None}, "o": None}
    payload = {"op": "u", "source": {"keyspace_name": "ks", "table_name": "t"}, "after": after}
    read = read_event(KEY, json.dumps({"schema": schema, "payload": payload}).encode())
    assert read == ("ks.t", {"id": 1}, {"id": 1, "v": 5_000, "n": None, "o": None})


def test_the_last_write_of_a_key_counts() -> None:
    table: Any = None
    assert KeyedRow(table, [], 0).rows == {}
    assert KeyedRow(table, [["set", {"v": 1}], ["gone"]], 0).rows == {}
    assert KeyedRow(table, [["gone"], ["set", {"v": 1}]], 0).rows == {b"null": {"v": 1}}


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
        ({"source.format": "ums"}, "source.format=debezium"),
        ({"source.topics": ""}, "source.topics"),
    ],
)
def test_flows_that_can_not_be_compared(change: dict[str, str], message: str) -> None:
    flow = {"sink.type": "jdbc", "source.format": "debezium", "source.topics": "t", "sink.jdbc.url": "jdbc:sqlite:/x"}
    with pytest.raises(ConfigInvalid, match=message):
        open_target({**flow, **change})


def test_each_sink_can_be_read_back_or_says_why() -> None:
    for entry in entry_points(group="millrace.sinks"):
        sink = entry.load()
        assert hasattr(sink, "read_back") != bool(sink.not_read_back), entry.name


def test_tables_of_one_topic_are_compared_together() -> None:
    homes: Any = {
        name: type("Home", (), {"topic": topic}) for name, topic in (("a", "one"), ("b", "two"), ("c", "one"))
    }
    assert tables_by_topic(homes) == [["a", "c"], ["b"]]
