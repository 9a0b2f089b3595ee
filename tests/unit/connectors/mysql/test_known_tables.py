"""The list of tables that a task knows: which table needs a snapshot of its own, over restarts and other numbers of tasks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.mysql.model import Shard
from connectors.mysql.model import TableName as T
from connectors.mysql.schema.known_tables import KnownTables, StatementEffect, snapshot_id
from connectors.mysql.source.statements import classify_statement
from connectors.snapshot.requests import NEW

Saved = list[tuple[dict[str, Any], dict[str, Any]]]
A, B, C = T("d", "a"), T("d", "b"), T("d", "c")


def captured(name: T) -> bool:
    return name.database.lower() == "d"


def book(saved: Saved = [], shard: Shard = Shard(), layout: int = 1, *, fold: bool = False) -> KnownTables:  # noqa: B006, B008
    return KnownTables("p", shard, layout, saved, captured, fold=fold)


def started(*names: T, fold: bool = False) -> KnownTables:
    """A list of these tables, as after the first start."""
    tables = book(fold=fold)
    assert tables.discover(names, all_read=True) == []
    return tables


def saved_by(tables: KnownTables) -> Saved:
    return [(dict(partition), dict(offset)) for partition, offset in tables.take()]


def test_the_first_start_knows_all_tables_and_a_restart_sees_new_ones() -> None:
    saved = saved_by(started(A))
    restarted = book(saved)
    assert not restarted.inherited
    assert restarted.discover([A, B], all_read=False) == [B]
    third = book(saved_by(restarted))
    assert third.discover([A, B], all_read=False) == []
    assert third.take() == ()


def test_offsets_of_before_without_a_list_make_no_table_new() -> None:
    assert book([({"server": "p"}, {"file": "f.1", "pos": 4})]).discover([A, B], all_read=False) == []


def test_a_table_taken_off_the_list_and_put_back_is_new() -> None:
    saved = saved_by(started(A, B))
    shorter = KnownTables("p", Shard(), 1, saved, lambda name: name == A)
    assert shorter.discover([A], all_read=False) == []
    assert book(saved_by(shorter)).discover([A, B], all_read=False) == [B]


@pytest.mark.parametrize(
    ("text", "new", "complete", "gone"),
    [
        ("CREATE TABLE b (id INT)", (), (B,), ()),
        ("CREATE TABLE IF NOT EXISTS b (id INT)", (), (B,), ()),
        ("CREATE TABLE IF NOT EXISTS a (id INT)", (), (), ()),
        ("CREATE OR REPLACE TABLE a (id INT)", (), (A,), ()),
        ("CREATE TABLE other.b (id INT)", (), (), ()),
        ("CREATE TEMPORARY TABLE b (id INT)", (), (), ()),
        ("RENAME TABLE other.x TO b", (B,), (), ()),
        ("ALTER TABLE other.x RENAME TO d.b", (B,), (), ()),
        ("RENAME TABLE a TO b", (B,), (), (A,)),
        ("RENAME TABLE a TO b, b TO c", (C,), (), (A, B)),
        ("RENAME TABLE a TO other.x", (), (), (A,)),
        # An online change of structure swaps a table that is known: nothing is read again.
        ("RENAME TABLE a TO other.a_old, other.a_new TO a", (), (), (A,)),
        ("ALTER TABLE a ADD COLUMN x INT", (), (), ()),
        ("TRUNCATE TABLE a", (), (), ()),
        ("DROP TABLE a, other.x", (), (), (A,)),
        ("/* of a client */ DROP DATABASE d", (), (), (A,)),
        ("ALTER DATABASE d CHARACTER SET utf8mb4", (), (), ()),
    ],
)
def test_what_a_statement_means(text: str, new: tuple[T, ...], complete: tuple[T, ...], gone: tuple[T, ...]) -> None:
    assert started(A).statement(classify_statement(text, "d")) == (new, complete, gone)


def test_a_name_that_is_gone_is_new_when_another_table_gets_it() -> None:
    tables = started(A, B)
    assert tables.statement(classify_statement("DROP DATABASE D", "D")) == ((), (), ())
    for text in ("DROP TABLE a", "RENAME TABLE other.x TO a", "DROP DATABASE d", "RENAME TABLE other.y TO b"):
        effect = tables.statement(classify_statement(text, "d"))
        assert effect.new == ((A,) if text.endswith("TO a") else (B,) if text.endswith("TO b") else ())


def test_names_in_any_case_where_the_server_takes_them_so() -> None:
    tables = started(A, fold=True)
    assert tables.statement(classify_statement("RENAME TABLE other.x TO D.A", "d")).new == ()
    assert book(saved_by(tables), fold=True).discover([A], all_read=False) == []


def test_other_tasks_take_what_all_former_ones_knew() -> None:
    first, second = (KnownTables("p", Shard(index, 2), 1, [], captured) for index in (0, 1))
    first.discover([A, B], all_read=True)
    second.discover([A], all_read=True)
    unfinished = (
        {"server": "p", "shard": "1/2", "snapshot": "new-d.a"},
        {"state": "running", "request": '{"id": "new-d.a", "tables": ["d\\\\.a"], "origin": "new"}'},
    )
    saved = [*saved_by(first), *saved_by(second)]
    merged = book(saved, layout=2)
    assert merged.inherited
    assert merged.discover([A, B], all_read=False) == [B]  # the second task had not come by it
    assert book([*saved, unfinished], layout=2).discover([A, B], all_read=False) == [A, B]
    done = (unfinished[0], {**unfinished[1], "state": "completed"})
    assert book([*saved, done], layout=2).discover([A], all_read=False) == []
    same_task = KnownTables("p", Shard(0, 2), 1, [*saved, unfinished], captured)
    assert not same_task.inherited
    assert same_task.discover([A, B], all_read=False) == []


def test_ids_are_not_used_twice() -> None:
    assert snapshot_id(A, []) == f"{NEW}-d.a"
    assert snapshot_id(A, ["new-d.a", "new-d.a~2"]) == "new-d.a~3"


STATEMENTS = [
    "CREATE TABLE {0} (i INT)",
    "CREATE TABLE IF NOT EXISTS {0} (i INT)",
    "DROP TABLE {0}",
    "RENAME TABLE {0} TO {1}",
    "RENAME TABLE other.x TO {0}",
    "RENAME TABLE {0} TO other.x",
]


@given(st.lists(st.tuples(st.sampled_from(STATEMENTS), st.permutations("abc")), max_size=12), st.integers(0, 12))
def test_a_restart_anywhere_decides_the_same(steps: list[tuple[str, list[str]]], cut: int) -> None:
    """State that is saved after any statement leads to the same decisions about the rest."""

    def run(restart: bool) -> list[StatementEffect]:
        tables, effects = started(A), list[StatementEffect]()
        saved = saved_by(tables)
        for number, (text, names) in enumerate(steps):
            if restart and number == cut:
                tables = book(saved)
                tables.discover([], all_read=False)
            effects.append(tables.statement(classify_statement(text.format(*names), "d")))
            saved = saved_by(tables) or saved
        return effects

    assert run(restart=True) == run(restart=False)
