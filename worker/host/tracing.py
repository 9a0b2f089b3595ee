"""OpenTelemetry traces of batches: what the source, the transforms, the converters and Kafka each took.

Off unless ``otel.traces.endpoint`` is set; then a share of the batches is traced. A traced batch has a span ``batch`` with the
children ``poll``, ``transform``, ``convert`` and ``produce``; the last one ends when Kafka has acknowledged the batch's
records, and its context goes into their headers (W3C Trace Context: ``traceparent``), so that a consumer's spans can follow it.
A stage that works in several parts is shown as one span, as long as its parts together; the spans follow one another.
"""

from __future__ import annotations

import logging
import random
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from worker import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

    from connectors.options import Config
    from worker.host.delivery.chunk import Headers
    from worker.protocol import HostTaskId, TaskStats

_TRACEPARENT: Final = "traceparent"
_DELAY_MS: Final = 1000
_NS: Final = 1_000_000_000


def is_installed() -> bool:
    """Whether the packages of the extra ``tracing`` are there."""
    try:
        return all(find_spec(name) for name in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"))
    except ModuleNotFoundError:
        return False


def make_tracing(options: Config, worker_id: str, host: int) -> Tracing | None:
    """Return the tracing of a host's tasks, or None if traces are off. Starts a thread that sends spans.

    Args:
        options: with the worker's ``otel.*`` options; headers, certificates and timeouts come from the standard
            ``OTEL_EXPORTER_*`` environment variables.
        worker_id: of the worker.
        host: number of the host.

    Raises:
        ConfigInvalid: the extra ``tracing`` is not installed.
    """
    if not options["otel.traces.endpoint"]:
        return None
    if not is_installed():
        raise ConfigInvalid("otel.traces.endpoint needs OpenTelemetry's packages: pip install 'millrace[tracing]'")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    provider = TracerProvider(
        shutdown_on_exit=False,
        resource=Resource.create(
            {
                "service.name": options["otel.service.name"],
                "service.instance.id": worker_id,
                "service.version": __version__,
                "millrace.host": host,
            }
        ),
    )
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=options["otel.traces.endpoint"]), schedule_delay_millis=_DELAY_MS)
    )
    return Tracing(provider, options["otel.traces.sample.ratio"], headers=options["otel.traces.headers"])


class Tracing:
    """Decides which batches are traced, and makes their spans.

    Args:
        provider: where spans go.
        ratio: share of the batches that are traced.
        headers: whether records tell of their span.
    """

    def __init__(self, provider: TracerProvider, ratio: float, *, headers: bool) -> None:
        self._provider = provider
        self._tracer: Tracer = provider.get_tracer("millrace", __version__)
        self._ratio = ratio
        self._headers = headers

    def begin(self, task: HostTaskId, stats: TaskStats, poll_s: float, records: int) -> BatchTrace | None:
        """A batch of ``records`` came after ``poll_s`` seconds; None: it is not traced."""
        if random.random() >= self._ratio:  # noqa: S311 - nothing secret hangs on it
            return None
        return BatchTrace(self._tracer, task, stats, poll_s, records, headers=self._headers)

    def close(self) -> None:
        """Send what is left; blocks for some seconds at most."""
        self._provider.shutdown()


class BatchTrace:
    """The spans of one batch; made when it has come from the source."""

    def __init__(
        self, tracer: Tracer, task: HostTaskId, stats: TaskStats, poll_s: float, records: int, *, headers: bool
    ) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context

        now = time.time_ns()
        self._tracer = tracer
        self._stats = stats
        self._began = now
        self._before = (stats.transform_s, stats.convert_s)
        self._batch: Span = tracer.start_span(
            "batch",
            Context(),
            start_time=now - int(poll_s * _NS),
            attributes={
                "millrace.connector": task.connector,
                "millrace.task": task.task,
                "millrace.connector.class": stats.connector_class,
                "messaging.batch.message_count": records,
            },
        )
        self._context = set_span_in_context(self._batch, Context())
        tracer.start_span("poll", self._context, start_time=now - int(poll_s * _NS)).end(now)
        self._produce: Span = tracer.start_span(
            "produce",
            self._context,
            SpanKind.PRODUCER,
            start_time=now,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "send",
                "messaging.batch.message_count": records,
            },
        )
        self._topics: set[str] = set()
        context = self._produce.get_span_context()
        self._header = (
            (_TRACEPARENT, f"00-{context.trace_id:032x}-{context.span_id:016x}-01".encode()) if headers else None
        )

    def headers(self, topic: str, record_headers: Sequence[Headers] | None, count: int) -> Sequence[Headers] | None:
        """Headers of ``count`` records of ``topic``, with the span's context in those that have none of their own."""
        self._topics.add(topic)
        if self._header is None:
            return record_headers
        if record_headers is None:
            return [[self._header]] * count
        return [
            headers_of_record
            if any(name == _TRACEPARENT for name, _ in headers_of_record)
            else [*headers_of_record, self._header]
            for headers_of_record in record_headers
        ]

    def delivered(self) -> None:
        """All records are on their way."""
        at = self._began
        for name, before, now in (
            ("transform", self._before[0], self._stats.transform_s),
            ("convert", self._before[1], self._stats.convert_s),
        ):
            if now > before:
                span = self._tracer.start_span(name, self._context, start_time=at)
                at += int((now - before) * _NS)
                span.end(at)
        self._produce.set_attribute("messaging.destination.name", ",".join(sorted(self._topics)))

    def acknowledged(self) -> None:
        """Kafka has all of them."""
        self._produce.end()
        self._batch.end()

    def lost(self, reason: str) -> None:
        """They are given up; they may come again in another batch."""
        from opentelemetry.trace import Status, StatusCode

        for span in (self._produce, self._batch):
            span.set_status(Status(StatusCode.ERROR, reason))
            span.end()


class BatchTraces:
    """The traces of a task's batches that Kafka has not acknowledged yet, by the identity of their units."""

    def __init__(self) -> None:
        #: Of the batch that is being delivered.
        self.current: BatchTrace | None = None
        self._waiting: dict[int, BatchTrace] = {}

    def begin(self, tracing: Tracing | None, task: HostTaskId, stats: TaskStats, poll_s: float, records: int) -> None:
        """A batch has come; without ``tracing`` nothing happens."""
        if self.current is not None:
            self.current.lost("its delivery failed")
        self.current = None if tracing is None or not records else tracing.begin(task, stats, poll_s, records)

    def delivered(self, unit: object) -> None:
        """All records of the current batch are on their way, as ``unit``."""
        if self.current is not None:
            self.current.delivered()
            self._waiting[id(unit)] = self.current
            self.current = None

    def acknowledged(self, unit: object) -> None:
        """Kafka has a unit."""
        if self._waiting and (trace := self._waiting.pop(id(unit), None)) is not None:
            trace.acknowledged()

    def headers(self, topic: str, record_headers: Sequence[Headers] | None, count: int) -> Sequence[Headers] | None:
        """The headers of a run of records of the current batch; see ``BatchTrace.headers``."""
        return record_headers if self.current is None else self.current.headers(topic, record_headers, count)

    def lost(self, reason: str) -> None:
        """Everything that was on its way is given up."""
        for trace in (*self._waiting.values(), *([self.current] if self.current is not None else ())):
            trace.lost(reason)
        self._waiting.clear()
        self.current = None
