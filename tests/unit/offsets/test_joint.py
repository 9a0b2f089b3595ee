"""Questions that are asked once for many."""

from __future__ import annotations

import asyncio

import pytest

from offsets.joint import Joint
from tests.support.eventually import pass_turns


class Asked:
    """A question whose answers are given by hand."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[int]] = []
        self.joint = Joint(self._question)

    async def _question(self) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer

    def ask(self) -> asyncio.Task[int]:
        return asyncio.create_task(self.joint.ask())


async def test_who_comes_later_gets_an_answer_that_was_asked_for_later() -> None:
    asked = Asked()
    first = [asked.ask() for _ in range(3)]
    await pass_turns(5)
    later = [asked.ask() for _ in range(3)]
    await pass_turns(5)
    assert len(asked.answers) == 1
    asked.answers[0].set_result(1)
    assert await asyncio.gather(*first) == [1, 1, 1]
    await pass_turns(5)
    assert len(asked.answers) == 2
    assert not any(question.done() for question in later)
    asked.answers[1].set_result(2)
    assert await asyncio.gather(*later) == [2, 2, 2]


async def test_an_error_is_everybodys_and_the_next_question_is_asked_all_the_same() -> None:
    asked = Asked()
    first = [asked.ask() for _ in range(2)]
    await pass_turns(5)
    later = asked.ask()
    await pass_turns(5)
    asked.answers[0].set_exception(OSError("away"))
    for question in first:
        with pytest.raises(OSError, match="away"):
            await question
    await pass_turns(5)
    asked.answers[1].set_result(2)
    assert await later == 2


async def test_one_that_gives_up_takes_the_answer_from_nobody() -> None:
    asked = Asked()
    first, second = asked.ask(), asked.ask()
    await pass_turns(5)
    first.cancel()
    await pass_turns(5)
    asked.answers[0].set_result(7)
    assert await second == 7
    assert first.cancelled()
    assert len(asked.answers) == 1


async def test_those_who_give_up_while_no_answer_comes_are_forgotten() -> None:
    asked = Asked()
    for _ in range(3):
        leaving = [asked.ask() for _ in range(10)]
        await pass_turns(5)
        assert len(asked.joint) == 10
        for question in leaving:
            question.cancel()
        await pass_turns(5)
        assert len(asked.joint) == 0
    last = asked.ask()
    await pass_turns(5)
    asked.answers[0].set_result(1)
    await pass_turns(5)
    asked.answers[1].set_result(2)
    assert await last == 2


async def test_a_stop_reaches_all_who_wait_and_the_question() -> None:
    asked = Asked()
    first = asked.ask()
    await pass_turns(5)
    second = asked.ask()
    await pass_turns(5)
    await asked.joint.stop(ConnectionError("stopped"))
    for question in (first, second):
        with pytest.raises(ConnectionError, match="stopped"):
            await question
    assert asked.answers[0].cancelled()
