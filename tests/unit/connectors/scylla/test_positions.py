"""Positions as they are saved, and those of the Java connector. Hypothesis: every position survives JSON and back."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from connectors.formats.timeuuid import format_uuid
from connectors.scylla import positions
from connectors.scylla.model import Generation, ReadPosition, StreamGroup, TableId
from connectors.scylla.positions import (
    check_altered,
    find_superseded,
    first_position,
    parse_offset,
    parse_partition,
    saved_position,
    saved_windows,
    shared_offset,
    signed_order,
    source_offset,
    source_partition,
)
from connectors.scylla.source.groups import tablet_groups
from connectors.testing.contexts import SavedOffsets

TABLE = TableId("ks", "t")
GENERATION = Generation(1_795_219_200_000)
#: Two with a first byte below 0x80 and two above: signed and unsigned order differ.
STREAMS = tuple(sorted(bytes([first]) + bytes(15) for first in (0x01, 0x7F, 0x80, 0xFF)))
VNODE = StreamGroup(TABLE, GENERATION, "17", False, STREAMS, None, 3)
TIME = uuid.UUID("8195b080-e53e-11f1-8000-0a0b0c0d0e0f").bytes
WINDOW = {"window_start": "d3b55580-c5c1-11ee-8080-808080808080", "window_end": "e596d30f-c5c1-11ee-7f7f-7f7f7f7f7f7f"}
#: 2024-02-07T14:00:00.000Z and 30 s later, as the Java library makes them.
START_MS = 1_707_314_400_000


def java_bounds(start_ms: int, end_ms: int) -> dict[str, str]:
    """Bounds of a window by another way than the code's: from the fields of ``uuid.UUID``."""

    def text(ticks: int, low: int) -> str:
        fields = (
            ticks & 0xFFFFFFFF,
            ticks >> 32 & 0xFFFF,
            ticks >> 48 | 0x1000,
            low >> 56,
            low >> 48 & 0xFF,
            low & 0xFFFFFFFFFFFF,
        )
        return str(uuid.UUID(fields=fields))

    epoch = 0x01B21DD213814000
    return {
        "window_start": text(start_ms * 10_000 + epoch, 0x8080808080808080),
        "window_end": text(end_ms * 10_000 - 1 + epoch, 0x7F7F7F7F7F7F7F7F),
    }


def test_windows_are_written_as_the_java_library_does() -> None:
    offset = source_offset(ReadPosition(START_MS, START_MS + 30_000))
    assert offset == java_bounds(START_MS, START_MS + 30_000)
    assert parse_offset(offset) == ReadPosition(START_MS, START_MS + 30_000)


def test_partition_has_the_java_connectors_members() -> None:
    assert source_partition(VNODE) == {
        "keyspace_name": "ks",
        "table_name": "t",
        "vnode_id": "17",
        "generation_start": "1795219200000",
    }
    assert parse_partition(source_partition(VNODE)) == (TABLE, 1_795_219_200_000, "17")
    assert positions.partition(VNODE) == source_partition(VNODE)


@given(
    st.integers(0, 1 << 42),
    st.integers(0, 1 << 32),
    st.integers(0, 15),
    st.sampled_from([None, *STREAMS]),
    st.integers(-1, 1 << 20),
)
def test_positions_survive_being_saved(start: int, width: int, done: int, stream: bytes | None, seq: int) -> None:
    position = ReadPosition(
        start, start + width, done, stream, None if stream is None else TIME, -1 if stream is None else seq
    )
    offset = json.loads(json.dumps(source_offset(position)))
    assert parse_offset(offset, STREAMS) == position


def test_a_records_offset_is_the_shared_one_with_time_and_number() -> None:
    run = ReadPosition(START_MS, START_MS + 1_000, 0b0101, STREAMS[1])
    offset = {**shared_offset(run), positions.OFFSET_TIME: format_uuid(TIME), positions.OFFSET_SEQ: 4}
    assert parse_offset(offset, STREAMS) == ReadPosition(START_MS, START_MS + 1_000, 0b0101, STREAMS[1], TIME, 4)


def test_a_java_position_in_a_window_has_the_streams_before_it_done() -> None:
    # In the order of signed bytes 0x80 and 0xff come before 0x01 and 0x7f.
    offset = {
        **java_bounds(START_MS, START_MS + 30_000),
        "change_id_stream_id": "0x" + STREAMS[0].hex(),
        "change_id_time": "8195b080-e53e-11f1-8000-0a0b0c0d0e0f",
    }
    position = saved_position(VNODE, saved((source_partition(VNODE), offset)))
    assert position == ReadPosition(START_MS, START_MS + 30_000, 0b1100, STREAMS[0], TIME, -1)
    assert sorted(STREAMS, key=signed_order) == [STREAMS[2], STREAMS[3], STREAMS[0], STREAMS[1]]


def test_a_java_position_between_windows() -> None:
    position = saved_position(VNODE, saved((source_partition(VNODE), java_bounds(START_MS, START_MS + 30_000))))
    assert position == ReadPosition(START_MS, START_MS + 30_000)


def test_a_window_with_all_streams_done_is_over() -> None:
    offset = source_offset(ReadPosition(START_MS, START_MS + 1_000, 0b1111))
    assert saved_position(VNODE, saved((source_partition(VNODE), offset))) == ReadPosition(
        START_MS + 1_000, START_MS + 1_000
    )


def saved(*items: tuple[dict[str, Any], dict[str, Any]]) -> SavedOffsets:
    offsets = SavedOffsets()
    for partition, offset in items:
        offsets.put(partition, offset)
    return offsets


def java_tablets(vnode: str) -> dict[str, str]:
    return {"keyspace_name": "ks", "table_name": "t", "vnode_id": vnode, "generation_start": "1795219200000"}


def test_old_java_position_of_a_tablet_table_is_split_among_its_streams() -> None:
    groups = tablet_groups(TABLE, GENERATION, STREAMS)
    offset = {
        **java_bounds(START_MS, START_MS + 30_000),
        "change_id_stream_id": "0x" + STREAMS[0].hex(),
        "change_id_time": "8195b080-e53e-11f1-8000-0a0b0c0d0e0f",
    }
    offsets = saved((java_tablets("0"), offset))
    positions = {group.streams[0]: saved_position(group, offsets) for group in groups}
    over = ReadPosition(START_MS + 30_000, START_MS + 30_000)
    assert positions == {
        STREAMS[2]: over,
        STREAMS[3]: over,
        STREAMS[0]: ReadPosition(START_MS, START_MS + 30_000, 0, STREAMS[0], TIME, -1),
        STREAMS[1]: ReadPosition(START_MS, START_MS + 30_000),
    }


def test_new_java_positions_of_a_tablet_table_go_by_number_and_ours_go_first() -> None:
    groups = tablet_groups(TABLE, GENERATION, STREAMS)
    by_stream = {group.streams[0]: group for group in groups}
    assert by_stream[STREAMS[2]].java_numbers == (4_194_304,)
    offsets = saved(
        (java_tablets("0"), java_bounds(START_MS, START_MS + 1_000)),
        (java_tablets("4194304"), java_bounds(START_MS + 60_000, START_MS + 90_000)),
        (source_partition(by_stream[STREAMS[3]]), java_bounds(START_MS + 70_000, START_MS + 90_000)),
    )
    assert saved_position(by_stream[STREAMS[2]], offsets) == ReadPosition(START_MS + 60_000, START_MS + 90_000)
    assert saved_position(by_stream[STREAMS[3]], offsets) == ReadPosition(START_MS + 70_000, START_MS + 90_000)
    assert saved_position(by_stream[STREAMS[0]], offsets) == ReadPosition(START_MS, START_MS + 1_000)


def test_tablets_that_are_read_together_begin_where_the_last_of_them_stands() -> None:
    (group,) = tablet_groups(TABLE, GENERATION, STREAMS, limit=1)
    numbers = dict(zip(group.streams, group.java_numbers, strict=True))
    offsets = saved(
        *(
            (java_tablets(str(number)), java_bounds(START_MS + 1_000 * index, START_MS + 1_000 * index + 1_500))
            for index, number in enumerate(numbers.values())
        )
    )
    position = saved_position(group, offsets)
    assert position is not None
    assert (position.window_start_ms, position.window_end_ms) == (START_MS, START_MS + 1_500)
    assert position.done == 0b1100
    assert saved_position(group, saved((java_tablets("4194304"), java_bounds(0, 1)))) is None


def test_start_without_a_saved_position() -> None:
    start = GENERATION.start_ms
    assert first_position(VNODE) == ReadPosition(start, start)
    later = StreamGroup(TABLE, GENERATION, "17", False, STREAMS, None, 3, begin_ms=start + 5)
    assert first_position(later) == ReadPosition(start + 5, start + 5)
    assert first_position(later, start + 9) == ReadPosition(start + 9, start + 9)
    closed = StreamGroup(TABLE, Generation(start, start + 7), "17", False, STREAMS)
    assert first_position(closed, start + 9) == ReadPosition(start + 7, start + 7)


def test_positions_of_older_generations_are_superseded_for_one_task() -> None:
    old = StreamGroup(TABLE, Generation(5, GENERATION.start_ms), "1", False, STREAMS)
    other = StreamGroup(TableId("ks", "other"), Generation(5), "1", False, STREAMS)
    first = StreamGroup(TABLE, GENERATION, "9", False, STREAMS, None, 0)
    items = [(source_partition(group), source_offset(ReadPosition(1, 2))) for group in (old, other, first, VNODE)]
    items.append(({**source_partition(old), "snapshot": "true"}, {"left": ""}))
    assert find_superseded([first], items) == [source_partition(old)]
    assert find_superseded([VNODE], items) == []


def test_saved_windows_by_table_generation_and_group() -> None:
    items = [
        (source_partition(VNODE), source_offset(ReadPosition(100, 200))),
        ({"snapshot": "x"}, {}),
        (source_partition(VNODE) | {"vnode_id": "3"}, {"window_start": "nonsense"}),
    ]
    assert saved_windows(items) == {TABLE: {GENERATION.start_ms: {"17": 100}}}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"window_start": None}, "must have 'window_start'"),
        ({"window_end": "x"}, "must be a time uuid"),
        ({"window_end": "00000000-0000-4000-8000-000000000000"}, "version 1"),
        ({"window_end": "d3b55580-c5c1-11e0-8080-808080808080"}, "is before"),
        ({"change_id_time": "8195b080-e53e-11f1-8000-0a0b0c0d0e0f"}, "needs 'change_id_stream_id'"),
        ({"change_id_stream_id": "0x12"}, "32 hexadecimal"),
        ({"change_id_stream_id": "0x" + STREAMS[0].hex()}, "must have 'change_id_time'"),
        ({"streams_done": "0xg"}, "hexadecimal digits"),
        ({"streams_done": "10"}, "more streams than"),
        ({"batch_seq_no": 3}, "needs 'change_id_stream_id'"),
        ({"position": 3}, "may not have 'position'"),
        (
            {"change_id_stream_id": "0x" + "00" * 16, "change_id_time": "8195b080-e53e-11f1-8000-0a0b0c0d0e0f"},
            "not a stream of",
        ),
        (
            {
                "change_id_stream_id": "0x" + STREAMS[0].hex(),
                "change_id_time": "8195b080-e53e-11f1-8000-0a0b0c0d0e0f",
                "batch_seq_no": "1",
            },
            "a number from -1",
        ),
    ],
)
def test_what_is_no_offset_is_refused(change: dict[str, Any], word: str) -> None:
    offset = {**WINDOW, **change}
    with pytest.raises(ConfigInvalid, match=word):
        parse_offset({name: value for name, value in offset.items() if value is not None}, STREAMS)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"keyspace_name": "other"}, "not one of the connector's tables"),
        ({"vnode_id": "x"}, "must be the number of a vnode"),
        ({"vnode_id": 3}, "a string"),
        ({"generation_start": "-1"}, "milliseconds"),
        ({"file": "x"}, "may not have 'file'"),
    ],
)
def test_what_is_no_partition_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigInvalid, match=word):
        check_altered({**source_partition(VNODE), **change}, WINDOW, [TABLE])


def test_a_reset_is_always_fine_and_a_good_offset_too() -> None:
    check_altered({"anything": 1}, None, [TABLE])
    check_altered(source_partition(VNODE), WINDOW, [TABLE])


def test_an_offset_that_cannot_be_understood_names_its_partition() -> None:
    with pytest.raises(ConfigInvalid, match=r"vnode_id.*17.*reset or alter"):
        saved_position(VNODE, saved((source_partition(VNODE), {"window_start": "x"})))
