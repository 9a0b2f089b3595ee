"""The file connector: Kafka Connect's FileStreamSource, and files that rotate, are compressed, or come in a directory."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from connectors.api import SourceConnector
from connectors.errors import ConfigInvalid
from connectors.file.config import CONFIG
from connectors.file.task import FileStreamSourceTask
from connectors.text_files.options import DIRECTORY, FILE, reading_problems, single_file
from connectors.text_files.reader import FILENAME, POSITION
from connectors.text_files.watch import DirectoryWatch

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
        self._watch = DirectoryWatch(context)

    async def start(self) -> None:
        """Begin to watch the directory, if one is read."""
        self._watch.start()

    async def stop(self) -> None:
        """End the watch."""
        await self._watch.stop()

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task for a file; for a directory its files divided among at most ``max_tasks``.

        Raises:
            Fatal: the directory can't be listed.
            Retriable: it can't be listed now.
        """
        return await self._watch.task_configs(max_tasks)

    @classmethod
    async def validate(cls, config: Config) -> list[ConfigProblem]:
        """Options that exclude each other. That a file is there is not asked: it may come later, and on another worker."""
        return reading_problems(config)

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        """True but for the standard input, whose positions can't be saved."""
        return bool(single_file(config) or config[DIRECTORY])

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        """Check positions; the messages are Kafka Connect's.

        Raises:
            ConfigInvalid: an offset this connector can't resume from.
        """
        if not single_file(config) and not config[DIRECTORY]:
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
            if partition is None:
                raise ConfigInvalid("Partition objects cannot be null")
            if FILENAME not in partition:
                raise ConfigInvalid(f"Partition objects should contain the key '{FILENAME}'")
        return True
