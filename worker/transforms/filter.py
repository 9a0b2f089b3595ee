"""Filter: drop every record it is applied to; meant to be used with a predicate.

Source: org.apache.kafka.connect.transforms.Filter of Kafka 4.1 (KIP-585).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from connectors.options import ConfigDef
from worker.transforms.base import RecordFunction, Transform

if TYPE_CHECKING:
    from connectors.api import SourceRecord


class Filter(Transform):
    """Drops records."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.Filter",)
    config_def: ClassVar[ConfigDef] = ConfigDef()

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""

        def drop(record: SourceRecord) -> None:
            del record

        return drop
