"""Syslog over TCP, TLS and UDP into a running connector."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from logging.handlers import SysLogHandler
from typing import TYPE_CHECKING

import pytest

from compose.local.ports import LOOPBACK, free_port
from compose.local.security.certificates import Authority
from connectors.errors import Retriable
from connectors.logs.connector import LogsConnector
from connectors.testing import Run
from tests.unit.connectors.logs.network_world import RULES, connected, listening

if TYPE_CHECKING:
    from pathlib import Path

MESSAGE = b'<165>1 2026-11-26T11:00:00Z web-1 app 99 ID47 [a@1 b="c"] '


async def test_messages_over_tcp() -> None:
    async with listening("syslog", "tcp") as listener, connected(listener.port) as (_, writer):
        writer.write(MESSAGE + b"first\n" + b"%d " % (len(MESSAGE) + 6) + MESSAGE + b"second" + b"third\n")
        first, second, third = await listener.rows(3)
        address = f"tcp://{LOOPBACK}:{listener.port}"
        assert {name: value for name, value in first.items() if name != "log_id"} == {
            "line": "first",
            "host": "web-1",
            "file": address,
            "position": 0,
            "priority": 165,
            "facility": "local4",
            "severity": "notice",
            "app": "app",
            "procid": "99",
            "msgid": "ID47",
            "data": '{"a@1": {"b": "c"}}',
        }
        assert (second["line"], second["position"]) == ("second", 1)
        assert (third["line"], third["host"], third["priority"]) == ("third", LOOPBACK, None)
        names = [row["log_id"].split(":") for row in (first, second, third)]
        assert [name[-2] for name in names] == ["0", "1", "2"]
        assert len({name[-3] for name in names}) == 1
        assert listener.run.offsets.get({"listen": address}) == {"lines": 3}


async def test_unknown_messages_keep_their_header() -> None:
    rules = RULES.replace("{name: line}", "{name: line, type: int}")
    async with (
        listening("syslog", "tcp", rules=rules) as listener,
        connected(listener.port) as (_, writer),
    ):
        writer.write(MESSAGE + b"first\n<13>Nov 26 11:00:00 web-1 app[7]: second\nthird\n")
        rows = await listener.rows(3)
        assert [(row["header"], row["line"]) for row in rows] == [
            (MESSAGE.decode(), "first"),
            ("<13>Nov 26 11:00:00 web-1 app[7]: ", "second"),
            (None, "third"),
        ]


async def test_bad_bytes_have_clear_outcomes() -> None:
    async with listening("syslog", "tcp", line_max_bytes="100") as listener, connected(listener.port) as (_, writer):
        writer.write(b"broken \xff\nnul \0 in it\n" + b"x" * 10_000_000 + b"\nnext\n")
        rows = [row["line"] for row in await listener.rows(4)]
        assert rows == ["broken �", "nul \0 in it", "x" * 100, "next"]
        assert sum(v for name, v in listener.run.metrics.values.items() if "logs_cut_lines_total" in name) == 1


async def test_bad_bytes_are_reported_where_that_is_asked_for() -> None:
    options = {"line_max_bytes": "100", "listen_line_too_long": "report", "file_encoding_errors": "report"}
    async with listening("syslog", "tcp", **options) as listener, connected(listener.port) as (_, writer):
        writer.write(b"broken \xff\n" + b"x" * 1000 + b"\nnext\n")
        errors: list[str] = []
        lines: list[str] = []
        while not lines:
            batch = await listener.run.take(20)
            assert batch is not None
            errors += [str(bad.error) for bad in batch[1].bad]
            lines += [record.value["line"] for record in batch[1].records]
        assert lines == ["next"]
        assert "not UTF-8" in errors[0]
        assert "longer than line.max.bytes=100" in errors[1]


async def test_the_clock_of_a_sender_may_be_wrong() -> None:
    async with listening("syslog", "tcp") as listener, connected(listener.port) as (_, writer):
        writer.write(b"<13>1 2099-01-01T00:00:00Z h a - - - x\n<13>1 2026-01-01T00:00:00Z h a - - - x\n")
        ahead, behind = [record.timestamp for record in await listener.records(2)]
        assert ahead is not None
        assert ahead < 4_000_000_000_000
        assert behind == 1767225600000


async def test_messages_over_udp() -> None:
    async with listening("syslog", "udp") as listener:
        await listener.wait_until_it_listens()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            for number in range(3):
                client.sendto(b"<13>Nov 26 11:00:00 h app: %d\n" % number, (LOOPBACK, listener.port))
        assert [row["line"] for row in await listener.rows(3)] == ["0", "1", "2"]


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["udp", "tcp"])
async def test_the_handler_of_pythons_logging(kind: socket.SocketKind) -> None:
    """As docs/connectors/logs.md says: over TCP its messages have no end unless it is set to write one."""
    async with listening("syslog", "udp" if kind is socket.SOCK_DGRAM else "tcp") as listener:
        await listener.wait_until_it_listens()
        handler = SysLogHandler((LOOPBACK, listener.port), socktype=kind)
        if kind is socket.SOCK_STREAM:
            handler.append_nul = False
            handler.setFormatter(logging.Formatter("%(message)s\n"))
        for text in ("one", "zw\u00f6lf"):
            handler.handle(logging.makeLogRecord({"msg": text, "levelname": "ERROR"}))
        rows = await listener.rows(2)
        handler.close()
    assert [(row["line"], row["severity"]) for row in rows] == [("one", "err"), ("zw\u00f6lf", "err")]


async def test_further_connections_are_refused() -> None:
    async with (
        listening("syslog", "tcp", listen_connections_max="1") as listener,
        connected(listener.port) as (_, writer),
    ):
        writer.write(b"first\n")
        await listener.rows(1)
        async with connected(listener.port) as (reader, _):
            assert await reader.read() == b""
        writer.write(b"second\n")
        assert [row["line"] for row in await listener.rows(1)] == ["second"]


async def is_refused(port: int, context: ssl.SSLContext) -> bool:
    try:
        async with connected(port, context) as (reader, writer):
            writer.write(b"no\n")
            return await reader.read() == b""  # TLS 1.3 reports a refusal with the first bytes
    except (ssl.SSLError, OSError):
        return True


async def test_messages_over_tls_of_known_clients(tmp_path: Path) -> None:
    authority = Authority.make()
    authority.write_pem(tmp_path / "ca.pem")
    authority.issue("server").write_pem(tmp_path / "server.pem")
    authority.issue("client").write_pem(tmp_path / "client.pem")
    Authority.make().issue("stranger").write_pem(tmp_path / "stranger.pem")
    options = {
        "listen_tls_key_store": str(tmp_path / "server.pem"),
        "listen_tls_client_trust_store": str(tmp_path / "ca.pem"),
    }

    def client(name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        if name:
            context.load_cert_chain(tmp_path / name)
        return context

    async with listening("syslog", "tls", **options) as listener:
        await listener.wait_until_it_listens()
        for name in ("", "stranger.pem"):
            assert await is_refused(listener.port, client(name))
        async with connected(listener.port, client("client.pem")) as (_, writer):
            writer.write(b"yes\n")
            assert [row["line"] for row in await listener.rows(1)] == ["yes"]


async def test_addresses_are_divided_among_tasks() -> None:
    ports = [free_port() for _ in range(3)]
    config = {
        "input": "syslog",
        "listen": ",".join(f"tcp://{LOOPBACK}:{port}" for port in ports),
        "topic.prefix": "logs",
        "rules": RULES,
    }
    async with Run(LogsConnector, config, max_tasks=2) as run:
        assert len(run.tasks) == 2
        await run.take(0.01)
        for port in ports:
            async with connected(port) as (_, writer):
                writer.write(b"x\n")
                await writer.drain()
        records = await run.read(3)
        assert {record.source_partition["listen"] for record in records} == set(config["listen"].split(","))


async def test_an_address_in_use_is_tried_again() -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        config = {"input": "syslog", "listen": f"tcp://{LOOPBACK}:{port}", "topic.prefix": "logs", "rules": RULES}
        async with Run(LogsConnector, config) as run:
            (task,) = run.tasks
            with pytest.raises(Retriable, match="another process"):
                await anext(task.batches())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"listen": ""}, "Give the addresses"),
        ({"listen": "tcp://0.0.0.0"}, "is not an address"),
        ({"listen": "tcp://0.0.0.0:x"}, "is not an address|could not be cast"),
        ({"listen": "http://0.0.0.0:1"}, "none of the schemes"),
        ({"listen": "tcp://0.0.0.0:1,tls://0.0.0.0:1", "listen.tls.key.store": "x"}, "are the same"),
        ({"listen": "tls://0.0.0.0:1"}, "server's key"),
        ({"listen": "tcp://0.0.0.0:1", "listen.tls.client.trust.store": "x"}, "not encrypted"),
        ({"listen": "tcp://0.0.0.0:1", "listen.tokens": "x"}, "Only input=http"),
    ],
)
async def test_wrong_options_are_refused(options: dict[str, str], complaint: str) -> None:
    raw = {"input": "syslog", "topic.prefix": "logs", "rules": RULES, **options}
    problems = await LogsConnector.validate(LogsConnector.config_def.parse(raw))
    assert len(problems) == 1
    assert re.search(complaint, problems[0].message)


async def test_a_stop_ends_all_connections() -> None:
    async with listening("syslog", "tcp") as listener:
        async with connected(listener.port) as (reader, writer):
            writer.write(b"x\n")
            await listener.rows(1)
            await listener.run.stop()
            assert await reader.read() == b""
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection(LOOPBACK, listener.port)
