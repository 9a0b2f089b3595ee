"""The pure parts around the leader: who leads, what is placed, what is fenced, who is blamed, what is explained."""

from __future__ import annotations

from unittest.mock import Mock

import msgspec
import pytest

from offsets.cluster import ClusterSnapshot
from offsets.records import ReportedStatus
from worker.control.fencing import fencing_count
from worker.control.group.membership import GroupView, WorkerMember, choose_leader, cluster_members, newest_members
from worker.control.herder.explanation import connector_notes, explain_unit
from worker.control.host_process import HostProcess, find_culprit
from worker.control.hosts import HostPool
from worker.control.placement.planning import INSTANCE, Unit
from worker.control.placement.rounds import PlacementRounds, wanted_units
from worker.control.placement.table import PlacementTable, Slot, SlotOwner
from worker.protocol import LoopStuck


def member(
    name: str, started: int = 1, *, draining: bool = False, leading: bool = False, incarnation: str = ""
) -> WorkerMember:
    return WorkerMember(
        worker_id=name,
        url=f"http://{name}/",
        incarnation=incarnation or name,
        started_ms=started,
        draining=draining,
        leading=leading,
    )


def test_the_leader_stays_until_it_drains() -> None:
    old, leading = member("a", 1), member("b", 2, leading=True)
    assert choose_leader([old, leading]) == leading
    assert choose_leader([old, member("b", 2, leading=True, draining=True)]) == old
    assert choose_leader([old, member("c", 3)]) == old


def test_of_two_processes_with_one_address_the_newer_one_lives() -> None:
    before, after = member("a", 1, incarnation="1"), member("a", 2, incarnation="2")
    assert newest_members([after, before]) == {"a": after}


def test_what_is_placed() -> None:
    snapshot = ClusterSnapshot(
        connectors={"c": {"millrace.labels": "zone=a"}, "d": {}},
        tasks={"c": {0: {"millrace.labels": "zone=b"}, 1: {}}},
        task_counts={"c": 2, "d": 0},
    )
    assert wanted_units(snapshot) == {
        Unit("c", INSTANCE): {("zone", "a")},
        Unit("c", 0): {("zone", "b")},
        Unit("c", 1): {("zone", "a")},
        Unit("d", INSTANCE): frozenset(),
    }


@pytest.mark.parametrize(
    ("before", "now", "pending", "expected"),
    [
        (None, 2, True, 0),  # the first with exactly once
        (3, 2, True, 3),
        (1, 1, True, 0),  # takes the same id over
        (1, 2, True, 1),
        (3, 3, False, 0),  # done already
    ],
)
def test_how_many_producers_are_fenced(before: int | None, now: int, pending: bool, expected: int) -> None:
    snapshot = ClusterSnapshot(
        connectors={"c": {}},
        task_counts={"c": now},
        fenced_counts={} if before is None else {"c": before},
        pending_fencing=frozenset({"c"} if pending else ()),
    )
    assert fencing_count(snapshot, "c") == expected


def test_who_is_blamed_for_a_dead_host() -> None:
    host = HostProcess(0)
    task, instance = Unit("a-1", 0), Unit("b", INSTANCE)
    assert find_culprit(host, frozenset({task, instance})) is None
    assert find_culprit(host, frozenset({task})) == task
    host.stuck = LoopStuck(9.0, "a-1-0", "")
    assert find_culprit(host, frozenset({task, instance})) == task
    host.stuck = LoopStuck(9.0, "b", "")
    assert find_culprit(host, frozenset({task, instance})) == instance
    host.stuck = LoopStuck(9.0, "unknown", "")
    assert find_culprit(host, frozenset({task, instance})) is None


async def test_a_host_that_loads_code_is_not_stuck() -> None:
    pool = HostPool(1, Mock(), Mock(), stuck_s=1.0)
    host = pool.hosts[0]
    await pool._handle(host, LoopStuck(5.0, "", "stacks"))
    assert host.stuck is None
    host.ready = True
    await pool._handle(host, LoopStuck(5.0, "", "stacks"))
    assert host.stuck == LoopStuck(5.0, "", "stacks")


def test_why_a_unit_is_not_running() -> None:
    slot = Slot(SlotOwner("w:1", "i"), 1)
    failed = ReportedStatus("FAILED", "w:1", 1, "Boom\n at x")
    assert explain_unit(None, None, "no worker has zone=b", None)["why_not_running"] == "no worker has zone=b"
    assert "has to stop it" in explain_unit(Slot(slot.owner, 1, revoked=True), None, None, None)["why_not_running"]
    assert explain_unit(slot, failed, None, None)["why_not_running"] == "it failed: Boom"
    trace = (
        'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: low\n\nDuring handling of the above '
        'exception, another exception occurred:\n\nTraceback (most recent call last):\n  File "b.py", line 2\n    raise\n'
        "Fatal: the source is closed\nmore of it\n"
    )
    failed = ReportedStatus("FAILED", "w:1", 1, trace)
    assert explain_unit(slot, failed, None, None)["why_not_running"] == "it failed: Fatal: the source is closed"
    assert explain_unit(slot, None, None, "waits")["why_not_running"] == "waits"
    assert "why_not_running" not in explain_unit(slot, ReportedStatus("RUNNING", "w:1", 1), "x", None)


def test_notes_about_a_connector() -> None:
    paused = ClusterSnapshot(
        connectors={"c": {}}, target_states={"c": "PAUSED"}, task_counts={"c": 1}, pending_fencing=frozenset({"c"})
    )
    assert any("PAUSED" in note for note in connector_notes(paused, "c", exactly_once=False))
    assert len(connector_notes(paused, "c", exactly_once=True)) == 2
    assert (
        "incomplete"
        in connector_notes(
            ClusterSnapshot(connectors={"c": {}}, inconsistent=frozenset({"c"})), "c", exactly_once=False
        )[0]
    )


def test_nothing_is_placed_on_members_of_another_cluster() -> None:
    """They have the same group.id and other topics. Workers that do not name their topics count in."""
    leader = msgspec.structs.replace(member("a:1"), config_topic="configs")
    members = [leader, member("b:1"), msgspec.structs.replace(member("c:1"), config_topic="others")]
    view = GroupView(1, {item.worker_id: item for item in members}, leader)
    assert set(cluster_members(view)) == {"a:1", "b:1"}
    assert set(cluster_members(GroupView(1, view.members, members[1]))) == {"a:1", "b:1", "c:1"}
    snapshot = ClusterSnapshot(connectors={"k": {}}, tasks={"k": {0: {}, 1: {}, 2: {}}}, task_counts={"k": 3})
    placement = PlacementRounds().assign_units(cluster_members(view), snapshot, PlacementTable())
    assert set(placement.assigned.values()) == {"a:1", "b:1"}
    assert len(placement.assigned) == 4
