"""``GET /connectors/NAME/progress``: how far a connector that moves data itself is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectors.job_api import JobProgress


def shown_progress(worker_id: str, job: JobProgress | None, task: int = 0) -> dict[str, Any]:
    """A task's part of the answer. Pure."""
    body: dict[str, Any] = {"id": task, "worker_id": worker_id, "phase": "unknown" if job is None else job.phase}
    if job is None:
        return body
    if job.sink:
        body["sink"] = job.sink
    if job.error:
        body["error"] = job.error
    if job.retrying_since:
        body["retrying_since"] = _format_time(job.retrying_since)
    lags = [partition.lag for partition in job.partitions]
    is_known = bool(lags) and min(lags) >= 0
    return body | {
        "pid": job.pid or None,
        "starts": job.starts,
        "started_at": _format_time(job.started_at),
        "progress_at": _format_time(job.progress_at),
        "batch": None
        if job.batch < 0
        else {"id": job.batch, "records": job.batch_rows, "seconds": job.batch_s, "rows_per_second": job.rows_per_s},
        "batches": job.batches,
        "records_read": job.read,
        "records_written": job.written,
        "retries": job.retries,
        # Not known before the topics were asked, nor while they don't answer: null, which is not 0.
        "lag": {"total": sum(lags) if is_known else None, "max": max(lags) if is_known else None},
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": None if partition.offset < 0 else partition.offset,
                "lag": None if partition.lag < 0 else partition.lag,
            }
            for partition in job.partitions
        ],
        "metrics": job.metrics,
        "steps": job.steps,
        "schema_changes": job.schema_changes,
    }


def _format_time(seconds: float) -> str | None:
    return (
        datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if seconds
        else None
    )
