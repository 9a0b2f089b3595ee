"""A client of a schema registry that speaks Confluent's REST API, for the converters. Everything is asynchronous.

Answers are kept for the life of the client, since a registry never changes what an id means: a schema is registered once and
read once. Source of the calls and error codes: the public API reference of Confluent's Schema Registry.
"""
from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import aiohttp

from connectors.errors import ConfigInvalid, Fatal, Retriable, Skippable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

_T = TypeVar("_T")

_CONTENT: Final = "application/vnd.schemaregistry.v1+json"
_AWAY: Final = frozenset({408, 429, 500, 502, 503, 504})
_REFUSED: Final = frozenset({401, 403})
_NOT_FOUND: Final = 404
_ANSWERS_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """How to reach the registry.

    Attributes:
        urls: its addresses; the next is tried when one does not answer.
        user: name and password for basic authentication, or None.
        token: a bearer token, or None.
        timeout_s: seconds that one request may take.
        attempts: how often all addresses are tried.
        backoff_s: seconds before the second round; doubled for each later one, with jitter.
        backoff_max_s: the longest pause between rounds, in seconds.
        tls: the TLS context for ``https`` addresses; None for the system's certificates.
    """

    urls: tuple[str, ...]
    user: tuple[str, str] | None = None
    token: str | None = None
    timeout_s: float = 30.0
    attempts: int = 4
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0
    tls: ssl.SSLContext | None = None


def split_user_info(url: str) -> tuple[str, tuple[str, str] | None]:
    """``url`` without ``user:password@``, and these.

    Raises:
        ConfigInvalid: it is no http or https address. The message does not repeat the address: it may hold a password.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigInvalid("Invalid value for configuration schema.registry.url: each address must look like http://host:8081")
    plain = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
    return plain, (parts.username, parts.password or "") if parts.username is not None else None


@dataclass(slots=True)
class SchemaRegistryClient:
    """One task's client; use it on one event loop only, and close it."""

    settings: RegistrySettings
    _session: aiohttp.ClientSession | None = None
    _known: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    _pending: dict[tuple[Any, ...], asyncio.Future[Any]] = field(default_factory=dict)
    _first: int = 0

    async def register(self, subject: str, text: str, *, normalize: bool = False) -> int:
        """The id of the schema, which is registered under ``subject`` if it is not there.

        Raises:
            Skippable: the registry refuses the schema (incompatible, invalid).
            Retriable: no address answers.
            Fatal: the registry refuses this client.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions{'?normalize=true' if normalize else ''}"
        return await self._once(("register", subject, text), lambda: self._id("POST", path, subject, text))

    async def find(self, subject: str, text: str, *, normalize: bool = False) -> int:
        """The id of a schema that must be registered under ``subject`` already; raises as ``register`` does."""
        path = f"/subjects/{quote(subject, safe='')}{'?normalize=true' if normalize else ''}"
        return await self._once(("find", subject, text), lambda: self._id("POST", path, subject, text))

    async def latest(self, subject: str) -> tuple[int, str]:
        """The id and the text of the newest schema under ``subject``; raises as ``register`` does."""
        async def ask() -> tuple[int, str]:
            answer = await self._call("GET", f"/subjects/{quote(subject, safe='')}/versions/latest", subject)
            return int(answer["id"]), str(answer["schema"])
        return await self._once(("latest", subject), ask)

    async def text(self, schema_id: int) -> str:
        """The text of the schema with this id; raises as ``register`` does."""
        async def ask() -> str:
            answer = await self._call("GET", f"/schemas/ids/{schema_id}", f"id {schema_id}")
            if answer.get("schemaType", "AVRO") != "AVRO":
                raise Skippable(f"The schema with id {schema_id} is {answer['schemaType']}, not AVRO. Use the converter that "
                                "wrote the topic.")
            return str(answer["schema"])
        return await self._once(("text", schema_id), ask)

    async def close(self) -> None:
        """Close the connections."""
        for task in self._pending.values():
            task.cancel()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _once(self, key: tuple[Any, ...], ask: Callable[[], Awaitable[_T]]) -> _T:
        """The kept answer, or that of the one request in flight for it."""
        if key in self._known:
            kept: _T = self._known[key]
            return kept
        task: asyncio.Future[_T] | None = self._pending.get(key)
        if task is None:
            task = asyncio.ensure_future(ask())
            self._pending[key] = task
            task.add_done_callback(lambda done: self._keep(key, done))
        return await asyncio.shield(task)

    def _keep(self, key: tuple[Any, ...], done: asyncio.Future[Any]) -> None:
        self._pending.pop(key, None)
        if not done.cancelled() and done.exception() is None:
            if len(self._known) >= _ANSWERS_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = done.result()

    async def _id(self, method: str, path: str, subject: str, text: str) -> int:
        answer = await self._call(method, path, subject, {"schema": text})
        return int(answer["id"])

    async def _call(self, method: str, path: str, what: str, body: dict[str, str] | None = None) -> Any:
        pause = self.settings.backoff_s
        failure = ""
        for attempt in range(self.settings.attempts):
            if attempt:
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                pause = min(pause * 2, self.settings.backoff_max_s)
            for turn in range(len(self.settings.urls)):
                number = (self._first + turn) % len(self.settings.urls)
                url = self.settings.urls[number]
                try:
                    status, answer = await self._request(method, url + path, body)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    failure = f"{url}: {str(error) or type(error).__name__}"
                    continue
                if status in _AWAY:
                    failure = f"{url}: HTTP {status} {_message(answer)}"
                    continue
                self._first = number  # the next request begins with the one that answers
                if status < 300:
                    return answer
                raise _refusal(status, answer, what, url)
        raise Retriable(f"The schema registry does not answer for {what} after {self.settings.attempts} attempts: {failure}. "
                        "Check schema.registry.url and the registry.")

    async def _request(self, method: str, url: str, body: dict[str, str] | None) -> tuple[int, Any]:
        if self._session is None:
            headers = {"Accept": f"{_CONTENT}, application/json", "Content-Type": _CONTENT}
            if self.settings.token is not None:
                headers["Authorization"] = f"Bearer {self.settings.token}"
            user = self.settings.user
            self._session = aiohttp.ClientSession(
                headers=headers, auth=aiohttp.BasicAuth(*user, encoding="utf-8") if user is not None else None,
                timeout=aiohttp.ClientTimeout(total=self.settings.timeout_s))
        async with self._session.request(method, url, json=body, ssl=self.settings.tls or True) as response:
            try:
                return response.status, await response.json(content_type=None)
            except ValueError:
                return response.status, {"message": "the answer is not JSON"} if response.status >= 300 else {}


def _message(answer: Any) -> str:
    return str(answer.get("message", "")) if isinstance(answer, dict) else ""


def _refusal(status: int, answer: Any, what: str, url: str) -> Exception:
    text = f"{_message(answer)} (HTTP {status} from {url})"
    if status in _REFUSED:
        return Fatal(f"The schema registry refuses this client for {what}: {text}. Check basic.auth.user.info or "
                     "bearer.auth.token.")
    if status == _NOT_FOUND:
        return Skippable(f"The schema registry does not know {what} or this schema of it: {text}. Register the schema first, "
                         "or set auto.register.schemas=true.")
    return Skippable(f"The schema registry refuses the schema of {what}: {text}. Make the schema compatible with the "
                     "subject's earlier versions, or change the subject's compatibility level.")
