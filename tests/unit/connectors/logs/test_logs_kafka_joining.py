"""Lines of a partition that belong together: their order, and the place to start again at."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal
from connectors.logs.config import CONFIG, join_settings
from connectors.logs.connector import LogsConnector
from connectors.logs.heartbeats import LogHeartbeats
from connectors.logs.inputs.kafka_input import _KafkaPartitionReader
from connectors.logs.inputs.kafka_joining import read_listed, write_listed
from connectors.logs.rows import RowMaker
from connectors.logs.rules.built import build_rules
from connectors.logs.rules.compiled import compile_rules
from connectors.logs.rules.model import parse_rules
from connectors.testing.contexts import RecordedMetrics

RULES = '{"tables": [{"name": "lines", "groups": [{"name": "all", "steps": [{"saveAs": {"columns": [{"name": "line"}]}}]}]}]}'


def reader(**options: str) -> _KafkaPartitionReader:
    named = {name.replace("_", "."): value for name, value in options.items()}
    config = CONFIG.parse({"topic.prefix": "p", "rules": RULES, "multiline.start": "^[A-Z]", **named})
    metrics = RecordedMetrics(LogsConnector.metrics)
    rules = compile_rules(build_rules(parse_rules(RULES)))
    rows = RowMaker(rules, config, metrics, LogHeartbeats(config, metrics, "h"))
    return _KafkaPartitionReader("t", 0, rows, "h", join_settings(config), recognise=True)


def record(offset: int, line: str, host: str = "a", sent_ms: int = 1000) -> Any:
    value = f'{{"message": "{line}", "@timestamp": "2026-11-27T06:00:00Z", "host": "{host}"}}'.encode()
    return ConsumerRecord("t", 0, offset, sent_ms, 0, None, value, None, 0, 0, ())


def lines(batch: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(row.value["line"], row.source_offset) for row in batch.records]


def test_lines_of_hosts_that_take_turns_are_joined_by_host() -> None:
    source = reader()
    batch = source.make_batch(
        [record(0, "A1"), record(1, "B1", "b"), record(2, "a2"), record(3, "b2", "b"), record(4, "A3")]
    )
    assert lines(batch) == [("A1\na2", {"offset": 1, "joined": "1"})], "the next event starts at 1, and 2 is delivered"
    batch = source.make_batch([record(5, "B3", "b"), record(6, "A4")])
    assert lines(batch) == [("B1\nb2", {"offset": 4}), ("A3", {"offset": 5})]
    assert source.offset == {"offset": 5}


def test_a_restart_reads_no_line_again_that_is_delivered() -> None:
    source = reader()
    source.resume({"offset": 1, "joined": "1"})
    source.start(1)
    assert source.offset == {"offset": 1, "joined": "1"}
    batch = source.make_batch([record(1, "B1", "b"), record(2, "a2"), record(3, "b2", "b"), record(4, "B3", "b")])
    assert lines(batch) == [("B1\nb2", {"offset": 4})]


def test_an_event_is_complete_when_its_source_is_quiet() -> None:
    source = reader()
    source.make_batch([record(0, "A1"), record(1, "a2")])
    assert source.flush(0) is None, "the broker has not answered since"
    flushed = source.flush(10**15)
    assert lines(flushed) == [("A1\na2", {"offset": 2})]
    # Where others are not quiet, the timestamps of their records tell.
    source.make_batch([record(2, "A3"), record(3, "B1", "b", 1500)])
    assert lines(source.make_batch([record(4, "b2", "b", 2000)])) == [("A3", {"offset": 3})]


def test_an_event_is_not_cut_by_a_host_whose_clock_is_ahead() -> None:
    source = reader()
    source.make_batch([record(0, "B1", "b", 61_000)])
    source.make_batch([record(1, "A1", "a", 1000)])
    # B's clock is a minute ahead of A's: its records say nothing about how long A was quiet.
    source.make_batch([record(2, "b2", "b", 61_100)])
    source.make_batch([record(3, "a2", "a", 1100)])
    flushed = lines(source.make_batch([record(4, "C1", "c", 62_200)]))
    assert flushed == [("B1\nb2", {"offset": 1, "joined": "1"}), ("A1\na2", {"offset": 4})]


def test_a_record_from_the_future_does_not_stop_the_clock_of_others() -> None:
    source = reader()
    source.make_batch([record(0, "B1", "b", 10**15)])
    now = int(time.time() * 1000)
    source.make_batch([record(1, "A1", "a", now)])
    assert lines(source.make_batch([record(2, "a2", "a", now + 1)])) == []
    assert lines(source.flush(10**15)) == [("B1", {"offset": 1}), ("A1\na2", {"offset": 3})]


def test_bad_records_between_lines_are_passed_over_once() -> None:
    source = reader()
    bad = ConsumerRecord("t", 0, 1, 1000, 0, None, b"\xff", None, 0, 0, ())
    batch = source.make_batch([record(0, "A1"), bad, record(2, "a2")])
    assert [error.raw for error in batch.bad] == [b"\xff"]
    assert batch.offsets[0][1] == {"offset": 0, "joined": "1"}


def test_heartbeat_lines_end_an_event() -> None:
    source = reader(heartbeat_line="^beat$")
    batch = source.make_batch([record(0, "A1"), record(1, "beat"), record(2, "A2")])
    assert lines(batch) == [("A1", {"offset": 1})]
    assert source.offset == {"offset": 2}


def test_an_offset_of_another_kind_is_refused() -> None:
    with pytest.raises(Fatal, match="is not one of this connector"):
        reader().resume({"offset": 1, "joined": "x"})


@given(st.sets(st.integers(0, 10_000)), st.integers(0, 10_000))
def test_lists_of_offsets_come_back(offsets: set[int], after: int) -> None:
    assert read_listed(after, write_listed(after, offsets)) == {offset for offset in offsets if offset > after}


@given(st.integers())
def test_every_line_is_delivered_once_wherever_tasks_start_again(seed: int) -> None:
    """Random lines of three hosts; after each batch a new task may start from the saved offset, without the waiting lines."""
    chance = random.Random(seed)
    log = [
        record(offset, f"{chance.choice('Ab')}{offset}", chance.choice("abc"), 1000 + offset * chance.choice((0, 1)))
        for offset in range(60)
    ]
    source, at, delivered = reader(), 0, ""
    saved: dict[str, Any] = {"offset": 0}
    while at < len(log):
        if chance.random() < 0.3:
            source = reader()
            source.resume(saved)
            source.start(saved["offset"])
            at = saved["offset"]
        size = chance.randrange(1, 8)
        batch = source.make_batch(log[at : at + size])
        at += size
        delivered += "".join(f"{row.value['line']}\n" for row in batch.records)
        saved = (batch.offsets[-1][1] if batch.offsets else None) or batch.records[-1].source_offset
    flushed = source.flush(10**15)
    delivered += "".join(f"{row.value['line']}\n" for row in (flushed.records if flushed else []))
    assert sorted(int(line[1:]) for line in delivered.split()) == list(range(60))
