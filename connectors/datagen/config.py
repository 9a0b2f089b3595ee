"""Options of the datagen connector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.datagen.fields import RowSpec, row_spec
from connectors.errors import ConfigInvalid
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, at_least, between, invalid, one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC: Final = "topic"
SCHEMA: Final = "schema"
RECORDS: Final = "records"
RATE: Final = "rate"
MAX_INTERVAL: Final = "max.interval"
SEED: Final = "seed"
SIZE: Final = "record.size"
KEYS: Final = "keys"
PARTITIONS: Final = "partitions"
BATCH_SIZE: Final = "batch.size"
ENVELOPE: Final = "envelope"
TRANSACTION_SIZE: Final = "transaction.size"
FAIL_AT: Final = "fault.fail.at"
FAIL_KIND: Final = "fault.fail.kind"
HANG_AT: Final = "fault.hang.at"
HANG_STUBBORN: Final = "fault.hang.ignore.cancel"
BLOCK_AFTER: Final = "fault.block.loop.after"
BLOCK_MS: Final = "fault.block.loop.ms"
BAD_EVERY: Final = "fault.bad.every"
LEAK: Final = "fault.leak"
ONCE_FILE: Final = "fault.once.file"
#: The source partitions of one task; made by the connector, not by users.
TASK_PARTITIONS: Final = "task.partitions"

_FAULTS: Final = "Faults, for tests only"


def _check_schema(name: str, value: Any) -> str | None:
    try:
        row_spec(value)
    except ConfigInvalid as error:
        return invalid(name, value, str(error))
    return None


def _check_topics(name: str, value: Any) -> str | None:
    return None if value and all(value) else invalid(name, value, "At least one topic name is needed")


CONFIG: Final = ConfigDef(
    [
        ConfigKey(
            name=TOPIC,
            type=ConfigType.LIST,
            importance=Importance.HIGH,
            validator=_check_topics,
            aliases=("kafka.topic",),
            doc="The topic to write to. With several, source partition 0 goes to the first, 1 to the second, and so on "
            "in turn.",
            example="orders",
        ),
        ConfigKey(
            name=SCHEMA,
            type=ConfigType.STRING,
            default="orders",
            importance=Importance.HIGH,
            validator=_check_schema,
            aliases=("quickstart",),
            doc="What rows look like: orders, users or pageviews, or a JSON object with name and fields, each with name, "
            "type and what docs/connectors/datagen.md lists.",
            example='{"name": "point", "fields": [{"name": "x", "type": "int32", "max": 99}]}',
        ),
        ConfigKey(
            name=RECORDS,
            type=ConfigType.LONG,
            default=-1,
            importance=Importance.HIGH,
            unit="rows",
            validator=at_least(-1),
            aliases=("iterations",),
            doc="How many records in all, divided evenly among the source partitions; -1 for no end.",
        ),
        ConfigKey(
            name=RATE,
            type=ConfigType.DOUBLE,
            default=-1.0,
            unit="rows/s",
            doc="How many records a second each task gives; -1 for as many as Kafka takes.",
        ),
        ConfigKey(
            name=MAX_INTERVAL,
            type=ConfigType.LONG,
            default=None,
            unit="ms",
            importance=Importance.LOW,
            doc="Accepted from Confluent's connector, which pauses for a random time up to this after each record: read "
            "here as the rate that gives the same average, two records in this time. rate wins if both are given.",
        ),
        ConfigKey(
            name=SEED,
            type=ConfigType.LONG,
            default=1,
            importance=Importance.LOW,
            unit="number",
            doc="Record n of partition p is the same for the same seed and options, wherever and whenever it is made.",
        ),
        ConfigKey(
            name=SIZE,
            type=ConfigType.INT,
            default=0,
            unit="bytes",
            validator=between(0, 10_000_000),
            importance=Importance.LOW,
            doc="About how large a row is as JSON without schema: the string field payload makes up for what the other fields "
            "lack. 0 for no payload.",
        ),
        ConfigKey(
            name=KEYS,
            type=ConfigType.LONG,
            default=1000,
            validator=at_least(0),
            importance=Importance.LOW,
            unit="keys",
            doc="How many different keys each source partition has, used in turn; 0 gives every record a key of its own.",
        ),
        ConfigKey(
            name=PARTITIONS,
            type=ConfigType.INT,
            default=1,
            validator=between(1, 100_000),
            unit="partitions",
            doc="How many source partitions there are; each counts its own records. They are divided among the tasks.",
        ),
        ConfigKey(
            name=BATCH_SIZE,
            type=ConfigType.INT,
            default=500,
            validator=between(1, 10_000),
            importance=Importance.LOW,
            unit="rows",
            doc="How many records a task hands over at once.",
        ),
        ConfigKey(
            name=ENVELOPE,
            type=ConfigType.STRING,
            default="plain",
            validator=one_of("plain", "debezium"),
            doc="plain gives rows; debezium gives change events: each key is created, updated three times and deleted, "
            "with the rows before and after.",
        ),
        ConfigKey(
            name=TRANSACTION_SIZE,
            type=ConfigType.INT,
            default=0,
            validator=at_least(0),
            importance=Importance.LOW,
            unit="rows",
            doc="Records of a source partition that belong together: with transaction.boundary=connector a transaction is "
            "committed after each of these. 0 commits after each batch.",
        ),
        ConfigKey(
            name=FAIL_AT,
            type=ConfigType.LONG,
            default=-1,
            importance=Importance.LOW,
            group=_FAULTS,
            unit="sequence number",
            doc="Fail before the record of this sequence number is made; -1 for never.",
        ),
        ConfigKey(
            name=FAIL_KIND,
            type=ConfigType.STRING,
            default="fatal",
            validator=one_of("fatal", "retriable", "unexpected"),
            importance=Importance.LOW,
            group=_FAULTS,
            doc="How to fail: with an error that ends the task, one that asks for another try, or one that was not expected.",
        ),
        ConfigKey(
            name=HANG_AT,
            type=ConfigType.LONG,
            default=-1,
            importance=Importance.LOW,
            group=_FAULTS,
            unit="sequence number",
            doc="Wait forever before the record of this sequence number; -1 for never.",
        ),
        ConfigKey(
            name=HANG_STUBBORN,
            type=ConfigType.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            group=_FAULTS,
            doc="Whether the wait of fault.hang.at ignores that the task is cancelled. Only the end of the process ends it "
            "then.",
        ),
        ConfigKey(
            name=BLOCK_AFTER,
            type=ConfigType.LONG,
            default=-1,
            importance=Importance.LOW,
            group=_FAULTS,
            unit="sequence number",
            doc="Block the event loop before the record of this sequence number; -1 for never.",
        ),
        ConfigKey(
            name=BLOCK_MS,
            type=ConfigType.LONG,
            default=-1,
            unit="ms",
            importance=Importance.LOW,
            group=_FAULTS,
            doc="How long fault.block.loop.after blocks; -1: forever.",
        ),
        ConfigKey(
            name=BAD_EVERY,
            type=ConfigType.LONG,
            default=0,
            validator=at_least(0),
            importance=Importance.LOW,
            unit="rows",
            group=_FAULTS,
            doc="Make every n-th record of a source partition a bad record, with the row's JSON as its raw input; 0 for "
            "none.",
        ),
        ConfigKey(
            name=LEAK,
            type=ConfigType.LONG,
            default=0,
            validator=at_least(0),
            importance=Importance.LOW,
            unit="bytes",
            group=_FAULTS,
            doc="Memory lost with every record; 0 for none.",
        ),
        ConfigKey(
            name=ONCE_FILE,
            type=ConfigType.STRING,
            default=None,
            importance=Importance.LOW,
            group=_FAULTS,
            doc="Fail, hang or block only if this file does not exist yet, and create it then: a restarted task continues.",
        ),
        ConfigKey(
            name=TASK_PARTITIONS,
            type=ConfigType.STRING,
            default=None,
            internal=True,
            doc="The source partitions of one task, a JSON list; set by the connector.",
        ),
    ]
)


class DatagenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options as plain values; times in seconds, sizes in bytes."""

    topics: tuple[str, ...]
    spec: RowSpec
    records: int
    #: Records a second; 0 for no limit.
    rate: float
    seed: int
    size: int
    keys: int
    partitions: int
    batch_size: int
    debezium: bool
    transaction_size: int
    mine: tuple[int, ...]


def read_settings(config: Mapping[str, Any]) -> DatagenSettings:
    """The task's settings.

    Raises:
        ConfigInvalid: ``task.partitions`` is not a JSON list of numbers.
    """
    try:
        mine = tuple(msgspec.json.decode(config[TASK_PARTITIONS] or "[]", type=list[int]))
    except msgspec.DecodeError as error:
        problem = f"Not a JSON list of numbers ({error})"
        raise ConfigInvalid(invalid(TASK_PARTITIONS, config[TASK_PARTITIONS], problem)) from error
    return DatagenSettings(
        topics=tuple(config[TOPIC]),
        spec=row_spec(config[SCHEMA]),
        records=config[RECORDS],
        rate=_read_rate(config),
        seed=config[SEED],
        size=config[SIZE],
        keys=config[KEYS],
        partitions=config[PARTITIONS],
        batch_size=config[BATCH_SIZE],
        debezium=config[ENVELOPE] == "debezium",
        transaction_size=config[TRANSACTION_SIZE],
        mine=mine,
    )


def _read_rate(config: Mapping[str, Any]) -> float:
    if config[RATE] > 0:
        return float(config[RATE])
    interval = config[MAX_INTERVAL]
    return 2000 / interval if interval is not None and interval > 0 else 0.0
