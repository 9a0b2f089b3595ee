"""The conformance kit: what every connector must pass."""
from connectors.testing.driver import Run

__all__ = ["Run"]
