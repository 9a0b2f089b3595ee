"""Versions of tables: each change of a table's structure gives it the next number.

A version is part of UMS namespaces, is shown in REST, and makes a record in the topic of table versions: what changed, when, by
which statement, at which place. The book is kept in the connector's offsets, one per table: {"server": prefix, "table": name}.

A structure is what rows are read by: names, types, order, key. Defaults and comments are no part of it. After a restart old
structures are met again; each keeps the number it had, because the book knows at which place it was met.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from connectors import schema as connect
from connectors.api import Position, SourceRecord
from connectors.mysql.position.positions import position_number
from connectors.mysql.schema import types
from connectors.schema import array, struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from connectors.mysql.model import MySqlColumn, MySqlTable, TableName

_TABLE: Final = "table"
_BOOK: Final = "versions"
#: Structures that the book keeps of each table; the first of them are forgotten.
_KEPT: Final = 20
_STATEMENT: Final = 10_000

_COLUMN: Final = struct(
    "io.millrace.mysql.TableVersion.Column",
    {"name": connect.STRING, "type": connect.STRING, "nullable": connect.BOOLEAN, "key": connect.BOOLEAN},
)
_CHANGE: Final = struct(
    "io.millrace.mysql.TableVersion.Change",
    {
        "column": connect.STRING,
        "change": connect.STRING,
        "before": connect.OPTIONAL_STRING,
        "after": connect.OPTIONAL_STRING,
    },
)
KEY: Final = struct("io.millrace.mysql.TableVersion.Key", {"table": connect.STRING})
VALUE: Final = struct(
    "io.millrace.mysql.TableVersion",
    {
        "table": connect.STRING,
        "version": connect.INT32,
        "ts_ms": connect.INT64,
        "file": connect.STRING,
        "pos": connect.INT64,
        "gtid": connect.OPTIONAL_STRING,
        "statement": connect.OPTIONAL_STRING,
        "changes": array(_CHANGE),
        "columns": array(_COLUMN),
    },
)


class Met(Protocol):
    """When and where a structure was met, and the last statement before it that names the table ("" if unknown)."""

    @property
    def ts_ms(self) -> int: ...  # noqa: D102
    @property
    def file(self) -> str: ...  # noqa: D102
    @property
    def pos(self) -> int: ...  # noqa: D102
    @property
    def gtid(self) -> str: ...  # noqa: D102
    @property
    def statement(self) -> str: ...  # noqa: D102
    @property
    def server(self) -> int: ...  # noqa: D102


class VersionEntry(msgspec.Struct, frozen=True, array_like=True):
    """One structure of a table in the book."""

    version: int
    fingerprint: str
    ts_ms: int
    file: str
    pos: int
    gtid: str
    statement: str
    #: (name, type, nullable, part of the key) in order.
    columns: tuple[tuple[str, str, bool, bool], ...]
    #: The id of the server whose files ``file`` and ``pos`` count; 0: unknown.
    server: int = 0


_DECODER: Final = msgspec.json.Decoder(tuple[VersionEntry, ...])
_ENCODER: Final = msgspec.json.Encoder()


class VersionBook:
    """The versions of the tables that a task meets; every task of a connector keeps one.

    Args:
        prefix: ``topic.prefix``.
        topic: where records go; "": there are none, and the book is only kept in the offsets.
        saved: the connector's saved offsets.
        owner: whether this task is the one that writes about a table; all of them must come to the same numbers.
    """

    def __init__(
        self,
        prefix: str,
        topic: str,
        saved: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]],
        *,
        owner: Callable[[TableName], bool] = lambda _name: True,
    ) -> None:
        self.topic = topic
        self._prefix = prefix
        self._owner = owner
        self._books: dict[str, tuple[VersionEntry, ...]] = dict(_read_books(prefix, saved))
        self._records: list[SourceRecord] = []
        self._offsets: list[tuple[Position, Position]] = []

    @property
    def version_count(self) -> int:
        """How many versions of tables are in the book."""
        return sum(map(len, self._books.values()))

    def version(self, table: MySqlTable, met: Met | None = None) -> int:
        """The number of this structure; one that is new gets the next number and is noted for ``take``.

        Args:
            table: the structure.
            met: where the stream met it; None: it was read from the catalog, which may be ahead of the stream: nothing is
                noted, and a structure that the book doesn't know has the number it is going to have.
        """
        name = str(table.name)
        book = self._books.get(name, ())
        print_ = fingerprint_table(table)
        if book and book[-1].fingerprint == print_:
            return book[-1].version
        for entry in reversed(book):
            # Met again after a restart: the book is ahead. What comes back behind the newest place is a new structure.
            if entry.fingerprint == print_ and (met is None or _is_before(met, book[-1])):
                return entry.version
        version = book[-1].version + 1 if book else 1
        if met is None:
            return version
        entry = VersionEntry(
            version,
            print_,
            met.ts_ms,
            met.file,
            met.pos,
            met.gtid,
            met.statement[:_STATEMENT],
            _column_tuples(table),
            met.server,
        )
        self._books[name] = (*book, entry)[-_KEPT:]
        if self._owner(table.name):
            self._note_change(name, book[-1] if book else None, entry)
        return version

    def current(self, name: TableName) -> int:
        """The number of the structure that was met last; 1 before the first."""
        book = self._books.get(str(name), ())
        return book[-1].version if book else 1

    def replaced(self, name: TableName, version: int, met: Met) -> int | None:
        """The number of the structure that ends where this one was met; None: it was met before, or is the first one.

        The same for all tasks and after a restart, since it depends on the place only.
        """
        book = self._books.get(str(name), ())
        for before, entry in itertools.pairwise(book):
            if entry.version == version and (entry.file, entry.pos) == (met.file, met.pos):
                return before.version
        return None

    def take(self) -> tuple[list[SourceRecord], tuple[tuple[Position, Position], ...]]:
        """Return what to deliver since the last call: records (which carry the book), and offsets where there is no topic."""
        undelivered = self._records, tuple(self._offsets)
        self._records, self._offsets = [], []
        return undelivered

    def _note_change(self, name: str, before: VersionEntry | None, entry: VersionEntry) -> None:
        partition = {"server": self._prefix, _TABLE: name}
        offset = {_BOOK: _ENCODER.encode(self._books[name]).decode()}
        if not self.topic:
            self._offsets.append((partition, offset))
            return
        value = {"table": name, **_show_entry(entry), "changes": list_changes(before, entry)}
        self._records.append(SourceRecord(partition, offset, self.topic, value, VALUE, {"table": name}, KEY))


def _is_before(met: Met, newest: VersionEntry) -> bool:
    """Whether a structure was met before the newest one was; positions of another server tell nothing about it."""
    return newest.server in {0, met.server} and position_number(met.file, met.pos) < position_number(
        newest.file, newest.pos
    )


def fingerprint_table(table: MySqlTable) -> str:
    """A string that is equal for equal structures."""
    description = repr(
        (_column_tuples(table), [(column.collation, column.members, column.geometry) for column in table.columns])
    )
    return hashlib.blake2b(description.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def list_changes(before: VersionEntry | None, after: VersionEntry) -> list[dict[str, Any]]:
    """List the columns ``added``, ``dropped``, ``changed`` (type, NULL or key), ``moved``; nothing for the first version.

    A renamed column is one dropped and one added: the binlog does not say that it was renamed.
    """
    if before is None:
        return []
    old, new = ({column[0]: column for column in entry.columns} for entry in (before, after))
    differences = [
        {"column": name, "change": "dropped", "before": _format_column(column), "after": None}
        for name, column in old.items()
        if name not in new
    ]
    stayed = [name for name in old if name in new]
    order = [name for name in new if name in old]
    moved = _moved_names(stayed, order)
    for name, column in new.items():
        if name not in old:
            differences.append({"column": name, "change": "added", "before": None, "after": _format_column(column)})
        elif column != old[name]:
            differences.append(
                {
                    "column": name,
                    "change": "changed",
                    "before": _format_column(old[name]),
                    "after": _format_column(column),
                }
            )
        elif name in moved:
            positions = [list(entry).index(name) + 1 for entry in (old, new)]
            differences.append(
                {"column": name, "change": "moved", "before": f"place {positions[0]}", "after": f"place {positions[1]}"}
            )
    return differences


def list_tables(prefix: str, offsets: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The tables and their versions from a connector's saved offsets, as REST shows them; the newest version comes first."""
    shown = []
    for name, book in sorted(_read_books(prefix, offsets)):
        history = [
            {**_show_entry(entry), "changes": list_changes(earlier, entry)}
            for earlier, entry in zip((None, *book), book, strict=False)
        ]
        shown.append({"table": name, "version": book[-1].version, "versions": history[::-1]})
    return shown


def _read_books(
    prefix: str, saved: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> Iterable[tuple[str, tuple[VersionEntry, ...]]]:
    for partition, offset in saved:
        if (
            partition.get("server") == prefix
            and isinstance(partition.get(_TABLE), str)
            and isinstance(offset.get(_BOOK), str)
        ):
            try:
                book = _DECODER.decode(offset[_BOOK])
            except msgspec.DecodeError:
                continue  # not ours, or altered by hand: the versions start from 1 again
            if book:
                yield partition[_TABLE], book


def _column_tuples(table: MySqlTable) -> tuple[tuple[str, str, bool, bool], ...]:
    return tuple(
        (column.name, _format_type(column), column.nullable, column.name in table.key) for column in table.columns
    )


def _format_type(column: MySqlColumn) -> str:
    """The type as the binlog tells it, so that it doesn't matter whether the catalog has completed the column."""
    name = types.declared(msgspec.structs.replace(column, declared=""))
    sizes = [str(number) for number in (name.length, name.scale) if number >= 0]
    if types.kind_of(column) in {types.ColumnKind.ENUM, types.ColumnKind.SET}:
        sizes = ["'" + member.replace("'", "''") + "'" for member in column.members]
    return f"{name.name}({','.join(sizes)})" if sizes else name.name


def _format_column(column: tuple[str, str, bool, bool]) -> str:
    return column[1] + ("" if column[2] else " NOT NULL") + (" KEY" if column[3] else "")


def _show_entry(entry: VersionEntry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "ts_ms": entry.ts_ms,
        "file": entry.file,
        "pos": entry.pos,
        "gtid": entry.gtid or None,
        "statement": entry.statement or None,
        "columns": [dict(zip(("name", "type", "nullable", "key"), column, strict=True)) for column in entry.columns],
    }


def _moved_names(old: list[str], new: list[str]) -> set[str]:
    """Names that changed places: all but a longest run of names whose order is the same in both."""
    rank = {name: name_index for name_index, name in enumerate(new)}
    best: list[list[str]] = []  # by length: the run of that length with the smallest end
    for name in old:
        at = next((index for index, run in enumerate(best) if rank[run[-1]] > rank[name]), len(best))
        best[at : at + 1] = [[*(best[at - 1] if at else []), name]]
    return set(old) - set(best[-1] if best else [])
