"""Spark's JVM as a process: the end of what it wrote, and how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, Retriable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Lines of its output that are kept for the case that it ends, and what of them an error shows.
_KEPT: Final = 60
_SHOWN: Final = 8
_LONGEST: Final = 500
#: Its connections close a moment before the system knows that it has ended, seconds.
_END_S: Final = 5.0
#: Lines that say nothing about an end.
_NOISE: Final = (
    "WARNING: ",
    "Setting default log level",
    "To adjust logging level",
    "Using Spark's default log4j",
    "\tat ",
)
#: All that Spark's start script says when the first of its two JVMs, which prints the command of the second, was killed.
_KILLED: Final = "CMD: bad array subscript"
_OUT_OF_MEMORY: Final = (
    "If no one did that, the system did because it ran out of memory (see its log): lower spark.driver.memory "
    "and source.max.offsets.per.trigger, or give the machine more"
)


class JvmOutput:
    """The output of a JVM: passed on, its end kept.

    Args:
        take: gets each line; returns whether it took it. Lines that are not taken go to this process's standard error.
    """

    def __init__(self, take: Callable[[str], bool] | None = None) -> None:
        self._take = take
        self._tail: deque[str] = deque(maxlen=_KEPT)
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def captured(self) -> Iterator[None]:
        """Whatever process is started in the block writes its standard output and error here."""
        source, target = os.pipe()
        standard = os.dup(1), os.dup(2)
        os.dup2(target, 1)
        os.dup2(target, 2)
        os.close(target)
        self._thread = threading.Thread(
            target=self._pass_on, args=(source, os.dup(standard[1])), name="jvm-output", daemon=True
        )
        self._thread.start()
        try:
            yield
        finally:
            for number, before in enumerate(standard, 1):
                os.dup2(before, number)
                os.close(before)

    def _pass_on(self, source: int, target: int) -> None:
        with os.fdopen(source, "rb") as lines:
            for line in lines:
                message = line.decode("utf-8", "replace").rstrip()
                self._tail.append(message)
                if self._take is not None and self._take(message):
                    continue
                with contextlib.suppress(OSError):
                    os.write(target, line)
        os.close(target)

    def end(self) -> str:
        """The last lines that say something; empty if there are none. Waits a moment for what is under way."""
        if self._thread is not None:
            self._thread.join(1.0)
        lines = [line[:_LONGEST] for line in list(self._tail) if line and not line.startswith(_NOISE)]
        return "\n".join(lines[-_SHOWN:])


def describe_death(gateway: Any, output: JvmOutput | None, *, wait: bool) -> str | None:
    """Why Spark's JVM is no longer there, in words; None if it runs, or is not ours. Blocks for some seconds with ``wait``.

    Args:
        gateway: pyspark's, which knows the process; None without a gateway.
        output: what the JVM wrote.
        wait: the connection to it broke: it may be about to end.
    """
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return None
    if wait:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    code = process.poll()
    return None if code is None else ended_text(process.pid, code, "" if output is None else output.end())


def ended_text(pid: int, code: int, said: str) -> str:
    """How a JVM ended, with what it wrote last and what to do. Pure."""
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
        how = f"was killed by signal {-code} ({name})"
        advice = (
            _OUT_OF_MEMORY
            if -code == signal.SIGKILL
            else "See what it wrote, and hs_err_pid*.log in its working directory"
        )
    else:
        how = f"ended with exit code {code}"
        advice = (
            "Correct what it says: spark.driver.memory, spark.driver.extraJavaOptions or the Java runtime (JAVA_HOME)"
        )
    last = f". The last it wrote:\n{said}\n" if said else ". It wrote nothing. "
    return f"Spark's JVM (process {pid}) {how}{last}{advice}"


def explain_start(said: str) -> Fatal | Retriable:
    """The error for a JVM that ended before it was up. Pure.

    Args:
        said: what it wrote last: nothing if it was killed.
    """
    if not said or (said.endswith(_KILLED) and "\n" not in said):
        return Retriable(f"Spark's JVM was killed before it was up: it wrote nothing. {_OUT_OF_MEMORY}")
    return Fatal(
        f"Spark's JVM ended before it was up; it says:\n{said}\nCorrect spark.driver.memory, "
        "spark.driver.extraJavaOptions or the Java runtime (JAVA_HOME)"
    )
