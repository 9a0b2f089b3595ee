"""Raw reading of a topic: the one file that uses aiokafka below its public classes.

``AIOKafkaConsumer`` makes an object per record and copies each through several queues: about 7 us a record. Reading the
offsets topic at a start means over a million records, so here fetch requests are sent directly and each answer is parsed
with aiokafka's compiled record parser: about 0.7 us a record, network included.

Used of aiokafka 0.14, and checked by ``tests/integration/offsets``: ``AIOKafkaClient`` (connections, TLS, SASL),
``FetchRequest``, ``OffsetRequest``, ``MetadataRequest``, ``MemoryRecords``, and of a producer what ``_end_producer`` needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import (
    CorruptRecordException,
    KafkaConnectionError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record.memory_records import MemoryRecords

from offsets.aiokafka_internals import sender_task, silence_producer, waiting_futures

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from aiokafka import AIOKafkaProducer

Isolation = Literal["read_committed", "read_uncommitted"]

#: aiokafka arguments that say who a client is, and whom it believes: those that change when secrets do.
CREDENTIALS: Final = ("sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider", "ssl_context")
#: Kafka's numbers.
LEVELS: Final[dict[Isolation, int]] = {"read_uncommitted": 0, "read_committed": 1}
_EARLIEST: Final = -2
_LATEST: Final = -1
#: version and type of a control record's key; type 0 is an abort (KIP-98).
#: No request here waits for longer than a long poll: a host that swallows packets must not hold up those that answer.
_REQUEST_TIMEOUT_MS: Final = 5000
_CONTROL_KEY: Final = struct.Struct(">hh")
_ABORT: Final = 0


class FetchedRecord(Protocol):
    """One record as the parser gives it."""

    @property
    def offset(self) -> int:
        """Its offset in the partition."""

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value; None is a tombstone."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a fetch for one partition.

    Attributes:
        partition: the partition.
        asked: the position that was asked for.
        batches: visible records from ``asked`` on, parsed while they are iterated over, once.
        position: where to read on.
        readable_end: the end of what may be read (high watermark, or last stable offset under ``read_committed``).
        out_of_range: ``asked`` is not in the log (any more).
        error: another error of this partition, or None.
    """

    partition: int
    asked: int
    batches: Sequence[Iterable[FetchedRecord]]
    position: int
    readable_end: int
    out_of_range: bool = False
    error: Exception | None = None


def visible_batches(
    data: bytes,
    position: int,
    aborted: Sequence[tuple[int, int]] | None,
) -> tuple[list[Iterable[FetchedRecord]], int]:
    """The batches of visible records in a fetched chunk of a log, and the position after it.

    Control batches are left out and passed over. With ``aborted`` (of a ``read_committed`` fetch) the records of aborted
    transactions are too. A batch cut off at the end of ``data`` is left for the next fetch. Records are parsed when a batch is
    iterated over: made all at once they would be garbage collected over and over, which costs as much as the parsing.

    Args:
        data: batches as they are in the log.
        position: the offset asked for; batches may begin before it.
        aborted: (producer id, first offset) of aborted transactions in this chunk.

    Raises:
        CorruptRecordException: a batch fails its checksum.
    """
    batches = MemoryRecords(data)
    pending = sorted(aborted, key=lambda pair: pair[1]) if aborted else []
    aborting: set[int] = set()
    visible: list[Iterable[FetchedRecord]] = []
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise CorruptRecordException(f"a record batch at or after offset {position} fails its checksum")
        if batch.next_offset is None:  # formats before Kafka 0.11 don't carry the last offset
            legacy = [record for record in batch if record.offset >= position]
            visible.append(legacy)
            position = legacy[-1].offset + 1 if legacy else position
            continue
        following = batch.next_offset
        while pending and pending[0][1] < following:
            aborting.add(pending.pop(0)[0])
        if batch.is_control_batch:
            for marker in batch:
                if marker.key is not None and _CONTROL_KEY.unpack_from(marker.key)[1] == _ABORT:
                    aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            if batch.base_offset < position:
                visible.append([record for record in batch if record.offset >= position])
            else:
                visible.append(batch)
        position = max(position, following)
    return visible, position


class _NoTopics(frozenset[str]):
    """An empty set that is true, so that the client asks for no topic where an empty set means all of them."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


class BrokersOnlyClient(AIOKafkaClient):  # type: ignore[misc]  # aiokafka's client is untyped
    """A client whose own metadata refresh asks for brokers only.

    A refresh that names a topic would make brokers create it, with the wrong settings, when it was deleted; one that names
    none would bring every partition of a large cluster. The topic's leaders are asked for by ``TopicFetcher.refresh``.
    """

    async def _metadata_update(self, cluster_metadata: Any, topics: Any) -> Any:
        del topics
        return await super()._metadata_update(cluster_metadata, _NoTopics())


def limit_timeouts(client: Mapping[str, Any]) -> dict[str, Any]:
    """``client`` arguments with a request timeout (for connecting, too) of at most five seconds."""
    asked = int(client.get("request_timeout_ms", _REQUEST_TIMEOUT_MS))
    return {**client, "request_timeout_ms": min(asked, _REQUEST_TIMEOUT_MS)}


def renew_credentials(client: Any, arguments: Mapping[str, Any]) -> None:
    """Let an aiokafka client that is in use log in with the credentials among ``arguments`` from its next connection on.

    Args:
        client: an ``AIOKafkaClient`` (a producer's or consumer's is its attribute).
        arguments: those of a new client.
    """
    # aiokafka reads these at each connection, and has no public way to set them.
    for name in CREDENTIALS:
        if name in arguments:
            setattr(client, f"_{name}", arguments[name])


class TopicFetcher:
    """Connections to the brokers of one topic. After an error that it raises, close it and make another.

    Args:
        topic: the topic.
        client: keyword arguments for aiokafka's client (``bootstrap_servers``, ``security_protocol`` ...).
        isolation: whether uncommitted records are visible.
    """

    def __init__(self, topic: str, client: Mapping[str, Any], isolation: Isolation) -> None:
        self.topic = topic
        self._isolation = isolation
        self._client = BrokersOnlyClient(**limit_timeouts(client))
        self._leaders: dict[int, int] = {}

    async def start(self) -> None:
        """Connect and learn the topic's partitions; each broker that swallows packets costs five seconds.

        Raises:
            KafkaError: no broker could be reached, or the topic does not exist.
        """
        await self._client.bootstrap()
        await self.refresh()

    def renew(self, arguments: Mapping[str, Any]) -> None:
        """Log in with the credentials among ``arguments`` from the next connection on."""
        renew_credentials(self._client, arguments)

    async def close(self) -> None:
        """Close all connections, giving up after two seconds."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2):
                await self._client.close()

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions known so far."""
        return frozenset(self._leaders)

    async def refresh(self, avoid: Collection[int] = ()) -> None:
        """Ask who leads which partition; partitions that were added show up.

        Args:
            avoid: nodes to ask last.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            KafkaError: no broker answered.
        """
        brokers = sorted((broker.nodeId for broker in self._client.cluster.brokers()), key=lambda node: node in avoid)
        failure: Exception | None = None
        for node in brokers:
            try:
                answer = await self._client.send(
                    node,
                    MetadataRequest([self.topic], allow_auto_topic_creation=False),
                    group=ConnectionGroup.COORDINATION,
                )
            except (OSError, KafkaError) as error:
                failure = error
                continue
            self._client.cluster.update_metadata(answer)
            for code, _topic, _internal, partitions, *_ in answer.topics:
                kind = for_code(code)
                if code and kind is not UnknownTopicOrPartitionError:
                    raise kind(f"metadata of topic {self.topic!r}")
                if code:
                    raise UnknownTopicOrPartitionError(f"topic {self.topic!r} does not exist")
                # Not added to those from before: a topic that was recreated may have fewer.
                self._leaders = {partition: leader for _error, partition, leader, *_unused in partitions}
            return
        raise KafkaConnectionError(f"no broker of {brokers} answers a metadata request") from failure

    def by_leader(self, positions: Mapping[int, int]) -> dict[int, dict[int, int]]:
        """``positions`` grouped by the node that leads the partition; leaderless ones are left out."""
        grouped: dict[int, dict[int, int]] = {}
        for partition, position in positions.items():
            leader = self._leaders.get(partition, -1)
            if leader >= 0:
                grouped.setdefault(leader, {})[partition] = position
        return grouped

    async def end_offsets(self, isolation: Isolation) -> dict[int, int]:
        """Where each partition ends now: its last stable offset for ``read_committed``, else its high watermark.

        Raises:
            KafkaError: a partition has no leader, or a broker refused.
        """
        return await self._list_offsets(_LATEST, frozenset(self._leaders), isolation)

    async def start_offsets(self, partitions: frozenset[int]) -> dict[int, int]:
        """Where the log of each of ``partitions`` begins."""
        return await self._list_offsets(_EARLIEST, partitions, "read_uncommitted")

    async def high_watermarks(self, partitions: frozenset[int]) -> dict[int, int]:
        """Where each of ``partitions`` ends, with open transactions."""
        return await self._list_offsets(_LATEST, partitions, "read_uncommitted")

    async def _list_offsets(self, at: int, partitions: frozenset[int], isolation: Isolation) -> dict[int, int]:
        grouped = self.by_leader(dict.fromkeys(partitions, 0))
        missing = partitions.difference(*grouped.values())
        if missing:
            raise KafkaConnectionError(f"partitions {sorted(missing)} of topic {self.topic!r} have no leader")
        offsets: dict[int, int] = {}
        # A connection answers in order: on that of the fetches this would wait behind a long poll.
        for node, members in grouped.items():
            request = OffsetRequest(-1, LEVELS[isolation], [(self.topic, [(partition, at) for partition in members])])
            answer = await self._client.send(node, request, group=ConnectionGroup.COORDINATION)
            for _topic, partition_offsets in answer.topics:
                for partition, code, _timestamp, offset, *_ in partition_offsets:
                    if code:
                        raise for_code(code)(f"offsets of partition {partition} of topic {self.topic!r}")
                    offsets[partition] = offset
        return offsets

    async def fetch(
        self, node: int, positions: Mapping[int, int], *, max_wait_ms: int, max_bytes: int
    ) -> list[Fetched]:
        """One fetch request to one node; the checksums of 8 MB take about 2 ms.

        Raises:
            KafkaError, OSError, TimeoutError: the node can't be reached.
        """
        request = FetchRequest(
            max_wait_ms,
            1,
            max_bytes,
            LEVELS[self._isolation],
            [(self.topic, [(partition, position, max_bytes) for partition, position in positions.items()])],
        )
        answer = await self._client.send(node, request)
        results: list[Fetched] = []
        for _topic, partition_data in answer.topics:
            for partition, code, high_watermark, stable, *between, data in partition_data:
                asked = positions[partition]
                if code:
                    kind = for_code(code)
                    results.append(
                        Fetched(
                            partition,
                            asked,
                            (),
                            asked,
                            asked,
                            out_of_range=kind is OffsetOutOfRangeError,
                            error=kind(f"fetching from offset {asked} of partition {partition}"),
                        )
                    )
                    continue
                committed = self._isolation == "read_committed"
                aborted = next((item for item in between if isinstance(item, list)), None) if committed else None
                batches, position = visible_batches(data, asked, aborted)
                results.append(Fetched(partition, asked, batches, position, stable if committed else high_watermark))
        return results


async def abandon_producer(producer: AIOKafkaProducer, patience_s: float = 0.5) -> None:
    """End an aiokafka producer in whatever state, in ``patience_s`` and four seconds; what is not delivered then is dropped.

    ``AIOKafkaProducer.stop`` waits forever for pending batches while brokers are unavailable (aiokafka issue 1101). A caller
    that is cancelled meanwhile still waits for the end: a producer without a caller would leave its coroutines behind.
    """
    ending = asyncio.create_task(_end_producer(producer, patience_s))
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await asyncio.wait({ending})
        raise


def stop_sender(producer: AIOKafkaProducer) -> None:
    """Have a producer that is about to be abandoned send nothing from now on; does not block."""
    for task in _sender_tasks(sender_task(producer)):
        task.cancel()


async def _end_producer(producer: AIOKafkaProducer, patience_s: float) -> None:
    if patience_s > 0:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(patience_s):
                await producer.flush()
    # A silenced producer's destructor is silent too.
    silence_producer(producer)
    left = _sender_tasks(sender_task(producer))
    for task in left:
        task.cancel()
    with contextlib.suppress(Exception):
        async with asyncio.timeout(2.0):
            await producer.client.close()
    if left:
        await asyncio.wait(left, timeout=2.0)
    _take_exceptions(producer, left)


def _sender_tasks(sender: asyncio.Task[None] | None) -> set[asyncio.Future[Any]]:
    """The sender and its requests under way.

    A sender that is cancelled waits for its requests, and they wait forever for metadata of a client that is closed.
    """
    if sender is None:
        return set()
    frame = getattr(sender.get_coro(), "cr_frame", None)
    return {sender, *(frame.f_locals.get("tasks", ()) if frame is not None else ())}


def _take_exceptions(producer: AIOKafkaProducer, left: Iterable[asyncio.Future[Any]]) -> None:
    """Retrieve the errors that a dead producer left in futures that no caller awaits; otherwise asyncio logs each of them."""
    futures = [*left, *waiting_futures(producer)]
    for future in futures:
        if future.done() and not future.cancelled():
            future.exception()
