"""The lag of a job, queried in a thread of its own: a Kafka that does not answer delays no other work."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from connectors.errors import MillraceError
from spark_jobs.kafka.lag import KafkaView
from spark_jobs.reports.troubles import KAFKA

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.options import Config
    from spark_jobs.kafka.ranges import Offsets
    from spark_jobs.reports.troubles import Troubles

_log = logging.getLogger(__name__)
#: An answer older than this is no answer.
_STALE_S: Final = 20.0
#: Seconds after a failure until Kafka is asked again, unless a refresh is requested earlier.
_AGAIN_S: Final = 5.0
_END_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class JobStanding:
    """The position of a job in its topics, and the topics' ends.

    Attributes:
        position: the next offset to be read, by partition: committed, or where the job would begin.
        ends: the offset after the last record that may be read.
    """

    position: Offsets
    ends: Offsets


class LagWatch:
    """Asks for the ends of the job's topics, and commits its position to the consumer group for Kafka's tools to show.

    Args:
        config: the job's.
        troubles: gets a report when Kafka does not answer, and when it does again.
        last_batch: the number of the last batch, for events.
        timeout_s: how long Kafka may take to answer one question.
    """

    def __init__(
        self, config: Config, troubles: Troubles, last_batch: Callable[[], int | None], *, timeout_s: float = 15.0
    ) -> None:
        self._timeout_s = timeout_s
        self._config = config
        self._troubles = troubles
        self._last_batch = last_batch
        self._changed = threading.Condition()
        self._requested = self._done = 0
        self._ending = False
        self._start: Offsets = {}
        self._position: Offsets = {}
        self._committed: Offsets = {}
        self._standing: JobStanding | None = None
        self._answered_at = 0.0
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._watch_lag,), name="lag", daemon=True
        )
        self._thread.start()

    def begin(self, start: Offsets) -> None:
        """Where the job begins, as far as it is decided: partitions that were decided on later begin at their first record."""
        self._start = start

    def refresh(self, position: Offsets, wait_s: float) -> JobStanding | None:
        """Ask Kafka again, and commit ``position`` if it is new. Blocks for ``wait_s`` at most.

        Args:
            position: after the last batch done; empty before the first one.
            wait_s: how long to wait for the answer.

        Returns:
            The job's position and the topics' ends; None if they are not known at present.
        """
        with self._changed:
            self._position = position
            self._requested += 1
            requested_round = self._requested
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._done >= requested_round, wait_s)
            is_fresh = self._standing is not None and time.monotonic() - self._answered_at < _STALE_S
            return self._standing if is_fresh else None

    def close(self) -> None:
        """End the thread, after what it is doing. Blocks for some seconds at most."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join(_END_S)

    def _watch_lag(self) -> None:
        view = KafkaView(self._config, self._timeout_s)
        failed = False
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._ending or self._requested > self._done, _AGAIN_S if failed else None
                )
                if self._ending and self._requested == self._done:
                    break
                requested_round, position = self._requested, self._position
            failed = not self._run_round(view, position)
            with self._changed:
                self._done = requested_round
                self._changed.notify_all()
        view.close()

    def _run_round(self, view: KafkaView, position: Offsets) -> bool:
        """One round; whether Kafka answered."""
        standing = None
        try:
            new_standing = self._read_standing(view, position)
            if position and position != self._committed:
                self._commit_position(view, position)
            standing = new_standing
            self._troubles.passed(KAFKA)
        except MillraceError as error:
            self._troubles.failed(KAFKA, error, batch=self._last_batch(), pause_s=_AGAIN_S, quiet=True)
        except Exception as error:  # noqa: BLE001 - a fault here must not end the job: the lag is not known
            _log.warning("the lag is not known: %s", error, exc_info=True)
        with self._changed:
            self._standing = standing
            self._answered_at = time.monotonic()
        return standing is not None

    def _read_standing(self, view: KafkaView, position: Offsets) -> JobStanding | None:
        """Read the job's position and the topics' ends; None if the job has not decided yet where to start."""
        known_position = position or self._start
        if not known_position and self._config["source.starting.offsets"] == "latest":
            return None
        return JobStanding(*view.standing(view.topics_read(), known_position))

    def _commit_position(self, view: KafkaView, position: Offsets) -> None:
        try:
            view.commit(position)
            self._committed = position
        except MillraceError as error:
            _log.warning("the consumer group %s shows an old position: %s", self._config["kafka.group.id"], error)
