"""Heartbeats that a job meets in the topics of tables: how late each table's changes come to the target, and in which stage.

A heartbeat promises that all changes of a table up to a time were sent before it. So once its batch is written, the target has
these changes. Sources note heartbeats while they decode, at no cost for other records; the runner says when a batch is
written. A retried batch notes the same heartbeats.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as f

from connectors.formats.table_heartbeats import HEADER
from spark_jobs.reports.met_heartbeats import TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

    from spark_jobs.contract import JobContext
    from spark_jobs.reports.met_heartbeats import MetHeartbeat

#: Tables with series of their own, as many as a worker allows by default; all others share the series of ``OTHER``.
MOST_TABLES: Final = 100
OTHER: Final = "other"
#: Tables that are remembered; what comes beyond is not measured.
_LIMIT: Final = 10_000


class Promise(NamedTuple):
    """One heartbeat. Times are in µs since 1970.

    Attributes:
        sent_us: up to when changes were sent, by the source's clock.
        kafka_us: when the record came to Kafka.
    """

    sent_us: int
    kafka_us: int


def heartbeat_text() -> Column:
    """The text of a raw record's heartbeat, null for other records. Headers are looked at where there is no value only."""
    of_heartbeat = f.filter("headers", lambda header: header["key"] == HEADER)
    header_text = f.get(of_heartbeat, 0)["value"].cast("string")
    return f.when(f.col("value").isNull(), f.regexp_substr(header_text, f.lit(TEXT)))


class Heartbeats:
    """The heartbeats of one run of a job. On the driver; of one thread at a time."""

    def __init__(self) -> None:
        #: Of the batch that is being written, by table and (Kafka partition, part of the source).
        self._met: dict[str, dict[tuple[str, int, str], Promise]] = {}
        self._promises: dict[str, dict[tuple[str, int, str], Promise]] = {}
        self._delays: dict[str, dict[str, float]] = {}
        #: The numbers of each table by the name of a metric (without ``millrace_job_table_``). Replaced, never changed.
        self.numbers: dict[str, dict[str, float]] = {}

    @classmethod
    def of(cls, context: JobContext) -> Heartbeats:
        """Those of a running job."""
        if context.heartbeats is None:
            context.heartbeats = cls()
        heartbeats: Heartbeats = context.heartbeats
        return heartbeats

    def note(self, table: str, topic: str, partition: int, promise: Promise, part: str) -> None:
        """A heartbeat is in the batch; ``part``: ``INDEX/COUNT`` of the task that speaks, or empty."""
        promises = self._met.setdefault(table, {})
        key = (topic, partition, part)
        promises[key] = max(promises.get(key, promise), promise)

    def note_met(self, beats: Iterable[MetHeartbeat]) -> None:
        """Tasks have met these in the batch."""
        for beat in beats:
            promise = Promise(beat.sent_us, beat.kafka_us)
            self.note(beat.table or beat.topic, beat.topic, beat.partition, promise, beat.part)

    def written(self, begun_s: float, now_s: float | None = None) -> None:
        """The target has the batch, whose work began at ``begun_s`` (seconds since 1970)."""
        met, self._met = self._met, {}
        now_s = time.time() if now_s is None else now_s
        for table, promises in met.items():
            if table not in self._promises and len(self._promises) >= _LIMIT:
                continue
            promises_now = self._promises.setdefault(table, {})
            counts = {_count_of(part) for *_, part in promises}
            for key in [key for key in promises_now if _count_of(key[2]) not in counts]:
                del promises_now[key]  # of tasks before their number has changed
            for key, promise in promises.items():
                promises_now[key] = max(promises_now.get(key, promise), promise)  # a restarted source repeats some
            oldest = min(promises.values())
            sent_s, kafka_s = oldest.sent_us / 1e6, oldest.kafka_us / 1e6
            self._delays[table] = {
                "delay_seconds": max(0.0, now_s - sent_s),
                "topic_delay_seconds": max(0.0, kafka_s - sent_s),
                "read_delay_seconds": max(0.0, begun_s - kafka_s),
                "write_delay_seconds": max(0.0, now_s - begun_s),
            }
        if met:
            self.numbers = self._measure()

    def _measure(self) -> dict[str, dict[str, float]]:
        numbers: dict[str, dict[str, float]] = {}
        for index, (table, delays) in enumerate(self._delays.items()):
            series = numbers.setdefault(table if index < MOST_TABLES else OTHER, {})
            for name, value in delays.items():
                series[name] = round(max(value, series.get(name, 0.0)), 6)
            complete_s = min(self._promises[table].values()).sent_us / 1e6
            series["complete_timestamp_seconds"] = min(complete_s, series.get("complete_timestamp_seconds", complete_s))
        return numbers


def is_no_heartbeat() -> Column:
    """Whether a raw record is not a heartbeat; costs a look at the value where it has one."""
    return f.col("value").isNotNull() | heartbeat_text().isNull()


def _count_of(part: str) -> str:
    return part.partition("/")[2]
