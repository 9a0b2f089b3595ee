"""The description of a lookup: its options as tasks need them. Pure; picklable; its text holds no secret."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from connectors.errors import Fatal
from spark_jobs.steps.lookup.values import Unsuited, is_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spark_jobs.sinks.jdbc.config import Login

#: What becomes of a row whose key is not found.
NULL: Final = "null"
DROP: Final = "drop"
RETRY: Final = "retry"
DEAD_LETTER: Final = "dead-letter"
MISSES: Final = (NULL, DROP, RETRY, DEAD_LETTER)

PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_COLUMN: Final = re.compile(
    r"(?P<field>`[^`]+`|[^\s`]+)\s+(?P<type>[A-Za-z]+(?:\([^)]*\))?)(?:\s+[Aa][Ss]\s+(?P<name>`[^`]+`|\S+))?\Z"
)


@dataclass(frozen=True, slots=True)
class LookupColumn:
    """A column to look up.

    Attributes:
        field: what it is called where it is looked up.
        kind: its type (``values.TYPES``).
        name: the name of the new column.
    """

    field: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Spec:
    """A lookup, as its tasks get it.

    Attributes:
        step: the name of the step.
        system: where rows come from: postgresql, mariadb, mysql, cassandra, redis, http or topic.
        on: the key columns where the rows are looked up, in the order of the keys.
        columns: the columns to look up.
        table: of a database.
        url: of Redis and HTTP.
        hosts: of Cassandra.
        key: the template of a key of Redis.
        form: how a value of Redis is written: hash, json or string; the form of a topic: debezium or plain.
        headers: of requests over HTTP.
        login: user, password, TLS and time limits; the address where it is a database by JDBC URL.
        consistency: of Cassandra.
        topic: to read; with ``topic_id``, its id in Kafka, and ``client``, the configuration of its consumer.
        rows_max: the most rows of a topic that are kept.
        miss, miss_timeout_s, miss_then: the policy for misses.
        cache_rows, cache_age_s, cache_miss_age_s: bounds of the cache.
        batch_keys: keys in one request.
        requests: requests at a time.
        retries, backoff_s: how often a request is repeated, and the first pause.
    """

    step: str
    system: str
    on: tuple[str, ...]
    columns: tuple[LookupColumn, ...]
    login: LookupAccess = field(repr=False)
    table: str = ""
    url: str = field(default="", repr=False)
    hosts: tuple[tuple[str, int], ...] = ()
    key: str = ""
    form: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    consistency: str = "LOCAL_ONE"
    topic: str = ""
    topic_id: str = ""
    client: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    rows_max: int = 0
    miss: str = NULL
    miss_timeout_s: float = 60.0
    miss_then: str = DEAD_LETTER
    cache_rows: int = 100_000
    cache_age_s: float = 300.0
    cache_miss_age_s: float = 10.0
    batch_keys: int = 500
    requests: int = 4
    retries: int = 3
    backoff_s: float = 0.1

    @property
    def where(self) -> str:
        """Where rows are looked up, for messages."""
        return f"topic {self.topic}" if self.topic else f"{self.system} {self.login.address}"

    @property
    def fields(self) -> tuple[str, ...]:
        """The looked-up columns, as they are called there."""
        return tuple(column.field for column in self.columns)

    def convert_values(
        self, converters: Sequence[Callable[[Any], Any]], key: Sequence[Any], values: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Values of the row of ``key`` as their columns take them; ``converters`` are those of ``columns``.

        Raises:
            Fatal: one does not fit.
        """
        try:
            return tuple(convert(value) for convert, value in zip(converters, values, strict=True))
        except Unsuited as error:
            raise Fatal(
                f"step {self.step}: {self.where}, row {self.describe_key(key)}: {error}. Correct the types in columns of the "
                "step"
            ) from None

    def describe_key(self, key: Sequence[Any]) -> str:
        """A key for messages, such as ``id=7, region=eu``."""
        return ", ".join(f"{name}={part}" for name, part in zip(self.on, key, strict=True))


@dataclass(frozen=True, slots=True)
class LookupAccess:
    """Login, TLS and time limits of a system; picklable, its text holds no secret."""

    address: str
    user: str = ""
    password: str = field(default="", repr=False)
    ssl_mode: str = "prefer"
    ssl_root_cert: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = field(default=None, repr=False)
    timeout_s: float = 10.0
    jdbc: Login | None = None


class LookupClient(Protocol):
    """A connection to a system in which rows are looked up. Used by one thread at a time."""

    def fetch(self, keys: Sequence[tuple[Any, ...]]) -> Mapping[tuple[Any, ...], tuple[Any, ...]]:
        """The values of ``keys``, one per looked-up column, as the system gives them; without keys that are not found. Blocks.

        Raises:
            Retriable: the system is unavailable, or too slow.
            Fatal: it refuses the login, the request or a key; a key has several rows.
        """

    def close(self) -> None:
        """Close the connection."""


def parse_columns(column_list: str) -> list[LookupColumn]:
    """The columns that the option ``columns`` names.

    Raises:
        ValueError: an item is not ``<column> <type> [AS <name>]``; says what is wrong.
    """
    columns = []
    for item in re.split(r",(?![^(]*\))", column_list):
        match = _COLUMN.match(item.strip())
        if match is None:
            raise ValueError(
                f"`{item.strip()[:60]}` is not `<column> <type> [AS <name>]`, such as `name string AS customer`"
            )
        kind = re.sub(r"\s", "", match["type"].lower())
        if not is_type(kind):
            raise ValueError(
                f"`{match['type']}` is no type of a looked-up column: use string, boolean, tinyint, smallint, int, bigint, "
                "float, double, decimal(p,s), date, timestamp or binary"
            )
        field_name = match["field"].strip("`")
        columns.append(LookupColumn(field_name, kind, (match["name"] or field_name).strip("`")))
    names = [column.name.lower() for column in columns]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise ValueError(f"two columns are called {twice}: name one by AS")
    return columns


def parse_on(items: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of a column of the table and the column where the rows are looked up, from items ``a = b`` or ``a``.

    Raises:
        ValueError: an item is neither.
    """
    pairs = []
    for item in items:
        parts = [part.strip().strip("`") for part in item.split("=")]
        if len(parts) > 2 or not all(parts):
            raise ValueError(f"`{item}` is not `<column of the table> = <column there>`, or one name for both")
        pairs.append((parts[0], parts[-1]))
    return pairs


@dataclass(slots=True)
class LookupCounts:
    """Numbers of what lookups did: keys answered from the cache, keys not found, requests, failed requests, seconds."""

    hits: int = 0
    misses: int = 0
    requests: int = 0
    errors: int = 0
    seconds: float = 0.0

    def take(self) -> list[float]:
        """The numbers, which start again at 0."""
        numbers = [self.hits, self.misses, self.requests, self.errors, self.seconds]
        self.hits = self.misses = self.requests = self.errors = 0
        self.seconds = 0.0
        return numbers
