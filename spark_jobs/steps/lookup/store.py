"""State that a Python worker keeps of a lookup from task to task: connections and cache; requests, retries, waits for keys."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from connectors.backoff import Backoff
from connectors.errors import Retriable
from spark_jobs.steps.lookup.cache import LookupCache, Values
from spark_jobs.steps.lookup.model import PLACEHOLDER, RETRY, LookupCounts
from spark_jobs.steps.lookup.topic import TopicTable
from spark_jobs.steps.lookup.values import make_converter, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.steps.lookup.model import LookupClient, Spec

Key = tuple[Any, ...]
#: The longest pause between two requests for keys that are not there yet, in seconds.
_LONGEST_S: Final = 2.0
#: The most lookups that a Python worker keeps connections and caches of.
_STORES: Final = 32


class LookupStore:
    """Answers keys of one lookup. Used by one thread at a time; requests run in threads of its own.

    Args:
        spec: the lookup.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.counts = LookupCounts()
        self._cache = LookupCache(spec.cache_rows, spec.cache_age_s, spec.cache_miss_age_s, time.monotonic)
        self._convert = [make_converter(column.kind) for column in spec.columns]
        self._threads: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._clients: list[LookupClient] = []
        self._lock = threading.Lock()

    def values(self, keys: Sequence[Key]) -> list[Values]:
        """The values of each key; None for one that is not found. Blocks.

        Raises:
            Retriable: the system is unavailable, for all retries.
            Fatal: it refuses the request, a key has several rows, or a value does not fit its type.
        """
        cached, unknown = self._cache.split(keys)
        self.counts.hits += len(cached)
        if unknown:
            fetched = self._fetch_keys(unknown)
            if self.spec.miss == RETRY and len(fetched) < len(unknown):
                self._wait_for([key for key in unknown if key not in fetched], fetched)
            for key in unknown:
                values = fetched.get(key)
                cached[key] = values
                self._cache.put(key, values)
                self.counts.misses += values is None
        return [cached[key] for key in keys]

    def _wait_for(self, missing: list[Key], fetched: dict[Key, Values]) -> None:
        """Ask again for keys that are not there yet, until all are or the time is over."""
        deadline = time.monotonic() + self.spec.miss_timeout_s
        pauses = Backoff(self.spec.backoff_s, _LONGEST_S)
        while missing and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(pauses.next_s(), left))
            fetched |= self._fetch_keys(missing)
            missing = [key for key in missing if key not in fetched]

    def _fetch_keys(self, keys: Sequence[Key]) -> dict[Key, Values]:
        spec = self.spec
        begin = time.monotonic()
        # The client of Cassandra makes many requests at a time itself.
        at_once = len(keys) if spec.system == "cassandra" else spec.batch_keys
        size = 1 if PLACEHOLDER.search(spec.url) else at_once
        parts = [keys[start : start + size] for start in range(0, len(keys), size)]
        try:
            if len(parts) == 1:
                answers = [self._request_keys(parts[0])]
            else:
                if self._threads is None:
                    self._threads = ThreadPoolExecutor(spec.requests, "lookup")
                answers = list(self._threads.map(self._request_keys, parts))
        finally:
            self.counts.seconds += time.monotonic() - begin
        return {key: values for answer in answers for key, values in answer.items()}

    def _request_keys(self, keys: Sequence[Key]) -> dict[Key, Values]:
        pauses = Backoff(self.spec.backoff_s, _LONGEST_S)
        for attempt in range(self.spec.retries + 1):
            with self._lock:
                self.counts.requests += 1
            try:
                return self._match_answers(keys, self._get_client().fetch(keys))
            except Retriable:
                with self._lock:
                    self.counts.errors += 1
                if attempt == self.spec.retries:
                    raise
                time.sleep(pauses.next_s())
        raise AssertionError("the last attempt answers or raises")

    def _match_answers(self, keys: Sequence[Key], fetched: Mapping[Key, tuple[Any, ...]]) -> dict[Key, Values]:
        """The answers by the keys that were asked for, with values as their columns take them.

        A system may give a key in another form: a UUID for text, a number for text.
        """
        answers = {key: fetched[key] for key in keys if key in fetched}
        if len(answers) < len(fetched):
            by_text = {_key_strings(key): values for key, values in fetched.items()}
            answers |= {
                key: values for key in keys if key not in answers and (values := by_text.get(_key_strings(key)))
            }
        return {key: self.spec.convert_values(self._convert, key, values) for key, values in answers.items()}

    def _get_client(self) -> LookupClient:
        client: LookupClient | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = open_client(self.spec)
            with self._lock:
                self._clients.append(client)
        return client

    def close(self) -> None:
        """Close all connections."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for client in self._clients:
            with suppress(Exception):  # it may be broken
                client.close()


def _key_strings(key: Key) -> tuple[str, ...]:
    return tuple(_format_part(part) for part in key)


def _format_part(part: Any) -> str:
    try:
        return text_of(part)
    except UnicodeDecodeError:
        return repr(part)


def open_client(spec: Spec) -> LookupClient:
    """A client of the lookup's system; imports its library only now."""
    if spec.system in ("postgresql", "mariadb", "mysql"):
        from spark_jobs.steps.lookup.sql_client import SqlClient

        return SqlClient(spec)
    if spec.system == "cassandra":
        from spark_jobs.steps.lookup.cql_client import CqlClient

        return CqlClient(spec)
    if spec.system == "redis":
        from spark_jobs.steps.lookup.redis_client import RedisLookupClient

        return RedisLookupClient(spec)
    from spark_jobs.steps.lookup.http_client import HttpLookupClient

    return HttpLookupClient(spec)


class Stores:
    """The stores of a Python worker: one process serves many tasks of many batches, and Spark gives a task no other place.

    Bounded: the one that was not used longest is closed.
    """

    def __init__(self) -> None:
        self._stores: OrderedDict[Spec, Any] = OrderedDict()

    def get(self, spec: Spec) -> Any:
        """The store of a lookup, or the table of its topic."""
        store = self._stores.get(spec)
        if store is None:
            store = self._stores[spec] = TopicTable(spec) if spec.topic else LookupStore(spec)
        self._stores.move_to_end(spec)
        while len(self._stores) > _STORES:
            self._stores.popitem(last=False)[1].close()
        return store

    def drop(self, spec: Spec) -> None:
        """Close a store: the next task begins with a new one."""
        store = self._stores.pop(spec, None)
        if store is not None:
            store.close()


#: Of this process.
STORES: Final = Stores()
