from __future__ import annotations

import random
import struct
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from connectors.cassandra.log import segment as reading
from connectors.cassandra.log.entries import PADDING
from connectors.cassandra.log.segment import Segment
from connectors.errors import Fatal
from tests.support.commitlog import COMPRESSIONS, SegmentWriter, descriptor, marker_checksum, segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connectors.cassandra.model import LogChunk

Entries = list[tuple[bytes, int]]
COUNTS = (3, 0, 1, 7, 0, 0, 2)


def _mutations(seed: int = 1, counts: tuple[int, ...] = COUNTS, longest: int = 60) -> list[list[bytes]]:
    rng = random.Random(seed)
    return [[rng.randbytes(rng.randint(10, longest)) for _ in range(count)] for count in counts]


def _written(writer: SegmentWriter) -> Entries:
    return [(entry.mutation, entry.position) for entry in writer.entries]


def _of(chunk: LogChunk) -> Entries:
    return [(chunk.data[entry.start : entry.end], entry.position) for entry in chunk.entries]


def _chunks(
    opened: Segment, limit: int | None = None, *, complete: bool = True, max_bytes: int = 1 << 20
) -> Iterator[LogChunk]:
    while (chunk := opened.read(limit, complete=complete, max_bytes=max_bytes)) is not None:
        yield chunk
        if chunk.problem:
            return


def _all(opened: Segment, limit: int | None = None, **options: Any) -> Entries:
    entries: Entries = []
    for chunk in _chunks(opened, limit, **options):
        assert not chunk.problem
        assert chunk.lost is None
        entries += _of(chunk)
    return entries


@pytest.fixture(params=COMPRESSIONS, ids=lambda name: name or "plain")
def compression(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_a_complete_segment(tmp_path: Path, compression: str, version: int) -> None:
    writer = segment(_mutations(), version=version, compression=compression, qualified=version == 8)
    with closing(Segment(writer.save(tmp_path), writer.log_id)) as opened:
        assert opened.version == 0
        [chunk] = _chunks(opened)
        assert _of(chunk) == _written(writer)
        assert (chunk.segment, chunk.version, chunk.finished) == (writer.log_id, version, True)
        assert chunk.position == opened.position == writer.end
        assert (opened.version, opened.descriptor and opened.descriptor.compression) == (version, compression)
        assert chunk.written_ms > 0
        assert opened.read(None, complete=True, max_bytes=1) is None
        opened.close()
        opened.close()


def test_the_zero_tail_of_a_plain_segment(tmp_path: Path) -> None:
    for tail in (1, 7, 8, 9, 1_000_000):
        writer = segment(_mutations())
        writer.tail(tail)
        with closing(Segment(writer.save(tmp_path), writer.log_id)) as opened:
            # The index tells the file's length after a crash.
            [chunk] = _chunks(opened, len(writer.data))
            assert (_of(chunk), chunk.finished, chunk.position) == (_written(writer), True, writer.end)


def test_what_was_not_synced_when_the_node_was_killed_is_no_damage(tmp_path: Path) -> None:
    writer = segment(_mutations())
    not_synced = bytes(8) + random.Random(1).randbytes(3000) + bytes(500)
    with closing(Segment(writer.save(tmp_path, writer.data + not_synced), writer.log_id)) as opened:
        assert _all(opened) == _written(writer)


def test_chunks_are_about_as_long_as_asked_for(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(2, (200, 0, 1, 1, 1, 300, 2, 40), 200), compression=compression)
    path = writer.save(tmp_path)
    for size in (4096, 5000, 20_000):
        with closing(Segment(path, writer.log_id)) as opened:
            entries: Entries = []
            chunks = list(_chunks(opened, max_bytes=size))
            for chunk in chunks:
                assert sum(entry.end - entry.start + 12 for entry in chunk.entries) <= size
                if not compression:
                    assert len(chunk.data) <= size + 8 * len(chunk.entries) + PADDING
                entries += _of(chunk)
            assert entries == _written(writer)
            assert len(chunks) > 2
            assert [chunk.position for chunk in chunks] == sorted({chunk.position for chunk in chunks})


def test_entries_that_are_larger_than_a_chunk(tmp_path: Path, compression: str) -> None:
    rng = random.Random(3)
    mutations = [[bytes(20), rng.randbytes(300_000), bytes(20)], [rng.randbytes(50_000)], [bytes(20)]]
    writer = segment(mutations, compression=compression)
    with closing(Segment(writer.save(tmp_path), writer.log_id)) as opened:
        assert _all(opened, max_bytes=1) == _written(writer)


def test_only_what_is_synced_is_read(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    path = writer.save(tmp_path)
    for limit in range(writer.head_size, writer.end + 2, 2):
        with closing(Segment(path, writer.log_id)) as opened:
            expected = [entry for entry in _written(writer) if entry[1] <= limit]
            assert _all(opened, limit, complete=False) == expected
            # Later more is.
            assert _all(opened, writer.end, complete=False) == _written(writer)[len(expected) :]
            assert not any(chunk.entries for chunk in _chunks(opened))


def test_it_begins_behind_any_position(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(), compression=compression)
    path = writer.save(tmp_path)
    for start in range(0, writer.end + 20, 1 if compression in {"", "LZ4Compressor"} else 3):
        with closing(Segment(path, writer.log_id, start)) as opened:
            assert opened.position == start
            [chunk] = _chunks(opened)
            assert _of(chunk) == [entry for entry in _written(writer) if entry[1] > start]
            assert (chunk.finished, chunk.position) == (True, max(start, writer.end))


def test_a_plain_segment_that_is_being_written(tmp_path: Path) -> None:
    """Each word becomes visible separately: nothing is read too early, and nothing is taken for damage."""
    writer = segment(_mutations())
    whole = writer.data + bytes(2000)
    seen = bytearray(len(whole))
    path = writer.save(tmp_path, b"")
    with closing(Segment(path, writer.log_id)) as opened:

        def read() -> Entries:
            return _all(opened, complete=False)

        for cut in range(1, writer.head_size):
            path.write_bytes(whole[:cut])
            assert read() == []
        seen[: writer.head_size] = whole[: writer.head_size]
        path.write_bytes(bytes(len(whole)))
        assert read() == []
        handle = path.open("r+b", buffering=0)
        handle.write(seen)
        assert read() == []
        entries = _written(writer)
        for at, after in writer.sections:
            expected = [entry for entry in entries if at < entry[1] <= after]
            for start, end in ((at + 8, after), (at + 2, at + 4), (at, at + 2)):
                handle.seek(start)
                handle.write(whole[start:end])
                assert read() == []
            handle.seek(at + 4)
            handle.write(whole[at + 4 : at + 8])
            assert read() == expected
            assert opened.position == after
        handle.close()
        [chunk] = _chunks(opened)
        assert (chunk.finished, chunk.entries) == (True, [])


def test_a_compressed_segment_that_grows(tmp_path: Path) -> None:
    writer = segment(_mutations(), compression="LZ4Compressor")
    path = writer.save(tmp_path, b"")
    with closing(Segment(path, writer.log_id)) as opened:
        entries: Entries = []
        for cut in range(writer.head_size - 1, len(writer.data) + 1):
            path.write_bytes(writer.data[:cut])
            entries += _all(opened, complete=False)
            whole = sum(after <= cut for _, after in writer.sections)
            assert entries == [(entry.mutation, entry.position) for entry in writer.entries if entry.section < whole]
        assert entries == _written(writer)


def test_markers_are_read_as_soon_as_they_are_there_though_the_index_is_behind(tmp_path: Path) -> None:
    writer = segment(_mutations())
    with closing(Segment(writer.save(tmp_path), writer.log_id)) as opened:
        assert _all(opened, writer.sections[0][1], complete=False) == _written(writer)[:3]
        assert _all(opened, None, complete=False) == _written(writer)[3:]


def test_a_marker_whose_checksum_was_not_written_when_the_node_went_down(tmp_path: Path) -> None:
    writer = segment(_mutations())
    at, _ = writer.sections[-1]
    data = writer.data[: at + 4] + bytes(4) + writer.data[at + 8 :] + bytes(100)
    with closing(Segment(writer.save(tmp_path, data), writer.log_id)) as opened:
        assert _all(opened, complete=False) == _written(writer)[:-2]
        assert _all(opened) == _written(writer)[-2:]


def test_what_looks_damaged_but_is_not_synced_may_still_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = segment(_mutations())
    at, _ = writer.sections[3]
    zeroed = writer.data[: at + 40] + bytes(20) + writer.data[at + 60 :]
    path = writer.save(tmp_path, zeroed)
    monkeypatch.setattr(reading, "GRACE_S", 1e9)
    with closing(Segment(path, writer.log_id)) as opened:
        entries = _all(opened, complete=False)
        assert opened.read(None, complete=False, max_bytes=1) is None
        path.write_bytes(writer.data)
        assert entries + _all(opened, complete=False) == _written(writer)
    # A reader does not wait for a synced or complete part, and not forever for the rest.
    for limit, complete, grace in ((writer.end, False, 1e9), (None, True, 1e9), (None, False, 0.0)):
        path.write_bytes(zeroed)
        monkeypatch.setattr(reading, "GRACE_S", grace)
        with closing(Segment(path, writer.log_id)) as opened:
            prefix: Entries = []
            for _ in range(3):
                for chunk in _chunks(opened, limit, complete=complete):
                    prefix += _of(chunk)
            assert prefix == entries
            assert chunk.problem


def test_refusals_name_the_segment(tmp_path: Path) -> None:
    for writer, text in (
        (SegmentWriter(version=6), "version 6"),
        (SegmentWriter(parameters={"encCipher": "AES"}), "transparent_data_encryption_options"),
        (SegmentWriter(parameters={"compressionClass": "a.b.OwnCompressor"}), "OwnCompressor"),
    ):
        with pytest.raises(Fatal, match=rf"{writer.name}.*{text}"):
            Segment(writer.save(tmp_path), writer.log_id).read(None, complete=False, max_bytes=1)


def test_a_complete_segment_without_a_head(tmp_path: Path) -> None:
    for data in (b"", bytes(1000)):
        path = tmp_path / "CommitLog-7-5.log"
        path.write_bytes(data)
        with closing(Segment(path, 5)) as opened:
            assert opened.read(None, complete=False, max_bytes=1) is None
            [chunk] = _chunks(opened)
            assert (
                chunk.problem
                == f"CommitLog-7-5.log, offset 0: the segment's head is missing (the file has {len(data)} bytes)"
            )
            assert opened.skip() == (0, len(data))
            [chunk] = _chunks(opened)
            assert (chunk.finished, chunk.problem) == (True, "")


def test_a_segment_that_is_deleted_stays_readable(tmp_path: Path) -> None:
    writer = segment(_mutations())
    path = writer.save(tmp_path)
    with closing(Segment(path, writer.log_id)) as opened:
        path.unlink()
        assert _all(opened) == _written(writer)


def test_many_small_sections_share_chunks(tmp_path: Path, compression: str) -> None:
    writer = segment(_mutations(5, (1,) * 300), compression=compression)
    with closing(Segment(writer.save(tmp_path), writer.log_id)) as opened:
        chunks = list(_chunks(opened))
    assert len(chunks) == 1
    assert _of(chunks[0]) == _written(writer)


def test_a_segment_id_of_64_bits(tmp_path: Path) -> None:
    writer = segment(_mutations(), log_id=(1 << 40) + 5)
    with closing(Segment(writer.save(tmp_path), writer.log_id)) as opened:
        assert _all(opened) == _written(writer)


def test_a_large_offset_in_a_marker_is_no_reason_to_take_memory(tmp_path: Path) -> None:
    log_id = 77
    head = descriptor(7, log_id, b"{}")
    path = tmp_path / "CommitLog-7-77.log"
    path.write_bytes(head + struct.pack(">II", 0xFFFFFFF0, marker_checksum(log_id, len(head))) + bytes(100))
    with closing(Segment(path, log_id)) as opened:
        [chunk] = _chunks(opened)
    assert "the sync marker names 4294967280" in chunk.problem
