"""Waiting in tests: for a condition, with a deadline and a failure that says what was awaited; for turns of the event loop."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, overload

from compose.local.process.service import PATIENCE, wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_T = TypeVar("_T")

#: Exceptions of a condition that mean "not yet".
Ignored = tuple[type[Exception], ...]


def eventually(
    condition: Callable[[], _T | None],
    awaited: str,
    within: float = 60.0,
    *,
    every: float = 0.02,
    detail: Callable[[], object] | None = None,
    ignore: Ignored = (),
) -> _T:
    """Ask ``condition`` until its value is true, and return that value. Blocks; see ``eventually_async`` for an event loop.

    Args:
        condition: Asked at least once.
        awaited: The condition as a statement: "the task is running".
        within: The deadline in seconds, for a machine of usual speed (``MILLRACE_PATIENCE``).
        every: Seconds between two questions.
        detail: Called at the deadline: what the failure shows besides.
        ignore: Exceptions of the condition that mean "not yet".

    Raises:
        AssertionError: The deadline is over.
    """
    value: _T | None = None
    error: Exception | None = None

    def holds() -> bool:
        nonlocal value, error
        try:
            value, error = condition(), None
        except ignore as problem:
            value, error = None, problem
        return bool(value)

    if wait_until(holds, within, every):
        assert value is not None
        return value
    raise AssertionError(_failure(awaited, within, detail, error)) from error


@overload
async def eventually_async(
    condition: Callable[[], Awaitable[_T | None]],
    awaited: str,
    within: float = ...,
    *,
    every: float = ...,
    detail: Callable[[], object] | None = ...,
    ignore: Ignored = ...,
) -> _T: ...


@overload
async def eventually_async(
    condition: Callable[[], _T | None],
    awaited: str,
    within: float = ...,
    *,
    every: float = ...,
    detail: Callable[[], object] | None = ...,
    ignore: Ignored = ...,
) -> _T: ...


async def eventually_async(
    condition: Callable[[], Any],
    awaited: str,
    within: float = 60.0,
    *,
    every: float = 0.005,
    detail: Callable[[], object] | None = None,
    ignore: Ignored = (),
) -> Any:
    """Like ``eventually`` without blocking the event loop; an awaitable condition is cancelled at the deadline."""
    error: Exception | None = None
    limit = patience(within)
    try:
        async with limit:
            while True:
                try:
                    answer = condition()
                    value, error = await answer if inspect.isawaitable(answer) else answer, None
                except ignore as problem:
                    value, error = None, problem
                if value:
                    return value
                await asyncio.sleep(every)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(_failure(awaited, within, detail, error)) from error


def patience(seconds: float) -> asyncio.Timeout:
    """As ``asyncio.timeout``, longer on a slow machine (``MILLRACE_PATIENCE``)."""
    return asyncio.timeout(seconds * PATIENCE)


async def pass_turns(count: int = 1) -> None:
    """Give the other tasks of the event loop ``count`` turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def _failure(awaited: str, within: float, detail: Callable[[], object] | None, error: Exception | None) -> str:
    parts = [f"waited {within:g} s in vain until {awaited}"]
    if error is not None:
        parts.append(f"the last question failed: {error!r}")
    if detail is not None:
        parts.append(str(detail()))
    return "\n".join(parts)
