"""Config providers: ``${provider:path:key}`` in a configuration stands for a value that is kept elsewhere.

Source: Kafka's ``ConfigTransformer``, ``FileConfigProvider``, ``DirectoryConfigProvider`` (KIP-297, KIP-421) and
``EnvVarConfigProvider`` (KIP-887), with the same properties and the same treatment of what can't be resolved.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, cast

from connectors.entry_points import list_entries, own_entries
from connectors.errors import ConfigInvalid
from worker.properties import parse_properties
from worker.transforms.java.regex import compile_java

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_log = logging.getLogger(__name__)

#: What may be a reference. Kafka's own expression takes minutes for a few thousand colons without an end; this takes one look.
_BRACES: Final = re.compile(r"\$\{([^}]*)(\}?)")


class ConfigData(NamedTuple):
    """The values that a provider returned, and for how many milliseconds they may be used (None: no limit)."""

    data: Mapping[str, str]
    ttl: int | None = None


class ConfigProvider(ABC):
    """One configured source of values; plugins are entry points in the group ``millrace.config_providers``.

    Every process of a worker makes its own. Calls come one at a time, from a thread that may block; one that takes longer than
    ``config.providers.timeout.ms`` is not waited for.
    """

    #: Version of this contract that the provider is written for.
    contract: ClassVar[int] = 1
    #: Values of ``config.providers.X.class`` that mean this class; the first is its canonical name.
    aliases: ClassVar[tuple[str, ...]]

    @abstractmethod
    def __init__(self, parameters: Mapping[str, str]) -> None:
        """Take ``config.providers.X.param.*``, without the prefix.

        Raises:
            ConfigInvalid: a parameter is wrong.
        """

    @abstractmethod
    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        """Those of ``keys`` that ``path`` holds. May block: call it in a thread.

        The values are used until most of ``ConfigData.ttl`` is over; without a ttl they are looked at every
        ``config.providers.refresh.interval.ms``. While this fails, the previous values stay in use.

        Raises:
            ConfigInvalid: the path can't be read, and a changed configuration would fix it.
            Retriable: not now; a task that needs the values to start waits for them.
        """

    def subscribe(self, path: str, keys: Collection[str], changed: Callable[[], None]) -> Callable[[], None] | None:
        """Call ``changed`` (from any thread) whenever values of the path may have changed: they are then asked for at once.

        Must not block.

        Returns:
            a function that ends the subscription, or None if changes can't be reported; the time to live applies in any case.
        """
        del path, keys, changed
        return None

    def close(self) -> None:
        """Release what the provider holds (connections, leases); called once, at the worker's end. May block."""


class _AllowedPaths:
    """``allowed.paths``: the trees a provider may read from; without it, everything.

    Paths are compared as they are written, after ``.`` and ``..`` were resolved; links are followed, as in Kafka.
    """

    def __init__(self, raw_paths: str | None) -> None:
        self._roots: tuple[Path, ...] | None = None
        if not raw_paths:
            return
        roots = [Path(os.path.normpath(item)) for item in raw_paths.split(",")]
        for root in roots:
            if not root.is_absolute():
                raise ConfigInvalid(
                    f"Path {root} is not absolute: allowed.paths takes absolute paths, separated by commas"
                )
            if not root.exists():
                raise ConfigInvalid(f"Path {root} does not exist: correct allowed.paths or make it")
        self._roots = tuple(roots)

    def check(self, path: str) -> Path | None:
        """The path to read, or None if it is not allowed."""
        if self._roots is None:
            return Path(path)
        normal = Path(os.path.normpath(path))
        return normal if any(normal.is_relative_to(root) for root in self._roots) else None


class FileConfigProvider(ConfigProvider):
    """``${file:/path/to/file.properties:key}``."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.common.config.provider.FileConfigProvider",)

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._allowed = _AllowedPaths(parameters.get("allowed.paths"))

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        """See ``ConfigProvider.get``; a path that is not allowed holds nothing."""
        if not path:
            return ConfigData({})
        allowed = self._allowed.check(path)
        if allowed is None:
            _log.warning("The path %s is not allowed to be accessed", path)
            return ConfigData({})
        try:
            properties = parse_properties(allowed.read_text("utf-8"))
        except (OSError, ValueError, ConfigInvalid) as error:  # a ValueError: not UTF-8, or a path with a NUL
            raise ConfigInvalid(f"Could not read properties from file {path}: {error}") from error
        return ConfigData({key: properties[key] for key in keys if key in properties})


class DirectoryConfigProvider(ConfigProvider):
    """``${directory:/path/to/directory:file}``: the whole content of a file, as Kubernetes mounts secrets."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.common.config.provider.DirectoryConfigProvider",)

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._allowed = _AllowedPaths(parameters.get("allowed.paths"))

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        """See ``ConfigProvider.get``; a path that is not allowed, or no directory, holds nothing."""
        if not path:
            return ConfigData({})
        directory = self._allowed.check(path)
        if directory is None:
            _log.warning("The path %s is not allowed to be accessed", path)
            return ConfigData({})
        if not directory.is_dir():
            _log.warning("The path %s is not a directory", path)
            return ConfigData({})
        data = {}
        for key in keys:
            # Only names of files right in the directory: a key must not lead out of it.
            file = directory / key
            if not key or file.parent != directory or key in (".", "..") or not file.is_file():
                continue
            try:
                data[key] = file.read_bytes().decode()  # with its line ends as they are
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigInvalid(f"Could not read file {file} for property {key}: {error}") from error
        return ConfigData(data)


class EnvVarConfigProvider(ConfigProvider):
    """``${env:NAME}``; ``allowlist.pattern`` limits the names. The environment is that of the worker's start."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.common.config.provider.EnvVarConfigProvider",)

    def __init__(self, parameters: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        names = compile_java(parameters["allowlist.pattern"]) if "allowlist.pattern" in parameters else None
        self._variables = {
            name: value
            for name, value in (os.environ if environment is None else environment).items()
            if names is None or names.fullmatch(name)
        }

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        """See ``ConfigProvider.get``.

        Raises:
            ConfigInvalid: there is a path, which environments don't have.
        """
        if path:
            raise ConfigInvalid(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        return ConfigData({key: self._variables[key] for key in keys if key in self._variables})


_GROUP: Final = "millrace.config_providers"


def installed_provider(name: str) -> type[ConfigProvider] | None:
    """The provider that ``name`` means: the entry point's name, its class's path or an alias of it.

    Imports the packages that declare providers.

    Raises:
        ConfigInvalid: the package that has it can't be imported, or what it declares is no config provider.
    """
    broken: list[str] = []
    for entry in list_entries(_GROUP):
        names = (entry.name, entry.value, entry.value.replace(":", "."))
        try:
            kind = entry.load()
        except Exception as error:
            if name in names:
                raise ConfigInvalid(
                    f"the config provider {name} ({entry.value}) can't be imported: {error!r}"
                ) from error
            broken.append(entry.value)
            continue
        if name in names and not (isinstance(kind, type) and issubclass(kind, ConfigProvider)):
            raise ConfigInvalid(
                f"{entry.value}, which is installed as config provider {entry.name}, is no ConfigProvider of "
                "worker.secrets.providers"
            )
        if name in (*names, *getattr(kind, "aliases", ())):
            return cast("type[ConfigProvider]", kind)
    if broken:
        _log.warning("These config providers can't be imported: %s", ", ".join(broken))
    return None


#: The newest version of the contract that there is; a plugin of a newer one is refused.
CONTRACT: Final = 1


def build_providers(
    worker_config: Mapping[str, str], find: Callable[[str], type[ConfigProvider] | None] = installed_provider
) -> dict[str, ConfigProvider]:
    """The providers a worker's properties declare: ``config.providers``, ``config.providers.X.class`` and ``.param.*``.

    Looks at the file system.

    Args:
        worker_config: the worker's properties.
        find: finds a provider's class by its name.

    Raises:
        ConfigInvalid: a class is missing or unknown, or a parameter is wrong; the message names the property.
    """
    providers: dict[str, ConfigProvider] = {}
    available = ", ".join(entry.load().aliases[0] for entry in own_entries(_GROUP).values())
    for alias in dict.fromkeys(item.strip() for item in worker_config.get("config.providers", "").split(",")):
        if not alias:
            continue
        prefix = f"config.providers.{alias}."
        class_name = worker_config.get(f"{prefix}class", "").strip()
        if not class_name:
            raise ConfigInvalid(
                f'Missing required configuration "{prefix}class": name the class of config provider {alias!r}; '
                f"there are {available}"
            )
        kind = find(class_name)
        if kind is None:
            raise ConfigInvalid(
                f"Invalid value {class_name} for configuration {prefix}class: Class {class_name} could not be "
                f"found. Available config providers: {available}, and those of installed plugins"
            )
        if kind.contract > CONTRACT:
            raise ConfigInvalid(
                f"Invalid value {class_name} for configuration {prefix}class: it is written for version "
                f"{kind.contract} of the contract, and this worker knows version {CONTRACT}: take an older "
                "version of the plugin, or a newer Millrace"
            )
        parameters = {
            name.removeprefix(f"{prefix}param."): value
            for name, value in worker_config.items()
            if name.startswith(f"{prefix}param.")
        }
        try:
            providers[alias] = kind(parameters)
        except ConfigInvalid as error:
            raise ConfigInvalid(f"{prefix}param.*: {error}") from error
    return providers


class ConfigTransformer:
    """Puts values in the place of references.

    Args:
        providers: the providers by the names references use.
        on_value: called with every value that was inserted, so that it is masked from then on.
    """

    def __init__(self, providers: Mapping[str, ConfigProvider], on_value: Callable[[str], None] | None = None) -> None:
        self._providers = dict(providers)
        self._on_value = on_value

    def transform(self, config: Mapping[str, str]) -> tuple[dict[str, str], dict[str, int]]:
        """``config`` with references resolved, and by path for how many milliseconds what was found holds.

        Each path is read once. References to an unknown provider, or to a key that isn't there, stay as they are; a value is
        not searched for references again. May block: use ``transform_async`` on an event loop.

        Raises:
            ConfigInvalid: a provider can't read a path.
        """
        keys_by_path: dict[tuple[str, str], set[str]] = {}
        for value in config.values():
            for provider, path, key in find_references(value):
                if provider in self._providers:
                    keys_by_path.setdefault((provider, path), set()).add(key)
        data_by_path: dict[tuple[str, str], Mapping[str, str]] = {}
        ttls: dict[str, int] = {}
        for (provider, path), keys in keys_by_path.items():
            data, ttl = self._providers[provider].get(path, keys)
            data_by_path[provider, path] = data
            if ttl is not None and ttl >= 0:
                ttls[path] = ttl
            if self._on_value is not None:
                for item in data.values():
                    self._on_value(item)
        if not keys_by_path:
            return dict(config), ttls

        return {
            name: value if value is None else replace_references(value, data_by_path) for name, value in config.items()
        }, ttls

    async def transform_async(self, config: Mapping[str, str]) -> tuple[dict[str, str], dict[str, int]]:
        """``transform``, with the reading done in a thread."""
        if not any(has_references(value) for value in config.values()):
            return dict(config), {}
        return await asyncio.to_thread(self.transform, config)


def replace_references(value: str, data_by_path: Mapping[tuple[str, str], Mapping[str, str]]) -> str:
    """``value`` with what was found by (provider, path) and key in the place of references; others stay. Pure."""

    def replace_match(match: re.Match[str]) -> str:
        reference = _parse_reference(match)
        there = None if reference is None else data_by_path.get(reference[:2], {}).get(reference[2])
        return match[0] if there is None else there

    return _BRACES.sub(replace_match, value)


def has_references(value: str | None) -> bool:
    """Whether ``value`` has something of the form of a reference."""
    return bool(find_references(value))


def find_references(value: str | None) -> list[tuple[str, str, str]]:
    """The references in a value: provider, path ("" without one) and key."""
    if value is None or "${" not in value:
        return []
    return [reference for match in _BRACES.finditer(value) if (reference := _parse_reference(match)) is not None]


def _parse_reference(match: re.Match[str]) -> tuple[str, str, str] | None:
    """Provider, path and key: as in Kafka, the first colon ends the provider, the next the path, which may be absent."""
    match match[1].split(":", 2) if match[2] else ():
        case [provider, key]:
            return provider, "", key
        case [provider, path, key]:
            return provider, path, key
    return None


def only_references(value: str) -> bool:
    """Whether ``value`` consists of references, so that it shows no secret itself."""
    return (
        has_references(value)
        and not _BRACES.sub(lambda match: match[0] if _parse_reference(match) is None else "", value).strip()
    )
