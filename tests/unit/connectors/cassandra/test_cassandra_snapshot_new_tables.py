"""Tables that come later are read on their own: whole, and once, whatever tasks do meanwhile."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.cassandra.snapshot import state
from connectors.cassandra.snapshot.model import CassandraSnapshotSettings, new_request, new_table_id
from connectors.cassandra.snapshot.planner import CassandraSnapshotPlanner
from connectors.cassandra.snapshot.ranges import task_range
from connectors.cassandra.snapshot.views import list_snapshots, request_of, saved_request, share_partition
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, make_definition
from connectors.cql.token_ranges import MAX_TOKEN, MIN_TOKEN
from connectors.cql.types import parse_type
from connectors.snapshot.requests import INITIAL, SnapshotRequest
from connectors.snapshot.state import pack

SETTINGS = CassandraSnapshotSettings(prefix="shop", threads=2, chunk_rows=5, new_tables=True)
TOKENS = [MIN_TOKEN + (MAX_TOKEN - MIN_TOKEN) // 23 * number for number in range(1, 23)]


def table(name: str, number: int) -> CqlTableDefinition:
    return make_definition(
        "ks", name, str(uuid.UUID(int=number)), [CqlColumn("k", parse_type("int"), "partition_key", 0)]
    )


class World:
    """A cluster's captured tables, tasks that share the ring, and what Kafka has of them."""

    def __init__(self) -> None:
        self.tables = [table("t1", 1)]
        self.offsets: dict[str, tuple[Any, Any]] = {}
        #: Tables whose cdc was off for a while, by id: when it was on again.
        self.reenabled: dict[str, int] = {}
        self.read: Counter[tuple[str, int]] = Counter()
        self.divide(2)

    def divide(self, count: int) -> None:
        self.count = count
        self.planner: dict[int, CassandraSnapshotPlanner] = {}
        self.requests: dict[int, dict[str, SnapshotRequest]] = {}
        for index in range(count):
            self.kill(index)

    def kill(self, index: int) -> None:
        """The task starts again from what is saved."""
        index %= self.count
        shard = (index, self.count)
        self.planner[index] = CassandraSnapshotPlanner(SETTINGS, shard, list(self.offsets.values()))
        task_offsets = {
            source["snapshot"]: offset
            for source, offset in self.offsets.values()
            if source["shard"] == f"{index}/{self.count}"
        }
        self.requests[index] = {INITIAL: SnapshotRequest(id=INITIAL, tables=[".*"], origin="initial")} | {
            name: request
            for name, offset in task_offsets.items()
            if (request := request_of(name, offset)) and offset["state"] != "completed"
        }
        self.planner[index].set_requests(list(self.requests[index].values()))

    def create(self, _: int) -> None:
        if len(self.tables) < 4:
            self.tables.append(table(f"t{len(self.tables) + 1}", len(self.tables) + 1))

    def look(self, index: int) -> None:
        """The task looks for tables that came later."""
        index %= self.count
        for new_table in self.planner[index].uncovered(self.tables):
            request = new_request(new_table.table_id, str(new_table))
            self.requests[index][request.id] = request
        for request in self.planner[index].reopened(
            (table, self.reenabled[table.table_id]) for table in self.tables if table.table_id in self.reenabled
        ):
            self.requests[index][request.id] = request
        self.planner[index].set_requests(list(self.requests[index].values()))
        self.save(self.planner[index].changes())

    def work(self, index: int) -> bool:
        """Do one step of a snapshot; False: there is nothing to do."""
        index %= self.count
        planner = self.planner[index]
        job = planner.next_job()
        if job is None:
            return False
        if job.table is None:
            planner.resolved(job, job.share.request.chosen(self.tables))
        else:
            assert job.part is not None
            assert job.part.read is not None
            after, upto, _ = job.part.read
            tokens = [token for token in TOKENS if after < token <= upto]
            of = next(table for table in self.tables if table.table_id == job.table.note.table_id)
            self.read.update((of.table, token) for token in tokens)
            chunk = planner.page(
                job,
                of,
                [object()],  # type: ignore[list-item]
                rows=len(tokens),
                last_token=tokens[-1] if tokens else None,
                paging=None,
            )
            assert chunk is not None
            self.save(planner.done(chunk))
        self.save(planner.changes())
        return True

    def save(self, offsets: list[Any]) -> None:
        for source, offset in offsets:
            self.offsets[repr(source)] = source, offset

    def finish(self) -> None:
        for _ in range(2):
            for index in range(self.count):
                self.look(index)
                while self.work(index):
                    pass


@settings(max_examples=200, deadline=None, print_blob=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(("create", "look", "look", "work", "work", "kill", "divide")), st.integers(0, 2)),
        max_size=60,
    )
)
def test_every_table_is_read_whole_and_once(steps: list[tuple[str, int]]) -> None:
    world = World()
    for step, number in steps:
        getattr(world, step)(number + 1 if step == "divide" else number)
    world.finish()
    assert world.read == {(table.table, token): 1 for table in world.tables for token in TOKENS}
    assert {snapshot["state"] for snapshot in list_snapshots("shop", [], list(world.offsets.values()))} == {"completed"}
    # Whoever starts now has nothing to do.
    world.divide(world.count)
    world.finish()
    assert set(world.read.values()) == {1}


@settings(max_examples=50, deadline=None, print_blob=True)
@given(st.lists(st.tuples(st.sampled_from(("look", "work", "work", "kill", "divide")), st.integers(0, 2)), max_size=30))
def test_a_table_whose_cdc_was_off_is_read_again_once(steps: list[tuple[str, int]]) -> None:
    world = World()
    world.create(0)
    world.finish()
    (first, second) = world.tables
    # The second one has been read only since its cdc is on again.
    world.reenabled = {first.table_id: int(time.time() + 60) * 1_000_000, second.table_id: 1}
    for step, number in steps:
        getattr(world, step)(number + 1 if step == "divide" else number)
    world.finish()
    world.divide(world.count)
    world.finish()
    assert world.read == {(table.table, token): 1 + (table is first) for table in world.tables for token in TOKENS}
    shown = {snapshot["id"]: snapshot for snapshot in list_snapshots("shop", [], list(world.offsets.values()))}
    repeated = shown[f"new-{first.table_id}~{world.reenabled[first.table_id]}"]
    assert (repeated["state"], repeated["origin"]) == ("completed", "new")
    world.reenabled[first.table_id] += 1
    world.finish()
    assert all(world.read[first.table, token] == 3 for token in TOKENS), "it was off once more"


def test_a_recreated_table_is_another_one() -> None:
    world = World()
    world.finish()
    world.tables = [table("t1", 9)]
    assert [str(table) for table in world.planner[0].uncovered(world.tables)] == ["ks.t1"]
    request = new_request(world.tables[0].table_id, "ks.t1")
    assert request.chosen([table("t1", 1), *world.tables]) == world.tables
    assert new_table_id(request.id) == world.tables[0].table_id
    assert request_of(request.id, {"request": saved_request(request)}) == request
    assert request_of("other", {"request": saved_request(request)}) is None


@pytest.mark.parametrize("ended", ["completed", "cancelled", "failed"])
def test_a_first_snapshot_without_a_list_of_tables_had_those_of_now(ended: str) -> None:
    now, later = table("t1", 1), table("t2", 2)
    planner = CassandraSnapshotPlanner(SETTINGS, (0, 1), [(share_partition("shop", INITIAL, (0, 1)), {"state": ended})])
    planner.set_requests([SnapshotRequest(id=INITIAL, tables=[".*"], origin="initial")])
    assert planner.uncovered([now]) == []
    ((source, offset),) = planner.changes()
    restarted = CassandraSnapshotPlanner(SETTINGS, (0, 1), [(source, offset)])
    restarted.set_requests([SnapshotRequest(id=INITIAL, tables=[".*"], origin="initial")])
    assert restarted.uncovered([now, later]) == [later]


def test_what_the_operator_has_cancelled_is_not_started_by_another_number_of_tasks() -> None:
    note = state.CassandraShareNote(
        state="cancelled",
        resolved=True,
        tables=[
            state.CassandraTableNote(
                keyspace="ks",
                table="t1",
                table_id=table("t1", 1).table_id,
                stage="running",
                left=[tuple(task_range(0, 1))],  # type: ignore[list-item]
            )
        ],
    )
    saved = [(share_partition("shop", INITIAL, (0, 1)), {"state": "cancelled", "progress": pack(note)})]
    planner = CassandraSnapshotPlanner(SETTINGS, (1, 2), saved)
    planner.set_requests([SnapshotRequest(id=INITIAL, tables=[".*"], origin="initial")])
    assert planner.uncovered([table("t1", 1), table("t2", 2)]) == [table("t2", 2)]
