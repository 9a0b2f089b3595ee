"""PySpark programs that consume the topics the workers fill.

``spark_jobs.SparkJob``, the connector that runs one of them, is imported when it is asked for: nothing of this package needs
Spark until a job starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_jobs.connector import SparkJob

__all__ = ["SparkJob"]


def __getattr__(name: str) -> Any:
    if name == "SparkJob":
        from spark_jobs.connector import SparkJob

        return SparkJob
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
