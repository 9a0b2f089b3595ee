"""A job, read and checked: what the frame needs to know to run it, plan it or stop it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs import registry
from spark_jobs.config.keys import AVAILABLE_NOW, MATERIALIZE
from spark_jobs.spark.filesystems import client_sets
from worker.fetch.paths import cache_dir, home_dir

if TYPE_CHECKING:
    from connectors.options import Config
    from spark_jobs.contract import Sink, Source
    from spark_jobs.flows.sinks import FlowMembership
    from spark_jobs.metrics import JobMetric


@dataclass(frozen=True, slots=True)
class Job:
    """A checked job.

    Attributes:
        name: its name.
        config: parsed; options whose default depends on others (``guarantee``, ``kafka.group.id``, ``checkpoint.location``,
            ``state.dir``) have their effective values.
        origin: the file it came from, for messages; empty if it came from no file.
        membership: set where it writes one of several sinks of a flow.
    """

    name: str
    config: Config
    origin: str = ""
    membership: FlowMembership | None = None

    @property
    def flow_name(self) -> str:
        """The name of the flow whose sink it writes; its own where the flow has one sink."""
        return self.name if self.membership is None else self.membership.flow

    @property
    def member_name(self) -> str:
        """The name of its sink among the sinks of the flow; empty where the flow has one sink."""
        return "" if self.membership is None else self.membership.sink

    @property
    def sink_name(self) -> str:
        """``sink.type``, or ``materializer``."""
        return "materializer" if self.materializes else str(self.config["sink.type"])

    @property
    def materializes(self) -> bool:
        """Whether the whole batch goes to the materializer."""
        return bool(self.config["transform.type"] == MATERIALIZE)

    @property
    def available_now(self) -> bool:
        """Whether it ends once it has done what there was at its start."""
        return bool(self.config["trigger.mode"] == AVAILABLE_NOW)

    @property
    def guarantee(self) -> str:
        """The delivery guarantee of the job."""
        return str(self.config["guarantee"])

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps how far the job has come: a path or a Hadoop URL."""
        return str(self.config["checkpoint.location"])

    @property
    def folder(self) -> Path:
        """Where this machine keeps what ``status`` and ``stop`` need."""
        return control_folder(self.name)

    @property
    def master(self) -> str:
        """Spark's master."""
        return str(self.config["spark.master"])

    def sink_class(self) -> type[Sink]:
        """The class that gets the batches; imports it."""
        if self.materializes:
            sink_type: type[Sink] = registry.load_class(registry.MATERIALIZER)
            return sink_type
        return registry.sink_class(self.config["sink.type"])

    def jar_sets(self) -> tuple[str, ...]:
        """The sets of pinned jars that its sink, its steps and its file systems need, without Kafka's; imports them."""
        from spark_jobs.steps.options import step_jars

        sets = (*self.sink_class().jars(self.config), *step_jars(self.config), *client_sets(self.config.raw))
        return tuple(dict.fromkeys(sets))

    def metrics(self) -> list[JobMetric]:
        """The declarations of the metrics of its source, sink and steps; imports them."""
        from spark_jobs.steps.options import step_metrics

        return [*self.source_class().metrics, *self.sink_class().metrics, *step_metrics(self.config)]

    def source_class(self) -> type[Source]:
        """The class that decodes; imports it."""
        address = registry.INPUT_SOURCES.get(self.config["source.type"])
        source: type[Source] = (
            registry.load_class(address) if address else registry.source_class(self.config["source.format"])
        )
        return source


def control_folder(name: str) -> Path:
    """The folder of a job's lock and status on this machine."""
    return home_dir() / "jobs" / name


def default_state_dir(name: str) -> str:
    """``state.dir`` where none is given: a cache, as everything in it can be rebuilt."""
    return str(cache_dir() / "jobs" / name)


def default_checkpoint(name: str, state_dir: str | None) -> str:
    """``checkpoint.location`` where none is given; not in the cache folder, as a checkpoint can't be rebuilt."""
    return str(Path(state_dir) / "checkpoint" if state_dir else control_folder(name) / "checkpoint")
