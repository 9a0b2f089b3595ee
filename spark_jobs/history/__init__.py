"""The history of tables as files: the log that says which files count, readers of it, snapshots, zipper tables, compaction.

``read``, ``snapshot``, ``zipper`` and ``register`` are what users of a notebook need; pyspark is imported when one is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_jobs.history.reader import current_files, find_tables, read, register, snapshot, zipper

__all__ = ["current_files", "find_tables", "read", "register", "snapshot", "zipper"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from spark_jobs.history import reader

        return getattr(reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
