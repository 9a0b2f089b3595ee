"""Senders as an input: a task listens on its addresses, and answers once Kafka has what came.

Nothing can be read again: a restart continues with what senders bring next, and again with what they got no answer for.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from connectors.api import BadRecord, Batch, Position, SourceRecord
from connectors.errors import Fatal, Retriable, Skippable
from connectors.logs.heartbeats import Look
from connectors.logs.metrics import CUT, LOST_DATAGRAMS, REASONS, REFUSED
from connectors.logs.network.datagrams import DatagramServer
from connectors.logs.network.documents import document_line
from connectors.logs.network.frames import FrameDecoder, SyslogDecoder
from connectors.logs.network.http import HttpServer
from connectors.logs.network.intake import Intake, Portion
from connectors.logs.network.lines import LineLimits, NetworkLine, make_line
from connectors.logs.network.lumberjack import LumberjackDecoder
from connectors.logs.network.options import (
    CLIENTS,
    CONNECTIONS,
    FORMAT,
    FROM_HTTP,
    FROM_LUMBERJACK,
    FROM_RELP,
    IDENTITY,
    IDENTITY_PASSWORD,
    INPUT,
    LONG,
    RATE,
    REQUEST_LIMIT,
    ListenAddress,
    task_addresses,
)
from connectors.logs.network.relp import RelpDecoder
from connectors.logs.network.room import Room
from connectors.logs.network.streams import StreamServer
from connectors.logs.network.syslog import parse_syslog
from connectors.logs.rules.records import LineOrigin
from connectors.text_files.options import BATCH_SIZE, LINE_LIMIT, MALFORMED
from connectors.tls import load_identity, read_certificates, read_identity

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from connectors.api import TaskContext
    from connectors.logs.heartbeats import LogHeartbeats
    from connectors.logs.rows import RowMaker

#: In source partitions: an address as the user wrote it.
LISTENER: Final = "listen"
#: In source offsets: how many lines have come there.
LINES: Final = "lines"
#: How long to wait for lines before an empty batch, seconds.
_WAIT_S: Final = 1.0
#: How far the clock of a sender may be ahead, milliseconds: brokers refuse records from the future.
_AHEAD_MS: Final = 600_000


class LogServer(Protocol):
    """Serves one address."""

    async def stop(self) -> None:
        """Close it, and all of its connections."""


async def read_network(
    context: TaskContext, rows: RowMaker, host: str, heartbeats: LogHeartbeats
) -> AsyncGenerator[Batch, None]:
    """Yield batches of rows until cancelled.

    Args:
        context: of the task.
        rows: makes records of lines.
        host: the host of lines whose sender does not name it; "" for the address of the sender.
        heartbeats: learns which addresses are open.

    Raises:
        Fatal: a certificate can't be read, or an address can't ever be bound here.
        Retriable: an address can't be bound now.
    """
    config = context.config
    addresses = task_addresses(config)
    if not addresses:
        return
    secure = any(address.secure for address in addresses)
    tls = await asyncio.to_thread(server_context, config) if secure else None
    intake = Intake(config[BATCH_SIZE], config[RATE])
    room = Room()
    makers = {address.text: _Rows(address.text, context, rows) for address in addresses}
    servers: list[LogServer] = []
    for counter in (CUT, LOST_DATAGRAMS):
        context.metrics.add(counter, 0)
    for reason in REASONS:
        context.metrics.add(REFUSED, 0, {"reason": reason})
    try:
        for address in addresses:
            server = await _open_server(address, tls, context, intake, host, room)
            servers.append(server)
        context.log.info("listens on %s", ", ".join(makers))
        while True:
            portions = await intake.take(_WAIT_S)
            if portions:
                batch = _make_batch(makers, portions)
                batch.receipt = rows.counts.report(partial(intake.confirm, portions))
                yield batch
                for name in {portion.address for portion in portions}:
                    heartbeats.add_lines(name)
            else:
                yield Batch([])
            if heartbeats.due:
                now = time.time_ns() // 1_000_000
                beats = heartbeats.beat(
                    Look(maker.address, maker.partition, maker.offset, now) for maker in makers.values()
                )
                if beats is not None:
                    yield beats
    finally:
        await asyncio.gather(*(server.stop() for server in servers))


def server_context(config: Mapping[str, Any]) -> ssl.SSLContext:
    """The TLS of a server. Reads files: blocks for a moment.

    Raises:
        ConfigInvalid: a file can't be read.
        Fatal: OpenSSL does not accept what is in it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    secret = config[IDENTITY_PASSWORD]
    password = None if secret is None else secret.value
    store = read_identity(config[IDENTITY], password)
    try:
        load_identity(context, store, password)
    except (ssl.SSLError, OSError) as error:
        raise Fatal(f"{IDENTITY}={config[IDENTITY]} can't be used: {error}; is its password right?") from error
    if config[CLIENTS]:
        context.load_verify_locations(cadata=read_certificates(config[CLIENTS], None))
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


async def _open_server(
    address: ListenAddress, tls: ssl.SSLContext | None, context: TaskContext, intake: Intake, host: str, room: Room
) -> LogServer:
    config, add = context.config, context.metrics.add
    limits = line_limits(config)

    def count_refused(reason: str = "connections") -> None:
        add(REFUSED, 1, {"reason": reason})

    def make_sender_origin(peer: str) -> LineOrigin:
        return make_origin(address, peer, host)

    server: DatagramServer | StreamServer | HttpServer
    if config[INPUT] == FROM_HTTP:
        server = HttpServer(address, intake, context, limits, make_sender_origin, count_refused, room)
        start = server.start(tls if address.secure else None)
    elif address.scheme == "udp":

        def make_message(data: bytes, peer: str) -> NetworkLine:
            return make_line(data, limits, make_sender_origin(peer), parse_syslog)

        server = DatagramServer(address, intake, make_message, lambda: add(LOST_DATAGRAMS))
        start = server.start()
    else:
        make_decoder = partial(_make_decoder, config, limits, make_sender_origin)
        server = StreamServer(address, intake, make_decoder, config[CONNECTIONS], context.log, count_refused, room)
        start = server.start(tls if address.secure else None)
    try:
        await start
    except OSError as error:
        await server.stop()
        raise _not_bound(address, error) from error
    return server


def _make_decoder(
    config: Mapping[str, Any], limits: LineLimits, make_sender_origin: Callable[[str], LineOrigin], peer: str
) -> FrameDecoder:
    """The state of a new connection, by the input."""
    source, recognise = config[INPUT], config[FORMAT] == "auto"

    def make_document(data: bytes, _cut: bool) -> NetworkLine:  # noqa: FBT001 - called for each line
        return document_line(data, make_sender_origin(peer), limits, recognise=recognise)

    def make_message(data: bytes, cut: bool) -> NetworkLine:  # noqa: FBT001 - called for each line
        return make_line(data, limits, make_sender_origin(peer), parse_syslog, cut=cut)

    if source == FROM_LUMBERJACK:
        return LumberjackDecoder(make_document, config[REQUEST_LIMIT])
    return (RelpDecoder if source == FROM_RELP else SyslogDecoder)(make_message, limits.most)


def _not_bound(address: ListenAddress, error: OSError) -> Fatal | Retriable:
    if error.errno == errno.EACCES:
        return Fatal(
            f"{address.text} can't be bound: ports below 1024 need a right that the worker does not have; choose another"
        )
    hint = "another process, or a task that is just being stopped, has the port"
    if error.errno == errno.EADDRNOTAVAIL:
        hint = "this worker's machine has no such address: listen on 0.0.0.0, or start a worker where it is"
    return Retriable(f"{address.text} can't be bound: {error}; {hint}")


def line_limits(config: Mapping[str, Any]) -> LineLimits:
    """The treatment of bytes that are not a proper line, as the options say."""
    return LineLimits(config[LINE_LIMIT], config[LONG] == "report", config[MALFORMED] == "report")


def make_origin(address: ListenAddress, peer: str, host: str) -> LineOrigin:
    """The origin of what a sender says nothing about."""
    return LineOrigin(host or peer, address.text, 0, int(time.time() * 1000))


class _Rows:
    """Makes the records of lines from one address."""

    def __init__(self, address: str, context: TaskContext, rows: RowMaker) -> None:
        self.partition: Position = {LISTENER: address}
        self.address = address
        self._rows = rows
        saved = context.offsets.get(self.partition)
        self._lines = int(saved[LINES]) if saved is not None else 0
        self._number = 0
        self._add = context.metrics.add

    @property
    def offset(self) -> Position:
        """The offset after all lines so far."""
        return {LINES: self._lines}

    def add(self, portion: Portion, records: list[SourceRecord], bad: list[BadRecord]) -> tuple[Position, Position]:
        """Append the records of a portion; returns partition and offset after it."""
        rows = self._rows
        count = self._lines
        self._lines += len(portion.lines)
        after = self.offset
        now = time.time_ns() // 1_000_000
        # Order numbers grow with time, also over restarts; a line has fewer rows than characters.
        number = max(self._number, now << 20)
        for index, line in enumerate(portion.lines):
            if line.error:
                reason = Skippable(f"{self.address}, line {portion.first + index} of {portion.sender}: {line.error}")
                bad.append(BadRecord(self.partition, after, reason, line.raw, rows.unknown_topic))
                continue
            if line.cut:
                self._add(CUT)
            origin = line.origin
            if not origin.position or not 0 <= origin.timestamp <= now + _AHEAD_MS:
                origin = msgspec.structs.replace(
                    origin,
                    position=origin.position or count + index,
                    timestamp=origin.timestamp if 0 <= origin.timestamp <= now + _AHEAD_MS else now,
                )
            name = line.identity or f"{portion.sender}:{portion.first + index}"
            identity = f"{self.address}:{name}"
            rows.add_line(
                records, self.partition, after, after, line.line, origin, identity, number, header=line.header
            )
            number += len(line.line) + 1
        self._number = number
        return self.partition, after


def _make_batch(makers: Mapping[str, _Rows], portions: Sequence[Portion]) -> Batch:
    records: list[SourceRecord] = []
    bad: list[BadRecord] = []
    offsets = [makers[portion.address].add(portion, records, bad) for portion in portions]
    return Batch(records, tuple(bad), tuple(offsets))
