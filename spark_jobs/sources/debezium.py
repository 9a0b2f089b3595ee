"""``source.format=debezium``: Debezium's envelope in JSON (with or without a schema) or Avro, as typed changes per table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, one_of
from spark_jobs.contract import Source, TableChanges
from spark_jobs.sources.decoding import Decoding
from spark_jobs.sources.decoding_options import COMMON_KEYS, PASS_THROUGH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.contract import Batch, JobContext, TableSchema
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


class DebeziumSource(Source):
    """Decodes Debezium's envelope; see docs/jobs/formats.md for types and rules."""

    config_def: ClassVar[ConfigDef] = ConfigDef(DEBEZIUM_KEYS)
    pass_through: ClassVar[tuple[str, ...]] = PASS_THROUGH

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._decoding = Decoding(context, envelope=True)

    @classmethod
    def read_messages(cls, properties: Mapping[str, str]) -> MessageRows:
        """The reader of the job's messages for ``millrace verify``; raises as ``MessageRows``."""
        from spark_jobs.sources.messages import MessageRows, read_event

        return MessageRows(properties, DEBEZIUM_KEYS, read_event)

    def changes(self, batch: Batch) -> list[TableChanges]:
        """See ``Source.changes``."""
        return self._decoding.changes(batch)

    def schemas(self) -> list[TableSchema]:
        """See ``Source.schemas``."""
        return self._decoding.schemas()

    def refused(self, namespace: str) -> None:
        """See ``Source.refused``."""
        self._decoding.refused(namespace)

    def written(self) -> None:
        """See ``Source.written``."""
        self._decoding.written()

    def close(self) -> None:
        """See ``Source.close``."""
        self._decoding.close()
