"""Finds the handler of a request: paths, methods and content negotiation, as Jersey decides them. Pure.

Paths are matched before they are decoded, so that a connector's name may hold ``/``, ``%`` and everything else. One slash at
the end makes no difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aiohttp import web

    from worker.rest.call import RestCall
    from worker.rest.operations import Operation

#: Kafka Connect's messages for errors of routing and content negotiation.
REASONS: Final = {
    404: "HTTP 404 Not Found",
    405: "HTTP 405 Method Not Allowed",
    406: "HTTP 406 Not Acceptable",
    415: "HTTP 415 Unsupported Media Type",
}
_JSON: Final = "application/json"


class RequiredAccess(StrEnum):
    """The access that an operation requires; each of read, operate and admin includes those before it.

    PUBLIC needs nothing, INTERNAL the signature of another worker.
    """

    PUBLIC = "public"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class RestRoute:
    """One operation.

    Attributes:
        method: the HTTP method.
        path: the path, with ``{name}`` where a segment is a parameter.
        handler: answers it.
        access: what a caller must be allowed to do.
        when_ready: answer 503 until the worker has caught up with the cluster's state.
        negotiate: speak only JSON: refuse other media types with 406 and 415.
        operation: what it takes and answers.
    """

    method: str
    path: str
    handler: Callable[[RestCall], Awaitable[web.StreamResponse]]
    access: RequiredAccess = RequiredAccess.READ
    when_ready: bool = True
    negotiate: bool = True
    operation: Operation = field(kw_only=True, compare=False)


@dataclass(slots=True)
class Resource:
    """All operations on one path."""

    segments: tuple[str, ...]
    routes: dict[str, RestRoute] = field(default_factory=dict)

    @property
    def allowed(self) -> list[str]:
        """The methods that are answered, for the ``Allow`` header."""
        methods = list(self.routes)
        if "GET" in self.routes:
            methods.insert(0, "HEAD")
        return [*methods, "OPTIONS"]

    def parameters(self, raw: list[str]) -> dict[str, str] | None:
        """The decoded parameters if the path of encoded segments ``raw`` is this resource's, else None."""
        values_by_name: dict[str, str] = {}
        for pattern, segment in zip(self.segments, raw, strict=True):
            if pattern.startswith("{"):
                try:
                    values_by_name[pattern[1:-1]] = unquote(segment, errors="strict")
                except UnicodeDecodeError:
                    return None
            elif pattern != segment:
                return None
        return values_by_name


class Router:
    """Finds the resource of a path."""

    def __init__(self, routes: Iterable[RestRoute]) -> None:
        self._by_length: dict[int, list[Resource]] = {}
        resources: dict[tuple[str, ...], Resource] = {}
        for route in routes:
            segments = tuple(split_path(route.path))
            resource = resources.get(segments)
            if resource is None:
                resource = resources[segments] = Resource(segments)
                self._by_length.setdefault(len(segments), []).append(resource)
            resource.routes[route.method] = route

    def find(self, raw_path: str) -> tuple[Resource, dict[str, str]]:
        """The resource at the encoded path, and its parameters.

        Raises:
            RestError: 404.
        """
        raw = split_path(raw_path)
        if all(raw):
            for resource in self._by_length.get(len(raw), ()):
                parameters = resource.parameters(raw)
                if parameters is not None:
                    return resource, parameters
        raise RestError(404, REASONS[404])


def split_path(raw_path: str) -> list[str]:
    """The segments of an encoded path, without the slash at its end."""
    return [] if raw_path in {"", "/"} else raw_path.removeprefix("/").removesuffix("/").split("/")


def route_for(resource: Resource, method: str) -> RestRoute:
    """The operation for ``method``; HEAD is answered by GET's.

    Raises:
        RestError: 405.
    """
    route = resource.routes.get("GET" if method == "HEAD" else method)
    if route is None:
        raise RestError(405, REASONS[405])
    return route


def check_media(route: RestRoute, accept: str | None, content_type: str | None, *, has_body: bool) -> None:
    """Refuse what is not JSON, in Jersey's order.

    Raises:
        RestError: 415 for the request's body, 406 for the answer's.
    """
    if not route.negotiate:
        return
    if content_type is None:
        # Jersey refuses what it would have to read; it reads nothing where no body is declared.
        if route.operation.body is not None and has_body:
            raise RestError(415, REASONS[415])
    elif _media_type(content_type) != _JSON:
        raise RestError(415, REASONS[415])
    if (
        accept
        and accept.strip()
        and not any(_media_type(item) in {"*", "*/*", "application/*", _JSON} for item in accept.split(","))
    ):
        raise RestError(406, REASONS[406])


def _media_type(value: str) -> str:
    return value.partition(";")[0].strip().lower()
