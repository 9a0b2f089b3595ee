"""Which connectors, converters, transforms, predicates and config providers there are, and how a name finds one.

Plugins are declared as entry points (groups ``millrace.connectors``, ``millrace.converters``, ``millrace.header_converters``,
``millrace.transforms``, ``millrace.predicates``, ``millrace.config_providers``) of installed packages and of packages in the
folders of ``plugin.path``. A package that can't be imported is reported and does no harm to others. Unlike Java's, plugins
share one interpreter: two of them can't use different versions of one library.

A name in a configuration may be a Java class name that a plugin declares as its alias, a dotted Python path, ``module:Class``,
the entry point's own name, or Kafka Connect's short form (``FileStreamSource`` for ``...FileStreamSourceConnector``).
"""
from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.metadata import version as installed_version
from inspect import isabstract
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.api import JobConnector, SourceConnector
from connectors.errors import ConfigInvalid
from worker.converters.base import CONVERTERS, ConverterPlugin
from worker.secrets.providers import PROVIDERS
from worker.transforms.base import Predicate, Transform
from worker.transforms.registry import (
    PREDICATES,
    TRANSFORMS,
    predicate_types,
    resolve_predicate,
    resolve_transform,
    transform_types,
)
from worker.transforms.versions import version_matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.options import ConfigDef

#: Entry point group -> the type that ``GET /connector-plugins`` shows; a connector that moves data itself is a ``sink``.
GROUPS: Final = {
    "millrace.connectors": "source",
    "millrace.transforms": "transformation",
    "millrace.predicates": "predicate",
    "millrace.converters": "converter",
    "millrace.header_converters": "header_converter",
    "millrace.config_providers": "config_provider",
}
#: What Kafka Connect drops at the end of a class name to make its short form.
_SUFFIXES: Final = {"source": ("Connector",), "sink": ("Connector",), "converter": ("Converter",),
                    "header_converter": ("HeaderConverter", "Converter"),
                    "transformation": ("Transformation",), "predicate": ("Predicate",), "config_provider": ("ConfigProvider",)}
_DISTRIBUTION: Final = "millrace"

_log = logging.getLogger("worker.plugins")


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin class.

    Attributes:
        kind: its type, as ``GET /connector-plugins`` shows it.
        cls: the class.
        names: full names that mean it, the canonical one first: its Java name where it has one, else its Python path.
        label: the entry point's name.
        version: its version.
        builtin: whether it comes with Millrace.
    """

    kind: str
    cls: type
    names: tuple[str, ...]
    label: str
    version: str
    builtin: bool

    @property
    def class_name(self) -> str:
        """The canonical name."""
        return self.names[0]


class PluginRegistry:
    """All plugins of this process. Made once at start; reads package metadata and imports every plugin: blocks for a moment.

    Args:
        plugin_path: ``plugin.path``: a comma-separated text or its items. An item is a folder with installed packages, a
            folder of such folders, or ``module:Class``. Folders are added to ``sys.path``.

    Attributes:
        failures: what couldn't be loaded -> why.
    """

    def __init__(self, plugin_path: str | Sequence[str] = "") -> None:
        self.failures: dict[str, str] = {}
        self._names: dict[tuple[str, str], Plugin] = {}
        self._shorts: dict[tuple[str, str], list[Plugin]] = {}
        self._plugins: list[Plugin] = []
        items = plugin_path.split(",") if isinstance(plugin_path, str) else plugin_path
        direct = self._open_path([item.strip() for item in items if item.strip()])
        for converter in CONVERTERS:
            self._add_converter(converter)
        for name, provider in PROVIDERS.items():
            self._add("config_provider", provider, (*provider.aliases, f"{provider.__module__}.{name}"), name, builtin=True)
        for group, kind in GROUPS.items():
            for entry in (*entry_points(group=group), *direct):
                if entry.group in {group, ""}:
                    self._load(entry, kind)
        # Transforms and predicates have their own registry, which knows their $Key and $Value variants and sees the same
        # entry points; here they are only listed.

    # Lookups.

    def connector(self, name: str) -> type[SourceConnector | JobConnector]:
        """The connector that ``connector.class`` names.

        Raises:
            ConfigInvalid: Kafka Connect's text.
        """
        return self.connector_plugin(name).cls

    def connector_plugin(self, name: str) -> Plugin:
        """The same with its names and version.

        Raises:
            ConfigInvalid: Kafka Connect's text.
        """
        plugin = self.find("source", name) or self.find("sink", name)
        if plugin is None:
            raise ConfigInvalid(f"Failed to find any class that implements Connector and which name matches {name}, available "
                                f"connectors are: {', '.join(self._descriptions())}")
        return plugin

    def converter(self, name: str) -> type:
        """The converter that ``key.converter`` or ``value.converter`` names.

        Raises:
            ConfigInvalid: there is none.
        """
        return self._needed("converter", name).cls

    def header_converter(self, name: str) -> type:
        """The converter that ``header.converter`` names.

        Raises:
            ConfigInvalid: there is none.
        """
        return self._needed("header_converter", name).cls

    def config_provider(self, name: str) -> type | None:
        """The config provider that ``config.providers.X.class`` names, if a plugin package declares it."""
        plugin = self.find("config_provider", name)
        return None if plugin is None else plugin.cls

    def find(self, kind: str, name: str) -> Plugin | None:
        """The plugin of a kind that ``name`` means, or None.

        Raises:
            ConfigInvalid: the short name means several.
        """
        name = name.strip()
        plugin = self._names.get((kind, name))
        if plugin is not None:
            return plugin
        found = self._shorts.get((kind, name), [])
        if len(found) > 1:
            raise ConfigInvalid(f"More than one {kind} matches alias {name}. Please use full package and class name instead. "
                                f"Classes found: {', '.join(item.class_name for item in found)}")
        return found[0] if found else None

    def versions(self, kind: str, name: str) -> list[str]:
        """The versions there are of a plugin: one, or none."""
        plugin = self.find(kind, name)
        return [] if plugin is None else [plugin.version]

    def check_version(self, plugin: Plugin, wanted: str | None) -> str | None:
        """The complaint if ``plugin`` isn't of the version range ``wanted`` (KIP-891), else None."""
        try:
            if version_matches(wanted, plugin.version):
                return None
        except ConfigInvalid:
            pass  # Kafka Connect says of a range it can't read that nothing matches it
        text = (wanted or "").strip()
        shown = text if text.startswith(("[", "(")) else f"[{text},{text}]"
        return (f"Plugin {plugin.class_name} not found that matches the version range {shown}, "
                f"available versions: [{plugin.version}]")

    def plugin_for(self, name: str) -> tuple[Plugin, ConfigDef]:
        """Any plugin by its name, with its options: for ``GET /connector-plugins/{plugin}/config``.

        Raises:
            LookupError: there is none.
            ConfigInvalid: it is of a kind whose options can't be asked for.
        """
        for kind in ("source", "sink", "converter", "header_converter"):
            plugin = self.find(kind, name)
            if plugin is not None:
                definition: ConfigDef = plugin.cls.config_def  # type: ignore[attr-defined]
                return plugin, definition
        for kind, resolve in (("transformation", resolve_transform), ("predicate", resolve_predicate)):
            try:
                found: Any = resolve(name)
            except ConfigInvalid:
                continue
            return Plugin(kind, found.kind, (found.class_name,), name, found.kind.version, builtin=True), found.kind.config_def
        if self.find("config_provider", name) is not None:
            raise ConfigInvalid(f"Invalid plugin class {name}. Valid types are sink, source, converter, header_converter, "
                                "transformation, predicate.")
        raise LookupError(name)

    # Listings.

    def describe(self, *, connectors_only: bool = True) -> list[dict[str, str]]:
        """The body of ``GET /connector-plugins``.

        A connector is listed under its Java names and under its Python path: whichever of them a client knows, it finds it,
        and each can be given as ``connector.class``.
        """
        rows = [_row(name, plugin.kind, plugin.version) for plugin in self._connectors() for name in plugin.names]
        rows.sort(key=lambda row: row["class"])
        if connectors_only:
            return rows
        rows += [_row(found.class_name, "transformation", found.kind.version) for found in transform_types()]
        rows += [_row(item.class_name, "predicate", item.kind.version) for item in predicate_types()]
        for kind in ("converter", "header_converter"):
            rows += sorted((_row(plugin.class_name, kind, plugin.version) for plugin in self.plugins(kind)),
                           key=lambda row: row["class"])
        return rows

    def plugins(self, kind: str) -> list[Plugin]:
        """All plugins of a kind."""
        return [plugin for plugin in self._plugins if plugin.kind == kind]

    def builtin_connectors(self) -> dict[str, type[SourceConnector | JobConnector]]:
        """Millrace's own connectors by their entry points' names."""
        return {plugin.label: plugin.cls for plugin in self._connectors() if plugin.builtin}

    def converter_definitions(self) -> dict[str, tuple[tuple[str, ...], ConfigDef]]:
        """Millrace's own converters: name -> (other names, options)."""
        return _definitions(plugin for kind in ("converter", "header_converter") for plugin in self.plugins(kind))

    def transform_definitions(self) -> dict[str, tuple[tuple[str, ...], ConfigDef]]:
        """Millrace's own transforms and predicates: name -> (other names, options)."""
        kinds: dict[str, type[Transform | Predicate]] = {**TRANSFORMS, **PREDICATES}
        return {name: (kind.aliases, kind.config_def) for name, kind in sorted(kinds.items())}

    # Discovery.

    def _open_path(self, items: Iterable[str]) -> list[EntryPoint]:
        direct: list[EntryPoint] = []
        for item in items:
            folder = Path(item).expanduser()
            if folder.is_dir():
                for found in _package_folders(folder):
                    if str(found) not in sys.path:
                        sys.path.append(str(found))
            elif ":" in item and "/" not in item:
                direct.append(EntryPoint(item.rpartition(":")[2], item, ""))
            elif "/" in item or item.startswith((".", "~")):
                self._failed(item, f"plugin.path names the folder {item}, which does not exist")
            elif not any(entry.name == item for group in GROUPS for entry in entry_points(group=group)):
                self._failed(item, f"plugin.path names {item}, which is neither a folder nor an entry point nor module:Class")
        return direct

    def _load(self, entry: EntryPoint, kind: str) -> None:
        try:
            cls = entry.load()
            if entry.group == "" and not _fits(cls, kind):
                return  # a class named directly; it is tried for every kind
            problem = _problem(cls, kind)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may fail in any way, and must not stop the worker
            self._failed(entry.value, f"{type(error).__name__}: {error}", error)
            return
        if problem is not None:
            self._failed(entry.value, problem)
            return
        if kind in {"transformation", "predicate"}:
            return
        if kind == "source" and issubclass(cls, JobConnector):
            kind = "sink"
        path = f"{cls.__module__}.{cls.__qualname__}"
        aliases = tuple(alias for alias in getattr(cls, "aliases", ()) if alias != path)
        self._add(kind, cls, (*aliases, path), entry.name,
                  builtin=entry.dist is not None and entry.dist.name == _DISTRIBUTION)

    def _add(self, kind: str, cls: type, names: Sequence[str], label: str, *, builtin: bool) -> None:
        if any(plugin.cls is cls and plugin.kind == kind for plugin in self._plugins):
            return
        full = tuple(name for name in names if "." in name)
        plugin = Plugin(kind, cls, full, label, str(getattr(cls, "version", "") or installed_version(_DISTRIBUTION)),
                        builtin)
        for name in (*full, f"{cls.__module__}:{cls.__qualname__}"):
            other = self._names.setdefault((kind, name), plugin)
            if other is not plugin:
                self._failed(f"{cls.__module__}:{cls.__qualname__}", f"the name {name} is {other.class_name}'s already")
                return
        self._plugins.append(plugin)
        shorts = {label, *(name for name in names if "." not in name)}
        for name in full:
            simple = name.rpartition(".")[2]
            shorts |= {simple, *(simple.removesuffix(suffix) or simple for suffix in _SUFFIXES[kind])}
        for short in shorts:
            self._shorts.setdefault((kind, short), []).append(plugin)

    def _add_converter(self, converter: ConverterPlugin) -> None:
        try:
            cls = converter.load()
        except Exception as error:  # noqa: BLE001 - a plugin that can't be imported must not break the others
            self._failed(converter.name, f"it can't be imported: {error}", error)
            return
        names = (converter.name, *converter.aliases)
        label = converter.name.rpartition(".")[2]
        for kind, fits in (("converter", converter.records), ("header_converter", converter.headers)):
            if fits:
                self._add(kind, cls, names, label, builtin=True)

    def _failed(self, what: str, why: str, error: BaseException | None = None) -> None:
        if what not in self.failures:
            _log.error("The plugin %s can't be used: %s", what, why, exc_info=error)
        self.failures[what] = why

    def _needed(self, kind: str, name: str) -> Plugin:
        plugin = self.find(kind, name)
        if plugin is None:
            known = ", ".join(item.class_name for item in self.plugins(kind))
            raise ConfigInvalid(f"Class {name} could not be found. Available are: {known}")
        return plugin

    def _descriptions(self) -> list[str]:
        return [f"PluginDesc{{klass=class {name}, name='{name}', version='{plugin.version}', encodedVersion={plugin.version}, "
                f"type={plugin.kind}, typeName='{plugin.kind}', "
                f"location='{'classpath' if plugin.builtin else plugin.cls.__module__}'}}"
                for plugin in self._connectors() for name in plugin.names]

    def _connectors(self) -> list[Plugin]:
        return [*self.plugins("source"), *self.plugins("sink")]


def _row(name: str, kind: str, version: str) -> dict[str, str]:
    return {"class": name, "type": kind, "version": version}


def _package_folders(folder: Path) -> list[Path]:
    """The folders with installed packages: this one, or those in it."""
    if any(folder.glob("*.dist-info")):
        return [folder.resolve()]
    return sorted(child.resolve() for child in folder.iterdir() if child.is_dir() and any(child.glob("*.dist-info")))


def _definitions(plugins: Iterable[Plugin]) -> dict[str, tuple[tuple[str, ...], ConfigDef]]:
    result: dict[str, tuple[tuple[str, ...], ConfigDef]] = {}
    for plugin in plugins:
        if plugin.builtin:
            definition: ConfigDef = plugin.cls.config_def  # type: ignore[attr-defined]
            result.setdefault(plugin.cls.__name__, (plugin.names, definition))
    return dict(sorted(result.items()))


#: What a plugin of a kind must be: one of these.
_BASES: Final[Mapping[str, tuple[type, ...]]] = {
    "source": (SourceConnector, JobConnector), "transformation": (Transform,), "predicate": (Predicate,)}


def _fits(cls: Any, kind: str) -> bool:
    return kind in _BASES and isinstance(cls, type) and issubclass(cls, _BASES[kind])


def _problem(cls: Any, kind: str) -> str | None:
    """Why a loaded object can't be a plugin of a kind, or None."""
    if not isinstance(cls, type):
        return f"it is a {type(cls).__name__}, not a class"
    bases = _BASES.get(kind)
    if bases is not None and not issubclass(cls, bases):
        return f"it is no {' and no '.join(base.__name__ for base in bases)}"
    if isabstract(cls):
        return f"it does not implement {', '.join(sorted(getattr(cls, '__abstractmethods__', ())))}"
    needed = {"source": ("version", "config_def", "task_class"), "transformation": ("version", "config_def"),
              "predicate": ("version", "config_def"), "converter": ("config_def",), "header_converter": ("config_def",)}
    missing = [name for name in needed.get(kind, ()) if not hasattr(cls, name)]
    return f"it does not declare {', '.join(missing)}" if missing else None


