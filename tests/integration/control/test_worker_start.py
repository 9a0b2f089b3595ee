"""The start of a worker: what it says when it can't, and connectors from the command line."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer

from compose.local.connect import worker_properties
from compose.local.ports import free_port
from compose.local.process.jvm import write_properties
from compose.local.process.service import PATIENCE
from compose.local.worker import MillraceWorker
from offsets.admin import TopicAdmin
from tests.integration.control._cluster import all_running, datagen, owners, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def properties(bootstrap: str, group: str, **more: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return worker_properties(bootstrap, group, free_port(None), 1, named)


def start(folder: Path, values: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
    path = write_properties(folder / "worker.properties", dict(values))
    return subprocess.Popen(
        [sys.executable, "-m", "worker.cli", "worker", str(path), *arguments, "--processes", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ends(folder: Path, values: Mapping[str, str]) -> tuple[int, str]:
    process = start(folder, values)
    output, _ = process.communicate(timeout=60 * PATIENCE)
    return process.returncode, output


def test_an_unreachable_broker_is_named_with_the_fix(tmp_path: Path, unique: Callable[[str], str]) -> None:
    nobody = f"127.0.0.1:{free_port(None)}"
    code, output = ends(tmp_path, properties(nobody, unique("g"), kafka_start_timeout_ms="1500"))
    assert code == 1
    assert "Waiting up to 1.5 s for Kafka" in output
    assert f"no Kafka broker answered at {nobody} (bootstrap.servers) within 1.5 s" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("offset_storage_file_filename", "/tmp/offsets", "standalone mode"),
        ("value_converter", "com.example.Nope", "com.example.Nope"),
        ("exactly_once_source_support", "maybe", "exactly.once.source.support"),
    ],
)
def test_mistakes_end_the_start_before_kafka_is_asked(
    tmp_path: Path, unique: Callable[[str], str], name: str, value: str, complaint: str
) -> None:
    code, output = ends(tmp_path, properties("127.0.0.1:1", unique("g"), **{name: value}))
    assert code == 2
    assert complaint in output
    assert "Traceback" not in output


async def test_a_topic_that_is_not_compacted_is_refused(
    bootstrap: str, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    group = unique("g")
    async with TopicAdmin({"bootstrap_servers": bootstrap}) as admin:
        await admin.create(f"{group}-status", 1, 1, {"cleanup.policy": "delete"})
    code, output = await asyncio.to_thread(
        ends, tmp_path, properties(bootstrap, group, status_storage_topic=f"{group}-status")
    )
    assert code == 2
    assert "required to have 'cleanup.policy=compact'" in output
    assert "kafka-configs.sh" in output


def test_connectors_from_the_command_line_run_and_sigterm_ends_with_0(
    bootstrap: str, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    group = unique("g")
    first, second = tmp_path / "first.properties", tmp_path / "second.json"
    config = {"connector.class": "datagen", "topic": unique("t"), "tasks.max": "1", "rate": "5"}
    write_properties(first, {"name": "first", **config})
    second.write_text(json.dumps({"name": "second", "config": config}))
    process = start(tmp_path, properties(bootstrap, group), str(first), str(second))
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "Connector second from the command line was created" in line:
                break
        assert any("Connector first from the command line was created" in line for line in lines)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=40 * PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert "The worker has stopped" in output


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ({"session_timeout_ms": "1000", "heartbeat_interval_ms": "300"}, "group.min.session.timeout.ms"),
        ({"group_takeover_wait_ms": "500"}, "stop the one that is taken over first"),
    ],
)
async def test_a_group_that_will_not_have_it_is_explained(
    bootstrap: str, tmp_path: Path, unique: Callable[[str], str], mistake: dict[str, str], complaint: str
) -> None:
    group = unique("g")
    consumer = AIOKafkaConsumer(unique("t"), bootstrap_servers=bootstrap, group_id=group)
    if "session_timeout_ms" not in mistake:
        await consumer.start()  # somebody else's group
    code, output = await asyncio.to_thread(ends, tmp_path, properties(bootstrap, group, **mistake))
    await consumer.stop()
    assert code == 1, output
    assert complaint in output


def test_a_second_signal_ends_a_worker_that_waits_for_kafka(tmp_path: Path, unique: Callable[[str], str]) -> None:
    process = start(tmp_path, properties(f"127.0.0.1:{free_port(None)}", unique("g")))
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "Waiting up to" in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20 * PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0


def test_a_connector_file_without_a_name_is_refused(tmp_path: Path, unique: Callable[[str], str]) -> None:
    nameless = tmp_path / "nameless.properties"
    write_properties(nameless, {"connector.class": "datagen"})
    process = start(tmp_path, properties("127.0.0.1:1", unique("g")), str(nameless))
    output, _ = process.communicate(timeout=30 * PATIENCE)
    assert process.returncode == 2
    assert "the property 'name' is missing" in output
    wait_for(lambda: process.poll() is not None, "it has ended")


def test_another_cluster_with_the_same_group_is_named_and_gets_no_tasks(
    bootstrap: str, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    group = unique("g")
    others = {f"{kind}.storage.topic": f"{group}-other-{kind}" for kind in ("config", "offset", "status")}
    with (
        MillraceWorker(tmp_path / "first", bootstrap, group=group, processes=1) as first,
        MillraceWorker(tmp_path / "second", bootstrap, group=group, processes=1, properties=others) as second,
    ):

        def is_named(worker: MillraceWorker, other: MillraceWorker) -> bool:
            message = f"Worker {other.worker_id} is a member of the group {group} too, but its config.storage.topic is"
            return message in worker.log_path.read_text()

        wait_for(lambda: is_named(first, second) and is_named(second, first), "each names the other", 60)
        first.create("rows", datagen(unique("rows"), 3))
        wait_for(lambda: all_running(first, ["rows"], 3), "all tasks run at the leader", 60)
        assert owners(first, ["rows"]) == {"rows": [first.worker_id] * 3}
