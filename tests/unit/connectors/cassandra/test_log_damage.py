"""Cuts and damage at every place of a segment: an exact prefix, a loud problem, and a way past it."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import pytest

from connectors.cassandra.log import segment as reading
from connectors.cassandra.log.sections import OpenSegment, find_marker
from connectors.cassandra.log.segment import Segment
from tests.support.commitlog import COMPRESSIONS, SegmentWriter, flipped, segment

if TYPE_CHECKING:
    from pathlib import Path

Entries = list[tuple[bytes, int]]
PACKED = COMPRESSIONS[1:]


class Read(NamedTuple):
    """The result of reading to the end: entries, problems, lost ranges, and the number of entries before the first problem."""

    entries: Entries
    problems: list[str]
    lost: list[tuple[int, int]]
    before: int


def _mutations() -> list[list[bytes]]:
    rng = random.Random(1)
    return [[rng.randbytes(rng.randint(10, 16)) for _ in range(count)] for count in (2, 1, 3, 0, 2)]


def _read(path: Path, log_id: int, start: int = 0) -> Read:
    with closing(Segment(path, log_id, start)) as opened:
        result = Read([], [], [], 0)
        for _ in range(100):
            stretch = opened.read(None, complete=True, max_bytes=1 << 20)
            assert stretch is not None
            result.entries.extend((stretch.data[each.start : each.end], each.position) for each in stretch.entries)
            assert stretch.position == opened.position
            if stretch.finished:
                opened.close()
                return result
            if stretch.problem:
                if not result.problems:
                    result = result._replace(before=len(result.entries))
                again = opened.read(None, complete=True, max_bytes=1 << 20)
                assert again is not None
                assert (again.problem, again.entries, again.position) == (stretch.problem, [], stretch.position)
                result.problems.append(stretch.problem)
                lost = opened.skip()
                assert lost[0] == stretch.position <= lost[1]
                result.lost.append(lost)
        raise AssertionError("it does not come to an end")


def _written(writer: SegmentWriter) -> Entries:
    return [(each.mutation, each.position) for each in writer.entries]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_cut_at_every_byte(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    ends = {writer.head_size} | {after for _, after in writer.sections}
    # A plain section's entries are there as far as the file goes; a compressed section only as a whole.
    whole = [writer.sections[each.section][1] if compression else each.position for each in writer.entries]
    for cut in range(0, len(writer.data), 1 if compression in {"", "LZ4Compressor"} else 3):
        path = writer.save(tmp_path, writer.data[:cut])
        found = _read(path, writer.log_id)
        assert found.entries == [each for each, end in zip(_written(writer), whole, strict=True) if end <= cut]
        # A marker begins with zero bytes: a cut behind them looks as one before them.
        if cut not in ends and any(writer.data[max(end for end in ends | {0} if end <= cut) : cut]):
            assert found.problems
            assert found.before == len(found.entries)
            assert found.problems[0].startswith(f"{writer.name}, offset ")
        else:
            assert not found.problems or cut < writer.head_size


def test_every_damaged_byte_of_a_plain_segment(tmp_path: Path) -> None:
    writer = segment(_mutations())
    written = _written(writer)
    for at in range(writer.head_size, len(writer.data)):
        found = _read(writer.save(tmp_path, flipped(writer.data, at, 0xFF if at % 2 else 1) + bytes(40)), writer.log_id)
        # No checksum covers where a section ends: one that is too far away need do no harm.
        end_of_section = any(marker <= at < marker + 4 for marker, _ in writer.sections)
        if end_of_section and not found.problems:
            assert found.entries == written
            continue
        # Loud, after a prefix.
        assert found.problems
        assert found.entries[: found.before] == written[: found.before]
        hit = next((each for each in writer.entries if each.start <= at < each.position), None)
        in_section = [
            each for each in writer.entries if hit and each.section == hit.section and each.position >= hit.position
        ]
        missing = [each for each in writer.entries if (each.mutation, each.position) not in found.entries]
        before = written.index(hit[:2]) if hit else sum(each[1] <= at for each in written)
        assert found.before == before or (end_of_section and found.before > before)
        # Only written entries come, unchanged and in order; every loss was reported.
        assert found.entries == [each for each in written if each in found.entries]
        assert all(any(start <= each.start and each.position <= end for start, end in found.lost) for each in missing)
        if hit and at >= hit.start + 8:
            assert [(hit.start, hit.position)] == [(start, end) for start, end in found.lost]
            assert missing == [hit]
        elif hit:
            assert missing == in_section


@pytest.mark.parametrize("compression", PACKED)
def test_every_damaged_byte_of_a_compressed_segment(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    written = _written(writer)
    mutations = [each[0] for each in written]
    last = max(at for at, _ in writer.sections)
    for at in range(writer.head_size, len(writer.data), 1 if compression == "LZ4Compressor" else 3):
        found = _read(writer.save(tmp_path, flipped(writer.data, at)), writer.log_id)
        number = sum(end <= at for _, end in writer.sections)
        first = [(each.mutation, each.position) for each in writer.entries if each.section < number]
        behind = [each.mutation for each in writer.entries if each.section > number]
        assert found.entries[: len(first)] == first
        delivered = [each[0] for each in found.entries]
        assert delivered == [each for each in mutations if each in delivered]
        # Bits that a decompressor ignores are the only damage that does no harm.
        assert found.problems or delivered == mutations
        if at < last and found.problems and found.lost[-1][1] < len(writer.data):
            assert behind == delivered[len(delivered) - len(behind) :]
        positions = [each[1] for each in found.entries]
        assert positions == sorted(set(positions))


@pytest.mark.parametrize("compression", ["", "LZ4Compressor", "DeflateCompressor"])
def test_after_a_restart_behind_damage_it_is_not_told_of_again(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    for at in range(writer.head_size, len(writer.data), 4):
        path = writer.save(tmp_path, flipped(writer.data, at))
        found = _read(path, writer.log_id)
        # Behind the last damage, and each entry after it.
        for start in [each[1] for each in found.lost[-1:]] + [each[1] for each in found.entries[found.before :]]:
            if not found.lost or start < found.lost[-1][1]:
                continue
            again = _read(path, writer.log_id, start)
            assert again.entries == [each for each in found.entries if each[1] > start]
            if again.entries:
                assert not again.problems


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_damaged_marker_costs_its_section_only(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    for number, (at, _) in enumerate(writer.sections[:-1]):
        for where in (at + 4, at + 7):
            found = _read(writer.save(tmp_path, flipped(writer.data, where)), writer.log_id)
            assert [each[0] for each in found.entries] == [
                each.mutation for each in writer.entries if each.section != number
            ]
            assert len(found.lost) == len(found.problems) == 1
            assert "sync marker's checksum" in found.problems[0]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_marker_that_became_zero_is_not_taken_for_the_end(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    at, _ = writer.sections[1]
    found = _read(writer.save(tmp_path, writer.data[:at] + bytes(8) + writer.data[at + 8 :]), writer.log_id)
    assert [each[0] for each in found.entries] == [each.mutation for each in writer.entries if each.section != 1]
    assert "the sync marker is zero, but" in found.problems[0]


def test_entries_that_became_zero_are_not_taken_for_the_end_of_their_section(tmp_path: Path) -> None:
    writer = segment(_mutations())
    hit = writer.entries[4]
    for end in (hit.position, writer.sections[hit.section][1]):
        data = writer.data[: hit.start] + bytes(end - hit.start) + writer.data[end:]
        found = _read(writer.save(tmp_path, data), writer.log_id)
        assert found.entries == [
            (each.mutation, each.position)
            for each in writer.entries
            if each.section != hit.section or each.position <= hit.start
        ]
        assert "bytes are zero where an entry should be" in found.problems[0]


def test_two_damaged_entries_are_lost_one_by_one(tmp_path: Path) -> None:
    writer = segment(_mutations())
    data = writer.data
    for index in (1, 2, 5):
        data = flipped(data, writer.entries[index].position - 1)
    found = _read(writer.save(tmp_path, data), writer.log_id)
    assert found.lost == [(writer.entries[index].start, writer.entries[index].position) for index in (1, 2, 5)]
    assert found.entries == [each for index, each in enumerate(_written(writer)) if index not in {1, 2, 5}]
    assert found.problems[0] == (
        f"{writer.name}, offset {writer.entries[1].start}: the checksum of an entry of "
        f"{len(writer.entries[1].mutation)} bytes is wrong"
    )


def test_damage_of_a_segment_that_is_still_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no marker behind the damage yet, nothing is given up: what follows is read once it is there."""
    monkeypatch.setattr(reading, "GRACE_S", 0.0)
    writer = segment(_mutations())
    (first, at), (_, after) = writer.sections[0], writer.sections[1]
    damaged = flipped(writer.data, at + 5)
    path = writer.save(tmp_path, damaged[:after] + bytes(len(damaged) - after))
    with closing(Segment(path, writer.log_id)) as opened:
        found: Entries = []
        while True:
            stretch = opened.read(None, complete=False, max_bytes=1 << 20)
            if stretch is not None:
                found += [(stretch.data[each.start : each.end], each.position) for each in stretch.entries]
                if stretch.problem:
                    break
        assert found == [each for each in _written(writer) if first < each[1] <= at]
        assert opened.skip() == (at, at)
        assert opened.read(None, complete=False, max_bytes=1 << 20) is None
        path.write_bytes(damaged)
        stretch = opened.read(None, complete=False, max_bytes=1 << 20)
        assert stretch is not None
        assert stretch.lost == (at, after)
        assert [(stretch.data[each.start : each.end], each.position) for each in stretch.entries] == _written(writer)[
            3:
        ]


def test_damage_up_to_the_end_of_a_segment_that_was_still_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "GRACE_S", 0.0)
    writer = segment(_mutations())
    at, _ = writer.sections[-1]
    with closing(Segment(writer.save(tmp_path, flipped(writer.data, at + 5)), writer.log_id)) as opened:
        while not ((stretch := opened.read(None, complete=False, max_bytes=1 << 20)) and stretch.problem):
            pass
        assert opened.skip() == (at, at)
        stretch = opened.read(None, complete=True, max_bytes=1 << 20)
        assert stretch is not None
        assert (stretch.lost, stretch.finished, stretch.position) == ((at, len(writer.data)), True, len(writer.data))
        assert opened.read(None, complete=True, max_bytes=1 << 20) is None


def test_markers_are_found_across_blocks(tmp_path: Path) -> None:
    rng = random.Random(4)
    writer = segment([[rng.randbytes(262_100)], [rng.randbytes(300_000)], [bytes(700_000)], [bytes(10)]])
    file = OpenSegment(writer.save(tmp_path))
    file.look()
    markers = [at for at, _ in writer.sections]
    places = [*markers, *(at + 1 for at in markers), *(max(0, at - 7) for at in markers), markers[2] - 262_144 + 3, 0]
    for start in places:
        assert find_marker(file, writer.log_id, start) == min((at for at in markers if at >= start), default=None)
    assert find_marker(file, writer.log_id + 1, 0) is None
    file.close()
