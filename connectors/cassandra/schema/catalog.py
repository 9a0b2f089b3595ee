"""Definitions of all tables by the server's ids: read from ``system_schema``, kept forever, read again when it changes.

A log names tables by id only and columns without types, and it has the mutations of all tables, captured or not. So every
table's definition is kept, those of materialized views and of the server's own tables too, and none is ever forgotten: one that
was dropped may still be in segments that were not read.

``system_schema`` is local to each node, and while a change spreads two questions may be answered by nodes that differ. What can
only be an older state than what is known (a column that is gone without a trace, a type that lost fields) is not taken until
the nodes agree.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, cast

from connectors.cassandra import metrics as names
from connectors.cassandra.capture import Capture, Captures
from connectors.cassandra.config.rules import split_regexes
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, DroppedColumn, Kind, make_definition
from connectors.cql.types import UnknownType, has_newer_fields, parse_type, udt_resolver
from connectors.errors import MillraceError, Retriable
from connectors.java_regex import compile_java

if TYPE_CHECKING:
    import logging
    import re
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from connectors.api import TaskMetrics
    from connectors.cql.cluster.session import CqlSession
    from connectors.cql.types import CqlType

#: The server's own keyspaces; nothing of them is captured.
SYSTEM: Final = frozenset(
    {
        "system",
        "system_schema",
        "system_auth",
        "system_distributed",
        "system_traces",
        "system_views",
        "system_virtual_schema",
        "system_cluster_metadata",
        "dse_system",
        "dse_system_local",
        "dse_security",
        "dse_perf",
        "dse_leases",
        "solr_admin",
    }
)
_LOCAL: Final = "ONE"
#: Nodes that disagree for less long may not have all tables: one that reads its schema again has none for a moment.
_SPREAD_MS: Final = 4_000
_KEYSPACE: Final = "keyspace_name"
_TABLE: Final = "table_name"

Rows = list[dict[str, Any]]


class CassandraTableFilter:
    """Selects the tables that are captured, of those with ``cdc = true``: Debezium's include and exclude lists.

    Args:
        include: regular expressions (Java's) for whole names ``keyspace.table`` in any case; empty: all.
        exclude: the same for tables that are left out; counts only without ``include``.

    Raises:
        ConfigInvalid: an expression can't be used.
    """

    def __init__(self, include: str = "", exclude: str = "") -> None:
        self._included = _compile_patterns(include)
        self._excluded = () if self._included else _compile_patterns(exclude)

    def matches(self, keyspace: str, table: str) -> bool:
        """Whether the lists let the table be captured."""
        if keyspace in SYSTEM:
            return False
        name = f"{keyspace}.{table}"
        if self._included:
            return any(pattern.fullmatch(name) for pattern in self._included)
        return not any(pattern.fullmatch(name) for pattern in self._excluded)

    def names(self, keyspace: str, table: str) -> bool:
        """Whether the include list names the table: it is there, and it lets the table be captured."""
        return bool(self._included) and self.matches(keyspace, table)


def _compile_patterns(regexes: str) -> tuple[re.Pattern[str], ...]:
    return tuple(compile_java(f"(?i){item}") for item in split_regexes(regexes))


def find_disagreeing(versions: Mapping[str, str]) -> list[str]:
    """Nodes whose version is not the one of most nodes; of two that are equally frequent the first one counts. Pure.

    Args:
        versions: each node's version of the schema, by address; the node that was asked comes first.
    """
    if not versions:
        return []
    ((usual, _),) = Counter(versions.values()).most_common(1)
    return sorted(node for node, version in versions.items() if version != usual)


class CassandraCatalog:
    """The tables of a cluster. Looking up costs nothing and does not block; reading is done by ``refresh``.

    Args:
        filter_: which tables are captured.
        log: the task's; None: nothing is logged.
        metrics: counts looks and changes.
        session: asks the cluster, and is not released here; None: it is set (``session``) before the first ``refresh``.
    """

    def __init__(
        self,
        filter_: CassandraTableFilter,
        log: logging.LoggerAdapter[logging.Logger] | logging.Logger | None,
        metrics: TaskMetrics | None = None,
        session: CqlSession | None = None,
    ) -> None:
        self.session = session
        self._filter = filter_
        self._log = log
        self._metrics = metrics
        self._tables: dict[bytes, CqlTableDefinition] = {}
        #: Ids that the cluster has now, as far as was read.
        self._live: frozenset[bytes] = frozenset()
        #: Which tables have or had cdc, and up to where in the log their updates count.
        self.captures = Captures()
        self._deliverable: dict[str, bool] = {}
        self._rows: dict[str, _Keyspace] = {}
        #: Versions of the schema at the last reading, and at the last one that left nothing open.
        self._last: tuple[str, ...] = ()
        #: When these of the last reading were reported first, ms since 1970.
        self._last_ms = 0
        self._seen: tuple[str, ...] = ()
        #: Each node's version of the schema when nodes were asked last, by address.
        self._nodes: dict[str, str] = {}
        #: Since when nodes have not had the same version (monotonic, s); None: they have.
        self._apart_since: float | None = None
        self._reported_tables: set[tuple[str, str]] = set()
        self._lock = asyncio.Lock()
        self._asked = 0
        self._served = 0
        self._changed: set[str] = set()

    # Looking up.

    def by_id(self, table_id: bytes) -> CqlTableDefinition | None:
        """The definition of a table, captured or not, by its 16 bytes; None: it is not known."""
        return self._tables.get(table_id)

    def captured(self, table: CqlTableDefinition, segment: int | None = None) -> bool:
        """Whether the table's changes in a segment are delivered: it is chosen, can be captured, and had cdc then.

        Without a segment: whether its changes in any segment are.
        """
        return self.is_deliverable(table) and self.captures.of(id_bytes(table.table_id)).counts(segment)

    def is_deliverable(self, table: CqlTableDefinition) -> bool:
        """Whether the table's changes would be delivered if it had cdc."""
        deliverable = self._deliverable.get(table.table_id)
        if deliverable is None:
            deliverable = self._deliverable[table.table_id] = (
                self._filter.matches(table.keyspace, table.table) and not table.refusal
            )
        return deliverable

    def is_refused(self, table: CqlTableDefinition) -> bool:
        """Whether the table is chosen and has cdc, but its changes can't be captured."""
        return table.cdc and bool(table.refusal) and self._filter.matches(table.keyspace, table.table)

    def list_known_tables(self) -> list[CqlTableDefinition]:
        """All that are known, those of dropped tables too."""
        return list(self._tables.values())

    def tables(self, patterns: Sequence[str] = ()) -> list[CqlTableDefinition]:
        """The captured tables that are there now, by name; with ``patterns`` only those that one of them matches.

        Raises:
            ConfigInvalid: a pattern is no regular expression.
        """
        compiled = [compile_java(f"(?i){pattern}") for pattern in patterns]
        captured = [
            table for key, table in self._tables.items() if key in self._live and table.cdc and self.captured(table)
        ]
        return sorted(
            (table for table in captured if not compiled or any(pattern.fullmatch(str(table)) for pattern in compiled)),
            key=str,
        )

    def refused(self) -> list[CqlTableDefinition]:
        """The tables with cdc that are chosen and can't be captured (``CqlTableDefinition.refusal``)."""
        return [table for key, table in self._tables.items() if key in self._live and self.is_refused(table)]

    def remember(self, saved: Iterable[CqlTableDefinition], captures: Mapping[str, Capture] | None = None) -> None:
        """Take definitions that were saved before; what ``refresh`` has read counts more.

        Args:
            saved: the definitions.
            captures: what was saved of their cdc, by table id (text); of one that is missing only ``cdc`` is known.
        """
        for table in saved:
            key = id_bytes(table.table_id)
            self._tables.setdefault(key, table)
            self.captures.remember(key, (captures or {}).get(table.table_id) or Capture(table.cdc, table.cdc))
        self._deliverable.clear()

    # Reading.

    @property
    def agreed(self) -> bool:
        """Whether all nodes had the same schema at the last reading, and all of it could be taken."""
        return len(set(self._seen)) == 1

    @property
    def spreading(self) -> bool:
        """Whether nodes are learning of a change: the one that answers may know less than the one that wrote the log."""
        return self._apart_since is not None and (time.monotonic() - self._apart_since) * 1000 < _SPREAD_MS

    def nodes_apart(self) -> list[str]:
        """Addresses of the nodes whose version of the schema was not the one of most nodes when they were asked last."""
        return find_disagreeing(self._nodes)

    async def refresh(self) -> set[str]:
        """Read all definitions. A call that begins while another one waits for its turn shares its answer.

        Returns:
            Ids (text) of tables whose definition is new or another one since the refresh before.

        Raises:
            Retriable: nodes are unavailable, busy or too slow; the definitions from before stay.
            Fatal: the cluster refuses the queries.
        """
        self._asked += 1
        mine = self._asked
        async with self._lock:
            if self._served >= mine:
                return set(self._changed)
            asked = self._asked
            try:
                self._changed = await self._read_schema()
            except MillraceError:
                self._count_metric(names.SCHEMA_ERRORS)
                raise
            self._served = asked
            return set(self._changed)

    async def moved(self) -> bool:
        """Whether the schema is another one than at the last ``refresh``: two small queries.

        Raises:
            Retriable: nodes are unavailable, busy or too slow.
            Fatal: the cluster refuses the queries.
        """
        return await self._read_versions() != self._seen

    def _require_session(self) -> CqlSession:
        if self.session is None:
            raise Retriable("Definitions of tables can't be read: there is no session with the cluster yet")
        return self.session

    async def _read_versions(self) -> tuple[str, ...]:
        """Versions of the schema that nodes have; the same ones whichever node answers, once they agree."""
        session = self._require_session()
        local = await session.query("SELECT broadcast_address, schema_version FROM system.local", consistency=_LOCAL)
        peers = await session.query("SELECT peer, schema_version FROM system.peers", consistency=_LOCAL)
        rows = [
            *((row["broadcast_address"], row["schema_version"]) for row in local),
            *((row["peer"], row["schema_version"]) for row in peers),
        ]
        self._nodes = {str(address): str(version) for address, version in rows if version is not None}
        if len(set(self._nodes.values())) <= 1:
            self._apart_since = None
        elif self._apart_since is None:
            self._apart_since = time.monotonic()
        return tuple(sorted(str(version) for _, version in rows if version is not None))

    async def _read_schema(self) -> set[str]:
        before = await self._read_versions()
        rows = await _load_keyspaces(self._require_session())
        agreed = len(set(before)) == 1 and await self._read_versions() == before
        now_ms = time.time_ns() // 1_000_000
        if not agreed or before != self._last:
            self.captures.disturb(now_ms)
        # Nodes that can't agree for long (one is down) are taken at their word the second time.
        certain = agreed or before == self._last
        if before != self._last:
            self._last_ms = now_ms
        # At the first reading: those that were saved.
        live = self._live if self._last else frozenset(self._tables)
        changed, complete = self._update_tables(rows, certain=certain, agreed=agreed)
        # What a snapshot finds gone it does not read.
        doubted = live - self._live if not agreed and now_ms - self._last_ms < _SPREAD_MS else frozenset()
        self._live |= doubted
        self._last = before
        self._seen = before if (complete or certain) and not doubted else ()
        self._count_metric(names.SCHEMA_REFRESHES)
        if self._metrics is not None:
            self._metrics.set(names.TABLES, len(self.tables()))
            self._metrics.set(names.REFUSED_TABLES, len(self.refused()))
        return changed

    def _update_tables(self, rows: dict[str, _Keyspace], *, certain: bool, agreed: bool) -> tuple[set[str], bool]:
        """Ids that are new or changed, and whether all that was read could be taken."""
        changed: set[str] = set()
        all_taken = True
        first = not self._rows
        now_ms = time.time_ns() // 1_000_000
        live: set[bytes] = set()
        for keyspace, keyspace_rows in rows.items():
            live.update(id_bytes(str(row["id"])) for row in keyspace_rows.tables.values())
            if self._rows.get(keyspace) == keyspace_rows:
                continue
            complete = True
            for name in keyspace_rows.tables:
                table = self._try_definition(keyspace, name, keyspace_rows)
                if (
                    table is None
                    or not self._is_better(table, certain=certain)
                    or (not agreed and self._takes_cdc_away(table, keyspace_rows.tables[name]))
                ):
                    complete = False
                    continue
                key = id_bytes(table.table_id)
                before = self._tables.get(key)
                gained = self._observe_capture(
                    table, keyspace_rows.tables[name], keyspace_rows.columns.get(name, ()), now_ms
                )
                if gained and before is not None:
                    changed.add(table.table_id)
                if before != table:
                    self._log_change(before, table)
                    self._tables[key] = table
                    changed.add(table.table_id)
                    if not first and self._metrics is not None and self.captured(table):
                        self._metrics.add(names.SCHEMA_CHANGES, 1, {"table": f"{table.keyspace}.{table.table}"})
            if complete:
                self._rows[keyspace] = keyspace_rows
            else:
                all_taken = False
                self._rows.pop(keyspace, None)
        for gone in [keyspace for keyspace in self._rows if keyspace not in rows]:
            del self._rows[gone]
        self._live = frozenset(live)
        self._deliverable.clear()
        return changed, all_taken

    def _observe_capture(
        self, table: CqlTableDefinition, row: Mapping[str, Any], columns: Iterable[Mapping[str, Any]], now_ms: int
    ) -> bool:
        """Whether more of the table's updates count than before."""
        key, altered_us = id_bytes(table.table_id), int(row.get("altered_us") or 0)
        capture = self.captures.of(key)
        gained = self.captures.observe(
            key,
            cdc=table.cdc,
            altered_us=altered_us,
            listed=self._filter.names(table.keyspace, table.table),
            created=altered_us <= _created_us(columns),
            now_ms=now_ms,
        )
        if gained and not table.cdc and not capture.ever:
            self._log_warning(
                "%s has no cdc, but it was altered since it was created or seen last, so it may have had it: what the "
                "log has of it until now is delivered",
                table,
            )
        return gained

    def _try_definition(self, keyspace: str, name: str, rows: _Keyspace) -> CqlTableDefinition | None:
        """Return a table's definition from its rows; None: it can't be determined (now)."""
        try:
            return build_definition(
                keyspace, name, rows.tables[name], rows.columns.get(name, ()), rows.dropped.get(name, ()), rows.resolver
            )
        except UnknownType as error:
            # A mixture of two states, or a type that is new to us.
            if (keyspace, name) not in self._reported_tables:
                self._reported_tables.add((keyspace, name))
                self._log_warning("The definition of %s.%s can't be read: %s", keyspace, name, error)
            return None

    def _is_better(self, table: CqlTableDefinition, *, certain: bool) -> bool:
        if not table.key:
            return False  # its columns have not spread yet, or are gone already
        before = self._tables.get(id_bytes(table.table_id))
        return certain or before is None or not is_older(table, before)

    def _takes_cdc_away(self, table: CqlTableDefinition, row: Mapping[str, Any]) -> bool:
        """Whether the table has no cdc as of an earlier ALTER than the one with which it got it: the node is behind.

        A snapshot of the table would take it for gone, and end.
        """
        key = id_bytes(table.table_id)
        before = self._tables.get(key)
        return (
            before is not None
            and before.cdc
            and not table.cdc
            and int(row.get("altered_us") or 0) < self.captures.of(key).altered_us
        )

    def _log_change(self, before: CqlTableDefinition | None, after: CqlTableDefinition) -> None:
        if not self._filter.matches(after.keyspace, after.table):
            return
        if before is not None and before.cdc and not after.cdc:
            self._log_warning("cdc of %s was turned off: what the log has of it until now is still delivered", after)
        if before is not None and not before.cdc and after.cdc and self.captures.of(id_bytes(after.table_id)).again_us:
            self._log_warning(
                "cdc of %s is on again after it was off: what was written in between is not in the log. The table is "
                "read again, unless snapshot.mode or snapshot.new.tables says not to",
                after,
            )
        if after.cdc and after.refusal and (before is None or not before.cdc):
            self._log_warning(
                "%s has cdc = true, but its changes are not delivered: %s; ALTER TABLE %s WITH cdc = false saves their "
                "room in cdc_raw",
                after,
                after.refusal,
                after,
            )

    def _log_warning(self, message: str, *values: object) -> None:
        if self._log is not None:
            self._log.warning(message, *values)

    def _count_metric(self, name: str, number: int = 1) -> None:
        if self._metrics is not None and number:
            self._metrics.add(name, number)


class _Keyspace:
    """Rows of a keyspace, compared by content."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.columns: dict[str, Rows] = {}
        self.dropped: dict[str, Rows] = {}
        self.types: dict[str, tuple[list[str], list[str]]] = {}
        self._resolver: tuple[str, Callable[[str], CqlType | None]] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyspace) and (self.tables, self.columns, self.dropped, self.types) == (
            other.tables,
            other.columns,
            other.dropped,
            other.types,
        )

    __hash__ = None  # type: ignore[assignment]

    def resolver(self, keyspace: str) -> Callable[[str], CqlType | None]:
        """Finds the keyspace's UDTs; made once."""
        if self._resolver is None or self._resolver[0] != keyspace:
            self._resolver = keyspace, udt_resolver(keyspace, self.types)
        return self._resolver[1]


async def _load_keyspaces(session: CqlSession) -> dict[str, _Keyspace]:
    """All of ``system_schema`` that matters, by keyspace."""
    keyspaces: dict[str, _Keyspace] = {}

    async def ask(cql: str) -> Rows:
        return await session.query(cql, consistency=_LOCAL)

    for row in await ask(
        "SELECT keyspace_name, table_name, id, cdc, flags, WRITETIME(cdc) AS altered_us FROM system_schema.tables"
    ):
        keyspaces.setdefault(row[_KEYSPACE], _Keyspace()).tables[row[_TABLE]] = row
    # A view's rows are mutations of their own in the log. Views are never captured.
    for row in await ask("SELECT keyspace_name, view_name, id FROM system_schema.views"):
        keyspaces.setdefault(row[_KEYSPACE], _Keyspace()).tables[row["view_name"]] = {**row, "cdc": False}
    for row in await ask(
        "SELECT keyspace_name, table_name, column_name, kind, position, clustering_order, type, "
        "WRITETIME(type) AS created_us FROM system_schema.columns"
    ):
        keyspaces.setdefault(row[_KEYSPACE], _Keyspace()).columns.setdefault(row[_TABLE], []).append(row)
    # Some of the server's own tables have times of dropping that no date can hold.
    for row in await ask(
        "SELECT keyspace_name, table_name, column_name, kind, type, "
        'blobAsBigint(timestampAsBlob(dropped_time)) AS "dropped_ms" FROM system_schema.dropped_columns'
    ):
        keyspaces.setdefault(row[_KEYSPACE], _Keyspace()).dropped.setdefault(row[_TABLE], []).append(row)
    for row in await ask("SELECT keyspace_name, type_name, field_names, field_types FROM system_schema.types"):
        keyspaces.setdefault(row[_KEYSPACE], _Keyspace()).types[row["type_name"]] = (
            row["field_names"],
            row["field_types"],
        )
    return keyspaces


def _created_us(columns: Iterable[Mapping[str, Any]]) -> int:
    """When a table was created, µs since 1970; 0: not known. ALTER writes the table's row again, but not its key's columns."""
    return min(
        (
            int(column["created_us"])
            for column in columns
            if column["kind"] == "partition_key" and column.get("created_us")
        ),
        default=0,
    )


def id_bytes(table_id: str) -> bytes:
    """A table's id as the log has it: 16 bytes."""
    return bytes.fromhex(table_id.replace("-", ""))


def build_definition(
    keyspace: str,
    name: str,
    table: Mapping[str, Any],
    columns: Iterable[Mapping[str, Any]],
    dropped: Iterable[Mapping[str, Any]],
    resolver: Callable[[str], Callable[[str], CqlType | None]],
) -> CqlTableDefinition:
    """A table's definition from rows of ``system_schema``. Pure.

    Raises:
        UnknownType: a type is not understood, or a UDT is not there.
    """
    resolve = resolver(keyspace)

    def kind_of(type_name: str) -> CqlType:
        return parse_type(type_name, resolve, keyspace=keyspace)

    present = [
        CqlColumn(
            row["column_name"],
            kind_of(row["type"]),
            kind := cast("Kind", row["kind"]),
            int(row["position"]) if kind in ("partition_key", "clustering") else -1,
            str(row["clustering_order"] or "").lower() == "desc",
        )
        for row in columns
    ]
    gone = []
    for row in dropped:
        try:
            kind = cast("Kind", row["kind"] or "regular")
            gone.append(DroppedColumn(row["column_name"], kind_of(row["type"]), kind, int(row["dropped_ms"]) * 1000))
        except UnknownType:
            present_column = next((column for column in present if column.name == row["column_name"]), None)
            if present_column is None:
                raise
            # It is there again, which is possible with the same type only.
            gone.append(
                DroppedColumn(
                    present_column.name, present_column.type, present_column.kind, int(row["dropped_ms"]) * 1000
                )
            )
    return make_definition(
        keyspace,
        name,
        str(table["id"]),
        present,
        dropped=gone,
        cdc=bool(table["cdc"]),
        compact=hides_columns(table.get("flags")),
    )


def hides_columns(flags: Collection[str] | None) -> bool:
    """Whether a table with these flags of ``system_schema.tables`` has columns that statements don't show. Pure.

    All tables are ``compound`` but those ``WITH COMPACT STORAGE``. Of these, ``dense`` ones have a clustering key of their own.
    """
    return flags is not None and (not {"compound", "dense"} & set(flags) or "super" in flags)


def is_older(table: CqlTableDefinition, current: CqlTableDefinition) -> bool:
    """Whether ``table`` can only be an earlier state of the same table than ``current``. Pure.

    Columns that go leave a note among the dropped ones, such notes stay, and types only get more fields.
    """
    present = {column.name: column for column in table.columns}
    notes = {column.name: column.dropped_us for column in table.dropped}
    for column in current.columns:
        if column.kind not in ("static", "regular"):
            continue  # columns of the key can be renamed
        now = present.get(column.name)
        if now is None and column.name not in notes:
            return True
        if now is not None and has_newer_fields(now.type, column.type):
            return True
    return any(notes.get(column.name, -1) < column.dropped_us for column in current.dropped)
