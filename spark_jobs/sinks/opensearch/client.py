"""Writes rows to OpenSearch in a task: bulk requests, and the meaning of each item of their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.opensearch.config import NAME, PREFIX
from spark_jobs.sinks.opensearch.mapping import index_name
from spark_jobs.sinks.shared.model import Unfinished, WriteCounts, change_id
from spark_jobs.sinks.shared.templates import Unfilled
from spark_jobs.sinks.shared.values import NoText, build_document, json_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spark_jobs.sinks.opensearch.config import OpenSearchSettings
    from spark_jobs.sinks.shared.http_requests import HttpAnswer
    from spark_jobs.sinks.shared.model import Refuse, RowTable, SinkRow

#: What is read of an answer: the fate of each document, and the reason where it is not written.
_FILTER: Final = (
    "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"
)
_NDJSON: Final = {"Content-Type": "application/x-ndjson"}
_CONFLICT, _TOO_LARGE, _BUSY = 409, 413, 429
#: Of a whole request: the server, or what is before it, is unavailable.
PASSING: Final = frozenset({408, _BUSY, 500, 502, 503, 504})
#: Of a document: a disk that is full; an index that has been deleted meanwhile, which the driver creates again.
_PASSING_TYPES: Final = frozenset({"cluster_block_exception", "index_not_found_exception", "index_closed_exception"})
_LONGEST_ID: Final = 512
_SHOWN: Final = 400


class OpenSearchClient:
    """See ``shared.model.RowClient``.

    Args:
        settings: the sink's.
        table: the rows' table.
    """

    def __init__(self, settings: OpenSearchSettings, table: RowTable) -> None:
        self._settings = settings
        self._table = table
        self._requests = settings.requests()
        self._path = f"/{quote(index_name(settings.index.of_table(table.namespace)), safe='')}/_bulk?{_FILTER}"
        self._id = settings.id.bind(table)

    def write(self, rows: Sequence[SinkRow], refuse: Refuse) -> WriteCounts:
        """See ``RowClient.write``."""
        refused: list[tuple[SinkRow, str]] = []
        lines: list[tuple[SinkRow, bytes]] = []
        for row in rows:
            try:
                lines.append((row, self._build_bulk_lines(row)))
            except (Unfilled, NoText) as error:
                refused.append((row, str(error)))
        done, left, reason, after_s = WriteCounts(), [], "", 0.0
        waiting = [lines] if lines else []
        while waiting:
            part = waiting.pop()
            answer = self._requests.exchange("POST", self._path, b"".join([line for _, line in part]), _NDJSON)
            done.requests += 1
            if answer.status == _TOO_LARGE:
                if len(part) == 1:
                    refused.append((part[0][0], f"{self._requests.where} answers 413: the document is too large"))
                else:
                    half = len(part) // 2
                    waiting += [part[half:], part[:half]]
                continue
            if answer.status in PASSING:
                left += [row for row, _ in part]
                left += [row for waiting_rows in waiting for row, _ in waiting_rows]
                reason, after_s = describe_answer(answer, self._requests.where), answer.after_s
                break
            for (row, _), item in zip(part, self._read_items(answer, len(part)), strict=True):
                retry_reason = self._count_item(row, item, done, refused)
                if retry_reason:
                    left.append(row)
                    reason, after_s = retry_reason, answer.after_s
        refuse(refused)
        if left:
            raise Unfinished(reason, left, done, after_s)
        return done

    def close(self) -> None:
        """See ``RowClient.close``."""
        self._requests.close()

    def _build_bulk_lines(self, row: SinkRow) -> bytes:
        """The row in a bulk request; raises ``Unfilled`` and ``NoText``."""
        if self._settings.append:
            # The same document in every replay, so that the server can refuse it the second time.
            name = change_id(row, self._table)
            return orjson.dumps({"create": {"_id": name}}) + b"\n" + json_of(build_document(row)) + b"\n"
        name = self._id(row)
        if not 0 < len(name.encode()) <= _LONGEST_ID:
            raise Unfilled(f"its _id has {len(name.encode())} bytes, and {NAME} takes 1 to {_LONGEST_ID}")
        if row.order < 0:
            raise Unfilled(f"its order number {row.order} is negative, and {NAME} takes none as a version")
        target = {"_id": name, "version": row.order, "version_type": "external_gte"}
        if row.deleted and not self._settings.soft:
            return orjson.dumps({"delete": target}) + b"\n"
        body = json_of(build_document(row, active=self._settings.soft))
        return orjson.dumps({"index": target}) + b"\n" + body + b"\n"

    def _read_items(self, answer: HttpAnswer, count: int) -> Iterable[dict[str, Any]]:
        """The fates of the documents of a request.

        Raises:
            Fatal: the server refuses the request as a whole, or does not speak OpenSearch's API.
        """
        where = self._requests.where
        if not 200 <= answer.status < 300:
            raise make_refusal(answer, where)
        try:
            items = orjson.loads(answer.content)["items"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            items = []
        if len(items) != count:
            raise Fatal(f"{where} answers {count} documents with {len(items)} outcomes: {PREFIX}url is not {NAME}'s")
        return [next(iter(item.values())) for item in items]

    def _count_item(
        self, row: SinkRow, item: dict[str, Any], done: WriteCounts, refused: list[tuple[SinkRow, str]]
    ) -> str:
        """Count a document, or put it with the refused ones; the reason where it has to be sent again.

        Raises:
            Fatal: the login may not write.
        """
        status, error = item["status"], item.get("error")
        if error is None:
            done.rows += 1
            return ""
        if status == _CONFLICT:
            done.stale += 1  # the target has a newer one
            return ""
        cause = error.get("caused_by", {}).get("reason", "")
        message = f"{self._requests.where}: {error.get('type')}: {error.get('reason')}{': ' + cause if cause else ''}"
        if status in PASSING or error.get("type") in _PASSING_TYPES:
            return message
        if status in (401, 403):
            raise Fatal(f"{message}. Give the login ({PREFIX}user) the right to write to the index")
        refused.append((row, message[:_SHOWN]))
        return ""


def describe_answer(answer: HttpAnswer, where: str) -> str:
    """An answer in words."""
    content = " ".join(answer.content[:_SHOWN].decode(errors="replace").split())
    return f"{where} answers {answer.status}{': ' + content if content else ''}"


def make_refusal(answer: HttpAnswer, where: str) -> Fatal | Retriable:
    """The error for an answer that is not the one that was asked for."""
    message = describe_answer(answer, where)
    if answer.status in PASSING:
        return Retriable(message)
    if answer.status == 401:
        return Fatal(f"{message}. Correct {PREFIX}user and {PREFIX}password, or {PREFIX}api.key")
    if answer.status == 403:
        return Fatal(f"{message}. Give the login ({PREFIX}user) the right to do that")
    return Fatal(message)
