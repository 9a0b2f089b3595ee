"""The helpers that wait: what they return, what their failures say, and that unit tests need no other ones."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.eventually import eventually, eventually_async, pass_turns

if TYPE_CHECKING:
    from collections.abc import Callable

UNIT_TESTS = Path(__file__).parents[1]
#: Calls that are no waits of a test, by file: the pace of a client or a source, a defect that the test is about.
SLEEPS = {"rest/test_limits.py": 1, "connectors/test_conformance_kit.py": 2}


def answers(*values: object) -> Callable[[], object]:
    """A condition that gives one value after the other; exceptions are raised."""
    left = iter(values)

    def condition() -> object:
        value = next(left)
        if isinstance(value, Exception):
            raise value
        return value

    return condition


def test_the_value_that_is_true_is_returned() -> None:
    assert eventually(answers(None, 0, "", ["row"]), "rows come", every=0) == ["row"]


async def test_the_value_that_is_true_is_returned_without_blocking() -> None:
    seen: list[int] = []
    later = asyncio.create_task(asyncio.to_thread(seen.append, 1))
    assert await eventually_async(lambda: seen, "a row comes") == [1]
    await later


async def test_a_condition_may_be_awaited() -> None:
    condition = answers(False, "good")

    async def ask() -> object:
        await pass_turns()
        return condition()

    assert await eventually_async(ask, "the answer is good", every=0) == "good"


def test_a_failure_says_what_was_awaited_for_how_long_and_the_details() -> None:
    with pytest.raises(AssertionError, match=r"^waited 0 s in vain until rows come\n3 of 4$"):
        eventually(lambda: False, "rows come", 0, detail=lambda: "3 of 4")


async def test_an_asynchronous_failure_says_the_same() -> None:
    with pytest.raises(AssertionError, match=r"^waited 0 s in vain until rows come\n3 of 4$"):
        await eventually_async(lambda: False, "rows come", 0, detail=lambda: "3 of 4")


async def test_a_question_that_hangs_ends_at_the_deadline() -> None:
    with pytest.raises(AssertionError, match="until it answers"):
        await eventually_async(asyncio.Event().wait, "it answers", 0.01)


async def test_ignored_errors_mean_not_yet_and_the_last_one_is_in_the_failure() -> None:
    refused = ConnectionRefusedError("refused")
    assert eventually(answers(refused, 7), "it answers", every=0, ignore=(OSError,)) == 7
    assert await eventually_async(answers(refused, 7), "it answers", every=0, ignore=(OSError,)) == 7
    text = r"until it answers\nthe last question failed: .*refused"
    with pytest.raises(AssertionError, match=text) as caught:
        eventually(answers(refused), "it answers", 0, ignore=(OSError,))
    assert caught.value.__cause__ is refused
    with pytest.raises(AssertionError, match=text) as caught:
        await eventually_async(answers(refused), "it answers", 0, ignore=(OSError,))
    assert caught.value.__cause__ is refused


async def test_other_errors_end_the_wait() -> None:
    with pytest.raises(LookupError):
        eventually(answers(LookupError()), "it answers", ignore=(OSError,))
    with pytest.raises(LookupError):
        await eventually_async(answers(LookupError()), "it answers", ignore=(OSError,))
    with pytest.raises(TimeoutError):
        await eventually_async(answers(TimeoutError()), "it answers")


async def test_turns_let_other_tasks_run_that_often() -> None:
    count = 0

    async def work() -> None:
        nonlocal count
        while True:
            count += 1
            await pass_turns()

    task = asyncio.create_task(work())
    await pass_turns(3)
    assert count == 3
    task.cancel()


def test_unit_tests_do_not_sleep() -> None:
    calls = {
        path.relative_to(UNIT_TESTS).as_posix(): len(
            re.findall(r"\b(?:time|asyncio)\.sleep\(", path.read_text("utf-8"))
        )
        for path in UNIT_TESTS.rglob("*.py")
    }
    assert {path: count for path, count in calls.items() if count} == SLEEPS
