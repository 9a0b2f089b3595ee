"""Faults of Spark's JVM and of file systems: the message names the cause and the fix, in the real cases."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from spark_jobs.spark.filesystems import hadoop_version
from tests.integration.spark_jobs.frame.test_job_process import Process
from tests.integration.spark_jobs.frame.test_runs import NOW, run
from tests.support.eventually import eventually
from worker.fetch.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.spark_jobs.frame.bench import Bench


def test_a_checkpoint_on_abfs_without_its_jars(
    spark: SparkSession, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    from spark_jobs.cli import main

    topic = bench.topic(partitions=1)
    job = bench.job(topic, **NOW, **{"checkpoint.location": "abfs://bucket@account/checkpoint"})
    package = f"org.apache.hadoop:hadoop-azure:{hadoop_version()}"
    assert main(["validate", "--check", str(bench.file(job))]) == 1
    said = capsys.readouterr().err
    assert "checkpoint.location: abfs://bucket@account/checkpoint: Spark comes without the client of abfs://" in said
    assert package in said
    done = run(spark, job)
    assert done.end() == 1
    failed = done.of("failed")[0]
    assert "Class org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem not found" in failed["error"]
    assert package in failed["error"]
    assert "getFileSystem" in failed["trace"]


def test_a_jvm_with_too_little_memory_and_one_that_does_not_start(bench: Bench) -> None:
    topic = bench.topic(partitions=1)
    small, tiny = (Process(bench.file(bench.job(topic, **{"spark.driver.memory": size}))) for size in ("400m", "1k"))
    assert (small.end(), tiny.end()) == (1, 1)
    failed = small.events("failed")[0]
    assert "System memory" in failed["error"]
    assert "raise spark.driver.memory" in failed["error"]
    assert failed["retriable"] is False
    failed = tiny.events("failed")[0]
    assert failed["error"].startswith("Spark's JVM ended before it was up; it says:")
    assert "Too small maximum heap" in failed["error"]
    assert "Correct spark.driver.memory" in failed["error"]


@pytest.mark.parametrize("killed", ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit --"])
def test_a_jvm_that_is_killed_while_it_starts(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """Spark starts two: one prints the command of the other."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    real = find_java().executable
    java.write_text(f'#!/bin/sh\ncase "$*" in *"{killed}"*) kill -9 $$ ;; esac\nexec "{real}" "$@"\n', encoding="utf-8")
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    process = Process(bench.file(bench.job(bench.topic(partitions=1))))
    assert process.end() == 1
    failed = process.events("failed")[0]
    assert failed["error"].startswith("Spark's JVM was killed before it was up")
    assert failed["retriable"] is True


@pytest.mark.slow
def test_a_jvm_that_is_killed(bench: Bench) -> None:
    topic = bench.topic(partitions=1)
    bench.send(topic, ["0"])
    job = bench.job(topic)
    process = Process(bench.file(job))
    process.wait(lambda: bench.rows(job), "no rows came")
    jvm = process.events("started")[0]["jvm"]
    os.kill(jvm, signal.SIGKILL)
    assert process.end() == 1
    failed = process.events("failed")[0]
    assert failed["error"].startswith(f"Spark's JVM (process {jvm}) was killed by signal 9 (SIGKILL)")
    assert "ran out of memory" in failed["error"]
    assert failed["retriable"] is True


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip(f"needs the right to mount: {done.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("option", ["checkpoint.location", "sink.files.path"])
def test_a_full_disk_is_named_and_waited_for(spark: SparkSession, bench: Bench, small_disk: Path, option: str) -> None:
    topic = bench.topic(partitions=1)
    bench.send(topic, ['{"id": 1}', '{"id": 2}'])
    job = bench.job(
        topic,
        **NOW,
        **{
            "source.format": "plain",
            "source.key.encoding": "bytes",
            "sink.type": "files",
            "sink.files.path": str(bench.folder / "history"),
            option: str(small_disk / "place"),
            "errors.retry.delay.max.ms": "500",
        },
    )
    del job["sink.rows.path"]
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(1 << 20))
    going = run(spark, job)
    eventually(lambda: bool(going.of("retrying")) or bool(going.code), "the full disk is reported")
    assert not going.code, going.events[-1]
    error = going.of("retrying")[0]["error"]
    assert "No space left on device" in error
    filler.unlink()
    assert going.end() == 0, going.events[-1]
    assert going.of("progress")[-1]["position"] == {topic: {"0": 2}}
