"""Ports that were chosen for servers which don't listen yet, known to all programs of a user that choose some."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from typing import Final

from compose.local.process.identity import same_process, start_mark
from worker.fetch.paths import cache_dir

#: A server listens by then, or never will.
_PROMISED_S: Final = 300.0


class PortPromises:
    """Ports, each with when and for which program it was chosen.

    Two programs that start servers side by side, as two test sessions do, would now and then choose the same port: seconds
    pass from the choice until a JVM listens.
    """

    def __init__(self, promised_ports: dict[int, tuple[float, int, str]]) -> None:
        self._promised_ports = promised_ports

    def __contains__(self, port: object) -> bool:
        return port in self._promised_ports

    def add(self, port: int) -> None:
        """The port is chosen."""
        self._promised_ports[port] = time.time(), os.getpid(), start_mark(os.getpid()) or ""

    def text(self) -> str:
        """As it is kept in the file."""
        return json.dumps({str(port): promise for port, promise in self._promised_ports.items()})


@contextmanager
def open_promises() -> Iterator[PortPromises]:
    """The promises that hold now; what is added is kept. Blocks while another program chooses, which takes milliseconds.

    Where they can't be kept there are none: a clash is then as likely as without them, but services still start.
    """
    file = _open_locked()
    if file is None:
        yield PortPromises({})
        return
    with file:
        current = PortPromises(_read_promises(file.read()))
        yield current
        with suppress(OSError):
            file.truncate(0)  # writes append, here to nothing
            file.write(current.text().encode())


def _open_locked() -> FileIO | None:
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "ports.json").open("a+b", buffering=0)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return None
    file.seek(0)
    return file


def _read_promises(raw: bytes) -> dict[int, tuple[float, int, str]]:
    try:
        kept = {
            int(port): (float(at), int(pid), str(start_time))
            for port, (at, pid, start_time) in json.loads(raw or b"{}").items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}  # it was cut off in the middle of a write
    now = time.time()
    alive = {program: same_process(*program) for program in {(pid, start_time) for _, pid, start_time in kept.values()}}
    return {
        port: promise for port, promise in kept.items() if abs(now - promise[0]) < _PROMISED_S and alive[promise[1:]]
    }
