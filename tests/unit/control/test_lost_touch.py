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

    coordinator = SimpleNamespace(
        _client=SimpleNamespace(send=send), coordinator_id=7, generation=3, _do_heartbeat=None, _do_rejoin_group=join
    )
    contact = Contact(10.0, 1.0)
    note_contact(coordinator, cast("Any", SimpleNamespace(contact=contact, takeover_s=1.0)))
    joining = asyncio.create_task(coordinator._do_rejoin_group(None))
    await eventually_async(lambda: bool(asked), "a question")
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)
    assert asked[0] == 7
    assert (contact.confirmed > 0) is answers
