"""The reader of a node's directory when something is wrong with segments, the directory or those who use it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from connectors.cassandra import metrics
from connectors.cassandra.log.descriptor import encode_head
from connectors.cassandra.log.entries import OVERHEAD
from connectors.cassandra.log.follower import LogFollower
from connectors.cassandra.log.sections import MARKER
from connectors.cassandra.model import LogPosition
from connectors.errors import ConfigInvalid, Fatal, Retriable
from tests.support.eventually import eventually_async, pass_turns
from tests.support.settings import cassandra_log
from tests.unit.connectors.cassandra.follower_world import LOG, SIZE, World, entry_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    new_world = World(tmp_path)
    yield new_world
    await new_world.stop()


async def test_damage_stops_it_after_what_is_good(world: World) -> None:
    node = world.node
    node.create(1)
    node.write(1, "a", "b", "c", "d")
    node.sync(1, complete=True)
    bad = len(encode_head(7, 1, b"{}")) + MARKER + 2 * (10 + OVERHEAD) + 9
    node.damage(1, bad)
    follower = await world.start()
    chunk = await follower.read()
    assert chunk is not None
    assert entry_names(chunk) == ["a", "b"]
    for _ in range(2):
        with pytest.raises(
            Fatal, match=r"Node n1: CommitLog-7-1\.log.*Everything before it was delivered.*policy=skip"
        ):
            await follower.read()
    assert (node.raw.parent / "cdc_raw_aside" / node.log(1).name).samefile(node.log(1))
    assert world.numbers.now[metrics.DAMAGED] == 1
    await world.start(LogPosition(1, chunk.position))
    with pytest.raises(Fatal, match=r"CommitLog-7-1\.log"):
        await world.news()
    assert world.chunks == []


async def test_damage_is_passed_over_on_demand(world: World, caplog: pytest.LogCaptureFixture) -> None:
    node = world.node
    node.create(1)
    node.write(1, "a", "b", "c", "d")
    node.sync(1, complete=True)
    start = len(encode_head(7, 1, b"{}")) + MARKER
    node.damage(1, start + 2 * (10 + OVERHEAD) + 9)
    follower = await world.start(policy="skip")
    assert await world.news() == ["a", "b", "d"]
    lost = [chunk for chunk in world.chunks if chunk.lost]
    assert [(chunk.lost, chunk.position, chunk.entries) for chunk in lost] == [
        ((start + 44, start + 66), start + 66, [])
    ]
    assert "CommitLog-7-1.log" in lost[0].problem
    assert [chunk.problem for chunk in world.chunks if not chunk.lost] == [""] * (len(world.chunks) - 1)
    assert world.position.finished
    assert world.numbers.now[metrics.LOST_BYTES] == 22
    assert f"offsets {start + 44} to {start + 66} are lost" in caplog.text
    await follower.acknowledged(world.position)
    assert not node.log(1).exists()
    assert (node.raw.parent / "cdc_raw_aside" / node.log(1).name).exists()


async def test_a_segment_whose_head_is_damaged_is_passed_over_on_demand(world: World) -> None:
    node = world.node
    for log_id in (1, 2):
        node.create(log_id)
        node.write(log_id, f"a{log_id}")
        node.sync(log_id, complete=log_id == 1)
    node.damage(1, 3)
    await world.start(policy="skip")
    assert await world.news() == ["a2"]
    assert world.chunks[0].segment == 1
    assert world.chunks[0].lost is not None
    assert world.numbers.now[metrics.LOST_BYTES] > 22
    await world.start()
    with pytest.raises(Fatal, match=r"CommitLog-7-1\.log, offset 0"):
        await world.news()


async def test_damage_is_not_passed_over_if_the_segment_cannot_be_kept(world: World) -> None:
    node = world.node
    node.create(1)
    node.write(1, "a", "b")
    node.sync(1, complete=True)
    node.damage(1, len(encode_head(7, 1, b"{}")) + MARKER + 10 + OVERHEAD + 9)
    (node.raw.parent / "file").write_text("")
    follower = await world.start(policy="skip", aside=node.raw.parent / "file")
    first = await follower.read()
    assert first is not None
    assert entry_names(first) == ["a"]
    with pytest.raises(ConfigInvalid, match=r"could not be kept aside.*commit\.log\.error\.directory"):
        await follower.read()


async def test_a_segment_that_somebody_deletes_unread_is_not_passed_silently(world: World) -> None:
    node = world.node
    for log_id in (1, 2, 3):
        node.create(log_id)
        node.write(log_id, f"a{log_id}")
        node.sync(log_id, complete=log_id < 3)
    follower = await world.start()
    first = await follower.read()
    assert first is not None
    assert entry_names(first) == ["a1"]
    node.log(2).unlink()
    node.idx(2).unlink()
    with pytest.raises(
        Fatal, match=r"CommitLog-7-2\.log was deleted by somebody else before it was read.*cdc_block_writes"
    ):
        await world.news()
    await world.start(LogPosition(1, first.position, 0, True))
    assert await world.news() == ["a3"]


async def test_a_segment_that_is_deleted_while_it_is_read_is_read_to_its_end(world: World) -> None:
    node = world.node
    node.create(1)
    node.write(1, "a")
    node.sync(1)
    await world.start()
    assert await world.news() == ["a"]
    node.write(1, "b")
    node.log(1).unlink()
    node.idx(1).unlink()
    assert await world.news() == []
    node.create(2)
    node.write(2, "c")
    node.sync(2)
    assert await world.news() == ["b", "c"]


@pytest.mark.parametrize("mode", ["idx", "marker"])
@pytest.mark.parametrize("ending", ["zeros", "cut"])
async def test_an_index_file_that_is_ahead_of_the_data_is_not_passed_silently(
    world: World, mode: str, ending: str
) -> None:
    """A disk that lost what it had confirmed, a copy that was made while the node wrote, or old pages of a mounted volume."""
    node = world.node
    node.create(1)
    node.write(1, "a", "b")
    node.idx(1).write_text(str(node.marker[1] + 500))
    if ending == "cut":
        os.truncate(node.log(1), node.marker[1])
    node.create(2)
    node.write(2, "c")
    node.sync(2)
    position = None
    for names in (["a", "b"], []):  # after a restart, too
        await world.start(position, mode=mode)
        with pytest.raises(Fatal, match=f"synced it up to {node.marker[1] + 500}"):
            await world.news()
        assert [name for chunk in world.chunks for name in entry_names(chunk)] == names
        position = world.position if world.chunks else position
        assert position is not None
        assert not position.finished
    await world.start(mode=mode, policy="skip")
    assert await world.news() == ["a", "b", "c"]
    assert world.numbers.now[metrics.DAMAGED] == 3


async def test_the_directory_of_another_node_is_refused_and_left_alone(world: World) -> None:
    node = world.node
    node.create(1)
    node.write(1, "a")
    node.sync(1, complete=True)
    follower = await world.start(LogPosition(900, 5))
    for _ in range(2):
        with pytest.raises(Fatal, match="older than the saved position"):
            await follower.read()
    await follower.acknowledged(LogPosition(900, 6))
    await follower.acknowledged(LogPosition(901, 6))
    assert node.log(1).exists()


async def test_a_half_read_segment_that_is_gone_is_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    node = world.node
    node.create(5)
    node.write(5, "a")
    node.sync(5)
    await world.start(LogPosition(4, 77))
    assert await world.news() == ["a"]
    assert "segment 4, read up to offset 77, is not there any more" in caplog.text


async def test_a_directory_that_is_not_there_or_goes_away(world: World, tmp_path: Path) -> None:
    follower = await world.start(directory=tmp_path / "none")
    with pytest.raises(ConfigInvalid, match="is not there on this worker"):
        await follower.read()
    follower = await world.start()
    assert await follower.read() is None
    world.node.raw.rename(tmp_path / "moved")
    with pytest.raises(Retriable, match="can't be listed"):
        await follower.read()
    (tmp_path / "moved").rename(world.node.raw)
    assert await follower.read() is None


async def test_a_cancelled_read_loses_nothing(world: World) -> None:
    node = world.node
    node.create(1)
    node.write(1, *(f"{number}" for number in range(100)))
    node.sync(1)
    follower = await world.start(poll_ms=1, max_bytes=100)
    names: list[str] = []
    for number in range(10_000):
        reading = asyncio.ensure_future(follower.read())
        await pass_turns(number % 7)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            names += entry_names(chunk) if (chunk := await reading) else []
        if len(names) == 100 or number > 500:
            break
    assert names + await world.news() == [f"{number}" for number in range(100)]


async def test_how_far_it_is_behind(world: World) -> None:
    node = world.node
    node.create(1)
    node.write(1, "a", "b")
    node.sync(1)
    os.utime(node.idx(1), (0, 1000))
    follower = await world.start(poll_ms=1)
    follower.total_space(10 * SIZE)
    assert await world.news() == ["a", "b"]
    async with asyncio.timeout(10):
        while not world.numbers.now[metrics.DIRECTORY_BYTES]:
            await follower.read()
    used = SIZE + len(node.idx(1).read_text())
    assert world.numbers.now[metrics.DIRECTORY_BYTES] == used
    assert world.numbers.now[metrics.DIRECTORY_FILL] == used / (10 * SIZE)
    assert world.numbers.now[metrics.DIRECTORY_AVAILABLE] == 1
    assert world.numbers.now[metrics.SEGMENTS_WAITING] == 1
    assert follower.behind() == {
        "bytes": 0,
        "segments": 1,
        "oldest_ms": 0,
        "directory_bytes": used,
        "segment": 1,
        "position": node.marker[1],
    }


async def test_the_directory_is_watched_while_no_one_reads(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka is unavailable: nothing is read or acknowledged, and the directory fills up."""
    monkeypatch.setattr("connectors.cassandra.log.follower.WATCH_S", 0.001)
    node, now = world.node, world.numbers.now
    for log_id in (1, 2):
        node.create(log_id)
        node.write(log_id, f"a{log_id}")
        node.sync(log_id, complete=log_id == 1)
    follower = await world.start(LogPosition(1, 5, 0, True))

    assert await follower.read() is not None
    await eventually_async(
        lambda: not node.log(1).exists() and now[metrics.SEGMENTS_WAITING] == 1,
        "the first segment is deleted, the second waits",
    )
    node.link(1)
    node.sync(1, complete=True)
    await eventually_async(
        lambda: now[metrics.SEGMENTS_RELINKED] == 1 and not node.log(1).exists(),
        "the segment that came back is deleted",
    )
    node.sync(2, complete=True)
    node.create(3)
    node.write(3, "a3")
    node.sync(3)
    await eventually_async(
        lambda: now[metrics.SEGMENTS_WAITING] == 2 and now[metrics.LAG_BYTES] == node.marker[3], "two segments wait"
    )
    assert now[metrics.LAG_SECONDS] >= 0
    world.node.raw.rename(tmp_path / "moved")
    await eventually_async(lambda: now[metrics.DIRECTORY_AVAILABLE] == 0, "the directory is missing")
    (tmp_path / "moved").rename(world.node.raw)
    await eventually_async(lambda: now[metrics.DIRECTORY_AVAILABLE] == 1, "the directory is back")


@pytest.mark.parametrize(
    ("first", "second", "warned"), [(True, True, True), (True, False, True), (False, True, True), (False, False, False)]
)
async def test_two_readers_of_a_directory_are_warned_of(
    world: World, caplog: pytest.LogCaptureFixture, first: bool, second: bool, warned: bool
) -> None:
    world.node.create(1)
    await (await world.start(delete=first)).read()
    other = LogFollower(
        cassandra_log(node="n1", directory=world.node.raw, poll_ms=0, delete=second), None, world.numbers, LOG
    )
    await other.read()
    assert ("another connector or task on this machine reads" in caplog.text) is warned
    await other.close()
    # The other reader is closed: no warning is logged.
    await world.stop()
    caplog.clear()
    await (await world.start()).read()
    assert "another connector" not in caplog.text
