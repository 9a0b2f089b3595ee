"""Streams of the emulation's generations, its proxy's view of frames, and its tables' definitions."""

import itertools
import random
import struct
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.local.cassandra import node_settings
from compose.local.scylla.proxy import plain_options, refuse_version, rename_tables, rewrite_frame
from compose.local.scylla.schema import (
    EmulatedColumn,
    EmulatedTable,
    cdc_options,
    create_log,
    pack_extension,
    split_cdc,
    unpack_extension,
)
from compose.local.scylla.topology import (
    Ring,
    first_token,
    shard_of,
    stream_id,
    tablet_streams,
    token_of,
    vnode_of,
    vnode_streams,
)
from compose.local.scylla.wire import UNSET, pack_cells, pack_frame, parse_rows
from connectors.cql.types import parse_type
from worker.fetch.errors import StackError

TOKENS = st.integers(-(2**63), 2**63 - 1)


@given(TOKENS, TOKENS, st.integers(1, 128), st.data())
def test_the_first_token_of_a_shard_in_a_range(start: int, end: int, shards: int, data: st.DataObject) -> None:
    shard = data.draw(st.integers(0, shards - 1))
    token = first_token(start, end, shard, shards)
    inside = (token - start) % 2**64 or 2**64
    assert inside <= ((end - start) % 2**64 or 2**64)
    if shard_of(token, shards) == shard and inside > 1 and shards > 1 and token != end:
        assert shard_of((token - 1 + 2**63) % 2**64 - 2**63, shards) != shard


def test_a_large_cluster_has_one_stream_per_vnode_and_shard() -> None:
    vnodes = vnode_streams(256, 72, 4, seed=3)
    ends = [vnode.range_end for vnode in vnodes]
    assert (len(vnodes), len({stream for vnode in vnodes for stream in vnode.streams})) == (1024, 73_728)
    assert ends == sorted(ends)
    for index, vnode in enumerate(vnodes[:50]):
        for stream in vnode.streams:
            token, low = struct.unpack(">qQ", stream)
            assert vnode_of(token, ends) == index
            assert (low & 0xF, low >> 4 & 0x3FFFFF) == (1, index)


def test_nodes_may_differ_in_shards() -> None:
    vnodes = vnode_streams(8, [1, 3], 2, seed=1)
    assert Counter(len(vnode.streams) for vnode in vnodes) == {1: 8, 3: 8}
    with pytest.raises(ValueError, match="no cluster"):
        vnode_streams(8, [1, 3], 3)


@given(TOKENS)
def test_a_token_has_the_stream_of_its_vnode_and_shard(token: int) -> None:
    vnodes = vnode_streams(4, 5, 2, seed=9)
    ring = Ring(0, tuple(vnode.range_end for vnode in vnodes), tuple(vnode.streams for vnode in vnodes))
    stream = ring.stream(token)
    index = struct.unpack(">qQ", stream)[1] >> 4 & 0x3FFFFF
    low, high = vnodes[index - 1].range_end, vnodes[index].range_end
    assert (low < token <= high) if index else (token > low or token <= high)
    assert vnodes[index].streams[shard_of(token, 5)] == stream


def test_tablets_divide_the_ring_evenly() -> None:
    tablets = tablet_streams(8, seed=1)
    assert tablets[-1][0] == 2**63 - 1
    assert {second[0] - first[0] for first, second in itertools.pairwise(tablets)} == {2**61}
    with pytest.raises(ValueError, match="power of two"):
        tablet_streams(6)


def test_tokens_of_keys() -> None:
    # SELECT token(1), token(1, 'x') of a Cassandra
    assert token_of([struct.pack(">i", 1)]) == -4069959284402364209
    assert token_of([struct.pack(">i", 1), b"x"]) == token_of([struct.pack(">i", 1), b"x"])
    assert token_of([b"ab", b"c"]) != token_of([b"a", b"bc"])


def test_stream_ids_hold_the_largest_index() -> None:
    token, low = struct.unpack(">qQ", stream_id(-1, 2**22 - 1, random.Random(1)))
    assert (token, low >> 4 & 0x3FFFFF, low & 0xF) == (-1, 2**22 - 1, 1)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"SELECT * FROM system.cdc_streams", b"SELECT * FROM scylla_emulation.cdc_streams"),
        (b'select a from "system" . "cdc_timestamps" where', b"select a from scylla_emulation.cdc_timestamps where"),
        (b"SELECT * FROM SYSTEM_SCHEMA.Scylla_Keyspaces", b"SELECT * FROM scylla_emulation.scylla_keyspaces"),
        (b"SELECT a FROM system.cdc_streams_x", b"SELECT a FROM system.cdc_streams_x"),
        (b"SELECT a FROM mysystem.cdc_streams", b"SELECT a FROM mysystem.cdc_streams"),
        (b"SELECT * FROM system.scylla_keyspaces", b"SELECT * FROM system.scylla_keyspaces"),
    ],
)
def test_names_are_replaced(query: bytes, expected: bytes) -> None:
    assert rename_tables(query) == expected


def _request(opcode: int, query: bytes, rest: bytes = b"", payload: bytes = b"") -> bytes:
    frame = bytearray(pack_frame(5, opcode, payload + struct.pack(">i", len(query)) + query + rest))
    frame[1] = 0x04 if payload else 0
    return bytes(frame)


def test_only_the_text_of_a_request_changes() -> None:
    query, better = (
        b"SELECT * FROM system.cdc_streams WHERE a = ?",
        b"SELECT * FROM scylla_emulation.cdc_streams WHERE a = ?",
    )
    rest = b"\0\1\1" + pack_cells([b"system.cdc_streams", None, UNSET])
    assert rewrite_frame(_request(7, query, rest)) == _request(7, better, rest)
    payload = struct.pack(">H", 1) + b"\0\1k" + struct.pack(">i", 2) + b"vv"
    assert rewrite_frame(_request(9, query, b"", payload)) == _request(9, better, b"", payload)
    execute = _request(10, query)
    assert rewrite_frame(execute) is execute
    plain = _request(7, b"SELECT * FROM system.local")
    assert rewrite_frame(plain) is plain


def test_options_are_those_of_scylla() -> None:
    def text(value: bytes) -> bytes:
        return struct.pack(">H", len(value)) + value

    def body(*entries: tuple[bytes, list[bytes]]) -> bytes:
        parts = [text(key) + struct.pack(">H", len(values)) + b"".join(map(text, values)) for key, values in entries]
        return struct.pack(">H", len(entries)) + b"".join(parts)

    full = body(
        (b"PROTOCOL_VERSIONS", [b"3/v3", b"4/v4", b"5/v5"]), (b"COMPRESSION", [b"lz4"]), (b"CQL_VERSION", [b"3.4.7"])
    )
    reduced = body((b"PROTOCOL_VERSIONS", [b"3/v3", b"4/v4"]), (b"COMPRESSION", []), (b"CQL_VERSION", [b"3.4.7"]))
    assert plain_options(pack_frame(0, 6, full)) == pack_frame(0, 6, reduced)
    assert refuse_version(5)[:5] == bytes((0x84, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("cql", "text", "options"),
    [
        ("CREATE TABLE k.t (a int PRIMARY KEY)", "CREATE TABLE k.t (a int PRIMARY KEY)", None),
        (
            "CREATE TABLE k.t (a int PRIMARY KEY) WITH cdc = {'enabled': true, 'preimage': 'full'};",
            "CREATE TABLE k.t (a int PRIMARY KEY)",
            {"enabled": "true", "preimage": "full"},
        ),
        (
            "CREATE TABLE k.t (a int, b int, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (b DESC) AND cdc={'enabled':'true'}",
            "CREATE TABLE k.t (a int, b int, PRIMARY KEY (a, b)) WITH CLUSTERING ORDER BY (b DESC)",
            {"enabled": "true"},
        ),
        (
            "ALTER TABLE k.t WITH cdc = {'enabled': false} AND comment = 'x'",
            "ALTER TABLE k.t WITH comment = 'x'",
            {"enabled": "false"},
        ),
        ("ALTER TABLE k.t WITH cdc = {'ttl': 60}", "ALTER TABLE k.t", {"ttl": "60"}),
    ],
)
def test_cdc_options_are_taken_out_of_the_statement(cql: str, text: str, options: dict[str, str] | None) -> None:
    assert split_cdc(cql) == (text, options)


def test_unknown_cdc_options_are_refused() -> None:
    assert cdc_options({"enabled": "true"}, {"ttl": "5"}) == {
        "enabled": "true", "preimage": "false", "postimage": "false", "ttl": "5", "delta": "full",
    }  # fmt: skip
    with pytest.raises(StackError, match="no CDC option pre_image"):
        cdc_options({"pre_image": "true"}, {})


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=5))
def test_extensions_come_back(options: dict[str, str]) -> None:
    assert unpack_extension(pack_extension(options)) == options


def test_the_log_table() -> None:
    columns = (
        EmulatedColumn("p", parse_type("int"), "partition_key", 0),
        EmulatedColumn("l", parse_type("list<int>"), "regular"),
        EmulatedColumn("F", parse_type("frozen<set<text>>"), "regular"),
    )
    text = create_log(EmulatedTable("k", "t", columns, {}))
    assert text.startswith(
        'CREATE TABLE k.t_scylla_cdc_log ("cdc$stream_id" blob, "cdc$time" timeuuid, "cdc$batch_seq_no" int, '
        '"cdc$operation" tinyint, "cdc$ttl" bigint, "cdc$end_of_batch" boolean, "p" int, '
        '"l" frozen<map<timeuuid, int>>, "cdc$deleted_l" boolean, "cdc$deleted_elements_l" frozen<set<timeuuid>>, '
        '"F" frozen<set<text>>, "cdc$deleted_F" boolean, PRIMARY KEY (("cdc$stream_id"), "cdc$time", "cdc$batch_seq_no"))'
    )


def test_answers_without_rows_have_none() -> None:
    assert parse_rows(struct.pack(">i", 1)) == ([], None)


def test_settings_of_a_node() -> None:
    settings = node_settings(
        Path("/x"), host="127.0.0.2", port=1, storage_port=2, seeds=["127.0.0.1:2"], tokens="0,5", cdc=True
    )
    assert (settings["num_tokens"], settings["initial_token"]) == (2, "0,5")
    assert settings["seed_provider"][0]["parameters"] == [{"seeds": "127.0.0.1:2"}]
    assert all(str(settings[name]).startswith("/x/") for name in ("commitlog_directory", "cdc_raw_directory"))
