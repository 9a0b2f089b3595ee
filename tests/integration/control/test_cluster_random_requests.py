"""Random requests to two workers, of which one is killed now and then, next to a model of Kafka Connect's answers.

A seed gives the same requests; ``MILLRACE_SEED`` names another one. Where a request has met a worker that was killed, it is not
known whether it took effect: the model has both states until an answer decides.
"""

from __future__ import annotations

import json
import os
import random
import secrets
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from compose.local.worker import MillraceWorker
from tests.integration.control._cluster import datagen, members, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

NAMES = ("plain", "a/b c", "%41ü😀")
STEPS = 100
#: Before these steps a worker is killed; it starts again ten steps later.
KILLS = {40: 0, 70: 1}
TARGETS = {"pause": (202, "PAUSED"), "resume": (202, "RUNNING"), "stop": (204, "STOPPED")}
PARTITION = {"partition": 0}


@dataclass(frozen=True)
class Connector:
    """A connector as a client knows it; ``offset`` is None where a task may have saved one."""

    config: Mapping[str, str]
    target: str = "RUNNING"
    offset: str | None = None


State = Connector | None


@dataclass
class Request:
    """A request, and what it does in the model.

    Attributes:
        method: of HTTP.
        path: behind the connector's own.
        body: as JSON.
        answer: from a state to the status and the next state.
        shows: whether a body of 200 fits to a state.
    """

    method: str
    path: str
    body: Any
    answer: Callable[[State], tuple[int, State]]
    shows: Callable[[Any, Connector], bool] = lambda *_: True


def existing(
    status: int, change: Callable[[Connector], State] = lambda state: state
) -> Callable[[State], tuple[int, State]]:
    """An answer for connectors that exist."""
    return lambda state: (404, None) if state is None else (status, change(state))


def put(config: dict[str, str]) -> Callable[[State], tuple[int, State]]:
    """The answer to a whole configuration."""
    return lambda state: (201, Connector(config)) if state is None else (200, replace(state, config=config))


def patch(changes: Mapping[str, str | None]) -> Callable[[State], tuple[int, State]]:
    """The answer to a change of a configuration."""

    def merge(state: Connector) -> State:
        merged = {**state.config, **changes}
        return replace(state, config={key: value for key, value in merged.items() if value is not None})

    return existing(200, merge)


def stopped(offset: str) -> Callable[[State], tuple[int, State]]:
    """The answer to a change of offsets."""
    return lambda state: (
        (404, None)
        if state is None
        else (200, replace(state, offset=offset))
        if state.target == "STOPPED"
        else (400, state)
    )


def aim(action: str) -> Request:
    status, target = TARGETS[action]

    def change(state: Connector) -> State:
        moves = target == "RUNNING" or state.target == "RUNNING"
        return replace(state, target=target, offset=None if moves else state.offset)

    return Request("PUT", f"/{action}", None, existing(status, change))


def draw_request(rng: random.Random, name: str, topic: str) -> Request:
    """The next request to a connector."""
    rate = str(rng.randint(1, 40))
    config = {key: str(value) for key, value in datagen(topic, 1, rate=rate, name=name).items()}
    offset = {"sequence": rng.randint(0, 9)}
    invalid = {**config, "tasks.max": "0"}
    requests: list[Request] = [
        Request("PUT", "/config", config, put(config)),
        Request("PUT", "/config", config, put(config)),
        Request("PUT", "/config", invalid, lambda state: (400, state)),
        Request("PUT", "/config", {**config, "name": "other"}, lambda state: (400, state)),
        Request("PATCH", "/config", {"rate": rate, "partitions": None}, patch({"rate": rate, "partitions": None})),
        Request("PATCH", "/config", {"tasks.max": "x"}, existing(400)),
        *(
            Request(
                "POST",
                "",
                {"name": name, "config": config, "initial_state": state},
                lambda before, state=state: (  # type: ignore[misc]
                    (201, Connector(config, state)) if before is None else (409, before)
                ),
            )
            for state in ("RUNNING", "PAUSED", "STOPPED")
        ),
        *(aim(action) for action in TARGETS),
        Request("POST", "/restart?includeTasks=true", None, existing(202)),
        Request("POST", "/restart", None, existing(204)),
        Request("GET", "", None, existing(200), lambda body, state: body["config"] == state.config),
        Request("GET", "/config", None, existing(200), lambda body, state: body == state.config),
        Request("GET", "/status", None, existing(200), lambda body, _: body["name"] == name),
        Request("GET", "/tasks", None, existing(200)),
        Request("GET", "/tasks/7/status", None, lambda state: (404, state)),
        Request("POST", "/tasks/7/restart", None, lambda state: (404, state)),
        Request(
            "PATCH", "/offsets", {"offsets": [{"partition": PARTITION, "offset": offset}]}, stopped(json.dumps(offset))
        ),
        Request("DELETE", "/offsets", None, stopped("null")),
        Request("GET", "/offsets", None, existing(200), fits_offset),
        Request("DELETE", "", None, existing(204, lambda _: None)),
    ]
    return rng.choice(requests)


def fits_offset(body: Any, state: Connector) -> bool:
    saved = [entry["offset"] for entry in body["offsets"]]
    return state.offset is None or saved == ([] if state.offset == "null" else [json.loads(state.offset)])


def is_unclear(status: int, body: Any) -> bool:
    """Whether an answer leaves open what has happened."""
    message = str(body.get("message", "")) if isinstance(body, dict) else ""
    return status == 503 or (status == 409 and "rebalance" in message) or (status == 500 and "IO Error" in message)


class Model:
    """The states that each connector may be in: several after a request that may have had an effect or none."""

    def __init__(self) -> None:
        self.states: dict[str, list[State]] = {name: [None] for name in NAMES}

    def follow(self, name: str, request: Request, status: int, body: Any) -> None:
        """Take an answer in, which one of the states must explain."""
        expected = [request.answer(state) for state in self.states[name]]
        if is_unclear(status, body):
            self.states[name] += [after for _, after in expected if after not in self.states[name]]
            return
        after = [
            new
            for (expected_status, new) in expected
            if expected_status == status and (status != 200 or new is None or request.shows(body, new))
        ]
        assert after, f"{name}: {request.method} {request.path} {request.body}: {status} {body}, not {expected}"
        if request.method != "GET":  # a follower may be behind with what is not known
            self.states[name] = after


def send(worker: MillraceWorker, name: str, request: Request) -> tuple[int, Any]:
    """The answer; 503 where the worker has gone."""
    path = "/connectors" if request.path == "" and request.method == "POST" else f"/connectors/{quote(name, safe='')}"
    try:
        return worker.request(request.method, path + request.path, request.body)
    except OSError as error:
        return 503, {"message": repr(error)}


@pytest.fixture
def pair(bootstrap: str, tmp_path: Path) -> Iterator[list[MillraceWorker]]:
    group = f"random-{secrets.token_hex(4)}"
    workers = [
        MillraceWorker(state_dir=tmp_path / name, bootstrap=bootstrap, group=group, processes=1) for name in "ab"
    ]
    try:
        for worker in workers:
            worker.start()
        wait_for(lambda: members(workers[0]) == 2, "two members")
        yield workers
    finally:
        for worker in workers:
            worker.kill()


def test_answers_are_those_of_the_model(pair: list[MillraceWorker], unique: Callable[[str], str]) -> None:
    seed = int(os.environ.get("MILLRACE_SEED", "1"))
    rng, model, topic = random.Random(seed), Model(), unique("random")
    asked: dict[str, MillraceWorker] = {}
    killed: MillraceWorker | None = None
    for step in range(STEPS):
        if step in KILLS:
            killed = pair[KILLS[step]]
            killed.kill()
        elif killed is not None and step - 10 in KILLS:
            killed.start()
            killed = None
        name = rng.choice(NAMES)
        request = draw_request(rng, name, topic)
        # A client sees its own changes where it made them; other workers learn of them a moment later.
        worker = asked[name] if request.method == "GET" and name in asked else rng.choice(pair)
        if request.method != "GET":
            asked[name] = worker
        status, body = send(worker, name, request)
        try:
            model.follow(name, request, status, body)
        except AssertionError as error:
            raise AssertionError(f"step {step} of seed {seed}, worker {pair.index(worker)}: {error}") from None
    for worker in pair:
        for name in NAMES:
            wait_for(partial(is_settled, worker, name, model.states[name]), f"{name} is {model.states[name]}", 60)


def is_settled(worker: MillraceWorker, name: str, states: list[State]) -> bool:
    """Whether a worker shows a connector as one of these states has it, and its tasks follow."""
    status, config = worker.request("GET", f"/connectors/{quote(name, safe='')}/config")
    if status == 404:
        return None in states
    tasks = [] if (shown := worker.states(quote(name, safe="")))[0] == "STOPPED" else [shown[0]]
    return shown[1] == tasks and any(state and (state.config, state.target) == (config, shown[0]) for state in states)
