"""``millrace console --connect URL``: the console for a cluster of Java workers, by Kafka Connect's REST API.

It is the console of the workers: the same pages, and the same handlers over a ``JavaCluster`` instead of a herder. Calls that
Kafka Connect has are passed on. What only Millrace has (rates, snapshots, flows, ...) is left out.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import orjson
from aiohttp import hdrs, web
from yarl import URL

from connectors.errors import ConfigInvalid
from offsets.records import ReportedStatus
from worker.console.rows import build_row
from worker.rest.call import empty_answer
from worker.rest.client import PASSWORD, TOKEN, USER, auth_headers, trust_context
from worker.rest.facade import RestError
from worker.rest.routes import ROUTES
from worker.rest.routing import RequiredAccess
from worker.rest.security.access import ANYBODY
from worker.rest.security.guard import Guard
from worker.rest.server import RestServer
from worker.rest.settings import RestListener, RestSettings
from worker.secrets.masking import mask_config, mask_patterns, scrub_all

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from worker.rest.call import RestCall
    from worker.rest.facade import Herder
    from worker.rest.routing import RestRoute
    from worker.rest.security.access import Principal

_T = TypeVar("_T")
_HOST: Final = "127.0.0.1"
_OWN_NAMES: Final = frozenset(("127.0.0.1", "localhost", "::1"))
#: Seconds between two looks at the cluster while a page is open.
_EVERY_S: Final = 2.0
#: A Java worker gives up on a request after 90 s.
_DEADLINE: Final = aiohttp.ClientTimeout(total=100, sock_connect=5)
#: For looks at the cluster: a page waits for them.
_LOOK_DEADLINE: Final = aiohttp.ClientTimeout(total=20, sock_connect=5)
#: Seconds for which a version is believed; a page waits for the answer.
_VERSION_S: Final = 30.0
_VERSION_DEADLINE: Final = aiohttp.ClientTimeout(total=5, sock_connect=3)
_VERSION: Final = re.compile(r"(?P<major>\d+)\.(?P<minor>\d+)\b(?:.*-(?P<confluent>ccs|ce))?")
#: Major version of Confluent's -> the major version of Kafka in it, and what is added to the minor one.
_CONFLUENT: Final = {5: (2, 0), 6: (2, 6), 7: (3, 0), 8: (4, 0)}
#: The first major version of Kafka that has what every page needs.
_OLDEST: Final = 2
#: What the pages use -> the first version of Kafka that has it.
_SINCE: Final = {
    "used-topics": (2, 5),
    "restart-with-tasks": (3, 0),
    "declarations": (3, 2),
    "stop": (3, 5),
    "offsets": (3, 5),
    "edit-offsets": (3, 6),
}
_CAUSED_BY: Final = "\nCaused by: "
_LARGEST: Final = 256 << 20
_SAFE_METHODS: Final = frozenset((hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS))
_CONSOLE: Final = frozenset(
    (
        "getConsole",
        "getConsoleFile",
        "getSession",
        "listConnectorRows",
        "getShownConfig",
        "patchShownConfig",
        "checkChange",
        "watchConnectors",
    )
)


@dataclass(frozen=True, slots=True)
class JavaConsole:
    """The console of a Java cluster, as a server serves it.

    Attributes:
        url: the cluster's REST address.
        routes: what is answered.
        lacks: asks what its version lacks, see ``lacking``.
        every_s: seconds between two looks at the cluster.
    """

    url: str
    routes: Sequence[RestRoute]
    lacks: Callable[[], Awaitable[Sequence[str]]]
    every_s: float = _EVERY_S


def lacking(version: str) -> list[str]:
    """Return the features used by the pages that a version of Kafka Connect (from ``GET /``) does not have. Pure."""
    numbers = _VERSION.match(version)
    if numbers is None:
        return []
    major, minor = int(numbers["major"]), int(numbers["minor"])
    if major < _OLDEST:
        return []  # it counts otherwise, as Millrace does
    if numbers["confluent"] and major in _CONFLUENT:
        # Confluent counts its own versions: 7.5.0-ccs is Kafka 3.5.
        major, minor = _CONFLUENT[major][0], minor + _CONFLUENT[major][1]
    return [name for name, since in _SINCE.items() if (major, minor) < since]


def java_row(name: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """A connector's row from what ``GET /connectors?expand=status&expand=info`` says of it. Pure."""
    info, status = answer.get("info") or {}, answer.get("status") or {}
    instance = status.get("connector")
    return build_row(
        name,
        info.get("config") or {},
        status.get("type") or info.get("type") or "unknown",
        None if instance is None else _read_status(instance),
        [_read_status(task) for task in status.get("tasks") or ()],
        None,  # Java workers report rates to JMX alone
    )


def _read_status(answer: Mapping[str, Any]) -> ReportedStatus:
    trace = answer.get("trace") or ""
    # The first line of a trace in Java mostly says no more than that something has failed.
    cause = trace.rpartition(_CAUSED_BY)[2]
    return ReportedStatus(answer["state"], answer.get("worker_id") or "", 0, mask_patterns(cause) or None)


class JavaCluster:
    """A Java cluster as the console's handlers ask for it: of ``Herder`` what they need. For one event loop; ``close`` it.

    Args:
        url: the REST address of one of its workers, or of the proxy before them.
        environment: says with which credentials, and whom to trust, see ``worker.rest.client``.

    Raises:
        ConfigInvalid: the address or the environment can't be right.
    """

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        try:
            address = urlsplit(url)
            usable = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ConfigInvalid(f"--connect {url}: an address such as http://host:8083 is needed")
        if address.username is not None or address.query or address.fragment:
            raise ConfigInvalid(
                f"--connect takes an address alone, without user and query; set {USER} and {PASSWORD}, or {TOKEN}"
            )
        self.url = url.rstrip("/")
        self._headers = {**auth_headers(environment), hdrs.ACCEPT: "application/json"}
        self._tls = trust_context(environment) if address.scheme == "https" else True
        self._session: aiohttp.ClientSession | None = None
        self._lacks: list[str] = []
        self._lacks_until = 0.0
        # Handlers ask a herder's subjects; here one object answers for all of them.
        self.admin = self.console = self.offsets = self.topics = self

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()

    def ready(self) -> bool:
        """Always: the cluster itself says what it can't do yet."""
        return True

    async def root(self, deadline: aiohttp.ClientTimeout = _LOOK_DEADLINE) -> dict[str, Any]:
        """``GET /``."""
        return await self._ask_decoded("GET", "/", kind=dict, deadline=deadline)

    async def lacks(self) -> list[str]:
        """Return the missing features, see ``lacking``; the last known ones while the cluster does not answer."""
        now = time.monotonic()
        if now >= self._lacks_until:
            self._lacks_until = now + _VERSION_S
            with suppress(RestError):
                self._lacks = lacking(str((await self.root(_VERSION_DEADLINE)).get("version")))
        return self._lacks

    async def connector_rows(self) -> list[dict[str, Any]]:
        """All connectors in short, by name; without rates."""
        connectors = await self._ask_decoded("GET", "/connectors?expand=status&expand=info", kind=dict)
        return [java_row(name, connectors[name]) for name in sorted(connectors)]

    async def connector_info(self, name: str) -> dict[str, Any]:
        """``GET /connectors/{connector}``."""
        return await self._ask_decoded("GET", _connector_path(name), kind=dict)

    async def connector_status(self, name: str) -> dict[str, Any]:
        """``GET /connectors/{connector}/status``."""
        status: dict[str, Any] = scrub_all(
            await self._ask_decoded("GET", _connector_path(name, "/status"), kind=dict), mask_patterns
        )
        return status

    async def patch_connector_config(self, name: str, patch: Mapping[str, str | None]) -> dict[str, Any]:
        """Change some properties; null takes one away."""
        try:
            return await self._ask_decoded("PATCH", _connector_path(name, "/config"), patch, kind=dict)
        except RestError as error:
            if error.status != 405:
                raise
        # Before Kafka 3.8 there is no PATCH.
        before = (await self.connector_info(name))["config"]
        merged = {key: value for key, value in {**before, **patch}.items() if value is not None}
        return await self._ask_decoded("PUT", _connector_path(name, "/config"), merged, kind=dict)

    async def plugin_config(self, plugin: str, version: str | None) -> list[dict[str, Any]]:
        """``GET /connector-plugins/{plugin}/config``."""
        query = "" if version is None else f"?{urlencode({'version': version})}"
        if "declarations" in await self.lacks():
            infos = await self.validate(plugin, {"connector.class": plugin, "name": "declarations"})
            return [config_info["definition"] for config_info in infos.get("configs", ())]
        return await self._ask_decoded("GET", f"/connector-plugins/{quote(plugin, safe='')}/config{query}", kind=list)

    async def validate(self, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
        """``PUT /connector-plugins/{plugin}/config/validate``, without values of secrets."""
        path = f"/connector-plugins/{quote(plugin, safe='')}/config/validate"
        infos: dict[str, Any] = await self._ask_decoded("PUT", path, config, kind=dict, deadline=_DEADLINE)
        for config_info in infos.get("configs", ()):
            value = config_info["value"]
            if value.get("value") is not None:
                value["value"] = mask_config({value["name"]: value["value"]}, ())[value["name"]]
        return infos

    async def forward(self, call: RestCall) -> web.Response:
        """Pass a call of Kafka Connect's on, and its answer back."""
        request = call.request
        status, media, data = await self._send_call(request.method, request.rel_url.raw_path_qs, await request.read())
        response = web.Response(status=status, body=data, content_type=media) if data else empty_answer(status)
        if status == 409 and b"rebalance" in data:
            response.headers[hdrs.RETRY_AFTER] = "1"
        return response

    async def _ask_decoded(
        self,
        method: str,
        path: str,
        body: Mapping[str, str | None] | None = None,
        *,
        kind: type[_T],
        deadline: aiohttp.ClientTimeout = _LOOK_DEADLINE,
    ) -> _T:
        """The decoded answer to a call.

        Raises:
            RestError: an error, or not what Kafka Connect answers.
        """
        status, _, data = await self._send_call(method, path, b"" if body is None else orjson.dumps(body), deadline)
        try:
            decoded = orjson.loads(data)
        except ValueError:
            decoded = None
        if status >= 400:
            said = decoded.get("message") if isinstance(decoded, dict) else None
            raise RestError(status, said or f"{self.url}{path} answers with {status}")
        if not isinstance(decoded, kind):
            raise RestError(502, f"{self.url}{path} does not answer as Kafka Connect does since version 2.3")
        return decoded

    async def _send_call(
        self, method: str, path: str, body: bytes, deadline: aiohttp.ClientTimeout = _DEADLINE
    ) -> tuple[int, str, bytes]:
        """Status, content type and body of the answer.

        Raises:
            RestError: 503: it does not answer; 502: the cluster wants other credentials, or is elsewhere.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, skip_auto_headers=(hdrs.CONTENT_TYPE,))
        try:
            async with self._session.request(
                method,
                URL(self.url + path, encoded=True),
                data=body or None,
                headers={hdrs.CONTENT_TYPE: "application/json"} if body else None,
                ssl=self._tls,
                timeout=deadline,
                allow_redirects=False,
            ) as response:
                data = b"".join([part async for part in _read_limited(response, self.url)])
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(getattr(error, "os_error", error)) or "it takes too long"
            raise RestError(503, f"{self.url} does not answer: {reason}") from error
        if response.status == 401:
            # Passed on, the page would ask its user to log in, here.
            raise RestError(
                502,
                f"{self.url} refuses the credentials of this console (401); "
                f"set {USER} and {PASSWORD}, or {TOKEN}, and start it again",
            )
        if 300 <= response.status < 400:
            where = response.headers.get(hdrs.LOCATION, "elsewhere")
            raise RestError(502, f"{self.url} sends this console to {where}; start it with that address")
        return response.status, response.content_type, data


async def _read_limited(response: aiohttp.ClientResponse, url: str) -> Any:
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > _LARGEST:
            raise RestError(502, f"{url} answers with more than {_LARGEST >> 20} MB, which this console does not keep")
        yield part


def _connector_path(connector: str, suffix: str = "") -> str:
    return f"/connectors/{quote(connector, safe='')}{suffix}"


def served_routes(cluster: JavaCluster) -> list[RestRoute]:
    """Kafka Connect's operations, passed on, and those of the console that a Java cluster can answer. Pure."""
    return [
        route if route.operation.id in _CONSOLE else replace(route, handler=cluster.forward)
        for route in ROUTES["all"]
        if route.operation.id in _CONSOLE or (route.operation.kafka and route.access is not RequiredAccess.INTERNAL)
    ]


class LocalGuard(Guard):
    """Admits whoever reaches a port on loopback, but not pages of other origins in a browser on this machine.

    The console has credentials of its own for the cluster: what a browser sends for another page must not use them.
    """

    async def admit(self, request: web.Request, route: RestRoute | None, connector: str | None) -> Principal:
        """Find out whether the request comes from the console's own page, or from no page.

        Raises:
            RestError: 403.
        """
        del route, connector
        try:
            host = urlsplit(f"//{request.host}").hostname
        except ValueError:
            host = None
        # A page may give its own host's name this address; then it is of one origin with the console.
        if host not in _OWN_NAMES:
            raise RestError(403, "This console is for this machine: open it as http://localhost, or through a tunnel")
        if request.method not in _SAFE_METHODS:
            self._check_origin(request)
        return ANYBODY


async def open_console(cluster: JavaCluster, port: int) -> RestServer:
    """A server of the console on loopback, which listens; ``stop`` it. Port 0 takes a free one.

    Raises:
        ConfigInvalid: the port is taken.
    """
    settings = replace(RestSettings.from_properties({}), listeners=(RestListener("http", _HOST, port),))
    server = RestServer(
        cast("Herder", cluster),
        settings,
        guard=LocalGuard(settings, None, lambda: cluster.url),
        java=JavaConsole(cluster.url, served_routes(cluster), cluster.lacks),
    )
    try:
        await server.start()
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{error}; --port names another port, --port 0 takes a free one") from error
    return server


async def _serve_console(url: str, port: int) -> None:
    cluster = JavaCluster(url, os.environ)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = await open_console(cluster, port)
    try:
        _print_line(f"console of {cluster.url}: {server.urls[0]}/console (Ctrl+C ends it)")
        try:
            _print_line(f"Kafka Connect {(await cluster.root()).get('version')}")
        except RestError as error:
            _print_line(f"{error}; the console waits for it")
        await stopped.wait()
    finally:
        await server.stop()
        await cluster.close()


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run_console(options: argparse.Namespace) -> int:
    """Serve the console until SIGINT or SIGTERM."""
    asyncio.run(_serve_console(options.connect, options.port))
    return 0
