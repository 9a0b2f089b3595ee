"""The reader with rows that become bytes: after any kill, each change comes once, with the same bytes and positions."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from connectors.scylla import positions
from connectors.scylla.events import build_events
from connectors.scylla.events.fast_rows import fast_feed
from connectors.scylla.model import INSERT, PARTITION_DELETE, POSTIMAGE, RANGE_START_INCLUSIVE, ROW_DELETE, UPDATE
from connectors.scylla.reader import ScyllaReader
from connectors.scylla.source.feeds import TableFeed
from connectors.scylla.source.lanes import GroupState
from connectors.scylla.source.windows import WindowRules
from connectors.testing.contexts import SavedOffsets
from tests.support.both_paths import Delivered, Paths
from tests.support.settings import scylla_events, scylla_reading
from tests.unit.connectors.scylla.reader_world import (
    LOG,
    SPAN,
    START,
    TABLE,
    VERSION,
    Log,
    Metrics,
    groups_of,
    no_refresh,
    timeuuid,
)
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from connectors.scylla.model import TableVersion

OPERATIONS = (INSERT, UPDATE, ROW_DELETE, INSERT, PARTITION_DELETE, POSTIMAGE, INSERT, RANGE_START_INCLUSIVE, UPDATE)

pytestmark = pytest.mark.usefixtures("impatience")


def log_rows() -> list[tuple[Any, ...]]:
    """Rows of three streams, several with one time; some go the general way."""
    return [
        (
            bytes([number % 3]) * 16,
            timeuuid(START + 30 * (number // 6), 0, number % 3),
            number // 3,
            OPERATIONS[number % len(OPERATIONS)],
            None,
            None,
            number,
            number * 7,
            None,
        )
        for number in range(120)
    ]


async def one_life(
    saved: SavedOffsets, paths: Paths | None, kill_after: int, *, max_batch: int, fetch_size: int
) -> tuple[Any, bool, int]:
    """Deliver until the reader is killed after a batch: the records, whether it came to the end, how many were encoded."""
    options = scylla_reading(
        confidence_ms=0, streams_per_query=2, heartbeat_ms=60_000, fetch_size=fetch_size, max_batch=max_batch
    )
    log: Any = Log(log_rows())
    reader = ScyllaReader(log, options, Metrics(), LOG, refresh=no_refresh, rules=WindowRules(head_ms=50, first_ms=400))
    settings = scylla_events(topic_prefix="p")

    def make_builder(version: TableVersion) -> Any:
        return build_events(version, settings, lambda: 5.0)

    feed = TableFeed(TABLE, (VERSION,), make_builder)
    if paths is not None:
        fast = await fast_feed(paths.wire, feed.builder(VERSION))
        assert fast is not None
        feed.fast[VERSION.definition] = fast
    states = []
    for group in groups_of([2, 1], START + SPAN):
        position = positions.saved_position(group, saved) or positions.first_position(group, START)
        states.append(GroupState(group, positions.source_partition(group), position))
    reader.add(feed, states)
    plain = paths or Paths(JsonConverter({"schemas.enable": "false"}), JsonConverter({"schemas.enable": "false"}))
    delivered: list[Delivered] = []
    encoded = batches = 0
    async with asyncio.timeout(20), aclosing(reader.batches()) as stream:
        async for batch in stream:
            saved.deliver(batch)
            encoded += sum(len(part.values) for part in batch.encoded)
            delivered += await plain.deliver(batch)
            batches += bool(batch.records or batch.encoded)
            ended = all(state.finished for state in reader.states)
            if ended or batches >= kill_after:
                return delivered, ended, encoded
    raise AssertionError("the reader gave up")


async def all_lives(
    paths: Paths | None, kill_after: int, *, max_batch: int, fetch_size: int = 7
) -> tuple[dict[str, list[Delivered]], int]:
    """Everything that comes over all kills, by stream."""
    saved = SavedOffsets()
    by_stream: dict[str, list[Delivered]] = {}
    count = 0
    ended = False
    while not ended:
        delivered, ended, encoded = await one_life(saved, paths, kill_after, max_batch=max_batch, fetch_size=fetch_size)
        count += encoded
        for record in delivered:
            assert record.position is not None
            by_stream.setdefault(record.position[positions.OFFSET_STREAM], []).append(record._replace(position=None))
    return by_stream, count


@pytest.mark.parametrize(("kill_after", "max_batch"), [(1000, 1000), (1, 1), (1, 5), (2, 9), (3, 20)])
@pytest.mark.parametrize("fetch_size", [7, 1000])
async def test_kills_lose_and_repeat_nothing(kill_after: int, max_batch: int, fetch_size: int) -> None:
    """With pages of few rows, and with whole windows of several streams in a page, which are encoded together."""
    json = JsonConverter({"schemas.enable": "false"})
    expected, none = await all_lives(None, 1000, max_batch=1000)
    assert none == 0
    delivered, encoded = await all_lives(Paths(json, json), kill_after, max_batch=max_batch, fetch_size=fetch_size)
    assert delivered == expected
    assert encoded > 0
