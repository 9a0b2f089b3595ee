"""Imports go one way: between the packages, between the parts of a worker, and between any two modules."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from connectors.testing import installed_connectors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def is_below(module: str, parts: tuple[str, ...]) -> bool:
    return any(module == part or module.startswith(f"{part}.") for part in parts)


ROOT = Path(__file__).parents[2]
PACKAGES = ("connectors", "offsets", "worker", "spark_jobs", "compose")
#: The sources: each is a package of its own next to what they share.
SOURCES = {
    package
    for connector in installed_connectors().values()
    if is_below(package := connector.__module__.rpartition(".")[0], ("connectors",))
}
#: Commands for people: they show what all packages have.
COMMANDS = ("worker.cli", "worker.development")
#: An entry point that also is a script, and a contract whose default is made of it: (importing module, imported module).
ALLOWED = {("spark_jobs.run", "spark_jobs.flows.runs"), ("spark_jobs.steps.contract", "spark_jobs.steps.derive")}


def list_imports(tree: ast.AST) -> Iterator[str]:
    """The absolute names that code imports when it runs, also inside of functions; not those for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        else:
            yield from list_imports(node)


def read_graph() -> dict[str, set[str]]:
    """Every module of the product, and the modules of the product that it imports."""
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        names = set(list_imports(ast.parse(path.read_text(encoding="utf-8"))))
        parents = {name if name in paths else name.rpartition(".")[0] for name in names}
        graph[module] = {name for name in parents if name in paths and name != module}
    return graph


GRAPH = read_graph()


def list_crossings(graph: Mapping[str, set[str]], part: str, forbidden: tuple[str, ...]) -> list[str]:
    """Imports of modules below ``forbidden`` by modules below ``part``, but by commands."""
    return sorted(
        f"{module} imports {name}"
        for module, names in graph.items()
        if is_below(module, (part,)) and not is_below(module, COMMANDS)
        for name in names
        if is_below(name, forbidden)
    )


@pytest.mark.parametrize(
    ("part", "forbidden"),
    [
        ("connectors", ("offsets", "worker", "spark_jobs", "compose")),
        ("offsets", ("worker", "spark_jobs", "compose")),
        ("worker", ("spark_jobs", "compose")),
        ("worker.host", ("worker.control", "worker.rest", "worker.console")),
        ("worker.transforms", ("worker.host", "worker.control", "worker.rest", "worker.console", "offsets")),
        ("worker.converters", ("worker.host", "worker.control", "worker.rest", "worker.console", "offsets")),
        ("spark_jobs", ("worker.host", "worker.control", "worker.rest", "worker.console", "compose")),
    ],
)
def test_a_part_knows_nothing_of_those_above_it(part: str, forbidden: tuple[str, ...]) -> None:
    assert not list_crossings(GRAPH, part, forbidden)


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_no_connector_knows_another_connector(source: str) -> None:
    assert not list_crossings(GRAPH, source, (*(SOURCES - {source}), "connectors.testing"))


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not through imports inside of functions either: they hide a circle, and do not open it."""
    try:
        TopologicalSorter(
            {module: {name for name in names if (module, name) not in ALLOWED} for module, names in GRAPH.items()}
        ).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def test_what_is_allowed_is_there() -> None:
    assert all(name in GRAPH[module] for module, name in ALLOWED)
