"""The numbers that tasks of the MySQL connector report, and how a running task reports them.

Names and meanings are those of Debezium's MBeans, as dashboards have them (``debezium_metrics_...``); what Debezium has no
number for is called ``mysql_...`` or ``snapshot_...``.
"""
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from connectors.mysql import latency as heartbeats
from connectors.mysql.snapshot import model as pulls_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.api import TaskMetrics

_PREFIX: Final = "debezium_metrics_"

CONNECTED: Final = f"{_PREFIX}Connected"
BEHIND_MS: Final = f"{_PREFIX}MilliSecondsBehindSource"
SINCE_LAST_MS: Final = f"{_PREFIX}MilliSecondsSinceLastEvent"
EVENTS: Final = f"{_PREFIX}TotalNumberOfEventsSeen"
CREATES: Final = f"{_PREFIX}TotalNumberOfCreateEventsSeen"
UPDATES: Final = f"{_PREFIX}TotalNumberOfUpdateEventsSeen"
DELETES: Final = f"{_PREFIX}TotalNumberOfDeleteEventsSeen"
FILTERED: Final = f"{_PREFIX}NumberOfEventsFiltered"
ERRONEOUS: Final = f"{_PREFIX}NumberOfErroneousEvents"
COMMITTED: Final = f"{_PREFIX}NumberOfCommittedTransactions"
ROLLED_BACK: Final = f"{_PREFIX}NumberOfRolledBackTransactions"
LARGE: Final = f"{_PREFIX}NumberOfLargeTransactions"
POSITION: Final = f"{_PREFIX}BinlogPosition"
FILE: Final = "mysql_binlog_file_number"
GTIDS: Final = f"{_PREFIX}IsGtidModeEnabled"
TABLES: Final = f"{_PREFIX}TotalTableCount"
TABLES_LEFT: Final = f"{_PREFIX}RemainingTableCount"
PULL_RUNNING: Final = f"{_PREFIX}SnapshotRunning"
PULL_PAUSED: Final = f"{_PREFIX}SnapshotPaused"
PULL_COMPLETED: Final = f"{_PREFIX}SnapshotCompleted"
PULL_ABORTED: Final = f"{_PREFIX}SnapshotAborted"
PULL_ROWS: Final = f"{_PREFIX}RowsScanned"
PULL_TOTAL: Final = "mysql_snapshot_rows_estimated"

#: Name -> (kind, help), for ``SourceConnector.metrics``. Label ``table`` where a number is of one table.
METRICS: Final[dict[str, tuple[str, str]]] = {
    CONNECTED: ("gauge", "1 while the binlog connection stands."),
    BEHIND_MS: ("gauge", "How long ago the change was committed that was read last, milliseconds; 0 while there is none new."),
    SINCE_LAST_MS: ("gauge", "Milliseconds since the last change of a captured table was committed; -1 before the first."),
    EVENTS: ("counter", "Events of the binlog with changes of captured tables."),
    CREATES: ("counter", "Rows inserted into captured tables."),
    UPDATES: ("counter", "Rows updated in captured tables."),
    DELETES: ("counter", "Rows deleted from captured tables."),
    FILTERED: ("counter", "Events of the binlog with changes that were left out by a filter."),
    ERRONEOUS: ("counter", "Rows that could not be decoded."),
    COMMITTED: ("counter", "Transactions read to their commit."),
    ROLLED_BACK: ("counter", "Transactions in the binlog that were rolled back."),
    LARGE: ("counter", "Transactions that were sent in several batches before their end was read."),
    POSITION: ("gauge", "Position in the binlog file that is being read."),
    FILE: ("gauge", "Number of that file."),
    GTIDS: ("gauge", "1 if the server knows transactions by GTIDs, so that the stream can go on at another one."),
    TABLES: ("gauge", "Tables of full pulls that are not over."),
    TABLES_LEFT: ("gauge", "Those of them that have not been read to their end."),
    PULL_RUNNING: ("gauge", "1 while a full pull runs."),
    PULL_PAUSED: ("gauge", "1 while none runs and one is paused."),
    PULL_COMPLETED: ("gauge", "1 if the youngest full pull was read to its end."),
    PULL_ABORTED: ("gauge", "1 if the youngest full pull was cancelled or failed."),
    PULL_ROWS: ("gauge", "Rows of a table that the youngest full pull of it has sent."),
    PULL_TOTAL: ("gauge", "Rows that it has to send, as the server estimates."),
    **heartbeats.METRICS,
    **pulls_model.METRICS,
}

_TOTALS: Final = {
    EVENTS: "events", CREATES: "creates", UPDATES: "updates", DELETES: "deletes", FILTERED: "filtered", ERRONEOUS: "bad",
    COMMITTED: "transactions", ROLLED_BACK: "rolled_back", LARGE: "large",
}
_OVER: Final = frozenset({"completed", "done", "cancelled", "failed"})


class Counts(Protocol):
    """What a stream counts since it was started; see ``connectors.mysql.stream.Counters``."""

    last_ts_ms: int


class At(Protocol):
    """Where a stream is; see ``connectors.mysql.cursor.Cursor``."""

    file: str
    pos: int
    executed: Any


class Client(Protocol):
    """See ``connectors.mysql.binlog.BinlogClient``."""

    @property
    def pending(self) -> bool:
        """Whether more is there now."""


def report(to: TaskMetrics, *, counters: Counts, cursor: At, client: Client, latency: Mapping[str, float],
           pulls: Sequence[Mapping[str, Any]], behind_bytes: int | None = None) -> None:
    """Report all numbers of a task; call it every second or so. Does not block.

    Args:
        to: takes them.
        counters: of the stream. What was reported of them is noted in it, so that a new stream goes on counting.
        cursor: where the stream is.
        client: reads for it.
        latency: ``Latency.numbers``.
        pulls: ``Puller.progress``.
        behind_bytes: bytes of the binlog that were not read, if that is known.
    """
    now_ms = time.time_ns() // 1_000_000
    before: dict[str, int] = vars(counters).setdefault("reported", {})
    fresh = False
    for name, attribute in _TOTALS.items():
        total = getattr(counters, attribute)
        grown = total - before.get(attribute, 0)
        fresh = fresh or (grown > 0 and name == EVENTS)
        before[attribute] = total
        to.add(name, grown)
    age_ms = now_ms - counters.last_ts_ms if counters.last_ts_ms else -1
    to.set(CONNECTED, 1)
    to.set(SINCE_LAST_MS, age_ms)
    behind_ms = max(0, age_ms) if fresh or client.pending else 0
    to.set(BEHIND_MS, behind_ms)
    to.set(heartbeats.LAG_SECONDS, behind_ms / 1000)
    to.set(POSITION, cursor.pos)
    number = cursor.file.rpartition(".")[2]
    to.set(FILE, int(number) if number.isdigit() else 0)
    to.set(GTIDS, 0 if cursor.executed is None else 1)
    if behind_bytes is not None:
        to.set(heartbeats.LAG_BYTES, behind_bytes)
    for name, seconds in latency.items():
        to.set(name, seconds)
    _report_pulls(to, pulls)


def stopped(to: TaskMetrics) -> None:
    """The binlog connection is gone."""
    to.set(CONNECTED, 0)


def _report_pulls(to: TaskMetrics, pulls: Sequence[Mapping[str, Any]]) -> None:
    states = [str(each.get("state")) for each in pulls]
    to.set(heartbeats.SNAPSHOT_RUNNING, states.count("running"))
    if not pulls:
        return
    under_way = [each for each, state in zip(pulls, states, strict=True) if state not in _OVER]
    tables = [table for each in under_way for table in _tables(each)]
    to.set(TABLES, len(tables))
    to.set(TABLES_LEFT, sum(table.get("state") in ("waiting", "running", "paused") for table in tables))
    to.set(PULL_RUNNING, int("running" in states))
    to.set(PULL_PAUSED, int("running" not in states and "paused" in states))
    youngest = str(max(pulls, key=lambda each: each.get("created_ms") or 0).get("state"))
    to.set(PULL_COMPLETED, int(youngest in ("completed", "done")))
    to.set(PULL_ABORTED, int(youngest in ("cancelled", "failed")))
    for each in sorted(pulls, key=lambda each: each.get("created_ms") or 0):
        for table in _tables(each):
            labels = {"table": str(table.get("table"))}
            to.set(PULL_ROWS, table.get("rows_done", table.get("done")) or 0, labels)
            total = table.get("rows_total", table.get("total"))
            if total is not None:
                to.set(PULL_TOTAL, total, labels)


def _tables(pull: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return pull.get("tables") or ()
