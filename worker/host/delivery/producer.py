"""Records to Kafka: one writer per partition that fills the next batch while one is in flight.

aiokafka keeps one pending batch per partition, so exactly one coroutine sends to each partition. Every await on aiokafka has a
deadline; a producer that fails or hangs is discarded and a new one sends all unacknowledged batches again, in order, before
anything newer (at least once). A transactional producer is not rebuilt in place: its transaction is lost, and its owner
starts the transaction from scratch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from aiokafka import errors as kafka

from connectors.errors import Fatal, Fenced, Retriable
from offsets.fetch import stop_sender
from worker.host.delivery.offset_partitions import OffsetPartitions
from worker.host.delivery.producer_client import ClientFailure, ProducerConnector
from worker.host.delivery.producer_counts import AckedRecords, UnackedRecords
from worker.host.delivery.producer_errors import (
    TopicRecreated,
    TransactionLost,
    cause_of,
    classify_error,
    is_about_record,
    is_partition_unknown,
    is_too_large,
    is_topic_missing,
    permission_hint,
    refusal_hint,
)
from worker.host.delivery.routes import (
    ProducerSettings,
    RecordTooLarge,
    TopicPartitionWriter,
    TopicRoute,
    topic_complaint,
)
from worker.host.errors import retry_pauses

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiokafka import AIOKafkaProducer

    from worker.host.delivery.chunk import RecordChunk
    from worker.host.delivery.commits import CommitUnit
    from worker.host.delivery.shared_clients import ClientPool

_METADATA_DEADLINE_S: Final = 30.0
_REFRESH_S: Final = 5.0
#: How long a topic may lack a partition that it had: a broker learns of new ones a little later than others.
_LEARN_S: Final = 5.0
#: The pause before a client is asked again for such a partition.
_LOOK_AGAIN_S: Final = 0.5


class Producer:
    """Writes records and releases their units when Kafka has them.

    Args:
        name: of the task it writes for; names coroutines and log lines.
        settings: see there.
        fail: called once when it can't continue (``Fatal``, ``Fenced``, ``TransactionLost``, ``TopicRecreated``).
        rejected: called with (topic, key, value, units, error) for a record that the broker refuses; it raises to refuse the
            skipping. Not used by a transactional producer, which loses its transaction instead.
        batch_sizes: topic -> bytes of a batch where the broker takes no larger ones; what is learned is put there.
        pool: gives it its clients; None: it has clients of its own.
        restore_topic: creates a topic that was deleted; it may raise ``Retriable`` where it can't now. Not used by a
            transactional producer, whose owner looks at ``missing_topics``.

    Attributes:
        missing_topics: topics that may have been deleted, by the errors of their batches.
    """

    def __init__(
        self,
        name: str,
        settings: ProducerSettings,
        fail: Callable[[Exception], None],
        rejected: Callable[[str, bytes | None, bytes | None, list[CommitUnit], Exception], Awaitable[None]]
        | None = None,
        batch_sizes: dict[str, int] | None = None,
        *,
        pool: ClientPool | None = None,
        restore_topic: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self._batch_sizes = {} if batch_sizes is None else batch_sizes
        self.settings = settings
        self._fail = fail
        self._rejected = rejected
        self._restore_topic = restore_topic
        self.missing_topics: set[str] = set()
        self._log = logging.getLogger(f"{__name__}.{name}")
        self._connector = ProducerConnector(name, settings, self._log, pool)
        self._client: AIOKafkaProducer | None = None
        self._ready = asyncio.Event()
        self._client_failure = ClientFailure()
        self._supervisor: asyncio.Task[None] | None = None
        self._routes: dict[str, TopicRoute] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._splits: list[tuple[TopicPartitionWriter, RecordChunk, Exception]] = []
        self._offset_partitions = OffsetPartitions()
        self._dead: Exception | None = None
        self._died = asyncio.Event()
        self.unacked = UnackedRecords(settings)
        self.acked = AckedRecords()
        self.rebuilds = 0

    @property
    def room(self) -> asyncio.Event:
        """Set while more records may be appended."""
        return self.unacked.room

    # Life.

    async def start(self) -> None:
        """Connect; while Kafka is unavailable it retries without end, so cancel it to give up.

        Raises:
            Fatal: Kafka refuses this client.
            Fenced: another owner of the transactional id came in between.
        """
        self._client = await self._connector.connect()
        self._ready.set()
        self._supervisor = asyncio.create_task(self._replace_clients(), name=f"{self.name}|producer")

    async def close(self) -> None:
        """End at once, within a few seconds: what is not acknowledged is dropped. Later appends raise ``Fenced``."""
        failed = self._dead is not None
        if not failed:
            self._dead = Fenced(f"the producer of {self.name} is closed")
            self._died.set()
        tasks = [writer.task for writer in self._writers() if writer.task is not None]
        if self._supervisor is not None:
            tasks.append(self._supervisor)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:  # also if the caller is cancelled: no other code ends the client
            if self._watch is not None:
                self._watch.cancel()
            client, self._client = self._client, None
            if client is not None:
                await self._connector.discard(client, 2.0 if self.unacked.rows == 0 else 0, failed=failed)
            self.unacked.wake_all()

    def credentials_changed(self) -> None:
        """Log in with the settings' arguments as they are now from the next connection on; what is connected stays so."""
        if self._client is not None:
            self._connector.renew(self._client)

    # Writing.

    async def route(self, topic: str) -> TopicRoute:
        """Where records of ``topic`` go; asks Kafka for the topic's partitions the first time, and now and then later.

        Raises:
            Fatal: Kafka refuses access to the topic, or can have none of this name.
        """
        route = self._routes.get(topic)
        now = asyncio.get_running_loop().time()
        if route is not None and now < route.refresh_at:
            return route
        complaint = topic_complaint(topic) if route is None else None
        if complaint is not None:
            # Kafka's client would ask for its partitions without end.
            raise Fatal(f"{self.name}: {complaint}")
        partitions = await self._partitions(topic, is_known=route is not None)
        route = self._routes.get(topic)  # another caller may have made it meanwhile
        if route is None:
            route = self._routes[topic] = TopicRoute(
                self, topic, self._batch_sizes.get(topic, self.settings.batch_size)
            )
        route.grow(partitions)
        route.refresh_at = now + _REFRESH_S
        return route

    async def _partitions(self, topic: str, *, is_known: bool) -> int:
        error: Exception
        for delay in retry_pauses():
            await self._ready.wait()
            self.check()
            client = self._require_client()
            if is_known:
                return len(client.client.cluster.partitions_for_topic(topic) or ())
            try:
                async with asyncio.timeout(_METADATA_DEADLINE_S):
                    return len(await client.partitions_for(topic))
            except (kafka.KafkaError, TimeoutError, OSError) as caught:
                error = caught
            if classify_error(error) == "fatal":
                raise Fatal(
                    f"{self.name}: Kafka refuses topic {topic!r}: {error!r}. Give its user the permissions "
                    "Describe and Write on the topic"
                ) from error
            self._log.warning("%s: no metadata of topic %r (%r), retrying in %.1f s", self.name, topic, error, delay)
            await asyncio.sleep(delay)
        raise AssertionError("back-off never ends")

    def available(self, topic: str) -> list[int]:
        """The topic's partitions that have a leader, as far as is known."""
        client = self._client
        return [] if client is None else list(client.client.cluster.available_partitions_for_topic(topic) or ())

    def account(self, rows: int, size: int) -> None:
        """Count what was appended."""
        self.unacked.add(rows, size)
        if self.unacked.rows and self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(self.settings.stall_s / 2, self._check_stall)

    def flush(self) -> None:
        """Send batches that are not full too; does not wait."""
        for writer in self._writers():
            writer.roll()

    async def drain(self) -> None:
        """Flush and wait until everything is acknowledged.

        Raises:
            MillraceError: what ``fail`` was called with.
        """
        self.flush()
        await self.unacked.empty.wait()
        self.check()

    async def wait_for(self, event: asyncio.Event) -> None:
        """Wait until ``event`` is set, or the producer dies.

        Raises:
            MillraceError: what it died of.
        """
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._died.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not event.is_set():
            self.check()

    def check(self) -> None:
        """Raise what it died of, if it did."""
        if self._dead is not None:
            raise self._dead

    def _require_client(self) -> AIOKafkaProducer:
        if self._client is None:
            raise Fatal(f"{self.name}: the producer is not started")
        return self._client

    def _writers(self) -> list[TopicPartitionWriter]:
        return [writer for route in self._routes.values() for writer in route.writers.values()]

    def serve(self, writer: TopicPartitionWriter) -> None:
        """Start the coroutine of a new partition; while a client is being replaced, ``_replace_clients`` will."""
        if self._client is None:
            return
        writer.task = asyncio.create_task(
            self._send_chunks(writer), name=f"{self.name}|{writer.topic}-{writer.partition}"
        )
        writer.task.add_done_callback(self._writer_ended)

    def _writer_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.die(error)

    async def _send_chunks(self, writer: TopicPartitionWriter) -> None:
        loop = asyncio.get_running_loop()
        linger = self.settings.linger_s
        client = self._require_client()
        while True:
            chunk = self._next_chunk(writer, loop.time() - linger)
            if chunk is None:
                writer.wake.clear()
                timeout = None
                if linger and writer.chunk is not None and not writer.unacked:
                    timeout = max(0.0, writer.chunk.created_s + linger - loop.time())
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
                await self._wait_for_turn(writer, chunk)
                chunk.sent = loop.time()
                async with asyncio.timeout(self.settings.stall_s):
                    self._join_offset_partitions(client, writer)
                    future = await client.send_batch(chunk, writer.topic, partition=writer.partition)
            except (kafka.KafkaError, kafka.IllegalOperation, TimeoutError, OSError, AssertionError) as error:
                self._handle_failure(writer, chunk, cause_of(error, client))
                return
            future.add_done_callback(
                lambda done, chunk=chunk, client=client: self._handle_sent(writer, chunk, client, done)
            )

    @staticmethod
    async def _wait_for_turn(writer: TopicPartitionWriter, chunk: RecordChunk) -> None:
        """Wait until all batches before are acknowledged.

        aiokafka sends a partition's next batch as soon as the one before is refused, before this producer knows of the refusal.
        Kafka may take it: it knows the sequence of a new producer only once it has taken a batch of it.
        """
        while writer.unacked[0] is not chunk:
            writer.wake.clear()
            await writer.wake.wait()

    def _join_offset_partitions(self, client: AIOKafkaProducer, writer: TopicPartitionWriter) -> None:
        if not self.settings.transactional:
            return
        if writer.topic in self.acked.uncounted:
            self._offset_partitions.add(writer.topic, writer.partition)
        else:
            self._offset_partitions.join(client)

    @staticmethod
    def _next_chunk(writer: TopicPartitionWriter, created_before: float) -> RecordChunk | None:
        if writer.full:
            return writer.full.popleft()
        chunk = writer.chunk
        if chunk is None or writer.unacked or chunk.created_s > created_before:
            return None
        writer.chunk = None
        return chunk

    def _handle_sent(
        self, writer: TopicPartitionWriter, chunk: RecordChunk, client: AIOKafkaProducer, future: asyncio.Future[Any]
    ) -> None:
        error = None if future.cancelled() else future.exception()
        if client is not self._client or self._dead is not None:
            return  # a discarded producer's: the chunk is in line again
        if future.cancelled() or error is not None:
            self._handle_failure(writer, chunk, error or TimeoutError("the delivery was cancelled"))
            return
        now = asyncio.get_running_loop().time()
        writer.unacked.remove(chunk)
        writer.unknown_since = None
        self.acked.add(writer.topic, chunk, now - chunk.sent)
        self.unacked.release_chunk(chunk)
        writer.wake.set()

    # Failures.

    def die(self, error: Exception) -> None:
        """Go no further: wakes all who wait, tells the owner once."""
        if self._dead is None:
            self._dead = error
            self._died.set()
            self.unacked.wake_all()
            self._fail(error)

    def _handle_failure(self, writer: TopicPartitionWriter, chunk: RecordChunk, error: BaseException) -> None:
        kind = classify_error(error)
        where = f"{self.name}: writing to {writer.topic}-{writer.partition}"
        if is_topic_missing(error):
            self.missing_topics.add(writer.topic)
        if kind == "fenced":
            self.die(Fenced(f"{where}: a newer instance of this task owns the transactional id; this one stops"))
        elif kind == "fatal":
            self.die(Fatal(f"{where} is refused: {error!r}"))
        elif kind == "split":
            hint = refusal_hint(error, writer.topic)
            if is_too_large(error) and chunk.count > 1:
                smaller = self._batch_sizes[writer.topic] = max(1024, min(writer.batch_size, chunk.accounted) // 2)
                self._routes[writer.topic].shrink(smaller)
            if not self.settings.transactional:
                self._splits.append(
                    (writer, chunk, RecordTooLarge(f"{where}: the broker refuses the record: {error!r}{hint}"))
                )
                self._give_up_client(f"{where}: the broker refuses a batch of {chunk.count} records: {error!r}")
            elif chunk.count > 1 and not is_about_record(error):
                self.die(TransactionLost(f"{where}: the broker refuses a batch of {chunk.count} records: {error!r}"))
            else:
                hint = hint or (
                    "; raise the topic's max.message.bytes, or lower producer.override.max.request.size so that "
                    "errors.tolerance applies to it"
                )
                self.die(Fatal(f"{where}: the broker refuses a record: {error!r}{hint}"))
        elif self.settings.transactional:
            self.die(TransactionLost(f"{where} failed inside a transaction: {error!r}"))
        elif is_partition_unknown(error) and self._lacks_partition(writer):
            self.die(
                TopicRecreated(
                    f"{where} failed: the topic has fewer partitions than before. It was deleted and created again, by the "
                    "brokers if auto.create.topics.enable is on; what it held is gone"
                )
            )
        else:
            self._give_up_client(f"{where} failed: {error!r}")

    @staticmethod
    def _lacks_partition(writer: TopicPartitionWriter) -> bool:
        """Whether a topic has lacked a writer's partition for longer than a broker needs to learn of it."""
        now = asyncio.get_running_loop().time()
        writer.unknown_since = now if writer.unknown_since is None else writer.unknown_since
        return now - writer.unknown_since > _LEARN_S

    def _give_up_client(self, reason: str) -> None:
        """Have the client replaced. Until then it sends nothing, for its successor sends all unacknowledged batches again."""
        self._client_failure.report(reason)
        if self._client is not None:
            stop_sender(self._client)

    def _check_stall(self) -> None:
        self._watch = None
        if not self.unacked.rows or self._dead is not None:
            return
        loop = asyncio.get_running_loop()
        oldest = min(
            (writer.unacked[0].sent for writer in self._writers() if writer.unacked),
            default=None,
        )
        if oldest is not None and self._client is not None and loop.time() - oldest > self.settings.stall_s:
            reason = f"{self.name}: no acknowledgement from Kafka for {loop.time() - oldest:.0f} s"
            if self.settings.transactional:
                # A transaction waits without end for a topic that was deleted.
                self.missing_topics.update(writer.topic for writer in self._writers() if writer.unacked)
                self.die(TransactionLost(reason))
                return
            self._give_up_client(reason)
        self._watch = loop.call_later(self.settings.stall_s / 2, self._check_stall)

    async def _replace_clients(self) -> None:
        try:
            while True:
                reason = await self._client_failure.wait()
                self._log.warning("%s; a new producer will send what is not acknowledged", reason)
                client, self._client = self._client, None
                self._ready.clear()
                self._client_failure.clear()
                self.rebuilds += 1
                writers = self._writers()
                for writer in writers:
                    if writer.task is not None:
                        writer.task.cancel()
                if client is not None:
                    await self._connector.discard(client, 0, failed=True)
                rejected = self._requeue_chunks(writers)
                if any(writer.unknown_since is not None for writer in writers):
                    await asyncio.sleep(_LOOK_AGAIN_S)
                await self._restore_topics()
                self._client = await self._connector.connect()
                self._ready.set()
                for writer in self._writers():
                    self.serve(writer)
                for topic, chunk, error in rejected:
                    await self._reject_record(topic, chunk, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the owner must know
            self.die(error)

    async def _restore_topics(self) -> None:
        """Create the topics that were deleted; where it can't be done now, the next failure retries."""
        missing, self.missing_topics = self.missing_topics, set()
        if self._restore_topic is None:
            return
        for topic in sorted(missing):
            try:
                await self._restore_topic(topic)
            except Retriable as error:
                self._log.warning("%s: topic %r can't be looked for now: %s", self.name, topic, error)
                return

    async def _reject_record(self, topic: str, chunk: RecordChunk, error: Exception) -> None:
        if self._rejected is None:
            raise Fatal(str(error))
        key, value = chunk.records()[0]
        await self._rejected(topic, key, value, chunk.units, error)
        self.unacked.release_chunk(chunk)

    def _requeue_chunks(self, writers: list[TopicPartitionWriter]) -> list[tuple[str, RecordChunk, Exception]]:
        """Put what is not acknowledged in line again; returns chunks with the single record that the broker refuses."""
        rejected: list[tuple[str, RecordChunk, Exception]] = []
        for writer, chunk, error in self._splits:
            if chunk.count > 1:
                index = writer.unacked.index(chunk)
                smaller_chunks = chunk.split(writer.batch_size)
                del writer.unacked[index]
                for offset, smaller_chunk in enumerate(smaller_chunks):
                    writer.unacked.insert(index + offset, smaller_chunk)
                self.unacked.bytes += sum(smaller_chunk.accounted for smaller_chunk in smaller_chunks) - chunk.accounted
                for unit in chunk.units:
                    unit.release()
            else:
                writer.unacked.remove(chunk)
                rejected.append((writer.topic, chunk, error))
        self._splits.clear()
        for writer in writers:
            writer.full.extendleft(reversed(writer.unacked))
            writer.unacked.clear()
        return rejected

    # Transactions.

    async def begin(self) -> None:
        """Begin a transaction.

        Raises:
            TransactionLost: it could not be started; the producer must be closed.
            Fenced: a newer producer has the transactional id.
        """
        await self._call_transaction("begin", lambda client: client.begin_transaction())
        self._offset_partitions.begin_transaction()

    async def commit(self) -> None:
        """Commit; everything must be drained. Raises as ``begin``; after ``TransactionLost`` the outcome is unknown."""
        await self._call_transaction("commit", lambda client: client.commit_transaction())

    async def abort(self) -> None:
        """Abort. Raises as ``begin``."""
        await self._call_transaction("abort", lambda client: client.abort_transaction())

    async def _call_transaction(self, action: str, call: Callable[[AIOKafkaProducer], Any]) -> None:
        self.check()
        client = self._require_client()
        try:
            async with asyncio.timeout(self.settings.stall_s):
                await call(client)
        except (kafka.KafkaError, kafka.IllegalOperation, TimeoutError, OSError, AssertionError) as failure:
            self.check()
            error = cause_of(failure, client)
            if classify_error(error) == "fenced":
                raise Fenced(
                    f"{self.name}: a newer instance of this task owns the transactional id; this one stops"
                ) from error
            if classify_error(error) == "fatal":
                raise Fatal(
                    f"{self.name}: Kafka refuses to {action} a transaction: {error!r}{permission_hint(error)}"
                ) from error
            raise TransactionLost(f"{self.name}: could not {action} a transaction: {error!r}") from error
