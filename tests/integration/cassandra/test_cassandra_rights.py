"""A role that may read the tables, but not the node's settings: changes come, heartbeats only once it may."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from compose.local.cassandra import CassandraNode
from compose.local.cassandra_cluster import execute_cql
from compose.local.worker import MillraceWorker
from connectors.formats.table_heartbeats import HEADER
from tests.support.eventually import eventually
from tests.support.table_delays import make_topics, read_topic
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from pathlib import Path

#: Rights count as soon as they are granted.
_SETTINGS = {
    "authenticator": {"class_name": "PasswordAuthenticator"},
    "authorizer": {"class_name": "CassandraAuthorizer"},
    "permissions_validity": "0ms",
    "roles_validity": "0ms",
}
_GRANT = "GRANT SELECT ON system_views.settings TO"


@pytest.mark.slow
def test_heartbeats_need_the_right_to_read_settings(bootstrap: str, tmp_path: Path) -> None:
    name = f"rights{secrets.token_hex(4)}"
    topic = f"{name}.shop.t"
    make_topics(bootstrap, [topic])
    with CassandraNode(tmp_path / "cassandra", port=None, settings=_SETTINGS, jvm_options=FAST_START) as node:
        execute_cql(
            node.address,
            "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE shop.t (id int PRIMARY KEY) WITH cdc = true",
            "CREATE ROLE reader WITH LOGIN = true AND PASSWORD = 'a-password'",
            "GRANT SELECT ON KEYSPACE shop TO reader",
        )
        with MillraceWorker(tmp_path / "worker", bootstrap, group=name, processes=1) as worker:
            config = {
                "connector.class": "cassandra",
                "topic.prefix": name,
                "cassandra.hosts": node.address,
                "cassandra.username": "reader",
                "cassandra.password": "a-password",
                "cdc.raw.directories": str(node.cdc_raw),
                "table.include.list": r"shop\.t",
                "snapshot.mode": "never",
                "heartbeat.interval.ms": "500",
                "heartbeat.to.tables": "true",
                "key.converter": "ByteArrayConverter",
            }
            status, answer = worker.request(
                "PUT", "/connector-plugins/cassandra/config/validate", {"name": name, "tasks.max": "1", **config}
            )
            assert (status, answer["error_count"]) == (200, 0), answer
            worker.create(name, config)
            worker.wait_running(name, 1)
            execute_cql(node.address, "INSERT INTO shop.t (id) VALUES (1)")
            eventually(lambda: bool(read_topic(bootstrap, topic)), "the change comes", within=60)
            eventually(
                lambda: f"{_GRANT} the connector's role" in worker.log_path.read_text(), "the task says what to grant"
            )
            assert not any(HEADER in record.headers for record in read_topic(bootstrap, topic))
            execute_cql(node.address, f"{_GRANT} reader")
            assert worker.request("POST", f"/connectors/{name}/restart?includeTasks=true")[0] in (202, 204)
            eventually(
                lambda: any(HEADER in record.headers for record in read_topic(bootstrap, topic)),
                "heartbeats come",
                within=60,
                detail=worker.service.log_tail,
            )
