"""Asking a worker as a public client would: its requests, its retries, and its reader of answers, all as data.

What a client reads an answer into is a msgspec type: what the client can't read does not fit either. Facts about the clients
are in ``calls``.
"""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PATIENCE_S = 30.0


class Error(msgspec.Struct):
    """The body of an error, as every client reads it."""

    error_code: int
    message: str


@dataclass(frozen=True, slots=True)
class Call:
    """A request and what the client makes of its answer.

    Attributes:
        name: unique within the client.
        method: HTTP method.
        path: path and query as the client writes them; ``{name}`` is the connector's name, encoded for a path.
        statuses: what the client takes for the answer; anything else is a failure of the client.
        reads: what it reads the body into; None: it does not look at it. Errors are read as errors.
        body: JSON, with ``{name}``, ``{file}`` and ``{topic}``.
        until: asked again until this holds of what was read.
        keep: what of it is compared with Kafka Connect's; by default everything.
    """

    name: str
    method: str
    path: str
    statuses: tuple[int, ...] = (200,)
    reads: Any = None
    body: Any = None
    until: Callable[[Any], bool] | None = None
    keep: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """A client.

    Attributes:
        name: its name.
        headers: what it sends with every request.
        body_headers: further headers, sent with a body.
        calls: what it asks, in order.
        should_retry: whether it asks again after an answer with this status and body.
        attempts: how often.
        delay_s: how long it waits before.
        connector: the connector's name for this client; ``{id}`` is of the run.
        encoded: that name as the client writes it into paths.
    """

    name: str
    headers: Mapping[str, str]
    calls: Sequence[Call]
    body_headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    should_retry: Callable[[int, Any], bool] = lambda status, _: status == 409
    attempts: int = 300
    delay_s: float = 0.1
    connector: str = "{id}"
    encoded: str = "{id}"


#: What Kafka's worker, and never ours, answers to reads as well, with a 500, while the change before them makes it rebalance.
#: kcctl and kafbat UI take it for passing; others fail, having done nothing wrong. On a slow machine it is met now and then.
REBALANCE = "Request cannot be completed because a rebalance is expected"


def state(expected: str, tasks: int = 1) -> Callable[[Any], bool]:
    """Whether a status says that a connector and the given number of tasks are in a state."""

    def holds(status: Any) -> bool:
        return (
            status.connector.state == expected
            and len(status.tasks) == tasks
            and all(task.state == expected for task in status.tasks)
        )

    return holds


def replay(client: Client, url: str, values: Mapping[str, str]) -> dict[str, Any]:
    """Ask everything; call -> status and what was read, without what differs from run to run.

    Args:
        client: as whom.
        url: the worker.
        values: ``id``, ``file`` and ``topic`` of this run.

    Raises:
        AssertionError: the client would fail.
    """
    names = {**values, "name": client.connector.replace("{id}", values["id"])}
    encoded = {**values, "name": client.encoded.replace("{id}", values["id"])}
    answers: dict[str, Any] = {}
    for call in client.calls:
        path = _fill(call.path, encoded)
        body = (
            None
            if call.body is None
            else _fill(json.dumps(call.body), {key: _inside(value) for key, value in names.items()})
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status, answer = _ask_patiently(client, url, call.method, path, body)
            assert status in call.statuses, f"{client.name}: {call.name}: {status} {answer!r}"
            read = _read(client, call, Error if status >= 400 else call.reads, answer)
            if call.until is None or call.until(read):
                break
            assert time.monotonic() < deadline, f"{client.name}: {call.name}: {answer!r}"
            time.sleep(0.05)
        plain = msgspec.to_builtins(read)
        answers[call.name] = [status, _same(call.keep(plain) if call.keep else plain, names, url)]
    return answers


def _ask_patiently(client: Client, url: str, method: str, path: str, body: str | None) -> tuple[int, bytes]:
    deadline = time.monotonic() + PATIENCE_S
    for attempt in range(client.attempts + 1):
        status, answer = _ask(client, url, method, path, body)
        while status == 500 and REBALANCE.encode() in answer and time.monotonic() < deadline:
            time.sleep(0.1)
            status, answer = _ask(client, url, method, path, body)
        try:
            parsed = json.loads(answer) if answer else None
        except ValueError:
            parsed = None
        passing = status >= 400 and client.should_retry(status, parsed) and "already exists" not in str(parsed)
        if not passing or attempt == client.attempts:
            break
        time.sleep(client.delay_s)
    return status, answer


def _ask(client: Client, url: str, method: str, path: str, body: str | None) -> tuple[int, bytes]:
    target = urlsplit(url)
    connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        headers = {**client.headers, **(client.body_headers if body is not None else {})}
        if body is not None or method in {"POST", "PUT", "PATCH"}:
            headers["Content-Length"] = str(len((body or "").encode()))
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(None if body is None else body.encode())
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _read(client: Client, call: Call, kind: Any, answer: bytes) -> Any:
    if kind is None:
        return None
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise AssertionError(f"{client.name}: {call.name}: {error} in {answer!r}") from error


def _fill(text: str, values: Mapping[str, str]) -> str:
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def _inside(value: str) -> str:
    return json.dumps(value)[1:-1]


def _same(value: Any, names: Mapping[str, str], url: str) -> Any:
    """Without what differs from run to run."""
    text = json.dumps(value, ensure_ascii=False).replace(url.removeprefix("http://"), "WORKER")
    for key in ("name", "file", "topic", "id"):
        text = text.replace(_inside(names[key]), key.upper())
    return json.loads(text)
