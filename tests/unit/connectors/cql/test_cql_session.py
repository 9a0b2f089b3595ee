"""Sharing of sessions, preparing, and answers that come from another thread; the driver is replaced by a stand-in."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.cql.cluster import session as module
from connectors.cql.cluster.driver import _Retry, _Routing
from connectors.cql.cluster.failures import CqlLoginRefused, NodesAway, explain_error, translate_error
from connectors.cql.cluster.session import CqlSession, QueryStats, SchemaChanged, SessionSettings
from connectors.cql.rows import CqlRowDecoder, RawRows
from connectors.cql.types import CqlType
from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable
from connectors.options import Password
from tests.support.eventually import eventually_async
from tests.support.settings import cql_session

SETTINGS = cql_session(contact_points=(("n1", 9042),))
ONE_ROW = b"\0\0\0\1" + b"\0\0\0\4" + b"\0\0\0\7"


class FakeStatement:
    newer_fields = False

    def __init__(self, text: str, types: Any) -> None:
        self.text = text
        self.types = types
        self.decoder = CqlRowDecoder(["a"], [CqlType("int")])

    def bind(self, *arguments: Any) -> Any:
        return (self.text, *arguments)

    def decode(self, rows: RawRows) -> list[tuple[Any, ...]]:
        if self.text == "changed":
            raise SchemaChanged("column a is another")
        return self.decoder.decode(rows.body)


class FakeConnection:
    """Answers from a thread of its own; `refuse` is raised by the next queries, `hold` keeps answers back."""

    def __init__(self, password: Callable[[], str]) -> None:
        self.password = password
        self.refusal: str | None = None
        self.prepared: list[str] = []
        self.closed = False
        self.refuse: Exception | None = None
        self.pending_answers: list[Callable[[], None]] | None = None

    def prepare(self, text: str, types: Any) -> FakeStatement:
        self.prepared.append(text)
        if self.refuse is not None:
            raise self.error(self.refuse, text)
        return FakeStatement(text, types)

    def send(self, statement: Any, timeout_s: float, state: Any, done: Callable[[Any, Any], None]) -> None:
        del statement, timeout_s
        answer = (None, self.refuse) if self.refuse is not None else (RawRows(None, ONE_ROW, state), None)
        if self.pending_answers is not None:
            self.pending_answers.append(lambda: done(*answer))
        else:
            threading.Thread(target=done, args=answer).start()

    def error(self, error: BaseException, text: str) -> MillraceError:
        return explain_error(translate_error(error, text), self.refusal)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[FakeConnection]:
    opened: list[FakeConnection] = []

    def connect(settings: SessionSettings, password: Callable[[], str]) -> FakeConnection:
        if settings.user == "wrong":
            raise ConfigInvalid("credentials")
        opened.append(FakeConnection(password))
        return opened[-1]

    monkeypatch.setattr(module, "_open_connection", connect)
    return opened


async def test_equal_settings_share_and_the_last_one_closes(connections: list[FakeConnection]) -> None:
    same = cql_session(contact_points=(("n1", 9042),))
    sessions = await asyncio.gather(*(CqlSession.acquire(settings) for settings in (SETTINGS, same, SETTINGS)))
    assert len(connections) == 1
    await sessions[0].release()
    await sessions[0].release()
    await sessions[1].release()
    assert [connection.closed for connection in connections] == [False]
    await sessions[2].release()
    assert [connection.closed for connection in connections] == [True]
    with pytest.raises(Fatal, match="given back"):
        await sessions[2].page("q", (), fetch_size=1)
    reopened = await CqlSession.acquire(SETTINGS)
    assert len(connections) == 2
    await reopened.release()


async def test_a_failed_connect_fails_all_that_wait_and_is_tried_again(connections: list[FakeConnection]) -> None:
    wrong = cql_session(contact_points=SETTINGS.contact_points, user="wrong")
    errors = await asyncio.gather(*(CqlSession.acquire(wrong) for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in errors] == [ConfigInvalid] * 3
    with pytest.raises(ConfigInvalid):
        await CqlSession.acquire(wrong)
    assert not connections
    assert not module._SESSIONS[asyncio.get_running_loop()]


async def test_a_session_without_nodes_is_not_shared_for_ever(
    connections: list[FakeConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await CqlSession.acquire(SETTINGS)
    connections[0].refuse = NodesAway("none is up")
    with pytest.raises(Retriable):
        await first.page("q", (), fetch_size=1)
    second = await CqlSession.acquire(SETTINGS)
    assert len(connections) == 1
    monkeypatch.setattr(module, "STALE_AFTER_S", -1)
    third = await CqlSession.acquire(SETTINGS)
    assert len(connections) == 2
    await first.release()
    await second.release()
    assert connections[0].closed
    fourth = await CqlSession.acquire(SETTINGS)
    assert len(connections) == 2
    await third.release()
    await fourth.release()
    assert connections[1].closed


async def test_passwords_that_change_while_a_session_is_shared(connections: list[FakeConnection]) -> None:
    def settings(password: str) -> SessionSettings:
        return cql_session(contact_points=(("n1", 9042),), user="u", password=Password(password))

    ours, theirs = settings("old-one"), settings("old-one")
    first, second = await CqlSession.acquire(ours), await CqlSession.acquire(theirs)
    assert len(connections) == 1
    assert connections[0].password() == "old-one"
    # The user that connected has gone, and its password is not renewed any more.
    await first.release()
    assert theirs.password is not None
    theirs.password.value = "new-one"
    assert connections[0].password() == "new-one"
    third = await CqlSession.acquire(settings("new-one"))
    assert len(connections) == 2
    # The node refuses a login: whoever asks hears of it, and who comes next gets a session of its own.
    connections[1].refuse, connections[1].refusal = NodesAway("none is up"), "Bad credentials"
    with pytest.raises(CqlLoginRefused, match="refuses the credentials"):
        await third.page("q", (), fetch_size=1)
    connections[1].refusal = "Unable to perform authentication: Cannot achieve consistency level QUORUM"
    with pytest.raises(Retriable, match="could not check"):
        await third.page("q", (), fetch_size=1)
    fourth = await CqlSession.acquire(settings("new-one"))
    assert len(connections) == 3
    for session in (second, third, fourth):
        await session.release()
    assert [connection.closed for connection in connections] == [True] * 3
    assert not module._SESSIONS[asyncio.get_running_loop()]


async def test_pages_are_prepared_once_and_forgotten_when_they_fail(connections: list[FakeConnection]) -> None:
    session = await CqlSession.acquire(SETTINGS)
    stats = QueryStats()
    pages = await asyncio.gather(*(session.page("q", (), fetch_size=1, stats=stats) for _ in range(50)))
    assert all(page.rows == [(7,)] and page.columns == ("a",) for page in pages)
    assert connections[0].prepared == ["q"]
    assert (stats.queries, stats.rows, stats.bytes, stats.in_flight) == (50, 50, 50 * len(ONE_ROW), 0)
    await session.page("q", (), fetch_size=1, types=(CqlType("int"),))
    assert connections[0].prepared == ["q", "q"]
    connections[0].refuse = SchemaChanged("gone")
    for _ in range(2):
        with pytest.raises(SchemaChanged):
            await session.page("r", (), fetch_size=1)
    assert connections[0].prepared[2:] == ["r", "r"]
    connections[0].refuse = None
    for _ in range(2):
        with pytest.raises(SchemaChanged):
            await session.page("changed", (), fetch_size=1)
    assert connections[0].prepared[4:] == ["changed", "changed"]
    await session.release()


async def test_statements_are_bounded(connections: list[FakeConnection], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STATEMENTS", 3)
    session = await CqlSession.acquire(SETTINGS)
    for text in ("a", "b", "c", "a", "d", "a", "b"):
        await session.page(text, (), fetch_size=1)
    assert connections[0].prepared == ["a", "b", "c", "d", "b"]
    await session.release()


async def test_a_cancelled_page_counts_as_done_and_a_late_answer_does_no_harm(
    connections: list[FakeConnection],
) -> None:
    session = await CqlSession.acquire(SETTINGS)
    await session.page("q", (), fetch_size=1)
    answers: list[Callable[[], None]] = []
    connections[0].pending_answers = answers
    pages = [asyncio.ensure_future(session.page("q", (), fetch_size=1)) for _ in range(3)]
    await eventually_async(lambda: len(answers) == 3, "three pages are under way", every=0)
    assert session.stats.in_flight == 3
    pages[1].cancel()
    await asyncio.wait([pages[1]])
    assert session.stats.in_flight == 2
    for answer in answers:
        answer()
    assert (await pages[0]).rows == (await pages[2]).rows == [(7,)]
    assert (session.stats.in_flight, session.stats.errors) == (0, 0)
    await session.release()


def test_replicas_of_a_named_token_come_first() -> None:
    hosts = [SimpleNamespace(name=f"h{index}", is_up=index != 1) for index in range(4)]
    asked: list[Any] = []

    class Child:
        def make_query_plan(self, keyspace: Any, query: Any) -> list[Any]:
            del keyspace, query
            return hosts

        def distance(self, host: Any) -> int:
            del host
            return 0

    def replicas(keyspace: str, token: Any) -> list[Any]:
        asked.append((keyspace, token))
        return [hosts[3], hosts[1], hosts[2]]

    policy = _Routing(Child())
    policy._cluster_metadata = SimpleNamespace(token_map=SimpleNamespace(get_replicas=replicas, token_class=int))
    plan = [host.name for host in policy.make_query_plan(None, SimpleNamespace(routing_token=5, keyspace="k"))]
    assert plan == ["h3", "h2", "h0", "h1"]
    assert asked == [("k", 5)]
    policy._cluster_metadata = None
    assert [host.name for host in policy.make_query_plan(None, None)] == ["h0", "h1", "h2", "h3"]


def test_retries_never_lower_the_consistency() -> None:
    policy, level = _Retry(), 4
    for retry in (policy.on_read_timeout, policy.on_unavailable):
        assert retry(None, level, 1, 1, False, retry_num=0) == (policy.RETRY_NEXT_HOST, level)
        assert retry(None, level, 1, 1, False, retry_num=1) == (policy.RETHROW, None)
    assert policy.on_request_error(None, level, None, 1) == (policy.RETRY_NEXT_HOST, level)
    assert policy.on_request_error(None, level, None, 2) == (policy.RETHROW, None)
    assert policy.on_write_timeout(None, level, "SIMPLE", 1, 1, retry_num=0) == (policy.RETHROW, None)
