"""Tables and rows by chance, and statements about them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tests.integration.mysql.random_columns import Column, draw_column, draw_key_column, kinds_of, quoted

if TYPE_CHECKING:
    from random import Random

TABLE_NAMES: Final = (
    "t",
    "T",
    "a b",
    "a_b",
    "größe",
    "it's",
    "select",
    "x`y",
    "d$",
    "dot.dot",
    "per%cent",
    "-1",
    'q"q',
)
COLUMN_NAMES: Final = (
    *("v", "W", "select", "a b", "größe", 'q"t', "it's", "back`tick", "per%s", "{x}", "x.y", "__class__", "c\\n"),
    *("order", "id2", "ID3", "row", "$", "1", "-", "before", "None", "ﬁ", "日本"),
)
#: Types without an equality that SQL has for all of their values.
_NOT_COMPARED: Final = frozenset({"geometry", "json", "document", "float"})


@dataclass(frozen=True)
class Table:
    """A table as the writer knows it.

    Attributes:
        name: as the server shows it.
        columns: in order.
        keys: columns of any unique index: their values are drawn from few that are apart in every form.
        primary: columns of the primary key.
        suffix: what follows the columns in CREATE TABLE.
        indexes: their declarations.
    """

    name: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...] = ()
    primary: tuple[str, ...] = ()
    suffix: str = ""
    indexes: tuple[str, ...] = field(default=())

    @property
    def sql(self) -> str:
        return quoted(self.name)

    @property
    def written(self) -> list[Column]:
        """The columns that a statement can set."""
        return [column for column in self.columns if not column.generated]

    @property
    def free(self) -> list[Column]:
        """Those that are in no key."""
        return [column for column in self.columns if column.name not in self.keys]

    def create(self) -> str:
        parts = [column.sql() for column in self.columns] + list(self.indexes)
        return f"CREATE TABLE {self.sql} ({', '.join(parts)}){self.suffix}"

    def literal(self, chance: Random, column: Column) -> str:
        return column.literal(chance, key=column.name in self.keys)

    def values(self, chance: Random, columns: list[Column]) -> str:
        return "(" + ", ".join(self.literal(chance, column) for column in columns) + ")"


def listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(map(quoted, names))


def draw_table(chance: Random, name: str, *, mysql: bool) -> Table:
    """A table with any key, or none."""
    names = chance.sample(COLUMN_NAMES, chance.randrange(3, 10))
    kinds = kinds_of(mysql=mysql)
    form = chance.choice(("primary", "primary", "primary", "several", "several", "unique", "none", "nullable"))
    key_count = {"several": chance.randrange(2, 4), "none": 0}.get(form, 1)
    keys = [draw_key_column(chance, key_name) for key_name in names[:key_count]]
    columns = [draw_column(chance, column_name, kinds) for column_name in names[key_count:]]
    columns = [with_default(chance, column) if chance.random() < 0.2 else column for column in columns]
    if form == "nullable":
        keys = [replace(keys[0], nullable=True)]
    key_names = tuple(column.name for column in keys)
    all_columns = [*keys, *columns]
    if chance.random() < 0.4:
        chance.shuffle(all_columns)
    all_columns += draw_generated(chance, all_columns)
    indexes = []
    if form in {"primary", "several"}:
        indexes.append(f"PRIMARY KEY ({listed(chance.sample(key_names, len(key_names)))})")
        if chance.random() < 0.2:
            indexes.append(f"UNIQUE KEY ({listed(key_names)})")
    elif form != "none":
        indexes.append(f"UNIQUE KEY ({listed(key_names)})")
    charset = chance.choice(("", "", " CHARACTER SET latin1", " CHARACTER SET utf8mb3", " CHARACTER SET utf16"))
    primary = key_names if form in {"primary", "several"} else ()
    return Table(name, tuple(all_columns), key_names, primary, charset, tuple(indexes))


def draw_generated(chance: Random, columns: list[Column]) -> list[Column]:
    """At times a generated column."""
    if chance.random() < 0.75:
        return []
    base = chance.choice(columns)
    stored = chance.choice(("VIRTUAL", "STORED"))
    if base.kind == "integer":
        return [Column("made", "bigint", "BIGINT", nullable=True, generated=f"AS ({quoted(base.name)} + 1) {stored}")]
    if base.kind == "text":
        expression = f"AS (CONCAT('x', {quoted(base.name)})) {stored}"
        return [Column("made", "text", "VARCHAR(400)", nullable=True, generated=expression)]
    return []


def with_default(chance: Random, column: Column) -> Column:
    literal = column.literal(chance, key=False)
    if (
        column.kind in {"geometry", "json", "document"}
        or "TEXT" in column.declared
        or "BLOB" in column.declared
        or "(" in literal
    ):
        return column
    if literal == "NULL" or (column.kind == "member" and literal.isdigit()):
        return column
    return replace(column, extra=f"DEFAULT {literal}")


def draw_insert(chance: Random, table: Table, rows: int, word: str = "") -> str:
    columns = table.written
    if chance.random() < 0.25:
        columns = [column for column in columns if column.name in table.keys or chance.random() < 0.7] or columns
    chance.shuffle(columns)
    word = word or chance.choice(("INSERT", "INSERT IGNORE", "REPLACE", "REPLACE", "duplicate"))
    values = ", ".join(table.values(chance, columns) for _ in range(rows))
    into = f"INTO {table.sql} ({listed([column.name for column in columns])}) VALUES {values}"
    if word == "duplicate":
        return f"INSERT {into} ON DUPLICATE KEY UPDATE {draw_settings(chance, table, free=chance.random() < 0.8)}"
    return f"{word} {into}"


def draw_settings(chance: Random, table: Table, *, free: bool) -> str:
    choice = [column for column in table.written if not free or column.name not in table.keys] or table.written
    columns = chance.sample(choice, min(len(choice), chance.choice((1, 1, 2, 4))))
    settings = []
    for column in columns:
        if column.kind == "integer" and chance.random() < 0.3:
            settings.append(f"{quoted(column.name)} = {quoted(column.name)} + {chance.choice((1, -1, 100))}")
        else:
            settings.append(f"{quoted(column.name)} = {table.literal(chance, column)}")
    return ", ".join(settings)


def draw_condition(chance: Random, table: Table) -> str:
    """The condition of a statement, and a limit."""
    column = chance.choice(table.columns)
    name = quoted(column.name)
    draw = chance.random()
    if draw < 0.3 and column.kind not in _NOT_COMPARED:
        literal = table.literal(chance, column)
        where = f" WHERE {name} IS NULL" if literal == "NULL" else f" WHERE {name} {chance.choice('=<>')} {literal}"
    elif draw < 0.4:
        where = f" WHERE {name} IS NULL"
    else:
        where = ""
    order = f" ORDER BY RAND({chance.randrange(1000)})" if chance.random() < 0.5 else ""
    return f"{where}{order} LIMIT {chance.choice((1, 1, 2, 5, 20, 1000) if where else (1, 2, 5, 10))}"


def draw_change(chance: Random, table: Table) -> str:
    """A statement that changes rows."""
    draw = chance.random()
    if draw < 0.4:
        return draw_insert(chance, table, chance.choice((1, 1, 2, 5, 12)))
    if draw < 0.68:
        return f"UPDATE IGNORE {table.sql} SET {draw_settings(chance, table, free=True)}{draw_condition(chance, table)}"
    if draw < 0.82:
        return (
            f"UPDATE IGNORE {table.sql} SET {draw_settings(chance, table, free=False)}{draw_condition(chance, table)}"
        )
    return f"DELETE FROM {table.sql}{draw_condition(chance, table)}"


def draw_joined_change(chance: Random, first: Table, second: Table) -> str:
    """A statement that changes rows of two tables."""
    column = chance.choice(first.columns)
    literal = first.literal(chance, column)
    condition = f"{first.sql}.{quoted(column.name)}"
    if column.kind in _NOT_COMPARED or literal == "NULL":
        condition += " IS NULL"
    else:
        condition += f" = {literal}"
    if chance.random() < 0.3:
        return f"DELETE {first.sql}, {second.sql} FROM {first.sql} JOIN {second.sql} WHERE {condition}"
    settings = []
    for table in (first, second):
        free = [column for column in table.written if column.name not in table.keys] or table.written
        column = chance.choice(free)
        settings.append(f"{table.sql}.{quoted(column.name)} = {table.literal(chance, column)}")
    return f"UPDATE IGNORE {first.sql} JOIN {second.sql} SET {', '.join(settings)} WHERE {condition}"


def draw_trigger(chance: Random, name: str, first: Table, second: Table) -> str:
    """A trigger by which changes of one table change another one."""
    when = f"{chance.choice(('BEFORE', 'AFTER'))} {chance.choice(('INSERT', 'UPDATE', 'DELETE'))}"
    body = f"UPDATE IGNORE {second.sql} SET {draw_settings(chance, second, free=True)} LIMIT 1"
    if chance.random() < 0.4:
        body = f"DELETE FROM {second.sql} LIMIT 1"
    return f"CREATE TRIGGER {quoted(name)} {when} ON {first.sql} FOR EACH ROW {body}"
