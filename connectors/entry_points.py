"""Entry points of installed packages: how every kind of plugin is declared, Millrace's own ones included (docs/plugins.md)."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

#: The package that this code is installed as.
DISTRIBUTION: Final = "millrace"


def list_entries(group: str) -> list[EntryPoint]:
    """All entry points of a group: Millrace's own first, whose names no other package can take.

    Blocks for some 10 ms when it reads the metadata: at first, and when a folder of ``sys.path`` has changed.
    """
    return list(_read_entries(group, tuple((folder, _changed_ns(folder)) for folder in sys.path)))


@lru_cache(maxsize=64)
def _read_entries(group: str, folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    """The entry points that ``sys.path`` leads to now; ``folders`` are its items, with the times of their last changes."""
    del folders  # only part of the cache's key
    return tuple(sorted(entry_points(group=group), key=lambda entry: not is_own(entry)))


def _changed_ns(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:  # it does not exist
        return 0


def own_entries(group: str) -> dict[str, EntryPoint]:
    """Millrace's own entry points of a group by name; blocks as ``list_entries`` does."""
    return {entry.name: entry for entry in list_entries(group) if is_own(entry)}


def is_own(entry: EntryPoint) -> bool:
    """Whether Millrace declares it."""
    return entry.dist is not None and name_and_version(entry.dist)[0] == DISTRIBUTION


@lru_cache(maxsize=256)
def name_and_version(package: Distribution) -> tuple[str, str]:
    """The name and the version of an installed package; the object itself reads its files at each question."""
    metadata = package.metadata
    return metadata["Name"], metadata["Version"]
