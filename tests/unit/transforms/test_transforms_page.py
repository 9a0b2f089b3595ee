"""docs/transforms.md names every transform and predicate there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.transforms.registry import builtin_stages

PAGE = (Path(__file__).parents[3] / "docs" / "transforms.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list(builtin_stages()))
def test_it_has_a_row(name: str) -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| ")]
    assert any(f"{name}`" in row or f"{name}$" in row for row in rows), f"docs/transforms.md has no row for {name}"
