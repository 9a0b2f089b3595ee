"""``python -m spark_jobs.run JOBFILE``: one process, one driver, one query for each sink. Also an entry for ``spark-submit``.

Writes JSON lines (see ``progress``) to standard output or to ``--events FD``. SIGTERM and SIGINT end it after the batch that is
being written. Exit codes: 0 stopped as asked (or done), 1 failed, 2 the configuration is invalid.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from spark_jobs.application import Application
    from spark_jobs.control import Control
    from spark_jobs.job import Job
    from spark_jobs.metrics import Exporter, JobNumbers
    from spark_jobs.reports.progress import EventWriter
    from spark_jobs.runner import Runner
    from worker.secrets.masking import SecretMasker

_log = logging.getLogger("spark_jobs.run")
#: The time that ending the query and the session may take in addition to ``stop.timeout.ms``, seconds.
GRACE_S: Final = 30.0


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="spark_jobs.run", description="Runs one job until it is asked to stop.")
    parser.add_argument("job", metavar="JOBFILE", help="YAML or JSON; - reads one line of JSON from standard input")
    parser.add_argument(
        "--events", type=int, metavar="FD", help="file descriptor for events (default: standard output)"
    )
    parser.add_argument("--supervised", action="store_true", help="the end of standard input means: stop")
    parser.add_argument("--resolved", action="store_true", help="the job has values and no references to them")
    parser.add_argument("--log-level", default="INFO", help="DEBUG, INFO (default), WARNING or ERROR")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a job; returns the exit code."""
    options = _parse_arguments(argv)
    set_up_logs(options.log_level.upper())
    stream = (
        events_on_stdout() if options.events is None else os.fdopen(options.events, "w", encoding="utf-8", buffering=1)
    )
    return run_file(options.job, stream, supervised=options.supervised, resolved=options.resolved)


def set_up_logs(level: str) -> None:
    """Logs to standard error."""
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_not_py4j)


def events_on_stdout() -> IO[str]:
    """Standard output for events alone: what sinks and libraries print goes to standard error from now on."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return stream


def end_process(code: int) -> NoReturn:
    """End the process: threads of JVM gateways and Kafka clients must not hold up an end that is reached."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _not_py4j(record: logging.LogRecord) -> bool:
    """Leaves out what py4j says through the root logger when the JVM it talks to ends."""
    return record.name != "root" or "py4j" not in record.pathname or record.levelno > logging.WARNING


@dataclass(frozen=True, slots=True)
class Attendance:
    """The surroundings of a run.

    Attributes:
        begin: called with the run before it begins: whoever may end it keeps it.
        host: the application whose driver the run uses; None: it starts its own.
        listens: whether ``host`` is a process of its own that takes flows, which ``status`` shows.
        numbers: kept for the run, where somebody else shows them; None: the run serves its own.
    """

    begin: Callable[[Runner], None]
    host: Application | None = None
    listens: bool = True
    numbers: Callable[[JobNumbers], None] | None = None


def run_file(path: str, stream: Any, *, supervised: bool = False, resolved: bool = False) -> int:
    """Read, check and run the job in ``path``, with events to ``stream``.

    Args:
        path: of a file; ``-`` for a line of JSON from standard input.
        stream: gets the events.
        supervised: whether the end of standard input means: stop.
        resolved: whether references are resolved already: a value may have the form of one.
    """
    from spark_jobs.config import job_files as config

    def read() -> Any:
        file = (
            config.parse_text(sys.stdin.readline(), "standard input", as_json=True)
            if path == "-"
            else config.read_file(path)
        )
        return file.properties if resolved else file

    jobs = _check_jobs(read, Path(path).name, stream)
    if len(jobs) > 1:
        from spark_jobs.flows.runs import run_sinks

        return run_sinks(jobs, stream, lambda stop, timeout_s: _end_on_request(stop, timeout_s, supervised=supervised))
    return run_attended(jobs[0], stream, _of_process(supervised=supervised)) if jobs else 2


def run_text(configuration_json: str, stream: Any, attendance: Attendance) -> int:
    """Check and run the job that ``configuration_json`` describes, references resolved, with events to ``stream``; blocks."""
    from spark_jobs.config import job_files as config

    jobs = _check_jobs(
        lambda: config.parse_text(configuration_json, "the flow", as_json=True).properties,
        "flow",
        stream,
        several=False,
    )
    return run_attended(jobs[0], stream, attendance) if jobs else 2


def _of_process(*, supervised: bool) -> Attendance:
    """A run that is all that its process does: signals end it and, if it is supervised, the end of standard input."""

    def begin(runner: Runner) -> None:
        _end_on_request(runner.stop, runner.job.config["stop.timeout.ms"] / 1000, supervised=supervised)

    return Attendance(begin)


def _end_on_request(stop: Callable[[str], None], timeout_s: float, *, supervised: bool) -> None:
    """Call ``stop`` on a signal and, if the process is supervised, at the end of standard input. For the main thread."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop("signal"))
    if supervised:
        threading.Thread(target=_wait_for_end, args=(stop, timeout_s), name="supervisor", daemon=True).start()


def _check_jobs(read: Callable[[], Any], name: str, stream: Any, *, several: bool = True) -> list[Job]:
    """The jobs of a configuration; none if it is invalid, which is reported."""
    from connectors.errors import ConfigInvalid
    from spark_jobs.config import job_files as config
    from spark_jobs.reports.progress import EventWriter

    try:
        return config.build_flow(read()) if several else [config.build_job(read())]
    except ConfigInvalid as error:
        EventWriter(name, stream).emit(
            "failed", error=str(error), kind="ConfigInvalid", trace="", retriable=False, configuration=True
        )
        return []


def run_attended(job: Job, stream: Any, attendance: Attendance) -> int:
    """Run a checked job with its locks and its status file, in what ``attendance`` says; blocks. Returns the exit code."""
    from spark_jobs.control import Control, lock_job, process_age
    from spark_jobs.metrics import JobNumbers
    from spark_jobs.reports.progress import EventWriter
    from spark_jobs.runner import Runner
    from spark_jobs.spark.causes import may_pass
    from worker.secrets.masking import SecretMasker

    host = attendance.host
    masker = SecretMasker()
    masker.learn(job.config.raw, list_options(job).keys.values())
    control = Control(job.folder)
    status = _first_status(job, host if attendance.listens else None)
    writable = threading.Event()
    flow, sink = (job.name, "") if job.membership is None else (job.membership.flow, job.membership.sink)
    numbers = JobNumbers(flow, job.metrics(), sink)

    def remember(event: dict[str, Any]) -> None:
        numbers.take(event, time.time())
        status["state"] = state_after(event)
        status[event["event"]] = event
        if event["event"] == "started" and event.get("jvm"):
            status["jvm"] = {"pid": event["jvm"], "age": process_age(event["jvm"])}
        if writable.is_set():
            control.write(status)

    events = EventWriter(
        job.name, stream, scrub=masker.scrub, on_event=remember, origin={"flow": flow, "sink": sink} if sink else {}
    )
    with ExitStack() as ends:
        ends.callback(_filter_logs(masker))
        try:
            ends.enter_context(lock_job(job))
            control.write(status)
            writable.set()
            if (exporter := _show_numbers(numbers, job, attendance)) is not None:
                ends.callback(exporter.close)
            spark = None if host is None else host.session(job)
        except Exception as error:  # noqa: BLE001 - becomes an event, whatever it is
            if host is not None:
                masker.learn(host.settings)  # a refusal quotes them
            _log.error("%s", error)
            _report_refusal(events, error, passes=host is not None and may_pass(error))
            return 1
        runner = Runner(job, events, _lease_checkpoint, spark=spark, output=None if host is None else host.output)
        events.on_broken = lambda: runner.stop("no process reads the events")
        attendance.begin(runner)
        code = runner.run()
        if spark is not None and host is not None:
            _end_within(spark, job, host, control, status)
        return code


def _report_refusal(events: EventWriter, error: Exception, *, passes: bool) -> None:
    """Report a run that could not begin."""
    events.emit("failed", error=str(error), kind=type(error).__name__, trace="", retriable=passes)


def _show_numbers(numbers: JobNumbers, job: Job, attendance: Attendance) -> Exporter | None:
    """Have the numbers shown by whoever shows those of the process, or on the job's own port."""
    from spark_jobs.metrics import Exporter

    if attendance.numbers is not None:
        attendance.numbers(numbers)
        return None
    port = job.config["metrics.port"]
    return Exporter(job.config["metrics.host"], port, numbers) if port else None


def _filter_logs(masker: SecretMasker) -> Callable[[], None]:
    """Mask secrets in all logs until the returned function is called."""
    from worker.secrets.masking import SecretFilter

    secrets, handlers = SecretFilter(masker), list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(secrets)

    def unfilter() -> None:
        for handler in handlers:
            handler.removeFilter(secrets)

    return unfilter


def _first_status(job: Job, host: Application | None) -> dict[str, Any]:
    from spark_jobs.control import process_age

    status: dict[str, Any] = {
        "job": job.name,
        "state": "starting",
        "file": str(Path(job.origin).resolve()) if job.origin else "",
        "pid": os.getpid(),
        "age": process_age(os.getpid()),
        "checkpoint": job.checkpoint,
        "master": job.master,
    }
    if job.membership is not None:
        member = job.membership
        status |= {"flow": member.flow, "sink": member.sink, "sinks": dict(member.jobs)}
    return status if host is None else {**status, "application": host.name}


def _end_within(spark: SparkSession, job: Job, host: Application, control: Control, status: dict[str, Any]) -> None:
    """After a run in a driver that stays: nothing of the run may be left there. A driver that has ended has nothing."""
    try:
        left = [query for query in spark.streams.active if query.isActive]
    except Exception as error:  # noqa: BLE001 - the JVM is gone
        _log.debug("the driver does not answer: %s", error)
        return
    if left:
        host.abort(f"the query of the flow {job.name} does not end")
    # The next run need not wait for the end of this JVM.
    status.pop("jvm", None)
    control.write(status)


def state_after(event: Mapping[str, Any]) -> str:
    """The state that an event leaves the job in. A sign of life of a job that retries is not news of its recovery."""
    kind = event["event"]
    if kind in ("stopped", "failed", "retrying"):
        return str(kind)
    return "retrying" if event.get("retrying") else "running"


def list_options(job: Job) -> Any:
    """The options of ``job``: which of them are secret."""
    from spark_jobs.config.job_files import find_parts

    return find_parts(job.config.raw).definition


def _lease_checkpoint(spark: Any, runner: Any) -> Callable[[], None]:
    """Guards a checkpoint that is not on this machine."""
    from spark_jobs.control import CheckpointLease
    from spark_jobs.spark.checkpoint import HadoopFolder, local_path

    location = runner.job.checkpoint
    if local_path(location) is not None:
        return lambda: None
    lease = CheckpointLease(HadoopFolder(spark, location), runner.fail)
    lease.acquire(f"checkpoint {location}")
    return lease.release


def _wait_for_end(stop: Callable[[str], None], timeout_s: float) -> None:
    """Stop the job when its supervisor is gone. Whatever hangs then ends hard: the job may run somewhere else by now."""
    while sys.stdin.buffer.read(4096):
        pass
    stop("the supervisor is gone")
    # A daemon thread: a process that ends in time ends it.
    time.sleep(timeout_s + GRACE_S)
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _as_script() -> None:
    """``spark-submit`` runs this file as a script: its folder must not stand for the top of our packages."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [path_entry for path_entry in sys.path if not path_entry or Path(path_entry).resolve() != here]
    if here.parent.is_dir() and str(here.parent) not in sys.path:
        sys.path.append(str(here.parent))


if __name__ == "__main__":
    _as_script()
    end_process(main())
