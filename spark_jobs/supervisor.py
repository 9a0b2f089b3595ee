"""A job as a child process: started, listened to, and ended together with all that it started.

The child gets a session and a process group of its own. Its configuration, secrets included, comes as the first line of its
standard input, so that it is neither on a command line nor on a disk. The rest of that pipe never says anything: the child ends
gracefully when the pipe ends, which the kernel sees to when this process dies, however it dies; and on SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.control import is_alive, process_age

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Mapping, Sequence

#: Lines of the child's output that are kept for the case that it dies without a word.
_TAIL: Final = 40
_LONGEST_SHOWN: Final = 2000
#: A line longer than this is dropped, bytes.
_LONGEST_LINE: Final = 1 << 24
#: What the child started may take so long to end after it, seconds; then it is killed.
_AFTERMATH_S: Final = 5.0
_POLL_S: Final = 0.05


class JobProcess:
    """One run of a job.

    Args:
        command: makes the command line from the number of the events' file descriptor.
        properties: the job's configuration.
        on_event: called with each event; on the event loop.
        log: gets the child's output, line by line.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        properties: Mapping[str, str],
        on_event: Callable[[dict[str, Any]], None],
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._command = command
        self._properties = properties
        self._on_event = on_event
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._exited = asyncio.Event()
        self._readers: list[asyncio.Task[None]] = []
        self._transports: list[asyncio.BaseTransport] = []
        self.tail: deque[str] = deque(maxlen=_TAIL)

    @property
    def pid(self) -> int:
        """Its process number, which is its group's too."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start it; blocks for some milliseconds.

        Raises:
            OSError: the system refuses.
        """
        child_descriptors: list[int] = []  # the child's ends
        try:
            events, theirs = os.pipe()
            child_descriptors.append(theirs)
            self._readers.append(
                asyncio.create_task(self._read_lines(await self._open_reader(events), self._handle_event))
            )
            output, written = os.pipe()
            child_descriptors.append(written)
            self._readers.append(
                asyncio.create_task(self._read_lines(await self._open_reader(output), self._log_output))
            )
            stdin, ours = os.pipe()
            child_descriptors.append(stdin)
            self._stdin, _ = await asyncio.get_running_loop().connect_write_pipe(
                asyncio.BaseProtocol, os.fdopen(ours, "wb", 0)
            )
            self._process = subprocess.Popen(  # noqa: ASYNC220 - takes milliseconds; waited for by a thread
                [*self._command(theirs)],
                stdin=stdin,
                stdout=written,
                stderr=written,
                pass_fds=(theirs,),
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
            self._stdin.write(json.dumps(dict(self._properties)).encode() + b"\n")
        except BaseException:
            await self.close()
            raise
        finally:
            for descriptor in child_descriptors:
                os.close(descriptor)
        loop = asyncio.get_running_loop()
        threading.Thread(
            target=_wait_for_exit, args=(self.pid, loop, self._exited), name=f"wait-{self.pid}", daemon=True
        ).start()

    async def wait(self) -> int:
        """Wait for its end, and end what it left behind; returns the exit code, negative for a signal."""
        await self._exited.wait()
        self._kill_group()
        return self._wait_exit_code()

    async def stop(self, patience: Callable[[], float]) -> int:
        """End it: SIGTERM, then SIGKILL for the whole group when ``patience`` (seconds left from now) has run out.

        Returns:
            The exit code.
        """
        process = self._process
        if process is None:
            return 0
        if not self._exited.is_set():
            self._send_signal(signal.SIGTERM)
            while not self._exited.is_set():
                left = patience()
                if left <= 0:
                    self._log.warning("process %d did not end in time and is killed with all that it started", self.pid)
                    self._kill_group()
                    await self._exited.wait()
                    break
                with contextlib.suppress(TimeoutError):
                    # A second request may have shortened what is left meanwhile: look again soon.
                    async with asyncio.timeout(min(left, 0.2)):
                        await self._exited.wait()
        await self._end_group(patience)
        return self._wait_exit_code()

    async def close(self) -> None:
        """Release everything; kills what still runs. Can be repeated."""
        if self._process is not None and self._process.returncode is None:
            self._kill_group()
            await self._exited.wait()
            self._process.wait()
        if self._readers:
            # What it last wrote is in the pipes; its own children may hold them open for longer.
            await asyncio.wait(self._readers, timeout=0.5)
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._readers.clear()
        for transport in self._transports:
            transport.close()
        self._transports.clear()
        if self._stdin is not None:
            if not self._stdin.is_closing():
                self._stdin.abort()
            self._stdin = None

    async def drained(self) -> None:
        """Wait until all events were read, after the end of the process."""
        if self._readers:
            await asyncio.wait(self._readers[:1], timeout=2)

    @staticmethod
    def end_text(code: int) -> str:
        """How a process that gave no reason ended, for an error."""
        if code < 0:
            hint = " (out of memory? see the system's log)" if code == -signal.SIGKILL else ""
            return f"was killed by signal {-code} without saying why{hint}"
        return f"ended with exit code {code} without saying why"

    # Parts.

    async def _open_reader(self, fd: int) -> asyncio.StreamReader:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
        )
        self._transports.append(transport)
        return reader

    @staticmethod
    async def _read_lines(reader: asyncio.StreamReader, take: Callable[[bytes], None]) -> None:
        """Give each line to ``take``, until the other end is closed."""
        unfinished_line = b""
        while chunk := await reader.read(1 << 16):
            *lines, unfinished_line = (unfinished_line + chunk).split(b"\n")
            for line in lines:
                take(line)
            if len(unfinished_line) > _LONGEST_LINE:
                unfinished_line = b""
        if unfinished_line:
            take(unfinished_line)

    def _handle_event(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            self._log.warning("the job wrote an event that makes no sense: %.200r", line)
            return
        if isinstance(event, dict):
            self._on_event(event)

    def _log_output(self, line: bytes) -> None:
        output_line = line.decode("utf-8", "replace").rstrip()
        if output_line:
            self.tail.append(output_line[:_LONGEST_SHOWN])
            self._log.info("%s", output_line[:_LONGEST_SHOWN])

    def _send_signal(self, number: int) -> None:
        # Not reaped before ``_wait_exit_code``: the number can't be another process's.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def _end_group(self, patience: Callable[[], float]) -> None:
        """Wait for the rest of the group (a JVM takes a moment to end), then kill what is left of it."""
        deadline = time.monotonic() + _AFTERMATH_S
        while find_other_processes(self.pid) and time.monotonic() < deadline and patience() > 0:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)  # grandchildren don't report their end
        self._kill_group()

    def _wait_exit_code(self) -> int:
        return 0 if self._process is None else self._process.wait()


def _wait_for_exit(pid: int, loop: asyncio.AbstractEventLoop, exited: asyncio.Event) -> None:
    """Wait for a child's end without reaping it: as long as it isn't, its number and its group stay its own."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(exited.set)


def find_other_processes(group: int) -> list[int]:
    """Living processes of a group but its leader; empty where there is no /proc."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, stat_fields = path.read_text().partition(" (")
        except OSError:
            continue
        fields = stat_fields.rpartition(")")[2].split()
        if int(fields[2]) == group and fields[0] not in "ZX" and int(number) != group:
            processes.append(int(number))
    return processes


class Predecessor:
    """The process that an earlier supervisor of the same job on this machine may have left behind.

    A child whose supervisor was killed ends alone. This is for one that hangs: it is ended by whoever wants to start the
    job next, if its supervisor is dead.

    Args:
        path: the file that names it; one for each job and machine.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def remember(self, pid: int) -> None:
        """``pid`` is the job's process from now on, and this process supervises it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        record_json = json.dumps(
            {"pid": pid, "age": process_age(pid), "by": os.getpid(), "by_age": process_age(os.getpid())}
        )
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        part.write_text(record_json, encoding="utf-8")
        part.replace(self._path)

    def orphan(self) -> int:
        """The process number of a living job without a supervisor, or 0."""
        try:
            record = json.loads(self._path.read_text("utf-8"))
            pid, age, by, by_age = record["pid"], record["age"], record["by"], record["by_age"]
        except (OSError, ValueError, LookupError, TypeError):
            return 0
        supervised = by != os.getpid() and is_alive(by, by_age)
        # Without an age it could be anybody's process.
        return 0 if supervised or not age or not is_alive(pid, age) else int(pid)

    async def clear(
        self,
        running: Callable[[], bool],
        wait_s: float,
        log: logging.LoggerAdapter[logging.Logger],
        grace_s: float = _AFTERMATH_S,
    ) -> bool:
        """Wait until no run of the job is alive on this machine; ends an orphan.

        Args:
            running: whether a run is alive.
            wait_s: how long an orphan may take to end without a kill.
            log: gets a line about it.
            grace_s: how long to wait for a run that is no orphan: it may just be ending.

        Returns:
            False: there is one, and it is somebody's.
        """
        deadline = time.monotonic() + wait_s
        is_reported = False
        while (pid := self.orphan()) or running():  # other processes, which don't report their end
            left = deadline - time.monotonic()
            if not pid:
                if left < wait_s - grace_s:
                    return False
            elif left <= 0:
                log.warning(
                    "process %d of an earlier run, whose worker is gone, hangs: it is killed with all that it started",
                    pid,
                )
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            elif not is_reported:
                is_reported = True
                log.info("waiting for the end of process %d, an earlier run whose worker is gone", pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGTERM)
            await asyncio.sleep(_POLL_S * 4)
        return True
