"""The meaning of answers for the rows of a request. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import Fatal
from spark_jobs.steps.lookup.documents import field_of

if TYPE_CHECKING:
    from spark_jobs.sinks.http.config import Answers

_SHOWN: Final = 300


class Fate(StrEnum):
    """The fate of a row, or of all rows of a request."""

    WRITTEN = "written"
    STALE = "stale"
    REFUSED = "refused"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A fate and its reason."""

    fate: Fate
    reason: str = ""


def of_status(status: int, reason: str, answers: Answers, where: str) -> Verdict:
    """The verdict of a status.

    Raises:
        Fatal: it means neither a passing fault nor a bad row.
    """
    message = f"{where} answers {status}{': ' + reason if reason else ''}"
    if status in answers.stale:
        return Verdict(Fate.STALE)
    if 200 <= status < 300:
        return Verdict(Fate.WRITTEN)
    if status in answers.retry:
        return Verdict(Fate.RETRY, message)
    if status in answers.refused:
        return Verdict(Fate.REFUSED, message)
    if status in (401, 403):
        raise Fatal(f"{message}. Correct sink.http.user and sink.http.password, sink.http.token or sink.http.oauth.*")
    raise Fatal(
        f"{message}. Correct sink.http.url, sink.http.body or the headers; sink.http.status.retry, sink.http.status.refused "
        "and sink.http.status.stale say what other statuses mean"
    )


def of_records(content: bytes, count: int, answers: Answers, where: str) -> list[Verdict]:
    """The verdicts of records, from the answer to a request that was accepted.

    Args:
        content: of the answer.
        count: records of the request.
        answers: how answers are read.
        where: the service, for messages.

    Raises:
        Fatal: the answer has no such outcomes.
    """
    try:
        items: Any = orjson.loads(content)
    except orjson.JSONDecodeError:
        items = None
    if answers.path != ".":
        items = field_of(items, answers.path)
    if not isinstance(items, list) or len(items) != count:
        size = f"{len(items)} outcomes" if isinstance(items, list) else "no array of outcomes"
        raise Fatal(
            f"{where}: the answer to {count} records has {size} in {answers.path} (sink.http.outcome.path): "
            f"{show_content(content)}"
        )
    return [_of_record(item, answers, where) for item in items]


def _of_record(item: Any, answers: Answers, where: str) -> Verdict:
    error = field_of(item, answers.error) if answers.error else None
    reason = "" if error is None else error if isinstance(error, str) else orjson.dumps(error).decode()
    status = field_of(item, answers.status) if answers.status else error is None
    if isinstance(status, bool):
        return Verdict(Fate.WRITTEN) if status else Verdict(Fate.REFUSED, f"{where}: {reason or 'not accepted'}")
    if isinstance(status, int):
        return of_status(status, reason[:_SHOWN], answers, where)
    raise Fatal(
        f"{where}: an outcome has no status (a number, true or false) in {answers.status} (sink.http.outcome.status): "
        f"{show_content(orjson.dumps(item))}"
    )


def show_content(content: bytes) -> str:
    """The beginning of an answer, in one line."""
    return " ".join(content[:_SHOWN].decode(errors="replace").split())
