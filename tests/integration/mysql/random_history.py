"""A history of statements by chance, with the content of each table before and after each change of its structure."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pymysql

from tests.integration.mysql.random_alters import draw_alter
from tests.integration.mysql.random_tables import (
    TABLE_NAMES,
    Table,
    draw_change,
    draw_insert,
    draw_joined_change,
    draw_table,
    draw_trigger,
    listed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from random import Random

    from tests.integration.mysql.random_columns import Column

Row = dict[str, Any]


class Position(NamedTuple):
    """A position in the binlog."""

    file: int
    pos: int


@dataclass
class Segment:
    """A table between two changes of its structure or its name.

    Attributes:
        table: as it is in this time.
        key: the columns of its primary key, else of the first unique index without NULL; () for none.
        primary: whether that is the primary key.
        start: the rows at its beginning.
        end: the rows at its end.
        before: the segment whose rows it continues, or None.
        cause: the statement that it begins with.
        first: whether it was there before the connector.
        swapped: whether the name was another table's before: no snapshot reads it then.
    """

    table: Table
    key: tuple[str, ...]
    primary: bool
    start: list[Row]
    before: Segment | None = None
    end: list[Row] = field(default_factory=list)
    cause: str = ""
    first: bool = False
    swapped: bool = False


class History:
    """Writes to tables of a database by chance.

    Args:
        connect: makes a connection to the database.
        chance: everything is drawn from it.
        options: the forms of values.
        mysql: whether the server is a MySQL.
        names: how many tables there may be.

    Attributes:
        timeline: for each table's name the segments, and behind which position they begin.
        signals: the signal table, "" for none.
        alters: whether it changes structures.
        images: the row image from which position on.
        statements: all of them, and what the server said.
        truncated: tables that a TRUNCATE emptied, in order.
    """

    def __init__(
        self,
        connect: Callable[[], pymysql.Connection[Any]],
        chance: Random,
        options: Mapping[str, str],
        *,
        mysql: bool,
        images: tuple[str, ...] = ("FULL",),
        folder: Path,
    ) -> None:
        self.chance = chance
        self.options = options
        self.mysql = mysql
        self.links = [connect(), connect()]
        self.reading = connect()
        self.tables: dict[str, Table] = {}
        self.current: dict[str, Segment] = {}
        self.timeline: dict[str, list[tuple[Position, Segment | None]]] = {}
        self.images: list[tuple[Position, str]] = [(Position(0, 0), "FULL")]
        self.statements: list[str] = []
        self.truncated: list[str] = []
        self.signals = ""
        self.alters = True
        self._triggers: list[str] = []
        self.folder = folder
        self._image_words = images
        self._open = [False, False]
        for link in [*self.links, self.reading]:
            self._run(link, "SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")
            self._run(link, f"SET innodb_lock_wait_timeout = {int(mysql)}")

    # Reading.

    def position(self) -> Position:
        word = "BINARY LOG" if self.mysql else "MASTER"
        ((file, pos, *_),) = self._run(self.reading, f"SHOW {word} STATUS")
        return Position(int(file.rpartition(".")[2]), int(pos))

    def read(self, table: Table) -> list[Row]:
        """The rows of a table as events would show them."""
        queries = ", ".join(column.query() for column in table.columns)
        rows = self._run(self.reading, f"SELECT {queries} FROM {table.sql}")
        return [
            {column.name: column.shown(value, self.options) for column, value in zip(table.columns, row, strict=True)}
            for row in rows
        ]

    def read_key(self, table: Table) -> tuple[tuple[str, ...], bool]:
        """The columns by which events tell rows apart."""
        indexes: dict[str, list[Any]] = {}
        for row in self._run(self.reading, f"SHOW INDEX FROM {table.sql}"):
            if not row[1]:
                indexes.setdefault(row[2], []).append(row)
        for name, parts in sorted(indexes.items(), key=lambda index: index[0] != "PRIMARY"):
            if all(part[7] is None and part[9] != "YES" and part[4] is not None for part in parts):
                return tuple(part[4] for part in parts), name == "PRIMARY"
        return (), False

    # Writing.

    def create_tables(self, count: int, rows: int) -> None:
        """Make the first tables, before the connector starts."""
        for name in self.chance.sample(TABLE_NAMES, count):
            self.create(name, rows if self.chance.random() < 0.8 else 0)
        for segment in self.current.values():
            segment.start, segment.first = self.read(segment.table), True

    def create(self, name: str, rows: int) -> None:
        while not self.restructure("", {}, {name: (draw_table(self.chance, name, mysql=self.mysql), None)}):
            pass
        for _ in range(rows // 20):
            self.execute(0, draw_insert(self.chance, self.tables[name], 20, "REPLACE"))

    def execute(self, link: int, statement: str) -> bool:
        try:
            self._run(self.links[link], statement)
        except pymysql.MySQLError as error:
            self.statements.append(f"{link}: {statement}  -- {error}")
            return False
        self.statements.append(f"{link}: {statement}")
        return True

    def restructure(
        self, sql: str, ends: dict[str, None], begins: dict[str, tuple[Table, str | None]], *, keep: bool = True
    ) -> bool:
        """Run a statement that changes tables.

        Args:
            sql: the statement; "" creates the first table of ``begins``.
            ends: the names whose segment ends.
            begins: the names whose segment begins: as which table, and the name of the one whose rows it continues.
            keep: whether the rows continue.
        """
        at = self.position()
        ended = {name: self.read(self.tables[name]) for name in ends}
        wait = 0 if self._open[1] and not self.mysql else 1
        self._run(self.links[0], f"SET lock_wait_timeout = {wait}")
        self._open[0] = False
        if not self.execute(0, sql or next(table.create() for table, _ in begins.values())):
            return False
        before = {name: self.current.pop(name) for name in ends}
        for name, segment in before.items():
            segment.end = ended[name]
            del self.tables[name]
            self._note(name, at, None)
        for name, (table, origin) in begins.items():
            self.tables[name] = table
            key, primary = self.read_key(table)
            start = self.read(table) if origin is not None and keep else []
            segment = Segment(table, key, primary, start, before.get(origin or ""), cause=sql)
            segment.swapped = (name in before and origin not in {None, name}) or (
                segment.before is not None and segment.before.swapped
            )
            self.current[name] = segment
            self._note(name, at, segment)
        return True

    def _note(self, name: str, at: Position, segment: Segment | None) -> None:
        positions = self.timeline.setdefault(name, [])
        if positions and positions[-1][0] == at:
            positions.pop()
        positions.append((at, segment))

    def step(self) -> None:
        """One or some statements."""
        chance, draw = self.chance, self.chance.random()
        if draw < 0.10:
            draw_alter(self) if self.alters else None
        elif draw < 0.13 and not self._open[0]:
            self._set_session()
        elif draw < 0.15:
            self.execute(0, "FLUSH BINARY LOGS") if not self._open[0] else None
        elif draw < 0.17 and not any(self._open):
            self._load()
        elif draw < 0.19 and not any(self._open):
            self._run_xa()
        elif draw < 0.21:
            self._change_triggers()
        elif draw < 0.24 and len(self.tables) > 1:
            first, second = chance.sample(sorted(self.tables), 2)
            self.execute(0, draw_joined_change(chance, self.tables[first], self.tables[second]))
        elif draw < 0.25 and self.signals:
            self._ask_for_snapshot()
        elif draw < 0.48:
            self._run_transaction(chance.choice((0, 0, 1)))
        elif self.tables:
            table = self.tables[chance.choice(sorted(self.tables))]
            link = 0 if chance.random() < 0.8 else 1
            self.execute(link, draw_change(chance, table))

    def _run_transaction(self, link: int) -> None:
        """A whole transaction; of the second connection at times only one half of it."""
        chance = self.chance
        if not self.tables:
            return
        if not self._open[link]:
            self.execute(link, "BEGIN")
            self._open[link] = True
        saved = False
        for _ in range(chance.choice((1, 2, 3, 6))):
            self.execute(link, draw_change(chance, self.tables[chance.choice(sorted(self.tables))]))
            draw = chance.random()
            if draw < 0.2:
                saved = self.execute(link, "SAVEPOINT `s 1`")
            elif draw < 0.35 and saved:
                self.execute(link, "ROLLBACK TO SAVEPOINT `s 1`")
        if link == 0 or chance.random() < 0.6:
            self.finish(link)

    def finish(self, link: int) -> None:
        self.execute(link, self.chance.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))
        self._open[link] = False

    def finish_all(self) -> None:
        """End what is open, and take the last content of all tables."""
        for link in (0, 1):
            self.finish(link)
        for name, segment in self.current.items():
            segment.end = self.read(self.tables[name])

    def compare_truncations(self, events: list[str]) -> list[str]:
        """Return what is wrong with the events of truncations, by table in order."""
        return [] if events == self.truncated else [f"truncated: {self.truncated}, events: {events}"]

    def _run_xa(self) -> None:
        if not self.tables:
            return
        self.execute(0, "XA START 'x'")
        self.execute(0, draw_change(self.chance, self.tables[self.chance.choice(sorted(self.tables))]))
        for statement in ("XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"):
            self.execute(0, statement)

    def _change_triggers(self) -> None:
        chance = self.chance
        if self._triggers and chance.random() < 0.6:
            self.execute(0, f"DROP TRIGGER IF EXISTS {self._triggers.pop(0)}")
        elif len(self.tables) > 1:
            first, second = (self.tables[name] for name in chance.sample(sorted(self.tables), 2))
            name = f"change_{len(self.statements)}"
            if self.execute(0, draw_trigger(chance, name, first, second)):
                self._triggers.append(name)

    def _ask_for_snapshot(self) -> None:
        keyed = [name for name, segment in self.current.items() if segment.primary]
        if keyed:
            expression = ".*" + re.escape(self.chance.choice(sorted(keyed)))
            data = json.dumps({"data-collections": [expression]}).replace("\\", "\\\\").replace("'", "''")
            number = len(self.statements)
            self.execute(0, f"INSERT INTO {self.signals} VALUES ('s{number}', 'execute-snapshot', '{data}')")

    def _set_session(self) -> None:
        draw = self.chance.random()
        if draw < 0.6 and len(self._image_words) > 1 and not any(self._open):
            word = self.chance.choice(self._image_words)
            for link in (0, 1):
                self.execute(link, f"SET SESSION binlog_row_image = {word}")
            self.images.append((self.position(), word))
        elif self.mysql:
            self.execute(0, f"SET SESSION binlog_transaction_compression = {self.chance.choice(('ON', 'OFF'))}")
        else:
            self.execute(0, f"SET SESSION binlog_alter_two_phase = {self.chance.choice(('ON', 'OFF'))}")

    def _load(self) -> None:
        simple: list[tuple[Table, list[Column]]] = []
        for name in sorted(self.tables):
            table = self.tables[name]
            columns = [column for column in table.written if column.kind in {"integer", "bigint", "date", "text"}]
            if columns and all(key in {column.name for column in columns} for key in table.keys):
                simple.append((table, columns))
        if not simple:
            return
        table, columns = self.chance.choice(simple)
        path = self.folder / "rows.csv"
        lines = [
            "\t".join(table.literal(self.chance, column).strip("'").replace("NULL", "\\N") for column in columns)
            for _ in range(self.chance.choice((1, 10, 60)))
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        word = self.chance.choice(("REPLACE", "IGNORE"))
        names = listed([column.name for column in columns])
        self.execute(
            0, f"LOAD DATA LOCAL INFILE '{path}' {word} INTO TABLE {table.sql} CHARACTER SET utf8mb4 ({names})"
        )

    @staticmethod
    def _run(link: pymysql.Connection[Any], statement: str) -> list[tuple[Any, ...]]:
        with link.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def close(self) -> None:
        for link in [*self.links, self.reading]:
            with contextlib.suppress(pymysql.MySQLError):
                link.close()
