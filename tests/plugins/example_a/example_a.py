"""A connector that needs clash 1: it writes what the library says, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clash

from connectors.api import Batch, Position, SourceConnector, SourceRecord, SourceTask
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance
from connectors.schema import STRING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PARTITION: Position = {"clash": "a"}


class ClashTask(SourceTask):
    """Writes one record."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """One batch, if it was not written before."""
        if self.context.offsets.get(PARTITION) is None:
            yield Batch([SourceRecord(PARTITION, {"done": True}, self.context.config["topic"], clash.old(), STRING)])


class ClashConnector(SourceConnector):
    """Says which library it has."""

    version = "1.0"
    task_class = ClashTask
    config_def = ConfigDef(
        [
            ConfigKey(
                name="topic",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                doc="The topic to write to.",
                example="said",
            )
        ]
    )

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task."""
        del max_tasks
        return [{}]
