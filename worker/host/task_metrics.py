"""The numbers that a connector reports of its own: what it declares, with a bound on the series of tables and topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.protocol import CustomMetric

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping

#: Labels whose values senders decide: they are folded first, so that what there is of each table stays apart for longer.
SENDERS: Final = frozenset({"host", "input"})
#: Labels whose values the source decides: as many as it has tables.
BOUNDED: Final = frozenset({"table", "topic", "database", "keyspace", "partition"}) | SENDERS
OTHER: Final = "other"

_Labels = tuple[tuple[str, str], ...]


def _to_number(value: float) -> float:
    """A number as a report can carry it: a truth value or another library's number would end the pipe to the worker."""
    return value if type(value) in {int, float} else float(value)


def _to_label(raw: object) -> str:
    """A label as a report can carry it: connectors have table ids, partitions and the like at hand."""
    label = raw if type(raw) is str else str(raw)
    # Half of a surrogate pair, which JSON's escapes may give, would end the pipe as well.
    return label if label.isascii() else label.encode("utf-8", "replace").decode()


class Metrics:
    """The ``TaskMetrics`` of a task: only what its connector declares.

    A metric has at most ``max_series`` label sets with tables (or what else the source decides). What comes beyond them goes
    into one more, whose table is ``other``: the sum of counters, the largest gauge since the last report. That is counted, and
    logged once. Of a metric with tables and hosts the hosts are ``other`` first, for up to ``max_series`` tables more.

    Args:
        declared: name -> (kind, help), as in ``SourceConnector.metrics``.
        max_series: label sets of a metric.
        log: for the warning.
    """

    def __init__(
        self,
        declared: Mapping[str, tuple[str, str]],
        max_series: int,
        log: logging.LoggerAdapter[logging.Logger] | None = None,
    ) -> None:
        self._declared = declared
        self._most = max_series
        self._log = log
        self._values: dict[str, dict[_Labels, float]] = {}
        #: Gauges of ``other`` that have a value since the last report.
        self._fresh: set[tuple[str, _Labels]] = set()
        self.folded = 0

    def set(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Set a gauge."""
        value = _to_number(value)
        values, key, folded = self._find_series(name, labels)
        if folded:
            if (name, key) in self._fresh:
                value = max(value, values[key])
            self._fresh.add((name, key))
        values[key] = value

    def add(self, name: str, value: float = 1, labels: Mapping[str, str] | None = None) -> None:
        """Add to a counter."""
        value = _to_number(value)
        values, key, _ = self._find_series(name, labels)
        values[key] = values.get(key, 0.0) + value

    def _find_series(self, name: str, labels: Mapping[str, str] | None) -> tuple[dict[_Labels, float], _Labels, bool]:
        if name not in self._declared:
            raise ValueError(f"metric {name!r} is not declared in the connector's metrics: {sorted(self._declared)}")
        values = self._values.setdefault(name, {})
        key = tuple(sorted((label, _to_label(label_value)) for label, label_value in labels.items())) if labels else ()
        if key in values or len(values) < self._most or not any(label in BOUNDED for label, _ in key):
            return values, key, False
        if not self.folded and self._log is not None:
            self._log.warning(
                "more tables or hosts than metrics.tables.max=%d: further ones share the series %r of each metric",
                self._most,
                OTHER,
            )
        self.folded += 1
        of_table = tuple((label, OTHER if label in SENDERS else label_value) for label, label_value in key)
        if of_table != key and (of_table in values or len(values) < 2 * self._most):
            return values, of_table, True
        return values, tuple((label, OTHER if label in BOUNDED else label_value) for label, label_value in key), True

    def report(self) -> list[CustomMetric]:
        """All series as they are now."""
        self._fresh.clear()
        return [
            CustomMetric(name, self._declared[name][0], value, dict(labels))
            for name, values in self._values.items()
            for labels, value in values.items()
        ]
