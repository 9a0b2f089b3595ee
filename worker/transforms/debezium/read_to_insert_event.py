"""ReadToInsertEvent: rows read in a snapshot look like inserted ones: the operation ``r`` becomes ``c``.

Source: io.debezium.connector.mysql.transforms.ReadToInsertEvent of Debezium 3.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from connectors.options import ConfigDef
from worker.transforms.base import RecordFunction, Transform, copy_record
from worker.transforms.debezium.events import DEBEZIUM_VERSION, field_of, is_envelope

if TYPE_CHECKING:
    from connectors.api import SourceRecord


class ReadToInsertEvent(Transform):
    """Makes reads inserts."""

    version: ClassVar[str] = DEBEZIUM_VERSION
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.connector.mysql.transforms.ReadToInsertEvent",)
    config_def: ClassVar[ConfigDef] = ConfigDef()

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""

        def apply(record: SourceRecord) -> SourceRecord:
            event = record.value
            schema = record.value_schema
            if event is None or schema is None or not is_envelope(schema):
                return record
            if event.get("op") != "r":
                field_of(schema, "op")
                return record
            result = copy_record(record)
            result.value = {**event, "op": "c"}
            return result

        return apply
