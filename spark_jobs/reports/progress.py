"""The events of a running job: one JSON object a line, for a supervisor, a status file and people."""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spark_jobs.kafka.ranges import Offsets


def now_text() -> str:
    """The time as in all events: UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def nest_offsets(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    """``{topic: {partition: number}}``, as Spark and JSON have it."""
    result: dict[str, dict[str, int]] = {}
    for (topic, partition), number in sorted(offsets.items()):
        result.setdefault(topic, {})[str(partition)] = number
    return result


class EventWriter:
    """Writes events; safe to call from several threads.

    Args:
        stream: where they go; None: nowhere.
        scrub: removes secrets from a string.
        on_event: called with each event, after it was written.
        on_broken: called once when the stream has no reader any more.
        origin: further fields of every event, such as the sink of a flow that has several.
    """

    def __init__(
        self,
        job: str,
        stream: IO[str] | Human | None,
        *,
        scrub: Callable[[str], str] = lambda text: text,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        on_broken: Callable[[], None] | None = None,
        origin: Mapping[str, str] | None = None,
    ) -> None:
        self._job = job
        self._origin = dict(origin or {})
        self._stream = stream
        self._scrub = scrub
        self._on_event = on_event
        self.on_broken = on_broken
        self._lock = threading.Lock()

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event."""
        data = {"event": event, "job": self._job, "time": now_text(), **fields, **self._origin}
        # Before the quotes and braces of JSON stand around them: what a secret is taken for must not end in those.
        event_line = json.dumps(
            _scrub_value(json.loads(json.dumps(data, default=str)), self._scrub), separators=(",", ":")
        )
        with self._lock:
            if self._stream is not None:
                try:
                    self._stream.write(event_line + "\n")
                    self._stream.flush()
                except (BrokenPipeError, ValueError, OSError):
                    self._stream = None
                    if self.on_broken is not None:
                        self.on_broken()
        if self._on_event is not None:
            self._on_event(json.loads(event_line))


def _scrub_value(value: Any, scrub: Callable[[str], str]) -> Any:
    """A value of JSON with its strings scrubbed."""
    match value:
        case str():
            return scrub(value)
        case list():
            return [_scrub_value(item, scrub) for item in value]
        case dict():
            return {scrub(name): _scrub_value(item, scrub) for name, item in value.items()}
    return value


class Human:
    """A stream for ``EventWriter`` that prints what people want to see instead of JSON."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out if out is not None else sys.stderr
        self._quiet_until = 0.0

    def write(self, line: str) -> int:
        """Print one event."""
        event = json.loads(line)
        if event["event"] == "progress" and not event.get("rows"):
            if time.monotonic() < self._quiet_until:
                return 0
            self._quiet_until = time.monotonic() + 60
        print(f"millrace: {describe_event(event)}", file=self._out)
        return len(line)

    def flush(self) -> None:
        """As streams do."""
        self._out.flush()


def describe_event(event: Mapping[str, Any]) -> str:
    """An event in words."""
    kind, job = event["event"], event["job"]
    if kind == "progress":
        total = event.get("lag_total")
        lag = "lag unknown" if total is None else f"lag {total}"
        if not event.get("rows"):
            trouble = event.get("retrying")
            if trouble:
                return f"{job}: {trouble['part']}: retrying since {trouble['since']}: {trouble['error']}; {lag}"
            if event.get("busy"):
                return f"{job}: a batch is under way; {lag}"
            return f"{job}: {'records are waiting' if total else 'no new records'}; {lag}"
        return (
            f"{job}: batch {event['batch']}: {event['rows']} records in {event['duration_ms'] / 1000:.1f} s "
            f"({event['rows_per_s']:.0f}/s), {event['written']} written, {lag}"
        )
    if kind == "started":
        begin = "from its checkpoint" if event.get("resumed") else f"from {event.get('starting_offsets')}"
        return f"{job}: started {begin} (process {event['pid']}, {event['master']}, {event['guarantee']})"
    if kind == "retrying":
        subject = f"batch {event['batch']}" if event.get("part", "batch") == "batch" else event["part"]
        return f"{job}: {subject}: try {event['attempt']} failed, next in {event['pause_s']:.1f} s: {event['error']}"
    if kind == "schema_change":
        where = f"table {event['table']}" + (f", column {event['column']}" if event["column"] else "")
        return f"{job}: {event['change']}: {where}: {event['effect']} (policy {event['policy']})"
    if kind == "failed":
        return f"{job}: failed: {event['error']}"
    if kind == "stopped":
        return f"{job}: stopped ({event['reason']}) after batch {event['batch']}"
    details = ", ".join(f"{name} {value}" for name, value in event.items() if name not in ("event", "job", "time"))
    return f"{job}: {kind}: {details}"


def compute_lags(position: Offsets, ends: Mapping[tuple[str, int], int]) -> Offsets:
    """Records not yet consumed, by partition; only of partitions whose end is known."""
    return {where: max(0, end - position.get(where, 0)) for where, end in ends.items() if where in position}
