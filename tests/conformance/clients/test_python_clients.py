"""Public clients written in Python, unmodified, against Kafka's worker and ours: what one reads of both is the same."""

from __future__ import annotations

import json
import re
import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest
from kafka_connect_api.errors import ConnectGenericException
from kafka_connect_api.kafka_connect_api import Api, Cluster, Connector
from kafka_connect_healthcheck.health import Health

from compose.local.process.http import send_request
from compose.local.process.service import wait_until
from tests.support.eventually import eventually
from tests.support.trace_reader import read_like_redpanda_console

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLASS = "org.apache.kafka.connect.file.FileStreamSourceConnector"
RUNNING = ["RUNNING", "RUNNING"]


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with two lines."""
    path = tmp_path / "lines.txt"
    path.write_text("one\ntwo\n", encoding="ascii")
    return str(path)


class Notes:
    """The results and errors of a client, call by call, without what differs from run to run."""

    def __init__(self, url: str, name: str) -> None:
        self._names = {url.removeprefix("http://"): "WORKER", name: "NAME"}
        self.answers: dict[str, Any] = {}

    def note(self, step: str, asked: Callable[[], Any]) -> None:
        """Ask; again while a worker is in the middle of something."""
        deadline = time.monotonic() + 30
        while True:
            try:
                answer = asked()
            except ConnectGenericException as error:
                answer = [type(error).__name__, str(error)]
                if "rebalance" in str(error) and time.monotonic() < deadline:
                    time.sleep(0.1)
                    continue
            break
        text = json.dumps(answer, sort_keys=True)
        for value, stands in self._names.items():
            text = text.replace(value, stands)
        # A plugin's version is its own.
        self.answers[step] = json.loads(re.sub(r'"version": "[^"]*"', '"version": "V"', text))


def states(status: dict[str, Any]) -> list[str]:
    return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]


def reaches(connector: Connector, expected: list[str]) -> None:
    def there() -> bool:
        try:
            return states(connector.status) == expected
        except (
            ConnectGenericException
        ):  # Kafka's worker knows no status just after the creation, and is busy now and then
            return False

    assert wait_until(there, 30, 0.1), f"{connector.name} is not {expected}"


def everything(url: str, file: str) -> dict[str, Any]:
    """Every call of kafka-connect-api."""
    name = f"api-{secrets.token_hex(4)}"
    notes = Notes(url, name)
    note = notes.note
    api = Api(url=url)
    cluster = Cluster(api)
    connector, nobody = Connector(cluster, name), Connector(cluster, f"{name}-nobody")
    config = {"connector.class": CLASS, "tasks.max": "1", "file": file, "topic": "topic-of-api"}

    def configure(new_config: Any) -> None:
        connector.config = new_config

    def level(new_level: str) -> str:
        cluster.root_logger = new_level
        return str(cluster.root_logger["level"])

    note("version", lambda: [cluster.version, bool(cluster.kafka_cluster)])
    note("create", lambda: api.post("/connectors", json={"name": name, "config": config}))
    reaches(connector, RUNNING)
    note("create again", lambda: api.post("/connectors", json={"name": name, "config": config}))
    note("create of nothing", lambda: api.post("/connectors", json={"name": f"{name}-2", "config": {}}))
    note("connectors", lambda: [listed_name for listed_name in cluster.connectors if listed_name.startswith(name)])
    note("exists", lambda: [connector.exists(), connector.connector_class, connector.config, connector.status])
    note("tasks", lambda: [[task.id, task.config, task.status, task.is_running()] for task in connector.tasks])
    note("configure", lambda: configure({**config, "batch.size": 5}))
    note("configure wrongly", lambda: configure({**config, "batch.size": "x"}))
    note("configured", lambda: connector.config)
    for step, steer, expected in (
        ("restart", connector.restart, RUNNING),
        ("restart tasks", connector.restart_all_tasks, RUNNING),
        ("pause", connector.pause, ["PAUSED", "PAUSED"]),
        ("resume", connector.resume, RUNNING),
        ("cycle", connector.cycle_connector, RUNNING),
    ):
        note(step, steer)
        reaches(connector, expected)
    note("log level", lambda: [level("WARN"), level("INFO"), sorted(cluster.loggers["root"])])
    note("log level that there is not", lambda: level("CRITICAL"))
    # Kafka's worker says what changed, and so must ours.
    note("log level again", lambda: cluster.set_logger_log_level("root", "INFO"))
    note("health", lambda: health(url))
    note("delete", connector.delete)
    for step, ask in (
        ("exists", nobody.exists),
        ("status", lambda: nobody.status),
        ("pause", nobody.pause),
        ("resume", nobody.resume),
        ("restart", nobody.restart),
        ("delete", nobody.delete),
    ):
        note(f"{step} of nobody", ask)
    return notes.answers


def health(url: str, *containers: str) -> dict[str, Any]:
    report: dict[str, Any] = Health(
        url, None, ["FAILED"], None, 0, containers or ["connector", "task"]
    ).get_health_result()
    return report


def test_kafka_connect_api(urls: tuple[str, str], file: str) -> None:
    theirs, ours = (everything(url, file) for url in urls)
    assert ours == theirs


def test_clients_show_the_failure_of_a_task(urls: tuple[str, str], file: str) -> None:
    """Clients show a part of the trace: its first line, or what follows "Caused by:"."""
    for url in urls:
        name = f"fails-{secrets.token_hex(4)}"
        status, _ = send_request(
            "PUT",
            f"{url}/connectors/{name}/config",
            {
                "connector.class": CLASS,
                "tasks.max": "1",
                "file": file,
                "topic": "topic-of-fails",
                "value.converter": "org.apache.kafka.connect.converters.LongConverter",
            },
        )
        assert status == 201
        # While Kafka's worker knows no status yet, the check says that something is wrong and nothing more.
        eventually(
            lambda url=url: bool(health(url).get("failures")),  # type: ignore[misc]
            "the failure is shown",
            30,
            every=0.1,
        )
        [failure] = health(url)["failures"]
        assert (failure["type"], failure["connector"], failure["id"]) == ("task", name, 0)
        assert failure["trace"].partition("\n")[0].partition(": ")[2].startswith("Tolerance exceeded in error handler")
        assert read_like_redpanda_console(failure["trace"]).startswith("Failed to serialize to long")
        assert send_request("DELETE", f"{url}/connectors/{name}")[0] == 204
