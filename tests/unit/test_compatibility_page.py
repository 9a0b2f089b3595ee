"""The pages about Kafka Connect name a test for each thing that works, and the connectors that there are."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from worker.development.commands import ROOT
from worker.plugins import PluginRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE: Final = ROOT / "docs" / "connect-compatibility.md"
PAGES: Final = (PAGE, ROOT / "docs" / "migrating-from-kafka-connect.md")
#: The words of a row without a test.
WITHOUT: Final = re.compile(r"\bno test\b|\bby hand\b|\bnot here\b")
_TEST: Final = re.compile(r"`(tests/[\w/.]+)?(::\w+)?`")


@cache
def _functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _named_tests(text: str) -> Iterator[tuple[str, str]]:
    """Paths and functions; `::name` alone is in the file that was named before it."""
    path = ""
    for match in _TEST.finditer(text):
        path = match[1] or path
        if match[1] or match[2]:
            yield path, (match[2] or "").removeprefix("::")


def _rows(text: str) -> Iterator[str]:
    """The rows of tables, without their headings."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        heading = line.startswith("| --") or (number + 1 < len(lines) and lines[number + 1].startswith("| --"))
        if line.startswith("|") and not heading:
            yield line


def _section(text: str, heading: str) -> str:
    _, _, rest = text.partition(f"\n## {heading}\n")
    assert rest, heading
    return rest.partition("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tests_on_the_page_exist(page: Path) -> None:
    for path, function in _named_tests(page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), path
        assert not function or function in _functions(path), f"{path}::{function}"


@pytest.mark.parametrize(
    ("page", "heading"),
    [(PAGE, "What works, and the tests"), (PAGE, "Clients"), (PAGES[1], "What moves, and what does not")],
)
def test_each_thing_that_works_has_its_test(page: Path, heading: str) -> None:
    rows = list(_rows(_section(page.read_text(encoding="utf-8"), heading)))
    assert len(rows) > 10
    assert [
        row for row in rows if not WITHOUT.search(row) and not any(function for _, function in _named_tests(row))
    ] == []


def test_java_connectors_on_the_page_are_those_that_can_be_configured() -> None:
    section = _section(PAGE.read_text(encoding="utf-8"), "What works, and the tests")
    _, _, table = section.partition("### Connectors by class name\n")
    listed = re.findall(r"`((?:org|io|com)\.[\w.]+)`", "".join(row.split("|")[1] for row in _rows(table)))
    registry = PluginRegistry()
    for name in listed:
        assert registry.connector(name)
    assert sorted(listed) == sorted(
        row["class"] for row in registry.describe() if row["class"].split(".")[0] in {"org", "io", "com"}
    )
