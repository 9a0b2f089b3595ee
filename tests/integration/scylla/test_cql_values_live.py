# ruff: noqa: S608 - names of keyspaces are our own
"""Every CQL type through a real server: written with the driver or as a literal, read through `CqlSession.page`.

A server is that of the fixture `scylla`, or the one that `MILLRACE_TEST_CQL=host:port` names.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from connectors.cql.cluster.session import CqlSession, QueryStats, SchemaChanged, SessionSettings
from connectors.cql.encoding import encode_partition_key
from connectors.cql.types import (
    RAW,
    CqlType,
    parse_type,
    raw_timeuuids,
    same_on_the_wire,
    timed_list,
    to_text,
    udt_resolver,
)
from connectors.errors import Fatal
from tests.support.settings import cql_session


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest) -> str:
    named = os.environ.get("MILLRACE_TEST_CQL")
    return named or str(request.getfixturevalue("scylla").address)


@pytest.fixture
def settings(address: str) -> SessionSettings:
    host, _, port = address.rpartition(":")
    return cql_session(contact_points=((host, int(port)),))


@pytest.fixture
async def session(settings: SessionSettings) -> AsyncIterator[CqlSession]:
    session = await CqlSession.acquire(settings)
    yield session
    await session.release()


@pytest.fixture
async def keyspace(session: CqlSession) -> AsyncIterator[str]:
    name = "cql_" + secrets.token_hex(4)
    await session.query(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    for ddl in (
        "CREATE TYPE {0}.addr (street text, zip int)",
        'CREATE TYPE {0}."Odd ""Type" ("Home.Addr" frozen<addr>, tags set<text>)',
    ):
        await session.query(ddl.format(name))
    yield name
    await session.query(f"DROP KEYSPACE {name}")


UUID1 = "50554d6e-29bb-11e5-b345-feff819cdc9f"
LIVE: list[tuple[str, str, Any]] = [
    ("ascii", "'asc'", "asc"),
    ("ascii", "''", ""),
    ("bigint", "9223372036854775807", (1 << 63) - 1),
    ("blob", "0xcafe00ff", b"\xca\xfe\x00\xff"),
    ("blob", "0x", b""),
    ("boolean", "false", False),
    ("date", "'2024-02-29'", 19782),
    ("date", "'1582-10-14'", -141428),
    ("date", "'-5877641-06-23'", -(1 << 31)),
    ("date", "2147483648", 0),
    ("decimal", "1.2300", "1.2300"),
    ("decimal", "1E+3", "1E+3"),
    ("decimal", "-0.00000012", "-1.2E-7"),
    ("double", "-0.0", -0.0),
    ("double", "Infinity", float("inf")),
    ("duration", "1y2mo3w4d5h6m7s8ms9us10ns", "1y2mo25d5h6m7s8ms9us10ns"),
    ("duration", "-2mo3d", "-2mo3d"),
    ("float", "2.25", 2.25),
    ("inet", "'127.0.0.1'", "127.0.0.1"),
    ("inet", "'2001:db8::ff00:42:8329'", "2001:db8:0:0:0:ff00:42:8329"),
    ("int", "-2147483648", -(1 << 31)),
    ("int", "blobAsInt(0x)", None),
    ("smallint", "-32768", -32768),
    ("text", "'hé☃𝄞'", "hé☃𝄞"),
    ("text", "''", ""),
    ("time", "'13:45:59.123456789'", 49_559_123_456_789),
    ("timestamp", "'2024-02-29T12:34:56.789Z'", 1709210096789),
    ("timestamp", "-62135596800001", -62135596800001),
    ("timeuuid", UUID1, UUID1),
    ("tinyint", "-128", -128),
    ("uuid", "123E4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
    ("varchar", "'v'", "v"),
    ("varint", "-123456789012345678901234567890", "-123456789012345678901234567890"),
    ("list<int>", "[3, 1, 2]", [3, 1, 2]),
    ("frozen<list<int>>", "[]", []),
    ("set<text>", "{'b', 'a'}", ["a", "b"]),
    ("map<int, text>", "{2: 'b', 1: 'a'}", [{"key": 1, "value": "a"}, {"key": 2, "value": "b"}]),
    ("frozen<map<timeuuid, frozen<list<int>>>>", "{" + UUID1 + ": [1]}", [{"key": UUID1, "value": [1]}]),
    ("tuple<int, text, frozen<list<int>>>", "(1, 'x', [7])", {"field_0": 1, "field_1": "x", "field_2": [7]}),
    ("tuple<int, text>", "(null, 'x')", {"field_0": None, "field_1": "x"}),
    ("addr", "{street: 's'}", {"street": "s", "zip": None}),
    (
        'frozen<"Odd ""Type">',
        "{\"Home.Addr\": {street: 's', zip: 5}, tags: {'t'}}",
        {"Home.Addr": {"street": "s", "zip": 5}, "tags": ["t"]},
    ),
    ("vector<float, 3>", "[1.5, -2, 0]", [1.5, -2.0, 0.0]),
    ("vector<text, 2>", "['a', '']", ["a", ""]),
    ("vector<smallint, 2>", "[1, -1]", [1, -1]),
    ("vector<tinyint, 2>", "[1, -1]", [1, -1]),
    ("vector<date, 1>", "['1970-01-02']", [1]),
    ("vector<time, 1>", "['00:00:00.000000001']", [1]),
    ("vector<boolean, 2>", "[true, false]", [True, False]),
    ("vector<uuid, 1>", f"[{UUID1}]", [UUID1]),
    ("vector<bigint, 1>", "[-1]", [-1]),
    ("vector<timestamp, 1>", "[5]", [5]),
    ("vector<double, 1>", "[0.5]", [0.5]),
    ("vector<decimal, 1>", "[1.50]", ["1.50"]),
    ("vector<inet, 1>", "['::1']", ["0:0:0:0:0:0:0:1"]),
    ("vector<frozen<list<int>>, 1>", "[[1, 2]]", [[1, 2]]),
    ("vector<vector<int, 2>, 2>", "[[1, 2], [3, 4]]", [[1, 2], [3, 4]]),
    ("vector<vector<text, 1>, 2>", "[['a'], ['b']]", [["a"], ["b"]]),
    ("vector<frozen<addr>, 1>", "[{street: 's', zip: 1}]", [{"street": "s", "zip": 1}]),
    ("vector<tuple<int, text>, 1>", "[(1, 'x')]", [{"field_0": 1, "field_1": "x"}]),
    ("'org.apache.cassandra.db.marshal.LexicalUUIDType'", "0x" + "0a" * 16, b"\x0a" * 16),
]


async def test_every_type(session: CqlSession, keyspace: str) -> None:
    kinds: list[str] = []
    for text, _, _ in LIVE:
        if text not in kinds:
            kinds.append(text)
    columns = ", ".join(f"c{index} {text}" for index, text in enumerate(kinds))
    await session.query(f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, {columns})")
    for number, (text, literal, _) in enumerate(LIVE):
        await session.query(f"INSERT INTO {keyspace}.t (pk, c{kinds.index(text)}) VALUES ({number}, {literal})")
    await session.query(f"INSERT INTO {keyspace}.t (pk) VALUES (-1)")

    # What system_schema says of the columns and of UDTs is understood, and agrees with what results say.
    definitions = {
        row["type_name"]: (row["field_names"], row["field_types"])
        for row in await session.query(
            "SELECT type_name, field_names, field_types FROM system_schema.types WHERE keyspace_name = ?", (keyspace,)
        )
    }
    resolve = udt_resolver(keyspace, definitions)
    stored = {
        row["column_name"]: row["type"]
        for row in await session.query(
            "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = ? AND table_name = 't'",
            (keyspace,),
        )
    }
    types = [parse_type(stored[f"c{index}"], resolve, keyspace=keyspace) for index in range(len(kinds))]
    for kind, text in zip(types, kinds, strict=True):
        assert same_on_the_wire(kind, parse_type(text, resolve, keyspace=keyspace)), text
        assert kind.is_multicell == parse_type(text, resolve, keyspace=keyspace).is_multicell
        assert parse_type(to_text(kind), resolve, keyspace=keyspace) == kind

    names = ", ".join(f"c{index}" for index in range(len(kinds)))
    query = f"SELECT {names} FROM {keyspace}.t WHERE pk = ?"
    for requested_types in (types, None):
        for number, (text, _, value) in enumerate(LIVE):
            page = await session.page(query, (number,), fetch_size=10, types=requested_types, consistency="ONE")
            (row,) = page.rows
            assert row[kinds.index(text)] == value, text
            assert type(row[kinds.index(text)]) is type(value), text
            assert all(other is None for index, other in enumerate(row) if index != kinds.index(text)), text
        assert (await session.page(query, (-1,), fetch_size=10, types=requested_types)).rows == [(None,) * len(kinds)]

    # Values that were read can be bound again, and come back as they were.
    table = ", ".join("?" for _ in kinds)
    for number, (text, _, value) in enumerate(LIVE):
        cells = [value if index == kinds.index(text) else None for index in range(len(kinds))]
        await session.page(
            f"INSERT INTO {keyspace}.t (pk, {names}) VALUES (?, {table})", (1000 + number, *cells), fetch_size=1
        )
        (row,) = (await session.page(query, (1000 + number,), fetch_size=1, types=types)).rows
        assert row[kinds.index(text)] == value, text


async def test_counters_and_raw_cells(session: CqlSession, keyspace: str) -> None:
    await session.query(f"CREATE TABLE {keyspace}.c (pk blob PRIMARY KEY, n counter)")
    await session.query(f"UPDATE {keyspace}.c SET n = n - 7 WHERE pk = 0x0a0b")
    text = f"SELECT pk, n, token(pk) FROM {keyspace}.c WHERE pk IN ?"
    page = await session.page(text, ([b"\x0a\x0b", b"\x0c"],), fetch_size=10)
    assert page.rows[0][:2] == (b"\x0a\x0b", -7)
    raw = await session.page(text, ([b"\x0a\x0b"],), fetch_size=10, types=(None, RAW, None), token=5)
    assert raw.rows[0][1] == (-7).to_bytes(8, "big", signed=True)
    assert int.from_bytes(raw.rows[0][2], "big", signed=True) == page.rows[0][2]


async def test_partition_keys_hash_as_the_servers_do(session: CqlSession, keyspace: str) -> None:
    from cassandra.metadata import Murmur3Token

    await session.query(
        f"CREATE TABLE {keyspace}.k (a int, b text, c timeuuid, d frozen<list<int>>, PRIMARY KEY ((a, b, c, d)))"
    )
    await session.query(f"INSERT INTO {keyspace}.k (a, b, c, d) VALUES (1, 'é', {UUID1}, [1, 2])")
    ((token, *values),) = (
        await session.page(f"SELECT token(a, b, c, d), a, b, c, d FROM {keyspace}.k", (), fetch_size=1)
    ).rows
    key = encode_partition_key([parse_type(text) for text in ("int", "text", "timeuuid", "frozen<list<int>>")], values)
    assert Murmur3Token.from_key(key).value == token


async def test_logged_lists(session: CqlSession, keyspace: str) -> None:
    await session.query(
        f"CREATE TABLE {keyspace}.l (pk int PRIMARY KEY, l frozen<map<timeuuid, frozen<addr>>>, "
        "d frozen<set<timeuuid>>)"
    )
    older, newer = "ffffffff-29bb-11e5-b345-feff819cdc9f", "00000000-29bc-11e5-b345-feff819cdc9f"
    await session.query(
        f"INSERT INTO {keyspace}.l (pk, l, d) VALUES (1, {{{newer}: {{zip: 2}}, {older}: {{zip: 1}}}}, {{{older}}})"
    )
    addr = CqlType(
        "udt", (CqlType("text"), CqlType("int")), keyspace=keyspace, udt_name="addr", field_names=("street", "zip")
    )
    page = await session.page(
        f"SELECT l, d FROM {keyspace}.l", (), fetch_size=5, types=(timed_list(addr), raw_timeuuids())
    )
    assert [(name.hex(), cell["zip"]) for name, cell in page.rows[0][0]] == [
        (older.replace("-", ""), 1),
        (newer.replace("-", ""), 2),
    ]
    assert page.rows[0][1] == [bytes.fromhex(older.replace("-", ""))]


async def test_paging(session: CqlSession, keyspace: str) -> None:
    await session.query(f"CREATE TABLE {keyspace}.p (pk int, ck int, v text, PRIMARY KEY (pk, ck))")
    insert = f"INSERT INTO {keyspace}.p (pk, ck, v) VALUES (?, ?, ?)"
    await asyncio.gather(*(session.page(insert, (1, number, f"v{number}"), fetch_size=1) for number in range(105)))
    text, stats = f"SELECT ck, v FROM {keyspace}.p WHERE pk = ?", QueryStats()
    states: list[bytes | None] = [None]
    rows: list[tuple[Any, ...]] = []
    while len(states) == 1 or states[-1] is not None:
        page = await session.page(text, (1,), fetch_size=10, state=states[-1], stats=stats)
        rows += page.rows
        assert len(page.rows) <= 10
        assert page.bytes > 0 or not page.rows
        states.append(page.state)
    assert rows == [(number, f"v{number}") for number in range(105)]
    assert (stats.queries, stats.rows, stats.errors, stats.in_flight) == (len(states) - 1, 105, 0, 0)
    assert stats.latency_s > 0
    # A paging state resumes from its position, also a second time.
    repeated = await session.page(text, (1,), fetch_size=10, state=states[3])
    assert repeated.rows == rows[30:40]
    assert len(await session.query(f"SELECT * FROM {keyspace}.p WHERE pk = ?", (1,))) == 105


async def test_changes_of_the_schema(session: CqlSession, keyspace: str) -> None:
    await session.query(f"CREATE TABLE {keyspace}.s (pk int PRIMARY KEY, a int, u frozen<addr>)")
    await session.query(f"INSERT INTO {keyspace}.s (pk, a, u) VALUES (1, 2, {{street: 'x', zip: 3}})")
    addr = CqlType(
        "udt",
        (CqlType("text"), CqlType("int")),
        frozen=True,
        keyspace=keyspace,
        udt_name="addr",
        field_names=("street", "zip"),
    )
    text, types = f"SELECT a, u FROM {keyspace}.s WHERE pk = ?", (CqlType("int"), addr)
    first = await session.page(text, (1,), fetch_size=1, types=types)
    assert first.rows == [(2, {"street": "x", "zip": 3})]
    assert not first.newer_fields

    # A type that grew: old definitions can still read, and get `newer_fields` after the statement is prepared again; new
    # definitions read all.
    await session.query(f"ALTER TYPE {keyspace}.addr ADD floor int")
    await session.query(f"INSERT INTO {keyspace}.s (pk, a, u) VALUES (1, 2, {{street: 'x', zip: 3, floor: 4}})")
    assert (await session.page(text, (1,), fetch_size=1, types=types)).rows == [(2, {"street": "x", "zip": 3})]
    grown = CqlType(
        "udt",
        (*addr.arguments, CqlType("int")),
        frozen=True,
        keyspace=keyspace,
        udt_name="addr",
        field_names=("street", "zip", "floor"),
    )
    page = await session.page(text, (1,), fetch_size=1, types=(CqlType("int"), grown))
    assert page.rows == [(2, {"street": "x", "zip": 3, "floor": 4})]
    old = await session.page(text + " ", (1,), fetch_size=1, types=types)
    assert old.newer_fields
    assert old.rows == [(2, {"street": "x", "zip": 3})]

    # A column that came and went, and one that has another type than it had.
    await session.query(f"ALTER TABLE {keyspace}.s DROP a")
    with pytest.raises(SchemaChanged, match="a"):
        await session.page(text, (1,), fetch_size=1, types=types)
    await session.query(f"DROP TABLE {keyspace}.s")
    with pytest.raises(SchemaChanged):
        await session.page(text, (1,), fetch_size=1, types=types)
    await session.query(f"CREATE TABLE {keyspace}.s (pk int PRIMARY KEY, a text, u frozen<addr>)")
    with pytest.raises(SchemaChanged, match="text where int"):
        await session.page(text, (1,), fetch_size=1, types=types)
    await session.query(f"INSERT INTO {keyspace}.s (pk, a) VALUES (1, 'now text')")
    assert (await session.page(text, (1,), fetch_size=1)).rows == [("now text", None)]


async def test_refusals(session: CqlSession, keyspace: str) -> None:
    for wrong in (
        f"SELECT gone FROM {keyspace}.nothing",
        "SELECT gone FROM system.local",
        "SELECT x FROM no_keyspace.x",
    ):
        with pytest.raises(SchemaChanged):
            await session.query(wrong)
        with pytest.raises(SchemaChanged):
            await session.page(wrong, (), fetch_size=1)
    for nonsense in ("SELEC", f"DROP TABLE {keyspace}"):
        with pytest.raises(Fatal):
            await session.query(nonsense)
    with pytest.raises(Fatal, match="1 parameters for a query with 0"):
        await session.page("SELECT key FROM system.local", (1,), fetch_size=1)
    with pytest.raises(Fatal, match="does not fit"):
        await session.page(
            "SELECT key FROM system.local WHERE key = ? AND broadcast_port = ? ALLOW FILTERING",
            ("local", "x"),
            fetch_size=1,
        )


@pytest.mark.parametrize("compression", ["none", "lz4", "snappy"])
async def test_large_cells(settings: SessionSettings, keyspace: str, compression: str) -> None:
    squeezed = await CqlSession.acquire(msgspec.structs.replace(settings, compression=compression))
    await squeezed.query(f"CREATE TABLE {keyspace}.b (pk int PRIMARY KEY, t text, b blob)")
    text, blob = "é" * (2 << 20), secrets.token_bytes(2 << 20)
    await squeezed.page(f"INSERT INTO {keyspace}.b (pk, t, b) VALUES (?, ?, ?)", (1, text, blob), fetch_size=1)
    page = await squeezed.page(f"SELECT t, b, pk FROM {keyspace}.b", (), fetch_size=1, timeout_s=30)
    assert page.rows == [(text, blob, 1)]
    await squeezed.release()


async def test_equal_settings_share_one_connection(settings: SessionSettings) -> None:
    sessions = await asyncio.gather(*(CqlSession.acquire(settings) for _ in range(5)))
    assert len({id(session._shared) for session in sessions}) == 1
    other = await CqlSession.acquire(
        cql_session(
            contact_points=settings.contact_points, consistency="ONE", connections_per_host=2, compression="lz4"
        )
    )
    assert other._shared is not sessions[0]._shared
    assert (await other.query("SELECT key FROM system.local")) == [{"key": "local"}]
    for session in sessions[:-1]:
        await session.release()
        await session.release()
    assert await sessions[-1].query("SELECT key FROM system.local", ()) == [{"key": "local"}]
    await sessions[-1].release()
    await other.release()
    with pytest.raises(Fatal, match="given back"):
        await sessions[0].query("SELECT key FROM system.local")
    # A first user that is cancelled while it connects leaves nothing behind, and a second one is served.
    first = asyncio.ensure_future(CqlSession.acquire(settings))
    second = asyncio.ensure_future(CqlSession.acquire(settings))
    await asyncio.sleep(0)
    first.cancel()
    served = await second
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await served.query("SELECT key FROM system.local") == [{"key": "local"}]
    await served.release()
