"""The endpoints for snapshots, lag and versions of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from worker.rest.facade import RestError
from worker.rest.shapes.bodies import read_snapshot

if TYPE_CHECKING:
    from .conftest import Rest, Start
    from .memory_herder import MemoryHerder

CONFIG = {"connector.class": "FileStreamSource"}


async def test_the_life_of_a_request(rest: tuple[Rest, MemoryHerder]) -> None:
    call, herder = rest
    await call("PUT", "/connectors/a%2Fb/config", CONFIG)
    body = {"tables": ["shop.orders"], "conditions": {"shop.orders": "id > 5"}, "priority": 3}
    created = await call("POST", "/connectors/a%2Fb/snapshots", body)
    assert created.status == 201
    assert created.json == {"id": "s 1", **body, "state": "running"}
    assert herder.calls[-1] == ("snapshot", "a/b", body)
    path = created.headers["Location"].removeprefix(call.url)
    assert path == "/connectors/a%2Fb/snapshots/s%201"
    assert (await call("GET", path)).json == created.json
    assert (await call("GET", "/connectors/a%2Fb/snapshots/")).json == [created.json]
    for action in ("pause", "resume", "cancel"):
        reply = await call("PUT", f"{path}/{action}")
        assert (reply.status, reply.raw) == (202, b"")
        assert (await call("GET", path)).json["state"] == action
    assert (await call("DELETE", path)).status == 204
    for method, of in (
        ("GET", path),
        ("PUT", path + "/pause"),
        ("DELETE", path),
        ("GET", "/connectors/b/snapshots"),
        ("GET", "/connectors/b/lag"),
        ("GET", "/connectors/b/tables"),
    ):
        assert (await call(method, of)).status == 404, of
    assert (await call("PUT", path + "/stop")).error == "HTTP 404 Not Found"
    assert (await call("DELETE", "/connectors/a%2Fb/snapshots")).status == 405


async def test_lag_and_tables(rest: tuple[Rest, MemoryHerder]) -> None:
    call, _ = rest
    await call("PUT", "/connectors/a/config", CONFIG)
    assert (await call("GET", "/connectors/a/lag")).json == {"connector": "a", "time_behind_s": 1.5}
    assert (await call("GET", "/connectors/a/tables/")).json == [{"table": "a.b", "version": 2}]


async def test_a_follower_forwards_what_changes_something(start: Start) -> None:
    leader, herder = await start()
    follower, other = await start()
    await leader("PUT", "/connectors/a/config", CONFIG)
    await follower("PUT", "/connectors/a/config", CONFIG)
    other.leader_url = leader.url
    created = await follower("POST", "/connectors/a/snapshots", {"tables": ["t"]})
    assert (created.status, created.headers["Location"]) == (201, f"{follower.url}/connectors/a/snapshots/s%201")
    path = "/connectors/a/snapshots/s%201"
    assert (await follower("PUT", path + "/pause")).status == 202
    assert herder.requests["a"][0]["state"] == "pause"
    assert (await follower("DELETE", path)).status == 204
    assert herder.requests["a"] == []
    assert other.requests == {}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "body is empty"),
        (b"[]", "must be a JSON object"),
        (b'{"table": ["t"]}', "Unknown field 'table'"),
        (b'{"tables": "t"}', "'tables' must be a list"),
        (b'{"tables": [""]}', "'tables' must be a list"),
        (b'{"tables": [1]}', "'tables' must be a list"),
        (b'{"conditions": ["x"]}', "'conditions' must be a JSON object"),
        (b'{"conditions": {"t": " "}}', "condition of 't'"),
        (b'{"conditions": {"t": 1}}', "condition of 't'"),
        (b'{"priority": "high"}', "'priority' must be a whole number"),
        (b'{"priority": true}', "'priority'"),
        (b'{"priority": 1.5}', "'priority'"),
        (b'{"priority": 1000001}', "'priority'"),
        (b'{"id": "a/b"}', "'id' must be"),
        (b'{"id": ".."}', "'id' must be"),
        (b'{"id": ""}', "'id' must be"),
        (b'{"id": 7}', "'id' must be"),
    ],
)
def test_bodies_that_are_refused(body: bytes, text: str) -> None:
    with pytest.raises(RestError) as caught:
        read_snapshot(body)
    assert caught.value.status == 400
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", {}),
        (b'{"tables": null, "priority": null}', {}),
        (
            b'{"tables": ["a.b"], "conditions": {}, "priority": -3, "id": "x.1_-"}',
            {"tables": ["a.b"], "conditions": {}, "priority": -3, "id": "x.1_-"},
        ),
    ],
)
def test_bodies_that_are_understood(body: bytes, expected: dict[str, Any]) -> None:
    assert read_snapshot(body) == expected
