"""Parts for dashboards: a job that moves nothing, at an even pace, and a connector that fails itself."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar

from connectors.api import Batch, SourceConnector, SourceTask
from connectors.errors import Fatal
from connectors.job_api import JobConnector, JobPartition, JobTask
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from connectors.api import Position


class PacedTask(JobTask):
    """A batch of ten rows every 50 ms."""

    async def run(self) -> None:
        progress = self.context.progress
        progress.phase, progress.starts = "running", 1
        self.context.running()
        while True:
            await asyncio.sleep(0.05)
            progress.read += 10
            progress.written += 10
            progress.batches += 1
            progress.batch, progress.batch_rows, progress.batch_rows_max = progress.batches, 10, 10
            progress.batch_s = progress.batch_s_max = 0.05
            progress.busy_s += 0.05
            progress.progress_at = time.time()
            stages = dict.fromkeys(("delay", "topic_delay", "read_delay", "write_delay"), 0.5)
            numbers = {f"{name}_seconds": value for name, value in stages.items()}
            progress.tables = {"orders": {**numbers, "complete_timestamp_seconds": time.time()}}
            progress.partitions = [JobPartition(self.context.config["reads"], 0, progress.read, 3)]


class PacedJob(JobConnector):
    """Has no other side."""

    version: ClassVar[str] = "1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef([ConfigKey(name="reads", type=ConfigType.STRING, doc="A topic.")])
    task_class: ClassVar[type[JobTask]] = PacedTask

    @classmethod
    async def offsets(cls, config: Config) -> list[tuple[Position, Position]]:
        return [({"kafka_topic": config["reads"], "kafka_partition": 0}, {"kafka_offset": 7})]

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        del config, offsets
        return True


class NoTask(SourceTask):
    """Never runs."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        yield Batch([])


class BrokenConnector(SourceConnector):
    """Can't say what its tasks are."""

    version: ClassVar[str] = "1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef([])
    task_class: ClassVar[type[SourceTask]] = NoTask

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        del max_tasks
        raise Fatal("this connector always fails")
