"""From the numbers that a worker keeps to the values of its metrics: one entity per connector, task, host, client ...

Pure functions of a snapshot, but for the sums of Kafka clients (``clients.py``), which must not fall. What grows with the
number of tasks is a generator that stops between tasks, so that whoever drives it can let other work in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from worker.metrics import registry
from worker.protocol import ClientStats, ProcessStats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from connectors.job_api import JobProgress
    from worker.metrics.windows import ClientWindow, Rates, TaskTable, TaskWindow
    from worker.protocol import HostTaskId, TaskStats

_STATES: Final = ("running", "paused", "failed", "unassigned", "destroyed", "restarting")
#: Tasks that are worked out between two pauses of ``task_groups``: about a millisecond.
_STEP: Final = 50
#: The control process among the task hosts' numbers.
_CONTROL: Final = -1
#: Connect's attribute -> field of ``ClientStats``, for those with a total and a rate.
TRAFFIC: Final = {
    "connection-creation": "connections_made",
    "connection-close": "connections_closed",
    "incoming-byte": "bytes_in",
    "outgoing-byte": "bytes_out",
    "request": "requests",
    "response": "responses",
    "network-io": "network_ios",
    "successful-authentication": "logins",
    "failed-authentication": "failed_logins",
}
_KIND_GROUPS: Final = {"producer": registry.PRODUCER, "consumer": registry.CONSUMER, "admin": registry.ADMIN}

Labels = tuple[tuple[str, str], ...]
#: A histogram's value: (upper bounds, cumulative counts with all observations last, sum).
HistogramValue = tuple["Sequence[float]", "Sequence[int]", float]
#: One series of a group: its labels, and a value per metric name (int, float, text, histogram); absent or None: no value now.
Entity = tuple[Labels, "Mapping[str, Any]"]


@dataclass(slots=True)
class WorkerStats:
    """The control process's counters of its own work. It alone changes the fields, in place.

    Times are in seconds; ``*_at`` are seconds since the epoch, 0 for never.
    """

    client_id: str = ""
    version: str = ""
    commit: str = ""
    started_at: float = 0.0
    connector_startup_attempts: int = 0
    connector_startup_success: int = 0
    connector_startup_failure: int = 0
    task_startup_attempts: int = 0
    task_startup_success: int = 0
    task_startup_failure: int = 0
    protocol: str = ""
    leader_name: str = ""
    epoch: int = 0
    rebalances: int = 0
    rebalancing: bool = False
    rebalance_s: float = 0.0
    rebalance_s_max: float = 0.0
    last_rebalance_at: float = 0.0
    assigned_connectors: int = 0
    assigned_tasks: int = 0
    leader: bool = False
    ready: bool = False
    draining: bool = False
    members: int = 0
    loop_lag_s: float = 0.0
    placement_version: int = 0
    placement_moves: int = 0
    placement_pending: int = 0
    #: The duration of the previous exposition, and its longest time without a pause.
    render_s: float = 0.0
    render_blocked_s: float = 0.0
    #: Internal topic -> (connected, without records that were read, unreadable records so far).
    topics: dict[str, tuple[bool, bool, int]] = field(default_factory=dict)
    #: Connector -> values of its last verification, at the leader.
    verifications: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConnectorNumbers:
    """A connector that this worker runs; ``status`` in any case of letters."""

    name: str
    status: str
    connector_class: str
    version: str
    type: str = "source"


@dataclass(frozen=True, slots=True)
class ProcessNumbers:
    """Of the control process: seconds, bytes, seconds since the epoch, count.

    Attributes:
        memory_limit: bytes that the control group or the machine allows; 0 if that is not known.
        python: threads and garbage collections.
        clients: its Kafka clients.
        group: the client that is the worker's membership, or None before it is there.
    """

    cpu_s: float
    rss_bytes: int
    started_at: float
    open_fds: int
    memory_limit: int = 0
    python: ProcessStats = field(default_factory=ProcessStats)
    threads_peak: int = 0
    clients: tuple[ClientStats, ...] = ()
    group: ClientWindow | None = None


def worker_groups(
    worker: WorkerStats, table: TaskTable, process: ProcessNumbers, wall: float, *, jvm: bool, most_clients: int
) -> Iterator[tuple[str, list[Entity]]]:
    """Everything that does not grow with the number of tasks, by group.

    Args:
        worker: the control process's own counters.
        table: tasks and hosts.
        process: of the control process.
        wall: seconds since the epoch.
        jvm: whether there are stand-ins for metrics of a JVM.
        most_clients: Kafka clients of a kind with series of their own; the rest share the series ``other``.
    """
    client: Labels = (("client_id", worker.client_id),)
    yield registry.WORKER, [((), _startup_values(worker, table))]
    yield registry.REBALANCE, [((), _rebalance_values(worker, wall))]
    yield (
        registry.COORDINATOR,
        [(client, {"assigned-connectors": worker.assigned_connectors, "assigned-tasks": worker.assigned_tasks})],
    )
    yield (
        registry.APP,
        [
            (
                client,
                {
                    "version": worker.version,
                    "commit-id": worker.commit or None,
                    "start-time-ms": int(worker.started_at * 1000),
                    "start-time-seconds": worker.started_at,
                },
            )
        ],
    )
    if process.group is not None:
        yield registry.CLIENT, [(client, _traffic_values(process.group.latest, process.group))]
    yield from _client_groups(table, process, most_clients)
    yield from _own_groups(worker, table, process)
    if jvm:
        yield from _jvm_groups(table, process)


def _startup_values(worker: WorkerStats, table: TaskTable) -> Mapping[str, Any]:
    """Units here, and how their starts went."""
    return {
        "connector-count": worker.assigned_connectors,
        "task-count": len(table.tasks),
        "connector-startup-attempts-total": worker.connector_startup_attempts,
        "connector-startup-success-total": worker.connector_startup_success,
        "connector-startup-success-percentage": _share_of(
            worker.connector_startup_success, worker.connector_startup_attempts
        ),
        "connector-startup-failure-total": worker.connector_startup_failure,
        "connector-startup-failure-percentage": _share_of(
            worker.connector_startup_failure, worker.connector_startup_attempts
        ),
        "task-startup-attempts-total": worker.task_startup_attempts,
        "task-startup-success-total": worker.task_startup_success,
        "task-startup-success-percentage": _share_of(worker.task_startup_success, worker.task_startup_attempts),
        "task-startup-failure-total": worker.task_startup_failure,
        "task-startup-failure-percentage": _share_of(worker.task_startup_failure, worker.task_startup_attempts),
    }


def _rebalance_values(worker: WorkerStats, wall: float) -> Mapping[str, Any]:
    return {
        "connect-protocol": worker.protocol or None,
        "leader-name": worker.leader_name or None,
        "epoch": worker.epoch,
        "completed-rebalances-total": worker.rebalances,
        "rebalancing": int(worker.rebalancing),
        "rebalance-max-time-ms": worker.rebalance_s_max * 1000,
        "rebalance-avg-time-ms": worker.rebalance_s / worker.rebalances * 1000 if worker.rebalances else 0.0,
        "time-since-last-rebalance-ms": (wall - worker.last_rebalance_at) * 1000 if worker.last_rebalance_at else None,
    }


def _own_groups(worker: WorkerStats, table: TaskTable, process: ProcessNumbers) -> Iterator[tuple[str, list[Entity]]]:
    yield (
        registry.OWN_WORKER,
        [
            (
                (),
                {
                    "millrace_worker_leader": int(worker.leader),
                    "millrace_worker_ready": int(worker.ready),
                    "millrace_worker_draining": int(worker.draining),
                    "millrace_worker_members": worker.members,
                    "millrace_worker_loop_lag_seconds": worker.loop_lag_s,
                    "millrace_placement_version": worker.placement_version,
                    "millrace_placement_moves_total": worker.placement_moves,
                    "millrace_placement_pending": worker.placement_pending,
                    "millrace_metrics_render_seconds": worker.render_s,
                    "millrace_metrics_render_blocked_seconds": worker.render_blocked_s,
                },
            )
        ],
    )
    yield (
        registry.OWN_TOPIC,
        [
            (
                (("topic", topic),),
                {
                    "millrace_topic_connected": int(connected),
                    "millrace_topic_lost": int(lost),
                    "millrace_topic_unreadable_records_total": unreadable,
                },
            )
            for topic, (connected, lost, unreadable) in worker.topics.items()
        ],
    )
    yield registry.OWN_HOST, _host_entities(table)
    yield (
        registry.OWN_CONNECTOR,
        [
            ((("connector", name),), {"millrace_connector_lag_seconds": (lag.bounds, lag.cumulative(), lag.total)})
            for name, lag in table.lags.items()
        ],
    )
    yield (
        registry.OWN_VERIFY,
        [((("connector", name),), values) for name, values in sorted(worker.verifications.items())],
    )
    yield (
        registry.PROCESS,
        [
            (
                (),
                {
                    "process_cpu_seconds_total": process.cpu_s,
                    "process_resident_memory_bytes": process.rss_bytes,
                    "process_start_time_seconds": process.started_at,
                    "process_open_fds": process.open_fds,
                },
            )
        ],
    )


def _host_entities(table: TaskTable) -> list[Entity]:
    return [
        (
            (("host", str(host)), ("environment", item.environment)),
            {
                "millrace_host_up": int(item.up),
                "millrace_host_restarts_total": item.restarts,
                "millrace_host_stuck_total": item.stuck,
                "millrace_host_tasks": item.tasks,
                "millrace_host_connectors": item.connectors,
                "millrace_host_cpu_seconds_total": item.cpu_s,
                "millrace_host_resident_memory_bytes": item.rss_bytes,
                "millrace_host_loop_lag_seconds": item.loop_lag_s,
                "millrace_host_config_provider_failures_total": item.provider_failures,
                "millrace_host_config_provider_stale_paths": item.provider_stale,
            },
        )
        for host, item in sorted(table.hosts.items())
    ]


def _client_groups(table: TaskTable, process: ProcessNumbers, max_clients: int) -> Iterator[tuple[str, list[Entity]]]:
    """Kafka clients of all of the worker's processes, by kind and client id."""
    processes = {_CONTROL: process.clients, **{host: table.hosts[host].clients for host in sorted(table.hosts)}}
    sums = table.clients.sum_up(processes, max_clients)
    for kind, group in _KIND_GROUPS.items():
        entities: list[Entity] = [
            ((("client_id", name),), _traffic_values(stats)) for name, stats in sums.get(kind, {}).items()
        ]
        yield group, entities
        if kind == "producer":
            yield registry.PRODUCER_NODE, entities


def _traffic_values(stats: ClientStats, window: ClientWindow | None = None) -> dict[str, float]:
    values: dict[str, float] = {"connection-count": stats.connections}
    for name, counted in TRAFFIC.items():
        values[f"{name}-total"] = getattr(stats, counted)
        if window is not None:
            values[f"{name}-rate"] = window.rate(counted)
    return values


def _jvm_groups(table: TaskTable, process: ProcessNumbers) -> Iterator[tuple[str, list[Entity]]]:
    processes = [("control", process.rss_bytes, process.python, process.threads_peak)] + [
        (f"host-{number}", host.rss_bytes, host.process, host.threads_peak)
        for number, host in sorted(table.hosts.items())
        if host.process.threads
    ]
    yield (
        registry.JVM,
        [
            (
                (("process", name), ("area", "heap")),
                {
                    "jvm_memory_used_bytes": rss,
                    "jvm_memory_bytes_used": rss,
                    "jvm_memory_max_bytes": process.memory_limit or None,
                    "jvm_memory_bytes_max": process.memory_limit or None,
                },
            )
            for name, rss, _, _ in processes
        ],
    )
    yield (
        registry.JVM_THREADS,
        [
            ((("process", name),), {"jvm_threads_current": python.threads, "jvm_threads_peak": peak})
            for name, _, python, peak in processes
        ],
    )
    yield (
        registry.JVM_GC,
        [
            (
                (("process", name), ("gc", f"python generation {generation}")),
                {
                    "jvm_gc_collection_seconds_sum": python.gc_s[generation],
                    "jvm_gc_collection_seconds_count": python.gc_runs[generation],
                },
            )
            for name, _, python, _ in processes
            for generation in range(len(python.gc_s))
        ],
    )


def task_groups(
    tasks: Iterable[tuple[HostTaskId, TaskWindow]], now: float, wall: float, bounds: Sequence[float]
) -> Iterator[dict[str, list[Entity]] | None]:
    """Yield the entities of tasks by group, at the end; before that, None at points where other work may be done."""
    groups: dict[str, list[Entity]] = {
        name: []
        for name in (
            registry.TASK,
            registry.SOURCE_TASK,
            registry.SINK_TASK,
            registry.TASK_ERROR,
            registry.OWN_TASK,
            registry.OWN_JOB,
        )
    }
    counts: dict[str, dict[str, int]] = {}
    for index, (task, window) in enumerate(sorted(tasks, key=lambda pair: (pair[0].connector, pair[0].task))):
        if index % _STEP == 0:
            yield None
        stats = window.latest
        rates = window.rates(now)
        labels: Labels = (("connector", task.connector), ("task", str(task.task)))
        state = stats.state.lower()
        states = counts.setdefault(task.connector, dict.fromkeys(_STATES, 0))
        states[state] = states.get(state, 0) + 1
        groups[registry.TASK].append((labels, _task_values(stats, rates, state, wall)))
        if stats.job is None:
            groups[registry.SOURCE_TASK].append((labels, _source_values(stats, rates)))
        else:
            groups[registry.SINK_TASK].append((labels, _sink_values(stats, stats.job, rates)))
            sink: Labels = (("sink", stats.job.sink),) if stats.job.sink else ()
            groups[registry.OWN_JOB].append((labels + sink, _job_values(stats.job)))
        groups[registry.TASK_ERROR].append((labels, _error_values(stats)))
        groups[registry.OWN_TASK].append((labels, _own_values(stats, bounds)))
    groups[registry.WORKER_CONNECTOR] = [
        (
            (("connector", name),),
            {
                "connector-total-task-count": sum(states.values()),
                **{f"connector-{state}-task-count": states[state] for state in _STATES},
            },
        )
        for name, states in counts.items()
    ]
    yield groups


def _task_values(stats: TaskStats, rates: Rates, state: str, wall: float) -> dict[str, Any]:
    life = max(wall - stats.started_at if stats.started_at else 0.0, stats.running_s + stats.paused_s)
    return {
        "status": state,
        "running-ratio": stats.running_s / life if life else 0.0,
        "pause-ratio": stats.paused_s / life if life else 0.0,
        "offset-commit-max-time-ms": rates.commit_ms_max,
        "offset-commit-avg-time-ms": rates.commit_ms_avg,
        "offset-commit-success-percentage": rates.commit_success,
        "offset-commit-failure-percentage": rates.commit_failure,
        "batch-size-max": rates.batch_max,
        "batch-size-avg": rates.batch_avg,
    }


def _error_values(stats: TaskStats) -> dict[str, Any]:
    return {
        "total-record-failures": stats.record_failures,
        "total-record-errors": stats.record_errors,
        "total-records-skipped": stats.records_skipped,
        "total-retries": stats.retries,
        "total-errors-logged": stats.errors_logged,
        "deadletterqueue-produce-requests": stats.dead_letter_requests,
        "deadletterqueue-produce-failures": stats.dead_letter_failures,
        "last-error-timestamp": stats.last_error_ms,
    }


def _own_values(stats: TaskStats, bounds: Sequence[float]) -> dict[str, Any]:
    return {
        "millrace_task_lag_seconds": stats.lag_ms / 1000 if stats.lag_ms >= 0 else None,
        "millrace_task_commit_duration_seconds": (bounds, stats.commit_buckets, stats.commit_s),
        "millrace_task_commit_failures_total": stats.commit_failures,
        "millrace_task_bytes_written_total": stats.bytes_written,
        "millrace_task_records_filtered_total": stats.filtered,
        "millrace_task_series_folded_total": stats.series_folded,
        "millrace_task_restarts_total": stats.restarts,
        "millrace_task_poll_seconds_total": stats.poll_s,
        "millrace_task_transform_seconds_total": stats.transform_s,
        "millrace_task_convert_seconds_total": stats.convert_s,
        "millrace_task_produce_seconds_total": stats.produce_latency_s,
        "millrace_task_produce_batches_total": stats.produce_batches,
    }


def _source_values(stats: TaskStats, rates: Rates) -> dict[str, Any]:
    return {
        "source-record-poll-rate": rates.poll_rate,
        "source-record-poll-total": stats.polled,
        "source-record-write-rate": rates.write_rate,
        "source-record-write-total": stats.written,
        "poll-batch-max-time-ms": rates.poll_ms_max,
        "poll-batch-avg-time-ms": rates.poll_ms_avg,
        "source-record-active-count": stats.active,
        "source-record-active-count-max": rates.active_max,
        "source-record-active-count-avg": rates.active_avg,
        "transaction-size-min": stats.transaction_size_min,
        "transaction-size-max": stats.transaction_size_max,
        "transaction-size-avg": _share_of(stats.transaction_records, stats.transactions),
    }


def _sink_values(stats: TaskStats, job: JobProgress, rates: Rates) -> dict[str, Any]:
    return {
        "sink-record-read-rate": rates.poll_rate,
        "sink-record-read-total": stats.polled,
        "sink-record-send-rate": rates.write_rate,
        "sink-record-send-total": stats.written,
        **({"sink-record-lag-max": max(partition.lag for partition in job.partitions)} if _lag_known(job) else {}),
        "partition-count": len(job.partitions),
        "offset-commit-seq-no": job.batch,
        "offset-commit-completion-rate": rates.batch_rate,
        "offset-commit-completion-total": stats.commits,
        # A job saves its place with each batch: none is left out.
        "offset-commit-skip-rate": 0.0,
        "offset-commit-skip-total": 0,
        "sink-record-active-count-max": rates.batch_max,
        # All records of a batch are active for as long as the batch takes.
        "sink-record-active-count-avg": rates.batch_avg * min(1.0, rates.batch_rate * rates.poll_ms_avg / 1000),
        "put-batch-max-time-ms": rates.poll_ms_max,
        "put-batch-avg-time-ms": rates.poll_ms_avg,
    }


def _lag_known(job: JobProgress) -> bool:
    """Whether all partitions have a lag: a number that is not known is left out, as 0 would say that all is well."""
    return bool(job.partitions) and all(partition.lag >= 0 for partition in job.partitions)


def _job_values(job: JobProgress) -> dict[str, Any]:
    return {
        "millrace_job_up": int(job.phase in {"running", "retrying"}),
        "millrace_job_starts_total": job.starts,
        "millrace_job_retrying": int(job.phase == "retrying"),
        **({"millrace_job_lag_records": sum(partition.lag for partition in job.partitions)} if _lag_known(job) else {}),
        "millrace_job_batch_records": job.batch_rows,
        "millrace_job_batch_seconds": job.batch_s,
        "millrace_job_busy_seconds_total": job.busy_s,
        "millrace_job_rows_per_second": job.rows_per_s,
        "millrace_job_progress_timestamp_seconds": job.progress_at,
    }


def _share_of(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
