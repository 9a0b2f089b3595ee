"""Lookups in Redis: the keys of a request in one pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal, Retriable
from spark_jobs.steps.lookup.documents import field_of
from spark_jobs.steps.lookup.model import PLACEHOLDER
from spark_jobs.steps.lookup.tls import make_tls_context
from spark_jobs.steps.lookup.values import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.steps.lookup.model import LookupAccess, Spec

HASH: Final = "hash"
JSON: Final = "json"
STRING: Final = "string"
FORMS: Final = (HASH, JSON, STRING)


class RedisLookupClient:
    """See ``model.Client``."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._client: Any = None

    def fetch(self, keys: Sequence[tuple[Any, ...]]) -> Mapping[tuple[Any, ...], tuple[Any, ...]]:
        """See ``model.Client.fetch``."""
        from redis import exceptions as redis

        spec = self._spec
        names = [redis_key(spec.key, spec.on, key) for key in keys]
        try:
            pipeline = self._open_client().pipeline(transaction=False)
            for name in names:
                if spec.form == HASH:
                    pipeline.hmget(name, list(spec.fields))
                else:
                    pipeline.get(name)
            answers = pipeline.execute()
        except (redis.AuthenticationError, redis.AuthorizationError, redis.NoPermissionError) as error:
            raise Fatal(f"step {spec.step}: {spec.where}: {error}. Correct user and password") from error
        except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError, redis.TryAgainError) as error:
            self.close()
            raise Retriable(f"step {spec.step}: {spec.where}: {error}") from error
        except redis.RedisError as error:
            self.close()
            raise Fatal(
                f"step {spec.step}: {spec.where}: {error}. Correct redis.key and redis.value ({spec.form})"
            ) from error
        rows = {}
        for key, name, answer in zip(keys, names, answers, strict=True):
            values = tuple(answer) if spec.form == HASH else self._parse_document(name, answer)
            if values is not None and any(value is not None for value in values):
                rows[key] = values
        return rows

    def _parse_document(self, name: str, answer: bytes | None) -> tuple[Any, ...] | None:
        if answer is None:
            return None
        if self._spec.form == STRING:
            return (answer,)
        try:
            document = msgspec.json.decode(answer)
        except msgspec.DecodeError as error:
            raise Fatal(
                f"step {self._spec.step}: {self._spec.where}: the value of {name} is not JSON: {error}. Correct the value, or "
                "set redis.value=hash or string"
            ) from error
        return tuple(field_of(document, field) for field in self._spec.fields)

    def _open_client(self) -> Any:
        if self._client is None:
            self._client = open_redis(self._spec.url, self._spec.login)
        return self._client

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
            client.connection_pool.disconnect()


def open_redis(url: str, access: LookupAccess, **more: Any) -> Any:
    """A client of the Redis at ``url`` (``redis://`` or ``rediss://``); it connects with its first request.

    Args:
        url: the address, with a database or without.
        access: login, TLS and time limits.
        more: further arguments of the client's connections.

    Raises:
        ConfigInvalid: a file of TLS can't be read.
    """
    import redis
    from redis.connection import SSLConnection

    if url.startswith("rediss:"):
        more["connection_class"] = _with_context(SSLConnection, make_tls_context(access, always=True))
    pool = redis.ConnectionPool.from_url(
        url,
        username=access.user or None,
        password=access.password or None,
        socket_timeout=access.timeout_s,
        socket_connect_timeout=access.timeout_s,
        **more,
    )
    return redis.Redis(connection_pool=pool)


def _with_context(base: Any, chosen: Any) -> Any:
    """A class of connections that use this TLS context: the client can't be given one."""

    class Connection(base):  # type: ignore[misc]  # the base is known at run time
        def _wrap_socket_with_ssl(self, sock: Any) -> Any:
            return chosen.wrap_socket(sock, server_hostname=self.host)

    return Connection


def redis_key(template: str, on: Sequence[str], key: Sequence[Any]) -> str:
    """The key of Redis for a looked-up key. Pure."""
    values = dict(zip(on, map(text_of, key), strict=True))
    return PLACEHOLDER.sub(lambda match: values[match[1]], template)
