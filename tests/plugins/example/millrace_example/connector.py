"""Counts down: the smallest connector that does everything the contract asks for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from connectors.api import Batch, Position, SourceConnector, SourceRecord, SourceTask
from connectors.errors import ConfigInvalid
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, at_least, non_empty
from connectors.schema import INT64, struct

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

ROCKET = struct("example.Countdown", {"left": INT64})
PARTITION: Position = {"rocket": "one"}


class CountdownTask(SourceTask):
    """Gives one record for each number from ``start`` down to 0."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield up to 100 numbers at a time, and end at 0."""
        config = self.context.config
        saved = self.context.offsets.get(PARTITION)
        left = config["start"] if saved is None else saved["left"] - 1
        while left >= 0:
            stop = max(left - 100, -1)
            yield Batch(
                [
                    SourceRecord(PARTITION, {"left": number}, config["topic"], {"left": number}, ROCKET)
                    for number in range(left, stop, -1)
                ]
            )
            self.context.metrics.add("numbers-given", left - stop)
            left = stop
            await asyncio.sleep(0)


class CountdownConnector(SourceConnector):
    """Counts down to 0."""

    version = "1.2.3"
    task_class = CountdownTask
    metrics: ClassVar[Mapping[str, tuple[str, str]]] = {"numbers-given": ("counter", "Numbers given so far.")}
    config_def = ConfigDef(
        [
            ConfigKey(
                name="topic",
                type=ConfigType.STRING,
                validator=non_empty,
                importance=Importance.HIGH,
                doc="The topic to write to.",
                example="launch",
            ),
            ConfigKey(
                name="start",
                type=ConfigType.LONG,
                default=10,
                validator=at_least(0),
                unit="numbers",
                doc="The number to start with.",
            ),
        ]
    )

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task: there is one countdown."""
        del max_tasks
        return [{}]

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        """True: a number is its own offset."""
        del config
        return True

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        """Check that the countdown is this one and the number is not above its start.

        Raises:
            ConfigInvalid: it is not.
        """
        for partition, offset in offsets:
            if offset is None:
                continue
            left = offset.get("left")
            if partition != PARTITION or not isinstance(left, int) or not 0 <= left <= config["start"]:
                raise ConfigInvalid(
                    f'{partition}: {offset} is not {PARTITION}: {{"left": n}} with n from 0 to {config["start"]}'
                )
        return True
