"""``source.format=debezium``: Debezium's envelope in JSON (with or without a schema) or Avro, as typed changes per table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, one_of
from spark_jobs.sources.decoding import RecordSource
from spark_jobs.sources.decoding_options import COMMON_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.sources.messages import MessageRows

_GROUP: Final = "Debezium"

DEBEZIUM_KEYS: Final = (
    *COMMON_KEYS,
    ConfigKey(
        name="source.truncates",
        type=ConfigType.STRING,
        default="fail",
        validator=one_of("fail", "ignore"),
        group=_GROUP,
        importance=Importance.LOW,
        doc="What becomes of a TRUNCATE (`op` t), which no sink takes as a change of rows: `fail` treats it as a "
        "record that can't be decoded (`errors.tolerance`); `ignore` leaves it out.",
    ),
)


class DebeziumSource(RecordSource):
    """Decodes Debezium's envelope; see docs/jobs/formats.md for types and rules."""

    config_def: ClassVar[ConfigDef] = ConfigDef(DEBEZIUM_KEYS)
    envelope: ClassVar[bool] = True

    @classmethod
    def read_messages(cls, properties: Mapping[str, str]) -> MessageRows:
        """The reader of the job's messages for ``millrace verify``; raises as ``MessageRows``."""
        from spark_jobs.sources.messages import MessageRows, read_event

        return MessageRows(properties, DEBEZIUM_KEYS, read_event)
