"""Files that can't be read: they do not end a task that has others, and nothing is skipped because of them."""

import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.errors import Fatal, Retriable
from connectors.file.connector import FileStreamSourceConnector
from connectors.logs.connector import LogsConnector
from connectors.logs.recent import read_recent
from connectors.testing import Run, SavedOffsets
from connectors.text_files import reader as reader_module
from connectors.text_files import rotation
from connectors.text_files.directory import match_files
from connectors.text_files.follower import Follower, StepKind
from connectors.text_files.rotation import fingerprint_head, locate_position
from tests.support.clock import ManualClock

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


def test_each_of_many_rotated_files_is_compared_with_few_names(folder: Path) -> None:
    compared = 0

    class File(tuple[int, int]):
        """Device and inode of a file that has a name already."""

        __slots__ = ()
        __hash__ = tuple.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return tuple(self) == other

    for number in range(50):
        (folder / f"app.log.{number}").touch()
    names: dict[str, tuple[int, int] | None] = {f"other{number}": File((0, number)) for number in range(50)}
    times = rotation._siblings_of_name(str(folder / "app.log"), None, names)
    assert len(times) == 50
    assert len(names) == 100
    assert compared <= 50, "not each with all"


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


def test_a_link_whose_target_cannot_be_looked_at_hides_no_other_file(folder: Path) -> None:
    path = write_rotated(folder)
    closed = folder / "closed"
    closed.mkdir()
    (folder / "app.log.3").symlink_to("closed/app.log")
    (folder / "app.log.4").symlink_to("app.log.1/app.log")
    closed.chmod(0)
    try:
        assert match_files(str(folder), "*.[34]") == [str(folder / "app.log.3"), str(folder / "app.log.4")]
        assert locate_paths(path) == ["app.log.1", "app.log"]
        (folder / "app.log.1").unlink()
        with pytest.raises(Retriable, match=r"app\.log\.3: Permission denied.*rotation\.pattern"):
            locate_paths(path)
    finally:
        closed.chmod(0o700)


def test_a_file_that_is_too_small_to_have_the_position_does_not_matter(folder: Path) -> None:
    """Such as a lock or a file of a password: compressed, a file is at best a thousandth of its text."""
    path = folder / "app.log"
    path.write_bytes(b"truncated\n")
    (folder / "app.log.lock").touch(0)
    key = folder / "app.log.key"
    key.write_bytes(b"secret\n" * 4)
    key.chmod(0)
    old = b"line\n" * 10_000

    location = locate_position(str(path), len(old), fingerprint_head(old[:1024], len(old)), "auto", None)

    assert location is not None
    assert (location.paths, location.position) == ([str(path)], 0)


def directory_config(folder: Path, **options: str) -> dict[str, str]:
    """Properties of a connector that reads the folder's logs."""
    return {
        "directory": str(folder),
        "file.pattern": "*.log",
        "topic": "lines",
        "rotation.wait.ms": "0",
        **{name.replace("_", "."): value for name, value in options.items()},
    }


@pytest.fixture
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that can't be read is looked at again soon."""
    monkeypatch.setattr(reader_module, "_RETRY_S", 0.05)


@pytest.mark.usefixtures("quick_retry")
async def test_a_file_that_cannot_be_read_does_not_end_its_task(folder: Path) -> None:
    """The other files are read, and this one as soon as it can be."""
    for name in ("a", "b", "c"):
        (folder / f"{name}.log").write_text(f"{name} 1\n")
    (folder / "b.log").chmod(0)
    async with Run(FileStreamSourceConnector, directory_config(folder)) as run:
        assert {record.value for record in await run.read(2)} == {"a 1", "c 1"}
        with (folder / "a.log").open("a") as file:
            file.write("a 2\n")
        assert [record.value for record in await run.read(1)] == ["a 2"]
        assert run.log.text().count(f"Can't read {folder / 'b.log'}: Permission denied") == 1
        (folder / "b.log").chmod(0o600)
        assert [record.value for record in await run.read(1)] == ["b 1"]


@pytest.mark.usefixtures("quick_retry")
async def test_a_file_whose_rotated_file_cannot_be_read_waits_alone(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.log").write_text(f"{name} 1\n")
    config = directory_config(folder, rotation_tracking="true")
    offsets = SavedOffsets()
    async with Run(FileStreamSourceConnector, config, offsets=offsets) as run:
        await run.read(2)
    for name in ("a", "b"):
        with (folder / f"{name}.log").open("a") as file:
            file.write(f"{name} 2\n")
        (folder / f"{name}.log").rename(folder / f"{name}.log.1")
        (folder / f"{name}.log").write_text(f"{name} 3, of a new file\n")
    (folder / "a.log.1").chmod(0)
    async with Run(FileStreamSourceConnector, config, offsets=offsets) as run:
        assert [record.value for record in await run.read(2)] == ["b 2", "b 3, of a new file"]
        (folder / "a.log.1").chmod(0o600)
        assert [record.value for record in await run.read(2)] == ["a 2", "a 3, of a new file"]


@pytest.mark.usefixtures("quick_retry")
@pytest.mark.parametrize("tracking", ["true", "false"])
async def test_a_new_file_that_cannot_be_read_hides_no_line_of_the_renamed_one(folder: Path, tracking: str) -> None:
    """The end of the renamed file is read, and the new file from its beginning once it can be."""
    path = folder / "a.log"
    path.write_text("1\n2, not yet")
    config = directory_config(folder, rotation_tracking=tracking, rotation_wait_ms="1500")
    async with Run(FileStreamSourceConnector, config) as run:
        assert [record.value for record in await run.read(1)] == ["1"]
        with path.open("a") as writer:
            path.rename(folder / "a.log.1")
            path.write_text("4\n")
            path.chmod(0)
            await run.take(0.7)  # the new file is seen
            writer.write(" whole\n3\n")
        assert [record.value for record in await run.read(2)] == ["2, not yet whole", "3"]
        while "a.log: Permission denied" not in run.log.text():
            assert await run.take(0.05) is None
        path.chmod(0o600)
        assert [record.value for record in await run.read(1)] == ["4"]


def test_a_single_file_that_cannot_be_read_is_an_error(folder: Path) -> None:
    path = folder / "app.log"
    path.touch(0)
    follower = Follower(str(path), compression="auto", wait=1.0, clock=ManualClock())
    with pytest.raises(Fatal, match=r"app\.log: Permission denied"):
        follower.advance()


def test_a_truncated_file_whose_copy_cannot_be_opened_leaves_no_descriptor_open(folder: Path) -> None:
    """While the process has no descriptor left, the reader retries: each attempt must not take another one."""
    path = folder / "app.log"
    path.write_bytes(_OLD)
    follower = Follower(str(path), compression="auto", wait=1.0, clock=ManualClock())
    assert [follower.advance().kind for _ in range(2)] == [StepKind.BEGIN, StepKind.DATA]
    for number, content in ((2, _OLD + b"more\n"), (1, b"newer\n")):
        (folder / f"app.log.{number}").write_bytes(content)
        os.utime(folder / f"app.log.{number}", (1000 - number, 1000 - number))
    path.write_bytes(b"new\n")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = set(Path("/proc/self/fd").iterdir())
    lowest_free = os.dup(0)
    os.close(lowest_free)
    try:
        for free in range(2):
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + free, limits[1]))
            with pytest.raises(Retriable, match="Too many open files"):
                follower.advance()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert set(Path("/proc/self/fd").iterdir()) == before
    follower.close()


async def test_a_preview_of_a_directory_leaves_out_a_file_that_cannot_be_read(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.log").write_text(f"{name}\n")
    config = LogsConnector.config_def.parse({"directory": str(folder), "topic.prefix": "logs", "rules.name": "r"})
    (folder / "b.log").chmod(0)
    assert [line for line, _ in await read_recent(config, 10, 20)] == ["a"]
    (folder / "a.log").chmod(0)
    with pytest.raises(Fatal, match="Permission denied"):
        await read_recent(config, 10, 20)


async def test_a_preview_of_a_directory_leaves_out_a_file_whose_name_is_not_utf_8(folder: Path) -> None:
    (folder / os.fsdecode(b"b\xfcro.log")).write_text("unnamed\n")
    (folder / "a.log").write_text("a\n")
    config = LogsConnector.config_def.parse({"directory": str(folder), "topic.prefix": "logs", "rules.name": "r"})
    assert [line for line, _ in await read_recent(config, 10, 20)] == ["a"]
