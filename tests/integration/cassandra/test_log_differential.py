"""Random statements on a real Cassandra: what its log says, folded by the merge rules, is what it shows, with all times."""

# ruff: noqa: S608 - names of keyspaces are our own
from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.cql.mutations.definition import parse_definition
from connectors.errors import Fatal
from connectors.formats.partition_update import CellStamp
from tests.integration.cassandra.log_world import World
from tests.support.cassandra_load import Workload
from tests.unit.connectors.cql.mutation_world import SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import HasCassandra


@pytest.fixture
def world(cassandra: HasCassandra, cassandra_keyspace: Callable[[], str]) -> World:
    return World(cassandra.address, cassandra.cdc_raw, cassandra_keyspace())


async def test_random_statements_fold_to_the_tables(world: World) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    load = Workload(seed, world.keyspace)
    async with world:
        await world.execute(*load.ddl)
        await world.definition("t")
        for _ in range(3):
            for statement in load.statements(120):
                try:
                    await world.execute(statement.text)
                except Fatal:
                    assert statement.may_fail, statement.text
            await world.catch_up()
            for table in ("t", "o"):
                await world.assert_folds(await world.definition(table))
        assert world.plain
        assert not world.unknown


async def test_definitions_that_change_in_the_middle_of_the_log(world: World) -> None:
    keyspace = world.keyspace
    insert = f"INSERT INTO {keyspace}.t (pk, ck, a, gone, u, fu, l)"
    async with world:
        await world.execute(
            f"CREATE TYPE {keyspace}.pair (x int, y text)",
            f"CREATE TABLE {keyspace}.t (pk int, ck text, a int, gone text, l list<int>, u pair, "
            "fu frozen<list<pair>>, s int static, PRIMARY KEY (pk, ck)) WITH cdc = true",
        )
        first = await world.definition("t")
        await world.execute(
            f"{insert} VALUES (1, 'a', 1, 'old', {{x: 1, y: 'y'}}, [{{x: 1, y: 'y'}}], [1, 2])",
            f"{insert} VALUES (1, 'b', 1, 'old', null, null, null) USING TTL 3600",
            f"UPDATE {keyspace}.t SET gone = 'older', s = 1 WHERE pk = 2 AND ck = 'c'",
            # The definition that the reader has knows none of these.
            f"ALTER TABLE {keyspace}.t ADD later map<int, text>",
            f"ALTER TYPE {keyspace}.pair ADD z int",
            f"UPDATE {keyspace}.t SET later = {{1: 'one'}} WHERE pk = 1 AND ck = 'a'",
        )
        await world.catch_up()
        assert world.unknown == ["later"]
        await world.execute(
            f"ALTER TYPE {keyspace}.pair ADD zz int", f"UPDATE {keyspace}.t SET u.zz = 5 WHERE pk = 1 AND ck = 'a'"
        )
        await world.catch_up()
        await world.execute(
            f"ALTER TYPE {keyspace}.pair ADD zzz int",
            f"UPDATE {keyspace}.t SET fu = [{{x: 1, zzz: 5}}] WHERE pk = 1 AND ck = 'b'",
        )
        await world.catch_up()
        assert world.unknown == ["later", "u", "fu"]
        await world.assert_folds(await world.definition("t"))
        await world.execute(
            f"{insert} VALUES (3, 'a', 1, 'unseen', null, null, [1])",
            # Both are gone from the table before the reader sees this.
            f"ALTER TABLE {keyspace}.t DROP gone",
            f"ALTER TABLE {keyspace}.t DROP l",
            f"UPDATE {keyspace}.t SET a = 7 WHERE pk = 3 AND ck = 'a'",
        )
        await world.catch_up()
        dropped = await world.definition("t")
        assert {column.name for column in dropped.dropped} == {"gone", "l"}
        await world.assert_folds(parse_definition(dropped.text()))
        await world.execute(
            f"ALTER TABLE {keyspace}.t ADD gone text",
            f"ALTER TABLE {keyspace}.t ADD l list<int>",
            f"UPDATE {keyspace}.t SET gone = 'new', l = [9] WHERE pk = 3 AND ck = 'a'",
            # Written after it came back, as if it had been before it went.
            f"UPDATE {keyspace}.t USING TIMESTAMP 1000 SET gone = 'hidden', l = l + [8] WHERE pk = 1 AND ck = 'a'",
        )
        await world.catch_up()
        readded = await world.definition("t")
        await world.assert_folds(readded)
        assert readded.table_id == first.table_id
        left = world.shown(readded)
        await world.execute(
            f"DROP TABLE {keyspace}.t",
            f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, a text) WITH cdc = true",
            f"INSERT INTO {keyspace}.t (pk, a) VALUES (1, 'another table')",
        )
        await world.catch_up()
        other = await world.definition("t")
        assert other.table_id != first.table_id
        await world.assert_folds(other)
        # What was written to the table that is gone can still be read.
        assert world.shown(readded) == left


#: Types and literals of them; the first type's are also keys.
KEYS = [
    ("ascii", "'asc'"),
    ("bigint", "-9223372036854775808"),
    ("blob", "0xcafe00ff"),
    ("boolean", "false"),
    ("date", "'1582-10-14'"),
    ("decimal", "-1.2E-7"),
    ("double", "-0.5"),
    ("float", "2.25"),
    ("inet", "'2001:db8::1'"),
    ("int", "-2147483648"),
    ("smallint", "-32768"),
    ("text", "'hé 漢字'"),
    ("time", "'23:59:59.999999999'"),
    ("timestamp", "'1901-01-01 00:00:00Z'"),
    ("timeuuid", "50554d6e-29bb-11e5-b345-feff819cdc9f"),
    ("tinyint", "-128"),
    ("uuid", "50554d6e-29bb-41e5-b345-feff819cdc9f"),
    ("varint", "-123456789012345678901234567890"),
    ("frozen<list<int>>", "[3, 1, 2]"),
    ("frozen<pair>", "{x: 1, y: 'y'}"),
    ("tuple<int, text>", "(1, null)"),
    ("vector<float, 3>", "[1.5, -2, 0]"),
]
VALUES = [
    *KEYS,
    ("ascii", "''"),
    ("text", "''"),
    ("blob", "0x"),
    ("duration", "-1y2mo25d5h6m7s8ms9us10ns"),
    ("duration", "2147483647d"),
    ("inet", "'127.0.0.1'"),
    ("decimal", "1E+3"),
    ("varint", "127"),
    ("vector<text, 2>", "['', 'längerer Text']"),
    ("vector<frozen<vector<int, 2>>, 2>", "[[1, 2], [3, 4]]"),
    ("vector<uuid, 1>", "[50554d6e-29bb-41e5-b345-feff819cdc9f]"),
    ("frozen<map<text, frozen<set<int>>>>", "{'a': {2, 1}, 'b': {}}"),
    ("frozen<pair>", "{x: null}"),
    ("frozen<list<text>>", "[]"),
    ("tuple<frozen<pair>, duration>", "({x: 1, y: ''}, 5s)"),
    ("list<duration>", "[1s, 2mo]"),
    ("list<int>", "[1, 1, 2]"),
    ("list<frozen<tuple<int, text>>>", "[(1, 'a'), (null, '')]"),
    ("set<inet>", "{'127.0.0.1', '::1'}"),
    ("set<text>", "{'', 'b'}"),
    ("set<frozen<list<int>>>", "{[1], [2]}"),
    ("map<timestamp, boolean>", "{0: true, 1: false}"),
    ("map<frozen<pair>, frozen<map<int, int>>>", "{{x: 1, y: 'a'}: {1: 2}}"),
    ("map<smallint, tinyint>", "{-1: -1}"),
    ("map<date, time>", "{'2024-02-29': '12:00:00'}"),
    ("pair", "{x: 5, y: ''}"),
    ("odd", '{"a b": [1], v: {x: 1}}'),
]


async def test_values_of_all_types(world: World) -> None:
    keyspace = world.keyspace
    async with world:
        there = [
            [case for case in cases if "vector" not in case[0] or world.release >= (5, 0)] for cases in (VALUES, KEYS)
        ]
        values, key_values = there
        names = [f'"V {index}"' for index in range(len(values))]
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in zip(names, values, strict=True))
        keys = ", ".join(f"k{index} {kind}" for index, (kind, _) in enumerate(key_values))
        key = ", ".join(f"k{index}" for index in range(len(key_values)))
        order = ", ".join(f"k{index} DESC" for index in range(len(key_values)))
        await world.execute(
            f"CREATE TYPE {keyspace}.pair (x int, y text)",
            f'CREATE TYPE {keyspace}.odd ("a b" frozen<list<int>>, v frozen<pair>)',
            f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, {columns}) WITH cdc = true",
            f"CREATE TABLE {keyspace}.compound ({keys}, v int, PRIMARY KEY (({key}))) WITH cdc = true",
            f"CREATE TABLE {keyspace}.clustered (pk text, {keys}, last text, v int, PRIMARY KEY (pk, {key}, last)) "
            f"WITH cdc = true AND CLUSTERING ORDER BY ({order}, last ASC)",
        )
        literals = ", ".join(literal for _, literal in values)
        parts = ", ".join(literal for _, literal in key_values)
        await world.execute(
            f"INSERT INTO {keyspace}.t (pk, {', '.join(names)}) VALUES (1, {literals})",
            f"INSERT INTO {keyspace}.t (pk, {', '.join(names)}) VALUES (2, {literals}) USING TTL 86400",
            f"UPDATE {keyspace}.t USING TIMESTAMP -5 SET "
            f"{', '.join(f'{name} = {literal}' for name, (_, literal) in zip(names, values, strict=True))} WHERE pk = 3",
            *(
                f"UPDATE {keyspace}.t SET {name} = {literal} WHERE pk = {10 + index}"
                for index, (name, (_, literal)) in enumerate(zip(names, values, strict=True))
            ),
            f"INSERT INTO {keyspace}.compound ({key}, v) VALUES ({parts}, 1)",
            f"INSERT INTO {keyspace}.clustered (pk, {key}, last, v) VALUES ('there', {parts}, '', 1)",
            f"INSERT INTO {keyspace}.clustered (pk, {key}, last, v) VALUES ('gone', {parts}, 'x', 1)",
            f"DELETE FROM {keyspace}.clustered WHERE pk = 'gone' AND k0 = 'asc' AND k1 > -9223372036854775808",
            f"DELETE FROM {keyspace}.clustered WHERE pk = 'gone' AND k0 >= 'asc'",
        )
        await world.catch_up()
        for name in ("t", "compound", "clustered"):
            await world.assert_folds(await world.definition(name))
        assert world.plain >= len(key_values)


async def test_an_empty_int_is_a_tombstone_in_the_log(world: World) -> None:
    async with world:
        await world.execute(
            f"CREATE TABLE {world.keyspace}.empties (pk int PRIMARY KEY, v int, t text) WITH cdc = true",
            f"INSERT INTO {world.keyspace}.empties (pk, v, t) VALUES (1, blobAsInt(0x), '') USING TIMESTAMP 7",
        )
        await world.catch_up()
        table = await world.definition("empties")
        ((version, data),) = world.updates[table.table_id]
        ((row,),) = (CompiledDecoder(table, version).full(data, 0, SOURCE)[0].rows,)
        assert sorted((cell.column, cell.value, cell.stamp) for cell in row.cells) == [
            ("t", "", CellStamp(7)),
            ("v", None, CellStamp(7)),
        ]


async def test_wide_rows_and_deletions_that_meet(world: World) -> None:
    table = f"{world.keyspace}.wide"
    columns = [f"c{index}" for index in range(70)]
    apply = "; APPLY BATCH"

    def insert(pk: int, names: list[str], using: str = "") -> str:
        return (
            f"INSERT INTO {table} (pk, a, b, {', '.join(names)}) "
            f"VALUES ({pk}, {pk % 7}, {pk % 3}, {', '.join(str(pk) for _ in names)}){using}"
        )

    def delete(where: str, time: int) -> str:
        return f"DELETE FROM {table} USING TIMESTAMP {time} WHERE pk = 9 AND {where}"

    async with world:
        await world.execute(
            f"CREATE TABLE {table} (pk int, a int, b int, {', '.join(f'{name} int' for name in columns)}, "
            "PRIMARY KEY (pk, a, b)) WITH CLUSTERING ORDER BY (a ASC, b DESC) AND cdc = true"
        )
        await world.execute(
            insert(1, columns),
            insert(2, columns[:40]),
            # Rows of one mutation that lack many of its columns, and few.
            f"BEGIN BATCH {insert(3, columns)}; {insert(3, columns[3:5]).replace('3, 0,', '4, 0,', 1)}; APPLY BATCH",
            "BEGIN UNLOGGED BATCH "
            + "; ".join(
                f"UPDATE {table} SET {', '.join(f'{name} = 5' for name in names)} WHERE pk = 5 AND a = {index} AND b = 0"
                for index, names in enumerate((columns, columns[:5], columns[5:], columns[60:], columns[:35]))
            )
            + apply,
            *(
                f"UPDATE {table} USING TIMESTAMP 100 SET c0 = {a} WHERE pk = 9 AND a = {a} AND b = {b}"
                for a in range(6)
                for b in range(3)
            ),
            # Ranges that touch and overlap, written at different times: bounds that end one and begin another.
            "BEGIN BATCH "
            + "; ".join(
                (
                    delete("a >= 1 AND a < 3", 120),
                    delete("a >= 3 AND a <= 4", 130),
                    delete("a = 4 AND b > 1", 140),
                    delete("a > 4", 90),
                    delete("a = 2 AND b = 1", 125),
                )
            )
            + apply,
            f"UPDATE {table} USING TIMESTAMP 125 SET c1 = 1 WHERE pk = 9 AND a = 3 AND b = 0",
            f"UPDATE {table} USING TIMESTAMP 135 SET c1 = 1 WHERE pk = 9 AND a = 3 AND b = 1",
        )
        await world.catch_up()
        await world.assert_folds(await world.definition("wide"))
