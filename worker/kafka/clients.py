"""Java client property names -> aiokafka arguments: one table as data, and what has to be computed from several of them.

Operators bring the property files of Kafka Connect; this module says what each client property means here. A property that
is not known gives a warning that names it; one that is known but has no counterpart in aiokafka (buffers of the JVM client,
serializers ...) is mapped to nothing.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from offsets import fetch
from worker.kafka import tls
from worker.kafka.oauth import OPTIONS as OAUTH_OPTIONS
from worker.kafka.oauth import token_provider

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)


def _parse_integer(name: str, raw: str) -> int:
    try:
        return int(raw.strip())
    except ValueError:
        raise ConfigInvalid(f"Invalid value {raw} for configuration {name}: Not a number of type INT") from None


def _parse_boolean(name: str, raw: str) -> bool:
    lowered = raw.strip().lower()
    if lowered not in {"true", "false"}:
        raise ConfigInvalid(f"Invalid value {raw} for configuration {name}: Expected value to be either true or false")
    return lowered == "true"


def _parse_string(name: str, raw: str) -> str:
    del name
    return raw.strip()


def _parse_servers(name: str, raw: str) -> list[str]:
    servers = [item.strip() for item in raw.split(",") if item.strip()]
    if not servers:
        raise ConfigInvalid(f"No bootstrap urls given in {name}")
    return servers


def _parse_acks(name: str, raw: str) -> int | str:
    value = raw.strip().lower()
    if value in {"all", "-1"}:
        return "all"
    if value in {"0", "1"}:
        return int(value)
    raise ConfigInvalid(f"Invalid value {raw} for configuration {name}: String must be one of: all, -1, 0, 1")


def _parse_compression(name: str, raw: str) -> str | None:
    value = raw.strip().lower()
    if value == "none":
        return None
    if value in {"gzip", "snappy", "lz4", "zstd"}:
        return value
    raise ConfigInvalid(
        f"Invalid value {raw} for configuration {name}: String must be one of: none, gzip, snappy, lz4, zstd"
    )


def _parse_protocol(name: str, raw: str) -> str:
    value = raw.strip().upper()
    if value in {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}:
        return value
    raise ConfigInvalid(
        f"Invalid value {raw} for configuration {name}: String must be one of (case insensitive): "
        "SASL_SSL, PLAINTEXT, SSL, SASL_PLAINTEXT"
    )


_ANY: Final = frozenset({"producer", "consumer", "admin"})
_P: Final = frozenset({"producer"})
_C: Final = frozenset({"consumer"})

#: Java property -> (kinds of clients, aiokafka argument, parser).
TABLE: Final[Mapping[str, tuple[frozenset[str], str, Callable[[str, str], Any]]]] = {
    "bootstrap.servers": (_ANY, "bootstrap_servers", _parse_servers),
    "client.id": (_ANY, "client_id", _parse_string),
    "metadata.max.age.ms": (_ANY, "metadata_max_age_ms", _parse_integer),
    "request.timeout.ms": (_ANY, "request_timeout_ms", _parse_integer),
    "retry.backoff.ms": (_ANY, "retry_backoff_ms", _parse_integer),
    "connections.max.idle.ms": (_ANY, "connections_max_idle_ms", _parse_integer),
    "security.protocol": (_ANY, "security_protocol", _parse_protocol),
    "sasl.mechanism": (_ANY, "sasl_mechanism", _parse_string),
    "sasl.kerberos.service.name": (_ANY, "sasl_kerberos_service_name", _parse_string),
    "acks": (_P, "acks", _parse_acks),
    "batch.size": (_P, "max_batch_size", _parse_integer),
    "linger.ms": (_P, "linger_ms", _parse_integer),
    "max.request.size": (_P, "max_request_size", _parse_integer),
    "compression.type": (_P, "compression_type", _parse_compression),
    "enable.idempotence": (_P, "enable_idempotence", _parse_boolean),
    "transaction.timeout.ms": (_P, "transaction_timeout_ms", _parse_integer),
    "transactional.id": (_P, "transactional_id", _parse_string),
    "group.id": (_C, "group_id", _parse_string),
    "group.instance.id": (_C, "group_instance_id", _parse_string),
    "auto.offset.reset": (_C, "auto_offset_reset", _parse_string),
    "enable.auto.commit": (_C, "enable_auto_commit", _parse_boolean),
    "auto.commit.interval.ms": (_C, "auto_commit_interval_ms", _parse_integer),
    "fetch.min.bytes": (_C, "fetch_min_bytes", _parse_integer),
    "fetch.max.bytes": (_C, "fetch_max_bytes", _parse_integer),
    "fetch.max.wait.ms": (_C, "fetch_max_wait_ms", _parse_integer),
    "max.partition.fetch.bytes": (_C, "max_partition_fetch_bytes", _parse_integer),
    "max.poll.records": (_C, "max_poll_records", _parse_integer),
    "max.poll.interval.ms": (_C, "max_poll_interval_ms", _parse_integer),
    "session.timeout.ms": (_C, "session_timeout_ms", _parse_integer),
    "heartbeat.interval.ms": (_C, "heartbeat_interval_ms", _parse_integer),
    "check.crcs": (_C, "check_crcs", _parse_boolean),
    "exclude.internal.topics": (_C, "exclude_internal_topics", _parse_boolean),
    "isolation.level": (_C, "isolation_level", _parse_string),
}

#: Properties that are read together to make an SSL context or credentials.
_COMPUTED: Final = frozenset({"sasl.jaas.config"}) | tls.PROPERTIES | OAUTH_OPTIONS

#: Known properties of the Java clients without a counterpart: their effect does not exist here or is the runtime's own matter
#: (deliveries are retried without end, one request in flight per partition keeps the order, rows and bytes bound the buffer).
MEANINGLESS: Final = frozenset(
    {
        "allow.auto.create.topics",
        "auto.include.jmx.reporter",
        "buffer.memory",
        "client.dns.lookup",
        "client.rack",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "default.api.timeout.ms",
        "delivery.timeout.ms",
        "enable.metrics.push",
        "group.protocol",
        "group.remote.assignor",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.max.ms",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "security.providers",
        "send.buffer.bytes",
        "share.acknowledgement.mode",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "throw.on.fetch.stable.offset.unsupported",
        "transaction.two.phase.commit.enable",
        "value.deserializer",
        "value.serializer",
    }
)

CREDENTIALS: Final = fetch.CREDENTIALS
renew = fetch.renew_credentials
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

#: Prefixes that belong to security: they travel together when one set of clients inherits from another.
SECURITY_PREFIXES: Final = ("security.", "sasl.", "ssl.")

#: Security settings of a worker that are for its REST listeners, and mean nothing to a client.
_SERVER_ONLY: Final = frozenset({"ssl.client.auth"})

_JAAS_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


@dataclass(frozen=True, slots=True)
class ClientArguments:
    """The arguments of an aiokafka client.

    Attributes:
        arguments: keyword arguments of ``AIOKafkaProducer``, ``AIOKafkaConsumer`` or ``AIOKafkaAdminClient``.
        warnings: one sentence for each property that has no effect though its author meant one.
    """

    arguments: dict[str, Any]
    warnings: list[str]


def client_arguments(properties: Mapping[str, str], kind: str) -> ClientArguments:
    """Map Java client ``properties`` for a client of ``kind`` (``producer``, ``consumer``, ``admin``).

    Reads stores if TLS is configured, so it blocks for as long as a small file takes.

    Raises:
        ConfigInvalid: a value is not of its type, a store can't be used, or credentials can't be read.
    """
    arguments: dict[str, Any] = {}
    warnings: list[str] = []
    for name, raw in properties.items():
        entry = TABLE.get(name)
        if entry is not None:
            if kind in entry[0]:
                arguments[entry[1]] = entry[2](name, raw)
        elif name == "partitioner.class":
            if not raw.endswith((".DefaultPartitioner", ".UniformStickyPartitioner")):
                warnings.append(
                    f"{kind} property partitioner.class={raw} names a Java class that can't run here: records "
                    "are placed as Kafka's default partitioner does"
                )
        elif name == "interceptor.classes":
            if raw.strip():
                warnings.append(
                    f"{kind} property interceptor.classes={raw} names Java classes that can't run here: remove it"
                )
        elif name in MEANINGLESS:
            log.debug("%s property %s has no counterpart here and is ignored", kind, name)
        elif name not in _COMPUTED:
            warnings.append(f"unknown {kind} property {name}: it has no effect; check its spelling")
    protocol = arguments.get("security_protocol", "PLAINTEXT")
    if protocol.startswith("SASL"):
        arguments.update(_sasl_arguments(properties, arguments.get("sasl_mechanism", "GSSAPI")))
    if protocol.endswith("SSL"):
        arguments["ssl_context"] = tls.client_context(properties)
    return ClientArguments(arguments, warnings)


def client_kinds(name: str) -> frozenset[str]:
    """The kinds of clients that have the property ``name``; empty for an unknown one."""
    if name in _COMPUTED:
        return _ANY
    entry = TABLE.get(name)
    return entry[0] if entry is not None else frozenset()


def parse_jaas(raw: str) -> tuple[str, dict[str, str]]:
    """Login module (short name) and options of a ``sasl.jaas.config``.

    Raises:
        ConfigInvalid: it is not of the form ``Module flag option=value ... ;``. The text is not repeated: it holds secrets.
    """
    words = raw.strip().split(None, 2)
    if len(words) < 2 or words[1].rstrip(";").lower() not in {"required", "requisite", "sufficient", "optional"}:
        raise ConfigInvalid(
            "Invalid value [hidden] for configuration sasl.jaas.config: expected 'LoginModule required "
            'option="value" ...;\''
        )
    options: dict[str, str] = {}
    for match in _JAAS_OPTION.finditer(words[2] if len(words) > 2 else ""):
        name, double, single, bare = match.groups()
        quoted = double if double is not None else single
        options[name] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
    return words[0].rsplit(".", 1)[-1], options


def _sasl_arguments(properties: Mapping[str, str], mechanism: str) -> dict[str, Any]:
    mechanism = mechanism.upper()
    if mechanism not in _MECHANISMS:
        raise ConfigInvalid(
            f"Invalid value {mechanism} for configuration sasl.mechanism: String must be one of: "
            f"{', '.join(_MECHANISMS)}"
        )
    result: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "GSSAPI":
        if find_spec("gssapi") is None:
            raise ConfigInvalid(
                "sasl.mechanism GSSAPI (Kerberos) needs the Python package gssapi, which is not installed: "
                "install it (pip install gssapi), or set sasl.mechanism"
            )
        return result
    jaas = properties.get("sasl.jaas.config")
    if jaas is None and mechanism == "OAUTHBEARER":
        return result | {"sasl_oauth_token_provider": token_provider(properties, {})}
    if jaas is None:
        raise ConfigInvalid(f"sasl.mechanism {mechanism} needs sasl.jaas.config with a username and a password")
    module, options = parse_jaas(jaas)
    if mechanism == "OAUTHBEARER":
        return result | {"sasl_oauth_token_provider": token_provider(properties, options)}
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        raise ConfigInvalid(f"sasl.jaas.config ({module}) lacks {' and '.join(missing)} for sasl.mechanism {mechanism}")
    return result | {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}


def inherited_properties(worker: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The client properties a worker gives to its clients of one kind: ``prefix`` + name (``producer.``, ``admin.`` ...).

    ``bootstrap.servers`` comes from the worker. Its security settings do too where the prefix sets none of its own: Kafka
    Connect makes one repeat them, and plain text is never what a worker with TLS is meant to use.
    """
    own_properties = {
        name[len(prefix) :]: value
        for name, value in worker.items()
        if name.startswith(prefix) and not name.startswith((prefix + "override.", "admin.listeners"))
    }
    result: dict[str, str] = {}
    if "bootstrap.servers" in worker:
        result["bootstrap.servers"] = worker["bootstrap.servers"]
    if not any(name.startswith(SECURITY_PREFIXES) for name in own_properties):
        result.update(
            {
                name: value
                for name, value in worker.items()
                if name.startswith(SECURITY_PREFIXES) and name not in _SERVER_ONLY
            }
        )
    return result | own_properties


_POLICY_CLASS: Final = "ConnectorClientConfigOverridePolicy"
_POLICY_NAMES: Final = ("All", "None", "Principal", "Allowlist")
#: What ``connector.client.config.override.policy`` may be, with the Java class names it stands for (KIP-458, KIP-1188).
POLICIES: Final[Mapping[str, str]] = {
    form: name
    for name in _POLICY_NAMES
    for form in (name, f"{name}{_POLICY_CLASS}", f"org.apache.kafka.connect.connector.policy.{name}{_POLICY_CLASS}")
}
_PRINCIPAL: Final = frozenset({"security.protocol", "sasl.jaas.config", "sasl.mechanism"})
POLICY: Final = "connector.client.config.override.policy"
ALLOWLIST: Final = "connector.client.config.override.allowlist"


def override_properties(connector: Mapping[str, str], prefix: str, worker: Mapping[str, str]) -> dict[str, str]:
    """A connector's own client properties (``producer.override.`` + name) as far as the worker's policy allows.

    Args:
        connector: the connector's properties.
        prefix: of those that are meant.
        worker: the worker's properties.

    Raises:
        ConfigInvalid: the policy is unknown, or forbids one of the properties.
    """
    result = {name[len(prefix) :]: value for name, value in connector.items() if name.startswith(prefix)}
    policy, allowed = _read_policy(worker)
    forbidden = [name for name in result if allowed is not None and name not in allowed]
    if forbidden:
        raise ConfigInvalid(
            f"The '{policy}' policy does not allow {', '.join(prefix + name for name in forbidden)} to be "
            "overridden in the connector configuration"
        )
    return result


def override_refusal(name: str, worker: Mapping[str, str]) -> str | None:
    """Kafka Connect's complaint if the worker's policy forbids to override the client property ``name``, else None.

    Raises:
        ConfigInvalid: the policy is unknown.
    """
    policy, allowed = _read_policy(worker)
    if allowed is None or name in allowed:
        return None
    return f"The '{policy}' policy does not allow '{name}' to be overridden in the connector configuration."


def _read_policy(worker: Mapping[str, str]) -> tuple[str, frozenset[str] | None]:
    """The policy's name and the properties that it allows; None for all."""
    policy = worker.get(POLICY, "All")
    policy_name = POLICIES.get(policy.strip())
    if policy_name is None:
        raise ConfigInvalid(unknown_policy(policy))
    listed = frozenset(item.strip() for item in worker.get(ALLOWLIST, "").split(","))
    return policy_name, None if policy_name == "All" else {"Principal": _PRINCIPAL, "Allowlist": listed}.get(
        policy_name, frozenset()
    )


def unknown_policy(policy: str) -> str:
    """Return the error message for an unknown policy."""
    return (
        f"Invalid value {policy} for configuration {POLICY}: must be one of {', '.join(_POLICY_NAMES)} (or the name of "
        f"Kafka Connect's class). A policy class of your own can't run here: set Allowlist, and {ALLOWLIST} to the "
        "properties that connectors may override"
    )
