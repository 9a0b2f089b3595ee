"""Config providers in environments of ``plugin.path``: for references in connectors' configurations.

Hosts of connectors that refer to one have its environment (``worker.plugins.catalog``). Other processes, the control process
among them, know that it is declared, and refuse references to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.errors import ConfigInvalid
from worker.plugins.environments import scan_folders
from worker.secrets.providers import ConfigData, ConfigProvider, installed_provider

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_GROUP = "millrace.config_providers"


def provider_finder(properties: Mapping[str, str]) -> Callable[[str], type[ConfigProvider] | None]:
    """Return the finder of classes for ``build_providers``: a class of this process's packages, or else a stand-in.

    Args:
        properties: the worker's; ``plugin.path`` is read when a provider is not installed here. Blocks.
    """

    def find(name: str) -> type[ConfigProvider] | None:
        provider = installed_provider(name)
        if provider is not None:
            return provider
        items = [item.strip() for item in properties.get("plugin.path", "").split(",") if item.strip()]
        for environment in scan_folders(items, {}).environments.values():
            if any(
                group == _GROUP and name in (label, value, value.replace(":", "."))
                for group, label, value in environment.entries
            ):
                return _stand_in(name, environment.name)
        return None

    return find


def _stand_in(name: str, environment: str) -> type[ConfigProvider]:
    class ProviderElsewhere(ConfigProvider):
        """Takes the place of a provider whose package this process does not have."""

        aliases = ()

        def __init__(self, parameters: Mapping[str, str]) -> None:
            del parameters

        def get(self, path: str, keys: Collection[str]) -> ConfigData:
            """Refuse."""
            del path, keys
            raise ConfigInvalid(
                f"the config provider {name} is in the environment {environment} of plugin.path, which only "
                "task hosts of connectors that refer to it have. For references in the worker's own properties "
                "install it next to Millrace"
            )

    return ProviderElsewhere
