"""A builder whose records are masked (``mask.rules``)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from connectors.api import BadRecord
from connectors.errors import Skippable
from connectors.formats.masks.record_masks import RecordMasker
from connectors.scylla.events.partition_update import PartitionUpdateBuilder
from connectors.scylla.events.ums import UmsBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from connectors.api import Position, SourceRecord
    from connectors.formats.masks.masking import Masks
    from connectors.scylla.events.debezium import DebeziumBuilder
    from connectors.scylla.model import StreamRun, TableVersion


class MaskedBuilder:
    """An ``EventBuilder`` around another one.

    Attributes:
        inner: makes what is masked.
        masker: masks it.

    Raises:
        ConfigInvalid: a rule names a column that can't be masked in the output form.
    """

    def __init__(
        self, inner: DebeziumBuilder | PartitionUpdateBuilder | UmsBuilder, version: TableVersion, masks: Masks
    ) -> None:
        self.inner = inner
        names = {
            kind: frozenset(column.name for column in version.columns if column.kind == kind)
            for kind in ("partition_key", "clustering")
        }
        self.masker = RecordMasker(
            masks,
            table=str(version.id),
            keys=names["partition_key"] | names["clustering"],
            clustering=names["clustering"],
        )
        if isinstance(inner, UmsBuilder):
            self.masker.check_ums(inner.namespace, inner.fields)
        elif isinstance(inner, PartitionUpdateBuilder):
            self.masker.check(None, inner.layout.schema, inner.topic)
        else:
            self.masker.check(inner.schemas.key, inner.schemas.value, inner.topic)

    @property
    def skipped(self) -> Counter[str]:
        """Changes that were left out, by kind."""
        counter: Counter[str] | None = getattr(self.inner, "skipped", None)
        return Counter() if counter is None else counter

    def feed(self, run: StreamRun, out: list[SourceRecord], bad: list[BadRecord]) -> None:
        """See ``EventBuilder.feed``."""
        unmasked: list[SourceRecord] = []
        self.inner.feed(run, unmasked, bad)
        self._mask_records(unmasked, out, bad)

    def reset(self) -> None:
        """See ``EventBuilder.reset``."""
        self.inner.reset()

    def snapshot_row(
        self,
        partition: Position,
        offset: Position,
        cells: Sequence[Any],
        write_time_us: int,
        out: list[SourceRecord],
        bad: list[BadRecord],
    ) -> None:
        """See ``EventBuilder.snapshot_row``."""
        unmasked: list[SourceRecord] = []
        self.inner.snapshot_row(partition, offset, cells, write_time_us, unmasked, bad)
        self._mask_records(unmasked, out, bad)

    def _mask_records(self, unmasked: Iterable[SourceRecord], out: list[SourceRecord], bad: list[BadRecord]) -> None:
        for record in unmasked:
            try:
                out.append(self.masker.mask(record))
            except Skippable as error:
                bad.append(BadRecord(record.source_partition, record.source_offset, error, topic=record.topic))
