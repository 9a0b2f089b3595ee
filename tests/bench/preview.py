"""Time of previews over REST: the first one, which starts an application, and those after it, in the running application.

The flow has a filter, a sql step with a cast, and a route by a column; its topic has 1,000 records in two partitions.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # the module has them

from compose.local.kafka import KafkaCluster
from compose.local.worker import MillraceWorker
from tests.bench._common import environment, spread

_TOPIC: Final = "shop.orders"
_RECORDS: Final = 1000
_TARGET_COLD_S: Final = 15
_TARGET_WARM_S: Final = 2
_LIMIT_S: Final = 300
_FLOW: Final = {
    "connector.class": "spark_jobs.SparkJob",
    "name": "previewed",
    "source.topics": _TOPIC,
    "source.format": "plain",
    "source.key.columns": "id,region",
    "sink.type": "console",
    "transform.steps": "paid,typed,by_region",
    "transform.step.paid.type": "filter",
    "transform.step.paid.condition": "amount > 0",
    "transform.step.typed.type": "sql",
    "transform.step.typed.sql": "SELECT id, amount, CAST(code AS int) AS code, region FROM orders",
    "transform.step.by_region.type": "route",
    "transform.step.by_region.to": "${table}_${column:region}",
}


def fill_topic(bootstrap: str) -> None:
    """Create the topic with its records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(_TOPIC, 2, 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(_RECORDS):
        row = {"id": number, "amount": number % 7, "code": str(number), "region": ("eu", "us")[number % 2]}
        producer.produce(_TOPIC, json.dumps(row).encode(), partition=number % 2)
    if producer.flush(30):
        raise RuntimeError("Kafka did not take the records")


def preview(worker: MillraceWorker, records: int) -> tuple[float, dict[str, Any]]:
    """Ask for a preview; returns the seconds until its answer, and the answer."""
    begin = time.monotonic()
    status, answer = worker.request("POST", "/flows/preview", {"config": _FLOW, "limit": records}, timeout=_LIMIT_S)
    elapsed_s = time.monotonic() - begin
    if status != 200 or "error" in answer or any("error" in step for step in answer["steps"]):
        raise RuntimeError(f"the preview failed: {status} {answer}")
    return elapsed_s, answer


def main(argv: list[str]) -> int:
    """Run it; a minute or two."""
    parser = argparse.ArgumentParser(prog="millrace bench preview", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="workers, each with one cold preview")
    parser.add_argument("--warm", type=int, default=10, help="warm previews per worker")
    parser.add_argument("--records", type=int, default=20, help="records that a preview reads")
    options = parser.parse_args(argv)
    print(environment())
    cold_s, second_s, warm_s = [], [], []
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as name,
        KafkaCluster(Path(name) / "kafka", port=None) as kafka,
    ):
        fill_topic(kafka.bootstrap)
        for run in range(options.runs):
            os.environ["MILLRACE_HOME"] = str(Path(name) / f"home-{run}")
            properties = {"validate.timeout.ms": str(_LIMIT_S * 1000)}
            folder = Path(name) / f"worker-{run}"
            with MillraceWorker(folder, kafka.bootstrap, group=f"preview-{run}", properties=properties) as worker:
                elapsed_s, answer = preview(worker, options.records)
                if answer["warm"]:
                    raise RuntimeError("the first preview met a running application")
                cold_s.append(elapsed_s)
                second_s.append(preview(worker, options.records)[0])
                warm_s += [preview(worker, options.records)[0] for _ in range(options.warm)]
    print(f"cold    {spread(cold_s)} s (target {_TARGET_COLD_S}), the second one {spread(second_s)} s")
    print(f"warm    {spread(warm_s)} s (target {_TARGET_WARM_S})")
    return 0
