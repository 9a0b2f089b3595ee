"""Connectors in short: a row for status, as the console's table shows them. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from worker.rest.routing import RequiredAccess

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offsets.records import ReportedStatus
    from worker.rest.security.access import Principal

#: Characters of an error in a row.
_LONGEST: Final = 300
_ROLES: Final = (RequiredAccess.ADMIN, RequiredAccess.OPERATE, RequiredAccess.READ)


def build_row(
    name: str,
    config: Mapping[str, str],
    kind: str,
    instance: ReportedStatus | None,
    tasks: Sequence[ReportedStatus | None],
    rates: tuple[float, float | None] | None,
) -> dict[str, Any]:
    """A connector's row.

    Args:
        name: its name.
        config: its configuration.
        kind: source, sink or unknown.
        instance: the status of the connector itself; None: no worker runs it.
        tasks: those of its tasks, by number.
        rates: records per second, and seconds that they are behind; None where no worker knows.
    """
    failed = next((status for status in (instance, *tasks) if status is not None and status.state == "FAILED"), None)
    return {
        "name": name,
        "type": kind,
        "class": config.get("connector.class", ""),
        "state": instance.state if instance is not None else "UNASSIGNED",
        "tasks": dict(Counter("UNASSIGNED" if status is None else status.state for status in tasks)),
        "workers": sorted(
            {status.worker_id for status in (instance, *tasks) if status is not None and status.worker_id}
        ),
        "error": first_line(failed.trace) if failed is not None else None,
        "rate": None if rates is None else _round_value(rates[0]),
        "lag_s": None if rates is None or rates[1] is None else _round_value(rates[1]),
        # Salted in each process, so that nothing can be learned of a secret; 32 bits are exact in a browser.
        "config_digest": hash(frozenset(config.items())) & 0xFFFFFFFF,
    }


def first_line(trace: str | None) -> str:
    """The first line of a trace, cut to what a row shows."""
    return (trace or "").partition("\n")[0][:_LONGEST]


def sum_reports(reports: Iterable[Mapping[str, Sequence[float | None]]]) -> dict[str, tuple[float, float | None]]:
    """Reports of workers on their tasks, by connector: rates together, and the largest lag."""
    by_connector: dict[str, tuple[float, float | None]] = {}
    for report in reports:
        for name, (rate, lag) in report.items():
            rate_before, lag_before = by_connector.get(name, (0.0, None))
            lags = [status for status in (lag, lag_before) if status is not None]
            by_connector[name] = (rate_before + (rate or 0.0), max(lags) if lags else None)
    return by_connector


def highest_role(principal: Principal, connector: str | None = None) -> str | None:
    """The highest role for a connector, or for the whole cluster (None); None without any."""
    return next((str(status) for status in _ROLES if principal.may(status, connector)), None)


def _round_value(value: float) -> float:
    """Two digits are enough to look at, and what hardly changes is not sent again."""
    return float(f"{value:.2g}") if value < 100 else float(round(value))
