"""A thread that works while the event loop does not: it ends an orphaned host and reports a stuck loop.

All that the host sends goes through ``SharedWriter``, so that the thread can send a whole message between two of the loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Final

from worker.pipe import event_frame
from worker.protocol import LoopStuck

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_TICK_S: Final = 0.5
_WARN_S: Final = 2.0
_BEAT_S: Final = 0.25
#: A thread that had no turn for this long while its process used less than half a CPU: the process was frozen as a whole.
_FROZEN_S: Final = 2.0
_PR_SET_PDEATHSIG: Final = 1
#: What follows the task's or connector's own name in names of asyncio tasks.
_SUFFIXES: Final = frozenset(
    {
        "runner",
        "run",
        "offsets",
        "producer",
        "connector",
        "validate",
        "alter-offsets",
        "snapshot",
        "snapshots",
        "lag",
        "tables",
        "plan",
        "preview",
    }
)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends; Linux only, elsewhere the watch does it."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class SharedWriter:
    """Writes to a non-blocking socket from the event loop and, whole messages at a time, from another thread.

    Args:
        sock: owned from now on.
        loop: the event loop.
    """

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._sock = sock
        self._loop = loop
        self._lock = threading.Lock()
        self._queued = bytearray()
        self._waiting = False
        self._closing = False

    def write(self, data: bytes) -> None:
        """Send, or queue what the socket doesn't take now. On the event loop only; does not block."""
        with self._lock:
            if self._closing:
                return
            self._queued += data
            self._send_queued()
            self._wait_for_room()

    def write_from_thread(self, data: bytes, deadline_s: float) -> bool:
        """Send now, waiting up to ``deadline_s`` seconds for room; False if it can't be sent. Not on the event loop."""
        until = time.monotonic() + deadline_s
        with self._lock:
            if self._closing:
                return False
            self._queued += data
        while True:
            # Not held while waiting: the loop may have its turn again, and queues behind what is queued.
            with self._lock:
                if self.is_closing():  # another thread may have closed it meanwhile
                    return False
                self._send_queued()
                if not self._queued:
                    return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(OSError, ValueError):  # closed meanwhile
                select.select((), (self._sock,), (), min(left, 0.1))

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closing

    def close(self) -> None:
        """Close the socket; on the event loop only."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            if self._waiting:
                self._loop.remove_writer(self._sock)
            self._sock.close()

    def _send_queued(self) -> None:
        try:
            while self._queued:
                del self._queued[: self._sock.send(self._queued)]
        except BlockingIOError:
            pass
        except OSError:
            self._queued.clear()  # the other side has gone; the reader sees it too

    def _wait_for_room(self) -> None:
        if bool(self._queued) == self._waiting:
            return
        self._waiting = bool(self._queued)
        if self._waiting:
            self._loop.add_writer(self._sock, self._resume_sending)
        else:
            self._loop.remove_writer(self._sock)

    def _resume_sending(self) -> None:
        with self._lock:
            if not self._closing:
                self._send_queued()
                self._wait_for_room()


class LoopWatch:
    """Watches an event loop, and the control process, from a thread.

    Args:
        loop: the event loop.
        stuck_s: seconds without a turn after which the loop counts as stuck.
        send: sends a frame from the thread.
        orphaned: tells whether the control process has gone; None if that can't happen (in its own process).
        warn_s: seconds without a turn after which a first warning is sent.
        telling: whether it tells of a stuck loop from the start; else from ``set_stuck`` on: loading code blocks too.
        clock: monotonic seconds.
        cpu_clock: seconds of CPU time that this process has used.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stuck_s: float,
        send: Callable[[bytes], object],
        orphaned: Callable[[float], bool] | None,
        warn_s: float = _WARN_S,
        *,
        telling: bool = True,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._telling = telling
        self._warn_s = warn_s
        self._loop = loop
        self._stuck_s = stuck_s
        self._send = send
        self._orphaned = orphaned
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._beat = self._looked = clock()
        self._used = cpu_clock()
        #: The turns of the loop after which a warning, and the final report, was sent.
        self._warned = self._reported = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch_loop, name="loop-watch", daemon=True)
        self.lag_s = 0.0

    def start(self) -> None:
        """Begin; on the event loop."""
        self._note_tick()
        self._looked, self._used = self._clock(), self._cpu_clock()
        self._thread.start()

    def stop(self) -> None:
        """End the thread within half a second; on the event loop."""
        self._ended.set()
        if self._handle is not None:
            self._handle.cancel()

    def set_stuck(self, stuck_s: float) -> None:
        """Change ``stuck_s``; on the event loop, whose turn counts from now."""
        self._stuck_s = stuck_s
        self._beat = self._clock()
        self._telling = True

    def take_lag(self) -> float:
        """The longest time in seconds that the loop was late since the last call."""
        lag, self.lag_s = self.lag_s, 0.0
        return lag

    def look(self) -> None:
        """Report the loop if it is stuck; the thread calls it after each tick. Callable from any thread, one at a time."""
        before, used_before = self._looked, self._used
        self._looked, self._used = self._clock(), self._cpu_clock()
        if is_frozen(self._looked - before, self._used - used_before):
            self._beat = self._looked  # SIGSTOP, a suspended machine: no task is to blame, the loop gets its chance
        if not self._telling:
            return
        beat = self._beat
        late = self._looked - beat
        if late >= self._stuck_s and self._reported != beat:
            self._reported = self._warned = beat
            self._report_stuck(late)
        elif late >= self._warn_s and self._warned != beat:
            self._warned = beat
            self._report_stuck(late)

    def _note_tick(self) -> None:
        now = self._clock()
        self.lag_s = max(self.lag_s, now - self._beat - _BEAT_S)
        self._beat = now
        self._handle = self._loop.call_later(_BEAT_S, self._note_tick)

    def _watch_loop(self) -> None:
        while not self._ended.is_set():
            if self._orphaned is None:
                self._ended.wait(_TICK_S)
            elif self._orphaned(_TICK_S):
                os._exit(1)
            self.look()

    def _report_stuck(self, late: float) -> None:
        message = LoopStuck(late, find_culprit(self._loop), all_stacks())
        self._send(event_frame(message))


def is_frozen(wall_s: float, cpu_s: float) -> bool:
    """Whether a process did not run at all between two turns of a thread that looks twice a second.

    Code that keeps the interpreter to itself keeps threads waiting too, but uses CPU time.
    """
    return wall_s > _FROZEN_S and cpu_s < wall_s / 2


def find_culprit(loop: asyncio.AbstractEventLoop) -> str:
    """The task (``NAME-0``) or connector whose code the loop is running now, as far as names tell; callable from any thread."""
    with contextlib.suppress(RuntimeError):
        running = asyncio.current_task(loop)
        if running is not None:
            name = running.get_name()
            first, bar, suffix = name.rpartition("|")
            return first if bar and suffix in _SUFFIXES else name
    return ""


def all_stacks() -> str:
    """The stacks of all threads but the caller's."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - documented; there is no other way
        if ident != threading.get_ident():
            parts.append(f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


def maker_of(sock: socket.socket) -> int:
    """The process that made a socket pair: this one's parent, which may have gone before this one looks who its parent is."""
    if hasattr(socket, "SO_PEERCRED"):
        pid: int = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[0]
        return pid
    return os.getppid()


def hung_up(sock: socket.socket, parent: int) -> Callable[[float], bool]:
    """Return a function that waits up to the given seconds and says whether the other end of ``sock`` or ``parent`` is gone."""
    poll = select.poll()
    poll.register(sock, select.POLLHUP | select.POLLERR)

    def check(timeout_s: float) -> bool:
        return bool(poll.poll(timeout_s * 1000)) or os.getppid() != parent

    return check
