"""A source in memory that counts: its position is the number of records that it has given."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from connectors.api import Batch, SourceConnector, SourceRecord, SourceTask
from connectors.options import ConfigDef, ConfigKey, ConfigType

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

TOPIC = "numbers"
_PARTITION = {"source": "memory"}
_MOST_ROWS = 20


class CountingTask(SourceTask):
    """Counts from its saved position on."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Give some numbers at a time."""
        position = (self.context.offsets.get(_PARTITION) or {"n": 0})["n"]
        while True:
            count = random.randint(1, _MOST_ROWS)
            records = [
                SourceRecord(_PARTITION, {"n": number + 1}, TOPIC, str(number))
                for number in range(position, position + count)
            ]
            position += count
            yield Batch(records)
            await asyncio.sleep(random.random() * 0.5)


class CountingConnector(SourceConnector):
    """The connector of ``CountingTask``."""

    version = "1"
    task_class = CountingTask
    config_def = ConfigDef([ConfigKey(name="unused", type=ConfigType.INT, default=0, doc="Nothing.")])

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task."""
        del max_tasks
        return [{}]
