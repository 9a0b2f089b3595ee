"""A worker that may have been counted out neither leads nor takes another broker's answers for its coordinator's."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.eventually import eventually_async
from worker.control.group.membership import Contact, GroupView, WorkerMember, note_contact
from worker.control.leader import LeaderDuties
from worker.control.state.stores import ClusterStores


@pytest.mark.parametrize("in_touch", [True, False])
def test_a_worker_that_has_lost_touch_does_not_lead(in_touch: bool) -> None:
    leader = LeaderDuties(
        ClusterStores(*(cast("Any", None),) * 3),
        {},
        {},
        cast("Any", None),
        "me",
        exactly_once=False,
        in_touch=lambda: in_touch,
    )
    member = WorkerMember(worker_id="a:1", url="http://a:1", incarnation="me")
    leader.view = GroupView(1, {"a:1": member}, member)
    assert leader.chosen is in_touch


def coordinator_of(send: Any, join: Any, assign: Any) -> tuple[Any, Contact]:
    """aiokafka's coordinator with these calls, and the contact in which it is noted what they prove."""
    coordinator = SimpleNamespace(
        _client=SimpleNamespace(send=send),
        coordinator_id=7,
        generation=3,
        _do_heartbeat=None,
        _do_rejoin_group=join,
        _perform_assignment=assign,
    )
    contact = Contact(10.0, 1.0)
    note_contact(coordinator, cast("Any", SimpleNamespace(contact=contact, takeover_s=1.0)))
    return coordinator, contact


@pytest.mark.parametrize("answers", [True, False])
async def test_while_joining_only_the_coordinator_confirms_the_membership(answers: bool) -> None:
    asked: list[int] = []

    async def send(node: int, request: Any) -> None:
        del request
        asked.append(node)
        if not answers:
            raise OSError("it is gone")

    async def join(subscription: Any) -> bool:
        del subscription
        await asyncio.Event().wait()
        return True

    coordinator, contact = coordinator_of(send, join, join)
    joining = asyncio.create_task(coordinator._do_rejoin_group(None))
    await eventually_async(lambda: bool(asked), "a question")
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)
    assert asked[0] == 7
    assert (contact.confirmed > 0) is answers


async def test_while_the_group_waits_for_its_assignments_nothing_confirms_the_membership() -> None:
    asked: list[int] = []

    async def send(node: int, request: Any) -> None:
        del request
        asked.append(node)

    async def assign(response: Any) -> Any:
        del response
        await asyncio.Event().wait()

    async def join(subscription: Any) -> bool:
        return bool(await coordinator._perform_assignment(subscription))

    coordinator, contact = coordinator_of(send, join, assign)
    joining = asyncio.create_task(coordinator._do_rejoin_group(None))
    await eventually_async(lambda: len(asked) > 1, "two questions")
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)
    assert contact.confirmed == 0
    assert not contact.assigning
