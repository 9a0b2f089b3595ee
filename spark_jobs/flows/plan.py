"""The parts of a job's plan, and whether the systems that it needs can be reached. Reads, never writes; starts no Spark."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Final

from connectors.errors import MillraceError
from spark_jobs.config.keys import KAFKA, SOURCE_TYPE, STARTING_GROUP
from spark_jobs.kafka import clients, ranges
from spark_jobs.kafka.lag import KafkaView
from spark_jobs.spark.checkpoint import open_local
from spark_jobs.spark.filesystems import missing_clients
from spark_jobs.spark.session import is_local
from spark_jobs.steps.options import step_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.job import Job
    from spark_jobs.kafka.ranges import ExistingTopic

_SHOWN: Final = 20
_WAITS: Final = "the job would wait until it does (errors.retry.timeout.ms)"


def list_remarks(job: Job) -> list[str]:
    """Return remarks about settings that are allowed but may not be intended."""
    config = job.config
    notes = clients.find_unknown_properties(config)
    if not config["source.fail.on.data.loss"]:
        notes.append(
            "source.fail.on.data.loss=false: records that Kafka deletes before they are read are left out"
            + (f", whatever guarantee={job.guarantee} says" if job.guarantee != "none" else "")
        )
    if config["errors.tolerance"] == "all" and not config["errors.deadletterqueue.topic.name"]:
        notes.append(
            "errors.tolerance=all without errors.deadletterqueue.topic.name: records that can't be decoded are only "
            "logged"
        )
    if not is_local(job.master) and "checkpoint.location" not in config.raw:
        notes.append(
            f"checkpoint.location is not set: {job.checkpoint} is on this machine, so the job can only continue from here"
        )
    if config["source.min.partitions"]:
        notes.append("source.min.partitions: changes of one key may be written in another order")
    return notes


def check_reachability(job: Job) -> list[str]:
    """Everything that is not there: Kafka, topics, the registry, what the sink needs. Blocks for some seconds at most."""
    complaints = _topic_complaints(job) if job.config[SOURCE_TYPE] == KAFKA else []
    complaints += missing_clients(job.config.raw)
    complaints += _step_refusals(job)
    url = job.config["source.schema.registry.url"]
    if url:
        complaints += _check_registry(url)
    try:
        complaints += job.sink_class().check(job.config)
    except MillraceError as error:
        complaints.append(str(error))
    return complaints


def _topic_complaints(job: Job) -> list[str]:
    """Complaints about the job's topics. Asks Kafka."""
    complaints: list[str] = []
    view = KafkaView(job.config, timeout_s=5)
    try:
        names = view.topics_read()
        existing = view.existing(names)
        servers = job.config["kafka.bootstrap.servers"]
        complaints += [
            f"source.topics: topic {name} does not exist on {servers}" for name in names if name not in existing
        ]
        if not names:
            complaints.append(f"source.topics.pattern: no topic matches {job.config['source.topics.pattern']}")
        complaints += (
            ranges.find_losses(_read_checkpoint_position(job) or {}, existing, {})
            if job.config["source.fail.on.data.loss"]
            else []
        )
    except MillraceError as error:
        complaints.append(str(error))
    finally:
        view.close()
    return complaints


def _check_registry(url: str) -> list[str]:
    first = url.partition(",")[0].rstrip("/")
    shown = re.sub(r"//[^/@]*@", "//", first)
    if not first.startswith(("http://", "https://")):
        return [f"source.schema.registry.url: {shown} is no http or https address"]
    try:
        with urllib.request.urlopen(f"{re.sub(r'//[^/@]*@', '//', first)}/subjects", timeout=10):  # noqa: S310 - http only
            return []
    except urllib.error.HTTPError as error:
        # It is there; whether the job may ask it is found out with its credentials.
        return (
            []
            if error.code in (401, 403)
            else [f"source.schema.registry.url: {shown} answers {error.code} {error.reason}"]
        )
    except OSError as error:
        return [f"source.schema.registry.url: {shown} does not answer: {error}"]


def _read_checkpoint_position(job: Job) -> ranges.Offsets | None:
    """The position in the checkpoint; None without one, or if only Spark could read it."""
    folder = open_local(job.checkpoint)
    if folder is None:
        return None
    done = ranges.last_batch(folder, "commits")
    planned = ranges.last_batch(folder)
    if done is not None:
        return ranges.read_position(folder, done)
    return ranges.start_of(folder, planned) if planned is not None else None


def list_step_lines(job: Job) -> list[str]:
    """The lines of the steps of a job's flow, and why steps are refused; none where it has no steps."""
    if not step_names(job.config.raw):
        return []
    from spark_jobs.steps.planning.plans import step_lines  # imports types of Spark

    return step_lines(job.config)


def _step_refusals(job: Job) -> list[str]:
    lines = list_step_lines(job)
    if not lines:
        return []
    from spark_jobs.steps.planning.plans import refusal_in

    return [refusal for line in lines if (refusal := refusal_in(line))]


def source_lines(job: Job) -> list[str]:
    """The topics that the job reads, topic by topic. Blocks: asks Kafka."""
    view = KafkaView(job.config, timeout_s=5)
    try:
        names = view.topics_read()
        existing = view.existing(names)
        position = _read_checkpoint_position(job)
        committed = _group_offsets(job, view, existing) if position is None else {}
    except MillraceError as error:
        return [str(error)]
    finally:
        view.close()
    lines = []
    if open_local(job.checkpoint) is None:
        lines.append(f"(its position is in {job.checkpoint}, which is read at its start)")
    for name in names[:_SHOWN]:
        if name not in existing:
            lines.append(f"{name}: does not exist; " + ("the job would fail" if job.available_now else _WAITS))
            continue
        lines.append(_topic_line(job, name, existing[name], position, committed))
    if len(names) > _SHOWN:
        lines.append(f"and {len(names) - _SHOWN} more topics")
    if not names:
        lines.append("no topic matches now")
    missing = ranges.find_losses(position or committed, existing, {})
    return lines + [f"MISSING: {problem}" for problem in missing]


def _group_offsets(job: Job, view: KafkaView, existing: Mapping[str, ExistingTopic]) -> ranges.Offsets:
    """The offsets of the group at which a job with an empty checkpoint begins; none without such a group."""
    group = job.config[STARTING_GROUP]
    where = [(topic, partition) for topic, now in existing.items() for partition in now.end]
    return view.committed(where, group) if group else {}


def _topic_line(
    job: Job, name: str, now: ExistingTopic, position: ranges.Offsets | None, committed: Mapping[tuple[str, int], int]
) -> str:
    begin: dict[int, int] = {}
    for partition in now.end:
        at = (name, partition)
        next_offset = committed.get(at) if position is None else position.get(at, now.first[partition])
        latest = position is None and job.config["source.starting.offsets"] == "latest"
        begin[partition] = (
            next_offset if next_offset is not None else now.end[partition] if latest else now.first[partition]
        )
    waiting = sum(max(0, now.end[partition] - offset) for partition, offset in begin.items())
    where = "from its checkpoint" if position is not None else f"from {job.config['source.starting.offsets']}"
    if any(topic == name for topic, _ in committed):
        where = f"from the offsets of the group {job.config[STARTING_GROUP]}"
    offsets = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(begin.items())[:_SHOWN])
    suffix = ", ..." if len(begin) > _SHOWN else ""
    return f"{name}: {len(now.end)} partitions, {where} ({offsets}{suffix}), {waiting} records to read"


def guarantee_reason(job: Job) -> str:
    """The meaning of the guarantee, and where it comes from."""
    how = {
        "exactly-once": "a batch that is repeated after a crash has the same records, and the sink recognizes what it has "
        "already",
        "at-least-once": "nothing is left out; after a crash the sink may write a batch twice",
        "none": "after a crash, records may be missing or written twice",
    }[job.guarantee]
    offered = job.sink_class().guarantees
    asked = "" if "guarantee" in job.config.raw else f" (the strongest that the sink offers: {', '.join(offered)})"
    return how + asked
