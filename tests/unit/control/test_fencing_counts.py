"""The count of tasks that the leader writes once earlier tasks are fenced, while the connector gets other tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from offsets.cluster import ClusterSnapshot, ClusterState
from offsets.records import commit_record, connector_record, task_count_record, task_record
from tests.support.eventually import pass_turns
from worker.control import fencing
from worker.control.fencing import TaskFencing
from worker.rest.facade import NotLeader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offsets.records import Pair
    from worker.control.leader import LeaderDuties


class Leader:
    """A leader whose records are folded when they are written; ``late`` are those of a transaction that is under way."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.offset = 0
        self.term = 1
        self.late: list[Pair] = []
        self.fencing = TaskFencing(cast("LeaderDuties", self), {"group.id": "g"}, self.task_producer)

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self.state.snapshot()

    async def task_producer(self, connector: Mapping[str, str]) -> dict[str, Any]:
        return dict(connector)

    def check(self) -> None:
        """It leads."""

    def wake(self) -> None:
        """Nothing waits."""

    async def write(self, config: Sequence[Pair] = ()) -> None:
        await pass_turns()
        late, self.late = self.late, []
        for key, value in (*late, *config):
            self.state.apply(self.offset, key, value)
            self.offset += 1


class Kafka:
    """Fences producers once ``answers`` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fenced: list[list[str]] = []
        self.answers = asyncio.Event()
        monkeypatch.setattr(fencing, "fence_producers", self._fence_producers)

    async def _fence_producers(self, producer: Mapping[str, Any], ids: Sequence[str], deadline_s: float) -> None:
        del producer, deadline_s
        self.fenced.append(list(ids))
        await self.answers.wait()


def task_set(count: int) -> list[Pair]:
    return [*(task_record("c", task, {}) for task in range(count)), commit_record("c", count)]


@pytest.mark.parametrize("late", [False, True])
async def test_tasks_that_were_written_while_others_are_fenced_are_counted(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    leader = Leader()
    kafka = Kafka(monkeypatch)
    await leader.write([connector_record("c", {}), *task_set(1), task_count_record("c", 1), *task_set(2)])
    under_way = asyncio.create_task(leader.fencing.fence("c"))
    await pass_turns()
    if late:  # it is in Kafka, and not read back yet
        leader.late = task_set(5)
    else:
        await leader.write(task_set(5))
    assert leader.snapshot.pending_fencing == {"c"}
    kafka.answers.set()
    await under_way
    assert leader.snapshot.pending_fencing == frozenset()
    assert leader.snapshot.task_counts == {"c": 5}
    # All five may run now, and whatever follows them must fence them all.
    assert leader.snapshot.fenced_counts == {"c": 5}
    await leader.write(task_set(3))
    await leader.fencing.fence("c")
    assert kafka.fenced == [["g-c-0"], [f"g-c-{task}" for task in range(5)]]


async def test_tasks_of_a_term_in_between_are_not_taken_for_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker has led while producers were fenced: its tasks run, and must be fenced before the next ones start."""
    leader = Leader()
    kafka = Kafka(monkeypatch)
    await leader.write([connector_record("c", {}), *task_set(1), task_count_record("c", 1), *task_set(2)])
    under_way = asyncio.create_task(leader.fencing.fence("c"))
    await pass_turns()
    await leader.write([task_count_record("c", 2), *task_set(3)])
    leader.term += 1
    kafka.answers.set()
    with pytest.raises(NotLeader):
        await under_way
    assert leader.snapshot.pending_fencing == {"c"}
    await leader.fencing.fence("c")
    assert kafka.fenced == [["g-c-0"], ["g-c-0", "g-c-1"]]
