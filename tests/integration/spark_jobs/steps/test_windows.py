"""Random streams through windows equal the windows of all rows that were not late."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.spark_jobs.steps.event_streams import SECOND, START_US, Event, random_batches, run_batches
from tests.selection import scaled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLES = ("shop.orders",)
DELAY = 4
#: Size and slide in seconds; a slide of 0 is a session. Sessions of "cut" last at most this many seconds.
CASES = {"tumbling": (10, 10), "sliding": (10, 5), "session": (6, 0), "cut": (6, 0)}
LONGEST = 9
#: What is run of each window when only one history is: few batches, late rows, crashes, sessions that are cut.
SHORT = {"sliding": 1, "cut": 4}
FIRST = START_US // SECOND


def steps(window: str) -> dict[str, str]:
    size, slide = CASES[window]
    options = {
        "type": "window", "table": "shop.orders", "window": window.replace("cut", "session"),
        "size.ms": str(size * 1000), "group": "Group",
        "aggregates": "count(*) AS n, sum(`amount of shop.orders`) AS total, avg(id) AS mean, "
        "array_sort(collect_list(id)) AS ids",
        "watermark.ms": str(DELAY * 1000), "late": "keep",
    }  # fmt: skip
    if window == "sliding":
        options["slide.ms"] = str(slide * 1000)
    if window == "cut":
        options["session.max.ms"] = str(LONGEST * 1000)
    return {"steps": "w", **{f"step.w.{name}": value for name, value in options.items()}}


def expected(window: str, batches: Sequence[Sequence[Event]]) -> tuple[list[Any], list[int]]:
    """Group, start, end and rows of every closed window, and the ids of late rows: without any state."""
    size, slide = CASES[window]
    longest = LONGEST if window == "cut" else 10**9
    watermark: int | None = None
    newest = None
    members: dict[tuple[int, int], list[Event]] = {}
    accepted: list[Event] = []
    late = []
    for events in batches:
        for event in events:
            at = FIRST + event.second
            if not slide:
                if watermark is not None and at < watermark:
                    late.append(event.id)
                else:
                    accepted.append(event)
                continue
            starts = range(at - at % slide, at - size, -slide)
            opened = [start for start in starts if watermark is None or start + size > watermark]
            if len(opened) < len(starts):
                late.append(event.id)
            for start in opened:
                members.setdefault((event.group or 0, start), []).append(event)
        for event in events:
            newest = max(newest or 0, FIRST + event.second)
        if newest is not None:
            watermark = max(watermark or 0, newest - DELAY)
    spans = [(group, start, start + size, rows) for (group, start), rows in members.items()]
    for group in {event.group for event in accepted}:
        session: list[Event] = []
        for event in sorted((event for event in accepted if event.group == group), key=lambda event: event.second):
            gap = bool(session) and event.second - session[-1].second >= size
            if gap or (session and event.second - session[0].second >= longest):
                spans.append((group or 0, *_span(session, size, longest), session))
                session = []
            session.append(event)
        spans.append((group or 0, *_span(session, size, longest), session))
    closed = [
        (group, start, end, sorted(event.id for event in rows), sum(event.amount for event in rows))
        for group, start, end, rows in spans
        if watermark is not None and end <= watermark
    ]
    return sorted(closed), sorted(late)


def _span(session: Sequence[Event], size: int, longest: int) -> tuple[int, int]:
    start = FIRST + session[0].second
    return start, min(FIRST + session[-1].second + size, start + longest)


@pytest.mark.scaled
@pytest.mark.parametrize(
    "window",
    [
        "sliding",
        pytest.param("cut", marks=pytest.mark.slow),
        pytest.param("session", marks=pytest.mark.slow),
        pytest.param("tumbling", marks=pytest.mark.slow),
    ],
)
def test_batches_give_each_window_once(spark: SparkSession, tmp_path: Path, window: str) -> None:
    for seed in scaled([SHORT.get(window, 0)], list(range(8))):
        source = Random(f"{window} {seed}")
        batches = random_batches(source, TABLES, groups=2, nulls=False)
        output, flow = run_batches(spark, steps(window), TABLES, batches, tmp_path / str(seed), source)
        rows = output.get("w", [])
        result = [
            (row["Group"], _seconds(row["window_start"]), _seconds(row["window_end"]), row["ids"], row["total"])
            for row in rows
        ]
        answer, late = expected(window, batches)
        assert sorted(result) == answer, f"seed {seed}"
        assert all(row["n"] == len(row["ids"]) and row["mean"] == sum(row["ids"]) / row["n"] for row in rows)
        assert len({row["ums_uid_"] for row in rows}) == len(rows)
        assert sorted(row["id"] for row in output.get("w_late", [])) == late
        assert flow.measure_steps()["w"]["late_total"] == len(late)
        if window == "cut":
            seconds = {event.id: event.second for events in batches for event in events}
            newest = [FIRST + max(seconds[number] for number in ids) for *_, ids, _ in answer]
            too_long = sum(
                time + CASES[window][0] > start + LONGEST for time, (_, start, *_) in zip(newest, answer, strict=True)
            )
            assert flow.measure_steps()["w"]["sessions_cut_total"] == too_long


def _seconds(time: datetime) -> int:
    return round(time.timestamp())
