"""Connectors in short: a row for each, as the console's table shows them. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from worker.rest.access import Principal
from worker.rest.routing import Access

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offsets.records import Status

#: What is shown of an error in a row.
_LONGEST: Final = 300
_ROLES: Final = (Access.ADMIN, Access.OPERATE, Access.READ)


def row(
    name: str,
    config: Mapping[str, str],
    kind: str,
    own: Status | None,
    tasks: Sequence[Status | None],
    rates: tuple[float, float | None] | None,
) -> dict[str, Any]:
    """A connector's row.

    Args:
        name: its name.
        config: its configuration.
        kind: source, sink or unknown.
        own: its own status; None: nobody runs it.
        tasks: those of its tasks, by number.
        rates: records per second, and seconds that they are behind; None where no worker knows.
    """
    failed = next((each for each in (own, *tasks) if each is not None and each.state == "FAILED"), None)
    return {
        "name": name,
        "type": kind,
        "class": config.get("connector.class", ""),
        "state": own.state if own is not None else "UNASSIGNED",
        "tasks": dict(Counter("UNASSIGNED" if each is None else each.state for each in tasks)),
        "workers": sorted({each.worker_id for each in (own, *tasks) if each is not None and each.worker_id}),
        "error": first_line(failed.trace) if failed is not None else None,
        "rate": None if rates is None else _rounded(rates[0]),
        "lag_s": None if rates is None or rates[1] is None else _rounded(rates[1]),
    }


def first_line(trace: str | None) -> str:
    """The first line of a trace, cut to what a row shows."""
    return (trace or "").partition("\n")[0][:_LONGEST]


def summed(reports: Iterable[Mapping[str, Sequence[float | None]]]) -> dict[str, tuple[float, float | None]]:
    """What workers report of their tasks, by connector: rates together, and the largest lag."""
    found: dict[str, tuple[float, float | None]] = {}
    for report in reports:
        for name, (rate, lag) in report.items():
            rate_before, lag_before = found.get(name, (0.0, None))
            lags = [each for each in (lag, lag_before) if each is not None]
            found[name] = (rate_before + (rate or 0.0), max(lags) if lags else None)
    return found


def role(principal: Principal, connector: str | None = None) -> str | None:
    """The highest role for a connector, or for the whole cluster (None); None without any."""
    return next((str(each) for each in _ROLES if principal.may(each, connector)), None)


def _rounded(value: float) -> float:
    """Two digits are enough to look at, and what hardly changes is not sent again."""
    return float(f"{value:.2g}") if value < 100 else float(round(value))
