"""One pass over a bucket: what it has to do, from where it continues, and what came of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from connectors.errors import Fatal
from spark_jobs.materializer.config import Marker, describe_bucket_change
from spark_jobs.materializer.stages import StageHistogram  # noqa: TC001 - msgspec reads the annotation at run time
from spark_jobs.reports.met_heartbeats import MetHeartbeat  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from spark_jobs.materializer.config import BucketOptions

#: Of the rows that tasks give.
RESULT_SCHEMA: Final = "topic string, result string"


class PassRange(msgspec.Struct, frozen=True):
    """The work of a pass over one bucket.

    Attributes:
        start, end: the offsets of the batch, end excluded; -1: no input, expiry alone.
        first: the job's very first batch: a bucket without a marker begins at ``start``.
        parts: with buckets by key, in place of ``start`` and ``end``: input partition -> both.
    """

    start: int = -1
    end: int = -1
    first: bool = False
    parts: dict[int, tuple[int, int]] = {}


class Result(msgspec.Struct):
    """The result of one pass over one bucket. Counts are of this pass; ``rows`` and ``bytes`` of the state after it.

    ``stages``: samples of the time that changes took, by stage. ``heartbeats``: those among the records.
    """

    bucket: int
    records: int = 0
    replayed: int = 0
    outputs: int = 0
    suppressed: int = 0
    dead: int = 0
    expired: int = 0
    changes: int = 0
    transactions: int = 0
    redone: int = 0
    transaction_s: float = 0.0
    latency_ms: float = 0.0
    restored: int = 0
    restore_s: float = 0.0
    cpu_s: float = 0.0
    rows: int = 0
    bytes: int = 0
    next_due: int | None = None
    stages: dict[str, StageHistogram] = {}
    heartbeats: list[MetHeartbeat] = []
    discarded: str = ""
    #: An error of ours instead of a stack trace through the JVM: the class's name and the text.
    error: str = ""
    text: str = ""


class Pass(NamedTuple):
    """A pass over one bucket: the records of its input partition in ``span``, or none for a span without input."""

    topic: str
    bucket: int
    span: PassRange


@dataclass(frozen=True, slots=True)
class PassRequest:
    """A request to ``host_process``: passes, all of different buckets.

    Attributes:
        topics: pickled (input topic, options), of topics that this process has not heard of.
        isolation: see ``InputReader``.
    """

    passes: Sequence[Pass]
    topics: Sequence[bytes] = ()
    isolation: str = "read_committed"


@dataclass(frozen=True, slots=True)
class PassAnswer:
    """Its answer: a result for each pass, or the trace of an unexpected error."""

    results: Sequence[tuple[str, Result]]
    trace: str = ""


def encode_result(topic: str, result: Result) -> pa.RecordBatch:
    """The row in which a task gives the result of a bucket of an input topic: ``RESULT_SCHEMA``."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(
        [pa.array([topic]), pa.array([msgspec.json.encode(result).decode()])], names=["topic", "result"]
    )


def decode_result(raw: Any) -> Result:
    """A result as it comes from a task."""
    return msgspec.json.decode(raw, type=Result)


def check_marker(options: BucketOptions, number: int, marker: Marker | None, span: PassRange) -> Marker:
    """The marker of bucket ``number`` from which its pass continues; a new one if it has none yet.

    Raises:
        Fatal: what the batch brings does not follow on what was done.
    """
    where = options.input_topic if options.buckets else f"{options.input_topic} [{number}]"
    rebuild = f"run millrace job rebuild with --state to make the state again from the input (job {options.job})"
    if marker is None:
        if not span.first:
            raise Fatal(
                f"the changelog {options.changelog_topic} [{number}] has no marker, but the job is "
                f"past its first batch ({where} continues at offset {span.start}): the state was lost; "
                f"{rebuild}."
            )
        return Marker(
            next=max(span.start, 0),
            sequence=0,
            topic=options.input_topic,
            topic_id=options.input_id,
            partitions=options.partitions,
            owner=options.owner,
            output_id=options.output_id,
            buckets=options.buckets,
            positions={partition: start for partition, (start, _) in span.parts.items()},
        )
    if marker.restoring:
        raise Fatal(
            f"bucket {number} was not completely written from the savepoint {marker.savepoint}: start the job "
            "with source.savepoint once more, which continues that."
        )
    if marker.buckets != options.buckets:
        raise Fatal(f"materializer.buckets: {describe_bucket_change(marker.buckets)}.")
    if marker.topic != options.input_topic or marker.topic_id != options.input_id:
        raise Fatal(
            f"the state of bucket {number} is of the topic {marker.topic} (id {marker.topic_id}), "
            f"not of {options.input_topic} (id {options.input_id}): the topic was deleted and recreated, "
            f"or source.topics was changed. Give the job another name, or {rebuild}."
        )
    if marker.partitions != options.partitions and not options.buckets:
        raise Fatal(
            f"{options.input_topic} had {marker.partitions} partitions and has {options.partitions} now: "
            f"rows may have moved to other partitions, away from their state; {rebuild}."
        )
    starts = {
        f"{where} [{partition}]": (start, marker.positions.get(partition, start))
        for partition, (start, _) in span.parts.items()
    }
    for partition, (start, reached) in (starts or {where: (span.start, marker.next)}).items():
        if start > reached:
            raise Fatal(
                f"the batch begins at offset {start} of {partition}, but what was done ends at {reached}: "
                f"{start - reached} offsets are missing ({reached} to {start - 1}). The checkpoint is ahead of the "
                "state (the changelog was set back), or the records were deleted unread (retention). If the input "
                f"still has them, remove the checkpoint; else {rebuild}."
            )
    if marker.output_id != options.output_id and not options.rebuild_output:
        raise Fatal(
            f"the output topic {options.output_topic} (id {options.output_id}) is not the one that has "
            f"the rows of this job (id {marker.output_id}): it was deleted and recreated, or "
            "sink.kafka.topic was changed. Run millrace job rebuild with --output to fill it from the "
            "state."
        )
    return marker
