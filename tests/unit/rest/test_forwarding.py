"""Requests that only the leader can answer: two hops, then 409."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from yarl import URL

from worker.control.herder.admin import AdminOperations
from worker.kafka.tls import client_context
from worker.rest.facade import REBALANCE_TEXT, RestError
from worker.rest.forwarding import WorkerClient, next_hop, target_url
from worker.rest.security.signing import SigningKey

if TYPE_CHECKING:
    from .conftest import Start

CONFIG = {"connector.class": "FileStreamSource"}


def test_two_hops() -> None:
    assert next_hop(None) is True
    assert next_hop(True) is False
    with pytest.raises(RestError) as caught:
        next_hop(False)
    assert (caught.value.status, str(caught.value)) == (409, REBALANCE_TEXT)


def test_the_target_keeps_path_and_query() -> None:
    url = target_url(
        "http://h:1/",
        "/connectors/a%2Fb/restart",
        [("includeTasks", "true"), ("forward", "true"), ("x", "ü&")],
        forward=False,
    )
    assert url == URL("http://h:1/connectors/a%2Fb/restart?includeTasks=true&x=%C3%BC%26&forward=false", encoded=True)
    assert url.raw_path == "/connectors/a%2Fb/restart"


async def test_a_follower_answers_with_the_leaders_answer(start: Start) -> None:
    leader, herder = await start()
    follower, other = await start()
    other.leader_url = leader.url
    created = await follower(
        "POST",
        "/connectors",
        {"name": "a/b", "config": {**CONFIG, "n": 1.50}, "initial_state": "PAUSED"},
        {"X-Trace": "t"},
    )
    assert created.status == 201
    assert created.headers["Location"] == f"{follower.url}/connectors/a%2Fb"
    assert created.headers["Content-Type"] == "application/json"
    assert herder.calls == [("create", "a/b", {**CONFIG, "n": "1.5", "name": "a/b"}, "PAUSED")]
    assert other.configs == {}
    dots = await follower("POST", "/connectors", {"name": "..", "config": CONFIG})
    assert dots.headers["Location"] == f"{follower.url}/connectors/.."
    del herder.configs[".."]
    repeated = await follower("POST", "/connectors", {"name": "a/b", "config": CONFIG})
    assert (repeated.status, repeated.error) == (409, "Connector a/b already exists")
    patched = await follower("PATCH", "/connectors/a%2Fb/config", {"n": None})
    assert patched.json["config"] == {**CONFIG, "name": "a/b"}
    restarted = await follower("POST", "/connectors/a%2Fb/restart?includeTasks=true&onlyFailed=true")
    assert restarted.status == 202
    assert herder.calls[-1] == ("restart", "a/b", True, True)
    deleted = await follower("DELETE", "/connectors/a%2Fb")
    assert (deleted.status, deleted.raw, herder.configs) == (204, b"", {})
    assert (await follower("DELETE", "/connectors/a%2Fb")).error == "Connector a/b not found"


async def test_forward_false_on_a_follower(start: Start) -> None:
    leader, _ = await start()
    follower, other = await start()
    other.leader_url = leader.url
    for query in ("forward=false", "forward=", "forward=bogus"):
        reply = await follower("PUT", f"/connectors/a/config?{query}", CONFIG)
        assert (reply.status, reply.error) == (409, REBALANCE_TEXT)
    assert (await follower("PUT", "/connectors/a/config?forward=true", CONFIG)).status == 201
    assert (await leader("PUT", "/connectors/b/config?forward=false", CONFIG)).status == 201


async def test_a_leader_that_has_moved_is_found_in_two_hops_or_not_at_all(start: Start) -> None:
    leader, _ = await start()
    second, second_herder = await start()
    first, first_herder = await start()
    second_herder.leader_url, first_herder.leader_url = leader.url, second.url
    assert (await first("PUT", "/connectors/a/config", CONFIG)).status == 201
    zeroth, zeroth_herder = await start()
    zeroth_herder.leader_url = first.url
    reply = await zeroth("PUT", "/connectors/b/config", CONFIG)
    assert (reply.status, reply.error) == (409, REBALANCE_TEXT)


async def test_no_leader(start: Start) -> None:
    follower, herder = await start()
    herder.leader_url = None
    reply = await follower("DELETE", "/connectors/a")
    assert (reply.status, reply.error) == (409, REBALANCE_TEXT)


async def test_a_leader_that_can_not_be_reached(start: Start) -> None:
    follower, herder = await start()
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        herder.leader_url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        reply = await follower("DELETE", "/connectors/a")
    assert reply.status == 500
    assert reply.error.startswith("IO Error trying to forward REST request: ")


async def test_internal_requests(start: Start) -> None:
    leader, herder = await start()
    assert herder.key is not None
    client = WorkerClient(5, lambda: client_context({}))
    try:
        await client.send_signed("POST", leader.url, "/connectors/a%2Fb/tasks", b'[{"x": "1"}]', herder.key)
        assert herder.task_configs == {"a/b": [{"x": "1"}]}
        await client.send_signed("PUT", f"{leader.url}/", "/connectors/a/fence", b"{}", herder.key)
        assert herder.fenced == ["a"]
        with pytest.raises(RestError) as caught:
            await client.send_signed("PUT", leader.url, "/connectors/a/fence", b"{}", SigningKey(b"other"))
        assert caught.value.status == 503  # the leader may have a newer key for a moment: to be sent again
        herder.key = None
        with pytest.raises(RestError) as caught:
            await client.send_signed("PUT", leader.url, "/connectors/a/fence", b"{}", SigningKey(b"other"))
        assert caught.value.status == 503
    finally:
        await client.close()


async def test_internal_requests_are_forwarded_with_their_signature(start: Start) -> None:
    leader, herder = await start()
    follower, other = await start()
    other.leader_url = leader.url
    assert herder.key is not None
    client = WorkerClient(5, lambda: client_context({}))
    try:
        await client.send_signed("POST", follower.url, "/connectors/a/tasks", b"[]", herder.key)
    finally:
        await client.close()
    assert herder.task_configs == {"a": []}
    assert other.task_configs == {}


async def test_levels_of_all_workers_are_set_where_admin_has_listeners_of_its_own(start: Start) -> None:
    apart = {"admin_listeners": "http://127.0.0.1:0"}
    leader, herder = await start(**apart)
    follower, other = await start(**apart)
    other.leader_url = leader.url
    client = WorkerClient(5, lambda: client_context({}))
    node = SimpleNamespace(client=client, session_key=lambda: other.key)
    other.send_log_level = AdminOperations(cast("Any", SimpleNamespace(node=node))).send_log_level  # type: ignore[method-assign]
    path = "/admin/loggers/worker.x%2Fy?scope=cluster"
    try:
        admin = follower.admin
        assert (await admin("PUT", path, {"level": "debug"})).status == 204
        assert herder.calls == [("level", "worker.x/y", "DEBUG", True)]
        assert other.calls == []
        assert (await admin("PUT", f"{path}&forward=false", {"level": "debug"})).status == 409
        other.leader_url = None
        assert (await admin("PUT", path, {"level": "debug"})).status == 409
    finally:
        await client.close()
    # No other caller sets them so.
    refused = await leader("PUT", "/loggers/worker", {"level": "DEBUG"})
    assert (refused.status, refused.error) == (400, "Internal request missing required signature")


async def test_unsigned_internal_requests(start: Start) -> None:
    call, herder = await start()
    for method, path in (("PUT", "fence"), ("POST", "tasks")):
        reply = await call(method, f"/connectors/a/{path}", b"[]")
        assert (reply.status, reply.error) == (400, "Internal request missing required signature")
    assert (herder.fenced, herder.task_configs) == ([], {})
