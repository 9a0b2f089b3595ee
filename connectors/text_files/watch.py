"""The part of a connector that divides the files of a directory among tasks, and looks for new ones."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final

import msgspec

from connectors.errors import MillraceError
from connectors.text_files.directory import assign_files, has_readable_name, match_files
from connectors.text_files.options import DIRECTORY, PATTERN, ROTATION_WAIT, SCAN_INTERVAL, TASK_FILES

if TYPE_CHECKING:
    from connectors.api import ConnectorContext


#: How long the task of a deleted file keeps it, behind the time in which the file must be quiet: the task reads what it holds
#: open to its end and deletes the saved offset.
_GRACE_S: Final = 10.0


class DirectoryWatch:
    """Knows the files of the option ``directory``, and asks for other task configurations when they change."""

    def __init__(self, context: ConnectorContext) -> None:
        self._context = context
        self._seen: list[str] | None = None
        self._assigned: list[list[str]] = []
        #: Deleted files that tasks still have, and since when they are not there.
        self._deleted: dict[str, float] = {}
        #: Files that are left out because of their names; each is logged once.
        self._left_out: set[str] = set()
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch the directory, if one is read."""
        if self._context.config[DIRECTORY]:
            self._watch = asyncio.create_task(self._watch_directory())

    async def stop(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task for a file; for a directory its files divided among at most ``max_tasks``.

        Raises:
            Fatal: the directory can't be listed.
            Retriable: it can't be listed now.
        """
        if not self._context.config[DIRECTORY]:
            return [{}]
        self._seen = await self._list_files()
        self._assigned = assign_files(self._seen, max_tasks, self._assigned)
        return [{TASK_FILES: msgspec.json.encode(files).decode()} for files in self._assigned]

    async def _list_files(self) -> list[str]:
        """The files of the directory, and those that were deleted a moment ago."""
        config = self._context.config
        files = set(await asyncio.to_thread(match_files, config[DIRECTORY], config[PATTERN]))
        left_out = {name for name in files if not has_readable_name(name)}
        for name in sorted(left_out - self._left_out):
            self._context.log.warning("%r is not read: its name is not UTF-8; rename it", os.fsencode(name))
        self._left_out = left_out
        files -= left_out
        now = time.monotonic()
        oldest = now - config[ROTATION_WAIT] / 1000 - _GRACE_S
        self._deleted = {
            name: self._deleted.get(name, now) for names in self._assigned for name in names if name not in files
        }
        return sorted(files.union(name for name, since in self._deleted.items() if since > oldest))

    async def _watch_directory(self) -> None:
        while True:
            await asyncio.sleep(self._context.config[SCAN_INTERVAL] / 1000)
            try:
                files = await self._list_files()
            except MillraceError as error:
                self._context.log.warning("%s", error)
                continue
            if self._seen is not None and files != self._seen:
                self._seen = files
                self._context.request_task_reconfiguration()
