"""``millrace doctor`` with a real Kafka: what is well, and what it says to fix."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compose.local.connect import worker_properties
from compose.local.ports import free_port
from compose.local.process.jvm import write_properties

if TYPE_CHECKING:
    from pathlib import Path


def consult(*arguments: object) -> tuple[int, list[str]]:
    """The exit code and the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "worker.cli", "doctor", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    # On a busy machine the servers take longer than two seconds, and then it says that it waits.
    assert {line.partition(",")[0] for line in done.stderr.splitlines()} <= {"millrace: asking the servers"}
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def group() -> str:
    return f"doctor-{secrets.token_hex(4)}"


def write_worker(folder: Path, bootstrap: str, group: str, **extra: str) -> Path:
    properties = worker_properties(bootstrap, group, free_port(), 1, {})
    file = folder / "worker.properties"
    write_properties(file, {**properties, **{name.replace("_", "."): value for name, value in extra.items()}})
    return file


def test_a_machine_without_a_worker_file() -> None:
    code, lines = consult()
    assert code == 0
    assert any(line.startswith("ok      Python: ") for line in lines)
    assert lines[-1] == "no problems"


def test_a_worker_and_a_connector_that_can_run(bootstrap: str, group: str, tmp_path: Path) -> None:
    connector = tmp_path / "lines.json"
    source = tmp_path / "lines.txt"
    source.write_text("one\n")
    config = {"connector.class": "FileStreamSource", "file": str(source), "topic": group}
    connector.write_text(json.dumps({"name": "lines", "config": config}))
    code, lines = consult(write_worker(tmp_path, bootstrap, group), connector)
    assert code == 0
    assert f"ok      topic {group}-configs: is not there; the first worker creates it" in lines
    assert "ok      connector lines: can run" in lines
    assert not AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics.keys() & {
        f"{group}-configs"
    }


def test_what_kafka_can_not_give_is_named(bootstrap: str, group: str, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(f"{group}-status", 1, 1, config={"cleanup.policy": "delete"})
    admin.create_topics([topic])[topic.topic].result(30)
    file = write_worker(tmp_path, bootstrap, group, offset_storage_replication_factor="7")
    code, lines = consult(file)
    problems = [line for line in lines if line.startswith("problem ")]
    assert code == 1
    assert len(problems) == 2
    assert f"topic {group}-offsets" in problems[0]
    assert "offset.storage.replication.factor=1" in problems[0]
    assert f"topic {group}-status" in problems[1]
    assert "--add-config cleanup.policy=compact" in problems[1]
    assert lines[-1] == "2 problems to fix"


def test_a_source_that_is_away_is_named(bootstrap: str, group: str, tmp_path: Path) -> None:
    connector = tmp_path / "shop.json"
    config = {
        "connector.class": "mysql",
        "topic.prefix": group,
        "database.hostname": "127.0.0.1",
        "database.port": str(free_port()),
        "database.user": "millrace",
        "database.password": "not-for-the-output",
    }
    connector.write_text(json.dumps({"name": "shop", "config": config}))
    code, lines = consult(write_worker(tmp_path, bootstrap, group), connector)
    assert code == 1
    assert any(line.startswith("problem connector shop: ") and "127.0.0.1" in line for line in lines)
    assert not any("not-for-the-output" in line for line in lines)


def test_kafka_that_is_away_is_named(group: str, tmp_path: Path) -> None:
    code, lines = consult(write_worker(tmp_path, f"127.0.0.1:{free_port()}", group))
    assert code == 1
    assert any(line.startswith("problem Kafka at 127.0.0.1:") for line in lines)


def test_a_mistake_in_the_file_is_named(group: str, tmp_path: Path) -> None:
    code, lines = consult(write_worker(tmp_path, "127.0.0.1:1", group, session_timeout_ms="soon"))
    assert code == 1
    assert any("session.timeout.ms" in line for line in lines if line.startswith("problem "))
