"""Entry points of installed packages: how every kind of plugin is declared, Millrace's own ones included (docs/plugins.md)."""
from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: The package that this code is installed as.
DISTRIBUTION: Final = "millrace"


def entries(group: str) -> list[EntryPoint]:
    """All entry points of a group: Millrace's own first, whose names nobody else takes. Reads metadata: blocks for some ms."""
    return sorted(entry_points(group=group), key=lambda entry: not is_own(entry))


def own_entries(group: str) -> dict[str, EntryPoint]:
    """Millrace's own entry points of a group by name; blocks as ``entries`` does."""
    return {entry.name: entry for entry in entries(group) if is_own(entry)}


def is_own(entry: EntryPoint) -> bool:
    """Whether Millrace declares it."""
    return entry.dist is not None and entry.dist.name == DISTRIBUTION
