"""Starts a job with an empty checkpoint from a savepoint (``source.savepoint``)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal
from spark_jobs import registry
from spark_jobs.kafka.ranges import last_batch
from spark_jobs.savepoints.make import inputs_of
from spark_jobs.savepoints.manifest import SavepointManifest, find_refusals, read_manifest
from spark_jobs.savepoints.position import write_position
from spark_jobs.savepoints.steps import restore_steps, step_refusals
from spark_jobs.spark.checkpoint import open_folder
from spark_jobs.steps.options import build_steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.job import Job
    from spark_jobs.spark.checkpoint import Folder

#: In a checkpoint that is being filled from a savepoint, or was: the savepoint's id, and whether that is done.
STARTED_FILE: Final = "_millrace_savepoint"
_DONE: Final = "done"


def start_from_savepoint(job: Job, spark: SparkSession, checkpoint: Folder) -> None:
    """Bring position and state of ``source.savepoint`` to the job, unless its checkpoint has batches of its own. Blocks.

    An interrupted attempt is repeated: until the last file is written, the job has no position.

    Raises:
        Fatal: there is no such savepoint, or it does not fit the job.
        Retriable: call again.
    """
    location = job.config["source.savepoint"]
    if not location:
        return
    log = logging.getLogger(f"spark_jobs.{job.name}")
    marked, _, step = (checkpoint.read(STARTED_FILE) or "").strip().partition(" ")
    if step == _DONE or (not marked and last_batch(checkpoint) is not None):
        log.info(
            "source.savepoint=%s is ignored: the checkpoint %s has batches, and the job continues from there",
            location,
            job.checkpoint,
        )
        return
    manifest = read_manifest(open_folder(location, spark), location)
    demand_fit(manifest, job, spark.version, location)
    checkpoint.write(STARTED_FILE, manifest.id)
    if manifest.state is not None:
        job.sink_class().restore_state(job.config, spark, location, manifest.id, manifest.state)
    restore_steps(manifest, spark, location, job.checkpoint)
    input_class = registry.input_class(job.config["source.type"])
    write_position(checkpoint, input_class.moved(manifest.checkpoint, job.checkpoint))
    checkpoint.write(STARTED_FILE, f"{manifest.id} {_DONE}")
    log.info("the job starts from the savepoint %s (job %s, batch %s)", location, manifest.job, manifest.batch)


def demand_fit(manifest: SavepointManifest, job: Job, spark_version: str, location: str) -> None:
    """Whether the job may start from the savepoint.

    Raises:
        Fatal: it may not; with every reason.
    """
    reasons = find_refusals(
        manifest,
        sink=job.sink_name,
        source_type=job.config["source.type"],
        source_format=job.config["source.format"],
        inputs=inputs_of(job),
        spark_version=spark_version,
    )
    reasons += step_refusals(manifest.steps, build_steps(job.config))
    if reasons:
        raise Fatal(f"the job {job.name} can't start from the savepoint {location}: {'; '.join(reasons)}")
