"""A task's reaction to records, schemas and registries that fail its converter: a real host, Kafka and registry."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.integration.host.conftest import Control
from tests.support.registry_gate import RegistryGate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from compose.local.registry import SchemaRegistry

CONVERTERS = {"avro": "AvroConverter", "json": "JsonSchemaConverter", "protobuf": "ProtobufConverter"}


@pytest.fixture
async def control_for(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Control]]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "plugin"))
    controls: list[Control] = []

    def make(url: str, converter: str = "avro") -> Control:
        controls.append(
            Control(
                bootstrap,
                f"failures-{secrets.token_hex(4)}",
                {
                    "plugin.path": "struct_source:StructConnector",
                    "value.converter": CONVERTERS[converter],
                    "value.converter.schema.registry.url": url,
                    "value.converter.max.retries": "0",
                },
            )
        )
        return controls[-1]

    yield make
    for control in controls:
        await control.stop()


async def started(control: Control, **options: Any) -> Any:
    await control.start()
    return await control.start_task(**{"connector_class": "struct_source.StructConnector", **options})


@pytest.mark.parametrize("converter", ["avro", "json", "protobuf"])
async def test_one_bad_record_is_set_aside_with_its_field(
    control_for: Callable[..., Control], registry: SchemaRegistry, caplog: pytest.LogCaptureFixture, converter: str
) -> None:
    control = control_for(registry.url, converter)
    letters = f"{control.name}-letters"
    task = await started(
        control,
        bad_at=17,
        errors_tolerance="all",
        errors_log_enable="true",
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_topic_replication_factor=1,
    )
    assert len(await control.consume(control.name, 29)) == 29
    (letter,) = await control.consume(letters, 1)
    headers = dict(letter.headers)
    assert json.loads(letter.value) == {"row": {"n": "not a number"}}
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert headers["__connect.errors.topic"] == control.name.encode()
    assert headers["__connect.errors.class.name"].endswith(CONVERTERS[converter].encode())
    assert b"row.n: its schema says int32, but it is str" in headers["__connect.errors.exception.message"]
    stats = await control.until(lambda: (latest := control.stats(task)) and latest.records_skipped == 1 and latest)
    assert (stats.errors_logged, stats.dead_letter_requests, stats.record_failures) == (1, 1, 1)
    assert "row.n: its schema says int32" in caplog.text
    await control.saved_is({"0-0": 30})


async def test_an_incompatible_schema_fails_the_task_and_says_which_field(
    control_for: Callable[..., Control], registry: SchemaRegistry
) -> None:
    control = control_for(registry.url)
    async with (
        aiohttp.ClientSession() as session,
        session.put(f"{registry.url}/config/{control.name}-value", json={"compatibility": "BACKWARD"}),
    ):
        pass
    task = await started(control, change_at=20)
    failed = await control.state(task, "FAILED")
    for text in (
        f"schema of {control.name}-value",
        "field row.n: type changed from int to string",
        "version 1",
        "compatibility level",
        '{"n":21}',
    ):
        assert text in (failed.trace or "")
    assert len(await control.consume(control.name, 20)) == 20
    await control.saved_is({"0-0": 20})


async def test_a_registry_that_is_away_is_waited_for(
    control_for: Callable[..., Control], registry: SchemaRegistry
) -> None:
    async with RegistryGate(registry.url, status=503) as gate:
        control = control_for(gate.url)
        task = await started(control, errors_tolerance="all")
        await control.until(lambda: len(gate.seen) >= 3)  # retried repeatedly
        stats = await control.until(lambda: control.stats(task))
        assert (stats.state, stats.record_failures, stats.records_skipped) == ("RUNNING", 0, 0)
        gate.status = 0
        assert len(await control.consume(control.name, 30)) == 30
        await control.saved_is({"0-0": 30})


async def test_a_registry_that_refuses_the_client_fails_the_task_though_bad_records_are_tolerated(
    control_for: Callable[..., Control], registry: SchemaRegistry
) -> None:
    async with RegistryGate(registry.url, users={"kim": "secret"}) as gate:
        control = control_for(gate.url)
        task = await started(control, errors_tolerance="all")
        failed = await control.state(task, "FAILED")
        assert "Wrong configuration: the schema registry refuses this client" in (failed.trace or "")
        stats = control.stats(task)
        assert stats is None or stats.records_skipped == 0
