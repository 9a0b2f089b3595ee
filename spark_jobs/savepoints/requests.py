"""How a running job is asked for a savepoint: by a file in its folder on this machine, which it answers with another one."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal
from spark_jobs.savepoints.make import make_savepoint, summarize_savepoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.job import Job
    from spark_jobs.spark.checkpoint import Folder

_REQUEST: Final = "savepoint-request.json"
_ANSWER: Final = "savepoint-answer.json"
_POLL_S: Final = 0.05


class JobSavepointRequest(msgspec.Struct, frozen=True):
    """A request for a savepoint.

    Attributes:
        id: random; the answer names it.
        location: where to.
        name: of the savepoint.
        until: when the caller stops waiting, s since 1970.
        stop: whether the job ends after it.
    """

    id: str
    location: str
    name: str
    until: float
    stop: bool = False


class SavepointAnswer(msgspec.Struct, frozen=True):
    """The result: a savepoint's summary, or the error."""

    id: str
    name: str = ""
    savepoint: dict[str, Any] | None = None
    error: str = ""


class Inbox:
    """The requests to one job on this machine."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._request = folder / _REQUEST
        self._answer = folder / _ANSWER
        self._clock = clock

    def next(self) -> JobSavepointRequest | None:
        """The request that waits, or None. An expired one is dropped."""
        try:
            request_json = self._request.read_bytes()
        except FileNotFoundError:
            return None
        try:
            request = msgspec.json.decode(request_json, type=JobSavepointRequest)
        except msgspec.MsgspecError:
            request = None
        if request is None or request.until < self._clock():
            self._request.unlink(missing_ok=True)
            return None
        return request

    def answer(self, answer: SavepointAnswer) -> None:
        """Answer the request."""
        _write_message(self._answer, answer)
        self._request.unlink(missing_ok=True)


def answer_request(request: JobSavepointRequest, job: Job, spark: SparkSession, checkpoint: Folder) -> SavepointAnswer:
    """Make the savepoint that is asked for, of a job that does nothing meanwhile; errors are in the answer. Blocks."""
    try:
        manifest = make_savepoint(job, spark, checkpoint, request.location, request.name)
    except Exception as error:  # noqa: BLE001 - the job continues, and the caller gets the error
        from spark_jobs.spark.causes import cause_of, describe_error

        return SavepointAnswer(request.id, request.name, error=describe_error(cause_of(error)))
    return SavepointAnswer(request.id, request.name, summarize_savepoint(manifest, request.location))


def request_savepoint(
    folder: Path,
    request: JobSavepointRequest,
    *,
    alive: Callable[[], bool],
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Ask the running job of ``folder`` for a savepoint and wait for it. Blocks.

    Returns:
        The savepoint's summary.

    Raises:
        Fatal: the job refused, ended, or took too long.
    """
    post_request(folder, request)
    deadline = clock() + timeout_s
    try:
        while True:
            ended = not alive()
            answer = _read_answer(folder / _ANSWER)
            if answer is not None and answer.id == request.id:
                if answer.savepoint is None:
                    raise Fatal(f"no savepoint was made: {answer.error}")
                return answer.savepoint
            if ended:
                raise Fatal("no savepoint was made: the job has ended; see its log")
            if clock() > deadline:
                raise Fatal(
                    f"no savepoint was made within {timeout_s:g} s: the job finishes its batch first (millrace job status "
                    "shows what it does). If it is still writing one, it is complete once the folder has a savepoint.json"
                )
            time.sleep(_POLL_S)
    finally:
        (folder / _REQUEST).unlink(missing_ok=True)


def post_request(folder: Path, request: JobSavepointRequest) -> None:
    """Ask the running job of ``folder``; a request that waits already is replaced."""
    _write_message(folder / _REQUEST, request)


def read_state(folder: Path) -> tuple[JobSavepointRequest | None, SavepointAnswer | None]:
    """The request that waits, or is being worked on, and the last answer."""
    waiting = Inbox(folder).next()
    return waiting, _read_answer(folder / _ANSWER)


def _read_answer(path: Path) -> SavepointAnswer | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavepointAnswer)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _write_message(path: Path, message: msgspec.Struct) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(msgspec.json.encode(message))
    part.chmod(0o600)
    part.replace(path)
