"""Writes rows to Cassandra in a task: cells, unlogged batches of rows of one replica, a window of requests."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.cluster.failures import SchemaChanged, oversized_message
from connectors.errors import Fatal, MillraceError, Retriable
from spark_jobs.sinks.cassandra.cluster import open_connection
from spark_jobs.sinks.cassandra.config import LONGEST_TTL_S, PREFIX
from spark_jobs.sinks.cassandra.types import cell_of
from spark_jobs.sinks.jdbc.config import INSERT
from spark_jobs.sinks.shared.model import Unfinished, WriteCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from connectors.cql.cluster.driver import CqlConnection
    from spark_jobs.sinks.cassandra.config import CassandraSinkSettings
    from spark_jobs.sinks.cassandra.tables import CassandraSinkTarget
    from spark_jobs.sinks.shared.model import Refuse, RowTable, SinkRow

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LONG: Final = struct.Struct(">q").pack
_INT: Final = struct.Struct(">i").pack
_SHORT: Final = struct.Struct(">H").pack
#: The head of a cell in a request, and of a statement in a batch.
_CELL_BYTES: Final = 4
_STATEMENT_BYTES: Final = 21
#: Statements in a batch: its count has 16 bits.
_STATEMENTS: Final = 60_000


class CassandraMisfit(ValueError):
    """A row can't be written; the message says why."""


@dataclass(slots=True)
class CassandraCall:
    """A row as a request has it.

    Attributes:
        row: the row.
        deleted: whether the statement is the one that deletes.
        values: the cells.
        key: those of the partition, by which nodes are found.
        size: bytes, about.
    """

    row: SinkRow
    deleted: bool
    values: list[Any]
    key: bytes
    size: int


@dataclass(slots=True)
class CassandraCells:
    """Makes calls of rows. Pure.

    Args:
        settings: the sink's.
        target: how the table is written.
        unset: the driver's word for a column that stays as it is.
    """

    settings: CassandraSinkSettings
    target: CassandraSinkTarget
    unset: Any
    _columns: list[tuple[str, Callable[[Any], bytes], bool]] = field(init=False)
    _names: dict[str, int] = field(init=False)
    _system: list[Callable[[SinkRow], bytes]] = field(init=False)
    _cut_keys: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        target = self.target
        append = self.settings.rows.mode == INSERT
        self._columns = [
            (name, cell_of(kind, spark), append or name in target.lacking)
            for (name, kind), spark in zip(target.columns, target.kinds, strict=True)
        ]
        self._names = {name: number for number, (name, _) in enumerate(target.columns)}
        self._names |= {name: len(target.columns) + number for number, name in enumerate(target.system)}
        self._system = [_SYSTEM_CELLS[name] for name in target.system]
        times = zip(target.columns, target.kinds, strict=True)
        self._cut_keys = tuple(
            name
            for (name, kind), spark in times
            if name in target.key and kind == "timestamp" and spark.startswith("timestamp") and not append
        )

    @property
    def with_ttl(self) -> bool:
        """Whether rows are written with the seconds they live."""
        return bool(self.settings.ttl_s or self.settings.ttl_column)

    def call(self, row: SinkRow) -> CassandraCall:
        """The call of a row; raises ``CassandraMisfit``."""
        target = self.target
        deletes = row.deleted and not self.settings.soft and self.settings.rows.mode != INSERT
        cells = self._encode_cells(row)
        for name in self._cut_keys:
            if (value := row.values[name]) is not None and value.microsecond % 1000:
                raise CassandraMisfit(
                    f"the column {name} belongs to the key, and the type timestamp has no microseconds: rows would share a "
                    "key. Create the table with a column of the type bigint or text"
                )
        key = [cells[self._names[name]] for name in target.key]
        for name, cell in zip(target.key, key, strict=True):
            if not isinstance(cell, bytes):
                raise CassandraMisfit(f"the column {name} is null, and belongs to the key")
        partition = key[: target.partition]
        routing = (
            partition[0]
            if len(partition) == 1
            else b"".join([_SHORT(min(len(cell), 65_535)) + cell + b"\0" for cell in partition])
        )
        try:
            time = _LONG(row.order + self.settings.timestamp_offset)
        except struct.error:
            raise CassandraMisfit(
                f"the order number {row.order} with {PREFIX}timestamp.offset is no 64-bit number"
            ) from None
        values = [time, *key] if deletes else [*cells, time, *([self._find_ttl(row)] if self.with_ttl else [])]
        size = _STATEMENT_BYTES + sum([_CELL_BYTES + (len(cell) if cell.__class__ is bytes else 0) for cell in values])
        return CassandraCall(row, deletes, values, routing, size)

    def _encode_cells(self, row: SinkRow) -> list[Any]:
        values, unset = row.values, self.unset
        keeps = row.deleted
        try:
            cells = [
                encode(value) if (value := values[name]) is not None else unset if keeps or lacking else None
                for name, encode, lacking in self._columns
            ]
        except Exception as error:
            raise CassandraMisfit(self._find_misfit_reason(row)) from error
        cells += [encode(row) for encode in self._system]
        return cells

    def _find_misfit_reason(self, row: SinkRow) -> str:
        for (name, encode, _), (_, kind) in zip(self._columns, self.target.columns, strict=True):
            try:
                if row.values[name] is not None:
                    encode(row.values[name])
            except Exception as error:  # noqa: BLE001 - struct.error and others: all say that the value does not fit
                return f"the value of the column {name} does not fit its type {kind}: {error}"
        return "a value does not fit its column"

    def _find_ttl(self, row: SinkRow) -> Any:
        value = row.values.get(self.settings.ttl_column) if self.settings.ttl_column else None
        if value is None:
            return _INT(self.settings.ttl_s) if self.settings.ttl_s else self.unset
        try:
            seconds = int(value)
        except (TypeError, ValueError, OverflowError):
            seconds = -1
        if not 0 <= seconds <= LONGEST_TTL_S:
            raise CassandraMisfit(
                f"the column {self.settings.ttl_column} has {value!r}; a row lives 0 (forever) to {LONGEST_TTL_S} seconds"
            )
        return _INT(seconds)


_SYSTEM_CELLS: Final[dict[str, Callable[[SinkRow], bytes]]] = {
    "ums_id_": lambda row: _LONG(row.order),
    "ums_ts_": lambda row: _LONG((row.time - _EPOCH) // _MILLISECOND),
    "ums_op_": lambda row: row.op.encode(),
    "ums_uid_": lambda row: (row.uid or row.position).encode(),
    "ums_active_": lambda row: b"\x00" if row.deleted else b"\x01",
}


def groups_of(calls: Iterable[CassandraCall], node_of: Callable[[bytes], Any], size: int) -> list[list[CassandraCall]]:
    """Calls in groups that are sent together: of one node, up to a size. Pure but for ``node_of``.

    Args:
        calls: the calls.
        node_of: the node that has a key.
        size: bytes of a group, at most, unless it is one call; 0: one call in each.
    """
    done: list[list[CassandraCall]] = []
    filling: dict[Any, tuple[list[CassandraCall], int]] = {}
    for call in calls:
        node = node_of(call.key)
        group, bytes_so_far = filling.get(node, ([], 0))
        if group and (bytes_so_far + call.size > size or len(group) == _STATEMENTS):
            done.append(group)
            group, bytes_so_far = [], 0
        group.append(call)
        filling[node] = group, bytes_so_far + call.size
    return done + [group for group, _ in filling.values()]


class CassandraClient:
    """See ``shared.model.RowClient``.

    Args:
        settings: the sink's.
        target: how the table is written.
        table: the rows' table.
    """

    def __init__(self, settings: CassandraSinkSettings, target: CassandraSinkTarget, table: RowTable) -> None:
        from cassandra.query import UNSET_VALUE

        del table  # the target says more
        self._settings = settings
        self._target = target
        self._cells = CassandraCells(settings, target, UNSET_VALUE)
        self._connection: CqlConnection | None = None
        self._statements: tuple[Any, Any] = (None, None)

    def write(self, rows: Sequence[SinkRow], refuse: Refuse) -> WriteCounts:
        """See ``RowClient.write``."""
        calls: list[CassandraCall] = []
        refused: list[tuple[SinkRow, str]] = []
        for row in rows:
            try:
                calls.append(self._cells.call(row))
            except CassandraMisfit as error:
                refused.append((row, str(error)))
        refuse(refused)
        connection = self._open_session()
        done = WriteCounts()
        groups = groups_of(calls, self._make_replica_finder(connection), self._settings.statement_bytes)
        alone = self._send_groups(connection, groups, done, refuse)
        # A group with a bad row was refused as a whole: each row alone shows which it is.
        self._send_groups(connection, [[call] for call in alone], done, refuse)
        return done

    def close(self) -> None:
        """See ``RowClient.close``."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open_session(self) -> CqlConnection:
        if self._connection is None:
            connection = open_connection(self._settings)
            try:
                insert = connection.prepare(self._target.insert(ttl=self._cells.with_ttl), None)
                delete = connection.prepare(self._target.delete(), None)
            except MillraceError:
                connection.close()
                raise
            self._statements = insert.prepared, delete.prepared
            self._connection = connection
        return self._connection

    def _make_replica_finder(self, connection: CqlConnection) -> Callable[[bytes], Any]:
        """The function from a key to the first of its replicas; of a single node nothing has to be computed."""
        metadata = connection.cluster.metadata
        ring = metadata.token_map
        if ring is None or len(metadata.all_hosts()) == 1:
            return lambda _: None
        keyspace = self._target.keyspace

        def node(key: bytes) -> Any:
            replicas = ring.get_replicas(keyspace, ring.token_class.from_key(key))
            return replicas[0] if replicas else None

        return node

    def _send_groups(
        self, connection: CqlConnection, groups: Sequence[list[CassandraCall]], done: WriteCounts, refuse: Refuse
    ) -> list[CassandraCall]:
        """Send groups, a window of them at a time.

        Returns:
            Calls of groups that were refused and have more than one.

        Raises:
            Retriable: some were not written.
            Fatal: the cluster refuses all rows.
        """
        waiting: deque[tuple[list[CassandraCall], Any]] = deque()
        alone: list[CassandraCall] = []
        refused: list[tuple[SinkRow, str]] = []
        left: list[SinkRow] = []
        failure: MillraceError | None = None

        def settle() -> None:
            nonlocal failure
            group, future = waiting.popleft()
            try:
                future.result()
            except Exception as error:  # noqa: BLE001 - the driver's errors; translated
                reason = self._row_error(connection, error)
                if reason and len(group) > 1:
                    alone.extend(group)
                elif reason:
                    refused.append((group[0].row, reason))
                else:
                    failure = failure or connection.error(error, self._target.full)
                    left.extend(call.row for call in group)
            else:
                done.rows += len(group)

        for group in groups:
            if len(waiting) == self._settings.requests:
                settle()
            if failure is not None:
                left.extend(call.row for call in group)
                continue
            waiting.append((group, connection.session.execute_async(self._make_batch(group))))
            done.requests += 1
        while waiting:
            settle()
        refuse(refused)
        if isinstance(failure, Retriable):
            raise Unfinished(str(failure), [*left, *(call.row for call in alone)], done)
        if failure is not None:
            raise failure if isinstance(failure, Fatal) else Fatal(str(failure))
        return alone

    def _make_batch(self, group: Sequence[CassandraCall]) -> Any:
        from cassandra.query import BatchStatement, BatchType

        insert, delete = self._statements
        batch = BatchStatement(BatchType.UNLOGGED)
        batch.is_idempotent = True
        batch.keyspace, batch.routing_key = self._target.keyspace, group[0].key
        # What BatchStatement.add does, for cells that are encoded.
        batch._statements_and_parameters.extend(  # noqa: SLF001
            [(True, (delete if call.deleted else insert).query_id, call.values) for call in group]
        )
        return batch

    def _row_error(self, connection: CqlConnection, error: Exception) -> str:
        """Why the cluster refuses a row for its own values; empty if the error is about something else."""
        from cassandra import InvalidRequest

        if message := oversized_message(error):
            return f"the row is larger than the cluster takes in one write (max_mutation_size): {message}"
        if not isinstance(error, InvalidRequest) or isinstance(connection.error(error, ""), SchemaChanged):
            return ""
        message = str(error)
        if "imestamp" in message and "future" in message:
            raise Fatal(
                f"{message}. Order numbers are the write times of rows: set {PREFIX}timestamp.offset to a negative number that "
                "brings them below the present time in µs"
            ) from error
        return f"the cluster says: {message}"
