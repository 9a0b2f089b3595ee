"""The console's memory of a worker: who changed what, and the numbers that somebody on call looks at.

Both are bounded, in memory, and gone with the worker. The audit log and ``/metrics`` are for keeping.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Where a request has the connector that its body names.
SUBJECT: Final = web.RequestKey("subject", str)
#: Changes that a worker remembers.
MOST_CHANGES: Final = 1000
#: Samples, and seconds between two: half an hour.
MOST_SAMPLES: Final = 360
SAMPLE_S: Final = 5
_LONGEST: Final = 300
#: What a request means, by its method and the end of its path; {} is the connector.
_MEANINGS: Final = {
    ("PUT", "pause"): "paused",
    ("PUT", "resume"): "resumed",
    ("PUT", "stop"): "stopped",
    ("POST", "restart"): "restarted",
    ("PUT", "config"): "configuration replaced",
    ("PATCH", "config"): "configuration changed",
    ("PATCH", "offsets"): "offsets changed",
    ("DELETE", "offsets"): "offsets forgotten",
    ("PUT", "reset"): "topics forgotten",
    ("POST", "snapshots"): "snapshot asked for",
    ("POST", "savepoints"): "savepoint asked for",
    ("POST", "replay"): "replay asked for",
    ("POST", "redrive"): "dead letter sent again",
    ("PUT", "drain"): "worker drained",
    ("PUT", "refresh"): "plugins looked for",
}
_STEERED: Final = {"pause": "paused", "resume": "resumed", "cancel": "ended"}
#: Ends of the paths of requests that change nothing, though not everybody may ask them.
_TRIALS: Final = frozenset({"validate", "check", "plan", "preview", "diff", "propose", "read", "tables"})


class Trail:
    """The last changes that were asked of a worker, also those that were refused."""

    def __init__(self) -> None:
        self._changes: deque[dict[str, Any]] = deque(maxlen=MOST_CHANGES)

    def add(
        self, at: float, user: str, auth: str, address: str, method: str, path: str, status: int, subject: str | None
    ) -> None:
        """Remember a change.

        Args:
            at: seconds since 1970.
            user: who has asked for it.
            auth: how that is known.
            address: from where.
            method: the request's.
            path: the request's, as it was sent.
            status: the answer's.
            subject: the connector that the body names, or None.
        """
        connector, action = describe_request(method, path)
        connector = connector or subject
        if status == 201 and method == "PUT" and action == "configuration replaced":
            action = "created"
        self._changes.append(
            {
                "at_ms": int(at * 1000),
                "user": user[:_LONGEST],
                "auth": auth,
                "address": address,
                "method": method,
                "path": path[:_LONGEST],
                "connector": connector,
                "action": action,
                "status": status,
            }
        )

    def changes(self) -> list[dict[str, Any]]:
        """All of them, the newest first."""
        return list(reversed(self._changes))


def is_change(method: str, path: str) -> bool:
    """Whether a request may change something; several only try out what a change would do. Pure.

    Args:
        method: the request's.
        path: that of its operation, with parameters as they are declared: a connector may have any name.
    """
    return method not in {"GET", "HEAD"} and path.rstrip("/").rpartition("/")[2] not in _TRIALS


def describe_request(method: str, path: str) -> tuple[str | None, str]:
    """The connector that a request is about, and in words what it does. Pure."""
    segments = [unquote(segment) for segment in path.strip("/").split("/")]
    if segments[:1] == ["console"] and segments[1:2] == ["connectors"]:
        segments = segments[1:]
    connector = segments[1][:_LONGEST] if segments[0] == "connectors" and len(segments) > 1 else None
    if connector is not None and segments[2:3] == ["snapshots"] and len(segments) > 3:
        return connector, f"snapshot {_STEERED.get(segments[-1], 'forgotten')}"
    # Behind a connector's name, or without any other name.
    meant = len(segments) > 2 if connector is not None else segments[0] == "admin" and segments[1:2] != ["loggers"]
    action = _MEANINGS.get((method, segments[-1])) if meant else None
    if action is None and segments == ["connectors"]:
        action = "created"
    if action is None and connector is not None and len(segments) == 2 and method == "DELETE":
        action = "deleted"
    if action is not None and connector is not None and segments[2:3] == ["tasks"]:
        action = f"task {segments[3]} {action}"
    if action is None and segments[0] == "rules" and len(segments) == 2:
        action = f"rules {segments[1]} {'deleted' if method == 'DELETE' else 'saved'}"[:_LONGEST]
    return connector, action or f"{method} {path}"[:_LONGEST]


def merge_changes(reports: Iterable[tuple[str, Sequence[Mapping[str, Any]]]], max_changes: int) -> list[dict[str, Any]]:
    """Changes of several workers, the newest first. Pure."""
    changes = [{**change, "worker_id": worker} for worker, report in reports for change in report]
    return sorted(changes, key=lambda change: -change["at_ms"])[:max_changes]


class Samples:
    """The last numbers of a worker, one set for each five seconds."""

    def __init__(self) -> None:
        self._samples: deque[dict[str, Any]] = deque(maxlen=MOST_SAMPLES)
        self._written: dict[Any, int] = {}
        self._before: tuple[float, float] | None = None

    def add(
        self, at: float, tasks: Mapping[Any, tuple[int, str, float]], cpu_s: float, rss: int, delay_s: float
    ) -> None:
        """Take the numbers of now in.

        Args:
            at: seconds since 1970.
            tasks: task -> records written since it started, state, milliseconds behind (-1: not known).
            cpu_s: seconds on the CPU of all of the worker's processes so far.
            rss: bytes in memory of all of them.
            delay_s: the longest time that something waited for its turn.
        """
        written = {task: count for task, (count, _, _) in tasks.items()}
        grown = sum(max(0, count - self._written.get(task, 0)) for task, count in written.items())
        before, self._before, self._written = self._before, (at, cpu_s), written
        elapsed = at - before[0] if before is not None else 0.0
        lags = [lag for _, state, lag in tasks.values() if lag >= 0 and state == "RUNNING"]
        self._samples.append(
            {
                "at": round(at / SAMPLE_S) * SAMPLE_S,
                "rate": round(grown / elapsed, 2) if elapsed > 0 else None,
                "lag_s": round(max(lags) / 1000, 3) if lags else None,
                "running": sum(state == "RUNNING" for _, state, _ in tasks.values()),
                "failed": sum(state == "FAILED" for _, state, _ in tasks.values()),
                "cores": round(max(0.0, cpu_s - before[1]) / elapsed, 3)
                if before is not None and elapsed > 0
                else None,
                "rss": rss,
                "delay_s": round(delay_s, 4),
            }
        )

    def all(self) -> list[dict[str, Any]]:
        """The samples, the oldest first."""
        return list(self._samples)
