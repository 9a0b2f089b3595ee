"""Segments that were read: deleted, or kept."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from connectors.cassandra.log import aside as aside_module
from connectors.cassandra.log.aside import Aside, Removed, Remover
from connectors.cassandra.model import LogPosition, LogSettings
from tests.support.settings import cassandra_log

LOG = logging.getLogger("test.cassandra.aside")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "cdc_raw"
    directory.mkdir()
    return directory


def settings(folder: Path, **more: Any) -> LogSettings:
    return cassandra_log(node="n1", directory=folder, **more)


def add(folder: Path, log_id: int, idx: str | None = None, data: bytes = b"data") -> Path:
    path = folder / f"CommitLog-7-{log_id}.log"
    path.write_bytes(data)
    if idx is not None:
        (folder / f"CommitLog-7-{log_id}_cdc.idx").write_text(idx)
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name.removeprefix("CommitLog-7-") for path in folder.iterdir())


def test_what_is_delivered_is_deleted_and_nothing_else(folder: Path) -> None:
    for log_id in (8, 9, 10):
        add(folder, log_id, "5\nCOMPLETED")
    remover = Remover(settings(folder), LOG)
    assert remover.remove(LogPosition(9, 400)) == Removed(1, 0, 0)
    assert names(folder) == ["10.log", "10_cdc.idx", "9.log", "9_cdc.idx"]
    assert remover.remove(LogPosition(9, 400, 0, True)) == Removed(1, 0, 0)
    assert remover.remove(LogPosition(9, 400, 0, True)) == Removed()
    assert names(folder) == ["10.log", "10_cdc.idx"]


def test_a_segment_that_comes_back_is_deleted_again(folder: Path) -> None:
    """So does a server that replays its log, with the index file a moment after the segment."""
    add(folder, 3, "5\nCOMPLETED")
    add(folder, 4, "5")
    remover = Remover(settings(folder), LOG)
    upto = LogPosition(4, 5)
    remover.remove(upto)
    add(folder, 3)
    assert (
        remover.remove(upto) == Removed()
    )  # the server has it under another name, and may be about to write the index
    add(folder, 3, "100\nCOMPLETED")
    assert remover.remove(upto) == Removed(1, 0, 1)
    assert names(folder) == ["4.log", "4_cdc.idx"]


def test_a_segment_without_captured_changes_is_the_servers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked, orphan = add(folder, 1), add(folder, 2)
    (folder.parent / "commitlog.log").hardlink_to(linked)
    remover = Remover(settings(folder), LOG)
    assert remover.remove(LogPosition(5)) == Removed()
    monkeypatch.setattr(aside_module, "ORPHAN_S", -1.0)  # the orphan has had no other name "for a minute"
    assert remover.remove(LogPosition(5)) == Removed(1, 0, 0)
    assert linked.exists()
    assert not orphan.exists()


def test_an_index_file_that_is_left_over_goes(folder: Path) -> None:
    """We were killed between the two deletions."""
    add(folder, 1, "5\nCOMPLETED").unlink()
    assert Remover(settings(folder), LOG).remove(LogPosition(2)) == Removed()
    assert names(folder) == []


def test_a_failed_deletion_is_reported_once_and_retried(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add(folder, 1, "5\nCOMPLETED")
    add(folder, 2, "5\nCOMPLETED")
    real, broken = Path.unlink, [True]

    def unlink(path: Path, *, missing_ok: bool = False) -> None:
        if broken[0] and path.name == "CommitLog-7-1.log":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    remover = Remover(settings(folder), LOG)
    upto = LogPosition(3)
    assert remover.remove(upto) == Removed(1, 1, 0)
    assert remover.remove(upto) == Removed(0, 1, 0)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "CommitLog-7-1.log is delivered and can't be deleted" in caplog.text
    broken[0] = False
    assert remover.remove(upto) == Removed(1, 0, 0)
    assert names(folder) == []


def test_a_kept_segment_outlives_the_deleted_one(folder: Path) -> None:
    log = add(folder, 7, "4", b"damaged")
    keeper = Aside(settings(folder))
    assert keeper.count() == 0
    kept = keeper.keep(log, log.with_name("CommitLog-7-7_cdc.idx"), "CommitLog-7-7.log, offset 4: bad")
    assert kept == folder.parent / "cdc_raw_aside" / "CommitLog-7-7.log"
    assert kept.samefile(log)
    second = keeper.keep(log, log.with_name("CommitLog-7-7_cdc.idx"), "CommitLog-7-7.log, offset 6: bad too")
    assert second == kept
    Remover(settings(folder), LOG).remove(LogPosition(8))
    assert names(folder) == []
    assert kept.read_bytes() == b"damaged"
    assert names(kept.parent) == ["7.log", "7.problem", "7_cdc.idx"]
    lines = kept.with_suffix(".problem").read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        "CommitLog-7-7.log, offset 4: bad",
        "CommitLog-7-7.log, offset 6: bad too",
    ]
    assert keeper.count() == 1


def test_a_kept_segment_never_replaces_another(folder: Path, tmp_path: Path) -> None:
    keeper = Aside(settings(folder, aside=tmp_path / "kept"))
    first = keeper.keep(add(folder, 7, data=b"one"), folder / "none", "bad")
    first_log = folder / "CommitLog-7-7.log"
    first_log.unlink()
    second = keeper.keep(add(folder, 7, data=b"two"), folder / "none", "bad")
    assert (first.name, second.name) == ("CommitLog-7-7.log", "CommitLog-7-7.1.log")
    assert (first.read_bytes(), second.read_bytes()) == (b"one", b"two")
    assert keeper.count() == 2


def test_kept_on_another_file_system_as_a_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: Any) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    log = add(folder, 7, "4", b"damaged")
    keeper = Aside(settings(folder))
    kept = keeper.keep(log, folder / "none", "bad")
    assert not kept.samefile(log)
    assert keeper.keep(log, folder / "none", "bad") == kept  # the same bytes are not copied twice
    log.write_bytes(b"x")
    assert kept.read_bytes() == b"damaged"
    assert names(kept.parent) == ["7.log", "7.problem"]
