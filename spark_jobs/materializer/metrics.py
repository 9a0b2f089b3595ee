"""The metrics of the materializer, as declarations; what they say of latency is in ``stages``."""

from __future__ import annotations

from typing import Final

from spark_jobs.materializer.stages import READ_TO_ROWS, READ_TO_TOPIC, TOPIC_TO_ROWS, WRITE_TO_READ, WRITE_TO_ROWS
from spark_jobs.metrics import JobMetric

#: The sums over all passes of this run: the field of ``Result``, unit and meaning.
TOTALS: Final = {
    "records": ("records", "Records of the input that were merged in this run."),
    "replayed": ("records", "Records left out: a transaction before a crash had them."),
    "outputs": ("records", "Events written to the output."),
    "suppressed": ("", "Updates after which a row looked as before, so that no event was written."),
    "dead": ("records", "Records that went to the dead letter topic."),
    "expired": ("", "Events for cells and rows whose time to live was over."),
    "changes": ("", "Changes of rows that were merged."),
    "transactions": ("", "Transactions committed."),
    "redone": ("", "Transactions that were aborted and retried."),
    "restored": ("records", "Records of the changelog read into local caches."),
    "restore_s": ("s", "Time that reading the changelog into local caches took."),
    "transaction_s": ("s", "Time that commits took."),
    "cpu_s": ("s", "CPU of merging, reading and writing in Python."),
}


def _latency_metrics(stage: str) -> tuple[JobMetric, ...]:
    name, text = f"materializer_latency_{stage}", stage.replace("_", " ")
    return (
        JobMetric(f"{name}_ms_p50", "gauge", "ms", f"Median of the time from {text}, of the last batch with samples."),
        JobMetric(
            f"{name}_ms_p99", "gauge", "ms", f"99th percentile of the time from {text}, of the last batch with samples."
        ),
        JobMetric(f"{name}_ms_max", "gauge", "ms", f"Longest time from {text}, of the last batch with samples."),
        JobMetric(f"{name}_ms_total", "counter", "ms", f"Sum of the samples from {text} in this run."),
        JobMetric(f"{name}_samples_total", "counter", "", f"Samples from {text} in this run."),
    )


METRICS: Final = (
    *(JobMetric(f"materializer_{name}_total", "counter", unit, text) for name, (unit, text) in TOTALS.items()),
    JobMetric("materializer_state_rows", "gauge", "rows", "Rows of the state."),
    JobMetric("materializer_state_bytes", "gauge", "bytes", "Size of the local caches of the state."),
    JobMetric(
        "materializer_publish_latency_ms",
        "gauge",
        "ms",
        "From the write in the source to the commit, mean of the last batch.",
    ),
    JobMetric("materializer_transaction_ms", "gauge", "ms", "How long a commit took, mean of the last batch."),
    *(
        metric
        for stage in (WRITE_TO_READ, READ_TO_TOPIC, TOPIC_TO_ROWS, READ_TO_ROWS, WRITE_TO_ROWS)
        for metric in _latency_metrics(stage)
    ),
)
