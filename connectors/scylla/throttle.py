"""How many queries are in flight, how large pages are, how long to wait after a fault; see ``connectors.cql.throttle``."""
from __future__ import annotations

from connectors.cql.throttle import InFlightLimit, PageSize, pause_s, weight

__all__ = ["InFlightLimit", "PageSize", "pause_s", "weight"]
