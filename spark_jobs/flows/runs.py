"""Runs the sinks of one flow in this process: a thread and a query for each, one driver for all.

Under a worker each sink is a task of its own instead, see ``connector``.
"""

from __future__ import annotations

import math
import threading
from typing import IO, TYPE_CHECKING

from connectors.errors import Fatal
from spark_jobs import run
from spark_jobs.application import Application
from spark_jobs.metrics import Exporter, JoinedNumbers
from spark_jobs.reports.progress import EventWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_jobs.job import Job
    from spark_jobs.reports.progress import Human
    from spark_jobs.runner import Runner


class _SharedStream:
    """A stream of lines that several threads write to."""

    def __init__(self, stream: IO[str] | Human) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, line: str) -> int:
        """Write one line."""
        with self._lock:
            return self._stream.write(line)

    def flush(self) -> None:
        """As streams do."""
        with self._lock:
            self._stream.flush()


class _Requests:
    """Requests to stop, for runs that run and those that start later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason = ""
        self._runners: list[Runner] = []

    def begin(self, runner: Runner) -> None:
        """A run begins."""
        with self._lock:
            self._runners.append(runner)
            reason = self._reason
        if reason:
            runner.stop(reason)

    def stop(self, reason: str) -> None:
        """End all runs after their batches; safe in a signal handler."""
        # No lock: the handler may interrupt a thread that holds it. A run that begins meanwhile reads the reason.
        self._reason = self._reason or reason
        for runner in list(self._runners):
            runner.stop(reason)


def run_sinks(
    jobs: Sequence[Job], stream: IO[str] | Human, end_on_request: Callable[[Callable[[str], None], float], None]
) -> int:
    """Run the jobs of a flow's sinks until all have ended; blocks. A sink that fails stops alone.

    Args:
        jobs: one for each sink, checked; their Spark settings are the same.
        stream: gets the events of all.
        end_on_request: called with a function that stops all, and with the seconds that a stop may take.

    Returns:
        The largest of the exit codes.
    """
    flow = "" if jobs[0].membership is None else jobs[0].membership.flow
    config = jobs[0].config
    jars = {name for job in jobs for name in job.jar_sets()}
    host = Application(flow, math.inf, sorted(jars))
    requests = _Requests()
    end_on_request(requests.stop, config["stop.timeout.ms"] / 1000)
    numbers = JoinedNumbers()
    try:
        exporter = Exporter(config["metrics.host"], config["metrics.port"], numbers) if config["metrics.port"] else None
    except Fatal as error:
        EventWriter(flow, stream).emit("failed", error=str(error), kind="Fatal", trace="", retriable=False)
        return 1
    shared = _SharedStream(stream)
    codes: dict[str, int] = {}

    def run_one(job: Job) -> None:
        codes[job.name] = 1
        codes[job.name] = run.run_attended(
            job, shared, run.Attendance(requests.begin, host, listens=False, numbers=numbers.add)
        )

    threads = [threading.Thread(target=run_one, args=(job,), name=f"sink-{job.name}") for job in jobs]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        host.close()
        if exporter is not None:
            exporter.close()
    return max(codes.values())
