"""Writes rows to Redis in a task: requests of scripts, and what their answers mean."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.redis import scripts
from spark_jobs.sinks.redis.config import HASH, JSON, PREFIX, SORTED_SET, STREAM, STRING
from spark_jobs.sinks.shared.model import Written
from spark_jobs.sinks.shared.templates import Template, Unfilled
from spark_jobs.sinks.shared.values import NoText, document, json_of, text_of
from spark_jobs.steps.lookup.redis_client import open_redis

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spark_jobs.sinks.redis.config import Settings
    from spark_jobs.sinks.shared.model import Refuse, Row, RowTable

#: What is added to a key for its guard (order numbers) and for the positions of a stream.
GUARD: Final = ":ums_id_"
_SCRIPTS: Final = {
    HASH: scripts.HASH,
    JSON: scripts.VALUE,
    STRING: scripts.VALUE,
    SORTED_SET: scripts.SORTED_SET,
    STREAM: scripts.STREAM,
}
#: Rows in one call of a script: the server does nothing else meanwhile.
_ROWS_PER_CALL: Final = 100
#: Begin errors that pass: memory is full, a replica, loading, a cluster that moves slots.
_PASSING: Final = (
    *("OOM", "READONLY", "LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "BUSY", "MISCONF"),
    *("MOVED", "ASK"),
)
#: Are in errors that are about one row.
_OF_A_ROW: Final = (
    "WRONGTYPE",
    "exceeds maximum allowed size",
    "not a valid float",
    "existing key has wrong Redis type",
)


class RedisClient:
    """See ``shared.model.RowClient``. One connection, or one to each node of a cluster.

    Args:
        settings: the sink's.
        table: the rows' table.
    """

    def __init__(self, settings: Settings, table: RowTable) -> None:
        self._settings = settings
        self._form = _Form(settings, table)
        self._script = _SCRIPTS[settings.form]
        self._redis: Any = None

    def write(self, rows: Sequence[Row], refuse: Refuse) -> Written:
        """See ``RowClient.write``."""
        calls: list[_Call] = []
        refused: list[tuple[Row, str]] = []
        for row in rows:
            try:
                calls.append(self._form.call(row))
            except (Unfilled, NoText) as error:
                refused.append((row, str(error)))
        refuse(refused)  # before positions move beyond these rows
        with faults(self._settings):
            if self._redis is None:
                self._redis = connect(self._settings)
            if self._settings.form == STREAM:
                return self._append(calls, refuse)
            return self._merge(calls, refuse)

    def close(self) -> None:
        """See ``RowClient.close``."""
        client, self._redis = self._redis, None
        if client is not None:
            with suppress(Exception):
                client.close()

    def _merge(self, calls: Sequence[_Call], refuse: Refuse) -> Written:
        """Rows that have keys of their own: several in a call, in a cluster those of one slot."""
        chosen = self._settings
        head = (chosen.ttl_ms, chosen.retention_ms, chosen.command)
        parts = self._by_slot(calls) if chosen.cluster else [calls]
        groups = [
            part[start : start + _ROWS_PER_CALL] for part in parts for start in range(0, len(part), _ROWS_PER_CALL)
        ]
        done, refused = Written(), []
        answers = self._run([(_keys(group), (*head, _packed(group))) for group in groups])
        for group, answer in zip(groups, answers, strict=True):
            for call, result in zip(group, answer, strict=True):
                if isinstance(result, bytes):
                    refused.append((call.row, _reason(result.decode(errors="replace"), chosen)))
                elif result:
                    done.rows += 1
                else:
                    done.stale += 1
        done.requests = len(groups)
        refuse(refused)
        return done

    def _append(self, calls: Sequence[_Call], refuse: Refuse) -> Written:
        """Entries of streams: one call for those of a stream out of one Kafka partition, up to the first that is refused."""
        groups: dict[tuple[str, str], list[_Call]] = defaultdict(list)
        for call in calls:
            groups[call.key, f"{call.row.topic}-{call.row.partition}"].append(call)
        waiting = [(key, field, part) for (key, field), part in groups.items()]
        done = Written()
        chosen = self._settings
        while waiting:
            answers = self._run(
                [
                    ((key, part[0].guard), (chosen.ttl_ms, chosen.length, field, _packed(part)))
                    for key, field, part in waiting
                ]
            )
            done.requests += len(waiting)
            left = []
            for (key, field, part), (count, before, error) in zip(waiting, answers, strict=True):
                done.rows += count - before
                done.stale += before
                if error:
                    refuse([(part[count].row, _reason(error.decode(errors="replace"), chosen))])
                    if part[count + 1 :]:
                        left.append((key, field, part[count + 1 :]))
            waiting = left
        return done

    def _by_slot(self, calls: Sequence[_Call]) -> list[list[_Call]]:
        slots: dict[int, list[_Call]] = defaultdict(list)
        for call in calls:
            slots[self._redis.keyslot(call.key)].append(call)
        return list(slots.values())

    def _run(self, requests: Sequence[tuple[Sequence[str], Sequence[Any]]]) -> list[Any]:
        """The answers of the script to requests of keys and arguments."""
        if not self._settings.cluster:
            return _pipeline(self._redis, self._script, requests)
        nodes: dict[Any, list[int]] = defaultdict(list)
        for number, (keys, _) in enumerate(requests):
            nodes[self._redis.get_node_from_key(keys[0])].append(number)
        answers: dict[int, Any] = {}
        for node, numbers in nodes.items():
            results = _pipeline(
                self._redis.get_redis_connection(node), self._script, [requests[number] for number in numbers]
            )
            answers |= dict(zip(numbers, results, strict=True))
        return [answers[number] for number in range(len(requests))]


class _Call:
    """A row as a script gets it: its key, its guard, its arguments."""

    __slots__ = ("arguments", "guard", "key", "row")

    def __init__(self, row: Row, key: str, guard: str, arguments: tuple[Any, ...]) -> None:
        self.row = row
        self.key = key
        self.guard = guard
        self.arguments = arguments


class _Form:
    """Makes the calls of a table's rows. Pure."""

    def __init__(self, settings: Settings, table: RowTable) -> None:
        self._settings = settings
        self._key = settings.key.bind(table)
        self._value = settings.value.bind(table)
        self._member = settings.member.bind(table)
        self._row_key = Template("${key}").bind(table)

    def call(self, row: Row) -> _Call:
        """Raises ``Unfilled`` and ``NoText``."""
        key = self._key(row)
        form = self._settings.form
        guard = guard_of(key)
        if form == STREAM:
            fields = [part for pair in _fields(row, soft=False)[0].items() for part in pair]
            position = f"{row.offset:020d}.{row.number:010d}"
            return _Call(row, key, f"{guard}:{self._settings.position}", (position, fields))
        if form == SORTED_SET:
            guard = f"{guard}:{self._row_key(row)}"
        action = "w" if not row.deleted else "s" if self._settings.soft else "d"
        values, nulls = self._values(row, action)
        if values is None:
            action, values = "d", []
        return _Call(row, key, guard, (str(row.order), action, values, nulls))

    def _values(self, row: Row, action: str) -> tuple[list[Any] | None, list[str]]:
        """Values and names of nulls; None for a row without a value."""
        form, soft = self._settings.form, self._settings.soft
        if form == SORTED_SET:
            if action == "d":
                return [self._known_member(row)], []
            score = score_of(row.values.get(self._settings.score), self._settings)
            return [self._member(row), score], []
        if action == "d":
            return [], []
        if form == HASH:
            fields, nulls = _fields(row, soft=soft)
            # A delete may bring only the key: the other fields stay as they are.
            return [part for pair in fields.items() for part in pair], [] if action == "s" else nulls
        if form == JSON:
            return [_raw(json_of(document(row, active=soft)))], []
        if any(row.values.get(name) is None for name in self._settings.value.columns):
            return None, []
        return [self._value(row)], []

    def _known_member(self, row: Row) -> str:
        """The member of a delete; empty where only the key is known: the guard remembers it."""
        try:
            return self._member(row)
        except Unfilled:
            return ""


def _fields(row: Row, *, soft: bool) -> tuple[Mapping[str, Any], list[str]]:
    """Fields of a hash or of an entry, and the names of columns that are null. Pure."""
    fields: dict[str, Any] = {}
    nulls = []
    for name, value in document(row, active=soft).items():
        if value is None:
            nulls.append(name)
        else:
            fields[name] = _raw(value) if isinstance(value, bytes) else text_of(value)
    return fields, nulls


def _raw(value: bytes) -> msgspec.Raw:
    """Bytes as a string of MessagePack, of 32 bits: the scripts' reader does not know its type for bytes. Pure."""
    return msgspec.Raw(b"\xdb" + len(value).to_bytes(4, "big") + value)


def guard_of(key: str) -> str:
    """The name of a key's guard: in a cluster it is in the same slot, unless braces of the key are no hash tag. Pure."""
    begin = key.find("{")
    tagged = begin >= 0 and key.find("}", begin) > begin + 1
    return f"{key}{GUARD}" if tagged else f"{{{key}}}{GUARD}"


def score_of(value: Any, settings: Settings) -> str:
    """A value as a score. Pure.

    Raises:
        Unfilled: it is not a number.
    """
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    elif isinstance(value, date):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise Unfilled(
            f"the column {settings.score} is the score ({PREFIX}score.column), and {value!r} is no number"
        ) from None
    if number != number:  # noqa: PLR0124 - NaN
        raise Unfilled(f"the column {settings.score} is the score ({PREFIX}score.column), and NaN is no score")
    return repr(number)


def _keys(calls: Sequence[_Call]) -> list[str]:
    return [name for call in calls for name in (call.key, call.guard)]


def _packed(calls: Sequence[_Call]) -> bytes:
    return msgspec.msgpack.encode([call.arguments for call in calls])


def _pipeline(client: Any, script: str, requests: Sequence[tuple[Sequence[str], Sequence[Any]]]) -> list[Any]:
    """The answers of one server; the script is sent with the first request, which is all that the server needs."""
    from hashlib import sha1

    if not requests:
        return []
    pipeline = client.pipeline(transaction=False)
    digest = sha1(script.encode(), usedforsecurity=False).hexdigest()
    for number, (keys, arguments) in enumerate(requests):
        command = ("EVALSHA", digest) if number else ("EVAL", script)
        pipeline.execute_command(*command, len(keys), *keys, *arguments)
    answers: list[Any] = pipeline.execute()
    return answers


def _reason(error: str, settings: Settings) -> str:
    """Why a row is refused.

    Raises:
        Retriable, Fatal: the error is about more than the row.
    """
    if any(sign in error for sign in _OF_A_ROW):
        return f"Redis {settings.access.address}: {error}"
    raise problem(error, settings)


def problem(error: str, settings: Settings) -> Retriable | Fatal:
    """The error of ours for one of the server. Pure."""
    where = f"Redis {settings.access.address}"
    if "same slot" in error and not settings.cluster:
        return Fatal(f"{where} is a cluster ({error}): set {PREFIX}cluster=true")
    if "same slot" in error:
        return Fatal(
            f"{where}: {error}. A key with braces that are no hash tag can't be in a cluster: correct {PREFIX}key"
        )
    if any(sign in error for sign in _PASSING):
        return Retriable(f"{where}: {error}")
    if "unknown command" in error.lower() or "Unknown Redis command" in error:
        return Fatal(f"{where}: {error}. {PREFIX}json.command=JSON.SET needs the module RedisJSON; SET does not")
    return Fatal(f"{where}: {error}. Correct the login's rights ({PREFIX}user), {PREFIX}key or {PREFIX}form")


@contextmanager
def faults(settings: Settings) -> Iterator[None]:
    """Turns the client's errors into ours."""
    from redis import exceptions as redis

    where = f"Redis {settings.access.address}"
    try:
        yield
    except (redis.AuthenticationError, redis.AuthorizationError, redis.NoPermissionError) as error:
        raise Fatal(f"{where}: {error}. Correct {PREFIX}user and {PREFIX}password") from error
    except (
        redis.ConnectionError,  # also a server that is loading
        redis.TimeoutError,
        redis.ReadOnlyError,
        redis.OutOfMemoryError,
        redis.ClusterDownError,  # also a master that is down
        redis.TryAgainError,
        redis.ClusterError,
        OSError,
    ) as error:
        raise Retriable(f"{where}: {error}") from error
    except redis.MovedError as error:
        if settings.cluster:
            raise Retriable(f"{where}: {error}") from error
        raise Fatal(f"{where} is a cluster ({error}): set {PREFIX}cluster=true") from error
    except redis.RedisError as error:
        # What comes before that is the request, which holds a script.
        raise problem(str(error).rpartition("caused error: ")[2], settings) from error


def connect(settings: Settings) -> Any:
    """A client of the server, or of the cluster, for which it asks one of the nodes. Retries are the caller's."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    once = Retry(NoBackoff(), 0)
    client = open_redis(settings.url, settings.access, retry=once)
    if not settings.cluster:
        return client
    from redis.cluster import RedisCluster

    arguments = dict(client.connection_pool.connection_kwargs)
    arguments.pop("db", None)
    return RedisCluster(
        retry=once,
        **{name: value for name, value in arguments.items() if name != "retry"},
    )
