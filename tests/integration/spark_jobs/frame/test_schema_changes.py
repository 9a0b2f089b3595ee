"""Schemas that change while a flow runs: each policy and kind of change, into each kind of target; every row arrives."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql import functions as f
from pyspark.sql import types as t

from spark_jobs import history
from spark_jobs.config import job_files as config
from spark_jobs.config.schema_options import KINDS
from spark_jobs.contract import Column, TableSchema
from spark_jobs.reports.progress import EventWriter
from spark_jobs.rows.schema_frames import build_rest_column, fit_column
from spark_jobs.runner import Runner
from tests.integration.spark_jobs.delta.test_delta_conformance import DeltaTarget
from tests.integration.spark_jobs.iceberg.test_iceberg_conformance import IcebergTarget
from tests.integration.spark_jobs.jdbc.conftest import database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.postgres import Postgres
    from spark_jobs.testing import SinkTarget
    from tests.conftest import HasMariaDb
    from tests.integration.spark_jobs.frame.bench import Bench
    from tests.integration.spark_jobs.jdbc.conftest import Database

#: A table, its columns with their types, and a row.
Change = tuple[str, dict[str, str], dict[str, Any]]
BIG = 2**40
#: Formats of tables by the name of their sink.
LAKES: Final = {"delta": DeltaTarget, "iceberg": IcebergTarget}
TABLES = ("grown", "shrunk", "wide", "odd", "fresh")
#: The rows that the source had first, and those that came after each table was changed.
BEFORE: Final[list[Change]] = [
    ("grown", {"a": "int32"}, {"id": 1, "a": 1}),
    ("shrunk", {"a": "int32", "b": "int32"}, {"id": 1, "a": 1, "b": 2}),
    ("wide", {"a": "int32"}, {"id": 1, "a": 1}),
    ("wide", {"a": "int32"}, {"id": 2, "a": 2}),
    ("odd", {"a": "int32"}, {"id": 1, "a": 1}),
    ("odd", {"a": "int32"}, {"id": 2, "a": 2}),
    ("grown", {"a": "int32"}, {"id": 2, "a": 2}),
]
AFTER: Final[list[Change]] = [
    ("grown", {"a": "int32", "c": "string"}, {"id": 3, "a": 3, "c": "x"}),
    ("shrunk", {"a": "int32"}, {"id": 2, "a": 2}),
    ("wide", {"a": "int64"}, {"id": 3, "a": 7}),
    ("wide", {"a": "int64"}, {"id": 4, "a": BIG}),
    ("odd", {"a": "string"}, {"id": 3, "a": "8"}),
    ("odd", {"a": "string"}, {"id": 4, "a": "x"}),
    ("fresh", {"a": "int32"}, {"id": 1, "a": 1}),
]


def record(table: str, columns: dict[str, str], row: dict[str, Any]) -> str:
    """A Debezium event with its schema."""
    fields = [
        {"field": name, "type": kind, "optional": name != "id"} for name, kind in {"id": "int32", **columns}.items()
    ]
    source = [{"field": name, "type": "string", "optional": True} for name in ("db", "table")]
    schema = {
        "type": "struct",
        "name": f"s.{table}.Envelope",
        "fields": [
            {"field": "before", "type": "struct", "optional": True, "fields": fields, "name": f"s.{table}.Value"},
            {"field": "after", "type": "struct", "optional": True, "fields": fields, "name": f"s.{table}.Value"},
            {"field": "source", "type": "struct", "fields": source, "name": "s.Source"},
            {"field": "op", "type": "string"},
        ],
    }
    payload = {"before": None, "after": row, "source": {"db": "d", "table": table}, "op": "c"}
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":"))  # as Connect writes it


@dataclass
class Target:
    """A sink, and what it holds."""

    name: str
    spark: SparkSession
    server: Postgres | HasMariaDb | None
    folder: Path
    suffix: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def options(self) -> dict[str, str]:
        if self.name == "files":
            return {"sink.type": "files", "sink.files.path": str(self.folder / "history")}
        if self.name in LAKES:
            return {"sink.type": self.name, **self._lake().options()}
        assert self.server is not None
        return {
            "sink.type": "jdbc",
            "sink.jdbc.url": self.server.url,
            "sink.jdbc.user": self.server.user,
            "sink.jdbc.password": self.server.password,
            "sink.jdbc.table": "${table}_" + self.suffix,
            "sink.jdbc.repartition": "never",  # rows of the one partition go from Arrow to the database as they are
        }

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """These columns of all rows, in order of the id."""
        if self.name == "files":
            frame = history.read(self.spark, str(self.folder / "history"), f"d.{table}")
            return [tuple(row) for row in frame.select("id", *columns).orderBy("id").collect()]
        if self.name in LAKES:
            rows = self._lake().rows(TableSchema(f"d.{table}", ()))
            return sorted(tuple(row[name] for name in ("id", *columns)) for row in rows)
        return self._database().query(f"SELECT {', '.join(('id', *columns))} FROM {table}_{self.suffix} ORDER BY id")

    def columns(self, table: str) -> set[str]:
        """Columns of the table that are the source's or stand for them."""
        if self.name == "files":
            names = history.read(self.spark, str(self.folder / "history"), f"d.{table}").columns
        elif self.name in LAKES:
            names = list(self._lake().rows(TableSchema(f"d.{table}", ()))[0])
        else:
            query = "SELECT column_name FROM information_schema.columns WHERE table_name = %s"
            names = [row[0] for row in self._database().query(query, (f"{table}_{self.suffix}",))]
        return {name for name in names if not name.startswith(("ums_", "kafka_")) and name != "id"}

    def _database(self) -> Database:
        assert self.server is not None
        return database(self.server.url, self.server.user, self.server.password)

    def _lake(self) -> SinkTarget:
        folder = self.folder / "lake"
        folder.mkdir(exist_ok=True)
        return LAKES[self.name](folder)


@dataclass
class Flow:
    """A flow over one topic, run to the topic's end as often as the test asks."""

    bench: Bench
    target: Target
    spark: SparkSession
    topic: str
    events: list[dict[str, Any]] = field(default_factory=list)

    def send(self, records: Sequence[Change]) -> None:
        self.bench.send(self.topic, [record(*change) for change in records])

    def run(self, **options: str) -> str:
        """Run it; returns the error, empty for none."""
        del self.events[:]
        name = f"job-{self.topic}"
        properties = {
            "name": name,
            "kafka.bootstrap.servers": self.bench.bootstrap,
            "source.topics": self.topic,
            "source.format": "debezium",
            "source.key.columns": "id",
            "source.key.encoding": "bytes",
            "source.max.offsets.per.trigger": str(len(BEFORE)),
            "trigger.mode": "available-now",
            "state.dir": str(self.bench.folder / "state"),
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{self.topic}-dead",
            **self.target.options,
            **options,
        }
        stream = EventWriter(name, None, on_event=self.events.append)
        Runner(config.build_job(properties), stream, spark=self.spark).run()
        return next((str(event["error"]) for event in self.events if event["event"] == "failed"), "")

    def changes(self) -> set[tuple[str, str, str]]:
        """(table, kind, policy) of the changes that were reported."""
        changes = [event for event in self.events if event["event"] == "schema_change"]
        assert len({json.dumps([event["table"], event["change"], event["column"]]) for event in changes}) == len(
            changes
        )
        return {(event["table"].removeprefix("d."), event["change"], event["policy"]) for event in changes}

    def dead_letters(self) -> int:
        topics = self.bench.admin.list_topics(timeout=10).topics
        self.bench.topics.append(f"{self.topic}-dead")
        from confluent_kafka import Consumer, TopicPartition

        assert f"{self.topic}-dead" in topics
        consumer = Consumer({"bootstrap.servers": self.bench.bootstrap, "group.id": "unused"})
        try:
            return consumer.get_watermark_offsets(TopicPartition(f"{self.topic}-dead", 0), timeout=20)[1]
        finally:
            consumer.close()


SLOW: Final = [pytest.param(name, marks=pytest.mark.slow) for name in ("mariadb", *LAKES)]


@pytest.fixture(params=["postgresql", "files", *SLOW])
def flow(request: pytest.FixtureRequest, bench: Bench, spark: SparkSession, tmp_path: Path) -> Flow:
    fixture = {"postgresql": "postgres", "mariadb": "mariadb"}.get(request.param)
    server = request.getfixturevalue(fixture) if fixture else None
    return Flow(bench, Target(request.param, spark, server, tmp_path), spark, bench.topic(1))


FOLLOWED = {
    "grown": [(1, 1, None), (2, 2, None), (3, 3, "x")],
    "shrunk": [(1, 1, 2), (2, 2, None)],
    "wide": [(1, 1), (2, 2), (3, 7), (4, BIG)],
    "fresh": [(1, 1)],
}
COLUMNS = {"grown": ("a", "c"), "shrunk": ("a", "b"), "wide": ("a",), "odd": ("a",), "fresh": ("a",)}


def rows_of(flow: Flow, *tables: str) -> dict[str, list[tuple[Any, ...]]]:
    return {table: flow.target.rows(table, COLUMNS[table]) for table in tables}


def reported(policy: str, **others: str) -> set[tuple[str, str, str]]:
    kinds = ("new.column", "dropped.column", "wider.type", "incompatible.type", "new.table")
    tables = ("grown", "shrunk", "wide", "odd", "fresh")
    return {(table, kind, others.get(table, policy)) for table, kind in zip(tables, kinds, strict=True)}


@pytest.mark.slow  # several runs for each target
def test_evolve_follows_and_stops_where_no_type_holds_both(flow: Flow) -> None:
    flow.send(BEFORE)
    flow.send(AFTER)
    assert "column a: its type was int and is string now; no type holds both" in flow.run()
    # Nothing of the batch was written, and nothing of it is lost.
    assert flow.target.rows("wide", ["a"]) == [(1, 1), (2, 2)]
    assert flow.run(**{"sink.schema.incompatible.type": "ignore"}) == ""
    assert rows_of(flow, *FOLLOWED) == FOLLOWED
    assert rows_of(flow, "odd")["odd"] == [(1, 1), (2, 2), (3, 8), (4, None)]
    assert flow.changes() == reported("evolve", odd="ignore")


@pytest.mark.parametrize("flow", ["postgresql", pytest.param("files", marks=pytest.mark.slow), *SLOW], indirect=True)
def test_try_evolve_follows_and_ignores_what_the_target_refuses(flow: Flow) -> None:
    flow.send(BEFORE)
    flow.send(AFTER)
    assert flow.run(**{"sink.schema.changes": "try_evolve"}) == ""
    assert rows_of(flow, *FOLLOWED) == FOLLOWED
    # No target makes text of a number: what can be read as one is written, the rest of the row arrives.
    assert rows_of(flow, "odd")["odd"] == [(1, 1), (2, 2), (3, 8), (4, None)]
    assert flow.changes() == reported("try_evolve", odd="ignore")
    assert flow.dead_letters() == 0


@pytest.mark.parametrize("flow", ["postgresql", pytest.param("files", marks=pytest.mark.slow), *SLOW], indirect=True)
def test_lenient_adds_and_changes_no_column(flow: Flow) -> None:
    flow.send(BEFORE)
    flow.send(AFTER)
    assert flow.run(**{"sink.schema.changes": "lenient"}) == ""
    assert rows_of(flow, "grown", "shrunk", "fresh") == {name: FOLLOWED[name] for name in ("grown", "shrunk", "fresh")}
    assert flow.target.rows("wide", ["a", "a_as_text"]) == [
        (1, 1, None),
        (2, 2, None),
        (3, 7, None),
        (4, None, str(BIG)),
    ]
    assert flow.target.rows("odd", ["a", "a_as_text"]) == [(1, 1, None), (2, 2, None), (3, 8, None), (4, None, "x")]
    assert flow.changes() == reported("lenient")
    # Also in a later run, and reported once. Its second batch shows nothing new, so that one is decoded in one pass.
    ids = range(5, 5 + len(BEFORE) + 1)
    flow.send([("wide", {"a": "int64"}, {"id": number, "a": BIG + number}) for number in ids])
    assert flow.run(**{"sink.schema.changes": "lenient"}) == ""
    assert flow.target.rows("wide", ["a", "a_as_text"])[4:] == [(number, None, str(BIG + number)) for number in ids]
    assert flow.changes() == set()


@pytest.mark.parametrize("flow", ["postgresql", pytest.param("files", marks=pytest.mark.slow), *SLOW], indirect=True)
def test_ignore_leaves_the_target_as_it_is(flow: Flow) -> None:
    flow.send(BEFORE)
    flow.send(AFTER)
    assert flow.run(**{"sink.schema.changes": "ignore"}) == ""
    assert flow.target.rows("grown", ["a"]) == [(1, 1), (2, 2), (3, 3)]
    assert {table: flow.target.columns(table) for table in ("grown", "shrunk", "wide", "odd")} == {
        "grown": {"a"},
        "shrunk": {"a", "b"},
        "wide": {"a"},
        "odd": {"a"},
    }
    assert rows_of(flow, "shrunk")["shrunk"] == FOLLOWED["shrunk"]
    assert rows_of(flow, "wide")["wide"] == [(1, 1), (2, 2), (3, 7), (4, None)]
    assert rows_of(flow, "odd")["odd"] == [(1, 1), (2, 2), (3, 8), (4, None)]
    assert flow.changes() == reported("ignore")
    assert flow.dead_letters() == 1  # the row of the new table


@pytest.mark.slow  # several runs for each target
def test_fail_stops_before_the_first_row_and_loses_none(flow: Flow) -> None:
    flow.send(BEFORE)
    flow.send(AFTER)
    lenient = {f"sink.schema.{kind}": "lenient" for kind in KINDS}
    for kind, table in zip(KINDS, ("fresh", "grown", "shrunk", "wide", "odd"), strict=True):
        error = flow.run(**lenient | {f"sink.schema.{kind}": "fail"})
        if kind == "incompatible.type":
            assert "table d.odd" in error.replace("Table", "table")
        else:
            assert f"table d.{table}: " in error
            assert f"the policy for this is fail (sink.schema.{kind})" in error
        assert flow.target.rows("grown", ["a"]) == [(1, 1), (2, 2)]
        assert flow.changes() == set()
    assert flow.run(**lenient) == ""
    assert [len(flow.target.rows(table, ["a"])) for table in TABLES] == [3, 2, 4, 4, 1]


# What becomes of single values.

NESTED = t.StructType([t.StructField("a", t.IntegerType())])
WIDER = t.StructType([t.StructField("a", t.LongType()), t.StructField("b", t.StringType())])


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (t.StringType(), t.IntegerType(), [("8", 8, None), ("x", None, "x"), ("007", 7, "007"), (None, None, None)]),
        (t.DoubleType(), t.IntegerType(), [(1.0, 1, None), (1.5, None, "1.5")]),
        (
            t.DecimalType(12, 4),
            t.DecimalType(6, 2),
            [(Decimal("1.25"), Decimal("1.25"), None), (Decimal("1.2555"), None, "1.2555")],
        ),
        (t.BinaryType(), t.IntegerType(), [(b"\xff", None, "/w==")]),
        (
            WIDER,
            NESTED,
            [
                ((3, "y"), (3,), '{"a":3,"b":"y"}'),
                ((BIG, None), (None,), f'{{"a":{BIG},"b":null}}'),
                (None, None, None),
            ],
        ),
        (t.ArrayType(t.LongType()), t.ArrayType(t.IntegerType()), [([1, 2], [1, 2], None), ([BIG], None, f"[{BIG}]")]),
        (
            t.MapType(t.IntegerType(), t.LongType()),
            t.MapType(t.IntegerType(), t.IntegerType()),
            [({1: 2}, None, '{"1":2}'), (None, None, None)],
        ),
    ],
    ids=["text", "double", "decimal", "bytes", "struct", "array", "map"],
)
def test_a_value_is_held_or_its_text_is(
    spark: SparkSession, source: t.DataType, target: t.DataType, expected: list[tuple[Any, Any, Any]]
) -> None:
    rows = spark.createDataFrame([(case[0],) for case in expected], t.StructType([t.StructField("c0", source)]))
    columns = Column("c", source), Column("c", target)
    results = rows.select(fit_column(f.col("c0"), *columns), build_rest_column(f.col("c0"), *columns)).collect()
    plain = [tuple(tuple(value) if isinstance(value, tuple) else value for value in row) for row in results]
    assert plain == [case[1:] for case in expected]
