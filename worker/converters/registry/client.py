"""A client of a schema registry that speaks Confluent's REST API, for the converters. Everything is asynchronous.

Answers are kept for the life of the client, since a registry never changes what an id means: a schema is registered once and
read once. Source of the calls and error codes: the public API reference of Confluent's Schema Registry.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import aiohttp

from connectors.backoff import Backoff
from connectors.errors import ConfigInvalid, Fatal, Retriable, Skippable
from worker.converters.registry.auth import Credentials

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

_T = TypeVar("_T")

_CONTENT: Final = "application/vnd.schemaregistry.v1+json"
#: The registry, or a proxy before it, can't answer now; so does any status from ``_SERVER_ERROR`` on.
_AWAY: Final = frozenset({408, 429})
_SERVER_ERROR: Final = 500
_UNAUTHORIZED: Final = 401
_REFUSED: Final = frozenset({_UNAUTHORIZED, 403, 407})
_NOT_FOUND: Final = 404
#: The registry has looked at the schema and does not take it.
_BAD_SCHEMA: Final = frozenset({409, 422})
_ANSWERS_KEPT: Final = 10_000
AVRO: Final = "AVRO"


class RegistryRefusal(Skippable):
    """The registry does not take a schema: it is incompatible or invalid.

    Attributes:
        status: the HTTP status.
        reason: the registry's text.
        url: which registry.
    """

    def __init__(self, subject: str, status: int, reason: str, url: str) -> None:
        super().__init__(
            f"The schema registry refuses the schema of {subject}: {reason} (HTTP {status} from {url}). Make the "
            "schema compatible with the subject's earlier versions, or change the subject's compatibility level."
        )
        self.status = status
        self.reason = reason
        self.url = url


@dataclass(frozen=True, slots=True)
class Registered:
    """One schema of the registry.

    Attributes:
        id: its number, which messages contain.
        text: its text.
        type: AVRO, JSON or PROTOBUF.
        references: what it imports: name -> (subject, version).
        version: its version under the subject it was asked for, or 0.
    """

    id: int
    text: str
    type: str = AVRO
    references: tuple[tuple[str, str, int], ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """How to reach the registry.

    Attributes:
        urls: its addresses; the next is tried when one does not answer.
        credentials: who this client is.
        timeout_s: seconds that one request may take.
        attempts: how often all addresses are tried.
        backoff_s: seconds before the second round; doubled for each later one, with jitter.
        backoff_max_s: the longest pause between rounds, in seconds.
        tls: the TLS context for ``https`` addresses; None for the system's certificates.
        proxy: address of an HTTP proxy, or None.
    """

    urls: tuple[str, ...]
    credentials: Credentials = field(default_factory=Credentials)
    timeout_s: float = 30.0
    attempts: int = 4
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0
    tls: ssl.SSLContext | None = None
    proxy: str | None = None


def split_user_info(url: str) -> tuple[str, tuple[str, str] | None]:
    """``url`` without ``user:password@``, and these.

    Raises:
        ConfigInvalid: it is no http or https address. The message does not repeat the address: it may hold a password.
    """
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number below 65536, brackets that don't match
        usable = False
    if not usable:
        raise ConfigInvalid(
            "Invalid value for configuration schema.registry.url: each address must look like http://host:8081"
        )
    plain = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
    if parts.username is None:
        return plain, None
    return plain, (unquote(parts.username), unquote(parts.password or ""))


@dataclass(slots=True)
class SchemaRegistryClient:
    """One task's client; use it on one event loop only, and close it.

    Every call raises ``Retriable`` where no address answers, ``Fatal`` where the registry refuses this client, ``Skippable``
    where it does not know what was asked for.
    """

    settings: RegistrySettings
    _session: aiohttp.ClientSession | None = None
    _answers: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    _pending: dict[tuple[Any, ...], asyncio.Future[Any]] = field(default_factory=dict)
    _first: int = 0

    async def register(
        self, subject: str, schema_text: str, schema_type: str = AVRO, *, normalize: bool = False
    ) -> int:
        """The id of the schema, which is registered under ``subject`` if it is not there.

        Raises:
            SchemaRefused: the registry refuses the schema (incompatible, invalid).
        """
        path = f"/subjects/{quote(subject, safe='')}/versions{'?normalize=true' if normalize else ''}"
        return await self._ask_once(
            ("register", subject, schema_type, schema_text),
            lambda: self._request_id(path, subject, schema_text, schema_type),
        )

    async def find(self, subject: str, schema_text: str, schema_type: str = AVRO, *, normalize: bool = False) -> int:
        """The id of a schema that must be registered under ``subject`` already."""
        path = f"/subjects/{quote(subject, safe='')}{'?normalize=true' if normalize else ''}"
        return await self._ask_once(
            ("find", subject, schema_type, schema_text),
            lambda: self._request_id(path, subject, schema_text, schema_type),
        )

    async def newest(self, subject: str) -> Registered:
        """The newest schema under ``subject``; the answer is not kept, since it changes."""
        return await self._call_registry(
            _read_registered, "GET", f"/subjects/{quote(subject, safe='')}/versions/latest", subject
        )

    async def version(self, subject: str, version: int) -> Registered:
        """One version of a subject: how schemas refer to each other."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"

        return await self._ask_once(
            ("version", subject, version),
            lambda: self._call_registry(_read_registered, "GET", path, f"{subject} version {version}"),
        )

    async def schema(self, schema_id: int) -> Registered:
        """The schema with this id."""

        def read(answer: Any) -> Registered:
            return _read_registered({**answer, "id": schema_id})

        return await self._ask_once(
            ("schema", schema_id),
            lambda: self._call_registry(read, "GET", f"/schemas/ids/{schema_id}", f"id {schema_id}"),
        )

    async def text(self, schema_id: int) -> str:
        """The text of the Avro schema with this id."""
        registered = await self.schema(schema_id)
        if registered.type != AVRO:
            raise Skippable(
                f"The schema with id {schema_id} is {registered.type}, not AVRO. Use the converter that wrote it."
            )
        return registered.text

    async def reasons(self, subject: str, schema_text: str, schema_type: str) -> list[str]:
        """Return the registry's reasons why ``schema_text`` is incompatible with the newest schema; empty if it gives none."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        return await self._call_registry(_read_messages, "POST", path, subject, _schema_body(schema_text, schema_type))

    async def complaints(self, subject: str, schema_text: str, schema_type: str) -> list[str]:
        """Why ``schema_text`` is not compatible with the newest schema of a subject; empty if it is."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        return await self._call_registry(
            _read_complaints, "POST", path, subject, _schema_body(schema_text, schema_type)
        )

    async def close(self) -> None:
        """Close the connections."""
        for task in self._pending.values():
            task.cancel()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask_once(self, key: tuple[Any, ...], ask: Callable[[], Awaitable[_T]]) -> _T:
        """The kept answer, or that of the one request in flight for it."""
        if key in self._answers:
            kept: _T = self._answers[key]
            return kept
        task: asyncio.Future[_T] | None = self._pending.get(key)
        if task is None:
            task = asyncio.ensure_future(ask())
            self._pending[key] = task
            task.add_done_callback(lambda done: self._keep_answer(key, done))
        return await asyncio.shield(task)

    def _keep_answer(self, key: tuple[Any, ...], done: asyncio.Future[Any]) -> None:
        self._pending.pop(key, None)
        if not done.cancelled() and done.exception() is None:
            if len(self._answers) >= _ANSWERS_KEPT:
                self._answers.pop(next(iter(self._answers)))
            self._answers[key] = done.result()

    async def _request_id(self, path: str, subject: str, schema_text: str, schema_type: str) -> int:
        return await self._call_registry(_id_in, "POST", path, subject, _schema_body(schema_text, schema_type))

    async def _call_registry(
        self, read: Callable[[Any], _T], method: str, path: str, subject: str, body: dict[str, str] | None = None
    ) -> _T:
        """Return the answer, read by ``read``; an address whose answer it can't read counts as one that does not answer."""
        pauses = Backoff(self.settings.backoff_s, self.settings.backoff_max_s, low=0.5, high=1.5)
        failure = ""
        for attempt in range(self.settings.attempts):
            if attempt:
                await asyncio.sleep(pauses.next_s())
            for turn in range(len(self.settings.urls)):
                number = (self._first + turn) % len(self.settings.urls)
                url = self.settings.urls[number]
                try:
                    status, answer = await self._send_request(method, url + path, body)
                    if status == _UNAUTHORIZED and self.settings.credentials.reject():
                        status, answer = await self._send_request(method, url + path, body)
                except (aiohttp.ClientError, TimeoutError, OSError, Retriable) as error:
                    failure = f"{url}: {str(error) or type(error).__name__}"
                    continue
                if status in _AWAY or status >= _SERVER_ERROR:
                    failure = f"{url}: HTTP {status} {_read_message(answer)}"
                    continue
                if status >= 300:
                    self._first = number  # the next request begins with the one that answers
                    raise _make_refusal(status, answer, subject, url)
                try:
                    result = read(answer)
                except (KeyError, TypeError, ValueError, AttributeError):
                    failure = f"{url}: HTTP {status}, but no answer of a schema registry (a page of a proxy?)"
                    continue
                self._first = number
                return result
        raise Retriable(
            f"The schema registry does not answer for {subject} after {self.settings.attempts} attempts: {failure}. "
            "Check schema.registry.url and the registry."
        )

    async def _send_request(self, method: str, url: str, body: dict[str, str] | None) -> tuple[int, Any]:
        settings = self.settings
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=settings.timeout_s))
        headers = {
            "Accept": f"{_CONTENT}, application/json",
            "Content-Type": _CONTENT,
            **await settings.credentials.headers(self._session, settings.tls, settings.proxy),
        }
        async with self._session.request(
            method, url, json=body, ssl=settings.tls or True, headers=headers, proxy=settings.proxy
        ) as response:
            try:
                return response.status, await response.json(content_type=None)
            except ValueError:
                return response.status, {"message": "the answer is not JSON"} if response.status >= 300 else {}


def _schema_body(schema_text: str, schema_type: str) -> dict[str, str]:
    return {"schema": schema_text} if schema_type == AVRO else {"schema": schema_text, "schemaType": schema_type}


def _read_registered(answer: Any) -> Registered:
    references = tuple(
        (str(reference["name"]), str(reference["subject"]), int(reference["version"]))
        for reference in answer.get("references") or ()
    )
    return Registered(
        int(answer["id"]),
        str(answer["schema"]),
        str(answer.get("schemaType") or AVRO),
        references,
        int(answer.get("version") or 0),
    )


def _id_in(answer: Any) -> int:
    return int(answer["id"])


def _read_messages(answer: Any) -> list[str]:
    messages = answer.get("messages")
    return [str(message) for message in messages] if isinstance(messages, list) else []


def _read_complaints(answer: Any) -> list[str]:
    if answer.get("is_compatible") is not False:
        return []
    return _read_messages(answer) or ["it is not compatible with the newest schema"]


def _read_message(answer: Any) -> str:
    return str(answer.get("message", "")) if isinstance(answer, dict) else ""


def _make_refusal(status: int, answer: Any, subject: str, url: str) -> Exception:
    description = f"{_read_message(answer)} (HTTP {status} from {url})"
    if status in _REFUSED:
        return Fatal(
            f"Wrong configuration: the schema registry refuses this client for {subject}: {description}. Check the converter's "
            "basic.auth.* or bearer.auth.* options, schema.registry.ssl.keystore.location, and what the registry "
            "allows this client."
        )
    if status == _NOT_FOUND:
        return Skippable(
            f"The schema registry does not know {subject} or this schema of it: {description}. Register the schema first, "
            "or set auto.register.schemas=true."
        )
    if status in _BAD_SCHEMA:
        return RegistryRefusal(subject, status, _read_message(answer), url)
    return Skippable(
        f"The schema registry refuses the request for {subject}: {description}. Check schema.registry.url, which must lead "
        "to the registry's Confluent API, and the schema."
    )
