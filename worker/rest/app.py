"""The REST API as an aiohttp application: from a request to its handler, and from every outcome to an answer."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web

from connectors.errors import ConfigInvalid, MillraceError
from worker.console.assets import Assets
from worker.console.feed import RowFeed
from worker.console.resources.watching import collect_samples
from worker.console.routes import FEATURES
from worker.console.sessions import PROOF_HEADER
from worker.console.trail import Samples
from worker.kafka.tls import client_context
from worker.rest.call import Console, RestCall, error_answer, json_answer
from worker.rest.facade import NotLeader, RestError
from worker.rest.forwarding import WorkerClient
from worker.rest.routes import ROUTES
from worker.rest.routing import REASONS, RequiredAccess, Resource, Router, check_media, route_for
from worker.rest.security.cors import cors_headers, is_preflight
from worker.rest.security.signing import WORKER_HEADER
from worker.rest.settings import tls_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from worker.console.java_cluster import JavaConsole
    from worker.rest.connect.internal import InternalHerder
    from worker.rest.facade import Herder
    from worker.rest.routes import Part
    from worker.rest.routing import RestRoute
    from worker.rest.security.guard import Guard
    from worker.rest.security.signing import SigningKey
    from worker.rest.settings import RestSettings

_STARTING: Final = "This worker is still reading the cluster's state; retry in a moment"

_log = logging.getLogger("worker.rest")
_access = logging.getLogger("worker.rest.access")


def create_app(
    herder: Herder,
    settings: RestSettings,
    guard: Guard,
    *,
    workers: InternalHerder | None = None,
    part: Part = "all",
    admin_ports: Callable[[], Sequence[int]] = tuple,
    java: JavaConsole | None = None,
) -> web.Application:
    """The application for one kind of listener.

    Args:
        herder: the cluster as REST sees it.
        settings: the REST layer's settings.
        guard: says who may ask, for all listeners together.
        workers: answers signed requests of other workers.
        part: what to serve.
        admin_ports: the ports of ``admin.listeners``, once they listen.
        java: the Java cluster to serve the console for; None: this is a worker.
    """
    app = web.Application(client_max_size=settings.max_body)
    client = WorkerClient(settings.request_timeout_s, lambda: client_context(settings.tls), tls_files(settings.tls))
    ways = [name for name, on in (("basic", settings.auth.basic), ("bearer", settings.auth.bearer)) if on]
    feed = RowFeed(herder) if java is None else RowFeed(herder, java.every_s)
    console = Console(
        Assets(ways),
        feed,
        guard.sessions,
        guard.trail,
        Samples(),
        FEATURES if java is None else (),
        None if java is None else java.url,
        None if java is None else java.lacks,
    )
    router = Router(ROUTES[part] if java is None else java.routes)
    dispatcher = _Dispatcher(herder, settings, guard, workers, router, client, admin_ports, console)
    app.router.add_route(hdrs.METH_ANY, r"/{path:[\s\S]*}", dispatcher.handle)
    app.on_response_prepare.append(dispatcher.finish)

    async def close_client(_: web.Application) -> AsyncIterator[None]:
        yield
        await client.close()

    async def close_streams(_: web.Application) -> None:
        await console.feed.close()

    async def take_samples(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(collect_samples(herder, console.samples), name="console-samples")
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    app.cleanup_ctx.append(close_client)
    if part != "admin" and java is None:
        app.cleanup_ctx.append(take_samples)
    app.on_shutdown.append(close_streams)
    return app


@dataclass(frozen=True, slots=True)
class _RequestTarget:
    """The target of a request; None where there is no such path, or no such operation on it."""

    resource: Resource | None
    parameters: Mapping[str, str]
    route: RestRoute | None


@dataclass(frozen=True, slots=True)
class _Dispatcher:
    """Takes every request of an application.

    Routing is not aiohttp's: names with encoded slashes, HEAD, OPTIONS, 405, 406 and 415 are answered as Kafka Connect does.
    """

    herder: Herder
    settings: RestSettings
    guard: Guard
    workers: InternalHerder | None
    router: Router
    client: WorkerClient
    admin_ports: Callable[[], Sequence[int]]
    console: Console

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request; never raises but for cancellation."""
        started = time.perf_counter()
        status = 0
        destination = self._find_destination(request)
        try:
            try:
                async with asyncio.timeout(self.settings.request_timeout_s):
                    response: web.StreamResponse = await self._answer_limited(request, destination)
            except Exception as error:  # noqa: BLE001 - every failure becomes an answer
                response = self._answer_failure(request, error)
            status = response.status
            return response
        finally:
            self.guard.audit(request, destination.route, status)
            # A status of 0: the worker stopped before there was an answer. Queries are left out: a client may put anything in.
            _access.info(
                "%s %s %d %.1f ms from %s",
                request.method,
                request.rel_url.raw_path,
                status,
                (time.perf_counter() - started) * 1000,
                request.remote,
            )

    async def finish(self, request: web.Request, response: web.StreamResponse) -> None:
        """Put the headers on that every answer has."""
        response.headers[hdrs.SERVER] = "Millrace"
        response.headers["X-Content-Type-Options"] = "nosniff"
        if self.settings.auth.on:
            response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
        response.headers.update(cors_headers(self.settings, request.method, request.headers))
        for rule in self.settings.headers:
            value = rule.value
            if rule.action.endswith("Date"):
                value = formatdate(time.time() + int(rule.value) / 1000, usegmt=True)
            if rule.action.startswith("add"):
                response.headers.add(rule.name, value)
            else:
                response.headers[rule.name] = value

    def _find_destination(self, request: web.Request) -> _RequestTarget:
        try:
            resource, parameters = self.router.find(request.rel_url.raw_path)
        except RestError:
            return _RequestTarget(None, {}, None)
        try:
            return _RequestTarget(resource, parameters, route_for(resource, request.method))
        except RestError:
            return _RequestTarget(resource, parameters, None)

    async def _answer_limited(self, request: web.Request, destination: _RequestTarget) -> web.StreamResponse:
        counted = WORKER_HEADER not in request.headers and (
            destination.route is None or destination.route.access is not RequiredAccess.PUBLIC
        )
        self.guard.enter(counted=counted)
        try:
            return await self._answer_request(request, destination)
        finally:
            self.guard.leave(counted=counted)

    async def _answer_request(self, request: web.Request, destination: _RequestTarget) -> web.StreamResponse:
        resource, route = destination.resource, destination.route
        if resource is not None and is_preflight(request.method, request.headers):
            return _answer_options(resource, request.headers.get(hdrs.ACCEPT))
        # Before anything is said of what there is.
        principal = await self.guard.admit(request, route, destination.parameters.get("connector"))
        if resource is None:
            raise RestError(404, REASONS[404])
        if request.method == hdrs.METH_OPTIONS:
            return _answer_options(resource, request.headers.get(hdrs.ACCEPT))
        if route is None:
            raise RestError(405, REASONS[405], {hdrs.ALLOW: ",".join(resource.allowed)})
        check_media(
            route,
            request.headers.get(hdrs.ACCEPT),
            request.headers.get(hdrs.CONTENT_TYPE),
            has_body=request.body_exists,
        )
        if route.when_ready and not self.herder.admin.ready():
            raise RestError(503, _STARTING, {hdrs.RETRY_AFTER: "1"})
        # An unused body is not kept: callers with read access only, or without any, could fill the memory with it.
        if request.body_exists and route.operation.body is not None:
            await self.guard.body(request)
        try:
            return await route.handler(
                RestCall(
                    request,
                    destination.parameters,
                    self.herder,
                    self.workers,
                    self.settings,
                    principal,
                    self.admin_ports,
                    self.console,
                )
            )
        except NotLeader as error:
            return await self.client.forward(request, error.leader_url, principal, self._session_key)

    def _session_key(self) -> SigningKey | None:
        return None if self.workers is None else self.workers.session_key()

    def _answer_failure(self, request: web.Request, error: Exception) -> web.Response:
        if isinstance(error, RestError):
            response = error_answer(error.status, str(error))
            response.headers.update(error.headers)
            if PROOF_HEADER in request.headers or request.rel_url.raw_path.startswith("/console/"):
                # The console has a form of its own: a browser must not ask for a password.
                response.headers.popall(hdrs.WWW_AUTHENTICATE, None)
            if error.status == 408:
                response.force_close()
            return response
        if isinstance(error, web.HTTPRequestEntityTooLarge):
            return error_answer(
                413, f"The request body is larger than rest.request.max.bytes ({self.settings.max_body} bytes)"
            )
        if isinstance(error, TimeoutError):
            return error_answer(500, "Request timed out")
        if isinstance(error, ConfigInvalid):
            return error_answer(400, str(error))
        _log.error("%s %s failed", request.method, request.rel_url.raw_path, exc_info=error)
        if isinstance(error, MillraceError):
            return error_answer(500, str(error))
        # The text of an unforeseen error may quote a configuration with its secrets: it stays in the log.
        return error_answer(500, f"Internal error ({type(error).__name__}); the worker's log has the details")


def _answer_options(resource: Resource, accept: str | None) -> web.Response:
    """Answer like Jersey: the methods in ``Allow`` and, for clients that accept plain text, in the body."""
    methods = resource.allowed
    accepted = (accept or "*/*").partition(",")[0].partition(";")[0].strip()
    if accepted in {"*/*", "text/*", "text/plain"}:
        response = web.Response(text=", ".join(methods))
        response.headers[hdrs.CONTENT_TYPE] = "text/plain"
    else:
        response = json_answer(None)
        response.body = b""
        response.headers[hdrs.CONTENT_TYPE] = accepted
    response.headers[hdrs.ALLOW] = ",".join(methods)
    return response
