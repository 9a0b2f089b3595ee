"""The REST API as an aiohttp application: from a request to its handler, and from every outcome to an answer."""
from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Final, Literal

from aiohttp import hdrs, web

from connectors.errors import ConfigInvalid, MillraceError
from worker.rest import (
    admin,
    connectors,
    health,
    internal,
    loggers,
    metrics,
    offsets,
    plugins,
    root,
    snapshots,
    tasks,
    tls,
    topics,
)
from worker.rest.call import Call, answer, failure
from worker.rest.cors import cors_headers
from worker.rest.facade import NotLeader, RestError
from worker.rest.forwarding import WorkerClient
from worker.rest.routing import REASONS, Resource, Route, Router, check_media, route_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from worker.rest.facade import Herder
    from worker.rest.internal import InternalHerder
    from worker.rest.settings import RestSettings

#: What a listener serves: everything, everything but ``/admin``, or ``/admin`` alone.
Part = Literal["all", "main", "admin"]

_MAIN: Final = (*root.ROUTES, *health.ROUTES, *metrics.ROUTES, *connectors.ROUTES, *tasks.ROUTES, *offsets.ROUTES,
                *topics.ROUTES, *snapshots.ROUTES, *plugins.ROUTES, *internal.ROUTES)
_ADMIN: Final = (*loggers.ROUTES, *admin.ROUTES)
_ROUTES: Final[dict[Part, tuple[Route, ...]]] = {"all": (*_MAIN, *_ADMIN), "main": _MAIN, "admin": _ADMIN}
_STARTING: Final = "This worker is still reading the cluster's state; try again in a moment"

_log = logging.getLogger("worker.rest")
_access = logging.getLogger("worker.rest.access")


def create_app(herder: Herder, settings: RestSettings, *, workers: InternalHerder | None = None,
               part: Part = "all") -> web.Application:
    """The application for one kind of listener.

    Args:
        herder: the cluster as REST sees it.
        settings: the REST layer's settings.
        workers: answers signed requests of other workers.
        part: what to serve.
    """
    app = web.Application(client_max_size=settings.max_body)
    client = WorkerClient(settings.request_timeout_s, lambda: tls.client_context(settings.tls))
    dispatcher = _Dispatcher(herder, settings, workers, Router(_ROUTES[part]), client)
    app.router.add_route(hdrs.METH_ANY, r"/{path:[\s\S]*}", dispatcher.handle)
    app.on_response_prepare.append(dispatcher.finish)

    async def close_client(_: web.Application) -> AsyncIterator[None]:
        yield
        await client.close()

    app.cleanup_ctx.append(close_client)
    return app


@dataclass(frozen=True, slots=True)
class _Dispatcher:
    """Takes every request of an application.

    Routing is not aiohttp's: names with encoded slashes, HEAD, OPTIONS, 405, 406 and 415 are answered as Kafka Connect does.
    """

    herder: Herder
    settings: RestSettings
    workers: InternalHerder | None
    router: Router
    client: WorkerClient

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request; never raises but for cancellation."""
        started = time.perf_counter()
        status = 0
        try:
            try:
                async with asyncio.timeout(self.settings.request_timeout_s):
                    response = await self._answer(request)
            except Exception as error:  # noqa: BLE001 - every failure becomes an answer
                response = self._failure(request, error)
            status = response.status
            return response
        finally:
            # A status of 0: the worker stopped before there was an answer. Queries are left out: a client may put anything in.
            _access.info("%s %s %d %.1f ms from %s", request.method, request.rel_url.raw_path, status,
                         (time.perf_counter() - started) * 1000, request.remote)

    async def finish(self, request: web.Request, response: web.StreamResponse) -> None:
        """Put the headers on that every answer has."""
        response.headers[hdrs.SERVER] = "Millrace"
        response.headers.update(cors_headers(self.settings, request.method, request.headers))
        for rule in self.settings.headers:
            value = rule.value
            if rule.action.endswith("Date"):
                value = formatdate(time.time() + int(rule.value) / 1000, usegmt=True)
            if rule.action.startswith("add"):
                response.headers.add(rule.name, value)
            else:
                response.headers[rule.name] = value

    async def _answer(self, request: web.Request) -> web.Response:
        resource, parameters = self.router.find(request.rel_url.raw_path)
        if request.method == hdrs.METH_OPTIONS:
            return _options(resource, request.headers.get(hdrs.ACCEPT))
        try:
            route = route_for(resource, request.method)
        except RestError:
            response = failure(405, REASONS[405])
            response.headers[hdrs.ALLOW] = ",".join(resource.allowed)
            return response
        check_media(route, request.headers.get(hdrs.ACCEPT), request.headers.get(hdrs.CONTENT_TYPE),
                    has_body=request.body_exists)
        if route.when_ready and not self.herder.ready():
            response = failure(503, _STARTING)
            response.headers[hdrs.RETRY_AFTER] = "1"
            return response
        try:
            return await route.handler(Call(request, parameters, self.herder, self.workers, self.settings))
        except NotLeader as error:
            return await self.client.forward(request, error.leader_url)

    def _failure(self, request: web.Request, error: Exception) -> web.Response:
        if isinstance(error, RestError):
            return failure(error.status, str(error))
        if isinstance(error, web.HTTPRequestEntityTooLarge):
            return failure(413, f"The request body is larger than rest.request.max.bytes ({self.settings.max_body} bytes)")
        if isinstance(error, TimeoutError):
            return failure(500, "Request timed out")
        if isinstance(error, ConfigInvalid):
            return failure(400, str(error))
        _log.error("%s %s failed", request.method, request.rel_url.raw_path, exc_info=error)
        if isinstance(error, MillraceError):
            return failure(500, str(error))
        # The text of an unforeseen error may quote a configuration with its secrets: it stays in the log.
        return failure(500, f"Internal error ({type(error).__name__}); the worker's log has the details")


def _options(resource: Resource, accept: str | None) -> web.Response:
    """What Jersey answers: the methods, in ``Allow`` and, for those who take plain text, in the body."""
    methods = resource.allowed
    wanted = (accept or "*/*").partition(",")[0].partition(";")[0].strip()
    if wanted in {"*/*", "text/*", "text/plain"}:
        response = web.Response(text=", ".join(methods))
        response.headers[hdrs.CONTENT_TYPE] = "text/plain"
    else:
        response = answer(None)
        response.body = b""
        response.headers[hdrs.CONTENT_TYPE] = wanted
    response.headers[hdrs.ALLOW] = ",".join(methods)
    return response
