"""Snapshots without a server: nothing is left out or saved too early, whatever happens in between."""

from __future__ import annotations

import random
from typing import Any

import pytest

from connectors.cassandra.snapshot import state
from connectors.cassandra.snapshot.cluster import cluster_of
from connectors.cassandra.snapshot.model import CassandraChunk, CassandraSnapshotSettings
from connectors.cassandra.snapshot.planner import CassandraJob, CassandraSnapshotPlanner
from connectors.cassandra.snapshot.views import check_request, list_snapshots, share_partition
from connectors.cql.cluster.throttle import Pace
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, make_definition
from connectors.cql.token_ranges import MAX_TOKEN, MIN_TOKEN
from connectors.cql.types import parse_type
from connectors.errors import ConfigInvalid, Fatal
from connectors.formats.partition_update import PartitionUpdate, UpdateSource
from connectors.snapshot.requests import SnapshotRequest
from connectors.snapshot.state import pack

SETTINGS = CassandraSnapshotSettings(prefix="shop", threads=2, chunk_rows=5)


def table(name: str, kind: str = "int", table_id: str = "") -> CqlTableDefinition:
    return make_definition(
        "ks",
        name,
        table_id or name,
        [CqlColumn("k", parse_type("int"), "partition_key", 0), CqlColumn("v", parse_type(kind), "regular")],
    )


class Server:
    """A table of (token, row) in order; pages name the row to continue with."""

    def __init__(self, rows: list[tuple[int, int]]) -> None:
        self.rows = sorted(rows)

    def page(self, after: int, upto: int, page: str, size: int) -> tuple[list[tuple[int, int]], bytes | None]:
        rows = [row for row in self.rows if after < row[0] <= upto]
        if page:
            last = eval(bytes.fromhex(page))  # noqa: S307 - our own
            rows = [row for row in rows if row > last]
        return rows[:size], repr(rows[size - 1]).encode() if len(rows) > size else None


class World:
    """Tasks that are stopped at will, and what Kafka has of them."""

    def __init__(self, chance: random.Random, server: Server) -> None:
        self.chance = chance
        self.server = server
        self.offsets: dict[str, tuple[Any, Any]] = {}
        self.sent: set[tuple[int, int]] = set()
        self.now = 1_000.0

    def save(self, offsets: list[Any]) -> None:
        for key, offset in offsets:
            self.offsets[repr(key)] = key, offset

    def run(self, shard: tuple[int, int], steps: int) -> bool:
        """Whether the task's share is done."""
        chance = self.chance
        planner = CassandraSnapshotPlanner(SETTINGS, shard, list(self.offsets.values()), clock=lambda: self.now)
        planner.bounds = (-(1 << 62), 0, 1 << 62)
        request = SnapshotRequest(id="r", tables=[".*"])
        planner.set_requests([request])
        jobs: list[CassandraJob] = []
        queue: list[CassandraChunk] = []
        for _ in range(steps):
            self.now += 0.3
            act = chance.random()
            if act < 0.02:
                planner.set_requests([SnapshotRequest(id="r", tables=[".*"], state="paused")])
                planner.set_requests([request])
                queue = [chunk for chunk in queue if planner.is_needed(chunk.end)]
            elif act < 0.06 and jobs:
                planner.narrow(chance.choice(jobs))
            elif act < 0.09 and jobs:
                planner.lost(chance.choice(jobs))
            elif act < 0.3 and len(jobs) < 3:
                job = planner.next_job()
                if job is not None and job.table is None:
                    planner.resolved(job, [table("t")])
                elif job is not None:
                    jobs.append(job)
            elif act < 0.75 and jobs:
                self.read(planner, chance.choice(jobs), queue)
            elif queue:
                chunk = queue.pop(0)
                self.sent |= {update.key for update in chunk.updates}
                self.save(planner.done(chunk))
            self.save(planner.changes())
            jobs = [
                job for job in jobs if not planner.stale(job) and job.part is not None and job.part.read is not None
            ]
        return planner.notes()[0][1].state == "done"

    def read(self, planner: CassandraSnapshotPlanner, job: CassandraJob, queue: list[CassandraChunk]) -> None:
        assert job.part is not None
        assert job.part.read is not None
        after, upto, page = job.part.read
        rows, paging = self.server.page(after, upto, page, 5)
        updates = [
            PartitionUpdate(
                source=UpdateSource(connector="c", cluster="", keyspace="ks", table="t"), key=row, write_time=1
            )
            for row in rows
        ]
        chunk = planner.page(
            job, table("t"), updates, rows=len(rows), last_token=rows[-1][0] if rows else None, paging=paging
        )
        if chunk is not None:
            queue.append(chunk)


@pytest.mark.parametrize("seed", range(12))
def test_every_row_is_sent_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    rows = [(chance.randrange(MIN_TOKEN + 1, MAX_TOKEN + 1), 0) for _ in range(60)]
    large = chance.randrange(MIN_TOKEN + 1, MAX_TOKEN + 1)
    rows += [(large, number) for number in range(40)] + [(MIN_TOKEN + 1, 0), (MAX_TOKEN, 0)]
    world = World(chance, Server(rows))
    for _ in range(6):
        count = chance.choice([1, 1, 2, 3])
        for index in range(count):
            world.run((index, count), chance.randrange(40))
    count = chance.choice([1, 2, 3])
    for index in range(count):
        for _ in range(10):
            if world.run((index, count), 1_500):
                break
        else:
            pytest.fail("it comes to no end")
    assert world.sent == set(rows)
    (view,) = list_snapshots("shop", [], list(world.offsets.values()))
    assert (view["state"], view["percent"]) == ("completed", 100.0)
    # It is done for any number of tasks.
    world.sent.clear()
    assert world.run((0, 5), 20)
    assert not world.sent


def test_rows_that_another_number_of_tasks_has_read_count_on() -> None:
    chance = random.Random(1)
    rows = [(chance.randrange(MIN_TOKEN + 1, MAX_TOKEN + 1), 0) for _ in range(100)]
    world = World(chance, Server(rows))
    assert not world.run((0, 1), 150)
    assert len(world.sent) > 20
    for shard in ((0, 2), (1, 2)):
        while not world.run(shard, 1_000):
            pass
    (view,) = list_snapshots("shop", [], list(world.offsets.values()))
    assert view["state"] == "completed"
    assert view["rows_done"] >= len(rows)
    # A task of yet another number of them tells what was done, also after it starts again.
    parts = list(world.offsets.values())
    shares = []
    for number in range(3):
        planner = CassandraSnapshotPlanner(SETTINGS, (number, 3), parts)
        planner.set_requests([SnapshotRequest(id="r", tables=[".*"])])
        ((_, note),) = planner.notes()
        shares.append(state.show_progress("r", note))
    assert {share["state"] for share in shares} == {"completed"}
    assert sum(share["tables"][0]["rows_done"] for share in shares) == view["rows_done"]
    assert {share["tables"][0]["state"] for share in shares} == {"done"}
    assert {(share["started_ms"], share["finished_ms"]) for share in shares} == {
        (view["started_ms"], view["finished_ms"])
    }


def start_snapshot(*tables: CqlTableDefinition, **request: Any) -> tuple[CassandraSnapshotPlanner, CassandraJob]:
    planner = CassandraSnapshotPlanner(SETTINGS, (0, 1), [])
    planner.set_requests([SnapshotRequest(**{"id": "r", "tables": [".*"], **request})])
    job = planner.next_job()
    assert job is not None
    planner.resolved(job, tables)
    return planner, job


def test_counters_are_refused_and_others_are_read() -> None:
    planner, _ = start_snapshot(table("n", "counter"), table("t"))
    job = planner.next_job()
    assert job is not None
    assert job.table is not None
    assert job.table.note.table == "t"
    ((_, note),) = planner.notes()
    assert (note.state, [table_note.stage for table_note in note.tables]) == ("running", ["failed", "running"])
    assert "counters" in note.tables[0].error
    ((_, note),) = start_snapshot(table("n", "counter"))[0].notes()
    assert note.state == "failed"
    ((_, note),) = start_snapshot()[0].notes()
    assert note.state == "done"


def test_requests_by_priority_and_one_that_fails() -> None:
    planner = CassandraSnapshotPlanner(SETTINGS, (0, 1), [])
    planner.set_requests(
        [SnapshotRequest(id="low", tables=["a"], created_ms=1), SnapshotRequest(id="high", tables=["b"], priority=3)]
    )
    job = planner.next_job()
    assert job is not None
    assert job.share.request.id == "high"
    planner.give_up(job, "refused")
    ((source, offset),) = planner.changes()
    assert (source, offset["state"]) == (share_partition("shop", "high", (0, 1)), "failed")
    job = planner.next_job()
    assert job is not None
    assert job.share.request.id == "low"


def test_a_recreated_table_is_read_from_the_start() -> None:
    planner, _ = start_snapshot(table("t", table_id="old"))
    job = planner.next_job()
    assert job is not None
    chunk = planner.page(job, table("t"), [], rows=5, last_token=None, paging=None, bad=("one",))
    assert chunk is not None
    planner.done(chunk)
    ((_, note),) = planner.notes()
    assert note.tables[0].left is not None
    second_job = planner.next_job()
    assert second_job is not None
    planner.renewed(second_job, "new")
    ((_, note),) = planner.notes()
    assert (note.tables[0].table_id, note.tables[0].rows, note.tables[0].left, note.tables[0].percent) == (
        "new",
        0,
        None,
        0.0,
    )
    assert planner.stale(second_job)


def test_a_mode_that_reads_again_at_every_start() -> None:
    done = {"state": "completed", "progress": pack(state.CassandraShareNote(state="done"))}
    saved = [(share_partition("shop", "initial", (0, 1)), done)]
    for mode, request_id in (("initial", None), ("always", "initial")):
        planner = CassandraSnapshotPlanner(CassandraSnapshotSettings(prefix="shop", mode=mode), (0, 1), saved)  # type: ignore[arg-type]
        planner.set_requests([SnapshotRequest(id="initial", tables=[".*"], origin="initial")])
        job = planner.next_job()
        assert (job.share.request.id if job is not None else None) == request_id


def test_long_states_are_packed() -> None:
    note = state.CassandraShareNote(
        tables=[
            state.CassandraTableNote(keyspace="ks", table=f"t{number}", left=[(number, number + 7, "ab")])
            for number in range(300)
        ]
    )
    assert state.unpack_note(pack(note)) == note
    assert pack(note).startswith("z:")
    with pytest.raises(ValueError, match="no state of a snapshot"):
        state.unpack_note("z:nothing")


def test_what_rest_shows() -> None:
    running = state.CassandraShareNote(
        state="running",
        started_ms=5,
        resolved=True,
        tables=[
            state.CassandraTableNote(
                keyspace="ks", table="t", stage="running", rows=50, percent=25.0, started_ms=1_000, saved_ms=11_000
            )
        ],
    )
    asked = {"id": "r", "state": "running", "origin": "rest", "tables": ["ks.t"], "created_ms": 3}
    offsets = [
        (share_partition("shop", "r", (0, 2)), {"state": "running", "progress": pack(running)}),
        # An older number of tasks, and another connector.
        (share_partition("shop", "r", (0, 1)), {"state": "running"}),
        (share_partition("other", "x", (0, 1)), {"state": "running"}),
    ]
    (view,) = list_snapshots("shop", [asked], offsets)
    assert (view["state"], view["percent"], view["rows_done"], view["tables_wanted"]) == ("running", 12.5, 50, ["ks.t"])
    (shown,) = view["tables"]
    assert (shown["rows_total"], shown["rows_per_s"], shown["eta_s"], shown["state"]) == (200, 5.0, 30.0, "running")
    (waiting,) = list_snapshots("shop", [asked], [])
    assert (waiting["state"], waiting["origin"]) == ("waiting", "rest")


def test_requests_are_checked() -> None:
    assert check_request({"tables": [" ks[.]t "], "priority": 2}) == {
        "tables": ["ks[.]t"],
        "conditions": {},
        "priority": 2,
    }
    refused: list[dict[str, Any]] = [
        {"tables": []},
        {"tables": ["("]},
        {"tables": ["t"], "conditions": {"t": "v > 1"}},
        {"tables": ["t"], "surrogate_key": "k"},
        {"tables": ["t"], "priority": "high"},
    ]
    for wrong in refused:
        with pytest.raises(ConfigInvalid):
            check_request(wrong)


def test_clusters() -> None:
    local = {
        "release_version": "5.0.9",
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "tokens": ["5", "-7"],
    }
    assert cluster_of([local], [{"release_version": "5.1-alpha", "tokens": ["0"]}]) == ((-7, 0, 5), True)
    assert not cluster_of([local], [{"release_version": "4.1.10", "tokens": ["0"]}]).elements
    assert cluster_of([{**local, "release_version": "6.0-alpha2"}], []).elements
    with pytest.raises(Fatal, match="Murmur3Partitioner"):
        cluster_of([{**local, "partitioner": "org.apache.cassandra.dht.RandomPartitioner"}], [])


def test_pace() -> None:
    pace = Pace(100)
    pace.spent(50, 10.0)
    assert (pace.wait_s(10.0), pace.wait_s(11.0)) == (0.5, 0.0)
    assert Pace(0).wait_s(0.0) == 0.0
