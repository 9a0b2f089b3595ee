"""Control of a job's runs: locks that let one run go at a time, and the data of ``status`` and ``stop``.

A local lock is the kernel's, of an open file: it ends with its process, however that ends. A checkpoint on another file
system has a lease in a file, which is renewed and runs out.
"""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import json
import os
import secrets
import socket
import struct
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, Fenced
from spark_jobs.spark.checkpoint import local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spark_jobs.job import Job
    from spark_jobs.spark.checkpoint import Folder

LEASE_FILE: Final = "_millrace_lease"
LEASE_S: Final = 60.0
_RENEW_S: Final = 10.0
#: ``struct flock``: type, whence, start, length, process.
_FLOCK: Final = "hhqqi"
#: An exclusive lock on all of a file. Unlike one by ``flock``, others can ask for it without taking it.
_WHOLE_FILE: Final = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class AlreadyRuns(Fatal):
    """Another run of the job, or of its checkpoint, is alive."""


def process_age(pid: int) -> str:
    """Return an age that distinguishes a process from a later one with its number; empty if it is gone (or without /proc)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def is_alive(pid: int, age: str) -> bool:
    """Whether the process that had ``age`` still runs."""
    if age:
        return process_age(pid) == age
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class FileLock:
    """An exclusive lock on a file of this machine, held until ``release`` or the process's end; the holder is written in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def acquire(self, subject: str) -> None:
        """Take it.

        Raises:
            AlreadyRuns: another process has it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("a+", encoding="utf-8")
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except OSError:
            file.seek(0)
            holder = file.read().strip()
            file.close()
            raise AlreadyRuns(
                f"{subject} is in use by {holder or 'another process'}: one job and one checkpoint have "
                f"one run at a time. `millrace job stop` ends it (lock: {self.path})"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let it go."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @staticmethod
    def is_locked(path: Path) -> bool:
        """Whether some process has it. Asks without taking it, so that a job that starts meanwhile is not refused."""
        try:
            with path.open("rb") as file:
                lock = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE_FILE)
        except FileNotFoundError:
            return False
        return bool(struct.unpack(_FLOCK, lock)[0] != fcntl.F_UNLCK)


class CheckpointLease:
    """A lease on a checkpoint that no lock of this machine can guard. Renewed by a thread.

    Args:
        folder: the checkpoint.
        lost: called once, from the thread, when another run has taken it or it can't be renewed in time.
        clock: seconds since the epoch (hosts' clocks must agree to some seconds).
    """

    def __init__(self, folder: Folder, lost: Callable[[Fenced], None], clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._lost = lost
        self._clock = clock
        self._id = secrets.token_hex(8)
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def _format_lease(self) -> str:
        return json.dumps(
            {
                "id": self._id,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "age": process_age(os.getpid()),
                "until": self._clock() + LEASE_S,
            }
        )

    def _read_holder(self) -> dict[str, Any] | None:
        lease_json = self._folder.read(LEASE_FILE)
        if not lease_json:
            return None
        try:
            holder: dict[str, Any] = json.loads(lease_json)
        except ValueError:
            return None
        return holder

    def acquire(self, subject: str, settle_s: float = 2.0) -> None:
        """Take it; blocks for ``settle_s`` seconds, so that of two that try at once one sees the other.

        Raises:
            AlreadyRuns: it belongs to another run, which lives or has not run out.
        """
        if not self._folder.create(LEASE_FILE, self._format_lease()):
            holder = self._read_holder()
            if holder is not None and not self._is_over(holder):
                remaining_s = max(0.0, holder["until"] - self._clock())
                raise AlreadyRuns(
                    f"{subject} is in use by process {holder['pid']} on {holder['host']}. `millrace job "
                    "stop` on that machine ends it; if the machine is gone, its lease runs out in "
                    f"{remaining_s:.0f} s ({LEASE_FILE})"
                )
            self._folder.write(LEASE_FILE, self._format_lease())
        time.sleep(settle_s)
        holder = self._read_holder()
        if holder is None or holder["id"] != self._id:
            raise AlreadyRuns(f"{subject} was taken by another run at the same moment")
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._renew_lease,), name="lease", daemon=True
        )
        self._thread.start()

    def _is_over(self, holder: dict[str, Any]) -> bool:
        if holder["host"] == socket.gethostname() and not is_alive(holder["pid"], holder["age"]):
            return True
        return bool(holder["until"] < self._clock())

    def _renew_lease(self) -> None:
        renewed = time.monotonic()
        while not self._end.wait(_RENEW_S):
            try:
                holder = self._read_holder()
                if holder is not None and holder["id"] != self._id:
                    self._lost(Fenced(f"process {holder['pid']} on {holder['host']} has taken over the checkpoint"))
                    return
                self._folder.write(LEASE_FILE, self._format_lease())
                renewed = time.monotonic()
            except Exception as error:  # noqa: BLE001 - whatever the file system says: it may pass
                if time.monotonic() - renewed > LEASE_S / 2:
                    self._lost(
                        Fenced(f"the lease on the checkpoint could not be renewed for {LEASE_S / 2:.0f} s: {error}")
                    )
                    return

    def release(self) -> None:
        """Give it back."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(_RENEW_S)
            holder = self._read_holder()
            if holder is not None and holder["id"] == self._id:
                self._folder.delete(LEASE_FILE)


class Control:
    """A job's folder on this machine: its lock and its status."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = FileLock(folder / "lock")
        self._status = folder / "status.json"

    def running(self) -> bool:
        """Whether a run is alive."""
        return FileLock.is_locked(self.lock.path)

    def status(self) -> dict[str, Any]:
        """The status that the last run wrote; empty if there was no run."""
        try:
            last_status: dict[str, Any] = json.loads(self._status.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return last_status

    def write(self, status: dict[str, Any]) -> None:
        """Write the status; readable by this user alone, as errors may quote data."""
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self._status.with_name(f".status.{os.getpid()}")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(status, file)
        part.replace(self._status)

    def wait_for_jvm(self, limit_s: float = 30.0) -> None:
        """Wait for the JVM of a run that was killed: it ends alone, and until then its tasks may still write.

        Raises:
            AlreadyRuns: it still runs.
        """
        jvm = self.status().get("jvm") or {}
        deadline = time.monotonic() + limit_s
        while jvm and is_alive(jvm["pid"], jvm["age"]):
            if time.monotonic() > deadline:
                raise AlreadyRuns(
                    f"the JVM of an earlier run that was killed (process {jvm['pid']}) still runs "
                    f"after {limit_s:.0f} s; end it"
                )
            time.sleep(0.1)


@contextlib.contextmanager
def lock_job(job: Job) -> Iterator[None]:
    """Hold the locks of a job and of its local checkpoint, once the JVM of its last run has ended.

    Raises:
        AlreadyRuns: it runs on this machine, or another job uses the checkpoint.
    """
    control, folder = Control(job.folder), local_path(job.checkpoint)
    with contextlib.ExitStack() as locks:
        control.lock.acquire(f"job {job.name}")
        locks.callback(control.lock.release)
        control.wait_for_jvm()
        if folder is not None:
            checkpoint = FileLock(folder / "_millrace_lock")
            checkpoint.acquire(f"checkpoint {job.checkpoint}")
            locks.callback(checkpoint.release)
        yield
