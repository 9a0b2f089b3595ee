"""Snapshots on request in a cluster of two workers: a running task gets them, they survive its worker, and any worker tells."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.control._cluster import all_running, datagen, members, owners, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from compose.local.worker import MillraceWorker


def test_snapshots_on_request(
    millrace: Callable[..., MillraceWorker], unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("plugin")))
    properties = {"plugin.path": "asked_source:AskedConnector", "exactly.once.source.support": "enabled"}
    group, name, plain = unique("group"), unique("asked"), unique("plain")
    leader = millrace(group=group, properties=properties, processes=1)
    follower = millrace(group=group, properties=properties, processes=1)
    wait_for(lambda: members(leader) == members(follower) == 2, "both are members")
    config = {"connector.class": "asked_source.AskedConnector", "topic": name, "tasks.max": "1"}
    follower.create(name, config)
    follower.create(plain, datagen(plain, 1))
    path = f"/connectors/{name}/snapshots"
    worker = follower

    def row(snapshot: str) -> dict[str, Any]:
        status, body = worker.request("GET", f"{path}/{snapshot}")
        assert status == 200, body
        snapshot_row: dict[str, Any] = body
        return snapshot_row

    def done(snapshot: str) -> int:
        rows: int = row(snapshot)["tables"][0]["rows_done"]
        return rows

    def task() -> dict[str, Any]:
        status, body = worker.request("GET", f"/connectors/{name}/lag")
        assert (status, body["connector"], body["time_behind_s"]) == (200, name, 0.5)
        position: dict[str, Any] = body["position"] or {}
        return position

    def ask(**body: Any) -> str:
        status, created = worker.request("POST", path, {"tables": ["t"], **body})
        assert (status, created["state"], created["origin"], created["tables"]) == (201, "running", "rest", ["t"]), (
            created
        )
        assert [snapshot["id"] for snapshot in worker.request("GET", path)[1]].count(created["id"]) == 1, (
            "listed at once"
        )
        identity: str = created["id"]
        return identity

    # A running task gets a request, through the follower, without a restart.
    wait_for(lambda: done("own") > 0, "the connector's own snapshot runs")
    incarnation = task()["incarnation"]
    small = ask(conditions={"t": "5"}, priority=2)
    wait_for(lambda: row(small)["state"] == "completed", "the small one is done")
    assert done(small) == 5
    large = ask(priority=1, id="large")
    wait_for(lambda: done(large) > 3, "the large one makes progress")
    assert task()["incarnation"] == incarnation
    assert worker.request("POST", path, {"tables": ["t"], "id": "large"})[0] == 409

    # Pause stops it where it is, resume continues there.
    assert worker.request("PUT", f"{path}/{large}/pause") == (202, None)
    assert row(large)["state"] == "paused"
    wait_for(lambda: row(large)["saved"] == "paused", "the task knows")
    at, others = done(large), done("own")
    wait_for(lambda: done("own") > others, "the next one's turn")
    assert done(large) == at
    assert worker.request("PUT", f"{path}/{large}/resume")[0] == 202
    wait_for(lambda: done(large) > at, "it goes on")
    # One that the connector started itself.
    assert worker.request("PUT", f"{path}/own/pause")[0] == 202
    wait_for(lambda: row("own")["saved"] == "paused", "its own is paused")
    assert row("own")["origin"] == "initial"
    assert worker.request("DELETE", f"{path}/own")[0] == 400
    assert task()["incarnation"] == incarnation

    # What is refused.
    assert worker.request("POST", path, {"tables": ["x"]}) == (
        400,
        {"error_code": 400, "message": f"Connector {name}: there are the tables t and u, not ['x']"},
    )
    assert worker.request("PUT", f"{path}/{small}/pause")[0] == 400  # it is done
    for method, where in (
        ("GET", f"{path}/no"),
        ("PUT", f"{path}/no/pause"),
        ("PUT", f"{path}/no/cancel"),
        ("DELETE", f"{path}/no"),
        ("GET", "/connectors/nobody/snapshots"),
        ("GET", "/connectors/nobody/lag"),
        ("GET", "/connectors/nobody/tables"),
    ):
        assert worker.request(method, where)[0] == 404, where
    for method, subpath, body in (
        ("POST", "snapshots", {"tables": ["t"]}),
        ("GET", "snapshots", None),
        ("GET", "lag", None),
        ("GET", "tables", None),
    ):
        status, answer = worker.request(method, f"/connectors/{plain}/{subpath}", body)
        assert status == 400, answer
        assert "DatagenConnector connectors" in answer["message"]
    assert worker.request("GET", f"/connectors/{name}/tables") == (200, [{"table": "t", "version": 1}])

    # The worker that runs the task dies: the other one has the requests, and continues with them.
    (owner,) = owners(worker, [name])[name]
    runs, worker = (leader, follower) if owner == leader.worker_id else (follower, leader)
    before = done(large)
    runs.kill()
    wait_for(
        lambda: owners(worker, [name]) == {name: [worker.worker_id]} and all_running(worker, [name]), "it has moved", 60
    )
    wait_for(lambda: task()["incarnation"] != incarnation and done(large) > before, "it goes on there", 60)
    incarnation = task()["incarnation"]
    assert (row(small)["state"], done(small), row("own")["saved"]) == ("completed", 5, "paused")

    # Cancelled for good; deleted, nothing is left of it.
    assert worker.request("PUT", f"{path}/{large}/cancel")[0] == 202
    wait_for(lambda: row(large)["saved"] == "cancelled", "it is cancelled")
    assert worker.request("PUT", f"{path}/{large}/resume")[0] == 400
    assert worker.request("DELETE", f"{path}/{large}") == (204, None)
    assert worker.request("GET", f"{path}/{large}")[0] == 404
    wait_for(
        lambda: (
            {"snapshot": large}
            not in [entry["partition"] for entry in worker.request("GET", f"/connectors/{name}/offsets")[1]["offsets"]]
        ),
        "its progress is forgotten",
    )
    assert task()["incarnation"] == incarnation

    # A new configuration restarts the task; the requests stay. A source that is unavailable is no mistake of the client's.
    worker.create(name, {**config, "waits": "more"})
    wait_for(lambda: task().get("waits") == "more", "the task runs by the new configuration")
    assert (row(small)["state"], row("own")["state"]) == ("completed", "paused")
    worker.create(name, {**config, "away": "true"})
    assert worker.request("GET", f"/connectors/{name}/lag")[0] == 503

    # After a reset of its offsets the finished request would start again: it is removed with them.
    assert worker.request("PUT", f"/connectors/{name}/stop")[0] == 204
    wait_for(lambda: worker.states(name) == ("STOPPED", []), "it is stopped")
    assert worker.request("DELETE", f"/connectors/{name}/offsets")[0] == 200
    assert {snapshot["id"]: snapshot["state"] for snapshot in worker.request("GET", path)[1]} == {"own": "waiting"}

    # With the connector its requests go.
    last_request = ask()
    assert worker.request("DELETE", f"/connectors/{name}")[0] == 204
    worker.create(name, config)
    assert [snapshot["id"] for snapshot in worker.request("GET", path)[1]] == ["own"]
    assert worker.request("GET", f"{path}/{last_request}")[0] == 404
