"""The fold of the status topic."""

from __future__ import annotations

import pytest

from offsets.records import (
    Pair,
    ReportedStatus,
    StateName,
    TopicStatus,
    connector_status_record,
    task_status_record,
    topic_status_record,
)
from offsets.status import StatusState, can_write_safely


def fold(*pairs: Pair) -> StatusState:
    state = StatusState()
    for key, value in pairs:
        state.apply(key, value)
    return state


def status(state: StateName = "RUNNING", generation: int = 1, worker: str = "w1") -> ReportedStatus:
    return ReportedStatus(state, worker, generation)


def test_the_latest_status_counts() -> None:
    state = fold(
        connector_status_record("a", status()),
        task_status_record("a", 1, status()),
        task_status_record("a", 0, status()),
        task_status_record("a", 1, status("FAILED", 0)),
    )
    assert state.connector("a") == status()
    assert list(state.tasks("a").items()) == [(0, status()), (1, status("FAILED", 0))]
    assert state.task("a", 1) == status("FAILED", 0)
    assert (state.connectors(), state.connector("b"), state.task("b", 0), state.tasks("b")) == (["a"], None, None, {})


@pytest.mark.parametrize(("generation", "kept"), [(0, "RUNNING"), (1, "RUNNING"), (2, "UNASSIGNED")])
def test_a_late_unassigned_does_not_hide_a_running_task(generation: int, kept: str) -> None:
    state = fold(
        task_status_record("a", 0, status("RUNNING", 1, "w2")),
        task_status_record("a", 0, status("UNASSIGNED", generation, "w1")),
    )
    task_status = state.task("a", 0)
    assert task_status is not None
    assert task_status.state == kept


def test_other_late_states_do_count() -> None:
    state = fold(task_status_record("a", 0, status("FAILED", 5)), task_status_record("a", 0, status("UNASSIGNED", 1)))
    assert state.task("a", 0) == status("UNASSIGNED", 1)


def test_removing_a_connector_removes_its_tasks() -> None:
    state = fold(
        connector_status_record("a", status()),
        task_status_record("a", 0, status()),
        topic_status_record("a", "t", TopicStatus("t", "a", 0, 1)),
        connector_status_record("a", None),
    )
    assert (state.connectors(), state.tasks("a")) == ([], {})
    assert list(state.topics("a")) == ["t"]


def test_removing_a_task_leaves_the_others() -> None:
    state = fold(
        task_status_record("a", 0, status()), task_status_record("a", 1, status()), task_status_record("a", 0, None)
    )
    assert list(state.tasks("a")) == [1]


def test_active_topics_come_and_go() -> None:
    active = TopicStatus("t:1".replace(":", "-"), "x:connector-y", 0, 9)
    state = fold(topic_status_record("x:connector-y", active.topic, active))
    assert state.topics("x:connector-y") == {"t-1": active}
    state.apply(*topic_status_record("x:connector-y", "t-1", None))
    assert state.topics("x:connector-y") == {}


def test_garbage_changes_nothing_and_is_counted() -> None:
    state = fold(
        connector_status_record("a", status()),
        (b"status-connector-a", b"{}"),
        (b"status-task-a", b"{}"),
        (b"status-topic-:connector-a", None),
        (b"\xff", None),
        (b"status-connector-", b"{}"),
    )
    assert state.connector("a") == status()
    assert state.unreadable.count == 5


def test_a_worker_left_behind_does_not_overwrite_a_newer_owner() -> None:
    current = status("RUNNING", 5, "w2")
    assert not can_write_safely(current, status("UNASSIGNED", 4, "w1"))
    assert can_write_safely(current, status("UNASSIGNED", 5, "w1"))
    assert can_write_safely(current, status("UNASSIGNED", 1, "w2"))
    assert can_write_safely(None, status())
