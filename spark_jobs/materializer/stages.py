"""How long changes take from stage to stage, as the materializer can tell: bounded samples, in histograms that can be added.

A change is written in the source (its write time), read by a connector (``source.read_time``), appended to the input topic
(Kafka's timestamp, where the topic has ``message.timestamp.type=LogAppendTime``; else the timestamp is the write time and says
nothing of it), and merged into a row whose event is on its way then. Clocks of several machines take part: what comes out
negative counts as 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WRITE_TO_READ: Final = "write_to_read"
READ_TO_TOPIC: Final = "read_to_topic"
TOPIC_TO_ROWS: Final = "topic_to_rows"
READ_TO_ROWS: Final = "read_to_rows"
WRITE_TO_ROWS: Final = "write_to_rows"

#: The minimum interval between two samples in ns: a thousand a second are enough for any quantile, and cost next to nothing.
_EVERY_NS: Final = 1_000_000
#: Below this number, each ms is a bucket of its own; above, each power of two has this number of buckets.
_PARTS: Final = 8
_PART_BITS: Final = 3


class StageHistogram(msgspec.Struct):
    """Whole milliseconds by bucket, an eighth of a power of two wide: a quantile is at most 12.5 % too high.

    Attributes:
        counts: by number of the bucket.
        count: how many.
        total: their sum.
        largest: the largest.
    """

    counts: dict[int, int] = {}
    count: int = 0
    total: int = 0
    largest: int = 0

    def add(self, value: int) -> None:
        """Count a value; negative ones as 0."""
        value = max(value, 0)
        bits = value.bit_length()
        shift = bits - _PART_BITS - 1
        bucket = value if shift < 0 else bits * _PARTS + (value >> shift) - _PARTS
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.count += 1
        self.total += value
        self.largest = max(self.largest, value)

    def merge(self, histogram: StageHistogram) -> None:
        """Add all that another one has counted."""
        for bucket, count in histogram.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.count += histogram.count
        self.total += histogram.total
        self.largest = max(self.largest, histogram.largest)

    def quantile(self, share: float) -> int:
        """The value that ``share`` (0 to 1) of all values do not exceed, rounded up to the end of its bucket; 0 of none."""
        left = share * self.count
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return min(_compute_bucket_end(bucket), self.largest)
        return self.largest


def _compute_bucket_end(bucket: int) -> int:
    if bucket < _PARTS:
        return bucket
    bits, part = divmod(bucket, _PARTS)
    return (_PARTS + part + 1 << bits - _PART_BITS - 1) - 1


class Stages:
    """Takes samples of the changes that one engine merges.

    Attributes:
        due_ns: when the next sample may be taken, ns since 1970; whoever calls ``sample`` looks at it first.
    """

    def __init__(self) -> None:
        self.due_ns = 0
        self._histograms: dict[str, StageHistogram] = {}

    def sample(self, write_us: int, read_ms: int | None, topic_ms: int, now_ns: int) -> None:
        """Take one.

        Args:
            write_us: the change's write time.
            read_ms: when its connector read it, if the message says so.
            topic_ms: Kafka's timestamp.
            now_ns: the time of its event.
        """
        self.due_ns = now_ns + _EVERY_NS
        now_ms, write_ms = now_ns // 1_000_000, write_us // 1000
        self._add_sample(WRITE_TO_ROWS, now_ms - write_ms)
        if read_ms is None:
            return
        self._add_sample(WRITE_TO_READ, read_ms - write_ms)
        self._add_sample(READ_TO_ROWS, now_ms - read_ms)
        # A timestamp from before the reading is the write time that the connector gave it.
        if topic_ms >= read_ms:
            self._add_sample(READ_TO_TOPIC, topic_ms - read_ms)
            self._add_sample(TOPIC_TO_ROWS, now_ms - topic_ms)

    def _add_sample(self, stage: str, value: int) -> None:
        histogram = self._histograms.get(stage)
        if histogram is None:
            histogram = self._histograms[stage] = StageHistogram()
        histogram.add(value)

    def take(self) -> dict[str, StageHistogram]:
        """Return the samples since the last call, by stage."""
        samples, self._histograms = self._histograms, {}
        return samples


class StageNumbers:
    """A job's numbers of its stages: of the last batch that had samples, and since its start."""

    def __init__(self) -> None:
        self._totals: dict[str, tuple[int, int]] = {}

    def metrics(self, parts: Iterable[Mapping[str, StageHistogram]]) -> dict[str, float]:
        """The metrics that change with a batch; ``parts``: what its buckets sampled."""
        histograms: dict[str, StageHistogram] = {}
        for part in parts:
            for stage, histogram in part.items():
                histograms.setdefault(stage, StageHistogram()).merge(histogram)
        result: dict[str, float] = {}
        for stage, histogram in histograms.items():
            total, count = self._totals.get(stage, (0, 0))
            total, count = self._totals[stage] = total + histogram.total, count + histogram.count
            name = f"materializer_latency_{stage}"
            result |= {
                f"{name}_ms_p50": histogram.quantile(0.5),
                f"{name}_ms_p99": histogram.quantile(0.99),
                f"{name}_ms_max": histogram.largest,
                f"{name}_ms_total": total,
                f"{name}_samples_total": count,
            }
        return result
