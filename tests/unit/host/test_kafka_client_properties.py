"""Java client properties as aiokafka arguments."""
from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from worker import kafka_clients
from worker.kafka_clients import client_arguments, inherited, overrides, parse_jaas, ssl_context

if TYPE_CHECKING:
    from pathlib import Path

#: Self-signed, of no use but to be loaded.
CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIBdDCCARugAwIBAgIUZ9PD5AHQ1GiybGlJ8dj+50SVuOcwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjExMDQwMzhaGA8yMTI2MTAyODEwNDAz
OFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOcH
62cC3H6YBCyiZsNtPS3w00qPPcq+mz7Jqs503efl+qBfUf+qQnS9wz5uIm/aHutS
HzckGZ44hqdOs9jSUh+jUzBRMB0GA1UdDgQWBBTI+8UIfwrm7QoEbaeT5JIKIBWW
pzAfBgNVHSMEGDAWgBTI+8UIfwrm7QoEbaeT5JIKIBWWpzAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0cAMEQCIG8qHsU6ZFIqvoWnfovWK9kxgosX7Pe58xa8
oIOw6NusAiBXYpoBpSOwn3pAg9u+4qAWIKqnJwHSqgBHz/kuxvQDqQ==
-----END CERTIFICATE-----
"""

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p;\\"q";'


@pytest.mark.parametrize(("kind", "client"), [("producer", AIOKafkaProducer), ("consumer", AIOKafkaConsumer),
                                              ("admin", AIOKafkaAdminClient)])
def test_every_argument_of_the_table_exists(kind: str, client: Any) -> None:
    known = client.__init__.__code__.co_varnames
    for name, (kinds, argument, _) in kafka_clients.TABLE.items():
        if kind in kinds:
            assert argument in known, name


def test_values_are_of_their_types() -> None:
    mapped = client_arguments({"bootstrap.servers": "a:1, b:2", "acks": "-1", "linger.ms": " 5 ", "enable.idempotence": "True",
                               "compression.type": "NONE", "security.protocol": "plaintext"}, "producer")
    assert mapped.arguments == {"bootstrap_servers": ["a:1", "b:2"], "acks": "all", "linger_ms": 5, "enable_idempotence": True,
                                "compression_type": None, "security_protocol": "PLAINTEXT"}
    assert mapped.warnings == []


@pytest.mark.parametrize(("name", "value"), [
    ("linger.ms", "soon"), ("acks", "2"), ("compression.type", "rar"), ("enable.idempotence", "yes"),
    ("security.protocol", "TLS"), ("bootstrap.servers", " , ")])
def test_wrong_values_name_their_property(name: str, value: str) -> None:
    with pytest.raises(ConfigInvalid, match=name.replace(".", r"\.")):
        client_arguments({name: value}, "producer")


def test_unknown_properties_are_warned_of_and_meaningless_ones_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "worker.kafka_clients")
    mapped = client_arguments({"lingerms": "5", "send.buffer.bytes": "1", "retries": "9"}, "producer")
    assert mapped.arguments == {}
    assert mapped.warnings == ["unknown producer property lingerms: it has no effect; check its spelling"]
    assert "send.buffer.bytes has no counterpart" in caplog.text


def test_java_classes_that_would_change_what_is_written_are_warned_of() -> None:
    foreign = {"partitioner.class": "org.acme.Mine", "interceptor.classes": "org.acme.I"}
    assert len(client_arguments(foreign, "producer").warnings) == 2
    assert client_arguments({"partitioner.class": "org.apache.kafka.clients.producer.internals.DefaultPartitioner",
                             "interceptor.classes": ""}, "producer").warnings == []


def test_properties_of_other_clients_are_left_out() -> None:
    assert client_arguments({"acks": "all", "group.id": "g"}, "admin").arguments == {}


def test_no_property_is_in_two_tables() -> None:
    assert not set(kafka_clients.TABLE) & kafka_clients.MEANINGLESS


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "scram-sha-512"])
def test_credentials_come_from_jaas(mechanism: str) -> None:
    mapped = client_arguments({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": PLAIN},
                              "producer")
    assert mapped.arguments == {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism.upper(),
                                "sasl_plain_username": "u", "sasl_plain_password": 'p;"q'}


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


def test_pem_trust_stores_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(CERTIFICATE)
    for properties in ({"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)},
                       {"ssl.truststore.certificates": CERTIFICATE}):
        context = ssl_context(properties)
        assert any(found["subject"] == ((("commonName", "test"),),) for found in context.get_ca_certs())
        assert context.check_hostname
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert not ssl_context({"ssl.endpoint.identification.algorithm": ""}).check_hostname


def test_java_key_stores_are_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "store.jks"
    path.write_bytes(bytes.fromhex("feedfeed00000002"))
    with pytest.raises(ConfigInvalid, match=r"not a PEM file \(ssl\.keystore\.type=JKS\).*keytool.*ssl\.keystore\.type=PEM"):
        ssl_context({"ssl.keystore.location": str(path)})


def test_missing_stores_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="No such file"):
        ssl_context({"ssl.truststore.location": str(tmp_path / "nothing.pem")})


def test_clients_inherit_servers_and_security_unless_they_have_their_own() -> None:
    worker = {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.truststore.location": "/x", "group.id": "g",
              "producer.linger.ms": "5", "producer.override.acks": "1"}
    assert inherited(worker, "producer.") == {"bootstrap.servers": "a:1", "security.protocol": "SSL",
                                              "ssl.truststore.location": "/x", "linger.ms": "5"}
    own = inherited({**worker, "producer.security.protocol": "PLAINTEXT", "producer.bootstrap.servers": "b:2"}, "producer.")
    assert own == {"bootstrap.servers": "b:2", "security.protocol": "PLAINTEXT", "linger.ms": "5"}


@pytest.mark.parametrize(("policy", "allowed"), [
    ("All", True), ("None", False), ("Principal", False),
    ("org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy", True)])
def test_override_policies(policy: str, allowed: bool) -> None:
    config = {"producer.override.linger.ms": "5", "topic": "t"}
    if allowed:
        assert overrides(config, "producer.override.", policy) == {"linger.ms": "5"}
    else:
        with pytest.raises(ConfigInvalid, match=r"does not allow producer\.override\.linger\.ms to be overridden"):
            overrides(config, "producer.override.", policy)


def test_principal_may_be_overridden_where_only_that_may() -> None:
    own = {"producer.override.sasl.mechanism": "PLAIN"}
    assert overrides(own, "producer.override.", "Principal") == {"sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigInvalid, match="must be one of All, None, Principal"):
        overrides({}, "producer.override.", "Some")
