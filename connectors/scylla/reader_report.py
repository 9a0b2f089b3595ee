"""The numbers of a reader."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from connectors.scylla import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import TaskMetrics
    from connectors.scylla.source.fetching import Fetcher
    from connectors.scylla.source.lanes import GroupState
    from connectors.scylla.source.lateness import Confidence

_REPORT_S: Final = 1.0


class ReaderReport:
    """Reports the numbers of a reader at intervals.

    Args:
        numbers: takes the metrics.
        fetcher: counts queries, and has the lanes.
        confidence: says how late rows come.
        head_ms: how often a lane without a backlog is read.
    """

    def __init__(self, numbers: TaskMetrics, fetcher: Fetcher, confidence: Confidence, head_ms: int) -> None:
        self._numbers = numbers
        self._fetcher = fetcher
        self._confidence = confidence
        self._head_ms = head_ms
        self._reported = 0.0
        self._sent: dict[str, float] = {}

    def send(self, records: int, states: Sequence[GroupState], now_ms: float) -> None:
        """Report everything if it is due. Does not block.

        Args:
            records: made so far.
            states: of all groups.
            now_ms: the time of the source.
        """
        now_s = time.monotonic()
        if now_s - self._reported < _REPORT_S:
            return
        self._reported = now_s
        self._add_totals(records)
        self._set_lags(states, now_ms)
        self._set_gauges(states, now_s)

    def _add_totals(self, records: int) -> None:
        fetcher = self._fetcher
        counters = fetcher.counters
        for name, value in (
            (metrics.QUERIES, counters.queries),
            (metrics.QUERY_ERRORS, counters.errors),
            (metrics.QUERY_SECONDS, counters.seconds),
            (metrics.PAGES, counters.pages),
            (metrics.ROWS, counters.rows),
            (metrics.WINDOWS, counters.windows),
            (metrics.EMPTY_WINDOWS, counters.empty_windows),
            (metrics.EVENTS, records),
            (metrics.LATE_ROWS, self._confidence.late_rows),
        ):
            before = self._sent.get(name, 0)
            if value != before:
                self._numbers.add(name, value - before)
                self._sent[name] = value
        dropped = sum(
            sum(getattr(builder, "skipped", {}).values())
            for feed in {id(section.feed): section.feed for section in fetcher.sections}.values()
            for builder in feed.builders()
        )
        if dropped != self._sent.get(metrics.DROPPED_CHANGES, 0):
            self._numbers.add(metrics.DROPPED_CHANGES, dropped - self._sent.get(metrics.DROPPED_CHANGES, 0))
            self._sent[metrics.DROPPED_CHANGES] = dropped

    def _set_lags(self, states: Sequence[GroupState], now_ms: float) -> None:
        lags: dict[str, float] = {}
        for state in states:
            if not state.finished:
                table = str(state.group.table)
                lags[table] = max(lags.get(table, 0.0), now_ms - state.start_ms)
        for table, lag in lags.items():
            self._numbers.set(metrics.LAG_SECONDS, max(0.0, lag / 1000), {"table": table})

    def _set_gauges(self, states: Sequence[GroupState], now_s: float) -> None:
        fetcher = self._fetcher
        starts = [state.group.generation.start_ms for state in states if not state.finished]
        widest = max(
            (
                task.lane.width_ms if task.lane.lag_ms > self._head_ms else fetcher.retime().head_ms
                for section in fetcher.sections
                for task in section.lanes
            ),
            default=0,
        )
        for name, number in (
            (metrics.QUERIES_IN_FLIGHT, float(fetcher.gate.in_flight)),
            (metrics.QUERY_LIMIT, float(fetcher.limit.value)),
            (metrics.WINDOW_SECONDS, widest / 1000),
            (metrics.CONFIDENCE_SECONDS, self._confidence.window_ms(now_s) / 1000),
            (metrics.LATENESS_SECONDS, self._confidence.lateness_ms(now_s) / 1000),
            (metrics.GROUPS, float(len(states))),
            (metrics.STREAMS, float(sum(len(state.group.streams) for state in states))),
            (metrics.GROUPS_FINISHED, float(sum(state.finished for state in states))),
            (metrics.GENERATION_START, min(starts, default=0) / 1000),
        ):
            self._numbers.set(name, number)
