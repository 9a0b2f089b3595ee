"""A compacted topic as a log that is read to its end and followed: Connect's ``KafkaBasedLog`` for asyncio.

No consumer group: every reader reads all partitions from their start. The follower runs until it is stopped: while Kafka is
unavailable it reconnects with a back-off, and logs that once, not at each attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced, UnknownTopicOrPartitionError

from connectors.backoff import Backoff
from connectors.errors import Fatal, Fenced, Retriable
from offsets.fetch import (
    CREDENTIALS,
    LEVELS,
    Fetched,
    FetchedRecord,
    Isolation,
    TopicFetcher,
    abandon_producer,
    renew_credentials,
)
from offsets.joint import Joint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_LOG: Final = logging.getLogger(__name__)
#: One fetch while catching up: large enough to be cheap, small enough that parsing it holds the loop for ~50 ms.
_CATCH_UP_BYTES: Final = 8 << 20
_FOLLOW_WAIT_MS: Final = 500
#: A node that failed is left alone for so long while others are read from.
_REST_S: Final = 0.5
_FIRST_BACKOFF_S: Final = 0.1
_LAST_BACKOFF_S: Final = 5.0
#: How often a follower looks for new partitions.
_REFRESH_S: Final = 60.0


class CompactedLog:
    """Reads a compacted topic, follows it, and writes to it.

    Args:
        topic: an existing topic (``offsets.topics`` makes it).
        client: aiokafka client arguments (``bootstrap_servers``, security ...).
        sink: called with a partition and its next records, in order, to be iterated over once. It must not block, and must
            not raise: the same records would come again.
        isolation: ``read_committed`` where transactional writers exist.
        producer: further aiokafka producer arguments; acks and idempotence are set here.
        refresh_s: seconds between looks for new partitions.
        gather_s: seconds that records may gather in Kafka after some were read, while no reader waits for the end.
    """

    def __init__(
        self,
        topic: str,
        client: Mapping[str, Any],
        sink: Callable[[int, Iterable[FetchedRecord]], None],
        *,
        isolation: Isolation = "read_committed",
        producer: Mapping[str, Any] | None = None,
        refresh_s: float = _REFRESH_S,
        gather_s: float = 0.0,
    ) -> None:
        self.topic = topic
        self._client = dict(client)
        self._sink = sink
        self._isolation = isolation
        self._producer_options = dict(producer or {})
        self._refresh_s = refresh_s
        self._gather_s = gather_s
        self._end_wanted = asyncio.Event()
        self._positions: dict[int, int] = {}
        self._waiters: list[tuple[dict[int, int], asyncio.Future[None]]] = []
        self._ends = {level: Joint(functools.partial(self._ask_end, level)) for level in LEVELS}
        self._fetcher: TopicFetcher | None = None
        self._follower: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._producer: AIOKafkaProducer | None = None
        self._producing = asyncio.Lock()
        self._abandoned: set[asyncio.Task[None]] = set()
        self._interrupted = False
        self._pauses = Backoff(_FIRST_BACKOFF_S, _LAST_BACKOFF_S, low=0.8, high=1.2)
        self.last_error: Exception | None = None
        #: Whether the brokers say that there is no such topic.
        self.missing = False
        #: Whether records that were read here are not in the topic any more.
        self._emptied = False

    @property
    def lost(self) -> bool:
        """Whether the topic was deleted, recreated or emptied: what was read here before is only in memory now."""
        fetcher = self._fetcher
        shrunk = fetcher is not None and not fetcher.partitions.issuperset(self._positions)
        return self._emptied or shrunk or (self.missing and bool(self._positions))

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to be read of each partition."""
        return dict(self._positions)

    @property
    def connected(self) -> bool:
        """Whether the follower has a working connection now."""
        return self._connected.is_set()

    async def start(self, deadline_s: float = 60.0) -> None:
        """Read the topic to its end and follow it from there.

        Raises:
            Retriable: the end was not reached within ``deadline_s``; the log is stopped then.
        """
        self._follower = asyncio.create_task(self._follow_topic(), name=f"log-{self.topic}")
        try:
            await self.read_to_end(deadline_s)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop following and producing; takes at most a few seconds, even while Kafka is unavailable."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
            self._follower = None
        if self._producer is not None:
            producer, self._producer = self._producer, None
            await abandon_producer(producer)
        await asyncio.gather(*self._abandoned, return_exceptions=True)
        stopped = Retriable(f"the reader of topic {self.topic!r} was stopped")
        for joint in self._ends.values():
            await joint.stop(stopped)
        self._fail_waiters(stopped)

    def renew(self, arguments: Mapping[str, Any]) -> None:
        """Log in with the credentials among ``arguments`` from the next connection on; open connections stay as they are."""
        self._client.update({name: arguments[name] for name in CREDENTIALS if name in arguments})
        if self._fetcher is not None:
            self._fetcher.renew(arguments)
        if self._producer is not None:
            renew_credentials(self._producer.client, arguments)

    async def read_to_end(self, deadline_s: float = 30.0, *, open_transactions: bool = False) -> None:
        """Wait until everything that is in the topic now has reached the sink.

        Under ``read_committed`` a partition ends where its oldest open transaction begins, so this does not wait for unfinished
        transactions. It does not see what others have written or committed behind them. With ``open_transactions`` it waits for
        all transactions that are open now, as Connect does: for as long as the timeout of a transaction whose producer died and
        is not replaced. A caller that must see all that a certain producer has committed needs it, since any other producer may
        have a transaction open in the same partition.

        Raises:
            Retriable: not within ``deadline_s``; the message has the last error of the connection.
        """
        if self._follower is None or self._follower.done():
            raise Fatal(f"the reader of topic {self.topic!r} is not running: start it first")
        reached: asyncio.Future[None] | None = None
        try:
            async with asyncio.timeout(deadline_s):
                reached = await self._ends["read_uncommitted" if open_transactions else self._isolation].ask()
                await asyncio.shield(reached)
        except TimeoutError:
            behind = next(
                (behind_at(self._positions, ends) for ends, waiter in self._waiters if waiter is reached), None
            )
            raise Retriable(
                f"topic {self.topic!r} could not be read to its end within {deadline_s:g} s: "
                + (
                    f"the brokers at {self._client.get('bootstrap_servers')} do not answer, or a partition has no leader (last "
                    f"error: {self.last_error!r})"
                    if behind is None or not self.connected
                    else f"{behind}. A transaction that is open there has to end, or the reader needs more time"
                )
            ) from None

    async def _ask_end(self, isolation: Isolation) -> asyncio.Future[None]:
        """Ask where the topic ends now; the future is done when that has been read."""
        while True:
            await self._connected.wait()
            fetcher = self._fetcher
            if fetcher is None:
                continue
            try:
                ends = await fetcher.end_offsets(isolation)
                break
            except (KafkaError, OSError, TimeoutError) as error:
                # A leader has changed. The follower need not notice: a replica that leads no longer still answers its
                # fetches (KIP-392), but not the question for the end.
                self.last_error = error
                if fetcher is self._fetcher:
                    with contextlib.suppress(KafkaError, OSError):
                        await fetcher.refresh()
                await asyncio.sleep(_FIRST_BACKOFF_S)
        _LOG.debug("Topic %s ends at %s (%s): reading up to there", self.topic, ends, isolation)
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reached.add_done_callback(lambda done: done.exception())  # also where those who waited have given up
        self._waiters.append((ends, reached))
        self._end_wanted.set()
        self._wake_waiters()
        return reached

    async def send(self, key: bytes, value: bytes | None, deadline_s: float = 30.0) -> None:
        """Write one record and wait until all in-sync replicas have it; None deletes.

        Raises:
            Retriable: not acknowledged within ``deadline_s``; it may or may not have been written.
        """
        await self.send_all(((key, value),), deadline_s)

    async def send_all(
        self,
        pairs: Iterable[tuple[bytes, bytes | None]],
        deadline_s: float = 30.0,
        *,
        producer: AIOKafkaProducer | None = None,
    ) -> None:
        """Write records in order and wait for all acknowledgements.

        With ``producer`` (in a transaction that the caller has started) they are written by that one; the caller commits.

        Raises:
            Retriable: not all acknowledged within ``deadline_s``; some may have been written.
            Fenced: the producer's transactional id has a newer owner.
        """
        is_own_producer = producer is None
        try:
            async with asyncio.timeout(deadline_s):
                if producer is None:
                    producer = await self._own_producer()
                sent = [await producer.send(self.topic, value, key=key) for key, value in pairs]
                if sent:
                    await asyncio.gather(*sent)
        except ProducerFenced as error:
            raise Fenced(f"writing to topic {self.topic!r}: another process owns the transactional id now") from error
        except (TimeoutError, KafkaError, OSError) as error:
            if is_own_producer:
                self._abandon_producer()
            raise Retriable(
                f"writing to topic {self.topic!r} was not acknowledged within {deadline_s:g} s ({error!r}): check "
                "the brokers and that enough in-sync replicas are up"
            ) from error

    async def _own_producer(self) -> AIOKafkaProducer:
        async with self._producing:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    **{**self._client, **self._producer_options, "acks": "all", "enable_idempotence": True}
                )
                try:
                    await producer.start()
                except BaseException:
                    await abandon_producer(producer)
                    raise
                self._producer = producer
            return self._producer

    def _abandon_producer(self) -> None:
        # A producer whose send timed out may still hang on it (aiokafka issue 1101): the next send gets a new one.
        if self._producer is not None:
            task = asyncio.create_task(abandon_producer(self._producer))
            self._producer = None
            self._abandoned.add(task)
            task.add_done_callback(self._abandoned.discard)

    async def _follow_topic(self) -> None:
        try:
            while True:
                fetcher = TopicFetcher(self.topic, self._client, self._isolation)
                try:
                    await fetcher.start()
                    self._fetcher = fetcher
                    self._connected.set()
                    await self._fetch_records(fetcher)
                except Exception as error:  # noqa: BLE001 - whatever it is, following continues and the error is shown
                    self.last_error = error
                    self.missing = isinstance(error, UnknownTopicOrPartitionError)
                    (_LOG.debug if self._interrupted else _LOG.warning)(
                        "Reading topic %s was interrupted, retrying: %r", self.topic, error
                    )
                    self._interrupted = True
                finally:
                    self._connected.clear()
                    self._fetcher = None
                    await fetcher.close()
                await asyncio.sleep(self._pauses.next_s())
        finally:
            self._fail_waiters(Retriable(f"the reader of topic {self.topic!r} was stopped"))

    def _note_success(self) -> None:
        """A fetch succeeded: only this ends an interruption, a mere connection does not."""
        if self._interrupted:
            _LOG.info("Reading topic %s again", self.topic)
        self._interrupted = False
        self.missing = False
        self._pauses.reset()

    async def _fetch_records(self, fetcher: TopicFetcher) -> None:
        """Fetch until something breaks; one request per leading node is under way at any time."""
        loop = asyncio.get_running_loop()
        under_way: dict[int, asyncio.Task[list[Fetched]]] = {}
        resting: dict[int, float] = {}
        refresh_at = loop.time() + self._refresh_s
        try:
            while True:
                if loop.time() >= refresh_at:
                    await fetcher.refresh(resting)
                    refresh_at = loop.time() + self._refresh_s
                new = fetcher.partitions.difference(self._positions)
                if new:
                    self._positions.update(await fetcher.start_offsets(new))
                    self._wake_waiters()
                for node, positions in fetcher.by_leader(self._positions).items():
                    if node not in under_way and resting.get(node, 0.0) <= loop.time():
                        under_way[node] = asyncio.create_task(
                            fetcher.fetch(node, positions, max_wait_ms=_FOLLOW_WAIT_MS, max_bytes=_CATCH_UP_BYTES)
                        )
                if not under_way:
                    await asyncio.sleep(_FIRST_BACKOFF_S)
                    refresh_at = 0.0
                    continue
                await asyncio.wait(
                    under_way.values(), timeout=_REST_S if resting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for node in [node for node, task in under_way.items() if task.done()]:
                    try:
                        results = under_way.pop(node).result()
                    except (KafkaError, OSError, TimeoutError) as error:
                        self.last_error = error
                        if not under_way:
                            raise
                        _LOG.debug("Node %s does not answer for topic %s: %r", node, self.topic, error)
                        resting[node] = loop.time() + _REST_S
                        refresh_at = 0.0
                        continue
                    resting.pop(node, None)
                    self._note_success()
                    if await self._absorb_results(fetcher, results):
                        refresh_at = 0.0
                    elif self._gather_s and any(result.position > result.asked for result in results):
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(self._gather_s):
                                await self._end_wanted.wait()
        finally:
            for task in under_way.values():
                task.cancel()
            await asyncio.gather(*under_way.values(), return_exceptions=True)

    async def _absorb_results(self, fetcher: TopicFetcher, results: list[Fetched]) -> bool:
        """Hand records on and move positions; returns whether the leaders must be asked for again."""
        stale = False
        lost: list[int] = []
        for result in results:
            if result.asked != self._positions.get(result.partition):
                continue  # the partition was read through another node meanwhile
            if result.out_of_range:
                lost.append(result.partition)
            elif result.error is not None:
                stale = True
                self.last_error = result.error
            else:
                if result.batches:
                    self._sink(result.partition, chain.from_iterable(result.batches))
                self._positions[result.partition] = result.position
        if results and not any(result.batches or result.error or result.position > result.asked for result in results):
            # Nothing at all came, so there is nothing between a position and the readable end: compaction may have removed
            # the last records of a log, and a reader that waited for them would wait forever.
            for result in results:
                if self._positions[result.partition] == result.asked < result.readable_end:
                    self._positions[result.partition] = result.readable_end
        if lost:
            _LOG.warning(
                "Topic %s: positions %s are no longer in the log (records were deleted, or the topic was created again); "
                "reading on from its beginning",
                self.topic,
                {partition: self._positions[partition] for partition in lost},
            )
            starts, ends = await fetcher.start_offsets(frozenset(lost)), await fetcher.high_watermarks(frozenset(lost))
            # A replica that leads no longer may lack the last records: its answer alone is no loss.
            self._emptied |= any(not starts[number] <= self._positions[number] <= ends[number] for number in lost)
            self._positions.update(starts)
        if stale:
            await asyncio.sleep(_FIRST_BACKOFF_S)
        self._wake_waiters()
        return stale

    def _wake_waiters(self) -> None:
        remaining = []
        for ends, reached in self._waiters:
            if reached.done():
                continue
            if all(self._positions.get(partition, 0) >= end for partition, end in ends.items()):
                reached.set_result(None)
            else:
                remaining.append((ends, reached))
        self._waiters = remaining
        if not remaining:
            self._end_wanted.clear()

    def _fail_waiters(self, error: Exception) -> None:
        for _, reached in self._waiters:
            if not reached.done():
                reached.set_exception(error)
        self._waiters = []


def behind_at(positions: Mapping[int, int], ends: Mapping[int, int]) -> str:
    """Name the partitions that are not read to their ends. Pure."""
    left = sorted(partition for partition, end in ends.items() if positions.get(partition, 0) < end)
    if not left:
        return "it has been read just now"
    first = left[0]
    remainder = f", and {len(left) - 1} more are behind" if len(left) > 1 else ""
    return f"partition {first} is read up to {positions.get(first, 0)} of {ends[first]}{remainder}"
