"""Whether Spark has the client of a remote file system that a job names; asked without a JVM."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from spark_jobs.spark.session import is_submitted

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Options that hold an address of Hadoop's.
_ADDRESSES: Final = (
    "checkpoint.location",
    "sink.files.path",
    "source.files.path",
    "source.history.path",
    "source.savepoint",
    "savepoint.location",
)
#: Schemes whose client pyspark does not bring: the jar that has it, and how to name it for ``spark.jars.packages``.
_CLIENTS: Final = {
    "s3a": ("hadoop-aws", "org.apache.hadoop:hadoop-aws:{hadoop}"),
    "abfs": ("hadoop-azure", "org.apache.hadoop:hadoop-azure:{hadoop}"),
    "abfss": ("hadoop-azure", "org.apache.hadoop:hadoop-azure:{hadoop}"),
    "wasb": ("hadoop-azure", "org.apache.hadoop:hadoop-azure:{hadoop}"),
    "wasbs": ("hadoop-azure", "org.apache.hadoop:hadoop-azure:{hadoop}"),
    "gs": ("gcs-connector", "com.google.cloud.bigdataoss:gcs-connector:hadoop3-<version>"),
}
#: Schemes whose client is a set of pinned jars.
_PINNED: Final = {"s3a": "s3"}
#: Schemes that Hadoop's own client knows.
_BUILT_IN: Final = frozenset({"", "file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "har", "ftp", "http", "https"})
#: Spark's options that add jars.
_JARS: Final = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


def hadoop_version() -> str:
    """The version of Hadoop's client that pyspark brings: a client that is added must have the same."""
    for jar in _list_jars():
        match = re.match(r"hadoop-client-api-(.+)\.jar\Z", jar)
        if match:
            return match.group(1)
    return "<the version of Spark's hadoop-client>"


def _list_jars() -> list[str]:
    """Names of the jars that pyspark brings, or that were added to its folder."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    return sorted(jar_path.name for jar_path in (Path(spec.origin).parent / "jars").glob("*.jar"))


def client_sets(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The sets of pinned jars with clients of file systems that a job names and that nothing else brings.

    Args:
        properties: the job's, as they were given.
    """
    if is_submitted():
        return ()  # its JVM runs already
    schemes = {urlsplit(properties.get(option, "")).scheme.lower() for option in _ADDRESSES}
    return tuple(
        jars
        for scheme, jars in _PINNED.items()
        if scheme in schemes
        and f"spark.hadoop.fs.{scheme}.impl" not in properties
        and not _has_jar(_CLIENTS[scheme][0], properties)
    )


def _has_jar(jar: str, properties: Mapping[str, str]) -> bool:
    """Whether pyspark's folder, or an option of Spark's, brings a jar of that name."""
    return any(jar in jar_list for jar_list in (*_list_jars(), *(properties.get(name, "") for name in _JARS)))


def missing_clients(properties: Mapping[str, str]) -> list[str]:
    """A complaint for each address in a job's properties whose file system Spark has no client for.

    Args:
        properties: the job's, as they were given.
    """
    if is_submitted():
        return []  # ``spark-submit`` may bring jars that are named nowhere here
    complaints = []
    for option in _ADDRESSES:
        scheme = urlsplit(properties.get(option, "")).scheme.lower()
        if scheme in _BUILT_IN or f"spark.hadoop.fs.{scheme}.impl" in properties:
            continue
        jar, package = _CLIENTS.get(scheme, (None, None))
        if jar is None or package is None:
            advice = (
                "use s3a:// (s3:// and s3n:// are names of other programs)"
                if scheme in ("s3", "s3n")
                else "correct it, or add the jars of its file system (spark.jars.packages) and name its class in "
                f"spark.hadoop.fs.{scheme}.impl"
            )
            complaints.append(f"{option}: {properties[option]}: Spark knows no file system {scheme}://: {advice}")
        elif scheme not in _PINNED and not _has_jar(jar, properties):
            complaints.append(
                f"{option}: {properties[option]}: Spark comes without the client of {scheme}://: add its jar and "
                f"those it needs, spark.jars.packages: {package.format(hadoop=hadoop_version())}, or put them "
                "into spark.jars"
            )
    return complaints
