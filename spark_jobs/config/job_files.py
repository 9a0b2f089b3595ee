"""Reads job files and checks them: every complaint at once, before Spark starts and without it.

A job file is YAML or JSON. Nested mappings are flattened to dotted properties, so it says the same as a connector
configuration: ``source: {topics: [a, b]}`` is ``source.topics: a,b``.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from connectors.options import Config, ConfigDef, ConfigProblem
from spark_jobs import registry
from spark_jobs.config import schema_options
from spark_jobs.config.json_text import flatten_json
from spark_jobs.config.keys import (
    FRAME,
    GUARANTEES,
    MATERIALIZE,
    MERGE,
    PASS_THROUGH,
    SEPARATE,
    SHARDS,
    SINKS_MAX_LAG,
    SOURCE_TYPE,
)
from spark_jobs.flows import sinks as flow_sinks
from spark_jobs.inputs import options as inputs
from spark_jobs.job import Job, default_checkpoint, default_state_dir
from spark_jobs.rows import masks
from spark_jobs.steps import options as steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.contract import Sink, Source

#: Accepted without a meaning of their own, as a job file may be the configuration of a connector.
_CONNECTOR_ONLY: Final = ("connector.class", "tasks.max")


@dataclass(frozen=True, slots=True)
class JobFile:
    """The properties of a job file as text.

    Attributes:
        path: the file; empty if the properties came otherwise.
        properties: dotted name -> text, before references are resolved.
        lines: dotted name -> line of the file, from 1, where it is known.
    """

    properties: dict[str, str]
    path: str = ""
    lines: dict[str, int] = field(default_factory=dict)

    def at(self, name: str) -> str:
        """The position of ``name``, as a prefix of a message: ``file:line: ``."""
        if not self.path:
            return ""
        line = self.lines.get(name)
        return f"{self.path}:{line}: " if line else f"{self.path}: "


def read_file(path: str | Path) -> JobFile:
    """The properties of a file; ``.json`` is read as JSON, everything else as YAML (which JSON is, too). Blocks.

    Raises:
        ConfigInvalid: it can't be read, or isn't a mapping of names to values; the message names file and line.
    """
    try:
        file_text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise ConfigInvalid(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path}: can't be read: {error}") from error
    return parse_text(file_text, str(path), as_json=Path(path).suffix == ".json")


def parse_text(file_text: str, path: str = "", *, as_json: bool = False) -> JobFile:
    """``read_file`` for text that is at hand."""
    from spark_jobs.config.yaml_text import flatten_yaml

    properties, lines = flatten_json(file_text, path) if as_json else flatten_yaml(file_text, path)
    if not properties:
        raise ConfigInvalid(
            f"{path or 'the job'}: is empty; a job needs at least name, kafka.bootstrap.servers, "
            "source.topics, source.format and sink.type"
        )
    return JobFile(properties, path, lines)


def resolve_references(properties: Mapping[str, str]) -> tuple[dict[str, str], list[ConfigProblem]]:
    """``properties`` with ``${env:NAME}``, ``${file:PATH:KEY}`` and ``${directory:PATH:FILE}`` replaced by what they stand for.

    Unlike in a worker, an unresolved reference is a problem: nothing would resolve it later. Reads files.
    """
    from worker.secrets.providers import (
        ConfigTransformer,
        DirectoryConfigProvider,
        EnvVarConfigProvider,
        FileConfigProvider,
        find_references,
        has_references,
    )

    if not any(has_references(value) for value in properties.values()):
        return dict(properties), []
    providers = {
        "env": EnvVarConfigProvider({}),
        "file": FileConfigProvider({}),
        "directory": DirectoryConfigProvider({}),
    }
    transformer = ConfigTransformer(providers)
    result: dict[str, str] = {}
    problems: list[ConfigProblem] = []
    for name, value in properties.items():
        try:
            result[name] = transformer.transform({name: value})[0][name]
        except ConfigInvalid as error:
            problems.append(ConfigProblem(name, str(error)))
            continue
        for provider, path, key in find_references(value):
            if provider in providers and key not in providers[provider].get(path, [key]).data:
                where = f"file {path}" if path else "the environment"
                problems.append(ConfigProblem(name, f"{key} is not in {where}, which ${{{provider}:...}} refers to"))
    return result, problems


def resolve_file(path: str | Path) -> dict[str, str]:
    """The properties of a file, references resolved.

    Raises:
        ConfigInvalid: as ``read_file``, or a reference has no value.
    """
    file = read_file(path)
    properties, problems = resolve_references(file.properties)
    if problems:
        raise ConfigInvalid("\n".join(f"{file.at(problem.name)}{problem.message}" for problem in problems))
    return properties


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a job, as far as its properties name them and they can be imported."""

    definition: ConfigDef
    sink: type[Sink] | None
    source: type[Source] | None
    problems: list[ConfigProblem]
    pass_through: tuple[str, ...]


def _import_class(
    option: str, name: str, known_classes: Mapping[str, str], where: str = ""
) -> tuple[Any, ConfigProblem | None]:
    """The class that ``option``'s value ``name`` stands for."""
    target = where or (name if ":" in name else known_classes.get(name, ""))
    if not target:
        close = difflib.get_close_matches(name, known_classes, 1, 0.5)
        hint = f"; did you mean {close[0]}?" if close else ""
        return None, ConfigProblem(
            option,
            f"Invalid value {name} for configuration {option}: must be one of "
            f"{', '.join(known_classes)}, or module:Class of your own{hint}",
        )
    try:
        return registry.load_class(target), None
    except ImportError as error:
        return None, ConfigProblem(
            option,
            f"Invalid value {name} for configuration {option}: {target} can't be imported "
            f"({error}); install Millrace with its extra `spark`, or correct the path",
        )
    except AttributeError:
        return None, ConfigProblem(
            option,
            f"Invalid value {name} for configuration {option}: {target.partition(':')[0]} has "
            f"no class {target.partition(':')[2]}",
        )


def find_parts(raw: Mapping[str, str]) -> _Parts:
    """The definition of the job that ``raw`` describes: the frame's options, its source's, its sinks'. Imports them."""
    if flow_sinks.sink_names(raw):
        return _parts_of_flow(raw)
    problems: list[ConfigProblem] = []
    definition = ConfigDef(list(FRAME.keys.values()))
    pass_through: tuple[str, ...] = PASS_THROUGH
    source = sink = None
    if raw.get("source.format", "").strip():
        source, problem = _import_class(
            "source.format", raw["source.format"].strip(), registry.list_entry_points(registry.SOURCES)
        )
        problems += [problem] if problem else []
    if raw.get("transform.type", "").strip() == MATERIALIZE:
        sink, problem = _import_class("transform.type", MATERIALIZE, {}, registry.MATERIALIZER)
        problems += [problem] if problem else []
    elif raw.get("sink.type"):
        sink, problem = _import_class("sink.type", raw["sink.type"].strip(), registry.list_entry_points(registry.SINKS))
        problems += [problem] if problem else []
    own_source = registry.INPUT_SOURCES.get(raw.get(SOURCE_TYPE, "").strip())
    decoder, source = source, registry.load_class(own_source) if own_source else source
    for part in (source, decoder if decoder is not source else None, sink):
        if part is None:
            continue
        for key in part.config_def.keys.values():
            if key.name not in definition.keys:  # the declaration of the frame, or of the source, counts
                definition.add(key)
        pass_through += tuple(part.pass_through)
    declared = steps.declare_steps(raw)
    for key in declared.keys:
        definition.add(key)
    problems += declared.problems
    pass_through += declared.pass_through
    return _Parts(definition, sink, source, problems, pass_through)


def _parts_of_flow(raw: Mapping[str, str]) -> _Parts:
    """The definition of a flow with several sinks: their options are named ``sink.<name>.<option>``."""
    definition = ConfigDef([key for key in FRAME.keys.values() if not key.name.startswith("sink.")])
    problems: list[ConfigProblem] = []
    pass_through: dict[str, None] = {}
    for sink in flow_sinks.divide_sinks(raw):
        job = find_parts(sink.properties)
        sink_keys = flow_sinks.own_keys(sink, job.definition.keys.values(), raw)
        shared = [key for key in job.definition.keys.values() if not key.name.startswith("sink.")]
        for key in (*shared, *sink_keys):
            if key.name not in definition.keys:
                definition.add(key)
        problems += [_of_sink(sink, problem, raw) for problem in job.problems]
        pass_through |= dict.fromkeys(sink.given_name(prefix, raw) for prefix in job.pass_through)
    return _Parts(definition, None, None, problems, tuple(pass_through))


def _of_sink(sink: flow_sinks.FlowSinkJob, problem: ConfigProblem, raw: Mapping[str, str]) -> ConfigProblem:
    """A complaint about a sink's job, in the words of the flow's properties ``raw``."""
    return ConfigProblem(sink.given_name(problem.name, raw), sink.given_text(problem.message, problem.name, raw))


def check_flow(
    properties: Mapping[str, str],
) -> tuple[list[tuple[Config, flow_sinks.FlowMembership | None]], list[ConfigProblem]]:
    """The jobs of a flow, one for each of its sinks that are to run, and every complaint about ``properties``.

    Touches no server. There are no jobs where there are complaints. A flow with one sink is one job without a membership.

    Args:
        properties: the configuration, references resolved.
    """
    raw = dict(properties)
    problems = flow_sinks.check_sinks(raw)
    if not flow_sinks.sink_names(raw):
        config, complaints = check_job(raw)
        problems += complaints
        return ([] if config is None or problems else [(config, None)]), problems
    value = ConfigDef([FRAME.keys[SINKS_MAX_LAG]]).values(raw)[SINKS_MAX_LAG]
    problems += [ConfigProblem(SINKS_MAX_LAG, problem_text) for problem_text in value.errors]
    configs: dict[str, Config] = {}
    for sink in flow_sinks.divide_sinks(raw):
        config, complaints = check_job(sink.properties)
        problems += [_of_sink(sink, problem, raw) for problem in complaints]
        if config is not None:
            configs[sink.name] = config
    problems += flow_sinks.shared_complaints(configs)
    problems += inputs.lag_complaints(configs.values(), value.value)
    problems = list(dict.fromkeys(problems))  # what the sinks share is wrong once
    if problems:
        return [], problems
    members = flow_sinks.make_memberships(
        raw["name"],
        {name: config["checkpoint.location"] for name, config in configs.items()},
        value.value,
        {name: configs[name]["name"] for name in flow_sinks.selected_names(raw)},
    )
    return [(configs[name], member) for name, member in members.items()], []


def check_job(properties: Mapping[str, str]) -> tuple[Config | None, list[ConfigProblem]]:
    """``check_flow`` for a job with one sink: its parsed configuration (None if it can't be had) and every complaint."""
    job_parts = find_parts(properties)
    problems = list(job_parts.problems)
    raw = job_parts.definition.canonical(properties)
    problems += _find_unknown(raw, job_parts)
    values = job_parts.definition.values(raw)
    complained = {problem.name for problem in problems}
    problems += [
        ConfigProblem(value.name, message)
        for value in values.values()
        if value.name not in complained
        for message in value.errors
    ]
    problems += [problem for problem in _check_secrets(raw, job_parts.definition) if problem.name not in complained]
    parsed = {name: value.value for name, value in values.items()}
    bad = {problem.name for problem in problems}
    together = (
        *_check_combinations(parsed, raw, job_parts),
        *masks.check_masks(raw, parsed),
        *steps.check_combinations(raw, parsed),
        *schema_options.check_policies(parsed),
    )
    problems += [problem for problem in together if problem.name not in bad]
    config = Config(_apply_defaults(parsed, job_parts), raw) if not problems else None
    if config is not None:
        for part in (job_parts.source, job_parts.sink):
            if part is not None:
                problems += [_make_problem(problem_text, config) for problem_text in part.validate(config)]
        problems += steps.check_steps(config)
    return (None if problems else config), problems


def _check_secrets(raw: Mapping[str, str], definition: ConfigDef) -> list[ConfigProblem]:
    """Complaints about secrets that are still references: their own text, which others may guess, would be taken for them."""
    from worker.secrets.masking import find_bare_references

    return [
        ConfigProblem(
            name,
            f"{value} in the option {name} has no value: check the provider's name (a job file can use env, file and "
            "directory), the path and the key",
        )
        for name, value in find_bare_references(raw, definition.keys.values())
        if not value.startswith("${column:")  # a template for each row
    ]


def _make_problem(problem_text: str, config: Config) -> ConfigProblem:
    """A complaint of a part: by its option where the text begins with one (``option: ...``)."""
    name = problem_text.partition(":")[0].strip()
    return ConfigProblem(name, problem_text) if name in config else ConfigProblem("", problem_text)


def _find_unknown(raw: Mapping[str, str], job_parts: _Parts) -> list[ConfigProblem]:
    names = list(job_parts.definition.keys)
    foreign = (
        () if job_parts.sink is not None else ("sink.", "materializer.")
    )  # its sink is what is wrong: complain of that alone
    problems = []
    for name in raw:
        if (
            name in job_parts.definition.keys
            or name in _CONNECTOR_ONLY
            or name.startswith((*job_parts.pass_through, *foreign))
        ):
            continue
        close = difflib.get_close_matches(name, names, 1, 0.75)
        hint = f"; did you mean {close[0]}?" if close else _other_sink(name, raw)
        problems.append(ConfigProblem(name, f"Unknown configuration {name}{hint}"))
    return problems


def _other_sink(name: str, raw: Mapping[str, str]) -> str:
    head = name.split(".")
    if (
        head[0] == "sink"
        and len(head) > 2
        and head[1] in registry.list_entry_points(registry.SINKS)
        and head[1] != raw.get("sink.type")
    ):
        return f": it belongs to sink.type={head[1]}, and the job has sink.type={raw.get('sink.type')}"
    if head[0] == "materializer":
        return f": it belongs to transform.type={MATERIALIZE}"
    return "; see docs/reference/jobs.md for the options of a job"


def _check_combinations(values: Mapping[str, Any], raw: Mapping[str, str], job_parts: _Parts) -> list[ConfigProblem]:
    """Complaints that need more than one option."""
    problems: list[ConfigProblem] = []

    def complain(name: str, problem_text: str) -> None:
        problems.append(ConfigProblem(name, problem_text))

    topics = values["source.topics"]
    problems += inputs.check_input_options(values)
    if topics and len(set(topics)) != len(topics):
        complain(
            "source.topics", f"Invalid value {','.join(topics)} for configuration source.topics: a topic is named twice"
        )
    if (
        "avro" in (values["source.value.encoding"], values["source.key.encoding"])
        and not values["source.schema.registry.url"]
    ):
        complain(
            "source.schema.registry.url",
            "Missing required configuration source.schema.registry.url: "
            "source.value.encoding or source.key.encoding is avro",
        )
    materializes = values["transform.type"] == MATERIALIZE
    if materializes and values["sink.type"] is not None and values["sink.type"] != "kafka":
        complain(
            "sink.type",
            f"Invalid value {values['sink.type']} for configuration sink.type: "
            f"transform.type={MATERIALIZE} writes state, output and position in one Kafka "
            "transaction, so sink.type must be kafka; a second job takes the rows from there to "
            f"{values['sink.type']}",
        )
    if materializes and values["source.min.partitions"]:
        complain(
            "source.min.partitions",
            "source.min.partitions can't be used with transform.type=materialize: one "
            "partition of the input is one task",
        )
    problems += [
        ConfigProblem(SHARDS, f"Invalid value {values[SHARDS]} for configuration {SHARDS}: {problem_text}")
        for problem_text in _check_shards(values)
    ]
    if (
        job_parts.sink is not None
        and values["guarantee"] in GUARANTEES
        and _find_guarantee(values["guarantee"], job_parts.sink) is None
    ):
        complain(
            "guarantee",
            f"Invalid value {values['guarantee']} for configuration guarantee: the "
            f"{values['sink.type']} sink offers {', '.join(job_parts.sink.guarantees)}",
        )
    problems += _check_error_options(values)
    for name in ("spark.app.name", "spark.submit.deployMode"):
        if name in raw:
            complain(name, f"{name} can't be set: the frame sets it")
    if raw.get("kafka.group.id") == "":
        complain("kafka.group.id", "kafka.group.id is empty")
    return problems


def _check_error_options(values: Mapping[str, Any]) -> list[ConfigProblem]:
    """Complaints about the options of bad records and of retries."""
    problems: list[ConfigProblem] = []
    dead_letter_topic = values["errors.deadletterqueue.topic.name"]
    if dead_letter_topic and values["errors.tolerance"] != "all":
        problems.append(
            ConfigProblem(
                "errors.deadletterqueue.topic.name",
                "errors.deadletterqueue.topic.name has no effect with errors.tolerance=none: the job stops at the first "
                "bad record; set errors.tolerance=all",
            )
        )
    if dead_letter_topic and dead_letter_topic in (values["source.topics"] or ()):
        problems.append(
            ConfigProblem(
                "errors.deadletterqueue.topic.name",
                "the dead letter topic is one of source.topics: bad records would come back",
            )
        )
    first_delay, max_delay = values["errors.retry.delay.ms"], values["errors.retry.delay.max.ms"]
    if first_delay is not None and max_delay is not None and first_delay > max_delay:
        problems.append(
            ConfigProblem(
                "errors.retry.delay.ms",
                f"Invalid value {first_delay} for configuration errors.retry.delay.ms: it is more than "
                f"errors.retry.delay.max.ms ({max_delay})",
            )
        )
    return problems


def _check_shards(values: Mapping[str, Any]) -> list[str]:
    """Complaints about the value of ``sink.shards``: the options that can't be combined with it."""
    mode, form = values[SHARDS], values["source.format"]
    problem_texts = []
    if mode in (SEPARATE, MERGE) and form in ("plain", "partition-update"):
        problem_texts.append(
            f"records of source.format={form} don't name their shard; remove it (the numbers may be columns of plain "
            "rows: name them in source.key.columns)"
        )
    if mode == MERGE and values.get("sink.jdbc.position") == "kafka":
        problem_texts.append(
            "sink.jdbc.position=kafka compares offsets, and shards may be in several partitions; use ums_id"
        )
    if mode == SEPARATE and "records" in (values.get("sink.kafka.content"), values.get("sink.console.content")):
        problem_texts.append(
            "records are passed on as they are; it needs sink.kafka.content=rows (sink.console.content=rows)"
        )
    return problem_texts


def _find_guarantee(guarantee: str, sink: type[Sink]) -> str | None:
    """The weakest guarantee of ``sink`` that is at least ``guarantee``; None if it has none."""
    strength = GUARANTEES.index(guarantee)
    enough = [offered for offered in sink.guarantees if GUARANTEES.index(offered) <= strength]
    return max(enough, key=GUARANTEES.index) if enough else None


def _apply_defaults(values: dict[str, Any], job_parts: _Parts) -> dict[str, Any]:
    """``values`` with the defaults that depend on others."""
    name = values["name"]
    result = dict(values)
    if job_parts.sink is not None:
        result["guarantee"] = (
            job_parts.sink.guarantees[0]
            if values["guarantee"] is None
            else _find_guarantee(values["guarantee"], job_parts.sink)
        )
    result["kafka.group.id"] = values["kafka.group.id"] or f"millrace-{name}"
    result["checkpoint.location"] = values["checkpoint.location"] or default_checkpoint(name, values["state.dir"])
    result["state.dir"] = values["state.dir"] or default_state_dir(name)
    return result


def build_flow(source: JobFile | Mapping[str, str]) -> list[Job]:
    """The jobs of the flow that a file or properties describe: one, or one for each sink that is to run.

    Args:
        source: a file, whose references are resolved; or properties in which they are. A value that was put in the place of a
            reference is taken as it is: it may have the form of one.

    Raises:
        ConfigInvalid: with every complaint, one a line, each with file and line where they are known.
    """
    problems: list[ConfigProblem] = []
    if isinstance(source, JobFile):
        file = source
        properties, problems = resolve_references(file.properties)
    else:
        properties = dict(source)
        file = JobFile(properties)
    jobs, complaints = check_flow(properties)
    unresolved = {problem.name for problem in problems}
    problems += [problem for problem in complaints if problem.name not in unresolved]
    if problems:
        problems.sort(key=lambda problem: file.lines.get(problem.name, 1 << 30))
        raise ConfigInvalid("\n".join(f"{file.at(problem.name)}{problem.message}" for problem in problems))
    return [Job(config["name"], config, file.path, member) for config, member in jobs]


def build_job(source: JobFile | Mapping[str, str]) -> Job:
    """``build_flow`` where there can be one job only.

    Raises:
        ConfigInvalid: as ``build_flow``, or there are several.
    """
    jobs = build_flow(source)
    if len(jobs) > 1:
        names = ", ".join(job.membership.sink for job in jobs if job.membership is not None)
        raise ConfigInvalid(f"the flow has several sinks ({names}), and this takes one: choose it by sinks.only")
    return jobs[0]


def load_job(path: str | Path) -> Job:
    """``build_job(read(path))``."""
    return build_job(read_file(path))
