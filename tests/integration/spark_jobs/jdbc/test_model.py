"""Any changes, in any order and any batches, twice, and by two writers at once: the tables equal a model of four lines."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.integration.spark_jobs.jdbc.conftest import simple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

COMBINATIONS = [("upsert", "soft"), ("upsert", "real"), ("split", "real")]


def newest(changes: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The model: per key the change with the largest ums_id_."""
    by_id: dict[int, dict[str, Any]] = {}
    for change in sorted(changes, key=lambda change: change["ums_id_"]):
        by_id[change["id"]] = change
    return by_id


def living(changes: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        ((key, change["name"]) for key, change in newest(changes).items() if change["ums_op_"] != "d"), key=repr
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    """Changes with different ums_id_, and batches that hold each of them at least once."""
    count = draw(st.integers(1, 12))
    changes = [
        {
            "id": draw(st.integers(0, 3)),
            "name": draw(st.none() | st.text("ab'\\\t\n", max_size=3)),
            "ums_id_": number,
            "ums_op_": draw(st.sampled_from("iud")),
            "kafka_offset_": number,
        }
        for number in range(count)
    ]
    order = draw(st.permutations(changes)) + draw(st.lists(st.sampled_from(changes), max_size=6))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=3)))
    batches = [order[first:last] for first, last in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    return changes, [batch for batch in batches if batch]


@pytest.mark.parametrize(("mode", "deletes"), COMBINATIONS)
def test_tables_equal_the_model(rig: Callable[..., Rig], db: Database, mode: str, deletes: str) -> None:
    name = f"m{secrets.token_hex(6)}"
    job = rig(db, **{"sink.jdbc.mode": mode, "sink.jdbc.delete.mode": deletes})
    offset = iter(range(0, 10**9, 1000))  # each example has keys of its own in one table

    @settings(
        max_examples=12,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(histories())
    def check(history: tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]) -> None:
        base = next(offset)
        changes, batches = history
        for batch in batches:
            job.write(simple(name), [{**change, "id": change["id"] + base} for change in batch])
        where = "ums_active_ = 1" if deletes == "soft" else "1 = 1"
        rows = db.query(f"SELECT id, name FROM {db.quote(name)} WHERE {where} AND id >= {base}")
        assert sorted(((key - base, text) for key, text in rows), key=repr) == living(changes)
        if deletes == "soft":
            versions = db.query(f"SELECT id, ums_id_ FROM {db.quote(name)} WHERE id >= {base}")
            assert {key - base: version for key, version in versions} == {
                key: change["ums_id_"] for key, change in newest(changes).items()
            }

    check()


@pytest.mark.parametrize(("mode", "deletes"), COMBINATIONS)
def test_writers_at_the_same_time(rig: Callable[..., Rig], db: Database, table: str, mode: str, deletes: str) -> None:
    """Each of four writers has every change, in small transactions and an order of its own: locks meet all the time."""
    jobs = [
        rig(
            db,
            **{
                "sink.jdbc.mode": mode,
                "sink.jdbc.delete.mode": deletes,
                "sink.jdbc.batch.rows": "7",
                "sink.jdbc.retries": "50",
            },
        )
        for _ in range(4)
    ]
    changes = [
        {"id": n % 10, "name": str(n), "ums_id_": n, "ums_op_": "d" if n % 3 == 0 else "u", "kafka_offset_": n}
        for n in range(90)
    ]
    jobs[0].write(simple(table), changes[:1])
    orders = [changes, changes[::-1], changes[45:] + changes[:45], changes[::2] + changes[1::2]]
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda job_and_order: job_and_order[0].write(simple(table), job_and_order[1]),
                zip(jobs, orders, strict=True),
            )
        )
    where = "ums_active_ = 1" if deletes == "soft" else "1 = 1"
    assert sorted(db.query(f"SELECT id, name FROM {db.quote(table)} WHERE {where}"), key=repr) == living(changes)


def test_inserts_by_two_writers_of_one_job_stand_once(rig: Callable[..., Rig], db: Database, table: str) -> None:
    jobs = [
        rig(db, **{"sink.jdbc.mode": "insert", "sink.jdbc.batch.rows": "5", "sink.jdbc.retries": "50"})
        for _ in range(3)
    ]
    changes = [{"id": n, "name": str(n), "ums_id_": n, "kafka_offset_": n} for n in range(60)]
    for job in jobs:
        job.job = jobs[0].job
        job.restart()
    jobs[0].write(simple(table), [])
    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(lambda job: job.write(simple(table), changes), jobs)) == 60
    assert db.rows(table, "id") == sorted(((n,) for n in range(60)), key=repr)
