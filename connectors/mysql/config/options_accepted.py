"""Debezium's options that have no effect here, and those that are refused because the result would be other data."""

from __future__ import annotations

from typing import Any, Final

from connectors.mysql.config.validators import check_positive, not_negative
from connectors.options import ConfigKey, ConfigType, KeyGroup, words

_ACCEPTED: Final = KeyGroup("Accepted for compatibility").low
_REFUSED: Final = KeyGroup("Refused").low
_NO_EFFECT: Final = "Accepted for compatibility and without effect: "
_BOOLEAN, _CLASS, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.CLASS, ConfigType.INT, ConfigType.LONG
_LIST, _STRING = ConfigType.LIST, ConfigType.STRING
_LINEAGE: Final = "lineage is not reported to OpenLineage."

#: Options whose Java code would change the data: prefix or name -> what to do instead.
REFUSED: Final = {
    "converters": "custom converters are Java classes; leave the option out, and turn values with transforms or, for their "
    "forms, with decimal.handling.mode, time.precision.mode, bigint.unsigned.handling.mode or "
    "binary.handling.mode",
    "post.processors": "post processors are Java classes; leave the option out, and use transforms",
    "snapshot.mode.custom.name": "custom snapshot modes are Java classes; use another snapshot.mode",
    "snapshot.query.mode.custom.name": "custom snapshot queries are Java classes; use snapshot.select.statement.overrides",
}
#: Families of options that are given to parts which don't exist here: prefix -> why they have no effect.
FAMILIES: Final = {
    "schema.history.internal.": "no schema history topic is needed: structures of tables come with the binlog.",
    "database.history.": "no schema history topic is needed: structures of tables come with the binlog.",
    "driver.": "there is no JDBC here.",
    "signal.consumer.": "the channel kafka reads with the default settings.",
    "notification.": "no notifications are sent.",
    "openlineage.": _LINEAGE,
}
#: Families in which every option is known: another one is a slip, or of another version.
COMPLETE: Final = (
    "database.",
    "table.",
    "snapshot.",
    "signal.",
    "heartbeat.",
    "gtid.",
    "binlog.",
    "incremental.",
    "topic.",
    "message.",
    "column.",
    "datatype.",
    "ums.",
    "connect.",
    "event.",
    "schema.",
    "field.",
    "guardrail.",
    "charset.",
)


def _declare_accepted(name: str, kind: ConfigType, default: Any, note: str, **rest: Any) -> ConfigKey:
    """An option of Debezium's that has nothing to set here: named in a warning where it is set and not the default."""
    return _ACCEPTED.declare(kind, name, f"{_NO_EFFECT}{note}", default=default, **rest)


ACCEPTED_KEYS: Final = (
    _declare_accepted(
        "schema.history.internal",
        _CLASS,
        "io.debezium.storage.kafka.history.KafkaSchemaHistory",
        "no schema history topic is needed: structures of tables come with the binlog.",
    ),
    _declare_accepted("schema.history.internal.kafka.topic", _STRING, None, "no schema history topic is needed."),
    _declare_accepted(
        "schema.history.internal.kafka.bootstrap.servers", _STRING, None, "no schema history topic is needed."
    ),
    _declare_accepted(
        "schema.history.internal.skip.unparseable.ddl",
        _BOOLEAN,
        False,
        "a statement that is not understood never stops the connector.",
    ),
    _declare_accepted(
        "schema.history.internal.store.only.captured.tables.ddl", _BOOLEAN, False, "no schema history is stored."
    ),
    _declare_accepted(
        "schema.history.internal.store.only.captured.databases.ddl", _BOOLEAN, False, "no schema history is stored."
    ),
    _declare_accepted("database.jdbc.driver", _CLASS, "com.mysql.cj.jdbc.Driver", "there is no JDBC here."),
    _declare_accepted("database.protocol", _STRING, "jdbc:mysql", "there is no JDBC here."),
    _declare_accepted(
        "database.query.timeout.ms",
        _INT,
        600_000,
        "queries of snapshots are cut into chunks that end soon.",
        unit="ms",
        validator=not_negative,
    ),
    _declare_accepted(
        "streaming.delay.ms", _LONG, 0, "the stream does not wait for snapshots.", unit="ms", validator=not_negative
    ),
    _declare_accepted(
        "max.queue.size.in.bytes",
        _LONG,
        0,
        "what a task holds is bounded by max.queue.size.",
        unit="bytes",
        validator=not_negative,
    ),
    _declare_accepted(
        "min.row.count.to.stream.results",
        _INT,
        1_000,
        "results are always read as they come.",
        unit="rows",
        validator=not_negative,
    ),
    _declare_accepted(
        "query.fetch.size", _INT, 0, "results are always read as they come.", unit="rows", validator=not_negative
    ),
    _declare_accepted(
        "use.nongraceful.disconnect", _BOOLEAN, False, "a connection to the binlog is always simply closed."
    ),
    _declare_accepted("snapshot.locking.mode.custom.name", _STRING, None, "see snapshot.locking.mode."),
    _declare_accepted(
        "snapshot.max.threads.multiplier",
        _INT,
        1,
        "the size of a chunk is snapshot.chunk.rows.",
        unit="times",
        validator=check_positive,
    ),
    _declare_accepted("legacy.snapshot.max.threads", _BOOLEAN, False, "tables are always divided into chunks."),
    _declare_accepted(
        "snapshot.scan.all.columns.force", _BOOLEAN, False, "only the tables that are read are looked at."
    ),
    _declare_accepted(
        "incremental.snapshot.allow.schema.changes",
        _BOOLEAN,
        False,
        "a table's structure may always change while it is read.",
    ),
    _declare_accepted(
        "incremental.snapshot.watermarking.strategy",
        _STRING,
        "INSERT_INSERT",
        "nothing is written into the source for a snapshot.",
        validator=words("insert_insert", "insert_delete"),
    ),
    _declare_accepted("read.only", _BOOLEAN, False, "nothing is written into the source for a snapshot."),
    _declare_accepted(
        "signal.poll.interval.ms", _LONG, 5_000, "signals are taken as they come.", unit="ms", validator=check_positive
    ),
    _declare_accepted(
        "signal.kafka.poll.timeout.ms", _INT, 0, "signals are taken as they come.", unit="ms", validator=not_negative
    ),
    _declare_accepted(
        "signal.file",
        _STRING,
        "file-signals.txt",
        "signals are not read from files; use the signal table, a topic or POST /connectors/NAME/snapshots.",
    ),
    _declare_accepted(
        "notification.enabled.channels",
        _LIST,
        [],
        "no notifications are sent; progress is in snapshot.progress.topic, in the metrics and in GET "
        "/connectors/NAME/snapshots.",
    ),
    _declare_accepted("notification.sink.topic.name", _STRING, None, "see notification.enabled.channels."),
    _declare_accepted(
        "transaction.metadata.factory",
        _CLASS,
        "io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory",
        "the form of transaction metadata is fixed.",
    ),
    _declare_accepted("sourceinfo.struct.maker", _CLASS, None, "the form of source is fixed."),
    _declare_accepted(
        "topic.cache.size",
        _INT,
        10_000,
        "names of topics are made once per table.",
        unit="topics",
        validator=not_negative,
    ),
    _declare_accepted("retriable.restart.connector.wait.ms", _LONG, 10_000, "the runtime backs off.", unit="ms"),
    _declare_accepted(
        "errors.max.retries", _INT, -1, "the runtime retries until the connector is stopped.", unit="tries"
    ),
    _declare_accepted("custom.metric.tags", _LIST, None, "metrics carry the connector's name and the task's number."),
    _declare_accepted("custom.retriable.exception", _STRING, None, "which errors pass is known."),
    _declare_accepted("custom.sanitize.pattern", _STRING, None, "passwords never appear in logs."),
    _declare_accepted(
        "log.position.check.enable", _BOOLEAN, True, "a position that the server no longer has is always noticed."
    ),
    _declare_accepted("advanced.metrics.enable", _BOOLEAN, False, "all metrics are always there."),
    _declare_accepted(
        "connection.validation.timeout.ms",
        _LONG,
        60_000,
        "the worker bounds a validation.",
        unit="ms",
        validator=check_positive,
    ),
    _declare_accepted(
        "executor.shutdown.timeout.ms", _LONG, 4_000, "the worker bounds a stop.", unit="ms", validator=check_positive
    ),
    _declare_accepted(
        "unavailable.value.placeholder",
        _STRING,
        "__debezium_unavailable_value",
        "a column that is not in the row's image is null, or left out of UMS rows.",
    ),
    _declare_accepted("openlineage.integration.enabled", _BOOLEAN, False, _LINEAGE),
    _declare_accepted("openlineage.integration.config.file.path", _STRING, "./openlineage.yml", _LINEAGE),
    _declare_accepted("openlineage.integration.job.namespace", _STRING, None, _LINEAGE),
    _declare_accepted("openlineage.integration.job.description", _STRING, "Debezium change data capture job", _LINEAGE),
    _declare_accepted("openlineage.integration.job.tags", _LIST, None, _LINEAGE),
    _declare_accepted("openlineage.integration.job.owners", _LIST, None, _LINEAGE),
    _declare_accepted(
        "openlineage.integration.dataset.kafka.bootstrap.servers",
        _STRING,
        None,
        _LINEAGE,
        aliases=("openlineage.integration.dataset.kafka.bootstrap.server",),
    ),
)

#: Option -> why it has no effect.
NOTES: Final = {key.name: key.doc.removeprefix(_NO_EFFECT) for key in ACCEPTED_KEYS}

REFUSED_KEYS: Final = tuple(
    _REFUSED.string(name, f"Refused, since the result would be other data: {reason}.", default=None)
    for name, reason in REFUSED.items()
)
