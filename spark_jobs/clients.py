"""The job's ``kafka.*`` properties for each kind of client: Spark's Java consumer, and confluent-kafka (librdkafka)."""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config

_PREFIX: Final = "kafka."
#: Of the frame, not of a client.
_OWN: Final = frozenset({"kafka.group.id"})
#: Java properties that librdkafka has under the same name and with the same meaning.
_SAME: Final = frozenset({
    "bootstrap.servers", "client.id", "metadata.max.age.ms", "request.timeout.ms", "retry.backoff.ms", "retry.backoff.max.ms",
    "connections.max.idle.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "security.protocol", "sasl.mechanism",
    "sasl.kerberos.service.name", "ssl.cipher.suites", "ssl.key.password", "client.rack", "client.dns.lookup",
})
#: Java's names of what a producer or consumer alone has; the callers of ``confluent`` give those themselves.
_OF_CLIENTS: Final = ("acks", "batch.size", "linger.ms", "compression.type", "fetch.", "max.partition.fetch.bytes",
                      "isolation.level", "max.request.size", "delivery.timeout.ms", "receive.buffer.bytes", "send.buffer.bytes")


def properties(config: Config) -> dict[str, str]:
    """The Java client's properties, as the job gives them."""
    return {name.removeprefix(_PREFIX): value for name, value in config.raw.items()
            if name.startswith(_PREFIX) and name not in _OWN}


def spark_options(config: Config) -> dict[str, str]:
    """Options of Spark's Kafka source and sink: with the prefix ``kafka.``."""
    return {f"{_PREFIX}{name}": value for name, value in properties(config).items()}


def confluent(config: Config, **more: Any) -> dict[str, Any]:
    """The configuration of a confluent-kafka client; ``more`` (underscores for dots) wins. Picklable.

    Raises:
        ConfigInvalid: credentials or stores can't be used by a client that is not Java; the message says how to convert them.
    """
    given = properties(config)
    result: dict[str, Any] = {name: value for name, value in given.items() if name in _SAME}
    if "request.timeout.ms" in result:
        # Of a producer's requests there, of every request here.
        result["socket.timeout.ms"] = result.pop("request.timeout.ms")
    if given.get("security.protocol", "PLAINTEXT").upper().startswith("SASL"):
        result |= _sasl(given)
    if given.get("security.protocol", "PLAINTEXT").upper().endswith("SSL"):
        result |= _ssl(given)
    return result | {name.replace("_", "."): value for name, value in more.items()}


def _sasl(given: Mapping[str, str]) -> dict[str, Any]:
    from worker.kafka_clients import parse_jaas

    mechanism = given.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism == "GSSAPI":
        return {}
    jaas = given.get("sasl.jaas.config")
    if jaas is None:
        raise ConfigInvalid(f"kafka.sasl.mechanism {mechanism} needs kafka.sasl.jaas.config")
    module, options = parse_jaas(jaas)
    if mechanism == "OAUTHBEARER":
        found = {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": options.get("clientId"),
                 "sasl.oauthbearer.client.secret": options.get("clientSecret"), "sasl.oauthbearer.scope": options.get("scope"),
                 "sasl.oauthbearer.token.endpoint.url": given.get("sasl.oauthbearer.token.endpoint.url")}
        return {name: value for name, value in found.items() if value}
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        raise ConfigInvalid(f"kafka.sasl.jaas.config ({module}) lacks {' and '.join(missing)} for sasl.mechanism {mechanism}")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _ssl(given: Mapping[str, str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if given.get("ssl.endpoint.identification.algorithm", "https").strip() == "":
        result["ssl.endpoint.identification.algorithm"] = "none"
    if "ssl.cipher.suites" in given:
        result["ssl.cipher.suites"] = given["ssl.cipher.suites"].replace(",", ":")
    if given.get("ssl.truststore.certificates"):
        result["ssl.ca.pem"] = given["ssl.truststore.certificates"]
    elif location := given.get("ssl.truststore.location"):
        _demand_pem("ssl.truststore", location, given)
        result["ssl.ca.location"] = location
    if given.get("ssl.keystore.certificate.chain"):
        result |= {"ssl.certificate.pem": given["ssl.keystore.certificate.chain"],
                   "ssl.key.pem": given.get("ssl.keystore.key", "")}
    elif location := given.get("ssl.keystore.location"):
        if given.get("ssl.keystore.type", "").upper() == "PKCS12":
            result |= {"ssl.keystore.location": location, "ssl.keystore.password": given.get("ssl.keystore.password", "")}
        else:
            _demand_pem("ssl.keystore", location, given)
            result |= {"ssl.certificate.location": location, "ssl.key.location": location}
    return result


def _demand_pem(store: str, location: str, given: Mapping[str, str]) -> None:
    try:
        pem = b"-----BEGIN" in Path(location).read_bytes()
    except OSError as error:
        raise ConfigInvalid(f"Invalid value {location} for configuration kafka.{store}.location: {error}") from error
    if not pem:
        raise ConfigInvalid(
            f"Invalid value {location} for configuration kafka.{store}.location: it is not a PEM file "
            f"(ssl type {given.get(f'{store}.type', 'JKS')}), and a part of the job's Kafka clients is not Java. Convert it "
            f"(keytool "
            f"-importkeystore -srckeystore {location} -destkeystore store.p12 -deststoretype PKCS12; openssl pkcs12 -in "
            f"store.p12 "
            f"-out store.pem) and set kafka.{store}.type=PEM")


def warnings(config: Config) -> list[str]:
    """One sentence for each ``kafka.*`` property that no Kafka client knows."""
    from worker.kafka_clients import MEANINGLESS, kinds

    return [f"kafka.{name} is no property that Kafka clients have; check its spelling" for name in properties(config)
            if not kinds(name) and name not in _SAME and name not in MEANINGLESS and not name.startswith(_OF_CLIENTS)
            and not name.startswith(("sasl.", "ssl."))]
