"""A task host: carries out what the control process asks, wherever it runs (``main`` makes a process of it)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.job_api import JobConnector, JobProgress
from worker.host.connector_runner import ConnectorRunner, ConnectorSecrets
from worker.host.delivery.routes import ProducerSettings
from worker.host.delivery.shared_clients import ClientPool
from worker.host.errors import retry_pauses
from worker.host.job import JobPlan, make_job_plan
from worker.host.lease import Lease
from worker.host.options import WORKER
from worker.host.plan import HostServices, TaskPlan, make_plan
from worker.host.questions.plugin_questions import PluginQuestions, name_current_task
from worker.host.saved import ConnectorOffsets, OffsetReads, OffsetWriter
from worker.host.task_runner import TaskRunner
from worker.host.tracing import Tracing, make_tracing
from worker.kafka import clients as kafka_clients
from worker.logs import LoggerRegistry, set_context
from worker.plugins.providers import provider_finder
from worker.plugins.registry import PluginRegistry
from worker.protocol import (
    ActiveTopic,
    HostTaskId,
    Init,
    Instruct,
    PauseTask,
    Ping,
    ProcessStats,
    SetLogLevel,
    StartConnector,
    StartTask,
    Stats,
    StopConnector,
    StopTask,
    TopicForgotten,
)
from worker.secrets.masking import SecretMasker
from worker.secrets.providers import build_providers
from worker.secrets.rotation import SecretKeeper, build_keeper
from worker.turns import Turnstile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from worker.protocol import ClientStats, HostMessage, ToHost

log = logging.getLogger(__name__)

_STATS_S: Final = 1.0
#: With more tasks than this, numbers are sent less often in proportion.
_STATS_TASKS: Final = 1000
#: Tasks that are counted before the event loop gets its turn.
_STATS_SLICE: Final = 100
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: Outstanding offsets of one host; far more than its tasks can have, since each commits once at a time.
_OFFSET_ROWS: Final = 1_000_000


class Channel(Protocol):
    """The way to the control process; ``worker.pipe.Peer`` is one."""

    async def request(self, message: HostMessage, deadline_s: float) -> Any:
        """Ask and wait for the answer."""

    def event(self, message: HostMessage) -> None:
        """Tell without waiting."""


class TaskHost:
    """Runs connectors and tasks.

    Args:
        channel: the way to the control process.
        loop_lag: gives the longest time in seconds that the event loop was late since it was last asked.
        initialized: called with the worker's properties once ``Init`` is done.
        numbers: gives the process's Kafka clients and what else is counted of it.
    """

    def __init__(
        self,
        channel: Channel,
        loop_lag: Callable[[], float] | None = None,
        initialized: Callable[[Init], None] | None = None,
        numbers: Callable[[], tuple[list[ClientStats], ProcessStats]] = lambda: ([], ProcessStats()),
    ) -> None:
        self._numbers = numbers
        self._channel = channel
        self._loop_lag = loop_lag or (lambda: 0.0)
        self._initialized = initialized
        self._masker = SecretMasker()
        self._init: Init | None = None
        self._worker: dict[str, str] = {}
        self._keeper = SecretKeeper({}, self._masker.add)
        self._plugins: PluginRegistry | None = None
        self._offset_reads = OffsetReads(channel.request)
        self._offset_writer = OffsetWriter("", ProducerSettings({}))
        self._client_pool = ClientPool()
        self._tasks: dict[HostTaskId, TaskRunner] = {}
        self._connectors: dict[str, ConnectorRunner] = {}
        #: What starts takes turns.
        self._starts = Turnstile()
        self._lease = Lease(channel.request)
        self._questions: PluginQuestions  # once the host is initialized
        self._reporter: asyncio.Task[None] | None = None
        self._tracing: Tracing | None = None

    @property
    def masker(self) -> SecretMasker:
        """Knows the secrets that were resolved here."""
        return self._masker

    async def handle(self, message: ToHost) -> Any:
        """Carry out one message; what it returns is the answer.

        Raises:
            MillraceError: it is refused.
        """
        match message:
            case Ping():
                return None
            case StartTask():
                return await self._start_task(message)
            case StopTask():
                return await self._stop_task(message)
            case PauseTask():
                return self._find_runner(message.id).pause(paused=message.paused)
            case Instruct():
                return self._instruct_task(message)
            case TopicForgotten():
                return self._forget_topic(message)
            case StartConnector():
                return await self._start_connector(message)
            case StopConnector():
                connector = self._connectors.pop(message.name, None)
                self._keeper.unwatch(message.name)
                return True if connector is None else await connector.stop(message.deadline_s)
            case SetLogLevel():
                LoggerRegistry().set(message.logger, message.level)
                return None
            case Init():
                return await self._start_host(message)
            case _:
                self._known_plugins()
                return await self._questions.answer(message)

    async def close(self, deadline_s: float) -> None:
        """Stop everything, all at once, within about ``deadline_s`` seconds."""
        if self._reporter is not None:
            self._reporter.cancel()
            await asyncio.gather(self._reporter, return_exceptions=True)
        tasks, self._tasks = self._tasks, {}
        connectors, self._connectors = self._connectors, {}
        await asyncio.gather(
            *(task.stop(deadline_s) for task in tasks.values()),
            *(connector.stop(deadline_s) for connector in connectors.values()),
        )
        await self._offset_writer.close()
        await self._keeper.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)

    # Start.

    async def _start_host(self, message: Init) -> None:
        if self._init is not None:
            raise Fatal("this host was initialized before")
        self._init = message
        self._masker.learn(message.properties)
        providers = await asyncio.to_thread(build_providers, message.properties, provider_finder(message.properties))
        self._keeper = build_keeper(providers, self._masker.add, message.properties)
        self._worker = await self._keeper.resolve(message.properties)
        self._masker.learn(self._worker)
        self._plugins = PluginRegistry(self._worker.get("plugin.path", ""), message.environments, message.skip)
        self._questions = PluginQuestions(self._plugins, self._worker, self._resolve_config, self._masker.scrub)
        LoggerRegistry().apply(message.log_levels)
        limits = WORKER.parse(self._worker)
        self._tracing = make_tracing(limits, message.worker_id, message.host)
        self._offset_writer = OffsetWriter(
            self._worker.get("offset.storage.topic", ""),
            ProducerSettings(
                self._offset_producer(message), max_rows=_OFFSET_ROWS, stall_s=limits["task.producer.stall.ms"] / 1000
            ),
        )
        self._keeper.watch(None, message.properties, self._worker, self._worker_changed)
        self._keeper.start()
        self._reporter = asyncio.create_task(self._report(), name="stats")
        if self._initialized is not None:
            self._initialized(message)

    def _offset_producer(self, init: Init) -> dict[str, Any]:
        return kafka_clients.client_arguments(
            {
                **kafka_clients.inherited_properties(self._worker, "offset.storage.producer."),
                "acks": "all",
                "client.id": f"{init.worker_id}-offsets-{init.host}",
            },
            "producer",
        ).arguments

    async def _resolve_config(self, config: Mapping[str, str]) -> dict[str, str]:
        resolved = await self._keeper.resolve(config)
        await self._learn_secrets(resolved)
        return resolved

    async def _resolve_in_turn(self, config: Mapping[str, str]) -> dict[str, str]:
        await self._starts.turn()
        resolved = await self._resolve_config(config)
        await self._lease.wait()
        return resolved

    async def _resolve_in_time(self, task: HostTaskId, config: Mapping[str, str]) -> dict[str, str]:
        """Resolve the configuration of a task that starts: it waits for unavailable config providers."""
        for pause in retry_pauses():
            try:
                return await self._resolve_config(config)
            except Retriable as error:
                log.warning("%s: %s, retrying in %.1f s", task, error, pause)
                await asyncio.sleep(pause)
        raise AssertionError("back-off never ends")

    async def _learn_secrets(self, resolved: Mapping[str, str]) -> None:
        """Mask the secrets of a configuration from now on."""
        plugins = self._known_plugins()
        try:
            cls = plugins.configured_class(resolved)
            definition = (
                await asyncio.to_thread(cls.definition, resolved) if issubclass(cls, JobConnector) else cls.config_def
            )
            # Those of a configuration that is written for another product come from its own declarations.
            keys = [*definition.keys.values(), *cls.config_def.keys.values()]
        except ConfigInvalid:
            keys = []
        self._masker.learn(resolved, keys)

    # New values of config providers.

    async def _task_changed(self, runner: TaskRunner, resolved: dict[str, str], names: frozenset[str]) -> None:
        set_context(runner.id.connector, f"task-{runner.id.task}")
        await self._learn_secrets(resolved)
        await runner.secrets_changed(resolved, names)

    async def _worker_changed(self, resolved: dict[str, str], names: frozenset[str]) -> None:
        """The worker's own properties: what its tasks' Kafka clients log in with changes; the worker sees to the rest."""
        if self._init is None:
            return
        self._masker.learn(resolved)
        self._worker.update({name: resolved[name] for name in names})
        log.info(
            "new values of the worker's properties %s: its tasks' Kafka clients use them from their next connection on",
            ", ".join(sorted(names)),
        )
        self._offset_writer.renew(await asyncio.to_thread(self._offset_producer, self._init))
        for runner in list(self._tasks.values()):
            await runner.secrets_changed({}, frozenset())

    def _follow_secrets(
        self, runner: TaskRunner | None, task: HostTaskId, config: Mapping[str, str], resolved: Mapping[str, str]
    ) -> Callable[[], Awaitable[bool]] | None:
        """Hand new values to a task; what asks for them at once, or None where there is nothing to follow."""
        if runner is None or not self._keeper.watch(task, config, resolved, partial(self._task_changed, runner)):
            return None
        return partial(self._keeper.refresh, task)

    def _known_plugins(self) -> PluginRegistry:
        if self._plugins is None:
            raise Fatal("this host is not initialized: Init must be the first message")
        return self._plugins

    # Tasks and connectors.

    async def _start_task(self, message: StartTask) -> None:
        self._known_plugins()
        old = self._tasks.pop(message.id, None)
        if old is not None:
            await old.stop(int(self._worker.get("task.shutdown.graceful.timeout.ms", "5000")) / 1000)
        runner = TaskRunner(message, lambda: self._build_leased_plan(message), self._channel.event, self._masker.scrub)
        with contextlib.suppress(ConfigInvalid):  # an unknown class fails the task
            if self._known_plugins().configured(message.connector_config).kind == "sink":
                runner.stats.job = JobProgress()
        self._tasks[message.id] = runner
        runner.start()

    async def _build_leased_plan(self, message: StartTask) -> TaskPlan | JobPlan:
        plan = await self._build_plan(message)
        await self._lease.wait()
        return plan

    async def _build_plan(self, message: StartTask) -> TaskPlan | JobPlan:
        set_context(message.id.connector, f"task-{message.id.task}")
        await self._starts.turn()
        if message.problem:
            raise ConfigInvalid(message.problem)
        raw = {**message.connector_config, **message.config}
        config = await self._resolve_in_time(message.id, raw)
        refresh = self._follow_secrets(self._tasks.get(message.id), message.id, raw, config)
        plugin = self._known_plugins().configured(config)
        if plugin.kind == "sink":
            return await make_job_plan(
                message.id,
                plugin.cls,
                config,
                self._worker,
                lambda topic: self._channel.event(ActiveTopic(message.id, topic)),
            )
        shared = HostServices(
            self._worker,
            self._known_plugins(),
            self._offset_reads,
            self._offset_writer,
            self._client_pool,
            self._starts.turn,
            self._lease.wait,
        )
        plan = make_plan(message.id, config, shared, lambda topic: self._channel.event(ActiveTopic(message.id, topic)))
        plan.refresh_secrets, plan.scrub, plan.tracing = refresh, self._masker.scrub, self._tracing
        return plan

    async def _stop_task(self, message: StopTask) -> bool:
        runner = self._tasks.get(message.id)
        if runner is None:
            return True
        try:
            return await runner.stop(message.deadline_s)
        finally:
            if self._tasks.get(message.id) is runner:
                del self._tasks[message.id]
                self._keeper.unwatch(message.id)

    def _instruct_task(self, message: Instruct) -> None:
        runner = self._find_runner(message.id)
        set_context(message.id.connector, f"task-{message.id.task}")
        name_current_task(str(message.id))
        runner.instruct(message.instructions)

    def _forget_topic(self, message: TopicForgotten) -> None:
        for task, runner in self._tasks.items():
            if task.connector == message.connector:
                runner.forget_topic(message.topic)

    def _find_runner(self, task: HostTaskId) -> TaskRunner:
        runner = self._tasks.get(task)
        if runner is None:
            raise Fatal(f"task {task} is not in this host")
        return runner

    async def _start_connector(self, message: StartConnector) -> None:
        plugins = self._known_plugins()
        old = self._connectors.pop(message.name, None)
        if old is not None:
            await old.stop(int(self._worker.get("task.shutdown.graceful.timeout.ms", "5000")) / 1000)
        offsets = ConnectorOffsets(message.name, self._offset_reads, None, {})
        connector = ConnectorRunner(
            message,
            plugins,
            offsets,
            self._worker,
            self._channel.event,
            ConnectorSecrets(self._resolve_in_turn, self._masker.scrub, partial(self._keeper.watch, message.name)),
        )
        self._connectors[message.name] = connector
        connector.start()

    # Numbers.

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_STATS_S * max(1.0, len(self._tasks) / _STATS_TASKS))
            runners = list(self._tasks.values())
            reports = []
            for runner in runners:
                reports.append(runner.report())
                if len(reports) % _STATS_SLICE == 0:
                    await asyncio.sleep(0)
            clients, process = self._numbers()
            # One that has stopped meanwhile, and was said to have, must not appear once more.
            reports = [
                report for runner, report in zip(runners, reports, strict=True) if self._tasks.get(runner.id) is runner
            ]
            self._channel.event(
                Stats(
                    reports,
                    time.process_time(),
                    _read_rss(),
                    self._loop_lag(),
                    len(self._connectors),
                    clients,
                    process,
                    sum(self._keeper.failures.values()),
                    sum(self._keeper.stale.values()),
                )
            )
            for runner in runners:
                runner.reported()


def _read_rss() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - no path
        return int(file.read().split()[1]) * _PAGE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
