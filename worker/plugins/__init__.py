"""Plugins: which there are, in which environments and versions, and how a configuration finds them (docs/plugins.md).

``model`` says what a plugin is, ``registry`` loads those of one process, ``environments`` finds folders of further ones by
their metadata, ``describe`` learns about those in a process of its own, ``isolation`` lets a process import from them, and
``catalog`` decides, as pure functions, which plugin of which environment a configuration means.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.plugins.registry import LoadedPlugin, PluginRegistry

__all__ = ["LoadedPlugin", "PluginRegistry"]


def __getattr__(name: str) -> object:
    """The registry imports every built-in converter and transform: only those who use it pay for that."""
    if name in __all__:
        from worker.plugins import registry

        return getattr(registry, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
