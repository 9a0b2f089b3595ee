"""Validation beyond what Kafka Connect does: the connector's own check, secrets, policies, topic creation."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.errors import ConfigInvalid
from connectors.options import ConfigType
from worker.config.source_config import SOURCE_CONFIG
from worker.config.validation.answers import plugin_config, validate_config
from worker.config.validation.forms import text_of
from worker.plugins import PluginRegistry
from worker.rest.checks import add_null_errors, check_no_nulls, check_type, missing_type
from worker.rest.facade import RestError

from .sample_plugins import SampleSourceConnector

JSON = "org.apache.kafka.connect.json.JsonConverter"
WORKER = {"key.converter": JSON, "value.converter": "StringConverter"}
SLOW = "The connector's own check took longer than 0.05 s: is the source it reads from reachable from this worker?"
CONFIG = {"name": "x", "connector.class": "SampleSource"}


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry(f"{SampleSourceConnector.__module__}:SampleSourceConnector")


async def ask(
    registry: PluginRegistry,
    worker: dict[str, str] | None = None,
    deadline_s: float = 5,
    resolved: dict[str, str] | None = None,
    **change: str,
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The answer, and its values by name."""
    config = CONFIG | {name.replace("__", "."): value for name, value in change.items()}
    infos = await validate_config(
        registry, config, None, WORKER | (worker or {}), resolved=resolved, deadline_s=deadline_s
    )
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
        JSON,
        "org.apache.kafka.connect.storage.StringConverter",
    )
    assert values["header.converter"]["value"] == "org.apache.kafka.connect.storage.SimpleHeaderConverter"


@pytest.mark.parametrize(
    ("behaviour", "where", "text"),
    [
        ("problem", "url", "nobody answers there"),
        ("crash", "connector.class", "The connector's own check failed with RuntimeError: no such table"),
        ("refuse", "connector.class", "the server is not one of ours"),
        ("hang", "connector.class", SLOW),
    ],
)
async def test_what_the_connector_itself_finds(registry: PluginRegistry, behaviour: str, where: str, text: str) -> None:
    infos, values = await ask(registry, behaviour=behaviour, deadline_s=0.05)
    assert values[where]["errors"] == [text]
    assert infos["error_count"] == 1


@pytest.mark.parametrize(
    ("mistyped", "option"), [("iteems", "items"), ("task.max", "tasks.max"), ("error.tolerance", "errors.tolerance")]
)
async def test_a_mistyped_option_is_a_warning_that_names_the_right_one(
    registry: PluginRegistry, mistyped: str, option: str
) -> None:
    """It would be left alone in silence, and the option have its default."""
    change: dict[str, Any] = {mistyped: "1"}
    infos, _ = await ask(registry, **change)
    assert infos["error_count"] == 0
    message = f"{mistyped} is no option of this connector and has no effect; did you mean {option}?"
    assert infos["warnings"] == [{"name": mistyped, "message": message}]


async def test_what_looks_like_no_option_is_left_alone(registry: PluginRegistry) -> None:
    """As in Kafka Connect: a connector may read what it does not declare, such as what belongs to one of its options."""
    infos, _ = await ask(registry, colour="red", items__first="1")
    assert "warnings" not in infos


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
    options: dict[str, Any] = {"url": "${file:/s:url}", "behaviour": "${file:/s:b}"}
    actual = {**CONFIG, "url": "bad", "behaviour": "hunter2"}
    infos, values = await ask(registry, resolved=actual, **options)
    assert values["url"]["value"] == "${file:/s:url}"
    assert values["url"]["errors"] == ["Invalid value ${file:/s:url} for configuration url: no host"]
    assert "hunter2" not in str(infos)
    with pytest.raises(ConfigInvalid, match="matches \\$\\{file:/s:b\\}, available") as refused:
        await ask(registry, resolved={**actual, "connector.class": "hunter2"}, connector__class="${file:/s:b}")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "actual"),
    [
        ("exactly.once.support", "hunter2\n"),  # a file's whole content, as Kubernetes mounts secrets
        ("behaviour", " hunter2"),
        ("connector.plugin.version", "hunter2\n"),
        ("value.converter", "hunter2\n"),
        ("millrace.labels", "zone=a,hunter2"),
    ],
)
async def test_a_message_does_not_quote_a_value_in_another_form_either(
    registry: PluginRegistry, option: str, actual: str
) -> None:
    options: dict[str, Any] = {option: "${file:/s:x}"}
    infos, values = await ask(registry, resolved={**CONFIG, option: actual}, **options)
    assert "${file:/s:x}" in values[option]["errors"][0]
    assert "hunter2" not in str(infos)


async def test_a_warning_does_not_quote_it_either(registry: PluginRegistry) -> None:
    options: dict[str, Any] = {"url": "${file:/s:url}", "behaviour": "warn"}
    infos, _ = await ask(registry, resolved={**CONFIG, **options, "url": "http://hunter2"}, **options)
    assert infos["warnings"] == [{"name": "url", "message": "${file:/s:url} answers slowly"}]


@pytest.mark.parametrize(
    ("alias", "option"),
    [
        ("old.url", "url"),
        (
            "value.converter.schema.registry.basic.auth.credentials.source",
            "value.converter.basic.auth.credentials.source",
        ),
    ],
)
async def test_another_name_of_an_option_does_not_show_it_either(
    registry: PluginRegistry, alias: str, option: str
) -> None:
    options: dict[str, Any] = {"value.converter": "io.confluent.connect.avro.AvroConverter", alias: "${file:/s:x}"}
    infos, values = await ask(registry, resolved={**CONFIG, **options, alias: "http://hunter2"}, **options)
    assert values[option]["value"] == "${file:/s:x}"
    assert "hunter2" not in str(infos)


@pytest.mark.parametrize("option", ["transforms", "predicates", "topic.creation.groups"])
async def test_names_of_options_do_not_show_it_either(registry: PluginRegistry, option: str) -> None:
    """Whoever may validate could read any value as the name of a transform."""
    options: dict[str, Any] = {option.replace(".", "__"): "${file:/s:x},plain"}
    infos, values = await ask(registry, resolved={**CONFIG, option: " hunter2 ,plain"}, **options)
    assert values[option]["value"] == "${file:/s:x},plain"
    assert "hunter2" not in str(infos)
    prefix = option.removesuffix(".groups")
    assert any(name.startswith(f"{prefix}.${{file:/s:x}},plain.") for name in values)
    assert any(name.startswith(f"{prefix}.plain.") for name in values)


async def test_a_secret_that_is_still_a_reference_is_refused(registry: PluginRegistry) -> None:
    """Its text would be the password, or the salt, and whoever knows the path knows that."""
    reference = "${file:/s:password}"
    _, values = await ask(registry, resolved={**CONFIG, "password": reference}, password=reference)
    (error,) = values["password"]["errors"]
    assert error.startswith(f"{reference} in the option password has no value: check the provider's name")
    _, values = await ask(registry, resolved={**CONFIG, "password": "hunter2"}, password=reference)
    assert values["password"]["errors"] == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("verify.interval.ms", "60000"),
        ("verify.tables", "shop"),
        ("verify.rows.per.second", "5"),
        ("verify.repair", "true"),
        ("millrace.node", "cass-1"),
        ("millrace.labels", "zone=a"),
    ],
)
async def test_options_that_the_leader_reads_are_refused_as_references(
    registry: PluginRegistry, option: str, value: str
) -> None:
    """It has the configuration as it is written: nothing would be verified or repaired, and no worker run the tasks."""
    config = {**CONFIG, option: "${file:/s:x}"}
    infos = await validate_config(registry, config, None, WORKER, resolved={**CONFIG, option: value}, deadline_s=5)
    errors = {item["value"]["name"]: item["value"]["errors"] for item in infos["configs"]}
    (error,) = errors[option]
    action = "plans verifications" if option.startswith("verify.") else "places tasks"
    assert error.startswith(f"{option} can't be a reference to a config provider: the leader {action} by the")
    infos = await validate_config(registry, {**CONFIG, option: value}, None, WORKER, resolved=None, deadline_s=5)
    assert {item["value"]["name"]: item["value"]["errors"] for item in infos["configs"]}[option] == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("producer.override.sasl.jaas.config", 'PlainLoginModule required username="u" password="${nosuch:x}";'),
        ("producer.override.ssl.key.password", "${nosuch:x}"),
        ("value.converter.basic.auth.user.info", "${nosuch:x}"),
        ("value.converter.schema.registry.ssl.keystore.password", "${nosuch:x}"),
    ],
)
async def test_a_secret_for_a_client_that_is_still_a_reference_is_refused(
    registry: PluginRegistry, option: str, value: str
) -> None:
    avro = {"value.converter": "AvroConverter", "value.converter.schema.registry.url": "http://127.0.0.1:9"}
    config = {**CONFIG, **avro, option: value}
    infos = await validate_config(registry, config, None, WORKER, resolved=config, deadline_s=5)
    values = {item["value"]["name"]: item["value"] for item in infos["configs"]}
    errors = [error for error in values[option]["errors"] if "has no value" in error]
    assert errors == [
        f"${{nosuch:x}} in the option {option} has no value: check the provider's name (config.providers), the path and the key"
    ]
    assert infos["error_count"] == sum(len(entry["errors"]) for entry in values.values())


@pytest.mark.parametrize(
    ("policy", "name", "allowed"),
    [
        ("All", "linger.ms", True),
        ("None", "linger.ms", False),
        ("Principal", "linger.ms", False),
        ("Principal", "sasl.mechanism", True),
        ("org.apache.kafka.connect.connector.policy.NoneConnectorClientConfigOverridePolicy", "linger.ms", False),
    ],
)
async def test_override_policies(registry: PluginRegistry, policy: str, name: str, allowed: bool) -> None:
    option = f"producer.override.{name}"
    value = {"linger.ms": "5", "sasl.mechanism": "PLAIN"}[name]
    options: dict[str, Any] = {option.replace(".", "__"): value}
    _, values = await ask(registry, {"connector.client.config.override.policy": policy}, **options)
    assert bool(values[option]["errors"]) is not allowed


async def test_the_policy_allowlist_names_what_it_refuses(registry: PluginRegistry) -> None:
    worker = {
        "connector.client.config.override.policy": "Allowlist",
        "exactly.once.source.support": "enabled",
        "connector.client.config.override.allowlist": "linger.ms, client.id",
    }
    options: dict[str, Any] = {
        "producer.override.linger.ms": " 5 ",
        "admin.override.client.id": "a",
        "producer.override.acks": "maybe",
        "consumer.override.nosuch": "1",
    }
    body, values = await ask(registry, worker, **options)
    assert body["error_count"] == 2
    assert values["producer.override.linger.ms"]["value"] == "5"
    for name in ("linger.ms", "client.id"):
        assert all(info["errors"] == [] for option, info in values.items() if option.endswith(f".override.{name}"))
    for option in ("producer.override.acks", "consumer.override.nosuch"):
        name = option.partition(".override.")[2]
        assert values[option]["errors"] == [
            f"The 'Allowlist' policy does not allow '{name}' to be overridden in the connector configuration."
        ]


async def test_a_version_that_is_no_range_is_refused_without_what_a_reference_stands_for(
    registry: PluginRegistry,
) -> None:
    options: dict[str, Any] = {"connector.plugin.version": "${file:/s:version}"}
    with pytest.raises(ConfigInvalid) as caught:
        await ask(registry, resolved={**CONFIG, "connector.plugin.version": "[1,2],(hunter2)"}, **options)
    assert str(caught.value) == "Single version must be surrounded by []: ${file:/s:version}"


_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({"sasl.jaas.config": _JAAS}, None),
        (
            {},
            (
                "producer.override.sasl.mechanism",
                "sasl.mechanism PLAIN needs sasl.jaas.config with a username and a password",
            ),
        ),
        (
            {"sasl.jaas.config": "nonsense"},
            ("producer.override.sasl.jaas.config", "Invalid value [hidden] for configuration"),
        ),
        (
            {"sasl.jaas.config": _JAAS, "acks": "1", "enable.idempotence": "true"},
            ("producer.override.acks", "Must set acks to all in order to use the idempotent producer"),
        ),
    ],
)
async def test_client_properties_are_checked_together(
    registry: PluginRegistry, more: dict[str, str], wrong: tuple[str, str] | None
) -> None:
    """A login needs several of them; none is wrong because the others are somewhere else."""
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **more}
    options: dict[str, Any] = {f"producer.override.{name}": value for name, value in properties.items()}
    body, values = await ask(registry, **options)
    errors = {option: info["errors"] for option, info in values.items() if info["errors"]}
    assert body["error_count"] == len(errors)
    if wrong is None:
        assert errors == {}
    else:
        assert list(errors) == [wrong[0]]
        assert errors[wrong[0]][0].startswith(wrong[1])


async def test_what_the_worker_itself_has_wrong_is_no_error_of_a_connector(registry: PluginRegistry) -> None:
    worker = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    _, values = await ask(registry, worker, producer__override__linger__ms="5")
    assert values["producer.override.linger.ms"]["errors"] == []


@pytest.mark.parametrize(
    ("worker", "url", "errors"),
    [
        ("enabled", "there", []),
        ("disabled", "there", ["This worker does not have exactly-once source support enabled."]),
        ("enabled", "", ["The connector does not support exactly-once semantics with the provided configuration."]),
        ("enabled", "crash", ["An unexpected error occurred during validation: can't tell"]),
    ],
)
async def test_exactly_once(registry: PluginRegistry, worker: str, url: str, errors: list[str]) -> None:
    _, values = await ask(registry, {"exactly.once.source.support": worker}, url=url, exactly__once__support="required")
    assert values["exactly.once.support"]["errors"] == errors


async def test_transaction_boundaries(registry: PluginRegistry) -> None:
    _, values = await ask(registry, transaction__boundary="connector")
    assert values["transaction.boundary"]["errors"][0].startswith("The connector does not support connector-defined")
    _, values = await ask(registry, transaction__boundary="connector", url="there")
    assert values["transaction.boundary"]["errors"] == []


async def test_topic_creation(registry: PluginRegistry) -> None:
    groups: dict[str, Any] = {
        "topic__creation__groups": "g",
        "topic__creation__g__partitions": "0",
        "topic__creation__default__partitions": "1",
    }
    infos, values = await ask(registry, **groups)
    assert values["topic.creation.g.partitions"]["errors"][0].startswith("Invalid value 0 for configuration")
    assert values["topic.creation.default.replication.factor"]["errors"][0].startswith("Missing required configuration")
    assert "Topic Creation: g" in infos["groups"]
    _, values = await ask(registry, {"topic.creation.enable": "false"}, **groups)
    assert "topic.creation.g.partitions" not in values


async def test_transforms(registry: PluginRegistry) -> None:
    infos, values = await ask(
        registry,
        transforms="a,b",
        transforms__a__type="RegexRouter",
        transforms__a__regex=".*",
        transforms__a__replacement="x",
        transforms__b__type="nope",
    )
    assert values["transforms.a.type"]["value"] == "org.apache.kafka.connect.transforms.RegexRouter"
    assert values["transforms.b.type"]["value"] is None
    assert infos["groups"][-3:] == ["Transforms: a", "Transforms: b", "Sample"]


async def _ask_with(
    registry: PluginRegistry,
    converter: str,
    options: dict[str, str],
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    prefixed: dict[str, Any] = {f"value.converter.{name}": value for name, value in options.items()}
    return await ask(registry, value__converter=f"{converter}Converter", **prefixed)


_REGISTRY = {"schema.registry.url": "http://registry:8081"}
_AVRO_DATA = {"data.serializer.type": "avro", "avro.schema.registry.url": "http://registry:8081"}


@pytest.mark.parametrize(
    ("converter", "options", "where", "text"),
    [
        ("Avro", {}, "schema.registry.url", "Missing required configuration"),
        ("Avro", {"schema.registry.url": ""}, "schema.registry.url", "Missing required configuration"),
        *(
            (
                "Avro",
                {"schema.registry.url": url},
                "schema.registry.url",
                "Invalid value for configuration schema.registry.url",
            )
            for url in (
                "registry:8081",
                "ftp://registry",
                "http://[::1",
                "http://registry:99999",
                "http://registry,other",
            )
        ),
        (
            "Avro",
            {**_REGISTRY, "basic.auth.user.inf0": "u:p"},
            "basic.auth.user.inf0",
            (
                "value.converter: Unknown configuration basic.auth.user.inf0: this converter has no such option. Did you mean "
                "basic.auth.user.info?"
            ),
        ),
        (
            "JsonSchema",
            {**_REGISTRY, "rule.executors": "x"},
            "rule.executors",
            "value.converter: Unknown configuration",
        ),
        (
            "Protobuf",
            {**_REGISTRY, "json.fail.invalid.schema": "x"},
            "json.fail.invalid.schema",
            "value.converter: Unknown",
        ),
        (
            "Avro",
            {**_REGISTRY, "value.subject.name.strategy": "Nope"},
            "value.subject.name.strategy",
            "Invalid value Nope",
        ),
        (
            "Avro",
            {**_REGISTRY, "basic.auth.credentials.source": "USER_INFO"},
            "basic.auth.user.info",
            "value.converter: Invalid value [hidden] for",
        ),
        (
            "Avro",
            {**_REGISTRY, "basic.auth.credentials.source": "SASL_INHERIT"},
            "sasl.jaas.config",
            "value.converter: basic.auth",
        ),
        (
            "Avro",
            {**_REGISTRY, "bearer.auth.credentials.source": "OAUTHBEARER"},
            "bearer.auth.issuer.endpoint.url",
            "value.converter: bearer.auth.credentials.source=OAUTHBEARER needs",
        ),
        (
            "Avro",
            {**_REGISTRY, "bearer.auth.issuer.endpoint.url": "login"},
            "bearer.auth.issuer.endpoint.url",
            "Invalid value for",
        ),
        ("Avro", {**_REGISTRY, "proxy.host": "proxy"}, "proxy.port", "value.converter: proxy.host needs proxy.port"),
        (
            "Avro",
            {**_REGISTRY, "schema.registry.ssl.truststore.location": "/nope"},
            "schema.registry.ssl.truststore.location",
            "value.converter: schema.registry.ssl.truststore.location: it can't be used",
        ),
        ("CloudEvents", {"serializer.type": "avro"}, "data.serializer.type", "value.converter: Cannot use"),
        ("CloudEvents", {"data.serializer.type": "avro"}, "avro.schema.registry.url", "value.converter: Need URL(s)"),
        ("CloudEvents", {**_AVRO_DATA, "avro.foo": "1"}, "avro.foo", "value.converter: Unknown configuration foo"),
        (
            "CloudEvents",
            {**_AVRO_DATA, "metadata.source": "header"},
            "metadata.source",
            "value.converter: metadata.source",
        ),
        (
            "CloudEvents",
            {"json.schemas.enable": "maybe"},
            "json.schemas.enable",
            "value.converter: Invalid value maybe",
        ),
    ],
)
async def test_options_of_converters_with_a_registry(
    registry: PluginRegistry, converter: str, options: dict[str, str], where: str, text: str
) -> None:
    infos, values = await _ask_with(registry, converter, options)
    wrong = {name: value["errors"] for name, value in values.items() if value["errors"]}
    assert list(wrong) == [f"value.converter.{where}"]
    (error,) = wrong[f"value.converter.{where}"]
    assert error.startswith(text)
    assert "u:p" not in str(infos)


@pytest.mark.parametrize(
    "options",
    [
        _REGISTRY,
        {"schema.registry.url": "http://u:p@a:8081,https://b/x", "request.header.X-A": "b", "latest.cache.size": "5"},
        {**_REGISTRY, "schema.registry.basic.auth.user.info": "u:p", "basic.auth.credentials.source": "USER_INFO"},
    ],
)
async def test_no_registry_is_asked_when_a_configuration_is_checked(
    registry: PluginRegistry, options: dict[str, str]
) -> None:
    infos, _ = await _ask_with(registry, "Avro", options)
    assert infos["error_count"] == 0


async def test_unknown_and_missing_classes(registry: PluginRegistry) -> None:
    with pytest.raises(
        ConfigInvalid, match="Failed to find any class that implements Connector and which name matches Nope"
    ):
        await validate_config(registry, {"connector.class": "Nope"}, "Nope", WORKER)
    with pytest.raises(ConfigInvalid, match="contains no connector type"):
        await validate_config(registry, {"name": "x"}, None, WORKER)


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
    assert missing_type({"name": None}) == "Connector config {name=null} contains no connector type"
    with pytest.raises(RestError, match=r"Connector config \{name=a, x=\[hidden\]\} contains no connector type"):
        check_type({"name": "a", "x": "secret"})
    assert check_no_nulls({"a": "b"}) == {"a": "b"}
    with pytest.raises(RestError, match="contains the following 1 error"):
        check_no_nulls({"a": None})


def test_nulls() -> None:
    missing = 'Missing required configuration "topic" which has no default value.'
    infos = {
        "error_count": 2,
        "configs": [
            {"definition": {}, "value": {"name": "topic", "value": None, "errors": [missing]}},
            {"definition": {}, "value": {"name": "other", "value": "1", "errors": ["bad"]}},
        ],
    }
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
