"""``source.type=kafka``: topics. Spark's Kafka source reads them; this checks that Kafka still has what is to be read."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal, MillraceError, Retriable
from spark_jobs.config.keys import STARTING_GROUP
from spark_jobs.contract import RAW_COLUMNS
from spark_jobs.inputs.contract import Input, InputBatch
from spark_jobs.kafka import clients, ranges
from spark_jobs.kafka.lag import KafkaView
from spark_jobs.kafka.lag_watch import LagWatch
from spark_jobs.reports import troubles

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.inputs.contract import InputRun
    from spark_jobs.reports.troubles import Troubles
    from spark_jobs.spark.checkpoint import Folder

_log = logging.getLogger(__name__)
#: Which topic had which id when the job first read it; in the checkpoint.
TOPICS_FILE: Final = "_millrace_topics"
#: The longest pause before Kafka is looked at again: whoever waits for a topic wants its records at once.
LOOK_S: Final = 2.0


class KafkaInput(Input):
    """Reads topics, by name or by a pattern."""

    def __init__(self, run: InputRun) -> None:
        super().__init__(run)
        self._kafka = KafkaView(run.config)
        self._batch_kafka = KafkaView(run.config)  # for the thread of batches: clients are not shared
        ids_json = run.folder.read(TOPICS_FILE)
        self._topic_ids: dict[str, str] = json.loads(ids_json) if ids_json else {}

    def position(self, batch: int) -> ranges.Offsets:
        """See ``Input.position``."""
        return ranges.read_position(self.run.folder, batch) or {}

    @classmethod
    def position_files(cls, folder: Folder, batch: int) -> list[str]:
        """See ``Input.position_files``: where the source began, and the ids of the topics."""
        del batch
        return ["sources/0/0", *([TOPICS_FILE] if folder.read(TOPICS_FILE) is not None else [])]

    def start(self) -> ranges.Offsets:
        """See ``Input.start``."""
        return ranges.start_of(self.run.folder, 0)

    def check(self, last_batch: int | None) -> None:
        """See ``Input.check``."""
        planned = ranges.last_batch(self.run.folder)
        if planned is None:
            return
        next_offsets = self._next_offsets(planned, last_batch)
        names = {topic for topic, _ in next_offsets}
        existing = self.run.retry(troubles.START, lambda: self._kafka.existing(names), batch=planned, longest_s=LOOK_S)
        self._judge_losses(next_offsets, existing)

    def _next_offsets(self, planned: int, last_batch: int | None) -> ranges.Offsets:
        """The offsets to be read next: a batch that was planned and not done is read again from its start."""
        undone = last_batch is None or planned > last_batch
        return ranges.start_of(self.run.folder, planned) if undone else self.position(planned)

    def demand(self) -> None:
        """Whether every topic that the job names exists: a source connector makes its topics with their first records.

        Raises:
            Retriable: one does not.
            Fatal: one does not, and the job processes only what is there (``trigger.mode=available-now``).
        """
        config = self.run.config
        names = config["source.topics"] or ()
        existing = self._kafka.existing(names)
        absent = [name for name in names if not (name in existing and existing[name].end)]
        if absent:
            raise (Fatal if self.run.job.available_now else Retriable)(
                f"there is no topic {', '.join(absent)} in Kafka at {config['kafka.bootstrap.servers']}; check source.topics, "
                "or start what writes it"
            )

    def stream(self, spark: SparkSession) -> DataFrame:
        """See ``Input.stream``."""
        config = self.run.config
        reader = spark.readStream.format("kafka")
        for name, value in clients.spark_options(config).items():
            reader = reader.option(name, value)
        if config["source.topics"]:
            reader = reader.option("subscribe", ",".join(config["source.topics"]))
        else:
            reader = reader.option("subscribePattern", config["source.topics.pattern"])
        reader = (
            reader.option("startingOffsets", self._starting_offsets())
            .option("includeHeaders", "true")
            .option("failOnDataLoss", str(config["source.fail.on.data.loss"]).lower())
            .option("maxOffsetsPerTrigger", str(config["source.max.offsets.per.trigger"]))
            .option("kafka.isolation.level", config["source.isolation.level"])
        )
        if config["source.min.partitions"]:
            reader = reader.option("minPartitions", str(config["source.min.partitions"]))
        return reader.load().select(*RAW_COLUMNS)

    def _starting_offsets(self) -> str:
        """Where a job with an empty checkpoint begins, as Spark takes it; asks Kafka where a group says it.

        Raises:
            Fatal: records that the group has not read yet are gone.
        """
        config = self.run.config
        usual: str = config["source.starting.offsets"]
        group = config[STARTING_GROUP]
        if group is None or ranges.last_batch(self.run.folder) is not None or self.start():
            return usual
        committed, existing = self.run.retry(
            troubles.START, lambda: self._read_committed_offsets(group), longest_s=LOOK_S
        )
        self._judge_losses({where: offset for where, offset in committed.items() if where[0] in existing}, existing)
        _log.info("the job begins at the offsets of the group %s in %d partitions", group, len(committed))
        return ranges.starting_text(existing, committed, latest=usual == "latest") if committed else usual

    def _read_committed_offsets(self, group: str) -> tuple[ranges.Offsets, dict[str, ranges.ExistingTopic]]:
        """The group's offsets, and what there is.

        Raises:
            Retriable: the group has running members, who would write the same records.
        """
        members = self._kafka.members(group)
        if members:
            raise Retriable(
                f"the consumer group {group} ({STARTING_GROUP}) has {members} running members, which write the same records: "
                "stop the connector that uses it, and the job begins where it has stopped"
            )
        existing = self._kafka.existing(self._kafka.topics_read())
        where = [(topic, partition) for topic, content in existing.items() for partition in content.end]
        return self._kafka.committed(where, group), existing

    def batch(self, frame: DataFrame, number: int) -> InputBatch:
        """See ``Input.batch``.

        Raises:
            Fatal: records are missing (and ``source.fail.on.data.loss``).
        """
        folder = self.run.folder
        start, end = ranges.start_of(folder, number), ranges.read_position(folder, number) or {}
        names = {topic for topic, _ in (*start, *end)}
        existing = self.run.retry(
            troubles.BATCH, lambda: self._batch_kafka.existing(names), batch=number, longest_s=LOOK_S
        )
        self._judge_losses(start, existing)
        earliest = {
            (topic, partition): offset
            for topic, content in existing.items()
            for partition, offset in content.first.items()
        }
        batch_ranges = ranges.compute_ranges(start, end, earliest)
        return InputBatch(
            frame, batch_ranges, start | end, sum(after - first for first, after in batch_ranges.values())
        )

    def _judge_losses(self, next_offsets: ranges.Offsets, existing: dict[str, ranges.ExistingTopic]) -> None:
        missing = ranges.find_losses(next_offsets, existing, self._topic_ids)
        if missing and self.run.config["source.fail.on.data.loss"]:
            raise Fatal(ranges.loss_message(missing, self.run.job.checkpoint))
        for sentence in missing:
            _log.error("source.fail.on.data.loss=false, the job continues without: %s", sentence)
        ids = {topic: content.id for topic, content in existing.items() if content.id}
        if any(self._topic_ids.get(topic) != number for topic, number in ids.items()):
            self._topic_ids |= ids
            self.run.folder.write(TOPICS_FILE, json.dumps(self._topic_ids, sort_keys=True))

    def watch(self, troubles: Troubles, last_batch: Callable[[], int | None]) -> LagWatch:
        """See ``Input.watch``."""
        return LagWatch(self.run.config, troubles, last_batch)

    def missing(self, last_batch: int | None) -> str:
        """See ``Input.missing``."""
        planned = ranges.last_batch(self.run.folder)
        if planned is None or not self.run.config["source.fail.on.data.loss"]:
            return ""
        next_offsets = self._next_offsets(planned, last_batch)
        try:
            sentences = ranges.find_losses(
                next_offsets, self._kafka.existing({topic for topic, _ in next_offsets}), self._topic_ids
            )
        except (MillraceError, OSError):
            return ""
        return ranges.loss_message(sentences, self.run.job.checkpoint) if sentences else ""

    def close(self) -> None:
        """See ``Input.close``."""
        self._kafka.close()
        self._batch_kafka.close()
