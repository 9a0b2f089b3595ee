"""Every query of the public dashboards and of our own finds series of a real worker in a real Prometheus."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.cassandra_cluster import execute_cql
from compose.local.process.service import wait_until
from tests.integration.metrics.conftest import PLUGIN
from tests.integration.metrics.public_queries import DASHBOARDS, EXPECTED_EMPTY
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from compose.local.monitoring.prometheus import Prometheus
    from compose.local.scylla.client import Emulation
    from tests.conftest import HasCassandra
    from tests.integration.metrics.conftest import Installation

OUR_DASHBOARDS = Path(__file__).parents[3] / "compose" / "grafana" / "dashboards"
#: Queries of our own dashboards that need a server of their own: another test has it.
ELSEWHERE = ("cassandra_", "scylla_")


def all_found(server: Prometheus, queries: Iterable[tuple[str, str]]) -> list[str]:
    """Names of the queries that have found nothing after a while."""
    missing = list(queries)

    def look() -> bool:
        missing[:] = [query for query in missing if not server.query(query[1])]
        return not missing

    wait_until(look, 30, 0.5)
    return [f"{name}: {query}" for name, query in missing]


def assert_found(server: Prometheus, queries: Iterable[tuple[str, str]]) -> None:
    """All queries find something."""
    missing = all_found(server, queries)
    assert not missing, "nothing found by\n" + "\n".join(missing)


def test_public_dashboards_find_their_series(installation: Installation) -> None:
    filled = {"WORKER": installation.worker.worker_id, "PREFIX": installation.prefix, "PLUGIN": PLUGIN}

    def fill(query: str) -> str:
        return re.sub("|".join(filled), lambda match: filled[match[0]], query)

    queries = [(name, fill(query)) for board in DASHBOARDS for name, query in board.queries()]
    assert len(queries) > 250
    assert_found(installation.public, [query for query in queries if query[0] not in EXPECTED_EMPTY])
    # An exception that is no exception any more must go from the list.
    unexpected = [name for name, query in queries if name in EXPECTED_EMPTY and installation.public.query(query)]
    assert unexpected == []
    assert EXPECTED_EMPTY.keys() <= {name for name, _ in queries}


def test_numbers_are_true(installation: Installation) -> None:
    """The numbers on dashboards are the true ones."""
    name, server = installation.prefix, installation.shipped
    for query in (
        f'sum(kafka_connect_source_task_source_record_write_total{{connector="{name}-thousand"}}) == 1000',
        f'sum(kafka_connect_source_task_source_record_poll_total{{connector="{name}-thousand"}}) == 1000',
        f'up{{instance="{installation.worker.worker_id}"}} == 1',
        f'sum(kafka_connect_connector_status{{connector=~"{name}.*",status="paused"}}) == 1',
        f'kafka_connect_worker_connector_failed_task_count{{connector="{name}-failed"}} == 1',
        f'kafka_connect_connector_status{{connector="{name}-broken",status="failed"}} == 1',
        f'debezium_metrics_TotalNumberOfEventsSeen{{name="{name}",context="snapshot"}} >= 500',
        f'debezium_metrics_RowsScanned{{name="{name}",table="{name}.t"}} >= 500',
        f'debezium_metrics_ChangesApplied{{name="{name}"}} >= 1',
        f'rate(debezium_metrics_TotalNumberOfCreateEventsSeen{{name="{name}"}}[10s]) > 1',
        # the producer of a task sends at least its records' bytes
        (
            f'kafka_producer_outgoing_byte_total{{clientid="connector-producer-{name}-made-0"}} > '
            f'on () millrace_task_bytes_written_total{{connector="{name}-made",task="0"}}'
        ),
        f'kafka_producer_connection_count{{clientid="connector-producer-{name}-made-0"}} >= 1',
        "kafka_connect_metrics_outgoing_byte_rate > 0",
        "kafka_connect_metrics_incoming_byte_rate > 0",
        'jvm_memory_used_bytes{process="host-0"} > 1e7',
        'jvm_threads_current{process="control"} >= 2',
        "sum(jvm_gc_collection_seconds_count) > 0",
        "millrace_metrics_render_seconds > 0",
    ):
        eventually(lambda query=query: server.query(query), f"{query} has an answer", 20, every=0.5)  # type: ignore[misc]


def queries_of(board: Path) -> Iterator[tuple[str, str]]:
    """All queries of a dashboard with its variables filled in, those of the variables included."""
    document: dict[str, Any] = json.loads(board.read_text(encoding="utf-8"))
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            assert match, variable
            yield f"{board.stem} variable {variable['name']}", f"{match[1]}"
    for panel in document["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "10s")
            for name in [variable["name"] for variable in document["templating"]["list"]]:
                query = query.replace(f"${name}", ".*")
            yield f"{board.stem}: {panel['title']}", query


@pytest.mark.parametrize("board", sorted(OUR_DASHBOARDS.glob("*.json")), ids=lambda board: board.stem)
def test_our_dashboards_find_their_series(installation: Installation, board: Path) -> None:
    queries = list(queries_of(board))
    here = [query for query in queries if not any(prefix in query[1] for prefix in ELSEWHERE)]
    assert len(here) > 10
    assert_found(installation.shipped, here)


def test_panels_of_cassandra_and_scylla_find_their_series(
    installation: Installation,
    cassandra: HasCassandra,
    cassandra_keyspace: Callable[[], str],
    scylla: Emulation,
    scylla_keyspace: Callable[..., str],
) -> None:
    worker, server, name = installation.worker, installation.shipped, installation.prefix
    ours, theirs = cassandra_keyspace(), scylla_keyspace()
    execute_cql(
        cassandra.address,
        f"CREATE TABLE {ours}.t (pk int PRIMARY KEY, v text) WITH cdc = true",
        f"INSERT INTO {ours}.t (pk, v) VALUES (1, 'x')",  # noqa: S608 - names of our own
    )
    scylla.create_table(f"CREATE TABLE {theirs}.t (pk int PRIMARY KEY, v text) WITH cdc = {{'enabled': true}}")
    worker.create(
        f"{name}-cassandra",
        {
            "connector.class": "cassandra",
            "topic.prefix": ours,
            "cassandra.hosts": cassandra.address,
            "tasks.max": "1",
            "cdc.raw.directories": str(cassandra.cdc_raw),
            "table.include.list": f"{ours}\\..*",
            "commit.log.delete": "false",
        },
    )
    worker.create(
        f"{name}-scylla",
        {
            "connector.class": "scylla",
            "topic.prefix": theirs,
            "scylla.cluster.ip.addresses": scylla.address,
            "scylla.table.names": f"{theirs}.t",
            "scylla.window.min.ms": "50",
            "scylla.confidence.window.size": "0",
            "snapshot.mode": "initial",
        },
    )
    for kind in ("cassandra", "scylla"):
        worker.wait_running(f"{name}-{kind}", 1)
    scylla.apply_cql(f"INSERT INTO {theirs}.t (pk, v) VALUES (1, 'x')")  # noqa: S608
    here = [
        query
        for query in queries_of(OUR_DASHBOARDS / "sources.json")
        if any(prefix in query[1] for prefix in ELSEWHERE)
    ]
    assert len(here) >= 8
    assert_found(server, here)
    assert_found(
        server,
        [
            (query, query)
            for plugin, prefix in (("cassandra", ours), ("scylla", theirs))
            for query in (
                f'debezium_metrics_Connected{{plugin="{plugin}",name="{prefix}",context="streaming"}} == 1',
                f'debezium_metrics_MilliSecondsBehindSource{{plugin="{plugin}",name="{prefix}"}} >= 0',
                f'debezium_metrics_MilliSecondsSinceLastEvent{{plugin="{plugin}",name="{prefix}",context="streaming"}} >= 0',
                f'debezium_metrics_TotalNumberOfEventsSeen{{plugin="{plugin}",name="{prefix}",context="streaming"}} >= 1',
                f'debezium_metrics_QueueTotalCapacity{{plugin="{plugin}",name="{prefix}",context="streaming"}} > 0',
                *(
                    f'debezium_metrics_{attribute}{{plugin="{plugin}",name="{prefix}",context="snapshot"}} == {value}'
                    for attribute, value in (
                        ("SnapshotCompleted", 1),
                        ("SnapshotRunning", 0),
                        ("SnapshotAborted", 0),
                        ("SnapshotPaused", 0),
                        ("SnapshotSkipped", 0),
                        ("TotalTableCount", 0),
                        ("RemainingTableCount", 0),
                    )
                ),
                f'debezium_metrics_SnapshotDurationInSeconds{{plugin="{plugin}",name="{prefix}",context="snapshot"}} >= 0',
                f'debezium_metrics_RowsScanned{{plugin="{plugin}",name="{prefix}",table="{prefix}.t"}} >= 0',
            )
        ],
    )
