"""Tables as the emulation sees them, and the CQL of the log table that Scylla would make. Pure but for `load`."""

# ruff: noqa: S608  # the names in statements are those of tests and of this module

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from compose.local.errors import StackError
from compose.local.scylla.codec import sort_key, split
from compose.local.scylla.wire import Cell, Connection
from connectors.cql.types import CqlType, parse, quote, to_text, udt_resolver

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
class Column:
    """A column: its name, type, kind (`partition_key`, `clustering`, `static`, `regular`), place in its key, and order."""

    name: str
    type: CqlType
    kind: str
    position: int = -1
    descending: bool = False


@dataclass(frozen=True)
class Table:
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
    columns: tuple[Column, ...]
    options: Mapping[str, str]
    tablets: bool = False

    @cached_property
    def partition_key(self) -> tuple[Column, ...]:
        """Columns of the partition key in order."""
        return tuple(each for each in self.columns if each.kind == "partition_key")

    @cached_property
    def clustering(self) -> tuple[Column, ...]:
        """Columns of the clustering key in order."""
        return tuple(each for each in self.columns if each.kind == "clustering")

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """Columns by name."""
        return {each.name: each for each in self.columns}

    @cached_property
    def lists(self) -> tuple[Column, ...]:
        """Columns that are lists of cells of their own, whose time uuids the base table does not show."""
        return tuple(each for each in self.columns if each.type.is_multicell and each.type.name == "list")

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
        """Seconds that log rows live; 0 for ever."""
        return int(self.options.get("ttl", "86400"))

    @property
    def full(self) -> str:
        """The table's name as CQL text."""
        return f"{quote(self.keyspace)}.{quote(self.name)}"

    @property
    def log(self) -> str:
        """The log table's name as CQL text."""
        return f"{quote(self.keyspace)}.{quote(self.name + LOG_SUFFIX)}"

    @property
    def shadow(self) -> str:
        """Name, as CQL text, of the emulation's own table that knows the time uuids of lists' cells."""
        return f"{quote(self.keyspace)}.{quote(LISTS_PREFIX + self.name)}"

    @cached_property
    def log_columns(self) -> dict[str, str]:
        """The log's columns after the first six, with their types."""
        found: dict[str, str] = {}
        for column in self.columns:
            found[column.name] = logged_type(column.type)
            if column.kind in {"static", "regular"}:
                found[f"cdc$deleted_{column.name}"] = "boolean"
                if column.type.is_multicell:
                    found[f"cdc$deleted_elements_{column.name}"] = f"frozen<set<{_deleted_element(column.type)}>>"
        return found

    @cached_property
    def insert_log(self) -> str:
        """The statement that adds one log row: the first six columns, then `log_columns`, then timestamp and TTL."""
        names = [name for name, _ in META] + list(self.log_columns)
        markers = ", ".join("?" * len(names))
        return (
            f"INSERT INTO {self.log} ({', '.join(map(_quoted, names))}) VALUES ({markers}) USING TIMESTAMP ? AND TTL ?"
        )

    def order(self, keys: Iterable[tuple[bytes, ...]]) -> list[tuple[bytes, ...]]:
        """Clustering keys in the order of the table."""
        ordered = list(keys)
        for place in reversed(range(len(self.clustering))):
            column = self.clustering[place]
            key = sort_key(column.type)
            ordered.sort(key=lambda each, at=place, of=key: of(each[at]), reverse=column.descending)  # type: ignore[misc]
        return ordered


def _quoted(name: str) -> str:
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


def create_log(table: Table) -> str:
    """The CQL that makes the log table."""
    columns = [*META, *table.log_columns.items()]
    definitions = ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns)
    return (
        f'CREATE TABLE {table.log} ({definitions}, PRIMARY KEY (("cdc$stream_id"), "cdc$time", "cdc$batch_seq_no"))'
        # As Scylla has it: rows leave by their TTL, so that a window of it is dropped as whole files.
        " WITH gc_grace_seconds = 0 AND compaction = {'class': 'TimeWindowCompactionStrategy',"
        " 'compaction_window_unit': 'MINUTES', 'compaction_window_size': '60'}"
    )


def create_shadow(table: Table) -> str:
    """The CQL that makes the table of lists' cells: the base table's key, and each list as a map by time uuid."""
    wanted = (*table.partition_key, *table.clustering, *table.lists)
    definitions = ", ".join(f"{_quoted(each.name)} {_shadow_type(each)}" for each in wanted)
    partition = ", ".join(_quoted(each.name) for each in table.partition_key)
    clustering = "".join(f", {_quoted(each.name)}" for each in table.clustering)
    order = ", ".join(f"{_quoted(each.name)} {'DESC' if each.descending else 'ASC'}" for each in table.clustering)
    tail = f" WITH CLUSTERING ORDER BY ({order})" if order else ""
    return f"CREATE TABLE {table.shadow} ({definitions}, PRIMARY KEY (({partition}){clustering})){tail}"


def _shadow_type(column: Column) -> str:
    if column.kind not in {"static", "regular"}:
        return to_text(column.type)
    static = " static" if column.kind == "static" else ""
    return f"map<timeuuid, {to_text(column.type.arguments[0])}>{static}"


def shadow_columns(table: Table) -> dict[str, str]:
    """Columns of lists' cells with their types."""
    return {each.name: _shadow_type(each) for each in table.lists}


def split_cdc(cql: str) -> tuple[str, dict[str, str] | None]:
    """A CREATE or ALTER TABLE without its `cdc = {...}`, and the options that stood there; None where there were none.

    >>> split_cdc("CREATE TABLE k.t (a int PRIMARY KEY) WITH cdc = {'enabled': true} AND comment = 'x'")
    ("CREATE TABLE k.t (a int PRIMARY KEY) WITH comment = 'x'", {'enabled': 'true'})
    """
    found = _CDC.search(cql)
    if found is None:
        return cql, None
    options = {key: (text or bare).lower() for key, text, bare in _PAIR.findall(found[1])}
    before, after = cql[: found.start()].rstrip(), cql[found.end() :].lstrip(" \n\t;")
    if after[:3].upper() == "AND":
        return f"{before} {after[3:].lstrip()}", options
    word = before.rpartition(" ")[0].rstrip() if before.upper().endswith((" WITH", " AND")) else before
    return f"{word} {after}".rstrip(), options


def cdc_options(given: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """All CDC options after a CREATE or ALTER that gave some.

    Raises:
        StackError: An option is not known.
    """
    unknown = set(given) - set(_DEFAULTS)
    if unknown:
        raise StackError(f"there is no CDC option {', '.join(sorted(unknown))}; there are: {', '.join(_DEFAULTS)}")
    return {**_DEFAULTS, **before, **given}


def pack_extension(options: Mapping[str, str]) -> bytes:
    """CDC options as `system_schema.tables.extensions['cdc']` has them."""
    parts = [struct.pack("<I", len(options))]
    for text in (text for pair in sorted(options.items()) for text in pair):
        raw = text.encode()
        parts += (struct.pack("<I", len(raw)), raw)
    return b"".join(parts)


def unpack_extension(data: bytes) -> dict[str, str]:
    """The opposite of `pack_extension`."""
    (count,) = struct.unpack_from("<I", data)
    texts: list[str] = []
    at = 4
    for _ in range(2 * count):
        (size,) = struct.unpack_from("<I", data, at)
        texts.append(data[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return dict(zip(texts[::2], texts[1::2], strict=True))


def table_columns(rows: Sequence[Mapping[str, Cell]], resolve: Any, keyspace: str) -> tuple[Column, ...]:
    """Columns from rows of `system_schema.columns`."""
    columns = [
        Column(
            name=(row["column_name"] or b"").decode(),
            type=parse((row["type"] or b"").decode(), resolve, keyspace=keyspace),
            kind=(row["kind"] or b"").decode(),
            position=int.from_bytes(row["position"] or b"", "big", signed=True),
            descending=row["clustering_order"] == b"desc",
        )
        for row in rows
    ]
    places = ("partition_key", "clustering", "static", "regular")
    return tuple(sorted(columns, key=lambda each: (places.index(each.kind), each.position, each.name)))


def load(connection: Connection, keyspace: str, name: str, *, tablets: bool = False) -> Table:
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
            [each.decode() for each in split(row["field_names"] or b"")],
            [each.decode() for each in split(row["field_types"] or b"")],
        )
        for row in types
    }
    (found,) = connection.query(f"SELECT extensions FROM system_schema.tables WHERE {where}")
    extensions = split(found["extensions"] or b"", 2)
    packed = dict(zip(extensions[::2], extensions[1::2], strict=True)).get(b"cdc")
    return Table(
        keyspace,
        name,
        table_columns(rows, udt_resolver(keyspace, definitions), keyspace),
        unpack_extension(packed) if packed else {},
        tablets,
    )
