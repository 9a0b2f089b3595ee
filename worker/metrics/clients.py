"""The series of Kafka clients: some by their ids, all others together, over a worker's processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.protocol import ClientStats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OTHER: Final = "other"
_COUNTERS: Final = ClientStats.__struct_fields__[3:]


class ClientSeries:
    """Sums by kind and client id.

    A client has its series for as long as a process reports it. The others' counters are added up from report to report: a
    client that ends, or gets a series of its own, would take its part of the sum along, and a counter must not fall.
    """

    def __init__(self) -> None:
        self._named: dict[str, set[str]] = {}
        self._others: dict[str, ClientStats] = {}
        #: The last report of each of the others, by process, kind and id.
        self._last: dict[tuple[int, str, str], ClientStats] = {}

    def sum_up(self, processes: Mapping[int, Iterable[ClientStats]], most: int) -> dict[str, dict[str, ClientStats]]:
        """Kind -> client id -> the sum over all processes.

        Args:
            processes: the latest report of each.
            most: how many clients of a kind have a series of their own.
        """
        reports = [(process, stats) for process, clients in processes.items() for stats in clients if stats.kind]
        present = {(stats.kind, stats.client_id) for _, stats in reports}
        for kind, ids in self._named.items():
            ids.intersection_update([client_id for client_id in ids if (kind, client_id) in present])
        sums: dict[str, dict[str, ClientStats]] = {}
        last: dict[tuple[int, str, str], ClientStats] = {}
        connections: dict[str, int] = {}
        for process, stats in reports:
            ids = self._named.setdefault(stats.kind, set())
            if stats.client_id in ids or len(ids) < most:
                ids.add(stats.client_id)
                by_id = sums.setdefault(stats.kind, {})
                by_id.setdefault(stats.client_id, ClientStats(stats.client_id, stats.kind)).add(stats)
            else:
                key = (process, stats.kind, stats.client_id)
                others = self._others.setdefault(stats.kind, ClientStats(OTHER, stats.kind))
                others.add(_growth(self._last.get(key), stats))
                connections[stats.kind] = connections.get(stats.kind, 0) + stats.connections
                last[key] = stats
        self._last = last
        for kind, others in self._others.items():
            others.connections = connections.get(kind, 0)
            sums.setdefault(kind, {}).setdefault(OTHER, ClientStats(OTHER, kind)).add(others)
        return sums


def _growth(before: ClientStats | None, now: ClientStats) -> ClientStats:
    """The counters' growth since an earlier report; a process that was replaced counts from 0."""
    if before is None or any(getattr(now, name) < getattr(before, name) for name in _COUNTERS):
        return now
    growth = now.copy()
    for name in _COUNTERS:
        setattr(growth, name, getattr(now, name) - getattr(before, name))
    return growth
