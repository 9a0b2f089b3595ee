"""The interface that the tests of a connector implement: a source that they can write to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from connectors.testing.contexts import position_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from connectors.api import BadRecord, SourceRecord


class Unsupported(Exception):
    """The source of this harness has no such thing. The check then needs a waiver with a reason."""


class Harness(ABC):
    """One source, made afresh for each check; a check calls ``start``, reads and writes, and calls ``stop``.

    Only ``config`` and ``add`` are needed. The other methods let more checks run; each one that is left out has to be waived
    by name.

    Args:
        folder: an empty folder of the check's own.
    """

    #: ``tasks.max`` for the checks.
    max_tasks: ClassVar[int] = 1
    #: Seconds to wait for records that must come. A deadline, not a pause: raise it for slow sources.
    timeout: ClassVar[float] = 30.0
    #: Records to write, all at once, for the check of the memory of a task whose batches are not taken.
    flood: ClassVar[int] = 50_000
    #: How many records may come again after a restart from a record's own offset. 0 where exactly once is claimed.
    duplicate_bound: ClassVar[int] = 0
    #: Whether a connector without saved offsets reads again what it has read before.
    replayable: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def start(self) -> None:
        """Prepare the source, empty."""

    async def stop(self) -> None:
        """Release it."""

    @abstractmethod
    def config(self) -> Mapping[str, str]:
        """The connector's properties for this source, as a user would write them, without ``name`` and the runtime's own."""

    @abstractmethod
    async def add(self, count: int) -> None:
        """Write ``count`` more records to the source, each different from all before, so that they can be read now."""

    async def poison(self) -> None:
        """Write one record that can't be decoded; it must be reported as a ``BadRecord``."""
        raise Unsupported

    async def change_schema(self) -> None:
        """Change the source's schema; records that ``add`` writes from now on have it."""
        raise Unsupported

    def outage(self) -> AbstractAsyncContextManager[None]:
        """While it is entered the source can't be reached; nothing is lost in it."""
        raise Unsupported

    def identity(self, record: SourceRecord) -> str:
        """All of a record that is the same whenever it is read, as text; different for different records."""
        return repr(
            (
                position_key(record.source_partition),
                position_key(record.source_offset),
                record.topic,
                record.partition,
                record.key,
                record.value,
                [(header.key, header.value) for header in record.headers],
            )
        )

    def identity_of_bad(self, bad: BadRecord) -> str:
        """All of a bad record that is the same whenever it is read, as text; different for different ones."""
        return repr((position_key(bad.source_partition), position_key(bad.source_offset)))

    def sequence(self, record: SourceRecord) -> str:
        """Names what a record is in order with: records of equal sequence come in the same order whenever they are read."""
        return position_key(record.source_partition)

    def table_pattern(self) -> str:
        """The table that ``add`` writes to, as a request for a snapshot names it."""
        raise Unsupported

    def snapshot_row(self, record: SourceRecord) -> str | None:
        """The row that a record of a snapshot is of, as text; None: it is a change or another record."""
        del record
        raise Unsupported

    def secrets(self) -> Mapping[str, str]:
        """Properties whose values are secret, besides those declared PASSWORD; with values that occur nowhere else."""
        return {}

    def wrong_config(self) -> Mapping[str, str]:
        """Properties, with the secrets in them, with which validation or the start must fail."""
        raise Unsupported
