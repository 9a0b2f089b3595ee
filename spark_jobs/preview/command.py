"""``millrace job preview FILE``: some rows through every step of a job, printed as tables. Nothing is written anywhere."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from spark_jobs.config import job_files as config
from spark_jobs.preview.client import preview_flow
from spark_jobs.preview.request import DEFAULT_ROWS, DEFAULT_TIMEOUT_S
from spark_jobs.preview.tables import preview_lines
from worker.command_parser import CommandParser, parse_seconds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

#: For the start of an application, seconds.
_START_S: Final = 90.0


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    top = CommandParser(
        prog="millrace job preview",
        description="Sends the newest records of a job's topics, or rows from a file, through every step of the job, and "
        "prints the rows after each. Touches no consumer group, no checkpoint and no sink. See docs/jobs/preview.md.",
    )
    top.add_argument("file", metavar="FILE", help="the job, YAML or JSON")
    top.add_argument(
        "--rows",
        metavar="FILE",
        help="take these rows: a JSON list of objects with table, op and row, or one object a line; -: standard input",
    )
    top.add_argument("--limit", type=int, default=DEFAULT_ROWS, help=f"records to read (default {DEFAULT_ROWS})")
    top.add_argument(
        "--timeout",
        type=parse_seconds,
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help="seconds to compute (default %(default)g)",
    )
    top.add_argument("--json", action="store_true", help="as JSON, as `POST /flows/preview` answers")
    return top


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code: 1 if a step or a row fails.

    Raises:
        ConfigInvalid: the job or the rows are wrong.
        MillraceError: the preview can't be had.
    """
    options = make_parser().parse_args(argv)
    file = config.read_file(options.file)
    config.build_flow(file)  # its complaints name file and line
    properties, _ = config.resolve_references(file.properties)
    body: dict[str, Any] = {"limit": options.limit, "timeout_ms": options.timeout * 1000}
    if options.rows is not None:
        body["rows"] = read_rows_file(options.rows)
    answer = asyncio.run(preview_flow(properties, body, deadline_s=options.timeout + _START_S, detached=True))
    output = json.dumps(answer, indent=2, ensure_ascii=False) if options.json else "\n".join(preview_lines(answer))
    sys.stdout.write(f"{output}\n")
    failing = (
        answer["errors"] or "error" in answer or any(step["error_count"] or "error" in step for step in answer["steps"])
    )
    return 1 if failing else 0


def read_rows_file(path: str) -> Any:
    """The rows of a file; ``-`` reads standard input.

    Raises:
        ConfigInvalid: it can't be read.
    """
    try:
        file_text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path}: can't be read: {error}") from error
    try:
        return json.loads(file_text)
    except json.JSONDecodeError as error:
        lines = [(number, line) for number, line in enumerate(file_text.splitlines(), 1) if line.strip()]
        if len(lines) < 2:
            raise ConfigInvalid(f"{path}:{error.lineno}: is not JSON: {error.msg} (column {error.colno})") from None
    rows = []
    for number, line in lines:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ConfigInvalid(
                f"{path}:{number}: is not JSON: {error.msg} (column {error.colno}); the file must be a list, or have one "
                "object a line"
            ) from None
    return rows
