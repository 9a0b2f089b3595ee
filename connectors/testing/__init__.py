"""The conformance kit: what every connector must pass. For the tests of connectors, also those outside this project."""

from typing import TYPE_CHECKING

from connectors.testing.contexts import LogCapture, SavedOffsets
from connectors.testing.declarations import DECLARATION_CHECKS
from connectors.testing.driver import Run
from connectors.testing.fleet import installed_connectors
from connectors.testing.harness import Harness, Unsupported
from connectors.testing.waivers import WAIVERS

if TYPE_CHECKING:
    from connectors.testing.conformance import connector_conformance, snapshot_conformance

__all__ = [
    "DECLARATION_CHECKS",
    "WAIVERS",
    "Harness",
    "LogCapture",
    "Run",
    "SavedOffsets",
    "Unsupported",
    "connector_conformance",
    "installed_connectors",
    "snapshot_conformance",
]


def __getattr__(name: str) -> object:
    """``connector_conformance`` and its kind need pytest, which is only there for tests; the rest does not."""
    if name in ("connector_conformance", "snapshot_conformance"):
        from connectors.testing import conformance

        return getattr(conformance, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
