"""The cluster's shared state as this worker sees it: config, placement and status topics folded in memory and followed.

All writes that decide something go through the leader (``worker.control.leader``); status records and this worker's own report
are written here.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectors.errors import MillraceError, Retriable, Skippable
from offsets.cluster import ClusterSnapshot, ClusterState, ConfigChange
from offsets.log import CompactedLog
from offsets.records import (
    ConnectorStatusRecord,
    ReportedStatus,
    TaskStatusRecord,
    TopicStatusRecord,
    decode_status,
    task_status_record,
)
from offsets.status import StatusState, can_write_safely
from offsets.topics import InternalTopic, internal_topic
from worker.config.worker_config import placement_topic
from worker.console.history import ConfigHistory
from worker.control.placement.planning import Unit
from worker.control.placement.table import PlacementTable
from worker.control.state.instructions import InstructionTable
from worker.control.state.rule_sets import RuleTable
from worker.control.state.verifications import VerificationTable
from worker.control.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from connectors.options import Config
    from offsets.fetch import FetchedRecord
    from offsets.records import Pair

_log = logging.getLogger(__name__)
#: Pause before a failed write of statuses is retried.
_RETRY_S = 1.0
#: In each status of a unit that runs nowhere. Where it is part of something else, such as a trace, a unit is looked at in vain.
_UNASSIGNED = b'"UNASSIGNED"'


class AppliedOffsets:
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

    def __init__(self, topic: str, client: Mapping[str, Any], on_change: Callable[[ConfigChange], None]) -> None:
        self._state = ClusterState()
        self._on_change = on_change
        self.applied = AppliedOffsets()
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

    def _sink(self, partition: int, records: Iterable[FetchedRecord]) -> None:
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
        self.table = PlacementTable()
        self.instructions = InstructionTable()
        self.rules = RuleTable()
        self.verifications = VerificationTable()
        self._on_change = on_change
        self.applied = AppliedOffsets()
        self.log = CompactedLog(topic, client, self._sink)

    def _sink(self, partition: int, records: Iterable[FetchedRecord]) -> None:
        del partition
        for record in records:
            if not any(
                folded.apply(record.key, record.value) for folded in (self.instructions, self.rules, self.verifications)
            ):
                self.table.apply(record.key, record.value)
            self.applied.reached(record.offset + 1)
        self._on_change()


@dataclass(slots=True, eq=False)
class _QueuedStatus:
    """A status that waits to be written, or to be acknowledged.

    Attributes:
        value: the record's; None removes the status.
        returned: whether it has come back from the topic before Kafka acknowledged it.
    """

    value: bytes | None
    returned: bool = False


class StatusStore:
    """The status topic, folded; writes are queued, so that no caller waits for Kafka. The last write of a key wins.

    What was queued while this worker was cut off may be old news when Kafka is back: a status is dropped when a newer owner
    has written its own meanwhile.

    Args:
        topic: its name.
        client: arguments of the Kafka client.
        producer: further ones of the producer.
        on_gone: called with a connector and a task, or None for the connector itself, whose status was removed from the topic,
            is UNASSIGNED now, or was written by another worker after this worker had written one.
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
        self._queue: dict[bytes, _QueuedStatus] = {}
        #: Keys of the statuses that this worker has written.
        self._written_here: set[bytes] = set()
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
            if not await wait_until(lambda: not self._queue, deadline_s):
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
        self._queue[key] = _QueuedStatus(value)
        (self._written_here.discard if value is None else self._written_here.add)(key)
        self._apply(key, value)
        self._wake.set()

    def written(self, key: bytes) -> ReportedStatus | None:
        """The status that the topic holds, as far as it is read; it may be older news than what ``state`` shows."""
        return _status_of(key, self._written.get(key))

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            await self._released.wait()
            self._wake.clear()
            batch = {key: queued for key, queued in self._queue.items() if not self._is_outdated(key, queued.value)}
            for key in self._queue.keys() - batch.keys():
                del self._queue[key]
                self._apply(key, self._written.get(key))
            if not batch:
                continue
            try:
                await self.log.send_all([(key, queued.value) for key, queued in batch.items()], 15)
            except MillraceError as error:
                level = logging.WARNING if isinstance(error, Retriable) else logging.ERROR
                _log.log(level, "Statuses were not written, retrying: %s", error)
                await asyncio.sleep(_RETRY_S)
                self._wake.set()
                continue
            for key, queued in batch.items():
                # A later status of the same key stays in the queue.
                if self._queue.get(key) is queued:
                    del self._queue[key]
                    self._take_following(key, queued)

    def _take_following(self, key: bytes, acknowledged: _QueuedStatus) -> None:
        """Take what followed a record of this worker in the topic before Kafka acknowledged that one."""
        following = self._written.get(key)
        if acknowledged.returned and following != acknowledged.value:
            self._apply(key, following)
            if following is None:
                self._written_here.discard(key)
            self._tell_listener(key, removed=following is None)

    def _is_outdated(self, key: bytes, value: bytes | None) -> bool:
        current, new = _status_of(key, self._written.get(key)), _status_of(key, value)
        return current is not None and new is not None and not can_write_safely(current, new)

    def _sink(self, partition: int, records: Iterable[FetchedRecord]) -> None:
        del partition
        changed: dict[bytes, bytes | None] = {}
        forgotten: list[tuple[bytes, Unit]] = []
        for record in records:
            key, value = record.key, record.value
            if key is None:
                continue
            if value is None:
                self._written.pop(key, None)
                forgotten += self._tasks_of(key)
            else:
                self._written[key] = value
            changed[key] = value
            # What is about to be written is newer than what comes back.
            if key not in self._queue:
                self.state.apply(key, value)
            elif self._queue[key].value == value:
                self._queue[key].returned = True
        for key, value in changed.items():
            if value is None and key not in self._queue:
                self._written_here.discard(key)
            if value is None or (key not in self._queue and (key in self._written_here or _UNASSIGNED in value)):
                self._tell_listener(key, removed=value is None)
        # Not before the listener knows: it reports again what runs here.
        self._restore_tasks(forgotten)

    def _apply(self, key: bytes, value: bytes | None) -> None:
        """Fold a record into ``state``."""
        forgotten = self._tasks_of(key) if value is None else []
        self.state.apply(key, value)
        self._restore_tasks(forgotten)

    def _restore_tasks(self, forgotten: Iterable[tuple[bytes, Unit]]) -> None:
        """Bring back what a connector's removal has removed from ``state``, but not from the topic.

        There its tasks' statuses are in other partitions: some may be of a connector that was recreated, and of others the
        leader has to know, which removes them.
        """
        for key, unit in forgotten:
            queued = self._queue.get(key)
            status = self._written.get(key) if queued is None else queued.value
            if status is not None and self.state.task(*unit) is None:
                self.state.apply(key, status)

    def _tasks_of(self, key: bytes) -> list[tuple[bytes, Unit]]:
        """The tasks that have a status, with its key, if ``key`` is that of their connector's status."""
        try:
            record = decode_status(key, None)
        except Skippable:
            return []
        if not isinstance(record, ConnectorStatusRecord):
            return []
        name = record.connector
        return [(task_status_record(name, task, None)[0], Unit(name, task)) for task in self.state.tasks(name)]

    def _tell_listener(self, key: bytes, *, removed: bool) -> None:
        try:
            record = decode_status(key, None)
        except Skippable:
            return  # counted where it was folded
        if isinstance(record, TopicStatusRecord):
            if removed:
                self._on_topic_gone(record.connector, record.topic)
        else:
            self._on_gone(record.connector, record.task if isinstance(record, TaskStatusRecord) else None)


def _status_of(key: bytes, value: bytes | None) -> ReportedStatus | None:
    if value is None:
        return None
    try:
        status = decode_status(key, value).status
    except Skippable:
        return None
    return status if isinstance(status, ReportedStatus) else None


def internal_topics(config: Config, properties: Mapping[str, str]) -> list[InternalTopic]:
    """The four compacted topics that a worker keeps its cluster's state in, as its properties ask for them. Pure.

    Args:
        config: The worker's parsed properties.
        properties: The same, as in its file.
    """
    return [
        internal_topic(
            "config",
            properties,
            name=config["config.storage.topic"],
            partitions=1,
            replication_factor=config["config.storage.replication.factor"],
        ),
        internal_topic(
            "offset",
            properties,
            name=config["offset.storage.topic"],
            partitions=config["offset.storage.partitions"],
            replication_factor=config["offset.storage.replication.factor"],
        ),
        internal_topic(
            "status",
            properties,
            name=config["status.storage.topic"],
            partitions=config["status.storage.partitions"],
            replication_factor=config["status.storage.replication.factor"],
        ),
        internal_topic(
            "placement",
            {},
            name=placement_topic(config),
            partitions=1,
            replication_factor=config["config.storage.replication.factor"],
            prop="placement.storage.topic",
        ),
    ]


@dataclass(frozen=True, slots=True)
class ClusterStores:
    """The topics that hold the cluster's state, folded."""

    config: ConfigStore
    placement: PlacementStore
    status: StatusStore
