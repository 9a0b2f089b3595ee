"""Bounds: slow clients, many connections, large headers, and the tables that count callers."""

from __future__ import annotations

import asyncio
import gzip
import logging
from typing import TYPE_CHECKING

import pytest

from worker.rest.security.limits import TokenBuckets, caller_address

from .security import write_users

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Rest, Start


async def raw(call: Rest, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send bytes on a connection of their own."""
    host, _, port = call.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    return reader, writer


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: 1\r\n"])
async def test_who_sends_no_header_is_hung_up_on(start: Start, sent: bytes) -> None:
    call, _ = await start(rest_idle_timeout_ms="200")
    reader, writer = await raw(call, sent)
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()


async def test_dripping_does_not_help(start: Start) -> None:
    call, _ = await start(rest_idle_timeout_ms="300")
    reader, writer = await raw(call, b"GET / HTTP/1.1\r\n")

    async def drip() -> None:
        while True:
            writer.write(b"X-More: 1\r\n")
            await asyncio.sleep(0.02)  # the pace of a slow client, not a wait

    dripping = asyncio.create_task(drip())
    try:
        async with asyncio.timeout(10):
            assert await reader.read() == b""
    except ConnectionResetError:
        pass
    finally:
        dripping.cancel()
        writer.close()


async def test_a_body_that_does_not_come(start: Start) -> None:
    call, _ = await start(rest_body_timeout_ms="200")
    reader, writer = await raw(
        call,
        b"PUT /connectors/a/config HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{",
    )
    async with asyncio.timeout(20):
        assert b" 408 " in await reader.readline()
        head = await reader.readuntil(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    writer.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/connectors", 401),
        ("PUT", "/connectors/a/config", 401),
        # Refused because the signature is missing, before the unsigned body is read.
        ("POST", "/connectors/a/tasks", 400),
        ("PUT", "/connectors/a/fence", 400),
    ],
)
async def test_bodies_of_strangers_are_not_waited_for(
    start: Start, tmp_path: Path, method: str, path: str, status: int
) -> None:
    call, _ = await start(
        rest_authentication="basic", rest_auth_users_file=write_users(tmp_path / "users", {"ada": "admin"})
    )
    reader, writer = await raw(
        call,
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: 30000000\r\n\r\n{".encode(),
    )
    async with asyncio.timeout(20):
        assert f" {status} ".encode() in await reader.readline()
    writer.close()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_is_not_encoded_as_it_says(
    start: Start, encoding: str, caplog: pytest.LogCaptureFixture
) -> None:
    call, _ = await start()
    refused = await call("PUT", "/connectors/a/config", b"no archive", {"Content-Encoding": encoding})
    assert (refused.status, "not encoded as its Content-Encoding" in refused.error) == (400, True)
    assert [
        record for record in caplog.records if record.name.startswith("worker") and record.levelno >= logging.ERROR
    ] == []


async def test_a_body_that_unpacks_to_too_much(start: Start) -> None:
    call, _ = await start(rest_request_max_bytes="100000")
    bomb = gzip.compress(b" " * 50_000_000)
    refused = await call("PUT", "/connectors/a/config", bomb, {"Content-Encoding": "gzip"})
    assert (refused.status, "rest.request.max.bytes" in refused.error, len(bomb) < 100_000) == (413, True, True)


async def test_connections_are_bounded(start: Start) -> None:
    call, _ = await start(rest_max_connections="2")
    open_connections = [await raw(call, b"") for _ in range(2)]
    async with asyncio.timeout(10):
        while True:  # the server sees them a moment later
            reader, writer = await raw(call, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            try:
                refused = await reader.read() == b""
            except ConnectionResetError:
                refused = True
            writer.close()
            if refused:
                break
        for _, opened in open_connections:
            opened.close()
        while True:
            reader, writer = await raw(call, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            try:
                answered = b" 200 " in await reader.read()
            except ConnectionResetError:
                answered = False
            writer.close()
            if answered:
                break


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(200)) + b"\r\n",
        b"POST /connectors HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /connectors HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /connectors HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Millrace-Worker-Request : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rX-Millrace-Worker-Request: x\r\n\r\n",
        b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_no_request(start: Start, sent: bytes) -> None:
    call, _ = await start()
    reader, writer = await raw(call, sent)
    async with asyncio.timeout(10):
        assert b" 400 " in await reader.readline()
        await reader.read()  # and the connection ends: the rest can't be distinguished from the next request
    writer.close()


def test_buckets() -> None:
    buckets = TokenBuckets(rate=2, burst=3)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("b", 0.0) == 0
    assert buckets.take("a", 0.5) == 0
    assert buckets.take("a", 0.5) == 0.5
    buckets.give_back("a")
    assert buckets.take("a", 0.5) == 0
    assert buckets.take("a", 0.25) == 0.5  # a clock that goes back gives nothing
    assert [buckets.take("a", 100.0) for _ in range(4)] == [0, 0, 0, 0.5]


def test_the_table_of_callers_does_not_grow() -> None:
    buckets = TokenBuckets(rate=1, burst=1, max_callers=100)
    assert buckets.take("kept", 0.0) == 0
    for number in range(10_000):
        buckets.take(f"caller {number}", 0.0)
        assert buckets.take("kept", 0.0) > 0
    assert len(buckets) == 100


@pytest.mark.parametrize(
    ("remote", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        (None, ""),
        ("unix", "unix"),
    ],
)
def test_addresses(remote: str | None, counted: str) -> None:
    assert caller_address(remote) == counted
