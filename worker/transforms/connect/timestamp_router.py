"""TimestampRouter: a topic's new name from its old one and the record's timestamp.

Source: org.apache.kafka.connect.transforms.TimestampRouter of Kafka 4.1. One difference: a wrong pattern is an error of the
configuration, where Connect refuses each record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from connectors.errors import ConfigInvalid, Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, invalid
from worker.transforms.base import RecordFunction, Side, Transform, copy_record
from worker.transforms.java.date_format import JavaDateFormat
from worker.transforms.predicates import TOPIC_CACHE_SIZE

if TYPE_CHECKING:
    from connectors.api import SourceRecord


def _check_pattern(name: str, value: str | None) -> str | None:
    try:
        JavaDateFormat(value or "")
    except ConfigInvalid as error:
        return invalid(name, value, str(error))
    return None


class TimestampRouter(Transform):
    """Sends records to topics by their time."""

    version: ClassVar[str] = "4.1.2"
    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.transforms.TimestampRouter",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="topic.format",
                type=ConfigType.STRING,
                default="${topic}-${timestamp}",
                importance=Importance.HIGH,
                doc="The new name; ${topic} stands for the old one and ${timestamp} for the timestamp's text.",
            ),
            ConfigKey(
                name="timestamp.format",
                type=ConfigType.STRING,
                default="yyyyMMdd",
                validator=_check_pattern,
                importance=Importance.HIGH,
                doc="The timestamp's pattern, as java.text.SimpleDateFormat takes it; in UTC.",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._format = JavaDateFormat(config["timestamp.format"])

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        target, unit = self.config["topic.format"], self._format.unit
        write = self._format.format
        cache: dict[tuple[str, int], str] = {}

        def route(topic: str, timestamp: int) -> str:
            if len(cache) >= TOPIC_CACHE_SIZE:
                cache.clear()
            name = str(target.replace("${topic}", topic).replace("${timestamp}", write(timestamp)))
            cache[topic, timestamp // unit] = name
            return name

        def apply(record: SourceRecord) -> SourceRecord:
            timestamp = record.timestamp
            if timestamp is None:
                raise Skippable(
                    f"Timestamp missing on record: SourceRecord{{topic='{record.topic}', "
                    f"sourcePartition={record.source_partition}, sourceOffset={record.source_offset}}}"
                )
            topic = record.topic
            result = copy_record(record)
            result.topic = cache.get((topic, timestamp // unit)) or route(topic, timestamp)
            return result

        return apply
