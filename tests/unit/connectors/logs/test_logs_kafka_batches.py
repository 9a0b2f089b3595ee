"""Records of a topic as rows, without a Kafka: offsets between the rows of one record, bad values, dropped lines."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import ConsumerRecord

from connectors.logs.config import CONFIG
from connectors.logs.connector import LogsConnector
from connectors.logs.inputs.kafka_input import OFFSET, _KafkaPartitionReader
from connectors.logs.rows import RowMaker
from connectors.logs.rules.built import build_rules
from connectors.logs.rules.compiled import compile_rules
from connectors.logs.rules.model import parse_rules
from connectors.testing.contexts import RecordedMetrics

RULES = """
tables:
  - name: parts
    groups:
      - name: parts
        steps:
          - drop: {reason: empty}
            when: {equals: '[]'}
          - flattenJsonArray: {}
          - saveAs: {columns: [{name: part, field: line}]}
"""


def reader() -> _KafkaPartitionReader:
    rules = compile_rules(build_rules(parse_rules(RULES)))
    config = CONFIG.parse({"topic.prefix": "p", "rules": RULES})
    return _KafkaPartitionReader(
        "t", 0, RowMaker(rules, config, RecordedMetrics(LogsConnector.metrics)), "h", recognise=True
    )


def record(offset: int, value: bytes | None) -> Any:
    return ConsumerRecord("t", 0, offset, 1000 + offset, 0, None, value, None, 0, 0, ())


def test_every_row_has_the_offset_behind_it() -> None:
    batch = reader().make_batch([record(4, b'["a", "b", "c"]'), record(7, b'["d"]')])
    assert [(row.value["part"], row.value["log_id"], row.source_offset) for row in batch.records] == [
        ("a", "t/0:4:0", {"offset": 4, "rows": 1}),
        ("b", "t/0:4:1", {"offset": 4, "rows": 2}),
        ("c", "t/0:4:2", {"offset": 5}),
        ("d", "t/0:7:0", {"offset": 8}),
    ]
    assert [row.timestamp for row in batch.records] == [1004, 1004, 1004, 1007]
    assert batch.offsets == ()


@pytest.mark.parametrize(("delivered", "expected"), [(0, "abcd"), (1, "bcd"), (2, "cd")])
def test_a_restart_leaves_out_what_was_delivered(delivered: int, expected: str) -> None:
    source = reader()
    source.resume({OFFSET: 4, "rows": delivered})
    batch = source.make_batch([record(4, b'["a", "b", "c"]'), record(7, b'["d"]')])
    assert "".join(row.value["part"] for row in batch.records) == expected


def test_the_position_moves_over_what_makes_no_row() -> None:
    source = reader()
    batch = source.make_batch([record(0, b'["a"]'), record(1, b"[]")])
    assert [row.source_offset for row in batch.records] == [{"offset": 1}]
    assert batch.offsets == (({"topic": "t", "partition": 0}, {"offset": 2}),)
    batch = source.make_batch([record(2, b"\xff")])
    (bad,) = batch.bad
    assert (bad.raw, bad.source_offset, bad.topic) == (b"\xff", {"offset": 3}, "p.unknown_table")
    assert batch.offsets[0][1] == {"offset": 3}


def test_a_value_that_is_null_is_an_empty_line() -> None:
    (row,) = reader().make_batch([record(0, None)]).records
    assert (row.topic, row.value["line"]) == ("p.unknown_table", "")


def test_a_document_that_is_nested_too_deep_is_a_line_as_it_is() -> None:
    deep = b'{"headers": ' + b"[" * 100_000
    rows = reader().make_batch([record(0, deep), record(1, b'["a"]')]).records
    assert [(row.topic, row.value["log_id"]) for row in rows] == [
        ("p.unknown_table", "t/0:0:0"),
        ("p.parts", "t/0:1:0"),
    ]
    assert rows[0].value["line"].encode() == deep


@pytest.mark.parametrize("moment", ["1e300", "-5000000", '"99999999999999999999"', '"1900-01-01T00:00:00Z"'])
def test_a_time_or_position_that_kafka_can_not_hold_is_that_of_the_record(moment: str) -> None:
    envelope = f'{{"message": "x", "@timestamp": {moment}, "log": {{"offset": 99999999999999999999}}}}'
    (row,) = reader().make_batch([record(5, envelope.encode())]).records
    assert (row.timestamp, row.value["position"], row.value["line"]) == (1005, 5, "x")


@pytest.fixture
def _worker_in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_worker_in_tokyo")
def test_a_time_without_a_zone_is_utc_wherever_the_worker_is() -> None:
    envelope = b'{"log": "x", "@timestamp": "2026-11-26 11:00:00.123000"}'
    (row,) = reader().make_batch([record(5, envelope)]).records
    assert row.timestamp == 1_795_690_800_123
