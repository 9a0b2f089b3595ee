"""Kafka Connect's records in the internal topics: exact bytes, odd names, garbage."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Skippable
from offsets import records
from offsets.records import (
    ConnectorConfig,
    ConnectorStatusRecord,
    LoggerLevelRecord,
    ReportedStatus,
    RestartRequest,
    SessionKeyRecord,
    TargetState,
    TaskConfig,
    TaskCount,
    TasksCommit,
    TaskStatusRecord,
    TopicStatus,
    TopicStatusRecord,
    decode_config,
    decode_offset_key,
    decode_status,
    java_json,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
CONFIGS = st.dictionaries(NAMES, st.text(st.characters(exclude_categories=["Cs"])), max_size=4)

# As written by Kafka Connect 4.1.2.
JAVA_CONFIG = [
    (
        b"session-key",
        b'{"key":"AQID","algorithm":"HmacSHA256","creation-timestamp":1763716800000}',
        SessionKeyRecord(b"\x01\x02\x03", "HmacSHA256", 1763716800000),
    ),
    (
        b"connector-my-file",
        b'{"properties":{"connector.class":"FileStreamSource","name":"my-file"}}',
        ConnectorConfig("my-file", {"connector.class": "FileStreamSource", "name": "my-file"}),
    ),
    (
        b"task-my-file-0",
        b'{"properties":{"task.class":"org.apache.kafka.connect.file.FileStreamSourceTask"}}',
        TaskConfig("my-file", 0, {"task.class": "org.apache.kafka.connect.file.FileStreamSourceTask"}),
    ),
    (b"commit-my-file", b'{"tasks":1}', TasksCommit("my-file", 1)),
    (b"target-state-my-file", b'{"state":"PAUSED","state.v2":"STOPPED"}', TargetState("my-file", "STOPPED")),
    (
        b"restart-connector-my-file",
        b'{"include-tasks":true,"only-failed":false}',
        RestartRequest("my-file", include_tasks=True, only_failed=False),
    ),
    (b"tasks-fencing-my-file", b'{"task-count":1}', TaskCount("my-file", 1)),
    (b"logger-cluster-org.apache.kafka", b'{"level":"DEBUG"}', LoggerLevelRecord("org.apache.kafka", "DEBUG")),
]


@pytest.mark.parametrize(("key", "value", "meaning"), JAVA_CONFIG)
def test_config_record_reads_as_what_connect_means(key: bytes, value: bytes, meaning: object) -> None:
    assert decode_config(key, value) == meaning


def test_config_records_are_written_byte_for_byte_as_connect_writes_them() -> None:
    written = [
        records.session_key_record(SessionKeyRecord(b"\x01\x02\x03", "HmacSHA256", 1763716800000)),
        records.connector_record("my-file", {"connector.class": "FileStreamSource", "name": "my-file"}),
        records.task_record("my-file", 0, {"task.class": "org.apache.kafka.connect.file.FileStreamSourceTask"}),
        records.commit_record("my-file", 1),
        records.target_state_record("my-file", "STOPPED"),
        records.restart_record(RestartRequest("my-file", include_tasks=True, only_failed=False)),
        records.task_count_record("my-file", 1),
        records.logger_record("org.apache.kafka", "DEBUG"),
    ]
    assert written == [(key, value) for key, value, _ in JAVA_CONFIG]


def test_deletions_are_tombstones() -> None:
    assert records.connector_record("x", None) == (b"connector-x", None)
    assert records.target_state_record("x", None) == (b"target-state-x", None)
    assert decode_config(b"connector-x", None) == ConnectorConfig("x", None)
    assert decode_config(b"target-state-x", None) == TargetState("x", None)


def test_status_records_have_connects_field_order_and_nulls() -> None:
    key, value = records.task_status_record("a", 3, ReportedStatus("FAILED", "h:8083", 7, "boom", "4.1.2"))
    assert (key, value) == (
        b"status-task-a-3",
        b'{"state":"FAILED","trace":"boom","worker_id":"h:8083","generation":7,"version":"4.1.2"}',
    )
    _, plain = records.connector_status_record("a", ReportedStatus("RUNNING", "h:8083", 7))
    assert plain == b'{"state":"RUNNING","trace":null,"worker_id":"h:8083","generation":7,"version":null}'
    assert records.connector_status_record("a", ReportedStatus("DESTROYED", "h:8083", 7)) == (
        b"status-connector-a",
        None,
    )
    key, value = records.topic_status_record("c", "t", TopicStatus("t", "c", 0, 1763716800123))
    assert (key, value) == (
        b"status-topic-t:connector-c",
        b'{"topic":{"name":"t","connector":"c","task":0,"discoverTimestamp":1763716800123}}',
    )


def test_status_of_an_older_connect_without_version_is_read() -> None:
    record = decode_status(b"status-connector-a", b'{"state":"RUNNING","trace":null,"worker_id":"w","generation":1}')
    assert record == ConnectorStatusRecord("a", ReportedStatus("RUNNING", "w", 1))


def test_target_state_of_an_older_connect_is_read() -> None:
    assert decode_config(b"target-state-a", b'{"state":"PAUSED"}') == TargetState("a", "PAUSED")
    assert decode_config(b"target-state-a", b'{"state":"PAUSED","state.v2":17}') == TargetState("a", "PAUSED")


@given(NAMES, st.integers(0, 10**9 - 1), CONFIGS)
def test_any_name_survives_a_config_round_trip(name: str, task: int, config: dict[str, str]) -> None:
    assert decode_config(*records.connector_record(name, config)) == ConnectorConfig(name, config)
    assert decode_config(*records.task_record(name, task, config)) == TaskConfig(name, task, config)
    assert decode_config(*records.commit_record(name, task)) == TasksCommit(name, task)
    assert decode_config(*records.target_state_record(name, "STOPPED")) == TargetState(name, "STOPPED")
    assert decode_config(*records.task_count_record(name, task)) == TaskCount(name, task)
    assert decode_config(*records.logger_record(name, "INFO")) == LoggerLevelRecord(name, "INFO")


@given(NAMES, st.integers(0, 10**6), st.text("abcXYZ09._-", min_size=1))
def test_any_name_survives_a_status_round_trip(name: str, task: int, topic: str) -> None:
    status = ReportedStatus("RUNNING", "w", 3, None, "1")
    assert decode_status(*records.task_status_record(name, task, status)) == TaskStatusRecord(name, task, status)
    assert decode_status(*records.connector_status_record(name, None)) == ConnectorStatusRecord(name, None)
    active = TopicStatus(topic, name, task, 5)
    assert decode_status(*records.topic_status_record(name, topic, active)) == TopicStatusRecord(name, topic, active)


@given(
    st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([key for key, _, _ in JAVA_CONFIG])),
    st.one_of(
        st.none(),
        st.binary(max_size=40),
        st.sampled_from(
            [
                b"[]",
                b"1",
                b"null",
                b'{"properties":[]}',
                b'{"tasks":true}',
                b'{"tasks":1.0}',
                b'{"state":1}',
                b'{"key":"!"}',
            ]
        ),
    ),
)
def test_garbage_is_refused_and_nothing_else_is_raised(key: bytes | None, value: bytes | None) -> None:
    for decode in (decode_config, decode_status):
        with contextlib.suppress(Skippable):
            decode(key, value)


@pytest.mark.parametrize("key", [b"", b"nonsense", b"task-x", b"task-x-", b"task-x-1a", b"task-x-+1", b"\xff\xfe"])
def test_unknown_keys_are_refused(key: bytes) -> None:
    with pytest.raises(Skippable):
        decode_config(key, b'{"properties":{}}')


def test_configuration_values_become_strings_and_nulls_are_left_out() -> None:
    record = decode_config(b"connector-x", b'{"properties":{"a":1,"b":true,"c":null,"d":"x"}}')
    assert record == ConnectorConfig("x", {"a": "1", "b": "true", "d": "x"})
    with pytest.raises(Skippable, match="'a' is not a string"):
        decode_config(b"connector-x", b'{"properties":{"a":{}}}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[0m", b'"\\u001B[0m"'),
        ("\n\r\t\b\f\x00\x7f", b'"\\n\\r\\t\\b\\f\\u0000\x7f"'),
        ("\\u001b \\\x1f", b'"\\\\u001b \\\\\\u001F"'),
        ('"/é😀', '"\\"/é😀"'.encode()),
    ],
)
def test_json_is_escaped_as_jackson_does(text: str, expected: bytes) -> None:
    assert java_json(text) == expected


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_text_reads_back(text: str) -> None:
    assert json.loads(java_json(text)) == text


def test_what_json_cannot_hold_is_refused_with_the_value() -> None:
    with pytest.raises(Skippable, match="18446744073709551616"):
        java_json({"a": 1 << 64})


def test_a_session_keys_secret_is_not_shown() -> None:
    assert "secret" not in repr(SessionKeyRecord(b"secret", "HmacSHA256", 1))


@pytest.mark.parametrize("key", [None, b"x", b"[]", b'["a"]', b'["a",{},1]', b"[1,{}]", b'["a",null]', b'{"a":1}'])
def test_malformed_offset_keys_are_refused(key: bytes | None) -> None:
    with pytest.raises(Skippable):
        decode_offset_key(key)


def test_an_offset_key_gives_connector_and_partition() -> None:
    assert decode_offset_key(b'["a",{"filename":"/x"}]') == ("a", {"filename": "/x"})
