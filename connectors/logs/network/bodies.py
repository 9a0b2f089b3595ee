"""Bodies of HTTP requests as lines: NDJSON, Elasticsearch's bulk requests, Splunk's events. Pure functions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from connectors.logs.network.documents import document_line
from connectors.logs.network.lines import (
    MOST_LINES,
    LineLimits,
    NetworkLine,
    TooManyLines,
    clean_text,
    make_line,
    plain_line,
)
from connectors.logs.network.otlp import RequestInvalid

if TYPE_CHECKING:
    from connectors.logs.rules.records import LineOrigin


class BulkItem(NamedTuple):
    """One action of a bulk request.

    Attributes:
        action: its name.
        target: the index that it names.
        id: the document's id; "" if it has none.
        accepted: whether it makes a line.
    """

    action: str
    target: str
    id: str
    accepted: bool


#: Actions that bring a document, and whether it makes a line.
_ACTIONS: Final = {"index": True, "create": True, "update": False}


def read_ndjson(body: bytes, default: LineOrigin, limits: LineLimits, *, recognise: bool) -> list[NetworkLine]:
    """A document, or any text, on each line. Empty lines are left out.

    Raises:
        TooManyLines: there are more than a request may have.
    """
    return [document_line(line, default, limits, recognise=recognise) for line in _split_lines(body)]


def read_array(body: bytes, default: LineOrigin, limits: LineLimits) -> list[NetworkLine]:
    """A JSON array of documents, a line of each, as Fluent Bit and Vector send them; any other body as ``read_ndjson``.

    Raises:
        TooManyLines: there are more than a request may have.
    """
    documents = _split_array(body)
    if not documents:
        return read_ndjson(body, default, limits, recognise=True)
    # Line breaks are between tokens: inside of strings JSON has none.
    lines = (document.replace("\r", " ").replace("\n", " ").encode() for document in documents)
    return [document_line(line, default, limits, recognise=True) for line in lines]


def _split_array(body: bytes) -> list[str]:
    """The documents of an array; none if the body is something else."""
    documents: list[str] = []
    try:
        text = body.decode().strip()
        if text[:1] != "[" or text[-1:] != "]":
            return []
        decoder = json.JSONDecoder()
        position = _next_object(text, 1)
        while position < len(text) - 1:
            if len(documents) == MOST_LINES:
                raise TooManyLines
            if text[position] != "{":
                return []
            _, end = decoder.raw_decode(text, position)
            documents.append(text[position:end])
            position = _next_object(text, end)
    except (ValueError, RecursionError):
        return []
    return documents


def read_raw(body: bytes, default: LineOrigin, limits: LineLimits) -> list[NetworkLine]:
    """A line on each line. Empty ones are left out.

    Raises:
        TooManyLines: there are more than a request may have.
    """
    return [make_line(line, limits, default, plain_line) for line in _split_lines(body)]


def _split_lines(body: bytes) -> list[bytes]:
    if body.count(b"\n") > MOST_LINES:
        raise TooManyLines
    return [line for part in body.split(b"\n") if (line := part.removesuffix(b"\r"))]


def read_bulk(
    body: bytes, index: str, default: LineOrigin, limits: LineLimits, *, recognise: bool
) -> tuple[list[NetworkLine], list[BulkItem]]:
    """The lines of a bulk request, and what is to be answered.

    Args:
        body: actions and documents by turns.
        index: the index that the path names.
        default: the origin, as far as documents do not say it.
        limits: what becomes of documents that are too long or no UTF-8.
        recognise: as of ``document_line``.

    Raises:
        RequestInvalid: it has not this form; then no document of it is taken.
        TooManyLines: there are more than a request may have.
    """
    lines: list[NetworkLine] = []
    items: list[BulkItem] = []
    parts = iter(enumerate(_split_lines(body), 1))
    for number, part in parts:
        name, action = _read_action(part, number)
        target, identity = str(action.get("_index") or index), str(action.get("_id") or "")
        if name == "delete":
            items.append(BulkItem(name, target, identity, accepted=False))
            continue
        document = next(parts, None)
        if document is None:
            raise RequestInvalid(f"line {number}: the action has no document behind it")
        items.append(BulkItem(name, target, identity, accepted=_ACTIONS[name]))
        if _ACTIONS[name]:
            line = document_line(document[1], default, limits, recognise=recognise)
            if identity:
                line.identity = f"{target}/{identity}"
            lines.append(line)
    return lines, items


def _read_action(part: bytes, number: int) -> tuple[str, dict[str, Any]]:
    try:
        ((name, action),) = msgspec.json.decode(part, type=dict[str, dict[str, Any]]).items()
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise RequestInvalid(f'line {number} is not an action such as {{"create": {{}}}}: {error}') from error
    if name != "delete" and name not in _ACTIONS:
        raise RequestInvalid(f"line {number}: there is no action {name!r}")
    return name, action


def bulk_answer(items: list[BulkItem]) -> dict[str, Any]:
    """The answer to a bulk request whose lines are in Kafka."""
    answers: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        answer: dict[str, Any] = {"_index": item.target, "_id": item.id or str(number)}
        if item.accepted:
            answer |= {
                "_version": 1,
                "result": "created",
                "_shards": {"total": 1, "successful": 1, "failed": 0},
                "_seq_no": number,
                "_primary_term": 1,
                "status": 201,
            }
        else:
            reason = f"a log takes create and index, not {item.action}"
            answer |= {"status": 400, "error": {"type": "illegal_argument_exception", "reason": reason}}
        answers.append({item.action: answer})
    return {"took": 0, "errors": not all(item.accepted for item in items), "items": answers}


def read_events(body: bytes, default: LineOrigin, limits: LineLimits) -> list[NetworkLine]:
    """Splunk's events: JSON objects, one behind the other.

    Raises:
        RequestInvalid: one is no object with an event; then none is taken. ``args[1]`` is its number.
        TooManyLines: there are more than a request may have.
    """
    json_text = body.decode(errors="replace")
    decoder = json.JSONDecoder()
    lines: list[NetworkLine] = []
    position = 0
    while (position := _next_object(json_text, position)) < len(json_text):
        if len(lines) == MOST_LINES:
            raise TooManyLines
        try:
            event, position = decoder.raw_decode(json_text, position)
        except (ValueError, RecursionError) as error:
            raise RequestInvalid(f"event {len(lines)} is not JSON: {error}", len(lines)) from error
        if not isinstance(event, dict) or event.get("event") in (None, ""):
            raise RequestInvalid(f"event {len(lines)} has no member event", len(lines))
        lines.append(_event_line(event, default, limits))
    return lines


def _next_object(json_text: str, position: int) -> int:
    while position < len(json_text) and json_text[position] in " \t\r\n,":
        position += 1
    return position


def _event_line(event: dict[str, Any], default: LineOrigin, limits: LineLimits) -> NetworkLine:
    content = event["event"]
    message = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    fields = event.get("fields")
    origin = msgspec.structs.replace(
        default,
        host=clean_text(str(event.get("host") or default.host)),
        file=clean_text(str(event.get("source") or default.file)),
        timestamp=_event_time(event.get("time"), default.timestamp),
        app=clean_text(str(event["sourcetype"])) if event.get("sourcetype") else default.app,
        data=clean_text(json.dumps(fields, ensure_ascii=False)) if fields else None,
    )
    return make_line(message.encode("utf-8", "replace"), limits, origin, plain_line)


def _event_time(value: Any, default: int) -> int:
    """Seconds since 1970, as a number or a string, in milliseconds."""
    try:
        return round(float(value) * 1000)
    except (TypeError, ValueError, OverflowError):
        return default
