"""Savepoints of a connector's job: asked for by REST on the worker that runs it, found in ``savepoint.location``."""

from __future__ import annotations

import re
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Retriable
from spark_jobs.checkpoint import LocalFolder, local_path
from spark_jobs.control import Control
from spark_jobs.job import control_folder
from spark_jobs.savepoints.make import delete_savepoint, list_savepoints
from spark_jobs.savepoints.manifest import MANIFEST_FILE
from spark_jobs.savepoints.requests import Request, post_request, read_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
#: How long a request waits for the end of the batch, seconds.
_PATIENCE_S: Final = 3600.0


def named_location(config: Config, name: str = "") -> str:
    """Where a job's savepoint of this name is; without a name, the folder of all.

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
    return f"{base}/{name}"


def create(config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the running job for a savepoint, and don't wait for it.

    Raises:
        ConfigInvalid: the name is not possible.
        Retriable: the job does not run here, there is one of this name, or another request waits.
    """
    name = str(request["name"])
    location = named_location(config, name)
    control = Control(control_folder(config["name"]))
    if not control.running():
        raise Retriable("the job does not run, so it can't be asked for a savepoint: resume the connector first")
    local = local_path(location)
    if local is not None and (local / MANIFEST_FILE).exists():
        raise Retriable(f"there is a savepoint {name} already ({location}): delete it, or choose another name")
    if read_state(control.folder)[0] is not None:
        raise Retriable("a savepoint is being made already: GET lists it once it is complete")
    post_request(
        control.folder,
        Request(secrets.token_hex(8), location, name, time.time() + _PATIENCE_S, bool(request.get("stop"))),
    )
    return {"name": name, "location": location, "stop": bool(request.get("stop"))}


def list_all(config: Config) -> list[dict[str, Any]]:
    """The job's savepoints, the newest first, and the last request if it failed.

    Raises:
        ConfigInvalid: they are not on this machine.
    """
    savepoints = list_savepoints(_local(config))
    waiting, answer = read_state(control_folder(config["name"]))
    if waiting is not None:
        savepoints.insert(0, {"name": waiting.name, "location": waiting.location, "state": "requested"})
    elif answer is not None and answer.error:
        savepoints.insert(0, {"name": answer.name, "error": answer.error})
    return savepoints


def delete(config: Config, request: Mapping[str, Any]) -> bool:
    """Remove a savepoint; whether there was one.

    Raises:
        ConfigInvalid: it is not on this machine, or the name is not possible.
    """
    _local(config)
    location = named_location(config, str(request["name"]))
    folder = Path(local_path(location) or location)
    if not (folder / MANIFEST_FILE).exists():
        return False
    delete_savepoint(LocalFolder(folder), location)
    return True


def _local(config: Config) -> Path:
    base = named_location(config)
    folder = local_path(base)
    if folder is None:
        raise ConfigInvalid(
            f"savepoint.location {base} is not on this machine, so a worker, which runs no Spark itself, can't look there: "
            "list and delete savepoints with the tools of that file system (a savepoint is a folder with a "
            f"{MANIFEST_FILE})"
        )
    return folder
