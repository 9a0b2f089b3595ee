"""Passes the stream's changes to the chunks that they concern. Pure."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from connectors.mysql.snapshot.model import Early

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.mysql.model import BinlogPosition, TableName
    from connectors.mysql.snapshot.model import Row
    from connectors.mysql.snapshot.reading.key_ranges import KeyRange
    from connectors.mysql.snapshot.windows import ChangeWindow
    from connectors.mysql.snapshot.work import TableSnapshot


class ChangeWatch:
    """The open windows by table.

    Attributes:
        watched: tables whose changes have to be passed on.
        withheld: tables without a key whose changes up to their view must not be sent.
    """

    def __init__(self) -> None:
        self.watched: dict[TableName, list[tuple[TableSnapshot, KeyRange]]] = {}
        self.withheld: dict[TableName, TableSnapshot] = {}
        #: Tables without a key that are read as of a view to which the stream has not come.
        self.unreached: list[TableSnapshot] = []

    def begin(self, table: TableSnapshot, key_range: KeyRange) -> None:
        """Pass changes to the range from now on."""
        watchers = self.watched.setdefault(table.name, [])
        if not any(watched is key_range for _, watched in watchers):
            watchers.append((table, key_range))

    def end(self, table: TableSnapshot, key_range: KeyRange | None = None) -> None:
        """No more; None: nothing of the table."""
        if key_range is None and table in self.unreached:
            self.unreached.remove(table)
        watchers = self.watched.get(table.name)
        if watchers is not None:
            watchers[:] = [
                watcher for watcher in watchers if not (watcher[0] is table and key_range in {None, watcher[1]})
            ]
            if not watchers:
                del self.watched[table.name]

    def withhold(self, table: TableSnapshot) -> None:
        """Keep the changes of a table back until the stream has come to its view, which has them."""
        if table.keyless and table.open and table.share.request.origin in {"initial", "new"} and table.high is None:
            self.withheld[table.name] = table

    def expect(self, table: TableSnapshot) -> None:
        """A view of a table without a key is about to be opened: its changes count from the view's position."""
        table.passed = False
        if table not in self.unreached:
            self.unreached.append(table)

    def let_go(self, table: TableSnapshot) -> None:
        """The stream has come to the table's view: changes may be sent."""
        table.passed = True
        if table in self.unreached:
            self.unreached.remove(table)
        if self.withheld.get(table.name) is table:
            del self.withheld[table.name]

    def find_reached(self, reached: Callable[[BinlogPosition], bool]) -> list[TableSnapshot]:
        """The tables to whose view the stream has come."""
        return [table for table in self.unreached if table.high is not None and reached(table.high)]

    def changed(self, name: TableName, op: str, rows: Sequence[Row | None]) -> list[Early]:
        """Rows of an event; what has to be sent before them."""
        if name in self.withheld:
            self.withheld[name].missed = True
            return []
        early: list[Early] = []
        keyless: list[TableSnapshot] = []
        for table, key_range in self.watched.get(name, ()):
            if table.finder is None:
                if table not in keyless and key_range.window is not None:
                    keyless.append(table)
                    early += _find_early(table, key_range.window.low, op, rows)
                continue
            if key_range.window is not None:
                # Without the key's columns it was read with a later structure: it is read again when the stream comes to that.
                with contextlib.suppress(KeyError):
                    _touch_window(key_range.window, table.finder, op, rows)
        return early


def _find_early(table: TableSnapshot, low: BinlogPosition, op: str, rows: Sequence[Row | None]) -> list[Early]:
    """Return the rows to send before a change of a table without a key."""
    if not table.passed or table.images is None:
        # While the place of the view is not known, the view has to be newer than the change.
        table.missed = table.missed or table.high is None
        return []
    first = table.images.changed(op, rows)
    return [Early(table.share.request.id, table.share.request.origin, first, low)] if first else []


def _touch_window(
    window: ChangeWindow, key_of: Callable[[Row], tuple[Any, ...]], op: str, rows: Sequence[Row | None]
) -> None:
    if op == "u":
        for before, after in zip(rows[::2], rows[1::2], strict=True):
            _update_window(window, key_of, before, after)
    else:
        for row in rows:
            if row is not None:
                window.touch(key_of(row), row if op == "c" else None)


def _update_window(
    window: ChangeWindow, key_of: Callable[[Row], tuple[Any, ...]], before: Row | None, after: Row | None
) -> None:
    old = None if before is None else key_of(before)
    if after is None:
        if old is not None:
            window.touch(old, None)
        return
    try:
        new = key_of(after)
    except KeyError:
        # The image after has only what was set: the rest of the key is in the one before.
        if before is None:
            return
        new = key_of({**before, **after})
    if old is not None and old != new:
        window.touch(old, None)
    window.touch(new, after)
