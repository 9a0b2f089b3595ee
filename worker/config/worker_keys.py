"""The declarations of the worker's properties: Kafka Connect's ``DistributedConfig`` and a few of ours."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from connectors.options import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    KeyGroup,
    at_least,
    invalid,
    non_empty,
    one_of,
)
from worker.host.options import WORKER_KEYS
from worker.kafka import clients as kafka_clients
from worker.rest.settings import REST_KEYS
from worker.secrets.rotation import OPTIONS as PROVIDER_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_B, _S, _I, _L, _LIST, _CLASS, _PW = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
    ConfigType.CLASS,
    ConfigType.PASSWORD,
)
_HIGH, _LOW = Importance.HIGH, Importance.LOW

_CLUSTER: Final = KeyGroup("Cluster")
_TOPICS: Final = KeyGroup("Internal topics")
_REST: Final = KeyGroup("REST")
_CONVERT: Final = KeyGroup("Converters and plugins")
_OFFSETS: Final = KeyGroup("Offsets and exactly once")
_HOSTS: Final = KeyGroup("Task hosts")
_LOGS: Final = KeyGroup("Logs and metrics")
_SECURITY: Final = KeyGroup("Security of Kafka clients")


def _check_hosts(name: str, value: int | None) -> str | None:
    return None if value is None or value > 0 else invalid(name, value, "Value must be at least 1")


#: Prefixes under which properties are passed on to the part they name.
PASS_THROUGH: Final = (
    "producer.",
    "consumer.",
    "admin.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "config.providers.",
    "config.storage.",
    "offset.storage.",
    "status.storage.",
    "sasl.",
    "ssl.",
    "security.",
    "listeners.https.",
    "admin.listeners.https.",
    "rest.",
    "metrics.context.",
    "node.labels.",
)

#: Kafka Connect's properties without an effect here, each with what is so instead.
IGNORED: Final[Mapping[str, str]] = {
    "metric.reporters": "JVM reporters can't run here; scrape GET /metrics",
    "auto.include.jmx.reporter": "there is no JMX; scrape GET /metrics",
    "metrics.num.samples": "metrics are counters and the scraper makes the windows",
    "metrics.sample.window.ms": "metrics are counters and the scraper makes the windows",
    "connect.protocol": "membership uses a protocol of its own, moves nothing needlessly and is always authenticated",
    "worker.sync.timeout.ms": "a worker that lags reads on while its tasks run",
    "worker.unsync.backoff.ms": "a worker that lags reads on while its tasks run",
    "plugin.discovery": "plugins are Python entry points and are always found by them",
    "task.shutdown.graceful.timeout": "the property is task.shutdown.graceful.timeout.ms",
    "internal.key.converter": "internal records are always schemaless JSON",
    "internal.value.converter": "internal records are always schemaless JSON",
    "internal.key.converter.schemas.enable": "internal records are always schemaless JSON",
    "internal.value.converter.schemas.enable": "internal records are always schemaless JSON",
    "client.dns.lookup": "all addresses of a name are tried in turn",
    "receive.buffer.bytes": "the operating system sizes socket buffers",
    "send.buffer.bytes": "the operating system sizes socket buffers",
    "reconnect.backoff.ms": "retry.backoff.ms is used for reconnects too",
    "reconnect.backoff.max.ms": "retry.backoff.ms is used for reconnects too",
    "retry.backoff.max.ms": "retry.backoff.ms is used without growth",
    "socket.connection.setup.timeout.ms": "request.timeout.ms bounds it",
    "socket.connection.setup.timeout.max.ms": "request.timeout.ms bounds it",
    "metadata.recovery.strategy": "clients always bootstrap again",
    "metadata.recovery.rebootstrap.trigger.ms": "clients always bootstrap again",
}

#: Properties that only a standalone worker of Kafka Connect has.
STANDALONE: Final = "offset.storage.file.filename"


def _check_partitions(name: str, value: Any) -> str | None:
    if value == 0 or value < -1:
        return invalid(name, value, "Number of partitions must be positive, or -1 to use the broker's default")
    return None


def _check_replication(name: str, value: Any) -> str | None:
    if value == 0 or value < -1:
        return invalid(name, value, "Replication factor must be positive, or -1 to use the broker's default")
    return None


def _check_processes(name: str, value: Any) -> str | None:
    return invalid(name, value, "Value must be at least 0") if value is not None and value < 0 else None


def _topic_keys(topic_role: str, partitions: int | None, content: str) -> list[ConfigKey]:
    keys = [
        _TOPICS.high.string(
            f"{topic_role}.storage.topic",
            f"The compacted topic that holds {content}. It is created if it does not exist; workers of one cluster "
            "share it.",
            validator=non_empty,
            example="connect-status" if topic_role == "status" else f"connect-{topic_role}s",
        ),
        _TOPICS.low.short(
            f"{topic_role}.storage.replication.factor",
            "Replication factor used when that topic is created; -1 takes the broker's default.",
            default=3,
            validator=_check_replication,
        ),
    ]
    if partitions is not None:
        keys.append(
            _TOPICS.low.integer(
                f"{topic_role}.storage.partitions",
                "Partitions used when that topic is created; -1 takes the broker's default.",
                default=partitions,
                validator=_check_partitions,
            )
        )
    return keys


WORKER_CONFIG: Final = ConfigDef(
    [
        # Cluster
        _CLUSTER.high.strings(
            "bootstrap.servers",
            "Kafka brokers to begin with, as host:port, separated by commas.",
            default=["localhost:9092"],
            example="kafka1:9092,kafka2:9092",
        ),
        _CLUSTER.high.string(
            "group.id",
            "Name of the cluster; workers with the same name, topics and Kafka form one. Not the name of a consumer "
            "group that is in use.",
            validator=non_empty,
            example="connect-cluster",
        ),
        _CLUSTER.low.string("client.id", "Name that this worker's Kafka clients show to the brokers.", default=""),
        _CLUSTER.low.integer(
            "group.takeover.wait.ms",
            "How long a worker that starts waits while members of another program hold its group: those of a "
            "killed Kafka Connect worker stay in it until their session ends. Then it gives up.",
            default=60_000,
            unit="ms",
            validator=at_least(0),
        ),
        _CLUSTER.high.integer(
            "session.timeout.ms",
            "A worker that Kafka has not heard of for this long is lost: its tasks run elsewhere. A worker that has "
            "not heard of Kafka for two thirds of it stops its own tasks. Kafka Connect's default is 10000, which holds "
            "where it is not set and heartbeat.interval.ms is above 2000; the brokers' "
            "group.min.session.timeout.ms (6000 by default) bounds it.",
            default=6000,
            unit="ms",
            validator=at_least(1000),
        ),
        _CLUSTER.high.integer(
            "heartbeat.interval.ms",
            "Time between heartbeats; at most a third of session.timeout.ms. By them workers learn that one was lost, so "
            "tasks of a killed worker start elsewhere after a little more than two of them. Kafka Connect's default is "
            "3000.",
            default=500,
            unit="ms",
            validator=at_least(100),
        ),
        _CLUSTER.low.boolean(
            "takeover.on.refused.connections",
            "Whether this worker puts another one out of the group whose REST address has accepted its connections and "
            "refuses them now: its process has ended, and its tasks need not wait for session.timeout.ms. Set it to "
            "false where something between workers, for instance a proxy, refuses connections to workers that live.",
            default=True,
        ),
        _CLUSTER.high.integer(
            "rebalance.timeout.ms",
            "Accepted for Kafka Connect's property files. Members do not stop tasks to rebalance, so a rebalance never "
            "waits longer than session.timeout.ms.",
            default=60000,
            unit="ms",
            validator=at_least(0),
        ),
        _CLUSTER.low.integer(
            "scheduled.rebalance.max.delay.ms",
            "Accepted for Kafka Connect's property files. A lost worker's tasks move at once, and come back without "
            "moving others when it returns, so there is nothing to wait for.",
            default=300000,
            unit="ms",
            validator=at_least(0),
        ),
        _CLUSTER.low.long(
            "metadata.max.age.ms",
            "Metadata of topics is read again after this time.",
            default=300000,
            unit="ms",
            validator=at_least(0),
        ),
        _CLUSTER.low.integer(
            "request.timeout.ms",
            "A request to a broker that is not answered in this time has failed.",
            default=40000,
            unit="ms",
            validator=at_least(0),
        ),
        _CLUSTER.low.long(
            "retry.backoff.ms",
            "Pause before a failed request is retried.",
            default=100,
            unit="ms",
            validator=at_least(0),
        ),
        _CLUSTER.low.long(
            "connections.max.idle.ms", "Idle connections are closed after this time.", default=540000, unit="ms"
        ),
        _CLUSTER.strings(
            "node.labels",
            "Labels of this worker, as name=value; a connector or task with millrace.node or millrace.labels runs only "
            "on workers that match.",
            default=[],
            example="zone=a,disk=ssd",
        ),
        _CLUSTER.low.integer(
            "kafka.start.timeout.ms",
            "At start, how long to wait for a broker that answers before giving up with an error.",
            default=60000,
            unit="ms",
            validator=at_least(0),
        ),
        # Internal topics
        *_topic_keys("config", None, "connector and task configurations"),
        *_topic_keys("offset", 25, "source offsets"),
        *_topic_keys("status", 5, "states of connectors and tasks"),
        _TOPICS.string(
            "placement.storage.topic",
            "The compacted topic that holds which worker runs what; empty means <config.storage.topic>-placement. Its "
            "replication factor is config.storage.replication.factor.",
            default="",
        ),
        # REST
        *(replace(key, group=_REST.name) for key in REST_KEYS),
        _REST.low.string(
            "inter.worker.signature.algorithm",
            "How requests between workers are signed.",
            default="HmacSHA256",
            validator=one_of("HmacSHA1", "HmacSHA256", "HmacSHA384", "HmacSHA512"),
        ),
        _REST.low.strings(
            "inter.worker.verification.algorithms",
            "Which signatures of other workers are accepted.",
            default=["HmacSHA256"],
        ),
        _REST.low.string(
            "inter.worker.key.generation.algorithm",
            "Algorithm the session key is made for.",
            default="HmacSHA256",
            validator=one_of("HmacSHA1", "HmacSHA256", "HmacSHA384", "HmacSHA512"),
        ),
        _REST.low.integer(
            "inter.worker.key.size",
            "Size of the session key; by default that of the algorithm.",
            default=None,
            unit="bits",
        ),
        _REST.low.integer(
            "inter.worker.key.ttl.ms",
            "How long the leader keeps one session key.",
            default=3600000,
            unit="ms",
            validator=at_least(0),
        ),
        # Converters and plugins
        _CONVERT.high.java_class(
            "key.converter",
            "Converter of record keys; a connector may have its own. Java class names are accepted.",
            example="org.apache.kafka.connect.json.JsonConverter",
        ),
        _CONVERT.high.java_class(
            "value.converter",
            "Converter of record values; a connector may have its own.",
            example="org.apache.kafka.connect.json.JsonConverter",
        ),
        _CONVERT.low.java_class(
            "header.converter",
            "Converter of header values.",
            default="org.apache.kafka.connect.storage.SimpleHeaderConverter",
        ),
        _CONVERT.low.strings(
            "plugin.path",
            "Folders with plugins in environments of their own (docs/plugins.md): each folder with installed packages in "
            "it, virtual environment, wheel or zip file. Folders that only hold jars do no harm.",
            default=[],
            example="/opt/millrace/plugins",
        ),
        _CONVERT.low.long(
            "plugin.scan.interval.ms",
            "How often the folders of plugin.path are looked at for new, changed and removed plugins; 0: only at the "
            "start and by PUT /admin/plugins/refresh.",
            default=10000,
            unit="ms",
            validator=at_least(0),
        ),
        _CONVERT.low.integer(
            "plugin.environment.hosts.max",
            "How many task hosts there may be for plugins in environments of their own, in addition to the main ones; by "
            "default twice as many as those, at least 4.",
            default=None,
            unit="processes",
            validator=_check_hosts,
        ),
        _CONVERT.low.long(
            "plugin.environment.host.idle.ms",
            "After so long without use such a task host ends.",
            default=60000,
            unit="ms",
            validator=at_least(100),
        ),
        _CONVERT.low.strings(
            "config.providers",
            "Names of config providers; config.providers.NAME.class and config.providers.NAME.param.* set them up.",
            default=[],
            example="file",
        ),
        *PROVIDER_OPTIONS.keys.values(),
        _CONVERT.low.string(
            kafka_clients.POLICY,
            "Which client properties a connector may override: All, None, Allowlist (those named by "
            f"{kafka_clients.ALLOWLIST}) or Principal (security.protocol, sasl.mechanism and sasl.jaas.config; "
            "deprecated in Kafka Connect); Java class names are accepted.",
            default="All",
        ),
        _CONVERT.low.strings(
            kafka_clients.ALLOWLIST,
            "With the policy Allowlist: names of client properties that connectors may override, without "
            "producer.override. and the like before them.",
            default=[],
            example="sasl.jaas.config,sasl.mechanism,security.protocol",
        ),
        _CONVERT.low.boolean(
            "topic.creation.enable",
            "Whether connectors with topic.creation.* properties may create their topics.",
            default=True,
        ),
        # Offsets and exactly once
        _OFFSETS.low.long(
            "offset.flush.interval.ms",
            "How often tasks save their offsets.",
            default=60000,
            unit="ms",
            validator=at_least(1),
        ),
        _OFFSETS.low.long(
            "offset.flush.timeout.ms",
            "How long saving them may take before it counts as failed.",
            default=5000,
            unit="ms",
            validator=at_least(1),
        ),
        _OFFSETS.high.string(
            "exactly.once.source.support",
            "Whether source records and offsets are written in transactions. A running cluster goes from disabled to "
            "enabled through preparing.",
            default="disabled",
            validator=one_of("disabled", "preparing", "enabled", ignore_case=True),
        ),
        _OFFSETS.low.integer(
            "transaction.timeout.ms",
            "Timeout of the leader's transactions on the config topic; bounds how long a leader that died in the "
            "middle of one can hold readers up.",
            default=10000,
            unit="ms",
            validator=at_least(1000),
        ),
        # Task hosts
        _HOSTS.integer(
            "processes",
            "Task host processes; by default one per core, 0 runs tasks in the control process (for a debugger). "
            "The command line's --processes goes before it.",
            default=None,
            validator=_check_processes,
        ),
        _HOSTS.integer(
            "task.host.stuck.ms",
            "A task host whose event loop has not answered for this long is dumped into the log, killed and replaced.",
            default=10000,
            unit="ms",
            validator=at_least(100),
        ),
        _HOSTS.low.integer(
            "task.host.restart.backoff.ms",
            "Pause before a task whose host died starts again; doubles with each further time.",
            default=500,
            unit="ms",
            validator=at_least(0),
        ),
        _HOSTS.low.integer(
            "task.host.restart.backoff.max.ms",
            "The longest pause before a task whose host died starts again.",
            default=60000,
            unit="ms",
            validator=at_least(0),
        ),
        _HOSTS.low.integer(
            "task.host.crash.limit",
            "A task that was on the CPU or alone in this number of hosts that died within ten minutes fails, until it is "
            "restarted by hand.",
            default=5,
            validator=at_least(1),
        ),
        _HOSTS.low.long(
            "task.shutdown.graceful.timeout.ms",
            "How long a task may take to stop; then it is abandoned. Each task has this time, all stop at once.",
            default=5000,
            unit="ms",
            validator=at_least(0),
        ),
        _HOSTS.low.integer(
            "validate.timeout.ms",
            "How long a connector may take to validate a configuration before REST answers an error.",
            default=30000,
            unit="ms",
            validator=at_least(100),
        ),
        _HOSTS.low.integer(
            "drain.timeout.ms",
            "How long a worker that is asked to stop waits until others have taken over its tasks.",
            default=20000,
            unit="ms",
            validator=at_least(0),
        ),
        *WORKER_KEYS,
        # Logs and metrics
        _LOGS.low.string(
            "log.format",
            "Form of log lines: text, or json with an object a line.",
            default="text",
            validator=one_of("text", "json"),
        ),
        _LOGS.low.string(
            "log.level",
            "Level of the root logger at start; PUT /admin/loggers changes levels at run time.",
            default="INFO",
            validator=one_of("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF", ignore_case=True),
        ),
        _LOGS.low.strings(
            "metrics.families",
            "Name families of the Prometheus exposition: A (Strimzi's dashboards), B (Confluent's and Aiven's), C "
            "(Strimzi's metrics reporter), D (Debezium's). docs/metrics.md says which dashboard needs which.",
            default=["A", "D"],
            example="A,B,D",
        ),
        _LOGS.low.boolean(
            "metrics.jvm.names",
            "Whether memory, threads and garbage collection of the worker's Python processes are also shown under the "
            "names that dashboards ask a JVM for (jvm_memory_used_bytes ...).",
            default=True,
        ),
        _LOGS.low.integer(
            "metrics.clients.max",
            "Kafka clients of a kind (producer, consumer, admin) with series of their own; further ones share the "
            "series other. Each source task has a producer.",
            default=100,
            validator=at_least(1),
        ),
        _LOGS.low.string(
            "metrics.recording.level",
            "Accepted for Kafka Connect's property files; everything is recorded.",
            default="INFO",
            validator=one_of("INFO", "DEBUG", "TRACE"),
        ),
        # Security
        _SECURITY.string(
            "security.protocol",
            "How to talk to brokers. The sasl.* and ssl.* properties of the Java clients set it up; stores are PEM or "
            "PKCS12.",
            default="PLAINTEXT",
            validator=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", ignore_case=True),
        ),
    ]
)
