"""The REST server: listeners, their TLS, and the address for other workers."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

from connectors.errors import ConfigInvalid
from worker.kafka.tls import server_context
from worker.rest.app import create_app
from worker.rest.security.files import FileWatch, read_fingerprints, watch_files
from worker.rest.security.guard import Guard
from worker.rest.settings import format_address, tls_files

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from worker.console.java_cluster import JavaConsole
    from worker.rest.connect.internal import InternalHerder
    from worker.rest.facade import Herder
    from worker.rest.routes import Part
    from worker.rest.settings import RestListener, RestSettings

_log = logging.getLogger("worker.rest")
#: Requests under way get this long to end when the server stops.
_SHUTDOWN_S = 5.0
#: aiohttp answers longer request lines, longer header fields and more of them with 400.
_LONGEST_LINE = 8190
_MOST_FIELDS = 128


@dataclass(slots=True)
class _Bound:
    """A listener that is open: its sockets, of which ``servers`` serve copies, so that they can be replaced."""

    listener: RestListener
    sockets: list[socket.socket]
    serves: web.Server
    tls: Mapping[str, str]
    servers: list[asyncio.AbstractServer] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.sockets[0].getsockname()[1])


class RestServer:
    """Serves the REST API on all listeners.

    Started before the herder is: until the herder is ready, requests are answered with 503 and ``/health`` says why.
    Certificates, users, tokens and keys are read again when their files change.

    Args:
        herder: the cluster as REST sees it.
        settings: the REST layer's settings.
        workers: answers signed requests of other workers.
        guard: says who may ask; None for the one that ``settings`` describe.
        java: the Java cluster to serve the console for; None: this is a worker.
    """

    def __init__(
        self,
        herder: Herder,
        settings: RestSettings,
        *,
        workers: InternalHerder | None = None,
        guard: Guard | None = None,
        java: JavaConsole | None = None,
    ) -> None:
        self._herder = herder
        self._settings = settings
        self._workers = workers
        self._guard = guard or Guard(settings, workers, lambda: self.advertised_url)
        self._java = java
        self._runners: list[web.AppRunner] = []
        self._bound: list[_Bound] = []
        self._admin_bound: list[_Bound] = []
        self._watching: asyncio.Task[None] | None = None

    @property
    def advertised_url(self) -> str:
        """Return the address for other workers, without a slash at its end; known once the server has started."""
        return advertised_address(self._settings, [(bound.listener, bound.port) for bound in self._bound])

    @property
    def worker_id(self) -> str:
        """Return ``host:port`` of that address, as it is in statuses."""
        return self.advertised_url.partition("://")[2]

    @property
    def urls(self) -> list[str]:
        """Where it listens, with the ports that were taken."""
        return [_bound_address(bound) for bound in self._bound]

    @property
    def admin_urls(self) -> list[str]:
        """Where ``/admin`` is served: addresses of its own, those of the rest, or none."""
        if self._settings.admin_listeners is None:
            return self.urls
        return [_bound_address(bound) for bound in self._admin_bound]

    async def start(self) -> None:
        """Bind and serve all listeners.

        Raises:
            ConfigInvalid: an address can't be bound, or a certificate, users or keys can't be read; nothing is left open.
        """
        admin = self._settings.admin_listeners
        watches = self._file_watches()
        try:
            await self._guard.start()
            known_files = await asyncio.to_thread(read_fingerprints, watches)
            # First, so that the other listeners can tell from their first request where they are.
            if admin:
                await self._serve_listeners("admin", admin, self._settings.admin_tls, self._admin_bound)
            await self._serve_listeners(
                "all" if admin is None else "main", self._settings.listeners, self._settings.tls, self._bound
            )
        except BaseException:
            await self.stop()
            raise
        self._watching = asyncio.create_task(watch_files(watches, known_files), name="rest-files")
        for warning in find_exposed(self._settings):
            _log.warning("%s", warning)
        _log.info("REST API listens on %s, advertised as %s", ", ".join(self.urls), self.advertised_url)

    async def stop(self) -> None:
        """Stop to listen; requests under way get a few seconds to end."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for bound in (*self._bound, *self._admin_bound):
            for server in bound.servers:
                server.close()
            for listening_socket in bound.sockets:
                listening_socket.close()
        runners, self._runners = self._runners, []
        for runner in runners:
            await runner.cleanup()
        await self._guard.close()

    async def _serve_listeners(
        self, part: Part, listeners: tuple[RestListener, ...], tls: Mapping[str, str], bound: list[_Bound]
    ) -> None:
        app = create_app(
            self._herder,
            self._settings,
            self._guard,
            workers=self._workers,
            part=part,
            admin_ports=lambda: [bound_listener.port for bound_listener in self._admin_bound],
            java=self._java,
        )
        runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN_S,
            keepalive_timeout=self._settings.limits.idle_s,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
            max_headers=_MOST_FIELDS,
        )
        await runner.setup()
        self._runners.append(runner)
        server = runner.server
        if server is None:
            raise RuntimeError("the runner has been set up")
        for listener in listeners:
            try:
                bound_listener = _Bound(listener, await _bind_sockets(listener), server, tls)
                bound.append(bound_listener)
                await self._open_listener(bound_listener)
            except OSError as error:
                raise ConfigInvalid(f"listeners: can't listen on {listener}: {error}") from error

    async def _open_listener(self, bound: _Bound) -> None:
        """Serve a listener's sockets, with its current certificates; open connections keep the old ones."""
        context: ssl.SSLContext | None = None
        if bound.listener.scheme == "https":
            context = await asyncio.to_thread(server_context, bound.tls)
        limits = self._settings.limits
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            return bound.serves() if len(bound.serves.connections) < limits.connections else _RefusedConnection()

        opened: list[asyncio.AbstractServer] = []
        try:
            for bound_socket in bound.sockets:
                copy = bound_socket.dup()
                opened.append(
                    await loop.create_server(
                        connection,
                        sock=copy,
                        ssl=context,
                        ssl_handshake_timeout=limits.idle_s if context is not None else None,
                    )
                )
        except OSError:
            for server in opened:
                server.close()
            raise
        old, bound.servers = bound.servers, opened
        for server in old:
            server.close()

    def _file_watches(self) -> list[FileWatch]:
        authenticator = self._guard.authenticator

        async def reopen(bounds: list[_Bound]) -> None:
            for bound in bounds:
                if bound.listener.scheme == "https":
                    await self._open_listener(bound)

        return [
            FileWatch(
                "users and tokens of REST", lambda: authenticator.identity_files, authenticator.reload_identities
            ),
            FileWatch("keys of JSON web tokens", lambda: authenticator.key_files, authenticator.reload_keys),
            FileWatch("certificates of listeners", lambda: tls_files(self._settings.tls), lambda: reopen(self._bound)),
            FileWatch(
                "certificates of admin.listeners",
                lambda: tls_files(self._settings.admin_tls),
                lambda: reopen(self._admin_bound),
            ),
        ]


class _RefusedConnection(asyncio.Protocol):
    """A connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()


def _bound_address(bound: _Bound) -> str:
    return format_address(bound.listener.scheme, bound.listener.host or "127.0.0.1", bound.port)


def find_exposed(settings: RestSettings) -> list[str]:
    """Warnings about listeners that let in whom they should not, or show what they should not. Pure."""
    listeners = (*settings.listeners, *(settings.admin_listeners or ()))
    outside = [listener for listener in listeners if not _is_loopback(listener.host)]
    if not outside:
        return []
    names = ", ".join(map(str, outside))
    if not settings.auth.on:
        asks = settings.tls.get("ssl.client.auth", "none") == "required" and all(
            listener.scheme == "https" for listener in outside
        )
        warning = (
            f"Whoever can reach {names} may create connectors, which run with this worker's rights: set "
            "rest.authentication, or listen on 127.0.0.1 only"
        )
        return [] if asks else [warning]
    plain = [str(listener) for listener in outside if listener.scheme == "http"]
    return [f"Passwords and tokens for {', '.join(plain)} go over the network as they are: use https"] if plain else []


def _is_loopback(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")


async def _bind_sockets(listener: RestListener) -> list[socket.socket]:
    """Sockets for all addresses of a listener's host, on one port."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(
        listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    port = listener.port
    try:
        for family, _, _, _, where in dict.fromkeys(addresses):
            bound_socket = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(bound_socket)
            bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound_socket.bind((where[0], port, *where[2:]))
            port = bound_socket.getsockname()[1]
    except OSError:
        for bound_socket in sockets:
            bound_socket.close()
        raise
    return sockets


def advertised_address(settings: RestSettings, bound: list[tuple[RestListener, int]]) -> str:
    """The address for other workers: http where there is one unless ``rest.advertised.listener`` says otherwise. Pure."""
    if not bound:
        raise RuntimeError("the REST server has not been started")
    schemes = {listener.scheme for listener, _ in bound}
    scheme = settings.advertised_scheme or ("http" if "http" in schemes else "https")
    listener, port = next((item for item in bound if item[0].scheme == scheme), bound[0])
    host = listener.host if listener.host not in {"", "0.0.0.0", "::"} else ""  # noqa: S104 - compared, not bound
    return format_address(
        scheme, settings.advertised_host or host or socket.getfqdn(), settings.advertised_port or port
    )
