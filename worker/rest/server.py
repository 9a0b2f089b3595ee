"""The REST server: listeners, their TLS, and the address other workers are told."""
from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from aiohttp import web

from connectors.errors import ConfigInvalid
from worker.rest.app import create_app
from worker.rest.settings import address
from worker.rest.tls import server_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from worker.rest.app import Part
    from worker.rest.facade import Herder
    from worker.rest.internal import InternalHerder
    from worker.rest.settings import Listener, RestSettings

_log = logging.getLogger("worker.rest")
#: Requests under way get this long to end when the server stops.
_SHUTDOWN_S = 5.0


class RestServer:
    """Serves the REST API on all listeners.

    Started before the herder is: until the herder is ready, requests are answered with 503 and ``/health`` says why.

    Args:
        herder: the cluster as REST sees it.
        settings: the REST layer's settings.
        workers: answers signed requests of other workers.
    """

    def __init__(self, herder: Herder, settings: RestSettings, *, workers: InternalHerder | None = None) -> None:
        self._herder = herder
        self._settings = settings
        self._workers = workers
        self._runners: list[web.AppRunner] = []
        self._bound: list[tuple[Listener, int]] = []
        self._admin_bound: list[tuple[Listener, int]] = []

    @property
    def advertised_url(self) -> str:
        """The address other workers are told, without a slash at its end; known once the server has started."""
        return advertised(self._settings, self._bound)

    @property
    def worker_id(self) -> str:
        """``host:port`` of that address, as it stands in statuses."""
        return self.advertised_url.partition("://")[2]

    @property
    def urls(self) -> list[str]:
        """Where it listens, with the ports that were taken."""
        return [address(listener.scheme, listener.host or "127.0.0.1", port) for listener, port in self._bound]

    @property
    def admin_urls(self) -> list[str]:
        """Where ``/admin`` is served: addresses of its own, those of the rest, or none."""
        if self._settings.admin_listeners is None:
            return self.urls
        return [address(listener.scheme, listener.host or "127.0.0.1", port) for listener, port in self._admin_bound]

    async def start(self) -> None:
        """Bind and serve all listeners.

        Raises:
            ConfigInvalid: an address can't be bound, or a certificate can't be read; nothing is left open.
        """
        admin = self._settings.admin_listeners
        try:
            self._bound = await self._serve("all" if admin is None else "main", self._settings.listeners, self._settings.tls)
            if admin:
                self._admin_bound = await self._serve("admin", admin, self._settings.admin_tls)
        except BaseException:
            await self.stop()
            raise
        _log.info("REST API listens on %s, advertised as %s", ", ".join(self.urls), self.advertised_url)

    async def stop(self) -> None:
        """Stop to listen; requests under way get a few seconds to end."""
        runners, self._runners = self._runners, []
        for runner in runners:
            await runner.cleanup()

    async def _serve(self, part: Part, listeners: tuple[Listener, ...], tls: Mapping[str, str]) -> list[tuple[Listener, int]]:
        app = create_app(self._herder, self._settings, workers=self._workers, part=part)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        self._runners.append(runner)
        bound: list[tuple[Listener, int]] = []
        for listener in listeners:
            context: ssl.SSLContext | None = None
            if listener.scheme == "https":
                context = await asyncio.to_thread(server_context, tls)
            try:
                sockets = await _bind(listener)
                for each in sockets:
                    await web.SockSite(runner, each, ssl_context=context).start()
            except OSError as error:
                raise ConfigInvalid(f"listeners: can't listen on {listener}: {error}") from error
            bound.append((listener, sockets[0].getsockname()[1]))
        return bound


async def _bind(listener: Listener) -> list[socket.socket]:
    """Sockets for all addresses of a listener's host, on one port."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    port = listener.port
    try:
        for family, _, _, _, where in dict.fromkeys(found):
            each = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind((where[0], port, *where[2:]))
            port = each.getsockname()[1]
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def advertised(settings: RestSettings, bound: list[tuple[Listener, int]]) -> str:
    """The address for other workers: http where there is one unless ``rest.advertised.listener`` says otherwise. Pure."""
    if not bound:
        raise RuntimeError("the REST server has not been started")
    schemes = {listener.scheme for listener, _ in bound}
    scheme = settings.advertised_scheme or ("http" if "http" in schemes else "https")
    listener, port = next((item for item in bound if item[0].scheme == scheme), bound[0])
    host = listener.host if listener.host not in {"", "0.0.0.0", "::"} else ""  # noqa: S104 - compared, not bound
    return address(scheme, settings.advertised_host or host or socket.getfqdn(), settings.advertised_port or port)
