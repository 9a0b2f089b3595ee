"""Debezium events from a Kafka topic into PostgreSQL by a row job: CPU per row of all its processes, for each encoding.

A whole job as users run it (a process of its own with its JVM and Python workers): decoding, newest row per key, load, merge,
commit. PostgreSQL's CPU and Kafka's are not counted. Figures are from the second batch on; the first one pays for starting.
Each run ends with a look whether the table holds what the events say.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg

from compose.local.kafka import KafkaCluster
from compose.local.postgres import Postgres
from compose.local.registry import SchemaRegistry
from tests.bench import _row_events as events
from tests.bench._common import environment
from tests.support.job_process import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Microseconds of CPU per row that each encoding is to cost at most.
TARGETS: Final = {"json": 20.0, "json-schemas": 30.0, "avro": 20.0}


def job_config(
    encoding: str, kafka: str, registry: str, topic: str, server: Postgres, folder: Path, batch: int
) -> dict[str, Any]:
    """The job file."""
    form = "avro" if encoding == "avro" else "json"
    return {
        "name": f"rows-{topic}",
        "kafka": {"bootstrap.servers": kafka},
        "source": {
            "topics": topic,
            "format": "debezium",
            "value.encoding": form,
            "key.encoding": form,
            **({"schema.registry.url": registry} if form == "avro" else {}),
            "max.offsets.per.trigger": batch,
        },
        "sink": {
            "type": "jdbc",
            "jdbc": {"url": server.url, "user": server.user, "password": server.password, "table": topic},
        },
        "trigger": {"interval.ms": 0},
        "checkpoint": {"location": str(folder / "checkpoint")},
        "state": {"dir": str(folder / "state")},
        "spark": {"master": f"local[{os.cpu_count()}]", "driver.memory": "1g"},
    }


def check(server: Postgres, topic: str, rows: int) -> None:
    """Compare the table with the events: how many keys, how many of them deleted, and the newest positions.

    Raises:
        RuntimeError: it does not hold what the events say.
    """
    keys = max(rows // 2, 1)
    newest: dict[int, tuple[int, bool]] = {}
    for number in range(rows):
        newest[number * 7919 % keys] = (number, number >= keys and number % 20 == 0)
    expected = (len(newest), sum(gone for _, gone in newest.values()), sum(154 + n * 300 for n, _ in newest.values()))
    with psycopg.connect(server.url.removeprefix("jdbc:"), user=server.user, password=server.password) as connection:
        row = connection.execute(
            f"SELECT count(*), count(*) FILTER (WHERE ums_active_ = 0), sum(ums_id_ - 3000000000000) FROM {topic}"  # noqa: S608 - own name
        ).fetchone()
    if row is None or tuple(map(int, row)) != expected:
        raise RuntimeError(f"table {topic} holds {row}, expected {expected} (keys, deleted, positions)")


def measure(
    encoding: str, kafka: str, registry: str, server: Postgres, folder: Path, rows: int, batch: int, partitions: int
) -> float:
    """Rows of one encoding through one job; CPU microseconds per row."""
    topic = f"r{secrets.token_hex(4)}"
    events.fill(kafka, encoding, topic, registry, rows, partitions)
    job = Job(job_config(encoding, kafka, registry, topic, server, folder / topic, batch), folder / topic)
    job.start()
    job.wait_rows(rows)
    job.stop()
    check(server, topic, rows)
    (_, first, before), (_, last, after) = job.samples[0], job.samples[-1]
    spent = (sum(after.values()) - sum(before.values())) / max(last - first, 1) * 1e6
    target = TARGETS[encoding]
    verdict = "reached" if spent <= target else f"NOT reached ({spent / target:.1f} times)"
    print(
        f"{encoding:13} {rows:>9,} rows in batches of {batch:,}: {job.figures()}; start and first batch "
        f"{sum(before.values()):.0f} CPU s; target {target:.0f} us {verdict}",
        flush=True,
    )
    return spent


def main(argv: Sequence[str]) -> int:
    """Run it; minutes."""
    parser = argparse.ArgumentParser(prog="millrace bench rows", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[200_000, 20_000], help="rows in a micro-batch at most")
    parser.add_argument("--encoding", choices=events.ENCODINGS, nargs="+", default=list(events.ENCODINGS))
    parser.add_argument("--partitions", type=int, default=4, help="of the topic")
    options = parser.parse_args(argv)
    print(environment())
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        with (
            KafkaCluster(folder / "kafka", port=None) as kafka,
            SchemaRegistry(folder / "registry", port=None) as registry,
            Postgres(folder / "postgres", port=None) as server,
        ):
            for batch in options.batch:
                # Small batches need no more rows than some tens of them.
                rows = min(options.rows, 50 * batch)
                for encoding in options.encoding:
                    measure(encoding, kafka.bootstrap, registry.url, server, folder, rows, batch, options.partitions)
    print(f"{time.monotonic() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
