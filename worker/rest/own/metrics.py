"""``GET /metrics``: the Prometheus exposition. Not in Kafka Connect."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, Final

from aiohttp import web

from worker.rest.operations import Operation, Reply, Tag
from worker.rest.routing import RestRoute

if TYPE_CHECKING:
    from worker.rest.call import RestCall

#: Shorter bodies are not worth compressing.
_WORTH_IT: Final = 4096


async def get_metrics(call: RestCall) -> web.Response:
    """The metrics as text, gzipped for who accepts that; scrapers negotiate other formats too, which are not looked at."""
    body = await call.herder.admin.metrics()
    response = web.Response(body=body)
    if len(body) >= _WORTH_IT and accepts_gzip(call.request.headers.getall("Accept-Encoding", [])):
        # In a thread: the event loop continues while zlib compresses.
        response = web.Response(body=await asyncio.to_thread(gzip.compress, body, 1))
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    response.headers["Content-Type"] = "text/plain; version=0.0.4; charset=utf-8"
    return response


def accepts_gzip(values: list[str]) -> bool:
    """Whether ``Accept-Encoding`` allows gzip (RFC 9110, 12.5.3)."""
    weights: dict[str, str] = {}
    for part in ",".join(values).split(","):
        coding, _, weight = part.partition(";")
        weights[coding.strip().lower()] = weight.strip().lower()
    gzip_weight = weights.get("gzip", weights.get("*"))
    return gzip_weight is not None and gzip_weight.rstrip("0").rstrip(".") not in {"q=", "q=0"}


ROUTES = (
    RestRoute(
        "GET",
        "/metrics",
        get_metrics,
        when_ready=False,
        negotiate=False,
        operation=Operation(
            "getMetrics",
            "This worker's numbers for Prometheus.",
            Tag.WORKER,
            {200: Reply("Prometheus' text format, version 0.0.4.", str, media="text/plain")},
            kafka=False,
        ),
    ),
)
