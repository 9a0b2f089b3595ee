"""Which files of a directory are read, and by which task. ``matching`` blocks; ``assign`` is pure."""
from __future__ import annotations

import fnmatch
import os
import zlib
from typing import TYPE_CHECKING

from connectors.file.stream import read_error

if TYPE_CHECKING:
    from collections.abc import Sequence


def matching(directory: str, pattern: str) -> list[str]:
    """Paths of the regular files in ``directory`` whose names match, in order of their names; none if it does not exist.

    Raises:
        Fatal: it can't be listed.
        Retriable: it can't be listed now.
    """
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries
                     if not entry.name.startswith(".") and fnmatch.fnmatchcase(entry.name, pattern) and entry.is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise read_error(directory, error) from error
    return [os.path.join(directory, name) for name in sorted(names)]  # noqa: PTH118 - the path as users write it


def assign(files: Sequence[str], max_tasks: int) -> list[list[str]]:
    """The files of each task: evenly many, and a new file changes as few other files' tasks as that allows.

    Each file prefers a task by the hash of its name and takes the next one that has room.
    """
    count = min(max_tasks, len(files))
    tasks: list[list[str]] = [[] for _ in range(count)]
    if not count:
        return tasks
    room = -(-len(files) // count)
    for name in files:
        preferred = zlib.crc32(name.encode("utf-8", "surrogateescape")) % count
        chosen = next(tasks[(preferred + step) % count] for step in range(count)
                      if len(tasks[(preferred + step) % count]) < room)
        chosen.append(name)
    return [names for names in tasks if names]
