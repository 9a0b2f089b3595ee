"""The job's ``kafka.*`` properties for each kind of client: Spark's Java consumer, and confluent-kafka (librdkafka)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from connectors import tls
from connectors.errors import ConfigInvalid
from worker.kafka.tls import restore_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.options import Config

_PREFIX: Final = "kafka."
_PEM: Final = "PEM"
#: A private key, and what kind: "" for PKCS 8 without a password, ``ENCRYPTED``, ``RSA``, ``EC`` ...
_KEY: Final = re.compile(r"-----BEGIN (?:(\w*) )?PRIVATE KEY-----.*?-----END [ \w]*PRIVATE KEY-----", re.DOTALL)
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
#: Of the frame, not of a client.
_FRAME_OPTIONS: Final = frozenset({"kafka.group.id"})
#: Java properties that librdkafka has under the same name and with the same meaning.
_SAME: Final = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "metadata.max.age.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "connections.max.idle.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "security.protocol",
        "sasl.mechanism",
        "sasl.kerberos.service.name",
        "ssl.cipher.suites",
        "ssl.key.password",
        "client.rack",
        "client.dns.lookup",
    }
)
#: Java's names of what a producer or consumer alone has; the callers of ``build_client_config`` give those themselves.
_OF_CLIENTS: Final = (
    "acks",
    "batch.size",
    "linger.ms",
    "compression.type",
    "fetch.",
    "max.partition.fetch.bytes",
    "isolation.level",
    "max.request.size",
    "delivery.timeout.ms",
    "receive.buffer.bytes",
    "send.buffer.bytes",
)


def read_kafka_properties(config: Config) -> dict[str, str]:
    """The Java client's properties, as the job gives them."""
    return {
        name.removeprefix(_PREFIX): value
        for name, value in config.raw.items()
        if name.startswith(_PREFIX) and name not in _FRAME_OPTIONS
    }


def spark_options(config: Config) -> dict[str, str]:
    """Options of Spark's Kafka source, with the prefix ``kafka.``. Reads stores if TLS is configured: blocks for a moment.

    Raises:
        ConfigInvalid: a store can't be read, or its key can't be opened.
    """
    return {f"{_PREFIX}{name}": value for name, value in _for_java(read_kafka_properties(config)).items()}


def _for_java(java_properties: Mapping[str, str]) -> dict[str, str]:
    """Convert properties so that Java's client reads the stores as the worker and librdkafka do, which detect their types.

    Java believes the type in its properties, takes a store for its own format without one, and refuses a store's password
    together with PEM. It can't read most encrypted keys in PEM, nor any in OpenSSL's own forms: those are passed decrypted.
    """
    result = dict(java_properties)
    if not java_properties.get("security.protocol", "PLAINTEXT").upper().endswith("SSL"):
        return result
    location = java_properties.get("ssl.truststore.location")
    if java_properties.get("ssl.truststore.certificates"):
        # Of both, those that stand here count for all other clients.
        result.pop("ssl.truststore.location", None)
        _as_pem("ssl.truststore", result)
    elif location and _is_pem("ssl.truststore", location):
        _as_pem("ssl.truststore", result)
    elif location and result.get("ssl.truststore.type", "").upper() == _PEM:
        result["ssl.truststore.type"] = "PKCS12"
    location = java_properties.get("ssl.keystore.location")
    password = java_properties.get("ssl.key.password") or java_properties.get("ssl.keystore.password")
    if java_properties.get("ssl.keystore.certificate.chain") and java_properties.get("ssl.keystore.key"):
        result.pop("ssl.keystore.location", None)
        key, chain = (java_properties[f"ssl.keystore.{part}"] for part in ("key", "certificate.chain"))
        pem = f"{restore_lines(key)}\n{restore_lines(chain)}"
        result |= _key_for_java("ssl.keystore.key", pem, password)
        _as_pem("ssl.keystore", result)
    elif location and _is_pem("ssl.keystore", location):
        key_properties = _key_for_java(
            f"ssl.keystore.location={location}", Path(location).read_text("ascii", "replace"), password
        )
        if key_properties:
            del result["ssl.keystore.location"]
        result |= key_properties
        _as_pem("ssl.keystore", result)
    elif location and result.get("ssl.keystore.type", "").upper() == _PEM:
        result["ssl.keystore.type"] = "PKCS12"
    return result


def _as_pem(store: str, properties: dict[str, str]) -> None:
    """Make a store one of PEM, whose key, if there is one, has no password (any more)."""
    properties[f"{store}.type"] = _PEM
    properties.pop(f"{store}.password", None)
    if store == "ssl.keystore":
        properties.pop("ssl.key.password", None)


def _key_for_java(where: str, pem: str, password: str | None) -> dict[str, str]:
    """The properties that replace a store whose key Java can't read; none for one that it can.

    Raises:
        ConfigInvalid: the key can't be opened.
    """
    key = _KEY.search(pem)
    if key is None or not key[1]:
        return {}
    try:
        opened = serialization.load_pem_private_key(key[0].encode(), password.encode() if password else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigInvalid(
            f"kafka.{where}: the private key can't be opened: {error}; check kafka.ssl.key.password"
        ) from error
    return {
        "ssl.keystore.key": opened.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        "ssl.keystore.certificate.chain": "\n".join(_CERTIFICATE.findall(pem)),
    }


def build_client_config(config: Config, **more: Any) -> dict[str, Any]:
    """The configuration of a confluent-kafka client; ``more`` (underscores for dots) wins. Picklable.

    Raises:
        ConfigInvalid: credentials or stores can't be used by a client that is not Java; the message says how to convert them.
    """
    java_properties = read_kafka_properties(config)
    result: dict[str, Any] = {name: value for name, value in java_properties.items() if name in _SAME}
    if "request.timeout.ms" in result:
        # Of a producer's requests there, of every request here.
        result["socket.timeout.ms"] = result.pop("request.timeout.ms")
    if java_properties.get("security.protocol", "PLAINTEXT").upper().startswith("SASL"):
        result |= _build_sasl_config(java_properties)
    if java_properties.get("security.protocol", "PLAINTEXT").upper().endswith("SSL"):
        result |= _build_ssl_config(java_properties)
    return result | {name.replace("_", "."): value for name, value in more.items()}


def describe_user(config: Config) -> str:
    """Text for messages, `` of alice``: the user of the login; empty where the properties don't say (certificate, Kerberos)."""
    settings = build_client_config(config)
    name = settings.get("sasl.username") or settings.get("sasl.oauthbearer.client.id")
    return f" of {name}" if name else ""


def _build_sasl_config(java_properties: Mapping[str, str]) -> dict[str, Any]:
    from worker.kafka.clients import parse_jaas

    mechanism = java_properties.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism == "GSSAPI":
        return {}
    jaas = java_properties.get("sasl.jaas.config")
    if jaas is None:
        raise ConfigInvalid(f"kafka.sasl.mechanism {mechanism} needs kafka.sasl.jaas.config")
    module, options = parse_jaas(jaas)
    if mechanism == "OAUTHBEARER":
        settings = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": options.get("clientId"),
            "sasl.oauthbearer.client.secret": options.get("clientSecret"),
            "sasl.oauthbearer.scope": options.get("scope"),
            "sasl.oauthbearer.token.endpoint.url": java_properties.get("sasl.oauthbearer.token.endpoint.url"),
        }
        return {name: value for name, value in settings.items() if value}
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        raise ConfigInvalid(
            f"kafka.sasl.jaas.config ({module}) lacks {' and '.join(missing)} for sasl.mechanism {mechanism}"
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _build_ssl_config(java_properties: Mapping[str, str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if java_properties.get("ssl.endpoint.identification.algorithm", "https").strip() == "":
        result["ssl.endpoint.identification.algorithm"] = "none"
    if "ssl.cipher.suites" in java_properties:
        result["ssl.cipher.suites"] = java_properties["ssl.cipher.suites"].replace(",", ":")
    if java_properties.get("ssl.truststore.certificates"):
        result["ssl.ca.pem"] = restore_lines(java_properties["ssl.truststore.certificates"])
    elif location := java_properties.get("ssl.truststore.location"):
        if _is_pem("ssl.truststore", location):
            result["ssl.ca.location"] = location
        else:
            result["ssl.ca.pem"] = _open_store("ssl.truststore", location, java_properties, tls.read_certificates)
    if java_properties.get("ssl.keystore.certificate.chain"):
        result |= {
            "ssl.certificate.pem": restore_lines(java_properties["ssl.keystore.certificate.chain"]),
            "ssl.key.pem": restore_lines(java_properties.get("ssl.keystore.key", "")),
        }
    elif location := java_properties.get("ssl.keystore.location"):
        if _is_pem("ssl.keystore", location):
            result |= {"ssl.certificate.location": location, "ssl.key.location": location}
            if java_properties.get("ssl.keystore.password") and not java_properties.get("ssl.key.password"):
                result["ssl.key.password"] = java_properties["ssl.keystore.password"]
        else:
            # Opened here too: this says better than librdkafka what is wrong.
            _open_store("ssl.keystore", location, java_properties, tls.read_identity)
            result |= {
                "ssl.keystore.location": location,
                "ssl.keystore.password": java_properties.get("ssl.keystore.password", ""),
            }
    return result


def _open_store(
    store: str, location: str, java_properties: Mapping[str, str], opening: Callable[[str, str | None], Any]
) -> Any:
    try:
        return opening(location, java_properties.get(f"{store}.password"))
    except ConfigInvalid as error:
        raise ConfigInvalid(f"kafka.{store}.location: {error}") from error


def _is_pem(store: str, location: str) -> bool:
    """Whether a store is PEM; what is not must be PKCS12.

    Raises:
        ConfigInvalid: the file can't be read.
    """
    try:
        return b"-----BEGIN" in Path(location).read_bytes()
    except OSError as error:
        raise ConfigInvalid(f"Invalid value {location} for configuration kafka.{store}.location: {error}") from error


def find_unknown_properties(config: Config) -> list[str]:
    """One sentence for each ``kafka.*`` property that no Kafka client knows."""
    from worker.kafka.clients import MEANINGLESS, client_kinds

    return [
        f"kafka.{name} is no property that Kafka clients have; check its spelling"
        for name in read_kafka_properties(config)
        if not client_kinds(name)
        and name not in _SAME
        and name not in MEANINGLESS
        and not name.startswith(_OF_CLIENTS)
        and not name.startswith(("sasl.", "ssl."))
    ]
