"""The numbers that tasks of the Cassandra connector report, by name.

The reader of the directory sets the first group, the stream the second, the watch of definitions the third, snapshots the
last. Numbers of a node's log carry the label ``node``, numbers of one table the label ``table``
(``keyspace.table``).
"""

from __future__ import annotations

from typing import Final

from connectors.debezium_metrics import (
    SNAPSHOT,
    SNAPSHOTS,
    MirrorRule,
    declare_metrics,
    mirrored_metrics,
    seconds_to_ms,
)

# The directory of a node's commit log (cdc_raw).
DIRECTORY_BYTES: Final = "cassandra_cdc_directory_bytes"
DIRECTORY_LIMIT: Final = "cassandra_cdc_directory_limit_bytes"
DIRECTORY_FILL: Final = "cassandra_cdc_directory_fill_ratio"
DIRECTORY_AVAILABLE: Final = "cassandra_cdc_directory_available"
SEGMENTS_WAITING: Final = "cassandra_segments_waiting"
SEGMENTS_READ: Final = "cassandra_segments_read_total"
SEGMENTS_DELETED: Final = "cassandra_segments_deleted_total"
SEGMENTS_RELINKED: Final = "cassandra_segments_relinked_total"
DELETE_ERRORS: Final = "cassandra_segment_delete_errors_total"
DAMAGED: Final = "cassandra_damaged_segments_total"
LOST_BYTES: Final = "cassandra_damaged_bytes_skipped_total"
SEGMENTS_ASIDE: Final = "cassandra_segments_kept_aside"
SEGMENT: Final = "cassandra_segment_id"
POSITION: Final = "cassandra_segment_position"
READ_BYTES: Final = "cassandra_log_bytes_read_total"
LAG_SECONDS: Final = "cassandra_lag_seconds"
LAG_BYTES: Final = "cassandra_lag_bytes"

# The stream of mutations.
ENTRIES: Final = "cassandra_mutations_total"
UPDATES: Final = "cassandra_partition_updates_total"
EVENTS: Final = "cassandra_events_total"
IGNORED: Final = "cassandra_updates_ignored_total"
UNKNOWN_TABLES: Final = "cassandra_updates_of_unknown_tables_total"
COUNTERS: Final = "cassandra_counter_updates_skipped_total"
BAD: Final = "cassandra_bad_mutations_total"
DROPPED_CHANGES: Final = "cassandra_dropped_changes_total"
FULL_DECODES: Final = "cassandra_updates_decoded_in_full_total"
LATENCY_WRITE_TO_LOG: Final = "cassandra_latency_write_to_log_seconds"
LATENCY_LOG_TO_READ: Final = "cassandra_latency_log_to_read_seconds"
LATENCY_READ_TO_TOPIC: Final = "cassandra_latency_read_to_topic_seconds"
LATENCY_WRITE_TO_TOPIC: Final = "cassandra_latency_write_to_topic_seconds"
LAST_EVENT: Final = "cassandra_last_event_timestamp_seconds"

# Definitions of tables.
SCHEMA_REFRESHES: Final = "cassandra_schema_refreshes_total"
SCHEMA_ERRORS: Final = "cassandra_schema_refresh_errors_total"
SCHEMA_CHANGES: Final = "cassandra_schema_changes_total"
TABLES: Final = "cassandra_tables"
REFUSED_TABLES: Final = "cassandra_tables_refused"
TABLES_WAITING: Final = "cassandra_tables_waiting_for_last_segment"
NODES_APART: Final = "cassandra_nodes_with_other_schema"

# Snapshots.
SNAPSHOT_RUNNING: Final = "cassandra_snapshot_running"
SNAPSHOT_ROWS: Final = "cassandra_snapshot_rows_total"
SNAPSHOT_PARTITIONS: Final = "cassandra_snapshot_partitions_total"
SNAPSHOT_CHUNKS: Final = "cassandra_snapshot_chunks_total"
SNAPSHOT_PROGRESS: Final = "cassandra_snapshot_progress_ratio"
SNAPSHOT_QUERIES: Final = "cassandra_snapshot_queries_total"
SNAPSHOT_QUERY_ERRORS: Final = "cassandra_snapshot_query_errors_total"
SNAPSHOT_QUERY_SECONDS: Final = "cassandra_snapshot_query_seconds_total"
SNAPSHOT_IN_FLIGHT: Final = "cassandra_snapshot_queries_in_flight"
SNAPSHOT_LIMIT: Final = "cassandra_snapshot_query_limit"

#: Counters that are there with 0 from the start: whoever looks for growth must see the first step.
FROM_ZERO: Final = (
    SEGMENTS_READ,
    SEGMENTS_DELETED,
    DELETE_ERRORS,
    DAMAGED,
    LOST_BYTES,
    ENTRIES,
    UPDATES,
    EVENTS,
    IGNORED,
    UNKNOWN_TABLES,
    BAD,
)

_LOG: Final = "commitlog-processor"
#: What of these Debezium's dashboards have as well.
DEBEZIUM: Final = {
    LAG_SECONDS: (MirrorRule("MilliSecondsBehindSource", seconds_to_ms),),
    EVENTS: (MirrorRule("TotalNumberOfEventsSeen"),),
    IGNORED: (MirrorRule("NumberOfEventsFiltered"),),
    BAD: (MirrorRule("NumberOfErroneousEvents"), MirrorRule("NumberOfUnrecoverableErrors", context=_LOG)),
    DROPPED_CHANGES: (MirrorRule("NumberOfEventsSkipped"),),
    ENTRIES: (MirrorRule("NumberOfProcessedMutations", context=_LOG),),
    POSITION: (MirrorRule("CommitlogPosition", context=_LOG),),
    SNAPSHOT_ROWS: (MirrorRule("TotalNumberOfEventsSeen", context=SNAPSHOT),),
}

#: Name -> (kind, help), for ``SourceConnector.metrics``.
METRICS: Final[dict[str, tuple[str, str]]] = {
    **mirrored_metrics(DEBEZIUM),
    **declare_metrics(*SNAPSHOTS),
    DIRECTORY_BYTES: ("gauge", "Bytes of the files in cdc_raw, which count against the node's cdc_total_space."),
    DIRECTORY_LIMIT: (
        "gauge",
        "The node's cdc_total_space; at it writes to tables with cdc are refused. 0: not known.",
    ),
    DIRECTORY_FILL: ("gauge", "Share of cdc_total_space that is used, 0 to 1; 0 where the limit is not known."),
    DIRECTORY_AVAILABLE: ("gauge", "1 while the directory can be read and segments can be deleted from it."),
    SEGMENTS_WAITING: ("gauge", "Segments in the directory that are not read to their end, the newest included."),
    SEGMENTS_READ: ("counter", "Segments that were read to their end."),
    SEGMENTS_DELETED: ("counter", "Segments that were deleted after everything in them was delivered."),
    SEGMENTS_RELINKED: ("counter", "Segments that came back after they had been deleted: the server had crashed."),
    DELETE_ERRORS: ("counter", "Deletions of segments that failed; they are retried."),
    DAMAGED: ("counter", "Places at which a segment could not be read: damaged entries, markers or sections."),
    LOST_BYTES: ("counter", "Bytes of damaged segments that were passed over (commit.log.error.policy=skip)."),
    SEGMENTS_ASIDE: ("gauge", "Damaged segments that are kept aside."),
    SEGMENT: ("gauge", "Id of the segment that is being read."),
    POSITION: ("gauge", "Logical offset in it up to which was read."),
    READ_BYTES: ("counter", "Bytes of entries read from the log, of all tables."),
    LAG_SECONDS: ("gauge", "Age of the oldest data of the log that was not read; 0 at its end."),
    LAG_BYTES: ("gauge", "Bytes of the log that can be read and were not."),
    ENTRIES: ("counter", "Mutations read from the log, of all tables."),
    UPDATES: ("counter", "Partition updates of captured tables read from the log."),
    EVENTS: ("counter", "Records made from them."),
    IGNORED: ("counter", "Partition updates passed over: of tables that are not captured."),
    UNKNOWN_TABLES: (
        "counter",
        "Partition updates skipped since no definition of their table is known. Any is data lost.",
    ),
    COUNTERS: ("counter", "Partition updates of tables that can't be captured: counters, some with COMPACT STORAGE."),
    BAD: ("counter", "Mutations that could not be decoded."),
    DROPPED_CHANGES: ("counter", "Changes that the output form has no event for, left out."),
    FULL_DECODES: ("counter", "Partition updates that the fast decoder left to the complete one."),
    LATENCY_WRITE_TO_LOG: ("gauge", "From the newest change's write time until it could be read from the log."),
    LATENCY_LOG_TO_READ: ("gauge", "From when it could be read until it was read."),
    LATENCY_READ_TO_TOPIC: ("gauge", "From reading it until Kafka had it."),
    LATENCY_WRITE_TO_TOPIC: ("gauge", "From a cell's write time until Kafka had its record: all stages."),
    LAST_EVENT: ("gauge", "Write time of the newest change that was handed over, seconds since 1970."),
    SCHEMA_REFRESHES: ("counter", "Times that the definitions of all tables were read."),
    SCHEMA_ERRORS: ("counter", "Times that they could not be read; the last known ones stay in use."),
    SCHEMA_CHANGES: (
        "counter",
        "Changes of the structure of captured tables that were seen since the task's start, by table.",
    ),
    TABLES: ("gauge", "Tables that are captured."),
    REFUSED_TABLES: ("gauge", "Tables with cdc = true that can't be captured: counters, some with COMPACT STORAGE."),
    TABLES_WAITING: (
        "gauge",
        "Tables without cdc whose changes are still delivered, until all nodes agree that it is off.",
    ),
    NODES_APART: (
        "gauge",
        "Nodes that have another version of the schema than most: they are down, or do not learn it.",
    ),
    SNAPSHOT_RUNNING: ("gauge", "Snapshots that the task works at; those that are paused do not count."),
    SNAPSHOT_ROWS: ("counter", "Rows read by snapshots."),
    SNAPSHOT_PARTITIONS: ("counter", "Partition updates made from them."),
    SNAPSHOT_CHUNKS: ("counter", "Chunks that were read and handed over."),
    SNAPSHOT_PROGRESS: ("gauge", "Share of the task's token ranges that the running snapshots have read, 0 to 1."),
    SNAPSHOT_QUERIES: ("counter", "Pages that snapshots asked for."),
    SNAPSHOT_QUERY_ERRORS: ("counter", "Those that failed or timed out; they are asked for again."),
    SNAPSHOT_QUERY_SECONDS: ("counter", "Time that they took, summed."),
    SNAPSHOT_IN_FLIGHT: ("gauge", "Queries of snapshots under way."),
    SNAPSHOT_LIMIT: ("gauge", "Queries of snapshots that may be under way, adapted to the servers' latency."),
}
