"""Chunks: what aiokafka sends is readable, also when another producer sends it again, or after a split."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from worker.host.delivery.chunk import CODECS, Headers, RecordChunk
from worker.host.delivery.commits import CommitUnit

Row = tuple[int, bytes | None, bytes | None, Headers]
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**40),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=40,
)


def filled(rows: list[Row], codec: str | None = None, batch_size: int = 1 << 20) -> RecordChunk:
    chunk = RecordChunk(CODECS[codec], batch_size, 0.0)
    for number, row in enumerate(rows):
        assert chunk.append(number, *row) is not None
        chunk.count += 1
    return chunk


def decoded(chunk: RecordChunk) -> list[Row]:
    batch = DefaultRecordBatch(bytes(chunk.build()))
    assert batch.validate_crc()
    return [(record.timestamp, record.key, record.value, list(record.headers)) for record in batch]


@given(ROWS, st.sampled_from([None, "gzip", "snappy", "lz4", "zstd"]))
def test_a_chunk_can_be_sent_by_one_producer_after_another(rows: list[Row], codec: str | None) -> None:
    chunk = filled(rows, codec)
    for identity, epoch, sequence in ((5, 1, 17), (2**40, 3, 0)):
        chunk._set_producer_state(identity, epoch, sequence)
        data = chunk._build()
        batch = DefaultRecordBatch(bytes(data))
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (identity, epoch, sequence)
        assert decoded(chunk) == rows
    assert chunk.record_count() == len(rows)
    assert chunk.closed()
    assert chunk.size() == len(data)


@given(ROWS.filter(lambda rows: len(rows) > 1), st.sampled_from([None, "zstd"]), st.integers(100, 2000))
def test_a_split_keeps_records_order_and_units(rows: list[Row], codec: str | None, batch_size: int) -> None:
    chunk = filled(rows, codec)
    unit = CommitUnit()
    chunk.hold(unit)
    parts = chunk.split(batch_size)
    assert [row for part in parts for row in decoded(part)] == rows
    assert len(parts) > 1
    assert all(part.count <= (len(rows) + 1) // 2 for part in parts)
    assert unit.holders == 1 + 1 + len(parts)
    assert all(part.accounted > 0 for part in parts)


def test_a_full_chunk_takes_no_more() -> None:
    chunk = RecordChunk(0, 500, 0.0)
    rows = 0
    while chunk.append(rows, None, None, b"x" * 50, []) is not None:
        rows += 1
        chunk.count = rows
    assert 5 < rows < 10
    assert chunk.size() <= 500


def test_the_first_record_always_fits() -> None:
    assert RecordChunk(0, 500, 0.0).append(0, None, None, b"x" * 5000, []) is not None


def test_a_unit_is_held_once() -> None:
    chunk, unit = RecordChunk(0, 500, 0.0), CommitUnit()
    chunk.hold(unit)
    chunk.hold(unit)
    assert (chunk.units, unit.holders) == ([unit], 2)


def test_transactional_chunks_say_so() -> None:
    chunk = RecordChunk(0, 500, 0.0, transactional=True)
    chunk.append(0, 1, None, b"x", [])
    assert DefaultRecordBatch(bytes(chunk.build())).is_transactional
    assert not DefaultRecordBatch(bytes(filled([(1, None, b"x", [])]).build())).is_transactional


def test_records_can_be_looked_at() -> None:
    assert filled([(1, b"k", b"v", [("h", b"1")])]).records() == [(b"k", b"v")]


@pytest.mark.parametrize("codec", CODECS)
def test_codecs_are_kafka_s(codec: str | None) -> None:
    chunk = filled([(1, None, b"x" * 500, [])] * 3, codec)
    assert DefaultRecordBatch(bytes(chunk.build())).compression_type == CODECS[codec]
