"""Faults on purpose, for chaos tests: a task that fails, hangs, blocks its loop or leaks where its options say so."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, Final

from connectors.datagen.config import (
    BAD_EVERY,
    BLOCK_AFTER,
    BLOCK_MS,
    FAIL_AT,
    FAIL_KIND,
    HANG_AT,
    HANG_STUBBORN,
    LEAK,
    ONCE_FILE,
)
from connectors.errors import Fatal, Retriable

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONG: Final = 3600.0


class Faults:
    """The faults of one task."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.bad_every: int = config[BAD_EVERY]
        self._config = config
        self._leak: int = config[LEAK]
        self._lost: list[bytearray] = []
        self._points: list[int] = sorted({config[name] for name in (FAIL_AT, HANG_AT, BLOCK_AFTER)} - {-1})

    def stop_before(self, start: int, stop: int) -> int:
        """The end of a batch that starts at ``start``, cut so that a fault happens exactly at its record."""
        for point in self._points:
            if start < point < stop:
                return point
        return stop

    def leak(self, count: int) -> None:
        """Lose memory for ``count`` records."""
        if self._leak:
            self._lost.append(bytearray(self._leak * count))

    async def happen(self, n: int) -> None:
        """Do what is to be done before record ``n``. Blocks the loop if that is the fault.

        Raises:
            Fatal, Retriable, RuntimeError: by ``fault.fail.kind``.
        """
        if n not in self._points or not self._first_time():
            return
        config = self._config
        if config[BLOCK_AFTER] == n:
            # On purpose on the event loop: the host must notice.
            time.sleep(config[BLOCK_MS] / 1000 if config[BLOCK_MS] >= 0 else 1e8)  # noqa: ASYNC251
        if config[HANG_AT] == n:
            await self._hang_forever(stubborn=config[HANG_STUBBORN])
        if config[FAIL_AT] == n:
            message = f"fault.fail.at={n}: this failure was ordered by the configuration"
            if config[FAIL_KIND] == "fatal":
                raise Fatal(message)
            if config[FAIL_KIND] == "retriable":
                raise Retriable(message)
            raise RuntimeError(message)

    async def _hang_forever(self, *, stubborn: bool) -> None:
        while True:
            try:
                await asyncio.sleep(_LONG)
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    def _first_time(self) -> bool:
        marker = self._config[ONCE_FILE]
        if not marker:
            return True
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True
