"""A Java Connect cluster's internal topics taken over by Millrace, and the other way round."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.eventually import eventually
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.connect import JavaConnect
    from compose.local.worker import MillraceWorker

PROPERTIES = {
    "offset.flush.interval.ms": "500",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "scheduled.rebalance.max.delay.ms": "0",
}
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


def lines(bootstrap: str, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in read_topic(bootstrap, topic)]


def offset_of(worker: JavaConnect | MillraceWorker, name: str) -> Any:
    status, body = worker.request("GET", f"/connectors/{name}/offsets")
    assert status == 200, body
    return body["offsets"]


def settled(worker: JavaConnect | MillraceWorker, name: str, size: int) -> bool:
    offsets = offset_of(worker, name)
    return bool(offsets) and offsets[0]["offset"] == {"position": size}


def states(worker: JavaConnect | MillraceWorker, name: str) -> tuple[str, list[str]]:
    status, body = worker.request("GET", f"/connectors/{name}/status")
    return (body["connector"]["state"], [task["state"] for task in body["tasks"]]) if status == 200 else ("MISSING", [])


def populate(
    worker: JavaConnect | MillraceWorker, bootstrap: str, folder: Path, unique: Callable[[str], str]
) -> dict[str, str]:
    """One running, one paused, one stopped and one deleted connector, each past its first lines; name -> topic."""
    topics: dict[str, str] = {}
    for kind in ("running", "paused", "stopped", "deleted"):
        name = unique(f"take-{kind}")
        topics[kind] = name
        path = folder / f"{kind}.txt"
        path.write_text("".join(f"{kind} before {n}\n" for n in range(100)), encoding="ascii")
        status, body = worker.request(
            "PUT",
            f"/connectors/{name}/config",
            {"connector.class": SOURCE, "tasks.max": "1", "file": str(path), "topic": name},
        )
        assert status == 201, body
    for kind, name in topics.items():
        size = (folder / f"{kind}.txt").stat().st_size
        eventually(lambda name=name, size=size: settled(worker, name, size), f"the offset of {name} is committed")  # type: ignore[misc]
        assert lines(bootstrap, name) == [f"{kind} before {n}" for n in range(100)]
    assert worker.request("PUT", f"/connectors/{topics['paused']}/pause")[0] == 202
    assert worker.request("PUT", f"/connectors/{topics['stopped']}/stop")[0] == 204
    assert worker.request("DELETE", f"/connectors/{topics['deleted']}")[0] == 204
    eventually(lambda: states(worker, topics["paused"]) == ("PAUSED", ["PAUSED"]), "it is paused")
    eventually(lambda: states(worker, topics["stopped"])[0] == "STOPPED", "it is stopped")
    return topics


def check_taken_over(
    worker: JavaConnect | MillraceWorker, bootstrap: str, folder: Path, topics: dict[str, str], before: dict[str, Any]
) -> None:
    """The second cluster knows all that the first knew, resumes from its offsets, and repeats nothing."""
    eventually(
        lambda: states(worker, topics["running"]) == ("RUNNING", ["RUNNING"]),
        "it runs again",
        detail=lambda: states(worker, topics["running"]),
    )
    eventually(
        lambda: states(worker, topics["paused"])[0] == "PAUSED",
        "it is paused again",
        detail=lambda: states(worker, topics["paused"]),
    )
    eventually(
        lambda: states(worker, topics["stopped"])[0] == "STOPPED",
        "it is stopped again",
        detail=lambda: states(worker, topics["stopped"]),
    )
    assert states(worker, topics["deleted"])[0] == "MISSING"
    assert worker.request("GET", f"/connectors/{topics['deleted']}")[0] == 404
    for kind in ("running", "paused", "stopped"):
        name = topics[kind]
        assert worker.request("GET", f"/connectors/{name}/config")[1] == before[name]["config"]
        assert offset_of(worker, name) == before[name]["offsets"]
        with (folder / f"{kind}.txt").open("a", encoding="ascii") as file:
            file.writelines(f"{kind} after {n}\n" for n in range(50))
    for kind in ("paused", "stopped"):
        assert worker.request("PUT", f"/connectors/{topics[kind]}/resume")[0] == 202
    for kind in ("running", "paused", "stopped"):
        expected = [f"{kind} before {n}" for n in range(100)] + [f"{kind} after {n}" for n in range(50)]
        eventually(
            lambda kind=kind, expected=expected: lines(bootstrap, topics[kind]) == expected,  # type: ignore[misc]
            f"{topics[kind]} holds all lines once",
            detail=lambda kind=kind: lines(bootstrap, topics[kind])[95:],  # type: ignore[misc]
        )


def snapshot(worker: JavaConnect | MillraceWorker, topics: dict[str, str]) -> dict[str, Any]:
    return {
        topics[kind]: {
            "config": worker.request("GET", f"/connectors/{topics[kind]}/config")[1],
            "offsets": offset_of(worker, topics[kind]),
        }
        for kind in ("running", "paused", "stopped")
    }


def records(bootstrap: str, topic: str) -> dict[str, Any]:
    """Last value of each key of an internal topic, decoded."""
    latest: dict[str, Any] = {}
    for record in read_topic(bootstrap, topic, committed=True):
        latest[(record.key or b"").decode()] = None if record.value is None else json.loads(record.value)
    return latest


def shape(value: Any) -> Any:
    """Types and keys of a record, without what differs from run to run."""
    if isinstance(value, dict):
        # Java writes the version of what it stopped in one run and null in the next.
        return {key: "str or null" if key == "version" else shape(item) for key, item in value.items()}
    return type(value).__name__


@pytest.mark.parametrize("exactly_once", [pytest.param("disabled", marks=pytest.mark.slow), "enabled"])
def test_java_cluster_runs_on_in_millrace(
    bootstrap: str,
    java_connect: Callable[..., JavaConnect],
    millrace: Callable[..., MillraceWorker],
    unique: Callable[[str], str],
    tmp_path: Path,
    exactly_once: str,
) -> None:
    group = unique("take")
    properties = {**PROPERTIES, "exactly.once.source.support": exactly_once}
    java = java_connect(group=group, properties=properties)
    topics = populate(java, bootstrap, tmp_path, unique)
    before = snapshot(java, topics)
    java.stop()
    ours = millrace(group=group, properties=properties)
    check_taken_over(ours, bootstrap, tmp_path, topics, before)


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", ["disabled", "enabled"])
def test_millrace_cluster_runs_on_in_java(
    bootstrap: str,
    java_connect: Callable[..., JavaConnect],
    millrace: Callable[..., MillraceWorker],
    unique: Callable[[str], str],
    tmp_path: Path,
    exactly_once: str,
) -> None:
    group = unique("take")
    properties = {**PROPERTIES, "exactly.once.source.support": exactly_once}
    ours = millrace(group=group, properties=properties)
    topics = populate(ours, bootstrap, tmp_path, unique)
    before = snapshot(ours, topics)
    ours.stop()
    java = java_connect(group=group, properties=properties)
    check_taken_over(java, bootstrap, tmp_path, topics, before)


def test_internal_records_have_the_same_form(
    bootstrap: str,
    java_connect: Callable[..., JavaConnect],
    millrace: Callable[..., MillraceWorker],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    contents: dict[str, dict[str, dict[str, Any]]] = {}
    for system, factory in (("java", java_connect), ("ours", millrace)):
        group = unique(system)
        worker = factory(group=group, properties=PROPERTIES)
        folder = tmp_path / system
        folder.mkdir()
        populate(worker, bootstrap, folder, lambda prefix, group=group: f"{prefix}-{group}")  # type: ignore[misc]
        worker.stop()
        contents[system] = {}
        for kind in ("configs", "offsets", "status"):
            content = records(bootstrap, f"{group}-{kind}")
            contents[system][kind] = {
                key.replace(group, "G").replace(str(folder), "F"): shape(value) for key, value in content.items()
            }
    for kind in ("configs", "offsets", "status"):
        assert contents["ours"][kind] == contents["java"][kind], kind
