"""A job's metrics as data, and a small server that shows them to Prometheus.

A job that a worker runs shows its numbers on the worker's ``/metrics`` under the same names, with other labels.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX: Final = "millrace_job_"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class JobMetric:
    """The declaration of one metric.

    Attributes:
        name: without ``millrace_job_``; counters end in ``_total``.
        kind: ``counter`` or ``gauge``.
        unit: of the value; empty for a plain count.
        help: one sentence.
        labels: in addition to ``job``.
    """

    name: str
    kind: str
    unit: str
    help: str
    labels: tuple[str, ...] = ()


#: What ``Flow.measure_steps`` gives of a step that keeps a state; a step has those that it knows.
STEP_METRICS: Final = (
    JobMetric(
        "step_state_rows",
        "gauge",
        "rows",
        "Rows that a step keeps in its state. Of a view: as stored, with older versions of rows until they are folded; "
        "counted once a minute.",
        ("step",),
    ),
    JobMetric("step_state_bytes", "gauge", "bytes", "Size of the files of a step's state.", ("step",)),
    JobMetric(
        "step_watermark_timestamp_seconds",
        "gauge",
        "s",
        "Watermark of a join or window, in seconds since 1970. Absent before the first row.",
        ("step",),
    ),
    JobMetric(
        "step_late_total", "counter", "rows", "Rows that came after the watermark of a join or window.", ("step",)
    ),
    JobMetric(
        "step_ignored_total", "counter", "rows", "Updates and deletes that a join or window left out.", ("step",)
    ),
    JobMetric("step_sessions_cut_total", "counter", "", "Sessions that a window ended at `session.max.ms`.", ("step",)),
)

#: What ``Heartbeats.numbers`` has of a table; a topic stands for its table unless its messages are UMS.
TABLE_METRICS: Final = (
    JobMetric(
        "table_delay_seconds",
        "gauge",
        "s",
        "From the source to the target: the age of the last heartbeat of a table when its batch was written.",
        ("table",),
    ),
    JobMetric(
        "table_topic_delay_seconds", "gauge", "s", "The part of it from the source to the topic in Kafka.", ("table",)
    ),
    JobMetric(
        "table_read_delay_seconds",
        "gauge",
        "s",
        "The part of it from the topic to the beginning of the job's batch.",
        ("table",),
    ),
    JobMetric(
        "table_write_delay_seconds",
        "gauge",
        "s",
        "The part of it that the batch took: decoding, steps, sink.",
        ("table",),
    ),
    JobMetric(
        "table_complete_timestamp_seconds",
        "gauge",
        "s",
        "Up to when the target has all changes of a table, in seconds since 1970: the oldest promise of the table's "
        "partitions in this run.",
        ("table",),
    ),
)

#: Of every job, whatever its parts.
FRAME_METRICS: Final = (
    JobMetric("up", "gauge", "", "1 while the query runs."),
    JobMetric("batches_total", "counter", "", "Batches that were committed in this run."),
    JobMetric("records_total", "counter", "records", "Records that committed batches of this run read from Kafka."),
    JobMetric("rows_written_total", "counter", "rows", "Rows that the sink says it wrote in this run."),
    JobMetric("batch_records", "gauge", "records", "Records in the last batch."),
    JobMetric("batch_seconds", "gauge", "s", "How long the last batch took in decoding and sink."),
    JobMetric(
        "busy_seconds_total", "counter", "s", "How long all batches of this run together took in decoding and sink."
    ),
    JobMetric("rows_per_second", "gauge", "records/s", "Speed of the last batch."),
    JobMetric(
        "phase_seconds",
        "gauge",
        "s",
        "Where Spark spent the time of the last batch: addBatch (decoding and sink), latestOffset, queryPlanning, "
        "walCommit, commitOffsets, triggerExecution (all).",
        ("phase",),
    ),
    JobMetric(
        "retrying",
        "gauge",
        "",
        "1 while the job tries something again: its target, Kafka or its topics are unavailable (the log and `job status` say "
        "since when and why).",
    ),
    JobMetric(
        "lag_records",
        "gauge",
        "records",
        "Records of a partition that are still to be read. Absent while that is not known.",
        ("topic", "partition"),
    ),
    JobMetric("offset", "gauge", "", "The next offset to be read of a partition.", ("topic", "partition")),
    JobMetric(
        "offsets_behind_latest",
        "gauge",
        "records",
        "Records that all partitions together have still to be read. Absent while that is not known: before Kafka's "
        "first answer, and while Kafka does not answer.",
    ),
    JobMetric(
        "retries_total",
        "counter",
        "",
        "How often something was retried in this run, because the sink or Kafka was unavailable or a Python worker died.",
    ),
    JobMetric(
        "dead_letters_total", "counter", "records", "Records that could not be decoded and were put aside in this run."
    ),
    JobMetric(
        "schema_changes_total",
        "counter",
        "",
        "Changes of tables' schemas that this run found and reported (event `schema_change`).",
    ),
    *STEP_METRICS,
    *TABLE_METRICS,
    JobMetric(
        "progress_timestamp_seconds", "gauge", "s", "When the job last said how far it is, in seconds since 1970."
    ),
)


class JobNumbers:
    """The numbers of one run, fed with its events; may be read from another thread.

    Args:
        job: the label ``job``.
        declared: metrics of the run's sink.
        sink: the label ``sink``; empty for a flow with one sink, whose metrics have no such label.
    """

    def __init__(self, job: str, declared: Iterable[JobMetric] = (), sink: str = "") -> None:
        self._origin = (("job", job), *((("sink", sink),) if sink else ()))
        self._declared = {metric.name: metric for metric in (*FRAME_METRICS, *declared)}
        self._lock = threading.Lock()
        self._totals = dict.fromkeys(
            (
                "batches_total",
                "records_total",
                "rows_written_total",
                "busy_seconds_total",
                "retries_total",
                "schema_changes_total",
            ),
            0.0,
        )
        self._gauges: dict[str, float] = {"up": 0.0}
        self._by_label: dict[str, dict[tuple[str, ...], float]] = {}
        self._batch: int | None = None

    def take(self, event: Mapping[str, Any], now: float) -> None:
        """Fold one event in; ``now`` in seconds since the epoch."""
        with self._lock:
            kind = event["event"]
            self._gauges["up"] = float(kind in ("started", "progress", "retrying"))
            self._gauges["retrying"] = float(kind == "retrying" or (kind == "progress" and bool(event.get("retrying"))))
            if kind == "retrying":
                self._totals["retries_total"] += 1
            if kind == "progress":
                self._add_progress(event, now)

    def _add_progress(self, event: Mapping[str, Any], now: float) -> None:
        seconds = event["duration_ms"] / 1000
        if event.get("committed"):
            increments = {
                "batches_total": 1,
                "records_total": event["rows"],
                "rows_written_total": event["written"],
                "busy_seconds_total": seconds,
            }
            for name, value in increments.items():
                self._totals[name] += value
            self._gauges |= {"batch_records": event["rows"], "batch_seconds": seconds}
        self._gauges |= {"rows_per_second": event["rows_per_s"], "progress_timestamp_seconds": now}
        if event["lag_total"] is None:
            self._gauges.pop("offsets_behind_latest", None)
        else:
            self._gauges["offsets_behind_latest"] = event["lag_total"]
        self._gauges |= {name: value for name, value in event["metrics"].items() if isinstance(value, int | float)}
        for name, field in (("lag_records", "lag"), ("offset", "position")):
            self._by_label[name] = {
                (topic, partition): value
                for topic, partitions in event[field].items()
                for partition, value in partitions.items()
            }
        for metrics, field in ((STEP_METRICS, "steps"), (TABLE_METRICS, "tables")):
            for metric in metrics:
                name = metric.name.partition("_")[2]
                self._by_label[metric.name] = {
                    (label,): values[name] for label, values in event.get(field, {}).items() if name in values
                }
        if event.get("spark_ms"):
            self._by_label["phase_seconds"] = {(phase,): value / 1000 for phase, value in event["spark_ms"].items()}

    def text(self) -> str:
        """Prometheus' text form."""
        return _text_of([self])

    def families(self) -> dict[str, tuple[JobMetric, list[str]]]:
        """The declaration and the lines of each metric that has values, by name."""
        with self._lock:
            plain = self._totals | self._gauges
            labelled = {name: dict(values) for name, values in self._by_label.items()}
        families: dict[str, tuple[JobMetric, list[str]]] = {}
        for name in (*self._declared, *sorted(set(plain) - set(self._declared))):
            metric = self._declared.get(name) or JobMetric(
                name, "counter" if name.endswith("_total") else "gauge", "", ""
            )
            lines = []
            if name in plain:
                lines.append(self._format_line(name, (), (), plain[name]))
            lines += [
                self._format_line(name, metric.labels, labels, value)
                for labels, value in labelled.get(name, {}).items()
            ]
            if lines:
                families[name] = metric, lines
        return families

    def _format_line(self, name: str, labels: tuple[str, ...], values: tuple[str, ...], value: float) -> str:
        named = (*self._origin, *zip(labels, values, strict=True))
        pairs = ",".join(f'{label}="{_escape_label(label_value)}"' for label, label_value in named)
        return f"{PREFIX}{name}{{{pairs}}} {_format_number(value)}\n"


class JoinedNumbers:
    """The numbers of several runs."""

    def __init__(self) -> None:
        self._all: list[JobNumbers] = []

    def add(self, numbers: JobNumbers) -> None:
        """Show these, too."""
        self._all.append(numbers)

    def text(self) -> str:
        """Prometheus' text form."""
        return _text_of(list(self._all))


def _text_of(numbers: Iterable[JobNumbers]) -> str:
    """All values of a metric stand together, as Prometheus' text form demands."""
    together: dict[str, tuple[JobMetric, list[str]]] = {}
    for run in numbers:
        for name, (metric, lines) in run.families().items():
            together.setdefault(name, (metric, []))[1].extend(lines)
    return "".join(
        f"# HELP {PREFIX}{name} {_escaped_help(metric.help)}\n# TYPE {PREFIX}{name} {metric.kind}\n" + "".join(lines)
        for name, (metric, lines) in together.items()
    )


def _escape_label(label_value: str) -> str:
    return label_value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped_help(help_text: str) -> str:
    return help_text.replace("\\", "\\\\").replace("\n", "\\n")


def _format_number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1 << 53 else repr(float(value))


class Exporter:
    """Serves ``GET /metrics`` from a thread.

    Args:
        host: the address to listen on.
        port: of it.
        numbers: what to show.

    Raises:
        Fatal: the address can't be had.
    """

    def __init__(self, host: str, port: int, numbers: JobNumbers | JoinedNumbers) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_metrics_path = self.path.split("?")[0] in ("/metrics", "/metrics/")
                body = (numbers.text() if is_metrics_path else "GET /metrics\n").encode()
                self.send_response(200 if is_metrics_path else 404)
                self.send_header("Content-Type", CONTENT_TYPE if is_metrics_path else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Log nothing: one line for each scrape is of no use."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise Fatal(
                f"metrics.port {port} of {host} can't be had ({error.strerror}): choose another one, or 0 for none"
            ) from error
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
