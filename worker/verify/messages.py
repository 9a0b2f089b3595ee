"""A verification's side of Kafka: topics up to their present end; and what all verifications are asked."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
)

from connectors.backoff import Backoff
from connectors.cql.cluster.throttle import Pace
from connectors.errors import ConfigInvalid, Retriable
from offsets.admin import TopicAdmin
from offsets.fetch import Fetched, TopicFetcher
from worker.kafka import clients as kafka_clients
from worker.terminal import progress

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from aiokafka import AIOKafkaConsumer, TopicPartition

    from worker.terminal import Step

_PROGRESS_S: Final = 1.0
#: Pause between two questions, at most.
POLL_S: Final = 1.0
#: A fetch: how long it waits for messages, and its size for each partition.
_FETCH_MS: Final = 500
_FETCH_BYTES: Final = 4 << 20
#: How long brokers may not answer, and the first pause after an error.
_PATIENCE_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.1
#: How long one message may take.
_ONE_MS: Final = 5_000
_MOST_RECORDS: Final = 5_000


class VerifyProgress:
    """How far a verification is, on standard error."""

    def __init__(self, *, shown: bool = True) -> None:
        self._shown = shown
        self._next = 0.0
        self._step: Step | None = None
        self._open = ExitStack()

    def say(self, line: str, *, now: bool = False) -> None:
        """Show a line, at most once a second unless ``now``."""
        moment = time.monotonic()
        if self._shown and (now or moment >= self._next):
            self._next = moment + _PROGRESS_S
            self.write(line)

    def write(self, line: str) -> None:
        """Write it where it is shown."""
        if self._step is None:
            self._step = self._open.enter_context(progress("verifying", quiet_s=2))
        self._step.note = line

    def end(self) -> None:
        """Show nothing more."""
        self._step = None
        self._open.close()


class VerificationRequest(NamedTuple):
    """The request for a verification.

    Attributes:
        includes: whether to verify a table, by its name.
        offsets: reads the connector's saved offsets, or None: they can't be asked.
        timeout_s: how long to wait until the topics have reached the state of the tables.
        settle_s: how long the topics must have been quiet, or a difference must have lasted; None: as the source needs.
        examples: keys to show of each kind of difference.
        folder: for temporary files.
        progress: shows how far it is; None: on a terminal.
        rows_per_s: rows read of the source per second at most; 0: no limit.
    """

    includes: Callable[[str], bool]
    offsets: Callable[[], list[dict[str, Any]]] | None = None
    timeout_s: float = 300.0
    settle_s: float | None = None
    examples: int = 5
    folder: str | None = None
    progress: VerifyProgress | None = None
    rows_per_s: int = 0


class TopicMessage(msgspec.Struct, gc=False):
    """A message."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class TopicReader:
    """Reads topics from their beginning, each time up to their present end. For one task at a time.

    Args:
        worker: the worker's properties.
        progress: shows how far it is.
        notes: gets what is to be known of the topics.
    """

    def __init__(self, worker: Mapping[str, str], progress: VerifyProgress, notes: list[str]) -> None:
        from aiokafka import AIOKafkaConsumer

        consumer_settings = kafka_clients.client_arguments(
            kafka_clients.inherited_properties(worker, "consumer."), "consumer"
        )
        # An uncommitted transaction is no part of what readers see; groups are no business of ours.
        self._consumer: AIOKafkaConsumer = AIOKafkaConsumer(
            **{
                **consumer_settings.arguments,
                "group_id": None,
                "enable_auto_commit": False,
                "isolation_level": "read_committed",
                "auto_offset_reset": "earliest",
            }
        )
        self._worker = worker
        self._progress = progress
        self._notes = notes
        #: By partition: its first message.
        self._starts: dict[TopicPartition, int] = {}
        #: Where each partition is read on, of the topics that were chosen.
        self._next: dict[TopicPartition, int] = {}
        #: Topics that are not there (yet), of those that were opened; and of those that were chosen.
        self._missing: set[str] = set()
        self._awaited: set[str] = set()

    async def start(self) -> None:
        """Connect.

        Raises:
            KafkaError: no broker answers.
        """
        await self._consumer.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self._consumer.stop()

    async def open(self, topics: Collection[str]) -> None:
        """Find the partitions of topics; a topic that is not there is noted, and looked for again with each ``read``."""
        self._missing = set(topics)
        self._next = await self._look_for(self._missing)
        for topic in sorted(self._missing):
            self._note_once(_no_topic(topic))

    def _note_once(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)

    async def _look_for(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """The partitions of those of the missing topics that are there by now, with their first message."""
        from aiokafka import TopicPartition

        partitions: list[TopicPartition] = []
        client = kafka_clients.client_arguments(kafka_clients.inherited_properties(self._worker, "admin."), "admin")
        async with TopicAdmin(client.arguments) as admin:
            for topic in sorted(topics):
                count = await admin.partitions(topic)
                if count is not None:
                    self._missing.discard(topic)
                    partitions += [TopicPartition(topic, number) for number in range(count)]
        if not partitions:
            return {}
        self._consumer.assign(partitions)
        starts = dict(await self._consumer.beginning_offsets(partitions))
        self._starts.update(starts)
        return starts

    def choose(self, topics: Collection[str]) -> None:
        """Read these topics from their beginning, and no others."""
        self._next = {partition: start for partition, start in self._starts.items() if partition.topic in topics}
        self._awaited = self._missing.intersection(topics)

    async def waiting(self) -> int:
        """About how many messages are not read."""
        if not self._next:
            return 0
        ends: Mapping[TopicPartition, int] = await self._consumer.end_offsets(list(self._next))
        return sum(ends.values()) - sum(self._next.values())

    async def quiet(self, settle_s: float, timeout_s: float) -> None:
        """Wait until nothing is added to the topics any more: the best that can be done without asking the connector.

        Raises:
            Retriable: they are not quiet in time.
        """
        self._note_once(
            "the connector's position was not asked (give --rest and --connector): the topics were read once "
            f"they had been quiet for {settle_s:g} s"
        )
        deadline = time.monotonic() + timeout_s
        ends, since = None, time.monotonic()
        while self._next:
            new_ends = await self._consumer.end_offsets(list(self._next))
            now = time.monotonic()
            if new_ends != ends:
                ends, since = new_ends, now
            elif now - since >= settle_s:
                return
            if now > deadline:
                raise Retriable(
                    f"the topics did not become quiet within {timeout_s:g} s: give --rest and --connector, "
                    "so that the connector can be asked for its position"
                )
            self._progress.say("waiting for the topics to become quiet")
            await asyncio.sleep(min(POLL_S, settle_s / 4))

    async def messages(self, topic: str, positions: Collection[tuple[int, int]]) -> list[Any]:
        """Messages by their partition and offset, in this order; one that is not there any more is left out."""
        from aiokafka import TopicPartition

        messages: list[Any] = []
        for number, offset in sorted(positions):
            partition = TopicPartition(topic, number)
            self._consumer.assign([partition])
            self._consumer.seek(partition, offset)
            batches = await self._consumer.getmany(partition, timeout_ms=_ONE_MS, max_records=1)
            messages += [message for batch in batches.values() for message in batch if message.offset == offset]
        return messages

    async def read(self, handle: Callable[[Sequence[Any]], Awaitable[None]]) -> None:
        """Give the messages that came since the last call to ``handle``, some at a time, up to the present end."""
        if self._awaited:
            self._next |= await self._look_for(self._awaited)
            for topic in self._awaited - self._missing:
                self._notes.remove(_no_topic(topic))
            self._awaited &= self._missing
        ends = await self._consumer.end_offsets(list(self._next)) if self._next else {}
        left = {partition: end for partition, end in ends.items() if self._next[partition] < end}
        if not left:
            return
        for topic in sorted({partition.topic for partition in left}):
            await self._read_topic(
                {partition: end for partition, end in left.items() if partition.topic == topic}, handle
            )

    async def _read_topic(
        self, left: dict[TopicPartition, int], handle: Callable[[Sequence[Any]], Awaitable[None]]
    ) -> None:
        """Read some partitions of one topic up to their ends.

        A consumer would cost several times as much for each message as a fetcher does.

        Raises:
            KafkaError: the user may not read it, or no broker has answered for a minute.
        """
        topic = next(iter(left)).topic
        fetcher, pauses = self._make_fetcher(topic), Backoff(_FIRST_PAUSE_S, POLL_S)
        read, answered = 0, time.monotonic()
        try:
            await fetcher.start()
            while left:
                try:
                    results = await self._fetch(fetcher, {partition: self._next[partition] for partition in left})
                except TopicAuthorizationFailedError:
                    raise
                except (KafkaError, OSError, TimeoutError) as error:
                    if time.monotonic() - answered > _PATIENCE_S:
                        raise KafkaConnectionError(f"{topic} can't be read: {error!r}") from error
                    await asyncio.sleep(pauses.next_s())
                    await fetcher.close()
                    fetcher = self._make_fetcher(topic)
                    with suppress(KafkaError, OSError, TimeoutError):  # the next fetch says so
                        await fetcher.start()
                    continue
                pauses.reset()
                answered = time.monotonic()
                for partition, fetched in results.items():
                    read += await _hand_over(partition, fetched, left[partition], handle)
                    # The position also passes over what is no record: marks of transactions, and what compaction took away.
                    self._next[partition] = min(fetched.position, left[partition])
                    if fetched.position >= left[partition]:
                        del left[partition]
                self._progress.say(f"reading {topic}: {read} messages, {len(left)} partitions to go")
        finally:
            await fetcher.close()

    def _make_fetcher(self, topic: str) -> TopicFetcher:
        properties = kafka_clients.inherited_properties(self._worker, "consumer.")
        # The arguments of every client, without those of consumers alone.
        client = kafka_clients.client_arguments(properties, "admin").arguments
        return TopicFetcher(topic, client, "read_committed")

    async def _fetch(
        self, fetcher: TopicFetcher, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Fetched]:
        """Fetch once from each leader.

        Raises:
            KafkaError, OSError, TimeoutError: nothing is fetched.
        """
        partitions = {partition.partition: partition for partition in positions}
        by_leader = fetcher.by_leader({partition.partition: position for partition, position in positions.items()})
        if not by_leader:
            raise LeaderNotAvailableError(f"no partition of {fetcher.topic} that is left has a leader")
        answers = await asyncio.gather(
            *(
                fetcher.fetch(node, of_leader, max_wait_ms=_FETCH_MS, max_bytes=_FETCH_BYTES)
                for node, of_leader in by_leader.items()
            )
        )
        results: dict[TopicPartition, Fetched] = {}
        for fetched in chain.from_iterable(answers):
            if fetched.out_of_range:  # what was there is deleted by now
                starts = await fetcher.start_offsets(frozenset({fetched.partition}))
                fetched = replace(fetched, position=starts[fetched.partition])  # noqa: PLW2901
            elif fetched.error is not None:
                raise fetched.error
            results[partitions[fetched.partition]] = fetched
        return results


async def _hand_over(
    partition: TopicPartition, fetched: Fetched, end: int, handle: Callable[[Sequence[Any]], Awaitable[None]]
) -> int:
    """Give messages before ``end`` to ``handle``, some at a time; returns how many they are."""
    topic, number = partition.topic, partition.partition
    records = chain.from_iterable(fetched.batches)
    read = 0
    while messages := [
        TopicMessage(topic, number, record.offset, record.key, record.value)
        for record in islice(records, _MOST_RECORDS)
        if record.offset < end
    ]:
        read += len(messages)
        await handle(messages)
    return read


def _no_topic(topic: str) -> str:
    return f"there is no topic {topic}: nothing was ever sent to it"


@contextmanager
def kafka_refusals(worker: Mapping[str, str]) -> Iterator[None]:
    """Errors of Kafka as Retriable ones, which say what to check."""
    try:
        yield
    except KafkaError as error:
        raise Retriable(
            f"Kafka at {worker.get('bootstrap.servers')}: {type(error).__name__}: {error}; check "
            "--bootstrap-servers or the worker's properties, and what the user may read"
        ) from error


def unreadable_message(message: Any, error: Exception) -> ConfigInvalid:
    """The complaint about a message that is not understood."""
    return ConfigInvalid(
        f"message {message.topic}-{message.partition}@{message.offset} can't be read: {error}. Do the "
        "converters of the configuration fit, and is all of the topic the connector's?"
    )


class RowThrottle:
    """Waits so long that not more rows are read per second than was asked; 0: it never waits."""

    def __init__(self, rows_per_s: int) -> None:
        self._pace = Pace(rows_per_s)

    async def spent(self, rows: int) -> None:
        """Wait after this number of rows was read."""
        now = time.monotonic()
        self._pace.spent(rows, now)
        wait_s = self._pace.wait_s(now)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
