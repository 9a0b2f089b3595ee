"""Events of a table whose records are masked (``mask.rules``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.cassandra.events.debezium import CassandraDebeziumEvents
from connectors.cassandra.events.partition_update import PartitionUpdateEvents
from connectors.errors import Skippable
from connectors.formats.masks.record_masks import RecordMasker

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from connectors.api import Position, SourceRecord
    from connectors.cassandra.events.contract import Where
    from connectors.cassandra.events.raw import RawEvents
    from connectors.cassandra.model import LogEntry
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.formats.masks.masking import Masks
    from connectors.formats.partition_update import PartitionUpdate


class MaskedEvents:
    """A ``CassandraTableEvents`` around another one.

    Attributes:
        inner: makes what is masked.
        masker: masks it.

    Raises:
        ConfigInvalid: a rule names a column that can't be masked in the output form.
    """

    def __init__(self, inner: CassandraDebeziumEvents | PartitionUpdateEvents | RawEvents, masks: Masks) -> None:
        self.inner = inner
        self.table: CqlTableDefinition = inner.table
        self.topic: str = inner.topic
        self.skipped: Counter[str] = inner.skipped
        table = inner.table
        clustering = frozenset(column.name for column in table.clustering)
        self.masker = RecordMasker(
            masks, table=str(table), clustering=clustering, keys=clustering | {column.name for column in table.key}
        )
        if isinstance(inner, CassandraDebeziumEvents):
            self.masker.check(inner.schemas.key, inner.schemas.value, inner.topic)
        else:
            schema = inner.layout.schema if isinstance(inner, PartitionUpdateEvents) else inner.schema
            self.masker.check(None, schema, inner.topic)

    @property
    def full_decodes(self) -> int:
        """See ``CassandraTableEvents``."""
        return self.inner.full_decodes

    def update(self, data: bytes, pos: int, end: int | None, where: Where, out: list[SourceRecord]) -> int:
        """See ``CassandraTableEvents.update``."""
        done = where.done
        unmasked: list[SourceRecord] = []
        try:
            next_pos = self.inner.update(data, pos, end, where, unmasked)
            records = [self.masker.mask(record) for record in unmasked]
        except Skippable:
            where.done = done
            raise
        out += records
        return next_pos

    def entries(self, data: bytes, entries: Sequence[LogEntry], where: Where, out: list[SourceRecord]) -> int:
        """See ``CassandraTableEvents.entries``; ends before a record that can't be masked, of which ``update`` says why."""
        unmasked: list[SourceRecord] = []
        count = self.inner.entries(data, entries, where, unmasked)
        for index, record in enumerate(unmasked):
            try:
                out.append(self.masker.mask(record))
            except Skippable:
                return index
        return count

    def add_snapshot_rows(
        self, update: PartitionUpdate, partition: Position, offset: Position, out: list[SourceRecord]
    ) -> None:
        """See ``CassandraTableEvents.add_snapshot_rows``."""
        unmasked: list[SourceRecord] = []
        self.inner.add_snapshot_rows(update, partition, offset, unmasked)
        out += [self.masker.mask(record) for record in unmasked]
