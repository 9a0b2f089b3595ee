"""From lines to records: rows of tables, and for lines that no group accepts a row of ``unknown_table``. No I/O."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.api import Position, SourceRecord
from connectors.logs.config import ID_COLUMN, OUTPUT, PREFIX, TIME_COLUMN
from connectors.logs.forms import RowForm, make_form
from connectors.logs.metrics import LineCounts
from connectors.logs.rules.model import UNKNOWN_TABLE
from connectors.logs.rules.records import Dropped, Origin, Record
from connectors.schema import INT32, INT64, STRING, TIMESTAMP, array, struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.api import TaskMetrics
    from connectors.logs.rules.compiled import CompiledRules, TableRows

#: In an offset: records of the next line that are delivered already.
DELIVERED: Final = "rows"
_FAILURE: Final = struct(
    f"io.millrace.logs.{UNKNOWN_TABLE}.Failure",
    {"table": STRING, "group": STRING, "step": INT32, "operator": STRING, "reason": STRING},
)
#: The columns of ``unknown_table``.
UNKNOWN_ROWS: Final = struct(
    UNKNOWN_TABLE,
    {"line": STRING, "host": STRING, "file": STRING, "position": INT64, "failures": array(_FAILURE)},
    version=1,
)


class RowMaker:
    """Makes the records of lines by a rule set, in one form.

    Args:
        rules: the rule set.
        config: the connector's options.
        metrics: where to report what becomes of lines.
    """

    def __init__(self, rules: CompiledRules, config: Mapping[str, Any], metrics: TaskMetrics) -> None:
        self._config = config
        self._id_column: str = config[ID_COLUMN]
        self._time_column: str = config[TIME_COLUMN] or ""
        self.use(rules)
        self.unknown_topic = self._forms[UNKNOWN_TABLE].topic
        self.counts = LineCounts(metrics)

    def use(self, rules: CompiledRules) -> None:
        """Make rows by these rules from now on. Call it between two batches."""
        config = self._config
        self._apply = rules.apply
        self._explain = rules.explain
        self._forms: dict[str, RowForm] = {
            table: make_form(config[OUTPUT], config[PREFIX], table, schema, self._id_column)
            for table, schema in {**rules.schemas, UNKNOWN_TABLE: UNKNOWN_ROWS}.items()
        }
        self._timed = {
            table
            for table, schema in rules.schemas.items()
            if (field := schema.field(self._time_column)) is not None and field.schema.name == TIMESTAMP
        }

    def add_line(
        self,
        records: list[SourceRecord],
        partition: Position,
        before: Position,
        after: Position,
        line: str,
        origin: Origin,
        name: str,
        number: int,
        delivered: int = 0,
    ) -> None:
        """Append the records of one line.

        Args:
            records: the list to append to.
            partition: the source partition.
            before: the offset before the line.
            after: the offset after it, which its last record has.
            line: the line.
            origin: where it comes from.
            name: what identifies the line.
            number: the order number of its first row.
            delivered: how many of its records are delivered already and left out.
        """
        self.counts.lines += 1
        accepted = self._apply(line, origin)
        rows = self._flatten(accepted) if accepted else self._make_unknown(line, origin)
        if len(rows) == 1 and not delivered:
            table, row = rows[0]
            records.append(self._make_record(partition, after, table, row, f"{name}:0", number, origin))
            return
        self._append(records, partition, before, after, rows, origin, name, number, delivered, len(rows) - 1)

    def add_replayed(
        self,
        records: list[SourceRecord],
        partition: Position,
        before: Position,
        after: Position,
        line: str,
        origin: Origin,
        name: str,
        number: int,
        delivered: int = 0,
    ) -> bool:
        """Append the records of a line of ``unknown_table`` that the rules accept now, and the tombstone that deletes it there.

        There is no tombstone where rows have no keys of their own. The arguments are those of ``add_line``.

        Returns:
            Whether the rules accept the line; if they don't, nothing is appended.
        """
        accepted = self._apply(line, origin)
        if not accepted:
            return False
        rows = self._flatten(accepted)
        tombstone = self._make_tombstone(partition, after, line, name, number, origin)
        last = len(rows) - 1 if tombstone is None else len(rows)
        self._append(records, partition, before, after, rows, origin, name, number, delivered, last)
        if tombstone is not None:
            records.append(tombstone)
        return True

    def _make_tombstone(
        self, partition: Position, offset: Position, line: str, name: str, number: int, origin: Origin
    ) -> SourceRecord | None:
        """The record that deletes a line in ``unknown_table``; None where the key is not the row's alone."""
        identity = f"{name}:0"
        row = {"line": line, "host": "", "file": "", "position": 0, "failures": []}
        record = self._make_record(partition, offset, UNKNOWN_TABLE, row, identity, number, origin)
        if record.key != {self._id_column: identity}:
            return None
        return msgspec.structs.replace(record, value=None, value_schema=None)

    def _append(
        self,
        records: list[SourceRecord],
        partition: Position,
        before: Position,
        after: Position,
        rows: list[tuple[str, Record]],
        origin: Origin,
        name: str,
        number: int,
        delivered: int,
        last: int,
    ) -> None:
        """Append the rows of a line; that with the number ``last`` has the offset behind the line."""
        indexes: Counter[str] = Counter()
        for number_in_line, (table, row) in enumerate(rows):
            identity = f"{name}:{indexes[table]}"
            indexes[table] += 1
            if number_in_line >= delivered:
                offset = after if number_in_line == last else {**before, DELIVERED: number_in_line + 1}
                order = number + number_in_line
                records.append(self._make_record(partition, offset, table, row, identity, order, origin))

    def _make_record(
        self, partition: Position, offset: Position, table: str, row: Record, identity: str, number: int, origin: Origin
    ) -> SourceRecord:
        row[self._id_column] = identity
        topic, key_schema, value_schema, make = self._forms[table]
        timestamp = row[self._time_column] if table in self._timed else None
        key, value = make(row, identity, number, origin)
        return SourceRecord(
            partition,
            offset,
            topic,
            value,
            value_schema,
            key,
            key_schema,
            None,
            (),
            origin.timestamp if timestamp is None else timestamp,
        )

    def _flatten(self, accepted: TableRows) -> list[tuple[str, Record]]:
        """The rows of all tables in order, without records that were dropped; counts them."""
        counts = self.counts
        result: list[tuple[str, Record]] = []
        for table, rows in accepted:
            for row in rows:
                if isinstance(row, Dropped):
                    counts.dropped[table, row.reason] += 1
                else:
                    counts.rows[table] += 1
                    result.append((table, row))
        return result

    def _make_unknown(self, line: str, origin: Origin) -> list[tuple[str, Record]]:
        failures = self._explain(line, origin)
        counts = self.counts
        counts.unknown += 1
        counts.rows[UNKNOWN_TABLE] += 1
        for failure in failures:
            counts.failures[failure.table, failure.group, failure.step] += 1
        row = {
            "line": line,
            "host": origin.host,
            "file": origin.file,
            "position": origin.position,
            "failures": [failure._asdict() for failure in failures],
        }
        return [(UNKNOWN_TABLE, row)]
