"""Verifications as records, when they are due, and what repairs them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

import orjson
import pytest

from connectors.errors import ConfigInvalid
from worker.config.source_config import SOURCE_CONFIG
from worker.control.herder.verify import VerificationRun, VerifyOperations
from worker.control.state.verifications import (
    INTERVAL,
    MOST_BYTES,
    MOST_VALUE_BYTES,
    RATE,
    REPAIR,
    TABLES,
    VERIFY_KEYS,
    VerificationTable,
    bounded,
    choose_sender,
    due_ms,
    metric_values,
    repair_request,
    scheduled_request,
    topics_to_repair,
    verification_record,
)
from worker.protocol import VERIFICATION
from worker.rest.facade import NotLeader, RestError

if TYPE_CHECKING:
    from worker.control.herder.base import HerderContext
    from worker.control.herder.snapshots import SnapshotOperations


def table(name: str, condition: str | None = "", **counts: int) -> dict[str, Any]:
    """A compared table."""
    return {
        "table": name,
        "rows": {"source": 10, "topic": 9},
        "examples": {"missing": ["{}"] * counts.get("missing", 0)},
        "differences": [],
        "key_ranges": [[0, 1]],
        "condition": condition,
        **{kind: counts.get(kind, 0) for kind in ("missing", "extra", "different", "unsettled")},
    }


def body(*tables: dict[str, Any], state: str = "completed") -> dict[str, Any]:
    """The record of a verification."""
    return {
        "state": state,
        "started_ms": 1000,
        "ended_ms": 2000,
        "result": {"equal": False, "notes": [], "tables": list(tables)},
    }


def test_the_last_verification_of_each_connector_is_kept() -> None:
    kept = VerificationTable()
    key, value = verification_record("a", body(table("t")))
    assert kept.apply(key, value)
    assert kept.apply(*verification_record("b", body(state="running")))
    assert not kept.apply(b"instructions-a", b"{}")
    assert kept.connectors() == ["a", "b"]
    assert kept.get("a") == body(table("t"))
    assert kept.summary("a") == {"state": "completed", "started_ms": 1000}
    assert kept.numbers()["b"]["millrace_verify_running"] == 1
    assert kept.apply(key, b"not JSON")
    assert kept.get("a") == body(table("t"))
    assert kept.apply(*verification_record("a", None))
    assert kept.get("a") is None
    assert kept.summary("a") is None
    assert list(kept.numbers()) == ["b"]
    assert kept.connectors() == ["b"]


def test_tasks_save_their_positions_while_a_verification_waits_for_them() -> None:
    kept = VerificationTable()
    asked = orjson.dumps([{"id": "s", "origin": "rest"}])
    assert kept.instructions("a", asked) == asked
    kept.apply(*verification_record("a", body(state="running")))
    assert [row["origin"] for row in orjson.loads(kept.instructions("a", asked))] == ["rest", VERIFICATION]
    assert kept.instructions("b", asked) == asked
    kept.apply(*verification_record("a", body()))
    assert kept.instructions("a", asked) == asked
    kept.apply(*verification_record("a", body(state="running")))
    kept.apply(*verification_record("a", None))
    assert kept.instructions("a", asked) == asked


def test_a_record_stays_small() -> None:
    large = body(*(table(f"t{number}", "id = 1", missing=5_000) for number in range(50)))
    _, value = verification_record("a", large)
    assert value is not None
    assert len(value) < MOST_BYTES
    (first, *_) = orjson.loads(value)["result"]["tables"]
    assert first["missing"] == 5_000
    assert len(first["examples"]["missing"]) == 10
    # Without all keys the whole table has to be read.
    assert first["condition"] == ""
    _, small = verification_record("a", body(table("t", "id = 1")))
    assert orjson.loads(small or b"")["result"]["tables"][0]["condition"] == "id = 1"


def test_a_record_of_thousands_of_tables_stays_small() -> None:
    large = body(*(table(f"shop.table_{number}", missing=1) for number in range(5000)))
    key, value = verification_record("a", large)
    assert value is not None
    assert len(value) < MOST_BYTES
    kept = VerificationTable()
    assert kept.apply(key, value)
    assert [entry["table"] for entry in (kept.get("a") or {})["result"]["tables"]][4998:] == [
        "shop.table_4998",
        "shop.table_4999",
    ]
    assert kept.numbers()["a"]["millrace_verify_missing_rows"] == 5000
    assert kept.apply(key, b"no JSON, and not compressed")
    assert kept.connectors() == ["a"]


async def test_a_result_of_many_tables_is_not_written_after_each() -> None:
    operations = operations_of(body(state="running"), {})
    run = VerificationRun({**body(state="running"), "result": None}, 1)
    operations.ctx.verifications["a"] = run
    written: list[int] = []

    async def write(placement: list[tuple[bytes, bytes]]) -> None:
        del placement
        written.append(len(run.body["result"]["tables"]))

    operations.ctx.node.leader.write = write  # type: ignore[assignment,method-assign]
    await operations._handle_message("a", run, {"tables": ["t"] * 1000})
    for number in range(1000):
        compared = {**table(f"t{number}"), "equal": True}
        await operations._handle_message("a", run, {"table": compared, "notes": ["seen"]})
    assert written[:199] == list(range(1, 200))
    assert len(written) < 400
    assert written[-1] > 1000 - 1000 // 100
    assert run.body["result"]["notes"] == ["seen"]


def test_values_of_rows_do_not_leave_the_worker() -> None:
    row = {"kind": "missing", "key": "{}", "source": {"name": '"Ada"'}, "topic": None, "columns_left_out": 0}
    compared = {**table("t", missing=1), "differences": [row]}
    _, value = verification_record("a", body(compared))
    assert b"Ada" not in (value or b"")
    assert orjson.loads(value or b"") == body({**compared, "differences": []})
    assert compared["differences"] == [row]


def test_values_of_rows_are_bounded() -> None:
    row = {"source": {"name": "x" * MOST_VALUE_BYTES}}
    small, large = {**table("s"), "differences": [{"source": {}}]}, {**table("l"), "differences": [row]}
    # One that an older leader has kept has none.
    old = {key: value for key, value in table("o").items() if key != "differences"}
    assert bounded(large, [old, small]) == large
    assert bounded(small, [small, large]) == {**small, "differences": []}


def test_when_a_verification_is_due() -> None:
    daily = {INTERVAL: "86400000"}
    assert due_ms({}, None, 5) is None
    assert due_ms({INTERVAL: "0"}, None, 5) is None
    assert due_ms({INTERVAL: "daily"}, None, 5) is None
    assert due_ms(daily, None, 5) == 86_400_005
    assert due_ms(daily, body(), 5) == 86_401_000
    assert due_ms(daily, body(state="failed"), 5) == 86_401_000
    assert due_ms(daily, body(state="running"), 5) is None


def test_what_a_scheduled_verification_is_asked() -> None:
    asked = scheduled_request({TABLES: "a.b", RATE: "500", REPAIR: "TRUE"})
    assert (asked["tables"], asked["rows_per_s"], asked["repair"]) == ("a.b", 500, True)
    asked = scheduled_request({RATE: "fast"})
    assert (asked["tables"], asked["rows_per_s"], asked["repair"]) == ("", 0, False)


def test_what_repairs_a_result() -> None:
    assert repair_request(None) is None
    assert repair_request(body(table("a.t"))["result"]) is None
    result = body(
        table("a.equal", "id = 1"),
        table("a.t-1", "(`id` = 7)", missing=1),
        table("a.whole", different=1),
        table("a.extra", "id = 1", extra=1),
        table("k.scylla", None, missing=1),
    )["result"]
    assert repair_request(result) == {
        "tables": [r"a\.t\-1", r"a\.whole"],
        "conditions": {r"a\.t\-1": "(`id` = 7)"},
        "priority": 1,
    }


def test_values_of_metrics() -> None:
    values = metric_values(body(table("a", missing=2, extra=1), table("b", different=3, unsettled=4)))
    assert values == {
        "millrace_verify_running": 0,
        "millrace_verify_failed": 0,
        "millrace_verify_end_time_seconds": 2,
        "millrace_verify_rows": 20,
        "millrace_verify_missing_rows": 2,
        "millrace_verify_extra_rows": 1,
        "millrace_verify_different_rows": 3,
        "millrace_verify_unsettled_rows": 4,
    }
    running = {**body(state="running"), "result": None, "ended_ms": None}
    assert metric_values(running)["millrace_verify_running"] == 1
    assert metric_values(running)["millrace_verify_end_time_seconds"] == 0


def test_the_options_are_those_of_every_source() -> None:
    assert {key.name for key in VERIFY_KEYS} <= SOURCE_CONFIG.keys.keys()
    (interval,) = (key for key in VERIFY_KEYS if key.name == INTERVAL)
    assert interval.validator is not None
    assert [bool(interval.validator(INTERVAL, value)) for value in (0, 1, 999, 1000, -5)] == [
        False,
        True,
        True,
        False,
        True,
    ]


def test_a_flow_is_repaired_by_the_connector_that_writes_its_topics() -> None:
    orders = {**table("s.shop.orders", missing=1), "source_table": "shop.orders"}
    equal = {**table("s.shop.items"), "source_table": "shop.items"}
    result = {"tables": [orders, equal]}
    assert topics_to_repair(result) == ["s.shop.orders"]
    assert repair_request(result) == {"tables": [r"shop\.orders"], "priority": 1}
    assert topics_to_repair({"tables": [table("shop.orders", missing=1)]}) == []
    writers = {"shop": {"s.shop.orders", "s.shop.items"}, "other": {"o.shop.orders"}}
    assert choose_sender(["s.shop.orders"], writers) == "shop"
    with pytest.raises(ConfigInvalid, match="no connector of this cluster writes lost"):
        choose_sender(["s.shop.orders", "lost"], writers)
    with pytest.raises(ConfigInvalid, match=r"several connectors \(other, shop\)"):
        choose_sender(["s.shop.orders", "o.shop.orders"], writers)


class RefusedSnapshots:
    """Snapshots of connectors that can't take any."""

    async def create_snapshot(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        raise RestError(409, f"Connector {name} is stopped, {request['tables']}")

    async def list_snapshots(self, _name: str) -> list[dict[str, Any]]:
        return []


class ComparedAtOnce(VerifyOperations):
    """Verifications whose process finds one missing row."""

    async def _talk_to_process(self, name: str, run: VerificationRun) -> None:
        del name
        run.body.update(state="completed", result={"equal": False, "notes": [], "tables": [table("t", missing=1)]})


def operations_of(
    stored: dict[str, Any],
    runs: dict[str, VerificationRun],
    others: dict[str, dict[str, Any]] | None = None,
    **config: str,
) -> VerifyOperations:
    """Verifications of a leader, with what the topic has of connector ``a`` and of others, and what the leader itself knows."""
    kept = VerificationTable()
    bodies = {"a": stored, **(others or {})}
    for name, kept_body in bodies.items():
        kept.apply(*verification_record(name, kept_body))

    async def write(placement: list[tuple[bytes, bytes]]) -> None:
        for key, value in placement:
            kept.apply(key, value)

    async def nothing(*_: object) -> None:
        """It is so already."""

    context = SimpleNamespace(
        lead=nothing,
        require_connector=nothing,
        verifications=runs,
        config_locks=WeakValueDictionary(),
        snapshot=SimpleNamespace(connectors=dict.fromkeys(bodies, config)),
        node=SimpleNamespace(
            placement=SimpleNamespace(verifications=kept), leader=SimpleNamespace(active=True, term=1, write=write)
        ),
    )
    return ComparedAtOnce(cast("HerderContext", context), cast("SnapshotOperations", RefusedSnapshots()))


@pytest.mark.parametrize(("state", "expected"), [("running", "cancelled"), ("completed", "completed")])
async def test_a_verification_that_another_leader_left_can_be_cancelled(state: str, expected: str) -> None:
    operations = operations_of(body(state=state), {})
    await operations.cancel_verification("a")
    shown = await operations.verification("a")
    assert shown is not None
    assert shown["state"] == expected


async def test_of_a_verification_whose_end_was_not_kept_the_topic_is_right() -> None:
    operations = operations_of(body(state="running"), {"a": VerificationRun(body(state="failed"), term=1)})
    shown = await operations.verification("a")
    assert shown is not None
    assert shown["state"] == "running"


async def test_a_verification_of_an_earlier_term_is_ended_and_writes_nothing() -> None:
    runs = {"a": VerificationRun(body(state="running"), term=0)}
    operations = operations_of({**body(state="cancelled"), "started_ms": 2000}, runs)
    earlier = runs["a"]
    earlier.task = cast("asyncio.Task[None]", asyncio.create_task(asyncio.Event().wait()))
    with pytest.raises(NotLeader):
        await operations._handle_message("a", earlier, {"table": {**table("t"), "equal": True}, "notes": []})
    shown = await operations.verification("a")
    assert shown is not None
    assert shown["state"] == "cancelled"
    await asyncio.wait([earlier.task], timeout=10)
    assert earlier.task.cancelled()


async def test_a_verification_that_another_leader_left_is_not_replaced() -> None:
    operations = operations_of(body(state="running"), {})
    with pytest.raises(RestError, match="runs already"):
        await operations.start_verification("a", {"tables": ""})


async def test_a_verification_that_is_not_scheduled_any_more_is_forgotten() -> None:
    operations = operations_of(body(state="scheduled"), {})
    await operations._look_at_verifications()
    assert await operations.verification("a") is None


async def test_a_repair_that_is_refused_is_said() -> None:
    operations = operations_of(body(), {})
    await operations.start_verification("a", {"tables": "", "repair": True})
    await cast("asyncio.Task[None]", operations.ctx.verifications["a"].task)
    shown = await operations.verification("a")
    assert shown is not None
    assert (shown["state"], shown["repair"]) == ("completed", None)
    assert shown["error"] == "The rows that differ were not sent again: Connector a is stopped, ['t']"


async def test_the_one_that_waits_longest_is_next() -> None:
    """Else the first two names would take every turn where verifications take longer than their interval."""
    busy = asyncio.create_task(asyncio.Event().wait())
    others = {"b": body(state="running"), "c": {**body(), "started_ms": 500}}
    runs = {"b": VerificationRun(others["b"], 1, cast("asyncio.Task[None]", busy))}
    operations = operations_of(body(), runs, others, **{INTERVAL: "1000"})
    await operations._look_at_verifications()
    assert sorted(operations.ctx.verifications) == ["b", "c"]
    for run in runs.values():
        assert run.task is not None
        run.task.cancel()
