"""Makes a savepoint of a job that does nothing meanwhile, lists those in a folder, and removes them."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal
from spark_jobs import registry
from spark_jobs.config.keys import KAFKA
from spark_jobs.savepoints.manifest import (
    FORMAT,
    FORMAT_WITH_STEPS,
    MANIFEST_FILE,
    SavepointManifest,
    encode_manifest,
    read_manifest,
)
from spark_jobs.savepoints.position import read_position
from spark_jobs.savepoints.steps import save_steps
from spark_jobs.spark.checkpoint import LocalFolder, local_path, open_folder
from spark_jobs.steps.options import build_steps
from worker import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.job import Job
    from spark_jobs.spark.checkpoint import Folder

#: Folders of state begin with it.
_STATE: Final = "state-"


def make_savepoint(job: Job, spark: SparkSession, checkpoint: Folder, location: str, name: str) -> SavepointManifest:
    """Write the position and the state of a job into ``location``, the manifest last. Blocks.

    The job must not do a batch meanwhile. What an attempt that was killed has left in ``location`` is removed first.

    Raises:
        Fatal: there is a savepoint already, the job has done no batch, or its state can't be read.
        Retriable: Kafka does not answer.
    """
    target = open_folder(location, spark)
    _demand_free(target, location)
    batch, files = read_position(checkpoint, registry.input_class(job.config["source.type"]))
    if batch is None:
        raise Fatal(
            f"the job {job.name} has done no batch yet, so there is nothing to save: another job with its options begins "
            "where it would"
        )
    state = job.sink_class().save_state(job.config, spark, location)
    steps = save_steps(build_steps(job.config), spark, job.checkpoint, batch, location)
    manifest = SavepointManifest(
        format=FORMAT_WITH_STEPS if steps else FORMAT,
        id=secrets.token_hex(8),
        name=name,
        job=job.name,
        created_ms=int(time.time() * 1000),
        versions={"millrace": __version__, "spark": spark.version},
        sink=job.sink_name,
        source_type=job.config["source.type"],
        source_format=job.config["source.format"],
        inputs=inputs_of(job),
        batch=batch,
        checkpoint=files,
        state=state,
        steps=steps,
    )
    target.write(MANIFEST_FILE, encode_manifest(manifest))
    return manifest


def _demand_free(target: Folder, location: str) -> None:
    """Whether a savepoint may be written there; removes what an interrupted one has left.

    Raises:
        Fatal: it has one.
    """
    names = target.list("")
    if MANIFEST_FILE in names:
        raise Fatal(f"there is a savepoint in {location} already: name another folder, or remove it")
    for name in names:
        if name.startswith(_STATE):
            target.remove(name)


def inputs_of(job: Job) -> list[str]:
    """The input of the job, as configured: topics or their pattern, or the path of its files or history."""
    config = job.config
    if config["source.type"] == KAFKA:
        return list(config["source.topics"] or [config["source.topics.pattern"]])
    return [make_absolute(config[f"source.{config['source.type']}.path"])]


def make_absolute(location: str) -> str:
    """``location`` independent of the working folder."""
    local = local_path(location)
    return location.rstrip("/") if local is None else str(local)


def summarize_savepoint(manifest: SavepointManifest, location: str) -> dict[str, Any]:
    """A savepoint for people and programs."""
    state = manifest.state or {}
    return {
        "name": manifest.name,
        "id": manifest.id,
        "location": location,
        "job": manifest.job,
        "created_ms": manifest.created_ms,
        "batch": manifest.batch,
        "buckets": state.get("buckets"),
        "records": state.get("records"),
        "steps": {name: sum(table.rows for table in step.tables.values()) for name, step in manifest.steps.items()},
        "versions": manifest.versions,
    }


def list_savepoints(folder: Path, sink: str = "") -> list[dict[str, Any]]:
    """The savepoints in the folders of a local ``folder``; one that can't be read has ``error``. Blocks.

    Args:
        folder: holds a folder for each savepoint.
        sink: of a flow with several sinks: the one whose savepoints are listed.
    """
    savepoints: list[dict[str, Any]] = []
    shown = {"sink": sink} if sink else {}
    for path in sorted(path / sink for path in folder.iterdir()) if folder.is_dir() else ():
        if not (path / MANIFEST_FILE).is_file():
            continue
        try:
            savepoints.append(shown | summarize_savepoint(read_manifest(LocalFolder(path), str(path)), str(path)))
        except Fatal as error:
            name = (path.parent if sink else path).name
            savepoints.append(shown | {"name": name, "location": str(path), "error": str(error)})
    return savepoints


def delete_savepoint(folder: Folder) -> bool:
    """Remove a savepoint; whether there was one. The manifest goes first, so that nothing takes the rest for one. Blocks."""
    if folder.read(MANIFEST_FILE) is None:
        return False
    folder.delete(MANIFEST_FILE)
    folder.remove()
    return True
