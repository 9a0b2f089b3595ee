"""Folds the events of a connector into tables, and compares each step with what the server had."""

from __future__ import annotations

import base64
import bisect
import contextlib
import ipaddress
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.integration.mysql.random_history import History, Position, Row, Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import SourceRecord

#: The table that tells where a history ends.
END = "the_end"
#: The signal table.
SIGNALS = "signals"
#: A value that the binlog did not have: anything counts as equal.
ANY = object()


class Event(NamedTuple):
    """One row event of a connector.

    Attributes:
        session: which run of the connector has sent it.
        task: the task's number in it.
    """

    session: int
    task: int
    op: str
    table: str
    position: Position
    row: int
    before: Row | None
    after: Row | None
    key: Row | None

    def __str__(self) -> str:
        return (
            f"{self.op} of {self.table} at {self.position.file}:{self.position.pos}/{self.row} (run {self.session}, task "
            f"{self.task}): key {self.key}, {self.before} -> {self.after}"
        )


def events_of(records: Sequence[SourceRecord], session: int, task: int, database: str) -> list[Event]:
    """The row events of records."""
    events = []
    for record in records:
        value = record.value
        if value is None or "op" not in value or value["source"]["db"] != database:
            continue
        if value["source"]["table"] in {END, SIGNALS}:
            continue
        source = value["source"]
        position = Position(int(source["file"].rpartition(".")[2]), source["pos"])
        events.append(
            Event(
                session,
                task,
                value["op"],
                source["table"],
                position,
                source["row"] or 0,
                value["before"],
                value["after"],
                record.key,
            )
        )
    return events


@dataclass
class _Fold:
    """The rows of one segment, and which of them were delivered."""

    segment: Segment
    names: list[str]
    rows: dict[str, Row] = field(default_factory=dict)
    bag: list[Row] = field(default_factory=list)
    delivered: set[str] = field(default_factory=set)
    #: Rows of which it is not cached whether they were delivered, because the key was another one.
    unsure: set[str] = field(default_factory=set)
    #: Of a table without a key: the position of the view that its snapshot reads, and the changes that were delivered.
    view: tuple[int, Position] | None = None
    changes: list[Event] = field(default_factory=list)


def fold(history: History, events: Sequence[Event], *, all_read: bool) -> list[str]:
    """Return what is wrong with the events, in order; [] for nothing.

    Args:
        history: what was written.
        events: as they were delivered.
        all_read: whether a snapshot has read the rows that were there before.
    """
    return _Folding(history, all_read=all_read).run(events)


class _Folding:
    def __init__(self, history: History, *, all_read: bool) -> None:
        self._history = history
        self._all_read = all_read
        self._folds: dict[int, _Fold] = {}
        self._problems: list[str] = []
        self._last: dict[tuple[int, int, str], tuple[int, Event]] = {}

    def run(self, events: Sequence[Event]) -> list[str]:
        for event in events:
            if event.op == "t":
                continue
            positions = self._history.timeline.get(event.table)
            index = bisect.bisect_left(positions, event.position, key=lambda entry: entry[0]) - 1 if positions else -1
            segment = positions[index][1] if positions and index >= 0 else None
            if segment is None:
                self._report(event, "the table was not there")
                continue
            task = event.session, event.task, event.table
            if task in self._last and self._last[task][0] > index:
                self._report(event, f"comes after an event of a later structure: {self._last[task][1]}")
            self._last[task] = index, event
            self._take(self._fold_of(segment), event)
        for name, positions in self._history.timeline.items():
            for position, segment in positions:
                if segment is not None:
                    self._compare(name, position, self._fold_of(segment))
        return self._problems

    def _fold_of(self, segment: Segment) -> _Fold:
        cached = self._folds.get(id(segment))
        if cached is not None:
            return cached
        table_fold = self._folds[id(segment)] = _Fold(segment, [column.name for column in segment.table.columns])
        if segment.key:
            table_fold.rows = {key_of(row, segment.key): dict(row) for row in segment.start}
            if len(table_fold.rows) != len(segment.start):
                self._problems.append(f"the test's keys are not apart: {segment.table.name} {segment.key}")
        elif segment.before is not None or not (self._all_read and segment.first):
            table_fold.bag = [dict(row) for row in segment.start]
        if segment.before is None:
            table_fold.delivered = set() if self._all_read else set(table_fold.rows)
        elif (
            segment.before.key == segment.key
            and not segment.swapped
            # A name that is new is read, and changes before that may be left out.
            and not (self._all_read and segment.before.table.name != segment.table.name)
        ):
            before = self._fold_of(segment.before)
            table_fold.delivered = {key for key in table_fold.rows if key in before.delivered}
            table_fold.unsure = {key for key in table_fold.rows if key not in before.rows or key in before.unsure}
        else:
            table_fold.unsure = set(table_fold.rows)
        return table_fold

    def _report(self, event: Event, problem: str) -> None:
        self._problems.append(f"{problem}: {event}")

    def _image(self, position: Position) -> str:
        images = self._history.images
        return images[bisect.bisect_left(images, position, key=lambda entry: entry[0]) - 1][1]

    def _take(self, table_fold: _Fold, event: Event) -> None:
        segment = table_fold.segment
        image = "FULL" if event.op == "r" else self._image(event.position)
        if image == "FULL":
            for row in (event.before, event.after):
                if row is not None and list(row) != table_fold.names:
                    self._report(event, f"has columns {list(row)} instead of {table_fold.names}")
                    return
        if event.key is not None and (set(event.key) != set(segment.key) or not segment.key):
            self._report(event, f"has another key than {segment.key}")
            return
        if event.key is None and segment.primary:
            self._report(event, f"lacks the key {segment.key}")
            return
        if segment.key:
            self._take_keyed(table_fold, event, image)
        else:
            self._take_bare(table_fold, event, image)

    def _take_keyed(self, table_fold: _Fold, event: Event, image: str) -> None:
        key_names = table_fold.segment.key
        row: Row | None = None
        if event.before is not None:
            key = key_of(event.before, key_names)
            row = table_fold.rows.pop(key, None)
            # Where a snapshot is to come, changes may be left out that it has.
            if row is None and not self._all_read:
                self._report(event, "the row before is not there")
            elif row is not None and not self._all_read and not same_row(row, event.before, partial=image != "FULL"):
                self._report(event, f"the row before is {differences(row, event.before)}")
            table_fold.delivered.discard(key)
        if event.after is None:
            return
        after = event.after
        key = key_of(after, key_names)
        if event.op in {"c", "r"} and not self._all_read and key in table_fold.rows:
            self._report(event, "the row is there already")
        if image != "FULL" and row is not None:
            after = {name: _merge(row.get(name), after.get(name)) for name in table_fold.names}
        elif image != "FULL":
            after = {name: _unknown(after.get(name)) for name in table_fold.names}
        table_fold.rows[key] = after
        table_fold.delivered.add(key)

    def _take_bare(self, table_fold: _Fold, event: Event, image: str) -> None:
        if event.op == "r":
            if (event.session, event.position) != table_fold.view:
                # The snapshot has started, or started again: changes behind its view stay.
                later = [change for change in table_fold.changes if change.position > event.position]
                table_fold.view, table_fold.bag, table_fold.changes = (event.session, event.position), [], later
                for change in later:
                    self._apply(table_fold, change, self._image(change.position))
            assert event.after is not None
            table_fold.bag.append(event.after)
        else:
            table_fold.changes.append(event)
            self._apply(table_fold, event, image)

    def _apply(self, table_fold: _Fold, event: Event, image: str) -> None:
        partial = image != "FULL"
        row: Row | None = None
        if event.before is not None:
            # Without a key the row before is whole in every form of images.
            row = _find_row(table_fold.bag, event.before)
            if row is not None:
                table_fold.bag = [kept for kept in table_fold.bag if kept is not row]
            elif not self._all_read or self._is_read(table_fold, event):
                self._report(event, f"the row before is not there{_nearest(table_fold.bag, event.before)}")
        if event.after is None:
            return
        if not partial:
            table_fold.bag.append(event.after)
        elif row is not None:
            table_fold.bag.append({name: _merge(row.get(name), event.after.get(name)) for name in table_fold.names})
        else:
            table_fold.bag.append({name: _unknown(event.after.get(name)) for name in table_fold.names})

    def _is_read(self, table_fold: _Fold, event: Event) -> bool:
        """Whether a snapshot must have read the rows: a table that is renamed while its snapshot is stopped stays half read."""
        if table_fold.view is None or table_fold.segment.swapped:
            return False
        return table_fold.view[0] == event.session or table_fold.segment is self._history.current.get(event.table)

    def _compare(self, name: str, position: Position, table_fold: _Fold) -> None:
        segment = table_fold.segment
        last = segment is self._history.current.get(name)
        if self._all_read and (not last or (segment.swapped and not segment.key)):
            return  # a snapshot may not have come to the rows
        where = f"{name} from {position.file}:{position.pos} on ({segment.cause[:60]})"
        if not segment.key:
            left = list(table_fold.bag)
            for row in segment.end:
                match = _find_row(left, row)
                if match is None:
                    self._problems.append(f"{where}: misses {row}")
                else:
                    left.remove(match)
            self._problems += [f"{where}: has in addition {row}" for row in left]
            return
        truth = {key_of(row, segment.key): row for row in segment.end}
        for key, row in truth.items():
            kept = table_fold.rows.get(key)
            if kept is None:
                self._problems.append(f"{where}: misses {row}")
            elif key in table_fold.unsure - table_fold.delivered and self._all_read:
                continue
            elif key not in table_fold.delivered | table_fold.unsure and last:
                self._problems.append(f"{where}: {row} was not delivered")
            elif not same_row(kept, row):
                self._problems.append(f"{where}: {key} is {differences(kept, row)}")
        self._problems += [
            f"{where}: has in addition {table_fold.rows[key]}"
            for key in table_fold.rows.keys() - truth.keys()
            if key in table_fold.delivered or not self._all_read
        ]


def key_of(row: Row, names: tuple[str, ...]) -> str:
    return repr([row.get(name) for name in names])


def _unknown(value: Any) -> Any:
    return ANY if value is None else value


def _merge(old: Any, new: Any) -> Any:
    """A column after an update of which the binlog may have left it out."""
    return new if new is not None else old if old is None else ANY


def same_value(first: Any, second: Any) -> bool:
    if first is ANY or second is ANY:
        return True
    if isinstance(first, float) and isinstance(second, float):
        return first == second
    if isinstance(first, str) and isinstance(second, str) and first.replace("\ufffd", "?") == second:
        return True  # bytes that mean nothing in their charset
    return repr(first) == repr(second) or _same_address(first, second) or _same_address(second, first)


def _same_address(text: Any, data: Any) -> bool:
    """Whether bytes are a UUID or an address whose column the catalog lacks: nothing else tells what they are."""
    if not isinstance(text, str) or not isinstance(data, str | bytes):
        return False
    packed = b""
    with contextlib.suppress(ValueError):
        packed = uuid.UUID(text).bytes
    with contextlib.suppress(ValueError):
        packed = ipaddress.ip_address(text).packed
    forms = (packed, packed.hex(), base64.b64encode(packed).decode(), base64.urlsafe_b64encode(packed).decode())
    return bool(packed) and data in forms


def same_row(first: Row, second: Row, *, partial: bool = False) -> bool:
    """Whether two rows are equal; ``partial``: the second one may lack values."""
    return all(
        same_value(value, second.get(name)) or (partial and second.get(name) is None) for name, value in first.items()
    )


def _find_row(bag: Sequence[Row], row: Row) -> Row | None:
    """An equal row, of several the one of which most is known."""
    equal = [kept for kept in bag if same_row(kept, row)]
    return min(equal, key=lambda kept: sum(value is ANY for value in kept.values()), default=None)


def differences(first: Row, second: Row) -> str:
    return ", ".join(
        f"{name}: {value!r} / {second.get(name)!r}"
        for name, value in first.items()
        if not same_value(value, second.get(name))
    )


def _nearest(bag: Sequence[Row], row: Row) -> str:
    """The row that is most like it."""
    shown = [differences(kept, row) for kept in bag]
    return f" (nearest: {min(shown, key=len)})" if shown else ""
