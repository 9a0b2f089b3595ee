"""``millrace job savepoint``: of a running job at the end of a batch, or of one that is stopped."""

from __future__ import annotations

import argparse
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs.control import Control
from spark_jobs.job import control_folder
from spark_jobs.savepoints.make import absolute, make_savepoint, summary
from spark_jobs.savepoints.requests import Request, ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.job import Job


def main(argv: Sequence[str]) -> int:
    """The command. Returns 0."""
    parser = argparse.ArgumentParser(
        prog="millrace job savepoint",
        description="Writes a job's position and state into a folder, from which a job starts with source.savepoint. A "
        "running job on this machine makes it between two batches and continues. See docs/jobs/savepoints.md.",
    )
    parser.add_argument("job", metavar="JOB", help="name of a job that runs on this machine, or its file")
    parser.add_argument(
        "--to", required=True, metavar="DIR", help="a new folder: a path, or an address that Spark knows"
    )
    parser.add_argument("--name", metavar="NAME", help="what to call it (default: the folder's name)")
    parser.add_argument("--stop", action="store_true", help="the job stops behind the savepoint")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="S", help="seconds to wait (default 600)")
    arguments = parser.parse_args(list(argv))
    location = absolute(arguments.to)
    name = arguments.name or location.rsplit("/", 1)[-1]
    job, folder = find_job(arguments.job)
    control = Control(folder)
    if control.running():
        request = Request(secrets.token_hex(8), location, name, time.time() + arguments.timeout, arguments.stop)
        result = ask(folder, request, alive=control.running, timeout_s=arguments.timeout)
        if arguments.stop:
            _wait_for_end(control, arguments.timeout)
    else:
        result = make_stopped(job or _load_of(control, arguments.job), location, name)
    print(describe(result))  # noqa: T201 - a command
    return 0


def find_job(text: str) -> tuple[Job | None, Path]:
    """A job by its file, or by its name; and its folder on this machine."""
    if Path(text).is_file():
        from spark_jobs import config

        job = config.load(text)
        return job, job.folder
    return None, control_folder(text)


def _load_of(control: Control, name: str) -> Job:
    """The job that ran by this name.

    Raises:
        ConfigInvalid: its file is not known.
    """
    from spark_jobs import config

    file = control.status().get("file")
    if not file or not Path(file).is_file():
        raise ConfigInvalid(
            f"no job {name} runs on this machine, and its file is not known: name the file instead. (A connector's job: "
            "resume it, or write its configuration into a file.)"
        )
    return config.load(file)


def make_stopped(job: Job, location: str, name: str) -> dict[str, Any]:
    """A savepoint of a job that does not run. Blocks: starts a JVM.

    Raises:
        AlreadyRuns: it runs.
        Fatal, Retriable: see ``make_savepoint``.
    """
    from spark_jobs.causes import cause_of
    from spark_jobs.checkpoint import open_folder
    from spark_jobs.materializer.rebuild import session_of, stopped

    with stopped(job):
        spark = session_of(job)
        try:
            manifest = make_savepoint(job, spark, open_folder(job.checkpoint, spark), location, name)
        except Exception as error:
            raise cause_of(error) from error
        finally:
            spark.stop()
    return summary(manifest, location)


def _wait_for_end(control: Control, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while control.running():
        if time.monotonic() > deadline:
            raise Fatal(
                f"the savepoint is complete, but the job has not ended within {timeout_s:g} s: millrace job stop"
            )
        time.sleep(0.1)


def describe(result: dict[str, Any]) -> str:
    """A line for people."""
    state = (
        "" if result["records"] is None else f", {result['records']} records of state in {result['buckets']} buckets"
    )
    return f"savepoint {result['name']} of {result['job']} in {result['location']}: batch {result['batch']}{state}"
