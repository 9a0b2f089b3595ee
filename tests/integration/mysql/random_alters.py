"""Changes of structure by chance."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.integration.mysql.random_columns import CHARSETS, Column, draw_column, kinds_of, quoted
from tests.integration.mysql.random_tables import COLUMN_NAMES, TABLE_NAMES, Table, draw_table, listed, with_default

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.mysql.random_history import History


def draw_alter(history: History) -> None:
    """One change of structure; the server may refuse it."""
    chance = history.chance
    if not history.tables or chance.random() < 0.05:
        history.create(chance.choice([name for name in TABLE_NAMES if name not in history.tables]), 0)
        return
    table = history.tables[chance.choice(sorted(history.tables))]
    actions: list[Callable[[History, Table], None]] = [
        *(_change_columns,) * 12,
        *(_convert, _change_key, _change_key, _truncate, _drop, _rename, _rename, _swap, _swap, _copy, _copy),
        *(_partition,) * 4,
    ]
    chance.choice(actions)(history, table)


def _alter(history: History, table: Table, actions: list[str], after: Table) -> bool:
    end = ""
    if history.chance.random() < 0.2:
        end = f", ALGORITHM={history.chance.choice(('INSTANT', 'INPLACE', 'COPY'))}"
    sql = f"ALTER TABLE {table.sql} {', '.join(actions)}{end}"
    return history.restructure(sql, {table.name: None}, {table.name: (after, table.name)})


def _position(history: History, columns: list[Column], moved: Column) -> tuple[str, int]:
    draw = history.chance.random()
    others = [column for column in columns if column is not moved]
    if draw < 0.5:
        return "", -1
    if draw < 0.7 or not others:
        return " FIRST", 0
    after = history.chance.choice(others)
    return f" AFTER {quoted(after.name)}", others.index(after) + 1


def _change_columns(history: History, table: Table) -> None:
    chance = history.chance
    columns = list(table.columns)
    kinds = kinds_of(mysql=history.mysql)
    draw = chance.randrange(7)
    free = [column for column in table.free if not column.generated]
    names = [name for name in COLUMN_NAMES if name not in {column.name for column in columns}]
    if draw <= 1 and names:
        column = draw_column(chance, chance.choice(names), kinds)
        column = with_default(chance, column) if chance.random() < 0.5 else column
        where, index = _position(history, columns, column)
        columns.insert(index if index >= 0 else len(columns), column)
        _alter(history, table, [f"ADD COLUMN {column.sql()}{where}"], replace(table, columns=tuple(columns)))
    elif draw == 2 and len(columns) > 2 and free:
        column = chance.choice(free)
        columns.remove(column)
        _alter(history, table, [f"DROP COLUMN {quoted(column.name)}"], replace(table, columns=tuple(columns)))
    elif draw == 3 and free:
        column = chance.choice(free)
        fresh = draw_column(chance, column.name, [column.kind] if chance.random() < 0.5 else kinds)
        where, index = _position(history, columns, column)
        at = columns.index(column)
        columns.remove(column)
        columns.insert(index if index >= 0 else at, fresh)
        _alter(history, table, [f"MODIFY COLUMN {fresh.sql()}{where}"], replace(table, columns=tuple(columns)))
    elif draw == 4 and names:
        column = chance.choice([column for column in columns if not column.generated])
        name = chance.choice(names)
        columns[columns.index(column)] = column.renamed(name)
        action = f"RENAME COLUMN {quoted(column.name)} TO {quoted(name)}"
        after = replace(
            table,
            columns=tuple(columns),
            keys=tuple(name if key == column.name else key for key in table.keys),
            primary=tuple(name if key == column.name else key for key in table.primary),
        )
        _alter(history, table, [action], after)
    elif draw == 5 and len(free) > 1:
        first, second = chance.sample(free, 2)
        at, to = columns.index(first), columns.index(second)
        columns[at], columns[to] = first.renamed(second.name), second.renamed(first.name)
        actions = [
            f"RENAME COLUMN {quoted(first.name)} TO {quoted(second.name)}",
            f"RENAME COLUMN {quoted(second.name)} TO {quoted(first.name)}",
        ]
        _alter(history, table, actions, replace(table, columns=tuple(columns)))
    elif free and len(columns) > 3 and names:
        gone = chance.choice(free)
        columns.remove(gone)
        fresh = draw_column(chance, chance.choice((gone.name, chance.choice(names))), kinds)
        columns.append(fresh)
        actions = [f"DROP COLUMN {quoted(gone.name)}", f"ADD COLUMN {fresh.sql()}"]
        _alter(history, table, actions, replace(table, columns=tuple(columns)))


def _convert(history: History, table: Table) -> None:
    charset = history.chance.choice(CHARSETS)
    if history.mysql and charset == "utf16" and any(column.kind == "member" for column in table.columns):
        return  # MySQL reads the members' bytes as UTF-16 afterwards
    _alter(history, table, [f"CONVERT TO CHARACTER SET {charset}"], table)


def _change_key(history: History, table: Table) -> None:
    chance = history.chance
    if table.primary:
        actions = ["DROP PRIMARY KEY"]
        if chance.random() < 0.7:
            actions.append(f"ADD PRIMARY KEY ({listed(table.primary[::-1])})")
            _alter(history, table, actions, table)
        else:
            _alter(history, table, actions, replace(table, primary=()))
    elif table.keys:
        word = chance.choice(("PRIMARY KEY", "PRIMARY KEY", "UNIQUE KEY"))
        primary = table.keys if word == "PRIMARY KEY" else ()
        columns = table.columns
        if primary:
            columns = tuple(replace(column, nullable=False) if column.name in primary else column for column in columns)
        _alter(history, table, [f"ADD {word} ({listed(table.keys)})"], replace(table, primary=primary, columns=columns))
    else:
        column = Column("serial", "bigint", "BIGINT", nullable=False)
        if column.name not in {name.name for name in table.columns}:
            action = f"ADD COLUMN {column.sql()} AUTO_INCREMENT PRIMARY KEY"
            after = replace(table, columns=(*table.columns, column), keys=("serial",), primary=("serial",))
            _alter(history, table, [action], after)


def _truncate(history: History, table: Table) -> None:
    if history.restructure(f"TRUNCATE TABLE {table.sql}", {table.name: None}, {table.name: (table, None)}, keep=False):
        history.truncated.append(table.name)


def _drop(history: History, table: Table) -> None:
    chance = history.chance
    if not history.mysql and chance.random() < 0.3:
        after = draw_table(chance, table.name, mysql=False)
        sql = after.create().replace("CREATE TABLE", "CREATE OR REPLACE TABLE", 1)
        history.restructure(sql, {table.name: None}, {table.name: (after, None)})
    elif history.restructure(f"DROP TABLE {table.sql}", {table.name: None}, {}) and chance.random() < 0.7:
        history.create(table.name, 0)


def _rename(history: History, table: Table) -> None:
    chance = history.chance
    name = chance.choice([name for name in TABLE_NAMES if name not in history.tables])
    after = replace(table, name=name)
    sql = chance.choice(
        (f"RENAME TABLE {table.sql} TO {quoted(name)}", f"ALTER TABLE {table.sql} RENAME TO {quoted(name)}")
    )
    history.restructure(sql, {table.name: None}, {name: (after, table.name)})


def _swap(history: History, table: Table) -> None:
    """Two tables change their names; at times as an online change of structure does it."""
    chance = history.chance
    others = sorted(set(history.tables) - {table.name})
    if not others:
        return
    other = history.tables[chance.choice(others)]
    sql = f"RENAME TABLE {table.sql} TO `swap`, {other.sql} TO {table.sql}, `swap` TO {other.sql}"
    history.restructure(
        sql,
        {table.name: None, other.name: None},
        {
            table.name: (replace(other, name=table.name), other.name),
            other.name: (replace(table, name=other.name), table.name),
        },
    )


def _copy(history: History, table: Table) -> None:
    """A table like another one, with or without its rows."""
    chance = history.chance
    name = chance.choice([name for name in TABLE_NAMES if name not in history.tables])
    if chance.random() < 0.5:
        history.restructure(
            f"CREATE TABLE {quoted(name)} LIKE {table.sql}", {}, {name: (replace(table, name=name), None)}
        )
        return
    columns = tuple(replace(column, generated="", extra="") for column in table.columns)
    if any(column.kind == "compressed" for column in columns):
        return
    after = Table(name, columns, keys=table.keys)
    history.restructure(f"CREATE TABLE {quoted(name)} AS SELECT * FROM {table.sql}", {}, {name: (after, None)})


def _partition(history: History, table: Table) -> None:
    chance = history.chance
    numbers = [
        column.name for column in table.columns if column.name in table.primary and column.kind in {"integer", "bigint"}
    ]
    action = chance.choice(
        (
            f"PARTITION BY KEY ({listed(table.primary)}) PARTITIONS 3" if table.primary else "",
            f"PARTITION BY HASH ({quoted(numbers[0])}) PARTITIONS 4" if numbers else "",
            f"PARTITION BY RANGE ({quoted(numbers[0])}) (PARTITION p0 VALUES LESS THAN (50), "
            "PARTITION p1 VALUES LESS THAN MAXVALUE)"
            if numbers
            else "",
            "TRUNCATE PARTITION p0",
            "ADD PARTITION PARTITIONS 2",
            "COALESCE PARTITION 1",
            "REBUILD PARTITION p1",
            "DROP PARTITION p0",
            "REMOVE PARTITIONING",
            "REORGANIZE PARTITION p0 INTO (PARTITION p2 VALUES LESS THAN (10), PARTITION p0 VALUES LESS THAN (50))",
        )
    )
    if action:
        history.restructure(f"ALTER TABLE {table.sql} {action}", {table.name: None}, {table.name: (table, table.name)})
