"""The reader of a node's directory against a stand-in for the node's files, each step in the server's order."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from connectors.cassandra import metrics
from connectors.cassandra.model import LogPosition
from tests.support.eventually import eventually_async
from tests.unit.connectors.cassandra.follower_world import SIZE, World, entry_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


async def gone(path: Path) -> None:
    """Wait until a file is deleted."""
    await eventually_async(lambda: not path.exists(), f"{path} is deleted")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    new_world = World(tmp_path)
    yield new_world
    await new_world.stop()


async def test_what_is_synced_is_read_and_no_more(world: World) -> None:
    node = world.node
    node.create(1)
    node.create(2)
    await world.start()
    assert await world.news() == []
    node.write(1, "a", "b")
    assert await world.news() == []
    node.sync(1)
    node.write(1, "c")
    assert await world.news() == ["a", "b"]
    node.sync(1)
    assert await world.news() == ["c"]
    node.idx(1).write_text("")  # half-written
    assert await world.news() == []
    node.write(1, "d")
    node.sync(1, complete=True)
    assert await world.news() == ["d"]
    assert world.position == LogPosition(1, node.marker[1], 0, True)
    assert [chunk.finished for chunk in world.chunks[:-1]] == [False] * (len(world.chunks) - 1)
    node.write(2, "e")
    node.sync(2)
    assert await world.news() == ["e"]
    assert world.position == LogPosition(2, node.marker[2])
    stamp = node.idx(2).stat().st_mtime_ns // 1_000_000
    assert world.chunks[-1].written_ms == stamp


async def test_right_after_news_the_log_is_looked_at_without_waiting_for_the_poll_interval(world: World) -> None:
    node = world.node
    node.create(1)
    node.write(1, "a")
    node.sync(1)
    await world.start(poll_ms=3_600_000)
    async with asyncio.timeout(60):
        assert await world.news() == ["a"]
        node.write(1, "b")
        node.sync(1)
        assert await world.news() == ["b"]


async def test_segments_without_captured_changes_and_gaps_are_passed(world: World) -> None:
    node = world.node
    for log_id in (3, 7, 20, 21):
        node.create(log_id)
    node.write(3, "x", captured=False)
    node.write(7, "a")
    node.sync(7, complete=True)
    await world.start()
    assert await world.news() == ["a"]
    node.write(20, "y", captured=False)
    node.discard(20)
    node.write(21, "b")
    node.sync(21)
    assert await world.news() == ["b"]


async def test_markers_are_read_before_the_sync(world: World) -> None:
    node = world.node
    node.create(1)
    await world.start(mode="marker")
    assert await world.news() == []
    node.write(1, "a")
    assert await world.news() == ["a"]
    node.write(1, "b")
    node.create(2)
    assert await world.news() == ["b"]
    node.sync(1)
    node.write(1, "c")
    node.sync(1, complete=True)
    node.write(2, "d", captured=False)
    assert await world.news() == ["c", "d"]
    assert [(chunk.segment, chunk.finished) for chunk in world.chunks if chunk.finished] == [(1, True)]


async def test_markers_of_a_later_segment_end_one_without_captured_changes(world: World) -> None:
    """Its index file never comes, and that of the later one comes only at the next sync."""
    node = world.node
    node.create(1)
    node.create(2)
    node.create(3)
    await world.start(mode="marker")
    node.write(1, "x", captured=False)
    assert await world.news() == ["x"]
    node.write(1, "y", captured=False)
    node.discard(1)  # the open file is read on
    node.write(2, "a")
    assert await world.news() == ["y", "a"]
    node.sync(2, complete=True)
    assert await world.news() == []
    assert world.position == LogPosition(2, node.marker[2], 0, True)


async def test_what_was_written_after_the_last_sync_is_not_as_old_as_the_index_file(world: World) -> None:
    """Definitions that were read in between would count as newer than the change."""
    node = world.node
    node.create(1)
    node.create(2)
    node.write(1, "a")
    node.sync(1)
    os.utime(node.idx(1), (1000, 1000))
    await world.start(mode="marker")
    assert await world.news() == ["a"]
    node.write(1, "late")
    node.write(2, "b")  # its marker is there before the sync of both
    now_ms = time.time_ns() // 1_000_000
    assert await world.news() == ["late", "b"]
    assert all(chunk.written_ms >= now_ms for chunk in world.chunks[1:])


async def test_a_segment_that_is_linked_late_is_not_left_out(world: World) -> None:
    """With a full directory a segment has no link until there is room again; its successor may have had one from the start."""
    node = world.node
    node.create(5)
    node.write(5, "a")
    node.sync(5, complete=True)
    node.create(6, link=False)
    node.create(7)
    await world.start(mode="marker")
    assert await world.news() == ["a"]
    node.link(6)
    node.write(6, "b")
    assert await world.news() == ["b"]
    node.sync(6, complete=True)
    node.write(7, "c")
    assert await world.news() == ["c"]


@pytest.mark.parametrize("mode", ["idx", "marker"])
async def test_reading_resumes_where_it_was(world: World, mode: str) -> None:
    node = world.node
    node.create(1)
    node.write(1, "a", "b", "c")
    node.sync(1)
    await world.start(mode=mode)
    assert await world.news() == ["a", "b", "c"]
    second = LogPosition(1, world.chunks[0].entries[1].position, 0)
    await world.start(second, mode=mode)
    assert await world.news() == ["c"]
    await world.start(world.position, mode=mode)
    assert await world.news() == []
    node.sync(1, complete=True)
    assert await world.news() == []
    assert world.position.finished
    node.create(2)
    node.write(2, "d")
    node.sync(2)
    await world.start(world.position, mode=mode)
    assert await world.news() == ["d"]


async def test_segments_are_deleted_once_acknowledged(world: World) -> None:
    node = world.node
    for log_id in (1, 2, 3):
        node.create(log_id)
        node.write(log_id, f"a{log_id}")
        node.sync(log_id, complete=log_id < 3)
    follower = await world.start(LogPosition(2))
    assert await world.news() == ["a2", "a3"]
    await follower.acknowledged(LogPosition(2, world.chunks[0].position))
    await gone(node.log(1))  # the watch may be at it
    assert node.log(2).exists()
    await follower.acknowledged(LogPosition(2, world.chunks[0].position, 0, True))
    assert not node.log(2).exists()
    assert not node.idx(2).exists()
    await follower.acknowledged(LogPosition(2))
    await follower.acknowledged(LogPosition(3, 100))
    assert node.log(3).exists()
    assert world.numbers.now[metrics.SEGMENTS_DELETED] == 2
    assert world.numbers.now[metrics.SEGMENTS_READ] == 1
    assert world.numbers.now[metrics.SEGMENT] == 3
    assert world.numbers.now[metrics.READ_BYTES] == 2 * 10


async def test_nothing_is_deleted_where_something_else_does_it(world: World) -> None:
    node = world.node
    node.create(1)
    node.write(1, "a")
    node.sync(1, complete=True)
    follower = await world.start(delete=False)
    assert await world.news() == ["a"]
    await follower.acknowledged(world.position)
    assert node.log(1).exists()
    await world.start(world.position, delete=False)
    assert await world.news() == []


@pytest.mark.parametrize("mode", ["idx", "marker"])
async def test_a_crash_of_the_server(world: World, mode: str) -> None:
    """Half-read segments come back complete, with the file's length as offset; delivered ones come back too."""
    node = world.node
    node.create(1)
    node.create(2)
    node.write(1, "a")
    node.sync(1, complete=True)
    node.write(2, "b")
    node.sync(2)
    follower = await world.start(mode=mode)
    assert await world.news() == ["a", "b"]
    await follower.acknowledged(LogPosition(2))
    assert not node.log(1).exists()
    node.write(2, "c")
    node.create(3)
    node.write(3, "system", captured=False)  # the new life's first, before the replay
    read = await world.news()
    path = node.commitlog / node.log(3).name
    kept = path.rename(node.commitlog.parent / path.name)
    node.replay()
    kept.rename(path)
    assert node.log(1).exists()
    read += await world.news()
    node.write(3, "d")
    node.sync(3)
    read += await world.news()
    assert [name for name in read if name != "system"] == ["c", "d"]
    await follower.acknowledged(LogPosition(3))
    assert not node.log(1).exists()
    assert not node.log(2).exists()
    assert world.numbers.now[metrics.SEGMENTS_RELINKED] == 1


async def test_a_segment_that_never_completes_is_through_once_a_later_one_is_synced(world: World) -> None:
    """The server was killed and lost its commit log: no replay says that the segment is complete."""
    node = world.node
    node.create(1)
    node.write(1, "a")
    node.sync(1)
    node.write(1, "b")
    await world.start()
    assert await world.news() == ["a"]
    node.create(2)
    node.write(2, "c")
    node.sync(2)
    assert await world.news() == ["b", "c"]


async def test_a_segment_that_comes_back_as_another_file(world: World) -> None:
    node = world.node
    node.create(1)
    node.write(1, "a")
    node.sync(1)
    await world.start()
    assert await world.news() == ["a"]
    content = node.log(1).read_bytes()
    (node.commitlog / node.log(1).name).unlink()
    node.log(1).unlink()
    (node.commitlog / node.log(1).name).write_bytes(content)
    node.link(1)
    node.write(1, "b")
    node.idx(1).write_text(f"{node.marker[1]}\nCOMPLETED")
    assert await world.news() == ["b"]
    assert world.position.finished


async def test_a_segment_that_was_read_in_part_is_read_on_without_an_index_file(world: World) -> None:
    """Read by markers before a restart, by index files behind it; somebody deleted the index file."""
    node = world.node
    node.create(1)
    node.write(1, "a", "b")
    node.create(2)
    node.write(2, "c")
    await world.start(mode="marker", max_bytes=10)
    first = await world.follower.read() if world.follower else None
    assert first is not None
    await world.start(LogPosition(1, first.entries[0].position))
    assert await world.news() == []
    node.sync(2)
    assert await world.news() == ["b", "c"]


async def test_a_segment_that_came_back_shorter_than_what_was_read_of_it(world: World) -> None:
    """After a power failure: what was read by markers never reached the disk."""
    node = world.node
    node.create(1)
    node.write(1, "a")
    keep = node.log(1).read_bytes()
    node.write(1, "b")
    await world.start(mode="marker")
    assert await world.news() == ["a", "b"]
    node.log(1).unlink()
    node.log(1).write_bytes(keep)
    node.idx(1).write_text(f"{SIZE}\nCOMPLETED")
    assert await world.news() == []
    assert world.position.finished
    node.create(2)
    node.write(2, "c")
    assert await world.news() == ["c"]


@pytest.mark.parametrize("mode", ["idx", "marker"])
@pytest.mark.parametrize("seed", range(12))
async def test_random_lives(world: World, seed: int, mode: str) -> None:
    """Writes, syncs, switches, crashes of both sides, deletions: all that was captured is delivered, in order, once."""
    dice, node = random.Random(seed * 7 + len(mode)), world.node
    current, number = 1, 0
    expected: list[str] = []
    got: list[str] = []
    node.create(1)
    node.create(2)
    safe: LogPosition | None = None
    follower = await world.start(mode=mode, max_bytes=64)

    async def read_some(most: int) -> None:
        for _ in range(most):
            chunk = await follower.read()
            if chunk is None:
                return
            world.chunks.append(chunk)
            got.extend(name for name in entry_names(chunk) if name[0] == "c")

    def switch(*, crash: bool) -> None:
        nonlocal current
        if crash:
            node.create(current + 2)
            if dice.random() < 0.5:
                node.write(current + 2, "s", captured=False)
            path = node.commitlog / node.log(current + 2).name
            kept = path.rename(node.commitlog.parent / path.name)
            node.replay()
            kept.rename(path)
            current += 2
        else:
            node.sync(current, complete=True)
            current += 1
        node.create(current + 1)

    for _ in range(120):
        chance = dice.random()
        if chance < 0.45:
            if node.room(current) < 200:
                switch(crash=False)
            names = []
            for _ in range(dice.randint(1, 3)):
                number += 1
                names.append(f"{'c' if dice.random() < 0.7 else 'o'}{number}")
            captured = any(name[0] == "c" for name in names)
            node.write(current, *names, captured=captured)
            expected += [name for name in names if name[0] == "c"]
        elif chance < 0.6:
            node.sync(current)
        elif chance < 0.68:
            switch(crash=dice.random() < 0.4)
        elif chance < 0.72:
            for path in sorted(node.commitlog.iterdir(), key=lambda path: int(path.stem.rpartition("-")[2]))[:-2]:
                node.discard(int(path.stem.rpartition("-")[2]))
        elif chance < 0.9:
            await read_some(dice.randint(1, 4))
        elif chance < 0.96 and world.chunks:
            safe = world.position
            kept_count = len(got)
            await follower.acknowledged(safe)
        elif safe is not None:
            follower = await world.start(safe, mode=mode, max_bytes=64)
            del got[kept_count:]
    switch(crash=False)
    await read_some(10_000)
    await read_some(10_000)
    assert got == expected
    await follower.acknowledged(world.position)
    assert {
        path for path in node.raw.glob("*_cdc.idx") if int(path.stem.split("-")[2].partition("_")[0]) < current
    } == set()
