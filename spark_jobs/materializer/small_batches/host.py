"""A process next to the driver that merges small batches, where Spark's tasks would take longer than the merge.

Spark hands tasks to any of its Python workers, so that buckets move between processes and need a new producer each time; and a
task costs the JVM more than some hundred records do. This process keeps its buckets and reads their records from Kafka itself.
It may die at any moment like a Python worker: the runner retries the batch.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Final

from connectors.errors import Retriable
from spark_jobs.materializer.passes import Pass, PassRequest
from spark_jobs.spark.causes import crash_of
from spark_jobs.spark.session import is_local
from spark_jobs.spark.watchdog import CRASH_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.contract import JobContext
    from spark_jobs.materializer.config import BucketOptions
    from spark_jobs.materializer.passes import PassAnswer, PassRange, Result

_END_S: Final = 10.0


class MergeHost:
    """The process, from the driver's side: started by the first batch. ``run`` is called by one thread at a time.

    Args:
        isolation: ``source.isolation.level``.
    """

    def __init__(self, isolation: str) -> None:
        self._isolation = isolation
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        #: Topics whose options the process has.
        self._sent: dict[str, BucketOptions] = {}
        self._given_up = threading.Event()

    @classmethod
    def of(cls, context: JobContext) -> MergeHost | None:
        """The one of a job; None where Spark's tasks merge all batches."""
        config = context.config
        if not config["materializer.small.batch.records"] or config["materializer.buckets"]:
            return None
        if config["source.type"] != "kafka" or not config["source.fail.on.data.loss"]:
            return None  # Spark's tasks leave out what is gone
        if not is_local(str(context.spark.sparkContext.master)):
            return None
        return cls(config["source.isolation.level"])

    def run(
        self, by_topic: Mapping[str, BucketOptions], spans: Mapping[tuple[str, int], PassRange]
    ) -> list[tuple[str, Result]]:
        """A pass over each bucket of ``spans``, several at a time. Blocks; errors of ours are in the results.

        Raises:
            Retriable: the process died, or the batch was given up.
            RuntimeError: a fault of the program; with the trace.
        """
        new = {topic: options for topic, options in by_topic.items() if self._sent.get(topic) is not options}
        try:
            connection = self._connect_process()
            request = PassRequest(
                [Pass(*bucket, spans[bucket]) for bucket in sorted(spans)],
                [_pickle_options(topic, options) for topic, options in new.items()],
                self._isolation,
            )
            connection.send(request)
            self._sent |= new
            answer: PassAnswer = connection.recv()
        except (EOFError, OSError) as error:
            raise self._make_death_error() from error
        if answer.trace:
            self.close()  # what it holds may be anything
            raise RuntimeError(f"the merge failed: {answer.trace}")
        for topic, result in answer.results:
            letters = by_topic[topic].dead_letters
            if result.dead and letters is not None and letters.counter is not None:
                letters.counter.add(result.dead)
        return list(answer.results)

    def give_up(self) -> None:
        """End the process, and what ``run`` waits for; from any thread."""
        self._given_up.set()
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process. Waits for it."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._connection = self._folder = None
        self._sent = {}

    def _connect_process(self) -> Connection:
        if self._given_up.is_set():
            raise Retriable("the batch is given up")
        if self._connection is not None:
            return self._connection
        self._folder = tempfile.TemporaryDirectory(prefix="millrace-host-")
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "spark_jobs.materializer.small_batches.host_process",
                    str(theirs.fileno()),
                    self._folder.name,
                ],
                stdin=subprocess.DEVNULL,
                stdout=2,  # the driver's own carries events
                pass_fds=[theirs.fileno()],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    CRASH_FOLDER: self._folder.name,
                },
            )
        self._connection = Connection(ours.detach())
        return self._connection

    def _make_death_error(self) -> Exception:
        """The error for a process that is gone."""
        said = ""
        if self._process is not None and self._folder is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._process.wait(_END_S)
                said = Path(self._folder.name, str(self._process.pid)).read_text("utf-8", "replace").partition("\n")[0]
        self.close()
        return Retriable("the batch is given up") if self._given_up.is_set() else crash_of(said)


def _pickle_options(topic: str, options: BucketOptions) -> bytes:
    """The options of a topic without what counts dead letters: that is this process's."""
    from pyspark import cloudpickle

    letters = options.dead_letters
    if letters is not None:
        options = replace(options, dead_letters=letters.uncounted())
    data: bytes = cloudpickle.dumps((topic, options), pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
    return data
