"""Entry points of installed packages are read once for each state of the folders that they are installed in."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from connectors.entry_points import is_own, list_entries, own_entries

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints
    from pathlib import Path

GROUP = "millrace.tests"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "missing")])
    return tmp_path


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups that were read from packages."""
    seen: list[str] = []

    def count(*, group: str) -> EntryPoints:
        seen.append(group)
        return metadata.entry_points(group=group)

    monkeypatch.setattr("connectors.entry_points.entry_points", count)
    return seen


def install(folder: Path, package: str) -> None:
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{package} = {package}:make\n")
    # Two installations within one tick of the file system's clock would look like one.
    times = folder.stat()
    os.utime(folder, ns=(times.st_atime_ns, times.st_mtime_ns + len(list(folder.iterdir()))))


def test_a_folder_is_read_again_when_a_package_was_added(folder: Path, readings: list[str]) -> None:
    install(folder, "other")
    assert [[entry.name for entry in list_entries(GROUP)] for _ in range(3)] == [["other"]] * 3
    assert readings == [GROUP]
    install(folder, "millrace")
    assert [entry.name for entry in list_entries(GROUP)] == ["millrace", "other"], "Millrace's own come first"
    assert list(own_entries(GROUP)) == ["millrace"]
    assert [is_own(entry) for entry in list_entries(GROUP)] == [True, False]
    assert readings == [GROUP] * 2


def test_another_path_has_other_packages(
    folder: Path, readings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(folder, "one")
    (tmp_path / "more").mkdir()
    install(tmp_path / "more", "two")
    assert [entry.name for entry in list_entries(GROUP)] == ["one"]
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "more")])
    assert [entry.name for entry in list_entries(GROUP)] == ["one", "two"]
    assert readings == [GROUP] * 2


def test_callers_may_change_the_list(folder: Path) -> None:
    install(folder, "one")
    list_entries(GROUP).clear()
    assert [entry.name for entry in list_entries(GROUP)] == ["one"]
