"""Writes with any time that clients may give (``USING TIMESTAMP``), as events in Kafka."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateRow
from spark_jobs.materializer.job import MaterializerSink
from tests.support.materializer import PLAIN, Written, source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.spark_jobs.materializer.conftest import Harness


def test_events_of_writes_of_the_past_and_the_future_are_accepted(
    harness: Callable[..., Harness], tmp_path: Path
) -> None:
    """Brokers refuse times before 1970 and those that are an hour later than theirs."""
    written, schema = Written(PLAIN), tmp_path / "schema.avsc"
    schema.write_text(written.text, encoding="utf-8")
    job = harness(
        "times", partitions=1, sink_class=MaterializerSink, options={"materializer.input.schemas": str(schema)}
    )
    times = {"late": (1 << 63) - 1, "next year": 4_000_000_000_000_000, "before": -1, "early": 2 - (1 << 63)}
    for key, micros in times.items():
        row = UpdateRow((), CellStamp(micros), None, (Cell("v", None, "x", CellStamp(micros)),))
        update = PartitionUpdate(source=source(), key=(key,), write_time=micros, rows=(row,))
        job.produce([(0, key.encode(), written.record(update).value)])
    job.start()
    job.step()
    events = [json.loads(value) for _, _, value in job.read() if value is not None]
    assert {event["after"]["pk"]: event["source"]["ts_us"] for event in events} == times
