"""The documentation site: it is built without a warning, and links lead to where pages of the checkout are in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from worker.development.commands import ROOT
from worker.development.site_hooks import find_outside_pages, rewrite_links

if TYPE_CHECKING:
    from pathlib import Path

_OUTSIDE = {"README.md": "index.md", "connectors/mysql/TYPES.md": "project/connectors/mysql/types.md"}


def test_links_follow_pages_into_the_site() -> None:
    text = "[types](../../connectors/mysql/TYPES.md#dates), [home](../../README.md), [rules](../rules.md)"
    assert rewrite_links(text, "docs/connectors/mysql.md", "connectors/mysql.md", _OUTSIDE) == (
        "[types](../project/connectors/mysql/types.md#dates), [home](../index.md), [rules](../rules.md)"
    )


def test_links_of_pages_outside_of_docs_lead_into_the_site() -> None:
    text = "[jobs](docs/jobs/running.md), ![picture](docs/images/a.png), [all options](docs/reference/)"
    assert rewrite_links(text, "README.md", "index.md", _OUTSIDE) == (
        "[jobs](jobs/running.md), ![picture](images/a.png), [all options](reference/worker.md)"
    )


def test_links_to_code_become_text_and_others_stay() -> None:
    text = "[the code](../connectors/api.py), [Kafka](https://kafka.apache.org)\n\n```\n[a](../b.py)\n```\n"
    assert rewrite_links(text, "docs/plugins.md", "plugins.md", _OUTSIDE) == (
        "the code, [Kafka](https://kafka.apache.org)\n\n```\n[a](../b.py)\n```\n"
    )


def test_the_site_is_built_with_every_page(tmp_path: Path) -> None:
    """``strict`` makes a warning an error: a link or a heading that is not there, a page that no menu has."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))
    locations = {entry["location"].partition("#")[0] for entry in index["docs"]}
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    expected = {f"{page.with_suffix('')}/" for page in pages if page.name != "index.md"}
    assert len(expected) > 50
    assert expected <= locations
    assert {f"{page.removesuffix('.md')}/" for page in find_outside_pages(ROOT).values()} - {"index/"} <= locations
