"""Lumberjack into a running connector: windows, compressed frames, answers."""

from __future__ import annotations

import asyncio
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.logs.network.documents import document_line
from connectors.logs.network.frames import FrameInvalid
from connectors.logs.network.lines import LineLimits, NetworkLine
from connectors.logs.network.lumberjack import LumberjackDecoder
from connectors.logs.rules.records import LineOrigin
from tests.unit.connectors.logs.network_world import connected, listening

PEER = LineOrigin("peer", "tcp://0.0.0.0:5044", 0, 1)
MOST = 4000


def window(count: int) -> bytes:
    return b"2W" + count.to_bytes(4)


def event(number: int, content: bytes) -> bytes:
    return b"2J" + number.to_bytes(4) + len(content).to_bytes(4) + content


def compressed(content: bytes) -> bytes:
    packed = zlib.compress(content)
    return b"2C" + len(packed).to_bytes(4) + packed


def beat(message: str) -> bytes:
    return json.dumps({"@timestamp": "2026-11-26T11:00:00Z", "message": message, "host": {"name": "web-1"}}).encode()


def decoder() -> LumberjackDecoder:
    limits = LineLimits(1000)
    return LumberjackDecoder(lambda data, _cut: document_line(data, PEER, limits, recognise=True), MOST)


@given(st.data())
def test_windows_are_found_however_they_come(data: st.DataObject) -> None:
    stream = (
        window(2)
        + event(1, beat("a"))
        + event(2, b"b")
        + window(3)
        + compressed(event(1, beat("c")) + event(2, beat("d")))
        + event(3, beat("e"))
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    target = decoder()
    lines: list[NetworkLine] = []
    answer = b""
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received = target.feed(stream[start:end])
        lines += received.lines
        answer += received.answer
    assert [line.line for line in lines] == ["a", "b", "c", "d", "e"]
    assert answer == b"2A\0\0\0\2" + b"2A\0\0\0\3"


@pytest.mark.parametrize(
    "data",
    [
        b"1W\0\0\0\1",
        b"2X\0\0\0\1",
        b"2W\xff\0\0\0",
        b"2J\0\0\0\1\xff\0\0\0",
        b"2C\xff\0\0\0",
        b"2C\0\0\0\4abcd",
        compressed(b"x" * 5000),
        compressed(event(1, b"x")[:-1]),
        compressed(compressed(b"x")),
        compressed(b"2W\0\0\0\1")[:-3].replace(b"2C\0\0\0\x0e", b"2C\0\0\0\x0b"),
    ],
)
def test_another_protocol_or_a_frame_too_large_is_refused(data: bytes) -> None:
    with pytest.raises(FrameInvalid):
        decoder().feed(data)


def test_a_small_frame_that_unpacks_to_a_million_events_is_refused() -> None:
    data = window(1) + compressed(event(1, b"{}") * 1_000_000)
    assert len(data) < 100_000
    documents: list[bytes] = []

    def make(document: bytes, _cut: bool) -> NetworkLine:
        documents.append(document)
        return NetworkLine("", LineOrigin("", "", 0, 0))

    with pytest.raises(FrameInvalid, match="65536 events"):
        LumberjackDecoder(make, 16 * 1024 * 1024).feed(data)
    assert len(documents) == 65_536


@given(st.binary())
def test_any_bytes_have_a_clear_outcome(data: bytes) -> None:
    for start in (b"", b"2", b"2W", b"2J\0\0\0\1\0\0\0\5"):
        try:
            decoder().feed(start + data)
        except FrameInvalid:
            continue


async def test_a_window_is_answered_after_kafka_has_it() -> None:
    async with listening("lumberjack", "tcp") as listener, connected(listener.port) as (reader, writer):
        confirmed = listener.keep_receipts()
        writer.write(window(2) + compressed(event(7, beat("first")) + event(8, beat("second"))))
        rows = await listener.rows(2)
        assert [(row["line"], row["host"]) for row in rows] == [("first", "web-1"), ("second", "web-1")]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.1)
        for receipt in confirmed:
            receipt.confirm()
        assert await reader.readexactly(6) == b"2A\0\0\0\x08"


async def test_a_window_that_comes_in_parts_is_answered_after_kafka_has_all_of_them() -> None:
    async with listening("lumberjack", "tcp") as listener, connected(listener.port) as (reader, writer):
        confirmed = listener.keep_receipts()
        for number, message in ((1, "first"), (2, "second")):
            writer.write((window(2) if number == 1 else b"") + event(number, beat(message)))
            assert [row["line"] for row in await listener.rows(1)] == [message]
        first, second = (receipt for receipt in confirmed if receipt is not None)
        # Their batches went to different brokers: the second is there first.
        second.confirm()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.1)
        first.confirm()
        assert await reader.readexactly(6) == b"2A\0\0\0\2"


async def test_documents_stay_whole_where_that_is_asked_for() -> None:
    async with (
        listening("lumberjack", "tcp", listen_format="plain") as listener,
        connected(listener.port) as (_, writer),
    ):
        writer.write(window(1) + event(1, beat("x")))
        (row,) = await listener.rows(1)
        assert row["line"].encode() == beat("x")
