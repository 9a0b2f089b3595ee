"""Record batches that Millrace compresses itself are ones that Kafka's clients read."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from worker.host.delivery.chunk import CODECS, RecordChunk

RECORDS = st.lists(
    st.tuples(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=300)), min_size=1, max_size=50
)


@pytest.mark.parametrize("codec", [name for name in CODECS if name])
@pytest.mark.parametrize("transactional", [False, True])
@given(records=RECORDS, times=st.integers(0, 2**40))
def test_what_was_appended_is_read_back(
    codec: str, transactional: bool, records: list[tuple[bytes | None, bytes | None]], times: int
) -> None:
    chunk = RecordChunk(CODECS[codec], 1 << 20, 0.0, transactional=transactional)
    for number, (key, value) in enumerate(records):
        assert chunk.append(number, times + number, key, value, [("h", b"1")]) is not None
    chunk._set_producer_state(77, 3, 12)
    batch = DefaultRecordBatch(bytes(chunk.build()))
    assert batch.validate_crc()
    assert batch.compression_type == CODECS[codec]
    assert batch.is_transactional is transactional
    assert [(record.key, record.value, record.timestamp) for record in batch] == [
        (key, value, times + number) for number, (key, value) in enumerate(records)
    ]


def test_producer_state_may_change_after_the_build() -> None:
    chunk = RecordChunk(CODECS["lz4"], 1 << 20, 0.0)
    chunk.append(0, 1, None, b"x" * 100, [])
    chunk.build()
    chunk._set_producer_state(5, 1, 9)
    batch = DefaultRecordBatch(bytes(chunk.build()))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 1, 9)
