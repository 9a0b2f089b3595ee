"""How far the stream is behind, as numbers and as text: heartbeats by stage, and every table. Pure but for the clock.

Memory is bounded: the number of remembered heartbeats and tables has a limit, however late they are.
"""

from __future__ import annotations

import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

WRITE_SECONDS: Final = "mysql_heartbeat_write_seconds"
READ_SECONDS: Final = "mysql_heartbeat_read_seconds"
PROCESS_SECONDS: Final = "mysql_heartbeat_process_seconds"
DELIVER_SECONDS: Final = "mysql_heartbeat_deliver_seconds"
TOTAL_SECONDS: Final = "mysql_heartbeat_total_seconds"
AGE_SECONDS: Final = "mysql_heartbeat_age_seconds"
LAG_SECONDS: Final = "mysql_lag_seconds"
LAG_BYTES: Final = "mysql_lag_bytes"
SNAPSHOT_RUNNING: Final = "mysql_snapshot_running"

#: Name -> (kind, help), for ``SourceConnector.metrics``.
METRICS: Final[dict[str, tuple[str, str]]] = {
    WRITE_SECONDS: ("gauge", "How long the source took to commit the last heartbeat."),
    READ_SECONDS: ("gauge", "From the commit of the last heartbeat until it was read from the binlog."),
    PROCESS_SECONDS: ("gauge", "From reading the last heartbeat until everything before it was handed to the runtime."),
    DELIVER_SECONDS: (
        "gauge",
        "From handing over until Kafka had all before the last heartbeat and the offset was saved.",
    ),
    TOTAL_SECONDS: ("gauge", "From writing the last heartbeat into the source until it was acknowledged by Kafka."),
    AGE_SECONDS: ("gauge", "How old the youngest acknowledged heartbeat is; grows while none arrives."),
    LAG_SECONDS: ("gauge", "Age of the last change read from the binlog while there is more to read; 0 at its end."),
    LAG_BYTES: ("gauge", "Bytes of the server's binlogs behind the place that was read."),
    SNAPSHOT_RUNNING: ("gauge", "Snapshots that the task works at; those that are paused do not count."),
}

_MOST_BEATS: Final = 4096
_MOST_TABLES: Final = 1000
#: Bytes after which the shares of the tables count half.
_HALVE_BYTES: Final = 256 << 20
#: Behind less than this counts as not behind: it is the time that reading takes.
_CURRENT_S: Final = 0.001
#: How long Kafka Connect's default leaves between two saves of offsets; what is seen to be longer counts instead.
_SAVED_EVERY_US: Final = 60_000_000
_LONGEST_SAVE_US: Final = 600_000_000


class Pending(msgspec.Struct):
    """A heartbeat on its way; times in microseconds since 1970, 0: not yet, or unknown."""

    sent: int
    stored: int = 0
    read: int = 0
    yielded: int = 0
    #: Its position in the binlog, as the stream names it.
    position: Any = None


class HeartbeatLatency:
    """Times of heartbeats by stage.

    Call ``sent`` and ``stored`` where they are written (one task only), ``read`` when the stream meets one, ``yielded`` after
    each batch that is handed over, ``acknowledged`` in the task's ``committed``.

    Args:
        late_s: a heartbeat that has not arrived after this number of seconds is late.
        clock: microseconds since 1970.
    """

    def __init__(self, late_s: float = 60.0, clock: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._late_us = int(late_s * 1_000_000)
        self._clock = clock
        self._pending: deque[Pending] = deque()
        self._numbers: dict[str, float] = {}
        self._started = clock()
        self._saved_at = self._started
        self._save_us = _SAVED_EVERY_US
        #: Why none is written at the moment; the writer sets it.
        self.problem = ""
        #: When the youngest acknowledged, read and sent ones were sent; 0: none.
        self.last_acknowledged = 0
        self.last_read = 0
        self.last_sent = 0

    def sent(self, sent_us: int) -> None:
        """The writer is about to write it."""
        self.last_sent = sent_us
        self._add_beat(Pending(sent_us))

    def stored(self, sent_us: int) -> None:
        """The source has committed it."""
        now = self._clock()
        self._numbers[WRITE_SECONDS] = _to_seconds(now - sent_us)
        for beat in reversed(self._pending):
            if beat.sent == sent_us:
                # The stream may have met it before the answer to the statement came.
                beat.stored = min(now, beat.read or now)
                break

    def read(self, sent_us: int, position: Any = None) -> None:
        """The stream has met it, at ``position`` (anything ``acknowledged`` can judge; shown as text).

        An older one is ignored.
        """
        if sent_us <= self.last_read:
            return
        self.last_read = sent_us
        now = self._clock()
        # Those before it that were not read never got into the binlog: they failed, or the row was overwritten meanwhile.
        gone = [beat for beat in self._pending if not beat.read and beat.sent < sent_us]
        for beat in gone:
            self._pending.remove(beat)
        pending_beat = next((beat for beat in self._pending if beat.sent == sent_us), None)
        if pending_beat is None:
            pending_beat = Pending(sent_us)
            self._add_beat(pending_beat)
        pending_beat.read, pending_beat.position = now, position
        self._numbers[READ_SECONDS] = _to_seconds(now - (pending_beat.stored or sent_us))

    def yielded(self) -> None:
        """Everything read so far has been handed to the runtime."""
        now = self._clock()
        for beat in reversed(self._pending):
            if beat.yielded:
                break
            if beat.read:
                beat.yielded = now
                self._numbers[PROCESS_SECONDS] = _to_seconds(now - beat.read)

    def acknowledged(self, reached: Callable[[Any], bool]) -> None:
        """Positions have become durable in Kafka; ``reached`` tells whether a ``position`` is among what they cover."""
        last: Pending | None = None
        now = self._clock()
        self._saved_at, before = now, self._saved_at
        self._save_us = min(_LONGEST_SAVE_US, now - before)
        while self._pending and self._pending[0].yielded and reached(self._pending[0].position):
            last = self._pending.popleft()
        if last is not None:
            self.last_acknowledged = last.sent
            self._numbers[DELIVER_SECONDS] = _to_seconds(now - last.yielded)
            self._numbers[TOTAL_SECONDS] = _to_seconds(now - last.sent)

    def restarted(self) -> None:
        """The stream starts again from the saved position: what was read but not acknowledged is read again."""
        for beat in self._pending:
            beat.read = beat.yielded = 0
        self.last_read = self.last_acknowledged

    def numbers(self) -> dict[str, float]:
        """The stages' seconds by metric name; empty until there was a heartbeat."""
        if not self.last_sent and not self.last_read:
            return {}
        return {**self._numbers, AGE_SECONDS: self.age_s()}

    def age_s(self) -> float:
        """The age of the newest acknowledged heartbeat in seconds; before the first one, the time since the start."""
        return _to_seconds(
            self._clock() - (self.last_acknowledged or min(self._started, self.last_sent or self._started))
        )

    def where_last_seen(self) -> str:
        """Where a late heartbeat is, in a sentence; "" while none is late."""
        now = self._clock()
        for beat in self._pending:
            # What is handed over waits for the next save of offsets by rule.
            allowed = self._late_us + (max(self._save_us, _SAVED_EVERY_US) if beat.yielded else 0)
            if now - beat.sent > allowed:
                return _describe_beat(beat, now, self.problem)
            if not beat.yielded:
                break
        if self.problem and self.age_s() * 1_000_000 > self._late_us:
            return f"No heartbeat is written: {self.problem}"
        return ""

    def saved(self) -> dict[str, Any]:
        """Return the members of an offset that keep the latency for REST: flat and fit for JSON."""
        members: dict[str, Any] = {
            "sent_us": self.last_sent,
            "read_us": self.last_read,
            "acknowledged_us": self.last_acknowledged,
            "last_seen": self.where_last_seen(),
        }
        for name, seconds in self._numbers.items():
            members[name.removeprefix("mysql_heartbeat_").removesuffix("_seconds") + "_s"] = round(seconds, 6)
        return members

    def _add_beat(self, beat: Pending) -> None:
        if len(self._pending) >= _MOST_BEATS:
            self._pending.pop()  # the oldest ones tell how late it is
        self._pending.append(beat)


def _describe_beat(beat: Pending, now: int, problem: str) -> str:
    age = f"The heartbeat of {_format_time(beat.sent)} is {_to_seconds(now - beat.sent):.1f} s old"
    if not beat.read:
        if not beat.stored:
            return f"{age}: the source has not taken it" + (f" ({problem})" if problem else "")
        return (
            f"{age}: the source committed it at {_format_time(beat.stored)}, the binlog reader has not met it yet. The reader "
            "is behind, its connection hangs, or the heartbeat table is not written to the binlog (binlog_do_db, "
            "binlog_ignore_db)"
        )
    where = f"read from the binlog at {_format_time(beat.read)}" + (
        f" ({beat.position})" if beat.position is not None else ""
    )
    if not beat.yielded:
        return f"{age}: {where}, not yet handed to the runtime: decoding is behind, or Kafka takes records too slowly"
    return (
        f"{age}: {where}, handed over at {_format_time(beat.yielded)}, not yet acknowledged: Kafka is slow or away, or offsets "
        "are saved seldom (offset.flush.interval.ms)"
    )


def heartbeat_body(saved: Mapping[str, Any] | None, now_us: int) -> dict[str, Any] | None:
    """The ``heartbeat`` of ``GET /connectors/NAME/lag`` from what ``HeartbeatLatency.saved`` gave; None without one. Pure."""
    if not saved or not (saved.get("sent_us") or saved.get("read_us")):
        return None
    acknowledged = int(saved.get("acknowledged_us") or 0)
    return {
        "last_sent_ts": _to_ms(saved.get("sent_us")),
        "last_read_ts": _to_ms(saved.get("read_us")),
        "last_acknowledged_ts": _to_ms(acknowledged),
        "age_s": round(_to_seconds(now_us - acknowledged), 3) if acknowledged else None,
        "stages": {name: saved.get(name) for name in ("write_s", "read_s", "process_s", "deliver_s", "total_s")},
        "last_seen": saved.get("last_seen") or None,
    }


class TableLags:
    """Per table, what the stream saw last, and which share of the binlog it is."""

    def __init__(self) -> None:
        #: The table that was seen last comes last.
        self._tables: dict[str, list[float]] = {}
        self._bytes = 0.0

    def saw(self, table: str, events: int, size: int, ts_ms: int) -> None:
        """Rows of ``table`` went by: how many, in how many bytes of the binlog, and when they were written."""
        rates = self._tables.pop(table, None)
        if rates is None:
            if len(self._tables) >= _MOST_TABLES:
                del self._tables[next(iter(self._tables))]
            rates = [0.0, 0.0]
        self._tables[table] = rates
        rates[0] += events
        rates[1] = ts_ms
        self.passed(size)

    def passed(self, size: int) -> None:
        """Bytes of the binlog went by that are no rows of a captured table."""
        self._bytes += size
        if self._bytes > _HALVE_BYTES:
            self._bytes /= 2
            for rates in self._tables.values():
                rates[0] /= 2

    def saved(self) -> str:
        """JSON text for an offset: ``{"bytes": n, "tables": {name: [events, last ts ms]}}``."""
        return msgspec.json.encode(
            {
                "bytes": int(self._bytes),
                "tables": {name: [round(events, 1), int(ts_ms)] for name, (events, ts_ms) in self._tables.items()},
            }
        ).decode()


def table_rows(
    saved_texts: Iterable[str], time_behind_s: float | None, bytes_behind: int | None
) -> list[dict[str, Any]]:
    """The ``tables`` of the lag's body from what all tasks' ``TableLags`` have saved. Pure.

    A table is as far behind as the stream is: what is waiting may hold changes of it. ``events_behind`` is an estimate from
    the table's share of the binlog so far.
    """
    table_lags: dict[str, tuple[int, float]] = {}
    for saved_json in saved_texts:
        saved = msgspec.json.decode(saved_json)
        for name, (events, ts_ms) in saved["tables"].items():
            rate = events / saved["bytes"] if saved["bytes"] else 0.0
            last, before = table_lags.get(name, (0, 0.0))
            # Every task reads the whole binlog and owns a part of the rows: their shares add up.
            table_lags[name] = (max(last, int(ts_ms)), before + rate)
    return [
        {
            "table": name,
            "time_behind_s": time_behind_s,
            "events_behind": None if bytes_behind is None else round(rate * bytes_behind),
            "last_event_ts": last or None,
        }
        for name, (last, rate) in sorted(table_lags.items())
    ]


def lag_body(
    *,
    time_behind_s: float | None,
    bytes_behind: int | None,
    tables: Sequence[Mapping[str, Any]],
    heartbeat: Mapping[str, Any] | None,
    position: Mapping[str, Any] | None,
    source_position: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The body of ``GET /connectors/NAME/lag``, in its order; the runtime puts ``connector`` before it. Pure."""
    if bytes_behind == 0 or (time_behind_s is not None and time_behind_s < _CURRENT_S):
        time_behind_s = 0.0
    return {
        "time_behind_s": None if time_behind_s is None else round(time_behind_s, 3),
        "bytes_behind": bytes_behind,
        "tables": list(tables),
        "heartbeat": heartbeat,
        "position": position,
        "source_position": source_position,
    }


def _to_seconds(microseconds: int) -> float:
    return max(0, microseconds) / 1_000_000


def _to_ms(microseconds: object) -> int | None:
    return int(microseconds) // 1000 if isinstance(microseconds, int) and microseconds else None


def _format_time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
