"""Writes rows over HTTP in a task: requests of rows, several at a time, at a limited rate."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from zlib import crc32

import aiohttp

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.http.answers import Fate, Verdict, of_records, of_status, show_content
from spark_jobs.sinks.http.body import body_of
from spark_jobs.sinks.http.config import ARRAY, NDJSON, RECORD
from spark_jobs.sinks.shared.http_requests import retry_after
from spark_jobs.sinks.shared.model import Unfinished, WriteCounts, change_id
from spark_jobs.sinks.shared.templates import Unfilled
from spark_jobs.sinks.shared.values import NoText, text_of
from spark_jobs.steps.lookup.tls import make_tls_context
from worker.converters.registry.auth import Credentials, basic_header

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from spark_jobs.sinks.http.config import HttpSettings
    from spark_jobs.sinks.shared.model import Refuse, RowTable, SinkRow

_TYPES: Final = {NDJSON: "application/x-ndjson"}
_LARGEST: Final = 64 << 20
#: Answers to a DELETE that mean that there is no such row any more.
_GONE: Final = (404, 410)
#: The most services that a Python worker keeps connections to.
_SERVICES: Final = 8


@dataclass(slots=True)
class _Request:
    """Rows that are sent together."""

    method: str
    url: str
    headers: dict[str, str]
    rows: list[SinkRow]
    bodies: list[bytes]

    def part(self, begin: int, end: int) -> _Request:
        return _Request(self.method, self.url, self.headers, self.rows[begin:end], self.bodies[begin:end])


@dataclass(slots=True)
class _Result:
    """The result of requests: rows counted, rows refused with reasons, rows left with the reason and the asked pause."""

    done: WriteCounts = field(default_factory=WriteCounts)
    refused: list[tuple[SinkRow, str]] = field(default_factory=list)
    left: list[SinkRow] = field(default_factory=list)
    reason: str = ""
    after_s: float = 0.0


class HttpSinkClient:
    """See ``shared.model.RowClient``.

    Args:
        settings: the sink's.
        table: the rows' table.
    """

    def __init__(self, settings: HttpSettings, table: RowTable) -> None:
        self._settings = settings
        self._table = table
        self._url = settings.url.bind(table, lambda text: quote(text, safe=""))
        self._headers = [(name, template.bind(table)) for name, template in settings.headers]
        self._body = body_of(settings.body, table)

    def write(self, rows: Sequence[SinkRow], refuse: Refuse) -> WriteCounts:
        """See ``RowClient.write``."""
        service = SERVICES.get(self._settings)
        result = _Result()
        lanes = self._split_lanes(rows, result)
        service.run(self._send_all(service, lanes, result))
        refuse(result.refused)
        if result.left:
            left = sorted(result.left, key=lambda row: (row.topic, row.partition, row.offset, row.number))
            raise Unfinished(result.reason, left, result.done, result.after_s)
        return result.done

    def close(self) -> None:
        """See ``RowClient.close``; connections stay with the process, which has further tasks."""

    def _split_lanes(self, rows: Sequence[SinkRow], result: _Result) -> list[list[_Request]]:
        """The requests, in lists that are sent one after the other; rows of a key are in one list."""
        chosen = self._settings
        lanes: dict[Any, list[_Request]] = defaultdict(list)
        for row in rows:
            try:
                url = self._url(row)
                headers = {name: fill(row) for name, fill in self._headers}
                body = self._body(row)
            except (Unfilled, NoText) as error:
                result.refused.append((row, str(error)))
                continue
            if chosen.format != RECORD:
                lane = (url, *headers.values())
                if not lanes[lane]:
                    lanes[lane].append(_Request(chosen.method, url, headers, [], []))
                lanes[lane][0].rows.append(row)
                lanes[lane][0].bodies.append(body)
                continue
            method = chosen.delete_method if row.deleted and chosen.delete_method else chosen.method
            lanes[self._find_lane(row)].append(_Request(method, url, headers, [row], [body]))
        return list(lanes.values())

    def _find_lane(self, row: SinkRow) -> int:
        """The number of the list in which a row is sent alone."""
        if not self._table.keys:
            return row.partition % self._settings.requests
        key = "\0".join(_key_text(row.values[name]) for name in self._table.keys)
        return crc32(key.encode()) % self._settings.requests

    async def _send_all(self, service: _Service, lanes: Sequence[list[_Request]], result: _Result) -> None:
        limit = asyncio.Semaphore(self._settings.requests)

        async def send(lane: list[_Request]) -> None:
            async with limit:
                for request in lane:
                    # After a fault the rest waits: the service may be busy, and later rows may be of the same key.
                    if result.left:
                        result.left += request.rows
                    else:
                        await self._send_request(service, request, result)

        outcomes = await asyncio.gather(*(send(lane) for lane in lanes), return_exceptions=True)
        for error in outcomes:
            if isinstance(error, BaseException):
                raise error

    async def _send_request(self, service: _Service, request: _Request, result: _Result) -> None:
        """Send a request; where it is refused as a whole, in halves."""
        verdicts = await self._judge_rows(service, request, result)
        if len(verdicts) == 1 < len(request.rows) and verdicts[0].fate is Fate.REFUSED:
            half = len(request.rows) // 2
            await self._send_request(service, request.part(0, half), result)
            second_half = request.part(half, len(request.rows))
            if result.left:
                result.left += second_half.rows
            else:
                await self._send_request(service, second_half, result)
            return
        if len(verdicts) == 1:
            verdicts = verdicts * len(request.rows)
        for row, verdict in zip(request.rows, verdicts, strict=True):
            if verdict.fate is Fate.WRITTEN:
                result.done.rows += 1
            elif verdict.fate is Fate.STALE:
                result.done.stale += 1
            elif verdict.fate is Fate.REFUSED:
                result.refused.append((row, verdict.reason))
            else:
                result.left.append(row)
                result.reason = verdict.reason

    async def _judge_rows(self, service: _Service, request: _Request, result: _Result) -> list[Verdict]:
        """The verdicts of the request's rows, or one for all of them."""
        chosen = self._settings
        await service.pace(len(request.rows))
        result.done.requests += 1
        try:
            status, after_s, content = await service.exchange(
                request.method, request.url, self._all_headers(request), self._request_body(request)
            )
        except Retriable as error:
            return [Verdict(Fate.RETRY, str(error))]
        result.after_s = max(result.after_s, after_s)
        if request.method == "DELETE" and status in _GONE:
            return [Verdict(Fate.WRITTEN)]
        where = f"{request.method} {chosen.where}"
        if 200 <= status < 300 and chosen.answers.path:
            return of_records(content, len(request.rows), chosen.answers, where)
        return [of_status(status, show_content(content), chosen.answers, where)]

    def _all_headers(self, request: _Request) -> dict[str, str]:
        chosen = self._settings
        headers = {"Accept": "application/json", "User-Agent": "millrace"}
        if request.method != "DELETE":
            headers["Content-Type"] = _TYPES.get(chosen.format, "application/json")
        if chosen.idempotency_header:
            ids = [change_id(row, self._table) for row in request.rows]
            alone = chosen.format == RECORD
            headers[chosen.idempotency_header] = ids[0] if alone else sha256("\n".join(ids).encode()).hexdigest()
        return headers | request.headers

    def _request_body(self, request: _Request) -> bytes | None:
        if request.method == "DELETE":
            return None
        if self._settings.format == ARRAY:
            return b"[" + b",".join(request.bodies) + b"]"
        if self._settings.format == NDJSON:
            return b"".join([body.replace(b"\n", b" ") + b"\n" for body in request.bodies])
        return request.bodies[0]


def _key_text(value: Any) -> str:
    try:
        return text_of(value)
    except NoText:
        return repr(value)


def make_login_headers(settings: HttpSettings) -> Credentials:
    """Gives the headers of logins."""
    fixed = {}
    if settings.access.user:
        fixed["Authorization"] = basic_header(settings.access.user, settings.access.password)
    if settings.token:
        bearer = settings.token_header.lower() == "authorization"
        fixed[settings.token_header] = f"Bearer {settings.token}" if bearer else settings.token
    return Credentials(fixed, settings.oauth)


class _Service:
    """Connections to one service, its tokens and the pace of requests; an event loop that runs only during a call."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._session: aiohttp.ClientSession | None = None
        self._credentials = make_login_headers(settings)
        self._tls: ssl.SSLContext | None = None
        self._free_at = 0.0

    def run(self, work: Any) -> Any:
        """Run a coroutine to its end."""
        return self._loop.run_until_complete(work)

    async def pace(self, records: int) -> None:
        """Wait until a request of that many records may be sent."""
        chosen = self._settings
        cost = max(
            records / chosen.rate_records if chosen.rate_records else 0.0,
            1 / chosen.rate_requests if chosen.rate_requests else 0.0,
        )
        if cost:
            now = time.monotonic()
            begin = max(now, self._free_at)
            self._free_at = begin + cost
            await asyncio.sleep(begin - now)

    async def exchange(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None
    ) -> tuple[int, float, bytes]:
        """Status, seconds of ``Retry-After``, content of the answer; asks once more where a token was not accepted.

        Raises:
            Retriable: the service, or the endpoint of tokens, does not answer.
            Fatal: the endpoint refuses the client; the answer is too large.
        """
        session = self._open_session()
        for attempt in (1, 2):
            logins = await self._credentials.headers(session, self._tls, None)
            try:
                async with session.request(
                    method,
                    url,
                    data=content,
                    headers=headers | logins,
                    ssl=self._tls or True,
                    allow_redirects=False,
                ) as response:
                    if response.status == 401 and attempt == 1 and self._credentials.reject():
                        continue
                    body = await _read_answer(response, self._settings.where)
                    return response.status, retry_after(response.headers.get("Retry-After")), body
            except aiohttp.InvalidURL as error:
                raise Fatal(f"{self._settings.where}: {url} is not a URL: correct sink.http.url") from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise Retriable(
                    f"{self._settings.where} does not answer: {str(error) or type(error).__name__}"
                ) from error
        raise AssertionError("the second attempt answers or raises")

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            access = self._settings.access
            self._tls = make_tls_context(access, always=self._settings.where.startswith("https:"))
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._settings.requests),
                timeout=aiohttp.ClientTimeout(total=access.timeout_s),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def close(self) -> None:
        """Close the connections."""
        with suppress(Exception):
            if self._session is not None:
                self.run(self._session.close())
        self._loop.close()


async def _read_answer(response: aiohttp.ClientResponse, where: str) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        content += chunk
        if len(content) > _LARGEST:
            raise Fatal(f"{where} answers with more than {_LARGEST >> 20} MiB: lower sink.http.batch.rows")
    return bytes(content)


class _Services:
    """The services of a Python worker: one process has many tasks of many batches, and Spark gives a task no other place.

    Bounded: the one that was not used longest is closed.
    """

    def __init__(self) -> None:
        self._services: OrderedDict[HttpSettings, _Service] = OrderedDict()

    def get(self, settings: HttpSettings) -> _Service:
        """The connections for these settings."""
        service = self._services.get(settings)
        if service is None:
            service = self._services[settings] = _Service(settings)
        self._services.move_to_end(settings)
        while len(self._services) > _SERVICES:
            self._services.popitem(last=False)[1].close()
        return service


#: Of this process.
SERVICES: Final = _Services()


def request_status(settings: HttpSettings) -> int:
    """The status of the service's answer to OPTIONS, which changes nothing. Blocks.

    Raises:
        Retriable, Fatal: as ``_Service.exchange``.
    """
    url = settings.url.text
    head = url.partition("${")[0]
    service = _Service(settings)
    try:
        status, _, _ = service.run(
            service.exchange("OPTIONS", head if head == url else head.rpartition("/")[0] + "/", {}, None)
        )
        return int(status)
    finally:
        service.close()
