"""The sink of lines, in a process that ends at a point of the write-ahead log or at a byte of the file."""

from __future__ import annotations

import os
import resource
import signal

from spark_jobs.sinks.lines.sink import LinesSink

#: ``point <name>``: the end of a step of the log; ``byte <number>``: the size at which the kernel ends the process.
KILL_AT = "TEST_KILL_AT"


def stop(name: str) -> None:
    """End the process at this point."""
    kind, _, where = os.environ[KILL_AT].partition(" ")
    if kind == "point" and name == where:
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "byte" and name == "sealed":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(where), int(where)))


class KilledLines(LinesSink):
    """See the module."""

    points = staticmethod(stop)
