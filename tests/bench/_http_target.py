"""A server that takes requests and answers 200, for ``millrace bench sinks``: its first line of output is its port."""

from __future__ import annotations

import asyncio

from aiohttp import web


async def _take(request: web.Request) -> web.Response:
    await request.read()
    return web.Response()


async def serve() -> None:
    """Serve until the process ends."""
    application = web.Application(client_max_size=1 << 30)
    application.router.add_route("*", "/{path:.*}", _take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
