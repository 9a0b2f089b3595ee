"""``/console/connectors/{connector}``: earlier configurations, and dead letters. Not in Kafka Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from worker.console.history import show_versions
from worker.console.resources.hiding import declared_keys
from worker.rest.call import json_answer
from worker.rest.facade import RestError
from worker.rest.operations import UNKNOWN, Reply, Tag
from worker.rest.own.own_routes import OwnRoutes
from worker.rest.routing import RequiredAccess
from worker.rest.shapes.console_schemas import ConfigVersion, DeadLetter, Redriven
from worker.secrets.masking import mask_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from connectors.options import ConfigKey
    from worker.rest.call import RestCall


async def get_history(call: RestCall) -> web.Response:
    """``GET /console/connectors/{connector}/history``."""
    versions = await call.herder.console.config_history(call.connector)
    # An earlier configuration may be of another class, which declares other secrets.
    keys: dict[tuple[str | None, ...], list[ConfigKey]] = {}
    for version in versions:
        if version.config and _plugin_of(version.config) not in keys:
            keys[_plugin_of(version.config)] = await declared_keys(call, version.config)
    return json_answer(
        show_versions(versions, lambda config: mask_config(config, keys[_plugin_of(config)] if config else ()))
    )


def _plugin_of(config: Mapping[str, str]) -> tuple[str | None, ...]:
    return config.get("connector.class"), config.get("connector.plugin.version")


async def redrive_letter(call: RestCall) -> web.Response:
    """``POST /console/connectors/{connector}/redrive``."""
    try:
        letter = msgspec.json.decode(await call.request.read(), type=DeadLetter)
    except msgspec.MsgspecError as error:
        raise RestError(400, f'Write a dead letter as {{"partition": 0, "offset": 5}}: {error}') from None
    return json_answer(await call.herder.topics.redrive(call.connector, letter.partition, letter.offset))


_CONSOLE: Final = OwnRoutes(Tag.CONSOLE)

ROUTES = (
    _CONSOLE.post(
        "/console/connectors/{connector}/redrive",
        redrive_letter,
        "redriveDeadLetter",
        "Send a dead letter to the topic that it was read from, without the headers that say what was wrong.",
        Reply("Where it is now. The dead letter stays, too.", Redriven),
        {
            400: "The connector reads no topics or sets no records aside, or the dead letter names no topic of it.",
            404: "There is no such connector, or no such dead letter any more.",
            503: "Kafka does not answer in time.",
        },
        access=RequiredAccess.ADMIN,
        body=DeadLetter,
        examples={"the first": {"partition": 0, "offset": 0}},
    ),
    _CONSOLE.get(
        "/console/connectors/{connector}/history",
        get_history,
        "listConfigVersions",
        "A connector's earlier configurations, as far as Kafka's config topic still has them, without secrets.",
        Reply("The newest first, each with what it changed.", list[ConfigVersion]),
        {404: UNKNOWN},
    ),
)
