"""Every metric that a worker exposes, as data: what Kafka Connect has under its own names, and what only Millrace has.

A Connect metric is an attribute of a JMX bean; which Prometheus name it has depends on the exporter's rules. Dashboards follow
a few sets of rules, called families here:

- ``A``: Strimzi's rules for the JMX exporter, its dashboards and alerts;
- ``B``: Confluent's rules (jmx-monitoring-stacks) and Aiven's, one metric per bean attribute;
- ``C``: Strimzi's metrics reporter: as B, but text attributes end in ``_info``;
- ``D``: Debezium's example rules: what a connector reports of its source, and what they add of the worker.

Exporters built on the Prometheus client 1.x take ``_total`` and ``_info`` off names that are no counters to them: B and C have
both forms. Metrics of our own (``millrace_*``, ``process_*``) have one name, whatever the family.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Family(StrEnum):
    """A set of names for Kafka Connect's metrics."""

    A = "A"
    B = "B"
    C = "C"
    D = "D"


class MetricKind(StrEnum):
    """The kind of a metric's value; ``TEXT`` is a word, exposed as a label of a series whose value is 1."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Metric:
    """The declaration of one metric.

    Attributes:
        name: Connect's attribute name (``batch-size-avg``), or the full name of one of our own.
        group: Connect's bean type (``connector-task-metrics``), or ``millrace-*`` and ``process`` of our own.
        labels: label names, in order.
        kind: see ``MetricKind``.
        unit: of the value: ``ms``, ``records``, ``ratio`` ...; empty for a plain count.
        help: one sentence.
        families: families that have it; empty for our own, which are always there.
        named: its name in a family that does not derive it from the attribute.
    """

    name: str
    group: str
    labels: tuple[str, ...]
    kind: MetricKind
    unit: str
    help: str
    families: frozenset[Family] = frozenset()
    named: str = ""

    def exposed(self, family: Family) -> tuple[str, ...]:
        """Its Prometheus names in ``family``; none if that family does not have it."""
        if not self.families:
            return (self.name,)
        prefix = _PREFIX.get((family, self.group))
        if family not in self.families or prefix is None:
            return ()
        if self.named:
            return (self.named,)
        attribute = self.name.replace("-", "_")
        if family in (Family.A, Family.D):
            return (f"{prefix}_{attribute}",)
        if self.kind is MetricKind.TEXT:
            if family is Family.C:
                return (f"{prefix}_{attribute}_info",)
            return (prefix, prefix.removesuffix("_info")) if prefix.endswith("_info") else (prefix,)
        name = f"{prefix}_{attribute}"
        return (name, name.removesuffix("_total")) if name.endswith("_total") else (name,)


WORKER: Final = "connect-worker-metrics"
WORKER_CONNECTOR: Final = "connect-worker-metrics of a connector"
REBALANCE: Final = "connect-worker-rebalance-metrics"
COORDINATOR: Final = "connect-coordinator-metrics"
CONNECTOR: Final = "connector-metrics"
TASK: Final = "connector-task-metrics"
SOURCE_TASK: Final = "source-task-metrics"
SINK_TASK: Final = "sink-task-metrics"
TASK_ERROR: Final = "task-error-metrics"
APP: Final = "app-info"
OWN_WORKER: Final = "millrace-worker"
OWN_TOPIC: Final = "millrace-topic"
OWN_HOST: Final = "millrace-host"
OWN_TASK: Final = "millrace-task"
OWN_JOB: Final = "millrace-job"
OWN_CONNECTOR: Final = "millrace-connector"
OWN_VERIFY: Final = "millrace-verify"
PROCESS: Final = "process"

JVM: Final = "jvm"
JVM_THREADS: Final = "jvm threads"
JVM_GC: Final = "jvm of a collector"
CLIENT: Final = "connect-metrics"
PRODUCER: Final = "producer-metrics"
PRODUCER_NODE: Final = "producer-node-metrics"
CONSUMER: Final = "consumer-metrics"
ADMIN: Final = "admin-client-metrics"

_A_PREFIX: Final = {
    WORKER: "kafka_connect_worker",
    WORKER_CONNECTOR: "kafka_connect_worker",
    REBALANCE: "kafka_connect_worker_rebalance",
    COORDINATOR: "kafka_connect_coordinator",
    CONNECTOR: "kafka_connect_connector",
    TASK: "kafka_connect_connector_task",
    SOURCE_TASK: "kafka_connect_source_task",
    SINK_TASK: "kafka_connect_sink_task",
    TASK_ERROR: "kafka_connect_task_error",
    APP: "kafka_connect",
    CLIENT: "kafka_connect",
    PRODUCER: "kafka_producer",
    CONSUMER: "kafka_consumer",
    ADMIN: "kafka_admin_client",
}
_BEAN: Final = {
    WORKER: "kafka_connect_connect_worker_metrics",
    WORKER_CONNECTOR: "kafka_connect_connect_worker_metrics",
    REBALANCE: "kafka_connect_connect_worker_rebalance_metrics",
    COORDINATOR: "kafka_connect_connect_coordinator_metrics",
    CONNECTOR: "kafka_connect_connector_metrics",
    TASK: "kafka_connect_connector_task_metrics",
    SOURCE_TASK: "kafka_connect_source_task_metrics",
    SINK_TASK: "kafka_connect_sink_task_metrics",
    TASK_ERROR: "kafka_connect_task_error_metrics",
    APP: "kafka_connect_app_info",
    CLIENT: "kafka_connect_connect_metrics",
    PRODUCER: "kafka_producer_producer_metrics",
    PRODUCER_NODE: "kafka_producer_producer_node_metrics",
    CONSUMER: "kafka_consumer_consumer_metrics",
    ADMIN: "kafka_admin_client_admin_client_metrics",
}
_D_PREFIX: Final = {WORKER: "kafka_connect_worker_metrics", CLIENT: "kafka_connect_metrics"}
_PREFIX: Final[dict[tuple[Family, str], str]] = {
    (family, group): prefix
    for family, prefixes in ((Family.A, _A_PREFIX), (Family.B, _BEAN), (Family.C, _BEAN), (Family.D, _D_PREFIX))
    for group, prefix in prefixes.items()
}
#: What a bean's labels are called where a family calls them otherwise.
LABEL_NAMES: Final = {(Family.A, "client_id"): "clientid", (Family.D, "client_id"): "client"}
#: Labels that a family adds to a bean without any.
ADDED_LABELS: Final = {(Family.B, WORKER): (("connector", "aggregate"),)}

_ALL: Final = frozenset(Family)
_BC: Final = frozenset({Family.B, Family.C})
_AC: Final = frozenset({Family.A, Family.C})
_A_ONLY: Final = frozenset({Family.A})
_B_ONLY: Final = frozenset({Family.B})
_C_ONLY: Final = frozenset({Family.C})
_ABC: Final = frozenset({Family.A, Family.B, Family.C})
_COUNTER, _GAUGE, _HISTOGRAM, _TEXT = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM, MetricKind.TEXT


class _MetricGroup:
    """Declares metrics of one group."""

    def __init__(self, group: str, *labels: str, families: frozenset[Family] = _ALL) -> None:
        self._group = group
        self._labels = labels
        self._families = families

    def __call__(
        self,
        name: str,
        kind: MetricKind,
        unit: str,
        description: str,
        families: frozenset[Family] | None = None,
        named: str = "",
    ) -> Metric:
        return Metric(
            name,
            self._group,
            self._labels,
            kind,
            unit,
            description,
            self._families if families is None else families,
            named,
        )


_NO_FAMILIES: Final[frozenset[Family]] = frozenset()
_worker = _MetricGroup(WORKER)
_worker_connector = _MetricGroup(WORKER_CONNECTOR, "connector")
_rebalance = _MetricGroup(REBALANCE)
_coordinator = _MetricGroup(COORDINATOR, "client_id")
_connector = _MetricGroup(CONNECTOR, "connector")
_task = _MetricGroup(TASK, "connector", "task")
_source = _MetricGroup(SOURCE_TASK, "connector", "task")
_sink = _MetricGroup(SINK_TASK, "connector", "task")
_error = _MetricGroup(TASK_ERROR, "connector", "task")
_app = _MetricGroup(APP, "client_id")
_client = _MetricGroup(CLIENT, "client_id")
_producer = _MetricGroup(PRODUCER, "client_id", families=_ABC)
_producer_node = _MetricGroup(PRODUCER_NODE, "client_id", families=_BC)
_consumer = _MetricGroup(CONSUMER, "client_id", families=_ABC)
_admin = _MetricGroup(ADMIN, "client_id", families=_ABC)
_jvm = _MetricGroup(JVM, "process", "area", families=_NO_FAMILIES)
_jvm_threads = _MetricGroup(JVM_THREADS, "process", families=_NO_FAMILIES)
_jvm_gc = _MetricGroup(JVM_GC, "process", "gc", families=_NO_FAMILIES)
_own_worker = _MetricGroup(OWN_WORKER, families=_NO_FAMILIES)
_own_topic = _MetricGroup(OWN_TOPIC, "topic", families=_NO_FAMILIES)
_own_host = _MetricGroup(OWN_HOST, "host", "environment", families=_NO_FAMILIES)
_own_connector = _MetricGroup(OWN_CONNECTOR, "connector", families=_NO_FAMILIES)
_own_verify = _MetricGroup(OWN_VERIFY, "connector", families=_NO_FAMILIES)
_own_task = _MetricGroup(OWN_TASK, "connector", "task", families=_NO_FAMILIES)
_own_job = _MetricGroup(OWN_JOB, "connector", "task", families=_NO_FAMILIES)
_process = _MetricGroup(PROCESS, families=_NO_FAMILIES)


def _traffic_metrics(group: _MetricGroup, *, rates: bool = False) -> tuple[Metric, ...]:
    """Return the connection metrics of Kafka clients."""
    shown = [group("connection-count", _GAUGE, "", "Connections to Kafka that are open.")]
    for name, unit, description in (
        ("connection-creation", "", "Connections opened"),
        ("connection-close", "", "Connections closed"),
        ("incoming-byte", "bytes", "Bytes received"),
        ("outgoing-byte", "bytes", "Bytes sent"),
        ("request", "", "Requests sent"),
        ("response", "", "Answers received"),
        ("network-io", "", "Reads from and writes to connections"),
        ("successful-authentication", "", "Connections that were logged in by SASL"),
        ("failed-authentication", "", "Connections that ended while they were logged in by SASL"),
    ):
        shown.append(group(f"{name}-total", _COUNTER, unit, f"{description}."))
        if rates:
            shown.append(group(f"{name}-rate", _GAUGE, f"{unit or '1'}/s", f"{description}, a second in the window."))
    return tuple(shown)


CONNECT: Final[tuple[Metric, ...]] = (
    _worker("connector-count", _GAUGE, "", "Connectors that run in this worker."),
    _worker("task-count", _GAUGE, "", "Tasks that run in this worker."),
    _worker("connector-startup-attempts-total", _COUNTER, "", "Connector startups that this worker has attempted."),
    _worker("connector-startup-success-total", _COUNTER, "", "Connector startups that succeeded."),
    _worker(
        "connector-startup-success-percentage", _GAUGE, "ratio", "Share of connector startups that succeeded, 0 to 1."
    ),
    _worker("connector-startup-failure-total", _COUNTER, "", "Connector startups that failed."),
    _worker(
        "connector-startup-failure-percentage", _GAUGE, "ratio", "Share of connector startups that failed, 0 to 1."
    ),
    _worker("task-startup-attempts-total", _COUNTER, "", "Task startups that this worker has attempted."),
    _worker("task-startup-success-total", _COUNTER, "", "Task startups that succeeded."),
    _worker("task-startup-success-percentage", _GAUGE, "ratio", "Share of task startups that succeeded, 0 to 1."),
    _worker("task-startup-failure-total", _COUNTER, "", "Task startups that failed."),
    _worker("task-startup-failure-percentage", _GAUGE, "ratio", "Share of task startups that failed, 0 to 1."),
    _worker_connector("connector-total-task-count", _GAUGE, "", "Tasks of the connector on this worker."),
    _worker_connector(
        "connector-running-task-count", _GAUGE, "", "Tasks of the connector on this worker that are running."
    ),
    _worker_connector(
        "connector-paused-task-count", _GAUGE, "", "Tasks of the connector on this worker that are paused."
    ),
    _worker_connector(
        "connector-failed-task-count", _GAUGE, "", "Tasks of the connector on this worker that are failed."
    ),
    _worker_connector(
        "connector-unassigned-task-count", _GAUGE, "", "Tasks of the connector on this worker that are unassigned."
    ),
    _worker_connector(
        "connector-destroyed-task-count", _GAUGE, "", "Tasks of the connector on this worker that are destroyed."
    ),
    _worker_connector(
        "connector-restarting-task-count", _GAUGE, "", "Tasks of the connector on this worker that are restarting."
    ),
    _rebalance("connect-protocol", _TEXT, "", "How workers agree on what runs where.", _AC),
    _rebalance("leader-name", _TEXT, "", "The group's leader, by its REST URL.", _AC),
    _rebalance("epoch", _GAUGE, "", "Generation of the group that this worker is in."),
    _rebalance("completed-rebalances-total", _COUNTER, "", "Rebalances this worker has been through."),
    _rebalance("rebalancing", _GAUGE, "", "1 while a rebalance is under way, else 0."),
    _rebalance("rebalance-max-time-ms", _GAUGE, "ms", "Longest rebalance."),
    _rebalance("rebalance-avg-time-ms", _GAUGE, "ms", "Average time of a rebalance."),
    _rebalance("time-since-last-rebalance-ms", _GAUGE, "ms", "Time since the last rebalance ended."),
    _coordinator("assigned-connectors", _GAUGE, "", "Connectors assigned to this worker."),
    _coordinator("assigned-tasks", _GAUGE, "", "Tasks assigned to this worker."),
    _connector("connector-class", _TEXT, "", "Class of the connector."),
    _connector("connector-type", _TEXT, "", "source or sink."),
    _connector("connector-version", _TEXT, "", "Version the connector's class reports."),
    _connector(
        "status", _TEXT, "", "State of the connector: unassigned, running, paused, stopped, failed or restarting."
    ),
    _task("status", _TEXT, "", "State of the task: unassigned, running, paused, failed, restarting or destroyed.", _AC),
    _task("running-ratio", _GAUGE, "ratio", "Share of its life that the task was running."),
    _task("pause-ratio", _GAUGE, "ratio", "Share of its life that the task was paused."),
    _task("offset-commit-max-time-ms", _GAUGE, "ms", "Longest commit of offsets in the window."),
    _task("offset-commit-avg-time-ms", _GAUGE, "ms", "Average time of a commit of offsets in the window."),
    _task(
        "offset-commit-success-percentage",
        _GAUGE,
        "ratio",
        "Share of commits of offsets in the window that succeeded, 0 to 1.",
        _BC,
    ),
    _task(
        "offset-commit-failure-percentage",
        _GAUGE,
        "ratio",
        "Share of commits of offsets in the window that failed, 0 to 1.",
        _BC,
    ),
    _task("batch-size-max", _GAUGE, "records", "Largest batch polled in the window."),
    _task("batch-size-avg", _GAUGE, "records", "Average size of the batches polled in the window."),
    _source(
        "source-record-poll-rate", _GAUGE, "records/s", "Records polled a second in the window, before transforms."
    ),
    _source(
        "source-record-poll-total", _COUNTER, "records", "Records polled since the task started, before transforms."
    ),
    _source("source-record-write-rate", _GAUGE, "records/s", "Records acknowledged by Kafka a second in the window."),
    _source("source-record-write-total", _COUNTER, "records", "Records acknowledged by Kafka since the task started."),
    _source("poll-batch-max-time-ms", _GAUGE, "ms", "Longest time in the window to poll a batch."),
    _source("poll-batch-avg-time-ms", _GAUGE, "ms", "Average time in the window to poll a batch."),
    _source("source-record-active-count", _GAUGE, "records", "Records polled but not yet acknowledged by Kafka."),
    _source("source-record-active-count-max", _GAUGE, "records", "Largest such number in the window."),
    _source("source-record-active-count-avg", _GAUGE, "records", "Average such number in the window."),
    _source("transaction-size-min", _GAUGE, "records", "Smallest transaction since the task started."),
    _source("transaction-size-max", _GAUGE, "records", "Largest transaction since the task started."),
    _source("transaction-size-avg", _GAUGE, "records", "Average transaction since the task started."),
    _sink("sink-record-read-rate", _GAUGE, "records/s", "Records read from Kafka a second in the window."),
    _sink("sink-record-read-total", _COUNTER, "records", "Records read from Kafka since the task started."),
    _sink("sink-record-send-rate", _GAUGE, "records/s", "Records or rows written by the sink a second in the window."),
    _sink("sink-record-send-total", _COUNTER, "records", "Records or rows written by the sink since the task started."),
    _sink("sink-record-lag-max", _GAUGE, "records", "Records that the partition furthest behind has still to be read."),
    _sink("partition-count", _GAUGE, "", "Partitions of topics that the task reads."),
    _sink(
        "offset-commit-seq-no",
        _GAUGE,
        "",
        "Number of the last completed batch, as the job counts; -1 before the first.",
    ),
    _sink("offset-commit-completion-rate", _GAUGE, "1/s", "Completed batches a second in the window."),
    _sink("offset-commit-completion-total", _COUNTER, "", "Batches completed since the task started."),
    _sink(
        "offset-commit-skip-rate",
        _GAUGE,
        "1/s",
        "Batches a second whose offsets were not saved: a job saves all of them.",
    ),
    _sink("offset-commit-skip-total", _COUNTER, "", "Batches whose offsets were not saved: a job saves all of them."),
    _sink(
        "sink-record-active-count-max", _GAUGE, "records", "Most records in a batch of the window: read, not completed."
    ),
    _sink("sink-record-active-count-avg", _GAUGE, "records", "The same on average, times without a batch included."),
    _sink("put-batch-max-time-ms", _GAUGE, "ms", "Longest batch in the window."),
    _sink("put-batch-avg-time-ms", _GAUGE, "ms", "Average time of a batch in the window."),
    _error("total-record-failures", _GAUGE, "", "Operations on records that failed."),
    _error("total-record-errors", _GAUGE, "", "Errors in operations on records, retried ones included."),
    _error("total-records-skipped", _GAUGE, "records", "Records skipped because of errors."),
    _error("total-retries", _GAUGE, "", "Operations that were retried."),
    _error("total-errors-logged", _GAUGE, "", "Errors that were logged."),
    _error("deadletterqueue-produce-requests", _GAUGE, "", "Writes to the dead letter topic."),
    _error("deadletterqueue-produce-failures", _GAUGE, "", "Failed writes to the dead letter topic."),
    _error("last-error-timestamp", _GAUGE, "ms", "When the task last had an error, since the epoch; 0 for never."),
    _app("start-time-seconds", _GAUGE, "s", "When the worker started, since the epoch.", _A_ONLY),
    _app("start-time-ms", _GAUGE, "ms", "When the worker started, since the epoch.", _C_ONLY),
    _app("start-time-ms", _TEXT, "ms", "When the worker started, since the epoch.", _B_ONLY),
    _app("version", _TEXT, "", "Version of Millrace.", _BC),
    _app("version", _TEXT, "", "Version of Millrace.", _A_ONLY, "kafka_connect_version_info"),
    _app("commit-id", _TEXT, "", "Commit of Millrace.", _BC),
    _app("commit-id", _TEXT, "", "Commit of Millrace.", _A_ONLY, "kafka_connect_commit_id_info"),
    *_traffic_metrics(_client, rates=True),
    *_traffic_metrics(_producer),
    *_traffic_metrics(_consumer),
    *_traffic_metrics(_admin),
    _producer_node("incoming-byte-total", _COUNTER, "bytes", "Bytes received, of all nodes."),
    _producer_node("outgoing-byte-total", _COUNTER, "bytes", "Bytes sent, to all nodes."),
)

MILLRACE: Final[tuple[Metric, ...]] = (
    _own_worker("millrace_worker_leader", _GAUGE, "", "1 if this worker is the group's leader, else 0."),
    _own_worker(
        "millrace_worker_ready",
        _GAUGE,
        "",
        "1 once the worker has caught up with the internal topics and is a member of the group, else 0.",
    ),
    _own_worker("millrace_worker_draining", _GAUGE, "", "1 while the worker hands its tasks over, else 0."),
    _own_worker("millrace_worker_members", _GAUGE, "", "Live workers of the group that this worker knows of."),
    _own_worker(
        "millrace_worker_loop_lag_seconds",
        _GAUGE,
        "s",
        "Longest time the control process's event loop was late in the window.",
    ),
    _own_worker("millrace_placement_version", _GAUGE, "", "Version of the placement this worker has taken over."),
    _own_worker(
        "millrace_placement_moves_total",
        _COUNTER,
        "",
        "Tasks and connectors that this worker started or stopped because of a new placement.",
    ),
    _own_worker("millrace_placement_pending", _GAUGE, "", "Tasks and connectors placed here that don't run yet."),
    _own_topic("millrace_topic_connected", _GAUGE, "", "1 while the reader of an internal topic is connected, else 0."),
    _own_topic(
        "millrace_topic_lost",
        _GAUGE,
        "",
        "1 if an internal topic was deleted, recreated or emptied since this worker has read it, else 0.",
    ),
    _own_topic(
        "millrace_topic_unreadable_records_total",
        _COUNTER,
        "records",
        "Records of an internal topic that made no sense and were left out.",
    ),
    _own_host("millrace_host_up", _GAUGE, "", "1 while the task host runs, else 0."),
    _own_host("millrace_host_restarts_total", _COUNTER, "", "How often the task host was replaced."),
    _own_host("millrace_host_stuck_total", _COUNTER, "", "How often its event loop stopped answering."),
    _own_host("millrace_host_tasks", _GAUGE, "", "Tasks in the host, failed ones included."),
    _own_host("millrace_host_connectors", _GAUGE, "", "Connector instances in the host."),
    _own_host("millrace_host_cpu_seconds_total", _COUNTER, "s", "CPU time of the host's process."),
    _own_host("millrace_host_resident_memory_bytes", _GAUGE, "bytes", "Resident memory of the host's process."),
    _own_host("millrace_host_loop_lag_seconds", _GAUGE, "s", "Longest time its event loop was late in the window."),
    _own_host(
        "millrace_host_config_provider_failures_total", _COUNTER, "", "How often a config provider gave no values."
    ),
    _own_host(
        "millrace_host_config_provider_stale_paths",
        _GAUGE,
        "",
        "Paths of config providers whose earlier values are used on because the provider fails.",
    ),
    _own_connector(
        "millrace_connector_lag_seconds",
        _HISTOGRAM,
        "s",
        "Age of records at their acknowledgement by Kafka, by their own timestamp; each task's latest "
        "batch, once a second.",
    ),
    _own_verify("millrace_verify_running", _GAUGE, "", "1 while a verification of the connector runs; at the leader."),
    _own_verify("millrace_verify_failed", _GAUGE, "", "1 if the last verification could not be done."),
    _own_verify(
        "millrace_verify_end_time_seconds",
        _GAUGE,
        "s",
        "When the last verification ended, seconds since 1970; 0: not yet.",
    ),
    _own_verify("millrace_verify_rows", _GAUGE, "rows", "Rows of the source that the last verification compared."),
    _own_verify("millrace_verify_missing_rows", _GAUGE, "rows", "Rows of the source that the topic lacked."),
    _own_verify("millrace_verify_extra_rows", _GAUGE, "rows", "Rows that only the topic had."),
    _own_verify("millrace_verify_different_rows", _GAUGE, "rows", "Rows that had other contents on the topic."),
    _own_verify("millrace_verify_unsettled_rows", _GAUGE, "rows", "Rows that differed and still changed."),
    _own_task("millrace_task_lag_seconds", _GAUGE, "s", "Age of the latest batch's records at their acknowledgement."),
    _own_task("millrace_task_commit_duration_seconds", _HISTOGRAM, "s", "Time to commit offsets."),
    _own_task("millrace_task_commit_failures_total", _COUNTER, "", "Commits of offsets that failed; they are retried."),
    _own_task(
        "millrace_task_bytes_written_total", _COUNTER, "bytes", "Bytes of keys and values acknowledged by Kafka."
    ),
    _own_task("millrace_task_records_filtered_total", _COUNTER, "records", "Records that transforms dropped."),
    _own_task(
        "millrace_task_series_folded_total",
        _COUNTER,
        "",
        "Values that went into the series other: more tables or topics than metrics.tables.max.",
    ),
    _own_task("millrace_task_restarts_total", _COUNTER, "", "Automatic restarts of the task."),
    _own_task("millrace_task_poll_seconds_total", _COUNTER, "s", "Time spent waiting for the connector's batches."),
    _own_task("millrace_task_transform_seconds_total", _COUNTER, "s", "Time spent in transforms."),
    _own_task("millrace_task_convert_seconds_total", _COUNTER, "s", "Time spent in converters."),
    _own_task(
        "millrace_task_produce_seconds_total",
        _COUNTER,
        "s",
        "Time between sending batches and their acknowledgement, summed over batches.",
    ),
    _own_task("millrace_task_produce_batches_total", _COUNTER, "", "Batches acknowledged by Kafka."),
    _jvm("jvm_memory_used_bytes", _GAUGE, "bytes", "Stand-in: resident memory of a Python process."),
    _jvm("jvm_memory_bytes_used", _GAUGE, "bytes", "Stand-in: resident memory of a Python process."),
    _jvm("jvm_memory_max_bytes", _GAUGE, "bytes", "Stand-in: memory that the control group or the machine allows."),
    _jvm("jvm_memory_bytes_max", _GAUGE, "bytes", "Stand-in: memory that the control group or the machine allows."),
    _jvm_gc("jvm_gc_collection_seconds_sum", _COUNTER, "s", "Stand-in: time in Python's garbage collector."),
    _jvm_gc("jvm_gc_collection_seconds_count", _COUNTER, "", "Stand-in: runs of Python's garbage collector."),
    _jvm_threads("jvm_threads_current", _GAUGE, "", "Stand-in: threads of a Python process."),
    _jvm_threads("jvm_threads_peak", _GAUGE, "", "Stand-in: most threads that were seen in a Python process."),
    _own_worker("millrace_metrics_render_seconds", _GAUGE, "s", "How long the answer before this one took to make."),
    _own_worker(
        "millrace_metrics_render_blocked_seconds",
        _GAUGE,
        "s",
        "Longest time that making it kept the event loop from other work.",
    ),
    _own_job("millrace_job_up", _GAUGE, "", "1 while the job's process runs and has said so, else 0."),
    _own_job("millrace_job_starts_total", _COUNTER, "", "How often the job's process was started, restarts included."),
    _own_job(
        "millrace_job_retrying",
        _GAUGE,
        "",
        "1 while the job retries something: its target, Kafka or its topics are unavailable. `GET /connectors/NAME/progress` "
        "says since when and why.",
    ),
    _own_job(
        "millrace_job_lag_records",
        _GAUGE,
        "records",
        "Records that all partitions together have still to be read. Absent while that is not known: before the first "
        "answer of Kafka, and while Kafka does not answer.",
    ),
    _own_job("millrace_job_batch_records", _GAUGE, "records", "Records in the last batch."),
    _own_job("millrace_job_batch_seconds", _GAUGE, "s", "How long the last batch took."),
    _own_job("millrace_job_busy_seconds_total", _COUNTER, "s", "How long all batches together took."),
    _own_job("millrace_job_rows_per_second", _GAUGE, "records/s", "Speed of the last batch."),
    _own_job(
        "millrace_job_progress_timestamp_seconds",
        _GAUGE,
        "s",
        "When the job last reported its progress, since the epoch; 0 for never.",
    ),
    _process("process_cpu_seconds_total", _COUNTER, "s", "CPU time of the control process."),
    _process("process_resident_memory_bytes", _GAUGE, "bytes", "Resident memory of the control process."),
    _process("process_start_time_seconds", _GAUGE, "s", "When the control process started, since the epoch."),
    _process("process_open_fds", _GAUGE, "", "Open file descriptors of the control process."),
)

#: All declarations.
METRICS: Final[tuple[Metric, ...]] = (*CONNECT, *MILLRACE)
