"""The file connector: Kafka Connect's FileStreamSource, and files that rotate, are compressed, or come in a directory."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec

from connectors.api import SourceConnector
from connectors.errors import ConfigInvalid, MillraceError
from connectors.file.config import CONFIG, DIRECTORY, FILE, PATTERN, SCAN_INTERVAL, TASK_FILES, one_file, problems
from connectors.file.directory import assign, matching
from connectors.file.task import FILENAME, POSITION, FileStreamSourceTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import ConnectorContext, Position
    from connectors.options import Config, ConfigProblem


class FileStreamSourceConnector(SourceConnector):
    """Reads lines of a file, of all matching files of a directory, or of the standard input."""

    version = version("millrace")
    config_def = CONFIG
    task_class = FileStreamSourceTask
    aliases = ("org.apache.kafka.connect.file.FileStreamSourceConnector",)

    def __init__(self, context: ConnectorContext) -> None:
        super().__init__(context)
        self._seen: list[str] | None = None
        self._assigned: list[list[str]] = []
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to watch the directory, if one is read."""
        if self.context.config[DIRECTORY]:
            self._watch = asyncio.create_task(self._watch_directory())

    async def stop(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task for a file; for a directory its files divided among at most ``max_tasks``.

        Raises:
            Fatal: the directory can't be listed.
            Retriable: it can't be listed now.
        """
        if not self.context.config[DIRECTORY]:
            return [{}]
        self._seen = await self._list()
        self._assigned = assign(self._seen, max_tasks, self._assigned)
        return [{TASK_FILES: msgspec.json.encode(files).decode()} for files in self._assigned]

    async def _list(self) -> list[str]:
        config = self.context.config
        return await asyncio.to_thread(matching, config[DIRECTORY], config[PATTERN])

    async def _watch_directory(self) -> None:
        while True:
            await asyncio.sleep(self.context.config[SCAN_INTERVAL] / 1000)
            try:
                found = await self._list()
            except MillraceError as error:
                self.context.log.warning("%s", error)
                continue
            if self._seen is not None and found != self._seen:
                self._seen = found
                self.context.request_task_reconfiguration()

    @classmethod
    async def validate(cls, config: Config) -> list[ConfigProblem]:
        """Options that exclude each other. That a file is there is not asked: it may come later, and on another worker."""
        return problems(config)

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        """True but for the standard input, whose positions can't be saved."""
        return bool(one_file(config) or config[DIRECTORY])

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        """Check positions; the texts are Kafka Connect's.

        Raises:
            ConfigInvalid: an offset this connector can't resume from.
        """
        if not one_file(config) and not config[DIRECTORY]:
            raise ConfigInvalid(
                f"Offsets cannot be modified if the '{FILE}' configuration is unspecified. This is because "
                "stdin is used for input and offsets are not tracked."
            )
        for partition, offset in offsets:
            if offset is None:
                continue  # whatever is saved may be cleaned up
            if POSITION not in offset:
                raise ConfigInvalid(f"Offset objects should either be null or contain the key '{POSITION}'")
            position = offset[POSITION]
            if not isinstance(position, int) or isinstance(position, bool):
                raise ConfigInvalid(f"The value for the '{POSITION}' key in the offset is expected to be a Long value")
            if position < 0:
                raise ConfigInvalid(f"The value for the '{POSITION}' key in the offset should be a non-negative value")
            if not partition:
                raise ConfigInvalid("Partition objects cannot be null")
            if FILENAME not in partition:
                raise ConfigInvalid(f"Partition objects should contain the key '{FILENAME}'")
        return True
