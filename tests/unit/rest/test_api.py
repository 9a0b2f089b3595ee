"""Every endpoint over HTTP: paths, codes, headers and bodies."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid, Fatal
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from .conftest import Rest, Start
    from .memory_herder import MemoryHerder

    Served = tuple[Rest, MemoryHerder]

CONFIG = {"connector.class": "FileStreamSource", "topic": "t", "file": "/x"}
NULL = "Null value can not be supplied as the configuration value."
SEE = "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"


async def test_root(rest: Served) -> None:
    call, _ = rest
    reply = await call("GET", "/")
    assert reply.status == 200
    assert set(reply.json) == {"version", "commit", "kafka_cluster_id"}
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.headers["Server"] == "Millrace"
    assert "Date" in reply.headers
    assert int(reply.headers["Content-Length"]) == len(reply.raw)


async def test_create(rest: Served) -> None:
    call, herder = rest
    reply = await call("POST", "/connectors/", {"name": " a b ", "config": {**CONFIG, "tasks.max": 2, "flag": True}})
    assert reply.status == 201
    assert reply.headers["Location"] == f"{call.url}/connectors/a%20b"
    assert reply.json["config"] == {**CONFIG, "tasks.max": "2", "flag": "true", "name": "a b"}
    assert herder.calls[-1] == ("create", "a b", reply.json["config"], None)
    assert (await call("GET", reply.headers["Location"].removeprefix(call.url))).json["name"] == "a b"
    repeated = await call("POST", "/connectors", {"name": "a b", "config": CONFIG})
    assert (repeated.status, repeated.error) == (409, "Connector a b already exists")


async def test_initial_state(rest: Served) -> None:
    call, herder = rest
    await call("POST", "/connectors", {"name": "a", "config": CONFIG, "initial_state": "stopped"})
    assert herder.calls[-1][3] == "STOPPED"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"name": "a", "config": {**CONFIG, "name": "b"}},
            "Connector name configuration (b) doesn't match connector name in the URL (a)",
        ),
        ({"name": "a", "config": {"x": "secret"}}, "Connector config {x=[hidden], name=a} contains no connector type"),
        (
            {"name": "a", "config": {**CONFIG, "x": None, "y": None}},
            f"Connector configuration is invalid and contains the following 2 error(s):\n{NULL}\n{NULL}\n{SEE}",
        ),
    ],
)
async def test_configurations_that_are_refused(rest: Served, body: Any, message: str) -> None:
    call, herder = rest
    reply = await call("POST", "/connectors", body)
    assert (reply.status, reply.error) == (400, message)
    assert herder.configs == {}


@pytest.mark.parametrize("name", ["a/b", "a%b", "a%2Fb", "ü x", "a+b;c?d#e&f=g", "..", "a\nb", '"', "日本"])
async def test_every_name_can_be_addressed(rest: Served, name: str) -> None:
    from urllib.parse import quote

    call, _ = rest
    created = await call("POST", "/connectors", {"name": name, "config": CONFIG})
    assert created.status == 201
    path = f"/connectors/{quote(name, safe='')}".replace("..", "%2E%2E")
    assert (await call("GET", f"{path}/config")).json["name"] == name
    assert (await call("PUT", f"{path}/config", CONFIG)).status == 200
    assert (await call("PUT", f"{path}/stop")).status == 204
    assert (await call("GET", f"{path}/status/")).json["connector"]["state"] == "STOPPED"
    assert (await call("DELETE", path)).status == 204
    assert (await call("DELETE", path)).error == f"Connector {name} not found"


async def test_put_config(rest: Served) -> None:
    call, _ = rest
    created = await call("PUT", "/connectors/a/config", CONFIG)
    assert (created.status, created.headers["Location"]) == (201, f"{call.url}/connectors/a")
    changed = await call("PUT", "/connectors/a/config", {**CONFIG, "name": "a"})
    assert changed.status == 200
    assert "Location" not in changed.headers
    other = await call("PUT", "/connectors/a/config", {**CONFIG, "name": " a"})
    assert other.error == "Connector name configuration ( a) doesn't match connector name in the URL (a)"
    patched = await call("PATCH", "/connectors/a/config", {"topic": None, "more": 5})
    assert patched.status == 200
    assert patched.json["config"] == {"connector.class": "FileStreamSource", "file": "/x", "name": "a", "more": "5"}
    assert (await call("PATCH", "/connectors/b/config", {})).status == 404


async def test_states_and_restarts(rest: Served) -> None:
    call, herder = rest
    await call("PUT", "/connectors/a/config", CONFIG)
    for action, status, state in (
        ("pause", 202, "PAUSED"),
        ("resume", 202, "RUNNING"),
        ("stop", 204, "STOPPED"),
        ("resume/", 202, "RUNNING"),
    ):
        reply = await call("PUT", f"/connectors/a/{action}")
        assert (reply.status, reply.raw) == (status, b"")
        assert "Content-Type" not in reply.headers
        assert herder.states["a"] == state
    assert (await call("PUT", "/connectors/b/pause")).error == "Unknown connector b"
    reply = await call("POST", "/connectors/a/restart")
    assert (reply.status, reply.raw) == (204, b"")
    assert (await call("POST", "/connectors/a/restart?includeTasks=false&onlyFailed=bogus")).status == 204
    reply = await call("POST", "/connectors/a/restart?includeTasks=TRUE&onlyFailed=true")
    assert (reply.status, reply.json["name"]) == (202, "a")
    assert herder.calls[-1] == ("restart", "a", True, True)
    assert (await call("POST", "/connectors/a/restart?onlyFailed=true")).status == 202
    assert herder.calls[-1] == ("restart", "a", False, True)
    assert (await call("POST", "/connectors/b/restart")).error == "Unknown connector: b"


async def test_tasks(rest: Served) -> None:
    call, herder = rest
    await call("PUT", "/connectors/a/config", CONFIG)
    task = {"id": {"connector": "a", "task": 0}, "config": herder.configs["a"]}
    assert (await call("GET", "/connectors/a/tasks")).json == [task]
    assert (await call("GET", "/connectors/a/tasks-config")).json == {"a-0": herder.configs["a"]}
    assert (await call("GET", "/connectors/a/tasks/0/status")).json["state"] == "RUNNING"
    assert (await call("GET", "/connectors/a/tasks/-1/status")).error == "No status found for task a--1"
    for bad in ("x", "99999999999", "1.0", "%31x"):
        assert (await call("GET", f"/connectors/a/tasks/{bad}/status")).error == "HTTP 404 Not Found"
    reply = await call("POST", "/connectors/a/tasks/0/restart")
    assert (reply.status, herder.calls[-1]) == (204, ("restart task", "a", 0))


async def test_expand(rest: Served) -> None:
    call, herder = rest
    await call("PUT", "/connectors/a/config", CONFIG)
    info, status = (await call("GET", "/connectors/a")).json, (await call("GET", "/connectors/a/status")).json
    assert (await call("GET", "/connectors")).json == ["a"]
    assert (await call("GET", "/connectors?expand=status")).json == {"a": {"status": status}}
    assert (await call("GET", "/connectors?expand=info&expand=status")).json == {"a": {"info": info, "status": status}}
    assert (await call("GET", "/connectors?expand=bogus")).json == {"a": {}}
    assert (await call("GET", "/connectors?expand=")).json == {"a": {}}
    listed = herder.connectors

    async def with_a_deleted_one() -> list[str]:
        return [*await listed(), "gone"]

    herder.connectors = with_a_deleted_one  # type: ignore[method-assign]
    assert set((await call("GET", "/connectors?expand=status")).json) == {"a"}


async def test_offsets(rest: Served) -> None:
    call, herder = rest
    await call("PUT", "/connectors/a/config", CONFIG)
    body = {"offsets": [{"partition": {"filename": "/x"}, "offset": {"position": 1 << 70}}]}
    assert (await call("PATCH", "/connectors/a/offsets", _big(body))).status == 400
    await call("PUT", "/connectors/a/stop")
    reply = await call("PATCH", "/connectors/a/offsets", _big(body))
    assert reply.json == {"message": "The offsets for this connector have been altered successfully"}
    assert herder.kept_offsets["a"] == body["offsets"]
    assert str(1 << 70).encode() in (await call("GET", "/connectors/a/offsets")).raw
    assert (await call("DELETE", "/connectors/a/offsets")).json["message"].endswith("reset successfully")
    assert (await call("GET", "/connectors/a/offsets")).json == {"offsets": []}
    assert (await call("GET", "/connectors/b/offsets")).error == "Connector b not found"


def _big(body: Any) -> bytes:
    import json

    return json.dumps(body).encode()


async def test_topics(start: Start) -> None:
    call, herder = await start()
    herder.kept_topics["a"] = ["t"]
    assert (await call("GET", "/connectors/a/topics")).json == {"a": {"topics": ["t"]}}
    assert (await call("GET", "/connectors/zz/topics")).json == {"zz": {"topics": []}}
    assert (await call("PUT", "/connectors/a/topics/reset")).status == 202
    assert (await call("GET", "/connectors/a/topics")).json == {"a": {"topics": []}}
    call, _ = await start(topic_tracking_enable="false")
    for method, path in (("GET", "topics"), ("PUT", "topics/reset")):
        reply = await call(method, f"/connectors/a/{path}")
        assert (reply.status, reply.error) == (403, "Topic tracking is disabled.")
    call, _ = await start(topic_tracking_allow_reset="false")
    assert (await call("GET", "/connectors/a/topics")).status == 200
    reply = await call("PUT", "/connectors/a/topics/reset")
    assert (reply.status, reply.error) == (403, "Topic tracking reset is disabled.")


async def test_plugins(rest: Served) -> None:
    call, herder = rest
    assert len((await call("GET", "/connector-plugins")).json) == 1
    assert len((await call("GET", "/connector-plugins?connectorsOnly=false")).json) == 2
    assert len((await call("GET", "/connector-plugins/?connectorsOnly=bogus")).json) == 2
    assert (await call("GET", "/connector-plugins/B/config?version=1")).json == [
        {"name": "x", "type": "PASSWORD", "version": "1"}
    ]
    assert (await call("GET", "/connector-plugins/C/config")).error == "Unknown plugin C."
    path = "/connector-plugins/FileStreamSource/config/validate"
    reply = await call("PUT", path, {**CONFIG, "n": 1})
    assert (reply.status, herder.calls[-1]) == (200, ("validate", "FileStreamSource", {**CONFIG, "n": "1"}))
    reply = await call("PUT", path, {**CONFIG, "connector.class": "FileStreamSink"})
    text = "Included connector type FileStreamSink does not match request type FileStreamSource"
    assert (reply.status, reply.error) == (400, text)
    full = {**CONFIG, "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector"}
    assert (await call("PUT", path, full)).status == 200
    assert (await call("PUT", path, {})).error == "Connector config {} contains no connector type"
    nulls = (await call("PUT", path, {**CONFIG, "topic": None, "zz": None})).json
    assert nulls["error_count"] == 2
    assert [item["value"]["errors"] for item in nulls["configs"]] == [[NULL], [NULL]]
    assert nulls["configs"][0]["definition"] is None


async def test_plans_and_previews_of_flows(rest: Served) -> None:
    call, herder = rest
    reply = await call("POST", "/flows/plan", {**CONFIG, "name": "f", "n": 1})
    assert (reply.status, herder.calls[-1]) == (200, ("plan_flow", {**CONFIG, "name": "f", "n": "1"}))
    rows = [{"table": "shop.orders", "row": {"id": 1, "price": 1.5, "gone": None}}]
    reply = await call("POST", "/flows/preview", {"config": {**CONFIG, "n": 1}, "limit": 5, "rows": rows})
    assert reply.status == 200
    assert herder.calls[-1] == ("preview_flow", {**CONFIG, "n": "1"}, {"limit": 5, "rows": rows})
    for body, error in (
        ({}, "The field 'config' is missing"),
        ({"config": CONFIG, "limit": 0}, "The field 'limit' must be a whole number from 1 to 1000"),
        ({"config": CONFIG, "rows": [{"table": "t", "row": {}, "op": "x"}]}, "must be i, u, d or b"),
        ({"config": CONFIG, "topics": []}, "Unknown field 'topics'"),
        ({"config": {"name": "x"}}, "contains no connector type"),
    ):
        reply = await call("POST", "/flows/preview", body)
        assert (reply.status, error in reply.error) == (400, True), reply.error
    reply = await call("POST", "/flows/plan", {"name": "x"})
    assert (reply.status, "contains no connector type" in reply.error) == (400, True)
    assert (await call("POST", "/flows/plan", {**CONFIG, "x": None})).status == 400


_STEPS = [
    {"regexExtract": {"pattern": r"^(?P<ip>[0-9.]+) GET (?P<path>\S+)$"}},
    {"saveAs": {"columns": [{"name": "ip"}, {"name": "path"}]}},
]
RULES = {"tables": [{"name": "requests", "groups": [{"name": "get", "steps": _STEPS}]}]}

ARRAYS = """
tables:
  - name: parts
    groups: [{name: parts, steps: [json: {}, flattenJsonArray: {field: a}, saveAs: {columns: [{name: a}]}]}]
"""


async def test_rules_are_tried_on_lines(rest: Served) -> None:
    call, _ = rest
    lines = ["10.0.0.1 GET /", "no request"]
    for rules in (RULES, json.dumps(RULES)):
        reply = await call("POST", "/rules/preview", {"rules": rules, "lines": lines})
        assert reply.status == 200
        (group,) = reply.json["groups"]
        assert (group["table"], group["group"], group["accepted"], group["percent"]) == ("requests", "get", 1, 50.0)
        assert [step["counts"] for step in group["steps"]] == [{"success": 1, "error": 1}, {"success": 1}]
        assert [line["unknown"] for line in reply.json["lines"]] == [False, True]
        assert reply.json["lines"][0]["rows"] == {"requests": [{"ip": "10.0.0.1", "path": "/"}]}
    failing = {**RULES, "golden": [{"line": lines[0], "rows": {"requests": [{"ip": "10.0.0.2", "path": "/"}]}}]}
    (golden,) = (await call("POST", "/rules/preview", {"rules": failing, "lines": []})).json["golden"]
    assert golden["actual"] == {"requests": [{"ip": "10.0.0.1", "path": "/"}]}


async def test_versions_of_rules_are_compared_on_lines(rest: Served) -> None:
    call, _ = rest
    after = json.loads(json.dumps(RULES))
    reply = await call("POST", "/rules/diff", {"before": RULES, "after": RULES, "lines": ["10.0.0.1 GET /"]})
    assert reply.json == {"lines": [], "versions": [], "golden": []}
    after["tables"][0]["groups"][0]["steps"][1]["saveAs"]["columns"] = [{"name": "path"}]
    reply = await call("POST", "/rules/diff", {"before": RULES, "after": after, "lines": ["x", "10.0.0.1 GET /"]})
    (change,) = reply.json["lines"]
    assert (change["number"], change["changes"]) == (1, ["columns"])
    assert change["after"] == {"requests": [{"path": "/"}]}
    assert "give the table version 2" in reply.json["versions"][0]


async def test_rules_are_proposed_for_lines(rest: Served) -> None:
    call, _ = rest
    lines = ["job 7 took=12ms", "job 8 took=9ms"]
    (pattern,) = (await call("POST", "/rules/propose", {"lines": lines, "table": "jobs"})).json["patterns"]
    assert (pattern["pattern"], pattern["count"], pattern["examples"]) == ("job <*> <*>", 2, lines)
    shown = (await call("POST", "/rules/preview", {"rules": pattern["rules"], "lines": lines})).json["lines"]
    assert [line["rows"] for line in shown] == [{"jobs": [{"job": 7, "took": 12}]}, {"jobs": [{"job": 8, "took": 9}]}]
    assert list((await call("POST", "/rules/propose", {"lines": ["x"]})).json["patterns"][0]["rules"]) == ["tables"]
    for body, error in (({}, "'lines' is missing"), ({"lines": [], "table": "a b"}, "must match")):
        reply = await call("POST", "/rules/propose", body)
        assert (reply.status, error in reply.error) == (400, True), reply.error


async def test_rules_are_tried_on_the_lines_of_a_connector(rest: Served) -> None:
    call, herder = rest
    await call("POST", "/connectors", {"name": "c", "config": CONFIG})
    steps = [{"set": {"fields": {"host": "{@host}"}}}, *_STEPS[:1], {"saveAs": {"columns": [{"name": "host"}]}}]
    rules = {"tables": [{"name": "requests", "groups": [{"name": "get", "steps": steps}]}]}
    reply = await call("POST", "/rules/preview", {"rules": rules, "connector": "c", "count": 5})
    assert (reply.status, herder.calls[-2:]) == (200, [("recent", "c", 5), ("conflicts", "c", rules)]), reply.error
    assert (reply.json["conflicts"], reply.json["warnings"]) == (["table requests: no"], ["it has transforms"])
    assert [line["rows"] for line in reply.json["lines"]] == [{"requests": [{"host": "web-1"}]}]
    reply = await call("POST", "/rules/preview", {"rules": rules, "connector": "c", "source": "unknown"})
    assert (reply.status, herder.calls[-1], len(reply.json["lines"])) == (200, ("conflicts", "c", rules), 2)
    reply = await call("POST", "/rules/diff", {"before": RULES, "after": rules, "connector": "c"})
    assert [change["changes"] for change in reply.json["lines"]] == [["columns"]]
    assert (await call("POST", "/rules/preview", {"rules": rules, "connector": "x"})).status == 404


async def test_unknown_lines_by_pattern(rest: Served) -> None:
    call, herder = rest
    await call("POST", "/connectors", {"name": "c", "config": CONFIG})
    reply = await call("GET", "/connectors/c/unknown?lines=20&table=jobs")
    assert (reply.status, herder.calls[-1]) == (200, ("unknown", "c", 20))
    (pattern,) = reply.json["patterns"]
    assert (reply.json["lines"], pattern["pattern"], pattern["count"]) == (2, "job <*> <*>", 2)
    assert pattern["rules"]["tables"][0]["name"] == "jobs"
    assert reply.json["failures"][0]["lines"] == 2
    for query in ("lines=0", "lines=x", "lines=10001", "table=a-b"):
        assert (await call("GET", f"/connectors/c/unknown?{query}")).status == 400
    assert (await call("GET", "/connectors/x/unknown")).status == 404


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"lines": []}, "A rule set is missing"),
        ({"rules": RULES, "lines": [], "connector": "c"}, "Give either 'lines' or a 'connector'"),
        ({"rules": RULES, "connector": "c", "count": 10_001}, "from 1 to 10000"),
        ({"rules": RULES, "connector": "c", "source": "x"}, "must be one of INPUT, UNKNOWN"),
        ({"rules": RULES}, "The field 'lines' is missing"),
        ({"rules": RULES, "lines": [1]}, "must be a string"),
        ({"rules": RULES, "lines": [""] * 10_001}, "must have 10000 entries at most"),
        ({"rules": {**RULES, "tables": RULES["tables"] * 6}, "lines": [""] * 10_000}, "rule set rules"),
        ({"rules": "tables: [", "lines": []}, "is not YAML or JSON"),
        ({"rules": 7, "lines": []}, "rule set rules"),
        ({"rules": json.dumps(RULES).replace("saveAs", "safeAs"), "lines": []}, "safeAs"),
        ({"rules": RULES, "lines": ["x" * 65_537]}, "Line 0 has 65537 characters"),
        ({"rules": {**RULES, "golden": [{"line": "x" * 65_537, "rows": {}}]}, "lines": []}, "Golden line 0 has 65537"),
        ({"rules": {**RULES, "name": "x" * 4_194_304}, "lines": []}, "bytes as JSON; 4194304 are allowed"),
        # A record for each number, and each has the long text: the answer would grow with the square of the line.
        ({"rules": ARRAYS, "lines": [json.dumps({"a": list(range(8000)), "b": "x" * 8000})]}, "send fewer lines"),
    ],
)
async def test_rules_that_can_not_be_tried(rest: Served, body: dict[str, object], error: str) -> None:
    call, _ = rest
    reply = await call("POST", "/rules/preview", body)
    assert (reply.status, error in reply.error) == (400, True), reply.error


async def test_loggers(rest: Served) -> None:
    call, herder = rest
    assert (await call("GET", "/admin/loggers/")).json == {"root": {"level": "INFO", "last_modified": None}}
    assert (await call("GET", "/admin/loggers/x.y")).error == "Logger x.y not found."
    reply = await call("PUT", "/admin/loggers/x.y", {"level": " debug "})
    assert (reply.status, reply.json, herder.calls[-1]) == (200, ["x.y"], ("level", "x.y", "DEBUG", False))
    assert (await call("PUT", "/admin/loggers/x?scope=bogus", {"level": "INFO"})).json == ["x"]
    reply = await call("PUT", "/admin/loggers/x?scope=CLUSTER", {"level": "INFO"})
    assert (reply.status, reply.raw, herder.calls[-1]) == (204, b"", ("level", "x", "INFO", True))
    reply = await call("PUT", "/admin/loggers/x", {"level": "bogus"})
    assert (reply.status, reply.error) == (404, "invalid log level 'bogus'.")
    for body in ({}, {"level": None}):
        assert (
            await call("PUT", "/admin/loggers/x", body)
        ).error == "Desired 'level' parameter was not specified in request."


async def test_what_kafka_connect_does_not_have(rest: Served) -> None:
    call, _ = rest
    await call("PUT", "/connectors/a/config", CONFIG)
    assert (await call("GET", "/connectors/a/explain")).json == {"name": "a", "tasks": []}
    assert (await call("GET", "/connectors/a/progress")).json == {"name": "a", "type": "sink", "tasks": []}
    assert (await call("GET", "/connectors/b/progress")).status == 404
    assert (await call("PUT", "/admin/drain")).status == 202
    metrics = await call("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
    assert (metrics.status, metrics.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")


async def test_head_and_options(rest: Served) -> None:
    call, _ = rest
    head, get = await call("HEAD", "/connectors"), await call("GET", "/connectors")
    assert (head.status, head.raw) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]
    options = await call("OPTIONS", "/connectors/a/config")
    assert set(options.headers["Allow"].split(",")) == {"HEAD", "GET", "PUT", "PATCH", "OPTIONS"}
    assert options.raw.decode().split(", ") == options.headers["Allow"].split(",")
    assert options.headers["Content-Type"] == "text/plain"
    assert (await call("OPTIONS", "/connectors", headers={"Accept": "application/json"})).raw == b""
    assert (await call("OPTIONS", "/nosuch")).error == "HTTP 404 Not Found"
    wrong = await call("DELETE", "/connectors")
    assert (wrong.status, wrong.error) == (405, "HTTP 405 Method Not Allowed")
    assert set(wrong.headers["Allow"].split(",")) == {"HEAD", "GET", "POST", "OPTIONS"}


async def test_media_types(rest: Served) -> None:
    call, _ = rest
    assert (
        await call("POST", "/connectors", b"{}", {"Content-Type": "text/plain"})
    ).error == "HTTP 415 Unsupported Media Type"
    assert (await call("GET", "/connectors", headers={"Accept": "text/plain"})).error == "HTTP 406 Not Acceptable"
    await call("PUT", "/connectors/a/config", CONFIG)
    assert (await call("PUT", "/connectors/a/pause")).status == 202


async def test_a_worker_that_has_not_caught_up(rest: Served) -> None:
    call, herder = rest
    herder.is_ready = False
    herder.health_answer = (False, "Reading the config topic.")
    for method, path in (
        ("GET", "/"),
        ("GET", "/connectors"),
        ("PUT", "/connectors/a/pause"),
        ("GET", "/connector-plugins"),
    ):
        reply = await call(method, path)
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
        assert "reading the cluster's state" in reply.error
    health = await call("GET", "/health")
    assert (health.status, health.json) == (
        503,
        {"status": "starting", "message": "Worker is still starting up. Reading the config topic."},
    )
    assert (await call("GET", "/metrics")).status == 200
    assert (await call("GET", "/admin/loggers")).status == 200
    assert (await call("GET", "/nosuch")).status == 404


async def test_health(start: Start) -> None:
    call, herder = await start(rest_health_check_timeout_ms="50")
    assert (await call("GET", "/health")).json == {
        "status": "healthy",
        "message": "Worker has completed startup and is ready to handle requests.",
    }
    herder.health_answer = (False, "No task host answers.")
    reply = await call("GET", "/health/")
    assert (reply.status, reply.json["status"]) == (500, "unhealthy")
    assert reply.json["message"] == (
        "Worker was unable to handle this request and may be unable to handle other requests. No task host answers."
    )
    herder.hang = asyncio.Event()
    reply = await call("GET", "/health")
    assert (reply.status, reply.json["status"]) == (500, "unhealthy")
    assert "took longer than 0.05 s" in reply.json["message"]


async def test_a_request_has_a_deadline(start: Start) -> None:
    call, herder = await start(rest_request_timeout_ms="50")
    herder.hang = asyncio.Event()
    reply = await call("GET", "/connectors")
    assert (reply.status, reply.error) == (500, "Request timed out")


async def test_a_body_has_a_limit(start: Start) -> None:
    call, _ = await start(rest_request_max_bytes="2048")
    reply = await call("PUT", "/connectors/a/config", b'{"x": "' + b"y" * 3000 + b'"}')
    assert reply.status == 413
    assert "rest.request.max.bytes (2048 bytes)" in reply.error


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (RestError(409, "busy"), 409, "busy"),
        (ConfigInvalid("bad value"), 400, "bad value"),
        (Fatal("the host has gone"), 500, "the host has gone"),
        (KeyError("password=hunter2"), 500, "Internal error (KeyError); the worker's log has the details"),
        (TimeoutError("host"), 500, "Request timed out"),
    ],
)
async def test_errors_become_answers(rest: Served, error: Exception, status: int, text: str) -> None:
    call, herder = rest
    herder.error = error
    reply = await call("GET", "/connectors")
    assert (reply.status, reply.error) == (status, text)


async def test_one_access_line_per_request_without_the_query(rest: Served, caplog: pytest.LogCaptureFixture) -> None:
    call, _ = rest
    with caplog.at_level(logging.INFO, "worker.rest.access"):
        await call("GET", "/connectors/a%2Fb/status?token=hunter2")
    lines = [record.getMessage() for record in caplog.records if record.name == "worker.rest.access"]
    assert len(lines) == 1
    assert lines[0].startswith("GET /connectors/a%2Fb/status 404 ")
    assert "hunter2" not in caplog.text
