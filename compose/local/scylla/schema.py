"""Tables as the emulation sees them, and the CQL of the log table that Scylla would make. Pure but for `load`."""

# ruff: noqa: S608  # the names in statements are those of tests and of this module

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from compose.local.scylla.cells.codec import sort_key, split_cells
from compose.local.scylla.wire import Cell, WireConnection
from connectors.cql.types import CqlType, parse_type, quote_name, to_text, udt_resolver
from worker.fetch.errors import StackError

LOG_SUFFIX = "_scylla_cdc_log"
LISTS_PREFIX = "millrace_lists_"
META = (
    ("cdc$stream_id", "blob"), ("cdc$time", "timeuuid"), ("cdc$batch_seq_no", "int"), ("cdc$operation", "tinyint"),
    ("cdc$ttl", "bigint"), ("cdc$end_of_batch", "boolean"),
)  # fmt: skip
_DEFAULTS = {"enabled": "false", "preimage": "false", "postimage": "false", "ttl": "86400", "delta": "full"}
_CDC = re.compile(r"\bcdc\s*=\s*(\{[^}]*\})", re.IGNORECASE)
_PAIR = re.compile(r"'([^']*)'\s*:\s*(?:'([^']*)'|([\w.+-]+))")


@dataclass(frozen=True, slots=True)
class EmulatedColumn:
    """A column: its name, type, kind (`partition_key`, `clustering`, `static`, `regular`), place in its key, and order."""

    name: str
    type: CqlType
    kind: str
    position: int = -1
    descending: bool = False


@dataclass(frozen=True)
class EmulatedTable:
    """A base table with its CDC options.

    Attributes:
        keyspace: Its keyspace.
        name: Its name.
        columns: Key columns in order, then static and regular ones by name.
        options: CDC options by name, as text; empty when CDC was never on.
        tablets: Whether its keyspace uses tablets.
    """

    keyspace: str
    name: str
    columns: tuple[EmulatedColumn, ...]
    options: Mapping[str, str]
    tablets: bool = False

    @cached_property
    def partition_key(self) -> tuple[EmulatedColumn, ...]:
        """Columns of the partition key in order."""
        return tuple(column for column in self.columns if column.kind == "partition_key")

    @cached_property
    def clustering(self) -> tuple[EmulatedColumn, ...]:
        """Columns of the clustering key in order."""
        return tuple(column for column in self.columns if column.kind == "clustering")

    @cached_property
    def by_name(self) -> Mapping[str, EmulatedColumn]:
        """Columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def lists(self) -> tuple[EmulatedColumn, ...]:
        """Columns that are lists of cells of their own, whose time uuids the base table does not show."""
        return tuple(column for column in self.columns if column.type.is_multicell and column.type.name == "list")

    @property
    def enabled(self) -> bool:
        """Whether changes are logged."""
        return self.options.get("enabled", "false") == "true"

    @property
    def preimage(self) -> str:
        """`false`, `true` or `full`."""
        return self.options.get("preimage", "false")

    @property
    def postimage(self) -> bool:
        """Whether rows are logged as they are after a change."""
        return self.options.get("postimage", "false") == "true"

    @property
    def ttl(self) -> int:
        """Seconds that log rows live; 0 means forever."""
        return int(self.options.get("ttl", "86400"))

    @property
    def full(self) -> str:
        """The table's name as CQL text."""
        return f"{quote_name(self.keyspace)}.{quote_name(self.name)}"

    @property
    def log(self) -> str:
        """The log table's name as CQL text."""
        return f"{quote_name(self.keyspace)}.{quote_name(self.name + LOG_SUFFIX)}"

    @property
    def shadow(self) -> str:
        """Name, as CQL text, of the emulation's own table that knows the time uuids of lists' cells."""
        return f"{quote_name(self.keyspace)}.{quote_name(LISTS_PREFIX + self.name)}"

    @cached_property
    def log_columns(self) -> dict[str, str]:
        """The log's columns after the first six, with their types."""
        types_by_name: dict[str, str] = {}
        for column in self.columns:
            types_by_name[column.name] = logged_type(column.type)
            if column.kind in {"static", "regular"}:
                types_by_name[f"cdc$deleted_{column.name}"] = "boolean"
                if column.type.is_multicell:
                    types_by_name[f"cdc$deleted_elements_{column.name}"] = (
                        f"frozen<set<{_deleted_element(column.type)}>>"
                    )
        return types_by_name

    @cached_property
    def insert_log(self) -> str:
        """The statement that adds one log row: the first six columns, then `log_columns`, then timestamp and TTL."""
        names = [name for name, _ in META] + list(self.log_columns)
        markers = ", ".join("?" * len(names))
        return f"INSERT INTO {self.log} ({', '.join(map(_quote_name, names))}) VALUES ({markers}) USING TIMESTAMP ? AND TTL ?"

    def order(self, keys: Iterable[tuple[bytes, ...]]) -> list[tuple[bytes, ...]]:
        """Clustering keys in the order of the table."""
        ordered = list(keys)
        for index in reversed(range(len(self.clustering))):
            column = self.clustering[index]
            key = sort_key(column.type)
            ordered.sort(key=lambda values, at=index, of=key: of(values[at]), reverse=column.descending)  # type: ignore[misc]
        return ordered


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def logged_type(kind: CqlType) -> str:
    """The type that a column has in the log, as CQL text."""
    if not kind.is_multicell:
        return to_text(kind)
    if kind.name == "list":
        return f"frozen<map<timeuuid, {to_text(kind.arguments[0])}>>"
    return f"frozen<{to_text(kind)}>"


def _deleted_element(kind: CqlType) -> str:
    return {"list": "timeuuid", "udt": "smallint"}.get(kind.name) or to_text(kind.arguments[0])


def create_log(table: EmulatedTable) -> str:
    """The CQL that makes the log table."""
    columns = [*META, *table.log_columns.items()]
    definitions = ", ".join(f"{_quote_name(name)} {kind}" for name, kind in columns)
    return (
        f'CREATE TABLE {table.log} ({definitions}, PRIMARY KEY (("cdc$stream_id"), "cdc$time", "cdc$batch_seq_no"))'
        # As Scylla has it: rows leave by their TTL, so that a window of it is dropped as whole files.
        " WITH gc_grace_seconds = 0 AND compaction = {'class': 'TimeWindowCompactionStrategy',"
        " 'compaction_window_unit': 'MINUTES', 'compaction_window_size': '60'}"
    )


def create_shadow(table: EmulatedTable) -> str:
    """The CQL that makes the table of lists' cells: the base table's key, and each list as a map by time uuid."""
    shadowed = (*table.partition_key, *table.clustering, *table.lists)
    definitions = ", ".join(f"{_quote_name(column.name)} {_shadow_type(column)}" for column in shadowed)
    partition = ", ".join(_quote_name(column.name) for column in table.partition_key)
    clustering = "".join(f", {_quote_name(column.name)}" for column in table.clustering)
    order = ", ".join(
        f"{_quote_name(column.name)} {'DESC' if column.descending else 'ASC'}" for column in table.clustering
    )
    tail = f" WITH CLUSTERING ORDER BY ({order})" if order else ""
    return f"CREATE TABLE {table.shadow} ({definitions}, PRIMARY KEY (({partition}){clustering})){tail}"


def _shadow_type(column: EmulatedColumn) -> str:
    if column.kind not in {"static", "regular"}:
        return to_text(column.type)
    static = " static" if column.kind == "static" else ""
    return f"map<timeuuid, {to_text(column.type.arguments[0])}>{static}"


def shadow_columns(table: EmulatedTable) -> dict[str, str]:
    """Columns of lists' cells with their types."""
    return {column.name: _shadow_type(column) for column in table.lists}


def split_cdc(cql: str) -> tuple[str, dict[str, str] | None]:
    """A CREATE or ALTER TABLE without its `cdc = {...}`, and the options that stood there; None where there were none.

    >>> split_cdc("CREATE TABLE k.t (a int PRIMARY KEY) WITH cdc = {'enabled': true} AND comment = 'x'")
    ("CREATE TABLE k.t (a int PRIMARY KEY) WITH comment = 'x'", {'enabled': 'true'})
    """
    match = _CDC.search(cql)
    if match is None:
        return cql, None
    options = {key: (quoted or bare).lower() for key, quoted, bare in _PAIR.findall(match[1])}
    before, after = cql[: match.start()].rstrip(), cql[match.end() :].lstrip(" \n\t;")
    if after[:3].upper() == "AND":
        return f"{before} {after[3:].lstrip()}", options
    word = before.rpartition(" ")[0].rstrip() if before.upper().endswith((" WITH", " AND")) else before
    return f"{word} {after}".rstrip(), options


def cdc_options(changed: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """All CDC options after a CREATE or ALTER that gave some.

    Raises:
        StackError: An option is not known.
    """
    unknown = set(changed) - set(_DEFAULTS)
    if unknown:
        raise StackError(f"there is no CDC option {', '.join(sorted(unknown))}; there are: {', '.join(_DEFAULTS)}")
    return {**_DEFAULTS, **before, **changed}


def pack_extension(options: Mapping[str, str]) -> bytes:
    """CDC options as `system_schema.tables.extensions['cdc']` has them."""
    parts = [struct.pack("<I", len(options))]
    for item in (item for pair in sorted(options.items()) for item in pair):
        raw = item.encode()
        parts += (struct.pack("<I", len(raw)), raw)
    return b"".join(parts)


def unpack_extension(data: bytes) -> dict[str, str]:
    """The opposite of `pack_extension`."""
    (count,) = struct.unpack_from("<I", data)
    items: list[str] = []
    at = 4
    for _ in range(2 * count):
        (size,) = struct.unpack_from("<I", data, at)
        items.append(data[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return dict(zip(items[::2], items[1::2], strict=True))


def table_columns(rows: Sequence[Mapping[str, Cell]], resolve: Any, keyspace: str) -> tuple[EmulatedColumn, ...]:
    """Columns from rows of `system_schema.columns`."""
    columns = [
        EmulatedColumn(
            name=(row["column_name"] or b"").decode(),
            type=parse_type((row["type"] or b"").decode(), resolve, keyspace=keyspace),
            kind=(row["kind"] or b"").decode(),
            position=int.from_bytes(row["position"] or b"", "big", signed=True),
            descending=row["clustering_order"] == b"desc",
        )
        for row in rows
    ]
    kinds = ("partition_key", "clustering", "static", "regular")
    return tuple(sorted(columns, key=lambda column: (kinds.index(column.kind), column.position, column.name)))


def load_table(connection: WireConnection, keyspace: str, name: str, *, tablets: bool = False) -> EmulatedTable:
    """Read a table's definition from the server. Blocks.

    Raises:
        StackError: There is no such table.
    """
    where = f"keyspace_name = '{keyspace}' AND table_name = '{name}'"
    rows = connection.query(f"SELECT * FROM system_schema.columns WHERE {where}")
    if not rows:
        raise StackError(f"there is no table {keyspace}.{name}; create it with create_table")
    types = connection.query(f"SELECT * FROM system_schema.types WHERE keyspace_name = '{keyspace}'")
    definitions = {
        (row["type_name"] or b"").decode(): (
            [cell.decode() for cell in split_cells(row["field_names"] or b"")],
            [cell.decode() for cell in split_cells(row["field_types"] or b"")],
        )
        for row in types
    }
    (extension_row,) = connection.query(f"SELECT extensions FROM system_schema.tables WHERE {where}")
    extensions = split_cells(extension_row["extensions"] or b"", 2)
    packed = dict(zip(extensions[::2], extensions[1::2], strict=True)).get(b"cdc")
    return EmulatedTable(
        keyspace,
        name,
        table_columns(rows, udt_resolver(keyspace, definitions), keyspace),
        unpack_extension(packed) if packed else {},
        tablets,
    )
