"""The whole materializer against the reference merge: any partition updates, workers killed at every point, all of it once."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Retriable
from spark_jobs.materializer.config import KILL_VARIABLE
from spark_jobs.materializer.job import MaterializerSink
from spark_jobs.materializer.state.state_frame import state_frame
from tests.support.materializer import WIDE, Chance, Written, expected
from tests.support.partition_merge import Table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.spark_jobs.materializer.conftest import Harness


def folded(job: Harness) -> dict[str, list[dict[str, Any]]]:
    """The output as a table, in the form of ``expected``. Each event must continue from the row that the one before it left."""
    rows: dict[bytes, dict[str, Any]] = {}
    for _, key, value in job.read():
        if value is None:
            assert key not in rows
            continue
        event = json.loads(value)
        assert event["before"] == rows.get(key), "an event is missing or was written twice"
        assert event["before"] != event["after"]
        if event["after"] is None:
            del rows[key]
        else:
            rows[key] = event["after"]
    by_partition: dict[str, list[dict[str, Any]]] = {}
    for row in rows.values():
        by_partition.setdefault(repr((row["pk"],)), []).append(row)
    return {
        key: sorted(partition_rows, key=lambda row: (row["x"], -row["y"]))
        for key, partition_rows in by_partition.items()
    }


def test_any_updates_with_every_crash(
    harness: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Updates of every kind, doubled and out of order, in five batches: four lose a worker, one checkpoint and cache."""
    # A seed that leaves rows in both partitions: write times are few, and any deletion hides what is as old.
    source, chance = Chance(48), random.Random(20)
    updates = [source.update(WIDE) for _ in range(60)]
    written = Written(WIDE)
    schema = tmp_path / "schema.avsc"
    schema.write_text(written.text, encoding="utf-8")
    job = harness(
        "oracle",
        partitions=2,
        sink_class=MaterializerSink,
        options={
            "materializer.input.schemas": str(schema),
            "materializer.transaction.max.changes": "3",
            "materializer.tombstones.on.delete": "true",
        },
    )
    everything = updates + chance.choices(updates, k=len(updates) // 2)
    chance.shuffle(everything)
    token = tmp_path / "token"
    table = Table(WIDE)
    fifth = len(everything) // 5 + 1
    for number, point in enumerate(("produce", "commit", "committed", "written", "")):
        part = everything[number * fifth : (number + 1) * fifth]
        job.produce((ord(update.key[0]) % 2, update.key[0].encode(), written.record(update).value) for update in part)
        table.apply_all(part)
        token.touch()
        monkeypatch.setenv(KILL_VARIABLE, f"{point}@{token}")
        if not point:
            shutil.rmtree(job.folder / "state")
            job.positions, job.batches = {}, 0
        sink = job.start()
        batch = job.batch()
        if point:
            with pytest.raises(Retriable, match="worker process died"):
                job.step(batch)
        job.step(batch)
    expected_rows = expected(table.contents(), WIDE)
    assert folded(job) == expected_rows
    assert len(expected_rows) == 2
    frame = state_frame(job.spark, sink.context.config)
    assert sorted((row["pk"], row["x"], row["y"], row["st"]) for row in frame.collect()) == sorted(
        (row["pk"], row["x"], row["y"], row["st"]) for rows in expected_rows.values() for row in rows
    )
