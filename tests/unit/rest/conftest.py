"""A REST server over the in-memory herder, and a client that sends bytes as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from yarl import URL

from worker.rest.server import RestServer
from worker.rest.settings import RestSettings

from .memory_herder import MemoryHerder

if TYPE_CHECKING:
    from collections.abc import Mapping


class Reply:
    """An answer."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.raw = body

    @property
    def json(self) -> Any:
        import orjson

        return orjson.loads(self.raw)

    @property
    def error(self) -> str:
        """The message of an error body, which must be Kafka Connect's."""
        body = self.json
        assert set(body) == {"error_code", "message"}
        assert body["error_code"] == self.status
        return str(body["message"])


class Rest:
    """A client of one server.

    Attributes:
        url: the server's address.
        admin_url: the address of its ``/admin``; "" where that is served nowhere.
    """

    def __init__(self, url: str, session: aiohttp.ClientSession, admin_url: str = "") -> None:
        self.url = url
        self.admin_url = admin_url
        self._session = session

    @property
    def admin(self) -> Rest:
        """A client of the server's ``/admin``."""
        return Rest(self.admin_url, self._session)

    async def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send a request; the path goes out as it is, a body that is not bytes as JSON."""
        sent = dict(headers or {})
        data: bytes | None = None
        if body is not None:
            import orjson

            data = body if isinstance(body, bytes) else orjson.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        async with self._session.request(
            method, URL(self.url + path, encoded=True), data=data, headers=sent, allow_redirects=False
        ) as response:
            return Reply(response.status, response.headers, await response.read())


Start = Callable[..., Coroutine[Any, Any, tuple[Rest, MemoryHerder]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts servers: ``rest, herder = await start(**settings)``."""
    servers: list[RestServer] = []
    async with aiohttp.ClientSession(skip_auto_headers=("Content-Type",)) as session:

        async def start_server(**properties: str) -> tuple[Rest, MemoryHerder]:
            herder = MemoryHerder()
            overrides = {name.replace("_", "."): value for name, value in properties.items()}
            settings = RestSettings.from_properties({"listeners": "http://127.0.0.1:0", **overrides})
            server = RestServer(herder, settings, workers=herder)
            await server.start()
            servers.append(server)
            return Rest(server.urls[0], session, "".join(server.admin_urls[:1])), herder

        yield start_server
        for server in servers:
            await server.stop()


@pytest.fixture
async def rest(start: Start) -> tuple[Rest, MemoryHerder]:
    """One server, and its herder."""
    return await start()
