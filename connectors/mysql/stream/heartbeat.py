"""Heartbeats: rows that the connector writes into the source and meets again in the binlog, and how long they take.

``HeartbeatWriter`` writes, ``parse`` recognises the row in the stream, ``HeartbeatLatency`` keeps the time of every stage:
written to the source -> read from the binlog -> yielded to the runtime -> acknowledged by Kafka. All times are of the task's
own clock (microseconds since 1970), so clocks that differ do not show as latency.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import pymysql.err

from connectors.errors import ConfigInvalid, MillraceError, Skippable

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from connectors.mysql.stream.latency import HeartbeatLatency

#: The table's columns; other tools may write rows of the same kind into it.
SOURCE: Final = "source"
SENT: Final = "sent_us"
#: Longest name of a source; a longer one is cut, since old servers allow keys of 767 bytes.
_LONGEST: Final = 190
_NO_DATABASE: Final = 1049
_NO_TABLE: Final = 1146
#: Access refused, for a database, a table, a statement; ``CREATE``, ``INSERT`` and ``UPDATE`` give different ones.
_DENIED: Final = frozenset({1044, 1045, 1142, 1143, 1227})
_READ_ONLY: Final = frozenset({1290, 1836, 1792})


class HeartbeatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a ``HeartbeatWriter``.

    Attributes:
        interval_s: seconds between two heartbeats; 0 switches the writer off.
        table: ``database.table`` of the heartbeat table, or "": only the action query is run.
        source: the row's key, different for each connector that shares the table (``topic.prefix``).
        action_query: a statement run with every heartbeat (``heartbeat.action.query``), or "".
        create: whether the table is created if it isn't there.
        user: shown in the GRANT that an error names.
        timeout_s: how long one heartbeat may take.
        late_s: a heartbeat that has not arrived after this number of seconds is late.
    """

    interval_s: float
    table: str
    source: str
    action_query: str
    create: bool
    user: str
    timeout_s: float
    late_s: float

    @property
    def enabled(self) -> bool:
        """Whether there is anything to write."""
        return self.interval_s > 0 and bool(self.table or self.action_query)


class Beat(msgspec.Struct, frozen=True):
    """One heartbeat: which connector sent it, and when (microseconds since 1970)."""

    source: str
    sent_us: int


def parse(row: Mapping[str, Any]) -> Beat:
    """The heartbeat that a row of the heartbeat table is. Pure.

    Args:
        row: field name -> value, as the stream decodes it.

    Raises:
        Skippable: the table has other columns than ours.
    """
    source, sent = row.get(SOURCE), row.get(SENT)
    if not isinstance(source, str) or not isinstance(sent, int):
        raise Skippable(
            f"a row of the heartbeat table has the fields {sorted(row)}; a string {SOURCE!r} and a whole number "
            f"{SENT!r} are expected: name a table of its own in heartbeat.table"
        )
    return Beat(source, sent)


def split_name(table: str) -> tuple[str, str]:
    """``database.table`` as a pair; backticks may enclose each.

    Raises:
        ConfigInvalid: it is not of that form.
    """
    database, dot, name = table.partition(".")
    database, name = database.strip().strip("`"), name.strip().strip("`")
    if not dot or not database or not name or "`" in database + name:
        raise ConfigInvalid(
            f"heartbeat.table={table}: the form DATABASE.TABLE is expected, for instance millrace.heartbeat"
        )
    return database, name


def _quote_names(table: str) -> tuple[str, str]:
    database, name = split_name(table)
    return f"`{database}`", f"`{database}`.`{name}`"


def create_statements(table: str) -> tuple[str, str]:
    """The statements that make the database and the table.

    Raises:
        ConfigInvalid: the name is not of the form ``database.table``.
    """
    database, name = _quote_names(table)
    columns = (
        f"{SOURCE} VARCHAR({_LONGEST}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY, "
        f"{SENT} BIGINT NOT NULL"
    )
    return f"CREATE DATABASE IF NOT EXISTS {database}", f"CREATE TABLE IF NOT EXISTS {name} ({columns}) ENGINE=InnoDB"


def setup_text(settings: HeartbeatSettings) -> str:
    """Return the statements that an administrator runs once, so that the connector needs no right to create anything."""
    _, name = _quote_names(settings.table)
    grant = f"GRANT SELECT, INSERT, UPDATE ON {name} TO {_format_account(settings.user)}"
    return "; ".join((*create_statements(settings.table), grant))


def _format_account(user: str) -> str:
    return "'" + (user or "the connector's user").replace("'", "''") + "'@'%'"


def upsert_statement(table: str) -> str:
    """The statement of one heartbeat; its parameters are the source, the time, and the time again."""
    # Not VALUES(): MySQL 8.0.20 warns at each.
    return (
        f"INSERT INTO {_quote_names(table)[1]} ({SOURCE}, {SENT}) VALUES (%s, %s) ON DUPLICATE KEY UPDATE {SENT} = %s"  # noqa: S608
    )


class HeartbeatConnection(Protocol):
    """The part of an ``aiomysql.Connection`` that the writer uses."""

    def cursor(self) -> Any:
        """A cursor, as an async context manager."""

    def close(self) -> None:
        """Close at once."""

    async def autocommit(self, value: bool) -> None:  # noqa: FBT001 - aiomysql's signature
        """Commit each statement."""


class HeartbeatWriter:
    """Writes a heartbeat at each interval, on a connection of its own; for one task of a connector.

    It never fails the task: a failed heartbeat is logged once per kind of error, shown in ``problem``, and retried at the next
    interval.

    Args:
        connect: makes a connection to the source; may raise ``MillraceError``.
        settings: what to write.
        log: the task's.
        latency: records the heartbeats that were sent and stored.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        settings: HeartbeatSettings,
        log: logging.LoggerAdapter[logging.Logger],
        latency: HeartbeatLatency | None = None,
    ) -> None:
        self._connect = connect
        self._settings = settings
        self._log = log
        self._latency = latency
        self._connection: HeartbeatConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._last_us = 0
        self._source = settings.source[:_LONGEST]
        #: Why heartbeats are not written now, and how to fix it; "" if they are.
        self.problem = ""
        #: Heartbeats that the source has taken.
        self.written = 0

    @property
    def source(self) -> str:
        """The key of this writer's row."""
        return self._source

    def start(self) -> None:
        """Begin, unless there is nothing to write; does not block.

        Raises:
            ConfigInvalid: ``table`` is not of the form ``database.table``.
        """
        if not self._settings.enabled or self._task is not None:
            return
        if self._settings.table:
            split_name(self._settings.table)
        self._task = asyncio.create_task(self._write_heartbeats(), name=f"heartbeat-{self._source}")

    async def close(self) -> None:
        """Stop and disconnect."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._drop_connection()

    async def _write_heartbeats(self) -> None:
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._settings.timeout_s):
                    await self._send_heartbeat()
                self._note_problem("")
            except TimeoutError:
                self._drop_connection()
                self._note_problem(
                    f"the source did not take a heartbeat within {self._settings.timeout_s:g} s: look for locks on the "
                    "heartbeat table (SHOW PROCESSLIST) and for a server that hangs"
                )
            except Exception as error:  # noqa: BLE001 - a heartbeat that can't be written must not stop the capture
                self._drop_connection()
                self._note_problem(explain_problem(error, self._settings))
            await asyncio.sleep(max(0.0, self._settings.interval_s - (time.monotonic() - began)))

    async def _send_heartbeat(self) -> None:
        connection = self._connection
        if connection is None:
            connection = await self._connect()
            self._connection = connection
            await connection.autocommit(True)
            # A statement that was given up must not wait on in the server, or each try would leave a connection there.
            wait = math.ceil(self._settings.timeout_s) + 1
            await _execute_statement(
                connection, f"SET SESSION lock_wait_timeout = {wait}, innodb_lock_wait_timeout = {wait}"
            )
        if self._settings.table:
            # A row with an equal value would not be written into the binlog.
            sent = self._last_us = max(self._last_us + 1, time.time_ns() // 1000)
            if self._latency is not None:
                self._latency.sent(sent)
            await self._upsert_row(connection, sent)
            if self._latency is not None:
                self._latency.stored(sent)
        if self._settings.action_query:
            await _execute_statement(connection, self._settings.action_query)
        self.written += 1

    async def _upsert_row(self, connection: HeartbeatConnection, sent: int) -> None:
        statement, parameters = upsert_statement(self._settings.table), (self._source, sent, sent)
        try:
            await _execute_statement(connection, statement, parameters)
        except pymysql.err.MySQLError as error:
            if _error_code(error) not in (_NO_DATABASE, _NO_TABLE) or not self._settings.create:
                raise
            # Only now: a CREATE ... IF NOT EXISTS at each start would stand in the binlog each time.
            await self._create_table(connection)
            self._log.info("The heartbeat table %s was created", self._settings.table)
            await _execute_statement(connection, statement, parameters)

    async def _create_table(self, connection: HeartbeatConnection) -> None:
        database, table = create_statements(self._settings.table)
        try:
            await _execute_statement(connection, table)
        except pymysql.err.MySQLError as error:
            if _error_code(error) != _NO_DATABASE:
                raise
            await _execute_statement(connection, database)
            await _execute_statement(connection, table)

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _note_problem(self, problem: str) -> None:
        before, self.problem = self.problem, problem
        if self._latency is not None:
            self._latency.problem = problem
        if problem and problem != before:
            self._log.warning("No heartbeat is written: %s", problem)
        elif before and not problem:
            self._log.info("Heartbeats are written again")


def explain_problem(error: BaseException, settings: HeartbeatSettings) -> str:
    """Return why a heartbeat could not be written, and how to fix it. Pure."""
    if isinstance(error, MillraceError):
        return str(error)
    code = _error_code(error)
    if settings.table and (code in (_NO_DATABASE, _NO_TABLE) or code in _DENIED):
        return f"{error}. Let an administrator run: {setup_text(settings)}"
    if code in _DENIED:
        return (
            f"{error}. The user {settings.user} must be allowed to run heartbeat.action.query: {settings.action_query}"
        )
    if code in _READ_ONLY:
        return f"{error}. Heartbeats must be written to the primary: set database.hostname to it, or heartbeat.interval.ms=0"
    if code == 0 and isinstance(error, OSError | EOFError | pymysql.err.MySQLError):
        return f"the connection to the source broke ({error!r}); it is opened again at the next heartbeat"
    return repr(error)


def _error_code(error: BaseException) -> int:
    """MySQL's error number; 0 if the error has none."""
    arguments: Sequence[object] = error.args if isinstance(error, pymysql.err.MySQLError) else ()
    return arguments[0] if arguments and isinstance(arguments[0], int) else 0


async def _execute_statement(
    connection: HeartbeatConnection, statement: str, parameters: tuple[object, ...] | None = None
) -> None:
    async with connection.cursor() as cursor:
        await cursor.execute(statement, parameters)
