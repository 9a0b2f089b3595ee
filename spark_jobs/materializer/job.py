"""The materializer as a sink of the frame: one Spark task per input partition, results and due times back on the driver."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.contract import Batch, JobContext, Sink
from spark_jobs.kafka import clients, ranges
from spark_jobs.kafka.lag import KafkaView
from spark_jobs.materializer import config as options
from spark_jobs.materializer import topics
from spark_jobs.materializer.config import BucketOptions, EngineFactory
from spark_jobs.materializer.engine.timers import Timers
from spark_jobs.materializer.job_topics import (
    input_topics,
    list_topic_problems,
    prepare_topics,
    read_markers,
    take_ownership,
)
from spark_jobs.materializer.metrics import METRICS, TOTALS
from spark_jobs.materializer.output_heartbeats import OutputHeartbeats
from spark_jobs.materializer.pass_tasks import BucketKey, buckets_frame, stream_task
from spark_jobs.materializer.passes import PassRange, Result, decode_result
from spark_jobs.materializer.per_topic import config_for
from spark_jobs.materializer.routing import merge_by_key
from spark_jobs.materializer.small_batches.host import MergeHost
from spark_jobs.materializer.stages import StageNumbers
from spark_jobs.materializer.state.changelog import Changelog
from spark_jobs.reports.heartbeats import Heartbeats, heartbeat_text
from spark_jobs.reports.met_heartbeats import COLUMN
from spark_jobs.spark.causes import cause_of
from spark_jobs.spark.checkpoint import open_folder
from spark_jobs.spark.frames import ArrowTask, FrameSelection, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

    from connectors.options import Config
    from spark_jobs.materializer.contract import Engine


_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(slots=True)
class TopicState:
    """The driver's knowledge of one input topic's state.

    Attributes:
        options: for the tasks.
        known_buckets: the buckets that have a marker.
        timers: when they have something to do.
        sizes: rows and bytes of each bucket.
    """

    options: BucketOptions
    known_buckets: set[int] = field(default_factory=set)
    timers: Timers = field(default_factory=Timers)
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)


class MaterializerSink(Sink):
    """Merges updates into row images and writes them to Kafka, exactly once; see docs/jobs/materializer.md."""

    config_def: ClassVar = options.OPTIONS
    guarantees: ClassVar = ("exactly-once",)
    metrics: ClassVar = METRICS

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        #: By input topic.
        self._states: dict[str, TopicState] = {}
        self._idled = 0.0
        self._totals: dict[str, float] = dict.fromkeys(TOTALS, 0)
        self._stages = StageNumbers()
        self._columns: FrameSelection | None = None
        self._arguments: list[Column] = []
        #: Merges small batches; None: Spark's tasks merge all.
        self._host = MergeHost.of(context)
        #: None: the outputs get no heartbeats.
        self._output_heartbeats: OutputHeartbeats | None = None

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """See ``config.complaints``."""
        return options.find_problems(config)

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether input, output and changelog are what they must be, as far as they exist. Blocks."""
        problems: list[str] = []
        try:
            admin = topics.KafkaTopics(clients.build_client_config(config))
            names = input_topics(config)
            loop = options.find_loop(config, names)
            problems += [loop] if loop else []
            for topic in names:
                topic_config = config_for(config, topic)
                source = admin.find(topic)
                if source is None:
                    problems.append(
                        f"source.topics: topic {topic} does not exist; it is needed before the job's first start, as the "
                        "changelog gets as many partitions"
                    )
                    continue
                changelog, output = (
                    admin.find(options.changelog_topic(topic_config)),
                    admin.find(topic_config["sink.kafka.topic"]),
                )
                problems += list_topic_problems(topic_config, source, changelog, output)
        except (Retriable, Fatal) as error:
            return [f"kafka.bootstrap.servers: {error}"]
        return problems

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """The topics and what would be made. Blocks."""
        lines: list[str] = []
        try:
            admin = topics.KafkaTopics(clients.build_client_config(config))
            for topic_config in (config_for(config, topic) for topic in input_topics(config)):
                changelog, output = options.changelog_topic(topic_config), topic_config["sink.kafka.topic"]
                output_format = topic_config["materializer.output.format"]
                lines += [
                    f"state: topic {changelog} (compacted), cached in {topic_config['state.dir']}",
                    f"output: topic {output}, {output_format}, transactions {topic_config['name']}-<partition>",
                ]
                for name in (changelog, output):
                    topic = admin.find(name)
                    state = "would be made" if topic is None else f"exists, {topic.partitions} partitions"
                    lines.append(f"topic {name} {state}")
        except (Retriable, Fatal) as error:
            lines.append(f"Kafka can't be asked: {error}")
        return lines

    @classmethod
    def save_state(cls, config: Config, spark: SparkSession, location: str) -> dict[str, Any]:
        """See ``savepoint.save_states``."""
        from spark_jobs.materializer.state.savepoint import save_states

        return save_states(spark, config, location)

    @classmethod
    def restore_state(
        cls, config: Config, spark: SparkSession, location: str, savepoint: str, state: Mapping[str, Any]
    ) -> None:
        """See ``savepoint.restore_states``."""
        from spark_jobs.materializer.state.savepoint import restore_states

        restore_states(spark, config, location, savepoint, state)

    def engine(self, config: Config) -> Callable[[int], Engine]:
        """Return the factory of the engines in the tasks; it must be picklable. ``config``: as for one input topic."""
        return EngineFactory(options.merge_options(config))

    # The frame's calls

    def open(self) -> None:
        """Make or check the topics, and take the job over from an earlier run.

        Raises:
            Retriable, Fatal: see ``Topics``; topics that can't be used.
        """
        config = self.context.config
        self._take_all(input_topics(config))
        if config["materializer.output.heartbeats"]:
            self._output_heartbeats = OutputHeartbeats(clients.build_client_config(config))
        if config["checkpoint.location"]:
            folder = open_folder(config["checkpoint.location"], self.context.spark)
            folder.write(options.BUCKETS_FILE, f"{config['materializer.buckets'] or 0}\n")

    def _take_all(self, names: Iterable[str]) -> None:
        """Take over the states of input topics that are new in this run. Blocks; raises as ``open``."""
        new = [name for name in names if name not in self._states]
        loop = options.find_loop(self.context.config, [*self._states, *new]) if new else ""
        if loop:
            raise Fatal(loop)
        for topic in new:
            self._states[topic] = self._take_over(topic)

    def _take_over(self, topic: str) -> TopicState:
        """The state of an input topic, taken over from an earlier run. Blocks; raises as ``open``."""
        config = config_for(self.context.config, topic)
        prepared = prepare_topics(config, self.engine(config), self._make_dead_letters(), log=self.context.log.warning)
        changelog = Changelog(prepared.client, prepared.changelog_topic, prepared.group)
        try:
            markers = read_markers(changelog, prepared.count)
        finally:
            changelog.close()
        state = TopicState(take_ownership(prepared, markers), set(markers))
        state.timers.ask(markers)
        return state

    def _make_dead_letters(self) -> Any:
        if self.context.config["errors.tolerance"] != "all":
            return None
        from spark_jobs.dead_letters import DeadLetters

        return DeadLetters.of(self.context)

    def write(self, batch: Batch) -> int:
        """Merge one batch; returns the number of records written to the output.

        Raises:
            Retriable, Fatal: of any bucket. The others' work stays, and is skipped when the batch comes again.
        """
        # Topics of a pattern may appear while the job runs.
        self._take_all(dict.fromkeys(topic for topic, _ in batch.ranges))
        if not any(state.known_buckets for state in self._states.values()) and batch.id > 0:
            changelogs = ", ".join(state.options.changelog_topic for state in self._states.values())
            raise Fatal(
                f"the job is at batch {batch.id}, but the changelog {changelogs} has no marker: "
                "the state was lost (was the topic deleted?). Run millrace job rebuild with --state to make it again "
                "from the input, or give the job another name and checkpoint to begin from the start."
            )
        self._demand_states(batch)
        spans = self._plan_passes(batch)
        if not spans:
            return 0
        records = sum(end - start for start, end in batch.ranges.values())
        if self._host is not None and records <= self.context.config["materializer.small.batch.records"]:
            return self._count_results(self._host.run(self._by_topic(), spans))
        if self._columns is None:
            self._columns = FrameSelection(batch.raw, *_COLUMNS, heartbeat_text().alias(COLUMN))
            self._arguments = columns_of((*_COLUMNS, COLUMN))
        raw = self._columns.of(batch.raw)
        by_topic = self._by_topic()
        if self.context.config["materializer.buckets"]:
            rows = self._collect_results(merge_by_key(raw, by_topic, spans))
        else:
            rows = self._collect_results(
                ArrowTask(stream_task(by_topic, spans), _make_result_schema(), self._arguments).over(raw)
            )
        # A range may hold no record at all (control records of transactions, compaction): its marker moves too. Buckets by key
        # all move, so that they stand at the same offsets between two batches.
        done = {(topic, result.bucket) for topic, result in rows}
        empty = {bucket: span for bucket, span in spans.items() if bucket not in done}
        if empty:
            rows += self._run_passes(empty)
        return self._count_results(rows)

    def _plan_passes(self, batch: Batch) -> dict[BucketKey, PassRange]:
        """The passes that a batch needs.

        Raises:
            Fatal: a topic was given partitions, and its buckets are not chosen by key.
        """
        spans: dict[BucketKey, PassRange] = {}
        if self.context.config["materializer.buckets"]:
            parts: dict[str, dict[int, tuple[int, int]]] = {}
            for (topic, partition), offsets in batch.ranges.items():
                parts.setdefault(topic, {})[partition] = offsets
            for topic, offsets_by_partition in parts.items():
                state = self._states[topic]
                for bucket in range(state.options.count):
                    spans[topic, bucket] = PassRange(
                        first=bucket not in state.known_buckets, parts=offsets_by_partition
                    )
            return spans
        for (topic, partition), (start, end) in batch.ranges.items():
            state = self._states[topic]
            if partition >= state.options.partitions:
                raise Fatal(
                    f"{topic} was given partitions ({partition + 1} or more, it had {state.options.partitions} when the job "
                    "started): rows may have moved to other partitions, away from their state. Divide the state by key with a "
                    "savepoint and materializer.buckets (docs/jobs/savepoints.md), or run millrace job rebuild with --state."
                )
            spans[topic, partition] = PassRange(start, end, first=partition not in state.known_buckets)
        return spans

    def _demand_states(self, batch: Batch) -> None:
        """Check that every topic that the job has read from has a state. Blocks where one has none: asks Kafka.

        Raises:
            Fatal: the state of a topic is lost.
        """
        config = self.context.config
        unknown = [topic for topic, state in self._states.items() if not state.known_buckets] if batch.id > 0 else []
        if not unknown:
            return
        begin = ranges.start_of(open_folder(config["checkpoint.location"], self.context.spark), 0)
        view = KafkaView(config)
        try:
            existing = view.existing(unknown)
        finally:
            view.close()
        for (topic, partition), (start, _) in batch.ranges.items():
            if topic in existing and start > begin.get((topic, partition), existing[topic].first.get(partition, 0)):
                raise Fatal(
                    f"the job has read {topic} up to offset {start} of partition {partition}, but the changelog "
                    f"{self._states[topic].options.changelog_topic} has no marker: its state was lost (was the topic "
                    "deleted?). Run millrace job rebuild with --state, or give the job another name and checkpoint."
                )

    def _by_topic(self) -> dict[str, BucketOptions]:
        return {topic: state.options for topic, state in self._states.items()}

    def idle(self) -> None:
        """Expire what is due. Costs nothing while nothing is.

        Raises:
            Retriable, Fatal: of any bucket.
        """
        now = time.monotonic()
        if now - self._idled < self.context.config["materializer.expiry.interval.ms"] / 1000:
            return
        self._idled = now
        seconds = time.time()
        due = {
            (topic, bucket): PassRange()
            for topic, state in self._states.items()
            for bucket in state.timers.due(seconds)
        }
        if due:
            self._count_results(self._run_passes(due))

    def _run_passes(self, spans: Mapping[BucketKey, PassRange]) -> list[tuple[str, Result]]:
        if self._host is not None:
            return self._host.run(self._by_topic(), spans)
        return self._collect_results(buckets_frame(self.context.spark, self._by_topic(), spans))

    def give_up(self) -> None:
        """See ``Sink.give_up``."""
        if self._host is not None:
            self._host.give_up()

    def close(self) -> None:
        """See ``Sink.close``."""
        if self._host is not None:
            self._host.close()

    def _collect_results(self, frame: Any) -> list[tuple[str, Result]]:
        try:
            return [(row[0], decode_result(row[1])) for row in frame.collect()]
        except Exception as error:
            raise cause_of(error) from error

    def _count_results(self, results: Sequence[tuple[str, Result]]) -> int:
        for topic, result in results:
            state = self._states[topic]
            if not result.error:
                state.known_buckets.add(result.bucket)
                state.timers.report(result.bucket, result.next_due)
                state.sizes[result.bucket] = result.rows, result.bytes
            if result.discarded:
                self.context.log.warning(
                    "the state cache of %s, bucket %d was thrown away: %s", topic, result.bucket, result.discarded
                )
            if result.restored > 10_000:
                self.context.log.info(
                    "%s, bucket %d read %d records of state in %.1f s",
                    topic,
                    result.bucket,
                    result.restored,
                    result.restore_s,
                )
            for name in self._totals:
                self._totals[name] += getattr(result, name)
        rows = [result for _, result in results]
        metrics = self.context.metrics
        for name, value in self._totals.items():
            metrics[f"materializer_{name}_total"] = value
        sizes = [size for state in self._states.values() for size in state.sizes.values()]
        metrics["materializer_state_rows"] = sum(size[0] for size in sizes)
        metrics["materializer_state_bytes"] = sum(size[1] for size in sizes)
        outputs = sum(result_row.outputs for result_row in rows)
        if outputs:
            metrics["materializer_publish_latency_ms"] = sum(result_row.latency_ms for result_row in rows) / outputs
        transactions = sum(result_row.transactions for result_row in rows)
        if transactions:
            metrics["materializer_transaction_ms"] = (
                1000 * sum(result_row.transaction_s for result_row in rows) / transactions
            )
        metrics |= self._stages.metrics(result_row.stages for result_row in rows)
        raise_errors(rows)
        beats = [beat for result in rows for beat in result.heartbeats]
        if self._output_heartbeats is not None:
            self._output_heartbeats.send(beats, self._by_topic())
        Heartbeats.of(self.context).note_met(beats)
        return outputs


def _make_result_schema() -> StructType:
    """``RESULT_SCHEMA``, which Spark would have its JVM read."""
    from pyspark.sql import types as t

    return t.StructType([t.StructField(name, t.StringType()) for name in ("topic", "result")])


def raise_errors(rows: Sequence[Result]) -> None:
    """Raise what the buckets could not do: ``Fatal`` before ``Retriable``."""
    for kind, error in (("Fatal", Fatal), ("Skippable", Fatal), ("Retriable", Retriable)):
        messages = [result.text for result in rows if result.error == kind]
        if messages:
            raise error("\n".join(dict.fromkeys(messages)))
