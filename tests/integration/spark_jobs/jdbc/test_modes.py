"""Modes on real servers: the content of the tables after changes, replays and other orders."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.spark_jobs.jdbc.conftest import simple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

CHANGES: list[dict[str, Any]] = [
    {"id": 1, "name": "a", "amount": 1.0, "ums_id_": 10},
    {"id": 2, "name": "b", "amount": 2.0, "ums_id_": 11},
    {"id": 3, "name": "c", "amount": 3.0, "ums_id_": 12},
    {"id": 1, "name": "a2", "amount": 1.5, "ums_id_": 13, "ums_op_": "u"},
    {"id": 1, "name": "a", "amount": 1.0, "ums_id_": 13, "ums_op_": "b"},
    {"id": 2, "name": "b", "amount": 2.0, "ums_id_": 14, "ums_op_": "d"},
    {"id": 3, "ums_id_": 15, "ums_op_": "d"},
    {"id": 3, "name": "back", "amount": None, "ums_id_": 16, "ums_op_": "i"},
]


def test_soft_deletes(rig: Callable[..., Rig], db: Database, table: str) -> None:
    job = rig(db)
    assert job.write(simple(table), CHANGES) == 3
    expected = [(1, "a2", 1.5, 13, "u", 1), (2, "b", 2.0, 14, "d", 0), (3, "back", None, 16, "i", 1)]
    columns = "id, name, amount, ums_id_, ums_op_, ums_active_"
    assert db.rows(table, columns) == expected
    for replay in (CHANGES, CHANGES[::-1], CHANGES[:2]):
        job.write(simple(table), replay)
        assert db.rows(table, columns) == expected


@pytest.mark.parametrize("mode", ["upsert", "split"])
def test_real_deletes(rig: Callable[..., Rig], db: Database, table: str, mode: str) -> None:
    job = rig(db, **{"sink.jdbc.mode": mode, "sink.jdbc.delete.mode": "real"})
    for change in CHANGES:
        job.write(simple(table), [change])
    expected = [(1, "a2", 1.5), (3, "back", None)]
    assert db.rows(table, "id, name, amount") == expected
    for replay in (CHANGES[:2], CHANGES, CHANGES[5:7], CHANGES[::-1]):
        job.write(simple(table), replay)
        assert db.rows(table, "id, name, amount") == expected
    if mode == "upsert":
        assert db.rows(f"{table}_ums", "id, ums_id_") == [(2, 14)]
    else:
        assert db.rows(f"{table}_ums", "id, ums_id_, ums_op_, ums_active_") == [
            (1, 13, "u", 1),
            (2, 14, "d", 0),
            (3, 16, "i", 1),
        ]
        assert [column for column in db.columns(table) if column.startswith("ums")] == []


TIED: list[dict[str, Any]] = [
    {"id": 1, "name": "a", "ums_id_": 10},
    {"id": 1, "name": "b", "ums_id_": 10, "ums_op_": "u"},
    {"id": 1, "ums_id_": 10, "ums_op_": "d"},
    {"id": 1, "name": "c", "ums_id_": 10},
    {"id": 2, "name": "x", "ums_id_": 10},
    {"id": 2, "ums_id_": 10, "ums_op_": "d"},
]


@pytest.mark.parametrize(("mode", "deletes"), [("upsert", "soft"), ("upsert", "real"), ("split", "soft")])
def test_of_changes_with_one_number_the_one_that_comes_last_stands(
    rig: Callable[..., Rig], db: Database, table: str, mode: str, deletes: str
) -> None:
    """As in a compressed binlog event with more rows than bytes; repeated ones change nothing."""
    job = rig(db, **{"sink.jdbc.mode": mode, "sink.jdbc.delete.mode": deletes})
    placed = [{**change, "kafka_offset_": offset} for offset, change in enumerate(TIED)]
    alive = " WHERE ums_active_ = 1" if (mode, deletes) == ("upsert", "soft") else ""
    for batches in ([placed], [[change] for change in placed], [placed[:2], placed[1:]]):
        for batch in batches:
            job.write(simple(table), batch)
        assert db.query(f"SELECT id, name FROM {db.quote(table)}{alive}") == [(1, "c")]
    job.write(simple(table), [{"id": 1, "name": "old", "ums_id_": 9}, {"id": 2, "name": "old", "ums_id_": 9}])
    assert db.query(f"SELECT id, name FROM {db.quote(table)}{alive}") == [(1, "c")]


def test_remembered_deletes_are_forgotten_after_the_retention(
    rig: Callable[..., Rig], db: Database, table: str
) -> None:
    for mode in ("upsert", "split"):
        name = f"{table}{mode}"
        job = rig(db, **{"sink.jdbc.mode": mode, "sink.jdbc.delete.mode": "real"})
        job.write(simple(name), CHANGES)
        condition = "1 = 1" if mode == "upsert" else "ums_active_ = 0"
        side = db.quote(f"{name}_ums")
        job.target._expired_at -= 1000
        job.sink.idle()
        assert db.query(f"SELECT id FROM {side} WHERE {condition}") == [(2,)]
        db.query(f"UPDATE {side} SET written_at_ = '2020-01-01 00:00:00'")
        job.target._expired_at -= 1000
        job.sink.idle()
        assert db.query(f"SELECT id FROM {side} WHERE {condition}") == []
        assert len(db.rows(name)) == 2


def test_insert_appends_each_change_once(rig: Callable[..., Rig], db: Database, table: str) -> None:
    job = rig(db, **{"sink.jdbc.mode": "insert", "sink.jdbc.batch.rows": "3"})
    changes = [{**change, "kafka_partition_": n % 2, "kafka_offset_": n // 2} for n, change in enumerate(CHANGES)]
    assert job.write(simple(table), changes) == len(CHANGES)
    expected = sorted(((c["id"], c.get("name"), c["ums_id_"], c.get("ums_op_", "i")) for c in CHANGES), key=repr)
    columns = "id, name, ums_id_, ums_op_"
    assert db.rows(table, columns) == expected
    assert job.write(simple(table), changes) == 0
    job.restart()
    more = [*changes, {"id": 9, "name": "z", "ums_id_": 20, "kafka_partition_": 1, "kafka_offset_": 4}]
    assert job.write(simple(table), more) == 1
    assert db.rows(table, columns) == sorted([*expected, (9, "z", 20, "i")], key=repr)
    second_job = rig(db, **{"sink.jdbc.mode": "insert"})  # another job has positions of its own
    assert second_job.write(simple(table), changes) == len(changes)


def test_rows_of_one_record_are_never_cut_apart(rig: Callable[..., Rig], db: Database, table: str) -> None:
    job = rig(db, **{"sink.jdbc.mode": "insert", "sink.jdbc.batch.rows": "2"})
    rows = [{"id": n, "ums_id_": n, "kafka_offset_": n // 5, "ums_uid_": str(n)} for n in range(23)]
    assert job.write(simple(table), rows) == 23
    assert len(db.rows(table)) == 23
    assert job.write(simple(table), rows) == 0


def test_without_a_guarantee_inserts_need_no_positions(rig: Callable[..., Rig], db: Database, table: str) -> None:
    job = rig(db, **{"sink.jdbc.mode": "insert", "guarantee": "at-least-once", "sink.jdbc.commit.table": f"{table}c"})
    assert job.write(simple(table), CHANGES) == job.write(simple(table), CHANGES) == len(CHANGES)
    assert len(db.rows(table)) == 2 * len(CHANGES)
    assert db.columns(f"{table}c") == {}


def test_source_tables_that_share_a_table_have_positions_of_their_own(
    rig: Callable[..., Rig], db: Database, table: str
) -> None:
    """Their rows alternate in one Kafka partition, and each table is written after the other."""
    options = {"sink.jdbc.mode": "insert", "sink.jdbc.table": table, "sink.jdbc.table.shared": "true"}
    job = rig(db, **options)
    orders = [{"id": n, "name": "order", "ums_id_": n, "kafka_offset_": n} for n in (0, 2, 4)]
    returns = [{"id": n, "name": "return", "ums_id_": n, "kafka_offset_": n} for n in (1, 3)]
    assert job.write(simple("orders"), orders) == 3
    assert job.write(simple("returns"), returns) == 2
    assert db.rows(table, "id") == [(0,), (1,), (2,), (3,), (4,)]
    job.restart()
    assert job.write(simple("orders"), orders) == job.write(simple("returns"), returns) == 0
