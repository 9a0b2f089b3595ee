"""The numbers that tasks of the Scylla connector report: declared here, set by the reader and the snapshot."""

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

LAG_SECONDS: Final = "scylla_lag_seconds"
WINDOWS: Final = "scylla_windows_total"
WINDOW_SECONDS: Final = "scylla_window_seconds"
EMPTY_WINDOWS: Final = "scylla_empty_windows_total"
QUERIES: Final = "scylla_queries_total"
QUERY_ERRORS: Final = "scylla_query_errors_total"
QUERY_SECONDS: Final = "scylla_query_seconds_total"
QUERIES_IN_FLIGHT: Final = "scylla_queries_in_flight"
QUERY_LIMIT: Final = "scylla_query_limit"
PAGES: Final = "scylla_pages_total"
ROWS: Final = "scylla_rows_total"
EVENTS: Final = "scylla_events_total"
LATENESS_SECONDS: Final = "scylla_lateness_seconds"
LATE_ROWS: Final = "scylla_late_rows_total"
CONFIDENCE_SECONDS: Final = "scylla_confidence_seconds"
GROUPS: Final = "scylla_groups"
STREAMS: Final = "scylla_streams"
GENERATION_START: Final = "scylla_generation_start_seconds"
GROUPS_FINISHED: Final = "scylla_groups_finished"
SCHEMA_CHANGES: Final = "scylla_schema_changes_total"
DROPPED_CHANGES: Final = "scylla_dropped_changes_total"
SNAPSHOT_ROWS: Final = "scylla_snapshot_rows_total"
SNAPSHOT_SKIPPED: Final = "scylla_snapshot_rows_skipped_total"
SNAPSHOT_CHUNKS: Final = "scylla_snapshot_chunks_total"
SNAPSHOT_PROGRESS: Final = "scylla_snapshot_progress_ratio"
SNAPSHOT_RUNNING: Final = "scylla_snapshot_running"

#: Counters that are there with 0 from the start: whoever looks for growth must see the first step.
FROM_ZERO: Final = (WINDOWS, QUERIES, QUERY_ERRORS, ROWS, EVENTS, LATE_ROWS, DROPPED_CHANGES)

#: What of these Debezium's dashboards have as well.
DEBEZIUM: Final = {
    LAG_SECONDS: (MirrorRule("MilliSecondsBehindSource", seconds_to_ms),),
    EVENTS: (MirrorRule("TotalNumberOfEventsSeen"),),
    DROPPED_CHANGES: (MirrorRule("NumberOfEventsSkipped"),),
    SNAPSHOT_ROWS: (MirrorRule("TotalNumberOfEventsSeen", context=SNAPSHOT),),
}

#: Name -> (kind, help), for ``SourceConnector.metrics``. Labels: ``table`` where a number is of one table.
METRICS: Final[dict[str, tuple[str, str]]] = {
    **mirrored_metrics(DEBEZIUM),
    **declare_metrics(*SNAPSHOTS),
    LAG_SECONDS: ("gauge", "Age of the oldest change that is not yet handed over, over the task's groups of streams."),
    WINDOWS: ("counter", "Windows that were read to their end."),
    WINDOW_SECONDS: ("gauge", "Width of the windows that are being read, the widest."),
    EMPTY_WINDOWS: ("counter", "Windows without a row."),
    QUERIES: ("counter", "Queries sent, pages after the first not counted."),
    QUERY_ERRORS: ("counter", "Queries that failed or timed out."),
    QUERY_SECONDS: ("counter", "Time that queries took, summed."),
    QUERIES_IN_FLIGHT: ("gauge", "Queries under way."),
    QUERY_LIMIT: ("gauge", "Queries that may be under way, adapted to the servers' latency."),
    PAGES: ("counter", "Pages received."),
    ROWS: ("counter", "Rows read from logs."),
    EVENTS: ("counter", "Records made from them."),
    LATENESS_SECONDS: ("gauge", "How late after its write time the latest row was seen to become readable."),
    LATE_ROWS: ("counter", "Rows that were seen only after the confidence window had passed."),
    CONFIDENCE_SECONDS: ("gauge", "The confidence window in force."),
    GROUPS: ("gauge", "Groups of streams of the task."),
    STREAMS: ("gauge", "Streams of the task."),
    GENERATION_START: (
        "gauge",
        "Start of the generation that is being read, seconds since 1970, the oldest of the task.",
    ),
    GROUPS_FINISHED: ("gauge", "Groups that were read to the end of their generation."),
    SCHEMA_CHANGES: (
        "counter",
        "Changes of the structure of captured tables that were seen since the task's start, by table.",
    ),
    DROPPED_CHANGES: ("counter", "Changes left out by configuration: skipped operations and deletes of many rows."),
    SNAPSHOT_ROWS: ("counter", "Rows that the snapshot read."),
    SNAPSHOT_SKIPPED: ("counter", "Rows that the snapshot left out because the stream had sent something newer."),
    SNAPSHOT_CHUNKS: ("counter", "Chunks that the snapshot finished."),
    SNAPSHOT_PROGRESS: ("gauge", "Share of the task's token ranges that the snapshot has read, 0 to 1."),
    SNAPSHOT_RUNNING: ("gauge", "1 while the snapshot runs."),
}
