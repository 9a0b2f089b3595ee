"""Flows over files and histories that start from a savepoint: they read what is left, once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs import history
from spark_jobs.config import job_files as config
from spark_jobs.inputs.positions import position_after
from spark_jobs.kafka.ranges import last_batch
from spark_jobs.reports.progress import EventWriter
from spark_jobs.runner import Runner
from spark_jobs.savepoints.make import make_savepoint
from spark_jobs.savepoints.manifest import read_manifest
from spark_jobs.spark.checkpoint import LocalFolder, open_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_MODIFIED = 1_700_000_000


@dataclass
class Moves:
    """Jobs with a folder each, that read what there is and end."""

    spark: SparkSession
    folder: Path

    def drop(self, numbers: range) -> None:
        """Write files with two rows each."""
        folder = self.folder / "drop"
        folder.mkdir(exist_ok=True)
        for number in numbers:
            path = folder / f"{number:02}.csv"
            path.write_text(f"id\n{2 * number}\n{2 * number + 1}\n")
            os.utime(path, (_MODIFIED + number, _MODIFIED + number))

    def properties(self, subfolder: str, **options: str) -> dict[str, str]:
        """A job with a folder of its own."""
        return {
            "name": f"moved-{subfolder}",
            "source.type": "files",
            "source.files.path": str(self.folder / "drop"),
            "source.files.format": "csv",
            "source.files.namespace": "drop.rows",
            "source.files.max.per.trigger": "1",
            "sink.type": "files",
            "sink.files.path": str(self.folder / subfolder / "out"),
            "state.dir": str(self.folder / subfolder),
            "trigger.mode": "available-now",
            "errors.retry.timeout.ms": "0",
            **options,
        }

    def refill(self, subfolder: str, **options: str) -> dict[str, str]:
        """A flow with two sinks that reads what the job at ``a`` wrote, in chunks of about four rows."""
        properties = self.properties(subfolder, **options)
        flow = {name: value for name, value in properties.items() if not name.startswith(("source.files.", "sink."))}
        flow |= {
            "source.type": "history",
            "source.history.path": str(self.folder / "a" / "out"),
            "source.max.offsets.per.trigger": "4",
            "sinks": "near,far",
        }
        for sink in ("near", "far"):
            flow |= {
                f"sink.{sink}.type": "files",
                f"sink.{sink}.files.path": str(self.folder / subfolder / sink / "out"),
            }
        return flow

    def run(self, properties: dict[str, str]) -> str:
        """Run the jobs of a flow to their ends; the first error."""
        for job in config.build_flow(properties):
            events: list[dict[str, Any]] = []
            Runner(job, EventWriter(job.name, None, on_event=events.append), spark=self.spark).run()
            errors = [str(event["error"]) for event in events if event["event"] == "failed"]
            if errors:
                return errors[0]
        return ""

    def save(self, properties: dict[str, str], name: str) -> str:
        """A savepoint of jobs that have ended; its folder."""
        location = str(self.folder / name)
        for job in config.build_flow(properties):
            part = f"{location}/{job.membership.sink}" if job.membership else location
            make_savepoint(job, self.spark, open_folder(job.checkpoint, self.spark), part, name)
        return location

    def rows(self, subfolder: str) -> list[tuple[int, int]]:
        """Order number and id of the rows that a job wrote."""
        frame = history.read(self.spark, str(self.folder / subfolder / "out")).selectExpr("ums_id_", "CAST(id AS INT)")
        return sorted((row[0], row[1]) for row in frame.collect())


@pytest.fixture
def moves(spark: SparkSession, tmp_path: Path) -> Iterator[Moves]:
    # Every second entry of Spark's list of files holds those before it.
    spark.conf.set("spark.sql.streaming.fileSource.log.compactInterval", "2")
    yield Moves(spark, tmp_path)
    spark.conf.unset("spark.sql.streaming.fileSource.log.compactInterval")


def test_files_that_were_read_are_not_read_again(moves: Moves) -> None:
    moves.drop(range(3))
    first = moves.properties("a")
    assert moves.run(first) == ""
    savepoint = moves.save(first, "one")
    assert "sources/0/1.compact" in read_manifest(LocalFolder(Path(savepoint)), savepoint).checkpoint
    moves.drop(range(3, 5))
    other_path = moves.properties("b", **{"source.savepoint": savepoint, "source.files.path": f"{moves.folder}/other"})
    assert "it holds the position in" in moves.run(other_path)
    second = moves.properties("b", **{"source.savepoint": savepoint})
    assert moves.run(second) == ""
    assert moves.rows("b") == [((_MODIFIED + row // 2) * 1000 << 20 | row % 2, row) for row in range(6, 10)]
    # From there with a second savepoint, which knows the files of both jobs.
    third = moves.properties("c", **{"source.savepoint": moves.save(second, "two")})
    moves.drop(range(5, 6))
    assert moves.run(third) == ""
    assert [row for _, row in moves.rows("c")] == [10, 11]


@pytest.mark.slow
def test_each_sink_of_a_refill_continues_with_its_next_chunk(moves: Moves) -> None:
    moves.drop(range(6))
    assert moves.run(moves.properties("a", **{"source.files.max.per.trigger": "2"})) == ""
    everything = moves.rows("a")
    flow = moves.refill("refill")
    assert moves.run(flow) == ""
    # As if both sinks had been killed in the middle, one a batch after the other.
    left = {}
    for sink, undone in (("near", 2), ("far", 1)):
        checkpoint = LocalFolder(moves.folder / "refill" / sink / "checkpoint")
        last = last_batch(checkpoint, "commits") or 0
        done = last - undone
        for batch in range(done + 1, last + 1):
            checkpoint.delete(f"commits/{batch}")
        for batch in range(done + 2, last + 1):
            checkpoint.delete(f"offsets/{batch}")
        left[sink] = everything[sum(position_after(checkpoint, done).values()) :]
    assert len(everything) > len(left["near"]) > len(left["far"]) > 0
    moved = moves.refill("moved", **{"source.savepoint": moves.save(flow, "one")})
    assert moves.run(moved) == ""
    assert {sink: moves.rows(f"moved/{sink}") for sink in left} == left
    # What has read everything can move too.
    assert moves.run(moves.refill("done", **{"source.savepoint": moves.save(moved, "two")})) == ""
    assert not (moves.folder / "done" / "far" / "out").exists()
