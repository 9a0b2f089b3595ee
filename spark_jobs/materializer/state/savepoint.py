"""The materializer's state in a savepoint: every record of every bucket as Parquet, and from there into a new changelog.

Each input topic has a state of its own, in a folder of its own. Rows of the files are (bucket, key, value) as in the changelog:
state key -> record, and under the empty key the bucket's marker. With the same buckets the records are copied; with another
number of buckets by key (``materializer.buckets``) each goes to the bucket of its partition key, in the numbering of one
catalog for all (``rescale``).
"""

from __future__ import annotations

import logging
import secrets
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal, Retriable
from spark_jobs.kafka import clients
from spark_jobs.materializer import config as options
from spark_jobs.materializer import topics
from spark_jobs.materializer.config import BucketOptions, EngineFactory, Marker, MarkerOwner
from spark_jobs.materializer.decoding.catalog import pack_catalog, unpack_catalog
from spark_jobs.materializer.engine.keys import CATALOG
from spark_jobs.materializer.engine.rescale import Renumbering, make_renumbering, merge_catalogs
from spark_jobs.materializer.job_topics import input_topics, prepare_topics
from spark_jobs.materializer.per_topic import config_for
from spark_jobs.materializer.residents import discard_resident, get_resident
from spark_jobs.materializer.state.changelog import MARKER_KEY, Changelog
from spark_jobs.materializer.state.transaction import BucketWriter, Redo
from spark_jobs.spark.checkpoint import open_folder, spark_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from connectors.options import Config

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Of the records that the files hold; another one is refused.
LAYOUT: Final = 1
_SCHEMA: Final = "bucket int, key binary, value binary"
#: Rows and bytes of one Arrow batch.
_ROWS: Final = 5000
_BYTES: Final = 8 << 20


class SavedBucket(msgspec.Struct, frozen=True):
    """One bucket in the files: how many records it has, and the exclusive or of their hashes."""

    records: int
    digest: int


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one input topic.

    Attributes:
        folder: in the savepoint, holds ``files``.
        files: names of the Parquet files.
        count: how many buckets there are.
        buckets: how many by key; 0: one for each input partition.
        partitioner: ``materializer.output.partitioner``.
        content: by bucket; buckets without a record are left out.
    """

    folder: str
    files: list[str]
    count: int
    buckets: int
    partitioner: str
    content: dict[int, SavedBucket]


class SavedStates(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the manifest that describes the state.

    Attributes:
        layout: of the records.
        topics: the states by input topic; a topic without a state is left out.
        buckets, records: how many there are, for people.
    """

    layout: int
    topics: dict[str, SavedState]
    buckets: int
    records: int


# Saving


def save_states(spark: SparkSession, config: Config, location: str) -> dict[str, Any]:
    """Write the states of a job that does nothing meanwhile into new folders in ``location``; what the manifest needs. Blocks.

    Raises:
        Fatal: there is no state, or it can't be read.
        Retriable: Kafka does not answer.
    """
    states = {}
    for topic in input_topics(config):
        bucket_options = _saved_options(config_for(config, topic))
        # A topic of a pattern may have come after the last batch: the job has no state of it yet.
        if bucket_options is not None:
            state = _save_state(spark, config, bucket_options, location)
            if state.content:
                states[topic] = state
    if not states:
        raise Fatal(f"the job {config['name']} has no state to save: its changelog does not exist or is empty")
    result: dict[str, Any] = msgspec.to_builtins(
        SavedStates(
            layout=LAYOUT,
            topics=states,
            buckets=sum(state.count for state in states.values()),
            records=sum(bucket.records for state in states.values() for bucket in state.content.values()),
        ),
        str_keys=True,
    )
    return result


def _save_state(spark: SparkSession, config: Config, bucket_options: BucketOptions, location: str) -> SavedState:
    folder = f"state-{secrets.token_hex(6)}"
    path = f"{spark_path(location)}/{folder}"
    rows = spark.range(0, bucket_options.count, 1, bucket_options.count).mapInArrow(
        export_task(bucket_options), _SCHEMA
    )
    rows.write.option("compression", "zstd").parquet(path)
    files = sorted(name for name in open_folder(location, spark).list(folder) if name.endswith(".parquet"))
    return SavedState(
        folder=folder,
        files=files,
        count=bucket_options.count,
        buckets=bucket_options.buckets,
        partitioner=config["materializer.output.partitioner"],
        content=_count_content(_read_files(spark, location, folder, files)),
    )


def _saved_options(config: Config) -> BucketOptions | None:
    """As much as reading the state needs; the input need not be as it was. None: the topic has no changelog."""
    client = clients.build_client_config(config)
    name = options.changelog_topic(config)
    changelog = topics.KafkaTopics(client).find(name)
    if changelog is None:
        return None
    return BucketOptions(
        job=config["name"],
        owner=MarkerOwner(0, secrets.token_hex(8)),
        client=client,
        group=f"millrace-{config['name']}-state",
        input_topic="",
        input_id="",
        partitions=changelog.partitions,
        output_topic="",
        output_id="",
        changelog_topic=name,
        changelog_id=changelog.id,
        state_dir=config["state.dir"],
        engine=EngineFactory(options.merge_options(config)),
        delete_retention_ms=int(changelog.config.get("delete.retention.ms", 86_400_000)),
        buckets=config["materializer.buckets"] or 0,
    )


def export_task(bucket_options: BucketOptions) -> Task:
    """The function for ``mapInArrow`` over bucket numbers: the bucket's records, then its marker."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                bucket = get_resident(bucket_options).bucket(number)
                for page in _split_pages(bucket.export()):
                    yield _build_page(number, page)
                if bucket.marker:
                    yield _build_page(number, [(MARKER_KEY, bucket.marker)])
        # The job continues with resources of its own.
        discard_resident(bucket_options.job)

    return task


def _split_pages(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    page: list[tuple[bytes, bytes]] = []
    size = 0
    for pair in pairs:
        page.append(pair)
        size += len(pair[0]) + len(pair[1])
        if len(page) >= _ROWS or size >= _BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page


def _build_page(bucket: int, pairs: list[tuple[bytes, bytes]]) -> pa.RecordBatch:
    import pyarrow as pa

    keys, values = zip(*pairs, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array([bucket] * len(pairs), pa.int32()), pa.array(keys, pa.binary()), pa.array(values, pa.binary())],
        names=["bucket", "key", "value"],
    )


def _read_files(spark: SparkSession, location: str, folder: str, files: list[str]) -> DataFrame:
    path = f"{spark_path(location)}/{folder}"
    if not files:
        return spark.createDataFrame([], _SCHEMA)
    return spark.read.schema(_SCHEMA).parquet(*(f"{path}/{name}" for name in files))


def _count_content(rows: DataFrame) -> dict[int, SavedBucket]:
    from pyspark.sql import functions as f

    rows_by_bucket = rows.groupBy("bucket").agg(f.count("*"), f.bit_xor(f.xxhash64("key", "value"))).collect()
    return {int(bucket): SavedBucket(int(records), int(digest)) for bucket, records, digest in rows_by_bucket}


# Starting from it


def restore_states(
    spark: SparkSession, config: Config, location: str, savepoint: str, state: Mapping[str, Any]
) -> None:
    """Write the state of each topic into its changelog, which must be new; continues an interrupted attempt. Blocks.

    Args:
        spark: the session.
        config: the job's.
        location: the savepoint.
        savepoint: its id.
        state: of its manifest.

    Raises:
        Fatal: the savepoint is damaged or does not fit the job, or a changelog has another state.
        Retriable: Kafka does not answer; call again.
    """
    log = logging.getLogger(f"spark_jobs.{config['name']}")
    saved = read_saved(state, location).topics
    admin = topics.KafkaTopics(clients.build_client_config(config))
    # Before topics are made, which a job that is refused would leave behind.
    for topic, part in saved.items():
        check_buckets(part, config["materializer.buckets"] or 0, admin.require(topic).partitions, topic)
    for topic, part in saved.items():
        config_of_topic = config_for(config, topic)
        engine = EngineFactory(options.merge_options(config_of_topic))
        bucket_options = prepare_topics(config_of_topic, engine, None, log=log.warning)
        count = restore_state(spark, config_of_topic, bucket_options, location, savepoint, part, log.warning)
        log.info("the state of %s, %d buckets, was written from the savepoint %s", topic, count, location)


def restore_state(
    spark: SparkSession,
    config: Config,
    bucket_options: BucketOptions,
    location: str,
    savepoint: str,
    saved: SavedState,
    warn: Callable[..., None],
) -> int:
    """Write the state of one topic; see ``restore_states``. Blocks.

    Args:
        spark: the session.
        config: as of a job that reads this topic alone.
        bucket_options: its buckets and topics (``job.prepare``).
        location: the savepoint.
        savepoint: its id.
        saved: what it has of the topic.
        warn: takes what an operator should know.

    Returns:
        How many buckets were written; 0: the changelog had everything already.

    Raises:
        Fatal: the savepoint is damaged or does not fit the job, or the changelog has another state.
        Retriable: Kafka does not answer; call again.
    """
    changelog = Changelog(bucket_options.client, bucket_options.changelog_topic, bucket_options.group)
    try:
        present = changelog.last_markers(range(bucket_options.count))
    finally:
        changelog.close()
    there = {bucket: msgspec.json.decode(raw, type=Marker) for bucket, raw in present.items()}
    check_target(there, savepoint, bucket_options.changelog_topic)
    done = {bucket for bucket, marker in there.items() if not marker.restoring}
    rescaled = check_buckets(saved, bucket_options.buckets, bucket_options.partitions, bucket_options.input_topic)
    missing = sorted(set(saved.files) - set(open_folder(location, spark).list(saved.folder)))
    if missing:
        raise Fatal(f"the savepoint {location} is damaged: {saved.folder} lacks {', '.join(missing)}")
    if done and done >= (set(range(bucket_options.count)) if rescaled else set(saved.content)):
        return 0
    rows = _read_files(spark, location, saved.folder, saved.files)
    if _count_content(rows) != saved.content:
        raise Fatal(
            f"the savepoint {location} is damaged: the records in {saved.folder} are not those that were saved (their "
            "number or checksum differs). Make another one"
        )
    markers = {int(row[0]): msgspec.json.decode(row[2], type=Marker) for row in rows.where("key = X''").collect()}
    _check_topics(markers, saved, config, bucket_options, warn)
    plan = (
        _plan_buckets(rows, markers, saved, bucket_options, savepoint, config)
        if rescaled
        else _plan_copies(markers, bucket_options, savepoint)
    )
    todo = [bucket for bucket in plan.markers if bucket not in done]
    results = _make_target_records(spark, rows, bucket_options, todo, rescaled=rescaled).mapInArrow(
        write_task(bucket_options, plan), "bucket int"
    )
    return len(results.collect())


def read_saved(state: Mapping[str, Any], location: str) -> SavedStates:
    """The description of the state in a manifest.

    Raises:
        Fatal: it is of another layout.
    """
    layout = state.get("layout")
    if layout != LAYOUT:
        raise Fatal(
            f"the savepoint {location} holds state of layout {layout}, and this version of Millrace reads layout {LAYOUT} "
            "only: start the job from it with the version that made it, and make another savepoint with this version"
        )
    try:
        return msgspec.convert(dict(state), SavedStates, str_keys=True)
    except msgspec.ValidationError as error:
        raise Fatal(f"the savepoint {location} can't be read: {error}; make another one") from None


def check_target(there: Mapping[int, Marker], savepoint: str, topic: str) -> None:
    """Whether a changelog may take the state of a savepoint.

    Raises:
        Fatal: it has another state.
    """
    other_marker = next((marker for marker in there.values() if marker.savepoint != savepoint), None)
    if other_marker is not None:
        owner = (
            f"the savepoint {other_marker.savepoint}"
            if other_marker.savepoint
            else "a job that did not start from this savepoint"
        )
        raise Fatal(
            f"the changelog {topic} has the state of {owner} already: give materializer.changelog.topic another name (and "
            "the job a new state.dir), or delete the topic if that state is not needed"
        )


def check_buckets(saved: SavedState, buckets: int, partitions: int, topic: str) -> bool:
    """Whether the rows go to other buckets than those they are in.

    Args:
        saved: what the savepoint has.
        buckets: how many by key the job has; 0: one for each input partition.
        partitions: of the input.
        topic: the input.

    Raises:
        Fatal: they can't.
    """
    if buckets:
        return saved.buckets != buckets
    if saved.buckets:
        raise Fatal(
            f"the savepoint has {saved.buckets} buckets by key, and the job one for each input partition: what is divided by "
            f"key can't go back. Set materializer.buckets (to {saved.buckets} or any other number)"
        )
    if saved.count != partitions:
        raise Fatal(
            f"the savepoint has {saved.count} buckets, one for each partition that the input had, and "
            f"{topic} has {partitions} now: set materializer.buckets and "
            "materializer.output.partitioner=murmur2, so that the state is divided by key"
        )
    return False


def _check_topics(
    markers: Mapping[int, Marker],
    saved: SavedState,
    config: Config,
    bucket_options: BucketOptions,
    warn: Callable[..., None],
) -> None:
    for bucket, marker in markers.items():
        if marker.restoring:
            raise Fatal(
                f"bucket {bucket} of the savepoint was itself not completely written when it was saved: start that job "
                "until it runs, and make another savepoint"
            )
        if marker.topic != bucket_options.input_topic or marker.topic_id != bucket_options.input_id:
            raise Fatal(
                f"the savepoint holds offsets of the topic {marker.topic} (id {marker.topic_id}), and "
                f"{bucket_options.input_topic} has the id {bucket_options.input_id}: offsets of another topic mean nothing "
                "here. A job starts from a savepoint with the same input topic in the same Kafka cluster"
            )
    same_output = any(marker.output_id == bucket_options.output_id for marker in markers.values())
    if same_output and saved.partitioner != bucket_options.partitioner:
        output = topics.KafkaTopics(bucket_options.client).require(bucket_options.output_topic)
        problem = (
            f"materializer.output.partitioner was {saved.partitioner} and is {bucket_options.partitioner}: later events of a "
            f"row go to another partition of {bucket_options.output_topic} than its earlier ones"
        )
        if "compact" in output.config.get("cleanup.policy", ""):
            raise Fatal(
                f"{problem}, and the topic is compacted: it would keep the last event of each partition. Give "
                f"sink.kafka.topic another name, and fill it with millrace job rebuild --output (job {config['name']})"
            )
        warn("%s: a reader that needs their order compares ums_id_ or the time of the event", problem)


class BucketPlan(msgspec.Struct, frozen=True):
    """The contents of the new buckets.

    Attributes:
        markers: the marker of each new bucket; one without is not written.
        catalog: goes into each new bucket; empty: the records have it.
        renumberings: by bucket of the savepoint; of those that are left out, records stay as they are.
    """

    markers: dict[int, Marker]
    catalog: bytes = b""
    renumberings: dict[int, Renumbering] = {}


def _plan_copies(markers: Mapping[int, Marker], bucket_options: BucketOptions, savepoint: str) -> BucketPlan:
    return BucketPlan(
        {
            bucket: msgspec.structs.replace(
                marker, owner=MarkerOwner(0, ""), savepoint=savepoint, partitions=bucket_options.partitions
            )
            for bucket, marker in markers.items()
        }
    )


def _plan_buckets(
    rows: DataFrame,
    markers: Mapping[int, Marker],
    saved: SavedState,
    bucket_options: BucketOptions,
    savepoint: str,
    config: Config,
) -> BucketPlan:
    """The new buckets' marker and catalog, and what becomes of the records of each old bucket."""
    from pyspark.sql import functions as f

    heads = rows.where(f.col("key") == f.lit(CATALOG)).collect()
    catalogs = {int(row[0]): unpack_catalog(bytes(row[2])) for row in heads}
    ordered = config["source.format"] == "partition-update" and config["source.value.encoding"] == "avro"
    merged = merge_catalogs(list(catalogs.values()), ordered_by_registry=ordered)
    renumberings = {bucket: make_renumbering(catalog, merged) for bucket, catalog in catalogs.items()}
    marker = joined_marker(markers, saved, bucket_options, savepoint)
    return BucketPlan(
        dict.fromkeys(range(bucket_options.buckets), marker),
        pack_catalog(merged) if merged.versions else b"",
        {bucket: change for bucket, change in renumberings.items() if not change.changes_nothing},
    )


def joined_marker(
    markers: Mapping[int, Marker], saved: SavedState, bucket_options: BucketOptions, savepoint: str
) -> Marker:
    """The marker of all new buckets, made of those of the old ones.

    Raises:
        Fatal: the old buckets don't stand where one marker can say it.
    """
    if not markers:
        raise Fatal("the savepoint has no marker of any bucket, so its position is not known")
    any_one = next(iter(markers.values()))
    if any(marker.replay is not None or marker.output_id != any_one.output_id for marker in markers.values()):
        raise Fatal(
            "the output topic was not completely rebuilt when the savepoint was made: finish millrace job rebuild --output, "
            "then make another savepoint"
        )
    positions = any_one.positions if saved.buckets else {bucket: marker.next for bucket, marker in markers.items()}
    if saved.buckets and any(marker.positions != positions for marker in markers.values()):
        raise Fatal(
            "the buckets of the savepoint do not all stand at the same offsets: the job was killed in the middle of a batch "
            "and has not run since. Start it from this savepoint with its old number of buckets (or where it was), let it "
            "do a batch, and make another savepoint"
        )
    return Marker(
        next=0,
        sequence=max(marker.sequence for marker in markers.values()),
        topic=any_one.topic,
        topic_id=any_one.topic_id,
        partitions=bucket_options.partitions,
        owner=MarkerOwner(0, ""),
        output_id=any_one.output_id,
        buckets=bucket_options.buckets,
        positions=positions,
        savepoint=savepoint,
    )


def target_column(buckets: int) -> Any:
    """The new bucket of a state key in column ``key``: as ``keys.bucket_of`` of its partition prefix."""
    from pyspark.sql import functions as f

    return f.expr(
        f"cast(crc32(substring(key, 1, 2 + cast(conv(hex(substring(key, 1, 2)), 16, 10) as int))) % {buckets} as int)"
    )


def _make_target_records(
    spark: SparkSession, rows: DataFrame, bucket_options: BucketOptions, todo: list[int], *, rescaled: bool
) -> DataFrame:
    """(target, bucket, key, value) of all records, in order of target; and one row without a key for each target."""
    from pyspark.sql import functions as f

    skipped = [MARKER_KEY, CATALOG] if rescaled else [MARKER_KEY]
    target = target_column(bucket_options.buckets) if rescaled else f.col("bucket")
    records = rows.where(~f.col("key").isin(*(f.lit(key) for key in skipped))).select(
        target.alias("target"), "bucket", "key", "value"
    )
    heads = spark.createDataFrame(
        [(bucket, -1, None, None) for bucket in todo], "target int, bucket int, key binary, value binary"
    )
    chosen = records.where(f.col("target").isin(*todo)).unionByName(heads)
    return chosen.repartition(max(len(todo), 1), "target").sortWithinPartitions("target")


def write_task(bucket_options: BucketOptions, plan: BucketPlan) -> Task:
    """The function for ``mapInArrow`` over ``_make_target_records``: writes each bucket and gives a row with its number."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for target, group in groupby(_iter_records(batches), itemgetter(0)):
            try:
                _write_bucket(
                    bucket_options, target, plan, ((row[1], row[2], row[3]) for row in group if row[2] is not None)
                )
            except Redo as error:
                raise Retriable(f"bucket {target} of the savepoint can't be written: {error}") from error
            yield pa.RecordBatch.from_arrays([pa.array([target], pa.int32())], names=["bucket"])

    return task


def _iter_records(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, bytes, bytes]]:
    for batch in batches:
        yield from zip(*(batch.column(index).to_pylist() for index in range(4)), strict=True)


def _write_bucket(
    bucket_options: BucketOptions, number: int, plan: BucketPlan, rows: Iterator[tuple[int, bytes, bytes]]
) -> None:
    """Write one bucket in transactions of bounded size. The marker of all but the last says that it is not complete."""
    writer = BucketWriter(bucket_options, number)
    changelog = Changelog(bucket_options.client, bucket_options.changelog_topic, bucket_options.group)
    try:
        marker = msgspec.structs.replace(plan.markers[number], writer=writer.token)
        unfinished = msgspec.json.encode(msgspec.structs.replace(marker, restoring=True))
        changes: list[tuple[bytes, bytes]] = [(CATALOG, plan.catalog)] if plan.catalog else []
        size = 0
        for bucket, key, value in rows:
            renumbered = plan.renumberings.get(bucket)
            blob = value if renumbered is None else renumbered.record(key, value)
            changes.append((key, blob))
            size += len(key) + len(blob)
            if len(changes) >= bucket_options.max_changes or size >= bucket_options.max_bytes:
                _commit_changes(writer, changelog, changes, unfinished)
                changes, size = [], 0
        _commit_changes(writer, changelog, changes, msgspec.json.encode(marker))
    finally:
        changelog.close()
        writer.close()


def _commit_changes(
    writer: BucketWriter, changelog: Changelog, changes: list[tuple[bytes, bytes]], marker: bytes
) -> None:
    writer.begin()
    writer.changes(changes)
    writer.commit(marker, None, changelog.group_metadata())
