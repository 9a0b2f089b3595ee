"""Requests from one worker to another: those of clients that only the leader can answer, and the workers' own."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import aiohttp
import orjson
from aiohttp import web
from yarl import URL

from connectors.errors import ConfigInvalid
from worker.rest.call import empty_answer, optional_flag
from worker.rest.facade import REBALANCE_TEXT, RestError
from worker.rest.routing import RequiredAccess
from worker.rest.security.access import Grant, Principal
from worker.rest.security.files import LOOK_S, read_fingerprint
from worker.rest.security.signing import (
    ALGORITHM_HEADER,
    SIGNATURE_HEADER,
    STALE_HEADER,
    WORKER_HEADER,
    SignedRequest,
    sign_request,
    signature_headers,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Sequence

    from multidict import CIMultiDictProxy

    from worker.rest.security.files import Fingerprint
    from worker.rest.security.signing import SigningKey

#: Headers of a client's request that the leader needs; whatever else there is stays here, above all what describes this
#: connection or would pass for a worker's signature.
_FORWARDED: Final = frozenset(
    {
        "accept",
        "content-type",
        "x-request-id",
        "traceparent",
        "tracestate",
        SIGNATURE_HEADER.lower(),
        ALGORITHM_HEADER.lower(),
    }
)
#: A request whose signature did not fit is signed again so often: the session key may have changed on the way.
_SIGNATURES: Final = 4
_SIGN_AGAIN_S: Final = 0.25
#: Who asks when a worker does so for itself.
_WORKER: Final = Principal("worker", "worker", (Grant(RequiredAccess.ADMIN),))
_log = logging.getLogger("worker.rest")
_IO_ERROR: Final = "IO Error trying to forward REST request: "


def next_hop(forward: bool | None) -> bool:  # noqa: FBT001 - a tri-state value, not a switch
    """Return the ``forward`` parameter for the next worker, from the one that this worker received: two hops at most.

    Raises:
        RestError: 409: this was the last one.
    """
    if forward is False:
        raise RestError(409, REBALANCE_TEXT)
    return forward is None


def target_url(leader_url: str, raw_path: str, query: Iterable[tuple[str, str]], *, forward: bool) -> URL:
    """Where to send a request: the same path and query, with the new ``forward``."""
    pairs = [(name, value) for name, value in query if name != "forward"]
    pairs.append(("forward", "true" if forward else "false"))
    return URL(leader_url.rstrip("/") + raw_path + "?" + urlencode(pairs), encoded=True)


class WorkerClient:
    """Calls other workers. Must be used on one event loop; ``close`` it at the end.

    Args:
        timeout_s: deadline of a call.
        make_tls: makes the TLS context for an https address; called in a thread.
        files: the files it reads; when they change, it is called again.
    """

    def __init__(self, timeout_s: float, make_tls: Callable[[], ssl.SSLContext], files: Sequence[str] = ()) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._make_tls = make_tls
        self._files = tuple(files)
        self._tls: ssl.SSLContext | None = None
        self._tls_files: Fingerprint = ()
        self._tls_looked = 0.0
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()

    async def forward(
        self,
        request: web.Request,
        leader_url: str | None,
        principal: Principal,
        session_key: Callable[[], SigningKey | None],
    ) -> web.Response:
        """Ask the leader, and answer with its answer.

        The caller was authenticated here: the leader gets the caller's name, signed. Without authentication, the leader gets
        the client's own credentials and decides.

        Args:
            request: the client's.
            leader_url: the leader's REST address, or None.
            principal: who asks.
            session_key: the cluster's current key.

        Raises:
            RestError: 409 without a leader or after two hops, 500 if it can't be reached, 503 if it takes no signature of this
                worker.
        """
        forward = next_hop(optional_flag(request, "forward"))
        if leader_url is None:
            raise RestError(409, REBALANCE_TEXT)
        url = target_url(leader_url, request.rel_url.raw_path, request.query.items(), forward=forward)
        headers = [(name, value) for name, value in request.headers.items() if name.lower() in _FORWARDED]
        body = await request.read()
        if principal.method == "none":
            headers += [("Authorization", value) for value in request.headers.getall("Authorization", [])]
            status, answered, body = await self._send_call(request.method, url, headers, body)
        else:
            status, answered, body = await self._call_for(
                principal,
                session_key,
                SignedRequest(request.method, url.raw_path_qs, leader_url.rstrip("/")),
                url,
                headers,
                body,
            )
        if not body and status != 200:
            return empty_answer(status)
        response = web.Response(body=body, status=status)
        response.headers["Content-Type"] = answered.get("Content-Type", "application/json")
        for name in ("WWW-Authenticate", "Retry-After"):
            if name in answered:
                response.headers[name] = answered[name]
        if "Location" in answered:
            # The client knows this worker, not the leader.
            response.headers["Location"] = (
                f"{request.scheme}://{request.host}{URL(answered['Location'], encoded=True).raw_path}"
            )
        return response

    async def _call_for(
        self,
        principal: Principal,
        session_key: Callable[[], SigningKey | None],
        asked: SignedRequest,
        url: URL,
        headers: Sequence[tuple[str, str]],
        body: bytes,
    ) -> tuple[int, CIMultiDictProxy[str], bytes]:
        """Call for somebody; where the other worker has another session key at the moment, some times."""
        for left in reversed(range(_SIGNATURES)):
            key = session_key()
            if key is None:
                raise RestError(
                    503,
                    "This worker has not read the session key yet, with which it signs for the leader",
                    {"Retry-After": "1"},
                )
            signed = sign_request(key, asked, body, principal, time.time())
            status, answered, data = await self._send_call(asked.method, url, [*headers, (WORKER_HEADER, signed)], body)
            if status != 403 or STALE_HEADER not in answered:
                return status, answered, data
            if left:
                await asyncio.sleep(_SIGN_AGAIN_S)
        raise RestError(
            503,
            "The leader does not accept this worker's signature: do both read the same config topic, and are "
            "their clocks right? " + data.decode(errors="replace"),
            {"Retry-After": "1"},
        )

    async def send_signed(self, method: str, leader_url: str, raw_path: str, body: bytes, session: SigningKey) -> None:
        """An internal request.

        Args:
            method: POST or PUT.
            leader_url: the worker's REST address.
            raw_path: encoded path, for instance ``/connectors/NAME/tasks``.
            body: JSON.
            session: the key to sign with.

        Raises:
            RestError: the other worker's refusal, 500 if it can't be reached, 503 if it has another key at the moment.
        """
        url = URL(leader_url.rstrip("/") + raw_path, encoded=True)
        asked = SignedRequest(method, url.raw_path_qs, leader_url.rstrip("/"))
        headers = [
            ("Content-Type", "application/json"),
            *signature_headers(session, body).items(),
            (WORKER_HEADER, sign_request(session, asked, body, _WORKER, time.time())),
        ]
        status, headers_answered, answered = await self._send_call(method, url, headers, body)
        if status == 403 and STALE_HEADER in headers_answered:
            raise RestError(503, _read_message(answered))
        if status >= 300:
            raise RestError(status, _read_message(answered))

    async def ask_signed(self, worker_url: str, raw_path: str, session: SigningKey) -> bytes:
        """Answer of another worker to a GET of this one.

        Args:
            worker_url: the worker's REST address.
            raw_path: encoded path.
            session: the key to sign with.

        Raises:
            RestError: its refusal, or 500 if it can't be reached.
        """
        url = URL(worker_url.rstrip("/") + raw_path, encoded=True)
        signed = sign_request(
            session, SignedRequest("GET", url.raw_path_qs, worker_url.rstrip("/")), b"", _WORKER, time.time()
        )
        status, _, answered = await self._send_call("GET", url, [(WORKER_HEADER, signed)], b"")
        if status != 200:
            raise RestError(status, _read_message(answered))
        return answered

    async def _send_call(
        self, method: str, url: URL, headers: Sequence[tuple[str, str]], body: bytes
    ) -> tuple[int, CIMultiDictProxy[str], bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=self._timeout, auto_decompress=True, skip_auto_headers=("User-Agent", "Content-Type")
            )
        if url.scheme == "https":
            await self._prepare_tls()
        try:
            async with self._session.request(
                method, url, headers=headers, data=body or None, ssl=self._tls or True, allow_redirects=False
            ) as response:
                return response.status, response.headers, await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise RestError(500, _IO_ERROR + (str(error) or type(error).__name__)) from error

    async def _prepare_tls(self) -> None:
        """Create the TLS context, and recreate it when its files have changed."""
        now = time.monotonic()
        if self._tls is not None and (not self._files or now - self._tls_looked < LOOK_S):
            return
        self._tls_looked = now
        current = await asyncio.to_thread(read_fingerprint, self._files)
        if self._tls is not None and current == self._tls_files:
            return
        try:
            self._tls = await asyncio.to_thread(self._make_tls)
        except ConfigInvalid as error:
            if self._tls is None:
                raise RestError(500, _IO_ERROR + str(error)) from error
            _log.error(
                "The certificates for requests to other workers can't be read again; the old ones stay: %s", error
            )
        self._tls_files = current


def _read_message(answered: bytes) -> str:
    """The message of a refusal. Pure."""
    try:
        return str(orjson.loads(answered)["message"])
    except (ValueError, KeyError, TypeError):
        return answered.decode(errors="replace")
