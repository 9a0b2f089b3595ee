"""RELP into a running connector: each message is answered by its number, after Kafka has it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.logs.network.frames import FrameInvalid
from connectors.logs.network.lines import LineLimits, NetworkLine, make_line
from connectors.logs.network.relp import RelpDecoder
from connectors.logs.network.syslog import parse_syslog
from connectors.logs.rules.records import LineOrigin
from tests.unit.connectors.logs.network_world import connected, listening

PEER = LineOrigin("peer", "tcp://0.0.0.0:2514", 0, 1)


def frame(number: int, command: str, content: bytes = b"") -> bytes:
    return b"%d %b %d%b%b\n" % (number, command.encode(), len(content), b" " if content else b"", content)


OPEN = frame(1, "open", b"relp_version=0\nrelp_software=librelp,1.11.0,http://librelp.adiscon.com\ncommands=syslog")
OPENED = frame(1, "rsp", b"200 OK\nrelp_version=0\nrelp_software=millrace\ncommands=syslog")


def decoder(most: int = 100) -> RelpDecoder:
    limits = LineLimits(most)
    return RelpDecoder(lambda data, cut: make_line(data, limits, PEER, parse_syslog, cut=cut), most)


@given(st.data())
def test_frames_are_found_however_they_come(data: st.DataObject) -> None:
    stream = (
        frame(1, "open", b"relp_version=0")
        + frame(2, "syslog", b"<13>a\nb")
        + frame(3, "syslog", b"x" * 150)
        + frame(4, "syslog")
        + frame(5, "other", b"y")
        + frame(6, "syslog", b"last")
        + frame(7, "close")
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    target = decoder()
    lines: list[NetworkLine] = []
    at_once = answer = b""
    closed = False
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received = target.feed(stream[start:end])
        lines += received.lines
        at_once += received.at_once
        answer += received.answer
        closed = closed or received.close
    assert [line.line for line in lines] == ["a\nb", "x" * 100, "", "last"]
    assert at_once == OPENED + frame(5, "rsp", b"500 there is no such command")
    assert (
        answer == b"".join(frame(number, "rsp", b"200 OK") for number in (2, 3, 4, 6)) + b"7 rsp 0\n0 serverclose 0\n"
    )
    assert closed


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: somewhere.example.com\r\nAccept: */*\r\n\r\n", b"1 open 101 x"]
)
def test_another_protocol_is_refused(data: bytes) -> None:
    with pytest.raises(FrameInvalid):
        decoder().feed(data)


@given(st.binary())
def test_any_bytes_have_a_clear_outcome(data: bytes) -> None:
    target = decoder()
    try:
        target.feed(data)
    except FrameInvalid:
        return
    assert len(target._rest) < 200


async def answers(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    return [await reader.readline() for _ in range(count)]


async def test_messages_are_answered_after_kafka_has_them() -> None:
    async with listening("relp", "tcp") as listener, connected(listener.port) as (reader, writer):
        confirmed = listener.keep_receipts()
        writer.write(OPEN)
        assert b"".join(await answers(reader, 4)) == OPENED
        writer.write(frame(2, "syslog", b"<13>first") + frame(3, "syslog", b"<13>second"))
        assert [row["line"] for row in await listener.rows(2)] == ["first", "second"]
        assert not reader._buffer  # type: ignore[attr-defined]
        for receipt in confirmed:
            receipt.confirm()
        assert await answers(reader, 2) == [b"2 rsp 6 200 OK\n", b"3 rsp 6 200 OK\n"]
        writer.write(frame(4, "close"))
        await listener.run.take(0.1)
        assert await reader.read() == b"4 rsp 0\n0 serverclose 0\n"


async def test_nobody_is_answered_for_what_was_not_delivered() -> None:
    async with listening("relp", "tcp") as listener, connected(listener.port) as (reader, writer):
        listener.keep_receipts()
        writer.write(OPEN + frame(2, "syslog", b"<13>first"))
        await listener.rows(1)
        await listener.run.stop()
        assert b"2 rsp" not in await reader.read()


async def test_a_sender_that_does_not_read_its_answers_is_not_read_from() -> None:
    async with listening("relp", "tcp") as listener, connected(listener.port) as (_, writer):
        # A client that only asks, and never reads: what it can hand over is bounded.
        with pytest.raises(TimeoutError):
            await ask_many_times(writer)


async def ask_many_times(writer: asyncio.StreamWriter) -> None:
    """Hand over 100 MB of questions; raises ``TimeoutError`` if they are not taken."""
    for _ in range(100):
        writer.write(OPEN * 10_000)
        async with asyncio.timeout(2):
            await writer.drain()
