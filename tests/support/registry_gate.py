"""A small reverse proxy in front of a schema registry that asks for credentials, as a real one behind a gateway does."""

from __future__ import annotations

import base64
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from aiohttp import ClientSession, web

if TYPE_CHECKING:
    import ssl


@dataclass(slots=True)
class RegistryGate:
    """Forwards to ``target``; use it as an asynchronous context manager.

    Attributes:
        target: root of the real registry.
        users: names and passwords that it accepts; none: no basic authentication.
        clients: ids and secrets of OAuth clients; ``url`` + ``/token`` gives them tokens.
        tokens: fixed tokens that it accepts.
        life_s: how long fetched tokens live.
        tls: serves https with this context.
        status: answers everything with this status instead.
        forward: acts as a forward proxy: takes requests for any address.
        seen: method, path and headers of each request.
        granted: how many tokens it gave out.
    """

    target: str
    users: dict[str, str] = field(default_factory=dict)
    clients: dict[str, str] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    life_s: float = 3600.0
    tls: ssl.SSLContext | None = None
    status: int = 0
    forward: bool = False
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    granted: int = 0
    _expiry: dict[str, float] = field(default_factory=dict)
    _session: ClientSession | None = None
    _runner: web.AppRunner | None = None
    port: int = 0

    @property
    def url(self) -> str:
        """Its own root."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._session = ClientSession()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    def revoke(self) -> None:
        """Forget all tokens that were given out."""
        self._expiry.clear()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/token":
            return await self._token(request)
        self.seen.append((request.method, request.raw_path, dict(request.headers)))
        if self.status:
            return web.json_response({"error_code": self.status, "message": "as the test wants it"}, status=self.status)
        if not self._allowed(request.headers.get("Authorization", "")):
            return web.json_response({"error_code": 401, "message": "Unauthorized"}, status=401)
        return await self._forward(request)

    def _allowed(self, authorization: str) -> bool:
        if not (self.users or self.clients or self.tokens):
            return True
        kind, _, content = authorization.partition(" ")
        if kind == "Basic":
            name, _, password = base64.b64decode(content).decode().partition(":")
            return self.users.get(name) == password
        return kind == "Bearer" and (content in self.tokens or self._expiry.get(content, 0.0) > time.monotonic())

    async def _token(self, request: web.Request) -> web.Response:
        name, _, secret = (
            base64.b64decode(request.headers.get("Authorization", "").partition(" ")[2]).decode().partition(":")
        )
        form = await request.post()
        if self.clients.get(name) != secret or form.get("grant_type") != "client_credentials":
            return web.json_response({"error": "invalid_client"}, status=401)
        self.granted += 1
        token = secrets.token_hex(8)
        self._expiry[token] = time.monotonic() + self.life_s
        answer: dict[str, Any] = {"access_token": token, "token_type": "Bearer", "expires_in": self.life_s}
        return web.json_response(answer)

    async def _forward(self, request: web.Request) -> web.Response:
        if self._session is None:
            raise RuntimeError("the gate is not open")
        base = urlsplit(self.target)
        root = f"{base.scheme}://{base.netloc}" if self.forward else self.target.rstrip("/")
        headers = {name: value for name, value in request.headers.items() if name in ("Accept", "Content-Type")}
        path = request.rel_url.raw_path_qs
        async with self._session.request(
            request.method, root + path, data=await request.read(), headers=headers
        ) as answer:
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
