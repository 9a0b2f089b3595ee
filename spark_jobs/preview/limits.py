"""Ends a preview that takes too long, or whose client is gone."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JError

from connectors.errors import MillraceError
from spark_jobs.spark.gateway import java_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Cancelled(MillraceError):
    """The preview ends with what it has; the message says why."""


class Limit:
    """The time of a preview. Use it as a context manager, in the thread that runs the preview's Spark jobs.

    Args:
        seconds: how long it may take, from now.
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._group = f"preview-{uuid.uuid4()}"
        self._lock = threading.Lock()
        self._context: Any = None
        #: Why the preview must end; empty while it may continue.
        self.reason = ""
        self._timer = threading.Timer(seconds, self.cancel, (f"the time limit of {seconds:g} s is over",))
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def guard(self, spark: SparkSession) -> None:
        """Let the Spark jobs of this thread be ended with the preview."""
        context = spark.sparkContext
        context.setJobGroup(self._group, "preview", interruptOnCancel=True)
        with self._lock:
            self._context = context
            reason = self.reason
        if reason:
            self._end_jobs()

    def left_s(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._until - time.monotonic())

    def check(self) -> None:
        """Continue only if there is time.

        Raises:
            Cancelled: it has run out, or the preview was ended.
        """
        if self.reason:
            raise Cancelled(self.reason)

    def cancel(self, reason: str) -> None:
        """End the preview, its Spark jobs too; from any thread."""
        with self._lock:
            self.reason = self.reason or reason
            running = self._context is not None
        if running:
            self._end_jobs()

    def _end_jobs(self) -> None:
        with contextlib.suppress(Py4JError):  # the driver has ended
            java_context(self._context).cancelJobGroupAndFutureJobs(self._group)
