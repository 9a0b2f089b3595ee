"""The captured tables that a task knows already, so that it notices later ones. No input or output.

A task saves the list of tables that it has decided about. A captured table that is not in the list is new. Its rows are in the
binlog if the stream comes by its CREATE TABLE; they are not if the table was renamed into the list, or if the list of captured
tables became longer while the connector was stopped: then the table needs a snapshot.

At the start every new table counts as one that needs a snapshot. A chunk of it is sent only when the stream has reached the
position of the read, so a CREATE TABLE that the stream comes by before then takes the snapshot back in time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from connectors.api import SNAPSHOT_ENDED
from connectors.mysql.model import TableName
from connectors.mysql.position import start
from connectors.snapshot.requests import NEW
from connectors.snapshot.state import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from connectors.api import Position
    from connectors.mysql.model import Shard
    from connectors.mysql.source.statements import SqlStatement

#: Member of the partition under which a task saves the list, and of the offset that holds it.
TABLES: Final = "tables"
_KNOWN_TABLES: Final = "known"


class _List(msgspec.Struct):
    tables: list[tuple[str, str]]


class StatementEffect(NamedTuple):
    """The effect of a statement on snapshots of new tables.

    Attributes:
        new: tables that need a snapshot now.
        complete: tables of which all rows are in the binlog behind the statement: an unfinished snapshot of one is not needed.
        gone: captured tables that are no longer there under these names.
    """

    new: tuple[TableName, ...] = ()
    complete: tuple[TableName, ...] = ()
    gone: tuple[TableName, ...] = ()


class KnownTables:
    """The list of one task.

    Args:
        prefix: ``topic.prefix``.
        shard: what the task owns.
        layout: number of the division into tasks that the task saves under.
        saved: the connector's saved offsets.
        matches: whether a table is captured.
        fold: whether the server takes names in any case (``lower_case_table_names``).

    Attributes:
        inherited: whether the list comes from another division into tasks: snapshots of new tables that were not finished there
            start again.
    """

    def __init__(
        self,
        prefix: str,
        shard: Shard,
        layout: int,
        saved: Iterable[tuple[Position, Position]],
        matches: Callable[[TableName], bool],
        *,
        fold: bool = False,
    ) -> None:
        self._partition: Position = {**start.stream_partition(prefix, shard), TABLES: _KNOWN_TABLES}
        self._layout = layout
        self._matches = matches
        self._fold = fold
        pairs = [(partition, offset) for partition, offset in saved if partition.get(start.SERVER) == prefix]
        lists = [
            (
                str(partition.get(start.SHARD, "")),
                int(offset.get(start.LAYOUT) or 0),
                str(offset.get(_KNOWN_TABLES) or ""),
            )
            for partition, offset in pairs
            if partition.get(TABLES) == _KNOWN_TABLES
        ]
        own_shard = str(self._partition.get(start.SHARD, ""))
        members = [table_list for table_list in lists if table_list[:2] == (own_shard, layout)]
        self.inherited = not members
        if not members:
            newest = max((number for _, number, _ in lists), default=0)
            members = [table_list for table_list in lists if table_list[1] == newest]
        self._known_tables: set[TableName] | None = (
            set.intersection(*(_unpack_names(packed) for _, _, packed in members)) if members else None
        )
        self._changed = False
        if self._known_tables is not None:
            before = len(self._known_tables)
            unfinished = (
                _unfinished_tables(pairs, {table_list[0] for table_list in members})
                if self.inherited
                else frozenset[str]()
            )
            # A table that was taken off the list has changed unseen since: put back, it is a new one.
            self._known_tables = {name for name in self._known_tables if matches(name) and str(name) not in unfinished}
            self._changed = len(self._known_tables) < before

    def discover(self, names: Sequence[TableName], *, all_read: bool) -> list[TableName]:
        """The captured tables that are there at the start; returns those that are new.

        Args:
            names: the tables.
            all_read: whether a snapshot of all tables begins now.
        """
        if self._known_tables is None or all_read:
            new = []  # without a list it is unknown: they count as known
            self._known_tables = {self._table_key(name) for name in names}
        else:
            new = [name for name in names if self._table_key(name) not in self._known_tables]
            self._known_tables |= {self._table_key(name) for name in new}
        self._changed = self._changed or bool(new) or self.inherited or all_read
        return new

    def statement(self, statement: SqlStatement) -> StatementEffect:
        """Take a statement of the binlog that changes structures."""
        if self._known_tables is None or statement.temporary:
            return StatementEffect()
        before = frozenset(self._known_tables)
        if statement.kind == "create":
            names = [name for name in statement.tables if self._matches(name)]
            # With IF NOT EXISTS the statement is in the binlog also where the table was there already.
            created = [name for name in names if not statement.if_absent or self._table_key(name) not in before]
            self._known_tables |= {self._table_key(name) for name in created}
            effect = StatementEffect(complete=tuple(created))
        elif statement.kind == "rename":
            effect = self._rename(statement, before)
        elif statement.drops_database:
            database = self._table_key(TableName(statement.database, "")).database
            effect = StatementEffect(gone=tuple(sorted(name for name in before if name.database == database)))
            self._known_tables -= frozenset(effect.gone)
        else:
            new = [name for name in statement.tables[1:] if statement.partition_out and self._matches(name)]
            self._known_tables |= {self._table_key(name) for name in new}
            effect = StatementEffect(
                new=tuple(name for name in new if self._table_key(name) not in before), gone=self._list_gone(statement)
            )
            self._known_tables -= {self._table_key(name) for name in effect.gone}
        self._changed = self._changed or self._known_tables != before
        return effect

    def _rename(self, statement: SqlStatement, before: frozenset[TableName]) -> StatementEffect:
        known_tables = set(before)
        for old, new in zip(statement.tables[::2], statement.tables[1::2], strict=False):
            known_tables.discard(self._table_key(old))
            if self._matches(new):
                known_tables.add(self._table_key(new))
        self._known_tables = known_tables
        return StatementEffect(
            # A name that another table had until this statement (an online change of structure) stays known.
            new=tuple(name for name in statement.tables[1::2] if self._table_key(name) in known_tables - before),
            gone=self._list_gone(statement),
        )

    def _list_gone(self, statement: SqlStatement) -> tuple[TableName, ...]:
        return tuple(name for name in statement.gone if self._matches(name))

    def forget(self, name: TableName) -> None:
        """The server has no table of this name: one that gets it is new."""
        if self._known_tables is not None and self._table_key(name) in self._known_tables:
            self._known_tables.discard(self._table_key(name))
            self._changed = True

    def names(self) -> list[TableName]:
        """The tables in the list, by name."""
        return sorted(self._known_tables or ())

    def take(self) -> tuple[tuple[Position, Position], ...]:
        """Return the offset to save if the list has changed since the last call, else ()."""
        if not self._changed or self._known_tables is None:
            return ()
        self._changed = False
        return (
            (self._partition, {_KNOWN_TABLES: pack(_List(sorted(self._known_tables))), start.LAYOUT: self._layout}),
        )

    def _table_key(self, name: TableName) -> TableName:
        return name.folded if self._fold else name


def _unpack_names(packed: str) -> set[TableName]:
    try:
        return {TableName(*parts) for parts in unpack(packed, _List, "list of tables").tables}
    except ValueError:
        return set()  # altered by hand: its tables count as new


def _unfinished_tables(pairs: Iterable[tuple[Position, Position]], members: set[str]) -> frozenset[str]:
    """Tables whose snapshot was started by one of these shards and not completed."""
    table_names: set[str] = set()
    for partition, offset in pairs:
        request: Any = offset.get("request")
        if (
            start.SNAPSHOT in partition
            and str(partition.get(start.SHARD, "")) in members
            and isinstance(request, str)
            and offset.get("state") not in SNAPSHOT_ENDED
        ):
            asked = msgspec.json.decode(request, type=dict[str, Any])
            if asked.get("origin") == NEW:
                table_names.update(re.sub(r"\\(.)", r"\1", expression) for expression in asked["tables"])
    return frozenset(table_names)


def snapshot_id(name: TableName, used: Iterable[str]) -> str:
    """The id of the next snapshot of a new table: ``new-DATABASE.TABLE``, and ``~2`` behind it for a second one."""
    base = f"{NEW}-{name}"
    used_ids = set(used)
    if base not in used_ids:
        return base
    return next(f"{base}~{number}" for number in range(2, len(used_ids) + 3) if f"{base}~{number}" not in used_ids)
