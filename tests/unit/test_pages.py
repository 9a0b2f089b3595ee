"""The pages for users and developers: links lead somewhere, and examples can be copied."""
from __future__ import annotations

import re
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final

import pytest

from spark_jobs.config import load
from worker.devtools import ROOT
from worker.properties import parse

if TYPE_CHECKING:
    from pathlib import Path

PAGES: Final = sorted(chain(ROOT.glob("*.md"), *((ROOT / name).rglob("*.md") for name in ("docs", "connectors", "spark_jobs"))))
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


def test_backslashes_of_property_files_are_written_twice() -> None:
    """A single one would be dropped by whoever reads the file, and a pattern with it would match nothing or too much."""
    blocks = [block for page in PAGES for block in re.findall(r"^```properties\n(.*?)^```$", page.read_text(encoding="utf-8"),
                                                              re.DOTALL | re.MULTILINE)]
    assert any("\\" in block for block in blocks)
    for block in blocks:
        written = block.count("\\")
        assert sum(value.count("\\") for value in parse(block).values()) * 2 == written, block


def test_job_files_are_valid(tmp_path: Path) -> None:
    blocks = [block for page in PAGES for block in re.findall(r"^```yaml\n(name:.*?)^```$", page.read_text(encoding="utf-8"),
                                                              re.DOTALL | re.MULTILINE)]
    assert len(blocks) >= 4
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("kafka=one\npostgres=two\n", encoding="utf-8")
    file = tmp_path / "job.yaml"
    for block in blocks:
        file.write_text(block.replace("/etc/millrace/secrets.properties", str(secrets)), encoding="utf-8")
        assert load(file).name
