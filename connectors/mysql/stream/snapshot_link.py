"""The link from a stream to the snapshot that reads the same tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.api import Position, SourceRecord
    from connectors.mysql.model import BinlogPosition, TableName
    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.schema.tables import MySqlTableState
    from connectors.mysql.snapshot.model import Early
    from connectors.mysql.snapshot.reader import MySqlSnapshotReader
    from connectors.mysql.stream.output import StreamOutput

    SendEarly = Callable[[MySqlTableState, Early, Position, list[SourceRecord]], None]


class SnapshotLink:
    """Tells the reader which keys change, and where the stream is; does nothing until one is attached.

    Args:
        cursor: where the stream is.
        output: gets rows of the snapshot that have to come before their change.

    Attributes:
        watched: tables that the reader reads by turns.
        withheld: tables of which it keeps back the stream's changes.
    """

    def __init__(self, cursor: BinlogCursor, output: StreamOutput) -> None:
        self.watched: Mapping[TableName, object] = {}
        self.withheld: Mapping[TableName, object] = {}
        self._cursor = cursor
        self._output = output
        self._reader: MySqlSnapshotReader | None = None
        self._reached: Callable[[BinlogPosition], bool] = lambda _position: False
        self._send_early: SendEarly = lambda *_: None

    def attach(
        self, reader: MySqlSnapshotReader, reached: Callable[[BinlogPosition], bool], send_early: SendEarly
    ) -> None:
        """See ``BinlogStream.attach``."""
        self._reader = reader
        self.watched, self.withheld = reader.watched, reader.withheld
        self._reached = reached
        self._send_early = send_early

    def end_transaction(self) -> None:
        """The stream has got somewhere."""
        if self._reader is not None:
            self._reader.advance(self._reached)

    def hold(self, transaction: str) -> None:
        """An XA transaction is prepared, and its rows were given."""
        if self._reader is not None:
            self._reader.hold(transaction)

    def release(self, transaction: str) -> None:
        """An XA transaction has its end."""
        if self._reader is not None:
            self._reader.release(transaction)

    def roll_back(self) -> None:
        """Changes were rolled back: rows that were left out of chunks because of them count after all."""
        if self._reader is not None:
            self._reader.altered(None)

    def change_rows(self, state: MySqlTableState, op: Literal["c", "u", "d"], rows: list[Any], before: int) -> bool:
        """The stream comes by rows; ``before`` rows of their event are before them. Return whether they may be sent."""
        if self._reader is None:
            return True
        early = self._reader.changed(state.name, op, rows) if state.name in self.watched else ()
        if state.name in self.withheld:
            return False
        cursor = self._cursor
        for rows_before in early:
            offset = cursor.offset(cursor.events, before, cursor.tx_rows)
            self._send_early(state, rows_before, offset, self._output.records)
        return True
