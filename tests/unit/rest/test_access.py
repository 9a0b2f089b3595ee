"""Roles: what each operation asks, over the whole table of routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from connectors.errors import ConfigInvalid
from worker.rest.routes import ROUTES
from worker.rest.routing import RequiredAccess
from worker.rest.security.access import Principal, parse_grants, readable_names

from .security import basic, write_users

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from .conftest import Start

#: The access that every operation requires. The test fails for a new route until its author adds it to one of these lists.
REQUIRED_ACCESS = {
    RequiredAccess.PUBLIC: ["GET /health", "GET /console", "GET /console/{file}"],
    RequiredAccess.INTERNAL: [
        "POST /connectors/{connector}/tasks",
        "PUT /connectors/{connector}/fence",
        "PUT /loggers/{logger}",
        "GET /console/changes",
        "GET /console/rates",
        "GET /console/samples",
    ],
    RequiredAccess.READ: [
        "GET /",
        "GET /console/connectors",
        "GET /console/connectors/{connector}/config",
        "GET /console/providers",
        "GET /console/rules/operators",
        "GET /console/events",
        "GET /console/connectors/{connector}/history",
        "GET /console/metrics",
        "GET /console/pipeline",
        "GET /console/session",
        "GET /console/topics",
        "GET /console/topics/{topic}",
        "POST /console/session",
        "DELETE /console/session",
        "GET /metrics",
        "GET /openapi.json",
        "GET /connectors",
        "GET /connector-plugins",
        "GET /connector-plugins/{plugin}/config",
        "GET /admin/loggers",
        "GET /admin/loggers/{logger}",
        "GET /admin/plugins",
        "GET /connectors/{connector}",
        "GET /connectors/{connector}/config",
        "GET /connectors/{connector}/status",
        "GET /connectors/{connector}/tasks",
        "GET /connectors/{connector}/tasks-config",
        "GET /connectors/{connector}/tasks/{task}/status",
        "GET /connectors/{connector}/offsets",
        "GET /connectors/{connector}/topics",
        "GET /connectors/{connector}/explain",
        "GET /connectors/{connector}/progress",
        "GET /connectors/{connector}/snapshots",
        "GET /connectors/{connector}/snapshots/{snapshot}",
        "GET /connectors/{connector}/savepoints",
        "GET /connectors/{connector}/lag",
        "GET /connectors/{connector}/tables",
        "GET /connectors/{connector}/replay",
        "GET /rules",
        "GET /rules/{rules}",
        "GET /rules/{rules}/versions",
        "GET /rules/{rules}/versions/{version}",
    ],
    RequiredAccess.OPERATE: [
        "POST /connectors/{connector}/restart",
        "PUT /connectors/{connector}/pause",
        "PUT /connectors/{connector}/resume",
        "PUT /connectors/{connector}/stop",
        "POST /connectors/{connector}/tasks/{task}/restart",
        "PUT /connectors/{connector}/topics/reset",
        "POST /connectors/{connector}/savepoints",
        "POST /connectors/{connector}/replay",
        "DELETE /connectors/{connector}/savepoints/{savepoint}",
        "POST /connectors/{connector}/snapshots",
        "DELETE /connectors/{connector}/snapshots/{snapshot}",
        "PUT /connectors/{connector}/snapshots/{snapshot}/pause",
        "PUT /connectors/{connector}/snapshots/{snapshot}/resume",
        "PUT /connectors/{connector}/snapshots/{snapshot}/cancel",
    ],
    RequiredAccess.ADMIN: [
        "POST /connectors",
        "DELETE /connectors/{connector}",
        "PUT /connectors/{connector}/config",
        "PATCH /connectors/{connector}/config",
        "PATCH /connectors/{connector}/offsets",
        "DELETE /connectors/{connector}/offsets",
        "PUT /connector-plugins/{plugin}/config/validate",
        "GET /console/audit",
        "POST /console/connectors/{connector}/redrive",
        "PATCH /console/connectors/{connector}/config",
        "PUT /console/tables",
        "PUT /console/connectors/{connector}/tables",
        "POST /console/connectors/{connector}/plan",
        "POST /console/connectors/{connector}/preview",
        "POST /console/rules/read",
        "PUT /console/connectors/{connector}/check",
        "POST /flows/plan",
        "POST /flows/preview",
        "POST /rules/preview",
        "POST /rules/diff",
        "POST /rules/propose",
        "GET /connectors/{connector}/unknown",
        "POST /connectors/{connector}/verify",
        "GET /connectors/{connector}/verify",
        "DELETE /connectors/{connector}/verify",
        "POST /connectors/{connector}/verify/repair",
        "PUT /rules/{rules}",
        "DELETE /rules/{rules}",
        "PUT /admin/loggers/{logger}",
        "PUT /admin/drain",
        "PUT /admin/plugins/refresh",
    ],
}
#: What a caller with roles for some connectors only may ask although it names no connector.
FOR_SOME = {
    "GET /console/connectors",
    "GET /console/events",
    "GET /console/providers",
    "PUT /console/tables",
    "GET /console/rules/operators",
    "POST /console/rules/read",
    "GET /console/pipeline",
    "GET /console/session",
    "GET /console/topics",
    "GET /console/topics/{topic}",
    "POST /console/session",
    "DELETE /console/session",
    "GET /",
    "GET /connectors",
    "POST /connectors",
    "GET /connector-plugins",
    "GET /connector-plugins/{plugin}/config",
    "PUT /connector-plugins/{plugin}/config/validate",
    "POST /flows/plan",
    "POST /flows/preview",
    "POST /rules/preview",
    "POST /rules/diff",
    "POST /rules/propose",
    "GET /openapi.json",
}
LEVEL = {RequiredAccess.READ: 1, RequiredAccess.OPERATE: 2, RequiredAccess.ADMIN: 3}


def test_every_route_has_the_access_that_was_decided() -> None:
    decided = {name: access for access, names in REQUIRED_ACCESS.items() for name in names}
    assert {f"{route.method} {route.path}": route.access for route in ROUTES["all"]} == decided


async def test_every_role_on_every_route(start: Start, tmp_path: Path) -> None:
    users = {
        "reader": "read",
        "operator": "operate",
        "chief": "admin",
        "seller": "read:sales-.*,admin:sales-eu,operate:sales-.*",
    }
    call, herder = await start(
        rest_authentication="basic",
        rest_auth_users_file=write_users(tmp_path / "users", users),
        rest_auth_failures_per_minute="10000",
    )
    for name in ("sales-eu", "sales-us", "stock"):
        herder.configs[name], herder.states[name] = {"connector.class": "x"}, "RUNNING"
    wrong = []
    for route in ROUTES["all"]:
        label = f"{route.method} {route.path}"
        if label == "GET /console/events":
            continue  # a stream: test_console.py
        for connector in ("sales-eu", "sales-us", "stock"):
            path = route.path.format(
                connector=connector,
                task=0,
                plugin="B",
                logger="root",
                snapshot="s",
                savepoint="s",
                rules="r",
                version=1,
                file="f",
                topic="of-sales-eu",
            )
            body: dict[str, Any] = {"name": connector, "config": {}} if label == "POST /connectors" else {}
            for user in ("", *users):
                headers = basic(user, user[::-1]) if user else {}
                reply = await call(route.method, path, body if route.operation.body else None, headers)
                if route.access is RequiredAccess.PUBLIC:
                    as_expected = reply.status not in {401, 403}
                elif route.access is RequiredAccess.INTERNAL:
                    as_expected = reply.status == 400 and "signature" in reply.error
                elif not user:
                    # The console asks with a form of its own, not with the browser's.
                    asks = reply.headers.get("WWW-Authenticate", "").startswith("Basic ")
                    as_expected = reply.status == 401 and asks != route.path.startswith("/console/")
                else:
                    allowed = _allowed(user, label, LEVEL[route.access], connector, of_one="{connector}" in route.path)
                    as_expected = (
                        reply.status not in {401, 403}
                        if allowed
                        else (reply.status == 403 and f"'{route.access}'" in reply.error)
                    )
                if not as_expected:
                    wrong.append(f"{user or 'nobody'}: {label} {connector}: {reply.status} {reply.raw!r}")
                herder.configs.setdefault(connector, {"connector.class": "x"})
                herder.states.setdefault(connector, "RUNNING")
    assert wrong == []


def _allowed(user: str, label: str, level: int, connector: str, *, of_one: bool) -> bool:
    """Whether a user's role allows an operation, by an independent definition of the roles."""
    if user != "seller":
        return level <= {"reader": 1, "operator": 2, "chief": 3}[user]
    if of_one or label == "POST /connectors":
        return level <= {"sales-eu": 3, "sales-us": 2, "stock": 0}[connector]
    return label in FOR_SOME


async def test_lists_show_what_may_be_read(start: Start, tmp_path: Path) -> None:
    call, herder = await start(
        rest_authentication="basic",
        rest_auth_users_file=write_users(tmp_path / "users", {"seller": "read:sales-.*", "chief": "admin"}),
    )
    for name in ("sales-eu", "stock"):
        herder.configs[name], herder.states[name] = {"connector.class": "x"}, "RUNNING"
    assert (await call("GET", "/connectors", headers=basic("chief", "feihc"))).json == ["sales-eu", "stock"]
    mine = await call("GET", "/connectors", headers=basic("seller", "relles"))
    assert mine.json == ["sales-eu"]
    expanded = await call("GET", "/connectors?expand=status&expand=info", headers=basic("seller", "relles"))
    assert set(expanded.json) == {"sales-eu"}


async def test_snapshots_with_conditions_need_the_administrator(start: Start, tmp_path: Path) -> None:
    call, herder = await start(
        rest_authentication="basic",
        rest_auth_users_file=write_users(tmp_path / "users", {"op": "operate", "chief": "admin"}),
    )
    herder.configs["a"], herder.states["a"] = {"connector.class": "x"}, "RUNNING"
    asked = {"tables": ["d.t"], "conditions": {"d.t": "id IN (SELECT id FROM secrets)"}}
    refused = await call("POST", "/connectors/a/snapshots", asked, basic("op", "po"))
    assert (refused.status, refused.error) == (403, "op needs the role 'admin' for the connector a")
    assert (await call("POST", "/connectors/a/snapshots", {"tables": ["d.t"]}, basic("op", "po"))).status == 201
    assert (await call("POST", "/connectors/a/snapshots", asked, basic("chief", "feihc"))).status == 201


async def test_metrics_may_be_public(start: Start, tmp_path: Path) -> None:
    users = write_users(tmp_path / "users", {"chief": "admin"})
    closed, _ = await start(rest_authentication="basic", rest_auth_users_file=users)
    opened, _ = await start(rest_authentication="basic", rest_auth_users_file=users, rest_metrics_access="public")
    assert (await closed("GET", "/metrics")).status == 401
    assert (await opened("GET", "/metrics")).status == 200
    assert (await opened("GET", "/connectors")).status == 401


def test_grants() -> None:
    grants = parse_grants("read, operate:sales-[a-z]{1,3},admin:x|y")
    assert [str(grant) for grant in grants] == ["read", "operate:sales-[a-z]{1,3}", "admin:x|y"]
    principal = Principal("a", "basic", grants)
    assert principal.may(RequiredAccess.READ)
    assert principal.may(RequiredAccess.OPERATE, "sales-eu")
    assert not principal.may(RequiredAccess.OPERATE, "sales-europe")
    assert not principal.may(RequiredAccess.OPERATE)
    assert principal.may(RequiredAccess.ADMIN, "y")
    assert not principal.may(RequiredAccess.ADMIN, "xy")
    assert not principal.may(RequiredAccess.ADMIN, "y\n")
    assert readable_names(Principal("b", "basic", parse_grants("read:ä.*")), ["ä/b", "a"]) == ["ä/b"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "root",
        "read,root",
        "read:(",
        "Read",
        "admin;read",
        "read:" + "x" * 5000,
        "read:x{99999999999}",
        "read:" + "(" * 3000 + ")" * 3000,
    ],
)
def test_what_is_no_role(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        parse_grants(text)


async def test_connector_classes_may_be_limited(start: Start) -> None:
    call, herder = await start(connector_class_allow="datagen,a.B")
    for method, path, body in (
        ("POST", "/connectors", {"name": "a", "config": {"connector.class": "file"}}),
        ("PUT", "/connectors/a/config", {"connector.class": " datagen"}),
        ("PUT", "/connector-plugins/B/config/validate", {"connector.class": "x.B", "name": "a"}),
    ):
        reply = await call(method, path, body)
        assert (reply.status, "is not among those that connector.class.allow" in reply.error) == (403, True)
    assert herder.configs == {}
    assert (await call("PUT", "/connectors/a/config", {"connector.class": "datagen"})).status == 201
    assert (await call("PATCH", "/connectors/a/config", {"connector.class": "file"})).status == 403
    assert (await call("PATCH", "/connectors/a/config", {"rate": "1"})).status == 200
    assert (await call("PUT", "/connector-plugins/B/config/validate", {"connector.class": "a.B"})).status == 200


async def test_a_plan_or_preview_needs_the_right_to_create_that_connector(start: Start, tmp_path: Path) -> None:
    call, _ = await start(
        rest_authentication="basic",
        rest_auth_users_file=write_users(tmp_path / "users", {"seller": "admin:sales-.*"}),
    )
    headers = basic("seller", "relles")
    for name, status in (("sales-eu", 200), ("stock", 403)):
        config = {"connector.class": "x", "name": name}
        assert (await call("POST", "/flows/plan", config, headers)).status == status
        assert (await call("POST", "/flows/preview", {"config": config}, headers)).status == status
