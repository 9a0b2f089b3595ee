"""The description of a plugin without its class, and the lists, names and versions that follow from it. Pure.

Source of the version rules: KIP-891. The latest version is used where no version is requested; a range is one of Maven's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from worker.transforms.java.versions import version_key

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Entry point group -> the type that ``GET /connector-plugins`` shows; a connector that moves data itself is a ``sink``.
GROUPS: Final = {
    "millrace.connectors": "source",
    "millrace.transforms": "transformation",
    "millrace.predicates": "predicate",
    "millrace.converters": "converter",
    "millrace.header_converters": "header_converter",
    "millrace.config_providers": "config_provider",
}
#: Types in the order of ``GET /connector-plugins``.
LISTED: Final = ("source", "sink", "transformation", "predicate", "converter", "header_converter")
CONNECTORS: Final = ("source", "sink")
#: What Kafka Connect drops at the end of a class name to make its short form.
_SUFFIXES: Final = {
    "source": ("Connector",),
    "sink": ("Connector",),
    "converter": ("Converter",),
    "header_converter": ("HeaderConverter", "Converter"),
    "transformation": ("Transformation",),
    "predicate": ("Predicate",),
    "config_provider": ("ConfigProvider",),
}


class PluginInfo(msgspec.Struct, frozen=True):
    """One plugin, as processes tell each other of it.

    Attributes:
        kind: its type, as ``GET /connector-plugins`` shows it.
        names: full names that mean it, the canonical one first.
        shorts: short names that mean it, unless they mean another one as well.
        listed: the names under which it is listed.
        version: its version.
        environment: key of the environment it is in; "" is Millrace's own.
        location: where it is, for people.
    """

    kind: str
    names: tuple[str, ...]
    shorts: tuple[str, ...]
    listed: tuple[str, ...]
    version: str
    environment: str = ""
    location: str = "classpath"

    @property
    def class_name(self) -> str:
        """The canonical name."""
        return self.names[0]


class Description(msgspec.Struct, frozen=True):
    """The descriptions that the plugins of an environment give.

    Attributes:
        plugins: those that can be used.
        failures: entry point's value -> why it can't be used.
    """

    plugins: list[PluginInfo]
    failures: dict[str, str]


def short_names(kind: str, label: str, names: Iterable[str]) -> set[str]:
    """The short names of a plugin: its entry point's, and the last parts of its names, also without Connect's endings."""
    shorts = {label, *(name for name in names if "." not in name)}
    for name in names:
        simple = name.rpartition(".")[2]
        shorts |= {simple, *(simple.removesuffix(suffix) or simple for suffix in _SUFFIXES[kind])}
    return shorts


def versions_of(plugins: Iterable[PluginInfo]) -> list[str]:
    """Their versions, each once, the latest last."""
    return sorted({plugin.version for plugin in plugins}, key=lambda version: (version_key(version), version))


def several_match(kind: str, name: str, classes: Iterable[str]) -> str:
    """Kafka Connect's complaint about a short name of several classes."""
    return (
        f"More than one {kind} matches alias {name}. Please use full package and class name instead. "
        f"Classes found: {', '.join(classes)}"
    )


def unknown_connector(name: str, plugins: Iterable[PluginInfo]) -> str:
    """Kafka Connect's complaint about a connector class that is not there."""
    shown = [
        f"PluginDesc{{klass=class {listed_name}, name='{listed_name}', version='{plugin.version}', "
        f"encodedVersion={plugin.version}, "
        f"type={plugin.kind}, typeName='{plugin.kind}', location='{plugin.location}'}}"
        for kind in CONNECTORS
        for plugin in plugins
        if plugin.kind == kind
        for listed_name in plugin.listed
    ]
    return (
        f"Failed to find any class that implements Connector and which name matches {name}, available "
        f"connectors are: {', '.join(shown)}"
    )


def list_plugins(plugins: Iterable[PluginInfo], *, connectors_only: bool) -> list[dict[str, str]]:
    """The body of ``GET /connector-plugins``: every version of everything, connectors first, by name, the latest last.

    A connector is listed under its Java names and under its Python path: whichever of them a client knows, it finds it, and
    each can be given as ``connector.class``.
    """
    by_kind: dict[str, dict[tuple[str, str], None]] = {kind: {} for kind in LISTED}
    for plugin in plugins:
        if plugin.kind in by_kind:
            by_kind[plugin.kind].update(dict.fromkeys((name, plugin.version) for name in plugin.listed))
    rows: list[dict[str, str]] = []
    for kinds in (CONNECTORS, *((kind,) for kind in LISTED[2:])):
        if connectors_only and kinds is not CONNECTORS:
            break
        sorted_rows = [(name, version, kind) for kind in kinds for name, version in by_kind[kind]]
        sorted_rows.sort(key=lambda row: (row[0], version_key(row[1]), row[1]))
        rows += [{"class": name, "type": kind, "version": version} for name, version, kind in sorted_rows]
    return rows


def is_folder(item: str) -> bool:
    """Whether an item of ``plugin.path`` means a folder or a file, there or not, and no class."""
    return "/" in item or item.startswith((".", "~")) or item.endswith((".whl", ".zip"))
