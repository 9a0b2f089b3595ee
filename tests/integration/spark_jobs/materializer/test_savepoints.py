"""State from a savepoint in other buckets, by key, while the input is given partitions; and what is refused."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # the module has them

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs.config import job_files as job_config
from spark_jobs.materializer import config as options
from spark_jobs.materializer.engine.keys import bucket_of, partition_prefix
from spark_jobs.materializer.job import MaterializerSink
from spark_jobs.materializer.state.savepoint import target_column
from spark_jobs.savepoints.make import make_savepoint
from spark_jobs.savepoints.manifest import MANIFEST_FILE, SavepointManifest, encode_manifest
from spark_jobs.savepoints.start import STARTED_FILE, start_from_savepoint
from spark_jobs.spark.checkpoint import LocalFolder
from tests.integration.spark_jobs.materializer.test_many_topics import batch_of
from tests.support.update_load import Model, changes, partition_key
from tests.support.update_topic import Load, encoder_of
from worker.kafka import whole_topics as kafka_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.update_load import Change

_LOAD = Load(1_600, 60, 2, "json")
_BY_KEY = {"materializer.buckets": "3", "materializer.output.partitioner": "murmur2"}


class Moving:
    """The job before it moves, its savepoint, and what starts from that."""

    def __init__(self, harness: Callable[..., Any], spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        schema = folder / "schema.avsc"
        schema.write_text(_LOAD.schema)
        self.changes = list(changes(_LOAD.updates, partitions=_LOAD.partitions))
        self.job = harness(
            "sp",
            partitions=2,
            sink_class=MaterializerSink,
            options={"materializer.input.schemas": str(schema), "materializer.transaction.max.changes": "40"},
        )
        self.encode = encoder_of(_LOAD, self.job.topic, "")
        self.location = str(folder / "savepoint")

    def write(self, part: Sequence[Change], partitions: int) -> None:
        """Write changes into the input."""
        self.job.produce(
            (change.pk % partitions, partition_key(change.pk), self.encode(change, number))
            for number, change in enumerate(part)
        )

    def checkpoint(self, harness: Any) -> LocalFolder:
        """The checkpoint, as Spark has it after the batch before."""
        folder = LocalFolder(harness.folder / "checkpoint")
        batch = harness.batches - 1
        offsets = {harness.topic: {str(partition): end for partition, end in harness.positions.items()}}
        for number in range(max(batch - 1, 0), batch + 1):
            folder.write(f"offsets/{number}", f"v1\n{{}}\n{json.dumps(offsets)}")
        folder.write("metadata", '{"id":"a"}')
        folder.write("sources/0/0", "\0v1\n" + json.dumps(offsets))
        folder.write(f"commits/{batch}", "v1\n{}")
        return folder

    def save(self, harness: Any, location: str) -> SavepointManifest:
        """Make a savepoint."""
        job = job_config.build_job(harness.properties())
        return make_savepoint(job, self.spark, self.checkpoint(harness), location, "move")

    def elsewhere(self, name: str, **more: str) -> Any:
        """The job on another machine; not started."""
        job = self.job
        return type(job)(
            self.spark,
            job.bootstrap,
            job.name,
            self.folder / name,
            options={**job.options, "materializer.changelog.topic": f"{job.name}-{name}", **more},
            sink_class=MaterializerSink,
            positions=dict(job.positions),
            batches=job.batches,
        )

    def begin(self, harness: Any, location: str = "") -> None:
        """Bring the savepoint to a job."""
        job = job_config.build_job(harness.properties() | {"source.savepoint": location or self.location})
        start_from_savepoint(job, self.spark, LocalFolder(harness.folder / "checkpoint"))

    def check(self) -> None:
        """Check the output; see ``check_events``."""
        check_events(self.job.read(), self.changes)


def check_events(records: Iterable[tuple[int, bytes, bytes | None]], changes: Iterable[Change]) -> None:
    """Each event continues the last one of its row, each came once, and the rows at the end are the model's."""
    events_of: dict[Any, list[tuple[int, Any]]] = {}
    for _, _, value in records:
        if value is not None:
            event = json.loads(value)
            image = event["after"] or event["before"]
            events_of.setdefault((image["pk"], image["ck"]), []).append((event["source"]["ums_id"], event))
    rows = {}
    for key, events in events_of.items():
        last = None
        for _, event in sorted(events, key=lambda pair: pair[0]):
            assert event["before"] == last, key
            assert event["op"] == ("c" if last is None else "d" if event["after"] is None else "u")
            last = event["after"]
        if last is not None:
            rows[key] = last
    model = Model()
    for change in changes:
        model.apply(change)
    assert rows == model.rows


@pytest.mark.slow
def test_state_moves_to_buckets_by_key_when_the_input_is_given_partitions(
    harness: Callable[..., Any], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = Moving(harness, spark, tmp_path / "moving")
    first = moving.job
    moving.write(moving.changes[:800], 2)
    first.start()
    first.step()
    manifest = moving.save(first, moving.location)
    assert manifest.state is not None
    with pytest.raises(Fatal, match=r"there is a savepoint in .* already"):
        moving.save(first, moving.location)

    # Records that the old job has not read wait in the old partitions when the new ones come.
    moving.write(moving.changes[800:1000], 2)
    admin = AdminClient({"bootstrap.servers": first.bootstrap})
    admin.create_partitions([NewPartitions(first.topic, 5)])[first.topic].result(30)
    moving.write(moving.changes[1000:1300], 5)

    with pytest.raises(Fatal, match=r"has 2 buckets, one for each partition .* has 5 now: set materializer.buckets"):
        moving.begin(moving.elsewhere("same"))
    second = moving.elsewhere("b", **_BY_KEY)
    moving.begin(second)
    token = tmp_path / "token"
    token.touch()
    monkeypatch.setenv(options.KILL_VARIABLE, f"committed@{token}")
    second.start()
    with pytest.raises(Exception, match=r"Python worker|crashed"):
        second.step()
    assert not token.exists()
    monkeypatch.delenv(options.KILL_VARIABLE)
    second.start()
    second.step()

    # From buckets by key to another number of them, and on.
    second_savepoint = str(tmp_path / "second_savepoint")
    moving.save(second, second_savepoint)
    with pytest.raises(Fatal, match="has 3 buckets by key, and the job one for each input partition"):
        moving.begin(moving.elsewhere("back"), second_savepoint)
    third = moving.elsewhere("c", **_BY_KEY | {"materializer.buckets": "4"})
    third.positions, third.batches = dict(second.positions), second.batches
    moving.begin(third, second_savepoint)
    moving.write(moving.changes[1300:], 5)
    third.start()
    third.step()
    moving.check()


def test_the_same_buckets_go_on_elsewhere_and_what_does_not_fit_is_refused(
    harness: Callable[..., Any], spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moving = Moving(harness, spark, tmp_path / "moving")
    first = moving.job
    moving.write(moving.changes[:800], 2)
    first.start()
    first.step()
    manifest = moving.save(first, moving.location)
    state: dict[str, Any] = manifest.state or {}
    part = state["topics"][first.topic]

    def with_files(files: list[str]) -> dict[str, Any]:
        return state | {"topics": {first.topic: part | {"files": files}}}

    moving.write(moving.changes[800:], 2)

    same_changelog = moving.elsewhere("same_changelog", **{"materializer.changelog.topic": first.changelog})
    with pytest.raises(Fatal, match="has the state of a job that did not start from this savepoint"):
        moving.begin(same_changelog)
    with pytest.raises(ConfigInvalid, match=r"materializer.buckets.*make a savepoint"):
        job_config.build_job(first.properties() | _BY_KEY)
    other = tmp_path / "other"
    shutil.copytree(moving.location, other)
    for changed, text in (
        ({"state": state | {"layout": 99}}, "holds state of layout 99"),
        ({"format": 99}, "has layout 99"),
        ({"state": with_files([*part["files"], "part-9.parquet"])}, "lacks part-9.parquet"),
        ({"state": with_files(part["files"][1:])}, "not those that were saved"),
    ):
        (other / MANIFEST_FILE).write_text(encode_manifest(msgspec.structs.replace(manifest, **changed)))
        with pytest.raises(Fatal, match=text):
            moving.begin(moving.elsewhere("refused"), str(other))

    second = moving.elsewhere("b")
    moving.begin(second)
    ends = second.ends(f"{first.name}-b")
    # As if the job had died before the last file of its checkpoint was written: the state stays.
    folder = LocalFolder(second.folder / "checkpoint")
    folder.write(STARTED_FILE, manifest.id)
    moving.begin(second, f"file://{moving.location}")
    assert second.ends(f"{first.name}-b") == ends
    with caplog.at_level("INFO"):
        moving.begin(second)
    assert "is ignored" in caplog.text
    second.start()
    second.step()
    moving.check()


@pytest.mark.slow
def test_each_topic_of_a_job_moves_with_its_own_state(
    harness: Callable[..., Any], spark: SparkSession, tmp_path: Path
) -> None:
    moving = Moving(harness, spark, tmp_path / "moving")
    job = moving.job
    topics = {job.topic: 2, f"{job.name}-in-other": 3, f"{job.name}-in-empty": 1}
    job.options |= {"source.topics": ",".join(topics), "sink.kafka.topic": "${topic}.rows"}
    # The same keys in both topics, with other values: they are rows of two tables.
    changes_of = {
        topic: list(changes(600, partitions=_LOAD.partitions, seed=seed)) for seed, topic in enumerate(topics, start=5)
    }
    changes_of[f"{job.name}-in-empty"] = []

    def write(part: slice) -> None:
        producer = Producer({"bootstrap.servers": job.bootstrap})
        for topic, partitions in topics.items():
            for number, change in enumerate(changes_of[topic][part]):
                producer.produce(topic, moving.encode(change, number), partition_key(change.pk), change.pk % partitions)
        assert producer.flush(30) == 0

    for topic, partitions in list(topics.items())[1:]:
        job.create(topic, partitions)
    write(slice(300))
    sink = job.start()
    batch = batch_of(job, {}, list(topics))
    sink.write(batch)
    positions = {where: end for where, (_, end) in batch.ranges.items()}
    state = MaterializerSink.save_state(sink.context.config, spark, moving.location)
    assert {topic: part["count"] for topic, part in state["topics"].items()} == {
        job.topic: 2,
        f"{job.name}-in-other": 3,
    }
    assert state["buckets"] == 5

    dead = f"{job.name}-dead"
    job.create(dead, 1)
    options = {
        "materializer.changelog.topic": "${topic}-b",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead,
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    second = moving.elsewhere("b", **_BY_KEY | options)
    config = job_config.build_job(second.properties()).config
    MaterializerSink.restore_state(config, spark, moving.location, "1", state)
    write(slice(300, None))
    job.produce([(1, b"k", b"no update")])
    batch = batch_of(second, positions, list(topics))
    second.start().write(batch)
    assert second.start().write(batch) == 0, "it is skipped when it comes again"
    (letter,) = kafka_topics.read_topic(job.bootstrap, dead, committed=True)
    assert dict(letter.headers)["__connect.errors.partition"] == b"1", "the partition of the input, not the bucket"
    for topic in (job.topic, f"{job.name}-in-other"):
        check_events(job.read(f"{topic}.rows"), changes_of[topic])


def test_spark_and_tasks_choose_the_same_bucket(spark: SparkSession) -> None:
    prefixes = [partition_prefix(bytes([number % 256]) * (1 + number * 7)) for number in range(60)]
    frame = spark.createDataFrame([(prefix + b"\x01rest",) for prefix in prefixes], "key binary")
    for buckets in (1, 3, 7):
        chosen = [row[0] for row in frame.select(target_column(buckets)).collect()]
        assert chosen == [bucket_of(prefix, buckets) for prefix in prefixes]
