"""Records of the progress of snapshots, for a topic: one per table when it has changed, none once it is over. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors import schema as connect
from connectors.api import SourceRecord
from connectors.schema import struct
from connectors.snapshot.state import ELSEWHERE, shown_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from connectors.api import Position

_FIELDS: Final = ("rows_total", "rows_done", "rows_per_s", "percent", "eta_s", "error")


class ProgressRecords:
    """Makes the records of a task.

    Args:
        topic: where they go; "": nowhere.
        interval_s: the least time between two records of a table.
        name: begins the names of the records' schemas: ``io.millrace.mysql``.
        shard: the task's share, as the records have it.
        position: source partition and offset of a request's records.
    """

    def __init__(
        self,
        topic: str,
        interval_s: float,
        *,
        name: str,
        shard: str,
        position: Callable[[str], tuple[Position, Position]],
    ) -> None:
        self._topic = topic
        self._interval_s = interval_s
        self._shard = shard
        self._position = position
        self._key = struct(f"{name}.Progress.Key", {"snapshot": connect.STRING, "table": connect.STRING})
        self._value = struct(
            f"{name}.Progress",
            {
                "snapshot": connect.STRING,
                "table": connect.STRING,
                "shard": connect.STRING,
                "state": connect.STRING,
                "rows_total": connect.OPTIONAL_INT64,
                "rows_done": connect.INT64,
                "rows_per_s": connect.OPTIONAL_FLOAT64,
                "percent": connect.OPTIONAL_FLOAT64,
                "eta_s": connect.OPTIONAL_FLOAT64,
                "error": connect.OPTIONAL_STRING,
                "ts_ms": connect.INT64,
            },
        )
        self._sent_s = float("-inf")
        #: The last values by request and table, without their time.
        self._last: dict[tuple[str, str], dict[str, Any]] = {}

    def due(self, now_s: float, *, last: bool = False) -> bool:
        """Whether ``records`` may be sent at this time (monotonic), or are the last ones."""
        return bool(self._topic) and (last or now_s - self._sent_s >= self._interval_s)

    def records(self, requests: Iterable[Mapping[str, Any]], now_s: float, now_ms: int) -> list[SourceRecord]:
        """The records of tables that have changed since the last call.

        Args:
            requests: all requests of the task as ``shown_note`` shows them.
            now_s: seconds, monotonic.
            now_ms: milliseconds since 1970.
        """
        self._sent_s = now_s
        records = []
        last, self._last = self._last, {}
        for request in requests:
            name = str(request["id"])
            for table in request["tables"]:
                if table["state"] == ELSEWHERE:
                    continue
                value = {
                    "snapshot": name,
                    "table": table["table"],
                    "shard": self._shard,
                    "state": shown_state(table["state"]),
                    **{field: table.get(field) for field in _FIELDS},
                }
                key = name, table["table"]
                self._last[key] = value
                if last.get(key) == value:
                    continue
                partition, offset = self._position(name)
                records.append(
                    SourceRecord(
                        partition,
                        offset,
                        self._topic,
                        {**value, "ts_ms": now_ms},
                        self._value,
                        {"snapshot": name, "table": table["table"]},
                        self._key,
                    )
                )
        return records
