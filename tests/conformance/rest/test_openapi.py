"""A running worker held against its own OpenAPI document: whatever is asked, it answers as documented and never with 500.

Schemathesis makes the requests, of what the document allows and of what it doesn't; always the same ones, so that a failure
can be repeated. The slow suite makes many more of them.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ensure_resource_availability,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from compose.local.process.http import send_request
from compose.local.process.service import wait_until
from compose.local.worker import MillraceWorker
from tests.selection import scaled
from tests.support.eventually import eventually
from worker.rest.operations import NAMED
from worker.rest.own.rules import RULES
from worker.rest.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = scaled(7, 100)
#: Of connectors' lives, and of requests in each.
STORIES, STEPS = scaled((25, 10), (100, 20))
pytestmark = pytest.mark.scaled
#: Not asked: they end the worker's work, or don't end by themselves for a minute.
LEFT_OUT = {"drainWorker", "watchConnectors"}
CLASSES = ["FileStreamSource", "datagen", "mysql", "scylla", "cassandra", "spark"]
FILE = {"connector.class": "FileStreamSource", "topic": "openapi", "file": "{file}"}
#: Connectors that exist before an operation is tried; recreated where an operation has deleted or changed them.
CONNECTORS: dict[str, dict[str, Any]] = {
    "runs": {"config": FILE},
    "stopped": {"config": FILE, "initial_state": "STOPPED"},
    "a b%": {"config": {"connector.class": "datagen", "topic": "openapi"}, "initial_state": "STOPPED"},
    "job": {
        "config": {
            "connector.class": "spark",
            "source.topics": "openapi",
            "source.format": "debezium",
            "sink.type": "console",
        },
        "initial_state": "STOPPED",
    },
}
#: The values of most path parameters, since random names lead nowhere.
NAMES: dict[str, list[Any]] = {
    "connector": [*CONNECTORS, "runs", "nope"],
    "task": [0, 1],
    "snapshot": ["1"],
    "savepoint": ["one"],
    "rules": ["kept"],
    "version": [1],
    "topic": ["openapi", "nope"],
    "logger": ["openapi.a", "openapi"],
    "file": ["app.js"],
    "plugin": [*CLASSES, "JsonConverter", "RegexRouter", "org.apache.kafka.connect.file.FileStreamSourceConnector"],
}
#: What has to be answered at least once, or the requests are no good: nearly everything succeeds for somebody.
NOT_REACHED = {
    ("createSnapshot", 201),
    ("listSnapshots", 200),
    ("getSnapshot", 200),
    ("deleteSnapshot", 204),
    ("pauseSnapshot", 202),
    ("resumeSnapshot", 202),
    ("cancelSnapshot", 202),
    ("listUnknownLines", 200),
    ("replayLines", 201),
    ("listReplays", 200),
    ("createSavepoint", 202),
    ("deleteSavepoint", 204),
    ("getLag", 200),
    ("listTables", 200),
    ("getRates", 200),
    # They need a database, a dead letter, or the signature of another worker: tests/integration/console asks with them.
    ("listSourceTables", 200),
    ("listTablesOfEdit", 200),
    ("redriveDeadLetter", 200),
    ("repairVerified", 202),
    ("getOwnChanges", 200),
    ("getOwnSamples", 200),
    ("putTaskConfigs", 204),
    ("fenceZombies", 204),
    ("setClusterLevel", 204),
    ("getHealth", 503),
}


@pytest.fixture(scope="module")
def url(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("openapi")
    worker = MillraceWorker(folder / "worker", bootstrap, group=f"openapi-{secrets.token_hex(4)}", processes=1)
    try:
        yield worker.start().url
    finally:
        worker.kill()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("openapi") / "lines.txt"
    path.write_text("one\ntwo\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def answered() -> set[tuple[str, int]]:
    """Operations and the statuses they were answered with."""
    return set()


@pytest.fixture(scope="module")
def schema(url: str) -> Any:
    """The worker's document, closed: no field may be in an answer that is not declared."""
    status, document = send_request("GET", f"{url}/openapi.json", None, 30)
    assert status == 200
    for name, shape in document["components"]["schemas"].items():
        if name not in {"Snapshot", "Table"}:  # connectors add their own
            shape["additionalProperties"] = False
    return schemathesis.openapi.from_dict(document)


def _operation(schema: Any, path: str, method: str) -> Any:
    return next(
        operation
        for result in schema.get_all_operations()
        if (operation := result.ok()).path == path and operation.method.upper() == method
    )


#: A good request of each operation is asked first: the names in its path, its query, and its body where the example is not it.
GOOD: dict[str, Any] = {
    "connector": "runs",
    "task": 0,
    "plugin": "FileStreamSource",
    "logger": "root",
    "snapshot": "1",
    "savepoint": "one",
    "rules": "kept",
    "version": 1,
    "topic": "openapi",
    "file": "app.js",
}
GOOD_OF: dict[str, dict[str, Any]] = {
    "alterOffsets": {"connector": "stopped"},
    "resetOffsets": {"connector": "stopped"},
    "getProgress": {"connector": "job"},
    "setLogLevel": {"logger": "openapi.a"},
    "deleteConnector": {"connector": "stopped"},
    "deleteRuleSet": {"rules": "gone"},
    "putConfig": {"connector": "new"},
    "putRuleSet": {"rules": "new"},
    "planEdit": {"connector": "job"},
    "previewEdit": {"connector": "job"},
}


QUERIES: dict[str, tuple[dict[str, str], ...]] = {
    "restartConnector": ({}, {"includeTasks": "true", "onlyFailed": "true"}),
    "setLogLevel": ({}, {"scope": "cluster"}),
    "listConnectors": ({}, {"expand": "info"}),
    # The first makes the rule set, the second finds it.
    "putRuleSet": ({}, {"force": "true"}),
}


def _running(url: str) -> bool:
    _, body = send_request("GET", f"{url}/connectors/runs/status", None, 30)
    return [task["state"] for task in body.get("tasks", ())] == ["RUNNING"]


def _good(operation: Any, route: Any, file: str) -> Any:
    names = {**GOOD, **GOOD_OF.get(route.operation.id, {})}
    body = next(iter(route.operation.examples.values()), None)
    more = (
        {}
        if body is None
        else {"body": json.loads(json.dumps(body).replace("/data/lines.txt", file)), "media_type": "application/json"}
    )
    return operation.Case(path_parameters={name: names[name] for name in GOOD if f"{{{name}}}" in route.path}, **more)


def _prepare(url: str, file: str) -> None:
    _, there = send_request("GET", f"{url}/connectors", None, 30)
    for name, connector in CONNECTORS.items():
        if name not in there:
            config = {key: value.replace("{file}", file) for key, value in connector["config"].items()}
            status, body = send_request("POST", f"{url}/connectors", {"name": name, **connector, "config": config}, 30)
            assert status == 201, body
    for name in ("kept", "gone"):
        status, body = send_request("PUT", f"{url}/rules/{name}?force=true", {"rules": RULES}, 30)
        assert status in {200, 201}, body
    for name, action in (("runs", "resume"), ("stopped", "stop")):
        send_request("PUT", f"{url}/connectors/{name}/{action}", None, 30)


def _aim(data: Any, case: Any, file: str) -> None:
    """Let most requests be about something that is there."""
    for name in case.path_parameters or {}:
        if data.draw(st.integers(0, 9)) < 8:
            case.path_parameters[name] = data.draw(st.sampled_from(NAMES[name]))
    if case.method != "PATCH" and isinstance(case.body, dict) and ("config" in case.path or "config" in case.body):
        config = case.body.get("config", case.body)
        if isinstance(config, dict) and data.draw(st.booleans()):
            config["connector.class"] = data.draw(st.sampled_from(CLASSES))
            if data.draw(st.booleans()):
                config.update(FILE, file=file)
    if isinstance(case.body, dict) and "offsets" in case.path and data.draw(st.booleans()):
        case.body = {
            "offsets": [
                {
                    "partition": {"filename": file},
                    "offset": data.draw(
                        st.sampled_from(
                            [None, {"position": 4}, {"position": -1}, {"position": "4"}, {"position": 2**70}, {}]
                        )
                    ),
                }
            ]
        }
        case.path_parameters["connector"] = "stopped"


@pytest.mark.parametrize(
    "route",
    [pytest.param(route, id=route.operation.id) for route in ROUTES["all"] if route.operation.id not in LEFT_OUT],
)
def test_it_answers_as_documented(schema: Any, url: str, file: str, route: Any, answered: set[tuple[str, int]]) -> None:
    operation = _operation(schema, route.path, route.method)
    # There is nothing wrong that could be asked of an operation whose only parameters are names.
    wrong = route.operation.body is not None or any(query.type is not str for query in route.operation.query)
    _prepare(url, file)
    if route.operation.id in {"getTaskStatus", "restartTask", "restartConnector"}:
        send_request("PUT", f"{url}/connectors/runs/config", {**FILE, "file": file}, 30)
        eventually(lambda: _running(url), "the connectors run", 30, every=0.05)
    if route.operation.id == "getProgress":
        # An operation that was tried before may have given it another configuration, and a worker knows of a
        # change a moment after the leader has answered.
        send_request("PUT", f"{url}/connectors/job/config", CONNECTORS["job"]["config"], 30)
        eventually(
            lambda: send_request("GET", f"{url}/connectors/job/progress", None, 30)[0] == 200, "the job is known", 30
        )
    for query in QUERIES.get(route.operation.id, ({},)):
        case = _good(operation, route, file)
        case.query = query
        response = case.call(base_url=url, timeout=30)
        answered.add((route.operation.id, response.status_code))
        case.validate_response(response, checks=CHECKS)
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)[: 2 if wrong else 1]:
        _prepare(url, file)
        _ask_often(
            operation.as_strategy(generation_mode=mode),
            url,
            file,
            lambda status: answered.add((route.operation.id, status)),
        )


def _ask_often(cases: Any, url: str, file: str, note: Callable[[int], None]) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def ask(data: Any) -> None:
        case = data.draw(cases)
        _aim(data, case, file)
        response = case.call(base_url=url, timeout=30)
        note(response.status_code)
        case.validate_response(response, checks=CHECKS)

    ask()


#: What an operation makes of a connector's state.
TARGET_STATES = {"pauseConnector": "PAUSED", "resumeConnector": "RUNNING", "stopConnector": "STOPPED"}


def _settled(url: str, expected: dict[str, str]) -> bool:
    """Whether these connectors and no others are there, each in its state with all its tasks, or failed."""
    _, there = send_request("GET", f"{url}/connectors?expand=status", None, 30)
    for name, state in expected.items():
        if name not in there:
            return False
        status = there[name]["status"]
        states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
        # One that is paused after it was stopped has no tasks before it is resumed.
        tasks = {"RUNNING": {1}, "PAUSED": {0, 1}, "STOPPED": {0}}[state]
        if "FAILED" not in states and (set(states) != {state} or len(states) - 1 not in tasks):
            return False
    return set(there) == set(expected)


def test_what_is_created_can_be_followed_to_its_end(url: str, file: str, schema: Any) -> None:
    """Schemathesis follows the document's links, from answers to further requests about what they name."""
    asked: set[tuple[str, int]] = set()
    # The topics of a connector that does not exist are none, as in Kafka Connect: no 404 after its end.
    followed = ["createConnector", *(link.operation for link in NAMED if link.operation != "getConnectorTopics")]

    class Story(schema.include(operation_id=followed).as_state_machine()):  # type: ignore[misc]
        """One connector's life. Every story finds the cluster as the first one did: equal requests must have equal ends."""

        def setup(self) -> None:
            for name in send_request("GET", f"{url}/connectors", None, 30)[1]:
                send_request("DELETE", f"{url}/connectors/{quote(name, safe='')}", None, 30)
            self.created = 0
            self.deleted: set[str] = set()
            self.expected: dict[str, str] = {}

        def before_call(self, case: Any) -> None:
            super().before_call(case)
            # A good configuration mostly: nothing can be followed from a refusal.
            if case.operation.label == "POST /connectors" and isinstance(case.body, dict):
                self.created += 1
                case.body = {
                    "name": f"story {self.created}/%",
                    "config": {**FILE, "file": file},
                    **({} if self.created % 2 else {"initial_state": "STOPPED"}),
                }
            if case.operation.label == "PUT /connectors/{connector}/config" and isinstance(case.body, dict):
                case.body = {**case.body, **FILE, "file": file, "tasks.max": "1"}
                case.body.pop("name", None)

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            del case
            return {"base_url": url, "timeout": 30}

        def after_call(self, response: Any, case: Any) -> None:
            super().after_call(response, case)
            # In paths that follow links names are encoded already.
            name = unquote(str((case.path_parameters or {}).get("connector", "")))
            operation = case.operation.definition.raw["operationId"]
            asked.add((operation, response.status_code))
            if response.status_code >= 400:
                return
            if operation == "putConfig":
                self.deleted.discard(name)
            assert name not in self.deleted, (
                f"{operation} of a connector that was deleted is answered {response.status_code}"
            )
            if operation == "deleteConnector":
                self.deleted.add(name)
                del self.expected[name]
            if operation == "createConnector":
                self.expected[case.body["name"]] = case.body.get("initial_state", "RUNNING")
            if operation == "putConfig":
                self.expected.setdefault(name, "RUNNING")
            if operation in TARGET_STATES:
                self.expected[name] = TARGET_STATES[operation]
            if case.method != "GET":
                # Answers in between depend on the moment, and hypothesis wants equal requests to have equal answers.
                assert wait_until(lambda: _settled(url, self.expected), 30, 0.02), send_request(
                    "GET", f"{url}/connectors?expand=status", None, 30
                )

        def validate_response(self, response: Any, case: Any, **more: Any) -> None:
            case.validate_response(
                response, checks=[*CHECKS, ensure_resource_availability], recorder=self.recorder, transport_kwargs=more
            )

    Story.run(
        settings=settings(
            max_examples=STORIES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
    )
    assert {("createConnector", 201), ("deleteConnector", 204)} <= asked, sorted(asked)
    # Links were followed, before and after the end of what they lead to.
    assert len({operation for operation, status in asked if status < 300}) >= len(followed) // 2, sorted(asked)
    assert 404 in {status for _, status in asked}


def test_numbers_of_any_size_reach_a_task_host(url: str) -> None:
    rows = [{"table": "t", "row": {"n": 10**30}}]
    request = {"config": {"connector.class": "mysql"}, "rows": rows}
    status, body = send_request("POST", f"{url}/flows/preview", request, 30)
    assert (status, "is a source connector" in body["message"]) == (400, True), body


def test_the_requests_have_reached_what_they_should(answered: set[tuple[str, int]]) -> None:
    expected = {
        (route.operation.id, status)
        for route in ROUTES["all"]
        for status in route.operation.replies
        if route.operation.id not in LEFT_OUT and status != 500
    }
    assert expected - NOT_REACHED <= answered, sorted(expected - NOT_REACHED - answered)
