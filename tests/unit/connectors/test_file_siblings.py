"""Files next to a followed one that can't be read: they do not end a task, and nothing is skipped because of them."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.errors import Retriable
from connectors.text_files.directory import match_files
from connectors.text_files.rotation import fingerprint_head, locate_position

_NOBODY = 65534
_OLD = b"old 1\nold 2\n"
_POSITION = 6


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in which the test has no rights but those of the files: root may read everything otherwise."""
    with tempfile.TemporaryDirectory() as name:
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(name, _NOBODY, _NOBODY)
            os.seteuid(_NOBODY)
        try:
            yield Path(name)
        finally:
            if is_root:
                os.seteuid(0)


def write_rotated(folder: Path) -> Path:
    """A file that was renamed to ``.1`` while it was not read."""
    path = folder / "app.log"
    path.write_bytes(b"new 1\n")
    rotated = folder / "app.log.1"
    rotated.write_bytes(_OLD)
    os.utime(rotated, (1000, 1000))
    return path


def locate_paths(path: Path) -> list[str]:
    """The names of the files to read from the saved position in the old file on."""
    location = locate_position(str(path), _POSITION, fingerprint_head(_OLD, _POSITION), "auto", None)
    assert location is not None
    assert location.position == _POSITION
    return [Path(name).name for name in location.paths]


def test_a_rotated_file_that_cannot_be_read_is_waited_for(folder: Path) -> None:
    path = write_rotated(folder)
    rotated = folder / "app.log.1"
    rotated.chmod(0)

    with pytest.raises(Retriable, match=r"app\.log\.1: Permission denied.*rotation\.pattern"):
        locate_paths(path)

    rotated.chmod(0o600)
    assert locate_paths(path) == ["app.log.1", "app.log"]


def test_an_older_file_that_cannot_be_read_does_not_matter(folder: Path) -> None:
    path = write_rotated(folder)
    older = folder / "app.log.2"
    older.write_bytes(b"older\n")
    os.utime(older, (500, 500))
    older.chmod(0)

    assert locate_paths(path) == ["app.log.1", "app.log"]


def test_a_link_to_itself_is_no_rotated_file(folder: Path) -> None:
    path = write_rotated(folder)
    (folder / "app.log.loop").symlink_to("app.log.loop")

    assert locate_paths(path) == ["app.log.1", "app.log"]


def test_a_link_to_itself_is_no_file_of_a_directory(folder: Path) -> None:
    (folder / "a.csv").touch()
    (folder / "loop.csv").symlink_to("loop.csv")

    assert match_files(str(folder), "*.csv") == [str(folder / "a.csv")]
