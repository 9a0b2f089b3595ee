"""Answers of validation for configurations of Java sink connectors, and the properties that tasks get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from connectors.errors import ConfigInvalid
from worker.config.validation.answers import plugin_config, validate_config
from worker.host.job import make_job_plan
from worker.plugins.registry import PluginRegistry
from worker.protocol import HostTaskId

DEBEZIUM = "io.debezium.connector.jdbc.JdbcSinkConnector"
JSON = "org.apache.kafka.connect.json.JsonConverter"
WORKER = {"bootstrap.servers": "here:9092", "key.converter": JSON, "value.converter": JSON}
CONFIG = {
    "name": "copy",
    "connector.class": DEBEZIUM,
    "topics": "crm.shop.orders",
    "connection.url": "jdbc:postgresql://db/shop",
    "connection.username": "jobs",
    "connection.password": "correct-horse",
    "insert.mode": "upsert",
    "primary.key.mode": "record_key",
    "schema.evolution": "basic",
}


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry()


def errors(answer: dict[str, Any]) -> dict[str, list[str]]:
    return {item["value"]["name"]: item["value"]["errors"] for item in answer["configs"] if item["value"]["errors"]}


def values(answer: dict[str, Any]) -> dict[str, str]:
    return {item["value"]["name"]: item["value"]["value"] for item in answer["configs"]}


async def test_a_configuration_is_accepted_as_it_is(registry: PluginRegistry) -> None:
    answer = await validate_config(registry, CONFIG | {"connection.pool.max_size": "9"}, None, WORKER)
    assert errors(answer) == {}
    assert answer["error_count"] == 0
    assert answer["name"] == DEBEZIUM
    assert "connection.pool.max_size" in [warning["name"] for warning in answer["warnings"]]
    shown = values(answer)
    assert shown["insert.mode"] == "upsert"
    assert shown["sink.jdbc.mode"] == "split"
    assert shown["kafka.bootstrap.servers"] == "here:9092"
    assert "correct-horse" not in json.dumps(answer)


async def test_complaints_are_at_the_options_that_the_user_has_written(registry: PluginRegistry) -> None:
    wrong = {
        "connection.url": "jdbc:oracle:thin:@db",
        "flush.max.retries": "many",
        "transforms": "when",
        "transforms.when.type": "org.apache.kafka.connect.transforms.TimestampRouter",
    }
    complaints = errors(await validate_config(registry, CONFIG | wrong, None, WORKER))
    assert set(complaints) == {"connection.url", "flush.max.retries", "transforms.when.type"}
    assert "connection.url becomes sink.jdbc.url" in complaints["connection.url"][0]
    missing = errors(
        await validate_config(registry, {"name": "copy", "connector.class": DEBEZIUM, "topics": "t"}, None, WORKER)
    )
    assert "sink.jdbc.url" in missing


async def test_references_stay_references(registry: PluginRegistry) -> None:
    written = CONFIG | {"connection.url": "${file:/f:url}", "connection.password": "${file:/f:password}"}
    resolved = CONFIG | {"connection.url": "jdbc:oracle:thin:@hidden-host"}
    answer = await validate_config(registry, written, None, WORKER, resolved=resolved)
    assert "hidden-host" not in json.dumps(answer)
    assert values(answer)["sink.jdbc.url"] == "${file:/f:url}"


def test_the_options_of_the_java_class_are_listed(registry: PluginRegistry) -> None:
    options = {row["name"]: row for row in plugin_config(registry, DEBEZIUM)}
    assert {"connection.url", "primary.key.mode", "tasks.max"} <= options.keys()
    assert options["connection.password"]["type"] == "PASSWORD"
    assert {"class": DEBEZIUM, "type": "sink", "version": "0.1.0"} in registry.describe()


async def test_a_task_gets_the_jobs_options(registry: PluginRegistry) -> None:
    cls: Any = registry.configured_class(CONFIG)
    plan = await make_job_plan(HostTaskId("copy", 0), cls, CONFIG, WORKER, lambda _: None)
    assert plan.config["sink.jdbc.url"] == "jdbc:postgresql://db/shop"
    assert plan.config["source.starting.group"] == "connect-copy"
    with pytest.raises(ConfigInvalid, match=r"insert\.mode=update has no counterpart"):
        await make_job_plan(HostTaskId("copy", 0), cls, CONFIG | {"insert.mode": "update"}, WORKER, lambda _: None)
