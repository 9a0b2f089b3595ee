"""The reference merge of partition updates: plain, slow and pure; the rules of connectors/formats/PARTITION_UPDATE.md.

``Table`` folds partition updates in any order and with any repetition; ``contents`` is what a query would show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connectors.cql.encoding import make_encoder
from connectors.formats import timeuuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.cql.types import CqlType
    from connectors.formats.partition_update import (
        Cell,
        CellStamp,
        ClusteringBound,
        ColumnLike,
        PartitionUpdate,
        RangeDeletion,
        UpdateDeletion,
        UpdateRow,
    )


@dataclass
class RowState:
    """Everything that was ever said of one row; nothing is thrown away."""

    liveness: CellStamp | None = None
    deletion: UpdateDeletion | None = None
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    complex_deletions: dict[str, int] = field(default_factory=dict)


@dataclass
class PartitionState:
    """Everything that was ever said of one partition."""

    key: tuple[Any, ...]
    deletion: UpdateDeletion | None = None
    static: RowState = field(default_factory=RowState)
    rows: dict[str, tuple[tuple[Any, ...], RowState]] = field(default_factory=dict)
    ranges: list[RangeDeletion] = field(default_factory=list)


class Table:
    """The contents of a table, from its partition updates."""

    def __init__(self, columns: Sequence[ColumnLike]) -> None:
        self.columns = {column.name: column for column in columns}
        self.clustering = sorted(
            (column for column in columns if column.kind == "clustering"), key=lambda column: column.position
        )
        self.key = sorted(
            (column for column in columns if column.kind == "partition_key"), key=lambda column: column.position
        )
        self.static = [column for column in columns if column.kind == "static"]
        self.regular = [column for column in columns if column.kind == "regular"]
        self.partitions: dict[str, PartitionState] = {}

    def apply(self, update: PartitionUpdate) -> None:
        """Fold one in."""
        state = self.partitions.setdefault(repr(update.key), PartitionState(update.key))
        state.deletion = later(state.deletion, update.deletion)
        if update.static is not None:
            self._row(state.static, update.static)
        for row in update.rows:
            self._row(state.rows.setdefault(repr(row.clustering), (row.clustering, RowState()))[1], row)
        for deletion in update.ranges:
            if deletion not in state.ranges:
                state.ranges.append(deletion)

    def apply_all(self, updates: Iterable[PartitionUpdate]) -> Table:
        """Fold several in; returns itself."""
        for update in updates:
            self.apply(update)
        return self

    def _row(self, state: RowState, row: UpdateRow) -> None:
        state.liveness = newer(state.liveness, row.liveness)
        state.deletion = later(state.deletion, row.deletion)
        for name, deletion in row.complex_deletions:
            state.complex_deletions[name] = max(
                state.complex_deletions.get(name, deletion.write_time), deletion.write_time
            )
        for cell in row.cells:
            key = cell.column, repr(cell.path)
            old = state.cells.get(key)
            state.cells[key] = cell if old is None or self.wins(cell, old) else old

    def wins(self, new: Cell, old: Cell) -> bool:
        """Whether ``new`` takes the place of ``old``; both are of one column and path."""
        return self._rank(new) > self._rank(old)

    def _rank(self, cell: Cell) -> tuple[Any, ...]:
        stamp = cell.stamp
        if cell.value is None:
            return stamp.write_time, True
        expires = stamp.expires
        return stamp.write_time, False, expires is not None, expires or 0, self._serialized(cell)

    def _serialized(self, cell: Cell) -> bytes:
        kind = self.columns[cell.column].type
        if kind.is_multicell:
            if kind.name == "set":
                return b""
            kind = kind.arguments[kind.field_names.index(cell.path)] if kind.name == "udt" else kind.arguments[-1]
        return make_encoder(kind)(cell.value)

    def contents(self, *, now_s: int = 0) -> dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]:
        """The rows that queries show at ``now_s`` (s since 1970; 0: nothing has expired).

        Returns:
            By the key's ``repr``: the static columns (empty where none is set) and the rows in clustering order, each with the
            clustering columns and all regular columns. Lists are lists, sets are sorted lists, maps are dicts by ``repr`` of
            the key, UDTs are dicts; an empty collection is None. Partitions with neither are left out.
        """
        result = {}
        for name, state in self.partitions.items():
            static = {
                key: value
                for key, value in self._visible(state, state.static, (), self.static, now_s).items()
                if value is not None
            }
            rows = []
            for clustering, row in state.rows.values():
                values = self._visible(state, row, clustering, self.regular, now_s)
                liveness = row.liveness
                live = liveness is not None and self._lives(liveness, self._hidden(state, row, clustering), now_s)
                if live or any(value is not None for value in values.values()):
                    keys = zip((column.name for column in self.clustering), clustering, strict=True)
                    rows.append((self.order(clustering), {**dict(keys), **values}))
            if static or rows:
                result[name] = static, [values for _, values in sorted(rows, key=lambda pair: pair[0])]
        return result

    def order(self, clustering: Sequence[Any]) -> tuple[Any, ...]:
        """A sort key for clustering values, or the first of them; ints and strings only."""
        return tuple(
            _Reversed(value) if column.reversed else value
            for value, column in zip(clustering, self.clustering, strict=False)
        )

    def covers(self, deletion: RangeDeletion, clustering: tuple[Any, ...]) -> bool:
        """Whether a row lies in a range."""
        return self._after(deletion.start, clustering) and self._before(deletion.end, clustering)

    def _after(self, bound: ClusteringBound, clustering: tuple[Any, ...]) -> bool:
        here, there = self.order(clustering[: len(bound.prefix)]), self.order(bound.prefix)
        return bound.inclusive or not bound.prefix if here == there else there < here

    def _before(self, bound: ClusteringBound, clustering: tuple[Any, ...]) -> bool:
        here, there = self.order(clustering[: len(bound.prefix)]), self.order(bound.prefix)
        return bound.inclusive or not bound.prefix if here == there else here < there

    def _hidden(self, state: PartitionState, row: RowState, clustering: tuple[Any, ...]) -> int:
        """The time up to which a deletion of the row, a range or the partition hides writes."""
        times = [deletion.write_time for deletion in (state.deletion, row.deletion) if deletion is not None]
        if row is not state.static:
            times += [ranged.deletion.write_time for ranged in state.ranges if self.covers(ranged, clustering)]
        return max(times, default=-1 << 63)

    @staticmethod
    def _lives(stamp: CellStamp, hidden: int, now_s: int) -> bool:
        return stamp.write_time > hidden and (stamp.expires is None or stamp.expires > now_s)

    def _visible(
        self,
        state: PartitionState,
        row: RowState,
        clustering: tuple[Any, ...],
        columns: Iterable[ColumnLike],
        now_s: int,
    ) -> dict[str, Any]:
        hidden = self._hidden(state, row, clustering)
        visible: dict[str, list[Cell]] = {column.name: [] for column in columns}
        for cell in row.cells.values():
            limit = max(hidden, row.complex_deletions.get(cell.column, hidden))
            if cell.value is not None and self._lives(cell.stamp, limit, now_s):
                visible[cell.column].append(cell)
        return {name: assembled(self.columns[name].type, cells) for name, cells in visible.items()}


def assembled(kind: CqlType, cells: Sequence[Cell]) -> Any:
    """The value of a column from its living cells; see ``Table.contents``."""
    if not cells:
        return None
    if not kind.is_multicell:
        return cells[0].value
    if kind.name == "list":
        return [cell.value for cell in sorted(cells, key=lambda cell: timeuuid.order_key(cell.path))]
    if kind.name == "set":
        return sorted(cell.path for cell in cells)
    by_path: Mapping[Any, Any] = {cell.path if kind.name == "udt" else repr(cell.path): cell.value for cell in cells}
    return dict(by_path)


def newer(old: CellStamp | None, new: CellStamp | None) -> CellStamp | None:
    """Of two stamps of a row's liveness the one that counts."""
    if old is None or new is None:
        return new if old is None else old
    return max(old, new, key=lambda stamp: (stamp.write_time, stamp.expires is not None, stamp.expires or 0))


def later(old: UpdateDeletion | None, new: UpdateDeletion | None) -> UpdateDeletion | None:
    """Of two deletions the one that hides more."""
    if old is None or new is None:
        return new if old is None else old
    return max(old, new)


class _Reversed:
    """Sorts the other way round."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)
