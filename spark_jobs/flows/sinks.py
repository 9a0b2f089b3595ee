"""Several sinks of one flow: each becomes a job of its own with its own checkpoint, group, guarantee and retries. Pure.

The flow's properties name the sinks in ``sinks``. What a single sink has below ``sink.`` is below ``sink.<name>.`` here,
and so do the options of the frame that a sink may have for itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from connectors.options import ConfigKey, ConfigProblem
from spark_jobs.config.keys import FRAME, MATERIALIZE, SINKS, SINKS_MAX_LAG, SINKS_ONLY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}\Z")
#: The beginning of an option of a job's sink, in a message.
_SINK_OPTION: Final = re.compile(r"(?<![\w.])sink\.(?=\w)")
#: Names the job of a sink, so that it can take over the state of a flow with one sink.
JOB_NAME: Final = "job.name"
#: Options of the frame that a sink may have for itself, by ``sink.<name>.<option>``.
OWN_OPTIONS: Final = (
    "guarantee",
    "checkpoint.location",
    "state.dir",
    "kafka.group.id",
    "source.starting.offsets",
    "source.savepoint",
    "source.max.offsets.per.trigger",
    "trigger.interval.ms",
    "errors.tolerance",
    "errors.deadletterqueue.topic.name",
    "errors.retry.timeout.ms",
    "errors.retry.delay.ms",
    "errors.retry.delay.max.ms",
    "errors.worker.crashes.max",
)
#: Options of the flow that get the sink's name appended: option -> separator.
_DIVIDED: Final = {"checkpoint.location": "/", "state.dir": "/", "kafka.group.id": ".", "source.savepoint": "/"}


@dataclass(frozen=True, slots=True)
class FlowSinkJob:
    """One sink of a flow, as a job.

    Attributes:
        name: of the sink.
        properties: of the job: what a job with this sink alone would have.
    """

    name: str
    properties: dict[str, str]

    def given_name(self, option: str, raw: Mapping[str, str]) -> str:
        """The name under which the flow's properties ``raw`` have an option of the job."""
        flow_option = f"sink.{self.name}.{option.removeprefix('sink.')}"
        return flow_option if option.startswith("sink.") or flow_option in raw else option

    def given_text(self, problem: str, option: str, raw: Mapping[str, str]) -> str:
        """A complaint of the job about ``option``, with the names of options as the flow's properties have them."""
        if not option.startswith("sink."):
            return problem.replace(option, self.given_name(option, raw)) if option else problem
        return _SINK_OPTION.sub(f"sink.{self.name}.", problem)


@dataclass(frozen=True, slots=True)
class FlowMembership:
    """The flow whose sink a job writes.

    Attributes:
        flow: the flow's name.
        sink: the sink's name.
        others: the checkpoints of the flow's other sinks, by name.
        max_lag: how many records the slowest of them may be behind this one; -1: any number.
        jobs: the names of the jobs that run in the same process, by sink.
    """

    flow: str
    sink: str
    others: Mapping[str, str] = field(default_factory=dict)
    max_lag: int = -1
    jobs: Mapping[str, str] = field(default_factory=dict)


def sink_names(raw: Mapping[str, str]) -> list[str]:
    """The names in ``sinks``, in order; empty for a flow with one sink."""
    return _split_items(raw.get(SINKS, ""))


def selected_names(raw: Mapping[str, str]) -> list[str]:
    """The sinks that run here: those in ``sinks.only``, else all."""
    only = _split_items(raw.get(SINKS_ONLY, ""))
    return [name for name in sink_names(raw) if not only or name in only]


def _split_items(item_list: str) -> list[str]:
    return [name.strip() for name in item_list.split(",") if name.strip()]


def divide_sinks(raw: Mapping[str, str]) -> list[FlowSinkJob]:
    """The sinks of a flow as jobs, in order."""
    shared = {
        name: value for name, value in raw.items() if not name.startswith("sink.") and name not in (SINKS, SINKS_ONLY)
    }
    shared.pop(SINKS_MAX_LAG, None)
    return [_job_of(name, raw, shared) for name in dict.fromkeys(sink_names(raw))]


def _job_of(sink: str, raw: Mapping[str, str], shared: Mapping[str, str]) -> FlowSinkJob:
    prefix = f"sink.{sink}."
    properties = dict(shared)
    if "name" in shared:
        properties["name"] = f"{shared['name']}.{sink}"
    for option, separator in _DIVIDED.items():
        if shared.get(option):
            properties[option] = f"{shared[option].rstrip('/')}{separator}{sink}"
    for name, value in raw.items():
        if not name.startswith(prefix):
            continue
        option = name.removeprefix(prefix)
        if option == JOB_NAME:
            properties["name"] = value
        else:
            properties[option if option in OWN_OPTIONS else f"sink.{option}"] = value
    return FlowSinkJob(sink, properties)


def own_keys(sink: FlowSinkJob, keys: Iterable[ConfigKey], raw: Mapping[str, str]) -> list[ConfigKey]:
    """Declarations of the options that ``sink`` has in the flow's properties.

    Args:
        sink: whose.
        keys: the declarations of its job.
        raw: the flow's properties.
    """
    prefix = f"sink.{sink.name}."
    keys_of_sink = [
        replace(key, name=sink.given_name(key.name, raw), aliases=())
        for key in keys
        if key.name.startswith("sink.") or (key.name in OWN_OPTIONS and f"{prefix}{key.name}" in raw)
    ]
    if f"{prefix}{JOB_NAME}" in raw:
        keys_of_sink.append(replace(FRAME.keys["name"], name=f"{prefix}{JOB_NAME}"))
    return keys_of_sink


def check_sinks(raw: Mapping[str, str]) -> list[ConfigProblem]:
    """Check the sinks as a list: their names, options of no sink, options that don't go together."""
    names = sink_names(raw)
    if not names:
        return [
            ConfigProblem(
                option, f"{option} has an effect only with {SINKS}: name the flow's sinks there, or remove it"
            )
            for option in (SINKS_ONLY, SINKS_MAX_LAG)
            if option in raw
        ]
    problems = [
        ConfigProblem(SINKS, f"Invalid value {name} for configuration {SINKS}: {problem}")
        for name in dict.fromkeys(names)
        if (problem := _bad_name(name, names))
    ]
    problems += [
        ConfigProblem(SINKS_ONLY, f"Invalid value {name} for configuration {SINKS_ONLY}: {SINKS} names no such sink")
        for name in _split_items(raw.get(SINKS_ONLY, ""))
        if name not in names
    ]
    problems += [
        ConfigProblem(
            option,
            f"{option} is of no sink that {SINKS} names ({', '.join(names)}): write sink.<name>.{_shorten_option(option)}",
        )
        for option in raw
        if option.startswith("sink.") and not any(option.startswith(f"sink.{name}.") for name in names)
    ]
    if raw.get("transform.type", "").strip() == MATERIALIZE:
        problems.append(
            ConfigProblem(
                SINKS,
                f"{SINKS} can't be combined with transform.type={MATERIALIZE}, which writes state, output and position in "
                "one Kafka transaction: give the sinks to a flow that reads the materializer's output",
            )
        )
    return problems


def _shorten_option(option: str) -> str:
    return option.removeprefix("sink.")


def _bad_name(name: str, names: list[str]) -> str:
    if _NAME.match(name) is None:
        return "a sink's name is 1 to 50 letters, digits, '_' and '-', beginning with a letter or a digit"
    return "two sinks have this name" if names.count(name) > 1 else ""


def shared_complaints(configs: Mapping[str, Mapping[str, Any]]) -> list[ConfigProblem]:
    """Sinks that would use the same state.

    Args:
        configs: the parsed configuration of each sink's job, by the sink's name.
    """
    problems = []
    for option, sink_option in (("name", JOB_NAME), ("checkpoint.location", "checkpoint.location")):
        owners: dict[str, str] = {}
        for sink, values in configs.items():
            first = owners.setdefault(str(values[option]).rstrip("/"), sink)
            if first != sink:
                name = f"sink.{sink}.{sink_option}"
                problems.append(
                    ConfigProblem(name, f"{name}: the sinks {first} and {sink} have the same one, {values[option]}")
                )
    return problems


def make_memberships(
    flow: str, checkpoints: Mapping[str, str], max_lag: int, jobs: Mapping[str, str]
) -> dict[str, FlowMembership]:
    """Return the membership of each selected sink's job.

    Args:
        flow: its name.
        checkpoints: of all its sinks, by name.
        max_lag: ``sinks.max.lag.records``.
        jobs: the names of the jobs of the sinks that run here, by sink.
    """
    return {
        sink: FlowMembership(
            flow, sink, {name: folder for name, folder in checkpoints.items() if name != sink}, max_lag, jobs
        )
        for sink in jobs
    }


def records_ahead(position: Mapping[tuple[str, int], int], other_position: Mapping[tuple[str, int], int]) -> int:
    """How many records ``position`` is ahead of ``other_position``; negative if it is behind.

    Summed over all partitions, those in which ``other_position`` leads included, so that two sinks never wait for each other.
    """
    return sum(
        position.get(where, 0) - other_position.get(where, 0) for where in position.keys() | other_position.keys()
    )
