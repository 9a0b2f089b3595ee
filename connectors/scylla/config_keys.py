"""The options of the Scylla connector: one declaration each. The Java connector's names keep their meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.cql.options import ClusterWording, cluster_keys
from connectors.errors import ConfigInvalid
from connectors.formats.masking import SOURCE_KEYS as MASK_KEYS
from connectors.new_tables import new_tables_key
from connectors.number_keys import decimals_key, logical_types_key, varints_key
from connectors.options import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    Width,
    all_of,
    at_least,
    between,
    invalid,
    non_empty,
    one_of,
)
from connectors.scylla.events import COMPAT_NAMES
from connectors.scylla.names import contact_points, table_names, topic_prefix_problem

if TYPE_CHECKING:
    from collections.abc import Callable

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
VERIFY_HOSTS: Final = CLUSTER_KEYS.verify_hosts.name
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
INCOMPLETE: Final = "cdc.incomplete.task.timeout.ms"
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
QUEUE_BYTES: Final = "max.queue.size.in.bytes"
POLL: Final = "poll.interval.ms"
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

_CONNECTION: Final = "Connection"
_TLS: Final = "TLS"
_TABLES: Final = "Tables"
_EVENTS: Final = "Events"
_READING: Final = "Reading"
_RETRIES: Final = "Retries"
_SNAPSHOT: Final = "Snapshot"
_ACCEPTED: Final = "Accepted for compatibility"


def _complaint(parse: Callable[[Any], object]) -> Validator:
    """A validator that passes on what ``parse`` raises."""

    def check(name: str, value: Any) -> str | None:
        try:
            parse(value)
        except ConfigInvalid as error:
            return invalid(name, value, str(error))
        return None

    return check


def _unless_none(validator: Validator) -> Validator:
    """``validator`` for an option that need not be set."""

    def check(name: str, value: Any) -> str | None:
        return None if value is None else validator(name, value)

    return check


def _members(allowed: tuple[str, ...] | frozenset[str], *, also: str = "", may_be_empty: bool = True) -> Validator:
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


def _prefix(name: str, value: Any) -> str | None:
    problem = None if value is None else topic_prefix_problem(value)
    return None if problem is None else invalid(name, value, problem)


def _accepted(
    name: str,
    kind: ConfigType,
    default: Any,
    what: str,
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
        group=_ACCEPTED,
        aliases=aliases,
        doc=f"Accepted for compatibility and without effect: {what}",
    )


CONFIG: Final = ConfigDef(
    [
        ConfigKey(
            name=HOSTS,
            type=ConfigType.LIST,
            validator=_complaint(contact_points),
            importance=Importance.HIGH,
            group=_CONNECTION,
            width=Width.LONG,
            display_name="Hosts",
            example="10.0.0.1:9042,[fd00::2]:9042",
            doc="Nodes that are asked first, as a comma-separated list of host:port; the others are learned from them. An "
            "IPv6 address stands in brackets. Without a port, 9042 is used.",
        ),
        CLUSTER_KEYS.user,
        CLUSTER_KEYS.password,
        CLUSTER_KEYS.local_dc,
        ConfigKey(
            name=CONSISTENCY,
            type=ConfigType.STRING,
            default="QUORUM",
            importance=Importance.MEDIUM,
            group=_CONNECTION,
            validator=one_of(*CONSISTENCY_LEVELS, ignore_case=True),
            display_name="Consistency level",
            width=Width.SHORT,
            example="LOCAL_QUORUM",
            doc="Consistency level of reads of log tables and of the snapshot. Below a quorum a change can be missed while a "
            "replica is behind.",
        ),
        CLUSTER_KEYS.compression,
        CLUSTER_KEYS.query_timeout,
        CLUSTER_KEYS.connect_timeout,
        CLUSTER_KEYS.tls,
        ConfigKey(
            name=SSL_PROVIDER,
            type=ConfigType.STRING,
            default="JDK",
            importance=Importance.LOW,
            group=_TLS,
            validator=one_of("JDK", "OPENSSL", "OPENSSL_REFCNT", ignore_case=True),
            display_name="TLS provider",
            doc="Which files the worker's certificate comes from: with JDK from the keystore, with the other two from "
            "the certificate chain and the private key. The library is the worker's OpenSSL in every case.",
        ),
        CLUSTER_KEYS.truststore,
        CLUSTER_KEYS.truststore_password,
        CLUSTER_KEYS.keystore,
        CLUSTER_KEYS.keystore_password,
        CLUSTER_KEYS.ciphers,
        CLUSTER_KEYS.certificate,
        CLUSTER_KEYS.private_key,
        CLUSTER_KEYS.verify_hosts,
        ConfigKey(
            name=TABLES,
            type=ConfigType.LIST,
            validator=_complaint(table_names),
            importance=Importance.HIGH,
            group=_TABLES,
            width=Width.LONG,
            display_name="Tables",
            example='shop.orders,shop."Customers"',
            doc="Tables to read, as a comma-separated list of keyspace.table. CDC must be on for each. As in CQL, a name "
            "without quotes means its lower-case form and one in double quotes is taken as it stands.",
        ),
        ConfigKey(
            name=DISCOVERY_INTERVAL,
            type=ConfigType.INT,
            default=15_000,
            unit="ms",
            validator=at_least(100),
            importance=Importance.LOW,
            group=_TABLES,
            display_name="Discovery interval",
            doc="How often to look for new generations of streams and for tables that were dropped or created again.",
        ),
        ConfigKey(
            name=LOOKBACK,
            type=ConfigType.LONG,
            default=0,
            unit="ms",
            validator=at_least(0),
            group=_TABLES,
            width=Width.MEDIUM,
            display_name="Initial look-back",
            example="3600000",
            doc="Where to begin without saved offsets: this long before now. 0 begins with the oldest change that the log "
            "can still hold, by its TTL and its first generation.",
        ),
        ConfigKey(
            name=PREFIX,
            type=ConfigType.STRING,
            aliases=("scylla.name",),
            validator=all_of(non_empty, _prefix),
            importance=Importance.HIGH,
            group=_EVENTS,
            width=Width.MEDIUM,
            display_name="Topic prefix",
            example="shop",
            default=REQUIRED,
            doc="Name of the cluster in topics, schemas and events. A table's events go to the topic "
            "prefix.keyspace.table.",
        ),
        ConfigKey(
            name=OUTPUT,
            type=ConfigType.STRING,
            default="debezium",
            group=_EVENTS,
            importance=Importance.HIGH,
            validator=one_of("debezium", "ums", "partition-update", ignore_case=True),
            display_name="Output format",
            doc="What events look like. debezium: as the Java connector writes them, see cdc.output.format. ums: a self-"
            "describing message with schema and payload of a row. partition-update: everything a mutation says, nothing "
            "folded, in a form that can be applied again.",
        ),
        ConfigKey(
            name=FORMAT,
            type=ConfigType.STRING,
            default="legacy",
            group=_EVENTS,
            importance=Importance.HIGH,
            validator=one_of("legacy", "advanced", ignore_case=True),
            display_name="Debezium form",
            doc='legacy wraps each cell that is not in the key, {"value": ...}, so that unset and null differ. advanced '
            "gives plain values and takes before and after from images.",
        ),
        ConfigKey(
            name=BEFORE,
            type=ConfigType.STRING,
            default="none",
            group=_EVENTS,
            validator=one_of("none", "full", "only-updated", ignore_case=True),
            display_name="State before",
            doc="What before holds in the advanced form: nothing, the whole row, or the columns that changed. The tables "
            "must have preimages on; the whole row needs preimage full where a change touches few columns.",
        ),
        ConfigKey(
            name=AFTER,
            type=ConfigType.STRING,
            default="none",
            group=_EVENTS,
            validator=one_of("none", "full", "only-updated", ignore_case=True),
            display_name="State after",
            doc="What after holds in the advanced form: nothing, the whole row, or the columns that changed. The tables must "
            "have postimages on.",
        ),
        ConfigKey(
            name=PLACEMENT,
            type=ConfigType.LIST,
            default=list(DEFAULT_PLACEMENT),
            group=_EVENTS,
            width=Width.LONG,
            validator=_members(PLACEMENTS, also="payload-diff", may_be_empty=False),
            display_name="Places of the primary key",
            example="kafka-key,payload-key",
            doc="Where the advanced form puts the primary key: the record's key, after, before, a field of its own "
            "(payload-key), the record's headers (kafka-headers).",
        ),
        ConfigKey(
            name=KEY_NAME,
            type=ConfigType.STRING,
            default="key",
            group=_EVENTS,
            importance=Importance.LOW,
            validator=non_empty,
            display_name="Name of the key field",
            doc="Name of the field that payload-key adds.",
        ),
        ConfigKey(
            name=PREIMAGES,
            type=ConfigType.BOOLEAN,
            default=False,
            group=_EVENTS,
            importance=Importance.LOW,
            display_name="Preimages in the legacy form",
            doc="Whether before of the legacy form is filled from preimages; the tables must have them on.",
        ),
        ConfigKey(
            name=TOMBSTONES,
            type=ConfigType.BOOLEAN,
            default=True,
            group=_EVENTS,
            display_name="Tombstones",
            doc="Whether a delete is followed by a record without a value, which lets a compacted topic forget the key.",
        ),
        ConfigKey(
            name=DELETES,
            type=ConfigType.STRING,
            default="rows",
            group=_EVENTS,
            validator=one_of("rows", "events", ignore_case=True),
            display_name="Deletes of many rows",
            doc="What becomes of deletes of a partition or a range of rows. rows: only deletes of single rows are sent, as "
            "the Java connector does. events: the others are sent too, as events of their own with the bounds.",
        ),
        ConfigKey(
            name=COLLECTIONS,
            type=ConfigType.STRING,
            default="values",
            group=_EVENTS,
            validator=one_of("values", "delta", ignore_case=True),
            display_name="Changes of collections",
            doc="How changes of non-frozen collections and user-defined types are sent. values: as the Java connector does. "
            "delta: what was added, removed or overwritten.",
        ),
        ConfigKey(
            name=LEGACY_COLUMNS,
            type=ConfigType.STRING,
            default="scalar",
            group=_EVENTS,
            importance=Importance.LOW,
            validator=one_of("scalar", "all", ignore_case=True),
            display_name="Columns of the legacy form",
            doc="Which columns the legacy form has. scalar: those of simple types, as the Java connector does. all: also "
            "collections, tuples and user-defined types.",
        ),
        decimals_key("string", _EVENTS),
        varints_key("string", _EVENTS, "string", "precise"),
        logical_types_key(
            LOGICAL,
            _EVENTS,
            "the Java connector",
            "uuid and timeuuid are io.debezium.data.Uuid, time is io.debezium.time.NanoTime,",
        ),
        ConfigKey(
            name=COMPAT,
            type=ConfigType.LIST,
            default=[],
            group=_EVENTS,
            importance=Importance.LOW,
            validator=_members(COMPAT_NAMES),
            display_name="Java forms to keep",
            example="list-order",
            doc="Wrong forms of the Java connector to keep for consumers that depend on them; java keeps all. The table in "
            "TYPES.md says what each word means.",
        ),
        ConfigKey(
            name=SKIPPED,
            type=ConfigType.LIST,
            default=["t"],
            group=_EVENTS,
            importance=Importance.LOW,
            validator=_members(("c", "u", "d", "t", "r", "none")),
            display_name="Operations left out",
            doc="Operations whose events are not sent: c, u, d, r; none sends all. t is accepted; there are no truncations "
            "in a CDC log.",
        ),
        ConfigKey(
            name=WINDOW,
            type=ConfigType.INT,
            default=None,
            unit="ms",
            validator=_unless_none(at_least(1)),
            importance=Importance.LOW,
            group=_READING,
            display_name="Window",
            width=Width.MEDIUM,
            example="30000",
            doc="Width of the stretch of time that one query covers. Not set: wide where little was written and while "
            "catching up, narrow at the head, between scylla.window.min.ms and scylla.window.max.ms. Set: always this, "
            "as with the Java connector, whose default is 30000.",
        ),
        ConfigKey(
            name=WINDOW_MIN,
            type=ConfigType.INT,
            default=1_000,
            unit="ms",
            validator=at_least(10),
            importance=Importance.LOW,
            group=_READING,
            display_name="Narrowest window",
            doc="Width of windows at the head. Half of it is added to the latency of events; the queries per second at rest "
            "are the streams divided by scylla.streams.per.query and by this many seconds.",
        ),
        ConfigKey(
            name=WINDOW_MAX,
            type=ConfigType.LONG,
            default=86_400_000,
            unit="ms",
            validator=at_least(1_000),
            importance=Importance.LOW,
            group=_READING,
            display_name="Widest window",
            doc="Width that windows may reach while catching up over quiet times. Rows are read by pages, so a wide window "
            "does not need more memory.",
        ),
        ConfigKey(
            name=CONFIDENCE,
            type=ConfigType.INT,
            default=None,
            unit="ms",
            validator=_unless_none(at_least(0)),
            importance=Importance.LOW,
            group=_READING,
            display_name="Confidence window",
            width=Width.MEDIUM,
            example="30000",
            doc="How old a change must be before it is read, so that every replica has had time to get it and older writes "
            "have had time to arrive. Not set: follows the lateness that is seen, between the two options below. Set: "
            "always this, as with the Java connector, whose default is 30000.",
        ),
        ConfigKey(
            name=CONFIDENCE_FLOOR,
            type=ConfigType.INT,
            default=2_000,
            unit="ms",
            validator=at_least(0),
            importance=Importance.LOW,
            group=_READING,
            display_name="Shortest confidence window",
            doc="Lower bound of the confidence window. It should not be below the cluster's write timeout.",
        ),
        ConfigKey(
            name=CONFIDENCE_CEILING,
            type=ConfigType.INT,
            default=30_000,
            unit="ms",
            validator=at_least(0),
            importance=Importance.LOW,
            group=_READING,
            display_name="Longest confidence window",
            doc="Upper bound of the confidence window. Writes that arrive later than this can be missed, as with any reader "
            "of a CDC log; the metrics count late rows that were seen.",
        ),
        ConfigKey(
            name=MINIMAL_WAIT,
            type=ConfigType.INT,
            default=0,
            unit="ms",
            validator=at_least(0),
            importance=Importance.LOW,
            group=_READING,
            display_name="Least wait between windows",
            width=Width.MEDIUM,
            doc="Shortest pause between two windows of a group of streams: a brake on the load that catching up puts on the "
            "cluster.",
        ),
        ConfigKey(
            name=FETCH_SIZE,
            type=ConfigType.INT,
            default=0,
            unit="rows",
            validator=at_least(0),
            importance=Importance.LOW,
            group=_READING,
            display_name="Fetch size",
            width=Width.SHORT,
            doc="Rows per page. 0 means 5000. Each query in flight holds a page in memory.",
        ),
        ConfigKey(
            name=STREAMS_PER_QUERY,
            type=ConfigType.INT,
            default=32,
            unit="streams",
            validator=between(1, 100),
            importance=Importance.LOW,
            group=_READING,
            display_name="Streams per query",
            doc="Streams that one query reads with IN. More of them cost fewer queries at rest and more work for the node "
            "that coordinates each. Servers refuse more than 100.",
        ),
        ConfigKey(
            name=QUERIES,
            type=ConfigType.INT,
            default=16,
            unit="queries",
            validator=between(1, 1024),
            importance=Importance.LOW,
            group=_READING,
            display_name="Queries in flight",
            doc="Queries that a task has under way at the most; fewer when the servers' latency grows.",
        ),
        ConfigKey(
            name=HEARTBEAT,
            type=ConfigType.INT,
            default=30_000,
            unit="ms",
            validator=at_least(1),
            group=_READING,
            importance=Importance.LOW,
            display_name="Heartbeat interval",
            doc="How often the position of a group of streams without changes is saved, and with output.format=ums a "
            "heartbeat message is sent for each table. Other heartbeat records are not written.",
        ),
        ConfigKey(
            name=BATCH,
            type=ConfigType.INT,
            default=2_048,
            unit="records",
            validator=between(1, 100_000),
            group=_READING,
            display_name="Batch size",
            doc="Records that a task hands over at once at the most.",
        ),
        ConfigKey(
            name=QUEUE,
            type=ConfigType.INT,
            default=8_192,
            unit="rows",
            validator=at_least(1),
            group=_READING,
            importance=Importance.LOW,
            display_name="Queue size",
            doc="Rows that a task reads ahead at the most while Kafka is slow, beside the pages under way.",
        ),
        ConfigKey(
            name=RETRY_BASE,
            type=ConfigType.INT,
            default=50,
            unit="ms",
            validator=at_least(0),
            importance=Importance.LOW,
            group=_RETRIES,
            display_name="First pause",
            doc="Pause before a failed query is tried again; it doubles with each failure.",
        ),
        ConfigKey(
            name=RETRY_MAX,
            type=ConfigType.INT,
            default=30_000,
            unit="ms",
            validator=at_least(0),
            importance=Importance.LOW,
            group=_RETRIES,
            display_name="Longest pause",
            doc="What the pause between tries may grow to.",
        ),
        ConfigKey(
            name=RETRY_JITTER,
            type=ConfigType.INT,
            default=20,
            unit="%",
            validator=between(1, 100),
            importance=Importance.LOW,
            group=_RETRIES,
            display_name="Jitter",
            doc="By how much a pause is shortened at random, so that tasks don't try all at once.",
        ),
        ConfigKey(
            name=RETRIES,
            type=ConfigType.INT,
            default=20,
            unit="tries",
            validator=_not_zero,
            group=_RETRIES,
            importance=Importance.LOW,
            display_name="Tries",
            doc="How often a query is tried before the task gives up its work to the runtime, which backs off and begins "
            "again from the last delivered position; -1: no limit.",
        ),
        ConfigKey(
            name=SNAPSHOT,
            type=ConfigType.STRING,
            default="never",
            group=_SNAPSHOT,
            importance=Importance.HIGH,
            validator=one_of("never", "no_data", "initial", ignore_case=True),
            display_name="Snapshot",
            doc="Whether to read what the tables hold, beside the stream of changes: never (no_data means the same), or "
            "initial: once, when there are no saved offsets for it. Rows come as events with op r.",
        ),
        new_tables_key(_SNAPSHOT),
        ConfigKey(
            name=SNAPSHOT_ROWS,
            type=ConfigType.INT,
            default=5_000,
            unit="rows",
            validator=between(1, 100_000),
            aliases=("snapshot.fetch.size",),
            importance=Importance.LOW,
            group=_SNAPSHOT,
            display_name="Rows per chunk",
            doc="Rows of a chunk: what is read at once and, after a restart, at most again.",
        ),
        ConfigKey(
            name=SNAPSHOT_RATE,
            type=ConfigType.INT,
            default=0,
            unit="rows/s",
            validator=at_least(0),
            importance=Importance.LOW,
            group=_SNAPSHOT,
            display_name="Rows per second",
            doc="Rows of the snapshot that a task reads per second at the most; 0: no limit.",
        ),
        ConfigKey(
            name=SNAPSHOT_CHUNKS,
            type=ConfigType.INT,
            default=2,
            unit="chunks",
            validator=between(1, 64),
            aliases=("snapshot.max.threads",),
            importance=Importance.LOW,
            group=_SNAPSHOT,
            display_name="Concurrent chunks",
            doc="Chunks that a task reads at the same time.",
        ),
        *MASK_KEYS,
        _accepted(
            QUEUE_BYTES,
            ConfigType.LONG,
            0,
            "what a task holds is bounded by max.queue.size and the size of pages.",
            unit="bytes",
        ),
        _accepted(
            POLL, ConfigType.LONG, 500, "records are handed over as they come.", unit="ms", validator=at_least(0)
        ),
        _accepted(
            INCOMPLETE,
            ConfigType.LONG,
            15_000,
            "images are joined within a change, nothing waits for another one.",
            unit="ms",
            validator=at_least(1),
        ),
        _accepted(
            "worker.shared.session.enabled",
            ConfigType.BOOLEAN,
            False,
            "tasks of a process always share a session if they connect alike.",
        ),
        _accepted(
            "worker.pooling.core.pool.local",
            ConfigType.INT,
            1,
            "the driver holds one connection per node, or per shard.",
            unit="connections",
            validator=at_least(0),
        ),
        _accepted(
            "worker.pooling.max.pool.local",
            ConfigType.INT,
            1,
            "see worker.pooling.core.pool.local.",
            unit="connections",
            validator=at_least(0),
        ),
        _accepted(
            "worker.pooling.max.queue.size",
            ConfigType.INT,
            256,
            "queries in flight are bounded before they reach the driver.",
            unit="requests",
            validator=at_least(0),
        ),
        _accepted(
            "worker.pooling.max.requests.per.connection",
            ConfigType.INT,
            256,
            "see scylla.max.queries.in.flight.",
            unit="requests",
            validator=at_least(0),
        ),
        _accepted(
            "worker.pooling.pool.timeout.ms",
            ConfigType.INT,
            5_000,
            "see scylla.query.timeout.ms.",
            unit="ms",
            validator=at_least(0),
        ),
        _accepted("scylla.worker.config", ConfigType.STRING, None, "tasks get their streams in another way."),
        _accepted(
            "topic.heartbeat.prefix",
            ConfigType.STRING,
            "__debezium-heartbeat",
            "no heartbeat records are written.",
            aliases=("heartbeat.topics.prefix",),
        ),
        _accepted(
            "topic.naming.strategy",
            ConfigType.STRING,
            None,
            "topics are prefix.keyspace.table; transforms can rename them.",
        ),
        _accepted("sourceinfo.struct.maker", ConfigType.STRING, None, "the form of source is fixed."),
        _accepted("schema.name.adjustment.mode", ConfigType.STRING, "none", "schema names are not changed."),
        _accepted("field.name.adjustment.mode", ConfigType.STRING, "none", "field names are not changed."),
        _accepted("binary.handling.mode", ConfigType.STRING, "bytes", "blobs are bytes."),
        _accepted("event.processing.failure.handling.mode", ConfigType.STRING, "fail", "see errors.tolerance."),
        _accepted("retriable.restart.connector.wait.ms", ConfigType.LONG, 10_000, "the runtime backs off.", unit="ms"),
        _accepted(
            "errors.max.retries",
            ConfigType.INT,
            -1,
            "the runtime tries again until the connector is stopped.",
            unit="tries",
        ),
        _accepted(
            "snapshot.delay.ms",
            ConfigType.LONG,
            0,
            "the stream is read from the start, beside the snapshot.",
            unit="ms",
        ),
        _accepted("provide.transaction.metadata", ConfigType.BOOLEAN, False, "Scylla has no transactions over rows."),
        _accepted(
            "custom.metric.tags", ConfigType.STRING, None, "metrics carry the connector's name and the task's number."
        ),
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
