"""Streams to groups, groups to tasks, and a task's share as a short text. Pure functions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from connectors.errors import ConfigInvalid
from connectors.scylla.model import Generation, StreamGroup, TableId
from connectors.scylla.positions import stream_text, tablet_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: A tablet table has at most this many groups: beyond it neighbours by token are read together.
MOST_TABLET_GROUPS: Final = 2_048
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?\Z", re.ASCII)


def token_of(stream: bytes) -> int:
    """The token in a stream id: its first 8 bytes, signed."""
    return int.from_bytes(stream[:8], "big", signed=True)


def vnode_of(stream: bytes) -> int:
    """The vnode index in a stream id: 22 bits above the 4 of the version."""
    return (int.from_bytes(stream[8:], "big") >> 4) & 0x3FFFFF


#: Streams by vnode index, each with the ends of the token ranges they were listed under (None: none given).
Vnodes = dict[int, tuple[set[bytes], set["int | None"]]]


def add_streams(vnodes: Vnodes, range_end: int | None, streams: Iterable[bytes]) -> None:
    """Put one row of a streams table into ``vnodes``; rows can be added in any order and twice."""
    for stream in streams:
        entry = vnodes.get(vnode_of(stream))
        if entry is None:
            entry = vnodes[vnode_of(stream)] = (set(), set())
        entry[0].add(stream)
        entry[1].add(range_end)


def vnode_groups(table: TableId, generation: Generation, vnodes: Vnodes) -> list[StreamGroup]:
    """One group per vnode index, in the order of the ring where the ranges are known, else of the index."""
    ends = sorted({end for _, range_ends in vnodes.values() for end in range_ends if end is not None})
    before = dict(zip(ends, [ends[-1], *ends[:-1]], strict=True)) if ends else {}

    def order_key(item: tuple[int, tuple[set[bytes], set[int | None]]]) -> tuple[int, int]:
        index, (_, range_ends) = item
        return (min((end for end in range_ends if end is not None), default=0), index)

    groups: list[StreamGroup] = []
    for index, (streams, range_ends) in sorted(vnodes.items(), key=order_key):
        end = next(iter(range_ends)) if len(range_ends) == 1 else None
        groups.append(
            StreamGroup(
                table,
                generation,
                str(index),
                False,
                tuple(sorted(streams)),
                None if end is None else (before[end], end),
                len(groups),
            )
        )
    return groups


def tablet_groups(
    table: TableId, generation: Generation, streams: Iterable[bytes], limit: int = MOST_TABLET_GROUPS
) -> list[StreamGroup]:
    """One group per stream, or of neighbours by token if there are more than ``limit``.

    A group is named after its first stream.

    The token in a tablet's stream id is the tablet's last one, so the range of a group follows from its neighbour's.
    """
    ordered = sorted(set(streams), key=lambda stream: (token_of(stream), stream))
    if not ordered:
        return []
    numbers = tablet_numbers(ordered)
    groups: list[StreamGroup] = []
    before = token_of(ordered[-1])
    for part in split_evenly(ordered, min(limit, len(ordered))):
        last = token_of(part[-1])
        members = tuple(sorted(part))
        groups.append(
            StreamGroup(
                table,
                generation,
                stream_text(part[0]),
                True,
                members,
                (before, last),
                len(groups),
                java_numbers=tuple(numbers[stream] for stream in members),
            )
        )
        before = last
    return groups


def split_evenly(items: Sequence[bytes], parts: int) -> list[Sequence[bytes]]:
    """``items`` as ``parts`` slices whose lengths differ by at most one; no slice is empty if there are enough items."""
    size, longer = divmod(len(items), parts)
    result = []
    at = 0
    for number in range(parts):
        end = at + size + (number < longer)
        result.append(items[at:end])
        at = end
    return result


def of_table(groups: Iterable[StreamGroup], table: TableId) -> list[StreamGroup]:
    """The same groups for another table: vnode tables share their streams."""
    return [replace(group, table=table) for group in groups]


def assign_groups(groups: Iterable[StreamGroup], max_tasks: int) -> list[list[StreamGroup]]:
    """The groups as at most ``max_tasks`` shares, none of them empty.

    Sizes differ by at most one. Every table is spread over all tasks; each task gets groups that are neighbours by token.
    Groups that don't divide evenly go to the tasks in turn, from table to table. The result depends only on the groups and
    ``max_tasks``, and a change of one table's groups moves those of others only if their number changes.

    Args:
        groups: of any tables, in any order.
        max_tasks: at least 1.
    """
    tables: dict[TableId, list[StreamGroup]] = {}
    for group in groups:
        tables.setdefault(group.table, []).append(group)
    tasks = min(max_tasks, sum(map(len, tables.values())))
    shares: list[list[StreamGroup]] = [[] for _ in range(tasks)]
    turn = 0
    for table in sorted(tables):
        members = sorted(tables[table], key=lambda group: (group.generation.start_ms, group.index, group.name))
        size, remainder = divmod(len(members), tasks)
        longer = {(turn + number) % tasks for number in range(remainder)}
        turn = (turn + remainder) % tasks
        at = 0
        for number, share in enumerate(shares):
            end = at + size + (number in longer)
            share.extend(members[at:end])
            at = end
    return shares


class StreamShare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Groups of one table and generation in a task's configuration: short, however many streams there are.

    Attributes:
        keyspace: of the table.
        table: its name.
        generation: start of the generation, ms.
        begin: see ``StreamGroup.begin_ms``.
        tablets: whether it is a tablet table.
        groups: places of the groups among all of the generation: ``0-511,513``.
        of: how many groups the generation has, so that a task notices if it would divide the streams in another way.
        later: see ``StreamGroup.later``.
    """

    keyspace: str
    table: str
    generation: int
    begin: int | None = None
    tablets: bool = False
    groups: str
    of: int
    later: bool = False


def format_ranges(numbers: Iterable[int]) -> str:
    """Numbers as ``0-3,7``."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def parse_numbers(ranges_text: str, below: int) -> list[int]:
    """The numbers of ``format_ranges``.

    Raises:
        ConfigInvalid: it is not of that form, or has a number that is not below ``below``.
    """
    result: list[int] = []
    for part in filter(None, ranges_text.split(",")):
        match = _RANGE.match(part)
        if match is None or int(match[2] or match[1]) >= below:
            raise ConfigInvalid(f"'{part}' is not a range of numbers below {below}")
        result += range(int(match[1]), int(match[2] or match[1]) + 1)
    return result


def encode_share(groups: Iterable[StreamGroup], sizes: Mapping[TableId, int]) -> str:
    """A task's groups as the text of its configuration.

    Args:
        groups: of the task, with ``index`` known.
        sizes: how many groups each table's generation has.
    """
    parts: dict[tuple[TableId, int], list[StreamGroup]] = {}
    for group in groups:
        parts.setdefault((group.table, group.generation.start_ms), []).append(group)
    shares = [
        StreamShare(
            keyspace=table.keyspace,
            table=table.table,
            generation=start,
            begin=members[0].begin_ms,
            tablets=members[0].tablets,
            groups=format_ranges(group.index for group in members),
            of=sizes[table],
            later=members[0].later,
        )
        for (table, start), members in sorted(parts.items())
    ]
    return msgspec.json.encode(shares).decode()


def decode_shares(encoded: str) -> list[StreamShare]:
    """The inverse of ``encode_share``.

    Raises:
        ConfigInvalid: it is something else.
    """
    try:
        return msgspec.json.decode(encoded, type=list[StreamShare])
    except msgspec.DecodeError as error:
        raise ConfigInvalid(
            f"scylla.task.groups is not what this connector writes: {error}; restart the connector"
        ) from error


def choose_groups(share: StreamShare, groups: Sequence[StreamGroup]) -> list[StreamGroup]:
    """The groups of ``share`` among all of its generation.

    Raises:
        ConfigInvalid: the share was made for another division of the streams.
    """
    if len(groups) != share.of:
        raise ConfigInvalid(
            f"{share.keyspace}.{share.table}: the generation that starts at {share.generation} has "
            f"{len(groups)} groups of streams, and the task's configuration was made for {share.of}; restart "
            "the connector"
        )
    return [
        replace(groups[number], begin_ms=share.begin, later=share.later)
        for number in parse_numbers(share.groups, share.of)
    ]
