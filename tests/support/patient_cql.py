"""Deadlines of the CQL driver for busy machines: its own are two seconds for its first questions to a cluster."""

from __future__ import annotations

from typing import Any, Final

#: Arguments of ``cassandra.cluster.Cluster``.
PATIENT: Final[dict[str, Any]] = {"connect_timeout": 60.0, "control_connection_timeout": 60.0}
