"""The files of a batch, by the log that Spark's file stream source keeps in the checkpoint.

Spark's frame of a batch leaves out files that are gone since they were listed, without a word; the log names them all.
Source: Spark's ``FileStreamSourceLog`` and ``CompactibleFileStreamLog`` (the files' forms).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal

if TYPE_CHECKING:
    from spark_jobs.spark.checkpoint import Folder

_LOG: Final = "sources/0"
_NEW_CHECKPOINT: Final = "give the job a checkpoint of its own"


@dataclass(frozen=True, slots=True, order=True)
class Listed:
    """A file as it was listed.

    Attributes:
        modified_ms: when it was last changed, ms since 1970.
        path: its address, percent-encoded as Spark writes it.
    """

    modified_ms: int
    path: str


def parse_offset(offsets_file: str) -> int:
    """The number of the last entry of the log that a file of ``offsets/`` covers.

    Raises:
        Fatal: the checkpoint is one of another input.
    """
    lines = offsets_file.splitlines()
    try:
        return int(json.loads(lines[2])["logOffset"])
    except (IndexError, ValueError, KeyError, TypeError):
        raise Fatal(
            f"the checkpoint holds {lines[2][:80] if len(lines) > 2 else offsets_file[:80]!r}, which is no position in a list "
            "of "
            f"files: it is one of another source.type; {_NEW_CHECKPOINT}"
        ) from None


def parse_entry(log_file: str, number: int) -> list[Listed]:
    """The files of entry ``number``; ``log_file`` may hold earlier entries as well.

    Raises:
        Fatal: it has an unknown form.
    """
    lines = log_file.splitlines()
    if not lines or lines[0] != "v1":
        raise Fatal(f"the checkpoint's list of files has a form that this version does not know; {_NEW_CHECKPOINT}")
    return [
        Listed(int(entry["timestamp"]), re.sub("^file:/+", "file:///", entry["path"]))
        for line in lines[1:]
        if line and (entry := json.loads(line))["batchId"] == number
    ]


def batch_files(folder: Folder, batch: int) -> list[Listed]:
    """The files of ``batch``, the oldest first; of one age by name. Reads the checkpoint.

    Raises:
        Fatal: the checkpoint lacks an entry.
    """
    files: list[Listed] = []
    for number in range(offset_of(folder, batch - 1) + 1, offset_of(folder, batch) + 1):
        log_file = folder.read(f"{_LOG}/{number}") or folder.read(f"{_LOG}/{number}.compact")
        if log_file is None:
            raise Fatal(f"the checkpoint's list of files lacks entry {number}; restore {_LOG}, or {_NEW_CHECKPOINT}")
        files += parse_entry(log_file, number)
    return sorted(files)


def log_files(folder: Folder, batch: int) -> list[str]:
    """Names of the log's files that Spark needs to continue after ``batch``. Reads the checkpoint.

    A file ``<number>.compact`` holds all entries up to its number. Entries after those of ``batch`` are left out: Spark lists
    their files again.
    """
    end = offset_of(folder, batch)
    numbers = {name: int(name.partition(".")[0]) for name in folder.list(_LOG) if name.partition(".")[0].isdigit()}
    compacted = [number for name, number in numbers.items() if name.endswith(".compact") and number <= end]
    # Spark reads the entries of the last batch once more.
    begin = min(max(compacted, default=0), offset_of(folder, batch - 1) + 1)
    return [f"{_LOG}/{name}" for name, number in sorted(numbers.items()) if begin <= number <= end]


def is_log(name: str) -> bool:
    """Whether a file of the checkpoint is one of the log."""
    return name.startswith(f"{_LOG}/")


def move_entries(log_file: str, folder: str) -> str:
    """A file of the log with its entries in another folder, given as an address."""
    version, *lines = log_file.splitlines()
    entries = [json.loads(line) for line in lines if line]
    moved = [entry | {"path": f"{folder}/{entry['path'].rpartition('/')[2]}"} for entry in entries]
    return "\n".join([version, *(json.dumps(entry, separators=(",", ":")) for entry in moved)])


def offset_of(folder: Folder, batch: int) -> int:
    """The number of the last entry that ``batch`` reads; -1 before the first batch. Reads the checkpoint.

    Raises:
        Fatal: the checkpoint does not have it.
    """
    if batch < 0:
        return -1
    offsets_file = folder.read(f"offsets/{batch}")
    if offsets_file is None:
        raise Fatal(f"the checkpoint has no position of batch {batch}; {_NEW_CHECKPOINT}")
    return parse_offset(offsets_file)
