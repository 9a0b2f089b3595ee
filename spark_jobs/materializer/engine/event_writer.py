"""From a row's images before and after a change to the event that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_jobs.materializer.contract import OutputRecord
from spark_jobs.materializer.engine.model import PublishLatency
from spark_jobs.materializer.events.forms import CREATE, DELETE, READ, UPDATE
from spark_jobs.materializer.events.images import is_living

if TYPE_CHECKING:
    from spark_jobs.materializer.engine.bucket_table import BucketTable
    from spark_jobs.materializer.engine.model import EventOrigin, MergeOptions
    from spark_jobs.materializer.engine.rowstate import RowState


class EventWriter:
    """Writes the events of one bucket.

    Args:
        options: see ``MergeOptions``.
        table: of the bucket.
        sequence: the last ``ums_id_`` that the bucket has given out.

    Attributes:
        sequence: the last one given out now.
        latency: publish latencies since they were taken last.
        now_ns: the time of the call it works for, ns since 1970.
    """

    def __init__(self, options: MergeOptions, table: BucketTable, sequence: int) -> None:
        self._table = table
        self._emit_unchanged = options.emit_unchanged
        self._tombstones = options.tombstones_on_delete
        self.sequence = sequence
        self.latency = PublishLatency()
        self.now_ns = 0

    def show_change(
        self,
        state: RowState,
        before: list[Any] | None,
        image: list[Any],
        keys: tuple[Any, ...],
        static_before: list[Any],
        static: list[Any],
        origin: EventOrigin,
        emit: list[OutputRecord],
    ) -> None:
        """Append the event that leads from ``before`` to ``image``, if any."""
        codec = self._table.codec
        if is_living(state, image):
            now = codec.image([*keys, *static, *image])
            if before is None:
                operation, was = READ if origin.snapshot else CREATE, None
            else:
                operation, was = UPDATE, codec.image([*keys, *static_before, *before])
                if was == now and not self._emit_unchanged:
                    return
            state.shown = True
        elif before is None:
            return
        else:
            operation, was, now = DELETE, codec.image([*keys, *static_before, *before]), None
            state.shown = False
        now_ns = self.now_ns
        sequence = self.sequence = max(self.sequence + 1, now_ns // 1000)
        now_ms = now_ns // 1_000_000
        time_ms = origin.write_time // 1000
        latency = self.latency
        delay = now_ms - time_ms
        latency.count += 1
        latency.total += delay
        latency.largest = max(latency.largest, delay)
        key = codec.key(keys)
        time_ms = max(0, min(time_ms, now_ms))  # brokers refuse other times
        emit.append(OutputRecord(key, codec.event(operation, was, now, key, origin, sequence, now_ms), time_ms))
        if now is None and self._tombstones:
            emit.append(OutputRecord(key, None, time_ms))
