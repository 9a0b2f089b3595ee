"""Instructions of operators to connectors: records, changes of the list, and their way to tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from offsets.cluster import ClusterState
from offsets.records import commit_record, connector_record, task_record
from worker.control.host_process import HostProcess
from worker.control.placement.desired_runs import find_connector_runs
from worker.control.placement.planning import INSTANCE, Unit
from worker.control.placement.reconciler import DesiredRun, LocalRun, plan_steps
from worker.control.placement.table import Slot, SlotOwner, row_record
from worker.control.state.instructions import NONE, InstructionTable, instructions_record, prune_rows, with_state
from worker.control.state.stores import PlacementStore

if TYPE_CHECKING:
    from offsets.cluster import ClusterSnapshot

_rows = st.lists(
    st.fixed_dictionaries(
        {"id": st.text(min_size=1), "state": st.sampled_from(["running", "paused"])},
        optional={"priority": st.integers(-5, 5), "conditions": st.dictionaries(st.text(), st.text())},
    ),
    max_size=4,
)


@given(st.text(min_size=1), _rows)
def test_records_are_read_as_written(name: str, rows: list[dict[str, Any]]) -> None:
    table = InstructionTable()
    assert table.apply(*instructions_record(name, rows))
    assert table.get(name) == rows
    assert (name in table.connectors()) == bool(rows)
    assert table.apply(*instructions_record(name, []))
    assert (table.connectors(), table.encoded(name)) == ([], NONE)


def test_other_and_unreadable_records_change_nothing() -> None:
    table = InstructionTable()
    table.apply(*instructions_record("c", [{"id": "1"}]))
    for value in (b"{", b"[]", b"{}", b'{"instructions": [1]}', b'{"instructions": [{}]}', b'{"instructions": 1}'):
        assert table.apply(b"instructions-c", value)
    assert not table.apply(b"placement-c", b"{}")
    assert not table.apply(None, None)
    assert table.get("c") == [{"id": "1"}]


def test_the_list_that_is_given_out_may_be_changed() -> None:
    table = InstructionTable()
    table.apply(*instructions_record("c", [{"id": "1"}]))
    table.get("c")[0]["id"] = "2"
    assert table.get("c") == [{"id": "1"}]


def test_states() -> None:
    rows: list[dict[str, Any]] = [{"id": "a", "state": "running", "tables": ["t"]}, {"id": "b", "state": "running"}]
    changed = with_state(rows, {"id": "a", "state": "running"}, "paused", 7)
    assert changed == [{"id": "a", "state": "paused", "tables": ["t"]}, rows[1]]
    assert rows[0]["state"] == "running"
    # The connector's own gets an entry, with nothing a task could take for a request.
    assert with_state(rows, {"id": "initial", "origin": "initial", "tables": [{"table": "x"}]}, "cancelled", 7) == [
        *rows,
        {"id": "initial", "state": "cancelled", "origin": "initial", "created_ms": 7},
    ]


def test_the_oldest_that_have_ended_are_forgotten_first() -> None:
    rows = [{"id": name} for name in "abcdef"]
    ended = frozenset("bdf")
    assert [row["id"] for row in prune_rows(rows, ended, 6)] == list("abcdef")
    assert [row["id"] for row in prune_rows(rows, ended, 4)] == list("acef")
    assert [row["id"] for row in prune_rows(rows, ended, 1)] == list("ace")


def test_placements_and_instructions_share_a_topic() -> None:
    changes: list[bool] = []
    store = PlacementStore("topic", {}, lambda: changes.append(True))

    class Record:
        def __init__(self, offset: int, pair: tuple[bytes, bytes | None]) -> None:
            self.offset = self.timestamp = offset
            self.key, self.value = pair

    owner = SlotOwner("w", "1")
    store._sink(
        0, [Record(0, row_record("c", {0: Slot(owner, 1)}, 1)), Record(1, instructions_record("c", [{"id": "1"}]))]
    )
    assert (store.table.assigned_to(owner), store.table.version) == ({"c": {0: 1}}, 1)
    assert store.instructions.get("c") == [{"id": "1"}]
    assert changes == [True]


def snapshot() -> ClusterSnapshot:
    state = ClusterState()
    records = connector_record("c", {"name": "c"}), task_record("c", 0, {"x": "1"}), commit_record("c", 1)
    for offset, pair in enumerate(records):
        state.apply(offset, *pair)
    return state.snapshot()


def test_tasks_are_instructed_without_a_restart() -> None:
    task, instance = Unit("c", 0), Unit("c", INSTANCE)
    epochs = {0: 1, INSTANCE: 1}
    before = find_connector_runs("c", epochs, snapshot())
    assert before[task].instructions == NONE
    after = find_connector_runs("c", epochs, snapshot(), b"c")
    assert (after[task].instructions, after[instance].instructions) == (b"c", NONE)
    local_runs = {unit: LocalRun(desired_run, HostProcess(0), busy=False) for unit, desired_run in before.items()}
    assert plan_steps(before, local_runs) == []
    assert plan_steps(after, local_runs) == [("instruct", task)]
    local_runs[task].instructions = b"c"
    assert plan_steps(after, local_runs) == []
    assert plan_steps(before, local_runs) == [("instruct", task)], "also when they are gone"


def test_busy_and_failed_tasks_and_those_with_another_step_are_not_instructed() -> None:
    task = Unit("c", 0)
    desired_run = DesiredRun({}, {}, 1, instructions=b"[1]")
    for local_run in (
        LocalRun(DesiredRun({}, {}, 1), HostProcess(0)),
        LocalRun(DesiredRun({}, {}, 1), HostProcess(0), busy=False, failed=True),
    ):
        assert plan_steps({task: desired_run}, {task: local_run}) == []
    assert plan_steps(
        {task: desired_run}, {task: LocalRun(DesiredRun({}, {}, 1), HostProcess(0), busy=False, paused=True)}
    ) == [("resume", task)]
    assert plan_steps(
        {task: desired_run}, {task: LocalRun(DesiredRun({}, {"x": "1"}, 1), HostProcess(0), busy=False)}
    ) == [("stop", task)]
