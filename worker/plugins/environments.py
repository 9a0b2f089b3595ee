"""Finds the environments in the folders of ``plugin.path``, by packages' metadata alone. Runs no foreign code.

An environment is a folder with installed packages (``pip install --target``), a virtual environment, or a wheel or zip file.
An item of ``plugin.path`` is one, or a folder of them.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass, field, replace
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from worker.plugins.isolation import metadata_field, parse_requirements
from worker.plugins.model import GROUPS, is_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ARCHIVES: Final = (".whl", ".zip")
_COMPILED: Final = (".so", ".pyd", ".dll", ".dylib")
#: Files of one environment whose times are looked at; changes beyond them are seen by the folders that hold them.
_WATCHED: Final = 5000
_SITE: Final = re.compile(r"python(\d+)\.(\d+)t?$")


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment, as it was when it was found.

    Attributes:
        name: what people call it: the name of its folder or file.
        path: its entry for ``sys.path``.
        fingerprint: differs when its content has changed.
        distributions: normalized name -> version of the packages in it.
        entries: (group, name, value) of the entry points of Millrace's groups.
        watched: files whose times are part of the fingerprint, in addition to the content of the folder itself.
    """

    name: str
    path: str
    fingerprint: str = ""
    distributions: Mapping[str, str] = field(default_factory=dict)
    entries: tuple[tuple[str, str, str], ...] = ()
    watched: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Identifies it with its content: changed content is another environment."""
        return f"{self.name}@{self.fingerprint}"


@dataclass(frozen=True, slots=True)
class Scan:
    """The content of ``plugin.path``.

    Attributes:
        environments: those that can be used, by key.
        failures: path that can't be used, or only in part -> why.
    """

    environments: Mapping[str, Environment] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    #: As it was found, by path: what has not changed is not read again.
    seen: Mapping[str, tuple[Environment, Mapping[str, str]]] = field(default_factory=dict)


class Unusable(Exception):
    """An environment can't be used; the message says why and the way out."""


def scan_folders(plugin_path: Iterable[str], own_versions: Mapping[str, str], before: Scan | None = None) -> Scan:
    """Look at all folders of ``plugin.path``. Blocks: stats of files, and reading what is new.

    Args:
        plugin_path: its items; those that are no folders are left alone.
        own_versions: name and version of the distributions that Millrace runs on (``isolation.own_distributions``).
        before: the last result; environments that have not changed are taken from it.
    """
    failures: dict[str, str] = {}
    scanned: dict[str, tuple[Environment, Mapping[str, str]]] = {}
    names_by_path: dict[Path, str] = {}
    for item in plugin_path:
        if not is_folder(item):
            continue
        folder = Path(item).expanduser().absolute()
        try:
            environment_paths = [folder] if _is_environment(folder) else _environments_in(folder, failures)
        except FileNotFoundError:
            failures[item] = f"plugin.path names {item}, which does not exist"
        except OSError as error:
            failures[item] = f"plugin.path names {item}, which can't be read: {error}"
        else:
            names_by_path |= {path: path.name for path in environment_paths}
    twice = {name for name, count in Counter(names_by_path.values()).items() if count > 1}
    for path, name in names_by_path.items():
        label = str(Path(path.parent.name, name)) if name in twice else name
        try:
            site = _find_site(path)
            earlier = None if before is None else before.seen.get(str(site))
            if earlier is not None and earlier[0].fingerprint == _compute_fingerprint(site, earlier[0].watched):
                scanned[str(site)] = replace(earlier[0], name=label), earlier[1]
            else:
                scanned[str(site)] = _read_environment(label, site, own_versions)
        except (Unusable, OSError, zipfile.BadZipFile) as error:
            failures[str(path)] = str(error)
        except Exception as error:  # noqa: BLE001 - reading half a file may raise anything; other environments don't fail
            failures[str(path)] = (
                f"its packages' metadata can't be read ({error!r}): it is broken, or not all there yet. "
                "Install it again"
            )
    for _, problems in scanned.values():
        failures.update(problems)
    usable = {environment.key: environment for environment, _ in scanned.values() if environment.path not in failures}
    return Scan(usable, failures, scanned)


def find_clash(chosen: Sequence[Environment], own_names: Iterable[str]) -> str | None:
    """Why one process can't have these environments: two versions of one distribution. None if it can. Pure.

    Args:
        chosen: the environments.
        own_names: names of the distributions that Millrace runs on; each process has Millrace's of those.
    """
    holders: dict[str, Environment] = {}
    mine = frozenset(own_names)
    for environment in chosen:
        for name, version in environment.distributions.items():
            if name in mine:
                continue
            holder = holders.setdefault(name, environment)
            if holder.distributions[name] != version:
                return (
                    f"the environments {holder.name} and {environment.name} hold different versions of the distribution "
                    f"{name}: {holder.distributions[name]} and {version}. A connector runs in one process with its "
                    f"transforms and converters, which can have one of them. Install them into one folder with one version "
                    f"of {name}, or use versions of these plugins that take the same"
                )
    return None


# Finding.


def _environments_in(folder: Path, failures: dict[str, str]) -> list[Path]:
    """Those among what lies in a folder; one that goes just now, or can't be read, does not hide the others."""
    environments: list[Path] = []
    for path in sorted(folder.iterdir()):
        try:
            if _is_environment(path):
                environments.append(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            failures[str(path)] = f"it can't be read: {error}"
    return environments


def _is_environment(path: Path) -> bool:
    if path.suffix in _ARCHIVES:
        # What Java's plugins come in is a zip file, too.
        return path.is_file() and (path.suffix == ".whl" or ".dist-info/" in _archive_names(path))
    return path.is_dir() and (_has_packages(path) or (path / "pyvenv.cfg").is_file() or bool(_list_sites(path)))


def _has_packages(folder: Path) -> bool:
    return any(entry.name.endswith((".dist-info", ".egg-info")) for entry in os.scandir(folder))


def _list_sites(folder: Path) -> list[Path]:
    return sorted((folder / "lib").glob("python*/site-packages"))


def _archive_names(archive: Path) -> str:
    """Return the names in a zip file, one per line; empty for other files."""
    try:
        with zipfile.ZipFile(archive) as opened:
            return "\n".join(opened.namelist())
    except zipfile.BadZipFile:
        return ""


def _find_site(path: Path) -> Path:
    """Return the entry of ``sys.path`` for a folder or file."""
    if path.is_file():
        with zipfile.ZipFile(path) as archive:
            compiled = next((name for name in archive.namelist() if name.endswith(_COMPILED)), None)
        if compiled is not None:
            raise Unusable(
                f"it holds the compiled module {compiled}, which Python can't load out of a file. Unpack it: pip "
                f"install --target {path.with_suffix('')} {path}, and remove the file"
            )
        return path
    if _has_packages(path):
        return path
    sites = _list_sites(path)
    here = sys.version_info[:2]
    fitting = [
        site for site in sites if (match := _SITE.search(site.parent.name)) and (int(match[1]), int(match[2])) == here
    ]
    if fitting:
        return fitting[0]
    python_versions = ", ".join(site.parent.name for site in sites) or "no Python that is known"
    raise Unusable(
        f"it was made for {python_versions}, and this worker runs Python {here[0]}.{here[1]}. Make it with that Python"
    )


def _read_environment(name: str, site: Path, own_versions: Mapping[str, str]) -> tuple[Environment, Mapping[str, str]]:
    """An environment and what is wrong with it: by its path what makes it unusable, by others what may."""
    packages = list(distributions(path=[str(site)]))
    versions: dict[str, str] = {
        canonicalize_name(metadata_field(package, "Name")): package.version for package in packages
    }
    entries = tuple(
        sorted(
            (entry.group, entry.name, entry.value)
            for package in packages
            for entry in package.entry_points
            if entry.group in GROUPS and canonicalize_name(metadata_field(package, "Name")) not in own_versions
        )
    )
    watched = _watched_files(packages) if site.is_dir() else ()
    environment = Environment(name, str(site), _compute_fingerprint(site, watched), versions, entries, watched)
    if not packages:
        return environment, {str(site): "it holds no installed package. Make it with pip install --target"}
    if not entries:
        return environment, {
            str(site): "none of its packages declares a plugin (an entry point of a group millrace.*): "
            + ", ".join(sorted(versions))
        }
    return environment, _requirement_problems(environment, packages, own_versions)


def _requirement_problems(
    environment: Environment,
    packages: Sequence[Distribution],
    own_versions: Mapping[str, str],
) -> Mapping[str, str]:
    problems: dict[str, str] = {}
    for package in packages:
        name = metadata_field(package, "Name")
        if canonicalize_name(name) in own_versions:
            continue  # a copy that nothing uses
        where = f"{environment.name}: {name} {package.version}"
        python = metadata_field(package, "Requires-Python")
        if python and not _is_in_range(python, ".".join(map(str, sys.version_info[:3]))):
            return {environment.path: f"{where} needs Python {python}, and this worker runs {sys.version.split()[0]}"}
        for needed in parse_requirements(package.requires or ()):
            required, required_range = canonicalize_name(needed.name), f"{needed.name}{needed.specifier}"
            if required in own_versions:
                if not needed.specifier.contains(own_versions[required], prereleases=True):
                    return {
                        environment.path: (
                            f"{where} needs {required_range}, but Millrace itself runs on {needed.name} "
                            f"{own_versions[required]}, and "
                            f"every task host has that one. Use a version of {name} that takes it, or, if Millrace "
                            "takes the other, upgrade it where Millrace is installed"
                        )
                    }
                continue
            installed = environment.distributions.get(required)
            if installed is not None and not needed.specifier.contains(installed, prereleases=True):
                problems[f"{where} needs {required_range}"] = (
                    f"{installed} is there. Install the environment again with pip"
                )
    return problems


def _is_in_range(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return True


# Watching.


def _watched_files(packages: Iterable[Distribution]) -> tuple[str, ...]:
    """Files of the packages that declare plugins."""
    declaring = [package for package in packages if any(entry.group in GROUPS for entry in package.entry_points)]
    paths = [
        str(package.locate_file(file)) for package in declaring for file in package.files or () if file.suffix != ".pyc"
    ]
    return tuple(sorted(paths)[:_WATCHED])


def _compute_fingerprint(site: Path, watched: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=6)
    inside = [] if site.is_file() else [entry.path for entry in os.scandir(site) if entry.name != "__pycache__"]
    for path in (str(site), *sorted(inside), *watched):
        try:
            status = os.stat(path)  # noqa: PTH116 - thousands of them, again and again
        except OSError:
            digest.update(f"{path} is not there\n".encode())
            continue
        directory = status.st_mode & 0o040000
        # Importing writes __pycache__ into folders: their times say nothing.
        digest.update(
            f"{path} {0 if directory else status.st_mtime_ns} {0 if directory else status.st_size}\n".encode()
        )
    return digest.hexdigest()
