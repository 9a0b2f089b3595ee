"""The interface of an output form: makes the events of one table from serialized partition updates of the log or a snapshot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from connectors import topic_names
from connectors.cassandra.model import FINISHED, INDEX, OFFSET, SEGMENT
from connectors.schema import OPTIONAL_INT32, OPTIONAL_INT64, OPTIONAL_STRING

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from connectors.api import Position, SourceRecord
    from connectors.cassandra.model import LogEntry
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.formats.masks.masking import Masks
    from connectors.formats.partition_update import PartitionUpdate

#: Name of the connector in events' ``source``.
CONNECTOR: Final = "cassandra"
#: Members of ``source.position`` in partition updates of both kinds: the node, the id of the segment, the logical offset of the
#: end of the entry, and the number of the message among those of the entry (from 0).
POSITION: Final = {
    "node": OPTIONAL_STRING,
    "segment": OPTIONAL_INT64,
    "position": OPTIONAL_INT64,
    "index": OPTIONAL_INT32,
}

_NOT_IN_TOPIC: Final = re.compile(r"[^A-Za-z0-9_.\-]")


class CassandraEventSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options that shape events, as plain values.

    Attributes:
        topic_prefix: ``topic.prefix``; also the cluster's name in events.
        cluster: ``cluster`` in the ``source`` of Debezium's form (``cassandra.cluster.name``); empty: ``topic_prefix``.
        output_format: the form, ``output.format``.
        tombstones: Debezium's form: whether a deletion of a row is followed by a record without value.
        extended: Debezium's form, ``cassandra.debezium.extended``: says also what Debezium's connector leaves out: changes of
            static columns, and of multicell columns whether they were overwritten and which elements were removed. Off: the
            form is Debezium's to the letter, and ``CassandraTableEvents.skipped`` counts what was left out.
        decimals: how Debezium's form writes ``decimal`` (``decimal.handling.mode``).
        varints: how it writes ``varint`` (``varint.handling.mode``).
        logical: whether it gives ``time`` Debezium's name (``cassandra.logical.types``).
        excluded: columns that it leaves out, ``keyspace.table.column`` (``field.exclude.list``); never key columns.
        max_rows: a partition update of more rows is divided; not in the raw form, nor is it by the next.
        max_bytes: so is one of more bytes (those of its serialized form).
        masks: ``mask.rules``.
    """

    topic_prefix: str
    cluster: str
    output_format: Literal["partition-update", "partition-update-raw", "debezium"]
    tombstones: bool
    extended: bool
    decimals: Literal["double", "precise", "string"]
    varints: Literal["long", "precise", "string"]
    logical: bool
    excluded: frozenset[str]
    max_rows: int
    max_bytes: int
    masks: Masks


class Where(msgspec.Struct, gc=False):
    """The position of a partition update. One object may be used for all of a log: its members are changed between entries.

    Attributes:
        partition: source partition of the records; the same object for all of a node.
        node: the node's name.
        segment: id of the segment.
        version: of the log's format.
        before: logical offset of the end of the entry before; records carry it until the entry is done.
        position: logical offset of the end of the entry.
        done: records that the entry's updates before this one have given, 0 at its first; ``CassandraTableEvents.update`` adds
            its own.
        last: whether this is the entry's last update: its last record then carries ``position``.
        read_ms: when the entry was read, ms since 1970.
    """

    partition: dict[str, Any]
    node: str
    segment: int
    version: int
    before: int = 0
    position: int = 0
    done: int = 0
    last: bool = True
    read_ms: int = 0

    def offset(self, done: int) -> Position:
        """The source offset of a record behind which ``done`` records of the entry are delivered, and not all of it."""
        return {SEGMENT: self.segment, OFFSET: self.before, INDEX: done, FINISHED: False}

    def ended(self) -> Position:
        """The source offset of the entry's last record."""
        return {SEGMENT: self.segment, OFFSET: self.position, INDEX: 0, FINISHED: False}


class CassandraTableEvents(Protocol):
    """Makes the records of one definition of a table, of one version of the log's format. Not thread-safe; does not block.

    Attributes:
        table: the definition.
        topic: where the records go.
        skipped: what ``extended=False`` left out, by kind, since it was made: ``static`` (rows), ``elements`` (removals of
            elements, but of maps), ``overwrite`` (of multicell columns).
    """

    table: CqlTableDefinition
    topic: str
    skipped: Counter[str]

    @property
    def full_decodes(self) -> int:
        """Updates that were too much for the fast decoder, since it was made."""

    def update(self, data: bytes, pos: int, end: int | None, where: Where, out: list[SourceRecord]) -> int:
        """Append the records of the partition update that begins at ``pos``.

        Args:
            data: the bytes that the entry is in.
            pos: of the first byte of the update (its table id).
            end: the update's end, if it is the rest of the entry (the mutation's only update); the raw form then decodes
                nothing. None: it is found by decoding.
            where: its position; ``done`` is increased.
            out: gets the records. Nothing is appended and ``where`` is as before if this raises.

        Returns:
            The offset behind the update.

        Raises:
            UnknownColumn: the definition is older than the bytes (``connectors.cql.mutations``): load it again.
            Skippable: the bytes can't be decoded; then the rest of the entry is lost too, unless ``end`` was given.
        """

    def entries(self, data: bytes, entries: Sequence[LogEntry], where: Where, out: list[SourceRecord]) -> int:
        """Append a record for each of ``entries``, up to the first that is not one simple update of the table: the fast way.

        What it gives is what ``update`` would, called for one after the other; ``where`` has segment and ``read_ms``, its
        other members may be anything.

        Args:
            data: the bytes that the entries are in.
            entries: of which nothing was delivered.
            where: where they stand.
            out: gets the records.

        Returns:
            How many entries are done, each with one record. The next one may be in order, of another table, or damaged.
        """

    def add_snapshot_rows(
        self, update: PartitionUpdate, partition: Position, offset: Position, out: list[SourceRecord]
    ) -> None:
        """Append the records of a partition that was read from the table (``update.source.snapshot``).

        All records carry the same ``offset``: a snapshot is repeated from its last saved chunk.

        Raises:
            Skippable: it can't be written.
        """


def topic_name(prefix: str, keyspace: str, table: str) -> str:
    """``<prefix>.<keyspace>.<table>``, with underscores for what a topic's name may not have."""
    return _NOT_IN_TOPIC.sub("_", ".".join(part for part in (prefix.strip(), keyspace, table) if part))[
        : topic_names.LONGEST
    ]


def record_time(milliseconds: int, read_ms: int) -> int:
    """A write time as the time of a Kafka record.

    A client may write with any time (``USING TIMESTAMP``). Brokers refuse records from before 1970 and, by
    ``message.timestamp.after.max.ms``, those from the future: what is later than the time of reading becomes that.
    """
    return 0 if milliseconds < 0 else min(milliseconds, read_ms)
