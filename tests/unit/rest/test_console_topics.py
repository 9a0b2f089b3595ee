"""Records of topics over REST: who may see what, and what may be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .security import basic, write_users

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Rest, Start
    from .memory_herder import MemoryHerder

USERS = {"reader": "read", "chief": "admin", "seller": "read:sales-.*,admin:sales-eu"}


@pytest.fixture
async def closed(start: Start, tmp_path: Path) -> tuple[Rest, MemoryHerder]:
    """A server that asks who its callers are."""
    call, herder = await start(rest_authentication="basic", rest_auth_users_file=write_users(tmp_path / "users", USERS))
    for name in ("sales-eu", "sales-us", "stock"):
        herder.configs[name], herder.states[name] = {"connector.class": "B"}, "RUNNING"
    return call, herder


async def test_topics_of_a_callers_connectors_are_listed(closed: tuple[Rest, MemoryHerder]) -> None:
    call, _ = closed
    answer = (await call("GET", "/console/topics", headers=basic("seller", "relles"))).json
    assert [(use["topic"], use["masked"]) for use in answer] == [("of-sales-eu", False), ("of-sales-us", True)]
    everything = (await call("GET", "/console/topics", headers=basic("reader", "redaer"))).json
    assert [use["masked"] for use in everything] == [True] * 3


@pytest.mark.parametrize(
    ("user", "topic", "status", "masked"),
    [
        ("seller", "of-sales-eu", 200, False),
        ("seller", "of-sales-us", 200, True),
        ("seller", "of-stock", 403, None),
        ("seller", "other", 403, None),
        ("reader", "of-stock", 200, True),
        ("reader", "other", 404, None),
        ("chief", "of-stock", 200, False),
    ],
)
async def test_roles_decide_what_is_seen(
    closed: tuple[Rest, MemoryHerder], user: str, topic: str, status: int, masked: bool | None
) -> None:
    call, herder = closed
    reply = await call("GET", f"/console/topics/{topic}", headers=basic(user, user[::-1]))
    assert reply.status == status
    if masked is not None:
        assert herder.asked["masked"] is masked
        assert herder.asked["connector"] == topic.removeprefix("of-")


@pytest.mark.parametrize("query", ["key=a", "where=value.a%20%3D%3D%201", "form=text"])
async def test_what_is_hidden_is_not_found_out_by_conditions(closed: tuple[Rest, MemoryHerder], query: str) -> None:
    call, herder = closed
    herder.asked = {}
    reply = await call("GET", f"/console/topics/of-sales-us?{query}", headers=basic("seller", "relles"))
    assert (reply.status, herder.asked) == (403, {})
    assert "'admin'" in reply.error


async def test_converters_of_a_connector_of_others_are_not_used(closed: tuple[Rest, MemoryHerder]) -> None:
    call, _ = closed
    reply = await call("GET", "/console/topics/of-sales-eu?connector=stock", headers=basic("seller", "relles"))
    assert reply.status == 403


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "form=xml", "before=x", 'before={"a":1}', f"where={'x' * 5000}"]
)
async def test_what_makes_no_sense_is_refused(rest: tuple[Rest, MemoryHerder], query: str) -> None:
    call, herder = rest
    herder.configs["a"] = {"connector.class": "B"}
    reply = await call("GET", f"/console/topics/of-a?{query}")
    assert reply.status == 400
    assert reply.error.startswith(query.partition("=")[0]) or "where" in reply.error


async def test_pages_go_on_where_the_last_ended(rest: tuple[Rest, MemoryHerder]) -> None:
    call, herder = rest
    herder.configs["a"] = {"connector.class": "B"}
    assert (await call("GET", '/console/topics/of-a?limit=7&before={"0":120,"3":4}')).status == 200
    assert (herder.asked["limit"], herder.asked["before"]) == (7, {0: 120, 3: 4})
