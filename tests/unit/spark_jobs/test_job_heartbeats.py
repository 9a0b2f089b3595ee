"""Delays by stage from heartbeats in the topics of tables, and up to when a target is complete."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connectors.formats import ums
from connectors.formats.table_heartbeats import HEADER
from spark_jobs.reports.heartbeats import MOST_TABLES, OTHER, Heartbeats, Promise
from spark_jobs.reports.met_heartbeats import MetHeartbeat, MetHeartbeats
from spark_jobs.reports.ums_heartbeats import note_heartbeats
from spark_jobs.sources.ums import count_messages

S = 1_000_000


def test_delays_are_those_of_the_slowest_partition_of_a_written_batch() -> None:
    beats = Heartbeats()
    beats.note("t", "t", 0, Promise(100 * S, 102 * S), "")
    beats.note("t", "t", 1, Promise(90 * S, 101 * S), "")
    beats.note("t", "t", 1, Promise(80 * S, 81 * S), "")  # an older one of the same partition counts no more
    assert beats.numbers == {}
    beats.written(110.0, 115.0)
    assert beats.numbers == {
        "t": {
            "delay_seconds": 25.0,
            "topic_delay_seconds": 11.0,
            "read_delay_seconds": 9.0,
            "write_delay_seconds": 5.0,
            "complete_timestamp_seconds": 90.0,
        }
    }


def test_a_table_is_complete_up_to_its_oldest_promise() -> None:
    beats = Heartbeats()
    for part, sent in (("0/2", 10), ("1/2", 30)):
        beats.note("t", "t", 0, Promise(sent * S, sent * S), part)
    beats.written(40.0, 40.0)
    beats.note("t", "t", 0, Promise(50 * S, 50 * S), "1/2")
    beats.written(50.0, 51.0)
    assert beats.numbers["t"]["complete_timestamp_seconds"] == 10.0
    assert beats.numbers["t"]["delay_seconds"] == 1.0
    beats.note("t", "t", 0, Promise(5 * S, 52 * S), "0/2")  # said again
    beats.written(52.0, 52.0)
    assert beats.numbers["t"]["complete_timestamp_seconds"] == 10.0
    beats.note("t", "t", 0, Promise(60 * S, 60 * S), "")  # one task has all rows now
    beats.written(60.0, 60.0)
    assert beats.numbers["t"]["complete_timestamp_seconds"] == 60.0


def test_the_number_of_series_is_bounded() -> None:
    beats = Heartbeats()
    for number in range(MOST_TABLES + 5):
        beats.note(f"t{number}", f"t{number}", 0, Promise((1000 - number) * S, 1000 * S), "")
    beats.written(1000.0, 1000.0)
    assert len(beats.numbers) == MOST_TABLES + 1
    assert beats.numbers[OTHER]["delay_seconds"] == MOST_TABLES + 4
    assert beats.numbers[OTHER]["complete_timestamp_seconds"] == 1000 - MOST_TABLES - 4


@pytest.mark.parametrize("part", ["", "1/2"])
def test_heartbeats_of_ums_are_seen_while_messages_are_counted(part: str) -> None:
    import msgspec

    namespace = "mysql.db01.shop.orders.3.0.0"
    beat = ums.make_signal(ums.INCREMENT_HEARTBEAT, namespace, 1_700_000_000_123_456, part=part)
    late = ums.make_signal(ums.INCREMENT_HEARTBEAT, namespace, 1_600_000_000_000_000, part=part)
    timeless = {**beat, "payload": []}
    messages = [msgspec.json.encode(message) for message in (beat, late, timeless)]
    key = ums.kafka_key(ums.INCREMENT_HEARTBEAT, namespace)
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["p.shop.orders"] * 3,
            "partition": [2] * 3,
            "offset": [0, 1, 2],
            "timestamp": pa.array([7_000_000, 8_000_000, 9_000_000], pa.timestamp("us", "UTC")),
            "key": [key.encode(), msgspec.json.encode({"schema": {"type": "string"}, "payload": key}), key.encode()],
            "value": messages,
        }
    )
    expected = MetHeartbeat(
        "p.shop.orders", 2, f"0.0.{part}", 1_700_000_000_123_456, 7_000_000, "mysql.db01.shop.orders"
    )
    counts: dict[tuple[str, bytes], int] = {}
    beats = MetHeartbeats()
    count_messages(batch, counts, lambda *_: pytest.fail("nothing is bad"), beats)
    assert counts == {(ums.INCREMENT_HEARTBEAT, b""): 3}
    assert beats.take() == [expected]
    note_heartbeats(batch, beats)  # as the sink that copies records does
    assert beats.take() == [expected]


def test_records_that_are_no_heartbeats_of_ums_are_passed_over() -> None:
    keys = [None, b"data_increment_data.a.b.c.d.1.0.0", b"data_increment_heartbeat.of another kind"]
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["t"] * 3,
            "partition": [0] * 3,
            "timestamp": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([None, b"{}", b"{}"], pa.binary()),
        }
    )
    beats = MetHeartbeats()
    note_heartbeats(batch, beats)
    assert beats.take() == []


def raw_batch(column: list[str | None]) -> tuple[pa.RecordBatch, pa.Array]:
    """Records with the column of heartbeats, and their times."""
    count = len(column)
    columns = {"topic": ["t"] * count, "partition": [3] * count, "heartbeat": pa.array(column, pa.string())}
    return pa.RecordBatch.from_pydict(columns), pa.array(range(1000, 1000 + count), pa.int64())


def test_a_task_gives_the_newest_heartbeat_of_each_part() -> None:
    beats = MetHeartbeats()
    beats.note_batch(*raw_batch([None, None]))
    assert beats.take() == []
    beats.note_batch(*raw_batch(["20 0/2", None, "10 0/2", "30 1/2"]))
    beats.note_batch(*raw_batch(["25 0/2"]))
    assert beats.take() == [
        MetHeartbeat("t", 3, "0/2", 25, 1_000_000),
        MetHeartbeat("t", 3, "1/2", 30, 1_003_000),
    ]
    assert beats.take() == []


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([(HEADER, b"1700000000000000 1/2")], [MetHeartbeat("t", 0, "1/2", 1_700_000_000_000_000, 5_000)]),
        ([("a", b"b"), (HEADER, b'"1700000000000000"')], [MetHeartbeat("t", 0, "", 1_700_000_000_000_000, 5_000)]),
        ([(HEADER, b"x")], []),
        ([(HEADER, None)], []),
        ([("a", b"1700000000000000")], []),
        ([], []),
    ],
)
def test_the_header_tells_heartbeats_from_deletes(
    headers: list[tuple[str, bytes | None]], expected: list[MetHeartbeat]
) -> None:
    beats = MetHeartbeats()
    beats.note_record("t", 0, headers, 5)
    assert beats.take() == expected


def test_the_driver_takes_what_tasks_have_met() -> None:
    beats = Heartbeats()
    beats.note_met([MetHeartbeat("t", 0, "", 100 * S, 102 * S), MetHeartbeat("u", 0, "", 90 * S, 92 * S, "a.b.c.d")])
    beats.written(110.0, 115.0)
    assert {table: numbers["delay_seconds"] for table, numbers in beats.numbers.items()} == {"t": 15.0, "a.b.c.d": 25.0}
