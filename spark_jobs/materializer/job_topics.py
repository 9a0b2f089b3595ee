"""The topics of a materializer's job: which it reads, those that it makes or checks, and whose they are."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from connectors.errors import Fatal
from connectors.formats.masks.masking import rule_names
from spark_jobs.kafka import clients
from spark_jobs.kafka.lag import KafkaView
from spark_jobs.materializer import config as options
from spark_jobs.materializer import topics
from spark_jobs.materializer.config import BucketOptions, Marker, MarkerOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.options import Config
    from spark_jobs.materializer.contract import Engine
    from spark_jobs.materializer.state.changelog import Changelog


def input_topics(config: Config) -> list[str]:
    """The topics that the job reads now. Blocks for a pattern: asks Kafka.

    Raises:
        Retriable: Kafka does not answer.
    """
    if config["source.topics"]:
        return list(config["source.topics"])
    view = KafkaView(config)
    try:
        return view.topics_read()
    finally:
        view.close()


def list_topic_problems(
    config: Config, source: topics.Topic, changelog: topics.Topic | None, output: topics.Topic | None
) -> list[str]:
    """Why a job can't use its topics; ``None`` for one that is to be made. Pure."""
    max_bytes = config["materializer.record.max.bytes"]
    buckets = config["materializer.buckets"] or 0
    problems = []
    if changelog is not None:
        problems += topics.changelog_complaints(
            changelog, partitions=source.partitions, buckets=buckets, record_max_bytes=max_bytes
        )
    if output is not None:
        problems += topics.size_complaints(output, max_bytes)
        if config["materializer.output.heartbeats"]:
            problems += topics.heartbeat_complaints(output)
        if config["materializer.output.partitioner"] == "bucket" and output.partitions < source.partitions:
            problems.append(
                f"the output topic {output.name} has {output.partitions} partitions, the input "
                f"{source.partitions}: give it as many, or set materializer.output.partitioner=murmur2"
            )
    return problems


def prepare_topics(
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
    client = clients.build_client_config(config)
    admin = topics.KafkaTopics(client)
    source = admin.require(config["source.topics"][0])
    max_bytes = config["materializer.record.max.bytes"]
    replication = config["materializer.topics.replication.factor"]
    name, target = options.changelog_topic(config), config["sink.kafka.topic"]
    changelog, output = admin.find(name), admin.find(target)
    problems = list_topic_problems(config, source, changelog, output)
    if not problems:
        if changelog is None:
            count = config["materializer.buckets"] or source.partitions
            log("making the changelog topic %s with %d partitions", name, count)
            changelog = admin.make(
                name,
                count,
                replication,
                topics.changelog_settings(
                    record_max_bytes=max_bytes,
                    min_lag_ms=config["materializer.changelog.min.compaction.lag.ms"],
                    delete_retention_ms=config["materializer.changelog.delete.retention.ms"],
                ),
            )
        if output is None:
            log("making the output topic %s with %d partitions", target, source.partitions)
            output = admin.make(
                target, source.partitions, replication, topics.output_settings(record_max_bytes=max_bytes)
            )
        # Again: somebody else may have made them at the same time.
        problems = list_topic_problems(config, source, changelog, output)
    if problems or changelog is None or output is None:
        raise Fatal("\n".join(problems))
    for sentence in topics.output_warnings(output):
        log(sentence)
    return BucketOptions(
        job=config["name"],
        owner=MarkerOwner(0, secrets.token_hex(8)),
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
        record_max_bytes=max_bytes,
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
    raw_markers = changelog.last_markers(range(partitions))
    return {bucket: msgspec.json.decode(raw, type=Marker) for bucket, raw in raw_markers.items()}


def take_ownership(bucket_options: BucketOptions, markers: Mapping[int, Marker]) -> BucketOptions:
    """The options of a run that takes over from all that came before."""
    epoch = max((marker.owner.epoch for marker in markers.values()), default=0) + 1
    return replace(bucket_options, owner=MarkerOwner(epoch, bucket_options.owner.run))
