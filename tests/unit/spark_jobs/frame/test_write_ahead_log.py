"""The decisions of the write-ahead log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal
from spark_jobs.write_ahead_log import BatchStep, LogState, decide_step

RANGES = (("t", 0, 0, 5),)
OTHER = (("t", 0, 0, 6),)


@pytest.mark.parametrize(
    ("state", "batch", "step"),
    [
        (LogState(), 0, BatchStep.LOG),
        (LogState(), 7, BatchStep.LOG),  # the first batch after the guarantee was raised
        (LogState(committed=3, ranges=OTHER), 4, BatchStep.LOG),
        (LogState(committed=3, ranges=OTHER), 9, BatchStep.LOG),  # batches in between were written without a log
        (LogState(committed=3, ranges=RANGES), 3, BatchStep.SKIP),
        (LogState(committed=3, sealed=4, ranges=RANGES), 4, BatchStep.SEND),
        (LogState(sealed=0, ranges=RANGES), 0, BatchStep.SEND),
        (LogState(committed=4, sealed=4, ranges=RANGES), 4, BatchStep.SKIP),  # killed before the section was removed
        (LogState(committed=4, sealed=4, ranges=OTHER), 5, BatchStep.LOG),
    ],
)
def test_a_batch_continues_where_the_log_says(state: LogState, batch: int, step: BatchStep) -> None:
    assert decide_step(state, batch, RANGES) is step


@pytest.mark.parametrize(
    ("state", "batch"),
    [
        (LogState(committed=3, ranges=OTHER), 3),
        (LogState(committed=3, ranges=RANGES), 2),
        (LogState(committed=3, sealed=4, ranges=OTHER), 4),
        (LogState(committed=3, sealed=4, ranges=RANGES), 5),
    ],
)
def test_a_log_of_another_checkpoint_is_refused(state: LogState, batch: int) -> None:
    with pytest.raises(Fatal, match="of another checkpoint"):
        decide_step(state, batch, RANGES)


@given(st.lists(st.sampled_from(["logged", "sealed", "sent", "committed"]), max_size=12))
def test_each_batch_is_committed_once_however_often_the_job_is_killed(deaths: list[str]) -> None:
    """``deaths``: after which step of each attempt the job is killed."""
    state, commits, batch = LogState(), [], 0
    left = list(deaths)
    while batch < 3:
        death = left.pop(0) if left else ""
        step = decide_step(state, batch, RANGES)
        if step is not BatchStep.SKIP:
            if step is BatchStep.LOG:
                if death == "logged":
                    continue
                state = LogState(state.committed, batch, RANGES)
                if death == "sealed":
                    continue
            if death == "sent":
                continue
            commits.append(batch)
            state = LogState(batch, batch, RANGES)
            if death == "committed":
                continue
        state = LogState(state.committed, None, RANGES)
        batch += 1
    assert commits == [0, 1, 2]
