"""The writer of a table and its settings: plain values, no Spark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from spark_jobs.history.layout import HistoryLayout

#: Spark takes a 32-bit number of tasks, and no batch has that many.
_MOST_TASKS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Writing:
    """How a table's files are written.

    Attributes:
        format, compression: of new files.
        layout: of buckets.
        by_processing_time: buckets by the time of writing instead of ``ums_ts_``.
        immediate: batches' files are put where listing readers see them at once.
        rows_per_task: tasks of a batch = its records / this.
        check: look rows up before they are skipped as known.
    """

    format: str
    layout: HistoryLayout
    compression: str | None = None
    by_processing_time: bool = False
    immediate: bool = False
    rows_per_task: int = 50_000
    check: bool = True

    def tasks(self, records: int) -> int:
        """How many tasks write a batch of ``records`` offsets, at most. Positions of some inputs have large gaps."""
        return max(1, min(_MOST_TASKS, math.ceil(records / self.rows_per_task)))


@dataclass(frozen=True, slots=True)
class HistoryWriter:
    """The identity of a writer: a job with its run's epoch, or a command (both empty)."""

    job: str = ""
    epoch: str = ""

    @property
    def prefix(self) -> str:
        """Begins the names of its directories in the making."""
        return f"{quote(self.job, safe='-_').replace('.', '%2E')}." if self.job else "~command."


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of an append: rows and files written; ``replayed`` if all of it was already in the table."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    replayed: bool = False
