"""The logs connector's task: reads lines of files, of Kafka partitions or of senders, and yields rows."""

from __future__ import annotations

import socket
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from connectors.api import SourceTask
from connectors.logs.config import FROM_KAFKA, HOST
from connectors.logs.heartbeats import LogHeartbeats
from connectors.logs.inputs.file_input import read_log_files
from connectors.logs.inputs.kafka_input import read_topics
from connectors.logs.merging import merge_batches
from connectors.logs.network.input import read_network
from connectors.logs.network.options import INPUT, SCHEMES
from connectors.logs.replays.replay import Replays
from connectors.logs.rows import RowMaker
from connectors.logs.standing import InstructionList, prepare_rules

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from connectors.api import Batch, Instruction, TaskContext


class LogsTask(SourceTask):
    """Makes rows of the lines of its files, partitions or addresses."""

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self._standing = InstructionList()

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """Take the rule set that the cluster keeps, and replays."""
        self._standing.take(instructions)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield batches of rows until cancelled.

        Raises:
            Fatal: the rules or a file can't be read, or records of a topic were deleted before they were read.
            Retriable: a file, Kafka or the rules can't be read, or an address can't be bound, at the moment.
        """
        config = self.context.config
        rules, stored = await prepare_rules(config, self._standing)
        host = config[HOST] or socket.gethostname()
        heartbeats = LogHeartbeats(config, self.context.metrics, host)
        rows = RowMaker(rules, config, self.context.metrics, heartbeats)
        heartbeats.signals = rows.make_signals
        if config[INPUT] in SCHEMES:
            source = read_network(self.context, rows, config[HOST] or "", heartbeats)
        else:
            read = read_topics if config[INPUT] == FROM_KAFKA else read_log_files
            source = read(self.context, rows, host, heartbeats)
        replays = Replays(self.context, rows, host, self._standing.replays)
        async with (
            aclosing(source),
            aclosing(merge_batches(source, self.context, self._standing, rows, stored, replays)) as batches,
        ):
            async for batch in batches:
                yield batch
                del batch  # not kept while the next one is waited for

    def delivered(self, receipt: Any) -> None:
        """Count the rows of a batch as delivered, and let its senders be answered."""
        receipt.confirm()
