"""Records to Kafka: one writer per partition that fills the next batch while one is in flight.

aiokafka keeps one pending batch per partition, so exactly one coroutine sends to each partition. Every await on aiokafka has a
deadline; a producer that fails or hangs is discarded and a new one sends all unacknowledged batches again, in order, before
anything newer (at least once). A transactional producer is not rebuilt in place: its transaction is lost, its owner begins anew.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka

from connectors.errors import Fatal, Fenced, MillraceError, Retriable, Skippable
from worker.converters.partitioner import partition_for
from worker.host.chunk import CODECS, OVERHEAD, Chunk, Headers
from worker.host.errors import backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from worker.host.commits import Unit

#: Bytes per batch unless ``batch.size`` says otherwise: 16 KB, Java's default, would cost four times the CPU per record here.
DEFAULT_BATCH_SIZE: Final = 512 * 1024
DEFAULT_MAX_REQUEST_SIZE: Final = 1024 * 1024
_START_DEADLINE_S: Final = 30.0
_REFRESH_S: Final = 5.0
NO_HEADERS: Final[Headers] = []


class TransactionLost(MillraceError):
    """The open transaction can't be committed; its owner must begin anew from the last committed position."""


class RecordTooLarge(Skippable):
    """A record is larger than what the producer or the topic accepts."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How to make a producer.

    Attributes:
        arguments: keyword arguments of ``AIOKafkaProducer``; ``transactional_id`` among them makes it transactional.
        max_rows: records that may be unacknowledged before ``room`` closes.
        max_bytes: bytes that may be, before compression.
        stall_s: seconds without an acknowledgement after which the producer is taken for hung.
    """

    arguments: dict[str, Any]
    max_rows: int = 20_000
    max_bytes: int = 32 * 1024 * 1024
    stall_s: float = 60.0

    @property
    def max_request_size(self) -> int:
        """Largest record in bytes, as for Java's ``max.request.size``."""
        return int(self.arguments.get("max_request_size", DEFAULT_MAX_REQUEST_SIZE))

    @property
    def batch_size(self) -> int:
        """Bytes of a batch; never above the largest request."""
        return min(int(self.arguments.get("max_batch_size", DEFAULT_BATCH_SIZE)), self.max_request_size)

    @property
    def linger_s(self) -> float:
        """Seconds a batch that is not full may wait for more records."""
        return float(self.arguments.get("linger_ms", 0)) / 1000

    @property
    def transactional(self) -> bool:
        """Whether it writes in transactions."""
        return "transactional_id" in self.arguments


def classify(error: BaseException) -> str:
    """What a failed batch means: ``fenced``, ``fatal``, ``split`` (a record in it is refused) or ``rebuild`` (an outage)."""
    if isinstance(error, kafka.ProducerFenced | kafka.InvalidProducerEpoch | kafka.TransactionCoordinatorFenced):
        return "fenced"
    if isinstance(error, kafka.MessageSizeTooLargeError | kafka.RecordListTooLargeError | kafka.InvalidTimestampError
                  | kafka.CorruptRecordException) or getattr(error, "errno", None) == _INVALID_RECORD:
        return "split"
    if isinstance(error, kafka.TopicAuthorizationFailedError | kafka.ClusterAuthorizationFailedError
                  | kafka.TransactionalIdAuthorizationFailed | kafka.InvalidTopicError | kafka.UnsupportedVersionError
                  | kafka.UnsupportedForMessageFormatError | kafka.InvalidRequiredAcksError | kafka.PolicyViolationError
                  | kafka.SaslAuthenticationFailed | kafka.UnsupportedCodecError):
        return "fatal"
    return "rebuild"


_INVALID_RECORD: Final = 87


@dataclass(slots=True, eq=False)
class PartitionWriter:
    """What waits for, and is on its way to, one partition."""

    topic: str
    partition: int
    batch_size: int
    chunk: Chunk | None = None
    full: deque[Chunk] = field(default_factory=deque)
    unacked: deque[Chunk] = field(default_factory=deque)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def roll(self) -> None:
        """Close the batch that is being filled and queue it."""
        if self.chunk is not None:
            self.full.append(self.chunk)
            self.chunk = None
            self.wake.set()


class Producer:
    """Writes records and releases their units when Kafka has them.

    Args:
        name: of the task it writes for; names coroutines and log lines.
        settings: see there.
        fail: called once when it can't go on (``Fatal``, ``Fenced``, ``TransactionLost``).
        rejected: called with (topic, key, value, units, error) for a record that the broker refuses; it raises to refuse the
            skipping. Not used by a transactional producer, which loses its transaction instead.
    """

    def __init__(self, name: str, settings: ProducerSettings, fail: Callable[[Exception], None],
                 rejected: Callable[[str, bytes | None, bytes | None, list[Unit], Exception], None] | None = None) -> None:
        self.name = name
        self.settings = settings
        self._fail = fail
        self._rejected = rejected
        self._log = logging.getLogger(f"{__name__}.{name}")
        self._client: AIOKafkaProducer | None = None
        self._ready = asyncio.Event()
        self._broken = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._routes: dict[str, Route] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._reason = ""
        self._splits: list[tuple[PartitionWriter, Chunk, Exception]] = []
        self._dead: Exception | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.room = asyncio.Event()
        self.room.set()
        self.rows = 0
        self.rows_max = 0
        self.bytes = 0
        self.acked_rows = 0
        self.acked_bytes = 0
        self.acked_batches = 0
        self.latency_s = 0.0
        self.rebuilds = 0

    # Life.

    async def start(self) -> None:
        """Connect; while Kafka is away it tries again for ever, so cancel it to give up.

        Raises:
            Fatal: Kafka refuses this client.
            Fenced: another owner of the transactional id came in between.
        """
        self._client = await self._connect()
        self._ready.set()
        self._supervisor = asyncio.create_task(self._supervise(), name=f"{self.name}|producer")

    async def close(self) -> None:
        """End at once, within a few seconds: what is not acknowledged is dropped. Later appends raise ``Fenced``."""
        if self._dead is None:
            self._dead = Fenced(f"the producer of {self.name} is closed")
        tasks = [writer.task for route in self._routes.values() for writer in route.writers if writer.task is not None]
        if self._supervisor is not None:
            tasks.append(self._supervisor)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._watch is not None:
            self._watch.cancel()
        client, self._client = self._client, None
        if client is not None:
            await discard(client, orderly=self.rows == 0)
        self._idle.set()
        self.room.set()

    async def _connect(self) -> AIOKafkaProducer:
        # Batches are made and timed here, not in aiokafka.
        arguments = {"enable_idempotence": True, **self.settings.arguments, "linger_ms": 0}
        for delay in backoff():
            client = AIOKafkaProducer(**arguments)
            try:
                async with asyncio.timeout(_START_DEADLINE_S):
                    await client.start()
            except (kafka.KafkaError, TimeoutError, OSError) as error:
                await discard(client, orderly=False)
                kind = classify(error)
                if kind == "fenced":
                    raise Fenced(f"{self.name}: another process owns the transactional id: {error!r}") from error
                if kind == "fatal" or isinstance(error, kafka.InvalidTransactionTimeout):
                    raise Fatal(f"{self.name}: Kafka refuses the producer: {error!r}") from error
                self._log.warning("%s: no connection to Kafka at %s (%r), trying again in %.1f s", self.name,
                                  arguments.get("bootstrap_servers"), error, delay)
                await asyncio.sleep(delay)
            except BaseException:
                await discard(client, orderly=False)
                raise
            else:
                return client
        raise AssertionError("back-off never ends")

    # Writing.

    async def route(self, topic: str) -> Route:
        """Where records of ``topic`` go; asks Kafka for the topic's partitions the first time, and now and then later.

        Raises:
            Fatal: Kafka refuses access to the topic.
        """
        route = self._routes.get(topic)
        now = asyncio.get_running_loop().time()
        if route is not None and now < route.refresh_at:
            return route
        partitions = await self._partitions(topic, known=route is not None)
        if route is None:
            route = self._routes[topic] = Route(self, topic, self.settings.batch_size)
        route.grow(partitions)
        route.refresh_at = now + _REFRESH_S
        return route

    async def _partitions(self, topic: str, *, known: bool) -> int:
        error: Exception
        for delay in backoff():
            await self._ready.wait()
            self.check()
            client = self._client
            assert client is not None
            if known:
                return len(client.client.cluster.partitions_for_topic(topic) or ())
            try:
                async with asyncio.timeout(_START_DEADLINE_S):
                    return len(await client.partitions_for(topic))
            except (kafka.KafkaError, TimeoutError, OSError) as caught:
                error = caught
            if classify(error) == "fatal":
                raise Fatal(f"{self.name}: Kafka refuses topic {topic!r}: {error!r}") from error
            self._log.warning("%s: no metadata of topic %r (%r), trying again in %.1f s", self.name, topic, error, delay)
            await asyncio.sleep(delay)
        raise AssertionError("back-off never ends")

    def account(self, rows: int, size: int) -> None:
        """Count what was appended."""
        self.rows += rows
        self.bytes += size
        self.rows_max = max(self.rows_max, self.rows)
        if self.rows:
            self._idle.clear()
            if self._watch is None:
                self._watch = asyncio.get_running_loop().call_later(self.settings.stall_s / 2, self._check_stall)
        if self.rows >= self.settings.max_rows or self.bytes >= self.settings.max_bytes:
            self.room.clear()

    def flush(self) -> None:
        """Send batches that are not full too; does not wait."""
        for route in self._routes.values():
            for writer in route.writers:
                writer.roll()

    async def drain(self) -> None:
        """Flush and wait until everything is acknowledged.

        Raises:
            MillraceError: what ``fail`` was called with.
        """
        self.flush()
        await self._idle.wait()
        self.check()

    def check(self) -> None:
        """Raise what it died of, if it did."""
        if self._dead is not None:
            raise self._dead

    def serve(self, writer: PartitionWriter) -> None:
        """Start the coroutine of a new partition."""
        writer.task = asyncio.create_task(self._send(writer), name=f"{self.name}|{writer.topic}-{writer.partition}")
        writer.task.add_done_callback(self._writer_ended)

    def _writer_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.die(error)

    async def _send(self, writer: PartitionWriter) -> None:
        loop = asyncio.get_running_loop()
        linger = self.settings.linger_s
        client = self._client
        assert client is not None
        while True:
            chunk = self._next(writer, loop.time() - linger)
            if chunk is None:
                writer.wake.clear()
                timeout = None
                if linger and writer.chunk is not None and not writer.unacked:
                    timeout = max(0.0, writer.chunk.born + linger - loop.time())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await writer.wake.wait()
                continue
            chunk.sent = loop.time()
            writer.unacked.append(chunk)
            try:
                if chunk.codec:
                    # Compressing half a megabyte would hold the loop for milliseconds.
                    await asyncio.to_thread(chunk.build)
                chunk.close()
                async with asyncio.timeout(self.settings.stall_s):
                    future = await client.send_batch(chunk, writer.topic, partition=writer.partition)
            except (kafka.KafkaError, TimeoutError, OSError, AssertionError) as error:
                self._failed(writer, chunk, error)
                return
            future.add_done_callback(lambda done, chunk=chunk, client=client: self._sent(writer, chunk, client, done))

    @staticmethod
    def _next(writer: PartitionWriter, born_before: float) -> Chunk | None:
        if writer.full:
            return writer.full.popleft()
        chunk = writer.chunk
        if chunk is None or writer.unacked or chunk.born > born_before:
            return None
        writer.chunk = None
        return chunk

    def _sent(self, writer: PartitionWriter, chunk: Chunk, client: AIOKafkaProducer, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if client is not self._client or self._dead is not None:
            return  # a discarded producer's: the chunk is in line again
        if future.cancelled() or error is not None:
            self._failed(writer, chunk, error or TimeoutError("the delivery was cancelled"))
            return
        now = asyncio.get_running_loop().time()
        writer.unacked.remove(chunk)
        self.acked_rows += chunk.count
        self.acked_bytes += chunk.size()
        self.acked_batches += 1
        self.latency_s += now - chunk.sent
        self._release(chunk)
        writer.wake.set()

    def _release(self, chunk: Chunk) -> None:
        self.rows -= chunk.count
        self.bytes -= chunk.accounted
        if self.rows < self.settings.max_rows and self.bytes < self.settings.max_bytes:
            self.room.set()
        for unit in chunk.units:
            unit.release()
        if self.rows == 0:
            self._idle.set()

    # Failures.

    def die(self, error: Exception) -> None:
        """Go no further: wakes all who wait, tells the owner once."""
        if self._dead is None:
            self._dead = error
            self._idle.set()
            self.room.set()
            self._fail(error)

    def _failed(self, writer: PartitionWriter, chunk: Chunk, error: BaseException) -> None:
        kind = classify(error)
        where = f"{self.name}: writing to {writer.topic}-{writer.partition}"
        if kind == "fenced":
            self.die(Fenced(f"{where}: a newer instance of this task owns the transactional id; this one stops"))
        elif kind == "fatal":
            self.die(Fatal(f"{where} is refused: {error!r}"))
        elif kind == "split":
            writer.batch_size = max(1024, min(writer.batch_size, chunk.accounted) // 2)
            if not self.settings.transactional:
                self._splits.append((writer, chunk, RecordTooLarge(f"{where}: the broker refuses the record: {error!r}")))
                self._break(f"{where}: the broker refuses a batch of {chunk.count} records: {error!r}")
            elif chunk.count > 1:
                self.die(TransactionLost(f"{where}: the broker refuses a batch of {chunk.count} records: {error!r}"))
            else:
                self.die(Fatal(f"{where}: the broker refuses a record: {error!r}; raise the topic's max.message.bytes, or "
                               "lower producer.override.max.request.size so that errors.tolerance applies to it"))
        elif self.settings.transactional:
            self.die(TransactionLost(f"{where} failed inside a transaction: {error!r}"))
        else:
            self._break(f"{where} failed: {error!r}")

    def _break(self, reason: str) -> None:
        self._reason = reason
        self._broken.set()

    def _check_stall(self) -> None:
        self._watch = None
        if not self.rows or self._dead is not None:
            return
        loop = asyncio.get_running_loop()
        oldest = min((writer.unacked[0].sent for route in self._routes.values() for writer in route.writers
                      if writer.unacked), default=None)
        if oldest is not None and self._client is not None and loop.time() - oldest > self.settings.stall_s:
            reason = f"{self.name}: no acknowledgement from Kafka for {loop.time() - oldest:.0f} s"
            if self.settings.transactional:
                self.die(TransactionLost(reason))
                return
            self._break(reason)
        self._watch = loop.call_later(self.settings.stall_s / 2, self._check_stall)

    async def _supervise(self) -> None:
        try:
            while True:
                await self._broken.wait()
                self._log.warning("%s; a new producer will send what is not acknowledged", self._reason)
                client, self._client = self._client, None
                self._ready.clear()
                self._broken.clear()
                self.rebuilds += 1
                writers = [writer for route in self._routes.values() for writer in route.writers]
                for writer in writers:
                    if writer.task is not None:
                        writer.task.cancel()
                if client is not None:
                    await discard(client, orderly=False)
                self._requeue(writers)
                self._client = await self._connect()
                self._ready.set()
                for writer in writers:
                    self.serve(writer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the owner must know
            self.die(error)

    def _requeue(self, writers: list[PartitionWriter]) -> None:
        for writer, chunk, error in self._splits:
            if chunk.count > 1:
                index = writer.unacked.index(chunk)
                pieces = chunk.split(writer.batch_size)
                del writer.unacked[index]
                for offset, piece in enumerate(pieces):
                    writer.unacked.insert(index + offset, piece)
                self.bytes += sum(piece.accounted for piece in pieces) - chunk.accounted
                for unit in chunk.units:
                    unit.release()
            elif self._rejected is not None:
                key, value = chunk.records()[0]
                writer.unacked.remove(chunk)
                self._rejected(writer.topic, key, value, chunk.units, error)
                self._release(chunk)
            else:
                raise Fatal(str(error))
        self._splits.clear()
        for writer in writers:
            writer.full.extendleft(reversed(writer.unacked))
            writer.unacked.clear()

    # Transactions.

    async def begin(self) -> None:
        """Begin a transaction.

        Raises:
            TransactionLost: it could not be begun; the producer must be closed.
            Fenced: a newer producer has the transactional id.
        """
        await self._transact("begin", lambda client: client.begin_transaction())

    async def commit(self) -> None:
        """Commit; everything must be drained. Raises as ``begin``; after ``TransactionLost`` the outcome is unknown."""
        await self._transact("commit", lambda client: client.commit_transaction())

    async def abort(self) -> None:
        """Abort. Raises as ``begin``."""
        await self._transact("abort", lambda client: client.abort_transaction())

    async def _transact(self, what: str, call: Callable[[AIOKafkaProducer], Any]) -> None:
        self.check()
        assert self._client is not None
        try:
            async with asyncio.timeout(self.settings.stall_s):
                await call(self._client)
        except (kafka.KafkaError, TimeoutError, OSError, AssertionError) as error:
            self.check()
            if classify(error) == "fenced":
                raise Fenced(f"{self.name}: a newer instance of this task owns the transactional id; this one stops") from error
            if classify(error) == "fatal":
                raise Fatal(f"{self.name}: Kafka refuses to {what} a transaction: {error!r}") from error
            raise TransactionLost(f"{self.name}: could not {what} a transaction: {error!r}") from error


class Route:
    """Places records of one topic on its partitions, as Kafka's default partitioner does (KIP-794 for null keys)."""

    __slots__ = ("_batch_size", "_producer", "_sticky", "_topic", "refresh_at", "writers")

    def __init__(self, producer: Producer, topic: str, batch_size: int) -> None:
        self._producer = producer
        self._topic = topic
        self._batch_size = batch_size
        self._sticky = -1
        self.writers: list[PartitionWriter] = []
        self.refresh_at = 0.0

    def grow(self, partitions: int) -> None:
        """Use ``partitions`` partitions from now on; a topic never shrinks."""
        while len(self.writers) < partitions:
            writer = PartitionWriter(self._topic, len(self.writers), self._batch_size)
            self.writers.append(writer)
            self._producer.serve(writer)
        if self._sticky < 0:
            self._move()

    def _move(self) -> None:
        self._sticky = random.randrange(len(self.writers))  # noqa: S311 - spreads load

    def append(self, unit: Unit, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None,
               partitions: Sequence[int | None] | None = None, timestamps: Sequence[int | None] | None = None,
               headers: Sequence[Headers] | None = None) -> list[tuple[int, Exception]]:
        """Append records in order; None stands for "all None" or "no headers". Does not wait: ask ``room`` before.

        Returns:
            (index, error) of records that can't be sent: too large, or for a partition that does not exist.

        Raises:
            Fenced: the producer is closed.
        """
        self._producer.check()
        times: Iterable[int | None] = repeat(None) if timestamps is None else timestamps
        heads: Iterable[Headers] = repeat(NO_HEADERS) if headers is None else headers
        if keys is None and partitions is None:
            return self._append_sticky(unit, values, times, heads)
        refused: list[tuple[int, Exception]] = []
        writers = self.writers
        count = len(writers)
        touched: set[Chunk] = set()
        rows = 0
        for index, (value, key, partition, timestamp, head) in enumerate(zip(
                values, keys or repeat(None), partitions or repeat(None), times, heads, strict=False)):
            if partition is not None:
                if not 0 <= partition < count:
                    refused.append((index, Skippable(f"topic {self._topic!r} has no partition {partition}, only {count}")))
                    continue
                writer = writers[partition]
            elif key is not None:
                writer = writers[partition_for(key, count)]
            else:
                writer = writers[self._sticky]
            chunk = writer.chunk
            if chunk is not None and chunk.append(chunk.count, timestamp, key, value, head) is not None:
                chunk.count += 1
            else:
                if chunk is not None and key is None and partition is None:
                    self._move()
                    writer.roll()
                    writer = writers[self._sticky]
                chunk = self._place(writer, timestamp, key, value, head)
                if chunk is None:
                    refused.append((index, self._too_large(key, value)))
                    continue
            rows += 1
            if chunk not in touched:
                touched.add(chunk)
                chunk.hold(unit)
        self._count(touched, rows)
        return refused

    def _append_sticky(self, unit: Unit, values: Sequence[bytes | None], timestamps: Iterable[int | None],
                       headers: Iterable[Headers]) -> list[tuple[int, Exception]]:
        refused: list[tuple[int, Exception]] = []
        touched: set[Chunk] = set()
        chunk = self.writers[self._sticky].chunk
        append, count = (chunk.append, chunk.count) if chunk is not None else (None, 0)
        for index, (value, timestamp, head) in enumerate(zip(values, timestamps, headers, strict=False)):
            if append is not None and append(count, timestamp, None, value, head) is not None:
                count += 1
                continue
            if chunk is not None:
                if count > chunk.count:
                    touched.add(chunk)
                    chunk.count = count
                self.writers[self._sticky].roll()
                self._move()
            placed = self._place(self.writers[self._sticky], timestamp, None, value, head)
            if placed is None:
                refused.append((index, self._too_large(None, value)))
                chunk = self.writers[self._sticky].chunk
            else:
                touched.add(placed)
                chunk = placed
            append, count = (chunk.append, chunk.count) if chunk is not None else (None, 0)
        if chunk is not None and count > chunk.count:
            touched.add(chunk)
            chunk.count = count
        for chunk in touched:
            chunk.hold(unit)
        self._count(touched, len(values) - len(refused))
        return refused

    def _place(self, writer: PartitionWriter, timestamp: int | None, key: bytes | None, value: bytes | None,
               head: Headers) -> Chunk | None:
        """Append to the writer's chunk, or to a new one if it doesn't fit; None if it is too large for any."""
        size = len(key or b"") + len(value or b"") + OVERHEAD + sum(len(name) * 4 + len(data or b"") + 10 for name, data in head)
        if size > self._producer.settings.max_request_size:
            return None
        chunk = writer.chunk
        if chunk is not None:
            if chunk.append(chunk.count, timestamp, key, value, head) is not None:
                chunk.count += 1
                return chunk
            writer.roll()
        settings = self._producer.settings
        chunk = writer.chunk = Chunk(CODECS[settings.arguments.get("compression_type")], writer.batch_size,
                                     asyncio.get_running_loop().time(), transactional=settings.transactional)
        chunk.append(0, timestamp, key, value, head)
        chunk.count = 1
        return chunk

    def _too_large(self, key: bytes | None, value: bytes | None) -> RecordTooLarge:
        return RecordTooLarge(
            f"a record for topic {self._topic!r} is {len(key or b'') + len(value or b'')} bytes when serialized, which is larger "
            f"than max.request.size ({self._producer.settings.max_request_size}): raise producer.override.max.request.size and "
            "the topic's max.message.bytes")

    def _count(self, touched: set[Chunk], rows: int) -> None:
        size = 0
        for chunk in touched:
            now = chunk.size()
            size += now - chunk.accounted
            chunk.accounted = now
        self._producer.account(rows, size)

    def kick(self) -> None:
        """A poll ended: let idle partitions send what they have (after ``linger.ms``)."""
        for writer in self.writers:
            if writer.chunk is not None and not writer.unacked:
                writer.wake.set()


async def discard(client: AIOKafkaProducer, *, orderly: bool) -> None:
    """End an aiokafka producer within a few seconds whatever its state; unsent batches are dropped unless ``orderly``.

    ``AIOKafkaProducer.stop`` waits for pending batches for ever while brokers are away (aiokafka issue 1101), and its sender
    would deliver them later, behind newer ones.
    """
    if orderly:
        with contextlib.suppress(TimeoutError, kafka.KafkaError, OSError):
            async with asyncio.timeout(2.0):
                await client.stop()
                return
    client._closed = True  # noqa: SLF001 - there is no public way; silences its destructor too
    sender = client._sender.sender_task  # noqa: SLF001
    if sender is not None:
        sender.cancel()
    with contextlib.suppress(Exception):
        async with asyncio.timeout(2.0):
            await client.client.close()
    if sender is not None:
        await asyncio.wait({sender}, timeout=2.0)
        if sender.done() and not sender.cancelled():
            sender.exception()
