"""Desired runs from placement and configuration, and the steps that lead to them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offsets.cluster import ClusterSnapshot
from offsets.records import ReportedStatus, RestartRequest
from worker.control.host_process import HostProcess
from worker.control.placement.desired_runs import (
    DesiredRuns,
    awaiting_fencing,
    need_new_configs,
    restart_plan,
    restore_references,
)
from worker.control.placement.planning import INSTANCE, Unit
from worker.control.placement.reconciler import DesiredRun, LocalRun, plan_steps
from worker.control.state.instructions import NONE

TASK, INSTANCE_UNIT = Unit("c", 0), Unit("c", INSTANCE)
CONFIG = {"name": "c", "connector.class": "x"}


def desired_run(
    config: dict[str, str] | None = None, *, paused: bool = False, connector: dict[str, str] | None = None
) -> DesiredRun:
    return DesiredRun(connector or CONFIG, config, 1, paused)


def local_run(
    of: DesiredRun, *, busy: bool = False, paused: bool | None = None, failed: bool = False, restart: bool = False
) -> LocalRun:
    return LocalRun(of, HostProcess(0), of.paused if paused is None else paused, busy, failed, restart)


def test_what_is_missing_starts_and_what_is_too_much_stops() -> None:
    assert plan_steps({TASK: desired_run({})}, {}) == [("start", TASK)]
    assert plan_steps({}, {TASK: local_run(desired_run({}))}) == [("stop", TASK)]
    assert plan_steps({TASK: desired_run({})}, {TASK: local_run(desired_run({}))}) == []


def test_only_a_change_of_its_own_restarts_a_unit() -> None:
    running = {TASK: local_run(desired_run({"a": "1"})), Unit("c", 1): local_run(desired_run({"a": "2"}))}
    steps = plan_steps({TASK: desired_run({"a": "1"}), Unit("c", 1): desired_run({"a": "3"})}, running)
    assert steps == [("stop", Unit("c", 1))]


def test_a_new_placement_epoch_restarts_nothing() -> None:
    assert plan_steps({TASK: DesiredRun(CONFIG, {}, 9)}, {TASK: local_run(DesiredRun(CONFIG, {}, 1))}) == []


def test_a_run_of_a_deleted_connector_does_not_continue_for_a_recreated_one() -> None:
    """No round is needed in between; the statuses of the first one are forgotten."""
    before, after = (find_desired_runs(snapshot(creation_offsets={"c": offset})) for offset in (1, 5))
    assert plan_steps(after, {unit: local_run(of) for unit, of in before.items()}) == [
        ("stop", INSTANCE_UNIT),
        ("stop", TASK),
        ("stop", Unit("c", 1)),
    ]
    assert plan_steps(before, {unit: local_run(of) for unit, of in before.items()}) == []


def test_pause_and_resume_restart_no_task() -> None:
    assert plan_steps({TASK: desired_run({}, paused=True)}, {TASK: local_run(desired_run({}))}) == [("pause", TASK)]
    assert plan_steps({TASK: desired_run({})}, {TASK: local_run(desired_run({}), paused=True)}) == [("resume", TASK)]
    assert plan_steps({TASK: desired_run({}, paused=True)}, {TASK: local_run(desired_run({}), failed=True)}) == []


def test_an_instance_is_recreated_to_be_paused() -> None:
    assert plan_steps({INSTANCE_UNIT: desired_run(paused=True)}, {INSTANCE_UNIT: local_run(desired_run())}) == [
        ("stop", INSTANCE_UNIT)
    ]


def test_a_failed_unit_waits_until_it_is_restarted_or_changed() -> None:
    assert plan_steps({TASK: desired_run({})}, {TASK: local_run(desired_run({}), failed=True)}) == []
    assert plan_steps({TASK: desired_run({})}, {TASK: local_run(desired_run({}), failed=True, restart=True)}) == [
        ("stop", TASK)
    ]
    assert plan_steps({TASK: desired_run({"a": "1"})}, {TASK: local_run(desired_run({}), failed=True)}) == [
        ("stop", TASK)
    ]


def test_blocked_and_busy_units_are_left_alone() -> None:
    assert plan_steps({TASK: desired_run({})}, {}, frozenset({TASK})) == []
    assert plan_steps({}, {TASK: local_run(desired_run({}), busy=True)}) == []


_units = st.builds(Unit, st.sampled_from("ab"), st.integers(-1, 2))
_desired_runs = st.dictionaries(
    _units, st.builds(DesiredRun, st.just(CONFIG), st.sampled_from([None, {}, {"a": "1"}]), st.just(1), st.booleans())
)


@given(_desired_runs, _desired_runs)
def test_carrying_the_steps_out_leads_to_what_is_desired(
    before: dict[Unit, DesiredRun], desired: dict[Unit, DesiredRun]
) -> None:
    running = {unit: local_run(run) for unit, run in before.items()}
    for _ in range(4):
        for kind, unit in plan_steps(desired, running):
            if kind == "stop":
                del running[unit]
            elif kind == "start":
                running[unit] = local_run(desired[unit])
            else:
                running[unit].paused = kind == "pause"
    assert running.keys() == desired.keys()
    assert all(
        run.desired.same_run(desired[unit]) and run.paused == desired[unit].paused for unit, run in running.items()
    )
    assert plan_steps(desired, running) == []


# Desired runs.


def snapshot(**fields: object) -> ClusterSnapshot:
    base: dict[str, object] = {
        "connectors": {"c": CONFIG},
        "tasks": {"c": {0: {"t": "0"}, 1: {"t": "1"}}},
        "task_counts": {"c": 2},
        "applied": {"c": CONFIG},
    }
    return ClusterSnapshot(**{**base, **fields})  # type: ignore[arg-type]


ASSIGNED = {"c": {INSTANCE: 3, 0: 3, 1: 4}, "gone": {0: 1}}


def find_desired_runs(state: ClusterSnapshot) -> dict[Unit, DesiredRun]:
    return DesiredRuns().find(ASSIGNED, state, lambda *_: NONE)


def test_desired_state_of_a_running_connector() -> None:
    assert find_desired_runs(snapshot()) == {
        INSTANCE_UNIT: DesiredRun(CONFIG, None, 3),
        TASK: DesiredRun(CONFIG, {"t": "0"}, 3),
        Unit("c", 1): DesiredRun(CONFIG, {"t": "1"}, 4),
    }


def test_what_has_not_changed_of_a_connector_is_kept() -> None:
    desired_runs = DesiredRuns()
    first, second = (desired_runs.find(ASSIGNED, snapshot(), lambda *_: NONE) for _ in range(2))
    assert all(second[unit] is run for unit, run in first.items())
    for changed in (
        snapshot(target_states={"c": "PAUSED"}),
        snapshot(tasks={"c": {0: {"t": "0"}, 1: {"t": "2"}}}),
        snapshot(task_counts={"c": 1}),
        snapshot(inconsistent=frozenset({"c"})),
        snapshot(applied={"c": {**CONFIG, "file": "other"}}),
        snapshot(connectors={"c": {**CONFIG, "file": "other"}}),
        snapshot(creation_offsets={"c": 9}),
        snapshot(connectors={}),
    ):
        desired_runs.find(ASSIGNED, snapshot(), lambda *_: NONE)
        assert desired_runs.find(ASSIGNED, changed, lambda *_: NONE) == find_desired_runs(changed) != first
    asked = desired_runs.find(ASSIGNED, snapshot(), lambda *_: b"[1]")
    assert (asked[TASK].instructions, asked[INSTANCE_UNIT].instructions) == (b"[1]", NONE)
    assert desired_runs.find({"c": {0: 9}}, snapshot(), lambda *_: NONE) == {TASK: DesiredRun(CONFIG, {"t": "0"}, 9)}
    assert desired_runs.find({}, snapshot(), lambda *_: NONE) == {}


def test_a_stopped_connector_runs_nothing_and_a_paused_one_paused() -> None:
    assert find_desired_runs(snapshot(target_states={"c": "STOPPED"})) == {}
    assert all(run.paused for run in find_desired_runs(snapshot(target_states={"c": "PAUSED"})).values())


def test_tasks_run_by_the_configuration_they_were_made_from() -> None:
    newer = {**CONFIG, "file": "other"}
    desired_runs = find_desired_runs(snapshot(connectors={"c": newer}))
    assert desired_runs[INSTANCE_UNIT].connector_config == newer
    assert desired_runs[TASK].connector_config == CONFIG


def test_tasks_wait_for_fencing_but_instances_do_not() -> None:
    assert awaiting_fencing(ASSIGNED, snapshot(pending_fencing=frozenset({"c"}))) == {TASK, Unit("c", 1)}
    assert awaiting_fencing(ASSIGNED, snapshot()) == frozenset()


def test_task_configurations_are_written_only_when_they_change() -> None:
    same = [{"t": "0"}, {"t": "1"}]
    assert not need_new_configs(same, snapshot(), "c")
    assert need_new_configs(same[:1], snapshot(), "c")
    assert need_new_configs(same, snapshot(inconsistent=frozenset({"c"})), "c")
    assert need_new_configs(same, snapshot(connectors={"c": {**CONFIG, "x": "y"}}), "c")
    assert need_new_configs([], snapshot(tasks={}, task_counts={}), "c")
    assert not need_new_configs(same[:1], snapshot(target_states={"c": "STOPPED"}), "c")
    assert not need_new_configs(same, snapshot(), "unknown")


def test_references_are_put_back_into_task_configurations() -> None:
    config = {"password": "${file:/secrets:db}", "url": "x"}
    assert restore_references([{"password": "hunter2", "shard": "1"}, {"shard": "2"}], config) == [
        {"password": "${file:/secrets:db}", "shard": "1"},
        {"shard": "2"},
    ]


def status(state: str) -> ReportedStatus:
    return ReportedStatus(state, "w:1", 1)  # type: ignore[arg-type]


def test_restart_plans() -> None:
    tasks = {0: status("RUNNING"), 1: status("FAILED")}
    connector = status("RUNNING")

    def planned(*, include: bool, failed: bool) -> list[Unit]:
        return restart_plan(RestartRequest("c", include, failed), connector, tasks)

    assert planned(include=False, failed=False) == [INSTANCE_UNIT]
    assert planned(include=True, failed=False) == [INSTANCE_UNIT, TASK, Unit("c", 1)]
    assert planned(include=True, failed=True) == [Unit("c", 1)]
    assert planned(include=False, failed=True) == []
