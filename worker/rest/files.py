"""Files that are read again when they change: certificates, users, tokens, keys."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

_log = logging.getLogger("worker.rest")
#: Seconds between two looks.
LOOK_S: Final = 1.0
#: What changes with a file: modification time, size and inode number, None for one that isn't there.
Fingerprint = tuple[tuple[int, int, int] | None, ...]


def fingerprint(paths: Sequence[str]) -> Fingerprint:
    """The files' present state; links are followed, as those of mounted secrets. Blocks for a moment."""
    return tuple(_state(path) for path in paths)


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@dataclass(frozen=True, slots=True)
class Watch:
    """Files that belong together.

    Attributes:
        what: what they are, for the log.
        paths: which there are at the moment.
        reload: reads them again; raises ConfigInvalid when they can't be used.
    """

    what: str
    paths: Callable[[], Sequence[str]]
    reload: Callable[[], Awaitable[None]]


async def watch(watches: Sequence[Watch], known: Mapping[str, Fingerprint]) -> None:
    """Read files again when they have changed, until cancelled. What can't be used is logged, and what was before stays.

    Args:
        watches: what to look at.
        known: the state of the files when they were read first, by ``what``.
    """
    seen = dict(known)
    while True:
        await asyncio.sleep(LOOK_S)
        paths = {each.what: tuple(each.paths()) for each in watches}
        found = await asyncio.to_thread(lambda wanted: {what: fingerprint(of) for what, of in wanted.items()}, paths)
        for each in watches:
            if found[each.what] == seen.get(each.what):
                continue
            seen[each.what] = found[each.what]
            try:
                await each.reload()
            except (ConfigInvalid, OSError) as error:
                _log.error("The %s have changed and can't be used; the old ones stay: %s", each.what, error)
            except Exception:  # noqa: BLE001 - whatever is in one file, changes of the others must go on to count
                _log.exception("The %s have changed and can't be used; the old ones stay", each.what)
            else:
                _log.info("The %s have changed and were read again", each.what)


def fingerprints(watches: Sequence[Watch]) -> dict[str, Fingerprint]:
    """The present state of all files, by ``what``. Blocks for a moment."""
    return {each.what: fingerprint(each.paths()) for each in watches}
