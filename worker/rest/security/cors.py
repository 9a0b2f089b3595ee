"""Calls from browsers' pages of other origins: what Jetty's cross-origin filter answers. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.rest.settings import RestSettings

_HEADERS: Final = ("X-Requested-With", "Content-Type", "Accept", "Origin")
_MAX_AGE_S: Final = 1800


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a browser asks if it may send a request: it sends no credentials with that (Fetch standard)."""
    return method == "OPTIONS" and "Origin" in headers and "Access-Control-Request-Method" in headers


def cors_headers(settings: RestSettings, method: str, headers: Mapping[str, str]) -> dict[str, str]:
    """The headers to add to the answer of a request; empty for origins that may not call.

    Args:
        settings: which origins and methods are allowed.
        method: the request's method.
        headers: the request's headers (case-insensitive mapping).
    """
    origin = headers.get("Origin")
    if not origin or not settings.origins:
        return {}
    vary = {} if "*" in settings.origins else {"Vary": "Origin"}
    if not any(fnmatchcase(origin, pattern) for pattern in settings.origins):
        return vary
    allowed = {"Access-Control-Allow-Origin": origin, **vary}
    # Every page of the world may not use what a visitor's browser knows by heart.
    if vary or not settings.auth.on:
        allowed["Access-Control-Allow-Credentials"] = "true"
    requested_method = headers.get("Access-Control-Request-Method")
    if method != "OPTIONS" or requested_method is None:
        return allowed
    asked = [
        item.strip().lower() for item in headers.get("Access-Control-Request-Headers", "").split(",") if item.strip()
    ]
    named = (*_HEADERS, "Authorization") if settings.auth.on else _HEADERS
    if requested_method.upper() not in settings.methods or not set(asked) <= {item.lower() for item in named}:
        return vary
    return {
        **allowed,
        "Access-Control-Max-Age": str(_MAX_AGE_S),
        "Access-Control-Allow-Methods": ",".join(settings.methods),
        "Access-Control-Allow-Headers": ",".join(named),
    }
