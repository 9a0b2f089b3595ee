"""A process that writes one transaction as a sink does in a Python worker: ``python -m tests.support.transaction_steps JSON``.

Ends with 0 when the transaction was committed, 3 when it failed in a way that is retried; the watchdog ends it otherwise.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from typing import Any

import pyarrow as pa

from connectors.errors import Retriable

RECORDS = 50
RETRIABLE = 3


def records(topic: str) -> pa.RecordBatch:
    """All records of the source's only partition, as Spark brings them."""
    return pa.RecordBatch.from_pydict(
        {
            "topic": [topic] * RECORDS,
            "partition": pa.array([0] * RECORDS, pa.int32()),
            "offset": pa.array(range(RECORDS), pa.int64()),
            "timestamp": pa.array([0] * RECORDS, pa.timestamp("us", tz="UTC")),
            "key": [b"k"] * RECORDS,
            "value": [b"%d" % number for number in range(RECORDS)],
        }
    )


def kafka_sink(plan: dict[str, Any]) -> None:
    """One partition of one batch through the Kafka sink's writer."""
    from spark_jobs.sinks.kafka.clients import ResidentClients
    from spark_jobs.sinks.kafka.config import KafkaSinkSettings
    from spark_jobs.sinks.kafka.writer import KafkaPartitionWriter

    name = plan["name"]
    settings = KafkaSinkSettings(
        name,
        {"bootstrap.servers": plan["bootstrap"], "client.id": name},
        "exactly-once",
        "",
        f"{name}-group",
        f"{name}-markers",
        {name: "one"},
        {name: (f"{name}-out", 1)},
        "source",
        False,
        True,
        "1",
        plan["timeout_ms"],
    )
    writer = KafkaPartitionWriter(settings, name, 0, 0, RECORDS, resident=ResidentClients())
    writer.write(records(name))
    writer.finish()


def materializer(plan: dict[str, Any]) -> None:
    """One bucket's pass through the materializer."""
    import msgspec

    from spark_jobs.config.keys import FRAME
    from spark_jobs.materializer import passes, residents
    from spark_jobs.materializer.config import OPTIONS, MarkerOwner
    from spark_jobs.materializer.contract import InputRecord
    from spark_jobs.materializer.job_topics import prepare_topics
    from tests.support import last_write_engine

    name = plan["name"]
    config = FRAME.extended(list(OPTIONS.keys.values())).parse(
        {
            "name": name,
            "kafka.bootstrap.servers": plan["bootstrap"],
            "kafka.client.id": name,
            "source.topics": name,
            "source.format": "partition-update",
            "transform.type": "materialize",
            "sink.type": "kafka",
            "sink.kafka.topic": f"{name}-out",
            "state.dir": plan["folder"],
            "materializer.transaction.timeout.ms": str(plan["timeout_ms"]),
        }
    )
    # Each call is another attempt of the same run.
    options = replace(prepare_topics(config, last_write_engine.make, None), owner=MarkerOwner(1, "run"))
    changes = [
        InputRecord(None, msgspec.json.encode({"k": f"{number}", "t": 1, "v": number}), number, 0)
        for number in range(RECORDS)
    ]
    resident = residents.ResidentBuckets(options)
    resident.bucket(0).run(changes, passes.PassRange(0, RECORDS, first=True))
    resident.close()


def main() -> int:
    """Run what the argument says."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    plan = json.loads(sys.argv[1])
    try:
        {"kafka": kafka_sink, "materializer": materializer}[plan["kind"]](plan)
    except Retriable as error:
        print(f"retriable: {error}", file=sys.stderr)
        return RETRIABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
