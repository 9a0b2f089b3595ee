"""Random change streams through flows of several sinks whose process is killed: each target has what the model has."""

from __future__ import annotations

import random
import secrets
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.cli import describe_job
from spark_jobs.savepoints import commands
from tests.integration.spark_jobs.delta.test_delta_conformance import DeltaTarget
from tests.integration.spark_jobs.files.test_files_conformance import FilesTarget
from tests.integration.spark_jobs.frame.test_random_streams import StreamJob, compare_target, name_seeds
from tests.integration.spark_jobs.iceberg.test_iceberg_conformance import IcebergTarget
from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.jdbc.test_jdbc_conformance import JdbcTarget
from tests.integration.spark_jobs.kafka_sink.test_kafka_conformance import KafkaTarget
from tests.support.change_messages import ORDERS, Message, MessageForm, cut_batches, repeat_messages
from tests.support.change_streams import KINDS, LOOSE, Shop
from tests.support.eventually import eventually
from tests.support.job_process import Job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.testing import SinkTarget
    from tests.integration.spark_jobs.frame.bench import Bench


def make_shop(chance: random.Random, form: MessageForm, tables: Sequence[str]) -> Shop:
    """Tables whose columns the form has."""
    ums, loose = form.name == "ums", form.name == "json"
    kinds = LOOSE if loose else tuple(kind.name for kind in KINDS.values() if not ums or kind.ums)
    shop = Shop(chance, kinds, ("int64", "code") if loose else ("int32", "int64", "code"))
    for table in tables:
        shop.add_table(table)
    return shop


def name_options(targets: Mapping[str, SinkTarget]) -> dict[str, str]:
    """The options of a flow with a sink for each target."""
    options = {"sinks": ",".join(targets)}
    for label, target in targets.items():
        options[f"sink.{label}.type"] = target.sink_type
        options |= {
            f"sink.{label}.{name.removeprefix('sink.')}": value
            for name, value in target.options().items()
            if name.startswith("sink.")
        }
    return options


class Flow:
    """A flow whose process is killed and started."""

    def __init__(self, bench: Bench, properties: dict[str, str], labels: Sequence[str], folder: Path) -> None:
        self.bench = bench
        self.properties = properties
        self.labels = labels
        self.folder = folder
        self.job: Job | None = None

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.bench.producer.produce(message.topic, message.value, message.key, message.partition)
        assert self.bench.producer.flush(30) == 0

    def start(self) -> Job:
        if self.job is None:
            self.job = Job(self.properties, self.folder)
            self.job.start()
        return self.job

    def positions(self) -> dict[str, int]:
        """The records that each sink has done."""

        def count(part: dict[str, Any]) -> int:
            if self.job is not None and part.get("pid") != self.job.process.pid:
                return 0  # the status is of the process before
            position = (part.get("progress") or {}).get("position", {})
            return sum(offset for offsets in position.values() for offset in offsets.values())

        return {label: count(describe_job(f"{self.properties['name']}.{label}")) for label in self.labels}

    def kill_soon(self, label: str, before: int, seconds: float) -> None:
        """Kill it some time after a sink has done more records than before."""
        job = self.start()
        eventually(lambda: job.failure or self.positions()[label] > before, f"{label} has a batch", 240, detail=job.log)
        assert not job.failure
        with suppress(subprocess.TimeoutExpired):
            job.process.wait(seconds)
        job.kill()
        self.job = None

    def finish(self, count: int) -> None:
        """Wait until each sink has done that many records, and stop."""
        job = self.start()
        eventually(
            lambda: job.failure or set(self.positions().values()) == {count},
            "all sinks have all",
            240,
            detail=lambda: f"{self.positions()} {job.log()}",
        )
        assert not job.failure
        assert job.stop() == 0
        self.job = None

    def move(self, savepoint: Path, *, at_once: bool) -> None:
        """Stop at a savepoint; the checkpoint is lost, and the flow starts from the savepoint.

        Args:
            savepoint: its folder.
            at_once: whether it is asked for while the flow is starting; each sink has done a batch before.
        """
        job = self.start()
        name = self.properties["name"]

        def is_ready() -> bool:
            if at_once:
                return all(describe_job(f"{name}.{label}")["running"] for label in self.labels)
            return all(self.positions().values())

        eventually(lambda: job.failure or is_ready(), "the flow can be asked", 240, detail=job.log)
        assert commands.main([name, "--to", str(savepoint), "--stop", "--timeout", "240"]) == 0, job.log()
        assert job.process.wait(120) == 0
        self.job = None
        self.properties = self.properties | {
            "state.dir": f"{self.properties['state.dir']}-second",
            "source.savepoint": str(savepoint),
        }


def make_targets(labels: Sequence[str], bench: Bench, spark: SparkSession, folder: Path) -> dict[str, SinkTarget]:
    """The targets with these names."""
    (folder / "iceberg").mkdir()
    targets: dict[str, SinkTarget] = {
        "base": JdbcTarget(database(f"jdbc:sqlite:{folder}/shop.db", "", ""), None),
        "lake": DeltaTarget(folder / "delta"),
        "berg": IcebergTarget(folder / "iceberg"),
        "history": FilesTarget(spark, folder / "files"),
        "topics": KafkaTarget(bench.bootstrap),
    }
    return {label: targets[label] for label in labels}


def run_flow(seed: int, bench: Bench, spark: SparkSession, folder: Path, labels: Sequence[str], portions: int) -> None:
    """Send a stream in portions through a flow that is killed in each of them but one, and compare."""
    chance = random.Random(f"kills-{seed}")
    name = chance.choice(("json", "schemas", "flat_schemas", "ums"))
    unique = secrets.token_hex(4)
    form = MessageForm(name, chance.choice(ORDERS), f"kills-{unique}")
    tables = [f"t{number}_{unique}" for number in range(2)]
    shop = make_shop(chance, form, tables)
    messages = repeat_messages(chance, form.write(shop.draw_events(20 * portions)))
    structures = [structure for versions in shop.structures.values() for structure in versions]
    for topic in sorted({form.topic_of(table) for table in tables}):
        bench.topic(2, topic)
    targets = make_targets(labels, bench, spark, folder)
    properties = {
        **{key: value for key, value in bench.job("").items() if not key.startswith("sink.")},
        **form.options(structures),
        **name_options(targets),
        "source.starting.offsets": "earliest",
        "source.max.offsets.per.trigger": str(chance.choice((10, 20, 50))),
        "spark.driver.memory": "1g",
    }
    print(f"seed {seed}: {properties}")
    flow = Flow(bench, properties, labels, folder / "run")
    bounds = sorted(chance.sample(range(1, len(messages)), portions - 1))
    moved = chance.randrange(1, portions)
    try:
        for number, (first, last) in enumerate(zip([0, *bounds], [*bounds, len(messages)], strict=True)):
            before = flow.positions()
            flow.send(messages[first:last])
            if number == moved:
                flow.move(folder / "savepoint", at_once=all(before.values()) and chance.random() < 0.5)
            elif number + 1 < portions:
                label = chance.choice(labels)
                flow.kill_soon(label, before[label], chance.uniform(0, 3))
        flow.finish(len(messages))
    finally:
        if flow.job is not None:
            flow.job.kill()
    model = StreamJob(
        spark,
        {
            **form.options(structures),
            "name": f"model-{unique}",
            "kafka.bootstrap.servers": bench.bootstrap,
            "checkpoint.location": str(folder / "model-checkpoint"),
            "sink.type": "jdbc",
            **JdbcTarget(database(f"jdbc:sqlite:{folder}/model.db", "", ""), None).options(),
        },
        form,
    )
    for number, batch in enumerate(cut_batches(chance, messages, 1)):
        model.write(batch, number)
    events = [event for message in messages for event in message.events]
    for target in targets.values():
        compare_target(target, model, shop, events)


@pytest.mark.parametrize("seed", name_seeds([0], ()))
def test_a_flow_of_two_sinks_that_is_killed_has_each_change(
    seed: int, bench: Bench, spark: SparkSession, tmp_path: Path
) -> None:
    run_flow(seed, bench, spark, tmp_path, ["base", "topics"], 3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", name_seeds(range(3), ()))
def test_a_flow_of_five_sinks_that_is_killed_has_each_change(
    seed: int, bench: Bench, spark: SparkSession, tmp_path: Path
) -> None:
    run_flow(seed, bench, spark, tmp_path, ["base", "lake", "berg", "history", "topics"], 5)
