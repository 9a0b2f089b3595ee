"""Runs one job: the streaming query, its batches into the sink, retries, the end.

Threads: the caller's (``Runner.run``: starts, watches, idles, ends) and Spark's, which calls ``_batch`` for each micro-batch.
The sink is only ever called under ``_busy``.
"""
from __future__ import annotations

import json
import logging
import os
import threading
import time
import traceback
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, MillraceError, Retriable
from spark_jobs import clients, ranges
from spark_jobs.causes import cause_of, may_pass
from spark_jobs.checkpoint import open_folder
from spark_jobs.contract import RAW_COLUMNS, Batch, JobContext
from spark_jobs.dead_letters import prepare
from spark_jobs.lag import KafkaView
from spark_jobs.masked_frames import NoRecords, mask_changes
from spark_jobs.masks import rules_of
from spark_jobs.metrics import PREFIX
from spark_jobs.progress import lags, nested
from spark_jobs.session import build_session, submitted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.checkpoint import Folder
    from spark_jobs.contract import Sink, Source
    from spark_jobs.job import Job
    from spark_jobs.progress import Events

_log = logging.getLogger(__name__)
#: Which topic had which id when the job first read it; in the checkpoint.
TOPICS_FILE: Final = "_millrace_topics"
_IDLE_S: Final = 2.0
_WATCH_S: Final = 0.1
#: A sign of life at least this often, also without input.
_HEARTBEAT_S: Final = 10.0
_LAG_S: Final = 5.0


class StopRequested(Exception):
    """Raised into Spark to end the query before it begins another batch."""


class Runner:
    """One run of a job.

    Args:
        job: what to run.
        events: told what happens.
        guard: called with the session once it is there, before the checkpoint is touched; what it returns is called at the end
            (the lease of a remote checkpoint).
        spark: a session to use, which stays; None: the job makes its own.
    """

    def __init__(self, job: Job, events: Events,
                 guard: Callable[[SparkSession, Runner], Callable[[], None]] | None = None, *,
                 spark: SparkSession | None = None) -> None:
        self._spark = spark
        self.job = job
        self.events = events
        self._guard = guard
        self._stop = threading.Event()
        self.reason = ""
        self._busy = threading.Lock()
        self._kafka = KafkaView(job.config)
        self._batch_kafka = KafkaView(job.config)  # for the thread of batches: clients are not shared
        self._masks = rules_of(job.config)
        self._error: BaseException | None = None
        self._current: int | None = None
        #: Batches that the sink has, until they are seen in the checkpoint's commits.
        self._done: deque[dict[str, Any]] = deque()
        self._idled_at = 0.0
        self._told_at = 0.0
        self._position: ranges.Offsets = {}
        self._ends: ranges.Offsets = {}
        self._last_batch: int | None = None
        self._topic_ids: dict[str, str] = {}
        self.context: JobContext
        self._folder: Folder
        self._sink: Sink
        self._source: Source | None = None

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
                spark = build_session(self.job.name, master=self._master(), conf=self._spark_conf(),
                                      extra_jars=self.job.sink_class().jars(self.job.config))
                spark.sparkContext.setLogLevel("WARN")
            if self._guard is not None:
                release = self._guard(spark, self)
            try:
                self._run(spark)
            except StopRequested:
                _log.info("told to stop before the query began")
            if self._error is not None:
                self._tell_failure(self._error)
                return 1
        except BaseException as error:  # noqa: BLE001 - the process's last word
            self._tell_failure(error)
            return 1
        finally:
            self._kafka.close()
            if release is not None:
                release()
            if spark is not None and spark is not self._spark:
                _end_session(spark)
        self.events.emit("stopped", reason=self.reason or "done", batch=self._last_batch)
        return 0

    def _master(self) -> str | None:
        """The job's master; under ``spark-submit`` that one's, unless the job names one."""
        return None if submitted() and "spark.master" not in self.job.config.raw else self.job.master

    def _spark_conf(self) -> dict[str, str]:
        found = self.job.config.prefixed("spark.")
        conf = {f"spark.{name}": value for name, value in found.items() if name != "master"}
        # As long as the frame waits for a batch to end: it decides when to give up.
        return conf | {"spark.sql.streaming.stopTimeout": "20000"}

    def _run(self, spark: SparkSession) -> None:
        job = self.job
        self._folder = open_folder(job.checkpoint, spark)
        self._last_batch = ranges.last_batch(self._folder, "commits")
        if self._last_batch is not None:
            self._position = ranges.position(self._folder, self._last_batch) or {}
        self._load_topics()
        self._check_position()
        self._await_topics()
        log = logging.LoggerAdapter(logging.getLogger(f"spark_jobs.{job.name}"), {})
        self.context = JobContext(job.name, job.config, spark, log)
        prepare(job.config, self._kafka.admin)
        self._sink = job.sink_class()(self.context)
        try:
            self._open()
            query = self._start(spark)
            self.events.emit("started", pid=os.getpid(), jvm=_jvm_pid(spark), master=spark.sparkContext.master,
                             batch=self._last_batch, resumed=self._last_batch is not None, checkpoint=job.checkpoint,
                             starting_offsets=job.config["source.starting.offsets"], guarantee=job.guarantee,
                             sink=job.sink_name, group=job.config["kafka.group.id"])
            try:
                self._watch(query)
            finally:
                self._end(query)
            self._report(query)
        finally:
            for part in (self._sink, self._source):
                if part is not None:
                    part.close()

    def _open(self) -> None:
        """``sink.open``, again while the target is away, as for batches."""
        config = self.job.config
        begin, attempt = time.monotonic(), 0
        pause = config["errors.retry.delay.ms"] / 1000
        while True:
            attempt += 1
            try:
                self._sink.open()
            except Retriable as error:
                if 0 <= config["errors.retry.timeout.ms"] / 1000 < time.monotonic() - begin + pause:
                    raise
                self.events.emit("retrying", batch=self._last_batch, attempt=attempt, pause_s=round(pause, 3), error=str(error))
            else:
                return
            if self._stop.wait(pause):
                raise StopRequested
            pause = min(pause * 2, config["errors.retry.delay.max.ms"] / 1000)

    def _start(self, spark: SparkSession) -> Any:
        config = self.job.config
        reader = spark.readStream.format("kafka")
        for name, value in clients.spark_options(config).items():
            reader = reader.option(name, value)
        if config["source.topics"]:
            reader = reader.option("subscribe", ",".join(config["source.topics"]))
        else:
            reader = reader.option("subscribePattern", config["source.topics.pattern"])
        reader = (reader.option("startingOffsets", config["source.starting.offsets"]).option("includeHeaders", "true")
                  .option("failOnDataLoss", str(config["source.fail.on.data.loss"]).lower())
                  .option("maxOffsetsPerTrigger", str(config["source.max.offsets.per.trigger"]))
                  .option("kafka.isolation.level", config["source.isolation.level"]))
        if config["source.min.partitions"]:
            reader = reader.option("minPartitions", str(config["source.min.partitions"]))
        writer = reader.load().select(*RAW_COLUMNS).writeStream.foreachBatch(self._batch).option(
            "checkpointLocation", self.job.checkpoint).queryName(self.job.name)
        if self.job.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{config['trigger.interval.ms']} milliseconds").start()

    def _watch(self, query: Any) -> None:
        """Until the query ends or a stop is asked for: progress, idle calls, signs of life."""
        every = min(_IDLE_S, max(0.1, self.job.config["trigger.interval.ms"] / 1000))
        self._told_at = time.monotonic()
        while query.isActive and not self._stop.wait(_WATCH_S):
            self._report(query)
            if time.monotonic() - self._idled_at >= every and self._busy.acquire(blocking=False):
                try:
                    self._idle()
                finally:
                    self._busy.release()
            if time.monotonic() - self._told_at >= _HEARTBEAT_S:
                self._refresh_lag()
                self._tell_progress({"rows": 0, "written": 0, "duration_ms": 0, "rows_per_s": 0.0,
                                     "busy": self._busy.locked(), "spark_ms": _durations(query)})

    def _idle(self) -> None:
        self._idled_at = time.monotonic()
        try:
            self._sink.idle()
        except Retriable as error:
            _log.warning("between batches: %s; it is tried again", error)
        except Exception as error:  # noqa: BLE001 - whatever it is fails the job, unless it may pass
            found = cause_of(error)
            if not isinstance(found, Retriable):
                self.fail(found)
                return
            _log.warning("between batches: %s; it is tried again", found)

    def _end(self, query: Any) -> None:
        """Let the batch that is being written end and be committed, then end the query."""
        limit = time.monotonic() + self.job.config["stop.timeout.ms"] / 1000
        while query.isActive and self._error is None and time.monotonic() < limit and not self._settled():
            time.sleep(0.02)
        if not query.isActive:
            error = query.exception()
            if error is not None and self._error is None and not self._stop.is_set():
                self._error = self._explain(error)
            return
        if self._error is None and not self._settled():
            _log.warning("batch %s was not done in stop.timeout.ms=%d and is given up; it is done again at the next start",
                         self._current, self.job.config["stop.timeout.ms"])
        try:
            query.stop()
        except Exception as error:  # noqa: BLE001 - the session is stopped next, which ends what is left
            _log.warning("the query did not end in time: %s", str(error).splitlines()[0])

    def _settled(self) -> bool:
        """Whether no batch is between its beginning and its place in the checkpoint's commits."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            current = self._current
        finally:
            self._busy.release()
        return current is None or self._folder.read(f"commits/{current}") is not None

    def _tell_failure(self, error: BaseException) -> None:
        found = cause_of(error)
        trace = getattr(found, "trace", None) or "".join(traceback.format_exception(found))
        retriable = may_pass(found)
        _log.error("the job failed: %s", found)
        self.events.emit("failed", error=str(found) or type(found).__name__, kind=type(found).__name__, trace=trace[-20_000:],
                         retriable=retriable, batch=self._last_batch)

    # Progress.

    def _report(self, query: Any = None) -> None:
        """Tell of batches that were committed since the last call."""
        committed = []
        while self._done and (len(self._done) > 1 or self._folder.read(f"commits/{self._done[0]['batch']}") is not None):
            committed.append(self._done.popleft())
        if not committed:
            return
        self._position = committed[-1]["position"]
        self._refresh_lag()
        try:
            self._kafka.commit(self._position)
        except MillraceError as error:
            _log.warning("the consumer group %s shows an old position: %s", self.job.config["kafka.group.id"], error)
        durations = _durations(query)
        for done in committed:
            self._last_batch, self._position = done["batch"], done.pop("position")
            self._tell_progress(done | {"committed": True, "spark_ms": durations})

    def _refresh_lag(self) -> None:
        try:
            self._ends = self._kafka.ends(self._position)
        except MillraceError as error:
            _log.warning("the lag is not known: %s", error)

    def _tell_progress(self, fields: dict[str, Any]) -> None:
        self._told_at = time.monotonic()
        lag = lags(self._position, self._ends)
        metrics = {name.removeprefix(PREFIX): value for name, value in dict(self.context.metrics).items()}
        if self.context.dead_letters is not None and self.context.dead_letters.counter is not None:
            metrics["dead_letters_total"] = self.context.dead_letters.counter.value
        self.events.emit("progress", **({"batch": self._last_batch} | fields), position=nested(self._position), lag=nested(lag),
                         lag_total=sum(lag.values()), lag_max=max(lag.values(), default=0), metrics=metrics)

    # Spark's thread.

    def _batch(self, frame: DataFrame, number: int) -> None:
        with self._busy:
            if time.monotonic() - self._idled_at >= 2 * _IDLE_S and not self._stop.is_set():
                self._idle()  # batches follow so closely that the other thread finds no gap
            if self._stop.is_set():
                raise StopRequested
            try:
                self._current = number
                self._write(frame, number)
            except BaseException as error:
                self._current = None
                if not isinstance(error, StopRequested):
                    self._error = self._error or error
                raise

    def _write(self, frame: DataFrame, number: int) -> None:
        begin = time.monotonic()
        start, end = ranges.start_of(self._folder, number), ranges.position(self._folder, number) or {}
        existing = self._demand_records(start, end)
        earliest = {(topic, partition): offset for topic, each in existing.items() for partition, offset in each.first.items()}
        found = ranges.ranges(start, end, earliest)
        decoded: list[Any] = []
        masks = self._masks

        def changes() -> list[Any]:
            if not decoded:
                decoded.append(mask_changes(self._decoder().changes(batch), masks))
            result: list[Any] = decoded[0]
            return result

        batch = given = Batch(number, frame, found, changes)
        if masks and not self.job.materializes:
            given = replace(batch, raw=NoRecords())  # type: ignore[arg-type]  # it refuses whatever is asked
        rows = sum(after - first for first, after in found.values())
        written = self._attempt(given)
        took = time.monotonic() - begin
        self._done.append({"batch": number, "position": start | end, "rows": rows, "written": written,
                           "duration_ms": round(took * 1000), "rows_per_s": round(rows / max(took, 1e-3), 1)})

    def _decoder(self) -> Source:
        if self._source is None:
            self._source = self.job.source_class()(self.context)
        return self._source

    def _attempt(self, batch: Batch) -> int:
        """``sink.write`` until it is done, gives up or is told to stop."""
        config = self.job.config
        begin = time.monotonic()
        pause = config["errors.retry.delay.ms"] / 1000
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._sink.write(batch)
            except Exception as error:
                found = cause_of(error)
                if not isinstance(found, Retriable):
                    raise found from error
                limit = config["errors.retry.timeout.ms"] / 1000
                if 0 <= limit < time.monotonic() - begin + pause:
                    raise found from error
            _log.warning("batch %d, try %d: %s; next try in %.1f s", batch.id, attempt, found, pause)
            self.events.emit("retrying", batch=batch.id, attempt=attempt, pause_s=round(pause, 3), error=str(found))
            if self._stop.wait(pause):
                raise StopRequested  # the batch is not in the commits: the next start does it again
            pause = min(pause * 2, config["errors.retry.delay.max.ms"] / 1000)

    # What Kafka still has.

    def _load_topics(self) -> None:
        text = self._folder.read(TOPICS_FILE)
        self._topic_ids = json.loads(text) if text else {}

    def _check_position(self) -> None:
        """Before the query starts: whether what must be read next exists."""
        planned = ranges.last_batch(self._folder)
        if planned is None:
            return
        # A batch that was planned and not done is read again from its start.
        undone = self._last_batch is None or planned > self._last_batch
        wanted = ranges.start_of(self._folder, planned) if undone else self._position
        while True:
            try:
                existing = self._kafka.existing({topic for topic, _ in wanted})
                break
            except Retriable as error:
                _log.warning("%s; trying again", error)
                self.events.emit("retrying", batch=planned, attempt=0, pause_s=2.0, error=str(error))
                if self._stop.wait(2.0):
                    raise StopRequested from None
        self._judge(wanted, existing)

    def _await_topics(self) -> None:
        """Wait until every topic that the job names exists: a source connector makes its topics with their first records.

        Raises:
            Fatal: one does not, and the job processes only what is there (``trigger.mode=available-now``), or it was waited for
                as long as ``errors.retry.timeout.ms`` allows.
        """
        config = self.job.config
        begin, attempt, pause = time.monotonic(), 0, config["errors.retry.delay.ms"] / 1000
        while True:
            attempt += 1
            names = config["source.topics"] or ()
            try:
                existing = self._kafka.existing(names)
                absent = [name for name in names if not (name in existing and existing[name].end)]
                if not absent:
                    return
                text = (f"there is no topic {', '.join(absent)} in Kafka at {config['kafka.bootstrap.servers']}; check "
                        "source.topics, or start what writes it")
                if self.job.available_now:
                    raise Fatal(text)
            except Retriable as error:
                text = str(error)
            limit = config["errors.retry.timeout.ms"] / 1000
            if 0 <= limit < time.monotonic() - begin + pause:
                raise Fatal(text)
            self.events.emit("retrying", batch=self._last_batch, attempt=attempt, pause_s=round(pause, 3), error=text)
            if self._stop.wait(pause):
                raise StopRequested
            # Soon, not later and later: whoever waits for a topic to be made wants its records at once.
            pause = min(pause * 2, 2.0)

    def _demand_records(self, start: ranges.Offsets, end: ranges.Offsets) -> dict[str, ranges.Existing]:
        """What Kafka has of a batch's topics, all of the batch among it.

        Raises:
            Fatal: records are missing (and ``source.fail.on.data.loss``).
        """
        existing: dict[str, ranges.Existing] = {}
        while True:
            try:
                existing = self._batch_kafka.existing({topic for topic, _ in (*start, *end)})
                break
            except Retriable as error:
                _log.warning("%s; trying again", error)
                if self._stop.wait(1.0):
                    raise StopRequested from None
        self._judge(start, existing)
        return existing

    def _judge(self, wanted: ranges.Offsets, existing: dict[str, ranges.Existing]) -> None:
        missing = ranges.losses(wanted, existing, self._topic_ids)
        if missing and self.job.config["source.fail.on.data.loss"]:
            raise Fatal(ranges.loss_message(missing, self.job.checkpoint))
        for sentence in missing:
            _log.error("source.fail.on.data.loss=false, going on without: %s", sentence)
        ids = {topic: each.id for topic, each in existing.items() if each.id}
        if any(self._topic_ids.get(topic) != each for topic, each in ids.items()):
            self._topic_ids |= ids
            self._folder.write(TOPICS_FILE, json.dumps(self._topic_ids, sort_keys=True))

    def _explain(self, error: BaseException) -> BaseException:
        """The cause of the query's end in words: missing records if any are missing, else what Spark says."""
        wanted = self._position
        planned = ranges.last_batch(self._folder)
        if planned is not None and planned != self._last_batch:
            wanted = ranges.start_of(self._folder, planned)
        try:
            missing = ranges.losses(wanted, self._kafka.existing({topic for topic, _ in wanted}), self._topic_ids)
        except (MillraceError, OSError):
            missing = []
        if missing and self.job.config["source.fail.on.data.loss"]:
            return Fatal(ranges.loss_message(missing, self.job.checkpoint))
        return cause_of(error)


def _durations(query: Any) -> dict[str, int]:
    """Where Spark spent the time of the last batch that it has told of, ms by phase; empty if there is none.

    Spark tells of a batch a moment after its commit, and of triggers that found nothing too: those have no ``addBatch``.
    """
    try:
        told = query.recentProgress if query is not None else ()
        phases: Mapping[str, Any] = next((
            each["durationMs"] for each in reversed(told) if "addBatch" in each["durationMs"]), {})
        return {name: int(each) for name, each in phases.items()}
    except Exception as error:  # noqa: BLE001 - numbers for people: the job goes on without
        _log.debug("no progress: %s", error)
        return {}


def _jvm_pid(spark: SparkSession) -> int | None:
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - knows its process
    process = getattr(gateway, "proc", None)
    return None if process is None else int(process.pid)


def _end_session(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception as error:  # noqa: BLE001 - the JVM may be gone already
        _log.debug("the session did not end cleanly: %s", error)

