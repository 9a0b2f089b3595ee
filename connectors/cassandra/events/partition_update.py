"""``partition-update``: mutations of the log, decoded, see connectors/formats/PARTITION_UPDATE.md.

Usual mutations (rows whose cells were written at one time) become values by code that is made for their columns; all else goes
through ``connectors.formats.partition_update_codec``, which says the same.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from connectors.api import SourceRecord
from connectors.cassandra.events.contract import CONNECTOR, POSITION, Where, record_time, topic_name
from connectors.cassandra.events.divide import divide_update
from connectors.cassandra.model import FINISHED, INDEX, OFFSET, SEGMENT
from connectors.codegen import CodeBuilder, dict_display, unpack_names
from connectors.cql.encoding import encode_partition_key
from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.cql.mutations.head import VERSION_WITH_EPOCHS, update_head
from connectors.errors import Skippable
from connectors.formats.cql_schema import make_renamer
from connectors.formats.names import field_name
from connectors.formats.partition_update import UpdateLayout, UpdateSource
from connectors.formats.partition_update_codec import make_encoder
from connectors.schema import BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import Position
    from connectors.cassandra.events.contract import CassandraEventSettings
    from connectors.cassandra.model import LogEntry
    from connectors.cql.mutations.compiled import PlainUpdate
    from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition
    from connectors.formats.partition_update import PartitionUpdate

    #: (clustering values, cells' values, liveness, stamp or None) -> a member of ``rows``, or the static row.
    MakeRow = Callable[[tuple[Any, ...], list[Any], Any, Any], dict[str, Any]]

_INSERTED: Final = {"stamp": None}
#: The expression that says whether no column was given a value; behind ``deleted_line``.
NO_VALUE: Final = "deleted and len(deleted) == len(NAMES)"
#: The most functions for rows that are kept, by the columns that they write; when there are more, all are dropped.
_SHAPES: Final = 1000


class PartitionUpdateEvents:
    """See ``CassandraTableEvents``.

    Attributes:
        layout: the schema of the records' values and the columns that it is made of.
        decoder: reads mutations.
        begin: what mutations of one update of the table begin with, if their versions have no flags before it.
        id: ``source.schema`` of the records' values.
    """

    def __init__(self, table: CqlTableDefinition, version: int, settings: CassandraEventSettings) -> None:
        """Compile it.

        Raises:
            Fatal: the table has counters.
        """
        self.table = table
        self.topic = topic_name(settings.topic_prefix, table.keyspace, table.table)
        self.skipped: Counter[str] = Counter()
        self.full_decodes = 0
        self.layout = UpdateLayout(
            source=UpdateSource(
                connector=CONNECTOR,
                cluster=settings.topic_prefix,
                keyspace=table.keyspace,
                table=table.table,
                table_id=table.table_id,
                schema_version=table.version,
            ),
            columns=table.columns,
            position=POSITION,
        )
        self._settings = settings
        self._version = version
        self.decoder = CompiledDecoder(table, version)
        self.begin = b"" if version >= VERSION_WITH_EPOCHS else b"\x01" + UUID(table.table_id).bytes
        self._encode = make_encoder(self.layout)
        self.id = self.layout.source.schema
        self._key = _struct_maker(table.key)
        self._maker = _RowMaker(table)
        self._rows: dict[tuple[str, ...], MakeRow] = {}
        self._static_rows: dict[tuple[str, ...], MakeRow] = {}
        self._rest = {
            "deletion": None,
            **({"static": None} if table.static else {}),
            **({"ranges": None} if table.clustering else {}),
        }

    def update(self, data: bytes, pos: int, end: int | None, where: Where, out: list[SourceRecord]) -> int:
        """See ``CassandraTableEvents.update``."""
        plain = self.decoder.plain(data, pos)
        if plain is None:
            return self._append_full(data, pos, end, where, out)
        key, key_bytes, rows, next_pos = plain
        if len(rows) != 1:
            if len(rows) > self._settings.max_rows or next_pos - pos > self._settings.max_bytes:
                # Always divided in one way: after a restart within it, what was delivered of it is passed over.
                return self._append_full(data, pos, end, where, out)
            if rows:
                self._append_rows(plain, where, out)
            return next_pos
        is_static, clustering, inserted, write_time, ttl, expires, names, values = rows[0]
        make = (self._static_rows if is_static else self._rows).get(names) or self._row_maker(
            names, is_static=is_static
        )
        row = make(clustering, values, _INSERTED if inserted else None, None)
        done, read_ms = where.done, where.read_ms
        where.done = done + 1
        value: dict[str, Any] = {
            "source": {
                "schema": self.id,
                "snapshot": False,
                "read_time": read_ms,
                "position": {"node": where.node, "segment": where.segment, "position": where.position, "index": done},
            },
            "key": self._key(key),
            "write_time": write_time,
            "ttl": ttl,
            "expires": expires,
            **self._rest,
            "rows": None,
        }
        if is_static:
            value["static"] = row
        else:
            value["rows"] = [row]
        milliseconds = write_time // 1000
        out.append(
            SourceRecord(
                where.partition,
                {SEGMENT: where.segment, OFFSET: where.position, INDEX: 0, FINISHED: False}
                if where.last
                else {SEGMENT: where.segment, OFFSET: where.before, INDEX: done + 1, FINISHED: False},
                self.topic,
                value,
                self.layout.schema,
                key_bytes,
                BYTES,
                None,
                (),
                milliseconds if 0 <= milliseconds <= read_ms else record_time(milliseconds, read_ms),
            )
        )
        return next_pos

    def entries(self, data: bytes, entries: Sequence[LogEntry], where: Where, out: list[SourceRecord]) -> int:
        """See ``CassandraTableEvents.entries``."""
        begin = self.begin
        if not begin:
            return 0
        partition, node, segment, read_ms, topic = where.partition, where.node, where.segment, where.read_ms, self.topic
        schema, identity, plain_of, key_of = self.layout.schema, self.id, self.decoder.plain, self._key
        rows_of, constants, new, add = self._rows, self._rest, SourceRecord, out.append
        before = len(out)
        try:
            for start, end, position in entries:
                plain = plain_of(data, start + 1) if data.startswith(begin, start) else None
                if plain is None:
                    break
                key, key_bytes, rows, next_pos = plain
                if next_pos != end or len(rows) != 1 or rows[0][0]:
                    break
                _, clustering, inserted, write_time, ttl, expires, names, values = rows[0]
                make = rows_of.get(names) or self._row_maker(names, is_static=False)
                milliseconds = write_time // 1000
                add(
                    new(
                        partition,
                        {"segment": segment, "position": position, "index": 0, "finished": False},
                        topic,
                        {
                            "source": {
                                "schema": identity,
                                "snapshot": False,
                                "read_time": read_ms,
                                "position": {"node": node, "segment": segment, "position": position, "index": 0},
                            },
                            "key": key_of(key),
                            "write_time": write_time,
                            "ttl": ttl,
                            "expires": expires,
                            **constants,
                            "rows": [make(clustering, values, _INSERTED if inserted else None, None)],
                        },
                        schema,
                        key_bytes,
                        BYTES,
                        None,
                        (),
                        milliseconds if 0 <= milliseconds <= read_ms else record_time(milliseconds, read_ms),
                    )
                )
        except (IndexError, ValueError, OverflowError, Skippable):
            pass  # `update` says what is wrong with it
        return len(out) - before

    def add_snapshot_rows(
        self, update: PartitionUpdate, partition: Position, offset: Position, out: list[SourceRecord]
    ) -> None:
        """See ``CassandraTableEvents.add_snapshot_rows``; a large partition is divided."""
        key = encode_partition_key([column.type for column in self.table.key], update.key)
        out += [
            SourceRecord(
                partition,
                offset,
                self.topic,
                self._encode(part),
                self.layout.schema,
                key,
                BYTES,
                None,
                (),
                update.source.read_time,
            )
            for part in divide_update(update, self._settings.max_rows, self._settings.max_bytes)
        ]

    def _row_maker(self, names: tuple[str, ...], *, is_static: bool) -> MakeRow:
        cache = self._static_rows if is_static else self._rows
        if len(cache) >= _SHAPES:
            cache.clear()
        cache[names] = maker = self._maker.function(names, is_static=is_static)
        return maker

    def _append_rows(self, plain: PlainUpdate, where: Where, out: list[SourceRecord]) -> None:
        """Several simple rows; the message has the stamp of the first one."""
        key, key_bytes, rows, _ = plain
        _, _, _, write_time, ttl, expires, _, _ = rows[0]
        shared = (write_time, ttl, expires)
        value: dict[str, Any] = {
            "source": None,
            "key": self._key(key),
            "write_time": write_time,
            "ttl": ttl,
            "expires": expires,
            **self._rest,
            "rows": None,
        }
        entries = []
        for is_static, clustering, inserted, *stamp, names, cells in rows:
            make = (self._static_rows if is_static else self._rows).get(names) or self._row_maker(
                names, is_static=is_static
            )
            own_stamp = (
                None if tuple(stamp) == shared else dict(zip(("write_time", "ttl", "expires"), stamp, strict=True))
            )
            row = make(clustering, cells, _INSERTED if inserted else None, own_stamp)
            if is_static:
                value["static"] = row
            else:
                entries.append(row)
        value["rows"] = entries or None
        self._append_values([(value, write_time)], key_bytes, where, out)

    def _append_full(self, data: bytes, pos: int, end: int | None, where: Where, out: list[SourceRecord]) -> int:
        """Append the records of an update that the fast path does not decode."""
        update, next_pos = self.decoder.full(data, pos, self.layout.source)
        self.full_decodes += 1
        if not (update.rows or update.ranges or update.static or update.deletion):
            return next_pos if end is None else end
        _, start, stop, _ = update_head(data, pos, self._version)
        parts = (
            [update]
            if next_pos - pos <= self._settings.max_bytes
            and len(update.rows) + len(update.ranges) <= self._settings.max_rows
            else divide_update(update, self._settings.max_rows, self._settings.max_bytes)
        )
        self._append_values([(self._encode(part), part.write_time) for part in parts], data[start:stop], where, out)
        return next_pos

    def _append_values(
        self, values: Sequence[tuple[dict[str, Any], int]], key: bytes, where: Where, out: list[SourceRecord]
    ) -> None:
        done, final = where.done, where.done + len(values) - 1
        for index, (value, write_time) in enumerate(values, done):
            value["source"] = {
                "schema": self.id,
                "snapshot": False,
                "read_time": where.read_ms,
                "position": {"node": where.node, "segment": where.segment, "position": where.position, "index": index},
            }
            out.append(
                SourceRecord(
                    where.partition,
                    where.ended() if where.last and index == final else where.offset(index + 1),
                    self.topic,
                    value,
                    self.layout.schema,
                    key,
                    BYTES,
                    None,
                    (),
                    record_time(write_time // 1000, where.read_ms),
                )
            )
        where.done = final + 1


def deleted_line(names: Sequence[str]) -> str:
    """The statement that makes ``deleted`` of a row's ``values``, of the columns ``names``, which are also in ``NAMES``."""
    if not names:
        return "deleted = None"
    return "deleted = [name for name, value in zip(NAMES, values) if value is None] if None in values else None"


class _RowMaker:
    """Makes the functions for rows of one table."""

    def __init__(self, table: CqlTableDefinition) -> None:
        self._clustering = table.clustering
        self._columns = {column.name: column for column in (*table.static, *table.regular)}
        self._complex = {
            "static": any(column.type.is_multicell for column in table.static),
            "regular": any(column.type.is_multicell for column in table.regular),
        }
        self._simple = {
            "static": any(not column.type.is_multicell for column in table.static),
            "regular": any(not column.type.is_multicell for column in table.regular),
        }

    def function(self, names: tuple[str, ...], *, is_static: bool) -> MakeRow:
        """The function for rows that write the columns ``names``, all of one cell; see ``MakeRow``."""
        kind = "static" if is_static else "regular"
        code = CodeBuilder(NAMES=names)
        lines = [f"{unpack_names('v', len(names))} = values"] if names else []
        members: list[tuple[str, str]] = []
        if not is_static:
            if self._clustering:
                lines.append(f"{unpack_names('c', len(self._clustering))} = clustering")
                members.append(("clustering", _struct_display(self._clustering, "c", code)))
            members += [("liveness", "live"), ("deletion", "None")]
        members.append(("stamp", "own"))
        lines.append(deleted_line(names))
        if self._simple[kind] or self._complex[kind]:
            cells = _struct_display([self._columns[name] for name in names], "v", code)
            members.append(("cells", f"(None if {NO_VALUE} else {cells})" if names else "None"))
        if self._simple[kind]:
            members += [("deleted", "deleted"), ("stamps", "None")]
        if self._complex[kind]:
            members.append(("complex_deletions", "None"))
        code.define("row(clustering, values, live, own)", [*lines, f"return {dict_display(members)}"])
        return code.function("row", "rows of partition updates")


def _struct_maker(columns: Sequence[CqlColumn]) -> Callable[[tuple[Any, ...]], dict[str, Any]]:
    """The function that makes the values of ``columns`` a struct."""
    code = CodeBuilder()
    code.define(
        "struct(values)",
        [f"{unpack_names('k', len(columns))} = values", f"return {_struct_display(columns, 'k', code)}"],
    )
    return code.function("struct", "keys of partition updates")


def _struct_display(columns: Sequence[CqlColumn], stem: str, code: CodeBuilder) -> str:
    """The source of a dict of the locals ``stem`` 0, 1 ... by field names; binds the functions that it calls."""
    members = []
    for index, column in enumerate(columns):
        expression, change = f"{stem}{index}", make_renamer(column.type)
        if change is not None:
            expression = f"{code.bind('change', change)}({expression})"
        members.append((field_name(column.name), expression))
    return dict_display(members)
