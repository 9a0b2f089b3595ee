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


def read_fingerprint(paths: Sequence[str]) -> Fingerprint:
    """The files' present state; links are followed, as those of mounted secrets. Blocks for a moment."""
    return tuple(_read_state(path) for path in paths)


def _read_state(path: str) -> tuple[int, int, int] | None:
    try:
        file_status = Path(path).stat()
    except OSError:
        return None
    return file_status.st_mtime_ns, file_status.st_size, file_status.st_ino


@dataclass(frozen=True, slots=True)
class FileWatch:
    """Files that belong together.

    Attributes:
        subject: what they are, for the log.
        paths: which there are at the moment.
        reload: reads them again; raises ConfigInvalid when they can't be used.
    """

    subject: str
    paths: Callable[[], Sequence[str]]
    reload: Callable[[], Awaitable[None]]


async def watch_files(watches: Sequence[FileWatch], initial: Mapping[str, Fingerprint]) -> None:
    """Read files again when they have changed, until cancelled. What can't be used is logged, and what was before stays.

    Args:
        watches: what to look at.
        initial: the state of the files when they were read first, by ``subject``.
    """
    last_seen = dict(initial)
    while True:
        await asyncio.sleep(LOOK_S)
        paths = {file_watch.subject: tuple(file_watch.paths()) for file_watch in watches}
        current = await asyncio.to_thread(
            lambda paths_by_subject: {subject: read_fingerprint(of) for subject, of in paths_by_subject.items()}, paths
        )
        for file_watch in watches:
            if current[file_watch.subject] == last_seen.get(file_watch.subject):
                continue
            last_seen[file_watch.subject] = current[file_watch.subject]
            try:
                await file_watch.reload()
            except (ConfigInvalid, OSError) as error:
                _log.error("The %s have changed and can't be used; the old ones stay: %s", file_watch.subject, error)
            except Exception:  # noqa: BLE001 - an error in one file must not hide changes of the others
                _log.exception("The %s have changed and can't be used; the old ones stay", file_watch.subject)
            else:
                _log.info("The %s have changed and were read again", file_watch.subject)


def read_fingerprints(watches: Sequence[FileWatch]) -> dict[str, Fingerprint]:
    """The present state of all files, by ``what``. Blocks for a moment."""
    return {file_watch.subject: read_fingerprint(file_watch.paths()) for file_watch in watches}
