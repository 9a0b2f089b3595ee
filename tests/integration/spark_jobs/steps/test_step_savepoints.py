"""Flows with a view, a join and a window that continue elsewhere from a savepoint as if they had never been stopped."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar

import pytest

from compose.local.targets.hdfs import Hdfs
from connectors.errors import Fatal
from connectors.options import ConfigDef
from spark_jobs.config import job_files as config
from spark_jobs.kafka.ranges import last_batch
from spark_jobs.savepoints.make import make_savepoint
from spark_jobs.savepoints.manifest import FORMAT_WITH_STEPS, SavepointManifest, decode_manifest, encode_manifest
from spark_jobs.savepoints.steps import restore_steps, save_steps, step_refusals
from spark_jobs.spark.checkpoint import LocalFolder, open_folder
from spark_jobs.steps.contract import Step, StepContext
from spark_jobs.steps.state.tables import StepState
from tests.integration.spark_jobs.steps.shop_flow import Shop, failures, random_changes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.contract import TableSchema
    from spark_jobs.steps.planning.model import OutputTable

PER_BATCH = 25


@pytest.fixture
def shop(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Shop:
    return Shop(spark, bootstrap, tmp_path, PER_BATCH)


def save(shop: Shop, properties: dict[str, str], location: str) -> None:
    """A savepoint of jobs that have ended."""
    for job in config.build_flow(properties):
        part = f"{location}/{job.membership.sink}" if job.membership else location
        make_savepoint(job, shop.spark, open_folder(job.checkpoint, shop.spark), part, "one")


def undo_last_batch(checkpoint: Path) -> None:
    """As if the job had been killed after the sink and the steps have the batch, before Spark's commit."""
    folder = LocalFolder(checkpoint)
    folder.delete(f"commits/{last_batch(folder, 'commits')}")


@pytest.mark.slow  # seven batches of three steps that keep a state; the last test shows what is saved
def test_a_flow_continues_elsewhere_with_the_state_of_its_steps(shop: Shop) -> None:
    changes = random_changes(Random(11), 3 * PER_BATCH)
    first = shop.properties("first")
    shop.send(changes[:PER_BATCH])
    assert failures(shop.run(first)) == []
    before = shop.output(shop.folder / "first" / "out")
    shop.send(changes[PER_BATCH : 2 * PER_BATCH])
    assert failures(shop.run(first)) == []
    undo_last_batch(shop.folder / "first" / "checkpoint")
    savepoint = str(shop.folder / "savepoint")
    save(shop, first, savepoint)
    shop.send(changes[2 * PER_BATCH :])

    second = shop.properties("second", **{"source.savepoint": savepoint})
    edited = {name.replace("step.pairs.", "step.more."): value for name, value in second.items()} | {
        "transform.steps": "seen,more,sums",
        "transform.step.seen.sql": "SELECT region, count(*) AS n FROM shop.customers GROUP BY region",
        "transform.step.sums.window": "session",
    }
    (refusal,) = failures(shop.run(edited))
    for reason in (
        "it holds the state of the step pairs, which the job does not have",
        "it holds no state of the step more",
        "the state of the step seen was made with sql=SELECT ",
        "the state of the step sums was made with window=tumbling or sliding (now session)",
    ):
        assert reason in refusal
    assert failures(shop.run(second)) == []
    whole = shop.properties("whole")
    events = shop.run(whole)
    assert failures(events) == []
    expected = shop.output(shop.folder / "whole" / "out")
    assert {row[0] for row in expected} >= {"seen", "pairs", "sums"}
    assert shop.output(shop.folder / "second" / "out") == expected - before
    assert before + shop.output(shop.folder / "second" / "out") == expected
    steps = [event for event in events if event["event"] == "progress"][-1]["steps"]
    assert set(steps) == {"seen", "pairs", "sums"}
    assert all(steps[name]["state_rows"] > 0 and steps[name]["state_bytes"] > 0 for name in steps)
    assert steps["sums"]["watermark_timestamp_seconds"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("remote", [False, True], ids=["local", "hdfs"])
def test_each_sink_continues_with_the_state_of_its_batch(shop: Shop, remote: bool, tmp_path: Path) -> None:
    def flow(name: str, root: str, **options: str) -> dict[str, str]:
        properties = shop.properties(name, **options)
        flow = {key: value for key, value in properties.items() if not key.startswith("sink.")}
        flow["sinks"] = "near,far"
        for sink in ("near", "far"):
            flow |= {
                f"sink.{sink}.type": "files",
                f"sink.{sink}.files.path": str(shop.folder / name / sink),
                f"sink.{sink}.checkpoint.location": f"{root}/{name}/{sink}-checkpoint",
            }
        return flow

    changes = random_changes(Random(12), 3 * PER_BATCH)
    hdfs = Hdfs(tmp_path / "hdfs") if remote else None
    if hdfs is not None:
        hdfs.start()
    try:
        root = str(shop.folder) if hdfs is None else f"{hdfs.url}/flows"
        first = flow("first", root)
        shop.send(changes[: 2 * PER_BATCH])
        assert failures(shop.run(first)) == []
        before = shop.output(shop.folder / "first" / "near")
        # As if the sink "far" had been killed before Spark's commit of its last batch.
        for job in config.build_flow(first):
            if job.member_name == "far":
                folder = open_folder(job.checkpoint, shop.spark)
                folder.delete(f"commits/{last_batch(folder, 'commits')}")
        savepoint = f"{root}/savepoint"
        save(shop, first, savepoint)
        shop.send(changes[2 * PER_BATCH :])
        assert failures(shop.run(flow("second", root, **{"source.savepoint": savepoint}))) == []
    finally:
        if hdfs is not None:
            hdfs.stop()
    assert failures(shop.run(shop.properties("whole"))) == []
    expected = shop.output(shop.folder / "whole" / "out")
    near, far = (shop.output(shop.folder / "second" / sink) for sink in ("near", "far"))
    assert near == expected - before
    assert before + near == expected
    # Its undone batch comes again, and nothing else does.
    assert far - near == before - (expected - far)
    assert len(far) > len(near)


class Kept(Step):
    """A step with a state, which does nothing."""

    config_def: ClassVar[ConfigDef] = ConfigDef([])
    stateful: ClassVar[bool] = True

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        return list(tables)


def test_a_state_is_saved_as_of_its_batch_and_comes_back_whole(spark: SparkSession, tmp_path: Path) -> None:
    fields = "k int, m map<string, int>, `order_` bigint"
    frames = [
        spark.createDataFrame([(number, {"a": number}, number), (10 + number, None, number)], fields)
        for number in range(3)
    ]
    checkpoint = str(tmp_path / "checkpoint")
    state = StepState(checkpoint, "s")
    for batch, frame in enumerate(frames):  # batch 2 is not done: Spark's commit is missing
        state.begin(spark, batch)
        state.append("rows", frame)
        state.keep_values({"last": batch})
        state.commit()
    steps = [Kept(StepContext("s", {}, {"type": "kept"})), Kept(StepContext("empty", {}, {"type": "kept"}))]
    location = tmp_path / "savepoint"
    saved = save_steps(steps, spark, checkpoint, 1, str(location))
    assert {name: [table.rows for table in step.tables.values()] for name, step in saved.items()} == {
        "s": [4],
        "empty": [],
    }
    manifest = SavepointManifest(
        format=FORMAT_WITH_STEPS, id="i", name="n", job="j", created_ms=0, versions={}, sink="files", source_type="kafka",
        source_format=None, inputs=["t"], batch=1, checkpoint={}, steps=saved,
    )  # fmt: skip
    other = str(tmp_path / "other")
    LocalFolder(tmp_path / "other").write("steps/s/leftover/x", "")  # of an attempt that was interrupted
    for _ in range(2):
        restore_steps(decode_manifest(encode_manifest(manifest), "savepoint"), spark, str(location), other)
    assert LocalFolder(tmp_path / "other").list("steps/s/leftover") == []
    moved = StepState(other, "s")
    moved.begin(spark, 2)
    rows = sorted(moved.read("rows", frames[0].schema).collect())
    assert [(row["k"], row["m"]) for row in rows] == [(0, {"a": 0}), (1, {"a": 1}), (10, None), (11, None)]
    assert moved.values == {"last": 1}
    moved.append("rows", frames[2])
    moved.commit()
    moved.begin(spark, 3)
    assert moved.read("rows", frames[0].schema).count() == 6
    assert step_refusals(saved, steps) == []

    paths = list(location.glob("state-*/s/rows/*.parquet"))
    other_file, file = [path for path in paths if spark.read.parquet(str(path)).count()]
    file.write_bytes(other_file.read_bytes())
    file.with_name(f".{file.name}.crc").unlink()
    with pytest.raises(Fatal, match=r"is damaged: state-\w+/s/rows has 4 rows"):
        restore_steps(manifest, spark, str(location), str(tmp_path / "third"))
    file.unlink()
    with pytest.raises(Fatal, match="lacks files: state-"):
        restore_steps(manifest, spark, str(location), str(tmp_path / "third"))
