"""The file connector and Kafka Connect's own: the same lines and positions, and each resumes where the other stopped."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from compose.local.connect import JavaConnect
from connectors.errors import ConfigInvalid
from connectors.file.connector import FileStreamSourceConnector
from connectors.testing import Run, SavedOffsets
from tests.support.eventually import eventually_async, patience

LINES = b'first\n\nwith\ttab and trailing blanks  \r\nold mac\rthen\r\n\r\nquote " and \\ and {json}\nlast of all\nunfinished'
DEADLINE = 60.0


@pytest.fixture(scope="module")
def java(java_connect: Callable[..., JavaConnect]) -> Iterator[JavaConnect]:
    worker = java_connect(
        properties={
            "offset.flush.interval.ms": "200",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        }
    )
    yield worker
    worker.kill()


async def call(java: JavaConnect, method: str, path: str, body: Any = None) -> Any:
    status, answer = await asyncio.to_thread(java.request, method, path, body)
    assert status < 400, answer
    return answer


async def run_java(java: JavaConnect, name: str, path: Path, topic: str) -> None:
    await call(
        java,
        "POST",
        "/connectors",
        {
            "name": name,
            "config": {"connector.class": "FileStreamSource", "tasks.max": "1", "file": str(path), "topic": topic},
        },
    )


async def stop_java(java: JavaConnect, name: str) -> None:
    await call(java, "PUT", f"/connectors/{name}/stop")

    async def stopped() -> bool:
        status = await call(java, "GET", f"/connectors/{name}/status")
        return status["connector"]["state"] == "STOPPED" and not status["tasks"]

    await eventually_async(stopped, f"{name} is stopped", DEADLINE, every=0.05)


async def values_of(bootstrap: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        async with patience(DEADLINE):
            return [(message.key, message.value) for message in [await consumer.getone() for _ in range(count)]]
    finally:
        await consumer.stop()


async def position(java: JavaConnect, name: str, expected: int) -> Any:
    answer: Any = None

    async def reached() -> bool:
        nonlocal answer
        answer = await call(java, "GET", f"/connectors/{name}/offsets")
        return bool(answer["offsets"]) and answer["offsets"][0]["offset"]["position"] == expected

    await eventually_async(reached, f"{name} is at {expected}", DEADLINE, every=0.05, detail=lambda: answer)
    return answer


async def test_each_goes_on_where_the_other_stopped(
    java: JavaConnect, bootstrap: str, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    path, name = tmp_path / "lines.txt", unique("file")
    path.write_bytes(LINES)
    config = {"file": str(path), "topic": name}
    async with Run(FileStreamSourceConnector, config) as run:
        ours = await run.read(8)
    await run_java(java, name, path, name)
    theirs = await values_of(bootstrap, name, len(ours))
    assert [(None, record.value.encode()) for record in ours] == theirs
    answer = await position(java, name, ours[-1].source_offset["position"])
    assert answer["offsets"] == [{"partition": ours[-1].source_partition, "offset": ours[-1].source_offset}]

    await stop_java(java, name)
    saved = SavedOffsets()
    saved.put(answer["offsets"][0]["partition"], answer["offsets"][0]["offset"])
    with path.open("ab") as file:
        file.write(b" no more\nby millrace\nby java\n")
    async with Run(FileStreamSourceConnector, {**config, "batch.size": "1"}, offsets=saved) as run:
        assert [record.value for record in await run.read(2)] == ["unfinished no more", "by millrace"]
    ((partition, offset),) = run.offsets.items()
    await call(java, "PATCH", f"/connectors/{name}/offsets", {"offsets": [{"partition": partition, "offset": offset}]})
    await call(java, "PUT", f"/connectors/{name}/resume")
    assert (await values_of(bootstrap, name, 9))[-1] == (None, b"by java")


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        ({"filename": "f"}, {"other": 1}),
        ({"filename": "f"}, {"position": "1"}),
        ({"filename": "f"}, {"position": 1.5}),
        ({"filename": "f"}, {"position": -1}),
        ({"other": "f"}, {"position": 1}),
    ],
)
async def test_wrong_offsets_are_refused_with_the_same_words(
    java: JavaConnect, tmp_path: Path, unique: Callable[[str], str], partition: dict[str, Any], offset: dict[str, Any]
) -> None:
    name = unique("alter")
    await run_java(java, name, tmp_path / "none", name)
    await stop_java(java, name)
    body = {"offsets": [{"partition": partition, "offset": offset}]}
    status, answer = await asyncio.to_thread(java.request, "PATCH", f"/connectors/{name}/offsets", body)
    assert status >= 400
    with pytest.raises(ConfigInvalid) as caught:
        await FileStreamSourceConnector.alter_offsets(
            FileStreamSourceConnector.config_def.parse({"topic": "t", "file": "f"}), [(partition, offset)]
        )
    assert str(caught.value) in answer["message"]
    await call(java, "DELETE", f"/connectors/{name}")


async def test_options_are_refused_with_the_same_words(java: JavaConnect) -> None:
    for wrong in ({}, {"topic": ""}, {"topic": "t", "batch.size": "many"}, {"topic": "t", "batch.size": ""}):
        answer = await call(
            java,
            "PUT",
            "/connector-plugins/FileStreamSource/config/validate",
            {"connector.class": "FileStreamSource", "name": "n", "tasks.max": "1", **wrong},
        )
        theirs = {item["value"]["name"]: item["value"]["errors"] for item in answer["configs"]}
        ours = FileStreamSourceConnector.config_def.values(wrong)
        for option in ("file", "topic", "batch.size"):
            assert ours[option].errors == theirs[option], option


async def test_options_are_declared_alike(java: JavaConnect) -> None:
    answer = await call(java, "GET", "/connector-plugins/FileStreamSource/config")
    theirs = {item["name"]: item for item in answer}
    for option in ("file", "topic", "batch.size"):
        key = FileStreamSourceConnector.config_def.keys[option]
        item = theirs[option]
        # Not the documentation: that is in our own words.
        assert (item["type"], item["importance"], item["required"]) == (key.type, key.importance, key.required)
        assert item["default_value"] == (None if key.required or key.default is None else str(key.default))
