"""A port that asks for a login before a server over HTTP that has no logins."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web
from yarl import URL

from worker.converters.registry.auth import basic_header

if TYPE_CHECKING:
    from collections.abc import Iterator

_SESSION = web.AppKey("session", aiohttp.ClientSession)
_DROPPED = ("content-length", "transfer-encoding", "connection")


@contextlib.contextmanager
def login_door(target: int, user: str, password: str) -> Iterator[int]:
    """Passes requests with the login on to the port `target` of this machine, answers 401 to others; gives its port."""
    loop = asyncio.new_event_loop()
    allowed = basic_header(user, password)

    async def passed(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != allowed:
            return web.json_response({"error": "Unauthorized"}, status=401)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in ("host", "connection")}
        url = f"http://127.0.0.1:{target}{request.raw_path}"
        async with request.app[_SESSION].request(
            request.method, URL(url, encoded=True), data=await request.read(), headers=headers
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _DROPPED}
            return web.Response(status=answer.status, body=await answer.read(), headers=kept)

    async def begin() -> tuple[web.AppRunner, int]:
        app = web.Application(client_max_size=1 << 30)
        app[_SESSION] = aiohttp.ClientSession(auto_decompress=False)
        app.router.add_route("*", "/{path:.*}", passed)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, int(runner.addresses[0][1])

    async def end(runner: web.AppRunner) -> None:
        await runner.app[_SESSION].close()
        await runner.cleanup()

    runner, port = loop.run_until_complete(begin())
    thread = threading.Thread(target=loop.run_forever, daemon=True, name="login door")
    thread.start()
    try:
        yield port
    finally:
        asyncio.run_coroutine_threadsafe(end(runner), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
