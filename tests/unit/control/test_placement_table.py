"""The placement topic's records, and the hand-over of units between live workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.control.placement.planning import INSTANCE, Unit
from worker.control.placement.table import (
    PlacementTable,
    Slot,
    SlotOwner,
    WorkerReport,
    advance_slots,
    lost_units,
    report_record,
    row_record,
    still_held,
)

A, B = SlotOwner("a:1", "1"), SlotOwner("b:1", "1")


def publish(table: PlacementTable, changes: dict[str, dict[int, Slot]], epoch: int) -> None:
    for connector, slots in changes.items():
        table.apply(*row_record(connector, slots, epoch))


def table_with(unit: Unit, slot: Slot) -> PlacementTable:
    table = PlacementTable()
    publish(table, {unit.connector: {unit.task: slot}}, slot.epoch)
    return table


@given(
    st.dictionaries(
        st.integers(INSTANCE, 30),
        st.builds(Slot, st.sampled_from([A, B]), st.integers(0, 1 << 40), st.booleans()),
        max_size=12,
    )
)
def test_rows_are_read_as_written(slots: dict[int, Slot]) -> None:
    table = PlacementTable()
    table.apply(*row_record("ünï-1", slots, 7))
    assert table.slots.get("ünï-1", {}) == slots


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["c", "d"]),
            st.dictionaries(
                st.integers(INSTANCE, 2), st.builds(Slot, st.sampled_from([A, B]), st.integers(0, 9), st.booleans())
            ),
            st.sampled_from([A, B]),
        )
    )
)
def test_what_a_worker_has_and_has_to_stop_is_right_after_each_record(
    rows: list[tuple[str, dict[int, Slot], SlotOwner]],
) -> None:
    table = PlacementTable()
    for connector, slots, owner in rows:
        before = dict(table.assigned_to(owner))
        table.apply(*row_record(connector, slots, 1))
        after = table.assigned_to(owner)
        of_owner = {
            name: {task: slot for task, slot in row.items() if slot.owner == owner} for name, row in table.slots.items()
        }
        expected = {
            name: {task: slot.epoch for task, slot in row.items() if not slot.revoked} for name, row in of_owner.items()
        }
        assert after == {name: epochs for name, epochs in expected.items() if epochs}
        assert all(after[name] is before[name] for name in after if name != connector)
        assert sorted(table.revoked_from(owner)) == sorted(
            slot.epoch for row in of_owner.values() for slot in row.values() if slot.revoked
        )


def test_unreadable_and_foreign_records_change_nothing() -> None:
    table = table_with(Unit("c", 0), Slot(A, 1))
    for key, value in (
        (b"placement-c", b"{"),
        (b"member-a:1", b"[]"),
        (b"other", b"{}"),
        (None, b"{}"),
        (b"\xff", None),
    ):
        table.apply(key, value)
    assert table.assigned_to(A) == {"c": {0: 1}}


def test_a_unit_moves_only_after_its_worker_has_stopped_it() -> None:
    unit = Unit("c", 0)
    table = table_with(unit, Slot(A, 1))
    live, desired = {"a:1": "1", "b:1": "1"}, {unit: "b:1"}
    publish(table, advance_slots(table, desired, live, 2), 2)
    assert table.get(unit) == Slot(A, 2, revoked=True)
    assert table.owner(unit) is None
    assert not advance_slots(table, desired, live, 3)
    table.apply(*report_record("a:1", WorkerReport("1", 1, frozenset())))  # has not seen the revocation
    assert not advance_slots(table, desired, live, 3)
    table.apply(*report_record("a:1", WorkerReport("1", 2, frozenset({("c", 0)}))))  # is still stopping it
    assert not advance_slots(table, desired, live, 3)
    table.apply(*report_record("a:1", WorkerReport("1", 2, frozenset())))
    publish(table, advance_slots(table, desired, live, 3), 3)
    assert table.get(unit) == Slot(B, 3)


def test_a_worker_that_is_gone_is_not_asked() -> None:
    unit = Unit("c", 0)
    table = table_with(unit, Slot(A, 1))
    assert lost_units(table, {"b:1": "1"}) == {unit: "a:1"}
    assert advance_slots(table, {unit: "b:1"}, {"b:1": "1"}, 2) == {"c": {0: Slot(B, 2)}}


def test_a_restarted_worker_gets_its_units_again() -> None:
    unit = Unit("c", 0)
    table = table_with(unit, Slot(A, 1))
    assert advance_slots(table, {unit: "a:1"}, {"a:1": "2"}, 2) == {"c": {0: Slot(SlotOwner("a:1", "2"), 2)}}


def test_a_revocation_can_be_taken_back() -> None:
    unit = Unit("c", 0)
    table = table_with(unit, Slot(A, 2, revoked=True))
    assert advance_slots(table, {unit: "a:1"}, {"a:1": "1"}, 3) == {"c": {0: Slot(A, 3)}}


def test_a_deleted_connector_keeps_its_row_until_all_has_stopped() -> None:
    unit = Unit("c", INSTANCE)
    table = table_with(unit, Slot(A, 1))
    live = {"a:1": "1"}
    publish(table, advance_slots(table, {}, live, 2), 2)
    assert table.get(unit) == Slot(A, 2, revoked=True)
    # Recreated at once, and placed elsewhere: it still has to wait.
    assert not advance_slots(table, {unit: "b:1"}, {**live, "b:1": "1"}, 3)
    table.apply(*report_record("a:1", WorkerReport("1", 2, frozenset())))
    publish(table, advance_slots(table, {}, live, 3), 3)
    assert table.slots == {}


def test_what_a_worker_reports() -> None:
    running = [Unit("c", 1), Unit("c", 0), Unit("d", INSTANCE)]
    assert still_held({"c": {1: 3}}, running) == {("c", 0), ("d", INSTANCE)}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a:1", "b:1", "c:1", None])), max_size=30),
    st.lists(st.sampled_from(["a:1", "b:1", "c:1"]), max_size=30),
    st.randoms(),
)
def test_no_unit_is_ever_in_two_live_workers(
    desired_runs: list[tuple[int, str | None]], obedient: list[str], random: object
) -> None:
    """Workers obey in any order and at any time; each runs what it has read as its own until it has stopped it."""
    del random
    table, live = PlacementTable(), {"a:1": "1", "b:1": "1", "c:1": "1"}
    running: dict[str, set[Unit]] = {worker: set() for worker in live}
    desired: dict[Unit, str] = {}
    for epoch, (task, worker) in enumerate(desired_runs, start=1):
        unit = Unit("c", task)
        if worker is None:
            desired.pop(unit, None)
        else:
            desired[unit] = worker
        publish(table, advance_slots(table, desired, live, epoch), epoch)
        if epoch <= len(obedient):
            name = obedient[epoch - 1]
            running[name] = {Unit("c", task) for task in table.assigned_to(SlotOwner(name, "1")).get("c", ())}
            table.apply(*report_record(name, WorkerReport("1", table.epoch, frozenset())))
        everything = [unit for units in running.values() for unit in units]
        assert len(everything) == len(set(everything))
