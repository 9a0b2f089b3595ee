"""The parts of a batch: offset ranges from the checkpoint, and whether Kafka still has them.

Sources: Spark's ``OffsetSeqLog`` and ``KafkaSourceInitialOffsetWriter`` (the files' forms); Kafka's topic ids (KIP-516).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.spark.checkpoint import Folder

#: (topic, partition) -> offset.
Offsets = dict[tuple[str, int], int]
#: (topic, partition) -> (first offset, offset after the last one).
Ranges = dict[tuple[str, int], tuple[int, int]]

_LATEST: Final = -1
_EARLIEST: Final = -2


def parse_offsets(offsets_json: str) -> Offsets:
    """Offsets as Spark writes them: ``{"topic": {"0": 12}}``."""
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in json.loads(offsets_json).items()
        for partition, offset in partitions.items()
    }


def parse_log(log_file: str) -> Offsets:
    """The offsets in a file of ``offsets/``: a version, a line of metadata, one line for each source.

    Raises:
        Fatal: it has another form (a checkpoint of another query, or of an unknown Spark).
    """
    lines = log_file.splitlines()
    if not lines or not lines[0].startswith("v") or len(lines) < 3:
        raise Fatal(
            "the checkpoint's offset log has a form that this version does not know; give the job a checkpoint of its "
            "own"
        )
    try:
        return {} if lines[2] == "-" else parse_offsets(lines[2])
    except (ValueError, AttributeError, TypeError):
        raise Fatal(
            f"the checkpoint's offset log holds {lines[2][:80]!r}, which are not Kafka offsets; give the job "
            "a checkpoint of its own"
        ) from None


def parse_initial(initial_file: str) -> Offsets:
    """The offsets with which the source began: ``sources/0/0``, a zero byte, a version and a line of offsets."""
    return parse_offsets(initial_file.lstrip("\0").split("\n", 1)[1])


def read_position(folder: Folder, batch: int) -> Offsets | None:
    """The offsets after ``batch``; None if the checkpoint does not have it. Reads one file."""
    log_file = folder.read(f"offsets/{batch}")
    return None if log_file is None else parse_log(log_file)


def last_batch(folder: Folder, kind: str = "offsets") -> int | None:
    """The newest batch in the checkpoint: planned (``offsets``) or done (``commits``). Lists a folder."""
    numbers = [int(name) for name in folder.list(kind) if name.isdigit()]
    return max(numbers, default=None)


def start_of(folder: Folder, batch: int) -> Offsets:
    """The offsets before ``batch``: after the one before, or where the source began. Reads one or two files."""
    before = read_position(folder, batch - 1) if batch > 0 else None
    if before is not None:
        return before
    initial_file = folder.read("sources/0/0")
    return parse_initial(initial_file) if initial_file is not None else {}


def starting_text(
    existing: Mapping[str, ExistingTopic], committed: Mapping[tuple[str, int], int], *, latest: bool
) -> str:
    """Where Spark shall begin in each partition: at the committed offset, else at the first record or after the last.

    Args:
        existing: the topics to read, with all their partitions: Spark wants each of them named.
        committed: offsets of some partitions.
        latest: whether the others begin after their last record.
    """
    default = _LATEST if latest else _EARLIEST
    return json.dumps(
        {
            topic: {str(partition): committed.get((topic, partition), default) for partition in content.end}
            for topic, content in existing.items()
        }
    )


def compute_ranges(
    start: Mapping[tuple[str, int], int], end: Mapping[tuple[str, int], int], earliest: Mapping[tuple[str, int], int]
) -> Ranges:
    """The ranges between two positions, without empty ones; partitions that are new begin at their earliest offset."""
    all_ranges = {where: (start.get(where, earliest.get(where, 0)), offset) for where, offset in end.items()}
    return {where: bounds for where, bounds in all_ranges.items() if bounds[1] > bounds[0]}


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """A topic as Kafka has it now.

    Attributes:
        id: the topic's id, which a topic that was deleted and recreated does not keep; empty where brokers have none.
        first: partition -> the earliest offset.
        end: partition -> the offset after the last one.
    """

    id: str
    first: Mapping[int, int]
    end: Mapping[int, int]


def find_losses(
    next_offsets: Mapping[tuple[str, int], int], existing: Mapping[str, ExistingTopic], known_ids: Mapping[str, str]
) -> list[str]:
    """Describe the losses among the records to read next, a sentence for each; empty if all records exist.

    Args:
        next_offsets: (topic, partition) -> the offset that has to be read next.
        existing: what there is, by topic; topics that are gone are not in it.
        known_ids: topic -> the id it had when the job first read it.
    """
    problems: list[str] = []
    for topic in dict.fromkeys(topic for topic, _ in next_offsets):
        offsets = {partition: offset for (name, partition), offset in next_offsets.items() if name == topic}
        now = existing.get(topic)
        if now is None:
            problems.append(f"topic {topic} is gone: the records from {_list_offsets(offsets)} on can't be read")
            continue
        known_id = known_ids.get(topic)
        if known_id and now.id and known_id != now.id:
            problems.append(
                f"topic {topic} was deleted and recreated (its id was {known_id} and is {now.id}): the job stood at "
                f"{_list_offsets(offsets)} of the old one, whose later records are lost; the new one has {_list_spans(now)}"
            )
            continue
        for partition, offset in offsets.items():
            if partition not in now.end:
                problems.append(
                    f"{topic}-{partition}: the partition is gone, the topic has {len(now.end)}; its records "
                    f"from offset {offset} on can't be read"
                )
            elif now.first[partition] > offset:
                problems.append(
                    f"{topic}-{partition}: offsets {offset} to {now.first[partition] - 1} are gone (deleted "
                    f"by retention before they were read); what exists begins at {now.first[partition]} and "
                    f"ends before {now.end[partition]}"
                )
            elif now.end[partition] < offset:
                problems.append(
                    f"{topic}-{partition}: the job stood at offset {offset}, but the partition ends at "
                    f"{now.end[partition]}: it was deleted and recreated, or a broker lost its end"
                )
    return problems


def _list_offsets(offsets: Mapping[int, int]) -> str:
    offset_list = ", ".join(
        f"partition {partition} offset {offset}" for partition, offset in sorted(offsets.items())[:10]
    )
    return offset_list + (f" and {len(offsets) - 10} more" if len(offsets) > 10 else "")


def _list_spans(now: ExistingTopic) -> str:
    span_list = ", ".join(
        f"{partition}: {now.first[partition]} to {now.end[partition]}" for partition in sorted(now.end)[:10]
    )
    return span_list + (f" and {len(now.end) - 10} more" if len(now.end) > 10 else "")


def loss_message(sentences: Sequence[str], checkpoint: str, *, limit: int = 20) -> str:
    """The error for ``find_losses``: what is missing and what can be done."""
    suffix = f"\n  and {len(sentences) - limit} more" if len(sentences) > limit else ""
    return (
        "Records that the job has not read yet are missing in Kafka:\n  "
        + "\n  ".join(sentences[:limit])
        + suffix
        + "\nNothing was skipped. To continue without them, set source.fail.on.data.loss=false for one start; to "
        f"read all that exists again, give the job a new checkpoint.location (now {checkpoint}); or bring the "
        "records back into the topic's source (a new snapshot). To keep it from happening, raise the topic's "
        "retention above the longest time that the job may stand still."
    )
