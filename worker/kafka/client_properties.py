"""A connector's own client properties (``producer.override.*`` and the like) in the answers of ``validate``.

Names, types, importance and defaults of properties are those of Kafka 4.1's Java clients, which Kafka Connect answers with.
What each does here is ``worker.kafka.clients``' to say.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.errors import ConfigInvalid
from connectors.options import MASK, REQUIRED, ConfigKey, ConfigType, ConfigValue, Importance, parse_value
from offsets.creation import PREFIX as TOPIC_CREATION
from worker.host.plan import admin_client, producer_settings
from worker.kafka import clients as kafka_clients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Name, type, importance, default as a user would write it.
_Row = tuple[str, str, str, object]

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."

#: What all three kinds of clients have.
_SHARED: Final[tuple[_Row, ...]] = (
    ("bootstrap.servers", "LIST", "HIGH", ""),
    ("client.dns.lookup", "STRING", "MEDIUM", "use_all_dns_ips"),
    ("metadata.max.age.ms", "LONG", "LOW", "300000"),
    ("metadata.recovery.rebootstrap.trigger.ms", "LONG", "LOW", "300000"),
    ("metadata.recovery.strategy", "STRING", "LOW", "rebootstrap"),
    ("metric.reporters", "LIST", "LOW", "org.apache.kafka.common.metrics.JmxReporter"),
    ("metrics.num.samples", "INT", "LOW", "2"),
    ("metrics.recording.level", "STRING", "LOW", "INFO"),
    ("metrics.sample.window.ms", "LONG", "LOW", "30000"),
    ("reconnect.backoff.max.ms", "LONG", "LOW", "1000"),
    ("reconnect.backoff.ms", "LONG", "LOW", "50"),
    ("request.timeout.ms", "INT", "MEDIUM", "30000"),
    ("retry.backoff.max.ms", "LONG", "LOW", "1000"),
    ("retry.backoff.ms", "LONG", "LOW", "100"),
    ("sasl.client.callback.handler.class", "CLASS", "MEDIUM", None),
    ("sasl.jaas.config", "PASSWORD", "MEDIUM", None),
    ("sasl.kerberos.kinit.cmd", "STRING", "LOW", "/usr/bin/kinit"),
    ("sasl.kerberos.min.time.before.relogin", "LONG", "LOW", "60000"),
    ("sasl.kerberos.service.name", "STRING", "MEDIUM", None),
    ("sasl.kerberos.ticket.renew.jitter", "DOUBLE", "LOW", "0.05"),
    ("sasl.kerberos.ticket.renew.window.factor", "DOUBLE", "LOW", "0.8"),
    ("sasl.login.callback.handler.class", "CLASS", "MEDIUM", None),
    ("sasl.login.class", "CLASS", "MEDIUM", None),
    ("sasl.login.connect.timeout.ms", "INT", "LOW", None),
    ("sasl.login.read.timeout.ms", "INT", "LOW", None),
    ("sasl.login.refresh.buffer.seconds", "SHORT", "LOW", "300"),
    ("sasl.login.refresh.min.period.seconds", "SHORT", "LOW", "60"),
    ("sasl.login.refresh.window.factor", "DOUBLE", "LOW", "0.8"),
    ("sasl.login.refresh.window.jitter", "DOUBLE", "LOW", "0.05"),
    ("sasl.login.retry.backoff.max.ms", "LONG", "LOW", "10000"),
    ("sasl.login.retry.backoff.ms", "LONG", "LOW", "100"),
    ("sasl.mechanism", "STRING", "MEDIUM", "GSSAPI"),
    ("sasl.oauthbearer.assertion.algorithm", "STRING", "MEDIUM", "RS256"),
    ("sasl.oauthbearer.assertion.claim.aud", "STRING", "MEDIUM", None),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", "INT", "LOW", "300"),
    ("sasl.oauthbearer.assertion.claim.iss", "STRING", "MEDIUM", None),
    ("sasl.oauthbearer.assertion.claim.jti.include", "BOOLEAN", "MEDIUM", "false"),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", "INT", "LOW", "60"),
    ("sasl.oauthbearer.assertion.claim.sub", "STRING", "MEDIUM", None),
    ("sasl.oauthbearer.assertion.file", "STRING", "MEDIUM", None),
    ("sasl.oauthbearer.assertion.private.key.file", "STRING", "MEDIUM", None),
    ("sasl.oauthbearer.assertion.private.key.passphrase", "PASSWORD", "MEDIUM", None),
    ("sasl.oauthbearer.assertion.template.file", "STRING", "MEDIUM", None),
    ("sasl.oauthbearer.client.credentials.client.id", "STRING", "MEDIUM", None),
    ("sasl.oauthbearer.client.credentials.client.secret", "PASSWORD", "MEDIUM", None),
    ("sasl.oauthbearer.clock.skew.seconds", "INT", "LOW", "30"),
    ("sasl.oauthbearer.expected.audience", "LIST", "LOW", None),
    ("sasl.oauthbearer.expected.issuer", "STRING", "LOW", None),
    ("sasl.oauthbearer.header.urlencode", "BOOLEAN", "LOW", "false"),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", "LONG", "LOW", "3600000"),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "LONG", "LOW", "10000"),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "LONG", "LOW", "100"),
    ("sasl.oauthbearer.jwks.endpoint.url", "STRING", "MEDIUM", None),
    ("sasl.oauthbearer.jwt.retriever.class", "CLASS", "MEDIUM", f"{_OAUTH}DefaultJwtRetriever"),
    ("sasl.oauthbearer.jwt.validator.class", "CLASS", "MEDIUM", f"{_OAUTH}DefaultJwtValidator"),
    ("sasl.oauthbearer.scope", "STRING", "MEDIUM", None),
    ("sasl.oauthbearer.scope.claim.name", "STRING", "LOW", "scope"),
    ("sasl.oauthbearer.sub.claim.name", "STRING", "LOW", "sub"),
    ("sasl.oauthbearer.token.endpoint.url", "STRING", "MEDIUM", None),
    ("security.protocol", "STRING", "MEDIUM", "PLAINTEXT"),
    ("security.providers", "STRING", "LOW", None),
    ("send.buffer.bytes", "INT", "MEDIUM", "131072"),
    ("socket.connection.setup.timeout.max.ms", "LONG", "MEDIUM", "30000"),
    ("socket.connection.setup.timeout.ms", "LONG", "MEDIUM", "10000"),
    ("ssl.cipher.suites", "LIST", "LOW", None),
    ("ssl.enabled.protocols", "LIST", "MEDIUM", "TLSv1.2,TLSv1.3"),
    ("ssl.endpoint.identification.algorithm", "STRING", "LOW", "https"),
    ("ssl.engine.factory.class", "CLASS", "LOW", None),
    ("ssl.key.password", "PASSWORD", "HIGH", None),
    ("ssl.keymanager.algorithm", "STRING", "LOW", "SunX509"),
    ("ssl.keystore.certificate.chain", "PASSWORD", "HIGH", None),
    ("ssl.keystore.key", "PASSWORD", "HIGH", None),
    ("ssl.keystore.location", "STRING", "HIGH", None),
    ("ssl.keystore.password", "PASSWORD", "HIGH", None),
    ("ssl.keystore.type", "STRING", "MEDIUM", "JKS"),
    ("ssl.protocol", "STRING", "MEDIUM", "TLSv1.3"),
    ("ssl.provider", "STRING", "MEDIUM", None),
    ("ssl.secure.random.implementation", "STRING", "LOW", None),
    ("ssl.trustmanager.algorithm", "STRING", "LOW", "PKIX"),
    ("ssl.truststore.certificates", "PASSWORD", "HIGH", None),
    ("ssl.truststore.location", "STRING", "HIGH", None),
    ("ssl.truststore.password", "PASSWORD", "HIGH", None),
    ("ssl.truststore.type", "STRING", "MEDIUM", "JKS"),
)
#: What else a producer has.
_PRODUCER: Final[tuple[_Row, ...]] = (
    ("acks", "STRING", "LOW", "all"),
    ("batch.size", "INT", "MEDIUM", "16384"),
    ("buffer.memory", "LONG", "HIGH", "33554432"),
    ("client.id", "STRING", "MEDIUM", ""),
    ("compression.gzip.level", "INT", "MEDIUM", "-1"),
    ("compression.lz4.level", "INT", "MEDIUM", "9"),
    ("compression.type", "STRING", "HIGH", "none"),
    ("compression.zstd.level", "INT", "MEDIUM", "3"),
    ("connections.max.idle.ms", "LONG", "MEDIUM", "540000"),
    ("delivery.timeout.ms", "INT", "MEDIUM", "120000"),
    ("enable.idempotence", "BOOLEAN", "LOW", "true"),
    ("enable.metrics.push", "BOOLEAN", "LOW", "true"),
    ("interceptor.classes", "LIST", "LOW", ""),
    ("key.serializer", "CLASS", "HIGH", REQUIRED),
    ("linger.ms", "LONG", "MEDIUM", "5"),
    ("max.block.ms", "LONG", "MEDIUM", "60000"),
    ("max.in.flight.requests.per.connection", "INT", "LOW", "5"),
    ("max.request.size", "INT", "MEDIUM", "1048576"),
    ("metadata.max.idle.ms", "LONG", "LOW", "300000"),
    ("partitioner.adaptive.partitioning.enable", "BOOLEAN", "LOW", "true"),
    ("partitioner.availability.timeout.ms", "LONG", "LOW", "0"),
    ("partitioner.class", "CLASS", "MEDIUM", None),
    ("partitioner.ignore.keys", "BOOLEAN", "MEDIUM", "false"),
    ("receive.buffer.bytes", "INT", "MEDIUM", "32768"),
    ("retries", "INT", "HIGH", "2147483647"),
    ("transaction.timeout.ms", "INT", "LOW", "60000"),
    ("transaction.two.phase.commit.enable", "BOOLEAN", "LOW", "false"),
    ("transactional.id", "STRING", "LOW", None),
    ("value.serializer", "CLASS", "HIGH", REQUIRED),
)
#: What else a consumer has.
_CONSUMER: Final[tuple[_Row, ...]] = (
    ("allow.auto.create.topics", "BOOLEAN", "MEDIUM", "true"),
    ("auto.commit.interval.ms", "INT", "LOW", "5000"),
    ("auto.offset.reset", "STRING", "MEDIUM", "latest"),
    ("check.crcs", "BOOLEAN", "LOW", "true"),
    ("client.id", "STRING", "LOW", ""),
    ("client.rack", "STRING", "LOW", ""),
    ("connections.max.idle.ms", "LONG", "MEDIUM", "540000"),
    ("default.api.timeout.ms", "INT", "MEDIUM", "60000"),
    ("enable.auto.commit", "BOOLEAN", "MEDIUM", "true"),
    ("enable.metrics.push", "BOOLEAN", "LOW", "true"),
    ("exclude.internal.topics", "BOOLEAN", "MEDIUM", "true"),
    ("fetch.max.bytes", "INT", "MEDIUM", "52428800"),
    ("fetch.max.wait.ms", "INT", "LOW", "500"),
    ("fetch.min.bytes", "INT", "HIGH", "1"),
    ("group.id", "STRING", "HIGH", None),
    ("group.instance.id", "STRING", "MEDIUM", None),
    ("group.protocol", "STRING", "HIGH", "classic"),
    ("group.remote.assignor", "STRING", "MEDIUM", None),
    ("heartbeat.interval.ms", "INT", "HIGH", "3000"),
    ("interceptor.classes", "LIST", "LOW", ""),
    ("internal.leave.group.on.close", "BOOLEAN", "LOW", "true"),
    ("internal.throw.on.fetch.stable.offset.unsupported", "BOOLEAN", "LOW", "false"),
    ("isolation.level", "STRING", "MEDIUM", "read_uncommitted"),
    ("key.deserializer", "CLASS", "HIGH", REQUIRED),
    ("max.partition.fetch.bytes", "INT", "HIGH", "1048576"),
    ("max.poll.interval.ms", "INT", "MEDIUM", "300000"),
    ("max.poll.records", "INT", "MEDIUM", "500"),
    (
        "partition.assignment.strategy",
        "LIST",
        "MEDIUM",
        [
            "class org.apache.kafka.clients.consumer.RangeAssignor",
            "class org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        ],
    ),
    ("receive.buffer.bytes", "INT", "MEDIUM", "65536"),
    ("session.timeout.ms", "INT", "HIGH", "45000"),
    ("share.acknowledgement.mode", "STRING", "MEDIUM", "implicit"),
    ("value.deserializer", "CLASS", "HIGH", REQUIRED),
)
#: What else an admin client has.
_ADMIN: Final[tuple[_Row, ...]] = (
    ("bootstrap.controllers", "LIST", "HIGH", ""),
    ("client.id", "STRING", "MEDIUM", ""),
    ("connections.max.idle.ms", "LONG", "MEDIUM", "300000"),
    ("default.api.timeout.ms", "INT", "MEDIUM", "60000"),
    ("enable.metrics.push", "BOOLEAN", "LOW", "false"),
    ("receive.buffer.bytes", "INT", "MEDIUM", "65536"),
    ("retries", "INT", "LOW", "2147483647"),
)
_KIND_PROPERTIES: Final = {"producer": _PRODUCER, "consumer": _CONSUMER, "admin": _ADMIN}


_NOUN: Final = {"producer": "producer", "consumer": "consumer", "admin": "admin client"}
#: Parts of names of unknown properties whose values should not be shown.
_SUSPICIOUS: Final = ("password", "jaas", "secret", ".key")


class Override(NamedTuple):
    """One property of a connector's own client.

    Attributes:
        key: its declaration under the client's name for it; None for an unknown one.
        prefix: the prefix of that name in the connector's configuration.
        value: its value and its errors, under the name in the connector's configuration.
    """

    key: ConfigKey | None
    prefix: str
    value: ConfigValue


def _describe_property(name: str, kind: str) -> str:
    if kind in kafka_clients.client_kinds(name):
        return f"{name} of the connector's own {_NOUN[kind]}; not set, the worker's is used."
    return f"{name} of Kafka's Java {_NOUN[kind]}: accepted, and without effect here."


@lru_cache(maxsize=len(_KIND_PROPERTIES))
def client_keys(kind: str) -> Mapping[str, ConfigKey]:
    """The properties of a ``producer``, ``consumer`` or ``admin`` client, by name."""
    keys: dict[str, ConfigKey] = {}
    for name, type_name, importance, default in (*_SHARED, *_KIND_PROPERTIES[kind]):
        # A group without a name is how Kafka's clients declare internal ones.
        key = ConfigKey(
            name=name,
            type=ConfigType(type_name),
            doc=_describe_property(name, kind),
            importance=Importance(importance),
            group="" if name.startswith("internal.") else None,
        )
        keys[name] = key if default is REQUIRED else replace(key, default=parse_value(key, default))
    return keys


def client_overrides(config: Mapping[str, str], worker: Mapping[str, str]) -> list[Override]:
    """A source connector's own client properties, with what is wrong with them. Reads stores if TLS is configured: blocks.

    As in Kafka Connect, only those of clients that the connector makes use of are shown. What would fail its tasks is an error
    all the same.

    Args:
        config: the connector's, references resolved.
        worker: the worker's properties.

    Raises:
        ConfigInvalid: the worker's policy is unknown.
    """
    shown: list[Override] = []
    checks: Mapping[str, Callable[[Mapping[str, str]], object]] = {
        "producer": lambda connector: producer_settings(worker, connector, ""),
        "admin": lambda connector: admin_client(connector, worker),
    }
    for kind, used in _used_clients(config, worker).items():
        prefix = f"{kind}.override."
        checked = [
            _check_override(name, raw, kind, worker)
            for name, raw in config.items()
            if name.startswith(prefix) and name != prefix
        ]
        if kind in checks and checked and not any(item.value.errors for item in checked):
            _check_together(checked, config, prefix, checks[kind])
        shown += [item for item in checked if used or (kind in checks and item.value.errors)]
    return shown


def _used_clients(config: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, bool]:
    """Return whether a source connector uses each kind of client, by Kafka Connect's rules."""
    own_offsets = worker.get("exactly.once.source.support", "disabled").strip().lower() == "enabled" or bool(
        config.get("offsets.storage.topic", "").strip()
    )
    creates = worker.get("topic.creation.enable", "true").strip().lower() != "false" and any(
        name.startswith(TOPIC_CREATION) for name in config
    )
    return {"producer": True, "admin": own_offsets or creates, "consumer": own_offsets}


def _check_override(option: str, raw: str, kind: str, worker: Mapping[str, str]) -> Override:
    """Check a single property: the worker's policy, its type, and whether the client understands it."""
    prefix = f"{kind}.override."
    name = option.removeprefix(prefix)
    key = client_keys(kind).get(name)
    value: object = MASK if key is None and any(word in name for word in _SUSPICIOUS) else raw
    errors: list[str] = []
    try:
        if key is not None:
            value = None
            value = parse_value(key, raw)
        entry = kafka_clients.TABLE.get(name)
        if entry is not None and kind in entry[0]:
            entry[2](name, raw)
    except ConfigInvalid as error:
        errors.append(str(error))
    refusal = kafka_clients.override_refusal(name, worker)
    if refusal is not None:
        errors = [refusal]  # it would not do with another value either
    return Override(key, prefix, ConfigValue(option, value, errors, [], visible=True))


def _check_together(
    checked: list[Override], config: Mapping[str, str], prefix: str, check: Callable[[Mapping[str, str]], object]
) -> None:
    """Add errors of several properties together that the worker's own do not have: a login without a password, a lost store."""
    try:
        check(config)
    except ConfigInvalid as error:
        try:
            check({name: raw for name, raw in config.items() if not name.startswith(prefix)})
        except ConfigInvalid:
            return  # it is not of these
        named = [item for item in checked if item.value.name.removeprefix(prefix) in str(error)]
        security = [
            item for item in checked if item.value.name.removeprefix(prefix).startswith(kafka_clients.SECURITY_PREFIXES)
        ]
        (named or security or checked)[0].value.errors.append(str(error))
