"""The materializer as a sink of the frame: one Spark task per input partition, results and due times back on the driver."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from connectors.errors import Fatal, Retriable
from connectors.formats.masking import rule_names
from spark_jobs import clients
from spark_jobs.causes import cause_of
from spark_jobs.checkpoint import open_folder
from spark_jobs.contract import Batch, JobContext, Sink
from spark_jobs.materializer import config as options
from spark_jobs.materializer import topics
from spark_jobs.materializer.bucket import Range, Result, decode_result, guarded
from spark_jobs.materializer.changelog import Changelog
from spark_jobs.materializer.config import BucketOptions, EngineFactory, Marker, Owner
from spark_jobs.materializer.contract import Input
from spark_jobs.materializer.routing import by_key
from spark_jobs.materializer.stages import StageNumbers
from spark_jobs.materializer.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from connectors.options import Config
    from spark_jobs.materializer.contract import Engine

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
_SCHEMA: Final = "result string"


class MaterializerSink(Sink):
    """Merges updates into row images and writes them to Kafka, exactly once; see docs/jobs/materializer.md."""

    config_def: ClassVar = options.OPTIONS
    guarantees: ClassVar = ("exactly-once",)

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._options: BucketOptions
        self._timers = Timers()
        #: Buckets that have a marker.
        self._known: set[int] = set()
        self._idled = 0.0
        self._totals: dict[str, float] = dict.fromkeys(
            (
                "records",
                "replayed",
                "outputs",
                "suppressed",
                "dead",
                "expired",
                "changes",
                "transactions",
                "redone",
                "restored",
                "restore_s",
                "transaction_s",
                "cpu_s",
            ),
            0,
        )
        self._sizes: dict[int, tuple[int, int]] = {}
        self._stages = StageNumbers()

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """See ``config.complaints``."""
        return options.complaints(config)

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether input, output and changelog are what they must be, as far as they exist. Blocks."""
        try:
            admin = topics.Topics(clients.confluent(config))
            found = admin.find(config["source.topics"][0])
            if found is None:
                return [
                    (
                        f"source.topics: topic {config['source.topics'][0]} does not exist; it is needed before the job's "
                        "first start, as the changelog gets as many partitions"
                    )
                ]
            changelog, output = admin.find(options.changelog_topic(config)), admin.find(config["sink.kafka.topic"])
            return _complaints(config, found, changelog, output)
        except (Retriable, Fatal) as error:
            return [f"kafka.bootstrap.servers: {error}"]

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """The topics and what would be made. Blocks."""
        changelog, output = options.changelog_topic(config), config["sink.kafka.topic"]
        lines = [
            f"state: topic {changelog} (compacted), cached in {config['state.dir']}",
            f"output: topic {output}, {config['materializer.output.format']}, transactions {config['name']}-<partition>",
        ]
        try:
            admin = topics.Topics(clients.confluent(config))
            for name in (changelog, output):
                found = admin.find(name)
                lines.append(
                    f"topic {name} " + ("would be made" if found is None else f"exists, {found.partitions} partitions")
                )
        except (Retriable, Fatal) as error:
            lines.append(f"Kafka can't be asked: {error}")
        return lines

    @classmethod
    def save_state(cls, config: Config, spark: SparkSession, location: str) -> dict[str, Any]:
        """See ``savepoint.save_state``."""
        from spark_jobs.materializer.savepoint import save_state

        return save_state(spark, config, location)

    @classmethod
    def restore_state(
        cls, config: Config, spark: SparkSession, location: str, savepoint: str, state: Mapping[str, Any]
    ) -> None:
        """See ``savepoint.restore_state``."""
        from spark_jobs.materializer.savepoint import check_buckets, read_saved, restore_state

        # Before topics are made, which a job that is refused would leave behind.
        source = topics.Topics(clients.confluent(config)).require(config["source.topics"][0])
        check_buckets(read_saved(state, location), config["materializer.buckets"] or 0, source.partitions, source.name)
        log = logging.getLogger(f"spark_jobs.{config['name']}")
        bucket_options = prepare(config, EngineFactory(options.merge_options(config)), None, log=log.warning)
        count = restore_state(spark, config, bucket_options, location, savepoint, state, log.warning)
        log.info("the state of %d buckets was written from the savepoint %s", count, location)

    def engine(self) -> Callable[[int], Engine]:
        """What makes engines in the tasks; must be picklable."""
        return EngineFactory(options.merge_options(self.context.config))

    # The frame's calls

    def open(self) -> None:
        """Make or check the topics, and take the job over from an earlier run.

        Raises:
            Retriable, Fatal: see ``Topics``; topics that can't be used.
        """
        self._options = prepare(self.context.config, self.engine(), self._letters(), log=self.context.log.warning)
        changelog = Changelog(self._options.client, self._options.changelog_topic, self._options.group)
        try:
            markers = read_markers(changelog, self._options.count)
        finally:
            changelog.close()
        if self.context.config["checkpoint.location"]:
            folder = open_folder(self.context.config["checkpoint.location"], self.context.spark)
            folder.write(options.BUCKETS_FILE, f"{self._options.buckets}\n")
        self._options = owned(self._options, markers)
        self._known = set(markers)
        self._timers.ask(markers)

    def _letters(self) -> Any:
        if self.context.config["errors.tolerance"] != "all":
            return None
        from spark_jobs.dead_letters import DeadLetters

        return DeadLetters.of(self.context)

    def write(self, batch: Batch) -> int:
        """Merge one batch; returns the number of records written to the output.

        Raises:
            Retriable, Fatal: of any bucket. The others' work stays, and is skipped when the batch comes again.
        """
        if not self._known and batch.id > 0:
            raise Fatal(
                f"the job is at batch {batch.id}, but the changelog {self._options.changelog_topic} has no marker: "
                "the state was lost (was the topic deleted?). Run millrace job rebuild with --state to make it again "
                "from the input, or give the job another name and checkpoint to begin anew."
            )
        if self._options.buckets:
            return self._write_by_key(batch)
        spans = {
            partition: Range(start, end, first=partition not in self._known)
            for (_, partition), (start, end) in batch.ranges.items()
        }
        beyond = [partition for partition in spans if partition >= self._options.partitions]
        if beyond:
            raise Fatal(
                f"{self._options.input_topic} was given partitions ({max(beyond) + 1}, it had "
                f"{self._options.partitions} when the job started): rows may have moved to other partitions, "
                "away from their state. Run millrace job rebuild with --state."
            )
        if not spans:
            return 0
        rows = self._collect(batch.raw.select(*_COLUMNS).mapInArrow(stream_task(self._options, spans), _SCHEMA))
        # A range may hold no record at all (control records of transactions, compaction): its marker moves too.
        done = {each.bucket for each in rows}
        empty = {bucket: span for bucket, span in spans.items() if bucket not in done}
        if empty:
            rows += self._maintain(empty)
        return self._account(rows)

    def _write_by_key(self, batch: Batch) -> int:
        parts = {partition: span for (_, partition), span in batch.ranges.items()}
        if not parts:
            return 0
        spans = {bucket: Range(first=bucket not in self._known, parts=parts) for bucket in range(self._options.buckets)}
        rows = self._collect(by_key(batch.raw.select(*_COLUMNS), self._options, spans))
        raise_errors(rows)
        # Every bucket's marker moves with every batch: then all stand at the same offsets between two batches.
        empty = {bucket: span for bucket, span in spans.items() if bucket not in {row.bucket for row in rows}}
        if empty:
            rows += self._maintain(empty)
        return self._account(rows)

    def idle(self) -> None:
        """Expire what is due. Costs nothing while nothing is.

        Raises:
            Retriable, Fatal: of any bucket.
        """
        now = time.monotonic()
        if now - self._idled < self.context.config["materializer.expiry.interval.ms"] / 1000:
            return
        self._idled = now
        due = self._timers.due(time.time())
        if due:
            self._account(self._maintain({bucket: Range() for bucket in due}))

    def _maintain(self, spans: Mapping[int, Range]) -> list[Result]:
        return self._collect(buckets_frame(self.context.spark, self._options, spans))

    def _collect(self, frame: Any) -> list[Result]:
        try:
            return [decode_result(row[0]) for row in frame.collect()]
        except Exception as error:
            raise cause_of(error) from error

    def _account(self, rows: Sequence[Result]) -> int:
        for each in rows:
            if not each.error:
                self._known.add(each.bucket)
                self._timers.report(each.bucket, each.next_due)
                self._sizes[each.bucket] = each.rows, each.bytes
            if each.discarded:
                self.context.log.warning(
                    "the state cache of bucket %d was thrown away: %s", each.bucket, each.discarded
                )
            if each.restored > 10_000:
                self.context.log.info(
                    "bucket %d read %d records of state in %.1f s", each.bucket, each.restored, each.restore_s
                )
            for name in self._totals:
                self._totals[name] += getattr(each, name)
        metrics = self.context.metrics
        for name, value in self._totals.items():
            metrics[f"materializer_{name}_total"] = value
        metrics["materializer_state_rows"] = sum(each[0] for each in self._sizes.values())
        metrics["materializer_state_bytes"] = sum(each[1] for each in self._sizes.values())
        outputs = sum(each.outputs for each in rows)
        if outputs:
            metrics["materializer_publish_latency_ms"] = sum(each.latency_ms for each in rows) / outputs
        transactions = sum(each.transactions for each in rows)
        if transactions:
            metrics["materializer_transaction_ms"] = 1000 * sum(each.transaction_s for each in rows) / transactions
        metrics |= self._stages.metrics(each.stages for each in rows)
        raise_errors(rows)
        return outputs


def buckets_frame(spark: SparkSession, found: BucketOptions, spans: Mapping[int, Range]) -> Any:
    """A frame whose collection runs a pass without input over each bucket of ``spans``, one task each."""
    return spark.range(0, len(spans), 1, len(spans)).mapInArrow(idle_task(found, dict(spans)), _SCHEMA)


def run_buckets(spark: SparkSession, found: BucketOptions, spans: Mapping[int, Range]) -> list[Result]:
    """Run a pass without input over each bucket. Blocks; errors are in the results."""
    return [decode_result(row[0]) for row in buckets_frame(spark, found, spans).collect()]


def raise_errors(rows: Sequence[Result]) -> None:
    """Raise what the buckets could not do: ``Fatal`` before ``Retriable``."""
    for kind, error in (("Fatal", Fatal), ("Skippable", Fatal), ("Retriable", Retriable)):
        texts = [each.text for each in rows if each.error == kind]
        if texts:
            raise error("\n".join(dict.fromkeys(texts)))


def _complaints(
    config: Config, source: topics.Topic, changelog: topics.Topic | None, output: topics.Topic | None
) -> list[str]:
    most = config["materializer.record.max.bytes"]
    buckets = config["materializer.buckets"] or 0
    problems = []
    if changelog is not None:
        problems += topics.changelog_complaints(
            changelog, partitions=source.partitions, buckets=buckets, record_max_bytes=most
        )
    if output is not None:
        problems += topics.size_complaints(output, most)
        if config["materializer.output.partitioner"] == "bucket" and output.partitions < source.partitions:
            problems.append(
                f"the output topic {output.name} has {output.partitions} partitions, the input "
                f"{source.partitions}: give it as many, or set materializer.output.partitioner=murmur2"
            )
    return problems


def prepare(
    config: Config,
    engine: Callable[[int], Engine],
    dead_letters: Any,
    *,
    rebuild_output: bool = False,
    log: Callable[..., None] = lambda *_: None,
) -> BucketOptions:
    """Make or check the job's topics; what the tasks have to know, with an owner of epoch 0. Blocks.

    Raises:
        Retriable: no broker answers.
        Fatal: a topic can't be used or made.
    """
    client = clients.confluent(config)
    admin = topics.Topics(client)
    source = admin.require(config["source.topics"][0])
    most = config["materializer.record.max.bytes"]
    replication = config["materializer.topics.replication.factor"]
    name, target = options.changelog_topic(config), config["sink.kafka.topic"]
    changelog, output = admin.find(name), admin.find(target)
    problems = _complaints(config, source, changelog, output)
    if not problems:
        if changelog is None:
            count = config["materializer.buckets"] or source.partitions
            log("making the changelog topic %s with %d partitions", name, count)
            changelog = admin.make(
                name,
                count,
                replication,
                topics.changelog_settings(
                    record_max_bytes=most,
                    min_lag_ms=config["materializer.changelog.min.compaction.lag.ms"],
                    delete_retention_ms=config["materializer.changelog.delete.retention.ms"],
                ),
            )
        if output is None:
            log("making the output topic %s with %d partitions", target, source.partitions)
            output = admin.make(target, source.partitions, replication, topics.output_settings(record_max_bytes=most))
        # Again: somebody else may have made them at the same time.
        problems = _complaints(config, source, changelog, output)
    if problems or changelog is None or output is None:
        raise Fatal("\n".join(problems))
    for sentence in topics.output_warnings(output):
        log(sentence)
    return BucketOptions(
        job=config["name"],
        owner=Owner(0, secrets.token_hex(8)),
        client=client,
        group=config["kafka.group.id"] or f"millrace-{config['name']}",
        input_topic=source.name,
        input_id=source.id,
        partitions=source.partitions,
        output_topic=output.name,
        output_id=output.id,
        changelog_topic=name,
        changelog_id=changelog.id,
        state_dir=config["state.dir"],
        engine=engine,
        partitioner=config["materializer.output.partitioner"],
        compression=config["materializer.output.compression.type"],
        delete_retention_ms=int(changelog.config.get("delete.retention.ms", 86_400_000)),
        max_changes=config["materializer.transaction.max.changes"],
        max_bytes=config["materializer.transaction.max.bytes"],
        record_max_bytes=most,
        transaction_timeout_ms=config["materializer.transaction.timeout.ms"],
        resident_buckets=config["materializer.resident.buckets"],
        dead_letters=dead_letters,
        masked=bool(rule_names(config.raw)),
        rebuild_output=rebuild_output,
        buckets=config["materializer.buckets"] or 0,
        kill=os.environ.get(options.KILL_VARIABLE, ""),
    )


def read_markers(changelog: Changelog, partitions: int) -> dict[int, Marker]:
    """The newest marker of each bucket that has one. Blocks."""
    found = changelog.last_markers(range(partitions))
    return {bucket: msgspec.json.decode(raw, type=Marker) for bucket, raw in found.items()}


def owned(found: BucketOptions, markers: Mapping[int, Marker]) -> BucketOptions:
    """The options of a run that takes over from all that came before."""
    epoch = max((each.owner.epoch for each in markers.values()), default=0) + 1
    return replace(found, owner=Owner(epoch, found.owner.run))


# In the tasks


def stream_task(found: BucketOptions, spans: Mapping[int, Range]) -> Task:
    """The function for ``mapInArrow`` over a batch's records: one stream is one Kafka partition. Gives a row: the result."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next((each for each in batches if each.num_rows), None)
        if first is None:
            return
        bucket = first.column("partition")[0].as_py()
        with_collector_off = gc.isenabled()
        # Decoding makes millions of small objects and no cycles: the collector would take half of the time.
        gc.disable()
        try:
            result = guarded(found, bucket, inputs(found.input_topic, bucket, first, batches), spans[bucket])
        finally:
            if with_collector_off:
                gc.enable()
        yield _row(result)

    return task


def idle_task(found: BucketOptions, spans: Mapping[int, Range]) -> Task:
    """The function for ``mapInArrow`` over row numbers, each of which stands for a bucket without input."""
    buckets = sorted(spans)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _row(guarded(found, buckets[number], (), spans[buckets[number]]))

    return task


def _row(result: Result) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(result).decode()])], names=["result"])


def inputs(topic: str, bucket: int, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[Input]:
    """The records of an Arrow stream.

    Raises:
        Fatal: they are not all of one partition, so that two tasks would work on one state.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    batch: pa.RecordBatch | None = first
    while batch is not None:
        if batch.num_rows:
            found = pc.min_max(batch.column("partition")).as_py()
            names = pc.unique(batch.column("topic")).to_pylist()
            if found["min"] != bucket or found["max"] != bucket or names != [topic]:
                raise Fatal(
                    f"a Spark task was given records of {names}, partitions {found['min']} to "
                    f"{found['max']}, not of {topic} [{bucket}] alone: the materializer needs one task per "
                    "partition; don't set source.min.partitions or repartition"
                )
            milliseconds = pc.divide(batch.column("timestamp").cast(pa.int64()), 1000)
            yield from map(
                Input,
                batch.column("key").to_pylist(),
                batch.column("value").to_pylist(),
                batch.column("offset").to_pylist(),
                milliseconds.to_pylist(),
            )
        batch = next(others, None)
