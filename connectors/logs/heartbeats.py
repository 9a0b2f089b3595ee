"""Heartbeats: they show that an input, or a host, is quiet and not broken.

Two kinds. The task looks at its inputs: a file that it can read, a partition that answers, an address that is open. And a host
writes lines now and then (``heartbeat.line``) that come the way of all of its lines. Pure but for the clock.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.api import Batch, Position, SourceRecord
from connectors.linear_regex import compile_pattern
from connectors.logs.config import HEARTBEAT, HEARTBEAT_LINE, HEARTBEAT_PREFIX, PREFIX
from connectors.logs.metrics import HEARTBEAT_AGE, HOST_HEARTBEAT_AGE
from connectors.schema import INT64, OPTIONAL_INT64, STRING, struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from connectors.api import TaskMetrics

#: Pairs of host and input that a task remembers the heartbeat lines of; those of further ones are left out.
_MOST_HOSTS: Final = 10_000
#: How often ages are reported, seconds.
_REPORT_S: Final = 5.0
_KEY: Final = struct("io.millrace.logs.HeartbeatKey", {"serverName": STRING, "host": STRING, "input": STRING})
_VALUE: Final = struct(
    "io.millrace.logs.Heartbeat",
    {"ts_ms": INT64, "host": STRING, "input": STRING, "kind": STRING, "last_line_ts_ms": OPTIONAL_INT64},
    version=1,
)


class Look(NamedTuple):
    """An input as its task has found it.

    Attributes:
        name: of the input: a file, a topic, an address.
        partition: the source partition.
        offset: the position behind all that was yielded of it.
        seen_ms: when it was last found in order, milliseconds since 1970.
    """

    name: str
    partition: Position
    offset: Position
    seen_ms: int


class _Host:
    """The last heartbeat line of a host in an input."""

    __slots__ = ("new", "partition", "seen_ms")

    def __init__(self, partition: Position, seen_ms: int) -> None:
        self.partition = partition
        self.seen_ms = seen_ms
        #: Whether it came after the last record of it.
        self.new = True


class LogHeartbeats:
    """The heartbeats of one task.

    Args:
        config: the connector's options.
        metrics: where ages are reported.
        host: the host of the inputs that the task looks at.
        clock: milliseconds since 1970.

    Attributes:
        is_line: line -> truthy if it is a heartbeat of its host; None if no line is.
        topic: where records go.
        signals: source partition and offset, and a time in µs since 1970 -> further records that say the same for each table;
            None for none.
    """

    signals: Callable[[tuple[Position, Position], int], list[SourceRecord]] | None = None

    def __init__(
        self,
        config: Mapping[str, Any],
        metrics: TaskMetrics,
        host: str,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._metrics = metrics
        self._host = host
        self._clock = clock
        self._server: str = config[PREFIX]
        self._interval_ms: int = config[HEARTBEAT]
        self.topic = f"{config[HEARTBEAT_PREFIX]}.{self._server}"
        pattern = config[HEARTBEAT_LINE]
        self.is_line: Callable[[str], Any] | None = compile_pattern(pattern).search if pattern else None
        self._hosts: dict[tuple[str, str], _Host] = {}
        #: Input -> when its last line came.
        self._last_lines: dict[str, int] = {}
        #: Input -> when the task started to look at it.
        self._since: dict[str, int] = {}
        self._next_record = clock() + self._interval_ms
        self._next_report = 0
        self._last_beat = 0

    def add_line(self, host: str, name: str, partition: Position, timestamp_ms: int) -> None:
        """A heartbeat line has come.

        Args:
            host: of the line.
            name: of its input.
            partition: the source partition.
            timestamp_ms: the line's own time, milliseconds since 1970; one that is ahead counts as now.
        """
        seen_ms = min(timestamp_ms, self._clock())
        line = self._hosts.get((host, name))
        if line is not None:
            line.partition, line.seen_ms, line.new = partition, max(line.seen_ms, seen_ms), True
        elif len(self._hosts) < _MOST_HOSTS:
            self._hosts[host, name] = _Host(partition, seen_ms)

    def add_lines(self, name: str) -> None:
        """Lines of an input have come."""
        self._last_lines[name] = self._clock()

    @property
    def due(self) -> bool:
        """Whether ``beat`` has something to do: ages to report, or records to make."""
        now = self._clock()
        return now >= self._next_report or now < self._last_beat

    def beat(self, looks: Iterable[Look]) -> Batch | None:
        """Report ages, and make the records that are due; None if there are none.

        Args:
            looks: of every input of the task.
        """
        now = self._last_beat = self._clock()
        # A clock that was set back must not delay them.
        self._next_record = min(self._next_record, now + self._interval_ms)
        self._next_report = now + int(_REPORT_S * 1000)
        inputs = list(looks)
        self._report_inputs(inputs, now)
        if not self._interval_ms or now < self._next_record:
            if self._interval_ms:
                self._next_report = min(self._next_report, self._next_record)
            return None
        self._next_record = now + self._interval_ms
        self._next_report = min(self._next_report, self._next_record)
        records = [
            self._make_record(look.partition, look.offset, self._host, look.name, look.seen_ms, "input")
            for look in inputs
            if now - look.seen_ms <= self._interval_ms
        ]
        offsets = {str(look.partition): look.offset for look in inputs}
        for (host, name), line in self._hosts.items():
            offset = offsets.get(str(line.partition))
            if line.new and offset is not None:
                line.new = False
                records.append(self._make_record(line.partition, offset, host, name, line.seen_ms, "line"))
        if self.signals is not None and inputs and len(records) >= len(inputs):  # all of them are in order
            look = inputs[0]
            records += self.signals((look.partition, look.offset), min(read.seen_ms for read in inputs) * 1000)
        return Batch(records) if records else None

    def _report_inputs(self, looks: list[Look], now: int) -> None:
        oldest_seen: dict[str, int] = {}
        for look in looks:  # an input of several partitions is as old as the oldest of them
            oldest_seen[look.name] = min(
                oldest_seen.get(look.name, now), look.seen_ms or self._since.setdefault(look.name, now)
            )
        for name, seen_ms in oldest_seen.items():
            self._metrics.set(HEARTBEAT_AGE, (now - seen_ms) / 1000, {"host": self._host, "input": name})
        for (host, name), line in self._hosts.items():
            self._metrics.set(HOST_HEARTBEAT_AGE, (now - line.seen_ms) / 1000, {"host": host, "input": name})

    def _make_record(
        self, partition: Position, offset: Position, host: str, name: str, seen_ms: int, kind: str
    ) -> SourceRecord:
        value = {
            "ts_ms": seen_ms,
            "host": host,
            "input": name,
            "kind": kind,
            "last_line_ts_ms": self._last_lines.get(name),
        }
        key = {"serverName": self._server, "host": host, "input": name}
        return SourceRecord(partition, offset, self.topic, value, _VALUE, key, _KEY, None, (), seen_ms)
