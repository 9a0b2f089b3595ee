"""Saved positions: source partitions and offsets, and those that the Java connector wrote. Pure functions.

A source partition is ``{keyspace_name, table_name, vnode_id, generation_start}``, all strings. A source offset holds the window
as the time uuids that bound it, and while a window is under way the stream, the time of the change and the number of the row in
it, and which streams of the group were read to the window's end before (``streams_done``, hexadecimal, bit i for the i-th
stream). The Java connector's offsets have neither number nor streams; it reads a vnode's streams one after the other in the
order of their ids as signed bytes, so the streams below the saved one are done.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from connectors.formats.timeuuid import format_uuid
from connectors.scylla.model import ReadPosition, TableId
from connectors.scylla.source.windows import end_of, order_of, start_of, ticks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.api import OffsetReader, Position
    from connectors.scylla.model import StreamGroup

#: Members of a source partition; the Java connector's names and forms (all strings).
KEYSPACE: Final = "keyspace_name"
TABLE: Final = "table_name"
VNODE: Final = "vnode_id"
GENERATION: Final = "generation_start"

#: Members of a source offset; all but the last two are the Java connector's.
WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"
OFFSET_STREAM: Final = "change_id_stream_id"
OFFSET_TIME: Final = "change_id_time"
OFFSET_SEQ: Final = "batch_seq_no"
OFFSET_DONE: Final = "streams_done"

#: The Java connector numbers the streams of a tablet table from here on, in the order of their ids as signed bytes; before
#: version 2.1 it kept one position for all of them under the vnode 0.
FIRST_TABLET: Final = 1 << 22

_MEMBERS: Final = frozenset({WINDOW_START, WINDOW_END, OFFSET_STREAM, OFFSET_TIME, OFFSET_SEQ, OFFSET_DONE})
_STREAM: Final = re.compile(r"0x[0-9a-fA-F]{32}\Z", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,19}\Z", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-fA-F]+\Z", re.ASCII)
#: A batch has at most as many rows as a signed int counts.
_LAST_SEQ: Final = (1 << 31) - 1


def stream_text(stream: bytes) -> str:
    """A stream id as text: ``0x`` and lower-case hexadecimal."""
    return "0x" + stream.hex()


def signed_order(stream: bytes) -> bytes:
    """A key that sorts stream ids as the Java connector does: byte by byte as signed numbers."""
    return bytes(byte ^ 0x80 for byte in stream)


def source_partition(group: StreamGroup) -> Position:
    """The source partition of a group; make one object per group and share it."""
    return {
        KEYSPACE: group.table.keyspace,
        TABLE: group.table.table,
        VNODE: group.name,
        GENERATION: str(group.generation.start_ms),
    }


def source_offset(position: ReadPosition) -> Position:
    """The complete source offset of a position.

    For records see ``Run.offset``: what all records of a run share is ``shared_offset``.
    """
    offset = shared_offset(position)
    if position.stream is not None and position.time is not None:
        offset[OFFSET_TIME] = format_uuid(position.time)
        offset[OFFSET_SEQ] = position.seq
    return offset


def shared_offset(position: ReadPosition) -> Position:
    """The members of an offset that do not change from row to row of a stream: windows, done streams, stream."""
    offset: Position = {
        WINDOW_START: format_uuid(start_of(position.window_start_ms)),
        WINDOW_END: format_uuid(end_of(position.window_end_ms - 1)),
    }
    if position.done or position.stream is not None:
        offset[OFFSET_DONE] = f"{position.done:x}"
    if position.stream is not None:
        offset[OFFSET_STREAM] = stream_text(position.stream)
    return offset


def place_in_stream(offset: Position) -> tuple[bytes, int]:
    """Sorts the offsets of records of one stream (``Run.offset``) by what they are of."""
    return order_of(uuid.UUID(offset[OFFSET_TIME]).bytes), offset[OFFSET_SEQ]


def _parse_time(offset: Mapping[str, Any], name: str) -> bytes:
    value = offset.get(name)
    if value is None:
        raise ConfigInvalid(f"an offset must have '{name}'")
    try:
        parsed = uuid.UUID(value if isinstance(value, str) and len(value) == 36 else "")
    except ValueError:
        raise ConfigInvalid(
            f"'{name}' must be a time uuid such as 8195b080-e53e-11f1-8080-808080808080, not {value!r}"
        ) from None
    if (parsed.int >> 76) & 0xF != 1:  # whatever the variant is: the bounds of windows have that of no uuid
        raise ConfigInvalid(f"'{name}' must be a uuid of version 1, which holds a time; {value} is not")
    return parsed.bytes


def parse_offset(
    offset: Mapping[str, Any], streams: Sequence[bytes] | None = None, *, shared: bool = False
) -> ReadPosition:
    """A position from a saved offset, this connector's or the Java one's.

    Args:
        offset: the source offset.
        streams: the group's streams, sorted as unsigned bytes: needed to know which of them a Java offset has behind it; None
            only checks the form, ``done`` of a Java offset stays 0 then.
        shared: whether it is the position of other streams too, so that the stream in it need not be one of ``streams``.

    Raises:
        ConfigInvalid: it is not an offset of either.
    """
    unknown = sorted(set(offset) - _MEMBERS)
    if unknown:
        raise ConfigInvalid(
            f"an offset may not have {', '.join(map(repr, unknown))}; known are {', '.join(sorted(_MEMBERS))}"
        )
    start_ms = ticks_of(_parse_time(offset, WINDOW_START)) // 10_000
    end_ms = ticks_of(_parse_time(offset, WINDOW_END)) // 10_000 + 1
    if end_ms < start_ms:
        raise ConfigInvalid(
            f"'{WINDOW_END}' ({offset[WINDOW_END]}) is before '{WINDOW_START}' ({offset[WINDOW_START]})"
        )
    done = _parse_done(offset.get(OFFSET_DONE), streams)
    stream_hex = offset.get(OFFSET_STREAM)
    if stream_hex is None:
        for name in (OFFSET_TIME, OFFSET_SEQ):
            if offset.get(name) is not None:
                raise ConfigInvalid(f"'{name}' needs '{OFFSET_STREAM}' with it")
        return ReadPosition(start_ms, end_ms, done)
    if not isinstance(stream_hex, str) or not _STREAM.match(stream_hex):
        raise ConfigInvalid(f"'{OFFSET_STREAM}' must be 0x and 32 hexadecimal digits, not {stream_hex!r}")
    stream = bytes.fromhex(stream_hex[2:])
    time = _parse_time(offset, OFFSET_TIME)
    seq = offset.get(OFFSET_SEQ, -1)
    if not isinstance(seq, int) or isinstance(seq, bool) or not -1 <= seq <= _LAST_SEQ:
        raise ConfigInvalid(f"'{OFFSET_SEQ}' must be a number from -1 to {_LAST_SEQ}, not {seq!r}")
    if streams is None:
        return ReadPosition(start_ms, end_ms, done, stream, time, seq)
    if stream not in streams and not shared:
        raise ConfigInvalid(f"'{OFFSET_STREAM}' {stream_hex} is not a stream of this group")
    if OFFSET_DONE not in offset and OFFSET_SEQ not in offset:
        limit = signed_order(stream)
        for index, stream_id in enumerate(streams):
            if signed_order(stream_id) < limit:
                done |= 1 << index
    if stream not in streams:
        return ReadPosition(start_ms, end_ms, done)
    return ReadPosition(start_ms, end_ms, done, stream, time, seq)


def _parse_done(value: Any, streams: Sequence[bytes] | None) -> int:
    if value is None:
        return 0
    if not isinstance(value, str) or not _HEX.match(value):
        raise ConfigInvalid(f"'{OFFSET_DONE}' must be hexadecimal digits, not {value!r}")
    done = int(value, 16)
    if streams is not None and done >> len(streams):
        raise ConfigInvalid(f"'{OFFSET_DONE}' {value} names more streams than the group's {len(streams)}")
    return done


def first_position(group: StreamGroup, not_before_ms: int = 0) -> ReadPosition:
    """Where to begin to read ``group`` if nothing is saved for it: ``StreamGroup.begin_ms``, else its generation's start.

    It has to be saved before anything is read: a look-back is counted from the first start on then. Counted again at each
    restart it would pass what was written meanwhile.

    Args:
        group: the group.
        not_before_ms: nothing is to be found before it (now less the TTL).
    """
    start = max(group.generation.start_ms, group.begin_ms or 0, not_before_ms)
    if group.generation.end_ms is not None:
        start = min(start, group.generation.end_ms)
    return ReadPosition(start, start)


def find_superseded(groups: Iterable[StreamGroup], items: Iterable[tuple[Position, Position]]) -> list[Position]:
    """Source partitions of finished generations, to be deleted by the task that has ``groups``.

    A position saved for a generation says that those before it are done, so this is safe once any position of the newer one is
    saved: yield them with offset None in a batch behind the one that saved the first positions. Of the tasks that share a table
    the one with its first group cleans up.

    Args:
        groups: of the task.
        items: the saved positions.
    """
    first = {group.table: group.generation.start_ms for group in groups if group.index == 0}
    if not first:
        return []
    partitions = []
    for partition, _ in items:
        try:
            table, generation, _name = parse_partition(partition)
        except ConfigInvalid:
            continue
        if generation < first.get(table, 0):
            partitions.append(partition)
    return partitions


def complete_window(position: ReadPosition, streams: int) -> ReadPosition:
    """``position``, moved to the end of its window if all of the group's streams are done in it."""
    if position.stream is None and position.done == (1 << streams) - 1:
        return ReadPosition(position.window_end_ms, position.window_end_ms)
    return position


def partition_of_java(group: StreamGroup, number: int) -> Position:
    """The source partition under which the Java connector kept positions of a tablet table."""
    return {**source_partition(group), VNODE: str(number)}


def tablet_numbers(streams: Iterable[bytes]) -> dict[bytes, int]:
    """The Java connector's number of each stream of a generation of a tablet table, from all of them."""
    return {stream: FIRST_TABLET + index for index, stream in enumerate(sorted(streams, key=signed_order))}


def saved_position(group: StreamGroup, offsets: OffsetReader) -> ReadPosition | None:
    """The saved position of ``group``: saved by us, else by the Java connector in any of its forms; None: nothing is saved.

    Raises:
        ConfigInvalid: an offset is saved that can't be understood.
    """
    own_offset = offsets.get(source_partition(group))
    if own_offset is not None:
        return complete_window(_parse_named(group, own_offset, group.streams), len(group.streams))
    if not group.tablets:
        return None
    numbers = group.java_numbers or (None,) * len(group.streams)
    parts = [
        _java_tablet(group, stream, number, offsets) for stream, number in zip(group.streams, numbers, strict=True)
    ]
    known_parts = [part for part in parts if part is not None]
    if len(known_parts) < len(parts) or not known_parts:
        return None
    if len(known_parts) == 1:
        return known_parts[0]
    # Streams that are read together from now on start at the earliest of their positions. The others repeat some rows, once.
    start = min(part.window_start_ms for part in known_parts)
    end = max(start + 1, min(part.window_end_ms for part in known_parts))
    done = sum(1 << index for index, part in enumerate(known_parts) if part.window_start_ms >= end)
    return ReadPosition(start, end, done)


def _java_tablet(group: StreamGroup, stream: bytes, number: int | None, offsets: OffsetReader) -> ReadPosition | None:
    own_offset = None if number is None else offsets.get(partition_of_java(group, number))
    if own_offset is not None:
        return complete_window(_parse_named(group, own_offset, (stream,)), 1)
    shared = offsets.get(partition_of_java(group, 0))
    return None if shared is None else complete_window(_parse_named(group, shared, (stream,), shared=True), 1)


def _parse_named(
    group: StreamGroup, offset: Position, streams: Sequence[bytes], *, shared: bool = False
) -> ReadPosition:
    try:
        return parse_offset(offset, streams, shared=shared)
    except ConfigInvalid as error:
        raise ConfigInvalid(
            f"The saved offset of {source_partition(group)} can't be resumed from: {error}; reset or alter "
            "this connector's offsets"
        ) from error


def parse_partition(partition: Mapping[str, Any]) -> tuple[TableId, int, str]:
    """Table, start of the generation and name of the group of a source partition.

    Raises:
        ConfigInvalid: it is not one of this connector or of the Java one.
    """
    expected_names = (KEYSPACE, TABLE, VNODE, GENERATION)
    for name in expected_names:
        value = partition.get(name)
        if not isinstance(value, str) or not value:
            raise ConfigInvalid(f"a partition must have '{name}', a string, not {value!r}")
    unknown = sorted(set(partition) - set(expected_names))
    if unknown:
        raise ConfigInvalid(
            f"a partition may not have {', '.join(map(repr, unknown))}; known are {', '.join(expected_names)}"
        )
    if not _NUMBER.match(partition[GENERATION]):
        raise ConfigInvalid(
            f"'{GENERATION}' must be the milliseconds of a generation's start, not '{partition[GENERATION]}'"
        )
    name = partition[VNODE]
    if not _NUMBER.match(name) and not _STREAM.match(name):
        raise ConfigInvalid(
            f"'{VNODE}' must be the number of a vnode, or of a tablet's stream 0x and 32 hexadecimal digits, "
            f"not '{name}'"
        )
    return TableId(partition[KEYSPACE], partition[TABLE]), int(partition[GENERATION]), name


def saved_windows(items: Iterable[tuple[Position, Position]]) -> dict[TableId, dict[int, dict[str, int]]]:
    """Of every saved position the start of its window: by table, start of the generation, name of the group (ms).

    What is not a position of a stream (a snapshot's) or can't be understood is left out: who reads the group finds the fault.
    """
    windows: dict[TableId, dict[int, dict[str, int]]] = {}
    for partition, offset in items:
        try:
            table, generation, name = parse_partition(partition)
            position = parse_offset(offset)
        except ConfigInvalid:
            continue
        windows.setdefault(table, {}).setdefault(generation, {})[name] = position.window_start_ms
    return windows


def check_altered(partition: Mapping[str, Any], offset: Mapping[str, Any] | None, tables: Iterable[TableId]) -> None:
    """Whether an operator's change of a position can be resumed from; an offset of None resets and is always fine.

    Raises:
        ConfigInvalid: it can't; the message says what is wrong with it.
    """
    if offset is None:
        return
    table, _, name = parse_partition(partition)
    table_list = list(tables)
    if table not in table_list:
        raise ConfigInvalid(f"{table} is not one of the connector's tables ({', '.join(map(str, table_list))})")
    position = parse_offset(offset)
    java = OFFSET_SEQ not in offset and OFFSET_DONE not in offset
    if position.stream is not None and _STREAM.match(name) and java and position.stream.hex() != name[2:].lower():
        raise ConfigInvalid(f"'{OFFSET_STREAM}' {offset[OFFSET_STREAM]} is not the stream of partition '{name}'")


partition = source_partition
offset = source_offset
