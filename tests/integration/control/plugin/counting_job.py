"""A connector that moves data itself, with nothing in it but its life."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from connectors.errors import ConfigInvalid
from connectors.job_api import JobConnector, JobPartition, JobTask
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Position


class CountingTask(JobTask):
    """Counts."""

    async def run(self) -> None:
        progress = self.context.progress
        progress.phase = "running"
        self.context.running()
        self.context.topic_used(self.context.config["reads"])
        while True:
            progress.read += 1
            progress.partitions = [JobPartition(self.context.config["reads"], 0, progress.read, 3)]
            await asyncio.sleep(0.05)


class CountingJob(JobConnector):
    """Has no other side."""

    version: ClassVar[str] = "2.0"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(name="reads", type=ConfigType.STRING, doc="A topic."),
            ConfigKey(name="servers", type=ConfigType.STRING, doc="Where Kafka is."),
        ]
    )
    task_class: ClassVar[type[JobTask]] = CountingTask

    @classmethod
    def completed(cls, config: Mapping[str, str], kafka: Mapping[str, str]) -> dict[str, str]:
        return {"servers": kafka["bootstrap.servers"], **config}

    @classmethod
    async def offsets(cls, config: Config) -> list[tuple[Position, Position]]:
        return [({"kafka_topic": config["reads"], "kafka_partition": 0}, {"kafka_offset": 7})]

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        del config
        if any(offset is not None for _, offset in offsets):
            raise ConfigInvalid("only a reset is possible")
        return True
