"""Real senders into the logs connector: rsyslog, syslog-ng, a client of Lumberjack, curl, OpenTelemetry's exporter."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

from compose.local.ports import LOOPBACK
from compose.local.security.certificates import Authority
from tests.support.log_senders import import_pylogbeat, start_rsyslog, start_syslog_ng
from tests.unit.connectors.logs.network_world import listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compose.local.process.service import Service

pytestmark = pytest.mark.slow

LINES = [f"line {number} {'é' * (number % 50)}" for number in range(2000)]
PEM = "server.pem"


@pytest.fixture
def senders() -> Iterator[ExitStack]:
    """Senders that were started, to be stopped."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with all lines."""
    path = tmp_path / "app.log"
    path.write_text("".join(line + "\n" for line in LINES), encoding="utf-8")
    return path


async def start(senders: ExitStack, make: Callable[[], Service]) -> None:
    service = await asyncio.to_thread(make)
    senders.callback(service.stop)


def tls(folder: Path) -> dict[str, str]:
    """Certificates, and the connector's options with them."""
    authority = Authority.make()
    authority.write_pem(folder / "ca.pem")
    issued = authority.issue("server")
    issued.write_pem(folder / PEM)
    client = authority.issue("client")
    (folder / "client.key").write_text(client.key_pem(), encoding="ascii")
    (folder / "client.crt").write_text(client.chain_pem, encoding="ascii")
    return {
        "listen_tls_key_store": str(folder / PEM),
        "listen_tls_client_trust_store": str(folder / "ca.pem"),
    }


def check_rows(rows: list[dict[str, Any]], *, in_order: bool = True) -> None:
    """Every line came, with what the sender says about it."""
    assert [row["line"] for row in rows] == LINES if in_order else {row["line"] for row in rows} == set(LINES)
    assert {row["facility"] for row in rows} <= {"user", "local0"}
    assert {row["severity"] for row in rows} == {"notice"}
    assert len({row["log_id"] for row in rows}) == len(LINES)


@pytest.mark.parametrize("framing", ["octet-counted", "traditional"])
@pytest.mark.parametrize("template", ["named", "RSYSLOG_SyslogProtocol23Format", "RSYSLOG_ForwardFormat"])
async def test_rsyslog_over_tcp(senders: ExitStack, tmp_path: Path, log: Path, framing: str, template: str) -> None:
    async with listening("syslog", "tcp") as listener:
        action = (
            f'action(type="omfwd" target="{LOOPBACK}" port="{listener.port}" protocol="tcp" TCP_Framing="{framing}" '
            f'template="{template}" action.resumeRetryCount="-1" action.resumeInterval="1")'
        )
        await start(senders, lambda: start_rsyslog(tmp_path / "rsyslog", action, log))
        rows = await listener.rows(len(LINES))
    check_rows(rows)
    assert {row["app"] for row in rows} == {"app"}


async def test_rsyslog_over_tls(senders: ExitStack, tmp_path: Path, log: Path) -> None:
    async with listening("syslog", "tls", **tls(tmp_path)) as listener:
        action = (
            f'global(DefaultNetstreamDriver="ossl" DefaultNetstreamDriverCAFile="{tmp_path}/ca.pem" '
            f'DefaultNetstreamDriverCertFile="{tmp_path}/client.crt" DefaultNetstreamDriverKeyFile="{tmp_path}/client.key")\n'
            f'action(type="omfwd" target="{LOOPBACK}" port="{listener.port}" protocol="tcp" TCP_Framing="octet-counted" '
            'StreamDriver="ossl" StreamDriverMode="1" StreamDriverAuthMode="x509/certvalid" template="named" '
            'action.resumeRetryCount="-1" action.resumeInterval="1")'
        )
        await start(senders, lambda: start_rsyslog(tmp_path / "rsyslog", action, log))
        check_rows(await listener.rows(len(LINES)))


async def test_rsyslog_over_udp(senders: ExitStack, tmp_path: Path, log: Path) -> None:
    async with listening("syslog", "udp") as listener:
        action = f'action(type="omfwd" target="{LOOPBACK}" port="{listener.port}" protocol="udp" template="named")'
        await start(senders, lambda: start_rsyslog(tmp_path / "rsyslog", action, log))
        check_rows(await listener.rows(len(LINES)), in_order=False)


@pytest.mark.parametrize("secure", [False, True])
async def test_rsyslog_over_relp(senders: ExitStack, tmp_path: Path, log: Path, secure: bool) -> None:
    options = tls(tmp_path) if secure else {}
    security = (
        f'tls="on" tls.caCert="{tmp_path}/ca.pem" tls.myCert="{tmp_path}/client.crt" '
        f'tls.myPrivKey="{tmp_path}/client.key" tls.authMode="certvalid"'
    )
    async with listening("relp", "tls" if secure else "tcp", **options) as listener:
        action = (
            f'action(type="omrelp" target="{LOOPBACK}" port="{listener.port}" {security if secure else ""} '
            'template="named" action.resumeRetryCount="-1" action.resumeInterval="1")'
        )
        await start(senders, lambda: start_rsyslog(tmp_path / "rsyslog", action, log))
        check_rows(await listener.rows(len(LINES)))


async def test_messages_of_rsyslog_keep_their_names_when_they_are_sent_again(
    senders: ExitStack, tmp_path: Path, log: Path
) -> None:
    names: list[set[str]] = []
    async with listening("relp", "tcp") as listener:
        action = (
            f'action(type="omrelp" target="{LOOPBACK}" port="{listener.port}" template="named" '
            'action.resumeRetryCount="-1" action.resumeInterval="1")'
        )
        listener.keep_receipts()  # nothing is answered
        await start(senders, lambda: start_rsyslog(tmp_path / "rsyslog", action, log))
        names.append({row["log_id"] for row in await listener.rows(1)})
        await listener.restart()
        names.append({row["log_id"] for row in await listener.rows(len(LINES))})
    assert names[0] <= names[1]
    assert len(names[1]) == len(LINES)


@pytest.mark.parametrize("transport", ["tcp", "tls", "udp"])
async def test_syslog_ng(senders: ExitStack, tmp_path: Path, log: Path, transport: str) -> None:
    options = tls(tmp_path) if transport == "tls" else {}
    async with listening("syslog", transport, **options) as listener:
        files = f'ca-file("{tmp_path}/ca.pem") key-file("{tmp_path}/client.key") cert-file("{tmp_path}/client.crt")'
        encryption = f"tls({files})" if transport == "tls" else ""
        destination = (
            f'syslog("{LOOPBACK}" port({listener.port}) transport("{transport}") {encryption} time-reopen(1) '
            "log-fifo-size(10000));"
        )
        await start(senders, lambda: start_syslog_ng(tmp_path / "syslog-ng", destination, log))
        check_rows(await listener.rows(len(LINES)), in_order=transport != "udp")


@pytest.mark.parametrize("secure", [False, True])
async def test_a_client_of_lumberjack(tmp_path: Path, secure: bool) -> None:
    pylogbeat = import_pylogbeat()
    options = tls(tmp_path) if secure else {}
    async with listening("lumberjack", "tls" if secure else "tcp", **options) as listener:
        await listener.wait_until_it_listens()
        security = (
            {
                "ssl_enable": True,
                "ssl_verify": True,
                "keyfile": str(tmp_path / "client.key"),
                "certfile": str(tmp_path / "client.crt"),
                "ca_certs": str(tmp_path / "ca.pem"),
            }
            if secure
            else {}
        )

        def send() -> None:
            with pylogbeat.PyLogBeatClient(LOOPBACK, listener.port, timeout=20, **security) as client:
                for first in range(0, len(LINES), 500):
                    client.send(
                        [
                            {"@timestamp": "2026-11-26T11:00:00Z", "message": line, "host": {"name": "web-1"}}
                            for line in LINES[first : first + 500]
                        ]
                    )

        sending = asyncio.create_task(asyncio.to_thread(send))
        rows = await listener.rows(len(LINES))
        await sending
    assert [row["line"] for row in rows] == LINES
    assert {row["host"] for row in rows} == {"web-1"}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is in test_log_senders.py")
async def test_curl(log: Path) -> None:
    async with listening("http", "http", listen_tokens="a-token") as listener:
        await listener.wait_until_it_listens()
        curl = await asyncio.create_subprocess_exec(
            *("curl", "-sS", "--noproxy", "*", "-H", "Authorization: Bearer a-token", "--data-binary", f"@{log}"),
            f"http://{LOOPBACK}:{listener.port}/lines",
            stdout=asyncio.subprocess.PIPE,
        )
        rows = await listener.rows(len(LINES))
        output, _ = await curl.communicate()
    assert json.loads(output) == {"accepted": len(LINES)}
    assert [row["line"] for row in rows] == LINES


async def test_the_exporter_of_opentelemetry() -> None:
    async with listening("http", "http") as listener:
        await listener.wait_until_it_listens()
        provider = LoggerProvider()
        url = f"http://{LOOPBACK}:{listener.port}/v1/logs"
        provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(endpoint=url)))
        logger = logging.getLogger(f"otlp-{listener.port}")
        logger.addHandler(LoggingHandler(logger_provider=provider))
        thread = threading.Thread(target=lambda: logger.warning("of a program", extra={"count": 7}))
        thread.start()
        (row,) = await listener.rows(1)
        await asyncio.to_thread(thread.join)
        await asyncio.to_thread(provider.shutdown)
    assert (row["line"], row["severity"]) == ("of a program", "WARN")
    assert json.loads(row["data"])["attributes"]["count"] == 7
