"""Whether to retry where a source refuses a task: its secrets may be in the middle of a rotation."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid, Retriable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: How many seconds a source may refuse a task that it accepted before, where config providers may give new secrets.
_REFUSED_S: Final = 60.0


class SourceRefusals:
    """Remembers whether a source has accepted its task, and since when it refuses it after that.

    Args:
        refresh_secrets: see ``TaskPlan``.
    """

    def __init__(self, refresh_secrets: Callable[[], Awaitable[bool]] | None) -> None:
        self._refresh_secrets = refresh_secrets
        self._let_in = False
        self._refused_since: float | None = None
        #: Whether new secrets came since the source's coroutine last began.
        self._renewed = False

    def begin(self) -> None:
        """The source's coroutine begins, with the secrets as they are."""
        self._renewed = False

    def secrets_changed(self) -> None:
        """New secrets came."""
        self._renewed = True

    def accepted(self) -> None:
        """The source gave a batch."""
        self._let_in, self._refused_since = True, None

    async def retry_fault(self, error: ConfigInvalid) -> Exception:
        """Return the fault after which to retry, if new secrets may fix ``error``.

        A source that refuses a task that it accepted before may be in the middle of a rotation: config providers are asked for
        new values at once, and for a while with each further try. New values may also have come while it was being refused.

        Raises:
            ConfigInvalid: they can't.
        """
        if self._refresh_secrets is None:
            raise error
        now = time.monotonic()
        if await self._refresh_secrets() or self._renewed:
            self._refused_since = None
            return Retriable(f"{error} (there are new secrets meanwhile)")
        if not self._let_in:
            raise error
        self._refused_since = now if self._refused_since is None else self._refused_since
        if now - self._refused_since > _REFUSED_S:
            raise error
        return Retriable(str(error))
