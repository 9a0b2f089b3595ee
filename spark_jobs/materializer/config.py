"""The materializer's options, and what of a job travels to its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.options import (
    Config,
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    between,
    one_of,
)
from connectors.topic_names import topic_name
from spark_jobs.config.keys import SHARDS
from spark_jobs.materializer import per_topic
from spark_jobs.materializer.engine.model import DEFAULT_GRACE_S, MergeOptions
from spark_jobs.spark.checkpoint import open_local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spark_jobs.dead_letters import DeadLetters
    from spark_jobs.materializer.contract import Engine

_B, _S, _I, _L, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
_HIGH, _LOW = Importance.HIGH, Importance.LOW
_OUT: Final = "Materializer: output"
_IN: Final = "Materializer: input and merge"
_STATE: Final = "Materializer: state"

#: Sources that the materializer merges; ``plain`` has no key, no time and no operation.
FORMATS: Final = ("partition-update", "debezium", "ums")
#: Names this process's crash in tests: ``<point>@<file>``, see ``bucket.crash``.
KILL_VARIABLE: Final = "MILLRACE_MATERIALIZER_KILL"


#: The number of buckets by key that the state has, 0 for one per input partition; in the checkpoint.
BUCKETS_FILE: Final = "_millrace_buckets"


def _check_positive(name: str, value: Any) -> str | None:
    return None if value is None else between(1, 10_000)(name, value)


def topic_template(name: str, value: Any) -> str | None:
    """A topic's name, which may hold ``${topic}``."""
    if value is None or topic_name(name, str(value).replace(per_topic.TOPIC, "t")) is None:
        return None
    return topic_name(name, value)


OPTIONS: Final = ConfigDef(
    [
        ConfigKey(
            name="sink.kafka.topic",
            type=_S,
            importance=_HIGH,
            group=_OUT,
            validator=topic_template,
            example="shop.orders.rows",
            doc="The topic of the row images. It is made with as many partitions as the input where it does not exist. "
            "`${topic}` stands for the input topic: then the job may read several, each with an output, a changelog and a "
            "state of its own.",
        ),
        ConfigKey(
            name="materializer.output.format",
            type=_S,
            default="debezium",
            importance=_HIGH,
            group=_OUT,
            validator=one_of("debezium", "ums", "yelp"),
            doc="The form of the events: Debezium's envelope (op, before, after), UMS, or Yelp's CREATE, UPDATE and DELETE.",
        ),
        ConfigKey(
            name="materializer.output.encoding",
            type=_S,
            default=None,
            group=_OUT,
            validator=one_of("json", "json-schemas", "avro"),
            doc="How keys and values are written; `json-schemas` writes the schema into each message. Not set: "
            "`avro` where a schema registry is given, else `json`.",
        ),
        ConfigKey(
            name="materializer.schema.registry.url",
            type=_S,
            default=None,
            group=_OUT,
            example="http://localhost:8081/apis/ccompat/v7",
            doc="The registry for the output's schemas. Not set: `source.schema.registry.url`, with all its properties.",
        ),
        ConfigKey(
            name="materializer.emit.unchanged",
            type=_B,
            default=False,
            group=_OUT,
            doc="Also write an UPDATE for an update that is new but changes nothing that can be seen (a later "
            "write of the same value). Updates that the state has seen already never give an event.",
        ),
        ConfigKey(
            name="materializer.tombstones.on.delete",
            type=_B,
            default=True,
            group=_OUT,
            doc="Write a null value after each DELETE, so that a compacted output topic forgets the row.",
        ),
        ConfigKey(
            name="materializer.output.heartbeats",
            type=_B,
            default=False,
            group=_OUT,
            doc="Whether the output gets heartbeats, so that jobs which read it measure the delay from the source: once every "
            "task of the source has promised in every input partition that all changes up to a time were sent "
            "(`heartbeat.to.tables`), a record without key and value goes to each partition of the output. Not for compacted "
            "outputs, which refuse records without a key, and not of UMS input.",
        ),
        ConfigKey(
            name="materializer.output.partitioner",
            type=_S,
            default="bucket",
            importance=_LOW,
            group=_OUT,
            validator=one_of("bucket", "murmur2"),
            doc="`bucket`: a row's events go to the partition that has the number of its input partition, so rows "
            "of a Cassandra partition stay together and in order. `murmur2`: by the hash of the key, as Java "
            "producers do; the output may then have any number of partitions. The events of one row are in "
            "order with both.",
        ),
        ConfigKey(
            name="materializer.output.compression.type",
            type=_S,
            default="lz4",
            importance=_LOW,
            group=_OUT,
            validator=one_of("none", "gzip", "snappy", "lz4", "zstd"),
            doc="Of output and changelog.",
        ),
        ConfigKey(
            name="materializer.record.max.bytes",
            type=_I,
            default=4 << 20,
            unit="bytes",
            importance=_LOW,
            group=_OUT,
            validator=between(1024, 1 << 30),
            doc="The largest event and the largest row of state. Topics that the job makes allow as much; topics "
            "that exist must (`max.message.bytes`). A larger one stops the job and names its key.",
        ),
        ConfigKey(
            name="materializer.key.columns",
            type=_LIST,
            default=(),
            group=_IN,
            example="id",
            doc="The columns of the primary key, for inputs that don't say it: UMS, and Debezium events whose "
            "Kafka key is not a struct.",
        ),
        ConfigKey(
            name="materializer.input.schemas",
            type=_LIST,
            default=(),
            importance=_LOW,
            group=_IN,
            example="/etc/orders.avsc",
            doc="Files with schemas (Avro, or Connect's JSON form) for JSON messages that carry none.",
        ),
        ConfigKey(
            name="materializer.tombstone.grace.s",
            type=_L,
            default=DEFAULT_GRACE_S,
            unit="s",
            group=_IN,
            validator=at_least(0),
            doc="How long a deletion is remembered, so that older writes that come late stay deleted: Cassandra's "
            "`gc_grace_seconds`. Updates that come later than that may bring a deleted row back.",
        ),
        ConfigKey(
            name="materializer.buckets",
            type=_I,
            default=None,
            group=_STATE,
            validator=_check_positive,
            doc="How many buckets the state has, each with a Spark task, a changelog partition and a transaction of its own. "
            "Not set: one for each input partition. With a number, rows are divided by their key and not by the input's "
            "partitions, so the input may be given partitions; that costs a second decoding and a shuffle of the input, and "
            "needs `materializer.output.partitioner=murmur2`. To change it, start the job from a savepoint "
            "(`source.savepoint`).",
        ),
        ConfigKey(
            name="materializer.changelog.topic",
            type=_S,
            default=None,
            group=_STATE,
            validator=topic_template,
            doc="The compacted topic that holds the state. Not set: `<name>-changelog`; `<name>-<input topic>-changelog` "
            "where `sink.kafka.topic` has `${topic}`. It is the truth: never delete it "
            "alone.",
        ),
        ConfigKey(
            name="materializer.changelog.min.compaction.lag.ms",
            type=_L,
            default=0,
            unit="ms",
            importance=_LOW,
            group=_STATE,
            validator=at_least(0),
            doc="Of the changelog topic when the job makes it: how long each change stays readable.",
        ),
        ConfigKey(
            name="materializer.changelog.delete.retention.ms",
            type=_L,
            default=7 * 86_400_000,
            unit="ms",
            importance=_LOW,
            group=_STATE,
            validator=at_least(60_000),
            doc="Of the changelog topic when the job makes it: how long it keeps the deletion of a row of state. A "
            "local cache that has not been used for half of this time is rebuilt, as it may have missed one.",
        ),
        ConfigKey(
            name="materializer.topics.replication.factor",
            type=_I,
            default=-1,
            group=_STATE,
            doc="Of topics that the job makes; -1: the brokers' default.",
        ),
        ConfigKey(
            name="materializer.transaction.max.changes",
            type=_I,
            default=50_000,
            unit="rows",
            group=_STATE,
            validator=between(1, 10_000_000),
            doc="The most rows of state that one Kafka transaction changes. With "
            "`materializer.transaction.max.bytes` it bounds the memory of a task, however large a batch or a "
            "deleted partition is.",
        ),
        ConfigKey(
            name="materializer.transaction.max.bytes",
            type=_L,
            default=32 << 20,
            unit="bytes",
            group=_STATE,
            validator=at_least(1024),
            doc="The most bytes of state that one transaction changes, and of input and of output that it holds.",
        ),
        ConfigKey(
            name="materializer.transaction.timeout.ms",
            type=_I,
            default=60_000,
            unit="ms",
            importance=_LOW,
            group=_STATE,
            validator=between(1000, 3_600_000),
            doc="After this time the broker ends a transaction whose task has died without a successor. Readers of "
            "the output wait for it. At most the brokers' `transaction.max.timeout.ms`.",
        ),
        ConfigKey(
            name="materializer.resident.buckets",
            type=_I,
            default=8,
            importance=_LOW,
            group=_STATE,
            validator=between(1, 1000),
            doc="How many buckets (input partitions) one Python worker process keeps open: each has a producer and a map.",
        ),
        ConfigKey(
            name="materializer.small.batch.records",
            type=_I,
            default=20_000,
            unit="records",
            importance=_LOW,
            group=_STATE,
            validator=between(0, 1_000_000),
            doc="Batches of at most this number of records are merged by a process next to the driver, which keeps its "
            "buckets open and reads the records from Kafka itself: that takes less time than Spark's tasks. With a local "
            "master and without `materializer.buckets` only. 0: Spark's tasks merge all batches.",
        ),
        ConfigKey(
            name="materializer.expiry.interval.ms",
            type=_L,
            default=1000,
            unit="ms",
            importance=_LOW,
            group=_STATE,
            validator=at_least(100),
            doc="How often the job looks for expired cells without input. While nothing is due it costs nothing.",
        ),
    ]
)


class MarkerOwner(msgspec.Struct, frozen=True):
    """The run of a job that wrote a marker. A run takes over from smaller epochs and gives way to all others."""

    epoch: int
    run: str


class Marker(msgspec.Struct, frozen=True):
    """The marker record: the last one of every transaction in the changelog, under the empty key; JSON.

    Attributes:
        next: the input offset to continue from; all records below it are in the state and in the output.
        sequence: the last ``ums_id_`` given out.
        topic: the input topic.
        topic_id: its id in Kafka: a topic that was recreated has another one.
        partitions: how many partitions it has.
        owner: who wrote it.
        writer: which producer wrote it: whoever has another one and finds this marker has been fenced.
        output_id: the id of the output topic that has everything below ``next``.
        replay: the state key (hex) to continue from while the output is being rebuilt into ``output_id``; None: it is
            complete.
        buckets: how many buckets by key the state has; 0: one for each input partition.
        positions: with buckets by key, the next offset by input partition, instead of ``next``.
        savepoint: the id of the savepoint that the state was started from; empty: none.
        restoring: the state is being written from that savepoint and is not complete.
        format: of this record.
    """

    next: int
    sequence: int
    topic: str
    topic_id: str
    partitions: int
    owner: MarkerOwner
    output_id: str
    writer: str = ""
    replay: str | None = None
    buckets: int = 0
    positions: dict[int, int] = {}
    savepoint: str = ""
    restoring: bool = False
    format: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketOptions:
    """The options of a task; picklable.

    Attributes:
        job: the job's name.
        owner: this run.
        client: confluent-kafka's configuration of every client.
        group: the consumer group that shows the lag.
        input_topic, input_id, partitions: the input.
        buckets: how many buckets by key; 0: one for each input partition.
        output_topic, output_id, partitioner: the output.
        rebuild_output: write the rows of the state to an output topic that lacks them, instead of refusing it.
        changelog_topic, changelog_id, delete_retention_ms: the state.
        state_dir: the folder of the caches on every machine.
        engine: makes an engine that continues after a sequence number.
        dead_letters: takes bad records; None: they stop the job.
        masked: whether the job masks columns: then nothing of a bad record is shown.
        kill: see ``bucket.crash``.
    """

    job: str
    owner: MarkerOwner
    client: dict[str, Any]
    group: str
    input_topic: str
    input_id: str
    partitions: int
    output_topic: str
    output_id: str
    changelog_topic: str
    changelog_id: str
    state_dir: str
    engine: Callable[[int], Engine]
    partitioner: str = "bucket"
    compression: str = "lz4"
    delete_retention_ms: int = 7 * 86_400_000
    max_changes: int = 50_000
    max_bytes: int = 32 << 20
    record_max_bytes: int = 4 << 20
    transaction_timeout_ms: int = 60_000
    resident_buckets: int = 8
    dead_letters: DeadLetters | None = None
    masked: bool = False
    rebuild_output: bool = False
    buckets: int = 0
    kill: str = ""

    @property
    def count(self) -> int:
        """How many buckets there are."""
        return self.buckets or self.partitions

    def folder(self, bucket: int) -> Path:
        """Where the cache of ``bucket`` is."""
        return Path(self.state_dir) / "buckets" / str(bucket)


@dataclass(frozen=True, slots=True)
class EngineFactory:
    """Makes engines in a task; what its engines share is kept per process (see ``residents.ResidentBuckets``)."""

    options: MergeOptions
    shared: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)

    def __getstate__(self) -> tuple[MergeOptions]:
        return (self.options,)

    def __setstate__(self, state: tuple[MergeOptions]) -> None:
        object.__setattr__(self, "options", state[0])
        object.__setattr__(self, "shared", {})

    def __call__(self, sequence: int) -> Engine:
        """Make an engine that continues after ``sequence``."""
        from spark_jobs.materializer.engine.engines import make_engine
        from spark_jobs.materializer.engine.resources import Resources

        if "resources" not in self.shared:
            self.shared["resources"] = Resources(self.options)
        return make_engine(self.options, sequence=sequence, resources=self.shared["resources"])

    def close(self) -> None:
        """Close what its engines share."""
        resources = self.shared.pop("resources", None)
        if resources is not None:
            resources.close()


def changelog_topic(config: Config) -> str:
    """The name of the job's changelog topic."""
    return str(config["materializer.changelog.topic"] or f"{config['name']}-changelog")


def find_loop(config: Config, topics: Iterable[str]) -> str:
    """Complain about input topics that the job would write itself; empty without one. Pure.

    Args:
        config: the job's.
        topics: the input topics.
    """
    read = set(topics)
    written = {
        name
        for table in (per_topic.config_for(config, topic) for topic in read)
        for name in (table["sink.kafka.topic"], changelog_topic(table))
    }
    both = ", ".join(sorted(read & written))
    return both and (
        f"source.topics.pattern matches {both}, which this job writes: it would read its own events. Choose another "
        "pattern, or other names (sink.kafka.topic, materializer.changelog.topic)"
    )


def read_registry_properties(config: Config) -> dict[str, str]:
    """Properties of the schema registry's client; empty without a registry."""
    registry_url = config["materializer.schema.registry.url"]
    if registry_url:
        return {"schema.registry.url": registry_url}
    prefix = "source.schema.registry."
    return {
        f"schema.registry.{name}" if name == "url" else name: value for name, value in config.prefixed(prefix).items()
    }


def merge_options(config: Config) -> MergeOptions:
    """The engine's options.

    Raises:
        OSError: a schema file can't be read.
    """
    registry_settings = read_registry_properties(config)
    return MergeOptions(
        topic=config["sink.kafka.topic"],
        name=config["name"],
        input_format=config["source.format"],
        input_encoding=config["source.value.encoding"],
        input_schemas=tuple(Path(name).read_text(encoding="utf-8") for name in config["materializer.input.schemas"]),
        registry=tuple(sorted(registry_settings.items())),
        key_columns=tuple(config["materializer.key.columns"]),
        output_format=config["materializer.output.format"],
        output_encoding=config["materializer.output.encoding"] or ("avro" if registry_settings else "json"),
        emit_unchanged=config["materializer.emit.unchanged"],
        tombstones_on_delete=config["materializer.tombstones.on.delete"],
        grace_s=config["materializer.tombstone.grace.s"],
        masks=tuple(sorted((name, value) for name, value in config.raw.items() if name.startswith("mask."))),
        shards=config[SHARDS],
    )


def find_problems(config: Config) -> list[str]:
    """Return the problems of the options in combination; the only I/O is reading schema files."""
    problems = []
    topics = config["source.topics"] or []
    problems += per_topic.problems_of(config, topics)
    if config["source.format"] not in FORMATS:
        problems.append(
            f"Invalid value {config['source.format']} for configuration source.format: the materializer merges "
            f"{', '.join(FORMATS)}"
        )
    if config["materializer.output.encoding"] == "avro" and not read_registry_properties(config):
        problems.append(
            "Missing required configuration materializer.schema.registry.url: materializer.output.encoding is avro"
        )
    for topic in topics:
        part = per_topic.config_for(config, topic)
        names = [*topics, part["sink.kafka.topic"], changelog_topic(part)]
        if len(set(names)) != len(names):
            problems.append(
                f"Invalid value {config['sink.kafka.topic']} for configuration sink.kafka.topic: input, "
                f"output and changelog ({', '.join(names)}) must be three topics"
            )
            break
    problems += bucket_complaints(config)
    problems += [
        f"Invalid value {name} for configuration materializer.input.schemas: no such file"
        for name in config["materializer.input.schemas"]
        if not Path(name).is_file()
    ]
    return problems


def bucket_complaints(config: Config) -> list[str]:
    """Complaints about ``materializer.buckets``; looks at the checkpoint if it is on this machine."""
    buckets = config["materializer.buckets"] or 0
    problems = []
    if buckets and config["materializer.output.partitioner"] != "murmur2":
        problems.append(
            f"Invalid value {config['materializer.output.partitioner']} for configuration "
            "materializer.output.partitioner: with materializer.buckets set, rows belong to no input partition; set it to "
            "murmur2"
        )
    folder = open_local(config["checkpoint.location"]) if config["checkpoint.location"] else None
    state_buckets = folder.read(BUCKETS_FILE) if folder is not None else None
    if state_buckets is not None and state_buckets.strip().isdigit() and int(state_buckets) != buckets:
        problems.append(
            f"Invalid value {buckets or 'null'} for configuration materializer.buckets: "
            f"{describe_bucket_change(int(state_buckets))}"
        )
    return problems


def describe_bucket_change(state_buckets: int) -> str:
    """The complaint where the state has another number of buckets by key than the job."""
    bucket_kind = f"{state_buckets} buckets by key" if state_buckets else "a bucket for each input partition"
    return (
        f"the state has {bucket_kind}, and that can't be changed while it is in use. Set it back, or make a savepoint "
        "(millrace job savepoint FILE --to DIR) and start the job from it with the new number: source.savepoint=DIR, a new "
        "checkpoint.location, state.dir and materializer.changelog.topic"
    )
