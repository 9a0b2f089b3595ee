"""The seam inside the materializer: the merge engine (pure: bytes in, bytes out) and the bucket it works in (I/O).

A *bucket* is one partition of the input topic, or with ``materializer.buckets`` a share of the keys: one task, one store, one
transaction at a time. The engine knows nothing of
Kafka, LMDB or Spark; the bucket knows nothing of cells and schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_jobs.materializer.stages import Stages
    from spark_jobs.reports.met_heartbeats import MetHeartbeats


class OutputRecord(NamedTuple):
    """One record for the output topic.

    Attributes:
        key: the encoded primary key.
        value: the encoded event, or None for a tombstone.
        timestamp_ms: Kafka's timestamp: the source's write time, where brokers take it.
        headers: in order.
    """

    key: bytes
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


class InputRecord(NamedTuple):
    """One record of the input topic."""

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp_ms: int
    #: Partition of the input topic; used only where buckets are chosen by key.
    partition: int = 0


class LiveRow(NamedTuple):
    """One row of the materialized table.

    Attributes:
        table: ``<keyspace or database>.<table>``.
        values: by column name, the key's columns first: in the forms that the events' JSON has (None: null).
        types: Spark SQL's type of each column in the same order, as DDL text (``bigint``, ``array<string>``); the same object
            for all rows of one version of a table.
        write_time_us: the newest write time in the row, µs since 1970.
    """

    table: str
    values: dict[str, Any]
    types: tuple[str, ...]
    write_time_us: int


class StateStore(Protocol):
    """The bucket's state as the engine sees it: an ordered map, with what this transaction changed already in it.

    Keys are ordered bytewise: a partition's records share the prefix of its partition key, rows follow in clustering order.
    The first eight bytes of every value are the time (signed big-endian, seconds since 1970; 0: never) at which ``due`` must
    give the key back: the next expiry or the end of a tombstone's grace. The store reads no more of a value than that.
    """

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set it; None deletes."""

    def scan(self, prefix: bytes, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys with ``prefix`` from ``start`` (included) to ``end`` (excluded; None: the prefix's end), in order, lazily.

        What is put or deleted while scanning may or may not be seen, but never makes the scan skip another key.
        """

    def due(self, until_s: int) -> Iterator[tuple[int, bytes]]:
        """(time, key) of what is due at ``until_s`` or before, in order of time; lazily, as ``scan``."""

    @property
    def full(self) -> bool:
        """Whether this transaction has changed as much as one may; the engine then returns False soon."""


class Engine(Protocol):
    """Merges updates into the store and says what comes of it. One per bucket and pass; not shared between threads."""

    def apply(self, record: InputRecord, store: StateStore, emit: list[OutputRecord]) -> bool:
        """Fold one record in and append its events to ``emit``.

        Returns:
            True when it is done. False: the store was full in the middle of a fan-out; the bucket commits what there is,
            *without* moving the position over this record, and calls again. Merging is idempotent, so rows that were done give
            no event again.

        Raises:
            connectors.errors.Skippable: the record can't be decoded (dead letter or stop, by option); it changes nothing. What
                is in ``emit`` then was due before the record, and counts.
            connectors.errors.Fatal: nothing can continue (a counter table, a registry that refuses).
            connectors.errors.Retriable: the registry is unavailable.
        """

    def route(self, record: InputRecord) -> list[bytes]:
        """The partition prefixes (``keys.partition_prefix``) of the rows that ``record`` changes; needs no store.

        Raises: as ``apply``.
        """

    def limit_to(self, bucket: int, buckets: int) -> None:
        """Apply from now on only the changes of rows that belong to ``bucket`` of ``buckets`` (``keys.bucket_of``)."""

    def expire(self, store: StateStore, emit: list[OutputRecord], now_s: int) -> bool:
        """Do what is due at ``now_s``: TTLs that ran out (events), tombstones whose grace is over (forgotten).

        Returns:
            True when nothing more is due; False: the store was full, call again after a commit.
        """

    def replay(self, store: StateStore, emit: list[OutputRecord], start: bytes = b"") -> bytes | None:
        """Append the event of a first sight (CREATE; Debezium's op r) of every live row of the state, in key order.

        For the rebuild of a lost output topic (``rebuild``): nothing in the store changes, ``sequence`` continues to count.

        Args:
            store: the state.
            emit: takes the events.
            start: the state key to begin at.

        Returns:
            The state key to continue from, after about a thousand events (the bucket commits them and calls again);
            None: that was all.
        """

    def rows(self, store: StateStore, start: bytes = b"") -> Iterator[LiveRow]:
        """Every live row of the state as it is now, in key order, lazily: the state as a table (``state_frame``)."""

    @property
    def stages(self) -> Stages:
        """Samples of how long changes took; the bucket takes them at the end of a pass."""

    @property
    def heartbeats(self) -> MetHeartbeats:
        """The heartbeats that are messages (UMS), without their topic; taken as ``stages``."""

    @property
    def sequence(self) -> int:
        """The last ``ums_id_`` given out; the bucket keeps it in its marker, and gives it to the next engine."""
