"""Latency of jobs at a steady rate: a change's time to its row in PostgreSQL, or to its event in the materializer's output.

A writer makes changes at the rate; each carries the time at which it was made. A reader of the output (a query every 10 ms, a
consumer of committed records) notes when it is there. Cores are those of the whole job: driver, JVM and Python workers.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from compose.local.kafka import KafkaCluster
from compose.local.postgres import Postgres
from tests.bench import _row_events as events
from tests.bench import materializer, rows
from tests.bench._common import cpu_seconds, environment, make_topic
from tests.support.job_process import Job
from tests.support.update_load import Change, partition_key
from tests.support.update_topic import Load, encoder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BUCKETS = 4


class Writer:
    """Writes changes at a rate, in a thread.

    Args:
        bootstrap: Kafka's address.
        topic: where to.
        message: makes key, value and partition of the change of a number.
        rate: changes a second.
    """

    def __init__(
        self, bootstrap: str, topic: str, message: Callable[[int], tuple[bytes, bytes | None, int]], rate: int
    ) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
        self._topic, self._message, self._rate = topic, message, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        begin, number = time.monotonic(), 0
        while not self._stop.wait(0.005):
            due = int((time.monotonic() - begin) * self._rate)
            for index in range(number, due):
                key, value, partition = self._message(index)
                self._producer.produce(self._topic, value, key, partition=partition)
            number = max(number, due)
            self._producer.poll(0)

    def stop(self) -> None:
        """End it; waits until all is in Kafka."""
        self._stop.set()
        self._thread.join()
        self._producer.flush(30)


def report(label: str, rate: int, latencies: list[float], cores: float) -> None:
    """Print one line."""
    latencies.sort()
    p50, p99 = (latencies[min(int(len(latencies) * share), len(latencies) - 1)] for share in (0.5, 0.99))
    print(
        f"{label:40} {rate:>6,}/s: p50 {p50 * 1000:5.0f} ms, p99 {p99 * 1000:5.0f} ms, max {latencies[-1] * 1000:5.0f} ms "
        f"({len(latencies):,} changes); {cores:.2f} cores, {cores / rate * 1e6:.0f} us CPU/change",
        flush=True,
    )


def report_phases(job: Job) -> None:
    """Print a batch's time by phase (medians, as Spark tells of them; ``addBatch`` has the sink in it), and its CPU."""
    batches = job.batches
    phases = {name for batch in batches for name in batch["spark_ms"]}
    median = {name: statistics.median(batch["spark_ms"].get(name, 0) for batch in batches) for name in phases}
    rows_of_batch = statistics.median(batch["rows"] for batch in batches)
    sink = statistics.median(batch["duration_ms"] for batch in batches)
    durations = ", ".join(f"{name} {median[name]:.0f}" for name in sorted(phases, key=lambda name: -median[name]))
    (_, _, before), (_, _, after) = job.samples[0], job.samples[-1]
    used = {kind: (after[kind] - before[kind]) / max(len(job.samples) - 1, 1) * 1000 for kind in after}
    cpu = ", ".join(f"{kind} {spent:.0f}" for kind, spent in used.items())
    print(
        f"    {len(batches)} batches of {rows_of_batch:.0f} rows, ms: {durations}; decoding and sink {sink:.0f}; "
        f"CPU of a batch, ms: {cpu}",
        flush=True,
    )


def observe(job: Job, poll: Callable[[], list[float]], warm: float, seconds: float) -> tuple[list[float], float]:
    """Latencies of what arrives after ``warm`` seconds, for ``seconds``; and the cores that the job used meanwhile.

    Leaves these batches alone in ``job.batches`` and ``job.samples``.
    """
    deadline = time.monotonic() + 180
    while not poll():
        if time.monotonic() > deadline or job.failure:
            raise RuntimeError(f"nothing arrives: {job.failure or job.log()}")
    end = time.monotonic() + warm
    while time.monotonic() < end:
        poll()
    begin, cpu, skipped = time.monotonic(), cpu_seconds(job.process.pid), len(job.batches)
    latencies: list[float] = []
    while time.monotonic() < begin + seconds:
        latencies += poll()
    del job.batches[:skipped], job.samples[:skipped]
    return latencies, (cpu_seconds(job.process.pid) - cpu) / (time.monotonic() - begin)


def measure_materializer(
    kafka: str,
    folder: Path,
    rate: int,
    trigger_ms: int,
    warm: float,
    seconds: float,
    more: dict[str, Any],
    small: int,
) -> None:
    """Updates through the materializer into its output topic; ``small``: ``materializer.small.batch.records``."""
    topic = f"l{secrets.token_hex(4)}"
    load = Load(1, 1000, _BUCKETS, "json")
    make_topic(kafka, topic, _BUCKETS)
    config = materializer.job_config(load, kafka, "http://unused", topic, folder / topic, 200_000)
    config["trigger"]["interval.ms"] = trigger_ms
    config["spark"] |= more
    config["materializer"]["small.batch.records"] = small
    encode = encoder_of(load, topic, "")

    def message(number: int) -> tuple[bytes, bytes | None, int]:
        partition = number * 7919 % 1000
        change = Change(partition, number % 3, time.time_ns() // 1000, {"n": number})
        return partition_key(partition), encode(change, number), partition % _BUCKETS

    writer = Writer(kafka, topic, message, rate)
    job = Job(config, folder / topic)
    job.start()
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "x", "fetch.wait.max.ms": 10})
    try:
        make_topic(kafka, f"{topic}-rows", _BUCKETS)
        consumer.assign([TopicPartition(f"{topic}-rows", number, 0) for number in range(_BUCKETS)])

        def poll() -> list[float]:
            arrived = consumer.consume(1000, 0.01)
            now = time.time()
            values = [message.value() for message in arrived if message.error() is None]
            return [now - msgspec.json.decode(value)["source"]["ts_us"] / 1e6 for value in values if value is not None]

        latencies, cores = observe(job, poll, warm, seconds)
        report(f"materializer, trigger {trigger_ms} ms, small {small}", rate, latencies, cores)
        report_phases(job)
    finally:
        writer.stop()
        consumer.close()
        job.stop()


def measure_rows(
    kafka: str,
    server: Postgres,
    folder: Path,
    rate: int,
    trigger_ms: int,
    warm: float,
    seconds: float,
    more: dict[str, Any],
) -> None:
    """Debezium's JSON without schemas through a row job into PostgreSQL."""
    topic = f"l{secrets.token_hex(4)}"
    make_topic(kafka, topic, 1)
    config = rows.job_config("json", kafka, "", topic, server, folder / topic, 200_000)
    config["trigger"]["interval.ms"] = trigger_ms
    config["spark"] |= more
    encode_key, encode = events.encoders("json", topic, "")

    def message(number: int) -> tuple[bytes, bytes | None, int]:
        _, event = events.change(number, 1 << 40)
        event["after"]["id"] = number
        event["source"]["ts_us"] = time.time_ns() // 1000
        return encode_key({"id": number}) or b"", encode(event), 0

    writer = Writer(kafka, topic, message, rate)
    job = Job(config, folder / topic)
    job.start()
    newest = [-1]
    try:
        with psycopg.connect(
            server.url.removeprefix("jdbc:"), user=server.user, password=server.password, autocommit=True
        ) as connection:

            def poll() -> list[float]:
                time.sleep(0.01)
                try:
                    arrived = connection.execute(
                        f"SELECT id, extract(epoch FROM ums_ts_) FROM {topic} WHERE id > %s",  # noqa: S608 - own name
                        (newest[0],),
                    ).fetchall()
                except psycopg.errors.UndefinedTable:
                    return []
                now = time.time()
                newest[0] = max([newest[0], *(row[0] for row in arrived)])
                return [now - float(row[1]) for row in arrived]

            latencies, cores = observe(job, poll, warm, seconds)
        report(f"JSON into PostgreSQL, trigger {trigger_ms} ms", rate, latencies, cores)
        report_phases(job)
    finally:
        writer.stop()
        job.stop()


def main(argv: Sequence[str]) -> int:
    """Run it; a minute and a half for each line."""
    parser = argparse.ArgumentParser(prog="millrace bench latency", description=__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 5000], help="changes a second")
    parser.add_argument("--triggers", type=int, nargs="+", default=[1000, 100], help="trigger.interval.ms")
    parser.add_argument("--parts", nargs="+", choices=("rows", "materializer"), default=["rows", "materializer"])
    parser.add_argument("--warm", type=float, default=20.0, help="seconds before measuring")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds that are measured")
    parser.add_argument(
        "--small",
        type=int,
        nargs="+",
        default=[20_000],
        help="materializer.small.batch.records; 0: Spark's tasks merge",
    )
    parser.add_argument("--spark", nargs="*", default=[], metavar="NAME=VALUE", help="settings without spark.")
    options = parser.parse_args(argv)
    print(environment())
    more = dict(setting.split("=", 1) for setting in options.spark)
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        with (
            KafkaCluster(folder / "kafka", port=None) as kafka,
            Postgres(folder / "postgres", port=None) as server,
        ):
            for rate in options.rates:
                for trigger in options.triggers:
                    if "rows" in options.parts:
                        measure_rows(
                            kafka.bootstrap, server, folder, rate, trigger, options.warm, options.seconds, more
                        )
                    if "materializer" in options.parts:
                        for small in options.small:
                            measure_materializer(
                                kafka.bootstrap, folder, rate, trigger, options.warm, options.seconds, more, small
                            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
