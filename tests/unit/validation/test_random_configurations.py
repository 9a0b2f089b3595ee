"""Validation of configurations whose options have random values: an answer or a refusal, never an error of its own."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid, Retriable
from worker.config.source_config import SOURCE_CONFIG
from worker.config.validation.answers import validate_config
from worker.plugins import PluginRegistry
from worker.transforms.java.versions import version_key

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKER = {"bootstrap.servers": "127.0.0.1:1", "key.converter": "JsonConverter", "value.converter": "StringConverter"}
#: Connectors with what they need to come to their own checks; no source answers there.
CONNECTORS: dict[str, Mapping[str, str]] = {
    "file": {"topic": "t", "file": "/none"},
    "datagen": {"topic": "t"},
    "logs": {"topic": "t", "input": "files", "paths": "/none*.log"},
    "scylla": {"scylla.cluster.ip.addresses": "127.0.0.1:1", "topic.prefix": "t", "scylla.table.names": "a.b"},
}
VALUES = (
    *("", " ", "\0", "a\0b", "a b", "\r\n", "\ud7ff\U0001f600", "é" * 300, "\\", "'", "/", "//", "%", "*", "(", "[a"),
    *("0", "-1", "0x10", "NaN", "INF", "1e999", "2147483648", "9" * 5000, "-" * 70_000, "١٢", "1970-13-45T99:99"),
    *(",", "a,,b", "a.b", "a:b:c", "a/b", "..", "true", "null", "{}", "[]", '{"a":', "${x:y:z}", "(a+)+$", "http://["),
)


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry("")


async def validate(registry: PluginRegistry, config: Mapping[str, str]) -> dict[str, Any]:
    return await validate_config(registry, config, None, WORKER, resolved=config, deadline_s=5)


async def test_random_values_are_answered(registry: PluginRegistry) -> None:
    seed = int(os.environ.get("MILLRACE_SEED", "1"))
    rng = random.Random(seed)
    for number in range(300):
        name = rng.choice(list(CONNECTORS))
        options = [*registry.plugin_for(name)[1].keys, *SOURCE_CONFIG.keys]
        changes = {rng.choice(options): rng.choice(VALUES) for _ in range(rng.randint(1, 3))}
        config = {**CONNECTORS[name], **changes, "connector.class": name, "name": "x"}
        try:
            await validate(registry, config)
        except (ConfigInvalid, Retriable):
            continue
        except Exception as error:
            raise AssertionError(f"configuration {number} of seed {seed}: {name} with {changes}") from error


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("scylla", "worker.max.retries", "three"),  # its validator does not expect null, which stands for such a value
        ("datagen", "tasks.max", "9" * 5000),
    ],
)
async def test_a_value_that_can_not_be_read_is_a_complaint(
    registry: PluginRegistry, name: str, option: str, value: str
) -> None:
    infos = await validate(registry, {**CONNECTORS[name], option: value, "connector.class": name, "name": "x"})
    assert next(item["value"]["errors"] for item in infos["configs"] if item["value"]["name"] == option)


def test_a_version_of_many_digits_has_its_place() -> None:
    assert version_key("1.2") < version_key("9" * 5000) < version_key("9" * 5001)
