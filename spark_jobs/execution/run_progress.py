"""How far a run is: batches that are committed, the lag, and the events that tell of them."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.reports import troubles
from spark_jobs.reports.heartbeats import Heartbeats
from spark_jobs.reports.progress import compute_lags, nest_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.execution.batches import JobBatches
    from spark_jobs.inputs.contract import LagView
    from spark_jobs.kafka import ranges
    from spark_jobs.kafka.lag_watch import JobStanding
    from spark_jobs.reports.progress import EventWriter
    from spark_jobs.reports.troubles import Troubles
    from spark_jobs.spark.checkpoint import Folder

_log = logging.getLogger(__name__)
#: How long an event waits for Kafka to say how far behind the job is.
_LAG_S: Final = 3.0


class RunProgress:
    """The progress of one run.

    Args:
        events: gets the events.
        troubles: of the run.

    Attributes:
        last_batch: the last one that is committed.
        position: behind it; empty where nothing was read yet.
        reported_at: monotonic time of the last event; 0 before the first.
        lag: asks how far behind the job is.
    """

    def __init__(self, events: EventWriter, troubles: Troubles) -> None:
        self._events = events
        self._troubles = troubles
        self.last_batch: int | None = None
        self.position: ranges.Offsets = {}
        self.reported_at = 0.0
        self.lag: LagView
        self._folder: Folder
        self._batches: JobBatches
        #: Batches that the sink has, until they are seen in the checkpoint's commits.
        self._done: deque[dict[str, Any]] = deque()
        self._standing: JobStanding | None = None

    def begin(self, folder: Folder, batches: JobBatches, last_batch: int | None) -> None:
        """The checkpoint is there, with ``last_batch`` as its last one."""
        self._folder = folder
        self._batches = batches
        self.last_batch = last_batch

    def batch_done(self, report: dict[str, Any]) -> None:
        """The sink has a batch; see ``JobBatches.write``."""
        self._done.append(report)

    def report(self, query: Any) -> None:
        """Tell of batches that were committed since the last call."""
        committed = []
        while self._done and (
            len(self._done) > 1 or self._folder.read(f"commits/{self._done[0]['batch']}") is not None
        ):
            committed.append(self._done.popleft())
        if not committed:
            return
        self.position = committed[-1]["position"]
        self._troubles.passed(troubles.QUERY)
        self.refresh_lag()
        durations = read_durations(query)
        for done in committed:
            self.last_batch, self.position = done["batch"], done.pop("position")
            self.tell(done | {"committed": True, "spark_ms": durations})

    def refresh_lag(self) -> None:
        """Ask how far behind the job is; waits at most some seconds."""
        self._standing = self.lag.refresh(self.position, _LAG_S)

    def tell(self, fields: dict[str, Any]) -> None:
        """Emit a progress event with these fields and what is known of the run."""
        self.reported_at = time.monotonic()
        # Without an answer of Kafka's the lag is not known, which is another thing than 0.
        standing = self._standing
        position = self.position or ({} if standing is None else standing.position)
        lag = {} if standing is None else compute_lags(self.position or standing.position, standing.ends)
        self._events.emit(
            "progress",
            **({"batch": self.last_batch} | fields),
            position=nest_offsets(position),
            lag=nest_offsets(lag),
            lag_total=None if standing is None else sum(lag.values()),
            lag_max=None if standing is None else max(lag.values(), default=0),
            retrying=self._troubles.current(),
            metrics=self._batches.read_metrics(),
            steps=self._batches.flow.measure_steps(),
            tables=Heartbeats.of(self._batches.context).numbers,
        )


def read_durations(query: Any) -> dict[str, int]:
    """Read where Spark spent the time of the last batch that it has reported, ms by phase; empty before its first report.

    Spark reports a batch a moment after its commit, and triggers that found nothing too: those have no ``addBatch``.
    """
    try:
        last = None if query is None else query.lastProgress
        progress_reports = () if last is None else (last,) if "addBatch" in last["durationMs"] else query.recentProgress
        phases: Mapping[str, Any] = next(
            (
                phase_times["durationMs"]
                for phase_times in reversed(progress_reports)
                if "addBatch" in phase_times["durationMs"]
            ),
            {},
        )
        return {name: int(phase_times) for name, phase_times in phases.items()}
    except Exception as error:  # noqa: BLE001 - numbers for people: the job continues without them
        _log.debug("no progress: %s", error)
        return {}
