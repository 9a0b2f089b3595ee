"""``millrace job COMMAND ...``: run, check, plan, watch and stop jobs. Each command's code is imported when it is called."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, MillraceError
from worker.command_parser import CommandParser, parse_seconds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

#: Exit codes.
OK: Final = 0
FAILED: Final = 1
INVALID: Final = 2
NOT_RUNNING: Final = 3
#: The longest line of an error in the table of jobs, characters.
_LONGEST_LINE: Final = 300

#: Commands of other parts: name -> (module:function, one line of help). The function takes the list of arguments behind the
#: command's name and returns an exit code.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "preview": ("spark_jobs.preview.command:main", "some rows through every step of a job, printed as tables"),
    "rebuild": (
        "spark_jobs.materializer.state.rebuild:main",
        "write a lost output topic again, or the state from the input",
    ),
    "state": ("spark_jobs.materializer.state.state_frame:main", "print the materializer's state"),
    "savepoint": (
        "spark_jobs.savepoints.commands:main",
        "write a job's position and state into a folder to start from",
    ),
    "snapshot": ("spark_jobs.history.commands:snapshot", "a table as it was at a time, from its full history"),
    "zipper": ("spark_jobs.history.commands:zipper", "a table with the time from and to which each row was valid"),
    "compact": ("spark_jobs.history.commands:compact", "merge small files of a history"),
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of the commands that are the frame's own."""
    top = CommandParser(
        prog="millrace job",
        description="Runs Spark jobs: from topics through a transformation into a sink. See docs/jobs/running.md.",
    )
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="run a job until it is stopped (Ctrl-C or SIGTERM: after the batch)")
    run.add_argument("file", metavar="FILE", help="the job, YAML or JSON")
    run.add_argument("--json", action="store_true", help="tell what happens as JSON lines on standard output")
    run.add_argument("--supervised", action="store_true", help="the end of standard input means: stop")
    run.set_defaults(run=_run_job)

    validate = commands.add_parser("validate", help="tell everything that is wrong with jobs; starts no Spark")
    validate.add_argument("files", nargs="+", metavar="FILE")
    validate.add_argument(
        "--check",
        action="store_true",
        help="also ask Kafka, the registry and the sink whether they can be reached and have what the job needs",
    )
    validate.set_defaults(run=_validate_files)

    plan = commands.add_parser("plan", help="tell what a job would do, without doing it")
    plan.add_argument("files", nargs="+", metavar="FILE")
    plan.add_argument("--json", action="store_true", help="as JSON, one object a job, as `POST /flows/plan` answers")
    plan.add_argument(
        "--running", metavar="FILE", help="also say what an edit of this job keeps and drops (with one FILE)"
    )
    plan.set_defaults(run=_print_plan)

    status = commands.add_parser("status", help="what jobs on this machine are doing")
    status.add_argument(
        "jobs",
        nargs="*",
        metavar="JOB",
        help="name or file: shows the whole error of a failed job (default: all, one line of each error)",
    )
    status.add_argument("--json", action="store_true", help="as one JSON object")
    status.set_defaults(run=_print_status)

    stop = commands.add_parser("stop", help="stop jobs on this machine: each finishes its batch")
    stop.add_argument("jobs", nargs="+", metavar="JOB", help="name or file")
    stop.add_argument("--timeout", type=parse_seconds, default=150.0, metavar="S", help="seconds to wait (default 150)")
    stop.add_argument(
        "--kill", action="store_true", help="kill what has not ended by then: its batch is repeated at the next start"
    )
    stop.set_defaults(run=_stop_jobs)

    package = commands.add_parser("package", help="our packages as a zip, and the spark-submit command that uses it")
    package.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="where to (default: the cache folder)")
    package.add_argument("--delta", action="store_true", help="with the jars of Delta Lake")
    package.add_argument("--s3", action="store_true", help="with the client of s3a://")
    package.set_defaults(run=_build_package)

    for name, (_, help_line) in COMMANDS.items():
        commands.add_parser(name, help=help_line, add_help=False)
    return top


def main(argv: Sequence[str]) -> int:
    """Run one command.

    Returns:
        0 done, 1 failed (the reason is on standard error), 2 invalid configuration or arguments, 3 (``status``) not running.
    """
    arguments = list(argv)
    try:
        if arguments and arguments[0] in COMMANDS:
            return _load_command(arguments[0])(arguments[1:])
        options = make_parser().parse_args(arguments)
        return int(options.run(options))
    except ConfigInvalid as error:
        print(f"millrace: {error}", file=sys.stderr)
        return INVALID
    except MillraceError as error:
        print(f"millrace: {error}", file=sys.stderr)
        return FAILED


def _load_command(name: str) -> Callable[[list[str]], int]:
    module, _, function = COMMANDS[name][0].partition(":")
    command: Callable[[list[str]], int] = getattr(import_module(module), function)
    return command


# run


def _run_job(options: argparse.Namespace) -> int:
    from spark_jobs import run
    from spark_jobs.reports.progress import Human

    run.set_up_logs("INFO" if options.json else "WARNING")
    stream: Any = run.events_on_stdout() if options.json else Human()
    run.end_process(run.run_file(options.file, stream, supervised=options.supervised))


# validate


def _validate_files(options: argparse.Namespace) -> int:
    from spark_jobs.config import job_files as config
    from spark_jobs.flows.plan import check_reachability, list_remarks

    code = OK
    for path in options.files:
        try:
            jobs = config.build_flow(config.read_file(path))
        except ConfigInvalid as error:
            print(error, file=sys.stderr)
            code = INVALID
            continue
        for job in jobs:
            problems = check_reachability(job) if options.check else []
            where = path if job.membership is None else f"{path}: sink {job.membership.sink}"
            for problem in problems:
                print(f"{where}: {problem}", file=sys.stderr)
                code = code or FAILED
            for problem in list_remarks(job):
                print(f"{where}: note: {problem}")
            if not problems:
                reached = " and everything it needs is there" if options.check else ""
                print(f"{where}: job {job.name} is valid{reached}")
    return code


# plan


def _print_plan(options: argparse.Namespace) -> int:
    from spark_jobs.config import job_files as config
    from spark_jobs.flows.plan_lines import plan_lines

    running = config.resolve_file(options.running) if options.running else None
    if options.json:
        from spark_jobs.flows.planning import plan_flow

        answers = [plan_flow(config.resolve_file(path), running) for path in options.files]
        print("\n".join(json.dumps(answer, indent=2) for answer in answers))
        return OK if all(answer["valid"] for answer in answers) else INVALID
    # All complaints before the first line.
    jobs = [job for path in options.files for job in config.build_flow(config.read_file(path))]
    for number, job in enumerate(jobs):
        print(("\n" if number else "") + "\n".join(plan_lines(job)))
    if running is not None:
        from spark_jobs.flows.planning import edit_lines

        print("\n".join(line for path in options.files for line in edit_lines(config.resolve_file(path), running)))
    return OK


# status and stop


def _find_job_names(names_or_files: Sequence[str]) -> list[str]:
    """The names of jobs that are given by name or by file; a flow with several sinks is a job for each."""
    from spark_jobs.config import job_files as config
    from spark_jobs.config.keys import job_name
    from spark_jobs.flows.sinks import divide_sinks

    result = []
    for name_or_file in names_or_files:
        if not Path(name_or_file).is_file():
            if job_name("name", name_or_file) is not None:
                raise ConfigInvalid(f"{name_or_file} is no file, and can't be the name of a job")
            names = known_jobs()
            sinks = (
                []
                if name_or_file in names
                else [name for name in names if describe_job(name).get("flow") == name_or_file]
            )
            result += sinks or [name_or_file]
            continue
        properties, _ = config.resolve_references(config.read_file(name_or_file).properties)
        if "name" not in properties:
            raise ConfigInvalid(f"{name_or_file}: has no name")
        result += [sink.properties["name"] for sink in divide_sinks(properties)] or [properties["name"]]
    return result


def known_jobs() -> list[str]:
    """Names of the jobs that ever ran on this machine."""
    from spark_jobs.job import control_folder

    folder = control_folder("x").parent
    return (
        sorted(job_folder.name for job_folder in folder.iterdir() if (job_folder / "status.json").is_file())
        if folder.is_dir()
        else []
    )


def describe_job(name: str) -> dict[str, Any]:
    """Describe a job on this machine; ``state`` is running, retrying, stopped, failed, died or unknown."""
    from spark_jobs.control import Control
    from spark_jobs.job import control_folder

    control = Control(control_folder(name))
    status = control.status()
    running = control.running()
    state = status.get("state", "starting" if running else "unknown")
    if not running and state in ("running", "retrying", "starting"):
        state = "died"
    elif running and state in ("stopped", "failed"):
        state = "starting"
    return status | {"job": name, "state": state, "running": running}


def _print_status(options: argparse.Namespace) -> int:
    names = _find_job_names(options.jobs) if options.jobs else known_jobs()
    descriptions = [describe_job(name) for name in names]
    if options.json:
        print(json.dumps({description["job"]: description for description in descriptions}, indent=2))
    else:
        print(
            "\n".join(status_table(descriptions, full=bool(options.jobs)))
            if descriptions
            else "no job has run on this machine"
        )
    return OK if all(description["running"] for description in descriptions) or not options.jobs else NOT_RUNNING


def status_table(descriptions: Sequence[dict[str, Any]], *, full: bool = False) -> list[str]:
    """One line for each job, and one more where something is wrong.

    Args:
        descriptions: from ``describe_job``.
        full: the whole error of a job instead of its first line, with the trace.
    """
    rows = [("JOB", "STATE", "PID", "BATCH", "LAG", "LAST PROGRESS", "CHECKPOINT")]
    notes: dict[int, str] = {}
    for description in descriptions:
        progress = description.get("progress") or {}
        rows.append(
            (
                description["job"],
                description["state"],
                str(description["pid"]) if description["running"] and "pid" in description else "-",
                str(progress.get("batch", "-")),
                _lag_text(progress),
                progress.get("time", "-"),
                description.get("checkpoint", "-"),
            )
        )
        if description["state"] == "failed":
            notes[len(rows)] = _failure_text(description["job"], description["failed"], full=full)
        elif description["state"] == "retrying":
            notes[len(rows)] = _trouble_text(description, full=full)
        elif description["state"] == "died":
            notes[len(rows)] = (
                "its process ended without a word (killed, or the machine went down); the next run "
                "continues from the checkpoint"
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows, 1):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if number in notes:
            lines += [f"    {line}" for line in notes[number].splitlines()]
    return lines


def _lag_text(progress: dict[str, Any]) -> str:
    if not progress:
        return "-"
    return "unknown" if progress.get("lag_total") is None else str(progress["lag_total"])


def _first_line(message: str) -> str:
    line = message.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..."


def _failure_text(job: str, failed: dict[str, Any], *, full: bool) -> str:
    if full:
        return "\n".join(paragraph.strip() for paragraph in (failed["error"], failed.get("trace") or "") if paragraph)
    has_more = failed["error"].strip() != _first_line(failed["error"]) or failed.get("trace")
    return _first_line(failed["error"]) + (f" (all of it: millrace job status {job})" if has_more else "")


def _trouble_text(status: dict[str, Any], *, full: bool) -> str:
    """Why a job retries: from its last sign of life, or from its last failure where that is newer."""
    progress, event = status.get("progress") or {}, status.get("retrying") or {}
    trouble = progress.get("retrying") or {}
    if not trouble or event.get("time", "") > progress.get("time", ""):
        trouble = {"attempts": event.get("attempt"), **event}
    error = str(trouble.get("error", ""))
    part = f" {trouble['part']}" if trouble.get("part") else ""
    return f"retries{part} since {trouble.get('since', 'unknown')}, {trouble.get('attempts')} failed attempts: " + (
        error if full else _first_line(error)
    )


def _stop_jobs(options: argparse.Namespace) -> int:
    from spark_jobs.control import Control, is_alive
    from spark_jobs.job import control_folder

    controls = {name: Control(control_folder(name)) for name in _find_job_names(options.jobs)}
    asked: dict[str, dict[str, Any]] = {}
    code = OK
    for name, control in controls.items():
        status = control.status()
        if not control.running():
            print(f"{name}: is not running on this machine")
        elif not status.get("pid") or not is_alive(status["pid"], status["age"]):
            print(f"{name}: is just starting; retry in a moment", file=sys.stderr)
            return FAILED
        elif status.get("application"):
            print(
                f"{name}: is a flow of the Spark application {status['application']} (process {status['pid']}), which a worker "
                "runs with other flows: pause, stop or delete its connector",
                file=sys.stderr,
            )
            code = FAILED
        else:
            os.kill(status["pid"], signal.SIGTERM)
            asked[name] = status
    deadline = time.monotonic() + options.timeout
    for name, status in asked.items():
        while is_alive(status["pid"], status["age"]) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not is_alive(status["pid"], status["age"]):
            print(f"{name}: stopped after batch {describe_job(name).get('stopped', {}).get('batch')}")
        elif options.kill:
            os.kill(status["pid"], signal.SIGKILL)
            print(
                f"{name}: did not end within {options.timeout:.0f} s and was killed; its batch is repeated at the next "
                f"start"
            )
        else:
            print(
                f"{name}: process {status['pid']} still finishes its batch after {options.timeout:.0f} s; wait, or "
                "give it up with --kill (the batch is repeated at the next start)",
                file=sys.stderr,
            )
            code = FAILED
    return code


# package


def _build_package(options: argparse.Namespace) -> int:
    from spark_jobs.spark import package
    from spark_jobs.spark.session import fetch_jars

    try:
        path = package.build_zip(options.folder)
    except OSError as error:
        raise ConfigInvalid(f"{error.filename}: {error.strerror}") from error
    sets = ["spark", *(["delta"] if options.delta else []), *(["s3"] if options.s3 else [])]
    files = fetch_jars(sets)
    print(path)
    print(
        "\nspark-submit --master spark://HOST:7077 \\\n  --jars "
        + ",".join(map(str, files))
        + f" \\\n  --py-files {path} \\\n  {package.find_package_root() / 'spark_jobs' / 'run.py'} JOBFILE"
    )
    return OK
