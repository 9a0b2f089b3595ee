"""Writers to MySQL tables in threads of their own, and the comparison of the tables with what is in Kafka."""

from __future__ import annotations

import json
import random
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pymysql

from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from worker.kafka.whole_topics import ReadRecord

#: Table -> (columns, key): one whose rows are divided among tasks, one with a string in the key, one that is not divided.
TABLES = {
    "a": ("id BIGINT PRIMARY KEY, v INT, t VARCHAR(60)", ("id",)),
    "b": ("id INT UNSIGNED, k VARCHAR(12), v INT, PRIMARY KEY (id, k)", ("id", "k")),
    "c": ("k VARCHAR(12) PRIMARY KEY, v INT", ("k",)),
}
#: Keys of each table; far apart, so that tasks share them.
_KEYS = 300
_STEP = 3_000

Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


@dataclass
class MySqlLoad:
    """Changes the tables of a database until stopped: transactions of all sizes, rollbacks, changed keys, new columns.

    Attributes:
        ports: of the server that is written to, asked for at each connection: it may change.
        database: made at the start.
        user: who writes, and the password.
        seed: of everything by chance.
        committed: transactions so far.
    """

    ports: Callable[[], int]
    database: str
    user: tuple[str, str]
    seed: int = 1
    ddl: bool = True
    committed: int = 0
    failure: BaseException | None = None
    _columns: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _pause: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def connect(self) -> pymysql.Connection[Any]:
        """A connection to the server that is written to. Blocks."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.ports(),
            user=self.user[0],
            password=self.user[1],
            autocommit=False,
            connect_timeout=5,
            read_timeout=20,
            write_timeout=20,
        )

    def create(self, rows: int = 2000) -> None:
        """Make the tables, with rows in them. Blocks."""
        chance = random.Random(self.seed)
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.database}")
            cursor.execute(f"USE {self.database}")
            for name, (columns, _) in TABLES.items():
                cursor.execute(f"CREATE TABLE {name} ({columns})")
            for first in range(0, rows, 500):
                cursor.execute(
                    "INSERT INTO a VALUES "
                    + ", ".join(f"({-number}, {number}, 'first')" for number in range(first + 1, first + 501))
                )
            for number in range(_KEYS // 2):
                self._change(cursor, chance, number)
            connection.commit()

    def start(self, writers: int = 2) -> None:
        """Begin to write."""
        self._stop.clear()
        self._threads = [threading.Thread(target=self._write, args=(number,), daemon=True) for number in range(writers)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End writing; a transaction that was started is finished first. Blocks."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def rows(self) -> Rows:
        """The current content of the tables. Blocks."""
        content: Rows = {}
        with closing(self.connect()) as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(f"USE {self.database}")
            for name, (_, key) in TABLES.items():
                cursor.execute(f"SELECT * FROM {name}")
                content[name] = {tuple(row[column] for column in key): row for row in cursor.fetchall()}
        return content

    def _write(self, number: int) -> None:
        chance = random.Random(f"{self.seed} {number}")
        try:
            while not self._stop.is_set():
                try:
                    with closing(self.connect()) as connection, connection.cursor() as cursor:
                        cursor.execute(f"USE {self.database}")
                        while not self._stop.is_set():
                            self._transaction(connection, cursor, chance, number)
                except pymysql.err.MySQLError as error:
                    if error.args[0] in {1049, 1146, 1064}:
                        raise
                    time.sleep(0.05)  # killed, or a deadlock: the transaction is gone
        except BaseException as error:  # noqa: BLE001 - raised by ``stop``
            self.failure = error

    def _transaction(
        self, connection: pymysql.Connection[Any], cursor: Any, chance: random.Random, number: int
    ) -> None:
        if self.ddl and number == 0 and chance.random() < 0.004 and self._columns < 4:
            self._columns += 1
            cursor.execute(f"ALTER TABLE {chance.choice('ac')} ADD COLUMN n{self._columns} INT DEFAULT {self._columns}")
            return
        for _ in range(chance.choice((1, 1, 1, 3, 12))):
            self._change(cursor, chance, chance.randrange(_KEYS))
        if chance.random() < 0.2:
            cursor.execute("SAVEPOINT s")
            self._change(cursor, chance, chance.randrange(_KEYS))
            cursor.execute("ROLLBACK TO SAVEPOINT s")
        if chance.random() < 0.1:
            connection.rollback()
            return
        connection.commit()
        self.committed += 1
        time.sleep(0.004)

    @staticmethod
    def _change(cursor: Any, chance: random.Random, key: int) -> None:
        value, far = chance.randrange(1 << 30), key * _STEP
        draw = chance.randrange(9)
        if draw <= 1:
            cursor.execute(
                "INSERT INTO a (id, v, t) VALUES (%s, %s, 'x') ON DUPLICATE KEY UPDATE v = %s", (far, value, value)
            )
        elif draw == 2:
            cursor.execute("DELETE FROM a WHERE id = %s", (far,))
        elif draw == 3:
            cursor.execute("UPDATE a SET t = CONCAT('u', %s) WHERE id BETWEEN %s AND %s", (value, -key - 20, -key))
        elif draw == 4:
            cursor.execute("UPDATE IGNORE a SET id = %s WHERE id = %s", (far + _STEP, far))
        elif draw == 5:
            cursor.execute(
                "REPLACE INTO b (id, k, v) VALUES (%s, %s, %s), (%s, 'z', %s)", (far, f"k{key % 7}", value, far, value)
            )
        elif draw == 6:
            cursor.execute("DELETE FROM b WHERE id = %s", (far,))
        elif draw == 7:
            cursor.execute("REPLACE INTO c (k, v) VALUES (%s, %s)", (f"k{key}", value))
        else:
            cursor.execute("DELETE FROM c WHERE k = %s", (f"k{key}",))


def records(bootstrap: str, load: MySqlLoad, *, committed: bool) -> dict[str, list[ReadRecord]]:
    """Read the records of the tables' topics. Blocks."""
    return {
        name: read_topic(bootstrap, f"{load.database}.{load.database}.{name}", committed=committed) for name in TABLES
    }


def folded(topics: dict[str, list[ReadRecord]]) -> Rows:
    """The tables that the topics lead to: each key's last value."""
    tables: Rows = {name: {} for name in TABLES}
    for name, (_, key) in TABLES.items():
        for record in topics[name]:
            assert record.key is not None
            key_values = json.loads(record.key)
            at = tuple(key_values[column] for column in key)
            row = json.loads(record.value)["after"] if record.value is not None else None
            if row is None:
                tables[name].pop(at, None)
            else:
                tables[name][at] = row
    return tables


def difference(expected: Rows, actual: Rows) -> str:
    """Describe the differences briefly; "" if there are none."""
    differences = []
    for name in TABLES:
        theirs, ours = expected[name], actual[name]
        missing, extra = sorted(theirs.keys() - ours.keys()), sorted(ours.keys() - theirs.keys())
        # A column that was added later is in no event of rows that have not changed since.
        other = [key for key in theirs.keys() & ours.keys() if not same(theirs[key], ours[key])]
        if missing or extra or other:
            example = f"; {other[0]}: {theirs[other[0]]} there, {ours[other[0]]} here" if other else ""
            differences.append(f"{name}: missing {missing[:5]}, too many {extra[:5]}, {len(other)} differ{example}")
    return "; ".join(differences)


def same(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Whether a row is the same in all columns that the event knows, and the others have their default."""
    return all(ours[name] == value if name in ours else value == int(name[1:]) for name, value in theirs.items())


def check_order(topics: dict[str, list[ReadRecord]], *, exactly_once: bool) -> int:
    """Check that each key's changes are in binlog order and no snapshot row replaces a newer change; return the repetitions.

    With at least once, some records may be repeated after a fault: then only first appearances must be in order.
    """
    repeated = 0
    for name, reads in topics.items():
        seen: set[Any] = set()
        last: dict[bytes, tuple[Any, ...]] = {}
        for read in reads:
            if read.value is None or read.key is None:
                continue
            event = json.loads(read.value)
            source = event["source"]
            position = (source["file"], source["pos"], source["row"] or 0)
            from_snapshot = event["op"] == "r"
            identity = (position, event["op"], read.key)
            if not from_snapshot and identity in seen:
                repeated += 1
                continue
            if not from_snapshot:
                seen.add(identity)
            before = last.get(read.key)
            if before is not None and (exactly_once or not from_snapshot):
                assert position[:2] >= before[:2], f"{name} {read.key!r}: {event['op']} of {position} after {before}"
            last[read.key] = position
    if exactly_once:
        assert not repeated, f"{repeated} changes came twice"
    return repeated


def counts(topics: dict[str, list[ReadRecord]]) -> int:
    """Records in all topics."""
    return sum(map(len, topics.values()))


def operations(topics: Iterable[Sequence[ReadRecord]]) -> dict[str, int]:
    """Events by operation."""
    counted: dict[str, int] = {}
    for reads in topics:
        for read in reads:
            if read.value is not None:
                op = json.loads(read.value)["op"]
                counted[op] = counted.get(op, 0) + 1
    return counted
