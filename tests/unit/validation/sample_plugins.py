"""Connectors for the tests of validation and of the plugin registry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from connectors.api import Batch, SourceConnector, SourceTask
from connectors.errors import ConfigInvalid
from connectors.options import Config, ConfigDef, ConfigKey, ConfigProblem, ConfigType, one_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def _host(name: str, value: str) -> str | None:
    return f"Invalid value {value} for configuration {name}: no host" if value == "bad" else None


class SampleTask(SourceTask):
    async def batches(self) -> AsyncGenerator[Batch, None]:
        yield Batch([])


class SampleSourceConnector(SourceConnector):
    """Does what its ``behaviour`` says when it is asked to validate."""

    version: ClassVar[str] = "1.2.3"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="behaviour",
                type=ConfigType.STRING,
                default="fine",
                doc="What to do.",
                validator=one_of("fine", "problem", "warn", "hang", "crash", "refuse"),
            ),
            ConfigKey(name="password", type=ConfigType.PASSWORD, default=None, doc="A secret."),
            ConfigKey(
                name="url", type=ConfigType.STRING, default="", doc="An address.", aliases=("old.url",), validator=_host
            ),
            ConfigKey(name="items", type=ConfigType.LIST, default=["a", "b"], doc="Some.", group="Sample"),
        ]
    )
    task_class: ClassVar[type[SourceTask]] = SampleTask
    aliases: ClassVar[tuple[str, ...]] = ("com.example.SampleSourceConnector",)
    asked: ClassVar[list[Config]] = []

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{}] * max_tasks

    @classmethod
    async def validate(cls, config: Config) -> list[ConfigProblem]:
        cls.asked.append(config)
        if config["behaviour"] == "hang":
            await asyncio.Event().wait()
        if config["behaviour"] == "crash":
            raise RuntimeError("no such table")
        if config["behaviour"] == "refuse":
            raise ConfigInvalid("the server is not one of ours")
        if config["behaviour"] == "warn":
            return [ConfigProblem("url", f"{config['url']} answers slowly", warning=True)]
        return [ConfigProblem("url", "nobody answers there")] if config["behaviour"] == "problem" else []

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        if config["url"] == "crash":
            raise RuntimeError("can't tell")
        return bool(config["url"])

    @classmethod
    def can_define_transaction_boundaries(cls, config: Config) -> bool:
        return bool(config["url"])


class OtherSampleSourceConnector(SampleSourceConnector):
    """Has the same short name as another connector."""

    aliases: ClassVar[tuple[str, ...]] = ("org.other.SampleSourceConnector",)


class UnfinishedConnector(SourceConnector):
    """Not a connector yet."""
