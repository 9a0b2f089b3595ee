"""Java client properties as aiokafka arguments."""

from __future__ import annotations

import base64
import inspect
import json
import logging
from importlib.util import find_spec
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from worker.kafka import clients as kafka_clients
from worker.kafka.clients import (
    ALLOWLIST,
    POLICY,
    client_arguments,
    inherited_properties,
    override_properties,
    parse_jaas,
)
from worker.kafka.oauth import ClientCredentials

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p;\\"q";'


@pytest.mark.parametrize(
    ("kind", "client"), [("producer", AIOKafkaProducer), ("consumer", AIOKafkaConsumer), ("admin", AIOKafkaAdminClient)]
)
def test_every_argument_of_the_table_exists(kind: str, client: Any) -> None:
    arguments = client.__init__.__code__.co_varnames
    for name, (kinds, argument, _) in kafka_clients.TABLE.items():
        if kind in kinds:
            assert argument in arguments, name


def test_values_are_of_their_types() -> None:
    mapped = client_arguments(
        {
            "bootstrap.servers": "a:1, b:2",
            "acks": "-1",
            "linger.ms": " 5 ",
            "enable.idempotence": "True",
            "compression.type": "NONE",
            "security.protocol": "plaintext",
        },
        "producer",
    )
    assert mapped.arguments == {
        "bootstrap_servers": ["a:1", "b:2"],
        "acks": "all",
        "linger_ms": 5,
        "enable_idempotence": True,
        "compression_type": None,
        "security_protocol": "PLAINTEXT",
    }
    assert mapped.warnings == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger.ms", "soon"),
        ("acks", "2"),
        ("compression.type", "rar"),
        ("enable.idempotence", "yes"),
        ("security.protocol", "TLS"),
        ("bootstrap.servers", " , "),
    ],
)
def test_wrong_values_name_their_property(name: str, value: str) -> None:
    with pytest.raises(ConfigInvalid, match=name.replace(".", r"\.")):
        client_arguments({name: value}, "producer")


def test_unknown_properties_are_warned_of_and_meaningless_ones_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "worker.kafka.clients")
    mapped = client_arguments({"lingerms": "5", "send.buffer.bytes": "1", "retries": "9"}, "producer")
    assert mapped.arguments == {}
    assert mapped.warnings == ["unknown producer property lingerms: it has no effect; check its spelling"]
    assert "send.buffer.bytes has no counterpart" in caplog.text


def test_java_classes_that_would_change_what_is_written_are_warned_of() -> None:
    foreign = {"partitioner.class": "org.acme.Mine", "interceptor.classes": "org.acme.I"}
    assert len(client_arguments(foreign, "producer").warnings) == 2
    assert (
        client_arguments(
            {
                "partitioner.class": "org.apache.kafka.clients.producer.internals.DefaultPartitioner",
                "interceptor.classes": "",
            },
            "producer",
        ).warnings
        == []
    )


def test_properties_of_other_clients_are_left_out() -> None:
    assert client_arguments({"acks": "all", "group.id": "g"}, "admin").arguments == {}


def test_no_property_is_in_two_tables() -> None:
    assert not set(kafka_clients.TABLE) & kafka_clients.MEANINGLESS


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "scram-sha-512"])
def test_credentials_come_from_jaas(mechanism: str) -> None:
    mapped = client_arguments(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": PLAIN}, "producer"
    )
    assert mapped.arguments == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism.upper(),
        "sasl_plain_username": "u",
        "sasl_plain_password": 'p;"q',
    }


@pytest.mark.parametrize("jaas", [None, "Module required;", 'Module required username="u";', "nonsense"])
def test_missing_credentials_are_said_without_repeating_what_is_there(jaas: str | None) -> None:
    properties = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    if jaas is not None:
        properties["sasl.jaas.config"] = jaas
    with pytest.raises(ConfigInvalid, match=r"sasl\.jaas\.config") as caught:
        client_arguments(properties, "producer")
    assert '"u"' not in str(caught.value)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(max_size=10), max_size=4))
def test_jaas_options_survive_quoting(options: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"')

    text = " ".join(f'{name}="{quoted(value)}"' for name, value in options.items())
    assert parse_jaas(f"org.acme.Module required {text};") == ("Module", options)


def test_a_token_endpoint_needs_a_client() -> None:
    oauth = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigInvalid, match=r"needs sasl\.oauthbearer\.token\.endpoint\.url"):
        client_arguments(oauth, "producer")
    oauth["sasl.oauthbearer.token.endpoint.url"] = "https://127.0.0.1/token"
    with pytest.raises(ConfigInvalid, match=r"clientId and clientSecret in sasl\.jaas\.config"):
        client_arguments(oauth, "producer")
    for login in (
        {"sasl.jaas.config": 'x.OAuthBearerLoginModule required clientId="me" clientSecret="hidden" scope="s";'},
        {
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "hidden",
        },
    ):
        arguments = client_arguments(oauth | login, "producer").arguments
        assert isinstance(arguments["sasl_oauth_token_provider"], ClientCredentials)
    with pytest.raises(ConfigInvalid, match="http:// and https://"):
        client_arguments(oauth | {"sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}, "producer")


async def test_an_unsecured_token_names_its_subject() -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": 'x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="me";',
    }
    token = await client_arguments(properties, "admin").arguments["sasl_oauth_token_provider"].token()
    *parts, signature = token.split(".")
    header, claims = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in parts)
    assert header == {"alg": "none"}
    assert claims["sub"] == "me"
    assert claims["exp"] > claims["iat"]
    assert signature == ""


def test_kerberos_needs_its_package() -> None:
    if find_spec("gssapi") is None:
        with pytest.raises(ConfigInvalid, match="pip install gssapi"):
            client_arguments({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "admin")


def test_clients_inherit_servers_and_security_unless_they_have_their_own() -> None:
    worker = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SSL",
        "ssl.truststore.location": "/x",
        "group.id": "g",
        "ssl.client.auth": "required",  # the listeners', no client's
        "producer.linger.ms": "5",
        "producer.override.acks": "1",
    }
    assert inherited_properties(worker, "producer.") == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SSL",
        "ssl.truststore.location": "/x",
        "linger.ms": "5",
    }
    assert inherited_properties(
        {"admin.listeners": "http://:1", "admin.listeners.https.ssl.cipher.suites": "x", "admin.retries": "1"}, "admin."
    ) == {"retries": "1"}
    producer_properties = inherited_properties(
        {**worker, "producer.security.protocol": "PLAINTEXT", "producer.bootstrap.servers": "b:2"}, "producer."
    )
    assert producer_properties == {"bootstrap.servers": "b:2", "security.protocol": "PLAINTEXT", "linger.ms": "5"}


@pytest.mark.parametrize(
    ("policy", "listed", "allowed"),
    [
        ("All", "", True),
        ("None", "linger.ms", False),
        ("Principal", "", False),
        ("Allowlist", "", False),
        ("Allowlist", "acks, linger.ms", True),
        ("AllowlistConnectorClientConfigOverridePolicy", "linger.ms", True),
        ("org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy", "", True),
    ],
)
def test_override_policies(policy: str, listed: str, allowed: bool) -> None:
    config, worker = {"producer.override.linger.ms": "5", "topic": "t"}, {POLICY: policy, ALLOWLIST: listed}
    if allowed:
        assert override_properties(config, "producer.override.", worker) == {"linger.ms": "5"}
    else:
        with pytest.raises(ConfigInvalid, match=r"does not allow producer\.override\.linger\.ms to be overridden"):
            override_properties(config, "producer.override.", worker)


def test_principal_may_be_overridden_where_only_that_may() -> None:
    overrides = {"producer.override.sasl.mechanism": "PLAIN"}
    assert override_properties(overrides, "producer.override.", {POLICY: "Principal"}) == {"sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigInvalid, match=r"Invalid value org\.acme\.Mine .* All, None, Principal, Allowlist"):
        override_properties({}, "producer.override.", {POLICY: "org.acme.Mine"})


def test_new_credentials_reach_a_client_that_is_in_use() -> None:
    """The attributes that are set are those that aiokafka reads at each connection."""
    source = inspect.getsource(AIOKafkaClient._get_conn)
    for name in kafka_clients.CREDENTIALS:
        assert f"{name}=self._{name}" in source
    client = AIOKafkaClient.__new__(AIOKafkaClient)
    kafka_clients.renew(client, {"sasl_plain_password": "new", "bootstrap_servers": "x"})
    assert vars(client) == {"_sasl_plain_password": "new"}
