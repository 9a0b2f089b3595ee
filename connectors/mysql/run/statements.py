"""Statements that change tables: what they mean for snapshots and versions, and the records about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.mysql.metrics import SchemaHistory
    from connectors.mysql.model import RowSource, TableName
    from connectors.mysql.run.records import RunRecords
    from connectors.mysql.snapshots import RunSnapshots
    from connectors.mysql.source.statements import SqlStatement
    from connectors.mysql.stream.binlog_stream import BinlogStream


class RunStatements:
    """Takes the statements of a stream, and makes records of them once the stream has passed them.

    Attributes:
        waiting: statements of which no record was made yet, the captured tables that are gone with them, and where they come
            from.
    """

    def __init__(self, records: RunRecords, snapshots: RunSnapshots, history: SchemaHistory) -> None:
        self.waiting: list[tuple[SqlStatement, Sequence[TableName], RowSource]] = []
        self._records = records
        self._filter = records.table_filter
        self._tables = records.tables
        self._snapshots = snapshots
        self._history = history

    async def take_statement(self, statement: SqlStatement, source: RowSource) -> None:
        """The stream has met a statement that is no part of a transaction's frame.

        Raises:
            Retriable: the definition of a table can't be read now.
        """
        if statement.changes_structure or statement.kind == "truncate":
            captured = [name for name in statement.tables if self._filter.matches(name)]
            if captured and statement.kind != "truncate":
                self._history.applied(str(name) for name in captured)
            if captured and (statement.kind == "truncate" or self._records.schema_changes is not None):
                await self._tables.read(captured)
            gone = await self._snapshots.altered(statement)
            self.waiting.append((statement, gone, source))

    def make_records(self, stream: BinlogStream) -> None:
        """Append the records of the statements that were taken since the last call to the stream's output."""
        waiting, self.waiting = self.waiting, []
        for statement, gone, source in waiting:
            self._end_tables(gone, source, stream)
            source.thread = None  # as Debezium: only rows tell their connection
            if statement.kind == "truncate":
                self._truncate_tables(statement, source, stream)
            else:
                self._report_change(statement, source, stream)
        if not stream.cursor.open:
            stream.output.settled = len(stream.output.records)

    def _end_tables(self, dropped_tables: Sequence[TableName], source: RowSource, stream: BinlogStream) -> None:
        """Append the messages that tables end."""
        signals, versions = self._records.context.signals, self._records.versions
        if dropped_tables and signals is not None:
            stream.output.flush_held()
            stream.output.records += [
                signals.ended(name, versions.current(name), source.ts_us, stream.cursor.now())
                for name in dropped_tables
            ]

    def _truncate_tables(self, statement: SqlStatement, source: RowSource, stream: BinlogStream) -> None:
        for name in statement.tables:
            state = self._tables.of(name)
            if state is not None and state.owned:
                state.events.truncate(source, stream.cursor.now(), stream.output.records)

    def _report_change(self, statement: SqlStatement, source: RowSource, stream: BinlogStream) -> None:
        schema_changes = self._records.schema_changes
        if schema_changes is None or not self._is_captured(statement):
            return
        stream.output.flush_held()
        stream.output.records.append(
            schema_changes.record(
                source,
                statement.database,
                statement.text,
                self._tables.changes(statement),
                stream.cursor.now(),
                table="" if statement.kind == "index" else None,
            )
        )

    def _is_captured(self, statement: SqlStatement) -> bool:
        """Whether a statement is about captured tables, or a database that may have some."""
        if statement.tables:
            return any(self._filter.matches(name) for name in statement.tables)
        return self._filter.database(statement.database)
