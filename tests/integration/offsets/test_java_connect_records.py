"""Internal topics shared with the real Kafka Connect: it runs on from what is written here, and writes what is read here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from offsets import records
from offsets.cluster import ClusterState
from offsets.log import CompactedLog
from offsets.positions import encode_key
from offsets.records import (
    ConnectorConfig,
    ConnectorStatusRecord,
    LoggerLevelRecord,
    Pair,
    ReportedStatus,
    RestartRequest,
    SessionKeyRecord,
    TargetState,
    TaskConfig,
    TaskCount,
    TasksCommit,
    TaskStatusRecord,
    decode_config,
    decode_offset_key,
    decode_status,
)
from offsets.status import StatusState
from offsets.store import OffsetStore
from offsets.topics import InternalTopic, ensure_internal_topic
from tests.integration.offsets.topic_tools import Collected
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.connect import JavaConnect

#: Java joins and splits keys at hyphens, and topic status keys at a colon. (It can't address a name with / or %.)
NAME = "a-1:connector-b é-7"


def encoded(record: Any) -> Pair:
    """The record as Millrace writes it."""
    match record:
        case SessionKeyRecord():
            return records.session_key_record(record)
        case ConnectorConfig(connector, config):
            return records.connector_record(connector, config)
        case TaskConfig(connector, task, config):
            return records.task_record(connector, task, config)
        case TasksCommit(connector, tasks):
            return records.commit_record(connector, tasks)
        case TargetState(connector, state):
            return records.target_state_record(connector, state)
        case RestartRequest():
            return records.restart_record(record)
        case TaskCount(connector, tasks):
            return records.task_count_record(connector, tasks)
        case LoggerLevelRecord(logger, level):
            return records.logger_record(logger, level)
        case ConnectorStatusRecord(connector, status):
            return records.connector_status_record(connector, status)
        case TaskStatusRecord(connector, task, status):
            return records.task_status_record(connector, task, status)
        case _:
            return records.topic_status_record(record.connector, record.topic, record.status)


async def everything(bootstrap: str, topic: str) -> Collected:
    """All records of a topic."""
    sink = Collected()
    log = CompactedLog(topic, {"bootstrap_servers": bootstrap}, sink)
    await log.start()
    await log.stop()
    return sink


async def test_connect_and_millrace_read_each_others_topics(
    bootstrap: str, unique: Callable[[str], str], java_connect: Callable[..., JavaConnect], tmp_path: Path
) -> None:
    group, out = unique("java"), unique("out")
    client = {"bootstrap_servers": bootstrap}
    lines = tmp_path / "lines"
    lines.write_text("old 1\nold 2\nnew 1\n")
    config = {
        "connector.class": "FileStreamSource",
        "tasks.max": "1",
        "file": str(lines),
        "topic": out,
        "name": NAME,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    task = {**config, "task.class": "org.apache.kafka.connect.file.FileStreamSourceTask"}

    # Millrace writes a connector with its tasks, its state, a status and an offset ...
    for topic in (
        InternalTopic("config", f"{group}-configs", 1, 1),
        InternalTopic("offset", f"{group}-offsets", 5, 1),
        InternalTopic("status", f"{group}-status", 5, 1),
    ):
        await ensure_internal_topic(client, topic)
    log = CompactedLog(f"{group}-configs", client, Collected())
    await log.start()
    await log.send_all(
        [
            records.target_state_record(NAME, "STARTED"),
            records.connector_record(NAME, config),
            records.task_record(NAME, 0, task),
            records.commit_record(NAME, 1),
        ]
    )
    await log.stop()
    store = OffsetStore(f"{group}-offsets", client)
    await store.start()
    await store.write(NAME, [({"filename": str(lines)}, {"position": len("old 1\nold 2\n")})])
    log = CompactedLog(f"{group}-status", client, Collected())
    await log.start()
    await log.send(*records.connector_status_record("gone", ReportedStatus("FAILED", "w:1", 3, "trace", "1.0")))
    await log.stop()

    # ... and Java runs on from there, and leaves its own records.
    worker = java_connect(
        group=group,
        properties={
            "offset.flush.interval.ms": "200",
            "offset.storage.partitions": "5",
            "status.storage.partitions": "5",
        },
    )
    status, names = worker.request("GET", "/connectors")
    assert (status, names) == (200, [NAME])
    path = f"/connectors/{quote(NAME)}"
    eventually(
        lambda: [task["state"] for task in worker.request("GET", f"{path}/status")[1].get("tasks", [])] == ["RUNNING"],
        "the task runs",
    )
    assert worker.request("PUT", f"{path}/pause")[0] == 202
    eventually(
        lambda: [task["state"] for task in worker.request("GET", f"{path}/status")[1]["tasks"]] == ["PAUSED"],
        "the task is paused",
    )
    assert worker.request("PUT", f"{path}/resume")[0] == 202
    eventually(
        lambda: [task["state"] for task in worker.request("GET", f"{path}/status")[1]["tasks"]] == ["RUNNING"],
        "the task runs again",
    )
    assert worker.request("POST", f"{path}/restart?includeTasks=true&onlyFailed=false")[0] == 202
    assert (
        worker.request(
            "PUT", "/admin/loggers/org.apache.kafka.connect.runtime.Loggers?scope=cluster", {"level": "WARN"}
        )[0]
        == 204
    )
    eventually(lambda: worker.request("GET", f"{path}/topics")[1][NAME]["topics"] == [out], "the topic is known")
    assert worker.request("PUT", f"{path}/stop")[0] == 204
    eventually(
        lambda: (
            worker.request("GET", f"{path}/offsets")[1]["offsets"]
            == [{"partition": {"filename": str(lines)}, "offset": {"position": len("old 1\nold 2\nnew 1\n")}}]
        ),
        "the last offset is saved",
    )
    assert (
        worker.request(
            "POST",
            "/connectors",
            {
                "name": "second",
                "config": {**config, "name": "second", "file": "", "tasks.max": "1"},
                "initial_state": "STOPPED",
            },
        )[0]
        == 201
    )
    assert worker.request("DELETE", "/connectors/second")[0] == 204
    worker.stop()

    # Nothing was read twice: the topic begins where the offset was.
    assert (await everything(bootstrap, out)).values == [b"new 1"]
    # Every record that Java wrote is understood, and Millrace would have written the very same bytes.
    state, seen = ClusterState(), set()
    for _, offset, key, value in (await everything(bootstrap, f"{group}-configs")).records:
        state.apply(offset, key, value)
        record = decode_config(key, value)
        assert encoded(record) == (key, value)
        seen.add(type(record))
    assert state.unreadable.count == 0
    assert seen >= {
        SessionKeyRecord,
        ConnectorConfig,
        TaskConfig,
        TasksCommit,
        TargetState,
        RestartRequest,
        LoggerLevelRecord,
    }
    snapshot = state.snapshot()
    assert (list(snapshot.connectors), snapshot.target_state(NAME)) == ([NAME], "STOPPED")
    assert snapshot.loggers == {"org.apache.kafka.connect.runtime.Loggers": "WARN"}
    statuses, topics, states = StatusState(), set(), set()
    for *_, key, value in (await everything(bootstrap, f"{group}-status")).records:
        statuses.apply(key, value)
        assert encoded(decode_status(key, value)) == (key, value)
        topics |= set(statuses.topics(NAME))
        status_now = statuses.connector(NAME)
        states.add((status_now.state, status_now.version) if status_now else None)
    assert statuses.unreadable.count == 0
    assert states >= {("RUNNING", "4.1.2"), ("PAUSED", "4.1.2"), ("STOPPED", "4.1.2")}, states
    assert topics == {out}
    await store.read_to_end()
    assert store.connector_offsets(NAME) == [({"filename": str(lines)}, {"position": len("old 1\nold 2\nnew 1\n")})]
    for *_, key, _value in (await everything(bootstrap, f"{group}-offsets")).records:
        connector, partition = decode_offset_key(key)
        assert encode_key(connector, partition) == key
    assert len(store.raw(NAME)) == 1
    await store.stop()


async def test_keys_of_several_fields_are_spelled_as_java_spells_them(
    bootstrap: str, unique: Callable[[str], str], java_connect: Callable[..., JavaConnect]
) -> None:
    """MirrorMaker's heartbeats come from a partition of two fields in a HashMap."""
    group = unique("java")
    worker = java_connect(group=group, properties={"offset.flush.interval.ms": "200", "offset.storage.partitions": "1"})
    aliases = {"source.cluster.alias": "east", "target.cluster.alias": "west"}
    status, body = worker.request(
        "POST",
        "/connectors",
        {
            "name": "beat",
            "config": {
                "connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
                "name": "beat",
                "source.cluster.bootstrap.servers": bootstrap,
                "target.cluster.bootstrap.servers": bootstrap,
                "emit.heartbeats.interval.seconds": "1",
                "heartbeats.topic.replication.factor": "1",
                **aliases,
            },
        },
    )
    assert status == 201, body
    store = OffsetStore(f"{group}-offsets", {"bootstrap_servers": bootstrap})
    await store.start()
    try:
        eventually(
            lambda: len(worker.request("GET", "/connectors/beat/offsets")[1].get("offsets", [])) == 1,
            "an offset is saved",
        )
        worker.stop()
        await store.read_to_end()
        ((key, _),) = store.raw("beat")
        _, partition = decode_offset_key(key)
        assert set(partition.values()) == {"east", "west"}
        for fields in (partition, dict(reversed(partition.items()))):
            assert encode_key("beat", fields) == key
    finally:
        await store.stop()
