"""Runs a connector in this process against the contract, without a worker and without Kafka."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any, Self, TypeVar

from connectors.errors import Retriable
from connectors.testing.blocking import watched_context
from connectors.testing.contexts import (
    LogCapture,
    MemoryConnectorContext,
    MemoryTaskContext,
    RecordedMetrics,
    SavedOffsets,
    make_logger,
)
from connectors.testing.values import batch_problem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
    from types import TracebackType

    from connectors.api import Batch, Instruction, SourceConnector, SourceRecord, SourceTask

#: A task must have ended this long after it was cancelled, seconds. Generous: it tells "at once" from "never".
STOP_DEADLINE = 20.0
_RETRY_PAUSE = 0.02

T = TypeVar("T")


class Run:
    """One incarnation of a connector and its tasks, from saved offsets on.

    Use it as an async context manager. Batches are taken one at a time; a batch that was taken counts as delivered at once,
    so ``offsets`` is what a restart would begin with.

    Args:
        connector: the connector's class.
        config: its properties.
        offsets: what is saved; changed as batches are taken.
        max_tasks: as ``tasks.max``.
        boundary: as ``TaskContext.transaction_boundary``.
        capture: where log lines go.
        watch: note blocking calls of the connector in ``blocking``.
    """

    def __init__(
        self,
        connector: type[SourceConnector],
        config: Mapping[str, str],
        *,
        offsets: SavedOffsets | None = None,
        max_tasks: int = 1,
        boundary: str = "",
        capture: LogCapture | None = None,
        watch: bool = False,
    ) -> None:
        self.offsets = offsets if offsets is not None else SavedOffsets()
        self.log = capture if capture is not None else LogCapture()
        self.tasks: list[SourceTask] = []
        #: The operator's requests, as ``instruct`` got them.
        self.instructions: list[Instruction] = []
        self.blocking: list[str] = []
        self.metrics = RecordedMetrics(connector.metrics)
        self._class = connector
        self._raw = dict(config)
        self._max_tasks = max_tasks
        self._boundary = boundary
        self._configs: list[dict[str, str]] = []
        self._generators: list[AsyncGenerator[Batch, None]] = []
        self._pending: dict[int, asyncio.Task[Batch]] = {}
        self._done: set[int] = set()
        self._code = watched_context(self.blocking) if watch else contextvars.copy_context()
        parsed = connector.config_def.parse(self._raw)
        self.context = MemoryConnectorContext("conformance", parsed, self.offsets, make_logger("connector", self.log))
        self.connector = connector(self.context)

    async def __aenter__(self) -> Self:
        problems = [problem for problem in await self._class.validate(self.context.config) if not problem.warning]
        if problems:
            raise AssertionError(f"the harness's configuration is refused: {problems}")
        await self._run_watched(self.connector.start())
        await self.start_tasks()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _run_watched(self, call: Coroutine[Any, Any, T]) -> T:
        """Run the connector's code in the context that is watched."""
        return await asyncio.get_running_loop().create_task(call, context=self._code)

    async def start_tasks(self) -> None:
        """Make new tasks, which start with what is saved."""
        self._configs = await self._run_watched(self.connector.task_configs(self._max_tasks))
        if len(self._configs) > self._max_tasks:
            raise AssertionError(f"task_configs({self._max_tasks}) gave {len(self._configs)} tasks")
        self.tasks = []
        for number, task_config in enumerate(self._configs):
            config = self._class.config_def.parse({**self._raw, **task_config})
            self.tasks.append(
                self._class.task_class(
                    MemoryTaskContext(
                        "conformance",
                        number,
                        config,
                        self.offsets,
                        self.metrics,
                        make_logger(f"task-{number}", self.log),
                        self._boundary,
                    )
                )
            )
        self._generators = [self._begin_batches(task) for task in self.tasks]
        self._done = set()

    def _begin_batches(self, task: SourceTask) -> AsyncGenerator[Batch, None]:
        """A new generator, as the runtime makes it: with all that operators ask for."""
        self._code.run(task.instruct, self.instructions)
        return task.batches()

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """Give the tasks the operator's requests, the complete list; new tasks get it too."""
        self.instructions = list(instructions)
        for task in self.tasks:
            self._code.run(task.instruct, self.instructions)

    async def stop_tasks(self) -> None:
        """End the tasks.

        Raises:
            AssertionError: one did not end in time.
        """
        for future in self._pending.values():
            future.cancel()
        waiting = list(self._pending.values())
        self._pending.clear()
        if waiting:
            ended, alive = await asyncio.wait(waiting, timeout=STOP_DEADLINE)
            if alive:
                raise AssertionError(f"{len(alive)} tasks did not end within {STOP_DEADLINE:g} s of their cancellation")
            for future in ended:
                if not future.cancelled():
                    future.exception()
        for generator in self._generators:
            async with asyncio.timeout(STOP_DEADLINE):
                await generator.aclose()
        self._generators = []

    async def stop(self) -> None:
        """Cancel the tasks, then stop the connector.

        Raises:
            AssertionError: a task did not end in time.
        """
        await self.stop_tasks()
        async with asyncio.timeout(STOP_DEADLINE):
            await self._run_watched(self.connector.stop())

    async def reconfigure(self) -> None:
        """Ask for task configurations again, and restart the tasks if they changed."""
        self.context.wants_tasks = False
        configs = await self._run_watched(self.connector.task_configs(self._max_tasks))
        if configs != self._configs:
            await self.stop_tasks()
            await self.start_tasks()

    async def take(self, limit: float) -> tuple[int, Batch] | None:
        """The next batch of any task, with the task's number; None if no task yields one within ``limit`` seconds.

        A task that raised ``Retriable`` is started again from what is saved.

        Raises:
            AssertionError: the batch is not what the contract says.
            Exception: what a task raised.
        """
        end = asyncio.get_running_loop().time() + limit
        while True:
            if self.context.failure is not None:
                raise self.context.failure
            if self.context.wants_tasks:
                await self.reconfigure()
            for number, generator in enumerate(self._generators):
                if number not in self._pending and number not in self._done:
                    self._pending[number] = asyncio.get_running_loop().create_task(
                        _next_batch(generator), context=self._code
                    )
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return None
            if not self._pending:
                await asyncio.sleep(min(left, _RETRY_PAUSE))
                continue
            # In short waits, because the connector may ask for other tasks meanwhile.
            ended, _ = await asyncio.wait(
                self._pending.values(), timeout=min(left, 0.1), return_when=asyncio.FIRST_COMPLETED
            )
            for number in sorted(number for number, future in self._pending.items() if future in ended):
                batch = await self._read_outcome(number, self._pending.pop(number))
                if batch is not None:
                    problem = batch_problem(batch)
                    if problem is not None:
                        raise AssertionError(f"task {number}: {problem}")
                    self.offsets.deliver(batch)
                    if batch.receipt is not None:
                        self._code.run(self.tasks[number].delivered, batch.receipt)
                    return number, batch

    async def _read_outcome(self, number: int, future: asyncio.Task[Batch]) -> Batch | None:
        try:
            return future.result()
        except _Finished:
            self._done.add(number)
        except Retriable:
            await asyncio.sleep(_RETRY_PAUSE)
            self._generators[number] = self._begin_batches(self.tasks[number])
        return None

    async def read(self, count: int, limit: float = 30.0) -> list[SourceRecord]:
        """The next records, at least ``count`` of them (whole batches).

        Raises:
            AssertionError: fewer came in time.
        """
        records: list[SourceRecord] = []
        end = asyncio.get_running_loop().time() + limit
        while len(records) < count:
            result = await self.take(max(0.0, end - asyncio.get_running_loop().time()))
            if result is None:
                raise AssertionError(
                    f"{len(records)} of {count} records came within {limit:g} s; log:\n{self.log.text()}"
                )
            records += result[1].records
        return records


async def _next_batch(generator: AsyncGenerator[Batch, None]) -> Batch:
    try:
        return await anext(generator)
    except StopAsyncIteration:
        raise _Finished from None


class _Finished(Exception):
    """A generator returned; a coroutine can't raise ``StopAsyncIteration`` itself."""
