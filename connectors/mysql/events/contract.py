"""The interface of an output form: its settings, and a builder per structure of a table that turns rows into records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from connectors.api import Header, Position, SourceRecord
    from connectors.formats.masks.masking import Masks
    from connectors.mysql.events.transactions import Transactions
    from connectors.mysql.events.ums_signals import MySqlUmsSignals
    from connectors.mysql.model import RowSource

#: A row as the decoder gives it: by column name; None where the row (or this image of it) belongs to another shard.
Row = dict[str, Any]

Adjustment = Literal["none", "avro", "avro_unicode"]
#: ``source.snapshot``: a row's position in a snapshot. ``true`` in the middle; ``incremental`` for a snapshot on request.
Marker = Literal["first", "first_in_data_collection", "true", "last_in_data_collection", "last", "incremental"]


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How topics are named. See ``connectors.mysql.schema.topics``.

    Attributes:
        prefix: ``topic.prefix``.
        strategy: the strategy of ``topic.naming.strategy``: ``schema`` and ``default`` name a table's topic alike.
        unicode: whether the strategy is one that writes other characters as ``_u`` and their number.
        delimiter: ``topic.delimiter``.
        heartbeat_prefix: ``topic.heartbeat.prefix`` / ``heartbeat.topics.prefix``.
        transaction: ``topic.transaction``.
        versions: the topic of table versions; "": ``<prefix>.table-versions``.
        regex: ``topic.regex``, for the strategies with a regular expression; "" for others.
        replacement: ``topic.replacement``.
        key_enabled: ``topic.key.enforce.uniqueness``: whether those strategies tell the tables of one topic apart in the key.
        key_field: ``topic.key.field.name``.
        key_regex: ``topic.key.field.regex``.
        key_replacement: ``topic.key.field.replacement``.
    """

    prefix: str
    strategy: Literal["schema", "default"]
    unicode: bool
    delimiter: str
    heartbeat_prefix: str
    transaction: str
    versions: str
    regex: str
    replacement: str
    key_enabled: bool
    key_field: str
    key_regex: str
    key_replacement: str


class UmsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that only UMS messages have.

    Attributes:
        topic_per: ``table``: named as Debezium names them; ``schema``: one topic per database; ``all``: one topic.
        before: whether an update also gives the row before it (``b``).
        max_rows: rows in a message.
        max_bytes: text of a message's rows, bytes; one larger row still makes a message.
        instance: the second part of the namespace; "": the topic prefix.
    """

    topic_per: Literal["table", "schema", "all"]
    before: bool
    max_rows: int
    max_bytes: int
    instance: str


class MySqlEventSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options that shape events, as plain values.

    Attributes:
        topics: see ``TopicSettings``.
        connector: ``source.connector``: ``mysql`` or ``mariadb``.
        output_format: ``debezium`` or ``ums``.
        tombstones: ``tombstones.on.delete``.
        schema_changes: ``include.schema.changes``.
        transactions: ``provide.transaction.metadata``.
        skipped: ``skipped.operations``: of ``c u d t r``; empty for ``none``.
        skip_unchanged: ``skip.messages.without.change``.
        key_columns: ``message.key.columns``, unparsed.
        databases, not_databases, tables, not_tables, columns, not_columns: the include and exclude lists, unparsed; "" for
            none.
        builtin_tables: whether the server's own databases may be captured too (not ``table.ignore.builtin``).
        logical: ``logical.tables``, unparsed (``connectors.mysql.stream.logical``).
        signal_tables: ``database.table`` names that are captured whatever the lists say.
        masks: what hides or shortens columns (``connectors.formats.masks.masking.parse_rules``).
        source_types: ``column.propagate.source.type``, unparsed.
        source_data_types: ``datatype.propagate.source.type``, unparsed.
        schema_names: ``schema.name.adjustment.mode``.
        field_names: ``field.name.adjustment.mode``.
        comments: ``include.schema.comments``: the columns' comments are their fields' ``doc``.
        context_headers: ``extended.headers.enabled``: see ``connectors.mysql.events.headers``.
        ums: see ``UmsSettings``.
    """

    topics: TopicSettings
    connector: Literal["mysql", "mariadb"]
    output_format: Literal["debezium", "ums"]
    tombstones: bool
    schema_changes: bool
    transactions: bool
    skipped: frozenset[str]
    skip_unchanged: bool
    key_columns: str
    databases: str
    not_databases: str
    tables: str
    not_tables: str
    columns: str
    not_columns: str
    builtin_tables: bool
    logical: str
    signal_tables: tuple[str, ...]
    masks: Masks
    source_types: str
    source_data_types: str
    schema_names: Adjustment
    field_names: Adjustment
    comments: bool
    context_headers: bool
    ums: UmsSettings


class PendingRows(Protocol):
    """Rows that are not yet records, of all tables of a task: UMS puts rows of several events into one message.

    Attributes:
        rows: how many.
        bytes: of text.
        mixed: whether rows from before ``start_transaction`` and from after it were made into messages together.
    """

    rows: int
    bytes: int
    mixed: bool

    def start_transaction(self) -> None:
        """A transaction begins: ``take_back`` counts from here."""

    def take_back(self) -> None:
        """Forget the rows since ``start_transaction`` that are still held: the transaction was rolled back."""

    def flush(self, out: list[SourceRecord]) -> None:
        """Append the messages. To be called before a batch is yielded, and before a record that is not from a row.

        All messages but the last carry the offset from before the first of their rows, since the rows of several tables lie
        between one another; the last one carries the offset after the last row.
        """


@dataclass(frozen=True)
class EventContext:
    """The parts that the records of all tables of a task have in common.

    Attributes:
        settings: the options that shape events.
        partition: the source partition of records.
        transactions: counts the events of transactions, and makes records of their begins and ends; or None.
        held_rows: keeps rows that are not records yet, or None.
        headers: put on every record.
        signals: makes UMS messages without rows, or None.
    """

    settings: MySqlEventSettings
    partition: Position
    transactions: Transactions | None = None
    held_rows: PendingRows | None = None
    headers: tuple[Header, ...] = ()
    signals: MySqlUmsSignals | None = None


class MySqlTableEvents(Protocol):
    """Makes records of one structure of one table. Not thread-safe; no call blocks.

    Attributes:
        topic: where they go.
        left_out: rows of which no event was made because of ``skipped.operations`` or ``skip.messages.without.change``.
    """

    topic: str
    left_out: int

    def changes(
        self,
        op: Literal["c", "u", "d"],
        rows: Sequence[Row | None],
        source: RowSource,
        first_row: int,
        base: Position,
        after: Position,
        out: list[SourceRecord],
    ) -> None:
        """Append the records of rows of one rows event.

        Args:
            op: what the event does.
            rows: as ``compile_rows`` gives them: for "u" pairs (before, after) one after the other.
            source: where they come from; its ``pos`` is the event's.
            first_row: the number of the first of these rows in its event (of a pair in updates), from 0.
            base: the offset before the event, ``row`` left out or 0; a record's own is ``{**base, "row": rows done}``.
            after: the offset once the last of these rows is done: used as it is for the last record. Where a row gives
                several records, those before its last one say that the row is not done.
            out: gets records.
        """

    def snapshot(
        self,
        rows: Iterable[Row],
        source: RowSource,
        marker: Marker,
        offset: Position,
        out: list[SourceRecord],
        *,
        first: Marker | None = None,
        last: Marker | None = None,
        batch: int = 0,
    ) -> None:
        """Append the ``op: r`` records of rows of a snapshot. None of them is held back.

        Args:
            rows: the rows of a chunk.
            source: the position and time of their read view.
            marker: ``source.snapshot`` of the rows.
            offset: the source offset of all of them; the offset after the chunk goes into ``Batch.offsets``.
            out: gets records.
            first: the first row's marker, if it is another one.
            last: the last row's.
            batch: the id of a snapshot on request, 0 for the first one of a table (only UMS distinguishes them).
        """

    def truncate(self, source: RowSource, offset: Position, out: list[SourceRecord]) -> None:
        """Append the ``op: t`` record, unless it is skipped (as it is by default). UMS has none."""
