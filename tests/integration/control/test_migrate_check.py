"""``millrace migrate-check`` on config topics as operators have them: foreign classes, sinks, odd configurations, no topic."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from compose.local.connect import worker_properties
from compose.local.ports import free_port
from compose.local.process.jvm import write_properties
from offsets.admin import TopicAdmin
from worker import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


async def plant(bootstrap: str, group: str, connectors: dict[str, dict[str, Any]]) -> None:
    """Write the records that a Java cluster would have written."""
    async with TopicAdmin({"bootstrap_servers": bootstrap}) as admin:
        for kind in ("configs", "offsets"):
            await admin.create(f"{group}-{kind}", 1, 1, {"cleanup.policy": "compact"})
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for name, config in connectors.items():
            value = json.dumps({"properties": {"name": name, **config}}).encode()
            await producer.send_and_wait(f"{group}-configs", value, key=f"connector-{name}".encode())


def files(folder: Path, bootstrap: str, group: str) -> str:
    properties = worker_properties(bootstrap, group, free_port(None), 1, {})
    return str(write_properties(folder / "worker.properties", properties))


def test_each_connector_gets_a_short_reason(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = unique("odd")
    source = {"connector.class": "FileStreamSource", "topic": "none", "file": str(tmp_path / "lines.txt")}
    asyncio.run(
        plant(
            bootstrap,
            group,
            {
                "a/b": source,
                "elsewhere": {**source, "file": "${vault:shop:file}"},
                "foreign": {"connector.class": "com.example.OrdersSource", "connection.password": "planted-secret"},
                "nothing": {"topic": "none"},
                "sink": {"connector.class": "com.example.OrdersSinkConnector", "topics": "none"},
                "lines": {
                    "connector.class": "FileStreamSink",
                    "topics": "none",
                    "file": str(tmp_path / "values.txt"),
                    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
                    "producer.override.acks": "1",
                },
                "mask": {
                    "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
                    "topics": "none",
                    "connection.url": "jdbc:postgresql://127.0.0.1:1/shop",
                    "connection.user": "jobs",
                    "connection.password": "planted-secret",
                    "transforms": "hide",
                    "transforms.hide.type": "org.apache.kafka.connect.transforms.MaskField$Value",
                },
            },
        )
    )
    assert cli.main(["migrate-check", files(tmp_path, bootstrap, group), "--json"]) == 1
    shown = capsys.readouterr().out
    findings = {finding["name"]: finding for finding in json.loads(shown)["findings"]}
    assert findings["a/b"]["problems"] == findings["elsewhere"]["problems"] == []
    assert any("${vault:shop:file} has no value" in note for note in findings["elsewhere"]["notes"])
    assert findings["nothing"]["problems"] == ["connector.class is missing"]
    (foreign,), (sink,) = findings["foreign"]["problems"], findings["sink"]["problems"]
    assert "plugin.path" in foreign
    assert "PluginDesc" not in foreign
    assert "Spark jobs" in sink
    assert findings["lines"]["problems"] == []
    assert any("consumer group connect-lines" in note for note in findings["lines"]["notes"])
    assert any("producer.override.acks has no effect" in note for note in findings["lines"]["notes"])
    assert any("a step of type mask" in problem for problem in findings["mask"]["problems"])
    assert "planted-secret" not in shown


def test_offsets_in_a_topic_of_the_connectors_own_count(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks continue there: it must not say that they start from the beginning."""
    group = unique("own")
    source = {"connector.class": "FileStreamSource", "topic": "none", "file": str(tmp_path / "lines.txt")}
    separate, missing = f"{group}-separate", f"{group}-missing"
    asyncio.run(
        plant(
            bootstrap,
            group,
            {"own": {**source, "offsets.storage.topic": separate}, "new": {**source, "offsets.storage.topic": missing}},
        )
    )

    async def plant_offset() -> None:
        async with TopicAdmin({"bootstrap_servers": bootstrap}) as admin:
            await admin.create(separate, 1, 1, {"cleanup.policy": "compact"})
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            key = json.dumps(["own", {"filename": source["file"]}]).encode()
            await producer.send_and_wait(separate, b'{"position":7}', key=key)

    async def is_missing() -> bool:
        async with TopicAdmin({"bootstrap_servers": bootstrap}) as admin:
            return await admin.partitions(missing) is None

    asyncio.run(plant_offset())
    assert cli.main(["migrate-check", files(tmp_path, bootstrap, group), "--json"]) == 0
    findings = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert (findings["own"]["offsets"], findings["own"]["notes"]) == (1, [])
    assert findings["new"]["offsets"] == 0
    assert any("it starts from the beginning" in note for note in findings["new"]["notes"])
    assert asyncio.run(is_missing()), "the check has made a topic"


def test_a_topic_that_is_not_there_is_named_at_once_and_not_made(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = unique("none")

    async def present() -> int | None:
        async with TopicAdmin({"bootstrap_servers": bootstrap}) as admin:
            return await admin.partitions(f"{group}-configs")

    # Without a limit of its own: it must not wait for the topic until --timeout is over.
    assert cli.main(["migrate-check", files(tmp_path, bootstrap, group), "--timeout", "3600"]) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert f"topic '{group}-configs' (config.storage.topic) does not exist" in answer.err
    assert asyncio.run(present()) is None


def test_a_kafka_that_is_away_is_said(
    unique: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = f"127.0.0.1:{free_port(None)}"
    assert cli.main(["migrate-check", files(tmp_path, nobody, unique("away")), "--timeout", "5"]) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert f"no Kafka broker answers at ['{nobody}']" in answer.err
