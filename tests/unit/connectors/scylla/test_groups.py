"""Streams to groups and groups to tasks. Hypothesis: any tables, sizes and numbers of tasks; any sets of numbers as ranges."""

from __future__ import annotations

import random
import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from connectors.scylla.model import Generation, StreamGroup, TableId
from connectors.scylla.source.groups import (
    MOST_TABLET_GROUPS,
    Vnodes,
    add_streams,
    assign_groups,
    choose_groups,
    decode_shares,
    encode_share,
    format_ranges,
    of_table,
    parse_numbers,
    tablet_groups,
    token_of,
    vnode_groups,
    vnode_of,
)

TABLE = TableId("ks", "t")
GENERATION = Generation(1_000)


def stream(token: int, vnode: int = 0, noise: int = 0) -> bytes:
    return struct.pack(">qQ", token, noise << 26 | vnode << 4 | 1)


def cluster(vnodes: int, shards: int) -> Vnodes:
    chance = random.Random(7)
    ends = sorted(chance.randrange(-(1 << 62), 1 << 62) for _ in range(vnodes))
    streams_by_vnode: Vnodes = {}
    for index, end in enumerate(ends):
        add_streams(
            streams_by_vnode, end, [stream(end - shard, index, chance.getrandbits(38)) for shard in range(shards)]
        )
    return streams_by_vnode


def plain(count: int, table: TableId = TABLE) -> list[StreamGroup]:
    return [
        StreamGroup(table, GENERATION, str(index), False, (stream(index, index),), None, index)
        for index in range(count)
    ]


def test_vnode_index_is_22_bits_above_the_version() -> None:
    assert vnode_of(bytes.fromhex("11111111111111118888888888000001")) == 0
    assert vnode_of(stream(5, 0x3FFFFF, (1 << 38) - 1)) == 0x3FFFFF
    assert vnode_of(stream(-5, 17)) == 17


def test_large_cluster_has_one_group_per_vnode() -> None:
    groups = vnode_groups(TABLE, GENERATION, cluster(1024, 72))
    assert len(groups) == 1024
    assert sum(len(group.streams) for group in groups) == 73_728
    assert {len(group.streams) for group in groups} == {72}
    assert [group.index for group in groups] == list(range(1024))
    assert all(list(group.streams) == sorted(group.streams) for group in groups)


def test_token_ranges_of_vnodes_make_the_ring() -> None:
    groups = vnode_groups(TABLE, GENERATION, cluster(16, 3))
    edges = [group.token_range for group in groups]
    assert all(edge is not None for edge in edges)
    assert [edge[0] for edge in edges[1:]] == [edge[1] for edge in edges[:-1]]  # type: ignore[index]
    assert edges[0][0] == edges[-1][1]  # type: ignore[index]


def test_without_ranges_groups_go_by_index_and_have_no_tokens() -> None:
    vnodes: Vnodes = {}
    add_streams(vnodes, None, [stream(9, 2), stream(1, 10), stream(5, 2, 3)])
    groups = vnode_groups(TABLE, GENERATION, vnodes)
    assert [(group.name, len(group.streams), group.token_range) for group in groups] == [
        ("2", 2, None),
        ("10", 1, None),
    ]


def test_tablets_have_a_group_each_with_their_tokens() -> None:
    streams = [stream(token) for token in (-50, 1 << 60, 3)]
    groups = tablet_groups(TABLE, GENERATION, streams)
    assert [group.streams for group in groups] == [(stream(-50),), (stream(3),), (stream(1 << 60),)]
    assert [group.token_range for group in groups] == [(1 << 60, -50), (-50, 3), (3, 1 << 60)]
    assert [group.name for group in groups] == ["0x" + group.streams[0].hex() for group in groups]
    # The Java connector numbers streams in the order of signed bytes: negative first bytes first, as tokens go.
    assert [group.java_numbers for group in groups] == [((1 << 22),), ((1 << 22) + 1,), ((1 << 22) + 2,)]


def test_many_tablets_are_put_together_with_neighbours() -> None:
    streams = [stream(token) for token in range(-3000, 3000)]
    groups = tablet_groups(TABLE, GENERATION, streams)
    assert len(groups) == MOST_TABLET_GROUPS
    assert {len(group.streams) for group in groups} == {2, 3}
    assert sorted(member for group in groups for member in group.streams) == sorted(streams)
    for group in groups:
        after, upto = group.token_range or (0, 0)
        tokens = sorted(map(token_of, group.streams))
        assert tokens[-1] == upto
        assert group.index == 0 or after == tokens[0] - 1
    assert [group.name for group in groups] == [group.name for group in tablet_groups(TABLE, GENERATION, streams[::-1])]


@pytest.mark.parametrize("tasks", [1, 3, 5, 64, 1024, 5000])
def test_large_cluster_is_balanced(tasks: int) -> None:
    groups = vnode_groups(TABLE, GENERATION, cluster(1024, 2))
    shares = assign_groups(groups, tasks)
    assert len(shares) == min(tasks, 1024)
    sizes = {len(share) for share in shares}
    assert max(sizes) - min(sizes) <= 1
    assert [group for share in shares for group in share] == groups  # neighbours by token stay together


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(1, 100), st.randoms())
def test_shares_differ_by_at_most_one_group(sizes: list[int], tasks: int, chance: random.Random) -> None:
    groups = [group for number, size in enumerate(sizes) for group in plain(size, TableId("ks", f"t{number}"))]
    shuffled = list(groups)
    chance.shuffle(shuffled)
    shares = assign_groups(shuffled, tasks)
    assert Counter(group for share in shares for group in share) == Counter(groups)
    assert len(shares) == min(tasks, len(groups))
    if shares:
        counts = [len(share) for share in shares]
        assert min(counts) >= 1
        assert max(counts) - min(counts) <= 1
        for number in range(len(sizes)):
            of_one = [sum(group.table.table == f"t{number}" for group in share) for share in shares]
            assert max(of_one) - min(of_one) <= 1
            for share in shares:
                indexes = [group.index for group in share if group.table.table == f"t{number}"]
                assert indexes == list(range(indexes[0], indexes[0] + len(indexes))) if indexes else True
    assert assign_groups(groups, tasks) == shares


def test_a_new_generation_of_one_table_leaves_the_others_where_they_are() -> None:
    first, second = plain(10, TableId("ks", "a")), plain(7, TableId("ks", "b"))
    newer = Generation(2_000)
    later = [StreamGroup(group.table, newer, group.name, False, group.streams, None, group.index) for group in second]
    before, after = assign_groups(first + second, 3), assign_groups(first + later, 3)
    assert [[group for group in share if group.table.table == "a"] for share in before] == [
        [group for group in share if group.table.table == "a"] for share in after
    ]


@given(st.sets(st.integers(0, 3000)))
def test_ranges_are_read_back(numbers: set[int]) -> None:
    assert parse_numbers(format_ranges(numbers), 3001) == sorted(numbers)


@pytest.mark.parametrize("text", ["1-", "x", "5-9", "1;2", "-3"])
def test_bad_ranges_are_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        parse_numbers(text, 8)


def test_task_configuration_is_short_and_read_back() -> None:
    other = TableId("Ks", 'o;,"t')
    groups = vnode_groups(TABLE, GENERATION, cluster(1024, 2))
    everything = groups + of_table(groups, other)
    sizes = {TABLE: 1024, other: 1024}
    for tasks in (1, 5, 64):
        decoded = []
        for share in assign_groups(everything, tasks):
            text = encode_share(share, sizes)
            assert len(text) < 400
            for part in decode_shares(text):
                table = TableId(part.keyspace, part.table)
                decoded += choose_groups(part, of_table(groups, table))
        assert Counter(decoded) == Counter(everything)


def test_another_division_of_the_streams_is_noticed() -> None:
    groups = plain(8)
    (share,) = decode_shares(encode_share(groups[:3], {TABLE: 8}))
    with pytest.raises(ConfigInvalid, match="made for 8"):
        choose_groups(share, plain(9))
    with pytest.raises(ConfigInvalid, match=r"scylla\.task\.groups"):
        decode_shares("{")
