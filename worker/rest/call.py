"""The input of a handler, and its ways to answer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson
from aiohttp import web

from worker.rest.facade import RestError
from worker.rest.routing import REASONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from worker.console.assets import Assets
    from worker.console.feed import RowFeed
    from worker.console.sessions import Sessions
    from worker.console.trail import Samples, Trail
    from worker.rest.connect.internal import InternalHerder
    from worker.rest.facade import Herder
    from worker.rest.security.access import Principal
    from worker.rest.settings import RestSettings

_INTEGER: Final = re.compile(r"[+-]?\d{1,10}\Z", re.ASCII)
#: Left as they are in a path, as Java's ``UriBuilder`` does; ``/`` is encoded, so that the address can be used.
_PATH_SAFE: Final = "!$&'()*+,;=:@~"


@dataclass(frozen=True, slots=True)
class Console:
    """State that the handlers of the console share.

    Attributes:
        assets: the pages' files.
        feed: the news for open pages.
        sessions: who has logged in.
        trail: the last changes.
        samples: the last numbers.
        features: what there is to show beyond Kafka Connect's REST API.
        cluster: the REST address of the Java cluster that is shown; None for the own one.
        lacks: asks what that cluster's version lacks of Kafka Connect's REST API.
    """

    assets: Assets
    feed: RowFeed
    sessions: Sessions
    trail: Trail
    samples: Samples
    features: Sequence[str]
    cluster: str | None = None
    lacks: Callable[[], Awaitable[Sequence[str]]] | None = None


@dataclass(frozen=True, slots=True)
class RestCall:
    """One request on its way to its handler.

    Attributes:
        request: aiohttp's request.
        parameters: decoded parameters of the path.
        herder: the cluster.
        workers: what signed requests between workers ask for; None where there are none.
        settings: the REST layer's settings.
        principal: who asks.
        admin_ports: the ports of ``admin.listeners``, once they listen.
        console: state that the handlers of the console share.
    """

    request: web.Request
    parameters: Mapping[str, str]
    herder: Herder
    workers: InternalHerder | None
    settings: RestSettings
    principal: Principal
    admin_ports: Callable[[], Sequence[int]]
    console: Console

    @property
    def connector(self) -> str:
        """The connector named in the path."""
        return self.parameters["connector"]

    @property
    def task(self) -> int:
        """The task named in the path.

        Raises:
            RestError: 404: not a 32-bit number.
        """
        raw = self.parameters["task"]
        if not _INTEGER.match(raw) or not -(1 << 31) <= int(raw) < 1 << 31:
            raise RestError(404, REASONS[404])
        return int(raw)

    def check_class(self, config: Mapping[str, str | None]) -> None:
        """Refuse a connector that ``connector.class.allow`` leaves out; a configuration without a class passes.

        Raises:
            RestError: 403.
        """
        name = config.get("connector.class")
        if name is not None and self.settings.classes and name not in self.settings.classes:
            raise RestError(
                403,
                f"connector.class {name} is not among those that connector.class.allow of this cluster's "
                f"workers names: {', '.join(self.settings.classes)}",
            )

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean query parameter as Java reads it: nothing is the default, everything but ``true`` is false."""
        value = self.request.query.get(name)
        return value.lower() == "true" if value else default

    def location(self, connector: str) -> str:
        """The absolute address of a connector, as this client reaches this worker."""
        return f"{self.request.scheme}://{self.request.host}/connectors/{quote(connector, safe=_PATH_SAFE)}"


def optional_flag(request: web.Request, name: str) -> bool | None:
    """A boolean query parameter, or None if it is not given."""
    value = request.query.get(name)
    return None if value is None else value.lower() == "true"


def json_answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A JSON answer."""
    return web.Response(body=encode_body(body), status=status, content_type="application/json", headers=headers)


def empty_answer(status: int) -> web.Response:
    """An answer without a body."""
    response = web.Response(status=status)
    if status != 204:
        response.headers["Content-Length"] = "0"
    # aiohttp would name a content type for a body that isn't there.
    response.headers.popall("Content-Type", None)
    return response


def error_answer(status: int, message: str) -> web.Response:
    """Kafka Connect's error body."""
    return json_answer({"error_code": status, "message": message}, status)


def encode_body(body: Any) -> bytes:
    """``body`` as compact JSON in UTF-8; offsets may hold integers beyond 64 bits, which orjson refuses."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body, separators=(",", ":"), ensure_ascii=True).encode()
