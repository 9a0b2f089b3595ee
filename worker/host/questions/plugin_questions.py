"""Questions of REST that code of plugins answers: validation, offsets, snapshots, plans, previews, topics."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from connectors.api import SourceConnector
from connectors.errors import ConfigInvalid, MillraceError, Retriable
from connectors.job_api import JobConnector
from worker.config.job_config import job_properties, runnable_properties
from worker.plugins.model import Description
from worker.protocol import (
    AlterOffsets,
    AskFlow,
    AskLogs,
    CheckSnapshot,
    ConnectorView,
    DescribePlugins,
    JobOffsets,
    JobSavepoints,
    ListTables,
    PluginConfig,
    ReadTopic,
    Redrive,
    Validate,
)
from worker.secrets.masking import scrub_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from worker.plugins.registry import PluginRegistry

    Question = (
        Validate
        | DescribePlugins
        | PluginConfig
        | AlterOffsets
        | JobOffsets
        | JobSavepoints
        | CheckSnapshot
        | ConnectorView
        | ListTables
        | AskFlow
        | AskLogs
        | ReadTopic
        | Redrive
    )


def name_current_task(name: str) -> None:
    """Name the asyncio task that runs: code of a plugin runs in it, and whoever watches the event loop names it."""
    current = asyncio.current_task()
    if current is not None:
        current.set_name(name)


class PluginQuestions:
    """Answers questions in a host.

    Args:
        plugins: finds classes by their names.
        worker: the worker's properties, resolved; they may change.
        resolve: resolves references in a configuration.
        scrub: removes secrets from a string.
    """

    def __init__(
        self,
        plugins: PluginRegistry,
        worker: Mapping[str, str],
        resolve: Callable[[Mapping[str, str]], Awaitable[dict[str, str]]],
        scrub: Callable[[str], str],
    ) -> None:
        self._plugins = plugins
        self._worker = worker
        self._resolve = resolve
        self._scrub = scrub
        #: Plans and previews under way: each may need a process.
        self._flow_turns = asyncio.Semaphore(2)

    async def answer(self, message: Question) -> bytes | bool:
        """The answer, mostly as JSON.

        Raises:
            MillraceError: it is refused.
        """
        match message:
            case DescribePlugins():
                return msgspec.json.encode(Description(self._plugins.infos(), self._plugins.failures))
            case PluginConfig():
                from worker.config.validation.answers import plugin_config

                plugins = self._plugins.seeing(message.others)
                return orjson.dumps(plugin_config(plugins, message.plugin, message.version))
            case Validate():
                return await self._validate(message)
            case ListTables():
                return await self._list_tables(message)
            case CheckSnapshot() | ConnectorView():
                return await self._ask_source(message)
            case AskFlow():
                return await self._ask_flow(message)
            case AskLogs():
                return await self._ask_logs(message)
            case ReadTopic() | Redrive():
                return await self._read_topic(message)
            case _:
                return await self._ask_offsets(message)

    async def _validate(self, message: Validate) -> bytes:
        from worker.config.validation.answers import validate_config

        _name_task(message.config, "validate")
        resolved = await self._resolve(message.config)
        plugins = self._plugins.seeing(message.others)
        return orjson.dumps(
            await validate_config(plugins, message.config, message.plugin, self._worker, resolved=resolved)
        )

    async def _ask_offsets(self, message: AlterOffsets | JobOffsets | JobSavepoints) -> bytes | bool:
        _name_task(message.config, "alter-offsets")
        config = await self._resolve(message.config)
        cls = self._plugins.configured_class(config)
        if issubclass(cls, JobConnector):
            config = runnable_properties(cls, config, self._worker)
            definition = await asyncio.to_thread(cls.definition, config)
        else:
            definition = cls.config_def
        parsed = definition.parse(config)
        if isinstance(message, JobOffsets):
            return orjson.dumps(await cls.offsets(parsed) if issubclass(cls, JobConnector) else [])
        if isinstance(message, JobSavepoints):
            if not issubclass(cls, JobConnector):
                raise ConfigInvalid(f"{cls.__name__} is no job: it has no savepoints")
            return orjson.dumps(await cls.savepoints(parsed, message.action, orjson.loads(message.request)))
        offsets = [(partition, offset) for partition, offset in orjson.loads(message.offsets)]
        return await cls.alter_offsets(parsed, offsets)

    async def _ask_flow(self, message: AskFlow) -> bytes:
        """The plan or a preview of a job; two at a time, as each may need a process."""
        _name_task(message.config, message.method)
        try:
            async with asyncio.timeout(message.deadline_s), self._flow_turns:
                answer = await self._flow_answer(message)
        except TimeoutError:
            raise Retriable(
                f"the {message.method} was not done within {message.deadline_s:g} s: ask for fewer rows, or raise "
                "validate.timeout.ms of the workers"
            ) from None
        return orjson.dumps(scrub_all(answer, self._scrub))

    async def _ask_logs(self, message: AskLogs) -> bytes:
        _name_task(message.config, message.question)
        # Imported where it is needed: hosts without logs do not load its pattern library.
        from worker.host.questions.log_questions import answer_question

        config = await self._resolve(message.config)
        answer = await answer_question(message.question, config, self._worker, self._plugins, message.request)
        return orjson.dumps(scrub_all(answer, self._scrub))

    async def _read_topic(self, message: ReadTopic | Redrive) -> bytes:
        # Imported where it is needed: CEL brings its command line along.
        from worker.host.questions.redrive import redrive_letter
        from worker.host.questions.topic_reader import read_topic

        config = await self._resolve(message.config)
        if isinstance(message, Redrive):
            return orjson.dumps(await redrive_letter(config, self._worker, message.request))
        answer = await read_topic(config, self._worker, self._plugins, message.request)
        return orjson.dumps(scrub_all(answer, self._scrub), option=orjson.OPT_NON_STR_KEYS)

    async def _flow_answer(self, message: AskFlow) -> dict[str, Any]:
        cls, properties = await self._resolve_job(message.config)
        if message.method == "preview":
            return await cls.preview(properties, json.loads(message.request), message.deadline_s)
        running = None
        if message.running is not None:
            running_class, running = await self._resolve_job(message.running)
            running = running if running_class is cls else None
        return await cls.plan(properties, running, message.deadline_s)

    async def _resolve_job(self, config: Mapping[str, str]) -> tuple[type[JobConnector], dict[str, str]]:
        """The class and the job's own properties of a configuration.

        Raises:
            ConfigInvalid: it is not of a connector that moves data itself.
        """
        resolved = await self._resolve(config)
        cls = self._plugins.configured_class(resolved)
        if not issubclass(cls, JobConnector):
            raise ConfigInvalid(
                f"{cls.__name__} is a source connector: plans and previews are of flows (connector.class spark_jobs.SparkJob)"
            )
        completed = runnable_properties(cls, resolved, self._worker)
        definition = await asyncio.to_thread(cls.definition, completed)
        return cls, job_properties(definition.canonical(completed), definition)

    async def _list_tables(self, message: ListTables) -> bytes:
        config = await self._resolve(message.config)
        cls = self._plugins.configured_class(config)
        if not issubclass(cls, SourceConnector):
            raise ConfigInvalid(f"{cls.__name__} is no source connector: it has no tables to choose from")
        try:
            tables = await cls.capturable(config)
        except MillraceError as error:
            # To who asks, a source that is unavailable or refuses the account is a configuration that can't work.
            raise ConfigInvalid(str(error)) from error
        return orjson.dumps(scrub_all(tables, self._scrub))

    async def _ask_source(self, message: CheckSnapshot | ConnectorView) -> bytes:
        _name_task(message.config, message.view if isinstance(message, ConnectorView) else "snapshot")
        config = await self._resolve(message.config)
        cls = self._plugins.configured_class(config)
        if not issubclass(cls, SourceConnector):
            raise ConfigInvalid(
                f"{cls.__name__} is no source connector: it has no snapshots, and GET "
                "/connectors/NAME/progress says how far it is"
            )
        parsed = cls.config_def.parse(config)
        answer: Any
        if isinstance(message, CheckSnapshot):
            answer = cls.check_snapshot(parsed, orjson.loads(message.request))
        else:
            offsets = [(partition, offset) for partition, offset in orjson.loads(message.offsets)]
            if message.view == "snapshots":
                answer = cls.snapshots(parsed, orjson.loads(message.instructions), offsets)
            elif message.view == "tables":
                answer = cls.tables(parsed, offsets)
                answer = await answer if inspect.isawaitable(answer) else answer
            else:
                answer = await cls.lag(parsed, offsets)
        return orjson.dumps(answer)


def _name_task(config: Mapping[str, str], question: str) -> None:
    name_current_task(f"{config.get('name', '')}|{question}")
