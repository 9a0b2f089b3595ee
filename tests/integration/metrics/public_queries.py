"""The queries of public Grafana dashboards to Prometheus: metric names and labels, as facts, per dashboard.

From the dashboards of Strimzi (strimzi-kafka-operator, August 2026), Confluent (jmx-monitoring-stacks, November 2025) and
Debezium (debezium-examples, August 2026). An entry is one panel's query: which metric, with which labels, over time or not.
Constants are labels that a scrape configuration has to add.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

STATES = ("running", "paused", "failed", "unassigned", "destroyed")


@dataclass(frozen=True, slots=True)
class Ask:
    """One query: a metric by its labels. ``{}`` in ``over`` stands for it."""

    metric: str
    labels: dict[str, str] = field(default_factory=dict)
    over: str = "{}"
    #: Labels that the metric must have, with any value.
    present: tuple[str, ...] = ()
    #: Other metrics that are joined by the labels in ``on``.
    joined: tuple[str, ...] = ()
    on: str = ""

    def promql(self, common: str) -> str:
        """The query, with a dashboard's common selector."""
        parts = [common] if common else []
        parts += [f'{name}="{value}"' for name, value in self.labels.items()] + [f'{name}!=""' for name in self.present]
        query = self.over.replace("{}", f"{self.metric}{{{','.join(parts)}}}")
        if self.joined:
            query += "".join(f" * on ({self.on}) group_left () {name}" for name in self.joined)
            query = f"sum({query}) by (connector)"
        return query


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard: where it is published, which families it needs, its common selector and what it asks for."""

    name: str
    families: str
    common: str
    asks: tuple[Ask, ...]

    def queries(self) -> Iterator[tuple[str, str]]:
        """(metric with the labels that matter, query)."""
        for ask in self.asks:
            labels = ",".join([*ask.labels.values(), *ask.present])
            yield f"{ask.metric}{f'[{labels}]' if labels else ''}", ask.promql(self.common)


def _plain(
    prefix: str, *names: str, over: str = "{}", labels: dict[str, str] | None = None, present: tuple[str, ...] = ()
) -> tuple[Ask, ...]:
    return tuple(Ask(f"{prefix}{name}", labels or {}, over, present) for name in names)


_STRIMZI = 'strimzi_io_kind=~"KafkaConnect.*",strimzi_io_cluster="my-connect"'
_RATE = "sum(rate({}[5m])) by (kubernetes_pod_name)"
_BY_POD = "sum({}) by (kubernetes_pod_name)"

STRIMZI = Dashboard(
    "Strimzi, JMX exporter: strimzi-kafka-connect.json",
    "A",
    _STRIMZI,
    (
        *_plain("kafka_connect_worker_", "connector_count", "task_count", over="sum({})"),
        *_plain(
            "kafka_",
            "consumer_connection_count",
            "producer_connection_count",
            "admin_client_connection_count",
            over="sum({})",
        ),
        *_plain("kafka_", "producer_outgoing_byte_total", "consumer_incoming_byte_total", over=_RATE),
        *_plain("kafka_connect_coordinator_", "assigned_connectors", "assigned_tasks", over=_BY_POD),
        *_plain("kafka_connect_worker_rebalance_", "rebalancing", over="sum({})"),
        *_plain("kafka_connect_worker_connector_", *(f"{state}_task_count" for state in STATES), over="sum({})"),
        *_plain(
            "kafka_connect_worker_connector_",
            *(f"{state}_task_count" for state in STATES[1:]),
            labels={"namespace": "my-namespace"},
            over="sum({}) by (connector) != 0",
        ),
        Ask(
            "kafka_connect_connector_status",
            on="connector",
            joined=tuple(f"kafka_connect_connector_connector_{name}" for name in ("class", "version", "type")),
        ),
        Ask(
            "kafka_connect_task_error_total_record_failures",
            joined=("kafka_connect_connector_task_status",),
            on="connector, task",
        ),
        Ask("container_cpu_usage_seconds_total", over="sum(rate({}[5m])) by (pod)"),
        Ask("jvm_memory_used_bytes", over=_BY_POD),
        Ask("jvm_gc_collection_seconds_sum", over=_RATE),
        Ask("jvm_threads_current", {"namespace": "my-namespace"}, _BY_POD),
    ),
)

STRIMZI_ALERTS = Dashboard(
    "Strimzi: prometheus-kafka-connect-rules.yaml",
    "A",
    "",
    (
        Ask("kafka_connect_connector_status", {"status": "failed"}, "sum({}) by (namespace, pod) > 0"),
        Ask("kafka_connect_worker_connector_failed_task_count", over="sum({}) by (namespace, pod) > 0"),
        Ask("container_last_seen"),
    ),
)

STRIMZI_REPORTER = Dashboard(
    "Strimzi, metrics reporter: strimzi-kafka-connect.json",
    "C",
    _STRIMZI,
    (
        *_plain("kafka_connect_connect_worker_metrics_", "connector_count", "task_count", over="sum({})"),
        *_plain(
            "kafka_",
            "consumer_consumer_metrics_connection_count",
            "producer_producer_metrics_connection_count",
            "admin_client_admin_client_metrics_connection_count",
            over="sum({})",
        ),
        *_plain("kafka_producer_producer_", "metrics_outgoing_byte", "node_metrics_incoming_byte", over=_RATE),
        *_plain("kafka_connect_connect_coordinator_metrics_", "assigned_connectors", "assigned_tasks", over=_BY_POD),
        *_plain("kafka_connect_connect_worker_rebalance_metrics_", "rebalancing", over="sum({})"),
        *_plain(
            "kafka_connect_connect_worker_metrics_connector_",
            *(f"{state}_task_count" for state in STATES),
            over="sum({})",
        ),
        *_plain(
            "kafka_connect_connect_worker_metrics_connector_",
            *(f"{state}_task_count" for state in STATES[1:]),
            labels={"namespace": "my-namespace"},
            over="sum({}) by (connector) != 0",
        ),
        Ask(
            "kafka_connect_connector_metrics_status_info",
            on="connector",
            joined=tuple(
                f"kafka_connect_connector_metrics_connector_{name}_info" for name in ("class", "version", "type")
            ),
        ),
        Ask(
            "kafka_connect_task_error_metrics_total_record_failures",
            on="connector, task",
            joined=("kafka_connect_connector_task_metrics_status_info",),
        ),
        Ask(
            "process_cpu_seconds_total",
            {"namespace": "my-namespace", "container": "my-connect-connect"},
            "sum(rate({}[5m])) by (pod)",
        ),
        Ask("jvm_memory_used_bytes", over=_BY_POD),
        Ask("jvm_gc_collection_seconds_sum", over=_RATE),
        Ask("jvm_threads_current", {"namespace": "my-namespace"}, _BY_POD),
    ),
)


def _confluent(name: str, info: str, total: str, memory: str) -> Dashboard:
    worker, connector = "kafka_connect_connect_worker_metrics_", "kafka_connect_connector_metrics"
    counts = ("total", *STATES)
    return Dashboard(
        name,
        "B",
        'job="kafka-connect",env="my-env",kafka_connect_cluster_id=~"my-cluster",instance=~"WORKER"',
        (
            *_plain(f"{worker}connector_", *(f"{state}_task_count" for state in counts), over="sum({})"),
            *_plain(
                f"{worker}connector_", *(f"{state}_task_count" for state in counts), over="sum by (connector) ({})"
            ),
            *(Ask(connector, {"status": state}, "sum({})") for state in ("running", "stopped", "paused")),
            Ask(connector, over="sum({}) by (status)", present=("status",)),
            *(
                Ask(connector, present=(text,))
                for text in ("status", "connector_type", "connector_version", "connector_class")
            ),
            Ask("process_cpu_seconds_total", over="rate({}[5m])"),
            Ask(memory, over="sum without (area) ({})"),
            Ask("jvm_memory_bytes_max", {"area": "heap"}),
            Ask("jvm_gc_collection_seconds_sum", over="sum without (gc) (rate({}[5m]))"),
            *(Ask(f"kafka_connect_app{info}", present=("client_id", text)) for text in ("start_time_ms", "version")),
            *_plain(
                worker,
                "connector_count",
                "connector_startup_success_total",
                "connector_startup_failure_total",
                "task_count",
                "task_startup_success_total",
                "task_startup_failure_total",
                over="sum by (instance) ({})",
            ),
            *_plain(
                "kafka_connect_connect_metrics_",
                "network_io_rate",
                "incoming_byte_rate",
                "outgoing_byte_rate",
                "connection_count",
                f"failed_authentication{total}",
                "successful_authentication_rate",
                "io_ratio",
                "response_rate",
                "request_rate",
                present=("client_id",),
            ),
            *_plain(
                "kafka_connect_connect_worker_rebalance_metrics_",
                f"completed_rebalances{total}",
                "time_since_last_rebalance_ms",
                over="{} >= 0",
            ),
            *_plain("kafka_connect_connect_worker_rebalance_metrics_", "rebalance_avg_time_ms"),
            *_plain(
                "kafka_connect_connector_task_metrics_",
                "batch_size_avg",
                "batch_size_max",
                "offset_commit_success_percentage",
                "offset_commit_avg_time_ms",
                "running_ratio",
                "pause_ratio",
            ),
            *_plain(
                "kafka_connect_task_error_metrics_",
                "total_record_failures",
                "total_record_errors",
                "total_records_skipped",
                "total_errors_logged",
                "total_retries",
                "deadletterqueue_produce_requests",
                "deadletterqueue_produce_failures",
            ),
            *_plain(
                "kafka_connect_source_task_metrics_",
                "source_record_write_rate",
                "source_record_poll_rate",
                "source_record_active_count_avg",
                "source_record_active_count_max",
                "poll_batch_avg_time_ms",
                "poll_batch_max_time_ms",
                present=("task",),
            ),
            *_plain(
                "kafka_connect_sink_task_metrics_",
                "sink_record_read_rate",
                "sink_record_send_rate",
                "sink_record_active_count_avg",
                "sink_record_active_count_max",
                "offset_commit_completion_rate",
                "offset_commit_skip_rate",
                "put_batch_avg_time_ms",
                "put_batch_max_time_ms",
                "partition_count",
                present=("task",),
            ),
        ),
    )


CONFLUENT = _confluent("Confluent: kafka-connect-cluster.json", "", "", "jvm_memory_used_bytes")
CONFLUENT_OLD = _confluent(
    "Confluent, old exporter: kafka-connect-cluster.json", "_info", "_total", "jvm_memory_bytes_used"
)

_STREAM = (
    "Connected",
    "BinlogPosition",
    "IsGtidModeEnabled",
    "NumberOfCommittedTransactions",
    "NumberOfRolledBackTransactions",
    "NumberOfNotWellFormedTransactions",
    "TotalNumberOfEventsSeen",
    "NumberOfSkippedEvents",
    "NumberOfEventsFiltered",
    "MilliSecondsSinceLastEvent",
    "QueueTotalCapacity",
    "QueueRemainingCapacity",
    "SecondsBehindMaster",
    "MilliSecondsBehindSource",
    "NumberOfDisconnects",
    "NumberOfLargeTransactions",
)
_SNAPSHOT = (
    "TotalTableCount",
    "RemainingTableCount",
    "HoldingGlobalLock",
    "SnapshotRunning",
    "SnapshotAborted",
    "SnapshotCompleted",
    "SnapshotDurationInSeconds",
)
_SNAPSHOT_EVENTS = (
    "NumberOfEventsFiltered",
    "MilliSecondsSinceLastEvent",
    "QueueTotalCapacity",
    "QueueRemainingCapacity",
    "NumberOfErroneousEvents",
    "TotalNumberOfEventsSeen",
)
_HISTORY = (
    "RecoveryStartTime",
    "MilliSecondsSinceLastAppliedChange",
    "MilliSecondsSinceLastRecoveredChange",
    "ChangesRecovered",
    "ChangesApplied",
)
_D = "debezium_metrics_"


def _contexts(streaming: tuple[str, ...], snapshot: tuple[str, ...], history: tuple[str, ...] = ()) -> tuple[Ask, ...]:
    return (
        *_plain(_D, *streaming, labels={"context": "streaming"}),
        *_plain(_D, *snapshot, labels={"context": "snapshot"}),
        *_plain(_D, *history, labels={"context": "schema-history"}),
    )


CONFLUENT_DEBEZIUM = Dashboard(
    "Confluent: debezium-connectors.json",
    "D",
    'job="kafka-connect",instance="WORKER",name="PREFIX"',
    _contexts(_STREAM, (*_SNAPSHOT, *_SNAPSHOT_EVENTS), _HISTORY),
)
#: The context is a variable there; panels of the stream are asked with "streaming", those of snapshots with "snapshot".
DEBEZIUM_MYSQL = Dashboard(
    "Debezium: debezium-mysql-connector-dashboard.json",
    "D",
    'job="prometheus",instance="WORKER",name="PREFIX",plugin="PLUGIN"',
    _contexts(
        (*_STREAM, "SecondsSinceLastEvent", "NumberOfErroneousEvents"), (*_SNAPSHOT, *_SNAPSHOT_EVENTS), _HISTORY
    ),
)
DEBEZIUM = Dashboard(
    "Debezium: debezium-dashboard.json",
    "D",
    "",
    (
        *(
            Ask(ask.metric, {**ask.labels, "plugin": "PLUGIN", "name": "PREFIX"})
            for ask in _contexts(
                ("MilliSecondsSinceLastEvent", "TotalNumberOfEventsSeen", "NumberOfEventsSkipped", "Connected"),
                (
                    "TotalTableCount",
                    "RemainingTableCount",
                    "SnapshotRunning",
                    "SnapshotCompleted",
                    "SnapshotAborted",
                    "TotalNumberOfEventsSeen",
                    "NumberOfEventsSkipped",
                ),
            )
        ),
        Ask("debezium_metrics_RowsScanned", {"plugin": "PLUGIN", "name": "PREFIX"}, present=("table",)),
        *_plain("kafka_connect_metrics_", "incoming_byte_rate", "outgoing_byte_rate"),
        *_plain("jvm_memory_bytes_", "used", "max", labels={"area": "heap"}),
        *_plain("jvm_threads_", "current", "peak", "started_total"),
    ),
)

DASHBOARDS = (
    STRIMZI,
    STRIMZI_ALERTS,
    STRIMZI_REPORTER,
    CONFLUENT,
    CONFLUENT_OLD,
    CONFLUENT_DEBEZIUM,
    DEBEZIUM_MYSQL,
    DEBEZIUM,
)

#: What stays empty, and why: (metric with its labels as ``queries`` names it) -> reason.
EXPECTED_EMPTY = {
    "container_cpu_usage_seconds_total": "cAdvisor's, of the kubelet, not of the worker",
    "container_last_seen": "cAdvisor's, of the kubelet, not of the worker",
    "kafka_connect_connect_metrics_io_ratio[client_id]": "an asyncio loop has no time of a client's own",
    "jvm_threads_started_total": "Python does not count threads that have ended",
    **{
        f"kafka_connect_{bean}_connector_{state}_task_count[my-namespace]": "shows such tasks only: there are none"
        for bean in ("worker", "connect_worker_metrics")
        for state in ("unassigned", "destroyed")
    },
}
