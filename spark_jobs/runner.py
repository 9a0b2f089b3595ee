"""Runs one job: the streaming query, its batches into the sink, retries, the end.

Threads: the caller's (``Runner.run``: starts, watches, idles, ends) and Spark's, which calls ``_process_batch`` for each
    micro-batch.
The sink is only ever called under ``_busy``.
"""

from __future__ import annotations

import contextvars
import logging
import os
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, MillraceError, Retriable
from spark_jobs import registry
from spark_jobs.config.schema_options import SchemaPolicies
from spark_jobs.contract import JobContext
from spark_jobs.dead_letters import prepare_topic
from spark_jobs.execution.batches import LOOK_S, JobBatches
from spark_jobs.execution.retries import StepRetries, StopRequested
from spark_jobs.execution.run_progress import RunProgress, read_durations
from spark_jobs.inputs.contract import InputRun
from spark_jobs.kafka import ranges
from spark_jobs.kafka.lag import KafkaView
from spark_jobs.reports import troubles
from spark_jobs.reports.troubles import Troubles
from spark_jobs.rows.schema_watch import SchemaWatch
from spark_jobs.savepoints import SAVEPOINT
from spark_jobs.savepoints.requests import Inbox, SavepointAnswer, answer_request
from spark_jobs.savepoints.start import start_from_savepoint
from spark_jobs.spark import jvm
from spark_jobs.spark.causes import cause_of, describe_error, may_pass
from spark_jobs.spark.checkpoint import LocalFolder, open_folder, write_directly
from spark_jobs.spark.gateway import gateway_of
from spark_jobs.spark.session import build_session, is_submitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.inputs.contract import Input
    from spark_jobs.job import Job
    from spark_jobs.reports.progress import EventWriter
    from spark_jobs.spark.checkpoint import Folder

_log = logging.getLogger(__name__)
_IDLE_S: Final = 2.0
_WATCH_S: Final = 0.1
#: A sign of life at least this often, also without input.
_HEARTBEAT_S: Final = 10.0
#: How long a batch that is written may take into the checkpoint's commits, while a savepoint waits for it.
_COMMIT_S: Final = 60.0
#: A query that lived for so long ended by a new fault, not by the one before.
_STABLE_S: Final = 600.0


class Runner:
    """One run of a job.

    Args:
        job: what to run.
        events: gets the events of the run.
        guard: called with the session once it is there, before the checkpoint is touched; what it returns is called at the end
            (the lease of a remote checkpoint).
        spark: a session to use, which stays; None: the job makes its own.
        output: what the JVM of ``spark`` writes.
    """

    def __init__(
        self,
        job: Job,
        events: EventWriter,
        guard: Callable[[SparkSession, Runner], Callable[[], None]] | None = None,
        *,
        spark: SparkSession | None = None,
        output: jvm.JvmOutput | None = None,
    ) -> None:
        self._spark = spark
        self.job = job
        self.events = events
        self._guard = guard
        self._stop = threading.Event()
        self.reason = ""
        self._busy = threading.Lock()
        self._troubles = Troubles(events)
        self._progress = RunProgress(events, self._troubles)
        self._retries = StepRetries(job.config, self._troubles, self._stop, lambda: self._progress.last_batch)
        self._jvm_output = jvm.JvmOutput() if output is None else output
        self._batches = JobBatches(job, self._retries)
        self._error: BaseException | None = None
        self._current: int | None = None
        self._idled_at = 0.0
        self._inbox = Inbox(job.folder)
        self._folder: Folder
        self._input: Input | None = None

    # Control, from any thread.

    def stop(self, reason: str) -> None:
        """End the run after the batch that is being written; safe in a signal handler."""
        self.reason = self.reason or reason
        self._stop.set()

    def fail(self, error: BaseException) -> None:
        """End the run as failed, at once."""
        self._error = self._error or error
        self._stop.set()

    # The caller's thread.

    def run(self) -> int:
        """Run until the job ends; blocks. All errors become a failed event.

        Returns:
            The exit code: 0 ended as asked, 1 failed.
        """
        spark = self._spark
        release = None
        try:
            if spark is None:
                spark = build_session(
                    self.job.name,
                    master=self._find_spark_master(),
                    conf=self._spark_conf(),
                    extra_jars=self.job.jar_sets(),
                    output=self._jvm_output,
                )
                spark.sparkContext.setLogLevel("WARN")
            if self._guard is not None:
                release = self._guard(spark, self)
            try:
                self._run_query(spark)
            except StopRequested:
                _log.info("asked to stop before the query began")
            if self._error is not None:
                self._tell_failure(self._error, spark)
                return 1
        except BaseException as error:  # noqa: BLE001 - the process's last word
            self._tell_failure(error, spark)
            return 1
        finally:
            if self._input is not None:
                self._input.close()
            if release is not None:
                _let_go(release)
            if spark is not None and spark is not self._spark:
                _end_session(spark)
        self.events.emit("stopped", reason=self.reason or "done", batch=self._progress.last_batch)
        return 0

    def _find_spark_master(self) -> str | None:
        """The job's master; under ``spark-submit`` that one's, unless the job names one."""
        return None if is_submitted() and "spark.master" not in self.job.config.raw else self.job.master

    def _spark_conf(self) -> dict[str, str]:
        spark_options = self.job.config.prefixed("spark.")
        conf = {f"spark.{name}": value for name, value in spark_options.items() if name != "master"}
        # As long as the frame waits for a batch to end: it decides when to give up.
        return conf | {"spark.sql.streaming.stopTimeout": "20000"}

    def _run_query(self, spark: SparkSession) -> None:
        job = self.job
        self._folder = open_folder(job.checkpoint, spark)
        if isinstance(self._folder, LocalFolder):
            write_directly(spark)
        self._retries.retry(troubles.START, lambda: start_from_savepoint(job, spark, self._folder))
        progress = self._progress
        progress.begin(self._folder, self._batches, ranges.last_batch(self._folder, "commits"))
        job_input = self._input = registry.input_class(job.config["source.type"])(
            InputRun(job, self._folder, spark, self._retries.retry)
        )
        if progress.last_batch is not None:
            progress.position = job_input.position(progress.last_batch)
        schemas = SchemaWatch(SchemaPolicies.of(job.config), self._folder, self.events, tolerant=self._puts_aside())
        job_input.check(progress.last_batch)
        try:
            self._retries.retry(troubles.START, job_input.demand, longest_s=LOOK_S)
        except Retriable as error:
            raise Fatal(str(error)) from error
        log = logging.LoggerAdapter(logging.getLogger(f"spark_jobs.{job.name}"), {})
        context = JobContext(job.name, job.config, spark, log)
        if job.config["errors.deadletterqueue.topic.name"]:
            kafka = KafkaView(job.config)
            prepare_topic(job.config, kafka.admin)
            kafka.close()
        self._retries.retry(troubles.START, lambda: job_input.prepare(context))
        self._batches.begin(context, job_input, self._folder, schemas)
        progress.lag = job_input.watch(self._troubles, lambda: progress.last_batch)
        try:
            self._retries.retry(troubles.START, self._batches.sink.open)
            self._run_queries(spark)
        finally:
            progress.lag.close()
            self._batches.close()

    def _puts_aside(self) -> bool:
        """Whether records can be kept in a dead letter topic."""
        config = self.job.config
        return config["errors.tolerance"] == "all" and bool(config["errors.deadletterqueue.topic.name"])

    def _run_queries(self, spark: SparkSession) -> None:
        """Run one query after the other, until the job ends: Spark ends a query when Kafka is unavailable for minutes."""

        def run_query() -> bool:
            done, began = self._progress.last_batch, time.monotonic()
            query = self._start_query(spark)
            if not self._progress.reported_at:
                self._tell_start(spark)
            fault = None
            try:
                self._watch_query(query)
            finally:
                fault = self._end_query(query)
            self._progress.report(query)
            if fault is None:
                return True
            if self._progress.last_batch == done and time.monotonic() - began < _STABLE_S:
                raise fault
            _log.warning("the query ended and is started again: %s", fault)
            return False  # it worked for a while: this fault is not the one before

        while not self._retries.retry(troubles.QUERY, run_query):
            pass

    def _tell_start(self, spark: SparkSession) -> None:
        job = self.job
        self.events.emit(
            "started",
            pid=os.getpid(),
            jvm=_jvm_pid(spark),
            master=spark.sparkContext.master,
            batch=self._progress.last_batch,
            resumed=self._progress.last_batch is not None,
            checkpoint=job.checkpoint,
            starting_offsets=job.config["source.starting.offsets"],
            guarantee=job.guarantee,
            sink=job.sink_name,
            group=job.config["kafka.group.id"],
        )

    def _start_query(self, spark: SparkSession) -> Any:
        config = self.job.config
        writer = (
            self._get_input.stream(spark)
            .writeStream.foreachBatch(_in_this_context(self._process_batch))
            .option("checkpointLocation", self.job.checkpoint)
            .queryName(self.job.name)
        )
        if self.job.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{config['trigger.interval.ms']} milliseconds").start()

    def _watch_query(self, query: Any) -> None:
        """Until the query ends or a stop is asked for: progress, idle calls, signs of life."""
        every = min(_IDLE_S, max(0.1, self.job.config["trigger.interval.ms"] / 1000))
        self._progress.reported_at = time.monotonic()
        self._progress.lag.begin(self._get_input.start())
        while query.isActive and not self._stop.wait(_WATCH_S):
            self._progress.report(query)
            self._make_savepoint(query)
            if time.monotonic() - self._idled_at >= every and self._busy.acquire(blocking=False):
                try:
                    self._call_idle()
                finally:
                    self._busy.release()
            if time.monotonic() - self._progress.reported_at >= _HEARTBEAT_S:
                if not self._progress.position:
                    self._progress.lag.begin(self._get_input.start())
                if query.lastProgress:
                    self._troubles.passed(troubles.QUERY)  # it has asked Kafka, and found nothing new
                self._progress.refresh_lag()
                self._progress.tell(
                    {
                        "rows": 0,
                        "written": 0,
                        "duration_ms": 0,
                        "rows_per_s": 0.0,
                        "busy": self._busy.locked(),
                        "spark_ms": read_durations(query),
                    }
                )

    def _make_savepoint(self, query: Any) -> None:
        """Make the savepoint that is requested, between two batches, and answer the request."""
        request = self._inbox.next()
        if request is None or not self._busy.acquire(timeout=_WATCH_S):
            return  # while a batch is written, the request waits
        try:
            # Nothing begins now; the batch before may still be on its way into the checkpoint's commits.
            deadline = time.monotonic() + _COMMIT_S
            while self._current is not None and self._folder.read(f"commits/{self._current}") is None:
                if not query.isActive or time.monotonic() > deadline:
                    error = f"batch {self._current} was not committed"
                    self._inbox.answer(SavepointAnswer(request.id, request.name, error=error))
                    return
                time.sleep(0.02)
            answer = answer_request(request, self.job, self._batches.context.spark, self._folder)
            _log.info("savepoint %s: %s", request.location, answer.error or "made")
            if request.stop and not answer.error:
                self.stop(SAVEPOINT)
        finally:
            self._busy.release()
        self._inbox.answer(answer)

    def _call_idle(self) -> None:
        self._idled_at = time.monotonic()
        try:
            self._batches.sink.idle()
        except Exception as error:  # noqa: BLE001 - whatever it is fails the job, unless it may pass
            cause = cause_of(error)
            try:
                self._retries.count_crash(troubles.IDLE, cause)
            except Fatal as crashed:
                cause = crashed
            if not isinstance(cause, Retriable):
                self.fail(cause)
                return
            self._troubles.failed(troubles.IDLE, cause, batch=self._progress.last_batch, pause_s=_IDLE_S, quiet=True)
        else:
            self._retries.end_crashes(troubles.IDLE)
            self._troubles.passed(troubles.IDLE)

    def _end_query(self, query: Any) -> Retriable | None:
        """Let the batch that is being written end and be committed, then end the query.

        Returns:
            Why the query had ended before that, if another one may work.
        """
        limit = time.monotonic() + self.job.config["stop.timeout.ms"] / 1000
        while query.isActive and self._error is None and time.monotonic() < limit and not self._is_settled():
            time.sleep(0.02)
        if not query.isActive:
            error = query.exception()
            if error is not None and self._error is None and not self._stop.is_set():
                cause = self._explain_end(error)
                if isinstance(cause, Retriable):
                    return cause
                self._error = cause
            return None
        if self._error is None and not self._is_settled():
            _log.warning(
                "batch %s was not done in stop.timeout.ms=%d and is given up; it is repeated at the next start",
                self._current,
                self.job.config["stop.timeout.ms"],
            )
        if not self._is_settled():
            self._batches.sink.give_up()
        try:
            query.stop()
        except Exception as error:  # noqa: BLE001 - the session is stopped next, which ends what is left
            _log.warning("the query did not end in time: %s", str(error).splitlines()[0])
        return None

    def _is_settled(self) -> bool:
        """Whether no batch is between its beginning and its place in the checkpoint's commits."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            current = self._current
        finally:
            self._busy.release()
        return current is None or self._folder.read(f"commits/{current}") is not None

    def _tell_failure(self, error: BaseException, spark: SparkSession | None) -> None:
        cause = cause_of(error)
        trace = getattr(cause, "trace", None) or "".join(traceback.format_exception(cause))
        if not isinstance(error, MillraceError):
            lost = isinstance(error, OSError) or type(error).__name__.startswith("Py4JNetwork")
            gateway = None if spark is None else gateway_of(spark)
            death = jvm.describe_death(gateway, self._jvm_output, wait=lost)
            if death is not None:
                cause = Retriable(death)
        message = describe_error(cause)
        _log.error("the job failed: %s", message)
        self.events.emit(
            "failed",
            error=message,
            kind=type(cause).__name__,
            trace=trace[-20_000:],
            retriable=may_pass(cause),
            batch=self._progress.last_batch,
        )

    # Spark's thread.

    def _process_batch(self, frame: DataFrame, number: int) -> None:
        try:
            # Without the lock: a sink that waits for another one can be asked for a savepoint.
            self._batches.wait_for_others(number)
        except Exception as error:
            if not isinstance(error, StopRequested):
                self._error = self._error or error
            raise
        with self._busy:
            if time.monotonic() - self._idled_at >= 2 * _IDLE_S and not self._stop.is_set():
                self._call_idle()  # batches follow so closely that the other thread finds no gap
            if self._stop.is_set():
                raise StopRequested
            try:
                self._current = number
                self._progress.batch_done(self._batches.write(frame, number))
            except BaseException as error:
                self._current = None
                if not isinstance(error, StopRequested):
                    self._error = self._error or error
                raise

    @property
    def _get_input(self) -> Input:
        """The input, once the run has started."""
        if self._input is None:
            raise Fatal("the job has no input yet")
        return self._input

    def _explain_end(self, error: BaseException) -> BaseException:
        """The cause of the query's end in words: missing records if any are missing, else what Spark says."""
        missing = self._get_input.missing(self._progress.last_batch)
        return Fatal(missing) if missing else cause_of(error)


def _in_this_context(function: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """``function`` for a thread of Spark's, which gets the context variables of the caller: log lines find their flow."""
    context = contextvars.copy_context()

    def call(frame: DataFrame, number: int) -> None:
        for variable, value in context.items():
            variable.set(value)  # to stay: py4j logs a failure after the function has ended
        function(frame, number)

    return call


def _jvm_pid(spark: SparkSession) -> int | None:
    gateway: Any = gateway_of(spark)
    process = getattr(gateway, "proc", None)
    return None if process is None else int(process.pid)


def _let_go(release: Callable[[], None]) -> None:
    try:
        release()
    except Exception as error:  # noqa: BLE001 - the JVM may be gone; the lease expires in any case
        _log.warning("the lease on the checkpoint was not given back: %s", describe_error(error))


def _end_session(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception as error:  # noqa: BLE001 - the JVM may be gone already
        _log.debug("the session did not end cleanly: %s", error)
