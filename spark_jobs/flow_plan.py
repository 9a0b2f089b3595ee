"""The plan of a flow as data: ``POST /flows/plan``. ``python -m spark_jobs.flow_plan`` is the process that a worker asks.

Reads, never writes, and starts no Spark. The process imports Spark's types, which a worker must not.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, MillraceError
from spark_jobs import config as job_config
from spark_jobs.contract import JobContext
from spark_jobs.flow_edit import changed_options, effects, table_changes
from spark_jobs.job import Job
from spark_jobs.plan import guarantee_reason, remarks, source_lines
from spark_jobs.steps.lineage import origins, plan_stages, touched
from spark_jobs.steps.model import Output, StepRefused
from spark_jobs.steps.options import build_steps
from spark_jobs.steps.planning import UNKNOWN, seen_tables
from worker.secrets.masking import SecretMasker, scrub_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.options import Config
    from spark_jobs.contract import Column, TableSchema
    from spark_jobs.steps.contract import Step
    from spark_jobs.steps.lineage import ColumnId, Stage

_UNSEEN: Final = (
    "no table has been seen yet: columns are known once the flow has run (they are in its checkpoint on this machine); "
    "a preview shows them before"
)


def plan_flow(
    properties: Mapping[str, str], running: Mapping[str, str] | None = None, *, ask: bool = True
) -> dict[str, Any]:
    """The plan of the flow that ``properties`` describe, as ``FlowPlan`` of the REST API. Blocks: asks Kafka and the sink.

    Args:
        properties: the configuration, references resolved.
        running: the configuration of the running flow of that name; None: no such flow runs.
        ask: whether to ask Kafka and the sink; else nothing is said of what they have.
    """
    config, problems = job_config.check(properties)
    if config is None:
        errors = [{"option": problem.name, "message": problem.message} for problem in problems]
        answer: dict[str, Any] = {"name": properties.get("name", ""), "valid": False, "errors": errors}
    else:
        answer = _plan(Job(config["name"], config), running, ask=ask)
    scrubbed: dict[str, Any] = scrub_all(answer, _masker(properties).scrub)
    return scrubbed


def _masker(properties: Mapping[str, str]) -> SecretMasker:
    masker = SecretMasker()
    masker.learn(properties, job_config.parts(properties).definition.keys.values())
    return masker


def _plan(job: Job, running: Mapping[str, str] | None, *, ask: bool) -> dict[str, Any]:
    steps = build_steps(job.config)
    tables = sorted(seen_tables(job.config), key=lambda table: table.namespace)
    stages, refusal = plan_stages(steps, tables)
    final = list(stages[-1].after) if stages else tables
    # The first step without a stage is the one that refuses.
    errors = [{"option": f"transform.step.{steps[len(stages)].name}", "message": refusal}] if refusal else []
    warnings = [*remarks(job), *([] if tables else [_UNSEEN]), *_warnings(steps, stages)]
    if not refusal:
        refusals, notes = _sink_refusals(job, final)
        errors += [{"option": "sink.type", "message": text} for text in refusals]
        warnings += notes
    return {
        "name": job.name,
        "valid": not errors,
        "errors": errors,
        "source": source_lines(job) if ask else [],
        "tables": [_table(table) for table in tables],
        "steps": _steps(steps, stages),
        "sinks": [_sink(job, ask=ask)],
        "state": _state(job, steps),
        "edit": _edit(job, running, tables, final),
        "warnings": warnings,
    }


def step_warnings(config: Config) -> list[str]:
    """Warnings about the steps of a job. Reads the tables seen so far from a checkpoint on this machine."""
    steps = build_steps(config)
    return _warnings(steps, plan_stages(steps, seen_tables(config))[0])


def _warnings(steps: Sequence[Step], stages: Sequence[Stage]) -> list[str]:
    return [f"step {step.name}: {text}" for step in steps for text in step.remarks()] + unmatched(stages)


def unmatched(stages: Sequence[Stage]) -> list[str]:
    """Warnings: tables that no step transforms, and steps that transform no table. Pure."""
    if not stages or not stages[0].before:
        return []
    reached = [touched(stage) for stage in stages]
    result = [
        f"table {table.namespace}: no step matches it, so it goes to the sink as it is"
        for table in stages[0].before
        if not any(table.namespace in names for names in reached)
    ]
    for stage, names in zip(stages, reached, strict=True):
        if not names:
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
        return [text for table in tables if (text := sink.refusal(table))], []
    except Exception as error:  # noqa: BLE001 - a sink of the user's may need a session
        return [], [f"the sink can't say before the start whether it can hold the tables: {error}"]


def _sink(job: Job, *, ask: bool) -> dict[str, Any]:
    try:
        lines = job.sink_class().plan(job.config) if ask else []
    except MillraceError as error:
        lines = [str(error)]
    return {
        "name": job.sink_name,
        "type": job.sink_name,
        "guarantee": job.guarantee,
        "reason": guarantee_reason(job),
        "plan": lines,
    }


def _state(job: Job, steps: Sequence[Step]) -> list[dict[str, str]]:
    checkpoint = f"position in the topics and the tables seen so far, in {job.checkpoint}"
    result = [{"of": "source", "keeps": checkpoint}]
    if job.materializes:
        result.append(
            {"of": "materializer", "keeps": "the current rows, in its state topic and a cache on this machine"}
        )
    return result + [{"of": f"step {step.name}", "keeps": step.state() or "nothing"} for step in steps]


def _steps(steps: Sequence[Step], stages: Sequence[Stage]) -> list[dict[str, Any]]:
    result = []
    roots = origins(stages)
    for number, step in enumerate(steps):
        entry: dict[str, Any] = {"name": step.name, "type": step.context.raw.get("type", "")}
        if number < len(stages):
            stage = stages[number]
            entry["tables"] = [
                _planned(item, table, roots[number]) for item, table in zip(stage.planned, stage.after, strict=True)
            ]
            entry["matches"] = sorted(touched(stage))
        result.append(entry)
    return result


def _planned(
    item: Output | TableSchema, table: TableSchema, roots: Mapping[ColumnId, frozenset[ColumnId]]
) -> dict[str, Any]:
    shown = _table(table)
    for number, column in enumerate(shown["columns"]):
        come_from = sorted(roots.get((table.namespace, column["name"]), ()))
        column["from"] = [{"table": namespace, "column": name} for namespace, name in come_from]
        if isinstance(item, Output):
            expressions = [branch.columns[number].text for branch in item.branches if not branch.columns[number].direct]
            if expressions:
                column["expression"] = "; ".join(dict.fromkeys(expressions))
    if isinstance(item, Output):
        shown["conditions"] = [
            {"table": branch.source.namespace, "condition": part.text}
            for branch in item.branches
            for part in branch.conditions
        ]
    return shown


def _table(table: TableSchema) -> dict[str, Any]:
    return {"table": table.namespace, "key": [column.name for column in table.key], "columns": columns_of(table)}


def columns_of(table: TableSchema) -> list[dict[str, Any]]:
    """The columns of a table as the REST API shows them; the type is None where only Spark can tell. Pure."""
    return [
        {"name": column.name, "type": _type(column), "nullable": column.nullable, "key": column.key}
        for column in table.columns
    ]


def _type(column: Column) -> str | None:
    return None if column.type == UNKNOWN else column.type.simpleString()


def _edit(
    job: Job, running: Mapping[str, str] | None, tables: Sequence[TableSchema], final: Sequence[TableSchema]
) -> dict[str, Any] | None:
    if running is None:
        return None
    changed = changed_options(running, job.config.raw)
    old, problems = job_config.check(running)
    if old is None:
        reason = f"the running configuration is not valid any more: {problems[0].message}"
        return {"changed": changed, "effects": [{"part": "flow", "effect": "changed", "reason": reason}], "tables": []}
    steps = build_steps(old)
    stages, refusal = plan_stages(steps, tables)
    before = [] if refusal else list(stages[-1].after) if stages else list(tables)
    listed = effects(old, job.config, [f"step {step.name}: {text}" for step in steps if (text := step.state())])
    return {
        "changed": changed,
        "effects": [{"part": effect.part, "effect": effect.effect, "reason": effect.reason} for effect in listed],
        "tables": table_changes(before, final),
    }


def main() -> int:
    """Read ``{"configuration", "running"}`` from standard input, write the plan to standard output; returns the exit code."""
    request = json.load(sys.stdin)
    try:
        answer: dict[str, Any] = {"plan": plan_flow(request["configuration"], request.get("running"))}
    except (MillraceError, StepRefused) as error:
        masker = _masker(request["configuration"])
        answer = {"error": masker.scrub(str(error)), "invalid": isinstance(error, ConfigInvalid)}
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
