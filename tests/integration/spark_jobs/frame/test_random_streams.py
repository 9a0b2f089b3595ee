"""Random change streams through source, frame and sink: each target holds what a model in plain Python says.

``MILLRACE_STREAM_SEEDS=7,9`` or ``7-20`` takes other seeds.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it is there, and documented

from spark_jobs.config.job_files import build_job
from spark_jobs.config.schema_options import SchemaPolicies
from spark_jobs.contract import JobContext
from spark_jobs.execution.batches import JobBatches
from spark_jobs.execution.retries import StepRetries
from spark_jobs.inputs.contract import InputBatch
from spark_jobs.namespaces import find_identity
from spark_jobs.reports.progress import EventWriter
from spark_jobs.reports.troubles import Troubles
from spark_jobs.rows.schema_watch import SchemaWatch
from spark_jobs.spark.checkpoint import LocalFolder
from spark_jobs.testing import Gate
from tests.integration.spark_jobs.cassandra_sink.conftest import client, keyspace  # noqa: F401 - fixtures
from tests.integration.spark_jobs.cassandra_sink.test_cassandra_sink_conformance import CassandraTarget
from tests.integration.spark_jobs.clickhouse.conftest import clickhouse  # noqa: F401 - a fixture
from tests.integration.spark_jobs.clickhouse.test_clickhouse_conformance import ClickHouseTarget
from tests.integration.spark_jobs.delta.test_delta_conformance import DeltaTarget
from tests.integration.spark_jobs.files.test_files_conformance import FilesTarget
from tests.integration.spark_jobs.hbase import conftest as hbase_server
from tests.integration.spark_jobs.hbase.conftest import hbase  # noqa: F401 - a fixture
from tests.integration.spark_jobs.hbase.test_hbase_conformance import HBaseTarget
from tests.integration.spark_jobs.iceberg.test_iceberg_conformance import IcebergTarget
from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.jdbc.test_jdbc_conformance import JdbcTarget
from tests.integration.spark_jobs.kafka_sink.test_kafka_conformance import KafkaTarget
from tests.integration.spark_jobs.mongodb.conftest import mongodb  # noqa: F401 - a fixture
from tests.integration.spark_jobs.mongodb.test_mongodb_conformance import MongoTarget
from tests.integration.spark_jobs.opensearch import conftest as search_server
from tests.integration.spark_jobs.opensearch.conftest import door, opensearch  # noqa: F401 - fixtures
from tests.integration.spark_jobs.opensearch.test_opensearch_conformance import OpenSearchTarget
from tests.integration.spark_jobs.redis.test_redis_conformance import RedisTarget
from tests.support.change_messages import (
    ORDERS,
    PARTITIONS,
    MessageForm,
    StreamBatch,
    cut_batches,
    order_number,
    repeat_messages,
)
from tests.support.change_streams import KINDS, LOOSE, Event, Shop, all_changes, newest_rows, read_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.contract import TableSchema
    from spark_jobs.inputs.contract import Input
    from spark_jobs.testing import SinkTarget

RAW = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string, partition int, offset long, "
    "timestamp timestamp"
)
FORMS = ("json", "schemas", "avro", "flat", "flat_schemas", "flat_avro", "ums")
#: Sinks that write each change.
APPENDED = ("files", "kafka")
#: Servers that few other tests start.
SERVERS = ("postgresql", "mariadb", "redis", "mongodb", "clickhouse", "opensearch", "cassandra", "hbase")
#: Kinds of columns that a target can't have: nested values that are null, and keys that are empty.
UNFIT = {"clickhouse": ("list", "map", "struct"), **dict.fromkeys(("opensearch", "cassandra", "hbase"), ("code",))}


class SplitTables(JdbcTarget):
    """A database whose tables have the columns of the source alone."""

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        name = schema.namespace.rpartition(".")[2]
        columns = list(self.db.columns(name))
        return [dict(zip(columns, row, strict=True)) for row in self.db.rows(name)] if columns else []


class RealDeletes(JdbcTarget):
    """A database whose tables have no rows that are deleted."""

    supports = replace(JdbcTarget.supports, upsert=False)


class Killed(Exception):
    """The end of a driver."""


@dataclass(slots=True)
class StreamJob:
    """A job as its driver runs it, without Kafka: batches are handed to it."""

    spark: SparkSession
    properties: dict[str, str]
    form: MessageForm
    batches: JobBatches = field(init=False)
    present: StreamBatch = field(init=False)
    #: By identity. A driver that leaves out a replayed batch has not seen its tables.
    schemas: dict[str, TableSchema] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A new driver, over the checkpoint that is there."""
        job = build_job(self.properties)
        events = EventWriter(job.name, None)
        retries = StepRetries(job.config, Troubles(events), threading.Event(), lambda: None)
        self.batches = JobBatches(job, retries)
        context = JobContext(job.name, job.config, self.spark, logging.LoggerAdapter(logging.getLogger("test"), {}))
        folder = LocalFolder(Path(job.checkpoint))
        schemas = SchemaWatch(SchemaPolicies.of(job.config), folder, events, tolerant=False)
        self.batches.begin(context, cast("Input", self), folder, schemas)
        self.batches.sink.open()
        if self.form.schemas:
            # Schemas of a registry, as if they had been asked for before.
            cast("Any", self.batches._get_source())._kinds._schema_texts.update(self.form.schemas)

    def batch(self, frame: DataFrame, _: int) -> InputBatch:
        """As ``Input.batch``."""
        return InputBatch(frame, self.present.ranges, {}, len(self.present.records))

    def write(self, batch: StreamBatch, number: int) -> None:
        """Write a batch."""
        self.present = batch
        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
        rows = [
            (None if message.key is None else bytearray(message.key), bytearray(message.value), None, *where, moment)
            for *where, message in sorted(batch.records, key=lambda record: record[:3])  # as Kafka gives them
        ]
        try:
            self.batches.write(self.spark.createDataFrame(rows, RAW).coalesce(1), number)
        finally:
            self.schemas |= {find_identity(schema.namespace): schema for schema in self.batches._get_source().schemas()}

    def write_and_die(self, batch: StreamBatch, number: int) -> None:
        """Write a batch into the sink; the driver ends before it takes note of that."""
        write = self.batches.sink.write

        def write_then_end(part: Any) -> int:
            write(part)
            raise Killed

        cast("Any", self.batches.sink).write = write_then_end
        with pytest.raises(Killed):
            self.write(batch, number)


def name_in_target(target: SinkTarget, name: str) -> str:
    """The namespace by which a reader of the target asks for a table."""
    # These name what they make by the table alone, the others by the namespace.
    return name.removeprefix("mysql.s.") if target.sink_type in ("jdbc", "delta", "iceberg", "cassandra") else name


def compare_target(target: SinkTarget, job: StreamJob, shop: Shop, events: Sequence[Event]) -> None:
    """Whether the target has the rows of each table as the model has them."""
    for table in shop.structures:
        table_events = [event for event in events if event.structure.table == table and event.op != "t"]
        if not table_events:
            continue
        families = shop.families(table)
        name = f"mysql.s.shop.{table}" if job.form.name == "ums" else job.form.namespace(table)
        schema = replace(job.schemas[name], namespace=name_in_target(target, name))
        rows = target.rows(schema)
        if job.properties.get(f"sink.{target.sink_type}.mode") == "insert" or target.sink_type in APPENDED:
            changes = [
                (
                    raw["ums_op_"],
                    raw["ums_id_"],
                    {name: read_value(kind, raw.get(name)) for name, kind in families.items()},
                )
                for raw in rows
            ]
            expected_changes = [
                (op, order_number(job.form.name, job.form.order, number), row)
                for op, number, row in all_changes(table_events, families, before=job.form.before)
            ]
            assert sorted(map(repr, changes)) == sorted(map(repr, expected_changes))
            if job.form.name != "ums":  # whose messages have ids of their own, and come twice with them
                assert len({raw["ums_uid_"] for raw in rows if "ums_uid_" in raw}) in (0, len(rows))
            continue
        keys = list(shop.structures[table][0].keys)
        actual = {}
        for raw in rows:
            row = {column: read_value(family, raw.get(column)) for column, family in families.items()}
            name = repr([row[key] for key in keys])
            assert name not in actual
            actual[name] = row
        expected = newest_rows(table_events, families)
        assert actual == expected


def name_seeds(quick: Sequence[int], slow: Sequence[int]) -> list[Any]:
    """The seeds of a run."""
    named = os.environ.get("MILLRACE_STREAM_SEEDS", "")
    if named:
        first, _, last = named.partition("-")
        return list(range(int(first), int(last) + 1)) if last else [int(seed) for seed in named.split(",")]
    return [*quick, *(pytest.param(seed, marks=pytest.mark.slow) for seed in slow)]


def create_source_topics(properties: dict[str, str]) -> None:
    """The topics that records seem to come from: the Kafka sink asks for their partitions."""
    admin = AdminClient({"bootstrap.servers": properties["kafka.bootstrap.servers"]})
    topics = [NewTopic(topic, PARTITIONS, 1) for topic in properties["source.topics"].split(",")]
    for future in admin.create_topics(topics).values():
        future.result(30)


def run_stream(
    seed: int,
    spark: SparkSession,
    folder: Path,
    make_targets: Callable[[random.Random], dict[str, SinkTarget]],
    left_out: Sequence[str] = (),
    *,
    widens: bool = True,
) -> None:
    """Draw a stream, write it into each target with crashes, and compare."""
    chance = random.Random(seed)
    name = chance.choice(FORMS)
    loose, ums, enveloped = name in ("json", "flat"), name == "ums", name in ("json", "schemas", "avro")
    moves = enveloped and chance.random() < 0.3
    before = (enveloped or ums) and chance.random() < 0.3
    form = MessageForm(name, chance.choice(ORDERS), f"s{seed}", moves=moves, before=before)
    kinds = LOOSE if loose else tuple(kind.name for kind in KINDS.values() if not ums or kind.ums)
    keys = ("int64", "code") if loose else ("int32", "int64", "code") if ums else ("int32", "int64", "code", "uuid")
    chosen_kinds, chosen_keys = ([kind for kind in names if kind not in left_out] for names in (kinds, keys))
    shop = Shop(chance, chosen_kinds, chosen_keys, moves=moves, widens=widens)
    for number in range(chance.choice((1, 2, 3))):
        shop.add_table(f"t{number}_{seed}")
    messages = repeat_messages(chance, form.write(shop.draw_events(chance.choice((10, 40, 80)))))
    batches = cut_batches(chance, messages, chance.choice((2, 4, 6)))
    events = [event for message in messages for event in message.events]
    structures = [structure for versions in shop.structures.values() for structure in versions]
    for label, target in make_targets(chance).items():
        if ums and target.sink_type == "files":
            continue  # its reader knows a table by the name of one version
        properties = {
            "name": f"stream-{seed}-{label}",
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "checkpoint.location": str(folder / f"checkpoint-{label}"),
            "sink.type": target.sink_type,
            **target.options(),
            **form.options(structures),
        }
        print(f"seed {seed}: {form.name}, {form.order}, moves {moves}, before {before}, into {label}: {properties}")
        if target.sink_type == "kafka":
            create_source_topics(properties)
        job = StreamJob(spark, properties, form)
        fates = random.Random(f"{seed}-{label}")
        for number, batch in enumerate(batches):
            fate = fates.random()
            if fate < 0.2:
                job.write_and_die(batch, number)
                job.start()
            job.write(batch, number)
            if fate > 0.8:
                job.start()
                job.write(batch, number)
        compare_target(target, job, shop, events)
        if target.sink_type != "files" and fates.random() < 0.4:
            # The checkpoint is lost: all comes again, in other batches.
            job.properties = properties | {"checkpoint.location": str(folder / f"second-checkpoint-{label}")}
            job.start()
            for number, batch in enumerate(cut_batches(fates, messages, 3)):
                job.write(batch, number)
            compare_target(target, job, shop, events)
        job.batches.close()


@pytest.mark.parametrize("seed", name_seeds([2], [1, *range(3, 12)]))
def test_targets_in_files_equal_the_model(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    file = database(f"jdbc:sqlite:{tmp_path}/shop.db", "", "")
    real = {"sink.jdbc.delete.mode": "real"}
    (tmp_path / "iceberg").mkdir()
    inserts = RealDeletes(database(f"jdbc:sqlite:{tmp_path}/changes.db", "", ""), None, **{"sink.jdbc.mode": "insert"})

    def make_targets(chance: random.Random) -> dict[str, SinkTarget]:
        split = SplitTables(file, None, **real, **{"sink.jdbc.mode": "split"})
        targets: dict[str, SinkTarget] = {
            "sqlite": chance.choice([JdbcTarget(file, None), RealDeletes(file, None, **real), split]),
            "sqlite-insert": inserts,
            "delta": DeltaTarget(tmp_path / "delta", **chance.choice([{}, {"sink.delta.delete.mode": "real"}])),
            "iceberg": IcebergTarget(tmp_path / "iceberg", **chance.choice([{}, {"sink.iceberg.delete.mode": "real"}])),
            "files": FilesTarget(spark, tmp_path / "files"),
        }
        return {label: targets[label] for label in sorted(chance.sample(sorted(targets), 3))}

    run_stream(seed, spark, tmp_path, make_targets)


def make_server_target(label: str, seed: int, folder: Path, request: pytest.FixtureRequest) -> SinkTarget:
    """The target with a name, whose server runs."""
    chance = random.Random(seed)
    if label in ("postgresql", "mariadb"):
        server = request.getfixturevalue({"postgresql": "postgres"}.get(label, label))
        return JdbcTarget(database(server.url, server.user, server.password), None)
    if label == "kafka":
        return KafkaTarget(request.getfixturevalue("bootstrap"))
    server = request.getfixturevalue(label)
    if label == "redis":
        return RedisTarget(server, cast("Any", server), chance.choice(["hash", "json"]))
    if label == "mongodb":
        return MongoTarget(server, server, delete_mode=chance.choice(["soft", "real"]))
    if label == "opensearch":
        return OpenSearchTarget(search_server.Reader(server.url), request.getfixturevalue("gate"))
    if label == "hbase":
        values = {"sink.hbase.values": chance.choice(["text", "binary"])}
        return HBaseTarget(hbase_server.Reader(server.address), request.getfixturevalue("gate"), **values)
    if label == "cassandra":
        space = request.getfixturevalue("keyspace")
        guarantee = chance.choice(["exactly-once", "at-least-once"])
        return CassandraTarget(
            request.getfixturevalue("client"), space, request.getfixturevalue("gate"), folder, guarantee=guarantee
        )
    return ClickHouseTarget(server, server)


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Iterator[Gate]:
    """The way to the server of the test."""
    label = request.node.callspec.params["label"]
    server = request.getfixturevalue("door" if label == "opensearch" else label)
    with Gate("127.0.0.1", server if isinstance(server, int) else server.port) as proxy:
        yield proxy


@pytest.mark.parametrize("seed", name_seeds([0], range(1, 6)))
@pytest.mark.parametrize("label", ["kafka", *(pytest.param(label, marks=pytest.mark.slow) for label in SERVERS)])
def test_targets_with_servers_equal_the_model(
    label: str, seed: int, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = make_server_target(label, seed, tmp_path, request)
    run_stream(seed, spark, tmp_path, lambda _: {label: target}, UNFIT.get(label, ()), widens=target.supports.widening)
