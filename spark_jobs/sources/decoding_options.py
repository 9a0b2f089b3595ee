"""The options of the sources that decode records, read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal
from connectors.options import ConfigKey, ConfigType, Importance, invalid
from spark_jobs.config.keys import REFUSE, SEPARATE, SHARDS, TABLES
from spark_jobs.config.schema_options import SchemaPolicies
from spark_jobs.sources.declared import COLUMNS, KEYS
from spark_jobs.sources.layout import VARIABLE_OPTION
from spark_jobs.sources.types import MAX_PRECISION, TEXT, VARIABLE_SCALE

if TYPE_CHECKING:
    from connectors.options import Config

_GROUP: Final = "Decoding"


def _variable_scale(name: str, value: Any) -> str | None:
    fits = value == TEXT or (str(value).isdecimal() and int(value) <= MAX_PRECISION)
    return None if fits else invalid(name, value, f"must be {TEXT}, or a number from 0 to {MAX_PRECISION}")


COMMON_KEYS: Final = (
    ConfigKey(
        name="source.before.rows",
        type=ConfigType.BOOLEAN,
        default=False,
        group=_GROUP,
        doc="Whether an update also gives the row before it, as a row of its own with `ums_op_` b just before the "
        "`u` (where the source sends it). For full histories.",
    ),
    ConfigKey(
        name=KEYS,
        type=ConfigType.LIST,
        default=None,
        group=_GROUP,
        example="customer_id,order_id",
        doc="The columns of the primary key, in order, of every table that the job reads, instead of those in the "
        "records' keys. For a single table: `source.key.columns.<namespace>`.",
    ),
    ConfigKey(
        name=COLUMNS,
        type=ConfigType.STRING,
        default=None,
        group=_GROUP,
        example="id bigint, name string, price decimal(10,2), changed timestamp",
        doc="Types of columns of JSON without a schema, as in SQL, for every table that the job reads; for a single "
        "table: `source.table.columns.<namespace>`. Columns that it leaves out get the types that their values "
        "show.",
    ),
    ConfigKey(
        name="source.timestamp.unit",
        type=ConfigType.STRING,
        default="ms",
        group=_GROUP,
        importance=Importance.LOW,
        doc="What a number in a column means that `source.table.columns` declares as timestamp: `ms`, `us` or `ns` since 1970.",
    ),
    ConfigKey(
        name=VARIABLE_OPTION,
        type=ConfigType.STRING,
        default=str(VARIABLE_SCALE),
        group=_GROUP,
        importance=Importance.LOW,
        validator=_variable_scale,
        doc="What columns of decimals without a fixed scale become (`io.debezium.data.VariableScaleDecimal`: Cassandra, "
        "Scylla, PostgreSQL's numeric): digits after the point, 0 to 38, of a decimal(38, s), where a value that does not fit "
        "is a bad record; or `text`: all digits as text (the JDBC sink: PostgreSQL's numeric without limits). A table that is "
        "there keeps what it has.",
    ),
)
PASS_THROUGH: Final = (f"{KEYS}.", f"{COLUMNS}.")


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How records are decoded.

    Attributes:
        envelope: whether values are Debezium's envelopes; otherwise a topic is a table.
        values: ``source.value.encoding``.
        keys: ``source.key.encoding``.
        before: ``source.before.rows``.
        truncates: whether truncates are ignored.
        tombstones: whether a record without a value deletes a row.
        shards: ``sink.shards``.
        tables: patterns of the tables to read; none: all.
        takes_text: whether a column may become text.
    """

    envelope: bool
    values: str
    keys: str
    before: bool
    truncates: bool
    tombstones: bool
    shards: str
    tables: tuple[str, ...]
    takes_text: bool

    @classmethod
    def of(cls, config: Config, *, envelope: bool) -> DecodingOptions:
        """Read them.

        Raises:
            Fatal: the encodings don't go together.
        """
        options = cls(
            envelope,
            config.get("source.value.encoding") or "json",
            config.get("source.key.encoding") or "json",
            bool(config.get("source.before.rows")),
            config.get("source.truncates") == "ignore",
            not envelope and config.get("source.tombstones", "delete") == "delete",
            str(config.get(SHARDS) or REFUSE),
            tuple(config.get(TABLES) or ()),
            SchemaPolicies.of(config).takes_text,
        )
        if options.values == "avro" and options.keys == "json":
            raise Fatal(
                "source.key.encoding=json can't be combined with source.value.encoding=avro: set avro, or bytes and "
                "source.key.columns."
            )
        if options.values == "json" and options.keys == "avro":
            raise Fatal(
                "source.key.encoding=avro can't be combined with source.value.encoding=json: set json, or bytes and "
                "source.key.columns."
            )
        return options

    @property
    def separates(self) -> bool:
        """Whether rows of different shards are different rows."""
        return self.envelope and self.shards == SEPARATE
