"""Committed offsets of a job's group, while the group's coordinator moves or refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError

from connectors.errors import Retriable
from spark_jobs.kafka import committed

OFFSETS = [("t", [(0, 7, "", 0), (1, -1, "", 0)]), ("u", [(2, 9, "", 0)])]


class Coordinator:
    """Of a cluster that answers what it is given, in this order."""

    answers: list[Any]

    def __init__(self, **_: Any) -> None:
        pass

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def find_coordinator(self, group: str) -> int:
        assert group == "g"
        if isinstance(self.answers[0], Exception):
            raise self.answers.pop(0)
        return 1

    async def _send_request(self, request: Any, node: int) -> Any:
        del request
        assert node == 1
        code, topics = self.answers.pop(0)
        return SimpleNamespace(error_code=code, topics=topics)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(committed, "AIOKafkaAdminClient", Coordinator)
    Coordinator.answers = []
    return Coordinator.answers


async def ask() -> dict[tuple[str, int], int]:
    return await committed.read_committed({"kafka.bootstrap.servers": "nowhere:1"}, "g")


async def test_a_coordinator_that_moves_is_asked_again(answers: list[Any]) -> None:
    # Not available, loading (14), not the one (16); codes of one partition too.
    answers += [GroupCoordinatorNotAvailableError(), (14, []), (16, []), (0, [("t", [(0, -1, "", 14)])]), (0, OFFSETS)]
    assert await ask() == {("t", 0): 7, ("u", 2): 9}
    assert answers == []


@pytest.mark.parametrize("answer", [(30, []), (0, [("t", [(0, -1, "", 29)])])], ids=["of the group", "of a topic"])
async def test_a_refusal_is_no_group_without_offsets(answers: list[Any], answer: Any) -> None:
    answers.append(answer)
    with pytest.raises(Retriable, match=r"committed offsets of group g can't be read from nowhere:1: .*Authorization"):
        await ask()


async def test_the_time_is_bounded_and_the_error_has_the_reason(
    answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed, "_DEADLINE_S", 0.3)
    answers += [(14, [])] * 1000
    with pytest.raises(Retriable, match="GroupLoadInProgress"):
        await ask()
