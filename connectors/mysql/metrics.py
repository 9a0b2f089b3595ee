"""The numbers that tasks of the MySQL connector report, and how a running task reports them.

Names and meanings are those of Debezium's MBeans, as dashboards have them (``debezium_metrics_...``); what Debezium has no
number for is called ``mysql_...`` or ``snapshot_...``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from connectors import debezium_metrics as debezium
from connectors.mysql.snapshot import model as snapshot_model
from connectors.mysql.stream import latency as heartbeats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.api import TaskMetrics

_PREFIX: Final = debezium.PREFIX

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
UNENDED: Final = f"{_PREFIX}NumberOfNotWellFormedTransactions"
SKIPPED: Final = f"{_PREFIX}NumberOfSkippedEvents"
OMITTED: Final = f"{_PREFIX}NumberOfEventsSkipped"
DISCONNECTS: Final = f"{_PREFIX}NumberOfDisconnects"
SINCE_LAST_S: Final = f"{_PREFIX}SecondsSinceLastEvent"
POSITION: Final = f"{_PREFIX}BinlogPosition"
FILE: Final = "mysql_binlog_file_number"
GTIDS: Final = f"{_PREFIX}IsGtidModeEnabled"
SNAPSHOT_ROWS_ESTIMATED: Final = "mysql_snapshot_rows_estimated"
SCHEMA_CHANGES: Final = "mysql_schema_changes_total"

_STREAMING: Final = (
    "Connected",
    *debezium.BEHIND,
    "MilliSecondsSinceLastEvent",
    "SecondsSinceLastEvent",
    "TotalNumberOfEventsSeen",
    "TotalNumberOfCreateEventsSeen",
    "TotalNumberOfUpdateEventsSeen",
    "TotalNumberOfDeleteEventsSeen",
    "NumberOfEventsFiltered",
    "NumberOfErroneousEvents",
    "NumberOfEventsSkipped",
    "NumberOfSkippedEvents",
    "NumberOfCommittedTransactions",
    "NumberOfRolledBackTransactions",
    "NumberOfNotWellFormedTransactions",
    "NumberOfLargeTransactions",
    "NumberOfDisconnects",
    "BinlogPosition",
    "IsGtidModeEnabled",
)
_SNAPSHOT: Final = (*debezium.SNAPSHOTS, "HoldingGlobalLock")
_HISTORY: Final = (
    "ChangesRecovered",
    "ChangesApplied",
    "RecoveryStartTime",
    "MilliSecondsSinceLastRecoveredChange",
    "MilliSecondsSinceLastAppliedChange",
)
#: Which context a metric is of, where it is not the stream.
CONTEXTS: Final = {
    f"{_PREFIX}{name}": context
    for names, context in ((_SNAPSHOT, debezium.SNAPSHOT), (_HISTORY, debezium.HISTORY))
    for name in names
}
#: What a snapshot has besides, of what the stream has too.
_IN_SNAPSHOT: Final = {"context": debezium.SNAPSHOT}

#: Name -> (kind, help), for ``SourceConnector.metrics``. Label ``table`` where a number is of one table.
METRICS: Final[dict[str, tuple[str, str]]] = {
    **debezium.declare_metrics(*_STREAMING, *_SNAPSHOT, *_HISTORY),
    FILE: ("gauge", "Number of the binlog file that is being read."),
    SNAPSHOT_ROWS_ESTIMATED: ("gauge", "Rows that it has to send, as the server estimates."),
    SCHEMA_CHANGES: (
        "counter",
        "Changes of the structure of captured tables that were seen since the task's start, by table.",
    ),
    **heartbeats.METRICS,
    **snapshot_model.METRICS,
}

_TOTALS: Final = {
    EVENTS: "events",
    CREATES: "creates",
    UPDATES: "updates",
    DELETES: "deletes",
    FILTERED: "filtered",
    ERRONEOUS: "bad",
    COMMITTED: "transactions",
    ROLLED_BACK: "rolled_back",
    LARGE: "large",
    UNENDED: "unended",
}


class BinlogCounts(Protocol):
    """A stream's counts since it was started; see ``connectors.mysql.stream.counters.StreamCounters``."""

    last_ts_ms: int
    snapshot_bad: int


class At(Protocol):
    """Where a stream is; see ``connectors.mysql.position.cursor.BinlogCursor``."""

    file: str
    pos: int
    executed: Any


class ClientState(Protocol):
    """See ``connectors.mysql.source.binlog.BinlogClient``."""

    @property
    def pending(self) -> bool:
        """Whether more is there now."""


def report_task(
    to: TaskMetrics,
    *,
    counters: BinlogCounts,
    cursor: At,
    client: ClientState,
    latency: Mapping[str, float],
    snapshots: Sequence[Mapping[str, Any]],
    behind: debezium.Behind,
    behind_bytes: int | None = None,
    keep_going: bool = True,
) -> None:
    """Report all numbers of a task; call it every second or so. Does not block.

    Args:
        to: takes them.
        counters: of the stream. It also holds the values reported so far, so that a new stream continues from them.
        cursor: where the stream is.
        client: reads for it.
        latency: ``HeartbeatLatency.numbers``.
        snapshots: ``MySqlSnapshotReader.progress``.
        behind: of the task.
        keep_going: whether rows that can't be decoded are left out.
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
        if name == ERRONEOUS:
            to.add(SKIPPED, grown if keep_going else 0)
            to.add(OMITTED, grown if keep_going else 0)
    age_ms = now_ms - counters.last_ts_ms if counters.last_ts_ms else -1
    to.set(CONNECTED, 1)
    to.add(DISCONNECTS, 0)
    to.set(SINCE_LAST_MS, age_ms)
    to.set(SINCE_LAST_S, age_ms / 1000 if age_ms >= 0 else -1)
    behind_ms = max(0, age_ms) if fresh or client.pending else 0
    behind.report(to, behind_ms)
    to.set(heartbeats.LAG_SECONDS, behind_ms / 1000)
    to.set(POSITION, cursor.pos)
    number = cursor.file.rpartition(".")[2]
    to.set(FILE, int(number) if number.isdigit() else 0)
    to.set(GTIDS, 0 if cursor.executed is None else 1)
    if behind_bytes is not None:
        to.set(heartbeats.LAG_BYTES, behind_bytes)
    for name, seconds in latency.items():
        to.set(name, seconds)
    _report_snapshots(to, snapshots, now_ms, before, counters.snapshot_bad, keep_going=keep_going)


def report_stopped(to: TaskMetrics) -> None:
    """The binlog connection, which stood, is gone."""
    to.set(CONNECTED, 0)
    to.add(DISCONNECTS, 1)


class SchemaHistory:
    """The structures of tables that a task knows, as Debezium tells of its schema history."""

    def __init__(self, recovered: int) -> None:
        """``recovered`` versions of tables were known at the start, which is now."""
        self._recovered = recovered
        self._began = self._applied_at = time.time()
        self._new = recovered
        self._reported = False
        self._changed: list[str] = []

    def applied(self, tables: Iterable[str]) -> None:
        """A statement changed the structure of these captured tables."""
        self._new += 1
        self._changed += tables
        self._applied_at = time.time()

    def report(self, to: TaskMetrics) -> None:
        """Report it. Does not block."""
        now = time.time()
        to.add(f"{_PREFIX}ChangesRecovered", 0 if self._reported else self._recovered)
        to.add(f"{_PREFIX}ChangesApplied", self._new)
        for table in self._changed:
            to.add(SCHEMA_CHANGES, 1, {"table": table})
        self._changed.clear()
        to.set(f"{_PREFIX}RecoveryStartTime", int(self._began))
        to.set(f"{_PREFIX}MilliSecondsSinceLastRecoveredChange", (now - self._began) * 1000)
        to.set(f"{_PREFIX}MilliSecondsSinceLastAppliedChange", (now - self._applied_at) * 1000)
        self._new, self._reported = 0, True


def _report_snapshots(
    to: TaskMetrics,
    snapshots: Sequence[Mapping[str, Any]],
    now_ms: int,
    before: dict[str, int],
    bad: int,
    *,
    keep_going: bool,
) -> None:
    running = sum(snapshot.get("state") == "running" for snapshot in snapshots)
    to.set(heartbeats.SNAPSHOT_RUNNING, running)
    debezium.report_snapshots(to, snapshots, now_ms)
    to.set(f"{_PREFIX}HoldingGlobalLock", 0)
    for snapshot in debezium.in_order(snapshots):
        for table in debezium.tables_of(snapshot):
            total = table.get("rows_total", table.get("total"))
            if total is not None:
                to.set(SNAPSHOT_ROWS_ESTIMATED, total, {"table": str(table.get("table"))})
    finished = max((snapshot.get("finished_ms") or 0 for snapshot in snapshots), default=0)
    to.set(SINCE_LAST_MS, 0 if running else now_ms - finished if finished else -1, _IN_SNAPSHOT)
    rows = sum(debezium.rows_of(table) for snapshot in snapshots for table in debezium.tables_of(snapshot))
    for name, total in ((EVENTS, rows), (ERRONEOUS, bad), (OMITTED, bad if keep_going else 0), (FILTERED, 0)):
        # a completed snapshot may be forgotten: its numbers are not subtracted
        to.add(name, max(0, total - before.get(f"snapshot {name}", 0)), _IN_SNAPSHOT)
        before[f"snapshot {name}"] = total
