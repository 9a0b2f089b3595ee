"""Snapshots that wait for a time of day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from connectors.snapshot.views import views
from connectors.source_options.start_times import latest_ms, start_ms
from worker.schedule import due_instructions


def ms(*parts: int, zone: ZoneInfo | None = None) -> int:
    return int(datetime(*parts, tzinfo=zone or UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("at", "zone", "now", "expected"),
    [
        ("02:30", "", ms(2026, 5, 1, 1), ms(2026, 5, 1, 2, 30)),
        ("02:30", "", ms(2026, 5, 1, 2, 30), ms(2026, 5, 2, 2, 30)),
        ("02:30:15", "Europe/Berlin", ms(2026, 5, 1, 1), ms(2026, 5, 2, 0, 30, 15)),
        # The clocks go forward over it, and back over it: the first of the two.
        ("02:30", "Europe/Berlin", ms(2026, 3, 29, 0), ms(2026, 3, 29, 1, 30)),
        ("02:30", "Europe/Berlin", ms(2026, 10, 24, 23), ms(2026, 10, 25, 0, 30)),
        ("02:30", "Europe/Berlin", ms(2026, 10, 25, 0, 45), ms(2026, 10, 26, 1, 30)),
        ("2026-12-01T02:30:00", "Europe/Berlin", ms(2026, 5, 1), ms(2026, 12, 1, 1, 30)),
        ("2026-12-01T02:30:00+05:00", "Europe/Berlin", ms(2026, 5, 1), ms(2026, 11, 30, 21, 30)),
    ],
)
def test_when_it_begins(at: str, zone: str, now: int, expected: int) -> None:
    assert start_ms(at, zone, now) == expected


@pytest.mark.parametrize(
    ("at", "zone", "now", "last"),
    [
        ("02:30", "", ms(2026, 5, 1, 2, 29, 59), ms(2026, 4, 30, 2, 30)),
        ("02:30", "", ms(2026, 5, 1, 2, 30), ms(2026, 5, 1, 2, 30)),
        ("02:30:15", "Europe/Berlin", ms(2026, 5, 1, 1), ms(2026, 5, 1, 0, 30, 15)),
        ("23:30", "Europe/Berlin", ms(2026, 5, 1, 22), ms(2026, 5, 1, 21, 30)),
        ("02:30", "Europe/Berlin", ms(2026, 3, 29, 1), ms(2026, 3, 28, 1, 30)),
        ("02:30", "Europe/Berlin", ms(2026, 10, 25, 1), ms(2026, 10, 25, 0, 30)),
    ],
)
def test_when_it_was_last(at: str, zone: str, now: int, last: int) -> None:
    assert latest_ms(at, zone, now) == last


@given(st.integers(0, 2**41), st.integers(0, 86_399), st.sampled_from(["", "Europe/Berlin", "America/New_York"]))
def test_the_last_time_is_at_most_now_and_the_next_one_after_it(now: int, second: int, zone: str) -> None:
    at = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    last = latest_ms(at, zone, now)
    assert last <= now < start_ms(at, zone, now)
    assert now - last <= 25 * 3_600_000


@pytest.mark.parametrize(
    ("at", "zone", "message"),
    [
        ("25:00", "", "start_at"),
        ("2:30", "", "start_at"),
        ("tonight", "", "start_at"),
        ("2026-12-01", "", "start_at"),
        ("2025-01-01T00:00:00", "", "past"),
        ("02:30", "Europe/Nowhere", "time_zone"),
        ("02:30", "../etc/passwd", "time_zone"),
    ],
)
def test_what_is_refused(at: str, zone: str, message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        start_ms(at, zone, ms(2026, 5, 1))


@given(
    st.integers(ms(2020, 1, 1), ms(2035, 1, 1)),
    st.integers(0, 23),
    st.integers(0, 59),
    st.sampled_from(["", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia"]),
)
def test_it_is_the_next_one(now_ms: int, hour: int, minute: int, zone: str) -> None:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = datetime.fromtimestamp(start_ms(f"{hour:02}:{minute:02}", zone, now_ms) / 1000, UTC)
    assert timedelta(0) < start - now + timedelta(milliseconds=1) <= timedelta(hours=50)
    shown = start.astimezone(ZoneInfo(zone or "UTC"))
    assert shown.minute == minute or shown.utcoffset() != (shown - timedelta(hours=3)).utcoffset()


def test_tasks_get_a_waiting_snapshot_as_a_paused_one() -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "state": "running"},
        {"id": "b", "state": "running", "start_ms": 5_000},
        {"id": "c", "state": "cancelled", "start_ms": 9_000},
        {"id": "d", "state": "running", "start_ms": 8_000},
    ]
    current, wait = due_instructions(rows, 4_000)
    assert ([row["state"] for row in current], wait) == (["running", "paused", "cancelled", "paused"], 1_000)
    current, wait = due_instructions(rows, 5_000)
    assert ([row["state"] for row in current], wait) == (["running", "running", "cancelled", "paused"], 3_000)
    assert due_instructions(rows, 8_000) == (rows, None)


def test_it_is_shown_as_scheduled_until_then() -> None:
    asked = {"id": "s", "state": "running", "origin": "rest", "tables": ["t"], "created_ms": 1, "start_ms": 5_000}

    def shown(now_ms: int, *saved: str, state: str = "running") -> str:
        (row,) = views(
            [{**asked, "state": state}],
            {"s": [{"state": saved_state} for saved_state in saved]} if saved else {},
            lambda _name, _text: {},
            now_ms,
        )
        assert row["start_ms"] == 5_000
        return str(row["state"])

    assert [shown(4_999), shown(4_999, "paused"), shown(4_999, state="paused"), shown(4_999, state="cancelled")] == [
        "scheduled",
        "scheduled",
        "paused",
        "cancelled",
    ]
    assert [shown(5_000), shown(5_000, "running"), shown(4_999, "completed")] == ["waiting", "running", "completed"]
