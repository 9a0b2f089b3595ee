"""One run of a task, at least once: poll -> transforms -> converters -> Kafka -> offsets of the acknowledged prefix.

``exactly_once.TransactionalSession`` replaces what is different inside transactions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from connectors.backoff import Backoff
from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable, Skippable
from connectors.wire import EncodedBatch
from offsets.topics import ensure_internal_topic
from worker.host.delivery.commits import CommitUnit, Ledger, position_key
from worker.host.delivery.convert import Conversion, Refused, split_runs
from worker.host.delivery.fast_path import compare_records, count_encoded, headers_of, last_timestamp, parts_of
from worker.host.delivery.producer import Producer, TopicTally
from worker.host.delivery.routes import topic_complaint
from worker.host.errors import DeadLetterRecord, ErrorHandler, ErrorStage, retry_pauses
from worker.host.instructions import InstructionSchedule
from worker.host.saved import own_offsets_topic_settings, write_pairs
from worker.host.tracing import BatchTraces
from worker.metrics import topics
from worker.protocol import VERIFICATION

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from connectors.api import Batch, Instruction, Position, SourceRecord, SourceTask
    from worker.host.delivery.commits import Committable
    from worker.host.delivery.routes import TopicRoute
    from worker.host.plan import TaskPlan
    from worker.protocol import TaskStats

log = logging.getLogger(__name__)

#: Records handled before the event loop gets its turn: about 3 ms.
SLICE: Final = 1000
_EMPTY_PAUSE_S: Final = 0.001
_LONGEST_EMPTY_PAUSE_S: Final = 0.1
#: Upper bounds of the commit time histogram in seconds; +Inf follows.
COMMIT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: A run of the source without a fault for this long resets the back-off.
_STABLE_S: Final = 60.0
#: The longest pause between commits until a task has saved its first positions, in seconds.
_FIRST_COMMIT_S: Final = 1.0
#: How many seconds a source may refuse a task that it accepted before, where config providers may give new secrets.
_REFUSED_S: Final = 60.0


class TaskSession:
    """Runs a task once, from its saved offsets to its cancellation or failure.

    Args:
        plan: everything resolved that the run needs.
        stats: numbers go there.
        running: called when the task begins to poll.
    """

    def __init__(self, plan: TaskPlan, stats: TaskStats, running: Callable[[], None]) -> None:
        self.plan = plan
        self.stats = stats
        self._running = running
        self.ledger = Ledger(self._acknowledged)
        self.producer: Producer | None = None
        self.task: SourceTask | None = None
        self.resumed = asyncio.Event()
        self.resumed.set()
        self.errors = ErrorHandler(
            plan.id, plan.options, stats, plan.log, plan.producer.max_request_size - 1024, plan.scrub
        )
        self._name = str(plan.id)
        self._worker: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        #: Whether the source ignored its cancellation.
        self.abandoned = False
        self._until: float | None = None
        self._committing = asyncio.Lock()
        #: While a verification waits for the task's offsets.
        self._commit_soon = asyncio.Event()
        self._routes: dict[str, TopicRoute] = {}
        self._batch_sizes: dict[str, int] = {}
        self._counted = (0, 0, 0, 0.0)
        self._instructions = InstructionSchedule(self._instruct_task)
        #: Whether the source gave a batch, and since when it refuses the task after that.
        self._let_in = False
        self._refused_since: float | None = None
        #: Whether new secrets came since the source's coroutine last began.
        self._renewed = False
        self._conversion = Conversion(plan.key_converter, plan.value_converter, plan.header_converter, self.persist)
        self._traces = BatchTraces()
        #: Seconds spent on appending to batches; the other stages are in ``stats``.
        self.append_s = 0.0

    # What the task runner calls.

    async def run(self) -> None:
        """Run until cancelled; after a cancellation what is acknowledged gets committed, within the deadline of ``stop``.

        Raises:
            MillraceError: the task failed.
        """
        committer: asyncio.Task[None] | None = None
        try:
            await self.open()
            task = self.task = self.plan.make_task()
            committer = asyncio.create_task(self.commit_regularly(), name=f"{self._name}|offsets")
            committer.add_done_callback(self._committer_ended)
            self._running()
            while True:
                await self.recover(await self._run_attempt(task))
        finally:
            self._instructions.close()
            try:
                if committer is not None:
                    committer.cancel()
                    await asyncio.gather(committer, return_exceptions=True)
            finally:
                await self.shut()

    @property
    def kafka(self) -> Producer:
        """The producer of this run; there is one from ``open`` on."""
        if self.producer is None:
            raise Fatal(f"{self._name} is not connected to Kafka")
        return self.producer

    async def abandon(self) -> None:
        """Make sure that a run which does not end writes nothing more; takes at most some seconds."""
        if self.producer is not None:
            await self.producer.close()

    def stop(self, until: float) -> None:
        """Announce that ``run`` gets cancelled and must be finished at loop time ``until``."""
        self._until = until

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """Tell the task, now if it works, what the operator asks of it; an error fails it."""
        others = [instruction for instruction in instructions if instruction.get("origin") != VERIFICATION]
        if len(others) < len(instructions):
            self._commit_soon.set()
        else:
            self._commit_soon.clear()
        self._instructions.replace(others)

    def _instruct_task(self, instructions: Sequence[Instruction]) -> None:
        if self._worker is None or self.task is None:
            return
        try:
            self.task.instruct(instructions)
        except Exception as error:  # noqa: BLE001 - whatever it is fails the task, and nothing else
            self.fail(error)

    def secrets_changed(self, names: Sequence[str]) -> None:
        """Tell the task, if it works, that these password options have new values; an error fails it."""
        self._renewed = True
        if self._worker is None or self.task is None:
            return
        try:
            self.task.secrets_changed(names)
        except Exception as error:  # noqa: BLE001 - whatever it is fails the task, and nothing else
            self.fail(error)

    async def recover(self, error: Exception) -> None:
        """Handle ``error``, with which the task's coroutine ended: prepare another attempt, or raise it."""
        raise error

    async def _run_attempt(self, task: SourceTask) -> Exception:
        """Run the task's own coroutine until it or something in the background fails; returns the failure.

        The source's code runs in an asyncio task of its own, so that it can be left behind if it ignores its cancellation.
        """
        worker = self._worker = asyncio.create_task(self._run_source(task), name=self._name)
        # The failure in the background takes precedence; no caller looks at the result of this task then.
        worker.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            waits: set[asyncio.Future[Any]] = {worker, self._failed}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._worker = None
            if not worker.done():
                worker.cancel()
                await asyncio.wait({worker}, timeout=self._end_patience_s())
                if not worker.done():
                    self.abandoned = True
                    self.plan.log.error(
                        "%s: the source ignores its cancellation and is abandoned; what it still gives is dropped",
                        self._name,
                    )
        if self._failed.done():
            return self._failed.result()
        if worker.cancelled():
            return Fatal(f"{self._name}: the source cancelled its own coroutine (a cancelled future it waited for?)")
        error = worker.exception()
        return error if isinstance(error, Exception) else Fatal(f"{self._name}: the source ended with {error!r}")

    def _end_patience_s(self) -> float:
        """Seconds to wait for the source to end; leaves a part of the deadline for the last commit."""
        if self._until is None:
            return self.plan.stop_s
        left = self._until - asyncio.get_running_loop().time()
        return max(0.05, left - min(1.0, left / 2))

    def _report_topic(self, topic: str, tally: TopicTally) -> None:
        numbers, labels = self.plan.metrics, {"topic": topic}
        numbers.add(topics.RECORDS, tally.records, labels)
        numbers.add(topics.BYTES, tally.bytes, labels)
        if tally.latest_ms is not None:
            numbers.set(topics.DELAY, tally.delay_ms / 1000, labels)
            numbers.set(topics.LAST, tally.latest_ms / 1000, labels)

    def refresh_stats(self) -> None:
        """Bring the numbers up to date that are not kept there all the time."""
        producer = self.producer
        if producer is None:
            return
        now = (producer.acked_rows, producer.acked_bytes, producer.acked_batches, producer.latency_s)
        before, self._counted = self._counted, now
        stats = self.stats
        for topic, tally in producer.take_topics().items():
            self._report_topic(topic, tally)
        stats.written += now[0] - before[0]
        stats.bytes_written += now[1] - before[1]
        stats.produce_batches += now[2] - before[2]
        stats.produce_latency_s += now[3] - before[3]
        stats.active = producer.rows
        stats.active_bytes = producer.bytes
        stats.active_limit = producer.settings.max_rows
        stats.active_limit_bytes = producer.settings.max_bytes
        stats.active_max = max(stats.active_max, producer.rows_max)
        producer.rows_max = producer.rows

    # Begin and end.

    async def open(self) -> None:
        """Read the saved offsets and connect to Kafka."""
        plan = self.plan
        await self._ensure_offsets_topic()
        await self.persist(plan.offsets.load)
        await self._start_producer()

    async def _ensure_offsets_topic(self) -> None:
        plan = self.plan
        if plan.own_offsets_topic is None:
            return
        topic = own_offsets_topic_settings(plan.worker, plan.own_offsets_topic)
        await self.persist(lambda: ensure_internal_topic(plan.admin, topic))

    async def _start_producer(self) -> None:
        await self.plan.turn()
        self.refresh_stats()
        self._counted = (0, 0, 0, 0.0)
        self._traces.lost("the batch was restarted")
        self._routes = {}
        self.producer = Producer(self._name, self.plan.producer, self.fail, self._reject_record, self._batch_sizes)
        await self.producer.start()

    def fail(self, error: Exception) -> None:
        """Interrupt the task: a part of it in the background can't continue."""
        if not self._failed.done():
            self._failed.set_result(error)

    def _committer_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.fail(error)

    async def shut(self) -> None:
        """End the run: commit what can be within the deadline, release everything."""
        loop = asyncio.get_running_loop()
        flush_s = int(self.plan.worker.get("offset.flush.timeout.ms", "5000")) / 1000
        left = flush_s if self._until is None else min(flush_s, self._until - loop.time() - 0.3)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.2, left)):
                    await self.last_commit()
        except MillraceError as error:
            self.plan.log.warning("%s: the last offsets could not be committed: %s", self._name, error)
        finally:  # a task that is stopped while it is already ending is cancelled here
            self.refresh_stats()
            if self.producer is not None:
                await self.producer.close()
            self._traces.lost("the task ended")
            with contextlib.suppress(Exception):
                await self._conversion.close()

    async def last_commit(self) -> None:
        """Commit at the end of a run."""
        if self.producer is not None and not self._failed.done():
            await self.producer.drain()
        await self.commit()

    # Polling.

    async def _run_source(self, task: SourceTask) -> None:
        pauses = retry_pauses(last_s=self.plan.options["errors.retry.delay.max.ms"] / 1000)
        faulty_since: float | None = None
        while True:
            await self.plan.turn()
            task.instruct(self._instructions.current)
            self._renewed = False
            generator = task.batches()
            began = time.monotonic()
            fault: Exception
            try:
                await self._iterate_batches(generator)
            except Retriable as error:
                fault = error
            except ConfigInvalid as error:
                fault = await self._retry_fault(error)
            finally:
                await self._close_generator(generator)
            now = time.monotonic()
            if now - began > _STABLE_S:
                pauses = retry_pauses(last_s=self.plan.options["errors.retry.delay.max.ms"] / 1000)
                faulty_since = None
            faulty_since = began if faulty_since is None else faulty_since
            limit_ms = self.plan.options["errors.retry.timeout"]
            if limit_ms is not None and limit_ms >= 0 and (now - faulty_since) * 1000 > limit_ms:
                raise fault
            await self.settle()
            pause = next(pauses)
            self.stats.retries += 1
            self.stats.last_error_ms = int(time.time() * 1000)
            self.plan.log.warning("%s: the source is away (%s), trying again in %.1f s", self._name, fault, pause)
            await asyncio.sleep(pause)

    async def _retry_fault(self, error: ConfigInvalid) -> Exception:
        """Return the fault after which to retry, if new secrets may fix ``error``.

        A source that refuses a task that it accepted before may be in the middle of a rotation: config providers are asked for
        new values at once, and for a while with each further try. New values may also have come while it was being refused.

        Raises:
            ConfigInvalid: they can't.
        """
        if self.plan.refresh_secrets is None:
            raise error
        now = time.monotonic()
        if await self.plan.refresh_secrets() or self._renewed:
            self._refused_since = None
            return Retriable(f"{error} (there are new secrets meanwhile)")
        if not self._let_in:
            raise error
        self._refused_since = now if self._refused_since is None else self._refused_since
        if now - self._refused_since > _REFUSED_S:
            raise error
        return Retriable(str(error))

    async def settle(self) -> None:
        """Wait until all that was given is delivered, so that a new generator begins right behind it."""
        await self.kafka.drain()
        await self.commit()

    async def _close_generator(self, generator: AsyncGenerator[Batch, None]) -> None:
        try:
            async with asyncio.timeout(self.plan.stop_s):
                await generator.aclose()
        except TimeoutError:
            self.plan.log.warning(
                "%s: the source did not release its resources within %.1f s", self._name, self.plan.stop_s
            )
        except Exception as error:  # noqa: BLE001 - the run's own outcome counts
            self.plan.log.warning("%s: the source failed while it was closed: %r", self._name, error)

    async def _iterate_batches(self, generator: AsyncGenerator[Batch, None]) -> None:
        stats = self.stats
        empty_pauses = Backoff(_EMPTY_PAUSE_S, _LONGEST_EMPTY_PAUSE_S)
        while True:
            await self.resumed.wait()
            await self.kafka.room.wait()
            began = perf_counter()
            try:
                batch = await anext(generator)
            except StopAsyncIteration:
                await self._wait_forever()
            took = perf_counter() - began
            self._check()
            self._let_in, self._refused_since = True, None
            stats.polls += 1
            stats.poll_s += took
            stats.poll_s_max = max(stats.poll_s_max, took)
            await self.resumed.wait()  # paused during the poll: its batch waits here
            count = len(batch.records) + (count_encoded(batch) if batch.encoded else 0)
            if count or batch.bad or batch.offsets or batch.transaction or batch.receipt is not None:
                empty_pauses.reset()
                self._traces.begin(self.plan.tracing, self.plan.id, stats, took, count)
                await self.handle(batch)
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(empty_pauses.next_s())

    def _check(self) -> None:
        # A source that swallows its cancellation comes back with a batch: it must not get into Kafka.
        if asyncio.current_task() is not self._worker:
            raise asyncio.CancelledError

    @staticmethod
    async def _wait_forever() -> None:
        await asyncio.Event().wait()

    # One batch.

    async def handle(self, batch: Batch) -> None:
        """Take a batch through to Kafka; returns when it is in the producer, not when it is acknowledged."""
        unit = self.unit_of(batch)
        self.ledger.add(unit)
        await self.deliver(batch, unit)
        self._traces.delivered(unit)
        unit.release()

    @staticmethod
    def unit_of(batch: Batch) -> CommitUnit:
        """The unit of a batch: the last position of each source partition in it."""
        records = batch.records
        positions: dict[object, tuple[object, Position, Position | None]] = {}
        for bad in batch.bad:
            key = position_key(bad.source_partition)
            positions[key] = (key, bad.source_partition, bad.source_offset)
        if records:
            # The same partition object is shared by many records: one look at each object, not at each record.
            last = {id(record.source_partition): index for index, record in enumerate(records)}
            for index in sorted(last.values()):
                record = records[index]
                key = position_key(record.source_partition)
                positions[key] = (key, record.source_partition, record.source_offset)
        for partition, offset in batch.offsets:
            key = position_key(partition)
            positions[key] = (key, partition, offset)
        return CommitUnit(tuple(positions.values()), last_timestamp(batch), batch.receipt)

    async def deliver(self, batch: Batch, unit: CommitUnit) -> None:
        """Transform, convert and hand over all records of a batch."""
        stats = self.stats
        count = len(batch.records) + (count_encoded(batch) if batch.encoded else 0)
        stats.polled += count + len(batch.bad)
        stats.batch_size_max = max(stats.batch_size_max, count)
        for bad in batch.bad:
            await self._skip_record(self.errors.bad(ErrorStage.TASK_POLL, bad.error, bad), unit)
        for part in parts_of(batch) if batch.encoded else (batch.records,) if count else ():
            if isinstance(part, EncodedBatch):
                await self._deliver_encoded(part, unit)
            else:
                await self._deliver_records(part, unit)
        for route in self._routes.values():
            route.kick()

    async def _deliver_records(self, records: Sequence[SourceRecord], unit: CommitUnit) -> None:
        if len(records) <= SLICE:
            await self._deliver_slice(records, unit)
            return
        for start in range(0, len(records), SLICE):
            await self._deliver_slice(records[start : start + SLICE], unit)
            await self._yield_loop()

    async def _yield_loop(self) -> None:
        """Let others have the event loop, between two slices of a batch."""
        await asyncio.sleep(0)
        await self.kafka.room.wait()
        self._check()

    async def _deliver_encoded(self, part: EncodedBatch, unit: CommitUnit) -> None:
        """Hand over records that are bytes already."""
        if self.plan.wire is not None and self.plan.wire.verify:
            await self._verify_batch(part)
        began = perf_counter()
        topic, headers = part.writer.topic, headers_of(part)
        for start in range(0, len(part.values), SLICE):
            stop = start + SLICE
            values = part.values[start:stop]
            route = await self.route(topic)
            heads = self._traces.headers(topic, [headers] * len(values) if headers else None, len(values))
            for index, error in route.append(
                unit,
                values,
                None if part.keys is None else part.keys[start:stop],
                None,
                None if part.timestamps is None else part.timestamps[start:stop],
                heads,
            ):
                record = self._records_of(part)[start + index]
                await self._skip_record(self.errors.bad(ErrorStage.KAFKA_PRODUCE, error, record), unit)
            if stop < len(part.values):
                await self._yield_loop()
        self.append_s += perf_counter() - began

    def _records_of(self, part: EncodedBatch) -> list[SourceRecord]:
        """Encoded records as they are after the transforms, made a second time."""
        records = part.records()
        if not self.plan.pipeline:
            return records
        return [record for record in self.plan.pipeline.apply_many(records)[0] if record is not None]

    async def _verify_batch(self, part: EncodedBatch) -> None:
        """Compare encoded records with what the converters make of the same records; a difference fails the task."""
        records = self._records_of(part)
        refused: list[Refused] = []
        converted = [await self._conversion.convert(run, refused) for run in split_runs(records)]
        compare_records(part, records, [run for run in converted if run is not None])

    async def _deliver_slice(self, records: Sequence[SourceRecord], unit: CommitUnit) -> None:
        stats = self.stats
        began = perf_counter()
        if self.plan.pipeline:
            records = await self._transform_records(records, unit)
            now = perf_counter()
            stats.transform_s += now - began
            began = now
            if not records:
                return
        refused: list[Refused] = []
        for run in split_runs(records):
            complaint = topic_complaint(run[0].topic) if run[0].topic not in self._routes else None
            if complaint is not None:
                # Before a converter registers schemas for a topic that can't be.
                refused += [Refused(record, ErrorStage.KAFKA_PRODUCE, Skippable(complaint), "") for record in run]
                continue
            converted = await self._conversion.convert(run, refused)
            now = perf_counter()
            stats.convert_s += now - began
            began = now
            if converted is None:
                continue
            route = await self.route(converted.topic)
            converted = converted.spread(len(route.writers))
            headers = self._traces.headers(converted.topic, converted.headers, len(converted.values))
            for index, error in route.append(
                unit,
                converted.values,
                converted.keys,
                converted.partitions,
                converted.timestamps,
                headers,
                converted.places,
            ):
                await self._skip_record(
                    self.errors.bad(ErrorStage.KAFKA_PRODUCE, error, converted.records[index]), unit
                )
            now = perf_counter()
            self.append_s += now - began
            began = now
        for item in refused:
            await self._skip_record(self.errors.bad(item.stage, item.error, item.record, item.executing), unit)

    async def _transform_records(self, records: Sequence[SourceRecord], unit: CommitUnit) -> list[SourceRecord]:
        results: list[SourceRecord | None] = []
        problems: list[Any] = []

        async def apply() -> None:
            nonlocal results, problems
            results, problems = self.plan.pipeline.apply_many(records)

        await self.persist(apply)
        for index, error in problems:
            await self._skip_record(
                self.errors.bad(ErrorStage.TRANSFORMATION, error, records[index], error.class_name), unit
            )
        kept = [record for record in results if record is not None]
        self.stats.filtered += len(records) - len(kept) - len(problems)
        return kept

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic, which is created first if the connector says how."""
        route = self._routes.get(topic)
        if route is None:
            await self.persist(lambda: self.plan.topics.ensure(topic))
            self._routes[topic] = route = await self.kafka.route(topic)
        elif route.refresh_at < asyncio.get_running_loop().time():
            await self.kafka.route(topic)
        if topic not in self.plan.active_topics and topic != self.plan.own_offsets_topic:
            self.plan.active_topics.add(topic)
            self.plan.topic_used(topic)
        return route

    async def _skip_record(self, letter: DeadLetterRecord | None, unit: CommitUnit) -> None:
        """Write a bad record's dead letter, if it has one, as part of its unit."""
        if letter is None:
            return
        await self.persist(self.plan.ensure_dead_letter_topic)
        route = await self.route(self.errors.topic)
        if route.append(unit, [letter.value], [letter.key], None, None, [letter.headers]):
            self.stats.dead_letter_failures += 1
            raise Fatal(f"{self._name}: a dead letter for topic {self.errors.topic!r} is larger than max.request.size")

    async def _reject_record(
        self, topic: str, key: bytes | None, value: bytes | None, units: list[CommitUnit], error: Exception
    ) -> None:
        """The broker refused a record for good."""
        if topic == self.errors.topic:
            self.stats.dead_letter_failures += 1
            raise Fatal(f"{self._name}: the broker refuses a dead letter for topic {topic!r}: {error}")
        position = units[0].positions[0] if units[0].positions else (None, None, None)
        letter = self.errors.refused(ErrorStage.KAFKA_PRODUCE, error, "", topic, key, value, position[1], position[2])
        await self._skip_record(letter, units[0])
        for route in self._routes.values():
            route.kick()

    async def persist(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Call until it succeeds; a passing fault is retried for as long as ``errors.retry.timeout`` says."""
        options = self.plan.options
        limit_ms = options["errors.retry.timeout"]
        began = time.monotonic()
        for pause in retry_pauses(last_s=options["errors.retry.delay.max.ms"] / 1000):
            try:
                await call()
            except Retriable as error:
                if limit_ms is not None and limit_ms >= 0 and (time.monotonic() - began + pause) * 1000 > limit_ms:
                    raise Fatal(f"{error} (tried again for errors.retry.timeout={limit_ms} ms)") from error
                self.stats.retries += 1
                self.plan.log.warning("%s: %s, trying again in %.1f s", self._name, error, pause)
                await asyncio.sleep(pause)
            else:
                return

    # Offsets.

    def _acknowledged(self, unit: CommitUnit) -> None:
        self._traces.acknowledged(unit)
        if unit.timestamp is not None:
            self.stats.lag_ms = max(0.0, time.time() * 1000 - unit.timestamp)
        if unit.receipt is not None:
            self.confirm(unit.receipt)

    def confirm(self, receipt: Any) -> None:
        """Tell the task that Kafka has a batch; an error fails it."""
        if self.task is None:
            return
        try:
            self.task.delivered(receipt)
        except Exception as error:  # noqa: BLE001 - whatever it is fails the task, and nothing else
            self.fail(error)

    async def commit_regularly(self) -> None:
        """Commit at each ``offset.flush.interval.ms``, each second at first and for a verification.

        A new source has no saved position before its first commit: a worker that dies then has no position to resume from, and
        reads a log that is rotated meanwhile from the new file on.
        """
        interval_s = self.plan.flush_interval_s
        before = self.stats.commits
        while True:
            soon_s = min(interval_s, _FIRST_COMMIT_S)
            if self.stats.commits > before:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval_s):
                        await self._commit_soon.wait()
                        await asyncio.sleep(soon_s)
            else:
                await asyncio.sleep(soon_s)
            with contextlib.suppress(Retriable):
                await self.commit()

    async def commit(self) -> None:
        """Write the offsets of the acknowledged prefix and tell the task; waits until Kafka has them.

        Raises:
            MillraceError: they could not be written; the next commit retries.
        """
        async with self._committing:
            offsets = self.ledger.take()
            if not offsets:
                return
            began = perf_counter()
            try:
                await self._write_offsets(offsets)
            except BaseException:
                self.ledger.give_back(offsets)
                self.stats.commit_failures += 1
                raise
            await self.committed(offsets, perf_counter() - began)

    async def _write_offsets(self, offsets: list[Committable]) -> None:
        plan = self.plan
        pairs = plan.offsets.pairs(offsets)
        if plan.own_offsets_topic is not None:
            await write_pairs(self.kafka, plan.own_offsets_topic, pairs)
        await plan.offset_writer.write(pairs)

    async def committed(self, offsets: list[Committable], took_s: float) -> None:
        """Count a commit, remember the positions and tell the task."""
        stats = self.stats
        stats.commits += 1
        stats.commit_s += took_s
        stats.commit_s_max = max(stats.commit_s_max, took_s)
        for index, bound in enumerate(COMMIT_BUCKETS):
            if took_s <= bound:
                stats.commit_buckets[index] += 1
        stats.commit_buckets[-1] += 1
        for partition, offset in offsets:
            self.plan.offsets.index.put(partition, offset)
        if self.task is None:
            return
        try:
            async with asyncio.timeout(self.plan.stop_s):
                await self.task.committed([(partition, offset) for partition, offset in offsets if offset is not None])
        except Exception as error:  # noqa: BLE001 - the contract: logged and counted, and nothing else
            stats.commit_failures += 1
            self.plan.log.warning("%s: the source failed on a commit: %r", self._name, error)
