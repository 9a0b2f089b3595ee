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
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from connectors.errors import ConfigInvalid
from worker.properties import parse
from worker.transforms.java_regex import compile_java

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_log = logging.getLogger(__name__)

#: A reference: provider, path (maybe absent) and key; as in Kafka, the first colon ends the provider, the next the path.
_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")


class ConfigData(NamedTuple):
    """What a provider found, and for how many milliseconds it may be used (None: no limit)."""

    data: Mapping[str, str]
    ttl: int | None = None


class ConfigProvider(ABC):
    """One configured source of values."""

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

        Raises:
            ConfigInvalid: the path can't be read.
        """


class _AllowedPaths:
    """``allowed.paths``: the trees a provider may read from; without it, everything.

    Paths are compared as they are written, after ``.`` and ``..`` were resolved; links are followed, as in Kafka.
    """

    def __init__(self, text: str | None) -> None:
        self._roots: tuple[Path, ...] | None = None
        if not text:
            return
        roots = [Path(os.path.normpath(item)) for item in text.split(",")]
        for root in roots:
            if not root.is_absolute():
                raise ConfigInvalid(f"Path {root} is not absolute: allowed.paths takes absolute paths, separated by commas")
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
            properties = parse(allowed.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, ConfigInvalid) as error:
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
                data[key] = file.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigInvalid(f"Could not read file {file} for property {key}: {error}") from error
        return ConfigData(data)


class EnvVarConfigProvider(ConfigProvider):
    """``${env:NAME}``; ``allowlist.pattern`` limits the names. The environment is that of the worker's start."""

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.common.config.provider.EnvVarConfigProvider",)

    def __init__(self, parameters: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        names = compile_java(parameters["allowlist.pattern"]) if "allowlist.pattern" in parameters else None
        self._variables = {name: value for name, value in (os.environ if environment is None else environment).items()
                           if names is None or names.fullmatch(name)}

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        """See ``ConfigProvider.get``.

        Raises:
            ConfigInvalid: there is a path, which environments don't have.
        """
        if path:
            raise ConfigInvalid(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
        return ConfigData({key: self._variables[key] for key in keys if key in self._variables})


#: The built-in providers by their short names.
PROVIDERS: Final[Mapping[str, type[ConfigProvider]]] = MappingProxyType({
    kind.__name__: kind for kind in (FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider)})


def build_providers(worker_config: Mapping[str, str]) -> dict[str, ConfigProvider]:
    """The providers a worker's properties declare: ``config.providers``, ``config.providers.X.class`` and ``.param.*``.

    Looks at the file system.

    Raises:
        ConfigInvalid: a class is missing or unknown, or a parameter is wrong; the message names the property.
    """
    providers: dict[str, ConfigProvider] = {}
    available = ", ".join(kind.aliases[0] for kind in PROVIDERS.values())
    by_name = {name: kind for short, kind in PROVIDERS.items() for name in (short, *kind.aliases)}
    for alias in dict.fromkeys(item.strip() for item in worker_config.get("config.providers", "").split(",")):
        if not alias:
            continue
        prefix = f"config.providers.{alias}."
        class_name = worker_config.get(f"{prefix}class", "").strip()
        if not class_name:
            raise ConfigInvalid(f'Missing required configuration "{prefix}class": name the class of config provider {alias!r}; '
                                f"there are {available}")
        if class_name not in by_name:
            raise ConfigInvalid(f"Invalid value {class_name} for configuration {prefix}class: Class {class_name} could not be "
                                f"found. Available config providers: {available}")
        parameters = {name.removeprefix(f"{prefix}param."): value for name, value in worker_config.items()
                      if name.startswith(f"{prefix}param.")}
        try:
            providers[alias] = by_name[class_name](parameters)
        except ConfigInvalid as error:
            raise ConfigInvalid(f"{prefix}param.*: {error}") from error
    return providers


class ConfigTransformer:
    """Puts values in the place of references.

    Args:
        providers: the providers by the names references use.
        on_value: told every value that was put in, so that it can be masked from then on.
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
        wanted: dict[tuple[str, str], set[str]] = {}
        for value in config.values():
            for provider, path, key in references(value):
                if provider in self._providers:
                    wanted.setdefault((provider, path), set()).add(key)
        found: dict[tuple[str, str], Mapping[str, str]] = {}
        ttls: dict[str, int] = {}
        for (provider, path), keys in wanted.items():
            data, ttl = self._providers[provider].get(path, keys)
            found[provider, path] = data
            if ttl is not None and ttl >= 0:
                ttls[path] = ttl
            if self._on_value is not None:
                for item in data.values():
                    self._on_value(item)
        if not wanted:
            return dict(config), ttls

        def put(match: re.Match[str]) -> str:
            value = found.get((match[1], match[3] or ""), {}).get(match[4])
            return match[0] if value is None else value
        return {name: value if value is None else _REFERENCE.sub(put, value) for name, value in config.items()}, ttls

    async def transform_async(self, config: Mapping[str, str]) -> tuple[dict[str, str], dict[str, int]]:
        """``transform``, with the reading done in a thread."""
        if not any(has_references(value) for value in config.values()):
            return dict(config), {}
        return await asyncio.to_thread(self.transform, config)


def has_references(value: str | None) -> bool:
    """Whether ``value`` has something of the form of a reference."""
    return value is not None and "${" in value and _REFERENCE.search(value) is not None


def references(value: str | None) -> list[tuple[str, str, str]]:
    """The references in a value: provider, path ("" without one) and key."""
    if value is None or "${" not in value:
        return []
    return [(match[1], match[3] or "", match[4]) for match in _REFERENCE.finditer(value)]


def only_references(value: str) -> bool:
    """Whether ``value`` consists of references, so that it shows no secret itself."""
    return has_references(value) and not _REFERENCE.sub("", value).strip()
