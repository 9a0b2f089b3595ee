"""A client of the shared Cassandra, and sinks over keyspaces of the tests' own."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from cassandra.cluster import Cluster
from cassandra.query import dict_factory

from compose.local.cassandra import CassandraNode
from spark_jobs.testing import Gate
from tests.support.patient_cql import PATIENT
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import HasCassandra

#: How keyspaces of tests are created.
REPLICATION = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"


@pytest.fixture(scope="module")
def client(cassandra: HasCassandra) -> Iterator[Any]:
    """A session whose rows are dictionaries."""
    with Cluster(
        [(cassandra.host, cassandra.port)], protocol_version=4, schema_metadata_enabled=False, **PATIENT
    ) as cluster:
        session = cluster.connect()
        session.row_factory = dict_factory
        session.default_timeout = 60.0
        yield session


@pytest.fixture(scope="module")
def keyspace(client: Any) -> Iterator[str]:
    """A keyspace of the module's own."""
    name = f"k{secrets.token_hex(5)}"
    client.execute(f"CREATE KEYSPACE {name} WITH replication = {REPLICATION}")
    yield name
    client.execute(f"DROP KEYSPACE {name}")


@pytest.fixture
def gate(cassandra: HasCassandra) -> Iterator[Gate]:
    with Gate(cassandra.host, cassandra.port or 0) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraNode]:
    """A Cassandra that asks for logins."""
    asks = {"authenticator": "PasswordAuthenticator"}
    folder = tmp_path_factory.mktemp("logins")
    with CassandraNode(folder, port=None, cdc=False, settings=asks, jvm_options=FAST_START) as node:
        yield node


@pytest.fixture
def rows_of(client: Any) -> Callable[[str], list[dict[str, Any]]]:
    """All rows of a table."""
    return lambda table: [dict(row) for row in client.execute(f"SELECT * FROM {table}")]  # noqa: S608 - of the test
