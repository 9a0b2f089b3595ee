"""Savepoints of a connector's job: asked for by REST on the worker that runs it, found in ``savepoint.location``."""

from __future__ import annotations

import re
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Retriable
from spark_jobs.control import Control
from spark_jobs.flows.sinks import divide_sinks, selected_names
from spark_jobs.job import control_folder
from spark_jobs.savepoints.make import delete_savepoint, list_savepoints
from spark_jobs.savepoints.manifest import MANIFEST_FILE
from spark_jobs.savepoints.requests import JobSavepointRequest, post_request, read_state
from spark_jobs.spark.checkpoint import LocalFolder, local_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
#: How long a request waits for the end of the batch, seconds.
_PATIENCE_S: Final = 3600.0


def named_location(config: Config, name: str = "", sink: str = "") -> str:
    """Where a flow's savepoint of this name is, or the part of a sink in it; without a name, the folder of all.

    Raises:
        ConfigInvalid: the name can't be one of a folder.
    """
    base = str(config["savepoint.location"] or control_folder(config["name"]) / "savepoints").rstrip("/")
    if not name:
        return base
    if _NAME.match(name) is None:
        raise ConfigInvalid(
            f"the name {name!r} of a savepoint is not possible: it needs 1 to 200 letters, digits, '.', '_' and '-', "
            "beginning with a letter or a digit"
        )
    return f"{base}/{name}/{sink}" if sink else f"{base}/{name}"


def jobs_of(config: Config) -> dict[str, str]:
    """The names of a flow's jobs by sink; a flow with one sink has one, by an empty name."""
    selected = selected_names(config.raw)
    sinks = {sink.name: sink.properties["name"] for sink in divide_sinks(config.raw) if sink.name in selected}
    return sinks or {"": str(config["name"])}


def create_savepoint(config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask every running job of the flow for a savepoint, and don't wait for it.

    Raises:
        ConfigInvalid: the name is not possible.
        Retriable: a job does not run here, there is one of this name, or another request waits; no job was asked.
    """
    name, stop = str(request["name"]), bool(request.get("stop"))
    requests = {}
    for sink, job in jobs_of(config).items():
        location = named_location(config, name, sink)
        control = Control(control_folder(job))
        if not control.running():
            raise Retriable(
                f"the job {job} does not run, so it can't be asked for a savepoint: resume or restart it first"
            )
        local = local_path(location)
        if local is not None and (local / MANIFEST_FILE).exists():
            raise Retriable(f"there is a savepoint {name} already ({location}): delete it, or choose another name")
        if read_state(control.folder)[0] is not None:
            raise Retriable("a savepoint is being made already: GET lists it once it is complete")
        requests[control.folder] = JobSavepointRequest(
            secrets.token_hex(8), location, name, time.time() + _PATIENCE_S, stop
        )
    for folder, posted in requests.items():
        post_request(folder, posted)
    return {"name": name, "location": named_location(config, name), "stop": stop}


def list_all(config: Config) -> list[dict[str, Any]]:
    """The flow's savepoints, the newest first, and before them the last request of each job if it waits or failed.

    Raises:
        ConfigInvalid: they are not on this machine.
    """
    folder = _find_local_folder(config)
    savepoints: list[dict[str, Any]] = []
    requests: list[dict[str, Any]] = []
    for sink, job in jobs_of(config).items():
        shown = {"sink": sink} if sink else {}
        savepoints += list_savepoints(folder, sink)
        waiting, answer = read_state(control_folder(job))
        if waiting is not None:
            requests.append(shown | {"name": waiting.name, "location": waiting.location, "state": "requested"})
        elif answer is not None and answer.error:
            requests.append(shown | {"name": answer.name, "error": answer.error})
    return requests + sorted(savepoints, key=lambda savepoint: -int(savepoint.get("created_ms", 0)))


def remove_savepoint(config: Config, request: Mapping[str, Any]) -> bool:
    """Remove a savepoint with the parts of all sinks; whether there was one.

    Raises:
        ConfigInvalid: it is not on this machine, or the name is not possible.
    """
    _find_local_folder(config)
    location = named_location(config, str(request["name"]))
    whole = Path(local_path(location) or location)
    deleted = [delete_savepoint(LocalFolder(whole / sink)) for sink in jobs_of(config)]
    with suppress(OSError):  # it is gone, or holds parts of other sinks
        whole.rmdir()
    return any(deleted)


def _find_local_folder(config: Config) -> Path:
    base = named_location(config)
    folder = local_path(base)
    if folder is None:
        raise ConfigInvalid(
            f"savepoint.location {base} is not on this machine, so a worker, which runs no Spark itself, can't look there: "
            "list and delete savepoints with the tools of that file system (a savepoint is a folder with a "
            f"{MANIFEST_FILE})"
        )
    return folder
