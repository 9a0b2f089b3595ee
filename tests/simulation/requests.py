"""Sequences of requests to Kafka, answered by a real broker or by the model: both must say the same.

Requests go through aiokafka's client, so that the same code asks both. Answers are compared without the numbers that a broker
is free to choose: producers and members by their order, coordinators not at all.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import KafkaError
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import TopicPartition

from offsets.admin import TopicAdmin
from offsets.fetch import Isolation, TopicFetcher

#: Answers after which a client asks again: a coordinator loads, moves or writes markers; 19 is a broker's for the last.
_TRANSIENT: Final = frozenset({6, 14, 15, 16, 19, 51})
_PAUSE_S: Final = 0.02
#: What a consumer says when it joins.
_METADATA: Final = ConsumerProtocolMemberMetadata(0, ["topic"], b"").encode()
_WAIT_MS: Final = 50

Kind = Literal[
    "init", "add", "produce", "repeat", "gap", "large", "early", "keyless", "commit", "abort", "read", "expire"
]

_PARTITIONS: Final = (0, 1)
_LEVELS: Final[tuple[Isolation, ...]] = ("read_committed", "read_uncommitted")
#: The most bytes of a batch that the topic takes.
_LARGEST: Final = 4096
#: How far timestamps of ``early`` records are beyond the broker's clock; by default it takes an hour.
_EARLY_MS: Final = 7_200_000
#: The number that an ``init`` without a transactional id has.
_PLAIN: Final = 3


@dataclass(frozen=True, slots=True)
class Step:
    """A request.

    Attributes:
        kind: what is asked. ``repeat`` sends an earlier batch again, ``gap`` leaves out sequence numbers; the topic takes no
            ``large``, ``early`` (by their timestamps) and ``keyless`` records; ``read`` reads all partitions under both
            isolation levels, ``expire`` waits until no transaction is open that has written.
        number: chooses among transactional ids (or none), or the producers there have been.
        keys: of the records; for ``repeat`` their sum says how many batches lie between.
        partition: the one that is added or written to.
        ahead: how much later the epoch is than the one that the producer was given.
    """

    kind: Kind
    number: int = 0
    keys: tuple[int, ...] = (0,)
    partition: int = 0
    ahead: int = 0


@dataclass
class _Producer:
    transactional_id: str | None
    producer: int
    epoch: int
    sequences: dict[int, int] = field(default_factory=lambda: dict.fromkeys(_PARTITIONS, 0))
    batches: dict[int, list[bytes]] = field(default_factory=lambda: {partition: [] for partition in _PARTITIONS})


@dataclass
class Conversation:
    """One client that asks.

    Args:
        servers: the brokers' addresses.
        name: makes the names of topics and ids unique.
        timeout_ms: how long a transaction may take.
    """

    servers: str
    name: str
    timeout_ms: int = 60_000
    _producers: list[_Producer] = field(default_factory=list)
    #: The last request to end a transaction, by transactional id, while it is not known whether its markers are written.
    _ending: dict[str, Any] = field(default_factory=dict)
    _fetchers: list[TopicFetcher] = field(default_factory=list)
    _values: int = 0

    @property
    def topic(self) -> str:
        """The topic that is written to."""
        return f"{self.name}-topic"

    async def run(self, steps: list[Step]) -> list[Any]:
        """All answers."""
        arguments = {"bootstrap_servers": self.servers}
        async with TopicAdmin(arguments) as admin:
            settings = {"cleanup.policy": "compact", "max.message.bytes": str(_LARGEST)}
            await admin.create(self.topic, len(_PARTITIONS), 1, settings)
        client = AIOKafkaClient(**arguments)
        self._fetchers = [TopicFetcher(self.topic, arguments, level) for level in _LEVELS]
        try:
            await client.bootstrap()
            client.set_topics([self.topic])
            await client.force_metadata_update()
            for fetcher in self._fetchers:
                await self._start(fetcher)
            return [await self._step(client, step) for step in [*steps, Step("read")]]
        finally:
            await client.close()
            for fetcher in self._fetchers:
                await fetcher.close()

    @staticmethod
    async def _start(fetcher: TopicFetcher) -> None:
        """Start it, and wait until the topic, which is new, has its leaders."""
        await fetcher.start()
        while True:
            try:
                await fetcher.refresh()
                if (
                    fetcher.partitions
                    == frozenset(await fetcher.end_offsets("read_committed"))
                    == frozenset(_PARTITIONS)
                ):
                    return
            except KafkaError:
                pass
            await asyncio.sleep(_PAUSE_S)

    async def _step(self, client: AIOKafkaClient, step: Step) -> Any:
        if step.kind == "init":
            return await self._init(client, None if step.number == _PLAIN else f"{self.name}-{step.number % 2}")
        if step.kind == "read":
            return await self._read(client)
        if step.kind == "expire":
            return await self._await_expiry()
        if not self._producers:
            return "there is no producer"
        producer = self._producers[step.number % len(self._producers)]
        if step.kind not in ("add", "commit", "abort"):
            return await self._produce(client, producer, step)
        if producer.transactional_id is None:
            return "it has no transactions"
        ids = producer.transactional_id, producer.producer, producer.epoch + step.ahead
        if step.kind == "add":
            request: Any = AddPartitionsToTxnRequest(*ids, [(self.topic, [step.partition])])
            code = await self._ask(client, ids[0], request, lambda answer: answer.errors[0][1][0][1])
        else:
            request = EndTxnRequest(*ids, step.kind == "commit")
            code = await self._ask(client, ids[0], request, _error_code)
        if code == 0:
            self._ending.pop(ids[0], None)
            if step.kind != "add":
                self._ending[ids[0]] = request
        return code

    async def _settle(self, client: AIOKafkaClient) -> None:
        """Wait until the markers of ended transactions are written: until then it is a matter of time what may be done."""
        for transactional_id, request in self._ending.items():
            await self._ask(client, transactional_id, request, _error_code)
        self._ending.clear()

    async def _init(self, client: AIOKafkaClient, transactional_id: str | None) -> Any:
        answer: list[Any] = []

        def keep(response: Any) -> int:
            answer[:] = [response]
            return int(response.error_code)

        code = await self._ask(client, transactional_id, InitProducerIdRequest(transactional_id, self.timeout_ms), keep)
        if code:
            return code
        self._ending.pop(transactional_id or "", None)
        self._producers.append(_Producer(transactional_id, answer[0].producer_id, answer[0].producer_epoch))
        producers = list(dict.fromkeys(producer.producer for producer in self._producers))
        return code, producers.index(answer[0].producer_id), answer[0].producer_epoch

    async def _produce(self, client: AIOKafkaClient, producer: _Producer, step: Step) -> Any:
        await self._settle(client)
        batches, sequence = producer.batches[step.partition], producer.sequences[step.partition]
        new = step.kind != "repeat" or not batches
        if new:
            first = 0 if step.ahead else sequence + (5 if step.kind == "gap" else 0)
            data = self._batch(producer, step, first)
        else:
            data = batches[max(0, len(batches) - 1 - sum(step.keys))]
        request = ProduceRequest(producer.transactional_id, -1, 10_000, [(self.topic, [(step.partition, data)])])
        while True:
            leader = client.cluster.leader_for_partition(TopicPartition(self.topic, step.partition))
            try:
                answer = await client.send(leader, request)
            except KafkaError:
                await asyncio.sleep(_PAUSE_S)
                continue
            code, offset = answer.topics[0][1][0][1:3]
            if code not in _TRANSIENT:
                break
            await asyncio.sleep(_PAUSE_S)
        if code == 0 and new and not step.ahead:
            producer.sequences[step.partition] = first + len(step.keys)
            batches.append(data)
        return code, offset if code == 0 else None

    def _batch(self, producer: _Producer, step: Step, sequence: int) -> bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=producer.transactional_id is not None,
            producer_id=producer.producer,
            producer_epoch=producer.epoch + step.ahead,
            base_sequence=sequence,
            batch_size=1 << 16,
        )
        # Markers have a broker's time: after records that are much older it begins a segment, and compacts the old one.
        time_ms = int(time.time() * 1000) + (_EARLY_MS if step.kind == "early" else 0)
        padding = b" " * _LARGEST if step.kind == "large" else b""
        for position, number in enumerate(step.keys):
            self._values += 1
            key = None if step.kind == "keyless" else b"%d" % number
            builder.append(position, time_ms, key, b"%d" % self._values + padding, [])
        return bytes(builder.build())

    async def _ask(self, client: AIOKafkaClient, transactional_id: str | None, request: Any, code_of: Any) -> int:
        while True:
            try:
                if transactional_id is None:
                    node = client.get_random_node()
                else:
                    node = await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
                answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
            except KafkaError:
                await asyncio.sleep(_PAUSE_S)
                continue
            code = int(code_of(answer))
            if code not in _TRANSIENT:
                return code
            await asyncio.sleep(_PAUSE_S)

    async def _read(self, client: AIOKafkaClient) -> Any:
        """Under both isolation levels: the partitions' ends as listed and as fetched, and the records up to there."""
        await self._settle(client)
        answers: list[Any] = []
        for level, fetcher in zip(_LEVELS, self._fetchers, strict=True):
            for partition, end in sorted((await fetcher.end_offsets(level)).items()):
                position, records, ends = 0, [], set()
                while position < end:
                    (node,) = fetcher.by_leader({partition: position})
                    (fetched,) = await fetcher.fetch(
                        node, {partition: position}, max_wait_ms=_WAIT_MS, max_bytes=1 << 20
                    )
                    records += [
                        (record.offset, record.key, record.value) for batch in fetched.batches for record in batch
                    ]
                    ends.add(fetched.readable_end)
                    position = fetched.position
                # How many fetches it takes is a broker's business.
                answers += [(end, sorted(ends), records)]
        return answers

    async def _await_expiry(self) -> None:
        stable, high = self._fetchers
        while await stable.end_offsets("read_committed") != await high.end_offsets("read_uncommitted"):
            await asyncio.sleep(_PAUSE_S)


def _error_code(answer: Any) -> int:
    return int(answer.error_code)


async def talk_to_group(servers: str, group: str) -> list[Any]:
    """Two members that join, fall behind and leave; all answers, with members by their order."""
    client = AIOKafkaClient(bootstrap_servers=servers)
    await client.bootstrap()
    answers: list[Any] = []
    members: list[str] = []

    async def ask(request: Any) -> Any:
        while True:
            try:
                node = await client.coordinator_lookup(CoordinationType.GROUP, group)
                # A connection answers in order: a JoinGroup that waits must not hold up the others.
                answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
            except KafkaError:
                await asyncio.sleep(_PAUSE_S)
                continue
            if answer.error_code not in _TRANSIENT:
                return answer
            await asyncio.sleep(_PAUSE_S)

    async def join(member: str) -> Any:
        answer = await ask(JoinGroupRequest(group, 10_000, 10_000, member, None, "consumer", [("p", _METADATA)]))
        if answer.error_code == 79:
            answer = await ask(
                JoinGroupRequest(group, 10_000, 10_000, answer.member_id, None, "consumer", [("p", _METADATA)])
            )
        if answer.error_code == 0 and answer.member_id not in members:
            members.append(answer.member_id)
        return answer

    def described(answer: Any) -> Any:
        return (
            answer.error_code,
            answer.generation_id,
            members.index(answer.leader_id) if answer.leader_id in members else None,
            sorted(members.index(member) for member, *_ in answer.members),
        )

    async def heartbeat(member: str, generation: int) -> int:
        return int((await ask(HeartbeatRequest(group, generation, member))).error_code)

    async def sync(member: str, generation: int, assignment: list[tuple[str, bytes]]) -> Any:
        answer = await ask(SyncGroupRequest(group, generation, member, None, assignment))
        return answer.error_code, bytes(answer.member_assignment)

    try:
        answers += [described(await join("nobody"))]
        first = await join("")
        answers += [described(first), await heartbeat(members[0], first.generation_id)]
        answers += [await sync(members[0], first.generation_id, [(members[0], b"all")])]
        answers += [await heartbeat(members[0], first.generation_id), await heartbeat(members[0], 77)]
        other = AIOKafkaClient(bootstrap_servers=servers)
        await other.bootstrap()
        first_client, client = client, other
        joining = asyncio.create_task(join(""))
        await asyncio.sleep(0.5)
        client = first_client
        answers += [await heartbeat(members[0], first.generation_id)]
        rejoined = await join(members[0])
        client = other
        second = await joining
        answers += [described(rejoined), described(second)]
        syncing = asyncio.create_task(sync(second.member_id, second.generation_id, []))
        await asyncio.sleep(0.2)
        client = first_client
        answers += [await sync(members[0], rejoined.generation_id, [(member, b"half") for member in members])]
        answers += [await syncing]
        answers += [int((await ask(LeaveGroupRequest(group, second.member_id))).error_code)]
        answers += [
            await heartbeat(second.member_id, second.generation_id),
            await heartbeat(members[0], rejoined.generation_id),
        ]
        answers += [described(await join(members[0]))]
        await other.close()
        return answers
    finally:
        await client.close()
