"""One run of a task, exactly once (KIP-618): records and offsets in the same Kafka transaction.

The producer is made, and older ones with its transactional id are thereby fenced, before the offsets are read. A transaction
that can't be committed is dropped with its producer, and the source starts again from the last committed position.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any

from connectors.errors import MillraceError
from worker.host.delivery.commits import Ledger
from worker.host.delivery.producer_errors import TransactionLost
from worker.host.delivery.session import TaskSession
from worker.host.errors import retry_pauses
from worker.host.saved import write_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connectors.api import Batch
    from worker.host.delivery.commits import Committable
    from worker.host.delivery.producer import Producer
    from worker.host.saved import Pairs


class TransactionalSession(TaskSession):
    """A session inside transactions; see ``TaskSession`` for its arguments and the calls of the task runner."""

    _open = False
    #: Whether the open transaction holds whole batches only.
    _whole = True
    _rows = 0
    _seen = 0
    _pauses: Iterator[float] | None = None
    #: A commit that Kafka was asked for; it may outlive who asked.
    _ending: asyncio.Task[None] | None = None
    #: Receipts of the open transaction's batches.
    _receipts: list[Any]

    # Begin and end.

    def confirm(self, receipt: Any) -> None:
        """Keep a receipt until the transaction is committed."""
        self._receipts.append(receipt)

    async def open(self) -> None:
        """Fence older instances, then read the offsets they have committed."""
        self._receipts = []
        await self._ensure_offsets_topic()
        await self._start_producer()
        await self.persist(self.plan.offsets.load)

    async def recover(self, error: Exception) -> None:
        """After a lost transaction: a new producer, which aborts what the old one left open, and the committed offsets."""
        if not isinstance(error, TransactionLost):
            raise error
        if self.stats.transactions > self._seen or self._pauses is None:
            self._pauses = retry_pauses(last_s=self.plan.options["errors.retry.delay.max.ms"] / 1000)
        self._seen = self.stats.transactions
        pause = next(self._pauses)
        self.stats.retries += 1
        self.plan.log.warning(
            "%s: %s; the task continues from the last committed transaction in %.1f s", self._name, error, pause
        )
        if self.producer is not None:
            await self.producer.close()
            self.delivery.forget_topics(self.producer.missing_topics)
        await asyncio.sleep(pause)
        # The transaction may be lost because the machine was frozen, and the task may be another worker's since.
        await self.plan.lease()
        async with self._committing:
            if self._ending is not None:
                self._ending.cancel()
                await asyncio.gather(self._ending, return_exceptions=True)
                self._ending = None
            self._open = False
            self._whole = True
            self._receipts = []
            self.ledger = Ledger(self._acknowledged)
            self._failed = asyncio.get_running_loop().create_future()
            await self._start_producer()
            await self.persist(self.plan.offsets.load)

    async def last_commit(self) -> None:
        """Commit the open transaction, unless it is not whole or only the connector may end it: then it is dropped."""
        async with self._committing:
            await self._wait_ended()
        if not self._open or self._failed.done() or self.producer is None:
            return
        if self.plan.boundary == "connector" or not self._whole:
            await self.producer.abort()
        else:
            await self.commit()

    async def settle(self) -> None:
        """End the open transaction between two generators: commit it, or drop it where the source repeats what is in it."""
        if self.plan.boundary != "connector" and self._whole:
            await self.commit()
            return
        if self._open:
            await self.kafka.drain()
            await self.kafka.abort()
            self._open = False
            self._receipts = []
        self._whole = True
        self.ledger = Ledger(self._acknowledged)

    # Transactions.

    async def handle(self, batch: Batch) -> None:
        """Take a batch through to Kafka and end the transaction where it has to end."""
        async with self._committing:
            await self._wait_ended()
            self._check()
            self._whole = False
            await self._begin_transaction()
            await super().handle(batch)
            self._whole = True
            boundary = self.plan.boundary
            if boundary == "poll" or (boundary == "connector" and batch.transaction == "commit"):
                await self._end_transaction()
            elif boundary == "connector" and batch.transaction == "abort":
                await self.kafka.drain()
                await self.kafka.abort()
                self._open = False
                self._receipts = []
                await self._begin_transaction()
                await self._end_transaction()

    async def _begin_transaction(self) -> None:
        if not self._open:
            await self.kafka.begin()
            self._open = True
            self._rows = self.kafka.acked.rows

    async def commit_regularly(self) -> None:
        """With ``transaction.boundary=interval``, commit at each interval."""
        if self.plan.boundary != "interval":
            return
        while True:
            await asyncio.sleep(self.plan.transaction_interval_s)
            try:
                await self.commit()
            except MillraceError as error:
                self.fail(error)

    async def commit(self) -> None:
        """Commit the open transaction, if there is one.

        A batch that is cut off by a stop lets a commit go ahead that has waited for it: its records have no offsets yet.
        """
        async with self._committing:
            await self._wait_ended()
            if self._open and self._whole:
                await self._end_transaction()

    async def _wait_ended(self) -> None:
        """Wait for a commit whose caller was cancelled; raises what it failed with."""
        ending = self._ending
        if ending is not None:
            try:
                await asyncio.shield(ending)
            finally:
                if ending.done():
                    self._ending = None

    async def _end_transaction(self) -> None:
        """Write the offsets of all delivered records, and commit.

        It may be cancelled at any point. The last commit of the run follows, and it must find the offsets that belong to the
        records of the open transaction. Once Kafka was asked to commit, nothing can be written to the transaction any more:
        that commit continues to its end, and the next caller waits for it.
        """
        producer = self.kafka
        began = perf_counter()
        offsets: list[Committable] = []
        try:
            await producer.drain()
            offsets = self.ledger.take()
            pairs = self.plan.offsets.pairs(offsets)
            rows = producer.acked.rows - self._rows
            if pairs:
                await write_pairs(producer, self.plan.own_offsets_topic or self.plan.offsets_topic, pairs)
        except BaseException as error:
            self._not_ended(offsets, error)
            raise
        self._ending = asyncio.create_task(
            self._commit_transaction(producer, offsets, pairs, rows, began), name=f"{self._name}|offsets"
        )
        self._ending.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # there may be no caller that waits for it
        await self._wait_ended()

    def _not_ended(self, offsets: Sequence[Committable], error: BaseException) -> None:
        self.ledger.give_back(offsets)
        if isinstance(error, MillraceError):
            self.stats.commit_failures += 1

    async def _commit_transaction(
        self, producer: Producer, offsets: list[Committable], pairs: Pairs, rows: int, began: float
    ) -> None:
        try:
            await producer.commit()
        except BaseException as error:
            self._not_ended(offsets, error)
            raise
        self._open = False
        receipts, self._receipts = self._receipts, []
        for receipt in receipts:
            super().confirm(receipt)
        stats = self.stats
        stats.transactions += 1
        stats.transaction_records += rows
        stats.transaction_size_min = min(stats.transaction_size_min, rows) if stats.transactions > 1 else rows
        stats.transaction_size_max = max(stats.transaction_size_max, rows)
        if pairs and self.plan.own_offsets_topic is not None:
            # The worker's topic is a copy then: it may lag behind, and is corrected by the next commit.
            await self.plan.offset_writer.write(pairs)
        await self.committed(offsets, perf_counter() - began)
