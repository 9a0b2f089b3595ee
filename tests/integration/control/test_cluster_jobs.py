"""A connector that moves data itself in a cluster of two workers: any of them answers for it, and it moves like any other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.control._cluster import all_running, members, owners, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from compose.local.worker import MillraceWorker


def test_a_job_in_a_cluster(
    millrace: Callable[..., MillraceWorker], unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("plugin")))
    properties = {"plugin.path": "counting_job:CountingJob", "exactly.once.source.support": "enabled"}
    group, name = unique("group"), unique("job")
    first = millrace(group=group, properties=properties)
    second = millrace(group=group, properties=properties)
    wait_for(lambda: members(first) == members(second) == 2, "both are members")

    status, created = second.request(
        "POST",
        "/connectors",
        {"name": name, "config": {"connector.class": "counting_job.CountingJob", "reads": "input", "tasks.max": "3"}},
    )
    assert (status, created.get("type")) == (201, "sink"), created
    wait_for(lambda: all_running(first, [name]) and all_running(second, [name]), "it runs")

    def progress(worker: MillraceWorker) -> dict[str, Any]:
        status, body = worker.request("GET", f"/connectors/{name}/progress")
        assert status == 200, body
        first_task: dict[str, Any] = body["tasks"][0]
        return first_task

    (owner,) = owners(first, [name])[name]
    for worker in (first, second):
        wait_for(lambda worker=worker: progress(worker).get("records_read", 0) > 0, "progress")  # type: ignore[misc]
        assert progress(worker)["worker_id"] == owner
        assert progress(worker)["lag"] == {"total": 3, "max": 3}
        wait_for(
            lambda worker=worker: (
                worker.request("GET", f"/connectors/{name}/topics")[1]  # type: ignore[misc]
                == {name: {"topics": ["input"]}}
            ),
            "its topic",
        )
        assert worker.request("GET", f"/connectors/{name}/offsets")[1] == {
            "offsets": [{"partition": {"kafka_topic": "input", "kafka_partition": 0}, "offset": {"kafka_offset": 7}}]
        }

    runs, other = (first, second) if first.worker_id == owner else (second, first)
    metrics = runs.request("GET", "/metrics")[1]
    assert f'kafka_connect_sink_task_sink_record_lag_max{{connector="{name}",task="0"}} 3' in metrics
    runs.kill()
    wait_for(
        lambda: owners(other, [name]) == {name: [other.worker_id]} and all_running(other, [name]), "it has moved", 60
    )
    assert progress(other)["worker_id"] == other.worker_id

    assert other.request("PUT", f"/connectors/{name}/stop")[0] == 204
    wait_for(lambda: other.states(name) == ("STOPPED", []), "it is stopped")
    assert other.request("GET", f"/connectors/{name}/progress")[1] == {"name": name, "type": "sink", "tasks": []}
    status, body = other.request(
        "PATCH",
        f"/connectors/{name}/offsets",
        {"offsets": [{"partition": {"kafka_topic": "input", "kafka_partition": 0}, "offset": {"kafka_offset": 1}}]},
    )
    assert (status, body["message"]) == (
        400,
        f"Failed to alter connector offsets for connector {name}: only a reset is possible",
    )
    status, body = other.request("DELETE", f"/connectors/{name}/offsets")
    assert (status, body) == (200, {"message": "The offsets for this connector have been reset successfully"})
    assert other.request("GET", "/connectors/nobody/progress")[0] == 404
