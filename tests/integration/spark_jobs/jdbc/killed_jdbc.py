"""The JDBC sink, in a process that ends at a point of a transaction over two databases."""

from __future__ import annotations

import os
import signal

from spark_jobs.sinks.jdbc.sink import JdbcSink

#: The name of the point.
KILL_AT = "TEST_KILL_AT"


def stop(name: str) -> None:
    """End the process at this point."""
    if name == os.environ[KILL_AT]:
        os.kill(os.getpid(), signal.SIGKILL)


class KilledJdbc(JdbcSink):
    """See the module."""

    points = staticmethod(stop)
