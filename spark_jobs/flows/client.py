"""A job as a flow of a Spark application: the application is started unless it runs; the flow is run, listened to, stopped.

The counterpart of ``supervisor.JobProcess`` for jobs that share a driver. The configuration, secrets included, goes through a
socket in a folder that only this user can enter. The flow ends when its connection does, which the kernel sees to when this
process dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.flows.address import make_private

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Mapping, Sequence

    from spark_jobs.flows.address import ApplicationAddress

_TAIL: Final = 40
_LONGEST_SHOWN: Final = 2000
#: What a process may take until it listens, seconds: Python's imports, and the end of an earlier application.
_START_S: Final = 90.0
#: How long an application may take to accept a flow, seconds.
_ACCEPT_S: Final = 30.0
_POLL_S: Final = 0.05
_LONGEST_LINE: Final = 1 << 24
#: The exit code of a flow whose application is gone.
_LOST: Final = 1


def command(address: ApplicationAddress) -> list[str]:
    """The command line of an application; no configuration is on it."""
    return [sys.executable, "-m", "spark_jobs.application", str(address.folder), address.key, address.name]


class FlowConnection:
    """One run of a job as a flow.

    Args:
        address: of its application.
        properties: the job's configuration.
        on_event: called with each event of the job, on the event loop.
        log: gets the flow's log, line by line.
        launch: the command line that starts the application; None: of one for flows.
        detached: whether an application that is started outlives this process.
    """

    def __init__(
        self,
        address: ApplicationAddress,
        properties: Mapping[str, Any],
        on_event: Callable[[dict[str, Any]], None],
        log: logging.LoggerAdapter[logging.Logger],
        *,
        launch: Sequence[str] | None = None,
        detached: bool = False,
    ) -> None:
        self._address = address
        self._properties = properties
        self._launch_command = command(address) if launch is None else list(launch)
        self._detached = detached
        self.on_event = on_event
        self._log = log
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._code: int | None = None
        self._over = asyncio.Event()
        self.pid = 0
        self.tail: deque[str] = deque(maxlen=_TAIL)

    async def start(self) -> None:
        """Hand the job to its application, which is started if there is no such process.

        Raises:
            Fatal: the folder of sockets is not private.
            OSError: the application can't be started, or does not answer.
        """
        make_private(self._address.folder)
        deadline = time.monotonic() + _START_S
        while not await self._connect_flow():
            if time.monotonic() > deadline:
                raise OSError(f"the Spark application {self._address.name} did not answer within {_START_S:g} s")
            with self._address.start_lock.open("a") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await asyncio.sleep(_POLL_S * 2)  # somebody else starts it
                else:
                    if not self._address.socket.exists() or not await self._connect_flow():
                        await self._launch_process(deadline)
                    if self._writer is not None:
                        break
        self._start_reading()

    async def join(self) -> bool:
        """As ``start``, if the application runs already; returns whether it does.

        Raises:
            Fatal: the folder of sockets is not private.
        """
        make_private(self._address.folder)
        if not await self._connect_flow():
            return False
        self._start_reading()
        return True

    def _start_reading(self) -> None:
        assert self._reader is not None, "connected"  # noqa: S101 - for the type checker
        self._reading = asyncio.create_task(self._read_events(self._reader))

    async def _launch_process(self, deadline: float) -> None:
        """Start the process and wait until it listens."""
        with self._address.output.open("wb") as output:
            process = subprocess.Popen(  # noqa: ASYNC220 - takes milliseconds; a thread waits for its end
                self._launch_command,
                stdin=subprocess.DEVNULL if self._detached else subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        # The thread holds the other end of the application's standard input for as long as both live.
        threading.Thread(target=process.wait, name=f"wait-{process.pid}", daemon=True).start()
        self._log.info("starts the Spark application %s as process %d", self._address.name, process.pid)
        while not await self._connect_flow():
            code = process.returncode
            if code is not None:
                said = self._address.output.read_text("utf-8", "replace").strip()[-_LONGEST_SHOWN:]
                raise OSError(
                    f"the Spark application {self._address.name} ended with exit code {code} at its start; it says: "
                    f"{said or 'nothing'}"
                )
            if time.monotonic() > deadline:
                process.kill()
                raise OSError(f"the Spark application {self._address.name} did not listen within {_START_S:g} s")
            await asyncio.sleep(_POLL_S)

    async def _connect_flow(self) -> bool:
        """Whether the application has accepted the flow."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._address.socket), limit=_LONGEST_LINE)
        except (FileNotFoundError, ConnectionError):
            return False
        try:
            writer.write(json.dumps(dict(self._properties)).encode() + b"\n")
            async with asyncio.timeout(_ACCEPT_S):
                first = await reader.readline()
            event = json.loads(first) if first.endswith(b"\n") else {}  # it may end in the middle of the line
        except (ConnectionError, TimeoutError):
            event = {}
        except BaseException:
            writer.close()
            raise
        if event.get("event") != "accepted":  # it was about to end
            writer.close()
            return False
        self.pid, self._reader, self._writer = int(event["pid"]), reader, writer
        return True

    async def _read_events(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._handle_event(line)
        except (OSError, ValueError) as error:  # a line beyond the limit is a ValueError
            self._log.warning("the connection to the Spark application %s broke: %s", self._address.name, error)
        finally:
            self._over.set()

    def _handle_event(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return  # cut off: the application died while it wrote
        kind = event.get("event")
        if kind == "log":
            log_line = str(event.get("line", ""))[:_LONGEST_SHOWN]
            self.tail.append(log_line)
            self._log.info("%s", log_line)
        elif kind == "ended":
            self._code = int(event.get("code", _LOST))
        else:
            self.on_event(event)

    async def wait(self) -> int:
        """Wait for the flow's end; returns its exit code, 1 if the application is gone."""
        await self._over.wait()
        return _LOST if self._code is None else self._code

    def end_text(self, code: int) -> str:
        """How it ended, for an error."""
        if self._code is None:
            return (
                f"was the Spark application {self._address.name} (process {self.pid}), which is gone without saying why"
            )
        return f"ended with exit code {code} without saying why"

    async def stop(self, patience: Callable[[], float]) -> int:
        """End the flow after its batch; gives the batch up when ``patience`` (seconds left from now) has run out.

        Returns:
            The exit code.
        """
        writer = self._writer
        if writer is None:
            return 0
        with contextlib.suppress(ConnectionError):
            writer.write(b"stop\n")
        while not self._over.is_set():
            left = patience()
            if left <= 0:
                self._log.warning("the flow did not end in time; its batch is given up")
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, 0.2)):
                    await self._over.wait()
        await self.close()
        return _LOST if self._code is None else self._code

    async def drained(self) -> None:
        """All events were read: the end of the flow is the end of its connection."""

    async def close(self) -> None:
        """End the connection, and with it the flow if it still runs. Can be repeated."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
