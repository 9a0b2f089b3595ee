"""Prometheus text exposition (version 0.0.4) of a worker's numbers: a pure function of a snapshot.

Source of the format: prometheus.io/docs/instrumenting/exposition_formats.
"""
from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from worker.metrics import registry
from worker.metrics.registry import ADDED_LABELS, LABEL_NAMES, METRICS, Family, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from connectors.api import JobProgress
    from worker.metrics.windows import Rates, TaskTable
    from worker.protocol import TaskStats

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Upper bounds in seconds of ``TaskStats.commit_buckets``.
COMMIT_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_STATES: Final = ("running", "paused", "failed", "unassigned", "destroyed", "restarting")

Labels = tuple[tuple[str, str], ...]
#: A histogram's value: (upper bounds, cumulative counts with all observations last, sum).
HistogramValue = tuple["Sequence[float]", "Sequence[int]", float]
#: One series of a group: its labels, and a value per metric name; a name that is absent has no value now.
Entity = tuple[Labels, "Mapping[str, Any]"]


@dataclass(slots=True)
class WorkerStats:
    """What the control process counts of itself. It is the one owner and changes the fields in place.

    Times are in seconds; ``*_at`` are seconds since the epoch, 0 for never.
    """

    client_id: str = ""
    version: str = ""
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
    #: Internal topic -> (connected, unreadable records so far).
    topics: dict[str, tuple[bool, int]] = field(default_factory=dict)


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
    """Of the control process: seconds, bytes, seconds since the epoch, count."""

    cpu_s: float
    rss_bytes: int
    started_at: float
    open_fds: int


def process_numbers(started_at: float) -> ProcessNumbers:
    """This process's numbers now; reads ``/proc`` where there is one."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    rss, fds = used.ru_maxrss * 1024, 0
    proc = Path("/proc/self")
    if proc.is_dir():
        rss = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        fds = sum(1 for _ in (proc / "fd").iterdir())
    return ProcessNumbers(used.ru_utime + used.ru_stime, rss, started_at, fds)


def render(worker: WorkerStats, connectors: Iterable[ConnectorNumbers], table: TaskTable, process: ProcessNumbers, *,
           families: Sequence[Family] = (Family.A,), now: float, wall: float | None = None,
           custom_help: Mapping[str, str] | None = None) -> str:
    """The exposition; blocks for about 1 ms per 12 tasks.

    Args:
        worker: the control process's own counters.
        connectors: connectors whose instance runs here.
        table: tasks and hosts.
        process: ``process_numbers``.
        families: which names to give Kafka Connect's metrics.
        now: of the clock that ``table`` is fed with.
        wall: seconds since the epoch; by default now.
        custom_help: text of the metrics that connectors declare.
    """
    groups = dict(_worker_groups(worker, table, process, time.time() if wall is None else wall))
    groups[registry.CONNECTOR] = [((("connector", item.name),), {
        "connector-class": item.connector_class, "connector-type": item.type, "connector-version": item.version,
        "status": item.status.lower()}) for item in connectors]
    groups.update(_task_groups(table, now, time.time() if wall is None else wall))
    output: dict[str, tuple[str, str, list[str]]] = {}
    #: Labels as text, of each entity of a group: made once for all metrics of the group.
    texts: dict[tuple[str, Family], list[str]] = {}
    for metric in METRICS:
        entities = groups.get(metric.group, ())
        for name, family in _names(metric, families):
            _add(output, metric, name, family, entities, texts.setdefault((metric.group, family), []))
    _custom(output, table, custom_help or {})
    return "".join(f"# HELP {name} {_escape_help(text)}\n# TYPE {name} {kind}\n{''.join(lines)}"
                   for name, (kind, text, lines) in output.items() if lines)


def _names(metric: Metric, families: Sequence[Family]) -> Iterator[tuple[str, Family]]:
    """Each name that ``metric`` has in ``families`` once: B and C share most."""
    seen: set[str] = set()
    for family in families:
        name = metric.exposed(family)
        if name is not None and name not in seen:
            seen.add(name)
            yield name, family


def _add(output: dict[str, tuple[str, str, list[str]]], metric: Metric, name: str, family: Family,
         entities: Sequence[Entity], texts: list[str]) -> None:
    if not texts:
        texts += [_entity_text(metric, family, labels) for labels, _ in entities]
    kind = "gauge" if metric.kind is Kind.TEXT else str(metric.kind)
    _, _, lines = output.setdefault(name, (kind, metric.help, []))
    for text, (_, values) in zip(texts, entities, strict=True):
        value = values.get(metric.name)
        if value is None:
            continue
        if metric.kind is Kind.TEXT:
            lines.append(f"{name}{{{text}{',' if text else ''}{metric.name.replace('-', '_')}=\"{_escape(value)}\"}} 1\n")
        elif metric.kind is Kind.HISTOGRAM:
            lines += _histogram(name, text, value)
        else:
            lines.append(f"{name}{{{text}}} {number(value)}\n" if text else f"{name} {number(value)}\n")


def _entity_text(metric: Metric, family: Family, labels: Labels) -> str:
    added: Labels = ADDED_LABELS.get((family, metric.group), ())
    return _labels((*((LABEL_NAMES.get((family, label), label), text) for label, text in labels), *added))


def _histogram(name: str, labels: str, value: HistogramValue) -> Iterator[str]:
    bounds, cumulative, total = value
    comma = "," if labels else ""
    for bound, count in zip(bounds, cumulative, strict=False):
        yield f'{name}_bucket{{{labels}{comma}le="{number(bound)}"}} {count}\n'
    yield f'{name}_bucket{{{labels}{comma}le="+Inf"}} {cumulative[-1]}\n'
    braces = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{braces} {number(total)}\n"
    yield f"{name}_count{braces} {cumulative[-1]}\n"


def _custom(output: dict[str, tuple[str, str, list[str]]], table: TaskTable, texts: Mapping[str, str]) -> None:
    """Metrics that connectors report of their own, with the labels ``connector`` and ``task`` before theirs."""
    declared = {metric.name for metric in registry.OWN}
    for task, window in table.tasks.items():
        for item in window.latest.custom:
            name = _metric_name(item.name)
            if name in declared:
                continue  # a job's part uses a name that the worker's own metrics have
            kind, _, lines = output.setdefault(
                name, ("counter" if item.kind == "counter" else "gauge", texts.get(item.name, ""), []))
            own = [(label, text) for label, text in item.labels.items() if label not in {"connector", "task"}]
            if kind != "histogram":
                lines.append(f"{name}{{{_labels((('connector', task.connector), ('task', str(task.task)), *own))}}} "
                             f"{number(item.value)}\n")


def number(value: float) -> str:
    """A sample's value as the format has it."""
    if type(value) is int:
        return str(value)
    if isinstance(value, bool):
        return "1" if value else "0"
    if value != value:  # noqa: PLR0124 - not a number is the one value that differs from itself
        return "NaN"
    if value in {float("inf"), float("-inf")}:
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(f'{_label_name(name)}="{_escape(text)}"' for name, text in labels)


def _label_name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else "".join(
        char if char.isascii() and (char.isalnum() or char == "_") else "_" for char in name)


def _metric_name(name: str) -> str:
    cleaned = "".join(char if char.isascii() and (char.isalnum() or char in "_:") else "_" for char in name)
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _worker_groups(worker: WorkerStats, table: TaskTable, process: ProcessNumbers, wall: float,
                   ) -> Iterator[tuple[str, list[Entity]]]:
    client: Labels = (("client_id", worker.client_id),)
    yield registry.WORKER, [((), {
        "connector-count": worker.assigned_connectors,
        "task-count": len(table.tasks),
        "connector-startup-attempts-total": worker.connector_startup_attempts,
        "connector-startup-success-total": worker.connector_startup_success,
        "connector-startup-success-percentage": _share(worker.connector_startup_success, worker.connector_startup_attempts),
        "connector-startup-failure-total": worker.connector_startup_failure,
        "connector-startup-failure-percentage": _share(worker.connector_startup_failure, worker.connector_startup_attempts),
        "task-startup-attempts-total": worker.task_startup_attempts,
        "task-startup-success-total": worker.task_startup_success,
        "task-startup-success-percentage": _share(worker.task_startup_success, worker.task_startup_attempts),
        "task-startup-failure-total": worker.task_startup_failure,
        "task-startup-failure-percentage": _share(worker.task_startup_failure, worker.task_startup_attempts),
    })]
    yield registry.REBALANCE, [((), {
        "connect-protocol": worker.protocol or None,
        "leader-name": worker.leader_name or None,
        "epoch": worker.epoch,
        "completed-rebalances-total": worker.rebalances,
        "rebalancing": worker.rebalancing,
        "rebalance-max-time-ms": worker.rebalance_s_max * 1000,
        "rebalance-avg-time-ms": worker.rebalance_s / worker.rebalances * 1000 if worker.rebalances else 0.0,
        "time-since-last-rebalance-ms": (wall - worker.last_rebalance_at) * 1000 if worker.last_rebalance_at else None,
    })]
    yield registry.COORDINATOR, [(client, {"assigned-connectors": worker.assigned_connectors,
                                           "assigned-tasks": worker.assigned_tasks})]
    yield registry.APP, [(client, {"version": worker.version, "start-time-ms": int(worker.started_at * 1000)})]
    yield registry.OWN_WORKER, [((), {
        "millrace_worker_leader": worker.leader,
        "millrace_worker_ready": worker.ready,
        "millrace_worker_draining": worker.draining,
        "millrace_worker_members": worker.members,
        "millrace_worker_loop_lag_seconds": worker.loop_lag_s,
        "millrace_placement_version": worker.placement_version,
        "millrace_placement_moves_total": worker.placement_moves,
        "millrace_placement_pending": worker.placement_pending,
    })]
    yield registry.OWN_TOPIC, [((("topic", topic),), {
        "millrace_topic_connected": connected, "millrace_topic_unreadable_records_total": unreadable})
        for topic, (connected, unreadable) in worker.topics.items()]
    yield registry.OWN_HOST, [((("host", str(host)),), {
        "millrace_host_up": item.up,
        "millrace_host_restarts_total": item.restarts,
        "millrace_host_stuck_total": item.stuck,
        "millrace_host_tasks": item.tasks,
        "millrace_host_connectors": item.connectors,
        "millrace_host_cpu_seconds_total": item.cpu_s,
        "millrace_host_resident_memory_bytes": item.rss_bytes,
        "millrace_host_loop_lag_seconds": item.loop_lag_s,
    }) for host, item in sorted(table.hosts.items())]
    yield registry.OWN_CONNECTOR, [((("connector", name),), {
        "millrace_connector_lag_seconds": (lag.bounds, lag.cumulative(), lag.total)}) for name, lag in table.lags.items()]
    yield registry.PROCESS, [((), {
        "process_cpu_seconds_total": process.cpu_s,
        "process_resident_memory_bytes": process.rss_bytes,
        "process_start_time_seconds": process.started_at,
        "process_open_fds": process.open_fds,
    })]


def _task_groups(table: TaskTable, now: float, wall: float) -> dict[str, list[Entity]]:
    task_group: list[Entity] = []
    source: list[Entity] = []
    sink: list[Entity] = []
    jobs: list[Entity] = []
    errors: list[Entity] = []
    own: list[Entity] = []
    counts: dict[str, dict[str, int]] = {}
    for task, window in sorted(table.tasks.items(), key=lambda pair: pair[0]):
        stats = window.latest
        rates = window.rates(now)
        labels: Labels = (("connector", task.connector), ("task", str(task.task)))
        state = stats.state.lower()
        states = counts.setdefault(task.connector, dict.fromkeys(_STATES, 0))
        states[state] = states.get(state, 0) + 1
        life = max(wall - stats.started_at if stats.started_at else 0.0, stats.running_s + stats.paused_s)
        task_group.append((labels, {
            "status": state,
            "running-ratio": stats.running_s / life if life else 0.0,
            "pause-ratio": stats.paused_s / life if life else 0.0,
            "offset-commit-max-time-ms": rates.commit_ms_max,
            "offset-commit-avg-time-ms": rates.commit_ms_avg,
            "offset-commit-success-percentage": rates.commit_success,
            "offset-commit-failure-percentage": rates.commit_failure,
            "batch-size-max": rates.batch_max,
            "batch-size-avg": rates.batch_avg,
        }))
        if stats.job is not None:
            sink.append((labels, _sink_values(stats, stats.job, rates)))
            jobs.append((labels, _job_values(stats.job)))
        else:
            source.append((labels, _source_values(stats, rates)))
        errors.append((labels, {
            "total-record-failures": stats.record_failures,
            "total-record-errors": stats.record_errors,
            "total-records-skipped": stats.records_skipped,
            "total-retries": stats.retries,
            "total-errors-logged": stats.errors_logged,
            "deadletterqueue-produce-requests": stats.dead_letter_requests,
            "deadletterqueue-produce-failures": stats.dead_letter_failures,
            "last-error-timestamp": stats.last_error_ms,
        }))
        own.append((labels, {
            "millrace_task_lag_seconds": stats.lag_ms / 1000 if stats.lag_ms >= 0 else None,
            "millrace_task_commit_duration_seconds": (COMMIT_BOUNDS, stats.commit_buckets, stats.commit_s),
            "millrace_task_bytes_written_total": stats.bytes_written,
            "millrace_task_records_filtered_total": stats.filtered,
            "millrace_task_restarts_total": stats.restarts,
            "millrace_task_poll_seconds_total": stats.poll_s,
            "millrace_task_transform_seconds_total": stats.transform_s,
            "millrace_task_convert_seconds_total": stats.convert_s,
            "millrace_task_produce_seconds_total": stats.produce_latency_s,
            "millrace_task_produce_batches_total": stats.produce_batches,
        }))
    per_connector: list[Entity] = [((("connector", name),), {
        "connector-total-task-count": sum(states.values()),
        **{f"connector-{state}-task-count": states[state] for state in _STATES}}) for name, states in counts.items()]
    return {registry.TASK: task_group, registry.SOURCE_TASK: source, registry.SINK_TASK: sink, registry.TASK_ERROR: errors,
            registry.OWN_TASK: own, registry.OWN_JOB: jobs, registry.WORKER_CONNECTOR: per_connector}


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
        "transaction-size-avg": _share(stats.transaction_records, stats.transactions),
    }


def _sink_values(stats: TaskStats, job: JobProgress, rates: Rates) -> dict[str, Any]:
    return {
        "sink-record-read-rate": rates.poll_rate,
        "sink-record-read-total": stats.polled,
        "sink-record-send-rate": rates.write_rate,
        "sink-record-send-total": stats.written,
        "sink-record-lag-max": max((each.lag for each in job.partitions), default=0),
        "partition-count": len(job.partitions),
        "offset-commit-seq-no": job.batch,
        "offset-commit-completion-rate": rates.batch_rate,
        "offset-commit-completion-total": stats.commits,
        "put-batch-max-time-ms": rates.poll_ms_max,
        "put-batch-avg-time-ms": rates.poll_ms_avg,
    }


def _job_values(job: JobProgress) -> dict[str, Any]:
    return {
        "millrace_job_up": int(job.phase in {"running", "retrying"}),
        "millrace_job_starts_total": job.starts,
        "millrace_job_lag_records": sum(each.lag for each in job.partitions),
        "millrace_job_batch_records": job.batch_rows,
        "millrace_job_batch_seconds": job.batch_s,
        "millrace_job_busy_seconds_total": job.busy_s,
        "millrace_job_rows_per_second": job.rows_per_s,
        "millrace_job_progress_timestamp_seconds": job.progress_at,
    }
