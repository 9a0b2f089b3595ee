"""Fencing of transactional producers: what ``Admin.fenceProducers`` does for Kafka Connect (KIP-618), and when it is due."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from connectors.errors import ConfigInvalid, MillraceError, Retriable
from offsets.fetch import abandon_producer
from offsets.records import task_count_record
from worker.rest.facade import NotLeader, RestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from offsets.cluster import ClusterSnapshot
    from worker.control.leader import LeaderDuties

_log = logging.getLogger(__name__)
#: How many run at the same time: each takes its own connection.
_AT_ONCE: Final = 16
_FENCE_DEADLINE_S: Final = 30.0
_RETRY_S: Final = 1.0


async def fence_producers(producer: Mapping[str, Any], ids: Sequence[str], deadline_s: float) -> None:
    """Take over each transactional id once: producers that used it can't commit any more, open transactions are aborted.

    Args:
        producer: aiokafka producer arguments without a transactional id.
        ids: the transactional ids.
        deadline_s: for all of them.

    Raises:
        Retriable: not all could be taken over in time.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def fence(transactional_id: str) -> None:
        async with gate:
            client = AIOKafkaProducer(
                **{**producer, "acks": "all", "enable_idempotence": True, "transactional_id": transactional_id}
            )
            try:
                await client.start()
            finally:
                await abandon_producer(client)

    try:
        async with asyncio.timeout(deadline_s):
            await asyncio.gather(*(fence(transactional_id) for transactional_id in ids))
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retriable(
            f"transactional ids {ids[0]} to {ids[-1]} could not be taken over within {deadline_s:g} s ({error!r}): "
            "check the brokers, and that the producer's user may use these ids"
        ) from error


def fencing_count(snapshot: ClusterSnapshot, name: str) -> int:
    """How many transactional ids must be fenced before the connector's new tasks may start (KIP-618). Pure.

    None were started with exactly once before the first task count record; a single task that follows a single one takes
    over its id, and that alone fences the old one.
    """
    if name not in snapshot.pending_fencing:
        return 0
    before = snapshot.fenced_counts.get(name, 0)
    return 0 if before == 1 and snapshot.task_counts.get(name, 0) == 1 else before


class TaskFencing:
    """Fences the producers of connectors' earlier tasks, while this worker leads.

    Args:
        leader: the leader's duties.
        settings: the parsed worker configuration.
        task_producer: aiokafka producer arguments of a connector's tasks by the connector's configuration.
    """

    def __init__(
        self,
        leader: LeaderDuties,
        settings: Mapping[str, Any],
        task_producer: Callable[[Mapping[str, str]], Awaitable[dict[str, Any]]],
    ) -> None:
        self._leader = leader
        self._settings = settings
        self._task_producer = task_producer
        self._fencing: dict[str, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        """Give up what is under way."""
        tasks = list(self._fencing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def fence_pending(self) -> None:
        """Begin for every connector whose earlier tasks have yet to be fenced; does not block."""
        snapshot = self._leader.snapshot
        for name in snapshot.pending_fencing:
            if name in snapshot.connectors and name not in self._fencing:
                self._fence_soon(name, self._fence_again)

    async def fence(self, name: str) -> None:
        """Fence the producers of a connector's earlier tasks and say so in the config topic; at once if there are none.

        Raises:
            NotLeader: this worker does not lead.
            RestError: 500: a producer could not be fenced.
        """
        self._leader.check()
        task = self._fencing.get(name)
        if task is None:
            task = self._fence_soon(name, self._fence_connector)
        await asyncio.shield(task)

    async def fence_ids(self, name: str, count: int) -> None:
        """Fence the transactional ids of tasks 0 to ``count - 1`` of a connector.

        Raises:
            RestError: 500: one could not be fenced.
        """
        connector = self._leader.snapshot.connectors.get(name, {})
        ids = [f"{self._settings['group.id']}-{name}-{task}" for task in range(count)]
        try:
            await fence_producers(await self._task_producer(connector), ids, _FENCE_DEADLINE_S)
        except (ConfigInvalid, Retriable) as error:
            raise RestError(500, f"Failed to fence out task producers for source connector {name}: {error}") from error

    async def _fence_connector(self, name: str) -> None:
        snapshot = self._leader.snapshot
        if name not in snapshot.pending_fencing or name not in snapshot.connectors:
            return
        term, count = self._leader.term, fencing_count(snapshot, name)
        if count:
            _log.info("Fencing %d producers of earlier tasks of connector %s", count, name)
            await self.fence_ids(name, count)
        if self._leader.term != term:
            # Another worker has led meanwhile: tasks that it has started are not among those that were fenced.
            raise NotLeader(None)
        while True:
            # The connector may have got other tasks meanwhile: those that start now have to be fenced before the next ones.
            tasks = self._leader.snapshot.task_counts.get(name, 0)
            await self._leader.write([task_count_record(name, tasks)])
            snapshot = self._leader.snapshot
            if name in snapshot.pending_fencing or snapshot.task_counts.get(name, 0) <= tasks:
                return

    def _fence_soon(self, name: str, work: Callable[[str], Awaitable[None]]) -> asyncio.Task[None]:
        async def fence() -> None:
            try:
                await work(name)
            finally:
                # Not in a callback of the task: before it runs, another caller would take the finished task for a running one.
                del self._fencing[name]

        task = self._fencing[name] = asyncio.create_task(fence(), name=f"fence-{name}")
        return task

    async def _fence_again(self, name: str) -> None:
        try:
            await self._fence_connector(name)
        except (MillraceError, KafkaError) as error:
            _log.warning("Connector %s: its earlier tasks could not be fenced yet, retrying: %s", name, error)
            await asyncio.sleep(_RETRY_S)
        self._leader.wake()
