"""Ports that were chosen for servers which don't listen yet, known to all programs of a user that choose some."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from compose.local.identity import same_process, start_mark
from compose.local.paths import cache_dir

#: A server listens by then, or never will.
_PROMISED_S: Final = 300.0


class Promises:
    """Ports, each with when and for which program it was chosen.

    Two programs that start servers side by side, as two test sessions do, would now and then choose the same port: seconds
    pass from the choice until a JVM listens.
    """

    def __init__(self, held: dict[int, tuple[float, int, str]]) -> None:
        self._held = held

    def __contains__(self, port: object) -> bool:
        return port in self._held

    def add(self, port: int) -> None:
        """The port is chosen."""
        self._held[port] = time.time(), os.getpid(), start_mark(os.getpid()) or ""

    def text(self) -> str:
        """As it is kept in the file."""
        return json.dumps({str(port): held for port, held in self._held.items()})


@contextmanager
def promises(path: Path | None = None) -> Iterator[Promises]:
    """The promises that hold now; what is added is kept. Blocks while another program chooses, which takes milliseconds.

    Where the file can't be written there are none: that makes a clash as likely as it was without them, and stops nobody.

    Args:
        path: the file; None for the user's.
    """
    path = path or cache_dir() / "ports.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="ascii")
    except OSError:
        yield Promises({})
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        found = Promises(_holding(file.read()))
        before = found.text()
        yield found
        if found.text() != before:
            file.seek(0)
            file.truncate()
            file.write(found.text())


def _holding(text: str) -> dict[int, tuple[float, int, str]]:
    try:
        kept = {int(port): (float(at), int(pid), str(mark)) for port, (at, pid, mark) in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # it was cut off in the middle of a write
    now = time.time()
    alive = {program: same_process(*program) for program in {(pid, mark) for _, pid, mark in kept.values()}}
    return {port: held for port, held in kept.items() if abs(now - held[0]) < _PROMISED_S and alive[held[1:]]}
