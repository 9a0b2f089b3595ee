"""Requests from one worker to another: those of clients that only the leader can answer, and the workers' own."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import aiohttp
from aiohttp import web
from yarl import URL

from worker.rest.call import empty, optional_flag
from worker.rest.facade import REBALANCE_TEXT, RestError
from worker.rest.signing import signature_headers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from worker.rest.signing import SessionKey

#: Headers that belong to one connection, not to the request.
_NOT_FORWARDED: Final = frozenset({
    "host", "content-length", "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade", "accept-encoding", "expect"})
_IO_ERROR: Final = "IO Error trying to forward REST request: "


def next_hop(forward: bool | None) -> bool:  # noqa: FBT001 - a tri-state value, not a switch
    """What the next worker is told about forwarding, given what this one was told: two hops at most.

    Raises:
        RestError: 409: this was the last one.
    """
    if forward is False:
        raise RestError(409, REBALANCE_TEXT)
    return forward is None


def target(leader_url: str, raw_path: str, query: Iterable[tuple[str, str]], *, forward: bool) -> URL:
    """Where to send a request: the same path and query, with the new ``forward``."""
    pairs = [(name, value) for name, value in query if name != "forward"]
    pairs.append(("forward", "true" if forward else "false"))
    return URL(leader_url.rstrip("/") + raw_path + "?" + urlencode(pairs), encoded=True)


class WorkerClient:
    """Calls other workers. Must be used on one event loop; ``close`` it at the end.

    Args:
        timeout_s: deadline of a call.
        make_tls: makes the TLS context for an https address; called on first use only.
    """

    def __init__(self, timeout_s: float, make_tls: Callable[[], ssl.SSLContext]) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._make_tls = make_tls
        self._tls: ssl.SSLContext | None = None
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()

    async def forward(self, request: web.Request, leader_url: str | None) -> web.Response:
        """Ask the leader, and answer with its answer.

        Raises:
            RestError: 409 without a leader or after two hops, 500 if it can't be reached.
        """
        forward = next_hop(optional_flag(request, "forward"))
        if leader_url is None:
            raise RestError(409, REBALANCE_TEXT)
        url = target(leader_url, request.rel_url.raw_path, request.query.items(), forward=forward)
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _NOT_FORWARDED]
        status, answered, body = await self._call(request.method, url, headers, await request.read())
        if not body and status != 200:
            return empty(status)
        response = web.Response(body=body, status=status)
        response.headers["Content-Type"] = answered.get("Content-Type", "application/json")
        if "Location" in answered:
            # The client knows this worker, not the leader.
            response.headers["Location"] = f"{request.scheme}://{request.host}{URL(answered['Location']).raw_path}"
        return response

    async def send_signed(self, method: str, leader_url: str, raw_path: str, body: bytes, session: SessionKey) -> None:
        """An internal request.

        Args:
            method: POST or PUT.
            leader_url: the worker's REST address.
            raw_path: encoded path, for instance ``/connectors/NAME/tasks``.
            body: JSON.
            session: the key to sign with.

        Raises:
            RestError: the other worker's refusal, or 500 if it can't be reached.
        """
        headers = [("Content-Type", "application/json"), *signature_headers(session, body).items()]
        status, _, answered = await self._call(method, URL(leader_url.rstrip("/") + raw_path, encoded=True), headers, body)
        if status >= 300:
            raise RestError(status, answered.decode(errors="replace"))

    async def _call(self, method: str, url: URL, headers: list[tuple[str, str]],
                    body: bytes) -> tuple[int, dict[str, str], bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout, auto_decompress=True,
                                                  skip_auto_headers=("User-Agent", "Content-Type"))
        if url.scheme == "https" and self._tls is None:
            self._tls = self._make_tls()
        try:
            async with self._session.request(method, url, headers=headers, data=body or None, ssl=self._tls or True,
                                             allow_redirects=False) as response:
                return response.status, dict(response.headers), await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise RestError(500, _IO_ERROR + (str(error) or type(error).__name__)) from error
