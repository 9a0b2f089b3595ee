"""Plugin lists, options and validation against what Kafka Connect answered (tests/conformance/rest/golden.json), no worker."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid
from tests.conformance.rest.answers import Names, run
from tests.conformance.rest.differences import differs
from tests.conformance.rest.record import GOLDEN
from tests.conformance.rest.scenario import FIRST, PLUGINS, VALIDATION
from tests.unit.rest.memory_herder import MemoryHerder
from worker.config.validation.answers import plugin_config, validate_config
from worker.plugins import PluginRegistry
from worker.rest.facade import RestError
from worker.rest.server import RestServer
from worker.rest.settings import RestSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STEPS = (*PLUGINS, *VALIDATION)
JSON = "org.apache.kafka.connect.json.JsonConverter"
WORKER = {"key.converter": JSON, "value.converter": JSON, "exactly.once.source.support": "enabled"}


class PluginHerder(MemoryHerder):
    """Answers what concerns plugins as a task host does."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = PluginRegistry()

    async def plugins(self, *, connectors_only: bool) -> list[dict[str, Any]]:
        return list(self.registry.describe(connectors_only=connectors_only))

    async def plugin_config(self, plugin: str, version: str | None) -> list[dict[str, Any]]:
        try:
            return plugin_config(self.registry, plugin, version)
        except LookupError as error:
            raise RestError(404, str(error)) from error

    async def validate(self, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
        return await validate_config(self.registry, config, plugin, WORKER)


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, Any]]:
    """All answers of these steps."""
    ready, over = threading.Event(), asyncio.Event()
    urls: list[str] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        herder = PluginHerder()
        server = RestServer(herder, RestSettings.from_properties({"listeners": "http://127.0.0.1:0"}), workers=herder)
        await server.start()
        urls.append(server.urls[0])
        ready.set()
        await over.wait()
        await server.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(120)
        yield run(STEPS, {FIRST: urls[0]}, Names("topic-of-this-run", "/file/of/this/run"))
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.mark.parametrize("name", [step.name for step in STEPS])
def test_answer(answers: dict[str, Any], name: str) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    complaint = differs(name, golden[name], answers[name])
    assert complaint is None, f"{complaint}:\n{json.dumps(golden[name])}\n{json.dumps(answers[name])}"


def test_an_unknown_connector_names_those_there_are() -> None:
    with pytest.raises(ConfigInvalid, match=r"name='org\.apache\.kafka\.connect\.file\.FileStreamSourceConnector'"):
        PluginRegistry().connector("Nope")
