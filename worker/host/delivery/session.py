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
from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable
from offsets.topics import ensure_internal_topic
from worker.host.delivery.batch_delivery import BatchDelivery, unit_of
from worker.host.delivery.commits import Ledger
from worker.host.delivery.fast_path import count_encoded
from worker.host.delivery.producer import Producer
from worker.host.delivery.producer_counts import ProducerFigures
from worker.host.delivery.refusals import SourceRefusals
from worker.host.errors import retry_pauses
from worker.host.instructions import InstructionSchedule
from worker.host.saved import own_offsets_topic_settings, write_pairs
from worker.protocol import VERIFICATION

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from connectors.api import Batch, Instruction, SourceTask
    from worker.host.delivery.commits import Committable, CommitUnit
    from worker.host.plan import TaskPlan
    from worker.protocol import TaskStats

log = logging.getLogger(__name__)

_EMPTY_PAUSE_S: Final = 0.001
_LONGEST_EMPTY_PAUSE_S: Final = 0.1
#: Upper bounds of the commit time histogram in seconds; +Inf follows.
COMMIT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: A run of the source without a fault for this long resets the back-off.
_STABLE_S: Final = 60.0
#: The longest pause between commits until a task has saved its first positions, in seconds.
_FIRST_COMMIT_S: Final = 1.0


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
        self._name = str(plan.id)
        self._worker: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        #: Whether the source ignored its cancellation.
        self.abandoned = False
        self._until: float | None = None
        self._committing = asyncio.Lock()
        #: While a verification waits for the task's offsets.
        self._commit_soon = asyncio.Event()
        self._batch_sizes: dict[str, int] = {}
        self._instructions = InstructionSchedule(self._instruct_task)
        self._refusals = SourceRefusals(plan.refresh_secrets)
        self.delivery = BatchDelivery(plan, stats, lambda: self.kafka, self.persist, self._check)
        self._figures = ProducerFigures(plan.metrics, stats)

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
        self._refusals.secrets_changed()
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

    def refresh_stats(self) -> None:
        """Bring the numbers up to date that are not kept there all the time."""
        if self.producer is not None:
            self._figures.refresh(self.producer)

    # Begin and end.

    async def open(self) -> None:
        """Read the saved offsets and connect to Kafka."""
        plan = self.plan
        await self._ensure_offsets_topic()
        await plan.offset_writer.settle()
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
        self._figures.begin()
        self.delivery.restart()
        self.producer = Producer(
            self._name,
            self.plan.producer,
            self.fail,
            self.delivery.reject_record,
            self._batch_sizes,
            pool=self.plan.client_pool,
            restore_topic=self.delivery.restore_topic,
        )
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
            await self.delivery.close()

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
            self._refusals.begin()
            generator = task.batches()
            began = time.monotonic()
            fault: Exception
            try:
                await self._iterate_batches(generator)
            except Retriable as error:
                fault = error
            except ConfigInvalid as error:
                fault = await self._refusals.retry_fault(error)
            finally:
                await self._close_generator(generator)
            now = time.monotonic()
            if now - began > _STABLE_S:
                pauses = retry_pauses(last_s=self.plan.options["errors.retry.delay.max.ms"] / 1000)
                faulty_since = None
            # Not since it began: it may have worked for hours before this fault.
            faulty_since = now if faulty_since is None else faulty_since
            pause = next(pauses)
            limit_ms = self.plan.options["errors.retry.timeout"]
            if limit_ms is not None and limit_ms >= 0 and (now - faulty_since + pause) * 1000 > limit_ms:
                raise fault
            await self.settle()
            self.stats.retries += 1
            self.stats.last_error_ms = int(time.time() * 1000)
            self.plan.log.warning("%s: the source is unavailable (%s), retrying in %.1f s", self._name, fault, pause)
            await asyncio.sleep(pause)

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
            self._refusals.accepted()
            stats.polls += 1
            stats.poll_s += took
            stats.poll_s_max = max(stats.poll_s_max, took)
            await self.resumed.wait()  # paused during the poll: its batch waits here
            count = len(batch.records) + (count_encoded(batch) if batch.encoded else 0)
            if count or batch.bad or batch.offsets or batch.transaction or batch.receipt is not None:
                empty_pauses.reset()
                self.delivery.traces.begin(self.plan.tracing, self.plan.id, stats, took, count)
                await self.handle(batch)
                del batch  # its rows must not stay in memory while the next ones are waited for
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
        unit = unit_of(batch)
        self.ledger.add(unit)
        await self.delivery.deliver(batch, unit)
        self.delivery.traces.delivered(unit)
        unit.release()

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
                    raise Fatal(f"{error} (retried for errors.retry.timeout={limit_ms} ms)") from error
                self.stats.retries += 1
                self.plan.log.warning("%s: %s, retrying in %.1f s", self._name, error, pause)
                await asyncio.sleep(pause)
            else:
                return

    # Offsets.

    def _acknowledged(self, unit: CommitUnit) -> None:
        self.delivery.traces.acknowledged(unit)
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
