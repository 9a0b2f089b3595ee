"""``millrace job COMMAND ...``: run, check, plan, watch and stop jobs. Each command's code is imported when it is called."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, MillraceError

if TYPE_CHECKING:
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
    "rebuild": ("spark_jobs.materializer.rebuild:main", "write a lost output topic again, or the state from the input"),
    "state": ("spark_jobs.materializer.state_frame:main", "print the materializer's state"),
    "savepoint": (
        "spark_jobs.savepoints.commands:main",
        "write a job's position and state into a folder to start from",
    ),
    "snapshot": ("spark_jobs.history.commands:snapshot", "a table as it was at a time, from its full history"),
    "zipper": ("spark_jobs.history.commands:zipper", "a table with the time from and to which each row was valid"),
    "compact": ("spark_jobs.history.commands:compact", "merge small files of a history"),
}


def parser() -> argparse.ArgumentParser:
    """The parser of the commands that are the frame's own."""
    top = argparse.ArgumentParser(
        prog="millrace job",
        description="Runs Spark jobs: from topics through a transformation into a sink. See docs/jobs/running.md.",
    )
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="run a job until it is stopped (Ctrl-C or SIGTERM: after the batch)")
    run.add_argument("file", metavar="FILE", help="the job, YAML or JSON")
    run.add_argument("--json", action="store_true", help="tell what happens as JSON lines on standard output")
    run.add_argument("--supervised", action="store_true", help="the end of standard input means: stop")
    run.set_defaults(run=_run)

    validate = commands.add_parser("validate", help="tell everything that is wrong with jobs; starts no Spark")
    validate.add_argument("files", nargs="+", metavar="FILE")
    validate.add_argument(
        "--check",
        action="store_true",
        help="also ask Kafka, the registry and the sink whether they can be reached and have what the job needs",
    )
    validate.set_defaults(run=_validate)

    plan = commands.add_parser("plan", help="tell what a job would do, without doing it")
    plan.add_argument("files", nargs="+", metavar="FILE")
    plan.add_argument("--json", action="store_true", help="as JSON, one object a job, as `POST /flows/plan` answers")
    plan.add_argument(
        "--running", metavar="FILE", help="also say what an edit of this job keeps and drops (with one FILE)"
    )
    plan.set_defaults(run=_plan)

    status = commands.add_parser("status", help="what jobs on this machine are doing")
    status.add_argument(
        "jobs",
        nargs="*",
        metavar="JOB",
        help="name or file: shows the whole error of a failed job (default: all, one line of each error)",
    )
    status.add_argument("--json", action="store_true", help="as one JSON object")
    status.set_defaults(run=_status)

    stop = commands.add_parser("stop", help="stop jobs on this machine: each finishes its batch")
    stop.add_argument("jobs", nargs="+", metavar="JOB", help="name or file")
    stop.add_argument("--timeout", type=float, default=150.0, metavar="S", help="seconds to wait (default 150)")
    stop.add_argument(
        "--kill", action="store_true", help="kill what has not ended by then: its batch is done again at the next start"
    )
    stop.set_defaults(run=_stop)

    package = commands.add_parser("package", help="our packages as a zip, and the spark-submit command that uses it")
    package.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="where to (default: the cache folder)")
    package.add_argument("--delta", action="store_true", help="with the jars of Delta Lake")
    package.add_argument("--s3", action="store_true", help="with the client of s3a://")
    package.set_defaults(run=_package)

    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    return top


def main(argv: Sequence[str]) -> int:
    """Run one command.

    Returns:
        0 done, 1 failed (the reason is on standard error), 2 invalid configuration or arguments, 3 (``status``) not running.
    """
    arguments = list(argv)
    try:
        if arguments and arguments[0] in COMMANDS:
            return _other(arguments[0])(arguments[1:])
        options = parser().parse_args(arguments)
        return int(options.run(options))
    except ConfigInvalid as error:
        print(f"millrace: {error}", file=sys.stderr)
        return INVALID
    except MillraceError as error:
        print(f"millrace: {error}", file=sys.stderr)
        return FAILED


def _other(name: str) -> Callable[[list[str]], int]:
    module, _, function = COMMANDS[name][0].partition(":")
    found: Callable[[list[str]], int] = getattr(import_module(module), function)
    return found


# run


def _run(options: argparse.Namespace) -> int:
    from spark_jobs import run
    from spark_jobs.progress import Human

    run.set_up_logs("INFO" if options.json else "WARNING")
    stream: Any = run.events_on_stdout() if options.json else Human()
    run.leave(run.run_file(options.file, stream, supervised=options.supervised))


# validate


def _validate(options: argparse.Namespace) -> int:
    from spark_jobs import config
    from spark_jobs.plan import reachability, remarks

    code = OK
    for path in options.files:
        try:
            jobs = config.build_flow(config.read(path))
        except ConfigInvalid as error:
            print(error, file=sys.stderr)
            code = INVALID
            continue
        for job in jobs:
            found = reachability(job) if options.check else []
            where = path if job.membership is None else f"{path}: sink {job.membership.sink}"
            for text in found:
                print(f"{where}: {text}", file=sys.stderr)
                code = code or FAILED
            for text in remarks(job):
                print(f"{where}: note: {text}")
            if not found:
                reached = " and everything it needs is there" if options.check else ""
                print(f"{where}: job {job.name} is valid{reached}")
    return code


# plan


def _plan(options: argparse.Namespace) -> int:
    from spark_jobs import config
    from spark_jobs.plan import plan

    running = config.read(options.running).properties if options.running else None
    if options.json:
        from spark_jobs.flow_plan import plan_flow

        answers = [plan_flow(config.read(path).properties, running) for path in options.files]
        print("\n".join(json.dumps(answer, indent=2) for answer in answers))
        return OK if all(answer["valid"] for answer in answers) else INVALID
    # All complaints before the first line.
    jobs = [job for path in options.files for job in config.build_flow(config.read(path))]
    for number, job in enumerate(jobs):
        print(("\n" if number else "") + "\n".join(plan(job)))
    if running is not None:
        from spark_jobs.flow_plan import edit_lines

        print("\n".join(line for path in options.files for line in edit_lines(config.read(path).properties, running)))
    return OK


# status and stop


def _names(given: Sequence[str]) -> list[str]:
    """The names of jobs that are given by name or by file; a flow with several sinks is a job for each."""
    from spark_jobs import config
    from spark_jobs.config_keys import job_name
    from spark_jobs.flow_sinks import divide

    result = []
    for text in given:
        if not Path(text).is_file():
            if job_name("name", text) is not None:
                raise ConfigInvalid(f"{text} is no file, and can't be the name of a job")
            names = known_jobs()
            sinks = [] if text in names else [name for name in names if describe(name).get("flow") == text]
            result += sinks or [text]
            continue
        properties = config.read(text).properties
        if "name" not in properties:
            raise ConfigInvalid(f"{text}: has no name")
        result += [sink.properties["name"] for sink in divide(properties)] or [properties["name"]]
    return result


def known_jobs() -> list[str]:
    """Names of the jobs that ever ran on this machine."""
    from spark_jobs.job import control_folder

    folder = control_folder("x").parent
    return sorted(each.name for each in folder.iterdir() if (each / "status.json").is_file()) if folder.is_dir() else []


def describe(name: str) -> dict[str, Any]:
    """What is known of a job on this machine; ``state`` is running, retrying, stopped, failed, died or unknown."""
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


def _status(options: argparse.Namespace) -> int:
    names = _names(options.jobs) if options.jobs else known_jobs()
    found = [describe(name) for name in names]
    if options.json:
        print(json.dumps({each["job"]: each for each in found}, indent=2))
    else:
        print("\n".join(status_table(found, full=bool(options.jobs))) if found else "no job has run on this machine")
    return OK if all(each["running"] for each in found) or not options.jobs else NOT_RUNNING


def status_table(found: Sequence[dict[str, Any]], *, full: bool = False) -> list[str]:
    """One line for each job, and one more where something is wrong.

    Args:
        found: from ``describe``.
        full: the whole error of a job instead of its first line, with the trace.
    """
    rows = [("JOB", "STATE", "PID", "BATCH", "LAG", "LAST PROGRESS", "CHECKPOINT")]
    notes: dict[int, str] = {}
    for each in found:
        progress = each.get("progress") or {}
        rows.append(
            (
                each["job"],
                each["state"],
                str(each["pid"]) if each["running"] and "pid" in each else "-",
                str(progress.get("batch", "-")),
                _lag_text(progress),
                progress.get("time", "-"),
                each.get("checkpoint", "-"),
            )
        )
        if each["state"] == "failed":
            notes[len(rows)] = _failure_text(each["job"], each["failed"], full=full)
        elif each["state"] == "retrying":
            notes[len(rows)] = _trouble_text(each, full=full)
        elif each["state"] == "died":
            notes[len(rows)] = (
                "its process ended without a word (killed, or the machine went down); the next run "
                "goes on from the checkpoint"
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows, 1):
        lines.append("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        if number in notes:
            lines += [f"    {line}" for line in notes[number].splitlines()]
    return lines


def _lag_text(progress: dict[str, Any]) -> str:
    if not progress:
        return "-"
    return "unknown" if progress.get("lag_total") is None else str(progress["lag_total"])


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..."


def _failure_text(job: str, failed: dict[str, Any], *, full: bool) -> str:
    if full:
        return "\n".join(text.strip() for text in (failed["error"], failed.get("trace") or "") if text)
    more = failed["error"].strip() != _first_line(failed["error"]) or failed.get("trace")
    return _first_line(failed["error"]) + (f" (all of it: millrace job status {job})" if more else "")


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


def _stop(options: argparse.Namespace) -> int:
    from spark_jobs.control import Control, alive
    from spark_jobs.job import control_folder

    controls = {name: Control(control_folder(name)) for name in _names(options.jobs)}
    asked: dict[str, dict[str, Any]] = {}
    code = OK
    for name, control in controls.items():
        status = control.status()
        if not control.running():
            print(f"{name}: is not running on this machine")
        elif not status.get("pid") or not alive(status["pid"], status["age"]):
            print(f"{name}: is just starting; try again", file=sys.stderr)
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
        while alive(status["pid"], status["age"]) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not alive(status["pid"], status["age"]):
            print(f"{name}: stopped after batch {describe(name).get('stopped', {}).get('batch')}")
        elif options.kill:
            os.kill(status["pid"], signal.SIGKILL)
            print(
                f"{name}: did not end within {options.timeout:.0f} s and was killed; its batch is done again at the next "
                f"start"
            )
        else:
            print(
                f"{name}: process {status['pid']} still finishes its batch after {options.timeout:.0f} s; wait, or "
                "give it up with --kill (the batch is done again at the next start)",
                file=sys.stderr,
            )
            code = FAILED
    return code


# package


def _package(options: argparse.Namespace) -> int:
    from spark_jobs import package
    from spark_jobs.session import jars

    path = package.build(options.folder)
    sets = ["spark", *(["delta"] if options.delta else []), *(["s3"] if options.s3 else [])]
    files = jars(sets)
    print(path)
    print(
        "\nspark-submit --master spark://HOST:7077 \\\n  --jars "
        + ",".join(map(str, files))
        + f" \\\n  --py-files {path} \\\n  {package.root() / 'spark_jobs' / 'run.py'} JOBFILE"
    )
    return OK
