"""Lets a process import from other environments, and still run Millrace's own code.

``python -m worker.plugins.isolation --environment FOLDER [...] MODULE ARGUMENTS`` runs a module that way. The folders come
first on ``sys.path``: their packages are used, whatever is installed next to Millrace. Only the packages that Millrace itself
needs always come from Millrace's installation: the standard library, Millrace, and its direct and indirect requirements.

This module imports only the standard library and ``packaging``, so that all else is imported under these rules.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder, PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import ModuleType

_MILLRACE: Final = "millrace"
#: Millrace's own packages, for where it runs from a checkout.
_PACKAGES: Final = ("worker", "connectors", "offsets", "spark_jobs", "compose")
#: Extras whose distributions no task host imports.
_ELSEWHERE: Final = frozenset({"light", "test", "spark"})


def metadata_field(package: Distribution, name: str) -> str:
    """One field of a package's metadata; "" if it is missing (later versions of Python raise KeyError then)."""
    fields = package.metadata
    return fields[name] if name in fields else ""  # noqa: SIM401 - Python 3.11 declares no get


def own_distributions(root: str = _MILLRACE) -> dict[str, str]:
    """Name and version of what Millrace runs on: itself, its requirements, and theirs. Reads packages' metadata: blocks."""
    versions: dict[str, str] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [(root, ())]
    visited: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in visited:
            continue
        visited.add((name, extras))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # of an extra that is not installed here
        versions[canonicalize_name(name)] = package.version
        if name == root:
            extras = tuple(sorted(set(package.metadata.get_all("Provides-Extra") or ()) - _ELSEWHERE))
        waiting += [
            (canonicalize_name(needed.name), tuple(sorted(needed.extras)))
            for needed in parse_requirements(package.requires or (), extras)
        ]
    return versions


def parse_requirements(lines: Iterable[str], extras: Sequence[str] = ()) -> list[Requirement]:
    """Those of a distribution's requirements that count here, with these of its extras; what can't be read is left out."""
    result = []
    for line in lines:
        try:
            needed = Requirement(line)
        except InvalidRequirement:
            continue
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            result.append(needed)
    return result


def modules_of(packages: Iterable[str]) -> frozenset[str]:
    """The modules that distributions bring: top-level ones, and of a namespace the packages in it."""
    modules: set[str] = set()
    for name in packages:
        try:
            files = [file.parts for file in distribution(name).files or ()]
        except PackageNotFoundError:
            continue
        real = {parts[:-1] for parts in files if parts[-1] == "__init__.py"}
        for parts in files:
            if not parts[-1].endswith((".py", ".so", ".pyd")) or parts[0] in ("..", "/"):
                continue
            depth = next((depth for depth in range(1, len(parts)) if parts[:depth] in real), None)
            modules.add(
                ".".join(parts[:depth]) if depth is not None else ".".join((*parts[:-1], parts[-1].partition(".")[0]))
            )
    return frozenset(modules)


class OwnFirst(MetaPathFinder):
    """Finds what Millrace runs on where Millrace is installed, whatever comes first on ``sys.path``.

    Args:
        path: ``sys.path`` without environments.
        modules: names of the modules that this is for, dotted ones within namespaces.
        packages: names of the distributions they belong to.
    """

    def __init__(self, path: Sequence[str], modules: frozenset[str], packages: frozenset[str]) -> None:
        self._path = list(path)
        self._modules = modules
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's specification; None for what is not Millrace's."""
        if fullname not in self._modules:
            return None
        parents = fullname.split(".")[:-1]
        where = [os.path.join(item, *parents) for item in self._path] if parents else self._path  # noqa: PTH118 - sys.path
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = (
                PathFinder.find_spec(fullname, where, target)
                if finder is PathFinder
                else finder.find_spec(fullname, path, target)
                if hasattr(finder, "find_spec")
                else None
            )
            if spec is not None:
                return spec
        return None

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterable[Distribution]:
        """Find the metadata of the same packages, so that the versions that code sees match what it imports."""
        distribution_name = None if context is None or context.name is None else canonicalize_name(context.name)
        if distribution_name is not None and distribution_name not in self._packages:
            return []
        context_path = None if context is None else vars(context).get("path")
        if context_path is not None:
            return []  # someone looks into a certain folder
        arguments: Mapping[str, Any] = (
            {"path": self._path} if distribution_name is None else {"path": self._path, "name": distribution_name}
        )
        return [
            candidate
            for candidate in MetadataPathFinder.find_distributions(DistributionFinder.Context(**arguments))
            if canonicalize_name(metadata_field(candidate, "Name")) in self._packages
        ]


def activate_folders(folders: Sequence[str]) -> None:
    """Make the packages of ``folders`` importable in this process, for good; does nothing without folders."""
    if not folders:
        return
    own_names = frozenset(own_distributions())
    modules = frozenset(sys.stdlib_module_names) | frozenset(_PACKAGES) | modules_of(own_names)
    sys.meta_path.insert(0, OwnFirst(sys.path, modules, own_names))
    sys.path[:0] = folders


def main(arguments: Sequence[str]) -> None:
    """Run a module with the folders of environments before all others."""
    parser = argparse.ArgumentParser(description="Runs a module of Millrace in other environments.")
    parser.add_argument("--environment", action="append", default=[])
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    activate_folders(options.environment)
    sys.argv = [options.module, *options.arguments]
    runpy.run_module(options.module, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
