"""``/console``: pages, sessions, and what they show all the time. Not in Kafka Connect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import hdrs, web

from connectors.errors import MillraceError
from worker.console.assets import PAGE, POLICY
from worker.console.feed import rows_event
from worker.console.resources.flow_editing import merge_patch
from worker.console.resources.hiding import declared_keys, without_hidden
from worker.console.rows import highest_role
from worker.fetch.errors import StackError
from worker.rest.call import empty_answer, json_answer
from worker.rest.facade import RestError
from worker.rest.operations import CONFLICT, FORWARD, UNKNOWN, QueryParameter, Reply, Tag
from worker.rest.own.own_routes import OwnRoutes
from worker.rest.routing import REASONS, RequiredAccess
from worker.rest.security.access import readable_names
from worker.rest.security.signing import UNSIGNED
from worker.rest.shapes import bodies
from worker.rest.shapes.console_schemas import ConnectorRow, ConsoleSession
from worker.rest.shapes.schemas import Config, ConfigBody, ConfigInfos
from worker.secrets.masking import mask_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.rest.call import RestCall

#: A stream ends so long after its beginning, for the browser to come again: whoever may not look any more is found then.
_LONGEST_S: Final = 60.0
#: Or at this share of a request's deadline.
_SHARE: Final = 0.8
_RETRY: Final = b"retry: 1000\n\n"
#: What a worker has to show beyond Kafka Connect's REST API: pages, and parts of the page of a connector.
FEATURES: Final = (
    *("overview", "flows", "topics", "rules", "verify", "metrics", "audit"),
    *("rates", "explain", "snapshots", "tables", "letters", "history", "providers"),
)


async def get_page(call: RestCall) -> web.Response:
    """``GET /console``: the page; all others are parts of it."""
    if call.request.rel_url.raw_path.endswith("/"):
        # The page names its files from its own address, whatever prefix a proxy has put before it.
        return web.Response(status=308, headers={hdrs.LOCATION: "../console"})
    response = await _send_file(call, PAGE)
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


async def get_file(call: RestCall) -> web.Response:
    """``GET /console/{file}``."""
    return await _send_file(call, call.parameters["file"])


async def _send_file(call: RestCall, name: str) -> web.Response:
    try:
        asset = await asyncio.to_thread(call.console.assets.get, name)
    except StackError as error:
        raise RestError(503, f"The console's libraries are not here: {error}") from error
    if asset is None:
        raise RestError(404, REASONS[404])
    packed = "gzip" in call.request.headers.get(hdrs.ACCEPT_ENCODING, "")
    headers = {
        hdrs.ETAG: asset.tag,
        hdrs.CACHE_CONTROL: "no-cache",
        hdrs.VARY: hdrs.ACCEPT_ENCODING,
    }
    if call.request.headers.get(hdrs.IF_NONE_MATCH) == asset.tag:
        return web.Response(status=304, headers=headers)
    if packed:
        headers[hdrs.CONTENT_ENCODING] = "gzip"
    return web.Response(
        body=asset.packed if packed else asset.plain, content_type=asset.media, charset="utf-8", headers=headers
    )


async def open_session(call: RestCall) -> web.Response:
    """``POST /console/session``: a cookie for the credentials of this very request."""
    sessions, request = call.console.sessions, call.request
    authorization = request.headers.get(hdrs.AUTHORIZATION)
    if authorization is None or call.principal.method not in {"basic", "bearer"}:
        return json_answer(
            await _describe_session(call, None)
        )  # whoever comes by certificate, or is not asked, needs none
    value, session = sessions.open(authorization)
    response = json_answer(await _describe_session(call, session.proof))
    secure = request.scheme == "https" or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    response.set_cookie(
        sessions.cookie,
        value,
        max_age=int(sessions.lifetime_s),
        path="/",
        secure=secure,
        httponly=True,
        samesite="Strict",
    )
    return response


async def get_session(call: RestCall) -> web.Response:
    """``GET /console/session``."""
    session = call.console.sessions.find(call.request.cookies)
    return json_answer(
        await _describe_session(
            call, session.proof if session is not None and call.principal.method == "session" else None
        )
    )


async def end_session(call: RestCall) -> web.Response:
    """``DELETE /console/session``."""
    sessions = call.console.sessions
    session = sessions.find(call.request.cookies)
    if session is not None:
        sessions.end(session)
    response = empty_answer(204)
    response.del_cookie(sessions.cookie, path="/")
    return response


async def list_rows(call: RestCall) -> web.Response:
    """``GET /console/connectors``."""
    all_rows = await call.herder.console.connector_rows()
    names = set(readable_names(call.principal, [row["name"] for row in all_rows]))
    return json_answer(
        [{**row, "role": highest_role(call.principal, row["name"])} for row in all_rows if row["name"] in names]
    )


async def shown_config(call: RestCall) -> web.Response:
    """``GET /console/connectors/{connector}/config``."""
    return await _mask_config(call, (await call.herder.connector_info(call.connector))["config"])


async def patch_config(call: RestCall) -> web.Response:
    """``PATCH /console/connectors/{connector}/config``."""
    patch = bodies.read_config(await call.request.read())
    call.check_class(patch)
    changed = await call.herder.patch_connector_config(call.connector, await without_hidden(call, patch))
    return await _mask_config(call, changed["config"])


async def _mask_config(call: RestCall, config: Mapping[str, str]) -> web.Response:
    return json_answer(mask_config(config, await declared_keys(call, config)))


async def check_edit(call: RestCall) -> web.Response:
    """``PUT /console/connectors/{connector}/check``."""
    patch = bodies.read_config(await call.request.read())
    merged = await merge_patch(call, patch)
    return json_answer(await call.herder.admin.validate(merged.get("connector.class", ""), merged))


async def get_rates(call: RestCall) -> web.Response:
    """``GET /console/rates``, for other workers."""
    if call.principal.method != "worker":
        raise RestError(400, UNSIGNED)
    return json_answer(call.herder.console.own_rates())


async def stream_events(call: RestCall) -> web.StreamResponse:
    """``GET /console/events``: rows as they change, or one connector's status."""
    name = call.request.query.get("connector")
    if name is not None:
        call.principal.require(RequiredAccess.READ, name)
    feed = call.console.feed
    until = asyncio.get_running_loop().time() + min(_LONGEST_S, call.settings.request_timeout_s * _SHARE)
    with feed.watch():
        if not feed.rows or feed.trouble is not None:
            await feed.refresh()
        response = web.StreamResponse(
            headers={
                hdrs.CONTENT_TYPE: "text/event-stream",
                hdrs.CACHE_CONTROL: "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        await response.prepare(call.request)
        if call.request.method == hdrs.METH_HEAD:
            return response
        try:
            await response.write(_RETRY)
            sent = _Sent()
            async for _ in feed.ticks(until):
                if feed.trouble is not None:
                    break  # what is old must not look live: the page comes again, and is answered with the reason
                message = sent.rows(call) if name is None else await sent.connector(call, name)
                # A comment now and then lets the other side, and proxies, see that the stream lives.
                await response.write(message or b":\n\n")
        except (ConnectionError, MillraceError):
            pass  # the page is gone, or comes again and learns why
    return response


class _Sent:
    """The state that a stream has sent so far."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._status: bytes | None = None

    def rows(self, call: RestCall) -> bytes:
        """Rows that are new or have changed since, as an event; empty if there are none."""
        before, feed = self._version, call.console.feed
        self._version = feed.version
        if before == feed.version:
            return b""
        if before == feed.version - 1:
            return feed.news(call.principal)
        return rows_event(call.principal, feed.rows.values(), (), whole=True)

    async def connector(self, call: RestCall, name: str) -> bytes:
        """A connector's status with its row, as an event; empty if nothing is new."""
        try:
            status: dict[str, Any] | None = await call.herder.connector_status(name)
        except RestError as error:
            if error.status != 404:
                raise
            status = None
        row = call.console.feed.rows.get(name)
        body = orjson.dumps(
            {
                "status": status,
                "row": None if row is None else row[0],
                "role": highest_role(call.principal, name),
            }
        )
        if body == self._status:
            return b""
        self._status = body
        return b"event: connector\ndata: " + body + b"\n\n"


async def _describe_session(call: RestCall, proof: str | None) -> dict[str, Any]:
    lacks = call.console.lacks
    return {
        "name": call.principal.name,
        "method": call.principal.method,
        "role": highest_role(call.principal),
        "roles": [str(grant) for grant in call.principal.grants],
        "proof": proof,
        "features": list(call.console.features),
        "cluster": call.console.cluster,
        "lacks": [] if lacks is None else list(await lacks()),
        "trouble": call.console.feed.trouble,
    }


_CONSOLE: Final = OwnRoutes(Tag.CONSOLE)
_INTERNAL: Final = OwnRoutes(Tag.INTERNAL)

ROUTES = (
    _CONSOLE.get(
        "/console",
        get_page,
        "getConsole",
        "The console: a page for a browser.",
        Reply("The page.", str, media="text/html"),
        {503: "Its libraries are not here."},
        access=RequiredAccess.PUBLIC,
        when_ready=False,
        negotiate=False,
    ),
    _CONSOLE.post(
        "/console/session",
        open_session,
        "openSession",
        "Begin a session of the console with the credentials of this request: its cookie stands for them.",
        Reply("Who the caller is; without authentication there is no cookie.", ConsoleSession),
        when_ready=False,
    ),
    _CONSOLE.get(
        "/console/session",
        get_session,
        "getSession",
        "Who the caller is, and what it may do.",
        Reply("The caller.", ConsoleSession),
        when_ready=False,
    ),
    _CONSOLE.delete(
        "/console/session",
        end_session,
        "endSession",
        "End the session.",
        {204: Reply("It has ended.")},
        when_ready=False,
    ),
    _CONSOLE.get(
        "/console/connectors",
        list_rows,
        "listConnectorRows",
        "All connectors in short, with rates and lag.",
        Reply("Those that the caller may read, by name.", list[ConnectorRow]),
    ),
    _CONSOLE.get(
        "/console/connectors/{connector}/config",
        shown_config,
        "getShownConfig",
        "A connector's configuration as people may see it: `[hidden]` stands for secrets.",
        Reply("The configuration.", Config),
        {404: UNKNOWN},
    ),
    _CONSOLE.patch(
        "/console/connectors/{connector}/config",
        patch_config,
        "patchShownConfig",
        "Change some properties as `PATCH /connectors/{connector}/config` does; the answer has no values of secrets.",
        Reply("They are changed.", Config),
        {400: "The configuration is invalid, or the body is not understood.", 404: UNKNOWN, 409: CONFLICT},
        query=(FORWARD,),
        body=ConfigBody,
        examples={"one more": {"tasks.max": "2"}},
        access=RequiredAccess.ADMIN,
        note="Null takes a property away.",
    ),
    _CONSOLE.put(
        "/console/connectors/{connector}/check",
        check_edit,
        "checkChange",
        "Check what a change of some properties would make of a connector's configuration; changes nothing.",
        Reply("As `PUT /connector-plugins/{plugin}/config/validate` of the whole.", ConfigInfos),
        {400: "There is no such plugin, or the body is not understood.", 404: UNKNOWN},
        access=RequiredAccess.ADMIN,
        body=ConfigBody,
        examples={"one more": {"tasks.max": "2"}},
        note="Null takes a property away.",
    ),
    _CONSOLE.get(
        "/console/events",
        stream_events,
        "watchConnectors",
        "What changes, as server-sent events: `rows` (as `GET /console/connectors`), or with `connector` one's status.",
        Reply("A stream that ends within a minute; browsers come again.", str, media="text/event-stream"),
        negotiate=False,
        query=(QueryParameter("connector", "The connector to watch; without it all."),),
    ),
    _INTERNAL.get(
        "/console/rates",
        get_rates,
        "getRates",
        "Between workers: rates and lag of this worker's tasks.",
        Reply("By connector: records per second, and seconds behind.", dict[str, list[float | None]]),
        {400: "The request has no signature."},
        access=RequiredAccess.INTERNAL,
    ),
    # The last: a name that is not one of those above.
    _CONSOLE.get(
        "/console/{file}",
        get_file,
        "getConsoleFile",
        "A file of the console.",
        Reply("The file.", str, media="text/javascript"),
        {404: "There is no such file.", 503: "The console's libraries are not here."},
        access=RequiredAccess.PUBLIC,
        when_ready=False,
        negotiate=False,
    ),
)
