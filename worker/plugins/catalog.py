"""Finds the plugins that a connector's configuration names, and their environments. Pure.

Source of the version rules: KIP-891. Each plugin is taken in the latest version that its ``plugin.version`` allows and that can
be in one process with those before it, the connector first; among equal versions one in an environment that is needed anyway,
then Millrace's own, then by the environment's name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from worker.plugins.environments import Environment, find_clash
from worker.plugins.model import (
    CONNECTORS,
    LISTED,
    PluginInfo,
    several_match,
    unknown_connector,
    versions_of,
)
from worker.secrets.providers import find_references
from worker.transforms.java.versions import in_range, not_found, range_problem, version_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

_CLASS: Final = "connector.class"
_CONVERTERS: Final = (
    ("key.converter", "converter"),
    ("value.converter", "converter"),
    ("header.converter", "header_converter"),
)
_STAGES: Final = (("transforms", "transformation"), ("predicates", "predicate"))
_SUFFIX: Final = "plugin.version"


@dataclass(frozen=True, slots=True)
class PluginSelection:
    """The plugins and environments that a configuration needs.

    Attributes:
        environments: keys of the environments that its process must have, sorted; empty: Millrace's own suffices.
        connector: its connector; None if no connector has that name.
        problems: option -> why the plugin that it names can't be used here.
    """

    environments: tuple[str, ...] = ()
    connector: PluginInfo | None = None
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def problem(self) -> str | None:
        """All problems as one text, or None."""
        return "\n".join(self.problems.values()) or None


@dataclass(frozen=True, slots=True)
class Use:
    """A place in a configuration that names a plugin."""

    option: str
    version_option: str
    kinds: tuple[str, ...]
    name: str
    version_range: str | None


class PluginCatalog:
    """All plugins that this worker can run.

    Args:
        plugins: what is known of them.
        environments: by key; those of ``plugins``.
        own_names: names of the distributions that Millrace runs on.
        isolating: whether processes with other environments can be started.
        failures: by environment's name (empty: Millrace's own), values of entry points that can't be loaded -> why.
    """

    def __init__(
        self,
        plugins: Iterable[PluginInfo] = (),
        environments: Mapping[str, Environment] | None = None,
        own_names: Iterable[str] = (),
        *,
        isolating: bool = True,
        failures: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.plugins = tuple(plugins)
        self.environments = dict(environments or {})
        self._own_names = frozenset(own_names)
        self._isolating = isolating
        self._failures = dict(failures or {})
        self._names: dict[tuple[str, str], list[PluginInfo]] = {}
        self._shorts: dict[tuple[str, str], list[PluginInfo]] = {}
        for plugin in self.plugins:
            for index, names in ((self._names, plugin.names), (self._shorts, plugin.shorts)):
                for name in names:
                    index.setdefault((plugin.kind, name), []).append(plugin)

    def find(self, kind: str, name: str) -> list[PluginInfo]:
        """All versions of the plugin of a kind that ``name`` means.

        Raises:
            ConfigInvalid: the short name means several classes.
        """
        name = name.strip()
        matches = self._names.get((kind, name)) or self._shorts.get((kind, name), [])
        classes = list(dict.fromkeys(plugin.class_name for plugin in matches))
        if len(classes) > 1:
            raise ConfigInvalid(several_match(kind, name, classes))
        return matches

    @staticmethod
    def _rank_versions(
        candidates: Iterable[PluginInfo], version_range: str | None, needed: Iterable[str] = ()
    ) -> list[PluginInfo]:
        """Versions in the order in which they are taken: those that are wanted before others, the latest first."""
        present = frozenset(needed)
        by_name = sorted(candidates, key=lambda plugin: plugin.environment)
        return sorted(
            by_name,
            reverse=True,
            key=lambda plugin: (
                in_range(version_range, plugin.version),
                version_key(plugin.version),
                plugin.environment in present,
                not plugin.environment,
            ),
        )

    def best(self, candidates: Iterable[PluginInfo], version_range: str | None = None) -> PluginInfo | None:
        """The version to take: the latest that is wanted, else the latest."""
        return next(iter(self._rank_versions(candidates, version_range)), None)

    def any_kind(self, name: str, version_range: str | None = None) -> PluginInfo | None:
        """Return a plugin of any kind, for questions about its options; None if no plugin has that name.

        Raises:
            ConfigInvalid: the short name means several classes.
        """
        for kind in ("source", "sink", "converter", "header_converter", "transformation", "predicate"):
            match = self.best(self.find(kind, name), version_range)
            if match is not None:
                return match
        return None

    def connector(self, config: Mapping[str, str]) -> PluginInfo | None:
        """The connector that a configuration means, or None."""
        try:
            return next(
                (
                    match
                    for kind in CONNECTORS
                    if (match := self.best(self.find(kind, config.get(_CLASS, "")), config.get(f"connector.{_SUFFIX}")))
                    is not None
                ),
                None,
            )
        except ConfigInvalid:
            return None

    def others(self, environments: Iterable[str]) -> list[PluginInfo]:
        """Plugins that a process with these environments does not have itself."""
        there = {"", *environments}
        return [plugin for plugin in self.plugins if plugin.environment not in there and plugin.kind in LISTED]

    def select(self, config: Mapping[str, str], worker: Mapping[str, str]) -> PluginSelection:
        """Return the plugins and environments that a connector's configuration needs.

        A missing plugin is reported by the process that runs the connector; a missing connector is reported here.

        Args:
            config: the connector's, references unresolved.
            worker: the worker's properties, whose converters are the default.
        """
        problems: dict[str, str] = {}
        needed: list[str] = []
        connector: PluginInfo | None = None
        for use in list_uses(config, worker):
            if (
                connector is not None
                and connector.kind == "sink"
                and use.kinds[0] not in (*CONNECTORS, "config_provider")
            ):
                continue  # it moves data itself: neither converters nor transforms
            try:
                matches = next((matches for kind in use.kinds if (matches := self.find(kind, use.name))), [])
            except ConfigInvalid as error:
                problems[use.option] = str(error)
                continue
            in_order = self._rank_versions(matches, use.version_range, needed)
            if not in_order:
                failed = self._failure_reason(use.name)
                if failed is not None:
                    problems[use.option] = failed
                elif use.option == _CLASS and "${" not in use.name:
                    problems[use.option] = unknown_connector(use.name, self.plugins)
                continue
            fitting = [plugin for plugin in in_order if in_range(use.version_range, plugin.version)]
            if (
                not fitting and use.kinds[0] not in dict(_STAGES).values()
            ):  # what is wrong with a stage is its process's to say
                unreadable = range_problem(use.version_range)
                if unreadable is None:
                    problems[use.option] = (
                        not_found(in_order[0].class_name, use.version_range, versions_of(matches)) or ""
                    )
                problems[use.version_option] = unreadable or problems[use.option]
            # Where no plugin has the version, a process is needed anyway: validation continues with the first one.
            candidates = fitting or in_order[:1]
            refused = {plugin: self._refusal_reason(plugin, needed) for plugin in candidates}
            plugin = next((plugin for plugin in candidates if refused[plugin] is None), candidates[0])
            if use.option == _CLASS:
                connector = plugin
            reason = refused[plugin]
            if reason is not None:
                problems.setdefault(use.option, reason)
                if use.version_range is not None:
                    problems.setdefault(use.version_option, reason)
            elif plugin.environment and plugin.environment not in needed:
                needed.append(plugin.environment)
        return PluginSelection(tuple(sorted(needed)), connector, problems)

    def _failure_reason(self, name: str) -> str | None:
        """Why the plugin that ``name`` means can't be loaded, if that is why it is not there."""
        path = name.strip().partition("$")[0].replace(":", ".")
        for environment, failures in self._failures.items():
            for value, reason in failures.items():
                if path in (value.replace(":", "."), value.rpartition(":")[2]):
                    location = (
                        f"in the environment {environment} of plugin.path"
                        if environment
                        else "installed next to Millrace"
                    )
                    return f"Class {name} is {location}, but can't be loaded: {reason}"
        return None

    def _refusal_reason(self, plugin: PluginInfo, needed: Collection[str]) -> str | None:
        """Why a plugin can't come into a process with these environments."""
        if not plugin.environment or plugin.environment in needed:
            return None
        environment = self.environments[plugin.environment]
        if not self._isolating:
            return (
                f"{plugin.class_name} is in the environment {environment.name} of plugin.path, and this worker runs "
                "everything in one process (--processes 0, or processes=0), which has Millrace's own environment only. Run "
                "it with task hosts, or install the plugin next to Millrace"
            )
        conflict = find_clash([*(self.environments[key] for key in needed), environment], self._own_names)
        return None if conflict is None else f"{plugin.class_name} can't be used here: {conflict}"


def list_uses(config: Mapping[str, str], worker: Mapping[str, str]) -> Iterator[Use]:
    """The places of a configuration that name plugins, the connector first; config providers where it refers to them."""
    if config.get(_CLASS):
        yield Use(_CLASS, f"connector.{_SUFFIX}", CONNECTORS, config[_CLASS], config.get(f"connector.{_SUFFIX}"))
    for option, kind in _CONVERTERS:
        source = config if config.get(option) else worker
        name = source.get(option)
        if name:
            yield Use(option, f"{option}.{_SUFFIX}", (kind,), name, source.get(f"{option}.{_SUFFIX}"))
    for prefix, kind in _STAGES:
        for alias in (item.strip() for item in config.get(prefix, "").split(",")):
            name = config.get(f"{prefix}.{alias}.type")
            if alias and name:
                yield Use(
                    f"{prefix}.{alias}.type",
                    f"{prefix}.{alias}.{_SUFFIX}",
                    (kind,),
                    name,
                    config.get(f"{prefix}.{alias}.{_SUFFIX}"),
                )
    yield from _provider_uses(config, worker)


def _provider_uses(config: Mapping[str, str], worker: Mapping[str, str]) -> Iterator[Use]:
    used_aliases: set[str] = set()
    for option, value in config.items():
        for alias, _, _ in find_references(value):
            name = worker.get(f"config.providers.{alias}.class")
            if name and alias not in used_aliases:
                used_aliases.add(alias)
                yield Use(option, option, ("config_provider",), name, None)
