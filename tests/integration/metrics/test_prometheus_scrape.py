"""A real Prometheus scrapes a real worker, and the queries of existing dashboards find their series."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compose.local.service import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.prometheus import Prometheus
    from compose.local.worker import MillraceWorker

#: Queries of the public Kafka Connect dashboards and alerts (family A), and of the per-task families.
QUERIES = (
    "kafka_connect_worker_connector_count", "kafka_connect_worker_task_count",
    "kafka_connect_worker_connector_startup_success_total", "kafka_connect_worker_rebalance_completed_rebalances_total",
    "kafka_connect_worker_rebalance_epoch", "kafka_connect_coordinator_assigned_tasks",
    'kafka_connect_connector_status{status="running",connector="CONNECTOR"} == 1',
    'kafka_connect_connector_task_status{status="running",connector="CONNECTOR",task="0"} == 1',
    'kafka_connect_connector_task_status{status="failed",connector="FAILING"} == 1',
    'kafka_connect_worker_connector_failed_task_count{connector="FAILING"} == 1',
    'sum(kafka_connect_source_task_source_record_write_total{connector="CONNECTOR"}) == 1000',
    'sum(kafka_connect_source_task_source_record_poll_total{connector="CONNECTOR"}) == 1000',
    'kafka_connect_connector_task_offset_commit_avg_time_ms{connector="CONNECTOR"}',
    'kafka_connect_source_task_poll_batch_avg_time_ms{connector="CONNECTOR"}',
    'kafka_connect_task_error_total_record_failures{connector="CONNECTOR"} == 0',
)


def test_dashboards_queries_find_series(millrace: Callable[..., MillraceWorker], prometheus: Callable[..., Prometheus],
                                        unique: Callable[[str], str]) -> None:
    worker = millrace(properties={"offset.flush.interval.ms": "500"})
    running, failing = unique("metrics"), unique("failing")
    worker.create(running, {"connector.class": "datagen", "topic": running, "records": 1000, "tasks.max": 1})
    worker.create(failing, {"connector.class": "datagen", "topic": failing, "records": 1000, "tasks.max": 1,
                            "fault.fail.at": 10})
    worker.wait_running(running, 1)
    worker.wait_for(lambda: worker.states(failing)[1] == ["FAILED"], 30, "the failing task did not fail",
                    lambda: worker.request("GET", f"/connectors/{failing}/status"))
    server = prometheus(targets=[worker.worker_id])
    missing: list[str] = []

    def all_found() -> bool:
        missing[:] = [query for query in QUERIES if not found(server, query.replace("CONNECTOR", running).replace(
            "FAILING", failing))]
        return not missing

    assert wait_until(all_found, 60, 1), f"no series for {missing}"
    assert found(server, f'up{{instance="{worker.worker_id}"}} == 1')


def found(server: Prometheus, query: str) -> Any:
    return server.query(query)
