"""A public client of Kafka Connect, unmodified, against Kafka's worker and against ours: the same calls, the same answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kafka_connect import KafkaConnect
from requests.exceptions import HTTPError

from compose.local.process.service import wait_until
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLASS = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.mark.parametrize("ours", [False, True], ids=["java", "millrace"])
def test_every_call_of_the_client(
    urls: tuple[str, str], ours: bool, unique: Callable[[str], str], tmp_path: Path
) -> None:
    client = KafkaConnect(url=urls[ours])
    name = unique("client")
    source = tmp_path / "lines.txt"
    source.write_text("one\ntwo\n", encoding="ascii")
    config = {"connector.class": CLASS, "tasks.max": "1", "file": str(source), "topic": name}

    def state(expected: str) -> bool:
        try:
            status: dict[str, Any] = client.get_connector_status(name)
        except HTTPError as error:
            # Kafka's worker knows no status just after the 201; ours must.
            if ours or error.response.status_code != 404:
                raise
            return False
        # Tasks come a moment after their connector.
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])] == [expected, expected]

    def reaches(expected: str) -> None:
        assert wait_until(lambda: state(expected), 30, 0.1), client.get_connector_status(name)

    assert set(client.get_cluster_info()) == {"version", "commit", "kafka_cluster_id"}
    assert name not in client.list_connectors()
    created = client.create_connector({"name": name, "config": config})
    assert created["name"] == name
    assert created["config"] == {**config, "name": name}
    assert created["type"] == "source"
    reaches("RUNNING")
    assert client.get_connector(name)["tasks"] == [{"connector": name, "task": 0}]
    assert client.get_connector_config(name) == {**config, "name": name}
    assert [task["id"] for task in client.list_connector_tasks(name)] == [{"connector": name, "task": 0}]
    assert client.get_connector_task_status(name, 0)["state"] == "RUNNING"
    assert name in client.list_connectors(expand="status")
    assert name in client.list_connectors(state="running", expand="status")
    eventually(
        lambda: client.list_connector_topics(name) == {name: {"topics": [name]}}, "the topic is known", 30, every=0.1
    )
    client.reset_connector_topics(name)
    eventually(
        lambda: client.list_connector_topics(name) == {name: {"topics": []}}, "the topics are forgotten", 30, every=0.1
    )
    assert client.update_connector(name, {**config, "batch.size": "100"})["config"]["batch.size"] == "100"
    reaches("RUNNING")

    def is_restarted() -> bool:
        client.restart_connector(name, include_tasks=True, only_failed=False)
        return True

    # Java answers 409 as long as it has not read its last change back.
    eventually(is_restarted, "it is restarted", 30, every=0.5, ignore=(HTTPError,))
    eventually(lambda: state("RUNNING"), "it runs", 30, every=0.1)
    client.restart_connector_task(name, 0)
    reaches("RUNNING")
    client.pause_connector(name)
    reaches("PAUSED")
    client.resume_connector(name)
    reaches("RUNNING")
    client.stop_connector(name)
    eventually(
        lambda: client.get_connector_status(name)["connector"]["state"] == "STOPPED", "it is stopped", 30, every=0.1
    )
    client.resume_connector(name)
    reaches("RUNNING")
    assert CLASS in [plugin["class"] for plugin in client.list_connector_plugins()]
    assert client.validate_connector_config("FileStreamSourceConnector", config | {"name": name})["error_count"] == 0
    assert client.validate_connector_config("FileStreamSourceConnector", {"connector.class": CLASS})["error_count"] > 0
    client.delete_connector(name)
    eventually(lambda: name not in client.list_connectors(), "it is deleted", 30, every=0.1)
