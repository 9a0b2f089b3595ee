"""The datagen connector: generates a load that a test can compute again, record by record, to check what arrived."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec

from connectors.api import SourceConnector
from connectors.datagen.config import CONFIG, PARTITIONS, TASK_PARTITIONS
from connectors.datagen.fields import PARTITION, SEQUENCE
from connectors.datagen.task import DatagenTask, partitions_of
from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import Position
    from connectors.options import Config


class DatagenConnector(SourceConnector):
    """Generates rows from a seed."""

    version = version("millrace")
    config_def = CONFIG
    task_class = DatagenTask
    aliases = ("io.confluent.kafka.connect.datagen.DatagenConnector",)

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The source partitions divided among at most ``max_tasks`` tasks."""
        return [
            {TASK_PARTITIONS: msgspec.json.encode(list(numbers)).decode()}
            for numbers in partitions_of(self.context.config[PARTITIONS], max_tasks)
        ]

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        """True: a record is a function of its number, and its number is its offset."""
        del config
        return True

    @classmethod
    def can_define_transaction_boundaries(cls, config: Config) -> bool:
        """True: see the option ``transaction.size``."""
        del config
        return True

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        """Check numbers of partitions and sequence numbers.

        Raises:
            ConfigInvalid: an offset this connector can't resume from.
        """
        for partition, offset in offsets:
            if offset is None:
                continue
            number = partition.get(PARTITION)
            if set(partition) != {PARTITION} or not isinstance(number, int) or not 0 <= number < config[PARTITIONS]:
                raise ConfigInvalid(
                    f'Partition objects must be {{"{PARTITION}": n}} with n from 0 to '
                    f"{config[PARTITIONS] - 1}; {partition!r} is not"
                )
            sequence = offset.get(SEQUENCE)
            if (
                set(offset) != {SEQUENCE}
                or not isinstance(sequence, int)
                or isinstance(sequence, bool)
                or sequence < -1
            ):
                raise ConfigInvalid(
                    f'Offset objects must be {{"{SEQUENCE}": n}} with the number of the last record that '
                    f"counts as sent, or -1 to start over; {offset!r} is not"
                )
        return True
