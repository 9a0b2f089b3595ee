"""Addresses on file systems that Spark has no client for are found before the start."""

from __future__ import annotations

import pytest

from spark_jobs.spark.filesystems import client_sets, hadoop_version, missing_clients
from worker.fetch.artifacts import load_manifest


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
    missing = missing_clients({"checkpoint.location": "abfs://b@a/c", "sink.files.path": "s3://b/h"})
    assert missing[0].startswith("checkpoint.location: abfs://b@a/c: Spark comes without the client of abfs://")
    assert f"spark.jars.packages: org.apache.hadoop:hadoop-azure:{hadoop_version()}" in missing[0]
    assert missing[1].startswith("sink.files.path: s3://b/h: Spark knows no file system s3://: use s3a://")
    assert hadoop_version()[0].isdigit()


@pytest.mark.parametrize(
    ("properties", "sets"),
    [
        ({"sink.files.path": "s3a://b/h"}, ("s3",)),
        ({"checkpoint.location": "S3A://b/c", "sink.files.path": "hdfs://n/h"}, ("s3",)),
        ({"sink.files.path": "/h"}, ()),
        ({"sink.files.path": "s3a://b/h", "spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}, ()),
        ({"sink.files.path": "s3a://b/h", "spark.hadoop.fs.s3a.impl": "com.acme.S3"}, ()),
    ],
)
def test_the_client_of_s3_is_among_the_pinned_jars(properties: dict[str, str], sets: tuple[str, ...]) -> None:
    assert missing_clients(properties) == []
    assert client_sets(properties) == sets


def test_the_pinned_client_of_s3_is_of_the_version_of_sparks_hadoop() -> None:
    assert f"hadoop-aws-{hadoop_version()}.jar" in {jar.filename for jar in load_manifest().members("s3")}
