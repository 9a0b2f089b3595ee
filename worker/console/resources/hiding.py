"""Hiding secrets in the console, and taking back what a page sends that knows only the word for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.options import MASK, ConfigKey, ConfigType
from worker.rest.facade import RestError
from worker.secrets.masking import mask_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.rest.call import RestCall


async def declared_keys(call: RestCall, config: Mapping[str, str]) -> list[ConfigKey]:
    """The options that a configuration's plugin declares; none where the plugin is not here: names tell then.

    Raises:
        RestError: they can't be asked now, and what is not known may be a secret.
    """
    try:
        declared = await call.herder.admin.plugin_config(
            config.get("connector.class", ""), config.get("connector.plugin.version")
        )
    except RestError as error:
        if error.status >= 500:
            raise
        return []
    return [ConfigKey(name=option["name"], type=ConfigType(option["type"]), doc="") for option in declared]


async def without_hidden(call: RestCall, patch: Mapping[str, str | None]) -> dict[str, str | None]:
    """A change without what it only repeats as it was shown: secrets stay as they are.

    Raises:
        RestError: 400: a changed value has a secret in it that the page does not know.
    """
    if not any(value is not None and MASK in value for value in patch.values()):
        return dict(patch)
    config = (await call.herder.connector_info(call.connector))["config"]
    shown = mask_config(config, await declared_keys(call, config))
    kept: dict[str, str | None] = {}
    for name, value in patch.items():
        if value is None or MASK not in value:
            kept[name] = value
        elif value != shown.get(name):
            raise RestError(
                400,
                f"{name}: {MASK} stands for a secret that the console does not know. Write the secret in its place, or a "
                "reference to a config provider",
            )
    return kept
