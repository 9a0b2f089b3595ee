"""Lookups over HTTP: a GET per key, or a POST with the keys of a request. Answers are JSON."""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from connectors.errors import Fatal, Retriable
from spark_jobs.steps.lookup.documents import field_of
from spark_jobs.steps.lookup.model import PLACEHOLDER
from spark_jobs.steps.lookup.sql_client import make_duplicate_error
from spark_jobs.steps.lookup.tls import make_tls_context
from spark_jobs.steps.lookup.values import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.steps.lookup.model import Spec

_LARGEST: Final = 64 << 20
_NOT_FOUND: Final = (204, 404, 410)
_PASSING: Final = (408, 425, 429)


class HttpLookupClient:
    """See ``model.Client``."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._parts = urlsplit(spec.url)
        self._connection: http.client.HTTPConnection | None = None
        self._headers = {"Accept": "application/json", "User-Agent": "millrace", **dict(spec.headers)}
        if spec.login.user:
            login = f"{spec.login.user}:{spec.login.password}".encode()
            self._headers.setdefault("Authorization", f"Basic {b64encode(login).decode()}")

    def fetch(self, keys: Sequence[tuple[Any, ...]]) -> Mapping[tuple[Any, ...], tuple[Any, ...]]:
        """See ``model.Client.fetch``."""
        if PLACEHOLDER.search(self._spec.url):
            answers = {key: self._request_document("GET", self._request_target(key), None) for key in keys}
            return {key: self._read_fields(document) for key, document in answers.items() if document is not None}
        return self._fetch_together(keys)

    def _fetch_together(self, keys: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        spec = self._spec
        body = json.dumps([dict(zip(spec.on, key, strict=True)) for key in keys], default=text_of)
        answer = self._request_document("POST", self._request_target(()), body)
        if not isinstance(answer, list):
            raise Fatal(
                f"step {spec.step}: {spec.where} answers with no JSON array: a POST must give an array of objects, each with "
                f"the fields {', '.join(spec.on)}"
            )
        asked = {tuple(map(text_of, key)): key for key in keys}
        rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for item in answer:
            key = asked.get(tuple(text_of(field_of(item, name)) for name in spec.on))
            if key in rows:
                raise make_duplicate_error(spec, key)
            if key is not None:
                rows[key] = self._read_fields(item)
        return rows

    def _read_fields(self, document: Any) -> tuple[Any, ...]:
        return tuple(field_of(document, field) for field in self._spec.fields)

    def _request_target(self, key: tuple[Any, ...]) -> str:
        """Path and query of the request for a key."""
        target = self._parts.path or "/"
        if self._parts.query:
            target += f"?{self._parts.query}"
        values = dict(zip(self._spec.on, (quote(text_of(part), safe="") for part in key), strict=bool(key)))
        return PLACEHOLDER.sub(lambda match: values[match[1]], target)

    def _request_document(self, method: str, target: str, body: str | None) -> Any:
        """The answer; None if there is no such thing."""
        spec = self._spec
        try:
            status, reason, data = self._exchange_request(method, target, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Retriable(
                f"step {spec.step}: {spec.where} does not answer: {error or type(error).__name__}"
            ) from error
        if method == "GET" and status in _NOT_FOUND:
            return None
        if status >= 500 or status in _PASSING:
            raise Retriable(f"step {spec.step}: {spec.where} answers {status} {reason}")
        if status != 200:
            raise Fatal(
                f"step {spec.step}: {spec.where} answers {status} {reason}: correct url, user, password or headers of the step"
            )
        try:
            return msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise Fatal(f"step {spec.step}: {spec.where} answers with what is no JSON: {error}") from error

    def _exchange_request(self, method: str, target: str, body: str | None) -> tuple[int, str, bytes]:
        """One exchange; on a kept connection that the server has closed meanwhile, a second one on a new connection."""
        for fresh in (self._connection is None, True):
            if self._connection is None:
                self._connection = self._open_connection()
            headers = self._headers | ({"Content-Type": "application/json"} if body is not None else {})
            try:
                self._connection.request(method, target, body.encode() if body is not None else None, headers)
                response = self._connection.getresponse()
                data = response.read(_LARGEST + 1)
            except (ConnectionError, http.client.BadStatusLine):
                self.close()
                if fresh:
                    raise
                continue
            if len(data) > _LARGEST:
                self.close()
                raise Fatal(
                    f"step {self._spec.step}: {self._spec.where} answers with more than {_LARGEST >> 20} MiB: lower "
                    "batch.keys"
                )
            return response.status, response.reason, data
        raise AssertionError("a second exchange answers or raises")

    def _open_connection(self) -> http.client.HTTPConnection:
        host, port, timeout = self._parts.hostname or "", self._parts.port, self._spec.login.timeout_s
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=timeout, context=make_tls_context(self._spec.login, always=True)
            )
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()
