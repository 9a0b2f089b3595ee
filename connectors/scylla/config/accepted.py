"""Options of the Java connector and of Debezium that are accepted and have nothing to set here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.options import ConfigKey, ConfigType, Importance, KeyGroup, at_least

if TYPE_CHECKING:
    from connectors.options import Validator

_ACCEPTED: Final = KeyGroup("Accepted for compatibility")


def _accept_option(
    name: str,
    kind: ConfigType,
    default: Any,
    description: str,
    *,
    unit: str = "",
    validator: Validator | None = None,
    aliases: tuple[str, ...] = (),
) -> ConfigKey:
    """An option of the Java connector or of Debezium that has nothing to set here."""
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        unit=unit,
        validator=validator,
        importance=Importance.LOW,
        group=_ACCEPTED.name,
        aliases=aliases,
        doc=f"Accepted for compatibility and without effect: {description}",
    )


ACCEPTED_KEYS: Final = (
    _accept_option(
        "max.queue.size.in.bytes",
        ConfigType.LONG,
        0,
        "what a task holds is bounded by max.queue.size and the size of pages.",
        unit="bytes",
    ),
    _accept_option(
        "poll.interval.ms",
        ConfigType.LONG,
        500,
        "records are handed over as they come.",
        unit="ms",
        validator=at_least(0),
    ),
    _accept_option(
        "cdc.incomplete.task.timeout.ms",
        ConfigType.LONG,
        15_000,
        "images are joined within a change, nothing waits for another one.",
        unit="ms",
        validator=at_least(1),
    ),
    _accept_option(
        "worker.shared.session.enabled",
        ConfigType.BOOLEAN,
        False,
        "tasks of a process always share a session if they connect alike.",
    ),
    _accept_option(
        "worker.pooling.core.pool.local",
        ConfigType.INT,
        1,
        "the driver holds one connection per node, or per shard.",
        unit="connections",
        validator=at_least(0),
    ),
    _accept_option(
        "worker.pooling.max.pool.local",
        ConfigType.INT,
        1,
        "see worker.pooling.core.pool.local.",
        unit="connections",
        validator=at_least(0),
    ),
    _accept_option(
        "worker.pooling.max.queue.size",
        ConfigType.INT,
        256,
        "queries in flight are bounded before they reach the driver.",
        unit="requests",
        validator=at_least(0),
    ),
    _accept_option(
        "worker.pooling.max.requests.per.connection",
        ConfigType.INT,
        256,
        "see scylla.max.queries.in.flight.",
        unit="requests",
        validator=at_least(0),
    ),
    _accept_option(
        "worker.pooling.pool.timeout.ms",
        ConfigType.INT,
        5_000,
        "see scylla.query.timeout.ms.",
        unit="ms",
        validator=at_least(0),
    ),
    _accept_option("scylla.worker.config", ConfigType.STRING, None, "tasks get their streams in another way."),
    _accept_option(
        "topic.heartbeat.prefix",
        ConfigType.STRING,
        "__debezium-heartbeat",
        "no heartbeat records are written.",
        aliases=("heartbeat.topics.prefix",),
    ),
    _accept_option(
        "topic.naming.strategy",
        ConfigType.STRING,
        None,
        "topics are prefix.keyspace.table; transforms can rename them.",
    ),
    _accept_option("sourceinfo.struct.maker", ConfigType.STRING, None, "the form of source is fixed."),
    _accept_option("schema.name.adjustment.mode", ConfigType.STRING, "none", "schema names are not changed."),
    _accept_option("field.name.adjustment.mode", ConfigType.STRING, "none", "field names are not changed."),
    _accept_option("binary.handling.mode", ConfigType.STRING, "bytes", "blobs are bytes."),
    _accept_option("event.processing.failure.handling.mode", ConfigType.STRING, "fail", "see errors.tolerance."),
    _accept_option("retriable.restart.connector.wait.ms", ConfigType.LONG, 10_000, "the runtime backs off.", unit="ms"),
    _accept_option(
        "errors.max.retries",
        ConfigType.INT,
        -1,
        "the runtime retries until the connector is stopped.",
        unit="tries",
    ),
    _accept_option(
        "snapshot.delay.ms",
        ConfigType.LONG,
        0,
        "the stream is read from the start, at the same time as the snapshot.",
        unit="ms",
    ),
    _accept_option("provide.transaction.metadata", ConfigType.BOOLEAN, False, "Scylla has no transactions over rows."),
    _accept_option(
        "custom.metric.tags", ConfigType.STRING, None, "metrics carry the connector's name and the task's number."
    ),
)
