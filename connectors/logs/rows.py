"""From lines to records: rows of tables, and for lines that no group accepts a row of ``unknown_table``. No I/O."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.api import Position, SameAs, SourceRecord
from connectors.formats import ums
from connectors.formats.ums_signals import Speaker
from connectors.logs.config import ID_COLUMN, KEY_TEMPLATE, OUTPUT, PREFIX, TASK_PART, TIME_COLUMN
from connectors.logs.direct_rows import DirectRows, FileLines, TablePlan
from connectors.logs.forms import make_form, ums_namespace
from connectors.logs.keys import make_keys
from connectors.logs.metrics import HostCounts, LineCounts
from connectors.logs.rules.model import UNKNOWN_TABLE
from connectors.logs.rules.records import Dropped, LineOrigin, Record
from connectors.schema import INT32, INT64, OPTIONAL_STRING, STRING, TIMESTAMP, array, struct
from connectors.text_files.reader import POSITION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.api import TaskMetrics
    from connectors.logs.forms import LogRowForm
    from connectors.logs.heartbeats import LogHeartbeats
    from connectors.logs.rules.compiled import CompiledRules, TableRows
    from connectors.logs.rules.tools.interpreted import Failure

#: In an offset: records of the next line that are delivered already.
DELIVERED: Final = "rows"
_FAILURE: Final = struct(
    f"io.millrace.logs.{UNKNOWN_TABLE}.Failure",
    {"table": STRING, "group": STRING, "step": INT32, "operator": STRING, "reason": STRING},
)
#: The columns of ``unknown_table``.
UNKNOWN_ROWS: Final = struct(
    UNKNOWN_TABLE,
    {
        "line": STRING,
        "host": STRING,
        "file": STRING,
        "position": INT64,
        "failures": array(_FAILURE),
        "header": OPTIONAL_STRING,
    },
    version=1,
)


def input_name(partition: Position) -> str:
    """The name of an input in metrics and heartbeats, from its source partition: a file, a topic, an address."""
    return str(next(iter(partition.values())))


class _Deleted(NamedTuple):
    """A row to delete.

    Attributes:
        maker: of the record that deletes it.
        table: its table.
        row: the row as it was.
        row_number: its number among those of its table from its line.
    """

    maker: RowMaker
    table: str
    row: Record
    row_number: int


class _RowPlan(NamedTuple):
    """How the rows of one table become records.

    Attributes:
        form: of keys and values.
        is_timed: whether they have the column of time.
        make_key: makes their keys by the template; None without one.
    """

    form: LogRowForm
    is_timed: bool
    make_key: Callable[[Record, LineOrigin], str] | None


class RowMaker:
    """Makes the records of lines by a rule set, in one form.

    Args:
        rules: the rule set.
        config: the connector's options.
        metrics: where to report what becomes of lines.
        heartbeats: gets heartbeat lines; None if no line is one.
    """

    def __init__(
        self,
        rules: CompiledRules,
        config: Mapping[str, Any],
        metrics: TaskMetrics,
        heartbeats: LogHeartbeats | None = None,
    ) -> None:
        self._config = config
        self._heartbeats = heartbeats
        self._is_heartbeat = None if heartbeats is None else heartbeats.is_line
        self._id_column: str = config[ID_COLUMN]
        self._time_column: str = config[TIME_COLUMN] or ""
        self._is_ums = config[OUTPUT] == "ums"
        self.use(rules)
        self.unknown_topic = self._plans[UNKNOWN_TABLE].form.topic
        self.counts = LineCounts(metrics)
        #: Is added to the order numbers of rows: rows of a replay must be newer than those before.
        self.order_base = 0
        #: Makers by earlier rules, the oldest first: of their rows, those are deleted that are not made any more.
        self.replaced: Sequence[RowMaker] = ()
        #: The host of the last line, and its counts.
        self._host = ""
        self._host_counts = HostCounts()

    def use(self, rules: CompiledRules) -> None:
        """Make rows by these rules from now on. Call it between two batches."""
        config = self._config
        self.rules = rules
        self._apply = rules.apply
        self._explain = rules.explain
        schemas = {**rules.schemas, UNKNOWN_TABLE: UNKNOWN_ROWS}
        # The rows of unknown_table keep their identity as their key: replays delete them by it.
        keys = make_keys(config[KEY_TEMPLATE], rules.schemas, self._id_column)
        self._plans = {
            table: _RowPlan(
                make_form(config[OUTPUT], config[PREFIX], table, schema, self._id_column),
                (field := schema.field(self._time_column)) is not None and field.schema.name == TIMESTAMP,
                keys.get(table),
            )
            for table, schema in schemas.items()
        }
        direct = {
            table: TablePlan(plan.form.topic, plan.form.key_schema, plan.form.value_schema, plan.is_timed)
            for table, plan in self._plans.items()
            if config[OUTPUT] == "plain" and plan.make_key is None
        }
        self._direct = DirectRows(rules, direct, self._id_column, self._time_column)

    def make_signals(self, at: tuple[Position, Position], time_us: int) -> list[SourceRecord]:
        """UMS heartbeats of all tables; [] where the rows are not UMS.

        Args:
            at: source partition and offset of the records.
            time_us: what was read before is sent, µs since 1970.
        """
        if not self._is_ums:
            return []
        speaker = Speaker(self._config[TASK_PART] or "", masked=False)
        prefix = self._config[PREFIX]
        schemas = {**self.rules.schemas, UNKNOWN_TABLE: UNKNOWN_ROWS}
        return [
            speaker.record(
                ums.INCREMENT_HEARTBEAT,
                plan.form.topic,
                ums_namespace(prefix, table, schemas[table]).text,
                time_us,
                at,
                # By a template of keys the rows are in any partition.
                behind=ums.INCREMENT if plan.make_key is None else "",
            )
            for table, plan in self._plans.items()
        ]

    def add_file_lines(
        self,
        records: list[SourceRecord],
        source: FileLines,
        before: Position,
        lines: Sequence[str],
        offsets: Sequence[Position],
        delivered: int,
    ) -> None:
        """Append the records of lines of a file.

        Args:
            records: the list to append to.
            source: where they come from.
            before: the offset before the first line.
            lines: the lines.
            offsets: the offset behind each.
            delivered: how many records of the first line are delivered already and left out.
        """
        counts = self._count_for(source.host)
        pairs = zip(lines, offsets, strict=True)
        direct = self._direct if self._is_heartbeat is None and not self.replaced else None
        while True:
            first = len(records)
            if direct is None or delivered:
                line, after = next(pairs, (None, None))
            else:
                remainder = direct.add_lines(records, source, before, pairs)
                counts.lines += len(records) - first
                if remainder is None:
                    break
                before, line, after = remainder
            if line is None or after is None:
                break
            position = before[POSITION]
            origin = LineOrigin(source.host, source.path, position, source.now)
            # A line has fewer rows than bytes, or some of its rows have the numbers of the next line's.
            self.add_line(
                records,
                source.partition,
                before,
                after,
                line,
                origin,
                source.name(before, after),
                position,
                delivered,
            )
            delivered = 0
            before = after
        for table, count, times in self._direct.take_times():
            counts.add_rows(table, count, times)

    def add_line(
        self,
        records: list[SourceRecord],
        partition: Position,
        before: Position,
        after: Position,
        line: str,
        origin: LineOrigin,
        name: str,
        number: int,
        delivered: int = 0,
        header: str = "",
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
            header: the text of the message before the line.
        """
        counts = self._count_for(origin.host)
        counts.lines += 1
        if self._is_heartbeat is not None and self._is_heartbeat(line) and "\n" not in line:
            self._note_heartbeat(partition, origin)
            return
        number += self.order_base
        accepted = self._apply(line, origin)
        if len(accepted) == 1 and not delivered and not self.replaced:
            table, outcomes = accepted[0]
            if len(outcomes) == 1 and type(row := outcomes[0]) is dict:
                records.append(self._make_record(partition, after, table, row, f"{name}:0", number, origin))
                return
        rows = self._flatten_rows(accepted) if accepted else self._make_unknown(line, origin, counts, header)
        deletes = self._find_replaced(rows, line, origin) if self.replaced else ()
        self._append_rows(records, partition, before, after, rows, origin, name, number, delivered, deletes)

    def add_replayed(
        self,
        records: list[SourceRecord],
        partition: Position,
        before: Position,
        after: Position,
        line: str,
        origin: LineOrigin,
        name: str,
        number: int,
        delivered: int = 0,
    ) -> bool:
        """Append the records of a line of ``unknown_table`` that the rules accept now, and the one that deletes it there.

        The arguments are those of ``add_line``.

        Returns:
            Whether the rules accept the line; if they don't, nothing is appended.
        """
        accepted = self._apply(line, origin)
        if not accepted:
            return False
        self._count_for(origin.host)
        rows = self._flatten_rows(accepted)
        deleted = _Deleted(self, UNKNOWN_TABLE, _unknown_row(line, origin, [], ""), 0)
        self._append_rows(records, partition, before, after, rows, origin, name, number, delivered, (deleted,))
        return True

    def _find_replaced(self, rows: Sequence[tuple[str, Record]], line: str, origin: LineOrigin) -> Sequence[_Deleted]:
        """The rows that earlier rules make of a line and that are not among those of now."""
        counts = Counter(table for table, _ in rows)
        deletes: dict[tuple[str, int], _Deleted] = {}
        for maker in self.replaced:
            indexes: Counter[str] = Counter()
            for table, row in maker.make_again(line, origin):
                index = indexes[table]
                indexes[table] += 1
                if index >= counts[table] and maker.can_delete(table):
                    deletes[table, index] = _Deleted(maker, table, row, index)
        return list(deletes.values())

    def make_again(self, line: str, origin: LineOrigin) -> list[tuple[str, Record]]:
        """The rows of a line, without counting them."""
        accepted = self._apply(line, origin)
        if not accepted:
            return [(UNKNOWN_TABLE, _unknown_row(line, origin, [], ""))]
        return [(table, row) for table, rows in accepted for row in rows if not isinstance(row, Dropped)]

    def can_delete(self, table: str) -> bool:
        """Whether a row can be deleted: with a template of keys, other rows of the table may have its key."""
        return self._is_ums or self._plans[table].make_key is None

    def make_delete(
        self,
        partition: Position,
        offset: Position,
        table: str,
        row: Record,
        identity: str,
        number: int,
        origin: LineOrigin,
    ) -> SourceRecord:
        """The record that deletes a row, in the form of the rows."""
        row[self._id_column] = identity
        (topic, key_schema, value_schema, _, make), is_timed, make_key = self._plans[table]
        timestamp = row[self._time_column] if is_timed else None
        key, value = make(row, identity, number, origin)
        return SourceRecord(
            partition,
            offset,
            topic,
            value,
            None if value is None else value_schema,
            key,
            key_schema,
            None if make_key is None else SameAs(make_key(row, origin)),
            (),
            origin.timestamp if timestamp is None else timestamp,
        )

    def _append_rows(
        self,
        records: list[SourceRecord],
        partition: Position,
        before: Position,
        after: Position,
        rows: list[tuple[str, Record]],
        origin: LineOrigin,
        name: str,
        number: int,
        delivered: int,
        deletes: Sequence[_Deleted],
    ) -> None:
        """Append the rows of a line, and what deletes others of it; the last record has the offset behind the line."""
        last = len(rows) + len(deletes) - 1
        indexes: Counter[str] = Counter()
        for number_in_line, (table, row) in enumerate(rows):
            identity = f"{name}:{indexes[table]}"
            indexes[table] += 1
            if number_in_line >= delivered:
                offset = after if number_in_line == last else {**before, DELIVERED: number_in_line + 1}
                order = number + number_in_line
                records.append(self._make_record(partition, offset, table, row, identity, order, origin))
        for number_in_line, (maker, table, row, row_number) in enumerate(deletes, len(rows)):
            if number_in_line >= delivered:
                offset = after if number_in_line == last else {**before, DELIVERED: number_in_line + 1}
                order = number + number_in_line
                records.append(maker.make_delete(partition, offset, table, row, f"{name}:{row_number}", order, origin))

    def _make_record(
        self,
        partition: Position,
        offset: Position,
        table: str,
        row: Record,
        identity: str,
        number: int,
        origin: LineOrigin,
    ) -> SourceRecord:
        row[self._id_column] = identity
        (topic, key_schema, value_schema, make, _), is_timed, make_key = self._plans[table]
        timestamp = row[self._time_column] if is_timed else None
        if timestamp is None:
            timestamp = origin.timestamp
        self._host_counts.add_rows(table, 1, timestamp)
        key, value = make(row, identity, number, origin)
        kafka_partition: SameAs | None = None
        if make_key is not None:
            record_key = make_key(row, origin)
            if self._is_ums:  # readers of UMS need its key: rows of one text go to one partition
                kafka_partition = SameAs(record_key)
            else:
                key, key_schema = record_key, STRING
        return SourceRecord(
            partition,
            offset,
            topic,
            value,
            value_schema,
            key,
            key_schema,
            kafka_partition,
            (),
            timestamp,
        )

    def _flatten_rows(self, accepted: TableRows) -> list[tuple[str, Record]]:
        """The rows of all tables in order, without records that were dropped; counts them."""
        counts = self.counts
        result: list[tuple[str, Record]] = []
        for table, rows in accepted:
            for row in rows:
                if isinstance(row, Dropped):
                    counts.dropped[table, row.reason] += 1
                else:
                    result.append((table, row))
        return result

    def _count_for(self, host: str) -> HostCounts:
        """Count the rows that follow for this host."""
        if host is not self._host or not self.counts.hosts:
            self._host, self._host_counts = host, self.counts.of_host(host)
        return self._host_counts

    def _note_heartbeat(self, partition: Position, origin: LineOrigin) -> None:
        if self._heartbeats is not None:
            self._heartbeats.add_line(origin.host, input_name(partition), partition, origin.timestamp)

    def _make_unknown(self, line: str, origin: LineOrigin, counts: HostCounts, header: str) -> list[tuple[str, Record]]:
        failures = self._explain(line, origin)
        counts.unknown += 1
        for failure in failures:
            self.counts.failures[failure.table, failure.group, failure.step] += 1
        return [(UNKNOWN_TABLE, _unknown_row(line, origin, failures, header))]


def _unknown_row(line: str, origin: LineOrigin, failures: Sequence[Failure], header: str) -> Record:
    return {
        "line": line,
        "host": origin.host,
        "file": origin.file,
        "position": origin.position,
        "failures": [failure._asdict() for failure in failures],
        "header": header or None,
    }
