"""The one loop that retries what a job does, and the count of crashed Python workers."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from connectors.backoff import Backoff
from connectors.errors import Fatal, Retriable
from spark_jobs.reports import troubles
from spark_jobs.spark.causes import WorkerCrashed, cause_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from connectors.options import Config
    from spark_jobs.reports.troubles import Troubles

T = TypeVar("T")


class StopRequested(Exception):
    """Raised into Spark to end the query before it begins another batch."""


class StepRetries:
    """Retries the steps of one run.

    Args:
        config: of the job.
        troubles: of the run.
        stop: set when the run is to end; ends pauses.
        last_batch: returns the last batch that is done, for events.
    """

    def __init__(
        self, config: Config, troubles: Troubles, stop: threading.Event, last_batch: Callable[[], int | None]
    ) -> None:
        self._config = config
        self._troubles = troubles
        self._stop = stop
        self._last_batch = last_batch
        self._crashes: Counter[str] = Counter()

    def end_crashes(self, part: str) -> None:
        """A part went well: the next crash is the first of a row."""
        self._crashes[part] = 0

    def retry(
        self,
        part: str,
        step: Callable[[], T],
        *,
        batch: int | None = None,
        longest_s: float | None = None,
        forever: bool = False,
    ) -> T:
        """Run ``step`` until it succeeds, ``errors.retry.timeout.ms`` is over, or a stop is requested. Blocks.

        Args:
            part: what it is, see ``troubles``.
            step: raises ``Retriable`` where it is to be retried.
            batch: for events; None: the last one done.
            longest_s: the longest pause; None: ``errors.retry.delay.max.ms``.
            forever: whether ``errors.retry.timeout.ms`` is no limit.

        Raises:
            StopRequested: a stop of the job is requested.
            Fatal: a Python worker crashed ``errors.worker.crashes.max`` times.
        """
        config = self._config
        begin, first_s = time.monotonic(), config["errors.retry.delay.ms"] / 1000
        pauses = Backoff(first_s, config["errors.retry.delay.max.ms"] / 1000 if longest_s is None else longest_s)
        self._crashes[part] = 0
        while True:
            try:
                result = step()
            except Exception as error:  # noqa: BLE001 - raised again, as what it really is
                cause = cause_of(error)
                self.count_crash(part, cause, batch)
                limit = -1 if forever else config["errors.retry.timeout.ms"] / 1000
                if not isinstance(cause, Retriable) or 0 <= limit < time.monotonic() - begin + pauses.pause_s:
                    raise cause from (error.__cause__ if cause is error else error)
            else:
                self._troubles.passed(part)
                return result
            pause_s = pauses.next_s()
            self._troubles.failed(part, cause, batch=self._last_batch() if batch is None else batch, pause_s=pause_s)
            if self._stop.wait(pause_s):
                raise StopRequested  # a batch that is not in the commits is processed again at the next start

    def count_crash(self, part: str, error: BaseException, batch: int | None = None) -> None:
        """Count crashes of Python workers in a row.

        Args:
            part: what failed, see ``troubles``.
            error: with what; another error than a crash ends the row.
            batch: the batch that it was.

        Raises:
            Fatal: there were too many: the work itself crashes them, so a retry is of no use.
        """
        self._crashes[part] = self._crashes[part] + 1 if isinstance(error, WorkerCrashed) else 0
        max_crashes = self._config["errors.worker.crashes.max"]
        if self._crashes[part] >= max_crashes:
            names = {troubles.BATCH: f"batch {batch}", troubles.IDLE: "the sink's upkeep between batches"}
            subject = names.get(part, part)
            crash_error = Fatal(
                f"{subject} has crashed Spark's Python workers {max_crashes} times in a row (errors.worker.crashes.max) and is "
                f"not retried. The last time: {error}"
            )
            crash_error.trace = getattr(error, "trace", None)
            raise crash_error
