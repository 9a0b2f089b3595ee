"""Runs of jobs within the process of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_jobs.config import job_files as config
from spark_jobs.reports.progress import EventWriter
from spark_jobs.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def run_job(spark: SparkSession, properties: Mapping[str, str]) -> str:
    """Run a job to its end. Blocks.

    Returns:
        The error; empty where the job ended well.
    """
    events: list[dict[str, Any]] = []
    job = config.build_job(properties)
    code = Runner(job, EventWriter(job.name, None, on_event=events.append), spark=spark).run()
    errors = [str(event["error"]) for event in events if event["event"] == "failed"]
    assert (code == 0) == (not errors), events
    return errors[0] if errors else ""
