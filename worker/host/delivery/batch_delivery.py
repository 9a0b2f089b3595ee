"""From a source's batch to the producer: transforms, converters, routes to topics, dead letters."""

from __future__ import annotations

import asyncio
import contextlib
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, Skippable
from connectors.wire import EncodedBatch
from worker.host.delivery.commits import CommitUnit, position_key
from worker.host.delivery.convert import Conversion, Refused, split_runs
from worker.host.delivery.fast_path import compare_records, count_encoded, headers_of, last_timestamp, parts_of
from worker.host.delivery.routes import topic_complaint
from worker.host.errors import DeadLetterRecord, ErrorHandler, ErrorStage
from worker.host.tracing import BatchTraces

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from connectors.api import Batch, Position, SourceRecord
    from worker.host.delivery.producer import Producer
    from worker.host.delivery.routes import TopicRoute
    from worker.host.plan import TaskPlan
    from worker.protocol import TaskStats

#: Records handled before the event loop gets its turn: about 3 ms.
SLICE: Final = 1000


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


class BatchDelivery:
    """Brings the records of a task's batches to its producer.

    Args:
        plan: of the task.
        stats: numbers go there.
        producer: returns the producer of the run; raises ``Fatal`` before the first connects.
        persist: calls until it succeeds, for as long as ``errors.retry.timeout`` says.
        check: raises ``CancelledError`` where a batch may not get into Kafka any more.
    """

    def __init__(
        self,
        plan: TaskPlan,
        stats: TaskStats,
        producer: Callable[[], Producer],
        persist: Callable[[Callable[[], Awaitable[Any]]], Awaitable[None]],
        check: Callable[[], None],
    ) -> None:
        self._plan = plan
        self._stats = stats
        self._producer = producer
        self._persist = persist
        self._check = check
        self.errors = ErrorHandler(
            plan.id, plan.options, stats, plan.log, plan.producer.max_request_size - 1024, plan.scrub
        )
        self._conversion = Conversion(plan.key_converter, plan.value_converter, plan.header_converter, persist)
        self._routes: dict[str, TopicRoute] = {}
        #: Those that were asked for since the last kick: a task may have thousands of topics, and a batch a few of them.
        self._used: dict[str, TopicRoute] = {}
        self.traces = BatchTraces()
        #: Seconds spent on appending to batches; the other stages are in ``stats``.
        self.append_s = 0.0

    def restart(self) -> None:
        """Begin with another producer; what was on its way is lost."""
        self.traces.lost("the batch was restarted")
        self._routes = {}
        self._used = {}

    async def close(self) -> None:
        """Release the converters; raises nothing."""
        self.traces.lost("the task ended")
        with contextlib.suppress(Exception):
            await self._conversion.close()

    async def deliver(self, batch: Batch, unit: CommitUnit) -> None:
        """Transform, convert and hand over all records of a batch."""
        stats = self._stats
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
        used, self._used = self._used, {}
        for route in used.values():
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
        await self._producer().room.wait()
        self._check()

    async def _deliver_encoded(self, part: EncodedBatch, unit: CommitUnit) -> None:
        """Hand over records that are bytes already."""
        if self._plan.wire is not None and self._plan.wire.verify:
            await self._verify_batch(part)
        began = perf_counter()
        topic, headers = part.writer.topic, headers_of(part)
        records: list[SourceRecord] = []  # made once, if any is refused
        for start in range(0, len(part.values), SLICE):
            stop = start + SLICE
            values = part.values[start:stop]
            route = await self.route(topic)
            heads = self.traces.headers(topic, [headers] * len(values) if headers else None, len(values))
            for index, error in route.append(
                unit,
                values,
                None if part.keys is None else part.keys[start:stop],
                None,
                None if part.timestamps is None else part.timestamps[start:stop],
                heads,
            ):
                records = records or self._records_of(part)
                letter = self.errors.bad(ErrorStage.KAFKA_PRODUCE, error, records[start + index])
                await self._skip_record(letter, unit)
            if stop < len(part.values):
                await self._yield_loop()
        self.append_s += perf_counter() - began

    def _records_of(self, part: EncodedBatch) -> list[SourceRecord]:
        """Encoded records as they are after the transforms, made a second time."""
        records = part.records()
        if not self._plan.pipeline:
            return records
        return [record for record in self._plan.pipeline.apply_many(records)[0] if record is not None]

    async def _verify_batch(self, part: EncodedBatch) -> None:
        """Compare encoded records with what the converters make of the same records; a difference fails the task."""
        records = self._records_of(part)
        refused: list[Refused] = []
        converted = [await self._conversion.convert(run, refused) for run in split_runs(records)]
        compare_records(part, records, [run for run in converted if run is not None])

    async def _deliver_slice(self, records: Sequence[SourceRecord], unit: CommitUnit) -> None:
        stats = self._stats
        began = perf_counter()
        if self._plan.pipeline:
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
            converted = converted.spread(route.partitions)
            headers = self.traces.headers(converted.topic, converted.headers, len(converted.values))
            for index, error in route.append(
                unit,
                converted.values,
                converted.keys,
                converted.partitions,
                converted.timestamps,
                headers,
                converted.partition_keys,
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
            results, problems = self._plan.pipeline.apply_many(records)

        await self._persist(apply)
        for index, error in problems:
            await self._skip_record(
                self.errors.bad(ErrorStage.TRANSFORMATION, error, records[index], error.class_name), unit
            )
        kept = [record for record in results if record is not None]
        self._stats.filtered += len(records) - len(kept) - len(problems)
        return kept

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic, which is created first if the connector says how."""
        route = self._routes.get(topic)
        if route is None:
            await self._persist(lambda: self._plan.topics.ensure(topic))
            self._routes[topic] = route = await self._producer().route(topic)
        elif route.refresh_at < asyncio.get_running_loop().time():
            await self._producer().route(topic)
        self._used[topic] = route
        if topic not in self._plan.active_topics and topic != self._plan.own_offsets_topic:
            self._plan.active_topics.add(topic)
            self._plan.topic_used(topic)
        return route

    async def restore_topic(self, topic: str) -> None:
        """Create a topic that was deleted while the task ran, if the connector says how.

        Raises:
            Fatal: it can't be created.
            Retriable: Kafka is unavailable.
        """
        self.forget_topics([topic])
        if topic == self._plan.own_offsets_topic:
            return  # with the settings of a connector's topics it would not be compacted
        if topic == self.errors.topic:
            await self._plan.ensure_dead_letter_topic()
        await self._plan.topics.ensure(topic)

    def forget_topics(self, names: Iterable[str]) -> None:
        """Look for topics again before they are used next: they may have been deleted."""
        for topic in names:
            self._plan.topics.forget(topic)
            self._plan.dead_letter_topics.forget(topic)

    async def _skip_record(self, letter: DeadLetterRecord | None, unit: CommitUnit) -> None:
        """Write a bad record's dead letter, if it has one, as part of its unit."""
        if letter is None:
            return
        await self._persist(self._plan.ensure_dead_letter_topic)
        route = await self.route(self.errors.topic)
        if route.append(unit, [letter.value], [letter.key], None, None, [letter.headers]):
            self._stats.dead_letter_failures += 1
            raise Fatal(
                f"{self._plan.id}: a dead letter for topic {self.errors.topic!r} is larger than max.request.size"
            )

    async def reject_record(
        self, topic: str, key: bytes | None, value: bytes | None, units: list[CommitUnit], error: Exception
    ) -> None:
        """The broker refused a record for good."""
        if topic == self.errors.topic:
            self._stats.dead_letter_failures += 1
            raise Fatal(f"{self._plan.id}: the broker refuses a dead letter for topic {topic!r}: {error}")
        # Of a batch with several units it is not known whose the record is: none of them passes the dead letter.
        position = units[0].positions[0] if len(units) == 1 and units[0].positions else (None, None, None)
        letter = self.errors.refused(ErrorStage.KAFKA_PRODUCE, error, "", topic, key, value, position[1], position[2])

        def release_units(_: CommitUnit) -> None:
            for unit in units:
                unit.release()

        written = CommitUnit()
        written.done = release_units
        for unit in units:
            unit.holders += 1
        await self._skip_record(letter, written)
        written.release()
        for route in self._routes.values():
            route.kick()
