"""Writes rows to Redis in a task: requests of scripts, and what their answers mean."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal, Retriable
from spark_jobs.namespaces import find_identity
from spark_jobs.sinks.jdbc.rows import select_newest
from spark_jobs.sinks.redis import scripts
from spark_jobs.sinks.redis.columns import Calls, field_names, guard_of, hash_calls, pack_raw, value_of
from spark_jobs.sinks.redis.config import HASH, JSON, PREFIX, SORTED_SET, STREAM, STRING
from spark_jobs.sinks.shared.model import WriteCounts
from spark_jobs.sinks.shared.task import rows_of
from spark_jobs.sinks.shared.templates import Template, Unfilled
from spark_jobs.sinks.shared.values import NoText, build_document, json_of
from spark_jobs.steps.lookup.redis_client import open_redis

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from spark_jobs.sinks.redis.config import RedisSettings
    from spark_jobs.sinks.shared.model import Refuse, RowTable, SinkRow

_SCRIPTS: Final = {
    HASH: scripts.HASH,
    JSON: scripts.VALUE,
    STRING: scripts.VALUE,
    SORTED_SET: scripts.SORTED_SET,
    STREAM: scripts.STREAM,
}
#: Rows in one call of a script: the server does nothing else meanwhile.
_ROWS_PER_CALL: Final = 100
#: Entries of one stream in a call. The next call has to wait for its answer: an entry may be refused.
_ENTRIES_PER_CALL: Final = 1000
#: Rows that are made into calls at a time, while the server works on those before.
_ROWS_PER_PART: Final = 500
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


class RedisSinkClient:
    """See ``shared.model.RowClient``; of hashes ``ArrowClient``. One connection, or one to each node of a cluster.

    Args:
        settings: the sink's.
        table: the rows' table.
    """

    def __init__(self, settings: RedisSettings, table: RowTable) -> None:
        self._settings = settings
        self._table = table
        self._names = field_names(table, soft=settings.soft)
        self._form = _Form(settings, table)
        self._script = _SCRIPTS[settings.form]
        # Tables that share a stream may have rows out of one Kafka partition: each has positions of its own.
        named = "${namespace}" in settings.key.text or (
            "${database}" in settings.key.text and "${table}" in settings.key.text
        )
        self._owner = "" if named else f" {find_identity(table.namespace)}"
        self._redis: Any = None

    def write(self, rows: Any, refuse: Refuse) -> WriteCounts:
        """See ``RowClient.write`` and, for hashes, ``ArrowClient.write``."""
        if self._settings.form != HASH:
            return self._write_rows(rows, refuse)
        rows = select_newest(rows, self._table.keys)
        size = max(1, rows.num_rows) if self._settings.cluster else _ROWS_PER_PART
        refused: list[tuple[SinkRow, str]] = []
        with self._keep_connected():
            done = self._merge_rows(
                (self._hash_calls(rows.slice(start, size), refused) for start in range(0, rows.num_rows, size)), refuse
            )
        refuse(refused)
        return done

    def _hash_calls(self, rows: Any, refused: list[tuple[SinkRow, str]]) -> Calls:
        """The calls of rows that Arrow has; those that have none are added to ``refused``."""
        calls = hash_calls(self._settings, self._table, rows)
        return calls or _as_calls(self._build_calls(rows_of(rows, self._table.columns), refused))

    def _build_calls(self, rows: Sequence[SinkRow], refused: list[tuple[SinkRow, str]]) -> list[_Call]:
        calls: list[_Call] = []
        for row in rows:
            try:
                calls.append(self._form.call(row))
            except (Unfilled, NoText) as error:
                refused.append((row, str(error)))
        return calls

    def _write_rows(self, rows: Sequence[SinkRow], refuse: Refuse) -> WriteCounts:
        refused: list[tuple[SinkRow, str]] = []
        calls = self._build_calls(rows, refused)
        refuse(refused)  # before positions move beyond these rows
        with self._keep_connected():
            if self._settings.form == STREAM:
                return self._append_entries(calls, refuse)
            return self._merge_rows([_as_calls(calls)], refuse)

    @contextmanager
    def _keep_connected(self) -> Iterator[None]:
        with translate_errors(self._settings):
            if self._redis is None:
                self._redis = connect_redis(self._settings)
            yield

    def close(self) -> None:
        """See ``RowClient.close``."""
        client, self._redis = self._redis, None
        if client is not None:
            with suppress(Exception):
                client.close()

    def _merge_rows(self, parts: Iterable[Calls], refuse: Refuse) -> WriteCounts:
        """Rows that have keys of their own: several in a call, in a cluster those of one slot.

        Parts are made while the server works on those before.
        """
        chosen = self._settings
        word = msgspec.msgpack.encode(self._names) if chosen.form == HASH else chosen.command
        head = (chosen.ttl_ms, chosen.retention_ms, word)
        sent: list[tuple[Calls, Sequence[int]]] = []

        def requests() -> Iterator[tuple[Sequence[str], Sequence[Any]]]:
            for calls in parts:
                for group in self._group_keys(calls.keys):
                    sent.append((calls, group))
                    names = [name for number in group for name in (calls.keys[number], calls.guards[number])]
                    yield names, (*head, msgspec.msgpack.encode([calls.arguments[number] for number in group]))

        answers = self._run_script(requests())
        done, refused = WriteCounts(requests=len(sent)), []
        for (calls, group), (digits, *errors) in zip(sent, answers, strict=True):
            done.rows += digits.count(b"1")
            done.stale += digits.count(b"0") - len(errors) // 2
            for number, error in zip(errors[::2], errors[1::2], strict=True):
                refusal = _explain_refusal(error.decode(errors="replace"), chosen)
                refused.append((calls.row(group[number - 1]), refusal))
        refuse(refused)
        return done

    def _append_entries(self, calls: Sequence[_Call], refuse: Refuse) -> WriteCounts:
        """Entries of streams: one call for those of a stream out of one Kafka partition, up to the first that is refused."""
        groups: dict[tuple[str, str], list[_Call]] = defaultdict(list)
        for call in calls:
            groups[call.key, f"{call.row.topic}-{call.row.partition}{self._owner}"].append(call)
        waiting = [(key, field, part) for (key, field), part in groups.items()]
        done = WriteCounts()
        chosen = self._settings
        while waiting:
            parts = [part[:_ENTRIES_PER_CALL] for _, _, part in waiting]
            answers = self._run_script(
                [
                    (
                        (key, part[0].guard),
                        (
                            chosen.ttl_ms,
                            chosen.length,
                            field,
                            msgspec.msgpack.encode([call.arguments for call in part]),
                        ),
                    )
                    for (key, field, _), part in zip(waiting, parts, strict=True)
                ]
            )
            done.requests += len(waiting)
            left = []
            for (key, field, part), (count, before, error) in zip(waiting, answers, strict=True):
                next_entry = count
                done.rows += count - before
                done.stale += before
                if error:
                    refuse([(part[count].row, _explain_refusal(error.decode(errors="replace"), chosen))])
                    next_entry += 1
                if part[next_entry:]:
                    left.append((key, field, part[next_entry:]))
            waiting = left
        return done

    def _group_keys(self, keys: Sequence[str]) -> Iterator[Sequence[int]]:
        """The numbers of rows that go into one call."""
        parts: list[Sequence[int]] = [range(len(keys))]
        if self._settings.cluster:
            slots: dict[int, list[int]] = defaultdict(list)
            for number, key in enumerate(keys):
                slots[self._redis.keyslot(key)].append(number)
            parts = list(slots.values())
        for part in parts:
            for start in range(0, len(part), _ROWS_PER_CALL):
                yield part[start : start + _ROWS_PER_CALL]

    def _run_script(self, requests: Iterable[tuple[Sequence[str], Sequence[Any]]]) -> list[Any]:
        """The answers of the script to requests of keys and arguments."""
        if not self._settings.cluster:
            return _run_pipeline(self._redis, self._script, requests)
        listed = list(requests)
        nodes: dict[Any, list[int]] = defaultdict(list)
        for number, (keys, _) in enumerate(listed):
            nodes[self._redis.get_node_from_key(keys[0])].append(number)
        answers: dict[int, Any] = {}
        for node, numbers in nodes.items():
            results = _run_pipeline(
                self._redis.get_redis_connection(node), self._script, [listed[number] for number in numbers]
            )
            answers |= dict(zip(numbers, results, strict=True))
        return [answers[number] for number in range(len(listed))]


class _Call:
    """A row as a script gets it: its key, its guard, its arguments."""

    __slots__ = ("arguments", "guard", "key", "row")

    def __init__(self, row: SinkRow, key: str, guard: str, arguments: tuple[Any, ...]) -> None:
        self.row = row
        self.key = key
        self.guard = guard
        self.arguments = arguments


def _as_calls(calls: Sequence[_Call]) -> Calls:
    """Rows that were made one by one."""
    keys, guards = [call.key for call in calls], [call.guard for call in calls]
    return Calls(keys, guards, [call.arguments for call in calls], lambda number: calls[number].row)


class _Form:
    """Makes the calls of a table's rows. Pure."""

    def __init__(self, settings: RedisSettings, table: RowTable) -> None:
        self._settings = settings
        self._names = field_names(table, soft=settings.soft)
        self._key = settings.key.bind(table)
        self._value = settings.value.bind(table)
        self._member = settings.member.bind(table)
        self._row_key = Template("${key}").bind(table)

    def call(self, row: SinkRow) -> _Call:
        """Raises ``Unfilled`` and ``NoText``."""
        key = self._key(row)
        form = self._settings.form
        guard = guard_of(key)
        if form == STREAM:
            present = {name: value_of(value) for name, value in build_document(row).items() if value is not None}
            fields = [part for pair in present.items() for part in pair]
            position = f"{row.offset:020d}.{row.number:010d}"
            return _Call(row, key, f"{guard}:{self._settings.position}", (position, fields))
        if form == SORTED_SET:
            guard = f"{guard}:{self._row_key(row)}"
        action = "w" if not row.deleted else "s" if self._settings.soft else "d"
        values = self._encode_values(row, action)
        if values is None:
            action, values = "d", []
        return _Call(row, key, guard, (str(row.order), action, *values))

    def _encode_values(self, row: SinkRow, action: str) -> Sequence[Any] | None:
        """The values; None for a row without one."""
        form, soft = self._settings.form, self._settings.soft
        if form == SORTED_SET:
            if action == "d":
                return [self._known_member(row)]
            score = score_of(row.values.get(self._settings.score), self._settings)
            return [self._member(row), score]
        if action == "d":
            return []
        if form == HASH:
            values = build_document(row, active=soft)
            return [value_of(values[name]) for name in self._names]
        if form == JSON:
            return [pack_raw(json_of(build_document(row, active=soft)))]
        if any(row.values.get(name) is None for name in self._settings.value.columns):
            return None
        return [self._value(row)]

    def _known_member(self, row: SinkRow) -> str:
        """The member of a delete; empty where only the key is known: the guard remembers it."""
        try:
            return self._member(row)
        except Unfilled:
            return ""


def score_of(value: Any, settings: RedisSettings) -> str:
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


def _run_pipeline(client: Any, script: str, requests: Iterable[tuple[Sequence[str], Sequence[Any]]]) -> list[Any]:
    """The answers of one server; the script is sent with the first request, which is all that the server needs.

    Requests are sent as they are made, so that the server works on the first ones meanwhile. It keeps its answers until they
    are read.
    """
    digest = sha1(script.encode(), usedforsecurity=False).hexdigest()
    pool = client.connection_pool
    connection = pool.get_connection()
    try:
        count = 0
        for keys, arguments in requests:
            command = ("EVALSHA", digest) if count else ("EVAL", script)
            connection.send_packed_command([packed_command((*command, len(keys), *keys, *arguments))])
            count += 1
        return [connection.read_response() for _ in range(count)]
    except BaseException:
        connection.disconnect()  # answers that are not read would be those of the next requests
        raise
    finally:
        pool.release(connection)


def packed_command(arguments: Sequence[Any]) -> bytes:
    """A request in Redis's form; the client's own function takes three times as long. Pure."""
    encoded = [argument if isinstance(argument, bytes) else str(argument).encode() for argument in arguments]
    return b"*%d\r\n" % len(encoded) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded])


def _explain_refusal(error: str, settings: RedisSettings) -> str:
    """Why a row is refused.

    Raises:
        Retriable, Fatal: the error is about more than the row.
    """
    if any(sign in error for sign in _OF_A_ROW):
        return f"Redis {settings.access.address}: {error}"
    raise explain_error(error, settings)


def explain_error(error: str, settings: RedisSettings) -> Retriable | Fatal:
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
def translate_errors(settings: RedisSettings) -> Iterator[None]:
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
        raise explain_error(str(error), settings) from error


def connect_redis(settings: RedisSettings) -> Any:
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
