"""A checkpoint's files through Hadoop's file systems, as for one that is not on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_jobs.control import LEASE_FILE, AlreadyRuns, CheckpointLease
from spark_jobs.spark.checkpoint import HadoopFolder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_files_and_lease(spark: SparkSession, tmp_path: Path) -> None:
    folder = HadoopFolder(spark, f"file://{tmp_path}/check")
    assert folder.read("offsets/0") is None
    assert (folder.list("offsets"), folder.list("")) == ([], [])
    folder.write("offsets/0", "v1\nä")
    folder.write("offsets/0", "v1\nö")
    assert (folder.read("offsets/0"), folder.list("offsets"), folder.list("")) == ("v1\nö", ["0"], ["offsets"])
    assert not folder.create("offsets/0", "other")
    assert folder.create("one", "x")
    folder.delete("one")
    assert folder.read("one") is None
    first = CheckpointLease(folder, lost=print)
    first.acquire("the checkpoint", settle_s=0)
    with pytest.raises(AlreadyRuns, match="the checkpoint is in use by process"):
        CheckpointLease(folder, lost=print).acquire("the checkpoint", settle_s=0)
    first.release()
    assert folder.read(LEASE_FILE) is None
    folder.remove()
    assert folder.list("") == []
