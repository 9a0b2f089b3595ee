"""From counters to rates, averages and maxima over 30 to 60 seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.metrics.windows import Maximum, MetricHistogram, TaskTable, TaskWindow
from worker.protocol import HostTaskId, Stats, TaskStats

if TYPE_CHECKING:
    from collections.abc import Iterator

ID = HostTaskId("c", 0)


def stats(**numbers: float) -> TaskStats:
    return TaskStats(ID, **numbers)  # type: ignore[arg-type]


def test_a_rate_covers_the_time_since_the_task_started_and_at_most_a_minute() -> None:
    window = TaskWindow(stats(), 0.0)
    for second in range(1, 301):
        window.observe(
            stats(polled=100 * second, polls=second, poll_s=0.01 * second, written=50 * second), float(second)
        )
        rates = window.rates(float(second))
        assert rates.poll_rate == pytest.approx(100)
        assert rates.write_rate == pytest.approx(50)
        assert rates.batch_avg == pytest.approx(100)
        assert rates.poll_ms_avg == pytest.approx(10)


def test_a_burst_leaves_the_window_after_a_minute() -> None:
    window = TaskWindow(stats(), 0.0)
    for second in range(1, 121):
        window.observe(stats(polled=6000, polls=1), float(second))
        rate = window.rates(float(second)).poll_rate
        if second <= 50:
            assert rate == pytest.approx(6000 / second)
        elif second > 60:
            assert rate == 0
    assert window.rates(120.0).poll_rate == 0
    assert window.rates(120.0).batch_avg == 0


def test_a_restarted_task_begins_with_an_empty_window() -> None:
    window = TaskWindow(stats(polled=1_000_000, started_at=1.0, batch_size_max=500), 0.0)
    window.observe(stats(polled=10, polls=1, started_at=2.0, batch_size_max=10), 10.0)
    assert window.rates(10.0).poll_rate == pytest.approx(10.0)
    window.observe(stats(polled=22, polls=2, started_at=2.0, batch_size_max=10), 20.0)
    rates = window.rates(20.0)
    assert rates.poll_rate == pytest.approx(2.0)
    assert rates.batch_max == 10


def test_a_task_that_started_again_by_itself_goes_on_counting_and_has_no_burst() -> None:
    window = TaskWindow(stats(started_at=1.0), 0.0)
    window.observe(
        stats(polled=10**6, polls=1000, written=10**6, commits=9, started_at=1.0, batch_size_max=500), 1000.0
    )
    window.observe(stats(polled=10**6, polls=1000, written=10**6, commits=9, started_at=2.0), 1001.0)
    assert (window.rates(1001.0).poll_rate, window.rates(1001.0).write_rate, window.rates(1001.0).batch_max) == (
        0,
        0,
        0,
    )
    window.observe(stats(polled=1_000_030, polls=1003, written=1_000_030, commits=10, started_at=2.0), 1011.0)
    rates = window.rates(1011.0)
    assert rates.poll_rate == pytest.approx(2.73, abs=0.01)
    assert (rates.batch_avg, rates.commit_success) == (10, 1)


def test_a_new_run_that_has_polled_more_by_its_first_report_than_the_one_before_has_no_negative_rates() -> None:
    window = TaskWindow(stats(polled=1, polls=1, commits=5, written=1, started_at=1.0), 0.0)
    window.observe(stats(polled=7, polls=2, commits=0, commit_failures=1, written=7, started_at=2.0), 1.0)
    rates = window.rates(1.0)
    assert (rates.poll_rate, rates.write_rate, rates.commit_failure) == (7, 7, 1)


def test_maxima_leave_the_window() -> None:
    largest = Maximum(0.0)
    largest.add(9.0, 1.0)
    for second in range(2, 91):
        largest.add(1.0, float(second))
        assert largest.value(float(second)) == (9.0 if second < 60 else 1.0)
    assert largest.value(1000.0) == 0.0


def test_commits_are_averaged_and_their_failures_shared_out() -> None:
    window = TaskWindow(stats(), 0.0)
    window.observe(stats(commits=3, commit_failures=1, commit_s=0.6, commit_s_max=0.4), 1.0)
    rates = window.rates(1.0)
    assert rates.commit_ms_avg == pytest.approx(200)
    assert rates.commit_ms_max == pytest.approx(400)
    assert (rates.commit_success, rates.commit_failure) == (0.75, 0.25)
    assert TaskWindow(stats(), 0.0).rates(0.0).commit_success == 0.0


def test_active_records_are_averaged_over_reports() -> None:
    window = TaskWindow(stats(active=10), 0.0)
    window.observe(stats(active=20), 1.0)
    window.observe(stats(active=30, active_max=99), 2.0)
    assert window.rates(2.0).active_avg == pytest.approx(20)
    assert window.rates(2.0).active_max == 99


def test_failed_tasks_stay_until_they_are_forgotten() -> None:
    table = TaskTable()
    table.observe(1, Stats([stats(state="RUNNING", lag_ms=100.0, written=1)], 1.0, 2, 0.0), 0.0)  # type: ignore[arg-type]
    table.set_state(ID, "FAILED")
    table.observe(1, Stats([], 1.5, 2, 0.0), 1.0)  # its host was replaced
    assert table.tasks[ID].latest.state == "FAILED"
    assert (table.hosts[1].tasks, table.hosts[1].cpu_s) == (0, 1.5)
    assert list(table.lags) == ["c"]
    table.forget([ID, HostTaskId("unknown", 3)])
    table.set_state(ID, "RUNNING")
    assert (table.tasks, table.lags) == ({}, {})


class WalkedTasks(dict[HostTaskId, TaskWindow]):
    """Counts how often all tasks are looked at."""

    walks = 0

    def __iter__(self) -> Iterator[HostTaskId]:
        self.walks += 1
        return super().__iter__()


def test_a_task_is_forgotten_without_a_look_at_all_others() -> None:
    table = TaskTable()
    tasks = [HostTaskId(f"c{number % 3}", number) for number in range(30)]
    table.observe(1, Stats([TaskStats(task, lag_ms=1.0, written=1) for task in tasks], 1.0, 2, 0.0), 0.0)
    table.tasks = walked = WalkedTasks(table.tasks)
    for task in tasks[:-1]:
        table.forget([task, task])
    assert (walked.walks, list(table.lags)) == (0, ["c2"])
    table.forget(tasks)
    assert (table.tasks, table.lags) == ({}, {})


def test_lag_is_sampled_only_when_something_was_written() -> None:
    table = TaskTable()
    for second, written in enumerate([0, 5, 5, 5, 8]):
        table.observe(0, Stats([stats(written=written, lag_ms=100.0)], 0, 0, 0), float(second))
    assert table.lags["c"].cumulative()[-1] == 2
    table.observe(0, Stats([stats(written=9, lag_ms=-1.0)], 0, 0, 0), 6.0)
    assert table.lags["c"].cumulative()[-1] == 2


@given(st.lists(st.floats(0, 10, allow_nan=False)))
def test_a_histogram_counts_each_value_in_its_bucket_and_all_above(values: list[float]) -> None:
    histogram = MetricHistogram((0.5, 1.0, 5.0))
    for item in values:
        histogram.observe(item)
    expected = [sum(1 for item in values if item <= bound) for bound in (0.5, 1.0, 5.0)]
    assert histogram.cumulative() == [*expected, len(values)]
    assert histogram.total == pytest.approx(sum(values))
