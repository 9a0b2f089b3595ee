"""A task of the connector: one reader of the binlog, and the snapshots of the rows that the task owns."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from connectors.api import SourceTask
from connectors.mysql.run.mysql_run import MySqlRun

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from connectors.api import Batch, Instruction, Position, TaskContext


class MySqlTask(SourceTask):
    """Reads the whole binlog and delivers the rows of one shard."""

    aliases = ("io.debezium.connector.mysql.MySqlConnectorTask", "io.debezium.connector.mariadb.MariaDbConnectorTask")

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self._instructions: list[Instruction] = []
        self._run: MySqlRun | None = None

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """See ``SourceTask.instruct``."""
        self._instructions = list(instructions)
        if self._run is not None:
            self._run.instruct(self._instructions)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """See ``SourceTask.batches``.

        Raises:
            Retriable: the server is unavailable, or the connection is lost.
            Fatal: the binlog can't be read from the saved position, or not understood.
            ConfigInvalid: the server refuses the account, or a saved offset can't be understood.
        """
        # A signal may send the stream to another position: then a new run begins there. What the worker shows as saved lags
        # behind what this task gave it, so the new run gets all of that.
        delivered: dict[tuple[tuple[str, Any], ...], Position | None] = {}
        while True:
            run = self._run = MySqlRun(
                self.context, [(dict(partition), offset) for partition, offset in delivered.items()]
            )
            try:
                run.instruct(self._instructions)
                async with aclosing(run.batches()) as stream:
                    async for batch in stream:
                        delivered.update(
                            (tuple(sorted(partition.items())), offset) for partition, offset in batch.offsets
                        )
                        yield batch
                        del batch  # not kept while the next one is waited for
            finally:
                self._run = None
                await run.close()
            if run.moved_to is None:
                return

    async def committed(self, offsets: Sequence[tuple[Position, Position]]) -> None:
        """See ``SourceTask.committed``: heartbeats have arrived."""
        if self._run is not None:
            self._run.committed(offsets)
