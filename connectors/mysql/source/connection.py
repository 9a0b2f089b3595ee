"""Connections for queries, and the server's own data: version, ids and variables.

``explain_failure`` turns every error of the driver into one of ours: ``Retriable`` where the server is unavailable or busy,
``ConfigInvalid`` where it refuses us, ``Fatal`` for the rest.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiomysql.connection import Connection
from aiomysql.cursors import Cursor
from pymysql.constants import CLIENT
from pymysql.err import MySQLError, OperationalError

from connectors.cql.cluster.tls import CqlTlsSettings as Stores
from connectors.cql.cluster.tls import ssl_context as stores_context
from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable
from connectors.mysql.model import MARIADB, MYSQL, BinlogPosition, ServerAddress
from connectors.mysql.source import binlog_events as parse
from connectors.mysql.source.driver import open_connection, socket_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.mysql.model import ConnectionSettings, MySqlTlsSettings, TableName

#: Server variables that the connector uses; a server has some of them.
VARIABLES: Final = (
    "binlog_annotate_row_events", "binlog_checksum", "binlog_expire_logs_seconds", "binlog_format", "binlog_row_image",
    "binlog_row_metadata", "binlog_row_value_options", "binlog_rows_query_log_events", "binlog_transaction_compression",
    "character_set_server", "collation_server", "enforce_gtid_consistency", "expire_logs_days", "gtid_domain_id", "gtid_mode",
    "gtid_strict_mode", "hostname", "log_bin", "log_bin_compress", "log_slave_updates", "log_replica_updates",
    "lower_case_table_names", "max_allowed_packet", "read_only", "server_id", "server_uid", "server_uuid", "system_time_zone",
    "time_zone", "version", "version_comment",
)  # fmt: skip

#: Errors of a server or a client that pass by themselves.
_PASSING: Final = frozenset({
    1037, 1040, 1041, 1053, 1077, 1078, 1079, 1080, 1129, 1135, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226,
    1317, 1412, 1613, 1614, 1927, 1969, 2000, 2002, 2003, 2005, 2006, 2012, 2013, 2014, 2027, 2055, 3024, 3168, 3169, 3170,
    4031,
})  # fmt: skip
#: Login errors that only another configuration or another account fixes.
_REFUSED: Final = frozenset({
    1043, 1044, 1045, 1130, 1131, 1132, 1133, 1251, 1275, 1524, 1698, 1820, 1862, 2007, 2026, 2049, 2054, 2058, 2059, 2061,
    3118, 3159, 3878, 3955, 4151,
})  # fmt: skip
_NO_TABLE: Final = 1146
_PRIVILEGE: Final = frozenset({1142, 1143, 1227, 1370, 1419})
_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
#: How often the place is asked for again while the server writes on in between.
_ATTEMPTS: Final = 3
#: Bytes before the first event of an encrypted binlog file of MySQL.
_ENCRYPTION_HEADER: Final = 512


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A server's own data.

    Attributes:
        flavor: ``mariadb`` or ``mysql``.
        version: three numbers.
        version_text: as the server writes it.
        server_id: its number in replication.
        uuid: MySQL's ``server_uuid``; MariaDB's ``server_uid``, "" where it has none.
        domain: MariaDB's replication domain; 0 with MySQL.
        variables: the ``VARIABLES`` that it has, in lower case, as text.
        address: where it was reached.
        encrypted: whether the connection is.
    """

    flavor: str
    version: tuple[int, int, int]
    version_text: str
    server_id: int
    uuid: str = ""
    domain: int = 0
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    address: str = ""
    encrypted: bool = False

    @property
    def mariadb(self) -> bool:
        """Whether it is a MariaDB."""
        return self.flavor == MARIADB

    def is_on(self, name: str) -> bool:
        """Whether a variable says yes."""
        return self.variables.get(name, "").upper() in {"ON", "1", "YES"}

    @property
    def stores_lower_case(self) -> bool:
        """Whether it stores names of tables in lower case, whatever the case in statements."""
        return self.variables.get("lower_case_table_names") == "1"

    def stored_name(self, name: TableName) -> TableName:
        """The name as it stores it."""
        return name.folded if self.stores_lower_case else name

    @property
    def has_gtids(self) -> bool:
        """Whether its transactions have GTIDs: MariaDB's always do."""
        return self.mariadb or self.variables.get("gtid_mode", "").upper() == "ON"


class _QuietCursor(Cursor):  # type: ignore[misc]  # the driver has no types
    """A cursor that doesn't make Python warnings of the server's notes (a table to be dropped is not there ...)."""

    async def _show_warnings(self, conn: Connection) -> None:
        """Nothing: it would ask the server for them."""


class _MySqlConnection(Connection):  # type: ignore[misc]  # the driver has no types
    """A driver's connection that decides about encryption before it sends anything secret."""

    tls_required = False
    _ssl_context: ssl.SSLContext | None

    async def _get_server_information(self) -> None:
        await super()._get_server_information()
        if self._ssl_context and not self.server_capabilities & CLIENT.SSL:
            if self.tls_required:
                raise OperationalError(2026, NO_TLS)
            self._ssl_context = None
            self.client_flag &= ~CLIENT.SSL

    @property
    def encrypted(self) -> bool:
        """Whether TLS is in use."""
        return bool(self._writer is not None and self._writer.transport.get_extra_info("ssl_object"))


NO_TLS: Final = "the server has no TLS"


async def connect_first(settings: ConnectionSettings, *, server_name: str = "") -> Connection:
    """A connection for queries, to the first of the servers that answers; ``close()`` it.

    Strings are utf8mb4, times are in ``settings.time_zone``, autocommit is on. Tasks must not share it at the same time.
    ``server_name`` says in messages what the server is for.

    Raises:
        Retriable: no server answers, or it is too busy.
        ConfigInvalid: it refuses us, or a TLS file can't be used.
    """
    context = await asyncio.to_thread(ssl_context, settings.tls)
    addresses = settings.addresses()
    for number, address in enumerate(addresses):
        try:
            return await _connect_address(settings, address, context, server_name)
        except Retriable:
            if number + 1 == len(addresses):
                raise
    raise AssertionError  # there is at least one address


async def _connect_address(
    settings: ConnectionSettings, address: ServerAddress, context: ssl.SSLContext | None, name: str
) -> Connection:
    connection = _MySqlConnection(
        host=address.host, port=address.port, user=settings.user, password=driver_password(settings.secret), charset="utf8mb4",
        # No limit of the driver's own: up to Python 3.11 its wait_for forgets a cancellation that comes as the socket opens.
        connect_timeout=None, autocommit=True, ssl=context, program_name=settings.name,
        loop=asyncio.get_running_loop(), cursorclass=_QuietCursor,
    )  # fmt: skip
    connection.tls_required = settings.tls is not None and settings.tls.required
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            await open_connection(connection)
            probe_quiet_server(socket_of(connection), settings)
            for statement in (_session_statement(settings, connection.server_version), *settings.statements):
                await _execute_statement(connection, statement)
    except BaseException as error:
        connection.close()
        if isinstance(error, (MySQLError, OSError, EOFError, RuntimeError)):
            raise explain_failure(error, "connecting", address=address, user=settings.user, name=name) from error
        raise
    return connection


def probe_quiet_server(connection: socket.socket, settings: ConnectionSettings) -> None:
    """Let the system notice a server that has silently gone away, also while an answer is waited for."""
    if not settings.keepalive:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", int(settings.keepalive_s)), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, max(1, value))


def driver_password(secret: str) -> str:
    """The password in the form from which the driver makes the bytes of its UTF-8 form, as the server's own client sends."""
    return secret.encode().decode("latin-1")


def _session_statement(settings: ConnectionSettings, version: str) -> str:
    zone = settings.time_zone.replace("\\", "").replace("'", "''")
    parts = [
        f"time_zone = '{zone}'",
        "sql_mode = 'STRICT_TRANS_TABLES'",
        f"net_write_timeout = {settings.net_write_timeout_s}",
    ]
    if settings.net_read_timeout_s is not None:
        parts.append(f"net_read_timeout = {settings.net_read_timeout_s}")
    # A limit for interactive users must not end a snapshot.
    if "mariadb" in version.lower():
        parts.append("max_statement_time = 0")
    else:
        if parse_version(version) >= (5, 7, 8):
            parts.append("max_execution_time = 0")
        if parse_version(version) >= (8, 0, 30):
            # Else a primary key that the server has made is in the binlog and not in the catalog.
            parts.append("show_gipk_in_create_table_and_information_schema = ON")
    return "SET SESSION " + ", ".join(parts)


async def _execute_statement(connection: Connection, statement: str) -> None:
    async with connection.cursor() as cursor:
        await cursor.execute(statement)


async def query_rows(connection: Connection, sql: str, args: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
    """The rows of a query whose result is small; ``%s`` in it stand for ``args``.

    Raises:
        Retriable: the connection is lost, or the server busy; connect again.
        Fatal: the server refuses the statement.
    """
    try:
        async with connection.cursor() as cursor:
            await cursor.execute(sql, args)
            return list(await cursor.fetchall())
    except (MySQLError, OSError, EOFError, RuntimeError) as error:
        raise explain_failure(error, f"running {_shorten_sql(sql)}", user=str(connection.user)) from error


def is_missing_table(error: MillraceError) -> bool:
    """Whether the server has refused a query because there is no such table."""
    cause = error.__cause__
    return isinstance(cause, MySQLError) and cause.args[:1] == (_NO_TABLE,)


def _shorten_sql(sql: str) -> str:
    line = " ".join(sql.split())
    return line if len(line) <= 200 else f"{line[:200]} ..."


def explain_failure(
    error: BaseException, doing: str, *, address: ServerAddress | None = None, user: str = "", name: str = ""
) -> MillraceError:
    """Our error for one of the driver's: what happened while ``doing`` something, where, and how to fix it."""
    where = f"{name or 'the MySQL server'}{f' at {address}' if address is not None else ''}"
    causes: list[BaseException | None] = [error, getattr(error, "original_exception", None), error.__cause__]
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ConfigInvalid(
                f"{where} has a certificate that is not believed ({cause.verify_message}): name its "
                "authority's certificate in database.ssl.truststore, or "
                "use database.ssl.mode=required, which checks none"
            )
        if isinstance(cause, ssl.SSLError):
            return Retriable(
                f"{where}: TLS failed while {doing}: {cause}; if it stays so, compare database.ssl.mode with the "
                "server's tls_version and certificates"
            )
    code = error.args[0] if isinstance(error, MySQLError) and error.args and isinstance(error.args[0], int) else 0
    message = str(error.args[1]) if code and len(error.args) > 1 else str(error) or type(error).__name__
    if isinstance(error, TimeoutError):
        return Retriable(
            f"{where} did not answer in time while {doing}; check the address, firewalls, and the server's load"
        )
    if code in _REFUSED:
        return ConfigInvalid(f"{where} refuses the user {user!r} ({code}: {message}); {_refusal_advice(code)}")
    if code in _PRIVILEGE:
        return Fatal(
            f"{where}: the user {user!r} lacks a privilege for {doing} ({code}: {message}); GRANT it, for instance "
            f"GRANT SELECT, RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'"
        )
    if code in _PASSING or (not code and isinstance(error, (OSError, EOFError, RuntimeError))):
        cause = next((candidate for candidate in causes[1:] if candidate is not None), None)
        cause_note = f" ({cause})" if cause is not None and str(cause) and str(cause) not in message else ""
        return Retriable(
            f"{where} is unavailable or too busy while {doing} ({code}: {message}{cause_note}); check that it runs and can "
            "be reached"
        )
    return Fatal(f"{where} refuses while {doing}: {code}: {message}")


def _refusal_advice(code: int) -> str:
    if code in {1045, 1698}:
        return "check database.user and database.password, and the account's host: SELECT user, host FROM mysql.user"
    if code == 1130:
        return "create the account for the host that we come from: CREATE USER 'name'@'host' IDENTIFIED BY '...'"
    if code in {2026, 3159}:
        return "set database.ssl.mode as the server wants it: required where it insists on TLS, preferred where it has none"
    if code in {1820, 1862}:
        return "give the account a new password with ALTER USER ... IDENTIFIED BY '...'"
    if code in {3118, 4151}:
        return "unlock the account: ALTER USER ... ACCOUNT UNLOCK"
    return (
        "give the account a way of logging in that this program has: mysql_native_password, caching_sha2_password or "
        "sha256_password"
    )


def parse_version(version: str) -> tuple[int, int, int]:
    """The three numbers of a version text; ``5.5.5-`` before a MariaDB's is for old clients and doesn't count."""
    match = _VERSION.search(version.removeprefix("5.5.5-") if "mariadb" in version.lower() else version)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def variables_sql() -> str:
    """The statement whose rows ``info_of`` takes."""
    return f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({', '.join(repr(name) for name in VARIABLES)})"


def info_of(rows: Sequence[tuple[Any, ...]], *, address: str = "", encrypted: bool = False) -> ServerInfo:
    """Parse the rows of ``variables_sql``."""
    variables = {str(name).lower(): "" if value is None else str(value) for name, value in rows}
    version_text = variables.get("version", "")
    mariadb = "mariadb" in f"{version_text} {variables.get('version_comment', '')}".lower()
    return ServerInfo(
        flavor=MARIADB if mariadb else MYSQL,
        version=parse_version(version_text),
        version_text=version_text,
        server_id=int(variables.get("server_id") or 0),
        uuid=variables.get("server_uid" if mariadb else "server_uuid", ""),
        domain=int(variables.get("gtid_domain_id") or 0),
        variables=variables,
        address=address,
        encrypted=encrypted,
    )


def address_of(connection: Connection) -> str:
    """``host:port`` of the server that it is to."""
    return str(ServerAddress(connection.host, connection.port))


async def server_info(connection: Connection) -> ServerInfo:
    """Return the server's own data.

    Raises:
        Retriable: the connection is lost.
    """
    rows = await query_rows(connection, variables_sql())
    return info_of(rows, address=address_of(connection), encrypted=getattr(connection, "encrypted", False))


async def current_place(connection: Connection, info: ServerInfo, *, gtids: bool = True) -> BinlogPosition:
    """Where the server's binlog ends now; with ``gtids`` also the transactions in it, of the same moment.

    Raises:
        Retriable: the connection is lost.
        Fatal: the binlog is off, or a privilege lacks.
    """
    if not info.mariadb:
        row = await _query_position(connection, info)
        executed = str(row[4] or "") if gtids and len(row) > 4 else ""
        return BinlogPosition(
            file=str(row[0]), pos=int(row[1]), gtids="".join(executed.split()), server_id=info.server_id
        )
    row = await _query_position(connection, info)
    executed = ""
    if gtids:
        for _ in range(_ATTEMPTS):
            executed = await _query_scalar(connection, "SELECT @@GLOBAL.gtid_binlog_pos")
            later_row = await _query_position(connection, info)
            if later_row[:2] == row[:2]:
                break
            row = later_row
        else:
            # The server writes all the time: the file has the transactions that were executed until that position.
            executed = await _query_scalar(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (str(row[0]), int(row[1])))
        executed = executed or await _query_scalar(connection, "SELECT @@GLOBAL.gtid_current_pos")
    return BinlogPosition(file=str(row[0]), pos=int(row[1]), gtids="".join(executed.split()), server_id=info.server_id)


async def _query_scalar(connection: Connection, sql: str, args: Sequence[object] | None = None) -> str:
    rows = await query_rows(connection, sql, args)
    value = rows[0][0] if rows else None
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value or "")


async def _query_position(connection: Connection, info: ServerInfo) -> tuple[Any, ...]:
    newer = not info.mariadb and info.version >= (8, 2, 0)
    rows = await query_rows(connection, "SHOW BINARY LOG STATUS" if newer else "SHOW MASTER STATUS")
    if not rows:
        raise Fatal(
            f"the server {info.address} writes no binlog: set log_bin and server_id in its configuration, restart it"
        )
    return rows[0]


async def binary_logs(connection: Connection) -> list[tuple[str, int]]:
    """Names and ends of the binlog files that the server has, oldest first.

    Raises:
        Retriable: the connection is lost.
        Fatal: the binlog is off, or a privilege lacks.
    """
    return [(str(row[0]), log_end(row)) for row in await query_rows(connection, "SHOW BINARY LOGS")]


def log_end(row: Sequence[Any]) -> int:
    """The position where a file of ``SHOW BINARY LOGS`` ends: positions do not count the header of an encrypted one (MySQL)."""
    encrypted = len(row) > 2 and str(row[2]).upper() == "YES"
    return int(row[1]) - _ENCRYPTION_HEADER * encrypted


async def prepared_transactions(connection: Connection) -> list[str]:
    """The ids of the XA transactions that are prepared, as ``XA COMMIT`` has them.

    Raises:
        Retriable: the connection is lost.
        Fatal: MySQL wants XA_RECOVER_ADMIN for that.
    """
    # MySQL gives an id as text, which its bytes need not be; MariaDB gives bytes.
    convert = "" if "mariadb" in connection.server_version.lower() else " CONVERT XID"
    return [
        parse.format_transaction(form, bytes.fromhex(data[2:]) if isinstance(data, str) else data, size)
        for form, size, _, data in await query_rows(connection, f"XA RECOVER{convert}")
    ]


def ssl_context(tls: MySqlTlsSettings | None) -> ssl.SSLContext | None:
    """The context for ``tls``, or None for no encryption. Reads files: blocks.

    Raises:
        ConfigInvalid: a file can't be read or used.
    """
    if tls is None or tls.mode == "disabled":
        return None
    verify = tls.mode in {"verify_ca", "verify_identity"}
    return stores_context(
        Stores(
            truststore=tls.truststore if verify else None,
            truststore_password=tls.truststore_password,
            keystore=tls.keystore,
            keystore_password=tls.keystore_password,
            certificate=None,
            private_key=None,
            ciphers=(),
            check_hostname=tls.mode == "verify_identity",
            verify=verify,
        )
    )
