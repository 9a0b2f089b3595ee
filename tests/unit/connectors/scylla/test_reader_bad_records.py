"""Bad records of the reader: a delivered batch passes them, and none is reported twice."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from connectors.api import BadRecord
from connectors.cql.cluster.session import ResultPage
from connectors.cql.types import CqlType
from connectors.errors import Skippable
from connectors.formats.timeuuid import format_uuid
from connectors.scylla import positions
from connectors.scylla.events import build_events
from connectors.scylla.events.changes import is_delivered
from connectors.scylla.model import RANGE_START_INCLUSIVE, UPDATE, CdcOptions, ScyllaColumn, TableVersion
from connectors.scylla.source.windows import WindowRules
from connectors.testing.contexts import SavedOffsets
from tests.support.settings import scylla_events, scylla_reading
from tests.unit.connectors.scylla.reader_world import (
    SPAN,
    START,
    TABLE,
    Builder,
    Log,
    check,
    groups_of,
    reader_of,
    timeuuid,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceRecord
    from connectors.scylla.model import StreamGroup, StreamRun
    from connectors.scylla.reader import ScyllaReader

pytestmark = pytest.mark.usefixtures("impatience")


def bad_row(stream: int, ms: int, kind: str = "row") -> tuple[Any, ...]:
    """A row of a change of its own; of the kind ``bad`` it can't be made a record."""
    return (bytes([stream]) * 16, timeuuid(START + ms, 0, 1), 0, 1, None, True, kind, 1, None)


class PickyBuilder(Builder):
    """Rows of the kind ``bad`` are bad records, reported before the records of their run, as builders do with bad cells."""

    def feed(self, run: StreamRun, out: list[SourceRecord], bad: list[Any]) -> None:
        bad.extend(
            BadRecord(
                run.partition,
                {**run.offset, positions.OFFSET_TIME: format_uuid(row[1]), positions.OFFSET_SEQ: row[2]},
                Skippable("bad"),
                repr(row).encode(),
            )
            for row in run.rows
            if row[6] == "bad" and not is_delivered(row, run.skip)
        )
        super().feed(run._replace(rows=[row for row in run.rows if row[6] != "bad"]), out, bad)


async def read_until(
    reader: ScyllaReader, saved: SavedOffsets, stop: Callable[[list[Any], list[Any]], bool]
) -> tuple[list[Any], list[Any]]:
    """Rows and bad ones until ``stop`` says so, their batches delivered as the conformance kit does it."""
    rows: list[Any] = []
    bad: list[Any] = []
    async with asyncio.timeout(20), aclosing(reader.batches()) as stream:
        async for batch in stream:
            saved.deliver(batch)
            rows += [record.value for record in batch.records]
            bad += [bad_record.raw for bad_record in batch.bad]
            if stop(rows, bad) or all(state.finished for state in reader.states):
                break
    return rows, bad


@settings(
    max_examples=200,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_delivered_batch_passes_its_bad_records(data: st.DataObject) -> None:
    """Whatever window, page or batch they come in, and however rarely positions are saved in quiet times."""
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    position = st.tuples(st.integers(0, sum(sizes) - 1), st.integers(0, SPAN - 1), st.sampled_from(["bad", "row"]))
    row_positions = data.draw(st.lists(position, min_size=1, max_size=20, unique_by=lambda position: position[:2]))
    rows = [bad_row(*position) for position in row_positions]
    log, groups = Log(rows), groups_of(sizes, START + SPAN)
    options = scylla_reading(
        confidence_ms=0,
        streams_per_query=data.draw(st.integers(1, 9)),
        heartbeat_ms=60_000,
        fetch_size=data.draw(st.integers(1, 9)),
        max_batch=data.draw(st.sampled_from([1, 3, 100])),
    )
    rules = WindowRules(head_ms=50, first_ms=data.draw(st.sampled_from([50, 400, 10_000])), target_rows=3)
    saved = SavedOffsets()
    got: list[Any] = []
    refused: list[Any] = []

    async def scenario() -> None:
        while len(got) + len(refused) < len(
            rows
        ):  # each incarnation ends with the batch of a bad record, or with the log
            reader = reader_of(log, groups, saved, options, rules=rules, builder=PickyBuilder)
            more, bad = await read_until(reader, saved, lambda _, bad: bool(bad))
            assert more or bad
            got.extend(more)
            refused.extend(bad)

    asyncio.run(scenario())
    assert sorted(refused) == sorted(repr(row).encode() for row in rows if row[6] == "bad")
    check([row for row in rows if row[6] != "bad"], got)


async def test_a_bad_record_is_passed_although_its_windows_end_is_not_saved() -> None:
    (group,) = groups_of([2], None)
    saved = SavedOffsets()
    log = Log([bad_row(0, 100), bad_row(0, 200, "bad")])
    options = scylla_reading(confidence_ms=0, heartbeat_ms=60_000, max_batch=1)
    # The first window ends before there is anything: its end is saved, and then no other for a minute.
    rules = WindowRules(head_ms=50, first_ms=50)
    rows, bad = await read_until(
        reader_of(log, [group], saved, options, rules=rules, builder=PickyBuilder), saved, lambda _, bad: bool(bad)
    )
    assert (len(rows), len(bad)) == (1, 1)
    log.streams[b"\x00" * 16].append(bad_row(0, 900))
    rows, bad = await read_until(
        reader_of(log, [group], saved, options, rules=rules, builder=PickyBuilder), saved, lambda rows, _: bool(rows)
    )
    assert ([row[1] for row in rows], bad) == ([timeuuid(START + 900, 0, 1)], [])


def reader_of_deletes(log: Log, group: StreamGroup, saved: SavedOffsets, **more: int) -> ScyllaReader:
    """A reader of a table with a clustering column, whose deletes of many rows are events."""
    columns = (
        ScyllaColumn("pk", CqlType("int"), "partition_key", 0),
        ScyllaColumn("ck", CqlType("int"), "clustering", 0),
    )
    event_settings = scylla_events(topic_prefix="p", deletes_mode="events")
    return reader_of(
        log,
        [group],
        saved,
        scylla_reading(confidence_ms=0, heartbeat_ms=60_000, **more),
        # The first window ends before there is anything: its end is saved, and then no other for a minute.
        rules=WindowRules(head_ms=50, first_ms=50),
        builder=lambda version: build_events(version, event_settings),
        version=TableVersion(TABLE, columns, CdcOptions(), "one"),
    )


async def test_a_range_delete_without_its_end_does_not_fail_each_restart() -> None:
    """Its start was reported, and its position saved: the rest of the window is read from there."""
    (group,) = groups_of([1], START + SPAN)
    start = (bytes([0]) * 16, timeuuid(START + 100, 0, 1), 0, RANGE_START_INCLUSIVE, None, None, 1, 1)
    saved = SavedOffsets()

    def new_reader() -> ScyllaReader:
        return reader_of_deletes(Log([start]), group, saved)

    _, bad = await read_until(new_reader(), saved, lambda _, bad: bool(bad))
    position = positions.saved_position(group, saved)
    assert position is not None
    assert (len(bad), position.stream, position.time, position.seq) == (1, start[0], start[1], 0)
    reader = new_reader()
    assert (await read_until(reader, saved, lambda *_: False))[0] == []
    assert reader.states[0].finished


class EmptyLastPages(Log):
    """Gives a paging state with the last row, as servers do: the page behind it is empty."""

    async def page(self, text: str, parameters: Any, *, state: bytes | None = None, **more: Any) -> ResultPage:
        page = await super().page(text, parameters, state=state, **more)
        if page.state is not None or not page.rows:
            return page
        return ResultPage(columns=(), rows=page.rows, state=str(int(state or b"0") + len(page.rows)).encode())


async def test_a_range_delete_without_its_end_takes_no_position_back() -> None:
    """It is given up at the end of its stream, when changes behind it were delivered: they are not repeated."""
    (group,) = groups_of([1], START + SPAN)
    stream = bytes([0]) * 16
    rows = [
        (stream, timeuuid(START + 100, 0, 1), 0, RANGE_START_INCLUSIVE, None, None, 1, 1),
        (stream, timeuuid(START + 200, 0, 1), 0, UPDATE, None, True, 1, 2),
    ]
    saved = SavedOffsets()

    def new_reader() -> ScyllaReader:
        return reader_of_deletes(EmptyLastPages(rows), group, saved, fetch_size=1, max_batch=1)

    records, bad = await read_until(new_reader(), saved, lambda _, bad: bool(bad))
    assert (len(records), len(bad)) == (1, 1)
    position = positions.saved_position(group, saved)
    assert position is not None
    assert position.time == rows[1][1]
    assert (await read_until(new_reader(), saved, lambda *_: False))[0] == []
