"""The batches that are traced and their records' headers; no trace and no header where tracing is off."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from connectors.errors import ConfigInvalid
from worker.host.delivery.commits import CommitUnit
from worker.host.options import WORKER
from worker.host.tracing import BatchTraces, Tracing, make_tracing
from worker.protocol import HostTaskId, TaskStats

TASK = HostTaskId("orders", 3)


def tracing(ratio: float = 1.0, *, headers: bool = True) -> tuple[Tracing, InMemorySpanExporter]:
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider, ratio, headers=headers), exporter


def test_a_batch_ends_with_its_acknowledgement() -> None:
    traced, exporter = tracing()
    traces, stats, unit = BatchTraces(), TaskStats(TASK), CommitUnit()
    traces.begin(traced, TASK, stats, 0.5, 2)
    (first, second) = traces.headers("t", [[], [("traceparent", b"mine")]], 2) or ()
    assert (list(second), [name for name, _ in first]) == ([("traceparent", b"mine")], ["traceparent"])
    (same, _) = traces.headers("t", None, 2) or ()
    assert same == first
    stats.convert_s += 0.25
    traces.delivered(unit)
    assert [span.name for span in exporter.get_finished_spans()] == ["poll", "convert"]
    traces.acknowledged(CommitUnit())
    traces.acknowledged(unit)
    traces.acknowledged(unit)
    *_, produce, batch = exporter.get_finished_spans()
    assert (produce.name, batch.name, produce.status.is_ok) == ("produce", "batch", True)
    assert produce.context is not None
    assert first[0][1] == f"00-{produce.context.trace_id:032x}-{produce.context.span_id:016x}-01".encode()


def test_spans_of_lost_batches_fail_with_the_reason() -> None:
    traced, exporter = tracing()
    traces = BatchTraces()
    traces.begin(traced, TASK, TaskStats(TASK), 0, 1)
    traces.delivered(CommitUnit())
    traces.begin(traced, TASK, TaskStats(TASK), 0, 1)
    traces.lost("the task ended")
    failed = [span for span in exporter.get_finished_spans() if span.name == "batch"]
    assert [span.status.description for span in failed] == ["the task ended"] * 2


def test_sampling_and_headers_can_be_turned_down() -> None:
    traced, exporter = tracing(0.0)
    traces, headers = BatchTraces(), [[("a", b"b")]]
    traces.begin(traced, TASK, TaskStats(TASK), 0, 1)
    assert traces.headers("t", headers, 1) is headers  # type: ignore[arg-type]
    traced, exporter = tracing(headers=False)
    traces.begin(traced, TASK, TaskStats(TASK), 0, 1)
    assert traces.headers("t", None, 1) is None
    traces.begin(traced, TASK, TaskStats(TASK), 0, 0)  # offsets only
    assert traces.current is None
    assert len(exporter.get_finished_spans()) > 0


def test_options() -> None:
    assert make_tracing(WORKER.parse({}), "w", 0) is None
    with pytest.raises(ConfigInvalid, match="http://"):
        WORKER.parse({"otel.traces.endpoint": "127.0.0.1:4318"})
    with pytest.raises(ConfigInvalid, match=r"sample\.ratio"):
        WORKER.parse({"otel.traces.sample.ratio": "2"})


def test_nothing_is_imported_while_it_is_off() -> None:
    program = """
import sys, worker.host.main
from worker.host.options import WORKER
from worker.host.tracing import make_tracing
make_tracing(WORKER.parse({}), "w", 0)
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
        == "[]"
    )
