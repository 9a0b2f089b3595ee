"""Waiting for a condition that several parts together make true, and that no single event stands for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


async def wait_until(condition: Callable[[], bool], deadline_s: float, every_s: float = 0.02) -> bool:
    """Look every ``every_s`` seconds until ``condition`` holds; returns whether it did within ``deadline_s`` seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not condition():
        if loop.time() >= end:
            return False
        await asyncio.sleep(every_s)
    return True
