"""The connector itself: what it makes of configurations, events and ends of processes. The process is real, without Spark."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import spark_jobs
from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.job_api import JobPartition, JobProgress
from spark_jobs import connector
from spark_jobs.config.keys import FRAME
from spark_jobs.connector import SparkJob, SparkJobTask, command, install_text, take_progress
from tests.support.eventually import eventually_async
from worker.config.job_config import JOB_CONFIG, foreign_complaints, job_properties, tasks_note, worker_kafka
from worker.config.validation.answers import plugin_config, validate_config
from worker.control.herder.progress import shown_progress
from worker.plugins import PluginRegistry

CHILD = Path(__file__).with_name("child.py")
KAFKA = {"bootstrap.servers": "broker:9092", "security.protocol": "SASL_SSL", "sasl.jaas.config": "secret"}
MINIMAL = {
    "name": "orders",
    "connector.class": "spark_jobs.SparkJob",
    "source.topics": "a",
    "source.format": "debezium",
    "sink.type": "tests.integration.spark_jobs.connector.plugin.lines_sink:LinesSink",
    "sink.lines.folder": "/tmp/x",
}


def errors(infos: dict[str, Any]) -> dict[str, list[str]]:
    return {item["value"]["name"]: item["value"]["errors"] for item in infos["configs"] if item["value"]["errors"]}


# Configuration.


def test_nothing_of_spark_is_imported_by_a_worker_that_lists_the_connector() -> None:
    code = (
        "import sys; from worker.plugins import PluginRegistry; r = PluginRegistry(); "
        "assert r.connector('spark_jobs.SparkJob').__name__ == 'SparkJob', r.failures; "
        "assert not {'pyspark', 'confluent_kafka', 'pyarrow', 'lmdb'} & set(sys.modules), sys.modules.keys()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
    )
    assert done.returncode == 0, done.stderr


def test_the_package_gives_the_connector_when_it_is_asked_for() -> None:
    assert spark_jobs.SparkJob is SparkJob
    with pytest.raises(AttributeError, match="has no attribute 'Nope'"):
        _ = spark_jobs.Nope


@pytest.mark.parametrize("name", ["spark_jobs.SparkJob", "spark_jobs.connector.SparkJob", "SparkJob", "spark"])
def test_names_that_mean_it(name: str) -> None:
    assert PluginRegistry().connector(name) is SparkJob


def test_the_workers_kafka_is_the_default() -> None:
    assert SparkJob.completed({"name": "n"}, KAFKA) == {
        "name": "n",
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": "secret",
    }
    other = {"name": "n", "kafka.bootstrap.servers": "other:9092"}
    assert SparkJob.completed(other, KAFKA) == other  # the worker's credentials stay with its own brokers
    partly = SparkJob.completed({"kafka.bootstrap.servers": " ", "kafka.security.protocol": "SSL"}, KAFKA)
    assert (partly["kafka.bootstrap.servers"], partly["kafka.security.protocol"]) == ("broker:9092", "SSL")


def test_what_redpanda_console_adds_for_a_sink_is_no_option_of_a_job() -> None:
    assert SparkJob.completed({"name": "n", "topics.regex": "__TOPICS_REGEX_PLACEHOLDER"}, {}) == {"name": "n"}
    wrong = {
        "name": "n",
        "topics.regex": "a.*",
    }  # of somebody who takes a job for a Java sink: refused when it is validated
    assert SparkJob.completed(wrong, {}) == wrong


def test_how_a_worker_reaches_kafka_is_taken_from_its_consumers_properties() -> None:
    worker = {"bootstrap.servers": "a:1", "security.protocol": "SSL", "consumer.max.poll.records": "5", "group.id": "g"}
    assert worker_kafka(worker) == {"bootstrap.servers": "a:1", "security.protocol": "SSL"}


def test_what_is_the_jobs_own() -> None:
    config = {
        **MINIMAL,
        "tasks.max": "3",
        "errors.restart.policy": "always",
        "errors.tolerance": "all",
        "task.class": "x",
        "key.converter": "x",
        "spark.executor.cores": "1",
        "millrace.node": "here",
    }
    properties = job_properties(config, FRAME)
    assert properties.keys() == MINIMAL.keys() - {"connector.class"} | {"errors.tolerance", "spark.executor.cores"}


def test_what_has_no_effect_is_refused() -> None:
    names = [
        "key.converter",
        "value.converter.schemas.enable",
        "transforms",
        "transforms.a.type",
        "predicates",
        "topic.creation.groups",
        "exactly.once.support",
        "producer.override.acks",
        "offsets.storage.topic",
    ]
    assert [
        problem.name
        for problem in foreign_complaints(dict.fromkeys([*names, "transform.type", "errors.tolerance"], "x"))
    ] == names


def test_tasks_max_has_no_effect_and_that_is_said() -> None:
    assert tasks_note({}) == tasks_note({"tasks.max": "1"}) == []
    assert tasks_note({"tasks.max": "4"}) == [
        "tasks.max=4 has no effect: a job is one task for each of its sinks, and shares its work out itself"
    ]


async def test_validation_names_what_is_wrong() -> None:
    worker = {"bootstrap.servers": "here:9092", "exactly.once.source.support": "enabled"}
    registry = PluginRegistry()
    fine = await validate_config(registry, MINIMAL, None, worker)
    assert (errors(fine), fine["error_count"]) == ({}, 0)
    shown = {item["value"]["name"]: item["value"]["value"] for item in fine["configs"]}
    assert shown["kafka.bootstrap.servers"] == "here:9092"
    assert "sink.lines.folder" in shown
    assert "transforms" not in shown
    wrong = await validate_config(
        registry, {**MINIMAL, "trigger.interval.ms": "soon", "value.converter": "x", "sourc.topics": "a"}, None, worker
    )
    assert errors(wrong) == {
        "sourc.topics": ["Unknown configuration sourc.topics; did you mean source.topics?"],
        "trigger.interval.ms": [
            "Invalid value soon for configuration trigger.interval.ms: Not a number of type LONG",
            *errors(wrong)["trigger.interval.ms"][1:],
        ],
        "value.converter": [
            (
                "Configuration value.converter does not apply to this connector, which moves data itself: no "
                "converter of the worker sees its records: say how values are encoded by its own options. "
                "Remove it"
            )
        ],
    }
    unknown = errors(
        await validate_config(registry, {**MINIMAL, "sink.type": "nope", "sourc.topics": "x"}, None, worker)
    )
    assert unknown["sink.type"][0].startswith(
        "Invalid value nope for configuration sink.type: must be one of cassandra,"
    )
    assert "did you mean source.topics?" in unknown["sourc.topics"][0]
    placed = {**MINIMAL, "millrace.labels": "zone=${env:ZONE}"}
    node = errors(
        await validate_config(registry, placed, None, worker, resolved={**MINIMAL, "millrace.labels": "zone=a"})
    )
    assert "the leader places tasks by the configuration as it is written" in node["millrace.labels"][0]
    old = errors(await validate_config(registry, {**MINIMAL, "connector.plugin.version": "9.0"}, None, worker))
    assert "not found that matches the version range" in old["connector.plugin.version"][0]
    options = {row["name"] for row in plugin_config(registry, "spark_jobs.SparkJob")}
    assert FRAME.keys.keys() | JOB_CONFIG.keys.keys() == options


@pytest.mark.parametrize(("option", "named"), [("transform.steps", "transform.step."), ("sinks", "sink.")])
async def test_names_of_options_show_references_and_not_what_they_stand_for(option: str, named: str) -> None:
    config = {**MINIMAL, option: "${file:/s:x}"}
    infos = await validate_config(PluginRegistry(), config, None, {}, resolved={**config, option: "hunter2"})
    assert "hunter2" not in str(infos)
    assert f"{named}${{file:/s:x}}.type" in {item["value"]["name"] for item in infos["configs"]}


async def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "find_spec", lambda name: None if name == "pyspark" else object())
    infos = await validate_config(PluginRegistry(), MINIMAL, None, {"bootstrap.servers": "here:9092"})
    assert "pip install 'millrace[spark]'" in errors(infos)["connector.class"][0]
    with pytest.raises(Fatal, match="Spark jobs need pyspark"):
        await SparkJobTask(Context(Path(), {})).run()
    assert "pyspark, lmdb" in install_text(["pyspark", "lmdb"])


async def test_offsets_can_not_be_changed_and_why() -> None:
    config = FRAME.parse({**MINIMAL, "kafka.bootstrap.servers": "x", "checkpoint.location": "/data/c"})
    with pytest.raises(
        ConfigInvalid, match=r"continues from its checkpoint .*/data/c.*source.starting.offsets=earliest"
    ):
        await SparkJob.alter_offsets(config, [])


# Events.


def test_progress_is_counted_once_a_batch() -> None:
    progress = JobProgress()
    event = {
        "batch": 3,
        "rows": 10,
        "written": 9,
        "duration_ms": 500,
        "rows_per_s": 20.0,
        "position": {"in": {"0": 7}},
        "lag": {"in": {"0": 5, "1": 2}},
        "metrics": {"state": 3, "text": "x"},
        "steps": {"sums": {"state_rows": 4.0}},
    }
    take_progress(progress, event)
    take_progress(progress, {**event, "rows": 0, "written": 0, "duration_ms": 0, "rows_per_s": 0.0})  # a sign of life
    take_progress(progress, {**event, "batch": 4, "duration_ms": 700})
    assert (progress.batches, progress.batch, progress.read, progress.written) == (2, 4, 20, 18)
    assert (progress.busy_s, progress.batch_s, progress.batch_s_max, progress.batch_rows_max) == (1.2, 0.7, 0.7, 10)
    assert progress.partitions == [JobPartition("in", 0, 7, 5), JobPartition("in", 1, -1, 2)]
    assert progress.metrics == {"state": 3.0}
    assert shown_progress("w", progress)["steps"] == {"sums": {"state_rows": 4.0}}


def test_a_lag_that_is_not_known_is_no_zero_and_a_trouble_lasts() -> None:
    progress = JobProgress()
    trouble = {"part": "lag", "since": "2026-11-21T00:00:00.500Z", "attempts": 2, "error": "Kafka is away\nmore"}
    event = {
        "rows": 0,
        "duration_ms": 0,
        "rows_per_s": 0.0,
        "position": {"in": {"0": 7}},
        "lag": {},
        "lag_total": None,
        "metrics": {},
        "retrying": trouble,
    }
    take_progress(progress, event)
    assert progress.partitions == [JobPartition("in", 0, 7, -1)]
    assert (progress.phase, progress.error, progress.retrying_since) == ("retrying", "Kafka is away", 1795219200.5)
    shown = shown_progress("w", progress)
    assert shown["lag"] == {"total": None, "max": None}
    assert shown["partitions"] == [{"topic": "in", "partition": 0, "offset": 7, "lag": None}]
    assert (shown["phase"], shown["error"]) == ("retrying", "Kafka is away")
    assert shown["retrying_since"] == "2026-11-21T00:00:00.500Z"
    assert shown_progress("w", JobProgress())["lag"] == {"total": None, "max": None}
    take_progress(progress, {**event, "lag": {"in": {"0": 5}}, "lag_total": 5, "retrying": None})
    shown = shown_progress("w", progress)
    assert shown["lag"] == {"total": 5, "max": 5}
    assert (shown["phase"], "error" in shown, "retrying_since" in shown) == ("running", False, False)


async def test_a_trouble_is_in_the_status_while_it_lasts(context: Any) -> None:
    task_context = context(do="trouble")
    run = asyncio.create_task(SparkJobTask(task_context).run())
    await eventually_async(lambda: len(task_context.said) >= 3, "the trouble is over", detail=lambda: task_context.said)
    run.cancel()
    await asyncio.wait({run})
    assert task_context.said == [
        "running",
        "the job retries since 2026-11-21T00:00:00+00:00: the target is away",
        "running",
    ]
    assert task_context.progress.retries == 2


def test_no_option_stands_on_the_command_line() -> None:
    assert command(7)[1:] == ["-m", "spark_jobs.run", "-", "--events", "7", "--supervised", "--resolved"]


# Runs.


class Context:
    """A ``JobTaskContext``."""

    def __init__(self, home: Path, properties: dict[str, str]) -> None:
        self.connector, self.task = "orders", 0
        defaults = {"kafka.bootstrap.servers": "x", "stop.timeout.ms": "5000", "spark.application": "own"}
        parsed = FRAME.parse({**MINIMAL, **defaults, **properties})
        self.config = parsed
        self.progress = JobProgress()
        self.log = logging.LoggerAdapter(logging.getLogger("tests.spark_job"), {})
        self.said: list[str] = []
        self.topics: set[str] = set()
        self.left: float | None = None
        del home

    def running(self, trouble: Exception | None = None) -> None:
        self.said.append("running" if trouble is None else str(trouble))

    def topic_used(self, topic: str) -> None:
        self.topics.add(topic)

    def patience(self) -> float | None:
        return self.left


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setattr(connector, "command", lambda events: [sys.executable, str(CHILD), str(events)])
    return lambda **properties: Context(tmp_path, properties)


async def test_a_run_tells_what_the_job_tells_and_ends_when_cancelled(context: Any, tmp_path: Path) -> None:
    task_context = context(do="run")
    run = asyncio.create_task(SparkJobTask(task_context).run())
    await eventually_async(lambda: task_context.progress.batches >= 3, "three batches are done")
    assert (task_context.said, task_context.progress.phase, task_context.topics) == (["running"], "running", {"in"})
    pid = task_context.progress.pid
    assert json.loads((tmp_path / "jobs/orders/supervised.json").read_text())["pid"] == pid
    run.cancel()
    await asyncio.wait({run})
    assert run.cancelled()
    assert (task_context.progress.phase, task_context.progress.pid) == ("stopped", 0)
    assert not Path(f"/proc/{pid}").exists()


async def test_a_run_that_may_not_take_its_time_is_killed(context: Any) -> None:
    task_context = context(do="run", deaf="true")
    run = asyncio.create_task(SparkJobTask(task_context).run())
    await eventually_async(lambda: task_context.progress.phase == "running", "the job runs")
    pid, task_context.left = task_context.progress.pid, 0.1
    run.cancel()
    task_context.left = 0.0
    await asyncio.wait({run})
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("properties", "error", "text", "trace"),
    [
        ({"do": "fail"}, Fatal, "the target says no", "Traceback of the job\nFatal: the target says no"),
        ({"do": "retriable"}, Retriable, "the target says no", "Traceback of the job\nFatal: the target says no"),
        ({"do": "refuse"}, Fatal, "Missing required configuration", None),
        (
            {"do": "die", "say": "last words"},
            Retriable,
            "was killed by signal 9 without saying why",
            "The end of its output:\nlast words",
        ),
        ({"do": "end"}, Retriable, r"the job was stopped from outside \(done\)", None),
    ],
)
async def test_what_becomes_of_a_job_that_ends(
    context: Any, properties: dict[str, str], error: type[Exception], text: str, trace: str | None
) -> None:
    task_context = context(**properties)
    with pytest.raises(error, match=text) as caught:
        await SparkJobTask(task_context).run()
    assert getattr(caught.value, "trace", None) == trace
    assert (task_context.progress.phase, task_context.progress.pid) == ("failed", 0)
    assert task_context.progress.error


async def test_a_job_that_does_what_there_is_and_ends_is_done(context: Any) -> None:
    task_context = context(do="end", **{"trigger.mode": "available-now"})
    await SparkJobTask(task_context).run()
    assert task_context.progress.phase == "finished"


async def test_a_job_that_stopped_after_its_savepoint_stays_stopped(context: Any) -> None:
    task_context = context(do="savepoint")
    await SparkJobTask(task_context).run()  # otherwise: Retriable, and it would start again at once
    assert task_context.progress.phase == "stopped"


async def test_a_job_that_dies_again_and_again_is_given_up(context: Any) -> None:
    task = SparkJobTask(context(do="die"))
    for _ in range(4):
        with pytest.raises(Retriable):
            await task.run()
    with pytest.raises(Fatal, match="this happened 5 times within 10 minutes"):
        await task.run()
    assert task.context.progress.starts == 5
