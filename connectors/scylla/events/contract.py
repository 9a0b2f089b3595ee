"""The interface of an output form: a builder per table version that turns rows into records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import BadRecord, Position, SourceRecord
    from connectors.cql.debezium_names import ValueForms
    from connectors.formats.masks.masking import Masks
    from connectors.scylla.model import StreamRun, TableVersion


class ScyllaEventSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options that shape events, as plain values (names of the options in ``connectors.scylla.config.settings``)."""

    topic_prefix: str
    output_format: Literal["legacy", "advanced", "ums", "partition-update"]
    include_before: Literal["none", "full", "only-updated"]
    include_after: Literal["none", "full", "only-updated"]
    key_placement: frozenset[str]
    payload_key_name: str
    #: ``experimental.preimages.enabled`` of the legacy format.
    preimages: bool
    #: ``tombstones.on.delete``.
    tombstones: bool
    #: ``scylla.deletes.mode``: partition and range deletes are left out as the Java connector does, or become typed events.
    deletes_mode: Literal["rows", "events"]
    #: ``scylla.collections.mode``: changes of multicell columns as the Java connector gives them, or as typed deltas.
    collections_mode: Literal["values", "delta"]
    #: ``scylla.legacy.columns``: which columns the legacy format has: scalars only as in the Java connector, or all of them.
    legacy_columns: Literal["scalar", "all"]
    #: ``skipped.operations``: events with these values of ``op`` are not made (legacy and advanced).
    skipped_operations: frozenset[str]
    #: ``scylla.compat``: wrong forms of the Java connector to be kept, see TYPES.md.
    compat: frozenset[str]
    #: ``decimal.handling.mode``, ``varint.handling.mode``, ``scylla.logical.types`` (legacy and advanced).
    names: ValueForms
    #: ``mask.rules``.
    masks: Masks


class EventBuilder(Protocol):
    """Makes records of one table version. Not thread-safe; holds at most the rows of one change per stream.

    The records of one change (rows of one stream with one ``cdc$time``) come in the order of ``batch_seq_no``. A record's
    offset is ``{**run.offset, OFFSET_TIME: ..., OFFSET_SEQ: n}`` where n is the number of the row it was made from. Of several
    records that one row gives (a delete and its tombstone) only the last may say n; those before it say n - 1.
    """

    def feed(self, run: StreamRun, out: list[SourceRecord], bad: list[BadRecord]) -> None:
        """Append the records of ``run.rows``.

        A change that may have more rows in the next run of this stream (no ``cdc$end_of_batch``, and not ``run.last``) is held
        back where it has to be seen whole (images, range deletes).
        """

    def reset(self) -> None:
        """Drop the rows that are held back: they are read again."""

    def snapshot_row(
        self,
        partition: Position,
        offset: Position,
        cells: Sequence[object],
        write_time_us: int,
        out: list[SourceRecord],
        bad: list[BadRecord],
    ) -> None:
        """Append the ``op: r`` record of a row of the base table.

        Args:
            partition: source partition of the record.
            offset: its complete source offset.
            cells: values in the order of ``TableVersion.columns``, base table types.
            write_time_us: the newest write time of its cells.
            out: gets records.
            bad: gets what could not be made one.
        """


class ScyllaPromises(Protocol):
    """Makes heartbeats of tables."""

    def promise(self, version: TableVersion, time_ms: int, at: tuple[Position, Position]) -> list[SourceRecord]:
        """Say that all changes of a table written before a time were sent; [] if that was said before.

        Args:
            version: the definition in force at that time.
            time_ms: milliseconds since 1970.
            at: source partition and offset of the records.
        """
