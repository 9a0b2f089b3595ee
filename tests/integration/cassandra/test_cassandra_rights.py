"""Roles that lack a right: to read the node's settings, or to see the values of masked columns."""

from __future__ import annotations

import logging
import secrets
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.cassandra import CassandraNode
from compose.local.cassandra_cluster import execute_cql
from compose.local.worker import MillraceWorker
from connectors.cassandra.config.checks import check_cluster
from connectors.cassandra.config.settings import CONFIG, session_settings
from connectors.cassandra.schema.catalog import CassandraCatalog, CassandraTableFilter
from connectors.cassandra.verify import CassandraView
from connectors.cql.cluster.session import CqlSession
from connectors.errors import ConfigInvalid
from connectors.formats.table_heartbeats import HEADER
from tests.integration.cassandra.snapshot_world import Task
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


@pytest.mark.slow
async def test_masks_of_the_server_are_not_taken_for_values(tmp_path: Path) -> None:
    settings = {**_SETTINGS, "dynamic_data_masking_enabled": True}
    with CassandraNode(tmp_path / "cassandra", port=None, settings=settings, jvm_options=FAST_START) as node:

        def run(*statements: str) -> None:
            execute_cql(node.address, *statements)

        run(
            "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE shop.t (id int PRIMARY KEY, v text MASKED WITH DEFAULT, w text) WITH cdc = true",
            "CREATE TABLE shop.plain (id int PRIMARY KEY, v text) WITH cdc = true",
            "INSERT INTO shop.t (id, v) VALUES (1, 'secret')",
            "CREATE ROLE reader WITH LOGIN = true AND PASSWORD = 'a-password'",
            "GRANT SELECT ON KEYSPACE shop TO reader",
            f"{_GRANT} reader",
        )
        properties = {
            "topic.prefix": "shop",
            "cassandra.hosts": node.address,
            "cassandra.username": "reader",
            "cassandra.password": "a-password",
            "cdc.raw.directories": str(node.cdc_raw),
        }
        config = CONFIG.parse(properties)
        session = await CqlSession.acquire(session_settings(config))
        catalog = CassandraCatalog(CassandraTableFilter(r"shop\..*"), logging.getLogger("test"), session=session)
        world: Any = SimpleNamespace(session=session, catalog=catalog)

        async def read() -> tuple[dict[str, str], list[Any]]:
            """The state of each table in a snapshot, and the values that came."""
            task = Task(world)
            task.request("shop.*")
            await task.run()
            (state,) = task.reader.progress()
            cells = [cell for update in task.updates for row in update.rows for cell in row.cells]
            return {table["table"]: table["state"] for table in state["tables"]}, [cell.value for cell in cells]

        try:
            (problem,) = await check_cluster(config)
            assert (problem.name, problem.warning) == ("cassandra.username", False)
            assert "GRANT UNMASK ON shop.t TO" in problem.message
            assert await read() == ({"shop.plain": "done", "shop.t": "failed"}, [])
            view = CassandraView(properties)
            with pytest.raises(ConfigInvalid, match=r"GRANT UNMASK ON shop\.t TO"):
                await view.open(lambda _: True)
            await view.close()
            for right in ("UNMASK ON TABLE shop.t", "UNMASK ON KEYSPACE shop", "UNMASK ON ALL KEYSPACES"):
                run(f"GRANT {right} TO reader")
                assert await check_cluster(config) == []
                assert await read() == ({"shop.plain": "done", "shop.t": "done"}, ["secret"])
                run(f"REVOKE {right} FROM reader")
            run("ALTER ROLE reader WITH SUPERUSER = true")
            assert await check_cluster(config) == []
        finally:
            await session.release()
