"""Saved offsets of one connector as its tasks see them, and the worker's offsets topic as tasks write to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, Fenced, MillraceError, Retriable
from offsets.positions import OffsetIndex, encode_offset
from offsets.store import OffsetStore
from offsets.topics import internal_topic
from worker.host.delivery.commits import CommitUnit
from worker.host.delivery.producer import Producer
from worker.kafka.clients import CREDENTIALS
from worker.protocol import ReadOffsets, RemoteError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from connectors.api import Position
    from offsets.topics import InternalTopic
    from worker.host.delivery.commits import Committable
    from worker.host.delivery.routes import ProducerSettings

Pairs = list[tuple[bytes, bytes | None]]
_READ_DEADLINE_S: Final = 120.0


def own_offsets_topic_settings(worker: Mapping[str, str], name: str) -> InternalTopic:
    """A connector's own offsets topic as it is created where it does not exist."""
    return internal_topic(
        "offset",
        worker,
        name=name,
        partitions=int(worker.get("offset.storage.partitions", "25")),
        replication_factor=int(worker.get("offset.storage.replication.factor", "3")),
        prop="offsets.storage.topic",
    )


class OffsetReads:
    """Reads saved offsets for all tasks of a host.

    Tasks of one connector that ask while another read of it is under way share the next one, and its index: with thousands of
    source partitions and hundreds of tasks an index for each task would take gigabytes.

    Args:
        request: asks the control process: (message, deadline in seconds) -> answer.
    """

    def __init__(self, request: Callable[[Any, float], Awaitable[Any]]) -> None:
        self._request = request
        #: Reads that wait for the one before, and the one under way, by connector and its own offsets topic.
        self._waiting: dict[tuple[str, str | None], asyncio.Task[OffsetIndex]] = {}
        self._reading: dict[tuple[str, str | None], asyncio.Task[OffsetIndex]] = {}

    async def read(self, connector: str, own_topic: str | None, client: Mapping[str, Any]) -> OffsetIndex:
        """Read what is saved for ``connector`` at this moment or later; others may get the same index.

        Args:
            connector: its name.
            own_topic: its own offsets topic, or None.
            client: aiokafka client arguments to read that topic with.

        Raises:
            Retriable: it can't be read now.
        """
        key = (connector, own_topic)
        read = self._waiting.get(key)
        if read is None:
            read = self._waiting[key] = asyncio.create_task(self._read_next(key, client), name=f"{connector}|offsets")
            read.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, though all may have gone
        return await asyncio.shield(read)

    async def _read_next(self, key: tuple[str, str | None], client: Mapping[str, Any]) -> OffsetIndex:
        if key in self._reading:
            await asyncio.wait({self._reading[key]})
        # Who asks from now on may want what is saved meanwhile.
        self._reading[key] = self._waiting.pop(key)
        connector, own_topic = key
        try:
            pairs = await self._read_pairs(connector)
            if own_topic is not None:
                pairs += await _read_own_topic(connector, own_topic, client)
            return OffsetIndex(connector, pairs)
        finally:
            del self._reading[key]

    async def _read_pairs(self, connector: str) -> list[tuple[bytes, bytes]]:
        try:
            answer = await self._request(ReadOffsets(connector), _READ_DEADLINE_S)
        except (RemoteError, TimeoutError) as error:
            raise Retriable(f"the saved offsets of connector {connector!r} can't be read now: {error}") from error
        return [(bytes(key), bytes(value)) for key, value in answer]


async def _read_own_topic(connector: str, topic: str, client: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    store = OffsetStore(topic, client, isolation="read_committed")
    try:
        await store.start()
        # Another connector's tasks may share the topic: see ``WorkerNode.read_offsets``.
        await store.read_to_end(open_transactions=True)
        return store.raw(connector)
    finally:
        await store.stop()


class ConnectorOffsets:
    """The ``OffsetReader`` of a task: current after ``load`` and after each ``put`` to its ``index``.

    Args:
        connector: its name.
        reads: of the host.
        own_topic: the connector's own offsets topic, or None.
        client: aiokafka client arguments to read that topic with.
    """

    def __init__(self, connector: str, reads: OffsetReads, own_topic: str | None, client: Mapping[str, Any]) -> None:
        self._connector = connector
        self._reads = reads
        self._own_topic = own_topic
        self._client = client
        self.index = OffsetIndex(connector)

    def read_also(self, own_topic: str | None, client: Mapping[str, Any]) -> None:
        """Name the connector's own offsets topic once its configuration is known; arguments as of the class."""
        self._own_topic = own_topic
        self._client = client

    async def load(self) -> None:
        """Read all saved offsets, as of now.

        Raises:
            Retriable: they can't be read now.
        """
        self.index = await self._reads.read(self._connector, self._own_topic, self._client)

    def get(self, partition: Position) -> Position | None:
        """The saved offset of ``partition``, or None."""
        return self.index.get(partition)

    def items(self) -> list[tuple[Position, Position]]:
        """All saved positions of the connector."""
        return self.index.items()

    def pairs(self, offsets: Sequence[Committable]) -> Pairs:
        """Offsets as records of the offsets topic.

        Raises:
            Fatal: one can't be stored.
        """
        key_for = self.index.key_for
        return [(key_for(partition), encode_offset(offset)) for partition, offset in offsets]


class OffsetTooLarge(Fatal):
    """One task's offset can't be saved; the producer still works."""


async def write_pairs(producer: Producer, topic: str, pairs: Pairs) -> None:
    """Write offsets with ``producer`` and wait until Kafka has them, however long Kafka is unavailable.

    Raises:
        OffsetTooLarge: one of them is not written.
        MillraceError: the producer died.
    """
    producer.acked.uncounted.add(topic)
    route = await producer.route(topic)
    written = asyncio.Event()
    unit = CommitUnit()
    unit.done = lambda _: written.set()
    refused = route.append(unit, [value for _, value in pairs], [key for key, _ in pairs])
    unit.release()
    route.kick()
    await producer.wait_for(written)
    if refused:
        # Without it the source would be read again from an older position, unnoticed until then.
        index, error = refused[0]
        raise OffsetTooLarge(
            f"the offset with the key {pairs[index][0].decode(errors='replace')} can't be saved: {error}"
        )


class OffsetWriter:
    """Writes to the worker's offsets topic for all tasks of a host, with one producer that connects at its first use.

    Args:
        topic: the worker's ``offset.storage.topic``.
        settings: of the producer.
    """

    def __init__(self, topic: str, settings: ProducerSettings) -> None:
        self._topic = topic
        self._settings = settings
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()
        #: Writes that their callers no longer wait for, and that may still come to Kafka.
        self._left: set[asyncio.Task[None]] = set()

    async def write(self, pairs: Pairs) -> None:
        """Write offsets and wait until Kafka has them, however long Kafka is unavailable.

        Raises:
            Fatal: Kafka refuses them. The next call retries with a new producer.
        """
        async with self._starting:
            if self._producer is None:
                producer = Producer("offsets", self._settings, lambda _: None)
                await producer.start()
                self._producer = producer
        producer = self._producer
        writing = asyncio.create_task(write_pairs(producer, self._topic, pairs), name="offsets|write")
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            self._left.add(writing)
            writing.add_done_callback(self._forget_write)
            raise
        except OffsetTooLarge:
            raise  # of this task alone: the others write on
        except MillraceError as error:
            if self._producer is producer:
                self._producer = None
                await producer.close()
            if isinstance(error, Fatal | Fenced):
                raise Fatal(f"offsets can't be written to topic {self._topic!r}: {error}") from error
            raise

    async def settle(self) -> None:
        """Wait until what callers have given up is in Kafka, or its producer died: a task that starts reads it then."""
        if self._left:
            await asyncio.wait(set(self._left))

    def _forget_write(self, writing: asyncio.Task[None]) -> None:
        self._left.discard(writing)
        if not writing.cancelled():
            writing.exception()  # seen: no caller waits for it

    def renew(self, arguments: Mapping[str, Any]) -> None:
        """Log in with the credentials among ``arguments`` from the next connection on."""
        self._settings.arguments.update({name: arguments[name] for name in CREDENTIALS if name in arguments})
        if self._producer is not None:
            self._producer.credentials_changed()

    async def close(self) -> None:
        """Close the producer; takes at most a few seconds."""
        producer, self._producer = self._producer, None
        for writing in self._left:
            writing.cancel()
        if producer is not None:
            await producer.close()
