"""From properties to what a task's run uses; limits of connectors."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.errors import ConfigInvalid, Fatal
from connectors.mysql.connector import MySqlConnector
from worker.host.connector_runner import as_text, limit_tasks, restore_references, task_class_name
from worker.host.delivery.producer_errors import classify_error, refusal_hint
from worker.host.delivery.routes import DEFAULT_BATCH_SIZE
from worker.host.plan import converter_config, exactly_once, producer_settings
from worker.host.task_metrics import Metrics

WORKER = {"bootstrap.servers": "a:1", "group.id": "g"}


def test_producers_are_idempotent_and_bounded_by_default() -> None:
    settings, warnings = producer_settings(WORKER, {}, "client")
    assert settings.arguments == {"bootstrap_servers": ["a:1"], "client_id": "client"}
    assert (settings.max_rows, settings.max_bytes, settings.stall_s) == (20_000, 32 * 1024 * 1024, 60.0)
    assert (settings.batch_size, settings.linger_s, settings.transactional) == (DEFAULT_BATCH_SIZE, 0.0, False)
    assert warnings == []


def test_the_connector_overrides_the_worker() -> None:
    worker = {**WORKER, "producer.linger.ms": "5", "producer.batch.size": "1000", "task.max.outstanding.records": "7"}
    settings, warnings = producer_settings(
        worker,
        {"producer.override.linger.ms": "20", "producer.override.buffer.memory": "5000", "producer.override.oops": "1"},
        "client",
    )
    assert (settings.linger_s, settings.batch_size, settings.max_rows, settings.max_bytes) == (0.02, 1000, 7, 5000)
    assert warnings == ["unknown producer property oops: it has no effect; check its spelling"]


def test_batches_are_never_larger_than_requests() -> None:
    settings, _ = producer_settings({**WORKER, "producer.max.request.size": "1000"}, {}, "client")
    assert settings.batch_size == 1000


def test_transactional_producers_can_not_be_made_less() -> None:
    settings, _ = producer_settings(
        {**WORKER, "producer.acks": "1"},
        {"producer.override.enable.idempotence": "false", "producer.override.transactional.id": "mine"},
        "client",
        transactional_id="g-c-0",
        transaction_timeout_ms=90_000,
    )
    assert settings.transactional
    assert settings.arguments["transactional_id"] == "g-c-0"
    assert (settings.arguments["acks"], settings.arguments["enable_idempotence"]) == ("all", True)
    assert settings.arguments["transaction_timeout_ms"] == 90_000


def test_fewer_acks_switch_idempotence_off_or_contradict_it() -> None:
    settings, _ = producer_settings({**WORKER, "producer.acks": "1"}, {}, "client")
    assert settings.arguments["enable_idempotence"] is False
    with pytest.raises(ConfigInvalid, match="Must set acks to all"):
        producer_settings({**WORKER, "producer.acks": "1", "producer.enable.idempotence": "true"}, {}, "client")


def test_converters_come_with_the_options_beside_their_class() -> None:
    worker = {"value.converter": "W", "value.converter.schemas.enable": "false"}
    assert converter_config({}, worker, "value.converter") == ("W", {"schemas.enable": "false"})
    assert converter_config({"value.converter": "C", "value.converter.x": "1"}, worker, "value.converter") == (
        "C",
        {"x": "1"},
    )
    assert converter_config({}, worker, "header.converter")[0].endswith("SimpleHeaderConverter")
    with pytest.raises(ConfigInvalid, match=r'Missing required configuration "key\.converter"'):
        converter_config({}, worker, "key.converter")


@pytest.mark.parametrize(
    ("value", "expected"), [("enabled", True), (" Enabled ", True), ("preparing", False), (None, False)]
)
def test_exactly_once_is_on_only_when_enabled(value: str | None, expected: bool) -> None:
    assert exactly_once({} if value is None else {"exactly.once.source.support": value}) is expected


def test_metrics_must_be_declared() -> None:
    metrics = Metrics({"lag": ("gauge", "x"), "seen": ("counter", "y")}, max_series=10)
    metrics.set("lag", 3)
    metrics.set("lag", 4)
    metrics.add("seen")
    metrics.add("seen", 2, {"table": "t"})
    metrics.add("seen", 2, {"table": "t"})
    assert sorted((item.name, item.kind, item.value, tuple(item.labels.items())) for item in metrics.report()) == [
        ("lag", "gauge", 4, ()),
        ("seen", "counter", 1.0, ()),
        ("seen", "counter", 4.0, (("table", "t"),)),
    ]
    with pytest.raises(ValueError, match="'other' is not declared"):
        metrics.set("other", 1)


def test_hosts_are_folded_before_tables() -> None:
    metrics = Metrics({"rows": ("counter", "x")}, max_series=2)
    for number in range(6):
        for table in ("a", "b"):
            metrics.add("rows", 1, {"table": table, "host": f"h{number}"})
    for number in range(6):
        metrics.add("rows", 1, {"table": f"t{number}", "host": "h0"})
    assert {(item.labels["table"], item.labels["host"]): item.value for item in metrics.report()} == {
        ("a", "h0"): 1,
        ("b", "h0"): 1,
        ("a", "other"): 5,
        ("b", "other"): 5,
        ("other", "other"): 6,
    }
    assert metrics.folded == 16


def test_tasks_max_is_enforced_unless_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    configs: list[dict[str, str]] = [{}, {}, {}]
    assert limit_tasks("c", configs, {"tasks.max": "3"}) == configs
    with pytest.raises(Fatal, match="has generated 3 tasks, which is greater than 2"):
        limit_tasks("c", configs, {"tasks.max": "2"})
    assert limit_tasks("c", configs, {"tasks.max": "2", "tasks.max.enforce": "false"}) == configs
    assert "greater than 2" in caplog.text


def test_secrets_that_a_connector_copies_become_references_again() -> None:
    original = {"password": "${file:x:y}", "user": "me", "topic": "t"}
    seen = {"password": {"hidden", "before the rotation"}}
    for value in seen["password"]:
        assert restore_references(
            {"password": value, "user": "me", "split": "1", "topic": "other"}, seen, original
        ) == {
            "password": "${file:x:y}",
            "user": "me",
            "split": "1",
            "topic": "other",
        }


def test_task_configurations_are_text() -> None:
    assert as_text({"a": "b"}) == {"a": "b"}
    with pytest.raises(ConfigInvalid, match="a is a int"):
        as_text({"a": 1})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ProducerFenced", "fenced"),
        ("InvalidProducerEpoch", "fenced"),
        ("MessageSizeTooLargeError", "split"),
        ("RecordListTooLargeError", "split"),
        ("TopicAuthorizationFailedError", "fatal"),
        ("InvalidTopicError", "fatal"),
        ("OutOfOrderSequenceNumber", "rebuild"),
        ("KafkaConnectionError", "rebuild"),
        ("NotEnoughReplicasError", "rebuild"),
        ("RequestTimedOutError", "rebuild"),
        ("UnknownTopicOrPartitionError", "rebuild"),
    ],
)
def test_failed_batches_are_classified(name: str, expected: str) -> None:
    from aiokafka import errors

    error: Any = getattr(errors, name)
    assert classify_error(error()) == expected
    assert classify_error(TimeoutError()) == "rebuild"


def test_the_refusal_of_a_record_says_what_to_do() -> None:
    from aiokafka.errors import InvalidTimestampError, MessageSizeTooLargeError, for_code

    refused = for_code(87)()
    assert classify_error(refused) == "split"
    assert "set cleanup.policy=delete for t, or heartbeat.to.tables=false" in refusal_hint(refused, "t")
    assert refusal_hint(MessageSizeTooLargeError(), "t") == ""
    assert "set t's message.timestamp.after.max.ms" in refusal_hint(InvalidTimestampError(), "t")


@pytest.mark.parametrize(
    ("connector_class", "task_class"),
    [
        ("io.debezium.connector.mariadb.MariaDbConnector", "io.debezium.connector.mariadb.MariaDbConnectorTask"),
        ("MariaDbConnector", "io.debezium.connector.mariadb.MariaDbConnectorTask"),
        ("MariaDb", "io.debezium.connector.mariadb.MariaDbConnectorTask"),
        ("io.debezium.connector.mysql.MySqlConnector", "io.debezium.connector.mysql.MySqlConnectorTask"),
        ("mysql", "io.debezium.connector.mysql.MySqlConnectorTask"),
        ("connectors.mysql.connector.MySqlConnector", "connectors.mysql.task.MySqlTask"),
    ],
)
def test_the_task_class_in_the_config_topic_belongs_to_the_class_of_the_connector(
    connector_class: str, task_class: str
) -> None:
    """A Java worker with Debezium's MariaDB plugin alone fails at a task of the MySQL plugin, until it has configured it."""
    assert task_class_name(MySqlConnector, connector_class) == task_class
