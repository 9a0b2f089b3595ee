"""A tiny engine for tests of the bucket: last write wins per key, with TTLs, and a fan-out over a prefix.

Input values are JSON: ``{"k", "t": write time, "v": value or null, "due": s since 1970}``; ``{"prefix", "t"}``
deletes all keys with a prefix. Output: the key, ``{"id", "op", "before", "after", "t"}``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from connectors.errors import Skippable
from spark_jobs.materializer.contract import LiveRow, OutputRecord
from spark_jobs.materializer.engine.keys import partition_prefix
from spark_jobs.materializer.stages import Stages
from spark_jobs.reports.met_heartbeats import MetHeartbeats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_jobs.materializer.contract import InputRecord, StateStore


class LastWrite:
    """``contract.Engine``."""

    def __init__(self, sequence: int) -> None:
        self._sequence = sequence
        self.stages = Stages()
        self.heartbeats = MetHeartbeats()

    @property
    def sequence(self) -> int:
        """The last id."""
        return self._sequence

    def _emit(self, emit: list[OutputRecord], key: bytes, op: str, before: Any, after: Any, time: int) -> None:
        self._sequence += 1
        emit.append(
            OutputRecord(
                key,
                msgspec.json.encode({"id": self._sequence, "op": op, "before": before, "after": after, "t": time}),
                time,
            )
        )

    def route(self, record: InputRecord) -> list[bytes]:
        """See the contract; the key of a change is its partition key."""
        return [partition_prefix(_decode(record)["k"].encode())]

    def limit_to(self, bucket: int, buckets: int) -> None:
        """See the contract: each record has one row, so a bucket gets no others."""

    def apply(self, record: InputRecord, store: StateStore, emit: list[OutputRecord]) -> bool:
        """See the contract."""
        change = _decode(record)
        if "prefix" in change:
            for key, blob in store.scan(change["prefix"].encode()):
                if store.full:
                    return False
                self._put(store, emit, key, blob, None, change["t"], 0)
            return True
        key = change["k"].encode()
        self._put(store, emit, key, store.get(key), change["v"], change["t"], change.get("due", 0))
        return True

    def _put(
        self,
        store: StateStore,
        emit: list[OutputRecord],
        key: bytes,
        blob: bytes | None,
        value: Any,
        time: int,
        due: int,
    ) -> None:
        old = None if blob is None else msgspec.json.decode(blob[8:])
        if old is not None and old["t"] >= time:
            return
        store.put(key, due.to_bytes(8, "big", signed=True) + msgspec.json.encode({"t": time, "v": value}))
        before = None if old is None else old["v"]
        if before != value:
            op = "c" if before is None else "d" if value is None else "u"
            self._emit(emit, key, op, before, value, time)

    def expire(self, store: StateStore, emit: list[OutputRecord], now_s: int) -> bool:
        """See the contract."""
        for _, key in store.due(now_s):
            if store.full:
                return False
            blob = store.get(key)
            assert blob is not None
            old = msgspec.json.decode(blob[8:])
            store.put(key, None)
            if old["v"] is not None:
                self._emit(emit, key, "d", old["v"], None, old["t"])
        return True

    def replay(self, store: StateStore, emit: list[OutputRecord], start: bytes = b"") -> bytes | None:
        """See the contract."""
        for key, blob in store.scan(b"", start):
            if len(emit) >= 100:
                return key
            row = msgspec.json.decode(blob[8:])
            if row["v"] is not None:
                self._emit(emit, key, "r", None, row["v"], row["t"])
        return None

    def rows(self, store: StateStore, start: bytes = b"") -> Iterator[LiveRow]:
        """See the contract."""
        for key, blob in store.scan(b"", start):
            row = msgspec.json.decode(blob[8:])
            if row["v"] is not None:
                yield LiveRow("t", {"k": key.decode(), "v": row["v"]}, _TYPES, row["t"])


_TYPES = ("string", "bigint")


def _decode(record: InputRecord) -> dict[str, Any]:
    try:
        change: dict[str, Any] = msgspec.json.decode(record.value or b"")
    except msgspec.DecodeError as error:
        raise Skippable(f"no JSON: {error}") from error
    return change


def make(sequence: int) -> LastWrite:
    """``BucketOptions.engine``."""
    return LastWrite(sequence)
