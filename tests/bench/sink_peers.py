"""``millrace bench sink_peers [NAME ...]``: Debezium events out of a topic, by a row job and by a Java sink in a Java worker.

``postgresql``: Debezium's JDBC sink; both upsert. ``iceberg``: iceberg-kafka-connect; both append (``_iceberg_peer``). They get
the same events, one after the other, in the same run: JSON with schemas, which is what Java's sinks can read without a schema
registry. The job has one core of Spark (``local[1]``), the sink one task. CPU is that of all processes of the job, and of the
worker; PostgreSQL's and Kafka's are not counted. Figures leave out the start: the job's first batch, the first tenth of the
rows of Debezium's sink, the first commit of Iceberg's. In the end the tables are compared: the job's with the events
(PostgreSQL), and columns of both with each other.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from compose.local.connect import JavaConnect
from compose.local.kafka import KafkaCluster
from compose.local.postgres import Postgres
from compose.local.process.jvm import Heap
from tests.bench import _iceberg_peer as iceberg
from tests.bench import _row_events as events
from tests.bench._common import cpu_seconds, environment
from tests.bench.rows import check, job_config
from tests.support.job_process import Job
from worker.fetch.artifacts import load_manifest
from worker.fetch.paths import cache_dir
from worker.fetch.resolver import ArtifactResolver
from worker.fetch.unpack import unpack_tar

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIMIT_S = 400.0


def plugin_path() -> Path:
    """The folder of Debezium's JDBC sink, downloaded and unpacked once. Blocks."""
    (artifact,) = load_manifest().members("debezium-jdbc")
    (archive,) = ArtifactResolver().fetch([artifact], "Debezium's JDBC sink")
    return unpack_tar(archive, cache_dir() / "unpacked" / artifact.sha256)


def sink_config(topic: str, table: str, server: Postgres) -> dict[str, str]:
    """Debezium's sink: upserts and real deletes by the record's key, the newest row of each key in a batch of 5,000."""
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": topic,
        "connection.url": server.url,
        "connection.username": server.user,
        "connection.password": server.password,
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "collection.name.format": table,
        "batch.size": "5000",
        "use.reduction.buffer": "true",
        "consumer.override.max.poll.records": "5000",
        "consumer.override.auto.offset.reset": "earliest",
    }


def delivered(admin: AdminClient, connector: str) -> int:
    """The offsets that a sink's group has committed, together."""
    group = f"connect-{connector}"
    result: Any = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
    return sum(max(partition.offset, 0) for partition in result.topic_partitions)


def measure_peer(kafka: str, topic: str, server: Postgres, folder: Path, rows: int) -> tuple[float, float]:
    """All events through Debezium's sink: rows/s, and CPU microseconds per row."""
    name, table = f"peer-{topic}", f"{topic}_peer"
    worker = JavaConnect(
        folder,
        kafka,
        port=None,
        heap=Heap(1024, 1024),
        properties={
            "plugin.path": str(plugin_path()),
            "offset.flush.interval.ms": "1000",
            "connector.client.config.override.policy": "All",
            "value.converter.schemas.enable": "true",
            "key.converter.schemas.enable": "true",
        },
    )
    admin = AdminClient({"bootstrap.servers": kafka})
    with worker:
        status, body = worker.request("PUT", f"/connectors/{name}/config", sink_config(topic, table, server), 60)
        if status not in {200, 201}:
            raise RuntimeError(f"{name} was refused: {status} {body}")
        samples: list[tuple[float, int, float]] = []
        deadline = time.monotonic() + _LIMIT_S
        while not samples or samples[-1][1] < rows:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name}: {samples[-1:]} after {_LIMIT_S:g} s; {worker.service.log_path}")
            time.sleep(0.25)
            count = delivered(admin, name)
            if count >= rows / 10 and (not samples or count > samples[-1][1]):
                samples.append((time.monotonic(), count, cpu_seconds(worker.pid)))
    (begin, first, before), (end, last, after) = samples[0], samples[-1]
    compare(server, topic, table)
    return (last - first) / (end - begin), (after - before) / max(last - first, 1) * 1e6


def compare(server: Postgres, job_table: str, peer_table: str) -> None:
    """Compare the rows of both tables.

    Raises:
        RuntimeError: a row is not the same.
    """
    columns = "id, customer, item, note"
    ours = f"SELECT {columns} FROM {job_table} WHERE ums_active_ = 1"  # noqa: S608 - own names
    theirs = f"SELECT {columns} FROM {peer_table}"  # noqa: S608 - own names
    statement = f"SELECT count(*) FROM (({ours} EXCEPT {theirs}) UNION ALL ({theirs} EXCEPT {ours})) AS differing"  # noqa: S608
    with psycopg.connect(server.url.removeprefix("jdbc:"), user=server.user, password=server.password) as connection:
        row = connection.execute(statement.encode()).fetchone()
    if row is None or row[0]:
        raise RuntimeError(f"{row} rows of {job_table} and {peer_table} differ")


def run_postgresql(folder: Path, kafka: str, rows: int, batch: int) -> None:
    """Measure and print the job and Debezium's sink."""
    with Postgres(folder / "postgres", port=None) as server:
        topic = f"r{secrets.token_hex(4)}"
        events.fill(kafka, "json-schemas", topic, "", rows, 4)
        config = job_config("json-schemas", kafka, "", topic, server, folder / topic, batch)
        config["spark"]["master"] = "local[1]"
        run_job("postgresql", config, folder / topic, rows)
        check(server, topic, rows)
        speed, cpu = measure_peer(kafka, topic, server, folder / "connect", rows)
        print(f"postgresql: Debezium JDBC sink 3.6.0: {speed:,.0f} rows/s, CPU {cpu:.1f} us/row", flush=True)


def run_iceberg(folder: Path, kafka: str, rows: int, batch: int) -> None:
    """Measure and print the job and Iceberg's sink."""
    topic = f"r{secrets.token_hex(4)}"
    events.fill(kafka, "json-schemas", topic, "", rows, 4)
    job, peer = folder / topic, folder / f"{topic}-peer"
    run_job("iceberg", iceberg.job_config(kafka, topic, job, batch), job, rows)
    speed, cpu, late_s = iceberg.measure_sink(kafka, topic, peer, rows)
    name = f"iceberg: iceberg-kafka-connect {iceberg.VERSION}"
    print(
        f"{name}: {speed:,.0f} rows/s up to nine tenths of the rows, CPU {cpu:.1f} us/row; all rows {late_s:.0f} s later"
    )
    print(f"iceberg: {iceberg.compare(job, peer):,} rows are the same in both tables", flush=True)


def run_job(name: str, config: dict[str, Any], folder: Path, rows: int) -> None:
    """Let a job read all rows, and print its figures."""
    job = Job(config, folder)
    job.start()
    job.wait_rows(rows)
    job.stop()
    print(f"{name}: job: {job.figures()}", flush=True)


_ENTRIES: Final = {"postgresql": run_postgresql, "iceberg": run_iceberg}


def main(argv: Sequence[str]) -> int:
    """Run it; minutes."""
    parser = argparse.ArgumentParser(prog="millrace bench sink_peers", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which: {', '.join(_ENTRIES)}; all where none is named"
    )
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--batch", type=int, default=50_000, help="rows in a micro-batch of the job at most")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.names) - set(_ENTRIES))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(_ENTRIES)}")
    print(environment())
    with tempfile.TemporaryDirectory(prefix="millrace-peers-") as name:
        folder = Path(name)
        with KafkaCluster(folder / "kafka", port=None) as kafka:
            for entry in options.names or _ENTRIES:
                _ENTRIES[entry](folder, kafka.bootstrap, options.rows, options.batch)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
