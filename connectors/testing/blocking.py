"""Finds calls that block the event loop by what they do, not by how long they take."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Audit events of calls that wait for a disk, a name server, another process or a clock.
_BLOCKING: Final = frozenset(
    {
        "glob.glob",
        "open",
        "os.listdir",
        "os.scandir",
        "os.system",
        "shutil.copyfile",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "sqlite3.connect",
        "subprocess.Popen",
        "time.sleep",
        "urllib.Request",
    }
)
#: Reading these is the import system's or a traceback's work.
_CODE: Final = (".py", ".pyc", ".so", ".pth", ".zip")


class _BlockingWatch:
    """Notes the blocking calls of code that runs in its context on one thread."""

    __slots__ = ("calls", "looking", "thread")

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls
        self.thread = threading.get_ident()
        self.looking = False

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.looking or threading.get_ident() != self.thread:
            return
        if event == "open" and (isinstance(arguments[0], int) or str(arguments[0]).endswith(_CODE)):
            return
        self.looking = True  # looking at the stack opens files
        try:
            frames = "".join(traceback.format_stack(sys._getframe(2), limit=6))  # noqa: SLF001 - the audited call's frame
            self.calls.append(f"{event}{arguments!r} was called on the event loop:\n{frames}")
        finally:
            self.looking = False


@cache
def _watch_variable() -> contextvars.ContextVar[_BlockingWatch | None]:
    """The variable that turns watching on; its hook is added with it, only once, since hooks can't be removed."""
    variable: contextvars.ContextVar[_BlockingWatch | None] = contextvars.ContextVar("blocking-watch", default=None)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _BLOCKING and (watch := variable.get()) is not None:
            watch.note(event, arguments)

    sys.addaudithook(hook)
    return variable


@contextmanager
def audited_sleep() -> Iterator[None]:
    """Make ``time.sleep`` raise its audit event; from Python 3.13 on it does so without help."""
    if sys.version_info >= (3, 13):
        yield
        return
    original = time.sleep

    def sleep(seconds: float | SupportsIndex, /) -> None:
        sys.audit("time.sleep", seconds)
        original(seconds)

    time.sleep = sleep
    try:
        yield
    finally:
        time.sleep = original


def watched_context(calls: list[str]) -> contextvars.Context:
    """A context for asyncio tasks on this thread: blocking calls made in it are described in ``calls``.

    A connector's code runs in it; the test's own code, which may write files, does not. Calls made in other threads are
    what the rule asks for, so they do not count.
    """
    context = contextvars.copy_context()
    context.run(_watch_variable().set, _BlockingWatch(calls))
    return context
