"""Follows one file name through growth, truncation and rotation. Blocking: each ``advance`` runs in a thread.

The state machine has no clock and no loop of its own, so that tests can walk through every turn of it.
"""

from __future__ import annotations

import os
from collections import deque
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.errors import Fatal, Retriable
from connectors.text_files.rotation import HEAD, KnownFile, fingerprint_head, open_location, open_newer
from connectors.text_files.stream import (
    BLOCK,
    CorruptInput,
    PlainStream,
    TextStream,
    is_gzip,
    open_stream,
    read_error,
    read_head,
    skip_zeros,
)

if TYPE_CHECKING:
    from collections.abc import Callable

#: How often to look for a rotation while there is still something to read, seconds.
_LOOK_INTERVAL: Final = 0.5
#: After as long without a look, because its task waited for Kafka, files that had the name in between are looked for, seconds.
_MISSED_AFTER: Final = 2 * _LOOK_INTERVAL
#: A file that begins like this has a hole: lines have no such beginning.
_ZEROS: Final = bytes(64)
#: Rotated files held open because they are still to be read.
_MAX_QUEUE: Final = 32


class StepKind(Enum):
    """The result of a step."""

    #: From here on the data is of another file, or of the same one from ``position`` on.
    BEGIN = "begin"
    #: More text.
    DATA = "data"
    #: On the way to the position; call again at once.
    BUSY = "busy"
    #: Nothing new.
    IDLE = "idle"
    #: Nothing new, and the format says that the text ended.
    COMPLETE = "complete"
    #: No file of this name yet, or no folder any more.
    MISSING = "missing"
    #: What was read is finished and no file has this name any more.
    GONE = "gone"
    #: The rest of the file can't be decompressed.
    CORRUPT = "corrupt"
    #: It, or a rotated file that has to be read first, can't be read now.
    UNREADABLE = "unreadable"


class FollowerStep(NamedTuple):
    """The outcome of one ``advance``.

    Attributes:
        kind: what was found.
        data: the text, with ``DATA``.
        position: where the data that follows starts, with ``BEGIN``.
        note: something to log once, or "".
    """

    kind: StepKind
    data: bytes = b""
    position: int = 0
    note: str = ""


class Follower:
    """One followed name.

    Args:
        path: the name.
        compression: as the option ``file.compression``.
        position: where to continue.
        saved_fingerprint: the fingerprint that was saved with the position, if any.
        rotated_pattern: names of rotated files; None means the name followed by anything.
        wait: seconds a renamed file must be quiet before the next one is read.
        clock: seconds that only grow.
        unit: bytes of one code unit of the text.
    """

    def __init__(
        self,
        path: str,
        *,
        compression: str,
        position: int = 0,
        saved_fingerprint: str | None = None,
        rotated_pattern: str | None = None,
        wait: float,
        clock: Callable[[], float],
        unit: int = 1,
    ) -> None:
        self.path = path
        self._unit = unit
        #: The first bytes of the file that is being read, for fingerprints and byte order marks.
        self.head = b""
        self._compression = compression
        self._pattern = rotated_pattern
        self._resume = (position, saved_fingerprint)
        self._wait = wait
        self._clock = clock
        self._fd = -1
        self._stream: TextStream | None = None
        self._identity = (0, 0)
        #: The folder in which the last file was opened.
        self._folder: tuple[int, int] | None = None
        self._queue: deque[int] = deque()
        #: The first bytes of the newest file while older ones are read: it may be copied and truncated before its turn.
        self._waiting_head = b""
        #: The file that was read before this one.
        self._finished: KnownFile | None = None
        self._target = 0
        self._corrupt = False
        self._quiet_since: float | None = None
        self._next_look = 0.0
        self._looked_at = 0.0
        self._missing = False
        #: Why the last look at the name failed: an error once the open file is read to its end.
        self._obstacle: Fatal | Retriable | None = None
        #: Identity, size and time of the last write of a file that was closed until it changes.
        self._parked: tuple[tuple[int, int], int, int] | None = None
        #: Whether what follows in the file at the position to resume at is a part of what was read before.
        self._continues = False

    @property
    def is_open(self) -> bool:
        """Whether a file is held open."""
        return self._stream is not None

    def fingerprint_at(self, position: int) -> str:
        """The fingerprint to save with ``position``."""
        return fingerprint_head(self.head, position)

    def advance(self) -> FollowerStep:
        """Do the next step: open a file, read a block, or look for other files. Blocks for one read.

        Raises:
            Fatal: the file can't be read.
            Retriable: it can't be read now.
        """
        try:
            if self._stream is None:
                return self._open_file()
            return self._read_stream(self._stream)
        except OSError as error:
            raise read_error(self.path, error) from error

    def park(self) -> None:
        """Close a file, all of which was read, until it changes (a task can't hold open any number of files).

        What is read of it then follows what was read before, as if it had been open all the time.
        """
        stream = self._stream
        if stream is None or self._queue or self._target:
            return
        if self._missing and self._explain_missing() is not StepKind.MISSING:
            return  # its writer may not have noticed that it was renamed
        status = os.fstat(self._fd)
        self._parked = (self._identity, status.st_size if self._corrupt else stream.file_at, status.st_mtime_ns)
        self._resume = (stream.at, self.fingerprint_at(stream.at))
        self._continues = True
        self._close_current()

    def forget(self) -> None:
        """Close a file that is gone; one that gets its name later is read from the beginning."""
        self._close_current()
        self._parked = None
        self._continues = False
        self._resume = (0, None)

    def close(self) -> None:
        """Release the files; ``advance`` must not be running."""
        self._close_current()
        while self._queue:
            os.close(self._queue.popleft())

    def _close_current(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._stream = None

    def _open_file(self) -> FollowerStep:
        if self._parked is not None:
            try:
                now = os.stat(self.path)  # noqa: PTH116
            except FileNotFoundError:
                return FollowerStep(self._explain_missing())
            if self._parked == ((now.st_dev, now.st_ino), now.st_size, now.st_mtime_ns):
                return FollowerStep(StepKind.IDLE)
            self._parked = None
        position, saved_fingerprint = self._resume
        opened = open_location(self.path, position, saved_fingerprint, self._compression, self._pattern)
        if opened is None:
            return FollowerStep(StepKind.MISSING)
        self._looked_at = self._clock()
        location, descriptors, last_head = opened
        if not descriptors:
            return FollowerStep(StepKind.MISSING)
        self._queue.extend(descriptors)
        self._identity = _identify(descriptors[-1])
        self._folder = _identify_folder(self.path)
        self._waiting_head = last_head
        step = self._begin_next(location.position, location.note)
        if (
            saved_fingerprint is not None
            and location.position == position
            and self.fingerprint_at(position) != saved_fingerprint
        ):
            # It was rotated or truncated since it was located.
            self.close()
            return FollowerStep(StepKind.BUSY)
        continues = self._continues and location.position == position
        self._continues = False
        return FollowerStep(StepKind.BUSY) if continues else step

    def _begin_next(self, position: int, note: str = "") -> FollowerStep:
        """Continue with the next open file."""
        if self.head and self._fd >= 0:
            self._finished = KnownFile(_identify(self._fd), self.head)
        self._close_current()
        self._fd = self._queue.popleft()
        self._corrupt = False
        self._quiet_since = None
        self.head = read_head(self._fd, self._compression, HEAD)
        stream = open_stream(self._fd, self._compression)
        self._target = 0
        if isinstance(stream, PlainStream):
            if not self._queue and not self.head.startswith(self._waiting_head):
                self.head = self._waiting_head  # it was truncated since, which is noticed by that
            stream.at = position
            note = note or self._inside_line(position)
        else:
            self._target = position
        self._stream = stream
        return FollowerStep(StepKind.BEGIN, position=position, note=note)

    def _inside_line(self, position: int) -> str:
        if not position or position >= os.fstat(self._fd).st_size:
            return ""
        before = os.pread(self._fd, 4, max(0, position - 4))
        if not before.strip(b"\0").endswith((b"\n", b"\r")):
            return (
                f"position {position} of {self.path} is inside a line: reading starts with the rest of that line (Kafka "
                "Connect counts characters, so its positions are too low in files that are not ASCII)"
            )
        return ""

    def _read_stream(self, stream: TextStream) -> FollowerStep:
        now = self._clock()
        if now >= self._next_look:
            self._look(now)
            # After a pause the file may be truncated, and longer than before again.
            if isinstance(stream, PlainStream) and not self._begins_alike():
                return self._find_copy(stream.at) or self._restart_file("begins differently than before")
        try:
            data = b"" if self._corrupt else stream.read(BLOCK)
        except CorruptInput as error:
            self._corrupt = True
            return FollowerStep(StepKind.CORRUPT, note=str(error))
        if data:
            return self._take_data(stream, data)
        if stream.shrunk():
            return self._find_copy(stream.at) or self._restart_file("is shorter than before")
        self._look(now)
        if stream.at < self._target and stream.complete():
            return self._restart_file(f"has no position {self._target}")
        if self._quiet_since is None:
            self._quiet_since = now
        if now - self._quiet_since >= self._wait:
            if self._obstacle is not None:
                raise self._obstacle
            if (self._queue or self._missing) and not self._corrupt and stream.is_cut_off():
                self._corrupt = True
                return FollowerStep(StepKind.CORRUPT, note="its end is missing")
            if self._queue:
                return self._begin_next(
                    0, f"{self.path} was rotated: the renamed file is read to its end, continuing with the new one"
                )
            if self._missing:
                return FollowerStep(self._explain_missing())
        return FollowerStep(StepKind.COMPLETE if stream.complete() else StepKind.IDLE)

    def _take_data(self, stream: TextStream, data: bytes) -> FollowerStep:
        self._quiet_since = None
        before = stream.at - len(data)
        # A file that was truncated and has grown past the old position again looks longer, but begins differently.
        if isinstance(stream, PlainStream) and not self._begins_alike():
            return self._find_copy(before) or self._restart_file("begins differently than before")
        if stream.at == len(data) and isinstance(stream, PlainStream) and is_gzip(self._fd, self._compression):
            # The file was empty when it was opened.
            self._stream = open_stream(self._fd, self._compression)
            return FollowerStep(StepKind.BUSY)
        if len(self.head) < HEAD:
            # Not of the file, which may be truncated since.
            self.head = (self.head[:before] + data)[:HEAD]
        if before == 0 and isinstance(stream, PlainStream) and data.startswith(_ZEROS):
            stream.at = skip_zeros(self._fd) // self._unit * self._unit
            note = f"{self.path} begins with zeros, as when its writer does not append and it is truncated: they are skipped"
            return FollowerStep(StepKind.BEGIN, position=stream.at, note=note)
        if stream.at <= self._target:
            return FollowerStep(StepKind.BUSY)
        if before < self._target:
            data = data[self._target - before :]
        self._target = 0
        return FollowerStep(StepKind.DATA, data)

    def _begins_alike(self) -> bool:
        return os.pread(self._fd, len(self.head), 0) == self.head

    def _find_copy(self, position: int) -> FollowerStep | None:
        """Continue in the copy of a file that was truncated; None if no copy has anything behind the position."""
        opened = self._open_copies(max(position, len(self.head)), self.head)
        if not opened:
            return None
        copy, *newer = opened
        if not newer and not is_gzip(copy, self._compression) and os.fstat(copy).st_size <= position:
            os.close(copy)
            return None
        if not self._queue:
            self._waiting_head = os.pread(self._fd, HEAD, 0)
        self._queue.extendleft(reversed([*newer, self._fd]))
        self._fd = copy
        self._corrupt = False
        self._quiet_since = None
        # It is the same text: no line ends here.
        stream = open_stream(copy, self._compression)
        if isinstance(stream, PlainStream):
            stream.at = position
        else:
            self._target = position
        self._stream = stream
        return FollowerStep(StepKind.BUSY)

    def _open_copies(self, position: int, head: bytes) -> list[int]:
        """The newest rotated file that begins with ``head`` and has the position, and those after it; empty for none."""
        if not position or self._pattern == "":
            return []
        print_of_head = fingerprint_head(head, position)
        located = open_location(self.path, position, print_of_head, self._compression, self._pattern)
        if located is None:
            return []
        location, descriptors, _ = located
        # The followed file itself is the last one.
        known_files = {_identify(fd) for fd in (self._fd, *self._queue, *descriptors[len(location.paths) - 1 :])}
        opened: list[int] = []
        for fd in descriptors:
            if location.position == position and _identify(fd) not in known_files:
                opened.append(fd)
            else:
                os.close(fd)
        return opened

    def _look_at_waiting(self) -> None:
        """See whether the newest file was truncated while older ones are read: its copy is read before it then."""
        head = os.pread(self._queue[-1], HEAD, 0)
        if not head.startswith(self._waiting_head):
            copies = self._open_copies(len(self._waiting_head), self._waiting_head)
            self._queue.extend([*copies, self._queue.pop()])
        self._waiting_head = head

    def _restart_file(self, reason: str) -> FollowerStep:
        """The same file from its beginning."""
        if not self._queue:
            self._waiting_head = b""
        self._queue.appendleft(self._fd)
        self._fd = -1
        return self._begin_next(0, f"{self.path} {reason}: it was truncated; reading it from its beginning")

    def _look(self, now: float) -> None:
        """See whether the name stands for another file than the last one opened, and open that at once."""
        self._next_look = now + _LOOK_INTERVAL
        self._obstacle = None
        try:
            if self._look_at_name():
                self._looked_at = now
        except OSError as error:
            self._obstacle = read_error(self.path, error)
        except (Fatal, Retriable) as error:
            self._obstacle = error

    def _look_at_name(self) -> bool:
        """See which file has the name, and open it; returns whether all files that had it are open."""
        try:
            status = os.stat(self.path)  # noqa: PTH116
        except FileNotFoundError:
            if not self._missing:
                self._missing = True
                self._quiet_since = None
            return not self._may_have_missed()
        self._missing = False
        if self._queue:
            self._look_at_waiting()
        room = _MAX_QUEUE - len(self._queue)
        return (status.st_dev, status.st_ino) == self._identity or (room > 0 and self._open_newer(room))

    def _explain_missing(self) -> StepKind:
        """GONE if the name is deleted from its folder; MISSING if the folder is gone, too, such as one that is not mounted."""
        if self._folder is None or _identify_folder(self.path) != self._folder:
            return StepKind.MISSING
        return StepKind.IDLE if Path(self.path).exists() else StepKind.GONE

    def _may_have_missed(self) -> bool:
        return self._clock() - self._looked_at > _MISSED_AFTER

    def _open_newer(self, room: int) -> bool:
        """Open the file that has the name now, and before it those that had it since the last one that was opened.

        Args:
            room: the most files; of more the first.

        Returns:
            Whether it was room enough.
        """
        earlier_files: list[KnownFile] = []
        if self._may_have_missed():
            # All of them: a writer that noticed a rotation late may have written to a file after the next one was created.
            earlier_files = [
                KnownFile(_identify(fd), read_head(fd, self._compression, HEAD)) for fd in (self._fd, *self._queue)
            ]
            if self._finished is not None:
                earlier_files.append(self._finished)
        located = open_newer(self.path, earlier_files, self._compression, self._pattern if earlier_files else "")
        if located is None or not located.descriptors:
            return True
        opened, head = located.descriptors, located.last_head
        for fd in opened[room:]:
            os.close(fd)
        self._queue.extend(opened[:room])
        self._identity = _identify(self._queue[-1])
        self._folder = _identify_folder(self.path)
        self._waiting_head = head if len(opened) <= room else os.pread(self._queue[-1], HEAD, 0)
        # The writer may not have noticed yet: it counts from here how long it has been quiet.
        self._quiet_since = None
        return len(opened) <= room


def _identify(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _identify_folder(path: str) -> tuple[int, int] | None:
    """Device and inode of the folder of a path; None if it can't be looked at."""
    try:
        status = Path(path).parent.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
