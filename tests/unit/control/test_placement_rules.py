"""Placement: balance, stickiness, affinity, nothing lost or doubled."""

from __future__ import annotations

import time
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from worker.control.placement.planning import ANYWHERE, INSTANCE, Placement, Unit, Worker, place_units, read_requirement

_names = st.sampled_from([f"c{number}" for number in range(8)])
_connectors = st.dictionaries(_names, st.integers(0, 12), max_size=8)
_workers = st.integers(1, 7)


def units(connectors: dict[str, int]) -> dict[Unit, frozenset[tuple[str, str]]]:
    return {Unit(name, task): ANYWHERE for name, count in connectors.items() for task in range(INSTANCE, count)}


def fleet(count: int, first: int = 0) -> dict[str, Worker]:
    return {f"w{number}:1": Worker() for number in range(first, first + count)}


def spread(placement: Placement, workers: dict[str, Worker], *, instances: bool, connector: str | None = None) -> int:
    counts = Counter(
        worker
        for unit, worker in placement.assigned.items()
        if (unit.task == INSTANCE) is instances and connector in (None, unit.connector)
    )
    numbers = [counts.get(worker, 0) for worker, member in workers.items() if not member.draining]
    return max(numbers) - min(numbers) if numbers else 0


@given(_connectors, _workers)
def test_fresh_placement_is_complete_and_even(connectors: dict[str, int], count: int) -> None:
    requirements, workers = units(connectors), fleet(count)
    placement = place_units(requirements, workers, {}, rebalance=False)
    assert placement.assigned.keys() == requirements.keys() == placement.reasons.keys()
    assert spread(placement, workers, instances=False) <= 1
    assert spread(placement, workers, instances=True) <= 1
    for connector in connectors:
        assert spread(placement, workers, instances=False, connector=connector) <= 1


@given(_connectors, _workers, _workers, st.integers(0, 6))
def test_membership_change_evens_out_with_the_fewest_moves(
    connectors: dict[str, int], before: int, after: int, shift: int
) -> None:
    requirements = units(connectors)
    old, new = fleet(before), fleet(after, shift)
    first = place_units(requirements, old, {}, rebalance=False)
    second = place_units(requirements, new, first.assigned, rebalance=True)
    assert second.assigned.keys() == requirements.keys()
    for instances in (False, True):
        assert spread(second, new, instances=instances) <= 1
        kind = [unit for unit in requirements if (unit.task == INSTANCE) is instances]
        had = Counter(first.assigned[unit] for unit in kind if first.assigned[unit] in new)
        has = Counter(second.assigned[unit] for unit in kind)
        kept = sum(second.assigned[unit] == first.assigned[unit] for unit in kind)
        # No worker gives away more than its surplus: everything else stays.
        assert kept == sum(min(had[worker], has[worker]) for worker in new)
        low, extra = divmod(len(kind), len(new))
        ideal = sorted((had[worker] for worker in new), reverse=True)
        fewest = sum(min(count, low + (rank < extra)) for rank, count in enumerate(ideal))
        assert kept == fewest


@given(_connectors, _connectors, _workers)
def test_other_connectors_never_move_when_one_is_added_changed_or_deleted(
    connectors: dict[str, int], others: dict[str, int], count: int
) -> None:
    workers = fleet(count)
    first = place_units(units(connectors), workers, {}, rebalance=False)
    changed = units(connectors | others)
    second = place_units(changed, workers, first.assigned, rebalance=False)
    assert second.assigned.keys() == changed.keys()
    assert all(second.assigned[unit] == worker for unit, worker in first.assigned.items() if unit in changed)
    third = place_units(units(connectors), workers, second.assigned, rebalance=False)
    assert all(third.assigned[unit] == worker for unit, worker in second.assigned.items() if unit in third.assigned)


@given(
    _connectors,
    st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
    st.lists(st.sampled_from("abcd"), max_size=6),
    st.booleans(),
)
def test_labels_are_kept_to(connectors: dict[str, int], zones: list[str], needs: list[str], rebalance: bool) -> None:
    workers = {f"w{number}:1": Worker(labels={"zone": zone}) for number, zone in enumerate(zones)}
    requirements = units(connectors)
    for number, unit in enumerate(list(requirements)):
        if number < len(needs):
            requirements[unit] = frozenset({("zone", needs[number])})
    previous = dict.fromkeys(requirements, "w0:1")
    placement = place_units(requirements, workers, previous, rebalance=rebalance)
    for unit, needed in requirements.items():
        zone = dict(needed).get("zone")
        if zone is None:
            assert unit in placement.assigned
        elif zone in zones:
            assert workers[placement.assigned[unit]].labels["zone"] == zone
        else:
            assert unit not in placement.assigned
            assert f"zone={zone}" in placement.reasons[unit]


@given(_connectors, st.integers(2, 6), st.data())
def test_draining_workers_get_nothing_and_keep_nothing(
    connectors: dict[str, int], count: int, data: st.DataObject
) -> None:
    workers = fleet(count)
    first = place_units(units(connectors), workers, {}, rebalance=False)
    leaving = data.draw(st.sampled_from(sorted(workers)))
    workers[leaving] = Worker(draining=True)
    second = place_units(units(connectors), workers, first.assigned, rebalance=True)
    assert leaving not in second.assigned.values()
    assert second.assigned.keys() == first.assigned.keys()
    assert all(second.assigned[unit] == worker for unit, worker in first.assigned.items() if worker != leaving)


@given(_connectors, st.integers(2, 6))
def test_a_worker_that_comes_back_moves_only_what_it_gets(connectors: dict[str, int], count: int) -> None:
    workers = fleet(count)
    first = place_units(units(connectors), workers, {}, rebalance=False)
    remaining = dict(list(workers.items())[1:])
    second = place_units(units(connectors), remaining, first.assigned, rebalance=True)
    third = place_units(units(connectors), workers, second.assigned, rebalance=True)
    moved = [unit for unit in third.assigned if third.assigned[unit] != second.assigned[unit]]
    assert all(third.assigned[unit] == "w0:1" for unit in moved)


def test_larger_workers_take_more() -> None:
    workers = {"big:1": Worker(capacity=6), "small:1": Worker(capacity=2)}
    placement = place_units(units({"c": 16}), workers, {}, rebalance=False)
    tasks = Counter(worker for unit, worker in placement.assigned.items() if unit.task != INSTANCE)
    assert tasks == {"big:1": 12, "small:1": 4}


def test_node_names_a_host_an_id_or_a_label() -> None:
    workers = {"h1:8083": Worker(), "h2:8083": Worker(), "h3:8083": Worker(labels={"node": "cass-3"})}
    for node, expected in (("h1", "h1:8083"), ("h2:8083", "h2:8083"), ("cass-3", "h3:8083")):
        unit = Unit("c", 0)
        needed = read_requirement({"millrace.node": node})
        assert place_units({unit: needed}, workers, {}, rebalance=True).assigned == {unit: expected}


def test_a_worker_can_stand_for_several_nodes_by_labels_of_their_names() -> None:
    workers = {
        "h1:8083": Worker(labels={"node": "cass-1", "zone": "a"}),
        "h2:8083": Worker(labels={"cass-2": "yes", "cass-3": "yes"}),
        "h3:8083": Worker(labels={"cass-4": "no", "cass-5": "False"}),
    }
    requirements = {Unit("c", number): read_requirement({"millrace.node": f"cass-{number}"}) for number in range(1, 6)}
    placement = place_units(requirements, workers, {}, rebalance=True)
    assert {unit.task: worker for unit, worker in placement.assigned.items()} == {
        1: "h1:8083",
        2: "h2:8083",
        3: "h2:8083",
    }
    for number in (4, 5):
        assert f"millrace.node=cass-{number}" in placement.reasons[Unit("c", number)]
        assert (
            f"add cass-{number}=yes (or node=cass-{number}) to the node.labels" in placement.reasons[Unit("c", number)]
        )


def test_the_reason_for_a_missing_node_stands_beside_missing_labels() -> None:
    unit = Unit("c", 0)
    needed = read_requirement({"millrace.node": "cass-1", "millrace.labels": "zone=b"})
    placement = place_units(
        {unit: needed}, {"h1:8083": Worker(labels={"cass-1": "yes", "zone": "a"})}, {}, rebalance=False
    )
    assert placement.reasons[unit].startswith(
        "no worker that is not draining has millrace.node=cass-1, zone=b: start one"
    )


def test_labels_in_a_configuration() -> None:
    assert read_requirement({"millrace.labels": "zone=a, disk=ssd"}) == {("zone", "a"), ("disk", "ssd")}
    assert read_requirement({"name": "x"}) == ANYWHERE


def test_reasons_name_the_worker_that_is_gone() -> None:
    unit = Unit("c", 0)
    placement = place_units({unit: ANYWHERE}, fleet(1, 5), {unit: "w0:1"}, rebalance=True)
    assert "w0:1 is gone" in placement.reasons[unit]
    assert place_units({unit: ANYWHERE}, {}, {}, rebalance=True).reasons[unit] == "no worker is there"


def test_ten_thousand_tasks_on_fifty_workers() -> None:
    requirements = units({f"c{number}": 1 + number % 40 for number in range(488)})
    assert len(requirements) > 10_000
    started = time.process_time()
    first = place_units(requirements, fleet(1), {}, rebalance=True)
    second = place_units(requirements, fleet(50), first.assigned, rebalance=True)
    assert spread(second, fleet(50), instances=False) <= 1
    assert len({*second.assigned}) == len(requirements)
    print(f"placed twice in {time.process_time() - started:.2f} s of CPU")


# Groups of tasks that share a worker.


@given(_connectors, _workers, _workers, st.integers(0, 6), st.data())
def test_tasks_of_a_group_share_a_worker_and_groups_are_spread(
    connectors: dict[str, int], before: int, after: int, shift: int, data: st.DataObject
) -> None:
    needs = units(connectors)
    groups = {
        unit: data.draw(st.sampled_from(["application a", "application b"]))
        for unit in sorted(needs)
        if unit.task != INSTANCE and data.draw(st.booleans())
    }
    old, new = fleet(before), fleet(after, shift)
    first = place_units(needs, old, {}, rebalance=False, together=groups)
    second = place_units(needs, new, first.assigned, rebalance=True, together=groups)
    for placement, workers in ((first, old), (second, new)):
        assert placement.assigned.keys() == needs.keys()
        homes = {
            group: {placement.assigned[unit] for unit in groups if groups[unit] == group} for group in groups.values()
        }
        assert all(len(workers_of) == 1 for workers_of in homes.values())
        loads = Counter(placement.assigned[unit] for unit in needs if unit.task != INSTANCE and unit not in groups)
        loads.update(worker for (worker,) in homes.values())
        numbers = [loads.get(worker, 0) for worker in workers]
        assert max(numbers) - min(numbers) <= 1


@given(_connectors, st.integers(2, 6), st.data())
def test_a_drain_moves_a_whole_group_and_a_new_member_moves_nobody(
    connectors: dict[str, int], count: int, data: st.DataObject
) -> None:
    late = Unit("late", 0)
    needs = units(connectors) | {Unit("early", 0): ANYWHERE, Unit("early", 1): ANYWHERE}
    groups = {Unit("early", 0): "application a", Unit("early", 1): "application a"}
    workers = fleet(count)
    first = place_units(needs, workers, {}, rebalance=False, together=groups)
    grown = place_units(
        needs | {late: ANYWHERE}, workers, first.assigned, rebalance=False, together=groups | {late: "application a"}
    )
    assert {unit: grown.assigned[unit] for unit in needs} == first.assigned
    home = first.assigned[Unit("early", 0)]
    assert grown.assigned[late] == home
    assert grown.reasons[late] == f"it runs on {home} with all of application a"
    leaving = data.draw(st.sampled_from(sorted(workers)))
    workers[leaving] = Worker(draining=True)
    groups[late] = "application a"
    drained = place_units(needs | {late: ANYWHERE}, workers, grown.assigned, rebalance=True, together=groups)
    assert leaving not in drained.assigned.values()
    assert len({drained.assigned[unit] for unit in groups}) == 1


def test_a_group_needs_what_all_its_members_need() -> None:
    workers = {"h1:1": Worker(labels={"zone": "a"}), "h2:1": Worker(labels={"zone": "a", "disk": "ssd"})}
    first, second, third = Unit("c", 0), Unit("d", 0), Unit("e", 0)
    needs = {
        first: read_requirement({"millrace.labels": "zone=a"}),
        second: read_requirement({"millrace.labels": "disk=ssd"}),
    }
    groups = dict.fromkeys((first, second, third), "application orders")
    assert place_units(needs, workers, {first: "h1:1"}, rebalance=False, together=groups).assigned == {
        first: "h2:1",
        second: "h2:1",
    }
    needs[third] = read_requirement({"millrace.labels": "zone=b"})
    placement = place_units(needs, workers, {}, rebalance=False, together=groups)
    assert placement.assigned == {}
    assert placement.reasons[second] == (
        "all of application orders runs on one worker, and no worker that is not draining has disk=ssd, zone=a, zone=b"
    )
