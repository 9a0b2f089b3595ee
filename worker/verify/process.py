"""A verification in a process of its own, asked by a worker's control process: JSON lines on standard input and output.

The first line that comes is the request. Tables are compared one after the other, those in ``done`` are left out. Lines that go
are ``{"progress": text}``, ``{"ask": "offsets"}`` (the answer is the next line that comes), ``{"tables": names}`` at the start,
``{"table": ..., "notes": [...]}`` for each with the notes that are new, and at the end ``{"completed": true}`` or
``{"error": text}``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import sys
import traceback
from typing import TYPE_CHECKING, Any

from connectors.errors import ConfigInvalid, MillraceError
from worker.secrets.masking import SecretMasker
from worker.secrets.providers import ConfigTransformer, build_providers
from worker.verify.command import build_verification, table_body
from worker.verify.messages import VerificationRequest, VerifyProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class SentProgress(VerifyProgress):
    """Progress as lines for the worker."""

    def write(self, line: str) -> None:
        """Send the text."""
        send_message({"progress": line})


def send_message(message: Mapping[str, Any]) -> None:
    """Write a line to the worker. Blocks."""
    # Not escaped: a line has a limit, and keys of rows may have any letters.
    sys.stdout.buffer.write(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")
    sys.stdout.flush()


def receive_message() -> dict[str, Any]:
    """The next line of the worker. Blocks.

    Raises:
        EOFError: the worker has gone.
    """
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    message: dict[str, Any] = json.loads(line)
    return message


def ask_offsets() -> list[dict[str, Any]]:
    """The connector's saved offsets as of now. Blocks."""
    send_message({"ask": "offsets"})
    return list(receive_message()["offsets"])


def table_filter(pattern: str) -> Callable[[str], bool]:
    """Whether a table is wanted, by a regular expression for its whole name; all are with an empty one.

    Raises:
        ConfigInvalid: it is no regular expression.
    """
    try:
        compiled = re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise ConfigInvalid(f"The field 'tables' is no regular expression: {error}") from error
    return lambda table: not pattern or compiled.fullmatch(table) is not None


async def compare_tables(connector: Mapping[str, str], worker: Mapping[str, str], request: Mapping[str, Any]) -> None:
    """Compare the tables one after the other, and send the result of each.

    Raises:
        MillraceError: the source, Kafka or the worker can't be asked.
    """
    asked = VerificationRequest(
        includes=table_filter(request["tables"]),
        offsets=ask_offsets,
        timeout_s=request["timeout_s"],
        settle_s=request.get("settle_s"),
        examples=request["examples"],
        folder=request.get("folder"),
        progress=SentProgress(),
        rows_per_s=request.get("rows_per_s", 0),
    )
    names = await build_verification(connector, worker, asked).names()
    send_message({"tables": names})
    left = frozenset(names) - frozenset(request.get("done", ()))
    if left:
        run = build_verification(connector, worker, asked._replace(includes=left.__contains__))
        sent: set[str] = set()
        async for report in run.reports():
            # There may be a note for each table: all of them with each table would be too much.
            notes = [note for note in run.notes if note not in sent]
            sent.update(notes)
            send_message({"table": table_body(report), "notes": notes})


def main() -> int:
    """Run one verification."""
    masker, folder = SecretMasker(), None
    # What libraries log is no business of the worker's standard error, and may have secrets.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        request = receive_message()
        folder = request.get("folder")
        transformer = ConfigTransformer(build_providers(request["worker"]))
        worker, _ = transformer.transform(request["worker"])
        connector, _ = transformer.transform(request["connector"])
        masker.learn(worker)
        masker.learn(connector)
        asyncio.run(compare_tables(connector, worker, request))
        send_message({"completed": True})
    except EOFError:
        return 1
    except (MillraceError, OSError) as error:
        send_message({"error": masker.scrub(str(error))})
    except Exception as error:  # noqa: BLE001 - a defect: its traceback goes to the worker's standard error
        sys.stderr.write(masker.scrub(traceback.format_exc()))
        complaint = f"The process that compared met a defect: {error!r}; the worker's standard error has the details"
        send_message({"error": masker.scrub(complaint)})
    finally:
        if folder is not None:
            # A worker that was killed removes nothing.
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
