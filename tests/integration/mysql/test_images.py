"""Row images, structures that change while the stream runs, and statements of all kinds, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import threading
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from compose.local.mariadb import MariaDb
from connectors.errors import Fatal
from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run
from tests.integration.mysql.dialect import is_mysql, spoken
from worker.fetch.errors import Unavailable
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from connectors.api import SourceRecord
    from connectors.testing.contexts import SavedOffsets
    from tests.conftest import HasMariaDb

LIMIT = 30.0
END = "the_end"
TRANSACTION = 60_000
MEBIBYTE = 1024


class Source:
    """A database of its own on a server, and a connection to it."""

    def __init__(self, server: HasMariaDb, name: str) -> None:
        self.server = server
        self.name = name
        self.link = self.connection()
        self.sql(
            f"CREATE DATABASE {name} CHARACTER SET utf8mb4", f"USE {name}", f"CREATE TABLE {END} (n INT PRIMARY KEY)"
        )
        self.ends = 0

    def connection(self) -> pymysql.Connection[Any]:
        return pymysql.connect(
            host="127.0.0.1",
            port=int(self.server.port or 0),
            user=self.server.user,
            local_infile=True,
            password=self.server.password,
            autocommit=True,
            charset="utf8mb4",
        )

    def sql(self, *statements: str | bytes) -> list[tuple[Any, ...]]:
        """The rows of the last statement."""
        with self.link.cursor() as cursor:
            for statement in statements:
                cursor.execute(
                    spoken(statement, mysql=is_mysql(self.server)) if isinstance(statement, str) else statement
                )
            return list(cursor.fetchall())

    def config(self, **more: str) -> dict[str, str]:
        return {
            "connector.class": "mysql",
            "topic.prefix": "p",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.include.list": self.name,
            "snapshot.mode": "no_data",
            "include.schema.changes": "false",
            "poll.interval.ms": "20",
            **{key.replace("__", "."): value for key, value in more.items()},
        }

    async def begin(self, **more: str) -> tuple[dict[str, str], SavedOffsets]:
        """A configuration, and the saved place of now."""
        properties = self.config(**more)
        async with Run(MySqlConnector, properties) as run:
            assert await run.take(LIMIT) is not None
            return properties, run.offsets

    async def rest(self, run: Run, seen: list[int] | None = None) -> list[SourceRecord]:
        """All records up to now, but tombstones; the numbers of records of each batch go to ``seen``."""
        self.ends += 1
        self.sql(f"INSERT INTO {END} VALUES ({self.ends})")
        records: list[SourceRecord] = []
        while True:
            batch = await run.take(LIMIT)
            assert batch is not None, f"the end did not come; log:\n{run.log.text()}"
            assert not batch[1].bad, batch[1].bad
            if seen is not None:
                seen.append(len(batch[1].records))
            for record in batch[1].records:
                if record.key == {"n": self.ends} and record.topic.endswith(END):
                    return records
                if record.value is not None and not record.topic.endswith(END):
                    records.append(record)

    async def changes(self, *statements: str | bytes, **more: str) -> list[SourceRecord]:
        """The records of the statements' changes, met while they are made."""
        async with Run(MySqlConnector, self.config(**more)) as run:
            assert await run.take(LIMIT) is not None
            self.sql(*statements)
            return await self.rest(run)


@pytest.fixture
def source(server: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(server, f"images_{unique('x')[-8:]}")
    yield source
    source.sql(f"DROP DATABASE {source.name}")
    source.link.close()


def brief(records: Sequence[SourceRecord]) -> list[tuple[Any, ...]]:
    return [(record.value["op"], record.key, record.value["before"], record.value["after"]) for record in records]


def rows_by_key(records: Sequence[SourceRecord], table: str) -> dict[str, Any]:
    """The rows of a table by key, according to its changes."""
    rows: dict[str, Any] = {}
    for record in records:
        if not record.topic.endswith(f".{table}"):
            continue
        op, key = record.value["op"], json.dumps(record.key)
        if op == "t":
            rows.clear()
        elif op == "d":
            assert key in rows, f"{key} is deleted and was not there"
            del rows[key]
        else:
            assert record.value["after"] is not None
            assert (key in rows) == (op == "u"), f"{op} of {key}"
            rows[key] = record.value["after"]
    return rows


async def read_snapshot(run: Run) -> list[SourceRecord]:
    """All records until the first snapshot is complete, without tombstones."""
    records: list[SourceRecord] = []
    while "completed" not in [offset["state"] for partition, offset in run.offsets.items() if "snapshot" in partition]:
        batch = await run.take(LIMIT)
        assert batch is not None, run.log.text()
        assert not batch[1].bad, batch[1].bad
        records += [record for record in batch[1].records if record.value is not None]
    return records


def contents(source: Source, table: str, *fields: str) -> list[dict[str, Any]]:
    rows = source.sql(f"SELECT {', '.join(fields)} FROM {table}")
    return [dict(zip(fields, row, strict=True)) for row in rows]


def same(first: Any, second: Any) -> bool:
    return sorted(map(repr, first)) == sorted(map(repr, second))


async def test_identical_rows_without_a_key_add_up_while_they_are_read(source: Source) -> None:
    source.sql("CREATE TABLE k (v INT, t VARCHAR(9))", "INSERT INTO k SELECT seq % 10, 'old' FROM seq_1_to_200")
    config = source.config(snapshot__mode="initial", snapshot__chunk__rows="20", snapshot__rate__rows="100")
    async with Run(MySqlConnector, config) as run:
        records: list[SourceRecord] = []
        while not any(record.topic.endswith(".k") for record in records):
            next_batch = await run.take(LIMIT)
            assert next_batch is not None, run.log.text()
            records += next_batch[1].records
        source.sql(
            "DELETE FROM k WHERE v < 5 LIMIT 60",
            "UPDATE k SET t = 'new' WHERE v > 2 LIMIT 50",
            "INSERT INTO k VALUES (3, 'old'), (3, 'old')",
            "DELETE FROM k WHERE t = 'new' LIMIT 20",
        )
        records += await read_snapshot(run) + await source.rest(run)
    rows: Counter[tuple[int, str]] = Counter()
    operations = Counter(record.value["op"] for record in records if record.topic.endswith(".k"))
    for record in records:
        if record.topic.endswith(".k"):
            before, after = record.value["before"], record.value["after"]
            if before is not None:
                rows[before["v"], before["t"]] -= 1
                assert min(rows.values()) >= 0, f"{record.value} takes away a row that was not sent"
            if after is not None:
                rows[after["v"], after["t"]] += 1
    assert +rows == Counter(source.sql("SELECT v, t FROM k"))
    assert operations == {"r": 200, "c": 2, "u": 50, "d": 80}


# Images of rows.


async def test_row_images(source: Source) -> None:
    """A column that the server does not log comes from the row before, or is null; never another column's value."""
    source.sql("CREATE TABLE t (a INT, k INT PRIMARY KEY, b VARCHAR(20), c BLOB, d TEXT NOT NULL)")
    full = {"a": 1, "k": 1, "b": "b", "c": b"c", "d": "d"}
    expected = {
        "FULL": [
            ("u", {"k": 1}, full, {**full, "a": 9}),
            ("u", {"k": 1}, {**full, "a": 9}, {**full, "a": 9, "d": "e"}),
            ("d", {"k": 1}, {**full, "a": 9, "d": "e"}, None),
            ("c", {"k": 2}, None, {**full, "a": 9, "k": 2, "d": "e"}),
            ("d", {"k": 2}, {**full, "a": 9, "k": 2, "d": "e"}, None),
        ],
        "NOBLOB": [
            ("u", {"k": 1}, {"a": 1, "k": 1, "b": "b"}, {"a": 9, "k": 1, "b": "b"}),
            ("u", {"k": 1}, {"a": 9, "k": 1, "b": "b"}, {"a": 9, "k": 1, "b": "b", "d": "e"}),
            ("d", {"k": 1}, {"a": 9, "k": 1, "b": "b"}, None),
            ("c", {"k": 2}, None, {"a": 9, "k": 2, "b": "b"}),
            ("d", {"k": 2}, {"a": 9, "k": 2, "b": "b"}, None),
        ],
        "MINIMAL": [
            ("u", {"k": 1}, {"k": 1}, {"a": 9, "k": 1}),
            ("u", {"k": 1}, {"k": 1}, {"k": 1, "d": "e"}),
            ("d", {"k": 1}, {"k": 1}, None),
            ("c", {"k": 2}, None, {"k": 2}),
            ("d", {"k": 2}, {"k": 2}, None),
        ],
    }
    for image, expected_changes in expected.items():
        records = await source.changes(
            f"SET SESSION binlog_row_image = {image}",
            "INSERT INTO t VALUES (1, 1, 'b', 'c', 'd')",
            "UPDATE t SET a = 9",
            "UPDATE t SET d = 'e'",
            "UPDATE t SET k = 2",
            "DELETE FROM t",
        )
        first, *others = brief(records)
        assert first == ("c", {"k": 1}, None, full), image
        assert others == expected_changes, image


async def test_generated_and_invisible_columns(source: Source) -> None:
    """The stream and the table give the same rows: generated columns stored or not, and invisible ones."""
    source.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, s VARCHAR(20) AS (CONCAT('s', a)) STORED, "
        "h INT INVISIBLE DEFAULT 5, z VARCHAR(9))"
    )
    streamed = await source.changes(
        "INSERT INTO t (id, a, z) VALUES (1, 1, 'z'), (2, NULL, 'y')", "UPDATE t SET a = 7, h = 6 WHERE id = 1"
    )
    expected = [
        {"id": 1, "a": 7, "v": 8, "s": "s7", "h": 6, "z": "z"},
        {"id": 2, "a": None, "v": None, "s": None, "h": 5, "z": "y"},
    ]
    assert same(rows_by_key(streamed, "t").values(), expected)
    async with Run(MySqlConnector, source.config(snapshot__mode="initial")) as run:
        pulled = await read_snapshot(run)
    pulled = [record for record in pulled if record.topic.endswith(".t")]
    assert [record.value["after"] for record in pulled] == expected
    assert {record.value_schema for record in pulled} == {record.value_schema for record in streamed}


async def test_a_table_without_key_beside_a_writer(source: Source) -> None:
    """Whoever adds what comes and takes away what goes (if it is there) has each row as often as the table, alike ones too."""
    source.sql(
        "CREATE TABLE t (a INT, b VARCHAR(40))",
        f"INSERT INTO t SELECT seq % 700, CONCAT('x', seq) FROM {source.name}.seq_1_to_6000",
        f"INSERT INTO t SELECT -1, 'alike' FROM {source.name}.seq_1_to_900",
    )
    stopped = threading.Event()

    def write() -> None:
        with closing(source.connection()) as link, link.cursor() as cursor:
            cursor.execute(f"USE {source.name}")
            number = 0
            while not stopped.is_set():
                number += 1
                cursor.execute(
                    f"INSERT INTO t VALUES ({number % 700}, 'n{number}'), (-1, 'alike'), (-2, 'a'), (-2, 'a')"
                )
                cursor.execute(f"UPDATE t SET b = CONCAT(b, '!') WHERE a = {number * 13 % 700} LIMIT 2")
                cursor.execute(f"DELETE FROM t WHERE a = {number * 29 % 700} LIMIT 3")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        async with Run(MySqlConnector, source.config(snapshot__mode="initial", snapshot__chunk__rows="500")) as run:
            records = await read_snapshot(run)
            while {record.value["op"] for record in records} < set("rcud"):
                batch = await run.take(LIMIT)
                assert batch is not None, run.log.text()
                records += batch[1].records
            stopped.set()
            await asyncio.to_thread(writer.join)
            records += await source.rest(run)
    finally:
        stopped.set()
        writer.join()
    kept: Counter[str] = Counter()
    for record in records:
        if record.value is not None and record.topic.endswith(".t"):
            assert record.key is None
            before, after = (record.value[name] and json.dumps(record.value[name]) for name in ("before", "after"))
            if kept[before]:
                kept[before] -= 1
            kept[after] += after is not None
    assert +kept == Counter(map(json.dumps, contents(source, "t", "a", "b")))


# Structures.


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
        assert "CREATE TABLE sibling LIKE t" in statements
        assert not [text for text in statements if "TRIGGER" in text or "SEQUENCE" in text]


# Size.


async def test_a_huge_transaction_is_not_held(source: Source) -> None:
    """Its records are handed over as its events come, whatever its size; and after a restart amid it, the rest of them."""
    source.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(99))")
    properties, start = await source.begin(max__batch__size="500")
    source.sql(f"INSERT INTO t SELECT seq, REPEAT('v', 60) FROM {source.name}.seq_1_to_{TRANSACTION}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sizes: list[int] = []
    keys: list[int] = []
    async with Run(MySqlConnector, properties, offsets=start) as run:
        while len(keys) < TRANSACTION // 2:
            batch = await run.take(LIMIT)
            assert batch is not None, run.log.text()
            sizes.append(len(batch[1].records))
            keys += [record.key["id"] for record in batch[1].records]
    async with Run(MySqlConnector, properties, offsets=start) as run:
        keys += [record.key["id"] for record in await source.rest(run, sizes)]
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{TRANSACTION} rows in batches of at most {max(sizes)}: the process grew by {growth / MEBIBYTE:.1f} MiB")
    assert keys == list(range(1, TRANSACTION + 1))
    # A batch ends with the event (8 KiB) that fills it.
    assert max(sizes) < 500 + 8192 // 60


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
            "INSERT INTO t VALUES (2, 2)",
            "ALTER TABLE t ADD x INT",
            "INSERT INTO t VALUES (3, 3, 3)",
        )
        assert [after for _, _, _, after in brief(await source.rest(run))] == [
            {"id": 2, "v": 2},
            {"id": 3, "v": 3, "x": 3},
        ]
    source.link.close()


def server_offset(offsets: SavedOffsets) -> Mapping[str, Any]:
    (offset,) = (offset for partition, offset in offsets.items() if set(partition) == {"server"})
    return {name: offset[name] for name in ("file", "pos")}
