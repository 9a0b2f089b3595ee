"""All connectors that are installed, as the worker finds them."""

from __future__ import annotations

from importlib.metadata import distributions, entry_points
from typing import TYPE_CHECKING, Final

from connectors.api import SourceConnector
from connectors.job_api import JobConnector

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The entry-point group that makes a package's connectors known.
GROUP: Final = "millrace.connectors"


def installed_connectors(path: Iterable[str] | None = None) -> dict[str, type[SourceConnector]]:
    """Source connector classes by entry-point name; connectors that move data themselves are left out (``installed_jobs``).

    Args:
        path: folders to look in, as ``sys.path``; None for ``sys.path`` itself. They must be importable.

    Raises:
        TypeError: an entry point leads to something that is no connector.
    """
    return {
        name: connector for name, connector in _load_connectors(path).items() if issubclass(connector, SourceConnector)
    }


def installed_jobs(path: Iterable[str] | None = None) -> dict[str, type[JobConnector]]:
    """Classes of connectors that move data themselves, by entry-point name; otherwise as ``installed_connectors``."""
    return {
        name: connector for name, connector in _load_connectors(path).items() if issubclass(connector, JobConnector)
    }


def _load_connectors(path: Iterable[str] | None) -> dict[str, type[SourceConnector | JobConnector]]:
    loaded: dict[str, type[SourceConnector | JobConnector]] = {}
    if path is None:
        points = list(entry_points(group=GROUP))
    else:
        points = [
            point
            for package in distributions(path=list(path))
            for point in package.entry_points
            if point.group == GROUP
        ]
    for point in points:
        connector = point.load()
        if not (isinstance(connector, type) and issubclass(connector, (SourceConnector, JobConnector))):
            raise TypeError(f"entry point {point.name} = {point.value} of group {GROUP} is no connector")
        loaded[point.name] = connector
    return loaded
