"""Whatever the order of writes, reads, deliveries and the stream's progress: what is sent leads to what the source has."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.mysql.model import Shard
from connectors.mysql.stream.signals import Signal, apply_signal
from connectors.snapshot.requests import SnapshotRequest
from tests.unit.connectors.mysql.snapshot.planner_world import (
    BY_NUMBER,
    BY_TEXT,
    COMPOSITE,
    KEYLESS,
    KINDS,
    Kind,
    World,
)

#: What may happen next, with how likely it is. Others than the first seven are rare, so that something comes of the rest.
STEPS = {"commit": 9, "feed": 8, "take": 8, "work": 14, "send": 6, "more": 1, "ahead": 4}
ROUGH = {"statement": 0.7, "fail": 0.7, "pause": 0.3, "resume": 2, "again": 0.3, "restart": 0.3}

run = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 1 << 32)
lengths = st.sampled_from([20, 60, 150, 400])


def steps_of(seed: int, length: int, *, calm: bool = False) -> list[tuple[str, int]]:
    """A course of events: long ones of few kinds meet each other more often than Hypothesis' own lists do."""
    chance = random.Random(seed)
    weights: dict[str, float] = dict(STEPS) if calm else STEPS | ROUGH
    # In some courses there is much writing, in others the stream is slow, and so on.
    for name in weights:
        weights[name] *= chance.choice((0.3, 1, 1, 3))
    return [
        (step, chance.randrange(10_000)) for step in chance.choices(list(weights), list(weights.values()), k=length)
    ]


def request(name: str, kinds: list[Kind], **more: Any) -> SnapshotRequest:
    return SnapshotRequest(id=name, tables=[str(kind.name) for kind in kinds], **more)


def play(world: World, steps: list[tuple[str, int]]) -> None:
    for step, choice in steps:
        if step == "commit":
            world.commit(_changes(world, choice))
        elif step == "feed":
            world.feed(1 + choice % 4)
        elif step == "take":
            world.take_job()
        elif step in {"work", "fail"}:
            world.work(choice, fail=step == "fail")
        elif step == "send":
            world.send(1 + choice % 3)
        elif step == "statement":
            world.statement(world.kinds[choice % len(world.kinds)], truncate=choice % 3 == 0)
        elif step in {"pause", "resume"}:
            asked = world.requests["initial"]
            world.ask(
                SnapshotRequest(
                    id=asked.id,
                    tables=asked.tables,
                    origin=asked.origin,
                    priority=asked.priority,
                    state="paused" if step == "pause" else "running",
                )
            )
        elif step == "more" and len(world.requests) < 3:
            keyed = [kind for kind in world.kinds if kind.key]
            if keyed:
                world.ask(
                    request(f"more{choice}", keyed[choice % len(keyed) :], priority=choice % 3 - 1, created_ms=choice)
                )
        elif step == "ahead":
            world.feed(choice % 40)
        elif step == "again":
            world.planner.altered(None)
        elif step == "restart":
            world.restart()


def _changes(world: World, choice: int) -> list[tuple[Kind, str, int]]:
    changes = []
    for number in range(1 + choice % 3):
        action = ["insert", "update", "update", "delete", "move", "replace"][(choice // 7 + number * 5) % 6]
        changes.append((world.kinds[(choice // 3 + number) % len(world.kinds)], action, choice // 5 + number * 3))
    return changes


def filled(world: World, rows: int) -> World:
    """With rows from before the binlog begins."""
    for number in range(rows):
        world.commit([(world.kinds[number % len(world.kinds)], "insert", number // len(world.kinds))])
    world.stream = world.done = world.saved_stream = len(world.log)
    return world


def ends(world: World) -> None:
    asked = world.requests["initial"]
    world.ask(SnapshotRequest(id=asked.id, tables=asked.tables, origin=asked.origin, priority=asked.priority))
    world.finish()
    world.check()


@pytest.mark.parametrize(("partial", "most_marks"), [(False, 1000), (True, 1000), (False, 1)])
@run
@given(
    seed=seeds,
    length=lengths,
    rows=st.integers(0, 40),
    exact=st.booleans(),
    threads=st.integers(1, 3),
    kinds=st.sampled_from([[BY_NUMBER], [BY_TEXT], [BY_NUMBER, COMPOSITE, BY_TEXT]]),
)
def test_tables_with_keys_end_in_their_state(
    partial: bool, most_marks: int, seed: int, length: int, rows: int, exact: bool, threads: int, kinds: list[Kind]
) -> None:
    world = filled(World(kinds, partial=partial, exact=exact, most_marks=most_marks, threads=threads), rows)
    world.ask(request("initial", world.kinds, origin="initial"))
    play(world, steps_of(seed, length))
    ends(world)


@run
@given(seed=seeds, length=lengths, rows=st.integers(0, 40), index=st.integers(0, 2))
def test_a_shard_has_its_rows_and_no_others(seed: int, length: int, rows: int, index: int) -> None:
    world = filled(World([BY_NUMBER, COMPOSITE, BY_TEXT], shard=Shard(index, 3)), rows)
    world.ask(request("initial", world.kinds, origin="initial"))
    play(world, steps_of(seed, length))
    ends(world)
    for name, _, before, after, _ in world.output:
        kind = KINDS[name]
        assert (
            any(
                row is not None and world.owned(kind, tuple(row[column] for column in kind.key))
                for row in (before, after)
            )
            or before is after is None
        )


@pytest.mark.parametrize("images", [1000, 1])
@run
@given(seed=seeds, length=lengths, rows=st.integers(0, 30), alike=st.booleans(), partial=st.booleans())
def test_a_table_without_a_key_is_read_exactly_once(
    images: int, seed: int, length: int, rows: int, alike: bool, partial: bool
) -> None:
    world = filled(World([KEYLESS, BY_NUMBER], alike=alike, partial=partial, images=images), rows)
    world.ask(request("initial", world.kinds, origin="initial"))
    # Resolved before the stream continues, as ``MySqlSnapshotReader.resolve`` does.
    world.take_job()
    world.work(0)
    play(world, steps_of(seed, length, calm=True))
    ends(world)


@run
@given(seed=seeds, length=lengths, rows=st.integers(0, 30), alike=st.booleans())
def test_a_later_snapshot_without_a_key_and_the_changes_behind_its_view_are_the_table(
    seed: int, length: int, rows: int, alike: bool
) -> None:
    world = filled(World([KEYLESS], alike=alike), rows)
    world.ask(request("again", world.kinds))
    play(world, [step for step in steps_of(seed, length, calm=True) if step[0] != "more"])
    world.finish()
    assert world.counted_images(world.viewed_at) == world.expected_images()


@pytest.mark.parametrize(("database", "sent"), [("other", 9), ("DB", 13)])
def test_rows_without_a_key_come_again_only_if_something_happened_to_their_database(database: str, sent: int) -> None:
    world = filled(World([KEYLESS]), 9)
    world.ask(request("initial", world.kinds, origin="initial"))
    for turn in range(60):
        world.take_job()
        world.work(turn)
        world.send(1)
        if sum(op == "r" for _, op, *_ in world.output) == 4:
            world.planner.database_altered(database)
            break
    world.finish()
    assert sum(op == "r" for _, op, *_ in world.output) == sent


def test_the_rows_of_a_table_without_a_key_are_forgotten_once_it_is_read() -> None:
    world = filled(World([KEYLESS]), 9)
    world.ask(request("initial", world.kinds, origin="initial"))
    had_images = False
    for turn in range(60):
        world.take_job()
        world.work(turn)
        world.send(1)
        had_images |= any(table.images is not None for table in world.planner.board.shares["initial"].tables)
    world.finish()
    assert had_images
    (table,) = world.planner.board.shares["initial"].tables
    assert table.note.stage == "done"
    assert table.images is None


@pytest.mark.parametrize("gone", [BY_NUMBER, KEYLESS])
def test_a_table_that_vanishes_is_reported_and_the_others_continue(gone: Kind) -> None:
    world = filled(World([gone, BY_TEXT]), 12)
    world.ask(request("initial", world.kinds, origin="initial"))
    world.take_job()
    world.work(0)
    world.gone.add(gone.name)
    world.finish()
    world.check()
    (share,) = world.planner.board.order
    assert [table.stage for table in share.note.tables] == ["vanished", "done"]
    assert share.note.state == "done"
    assert not world.planner.watch.withheld


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_a_cancelled_request_sends_nothing_more(steps: int) -> None:
    world = filled(World([BY_NUMBER, BY_TEXT]), 20)
    world.ask(request("initial", world.kinds))
    for turn in range(steps):
        world.take_job()
        world.work(turn)
        world.send(2)
    sent = len(world.output)
    world.ask(request("initial", world.kinds, state="cancelled"))
    for turn in range(30):
        world.take_job()
        world.work(turn)
        world.send(2)
    assert len(world.output) == sent
    assert world.planner.held_bytes == 0
    assert not world.planner.watch.watched


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_a_table_that_a_signal_takes_out_is_not_read_any_more(steps: int) -> None:
    world = filled(World([BY_NUMBER, BY_TEXT]), 20)
    world.ask(request("initial", world.kinds, origin="signal"))
    for turn in range(steps):
        world.take_job()
        world.work(turn)
        world.send(2)
    stop = Signal("s", "stop-snapshot", {"data-collections": [str(BY_NUMBER.name)]}, "b.000001:4")
    sent = sum(name == BY_NUMBER.name for name, *_ in world.output)
    for asked in apply_signal(stop, [world.requests["initial"]], 0).requests:
        world.ask(asked)
    world.finish()
    assert sum(name == BY_NUMBER.name for name, *_ in world.output) == sent
    assert sum(name == BY_TEXT.name for name, *_ in world.output) == len(world.contents[BY_TEXT.name])
    assert world.planner.held_bytes == 0
    (share,) = world.planner.board.order
    assert share.note.state == "done"


def test_the_request_with_the_higher_priority_comes_first() -> None:
    world = filled(World([BY_NUMBER, BY_TEXT], threads=1), 24)
    world.ask(request("initial", [BY_NUMBER]))
    for turn in range(6):
        world.take_job()
        world.work(turn)
    world.send(100)
    before = len(world.output)
    world.ask(request("urgent", [BY_TEXT], priority=1))
    world.finish()
    later = [name for name, *_ in world.output[before:]]
    # What was read already may still be sent in between.
    last_urgent = max(at for at, name in enumerate(later) if name == BY_TEXT.name)
    assert sum(name == BY_NUMBER.name for name in later[:last_urgent]) <= 4 * world.settings.chunk_rows
    assert later[-1] == BY_NUMBER.name
    assert sum(name == BY_NUMBER.name for name in later) > 4


@pytest.mark.parametrize("kind", [BY_NUMBER, BY_TEXT, COMPOSITE])
def test_a_restart_after_any_chunk_repeats_none(kind: Kind) -> None:
    after = 0
    while True:
        world = filled(World([kind], threads=1), 40)
        world.ask(request("initial", [kind], origin="initial"))
        for turn in range(400):
            world.take_job()
            world.work(turn)
            world.send(100)
            if world.chunks >= after and world.out is None:
                break
        world.restart()
        world.finish()
        world.check()
        keys = [
            tuple(row[name] for name in kind.key) for _, op, _, row, _ in world.output if op == "r" and row is not None
        ]
        assert len(keys) == len(set(keys)) == len(world.contents[kind.name])
        if world.chunks <= after:
            return
        after += 1
