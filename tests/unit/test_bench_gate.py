"""The performance gate: which figures are a regression, and where there is nothing to compare."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.bench import gate
from tests.bench.gate import Costs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STAGE, OTHER = "decode narrow", "whole wide"
SAME = Costs([10.0, 10.2, 10.1], [10.1, 10.0, 10.3])
SLOWER = Costs([10.0, 10.2, 10.1], [12.0, 12.1, 11.9])
#: Most turns were disturbed on one side; its best was not.
DISTURBED = Costs([10.0, 10.2, 10.1], [10.0, 14.0, 15.0])


class Measured:
    """Gives prepared figures, and notes what was asked for; a stage without any has not changed."""

    def __init__(self, *runs: dict[str, Costs]) -> None:
        self.runs = list(runs)
        self.asked: list[list[str]] = []

    def __call__(self, stages: Sequence[str]) -> dict[str, Costs]:
        self.asked.append(list(stages))
        run = self.runs.pop(0)
        return {stage: run.get(stage, SAME) for stage in stages}


def slower(measured: Measured, seconds: float = 3600) -> tuple[dict[str, float], list[str]]:
    return gate.slower(measured, limit=10, until=time.monotonic() + seconds)


def test_the_same_cost_is_measured_once() -> None:
    measured = Measured({})
    assert slower(measured) == ({}, [])
    assert len(measured.asked) == 1


def test_what_is_slower_each_time_is_a_regression() -> None:
    measured = Measured({STAGE: SLOWER, OTHER: SLOWER}, {STAGE: SLOWER}, {STAGE: SLOWER})
    regressions, unsure = slower(measured)
    assert regressions == {STAGE: pytest.approx(12.1 / 10.2)}
    assert not unsure
    assert measured.asked[1:] == [[STAGE, OTHER], [STAGE]]


def test_what_was_slower_once_or_twice_is_none() -> None:
    assert slower(Measured({STAGE: SLOWER}, {})) == ({}, [])
    assert slower(Measured({STAGE: SLOWER}, {STAGE: SLOWER}, {})) == ({}, [])


def test_turns_that_were_disturbed_on_one_side_are_none() -> None:
    assert DISTURBED.ratio == 1.0
    assert slower(Measured({STAGE: DISTURBED})) == ({}, [])


def test_without_time_to_be_sure_nothing_has_failed() -> None:
    assert slower(Measured({STAGE: SLOWER}), seconds=0) == ({}, [STAGE])


def test_a_stage_that_the_other_revision_does_not_run_is_left_out() -> None:
    measured = Measured({STAGE: SLOWER, OTHER: SLOWER}, {STAGE: SLOWER}, {STAGE: SLOWER})

    def without_logs(stages: Sequence[str]) -> dict[str, Costs]:
        return {stage: costs for stage, costs in measured(stages).items() if not stage.startswith("bytes ")}

    regressions, unsure = gate.slower(without_logs, limit=10, until=time.monotonic() + 3600)
    assert regressions == {STAGE: pytest.approx(12.1 / 10.2)}
    assert not unsure
    assert any(stage.startswith("bytes ") for stage in measured.asked[0])
    assert measured.asked[1:] == [[STAGE, OTHER], [STAGE]]


def test_without_history_nothing_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gate, "ROOT", tmp_path)
    assert gate.main([]) == 0
    assert "not compared: there is no git history with HEAD~1" in capsys.readouterr().out
