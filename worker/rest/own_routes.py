"""Declares operations that Kafka Connect does not have: a route with its operation in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.rest.operations import Operation, Reply
from worker.rest.routing import Access, Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web

    from worker.rest.call import Call
    from worker.rest.operations import Tag

    Handler = Callable[[Call], Awaitable[web.StreamResponse]]


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
        access: Access = Access.READ,
        when_ready: bool = True,
        negotiate: bool = True,
        **rest: Any,
    ) -> Route:
        """One route.

        Args:
            method: the HTTP method.
            path: as in ``Route``.
            handler: answers it.
            operation: the operation's id.
            summary: one line.
            replies: by status; a reply alone is that of 200.
            errors: as in ``Operation``.
            access: as in ``Route``.
            when_ready: as in ``Route``.
            negotiate: as in ``Route``.
            rest: the other arguments of ``Operation``.
        """
        return Route(
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

    def get(self, path: str, handler: Handler, operation: str, summary: str, *rest: Any, **named: Any) -> Route:
        """Read something."""
        return self.declare("GET", path, handler, operation, summary, *rest, **named)

    def put(self, path: str, handler: Handler, operation: str, summary: str, *rest: Any, **named: Any) -> Route:
        """Create or replace something."""
        return self.declare("PUT", path, handler, operation, summary, *rest, **named)

    def post(self, path: str, handler: Handler, operation: str, summary: str, *rest: Any, **named: Any) -> Route:
        """Do something."""
        return self.declare("POST", path, handler, operation, summary, *rest, **named)

    def delete(self, path: str, handler: Handler, operation: str, summary: str, *rest: Any, **named: Any) -> Route:
        """Remove something."""
        return self.declare("DELETE", path, handler, operation, summary, *rest, **named)

    def patch(self, path: str, handler: Handler, operation: str, summary: str, *rest: Any, **named: Any) -> Route:
        """Change a part of something."""
        return self.declare("PATCH", path, handler, operation, summary, *rest, **named)
