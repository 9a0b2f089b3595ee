"""A bucket's state in LMDB: the local cache of its changelog partition, and the changes of the transaction under way above it.

Layout of the environment (one folder per bucket):
- ``rows``: state key -> blob. Keys of ``LINK`` bytes and more don't fit LMDB; their first ``LINK`` bytes are a link, whose
  value (8 bytes) begins the keys of the rest in ``long``, and so on: a trie, so that the order of all keys stays bytewise.
- ``due``: time (8 bytes, sign bit turned, so that bytes sort as numbers) + state key -> nothing; of keys that are too long for
  that, time + digest -> key.
- ``meta``: one JSON record (``Meta``), written in the same LMDB transaction as the rows it speaks of.

The cache is never the truth: whoever opens it compares ``Meta`` with the changelog and rebuilds what is missing, damaged, old
or of another topic. LMDB runs without fsync: a process that dies loses nothing (the pages are the kernel's), a machine that
dies may leave anything, so ``Meta.boot`` names the boot that wrote it and a cache of another boot is thrown away.
"""

from __future__ import annotations

import hashlib
import shutil
from bisect import bisect_left, bisect_right, insort
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import lmdb
import msgspec

from connectors.errors import Retriable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Keys from this length on are divided (LMDB takes 511 bytes; ``long`` needs 8, ``due`` 8 of them).
LINK: Final = 480
#: The first map size and the smallest step by which a map grows, bytes.
MAP_BYTES: Final = 256 << 20
FORMAT: Final = 1

_NEVER: Final = bytes(8)
_TIME: Final = Struct(">q")
_INDEX: Final = Struct(">Q")
_SIGN: Final = 1 << 63
_META: Final = b"meta"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
#: More new keys than this are sorted into the overlay's order at once instead of one by one.
_INSERTED: Final = 64
#: What LMDB raises for files that aren't its own or are damaged.
DAMAGED: Final = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.PanicError,
    lmdb.IncompatibleError,
    lmdb.BadTxnError,
    msgspec.DecodeError,
    msgspec.ValidationError,
)


class Meta(msgspec.Struct, frozen=True):
    """The description of a cache's content.

    Attributes:
        job, bucket: whose it is.
        topic_id: the changelog topic's id in Kafka: a topic that was deleted and recreated has another one.
        position: the changelog offset up to which (excluded) everything is in ``rows``.
        marker: the last marker record below ``position``, as it is in the changelog; empty: there was none.
        checked_ms: when ``position`` was last known to be the changelog's end, ms since 1970.
        boot: the boot of the machine that wrote it; empty where that can't be known (then LMDB runs with fsync).
        format: of this layout.
    """

    job: str
    bucket: int
    topic_id: str
    position: int = 0
    marker: bytes = b""
    checked_ms: int = 0
    boot: str = ""
    format: int = FORMAT


class Moved(Exception):
    """Another process has written this cache since it was read: what was computed from it is void."""


def boot_id() -> str:
    """The machine's boot, empty where it can't be known."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def due_of(blob: bytes) -> int:
    """The time in a blob's first eight bytes, s since 1970; 0: never."""
    return int(_TIME.unpack_from(blob)[0])


def after_prefix(prefix: bytes) -> bytes | None:
    """The smallest key above all keys with ``prefix``; None if no key can be above them."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None


class BucketCache:
    """One bucket's LMDB environment. Blocks; used by one thread; other processes may have it open too."""

    def __init__(self, folder: Path, job: str, bucket: int, topic_id: str) -> None:
        """Open or create it; what is damaged, of another boot, format, job or topic is removed first.

        Raises:
            Retriable: the folder can't be written.
        """
        self.folder = folder
        self._empty = Meta(job, bucket, topic_id, boot=boot_id())
        #: Why the former contents were thrown away; empty: they were not.
        self.discarded = ""
        self._open_environment()
        try:
            cache_meta = self.meta()
        except DAMAGED as error:
            self.reset(f"it is damaged ({error})")
            return
        for name, reason_text in (
            ("format", "it has format {}, not {}"),
            ("topic_id", "it is of changelog topic {}, not {}"),
            ("job", "it is of job {}, not {}"),
            ("bucket", "it is of bucket {}, not {}"),
            ("boot", "it is of an earlier boot of this machine"),
        ):
            there, here = getattr(cache_meta, name), getattr(self._empty, name)
            if there != here:
                self.reset(reason_text.format(there, here))
                return

    def _open_environment(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                self._map_environment()
            except DAMAGED as error:
                self.discarded = f"it is damaged ({error})"
                shutil.rmtree(self.folder)
                self.folder.mkdir(parents=True)
                self._map_environment()
        except (OSError, lmdb.Error) as error:
            raise Retriable(
                f"the state cache {self.folder} can't be opened: {error}. Check state.dir (rights, "
                "space); everything in it can be removed: it is rebuilt from the changelog."
            ) from error

    def _map_environment(self) -> None:
        data = self.folder / "data.mdb"
        size = data.stat().st_size if data.exists() else 0
        self.env = lmdb.open(
            str(self.folder),
            map_size=max(MAP_BYTES, size * 2),
            max_dbs=8,
            sync=not self._empty.boot,
            metasync=not self._empty.boot,
            max_readers=512,
        )
        self.env.reader_check()
        self.rows = self.env.open_db(b"rows")
        self.long = self.env.open_db(b"long")
        self.index = self.env.open_db(b"due")
        self.about = self.env.open_db(b"meta")

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def reset(self, reason: str) -> None:
        """Throw everything away and start empty. Other processes keep the removed files, and with them their own cache."""
        self.env.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._open_environment()
        self.discarded = reason

    def meta(self) -> Meta:
        """Return the description of the cache's content; an empty cache's is at position 0."""
        with self.reading() as txn:
            return self.read_meta(txn)

    def read_meta(self, txn: lmdb.Transaction) -> Meta:
        """The cache's position as a transaction sees it."""
        raw = txn.get(_META, db=self.about)
        return self._empty if raw is None else msgspec.json.decode(raw, type=Meta)

    @contextmanager
    def reading(self) -> Iterator[lmdb.Transaction]:
        """A read transaction: one moment of the cache."""
        txn = self.begin()
        try:
            yield txn
        finally:
            txn.abort()

    def begin(self) -> lmdb.Transaction:
        """A read transaction that the caller ends; adopts a map that another process has enlarged."""
        try:
            return self.env.begin()
        except lmdb.MapResizedError:
            self.env.set_mapsize(0)
            return self.env.begin()

    def write(self, changes: Mapping[bytes, bytes | None], before: Meta, after: Meta) -> None:
        """Write ``changes`` (None deletes) and ``after`` in one LMDB transaction. No transaction of this process may be open.

        Raises:
            Moved: the cache is not as ``before`` says; nothing was written.
            Retriable: the disk is full or broken.
        """
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for key, value in changes.items():
            if value is None:
                deletes.append(key)
            else:
                puts.append((key, value))
        puts.sort()
        deletes.sort()
        while True:
            try:
                with self.env.begin(write=True) as txn:
                    if self.read_meta(txn).position != before.position:
                        raise Moved(f"{self.folder} was written by another process")
                    self._write_changes(txn, puts, deletes)
                    txn.put(_META, msgspec.json.encode(after), db=self.about)
            except lmdb.MapFullError:
                size = int(self.env.info()["map_size"])
                self.env.set_mapsize(size + max(size, MAP_BYTES))
            except lmdb.MapResizedError:
                self.env.set_mapsize(0)
            except lmdb.DiskError as error:
                raise Retriable(
                    f"the state cache {self.folder} can't be written: {error}. Check the space of state.dir."
                ) from error
            else:
                return

    def _write_changes(self, txn: lmdb.Transaction, puts: list[tuple[bytes, bytes]], deletes: list[bytes]) -> None:
        index = txn.cursor(self.index)
        if txn.stat(self.index)["entries"]:
            for key in deletes:
                self._forget_due(txn, index, key)
            for key, value in puts:
                self._forget_due(txn, index, key, value[:8])
        dues = [self._make_due_entry(due_of(value), key) for key, value in puts if value[:8] != _NEVER]
        dues.sort()
        index.putmulti(dues)
        for key in deletes:
            db, at = (self.rows, key) if len(key) < LINK else self._locate_value(txn, key)
            if at:
                txn.delete(at, db=db)
        # One call for all that are short enough, which nearly always is all.
        txn.cursor(self.rows).putmulti([pair for pair in puts if len(pair[0]) < LINK])
        for key, value in puts:
            if len(key) >= LINK:
                db, at = self._locate_value(txn, key, create=True)
                txn.put(at, value, db=db)

    def _forget_due(self, txn: lmdb.Transaction, index: lmdb.Cursor, key: bytes, new: bytes = b"") -> None:
        """Remove what ``due`` says of ``key``'s old value, unless the new one is due at the same time."""
        old = self.get(txn, key)
        if (
            old is not None
            and old[:8] != _NEVER
            and old[:8] != new
            and index.set_key(self._make_due_entry(due_of(old), key)[0])
        ):
            index.delete()

    @staticmethod
    def _make_due_entry(time: int, key: bytes) -> tuple[bytes, bytes]:
        prefix = _INDEX.pack(time + _SIGN)
        if len(key) < LINK:
            return prefix + key, b""
        return prefix + hashlib.sha256(key).digest(), key

    def _locate_value(self, txn: Any, key: bytes, *, create: bool = False) -> tuple[Any, bytes]:
        """Locate the value of a long key: the database and the key in it; an empty key if the value is not stored yet."""
        db, base, remaining_key = self.rows, b"", key
        while len(remaining_key) >= LINK:
            link = base + remaining_key[:LINK]
            target = txn.get(link, db=db)
            if target is None:
                if not create:
                    return db, b""
                last = txn.get(b"next", db=self.about) or bytes(8)
                target = _INDEX.pack(_INDEX.unpack(last)[0] + 1)
                txn.put(b"next", target, db=self.about)
                txn.put(link, target, db=db)
            db, base, remaining_key = self.long, target, remaining_key[LINK:]
        return db, base + remaining_key

    def get(self, txn: Any, key: bytes) -> bytes | None:
        """The value of any key."""
        if len(key) < LINK:
            value: bytes | None = txn.get(key, db=self.rows)
            return value
        db, at = self._locate_value(txn, key)
        return txn.get(at, db=db) if at else None

    def scan(self, txn: lmdb.Transaction, low: bytes, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Pairs from ``low`` (included) to ``high`` (excluded; None: the end) in order."""
        return self._walk_link(txn, self.rows, b"", b"", low, high)

    def _walk_link(
        self,
        txn: Any,
        db: Any,
        base: bytes,
        done: bytes,
        low: bytes,
        high: bytes | None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """``scan`` below one link: ``base`` begins its keys in ``db``, ``done`` is the part of the key that led there."""
        cursor = txn.cursor(db)
        first = low[len(done) :][:LINK] if low.startswith(done) else b""
        if not cursor.set_range(base + first):
            return
        for key, value in cursor.iternext():
            if base and not key.startswith(base):
                return
            whole = done + key[len(base) :]
            if high is not None and whole >= high:
                return
            if len(key) - len(base) == LINK:
                # Its keys are all above ``low`` unless ``low`` continues below it.
                if whole >= low or low.startswith(whole):
                    yield from self._walk_link(txn, self.long, value, whole, low, high)
            elif whole >= low:
                yield whole, value

    def due(self, txn: Any, until_s: int) -> Iterator[tuple[int, bytes]]:
        """(time, key) that are due at ``until_s`` or before, in order of time."""
        cursor = txn.cursor(self.index)
        if not cursor.first():
            return
        for entry, key in cursor.iternext():
            time = _INDEX.unpack_from(entry)[0] - _SIGN
            if time > until_s:
                return
            yield time, key or entry[8:]

    def next_due(self, txn: lmdb.Transaction) -> int | None:
        """The first time in ``due``; None: nothing will be due."""
        cursor = txn.cursor(self.index)
        return _INDEX.unpack_from(cursor.key())[0] - _SIGN if cursor.first() else None

    def size(self) -> tuple[int, int]:
        """Rows of state and bytes on disk (also free pages)."""
        with self.reading() as txn:
            info = self.env.info()
            rows = txn.stat(self.rows)["entries"] + txn.stat(self.long)["entries"]
            return int(rows), (int(info["last_pgno"]) + 1) * int(txn.stat(self.rows)["psize"])


class Overlay:
    """``contract.Store``: the cache at one moment with the changes of this transaction above it. ``end`` it after use."""

    def __init__(self, cache: BucketCache, before: Meta, *, max_changes: int, max_bytes: int) -> None:
        """Begin reading at ``before``.

        Raises:
            Moved: the cache is not as ``before`` says.
        """
        self.cache = cache
        self._txn = cache.begin()
        if cache.read_meta(self._txn).position != before.position:
            self._txn.abort()
            raise Moved(f"{cache.folder} was written by another process")
        self._get: Any = self._txn.get
        self._rows = cache.rows
        self.changes: dict[bytes, bytes | None] = {}
        self.bytes = 0
        self._max_changes = max_changes
        self._max_bytes = max_bytes
        self._sorted: list[bytes] = []
        self._fresh: list[bytes] = []

    def end(self) -> None:
        """Give the read transaction back; scans end with it."""
        self._txn.abort()

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        if key in self.changes:
            return self.changes[key]
        if len(key) < LINK:
            value: bytes | None = self._get(key, None, self._rows)
            return value
        return self.cache.get(self._txn, key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set it; None deletes."""
        changes = self.changes
        if key not in changes:
            self._fresh.append(key)
            self.bytes += len(key)
        changes[key] = value
        if value is not None:
            self.bytes += len(value)

    @property
    def full(self) -> bool:
        """Whether this transaction has changed as much as one may."""
        return len(self.changes) >= self._max_changes or self.bytes >= self._max_bytes

    def _sort_keys(self) -> list[bytes]:
        """The changed keys in order. A row of many transactions is put often and scanned seldom: sorted on demand."""
        ordered, fresh = self._sorted, self._fresh
        if len(fresh) <= _INSERTED:
            for key in fresh:
                insort(ordered, key)
        else:
            ordered.extend(fresh)
            ordered.sort()
        fresh.clear()
        return ordered

    def scan(self, prefix: bytes, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys with ``prefix`` from ``start`` (included) to ``end`` (excluded), in order, lazily; see ``contract.Store``."""
        low = max(prefix, start)
        high = after_prefix(prefix)
        if end is not None and (high is None or end < high):
            high = end
        stored = self.cache.scan(self._txn, low, high)
        ordered, changes = self._sort_keys(), self.changes
        at = bisect_left(ordered, low)
        if at == len(ordered) or (high is not None and ordered[at] >= high):
            for key, value in stored:
                # What was changed since: the change counts.
                now = changes.get(key, value)
                if now is not None:
                    yield key, now
            return
        yield from self._merge_changes(stored, low, high)

    def _merge_changes(
        self, stored: Iterator[tuple[bytes, bytes]], low: bytes, high: bytes | None
    ) -> Iterator[tuple[bytes, bytes]]:
        ordered, changes = self._sorted, self.changes
        pair = next(stored, None)
        # Positions in ``ordered`` move while the caller puts new keys and scans again: the last key is the place.
        at, count = bisect_left(ordered, low), len(ordered)
        last = b""
        while True:
            if len(ordered) != count:
                at, count = bisect_right(ordered, last) if last else bisect_left(ordered, low), len(ordered)
            changed = ordered[at] if at < count and (high is None or ordered[at] < high) else None
            if changed is not None and (pair is None or changed <= pair[0]):
                if pair is not None and pair[0] == changed:
                    pair = next(stored, None)
                last, at = changed, at + 1
                value = changes[changed]
                if value is not None:
                    yield changed, value
            elif pair is not None:
                last = pair[0]
                now = changes.get(last, pair[1])
                if now is not None:
                    yield last, now
                pair = next(stored, None)
            else:
                return

    def due(self, until_s: int) -> Iterator[tuple[int, bytes]]:
        """(time, key) of what is due at ``until_s`` or before, in order of time; see ``contract.Store``."""
        changes = self.changes
        pending = sorted(
            (due_of(value), key)
            for key, value in changes.items()
            if value is not None and value[:8] != _NEVER and due_of(value) <= until_s
        )
        at = 0
        for time, key in self.cache.due(self._txn, until_s):
            while at < len(pending) and pending[at][0] <= time:
                yield pending[at]
                at += 1
            if key not in changes:
                yield time, key
        yield from pending[at:]

    def next_due(self) -> int | None:
        """The first time at which something will be due; None: never. Exact only while nothing is changed."""
        return self.cache.next_due(self._txn)
