"""The options of steps: declared per step of a configuration, checked, and given to the steps. No Spark session."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from connectors.options import REQUIRED, ConfigKey, ConfigProblem, ConfigType, Importance, one_of
from spark_jobs import registry
from spark_jobs.config.keys import FUNCTIONS, MATERIALIZE, STEPS
from spark_jobs.config.keys import STEP_PREFIX as PREFIX
from spark_jobs.steps.contract import StepContext
from spark_jobs.steps.planning.names import is_match, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.options import Config
    from spark_jobs.metrics import JobMetric
    from spark_jobs.steps.contract import Step
    from spark_jobs.steps.python.functions import UserFunction

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}\Z")
_RECORDS: Final = ("sink.console.content", "sink.kafka.content")


@dataclass(frozen=True, slots=True)
class DeclaredSteps:
    """The declarations of the steps of a configuration.

    Attributes:
        keys: their options under their full names.
        pass_through: prefixes of properties that are accepted without a declaration each.
        problems: names and types that are wrong.
    """

    keys: tuple[ConfigKey, ...]
    pass_through: tuple[str, ...]
    problems: tuple[ConfigProblem, ...]


def step_names(raw: Mapping[str, str]) -> list[str]:
    """The names in ``transform.steps``, in order."""
    return [name.strip() for name in raw.get(STEPS, "").split(",") if name.strip()]


def declare_steps(raw: Mapping[str, str]) -> DeclaredSteps:
    """The options of the steps of a configuration; imports their types."""
    names = step_names(raw)
    types = registry.list_entry_points(registry.STEPS) if names else {}
    keys: list[ConfigKey] = _function_keys(raw)
    prefixes: list[str] = []
    problems = [
        ConfigProblem(STEPS, f"Invalid value {name} for configuration {STEPS}: {problem}")
        for name, problem in _bad_names(names)
    ]
    for name in dict.fromkeys(names):
        prefix = f"{PREFIX}{name}."
        keys.append(
            ConfigKey(
                name=f"{prefix}type",
                type=ConfigType.STRING,
                default=REQUIRED,
                importance=Importance.HIGH,
                validator=one_of(*types),
                doc="The type of the step.",
            )
        )
        type_name = raw.get(f"{prefix}type", "").strip()
        if type_name not in types:
            prefixes.append(prefix)  # its type is wrong: complain of that alone
            continue
        step = registry.step_class(type_name)
        keys += [replace(key, name=f"{prefix}{key.name}") for key in step.config_def.keys.values()]
        prefixes += [f"{prefix}{option_name}" for option_name in step.pass_through]
    strangers = {name[len(PREFIX) :].partition(".")[0]: name for name in raw if name.startswith(PREFIX)}
    problems += [
        ConfigProblem(option, f"{option} is of a step that {STEPS} does not name: add {name} to {STEPS}, or remove it")
        for name, option in strangers.items()
        if name not in names
    ]
    prefixes += [f"{PREFIX}{name}." for name in strangers if name not in names]
    return DeclaredSteps(tuple(keys), tuple(prefixes), tuple(problems))


def _function_keys(raw: Mapping[str, str]) -> list[ConfigKey]:
    if not raw.get(FUNCTIONS):
        return []
    from spark_jobs.steps.python.functions import keys_of  # reads SQL

    return keys_of(raw)


def _bad_names(names: list[str]) -> Iterable[tuple[str, str]]:
    for name in dict.fromkeys(names):
        if _NAME.match(name) is None:
            yield name, "a step's name is letters, digits and '_', and begins with a letter"
        if names.count(name) > 1:
            yield name, "two steps have this name"


def check_combinations(raw: Mapping[str, str], values: Mapping[str, Any]) -> list[ConfigProblem]:
    """Complaints about options that can't be combined with steps. Pure."""
    if not step_names(raw):
        return []
    problems = [
        ConfigProblem(
            name,
            f"{name}=records passes records on as they are, so {STEPS} can't transform them: set {name}=rows",
        )
        for name in _RECORDS
        if values.get(name) == "records"
    ]
    if values["transform.type"] == MATERIALIZE:
        problems.append(
            ConfigProblem(
                STEPS,
                f"{STEPS} can't be combined with transform.type={MATERIALIZE}, which writes its rows itself: put the "
                "steps into the job that reads the materializer's output",
            )
        )
    return problems


def build_functions(config: Config) -> list[UserFunction]:
    """The functions that the SQL of a job's steps may call. Reads their files."""
    if not config.raw.get(FUNCTIONS):
        return []
    from spark_jobs.steps.python.functions import functions_of

    return functions_of(config)


def build_steps(config: Config) -> list[Step]:
    """The steps of a job, in order."""
    result = []
    for name in step_names(config.raw):
        prefix = f"{PREFIX}{name}."
        step = registry.step_class(config[f"{prefix}type"])
        options = {key: config[f"{prefix}{key}"] for key in step.config_def.keys}
        before_rows = bool(config.get("source.before.rows"))
        result.append(step(StepContext(name, options, config.prefixed(prefix), before_rows, config)))
    return result


def step_metrics(config: Config) -> list[JobMetric]:
    """The declarations of the metrics of a job's steps."""
    types = {config[f"{PREFIX}{name}.type"] for name in step_names(config.raw)}
    declared = [metric for kind in sorted(types) for metric in registry.step_class(kind).metrics]
    return list(dict.fromkeys(declared))


def step_jars(config: Config) -> list[str]:
    """The sets of pinned jars that a job's steps need, without Kafka's."""
    types = dict.fromkeys(config[f"{PREFIX}{name}.type"] for name in step_names(config.raw))
    return list(dict.fromkeys(jars for kind in types for jars in registry.step_class(kind).extra_jars))


def order_complaints(steps: Sequence[Step]) -> list[ConfigProblem]:
    """Complaints about steps that read the table of a later step: steps run in order. Pure.

    If a step reads a table of the name that it makes, the source has such a table, and earlier steps mean that one.

    Args:
        steps: in order, each with valid options.
    """
    reads = {step.name: set(step.reads()) for step in steps}
    makers = {
        output: step.name
        for step in reversed(steps)
        for output in step.makes()
        if not any(is_match([name], output) or output in names_of(name) for name in reads[step.name])
    }
    position = {step.name: number for number, step in enumerate(steps)}
    problems = []
    for step in steps:
        for name in sorted(reads[step.name]):
            maker = makers.get(name, step.name)
            if position[maker] <= position[step.name]:
                continue
            cycle = _reads_from(maker, step.name, reads, makers)
            fix = (
                f"The step {maker} in turn reads what {step.name} makes, so no order of them can work: let one of them read a "
                "table of the source"
                if cycle
                else f"Put {maker} before {step.name}"
            )
            problem_text = (
                f"step {step.name} reads the table {name}, which the later step {maker} makes; steps run in "
                f"order. {fix}"
            )
            rename_hint = f", or give {maker} another name if the source has a table {name}" if name == maker else ""
            problems.append(ConfigProblem(STEPS, f"{STEPS}: {problem_text}{rename_hint}"))
    return problems


def _reads_from(step: str, target_step: str, reads: Mapping[str, set[str]], makers: Mapping[str, str]) -> bool:
    """Whether a step reads what another one makes, by way of further steps too."""
    waiting, visited = [step], {step}
    while waiting:
        makes_input = {makers[name] for name in reads[waiting.pop()] if name in makers} - visited
        waiting += makes_input
        visited |= makes_input
    return target_step in visited


def check_steps(config: Config) -> list[ConfigProblem]:
    """The complaints of the steps about their options. Reads the files of functions."""
    problems = []
    if config.raw.get(FUNCTIONS):
        from spark_jobs.steps.python.functions import check_functions as function_complaints

        problems += function_complaints(config)
    steps = build_steps(config)
    for step in steps:
        for problem_text in step.check():
            option, _, message = problem_text.partition(": ")
            problems.append(ConfigProblem(f"{PREFIX}{step.name}.{option}", f"{PREFIX}{step.name}.{option}: {message}"))
    return problems or order_complaints(steps)
