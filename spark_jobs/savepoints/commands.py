"""``millrace job savepoint``: of a running job at the end of a batch, or of one that is stopped."""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs.control import AlreadyRuns, Control, lock_job
from spark_jobs.job import control_folder
from spark_jobs.savepoints.make import make_absolute, make_savepoint, summarize_savepoint
from spark_jobs.savepoints.requests import JobSavepointRequest, request_savepoint
from worker.command_parser import CommandParser, parse_seconds
from worker.terminal import progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.job import Job


def main(argv: Sequence[str]) -> int:
    """The command. Returns 0."""
    parser = CommandParser(
        prog="millrace job savepoint",
        description="Writes a job's position and state into a folder, from which a job starts with source.savepoint. A "
        "running job on this machine makes it between two batches and continues. A flow with several sinks gets one for each, "
        "in a folder with the sink's name. See docs/jobs/savepoints.md.",
    )
    parser.add_argument("job", metavar="JOB", help="name of a job or flow that runs on this machine, or its file")
    parser.add_argument(
        "--to", required=True, metavar="DIR", help="a new folder: a path, or an address that Spark knows"
    )
    parser.add_argument("--name", metavar="NAME", help="what to call it (default: the folder's name)")
    parser.add_argument("--stop", action="store_true", help="the job stops after the savepoint")
    parser.add_argument(
        "--timeout", type=parse_seconds, default=600.0, metavar="S", help="seconds to wait (default 600)"
    )
    arguments = parser.parse_args(list(argv))
    location = make_absolute(arguments.to)
    name = arguments.name or location.rsplit("/", 1)[-1]
    parts = find_parts(arguments.job)
    running = []
    with ExitStack() as locks:
        # All of them before the first savepoint: none may start while the others' are made.
        stopped = {part.name: job for part in parts if (job := lock_stopped(part, locks)) is not None}
        for part in parts:
            target = f"{location}/{part.sink}" if part.sink else location
            if part.name in stopped:
                result = make_stopped(stopped[part.name], target, name)
            else:
                control = Control(control_folder(part.name))
                request = JobSavepointRequest(
                    secrets.token_hex(8), target, name, time.time() + arguments.timeout, arguments.stop
                )
                with progress(f"waiting for the savepoint of {part.name}", quiet_s=2):
                    result = request_savepoint(
                        control.folder, request, alive=control.running, timeout_s=arguments.timeout
                    )
                running.append(control)
            print(describe_savepoint(result))  # noqa: T201 - a command
    if arguments.stop:
        for control in running:
            _wait_for_end(control, arguments.timeout)
    return 0


class SavepointPart(NamedTuple):
    """A job that a savepoint is made of.

    Attributes:
        name: of the job.
        sink: the sink that it writes; empty where the flow has one sink.
        job: the job, where its file is given.
    """

    name: str
    sink: str = ""
    job: Job | None = None


def find_parts(file_or_name: str) -> list[SavepointPart]:
    """The jobs of a flow, which is given by its file or its name: one for each sink.

    Raises:
        ConfigInvalid: the file is not valid.
    """
    from spark_jobs import cli
    from spark_jobs.config import job_files as config

    if Path(file_or_name).is_file():
        return [
            SavepointPart(job.name, "" if job.membership is None else job.membership.sink, job)
            for job in config.build_flow(config.read_file(file_or_name))
        ]
    names = cli.known_jobs()
    statuses = [] if file_or_name in names else [cli.describe_job(name) for name in names]
    # Each names all sinks of its process, some of which may be just starting.
    sinks = {
        name: sink
        for status in statuses
        if status.get("flow") == file_or_name
        for sink, name in status.get("sinks", {status.get("sink", ""): status["job"]}).items()
    }
    return [SavepointPart(name, sinks[name]) for name in sorted(sinks)] or [SavepointPart(file_or_name)]


def lock_stopped(part: SavepointPart, locks: ExitStack) -> Job | None:
    """Lock a job that does not run; None: it runs.

    Raises:
        AlreadyRuns: another job uses its checkpoint.
        ConfigInvalid: its file is not known, or not valid.
    """
    control = Control(control_folder(part.name))
    if control.running():
        return None
    job = part.job or _load_of(control, part.name)
    try:
        locks.enter_context(lock_job(job))
    except AlreadyRuns:
        if control.running():
            return None  # it has just started
        raise
    return job


def _load_of(control: Control, name: str) -> Job:
    """The job that ran by this name.

    Raises:
        ConfigInvalid: its file is not known.
    """
    from spark_jobs.config import job_files as config

    file = control.status().get("file")
    if not file or not Path(file).is_file():
        raise ConfigInvalid(
            f"no job {name} runs on this machine, and its file is not known: name the file instead. (A connector's job: "
            "resume it, or write its configuration into a file.)"
        )
    job = next((job for job in config.build_flow(config.read_file(file)) if job.name == name), None)
    if job is None:
        raise ConfigInvalid(f"no job {name} runs on this machine, and its file {file} has no such job or sink any more")
    return job


def make_stopped(job: Job, location: str, name: str) -> dict[str, Any]:
    """A savepoint of a job that does not run, and is locked. Blocks: starts a JVM.

    Raises:
        Fatal, Retriable: see ``make_savepoint``.
    """
    from spark_jobs.materializer.state.rebuild import session_of
    from spark_jobs.spark.causes import cause_of
    from spark_jobs.spark.checkpoint import open_folder

    spark = session_of(job)
    try:
        with progress(f"writing the savepoint {name}", quiet_s=2):
            manifest = make_savepoint(job, spark, open_folder(job.checkpoint, spark), location, name)
    except Exception as error:
        raise cause_of(error) from error
    finally:
        spark.stop()
    return summarize_savepoint(manifest, location)


def _wait_for_end(control: Control, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while control.running():
        if time.monotonic() > deadline:
            raise Fatal(
                f"the savepoint is complete, but the job has not ended within {timeout_s:g} s: millrace job stop"
            )
        time.sleep(0.1)


def describe_savepoint(result: dict[str, Any]) -> str:
    """A line for people."""
    state = (
        "" if result["records"] is None else f", {result['records']} records of state in {result['buckets']} buckets"
    )
    steps = "".join(f", {rows} rows of state of the step {name}" for name, rows in result.get("steps", {}).items())
    return (
        f"savepoint {result['name']} of {result['job']} in {result['location']}: batch {result['batch']}{state}{steps}"
    )
