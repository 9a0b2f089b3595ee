"""The leader's transactional producer, through which all of its records go."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

from connectors.errors import MillraceError
from offsets.fetch import CREDENTIALS, abandon_producer, renew_credentials
from worker.rest.facade import NotLeader, RestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offsets.records import Pair
    from worker.control.state.stores import ClusterStores

_log = logging.getLogger(__name__)
_WRITE_DEADLINE_S: Final = 20.0
_APPLY_DEADLINE_S: Final = 20.0
#: Kafka's default, for clients and brokers; the frame of a record takes a part of it.
_LARGEST_REQUEST: Final = 1_048_576
_FRAME: Final = 1024


class Overtaken(MillraceError):
    """The records were not committed: what they were decided by has changed while they were written."""


@dataclass(frozen=True, slots=True)
class _Write:
    """Records that someone wants written, whether they still hold, and where their offsets go."""

    config: list[Pair]
    placement: list[Pair]
    still_holds: Callable[[], bool]
    done: asyncio.Future[tuple[int | None, int | None]]


class LeaderWriter:
    """Writes to the config and the placement topic while this worker leads.

    Args:
        stores: the cluster's state.
        producer: aiokafka producer arguments with the transactional id.
        interrupted: called when Kafka did not take a transaction; the producer is gone then.
    """

    def __init__(self, stores: ClusterStores, producer: Mapping[str, Any], interrupted: Callable[[], None]) -> None:
        self._stores = stores
        self._arguments = dict(producer)
        self._interrupted = interrupted
        self._producer: AIOKafkaProducer | None = None
        #: How often this worker became the leader.
        self.term = 0
        self._writes: list[_Write] = []
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has a producer, that is, this worker leads."""
        return self._producer is not None

    def renew(self, arguments: Mapping[str, Any]) -> None:
        """Log in with the credentials among ``arguments`` from the next connection on."""
        self._arguments.update({name: arguments[name] for name in CREDENTIALS if name in arguments})
        if self._producer is not None:
            renew_credentials(self._producer.client, arguments)

    def start(self) -> None:
        """Begin to write what waits; does not block."""
        self._writer = asyncio.create_task(self._write_all(), name="leader-writer")

    async def stop(self) -> None:
        """End it; those who wait get ``NotLeader``."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        await self.close()

    async def open(self, still_chosen: Callable[[], bool]) -> bool:
        """Fence an earlier leader and read everything it wrote; False: another worker was chosen meanwhile.

        Raises:
            KafkaError, OSError, TimeoutError: no broker answers.
        """
        producer = AIOKafkaProducer(**self._arguments)
        try:
            async with asyncio.timeout(_WRITE_DEADLINE_S):
                await producer.start()
            # Only now is what an earlier leader left open aborted, and the end of the topics the end.
            await asyncio.gather(
                self._stores.config.log.read_to_end(_APPLY_DEADLINE_S),
                self._stores.placement.log.read_to_end(_APPLY_DEADLINE_S),
            )
        except BaseException:
            await abandon_producer(producer)
            raise
        if not still_chosen():
            await abandon_producer(producer)
            return False
        self._producer = producer
        self.term += 1
        return True

    async def close(self) -> None:
        """Give the producer up; those whose records wait get ``NotLeader``: another leader may decide otherwise meanwhile."""
        producer, self._producer = self._producer, None
        waiting, self._writes = self._writes, []
        for pending in waiting:
            if not pending.done.done():
                pending.done.set_exception(NotLeader(None))
        if producer is not None:
            await abandon_producer(producer)

    async def write(
        self,
        config: Sequence[Pair] = (),
        placement: Sequence[Pair] = (),
        still_holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """Write records in one transaction and wait until this worker has folded them in.

        Args:
            config: for the config topic.
            placement: for the placement topic.
            still_holds: asked once Kafka has the records, before they are committed.

        Raises:
            Overtaken: ``still_holds`` says no.
            NotLeader: this worker does not lead any more.
            RestError: 500: Kafka did not take the records; whether they were written is open. 400: one is too large.
        """
        self._check_sizes((*config, *placement))
        request = _Write(list(config), list(placement), still_holds, asyncio.get_running_loop().create_future())
        self._writes.append(request)
        self._wake.set()
        last_config, last_placement = await request.done
        try:
            if last_config is not None:
                await self._stores.config.applied.wait(last_config, _APPLY_DEADLINE_S)
            if last_placement is not None:
                await self._stores.placement.applied.wait(last_placement, _APPLY_DEADLINE_S)
        except TimeoutError:
            raise RestError(
                500,
                "The change was written to Kafka but could not be read back within "
                f"{_APPLY_DEADLINE_S:g} s. Check the brokers",
            ) from None

    def _check_sizes(self, pairs: Sequence[Pair]) -> None:
        """Refuse what Kafka's client would: the transaction would fail with all that others want written."""
        largest = int(self._arguments.get("max_request_size", _LARGEST_REQUEST)) - _FRAME
        for key, value in pairs:
            size = len(key) + len(value or b"")
            if size > largest:
                raise RestError(
                    400,
                    f"{key.decode(errors='replace')} takes {size} bytes, more than the {largest} that Kafka takes in a record",
                )

    async def _write_all(self) -> None:
        """Write whatever waits, together: a transaction takes as long for many records as for one.

        A task of its own, so that a request that is given up by its client never leaves a transaction half done.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._writes = self._writes, []
            if not batch:
                continue
            failure: Exception | None = None
            last: tuple[int | None, int | None] = (None, None)
            try:
                last = await self._write_transaction(batch)
            except Overtaken as error:
                # What else was in the transaction is written in the next one.
                self._writes = [pending for pending in batch if pending.still_holds()] + self._writes
                self._wake.set()
                batch, failure = [pending for pending in batch if pending not in self._writes], error
            except asyncio.CancelledError:  # ``stop`` gives the rest the same answer
                self._writes = [*batch, *self._writes]
                raise
            except Exception as error:  # noqa: BLE001 - the waiting callers get the error
                failure = error
            for pending in batch:
                if pending.done.done():
                    continue  # given up
                if failure is None:
                    pending.done.set_result(last)
                else:
                    pending.done.set_exception(failure)

    async def _write_transaction(self, batch: Sequence[_Write]) -> tuple[int | None, int | None]:
        """Write all records of ``batch`` in one transaction; returns the last offset in each topic."""
        producer = self._producer
        if producer is None:
            raise NotLeader(None)
        try:
            async with asyncio.timeout(_WRITE_DEADLINE_S):
                await producer.begin_transaction()
                sent = [
                    await producer.send(self._stores.config.log.topic, value, key=key)
                    for pending in batch
                    for key, value in pending.config
                ]
                placed = [
                    await producer.send(self._stores.placement.log.topic, value, key=key)
                    for pending in batch
                    for key, value in pending.placement
                ]
                await producer.flush()
                # Before the question: a producer that is fenced by now can neither commit nor abort.
                last_config, last_placement = [
                    [(await answer).offset for answer in answers][-1:] for answers in (sent, placed)
                ]
                if not _still_hold(batch):
                    await producer.abort_transaction()
                    raise Overtaken(
                        "the group has changed while units of lost workers were placed: they are placed again"
                    )
                await producer.commit_transaction()
            return next(iter(last_config), None), next(iter(last_placement), None)
        except ProducerFenced:
            _log.warning("Another worker leads the cluster now: this one's leading ends")
            await self.close()
            raise NotLeader(None) from None
        except (KafkaError, OSError, TimeoutError) as error:
            await self.close()
            self._interrupted()
            raise RestError(
                500,
                "Failed to write to Kafka: the leader's transaction did not complete within "
                f"{_WRITE_DEADLINE_S:g} s ({error!r}). Check the brokers and retry",
            ) from error


def _still_hold(batch: Sequence[_Write]) -> bool:
    return all(pending.still_holds() for pending in batch)
