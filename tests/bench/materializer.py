"""The materializer: CPU per update by stage, every output checked, flatness, restart, compared with transformWithState.

``--peer`` runs Spark's own ``transformWithState`` (row API, MapState, RocksDB) over the head of the same input in the same run,
and prints the ratio; it is slow, so it takes few updates.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from compose.local.kafka import KafkaCluster
from compose.local.registry import SchemaRegistry
from tests.bench._common import environment
from tests.support.job_process import Job
from tests.support.update_load import Change, partition_key
from tests.support.update_topic import Load, check, encoder_of, fill

if TYPE_CHECKING:
    from collections.abc import Sequence


def job_config(load: Load, bootstrap: str, registry: str, topic: str, folder: Path, batch: int) -> dict[str, Any]:
    """The job file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.avsc").write_text(load.schema)
    return {
        "name": f"m-{topic}",
        "kafka": {"bootstrap.servers": bootstrap},
        "source": {
            "topics": topic,
            "format": "partition-update",
            "value.encoding": load.encoding,
            "schema.registry.url": registry,
            "starting.offsets": "earliest",
            "max.offsets.per.trigger": batch,
        },
        "transform": {"type": "materialize"},
        "materializer": {
            "output.encoding": "json",
            **({"input.schemas": str(folder / "schema.avsc")} if load.encoding == "json" else {}),
        },
        "sink": {"type": "kafka", "kafka": {"topic": f"{topic}-rows"}},
        "trigger": {"interval.ms": 0},
        "guarantee": "exactly-once",
        "checkpoint": {"location": str(folder / "checkpoint")},
        "state": {"dir": str(folder / "state")},
        "spark": {"master": f"local[{os.cpu_count()}]", "driver.memory": "1g"},
    }


def extend(load: Load, bootstrap: str, registry: str, topic: str) -> None:
    """One update more in each bucket."""
    encode = encoder_of(load, topic, registry)
    producer = Producer({"bootstrap.servers": bootstrap})
    for bucket in range(load.buckets):
        change = Change(bucket, 0, int(time.time() * 1_000_000), {"n": time.time_ns()})
        producer.produce(topic, encode(change, 0), partition_key(bucket), partition=bucket)
    if producer.flush(30):
        raise RuntimeError("Kafka did not take the update")


def measure(load: Load, kafka: KafkaCluster, registry: str, folder: Path, batch: int) -> float:
    """One load through one job, then a restart; returns rows/s."""
    topic = f"u{secrets.token_hex(4)}"
    seconds = fill(load, kafka.bootstrap, registry, topic)
    print(
        f"\n{load.updates:,} updates over {load.partitions:,} partitions in {load.buckets} buckets, {load.encoding}"
        + (f", {load.wide} columns more" if load.wide else "")
        + f" (written in {seconds:.0f} s)",
        flush=True,
    )
    job = Job(job_config(load, kafka.bootstrap, registry, topic, folder / topic, batch), folder / topic)
    job.start()
    job.wait_rows(load.updates)
    job.stop()
    print(f"  {job.figures()}", flush=True)
    for name, value in sorted(job.metrics.items()):
        print(f"    {name} {value:,.6g}")
    begin = time.monotonic()
    events, rows = check(load, kafka.bootstrap, f"{topic}-rows")
    print(
        f"  every output checked: {events:,} events as expected, {rows:,} rows left ({time.monotonic() - begin:.0f} s)",
        flush=True,
    )
    for lost in ((), ("state",)):
        extend(load, kafka.bootstrap, registry, topic)
        for name in lost:
            shutil.rmtree(folder / topic / name)
        restarted = Job(job.config, folder / topic)
        restarted.start()
        restarted.wait_rows(1)
        restarted.stop()
        restored = restarted.metrics.get("materializer_restored_total", 0)
        print(
            f"  restart{' without the local cache' if lost else ''}: {restarted.first_output_s:.1f} s to the first committed "
            f"output, {restored:,.0f} records of state restored",
            flush=True,
        )
    (start, first, _), (end, last, _) = job.samples[0], job.samples[-1]
    return (last - first) / max(end - start, 1e-9)


def main(argv: Sequence[str]) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="millrace bench materializer", description=__doc__)
    parser.add_argument("--updates", type=int, nargs="+", default=[1_000_000], help="sizes, one after the other")
    parser.add_argument("--partitions", type=int, help="of the table; a tenth of the updates when not given")
    parser.add_argument("--buckets", type=int, default=4, help="partitions of the topic")
    parser.add_argument("--encoding", choices=["avro", "json"], nargs="+", default=["avro"])
    parser.add_argument("--batch", type=int, default=200_000, help="updates in a micro-batch at most")
    parser.add_argument("--wide", type=int, nargs="+", default=[0], help="text columns more")
    parser.add_argument(
        "--peer", type=int, default=0, metavar="UPDATES", help="also transformWithState, over so many updates"
    )
    options = parser.parse_args(argv)
    print(environment())
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        with (
            KafkaCluster(folder / "kafka", port=None) as kafka,
            SchemaRegistry(folder / "registry", port=None) as registry,
        ):
            for updates in options.updates:
                for encoding in options.encoding:
                    for wide in options.wide:
                        load = Load(
                            updates, options.partitions or max(1, updates // 10), options.buckets, encoding, wide
                        )
                        rate = measure(load, kafka, registry.url, folder, options.batch)
            if options.peer:
                from tests.bench._state_peer import run_peer

                load = Load(options.peer, max(1, options.peer // 10), options.buckets, "json")
                peer = run_peer(load, folder)
                print(f"  the materializer is {rate / peer:.1f} times as fast")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
