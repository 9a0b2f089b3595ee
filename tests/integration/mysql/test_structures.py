"""Structures that change while the stream runs, and statements of all kinds, on a real server."""

from __future__ import annotations

import contextlib
import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from compose.local.mariadb import MariaDb
from connectors.errors import Fatal
from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run
from tests.integration.mysql.changes_world import END, LIMIT, Source, brief, contents, read_snapshot, rows_by_key, same
from tests.integration.mysql.dialect import is_mysql
from worker.fetch.errors import Unavailable
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from connectors.api import SourceRecord
    from connectors.testing.contexts import SavedOffsets
    from tests.conftest import HasMariaDb


@pytest.fixture
def source(server: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(server, f"structs_{unique('x')[-8:]}")
    yield source
    source.sql(f"DROP DATABASE {source.name}")
    source.link.close()


async def test_keys(source: Source) -> None:
    """Keys of several columns and of text; a key that changes is a row that goes and one that comes; ALTER changes keys."""
    records = await source.changes(
        "CREATE TABLE c (a INT, b VARCHAR(9) COLLATE utf8mb4_general_ci, v INT, PRIMARY KEY (b, a))",
        "CREATE TABLE k (name VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, v INT)",
        "CREATE TABLE u (v INT, id INT NOT NULL, UNIQUE KEY (id))",
        "INSERT INTO c VALUES (1, 'x', 1), (2, 'x', 2), (1, 'Ä', 3)",
        "UPDATE c SET a = a + 10",
        "UPDATE c SET v = 0, b = 'y' WHERE a = 12",
        "INSERT INTO k VALUES ('a', 1), ('A', 2), ('😀', 3), ('', 4)",
        "UPDATE k SET name = 'B' WHERE name = 'A'",
        "DELETE FROM k WHERE name = 'a'",
        "INSERT INTO u VALUES (1, 1), (2, 2)",
        "UPDATE u SET v = 9 WHERE id = 2",
    )
    for table, fields in {"c": ("a", "b", "v"), "k": ("name", "v"), "u": ("v", "id")}.items():
        assert same(rows_by_key(records, table).values(), contents(source, table, *fields)), table
    keys = {record.topic.rpartition(".")[2]: set(record.key) for record in records}
    assert keys == {"c": {"a", "b"}, "k": {"name"}, "u": {"id"}}

    records = await source.changes(
        "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR(9) NOT NULL, v INT)",
        "INSERT INTO t VALUES (1, 'one', 1)",
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (k)",
        "UPDATE t SET v = 2",
        "ALTER TABLE t DROP PRIMARY KEY",
        "UPDATE t SET v = 3",
        "ALTER TABLE t ADD PRIMARY KEY (id, k)",
        "UPDATE t SET v = 4",
        "UPDATE t SET id = 2",
    )
    assert [(record.value["op"], record.key) for record in records] == [
        ("c", {"id": 1}),
        ("u", {"k": "one"}),
        ("u", None),
        ("u", {"id": 1, "k": "one"}),
        ("d", {"id": 1, "k": "one"}),
        ("c", {"id": 2, "k": "one"}),
    ]
    assert [len(record.key_schema.fields) if record.key_schema else 0 for record in records] == [1, 1, 0, 2, 2, 2]


LIFE = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))",
    "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    "TRUNCATE TABLE t",
    "INSERT INTO t VALUES (3, 'c')",
    "RENAME TABLE t TO old, old TO older",
    "INSERT INTO older VALUES (4, 'd')",
    "CREATE TABLE t (v DOUBLE, id BIGINT PRIMARY KEY)",
    "INSERT INTO t VALUES (1.5, 5)",
    "DROP TABLE t",
    "CREATE TABLE t (k CHAR(3) PRIMARY KEY) ENGINE = Aria",
    "INSERT INTO t VALUES ('abc')",
    "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, w INT UNSIGNED)",
    "INSERT INTO t VALUES (6, 4000000000)",
    "ALTER TABLE t ADD x INT DEFAULT 1 FIRST, DROP w",
    "INSERT INTO t VALUES (7, 8)",
    "ALTER TABLE t RENAME COLUMN x TO y",
    "INSERT INTO t VALUES (8, 9)",
    "ALTER TABLE t RENAME TO `t 2`",
    "INSERT INTO `t 2` VALUES (9, 10)",
)
LIFE_ROWS = (
    ("t", "c", {"id": 1, "v": "a"}),
    ("t", "c", {"id": 2, "v": "b"}),
    ("t", "t", None),
    ("t", "c", {"id": 3, "v": "c"}),
    ("older", "c", {"id": 4, "v": "d"}),
    ("t", "c", {"v": 1.5, "id": 5}),
    ("t", "c", {"k": "abc"}),
    ("t", "c", {"id": 6, "w": 4_000_000_000}),
    ("t", "c", {"x": 7, "id": 8}),
    ("t", "c", {"y": 8, "id": 9}),
    ("t_2", "c", {"y": 9, "id": 10}),
)


def rows_of(records: Sequence[SourceRecord]) -> tuple[tuple[Any, ...], ...]:
    return tuple((record.topic.rpartition(".")[2], record.value["op"], record.value["after"]) for record in records)


@pytest.mark.parametrize("skipped", ["none", "t"])
async def test_the_life_of_tables(source: Source, skipped: str) -> None:
    """Each row has the structure of its time: read while it happens, and read when all of it is long over.

    Where truncations are sent there is one task, whatever is allowed: a truncation is about the rows of all.
    """
    if is_mysql(source.server):
        pytest.skip("replaces tables, which only MariaDB does")
    properties, start = await source.begin(skipped__operations=skipped)
    expected = tuple(row for row in LIFE_ROWS if row[1] != skipped)
    async with Run(MySqlConnector, properties, offsets=start.copy()) as run:
        assert await run.take(LIMIT) is not None
        source.sql(*LIFE)
        assert rows_of(await source.rest(run)) == expected
    late: list[SourceRecord] = []
    async with Run(MySqlConnector, properties, offsets=start, max_tasks=3) as run:
        assert len(run.tasks) == (1 if skipped == "none" else 3)
        while len(late) < len(expected):
            batch = await run.take(LIMIT)
            assert batch is not None, run.log.text()
            late += [
                record for record in batch[1].records if record.value is not None and not record.topic.endswith(END)
            ]
    assert same(rows_of(late), expected)
    assert skipped != "none" or rows_of(late) == expected


async def test_a_truncation_is_sent_though_its_table_is_gone(source: Source) -> None:
    """The stream comes by it when the catalog does not have the table under this name."""
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    async with Run(MySqlConnector, source.config(skipped__operations="none")) as run:
        assert await run.take(LIMIT) is not None
        source.sql("INSERT INTO t VALUES (1)")
        assert len(await source.rest(run)) == 1
        source.sql("ALTER TABLE t ADD v INT", "TRUNCATE TABLE t", "RENAME TABLE t TO u", "INSERT INTO u VALUES (2, 2)")
        records = await source.rest(run)
    assert [(record.topic, record.value["op"]) for record in records] == [
        (f"p.{source.name}.t", "t"),
        (f"p.{source.name}.u", "c"),
    ]


async def test_changes_before_an_alter_keep_their_types(source: Source) -> None:
    """The type that only the catalog knows counts also where it describes a later structure of the table."""
    uuid, address = ("CHAR(36)", "CHAR(3)") if is_mysql(source.server) else ("UUID", "INET6")
    properties, start = await source.begin()
    row = {"u": "550e8400-e29b-41d4-a716-446655440000", "a": "::1", "id": 1, "f": 1.5}
    source.sql(
        f"CREATE TABLE t (u {uuid}, a {address}, id INT NOT NULL, f FLOAT(7,4), UNIQUE KEY (id))",
        "INSERT INTO t VALUES ('550e8400-e29b-41d4-a716-446655440000', '::1', 1, 1.5)",
        "ALTER TABLE t ADD x INT DEFAULT 3, DROP f",
        "INSERT INTO t VALUES ('550e8400-e29b-41d4-a716-446655440000', '::1', 2, 4)",
    )
    async with Run(MySqlConnector, properties, offsets=start) as run:
        first, second = await source.rest(run)
    assert (first.key, first.value["after"]) == ({"id": 1}, row)
    del row["f"]
    assert (second.key, second.value["after"]) == ({"id": 2}, {**row, "id": 2, "x": 4})
    assert first.key_schema == second.key_schema


async def test_bytes_of_another_length_are_no_uuid(mariadb: HasMariaDb, unique: Callable[[str], str]) -> None:
    """The catalog has another column of the same name by the time that the change is read."""
    source = Source(mariadb, unique("structs").replace("-", "_"))
    source.sql("CREATE TABLE t (id INT PRIMARY KEY, b BINARY(4) NOT NULL, v INET4 NOT NULL, w UUID NOT NULL)")
    uuid = "550e8400-e29b-41d4-a716-446655440000"
    records = await source.changes(
        f"INSERT INTO t VALUES (1, 'abcd', '1.2.3.4', '{uuid}')",
        "ALTER TABLE t DROP b, DROP v, ADD b UUID NOT NULL, ADD v INET6 NOT NULL",
        binary__handling__mode="hex",
    )
    assert [after for _, _, _, after in brief(records)] == [{"id": 1, "b": "61626364", "v": "01020304", "w": uuid}]
    source.sql(f"DROP DATABASE {source.name}")
    source.link.close()


async def test_a_snapshot_begins_before_the_stream_comes_to_a_new_name_of_the_key(source: Source) -> None:
    """The snapshot reads the table as it is now, while the stream still has rows with the former name of the key."""
    properties, start = await source.begin(snapshot__mode="always", max__batch__size="1")
    source.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    source.sql(*[f"INSERT INTO t VALUES ({number}, 1)" for number in range(600)])
    source.sql(
        "UPDATE t SET v = 2 WHERE id < 20", "ALTER TABLE t RENAME COLUMN id TO n", "INSERT INTO t VALUES (-1, 1)"
    )
    async with Run(MySqlConnector, properties, offsets=start) as run:
        records = await source.rest(run)
        records += await read_snapshot(run)
    rows = {
        record.key["n"]: record.value["after"]
        for record in records
        if record.topic.endswith(".t") and "n" in record.key
    }
    assert same(rows.values(), contents(source, "t", "n", "v"))


async def test_statements_that_change_many_rows(source: Source, tmp_path: Path) -> None:
    """CREATE ... SELECT, LOAD DATA, changes of several tables, partitions, triggers, foreign keys: tables come out equal."""
    file = tmp_path / "rows.csv"
    file.write_text("".join(f"{number},line {number}\n" for number in range(500)), encoding="utf-8")
    records = await source.changes(
        "CREATE TABLE s (id INT PRIMARY KEY) AS SELECT seq AS id, CAST(seq * 2 AS SIGNED) AS v "
        f"FROM {source.name}.seq_1_to_2000",
        "CREATE TABLE l (id INT PRIMARY KEY, v TEXT)",
        f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE l FIELDS TERMINATED BY ','",
        "UPDATE s JOIN l ON s.id = l.id SET s.v = -1, l.v = CONCAT(l.v, '!') WHERE s.id % 3 = 0",
        "DELETE s, l FROM s JOIN l ON s.id = l.id WHERE s.id % 7 = 0",
        "CREATE TABLE p (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (100), "
        "PARTITION b VALUES LESS THAN MAXVALUE)",
        "INSERT INTO p SELECT id, v FROM s",
        "ALTER TABLE p REORGANIZE PARTITION b INTO (PARTITION c VALUES LESS THAN (1000), "
        "PARTITION d VALUES LESS THAN MAXVALUE)",
        "UPDATE p SET id = id + 5000 WHERE id < 50",
        "ALTER TABLE p REBUILD PARTITION a",
        "ALTER TABLE p REMOVE PARTITIONING",
        "INSERT INTO p VALUES (99999, 1)",
        "CREATE TABLE log (n INT AUTO_INCREMENT PRIMARY KEY, id INT)",
        "CREATE TRIGGER after_p AFTER UPDATE ON p FOR EACH ROW INSERT INTO log (id) VALUES (NEW.id)",
        "UPDATE p SET v = 3 WHERE id > 5000 LIMIT 5",
        "CREATE TABLE child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES l (id) ON DELETE CASCADE)",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
        "DELETE FROM child WHERE parent = 1",
        "INSERT INTO p VALUES (99999, 5), (99998, 5) ON DUPLICATE KEY UPDATE v = VALUES(v)",
        "REPLACE INTO p VALUES (99999, 6)",
    )
    tables = {"s": ("id", "v"), "l": ("id", "v"), "p": ("id", "v"), "log": ("n", "id"), "child": ("id", "parent")}
    for table, fields in tables.items():
        assert same(rows_by_key(records, table).values(), contents(source, table, *fields)), table


NAME = '`it\'s "odd".``name`'
#: Each is followed by a row.
ODD_STATEMENTS: tuple[str | bytes, ...] = (
    "ANALYZE TABLE t",
    "OPTIMIZE TABLE t",
    "CHECK TABLE t",
    "FLUSH TABLES",
    "FLUSH LOCAL STATUS",
    "SET @x = 1",
    "DO SLEEP(0)",
    "CREATE USER IF NOT EXISTS 'DB_u'@'localhost' IDENTIFIED BY 'it''s; DROP TABLE t'",
    "GRANT SELECT ON DB.* TO 'DB_u'@'localhost'",
    "REVOKE SELECT ON DB.* FROM 'DB_u'@'localhost'",
    "SET PASSWORD FOR 'DB_u'@'localhost' = PASSWORD('x')",
    "RENAME USER 'DB_u'@'localhost' TO 'DB_w'@'localhost'",
    "CREATE ROLE DB_r",
    "DROP ROLE DB_r",
    "DROP USER 'DB_w'@'localhost'",
    (
        "CREATE PROCEDURE p1 (IN a INT) BEGIN INSERT INTO t VALUES (a, 'by procedure'); CREATE TEMPORARY TABLE tmp1 (x INT); "
        "DROP TABLE tmp1; END"
    ),
    "CALL p1(101)",
    "ALTER PROCEDURE p1 COMMENT 'c'",
    "CREATE FUNCTION f1 () RETURNS INT DETERMINISTIC RETURN 1",
    "DROP FUNCTION f1",
    "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.v = CONCAT(NEW.v, '')",
    "DROP TRIGGER tr",
    "CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DO DELETE FROM t",
    "ALTER EVENT ev DISABLE",
    "DROP EVENT ev",
    "CREATE SEQUENCE sq START WITH 5",
    "SELECT NEXTVAL(sq)",
    "ALTER SEQUENCE sq RESTART 50",
    "SELECT NEXTVAL(sq)",
    "INSERT INTO t VALUES (NEXTVAL(sq), 'from sequence')",
    "DROP SEQUENCE sq",
    "CREATE VIEW vw AS SELECT * FROM t",
    "ALTER VIEW vw AS SELECT id FROM t",
    "CREATE OR REPLACE VIEW vw AS SELECT 1",
    "DROP VIEW vw",
    (
        f"/* a comment */ CREATE /* in */ TABLE -- here\n {NAME} (`a b` INT PRIMARY KEY, `c``d` INT) "
        "COMMENT 'RENAME TABLE x'"
    ),
    f"INSERT INTO {NAME} VALUES (1, 2)",
    f"ALTER TABLE {NAME} ADD COLUMN `größe` INT # tail",
    f"INSERT INTO {NAME} VALUES (2, 3, 4)",
    f"DROP TABLE {NAME}",
    "/*!50000 CREATE TABLE hinted (id INT PRIMARY KEY) */",
    "/*M!100000 DROP TABLE hinted */",
    "CREATE TABLE sibling LIKE t",
    "CREATE TEMPORARY TABLE tmp (id INT)",
    "INSERT INTO tmp VALUES (1)",
    "ALTER TABLE tmp ADD x INT",
    "DROP TEMPORARY TABLE tmp",
    "CREATE TABLE parted (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3",
    "INSERT INTO parted VALUES (1), (2), (3)",
    "ALTER TABLE parted TRUNCATE PARTITION p0",
    "ALTER TABLE parted COALESCE PARTITION 1",
    "CREATE TABLE plain (id INT PRIMARY KEY)",
    "ALTER TABLE parted EXCHANGE PARTITION p1 WITH TABLE plain",
    "DROP TABLE parted",
    "CREATE INDEX ix ON t (v)",
    "DROP INDEX ix ON t",
    "ALTER TABLE t COMMENT 'x', ENGINE = InnoDB",
    "ALTER TABLE t ADD KEY (v)",
    "CREATE DATABASE DB_2",
    "CREATE TABLE DB_2.t (id INT PRIMARY KEY)",
    "ALTER DATABASE DB_2 CHARACTER SET latin1",
    "ALTER DATABASE DEFAULT CHARACTER SET utf8mb4",
    "DROP DATABASE DB_2",
    "DROP TABLE IF EXISTS nothing, sibling, nowhere.nothing",
    "SET NAMES latin1",
    b"CREATE TABLE latin (id INT PRIMARY KEY) COMMENT 'caf\xe9'",
    "DROP TABLE latin",
    "SET NAMES utf8mb4",
    "INSERT INTO t VALUES (102, 'a') RETURNING id",
    "BEGIN NOT ATOMIC SELECT 1; END",
)
TOGETHER = (
    "XA START 'x1'",
    "INSERT INTO t VALUES (103, 'xa')",
    "XA END 'x1'",
    "XA PREPARE 'x1'",
    "XA COMMIT 'x1'",
    "BEGIN",
    "SAVEPOINT `s 1`",
    "INSERT INTO t VALUES (104, 'gone')",
    "ROLLBACK TO `s 1`",
    "INSERT INTO t VALUES (105, 'stays')",
    "COMMIT",
)


@pytest.mark.parametrize("schema_changes", ["false", "true"])
async def test_no_statement_stops_the_stream(source: Source, schema_changes: str) -> None:
    source.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(99))")
    async with Run(MySqlConnector, source.config(include__schema__changes=schema_changes)) as run:
        assert await run.take(LIMIT) is not None
        for number, statement in enumerate(ODD_STATEMENTS):
            filled = statement if isinstance(statement, bytes) else re.sub(r"DB(?=[._])", source.name, statement)
            # A MySQL refuses what only MariaDB has.
            with contextlib.suppress(*((pymysql.MySQLError,) if is_mysql(source.server) else ())):
                source.sql(filled)
            source.sql(f"REPLACE INTO t VALUES ({number}, 'after')")
        source.sql(*TOGETHER)
        records = await source.rest(run)
        assert not [line for level, line in run.log.lines if level >= 40], run.log.text()
    rows = [record for record in records if record.topic == f"p.{source.name}.t"]
    assert same(rows_by_key(rows, "t").values(), contents(source, "t", "id", "v"))
    odd_rows = [record.value["after"] for record in records if "odd" in record.topic]
    assert odd_rows == [{"a b": 1, "c`d": 2}, {"a b": 2, "c`d": 3, "größe": 4}]
    statements = [record.value["ddl"] for record in records if record.topic == "p"]
    assert bool(statements) == (schema_changes == "true")
    if statements:
        assert {"CREATE TABLE sibling LIKE t", "ALTER DATABASE DEFAULT CHARACTER SET utf8mb4"} <= set(statements)
        assert not [text for text in statements if "TRIGGER" in text or "SEQUENCE" in text]


# Without names in the binlog.


@pytest.fixture(scope="module")
def nameless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """A server that does not write names of columns."""
    server = MariaDb(
        tmp_path_factory.mktemp("nameless"),
        port=None,
        durable=False,
        say=say,
        settings={"binlog-row-metadata": "NO_LOG"},
    )
    try:
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


async def test_without_names_in_the_binlog(nameless: MariaDb) -> None:
    """Names come from the catalog while they fit, also through changes that are met in time; else nothing is guessed."""
    source = Source(nameless, "nameless")
    source.sql(
        "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, v VARCHAR(20) CHARACTER SET latin1, e ENUM('x', 'y'))",
        "CREATE TABLE u (id INT PRIMARY KEY)",
    )
    async with Run(MySqlConnector, source.config()) as run:
        assert await run.take(LIMIT) is not None
        source.sql("INSERT INTO t VALUES (4000000000, 'é', 'y')")
        assert brief(await source.rest(run)) == [
            ("c", {"id": 4_000_000_000}, None, {"id": 4_000_000_000, "v": "é", "e": "y"})
        ]
        source.sql("ALTER TABLE t ADD n INT DEFAULT 3 AFTER id")
        source.sql("UPDATE t SET v = 'w'")
        ((op, key, before, after),) = brief(await source.rest(run))
        assert (op, key, before["n"]) == ("u", {"id": 4_000_000_000}, 3)
        assert after == {"id": 4_000_000_000, "n": 3, "v": "w", "e": "y"}
        offsets = run.offsets
    source.sql("UPDATE t SET v = 'x'", "ALTER TABLE t DROP n", "UPDATE t SET v = 'z'")
    behind = offsets.copy()
    async with Run(MySqlConnector, source.config(), offsets=offsets) as run:
        with pytest.raises(Fatal, match=r"nameless\.t: .*has 4 columns, the catalog 3.*binlog_row_metadata = FULL"):
            await source.rest(run)
        failed = offsets.copy()
    async with Run(MySqlConnector, source.config(inconsistent__schema__handling__mode="warn"), offsets=offsets) as run:
        assert brief(await source.rest(run)) == [
            (
                "u",
                {"id": 4_000_000_000},
                {"id": 4_000_000_000, "v": "x", "e": "y"},
                {"id": 4_000_000_000, "v": "z", "e": "y"},
            )
        ]
    assert server_offset(failed) == server_offset(behind)
    source.sql("ALTER TABLE t ADD n INT DEFAULT 3 AFTER id")
    async with Run(MySqlConnector, source.config(), offsets=failed) as run:
        # The catalog has the structure of the first rows again, so it stops at those that have another.
        with pytest.raises(Fatal, match="has 3 columns, the catalog 4"):
            await source.rest(run)
    source.link.close()


async def test_a_known_structure_stays_known(nameless: MariaDb) -> None:
    """A change of one table does not make the connector ask for another, which may have been altered since."""
    source = Source(nameless, "known")
    source.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
    async with Run(MySqlConnector, source.config()) as run:
        assert await run.take(LIMIT) is not None
        source.sql("INSERT INTO t VALUES (1, 1)")
        assert len(await source.rest(run)) == 1
        source.sql(
            "ALTER TABLE u ADD w INT",
            "CREATE DATABASE known_2",
            "DROP DATABASE known_2",
            "INSERT INTO t VALUES (2, 2)",
            "ALTER TABLE t ADD x INT",
            "INSERT INTO t VALUES (3, 3, 3)",
        )
        assert [after for _, _, _, after in brief(await source.rest(run))] == [
            {"id": 2, "v": 2},
            {"id": 3, "v": 3, "x": 3},
        ]
    source.link.close()


@pytest.mark.parametrize(
    ("table", "mode", "statement"),
    [
        ("t", "", "--\n-- A comment\n--\nALTER TABLE t CHANGE v w INT"),
        ("t", "", "ALTER/**/TABLE t/* a comment */CHANGE v w INT"),
        ("t", "", "ALTER TABLE t# a comment\nCHANGE v w INT"),
        ("t", "", "ALTER TABLE t-- a comment\nCHANGE v w INT"),
        ("t", "", "ALTER TABLE .t CHANGE v w INT"),
        ("t", "", "SET STATEMENT max_statement_time = 9, sql_mode = 'ANSI' FOR ALTER TABLE t CHANGE v w INT"),
        ("a\u3000b", "", "ALTER TABLE a\u3000b CHANGE v w INT"),
        ("a\\", "ANSI_QUOTES", 'ALTER TABLE "a\\" COMMENT \'"\', CHANGE v w INT'),
        ("a b", "MSSQL", "ALTER TABLE [a b] CHANGE v w INT"),
    ],
)
async def test_a_statement_names_its_table_however_it_is_written(
    nameless: MariaDb, table: str, mode: str, statement: str
) -> None:
    """A statement that is not understood would leave the former names of columns in place."""
    source = Source(nameless, "written")
    try:
        source.sql(f"CREATE TABLE `{table}` (id INT PRIMARY KEY, v INT)", f"SET sql_mode = '{mode}'")
        async with Run(MySqlConnector, source.config()) as run:
            assert await run.take(LIMIT) is not None
            source.sql(f"INSERT INTO `{table}` VALUES (1, 1)")
            assert [after for *_, after in brief(await source.rest(run))] == [{"id": 1, "v": 1}]
            source.sql(statement, f"INSERT INTO `{table}` VALUES (2, 2)")
            assert [after for *_, after in brief(await source.rest(run))] == [{"id": 2, "w": 2}]
    finally:
        source.sql("DROP DATABASE written")
        source.link.close()


def server_offset(offsets: SavedOffsets) -> Mapping[str, Any]:
    (offset,) = (offset for partition, offset in offsets.items() if set(partition) == {"server"})
    return {name: offset[name] for name in ("file", "pos")}


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_a_snapshot_waits_for_the_end_of_a_prepared_transaction(source: Source, end: str) -> None:
    """The stream sends an XA transaction when it is prepared; until its end a snapshot would read the rows before it."""
    source.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
    )
    config = source.config(signal__data__collection=f"{source.name}.orders", snapshot__mode="initial")
    order = f"'execute-snapshot', '{{\"data-collections\": [\"{source.name}.t\"]}}'"
    async with Run(MySqlConnector, config) as run:
        records = await read_snapshot(run)
        with closing(source.connection()) as link, link.cursor() as cursor:
            cursor.execute(f"USE {source.name}")
            for statement in ("XA START 'x'", "UPDATE t SET v = 9 WHERE id = 1", "DELETE FROM t WHERE id = 2"):
                cursor.execute(statement)
            cursor.execute("XA END 'x'")
            cursor.execute("XA PREPARE 'x'")
        source.sql(f"INSERT INTO orders VALUES ('one', {order})")
        records += await source.rest(run)
        while (batch := await run.take(2.0)) is not None:
            records += [record for record in batch[1].records if record.value is not None]
        source.sql(f"XA {end} 'x'")
        records += await source.rest(run)
        while not snapshots_over(run):
            batch = await run.take(LIMIT)
            assert batch is not None, run.log.text()
            records += [record for record in batch[1].records if record.value is not None]
    rows: dict[int, Any] = {}
    for record in records:
        if record.topic.endswith(".t"):
            rows.pop(record.key["id"], None)
            if record.value["after"] is not None:
                rows[record.key["id"]] = record.value["after"]["v"]
    assert rows == dict(source.sql("SELECT id, v FROM t"))


def snapshots_over(run: Run) -> bool:
    """Whether the first snapshot and the one that was asked for are complete."""
    states = [offset["state"] for partition, offset in run.offsets.items() if "snapshot" in partition]
    return states == ["completed"] * 2
