"""The process of a ``host.MergeHost``: keeps buckets open, and merges small batches into them in threads. No Spark in it.

A bucket stays with one thread, and each thread has everything of its own: clients, caches, engines. The process ends at once
when its driver closes the connection or dies, as a Python worker of Spark does; an open transaction is left to the successor.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_jobs.materializer.passes import PassAnswer
from spark_jobs.materializer.residents import Residents, run_guarded
from spark_jobs.materializer.small_batches.input_reader import InputReader
from spark_jobs.reports.met_heartbeats import MetHeartbeats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.materializer.config import BucketOptions
    from spark_jobs.materializer.passes import Pass, PassRequest, Result

#: Passes at a time: most of a small one is waiting for Kafka's answers.
_THREADS: Final = 4
#: Batches between two looks for garbage.
_COLLECT_EVERY: Final = 200


class _Lane:
    """A thread with its own buckets, clients and engines."""

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[tuple[PassRequest, Sequence[Pass], queue.SimpleQueue[PassAnswer]]] = (
            queue.SimpleQueue()
        )
        self._residents = Residents()
        self._options: dict[str, BucketOptions] = {}
        self._reader: InputReader | None = None
        threading.Thread(target=self._run_requests, name="buckets", daemon=True).start()

    def begin(self, request: PassRequest, passes: Sequence[Pass], answers: queue.SimpleQueue[PassAnswer]) -> None:
        """Have the passes done one after the other, and an answer put."""
        self._todo.put((request, passes, answers))

    def _run_requests(self) -> None:
        while True:
            request, passes, answers = self._todo.get()
            try:
                for raw in request.topics:
                    # Unpickled here: threads share nothing.
                    topic, options = pickle.loads(raw)  # noqa: S301 - from our own driver
                    self._options[topic] = options
                answers.put(PassAnswer([(work.topic, self._run_pass(work, request.isolation)) for work in passes]))
            except Exception:  # noqa: BLE001 - the driver shows it
                answers.put(PassAnswer((), traceback.format_exc()))

    def _run_pass(self, work: Pass, isolation: str) -> Result:
        options = self._options[work.topic]
        if work.span.start < 0:
            return run_guarded(options, work.bucket, (), work.span, residents=self._residents)
        if self._reader is None:
            self._reader = InputReader(options.client, options.group, isolation)
        beats = MetHeartbeats()
        records = self._reader.records(work.topic, work.bucket, work.span, beats)
        try:
            result = run_guarded(options, work.bucket, records, work.span, residents=self._residents)
        finally:
            records.close()
        result.heartbeats += beats.take()
        return result


class _Lanes:
    """All threads, and which bucket is whose."""

    def __init__(self) -> None:
        self._lanes: list[_Lane] = []
        self._lane_of: dict[tuple[str, int], int] = {}

    def run(self, request: PassRequest) -> PassAnswer:
        """Do all passes of a request. Blocks."""
        shares: dict[int, list[Pass]] = {}
        for work in request.passes:
            number = self._lane_of.setdefault((work.topic, work.bucket), len(self._lane_of) % _THREADS)
            shares.setdefault(number, []).append(work)
        while len(self._lanes) < _THREADS:
            self._lanes.append(_Lane())
        answers: queue.SimpleQueue[PassAnswer] = queue.SimpleQueue()
        began = time.process_time()
        for number, lane in enumerate(self._lanes):
            passes = shares.get(number, [])
            if passes or request.topics:
                lane.begin(request, passes, answers)
        count = _THREADS if request.topics else len(shares)
        done = [answers.get() for _ in range(count)]
        trace = next((answer.trace for answer in done if answer.trace), "")
        results = [result for answer in done for result in answer.results]
        for _, result in results:  # threads can't tell their CPU from that of the clients' threads
            result.cpu_s = (time.process_time() - began) / len(results)
        return PassAnswer(results, trace)


def serve_requests(connection: Connection) -> None:
    """Answer requests until the process ends. One at a time."""
    requests: queue.SimpleQueue[PassRequest] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answer_all()
        except BaseException:  # noqa: BLE001 - whatever it is
            traceback.print_exc()
            os._exit(1)  # the driver waits for no answer of a process that is gone

    def answer_all() -> None:
        lanes, count = _Lanes(), 0
        while True:
            request = requests.get()
            connection.send(lanes.run(request))
            count += 1
            if count == 1:
                # What lives now stays: it is not looked at again.
                gc.collect()
                gc.freeze()
            elif count % _COLLECT_EVERY == 0:
                gc.collect()

    # Decoding makes many small objects and no cycles: the collector would take half of the time.
    gc.disable()
    threading.Thread(target=answer, name="requests", daemon=True).start()
    while True:
        requests.put(connection.recv())


def main(descriptor: int, folder: str) -> None:
    """Serve the connection of this descriptor; last words go into a file of ``folder`` with the process's number."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends it
    with Path(folder, str(os.getpid())).open("w", encoding="utf-8") as words:
        faulthandler.enable(words)
        try:
            serve_requests(Connection(descriptor))
        except (EOFError, OSError):
            os._exit(0)  # the driver is done, or gone


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
