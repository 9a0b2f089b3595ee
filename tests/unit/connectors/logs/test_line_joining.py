"""Lines that belong together, however they come in."""

import time
from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.logs.connector import LogsConnector
from connectors.testing import Run
from connectors.text_files import reader as reader_module
from connectors.text_files.joining import JoinSettings, LineJoiner
from connectors.text_files.stream import BLOCK
from tests.support.clock import ManualClock

RULES = """
tables:
  - name: events
    groups:
      - name: all
        steps:
          - saveAs: {columns: [{name: line}]}
"""
CONFIG = {"topic.prefix": "p", "rules": RULES, "multiline.start": "^event"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock by which readers of files say how long a file was quiet."""
    manual = ManualClock()
    monkeypatch.setattr(reader_module, "time", SimpleNamespace(monotonic=manual, time=time.time, time_ns=time.time_ns))
    return manual


def settings(most_lines: int = 100, most_characters: int = 10_000) -> JoinSettings:
    return JoinSettings(lambda line: line.startswith("s"), most_lines, most_characters, 1.0)


@given(st.lists(st.sampled_from(["s", "s1", "a", "", "bb"]), max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_events_do_not_depend_on_blocks(lines: list[str], cuts: list[int]) -> None:
    ends = list(accumulate(len(line) + 1 for line in lines))
    joiner = LineJoiner(settings())
    events: list[tuple[str, int]] = []
    bounds = [0, *sorted(cuts), len(lines)]
    for begin, end in pairwise(bounds):
        events += zip(*joiner.add(lines[begin:end], ends[begin:end]), strict=True)
    events += zip(*joiner.flush(), strict=True)
    assert not joiner.holds_lines
    assert "\n".join(event for event, _ in events) == "\n".join(lines)
    assert [position for _, position in events] == [
        end for number, end in enumerate(ends, 1) if number == len(lines) or lines[number].startswith("s")
    ]


def test_events_are_bounded() -> None:
    joiner = LineJoiner(settings(most_lines=2))
    assert joiner.add(["s", "a", "b", "c"], [1, 2, 3, 4]) == (["s\na"], [2])
    assert joiner.flush() == (["b\nc"], [4])
    joiner = LineJoiner(settings(most_characters=5))
    assert joiner.add(["s", "aaa", "b"], [1, 2, 3]) == (["s", "aaa"], [1, 2])
    assert joiner.flush() == (["b"], [3])


async def test_a_task_that_waits_for_kafka_cuts_no_event(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "app.log"
    events = [f"event {number}" + "\n  at somewhere" * 9 for number in range(2 * BLOCK // 100)]
    path.write_text("\n".join([*events, "event of the end\n"]))
    received: list[str] = []
    async with Run(LogsConnector, {"file": str(path), **CONFIG}) as run:
        while len(received) < len(events):
            step = await run.take(10)
            assert step is not None
            received += [record.value["line"] for record in step[1].records]
            clock.now += 60  # no batch is asked for meanwhile
    assert received[: len(events)] == events


async def test_an_event_is_complete_when_its_file_was_quiet(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "app.log"
    path.write_text("event\n  at somewhere\n")
    async with Run(LogsConnector, {"file": str(path), **CONFIG}) as run:
        assert await run.take(0.2) is None
        clock.now += 60
        (record,) = await run.read(1)
    assert record.value["line"] == "event\n  at somewhere"


async def test_an_unfinished_event_continues_in_a_file_that_was_closed(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_OPEN_FILES", 1)
    path = tmp_path / "app.log"
    (tmp_path / "other.log").touch()
    path.write_text("event\n")
    async with Run(LogsConnector, {"directory": str(tmp_path), **CONFIG}) as run:
        assert await run.take(0.2) is None
        with path.open("a") as file:
            file.write("  at somewhere\n")
        assert await run.take(0.2) is None
        clock.now += 60
        (record,) = await run.read(1)
    assert record.value["line"] == "event\n  at somewhere"
