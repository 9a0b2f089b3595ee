"""Requests for snapshots: their form, what REST checks of one, and the list of a task. Pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

import msgspec

from connectors.api import SNAPSHOT_ENDED
from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from connectors.api import Instruction, Position

#: The id of the snapshot that the connector starts itself.
INITIAL: Final = "initial"
#: ``SnapshotRequest.origin`` of a snapshot that the connector starts for a table that came later.
NEW: Final = "new"
#: Members of what is saved of a request.
STATE: Final = "state"
PROGRESS: Final = "progress"
REQUEST: Final = "request"
#: Members that a request over REST may have.
FIELDS: Final = frozenset({"tables", "conditions", "priority", "surrogate_key"})


class HasTableId(Protocol):
    """A table that the server has given an id."""

    @property
    def table_id(self) -> str:
        """The id."""


Identified = TypeVar("Identified", bound=HasTableId)


class SnapshotRequest(msgspec.Struct, kw_only=True):
    """A snapshot that was asked for.

    Attributes:
        id: its name; never used twice.
        tables: regular expressions for ``database.table`` or ``keyspace.table`` (of the captured tables).
        conditions: SQL conditions by table (regular expression or name): only such rows are read.
        surrogate_key: column to read by instead of the key; "": none.
        selects: by table: a SELECT statement whose rows are read instead of the table's (it has to yield the table's columns).
        priority: higher ones are read first; then in the order of ``created_ms``.
        state: the state that is asked for.
        origin: who asked; ``new``: the connector, for a table that it captures since then.
        created_ms: when, milliseconds since 1970.
        start_ms: when it may start, milliseconds since 1970; 0: at once.
        table_id: the server's id of the only table that is read, whatever else has its name; "": all that match.
    """

    id: str
    tables: list[str]
    conditions: dict[str, str] = msgspec.field(default_factory=dict)
    surrogate_key: str = ""
    selects: dict[str, str] = msgspec.field(default_factory=dict)
    priority: int = 0
    state: Literal["running", "paused", "cancelled"] = "running"
    origin: Literal["initial", "new", "rest", "signal"] = "rest"
    created_ms: int = 0
    start_ms: int = 0
    table_id: str = ""

    def chosen(self, tables: Iterable[Identified]) -> list[Identified]:
        """Of the tables that match ``tables`` those that are read."""
        return [table for table in tables if self.table_id in ("", table.table_id)]

    @property
    def order(self) -> tuple[int, int]:
        """Sorts requests: the one that is read first is the least."""
        return -self.priority, self.created_ms


def due_requests(requests: Iterable[SnapshotRequest], now_ms: int) -> tuple[list[SnapshotRequest], int | None]:
    """The requests as a reader gets them: those that wait for their time are paused. And when the next of them starts.

    Args:
        requests: all of a task.
        now_ms: milliseconds since 1970.

    Returns:
        The requests, and the time of the next start (milliseconds since 1970; None: none waits).
    """
    requests = list(requests)
    waiting = {row.id: row.start_ms for row in requests if row.state == "running" and row.start_ms > now_ms}
    return [msgspec.structs.replace(row, state="paused") if row.id in waiting else row for row in requests], min(
        waiting.values(), default=None
    )


class RequestList:
    """The requests of a task, whoever made them, and what is saved of its share of each.

    Args:
        partition: makes the source partition of the task's share of a request.
        changed: gets the complete list after each change, as ``due_requests`` makes it.
        keeps_ended: whether requests over REST that are over stay in the list after a restart: metrics show them.
        clock: seconds since 1970.

    Attributes:
        requests: those that are not forgotten, by id.
        saved: the saved offset of the task's share, by id.
    """

    def __init__(
        self,
        partition: Callable[[str], Position],
        changed: Callable[[list[SnapshotRequest]], object],
        *,
        keeps_ended: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.requests: dict[str, SnapshotRequest] = {}
        self.saved: dict[str, Position] = {}
        self._partition = partition
        self._changed = changed
        self._keeps_ended = keeps_ended
        self._clock = clock
        #: States that the operator asks for, of requests that the connector makes itself.
        self._steered: dict[str, Any] = {}
        self._next_start_ms: int | None = None
        self._unsaved: list[tuple[Position, Position | None]] = []

    def ended(self, name: str) -> bool:
        """Whether the task's share of a request is over, by what is saved."""
        return self.saved.get(name, {}).get(STATE) in SNAPSHOT_ENDED

    def add(self, *requests: SnapshotRequest) -> None:
        """Take requests of the connector's own, in the state that the operator asks for."""
        for request in requests:
            state = self._steered.get(request.id, request.state)
            self.requests[request.id] = msgspec.structs.replace(request, state=state)

    def save(self, name: str, offset: Position) -> None:
        """Keep an offset of a request, to be handed over with ``take_unsaved``."""
        self.saved[name] = offset
        self._unsaved.append((self._partition(name), offset))

    def forget(self, name: str) -> None:
        """Keep nothing of a request."""
        self.requests.pop(name, None)
        if self.saved.pop(name, None) is not None:
            self._unsaved.append((self._partition(name), None))

    def instruct(self, instructions: Sequence[Instruction], kept: Callable[[str], bool]) -> list[str]:
        """Take the operator's complete list.

        Args:
            instructions: as ``SourceTask.instruct`` gets them.
            kept: whether a request that is not in the list stays: the connector or a signal has made it.

        Returns:
            The ids of requests that the operator has deleted.
        """
        self._steered = {str(row["id"]): row["state"] for row in instructions if row.get("origin", "rest") != "rest"}
        listed = set()
        for row in instructions:
            name = str(row["id"])
            listed.add(name)
            if row.get("origin", "rest") == "rest":
                if self._keeps_ended or not self.ended(name):
                    self.requests[name] = msgspec.convert({**row, "origin": "rest"}, SnapshotRequest, strict=False)
            elif name in self.requests:
                self.requests[name] = msgspec.structs.replace(self.requests[name], state=row["state"])
        deleted = [name for name in {*self.requests, *self.saved} if name not in listed and not kept(name)]
        for name in deleted:
            self.forget(name)
        self.hand_over()
        return deleted

    def start_due(self) -> None:
        """Start the snapshots whose time has come. Cheap."""
        if self._next_start_ms is not None and self._clock() * 1000 >= self._next_start_ms:
            self.hand_over()

    def hand_over(self) -> None:
        """Give the complete list to the reader."""
        requests, self._next_start_ms = due_requests(self.requests.values(), int(self._clock() * 1000))
        self._changed(requests)

    def take_unsaved(self) -> list[tuple[Position, Position | None]]:
        """The decisions about requests that are to be saved."""
        unsaved, self._unsaved = self._unsaved, []
        return unsaved


def encode_request(request: SnapshotRequest) -> str:
    """The text of a request that the connector or a signal has made, for ``REQUEST`` in an offset."""
    return msgspec.json.encode(request).decode()


def decode_request(offset: Mapping[str, Any]) -> SnapshotRequest | None:
    """See ``encode_request``; None: the offset has none.

    Raises:
        msgspec.DecodeError: it can't be read.
    """
    request_json = offset.get(REQUEST)
    return None if request_json is None else msgspec.json.decode(request_json, type=SnapshotRequest)


def check_request(
    request: Mapping[str, Any], *, fields: frozenset[str] = FIELDS, condition: Callable[[str], bool] | None = None
) -> dict[str, Any]:
    """A request over REST in the form in which tasks get it.

    Args:
        request: as it came.
        fields: members that it may have.
        condition: whether a string can be a condition; None: the caller has refused them.

    Raises:
        ConfigInvalid: a member is not what it has to be; the message says what is expected.
    """
    unknown = sorted(set(request) - fields)
    if unknown:
        raise ConfigInvalid(f"a snapshot has no {', '.join(unknown)}; it has {', '.join(sorted(fields))}")
    tables = request.get("tables")
    if not isinstance(tables, list) or not tables or not all(isinstance(name, str) and name.strip() for name in tables):
        raise ConfigInvalid(
            'tables must be a list of names or regular expressions, such as ["shop.orders", "shop.cust.*"], '
            f"not {tables!r}"
        )
    for name in tables:
        _check_expression("tables", name)
    conditions = request.get("conditions") or {}
    if not isinstance(conditions, dict) or not all(isinstance(sql, str) for sql in conditions.values()):
        raise ConfigInvalid(
            'conditions must be an object of tables and SQL conditions, such as {"shop.orders": "id > 1000"}, '
            f"not {conditions!r}"
        )
    for table, sql in conditions.items():
        _check_expression("conditions", table)
        if condition is None or not condition(sql):
            raise ConfigInvalid(
                f"conditions: {sql!r} for {table} must be one SQL condition, without WHERE, comments and semicolons"
            )
    priority = request.get("priority") or 0
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise ConfigInvalid(f"priority must be a whole number, not {priority!r}; the highest is read first")
    surrogate = request.get("surrogate_key") or ""
    if not isinstance(surrogate, str):
        raise ConfigInvalid(f"surrogate_key must be the name of a column, not {surrogate!r}")
    checked: dict[str, Any] = {
        "tables": [name.strip() for name in tables],
        "conditions": {table: sql.strip() for table, sql in conditions.items()},
        "priority": priority,
    }
    return {**checked, "surrogate_key": surrogate} if surrogate else checked


def check_plain_request(request: Mapping[str, Any], system: str) -> dict[str, Any]:
    """``check_request`` for a system that reads whole tables only.

    Raises:
        ConfigInvalid: a member is not what it has to be; the message says what is expected.
    """
    if request.get("conditions"):
        raise ConfigInvalid(
            f"conditions can't be used with {system}: a filter would make it read whole tables all the same "
            "(ALLOW FILTERING); ask for tables only"
        )
    return check_request(request, fields=FIELDS - {"surrogate_key"})


def _check_expression(member: str, expression: str) -> None:
    try:
        compile_java(expression)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{member}: {expression!r}: {error}") from None
