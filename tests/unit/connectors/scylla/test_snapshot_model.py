"""The merge of snapshot and stream, proven on a model.

Random writes with clocks that differ and delays, random pages and windows, crashes, new generations; hypothesis gives seeds.
The world around is a model (``snapshot_world``), the state machine, the rows and the positions are the real ones.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.cql.token_ranges import MAX_TOKEN, MIN_TOKEN
from connectors.scylla.snapshot import merging as snapshot
from connectors.scylla.snapshot.group import GroupSnapshot, GroupTurns
from connectors.scylla.snapshot.merging import ChangeTraces
from connectors.scylla.snapshot.order import Seek
from connectors.scylla.snapshot.rows import RowPlan
from tests.unit.connectors.scylla.snapshot_world import Change, World, token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONFIDENCE_MS = 400
SKEW_MS = 300
#: How long after the start nodes may not know of cdc: with clocks that are ahead, less than the confidence window in all.
LEARNING_MS = CONFIDENCE_MS - SKEW_MS

#: What happens how often. Stories from a seed reach deep states far sooner than hypothesis' own lists, which shrink better.
WEIGHTS = {
    "write": 24,
    "tick": 14,
    "begin window": 12,
    "half window": 8,
    "end window": 12,
    "begin page": 10,
    "read page": 12,
    "ask": 3,
    "emit": 12,
    "commit": 4,
    "crash": 2,
    "delete and crash": 1,
    "generation": 1,
}

seeds = st.integers(0, 1 << 48)


def change(rng: random.Random) -> tuple[Any, ...]:
    kind = rng.choice(
        [
            "insert",
            "insert",
            "update",
            "update",
            "update",
            "update",
            "static",
            "row delete",
            "partition delete",
            "range delete",
        ]
    )

    def cell() -> int | None:
        return rng.choice([None, 0, 1, 2, 3])

    def elements() -> frozenset[int]:
        return frozenset(rng.sample(range(4), rng.choice([0, 0, 1, 2])))

    removed = elements()
    return (
        kind,
        rng.randrange(6),
        rng.randrange(3),
        rng.randrange(4),
        {name: cell() for name in ("a", "b") if rng.random() < 0.5},
        elements() - removed,
        removed,
        rng.random() < 0.2,
        rng.randint(-SKEW_MS, SKEW_MS),
        rng.choice([0, 0, 30, SKEW_MS]),
        cell(),
    )


def cuts_of(rng: random.Random) -> list[int]:
    return sorted(
        {rng.choice([token(rng.randrange(6)), rng.randint(MIN_TOKEN + 1, MAX_TOKEN)]) for _ in range(rng.randint(1, 3))}
    )


def script_of(rng: random.Random, steps: int) -> Iterator[tuple[str, Any]]:
    for name in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=steps):
        if name == "write":
            yield name, change(rng)
        elif name == "generation":
            yield name, cuts_of(rng)
        else:
            yield name, rng.randint(1, 120) if name == "tick" else rng.randrange(6)


def write(world: World, value: tuple[Any, ...], *, delay: bool = True, only_adds: bool = False) -> None:
    """``only_adds``: not a delete. Only the table shows a delete that is not logged, of a row whose insert was."""
    kind, pk, ck, upto, cells, added, removed, replaced, skew, late, static = value
    if only_adds and (
        kind.endswith("delete")
        or None in cells.values()
        or removed
        or replaced
        or (kind == "static" and static is None)
    ):
        return
    us = (world.now + skew) * 1000
    late = late if delay else 0
    if kind == "static":
        change = Change(us, "update", pk, None, cells={"st": static})
    elif kind == "row delete":
        change = Change(us, kind, pk, ck)
    elif kind == "partition delete":
        change = Change(us, kind, pk)
    elif kind == "range delete":
        change = Change(us, kind, pk, min(ck, upto), max(ck, upto))
    else:
        if kind == "update" and not (cells or added or removed or replaced):
            return
        change = Change(us, kind, pk, ck, 0, cells, added, removed, replaced)
    if change.us // 1000 + world.confidence - 1 < world.now:
        return  # later than the stream would see it either
    world.write(change, late)


def delete_last_sent(world: World) -> None:
    """Delete the row from which the snapshot would continue, before a crash."""
    if world.sink.emitted:
        pk, ck = world.sink.emitted[-1][0]
        us = world.now * 1000
        world.write(
            Change(us, "update", pk, None, cells={"st": None}) if ck is None else Change(us, "row delete", pk, ck), 0
        )


def play(seed: int, *, strict: bool, steps: int = 250, idle: bool = False) -> World:
    """Play random steps, the same for the same seed. ``idle``: no writes once the stream has started."""
    rng = random.Random(seed)
    world = World(cuts_of(rng), strict=strict, confidence_ms=CONFIDENCE_MS, page=lambda: rng.randint(1, 4))
    for _ in range(rng.randrange(16)):
        write(world, change(rng), delay=False)
        world.tick(rng.randint(1, 300))
    # What was written before is not in the stream, nor what reaches nodes that learn of cdc a little later.
    world.tick(2 * SKEW_MS)
    world.stream_start = world.now - CONFIDENCE_MS
    world.logged_from = world.now + LEARNING_MS
    for _ in range(rng.randrange(4)):
        write(world, change(rng), only_adds=True)
    world.start()
    generations = 0
    for name, value in script_of(rng, steps):
        task = world.tasks[value % len(world.tasks)] if isinstance(value, int) else world.tasks[0]
        if name == "write" and not idle:
            write(world, value, only_adds=world.now < world.logged_from)
        elif name == "tick":
            world.tick(value)
        elif name == "begin window":
            world.begin_window(task, rng.choice((100, 2_000)))
        elif name == "half window":
            world.half_window(task)
        elif name == "end window":
            world.end_window(task)
        elif name == "begin page":
            world.begin_page(task)
        elif name == "read page":
            world.read_page(task)
        elif name == "ask" and task.window is None:
            task.snapshot.turns.asked()
        elif name == "emit":
            if task.window is None and rng.random() < 0.7:
                task.snapshot.turns.asked()
            world.emit(task, 1 + value)
        elif name == "commit":
            world.commit()
        elif name == "crash":
            world.crash(None if strict else value)
        elif name == "delete and crash" and not idle and world.now >= world.logged_from:
            world.commit()
            delete_last_sent(world)
            world.crash(None if strict else value)
        elif name == "generation" and generations < 2 and len(world.starts) == world.generation + 1:
            generations += 1
            world.new_generation(value)
    world.finish()
    return world


def check(world: World) -> None:
    assert world.folded() == world.table()
    assert world.bare() <= set(world.sink.rows)


def check_once(world: World) -> None:
    """Also if the row that was sent last is deleted. Of partitions that share a token it is not always known which was sent."""
    keys = [key for key, _ in world.sink.emitted if token(key[0]) != token(2)]
    assert len(keys) == len(set(keys)), "each row once"


@given(seeds)
@settings(max_examples=300, deadline=None)
def test_exactly_once_the_sink_equals_the_table_and_never_goes_back(seed: int) -> None:
    world = play(seed, strict=True)

    check(world)
    check_once(world)
    sent = [change.us for _, change in world.log if change.us >= world.stream_start * 1000]
    assert sorted(world.sink.sent) == sorted(sent), "each change of the stream once"


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_at_least_once_the_sink_equals_the_table(seed: int) -> None:
    check(play(seed, strict=False))


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_exactly_once_a_table_at_rest_is_sent_once(seed: int) -> None:
    world = play(seed, strict=True, steps=120, idle=True)

    keys = [key for key, _ in world.sink.emitted]
    assert len(keys) == len(set(keys))
    assert {key for key in keys if key[1] is not None} == {
        key for key in world.table() if key[1] is not None
    } | world.bare()
    assert world.sink.sent == []


def _fails() -> bool:
    for seed in range(300):
        try:
            world = play(seed, strict=True)
            check(world)
            check_once(world)
        except AssertionError:
            return True
    return False


def _keep(change_below: Callable[[int], int]) -> Callable[..., Any]:
    keep = RowPlan.keep
    return lambda self, item, below_us: keep(self, item, change_below(below_us))


def _asked(self: GroupTurns) -> bool:
    self._asked = True
    self.under_way = not self.is_held
    return False


_seek = Seek.__init__
BROKEN = {
    "newer cells are sent": (RowPlan, "keep", _keep(lambda _: 1 << 62)),
    "cells that were sent are left out": (RowPlan, "keep", _keep(lambda below_us: below_us - 200_000)),
    "changes that leave no trace are forgotten": (ChangeTraces, "newest", lambda *_: 0),
    "the group is not held": (GroupTurns, "asked", _asked),
    "pages do not wait for the stream to pass the start": (
        GroupSnapshot,
        "settled",
        property(lambda self: self.turns.watermark_ms is not None),
    ),
    "clocks that are ahead do not count": (
        GroupSnapshot,
        "settled",
        property(
            lambda self: self.turns.watermark_ms is not None and self.turns.watermark_ms >= self.position.started_ms
        ),
    ),
    "nobody waits for the window under way": (GroupSnapshot, "ready", property(lambda self: self.page is not None)),
    "what is left out of a page is never looked for": (Seek, "rest", lambda *_, **__: []),
    "a row that is gone is not passed": (
        Seek,
        "__init__",
        lambda self, token, row: _seek(self, token, row.partition(".")[0]),
    ),
    "nothing is left for a new generation": (
        snapshot,
        "find_remaining",
        lambda whole, saved: () if saved else tuple(whole),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_model_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrong = BROKEN[name]
    monkeypatch.setattr(owner, attribute, wrong)

    assert _fails()


def test_the_model_reaches_what_it_is_for() -> None:
    """Rows are left out and cut back, and pages are read while windows are under way."""
    worlds = [play(seed, strict=True) for seed in range(60)]

    assert sum(world.skipped for world in worlds) > 5
    assert sum(world.left_out for world in worlds) > 20
    assert sum(len(world.sink.emitted) for world in worlds) > 300
