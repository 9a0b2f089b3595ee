"""The logs connector: any log becomes rows of tables, by rules."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.api import SourceConnector
from connectors.errors import ConfigInvalid, MillraceError
from connectors.logs.config import (
    CONFIG,
    FROM_FILES,
    FROM_KAFKA,
    KAFKA_CHECK_INTERVAL,
    KAFKA_START,
    OUTPUT,
    TASK_ADDED,
    TASK_PART,
    TASK_PARTITIONS,
    check_config,
)
from connectors.logs.inputs.kafka_input import OFFSET, PARTITION, TOPIC, list_partitions
from connectors.logs.metrics import METRICS
from connectors.logs.network.input import LINES, LISTENER
from connectors.logs.network.options import INPUT, LISTEN, SCHEMES, TASK_ADDRESSES
from connectors.logs.replays.requests import REPLAY, check_replay, show_replays
from connectors.logs.rows import DELIVERED
from connectors.logs.task import LogsTask
from connectors.text_files.reader import FILENAME, POSITION
from connectors.text_files.watch import DirectoryWatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import ConnectorContext, Instruction, Position
    from connectors.options import Config, ConfigProblem

#: Input -> the members of source partitions, and that of offsets.
_POSITIONS: Final = {FROM_FILES: ((FILENAME,), POSITION), FROM_KAFKA: ((TOPIC, PARTITION), OFFSET)}


class LogsConnector(SourceConnector):
    """Makes rows of the lines of files, of topics that log shippers fill, and of what senders bring over the network."""

    version = version("millrace")
    config_def = CONFIG
    task_class = LogsTask
    metrics = METRICS

    def __init__(self, context: ConnectorContext) -> None:
        super().__init__(context)
        self._directory = DirectoryWatch(context)
        self._partitions: list[tuple[str, int]] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to watch for new files or partitions."""
        if self.context.config[INPUT] == FROM_KAFKA:
            self._watch = asyncio.create_task(self._watch_partitions())
        elif self.context.config[INPUT] == FROM_FILES:
            self._directory.start()

    async def stop(self) -> None:
        """End the watch."""
        await self._directory.stop()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The files, partitions or addresses divided among at most ``max_tasks`` tasks.

        Raises:
            Fatal: a directory can't be listed.
            Retriable: it, or the partitions, can't be listed now.
        """
        tasks = await self._divide_tasks(max_tasks)
        if self.context.config[OUTPUT] != "ums" or len(tasks) < 2:
            return tasks
        # Each speaks for its own lines only.
        return [{**task, TASK_PART: f"{number}/{len(tasks)}"} for number, task in enumerate(tasks)]

    async def _divide_tasks(self, max_tasks: int) -> list[dict[str, str]]:
        config = self.context.config
        if config[INPUT] in SCHEMES:
            addresses = config[LISTEN]
            count = min(max_tasks, len(addresses))
            return [{TASK_ADDRESSES: msgspec.json.encode(addresses[number::count]).decode()} for number in range(count)]
        if config[INPUT] != FROM_KAFKA:
            return await self._directory.task_configs(max_tasks)
        self._partitions = await list_partitions(self.context.config)
        count = min(max_tasks, len(self._partitions))
        tasks = [
            {TASK_PARTITIONS: msgspec.json.encode(self._partitions[number::count]).decode()} for number in range(count)
        ]
        if config[KAFKA_START] == "latest":
            await self.context.refresh_offsets()
            if added := self._find_added(self._partitions):
                tasks = [{**task, TASK_ADDED: msgspec.json.encode(added).decode()} for task in tasks]
        return tasks

    def _find_added(self, partitions: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """The partitions without a saved offset, behind others of their topics that have one."""
        last_read = {
            topic: number
            for topic, number in sorted(partitions)
            if self.context.offsets.get({TOPIC: topic, PARTITION: number}) is not None
        }
        return [(topic, number) for topic, number in partitions if number > last_read.get(topic, number)]

    async def _watch_partitions(self) -> None:
        while True:
            await asyncio.sleep(self.context.config[KAFKA_CHECK_INTERVAL] / 1000)
            try:
                partitions = await list_partitions(self.context.config)
            except MillraceError as error:
                self.context.log.warning("%s", error)
                continue
            if self._partitions is not None and partitions != self._partitions:
                self._partitions = partitions
                self.context.request_task_reconfiguration()

    @classmethod
    async def validate(cls, config: Config) -> list[ConfigProblem]:
        """The rules, and options that exclude each other. That a file is there is not asked: it may come later."""
        return await asyncio.to_thread(check_config, config)

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        """True where lines can be read again: a line's position and the number of its rows are the offset."""
        return config[INPUT] not in SCHEMES

    @classmethod
    def check_snapshot(cls, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
        """A replay is the only thing that can be asked for.

        Raises:
            ConfigInvalid: it is something else, its time or a position can't be read, or the input can't be read again.
        """
        if REPLAY not in request:
            raise ConfigInvalid(
                "logs connectors take no snapshots; POST /connectors/NAME/replay gives lines to the rules again"
            )
        return {REPLAY: check_replay(request[REPLAY], config)}

    @classmethod
    def snapshots(
        cls, config: Config, instructions: Sequence[Instruction], offsets: Sequence[tuple[Position, Position]]
    ) -> list[dict[str, Any]]:
        """The replays that were asked for, with their progress."""
        return show_replays(config, instructions, offsets)

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        """Check partitions and positions.

        Raises:
            ConfigInvalid: an offset this connector can't resume from.
        """
        names, member = _POSITIONS.get(config[INPUT], ((LISTENER,), LINES))
        for partition, offset in offsets:
            if offset is None:
                continue  # whatever is saved may be cleaned up
            if set(partition) != set(names):
                raise ConfigInvalid(f"Partition objects must have the keys {', '.join(names)}; {partition!r} has not")
            for name in (member, DELIVERED):
                number = offset.get(name, 0 if name == DELIVERED else None)
                if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                    raise ConfigInvalid(f"Offset objects must have a number {name!r} from 0; {offset!r} has not")
        return True
