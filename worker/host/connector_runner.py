"""A connector's own instance in a host: it splits the work into task configurations."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.job_api import JobConnector
from connectors.options import ConfigDef, ConfigKey, ConfigType
from offsets.topics import ensure_internal_topic
from worker.config.job_config import demand_translated, job_form, tasks_note, translation_problems
from worker.host.errors import retry_pauses
from worker.host.options import CONNECTOR
from worker.host.plan import admin_client, check_exactly_once, exactly_once, own_offsets_topic
from worker.host.saved import own_offsets_topic_settings
from worker.host.task_runner import masked_trace
from worker.logs import connector_logger, set_context
from worker.protocol import ConnectorStateChanged, TaskConfigs
from worker.secrets.providers import has_references

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from connectors.api import OffsetReader, SourceConnector
    from connectors.options import Config
    from worker.host.saved import ConnectorOffsets
    from worker.plugins.registry import PluginRegistry
    from worker.protocol import HostMessage, StartConnector

    #: Receives new values: the configuration, resolved again, and the names of the options that differ.
    Changed = Callable[[dict[str, str], frozenset[str]], Awaitable[None]]

log = logging.getLogger(__name__)

#: Seconds that a connector may take to split its work; beyond it the connector fails.
TASK_CONFIGS_DEADLINE_S: Final = 90.0

_LIMITS: Final = ConfigDef(
    [
        ConfigKey(name="tasks.max", type=ConfigType.INT, doc="See the worker's source connector options.", default=1),
        ConfigKey(
            name="tasks.max.enforce",
            type=ConfigType.BOOLEAN,
            doc="See the worker's source connector options.",
            default=True,
        ),
    ]
)


@dataclass(slots=True)
class _ConnectorContext:
    """The ``ConnectorContext`` of an instance."""

    connector: str
    config: Config
    offsets: OffsetReader
    log: logging.LoggerAdapter[logging.Logger]
    _load: Callable[[], Awaitable[None]]
    _ask: Callable[[], None]
    _fail: Callable[[Exception], None]

    def request_task_reconfiguration(self) -> None:
        """Ask for a new call of ``task_configs``."""
        self._ask()

    async def refresh_offsets(self) -> None:
        """Read the saved offsets again."""
        await self._load()

    def fail(self, error: Exception) -> None:
        """Report that the connector can't continue."""
        self._fail(error)


def limit_tasks(name: str, configs: list[dict[str, str]], config: Mapping[str, str]) -> list[dict[str, str]]:
    """Task configurations as far as ``tasks.max`` allows.

    Raises:
        Fatal: there are more, and ``tasks.max.enforce`` is on (KIP-1004).
    """
    limits = _LIMITS.parse(config)
    max_tasks: int = limits["tasks.max"]
    if len(configs) > max_tasks:
        complaint = (
            f"The connector {name} has generated {len(configs)} tasks, which is greater than {max_tasks}, the maximum number "
            "of tasks it is configured to create"
        )
        if limits["tasks.max.enforce"]:
            raise Fatal(f"{complaint}. Raise tasks.max, or set tasks.max.enforce=false to let it")
        log.warning("%s; tasks.max.enforce=false lets it", complaint)
    return configs


@dataclass(frozen=True, slots=True)
class ConnectorSecrets:
    """How values of config providers get into a connector's configuration, and into no message.

    Attributes:
        resolve: resolves references in a configuration.
        scrub: removes secrets from a string.
        follow: has a coroutine called with new values of config providers for a configuration that was resolved.
    """

    resolve: Callable[[Mapping[str, str]], Awaitable[dict[str, str]]]
    scrub: Callable[[str], str]
    follow: Callable[[Mapping[str, str], Mapping[str, str], Changed], bool]


class ConnectorRunner:
    """Runs one connector instance until it is stopped.

    Args:
        start: the message that asks for it.
        plugins: finds its class.
        offsets: its saved offsets.
        worker: the worker's properties, resolved.
        event: sends an event to the control process.
        secrets: of the host's config providers.
    """

    def __init__(
        self,
        start: StartConnector,
        plugins: PluginRegistry,
        offsets: ConnectorOffsets,
        worker: Mapping[str, str],
        event: Callable[[HostMessage], None],
        secrets: ConnectorSecrets,
    ) -> None:
        self.name = start.name
        self._start = start
        self._plugins = plugins
        self._offsets = offsets
        self._worker = worker
        self._event = event
        self._secrets = secrets
        self._asked = asyncio.Event()
        self._failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._runner: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._restart_requested = False
        self._parsed: Config | None = None
        #: Every value that each property had since the start: none of a config provider may get into a topic.
        self._seen: dict[str, set[str]] = {}

    def start(self) -> None:
        """Begin; does not block."""
        self._runner = asyncio.create_task(self._run_loop(), name=f"{self.name}|connector")

    async def stop(self, deadline_s: float) -> bool:
        """Stop; True if it ended within ``deadline_s`` seconds, False if it was abandoned."""
        runner = self._runner
        if runner is None:
            return True
        if not runner.done():
            runner.cancel()
            await asyncio.wait({runner}, timeout=deadline_s)
        if not runner.done():
            log.error("connector %s did not stop within %.1f s and is abandoned", self.name, deadline_s)
        self._report_state("STOPPED")
        return runner.done()

    def _report_state(self, state: str, trace: str | None = None) -> None:
        self._event(ConnectorStateChanged(self.name, state, self._start.generation, trace))

    async def _secrets_changed(self, config: dict[str, str], names: frozenset[str]) -> None:
        """Take new values of config providers: passwords where they are, the rest as ``config.action.reload`` says."""
        parsed, serving = self._parsed, self._serving
        if parsed is None or serving is None or serving.done():
            return
        self._remember_values(config)
        reload = self._start.config.get("config.action.reload", "").strip().lower()
        cls = self._plugins.configured_class(config)
        if issubclass(cls, JobConnector):
            return  # it opens nothing; its task takes them over
        definition = cls.config_def
        keys_by_name = {alias: key for key in definition.keys.values() for alias in (key.name, *key.aliases)}
        own_names = [
            keys_by_name[name].name
            for name in names
            if name in keys_by_name and keys_by_name[name].secret and keys_by_name[name].name in parsed
        ]
        if own_names:
            parsed.renew(definition.parse(config), own_names)
        # Clients' and converters' properties are of no use to it: its tasks take them over.
        left = [name for name in sorted(names) if name in keys_by_name and not keys_by_name[name].secret]
        if reload == "restart" or (left and reload != "none"):
            log.info("connector %s starts again to take over new values of %s", self.name, ", ".join(sorted(names)))
            self._restart_requested = True
            serving.cancel()

    def _remember_values(self, config: Mapping[str, str]) -> None:
        for name, value in config.items():
            if has_references(self._start.config.get(name)):
                self._seen.setdefault(name, set()).add(value)

    async def _run_loop(self) -> None:
        while True:
            serving = self._serving = asyncio.create_task(self._run_once(), name=f"{self.name}|connector")
            try:
                await serving
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if not self._restart_requested or current is None or current.cancelling():
                    raise
                self._restart_requested = False
            else:
                return

    async def _run_once(self) -> None:
        connector: SourceConnector | JobConnector | None = None
        set_context(self.name)
        try:
            config = await self._resolve_config()
            cls = self._plugins.configured_class(config)
            parsed = await (
                self._prepare_job(cls, config) if issubclass(cls, JobConnector) else self._prepare_source(cls, config)
            )
            adapter = connector_logger(f"{cls.__module__}.{cls.__qualname__}", self.name)
            context = _ConnectorContext(
                self.name, parsed, self._offsets, adapter, self._offsets.load, self._asked.set, self._fail_runner
            )
            self._parsed = parsed
            self._remember_values(config)
            self._secrets.follow(self._start.config, config, self._secrets_changed)
            connector = cls(context)
            await connector.start()
            self._report_state("PAUSED" if self._start.paused else "RUNNING")
            if not self._start.paused:
                self._asked.set()
            await self._serve_connector(connector, config)
        except Exception as error:  # noqa: BLE001 - whatever it is fails the connector, and nothing else
            trace = masked_trace(error, self._secrets.scrub)
            log.error("connector %s failed\n%s", self.name, trace)  # noqa: TRY400 - the trace is masked
            self._report_state("FAILED", trace)
        finally:
            if connector is not None:
                try:
                    await connector.stop()
                except Exception:
                    log.exception("connector %s failed while it was stopped", self.name)

    async def _resolve_config(self) -> dict[str, str]:
        if self._start.problem:
            raise ConfigInvalid(self._start.problem)
        return await self._secrets.resolve(self._start.config)

    async def _prepare_source(self, cls: type[SourceConnector], config: dict[str, str]) -> Config:
        """Check its options and read its saved offsets."""
        parsed = cls.config_def.parse(config)
        options = CONNECTOR.parse(config)
        check_exactly_once(cls, parsed, options, self._worker)
        boundary = options["transaction.boundary"].lower() if exactly_once(self._worker) else ""
        await self._load_offsets(
            own_offsets_topic(config, options, self._worker, boundary), admin_client(config, self._worker).arguments
        )
        return parsed

    async def _prepare_job(self, cls: type[JobConnector], config: dict[str, str]) -> Config:
        """Check its options; the worker keeps no offsets for it."""
        for note in tasks_note(config):
            log.warning("connector %s: %s", self.name, note)
        completed, translation = job_form(cls, config, self._worker)
        for problem in translation_problems(translation):
            if problem.warning:
                log.warning("connector %s: %s", self.name, problem.message)
        demand_translated(translation)
        definition = await asyncio.to_thread(cls.definition, completed)
        return definition.parse(completed)

    async def _load_offsets(self, own_topic: str | None, client: dict[str, Any]) -> None:
        self._offsets.read_also(own_topic, client)
        for pause in retry_pauses():
            try:
                if own_topic is not None:  # or its reader would wait until the first task makes it
                    await ensure_internal_topic(client, own_offsets_topic_settings(self._worker, own_topic))
                await self._offsets.load()
            except Retriable as error:
                log.warning("connector %s: %s, retrying in %.1f s", self.name, error, pause)
                await asyncio.sleep(pause)
            else:
                return

    def _fail_runner(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_result(error)

    async def _serve_connector(self, connector: SourceConnector | JobConnector, config: Mapping[str, str]) -> None:
        max_tasks = int(config.get("tasks.max", "1"))
        pauses = retry_pauses()
        while True:
            asked = asyncio.ensure_future(self._asked.wait())
            try:
                waits: set[asyncio.Future[Any]] = {asked, self._failed}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()
            if self._failed.done():
                raise self._failed.result()
            self._asked.clear()
            if self._start.paused:
                continue
            try:
                async with asyncio.timeout(TASK_CONFIGS_DEADLINE_S):
                    configs = await connector.task_configs(max_tasks)
            except TimeoutError as error:
                raise Fatal(
                    f"connector {self.name} did not split its work within {TASK_CONFIGS_DEADLINE_S:.0f} s"
                ) from error
            except Retriable as error:
                pause = next(pauses)
                log.warning(
                    "connector %s: no task configurations now (%s), retrying in %.1f s", self.name, error, pause
                )
                await asyncio.sleep(pause)
                self._asked.set()
                continue
            pauses = retry_pauses()
            # As Connect has it in the config topic: the connector's properties, references unresolved, under the task's own.
            task_class = {"task.class": task_class_name(type(connector), config.get("connector.class", ""))}
            # A job has a task for each of its sinks, whatever tasks.max says.
            allowed = configs if isinstance(connector, JobConnector) else limit_tasks(self.name, configs, config)
            checked = [
                {
                    **self._start.config,
                    **restore_references(as_text(item), self._seen, self._start.config),
                    **task_class,
                }
                for item in allowed
            ]
            self._event(TaskConfigs(self.name, checked, self._start.generation))


def task_class_name(connector: type[SourceConnector | JobConnector], configured: str) -> str:
    """Return the value of ``task.class``: Java's name, so that Java can take over, or the Python path if configured so.

    Of several Java names it is the one that belongs to the connector's: a Java worker may lack the others' plugins.
    """
    task = connector.task_class
    if not task.aliases or configured.startswith(connector.__module__):
        return f"{task.__module__}.{task.__qualname__}"
    ends = (f".{configured}Task", f".{configured}ConnectorTask")
    return next((alias for alias in task.aliases if f".{alias}".endswith(ends)), task.aliases[0])


def restore_references(
    task: Mapping[str, str], seen_values: Mapping[str, Collection[str]], original: Mapping[str, str]
) -> dict[str, str]:
    """``task`` with references to config providers where its values are those that the references stood for.

    Connectors copy their own properties into task configurations, which are kept in a topic: no secret may get there.

    Args:
        task: a task's configuration.
        seen_values: by property what its references stood for, now and before.
        original: the connector's, with references.
    """
    return {name: original[name] if value in seen_values.get(name, ()) else value for name, value in task.items()}


def as_text(config: Mapping[str, object]) -> dict[str, str]:
    """A task configuration with string values.

    Raises:
        ConfigInvalid: a value is no string.
    """
    for name, value in config.items():
        if not isinstance(value, str):
            raise ConfigInvalid(f"task configuration {name} is a {type(value).__name__}, not a string")
    return {name: str(value) for name, value in config.items()}
