"""The OpenAPI document: valid, complete, and true of what is answered."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from connectors.logs.rules.tools import trials
from tests.conformance.rest.differences import DIFFERENCES
from tests.conformance.rest.record import GOLDEN
from tests.conformance.rest.scenario import FORWARDED, STEPS
from worker.console.resources import rule_editing
from worker.rest.facade import NotLeader, RestError
from worker.rest.openapi import build_document, documented_statuses
from worker.rest.routes import ROUTES
from worker.rest.routing import RequiredAccess, Router, route_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.rest.routing import RestRoute

    from .conftest import Reply, Rest, Start
    from .memory_herder import MemoryHerder

URL = "http://localhost:8083"
ALL = ROUTES["all"]
NAMES = {
    "connector": "a",
    "task": "0",
    "plugin": "B",
    "logger": "root",
    "snapshot": "s",
    "savepoint": "s",
    "rules": "r",
    "version": "1",
    "file": "no.js",
    "topic": "of-a",
}
CONFIG = {"connector.class": "B"}


@cache
def full_document() -> dict[str, Any]:
    return build_document(ALL, URL)


def operation(route: RestRoute) -> dict[str, Any]:
    documented: dict[str, Any] = full_document()["paths"][route.path][route.method.lower()]
    return documented


def schema_of(route: RestRoute, status: int) -> dict[str, Any] | None:
    """The schema of an answer's body with all definitions, closed: fields that are not declared do not fit."""
    response = operation(route)["responses"][str(status)]
    if "$ref" in response:
        response = full_document()["components"]["responses"][response["$ref"].rpartition("/")[2]]
    content = response.get("content")
    if content is None:
        return None
    (media,) = content.values()
    text = json.dumps({**media["schema"], "components": full_document()["components"]})
    schema: dict[str, Any] = json.loads(text)
    for name, definition in schema["components"]["schemas"].items():
        if name not in {"Snapshot", "Table"}:  # connectors add their own
            definition.setdefault("additionalProperties", False)
    return schema


def misfit(route: RestRoute, status: int, body: Any) -> str | None:
    """How an answer differs from what is documented, or None."""
    if str(status) not in operation(route)["responses"]:
        return f"{status} is not documented"
    schema = schema_of(route, status)
    if schema is None:
        return None if body is None else "a body is not documented"
    if body is None:
        return "the documented body is missing"
    return next((error.message for error in Draft202012Validator(schema).iter_errors(body)), None)


# The document itself.


def test_it_is_valid_openapi() -> None:
    OpenAPIV31SpecValidator(full_document()).validate()
    for part in ("main", "admin"):
        OpenAPIV31SpecValidator(build_document(ROUTES[part], URL, schemes=("mutualTLS",), optional=False)).validate()


def test_every_route_is_in_it_and_nothing_else() -> None:
    listed = {(method.upper(), path) for path, methods in full_document()["paths"].items() for method in methods}
    assert listed == {(route.method, route.path) for route in ALL}
    ids = [route.operation.id for route in ALL]
    assert len(set(ids)) == len(ids)


def test_roles_and_credentials() -> None:
    for route in ALL:
        shown = operation(route)
        assert shown["x-role"] == route.access.value
        assert shown.get("x-internal", False) is (route.access is RequiredAccess.INTERNAL)
        if route.access in {RequiredAccess.READ, RequiredAccess.OPERATE, RequiredAccess.ADMIN}:
            assert shown["security"] == [{}, {"basic": [route.access]}, {"bearer": [route.access]}]
    restricted = build_document(ALL, URL, schemes=("bearer",), optional=False)
    assert restricted["paths"]["/connectors"]["post"]["security"] == [{"bearer": ["admin"]}]
    assert restricted["paths"]["/health"]["get"]["security"] == []
    assert set(restricted["components"]["securitySchemes"]) == {"bearer", "session"}


def test_examples_fit_their_schemas() -> None:
    for route in ALL:
        for example in route.operation.examples.values():
            (content,) = operation(route)["requestBody"]["content"].values()
            Draft202012Validator({**content["schema"], "components": full_document()["components"]}).validate(example)


async def test_a_worker_serves_it(start: Start) -> None:
    call, _ = await start()
    served = await call("GET", "/openapi.json")
    assert served.headers["Content-Type"] == "application/json"
    assert served.json == build_document(ALL, call.url)
    off, _ = await start(admin_listeners="")
    assert (await off("GET", "/openapi.json")).json == build_document(ROUTES["main"], off.url)


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
async def test_it_says_where_admin_is_served(start: Start, host: str) -> None:
    call, _ = await start(admin_listeners=f"http://{host}:0")
    described = (await call("GET", "/openapi.json")).json
    assert described["paths"].keys() == full_document()["paths"].keys()
    (server,) = described["paths"]["/admin/loggers"]["servers"]
    assert urlsplit(server["url"]).hostname == "127.0.0.1"
    async with aiohttp.ClientSession() as session, session.get(f"{server['url']}/admin/loggers") as response:
        assert response.status == 200
    assert {path for path, item in described["paths"].items() if "servers" in item} == {
        route.path for route in ROUTES["admin"]
    }
    assert described == build_document(ROUTES["main"], call.url, apart=ROUTES["admin"], apart_urls=[server["url"]])
    OpenAPIV31SpecValidator(described).validate()


def test_links_lead_to_operations_with_these_parameters() -> None:
    paths = {route.operation.id: route.path for route in ALL}
    links = [
        (name, link)
        for methods in full_document()["paths"].values()
        for shown in methods.values()
        for response in shown["responses"].values()
        for name, link in response.get("links", {}).items()
    ]
    assert {"getConnector", "getStatus", "getConfig", "deleteConnector", "getTaskStatus", "getPluginConfig"} <= {
        name for name, _ in links
    }
    for name, link in links:
        assert link["operationId"] == name
        assert set(link["parameters"]) == set(re.findall(r"\{(\w+)\}", paths[name]))
    # None leads out of a document with fewer operations.
    main = build_document([route for route in ALL if route.operation.id != "getStatus"], URL)
    assert "getStatus" not in main["paths"]["/connectors"]["post"]["responses"]["201"]["links"]


# What Kafka Connect answers fits it too.


def test_kafka_connects_answers_fit_it() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    router = Router(ALL)
    compared, wrong = 0, {}
    for step in (*STEPS, *FORWARDED):
        answer, difference = golden[step.name], DIFFERENCES.get(step.name)
        if (
            step.method in {"HEAD", "OPTIONS"}
            or answer.get("body") == "TEXT"
            or "kafka_cluster_id" in str(answer.get("body"))
        ):
            continue
        try:
            resource, _ = router.find(urlsplit(step.path).path)
            route = route_for(resource, step.method)
        except RestError:
            continue
        if difference is not None:
            assert difference.status in documented_statuses(route), step.name
            continue
        body = _unmasked(answer.get("body"))
        if step.name.startswith(("validate-", "plugin-config")) and answer["status"] == 200:
            continue  # normalised: documentation and versions are left out
        compared += 1
        complaint = misfit(route, answer["status"], body)
        if complaint is not None:
            wrong[step.name] = complaint
    assert not wrong
    assert compared > 120


def _unmasked(body: Any) -> Any:
    """A recorded body with a time where the recording says TIME."""
    if isinstance(body, dict):
        return {name: 1 if value == "TIME" else _unmasked(value) for name, value in body.items()}
    return [_unmasked(item) for item in body] if isinstance(body, list) else body


# Every status that is documented is one that is answered. 401, 403, 408, 429 and the 503 of a worker that has too much to do
# come from the code that runs before all operations and are tested there, those between workers with the signatures.


async def _ask(call: Rest, route: RestRoute, headers: dict[str, str] | None = None, **names: str) -> Reply:
    """The operation with a good request."""
    path = route.path.format(**{**NAMES, **names})
    body: Any = next(iter(route.operation.examples.values()), CONFIG if route.operation.body is not None else None)
    if route.operation.id == "validateConfig":
        body = CONFIG
    if route.operation.id == "createConnector":
        body = {"name": "new", "config": CONFIG}
    if route.operation.id == "putTaskConfigs":
        body = [{}]
    return await call(route.method, path, body, headers)


def _refusing(herder: MemoryHerder, error: Exception) -> None:
    """Every method of the herder that REST waits for raises ``error``."""

    async def refuse(*_: Any, **__: Any) -> Any:
        raise error

    for name in dir(type(herder)):
        if not name.startswith("_") and asyncio.iscoroutinefunction(getattr(herder, name)):
            setattr(herder, name, refuse)


#: What the herder refuses with these statuses, where it takes a real cluster to refuse so.
REFUSALS: dict[int, Exception] = {
    400: RestError(400, "no"),
    404: RestError(404, "no"),
    409: NotLeader(None),
    500: RuntimeError("unforeseen"),
}
REFUSING_SETTINGS: dict[tuple[str, int], dict[str, str]] = {
    ("getConnectorTopics", 403): {"topic_tracking_enable": "false"},
    ("resetConnectorTopics", 403): {"topic_tracking_allow_reset": "false"},
}
#: They ask nothing that a herder could refuse.
WITHOUT_HERDER = {"getConsole", "getConsoleFile", "openSession", "getSession", "endSession", "listRuleOperators"}
DOCUMENTED = [(route, status) for route in ALL for status in documented_statuses(route)]


@pytest.mark.parametrize(
    ("route", "status"),
    [
        pytest.param(route, status, id=f"{route.operation.id}-{status}")
        for route, status in DOCUMENTED
        if status >= 400
        and status not in {401, 403, 408, 429}
        and route.operation.id not in {"getHealth", "getOpenapi"}
        and (route.operation.id not in WITHOUT_HERDER or status not in {500, 503})
        and route.access is not RequiredAccess.INTERNAL
        and (status != 503 or route.when_ready)
    ],
)
async def test_documented_errors_are_answered(
    start: Start, route: RestRoute, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, herder = await start(rest_request_max_bytes="1024")
    if status in REFUSALS:
        for function in ("preview_lines", "compare_lines", "propose_for_lines"):
            monkeypatch.setattr(trials, function, _raise(REFUSALS[status]))
        monkeypatch.setattr(rule_editing, "both_forms", _raise(REFUSALS[status]))
        if route.operation.id == "getWorker":
            herder.root = _raise(REFUSALS[status])  # type: ignore[method-assign]
        _refusing(herder, REFUSALS[status])
    if status == 503 and route.when_ready:
        herder.is_ready = False
    if status == 404 and route.operation.id == "setLogLevel":
        reply = await call(route.method, "/admin/loggers/x", {"level": "loud"})
    elif status == 413:
        reply = await call(route.method, route.path.format(**NAMES), {"x": "x" * 2000})
    elif status in {406, 415}:
        reply = await _ask(call, route, {"Accept": "text/html"} if status == 406 else {"Content-Type": "text/html"})
    else:
        reply = await _ask(call, route)
    assert reply.status == status
    assert misfit(route, status, reply.json) is None


@pytest.mark.parametrize(
    ("name", "properties"), [pytest.param(*case, id=case[0][0]) for case in REFUSING_SETTINGS.items()]
)
async def test_refusals_by_setting_are_answered(
    start: Start, name: tuple[str, int], properties: dict[str, str]
) -> None:
    call, _ = await start(**properties)
    route = next(route for route in ALL if route.operation.id == name[0])
    reply = await _ask(call, route)
    assert reply.status == name[1]
    assert misfit(route, reply.status, reply.json) is None


def _raise(error: Exception) -> Callable[..., Any]:
    def raising(*_: object, **__: object) -> Any:
        raise error

    return raising


SUCCESSES = [
    (route, status)
    for route, status in DOCUMENTED
    if status < 400
    and route.access is not RequiredAccess.INTERNAL
    and route.operation.id not in {"getMetrics", "watchConnectors", "getConsoleFile"}
]


@pytest.mark.parametrize(
    ("route", "status"),
    [pytest.param(route, status, id=f"{route.operation.id}-{status}") for route, status in SUCCESSES],
)
async def test_documented_successes_are_answered(start: Start, route: RestRoute, status: int) -> None:
    call, herder = await start()
    if (route.operation.id, status) != ("putConfig", 201):
        await call("PUT", "/connectors/a/config", CONFIG)
        herder.requests["a"] = [{"id": "s", "state": "running"}]
        if (route.operation.id, status) != ("putRuleSet", 201):
            await call("PUT", "/rules/r", {"rules": {}})
        if "Offsets" in route.operation.id:
            await call("PUT", "/connectors/a/stop")
    query = {("restartConnector", 202): "?includeTasks=true", ("setLogLevel", 204): "?scope=cluster"}
    requested = replace(route, path=route.path + query.get((route.operation.id, status), ""))
    reply = await _ask(call, requested)
    assert reply.status == status
    if operation(route)["responses"][str(status)].get("headers", {}).get("Location"):
        assert reply.headers["Location"].startswith(f"{call.url}/connectors/")
    # What the herder in memory answers is not a cluster's: the shape is compared where REST itself makes it.
    assert (schema_of(route, status) is None) is (reply.raw == b"")
