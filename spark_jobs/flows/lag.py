"""How far the sinks of one flow are apart, read from their checkpoints: it works across processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.errors import Retriable
from spark_jobs.config.keys import SINKS_MAX_LAG
from spark_jobs.flows.sinks import records_ahead
from spark_jobs.kafka import ranges
from spark_jobs.spark.checkpoint import open_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.flows.sinks import FlowMembership
    from spark_jobs.spark.checkpoint import Folder


def demand_others(member: FlowMembership, position: ranges.Offsets, spark: SparkSession) -> None:
    """Make sure that no other sink of the flow is too far behind ``position``. Reads some files of each checkpoint.

    Raises:
        Retriable: one is; the text names it.
    """
    for name, checkpoint in member.others.items():
        lag = records_ahead(position, committed_position(open_folder(checkpoint, spark)))
        if lag > member.max_lag:
            raise Retriable(
                f"the sink {member.sink} waits for the sink {name} of the flow {member.flow}, which is {lag} records behind "
                f"it ({SINKS_MAX_LAG}={member.max_lag}): see what keeps that one, or raise the option"
            )


def committed_position(folder: Folder) -> ranges.Offsets:
    """The next offsets that a checkpoint's query has to write; empty before the first start."""
    done = ranges.last_batch(folder, "commits")
    return ranges.start_of(folder, 0 if done is None else done + 1)
