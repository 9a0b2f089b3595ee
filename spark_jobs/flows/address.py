"""The Spark application of a flow: its name, its address, and whether a flow fits into it.

A flow is one job (source, query, sink). An application is one process with one Spark driver that hosts flows. Nothing here
imports Spark: a worker's task decides with it, and so does the application itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal
from worker.fetch.paths import home_dir

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The option that chooses the application.
APPLICATION: Final = "spark.application"
#: Its value for a driver process that hosts one flow only.
DEDICATED: Final = "own"
#: How the application of flows that name none is shown.
SHARED: Final = "shared"


@dataclass(frozen=True, slots=True)
class ApplicationAddress:
    """Where an application is reached on this machine.

    Attributes:
        name: as shown to people.
        folder: private to this user.
        key: tells applications apart; short, because addresses of sockets are.
    """

    name: str
    folder: Path
    key: str

    @property
    def socket(self) -> Path:
        """The address it listens on."""
        return self.folder / f"{self.key}.sock"

    @property
    def lock(self) -> Path:
        """Held by the running application."""
        return self.folder / f"{self.key}.lock"

    @property
    def start_lock(self) -> Path:
        """Held by the client that starts the application."""
        return self.folder / f"{self.key}.start"

    @property
    def output(self) -> Path:
        """The file for what the process writes before it can send it to a flow; overwritten by each start."""
        return self.folder / f"{self.key}.log"


def spark_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of ``properties`` that belong to the driver, and so to all flows of an application. Pure."""
    settings = {
        name: value.strip()
        for name, value in properties.items()
        if name.startswith("spark.") and name != APPLICATION and value.strip()
    }
    return {"spark.master": "local[*]", **settings}


def address_of(properties: Mapping[str, str]) -> ApplicationAddress | None:
    """The application of a flow; None: the flow has a process of its own.

    Flows that name no application share one if their Spark settings are equal. A name means one application, whatever the
    settings: the application refuses a flow that does not fit. The sinks of a flow share the process that it has of its own.
    """
    name = properties.get(APPLICATION, "").strip()
    sinks, flow = properties.get("sinks", "").strip(), properties.get("name", "")
    if name == DEDICATED and not sinks:
        return None
    if name == DEDICATED:
        return ApplicationAddress(flow or SHARED, runtime_path(), make_key(name, flow))
    settings = () if name else (json.dumps(spark_settings(properties), sort_keys=True),)
    return ApplicationAddress(name or SHARED, runtime_path(), make_key(name, *settings))


def make_key(*identity: str) -> str:
    """The key of an application of this installation's that has this identity."""
    parts = [str(home_dir().absolute()), sys.executable, *sys.path, *identity]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def runtime_path() -> Path:
    """The folder of sockets of this user; may not exist yet."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"millrace-{os.getuid()}"


def make_private(folder: Path) -> None:
    """Make ``folder`` for this user alone.

    Raises:
        Fatal: it exists and is somebody else's, a link, or open to others.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or stat.S_IMODE(state.st_mode) & 0o077:
        raise Fatal(
            f"{folder} must be a folder that only this user can enter (mode 0700), because configurations pass through "
            "sockets in it: remove it, or set XDG_RUNTIME_DIR to a private folder"
        )


def describe_differences(running: Mapping[str, str], required: Mapping[str, str]) -> list[str]:
    """The settings in which a flow differs from the running application, one phrase each, in order of names. Pure."""

    def shown(values: Mapping[str, str], name: str) -> str:
        return values.get(name, "(not set)")

    return [
        f"{name} is {shown(running, name)} there and {shown(required, name)} here"
        for name in sorted(running.keys() | required.keys())
        if running.get(name) != required.get(name)
    ]


def describe_refusal(application: str, flow: str, running: Mapping[str, str], required: Mapping[str, str]) -> str:
    """Why a flow does not fit into a running application and what to do; empty if it fits. Pure."""
    changes = describe_differences(running, required)
    if not changes:
        return ""
    return (
        f"the flow {flow} does not fit into the running Spark application {application}, whose settings are those of the "
        f"flow that started it: {'; '.join(changes)}. Give the flow the same settings, or a driver of its own "
        f"({APPLICATION}={DEDICATED}, or another name)"
    )


def why_end(*, flows: int, idle_s: float, longest_idle_s: float, starter_gone: bool, asked: str, broken: str) -> str:
    """Why an application ends now; empty if it continues. Pure.

    Args:
        flows: how many it hosts.
        idle_s: since when it hosts none, seconds.
        longest_idle_s: how long it waits for the next flow.
        starter_gone: whether the process that started it has ended.
        asked: the signal it got, if any.
        broken: why its driver is of no use any more.
    """
    if broken or asked:
        return broken or asked
    if flows:
        return ""
    if starter_gone:
        return "the worker that started it is gone, and it has no flow"
    return f"it has had no flow for {longest_idle_s:g} s" if idle_s >= longest_idle_s else ""
