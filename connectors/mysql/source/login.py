"""Logs in to read the binlog: everything up to the first byte of the stream. Blocks, so call it in a thread."""

from __future__ import annotations

import contextlib
import random
import ssl
import struct
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pymysql
from pymysql.err import MySQLError

from connectors.errors import Fatal, Retriable
from connectors.mysql.source import gtid
from connectors.mysql.source.connection import (
    NO_TLS,
    ServerInfo,
    explain_failure,
    info_of,
    probe_quiet_server,
    variables_sql,
)
from connectors.mysql.source.packets import SEND_ANNOTATE_ROWS, PurgedError, dump_command, dump_error, dump_gtid_command

if TYPE_CHECKING:
    import socket
    import threading

    from connectors.mysql.model import BinlogPosition, ConnectionSettings, ServerAddress

#: As Debezium draws its number.
_IDS: Final = range(5400, 6401)
#: Codes of errors, behind the login, about a privilege that lacks; the first one is also that of a wrong password.
_NO_RIGHT: Final = ((1045,), (1142,), (1227,))
#: The dump command has 32 bits for a position.
_TOO_FAR: Final = 1 << 32


class Driver(pymysql.Connection):
    """The driver's connection, with what the binlog needs of its inside."""

    _sock: Any
    _ssl_required: bool
    _next_seq_id: int

    def require_tls(self, *, required: bool) -> None:
        """Whether a server without TLS is refused; the driver knows only always and never."""
        self._ssl_required = required

    @property
    def socket(self) -> socket.socket:
        """The connected socket."""
        connected: socket.socket = self._sock
        return connected

    def send(self, command: bytes) -> None:
        """Send a command whose answer is read elsewhere."""
        self._write_bytes(struct.pack("<I", len(command)) + command)  # type: ignore[attr-defined]

    def ask(self, packet: bytes) -> None:
        """Send a command that is a packet already, and await OK."""
        self._write_bytes(packet)  # type: ignore[attr-defined]
        self._next_seq_id = 1
        self._read_packet()  # type: ignore[no-untyped-call]

    def rows(self, sql: str, *args: object) -> list[tuple[Any, ...]]:
        """The rows of a query; ``%s`` in it stand for ``args``."""
        with self.cursor() as cursor:
            cursor.execute(sql, args or None)
            return list(cursor.fetchall())

    def drop(self) -> None:
        """Close without saying so: a server that sends doesn't listen."""
        self._force_close()  # type: ignore[attr-defined]


class BinlogSession(NamedTuple):
    """A connection on which the server has started to send.

    Attributes:
        driver: the connection; its socket does not block.
        info: the server's own data.
        server_id: the server id under which the connection reads.
        thread: the connection's number in its process list.
        by_gtid: whether the stream starts after a set of GTIDs.
    """

    driver: Driver
    info: ServerInfo
    server_id: int
    thread: int
    by_gtid: bool


def log_in(
    settings: ConnectionSettings,
    address: ServerAddress,
    context: ssl.SSLContext | None,
    position: BinlogPosition,
    *,
    by_gtid: bool,
    annotate: bool,
    given_up: threading.Event,
) -> BinlogSession:
    """Connect to one server and ask for its binlog; see ``BinlogClient``. Blocks.

    ``given_up`` is set when the caller doesn't need the binlog any more. A request for it would then close the connection of
    another reader that uses the same server id by now.

    Raises:
        Retriable: the server doesn't answer, or the attempt was given up.
        PurgedError: it does not have the position's file any more (seen here only for files beyond 4 GiB).
        ConfigInvalid: it refuses us.
        Fatal: it can't send its binlog as requested.
    """
    limit = max(1, int(settings.connect_timeout_s))
    driver = Driver(
        host=address.host, port=address.port, user=settings.user, password=settings.secret.encode(), charset="utf8mb4",
        connect_timeout=limit, read_timeout=limit, write_timeout=limit, autocommit=True, ssl=context,
        ssl_disabled=context is None, program_name=settings.name, defer_connect=True,
    )  # fmt: skip
    driver.require_tls(required=settings.tls is not None and settings.tls.required)
    inside = False
    try:
        driver.connect()
        inside = True
        probe_quiet_server(driver.socket, settings)
        encrypted = isinstance(driver.socket, ssl.SSLSocket)
        info = info_of(driver.rows(variables_sql()), address=str(address), encrypted=encrypted)
        server_id = settings.server_id or _draw_id(driver, info)
        _prepare(driver, settings, info, server_id)
        session = BinlogSession(driver, info, server_id, int(driver.thread_id()), by_gtid)  # type: ignore[no-untyped-call]
        request = _dump_request(driver, info, server_id, position, by_gtid=by_gtid, annotate=annotate)
        if given_up.is_set():
            raise Retriable("reading the binlog was given up before it began")  # noqa: TRY301 - the connection is to be closed
        driver.send(request)
        driver.socket.setblocking(False)
    except BaseException as error:
        driver.drop()
        if inside and isinstance(error, MySQLError) and error.args[:1] in _NO_RIGHT:
            raise dump_error(error.args[0], str(error.args[1])) from error
        if isinstance(error, (MySQLError, OSError, RuntimeError, struct.error)):
            raise explain_failure(error, "beginning to read the binlog", address=address, user=settings.user) from error
        raise
    return session


def _prepare(driver: Driver, settings: ConnectionSettings, info: ServerInfo, server_id: int) -> None:
    """Say how we read; newer servers know the second name of each variable, older ones the first."""
    beat = int(settings.heartbeat_s * 1_000_000_000)
    driver.rows("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
    driver.rows(f"SET @master_heartbeat_period = {beat}, @source_heartbeat_period = {beat}")
    driver.rows(f"SET SESSION net_write_timeout = {settings.net_write_timeout_s}")
    if info.mariadb:
        driver.rows("SET @mariadb_slave_capability = 4")  # it knows GTIDs
    elif not settings.server_id:
        # MySQL then tells readers apart by it, and a number that was drawn twice does no harm.
        name = uuid.uuid4()
        driver.rows(f"SET @slave_uuid = '{name}', @replica_uuid = '{name}'")
    from pymysqlreplication.binlogstream import ReportSlave  # not at the top: it takes a while

    driver.ask(ReportSlave(settings.name).encoded(server_id))


def _dump_request(
    driver: Driver, info: ServerInfo, server_id: int, position: BinlogPosition, *, by_gtid: bool, annotate: bool
) -> bytes:
    flags = SEND_ANNOTATE_ROWS if annotate and info.mariadb else 0
    if by_gtid:
        executed = gtid.parse_gtids(info.flavor, position.gtids)
        if isinstance(executed, gtid.MySqlGtids):
            if not info.has_gtids:
                mode = info.variables.get("gtid_mode") or "OFF"
                raise Fatal(
                    f"the server {info.address} has gtid_mode={mode}, and the stream is to continue behind GTIDs: set it "
                    "to ON (step by step, with enforce_gtid_consistency=ON)"
                )
            return dump_gtid_command(executed, server_id)
        # Strict: a transaction that is not there, though later ones are, is an error and no gap.
        driver.rows(
            "SET @slave_connect_state = %s, @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0",
            executed.text(),
        )
        return dump_command("", 4, server_id, flags)
    if position.pos < _TOO_FAR:
        return dump_command(position.file, position.pos, server_id, flags)
    return dump_command(_file_behind(driver, position), 4, server_id, flags)


def _file_behind(driver: Driver, position: BinlogPosition) -> str:
    """The file after the place's: one transaction alone makes a file that large, and it is the file's last."""
    names = [str(row[0]) for row in driver.rows("SHOW BINARY LOGS")]
    if position.file not in names:
        raise PurgedError(
            f"the server does not have the binlog file {position.file} any more: set snapshot.mode=when_needed and restart"
        )
    after = names[names.index(position.file) + 1 :]
    if not after:
        raise Retriable(
            f"the protocol can't begin at position {position.pos} of {position.file}, and the next file is not there "
            "yet; if it stays so: FLUSH BINARY LOGS"
        )
    return after[0]


def _draw_id(driver: Driver, info: ServerInfo) -> int:
    """A number that no other reader has, as far as the server lets us know."""
    used_ids: set[int] = set()
    with contextlib.suppress(MySQLError):  # the privilege may lack
        newer = not info.mariadb and info.version >= (8, 0, 22)
        used_ids = {int(row[0]) for row in driver.rows("SHOW REPLICAS" if newer else "SHOW SLAVE HOSTS")}
    return random.choice([number for number in _IDS if number not in used_ids] or list(_IDS))  # noqa: S311 - no secret


__all__ = ["NO_TLS", "BinlogSession", "Driver", "log_in"]
