"""Debezium's metrics, by the names that its dashboards have: ``debezium_metrics_<attribute>`` of a plugin, name and context.

Names, contexts and units are those of Debezium's monitoring documentation; labels those of the exporter rules in its examples.
A connector shows the values that it has. Strings (file names, chunk bounds, ids) are not numbers and have no series.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.api import TaskMetrics

PREFIX: Final = "debezium_metrics_"
STREAMING: Final = "streaming"
SNAPSHOT: Final = "snapshot"
HISTORY: Final = "schema-history"

#: Label sets of a gauge that are looked at for the largest.
_MOST_PARTS: Final = 1000

CONNECTED: Final = f"{PREFIX}Connected"
SNAPSHOT_RUNNING: Final = f"{PREFIX}SnapshotRunning"

#: Attribute -> (kind, help).
_ATTRIBUTES: Final[dict[str, tuple[str, str]]] = {
    "Connected": ("gauge", "1 while the source is connected."),
    "MilliSecondsBehindSource": (
        "gauge",
        "Milliseconds since the change that was read last was made; 0 while none is new.",
    ),
    "MilliSecondsBehindSourceMinValue": ("gauge", "The smallest of these since the task started."),
    "MilliSecondsBehindSourceMaxValue": ("gauge", "The largest of these since the task started."),
    "MilliSecondsBehindSourceAverageValue": ("gauge", "Their average since the task started, taken every second."),
    "SecondsBehindMaster": ("gauge", "The same in seconds, under the name that older versions gave it."),
    "MilliSecondsSinceLastEvent": (
        "gauge",
        "Milliseconds since the last change of a captured table; -1 before the first.",
    ),
    "SecondsSinceLastEvent": ("gauge", "The same in seconds, under the name that older versions gave it."),
    "TotalNumberOfEventsSeen": (
        "counter",
        "Events of the source with changes of captured tables; rows, in a snapshot.",
    ),
    "TotalNumberOfCreateEventsSeen": ("counter", "Rows inserted into captured tables."),
    "TotalNumberOfUpdateEventsSeen": ("counter", "Rows updated in captured tables."),
    "TotalNumberOfDeleteEventsSeen": ("counter", "Rows deleted from captured tables."),
    "NumberOfEventsFiltered": ("counter", "Events with changes that were left out by a filter."),
    "NumberOfErroneousEvents": ("counter", "Rows that could not be decoded."),
    "NumberOfEventsSkipped": (
        "counter",
        "Changes left out because of their kind, or because they could not be decoded.",
    ),
    "NumberOfSkippedEvents": ("counter", "Events that were left out since they could not be decoded."),
    "NumberOfCommittedTransactions": ("counter", "Transactions read to their commit."),
    "NumberOfRolledBackTransactions": ("counter", "Transactions in the log that were rolled back."),
    "NumberOfNotWellFormedTransactions": ("counter", "Transactions in the log without an end."),
    "NumberOfLargeTransactions": (
        "counter",
        "Transactions that were sent in several batches before their end was read.",
    ),
    "NumberOfDisconnects": ("counter", "Connections to the source that ended while the task ran."),
    "BinlogPosition": ("gauge", "Position in the binlog file that is being read."),
    "IsGtidModeEnabled": (
        "gauge",
        "1 if the server knows transactions by GTIDs, so that the stream can continue at another one.",
    ),
    "CommitlogPosition": ("gauge", "Position in the commit log segment that is being read."),
    "NumberOfProcessedMutations": ("counter", "Mutations read from the commit log."),
    "NumberOfUnrecoverableErrors": ("counter", "Mutations and segments that could not be read."),
    "SnapshotRunning": ("gauge", "1 while a snapshot runs."),
    "SnapshotPaused": ("gauge", "1 while none runs and one is paused."),
    "SnapshotCompleted": ("gauge", "1 if the youngest snapshot was read to its end."),
    "SnapshotAborted": ("gauge", "1 if the youngest snapshot was cancelled or failed."),
    "SnapshotSkipped": ("gauge", "1 if no snapshot was asked for since the connector was made."),
    "SnapshotDurationInSeconds": (
        "gauge",
        "How long the youngest snapshot has taken, pauses included; 0 before the first.",
    ),
    "TotalTableCount": ("gauge", "Tables of snapshots that are not over, of which the task reads a part or all."),
    "RemainingTableCount": ("gauge", "Those of them whose part has not been read to its end."),
    "RowsScanned": ("gauge", "Rows of a table that the youngest snapshot of it has sent."),
    "HoldingGlobalLock": (
        "gauge",
        "1 while a snapshot holds a lock on the whole server: never, no snapshot takes one.",
    ),
    "ChangesRecovered": ("counter", "Versions of tables that were known when the task started."),
    "ChangesApplied": ("counter", "Changes of tables' structure that were applied, those of the start included."),
    "RecoveryStartTime": ("gauge", "When the task read them, seconds since 1970."),
    "MilliSecondsSinceLastRecoveredChange": ("gauge", "Milliseconds since then."),
    "MilliSecondsSinceLastAppliedChange": ("gauge", "Milliseconds since a change was applied last."),
}


#: What ``report_snapshots`` reports.
SNAPSHOTS: Final = (
    "TotalTableCount",
    "RemainingTableCount",
    "SnapshotRunning",
    "SnapshotPaused",
    "SnapshotCompleted",
    "SnapshotAborted",
    "SnapshotSkipped",
    "SnapshotDurationInSeconds",
    "RowsScanned",
)
#: States of a snapshot that stay, and of one of its tables that has to be read on.
_OVER: Final = frozenset({"completed", "done", "cancelled", "failed"})
_TO_BE_READ: Final = frozenset({"waiting", "running", "paused"})


def declare_metrics(*attributes: str) -> dict[str, tuple[str, str]]:
    """Some of the metrics as a connector declares them (``SourceConnector.metrics``)."""
    return {f"{PREFIX}{name}": _ATTRIBUTES[name] for name in attributes}


class Labelled:
    """A ``TaskMetrics`` that gives Debezium's metrics their labels ``plugin``, ``name`` and ``context``.

    Args:
        to: takes them; all other metrics go there as they are.
        plugin: as in Debezium's JMX domains: mysql, cassandra ...
        name: the connector's ``topic.prefix``.
        contexts: metric -> context, for those that are not of ``streaming``.
    """

    def __init__(self, to: TaskMetrics, plugin: str, name: str, contexts: Mapping[str, str]) -> None:
        self._to = to
        self._base = {"plugin": plugin, "name": name}
        self._contexts = contexts

    def _extend_labels(self, name: str, labels: Mapping[str, str] | None) -> Mapping[str, str] | None:
        if not name.startswith(PREFIX):
            return labels
        return {**self._base, "context": self._contexts.get(name, STREAMING), **(labels or {})}

    def set(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Set a gauge."""
        self._to.set(name, value, self._extend_labels(name, labels))

    def add(self, name: str, value: float = 1, labels: Mapping[str, str] | None = None) -> None:
        """Add to a counter."""
        self._to.add(name, value, self._extend_labels(name, labels))


def in_order(snapshots: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Snapshots from the oldest to the newest; one that has not started counts as old."""
    return sorted(snapshots, key=lambda snapshot: snapshot.get("started_ms") or 0)


def tables_of(snapshot: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tables of a snapshot of which the task reads a part or all, as far as they are known."""
    return [table for table in snapshot.get("tables") or () if table.get("state") != "elsewhere"]


def rows_of(table: Mapping[str, Any]) -> int:
    """Rows of a snapshot's table that were sent."""
    return int(table.get("rows_done", table.get("done")) or 0)


def report_snapshots(to: TaskMetrics, snapshots: Sequence[Mapping[str, Any]], now_ms: int) -> None:
    """Report ``SNAPSHOTS``. Does not block.

    Args:
        to: takes them: a ``Labelled``.
        snapshots: all that the task knows of, those that are over too, as REST shows them: ``state``, ``started_ms``,
            ``finished_ms`` and ``tables``, each with ``table``, ``state`` and ``rows_done``.
        now_ms: milliseconds since 1970.
    """

    def tell(name: str, value: float, table: str = "") -> None:
        to.set(f"{PREFIX}{name}", value, {"context": SNAPSHOT, **({"table": table} if table else {})})

    states = [str(item.get("state")) for item in snapshots]
    ordered = in_order(snapshots)
    youngest: Mapping[str, Any] = ordered[-1] if ordered else {}
    state = str(youngest.get("state"))
    tables = [table for item in snapshots if str(item.get("state")) not in _OVER for table in tables_of(item)]
    tell("TotalTableCount", len(tables))
    tell("RemainingTableCount", sum(table.get("state") in _TO_BE_READ for table in tables))
    tell("SnapshotRunning", int("running" in states))
    tell("SnapshotPaused", int("running" not in states and "paused" in states))
    tell("SnapshotCompleted", int(state in ("completed", "done")))
    tell("SnapshotAborted", int(state in ("cancelled", "failed")))
    tell("SnapshotSkipped", int(not snapshots))
    tell("SnapshotDurationInSeconds", _duration_s(youngest, now_ms))
    for item in ordered:
        for table in tables_of(item):
            tell("RowsScanned", rows_of(table), str(table.get("table")))


def _duration_s(snapshot: Mapping[str, Any], now_ms: int) -> float:
    began = snapshot.get("started_ms") or 0
    return max(0, (snapshot.get("finished_ms") or now_ms) - began) / 1000 if began else 0.0


class Behind:
    """Smallest, largest and average of the milliseconds behind the source."""

    def __init__(self) -> None:
        self._least = self._most = self._sum = 0.0
        self._number = 0

    def report(self, to: TaskMetrics, behind_ms: float) -> None:
        """Take a value in and report all of them."""
        self._least = min(self._least, behind_ms) if self._number else behind_ms
        self._most = max(self._most, behind_ms)
        self._sum += behind_ms
        self._number += 1
        to.set(f"{PREFIX}MilliSecondsBehindSource", behind_ms)
        to.set(f"{PREFIX}SecondsBehindMaster", behind_ms / 1000)
        to.set(f"{PREFIX}MilliSecondsBehindSourceMinValue", self._least)
        to.set(f"{PREFIX}MilliSecondsBehindSourceMaxValue", self._most)
        to.set(f"{PREFIX}MilliSecondsBehindSourceAverageValue", self._sum / self._number)


BEHIND: Final = (
    "MilliSecondsBehindSource",
    "SecondsBehindMaster",
    "MilliSecondsBehindSourceMinValue",
    "MilliSecondsBehindSourceMaxValue",
    "MilliSecondsBehindSourceAverageValue",
)


class MirrorRule:
    """Says how one of a connector's own metrics becomes one of Debezium's.

    Args:
        attribute: Debezium's name. A gauge with several label sets shows the largest of them.
        convert: from the own value.
        context: of the metric.
    """

    __slots__ = ("attribute", "context", "convert")

    def __init__(self, attribute: str, convert: Callable[[float], float] = float, *, context: str = STREAMING) -> None:
        self.attribute = attribute
        self.convert = convert
        self.context = context


def seconds_to_ms(value: float) -> float:
    """Seconds as milliseconds."""
    return value * 1000


class Mirror:
    """A ``TaskMetrics`` that shows some of a connector's own metrics under Debezium's names too.

    Args:
        to: takes all of them.
        plugin: see ``Labelled``.
        name: see ``Labelled``.
        rules: own metric -> what it is for Debezium.
    """

    def __init__(self, to: TaskMetrics, plugin: str, name: str, rules: Mapping[str, tuple[MirrorRule, ...]]) -> None:
        self._to = to
        #: Takes Debezium's metrics that are not the connector's own under another name.
        self.debezium = Labelled(to, plugin, name, {})
        self._rules = rules
        self._behind = Behind()
        #: Newest value of each label set of a gauge that is shown as one number.
        self._parts: dict[str, dict[str, float]] = {}
        self._event_at = 0.0
        self._connected = False

    def connected(self) -> None:
        """The task has its connection: what has not counted yet is there with 0."""
        for rules in self._rules.values():
            for rule in rules:
                if _ATTRIBUTES[rule.attribute][0] == "counter":
                    self.debezium.add(f"{PREFIX}{rule.attribute}", 0, {"context": rule.context})
        self.debezium.add(f"{PREFIX}NumberOfDisconnects", 0)
        self.debezium.set(CONNECTED, 1)
        self._connected = True

    def disconnected(self) -> None:
        """The connection is gone; may be repeated."""
        if self._connected:
            self._connected = False
            self.debezium.set(CONNECTED, 0)
            self.debezium.add(f"{PREFIX}NumberOfDisconnects", 1)

    def set(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Set a gauge."""
        self._to.set(name, value, labels)
        for rule in self._rules.get(name, ()):
            shown = rule.convert(self._find_largest(name, value, labels))
            if rule.attribute == "MilliSecondsBehindSource":
                self._behind.report(self.debezium, shown)
                age_ms = (time.monotonic() - self._event_at) * 1000 if self._event_at else -1.0
                self.debezium.set(f"{PREFIX}MilliSecondsSinceLastEvent", age_ms)
                self.debezium.set(f"{PREFIX}SecondsSinceLastEvent", age_ms / 1000 if self._event_at else -1.0)
            else:
                self.debezium.set(f"{PREFIX}{rule.attribute}", shown, {"context": rule.context})

    def _find_largest(self, name: str, value: float, labels: Mapping[str, str] | None) -> float:
        parts = self._parts.setdefault(name, {})
        key = repr(sorted((labels or {}).items()))
        if key in parts or len(parts) < _MOST_PARTS:
            parts[key] = value
        return max(value, *parts.values())

    def add(self, name: str, value: float = 1, labels: Mapping[str, str] | None = None) -> None:
        """Add to a counter."""
        self._to.add(name, value, labels)
        for rule in self._rules.get(name, ()):
            self.debezium.add(f"{PREFIX}{rule.attribute}", rule.convert(value), {"context": rule.context})
            if rule.attribute == "TotalNumberOfEventsSeen" and rule.context == STREAMING and value > 0:
                self._event_at = time.monotonic()


def mirrored_metrics(rules: Mapping[str, tuple[MirrorRule, ...]]) -> dict[str, tuple[str, str]]:
    """Return the metrics that a ``Mirror`` shows, as a connector declares them."""
    names = {rule.attribute for attribute_rules in rules.values() for rule in attribute_rules} | {
        "Connected",
        "NumberOfDisconnects",
    }
    if "MilliSecondsBehindSource" in names:
        names |= {*BEHIND, "MilliSecondsSinceLastEvent", "SecondsSinceLastEvent"}
    return declare_metrics(*(name for name in _ATTRIBUTES if name in names))
