"""Faults of a node seen through `CqlSession`: killed and back, paused, wrong credentials, wrong data centre, TLS.

A Cassandra of the module's own is harmed, with password logins, and TLS and plain text on one port.
"""

import asyncio
import contextlib
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compose.local.cassandra import CassandraNode
from compose.local.ports import free_ports
from connectors.cql.cluster.failures import CqlLoginRefused
from connectors.cql.cluster.session import CqlSession, QueryStats, SessionSettings
from connectors.errors import ConfigInvalid, Retriable
from connectors.options import Password
from tests.chaos.proxy import Proxy
from tests.support.eventually import eventually_async, patience
from tests.support.settings import cql_session, cql_tls
from worker.fetch.java import FAST_START

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
QUERY = "SELECT key FROM system.local WHERE key = ?"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    for command in (
        f"{request} -keyout key.pem -out cert.pem -subj /CN=node -addext subjectAltName=IP:127.0.0.1",
        "pkcs12 -export -inkey key.pem -in cert.pem -passout pass:secret -out store.p12",
        f"{request} -keyout other.key -out other.pem -subj /CN=other",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[CassandraNode]:
    settings = {
        "authenticator": {"class_name": "PasswordAuthenticator"},
        "credentials_validity": "0ms",
        "client_encryption_options": {
            "enabled": True,
            "optional": True,
            "keystore": str(certificates / "store.p12"),
            "keystore_password": "secret",
            "store_type": "PKCS12",
        },
    }
    # Else a role's password may change every five seconds only.
    options = (*FAST_START, "-Dcassandra.role_password_update_min_interval_in_ms=0")
    with CassandraNode(
        tmp_path_factory.mktemp("cassandra"), port=None, jvm_options=options, settings=settings
    ) as started:
        yield started


@pytest.fixture
def settings(node: CassandraNode) -> SessionSettings:
    host, _, port = node.address.rpartition(":")
    return cql_session(
        contact_points=((host, int(port)),),
        user="cassandra",
        password=Password("cassandra"),
        connect_timeout_s=5.0,
        heartbeat_s=2.0,
    )


def changed(settings: SessionSettings, **fields: Any) -> SessionSettings:
    return msgspec.structs.replace(settings, **fields)


async def acquire(settings: SessionSettings, deadline_s: float = 60) -> CqlSession:
    """Open a session, also if the node has only just started to answer."""
    # A node that was just created adds its first user a moment after it answers.
    return await eventually_async(
        lambda: CqlSession.acquire(settings),
        "the node lets us in",
        deadline_s,
        every=0.2,
        ignore=(Retriable, ConfigInvalid),
    )


@pytest.fixture
async def session(settings: SessionSettings) -> AsyncIterator[CqlSession]:
    session = await acquire(settings)
    yield session
    await session.release()


async def answers(session: CqlSession, deadline_s: float) -> None:
    """Returns when the session works again."""
    page = await eventually_async(
        lambda: session.page(QUERY, ("local",), fetch_size=1, timeout_s=2),
        "the node answers again",
        deadline_s,
        every=0.1,
        ignore=(Retriable, CqlLoginRefused),
    )
    assert page.rows == [("local",)]


async def away(session: CqlSession, deadline_s: float) -> None:
    """Repeat a query until it fails for another reason than unavailable nodes, or the time is over."""
    limit = time.monotonic() + deadline_s
    while time.monotonic() < limit:
        with contextlib.suppress(Retriable):
            await session.page(QUERY, ("local",), fetch_size=1, timeout_s=2)
        await asyncio.sleep(0.1)


async def test_refused_at_the_door(session: CqlSession, settings: SessionSettings) -> None:
    assert await session.query(QUERY, ("local",)) == [{"key": "local"}]
    with pytest.raises(ConfigInvalid, match="refuses the credentials") as caught:
        await CqlSession.acquire(changed(settings, password=Password("wr0ng")))
    assert "wr0ng" not in str(caught.value)
    with pytest.raises(ConfigInvalid, match="credentials"):
        await CqlSession.acquire(changed(settings, user=None, password=None))
    with pytest.raises(ConfigInvalid, match="nowhere"):
        await CqlSession.acquire(changed(settings, local_dc="nowhere"))
    with pytest.raises(ConfigInvalid, match="is no consistency level"):
        await CqlSession.acquire(changed(settings, consistency="SOME"))
    for wrong in ({"compression": "zip"}, {"contact_points": ()}, {"connections_per_host": 0}):
        with pytest.raises(ConfigInvalid):
            await CqlSession.acquire(changed(settings, **wrong))
    (port,) = free_ports([None], "127.0.0.1")
    with pytest.raises(Retriable, match=rf"127\.0\.0\.1:{port}"):
        await CqlSession.acquire(changed(settings, contact_points=(("127.0.0.1", port),)))
    with pytest.raises(Retriable, match=r"resolved|no node could answer"):
        await CqlSession.acquire(changed(settings, contact_points=(("no-such-host.invalid", 9042),)))


async def test_a_password_that_changes_under_a_session(
    session: CqlSession, settings: SessionSettings, node: CassandraNode
) -> None:
    await session.query("CREATE ROLE IF NOT EXISTS changing WITH LOGIN = true AND PASSWORD = 'first'")
    way = Proxy(node.port or 0)
    password = Password("first")
    under = await CqlSession.acquire(
        changed(settings, contact_points=(("127.0.0.1", way.port),), user="changing", password=password)
    )
    try:
        await session.query("ALTER ROLE changing WITH PASSWORD = 'second'")
        way.drop()
        with pytest.raises(CqlLoginRefused, match="refuses the credentials") as caught:
            await away(under, 20)
        assert "first" not in str(caught.value)
        # The driver continues to retry, though a node has refused it.
        password.value = "second"
        await answers(under, 20)
    finally:
        await under.release()
        way.close()


async def test_tls(session: CqlSession, settings: SessionSettings, certificates: Path) -> None:
    for checked in (True, False):
        tls = cql_tls(truststore=str(certificates / "cert.pem"), check_hostname=checked)
        encrypted = await CqlSession.acquire(changed(settings, tls=tls))
        assert await encrypted.query(QUERY, ("local",)) == [{"key": "local"}]
        await encrypted.release()
    with pytest.raises(ConfigInvalid, match="not believed"):
        await CqlSession.acquire(changed(settings, tls=cql_tls(truststore=str(certificates / "other.pem"))))
    # The other sessions continue.
    assert await session.query(QUERY, ("local",)) == [{"key": "local"}]


async def test_a_node_that_hangs(session: CqlSession, node: CassandraNode) -> None:
    stats = QueryStats()
    await session.page(QUERY, ("local",), fetch_size=1, stats=stats)
    node.pause()
    try:
        waiting = [
            asyncio.ensure_future(session.page(QUERY, ("local",), fetch_size=1, timeout_s=1, stats=stats))
            for _ in range(3)
        ]
        while stats.in_flight < 3:
            await asyncio.sleep(0)
        waiting[0].cancel()
        async with patience(60):
            done = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        for error in done[1:]:
            assert isinstance(error, Retriable)
            assert "127.0.0.1" in str(error)
            assert QUERY in str(error)
    finally:
        node.resume()
    await answers(session, 60)
    assert (stats.errors, stats.in_flight) == (2, 0)


async def test_a_node_that_is_killed_and_comes_back(
    session: CqlSession, node: CassandraNode, settings: SessionSettings
) -> None:
    await session.query(
        "CREATE KEYSPACE IF NOT EXISTS f WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    await session.query("CREATE TABLE IF NOT EXISTS f.t (pk int PRIMARY KEY, v text)")
    insert, select = "INSERT INTO f.t (pk, v) VALUES (?, ?)", "SELECT v FROM f.t WHERE pk = ?"
    await session.page(insert, (1, "before"), fetch_size=1)
    assert (await session.page(select, (1,), fetch_size=1)).rows == [("before",)]
    node.kill()
    for _ in range(3):
        with pytest.raises(Retriable, match=r"127\.0\.0\.1"):
            await session.page(select, (1,), fetch_size=1, timeout_s=2)
    with pytest.raises(Retriable):
        await session.page(select + " ALLOW FILTERING", (1,), fetch_size=1, timeout_s=2)
    node.start()
    await answers(session, 60)
    # What was prepared before the node died still works, on the same session. (The row may have died with the node.)
    await session.page(insert, (1, "before"), fetch_size=1)
    assert (await session.page(select, (1,), fetch_size=1)).rows == [("before",)]
    fresh = await acquire(settings)
    assert fresh._shared is session._shared
    await fresh.release()
