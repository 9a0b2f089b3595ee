"""Requests over HTTP to a database, one after the other: for tasks and for the driver. Blocking."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from connectors.errors import Fatal, Retriable
from spark_jobs.steps.lookup.tls import make_tls_context
from worker.converters.registry.auth import basic_header

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spark_jobs.steps.lookup.model import LookupAccess

_LARGEST: Final = 256 << 20
_CHUNK: Final = 1 << 20
#: From this status on an answer is a refusal.
_REFUSALS: Final = 400


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer.

    Attributes:
        status: of HTTP.
        content: its body.
        after_s: the header ``Retry-After`` in seconds; 0 where it is missing.
        headers: all of them, names in lower case.
    """

    status: int
    content: bytes
    after_s: float
    headers: Mapping[str, str]


@dataclass(slots=True)
class HttpRequests:
    """A connection to one of several nodes of a database; kept open, another one after a fault. Used by one thread.

    Attributes:
        name: of the database, for messages.
        nodes: ``http://host:port/path`` or ``https://``; one after the other where one does not answer.
        access: TLS, timeout, and the login unless ``headers`` have one.
        headers: sent with each request; may hold secrets.
    """

    name: str
    nodes: Sequence[str]
    access: LookupAccess
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    _connection: http.client.HTTPConnection | None = field(default=None, init=False, repr=False)
    _node: int = field(default=0, init=False)
    _used: bool = field(default=False, init=False)

    @property
    def where(self) -> str:
        """The database and the node, for messages."""
        return f"{self.name} {urlsplit(self._current_url).netloc}"

    @property
    def _current_url(self) -> str:
        return self.nodes[self._node % len(self.nodes)]

    def exchange(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """Send a request and read its answer. A node that can't be reached is followed by the next one.

        Requests must be harmless when they come twice: one over a connection that was open is sent again if the server has
        closed it meanwhile.

        Args:
            method: of HTTP.
            path: after the node's own, with the query.
            content: the body.
            headers: further ones.

        Raises:
            Retriable: no node answers in time.
            Fatal: the answer is too large.
            connectors.errors.ConfigInvalid: a file for TLS can't be read.
        """
        left = len(self.nodes)
        while True:
            used = self._used
            try:
                return self._send_request(method, path, content, headers or {})
            except (http.client.HTTPException, OSError) as error:
                failure = self._explain_failure(error)
            self.close()
            if used and not isinstance(failure.__cause__, TimeoutError):
                continue
            self._node += 1
            left -= 1
            if not left:
                raise failure

    @contextlib.contextmanager
    def stream(self, method: str, path: str, content: bytes) -> Iterator[http.client.HTTPResponse]:
        """Send a request over a connection of its own, and hand over an answer of any size, to be read as it comes.

        Args:
            method: of HTTP.
            path: after the node's own, with the query.
            content: the body.

        Raises:
            Retriable: no node answers in time, or the answer ends too early.
            connectors.errors.ConfigInvalid: a file for TLS can't be read.
        """
        failure = Retriable(f"{self.where} does not answer")
        for _ in self.nodes:
            connection = self._open_connection()
            with contextlib.closing(connection):
                try:
                    connection.request(method, self._prefix + path, body=content, headers=self._make_login_headers())
                    response = connection.getresponse()
                except (http.client.HTTPException, OSError) as error:
                    failure = self._explain_failure(error)
                    self._node += 1
                    continue
                try:
                    yield response
                except (http.client.HTTPException, OSError) as error:
                    raise self._explain_failure(error) from error
                return
        raise failure

    def close(self) -> None:
        """Close the connection; the next request makes another one."""
        connection, self._connection = self._connection, None
        self._used = False
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    @property
    def _prefix(self) -> str:
        """The beginning of paths, by the node's address."""
        return urlsplit(self._current_url).path.rstrip("/")

    def _explain_failure(self, error: Exception) -> Retriable:
        failure = Retriable(f"{self.where} does not answer: {str(error) or type(error).__name__}")
        failure.__cause__ = error
        return failure

    def _send_request(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> HttpAnswer:
        deadline = time.monotonic() + self.access.timeout_s
        if self._connection is None:
            self._connection = self._open_connection()
        all_headers = {**self._make_login_headers(), **headers}
        try:
            self._connection.request(method, self._prefix + path, body=content, headers=all_headers)
        except (BrokenPipeError, ConnectionResetError) as error:
            response = _read_early_refusal(self._connection, error)
        else:
            response = self._connection.getresponse()
        received = bytearray()
        while chunk := response.read(_CHUNK):
            received += chunk
            if len(received) > _LARGEST:
                raise Fatal(f"{self.where} answers with more than {_LARGEST >> 20} MiB: write fewer rows at a time")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the answer is not complete after {self.access.timeout_s:g} s")
        self._used = True
        names = {name.lower(): value for name, value in response.getheaders()}
        return HttpAnswer(response.status, bytes(received), retry_after(names.get("retry-after")), names)

    def _open_connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._current_url)
        host, port = parts.hostname or "", parts.port
        tls = make_tls_context(self.access, always=parts.scheme == "https")
        if tls is None:
            return http.client.HTTPConnection(host, port, timeout=self.access.timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=self.access.timeout_s, context=tls)

    def _make_login_headers(self) -> dict[str, str]:
        login = {"Authorization": basic_header(self.access.user, self.access.password)} if self.access.user else {}
        return {"User-Agent": "millrace", **login, **self.headers}


def _read_early_refusal(connection: http.client.HTTPConnection, error: OSError) -> http.client.HTTPResponse:
    """The answer of a server that has refused a request before it had all of it, as with 413, and closed the connection.

    Raises:
        OSError: ``error``, where there is no such answer.
    """
    try:
        response = connection.getresponse()
    except (http.client.HTTPException, OSError):
        raise error from None
    if response.status < _REFUSALS:
        raise error
    return response


def retry_after(header: str | None) -> float:
    """Seconds to wait, from the header ``Retry-After``; 0 where it is missing or has another form."""
    if not header:
        return 0.0
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return 0.0


def is_about_tls(error: Exception) -> bool:
    """Whether a fault came from the encryption of a connection, so that its options have to be looked at. Pure."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return True
        cause = cause.__cause__
    return False


def nodes_problem(name: str, value: Sequence[str], prefix: str) -> str | None:
    """Why a list is no list of addresses; None where it is one. Pure; for validators.

    Args:
        name: of the option.
        value: its items.
        prefix: of the sink's options.
    """
    for item in value or [""]:
        parts = urlsplit(item)
        if "@" in parts.netloc:
            # Not with the value, which has a password in it.
            return (
                f"Invalid value for configuration {name}: it must not hold a login; use {prefix}user and "
                f"{prefix}password"
            )
        try:
            right = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
            _ = parts.port
        except ValueError:
            right = False
        if not right:
            return f"Invalid value for configuration {name}: {item!r} must be http://<host>:<port> or https://..."
    return None
