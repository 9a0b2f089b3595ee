"""Makes a savepoint of a job that does nothing meanwhile, lists those in a folder, and removes them."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal
from spark_jobs.checkpoint import LocalFolder, local_path, open_folder
from spark_jobs.savepoints.manifest import MANIFEST_FILE, Manifest, encode_manifest, read_manifest
from spark_jobs.savepoints.position import read_position
from worker import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.checkpoint import Folder
    from spark_jobs.job import Job

#: Folders of state begin with it.
_STATE: Final = "state-"


def make_savepoint(job: Job, spark: SparkSession, checkpoint: Folder, location: str, name: str) -> Manifest:
    """Write the position and the state of a job into ``location``, the manifest last. Blocks.

    The job must not do a batch meanwhile. What an attempt that was killed has left in ``location`` is removed first.

    Raises:
        Fatal: there is a savepoint already, the job has done no batch, or its state can't be read.
        Retriable: Kafka does not answer.
    """
    target = open_folder(location, spark)
    _demand_free(target, location)
    batch, files = read_position(checkpoint)
    if batch is None:
        raise Fatal(
            f"the job {job.name} has done no batch yet, so there is nothing to save: another job with its options begins "
            "where it would"
        )
    state = job.sink_class().save_state(job.config, spark, location)
    manifest = Manifest(
        id=secrets.token_hex(8),
        name=name,
        job=job.name,
        created_ms=int(time.time() * 1000),
        versions={"millrace": __version__, "spark": spark.version},
        sink=job.sink_name,
        source_format=job.config["source.format"],
        topics=topics_of(job),
        batch=batch,
        checkpoint=files,
        state=state,
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


def topics_of(job: Job) -> list[str]:
    """The topics that the job reads, as configured, or their pattern."""
    return list(job.config["source.topics"] or [job.config["source.topics.pattern"]])


def absolute(location: str) -> str:
    """``location`` independent of the working folder."""
    local = local_path(location)
    return location.rstrip("/") if local is None else str(local)


def summary(manifest: Manifest, location: str) -> dict[str, Any]:
    """A savepoint for people and programs."""
    content = (manifest.state or {}).get("content") or {}
    return {
        "name": manifest.name,
        "id": manifest.id,
        "location": location,
        "job": manifest.job,
        "created_ms": manifest.created_ms,
        "batch": manifest.batch,
        "buckets": (manifest.state or {}).get("count"),
        "records": sum(bucket["records"] for bucket in content.values()) if manifest.state else None,
        "versions": manifest.versions,
    }


def list_savepoints(folder: Path) -> list[dict[str, Any]]:
    """The savepoints in the folders of a local ``folder``, the newest first; one that can't be read has ``error``. Blocks."""
    savepoints: list[dict[str, Any]] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (path / MANIFEST_FILE).is_file():
            continue
        try:
            savepoints.append(summary(read_manifest(LocalFolder(path), str(path)), str(path)))
        except Fatal as error:
            savepoints.append({"name": path.name, "location": str(path), "error": str(error)})
    return sorted(savepoints, key=lambda path: -int(path.get("created_ms", 0)))


def delete_savepoint(folder: Folder, location: str) -> None:
    """Remove a savepoint: the manifest first, so that nothing takes the rest for one. Blocks.

    Raises:
        Fatal: there is no savepoint.
    """
    if folder.read(MANIFEST_FILE) is None:
        raise Fatal(f"there is no savepoint in {location}")
    folder.delete(MANIFEST_FILE)
    folder.remove()
