"""Fixtures that tests of converters with a real registry share."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from worker.converters.base import create_converter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from compose.local.registry import SchemaRegistry
    from worker.converters.base import Converter

NAMES = {
    "avro": "io.confluent.connect.avro.AvroConverter",
    "json": "io.confluent.connect.json.JsonSchemaConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
}


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    return lambda stem: f"{stem}-{secrets.token_hex(4)}"


@pytest.fixture
async def make_converter(registry: SchemaRegistry) -> AsyncIterator[Callable[..., Converter]]:
    """Makes converters by short name, which are closed after the test; options are written with underscores."""
    converters: list[Converter] = []

    def make(name: str = "avro", *, is_key: bool = False, **options: str) -> Converter:
        config = {
            "schema.registry.url": registry.url,
            **{key.replace("_", "."): value for key, value in options.items()},
        }
        converters.append(create_converter(NAMES.get(name, name), config, is_key))
        return converters[-1]

    yield make
    for converter in converters:
        await converter.close()


@pytest.fixture
def ask(registry: SchemaRegistry) -> Callable[..., Awaitable[Any]]:
    """Asks the registry itself: path, and with a body PUT or POST."""

    async def asked(path: str, body: Any = None, method: str = "") -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method or ("GET" if body is None else "PUT"), registry.url + path, json=body) as response,
        ):
            return await response.json(content_type=None)

    return asked
