"""Options of the Kafka sink."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from connectors import topic_names
from connectors.options import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    between,
    invalid,
    non_empty,
    one_of,
)
from spark_jobs.sinks.kafka.templates import NOT_IN_TOPICS, PLACEHOLDER, is_column, names_of_table, text_template

if TYPE_CHECKING:
    from connectors.options import Config
    from spark_jobs.sinks.kafka.avro import AvroRowFormat

_S, _B, _I, _LIST = ConfigType.STRING, ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LIST
_TO: Final = "Kafka: where to"
_CONTENT: Final = "Kafka: what"
_HOW: Final = "Kafka: how"
#: Properties of the producers, as the job's ``kafka.*`` are; they win over these.
PRODUCER: Final = "sink.kafka.producer."
#: Configurations of topics that the sink makes.
TOPIC_CONFIG: Final = "sink.kafka.topic.config."
#: Templates of headers by their names.
HEADER: Final = "sink.kafka.header."
#: The most that one call to Kafka may take, seconds.
_CALL_S: Final = 60.0
_BAD: Final = re.compile(NOT_IN_TOPICS)
_NAMES: Final = ("topic", "namespace", "database", "table")
#: Values of ``sink.kafka.format``.
JSON: Final = "json"
AVRO: Final = "avro"
UMS: Final = "ums"


def _check_placeholders(name: str, value: Any) -> str | None:
    if value is None:
        return None
    unknown = [name for name in PLACEHOLDER.findall(value) if name not in _NAMES and not is_column(name)]
    if unknown:
        return invalid(
            name,
            value,
            f"${{{unknown[0]}}} is no placeholder; there are ${{topic}}, ${{namespace}}, ${{database}}, ${{table}} and "
            "${column:<name>}",
        )
    if not value or _BAD.search(PLACEHOLDER.sub("", value)):
        return invalid(name, value, "a topic's name has letters, digits, '.', '_' and '-'")
    return None


KEYS: Final = (
    ConfigKey(
        name="sink.kafka.topic",
        type=_S,
        importance=Importance.HIGH,
        group=_TO,
        validator=_check_placeholders,
        example="${topic}.copy",
        doc="The topic to write to. `${topic}` stands for the record's topic and `${namespace}`, `${database}` and "
        "`${table}` for names of its table, `${column:<name>}` for the value of a column, which must not be null (these with "
        "`sink.kafka.content=rows` only); characters that a topic can't have become `_`.",
    ),
    ConfigKey(
        name="sink.kafka.topic.create",
        type=_B,
        default=True,
        group=_TO,
        doc="Make a topic that is not there. With false its absence is an error.",
    ),
    ConfigKey(
        name="sink.kafka.topic.partitions",
        type=_I,
        default=-1,
        group=_TO,
        validator=at_least(-1),
        doc="Partitions of topics that are made; -1: as many as the topic has that the records come from.",
    ),
    ConfigKey(
        name="sink.kafka.topic.grow",
        type=_B,
        default=False,
        group=_TO,
        doc="Give a topic that has fewer partitions than its source as many (`sink.kafka.partitioner=source` only). With false "
        "the job stops and says what is missing.",
    ),
    ConfigKey(
        name="sink.kafka.topic.replication.factor",
        type=_I,
        default=-1,
        group=_TO,
        validator=at_least(-1),
        doc="Replicas of topics that are made; -1: the broker's default. Other properties of these topics: "
        "`sink.kafka.topic.config.*` (`sink.kafka.topic.config.cleanup.policy` ...). `max.message.bytes` is the source "
        "topic's if that is larger than Kafka's default.",
    ),
    ConfigKey(
        name="sink.kafka.content",
        type=_S,
        default="records",
        group=_CONTENT,
        validator=one_of("records", "rows"),
        doc="`records` passes keys and values on as they are, byte by byte, also tombstones; `rows` writes a record "
        "per change, with the table's columns and the `ums_*` columns, after the source's format was decoded.",
    ),
    ConfigKey(
        name="sink.kafka.format",
        type=_S,
        default=JSON,
        group=_CONTENT,
        validator=one_of(JSON, AVRO, UMS),
        doc="The form of rows (`sink.kafka.content=rows` only): `json`, an object with the columns and `ums_*`; `avro`, the "
        "same in Confluent's wire format, also the keys `as-is` and `columns`, with a schema registry; `ums`, a UMS 1.3 "
        "message per row, with UMS's key and the primary key behind it for `sink.kafka.key=as-is`.",
    ),
    ConfigKey(
        name="sink.kafka.schema.registry.url",
        type=_S,
        default=None,
        group=_CONTENT,
        example="http://localhost:8081/apis/ccompat/v7",
        doc="The schema registry, for `sink.kafka.format=avro`. Other properties that begin with "
        "`sink.kafka.schema.registry.` are the Avro converter's (`sink.kafka.schema.registry.auto.register.schemas`, "
        "`sink.kafka.schema.registry.basic.auth.user.info` ...).",
    ),
    ConfigKey(
        name="sink.kafka.key",
        type=_S,
        default="as-is",
        group=_CONTENT,
        validator=one_of("as-is", "columns", "template", "none"),
        doc="The key: `as-is` (of `rows`: the primary key as an object), `columns` (`rows` only: those in "
        "`sink.kafka.key.columns`, as an object), `template` (`rows` only: `sink.kafka.key.template`), or `none`.",
    ),
    ConfigKey(
        name="sink.kafka.key.template",
        type=_S,
        default=None,
        group=_CONTENT,
        validator=text_template,
        example="${table}:${column:customer_id}",
        doc="The text of the key for `sink.kafka.key=template`. `${topic}`, `${namespace}`, `${database}`, `${table}`, `${op}` "
        "(`i`, `u`, `d`) are of the change, `${column:<name>}` is the value of a column; where that is null, so is "
        "the key. Headers of rows by such templates: `sink.kafka.header.<name>`.",
    ),
    ConfigKey(
        name="sink.kafka.timestamp.column",
        type=_S,
        default=None,
        group=_CONTENT,
        example="updated_at",
        doc="The column that gives the timestamps of rows: a timestamp, or a bigint of milliseconds since 1970; null: the "
        "change's own time (`sink.kafka.content=rows` only).",
    ),
    ConfigKey(
        name="sink.kafka.key.columns",
        type=_LIST,
        default=None,
        group=_CONTENT,
        example="customer_id",
        doc="Columns for `sink.kafka.key=columns`.",
    ),
    ConfigKey(
        name="sink.kafka.timestamps",
        type=_B,
        default=True,
        group=_CONTENT,
        doc="Keep the records' timestamps; with false Kafka's clock gives new ones.",
    ),
    ConfigKey(
        name="sink.kafka.headers",
        type=_B,
        default=True,
        group=_CONTENT,
        doc="Keep the records' headers (`records` only).",
    ),
    ConfigKey(
        name="sink.kafka.partitioner",
        type=_S,
        default="source",
        group=_HOW,
        validator=non_empty,
        doc="The partition to write to: `source` (the same number: order is kept; the target needs at least as many "
        "partitions), `key` (by the key's hash as Java's producer does; keyless records are spread by their "
        "offset), `round-robin` (by offset), or the name of an entry point of the group `millrace.partitioners`.",
    ),
    ConfigKey(
        name="sink.kafka.acks",
        type=_S,
        default="1",
        group=_HOW,
        validator=one_of("0", "1", "all"),
        importance=Importance.LOW,
        doc="Who must have a record with `guarantee=none`; the other guarantees always ask for all replicas.",
    ),
    ConfigKey(
        name="sink.kafka.transaction.timeout.ms",
        type=_I,
        default=300_000,
        unit="ms",
        group=_HOW,
        importance=Importance.LOW,
        validator=between(1000, 900_000),
        doc="With exactly-once: how long one batch of a partition may take to be written; also how long readers of "
        "committed records may have to wait behind a job that died and is not started again. Not above the "
        "broker's transaction.max.timeout.ms.",
    ),
)
CONFIG: Final = ConfigDef(KEYS)


@dataclass(frozen=True, slots=True)
class KafkaSinkSettings:
    """The settings of a writing task; picklable. Holds credentials in ``client``: never to be printed.

    Attributes:
        job: the job's name.
        client: confluent-kafka's configuration of its clients.
        guarantee: exactly-once, at-least-once or none.
        stream: what is written by this pass: empty for raw records, else the table.
        group: the group that keeps the positions of what was written.
        markers: the compacted topic that keeps them too.
        topic_ids: ids of the source topics: a recreated topic starts from offset 0 again.
        topics: target topic by source topic, with its number of partitions.
        partitioner: source, key, round-robin, or the name of an entry point.
        keyless: whether keys are left out.
        timestamps: whether they are kept.
        acks: for ``none``.
        transaction_timeout_ms: of transactions.
        explain: ask for a report of each record, so that an error names the one that Kafka refuses.
    """

    job: str
    client: dict[str, Any] = field(repr=False)
    guarantee: str
    stream: str
    group: str
    markers: str
    topic_ids: dict[str, str]
    topics: dict[str, tuple[str, int]]
    partitioner: str
    keyless: bool
    timestamps: bool
    acks: str
    transaction_timeout_ms: int
    explain: bool = False
    #: Partitions by name of topics that a column names; the rows then have them in the column ``target``.
    targets: dict[str, int] = field(default_factory=dict)
    #: Encodes rows in tasks; None where they come as bytes.
    encoding: AvroRowFormat | None = None

    @property
    def timeout_s(self) -> float:
        """How long one call to Kafka may take: a minute, and no longer than a transaction may."""
        return min(_CALL_S, self.transaction_timeout_ms / 1000)

    def transactional_id(self, topic: str, partition: int) -> str:
        """Of the producer that writes what comes from a partition."""
        return "-".join(part for part in (self.job, self.stream, topic, str(partition)) if part)


def target_topic(template: str, topic: str, namespace: str) -> str:
    """The topic that ``template`` names; placeholders of columns stay."""

    def fill(placeholder: re.Match[str]) -> str:
        if is_column(placeholder.group(1)):
            return placeholder.group(0)
        return _BAD.sub("_", topic if placeholder.group(1) == "topic" else names[placeholder.group(1)])

    names = names_of_table(namespace)
    filled = PLACEHOLDER.sub(fill, template)
    return filled if "${" in filled else filled[: topic_names.LONGEST]


def table_group(group: str, namespace: str) -> str:
    """The consumer group that keeps the positions of one table's rows. Pure.

    Kafka's client takes printable ASCII only: a namespace with other letters is written as in URLs.
    """
    plain = namespace.isascii() and namespace.isprintable()
    return f"{group}-{namespace if plain else quote(namespace, safe='')}"


def group_of(config: Config) -> str:
    """The group of positions: not the job's own, whose offsets are for the eyes of tools and may be reset by them."""
    return f"{config.get('kafka.group.id') or 'millrace-' + str(config['name'])}-written"
