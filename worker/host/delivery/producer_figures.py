"""The numbers that a task reports of its producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.metrics import topics

if TYPE_CHECKING:
    from worker.host.delivery.producer import Producer
    from worker.host.delivery.producer_counts import TopicTally
    from worker.host.task_metrics import Metrics
    from worker.protocol import TaskStats


class ProducerFigures:
    """Adds what a task's producers count to the numbers of the task.

    Args:
        metrics: of the task, for what is counted by topic.
        stats: of the task.
    """

    def __init__(self, metrics: Metrics, stats: TaskStats) -> None:
        self._metrics = metrics
        self._stats = stats
        self._counted = (0, 0, 0, 0.0)

    def begin(self) -> None:
        """Another producer begins, which counts from zero."""
        self._counted = (0, 0, 0, 0.0)

    def refresh(self, producer: Producer) -> None:
        """Add what the producer counted since the last call."""
        acked, unacked = producer.acked, producer.unacked
        now = (acked.rows, acked.bytes, acked.batches, acked.latency_s)
        before, self._counted = self._counted, now
        stats = self._stats
        for topic, tally in acked.take_topics().items():
            self._report_topic(topic, tally)
        stats.written += now[0] - before[0]
        stats.bytes_written += now[1] - before[1]
        stats.produce_batches += now[2] - before[2]
        stats.produce_latency_s += now[3] - before[3]
        stats.active = unacked.rows
        stats.active_bytes = unacked.bytes
        stats.active_limit = producer.settings.max_rows
        stats.active_limit_bytes = producer.settings.max_bytes
        stats.active_max = max(stats.active_max, unacked.rows_max)
        unacked.rows_max = unacked.rows

    def _report_topic(self, topic: str, tally: TopicTally) -> None:
        numbers, labels = self._metrics, {"topic": topic}
        numbers.add(topics.RECORDS, tally.records, labels)
        numbers.add(topics.BYTES, tally.bytes, labels)
        if tally.latest_ms is not None:
            numbers.set(topics.DELAY, tally.delay_ms / 1000, labels)
            numbers.set(topics.LAST, tally.latest_ms / 1000, labels)
