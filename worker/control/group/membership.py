"""Membership of the cluster: Kafka's group protocol, run by Faust.

Each worker's metadata travels in its JoinGroup request; the member that Kafka made the group's leader sees them all and
hands the whole list to everybody in the assignment. The single partition of the group's one small topic goes to the worker
that leads the cluster, so ``app.is_leader()`` tells it too. Faust runs the consumer in a thread of its own: what is called
there is marked, and reaches the control process's loop by ``call_soon_threadsafe``.

Faust's protocol is eager, but tasks are not tied to partitions: nothing stops for a rebalance.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiokafka import AIOKafkaConsumer
from aiokafka.client import ConnectionGroup
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.errors import InconsistentGroupProtocolError, KafkaError, NoError, UnknownMemberIdError, for_code
from aiokafka.protocol.group import LeaveGroupRequest
from aiokafka.protocol.metadata import MetadataRequest
from faust.assignor.leader_assignor import LeaderAssignor
from faust.assignor.partition_assignor import PartitionAssignor
from faust.transport.drivers import aiokafka as driver

from offsets.aiokafka_internals import client_of, coordinator_calls, coordinator_of, replace_coordinator_calls
from offsets.fetch import renew_credentials
from worker.metrics.traffic import MeteredSelectorLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.protocol import ClientStats

_FAUST_LOG: Final = logging.getLogger("faust.millrace")

#: Version of the metadata's layout; a worker with another one is still a member, unknown fields are ignored.
_VERSION: Final = 1
_log = logging.getLogger("worker.membership")


class WorkerMember(msgspec.Struct, frozen=True, kw_only=True):
    """One live worker process, as it describes itself.

    Attributes:
        worker_id: ``host:port`` of its REST listener, as in statuses.
        url: base address of its REST listener.
        incarnation: differs for every start of the process.
        started_ms: when the process started, milliseconds since the epoch.
        capacity: relative room for tasks (the number of its task hosts).
        labels: ``node.labels``.
        draining: it hands its work over and gets none.
        leading: it was the cluster's leader when it joined.
        put_out: incarnations of workers that it has put out of the group lately.
        config_topic: ``config.storage.topic``; empty if it does not say.
        member_id: Kafka's name for it; written by the group's leader.
    """

    worker_id: str
    url: str
    incarnation: str
    started_ms: int = 0
    capacity: int = 1
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    draining: bool = False
    leading: bool = False
    put_out: list[str] = msgspec.field(default_factory=list)
    config_topic: str = ""
    member_id: str = ""


class Roster(msgspec.Struct, frozen=True):
    """The message from the group's leader to all members: all live workers, and which of them leads."""

    members: list[WorkerMember]
    leader: str  # an incarnation


class GroupView(msgspec.Struct, frozen=True):
    """One generation of the group as this worker sees it.

    Attributes:
        generation: Kafka's generation number.
        members: live workers by worker id.
        leader: the leading worker.
    """

    generation: int
    members: dict[str, WorkerMember]
    leader: WorkerMember


def find_foreign_members(view: GroupView, config_topic: str) -> list[WorkerMember]:
    """Members that belong to another cluster: their configurations are in another topic, by worker id."""
    members = (member for _, member in sorted(view.members.items()))
    return [member for member in members if member.config_topic not in {"", config_topic}]


def cluster_members(view: GroupView) -> dict[str, WorkerMember]:
    """The members of the leader's cluster, by worker id, and those that do not say which cluster is theirs. Pure."""
    topic = view.leader.config_topic
    foreign = find_foreign_members(view, topic) if topic else []
    return {worker_id: member for worker_id, member in view.members.items() if member not in foreign}


def choose_leader(members: Sequence[WorkerMember]) -> WorkerMember:
    """The worker that leads: the one that does already, otherwise the one that has been up longest; a draining one last."""
    return min(members, key=lambda member: (member.draining, not member.leading, member.started_ms, member.incarnation))


def newest_members(members: Sequence[WorkerMember]) -> dict[str, WorkerMember]:
    """Members by worker id; of two with one address only the newest process can be alive (it has the port)."""
    result: dict[str, WorkerMember] = {}
    for member in sorted(members, key=lambda member: (member.started_ms, member.incarnation)):
        result[member.worker_id] = member
    return result


#: The share of the session timeout after which a worker that hears nothing of Kafka stops its tasks.
_TRUSTED_SHARE: Final = 2 / 3
#: A worker that was put out of the group learns it by its next heartbeat, and is back within that many of them.
_RETURN_HEARTBEATS: Final = 2
#: What the leader allows in addition: a worker that is not back has killed its hosts by then.
_KILL_MARGIN_S: Final = 0.5


def return_s(heartbeat_s: float) -> float:
    """Seconds within which a worker that was put out of the group is in it again, or stops its units. Pure."""
    return _RETURN_HEARTBEATS * heartbeat_s


def takeover_s(heartbeat_s: float, session_s: float) -> float:
    """Seconds after which units of a worker that was put out of the group may run elsewhere. Pure."""
    return min(return_s(heartbeat_s) + _KILL_MARGIN_S, session_s)


def lately_put_out(view: GroupView) -> frozenset[str]:
    """Incarnations that a member has put out of the group, and that have not come back. Pure."""
    members = view.members.values()
    return frozenset(incarnation for member in members for incarnation in member.put_out) - {
        member.incarnation for member in members
    }


class Contact:
    """When Kafka last confirmed this worker's membership; written by the consumer's thread, read by the loop.

    Args:
        session_s: the session timeout, in seconds.
        heartbeat_s: the time between heartbeats, in seconds.

    ``confirmed`` is the monotonic time at which the last confirmed request was *sent*, so that the broker counts from later.
    ``joining_since`` is that at which joining began, 0 while nothing is to be joined; ``joins_s`` and ``join_s_max`` are the
    seconds that it took altogether, and at most.
    """

    def __init__(self, session_s: float, heartbeat_s: float) -> None:
        self.session_s = session_s
        self.heartbeat_s = heartbeat_s
        self.confirmed = 0.0
        self.joined = False
        #: Kafka has said that this worker is not in the group (any more).
        self.counted_out = False
        #: The group waits for what this worker assigns to its members.
        self.assigning = False
        self.joining_since = 0.0
        self.joins_s = 0.0
        self.join_s_max = 0.0
        #: Why Kafka will not let this worker into the group, if it will not.
        self.refused: KafkaError | None = None

    def age(self) -> float:
        """Seconds since the last confirmation."""
        return time.monotonic() - self.confirmed

    @property
    def trusted_until(self) -> float:
        """The monotonic time until which no other worker can have been given this one's units."""
        trusted_s = self.session_s * _TRUSTED_SHARE
        return self.confirmed + (min(return_s(self.heartbeat_s), trusted_s) if self.counted_out else trusted_s)

    def is_trusted(self) -> bool:
        """Whether that time has not passed."""
        return time.monotonic() < self.trusted_until

    def joins(self) -> None:
        """Handle the start or the retry of a rebalance."""
        self.joined = False
        self.joining_since = self.joining_since or time.monotonic()

    def has_joined(self) -> None:
        """A rebalance has ended, with this worker in the group."""
        self.confirmed = time.monotonic()
        took = self.confirmed - (self.joining_since or self.confirmed)
        self.joins_s += took
        self.join_s_max = max(self.join_s_max, took)
        self.joining_since = 0.0
        self.joined = True
        self.counted_out = False
        self.refused = None


class GroupMembership:
    """This worker's place in the group: its own metadata, and each new view.

    Args:
        describe: gives this worker's current metadata (called in the consumer's thread).
        deliver: called on the loop with every new view.
        loop: the control process's loop.
        topic: the group's topic.
        takeover_s: how long members of another program may hold the group at the start.
        session_s: the session timeout, in seconds.
        heartbeat_s: the time between heartbeats, in seconds.
    """

    def __init__(
        self,
        describe: Callable[[], WorkerMember],
        deliver: Callable[[GroupView], None],
        loop: asyncio.AbstractEventLoop,
        topic: str,
        takeover_s: float,
        session_s: float,
        heartbeat_s: float,
    ) -> None:
        self._describe = describe
        self.topic = topic
        self.takeover_s = takeover_s
        self.contact = Contact(session_s, heartbeat_s)
        #: Incarnations that this worker has put out -> the monotonic time until which it says so when it joins.
        self._put_out: dict[str, float] = {}
        #: Whether it said so when it last joined.
        self._announced = False
        self._deliver = deliver
        self._loop = loop
        self._thread: _ConsumerThread | None = None
        #: The thread's event loop.
        self.thread_loop = MeteredSelectorLoop()

    def traffic(self) -> list[ClientStats]:
        """Return the group client's counts of sent and received data; may be called in any thread."""
        return self.thread_loop.meter.report()

    def close(self) -> None:
        """Release the loop, once the thread has ended."""
        if not self.thread_loop.is_running():
            self.thread_loop.close()

    def describe(self) -> WorkerMember:
        """This worker's metadata (called in the consumer's thread)."""
        now = time.monotonic()
        self._put_out = {incarnation: until for incarnation, until in self._put_out.items() if until > now}
        self._announced = bool(self._put_out)
        return msgspec.structs.replace(self._describe(), put_out=sorted(self._put_out))

    def announce(self, incarnation: str) -> bool:
        """Have the next generation say that this worker puts another one out (called in the consumer's thread).

        Returns False if that can't be promised: this worker's word for the next generation is on its way already.
        """
        if not (self.contact.joined or self._announced):
            return False
        self._put_out[incarnation] = time.monotonic() + self.contact.session_s
        return True

    async def put_out(self, member: WorkerMember) -> bool:
        """Leave the group on behalf of another worker; returns whether Kafka has counted it out."""
        return self._thread is not None and await self._thread.put_out(member)

    def attach(self, thread: _ConsumerThread) -> None:
        """Called by the consumer's thread once it has its consumer."""
        self._thread = thread

    def delivered(self, roster: Roster) -> None:
        """A new generation's roster (called in the consumer's thread)."""
        leader = next((member for member in roster.members if member.incarnation == roster.leader), None)
        if leader is None or self._thread is None:
            return
        view = GroupView(self._thread.generation(), newest_members(roster.members), leader)
        self._loop.call_soon_threadsafe(self._deliver, view)

    def renew(self, arguments: Mapping[str, Any]) -> None:
        """Log in with the credentials among ``arguments`` from the next connection on. Does not block."""
        if self._thread is not None:
            self._thread.renew(arguments)

    def rejoin(self) -> None:
        """Join again with changed metadata; all workers see it within a heartbeat interval. Does not block."""
        if self._thread is not None:
            self._thread.rejoin()


def shell_classes(
    membership: GroupMembership,
    consumer: Mapping[str, Any],
) -> tuple[type[PartitionAssignor], type[LeaderAssignor], type[driver.Transport]]:
    """The classes to give to a Faust app, bound to ``membership`` (Faust makes the instances itself).

    Args:
        membership: what they serve.
        consumer: aiokafka's consumer arguments but for the assignor: Faust's settings don't know all of them.
    """

    class Assignor(PartitionAssignor):  # type: ignore[misc]  # faust has no types
        """Sees every member's metadata on the group's leader and gives all of it to each member."""

        @property
        def name(self) -> str:
            return "millrace"

        @property
        def version(self) -> int:
            return _VERSION

        def metadata(self, topics: set[str]) -> ConsumerProtocolMemberMetadata:
            return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), msgspec.json.encode(membership.describe()))

        def assign(
            self, cluster: Any, member_metadata: Mapping[str, Any]
        ) -> dict[str, ConsumerProtocolMemberAssignment]:
            del cluster
            members = {
                member_id: msgspec.json.decode(metadata.user_data, type=WorkerMember)
                for member_id, metadata in member_metadata.items()
            }
            alive = newest_members(
                [msgspec.structs.replace(member, member_id=member_id) for member_id, member in members.items()]
            )
            leader = choose_leader(list(alive.values()))
            roster = msgspec.json.encode(Roster(list(alive.values()), leader.incarnation))
            return {
                member_id: ConsumerProtocolMemberAssignment(
                    _VERSION, [(membership.topic, [0])] if member.incarnation == leader.incarnation else [], roster
                )
                for member_id, member in members.items()
            }

        def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
            membership.delivered(msgspec.json.decode(assignment.user_data, type=Roster))

    class Leader(LeaderAssignor):  # type: ignore[misc]
        """The leader holds the group's one partition. The topic is made elsewhere, with the worker's own settings."""

        logger = _FAUST_LOG

        @property
        def _leader_topic_name(self) -> str:
            return membership.topic

        async def on_start(self) -> None:
            topic = self.app.topic(membership.topic, partitions=1, acks=False, internal=False)
            self.app.topics.add(topic)
            self.app.consumer.randomly_assigned_topics.add(membership.topic)

    class Consumer(driver.Consumer):  # type: ignore[misc]
        """Faust's consumer with a thread that reports heartbeats."""

        logger = _FAUST_LOG

        def _new_consumer_thread(self) -> _ConsumerThread:
            thread = _ConsumerThread(self, loop=self.loop, beacon=self.beacon, thread_loop=membership.thread_loop)
            thread.membership = membership
            thread.arguments = consumer
            return thread

    class Transport(driver.Transport):  # type: ignore[misc]
        """Faust's transport with that consumer."""

    Transport.Consumer = Consumer
    return Assignor, Leader, Transport


def note_contact(coordinator: Any, membership: GroupMembership) -> None:
    """Note in ``membership.contact`` what an aiokafka group coordinator hears that proves this worker is still counted in."""
    contact = membership.contact
    started = time.monotonic()
    waiting = False
    heartbeat, join, assign = coordinator_calls(coordinator)

    async def do_heartbeat() -> bool:
        sent = time.monotonic()
        alive = await heartbeat()
        if alive:
            contact.confirmed = sent
        contact.counted_out |= coordinator.generation < 0
        return alive

    async def do_rejoin_group(subscription: Any) -> bool:
        nonlocal waiting
        contact.joins()
        probing = asyncio.create_task(_probe_coordinator(coordinator, contact), name="membership-probe")
        try:
            joined = await join(subscription)
        except InconsistentGroupProtocolError as error:
            if time.monotonic() - started > membership.takeover_s:
                contact.refused = error
                raise
            if not waiting:
                waiting = True
                _log.warning(
                    "Another program's members hold the group %s, for instance Kafka Connect workers: waiting up "
                    "to %g s until they leave it or their session ends",
                    coordinator.group_id,
                    membership.takeover_s,
                )
            await asyncio.sleep(1)
            return False
        except KafkaError as error:
            contact.refused = None if error.retriable else error
            raise
        finally:
            probing.cancel()
        if joined:
            contact.has_joined()
        else:
            contact.counted_out |= coordinator.generation < 0
        return joined

    async def perform_assignment(response: Any) -> Any:
        contact.assigning = True
        try:
            return await assign(response)
        finally:
            contact.assigning = False

    replace_coordinator_calls(coordinator, do_heartbeat, do_rejoin_group, perform_assignment)


async def put_member_out(coordinator: Any, membership: GroupMembership, member: WorkerMember) -> bool:
    """Leave the group on behalf of another member, by an aiokafka group coordinator; returns whether Kafka has counted it out.

    Kafka's group decides: the others begin a new generation without it, and the member, should it live, joins again.
    """
    if coordinator.coordinator_id is None or not membership.announce(member.incarnation):
        return False
    # Broker and client take a connection's requests in turn: a JoinGroup that waits would hold this one up.
    connection = ConnectionGroup.COORDINATION if membership.contact.joined else ConnectionGroup.DEFAULT
    request = LeaveGroupRequest(coordinator.group_id, member.member_id)
    try:
        async with asyncio.timeout(2):
            answer = await client_of(coordinator).send(coordinator.coordinator_id, request, group=connection)
    except (TimeoutError, OSError, KafkaError) as error:
        _log.warning("Worker %s could not be put out of the group: %r", member.worker_id, error)
        return False
    if for_code(answer.error_code) not in (NoError, UnknownMemberIdError):
        return False
    coordinator.request_rejoin()
    return True


async def _probe_coordinator(coordinator: Any, contact: Contact) -> None:
    """No heartbeats are sent while a JoinGroup waits for a dead member's session to end: ask its coordinator something else.

    Any other broker would answer too when the coordinator has gone, and with it the JoinGroup that it kept: its successor would
    count this worker out meanwhile.
    """
    client = client_of(coordinator)
    while True:
        sent = time.monotonic()
        try:
            async with asyncio.timeout(2):  # wait_for may forget a cancellation, up to Python 3.11
                await client.send(coordinator.coordinator_id, MetadataRequest([]))
            answered = True
        except (TimeoutError, OSError, KafkaError):
            answered = False
        # A worker that was counted out while it was cut off must not come to life by a probe alone. Nor may one stay that has
        # the members' assignments to send: Kafka waits for them as long as a session, and puts it out of the group then.
        if answered and coordinator.generation > 0 and not contact.assigning:
            contact.confirmed = sent
        await asyncio.sleep(1)


class _ConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """The thread that holds the group membership."""

    logger = _FAUST_LOG
    membership: GroupMembership
    arguments: Mapping[str, Any]

    def _create_consumer(self, loop: asyncio.AbstractEventLoop) -> AIOKafkaConsumer:
        del loop  # it is the running one
        self._assignor = self.app.assignor
        return AIOKafkaConsumer(**self.arguments, partition_assignment_strategy=[self._assignor])

    async def on_start(self) -> None:
        await super().on_start()
        note_contact(coordinator_of(self._consumer), self.membership)
        self.membership.attach(self)

    def generation(self) -> int:
        """Kafka's generation number of the group, as of now."""
        number: int = coordinator_of(self._consumer).generation
        return number

    def rejoin(self) -> None:
        """Ask the coordinator to join again; safe from any thread."""
        coordinator = coordinator_of(self._consumer)
        self.thread_loop.call_soon_threadsafe(coordinator.request_rejoin)

    async def put_out(self, member: WorkerMember) -> bool:
        """See ``put_member_out``; on any loop."""
        leaving = put_member_out(coordinator_of(self._consumer), self.membership, member)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(leaving, self.thread_loop))

    def renew(self, arguments: Mapping[str, Any]) -> None:
        """Log in with the credentials among ``arguments`` from the next connection on; safe from any thread."""
        self.arguments = {**self.arguments, **arguments}
        self.thread_loop.call_soon_threadsafe(renew_credentials, client_of(self._consumer), arguments)
