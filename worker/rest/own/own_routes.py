"""Declares operations that Kafka Connect does not have: a route with its operation in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.rest.operations import Operation, Reply
from worker.rest.routing import RequiredAccess, RestRoute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web

    from worker.rest.call import RestCall
    from worker.rest.operations import Tag

    Handler = Callable[[RestCall], Awaitable[web.StreamResponse]]


class OwnRoutes:
    """The operations of one tag: a method for each HTTP method, all with the arguments of ``declare``."""

    def __init__(self, tag: Tag) -> None:
        self._tag = tag

    def declare(
        self,
        method: str,
        path: str,
        handler: Handler,
        operation: str,
        summary: str,
        replies: Reply | Mapping[int, Reply],
        errors: Mapping[int, str] | None = None,
        *,
        access: RequiredAccess = RequiredAccess.READ,
        when_ready: bool = True,
        negotiate: bool = True,
        **rest: Any,
    ) -> RestRoute:
        """One route.

        Args:
            method: the HTTP method.
            path: as in ``RestRoute``.
            handler: answers it.
            operation: the operation's id.
            summary: one line.
            replies: by status; a reply alone is that of 200.
            errors: as in ``Operation``.
            access: as in ``RestRoute``.
            when_ready: as in ``RestRoute``.
            negotiate: as in ``RestRoute``.
            rest: the other arguments of ``Operation``.
        """
        return RestRoute(
            method,
            path,
            handler,
            access,
            when_ready,
            negotiate,
            operation=Operation(
                operation,
                summary,
                self._tag,
                {200: replies} if isinstance(replies, Reply) else replies,
                errors or {},
                kafka=False,
                **rest,
            ),
        )

    def get(self, path: str, handler: Handler, operation: str, summary: str, *rest: Any, **named: Any) -> RestRoute:
        """Read something."""
        return self.declare("GET", path, handler, operation, summary, *rest, **named)

    def put(self, path: str, handler: Handler, operation: str, summary: str, *rest: Any, **named: Any) -> RestRoute:
        """Create or replace something."""
        return self.declare("PUT", path, handler, operation, summary, *rest, **named)

    def post(self, path: str, handler: Handler, operation: str, summary: str, *rest: Any, **named: Any) -> RestRoute:
        """Do something."""
        return self.declare("POST", path, handler, operation, summary, *rest, **named)

    def delete(self, path: str, handler: Handler, operation: str, summary: str, *rest: Any, **named: Any) -> RestRoute:
        """Remove something."""
        return self.declare("DELETE", path, handler, operation, summary, *rest, **named)

    def patch(self, path: str, handler: Handler, operation: str, summary: str, *rest: Any, **named: Any) -> RestRoute:
        """Change a part of something."""
        return self.declare("PATCH", path, handler, operation, summary, *rest, **named)
