"""A source and a job whose answers to questions of REST fail as a file says.

``ends`` ends the process once, ``always ends`` each time.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from connectors.api import SourceConnector, SourceTask
from connectors.errors import ConfigInvalid, Retriable
from connectors.job_api import JobConnector, JobTask
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from connectors.api import Batch, Position

_FAILURE = ConfigDef([ConfigKey(name="failure", type=ConfigType.STRING, doc="A file with the way to fail.")])


class SourceAway(Retriable):
    """An error of the connector's own, as libraries of connectors have them."""


class AnswerRefused(ConfigInvalid):
    """The same for a refusal."""


def fail_as_asked(path: str) -> None:
    file = Path(path)
    failure = file.read_text() if file.exists() else ""
    if failure == "always ends":
        os._exit(3)
    if failure == "ends":
        file.unlink()
        os._exit(3)
    if failure == "away":
        raise SourceAway("the source is away")
    if failure == "refuses":
        raise AnswerRefused("it is refused")


class FailingTask(SourceTask):
    """Waits."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        await asyncio.Event().wait()
        yield  # type: ignore[misc]


class FailingSource(SourceConnector):
    """Has no records."""

    version: ClassVar[str] = "1.0"
    config_def: ClassVar[ConfigDef] = _FAILURE
    task_class: ClassVar[type[SourceTask]] = FailingTask

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        del max_tasks
        return []

    @classmethod
    async def validate(cls, config: Config) -> list[Any]:
        fail_as_asked(config["failure"])
        return []

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        del offsets
        fail_as_asked(config["failure"])
        return True

    @classmethod
    def check_snapshot(cls, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
        fail_as_asked(config["failure"])
        return dict(request)

    @classmethod
    async def lag(cls, config: Config, offsets: Sequence[tuple[Position, Position]]) -> dict[str, Any]:
        del offsets
        fail_as_asked(config["failure"])
        return {"time_behind_s": None, "bytes_behind": None, "tables": []}


class IdleTask(JobTask):
    """Does nothing."""

    async def run(self) -> None:
        self.context.running()
        await asyncio.Event().wait()


class FailingJob(JobConnector):
    """Has no other side."""

    version: ClassVar[str] = "1.0"
    config_def: ClassVar[ConfigDef] = _FAILURE
    task_class: ClassVar[type[JobTask]] = IdleTask

    @classmethod
    async def offsets(cls, config: Config) -> list[tuple[Position, Position]]:
        fail_as_asked(config["failure"])
        return []

    @classmethod
    async def savepoints(cls, config: Config, action: str, request: Mapping[str, Any]) -> Any:
        del action, request
        fail_as_asked(config["failure"])
        return []

    @classmethod
    async def plan(
        cls, properties: Mapping[str, str], running: Mapping[str, str] | None, deadline_s: float
    ) -> dict[str, Any]:
        del running, deadline_s
        fail_as_asked(properties["failure"])
        return {}
