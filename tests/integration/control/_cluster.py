"""Helpers that the cluster tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from compose.local.worker import MillraceWorker


def wait_for(condition: Callable[[], bool], description: str, deadline_s: float = 30.0) -> None:
    """Wait for a condition; a worker that refuses connections, or does not know the connector yet, is no error."""
    eventually(condition, description, deadline_s, ignore=(OSError, LookupError))


def file_source(source: Path, topic: str) -> dict[str, object]:
    """A connector that follows a file."""
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": topic,
    }


def datagen(topic: str, tasks: int, **more: object) -> dict[str, object]:
    """A connector that makes a few records a second."""
    return {
        "connector.class": "datagen",
        "tasks.max": str(tasks),
        "topic": topic,
        "partitions": str(tasks),
        "rate": "20",
        **more,
    }


def owners(worker: MillraceWorker, names: Sequence[str]) -> dict[str, list[str]]:
    """Connector -> the workers of its tasks."""
    return {
        name: [task["worker_id"] for task in worker.request("GET", f"/connectors/{name}/status")[1]["tasks"]]
        for name in names
    }


def all_running(worker: MillraceWorker, names: Sequence[str], tasks: int = 1) -> bool:
    """Whether all connectors and their tasks are RUNNING."""
    return all(worker.states(name) == ("RUNNING", ["RUNNING"] * tasks) for name in names)


def members(worker: MillraceWorker) -> int:
    """How many workers the cluster has as this one sees it."""
    metrics = worker.request("GET", "/metrics")[1]
    return next(
        int(float(line.split()[1])) for line in metrics.splitlines() if line.startswith("millrace_worker_members ")
    )
