"""``source.format=plain``: flat rows in JSON (with or without a schema) or Avro; the topic is the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, one_of
from spark_jobs.sources.decoding import RecordSource
from spark_jobs.sources.decoding_options import COMMON_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.sources.messages import MessageRows

_GROUP: Final = "Plain"

PLAIN_KEYS: Final = (
    *COMMON_KEYS,
    ConfigKey(
        name="source.op.field",
        type=ConfigType.STRING,
        default=None,
        group=_GROUP,
        example="change_type",
        doc="The member of a row that says what happened to it: c, r, i, insert, create or read; u or update; d or "
        "delete. Not set: `__op` or `ums_op_` where rows have one (Debezium's ExtractNewRecordState adds `__op` "
        "on demand); without any, every row is an insert. A row with `__deleted` true is a delete in any case.",
    ),
    ConfigKey(
        name="source.time.field",
        type=ConfigType.STRING,
        default=None,
        group=_GROUP,
        example="updated_at",
        doc="The member that says when the change was made: a number (`source.timestamp.unit`) or ISO 8601. Not set: "
        "`ums_ts_`, `__source_ts_us`, `__source_ts_ms`, `__ts_ms` ... where rows have one, else Kafka's "
        "timestamp.",
    ),
    ConfigKey(
        name="source.order.field",
        type=ConfigType.STRING,
        default=None,
        group=_GROUP,
        example="revision",
        doc="The member with a whole number that grows with the order of changes, for `ums_id_`. Not set: `ums_id_` "
        "or `__source_ums_id` where rows have one, else Kafka's offset.",
    ),
    ConfigKey(
        name="source.tombstones",
        type=ConfigType.STRING,
        default="delete",
        validator=one_of("delete", "ignore"),
        group=_GROUP,
        doc="What a record without a value is: `delete`: its key's row was deleted; `ignore`: nothing.",
    ),
)


class PlainSource(RecordSource):
    """Decodes flat rows; see docs/jobs/formats.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(PLAIN_KEYS)
    envelope: ClassVar[bool] = False

    @classmethod
    def read_messages(cls, properties: Mapping[str, str]) -> MessageRows:
        """The reader of the job's messages for ``millrace verify``; raises as ``MessageRows``."""
        from spark_jobs.sources.messages import MessageRows, read_flat

        return MessageRows(properties, PLAIN_KEYS, read_flat)
