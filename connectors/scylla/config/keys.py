"""The options of the Scylla connector: one declaration each. The Java connector's names keep their meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.cql.options import ClusterWording, cluster_keys
from connectors.formats.masks.options import SOURCE_KEYS as MASK_KEYS
from connectors.options import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    KeyGroup,
    Width,
    all_of,
    at_least,
    between,
    complaint,
    invalid,
    non_empty,
    one_of,
    unless_null,
)
from connectors.scylla.config.accepted import ACCEPTED_KEYS
from connectors.scylla.config.names import contact_points, table_names, topic_prefix_problem
from connectors.scylla.events import COMPAT_NAMES
from connectors.source_options.new_tables import new_tables_key
from connectors.source_options.number_keys import decimals_key, logical_types_key, varints_key
from connectors.source_options.table_heartbeats import table_heartbeats_key

if TYPE_CHECKING:
    from connectors.options import Validator

#: The connection to the cluster and its options.
CLUSTER_KEYS: Final = cluster_keys(
    "scylla.",
    ClusterWording(
        user="user",
        user_example="cdc_reader",
        user_rights="on the log tables, on system_distributed, and for a snapshot on the tables.",
        compressions=one_of("none", "lz4", ignore_case=True),
        compression="more of the worker's time than it saves unless the network is slow.",
        query_retry=" with a narrower window",
        certificate_aliases=("scylla.ssl.openssl.keyCertChain",),
        private_key_aliases=("scylla.ssl.openssl.privateKey",),
        ciphers_aliases=("scylla.ssl.cipherSuites",),
        verify_hosts=False,
        verify_hosts_reason=" The Java connector does not ask for it, hence the default.",
    ),
)
# Connection
HOSTS: Final = "scylla.cluster.ip.addresses"
USER: Final = CLUSTER_KEYS.user.name
PASSWORD: Final = CLUSTER_KEYS.password.name
LOCAL_DC: Final = CLUSTER_KEYS.local_dc.name
CONSISTENCY: Final = "scylla.consistency.level"
COMPRESSION: Final = CLUSTER_KEYS.compression.name
QUERY_TIMEOUT: Final = CLUSTER_KEYS.query_timeout.name
CONNECT_TIMEOUT: Final = CLUSTER_KEYS.connect_timeout.name
SSL: Final = CLUSTER_KEYS.tls.name
SSL_PROVIDER: Final = "scylla.ssl.provider"
TRUSTSTORE: Final = CLUSTER_KEYS.truststore.name
TRUSTSTORE_PASSWORD: Final = CLUSTER_KEYS.truststore_password.name
KEYSTORE: Final = CLUSTER_KEYS.keystore.name
KEYSTORE_PASSWORD: Final = CLUSTER_KEYS.keystore_password.name
CIPHERS: Final = CLUSTER_KEYS.ciphers.name
CERTIFICATE: Final = CLUSTER_KEYS.certificate.name
PRIVATE_KEY: Final = CLUSTER_KEYS.private_key.name
# Tables
TABLES: Final = "scylla.table.names"
DISCOVERY_INTERVAL: Final = "scylla.discovery.interval.ms"
LOOKBACK: Final = "scylla.initial.lookback.ms"
# Events
PREFIX: Final = "topic.prefix"
OUTPUT: Final = "output.format"
FORMAT: Final = "cdc.output.format"
BEFORE: Final = "cdc.include.before"
AFTER: Final = "cdc.include.after"
PLACEMENT: Final = "cdc.include.primary-key.placement"
KEY_NAME: Final = "cdc.include.primary-key.payload-key-name"
PREIMAGES: Final = "experimental.preimages.enabled"
TOMBSTONES: Final = "tombstones.on.delete"
DELETES: Final = "scylla.deletes.mode"
COLLECTIONS: Final = "scylla.collections.mode"
LEGACY_COLUMNS: Final = "scylla.legacy.columns"
COMPAT: Final = "scylla.compat"
LOGICAL: Final = "scylla.logical.types"
SKIPPED: Final = "skipped.operations"
# Reading
WINDOW: Final = "scylla.query.time.window.size"
WINDOW_MIN: Final = "scylla.window.min.ms"
WINDOW_MAX: Final = "scylla.window.max.ms"
CONFIDENCE: Final = "scylla.confidence.window.size"
CONFIDENCE_FLOOR: Final = "scylla.confidence.window.min.ms"
CONFIDENCE_CEILING: Final = "scylla.confidence.window.max.ms"
MINIMAL_WAIT: Final = "scylla.minimal.wait.for.window.time"
FETCH_SIZE: Final = "scylla.query.options.fetch.size"
STREAMS_PER_QUERY: Final = "scylla.streams.per.query"
QUERIES: Final = "scylla.max.queries.in.flight"
HEARTBEAT: Final = "heartbeat.interval.ms"
BATCH: Final = "max.batch.size"
QUEUE: Final = "max.queue.size"
# Retries
RETRY_BASE: Final = "worker.retry.backoff.base"
RETRY_MAX: Final = "worker.maximum.backoff"
RETRY_JITTER: Final = "worker.jitter.percentage"
RETRIES: Final = "worker.max.retries"
# Snapshot
SNAPSHOT: Final = "snapshot.mode"
SNAPSHOT_ROWS: Final = "snapshot.chunk.rows"
SNAPSHOT_RATE: Final = "snapshot.rows.per.second"
SNAPSHOT_CHUNKS: Final = "snapshot.max.concurrent.chunks"
#: The groups of one task in compact form; made by the connector, not by users.
TASK_GROUPS: Final = "scylla.task.groups"
TASK_PARTS: Final = "scylla.task.parts"

CONSISTENCY_LEVELS: Final = (
    "ANY",
    "ONE",
    "TWO",
    "THREE",
    "QUORUM",
    "ALL",
    "LOCAL_QUORUM",
    "EACH_QUORUM",
    "SERIAL",
    "LOCAL_SERIAL",
    "LOCAL_ONE",
)
#: Places of the primary key; ``payload-diff`` is a word that the Java connector accepts and does nothing for.
PLACEMENTS: Final = ("kafka-key", "payload-after", "payload-before", "payload-key", "kafka-headers")
DEFAULT_PLACEMENT: Final = ("kafka-key", "payload-after", "payload-before")

_CONNECTION: Final = KeyGroup("Connection")
_TLS: Final = KeyGroup("TLS")
_TABLES: Final = KeyGroup("Tables")
_EVENTS: Final = KeyGroup("Events")
_READING: Final = KeyGroup("Reading")
_RETRIES: Final = KeyGroup("Retries")
_SNAPSHOT: Final = KeyGroup("Snapshot")


def _validate_members(
    allowed: tuple[str, ...] | frozenset[str], *, also: str = "", may_be_empty: bool = True
) -> Validator:
    words = sorted(allowed) if isinstance(allowed, frozenset) else list(allowed)

    def check(name: str, value: Any) -> str | None:
        items = [str(item).strip().lower() for item in value or [] if str(item).strip()]
        if not items and not may_be_empty:
            return invalid(name, value, "List must have at least one of: " + ", ".join(words))
        for item in items:
            if item not in allowed and item != also:
                return invalid(name, value, f"'{item}' is not one of: " + ", ".join(words))
        return None

    return check


def _not_zero(name: str, value: Any) -> str | None:
    return invalid(name, value, "Must be a positive number, or -1 for no limit") if value == 0 or value < -1 else None


def _validate_prefix(name: str, value: Any) -> str | None:
    problem = None if value is None else topic_prefix_problem(value)
    return None if problem is None else invalid(name, value, problem)


CONFIG: Final = ConfigDef(
    [
        _CONNECTION.high.strings(
            HOSTS,
            "Nodes that are asked first, as a comma-separated list of host:port; the others are learned from them. An "
            "IPv6 address needs brackets. Without a port, 9042 is used.",
            validator=complaint(contact_points),
            width=Width.LONG,
            display_name="Hosts",
            example="10.0.0.1:9042,[fd00::2]:9042",
        ),
        CLUSTER_KEYS.user,
        CLUSTER_KEYS.password,
        CLUSTER_KEYS.local_dc,
        _CONNECTION.string(
            CONSISTENCY,
            "Consistency level of reads of log tables and of the snapshot. Below a quorum a change can be missed while a "
            "replica is behind.",
            default="QUORUM",
            validator=one_of(*CONSISTENCY_LEVELS, ignore_case=True),
            display_name="Consistency level",
            width=Width.SHORT,
            example="LOCAL_QUORUM",
        ),
        CLUSTER_KEYS.compression,
        CLUSTER_KEYS.query_timeout,
        CLUSTER_KEYS.connect_timeout,
        CLUSTER_KEYS.tls,
        _TLS.low.string(
            SSL_PROVIDER,
            "Which files the worker's certificate comes from: with JDK from the keystore, with the other two from "
            "the certificate chain and the private key. The library is the worker's OpenSSL in every case.",
            default="JDK",
            validator=one_of("JDK", "OPENSSL", "OPENSSL_REFCNT", ignore_case=True),
            display_name="TLS provider",
        ),
        CLUSTER_KEYS.truststore,
        CLUSTER_KEYS.truststore_password,
        CLUSTER_KEYS.keystore,
        CLUSTER_KEYS.keystore_password,
        CLUSTER_KEYS.ciphers,
        CLUSTER_KEYS.certificate,
        CLUSTER_KEYS.private_key,
        CLUSTER_KEYS.verify_hosts,
        _TABLES.high.strings(
            TABLES,
            "Tables to read, as a comma-separated list of keyspace.table. CDC must be on for each. As in CQL, a name "
            "without quotes means its lower-case form and one in double quotes is taken unchanged.",
            validator=complaint(table_names),
            width=Width.LONG,
            display_name="Tables",
            example='shop.orders,shop."Customers"',
        ),
        _TABLES.low.integer(
            DISCOVERY_INTERVAL,
            "How often to look for new generations of streams and for tables that were dropped or created again.",
            default=15_000,
            unit="ms",
            validator=at_least(100),
            display_name="Discovery interval",
        ),
        _TABLES.long(
            LOOKBACK,
            "Where to begin without saved offsets: this long before now. 0 begins with the oldest change that the log "
            "can still hold, by its TTL and its first generation.",
            default=0,
            unit="ms",
            validator=at_least(0),
            width=Width.MEDIUM,
            display_name="Initial look-back",
            example="3600000",
        ),
        _EVENTS.high.string(
            PREFIX,
            "Name of the cluster in topics, schemas and events. A table's events go to the topic "
            "prefix.keyspace.table.",
            aliases=("scylla.name",),
            validator=all_of(non_empty, _validate_prefix),
            width=Width.MEDIUM,
            display_name="Topic prefix",
            example="shop",
        ),
        _EVENTS.high.string(
            OUTPUT,
            "What events look like. debezium: as the Java connector writes them, see cdc.output.format. ums: a self-"
            "describing message with schema and payload of a row. partition-update: everything a mutation says, nothing "
            "folded, in a form that can be applied again.",
            default="debezium",
            validator=one_of("debezium", "ums", "partition-update", ignore_case=True),
            display_name="Output format",
        ),
        _EVENTS.high.string(
            FORMAT,
            'legacy wraps each cell that is not in the key, {"value": ...}, so that unset and null differ. advanced '
            "gives plain values and takes before and after from images.",
            default="legacy",
            validator=one_of("legacy", "advanced", ignore_case=True),
            display_name="Debezium form",
        ),
        _EVENTS.string(
            BEFORE,
            "What before holds in the advanced form: nothing, the whole row, or the columns that changed. The tables "
            "must have preimages on; the whole row needs preimage full where a change touches few columns.",
            default="none",
            validator=one_of("none", "full", "only-updated", ignore_case=True),
            display_name="State before",
        ),
        _EVENTS.string(
            AFTER,
            "What after holds in the advanced form: nothing, the whole row, or the columns that changed. The tables must "
            "have postimages on.",
            default="none",
            validator=one_of("none", "full", "only-updated", ignore_case=True),
            display_name="State after",
        ),
        _EVENTS.strings(
            PLACEMENT,
            "Where the advanced form puts the primary key: the record's key, after, before, a field of its own "
            "(payload-key), the record's headers (kafka-headers).",
            default=list(DEFAULT_PLACEMENT),
            width=Width.LONG,
            validator=_validate_members(PLACEMENTS, also="payload-diff", may_be_empty=False),
            display_name="Places of the primary key",
            example="kafka-key,payload-key",
        ),
        _EVENTS.low.string(
            KEY_NAME,
            "Name of the field that payload-key adds.",
            default="key",
            validator=non_empty,
            display_name="Name of the key field",
        ),
        _EVENTS.low.boolean(
            PREIMAGES,
            "Whether before of the legacy form is filled from preimages; the tables must have them on.",
            default=False,
            display_name="Preimages in the legacy form",
        ),
        _EVENTS.boolean(
            TOMBSTONES,
            "Whether a delete is followed by a record without a value, which lets a compacted topic forget the key.",
            default=True,
            display_name="Tombstones",
        ),
        _EVENTS.string(
            DELETES,
            "What becomes of deletes of a partition or a range of rows. rows: only deletes of single rows are sent, as "
            "the Java connector does. events: the others are sent too, as events of their own with the bounds.",
            default="rows",
            validator=one_of("rows", "events", ignore_case=True),
            display_name="Deletes of many rows",
        ),
        _EVENTS.string(
            COLLECTIONS,
            "How changes of non-frozen collections and user-defined types are sent. values: as the Java connector does. "
            "delta: what was added, removed or overwritten.",
            default="values",
            validator=one_of("values", "delta", ignore_case=True),
            display_name="Changes of collections",
        ),
        _EVENTS.low.string(
            LEGACY_COLUMNS,
            "Which columns the legacy form has. scalar: those of simple types, as the Java connector does. all: also "
            "collections, tuples and user-defined types.",
            default="scalar",
            validator=one_of("scalar", "all", ignore_case=True),
            display_name="Columns of the legacy form",
        ),
        decimals_key("string", _EVENTS.name),
        varints_key("string", _EVENTS.name, "string", "precise"),
        logical_types_key(
            LOGICAL,
            _EVENTS.name,
            "the Java connector",
            "uuid and timeuuid are io.debezium.data.Uuid, time is io.debezium.time.NanoTime,",
        ),
        _EVENTS.low.strings(
            COMPAT,
            "Wrong forms of the Java connector to keep for consumers that depend on them; java keeps all. The table in "
            "TYPES.md says what each word means.",
            default=[],
            validator=_validate_members(COMPAT_NAMES),
            display_name="Java forms to keep",
            example="list-order",
        ),
        _EVENTS.low.strings(
            SKIPPED,
            "Operations whose events are not sent: c, u, d, r; none sends all. t is accepted; there are no truncations "
            "in a CDC log.",
            default=["t"],
            validator=_validate_members(("c", "u", "d", "t", "r", "none")),
            display_name="Operations left out",
        ),
        _READING.low.integer(
            WINDOW,
            "Width of the time range that one query covers. Not set: wide where little was written and while "
            "catching up, narrow at the head, between scylla.window.min.ms and scylla.window.max.ms. Set: always this, "
            "as with the Java connector, whose default is 30000.",
            default=None,
            unit="ms",
            validator=unless_null(at_least(1)),
            display_name="Window",
            width=Width.MEDIUM,
            example="30000",
        ),
        _READING.low.integer(
            WINDOW_MIN,
            "Width of windows at the head. Half of it is added to the latency of events; the queries per second at rest "
            "are the streams divided by scylla.streams.per.query and by this many seconds.",
            default=1_000,
            unit="ms",
            validator=at_least(10),
            display_name="Narrowest window",
        ),
        _READING.low.long(
            WINDOW_MAX,
            "Width that windows may reach while catching up over quiet times. Rows are read by pages, so a wide window "
            "does not need more memory.",
            default=86_400_000,
            unit="ms",
            validator=at_least(1_000),
            display_name="Widest window",
        ),
        _READING.low.integer(
            CONFIDENCE,
            "How old a change must be before it is read, so that every replica has had time to get it and older writes "
            "have had time to arrive. Not set: follows the lateness that is seen, between scylla.confidence.window.min.ms "
            "and .max.ms. Set: always this, as with the Java connector, whose default is 30000.",
            default=None,
            unit="ms",
            validator=unless_null(at_least(0)),
            display_name="Confidence window",
            width=Width.MEDIUM,
            example="30000",
        ),
        _READING.low.integer(
            CONFIDENCE_FLOOR,
            "Lower bound of the confidence window. It should not be below the cluster's write timeout.",
            default=2_000,
            unit="ms",
            validator=at_least(0),
            display_name="Shortest confidence window",
        ),
        _READING.low.integer(
            CONFIDENCE_CEILING,
            "Upper bound of the confidence window. Writes that arrive later than this can be missed, as with any reader "
            "of a CDC log; the metrics count late rows that were seen.",
            default=30_000,
            unit="ms",
            validator=at_least(0),
            display_name="Longest confidence window",
        ),
        _READING.low.integer(
            MINIMAL_WAIT,
            "Shortest pause between two windows of a group of streams: a brake on the load that catching up puts on the "
            "cluster.",
            default=0,
            unit="ms",
            validator=at_least(0),
            display_name="Least wait between windows",
            width=Width.MEDIUM,
        ),
        _READING.low.integer(
            FETCH_SIZE,
            "Rows per page. 0 means 5000. Each query in flight holds a page in memory.",
            default=0,
            unit="rows",
            validator=at_least(0),
            display_name="Fetch size",
            width=Width.SHORT,
        ),
        _READING.low.integer(
            STREAMS_PER_QUERY,
            "Streams that one query reads with IN. More of them cost fewer queries at rest and more work for the node "
            "that coordinates each. Servers refuse more than 100.",
            default=100,
            unit="streams",
            validator=between(1, 100),
            display_name="Streams per query",
        ),
        _READING.low.integer(
            QUERIES,
            "Queries that a task has under way at the most; fewer when the servers' latency grows.",
            default=16,
            unit="queries",
            validator=between(1, 1024),
            display_name="Queries in flight",
        ),
        _READING.low.integer(
            HEARTBEAT,
            "How often the position of a group of streams without changes is saved, and with output.format=ums a "
            "heartbeat message is sent for each table, as with heartbeat.to.tables a heartbeat record. Others are not written.",
            default=30_000,
            unit="ms",
            validator=at_least(1),
            display_name="Heartbeat interval",
        ),
        table_heartbeats_key(_READING.name, ums=True),
        _READING.integer(
            BATCH,
            "Records that a task hands over at once at the most.",
            default=2_048,
            unit="records",
            validator=between(1, 100_000),
            display_name="Batch size",
        ),
        _READING.low.integer(
            QUEUE,
            "Rows that a task reads ahead at the most while Kafka is slow, not counting the pages under way.",
            default=8_192,
            unit="rows",
            validator=at_least(1),
            display_name="Queue size",
        ),
        _RETRIES.low.integer(
            RETRY_BASE,
            "Pause before a failed query is retried; it doubles with each failure.",
            default=50,
            unit="ms",
            validator=at_least(0),
            display_name="First pause",
        ),
        _RETRIES.low.integer(
            RETRY_MAX,
            "What the pause between tries may grow to.",
            default=30_000,
            unit="ms",
            validator=at_least(0),
            display_name="Longest pause",
        ),
        _RETRIES.low.integer(
            RETRY_JITTER,
            "By how much a pause is shortened at random, so that tasks don't try all at once.",
            default=20,
            unit="%",
            validator=between(1, 100),
            display_name="Jitter",
        ),
        _RETRIES.low.integer(
            RETRIES,
            "How often a query is tried before the task gives up its work to the runtime, which backs off and begins "
            "again from the last delivered position; -1: no limit.",
            default=20,
            unit="tries",
            validator=_not_zero,
            display_name="Tries",
        ),
        _SNAPSHOT.high.string(
            SNAPSHOT,
            "Whether to read what the tables hold, at the same time as the stream of changes: never (no_data means the same), "
            "or initial: once, when there are no saved offsets for it. Rows come as events with op r.",
            default="never",
            validator=one_of("never", "no_data", "initial", ignore_case=True),
            display_name="Snapshot",
        ),
        new_tables_key(_SNAPSHOT.name),
        _SNAPSHOT.low.integer(
            SNAPSHOT_ROWS,
            "Rows of a chunk: what is read at once and, after a restart, at most again.",
            default=5_000,
            unit="rows",
            validator=between(1, 100_000),
            aliases=("snapshot.fetch.size",),
            display_name="Rows per chunk",
        ),
        _SNAPSHOT.low.integer(
            SNAPSHOT_RATE,
            "Rows of the snapshot that a task reads per second at the most; 0: no limit.",
            default=0,
            unit="rows/s",
            validator=at_least(0),
            display_name="Rows per second",
        ),
        _SNAPSHOT.low.integer(
            SNAPSHOT_CHUNKS,
            "Chunks that a task reads at the same time.",
            default=2,
            unit="chunks",
            validator=between(1, 64),
            aliases=("snapshot.max.threads",),
            display_name="Concurrent chunks",
        ),
        *MASK_KEYS,
        *ACCEPTED_KEYS,
        ConfigKey(
            name=TASK_GROUPS,
            type=ConfigType.STRING,
            default=None,
            internal=True,
            doc="The groups of streams of one task; set by the connector.",
        ),
        ConfigKey(
            name=TASK_PARTS,
            type=ConfigType.STRING,
            default=None,
            internal=True,
            doc="Which part of each table a task speaks for in UMS heartbeats; set by the connector.",
        ),
    ]
)
