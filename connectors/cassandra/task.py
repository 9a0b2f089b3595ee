"""A task of the connector: the commit log of one node, and a share of the full reads of tables."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from connectors.api import SourceTask
from connectors.cassandra.run.cassandra_run import CassandraRun

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from connectors.api import Batch, Instruction, Position, TaskContext


class CassandraTask(SourceTask):
    """Reads a node's ``cdc_raw`` directory, if it has one, and its share of the tables' contents."""

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self._instructions: list[Instruction] = []
        self._run: CassandraRun | None = None

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """See ``SourceTask.instruct``."""
        self._instructions = list(instructions)
        if self._run is not None:
            self._run.instruct(self._instructions)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """See ``SourceTask.batches``.

        Raises:
            Retriable: the cluster or the directory is unavailable.
            Fatal: the log is damaged (``commit.log.error.policy=stop``), or a saved position can't be understood.
            ConfigInvalid: the cluster refuses the account, or the directory is not one of this node.
        """
        run = self._run = CassandraRun(self.context)
        try:
            run.instruct(self._instructions)
            async with aclosing(run.batches()) as stream:
                async for batch in stream:
                    yield batch
                    del batch  # not kept while the next one is waited for
        finally:
            self._run = None
            await run.close()

    async def committed(self, offsets: Sequence[tuple[Position, Position]]) -> None:
        """See ``SourceTask.committed``: segments that were delivered may go."""
        if self._run is not None:
            await self._run.committed(offsets)
