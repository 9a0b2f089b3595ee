"""A driver of the kit's own, which writes one batch and is killed meanwhile, with all Python that it has in Spark's workers.

It uses the JVM of the caller's session, which saves most of its start; or a JVM of its own, which is killed with it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Any, Final, Self

from spark_jobs.spark.gateway import gateway_of
from spark_jobs.testing.model import RuleBroken
from worker.fetch.java import FAST_START
from worker.process_tree import list_children

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from spark_jobs.testing.batches import BatchData

_READY: Final = b"ready\n"
_WRITTEN: Final = b"written\n"
_START_S: Final = 120.0


class Child:
    """One driver process. A context manager; its end kills it.

    Args:
        properties: the job's.
        spark: the session whose JVM it uses; None: one of its own.
    """

    def __init__(self, properties: Mapping[str, str], spark: SparkSession | None) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(reader for reader in sys.path if reader)}
        self._jvm = 0
        if spark is not None:
            gateway: Any = gateway_of(spark)
            self._jvm = gateway.proc.pid
            environment |= {
                "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
                "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
            }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "spark_jobs.testing.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self._said: list[bytes] = []
        self._errors: list[bytes] = []
        self._news = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read_stream, args=(stream, lines), daemon=True)
            for stream, lines in ((self._process.stdout, self._said), (self._process.stderr, self._errors))
        ]
        for reader in self._readers:
            reader.start()
        self._send_value(dict(properties))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(10)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def wait_ready(self) -> None:
        """Blocks until it has a session.

        Raises:
            RuleBroken: it ended.
        """
        with self._news:
            self._news.wait_for(lambda: _READY in self._said or not self.alive(), _START_S)
        if _READY not in self._said:
            raise RuleBroken(
                f"the child process ended or hangs: {b''.join(self._errors[-20:]).decode(errors='replace')}"
            )

    def write(self, data: BatchData) -> None:
        """Let it write a batch; returns at once."""
        self._send_value(data)

    def written(self) -> bool:
        """Whether it has written the batch.

        Raises:
            RuleBroken: it failed to.
        """
        if not self.alive() and _WRITTEN not in self._said and self._process.returncode > 0:
            raise RuleBroken(f"the child process failed: {b''.join(self._errors[-20:]).decode(errors='replace')}")
        return _WRITTEN in self._said

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def killed_by(self) -> int:
        """The number of the signal that ended the process; 0 where none did, or it runs."""
        return -min(self._process.returncode or 0, 0)

    def kill(self) -> None:
        """SIGKILL for the driver, everything that it started, and Spark's Python workers. Any thread may call it."""
        workers = (
            [worker for daemon in list_children(self._jvm) for worker in list_children(daemon)] if self._jvm else []
        )
        for number in (*_process_family(self._process.pid), *workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def _send_value(self, value: Any) -> None:
        stream = self._process.stdin
        assert stream is not None, "made with a pipe"  # noqa: S101 - for the type checker
        with contextlib.suppress(BrokenPipeError):  # it has ended: who waits for it says why
            pickle.dump(value, stream)
            stream.flush()

    def _read_stream(self, stream: IO[bytes], lines: list[bytes]) -> None:
        for line in stream:
            with self._news:
                lines.append(line)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


def _process_family(pid: int) -> list[int]:
    return [pid, *(descendant for child in list_children(pid) for descendant in _process_family(child))]


def _attach_session() -> SparkSession:
    """The session of the JVM that the environment names, for this process."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    scala = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(scala)
    return SparkSession(SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf())))


def main() -> None:
    """The child: properties and then a batch come as pickles by standard input."""
    from spark_jobs import registry
    from spark_jobs.spark.filesystems import client_sets
    from spark_jobs.spark.session import build_session, is_submitted
    from spark_jobs.testing.kit import make_sink, parse_config

    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a sink prints goes elsewhere
    config = parse_config(pickle.load(sys.stdin.buffer))  # noqa: S301 - from the process that started this one
    spark = (
        _attach_session()
        if is_submitted()
        else build_session(
            "kit",
            master="local[2]",
            extra_jars=(*registry.sink_class(config["sink.type"]).jars(config), *client_sets(config.raw)),
            conf={"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": " ".join(FAST_START)},
        )
    )
    out.write(_READY)
    data: BatchData = pickle.load(sys.stdin.buffer)  # noqa: S301 - as above
    batch = data.frames(spark)
    sink = make_sink(config, spark)
    sink.open()
    sink.write(batch)
    out.write(_WRITTEN)
    sys.stdin.buffer.read()  # until it is killed


if __name__ == "__main__":
    main()
