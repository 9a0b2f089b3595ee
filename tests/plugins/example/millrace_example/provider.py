"""A config provider: ``${reversed:txet}`` is ``text``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.secrets.providers import ConfigData, ConfigProvider

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class ReversedProvider(ConfigProvider):
    """Gives each key backwards."""

    aliases = ()

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._suffix = parameters.get("mark", "")

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        """Every key is there."""
        del path
        return ConfigData({key: key[::-1] + self._suffix for key in keys})
