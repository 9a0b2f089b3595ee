"""The memory of a worker for the console: changes, and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from worker.console.trail import MOST_CHANGES, MOST_SAMPLES, Samples, Trail, describe_request, is_change, merge_changes

from .security import basic, write_users

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Rest, Start
    from .memory_herder import MemoryHerder


@pytest.mark.parametrize(
    ("method", "path", "connector", "action"),
    [
        ("POST", "/connectors", None, "created"),
        ("DELETE", "/connectors/a%2Fb", "a/b", "deleted"),
        ("PUT", "/connectors/a/pause", "a", "paused"),
        ("PUT", "/connectors/a/config", "a", "configuration replaced"),
        ("PATCH", "/console/connectors/a/config", "a", "configuration changed"),
        ("POST", "/connectors/a/tasks/3/restart", "a", "task 3 restarted"),
        ("PUT", "/connectors/a/snapshots/s/pause", "a", "snapshot paused"),
        ("DELETE", "/connectors/a/snapshots/s", "a", "snapshot forgotten"),
        ("PUT", "/rules/web", None, "rules web saved"),
        ("PUT", "/admin/drain", None, "worker drained"),
        ("PUT", "/connectors/pause/config", "pause", "configuration replaced"),
        ("DELETE", "/connectors/stop", "stop", "deleted"),
        ("PUT", "/rules/config", None, "rules config saved"),
        ("PUT", "/admin/loggers/reset", None, "PUT /admin/loggers/reset"),
        ("PUT", "/admin/plugins/refresh", None, "plugins looked for"),
        ("POST", "/else", None, "POST /else"),
    ],
)
def test_requests_are_said_in_words(method: str, path: str, connector: str | None, action: str) -> None:
    assert describe_request(method, path) == (connector, action)


def test_what_only_tries_is_no_change() -> None:
    assert is_change("PUT", "/connectors/a/pause")
    for method, path in (
        ("GET", "/console/audit"),
        ("PUT", "/connector-plugins/B/config/validate"),
        ("PUT", "/console/connectors/a/check"),
        ("POST", "/rules/preview/"),
        ("PUT", "/console/connectors/{connector}/tables"),
    ):
        assert not is_change(method, path)


def test_the_trail_is_bounded_and_the_newest_is_first() -> None:
    trail = Trail()
    for number in range(MOST_CHANGES + 5):
        trail.add(number, "u" * 5000, "basic", "127.0.0.1", "DELETE", "/connectors/a" + "x" * 5000, 204, None)
    kept = trail.changes()
    assert (len(kept), kept[0]["at_ms"]) == (MOST_CHANGES, (MOST_CHANGES + 4) * 1000)
    assert max(len(str(value)) for value in kept[0].values()) <= 300


def test_changes_of_all_workers_are_in_one_order() -> None:
    answer = merge_changes([("w:1", [{"at_ms": 3}, {"at_ms": 1}]), ("w:2", [{"at_ms": 2}])], 2)
    assert answer == [{"at_ms": 3, "worker_id": "w:1"}, {"at_ms": 2, "worker_id": "w:2"}]


def test_samples_are_rates_of_what_grew_and_are_bounded() -> None:
    samples = Samples()
    samples.add(100.0, {"a": (10, "RUNNING", 50.0), "b": (1, "FAILED", 9e9)}, 1.0, 7, 0.01)
    samples.add(105.0, {"a": (60, "RUNNING", -1.0), "c": (5, "RUNNING", 200.0)}, 2.0, 8, 0.02)
    samples.add(110.0, {"a": (5, "RUNNING", -1.0)}, 2.5, 8, 0.02)
    first, second, third = samples.all()
    assert (first["rate"], first["cores"], first["lag_s"], first["failed"]) == (None, None, 0.05, 1)
    assert (second["rate"], second["cores"], second["lag_s"], second["running"]) == (11.0, 0.2, 0.2, 2)
    # A task that started again has counted from 0: nothing negative.
    assert (third["rate"], third["lag_s"]) == (0.0, None)
    for number in range(MOST_SAMPLES + 3):
        samples.add(200.0 + number, {}, 3.0, 8, 0.0)
    assert len(samples.all()) == MOST_SAMPLES


async def test_who_changed_what_and_who_was_refused(start: Start, tmp_path: Path) -> None:
    users = {"reader": "read", "chief": "admin"}
    call, herder = await start(rest_authentication="basic", rest_auth_users_file=write_users(tmp_path / "users", users))
    herder.configs["a"], herder.states["a"] = {"connector.class": "B"}, "RUNNING"
    chief = basic("chief", "feihc")
    assert (await call("PUT", "/connectors/a/pause", headers=chief)).status == 202
    assert (await call("PUT", "/connectors/a/pause", headers=basic("reader", "redaer"))).status == 403
    assert (await call("GET", "/console/audit", headers=basic("reader", "redaer"))).status == 403
    body = {"name": "new", "config": {"connector.class": "B"}}
    assert (await call("POST", "/connectors", body, chief)).status == 201
    answer = (await call("GET", "/console/audit", headers=chief)).json
    assert [(entry["user"], entry["action"], entry["connector"], entry["status"]) for entry in answer] == [
        ("chief", "created", "new", 201),
        ("reader", "GET /console/audit", None, 403),
        ("reader", "paused", "a", 403),
        ("chief", "paused", "a", 202),
    ]


@pytest.mark.parametrize("name", ["plan", "validate", "a%2Fcheck"])
async def test_a_change_is_remembered_whatever_its_connector_is_called(
    rest: tuple[Rest, MemoryHerder], name: str
) -> None:
    call, _ = rest
    assert (await call("PUT", f"/connectors/{name}/config", {"connector.class": "B"})).status == 201
    assert (await call("PUT", "/console/tables", {"connector.class": "B"})).status == 200
    assert (await call("DELETE", f"/connectors/{name}")).status == 204
    changes = (await call("GET", "/console/audit")).json
    assert [change["action"] for change in changes] == ["deleted", "created"]


async def test_numbers_come_from_all_workers(rest: tuple[Rest, MemoryHerder]) -> None:
    answer = (await rest[0]("GET", "/console/metrics")).json
    assert [entry["worker_id"] for entry in answer] == ["w:1", "w:2"]


async def test_what_workers_ask_each_other_needs_a_signature(rest: tuple[Rest, MemoryHerder]) -> None:
    for path in ("/console/changes", "/console/samples"):
        assert (await rest[0]("GET", path)).status == 400
