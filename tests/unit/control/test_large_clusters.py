"""The work for one unit, topic or table does not grow with all that the cluster has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from offsets.cluster import ClusterSnapshot
from worker.control.herder.topics import TopicOperations
from worker.control.placement import reconciler as reconciler_module
from worker.control.placement.desired_runs import find_connector_runs
from worker.control.placement.planning import Unit
from worker.control.placement.reconciler import DesiredRun, LocalRun, Reconciler

if TYPE_CHECKING:
    from collections.abc import ItemsView, ValuesView

    import pytest

    from worker.control.herder.base import HerderContext

SMALL, LARGE = 10, 40
#: Further than this from each other crashes do not count together.
CRASH_WINDOW_S = 600.0


class CountedDict(dict[Any, Any]):
    """Counts the entries that are looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def items(self) -> ItemsView[Any, Any]:  # type: ignore[override]  # a view of a copy will do
        self.looks += len(self)
        return super().items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self.looks += len(self)
        return super().values()


async def count_looks_for_topics(count: int) -> int:
    connectors = CountedDict({f"c{number}": {"topics": f"t{number}"} for number in range(count)})
    config = {f"{name}.storage.topic": name for name in ("config", "offset", "status", "placement")}

    async def catch_up() -> None:
        """It is."""

    context = SimpleNamespace(
        config=config,
        snapshot=SimpleNamespace(connectors=connectors),
        catch_up=catch_up,
        node=SimpleNamespace(status=SimpleNamespace(state=SimpleNamespace(topics=lambda _: {"status": 1, "__x": 1}))),
    )
    uses = await TopicOperations(cast("HerderContext", context)).topic_uses()
    assert list(uses) == sorted(f"t{number}" for number in range(count))
    return connectors.looks


async def test_a_list_of_topics_does_not_look_at_all_connectors_for_each() -> None:
    assert await count_looks_for_topics(LARGE) == await count_looks_for_topics(SMALL) * LARGE / SMALL


def test_whether_one_task_shall_run_does_not_depend_on_the_number_of_tasks() -> None:
    looks = []
    for count in (SMALL, LARGE):
        tasks = CountedDict({number: {"n": str(number)} for number in range(count)})
        snapshot = ClusterSnapshot(connectors={"c": {}}, tasks={"c": tasks}, task_counts={"c": count})
        runs = find_connector_runs("c", {count - 1: 1, count: 1}, snapshot)
        assert [(unit, run.config) for unit, run in runs.items()] == [(Unit("c", count - 1), {"n": str(count - 1)})]
        looks.append(tasks.looks)
    assert looks[0] == looks[1]


def test_an_inconsistent_connector_has_no_task() -> None:
    snapshot = ClusterSnapshot(
        connectors={"c": {}}, tasks={"c": {0: {}}}, task_counts={"c": 1}, inconsistent=frozenset({"c"})
    )
    assert snapshot.task_config("c", 0) is None
    assert find_connector_runs("c", {0: 1}, snapshot) == {}


def test_crashes_of_units_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(reconciler_module, "time", SimpleNamespace(monotonic=lambda: now))
    listener = SimpleNamespace(changed=lambda: None)
    reconciler = Reconciler(cast("Any", None), cast("Any", listener), stop_s=1, backoff_s=(1, 8), crash_limit=3)
    host = cast("Any", SimpleNamespace(number=0))

    def crash(unit: Unit) -> None:
        reconciler.local_runs[unit] = LocalRun(DesiredRun({}, {}, 1), host)
        reconciler.host_died(host, frozenset({unit}), unit)

    for _ in range(3):
        crash(Unit("bad", 0))
    for number in range(LARGE):
        crash(Unit(f"c{number}", 0))
        now += CRASH_WINDOW_S / 2
    assert set(reconciler._crashes) == {Unit("bad", 0), *(Unit(f"c{LARGE - back}", 0) for back in (1, 2))}
    assert reconciler.crash_count(Unit("bad", 0)) == 3
    assert list(reconciler.given_up) == [Unit("bad", 0)]
