"""Options: the stream, snapshots, signals and heartbeats."""

from __future__ import annotations

from typing import Final

from connectors.java_regex import regex_list
from connectors.mysql.config.validators import (
    check_positive,
    host_or_none,
    not_negative,
    split_columns,
    table_or_none,
    topic_name,
)
from connectors.options import ConfigKey, ConfigType, KeyGroup, Width, between, unless_null, words
from connectors.source_options.new_tables import new_tables_key
from connectors.source_options.table_heartbeats import table_heartbeats_key

BATCH: Final = "max.batch.size"
QUEUE: Final = "max.queue.size"
BUFFER: Final = "binlog.buffer.size"
POLL: Final = "poll.interval.ms"
FAILURES: Final = "event.processing.failure.handling.mode"
CONVERTING_FAILURES: Final = "event.converting.failure.handling.mode"
INCONSISTENT: Final = "inconsistent.schema.handling.mode"

SNAPSHOT: Final = "snapshot.mode"
BASED_DATA: Final = "snapshot.mode.configuration.based.snapshot.data"
BASED_SCHEMA: Final = "snapshot.mode.configuration.based.snapshot.schema"
BASED_STREAM: Final = "snapshot.mode.configuration.based.start.stream"
BASED_SCHEMA_ERROR: Final = "snapshot.mode.configuration.based.snapshot.on.schema.error"
BASED_DATA_ERROR: Final = "snapshot.mode.configuration.based.snapshot.on.data.error"
SNAPSHOT_TABLES: Final = "snapshot.include.collection.list"
SNAPSHOT_SELECTS: Final = "snapshot.select.statement.overrides"
SNAPSHOT_DELAY: Final = "snapshot.delay.ms"
SNAPSHOT_ORDER: Final = "snapshot.tables.order.by.row.count"
SNAPSHOT_LOCKS: Final = "snapshot.locking.mode"
SNAPSHOT_LOCK_TIMEOUT: Final = "snapshot.lock.timeout.ms"
SNAPSHOT_QUERIES: Final = "snapshot.query.mode"
SNAPSHOT_THREADS: Final = "snapshot.max.threads"
SNAPSHOT_SPLIT: Final = "snapshot.split.columns"
SNAPSHOT_ROWS: Final = "snapshot.chunk.rows"
SNAPSHOT_RATE: Final = "snapshot.rate.rows"
SNAPSHOT_ADAPTIVE: Final = "snapshot.adaptive"
SNAPSHOT_HOST: Final = "snapshot.hostname"
SNAPSHOT_PORT: Final = "snapshot.port"
SNAPSHOT_USER: Final = "snapshot.user"
SNAPSHOT_PASSWORD: Final = "snapshot.password"  # noqa: S105 - the name of an option
PROGRESS_TOPIC: Final = "snapshot.progress.topic"
PROGRESS_INTERVAL: Final = "snapshot.progress.interval.ms"

SIGNALS: Final = "signal.data.collection"
CHANNELS: Final = "signal.enabled.channels"
SIGNAL_TOPIC: Final = "signal.kafka.topic"
SIGNAL_BROKERS: Final = "signal.kafka.bootstrap.servers"
SIGNAL_GROUP: Final = "signal.kafka.group.id"

HEARTBEAT: Final = "heartbeat.interval.ms"
HEARTBEAT_QUERY: Final = "heartbeat.action.query"
HEARTBEAT_TABLE: Final = "heartbeat.table"
HEARTBEAT_LATE: Final = "heartbeat.late.ms"
HEARTBEAT_TABLE_CREATE: Final = "heartbeat.table.create"

#: The part of the source that a task owns; made by the connector, not by users.
TASK_SHARD: Final = "task.shard"

SNAPSHOT_MODES: Final = (
    "always",
    "initial",
    "initial_only",
    "no_data",
    "never",
    "when_needed",
    "recovery",
    "configuration_based",
    "custom",
)
#: Older words of Debezium's for modes.
OLD_MODES: Final = {"schema_only": "no_data", "schema_only_recovery": "recovery"}

_STREAM: Final = KeyGroup("Stream")
_SNAPSHOT: Final = KeyGroup("Snapshot")
_SIGNALS: Final = KeyGroup("Signals")
_HEARTBEAT: Final = KeyGroup("Heartbeat")


def _declare_flag(name: str, effect: str) -> ConfigKey:
    return _SNAPSHOT.low.boolean(name, f"With snapshot.mode=configuration_based: {effect}", default=False)


READING_KEYS: Final = (
    _STREAM.integer(
        BATCH,
        "Records that a task hands over at once at the most.",
        default=2_048,
        unit="records",
        validator=between(1, 100_000),
        display_name="Batch size",
    ),
    _STREAM.low.integer(
        QUEUE,
        "Records that a task has made and not yet handed over at the most. Must be larger than max.batch.size.",
        default=8_192,
        unit="records",
        validator=check_positive,
        display_name="Queue size",
    ),
    _STREAM.low.integer(
        BUFFER,
        "Rows of a transaction that are held back until its end is read, so that one that is rolled back is not "
        "sent. Rolled back transactions are in the binlog only where they changed tables without transactions too; a "
        "larger one is sent before its end is known. 0: nothing is held back.",
        default=0,
        unit="rows",
        validator=not_negative,
        display_name="Rows held until the commit",
    ),
    _STREAM.low.long(
        POLL,
        "How long a quiet task waits before it reports its position. Changes are handed over as they come.",
        default=500,
        unit="ms",
        validator=check_positive,
        display_name="Poll interval",
    ),
    _STREAM.string(
        FAILURES,
        "What to do with an event of the binlog that can't be read: fail; warn, leave it out with a message in the "
        "log; skip or ignore, leave it out. A row with a bad value is another matter: see errors.tolerance.",
        default="fail",
        validator=words("fail", "warn", "skip", "ignore"),
        aliases=("event.deserialization.failure.handling.mode",),
        display_name="Events that can't be read",
    ),
    _STREAM.low.string(
        CONVERTING_FAILURES,
        "What to do with a value that its field can't hold (its mode has no form for it): warn and skip send null "
        "where the column allows it; fail makes the row a bad one, as it always is where the column is NOT NULL.",
        default="warn",
        validator=words("fail", "warn", "skip"),
        display_name="Values that don't fit",
    ),
    _STREAM.string(
        INCONSISTENT,
        "What to do with changes of a table whose structure at that time is not known, which can happen only where "
        "the server does not write it into the binlog (binlog_row_metadata=FULL): fail; warn, leave them out with a "
        "message in the log; skip or ignore, leave them out.",
        default="fail",
        validator=words("fail", "warn", "skip", "ignore"),
        display_name="Tables whose structure is unknown",
    ),
    _SNAPSHOT.high.string(
        SNAPSHOT,
        "When what the tables hold is read, always at the same time as the stream. initial: once, when there are no saved "
        "positions. always: at each start. initial_only: once, and no stream after it. when_needed: as initial, and "
        "also when the binlog no longer holds the saved position. no_data: never; the stream begins at the server's "
        "current position. never: the same, from the oldest binlog. recovery: as no_data, for a connector with saved "
        "positions. configuration_based: as the options snapshot.mode.configuration.based.* say.",
        default="initial",
        validator=words(*SNAPSHOT_MODES, *OLD_MODES),
        display_name="Snapshot",
    ),
    _declare_flag(BASED_DATA, "whether tables are read when there are no saved positions."),
    _declare_flag(BASED_SCHEMA, "accepted; structures of tables need no snapshot here."),
    _declare_flag(BASED_STREAM, "whether the stream is read after that."),
    _declare_flag(BASED_SCHEMA_ERROR, "accepted; structures of tables need no snapshot here."),
    _declare_flag(BASED_DATA_ERROR, "whether tables are read when the binlog no longer holds the saved position."),
    new_tables_key(_SNAPSHOT.name),
    _SNAPSHOT.strings(
        SNAPSHOT_TABLES,
        "Which of the tables the snapshot at the start reads, as regular expressions that match whole names of the "
        "form database.table. Not set: all.",
        default=None,
        validator=regex_list,
        width=Width.LONG,
        display_name="Tables of the snapshot",
    ),
    _SNAPSHOT.low.string(
        SNAPSHOT_SELECTS,
        "Tables of which the snapshot at the start reads only some rows, as a comma-separated list of "
        "database.table. For each the option snapshot.select.statement.overrides.DATABASE.TABLE holds a SELECT of "
        "the table's columns. SELECT * with a condition is read in chunks; any other statement is read at once, and "
        "from its beginning again after a restart.",
        default=None,
        width=Width.LONG,
        display_name="Statements of the snapshot",
        example="shop.orders",
    ),
    _SNAPSHOT.low.string(
        SNAPSHOT_QUERIES,
        "select_all: all columns, or as snapshot.select.statement.overrides says. custom is refused: it names a Java "
        "class.",
        default="select_all",
        validator=words("select_all", "custom"),
        display_name="Queries of the snapshot",
    ),
    _SNAPSHOT.low.string(
        SNAPSHOT_LOCKS,
        "Snapshots take no lock, but for one case: a table without a key is locked for a moment where the server "
        "can't tell the position of a read view (MySQL). none forbids that: the view is opened again until "
        "nothing was committed meanwhile. All other words mean the same.",
        default="minimal",
        validator=words(
            "minimal",
            "minimal_percona",
            "minimal_percona_no_table_locks",
            "minimal_at_least_once",
            "extended",
            "none",
            "custom",
        ),
        display_name="Locks",
    ),
    _SNAPSHOT.low.long(
        SNAPSHOT_LOCK_TIMEOUT,
        "How long to wait for it, in whole seconds.",
        default=10_000,
        unit="ms",
        validator=not_negative,
        display_name="Wait for that lock",
    ),
    _SNAPSHOT.low.long(
        SNAPSHOT_DELAY,
        "How long to wait at the start before the snapshot begins. The stream does not wait.",
        default=0,
        unit="ms",
        validator=not_negative,
        display_name="Delay of the snapshot",
    ),
    _SNAPSHOT.low.string(
        SNAPSHOT_ORDER,
        "Whether tables with few rows (ascending) or many (descending) are read first, by the server's estimates; "
        "disabled: by name.",
        default="disabled",
        validator=words("disabled", "ascending", "descending"),
        display_name="Order of tables",
    ),
    _SNAPSHOT.integer(
        SNAPSHOT_THREADS,
        "Chunks of tables that a task reads at the same time, each over a connection of its own.",
        default=1,
        unit="connections",
        validator=between(1, 64),
        display_name="Connections of a snapshot",
    ),
    _SNAPSHOT.low.string(
        SNAPSHOT_SPLIT,
        "Column by whose ranges several connections (snapshot.max.threads) read a table without a key: "
        "database.table:column for tables that match a regular expression, several separated by semicolons. The "
        "column holds whole numbers, decimals, floating-point numbers, dates or timestamps, and has an index if "
        "possible. Tables with a key are always divided by it. Not set: one connection reads a table without a key.",
        default=None,
        validator=split_columns,
        width=Width.LONG,
        display_name="Columns that divide tables without a key",
        example="shop.visits:visited_at;shop\\.log_.*:id",
    ),
    _SNAPSHOT.low.integer(
        SNAPSHOT_ROWS,
        "Rows that are read at once and, after a restart, at most again.",
        default=8_192,
        unit="rows",
        validator=between(1, 1_000_000),
        aliases=("incremental.snapshot.chunk.size", "snapshot.fetch.size"),
        display_name="Rows per chunk",
    ),
    _SNAPSHOT.low.integer(
        SNAPSHOT_RATE,
        "Rows that snapshots of one task read per second at the most; 0: no limit.",
        default=0,
        unit="rows/s",
        validator=not_negative,
        display_name="Rows per second",
    ),
    _SNAPSHOT.low.boolean(
        SNAPSHOT_ADAPTIVE,
        "Whether snapshots slow down while the server answers noticeably slower than it did before.",
        default=True,
        display_name="Give way to other load",
    ),
    _SNAPSHOT.low.string(
        SNAPSHOT_HOST,
        "A replica of the source that snapshots read instead of it. Both need GTIDs.",
        default=None,
        validator=host_or_none,
        width=Width.MEDIUM,
        display_name="Replica",
        example="replica.example.com",
    ),
    _SNAPSHOT.low.integer(
        SNAPSHOT_PORT,
        "The replica's port. Not set: that of the source.",
        default=None,
        unit="port",
        validator=unless_null(between(1, 65_535)),
        display_name="Replica's port",
    ),
    _SNAPSHOT.low.string(
        SNAPSHOT_USER,
        "Account for the replica. Not set: that of the source.",
        default=None,
        display_name="Replica's user",
    ),
    _SNAPSHOT.low.password(
        SNAPSHOT_PASSWORD,
        "The password of snapshot.user. Not set: that of the source.",
        default=None,
        display_name="Replica's password",
    ),
    _SNAPSHOT.low.string(
        PROGRESS_TOPIC,
        "Topic that gets the progress of snapshots, a record per table whenever it has changed. Not set: no such "
        "records.",
        default=None,
        validator=topic_name,
        width=Width.MEDIUM,
        display_name="Progress topic",
        example="shop.snapshot-progress",
    ),
    _SNAPSHOT.low.long(
        PROGRESS_INTERVAL,
        "The least time between two records of a table in snapshot.progress.topic.",
        default=5_000,
        unit="ms",
        validator=check_positive,
        display_name="Progress interval",
    ),
    _SIGNALS.string(
        SIGNALS,
        "Table (database.table, with the three text columns id, type and data) whose new rows are orders to the "
        "connector: execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot, log, set-binlog-position. "
        "Not set: no such orders.",
        default=None,
        validator=table_or_none,
        width=Width.MEDIUM,
        display_name="Signal table",
        example="millrace.signals",
    ),
    _SIGNALS.low.strings(
        CHANNELS,
        "Where orders come from: source, the signal table; kafka, a topic. Others are named in a warning.",
        default=["source"],
        display_name="Signal channels",
    ),
    _SIGNALS.low.string(
        SIGNAL_TOPIC,
        'Topic of the channel kafka: its records have the topic prefix as key and {"type": ..., "data": ...} as '
        "value; the first partition is read. Not set: prefix-signal.",
        default=None,
        validator=topic_name,
        display_name="Signal topic",
    ),
    _SIGNALS.low.string(
        SIGNAL_BROKERS,
        "Addresses of the Kafka cluster with that topic. Required with the channel kafka.",
        default=None,
        width=Width.LONG,
        display_name="Signal brokers",
    ),
    _SIGNALS.low.string(
        SIGNAL_GROUP,
        "Consumer group that keeps the place in the signal topic.",
        default="kafka-signal",
        aliases=("signal.kafka.groupId",),
        display_name="Signal group",
    ),
    _HEARTBEAT.integer(
        HEARTBEAT,
        "How often a record goes to the heartbeat topic; 0: never. Positions of quiet sources are saved all the "
        "same. Also how often the heartbeat table is written, which is every 10 s with 0.",
        default=0,
        unit="ms",
        validator=not_negative,
        display_name="Heartbeat interval",
        example="10000",
    ),
    _HEARTBEAT.low.string(
        HEARTBEAT_QUERY,
        "SQL statement that is run on the source with each heartbeat; needs heartbeat.interval.ms.",
        default=None,
        width=Width.LONG,
        display_name="Heartbeat statement",
    ),
    table_heartbeats_key(_HEARTBEAT.name, ums=True),
    _HEARTBEAT.low.string(
        HEARTBEAT_TABLE,
        "Table (database.table) of the source into which the connector writes the time, so that the delay of the "
        "whole way can be measured. Not set: nothing is written.",
        default=None,
        validator=table_or_none,
        width=Width.MEDIUM,
        display_name="Heartbeat table",
        example="millrace.heartbeat",
    ),
    _HEARTBEAT.low.integer(
        HEARTBEAT_LATE,
        "After how long a heartbeat of the heartbeat table that has not come through counts as late.",
        default=60_000,
        unit="ms",
        validator=check_positive,
        display_name="Late heartbeat",
    ),
    _HEARTBEAT.low.boolean(
        HEARTBEAT_TABLE_CREATE,
        "Whether the connector creates the table if it is not there and the account may do so.",
        default=True,
        display_name="Create the heartbeat table",
    ),
    ConfigKey(
        name=TASK_SHARD,
        type=ConfigType.STRING,
        default=None,
        internal=True,
        doc="The part of the source that a task owns; set by the connector.",
    ),
)
