"""Ports that were chosen for servers which don't listen yet, known to all programs of a user that choose some."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
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
def promises() -> Iterator[Promises]:
    """The promises that hold now; what is added is kept. Blocks while another program chooses, which takes milliseconds.

    Where they can't be kept there are none: that makes a clash as likely as it was without them, and stops nobody.
    """
    file = _locked()
    if file is None:
        yield Promises({})
        return
    with file:
        found = Promises(_holding(file.read()))
        yield found
        with suppress(OSError):
            file.truncate(0)  # writes append, here to nothing
            file.write(found.text().encode())


def _locked() -> FileIO | None:
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "ports.json").open("a+b", buffering=0)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return None
    file.seek(0)
    return file


def _holding(text: bytes) -> dict[int, tuple[float, int, str]]:
    try:
        kept = {
            int(port): (float(at), int(pid), str(mark)) for port, (at, pid, mark) in json.loads(text or b"{}").items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}  # it was cut off in the middle of a write
    now = time.time()
    alive = {program: same_process(*program) for program in {(pid, mark) for _, pid, mark in kept.values()}}
    return {port: held for port, held in kept.items() if abs(now - held[0]) < _PROMISED_S and alive[held[1:]]}
