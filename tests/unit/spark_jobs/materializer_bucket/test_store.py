"""The cache: an ordered map that survives, with changes above it; against a dictionary."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.materializer.state import store
from spark_jobs.materializer.state.store import LINK, BucketCache, Meta, Moved, Overlay, after_prefix

if TYPE_CHECKING:
    from pathlib import Path

#: Short keys, keys at the limit and keys over two and three levels, with common beginnings.
KEYS = st.builds(
    lambda head, length, tail: (head * length + tail) or b"k",
    st.sampled_from([b"a", b"b", b"\xff"]),
    st.sampled_from([0, 1, 2, LINK - 1, LINK, LINK + 1, 2 * LINK, 2 * LINK + 3]),
    st.binary(max_size=2),
)
VALUES = st.builds(
    lambda due, rest: due.to_bytes(8, "big", signed=True) + rest,
    st.sampled_from([0, 0, 1, 5, 9]),
    st.binary(max_size=3),
)
CHANGES = st.dictionaries(KEYS, st.none() | VALUES, max_size=12)


def opened(folder: Path, **more: Any) -> BucketCache:
    return BucketCache(folder, more.get("job", "j"), more.get("bucket", 0), more.get("topic", "id"))


def overlay(cache: BucketCache, *, changes: int = 1 << 30, size: int = 1 << 40) -> Overlay:
    return Overlay(cache, cache.meta(), max_changes=changes, max_bytes=size)


def write(cache: BucketCache, changes: dict[bytes, bytes | None]) -> None:
    meta = cache.meta()
    cache.write(changes, meta, msgspec.structs.replace(meta, position=meta.position + 1))


@settings(deadline=None, max_examples=60)
@given(written=st.lists(CHANGES, min_size=1, max_size=3), above=CHANGES, prefix=KEYS, start=KEYS, end=st.none() | KEYS)
def test_like_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[dict[bytes, bytes | None]],
    above: dict[bytes, bytes | None],
    prefix: bytes,
    start: bytes,
    end: bytes | None,
) -> None:
    """Whatever was written, put above and asked: what a dictionary says."""
    cache = opened(tmp_path_factory.mktemp("cache"))
    model: dict[bytes, bytes | None] = {}
    for changes in written:
        write(cache, changes)
        model |= changes
    rows = overlay(cache)
    for key, value in above.items():
        rows.put(key, value)
    model |= above
    expected = {key: value for key, value in sorted(model.items()) if value is not None}
    assert list(rows.scan(b"")) == list(expected.items())
    assert all(rows.get(key) == expected.get(key) for key in (*model, prefix, start))
    assert list(rows.scan(prefix[:1], start, end)) == [
        (key, value)
        for key, value in expected.items()
        if key.startswith(prefix[:1]) and key >= start and (end is None or key < end)
    ]
    due = sorted((store.due_of(value), key) for key, value in expected.items() if 0 < store.due_of(value) <= 5)
    assert sorted(rows.due(5)) == due
    assert [time for time, _ in rows.due(5)] == [time for time, _ in due]
    rows.end()
    write(cache, above)
    with cache.reading() as txn:
        times = [store.due_of(value) for value in expected.values()]
        assert cache.next_due(txn) == min(filter(None, times), default=None)
        assert list(cache.scan(txn, b"", None)) == list(expected.items())
    cache.close()


def test_scans_go_on_while_rows_change(tmp_path: Path) -> None:
    """A scan skips no key when the scanned rows are put, deleted, and others are put before and after."""
    cache = opened(tmp_path)
    blank = bytes(8)
    write(cache, {b"k%03d" % number: blank for number in range(0, 200, 2)})
    rows = overlay(cache)
    for number in range(1, 200, 20):
        rows.put(b"k%03d" % number, blank)
    seen = []
    for key, _ in rows.scan(b"k"):
        seen.append(key)
        rows.put(key, None if len(seen) % 2 else blank + b"new")
        rows.put(b"a" + key, blank)
        rows.put(b"z" + key, blank)
        assert list(rows.scan(b"k", key, key + b"\0")) == ([] if len(seen) % 2 else [(key, blank + b"new")])
    assert seen == sorted([b"k%03d" % number for number in (*range(0, 200, 2), *range(1, 200, 20))])
    rows.end()
    cache.close()


def test_full(tmp_path: Path) -> None:
    """A transaction is full by rows or by bytes."""
    cache = opened(tmp_path)
    rows = overlay(cache, changes=2)
    rows.put(b"a", bytes(8))
    rows.put(b"a", bytes(8))
    fills = [rows.full]
    rows.put(b"b", None)
    assert [*fills, rows.full] == [False, True]
    rows.end()
    rows = overlay(cache, size=100)
    rows.put(b"a", bytes(99))
    assert rows.full
    rows.end()
    cache.close()


def test_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the map holds makes the map grow."""
    monkeypatch.setattr(store, "MAP_BYTES", 1 << 20)
    cache = opened(tmp_path)
    value = bytes(8) + os.urandom(1000)
    write(cache, {b"%06d" % number: value for number in range(5000)})
    assert cache.size()[0] == 5000
    assert cache.size()[1] > 5_000_000
    cache.close()
    cache = opened(tmp_path)
    with cache.reading() as txn:
        assert cache.get(txn, b"004999") == value
    cache.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topic": "other"}, "it is of changelog topic"),
        ({"job": "other"}, "it is of job"),
        ({"bucket": 3}, "it is of bucket"),
    ],
)
def test_a_foreign_cache_is_thrown_away(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    """A cache of another job, bucket or changelog is not used."""
    cache = opened(tmp_path)
    write(cache, {b"a": bytes(8)})
    cache.close()
    cache = opened(tmp_path, **change)
    assert reason in cache.discarded
    assert cache.meta().position == 0
    assert cache.size()[0] == 0
    cache.close()


def test_a_cache_of_another_boot_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fsync a machine that went down may have left anything."""
    cache = opened(tmp_path)
    write(cache, {b"a": bytes(8)})
    cache.close()
    monkeypatch.setattr(store, "boot_id", lambda: "another")
    cache = opened(tmp_path)
    assert "earlier boot" in cache.discarded
    cache.close()


def test_a_damaged_cache_is_thrown_away(tmp_path: Path) -> None:
    """Files that are not LMDB's are removed."""
    (tmp_path / "data.mdb").write_bytes(b"\1" * 20_000)
    cache = opened(tmp_path)
    assert "damaged" in cache.discarded
    write(cache, {b"a": bytes(8)})
    cache.close()


def test_two_writers(tmp_path: Path) -> None:
    """A writer that computed from an older state writes nothing."""
    cache = opened(tmp_path)
    old = cache.meta()
    write(cache, {b"a": bytes(8) + b"new"})
    with pytest.raises(Moved):
        cache.write({b"a": bytes(8) + b"old"}, old, msgspec.structs.replace(old, position=1))
    with pytest.raises(Moved):
        Overlay(cache, old, max_changes=1, max_bytes=1)
    with cache.reading() as txn:
        assert cache.get(txn, b"a") == bytes(8) + b"new"
    cache.close()


def test_after_prefix() -> None:
    """The first key above all with a prefix."""
    assert after_prefix(b"a\xff\xff") == b"b"
    assert after_prefix(b"\xff") is None
    assert after_prefix(b"") is None
    assert Meta("j", 0, "t").position == 0
