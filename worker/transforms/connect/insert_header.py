"""InsertHeader: one more header with a fixed value.

Source: org.apache.kafka.connect.transforms.InsertHeader of Kafka 4.1 (KIP-145): the value's type is read from its text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from connectors.api import Header
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance
from worker.converters.values import parse_text
from worker.transforms.base import RecordFunction, Transform, copy_record

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from worker.transforms.rewriting import SymbolicRecord


class InsertHeader(Transform):
    """Adds a header to each record."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.InsertHeader",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="header",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                doc="The header's name.",
                example="site",
            ),
            ConfigKey(
                name="value.literal",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                example="eu-1",
                doc="The header's value. What spells a number, true, false, null, a date, a list or a map becomes one.",
            ),
        ]
    )

    def _header(self) -> Header:
        schema, value = parse_text(self.config["value.literal"])
        return Header(self.config["header"], value, schema)

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """See ``Transform.rewrite``."""
        return replace(record, headers=(*record.headers, self._header()))

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        added = (self._header(),)

        def apply(record: SourceRecord) -> SourceRecord:
            result = copy_record(record)
            result.headers = record.headers + added
            return result

        return apply
