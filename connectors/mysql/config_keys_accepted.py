"""Options of Debezium's that are accepted and have nothing to set here, and those that are refused."""

from __future__ import annotations

from typing import Final

from connectors.mysql.config_keys_rules import accepted, not_negative, positive
from connectors.options import ConfigType, words

_LINEAGE: Final = "lineage is not reported to OpenLineage."

KEYS: Final = (
    accepted(
        "schema.history.internal",
        ConfigType.CLASS,
        "io.debezium.storage.kafka.history.KafkaSchemaHistory",
        "no schema history topic is needed: structures of tables come with the binlog.",
    ),
    accepted("schema.history.internal.kafka.topic", ConfigType.STRING, None, "no schema history topic is needed."),
    accepted(
        "schema.history.internal.kafka.bootstrap.servers", ConfigType.STRING, None, "no schema history topic is needed."
    ),
    accepted(
        "schema.history.internal.skip.unparseable.ddl",
        ConfigType.BOOLEAN,
        False,
        "a statement that is not understood never stops the connector.",
    ),
    accepted(
        "schema.history.internal.store.only.captured.tables.ddl",
        ConfigType.BOOLEAN,
        False,
        "no schema history is stored.",
    ),
    accepted(
        "schema.history.internal.store.only.captured.databases.ddl",
        ConfigType.BOOLEAN,
        False,
        "no schema history is stored.",
    ),
    accepted("database.jdbc.driver", ConfigType.CLASS, "com.mysql.cj.jdbc.Driver", "there is no JDBC here."),
    accepted("database.protocol", ConfigType.STRING, "jdbc:mysql", "there is no JDBC here."),
    accepted(
        "database.query.timeout.ms",
        ConfigType.INT,
        600_000,
        "queries of full pulls are cut into chunks that end soon.",
        unit="ms",
        validator=not_negative,
    ),
    accepted(
        "streaming.delay.ms",
        ConfigType.LONG,
        0,
        "the stream does not wait for full pulls.",
        unit="ms",
        validator=not_negative,
    ),
    accepted(
        "max.queue.size.in.bytes",
        ConfigType.LONG,
        0,
        "what a task holds is bounded by max.queue.size.",
        unit="bytes",
        validator=not_negative,
    ),
    accepted(
        "min.row.count.to.stream.results",
        ConfigType.INT,
        1_000,
        "results are always read as they come.",
        unit="rows",
        validator=not_negative,
    ),
    accepted(
        "query.fetch.size",
        ConfigType.INT,
        0,
        "results are always read as they come.",
        unit="rows",
        validator=not_negative,
    ),
    accepted(
        "use.nongraceful.disconnect", ConfigType.BOOLEAN, False, "a connection to the binlog is always simply closed."
    ),
    accepted("snapshot.locking.mode.custom.name", ConfigType.STRING, None, "see snapshot.locking.mode."),
    accepted(
        "snapshot.max.threads.multiplier",
        ConfigType.INT,
        1,
        "the size of a chunk is snapshot.chunk.rows.",
        unit="times",
        validator=positive,
    ),
    accepted("legacy.snapshot.max.threads", ConfigType.BOOLEAN, False, "tables are always divided into chunks."),
    accepted(
        "snapshot.scan.all.columns.force", ConfigType.BOOLEAN, False, "only the tables that are read are looked at."
    ),
    accepted(
        "incremental.snapshot.allow.schema.changes",
        ConfigType.BOOLEAN,
        False,
        "a table's structure may always change while it is read.",
    ),
    accepted(
        "incremental.snapshot.watermarking.strategy",
        ConfigType.STRING,
        "INSERT_INSERT",
        "nothing is written into the source for a full pull.",
        validator=words("insert_insert", "insert_delete"),
    ),
    accepted("read.only", ConfigType.BOOLEAN, False, "nothing is written into the source for a full pull."),
    accepted(
        "signal.poll.interval.ms",
        ConfigType.LONG,
        5_000,
        "signals are taken as they come.",
        unit="ms",
        validator=positive,
    ),
    accepted(
        "signal.kafka.poll.timeout.ms",
        ConfigType.INT,
        0,
        "signals are taken as they come.",
        unit="ms",
        validator=not_negative,
    ),
    accepted(
        "signal.file",
        ConfigType.STRING,
        "file-signals.txt",
        "signals are not read from files; use the signal table, a topic or POST /connectors/NAME/snapshots.",
    ),
    accepted(
        "notification.enabled.channels",
        ConfigType.LIST,
        [],
        "no notifications are sent; progress is in snapshot.progress.topic, in the metrics and in GET "
        "/connectors/NAME/snapshots.",
    ),
    accepted("notification.sink.topic.name", ConfigType.STRING, None, "see notification.enabled.channels."),
    accepted(
        "transaction.metadata.factory",
        ConfigType.CLASS,
        "io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory",
        "the form of transaction metadata is fixed.",
    ),
    accepted("sourceinfo.struct.maker", ConfigType.CLASS, None, "the form of source is fixed."),
    accepted(
        "topic.cache.size",
        ConfigType.INT,
        10_000,
        "names of topics are made once per table.",
        unit="topics",
        validator=not_negative,
    ),
    accepted("retriable.restart.connector.wait.ms", ConfigType.LONG, 10_000, "the runtime backs off.", unit="ms"),
    accepted(
        "errors.max.retries",
        ConfigType.INT,
        -1,
        "the runtime tries again until the connector is stopped.",
        unit="tries",
    ),
    accepted("custom.metric.tags", ConfigType.LIST, None, "metrics carry the connector's name and the task's number."),
    accepted("custom.retriable.exception", ConfigType.STRING, None, "which errors pass is known."),
    accepted("custom.sanitize.pattern", ConfigType.STRING, None, "passwords never appear in logs."),
    accepted(
        "log.position.check.enable",
        ConfigType.BOOLEAN,
        True,
        "a position that the server no longer has is always noticed.",
    ),
    accepted("advanced.metrics.enable", ConfigType.BOOLEAN, False, "all metrics are always there."),
    accepted(
        "connection.validation.timeout.ms",
        ConfigType.LONG,
        60_000,
        "the worker bounds a validation.",
        unit="ms",
        validator=positive,
    ),
    accepted(
        "executor.shutdown.timeout.ms",
        ConfigType.LONG,
        4_000,
        "the worker bounds a stop.",
        unit="ms",
        validator=positive,
    ),
    accepted(
        "unavailable.value.placeholder",
        ConfigType.STRING,
        "__debezium_unavailable_value",
        "a column that is not in the row's image is null, or left out of UMS rows.",
    ),
    accepted("openlineage.integration.enabled", ConfigType.BOOLEAN, False, _LINEAGE),
    accepted("openlineage.integration.config.file.path", ConfigType.STRING, "./openlineage.yml", _LINEAGE),
    accepted("openlineage.integration.job.namespace", ConfigType.STRING, None, _LINEAGE),
    accepted(
        "openlineage.integration.job.description", ConfigType.STRING, "Debezium change data capture job", _LINEAGE
    ),
    accepted("openlineage.integration.job.tags", ConfigType.LIST, None, _LINEAGE),
    accepted("openlineage.integration.job.owners", ConfigType.LIST, None, _LINEAGE),
    accepted(
        "openlineage.integration.dataset.kafka.bootstrap.servers",
        ConfigType.STRING,
        None,
        _LINEAGE,
        aliases=("openlineage.integration.dataset.kafka.bootstrap.server",),
    ),
)

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
