"""The fold of the config topic: Connect's rules for commits, compaction, deletion and target states."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offsets.cluster import ClusterState, ConfigChange
from offsets.records import (
    Pair,
    RestartRequest,
    SessionKeyRecord,
    commit_record,
    connector_record,
    logger_record,
    restart_record,
    session_key_record,
    target_state_record,
    task_count_record,
    task_record,
)


def fold(*pairs: Pair) -> tuple[ClusterState, list[ConfigChange | None]]:
    state = ClusterState()
    return state, [state.apply(offset, key, value) for offset, (key, value) in enumerate(pairs)]


def config(name: str = "a", value: str = "1") -> Pair:
    return connector_record(name, {"name": name, "mark": value})


def test_tasks_take_effect_only_with_their_commit() -> None:
    state, changes = fold(config(), task_record("a", 0, {"x": "0"}), task_record("a", 1, {"x": "1"}))
    assert state.snapshot().task_configs("a") == []
    assert changes == [ConfigChange("connector", "a"), None, None]
    assert state.apply(3, *commit_record("a", 2)) == ConfigChange("tasks", "a")
    snapshot = state.snapshot()
    assert snapshot.task_configs("a") == [{"x": "0"}, {"x": "1"}]
    assert snapshot.all_tasks() == [("a", 0), ("a", 1)]
    assert (snapshot.offset, snapshot.applied["a"], snapshot.generations["a"]) == (4, {"name": "a", "mark": "1"}, 0)
    assert snapshot.pending_fencing == {"a"}


def test_a_snapshot_does_not_change_any_more() -> None:
    state, _ = fold(config(), task_record("a", 0, {"x": "0"}), commit_record("a", 1))
    before = state.snapshot()
    assert state.snapshot() is before
    for offset, pair in enumerate(
        [
            config("a", "2"),
            task_record("a", 0, {"x": "new"}),
            commit_record("a", 1),
            target_state_record("a", "PAUSED"),
            connector_record("a", None),
        ],
        start=3,
    ):
        state.apply(offset, *pair)
    assert before.task_configs("a") == [{"x": "0"}]
    assert before.connectors == {"a": {"name": "a", "mark": "1"}}
    assert before.target_state("a") == "STARTED"


def test_fewer_tasks_leave_no_leftover_in_effect() -> None:
    state, _ = fold(
        config(),
        task_record("a", 0, {"x": "0"}),
        task_record("a", 1, {"x": "1"}),
        commit_record("a", 2),
        task_record("a", 0, {"x": "only"}),
        commit_record("a", 1),
    )
    assert state.snapshot().task_configs("a") == [{"x": "only"}]
    assert state.snapshot().generations["a"] == 1


def test_compaction_that_left_extra_tasks_is_fine() -> None:
    state, _ = fold(
        config(), task_record("a", 1, {"x": "old"}), task_record("a", 0, {"x": "only"}), commit_record("a", 1)
    )
    assert state.snapshot().task_configs("a") == [{"x": "only"}]
    assert not state.snapshot().inconsistent


def test_an_incomplete_set_is_inconsistent_until_it_is_rewritten() -> None:
    state, _ = fold(config(), task_record("a", 1, {"x": "1"}), commit_record("a", 2))
    assert state.snapshot().inconsistent == {"a"}
    assert state.snapshot().task_configs("a") == []
    assert state.snapshot().task_counts["a"] == 2
    # the update whose commit was never written does not help alone
    state.apply(3, *task_record("a", 0, {"x": "0"}))
    assert state.snapshot().task_configs("a") == []
    state.apply(4, *task_record("a", 1, {"x": "1"}))
    state.apply(5, *commit_record("a", 2))
    assert state.snapshot().inconsistent == frozenset()
    assert state.snapshot().task_configs("a") == [{"x": "0"}, {"x": "1"}]


def test_tasks_of_a_connector_compacted_away_are_ignored() -> None:
    state, changes = fold(task_record("a", 0, {"x": "0"}), commit_record("a", 1))
    assert changes == [None, None]
    assert state.snapshot().all_tasks() == []
    assert "a" not in state.snapshot().task_counts
    # and do not come back with a new connector of that name
    state.apply(2, *config())
    state.apply(3, *commit_record("a", 0))
    assert state.snapshot().task_configs("a") == []


def test_deletion_forgets_everything_but_the_fencing_record() -> None:
    state, changes = fold(
        config(),
        task_record("a", 0, {}),
        commit_record("a", 1),
        task_count_record("a", 1),
        target_state_record("a", "PAUSED"),
        connector_record("a", None),
        target_state_record("a", None),
    )
    snapshot = state.snapshot()
    assert changes[5] == ConfigChange("removed", "a")
    assert (snapshot.connectors, snapshot.tasks, snapshot.task_counts, snapshot.target_states) == ({}, {}, {}, {})
    assert snapshot.fenced_counts == {"a": 1}


def test_a_connector_that_was_inconsistent_can_be_recreated() -> None:
    state, _ = fold(
        config(),
        commit_record("a", 2),
        connector_record("a", None),
        config(),
        task_record("a", 0, {"x": "0"}),
        commit_record("a", 1),
    )
    assert state.snapshot().task_configs("a") == [{"x": "0"}]


def test_a_recreated_connector_is_another_one_and_a_changed_one_is_not() -> None:
    state, _ = fold(config(), config("b"))
    creation_offsets = dict(state.snapshot().creation_offsets)
    assert len(set(creation_offsets.values())) == 2
    state.apply(2, *config("a", "2"))
    assert state.snapshot().creation_offsets == creation_offsets
    state.apply(3, *connector_record("a", None))
    assert state.snapshot().creation_offsets == {"b": creation_offsets["b"]}, "nothing is kept of those that are gone"
    state.apply(4, *config())
    assert state.snapshot().creation_offsets["a"] not in creation_offsets.values()


def test_target_states_report_real_changes_only() -> None:
    state, changes = fold(
        target_state_record("a", "PAUSED"),
        config(),
        target_state_record("a", "PAUSED"),
        target_state_record("a", "STOPPED"),
        target_state_record("a", None),
    )
    assert changes == [None, ConfigChange("connector", "a"), None, ConfigChange("target_state", "a"), None]
    assert state.snapshot().target_state("a") == "STARTED"


def test_a_connector_created_stopped_is_never_started() -> None:
    """Connect writes the initial state before the configuration (KIP-980)."""
    state, _ = fold(target_state_record("a", "STOPPED"), config())
    assert state.snapshot().target_state("a") == "STOPPED"


def test_fencing_is_pending_between_a_commit_and_the_task_count_record() -> None:
    state, changes = fold(config(), task_record("a", 0, {}), commit_record("a", 1), task_count_record("a", 1))
    assert changes[3] == ConfigChange("task_count", "a")
    assert (state.snapshot().pending_fencing, state.snapshot().fenced_counts) == (frozenset(), {"a": 1})
    state.apply(4, *task_record("a", 0, {}))
    state.apply(5, *commit_record("a", 1))
    assert state.snapshot().pending_fencing == {"a"}


def test_requests_keys_and_levels_are_reported() -> None:
    request = RestartRequest("a", include_tasks=True, only_failed=True)
    key = SessionKeyRecord(b"k", "HmacSHA256", 5)
    state, changes = fold(restart_record(request), session_key_record(key), logger_record("root", "TRACE"))
    assert changes == [
        ConfigChange("restart", "a", restart=request),
        ConfigChange("session_key"),
        ConfigChange("logger", "root", level="TRACE"),
    ]
    assert (state.snapshot().session_key, state.snapshot().loggers) == (key, {"root": "TRACE"})


def test_garbage_is_counted_and_logged_once(caplog: object) -> None:
    state, changes = fold((b"what", b"1"), (b"what", b"2"), (b"connector-a", b"[]"), config())
    assert changes == [None, None, None, ConfigChange("connector", "a")]
    assert state.unreadable.count == 3
    assert state.snapshot().offset == 4
    assert [record.getMessage().count("'what'") for record in caplog.records] == [1, 0]  # type: ignore[attr-defined]


STEPS = st.lists(
    st.one_of(
        st.builds(config, st.sampled_from("ab"), st.sampled_from("12")),
        st.builds(lambda name: connector_record(name, None), st.sampled_from("ab")),
        st.builds(
            lambda name, task, value: task_record(name, task, {"m": value}),
            st.sampled_from("ab"),
            st.integers(0, 2),
            st.sampled_from("xy"),
        ),
        st.builds(commit_record, st.sampled_from("ab"), st.integers(0, 3)),
        st.builds(target_state_record, st.sampled_from("ab"), st.sampled_from(["STARTED", "PAUSED", "STOPPED", None])),
        st.builds(task_count_record, st.sampled_from("ab"), st.integers(0, 3)),
    ),
    max_size=30,
)


@given(STEPS)
def test_tasks_in_effect_are_always_one_complete_set(steps: list[Pair]) -> None:
    state, _ = fold(*steps)
    snapshot = state.snapshot()
    for name in snapshot.connectors:
        tasks = snapshot.task_configs(name)
        assert name in snapshot.inconsistent or len(tasks) == snapshot.task_counts.get(name, 0)
    assert set(snapshot.tasks) <= set(snapshot.connectors)
    assert set(snapshot.task_counts) <= set(snapshot.connectors)


@given(STEPS)
def test_reading_a_compacted_log_gives_the_same_connectors_and_targets(steps: list[Pair]) -> None:
    """Compaction may lose sets of tasks (they become inconsistent), never a connector or what is wanted of it."""
    full, _ = fold(*steps)
    last = {key: offset for offset, (key, _) in enumerate(steps)}
    compacted = ClusterState()
    for offset, (key, value) in enumerate(steps):
        if last[key] == offset:
            compacted.apply(offset, key, value)
    full_snapshot, compacted_snapshot = full.snapshot(), compacted.snapshot()
    assert full_snapshot.connectors == compacted_snapshot.connectors
    assert {name: full_snapshot.target_state(name) for name in full_snapshot.connectors} == {
        name: compacted_snapshot.target_state(name) for name in compacted_snapshot.connectors
    }
    for name in full_snapshot.connectors:
        if (
            name not in compacted_snapshot.inconsistent
            and name not in full_snapshot.inconsistent
            and name in full_snapshot.task_counts
        ):
            assert len(compacted_snapshot.task_configs(name)) in {len(full_snapshot.task_configs(name)), 0}
