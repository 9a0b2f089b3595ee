"""A writer to a Cassandra table in a thread of its own, and the comparison of the table with what is in Kafka."""

# ruff: noqa: S608 - names of tables are our own
from __future__ import annotations

import json
import random
import threading
import time
from ast import literal_eval
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cassandra import DriverException, RequestExecutionException
from cassandra.cluster import Cluster, ExecutionProfile, NoHostAvailable
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import WhiteListRoundRobinPolicy

from connectors.cql.mutations.definition import CqlColumn
from connectors.cql.types import parse_type
from connectors.formats.partition_update_codec import decode_update
from tests.support.partition_merge import Table
from tests.support.patient_cql import PATIENT
from worker.converters.json_form.read import read_schema
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connectors.formats.partition_update import PartitionUpdate

COLUMNS = {"v": "text", "n": "int", "m": "map<text, int>"}
_PARTITIONS, _ROWS = 40, 8
#: What a statement may fail with while the node dies or comes back; it may have been done all the same.
PASSING = (NoHostAvailable, DriverException, RequestExecutionException, OSError)


@dataclass
class CassandraLoad:
    """Changes a table until stopped.

    Attributes:
        address: of the node, asked for at each connection.
        keyspace: made at the start.
        seed: of everything by chance.
        done: statements that were confirmed so far.
    """

    address: Callable[[], str]
    keyspace: str
    seed: int = 1
    done: int = 0
    failure: BaseException | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def table(self) -> str:
        """Full name of the table."""
        return f"{self.keyspace}.t"

    @contextmanager
    def session(self) -> Iterator[Any]:
        """A connection. Blocks."""
        host, _, port = self.address().partition(":")
        profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([host]), request_timeout=20)
        cluster = Cluster(
            [host], port=int(port), execution_profiles={"default": profile}, protocol_version=5, **PATIENT
        )
        with closing(_Closing(cluster)):
            yield cluster.connect()

    def create(self, rows: int = 1500) -> None:
        """Create the table, with rows that only a snapshot can read once their segments are gone. Blocks."""
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        with self.session() as session:
            session.execute(
                f"CREATE KEYSPACE {self.keyspace} WITH replication = "
                "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            )
            session.execute(
                f"CREATE TABLE {self.table} (pk int, ck int, {columns}, s text static, PRIMARY KEY (pk, ck)) "
                "WITH cdc = false"
            )
            insert = session.prepare(f"INSERT INTO {self.table} (pk, ck, v, m) VALUES (?, ?, ?, ?)")
            execute_concurrent_with_args(
                session,
                insert,
                [(1000 + number // 10, number % 10, f"old {number}", {"k": number}) for number in range(rows)],
            )
            session.execute(f"ALTER TABLE {self.table} WITH cdc = true")

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End writing. Blocks."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self.failure is not None:
            raise self.failure

    def rows(self) -> dict[str, Any]:
        """The current content of the table: (static column, rows with their write times) by partition. Blocks."""
        partitions: dict[str, Any] = {}
        with self.session() as session:
            for row in session.execute(f"SELECT pk, ck, v, n, m, s, writetime(v) AS w FROM {self.table}"):
                partition = partitions.setdefault(repr((row.pk,)), [row.s, {}])
                if row.ck is not None:
                    partition[1][row.ck] = (row.v, row.n, dict(row.m or {}), row.w)
        return partitions

    def _write(self) -> None:
        chance = random.Random(self.seed)
        try:
            while not self._stop.is_set():
                try:
                    with self.session() as session:
                        while not self._stop.is_set():
                            session.execute(self._statement(chance))
                            self.done += 1
                            time.sleep(0.002)
                except PASSING:
                    time.sleep(0.1)  # killed, or coming back
        except BaseException as error:  # noqa: BLE001 - raised by ``stop``
            self.failure = error

    def _statement(self, chance: random.Random) -> str:
        key, row = chance.randrange(_PARTITIONS), chance.randrange(_ROWS)
        where = f"WHERE pk = {key} AND ck = {row}"
        number, padding = chance.randrange(1 << 30), "x" * chance.choice((10, 100, 30_000))
        return chance.choice(
            (
                f"INSERT INTO {self.table} (pk, ck, v, n) VALUES ({key}, {row}, '{number}{padding}', {number})",
                f"INSERT INTO {self.table} (pk, ck, v, n) VALUES ({key}, {row}, '{number}{padding}', {number})",
                f"UPDATE {self.table} SET n = {number}, m['{chance.choice('abc')}'] = {row} {where}",
                f"UPDATE {self.table} SET m = {{'z': {number}}} {where}",
                f"UPDATE {self.table} SET s = '{number}' WHERE pk = {key}",
                f"DELETE v FROM {self.table} {where}",
                f"DELETE FROM {self.table} {where}",
                f"DELETE FROM {self.table} WHERE pk = {key} AND ck > {row}",
                f"DELETE FROM {self.table} WHERE pk = {key}"
                if chance.random() < 0.2
                else f"INSERT INTO {self.table} (pk, ck) VALUES ({key}, {row})",
            )
        )


class _Closing:
    """The driver's cluster as something that can be closed."""

    def __init__(self, cluster: Cluster) -> None:
        self.close = cluster.shutdown


def updates(bootstrap: str, topic: str, *, committed: bool) -> list[PartitionUpdate]:
    """The partition updates in a topic of JSON messages with schemas. Blocks."""
    schemas: dict[str, Any] = {}
    partition_updates = []
    for record in read_topic(bootstrap, topic, committed=committed):
        message = json.loads(record.value or b"null")
        text = json.dumps(message["schema"])
        if text not in schemas:
            schemas[text] = read_schema(message["schema"], replace_null=False)
        partition_updates.append(decode_update(message["payload"], schemas[text]))
    return partition_updates


def folded(partition_updates: list[PartitionUpdate]) -> dict[str, Any]:
    """The rows that they lead to, in the form of ``CassandraLoad.rows``."""
    key = [CqlColumn("pk", parse_type("int"), "partition_key", 0), CqlColumn("ck", parse_type("int"), "clustering", 0)]
    others = [CqlColumn(name, parse_type(kind), "regular") for name, kind in COLUMNS.items()]
    table = Table([*key, *others, CqlColumn("s", parse_type("text"), "static")])
    table.apply_all(partition_updates)
    shown: dict[str, Any] = {}
    for name, (static, rows) in table.contents().items():
        partition = table.partitions[name]
        shown[name] = [static.get("s"), {}]
        for row in rows:
            state = partition.rows[repr((row["ck"],))][1]
            written = next((cell.stamp.write_time for cell in state.cells.values() if cell.column == "v"), None)
            elements = {literal_eval(literal): value for literal, value in (row.get("m") or {}).items()}
            shown[name][1][row["ck"]] = (
                row.get("v"),
                row.get("n"),
                elements,
                None if row.get("v") is None else written,
            )
    return shown
