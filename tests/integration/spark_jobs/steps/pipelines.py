"""Random pipelines of steps, and what they make of the rows of two tables in plain Python and in DuckDB."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import duckdb

from connectors.schema import Schema, Type
from tests.support.change_streams import LOOSE, Kind, Shop, Structure

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Row = dict[str, Any]
    Tables = dict[str, list[Row]]


def _number(name: str, below: int) -> Kind:
    schema = Schema(Type.INT64, optional=True)
    return Kind(name, schema, lambda chance: chance.randrange(below), "whole", ums="long")


_LABEL: Final = Kind(
    "label", Schema(Type.STRING, optional=True), lambda chance: chance.choice("xyz"), "string", ums="string"
)
#: The columns that steps read; the tables get others, and lose them.
COLUMNS: Final = {"dim": _number("small", 5), "amount": _number("small", 6), "label": _LABEL}
_CONDITIONS: Final[tuple[tuple[str, Callable[[Row], bool]], ...]] = (
    ("amount > 2", lambda row: row["amount"] is not None and row["amount"] > 2),
    ("label <> 'x' OR label IS NULL", lambda row: row["label"] != "x"),
    ("dim IS NOT NULL", lambda row: row["dim"] is not None),
    (
        "amount < 4 AND label = 'y'",
        lambda row: (row["amount"] or 0) < 4 and row["label"] == "y" and row["amount"] is not None,
    ),
    ("id % 2 = 0", lambda row: row["id"] % 2 == 0),
    ("dim = amount", lambda row: row["dim"] is not None and row["dim"] == row["amount"]),
)
_VIEWS: Final = (
    ("id", "SELECT f.id, f.amount, d.label AS region FROM t0 f LEFT JOIN t1 d ON f.dim = d.id"),
    ("id", "SELECT f.id, d.label, d.amount FROM t0 f JOIN t1 d ON f.dim = d.id WHERE d.amount > 1"),
    (
        "label",
        "SELECT coalesce(label, '-') AS label, count(*) AS n, sum(amount) AS total FROM t0 GROUP BY coalesce(label, '-')",
    ),
    (
        "region",
        (
            "SELECT coalesce(d.label, '-') AS region, count(*) AS n, max(f.amount) AS most FROM t0 f "
            "LEFT JOIN t1 d ON f.dim = d.id GROUP BY coalesce(d.label, '-') HAVING count(*) > 1"
        ),
    ),
    ("id", "SELECT f.id, g.label AS other FROM t0 f LEFT JOIN t0 g ON f.dim = g.id WHERE f.amount IS NOT NULL"),
)
_FUNCTION: Final = """
def weigh(rows):
    amounts = rows["amount"].to_pylist()
    return {"weight": [None if amount is None else amount * 10 for amount in amounts]}
"""


def make_shop(chance: random.Random) -> Shop:
    """Two tables of which steps read ``COLUMNS``, and which have others that come and go."""
    shop = Shop(chance, LOOSE, kept=tuple(COLUMNS))
    for table, keys in (("t0", 8), ("t1", 5)):
        shop.structures[table] = [Structure(table, 1, {"id": _number("small", keys)}, dict(COLUMNS))]
        shop.rows[table] = {}
    return shop


@dataclass(slots=True)
class Pipeline:
    """Steps of a job, and what they make of tables.

    Attributes:
        options: of the job.
        stateful: whether a step keeps a state.
        code: the file with the function of Python steps.
    """

    chance: random.Random
    code: str
    options: dict[str, str] = field(default_factory=dict)
    stateful: bool = False
    functions: list[Callable[[Tables], Tables]] = field(default_factory=list)

    def draw(self) -> None:
        """Choose the steps."""
        steps: list[Callable[[], None]] = [self._filter, self._select, self._deduplicate, self._python]
        lasts = [self._view, self._view, self._view, self._sql, self._union, self._rename, None]
        for add in [*self.chance.sample(steps, self.chance.randrange(4)), self.chance.choice(lasts)]:
            if add is not None:
                add()
        self.options["transform.steps"] = ",".join(
            dict.fromkeys(name.split(".")[2] for name in self.options if name.startswith("transform.step."))
        )

    def apply(self, tables: Tables) -> Tables:
        """The rows that a target has at the end."""
        for function in self.functions:
            tables = function(tables)
        return tables

    def _add(self, name: str, function: Callable[[Tables], Tables], **options: str) -> None:
        self.options |= {f"transform.step.{name}.{option.replace('_', '.')}": text for option, text in options.items()}
        self.functions.append(function)

    def _each_row(self, change: Callable[[Row], Row | None]) -> Callable[[Tables], Tables]:
        return lambda tables: tables | {"t0": [new for row in tables["t0"] if (new := change(row)) is not None]}

    def _filter(self) -> None:
        sql, holds = self.chance.choice(_CONDITIONS)
        self._add(
            "kept", self._each_row(lambda row: row if holds(row) else None), type="filter", tables="t0", condition=sql
        )

    def _select(self) -> None:
        columns = "* EXCEPT (amount), coalesce(amount, 1) AS amount, concat(coalesce(label, '?'), '!') AS loud"

        def change(row: Row) -> Row:
            amount = 1 if row["amount"] is None else row["amount"]
            return row | {"amount": amount, "loud": f"{row['label'] or '?'}!"}

        self._add("chosen", self._each_row(change), type="select", tables="t0", columns=columns)

    def _deduplicate(self) -> None:
        keep = self.chance.choice(["last", "changes"])
        self._add("once", lambda tables: tables, type="deduplicate", keep=keep)

    def _python(self) -> None:
        change = lambda row: row | {"weight": None if row["amount"] is None else row["amount"] * 10}  # noqa: E731
        options = {"python_file": self.code, "python_function": "weigh", "columns": "weight bigint"}
        self._add("weighed", self._each_row(change), type="python", tables="t0", **options)

    def _view(self) -> None:
        key, sql = self.chance.choice(_VIEWS)
        keep = self.chance.choice(["true", "false"])
        read = [name for name in ("t0", "t1") if f" {name} " in f"{sql} "]
        self.stateful = True

        def answer(tables: Tables) -> Tables:
            passed = {name: rows for name, rows in tables.items() if keep == "true" or name not in read}
            return passed | {"seen": ask(sql, tables)}

        self._add("seen", answer, type="view", sql=sql, key=key, keep_inputs=keep)

    def _sql(self) -> None:
        sql = (
            "INSERT INTO large SELECT id, amount * 2 AS twice, label FROM t0 WHERE amount > 2; "
            "CREATE TEMPORARY VIEW named AS SELECT id, label FROM t0 WHERE label IS NOT NULL; "
            "INSERT INTO small SELECT id, upper(label) AS label FROM named"
        )

        def divide(tables: Tables) -> Tables:
            rows = tables["t0"]
            large = [row for row in rows if (row["amount"] or 0) > 2]
            large = [{"id": row["id"], "twice": row["amount"] * 2, "label": row["label"]} for row in large]
            small = [{"id": row["id"], "label": row["label"].upper()} for row in rows if row["label"] is not None]
            return {"t1": tables["t1"], "large": large, "small": small}

        self._add("divided", divide, type="sql", sql=sql)

    def _union(self) -> None:
        def combine(tables: Tables) -> Tables:
            rows = [row | {"origin": name} for name in ("t0", "t1") for row in tables[name]]
            return {"together": rows}

        options = {"tables": "t0, t1", "output": "together", "table_column": "origin"}
        self._add("combined", combine, type="union", **options)

    def _rename(self) -> None:
        self._add(
            "named",
            lambda tables: {"t1": tables["t1"], "moved_t0": tables["t0"]},
            type="route",
            tables="t0",
            to="moved_${table}",
        )


def ask(sql: str, tables: Tables) -> list[Row]:
    """DuckDB's answer to a query over rows."""
    with duckdb.connect() as database:
        for name, rows in tables.items():
            columns = {"id": "BIGINT", "dim": "BIGINT", "amount": "BIGINT", "label": "VARCHAR"}
            database.execute(
                f"CREATE TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in columns.items())})"
            )
            values = [[row[column] for column in columns] for row in rows]
            if values:
                database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", values)  # noqa: S608 - the test's own
        result = database.execute(sql)
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def write_function(folder: Path) -> str:
    """The file of the function of Python steps."""
    file = folder / "weigh.py"
    file.write_text(_FUNCTION)
    return str(file)


def declare_columns(namespaces: Sequence[str]) -> dict[str, str]:
    """The types of the columns that steps read, for JSON without a schema."""
    types = "id bigint, dim bigint, amount bigint, label string"
    return {f"source.table.columns.{namespace}": types for namespace in namespaces}
