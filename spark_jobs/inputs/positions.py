"""Positions after batches, for inputs that number their records themselves; kept in the checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal
from spark_jobs.kafka.ranges import parse_offsets
from spark_jobs.reports.progress import nest_offsets

if TYPE_CHECKING:
    from spark_jobs.kafka.ranges import Offsets
    from spark_jobs.spark.checkpoint import Folder

_FOLDER: Final = "_millrace_positions"
#: Batches whose positions are kept; the last one may be retried.
_KEPT: Final = 3


def save_position(folder: Folder, batch: int, position: Offsets) -> None:
    """Keep the position after ``batch``; those of batches that are long done go. Writes to the checkpoint."""
    folder.write(position_file(batch), json.dumps(nest_offsets(position)))
    for name in folder.list(_FOLDER):
        if name.isdigit() and int(name) <= batch - _KEPT:
            folder.delete(f"{_FOLDER}/{name}")


def position_file(batch: int) -> str:
    """The name of the file with the position after ``batch``."""
    return f"{_FOLDER}/{batch}"


def position_after(folder: Folder, batch: int) -> Offsets:
    """The position after ``batch``; empty before the first one. Reads the checkpoint.

    Raises:
        Fatal: the checkpoint does not have it.
    """
    if batch < 0:
        return {}
    offsets_json = folder.read(position_file(batch))
    if offsets_json is None:
        raise Fatal(
            f"the checkpoint lacks {_FOLDER}/{batch}, by which records are numbered; restore it, or give the job a checkpoint "
            "of its own"
        )
    return parse_offsets(offsets_json)
