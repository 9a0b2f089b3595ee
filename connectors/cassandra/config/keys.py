"""The options of the Cassandra connector: one declaration each. Debezium's names keep their meaning."""

from __future__ import annotations

from typing import Any, Final

from connectors.cassandra.config.rules import (
    absolute_path,
    contact_points,
    parse_directories,
    regex_list,
    shard_of,
    topic_prefix,
    validate_with,
)
from connectors.cql.options import ClusterWording, cluster_keys
from connectors.formats.masks.options import SOURCE_KEYS as MASK_KEYS
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, KeyGroup, Width, at_least, between, words
from connectors.source_options.new_tables import new_tables_key
from connectors.source_options.number_keys import decimals_key, logical_types_key, varints_key
from connectors.source_options.table_heartbeats import table_heartbeats_key

#: The connection to the cluster and its options.
CLUSTER_KEYS: Final = cluster_keys(
    "cassandra.",
    ClusterWording(
        user="username",
        user_aliases=("cassandra.user",),
        user_example="millrace",
        user_rights="on the tables for snapshots, and on system_views.settings for the checks of the server's settings.",
        compressions=words("none", "lz4"),
        compression="CPU on both sides and helps snapshots over a slow network.",
        certificate="; in place of the key store",
        verify_hosts=True,
    ),
)
# Connection
HOSTS: Final = "cassandra.hosts"
PORT: Final = "cassandra.port"
USER: Final = CLUSTER_KEYS.user.name
PASSWORD: Final = CLUSTER_KEYS.password.name
LOCAL_DC: Final = CLUSTER_KEYS.local_dc.name
COMPRESSION: Final = CLUSTER_KEYS.compression.name
QUERY_TIMEOUT: Final = CLUSTER_KEYS.query_timeout.name
CONNECT_TIMEOUT: Final = CLUSTER_KEYS.connect_timeout.name
SSL: Final = CLUSTER_KEYS.tls.name
TRUSTSTORE: Final = CLUSTER_KEYS.truststore.name
TRUSTSTORE_PASSWORD: Final = CLUSTER_KEYS.truststore_password.name
KEYSTORE: Final = CLUSTER_KEYS.keystore.name
KEYSTORE_PASSWORD: Final = CLUSTER_KEYS.keystore_password.name
CERTIFICATE: Final = CLUSTER_KEYS.certificate.name
PRIVATE_KEY: Final = CLUSTER_KEYS.private_key.name
CIPHERS: Final = CLUSTER_KEYS.ciphers.name
# Log
DIRECTORIES: Final = "cdc.raw.directories"
READ_MODE: Final = "commit.log.read.mode"
ERROR_POLICY: Final = "commit.log.error.policy"
ERROR_DIRECTORY: Final = "commit.log.error.directory"
DELETE: Final = "commit.log.delete"
POLL: Final = "cdc.dir.poll.interval.ms"
BATCH: Final = "max.batch.size"
BATCH_BYTES: Final = "max.batch.bytes"
HEARTBEAT: Final = "heartbeat.interval.ms"
# Tables
TABLES: Final = "table.include.list"
NOT_TABLES: Final = "table.exclude.list"
REFRESH: Final = "schema.refresh.interval.ms"
# Events
PREFIX: Final = "topic.prefix"
CLUSTER: Final = "cassandra.cluster.name"
OUTPUT: Final = "output.format"
TOMBSTONES: Final = "tombstones.on.delete"
EXTENDED: Final = "cassandra.debezium.extended"
LOGICAL: Final = "cassandra.logical.types"
EXCLUDED: Final = "field.exclude.list"
# Snapshot
SNAPSHOT: Final = "snapshot.mode"
SNAPSHOT_CONSISTENCY: Final = "snapshot.consistency"
SNAPSHOT_ROWS: Final = "snapshot.chunk.rows"
SNAPSHOT_RATE: Final = "snapshot.rows.per.second"
SNAPSHOT_THREADS: Final = "snapshot.max.threads"
#: Of one task; set by the connector, not by users: the node whose log it reads (none: a task for snapshots only), and its
#: share of snapshots.
TASK_NODE: Final = "cassandra.task.node"
TASK_SHARD: Final = "cassandra.task.shard"

DEFAULT_PORT: Final = 9042
OUTPUTS: Final = ("partition-update", "partition-update-raw", "debezium")
CONSISTENCY_LEVELS: Final = ("ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "LOCAL_ONE")

_CONNECTION: Final = KeyGroup("Connection")
_LOG: Final = KeyGroup("Commit log")
_TABLES: Final = KeyGroup("Tables")
_EVENTS: Final = KeyGroup("Events")
_SNAPSHOT: Final = KeyGroup("Snapshot")
_ACCEPTED: Final = KeyGroup("Accepted for compatibility")

#: Debezium's options that have nothing to set here: name -> (type, default, why).
ACCEPTED: Final[dict[str, tuple[ConfigType, Any, str]]] = {
    "cassandra.config": (ConfigType.STRING, None, "the server's configuration is asked for over CQL"),
    "cassandra.driver.config.file": (
        ConfigType.STRING,
        "application.conf",
        "hosts and credentials are options of their own",
    ),
    "cassandra.node.id": (ConfigType.STRING, None, "a node is called by its label in cdc.raw.directories"),
    "http.port": (ConfigType.INT, 8000, "the worker's REST interface tells health and progress"),
    "commit.log.relocation.dir": (ConfigType.STRING, None, "segments are read and deleted where they are"),
    "commit.log.relocation.dir.poll.interval.ms": (ConfigType.INT, 10_000, "segments are not moved"),
    "commit.log.post.processing.enabled": (ConfigType.BOOLEAN, True, "see commit.log.delete"),
    "commit.log.error.reprocessing.enabled": (ConfigType.BOOLEAN, False, "see commit.log.error.policy"),
    "commit.log.real.time.processing.enabled": (ConfigType.BOOLEAN, False, "segments are always read while they grow"),
    "commit.log.marked.complete.poll.interval.ms": (ConfigType.INT, 10_000, "see cdc.dir.poll.interval.ms"),
    "commit.log.transfer.class": (
        ConfigType.CLASS,
        "io.debezium.connector.cassandra.BlackHoleCommitLogTransfer",
        "segments are not archived; to keep them set commit.log.delete=false and move them yourself",
    ),
    "commit.log.processor.shutdown.timeout.seconds": (ConfigType.INT, 5, "the worker bounds a stop"),
    "latest.commit.log.only": (ConfigType.BOOLEAN, False, "segments are always read in their order"),
    "offset.backing.store.dir": (ConfigType.STRING, None, "positions are saved in Kafka"),
    "offset.flush.interval.ms": (ConfigType.INT, 0, "it is an option of the worker"),
    "max.offset.flush.size": (ConfigType.INT, 100, "see the worker's offset.flush.interval.ms"),
    "num.of.change.event.queues": (ConfigType.INT, 1, "every node has a task of its own"),
    "event.order.guarantee.mode": (ConfigType.STRING, "commitlog_file", "events always come in the order of the log"),
    "max.queue.size": (ConfigType.INT, 8_192, "what a task holds is bounded by max.batch.size and max.batch.bytes"),
    "max.queue.size.in.bytes": (ConfigType.LONG, 0, "see max.batch.bytes"),
    "poll.interval.ms": (ConfigType.LONG, 1_000, "records are handed over as they come"),
    "snapshot.scan.interval.ms": (ConfigType.INT, 10_000, "new tables are noticed by schema.refresh.interval.ms"),
    "snapshot.fetch.size": (ConfigType.INT, 0, "see snapshot.chunk.rows"),
    "snapshot.delay.ms": (ConfigType.LONG, 0, "the log is read at the same time as the snapshot"),
    "tracing.enabled": (ConfigType.BOOLEAN, False, "there is no tracing"),
    "sourceinfo.struct.maker": (ConfigType.CLASS, None, "the form of source is fixed"),
    "topic.naming.strategy": (ConfigType.CLASS, None, "topics are prefix.keyspace.table; transforms can rename them"),
    "schema.name.adjustment.mode": (ConfigType.STRING, "none", "schema names are not changed"),
    "field.name.adjustment.mode": (ConfigType.STRING, "none", "field names are not changed"),
    "topic.heartbeat.prefix": (ConfigType.STRING, "__debezium-heartbeat", "there is no heartbeat topic"),
    "provide.transaction.metadata": (ConfigType.BOOLEAN, False, "Cassandra has no transactions over rows"),
    "event.processing.failure.handling.mode": (ConfigType.STRING, "fail", "see errors.tolerance"),
    "retriable.restart.connector.wait.ms": (ConfigType.LONG, 10_000, "the runtime backs off"),
    "errors.max.retries": (ConfigType.INT, -1, "the runtime retries until the connector is stopped"),
    "custom.metric.tags": (
        ConfigType.STRING,
        None,
        "metrics carry the connector's name, the task's number and the node",
    ),
}
#: Units of those of them that are numbers: by name, or by what the name ends in.
_UNITS: Final = {
    "http.port": "port",
    "max.offset.flush.size": "records",
    "num.of.change.event.queues": "queues",
    "max.queue.size": "records",
    "snapshot.fetch.size": "rows",
    "errors.max.retries": "tries",
    "ms": "ms",
    "seconds": "s",
    "bytes": "bytes",
}
#: Families of options for parts that don't exist here: prefix -> why they have no effect.
FAMILIES: Final = {
    "kafka.producer.": "the producer's settings are producer.override.*",
    "commit.log.transfer.": "segments are not archived",
    "tracing.": "there is no tracing",
    "signal.": "snapshots are asked for with POST /connectors/NAME/snapshots",
    "notification.": "no notifications are sent; GET /connectors/NAME/snapshots tells progress",
    "schema.history.": "definitions of tables are kept with the connector's offsets",
}
#: Families in which every option is known: another one is a slip.
COMPLETE: Final = ("cassandra.", "cdc.", "commit.log.", "snapshot.", "table.", "schema.", "max.", "output.")


CONFIG: Final = ConfigDef(
    [
        _CONNECTION.high.strings(
            HOSTS,
            "Nodes that are asked first, as a comma-separated list of host or host:port; the others are learned from "
            "them. An IPv6 address with a port needs brackets. They are asked for definitions of tables and for "
            "snapshots; changes come from the nodes' directories.",
            validator=validate_with(lambda value: contact_points(value, DEFAULT_PORT)),
            width=Width.LONG,
            display_name="Hosts",
            example="10.0.0.1,10.0.0.2:9142",
        ),
        _CONNECTION.high.integer(
            PORT,
            "Port of hosts that are named without one.",
            default=DEFAULT_PORT,
            validator=between(1, 65_535),
            width=Width.SHORT,
            display_name="Port",
            unit="port",
        ),
        CLUSTER_KEYS.user,
        CLUSTER_KEYS.password,
        CLUSTER_KEYS.local_dc,
        CLUSTER_KEYS.compression,
        CLUSTER_KEYS.query_timeout,
        CLUSTER_KEYS.connect_timeout,
        CLUSTER_KEYS.tls,
        CLUSTER_KEYS.truststore,
        CLUSTER_KEYS.truststore_password,
        CLUSTER_KEYS.keystore,
        CLUSTER_KEYS.keystore_password,
        CLUSTER_KEYS.certificate,
        CLUSTER_KEYS.private_key,
        CLUSTER_KEYS.ciphers,
        CLUSTER_KEYS.verify_hosts,
        _LOG.high.strings(
            DIRECTORIES,
            "The cdc_raw directory of every Cassandra node, as a comma-separated list of LABEL=PATH. Each gets a task, "
            "which runs on a worker that sees the directory: one whose host, id or label node is LABEL, or that has a "
            "label named LABEL (node.labels=cass-2=yes). The label is also the node's name in positions, events and "
            "metrics: don't change it. One path may stand without a label: its task runs anywhere.",
            validator=validate_with(parse_directories),
            width=Width.LONG,
            display_name="Directories of the nodes",
            example="cass-1=/var/lib/cassandra/cdc_raw,cass-2=/mnt/cass-2/cdc_raw",
        ),
        _LOG.high.string(
            READ_MODE,
            "How far a segment is read. idx: up to what the node has synced to its disk (commitlog_sync_period, 10 s by "
            "the server's default). marker: up to the newest sync marker in the file, about 100 ms after a write with "
            "commitlog_sync=periodic; such a change can be lost on that node if its machine crashes. Compressed "
            "segments grow at the sync only, in both modes.",
            default="idx",
            validator=words("idx", "marker"),
            display_name="Read mode",
        ),
        _LOG.high.string(
            ERROR_POLICY,
            "What follows a place in a segment that can't be read, after everything before it was delivered. stop: the "
            "task fails. skip: the entry is passed over (or what follows it, up to the next readable marker), with an "
            "error in the log and in the metrics. The segment is kept aside in both cases.",
            default="stop",
            validator=words("stop", "skip"),
            display_name="After damage",
        ),
        _LOG.low.string(
            ERROR_DIRECTORY,
            "Where damaged segments are kept, as hard links: on the same file system as cdc_raw. With several nodes on a "
            "worker each has a folder of its name in it. Not set: cdc_raw_aside next to each cdc_raw.",
            default=None,
            validator=absolute_path,
            width=Width.LONG,
            display_name="Directory for damaged segments",
            example="/var/lib/cassandra/cdc_raw_aside",
        ),
        _LOG.boolean(
            DELETE,
            "Whether segments are deleted from cdc_raw once everything in them is in Kafka and the position is saved. "
            "With false somebody else has to do it: at cdc_total_space the node refuses writes to tables with cdc.",
            default=True,
            display_name="Delete segments",
        ),
        _LOG.low.integer(
            POLL,
            "How often the directory is looked at when nothing is new. Right after a change it is looked at sooner.",
            default=100,
            unit="ms",
            validator=between(1, 60_000),
            display_name="Poll interval",
        ),
        _LOG.low.integer(
            BATCH,
            "Records that a task hands over at once, about.",
            default=2_048,
            unit="records",
            validator=between(1, 100_000),
            display_name="Batch size",
        ),
        _LOG.low.integer(
            BATCH_BYTES,
            "Bytes of the log that a task reads at once, about; a single mutation may be larger.",
            default=1 << 20,
            unit="bytes",
            validator=between(4_096, 64 << 20),
            display_name="Batch bytes",
        ),
        _LOG.low.integer(
            HEARTBEAT,
            "How often the position is saved while the log has nothing for captured tables, and with heartbeat.to.tables a "
            "heartbeat record is sent. Others are not written.",
            default=10_000,
            unit="ms",
            validator=at_least(100),
            display_name="Heartbeat interval",
        ),
        table_heartbeats_key(_LOG.name, ums=False),
        _TABLES.high.strings(
            TABLES,
            "Tables to capture, as a comma-separated list of regular expressions (Java's syntax) that match whole names "
            "of the form keyspace.table in any case. Not set: all. Of these, the ones with cdc = true are captured. Not "
            "together with table.exclude.list.",
            default=None,
            validator=regex_list,
            width=Width.LONG,
            display_name="Tables",
            example=r"shop\.orders,shop\.customer.*",
        ),
        _TABLES.strings(
            NOT_TABLES,
            "Tables not to capture, as regular expressions in the form of table.include.list.",
            default=None,
            validator=regex_list,
            width=Width.LONG,
            display_name="Tables left out",
        ),
        _TABLES.low.integer(
            REFRESH,
            "How often the cluster's schema version is asked for; definitions of tables are read when it has changed, "
            "and at once when the log names a table or column that is not known. A table that is created and dropped "
            "within it can't be read.",
            default=1_000,
            unit="ms",
            validator=at_least(100),
            display_name="Schema check",
        ),
        _EVENTS.high.string(
            PREFIX,
            "Name of the cluster in topics, positions, schemas and events. A table's events go to the topic "
            "prefix.keyspace.table.",
            validator=topic_prefix,
            width=Width.MEDIUM,
            display_name="Topic prefix",
            example="shop",
        ),
        _EVENTS.high.string(
            OUTPUT,
            "What events look like. partition-update: everything a mutation says, decoded, one message per partition "
            "update. partition-update-raw: the same in the bytes of the log, the cheapest; the materializer reads both. "
            "debezium: an event per row as Debezium's Cassandra connector writes it, for a replication factor of 1: with "
            "more, every replica gives each event.",
            default="partition-update",
            validator=words(*OUTPUTS),
            display_name="Output format",
        ),
        _EVENTS.low.string(
            CLUSTER,
            "cluster in the source block of the debezium form. Not set: topic.prefix.",
            default=None,
            width=Width.MEDIUM,
            display_name="Cluster name",
            example="Test Cluster",
        ),
        _EVENTS.boolean(
            TOMBSTONES,
            "Debezium form: whether the delete of a row is followed by a record without a value, which lets a compacted "
            "topic forget the key. Compaction loses changes in that form: an event has only the cells that were "
            "written.",
            default=False,
            display_name="Tombstones",
        ),
        _EVENTS.low.boolean(
            EXTENDED,
            "Debezium form: whether to say also what Debezium's connector leaves out: changes of static columns, and of "
            "collections whether they were overwritten and which elements were removed. With false these are counted "
            "in cassandra_dropped_changes_total.",
            default=True,
            display_name="Extended Debezium form",
        ),
        decimals_key("double", _EVENTS.name),
        varints_key("long", _EVENTS.name, "long", "precise", "string"),
        logical_types_key(LOGICAL, _EVENTS.name, "Debezium's connector", "time is io.debezium.time.NanoTime,"),
        _EVENTS.strings(
            EXCLUDED,
            "Debezium form: columns to leave out, as a comma-separated list of keyspace.table.column; columns of the key "
            "stay. The other forms have all columns: mask them by transforms or in a job.",
            default=[],
            width=Width.LONG,
            display_name="Columns left out",
            example="shop.customers.phone",
        ),
        _SNAPSHOT.high.string(
            SNAPSHOT,
            "When what tables hold is read, at the same time as the log. initial: once, of the captured tables. always: again "
            "at every start of the tasks. never: only on request (POST /connectors/NAME/snapshots).",
            default="initial",
            validator=words("initial", "always", "never"),
            display_name="Snapshot",
        ),
        new_tables_key(_SNAPSHOT.name),
        _SNAPSHOT.string(
            SNAPSHOT_CONSISTENCY,
            "Consistency level of a snapshot's queries.",
            default="QUORUM",
            validator=words(*CONSISTENCY_LEVELS),
            display_name="Consistency level",
            example="LOCAL_QUORUM",
        ),
        _SNAPSHOT.low.integer(
            SNAPSHOT_ROWS,
            "Rows of a chunk, about: what is read at once and, after a restart, at most again.",
            default=1_000,
            unit="rows",
            validator=between(1, 100_000),
            display_name="Rows per chunk",
        ),
        _SNAPSHOT.low.integer(
            SNAPSHOT_RATE,
            "Rows that a task's snapshots read per second at the most; 0: no limit.",
            default=0,
            unit="rows/s",
            validator=at_least(0),
            display_name="Rows per second",
        ),
        _SNAPSHOT.low.integer(
            SNAPSHOT_THREADS,
            "Chunks that a task reads at the same time; fewer while the servers are slow.",
            default=2,
            unit="chunks",
            validator=between(1, 64),
            display_name="Concurrent chunks",
        ),
        *MASK_KEYS,
        *(
            ConfigKey(
                name=name,
                type=kind,
                default=default,
                importance=Importance.LOW,
                group=_ACCEPTED.name,
                unit=_UNITS.get(name) or _UNITS.get(name.rpartition(".")[2], ""),
                doc=f"Accepted for compatibility and without effect: {reason}.",
            )
            for name, (kind, default, reason) in ACCEPTED.items()
        ),
        ConfigKey(
            name=TASK_NODE,
            type=ConfigType.STRING,
            default=None,
            internal=True,
            doc="The node whose log the task reads; set by the connector.",
        ),
        ConfigKey(
            name=TASK_SHARD,
            type=ConfigType.STRING,
            default="0/1",
            validator=validate_with(shard_of),
            internal=True,
            doc="The task's share of snapshots; set by the connector.",
        ),
    ]
)
