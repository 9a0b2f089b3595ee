"""The meaning of a listing of a node's directory and of its index files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from connectors.cassandra.log.descriptor import encode_head
from connectors.cassandra.log.directory import (
    Index,
    check_directory,
    first_indexed,
    has_sections,
    is_behind,
    measure_usage,
    read_index,
    scan_directory,
    started_after,
)
from connectors.cassandra.model import LogPosition
from connectors.errors import ConfigInvalid, Retriable

if TYPE_CHECKING:
    from pathlib import Path


def add(folder: Path, log_id: int, idx: str | None = None, data: bytes = b"", version: int = 7) -> None:
    (folder / f"CommitLog-{version}-{log_id}.log").write_bytes(data)
    if idx is not None:
        (folder / f"CommitLog-{version}-{log_id}_cdc.idx").write_text(idx)


def test_a_listing_is_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    for log_id in (10, 9, 1795302597155, 100):
        add(tmp_path, log_id, "5" if log_id == 9 else None, version=9 if log_id == 100 else 7)
    (tmp_path / "CommitLog-7-11_cdc.idx").write_text("5\nCOMPLETED")
    for name in ("CommitLog-7-12.log.tmp", "CommitLog.log", "readme", "xCommitLog-7-13.log"):
        (tmp_path / name).write_text("")
    files = scan_directory(tmp_path, "n")
    assert [(file.id, file.version, file.present, file.indexed) for file in files.values()] == [
        (9, 7, True, True),
        (10, 7, True, False),
        (11, 7, False, True),
        (100, 9, True, False),
        (1795302597155, 7, True, False),
    ]
    assert files[9].log.exists()
    assert files[9].idx.exists()
    assert files[9].inode == files[9].log.stat().st_ino
    assert files[100].log.name == "CommitLog-9-100.log"


@pytest.mark.parametrize(
    ("content", "offset", "completed"),
    [
        ("", 0, False),
        ("1", 1, False),
        ("33554406", 33554406, False),
        ("120\n", 120, False),
        ("120\nCOMPL", 0, False),
        ("120\nCOMPLETED", 120, True),
        ("120\nCOMPLETED\n", 120, True),
        ("\0\0\0", 0, False),
        ("-5", 0, False),
    ],
)
def test_an_index_file_can_be_half_written(tmp_path: Path, content: str, offset: int, completed: bool) -> None:
    path = tmp_path / "i"
    path.write_text(content)
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    assert read_index(path) == Index(offset, completed, 1_700_000_000_123)


def test_no_index_file_is_not_an_empty_one(tmp_path: Path) -> None:
    assert read_index(tmp_path / "i") is None


@pytest.mark.parametrize("parameters", [b"{}", b'{"compressionClass":"LZ4Compressor","compressionParameters":{}}'])
def test_a_segment_is_started_once_its_first_marker_is_written(tmp_path: Path, parameters: bytes) -> None:
    path, head = tmp_path / "s", encode_head(7, 1, parameters)
    assert not has_sections(path)
    for content in (b"", bytes(64), head[:10], head, head + bytes(4), head + bytes(100)):
        path.write_bytes(content)
        assert not has_sections(path), content
    for marker in (b"\0\0\1\0abcd", b"\0\0\0\0abcd", b"\0\0\1\0\0\0\0\0"):
        path.write_bytes(head + marker + bytes(20))
        assert has_sections(path), marker


def test_the_first_with_an_index_file_is_the_first_with_changes(tmp_path: Path) -> None:
    for log_id in (1, 2, 3):
        add(tmp_path, log_id)
    assert first_indexed(scan_directory(tmp_path, "n").values()) is None
    add(tmp_path, 2, "9")
    add(tmp_path, 3, "9")
    first = first_indexed(scan_directory(tmp_path, "n").values())
    assert first is not None
    assert first.id == 2


def test_an_index_file_that_a_listing_missed_counts(tmp_path: Path) -> None:
    """The listing was past the place of the first's index file when that was made, but saw the second's, which came later."""
    add(tmp_path, 1)
    add(tmp_path, 2, "9")
    files = scan_directory(tmp_path, "n")
    add(tmp_path, 1, "9\nCOMPLETED")
    first = first_indexed(files.values())
    assert first is not None
    assert first.id == 1


def test_what_tells_that_a_segment_is_through(tmp_path: Path) -> None:
    add(tmp_path, 1, "9")
    add(tmp_path, 2)

    def through(log_id: int, *, by_markers: bool) -> bool:
        return started_after(scan_directory(tmp_path, "n").values(), log_id, by_markers=by_markers)

    assert not through(1, by_markers=True)
    add(tmp_path, 3, data=encode_head(7, 3, b"{}") + b"\0\0\1\0abcd")
    assert through(1, by_markers=True)
    assert not through(1, by_markers=False)  # not durable, maybe no captured change
    assert not through(3, by_markers=True)
    (tmp_path / "CommitLog-7-3_cdc.idx").write_text("")
    assert through(1, by_markers=False)
    assert not through(3, by_markers=False)


def test_usage_of_the_directory(tmp_path: Path) -> None:
    add(tmp_path, 1, "900\nCOMPLETED", bytes(1000))
    add(tmp_path, 2, "1000\nCOMPLETED", bytes(1000))
    add(tmp_path, 3, "400", bytes(1000))
    add(tmp_path, 4, None, bytes(1000))
    (tmp_path / "CommitLog-7-9_cdc.idx").write_text("7")
    for log_id, second in ((1, 10), (2, 20), (3, 30)):
        os.utime(tmp_path / f"CommitLog-7-{log_id}_cdc.idx", (0, second))
    index_bytes = len("900\nCOMPLETED") + len("1000\nCOMPLETED") + len("400") + len("7")
    assert measure_usage(tmp_path, "n", None, 0) == (4000 + index_bytes, 3, 900 + 1000 + 400, 10_000)
    assert measure_usage(tmp_path, "n", LogPosition(1, 300), 9_500) == (4000 + index_bytes, 3, 600 + 1000 + 400, 9_500)
    assert measure_usage(tmp_path, "n", LogPosition(1, 850, 0, True), 10_000) == (4000 + index_bytes, 2, 1400, 20_000)
    assert measure_usage(tmp_path, "n", LogPosition(3, 150), 0) == (4000 + index_bytes, 1, 250, 30_000)
    assert measure_usage(tmp_path, "n", LogPosition(3, 500), 29_000) == (
        4000 + index_bytes,
        1,
        0,
        0,
    )  # read by markers, beyond the index


def test_before_and_behind() -> None:
    assert is_behind(4, LogPosition(5))
    assert not is_behind(5, LogPosition(5, 100))
    assert is_behind(5, LogPosition(5, 100, 0, True))
    assert not is_behind(6, LogPosition(5, 100, 0, True))


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"gone of node n1 is not there on this worker.*cdc_raw_directory"):
        check_directory(tmp_path / "gone", "n1", delete=False)
    with pytest.raises(Retriable, match="can't be listed"):
        scan_directory(tmp_path / "gone", "n1")


@pytest.mark.parametrize(
    ("rights", "delete", "message"),
    [
        (os.R_OK | os.X_OK, True, r"can't delete segments.*commit\.log\.delete=false"),
        (os.R_OK | os.X_OK, False, ""),
        (os.W_OK, True, "can't be read by user"),
    ],
)
def test_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rights: int, delete: bool, message: str) -> None:
    # Tests may run as root, who may do everything.
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & ~rights)
    if not message:
        check_directory(tmp_path, "n1", delete=delete)
        return
    with pytest.raises(ConfigInvalid, match=message):
        check_directory(tmp_path, "n1", delete=delete)
