"""Validation beyond what Kafka Connect does: the connector's own check, secrets, policies, topic creation."""
from __future__ import annotations

from typing import Any

import pytest

from connectors.errors import ConfigInvalid
from connectors.options import ConfigType
from worker.plugins import PluginRegistry
from worker.rest.checks import add_null_errors, check_no_nulls, check_type, invalid_text, missing_type, refusal
from worker.rest.facade import RestError
from worker.source_config import SOURCE_CONFIG
from worker.validation import plugin_config, text_of, validate

from .sample_plugins import SampleSourceConnector

JSON = "org.apache.kafka.connect.json.JsonConverter"
WORKER = {"key.converter": JSON, "value.converter": "StringConverter"}
SLOW = "The connector's own check took longer than 0.05 s: is the source it reads from reachable from this worker?"
CONFIG = {"name": "x", "connector.class": "SampleSource"}


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry(f"{SampleSourceConnector.__module__}:SampleSourceConnector")


async def ask(registry: PluginRegistry, worker: dict[str, str] | None = None, deadline_s: float = 5,
              resolved: dict[str, str] | None = None, **change: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The answer, and its values by name."""
    config = CONFIG | {name.replace("__", "."): value for name, value in change.items()}
    infos = await validate(registry, config, None, WORKER | (worker or {}), resolved=resolved, deadline_s=deadline_s)
    values = {item["value"]["name"]: item["value"] for item in infos["configs"]}
    assert infos["error_count"] == sum(len(value["errors"]) for value in values.values())
    return infos, values


async def test_a_good_configuration(registry: PluginRegistry) -> None:
    infos, values = await ask(registry)
    assert (infos["name"], infos["error_count"]) == ("SampleSource", 0)
    assert infos["groups"][-1] == "Sample"
    assert values["items"]["value"] == "a,b"
    assert values["connector.plugin.version"]["value"] == "1.2.3"
    assert (values["key.converter"]["value"], values["value.converter"]["value"]) == (
        JSON, "org.apache.kafka.connect.storage.StringConverter")
    assert values["header.converter"]["value"] == "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    assert refusal(infos) is None


@pytest.mark.parametrize(("behaviour", "where", "text"), [
    ("problem", "url", "nobody answers there"),
    ("crash", "connector.class", "The connector's own check failed with RuntimeError: no such table"),
    ("refuse", "connector.class", "the server is not one of ours"),
    ("hang", "connector.class", SLOW),
])
async def test_what_the_connector_itself_finds(registry: PluginRegistry, behaviour: str, where: str, text: str) -> None:
    infos, values = await ask(registry, behaviour=behaviour, deadline_s=0.05)
    assert values[where]["errors"] == [text]
    assert refusal(infos) == invalid_text([text])


async def test_the_connector_is_not_asked_about_what_can_not_be_parsed(registry: PluginRegistry) -> None:
    SampleSourceConnector.asked.clear()
    _, values = await ask(registry, behaviour="nonsense")
    assert len(values["behaviour"]["errors"]) == 1
    assert SampleSourceConnector.asked == []
    await ask(registry, old__url="there")
    assert SampleSourceConnector.asked[0]["url"] == "there"


async def test_secrets_are_hidden(registry: PluginRegistry) -> None:
    infos, values = await ask(registry, password="hunter2", producer__override__sasl__jaas__config="x password=hunter2")
    assert values["password"]["value"] == "[hidden]"
    assert "hunter2" not in str(infos)


async def test_references_are_shown_and_what_they_stand_for_is_not(registry: PluginRegistry) -> None:
    given: dict[str, Any] = {"url": "${file:/s:url}", "behaviour": "${file:/s:b}"}
    actual = {**CONFIG, "url": "bad", "behaviour": "hunter2"}
    infos, values = await ask(registry, resolved=actual, **given)
    assert values["url"]["value"] == "${file:/s:url}"
    assert values["url"]["errors"] == ["Invalid value ${file:/s:url} for configuration url: no host"]
    assert "hunter2" not in str(infos)


@pytest.mark.parametrize(("policy", "name", "allowed"), [
    ("All", "linger.ms", True), ("None", "linger.ms", False), ("Principal", "linger.ms", False),
    ("Principal", "sasl.mechanism", True),
    ("org.apache.kafka.connect.connector.policy.NoneConnectorClientConfigOverridePolicy", "linger.ms", False)])
async def test_override_policies(registry: PluginRegistry, policy: str, name: str, allowed: bool) -> None:
    option = f"producer.override.{name}"
    value = {"linger.ms": "5", "sasl.mechanism": "PLAIN"}[name]
    given: dict[str, Any] = {option.replace(".", "__"): value}
    _, values = await ask(registry, {"connector.client.config.override.policy": policy}, **given)
    assert bool(values[option]["errors"]) is not allowed


@pytest.mark.parametrize(("worker", "url", "errors"), [
    ("enabled", "there", []),
    ("disabled", "there", ["This worker does not have exactly-once source support enabled."]),
    ("enabled", "", ["The connector does not support exactly-once semantics with the provided configuration."]),
    ("enabled", "crash", ["An unexpected error occurred during validation: can't tell"]),
])
async def test_exactly_once(registry: PluginRegistry, worker: str, url: str, errors: list[str]) -> None:
    _, values = await ask(registry, {"exactly.once.source.support": worker}, url=url, exactly__once__support="required")
    assert values["exactly.once.support"]["errors"] == errors


async def test_transaction_boundaries(registry: PluginRegistry) -> None:
    _, values = await ask(registry, transaction__boundary="connector")
    assert values["transaction.boundary"]["errors"][0].startswith("The connector does not support connector-defined")
    _, values = await ask(registry, transaction__boundary="connector", url="there")
    assert values["transaction.boundary"]["errors"] == []


async def test_topic_creation(registry: PluginRegistry) -> None:
    groups: dict[str, Any] = {"topic__creation__groups": "g", "topic__creation__g__partitions": "0",
                              "topic__creation__default__partitions": "1"}
    infos, values = await ask(registry, **groups)
    assert values["topic.creation.g.partitions"]["errors"][0].startswith("Invalid value 0 for configuration")
    assert values["topic.creation.default.replication.factor"]["errors"][0].startswith("Missing required configuration")
    assert "Topic Creation: g" in infos["groups"]
    _, values = await ask(registry, {"topic.creation.enable": "false"}, **groups)
    assert "topic.creation.g.partitions" not in values


async def test_transforms(registry: PluginRegistry) -> None:
    infos, values = await ask(registry, transforms="a,b", transforms__a__type="RegexRouter", transforms__a__regex=".*",
                              transforms__a__replacement="x", transforms__b__type="nope")
    assert values["transforms.a.type"]["value"] == "org.apache.kafka.connect.transforms.RegexRouter"
    assert values["transforms.b.type"]["value"] is None
    assert infos["groups"][-3:] == ["Transforms: a", "Transforms: b", "Sample"]


async def test_unknown_and_missing_classes(registry: PluginRegistry) -> None:
    with pytest.raises(ConfigInvalid, match="Failed to find any class that implements Connector and which name matches Nope"):
        await validate(registry, {"connector.class": "Nope"}, "Nope", WORKER)
    with pytest.raises(ConfigInvalid, match="contains no connector type"):
        await validate(registry, {"name": "x"}, None, WORKER)


def test_options_of_plugins(registry: PluginRegistry) -> None:
    options = plugin_config(registry, "SampleSource")
    assert [item["name"] for item in options[:5]] == ["behaviour", "password", "url", "items", "name"]
    assert {item["name"] for item in options} == {*SampleSourceConnector.config_def.keys, *SOURCE_CONFIG.keys}
    assert plugin_config(registry, "SampleSource", "[1,2)") == options
    with pytest.raises(LookupError, match=r"^Unknown plugin Nope\.$"):
        plugin_config(registry, "Nope")
    with pytest.raises(ConfigInvalid, match="not found that matches the version range"):
        plugin_config(registry, "SampleSource", "9")
    with pytest.raises(ConfigInvalid, match="Valid types are sink, source"):
        plugin_config(registry, "EnvVarConfigProvider")


def test_every_common_option_is_documented() -> None:
    for key in SOURCE_CONFIG.keys.values():
        assert key.doc.endswith("."), key.name
        assert key.display_name, key.name
        assert key.group, key.name
        assert key.order >= 0, key.name


def test_checks_of_the_rest_layer() -> None:
    assert missing_type({"connector.class": "x"}) is None
    with pytest.raises(RestError, match=r"Connector config \{name=a, x=\[hidden\]\} contains no connector type"):
        check_type({"name": "a", "x": "secret"})
    assert check_no_nulls({"a": "b"}) == {"a": "b"}
    with pytest.raises(RestError, match="contains the following 1 error"):
        check_no_nulls({"a": None})


def test_nulls() -> None:
    missing = 'Missing required configuration "topic" which has no default value.'
    infos = {"error_count": 2, "configs": [
        {"definition": {}, "value": {"name": "topic", "value": None, "errors": [missing]}},
        {"definition": {}, "value": {"name": "other", "value": "1", "errors": ["bad"]}}]}
    null = "Null value can not be supplied as the configuration value."
    done = add_null_errors(infos, ["topic", "other", "more"])
    assert done["error_count"] == 4
    assert [item["value"]["errors"] for item in done["configs"]] == [[null], [null], ["bad", null]]


def test_texts_of_values() -> None:
    assert text_of(None, ConfigType.STRING) is None
    assert text_of(True, ConfigType.BOOLEAN) == "true"
    assert text_of(["a", 1], ConfigType.LIST) == "a,1"
    assert text_of((), ConfigType.LIST) == ""
    assert text_of("x", ConfigType.PASSWORD) == "[hidden]"
    assert text_of(1.0, ConfigType.DOUBLE) == "1.0"
