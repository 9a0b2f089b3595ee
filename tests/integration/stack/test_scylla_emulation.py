"""The Scylla emulation: its system tables, what it logs, tablets by way of its proxy, topology changes, failures."""

# ruff: noqa: S608  # names are the tests' own

import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import Cluster, Session

from compose.local.cassandra import CassandraNode, speaks_cql
from compose.local.scylla.bulk import fill_log
from compose.local.scylla.client import Emulation, Logged
from compose.local.scylla.dress import connect_session
from compose.local.scylla.emulation import ScyllaEmulation
from compose.local.scylla.topology import shard_of, token_of
from compose.local.scylla.wire import CqlError, WireConnection
from compose.local.scylla.writes import (
    Add,
    Append,
    Delete,
    DeleteRange,
    Insert,
    Prepend,
    Remove,
    SetAt,
    Update,
    uuid_ticks,
)
from connectors.cql.types import parse_type, udt_resolver
from connectors.cql.values import make_decoder
from tests.support.eventually import eventually
from tests.support.patient_cql import PATIENT
from worker.fetch.errors import StackError
from worker.fetch.java import FAST_START

Keyspace = Callable[..., str]
SLOW = pytest.mark.slow
TABLE = (
    "pk int, ck int, v text, n bigint, m map<text, int>, l list<int>, s set<text>, st text static, sl list<int> static, "
    "f frozen<list<int>>, u addr, PRIMARY KEY ((pk), ck)"
)
IMAGES = "cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}"


@pytest.fixture(autouse=True)
def emulated(request: pytest.FixtureRequest) -> None:
    if "scylla" in request.fixturenames and not request.getfixturevalue("scylla").emulated:
        pytest.skip("these tests are about the emulation, not about a real Scylla")


@pytest.fixture
def session(scylla: Emulation) -> Iterator[Session]:
    """A driver's session by way of the proxy."""
    cluster, session = connect_session(scylla.address)
    with cluster:
        yield session


def make(scylla: Emulation, keyspace: str, tail: str = IMAGES, columns: str = TABLE) -> str:
    scylla.create_type(f"CREATE TYPE IF NOT EXISTS {keyspace}.addr (street text, zip int)")
    scylla.create_table(f"CREATE TABLE {keyspace}.t ({columns}) WITH {tail}")
    return f"{keyspace}.t"


def test_a_driver_sees_what_scylla_has(scylla: Emulation, session: Session) -> None:
    assert session.cluster.protocol_version == 4
    starts = scylla.generations()
    times = session.execute("SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'")
    assert len(list(times)) == len(starts) >= 1
    statement = session.prepare("SELECT streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?")
    sets = [row["streams"] for row in session.execute(statement, [starts[-1]])]
    assert sets
    assert all(len(stream) == 16 for streams in sets for stream in streams)
    for table in ("system.cdc_local", "system.cdc_streams", "system_schema.scylla_keyspaces"):
        list(session.execute(f"SELECT * FROM {table}"))


def test_newer_protocols_and_compression_are_not_offered(scylla: Emulation) -> None:
    host, _, port = scylla.address.rpartition(":")
    with Cluster([host], port=int(port), protocol_version=4, compression=True, **PATIENT) as cluster:
        session = cluster.connect()
        assert session.execute("SELECT key FROM system.local").one()[0] == "local"
    with Cluster([host], port=int(port), **PATIENT) as cluster:
        cluster.connect()
        assert cluster.protocol_version == 4


def test_changes_and_their_log(scylla: Emulation, scylla_keyspace: Keyspace) -> None:
    table = make(scylla, scylla_keyspace())
    applied = scylla.apply(
        Insert(table, {"pk": 1, "ck": 1, "v": "a", "l": [1, 2]}),
        Insert(table, {"pk": 2, "ck": 1, "v": "b"}, ttl=500),
        timestamp_us=1_000_000 * int(time.time()) + 7,
    )
    assert [len(change.rows) for change in applied.logged] == [2, 2]
    assert len({change.time for change in applied.logged}) == 2
    assert {uuid_ticks(change.time) for change in applied.logged} == {applied.timestamp_us * 10}
    rows = scylla.log_cells(table)
    assert len(rows) == 4
    for logged in applied.logged:
        stored = [row for row in rows if row["cdc$time"] == logged.time]
        assert stored == [dict(row, **{"cdc$stream_id": logged.stream, "cdc$time": logged.time}) for row in logged.rows]
    (ttls,) = scylla.execute(
        f'SELECT min(ttl("cdc$operation")) AS low, max(writetime("cdc$operation")) AS time FROM {table}_scylla_cdc_log'
    )
    assert 86_000 < int.from_bytes(ttls["low"] or b"", "big") <= 86_400
    assert int.from_bytes(ttls["time"] or b"", "big") == applied.timestamp_us
    assert {row["v"] for row in scylla.base_rows(table)} == {"a", "b"}


def test_conditions(scylla: Emulation, scylla_keyspace: Keyspace) -> None:
    table = make(scylla, scylla_keyspace())
    key = {"pk": 1, "ck": 1}
    assert scylla.apply(Insert(table, {**key, "v": "a"}, condition="not exists")).applied
    assert not scylla.apply(Insert(table, {**key, "v": "b"}, condition="not exists")).applied
    assert not scylla.apply(Update(table, key, {"n": 2}, condition={"v": "b"})).applied
    assert scylla.apply(Update(table, key, {"n": 2}, condition={"v": "a", "n": None})).applied
    assert not scylla.apply(Delete(table, {"pk": 1, "ck": 2}, condition="exists")).applied
    assert scylla.apply(Delete(table, key, condition="exists")).applied
    deltas = [row["cdc$operation"][0] for row in scylla.log_cells(table) if row["cdc$operation"][0] not in {0, 9}]
    assert deltas == [2, 1, 3]


def test_ranges_behind_a_fixed_column_whose_orders_differ(scylla: Emulation, scylla_keyspace: Keyspace) -> None:
    table = f"{scylla_keyspace()}.t"
    scylla.create_table(
        f"CREATE TABLE {table} (pk int, a int, b int, l list<int>, PRIMARY KEY (pk, a, b)) "
        "WITH CLUSTERING ORDER BY (a ASC, b DESC) AND cdc = {'enabled': true}"
    )
    rows = [Insert(table, {"pk": 1, "a": a, "b": b, "l": [a, b]}) for a in range(2) for b in range(4)]
    scylla.apply(*rows)
    scylla.apply(DeleteRange(table, {"pk": 1, "a": 0}, lower=2))
    scylla.apply(DeleteRange(table, {"pk": 1, "a": 1}, lower=0, upper=2, lower_inclusive=False))
    assert {(row["a"], row["b"]) for row in scylla.base_rows(table)} == {(0, 0), (0, 1), (1, 0), (1, 3)}


def test_timestamps_decide_in_the_base_table(scylla: Emulation, scylla_keyspace: Keyspace) -> None:
    table = make(scylla, scylla_keyspace(), "cdc = {'enabled': true}")
    now = int(time.time() * 1e6)
    scylla.apply(Insert(table, {"pk": 1, "ck": 1, "v": "late"}), timestamp_us=now)
    # A writer whose clock is behind: it is logged, but loses.
    scylla.apply(Insert(table, {"pk": 1, "ck": 1, "v": "early"}, timestamp_us=now - 60_000_000))
    assert [row["v"] for row in scylla.base_rows(table)] == ["late"]
    assert [row["v"] for row in scylla.log_cells(table)] == [b"early", b"late"]
    with pytest.raises(StackError, match="no generation"):
        scylla.apply(Insert(table, {"pk": 1, "ck": 1}), timestamp_us=1)


def random_write(chance: random.Random, table: str) -> Any:
    key = {"pk": chance.randrange(2), "ck": chance.randrange(3)}
    pick = chance.randrange
    value: Any = chance.choice([
        {"v": chance.choice(["x", "yy", None])},
        {"n": pick(100), "f": [pick(9)]},
        {"m": chance.choice([{"a": pick(9)}, Add({"b": pick(9)}), Remove(["a"]), SetAt("c", pick(9)), SetAt("a", None), None])},
        {"s": chance.choice([["p"], Add(["q", "r"]), Remove(["q"]), []])},
        {"l": chance.choice([[1, 2], Append([pick(9)]), Prepend([pick(9), 7]), Remove([1, 7]), None])},
        {"u": chance.choice([{"street": "S", "zip": None}, SetAt("zip", pick(9)), SetAt("street", None), None])},
        {"st": chance.choice(["s", None])},
        {"sl": chance.choice([[3], Append([pick(9)]), Prepend([pick(9)])])},
    ])  # fmt: skip
    kind = pick(12)
    if kind == 0:
        return Delete(table, key)
    if kind == 1:
        return Delete(table, {"pk": key["pk"]})
    if kind == 2:
        return DeleteRange(table, {"pk": key["pk"]}, lower=1, lower_inclusive=chance.random() < 0.5)
    if kind < 6 and not any(isinstance(cell, Append | Prepend | Remove | SetAt) for cell in value.values()):
        return Insert(table, {**key, **value})
    return Update(table, {"pk": key["pk"]} if value.keys() & {"st", "sl"} else key, value)


@pytest.mark.parametrize("seed", range(3))
def test_postimages_are_what_cassandra_has(scylla: Emulation, scylla_keyspace: Keyspace, seed: int) -> None:
    """Any sequence of writes: each row's postimage is the row that the server then has, and its preimage the one before."""
    keyspace = scylla_keyspace()
    table = make(scylla, keyspace)
    definitions = {"addr": (["street", "zip"], ["text", "int"])}
    resolve = udt_resolver(keyspace, definitions)
    decode = {
        name: make_decoder(parse_type(kind, resolve, keyspace=keyspace))
        for name, kind in scylla.table(table).log_columns.items()
    }
    lists = {"l", "sl"}

    def shown(row: dict[str, bytes]) -> dict[str, Any]:
        values = {name: decode[name](cell) for name, cell in row.items() if name in decode}
        return {
            name: [element["value"] for element in value] if name in lists else value for name, value in values.items()
        }

    chance = random.Random(seed)
    before: dict[tuple[int, int], dict[str, Any]] = {}
    for _ in range(60):
        applied = scylla.apply(random_write(chance, table))
        after = {(row["pk"], row["ck"]): row for row in scylla.base_rows(table)}
        for row in (row for logged in applied.logged for row in logged.rows if row["cdc$operation"][0] in {0, 9}):
            image = shown(row)
            there = before if row["cdc$operation"][0] == 0 else after
            if "ck" in image:
                shown_row = there.get((image["pk"], image["ck"]))
                if shown_row is None:
                    # An update that leaves only nulls: the row is gone for readers.
                    assert row["cdc$operation"][0] == 9
                    assert set(image) == {"pk", "ck"}
                    continue
                expected = {
                    name: value for name, value in shown_row.items() if value is not None and name not in {"st", "sl"}
                }
            else:
                shown_row = next((row for row in there.values() if row["pk"] == image["pk"]), None)
                if shown_row is None:
                    continue
                expected = {name: shown_row[name] for name in ("pk", "st", "sl") if shown_row[name] is not None}
            assert image == expected
        before = after


def test_schema_changes_reach_the_log(scylla: Emulation, scylla_keyspace: Keyspace, session: Session) -> None:
    keyspace = scylla_keyspace()
    table = make(scylla, keyspace)
    scylla.alter_table(f"ALTER TABLE {table} ADD (x int, y list<text>)")
    scylla.alter_table(f"ALTER TABLE {table} DROP n")
    scylla.alter_type(f"ALTER TYPE {keyspace}.addr ADD country text")
    scylla.alter_table(f"ALTER TABLE {table} WITH cdc = {{'enabled': true, 'ttl': 60}}")
    scylla.apply(Insert(table, {"pk": 1, "ck": 1, "x": 5, "y": ["a"], "u": {"country": "NL"}}))
    (row,) = [row for row in scylla.log_cells(table) if row["cdc$operation"] == b"\x02"]
    assert {"x", "y", "u", "cdc$deleted_y"} <= set(row)
    assert scylla.table(table).options["ttl"] == "60"
    assert scylla.table(table).preimage == "full"
    names = {
        row["column_name"]
        for row in session.execute(
            "SELECT column_name FROM system_schema.columns WHERE keyspace_name = %s AND table_name = 't_scylla_cdc_log'",
            [keyspace],
        )
    }
    assert {"x", "cdc$deleted_x", "cdc$deleted_elements_y"} <= names
    assert not {"n", "cdc$deleted_n"} & names
    scylla.alter_table(f"ALTER TABLE {table} WITH cdc = {{'enabled': false}}")
    assert not scylla.apply(Insert(table, {"pk": 2, "ck": 1, "x": 5})).logged
    scylla.drop_table(table)
    with pytest.raises(StackError, match="no table"):
        scylla.table(table)
    recreated = make(scylla, keyspace)
    assert scylla.apply(Insert(recreated, {"pk": 1, "ck": 1, "n": 1})).logged


def test_tablets(scylla: Emulation, scylla_keyspace: Keyspace, session: Session) -> None:
    keyspace = scylla_keyspace(tablets=True, initial_tablets=4)
    table = make(scylla, keyspace)
    keyspace_row = session.execute(
        "SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = %s", [keyspace]
    ).one()
    assert keyspace_row["initial_tablets"] == 4
    first = scylla.apply(Insert(table, {"pk": 1, "ck": 1})).logged[0]
    # Later than the first, and still before now for the next write.
    second = scylla.split_tablets(table, 8, start_ms=uuid_ticks(first.time) // 10_000 + 1)
    later = scylla.apply(Insert(table, {"pk": 1, "ck": 1}), timestamp_us=second * 1000 + 500).logged[0]
    times = session.execute(
        "SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = %s AND table_name = 't' ORDER BY timestamp ASC",
        [keyspace],
    )
    starts = [row["timestamp"] for row in times]
    assert len(starts) == 2
    streams = session.prepare(
        "SELECT stream_id FROM system.cdc_streams"
        " WHERE keyspace_name = ? AND table_name = ? AND timestamp = ? AND stream_state = ?"
    )
    states = [
        [{row["stream_id"] for row in session.execute(streams, [keyspace, "t", start, state])} for state in range(3)]
        for start in starts
    ]
    assert [len(group) for group in states[0]] == [4, 0, 0]
    assert [len(group) for group in states[1]] == [8, 4, 8]
    assert states[1][1] == states[0][0]
    assert states[1][2] == states[1][0]
    assert first.stream in states[0][0]
    assert later.stream in states[1][0]


def test_a_new_generation_takes_the_changes_from_its_start(
    scylla: Emulation, scylla_keyspace: Keyspace, session: Session
) -> None:
    table = make(scylla, scylla_keyspace())
    earlier = scylla.generations()[-1]
    start = scylla.new_generation(
        vnodes=3, shards=[2, 5], nodes=2, start_ms=max(int(time.time() * 1000), earlier + 1000)
    )
    try:
        writes = [Insert(table, {"pk": number, "ck": 0}) for number in range(40)]
        old = scylla.apply(*writes, timestamp_us=start * 1000 - 1).logged
        new = scylla.apply(*writes, timestamp_us=start * 1000).logged
        described = session.prepare(
            "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?"
        )
        vnodes = {row["range_end"]: row["streams"] for row in session.execute(described, [start])}
        assert sorted(len(streams) for streams in vnodes.values()) == [2, 2, 2, 5, 5, 5]
        ends = sorted(vnodes)
        for logged in new:
            token = token_of([logged.rows[0]["pk"]])
            streams = vnodes[next((end for end in ends if token <= end), ends[0])]
            assert logged.stream in streams
            stream_token = struct.unpack(">q", logged.stream[:8])[0]
            assert shard_of(stream_token, len(streams)) == shard_of(token, len(streams)) or stream_token in ends
        assert not {change.stream for change in old} & {change.stream for change in new}
        expired = session.execute(
            "SELECT time, expired FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
        )
        assert {row["expired"] is None for row in list(expired)[:1]} == {True}
    finally:
        scylla.expire_generation(start)
    assert start not in scylla.generations()


def test_no_change_misses_a_generation_that_begins_while_it_is_written(
    scylla: Emulation, scylla_keyspace: Keyspace
) -> None:
    table = make(scylla, scylla_keyspace())
    generations: list[int] = []
    logged: list[Logged] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            logged.extend(scylla.apply(*(Insert(table, {"pk": number, "ck": 0}) for number in range(5))).logged)

    with ThreadPoolExecutor(1) as threads:
        writer = threads.submit(write)
        try:
            for _ in range(10):
                before = len(logged)
                generations.append(scylla.new_generation(vnodes=2, shards=2))
                eventually(
                    lambda before=before: writer.done() or len(logged) >= before + 10,  # type: ignore[misc]
                    "ten more rows are written",
                    30,
                )
        finally:
            stop.set()
    writer.result()
    streams = {
        start: {stream for vnode in scylla.ring(table, start).streams for stream in vnode} for start in generations
    }
    try:
        for change in logged:
            started = [start for start in generations if start <= uuid_ticks(change.time) // 10_000]
            assert not started or change.stream in streams[started[-1]], change
        assert len(logged) >= 100
    finally:
        for start in generations:
            scylla.expire_generation(start)


def test_pages_pass_through_the_proxy(scylla: Emulation, scylla_keyspace: Keyspace) -> None:
    keyspace = scylla_keyspace()
    table = f"{keyspace}.b"
    scylla.create_table(f"CREATE TABLE {table} (pk bigint PRIMARY KEY, a text, b blob) WITH cdc = {{'enabled': true}}")
    filled = fill_log(scylla, table, 12_000)
    assert filled.rows == 12_000
    query = f"SELECT * FROM {table}_scylla_cdc_log"
    proxied, direct = WireConnection(scylla.address), WireConnection(scylla.direct)
    through, straight = proxied.query(query), direct.query(query)
    proxied.close()
    direct.close()
    assert len(through) == 12_000
    assert through == straight
    assert {int.from_bytes(row["pk"] or b"", "big") for row in through} == set(range(12_000))
    ring = scylla.ring(table, filled.start_us // 1000)
    assert {row["cdc$stream_id"] for row in through} == {stream for streams in ring.streams for stream in streams}


def test_what_is_large_fits(scylla: Emulation, scylla_keyspace: Keyspace) -> None:
    table = make(scylla, scylla_keyspace(), "cdc = {'enabled': true}")
    scylla.apply(Insert(table, {"pk": 1, "ck": 1, "v": "x" * (16 << 20)}))
    assert [len(row["v"]) for row in scylla.log_cells(table)] == [16 << 20]


def test_errors_name_the_request(scylla: Emulation) -> None:
    with pytest.raises(CqlError, match="SELECT nothing") as error:
        scylla.execute("SELECT nothing")
    assert error.value.code == 0x2000


@pytest.mark.slow
def test_killed_and_paused(scylla_node: ScyllaEmulation) -> None:
    client = Emulation(scylla_node.address)
    client.create_keyspace("k")
    client.create_table("CREATE TABLE k.t (pk int PRIMARY KEY, v text) WITH cdc = {'enabled': true}")
    client.apply(Insert("k.t", {"pk": 1, "v": "a"}))
    port = int(scylla_node.address.rpartition(":")[2])
    scylla_node.pause()
    assert not speaks_cql(port, timeout=0.5)
    scylla_node.resume()
    eventually(lambda: speaks_cql(port), "the node answers", 20)
    scylla_node.kill()
    assert not speaks_cql(port)
    with pytest.raises(ConnectionError):
        client.execute("SELECT * FROM system.local")
    scylla_node.start()
    assert len(client.log_cells("k.t")) == 1
    assert client.table("k.t").enabled
    client.apply(Insert("k.t", {"pk": 2, "v": "b"}))
    assert len(client.log_cells("k.t")) == 2
    client.close()
    scylla_node.stop()
    scylla_node.start()
    assert len(Emulation(scylla_node.address).log_cells("k.t")) == 2


@SLOW
@pytest.mark.parametrize("streams", ["v1", "both"])
def test_older_descriptions_of_streams(tmp_path: Path, streams: Any) -> None:
    with ScyllaEmulation(tmp_path, port=None, streams=streams, jvm_options=FAST_START) as node:
        cluster, session = connect_session(node.address)
        with cluster:
            row = session.execute(
                "SELECT time, streams, expired FROM system_distributed.cdc_streams_descriptions"
            ).one()
            assert len(row["streams"]) == 8
            rewritten = session.execute("SELECT * FROM system.cdc_local WHERE key = 'rewritten'").one()
            names = cluster.metadata.keyspaces["system_distributed"].tables
            assert ("cdc_streams_descriptions_v2" in names) == (streams == "both") == (rewritten is not None)


@SLOW
def test_several_cassandras_form_a_cluster(tmp_path: Path) -> None:
    first = CassandraNode(tmp_path / "1", port=None, tokens=str(-(2**62)), jvm_options=FAST_START)
    with first:
        second = CassandraNode(
            tmp_path / "2", port=first.port, host="127.0.0.2", storage_port=first.storage_port,
            seeds=[f"127.0.0.1:{first.storage_port}"], tokens=str(2**62), jvm_options=FAST_START,
        )  # fmt: skip
        with second:
            assert second.address == f"127.0.0.2:{first.port}"
            client = WireConnection(first.address)
            eventually(lambda: len(client.query("SELECT peer FROM system.peers")) == 1, "one node is left", 30)
            client.close()
