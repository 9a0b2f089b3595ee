"""An HTTP server for shippers: NDJSON, Elasticsearch's bulk API, OTLP, Splunk's event collector.

A request is answered once Kafka has its lines.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from connectors.logs.network.bodies import (
    BulkItem,
    bulk_answer,
    read_array,
    read_bulk,
    read_events,
    read_ndjson,
    read_raw,
)
from connectors.logs.network.encodings import BodyDecoder
from connectors.logs.network.lines import TooManyLines, clean_text
from connectors.logs.network.options import CONNECTIONS, FORMAT, REQUEST_LIMIT, TOKENS
from connectors.logs.network.otlp import RequestInvalid, decode_json, decode_protobuf, log_lines
from connectors.logs.network.room import Room, RoomLease

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from aiohttp.typedefs import Handler

    from connectors.api import TaskContext
    from connectors.logs.network.intake import Intake
    from connectors.logs.network.lines import LineLimits, NetworkLine
    from connectors.logs.network.options import ListenAddress
    from connectors.logs.rules.records import LineOrigin

#: How long a request may take until Kafka has its lines, seconds; then its sender is asked to send it once more.
ANSWER_S: Final = 60.0
#: How long a stop waits for requests, seconds.
_STOP_S: Final = 1.0
#: Bytes from which on a body is read in a thread.
_LARGE: Final = 64 * 1024
#: The version of Elasticsearch whose clients are known to be content with the answers.
_ELASTIC: Final = "8.17.0"
_PRODUCT: Final = {"X-Elastic-Product": "Elasticsearch"}


class HttpServer:
    """Serves one address.

    Args:
        address: where.
        intake: where lines go.
        context: of the task.
        limits: of lines.
        make_origin: the address of a sender -> the origin of what it says nothing about.
        refused: called with a reason for each request or connection that is refused.
        room: for the bodies of requests.
    """

    def __init__(
        self,
        address: ListenAddress,
        intake: Intake,
        context: TaskContext,
        limits: LineLimits,
        make_origin: Callable[[str], LineOrigin],
        refused: Callable[[str], None],
        room: Room,
    ) -> None:
        self._room = room
        self._address = address
        self._intake = intake
        self._config = context.config
        self._log = context.log
        self._limits = limits
        self._make_origin = make_origin
        self._refused = refused
        self._recognise = context.config[FORMAT] == "auto"
        self._server: asyncio.AbstractServer | None = None
        self._runner = web.AppRunner(
            self._make_app(),
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_STOP_S,
            keepalive_timeout=75,
            # It takes bodies without their end, and those of encodings that it does not know as they are.
            auto_decompress=False,
            logger=_RequestLog(context.log, self._note_malformed),
        )

    async def start(self, context: ssl.SSLContext | None) -> None:
        """Listen.

        Raises:
            OSError: the address can't be bound.
        """
        await self._runner.setup()
        serves = self._runner.server
        if serves is None:
            raise RuntimeError("the runner has been set up")
        max_connections = self._config[CONNECTIONS]

        def connection() -> asyncio.Protocol:
            if len(serves.connections) < max_connections:
                return serves()
            self._refused("connections")
            return _RefuseSender()

        self._server = await asyncio.get_running_loop().create_server(
            connection, self._address.host, self._address.port, ssl=context
        )

    async def stop(self) -> None:
        """Close the address and all connections."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _note_malformed(self, error: HttpProcessingError) -> None:
        self._refused("form")
        reason = " ".join(error.message.split())
        self._log.info("%s: what a sender wrote is no HTTP request: %s", self._address.text, reason)

    def _make_app(self) -> web.Application:
        app = web.Application(client_max_size=self._config[REQUEST_LIMIT], middlewares=[self._check_token])
        app.add_routes(
            [
                web.get("/", self._show_version),
                web.get("/_license", self._show_license),
                *(web.route(method, "/_bulk", self._take_bulk) for method in ("POST", "PUT")),
                *(web.route(method, "/{index}/_bulk", self._take_bulk) for method in ("POST", "PUT")),
                web.post("/lines", self._take_ndjson),
                web.post("/v1/logs", self._take_otlp),
                *(web.post(f"/services/collector{path}", self._take_events) for path in ("", "/event", "/event/1.0")),
                *(web.post(f"/services/collector/raw{path}", self._take_raw) for path in ("", "/1.0")),
                *(web.get(f"/services/collector/health{path}", self._show_health) for path in ("", "/1.0")),
            ]
        )
        return app

    @web.middleware
    async def _check_token(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        expected = self._config[TOKENS]
        token = _token_of(request.headers.get("Authorization", ""))
        if expected is not None and not _is_one_of(token, expected.value.split(",")):
            self._refused("token")
            return _no_token(request.path, with_token=bool(token))
        try:
            return await handler(request)
        except web.HTTPRequestEntityTooLarge:
            self._refused("size")
            max_size = self._config[REQUEST_LIMIT]
            return _make_failure(
                request.path, 413, f"the request is larger than {REQUEST_LIMIT}={max_size}; send smaller ones", 6
            )
        except TooManyLines as error:
            self._refused("size")
            return _make_failure(request.path, 413, str(error), 6)
        except RequestInvalid as error:
            self._refused("form")
            response = _make_failure(request.path, 400, str(error.args[0]), 6, *error.args[1:])
            if request.content.exception() is not None:  # what follows on the connection can't be read either
                response.force_close()
            return response
        except TimeoutError:
            self._refused("time")
            reason = f"Kafka has not taken the lines within {ANSWER_S:g} s; send them again"
            response = _make_failure(request.path, 503, reason, 9)
            response.headers["Retry-After"] = "5"
            return response
        except ConnectionError as error:
            self._log.info("%s: the connection of %s has ended: %r", self._address.text, request.remote, error)
            return _make_failure(request.path, 400, "the connection ended within the request", 6)

    async def _deliver_lines(
        self, request: web.Request, read: Callable[[bytes, LineOrigin], Sequence[NetworkLine]]
    ) -> Sequence[NetworkLine]:
        """Take a request's lines; returns when Kafka has them.

        Raises:
            RequestInvalid: the body has not the form that it must have.
            TooManyLines: there are more than a request may have.
            TimeoutError: Kafka has not taken them in time.
        """
        lease = RoomLease()
        origin = self._make_origin(request.remote or "unknown")
        async with asyncio.timeout(ANSWER_S):
            try:
                body = await self._read_body(request, lease)
                # Lines take much more memory than the body: one request at a time has some that are not in the intake.
                async with self._room.unpacking:
                    # The event loop must get its turns meanwhile.
                    lines = read(body, origin) if len(body) < _LARGE else await asyncio.to_thread(read, body, origin)
                    name = clean_text(request.headers.get("Idempotency-Key", ""))
                    if name:
                        for number, line in enumerate(lines):
                            line.identity = line.identity or f"{name}:{number}"
                    delivery = await self._intake.put(self._address.text, secrets.token_hex(8), 0, lines)
            finally:
                self._room.replace(lease, 0)
            await delivery.done.wait()
        return lines

    async def _read_body(self, request: web.Request, lease: RoomLease) -> bytes:
        """The body, decompressed.

        Raises:
            HTTPRequestEntityTooLarge: it is larger than a request may be.
            RequestInvalid: it can't be read, or decompressed.
        """
        max_size = self._config[REQUEST_LIMIT]
        decoder = BodyDecoder(request.headers.get("Content-Encoding", ""))
        body = bytearray()
        try:
            async for chunk in request.content.iter_any():
                for part in decoder.feed(chunk):
                    await self._room.grow(lease, len(part))
                    body += part
                    if len(body) > max_size:
                        raise web.HTTPRequestEntityTooLarge(max_size=max_size, actual_size=len(body))
        except web.RequestPayloadError as error:
            reason = " ".join(str(error).split())
            raise RequestInvalid(f"the body can't be read: {reason}") from error
        decoder.finish()
        return bytes(body)

    async def _take_ndjson(self, request: web.Request) -> web.Response:
        array = self._recognise and request.content_type == "application/json"

        def read(body: bytes, origin: LineOrigin) -> list[NetworkLine]:
            if array:
                return read_array(body, origin, self._limits)
            return read_ndjson(body, origin, self._limits, recognise=self._recognise)

        lines = await self._deliver_lines(request, read)
        return web.json_response({"accepted": len(lines)})

    async def _take_bulk(self, request: web.Request) -> web.Response:
        items: list[BulkItem] = []

        def read(body: bytes, origin: LineOrigin) -> list[NetworkLine]:
            index = request.match_info.get("index", "")
            lines, actions = read_bulk(body, index, origin, self._limits, recognise=self._recognise)
            items.extend(actions)
            return lines

        await self._deliver_lines(request, read)
        return _elastic_response(bulk_answer(items))

    async def _take_otlp(self, request: web.Request) -> web.Response:
        if request.content_type == "application/json":
            await self._deliver_lines(request, lambda body, origin: log_lines(decode_json(body), origin, self._limits))
            return web.json_response({})
        await self._deliver_lines(request, lambda body, origin: log_lines(decode_protobuf(body), origin, self._limits))
        return web.Response(body=b"", content_type="application/x-protobuf")

    async def _take_events(self, request: web.Request) -> web.Response:
        return _splunk_response(
            await self._deliver_lines(request, lambda body, origin: read_events(body, origin, self._limits))
        )

    async def _take_raw(self, request: web.Request) -> web.Response:
        query = request.query

        def read(body: bytes, origin: LineOrigin) -> list[NetworkLine]:
            origin = msgspec.structs.replace(
                origin,
                host=query.get("host") or origin.host,
                file=query.get("source") or origin.file,
                app=query.get("sourcetype"),
            )
            return read_raw(body, origin, self._limits)

        return _splunk_response(await self._deliver_lines(request, read))

    @staticmethod
    async def _show_version(_request: web.Request) -> web.Response:
        version = {
            "number": _ELASTIC,
            "build_flavor": "default",
            "build_type": "tar",
            "lucene_version": "9.12.0",
            "minimum_wire_compatibility_version": "7.17.0",
            "minimum_index_compatibility_version": "7.0.0",
        }
        return _elastic_response(
            {
                "name": "millrace",
                "cluster_name": "millrace",
                "cluster_uuid": "millrace",
                "version": version,
                "tagline": "You Know, for Search",
            }
        )

    @staticmethod
    async def _show_license(_request: web.Request) -> web.Response:
        return _elastic_response({"license": {"uid": "millrace", "type": "basic", "mode": "basic", "status": "active"}})

    @staticmethod
    async def _show_health(_request: web.Request) -> web.Response:
        return web.json_response({"text": "HEC is healthy", "code": 17})


class _RequestLog:
    """The log of aiohttp's server: a sender that does not speak HTTP is no error of the worker.

    Args:
        log: of the task.
        note_malformed: called for a request that can't be read.
    """

    def __init__(
        self,
        log: logging.LoggerAdapter[logging.Logger],
        note_malformed: Callable[[HttpProcessingError], None],
    ) -> None:
        self._log = log
        self._note_malformed = note_malformed

    def debug(self, message: str, *values: object, exc_info: BaseException | None = None) -> None:
        """See ``logging.Logger``."""
        self._write(logging.DEBUG, message, values, exc_info)

    def exception(self, message: str, *values: object, exc_info: BaseException | None = None) -> None:
        """See ``logging.Logger``."""
        self._write(logging.ERROR, message, values, exc_info)

    def _write(self, level: int, message: str, values: tuple[object, ...], error: BaseException | None) -> None:
        if isinstance(error, HttpProcessingError):
            self._note_malformed(error)
        else:
            self._log.log(level, message, *values, exc_info=error)


class _RefuseSender(asyncio.Protocol):
    """Closes a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _token_of(header: str) -> str:
    scheme, _, value = header.partition(" ")
    value = value.strip()
    if scheme.lower() in ("bearer", "splunk", "apikey"):
        return value
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode(errors="replace").partition(":")[2]
        except binascii.Error:
            return ""
    return ""


def _is_one_of(token: str, expected: Sequence[str]) -> bool:
    data = token.encode("utf-8", "replace")
    # Each is compared, in a time that does not depend on what is in it.
    matches = [hmac.compare_digest(data, candidate.strip().encode()) for candidate in expected]
    return bool(token) and any(matches)


def _no_token(path: str, *, with_token: bool) -> web.Response:
    if not path.startswith("/services/collector"):
        return _make_failure(path, 401, "the request has no valid token in its header Authorization", 0)
    if with_token:
        return web.json_response({"text": "Invalid token", "code": 4}, status=403)
    return web.json_response({"text": "Token is required", "code": 2}, status=401)


def _make_failure(path: str, status: int, reason: str, code: int, number: int | None = None) -> web.Response:
    """A refusal in the form that clients of the path know."""
    if path.startswith("/services/collector"):
        body: dict[str, Any] = {"text": reason, "code": code}
        if number is not None:
            body["invalid-event-number"] = number
        return web.json_response(body, status=status)
    if path.startswith("/v1/"):
        return web.json_response({"message": reason}, status=status)
    return web.json_response(
        {"error": {"type": "illegal_argument_exception", "reason": reason}, "status": status},
        status=status,
        headers=_PRODUCT,
    )


def _elastic_response(body: dict[str, Any]) -> web.Response:
    return web.json_response(body, headers=_PRODUCT)


def _splunk_response(lines: Sequence[NetworkLine]) -> web.Response:
    if not lines:
        return web.json_response({"text": "No data", "code": 5}, status=400)
    return web.json_response({"text": "Success", "code": 0})
