"""Debezium events into Iceberg tables, by a job and by Iceberg's own sink for Kafka Connect; see ``sink_peers``.

Both append a row for each event, deletes too, to a table of a catalog of their own, in SQLite, with Parquet files on the local
disk. How far they are is what the tables' last snapshots say, so that figures are those of rows that readers see.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyspark
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from compose.local.connect import DEBEZIUM, JavaConnect
from compose.local.process.jvm import Heap
from tests.bench._common import cpu_seconds
from tests.bench._row_events import DATABASE, TABLE
from worker.fetch.artifacts import load_manifest
from worker.fetch.resolver import ArtifactResolver

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION: Final = "1.12.0"
LIMIT_S: Final = 400.0
#: The sink commits at these times; a job commits its batches.
_COMMIT_MS: Final = 2000
_NAME: Final = "lake"
#: Columns of the same types in both tables: neither the price, which is a decimal of another width, nor the time.
_COMPARED: Final = ("id", "customer", "item", "note", "weight", "paid")


def plugin_path(folder: Path) -> Path:
    """A folder with the jars of Iceberg's sink, downloaded once. Hadoop's client, which it needs, comes with Spark. Blocks."""
    jars = ArtifactResolver().fetch(load_manifest().members("iceberg-connect"), "Iceberg's sink")
    jars += sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
    target = folder / "plugins" / "iceberg"
    target.mkdir(parents=True)
    for jar in jars:
        (target / jar.name).symlink_to(jar)
    return target.parent


def job_config(kafka: str, topic: str, folder: Path, batch: int) -> dict[str, Any]:
    """The job file: rows are appended to ``shop.orders`` of the catalog in the folder, exactly once."""
    return {
        "name": f"rows-{topic}",
        "kafka": {"bootstrap.servers": kafka},
        "source": {
            "topics": topic,
            "format": "debezium",
            "value.encoding": "json",
            "key.encoding": "json",
            "max.offsets.per.trigger": batch,
        },
        "sink": {
            "type": "iceberg",
            "iceberg": {
                "mode": "insert",
                "namespace": DATABASE,
                "table": TABLE,
                "catalog": {
                    "type": "sql",
                    "uri": f"sqlite:///{folder}/catalog.db",
                    "warehouse": f"file://{folder}/lake",
                },
            },
        },
        "trigger": {"interval.ms": 0},
        "checkpoint": {"location": str(folder / "checkpoint")},
        "state": {"dir": str(folder / "state")},
        "spark": {"master": "local[1]", "driver.memory": "1g"},
    }


def sink_config(kafka: str, topic: str, folder: Path) -> dict[str, str]:
    """Iceberg's sink: the same, exactly once, too. It takes rows, which Debezium's transform makes of the events."""
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "1",
        "topics": topic,
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        "iceberg.tables": f"{DATABASE}.{TABLE}",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.catalog": _NAME,
        "iceberg.catalog.type": "jdbc",
        "iceberg.catalog.uri": f"jdbc:sqlite:{folder}/catalog.db",
        "iceberg.catalog.warehouse": f"file://{folder}/lake",
        "iceberg.control.topic": f"control-{topic}",
        "iceberg.control.commit.interval-ms": str(_COMMIT_MS),
        "iceberg.kafka.bootstrap.servers": kafka,
        "consumer.override.max.poll.records": "5000",
        "consumer.override.auto.offset.reset": "earliest",
    }


def catalog_of(folder: Path, name: str) -> SqlCatalog:
    """The catalog in a folder, which makes its tables where they are missing."""
    return SqlCatalog(name, uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")


def rows_in(catalog: SqlCatalog) -> int:
    """The rows that readers of the table see; 0 before the table exists."""
    try:
        snapshot = catalog.load_table((DATABASE, TABLE)).current_snapshot()
    except NoSuchTableError:
        return 0
    summary = snapshot.summary if snapshot is not None else None
    return int(summary["total-records"] or 0) if summary is not None else 0


def measure_sink(kafka: str, topic: str, folder: Path, rows: int) -> tuple[float, float, float]:
    """All rows through Iceberg's sink; see ``_follow``."""
    folder.mkdir()
    catalog = catalog_of(folder, _NAME)
    catalog.create_namespace(DATABASE)
    control, admin = f"control-{topic}", AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(control, 1, 1)])[control].result(30)
    worker = JavaConnect(
        folder / "connect",
        kafka,
        group="java-connect-iceberg",
        port=None,
        plugins=(DEBEZIUM,),
        heap=Heap(1024, 1024),
        properties={
            "plugin.path": str(plugin_path(folder)),
            "connector.client.config.override.policy": "All",
            "key.converter.schemas.enable": "true",
            "value.converter.schemas.enable": "true",
        },
    )
    with worker:
        name = f"peer-{topic}"
        status, body = worker.request("PUT", f"/connectors/{name}/config", sink_config(kafka, topic, folder), 60)
        if status not in {200, 201}:
            raise RuntimeError(f"{name} was refused: {status} {body}")

        def count() -> int:
            tasks = worker.request("GET", f"/connectors/{name}/status")[1].get("tasks", ())
            failures = [task["trace"] for task in tasks if task["state"] == "FAILED"]
            if failures:
                raise RuntimeError(f"{name} failed: {failures[0]}")
            return rows_in(catalog)

        return _follow(count, lambda: cpu_seconds(worker.pid), rows)


def _follow(count: Callable[[], int], cpu: Callable[[], float], rows: int) -> tuple[float, float, float]:
    """Wait for all rows: rows/s up to nine tenths, CPU microseconds per row, the seconds from then to all rows.

    What is left out comes before the first rows that are seen. The last commit of Iceberg's sink may be late, while it does
    nothing.

    Raises:
        RuntimeError: they did not come in time.
    """
    samples: list[tuple[float, int, float]] = []
    deadline = time.monotonic() + LIMIT_S
    while not samples or samples[-1][1] < rows:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{samples[-1:]} of {rows} rows after {LIMIT_S:g} s")
        time.sleep(0.25)
        visible = count()
        if visible > (samples[-1][1] if samples else 0):
            samples.append((time.monotonic(), visible, cpu()))
    (begin, first, before), (end, last, after) = samples[0], samples[-1]
    most_at, most, _ = next(sample for sample in samples if sample[1] >= rows * 0.9)
    speed = (most - first) / max(most_at - begin, 1e-9)
    return speed, (after - before) / max(last - first, 1) * 1e6, end - most_at


def compare(job: Path, sink: Path) -> int:
    """Compare the rows of both tables; the number of them.

    Raises:
        RuntimeError: a row is not the same.
    """
    ours, theirs = (
        catalog_of(folder, name)
        .load_table((DATABASE, TABLE))
        .scan(selected_fields=_COMPARED)
        .to_arrow()
        .select(_COMPARED)
        .cast(_compared_schema())
        .sort_by([(name, "ascending") for name in ("id", "weight")])
        for folder, name in ((job, "millrace"), (sink, _NAME))
    )
    if not ours.equals(theirs):
        raise RuntimeError(f"{ours.num_rows} rows of the job and {theirs.num_rows} of Iceberg's sink differ")
    return int(ours.num_rows)


def _compared_schema() -> pa.Schema:
    kinds = (pa.int64(), pa.int64(), pa.string(), pa.string(), pa.float64(), pa.bool_())
    return pa.schema(list(zip(_COMPARED, kinds, strict=True)))
