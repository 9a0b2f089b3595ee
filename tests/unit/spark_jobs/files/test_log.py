"""The log: what it accepts, what readers see, several writers at once, checkpoints and trimming; on real local files."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.errors import Fatal
from spark_jobs.history.log import (
    File,
    HistoryEntry,
    HistoryLog,
    HistoryState,
    apply_entry,
    find_known_offsets,
    is_complete,
)
from spark_jobs.history.storage import LocalStorage

if TYPE_CHECKING:
    from pathlib import Path


def file(path: str, rows: int = 1) -> File:
    return File(path, "b", "parquet", 0, rows, rows * 10)


def test_versions_follow_each_other_and_can_be_read_again(tmp_path: Path) -> None:
    log = HistoryLog(LocalStorage(tmp_path), interval=3)
    assert log.load() == HistoryState()
    for number in range(8):
        removed = (f"f{number - 1}",) if number else ()
        assert log.commit(HistoryEntry("append", number, add=(file(f"f{number}"),), remove=removed)) == number
    for version in range(8):
        assert list(HistoryLog(LocalStorage(tmp_path)).load(version).files) == [f"f{version}"]
    assert HistoryLog(LocalStorage(tmp_path)).load() == log.state()
    with pytest.raises(Fatal, match="version 8"):
        HistoryLog(LocalStorage(tmp_path)).load(8)


def test_many_writers_never_lose_or_double_a_commit(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        log = HistoryLog(LocalStorage(tmp_path), interval=5)
        for number in range(25):
            while log.commit(HistoryEntry("append", 0, add=(file(f"{writer}-{number}"),))) is None:
                pass

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = HistoryLog(LocalStorage(tmp_path)).load()
    assert (state.version, len(state.files)) == (99, 100)


def test_a_contradiction_is_refused_before_it_is_written(tmp_path: Path) -> None:
    log = HistoryLog(LocalStorage(tmp_path))
    log.commit(HistoryEntry("append", 0, add=(file("a"),)))
    with pytest.raises(Fatal, match="not in the table"):
        log.commit(HistoryEntry("roll", 1, remove=("b",)))
    assert HistoryLog(LocalStorage(tmp_path)).load().version == 0
    with pytest.raises(Fatal, match="form 2"):
        apply_entry(HistoryState(), HistoryEntry("append", 0, version=0, form=2))
    (tmp_path / "_log" / f"{1:020d}.json").write_text("{")
    with pytest.raises(Fatal, match="log entry 1 is damaged"):
        HistoryLog(LocalStorage(tmp_path)).load()


def test_trimming_keeps_what_a_checkpoint_needs(tmp_path: Path) -> None:
    log = HistoryLog(LocalStorage(tmp_path), interval=4)
    for number in range(10):
        log.commit(HistoryEntry("append", number, add=(file(f"f{number}"),)))
    for path in (tmp_path / "_log").iterdir():
        os.utime(path, (1000, 1000))
    stale = HistoryLog(LocalStorage(tmp_path))
    stale.load(2)
    stale._state = HistoryLog(LocalStorage(tmp_path)).load(2)
    assert log.trim(before=500_000) == 0, "all is younger"
    assert log.trim(before=2_000_000) > 0
    names = sorted(path.name for path in (tmp_path / "_log").iterdir())
    assert names == [f"{7:020d}.checkpoint.json", f"{8:020d}.json", f"{9:020d}.json"]
    assert len(HistoryLog(LocalStorage(tmp_path)).load().files) == 10
    assert len(HistoryLog(LocalStorage(tmp_path)).load(7).files) == 8
    assert stale.state().version == 9, "one who is behind the trimmed entries reads anew"
    with pytest.raises(Fatal, match="older than the retention"):
        HistoryLog(LocalStorage(tmp_path)).load(3)
    assert log.commit(HistoryEntry("append", 11)) == 10


ranges = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2)),
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: (min(pair), max(pair))),
    max_size=4,
)


@given(st.lists(ranges, max_size=6), ranges)
@settings(deadline=None)
def test_what_is_in_is_left_out_and_nothing_else(
    before: list[dict[tuple[str, int], tuple[int, int]]], batch: dict[tuple[str, int], tuple[int, int]]
) -> None:
    state = HistoryState()
    inside: dict[tuple[str, int], int] = {}
    for number, earlier in enumerate(before):
        by_topic: dict[str, dict[str, tuple[int, int]]] = {}
        for (topic, partition), offsets in earlier.items():
            by_topic.setdefault(topic, {})[str(partition)] = offsets
            inside[topic, partition] = max(inside.get((topic, partition), 0), offsets[1])
        apply_entry(state, HistoryEntry("append", 0, version=number, ranges=by_topic))
    known_offsets = find_known_offsets(batch, state.offsets.get("", {}))
    left = {
        (where, offset)
        for where, (first, after) in batch.items()
        for offset in range(first, after)
        if offset >= known_offsets.get(where, 0)
    }
    assert left == {
        (where, offset)
        for where, (first, after) in batch.items()
        for offset in range(first, after)
        if offset >= inside.get(where, 0)
    }
    assert is_complete(batch, known_offsets) == (not left)


def test_a_prepare_is_open_until_it_is_closed() -> None:
    state = HistoryState()
    plan = HistoryEntry("roll", 1, add=(file("new"),), remove=("old",), moves=(("_staging/x/new", "new"),))
    apply_entry(state, HistoryEntry("append", 0, version=0, add=(file("old"),)))
    apply_entry(state, HistoryEntry("prepare", 1, version=1, plan=plan))
    assert list(state.files) == ["old"]
    assert state.prepared == {"1": plan}
    apply_entry(state, HistoryEntry("roll", 2, version=2, add=plan.add, remove=plan.remove, closes=1))
    assert (list(state.files), state.prepared, state.removed) == (["new"], {}, {"old": 2})


def test_local_files(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    assert storage.read("a") is None
    assert storage.put_if_absent("d/a", b"1")
    assert not storage.put_if_absent("d/a", b"2")
    assert storage.read("d/a") == b"1"
    storage.replace("d/a", b"3")
    storage.copy("d/a", "d/b")
    assert not storage.rename("d/a", "d/b")
    assert storage.rename("d/a", "e/c")
    assert not storage.rename("d/a", "e/f")
    assert [status.name for status in storage.walk("")] == ["d/b", "e/c"]
    assert storage.directories("") == ["d", "e"]
    assert not storage.delete("d"), "not empty"
    assert storage.delete("d", recursive=True)
    assert not storage.exists("d")
