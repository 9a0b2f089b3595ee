"""Sessions of the CQL driver, shared by all tasks of a process that connect alike.

The driver does its I/O in a thread of its own; this module is the event loop's side of it: nothing here blocks the loop.
Pages are decoded on the loop, by the caller's ``await``: a decoder in the driver's thread would fight the loop for the
interpreter lock, and hold up the answers to all other queries while it has it.
"""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import msgspec

from connectors.cql.cluster.failures import CqlLoginRefused, NodesAway, SchemaChanged
from connectors.cql.cluster.tls import CqlTlsSettings
from connectors.cql.types import CqlType  # noqa: TC001 - for users of this module
from connectors.errors import Fatal, Retriable
from connectors.options import Password  # noqa: TC001 - msgspec reads the annotation at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.cql.cluster.driver import CqlConnection, PreparedCql

__all__ = ["CqlSession", "CqlTlsSettings", "QueryStats", "ResultPage", "SchemaChanged", "SessionSettings"]

#: Statements kept prepared per session; beyond it the one that was not used longest is forgotten.
MAX_STATEMENTS: Final = 1000
#: A session that found no node for so long is not shared any more: the next one looks the contact points up again.
STALE_AFTER_S: Final = 30.0
#: How long the end of a session waits for statements that are being prepared.
_PREPARED_S: Final = 2.0


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to connect; equal settings share one session.

    Attributes:
        contact_points: (host or address, port) of some nodes; the others are found through them.
        user: for PLAIN authentication, or None for none.
        password: its password; it may get another value while the session lives, which counts for connections from then on.
        local_dc: the data centre whose nodes are asked; None: that of the contact points.
        consistency: the level of queries that name none.
        compression: of the protocol: ``none``, ``lz4`` or ``snappy``. On a fast network it makes no difference that could be
            measured here, and costs the server CPU; it helps where traffic between zones is paid for or slow.
        connections_per_host: more than one only spreads load over a server's threads (shards) where the driver does not.
        request_timeout_s: of queries that name none.
        connect_timeout_s: of one connection to one node.
        heartbeat_s: how long a connection may be silent before it is tried, and then wait for an answer.
        protocol_version: of the native protocol; all servers that matter speak 4.
        tls: how to encrypt, or None for plain TCP.
    """

    contact_points: tuple[tuple[str, int], ...]
    user: str | None
    password: Password | None
    local_dc: str | None
    consistency: str
    compression: str
    connections_per_host: int
    request_timeout_s: float
    connect_timeout_s: float
    heartbeat_s: float
    protocol_version: int
    tls: CqlTlsSettings | None

    @property
    def addresses(self) -> list[str]:
        """The contact points as strings."""
        return [f"{host}:{port}" for host, port in self.contact_points]


class ResultPage(msgspec.Struct):
    """A page of a result.

    Attributes:
        columns: names of the columns.
        rows: tuples, in the forms that ``connectors.cql.values`` describes; a cell may be a ``values.BadCell``.
        state: the paging state to continue with, or None at the end.
        bytes: size of the page as it came.
        newer_fields: whether the server knows fields of a UDT that were not asked for: the table's definition is out of date.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    state: bytes | None
    bytes: int = 0
    newer_fields: bool = False


class QueryStats(msgspec.Struct):
    """Running totals of queries; whoever passes one in reads it at any time.

    Attributes:
        queries: answered, in time and without error.
        errors: failed.
        in_flight: sent and not answered.
        latency_s: sum over ``queries``, from sending to the answer's arrival on the loop, decoding not included.
        rows: read.
        bytes: read, as they came.
    """

    queries: int = 0
    errors: int = 0
    in_flight: int = 0
    latency_s: float = 0.0
    rows: int = 0
    bytes: int = 0


class _Mailbox:
    """Brings answers from the driver's thread to the loop, many with one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._woken = False

    def post(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        """Called on any thread."""
        self._waiting.append((future, value, error))
        # Set before waking and cleared before emptying: an answer is never left behind, at worst the loop wakes for nothing.
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._deliver_answers)
            except RuntimeError:
                # The loop is closed: no caller waits any more.
                self._waiting.clear()

    def _deliver_answers(self) -> None:
        self._woken = False
        while self._waiting:
            future, value, error = self._waiting.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)


class _Shared:
    """The state that sessions with equal settings share."""

    def __init__(self, settings: SessionSettings) -> None:
        #: As they were asked for: passwords that change in place do not move it to another place in ``_SESSIONS``.
        self.settings = copy.deepcopy(settings)
        self.loop = asyncio.get_running_loop()
        self.users: list[CqlSession] = []
        self.mailbox = _Mailbox(self.loop)
        self.connecting = self.loop.create_task(asyncio.to_thread(_open_connection, settings, self.password))
        self.statements: OrderedDict[tuple[str, Any], asyncio.Future[PreparedCql]] = OrderedDict()
        self.stats = QueryStats()
        self.away_since: float | None = None
        self.refused = False

    def password(self) -> str:
        """That of the newest user: those of users that have gone are not renewed any more. Called on any thread."""
        newest = self.users[-1:]
        password = newest[0].settings.password if newest else self.settings.password
        return password.value if password is not None else ""

    @property
    def connection(self) -> CqlConnection:
        return self.connecting.result()

    @property
    def stale(self) -> bool:
        failed = self.connecting.done() and (self.connecting.cancelled() or self.connecting.exception() is not None)
        away = self.away_since is not None and self.loop.time() - self.away_since > STALE_AFTER_S
        return failed or away or self.refused

    async def close(self) -> None:
        """Close the connections, when the last user has gone."""
        try:
            connection = await self.connecting
        except Exception:  # noqa: BLE001 - there is nothing to close
            return
        # The callers that asked for them were stopped meanwhile. Nothing is left behind, unless the nodes are unavailable.
        preparing = [statement for statement in self.statements.values() if not statement.done()]
        if preparing:
            ended, _ = await asyncio.wait(preparing, timeout=_PREPARED_S)
            for statement in ended:
                if not statement.cancelled():
                    statement.exception()  # no one else retrieves it
        await asyncio.to_thread(connection.close)


def _open_connection(settings: SessionSettings, password: Callable[[], str]) -> CqlConnection:
    # Loading the driver takes a few hundred milliseconds, so it happens here and not when the module is imported.
    from connectors.cql.cluster.driver import CqlConnection

    return CqlConnection.open_(settings, password)


#: Sessions by event loop and settings.
_SESSIONS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[SessionSettings, _Shared]] = WeakKeyDictionary()


class CqlSession:
    """A session on the event loop's side; the driver's own threads do the I/O. Take one with ``acquire``."""

    def __init__(self, shared: _Shared, settings: SessionSettings) -> None:
        self._shared: _Shared | None = shared
        self.settings = settings
        shared.users.append(self)

    @classmethod
    async def acquire(cls, settings: SessionSettings) -> CqlSession:
        """The shared session for ``settings``, connected now if it is the first use; pair it with ``release``.

        Raises:
            Retriable: no node answers.
            ConfigInvalid: the cluster refuses the credentials or the TLS settings can't be used.
        """
        sessions = _SESSIONS.setdefault(asyncio.get_running_loop(), {})
        shared = sessions.get(settings)
        if shared is None or shared.stale:
            shared = _Shared(settings)
            sessions[shared.settings] = shared
        session = cls(shared, settings)
        try:
            await asyncio.shield(shared.connecting)
        except BaseException:
            session._give_back()
            raise
        return session

    async def release(self) -> None:
        """Give it back; the last one closes it. Does not block the loop. Doing it twice does no harm."""
        last = self._give_back()
        if last is not None:
            await asyncio.shield(last)

    def _give_back(self) -> asyncio.Task[None] | None:
        shared, self._shared = self._shared, None
        if shared is None:
            return None
        shared.users.remove(self)
        if shared.users:
            return None
        sessions = _SESSIONS.get(shared.loop, {})
        if sessions.get(shared.settings) is shared:
            del sessions[shared.settings]
        task = shared.loop.create_task(shared.close())
        _CLOSING.add(task)
        task.add_done_callback(_CLOSING.discard)
        return task

    @property
    def stats(self) -> QueryStats:
        """Totals of all queries of the shared session."""
        return self._require_shared().stats

    @property
    def driver(self) -> str:
        """The driver that is used, and its version."""
        from connectors.cql.cluster.driver import driver_version

        return driver_version()

    def _require_shared(self) -> _Shared:
        if self._shared is None:
            raise Fatal("a CQL session was used after it had been given back")
        return self._shared

    async def query(
        self,
        cql: str,
        parameters: Sequence[Any] = (),
        *,
        consistency: str | None = None,
        timeout_s: float | None = None,
    ) -> list[dict[str, Any]]:
        """All rows of a (small) query as dicts, values in the forms of ``connectors.cql.values``.

        Args:
            cql: the query; it is prepared (and stays so) if it has parameters.
            parameters: for its question marks, in the forms of ``connectors.cql.values``.
            consistency: level; the settings' if not given.
            timeout_s: of each page; the settings' if not given.

        Raises:
            Retriable: nodes are unavailable, busy or too slow.
            Fatal: the server refuses the query.
        """
        shared = self._require_shared()
        level, timeout = consistency or shared.settings.consistency, timeout_s or shared.settings.request_timeout_s
        rows: list[dict[str, Any]] = []
        state: bytes | None = None
        while True:
            if parameters:
                page = await self.page(
                    cql, parameters, fetch_size=5000, state=state, consistency=level, timeout_s=timeout
                )
            else:
                page = await self._query_unprepared(shared, cql, level, timeout, state)
            rows += [dict(zip(page.columns, row, strict=True)) for row in page.rows]
            state = page.state
            if state is None:
                return rows

    async def _query_unprepared(
        self, shared: _Shared, cql: str, level: str, timeout_s: float, state: bytes | None
    ) -> ResultPage:
        from connectors.cql.cluster.driver import row_decoder

        statement = shared.connection.simple(cql, 5000, level)
        raw = await self._send_query(shared, cql, statement, timeout_s, state, None)
        if raw is None:
            return ResultPage((), [], None)
        decoder = row_decoder(cql, raw.columns or (), None)
        return ResultPage(decoder.names, decoder.decode(raw.body), raw.state, len(raw.body))

    async def page(
        self,
        cql: str,
        parameters: Sequence[Any],
        *,
        fetch_size: int,
        state: bytes | None = None,
        consistency: str = "QUORUM",
        timeout_s: float = 12.0,
        types: Sequence[CqlType | None] | None = None,
        token: int | None = None,
        stats: QueryStats | None = None,
    ) -> ResultPage:
        """One page of a prepared query; statements are prepared once per session and again when the schema changes.

        Args:
            cql: the query, with question marks for ``parameters``.
            parameters: values in the forms of ``connectors.cql.values``.
            fetch_size: rows per page at most.
            state: of the page before, with the same text and parameters.
            consistency: level.
            timeout_s: how long to wait for the answer, retries on other nodes included.
            types: how to decode each column, in place of what the server says: None (or ``types.RAW``) leaves the cell's bytes,
                ``types.timed_list`` gives a logged list. Pass the same sequence each time: a tuple is compared by content.
            token: the token of the ring whose replicas are asked first, for tables where it is not the hash of the key.
            stats: gets the numbers of this query, in addition to the session's own.

        Raises:
            Retriable: nodes are unavailable, busy or too slow.
            SchemaChanged: the query names a column or a table that is gone, or ``types`` are not what the server has.
            Fatal: the server refuses the query.
        """
        shared = self._require_shared()
        statement = await self._prepare_statement(shared, cql, tuple(types) if types is not None else None)
        bound = statement.bind(parameters, fetch_size, consistency, token)
        try:
            raw = await self._send_query(shared, cql, bound, timeout_s, state, stats)
            if raw is None:
                return ResultPage((), [], None)
            rows = statement.decode(raw)
        except SchemaChanged:
            # The server may know better by now than when the statement was prepared.
            shared.statements.pop((cql, statement.types), None)
            raise
        for totals in (shared.stats, stats) if stats is not None else (shared.stats,):
            totals.rows += len(rows)
            totals.bytes += len(raw.body)
        return ResultPage(statement.decoder.names, rows, raw.state, len(raw.body), statement.newer_fields)

    async def _prepare_statement(
        self, shared: _Shared, cql: str, types: tuple[CqlType | None, ...] | None
    ) -> PreparedCql:
        key = (cql, types)
        prepared = shared.statements.get(key)
        if prepared is None:
            prepared = asyncio.ensure_future(asyncio.to_thread(shared.connection.prepare, cql, types))
            shared.statements[key] = prepared
            if len(shared.statements) > MAX_STATEMENTS:
                shared.statements.popitem(last=False)
        elif prepared.done():
            shared.statements.move_to_end(key)
            if prepared.exception() is None:
                return prepared.result()
        try:
            return await asyncio.shield(prepared)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if shared.statements.get(key) is prepared:
                del shared.statements[key]
            self._note_failure(shared, error)
            raise

    async def _send_query(
        self,
        shared: _Shared,
        cql: str,
        statement: Any,
        timeout_s: float,
        state: bytes | None,
        stats: QueryStats | None,
    ) -> Any:
        future: asyncio.Future[Any] = shared.loop.create_future()
        totals = (shared.stats, stats) if stats is not None else (shared.stats,)
        for total in totals:
            total.in_flight += 1
        started = shared.loop.time()
        try:
            shared.connection.send(
                statement, timeout_s, state, lambda rows, error: shared.mailbox.post(future, rows, error)
            )
            answer = await future
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            for total in totals:
                total.errors += 1
            cql_error = shared.connection.error(error, cql)
            self._note_failure(shared, cql_error)
            raise cql_error from error
        finally:
            for total in totals:
                total.in_flight -= 1
        spent = shared.loop.time() - started
        shared.away_since, shared.refused = None, False
        for total in totals:
            total.queries += 1
            total.latency_s += spent
        return answer

    @staticmethod
    def _note_failure(shared: _Shared, error: BaseException) -> None:
        if isinstance(error, NodesAway) and shared.away_since is None:
            shared.away_since = shared.loop.time()
        elif not isinstance(error, Retriable):
            shared.away_since = None
            shared.refused = isinstance(error, CqlLoginRefused)


_CLOSING: set[asyncio.Task[None]] = set()
