"""``sink.type=kafka``: copies records, or writes changed rows as JSON, Avro or UMS, into Kafka topics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from connectors.errors import Fatal, Retriable, Skippable
from spark_jobs.config.keys import STEPS
from spark_jobs.contract import UMS_COLUMNS, Batch, SchemaRefused, Sink, TableChanges
from spark_jobs.json_options import WHOLE
from spark_jobs.kafka import clients
from spark_jobs.kafka.groups import read_committed
from spark_jobs.kafka.topics import create_topic
from spark_jobs.metrics import JobMetric
from spark_jobs.namespaces import find_identity
from spark_jobs.reports.heartbeats import Heartbeats, heartbeat_text
from spark_jobs.reports.met_heartbeats import COLUMN, MetHeartbeat
from spark_jobs.sinks.kafka import ums
from spark_jobs.sinks.kafka.avro import REGISTRY, avro_rows, in_arrow, registry_options
from spark_jobs.sinks.kafka.config import (
    AVRO,
    CONFIG,
    HEADER,
    JSON,
    PRODUCER,
    TOPIC_CONFIG,
    UMS,
    KafkaSinkSettings,
    group_of,
    table_group,
    target_topic,
)
from spark_jobs.sinks.kafka.markers import explain_failure
from spark_jobs.sinks.kafka.partitioners import BUILT_IN, GROUP, list_partitioners
from spark_jobs.sinks.kafka.templates import PLACEHOLDER, column_of, text_column, text_template, topic_column
from spark_jobs.sinks.kafka.writer import EXPLAIN, no_points, write_all
from spark_jobs.spark.causes import cause_of
from spark_jobs.spark.frames import number_columns
from spark_jobs.spark.map_keys import has_other_keys, with_text_keys
from spark_jobs.spark.worker_memory import frozen_after
from worker.converters.avro import AvroConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import TableSchema
    from spark_jobs.sinks.kafka.avro import AvroRowFormat

_TIMEOUT_S: Final = 30.0
#: Kafka's own ``max.message.bytes``.
_DEFAULT_RECORD_SIZE: Final = 1_048_588
#: A group without members forgets positions (a week by default): they are renewed so often.
_RENEW_S: Final = 3600.0
#: Topics that the rows of one batch may name by a column.
_MOST_TOPICS: Final = 1000
_RESULT: Final = "topic string, partition int, written long, skipped long, heartbeats string"


class KafkaSink(Sink):
    """See docs/jobs/kafka.md."""

    config_def: ClassVar[ConfigDef] = CONFIG
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    not_read_back: ClassVar[str] = "a topic keeps every change as a record: there is no row of a key to compare"
    pass_through: ClassVar[tuple[str, ...]] = (PRODUCER, TOPIC_CONFIG, HEADER, REGISTRY)

    metrics: ClassVar[tuple[JobMetric, ...]] = (
        JobMetric("kafka_sink_skipped_total", "counter", "records", "Records left out: written before a crash."),
    )

    #: Called in tasks at points of a transaction; only tests set it.
    points: Callable[[str], None] = staticmethod(no_points)

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Complaints about options that don't go together."""
        problems = []
        rows = config["sink.kafka.content"] == "rows"
        template = str(config["sink.kafka.topic"])
        tables = [name for name in PLACEHOLDER.findall(template) if name != "topic"]
        if tables and not rows:
            problems.append(
                f"sink.kafka.topic: ${{{tables[0]}}} needs sink.kafka.content=rows: records are passed on without being read"
            )
        if config["sink.kafka.key"] == "columns" and not (rows and config["sink.kafka.key.columns"]):
            problems.append("sink.kafka.key: columns needs sink.kafka.content=rows and sink.kafka.key.columns")
        problems += _check_columns(config)
        if config.get("source.min.partitions") and config.get("guarantee") in {None, "exactly-once"}:
            problems.append(
                "guarantee: exactly-once can't be had with source.min.partitions: one partition would be written "
                "by several tasks"
            )
        servers = config.prefixed(PRODUCER).get("bootstrap.servers", config["kafka.bootstrap.servers"])
        if servers != config["kafka.bootstrap.servers"] and config.get("guarantee") in {None, "exactly-once"}:
            problems.append(
                "guarantee: exactly-once can't be had into another cluster, where positions of this one's topics "
                "can't be kept; set at-least-once"
            )
        kind = config.get("source.type") or "kafka"
        if kind != "kafka" and config.get("guarantee") in {None, "exactly-once"}:
            problems.append(
                f"guarantee: exactly-once can't be had with source.type={kind}: the position is kept as an offset of the "
                "topic that is read; set at-least-once"
            )
        topics = config.get("source.topics") or []
        if not rows and any(target_topic(template, topic, "") in topics for topic in topics):
            problems.append("sink.kafka.topic: the job would read what it writes; name another topic")
        return problems

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Describe what the sink would write, and where."""
        template = str(config["sink.kafka.topic"])
        if config["sink.kafka.content"] == "rows" or not config.get("source.topics"):
            return [f"writes {config['sink.kafka.content']} to topic {template}"]
        return [f"copies topic {topic} to {target_topic(template, topic, '')}" for topic in config["source.topics"]]

    def open(self) -> None:
        """Ask Kafka for what is there; makes the topic of markers."""
        config = self.context.config
        self._guarantee = str(config.get("guarantee") or self.guarantees[0])
        self._client = clients.build_client_config(config) | dict(config.prefixed(PRODUCER).items())
        self._group = group_of(config)
        self._markers = f"{self._group}-markers"
        self._targets: dict[str, int] = {}
        self._sources: dict[str, tuple[str, int]] = {}
        self._positions: dict[tuple[str, str, int], int] = {}
        self._renewed = time.monotonic()
        #: Whether the next attempt has to find out which record Kafka refuses.
        self._explain = False
        if self._guarantee == "exactly-once":
            self._ensure_topic(self._markers, 1, {"cleanup.policy": "compact"}, internal=True)

    def write(self, batch: Batch) -> int:
        """Write one batch; see ``Sink.write``."""
        if self.context.config["sink.kafka.content"] == "records":
            columns = ["topic", "partition", "offset", "timestamp", "key", "value"]
            if self.context.config["sink.kafka.headers"]:
                columns.append("headers")
            rows = batch.raw.select(*columns, heartbeat_text().alias(COLUMN))
            return self._write_rows(batch, rows, "", dict.fromkeys((topic for topic, _ in batch.ranges), ""))
        return sum(self._write_table(batch, table) for table in batch.changes())

    def _write_table(self, batch: Batch, table: TableChanges) -> int:
        from pyspark.sql import functions as f

        config = self.context.config
        names = [column.name for column in table.schema.columns]
        frame = number_columns(table.frame, len(names))
        keys = (
            table.schema.key_with_shard(config["sink.kafka.key.columns"])
            if config["sink.kafka.key"] == "columns"
            else [column.name for column in table.schema.key]
        )
        missing = [name for name in keys if name not in names]
        if missing:
            raise Fatal(
                f"sink.kafka.key.columns: table {table.schema.namespace} has no column {', '.join(missing)}; it has "
                f"{', '.join(names)}"
            )
        namespace = find_identity(table.schema.namespace)
        columns_by_name = {name: f.col(f"c{number}").alias(name) for number, name in enumerate(names)}
        key, values, encoding = self._choose_form(table.schema, keys, columns_by_name)
        if config["sink.kafka.key"] == "template":
            key = text_column(
                "sink.kafka.key.template", str(config["sink.kafka.key.template"]), namespace, columns_by_name
            )
        headers = {
            name: text_column(f"{HEADER}{name}", template, namespace, columns_by_name)
            for name, template in config.prefixed(HEADER).items()
        }
        time_of = f.col("ums_ts_")
        if config["sink.kafka.timestamp.column"]:
            time_of = f.coalesce(_time_column(config["sink.kafka.timestamp.column"], table, columns_by_name), time_of)
        target = topic_column("sink.kafka.topic", str(config["sink.kafka.topic"]), namespace, columns_by_name)
        rows = frame.select(
            f.col("kafka_topic_").alias("topic"),
            f.col("kafka_partition_").alias("partition"),
            f.col("kafka_offset_").alias("offset"),
            time_of.alias("timestamp"),
            key.cast("binary").alias("key"),
            *values,
            *_header_column(headers),
            *([] if target is None else [target.alias("target")]),
        )
        if config.raw.get(STEPS) and self._guarantee == "exactly-once":
            # A step may have shuffled rows, and a source partition is one transaction: its rows go to one task, in order.
            parts = rows.repartition(len(batch.ranges), "topic", "partition")
            rows = parts.sortWithinPartitions("topic", "partition", "offset")
        return self._write_rows(batch, rows, namespace, {topic: namespace for topic, _ in batch.ranges}, encoding)

    def _choose_form(
        self, schema: TableSchema, keys: Sequence[str], by_name: Mapping[str, Column]
    ) -> tuple[Column, list[Column], AvroRowFormat | None]:
        """The column of the key, the columns of the value, and how tasks encode these (None: the value is bytes)."""
        from pyspark.sql import functions as f

        config = self.context.config
        form, by_columns = config["sink.kafka.format"], config["sink.kafka.key"] == "columns"
        named = dict(by_name)
        for column in schema.columns:
            if has_other_keys(column.type):
                named[column.name] = with_text_keys(by_name[column.name], column.type).alias(column.name)
        key = f.to_json(f.struct(*[named[name] for name in keys]), WHOLE) if keys else f.lit(None).cast("string")
        if form == AVRO:
            avro_keys = keys if by_columns or config["sink.kafka.key"] == "as-is" else []
            encoding = avro_rows(schema, avro_keys, registry_options(config))
            columns = [_in_arrow(by_name[column.name], column.type) for column in schema.columns]
            numbered_columns = [column.alias(f"c{number}") for number, column in enumerate(columns)]
            return key, [*numbered_columns, *map(f.col, UMS_COLUMNS)], encoding
        if form == UMS:
            if not by_columns:
                key = ums.key_column(schema, self.context.name, [named[name] for name in keys])
            value = ums.message_column(schema, self.context.name, by_name)
        else:
            value = f.to_json(f.struct(*named.values(), *UMS_COLUMNS), WHOLE)
        return key, [value.cast("binary").alias("value")], None

    def _write_rows(
        self,
        batch: Batch,
        rows: DataFrame,
        stream: str,
        namespaces: Mapping[str, str],
        encoding: AvroRowFormat | None = None,
    ) -> int:
        config = self.context.config
        topics, targets = {}, {}
        by_column = self._named_by_rows(rows, stream) if "target" in rows.columns else {}
        last_partitions = find_last_partitions(batch.ranges)
        for topic, namespace in namespaces.items():
            target = target_topic(str(config["sink.kafka.topic"]), topic, namespace)
            last = last_partitions[topic]
            for name in by_column.get(topic, ()):
                targets[name] = self._count_target_partitions(name, topic, last)
            topics[topic] = (target, 0 if by_column else self._count_target_partitions(target, topic, last))
        if encoding is not None:
            self._register_table(encoding, stream, targets or [target for target, _ in topics.values()])
        settings = KafkaSinkSettings(
            self.context.name,
            self._client,
            self._guarantee,
            stream,
            table_group(self._group, stream) if stream else self._group,
            self._markers,
            {topic: self._sources[topic][0] for topic in topics},
            topics,
            str(config["sink.kafka.partitioner"]),
            config["sink.kafka.key"] == "none",
            config["sink.kafka.timestamps"],
            str(config["sink.kafka.acks"]),
            config["sink.kafka.transaction.timeout.ms"],
            self._explain,
            targets,
            encoding,
        )
        task = _make_task(settings, dict(batch.ranges), self.points)
        try:
            result_rows = rows.mapInArrow(frozen_after("kafka", task), _RESULT).collect()
        except Exception as error:
            cause = cause_of(error)
            self._explain = EXPLAIN in str(cause)
            raise cause from error
        self._explain = False
        for row in result_rows:
            self._positions[settings.group, row["topic"], row["partition"]] = batch.ranges[
                row["topic"], row["partition"]
            ][1]
            Heartbeats.of(self.context).note_met(msgspec.json.decode(row["heartbeats"], type=list[MetHeartbeat]))
        skipped = sum(row["skipped"] for row in result_rows)
        if skipped:
            self.context.log.info(
                "batch %d: %d records of %s were written before a crash and are left out",
                batch.id,
                skipped,
                stream or "the batch",
            )
        self.context.metrics["kafka_sink_skipped_total"] = (
            self.context.metrics.get("kafka_sink_skipped_total", 0.0) + skipped
        )
        return sum(int(row["written"]) for row in result_rows)

    def _named_by_rows(self, rows: DataFrame, namespace: str) -> dict[str, list[str]]:
        """The topics that the rows of a batch name by a column, by source topic.

        Raises:
            Fatal: a row names none, or there are too many.
        """
        option = f"sink.kafka.topic: table {namespace}"
        names = rows.select("topic", "target").distinct().limit(_MOST_TOPICS + 1).collect()
        if len(names) > _MOST_TOPICS:
            raise Fatal(
                f"{option}: the rows of one batch name more than {_MOST_TOPICS} topics; use a column with fewer values"
            )
        topics: dict[str, list[str]] = {}
        for row in names:
            if not row["target"]:
                at = rows.where("target IS NULL OR target = ''").select("topic", "partition", "offset").first()
                where = f"{at['topic']}-{at['partition']} offset {at['offset']}" if at is not None else row["topic"]
                raise Fatal(
                    f"{option}: the row of {where} names no topic: a column of the template is null. Leave such rows out "
                    "(transform.steps), or give the column a value (coalesce in a step of type sql)"
                )
            topics.setdefault(row["topic"], []).append(row["target"])
        return topics

    def _register_table(self, encoding: AvroRowFormat, namespace: str, topics: Iterable[str]) -> None:
        """Give the registry the schemas of a table, so that a refusal is known before a task writes.

        Raises:
            SchemaRefused: the registry takes no such schema, which an incompatible change is.
        """
        for topic in topics:
            try:
                encoding.register(topic)
            except Skippable as error:
                raise SchemaRefused(f"table {namespace}, topic {topic}: {error}", namespace) from error

    def idle(self) -> None:
        """Renew the positions in the group, so that they don't expire while a source is quiet."""
        if self._guarantee != "exactly-once" or time.monotonic() - self._renewed < _RENEW_S:
            return
        self._renewed = time.monotonic()
        self._renew_positions()

    def _renew_positions(self) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        groups: dict[str, list[Any]] = {}
        for group, topic, partition in self._positions:
            groups.setdefault(group, []).append(TopicPartition(topic, partition))
        for group, partitions in groups.items():
            consumer = Consumer(
                {**self._client, "group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
            )
            try:
                # Metadata goes along as it was: it says whose the position is.
                there = [
                    position for position in read_committed(consumer, partitions, _TIMEOUT_S) if position.offset >= 0
                ]
                if there:
                    consumer.commit(offsets=there, asynchronous=False)
            except KafkaException as error:
                raise Retriable(f"Kafka sink: the positions of group {group} can't be renewed: {error}") from error
            finally:
                consumer.close()

    # Topics.

    def _count_target_partitions(self, target: str, topic: str, partition: int) -> int:
        """The number of the target's partitions; makes it, or gives it more, if need be.

        Args:
            target: the topic to write to.
            topic: the source.
            partition: the last of the source's partitions that the batch has.
        """
        config = self.context.config
        if self._sources.get(topic, ("", 0))[1] <= partition:  # not asked yet, or the source has grown
            self._sources[topic] = self._describe_topic(topic, source=True) or ("", 0)
            self._targets.pop(target, None)
        partitions = max(self._sources[topic][1], partition + 1)
        if target not in self._targets:
            configured_count = config["sink.kafka.topic.partitions"]
            properties = self._record_size(topic) | dict(config.prefixed(TOPIC_CONFIG))
            self._targets[target] = self._ensure_topic(
                target, partitions if configured_count < 1 else configured_count, properties
            )
        if config["sink.kafka.partitioner"] == "source" and self._targets[target] < partitions:
            present_count = self._targets.pop(target)
            if not config["sink.kafka.topic.grow"]:
                raise Fatal(
                    f"Kafka sink: topic {target} has fewer partitions ({present_count}) than {topic} ({partitions}), so "
                    "partitions "
                    f"can't be kept. Give it as many (kafka-topics.sh --alter --topic {target} --partitions {partitions}, or "
                    "sink.kafka.topic.grow=true), or set sink.kafka.partitioner=key."
                )
            self._targets[target] = self._add_partitions(target, partitions)
        return self._targets[target]

    def _record_size(self, topic: str) -> dict[str, str]:
        """``max.message.bytes`` for a copy of ``topic``; empty where Kafka's default will do."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

        admin = AdminClient(clients.build_client_config(self.context.config))
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            topic_config = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result(
                2 * _TIMEOUT_S
            )
        except (KafkaException, TimeoutError) as error:  # the right to look at it may be missing
            self.context.log.warning("the max.message.bytes of topic %s is not known: %s", topic, error)
            return {}
        size = int(topic_config["max.message.bytes"].value or 0)
        return {"max.message.bytes": str(size)} if size > _DEFAULT_RECORD_SIZE else {}

    def _add_partitions(self, name: str, partitions: int) -> int:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

        admin = AdminClient(self._client)
        try:
            admin.create_partitions([NewPartitions(name, partitions)])[name].result(2 * _TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            raise _judge_error(error, f"topic {name} can't be given {partitions} partitions") from error
        self.context.log.warning("topic %s was given partitions, it has %d now", name, partitions)
        return self._wait_for_partitions(name, partitions)

    def _wait_for_partitions(self, name: str, partitions: int) -> int:
        """Wait until the brokers show a topic with at least ``partitions`` partitions; return how many they show."""
        deadline = time.monotonic() + _TIMEOUT_S
        while (topic := self._describe_topic(name)) is None or topic[1] < partitions:
            if time.monotonic() > deadline:
                raise Retriable(f"Kafka sink: topic {name} was made or changed, but no broker shows it")
            time.sleep(0.1)
        return topic[1]

    def _ensure_topic(
        self, name: str, partitions: int, properties: Mapping[str, str], *, internal: bool = False
    ) -> int:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stub forgets one

        present_topic = self._describe_topic(name)
        if present_topic is not None:
            return present_topic[1]
        config = self.context.config
        if not (internal or config["sink.kafka.topic.create"]):
            raise Fatal(f"Kafka sink: topic {name} is not there, and sink.kafka.topic.create=false. Make it.")
        admin = AdminClient(self._client)
        topic = NewTopic(name, partitions, config["sink.kafka.topic.replication.factor"], config=dict(properties))
        try:
            create_topic(admin, topic, _TIMEOUT_S)
        except KafkaException as error:
            raise _judge_error(error, f"topic {name} can't be made") from error
        return self._wait_for_partitions(name, 1)

    def _describe_topic(self, name: str, *, source: bool = False) -> tuple[str, int] | None:
        """Id and number of partitions of a topic, or None."""
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(clients.build_client_config(self.context.config) if source else self._client)
        try:
            description = admin.describe_topics(TopicCollection([name]), request_timeout=_TIMEOUT_S)[name].result(
                2 * _TIMEOUT_S
            )
        except TimeoutError as error:
            raise Retriable(f"Kafka sink: topic {name} can't be looked up: Kafka does not answer") from error
        except KafkaException as error:
            if error.args[0].name() in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"}:
                return None
            raise explain_failure(error, f"topic {name} can't be looked up") from error
        return str(description.topic_id), len(description.partitions)


def find_last_partitions(where: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The largest number of each topic's partitions. Pure."""
    last: dict[str, int] = {}
    for topic, partition in where:
        last[topic] = max(partition, last.get(topic, -1))
    return last


def _check_columns(config: Config) -> list[str]:
    """Complaints about templates, the column of timestamps and the partitioner."""
    problems = []
    rows = config["sink.kafka.content"] == "rows"
    headers = config.prefixed(HEADER)
    if (config["sink.kafka.key"] == "template") != bool(config["sink.kafka.key.template"]):
        problems.append("sink.kafka.key.template: sink.kafka.key=template and this option need each other")
    row_options = [name for name in ("sink.kafka.key.template", "sink.kafka.timestamp.column") if config[name]]
    if config["sink.kafka.format"] != JSON:
        row_options.append("sink.kafka.format")
    avro, url = config["sink.kafka.format"] == AVRO, config["sink.kafka.schema.registry.url"]
    if avro and not url:
        problems.append(
            "sink.kafka.schema.registry.url: is missing; sink.kafka.format=avro registers its schemas there"
        )
    if url and not avro:
        problems.append("sink.kafka.schema.registry.url: it has an effect with sink.kafka.format=avro only")
    if avro:
        problems += [
            f"{REGISTRY}{problem.name.removeprefix('schema.registry.')}: {problem.message}"
            for problem in AvroConverter.config_problems(registry_options(config))
        ]
    if not rows:
        problems += [
            f"{name}: it needs sink.kafka.content=rows" for name in (*row_options, *(HEADER + name for name in headers))
        ]
    if config["sink.kafka.timestamp.column"] and not config["sink.kafka.timestamps"]:
        problems.append("sink.kafka.timestamp.column: it needs sink.kafka.timestamps=true")
    for name, template in headers.items():
        wrong = text_template(f"{HEADER}{name}", template)
        if wrong:
            problems.append(f"{HEADER}{name}: {wrong}")
    partitioner = config["sink.kafka.partitioner"]
    if partitioner not in (*BUILT_IN, *list_partitioners()):
        problems.append(
            f"sink.kafka.partitioner: no installed package has an entry point {partitioner} in the group {GROUP}; there are "
            f"{', '.join([*BUILT_IN, *list_partitioners()])}"
        )
    return problems


def _in_arrow(column: Column, kind: DataType) -> Column:
    """A column as tasks get it for Avro."""
    from pyspark.sql import functions as f

    if in_arrow(kind):
        return column
    return f.to_json(column, WHOLE) if kind.typeName() == "variant" else column.cast("string")


def _header_column(headers: Mapping[str, Column]) -> list[Column]:
    """The column ``headers`` as Spark's Kafka source has it; empty where there are none."""
    from pyspark.sql import functions as f

    if not headers:
        return []
    pairs = [f.struct(f.lit(name).alias("key"), value.alias("value")) for name, value in headers.items()]
    return [f.array(*pairs).alias("headers")]


def _time_column(name: str, table: TableChanges, columns: Mapping[str, Column]) -> Column:
    """The column of timestamps as a timestamp."""
    from pyspark.sql import functions as f

    option = "sink.kafka.timestamp.column"
    column = column_of(option, name, table.schema.namespace, columns)
    kind = next(field.type.simpleString() for field in table.schema.columns if field.name == name)
    if kind not in {"timestamp", "bigint"}:
        raise Fatal(
            f"{option}: column {name} of table {table.schema.namespace} has the type {kind}; a timestamp or a bigint of "
            "milliseconds is needed"
        )
    return f.timestamp_millis(column) if kind == "bigint" else column


def _judge_error(error: Exception, message: str) -> Exception:
    """The error for an answer of the admin client; a missing answer (``TimeoutError``) and transient faults are retried."""
    if isinstance(error, TimeoutError):
        return Retriable(f"Kafka sink: {message}: Kafka does not answer")
    cause = error.args[0]
    kind = Retriable if cause.retriable() else Fatal
    return kind(f"Kafka sink: {message}: {cause.str()}. Do it yourself, or correct sink.kafka.topic.*.")


def _make_task(
    settings: KafkaSinkSettings, ranges: dict[tuple[str, int], tuple[int, int]], points: Callable[[str], None]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for written in write_all(batches, settings, ranges, points):
            yield pa.RecordBatch.from_pydict(
                {
                    "topic": [written.topic],
                    "partition": pa.array([written.partition], pa.int32()),
                    "written": [written.written],
                    "skipped": [written.skipped],
                    "heartbeats": [msgspec.json.encode(written.heartbeats).decode()],
                }
            )

    return run
