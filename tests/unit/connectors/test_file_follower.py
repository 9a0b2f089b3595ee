"""Every turn that a followed file can take, step by step, with a clock of the test's own."""

import gzip
import os
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest

from connectors.errors import Fatal
from connectors.text_files.follower import Follower, StepKind
from connectors.text_files.rotation import HEAD, fingerprint_head, locate_position
from tests.support.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def follow(
    path: Path,
    clock: ManualClock,
    position: int = 0,
    saved_fingerprint: str | None = None,
    *,
    search: bool = True,
    compression: str = "auto",
) -> Follower:
    return Follower(
        str(path),
        compression=compression,
        position=position,
        saved_fingerprint=saved_fingerprint,
        rotated_pattern=None if search else "",
        wait=1.0,
        clock=clock,
    )


def read(follower: Follower, clock: ManualClock) -> list[tuple[StepKind, bytes | int]]:
    """Steps until nothing is new twice, a second apart; the waits themselves are left out."""
    steps: list[tuple[StepKind, bytes | int]] = []
    quiet = 0
    while quiet < 3:
        step = follower.advance()
        if step.kind in {StepKind.IDLE, StepKind.COMPLETE, StepKind.MISSING, StepKind.GONE}:
            quiet += 1
            clock.now += 1.5
            if step.kind in {StepKind.MISSING, StepKind.GONE} and (not steps or steps[-1][0] is not step.kind):
                steps.append((step.kind, b""))
        else:
            quiet = 0
            if step.kind is not StepKind.BUSY:
                steps.append((step.kind, step.position if step.kind is StepKind.BEGIN else step.data))
    return steps


def test_a_file_that_comes_and_grows(path: Path, clock: ManualClock) -> None:
    follower = follow(path, clock)
    assert read(follower, clock) == [(StepKind.MISSING, b"")]
    path.write_bytes(b"one\n")
    assert read(follower, clock) == [(StepKind.BEGIN, 0), (StepKind.DATA, b"one\n")]
    with path.open("ab") as file:
        file.write(b"two\n")
    assert read(follower, clock) == [(StepKind.DATA, b"two\n")]
    follower.close()


def test_rename_and_a_new_file(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"one\n")
    follower = follow(path, clock)
    read(follower, clock)
    writer = path.open("ab")
    path.rename(path.with_name("app.log.1"))
    path.write_bytes(b"new\n")
    follower.advance()
    writer.write(b"late\n")
    writer.close()
    assert read(follower, clock) == [(StepKind.DATA, b"late\n"), (StepKind.BEGIN, 0), (StepKind.DATA, b"new\n")]
    follower.close()


def test_files_rotated_while_an_older_one_is_still_read(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"one\n")
    follower = follow(path, clock)
    assert follower.advance().kind is StepKind.BEGIN
    for number in range(2):
        path.rename(path.with_name(f"app.log.{number}"))
        path.write_bytes(f"new {number}\n".encode())
        clock.now += 1
        follower._look(clock.now)
    assert read(follower, clock) == [
        (StepKind.DATA, b"one\n"),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, b"new 0\n"),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, b"new 1\n"),
    ]
    follower.close()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotations", [2, 40])
@pytest.mark.parametrize("waiting", [False, True])
def test_rotations_between_two_looks(
    path: Path, clock: ManualClock, rotations: int, *, packed: bool, waiting: bool
) -> None:
    """A task that waits for Kafka does not look at its files."""
    path.write_bytes(b"first 1\n")
    follower = follow(path, clock)
    read(follower, clock)
    expected = b"first 2\n"
    with path.open("ab") as writer:
        writer.write(expected)
    for number in range(rotations):
        rotated = path.with_name(f"app.log.{number + 1:02}")
        path.rename(rotated)
        os.utime(rotated, (1000 + number, 1000 + number))
        if packed:
            rotated.with_name(f"{rotated.name}.gz").write_bytes(gzip.compress(rotated.read_bytes()))
            os.utime(rotated.with_name(f"{rotated.name}.gz"), (1000 + number, 1000 + number))
            rotated.unlink()
        path.write_bytes(b"of file %d\n" % number)
        expected += path.read_bytes()
        if waiting and not number:
            clock.advance(0.6)
            expected = expected.removeprefix(follower.advance().data)
    clock.advance(5)
    data = [step for kind, step in read(follower, clock) if kind is StepKind.DATA]
    assert b"".join(cast("list[bytes]", data)) == expected
    follower.close()


def test_truncated_to_less_than_was_read(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"one\ntwo\n")
    follower = follow(path, clock)
    read(follower, clock)
    os.truncate(path, 0)
    path.write_bytes(b"x\n")
    assert read(follower, clock) == [(StepKind.BEGIN, 0), (StepKind.DATA, b"x\n")]
    follower.close()


def test_truncated_and_grown_past_the_old_position(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"one\ntwo\n")
    follower = follow(path, clock)
    read(follower, clock)
    with path.open("r+b") as file:
        file.truncate()
        file.write(b"another beginning\n")
    assert read(follower, clock) == [(StepKind.BEGIN, 0), (StepKind.DATA, b"another beginning\n")]
    follower.close()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("after", [b"x\n", b"another beginning that is longer than what was read\n"])
def test_what_was_not_read_before_a_truncation_is_in_the_copy(
    path: Path, clock: ManualClock, after: bytes, compressed: bool
) -> None:
    path.write_bytes(b"one\ntwo\nthr")
    follower = follow(path, clock)
    assert read(follower, clock) == [(StepKind.BEGIN, 0), (StepKind.DATA, b"one\ntwo\nthr")]
    whole = b"one\ntwo\nthree\nfour\n"
    if compressed:
        path.with_name("app.log.1.gz").write_bytes(gzip.compress(whole))
    else:
        path.with_name("app.log.1").write_bytes(whole)
    path.write_bytes(after)  # the same file, truncated
    assert read(follower, clock) == [(StepKind.DATA, b"ee\nfour\n"), (StepKind.BEGIN, 0), (StepKind.DATA, after)]
    with path.open("ab") as file:
        file.write(b"more\n")
    assert read(follower, clock) == [(StepKind.DATA, b"more\n")]
    follower.close()


def test_two_truncations_in_a_row(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"one\n")
    follower = follow(path, clock)
    read(follower, clock)
    for number, text in ((2, b"one\ntwo\n"), (1, b"three\n")):
        copy = path.with_name(f"app.log.{number}")
        copy.write_bytes(text)
        os.utime(copy, (100 - number, 100 - number))
    path.write_bytes(b"4\n")
    steps = read(follower, clock)
    assert steps == [
        (StepKind.DATA, b"two\n"),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, b"three\n"),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, b"4\n"),
    ]
    follower.close()


def test_a_truncation_while_nobody_reads_is_found_before_the_next_block(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"one\n")
    follower = follow(path, clock)
    while follower.advance().kind is not StepKind.DATA:
        pass
    path.with_name("app.log.1").write_bytes(b"one\ntwo\n")
    path.write_bytes(b"another beginning\n")
    clock.now += 1.0
    steps = read(follower, clock)
    assert steps == [(StepKind.DATA, b"two\n"), (StepKind.BEGIN, 0), (StepKind.DATA, b"another beginning\n")]
    follower.close()


@pytest.mark.parametrize("copied", [False, True])
def test_a_truncation_between_two_blocks_is_found_in_the_second(path: Path, clock: ManualClock, copied: bool) -> None:
    path.write_bytes(b"one\n")
    follower = follow(path, clock)
    while follower.advance().kind is not StepKind.DATA:
        pass
    if copied:
        path.with_name("app.log.1").write_bytes(b"one\ntwo\n")
    path.write_bytes(b"another beginning\n")
    steps = read(follower, clock)
    assert steps == [
        *[(StepKind.DATA, b"two\n")] * copied,
        (StepKind.BEGIN, 0),
        (StepKind.DATA, b"another beginning\n"),
    ]
    follower.close()


def test_a_truncation_behind_a_read_does_not_change_what_the_file_is_known_by(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"one\n")
    follower = follow(path, clock)
    read(follower, clock)
    with path.open("ab") as file:
        file.write(b"two\n")
    compare = Follower._begins_alike

    def truncate_behind(follower: Follower) -> bool:
        alike = compare(follower)
        monkeypatch.undo()
        path.write_bytes(b"another beginning\n")
        return alike

    clock.now -= 1.0  # no look before the read
    follower._next_look = clock.now + 1.0
    monkeypatch.setattr(Follower, "_begins_alike", truncate_behind)
    assert read(follower, clock) == [
        (StepKind.DATA, b"two\n"),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, b"another beginning\n"),
    ]
    follower.close()


def test_a_truncation_of_a_file_that_waits_for_its_turn(path: Path, clock: ManualClock) -> None:
    """While the rest of a copy is read, the file itself is copied and truncated once more."""
    path.write_bytes(b"one\n")
    follower = follow(path, clock)
    read(follower, clock)
    path.with_name("app.log.1").write_bytes(b"one\ntwo\n")
    path.write_bytes(b"three\n")
    clock.now += 1.0
    assert [follower.advance().kind for _ in range(2)] == [StepKind.BUSY, StepKind.DATA]
    path.with_name("app.log.1").rename(path.with_name("app.log.2"))
    path.with_name("app.log.1").write_bytes(b"three\nfour\n")
    path.write_bytes(b"5\n")
    assert read(follower, clock) == [
        (StepKind.BEGIN, 0),
        (StepKind.DATA, b"three\nfour\n"),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, b"5\n"),
    ]
    follower.close()


def test_a_truncation_before_a_byte_was_read(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"one\n")
    follower = follow(path, clock)
    assert follower.advance().kind is StepKind.BEGIN
    path.with_name("app.log.1").write_bytes(b"one\ntwo\n")
    path.write_bytes(b"3\n")
    assert read(follower, clock) == [
        (StepKind.DATA, b"one\ntwo\n"),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, b"3\n"),
    ]
    follower.close()


@pytest.mark.parametrize("search", [False, True])
def test_a_truncation_without_a_copy_that_has_more(path: Path, clock: ManualClock, search: bool) -> None:
    path.write_bytes(b"one\ntwo\n")
    follower = follow(path, clock, search=search)
    read(follower, clock)
    path.with_name("app.log.1").write_bytes(b"one\ntwo\n" if search else b"one\ntwo\nthree\n")
    path.write_bytes(b"x\n")
    assert read(follower, clock) == [(StepKind.BEGIN, 0), (StepKind.DATA, b"x\n")]
    follower.close()


def test_a_file_moved_away_and_back_goes_on(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"one\n")
    follower = follow(path, clock)
    read(follower, clock)
    path.rename(path.with_name("away"))
    assert read(follower, clock) == [(StepKind.GONE, b"")]
    path.with_name("away").rename(path)
    with path.open("ab") as file:
        file.write(b"two\n")
    assert read(follower, clock) == [(StepKind.DATA, b"two\n")]
    follower.close()


def test_gzip_of_several_members_and_from_a_position(path: Path, clock: ManualClock) -> None:
    text = b"".join(b"line %d\n" % number for number in range(200_000))
    path.write_bytes(gzip.compress(text[:500_000]) + gzip.compress(text[500_000:]))
    follower = follow(path, clock)
    steps = read(follower, clock)
    assert b"".join(data for kind, data in steps if kind is StepKind.DATA and isinstance(data, bytes)) == text
    follower.close()
    follower = follow(path, clock, 1_000_007)
    steps = read(follower, clock)
    assert steps[0] == (StepKind.BEGIN, 1_000_007)
    assert (
        b"".join(data for kind, data in steps if kind is StepKind.DATA and isinstance(data, bytes)) == text[1_000_007:]
    )
    with path.open("ab") as file:
        file.write(gzip.compress(b"appended\n"))
    assert read(follower, clock) == [(StepKind.DATA, b"appended\n")]
    follower.close()


def test_gzip_in_an_empty_file_that_was_open_already(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"")
    follower = follow(path, clock)
    read(follower, clock)
    path.write_bytes(gzip.compress(b"packed\n"))
    assert read(follower, clock) == [(StepKind.DATA, b"packed\n")]
    follower.close()


def test_damaged_gzip_is_reported_once(path: Path, clock: ManualClock) -> None:
    packed = bytearray(gzip.compress(b"".join(b"line %d\n" % number for number in range(100_000))))
    packed[len(packed) // 2] ^= 0xFF
    path.write_bytes(packed)
    follower = follow(path, clock)
    kinds = [kind for kind, _ in read(follower, clock)]
    assert kinds.count(StepKind.CORRUPT) == 1
    assert kinds[-1] is StepKind.CORRUPT
    follower.close()


def test_parked_files_are_closed_and_go_on_when_they_change(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"one\n")
    follower = follow(path, clock)
    read(follower, clock)
    follower.park()
    assert not follower.is_open
    assert follower.advance().kind is StepKind.IDLE
    assert not follower.is_open
    with path.open("ab") as file:
        file.write(b"two\n")
    assert read(follower, clock) == [(StepKind.DATA, b"two\n")]
    follower.park()
    path.unlink()
    assert follower.advance().kind is StepKind.GONE
    follower.close()


def test_a_parked_file_that_is_written_with_the_same_size_is_read(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"one\n")
    os.utime(path, (1000, 1000))
    follower = follow(path, clock, search=False)
    read(follower, clock)
    follower.park()
    assert follower.advance().kind is StepKind.IDLE
    path.write_bytes(b"two\n")
    assert read(follower, clock) == [(StepKind.BEGIN, 0), (StepKind.DATA, b"two\n")]
    follower.close()


def test_what_is_no_file_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(Fatal, match="not a regular file"):
        follow(tmp_path, clock).advance()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Fatal, match="not a regular file"):
        follow(tmp_path / "pipe", clock).advance()


def test_no_descriptor_is_left_open(path: Path, clock: ManualClock) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        test_rename_and_a_new_file(path, clock)
        path.unlink()
    assert set(Path("/proc/self/fd").iterdir()) == before


OLD = b"".join(b"old line %d\n" % number for number in range(300))
NEW = b"".join(b"new line %d\n" % number for number in range(300))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("position", [11, 990, HEAD, 2_200])
def test_rotation_while_nothing_runs(path: Path, clock: ManualClock, position: int, *, packed: bool) -> None:
    fingerprint = fingerprint_head(OLD[:HEAD], position)
    older, newer = path.with_name("app.log.2"), path.with_name("app.log.1.gz" if packed else "app.log.1")
    older.write_bytes(OLD)
    between = b"between\n"
    newer.write_bytes(gzip.compress(between) if packed else between)
    os.utime(older, (1000, 1000))
    os.utime(newer, (2000, 2000))
    path.write_bytes(NEW)
    follower = follow(path, clock, position, fingerprint)
    assert read(follower, clock) == [
        (StepKind.BEGIN, position),
        (StepKind.DATA, OLD[position:]),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, between),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, NEW),
    ]
    follower.close()


@pytest.mark.parametrize("hard", [False, True])
def test_a_name_that_is_a_link_to_the_newest_file(path: Path, clock: ManualClock, *, hard: bool) -> None:
    """Such as the name that rotatelogs keeps: the newest file is read once, though it has a name of rotated ones as well."""
    older, newest = path.with_name("app.log.0001"), path.with_name("app.log.0002")
    older.write_bytes(OLD)
    newest.write_bytes(NEW)
    if hard:
        path.hardlink_to(newest)
    else:
        path.symlink_to(newest.name)
    follower = follow(path, clock, 990, fingerprint_head(OLD[:HEAD], 990))
    assert read(follower, clock) == [
        (StepKind.BEGIN, 990),
        (StepKind.DATA, OLD[990:]),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, NEW),
    ]
    follower.close()


@pytest.mark.parametrize("pattern", [None, "0.log*"])
def test_files_are_rotated_next_to_the_target_of_a_link(
    tmp_path: Path, clock: ManualClock, pattern: str | None
) -> None:
    """As Kubernetes does it: its links to logs are in one folder, the logs and rotated ones in folders of their pods."""
    path, target = tmp_path / "containers" / "app.log", tmp_path / "pods" / "app" / "0.log"
    path.parent.mkdir()
    target.parent.mkdir(parents=True)
    (tmp_path / "current").symlink_to("pods/app")
    path.symlink_to("../current/0.log")
    packed, renamed = target.with_name("0.log.20261130-100000.gz"), target.with_name("0.log.20261130-110000")
    packed.write_bytes(gzip.compress(OLD))
    renamed.write_bytes(b"between\n")
    os.utime(packed, (1000, 1000))
    os.utime(renamed, (2000, 2000))
    target.write_bytes(NEW)
    follower = Follower(
        str(path), compression="auto", position=990, saved_fingerprint=fingerprint_head(OLD[:HEAD], 990),
        rotated_pattern=pattern, wait=1.0, clock=clock,
    )  # fmt: skip
    assert read(follower, clock) == [
        (StepKind.BEGIN, 990),
        (StepKind.DATA, OLD[990:]),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, b"between\n"),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, NEW),
    ]
    follower.close()


def test_the_same_file_goes_on_where_it_was(path: Path) -> None:
    path.write_bytes(OLD)
    for position in (0, 5, HEAD, len(OLD)):
        located = locate_position(str(path), position, fingerprint_head(OLD[:HEAD], position), "auto", None)
        assert located is not None
        assert (located.paths, located.position, located.note) == ([str(path)], position, "")


def test_another_file_of_the_name_is_read_from_its_beginning(path: Path) -> None:
    path.write_bytes(NEW)
    located = locate_position(str(path), 2_000, fingerprint_head(OLD[:HEAD], 2_000), "auto", None)
    assert located is not None
    assert (located.paths, located.position) == ([str(path)], 0)
    assert "reading it from its beginning" in located.note


def test_without_a_fingerprint_only_the_size_tells(path: Path) -> None:
    path.write_bytes(NEW)
    located = locate_position(str(path), 10, None, "auto", "")
    assert located is not None
    assert located.position == 10
    located = locate_position(str(path), len(NEW) + 1, None, "auto", "")
    assert located is not None
    assert located.position == 0
    assert "shorter than the saved position" in located.note
    assert locate_position(str(path) + "x", 10, None, "auto", "") is None


def test_rotated_names_follow_the_pattern(path: Path) -> None:
    path.write_bytes(NEW)
    path.with_name("app-2026-11-20.log").write_bytes(OLD)
    fingerprint = fingerprint_head(OLD[:HEAD], 2_000)
    located = locate_position(str(path), 2_000, fingerprint, "auto", "app-*.log")
    assert located is not None
    assert located.paths == [str(path.with_name("app-2026-11-20.log")), str(path)]
    missed = locate_position(str(path), 2_000, fingerprint, "auto", None)
    assert missed is not None
    assert missed.paths == [str(path)]


def test_a_parked_file_that_went_and_came_back_is_read_from_its_beginning(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"one\n")
    follower = follow(path, clock, search=False)
    read(follower, clock)
    follower.park()
    path.rename(path.with_name("aside"))
    assert follower.advance().kind is StepKind.GONE
    follower.forget()
    path.with_name("aside").rename(path)
    assert read(follower, clock) == [(StepKind.BEGIN, 0), (StepKind.DATA, b"one\n")]
    follower.close()


@pytest.mark.parametrize("part", [0, 10, None])
@pytest.mark.parametrize("older", [False, True])
def test_a_file_that_is_just_being_compressed_is_read_once(
    path: Path, clock: ManualClock, part: int | None, *, older: bool
) -> None:
    whole, packed = path.with_name("app.log.1"), path.with_name("app.log.1.gz")
    before, between = b"before\n" * 200, OLD
    start = 990 if older else 2_200
    if older:
        path.with_name("app.log.2").write_bytes(before)
        os.utime(path.with_name("app.log.2"), (500, 500))
    whole.write_bytes(between)
    os.utime(whole, (1000, 1000))
    packed.write_bytes(gzip.compress(between)[:part])
    path.write_bytes(NEW)
    follower = follow(path, clock, start, fingerprint_head((before if older else between)[:HEAD], start))
    rest = [(StepKind.BEGIN, start), (StepKind.DATA, (before if older else between)[start:])]
    assert read(follower, clock) == [
        *rest,
        *([(StepKind.BEGIN, 0), (StepKind.DATA, between)] if older else []),
        (StepKind.BEGIN, 0),
        (StepKind.DATA, NEW),
    ]
    follower.close()


def test_a_file_that_goes_while_its_directory_is_listed_hides_no_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated, deleted = path.with_name("app.log.1"), path.with_name("app.log.2")
    for name, content in ((path, NEW), (rotated, OLD), (deleted, b"x")):
        name.write_bytes(content)

    class Entry:
        """An entry of the directory; the file of one is deleted after it was seen."""

        def __init__(self, entry_path: Path) -> None:
            self.name = entry_path.name
            self._path = entry_path

        def is_file(self) -> bool:
            seen = self._path.is_file()
            deleted.unlink(missing_ok=True)
            return seen

        def stat(self) -> os.stat_result:
            return self._path.stat()

    listed = nullcontext([Entry(name) for name in (deleted, rotated, path)])
    monkeypatch.setattr(os, "scandir", lambda _folder: listed)
    located = locate_position(str(path), 2_200, fingerprint_head(OLD[:HEAD], 2_200), "auto", None)
    assert located is not None
    assert (located.paths, located.position) == ([str(rotated), str(path)], 2_200)
