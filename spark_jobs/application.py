"""``python -m spark_jobs.application``: one process, one Spark driver, many flows. A worker's tasks start it.

It listens on a Unix domain socket. One connection is one flow: the client sends the job's configuration as one JSON line and
reads that flow's events; the line ``stop`` stops the flow after its batch, and so does the end of the connection. Events of the
connection itself are ``accepted`` (first), ``log`` (a line of the flow's log) and ``ended`` (last, with the exit code).

Threads: the caller's accepts connections; each flow has one that runs its ``Runner`` and one that reads its connection. Each
flow has a session and a scheduler pool of its own in the driver that all share.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, Retriable
from spark_jobs import run
from spark_jobs.control import AlreadyRuns, FileLock
from spark_jobs.flows.address import ApplicationAddress, describe_refusal, spark_settings, why_end
from spark_jobs.flows.output import FLOW, FlowLines, FlowOutput
from spark_jobs.preview.limits import Limit
from spark_jobs.preview.request import from_message
from spark_jobs.spark.gateway import gateway_of
from spark_jobs.spark.jvm import JvmOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from spark_jobs.job import Job
    from spark_jobs.preview.request import PreviewMessage
    from spark_jobs.runner import Runner

_log = logging.getLogger("spark_jobs.application")
#: Further sets of pinned jars that flows may need. The driver has them from its start: a later flow can't add them.
KNOWN_JARS: Final = ("delta", "s3")
_POLL_S: Final = 0.2
#: How long flows may take to report that the JVM has ended, seconds.
_LAST_WORDS_S: Final = 20.0
#: How long a start waits for the end of an earlier application of this name, seconds.
_PREDECESSOR_S: Final = 60.0
_LONGEST_CONFIGURATION: Final = 1 << 24
#: How long a flow may take to end before its query starts, seconds: the driver may be starting.
_START_STOP_S: Final = 150.0


class Unfit(Fatal):
    """A flow does not fit into the running driver."""


class Restarting(Retriable):
    """The application ends; the next one takes the flow."""


class Application:
    """The driver that flows share, and the flows.

    Args:
        name: shown to people and by Spark.
        longest_idle_s: how long it waits for the next flow before it ends.
        known_jars: further sets of pinned jars that later flows may need.
    """

    def __init__(self, name: str, longest_idle_s: float, known_jars: Sequence[str] = KNOWN_JARS) -> None:
        self.name = name
        self.output = JvmOutput(self._say_to_flow)
        #: Spark's settings of the running driver; empty before it starts.
        self.settings: dict[str, str] = {}
        self._longest_idle_s = longest_idle_s
        self._known_jars = known_jars
        self._starting = threading.Lock()
        self._spark: SparkSession | None = None
        self._jars: frozenset[str] = frozenset()
        self._flows: list[ApplicationFlow] = []
        self._idle_since = time.monotonic()
        self._starter_gone = False
        self._asked = ""
        self._broken = ""

    # What flows use.

    def session(self, job: Job) -> SparkSession:
        """A session for one flow; starts the driver for the first one. Blocks.

        Raises:
            Fatal: the flow does not fit into this driver, or the driver can't start.
            Retriable: the driver has ended; the next application takes the flow.
        """
        return self.open_session(job.name, spark_settings(job.config.raw), job.jar_sets())

    def open_session(self, name: str, required: dict[str, str], needed: Sequence[str] = ()) -> SparkSession:
        """``session`` for a flow of this name, with these settings of Spark and sets of jars. Blocks; raises as that."""
        with self._starting:
            if self._broken:
                raise Restarting(f"the Spark application {self.name} ends: {self._broken}")
            if self._spark is None:
                try:
                    self._start_spark(required, needed)
                except BaseException as error:
                    # What is left of a start that failed would be used by the next one, settings included.
                    self._broken = f"its driver could not start: {error}"
                    raise
            spark = self._spark
        assert spark is not None, "started above"  # noqa: S101 - for the type checker
        reason = describe_refusal(self.name, name, self.settings, required)
        missing = sorted(set(needed) - self._jars)
        if missing:
            reason = (
                f"the running Spark application {self.name} has no jars for {', '.join(missing)}: they could not be "
                f"downloaded when it started. Restart its flows once they can be, or give {name} a driver of its own "
                "(spark.application=own)"
            )
        if reason and not any(flow.busy for flow in list(self._flows)):
            self.ask_to_end("no flow uses it, and the next one has other settings")
            raise Restarting(f"the Spark application {self.name} restarts with the settings of the flow {name}")
        if reason:
            raise Unfit(reason)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        return spark.newSession()

    def _start_spark(self, required: dict[str, str], needed: Sequence[str]) -> None:
        from spark_jobs.spark.session import build_session, fetch_jars
        from worker.fetch.errors import StackError

        sets = {*self._known_jars, *needed}
        try:
            fetch_jars(("spark", *sorted(sets)))
        except StackError as error:
            sets = set(needed)
            _log.warning("flows of this application can't use all sinks: %s", error)
        settings = {name: value for name, value in required.items() if name != "spark.master"}
        conf = {"spark.scheduler.mode": "FAIR", **settings, "spark.sql.streaming.stopTimeout": "20000"}
        master = required["spark.master"]
        spark = build_session(self.name, master=master, conf=conf, extra_jars=sorted(sets), output=self.output)
        spark.sparkContext.setLogLevel("WARN")
        self._spark, self.settings, self._jars = spark, required, frozenset(sets)
        gateway: Any = gateway_of(spark)
        threading.Thread(target=self._watch_jvm, args=(gateway.proc,), name="jvm-watch", daemon=True).start()

    def _watch_jvm(self, process: Any) -> None:
        code = process.wait()
        self._broken = self._broken or f"Spark's JVM (process {process.pid}) ended with code {code}"

    def say(self, line: str) -> None:
        """A line of no flow's: goes to the log of the flow that has been here longest, or to the process's own output."""
        if not self._say_to_flow(line):
            with contextlib.suppress(OSError):
                os.write(2, f"application {self.name}: {line}\n".encode())

    def _say_to_flow(self, line: str) -> bool:
        """Whether there is a flow that gets the line."""
        # The JVM's lines must not go to file descriptor 2 here: while the JVM starts, that is the pipe that they come from.
        return any(flow.lines.say(f"application {self.name}: {line}") for flow in list(self._flows))

    def abort(self, reason: str) -> None:
        """End the process with all that it started, at once: something in it can't be ended alone."""
        self.say(f"ends at once with all flows: {reason}")
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    # The process.

    def ask_to_end(self, reason: str) -> None:
        """End after the flows' batches; safe in a signal handler."""
        self._asked = self._asked or reason

    def watch_starter(self, pipe: int) -> None:
        """Blocks until the process that holds the other end of ``pipe`` has ended."""
        with contextlib.suppress(OSError):
            while os.read(pipe, 4096):
                pass
        self._starter_gone = True

    def _why_end(self) -> str:
        self._flows = [flow for flow in self._flows if not flow.ended.is_set()]
        now = time.monotonic()
        if self._flows:
            self._idle_since = now
        return why_end(
            flows=len(self._flows),
            idle_s=now - self._idle_since,
            longest_idle_s=self._longest_idle_s,
            starter_gone=self._starter_gone,
            asked=self._asked,
            broken=self._broken,
        )

    def serve(self, listener: socket.socket, path: Path) -> int:
        """Host flows until the application ends; returns the exit code. Closes ``listener`` and removes ``path``."""
        try:
            while not (reason := self._why_end()):
                if select.select([listener], [], [], _POLL_S)[0]:
                    connection, _ = listener.accept()
                    flow = ApplicationFlow(self, connection)
                    self._flows.append(flow)
                    threading.Thread(target=flow.serve, name="flow", daemon=True).start()
        finally:
            # Whoever connects from now on is refused and starts the next application.
            listener.close()
            path.unlink(missing_ok=True)
        _log.info("the application ends: %s", reason)
        for flow in self._flows:
            flow.stop(f"the Spark application {self.name} ends: {reason}")
        deadline = time.monotonic() + _LAST_WORDS_S
        for flow in self._flows:
            flow.ended.wait(max(0.0, deadline - time.monotonic()) if self._broken else None)
        self.close()
        return 1 if self._broken else 0

    def close(self) -> None:
        """End the driver, if it runs."""
        if self._spark is not None and not self._broken:
            with contextlib.suppress(Exception):
                self._spark.stop()


class ApplicationFlow:
    """One connection and the job that runs for it.

    Args:
        application: hosts it.
        connection: closed at the end.
    """

    def __init__(self, application: Application, connection: socket.socket) -> None:
        self.lines = FlowLines(connection)
        self.ended = threading.Event()
        self._application = application
        self._connection = connection
        self._runner: Runner | None = None
        self._previews = False
        self._preview_limit: Limit | None = None
        self._requests: list[tuple[str, BaseException | None]] = []
        self._lock = threading.Lock()
        self._limit_s = _START_STOP_S

    def serve(self) -> None:
        """Run the job that the client sends; blocks until its end."""
        FLOW.set(self.lines)
        self.lines.send("accepted", pid=os.getpid(), application=self._application.name)
        code = 1
        try:
            configuration_json, remainder = self._read_configuration()
            if not configuration_json:
                self._connection.close()
            elif (message := from_message(configuration_json)) is not None:
                code = self._answer_preview(message)
            else:
                threading.Thread(target=self._read_requests, args=(remainder,), name="flow-reader", daemon=True).start()
                code = run.run_text(configuration_json, self.lines, run.Attendance(self._begin_job, self._application))
        except Exception:  # noqa: BLE001 - other flows continue
            _log.exception("a flow ended by a mistake of the application")
        finally:
            self.lines.send("ended", code=code)
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            self.ended.set()

    def _answer_preview(self, message: PreviewMessage) -> int:
        """Send the answer to a request for a preview; the end of the connection ends the preview."""
        from spark_jobs.preview.serve import answer_preview

        limit = self._preview_limit = Limit(message.request.timeout_s)

        def cancel_at_end() -> None:
            while self._receive_bytes():
                pass
            limit.cancel("the client is gone")
            self._connection.close()

        def open_session(name: str, settings: dict[str, str]) -> SparkSession:
            spark = self._application.open_session(name, settings)
            self._previews = True
            return spark

        threading.Thread(target=cancel_at_end, name="preview-reader", daemon=True).start()
        answer = answer_preview(message, open_session, limit)
        self.lines.send("previewed", **answer)
        return 0 if "result" in answer else 1

    def _read_configuration(self) -> tuple[str, bytes]:
        """The first line that the client sends, and what came after it; empty if the client has gone."""
        buffer = b""
        while b"\n" not in buffer:
            received = self._receive_bytes()
            if not received or len(buffer) > _LONGEST_CONFIGURATION:
                return "", b""
            buffer += received
        line, _, remainder = buffer.partition(b"\n")
        return line.decode("utf-8", "replace"), remainder

    def _receive_bytes(self) -> bytes:
        try:
            return self._connection.recv(1 << 16)
        except OSError:
            return b""

    @property
    def busy(self) -> bool:
        """Whether its job uses the driver."""
        return (self._runner is not None or self._previews) and not self.ended.is_set()

    def _begin_job(self, runner: Runner) -> None:
        with self._lock:
            self._runner = runner
            self._limit_s = runner.job.config["stop.timeout.ms"] / 1000 + run.GRACE_S
            for reason, error in self._requests:
                _end_job(runner, reason, error)

    def stop(self, reason: str, error: BaseException | None = None) -> None:
        """End the job after its batch, or with ``error`` at once; may be called before the job begins."""
        with self._lock:
            self._requests.append((reason, error))
            if self._preview_limit is not None:
                self._preview_limit.cancel(reason)
            if self._runner is not None:
                _end_job(self._runner, reason, error)

    def _read_requests(self, buffer: bytes) -> None:
        """Do what the client asks, until its connection ends; a job that hangs then ends the whole process."""
        asked = False
        while True:
            *lines, buffer = buffer.split(b"\n")
            if b"stop" in lines and not asked:
                asked = True
                self.stop("the worker stops it")
            received = self._receive_bytes()
            if not received:
                break
            buffer = (buffer + received)[-4096:]
        if asked:
            self.stop(
                "given up", Retriable("the job was given up by its worker, which waited for its end as long as it may")
            )
        else:
            self.stop("the supervisor is gone")
        if not self.ended.wait(self._limit_s):
            # The job may run somewhere else by now.
            name = "a flow" if self._runner is None else f"the flow {self._runner.job.name}"
            self._application.abort(f"{name} was asked to stop and did not end within {self._limit_s:g} s")
        self._connection.close()  # by the thread that reads it: no other thread waits in it


def _end_job(runner: Runner, reason: str, error: BaseException | None) -> None:
    if error is None:
        runner.stop(reason)
    else:
        runner.fail(error)


def _lock_application(address: ApplicationAddress) -> FileLock | None:
    """The lock of the running application; None if another one keeps it. Waits for one that is ending."""
    lock = FileLock(address.lock)
    deadline = time.monotonic() + _PREDECESSOR_S
    while True:
        try:
            lock.acquire(f"application {address.name}")
        except AlreadyRuns:
            if time.monotonic() > deadline:
                return None
            time.sleep(_POLL_S)
        else:
            return lock


def main(argv: Sequence[str] | None = None) -> int:
    """Run an application; returns the exit code."""
    parser = argparse.ArgumentParser(prog="spark_jobs.application", description="Hosts flows in one Spark driver.")
    parser.add_argument("folder", type=Path, help="private folder of sockets")
    parser.add_argument("key", help="names its files there")
    parser.add_argument("name", help="for people")
    parser.add_argument("--idle-s", type=float, default=60.0, help="how long to wait for a flow before it ends")
    parser.add_argument("--previews", action="store_true", help="for previews alone")
    parser.add_argument("--detached", action="store_true", help="it does not end with the process that starts it")
    options = parser.parse_args(argv)
    address = ApplicationAddress(options.name, options.folder, options.key)
    lock = _lock_application(address)
    if lock is None:
        sys.stderr.write(f"millrace: an earlier Spark application {address.name} does not end (lock: {address.lock})\n")
        return 1
    # Previews have no sinks, and so need none of their jars.
    application = Application(address.name, options.idle_s, () if options.previews else KNOWN_JARS)
    sys.stdout = sys.stderr = FlowOutput(application.say)
    run.set_up_logs("INFO")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: application.ask_to_end("a signal"))
    if not options.detached:
        threading.Thread(target=application.watch_starter, args=(0,), name="starter", daemon=True).start()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    address.socket.unlink(missing_ok=True)  # of a process that was killed
    listener.bind(str(address.socket))
    address.socket.chmod(0o600)
    listener.listen(128)
    return application.serve(listener, address.socket)


if __name__ == "__main__":
    run.end_process(main())
