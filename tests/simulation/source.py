"""A source in memory that counts: its position is the number of records that it has given.

Some numbers come in records that Kafka refuses: they are too large, or their timestamps are in the future.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Final

from connectors.api import Batch, SourceConnector, SourceRecord, SourceTask
from connectors.options import ConfigDef, ConfigKey, ConfigType

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

TOPIC: Final = "numbers"
#: The most bytes of a batch that the topic is to take: some records, so that batches are refused whose records are good.
LARGEST_BATCH: Final = 1000
#: A producer that takes no more bytes than this in a record refuses the large ones itself.
LARGEST_REQUEST: Final = 9000
_PARTITION: Final = {"source": "memory"}
_MOST_ROWS: Final = 20
_LARGE_EACH: Final = 53
_EARLY_EACH: Final = 71
_EARLY_MS: Final = 7_200_000
_ROW: Final = " " * 60
_LARGE_ROW: Final = " " * LARGEST_REQUEST


def is_refused(number: int, *, early: bool) -> bool:
    """Whether Kafka refuses the record of a number; ``early`` as in the connector's config."""
    return number % _LARGE_EACH == 1 or (early and number % _EARLY_EACH == 2)


def _record(number: int, run: str, *, early: bool) -> SourceRecord:
    value = f"{number}{_LARGE_ROW if number % _LARGE_EACH == 1 else _ROW}"
    late_ms = int(time.time() * 1000) + _EARLY_MS
    timestamp = late_ms if early and number % _EARLY_EACH == 2 else None
    return SourceRecord(_PARTITION, {"n": number + 1}, TOPIC, value, key=run, timestamp=timestamp)


class CountingTask(SourceTask):
    """Counts from its saved position on; the key of its records names this run of it."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Give some numbers at a time."""
        position = (self.context.offsets.get(_PARTITION) or {"n": 0})["n"]
        run, early = f"{random.getrandbits(32):x}", self.context.config["early"]
        while True:
            count = random.randint(1, _MOST_ROWS)
            records = [_record(number, run, early=early) for number in range(position, position + count)]
            position += count
            yield Batch(records)
            await asyncio.sleep(random.random() * 0.5)


class CountingConnector(SourceConnector):
    """The connector of ``CountingTask``."""

    version = "1"
    task_class = CountingTask
    config_def = ConfigDef(
        [
            ConfigKey(
                name="early", type=ConfigType.BOOLEAN, default=False, doc="Give records with timestamps to come, too."
            )
        ]
    )

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task."""
        del max_tasks
        return [{}]
