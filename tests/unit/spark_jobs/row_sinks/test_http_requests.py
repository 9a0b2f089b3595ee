"""Requests to databases over HTTP: nodes that do not answer, connections that the server has closed, silence, logins."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from compose.local.ports import free_port
from connectors.errors import Retriable
from spark_jobs.sinks.shared.http_requests import HttpRequests, nodes_problem
from spark_jobs.steps.lookup.model import LookupAccess

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nRetry-After: 3\r\nX-More: a\r\n\r\nok"


class Server:
    """Answers a number of requests on each connection, then closes it; with none it is silent."""

    def __init__(self, answers: int, answer: bytes) -> None:
        self.answers = answers
        self.answer = answer
        self.requests: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        kept = []
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                kept.append(connection)
                if not self.answers:
                    continue
                for _ in range(self.answers):
                    request = connection.recv(65536)
                    if request:
                        self.requests.append(request)
                        connection.sendall(self.answer)
                connection.close()


@contextlib.contextmanager
def serving(answers: int, answer: bytes = ANSWER) -> Iterator[Server]:
    server = Server(answers, answer)
    try:
        yield server
    finally:
        server.listener.close()


def requests_to(*nodes: str, timeout_s: float = 5.0) -> HttpRequests:
    access = LookupAccess(
        address="node",
        user="me",
        password="hidden",
        ssl_mode="prefer",
        ssl_root_cert=None,
        ssl_cert=None,
        ssl_key=None,
        timeout_s=timeout_s,
    )
    return HttpRequests("Database", nodes, access)


def test_an_answer_and_its_login() -> None:
    with serving(1) as server:
        requests = requests_to(f"{server.url}/base/")
        answer = requests.exchange("POST", "/path?a=1", b"body", {"X-Own": "b"})
        requests.close()
    assert (answer.status, answer.content, answer.after_s, answer.headers["x-more"]) == (200, b"ok", 3.0, "a")
    (request,) = server.requests
    assert request.startswith(b"POST /base/path?a=1 HTTP/1.1\r\n")
    assert b"Authorization: Basic bWU6aGlkZGVu\r\n" in request
    assert b"X-Own: b\r\n" in request


def test_the_next_node_answers() -> None:
    with serving(10) as server:
        requests = requests_to(f"http://127.0.0.1:{free_port(None)}", server.url)
        for _ in range(2):
            assert requests.exchange("GET", "/").content == b"ok"
        assert server.url.removeprefix("http://") in requests.where
        requests.close()


def test_a_connection_that_the_server_has_closed_is_made_again() -> None:
    with serving(1) as server:
        requests = requests_to(server.url)
        for _ in range(3):
            assert requests.exchange("GET", "/").content == b"ok"
        requests.close()
    assert len(server.requests) == 3


def test_no_node_answers() -> None:
    requests = requests_to(f"http://127.0.0.1:{free_port(None)}")
    with pytest.raises(Retriable, match=r"Database 127\.0\.0\.1:\d+ does not answer: .*refused") as failed:
        requests.exchange("GET", "/")
    assert "hidden" not in str(failed.value)


def test_a_silent_node() -> None:
    with serving(0) as server:
        requests = requests_to(server.url, timeout_s=0.2)
        with pytest.raises(Retriable, match="timed out"):
            requests.exchange("GET", "/")


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("https://node:9200/path", None),
        ("http://[::1]:9200", None),
        ("node:9200", "'node:9200' must be http://"),
        ("http://me:hidden@node", "must not hold a login"),
        ("http://node:port", "must be http://"),
        ("", "must be http://"),
    ],
)
def test_addresses(address: str, complaint: str | None) -> None:
    problem = nodes_problem("sink.x.url", [address], "sink.x.")
    assert problem is None if complaint is None else complaint in str(problem)
    assert "hidden" not in str(problem)


def test_a_stream_is_read_as_it_comes() -> None:
    with serving(1) as server:
        requests = requests_to(f"http://127.0.0.1:{free_port(None)}", f"{server.url}/base")
        with requests.stream("POST", "/path", b"body") as response:
            assert (response.status, response.read(1), response.read(1)) == (200, b"o", b"k")
        (request,) = server.requests
        assert request.startswith(b"POST /base/path HTTP/1.1")
        assert b"Authorization: Basic " in request


def test_a_stream_that_breaks_is_retriable() -> None:
    broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
    with serving(1, broken) as server:
        requests = requests_to(server.url)
        with (
            pytest.raises(Retriable, match=r"Database 127\.0\.0\.1:\d+ does not answer: IncompleteRead"),
            requests.stream("POST", "/", b"") as response,
        ):
            response.read()
    absent = requests_to(f"http://127.0.0.1:{free_port(None)}")
    with pytest.raises(Retriable, match="refused"), absent.stream("POST", "/", b""):
        pass


def test_an_answer_that_comes_while_the_body_is_sent() -> None:
    refusal = b"HTTP/1.1 413 Too large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with serving(1, refusal) as server:
        requests = requests_to(server.url)
        for _ in range(10):
            assert requests.exchange("POST", "/", bytes(1 << 24)).status == 413
