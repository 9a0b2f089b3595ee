"""Decisions about requests for snapshots, over a leader and a connector class in memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

import orjson
import pytest

from connectors.errors import Retriable
from tests.support.eventually import pass_turns
from worker.control.herder.snapshots import SnapshotOperations
from worker.control.leader import LeaderDuties
from worker.control.state.instructions import KEPT, MOST_BYTES, InstructionTable
from worker.control.state.rule_sets import RuleTable
from worker.control.state.verifications import VerificationTable
from worker.protocol import CheckSnapshot, ConnectorView, RemoteError
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offsets.records import Pair
    from worker.control.herder.base import HerderContext


class Cluster:
    """Stands for the herder's context, the leader, the placement topic, the offsets and a task host."""

    def __init__(self) -> None:
        self.instructions = InstructionTable()
        self.saved: dict[str, str] = {}
        self.answer: Exception | None = None
        self.padding = ""
        self.writes = 0
        self.snapshot = SimpleNamespace(connectors={"c": {"connector.class": "X"}})
        self.config_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.validate_s = 5.0
        self.own_offsets = self._nothing
        offsets = SimpleNamespace(read_to_end=self._nothing, positions=self._positions)
        self.node = SimpleNamespace(
            placement=SimpleNamespace(
                instructions=self.instructions, rules=RuleTable(), verifications=VerificationTable()
            ),
            pool=self,
            offsets=offsets,
            leader=SimpleNamespace(active=True, write=self.write),
        )
        self.herder = SnapshotOperations(cast("HerderContext", self))

    async def _nothing(self, *_: Any) -> None:
        await pass_turns()

    async def _positions(self, name: str) -> list[Any]:
        assert name == "c"
        return [({"snapshot": key}, {"state": state}) for key, state in self.saved.items()]

    lead = _nothing

    async def require_connector(self, name: str) -> None:
        if name not in self.snapshot.connectors:
            raise RestError(404, "unknown")

    def connector_type(self, config: Mapping[str, str]) -> str:
        return "sink" if config["connector.class"] == "S" else "source"

    async def write(self, config: Sequence[Pair] = (), placement: Sequence[Pair] = ()) -> None:
        assert not config, "Java's topic"
        await pass_turns()
        self.writes += 1
        for key, value in placement:
            assert self.instructions.apply(key, value)

    async def ask(self, message: CheckSnapshot | ConnectorView, deadline_s: float, environments: object) -> bytes:
        assert environments is None
        assert deadline_s == 5.0
        await pass_turns()
        if self.answer is not None:
            raise self.answer
        if isinstance(message, CheckSnapshot):
            return orjson.dumps({**orjson.loads(message.request), "checked": True, "padding": self.padding})
        saved = {partition["snapshot"]: offset["state"] for partition, offset in orjson.loads(message.offsets)}
        asked = {row["id"]: row["origin"] for row in orjson.loads(message.instructions)}
        return orjson.dumps(
            [
                {
                    "id": snapshot_id,
                    "origin": asked.get(snapshot_id, "initial"),
                    "state": saved.get(snapshot_id, "waiting"),
                }
                for snapshot_id in {"initial": 1, **asked}
            ]
        )

    def states(self) -> dict[str, str]:
        return {row["id"]: row["state"] for row in self.instructions.get("c")}


async def refused(call: Any) -> RestError:
    with pytest.raises(RestError) as caught:
        await call
    return caught.value


async def test_what_is_kept_of_a_request() -> None:
    cluster = Cluster()
    instruction = await cluster.herder.create_snapshot("c", {"tables": ["t"], "id": "mine"})
    assert instruction == {
        "tables": ["t"],
        "checked": True,
        "padding": "",
        "id": "mine",
        "state": "running",
        "origin": "rest",
        "created_ms": instruction["created_ms"],
    }
    assert cluster.instructions.get("c") == [instruction]
    assert (await refused(cluster.herder.create_snapshot("c", {"id": "mine"}))).status == 409
    later = await cluster.herder.create_snapshot(
        "c", {"id": "later", "start_at": "02:30", "time_zone": "Europe/Berlin"}
    )
    assert later["start_ms"] > later["created_ms"]
    assert later["state"] == "scheduled", "as a GET shows it"
    assert not later.keys() & {"start_at", "time_zone"}
    wrongs: list[dict[str, Any]] = [
        {"start_at": "half past two"},
        {"start_at": "02:30", "time_zone": "Mars"},
        {"time_zone": "UTC"},
        {"tables": ["\ud83a"]},
        {"tables": [1 << 64]},
    ]
    for wrong in wrongs:
        assert (await refused(cluster.herder.create_snapshot("c", wrong))).status == 400
    await cluster.herder.delete_snapshot("c", "later")
    first, second = [(await cluster.herder.create_snapshot("c", {}))["id"] for _ in range(2)]
    assert first != second
    assert cluster.states().keys() == {"mine", first, second}


async def test_requests_at_the_same_time_do_not_overwrite_each_other() -> None:
    cluster = Cluster()
    await asyncio.gather(*(cluster.herder.create_snapshot("c", {"id": str(number)}) for number in range(20)))
    assert len(cluster.states()) == 20
    assert not cluster.config_locks, "no lock is left behind"


async def test_what_was_asked_last_counts_not_what_is_saved_yet() -> None:
    cluster = Cluster()
    await cluster.herder.create_snapshot("c", {"id": "a"})
    cluster.saved["a"] = "running"
    await cluster.herder.steer_snapshot("c", "a", "pause")
    assert cluster.states() == {"a": "paused"}
    await cluster.herder.steer_snapshot("c", "a", "resume")  # its saved state is still running
    assert cluster.states() == {"a": "running"}
    writes = cluster.writes
    await cluster.herder.steer_snapshot("c", "a", "resume")
    assert cluster.writes == writes, "nothing to change"
    await cluster.herder.steer_snapshot("c", "a", "cancel")
    await cluster.herder.steer_snapshot("c", "a", "cancel")
    for action in ("pause", "resume"):
        error = await refused(cluster.herder.steer_snapshot("c", "a", cast("Any", action)))
        assert (error.status, "is cancelled" in str(error)) == (400, True)
    for name, ended in (("b", "completed"), ("d", "failed")):
        cluster.saved[name] = ended
        await cluster.herder.create_snapshot("c", {"id": name})
        assert f"is {ended}" in str(await refused(cluster.herder.steer_snapshot("c", name, "cancel")))


async def test_one_that_is_deleted_meanwhile_does_not_come_back() -> None:
    cluster = Cluster()
    await cluster.herder.create_snapshot("c", {"id": "a"})
    results = await asyncio.gather(
        cluster.herder.delete_snapshot("c", "a"),
        cluster.herder.steer_snapshot("c", "a", "pause"),
        return_exceptions=True,
    )
    assert cluster.states() == {}
    assert results[0] is None
    assert isinstance(results[1], RestError)
    assert results[1].status == 404


async def test_the_connectors_own() -> None:
    cluster = Cluster()
    assert (await refused(cluster.herder.delete_snapshot("c", "initial"))).status == 400
    await cluster.herder.steer_snapshot("c", "initial", "pause")
    (entry,) = cluster.instructions.get("c")
    assert {**entry, "created_ms": 0} == {"id": "initial", "state": "paused", "origin": "initial", "created_ms": 0}
    assert (await refused(cluster.herder.delete_snapshot("c", "initial"))).status == 400
    assert cluster.states() == {"initial": "paused"}
    assert (await refused(cluster.herder.delete_snapshot("c", "other"))).status == 404
    assert (await refused(cluster.herder.steer_snapshot("c", "other", "pause"))).status == 404
    assert (await refused(cluster.herder.snapshot("c", "other"))).status == 404


async def test_finished_ones_make_room() -> None:
    cluster = Cluster()
    for number in range(KEPT):
        await cluster.herder.create_snapshot("c", {"id": str(number)})
    cluster.saved.update({"1": "completed", "2": "cancelled", "3": "failed"})
    await cluster.herder.create_snapshot("c", {"id": "new"})
    assert cluster.states().keys() == {*(str(number) for number in range(KEPT) if number != 1), "new"}
    await cluster.herder.create_snapshot("c", {"id": "newer"})
    await cluster.herder.create_snapshot("c", {"id": "newest"})
    left = {str(number) for number in range(KEPT)} - {"1", "2"}
    assert cluster.states().keys() == left | {"new", "newer", "newest"}, "more than that only where none has finished"


async def test_a_list_too_long_for_a_record_is_refused() -> None:
    cluster = Cluster()
    cluster.padding = "x" * (MOST_BYTES // 2)
    await cluster.herder.create_snapshot("c", {"id": "a"})
    error = await refused(cluster.herder.create_snapshot("c", {"id": "b"}))
    assert (error.status, cluster.states()) == (400, {"a": "running"})


async def test_after_a_reset_finished_ones_are_forgotten() -> None:
    cluster = Cluster()
    assert await cluster.herder.ended_snapshots("c") == frozenset()
    for name in "ab":
        await cluster.herder.create_snapshot("c", {"id": name})
    cluster.saved["a"] = "completed"
    ended = await cluster.herder.ended_snapshots("c")
    assert ended == {"a"}
    cluster.saved.clear()
    await cluster.herder.forget_snapshots("c", ended)
    assert cluster.states() == {"b": "running"}
    cluster.answer = RemoteError("ConfigInvalid", "no")
    assert await cluster.herder.ended_snapshots("c") == frozenset(), "a reset must not depend on the connector's answer"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (RemoteError("ConfigInvalid", "no such table"), 400),
        (RemoteError("Retriable", "away"), 503),
        (RemoteError("KeyError", "x"), 500),
        (TimeoutError(), 500),
        (Retriable("no task host is ready"), 503),
    ],
)
async def test_refusals(answer: Exception, status: int) -> None:
    cluster = Cluster()
    cluster.answer = answer
    for call in (
        cluster.herder.create_snapshot("c", {}),
        cluster.herder.list_snapshots("c"),
        cluster.herder.connector_lag("c"),
        cluster.herder.connector_tables("c"),
    ):
        assert (await refused(call)).status == status
    assert cluster.writes == 0


async def test_sinks_and_unknown_connectors() -> None:
    cluster = Cluster()
    cluster.snapshot.connectors["s"] = {"connector.class": "S"}
    assert "/connectors/s/progress" in str(await refused(cluster.herder.connector_lag("s")))
    for call in (
        cluster.herder.create_snapshot("no", {}),
        cluster.herder.steer_snapshot("no", "a", "pause"),
        cluster.herder.delete_snapshot("no", "a"),
        cluster.herder.list_snapshots("no"),
    ):
        assert (await refused(call)).status == 404


async def test_the_leader_forgets_what_was_asked_of_connectors_that_are_gone() -> None:
    cluster = Cluster()
    await cluster.herder.create_snapshot("c", {"id": "a"})
    leader = SimpleNamespace(_placement=cluster.node.placement, _config=cluster, write=cluster.write)
    await LeaderDuties._forget_instructions(cast("LeaderDuties", leader))
    assert cluster.states() == {"a": "running"}
    del cluster.snapshot.connectors["c"]
    await LeaderDuties._forget_instructions(cast("LeaderDuties", leader))
    assert cluster.instructions.connectors() == []
