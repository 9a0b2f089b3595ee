"""Random queries of views and random histories of their tables. A run has many cases: column ``c`` keeps them apart."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import duckdb
from pyspark.sql import types as t

from spark_jobs.contract import Column, TableSchema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

Row = dict[str, Any]
Key = tuple[Any, ...]


def _table(name: str, /, **columns: t.DataType) -> TableSchema:
    key = [Column(entry, t.IntegerType(), nullable=False, key=True) for entry in ("c", "id")]
    return TableSchema(f"shop.{name}", (*key, *(Column(entry, kind) for entry, kind in columns.items())))


TABLES: Final = {
    "facts": _table("facts", dim=t.IntegerType(), other=t.IntegerType(), amount=t.IntegerType(), label=t.StringType()),
    "dims": _table("dims", region=t.StringType(), parent=t.IntegerType()),
    "parents": _table("parents", name=t.StringType()),
}
_IDS: Final = {"facts": 8, "dims": 4, "parents": 3}

#: FROM, the key of a view without GROUP BY, and the names under which it reads tables.
_FROMS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("shop.facts f", "c,id", ("f",)),
    ("shop.facts f JOIN shop.dims d ON f.c = d.c AND f.dim = d.id", "c,id", ("f", "d")),
    ("shop.facts f LEFT JOIN shop.dims d ON f.c = d.c AND f.dim = d.id", "c,id", ("f", "d")),
    ("shop.facts f LEFT JOIN shop.dims d ON f.c = d.c AND f.dim = d.id AND d.region <> 'b'", "c,id", ("f", "d")),
    (
        "shop.facts f JOIN shop.dims d ON f.c = d.c AND f.dim = d.id LEFT JOIN shop.parents p ON d.c = p.c AND d.parent = p.id",
        "c,id",
        ("f", "d", "p"),
    ),
    (
        (
            "shop.facts f LEFT JOIN shop.dims d ON f.c = d.c AND f.dim = d.id "
            "LEFT JOIN shop.parents p ON p.c = d.c AND p.id = d.parent"
        ),
        "c,id",
        ("f", "d", "p"),
    ),
    (
        "shop.facts f LEFT JOIN shop.dims d ON f.c = d.c AND f.dim = d.id JOIN shop.parents p ON p.c = f.c AND p.id = f.other",
        "c,id",
        ("f", "d", "p"),
    ),
    ("shop.facts f LEFT JOIN shop.facts g ON f.c = g.c AND f.other = g.id", "c,id", ("f", "g")),
    (
        (
            "shop.facts f LEFT JOIN shop.dims d ON f.c = d.c AND f.dim = d.id "
            "LEFT JOIN shop.dims e ON f.c = e.c AND f.other = e.id"
        ),
        "c,id",
        ("f", "d", "e"),
    ),
    ("shop.dims d JOIN shop.facts f ON f.dim = d.id AND f.c = d.c", "c,id", ("f", "d")),
    ("shop.dims d LEFT JOIN shop.facts f ON f.dim = d.id AND f.c = d.c", "", ("f", "d")),
)
_COLUMNS: Final = {
    "f": ("f.amount", "f.label", "coalesce(f.amount, 0) * 2 + 1"),
    "d": ("d.region", "coalesce(d.region, '-')", "d.parent"),
    "p": ("p.name", "concat(coalesce(p.name, '?'), '!')"),
    "g": ("g.amount", "coalesce(f.amount, 0) - coalesce(g.amount, 0)"),
    "e": ("e.region", "e.region = d.region"),
}
_CONDITIONS: Final = {
    "f": ("f.amount > 1", "f.label <> 'x' OR f.label IS NULL"),
    "d": ("d.region IS NULL", "d.region = 'a' OR f.amount > 2"),
    "p": ("p.id IS NULL", "p.name = 'n'"),
    "g": ("g.id IS NULL OR g.amount > 1",),
    "e": ("e.region = 'a' OR d.region = 'a'",),
}
_GROUPS: Final = {
    "f": ("coalesce(f.label, '-')", "coalesce(f.amount, 0) % 2"),
    "d": ("coalesce(d.region, '-')",),
    "p": ("coalesce(p.name, '-')",),
    "g": ("coalesce(g.label, '-')",),
    "e": ("coalesce(e.region, '-')",),
}
#: Aggregates for Spark and for DuckDB.
_AGGREGATES: Final = (
    ("count(*)", "count(*)"),
    ("count(f.amount)", "count(f.amount)"),
    ("count(DISTINCT f.label)", "count(DISTINCT f.label)"),
    ("sum(f.amount)", "sum(f.amount)"),
    ("min(f.amount)", "min(f.amount)"),
    ("max(f.label)", "max(f.label)"),
    ("avg(f.amount)", "avg(f.amount)"),
    ("sum(f.amount) FILTER (WHERE f.id > 3)", "sum(f.amount) FILTER (WHERE f.id > 3)"),
    ("collect_list(f.amount)", "coalesce(list_sort(list(f.amount) FILTER (f.amount IS NOT NULL)), [])"),
    (
        "collect_set(f.label)",
        "coalesce(list_sort(list(DISTINCT f.label) FILTER (f.label IS NOT NULL)), [])",
    ),
)


@dataclass(frozen=True)
class Query:
    """A view: its SELECT for Spark and for DuckDB, its key, the tables that it reads."""

    spark: str
    duckdb: str
    key: tuple[str, ...]
    tables: tuple[str, ...]


def random_query(source: Random) -> Query:
    """A query that a view takes."""
    tables, key, aliases = source.choice(_FROMS)
    read = tuple(name for name in TABLES if f"shop.{name} " in tables + " ")
    where = ""
    if source.random() < 0.5:
        conditions = [entry for alias in aliases for entry in _CONDITIONS[alias] if alias == "f" or "f" in aliases]
        where = f" WHERE {source.choice(conditions)}"
    if key and source.random() < 0.6:
        columns = [entry for alias in aliases for entry in _COLUMNS[alias]]
        chosen = source.sample(columns, source.randint(1, min(4, len(columns))))
        listed = ", ".join(f"{entry} AS v{number}" for number, entry in enumerate(chosen))
        sql = f"SELECT f.c, f.id, {listed} FROM {tables}{where}"  # noqa: S608 - made of the constants above
        return Query(sql, sql, ("c", "id"), read)
    groups = [entry for alias in aliases for entry in _GROUPS[alias]]
    chosen = source.sample(groups, source.randint(1, min(2, len(groups))))
    base = aliases[0] if key else "d"
    names = ["c", *(f"k{number}" for number in range(len(chosen)))]
    listed = ", ".join(f"{entry} AS {name}" for entry, name in zip([f"{base}.c", *chosen], names, strict=True))
    picked = source.sample(_AGGREGATES, source.randint(1, 4))
    having = source.choice(["", "", " HAVING count(*) > 1"])
    group = ", ".join([f"{base}.c", *chosen])

    def text(kind: int) -> str:
        values = ", ".join(f"{entry[kind]} AS v{number}" for number, entry in enumerate(picked))
        return f"SELECT {listed}, {values} FROM {tables}{where} GROUP BY {group}{having}"  # noqa: S608 - as above

    return Query(text(0), text(1), tuple(names), read)


@dataclass
class History:
    """The tables of many cases as they change.

    Attributes:
        rows: table -> key -> row.
        orders: table -> key -> order number of its last change.
        old: changes that were made before, to come again late.
    """

    source: Random
    cases: int
    rows: dict[str, dict[Key, Row]] = field(default_factory=lambda: {name: {} for name in TABLES})
    old: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def batch(self, tables: tuple[str, ...], count: int) -> dict[str, list[Row]]:
        """About ``count`` changes for each case."""
        changes: dict[str, list[Row]] = {name: [] for name in tables}
        for case in range(self.cases):
            for _ in range(self.source.randint(0, 2 * count)):
                name = self.source.choice(tables)
                changes[name] += self._change(name, case)
        for name in tables:
            if self.old[name] and self.source.random() < 0.3:
                changes[name].insert(0, self.source.choice(self.old[name]))
            self.old[name] += changes[name]
        return {name: listed for name, listed in changes.items() if listed}

    def _change(self, name: str, case: int) -> list[Row]:
        source = self.source
        key = (case, source.randint(1, _IDS[name]))
        rows, number = self.rows[name], next(self._numbers)
        before = rows.get(key)
        if before is not None and source.random() < 0.3:
            del rows[key]
            image = before if source.random() < 0.5 else {"c": key[0], "id": key[1]}
            return [_event("d", number, image, key)]
        if name == "facts":
            values = {
                "dim": source.choice([1, 2, 3, 4, 5, None]),
                "other": source.choice([1, 2, 3, 4, None]),
                "amount": source.choice([0, 1, 2, 3, None]),
                "label": source.choice(["x", "y", "z", None]),
            }
        elif name == "dims":
            values = {"region": source.choice(["a", "b", "c", None]), "parent": source.choice([1, 2, 3, None])}
        else:
            values = {"name": source.choice(["n", "m", None])}
        rows[key] = {"c": key[0], "id": key[1], **values}
        if before is None:
            return [_event("i", number, rows[key], key)]
        return [_event("b", number, before, key), _event("u", number, rows[key], key)]

    def answer(self, query: Query) -> list[Row]:
        """DuckDB's answer over the tables as they are now."""
        with duckdb.connect() as database:
            database.execute("CREATE SCHEMA shop")
            for name, table in TABLES.items():
                kinds: dict[t.DataType, str] = {t.IntegerType(): "INTEGER", t.StringType(): "VARCHAR"}
                columns = ", ".join(f"{column.name} {kinds[column.type]}" for column in table.columns)
                database.execute(f"CREATE TABLE shop.{name} ({columns})")
                rows = [[row[column.name] for column in table.columns] for row in self.rows[name].values()]
                if rows:
                    slots = ", ".join("?" * len(table.columns))
                    database.executemany(f"INSERT INTO shop.{name} VALUES ({slots})", rows)  # noqa: S608 - the test's own
            result = database.execute(query.duckdb)
            names = [column[0] for column in result.description]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _event(op: str, number: int, row: Row, key: Key) -> Row:
    return {
        **row,
        "ums_id_": number,
        "ums_ts_": 1_780_000_000_000_000 + number,
        "ums_op_": op,
        "ums_uid_": f"{number}{'-b' if op == 'b' else ''}",
        "kafka_topic_": "t",
        "kafka_partition_": sum(key) % 2,
        "kafka_offset_": number,
    }
