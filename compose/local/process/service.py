"""One server process: start, wait until it is ready, stop, kill, pause. Everything here blocks."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from compose.local.process.identity import same_process, signal_group, start_mark
from worker.fetch.errors import StackError

_POLL = 0.02  # seconds between two looks at a condition
_LOG_LIMIT = 32 << 20  # bytes; a longer log is set aside at the next start
_GUARD = Path(__file__).with_name("guard.py")
_TAIL = 30  # lines of the log in an error
_REVISIONS = 3  # of one start
_SAID_LIMIT = 1 << 20  # bytes of what a process wrote that are looked into


def _read_patience() -> float:
    value = os.environ.get("MILLRACE_PATIENCE", "1")
    try:
        return float(value)
    except ValueError:
        raise StackError(
            f"MILLRACE_PATIENCE must be a number, such as 4, but is {value!r}; change or unset it"
        ) from None


#: What deadlines are multiplied by: more than 1 on a machine that is known to be slow or busy.
PATIENCE: Final = _read_patience()


def wait_until(condition: Callable[[], bool], timeout: float, poll: float = _POLL) -> bool:
    """Whether the condition became true within `timeout` seconds (times `PATIENCE`); it is asked at least once."""
    deadline = time.monotonic() + timeout * PATIENCE
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll)
    return True


def log_tail(path: Path, lines: int = _TAIL) -> str:
    """The last lines of a log file; an empty string if the file does not exist."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - lines * 400))
            content = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(content.splitlines()[-lines:])


@dataclass(slots=True)
class Service:
    """A server as a child process in a process group of its own, its output in a log file.

    An attached service (the default) ends with the program that started it, even when that is killed. A detached one
    outlives it and is found again by `adopt`.

    Attributes:
        name: What messages call it.
        command: The program and its arguments.
        log_path: Where its output is appended.
        ready: Asked again and again after the start until it says True.
        environment: Variables added to those of this program.
        folder: Working folder of the process, else that of the log.
        detached: Whether it outlives this program.
        start_timeout: Seconds the service may take to be ready.
        stop_timeout: Seconds from the stop signal until the process is killed.
        stop_signal: What tells it to end in good order.
        launched: Called once the process exists, before it is ready: the place to write its number down.
        revise: Called when it ended while starting, with what it wrote to the log meanwhile: changes the service if another
            start may help (a port was free when it was chosen, and is not any more), and says whether it did. Three times for
            one start at most.
    """

    name: str
    command: Sequence[str]
    log_path: Path
    ready: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    detached: bool = False
    start_timeout: float = 60.0
    stop_timeout: float = 20.0
    stop_signal: int = signal.SIGTERM
    launched: "Callable[[Service], None] | None" = None
    revise: "Callable[[Service, str], bool] | None" = None
    _log_start: int = field(default=0, init=False)
    _pid: int | None = field(default=None, init=False)
    _start_mark: str | None = field(default=None, init=False)
    _child: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
    _guard: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def pid(self) -> int:
        """Number of the running process.

        Raises:
            StackError: It does not run.
        """
        if self._pid is None or not self.running:
            raise StackError(f"{self.name} is not running; start it first (log: {self.log_path})")
        return self._pid

    @property
    def start_mark(self) -> str:
        """Start mark of the running process, see `identity.start_mark`."""
        _ = self.pid
        return self._start_mark or ""

    @property
    def running(self) -> bool:
        """Whether the process lives, ready or not."""
        if self._child is not None:
            return self._child.poll() is None
        return self._pid is not None and self._start_mark is not None and same_process(self._pid, self._start_mark)

    def adopt(self, pid: int, start_time: str) -> bool:
        """Take over a process that an earlier program started detached; False when it is gone."""
        if not same_process(pid, start_time):
            return False
        self._pid, self._start_mark, self._child, self._guard = pid, start_time, None, None
        return True

    def launch(self) -> Self:
        """Start the process and return at once; nothing happens when it runs.

        Raises:
            StackError: The program cannot be started.
        """
        if self.running:
            return self
        self._release_guard()
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            if self.log_path.stat().st_size > _LOG_LIMIT:
                self.log_path.replace(self.log_path.with_suffix(".old.log"))
        try:
            with self.log_path.open("ab") as log:
                self._log_start = log.seek(0, os.SEEK_END)
                self._child = subprocess.Popen(
                    list(self.command),
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    cwd=self.folder or self.log_path.parent,
                    env={**os.environ, **self.environment},
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise StackError(f"{self.name} cannot be started: {error}; the command was {self.command[0]}") from error
        self._pid = self._child.pid
        self._start_mark = start_mark(self._pid)
        if not self.detached:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(self._pid), self._start_mark or ""],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        if self.launched is not None:
            self.launched(self)
        return self

    def wait_ready(self, timeout: float | None = None) -> Self:
        """Wait until the service answers; one that does not is killed.

        Args:
            timeout: Seconds to wait, else `start_timeout`.

        Raises:
            StackError: It ended, also after it was revised, or was not ready in time; the message holds the end of its log.
        """
        limit = self.start_timeout if timeout is None else timeout
        for attempt in range(_REVISIONS + 1):
            settled = wait_until(lambda: not self.running or self.ready(), limit)
            if self.running and settled:
                return self
            if (
                self.running
                or attempt == _REVISIONS
                or self.revise is None
                or not self.revise(self, self._read_output())
            ):
                break
            self.kill()  # what it may have started
            self.launch()
        code = self._child.returncode if self._child is not None else None
        problem = (
            f"was not ready after {limit * PATIENCE:g} s (MILLRACE_PATIENCE={PATIENCE * 4:g} waits longer on a busy machine)"
            if self.running
            else f"ended while starting (exit code {code})"
        )
        self.kill()
        raise StackError(f"{self.name} {problem}. End of its log {self.log_path}:\n{log_tail(self.log_path)}")

    def _read_output(self) -> str:
        """Read the output of the process in its log since its start; only the end of a long output."""
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _SAID_LIMIT))
            return log.read().decode("utf-8", "replace")
        return ""

    def start(self) -> Self:
        """Start the process and wait until it is ready; see `launch` and `wait_ready` for what may be raised."""
        return self.launch().wait_ready()

    def stop(self, timeout: float | None = None) -> None:
        """Ask the process to end, wait, and kill it when it has not ended after `timeout` (else `stop_timeout`) seconds."""
        self.terminate()
        self.wait_stopped(timeout)

    def terminate(self) -> None:
        """Ask the process to end (`stop_signal`) and return at once."""
        self._signal_group(self.stop_signal)
        self._signal_group(signal.SIGCONT)  # a paused process would never see the first signal

    def wait_stopped(self, timeout: float | None = None) -> None:
        """Wait until the process has ended; kill it after `timeout` (else `stop_timeout`) seconds."""
        wait_until(lambda: not self.running, self.stop_timeout if timeout is None else timeout)
        self.kill()

    def kill(self) -> None:
        """End the process at once (SIGKILL), with all it started, and wait until it is gone."""
        self._signal_group(signal.SIGKILL)
        if self._child is not None:
            self._child.wait()
        else:
            wait_until(lambda: not self.running, 10.0)
        self._release_guard()
        if not self.running:
            self._pid = self._start_mark = None  # the number may have a new owner from now on

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): it keeps its connections but answers nothing, like a machine that hangs."""
        self._signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen process continue (SIGCONT)."""
        self._signal_group(signal.SIGCONT)

    def log_tail(self, lines: int = _TAIL) -> str:
        """The last lines of the log."""
        return log_tail(self.log_path, lines)

    def detach(self) -> None:
        """Let the process outlive this program."""
        self.detached = True
        self._release_guard()

    def _signal_group(self, number: int) -> None:
        if self._pid is not None and self._start_mark is not None:
            signal_group(self._pid, self._start_mark, number)

    def _release_guard(self) -> None:
        if self._guard is None:
            return
        guard, self._guard = self._guard, None
        with contextlib.suppress(OSError):
            guard.communicate(b"\n", timeout=5)


@dataclass(slots=True)
class Managed:
    """The common operations of every server of the stack, by way of its `service`. All methods block."""

    _service: Service | None = field(default=None, init=False)

    @property
    def service(self) -> Service:
        """The process behind it; prepared (downloads, configuration, ports) on first use, not started.

        Raises:
            StackError: What it needs could not be had; `Unavailable` where this machine can't have it.
        """
        if self._service is None:
            self._service = self._prepare()
        return self._service

    def _prepare(self) -> Service:
        """Make the process that `service` returns."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        """Number of the process; see `Service.pid`."""
        return self.service.pid

    @property
    def running(self) -> bool:
        """Whether the process lives, ready or not."""
        return self.service.running

    @property
    def log_path(self) -> Path:
        """Its log file."""
        return self.service.log_path

    def start(self) -> Self:
        """Start it (again), on the same ports and data, and wait until it is ready; see `Service.start` for errors."""
        self.service.start()
        return self

    def stop(self, timeout: float | None = None) -> None:
        """Shut it down in good order and wait; killed after `timeout` seconds (default: the service's own).

        Also while it starts; nothing is prepared for it.
        """
        if self._service is not None:
            self._service.stop(timeout)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self.service.kill()

    def pause(self) -> None:
        """Freeze it: it keeps its connections but answers nothing, like a machine that hangs."""
        self.service.pause()

    def resume(self) -> None:
        """Let a frozen one continue."""
        self.service.resume()

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()
