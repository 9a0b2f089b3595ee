"""Records in Debezium's envelope, equal to those of its MySQL and MariaDB connectors."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from connectors.api import Header, SourceRecord
from connectors.formats.order_number import row_number
from connectors.mysql.events.debezium_code import Clock, compile_loops
from connectors.mysql.events.envelope import schemas_of, source_block
from connectors.mysql.events.headers import NEW_KEY, OLD_KEY
from connectors.mysql.events.shaping import make_shaper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from connectors.api import Position
    from connectors.mysql.events.contract import Marker, MySqlEventSettings, Row
    from connectors.mysql.events.transactions import Transactions
    from connectors.mysql.model import RowSource
    from connectors.mysql.schema.columns import ColumnLayout


class MySqlDebeziumEvents:
    """Makes records of one structure of a table; see ``MySqlTableEvents``.

    Attributes:
        schemas: of the records.
        topic: where they go.
        headers: of each record.
        settings: see ``MySqlEventSettings``.
        left_out: see ``MySqlTableEvents``.

    Where Debezium stops at a row of which the server has not logged all columns (``binlog_row_image`` is not FULL), the record
    has an envelope with optional fields: a column of the row after an update that was not logged is taken from the row before,
    and one that is in neither is null.
    """

    def __init__(
        self,
        layout: ColumnLayout,
        settings: MySqlEventSettings,
        partition: Position,
        transactions: Transactions | None = None,
        headers: tuple[Header, ...] = (),
        now_ns: Callable[[], int] | None = None,
    ) -> None:
        """Compile it (about a millisecond).

        Raises:
            ConfigInvalid: the topic's name can't be made.
        """
        self.schemas = schemas_of(layout, settings)
        self.topic = self.schemas.topic
        self.left_out = 0
        self._layout = layout
        self._name = layout.table.name
        self.settings = settings
        self._partition = partition
        self._transactions = transactions
        self.headers = headers
        self._now_ns = now_ns or time.time_ns
        self._fixed: Clock | None = None
        self._columns = sum(plan is not None for plan in layout.plans)
        self._shape = make_shaper(layout)
        self._loops = compile_loops(layout, self.schemas, settings, partition, headers, self._shape, self._add_unusual)
        self._all = {"c": self._loops.creates, "u": self._loops.updates, "d": self._loops.deletes}

    def changes(
        self,
        op: Literal["c", "u", "d"],
        rows: Sequence[Row | None],
        source: RowSource,
        first_row: int,
        base: Position,
        after: Position,
        out: list[SourceRecord],
    ) -> None:
        """See ``MySqlTableEvents.changes``.

        Raises:
            Skippable: a mask needs a field that the row doesn't have.
        """
        if op in self.settings.skipped:
            # Of updates also those that change the key, as in Debezium.
            owned = sum(row is not None for row in rows)
            self.left_out += (owned + 1) // 2 if op == "u" else owned
            return
        start = len(out)
        block = self._make_source(source)
        self.left_out += self._all[op](rows, first_row, block, base, self.clock(), out.append)
        if len(out) == start:
            return
        end = first_row + (len(rows) // 2 if op == "u" else len(rows))
        if out[-1].source_offset.get("row") == end:
            out[-1].source_offset = after
        if 0 < source.size < end:
            # A compressed event with more rows than bytes: order numbers must stay below the next event's.
            for index in range(start, len(out)):
                if (value := out[index].value) is not None:
                    value["source"]["row"] = row_number(value["source"]["row"], source.size)
        if self._transactions is not None:
            self._transactions.count(self._name, out, start)

    def snapshot(
        self,
        rows: Iterable[Row],
        source: RowSource,
        marker: Marker,
        offset: Position,
        out: list[SourceRecord],
        *,
        first: Marker | None = None,
        last: Marker | None = None,
        batch: int = 0,
    ) -> None:
        """See ``MySqlTableEvents.snapshot``."""
        del batch
        if "r" in self.settings.skipped:
            self.left_out += sum(1 for _ in rows)
            return
        start = len(out)
        block = self._make_source(source, marker)
        self._loops.reads(rows, block, offset, self.clock(), out.append)
        if len(out) > start:
            for record, snapshot_marker in ((out[start], first), (out[-1], last)):
                if snapshot_marker is not None:
                    record.value["source"]["snapshot"] = snapshot_marker

    def truncate(self, source: RowSource, offset: Position, out: list[SourceRecord]) -> None:
        """See ``MySqlTableEvents.truncate``."""
        if "t" in self.settings.skipped:
            self.left_out += 1
            return
        value = self._make_value("t", None, None, self._make_source(source), self.clock())
        # The key has no schema either: a truncation is about no key.
        out.append(
            SourceRecord(self._partition, offset, self.topic, value, self.schemas.envelope, headers=self.headers)
        )
        if self._transactions is not None:
            self._transactions.count(self._name, out, len(out) - 1)

    def _make_source(self, source: RowSource, marker: str = "false") -> dict[str, Any]:
        block = source_block(self.settings, source, self._name, marker)
        return block | self.schemas.part if self.schemas.part else block

    @property
    def plain(self) -> bool:
        """Whether each row becomes its own records, whatever was before it."""
        return self._transactions is None

    def clock(self) -> Clock:
        """The time of processing."""
        if self._fixed is not None:
            return self._fixed
        now = self._now_ns()
        return now // 1_000_000, now // 1000, now

    @contextmanager
    def at(self, clock: Clock) -> Iterator[None]:
        """Let ``clock`` be the time of processing, to make records a second time."""
        self._fixed, left_out = clock, self.left_out
        try:
            yield
        finally:
            self._fixed, self.left_out = None, left_out

    @staticmethod
    def _make_value(
        op: str, before: Row | None, after: Row | None, block: dict[str, Any], clock: Clock
    ) -> dict[str, Any]:
        return {
            "before": before,
            "after": after,
            "source": block,
            "transaction": None,
            "op": op,
            "ts_ms": clock[0],
            "ts_us": clock[1],
            "ts_ns": clock[2],
        }

    def _add_unusual(
        self,
        op: str,
        before: Row | None,
        after: Row | None,
        number: int,
        source: dict[str, Any],
        base: Position,
        clock: Clock,
        append: Callable[[SourceRecord], None],
    ) -> int:
        """The records of a row that is another shard's in part, is not complete, or has got a new key."""
        if before is None and after is None:
            return 0
        complete = all(row is None or len(row) == self._columns for row in (before, after))
        if before is not None and after is not None and not complete:
            after = {**before, **after}
        old, new = self._make_key(before), self._make_key(after)
        skipped = self.settings.skipped
        if op == "u" and before is not None and after is not None and (old is None or old == new):
            shown = (self._shape_row(before), self._shape_row(after))
            if self.settings.skip_unchanged and shown[0] == shown[1]:
                return 1
            steps: list[tuple[str, Row | None, Row | None, Any, tuple[Header, ...]]] = [("u", *shown, new, ())]
        else:
            steps = []
            if before is not None and "d" not in skipped:
                header = (Header(NEW_KEY, new, self.schemas.key),) if new is not None else ()
                steps.append(("d", self._shape_row(before), None, old, header))
                if self.settings.tombstones:
                    steps.append(("", None, None, old, header))
            if after is not None and "c" not in skipped:
                header = (Header(OLD_KEY, old, self.schemas.key),) if old is not None else ()
                steps.append(("c", None, self._shape_row(after), new, header))
        if not steps:
            return 1
        block, done, offset = {**source, "row": number}, {**base, "row": number}, {**base, "row": number + 1}
        envelope = self.schemas.envelope if complete else self.schemas.partial
        for index, (step, shown_before, shown_after, key, headers) in enumerate(steps, 1):
            # The records of one row are of one place: Debezium gives them the same source.
            value = self._make_value(step, shown_before, shown_after, block.copy(), clock) if step else None
            append(
                SourceRecord(
                    self._partition,
                    offset if index == len(steps) else done,
                    self.topic,
                    value,
                    envelope if step else None,
                    key,
                    self.schemas.key,
                    None,
                    headers + self.headers,
                )
            )
        return 0

    def _make_key(self, row: Row | None) -> dict[str, Any] | None:
        """The key of a row; None if the table has no key, or the row doesn't have its columns."""
        if row is None or any(field.column not in row for field in self._layout.key):
            return None
        return self._loops.key(row)

    def _shape_row(self, row: Row) -> Row:
        return row if self._shape is None else self._shape(row)
