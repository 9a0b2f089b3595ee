"""The plan of a flow as data: ``POST /flows/plan``. ``python -m spark_jobs.flows.planning`` is the process that a worker asks.

Reads, never writes, and starts no Spark. The process imports Spark's types, which a worker must not.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, MillraceError
from spark_jobs.config import job_files as job_config
from spark_jobs.config.keys import FILES, FUNCTIONS, HISTORY, KAFKA, SOURCE_TYPE
from spark_jobs.contract import JobContext
from spark_jobs.flows.edit import Edit, changed_options, flow_effects, table_changes
from spark_jobs.flows.plan import guarantee_reason, list_remarks, source_lines
from spark_jobs.inputs.options import input_lines
from spark_jobs.job import Job
from spark_jobs.steps.options import build_steps
from spark_jobs.steps.planning.lineage import find_origins, find_touched_tables, plan_stages
from spark_jobs.steps.planning.model import OutputTable, StepRefused
from spark_jobs.steps.planning.plans import UNKNOWN, computed_columns, seen_tables
from spark_jobs.steps.planning.unknown_functions import unknown_functions
from spark_jobs.steps.planning.unmatched import unmatched_names
from worker.secrets.masking import SecretMasker, scrub_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.contract import Column, TableSchema
    from spark_jobs.steps.contract import Step
    from spark_jobs.steps.planning.lineage import ColumnId, LineageStage

_HISTORY: Final = "a plan does not read the history, so columns are not known before the flow has run"
#: What the source keeps, by ``source.type``.
_KEPT: Final = {
    KAFKA: "position in the topics and the tables seen so far",
    FILES: "names of the files that were read, and the tables seen so far",
    HISTORY: "the chunks of the history, and which of them were read",
}
_UNSEEN: Final = (
    "no table has been seen yet: columns are known once the flow has run (they are in its checkpoint on this machine); "
    "a preview shows them before"
)


def plan_flow(
    properties: Mapping[str, str], running: Mapping[str, str] | None = None, *, ask: bool = True
) -> dict[str, Any]:
    """The plan of the flow that ``properties`` describe, as ``FlowPlan`` of the REST API. Blocks: asks Kafka and the sinks.

    Args:
        properties: the configuration, references resolved.
        running: the configuration of the running flow of that name; None: no such flow runs.
        ask: whether to ask Kafka and the sinks; else nothing is said of what they have.
    """
    configs, problems = job_config.check_flow(properties)
    if not configs:
        errors = [{"option": problem.name, "message": problem.message} for problem in problems]
        answer: dict[str, Any] = {"name": properties.get("name", ""), "valid": False, "errors": errors}
    else:
        jobs = [_plan_job(Job(config["name"], config, "", member)) for config, member in configs]
        answer = _build_answer(jobs, ask=ask) | {"edit": _plan_edit(properties, jobs, running)}
    scrubbed: dict[str, Any] = scrub_all(answer, _make_masker(properties).scrub)
    return scrubbed


def edit_lines(properties: Mapping[str, str], running: Mapping[str, str]) -> list[str]:
    """The effects of an edit of the flow ``running``, as lines for people; the arguments as for ``plan_flow``."""
    edit = plan_flow(properties, running, ask=False)["edit"]
    lines = ["  an edit of the running job:"]
    for effect in edit["effects"]:
        sink = f" (sink {effect['sink']})" if "sink" in effect else ""
        lines.append(f"    {effect['effect']}: {effect['part']}{sink}: {effect['reason']}")
    return lines


def _make_masker(properties: Mapping[str, str]) -> SecretMasker:
    masker = SecretMasker()
    masker.learn(properties, job_config.find_parts(properties).definition.keys.values())
    return masker


@dataclass(frozen=True, slots=True)
class _PlannedJob:
    """A job with what its steps make of the tables that it has seen. The jobs of a flow differ in their sinks.

    Attributes:
        job: the job.
        steps: of the job.
        tables: before the first step.
        stages: the steps, up to the first one that refuses its tables.
        refusal: why it does; empty: no step does.
    """

    job: Job
    steps: Sequence[Step]
    tables: list[TableSchema]
    stages: list[LineageStage]
    refusal: str

    @property
    def final(self) -> list[TableSchema]:
        """The tables that the sink gets, as far as they are known."""
        return list(self.stages[-1].after) if self.stages else self.tables


def _plan_job(job: Job) -> _PlannedJob:
    steps = build_steps(job.config)
    tables = sorted(seen_tables(job.config), key=lambda table: table.namespace)
    return _PlannedJob(job, steps, tables, *plan_stages(steps, tables))


def _build_answer(jobs: Sequence[_PlannedJob], *, ask: bool) -> dict[str, Any]:
    # The steps are the same for all sinks; one that was added has seen no table yet.
    shown = max(jobs, key=lambda planned: len(planned.tables))
    errors: list[dict[str, str]] = []
    warnings: dict[str, list[str]] = {}
    for planned in jobs:
        sink = planned.job.member_name
        warnings[sink] = [*list_remarks(planned.job), *_plan_warnings(planned)]
        if planned.refusal:
            # The first step without a stage is the one that refuses.
            option = f"transform.step.{planned.steps[len(planned.stages)].name}"
            errors.append({"option": option, "message": planned.refusal})
            continue
        refusals, notes = _sink_refusals(planned.job, planned.final)
        option = f"sink.{sink}.type" if sink else "sink.type"
        errors += [{"option": option, "message": refusal} for refusal in refusals]
        warnings[sink] += notes
    unique = {tuple(error.values()): error for error in errors}
    return {
        "name": shown.job.flow_name,
        "valid": not errors,
        "errors": list(unique.values()),
        "source": merge_lines({planned.job.member_name: _source_lines(planned.job) for planned in jobs}) if ask else [],
        "tables": [_describe_table(table) for table in shown.tables],
        "steps": _plan_steps(shown.steps, shown.stages),
        "sinks": [_plan_sink(planned.job, ask=ask) for planned in jobs],
        "state": [*(state for planned in jobs for state in _job_state(planned.job)), *_step_states(shown.steps)],
        "warnings": merge_lines(warnings),
    }


def merge_lines(by_sink: Mapping[str, Sequence[str]]) -> list[str]:
    """The lines about all sinks of a flow, each once; those that are not about every sink with its name. Pure.

    Args:
        by_sink: lines by the sink's name.
    """
    result: dict[str, None] = {}
    for sink, lines in by_sink.items():
        for line in lines:
            shared = all(line in sink_lines for sink_lines in by_sink.values())
            result[line if shared else f"sink {sink}: {line}"] = None
    return list(result)


def step_warnings(job: Job) -> list[str]:
    """Warnings about the steps of a job but those of ``step_lines``. Reads the tables seen so far from a local checkpoint."""
    return _step_warnings(_plan_job(job))


def _step_warnings(planned: _PlannedJob) -> list[str]:
    stages = planned.stages
    named = [stage for stage in stages if stage.step.unmatched(stage.before)]  # these have a warning of their own
    functions = {name.strip().lower() for name in planned.job.config.raw.get(FUNCTIONS, "").split(",")}
    return [
        *(f"step {step.name}: {remark}" for step in planned.steps for remark in step.remarks()),
        *unknown_functions(stages, functions),
        *find_unmatched(stages, named),
    ]


def _plan_warnings(planned: _PlannedJob) -> list[str]:
    unseen = [] if planned.tables else [_HISTORY if planned.job.config[SOURCE_TYPE] == HISTORY else _UNSEEN]
    names = unmatched_names(planned.steps, planned.tables)
    return [*unseen, *names, *_step_warnings(planned)]


def find_unmatched(stages: Sequence[LineageStage], explained: Sequence[LineageStage] = ()) -> list[str]:
    """Warnings: tables that no step transforms, and steps that transform no table. Pure.

    Args:
        stages: all steps.
        explained: those that get no warning.
    """
    if not stages or not stages[0].before:
        return []
    reached = [find_touched_tables(stage) for stage in stages]
    result = [
        f"table {table.namespace}: no step matches it, so it goes to the sink as it is"
        for table in stages[0].before
        if not any(table.namespace in names for names in reached)
    ]
    for stage, names in zip(stages, reached, strict=True):
        if not names and stage not in explained:
            listed = ", ".join(table.namespace for table in stage.before)
            result.append(f"step {stage.step.name}: matches none of the tables that come to it: {listed}")
    return result


def _sink_refusals(job: Job, tables: Sequence[TableSchema]) -> tuple[list[str], list[str]]:
    """The refusals of the sink for tables that it can't hold (no key, names), and a note if it can't be asked."""
    if job.materializes or not tables:
        return [], []
    log = logging.LoggerAdapter(logging.getLogger("spark_jobs.plan"), {})
    try:
        sink = job.sink_class()(JobContext(job.name, job.config, None, log))  # type: ignore[arg-type]  # it writes nothing
        return [refusal for table in tables if (refusal := sink.refusal(table))], []
    except Exception as error:  # noqa: BLE001 - a sink of the user's may need a session
        return [], [f"the sink can't say before the start whether it can hold the tables: {error}"]


def _source_lines(job: Job) -> list[str]:
    return source_lines(job) if job.config[SOURCE_TYPE] == KAFKA else input_lines(job.config)


def _plan_sink(job: Job, *, ask: bool) -> dict[str, Any]:
    try:
        lines = job.sink_class().plan(job.config) if ask else []
    except MillraceError as error:
        lines = [str(error)]
    return {
        "name": job.member_name or job.sink_name,
        "type": job.sink_name,
        "guarantee": job.guarantee,
        "reason": guarantee_reason(job),
        "plan": lines,
    }


def _job_state(job: Job) -> list[dict[str, str]]:
    of_sink = f" of the sink {job.member_name}" if job.member_name else ""
    result = [{"of": f"source{of_sink}", "keeps": f"{_KEPT[job.config[SOURCE_TYPE]]}, in {job.checkpoint}"}]
    if job.materializes:
        result.append(
            {"of": "materializer", "keeps": "the current rows, in its state topic and a cache on this machine"}
        )
    return result


def _step_states(steps: Sequence[Step]) -> list[dict[str, str]]:
    return [{"of": f"step {step.name}", "keeps": step.state() or "nothing"} for step in steps]


def _plan_steps(steps: Sequence[Step], stages: Sequence[LineageStage]) -> list[dict[str, Any]]:
    result = []
    roots = find_origins(stages)
    for number, step in enumerate(steps):
        entry: dict[str, Any] = {"name": step.name, "type": step.context.raw.get("type", "")}
        if number < len(stages):
            stage = stages[number]
            entry["tables"] = [
                _plan_table(stage, item, table, roots[number])
                for item, table in zip(stage.planned, stage.after, strict=True)
            ]
            entry["matches"] = sorted(find_touched_tables(stage))
        result.append(entry)
    return result


def _plan_table(
    stage: LineageStage,
    item: OutputTable | TableSchema,
    table: TableSchema,
    roots: Mapping[ColumnId, frozenset[ColumnId]],
) -> dict[str, Any]:
    shown = _describe_table(table)
    computed = {} if isinstance(item, OutputTable) else computed_columns(stage.step, item, stage.before)
    for number, column in enumerate(shown["columns"]):
        come_from = sorted(roots.get((table.namespace, column["name"]), ()))
        column["from"] = [{"table": namespace, "column": name} for namespace, name in come_from]
        if isinstance(item, OutputTable):
            parts = [branch.columns[number] for branch in item.branches]
            expressions = [part.text for part in parts if part.text and not part.direct]
            if expressions:
                column["expression"] = "; ".join(dict.fromkeys(expressions))
        elif column["name"] in computed:
            column["expression"] = computed[column["name"]].text
    if isinstance(item, OutputTable):
        shown["conditions"] = [
            {"table": branch.source.namespace, "condition": part.text}
            for branch in item.branches
            for part in branch.conditions
        ]
    return shown


def _describe_table(table: TableSchema) -> dict[str, Any]:
    return {"table": table.namespace, "key": [column.name for column in table.key], "columns": columns_of(table)}


def columns_of(table: TableSchema) -> list[dict[str, Any]]:
    """The columns of a table as the REST API shows them; the type is None where only Spark can tell. Pure."""
    return [
        {"name": column.name, "type": _format_type(column), "nullable": column.nullable, "key": column.key}
        for column in table.columns
    ]


def _format_type(column: Column) -> str | None:
    return None if column.type == UNKNOWN else column.type.simpleString()


def _plan_edit(
    properties: Mapping[str, str], jobs: Sequence[_PlannedJob], running: Mapping[str, str] | None
) -> dict[str, Any] | None:
    if running is None:
        return None
    changed = changed_options(running, properties)
    configs, problems = job_config.check_flow(running)
    if not configs:
        reason = f"the running configuration is not valid any more: {problems[0].message}"
        return {"changed": changed, "effects": [{"part": "flow", "effect": "changed", "reason": reason}], "tables": []}
    old = [Job(config["name"], config, "", member) for config, member in configs]
    steps = build_steps(old[0].config)
    new = [planned.job for planned in jobs]
    shown = max(jobs, key=lambda planned: len(planned.tables))
    stages, refusal = plan_stages(steps, shown.tables)
    before = [] if refusal else list(stages[-1].after) if stages else shown.tables
    return {
        "changed": changed,
        "effects": [
            {"part": effect.part, "effect": effect.effect, "reason": effect.reason}
            | ({"sink": effect.sink} if effect.sink else {})
            for effect in flow_effects(old, new, Edit(steps, build_steps(new[0].config)))
        ],
        "tables": table_changes(before, shown.final),
    }


def main() -> int:
    """Read ``{"configuration", "running"}`` from standard input, write the plan to standard output; returns the exit code."""
    request = json.load(sys.stdin)
    try:
        # A user's module may print when it is loaded.
        with contextlib.redirect_stdout(sys.stderr):
            answer: dict[str, Any] = {"plan": plan_flow(request["configuration"], request.get("running"))}
    except (MillraceError, StepRefused) as error:
        masker = _make_masker(request["configuration"])
        answer = {"error": masker.scrub(str(error)), "invalid": isinstance(error, ConfigInvalid)}
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
