"""The services that the detached stack has started, kept in a file so that a later command finds them again."""

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from compose.local.process.identity import same_process
from worker.fetch.errors import StackError
from worker.terminal import Say, drop_line

_FORMAT = 1
#: The key that the start mark has in JSON.
_START_MARK_KEY = "mark"


@dataclass(frozen=True, slots=True)
class StackEntry:
    """One process of the stack.

    Attributes:
        service: Service it belongs to, for instance `kafka`.
        part: Its name within the service, for instance `broker-1`.
        pid: Process number.
        start_mark: See `identity.start_mark`: the number alone may belong to another process by now.
        address: Where clients find it.
        port: Port that must accept connections while it is well.
        ports: All its ports, by what they are for.
        log: Log file.
        started: Seconds since 1970.
        folders: Folders that its users read, by what they hold.
    """

    service: str
    part: str
    pid: int
    start_mark: str
    address: str
    port: int
    ports: dict[str, int]
    log: str
    started: float = field(default_factory=time.time)
    folders: dict[str, str] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Whether the process still runs; a later process with the same number does not count."""
        return same_process(self.pid, self.start_mark)


@dataclass(frozen=True, slots=True)
class StateFile:
    """The entries of one stack, in order of their start, in `stack.json`; and what was stopped, whose ports are kept for it.

    Attributes:
        folder: The stack's home; services keep their data in folders next to the file.
    """

    folder: Path

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "stack.json"

    def load(self) -> list[StackEntry]:
        """All entries; none when nothing was ever started.

        Raises:
            StackError: The file cannot be understood.
        """
        return self._read_entries("entries")

    def stopped(self) -> list[StackEntry]:
        """The services that were stopped and not started again since; raises as `load`."""
        return self._read_entries("stopped")

    def _read_entries(self, kind: str) -> list[StackEntry]:
        try:
            json_text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StackError(f"{self.path} cannot be read: {error}") from error
        try:
            content = json.loads(json_text)
            if content["format"] != _FORMAT:
                raise StackError(
                    f"{self.path} was written by another version of Millrace; stop the stack with that one"
                )
            # Files of before have nothing that was stopped.
            return [_decode_entry(entry) for entry in (content[kind] if kind == "entries" else content.get(kind, []))]
        except (ValueError, KeyError, TypeError) as error:
            raise StackError(
                f"{self.path} is damaged ({error!r}); remove it, and end by hand what still runs from {self.folder}"
            ) from error

    def save(self, entries: list[StackEntry], stopped: Sequence[StackEntry] = ()) -> None:
        """Replace the file as a whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {"format": _FORMAT, "entries": [encode_entry(entry) for entry in entries],
                   "stopped": [encode_entry(entry) for entry in stopped]}  # fmt: skip
        handle, temporary = tempfile.mkstemp(prefix=".stack-", dir=self.folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                json.dump(content, out, indent=2)
                out.write("\n")
            Path(temporary).replace(self.path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def put(self, entry: StackEntry) -> None:
        """Add the entry, in place of an earlier one of the same part; the service counts as started again."""
        others = [item for item in self.load() if (item.service, item.part) != (entry.service, entry.part)]
        self.save([*others, entry], [item for item in self.stopped() if item.service != entry.service])

    def remove(self, entry: StackEntry, *, keep_ports: bool = False) -> None:
        """Drop the entry; with `keep_ports` it counts as stopped."""
        stopped = self.stopped()
        if keep_ports:
            stopped = [item for item in stopped if (item.service, item.part) != (entry.service, entry.part)] + [entry]
        self.save([item for item in self.load() if item != entry], stopped)

    def forget_stopped(self, services: Container[str]) -> None:
        """Forget the ports of stopped services."""
        stopped = self.stopped()
        if any(item.service in services for item in stopped):
            self.save(self.load(), [item for item in stopped if item.service not in services])

    @contextlib.contextmanager
    def locked(self, say: Say = drop_line, timeout: float = 600.0) -> Iterator[None]:
        """Keep other commands from changing the stack at the same time; waits at most `timeout` seconds for them.

        Raises:
            StackError: Another command held the lock all that time.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "stack.lock").open("w", encoding="utf-8") as lock:
            deadline, reported = time.monotonic() + timeout, False
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise StackError(
                            f"another command has been changing the stack in {self.folder} for {timeout:g} s; end it first"
                        ) from None
                    if not reported:
                        say(f"another command is changing the stack in {self.folder}, waiting for it")
                        reported = True
                    time.sleep(0.1)
            # Released with the file: services start with closed files, so none inherits the lock.
            yield


def encode_entry(entry: StackEntry) -> dict[str, object]:
    """The entry as it is in the file, and in the JSON that `status` prints."""
    return {_START_MARK_KEY if name == "start_mark" else name: value for name, value in asdict(entry).items()}


def _decode_entry(content: dict[str, Any]) -> StackEntry:
    return StackEntry(
        **{"start_mark" if key == _START_MARK_KEY else key: value for key, value in dict(content).items()}
    )
