"""Definitions of tables, as they are and as they were: read from ``system_schema``, put together by pure functions.

``WRITETIME`` of a column's row says when it was added, ``system_schema.dropped_columns`` when one was dropped, so the
definitions since the table was created are known at the first look. The definition of a user-defined type before it was
altered is not: it is known only from the look before, if there was one (``previous``).
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from connectors.cql.types import UnknownType, has_newer_fields, parse_type, udt_resolver
from connectors.errors import Fatal, Retriable
from connectors.scylla.config.names import qualify_table, quote_name
from connectors.scylla.model import CdcOptions, ScyllaColumn, TableId, TableVersion
from connectors.scylla.schema.log_table import SUFFIX, log_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.cql.cluster.session import CqlSession
    from connectors.cql.types import CqlType

#: ``system_schema`` is local to each node.
LOCAL: Final = "ONE"
_KINDS: Final = {"partition_key": "partition_key", "clustering": "clustering", "static": "static", "regular": "regular"}
_KIND_ORDER: Final = {"partition_key": 0, "clustering": 1, "static": 2, "regular": 3}

Reason = Literal["missing", "disabled", "no-log"]


class TableUnavailable(Retriable):
    """A table can't be read as it is: it, its CDC or its log is not there. No restart is needed once it is.

    Attributes:
        table: the table.
        reason: which of the three.
    """

    def __init__(self, table: TableId, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.table = table
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of ``system_schema`` for a table and for its keyspace's types, as dicts."""

    table: Mapping[str, Any]
    columns: Sequence[Mapping[str, Any]]
    dropped: Sequence[Mapping[str, Any]] = ()
    types: Sequence[Mapping[str, Any]] = ()
    log_columns: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TableHistory:
    """All definitions that are known of a table.

    Attributes:
        versions: oldest first, at least one; the first counts for everything before it too.
        created_us: when the table was made, as far as the server tells; 0: not known.
        log_columns: names of the log table's columns as they are now.
        altered_us: when it was made or altered last, as far as the server tells; 0: not known.
    """

    versions: tuple[TableVersion, ...]
    created_us: int = 0
    log_columns: frozenset[str] = frozenset()
    altered_us: int = 0

    @property
    def newest(self) -> TableVersion:
        """The definition in force."""
        return self.versions[-1]

    @property
    def table_id(self) -> str:
        """The server's id of the table; another one after DROP and CREATE."""
        return self.newest.table_id

    def version_at(self, write_time_us: int) -> TableVersion:
        """The definition that a row written at ``write_time_us`` belongs to."""
        index = bisect_right(self.versions, write_time_us, key=lambda version: version.since_us)
        return self.versions[max(index - 1, 0)]


def cdc_options(extension: bytes | None) -> CdcOptions:
    """The CDC options from ``system_schema.tables.extensions['cdc']``; without it CDC is off.

    The blob is a count and then length and bytes of each key and value, all numbers 4 bytes little-endian.

    Raises:
        Fatal: the blob is cut short or not of that form.
    """
    if extension is None:
        return CdcOptions(enabled=False, stated=False)
    values: list[str] = []
    try:
        (count,) = struct.unpack_from("<I", extension)
        at = 4
        for _ in range(2 * count):
            (length,) = struct.unpack_from("<I", extension, at)
            if at + 4 + length > len(extension):
                raise Fatal(f"The CDC options of a table can't be read: {extension.hex()} ends too early")
            values.append(extension[at + 4 : at + 4 + length].decode())
            at += 4 + length
    except (struct.error, UnicodeDecodeError) as error:
        raise Fatal(f"The CDC options of a table can't be read: {extension.hex()}: {error}") from error
    options = {key.lower(): value.lower() for key, value in zip(values[::2], values[1::2], strict=True)}
    preimage = options.get("preimage", "false")
    delta = options.get("delta", "full")
    ttl = options.get("ttl", "86400")
    return CdcOptions(
        enabled=options.get("enabled", "false") == "true",
        preimage=cast('Literal["false", "true", "full"]', preimage if preimage in {"true", "full"} else "false"),
        postimage=options.get("postimage", "false") == "true",
        delta="keys" if delta == "keys" else "full",
        ttl_s=int(ttl) if ttl.isdigit() else 86_400,
    )


def _read_extension(row: Mapping[str, Any], name: str) -> bytes | None:
    extensions = row.get("extensions")
    if isinstance(extensions, dict):
        value = extensions.get(name)
        return None if value is None else bytes(value)
    for item in extensions or ():
        if item["key"] == name:
            return bytes(item["value"])
    return None


def version_text(columns: Sequence[ScyllaColumn]) -> str:
    """A short text that is equal for equal definitions."""
    parts = [(column.name, repr(column.type), column.kind, column.position, column.reversed) for column in columns]
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _order_columns(columns: Sequence[ScyllaColumn]) -> tuple[ScyllaColumn, ...]:
    def order_key(column: ScyllaColumn) -> tuple[int, int, bytes]:
        keyed = column.kind in {"partition_key", "clustering"}
        return (_KIND_ORDER[column.kind], column.position if keyed else 0, column.name.encode())

    return tuple(sorted(columns, key=order_key))


def _make_column(row: Mapping[str, Any], kind_of: Callable[[str], CqlType]) -> ScyllaColumn:
    kind = cast(
        'Literal["partition_key", "clustering", "static", "regular"]', _KINDS.get(row.get("kind") or "", "regular")
    )
    keyed = kind in {"partition_key", "clustering"}
    return ScyllaColumn(
        row["column_name"],
        kind_of(row["type"]),
        kind,
        int(row.get("position") or 0) if keyed else -1,
        str(row.get("clustering_order") or "").lower() == "desc",
        int(row.get("added") or 0),
    )


def build_history(
    table: TableId, rows: TableRows, previous: TableHistory | None = None, *, now_us: int = 0
) -> TableHistory:
    """The definitions of a table.

    Args:
        table: the table.
        rows: what the server says now.
        previous: what was known before: definitions that ``rows`` don't show are kept from it. Nodes are asked in turn: the
            answer of one that is behind changes nothing.
        now_us: taken as the time of a change whose own time is not known.

    Raises:
        Fatal: a type is not understood, or the CDC options can't be read.
    """
    definitions = {row["type_name"]: (row["field_names"], row["field_types"]) for row in rows.types}
    resolve = udt_resolver(table.keyspace, definitions)

    def kind_of(type_name: str) -> CqlType:
        return parse_type(type_name, resolve, keyspace=table.keyspace)

    current = [_make_column(row, kind_of) for row in rows.columns if row["type"] != "empty"]
    gone: list[tuple[ScyllaColumn, int]] = []
    for row in rows.dropped:
        try:
            gone.append((_make_column(row, kind_of), int(row.get("dropped_time") or 0) * 1000))
        except UnknownType:
            continue  # a type that went with it: its cells can't be read any more either
    created = min(
        (column.added_us for column in current if column.kind == "partition_key" and column.added_us), default=0
    )
    options = cdc_options(_read_extension(rows.table, "cdc"))
    table_id = str(rows.table.get("id") or "")
    if previous is not None and _is_older(table_id, current, created, rows, previous):
        return previous
    built = _derive_versions(table, current, gone, created, options, table_id)
    versions = _merge_history(built, previous, created, rows, now_us)
    stale = [version.table_id == table_id and version.options != options for version in versions]
    versions = tuple(
        replace(stale_version, options=options) if old else stale_version
        for stale_version, old in zip(versions, stale, strict=True)
    )
    return TableHistory(versions, created, rows.log_columns, int(rows.table.get("altered") or 0))


def _derive_versions(
    table: TableId,
    current: Sequence[ScyllaColumn],
    gone: Sequence[tuple[ScyllaColumn, int]],
    created_us: int,
    options: CdcOptions,
    table_id: str,
) -> list[TableVersion]:
    """The definitions that follow from when columns were added and dropped."""
    edges = {
        column.added_us for column in current if column.added_us > created_us and column.kind in {"static", "regular"}
    }
    edges |= {dropped for _, dropped in gone if dropped > created_us}
    versions: list[TableVersion] = []
    for since in [0, *sorted(edges)]:
        at = max(since, created_us)
        there = {column.name: column for column, dropped in gone if dropped > at}
        there.update(
            {
                column.name: column
                for column in current
                if column.added_us <= at or column.kind in {"partition_key", "clustering"}
            }
        )
        columns = _order_columns(list(there.values()))
        columns_text = version_text(columns)
        if not versions or versions[-1].version != columns_text:
            versions.append(TableVersion(table, columns, options, columns_text, since, table_id))
    return versions


def _is_older(
    table_id: str, current: Sequence[ScyllaColumn], created_us: int, rows: TableRows, previous: TableHistory
) -> bool:
    """Whether the rows can only be of an earlier state than ``previous``.

    A table that was recreated is younger, columns that go leave a note among the dropped ones, and types only get more fields.
    """
    if table_id != previous.table_id:
        return 0 < created_us < previous.created_us
    present = {column.name: column for column in current}
    notes = {row["column_name"] for row in rows.dropped}
    for column in previous.newest.columns:
        if column.kind not in {"static", "regular"}:
            continue  # columns of the key can be renamed
        now = present.get(column.name)
        if now is None and column.name not in notes:
            return True
        if now is not None and now.added_us == column.added_us and has_newer_fields(now.type, column.type):
            return True
    return False


def _merge_history(
    built: list[TableVersion], previous: TableHistory | None, created_us: int, rows: TableRows, now_us: int
) -> tuple[TableVersion, ...]:
    if previous is None:
        return tuple(built)
    newest = built[-1]
    if previous.table_id != newest.table_id:
        # Recreated: rows of the old table went with its log; what is still on its way was written before the new one existed.
        return (*previous.versions, replace(built[0], since_us=created_us or now_us), *built[1:])
    last = previous.newest
    if last.version == newest.version:
        return previous.versions
    later = [version for version in built if version.since_us > last.since_us]
    if later:
        return (*previous.versions, *later)
    altered = max((int(row.get("changed") or 0) for row in rows.types), default=0)
    since = altered if altered > last.since_us else max(now_us, last.since_us + 1)
    return (*previous.versions, replace(newest, since_us=since))


async def load_history(
    session: CqlSession, table: TableId, previous: TableHistory | None = None, *, now_us: int = 0
) -> TableHistory:
    """Read a table's definitions.

    Args:
        session: the session.
        table: the table.
        previous: what this gave before, if it did.
        now_us: see ``build_history``.

    Raises:
        TableUnavailable: the table is not there, CDC was never on for it, or its log is not there; the message says how to fix
        it.
        Retriable: nodes are unavailable, busy or too slow.
        Fatal: its definition is not understood.
    """
    table_rows = await session.query(
        'SELECT id, extensions, WRITETIME(extensions) AS "altered" '
        "FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
        table,
        consistency=LOCAL,
    )
    if not table_rows:
        raise TableUnavailable(table, "missing", await _describe_missing(session, table))
    log = await session.query(
        "SELECT column_name FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?",
        (table.keyspace, log_name(table)),
        consistency=LOCAL,
    )
    enabled = cdc_options(_read_extension(table_rows[0], "cdc")).enabled
    if not log:
        # A table whose CDC was turned off keeps its log, and what is in it can still be read.
        raise TableUnavailable(
            table, "no-log" if enabled else "disabled", _no_log(table) if enabled else disabled_text(table)
        )
    columns = await session.query(
        'SELECT column_name, kind, position, clustering_order, type, WRITETIME(type) AS "added" '
        "FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?",
        table,
        consistency=LOCAL,
    )
    dropped = await session.query(
        "SELECT * FROM system_schema.dropped_columns WHERE keyspace_name = ? AND table_name = ?",
        table,
        consistency=LOCAL,
    )
    types = await session.query(
        'SELECT type_name, field_names, field_types, WRITETIME(field_types) AS "changed" '
        "FROM system_schema.types WHERE keyspace_name = ?",
        (table.keyspace,),
        consistency=LOCAL,
    )
    return build_history(
        table,
        TableRows(table_rows[0], columns, dropped, types, frozenset(row["column_name"] for row in log)),
        previous,
        now_us=now_us,
    )


def disabled_text(table: TableId) -> str:
    """Says that a table has no CDC, and how to turn it on."""
    return f"CDC is not enabled for {table}; enable it with: ALTER TABLE {qualify_table(table)} WITH cdc = {{'enabled': true}}"


def _no_log(table: TableId) -> str:
    return (
        f"CDC is enabled for {table}, but its log table {table}{SUFFIX} is not there: it may have been dropped, or the "
        "schema is not yet known to every node; if this continues, set the table's cdc option to {'enabled': false} and to "
        "true again"
    )


async def _describe_missing(session: CqlSession, table: TableId) -> str:
    """Why a table was not found, with what it may have been meant to be."""
    near = await session.query(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", (table.keyspace,), consistency=LOCAL
    )
    if near:
        hint = _case_hint(table.table, (row["table_name"] for row in near))
        return f"There is no table {table}{hint}; create it with CDC enabled, or correct scylla.table.names"
    keyspaces = await session.query("SELECT keyspace_name FROM system_schema.keyspaces", consistency=LOCAL)
    names = [row["keyspace_name"] for row in keyspaces]
    if table.keyspace in names:
        return (
            f"There is no table {table}: keyspace {table.keyspace} has no tables; create it with CDC enabled, or correct "
            "scylla.table.names"
        )
    return f"There is no keyspace {table.keyspace}{_case_hint(table.keyspace, names)}; create it, or correct scylla.table.names"


def _case_hint(name: str, table_names: Any) -> str:
    for table_name in sorted(table_names):
        if table_name.lower() == name.lower() and table_name != name:
            return f" (there is {quote_name(table_name)}: a name with capital letters must stand in double quotes)"
    return ""
