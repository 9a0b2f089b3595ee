"""The engine for a format of input."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from spark_jobs.materializer.engine.engine import UpdateEngine
from spark_jobs.materializer.engine.resources import Resources
from spark_jobs.materializer.engine.rows import RowEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_jobs.materializer.contract import Engine
    from spark_jobs.materializer.engine.model import MergeOptions


def make_engine(
    options: MergeOptions,
    *,
    sequence: int = 0,
    resources: Resources | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> Engine:
    """An engine for one bucket and pass.

    Args:
        options: see ``MergeOptions``.
        sequence: the last ``ums_id_`` that the bucket has given out (its marker has it).
        resources: compiled schemas of this process; None makes new ones.
        clock: the time in ns since 1970.
    """
    if options.input_format != "partition-update":
        return RowEngine(options, sequence, resources or Resources(options), clock)
    return UpdateEngine(options, sequence, resources or Resources(options), clock)
