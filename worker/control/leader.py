"""The duties of the leader: writing the config topic, placing units, fencing zombies, keeping the session key.

All its records go through one transactional producer (``connect-cluster-<group>``, as Kafka Connect's leader with exactly
once; ``leader_writer``): a newer leader's producer fences it, so a leader that doesn't know yet that it was replaced can't
change anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from aiokafka.errors import KafkaError

from connectors.errors import MillraceError
from offsets.records import (
    ReportedStatus,
    SessionKeyRecord,
    connector_status_record,
    session_key_record,
    task_status_record,
    topic_status_record,
)
from worker.control.fencing import TaskFencing
from worker.control.group.membership import cluster_members, lately_put_out, takeover_s
from worker.control.leader_writer import LeaderWriter, Overtaken
from worker.control.placement.planning import (
    INSTANCE,
    Unit,
)
from worker.control.placement.rounds import PlacementRounds
from worker.control.placement.table import advance_slots, lost_units, row_record
from worker.control.state.instructions import instructions_record
from worker.control.state.verifications import verification_record
from worker.rest.facade import NotLeader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from offsets.cluster import ClusterSnapshot
    from offsets.records import Pair
    from worker.control.group.membership import GroupView
    from worker.control.state.stores import ClusterStores

_log = logging.getLogger(__name__)
_RETRY_S: Final = 1.0
#: The pause between two rounds of placement: this many times the CPU time of the last one, up to the limit below.
_PAUSE: Final = 4
_LONGEST_PAUSE_S: Final = 0.25
#: Between two looks whether a worker that was put out of the group has come back.
_LOOK_S: Final = 0.1
_KEY_BYTES: Final = {"HmacSHA1": 20, "HmacSHA256": 32, "HmacSHA384": 48, "HmacSHA512": 64}


class LeaderDuties:
    """The leader's work; idle on the other workers.

    Args:
        stores: the cluster's state.
        producer: aiokafka producer arguments with the transactional id.
        settings: the parsed worker configuration (session key and exactly once).
        task_producer: aiokafka producer arguments of a connector's tasks by the connector's configuration, for fencing.
        me: this worker's incarnation.
        in_touch: whether Kafka surely counts this worker in now. One that has lost touch knows an old view of the group only:
            it would fence the leader that the others have chosen, and place units on workers that are gone.
        settled: whether no rebalance is under way, with which a worker may come back.
    """

    def __init__(
        self,
        stores: ClusterStores,
        producer: Mapping[str, Any],
        settings: Mapping[str, Any],
        task_producer: Callable[[Mapping[str, str]], Awaitable[dict[str, Any]]],
        me: str,
        *,
        exactly_once: bool,
        in_touch: Callable[[], bool] = lambda: True,
        settled: Callable[[], bool] = lambda: True,
    ) -> None:
        self._config, self._placement, self._status = stores.config, stores.placement, stores.status
        self._settings = settings
        self._me = me
        self._exactly_once = exactly_once
        self._in_touch = in_touch
        self._settled = settled
        #: Workers that were put out of the group, and when this worker learned of the last one.
        self._put_out: frozenset[str] = frozenset()
        self._put_out_at = 0.0
        self.view: GroupView | None = None
        self.rounds = PlacementRounds()
        self._published: tuple[ClusterSnapshot, GroupView, int] | None = None
        self._writer = LeaderWriter(stores, producer, self._interrupted)
        self.fencing = TaskFencing(self, settings, task_producer)
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._not_before = 0.0

    def renew(self, arguments: Mapping[str, Any]) -> None:
        """Log in with the credentials among ``arguments`` from the next connection on."""
        self._writer.renew(arguments)

    def start(self) -> None:
        """Begin; does not block."""
        self._writer.start()
        self._loop = asyncio.create_task(self._run_loop(), name="leader")

    async def stop(self) -> None:
        """Stop leading; takes a few seconds at most."""
        if self._loop is not None:
            self._loop.cancel()
        loops = () if self._loop is None else (self._loop,)
        await asyncio.gather(self.fencing.stop(), *loops, return_exceptions=True)
        await self._writer.stop()

    def see(self, view: GroupView) -> None:
        """A new view of the group."""
        self.view = view
        put_out = lately_put_out(view)
        if put_out - self._put_out:
            self._put_out_at = time.monotonic()
        self._put_out = put_out
        self._wake.set()

    def wake(self) -> None:
        """Something placement depends on has changed."""
        self._wake.set()

    @property
    def active(self) -> bool:
        """Whether this worker leads."""
        return self._writer.is_open

    @property
    def term(self) -> int:
        """How often this worker became the leader."""
        return self._writer.term

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The config topic's contents."""
        return self._config.snapshot

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

    async def write(
        self,
        config: Sequence[Pair] = (),
        placement: Sequence[Pair] = (),
        still_holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """Write records in one transaction and wait until this worker has folded them in; see ``LeaderWriter.write``.

        Raises:
            Overtaken: ``still_holds`` says no.
            NotLeader: this worker does not lead (any more).
            RestError: 500: Kafka did not take the records; whether they were written is open.
        """
        self.check()
        await self._writer.write(config, placement, still_holds)

    def _interrupted(self) -> None:
        self._not_before = time.monotonic() + _RETRY_S
        self._wake.set()

    async def _run_loop(self) -> None:
        while True:
            timeout = _LOOK_S if self._waits_for_return() else 5.0 if self.active else _RETRY_S
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                if not self.chosen:
                    await self._writer.close()
                    continue
                if not self.active:
                    if time.monotonic() < self._not_before:
                        continue
                    await self._take_over()
                await self._lead_once()
            except (MillraceError, KafkaError, OSError, TimeoutError) as error:
                _log.warning("The leader's work was interrupted, retrying: %s", str(error) or type(error).__name__)
                self._not_before = time.monotonic() + _RETRY_S
            except Exception:  # noqa: BLE001 - a mistake in one round must not end the leader's work
                _log.exception("The leader's work failed, retrying")
                self._not_before = time.monotonic() + _RETRY_S

    async def _take_over(self) -> None:
        """Fence an earlier leader, read everything it wrote, and lead."""
        started = time.monotonic()
        if not await self._writer.open(lambda: self.chosen):
            return
        self.rounds.restart()
        self._published = None
        _log.info("This worker leads the cluster (took %.2f s)", time.monotonic() - started)

    async def _lead_once(self) -> None:
        if not self.active:
            return
        await self._keep_session_key()
        await self._publish_placement()
        if self._exactly_once:
            self.fencing.fence_pending()
        self._forget_statuses()
        await self._forget_instructions()

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
        members = cluster_members(view)
        live = {worker_id: member.incarnation for worker_id, member in members.items()}
        lost = lost_units(table, live)
        if self._waits_for_return() and not live.keys() >= set(lost.values()):
            return
        epoch = max(table.epoch, self._status_epoch() if table.epoch == 0 else 0) + 1
        placement = self.rounds.assign_units(members, self._config.snapshot, table)
        changes = advance_slots(table, placement.assigned, live, epoch)
        spent = time.process_time() - started
        self.rounds.count(table, placement, changes)
        if changes:
            # A lost worker that comes back reads the placement: it must see that its units are given away, or they must not be.
            with contextlib.suppress(Overtaken):
                await self.write(
                    placement=[row_record(name, slots, epoch) for name, slots in changes.items()],
                    still_holds=lambda: not lost or (self.view is view and self._settled()),
                )
                self._mark_lost(lost, epoch)
        else:
            self._published = inputs
        # In a large cluster one round takes a while: many changes at once are taken together, and REST gets its turns.
        await asyncio.sleep(min(_LONGEST_PAUSE_S, _PAUSE * spent))

    def _waits_for_return(self) -> bool:
        """Whether a worker that was put out of the group may live, and still run its units: then nothing is placed."""
        if not self._put_out:
            return False
        since = time.monotonic() - self._put_out_at
        session_s = self._settings["session.timeout.ms"] / 1000
        if since >= session_s:
            return False
        return not self._settled() or since < takeover_s(self._settings["heartbeat.interval.ms"] / 1000, session_s)

    def _mark_lost(self, lost: Mapping[Unit, str], epoch: int) -> None:
        """Units that were given away, because their workers are gone, are UNASSIGNED now, whatever their last status says.

        Not before: a worker that comes back in time keeps them, and its status is of an older epoch.
        """
        state = self._status.state
        for unit, worker in lost.items():
            current = (
                state.connector(unit.connector) if unit.task == INSTANCE else state.task(unit.connector, unit.task)
            )
            if (
                unit.connector not in self._config.snapshot.connectors
                or current is None
                or current.state == "UNASSIGNED"
                or current.generation >= epoch  # its new owner runs it already
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
