"""Settings of connectors as the product builds them, from the declared options; a test names only what it changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from connectors.cassandra.config import settings as cassandra
from connectors.mysql.config import settings as mysql
from connectors.scylla.config import settings as scylla
from worker.rest.security.auth_settings import AuthSettings
from worker.rest.settings import RestSettings

if TYPE_CHECKING:
    from connectors.cassandra.events.contract import CassandraEventSettings as CassandraEvents
    from connectors.cassandra.model import LogSettings
    from connectors.cql.cluster.session import SessionSettings
    from connectors.cql.cluster.tls import CqlTlsSettings
    from connectors.mysql.events.contract import MySqlEventSettings as MySqlEvents
    from connectors.mysql.events.contract import TopicSettings, UmsSettings
    from connectors.mysql.model import ConnectionSettings
    from connectors.mysql.model import MySqlTlsSettings as MySqlTls
    from connectors.mysql.schema.types import ValueOptions
    from connectors.mysql.stream.heartbeat import HeartbeatSettings
    from connectors.scylla.config.settings import ScyllaReadSettings
    from connectors.scylla.events.contract import ScyllaEventSettings as ScyllaEvents
    from spark_jobs.sinks.jdbc.config import Login

S = TypeVar("S", bound=msgspec.Struct)

_MYSQL: Final = {"database.hostname": "127.0.0.1", "database.user": "", "topic.prefix": "p"}
_SCYLLA: Final = {"scylla.cluster.ip.addresses": "n1:9042", "scylla.table.names": "k.t", "topic.prefix": "p"}
_CASSANDRA: Final = {"cassandra.hosts": "n1", "cdc.raw.directories": "n1=/cdc_raw", "topic.prefix": "p"}


def _changed(settings: S, changes: dict[str, Any]) -> S:
    return msgspec.structs.replace(settings, **changes)


def mysql_connection(**changes: Any) -> ConnectionSettings:
    """How to reach a MySQL or MariaDB server; without TLS."""
    settings = mysql.connection_settings(mysql.CONFIG.parse({**_MYSQL, "database.ssl.mode": "disabled"}))
    return _changed(settings, changes)


def mysql_tls(**changes: Any) -> MySqlTls:
    """TLS to such a server."""
    tls = mysql.connection_settings(mysql.CONFIG.parse(_MYSQL)).tls
    assert tls is not None
    return _changed(tls, changes)


def mysql_events(**changes: Any) -> MySqlEvents:
    """The form of a MySQL connector's events."""
    return _changed(mysql.event_settings(mysql.CONFIG.parse(_MYSQL), "mysql"), changes)


def mysql_topics(**changes: Any) -> TopicSettings:
    """Its topics."""
    return _changed(mysql_events().topics, changes)


def mysql_ums(**changes: Any) -> UmsSettings:
    """The part that only its UMS messages have."""
    return _changed(mysql_events().ums, changes)


def mysql_heartbeat(**changes: Any) -> HeartbeatSettings:
    """Its heartbeat rows."""
    return _changed(mysql.heartbeat_settings(mysql.CONFIG.parse(_MYSQL)), changes)


def mysql_values(**changes: Any) -> ValueOptions:
    """The form of its values, for a MariaDB server."""
    return _changed(mysql.value_options(mysql.CONFIG.parse(_MYSQL), "mariadb"), changes)


def cql_session(**changes: Any) -> SessionSettings:
    """A session to a cluster that speaks CQL."""
    return _changed(scylla.session_settings(scylla.CONFIG.parse(_SCYLLA)), changes)


def cql_tls(**changes: Any) -> CqlTlsSettings:
    """TLS to such a cluster."""
    tls = scylla.session_settings(scylla.CONFIG.parse({**_SCYLLA, "scylla.ssl.enabled": "true"})).tls
    assert tls is not None
    return _changed(tls, changes)


def scylla_events(**changes: Any) -> ScyllaEvents:
    """The form of a Scylla connector's events."""
    return _changed(scylla.event_settings(scylla.CONFIG.parse(_SCYLLA)), changes)


def scylla_reading(**changes: Any) -> ScyllaReadSettings:
    """How it reads."""
    return _changed(scylla.read_settings(scylla.CONFIG.parse(_SCYLLA)), changes)


def cassandra_events(**changes: Any) -> CassandraEvents:
    """The form of a Cassandra connector's events."""
    return _changed(cassandra.event_settings(cassandra.CONFIG.parse(_CASSANDRA)), changes)


def cassandra_log(**changes: Any) -> LogSettings:
    """How it reads a node's commit log."""
    settings = cassandra.log_settings(cassandra.CONFIG.parse(_CASSANDRA), cassandra.LogNode("n1", "/cdc_raw"))
    return _changed(settings, {"directory": Path("/cdc_raw"), **changes})


def jdbc_login(url: str, user: str, password: str, **changes: Any) -> Login:
    """How the JDBC sink logs in at a database."""
    from spark_jobs.sinks.jdbc.config import CONFIG_DEF, parse_settings

    options = {"sink.jdbc.url": url, "sink.jdbc.user": user, "sink.jdbc.password": password}
    return replace(parse_settings(CONFIG_DEF.parse(options)).login, **changes)


def rest_settings(**changes: Any) -> RestSettings:
    """The settings of a worker's REST layer."""
    return replace(RestSettings.from_properties({}), **changes)


def auth_settings(**changes: Any) -> AuthSettings:
    """Its callers and how they log in."""
    return replace(AuthSettings.from_properties({}), **changes)
