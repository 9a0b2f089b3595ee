"""A Spark job as a connector: ``connector.class: spark_jobs.SparkJob``.

The worker's task starts the job's process, listens to its events and ends it; no record passes through the worker. Spark is
imported nowhere here: a worker without the extra ``spark`` starts, lists the connector, and says what is missing.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.api import TOGETHER_KEY
from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.job_api import JobConnector, JobPartition, JobTask
from connectors.options import ConfigDef, ConfigProblem
from spark_jobs.config.keys import AVAILABLE_NOW, FRAME, SINKS_ONLY
from spark_jobs.control import Control
from spark_jobs.flows.address import APPLICATION, DEDICATED, address_of
from spark_jobs.flows.client import FlowConnection
from spark_jobs.flows.sinks import divide_sinks, selected_names, sink_names
from spark_jobs.job import control_folder
from spark_jobs.savepoints import SAVEPOINT
from spark_jobs.supervisor import JobProcess, Predecessor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Position
    from connectors.job_api import JobProgress, JobTaskContext, Translation
    from connectors.options import Config
    from spark_jobs.java_sinks.translation.model import JavaSink

#: Modules of the extra ``spark`` that every job needs, by the names of their distributions.
_NEEDED: Final = {"pyspark": "pyspark", "confluent_kafka": "confluent-kafka", "pyarrow": "pyarrow"}
#: This number of ends without a cause within ``_CRASH_WINDOW_S`` seconds fails the task.
_CRASHES: Final = 5
_CRASH_WINDOW_S: Final = 600.0
#: What a job may take beyond its own limit until it is killed, seconds.
_GRACE_S: Final = 10.0
#: What Redpanda Console adds to each configuration without topics that it takes for a sink's; a job names its topics by
#: options of its own.
_NO_TOPICS: Final = ("topics.regex", "__TOPICS_REGEX_PLACEHOLDER")
#: Partitions whose positions are kept for answers.
_MOST_PARTITIONS: Final = 2000
#: What is shown of a change of a table's schema, and how many of the last changes are.
_SCHEMA_CHANGE: Final = ("time", "batch", "table", "change", "column", "before", "after", "policy", "effect")
_MOST_SCHEMA_CHANGES: Final = 100


class SparkJobTask(JobTask):
    """Runs one Spark job, or one of its sinks where it has several, from its checkpoint to its end."""

    def __init__(self, context: JobTaskContext) -> None:
        super().__init__(context)
        self._crashes: list[float] = []
        self._failure: dict[str, Any] | None = None
        self._reason = ""
        #: The trouble that the task's status shows.
        self._shown = ""

    async def run(self) -> None:
        """Run the job; see the contract.

        Raises:
            Retriable: its process died, or said that what happened may pass.
            Fatal: it failed, or dies again and again.
        """
        missing = missing_packages()
        if missing:
            raise Fatal(install_text(missing))
        progress, log, config = self.context.progress, self.context.log, self.context.config
        progress.phase, progress.error = "starting", ""
        self._failure, self._reason, self._shown = None, "", ""
        limit_s = config["stop.timeout.ms"] / 1000 + _GRACE_S
        name, progress.sink = job_and_sink(config)
        control = Control(control_folder(name))
        before = Predecessor(control.folder / "supervised.json")
        if not await before.clear(control.running, limit_s, log):
            progress.error = f"job {name} runs on this machine already"
            raise Retriable(
                f"{progress.error} (process {control.status().get('pid', 'unknown')}): one job has one run at a "
                "time. End it with `millrace job stop`, or give the connector another name"
            )
        address = address_of(config.raw)
        process: JobProcess | FlowConnection
        if address is None:
            process = JobProcess(command, config.raw, self._handle_event, log)
        else:
            process = FlowConnection(address, config.raw, self._handle_event, log)
        try:
            await process.start()
            progress.pid = process.pid
            progress.starts += 1
            if address is None:
                before.remember(process.pid)
                log.info("the job runs as process %d", process.pid)
            else:
                log.info("the job runs in the Spark application %s, process %d", address.name, process.pid)
            code = await process.wait()
            await process.drained()
        except asyncio.CancelledError:
            progress.phase = "stopping"
            asked = time.monotonic()
            await process.stop(lambda: self._compute_patience(asked + limit_s))
            progress.phase = "stopped"
            raise
        except OSError as error:
            raise Retriable(f"the job's process could not be started: {error}") from error
        finally:
            progress.pid = 0
            await process.close()
        self._judge_end(code, process.end_text(code), list(process.tail))

    def _compute_patience(self, until: float) -> float:
        left = until - time.monotonic()
        allowed = self.context.patience()
        return left if allowed is None else min(left, allowed)

    def _handle_event(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        progress = self.context.progress
        if kind == "started":
            progress.phase, progress.started_at, progress.error = "running", time.time(), ""
            progress.retrying_since = 0.0
            progress.batch = -1 if event.get("batch") is None else int(event["batch"])
            self._shown = ""
            self.context.running()
        elif kind == "progress":
            take_progress(progress, event)
            self._show_trouble()
            for topic in {topic_partition.topic for topic_partition in progress.partitions}:
                self.context.topic_used(topic)
        elif kind == "retrying":
            progress.phase, progress.error = "retrying", _one_line(event.get("error"))
            progress.retrying_since = _to_seconds(event.get("since")) or progress.retrying_since or time.time()
            progress.retries += 1
            self._show_trouble()
        elif kind == "schema_change":
            shown = {name: event.get(name) for name in _SCHEMA_CHANGE}
            progress.schema_changes = [*progress.schema_changes, shown][-_MOST_SCHEMA_CHANGES:]
        elif kind == "failed":
            self._failure = event
        elif kind == "stopped":
            self._reason = str(event.get("reason", ""))

    def _show_trouble(self) -> None:
        """Put a trouble into the task's status when it begins, and take it out when it ends; not each attempt."""
        progress = self.context.progress
        trouble = progress.phase == "retrying"
        if trouble == bool(self._shown):
            return
        self._shown = progress.error if trouble else ""
        since = datetime.fromtimestamp(progress.retrying_since, UTC).isoformat(timespec="seconds")
        self.context.running(Retriable(f"the job retries since {since}: {progress.error}") if trouble else None)

    def _judge_end(self, code: int, how: str, tail: list[str]) -> None:
        """Decide what follows the end of a process that was not asked to end."""
        progress, failure = self.context.progress, self._failure
        error: Fatal | Retriable
        if failure is not None:
            message = str(failure.get("error") or f"the job failed with exit code {code}")
            # Its lock may still be held for a moment by a run that is ending.
            passing = failure.get("retriable") or failure.get("kind") == "AlreadyRuns"
            error = Retriable(message) if passing else Fatal(message)
            error.trace = str(failure.get("trace") or "") or None
        elif code == 0:
            if self.context.config["trigger.mode"] == AVAILABLE_NOW:
                progress.phase, progress.error = "finished", ""
                return
            if self._reason == SAVEPOINT:
                progress.phase, progress.error = "stopped", ""
                self.context.log.info("the job stopped after its savepoint; restart the task to continue")
                return
            error = Retriable(
                f"the job was stopped from outside ({self._reason or 'it ended with exit code 0'}); to stop it "
                "for longer, pause or stop the connector"
            )
        elif code == 2:
            error = Fatal("the job refuses its configuration")
            error.trace = "\n".join(tail) or None
        else:
            error = self._crash_error(how, tail)
        progress.phase, progress.error = "failed", (str(error).splitlines() or [""])[0]
        raise error

    def _crash_error(self, how: str, tail: list[str]) -> Fatal | Retriable:
        """The error for an end without a word; a passing one, unless it happens again and again."""
        now = time.monotonic()
        self._crashes = [at for at in self._crashes if now - at < _CRASH_WINDOW_S] + [now]
        message = f"the job's process {how}"
        error: Fatal | Retriable
        if len(self._crashes) >= _CRASHES:
            error = Fatal(
                f"{message}; this happened {len(self._crashes)} times within {_CRASH_WINDOW_S / 60:.0f} minutes, it is "
                "not started again. Fix the cause, then restart the task"
            )
            self._crashes.clear()
        else:
            error = Retriable(message)
        error.trace = "The end of its output:\n" + "\n".join(tail) if tail else None
        return error


class SparkJob(JobConnector):
    """Runs a Spark job (``docs/jobs``) as one supervised task: the properties of its job file are the connector's options."""

    version: ClassVar[str] = "0.1.0"
    config_def: ClassVar[ConfigDef] = FRAME
    task_class: ClassVar[type[JobTask]] = SparkJobTask
    aliases: ClassVar[tuple[str, ...]] = ("spark_jobs.SparkJob",)
    #: The Java sink connector whose configurations this class takes (``java_sinks``).
    java_sink: ClassVar[JavaSink | None] = None

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task for each sink; they share a worker with each other and with the flows of an application that is named."""
        del max_tasks
        config = self.context.config
        name, sinks = config[APPLICATION], selected_names(config.raw)
        together = f"Spark application {name}" if name not in (None, DEDICATED) else ""
        if not together and sinks:
            together = f"sinks of {config['name']}"
        shared = {TOGETHER_KEY: together} if together else {}
        return [{**shared, SINKS_ONLY: sink} for sink in sinks] or [shared]

    @classmethod
    def translated(cls, config: Mapping[str, str], converters: Mapping[str, str]) -> Translation | None:
        """The configuration of a Java sink connector as the options of a job."""
        from spark_jobs.java_sinks.translation.translate import translate_sink

        return None if cls.java_sink is None else translate_sink(cls.java_sink, config, converters)

    @classmethod
    def completed(cls, config: Mapping[str, str], kafka: Mapping[str, str]) -> dict[str, str]:
        """With the worker's own Kafka, security included, unless ``kafka.bootstrap.servers`` names another one."""
        worker_options = (
            {}
            if config.get("kafka.bootstrap.servers", "").strip()
            else {f"kafka.{name}": value for name, value in kafka.items() if value}
        )
        return {
            **worker_options,
            **{
                name: value
                for name, value in config.items()
                if (name != "kafka.bootstrap.servers" or value.strip()) and (name, value) != _NO_TOPICS
            },
        }

    @classmethod
    def definition(cls, config: Mapping[str, str]) -> ConfigDef:
        """The frame's options, then its source's and its sink's; imports those."""
        from spark_jobs.config.job_files import find_parts

        return find_parts(config).definition

    @classmethod
    async def validate(cls, properties: Mapping[str, str]) -> list[ConfigProblem]:
        """All that ``millrace job validate`` would say before it touches a server."""
        missing = missing_packages()
        if missing:
            return [ConfigProblem("connector.class", install_text(missing))]
        return await asyncio.to_thread(_check_properties, properties)

    @classmethod
    async def plan(
        cls, properties: Mapping[str, str], running: Mapping[str, str] | None, deadline_s: float
    ) -> dict[str, Any]:
        """See the contract; a process of its own does it."""
        from spark_jobs.flows.plan_client import ask_plan

        _demand_packages()
        return await ask_plan(properties, running, deadline_s)

    @classmethod
    async def preview(
        cls, properties: Mapping[str, str], request: Mapping[str, Any], deadline_s: float
    ) -> dict[str, Any]:
        """See the contract; a Spark application does it: the flow's own if it runs on this machine, else one for previews."""
        from spark_jobs.preview.client import preview_flow

        _demand_packages()
        return await preview_flow(properties, request, deadline_s=deadline_s)

    @classmethod
    async def offsets(cls, config: Config) -> list[tuple[Position, Position]]:
        """The offsets that the job has committed to its consumer group, as Kafka Connect shows them for sinks."""
        from spark_jobs.kafka.committed import read_committed

        result: list[tuple[Position, Position]] = []
        for sink, group in groups_of(config).items():
            committed_offsets = await read_committed(config.raw, group)
            label = {"sink": sink} if sink else {}
            result += [
                ({**label, "kafka_topic": topic, "kafka_partition": partition}, {"kafka_offset": offset})
                for (topic, partition), offset in sorted(committed_offsets.items())
            ]
        return result

    @classmethod
    async def savepoints(cls, config: Config, action: str, request: Mapping[str, Any]) -> Any:
        """Savepoints of the job; see ``savepoints.rest``."""
        from spark_jobs.savepoints import rest

        if action == "create":
            return await asyncio.to_thread(rest.create_savepoint, config, request)
        if action == "delete":
            return await asyncio.to_thread(rest.remove_savepoint, config, request)
        return await asyncio.to_thread(rest.list_all, config)

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        """Refused: a job resumes from its checkpoint.

        Raises:
            ConfigInvalid: always.
        """
        del offsets
        name, groups = config["name"], ", ".join(groups_of(config).values())
        where = config["checkpoint.location"] or "its default folder; `millrace job plan` prints it"
        raise ConfigInvalid(
            f"a Spark job continues from its checkpoint ({where}), where position and output belong together; the consumer "
            f"group {groups} only shows how far it is. To read everything again, create the connector again under "
            "another name, or with another checkpoint.location, and source.starting.offsets=earliest; sinks that write each "
            "change once by its own position leave out what they have, others need an empty target. "
            f"Connector {name} was not changed"
        )


def command(events: int) -> list[str]:
    """The command line of a job's process: its configuration comes by its standard input, with the values of references."""
    return [sys.executable, "-m", "spark_jobs.run", "-", "--events", str(events), "--supervised", "--resolved"]


def job_and_sink(config: Config) -> tuple[str, str]:
    """The name of a task's job, and the sink that it writes: empty for a flow with one sink."""
    for sink in divide_sinks(config.raw):
        if sink.name in selected_names(config.raw):
            return sink.properties["name"], sink.name
    return str(config["name"]), ""


def groups_of(config: Config) -> dict[str, str]:
    """The consumer groups that a flow commits to, by sink; the one of a flow with one sink has no name of a sink."""
    if not sink_names(config.raw):
        return {"": str(config["kafka.group.id"] or f"millrace-{config['name']}")}
    return {
        sink.name: sink.properties.get("kafka.group.id") or f"millrace-{sink.properties['name']}"
        for sink in divide_sinks(config.raw)
    }


def missing_packages() -> list[str]:
    """Distributions of the extra ``spark`` that are not installed here."""
    return [name for module, name in _NEEDED.items() if find_spec(module) is None]


def _demand_packages() -> None:
    missing = missing_packages()
    if missing:
        raise ConfigInvalid(install_text(missing))


def install_text(missing: Sequence[str]) -> str:
    """Explain how to install the missing modules."""
    return (
        f"Spark jobs need {', '.join(missing)}, which this worker's Python ({sys.executable}) does not have: install "
        "Millrace with its extra, pip install 'millrace[spark]', on every worker that may run them, and restart those"
    )


def _check_properties(properties: Mapping[str, str]) -> list[ConfigProblem]:
    from spark_jobs.config.job_files import check_flow

    try:
        problems = check_flow(properties)[1]
    except ConfigInvalid as error:
        return [ConfigProblem("connector.class", str(error))]
    if sink_names(properties) and properties.get("metrics.port", "0").strip() not in ("", "0"):
        message = (
            "metrics.port can't be used by a connector with several sinks: the worker's /metrics shows each of them"
        )
        problems.append(ConfigProblem("metrics.port", f"{message}; remove it"))
    return problems


def _one_line(message: Any) -> str:
    return (str(message or "").splitlines() or [""])[0]


def _to_seconds(timestamp: Any) -> float:
    """Seconds since the epoch of an event's time; 0 for none."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def take_progress(progress: JobProgress, event: Mapping[str, Any]) -> None:
    """Fold one progress event into the numbers. Pure but for ``progress``."""
    rows, batch = int(event.get("rows") or 0), event.get("batch")
    trouble = event.get("retrying") or {}
    progress.phase, progress.error = ("retrying" if trouble else "running"), _one_line(trouble.get("error"))
    progress.retrying_since = _to_seconds(trouble.get("since"))
    progress.progress_at = time.time()
    if isinstance(batch, int) and batch != progress.batch and event.get("duration_ms"):
        seconds = float(event.get("duration_ms") or 0) / 1000
        progress.batch, progress.batch_rows, progress.batch_s = batch, rows, seconds
        progress.batches += 1
        progress.busy_s += seconds
        progress.batch_s_max = max(progress.batch_s_max, seconds)
        progress.batch_rows_max = max(progress.batch_rows_max, rows)
        progress.read += rows
        progress.written += int(event.get("written") or 0)
    progress.rows_per_s = float(event.get("rows_per_s") or 0)
    lags, positions = event.get("lag") or {}, event.get("position") or {}
    # A partition whose end is not known has a position and no lag.
    where = dict.fromkeys(
        (topic, partition)
        for source in (lags, positions)
        for topic, partitions in source.items()
        for partition in partitions
    )
    progress.partitions = [
        JobPartition(
            topic,
            int(partition),
            int(positions.get(topic, {}).get(partition, -1)),
            int(lags.get(topic, {}).get(partition, -1)),
        )
        for topic, partition in where
    ][:_MOST_PARTITIONS]
    progress.steps = event.get("steps") or {}
    progress.tables = event.get("tables") or {}
    progress.metrics = {
        name: float(value) for name, value in (event.get("metrics") or {}).items() if isinstance(value, int | float)
    }
