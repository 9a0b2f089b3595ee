"""Finds the files of a directory and assigns them to tasks. ``match_files`` blocks; ``assign_files`` is pure."""

from __future__ import annotations

import fnmatch
import os
from typing import TYPE_CHECKING

from connectors.text_files.stream import is_regular_file, read_error

if TYPE_CHECKING:
    from collections.abc import Sequence


def match_files(directory: str, pattern: str) -> list[str]:
    """Paths of the regular files in ``directory`` whose names match, in order of their names; none if it does not exist.

    Raises:
        Fatal: it can't be listed.
        Retriable: it can't be listed now.
    """
    try:
        with os.scandir(directory) as entries:
            names = [
                entry.name
                for entry in entries
                if not entry.name.startswith(".")
                and fnmatch.fnmatchcase(entry.name, pattern)
                and is_regular_file(entry)
            ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise read_error(directory, error) from error
    return [os.path.join(directory, name) for name in sorted(names)]  # noqa: PTH118 - the path as users write it


def has_readable_name(path: str) -> bool:
    """Whether a path is text: an offset can't name other files."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def assign_files(files: Sequence[str], max_tasks: int, previous: Sequence[Sequence[str]] = ()) -> list[list[str]]:
    """The files of each task: evenly many, and each where it was in ``previous`` unless that would be uneven.

    A new or a deleted file thus changes the configuration of one task, and the others continue undisturbed.
    """
    count = min(max_tasks, len(files))
    current_files = set(files)
    tasks = [[name for name in names if name in current_files] for names in previous[:count]]
    tasks += [[] for _ in range(count - len(tasks))]
    placed = {name for names in tasks for name in names}
    for name in files:
        if name not in placed:
            min(tasks, key=len).append(name)
    while tasks and len(longest := max(tasks, key=len)) - len(least := min(tasks, key=len)) > 1:
        least.append(longest.pop())
    return tasks
