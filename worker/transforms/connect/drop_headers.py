"""DropHeaders: leave out headers by name.

Source: org.apache.kafka.connect.transforms.DropHeaders of Kafka 4.1 (KIP-145).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance
from worker.transforms.base import RecordFunction, Transform, copy_record, non_empty_list

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from worker.transforms.rewriting import SymbolicRecord


class DropHeaders(Transform):
    """Leaves out headers."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.DropHeaders",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="headers",
                type=ConfigType.LIST,
                validator=non_empty_list,
                importance=Importance.HIGH,
                doc="Names of the headers to leave out; all of that name go.",
                example="trace-id,user",
            ),
        ]
    )

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``."""
        names = frozenset(self.config["headers"])
        return replace(record, headers=tuple(header for header in record.headers if header.key not in names))

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        names = frozenset(self.config["headers"])

        def apply(record: SourceRecord) -> SourceRecord:
            headers = record.headers
            kept = []
            for header in headers:  # faster than a comprehension, for as few as there are
                if header.key not in names:
                    kept.append(header)  # noqa: PERF401 - see above
            if len(kept) == len(headers):
                return record
            result = copy_record(record)
            result.headers = tuple(kept)
            return result

        return apply
