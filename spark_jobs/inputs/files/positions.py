"""The positions of rows of files, which are their order numbers too. Pure functions.

The number of a row is ``modification time in ms * 2^20 + row``, from 0, but never less than the number after the row before
it: files of a batch follow each other by modification time, then by name. So numbers are the same when a batch is retried,
and when all files are read again with a new checkpoint; a file that comes late, with an old time, is newer than what was read.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.inputs.files.log import Listed

#: Numbers for one millisecond: no program writes that many rows in it.
UNIT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FileProbe:
    """The result of a look into a file.

    Attributes:
        rows: how many rows it has, at most.
        header: its first line, where that names the columns.
        error: why it can't be read; empty: it can.
    """

    rows: int = 0
    header: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file of a batch.

    Attributes:
        path: its address, percent-encoded.
        modified_ms: when it was last changed.
        first: the number of its first row.
        rows, header, error: see ``FileProbe``.
    """

    path: str
    modified_ms: int
    first: int
    rows: int
    header: str = ""
    error: str = ""

    @property
    def name(self) -> str:
        """Its address for people, and for Hadoop."""
        return unquote(self.path)


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """The files of a batch.

    Attributes:
        files: in order.
        end: the number after the last row.
    """

    files: tuple[BatchFile, ...]
    end: int

    @property
    def good(self) -> list[BatchFile]:
        """The files that can be read and have rows."""
        return [file for file in self.files if file.rows and not file.error]

    @property
    def rows(self) -> int:
        """How many rows there are, at most."""
        return sum(file.rows for file in self.good)


def number_files(files: Sequence[Listed], probes: Mapping[str, FileProbe], after: int) -> BatchFiles:
    """Give the rows of ``files`` their numbers.

    Args:
        files: of the batch, in order.
        probes: by path.
        after: the number after the last row of the batch before.
    """
    numbered = []
    for file in files:
        probe = probes[file.path]
        first = max(file.modified_ms * UNIT, after)
        numbered.append(BatchFile(file.path, file.modified_ms, first, probe.rows, probe.header, probe.error))
        after = first + max(probe.rows, 1)  # a file without rows has a position too: it may be a bad one
    return BatchFiles(tuple(numbered), after)


def locate_row(files: Sequence[BatchFile], number: int) -> tuple[BatchFile, int] | None:
    """The file and the row, from 1, that has ``number``; None if no file has it."""
    index = bisect_right(files, number, key=lambda file: file.first) - 1
    return (files[index], number - files[index].first + 1) if index >= 0 else None
