"""Options: the stream, full pulls, signals and heartbeats."""

from __future__ import annotations

from typing import Final

from connectors.mysql.config_keys_rules import (
    host_or_none,
    not_negative,
    positive,
    regex_list,
    split_columns,
    table_or_none,
    topic_name,
    unless_none,
)
from connectors.new_tables import new_tables_key
from connectors.options import ConfigKey, ConfigType, Importance, Width, between, words

BATCH: Final = "max.batch.size"
QUEUE: Final = "max.queue.size"
QUEUE_BYTES: Final = "max.queue.size.in.bytes"
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

_STREAM: Final = "Stream"
_SNAPSHOT: Final = "Full pull"
_SIGNALS: Final = "Signals"
_HEARTBEAT: Final = "Heartbeat"


def _flag(name: str, what: str) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=ConfigType.BOOLEAN,
        default=False,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        doc=f"With snapshot.mode=configuration_based: {what}",
    )


KEYS: Final = (
    ConfigKey(
        name=BATCH,
        type=ConfigType.INT,
        default=2_048,
        unit="records",
        validator=between(1, 100_000),
        group=_STREAM,
        display_name="Batch size",
        doc="Records that a task hands over at once at the most.",
    ),
    ConfigKey(
        name=QUEUE,
        type=ConfigType.INT,
        default=8_192,
        unit="records",
        validator=positive,
        group=_STREAM,
        importance=Importance.LOW,
        display_name="Queue size",
        doc="Records that a task has made and not yet handed over at the most. Must be larger than max.batch.size.",
    ),
    ConfigKey(
        name=BUFFER,
        type=ConfigType.INT,
        default=0,
        unit="rows",
        validator=not_negative,
        group=_STREAM,
        importance=Importance.LOW,
        display_name="Rows held until the commit",
        doc="Rows of a transaction that are held back until its end is read, so that one that is rolled back is not "
        "sent. Rolled back transactions are in the binlog only where they changed tables without transactions too; a "
        "larger one is sent before its end is known. 0: nothing is held back.",
    ),
    ConfigKey(
        name=POLL,
        type=ConfigType.LONG,
        default=500,
        unit="ms",
        validator=positive,
        group=_STREAM,
        importance=Importance.LOW,
        display_name="Poll interval",
        doc="How long a quiet task waits before it reports its position. Changes are handed over as they come.",
    ),
    ConfigKey(
        name=FAILURES,
        type=ConfigType.STRING,
        default="fail",
        validator=words("fail", "warn", "skip", "ignore"),
        group=_STREAM,
        aliases=("event.deserialization.failure.handling.mode",),
        display_name="Events that can't be read",
        doc="What to do with an event of the binlog that can't be read: fail; warn, leave it out with a message in the "
        "log; skip or ignore, leave it out. A row with a bad value is another matter: see errors.tolerance.",
    ),
    ConfigKey(
        name=CONVERTING_FAILURES,
        type=ConfigType.STRING,
        default="warn",
        validator=words("fail", "warn", "skip"),
        group=_STREAM,
        importance=Importance.LOW,
        display_name="Values that don't fit",
        doc="What to do with a value that its field can't hold (its mode has no form for it): warn and skip send null "
        "where the column allows it; fail makes the row a bad one, as it always is where the column is NOT NULL.",
    ),
    ConfigKey(
        name=INCONSISTENT,
        type=ConfigType.STRING,
        default="fail",
        validator=words("fail", "warn", "skip", "ignore"),
        group=_STREAM,
        display_name="Tables whose structure is unknown",
        doc="What to do with changes of a table whose structure at that time is not known, which can happen only where "
        "the server does not write it into the binlog (binlog_row_metadata=FULL): fail; warn, leave them out with a "
        "message in the log; skip or ignore, leave them out.",
    ),
    ConfigKey(
        name=SNAPSHOT,
        type=ConfigType.STRING,
        default="initial",
        group=_SNAPSHOT,
        importance=Importance.HIGH,
        validator=words(*SNAPSHOT_MODES, *OLD_MODES),
        display_name="Snapshot",
        doc="When what the tables hold is read, always beside the stream. initial: once, when there are no saved "
        "positions. always: at each start. initial_only: once, and no stream after it. when_needed: as initial, and "
        "also when the binlog no longer holds the saved position. no_data: never; the stream begins at the server's "
        "current position. never: the same, from the oldest binlog. recovery: as no_data, for a connector with saved "
        "positions. configuration_based: see the options below.",
    ),
    _flag(BASED_DATA, "whether tables are read when there are no saved positions."),
    _flag(BASED_SCHEMA, "accepted; structures of tables need no snapshot here."),
    _flag(BASED_STREAM, "whether the stream is read after that."),
    _flag(BASED_SCHEMA_ERROR, "accepted; structures of tables need no snapshot here."),
    _flag(BASED_DATA_ERROR, "whether tables are read when the binlog no longer holds the saved position."),
    new_tables_key(_SNAPSHOT),
    ConfigKey(
        name=SNAPSHOT_TABLES,
        type=ConfigType.LIST,
        default=None,
        validator=regex_list,
        group=_SNAPSHOT,
        width=Width.LONG,
        display_name="Tables of the snapshot",
        doc="Which of the tables the snapshot at the start reads, as regular expressions that match whole names of the "
        "form database.table. Not set: all.",
    ),
    ConfigKey(
        name=SNAPSHOT_SELECTS,
        type=ConfigType.STRING,
        default=None,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        width=Width.LONG,
        display_name="Statements of the snapshot",
        example="shop.orders",
        doc="Tables of which the snapshot at the start reads only some rows, as a comma-separated list of "
        "database.table. For each the option snapshot.select.statement.overrides.DATABASE.TABLE holds a SELECT of "
        "the table's columns. SELECT * with a condition is read in chunks; any other statement is read at once, and "
        "from its beginning again after a restart.",
    ),
    ConfigKey(
        name=SNAPSHOT_QUERIES,
        type=ConfigType.STRING,
        default="select_all",
        validator=words("select_all", "custom"),
        group=_SNAPSHOT,
        importance=Importance.LOW,
        display_name="Queries of the snapshot",
        doc="select_all: all columns, or as snapshot.select.statement.overrides says. custom is refused: it names a Java "
        "class.",
    ),
    ConfigKey(
        name=SNAPSHOT_LOCKS,
        type=ConfigType.STRING,
        default="minimal",
        group=_SNAPSHOT,
        importance=Importance.LOW,
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
        doc="Full pulls take no lock, but for one case: a table without a key is locked for a moment where the server "
        "can't tell the position of a read view (MySQL). none forbids that: the view is opened again until "
        "nothing was committed meanwhile. All other words mean the same.",
    ),
    ConfigKey(
        name=SNAPSHOT_LOCK_TIMEOUT,
        type=ConfigType.LONG,
        default=10_000,
        unit="ms",
        validator=not_negative,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        display_name="Wait for that lock",
        doc="How long to wait for it, in whole seconds.",
    ),
    ConfigKey(
        name=SNAPSHOT_DELAY,
        type=ConfigType.LONG,
        default=0,
        unit="ms",
        validator=not_negative,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        display_name="Delay of the snapshot",
        doc="How long to wait at the start before the snapshot begins. The stream does not wait.",
    ),
    ConfigKey(
        name=SNAPSHOT_ORDER,
        type=ConfigType.STRING,
        default="disabled",
        group=_SNAPSHOT,
        importance=Importance.LOW,
        validator=words("disabled", "ascending", "descending"),
        display_name="Order of tables",
        doc="Whether tables with few rows (ascending) or many (descending) are read first, by the server's estimates; "
        "disabled: by name.",
    ),
    ConfigKey(
        name=SNAPSHOT_THREADS,
        type=ConfigType.INT,
        default=1,
        unit="connections",
        validator=between(1, 64),
        group=_SNAPSHOT,
        display_name="Connections of a full pull",
        doc="Chunks of tables that a task reads at the same time, each over a connection of its own.",
    ),
    ConfigKey(
        name=SNAPSHOT_SPLIT,
        type=ConfigType.STRING,
        default=None,
        validator=split_columns,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        width=Width.LONG,
        display_name="Columns that divide tables without a key",
        example="shop.visits:visited_at;shop\\.log_.*:id",
        doc="Column by whose ranges several connections (snapshot.max.threads) read a table without a key: "
        "database.table:column for tables that match a regular expression, several separated by semicolons. The "
        "column holds whole numbers, decimals, floating-point numbers, dates or timestamps, and has an index if "
        "possible. Tables with a key are always divided by it. Not set: one connection reads a table without a key.",
    ),
    ConfigKey(
        name=SNAPSHOT_ROWS,
        type=ConfigType.INT,
        default=8_192,
        unit="rows",
        validator=between(1, 1_000_000),
        aliases=("incremental.snapshot.chunk.size", "snapshot.fetch.size"),
        group=_SNAPSHOT,
        importance=Importance.LOW,
        display_name="Rows per chunk",
        doc="Rows that are read at once and, after a restart, at most again.",
    ),
    ConfigKey(
        name=SNAPSHOT_RATE,
        type=ConfigType.INT,
        default=0,
        unit="rows/s",
        validator=not_negative,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        display_name="Rows per second",
        doc="Rows that full pulls of one task read per second at the most; 0: no limit.",
    ),
    ConfigKey(
        name=SNAPSHOT_ADAPTIVE,
        type=ConfigType.BOOLEAN,
        default=True,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        display_name="Give way to other load",
        doc="Whether full pulls slow down while the server answers noticeably slower than it did before.",
    ),
    ConfigKey(
        name=SNAPSHOT_HOST,
        type=ConfigType.STRING,
        default=None,
        validator=host_or_none,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        width=Width.MEDIUM,
        display_name="Replica",
        example="replica.example.com",
        doc="A replica of the source that full pulls read instead of it. Both need GTIDs.",
    ),
    ConfigKey(
        name=SNAPSHOT_PORT,
        type=ConfigType.INT,
        default=None,
        unit="port",
        validator=unless_none(between(1, 65_535)),
        group=_SNAPSHOT,
        importance=Importance.LOW,
        display_name="Replica's port",
        doc="The replica's port. Not set: that of the source.",
    ),
    ConfigKey(
        name=SNAPSHOT_USER,
        type=ConfigType.STRING,
        default=None,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        display_name="Replica's user",
        doc="Account for the replica. Not set: that of the source.",
    ),
    ConfigKey(
        name=SNAPSHOT_PASSWORD,
        type=ConfigType.PASSWORD,
        default=None,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        display_name="Replica's password",
        doc="Its password. Not set: that of the source.",
    ),
    ConfigKey(
        name=PROGRESS_TOPIC,
        type=ConfigType.STRING,
        default=None,
        validator=topic_name,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        width=Width.MEDIUM,
        display_name="Progress topic",
        example="shop.pull-progress",
        doc="Topic that gets the progress of full pulls, a record per table whenever it has changed. Not set: no such "
        "records.",
    ),
    ConfigKey(
        name=PROGRESS_INTERVAL,
        type=ConfigType.LONG,
        default=5_000,
        unit="ms",
        validator=positive,
        group=_SNAPSHOT,
        importance=Importance.LOW,
        display_name="Progress interval",
        doc="The least time between two of them.",
    ),
    ConfigKey(
        name=SIGNALS,
        type=ConfigType.STRING,
        default=None,
        validator=table_or_none,
        group=_SIGNALS,
        width=Width.MEDIUM,
        display_name="Signal table",
        example="millrace.signals",
        doc="Table (database.table, with the three text columns id, type and data) whose new rows are orders to the "
        "connector: execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot, log, set-binlog-position. "
        "Not set: no such orders.",
    ),
    ConfigKey(
        name=CHANNELS,
        type=ConfigType.LIST,
        default=["source"],
        group=_SIGNALS,
        importance=Importance.LOW,
        display_name="Signal channels",
        doc="Where orders come from: source, the signal table; kafka, a topic. Others are named in a warning.",
    ),
    ConfigKey(
        name=SIGNAL_TOPIC,
        type=ConfigType.STRING,
        default=None,
        validator=topic_name,
        group=_SIGNALS,
        importance=Importance.LOW,
        display_name="Signal topic",
        doc='Topic of the channel kafka: its records have the topic prefix as key and {"type": ..., "data": ...} as '
        "value; the first partition is read. Not set: prefix-signal.",
    ),
    ConfigKey(
        name=SIGNAL_BROKERS,
        type=ConfigType.STRING,
        default=None,
        group=_SIGNALS,
        importance=Importance.LOW,
        width=Width.LONG,
        display_name="Signal brokers",
        doc="Addresses of the Kafka cluster with that topic. Required with the channel kafka.",
    ),
    ConfigKey(
        name=SIGNAL_GROUP,
        type=ConfigType.STRING,
        default="kafka-signal",
        group=_SIGNALS,
        importance=Importance.LOW,
        aliases=("signal.kafka.groupId",),
        display_name="Signal group",
        doc="Consumer group that keeps the place in the signal topic.",
    ),
    ConfigKey(
        name=HEARTBEAT,
        type=ConfigType.INT,
        default=0,
        unit="ms",
        validator=not_negative,
        group=_HEARTBEAT,
        display_name="Heartbeat interval",
        example="10000",
        doc="How often a record goes to the heartbeat topic; 0: never. Positions of quiet sources are saved all the "
        "same. Also how often the heartbeat table is written, which is every 10 s with 0.",
    ),
    ConfigKey(
        name=HEARTBEAT_QUERY,
        type=ConfigType.STRING,
        default=None,
        group=_HEARTBEAT,
        importance=Importance.LOW,
        width=Width.LONG,
        display_name="Heartbeat statement",
        doc="SQL statement that is run on the source with each heartbeat; needs heartbeat.interval.ms.",
    ),
    ConfigKey(
        name=HEARTBEAT_TABLE,
        type=ConfigType.STRING,
        default=None,
        validator=table_or_none,
        group=_HEARTBEAT,
        importance=Importance.LOW,
        width=Width.MEDIUM,
        display_name="Heartbeat table",
        example="millrace.heartbeat",
        doc="Table (database.table) of the source into which the connector writes the time, so that the delay of the "
        "whole way can be measured. Not set: nothing is written.",
    ),
    ConfigKey(
        name=HEARTBEAT_LATE,
        type=ConfigType.INT,
        default=60_000,
        unit="ms",
        validator=positive,
        group=_HEARTBEAT,
        importance=Importance.LOW,
        display_name="Late heartbeat",
        doc="After how long a heartbeat of the heartbeat table that has not come through counts as late.",
    ),
    ConfigKey(
        name=HEARTBEAT_TABLE_CREATE,
        type=ConfigType.BOOLEAN,
        default=True,
        group=_HEARTBEAT,
        importance=Importance.LOW,
        display_name="Create the heartbeat table",
        doc="Whether the connector creates the table if it is not there and the account may do so.",
    ),
    ConfigKey(
        name=TASK_SHARD,
        type=ConfigType.STRING,
        default=None,
        internal=True,
        doc="The part of the source that a task owns; set by the connector.",
    ),
)
