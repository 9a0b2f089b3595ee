"""The short way from lines to records: for lines that one group alone can accept, which makes one row of them. No I/O.

Most lines are such. What is more than a line costs is done once for a batch; whatever else a line may be is left to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from connectors.api import SourceRecord
from connectors.logs.rules.compiled import compile_rows
from connectors.logs.rules.records import LineOrigin
from connectors.text_files.reader import FINGERPRINT, POSITION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from connectors.api import Position
    from connectors.logs.rules.compiled import CompiledRules
    from connectors.logs.rules.records import Record
    from connectors.schema import Schema


class TablePlan(NamedTuple):
    """How a table's rows become records where the row is the value.

    Attributes:
        topic: where they go.
        key_schema: of keys, which are the identity.
        value_schema: of values.
        timed: whether rows have the column of time.
    """

    topic: str
    key_schema: Schema
    value_schema: Schema
    timed: bool


class _DirectTarget(NamedTuple):
    """A group that makes one row, and where that goes; ``note`` takes its timestamp."""

    make: Callable[[str, LineOrigin, str, tuple[Any, ...]], Record | None]
    matches: tuple[Any, ...]
    plan: TablePlan
    note: Callable[[int], None]


class FileLines(NamedTuple):
    """Lines of a file that follow each other.

    Attributes:
        host: the host of all lines.
        path: the file.
        partition: its source partition.
        now: when they were read, milliseconds since 1970.
    """

    host: str
    path: str
    partition: Position
    now: int

    def name(self, before: Position, after: Position) -> str:
        """The name that identifies the line between two offsets."""
        return f"{self.path}:{after[FINGERPRINT]}:{before[POSITION]}"


class DirectRows:
    """Makes records of lines by a rule set.

    Args:
        rules: the rule set.
        plans: table -> how its rows become records; tables that are not there go the long way.
        id_column: the column of identities.
        time_column: the column of time.
    """

    def __init__(self, rules: CompiledRules, plans: Mapping[str, TablePlan], id_column: str, time_column: str) -> None:
        self._most = rules.rules.most_characters
        self._id_column = id_column
        self._time_column = time_column
        #: Table -> the timestamps of its rows since ``take_times``.
        self._times: dict[str, list[int]] = {table: [] for table in plans}
        groups = rules.rules.groups
        functions = compile_rows(groups, id_column)
        self._with_origin = any(function is not None and function.with_origin for function in functions)
        targets = [
            None
            if function is None or group.table not in plans
            else _DirectTarget(function.make, function.matches, plans[group.table], self._times[group.table].append)
            for group, function in zip(groups, functions, strict=True)
        ]
        #: What the finder's indexes stand for.
        self._targets = [targets[number] for number in rules.finder.needed]
        self._find = None if rules.finder.always else rules.finder.find

    def take_times(self) -> list[tuple[str, int, int]]:
        """Of each table: its name, how many rows were made since the last call, and the sum of their timestamps."""
        rows = [(table, len(times), sum(times)) for table, times in self._times.items() if times]
        for times in self._times.values():
            times.clear()
        return rows

    def add_lines(
        self,
        records: list[SourceRecord],
        source: FileLines,
        before: Position,
        lines: Iterator[tuple[str, Position]],
    ) -> tuple[Position, str, Position] | None:
        """Append the records of lines, up to one that does not go this way.

        Args:
            records: the list to append to.
            source: where the lines come from.
            before: the offset before the first line.
            lines: each line and the offset behind it.

        Returns:
            The offset before that line, the line, and the offset behind it; None if there are no lines any more.
        """
        find, targets, max_length = self._find, self._targets, self._most
        host, path, partition, now = source
        id_column, time_column, with_origin = self._id_column, self._time_column, self._with_origin
        append = records.append
        origin: Any = None
        for line, after in lines:
            if find is None or len(line) > max_length or (indexes := find(line)) is None:
                return before, line, after
            if len(indexes) != 1 or (target := targets[indexes[0]]) is None:
                return before, line, after
            make, matches, (topic, key_schema, value_schema, timed), note = target
            if with_origin:
                origin = LineOrigin(host, path, before[POSITION], now)
            identity = f"{path}:{after[FINGERPRINT]}:{before[POSITION]}:0"  # as ``source.name``, of the first row
            row = make(line, origin, identity, matches)
            if row is None:
                return before, line, after
            timestamp = row[time_column] if timed else now
            if timestamp is None:
                timestamp = now
            note(timestamp)
            key = {id_column: identity}
            append(SourceRecord(partition, after, topic, row, value_schema, key, key_schema, None, (), timestamp))
            before = after
        return None
