"""Sequences of requests to Kafka, answered by a real broker or by the model: both must say the same.

Requests go through aiokafka's client, so that the same code asks both. Answers are compared without the numbers that a broker
is free to choose: producers and members by their order, coordinators not at all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import KafkaError
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from offsets.admin import TopicAdmin
from offsets.fetch import TopicFetcher

#: Answers after which a client asks again: a coordinator loads, moves or writes markers; 19 is a broker's for the last.
_TRANSIENT: Final = frozenset({6, 14, 15, 16, 19, 51})
_PAUSE_S: Final = 0.02
#: What a consumer says when it joins.
_METADATA: Final = ConsumerProtocolMemberMetadata(0, ["topic"], b"").encode()
_WAIT_MS: Final = 50

Kind = Literal["init", "add", "produce", "repeat", "gap", "commit", "abort", "read"]


@dataclass(frozen=True, slots=True)
class Step:
    """A request: ``number`` chooses among transactional ids, or the producers there have been."""

    kind: Kind
    number: int = 0
    keys: tuple[int, ...] = (0,)


@dataclass
class _Producer:
    transactional_id: str
    producer: int
    epoch: int
    sequence: int = 0
    last: bytes | None = None


@dataclass
class Conversation:
    """One client that asks.

    Args:
        servers: the brokers' addresses.
        name: makes the names of topics and ids unique.
    """

    servers: str
    name: str
    _producers: list[_Producer] = field(default_factory=list)
    _values: int = 0

    @property
    def topic(self) -> str:
        """The topic that is written to."""
        return f"{self.name}-topic"

    async def run(self, steps: list[Step]) -> list[Any]:
        """All answers."""
        arguments = {"bootstrap_servers": self.servers}
        async with TopicAdmin(arguments) as admin:
            await admin.create(self.topic, 1, 1, {"cleanup.policy": "compact"})
        client = AIOKafkaClient(**arguments)
        await client.bootstrap()
        client.set_topics([self.topic])
        await client.force_metadata_update()
        try:
            return [await self._step(client, step) for step in steps] + [await self._read()]
        finally:
            await client.close()

    async def _step(self, client: AIOKafkaClient, step: Step) -> Any:
        if step.kind == "init":
            return await self._init(client, f"{self.name}-{step.number % 2}")
        if step.kind == "read":
            return await self._read()
        if not self._producers:
            return "there is no producer"
        producer = self._producers[step.number % len(self._producers)]
        if step.kind == "add":
            request: Any = AddPartitionsToTxnRequest(
                producer.transactional_id, producer.producer, producer.epoch, [(self.topic, [0])]
            )
            return await self._ask(client, producer.transactional_id, request, lambda answer: answer.errors[0][1][0][1])
        if step.kind in ("commit", "abort"):
            request = EndTxnRequest(producer.transactional_id, producer.producer, producer.epoch, step.kind == "commit")
            code = await self._ask(client, producer.transactional_id, request, lambda answer: answer.error_code)
            # Markers are written after the answer: what a producer may write until then is a matter of time.
            await self._read()
            return code
        return await self._produce(client, producer, step)

    async def _init(self, client: AIOKafkaClient, transactional_id: str) -> Any:
        answer: list[Any] = []

        def keep(response: Any) -> int:
            answer[:] = [response]
            return int(response.error_code)

        code = await self._ask(client, transactional_id, InitProducerIdRequest(transactional_id, 60_000), keep)
        if code == 0:
            self._producers.append(_Producer(transactional_id, answer[0].producer_id, answer[0].producer_epoch))
        producers = list(dict.fromkeys(producer.producer for producer in self._producers))
        return code, producers.index(answer[0].producer_id) if code == 0 else None

    async def _produce(self, client: AIOKafkaClient, producer: _Producer, step: Step) -> Any:
        if step.kind == "repeat" and producer.last is not None:
            data = producer.last
        else:
            skipped = 5 if step.kind == "gap" else 0
            data = self._batch(producer, step.keys, producer.sequence + skipped)
        request = ProduceRequest(producer.transactional_id, -1, 10_000, [(self.topic, [(0, data)])])
        while True:
            leader = client.cluster.leader_for_partition(_partition(self.topic))
            try:
                answer = await client.send(leader, request)
            except KafkaError:
                await asyncio.sleep(_PAUSE_S)
                continue
            code, offset = answer.topics[0][1][0][1:3]
            if code not in _TRANSIENT:
                break
            await asyncio.sleep(_PAUSE_S)
        if code == 0 and step.kind != "repeat":
            producer.sequence += len(step.keys)
            producer.last = data
        return code, offset if code == 0 else None

    def _batch(self, producer: _Producer, keys: tuple[int, ...], sequence: int) -> bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=True,
            producer_id=producer.producer,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            batch_size=1 << 16,
        )
        for position, key in enumerate(keys):
            self._values += 1
            builder.append(position, 1_700_000_000_000, b"%d" % key, b"%d" % self._values, [])
        return bytes(builder.build())

    async def _ask(self, client: AIOKafkaClient, transactional_id: str, request: Any, code_of: Any) -> int:
        while True:
            try:
                node = await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
                answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
            except KafkaError:
                await asyncio.sleep(_PAUSE_S)
                continue
            code = int(code_of(answer))
            if code not in _TRANSIENT:
                return code
            await asyncio.sleep(_PAUSE_S)

    async def _read(self) -> Any:
        """Both ends of the topic, and its committed records up to there, once markers are written."""
        committed = TopicFetcher(self.topic, {"bootstrap_servers": self.servers}, "read_committed")
        await committed.start()
        try:
            stable, high = await self._settled_ends(committed)
            position, records = 0, []
            while position < stable:
                (node,) = committed.by_leader({0: position})
                (fetched,) = await committed.fetch(node, {0: position}, max_wait_ms=_WAIT_MS, max_bytes=1 << 20)
                records += [(record.offset, record.key, record.value) for batch in fetched.batches for record in batch]
                position = fetched.position
            return stable, high, records
        finally:
            await committed.close()

    async def _settled_ends(self, fetcher: TopicFetcher) -> tuple[int, int]:
        before: tuple[int, int] | None = None
        while True:
            ends = (await fetcher.end_offsets("read_committed"))[0], (await fetcher.end_offsets("read_uncommitted"))[0]
            if ends == before:
                return ends
            before = ends
            await asyncio.sleep(5 * _PAUSE_S)


def _partition(topic: str) -> Any:
    from aiokafka.structs import TopicPartition

    return TopicPartition(topic, 0)


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
