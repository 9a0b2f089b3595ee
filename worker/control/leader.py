"""The duties of the leader: writing the config topic, placing units, fencing zombies, keeping the session key.

All its records go through one transactional producer (``connect-cluster-<group>``, as Kafka Connect's leader with exactly
once): a newer leader's producer fences it, so a leader that doesn't know yet that it was replaced can't change anything.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

from connectors.errors import MillraceError, Retriable
from offsets.fetch import CREDENTIALS, abandon_producer, renew_credentials
from offsets.records import (
    ReportedStatus,
    SessionKeyRecord,
    connector_status_record,
    session_key_record,
    task_count_record,
    task_status_record,
    topic_status_record,
)
from worker.control.fencing import fence_producers
from worker.control.placement.planning import (
    INSTANCE,
    TOGETHER_KEY,
    Placement,
    Unit,
    Worker,
    place_units,
    read_requirement,
)
from worker.control.placement.table import advance_slots, lost_units, row_record
from worker.control.state.instructions import instructions_record
from worker.control.state.verifications import verification_record
from worker.rest.facade import NotLeader, RestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from offsets.cluster import ClusterSnapshot
    from offsets.records import Pair
    from worker.control.membership import GroupView
    from worker.control.placement.planning import Requirement
    from worker.control.state.stores import ConfigStore, PlacementStore, StatusStore

_log = logging.getLogger(__name__)
_WRITE_DEADLINE_S: Final = 20.0
_APPLY_DEADLINE_S: Final = 20.0
_RETRY_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 0.25
_FENCE_DEADLINE_S: Final = 30.0
_KEY_BYTES: Final = {"HmacSHA1": 20, "HmacSHA256": 32, "HmacSHA384": 48, "HmacSHA512": 64}


def wanted_units(snapshot: ClusterSnapshot) -> dict[Unit, Requirement]:
    """Every unit that shall be placed, with what it needs of its worker. Pure."""
    units: dict[Unit, Requirement] = {}
    for name, config in snapshot.connectors.items():
        needed = read_requirement(config)
        units[Unit(name, INSTANCE)] = needed
        for task, task_config in enumerate(snapshot.task_configs(name)):
            # A task may ask for another node than its connector does; its own word counts.
            units[Unit(name, task)] = read_requirement({**config, **task_config})
    return units


def groups_of(snapshot: ClusterSnapshot) -> dict[Unit, str]:
    """The groups of tasks that share a worker, by task. Pure."""
    return {
        Unit(name, task): config[TOGETHER_KEY]
        for name in snapshot.connectors
        for task, config in enumerate(snapshot.task_configs(name))
        if config.get(TOGETHER_KEY)
    }


def fencing_count(snapshot: ClusterSnapshot, name: str) -> int:
    """How many transactional ids must be fenced before the connector's new tasks may start (KIP-618). Pure.

    None were started with exactly once before the first task count record; a single task that follows a single one takes
    over its id, and that alone fences the old one.
    """
    if name not in snapshot.pending_fencing:
        return 0
    before = snapshot.fenced_counts.get(name, 0)
    return 0 if before == 1 and snapshot.task_counts.get(name, 0) == 1 else before


@dataclass(frozen=True, slots=True)
class _Write:
    """Records that someone wants written, and where their offsets go."""

    config: list[Pair]
    placement: list[Pair]
    done: asyncio.Future[tuple[int | None, int | None]]


class LeaderDuties:
    """The leader's work; idle on the other workers.

    Args:
        config: the config topic.
        placement: the placement topic.
        status: the status topic.
        producer: aiokafka producer arguments with the transactional id.
        settings: the parsed worker configuration (session key and exactly once).
        task_producer: aiokafka producer arguments of a connector's tasks by the connector's configuration, for fencing.
        me: this worker's incarnation.
        in_touch: whether Kafka surely counts this worker in now. One that has lost touch knows an old view of the group only:
            it would fence the leader that the others have chosen, and place units on workers that are gone.
    """

    def __init__(
        self,
        config: ConfigStore,
        placement: PlacementStore,
        status: StatusStore,
        producer: Mapping[str, Any],
        settings: Mapping[str, Any],
        task_producer: Callable[[Mapping[str, str]], dict[str, Any]],
        me: str,
        *,
        exactly_once: bool,
        in_touch: Callable[[], bool] = lambda: True,
    ) -> None:
        self._config = config
        self._placement = placement
        self._status = status
        self._producer_arguments = dict(producer)
        self._settings = settings
        self._task_producer = task_producer
        self._me = me
        self._exactly_once = exactly_once
        self._in_touch = in_touch
        self.view: GroupView | None = None
        self.active = False
        self.reasons: dict[Unit, str] = {}
        #: Units that went from one live worker to another while this one led, and those that are on their way or nowhere.
        self.moves = 0
        self.pending = 0
        self.nowhere = 0
        self._published: tuple[ClusterSnapshot, GroupView, int] | None = None
        self._producer: AIOKafkaProducer | None = None
        self._writes: list[_Write] = []
        self._write_wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._placed_for: frozenset[tuple[str, str, bool]] = frozenset()
        self._intended: dict[Unit, str] = {}
        self._fencing: dict[str, asyncio.Task[None]] = {}
        self._not_before = 0.0

    def renew(self, arguments: Mapping[str, Any]) -> None:
        """Log in with the credentials among ``arguments`` from the next connection on."""
        self._producer_arguments.update({name: arguments[name] for name in CREDENTIALS if name in arguments})
        if self._producer is not None:
            renew_credentials(self._producer.client, arguments)

    def start(self) -> None:
        """Begin; does not block."""
        self._writer = asyncio.create_task(self._write_all(), name="leader-writer")
        self._loop = asyncio.create_task(self._run_loop(), name="leader")

    async def stop(self) -> None:
        """Stop leading; takes a few seconds at most."""
        tasks = [task for task in (self._loop, self._writer, *self._fencing.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for pending in self._writes:
            if not pending.done.done():
                pending.done.set_exception(NotLeader(None))
        await self._step_down()

    def see(self, view: GroupView) -> None:
        """A new view of the group."""
        self.view = view
        self._wake.set()

    def wake(self) -> None:
        """Something placement depends on has changed."""
        self._wake.set()

    @property
    def chosen(self) -> bool:
        """Whether this worker is the one that shall lead."""
        return self.view is not None and self.view.leader.incarnation == self._me and self._in_touch()

    @property
    def url(self) -> str | None:
        """The leader's REST address as this worker knows it."""
        return None if self.view is None else self.view.leader.url

    def check(self) -> None:
        """Raise unless this worker leads.

        Raises:
            NotLeader: another worker does, or this one is about to (without an address then: clients retry).
        """
        if not self.active:
            raise NotLeader(None if self.chosen else self.url)

    async def write(self, config: Sequence[Pair] = (), placement: Sequence[Pair] = ()) -> None:
        """Write records in one transaction and wait until this worker has folded them in.

        Raises:
            NotLeader: this worker does not lead (any more).
            RestError: 500: Kafka did not take the records; whether they were written is open.
        """
        self.check()
        request = _Write(list(config), list(placement), asyncio.get_running_loop().create_future())
        self._writes.append(request)
        self._write_wake.set()
        last_config, last_placement = await request.done
        try:
            if last_config is not None:
                await self._config.applied.wait(last_config, _APPLY_DEADLINE_S)
            if last_placement is not None:
                await self._placement.applied.wait(last_placement, _APPLY_DEADLINE_S)
        except TimeoutError:
            raise RestError(
                500,
                "The change was written to Kafka but could not be read back within "
                f"{_APPLY_DEADLINE_S:g} s. Check the brokers",
            ) from None

    async def _write_all(self) -> None:
        """Write whatever waits, together: a transaction takes as long for many records as for one.

        A task of its own, so that a request that is given up by its client never leaves a transaction half done.
        """
        while True:
            await self._write_wake.wait()
            self._write_wake.clear()
            batch, self._writes = self._writes, []
            if not batch:
                continue
            failure: Exception | None = None
            last: tuple[int | None, int | None] = (None, None)
            try:
                last = await self._write_transaction(batch)
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
                    await producer.send(self._config.log.topic, value, key=key)
                    for pending in batch
                    for key, value in pending.config
                ]
                placed = [
                    await producer.send(self._placement.log.topic, value, key=key)
                    for pending in batch
                    for key, value in pending.placement
                ]
                await producer.commit_transaction()
            return (await sent[-1]).offset if sent else None, (await placed[-1]).offset if placed else None
        except ProducerFenced:
            _log.warning("Another worker leads the cluster now: this one's leading ends")
            await self._step_down()
            raise NotLeader(None) from None
        except (KafkaError, OSError, TimeoutError) as error:
            await self._step_down()
            self._not_before = time.monotonic() + _RETRY_S
            self._wake.set()
            raise RestError(
                500,
                "Failed to write to Kafka: the leader's transaction did not complete within "
                f"{_WRITE_DEADLINE_S:g} s ({error!r}). Check the brokers and try again",
            ) from error

    async def fence(self, name: str) -> None:
        """Fence the producers of a connector's earlier tasks and say so in the config topic; at once if there are none.

        Raises:
            NotLeader: this worker does not lead.
            RestError: 500: a producer could not be fenced.
        """
        self.check()
        task = self._fencing.get(name)
        if task is None:
            task = self._fence_soon(name, self._fence_connector)
        await asyncio.shield(task)

    async def fence_ids(self, name: str, count: int) -> None:
        """Fence the transactional ids of tasks 0 to ``count - 1`` of a connector.

        Raises:
            RestError: 500: one could not be fenced.
        """
        connector = self._config.snapshot.connectors.get(name, {})
        ids = [f"{self._settings['group.id']}-{name}-{task}" for task in range(count)]
        try:
            await fence_producers(self._task_producer(connector), ids, _FENCE_DEADLINE_S)
        except Retriable as error:
            raise RestError(500, f"Failed to fence out task producers for source connector {name}: {error}") from error

    async def _fence_connector(self, name: str) -> None:
        snapshot = self._config.snapshot
        if name not in snapshot.pending_fencing or name not in snapshot.connectors:
            return
        count = fencing_count(snapshot, name)
        if count:
            _log.info("Fencing %d producers of earlier tasks of connector %s", count, name)
            await self.fence_ids(name, count)
        await self.write([task_count_record(name, snapshot.task_counts.get(name, 0))])

    async def _run_loop(self) -> None:
        while True:
            timeout = 5.0 if self.active else _RETRY_S
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                if not self.chosen:
                    await self._step_down()
                    continue
                if not self.active:
                    if time.monotonic() < self._not_before:
                        continue
                    await self._take_over()
                await self._lead_once()
            except (MillraceError, KafkaError, OSError, TimeoutError) as error:
                _log.warning("The leader's work was interrupted, trying again: %s", str(error) or type(error).__name__)
                self._not_before = time.monotonic() + _RETRY_S
            except Exception:  # noqa: BLE001 - a mistake in one round must not end the leader's work
                _log.exception("The leader's work failed, trying again")
                self._not_before = time.monotonic() + _RETRY_S

    async def _take_over(self) -> None:
        """Fence an earlier leader, read everything it wrote, and lead."""
        started = time.monotonic()
        producer = AIOKafkaProducer(**self._producer_arguments)
        try:
            async with asyncio.timeout(_WRITE_DEADLINE_S):
                await producer.start()
            # Only now is what an earlier leader left open aborted, and the end of the topics the end.
            await asyncio.gather(
                self._config.log.read_to_end(_APPLY_DEADLINE_S), self._placement.log.read_to_end(_APPLY_DEADLINE_S)
            )
        except BaseException:
            await abandon_producer(producer)
            raise
        if not self.chosen:
            await abandon_producer(producer)
            return
        self._producer = producer
        self.active = True
        self._placed_for = frozenset()
        self._intended = {}
        self._published = None
        _log.info("This worker leads the cluster (took %.2f s)", time.monotonic() - started)

    async def _step_down(self) -> None:
        self.active = False
        producer, self._producer = self._producer, None
        if producer is not None:
            await abandon_producer(producer)

    async def _lead_once(self) -> None:
        if not self.active:
            return
        await self._keep_session_key()
        await self._publish_placement()
        if self._exactly_once:
            for name in self._config.snapshot.pending_fencing:
                if name in self._config.snapshot.connectors and name not in self._fencing:
                    self._fence_soon(name, self._fence_again)
        self._forget_statuses()
        await self._forget_instructions()

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
            _log.warning("Connector %s: its earlier tasks could not be fenced yet, trying again: %s", name, error)
            await asyncio.sleep(_RETRY_S)
        self._wake.set()

    async def _keep_session_key(self) -> None:
        current = self._config.snapshot.session_key
        algorithm = self._settings["inter.worker.key.generation.algorithm"]
        now = int(time.time() * 1000)
        ttl = self._settings["inter.worker.key.ttl.ms"]
        if current is not None and current.algorithm == algorithm and (ttl == 0 or now - current.created_ms < ttl):
            return
        size = self._settings["inter.worker.key.size"]
        key = secrets.token_bytes(size // 8 if size else _KEY_BYTES[algorithm])
        await self.write([session_key_record(SessionKeyRecord(key, algorithm, now))])

    async def _publish_placement(self) -> None:
        """Place everything and publish what changed; one step of every hand-over that can continue."""
        view = self.view
        if view is None:
            return
        table = self._placement.table
        inputs = (self._config.snapshot, view, table.version)
        before = self._published
        if before is not None and before[0] is inputs[0] and before[1] is inputs[1] and before[2] == inputs[2]:
            return
        started = time.process_time()
        live = {worker_id: member.incarnation for worker_id, member in view.members.items()}
        epoch = max(table.epoch, self._status_epoch() if table.epoch == 0 else 0) + 1
        self._mark_lost(live, epoch)
        placement = self._place_units(view)
        changes = advance_slots(table, placement.assigned, live, epoch)
        spent = time.process_time() - started
        self.pending = self.nowhere + sum(
            slot.revoked for slots in (table.slots | changes).values() for slot in slots.values()
        )
        self.moves += sum(
            slot.revoked and table.get(Unit(name, task)) != slot and Unit(name, task) in placement.assigned
            for name, slots in changes.items()
            for task, slot in slots.items()
        )
        if changes:
            await self.write(placement=[row_record(name, slots, epoch) for name, slots in changes.items()])
        else:
            self._published = inputs
        # In a large cluster one round takes a while: many changes at once are taken together, and REST gets its turns.
        await asyncio.sleep(min(_LONGEST_PAUSE_S, spent))

    def _place_units(self, view: GroupView) -> Placement:
        workers = {
            worker_id: Worker(member.capacity, member.labels, member.draining)
            for worker_id, member in view.members.items()
        }
        present = frozenset(
            (worker_id, member.incarnation, member.draining) for worker_id, member in view.members.items()
        )
        previous = {**self._intended, **self._placement.table.placed()}
        for unit, worker in self._intended.items():
            slot = self._placement.table.get(unit)
            if slot is not None and (slot.revoked or slot.owner.worker != worker):
                previous[unit] = worker  # it is on its way there
        units = wanted_units(self._config.snapshot)
        placement = place_units(
            units,
            workers,
            previous,
            rebalance=present != self._placed_for,
            together=groups_of(self._config.snapshot),
        )
        self.nowhere = len(units) - len(placement.assigned)
        self.reasons.update(placement.reasons)
        for unit in self.reasons.keys() - units.keys():
            del self.reasons[unit]
        self._placed_for = present
        self._intended = placement.assigned
        return placement

    def _mark_lost(self, live: Mapping[str, str], epoch: int) -> None:
        """Units of workers that are gone are UNASSIGNED from now on, whatever their last status says."""
        state = self._status.state
        for unit, worker in lost_units(self._placement.table, live).items():
            current = (
                state.connector(unit.connector) if unit.task == INSTANCE else state.task(unit.connector, unit.task)
            )
            if (
                unit.connector not in self._config.snapshot.connectors
                or current is None
                or current.state == "UNASSIGNED"
            ):
                continue
            status = ReportedStatus("UNASSIGNED", worker, epoch, None, current.version)
            self._status.put(
                connector_status_record(unit.connector, status)
                if unit.task == INSTANCE
                else task_status_record(unit.connector, unit.task, status)
            )

    def _status_epoch(self) -> int:
        """The highest generation in any status: epochs of a cluster that takes over another's topics continue from it."""
        state = self._status.state
        epochs = [0]
        for name in state.connectors():
            status = state.connector(name)
            epochs.append(0 if status is None else status.generation)
            epochs.extend(task_status.generation for task_status in state.tasks(name).values())
        return max(epochs)

    async def _forget_instructions(self) -> None:
        """Remove what was asked of connectors that no longer exist, whoever deleted them."""
        gone = [
            name for name in self._placement.instructions.connectors() if name not in self._config.snapshot.connectors
        ]
        records = [instructions_record(name, []) for name in gone] + [
            verification_record(name, None)
            for name in self._placement.verifications.connectors()
            if name not in self._config.snapshot.connectors
        ]
        if records:
            await self.write(placement=records)

    def _forget_statuses(self) -> None:
        """Remove statuses of connectors and tasks that no longer exist."""
        snapshot, state = self._config.snapshot, self._status.state
        for name in state.with_topics():
            if name not in snapshot.connectors:
                for topic in state.topics(name):
                    self._status.put(topic_status_record(name, topic, None))
        for name in state.connectors():
            if name not in snapshot.connectors:
                for task in state.tasks(name):
                    self._status.put(task_status_record(name, task, None))
                self._status.put(connector_status_record(name, None))
                continue
            count = len(snapshot.task_configs(name))
            if name in snapshot.inconsistent:
                continue
            for task in state.tasks(name):
                if task >= count and self._placement.table.get(Unit(name, task)) is None:
                    self._status.put(task_status_record(name, task, None))
