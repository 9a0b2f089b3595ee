"""Watermarks, the grid of windows, and the options of joins and windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal
from spark_jobs.config import job_files as config
from spark_jobs.spark.checkpoint import LocalFolder
from spark_jobs.steps.event_time.rows import check_origin, stored_name
from spark_jobs.steps.event_time.times import Grid, choose_later, next_watermark, subtract_span
from spark_jobs.steps.flow import StepFlow
from spark_jobs.steps.options import build_steps

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

JOB = {
    "name": "j",
    "kafka.bootstrap.servers": "b:9092",
    "source.topics": "t",
    "source.format": "debezium",
    "sink.type": "console",
}
JOIN = {"type": "join", "left": "a", "right": "b", "on": "id", "range.ms": "1000"}
WINDOW = {"type": "window", "table": "a", "size.ms": "1000", "aggregates": "count(*) AS n"}


def complaint(options: Mapping[str, str], **more: str) -> str:
    steps = {
        "transform.steps": "s",
        **{f"transform.step.s.{name}": value for name, value in {**options, **more}.items()},
    }
    _, problems = config.check_job({**JOB, **steps})
    return " ".join(problem.message for problem in problems)


@pytest.mark.parametrize(
    ("previous", "newest", "idle", "watermark"),
    [
        (None, [None, None], 10, None),
        (None, [100, None], -1, None),
        (None, [100, None], 30, 65),
        (None, [100, 90], 30, 85),
        (None, [100, 20], 30, 65),
        (None, [100, 20], -1, 15),
        (90, [100, 90], 30, 90),
        (None, [100], 0, 95),
    ],
)
def test_watermark(previous: int | None, newest: list[int | None], idle: int, watermark: int | None) -> None:
    assert next_watermark(previous, newest, 5, idle) == watermark


def test_bounds() -> None:
    assert [choose_later(None, None), choose_later(1, None), choose_later(None, 2), choose_later(3, 2)] == [
        None,
        1,
        2,
        3,
    ]
    assert [subtract_span(None, 1), subtract_span(5, 2)] == [None, 3]


@given(st.integers(1, 20), st.integers(1, 20), st.integers(-60, 60))
def test_grid(size: int, slide: int, watermark: int) -> None:
    slide = min(size, slide)
    grid = Grid(size, slide)
    ends = [start * slide + size for start in range(-200, 200)]
    assert grid.last_end(watermark) == max(end for end in ends if end <= watermark)
    open_starts = [end - size for end in ends if end > watermark]
    assert grid.oldest_kept(watermark) == min(open_starts)


def test_stored_names_differ_in_case() -> None:
    assert stored_name("id") == "v_id"
    assert len({stored_name(name).lower() for name in ("id", "Id", "ID", "x id", "é")}) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**JOIN, "right": "a"}, "is the same table as left"),
        ({**JOIN, "on": "a = b = c"}, "is not `<column of the table>"),
        ({**JOIN, "range.ms": "-1"}, "range.ms"),
        ({**WINDOW, "window": "sliding"}, "a sliding window needs a number"),
        ({**WINDOW, "slide.ms": "5"}, "is of sliding windows only"),
        ({**WINDOW, "session.max.ms": "5000"}, "is of sessions only"),
        ({**WINDOW, "window": "session", "session.max.ms": "999"}, "a session lasts at least size.ms (1000)"),
        ({**WINDOW, "aggregates": "count(*)"}, "has no name"),
        ({**WINDOW, "aggregates": "amount AS a"}, "is no aggregate"),
        ({**WINDOW, "aggregates": "first(amount) AS a"}, "use min_by(..., ums_id_)"),
        ({**WINDOW, "aggregates": "sum(rand()) AS a"}, "gives another value each time"),
    ],
)
def test_refused_options(options: Mapping[str, str], message: str) -> None:
    assert message in complaint(options)


def test_accepted_options() -> None:
    assert complaint(JOIN) == ""
    assert complaint(WINDOW, aggregates="count(*) AS n, sum(a) / count(b) AS m, array_sort(collect_list(a)) AS l") == ""


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ({}, "table: v is the output of a step of type view"),
        (
            {"step.q.type": "sql", "step.q.sql": "WITH x AS (SELECT * FROM v) SELECT id FROM x"},
            "table: q comes from the step v of type view",
        ),
        (
            {"step.q.type": "sql", "step.q.sql": "INSERT INTO w SELECT id FROM v", "step.s.table": "w"},
            "table: w comes from the step v",
        ),
        ({"step.q.type": "union", "step.q.output": "all", "step.s.table": "all"}, "table: all comes from the step v"),
        ({"step.q.type": "union", "step.q.output": "all", "step.q.tables": "b*", "step.s.table": "all"}, ""),
        ({"step.q.type": "sql", "step.q.sql": "SELECT id FROM b"}, ""),
    ],
)
def test_an_aggregate_over_a_view_is_refused_also_through_other_steps(steps: Mapping[str, str], words: str) -> None:
    properties = {
        **JOB,
        "transform.steps": "v,q,s" if "step.q.type" in steps else "v,s",
        "transform.step.v.type": "view", "transform.step.v.sql": "SELECT id FROM a", "transform.step.v.key": "id",
        **{f"transform.step.s.{name}": value for name, value in WINDOW.items()},
        "transform.step.s.table": "q" if "step.q.type" in steps else "v",
        **{f"transform.{name}": value for name, value in steps.items()},
    }  # fmt: skip
    problems = [problem.message for problem in config.check_job(properties)[1]]
    assert bool(problems) == bool(words), problems
    assert all(words in problem for problem in problems)


def test_the_state_of_a_step_that_was_removed_goes_with_the_first_batch_without_it(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    for name in ("s", "gone"):
        folder.write(f"steps/{name}/values/3.json", "{}")
    parsed, problems = config.check_job(
        {**JOB, "transform.steps": "s", **{f"transform.step.s.{name}": value for name, value in WINDOW.items()}}
    )
    assert parsed is not None, problems
    flow = StepFlow(build_steps(parsed), checkpoint=str(tmp_path))
    flow.drop_left_states(folder)
    assert folder.list("steps") == ["s"]
    folder.write("steps/other/values/3.json", "{}")
    flow.drop_left_states(folder)
    assert sorted(folder.list("steps")) == ["other", "s"], "it looks once"


def test_a_state_of_other_options_is_refused() -> None:
    kept = {"type": "window", "table": "a", "time": "ums_ts_"}
    check_origin("s", {}, kept)
    check_origin("s", {"of": kept, "late": 1}, kept)
    with pytest.raises(Fatal, match=r"made with table=a \(now b\)\. Set the options back"):
        check_origin("s", {"of": kept}, {**kept, "table": "b"})
    with pytest.raises(Fatal, match="type=None"):
        check_origin("s", {"definition": "of a view"}, kept)
