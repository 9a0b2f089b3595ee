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
            chunk = opened.read(None, complete=True, max_bytes=1 << 20)
            assert chunk is not None
            result.entries.extend((chunk.data[entry.start : entry.end], entry.position) for entry in chunk.entries)
            assert chunk.position == opened.position
            if chunk.finished:
                opened.close()
                return result
            if chunk.problem:
                if not result.problems:
                    result = result._replace(before=len(result.entries))
                repeated = opened.read(None, complete=True, max_bytes=1 << 20)
                assert repeated is not None
                assert (repeated.problem, repeated.entries, repeated.position) == (chunk.problem, [], chunk.position)
                result.problems.append(chunk.problem)
                lost = opened.skip()
                assert lost[0] == chunk.position <= lost[1]
                result.lost.append(lost)
        raise AssertionError("it does not come to an end")


def _written(writer: SegmentWriter) -> Entries:
    return [(entry.mutation, entry.position) for entry in writer.entries]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_cut_at_every_byte(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    ends = {writer.head_size} | {after for _, after in writer.sections}
    # A plain section's entries are there as far as the file goes; a compressed section only as a whole.
    whole = [writer.sections[entry.section][1] if compression else entry.position for entry in writer.entries]
    for cut in range(0, len(writer.data), 1 if compression in {"", "LZ4Compressor"} else 3):
        path = writer.save(tmp_path, writer.data[:cut])
        outcome = _read(path, writer.log_id)
        assert outcome.entries == [entry for entry, end in zip(_written(writer), whole, strict=True) if end <= cut]
        # A marker begins with zero bytes: a cut behind them looks as one before them.
        if cut not in ends and any(writer.data[max(end for end in ends | {0} if end <= cut) : cut]):
            assert outcome.problems
            assert outcome.before == len(outcome.entries)
            assert outcome.problems[0].startswith(f"{writer.name}, offset ")
        else:
            assert not outcome.problems or cut < writer.head_size


def test_every_damaged_byte_of_a_plain_segment(tmp_path: Path) -> None:
    writer = segment(_mutations())
    written = _written(writer)
    for at in range(writer.head_size, len(writer.data)):
        outcome = _read(
            writer.save(tmp_path, flipped(writer.data, at, 0xFF if at % 2 else 1) + bytes(40)), writer.log_id
        )
        # No checksum covers where a section ends: one that is too far away need do no harm.
        end_of_section = any(marker <= at < marker + 4 for marker, _ in writer.sections)
        if end_of_section and not outcome.problems:
            assert outcome.entries == written
            continue
        # Loud, after a prefix.
        assert outcome.problems
        assert outcome.entries[: outcome.before] == written[: outcome.before]
        hit = next((entry for entry in writer.entries if entry.start <= at < entry.position), None)
        in_section = [
            entry for entry in writer.entries if hit and entry.section == hit.section and entry.position >= hit.position
        ]
        missing = [entry for entry in writer.entries if (entry.mutation, entry.position) not in outcome.entries]
        before = written.index(hit[:2]) if hit else sum(entry[1] <= at for entry in written)
        assert outcome.before == before or (end_of_section and outcome.before > before)
        # Only written entries come, unchanged and in order; every loss was reported.
        assert outcome.entries == [entry for entry in written if entry in outcome.entries]
        assert all(
            any(start <= entry.start and entry.position <= end for start, end in outcome.lost) for entry in missing
        )
        if hit and at >= hit.start + 8:
            assert [(hit.start, hit.position)] == [(start, end) for start, end in outcome.lost]
            assert missing == [hit]
        elif hit:
            assert missing == in_section


@pytest.mark.parametrize("compression", PACKED)
def test_every_damaged_byte_of_a_compressed_segment(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    written = _written(writer)
    mutations = [entry[0] for entry in written]
    last = max(at for at, _ in writer.sections)
    for at in range(writer.head_size, len(writer.data), 1 if compression == "LZ4Compressor" else 3):
        outcome = _read(writer.save(tmp_path, flipped(writer.data, at)), writer.log_id)
        number = sum(end <= at for _, end in writer.sections)
        first = [(entry.mutation, entry.position) for entry in writer.entries if entry.section < number]
        behind = [entry.mutation for entry in writer.entries if entry.section > number]
        assert outcome.entries[: len(first)] == first
        delivered = [entry[0] for entry in outcome.entries]
        assert delivered == [mutation for mutation in mutations if mutation in delivered]
        # Bits that a decompressor ignores are the only damage that does no harm.
        assert outcome.problems or delivered == mutations
        if at < last and outcome.problems and outcome.lost[-1][1] < len(writer.data):
            assert behind == delivered[len(delivered) - len(behind) :]
        positions = [entry[1] for entry in outcome.entries]
        assert positions == sorted(set(positions))


@pytest.mark.parametrize("compression", ["", "LZ4Compressor", "DeflateCompressor"])
def test_after_a_restart_behind_damage_it_is_not_reported_again(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    for at in range(writer.head_size, len(writer.data), 4):
        path = writer.save(tmp_path, flipped(writer.data, at))
        outcome = _read(path, writer.log_id)
        # Behind the last damage, and each entry after it.
        for start in [after for _, after in outcome.lost[-1:]] + [
            position for _, position in outcome.entries[outcome.before :]
        ]:
            if not outcome.lost or start < outcome.lost[-1][1]:
                continue
            restarted = _read(path, writer.log_id, start)
            assert restarted.entries == [entry for entry in outcome.entries if entry[1] > start]
            if restarted.entries:
                assert not restarted.problems


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_damaged_marker_costs_its_section_only(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    for number, (at, _) in enumerate(writer.sections[:-1]):
        for where in (at + 4, at + 7):
            outcome = _read(writer.save(tmp_path, flipped(writer.data, where)), writer.log_id)
            assert [entry[0] for entry in outcome.entries] == [
                entry.mutation for entry in writer.entries if entry.section != number
            ]
            assert len(outcome.lost) == len(outcome.problems) == 1
            assert "sync marker's checksum" in outcome.problems[0]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_marker_that_became_zero_is_not_taken_for_the_end(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    at, _ = writer.sections[1]
    outcome = _read(writer.save(tmp_path, writer.data[:at] + bytes(8) + writer.data[at + 8 :]), writer.log_id)
    assert [entry[0] for entry in outcome.entries] == [entry.mutation for entry in writer.entries if entry.section != 1]
    assert "the sync marker is zero, but" in outcome.problems[0]


def test_entries_that_became_zero_are_not_taken_for_the_end_of_their_section(tmp_path: Path) -> None:
    writer = segment(_mutations())
    hit = writer.entries[4]
    for end in (hit.position, writer.sections[hit.section][1]):
        data = writer.data[: hit.start] + bytes(end - hit.start) + writer.data[end:]
        outcome = _read(writer.save(tmp_path, data), writer.log_id)
        assert outcome.entries == [
            (entry.mutation, entry.position)
            for entry in writer.entries
            if entry.section != hit.section or entry.position <= hit.start
        ]
        assert "bytes are zero where an entry should be" in outcome.problems[0]


def test_two_damaged_entries_are_lost_one_by_one(tmp_path: Path) -> None:
    writer = segment(_mutations())
    data = writer.data
    for index in (1, 2, 5):
        data = flipped(data, writer.entries[index].position - 1)
    outcome = _read(writer.save(tmp_path, data), writer.log_id)
    assert outcome.lost == [(writer.entries[index].start, writer.entries[index].position) for index in (1, 2, 5)]
    assert outcome.entries == [entry for index, entry in enumerate(_written(writer)) if index not in {1, 2, 5}]
    assert outcome.problems[0] == (
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
        entries: Entries = []
        while True:
            chunk = opened.read(None, complete=False, max_bytes=1 << 20)
            if chunk is not None:
                entries += [(chunk.data[entry.start : entry.end], entry.position) for entry in chunk.entries]
                if chunk.problem:
                    break
        assert entries == [entry for entry in _written(writer) if first < entry[1] <= at]
        assert opened.skip() == (at, at)
        assert opened.read(None, complete=False, max_bytes=1 << 20) is None
        path.write_bytes(damaged)
        chunk = opened.read(None, complete=False, max_bytes=1 << 20)
        assert chunk is not None
        assert chunk.lost == (at, after)
        assert [(chunk.data[entry.start : entry.end], entry.position) for entry in chunk.entries] == _written(writer)[
            3:
        ]


def test_damage_up_to_the_end_of_a_segment_that_was_still_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "GRACE_S", 0.0)
    writer = segment(_mutations())
    at, _ = writer.sections[-1]
    with closing(Segment(writer.save(tmp_path, flipped(writer.data, at + 5)), writer.log_id)) as opened:
        while not ((chunk := opened.read(None, complete=False, max_bytes=1 << 20)) and chunk.problem):
            pass
        assert opened.skip() == (at, at)
        chunk = opened.read(None, complete=True, max_bytes=1 << 20)
        assert chunk is not None
        assert (chunk.lost, chunk.finished, chunk.position) == ((at, len(writer.data)), True, len(writer.data))
        assert opened.read(None, complete=True, max_bytes=1 << 20) is None


def test_markers_are_found_across_blocks(tmp_path: Path) -> None:
    rng = random.Random(4)
    writer = segment([[rng.randbytes(262_100)], [rng.randbytes(300_000)], [bytes(700_000)], [bytes(10)]])
    file = OpenSegment(writer.save(tmp_path))
    file.look()
    markers = [at for at, _ in writer.sections]
    starts = [*markers, *(at + 1 for at in markers), *(max(0, at - 7) for at in markers), markers[2] - 262_144 + 3, 0]
    for start in starts:
        assert find_marker(file, writer.log_id, start) == min((at for at in markers if at >= start), default=None)
    assert find_marker(file, writer.log_id + 1, 0) is None
    file.close()
