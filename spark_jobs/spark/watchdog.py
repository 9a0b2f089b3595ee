"""Ends a Python worker of Spark in which a call into a C library does not return.

Some calls of librdkafka wait for a broker without a limit, whatever timeout they are given, so no deadline in Python is ever
looked at. ``limit`` bounds such a call: one thread per process watches all of them, and ends the process when a call overstays
its own timeout by ``GRACE_S``. Spark reports the end to the driver with the reason, and the frame does the batch again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: How much longer than its own timeout a call may take, seconds. A process that was stopped for a while needs some of it.
GRACE_S: Final = 15.0
#: How the reason begins in what Spark reports; ``causes`` looks for it.
SIGN: Final = "millrace watchdog:"
EXIT_CODE: Final = 75
#: Where Spark looks for the last words of a worker, with ``spark.sql.execution.pyspark.udf.faulthandler.enabled``.
CRASH_FOLDER: Final = "PYTHON_FAULTHANDLER_DIR"


class Watchdog:
    """The deadlines of the calls under way in this process.

    Args:
        on_hang: called with the reason, from the watching thread, when a call overstays its deadline.
        grace_s: see ``GRACE_S``.
    """

    def __init__(self, on_hang: Callable[[str], None], grace_s: float = GRACE_S) -> None:
        self._on_hang = on_hang
        self._grace_s = grace_s
        self._changed = threading.Condition()
        self._calls: dict[int, tuple[float, str]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        #: When the thread looks next.
        self._looks_at = 0.0

    @contextlib.contextmanager
    def limit(self, action: str, timeout_s: float) -> Iterator[None]:
        """Bound the calls in the block: together they may take ``timeout_s`` and the grace. Nests; any thread."""
        number = next(self._numbers)
        deadline = time.monotonic() + timeout_s + self._grace_s
        with self._changed:
            self._calls[number] = deadline, f"{action} did not return within {timeout_s + self._grace_s:g} s"
            if (
                self._thread is None
            ):  # not at import: Spark's daemon forks its workers, and threads don't survive a fork
                self._looks_at = deadline
                self._thread = threading.Thread(target=self._watch_calls, name="watchdog", daemon=True)
                self._thread.start()
            elif deadline < self._looks_at:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._calls.pop(number, None)

    def _watch_calls(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                deadline, reason = min(self._calls.values(), default=(float("inf"), ""))
                if deadline > now:
                    self._looks_at = min(deadline, now + threading.TIMEOUT_MAX)
                    self._changed.wait(self._looks_at - now)
                    continue
                self._calls = {number: call for number, call in self._calls.items() if call[0] > now}
            self._on_hang(reason)


def end_process(reason: str) -> NoReturn:
    """End this process at once; the reason goes to standard error, and to the driver by Spark's report of the crash."""
    line = f"{SIGN} {reason}; this Python worker (process {os.getpid()}) ends, and the batch is repeated\n"
    folder = os.environ.get(CRASH_FOLDER)
    if folder:
        with contextlib.suppress(OSError):
            Path(folder, str(os.getpid())).write_text(line, encoding="utf-8")
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(line)
        sys.stderr.flush()
    os._exit(EXIT_CODE)


#: Of this process: a Python worker has no other object that outlives its tasks, and one thread is to watch all calls.
WATCHDOG: Final = Watchdog(end_process)
limit = WATCHDOG.limit
