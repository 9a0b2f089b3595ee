"""The plan of a job as ``millrace job plan`` prints it. Reads, never writes; starts no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.errors import MillraceError
from spark_jobs.config.keys import KAFKA, SOURCE_TYPE, TABLES
from spark_jobs.control import Control, FileLock
from spark_jobs.flows.plan import guarantee_reason, list_remarks, list_step_lines, source_lines
from spark_jobs.inputs.options import input_lines, most_per_batch
from spark_jobs.spark.checkpoint import local_path
from spark_jobs.steps.options import step_names

if TYPE_CHECKING:
    from spark_jobs.job import Job


def plan_lines(job: Job) -> list[str]:
    """The lines of ``millrace job plan``. Blocks while it asks Kafka and the sink."""
    config = job.config
    lines = [f"job {job.name}" + (f" ({job.origin})" if job.origin else "")]
    if job.membership is not None:
        lines.append(f"  writes the sink {job.membership.sink} of the flow {job.membership.flow}")
    running = Control(job.folder)
    if running.running():
        lines.append(f"  running now: process {running.status().get('pid', '?')}; a second run would be refused")
    else:
        lock = local_path(job.checkpoint)
        if lock is not None and FileLock.is_locked(lock / "_millrace_lock"):
            lines.append("  its checkpoint is in use by a run of another job: this one would be refused")
    if config[SOURCE_TYPE] == KAFKA:
        forms = f"{config['source.value.encoding']} values, {config['source.key.encoding']} keys"
        lines.append(f"  reads {config['source.format']} ({forms}) from {config['kafka.bootstrap.servers']}:")
        lines += [f"    {line}" for line in source_lines(job)]
    else:
        lines += [f"  {line}" for line in input_lines(config)]
    if config[TABLES]:
        lines.append(f"  tables: {', '.join(config[TABLES])}")
    every = (
        "what is there now, then ends"
        if job.available_now
        else f"a batch every {config['trigger.interval.ms']} ms"
        if config["trigger.interval.ms"]
        else "batch after batch"
    )
    lines += [
        f"  trigger: {every}, {most_per_batch(config)} a batch",
        f"  transformation: {config['transform.type']}",
    ]
    steps = list_step_lines(job)
    lines += ["  steps:", *(f"    {line}" for line in steps)] if steps else []
    lines.append(f"  sink: {config['sink.type']}")
    try:
        lines += [f"    {line}" for line in job.sink_class().plan(config)]
    except MillraceError as error:
        lines.append(f"    {error}")
    letters = config["errors.deadletterqueue.topic.name"]
    bad = "stop the job" if config["errors.tolerance"] == "none" else f"to {letters or 'the log'}"
    lines += [
        f"  guarantee: {job.guarantee}: {guarantee_reason(job)}",
        f"  bad records: {bad}",
        f"  checkpoint: {job.checkpoint}",
        f"  local caches: {config['state.dir']}",
        *([f"  consumer group (shows the lag): {config['kafka.group.id']}"] if config[SOURCE_TYPE] == KAFKA else []),
        f"  Spark master: {job.master}",
    ]
    return lines + [f"  note: {note}" for note in (*list_remarks(job), *_step_warnings(job))]


def _step_warnings(job: Job) -> list[str]:
    if not step_names(job.config.raw):
        return []
    from spark_jobs.flows.planning import step_warnings  # imports types of Spark

    return step_warnings(job)
