"""Prometheus text exposition (version 0.0.4) of a worker's numbers: a pure function of a snapshot.

It is rendered in parts of about a millisecond each, so that a worker with thousands of tasks can do other work between them.
Source of the format: prometheus.io/docs/instrumenting/exposition_formats.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from connectors import debezium_metrics as debezium
from worker.metrics import registry
from worker.metrics.groups import ConnectorNumbers, Entity, HistogramValue, Labels, ProcessNumbers, WorkerStats
from worker.metrics.groups import task_groups as _task_groups
from worker.metrics.groups import worker_groups as _worker_groups
from worker.metrics.registry import ADDED_LABELS, LABEL_NAMES, METRICS, Family, Metric, MetricKind
from worker.metrics.topics import TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from worker.metrics.windows import TaskTable, TaskWindow
    from worker.protocol import HostTaskId

__all__ = [
    "CONTENT_TYPE",
    "ConnectorNumbers",
    "Options",
    "ProcessNumbers",
    "WorkerStats",
    "collect_parts",
    "format_number",
    "process_numbers",
    "render_exposition",
    "render_parts",
]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Upper bounds in seconds of ``TaskStats.commit_buckets``.
COMMIT_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: Lines of a part.
_LINES: Final = 1000
#: How long parts are rendered before the event loop does other work.
_SLICE_S: Final = 0.005
_QUEUE: Final = tuple(
    f"{debezium.PREFIX}{name}"
    for name in ("QueueTotalCapacity", "QueueRemainingCapacity", "MaxQueueSizeInBytes", "CurrentQueueSizeInBytes")
)
#: Metrics that every context with a queue has.
_WITH_QUEUE: Final = frozenset({debezium.CONNECTED, debezium.SNAPSHOT_RUNNING})


class Options(msgspec.Struct, frozen=True):
    """Options of the exposition.

    Attributes:
        families: which names to give Kafka Connect's metrics.
        jvm: whether there are stand-ins for metrics of a JVM.
        most_clients: Kafka clients of a kind with series of their own.
        custom_help: descriptions of the metrics that connectors declare.
    """

    families: tuple[Family, ...] = (Family.A, Family.D)
    jvm: bool = True
    most_clients: int = 100
    custom_help: dict[str, str] = {}


def process_numbers(started_at: float) -> ProcessNumbers:
    """This process's numbers now; reads ``/proc`` where there is one."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    rss, fds = used.ru_maxrss * 1024, 0
    proc = Path("/proc/self")
    if proc.is_dir():
        rss = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        fds = sum(1 for _ in (proc / "fd").iterdir())
    return ProcessNumbers(used.ru_utime + used.ru_stime, rss, started_at, fds, memory_limit())


def memory_limit() -> int:
    """Bytes that this process's control group allows, else the machine's; 0 where neither can be read."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        machine = 0
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit_text = Path(path).read_text().strip()
        except OSError:
            continue
        if limit_text.isdigit() and 0 < int(limit_text) < (machine or 1 << 62):
            return int(limit_text)
    return machine


def render_exposition(
    worker: WorkerStats,
    connectors: Iterable[ConnectorNumbers],
    table: TaskTable,
    process: ProcessNumbers,
    *,
    options: Options | None = None,
    now: float,
    wall: float | None = None,
) -> str:
    """The whole exposition at once; see ``render_parts``."""
    return "".join(render_parts(worker, connectors, table, process, options=options, now=now, wall=wall))


async def collect_parts(parts: Iterator[str]) -> tuple[bytes, float]:
    """Join parts and let the event loop do other work in between.

    Returns:
        the bytes, and the longest time in seconds without a pause.
    """
    encoded: list[bytes] = []
    longest = 0.0
    began = time.perf_counter()
    for part in parts:
        encoded.append(part.encode())
        spent = time.perf_counter() - began
        if spent > _SLICE_S:
            longest = max(longest, spent)
            await asyncio.sleep(0)
            began = time.perf_counter()
    return b"".join(encoded), max(longest, time.perf_counter() - began)


def render_parts(
    worker: WorkerStats,
    connectors: Iterable[ConnectorNumbers],
    table: TaskTable,
    process: ProcessNumbers,
    *,
    options: Options | None = None,
    now: float,
    wall: float | None = None,
) -> Iterator[str]:
    """Yield the exposition in parts, some of them empty; each takes about a millisecond.

    ``table`` may change in between: every task is shown as it is when its turn comes, and those that come or go later are not.

    Args:
        worker: the control process's own counters.
        connectors: connectors whose instance runs here.
        table: tasks and hosts.
        process: ``process_numbers``.
        options: what is shown.
        now: of the clock that ``table`` is fed with.
        wall: seconds since the epoch; by default now.
    """
    wall = time.time() if wall is None else wall
    options = options or Options()
    tasks = list(table.tasks.items())
    groups: dict[str, list[Entity]] = {}
    for entity_group in _task_groups(tasks, now, wall, COMMIT_BOUNDS):
        if entity_group is None:
            yield ""
        else:
            groups = entity_group
    groups.update(_worker_groups(worker, table, process, wall, jvm=options.jvm, most_clients=options.most_clients))
    groups[registry.CONNECTOR] = [
        (
            (("connector", item.name),),
            {
                "connector-class": item.connector_class,
                "connector-type": item.type,
                "connector-version": item.version,
                "status": item.status.lower(),
            },
        )
        for item in connectors
    ]
    #: Name -> what is shown under it; families share names.
    shown: dict[str, list[tuple[Metric, Family]]] = {}
    for metric in METRICS:
        for name, family in _exposed_names(metric, options.families):
            shown.setdefault(name, []).append((metric, family))
    labels_by_group: dict[tuple[str, Family], list[str]] = {}
    for name, members in shown.items():
        yield from _render_family(name, members, groups, labels_by_group)
    yield from _render_custom(tasks, options)


def _exposed_names(metric: Metric, families: Sequence[Family]) -> Iterator[tuple[str, Family]]:
    """Each name that ``metric`` has in ``families`` once: B and C share most."""
    used_names: set[str] = set()
    for family in families:
        for name in metric.exposed(family):
            if name not in used_names:
                used_names.add(name)
                yield name, family


def _render_family(
    name: str,
    members: Sequence[tuple[Metric, Family]],
    groups: Mapping[str, list[Entity]],
    labels_by_group: dict[tuple[str, Family], list[str]],
) -> Iterator[str]:
    lines: list[str] = []
    first = members[0][0]
    # A counter without its ending is what an exporter makes of a value that is no counter to it.
    bare = first.name.endswith("-total") and not name.endswith("_total")
    kind = MetricKind.GAUGE if first.kind is MetricKind.TEXT or bare else first.kind
    header = f"# HELP {name} {_escape_help(first.help)}\n# TYPE {name} {kind}\n"
    for metric, family in members:
        entities = groups.get(metric.group, ())
        labels = labels_by_group.get((metric.group, family))
        if labels is None:
            labels = labels_by_group[metric.group, family] = []
            for entity, _ in entities:
                labels.append(_entity_text(metric, family, entity))
                if len(labels) % _LINES == 0:
                    yield ""
        step = _LINES if metric.kind is not MetricKind.HISTOGRAM else _LINES // 16
        for start in range(0, len(entities), step):
            _add_samples(lines, metric, name, labels[start : start + step], entities[start : start + step])
            if lines:
                yield header + "".join(lines)
                header = ""
                lines.clear()


def _add_samples(
    lines: list[str], metric: Metric, name: str, label_sets: Sequence[str], entities: Sequence[Entity]
) -> None:
    key = metric.name
    if metric.kind is MetricKind.TEXT:
        attribute = key.replace("-", "_")
        lines += [
            f'{name}{{{label_set}{"," if label_set else ""}{attribute}="{_escape_label(str(value))}"}} 1\n'
            for label_set, (_, values) in zip(label_sets, entities, strict=True)
            if (value := values.get(key)) is not None
        ]
    elif metric.kind is MetricKind.HISTOGRAM:
        for label_set, (_, values) in zip(label_sets, entities, strict=True):
            if (value := values.get(key)) is not None:
                lines += _render_histogram(name, label_set, value)
    else:
        # The shortest way, for most lines are made here: these are our own ints and finite floats, which repr shows right.
        lines += [
            f"{name}{{{label_set}}} {value!r}\n" if label_set else f"{name} {value!r}\n"
            for label_set, (_, values) in zip(label_sets, entities, strict=True)
            if (value := values.get(key)) is not None
        ]


def _entity_text(metric: Metric, family: Family, labels: Labels) -> str:
    added: Labels = ADDED_LABELS.get((family, metric.group), ())
    return _format_labels(
        (*((LABEL_NAMES.get((family, label), label), label_value) for label, label_value in labels), *added)
    )


def _render_histogram(name: str, labels: str, value: HistogramValue) -> Iterator[str]:
    bounds, cumulative, total = value
    comma = "," if labels else ""
    for bound, count in zip(bounds, cumulative, strict=False):
        yield f'{name}_bucket{{{labels}{comma}le="{format_number(bound)}"}} {count}\n'
    yield f'{name}_bucket{{{labels}{comma}le="+Inf"}} {cumulative[-1]}\n'
    braces = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{braces} {format_number(total)}\n"
    yield f"{name}_count{braces} {cumulative[-1]}\n"


def _render_custom(tasks: Sequence[tuple[HostTaskId, TaskWindow]], options: Options) -> Iterator[str]:
    """Metrics that connectors report of their own, with the labels ``connector`` and ``task`` before theirs."""
    declared = {metric.name for metric in registry.MILLRACE}
    with_debezium = Family.D in options.families
    output: dict[str, tuple[str, list[str]]] = {}
    names: dict[str, str | None] = {}
    for index, (task, window) in enumerate(tasks):
        if index % _LINES == _LINES - 1:
            yield ""
        task_labels = _format_labels((("connector", task.connector), ("task", str(task.task))))
        queues: set[str] = set()
        for item in window.latest.custom:
            if item.name not in names:
                name = _metric_name(item.name)
                # a job's part may use a name that the worker's own metrics have
                hidden = name in declared or (not with_debezium and name.startswith(debezium.PREFIX))
                names[item.name] = None if hidden else name
            shown = names[item.name]
            if shown is None:
                continue
            _, lines = output.setdefault(shown, ("counter" if item.kind == "counter" else "gauge", []))
            item_labels = _format_labels(
                (label, item_labels) for label, item_labels in item.labels.items() if label not in {"connector", "task"}
            )
            lines.append(
                f"{shown}{{{task_labels}{',' if item_labels else ''}{item_labels}}} {format_number(item.value)}\n"
            )
            if item.name in _WITH_QUEUE:
                queues.add(item_labels)
        stats = window.latest
        if queues and stats.active_limit:
            for name, size in zip(
                _QUEUE,
                (
                    stats.active_limit,
                    max(0, stats.active_limit - stats.active),
                    stats.active_limit_bytes,
                    stats.active_bytes,
                ),
                strict=True,
            ):
                _, lines = output.setdefault(name, ("gauge", []))
                lines += [
                    f"{name}{{{task_labels}{',' if item_labels else ''}{item_labels}}} {size}\n"
                    for item_labels in sorted(queues)
                ]
    for name, (kind, lines) in output.items():
        item_labels = _escape_help(TOPICS[name][1] if name in TOPICS else options.custom_help.get(name, ""))
        yield f"# HELP {name} {item_labels}\n# TYPE {name} {kind}\n"
        for start in range(0, len(lines), _LINES):
            yield "".join(lines[start : start + _LINES])


def format_number(value: float) -> str:
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


def _escape_label(raw: str) -> str:
    return raw.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(help_text: str) -> str:
    return help_text.replace("\\", "\\\\").replace("\n", "\\n")


def _format_labels(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(f'{_label_name(name)}="{_escape_label(label_value)}"' for name, label_value in labels)


def _label_name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else _clean_name(name, "_")


def _metric_name(name: str) -> str:
    return _clean_name(name, "_:")


def _clean_name(name: str, punctuation: str) -> str:
    cleaned = "".join(char if char.isascii() and (char.isalnum() or char in punctuation) else "_" for char in name)
    return cleaned if cleaned and not cleaned[0].isdigit() else f"_{cleaned}"
