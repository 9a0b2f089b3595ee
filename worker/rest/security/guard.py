"""The checks before every handler: authentication, access and rate limits."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from worker.console.sessions import PROOF_HEADER, Sessions
from worker.console.trail import SUBJECT, Trail, is_change
from worker.rest.facade import RestError
from worker.rest.routing import RequiredAccess
from worker.rest.security.access import ANYBODY, Principal, check_access, needed_access
from worker.rest.security.audit import AUDIT, quote_text
from worker.rest.security.auth import Authenticator
from worker.rest.security.limits import TokenBuckets, caller_address
from worker.rest.security.signing import UNSIGNED, WORKER_HEADER, Nonces, SignedRequest, read_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.console.sessions import LoginSession
    from worker.rest.connect.internal import InternalHerder
    from worker.rest.routing import RestRoute
    from worker.rest.settings import RestSettings

#: Credentials that a browser sends automatically, also for pages of other origins.
_AMBIENT: Final = frozenset(("basic", "certificate"))
_PRINCIPAL: Final = web.RequestKey("principal", Principal)
_CHANGING: Final = frozenset((RequiredAccess.OPERATE, RequiredAccess.ADMIN))


class Guard:
    """Admits requests, for all listeners of a worker. For one event loop; ``start`` it, ``close`` it at the end.

    Args:
        settings: the REST layer's settings.
        workers: knows the session key; None where there are no other workers.
        advertised: the address that other workers use.
    """

    def __init__(self, settings: RestSettings, workers: InternalHerder | None, advertised: Callable[[], str]) -> None:
        self._settings = settings
        self._workers = workers
        self._advertised = advertised
        self.authenticator = Authenticator(settings.auth)
        self.sessions = Sessions(settings.auth.session_s, advertised)
        self._rate = TokenBuckets(settings.limits.rate, settings.limits.burst)
        self._nonces = Nonces(time.time())
        self._active = 0
        #: What the console shows of the audit log.
        self.trail = Trail()

    async def start(self) -> None:
        """Read users, tokens and keys.

        Raises:
            ConfigInvalid: a file can't be used.
        """
        await self.authenticator.start()

    async def close(self) -> None:
        """Release what it holds."""
        await self.authenticator.close()

    def enter(self, *, counted: bool) -> None:
        """A request begins; ``leave`` must follow, with the same ``counted``.

        Raises:
            RestError: 503: too many are worked on.
        """
        if counted and self._active >= self._settings.limits.concurrent:
            raise RestError(
                503,
                "This worker is busy with as many requests as rest.max.concurrent.requests allows "
                f"({self._settings.limits.concurrent})",
                {hdrs.RETRY_AFTER: "1"},
            )
        self._active += counted

    def leave(self, *, counted: bool) -> None:
        """A request ends."""
        self._active -= counted

    async def admit(self, request: web.Request, route: RestRoute | None, connector: str | None) -> Principal:
        """Authenticate the caller and check its access.

        Args:
            request: the request; its body is read only where a worker signed for it.
            route: the operation, or None if it does not exist: only callers with access to something get a 404.
            connector: the connector named in the path.

        Raises:
            RestError: 401, 403, 429 or 503.
        """
        signed = request.headers.getall(WORKER_HEADER, [])
        if signed:
            return await self._by_worker(request, signed, route, connector)
        if route is not None and route.access is RequiredAccess.INTERNAL:
            if self._settings.auth.on:
                # As its handler would, but before a body of somebody unknown is read.
                self._spend_request(f"address {caller_address(request.remote)}")
                raise RestError(400, UNSIGNED)
            return ANYBODY  # refused by its handler, in Kafka Connect's words
        needed = (
            RequiredAccess.READ
            if route is None
            else needed_access(route, metrics_public=self._settings.auth.metrics_public)
        )
        address = caller_address(request.remote)
        if needed is RequiredAccess.PUBLIC:
            return ANYBODY
        if not self._settings.auth.on:
            self._spend_request(f"address {address}")
            return ANYBODY
        principal, session = await self._identify_caller(request, address)
        request[_PRINCIPAL] = principal
        self._spend_request(f"user {principal.name}")
        if route is not None:
            check_access(principal, route, needed, connector)
            if needed in _CHANGING and principal.method in _AMBIENT:
                self._check_origin(request)
            elif session is not None and route.method != "GET":
                _check_proof(request, session)
        elif not principal.may_for_some(needed):
            raise RestError(403, f"{principal.name} has no role")
        return principal

    async def _identify_caller(self, request: web.Request, address: str) -> tuple[Principal, LoginSession | None]:
        """The caller: by the credentials of the request, else by those that a session of the console was opened with."""
        authorization = request.headers.getall(hdrs.AUTHORIZATION, [])
        session = None if authorization else self.sessions.find(request.cookies)
        try:
            principal = await self.authenticator.identify(
                authorization if session is None else [session.authorization], client_certificate(request), address
            )
        except RestError as error:
            self._spend_request(f"address {address}")
            if session is not None and error.status == 401:
                self.sessions.end(session)
            raise
        if session is None:
            return principal, None
        return Principal(principal.name, "session", principal.grants), session

    async def _by_worker(
        self, request: web.Request, signed: list[str], route: RestRoute | None, connector: str | None
    ) -> Principal:
        if self._workers is None or len(signed) > 1:
            raise RestError(
                403,
                "This worker takes no requests from other workers"
                if self._workers is None
                else "There is more than one signature of a worker",
            )
        asked = SignedRequest(request.method, request.rel_url.raw_path_qs, self._advertised())
        now = time.time()
        said = read_request(signed[0], asked, self._workers.session_key(), self._workers.signature_algorithms(), now)
        # Checked before the body is read: only other workers of the cluster can make this worker read one.
        self._nonces.take(said.nonce, said.at, now)
        if not hmac.compare_digest(hashlib.sha256(await self.body(request)).digest(), said.body):
            raise RestError(403, "The signature of the request between workers is for another body")
        request[_PRINCIPAL] = said.principal
        if route is not None and route.access not in {RequiredAccess.INTERNAL, RequiredAccess.PUBLIC}:
            check_access(
                said.principal,
                route,
                needed_access(route, metrics_public=self._settings.auth.metrics_public),
                connector,
            )
        return said.principal

    async def body(self, request: web.Request) -> bytes:
        """The request's body.

        Raises:
            RestError: 408: it did not come in time; 400: it is not what its headers say.
        """
        try:
            async with asyncio.timeout(self._settings.limits.body_s):
                return await request.read()
        except web.RequestPayloadError:
            raise RestError(400, "The request's body is not encoded as its Content-Encoding says") from None
        except TimeoutError:
            raise RestError(408, "The request's body did not come within rest.body.timeout.ms") from None

    def _spend_request(self, caller: str) -> None:
        wait = self._rate.take(caller, time.monotonic())
        if wait:
            raise RestError(
                429,
                f"More requests came than rest.rate.limit.requests.per.second allows ({self._settings.limits.rate:g})",
                {hdrs.RETRY_AFTER: str(int(wait) + 1)},
            )

    def _check_origin(self, request: web.Request) -> None:
        """Refuse pages of another origin, which must not use credentials that a browser sends automatically."""
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is None and request.headers.get("Sec-Fetch-Site") not in {"cross-site", "same-site"}:
            return
        allowed = any(fnmatchcase(origin or "", pattern) for pattern in self._settings.origins if pattern != "*")
        if not allowed and (origin is None or urlsplit(origin).netloc != request.host):
            raise RestError(
                403,
                f"Pages of the origin {origin or 'of the request'} may not change anything here; "
                "access.control.allow.origin names those that may",
            )

    def audit(self, request: web.Request, route: RestRoute | None, status: int) -> None:
        """Write down who changed what, or might not."""
        changing = route is not None and (
            route.access in _CHANGING or (route.access is RequiredAccess.INTERNAL and route.method != hdrs.METH_GET)
        )
        principal: Principal | None = request.get(_PRINCIPAL)
        if principal is None and self._settings.auth.on:
            return  # not let in: wrong credentials are in the log already
        if not changing and status != 403:
            return
        principal = principal or ANYBODY
        # What another worker has forwarded is remembered there.
        if (
            "forward" not in request.query
            and WORKER_HEADER not in request.headers
            and (status == 403 or (route is not None and is_change(request.method, route.path)))
        ):
            self.trail.add(
                time.time(),
                principal.name,
                principal.method,
                request.remote or "",
                request.method,
                request.rel_url.raw_path,
                status,
                request.get(SUBJECT),
            )
        # Names and paths come from outside: quoted, they can't make a line of their own.
        AUDIT.info(
            "user=%s auth=%s address=%s worker=%s method=%s path=%s status=%d",
            quote_text(principal.name),
            principal.method,
            request.remote,
            "yes" if WORKER_HEADER in request.headers else "no",
            quote_text(request.method),
            quote_text(request.rel_url.raw_path),
            status,
        )


def _check_proof(request: web.Request, session: LoginSession) -> None:
    """A page of another origin can let a browser send a session's cookie, but not this header."""
    if not hmac.compare_digest(request.headers.get(PROOF_HEADER, "").encode(), session.proof.encode()):
        raise RestError(
            403,
            f"In a session of the console, changes need the header {PROOF_HEADER}; GET /console/session says its value",
        )


def client_certificate(request: web.Request) -> bytes | None:
    """The certificate (DER) that the TLS client has shown and the handshake has verified, or None."""
    connection = None if request.transport is None else request.transport.get_extra_info("ssl_object")
    shown: bytes | None = None if connection is None else connection.getpeercert(binary_form=True)
    return shown
