"""The pages for users and developers: links and paths lead somewhere."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final

import pytest

from worker.development.commands import ROOT
from worker.properties import parse_properties

if TYPE_CHECKING:
    from pathlib import Path

PAGES: Final = sorted(
    chain(ROOT.glob("*.md"), *((ROOT / name).rglob("*.md") for name in ("docs", "connectors", "spark_jobs")))
)
_FENCED: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


@cache
def _anchors(page: Path) -> frozenset[str]:
    headings = re.findall(r"^#+ +(.*)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def test_cells_of_tables_by_symptom_have_two_lines_at_most() -> None:
    """Of 80 characters each, without addresses of links: who looks something up in an outage reads no paragraphs in cells."""
    page = re.sub(r"\]\([^)\s]+\)", "]", (ROOT / "docs" / "operations.md").read_text(encoding="utf-8"))
    cells = [cell.strip() for line in page.splitlines() if line.startswith("|") for cell in line.split("|")]
    assert [cell for cell in cells if len(cell) > 160] == []


def test_backslashes_of_property_files_are_written_twice() -> None:
    """A single one would be dropped by whoever reads the file, and a pattern with it would match nothing or too much."""
    blocks = [
        block
        for page in PAGES
        for block in re.findall(
            r"^```properties\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
    ]
    assert any("\\" in block for block in blocks)
    for block in blocks:
        written = block.count("\\")
        assert sum(value.count("\\") for value in parse_properties(block).values()) * 2 == written, block


def test_the_changelog_says_each_thing_once() -> None:
    """Merges keep the lines of both sides: an entry that one of them changed may come twice, or within another one."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = [" ".join(entry.split()) for entry in re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE)]
    assert len(entries) > 100
    sentences = Counter(
        re.sub(r"^\*\*[^*]+\*\* *", "", sentence).lower()
        for entry in entries
        for sentence in re.split(r"(?<=[.:]) (?=[A-Z])", entry)
    )
    assert [sentence for sentence, count in sentences.items() if count > 1 and sentence.count(" ") > 4] == []
    assert [entry for entry in entries if not entry.endswith((".", ")"))] == []


_SECTION_ROOTS: Final = {
    "The Scylla connector": "connectors/scylla",
    "The MySQL connector": "connectors/mysql",
    "The Cassandra connector": "connectors/cassandra",
    "Spark jobs": "spark_jobs",
}
_PATH: Final = re.compile(r"(?:[\w.*/-]|<\w+>|\{[\w,]+\})+")


def _spellings(path: str) -> list[str]:
    """A path with ``{a,b}`` and ``<name>`` as patterns of ``Path.glob``."""
    path = re.sub(r"<\w+>", "*", path)
    braces = re.search(r"\{([\w,]+)\}", path)
    return [path[: braces.start()] + name + path[braces.end() :] for name in braces[1].split(",")] if braces else [path]


def _architecture() -> tuple[list[str], set[Path]]:
    """The paths in ARCHITECTURE.md that do not exist, and all that do.

    A path starts at the root, in the folder of its section's connector (else of the worker), or in a folder of the same line.
    """
    missing: list[str] = []
    existing: set[Path] = set()
    section = ROOT / "worker"
    for line in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            section = ROOT / _SECTION_ROOTS.get(line.lstrip("# "), "worker")
        named = [path for path in _PATH.findall(line) if path.endswith((".py", ".toml", "/")) and path != "/"]
        bases = [section, *(ROOT / path for path in named if path.endswith("/") and (ROOT / path).is_dir())]
        for path in chain.from_iterable(map(_spellings, named)):
            here = [*ROOT.glob(path), *(match for base in bases for match in base.rglob(path))]
            if not here:
                missing.append(path)
            existing.update(here)
    return missing, existing


def test_paths_in_the_architecture_exist() -> None:
    missing, existing = _architecture()
    assert len(existing) > 100
    assert missing == []


def test_the_architecture_names_every_folder_of_code() -> None:
    packages = ("worker", "connectors", "offsets", "spark_jobs", "compose")
    folders = {file.parent for package in packages for file in (ROOT / package).rglob("*.py")}
    folders |= {folder for folder in (ROOT / "tests").iterdir() if any(folder.glob("**/*.py"))}
    _, existing = _architecture()
    assert sorted(str(folder.relative_to(ROOT)) for folder in folders - existing) == []
