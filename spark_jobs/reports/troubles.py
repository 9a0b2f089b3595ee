"""The retries of a job at the moment: since when, and why. Shown by events, status, metrics and REST until they succeed."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.reports.progress import now_text

if TYPE_CHECKING:
    from spark_jobs.reports.progress import EventWriter

_log = logging.getLogger(__name__)
#: Parts of a job that are retried.
START: Final = "start"
BATCH: Final = "batch"
IDLE: Final = "upkeep"
QUERY: Final = "query"
KAFKA: Final = "lag"
#: The sink waits for another sink of its flow.
SINKS: Final = "sinks"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault that has not passed yet.

    Attributes:
        part: what is retried.
        since: when it failed first; UTC, as in events.
        attempts: how often it has failed.
        error: why it failed last.
    """

    part: str
    since: str
    attempts: int
    error: str


class Troubles:
    """The troubles of one run, one per part; may be used from any thread."""

    def __init__(self, events: EventWriter) -> None:
        self._events = events
        self._lock = threading.Lock()
        self._open: dict[str, Trouble] = {}

    def failed(
        self, part: str, error: BaseException, *, batch: int | None, pause_s: float, quiet: bool = False
    ) -> Trouble:
        """Record a failure that will be retried, log it, and emit ``retrying``.

        Args:
            part: what failed.
            error: why.
            batch: the batch that it concerns, or the last one done.
            pause_s: the time until the retry.
            quiet: log and emit only the first failure of a row.
        """
        with self._lock:
            before = self._open.get(part)
            trouble = Trouble(
                part, before.since if before else now_text(), before.attempts + 1 if before else 1, str(error)
            )
            self._open[part] = trouble
        if before is None or not quiet:
            _log.warning(
                "%s: attempt %d failed, retrying since %s, next in %.1f s: %s",
                part,
                trouble.attempts,
                trouble.since,
                pause_s,
                error,
            )
            self._events.emit(
                "retrying",
                part=part,
                batch=batch,
                attempt=trouble.attempts,
                since=trouble.since,
                pause_s=round(pause_s, 3),
                error=trouble.error,
            )
        return trouble

    def passed(self, part: str) -> None:
        """The part works."""
        with self._lock:
            trouble = self._open.pop(part, None)
        if trouble is not None:
            _log.warning("%s: works again after %d failed attempts since %s", part, trouble.attempts, trouble.since)

    def current(self) -> dict[str, Any] | None:
        """The oldest open trouble as events show it; None if all is well."""
        with self._lock:
            oldest = min(self._open.values(), key=lambda trouble: trouble.since, default=None)
        return (
            None
            if oldest is None
            else {"part": oldest.part, "since": oldest.since, "attempts": oldest.attempts, "error": oldest.error}
        )
