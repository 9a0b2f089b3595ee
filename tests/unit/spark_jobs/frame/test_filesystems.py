"""Addresses on file systems that Spark has no client for are found before the start."""

from __future__ import annotations

import pytest

from spark_jobs.filesystems import hadoop_version, missing_clients


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"checkpoint.location": "/data/c"},
        {"checkpoint.location": "hdfs://n/c", "sink.files.path": "file:///x"},
        {"checkpoint.location": "s3a://b/c", "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}"},
        {"checkpoint.location": "s3a://b/c", "spark.jars": "/opt/hadoop-aws-3.5.0.jar,/opt/bundle.jar"},
        {"checkpoint.location": "odd://b/c", "spark.hadoop.fs.odd.impl": "com.acme.OddFileSystem"},
    ],
)
def test_what_spark_can_reach(properties: dict[str, str]) -> None:
    assert missing_clients(properties) == []


def test_what_is_missing_is_named_with_the_fix() -> None:
    found = missing_clients({"checkpoint.location": "s3a://b/c", "sink.files.path": "s3://b/h"})
    assert found[0].startswith("checkpoint.location: s3a://b/c: Spark comes without the client of s3a://")
    assert f"spark.jars.packages: org.apache.hadoop:hadoop-aws:{hadoop_version()}" in found[0]
    assert found[1].startswith("sink.files.path: s3://b/h: Spark knows no file system s3://: use s3a://")
    assert hadoop_version()[0].isdigit()
