"""The cluster's shared state as this worker sees it: config, placement and status topics folded in memory and followed.

All writes that decide something go through the leader (``worker.control.leader``); status records and this worker's own report
are written here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from connectors.errors import MillraceError, Retriable, Skippable
from offsets.cluster import Change, ClusterSnapshot, ClusterState
from offsets.log import CompactedLog
from offsets.records import Status, TaskStatusRecord, TopicStatusRecord, decode_status
from offsets.status import StatusState, can_write_safely
from worker.console.history import ConfigHistory
from worker.control.instructions import InstructionTable
from worker.control.rule_sets import RuleTable
from worker.control.table import Table
from worker.control.verifications import VerificationTable
from worker.control.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offsets.fetch import Record
    from offsets.records import Pair

_log = logging.getLogger(__name__)
#: Pause before a failed write of statuses is tried again.
_RETRY_S = 1.0


class Applied:
    """Lets a writer wait until what it wrote has been folded in here."""

    def __init__(self) -> None:
        self._next = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def reached(self, following: int) -> None:
        """Everything before offset ``following`` has been folded in."""
        self._next = max(self._next, following)
        still = []
        for offset, waiter in self._waiters:
            if waiter.done():
                continue
            if offset < self._next:
                waiter.set_result(None)
            else:
                still.append((offset, waiter))
        self._waiters = still

    async def wait(self, offset: int, deadline_s: float) -> None:
        """Wait until the record at ``offset`` has been folded in.

        Raises:
            TimeoutError: not within ``deadline_s``.
        """
        if offset < self._next:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((offset, waiter))
        async with asyncio.timeout(deadline_s):
            await waiter


class ConfigStore:
    """The config topic, folded."""

    def __init__(self, topic: str, client: Mapping[str, Any], on_change: Callable[[Change], None]) -> None:
        self._state = ClusterState()
        self._on_change = on_change
        self.applied = Applied()
        #: Earlier configurations, for the console.
        self.history = ConfigHistory()
        #: Changes before this is set come from the past: restart requests among them have been dealt with.
        self.live = False
        self.log = CompactedLog(topic, client, self._sink)

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The state now; immutable."""
        return self._state.snapshot()

    @property
    def unreadable(self) -> int:
        """How many records made no sense."""
        return self._state.unreadable.count

    def _sink(self, partition: int, records: Iterable[Record]) -> None:
        del partition
        for record in records:
            change = self._state.apply(record.offset, record.key, record.value)
            if change is not None and change.kind in {"connector", "removed"}:
                self.history.add(change.name, record.timestamp, self._state.config_of(change.name))
            if change is not None and self.live:
                self._on_change(change)
            self.applied.reached(record.offset + 1)


class PlacementStore:
    """The placement topic, folded."""

    def __init__(self, topic: str, client: Mapping[str, Any], on_change: Callable[[], None]) -> None:
        self.table = Table()
        self.instructions = InstructionTable()
        self.rules = RuleTable()
        self.verifications = VerificationTable()
        self._on_change = on_change
        self.applied = Applied()
        self.log = CompactedLog(topic, client, self._sink)

    def _sink(self, partition: int, records: Iterable[Record]) -> None:
        del partition
        for record in records:
            if not any(
                folded.apply(record.key, record.value) for folded in (self.instructions, self.rules, self.verifications)
            ):
                self.table.apply(record.key, record.value)
            self.applied.reached(record.offset + 1)
        self._on_change()


class StatusStore:
    """The status topic, folded; writes are queued, so that no caller waits for Kafka. The last write of a key wins.

    What was queued while this worker was cut off may be old news when Kafka is back: a status is dropped when a newer owner
    has written its own meanwhile.

    Args:
        topic: its name.
        client: arguments of the Kafka client.
        producer: further ones of the producer.
        on_gone: called with a connector and a task, or None for the connector itself, whose status was removed from the topic.
        on_topic_gone: called with a connector and one of its active topics that was removed from the topic.
    """

    def __init__(
        self,
        topic: str,
        client: Mapping[str, Any],
        producer: Mapping[str, Any],
        on_gone: Callable[[str, int | None], None],
        on_topic_gone: Callable[[str, str], None],
    ) -> None:
        self._on_gone = on_gone
        self._on_topic_gone = on_topic_gone
        self.state = StatusState()
        self.log = CompactedLog(topic, client, self._sink, producer=producer)
        #: What the topic holds, by key: what is dropped from the queue is replaced by it again.
        self._written: dict[bytes, bytes] = {}
        self._queue: dict[bytes, bytes | None] = {}
        self._wake = asyncio.Event()
        self._released = asyncio.Event()
        self._released.set()
        self._writer: asyncio.Task[None] | None = None

    async def start(self, deadline_s: float) -> None:
        """Read the topic to its end, follow it, and begin to write.

        Raises:
            Retriable: not within ``deadline_s``.
        """
        await self.log.start(deadline_s)
        self._writer = asyncio.create_task(self._write(), name="status-writer")

    async def stop(self, deadline_s: float = 3.0) -> None:
        """Write what is queued if Kafka answers within the deadline, and stop."""
        if self._writer is not None:
            if not await until(lambda: not self._queue, deadline_s):
                _log.warning("%d statuses could not be written before the stop", len(self._queue))
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        await self.log.stop()

    def hold(self) -> None:
        """Write nothing until ``release``: this worker does not know what others have written."""
        self._released.clear()

    def release(self) -> None:
        """Write again; call it when the topic has been read to its end."""
        self._released.set()

    def put(self, pair: Pair) -> None:
        """Write a status record soon. Visible in ``state`` at once: this worker's own answers must not lag behind it."""
        key, value = pair
        self._queue.pop(key, None)
        self._queue[key] = value
        self.state.apply(key, value)
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            await self._released.wait()
            self._wake.clear()
            batch = {key: value for key, value in self._queue.items() if not self._outdated(key, value)}
            for key in self._queue.keys() - batch.keys():
                del self._queue[key]
                self.state.apply(key, self._written.get(key))
            if not batch:
                continue
            try:
                await self.log.send_all(batch.items(), 15)
            except MillraceError as error:
                level = logging.WARNING if isinstance(error, Retriable) else logging.ERROR
                _log.log(level, "Statuses were not written, trying again: %s", error)
                await asyncio.sleep(_RETRY_S)
                self._wake.set()
                continue
            for key, value in batch.items():
                # A later status of the same key stays in the queue.
                if key in self._queue and self._queue[key] is value:
                    del self._queue[key]

    def _outdated(self, key: bytes, value: bytes | None) -> bool:
        current, new = _status_of(key, self._written.get(key)), _status_of(key, value)
        return current is not None and new is not None and not can_write_safely(current, new)

    def _sink(self, partition: int, records: Iterable[Record]) -> None:
        del partition
        gone: set[bytes] = set()
        for record in records:
            key, value = record.key, record.value
            if key is None:
                continue
            if value is None:
                self._written.pop(key, None)
                gone.add(key)
            else:
                self._written[key] = value
                gone.discard(key)
            # What is about to be written is newer than what comes back.
            if key not in self._queue:
                self.state.apply(key, value)
        for key in gone:
            self._removed(key)

    def _removed(self, key: bytes) -> None:
        try:
            record = decode_status(key, None)
        except Skippable:
            return  # counted where it was folded
        if isinstance(record, TopicStatusRecord):
            self._on_topic_gone(record.connector, record.topic)
        else:
            self._on_gone(record.connector, record.task if isinstance(record, TaskStatusRecord) else None)


def _status_of(key: bytes, value: bytes | None) -> Status | None:
    if value is None:
        return None
    try:
        status = decode_status(key, value).status
    except Skippable:
        return None
    return status if isinstance(status, Status) else None
