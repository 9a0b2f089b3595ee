"""The plugins of one process, with their classes, and how a name finds one.

Plugins are declared as entry points (``worker.plugins.model.GROUPS``) of installed packages: those next to Millrace and, in a
task host with other environments, those of these environments (docs/plugins.md). A package that can't be imported is reported
and does no harm to others.

A name in a configuration may be a Java class name that a plugin declares as its alias, a dotted Python path, ``module:Class``,
the entry point's own name, or Kafka Connect's short form (``FileStreamSource`` for ``...FileStreamSourceConnector``).
"""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from importlib.metadata import version as installed_version
from inspect import isabstract
from typing import TYPE_CHECKING, Any, Final

from connectors.api import SourceConnector
from connectors.entry_points import DISTRIBUTION, is_own, list_entries, name_and_version
from connectors.errors import ConfigInvalid
from connectors.job_api import JobConnector
from worker.converters.base import Converter, HeaderConverter
from worker.plugins.model import (
    CONNECTORS,
    GROUPS,
    PluginInfo,
    is_folder,
    list_plugins,
    several_match,
    short_names,
    unknown_connector,
    versions_of,
)
from worker.secrets.providers import ConfigProvider
from worker.transforms.base import Predicate, Side, Transform
from worker.transforms.java.versions import in_range, not_found, version_key
from worker.transforms.registry import (
    builtin_stages,
    declared_predicates,
    declared_transforms,
    resolve_predicate,
    resolve_transform,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from connectors.options import ConfigDef

_log = logging.getLogger("worker.plugins")


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """One plugin class.

    Attributes:
        kind: its type, as ``GET /connector-plugins`` shows it.
        cls: the class.
        names: full names that mean it, the canonical one first: its Java name where it has one, else its Python path.
        label: the entry point's name.
        version: its version.
        builtin: whether it comes with Millrace.
        isolated: whether it is of another environment than Millrace's own.
    """

    kind: str
    cls: type
    names: tuple[str, ...]
    label: str
    version: str
    builtin: bool
    isolated: bool = False

    @property
    def class_name(self) -> str:
        """The canonical name."""
        return self.names[0]

    def info(self, environment: str = "", location: str = "") -> PluginInfo:
        """Return its description for other processes."""
        shown = self.names if self.kind in CONNECTORS else self.names[:1]
        return PluginInfo(
            self.kind,
            (*self.names, f"{self.cls.__module__}:{self.cls.__qualname__}"),
            tuple(sorted(short_names(self.kind, self.label, self.names))),
            shown,
            self.version,
            environment,
            location or ("classpath" if self.builtin else self.cls.__module__),
        )


class PluginRegistry:
    """All plugins of this process. Made once at start; reads package metadata and imports every plugin: blocks for a moment.

    Args:
        plugin_path: ``plugin.path``: a comma-separated text or its items. Only ``module:Class`` and names of entry points count
            here; folders are environments, each for processes of its own.
        environments: folders with the installed packages of this process's environments; they must be importable
            (``worker.plugins.isolation``).
        skip: values of entry points of ``environments`` that must not be loaded.

    Attributes:
        failures: what couldn't be loaded -> why.
    """

    def __init__(
        self, plugin_path: str | Sequence[str] = "", environments: Sequence[str] = (), skip: Collection[str] = ()
    ) -> None:
        self.failures: dict[str, str] = {}
        self._names: dict[tuple[str, str], list[LoadedPlugin]] = {}
        self._shorts: dict[tuple[str, str], list[LoadedPlugin]] = {}
        self._plugins: list[LoadedPlugin] = []
        self.foreign_infos: tuple[PluginInfo, ...] = ()
        #: The descriptions for other processes, kept after the first request: each validation requests them many times.
        self._cached_infos: tuple[PluginInfo, ...] = ()
        isolated = {(entry.group, entry.value) for entry in declared_in(environments)}
        direct = self._direct_entries(plugin_path.split(",") if isinstance(plugin_path, str) else plugin_path)
        for group, kind in GROUPS.items():
            for entry in (*list_entries(group), *direct):
                foreign = (entry.group, entry.value) in isolated
                if entry.group in {group, ""} and not (foreign and entry.value in skip):
                    self._load_entry(entry, kind, isolated=foreign)

    def seeing(self, others: Iterable[PluginInfo]) -> PluginRegistry:
        """The same plugins, with lists and versions that include plugins of other processes."""
        self._own_infos()
        result = copy.copy(self)
        result.foreign_infos = tuple(others)
        return result

    # Lookups.

    def connector(self, name: str, version_range: str | None = None) -> type[SourceConnector | JobConnector]:
        """The connector that ``connector.class`` names.

        Args:
            name: its name.
            version_range: ``connector.plugin.version``: the latest that matches is taken, or the latest where none does.

        Raises:
            ConfigInvalid: Kafka Connect's text.
        """
        return self.connector_plugin(name, version_range).cls

    def configured(self, config: Mapping[str, str]) -> LoadedPlugin:
        """The connector that a configuration names, in the version that it asks for; raises as ``connector`` does."""
        return self.connector_plugin(config.get("connector.class", ""), config.get("connector.plugin.version"))

    def configured_class(self, config: Mapping[str, str]) -> type[SourceConnector | JobConnector]:
        """The class of ``configured``."""
        return self.configured(config).cls

    def connector_plugin(self, name: str, version_range: str | None = None) -> LoadedPlugin:
        """As ``connector``, with its names and version.

        Raises:
            ConfigInvalid: Kafka Connect's text.
        """
        plugin = self.find("source", name, version_range) or self.find("sink", name, version_range)
        if plugin is None:
            raise ConfigInvalid(unknown_connector(name, self.infos()))
        return plugin

    def converter(self, name: str, version_range: str | None = None) -> type:
        """Return the converter that ``key.converter`` or ``value.converter`` names.

        Raises:
            ConfigInvalid: it does not exist.
        """
        return self._require_plugin("converter", name, version_range).cls

    def header_converter(self, name: str, version_range: str | None = None) -> type:
        """Return the converter that ``header.converter`` names.

        Raises:
            ConfigInvalid: it does not exist.
        """
        return self._require_plugin("header_converter", name, version_range).cls

    def find(self, kind: str, name: str, version_range: str | None = None) -> LoadedPlugin | None:
        """The plugin of a kind that ``name`` means, or None; of several versions the latest that is wanted, else the latest.

        Raises:
            ConfigInvalid: the short name means several classes.
        """
        name = name.strip()
        matches = self._names.get((kind, name)) or self._shorts.get((kind, name), [])
        classes = list(dict.fromkeys(item.class_name for item in matches))
        if len(classes) > 1:
            raise ConfigInvalid(several_match(kind, name, classes))
        # As the catalog chooses: among equals Millrace's own.
        return max(
            matches,
            key=lambda item: (in_range(version_range, item.version), version_key(item.version), not item.isolated),
            default=None,
        )

    def versions(self, kind: str, name: str) -> list[str]:
        """The versions there are of a plugin, the latest last, those of other processes included."""
        return versions_of(
            info for info in self.infos() if info.kind == kind and name.strip() in (*info.names, *info.shorts)
        )

    def check_version(self, plugin: LoadedPlugin, version_range: str | None) -> str | None:
        """The complaint if ``plugin`` isn't of the version range ``version_range`` (KIP-891), else None."""
        if in_range(version_range, plugin.version):
            return None
        return not_found(plugin.class_name, version_range, self.versions(plugin.kind, plugin.class_name))

    def class_names(self, kind: str) -> list[str]:
        """Names of all plugins of a kind as lists show them, those of other processes included."""
        return sorted({name for info in self.infos() if info.kind == kind for name in info.listed})

    def plugin_for(self, name: str, version_range: str | None = None) -> tuple[LoadedPlugin, ConfigDef]:
        """Return any plugin by its name, with its options: for ``GET /connector-plugins/{plugin}/config``.

        Raises:
            LookupError: it does not exist.
            ConfigInvalid: it is of a kind whose options can't be asked for.
        """
        for kind in ("source", "sink", "converter", "header_converter"):
            plugin = self.find(kind, name, version_range)
            if plugin is not None:
                definition: ConfigDef = plugin.cls.config_def  # type: ignore[attr-defined]
                return plugin, definition
        for kind, resolve in (("transformation", resolve_transform), ("predicate", resolve_predicate)):
            try:
                stage: Any = resolve(name, version_range)
            except ConfigInvalid:
                continue
            return LoadedPlugin(
                kind, stage.kind, (stage.class_name,), name, stage.kind.version, builtin=True
            ), stage.kind.config_def
        if self.find("config_provider", name) is not None:
            raise ConfigInvalid(
                f"Invalid plugin class {name}. Valid types are sink, source, converter, header_converter, "
                "transformation, predicate."
            )
        raise LookupError(name)

    # Listings.

    def describe(self, *, connectors_only: bool = True) -> list[dict[str, str]]:
        """The body of ``GET /connector-plugins``."""
        return list_plugins(self.infos(), connectors_only=connectors_only)

    def infos(self) -> list[PluginInfo]:
        """All plugins, for other processes."""
        return [*self._own_infos(), *self.foreign_infos]

    def _own_infos(self) -> tuple[PluginInfo, ...]:
        if not self._cached_infos:
            self._cached_infos = (
                *(plugin.info() for plugin in self._plugins),
                *(stage_info("transformation", label, kind) for label, kind in declared_transforms()),
                *(stage_info("predicate", label, kind) for label, kind in declared_predicates()),
            )
        return self._cached_infos

    def plugins(self, kind: str) -> list[LoadedPlugin]:
        """All plugins of a kind."""
        return [plugin for plugin in self._plugins if plugin.kind == kind]

    def builtin_connectors(self) -> dict[str, type[SourceConnector | JobConnector]]:
        """Millrace's own connectors by their entry points' names."""
        return {plugin.label: plugin.cls for kind in CONNECTORS for plugin in self.plugins(kind) if plugin.builtin}

    def converter_definitions(self) -> dict[str, tuple[tuple[str, ...], ConfigDef]]:
        """Millrace's own converters: name -> (other names, options)."""
        return _read_definitions(plugin for kind in ("converter", "header_converter") for plugin in self.plugins(kind))

    def transform_definitions(self) -> dict[str, tuple[tuple[str, ...], ConfigDef]]:
        """Millrace's own transforms and predicates: name -> (other names, options)."""
        return {name: (kind.aliases, kind.config_def) for name, kind in sorted(builtin_stages().items())}

    # Discovery.

    def _direct_entries(self, items: Iterable[str]) -> list[EntryPoint]:
        """The classes that ``plugin.path`` names themselves."""
        direct: list[EntryPoint] = []
        for item in (raw_item.strip() for raw_item in items):
            if not item or is_folder(item):
                continue
            if ":" in item:
                direct.append(EntryPoint(item.rpartition(":")[2], item, ""))
            elif not any(entry.name == item for group in GROUPS for entry in list_entries(group)):
                self._note_failure(
                    item, f"plugin.path names {item}, which is neither a folder nor an entry point nor module:Class"
                )
        return direct

    def _load_entry(self, entry: EntryPoint, kind: str, *, isolated: bool) -> None:
        try:
            loaded = load_plugin(entry, kind, isolated=isolated)
        except ConfigInvalid as error:
            self._note_failure(entry.value, str(error), error.__cause__)
            return
        # Transforms and predicates have their own registry, which knows their $Key and $Value variants and sees the same
        # entry points.
        if loaded is not None and loaded.kind not in {"transformation", "predicate"}:
            self._add_plugin(loaded)

    def _add_plugin(self, plugin: LoadedPlugin) -> None:
        if any(earlier.cls is plugin.cls and earlier.kind == plugin.kind for earlier in self._plugins):
            return
        kind, path = plugin.kind, f"{plugin.cls.__module__}:{plugin.cls.__qualname__}"
        for name in (*plugin.names, path):
            # Versions of one plugin come from several environments; within one a name has one meaning.
            earlier = next(
                (
                    candidate
                    for candidate in self._names.get((kind, name), ())
                    if not (candidate.isolated or plugin.isolated)
                ),
                None,
            )
            if earlier is not None:
                self._note_failure(path, f"the name {name} is {earlier.class_name}'s already")
                return
        for name in (*plugin.names, path):
            self._names.setdefault((kind, name), []).append(plugin)
        self._plugins.append(plugin)
        for short in short_names(kind, plugin.label, plugin.names):
            self._shorts.setdefault((kind, short), []).append(plugin)

    def _note_failure(self, entry_value: str, reason: str, error: BaseException | None = None) -> None:
        if entry_value not in self.failures:
            _log.error("The plugin %s can't be used: %s", entry_value, reason, exc_info=error)
        self.failures[entry_value] = reason

    def _require_plugin(self, kind: str, name: str, version_range: str | None) -> LoadedPlugin:
        plugin = self.find(kind, name, version_range)
        if plugin is None:
            raise ConfigInvalid(f"Class {name} could not be found. Available are: {', '.join(self.class_names(kind))}")
        return plugin


def declared_in(folders: Sequence[str]) -> list[EntryPoint]:
    """The entry points of Millrace's groups that packages in folders declare; reads their metadata only."""
    if not folders:
        return []
    return [
        entry
        for package in distributions(path=list(folders))
        for entry in package.entry_points
        if entry.group in GROUPS
    ]


def load_plugin(entry: EntryPoint, kind: str, *, isolated: bool) -> LoadedPlugin | None:
    """Import what an entry point of a kind leads to; runs foreign code.

    Returns:
        The plugin; None where a class was named without its kind and is of another.

    Raises:
        ConfigInvalid: it can't be imported or is no such plugin; the cause is the code's own error.
    """
    try:
        cls = entry.load()
        if entry.group == "" and not _is_fitting(cls, kind):
            return None  # a class named directly; it is tried for every kind
        problem = _find_problem(cls, kind)
    except (Exception, SystemExit) as error:
        raise ConfigInvalid(f"{type(error).__name__}: {error}") from error
    if problem is not None:
        raise ConfigInvalid(problem)
    if kind == "source" and issubclass(cls, JobConnector):
        kind = "sink"
    path = f"{cls.__module__}.{cls.__qualname__}"
    aliases = tuple(alias for alias in getattr(cls, "aliases", ()) if alias != path and "." in alias)
    # What comes with no version of its own has its package's.
    version = str(
        getattr(cls, "version", "")
        or (installed_version(DISTRIBUTION) if entry.dist is None else name_and_version(entry.dist)[1])
    )
    return LoadedPlugin(kind, cls, (*aliases, path), entry.name, version, builtin=is_own(entry), isolated=isolated)


def stage_info(
    kind: str, label: str, cls: type[Transform | Predicate], environment: str = "", location: str = "classpath"
) -> PluginInfo:
    """Describe a transform or a predicate for other processes; one with sides is named ``...$Key`` and ``...$Value``."""
    path = f"{cls.__module__}.{cls.__qualname__}"
    full = tuple(dict.fromkeys((*cls.aliases, path, f"{cls.__module__}:{cls.__qualname__}")))
    names: tuple[str, ...] = full
    shorts: tuple[str, ...] = (label,)
    listed: tuple[str, ...] = full[:1]
    if issubclass(cls, Transform) and cls.sided:
        names += tuple(f"{name}${side}" for name in full for side in Side)
        shorts += tuple(f"{label}${side}" for side in Side)
        listed = tuple(f"{full[0]}${side}" for side in Side)
    return PluginInfo(kind, names, shorts, listed, cls.version, environment, location)


def _read_definitions(plugins: Iterable[LoadedPlugin]) -> dict[str, tuple[tuple[str, ...], ConfigDef]]:
    result: dict[str, tuple[tuple[str, ...], ConfigDef]] = {}
    for plugin in plugins:
        if plugin.builtin:
            definition: ConfigDef = plugin.cls.config_def  # type: ignore[attr-defined]
            result.setdefault(plugin.cls.__name__, (plugin.names, definition))
    return dict(sorted(result.items()))


#: What a plugin of a kind must be: one of these.
_BASES: Final[Mapping[str, tuple[type, ...]]] = {
    "source": (SourceConnector, JobConnector),
    "transformation": (Transform,),
    "predicate": (Predicate,),
    "converter": (Converter,),
    "header_converter": (HeaderConverter,),
    "config_provider": (ConfigProvider,),
}


def _is_fitting(cls: Any, kind: str) -> bool:
    return kind in _BASES and isinstance(cls, type) and issubclass(cls, _BASES[kind])


def _find_problem(cls: Any, kind: str) -> str | None:
    """Why a loaded object can't be a plugin of a kind, or None."""
    if not isinstance(cls, type):
        return f"it is a {type(cls).__name__}, not a class"
    bases = _BASES.get(kind)
    if bases is not None and not issubclass(cls, bases):
        return f"it is no {' and no '.join(base.__name__ for base in bases)}"
    if isabstract(cls):
        return f"it does not implement {', '.join(sorted(getattr(cls, '__abstractmethods__', ())))}"
    needed = {
        "source": ("version", "config_def", "task_class"),
        "transformation": ("version", "config_def"),
        "predicate": ("version", "config_def"),
        "converter": ("config_def",),
        "header_converter": ("config_def",),
    }
    missing = [name for name in needed.get(kind, ()) if not hasattr(cls, name)]
    return f"it does not declare {', '.join(missing)}" if missing else None
