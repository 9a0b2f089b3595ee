"""A source in memory that counts: the position of a task is the number of records that it has given.

Some numbers come in records that Kafka refuses: they are too large, or their timestamps are in the future. If the task ends
transactions itself, it drops some of them. Now and then the source is unavailable, or fails.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

from connectors.api import Batch, SourceConnector, SourceRecord, SourceTask
from connectors.errors import Retriable
from connectors.options import ConfigDef, ConfigKey, ConfigType
from tests.simulation.loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from typing import Any

    from connectors.options import Config

#: Each task has a topic of its own: this and the task's number.
TOPIC: Final = "numbers-"
#: The most bytes of a batch that the topics are to take: some records, so that batches are refused whose records are good.
LARGEST_BATCH: Final = 1000
#: A producer that takes no more bytes than this in a record refuses the large ones itself.
LARGEST_REQUEST: Final = 9000
_MOST_ROWS: Final = 20
_LARGE_EACH: Final = 53
_EARLY_EACH: Final = 71
_EARLY_MS: Final = 7_200_000
_ROW: Final = " " * 60
_LARGE_ROW: Final = " " * LARGEST_REQUEST
#: The numbers of a transaction, where the task ends them, and which of them it drops.
TRANSACTION: Final = 30
_DROPPED_EACH: Final = 4
#: One batch of that many is followed by a failure of the source.
_FAILURE_EACH: Final = 60


@dataclass(frozen=True, slots=True)
class Numbers:
    """The fate of the numbers of a task.

    Attributes:
        early: whether some records have timestamps in the future.
        transactions: whether the task ends transactions, and drops some.
        large: whether some records are too large.
    """

    early: bool
    transactions: bool
    large: bool = True

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self:
        """As the options of the connector say."""
        return cls(config["early"], config["transactions"], config["large"])

    def is_large(self, number: int) -> bool:
        """Whether the record of a number is too large."""
        return self.large and number % _LARGE_EACH == 1

    def is_refused(self, number: int) -> bool:
        """Whether Kafka refuses the record of a number."""
        return self.is_large(number) or (self.early and number % _EARLY_EACH == 2)

    def is_dropped(self, number: int) -> bool:
        """Whether the task drops the transaction of a number."""
        return self.transactions and number // TRANSACTION % _DROPPED_EACH == 1

    def end_batch(self, position: int, count: int) -> tuple[int, Literal["", "commit", "abort"]]:
        """The position behind a batch of at most ``count`` numbers, and how it ends the transaction, if it does."""
        end = position + count
        if not self.transactions:
            return end, ""
        boundary = (position // TRANSACTION + 1) * TRANSACTION
        if end < boundary:
            return end, ""
        return boundary, "abort" if self.is_dropped(position) else "commit"


class CountingTask(SourceTask):
    """Counts from its saved position on; the key of its records names this run of it."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Give some numbers at a time."""
        config = self.context.config
        numbers, task = Numbers.of_config(config), config["task"]
        topic, partition = f"{config['topic']}{task}", {"source": task}
        position = (self.context.offsets.get(partition) or {"n": 0})["n"]
        run = f"{random.getrandbits(32):x}"
        while True:
            end, transaction = numbers.end_batch(position, random.randint(1, _MOST_ROWS))
            batch = range(position, end)
            records = [_record(number, run, topic, partition, numbers) for number in batch]
            position = end
            yield Batch(records, transaction=transaction, receipt=(topic, batch))
            await asyncio.sleep(random.random() * 0.5)
            if random.random() * _FAILURE_EACH < 1:
                raise Retriable("the source is unavailable") if random.random() < 0.7 else RuntimeError("a mistake")

    def delivered(self, receipt: tuple[str, range]) -> None:
        """Kafka has a batch."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.report_delivered(*receipt)


def _record(number: int, run: str, topic: str, partition: dict[str, int], numbers: Numbers) -> SourceRecord:
    value = f"{number}{_LARGE_ROW if numbers.is_large(number) else _ROW}"
    late_ms = int(time.time() * 1000) + _EARLY_MS
    timestamp = late_ms if numbers.early and number % _EARLY_EACH == 2 else None
    return SourceRecord(partition, {"n": number + 1}, topic, value, key=run, timestamp=timestamp)


class CountingConnector(SourceConnector):
    """The connector of ``CountingTask``."""

    version = "1"
    task_class = CountingTask
    config_def = ConfigDef(
        [
            ConfigKey(name="early", type=ConfigType.BOOLEAN, default=False, doc="Some timestamps are in the future."),
            ConfigKey(name="transactions", type=ConfigType.BOOLEAN, default=False, doc="Tasks end transactions."),
            ConfigKey(name="large", type=ConfigType.BOOLEAN, default=True, doc="Some records are too large."),
            ConfigKey(
                name="topic", type=ConfigType.STRING, default=TOPIC, doc="The topics' names without the tasks' numbers."
            ),
            ConfigKey(name="task", type=ConfigType.INT, default=0, doc="The number of the task."),
        ]
    )

    @classmethod
    def can_define_transaction_boundaries(cls, config: Config) -> bool:
        """As the option says."""
        return bool(config["transactions"])

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One for each task."""
        return [{"task": str(number)} for number in range(max_tasks)]
