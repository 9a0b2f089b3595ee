"""``partition-update-raw``: the log's own bytes of each partition update, see connectors/formats/PARTITION_UPDATE.md.

Hardly anything is decoded: the key, which is the record's key, the smallest write time, and the names of columns, for a reader
has to find them all in the definition that the schema carries. Two cases cost more. In a mutation of several tables an update
has to be passed over cell by cell, for only that tells where it ends; and values of user-defined types are decoded, for only
that tells whether they have fields that the definition lacks.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING, Final
from uuid import UUID

from connectors.api import SourceRecord
from connectors.cassandra.events.contract import CONNECTOR, POSITION, Where, record_time, topic_name
from connectors.cassandra.events.divide import divide_update
from connectors.cassandra.model import FINISHED, INDEX, OFFSET, SEGMENT
from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.cql.mutations.encode import write_update
from connectors.cql.mutations.head import HAS_STATIC_ROW, IS_EMPTY, TIMESTAMP_EPOCH, least_write_time, update_head
from connectors.cql.mutations.reference import UnknownColumn, UpdateReader
from connectors.cql.values import BadValue, read_unsigned_vint
from connectors.errors import Skippable
from connectors.formats import partition_update_raw
from connectors.formats.partition_update import UpdateSource
from connectors.schema import BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import Position
    from connectors.cassandra.events.contract import CassandraEventSettings
    from connectors.cassandra.model import LogEntry
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.cql.types import CqlType
    from connectors.formats.partition_update import PartitionUpdate

#: The least timestamp nearly always has seven bytes, the first with six leading ones: 2015 plus 2 to 17 years.
SIX_MORE: Final = 0x7E
SIX_MORE_BITS: Final = (1 << 49) - 1
unpack_word = struct.Struct(">Q").unpack_from
ONE_BYTE: Final = 0x80
_WITH_EPOCHS: Final = 9
#: Of a mutation of one update, where the key begins as a rule: behind the count, the table id and a length of one byte.
KEY_AT: Final = 18
#: By first byte: how many bytes an unsigned variable-length number has.
SIZE: Final = bytes(9 - (~first & 0xFF).bit_length() for first in range(256))
#: Lists of columns that are remembered as good; the newest first.
_REMEMBERED: Final = 16


class RawEvents:
    """See ``CassandraTableEvents``.

    Attributes:
        schema: of the records' values.
        begin: what mutations of one update of the table begin with, if their versions have no flags before it.
        id: ``source.schema`` of the records' values.
        checks_values: whether values have to be decoded.
        good: lists of columns as they are written that the definition has, by whether a list of static ones comes first.
    """

    def __init__(self, table: CqlTableDefinition, version: int, settings: CassandraEventSettings) -> None:
        """Make it.

        Raises:
            Fatal: the table has counters.
        """
        self.table = table
        self.topic = topic_name(settings.topic_prefix, table.keyspace, table.table)
        self.skipped: Counter[str] = Counter()
        self.full_decodes = 0
        constants = UpdateSource(
            connector=CONNECTOR,
            cluster=settings.topic_prefix,
            keyspace=table.keyspace,
            table=table.table,
            table_id=table.table_id,
            schema_version=table.version,
        )
        self.schema = partition_update_raw.raw_schema(constants, table, version, POSITION)
        self.id = constants.schema
        self._constants = constants
        self._settings = settings
        self._version = version
        self.begin = b"" if version >= _WITH_EPOCHS else b"\x01" + UUID(table.table_id).bytes
        self._passing = UpdateReader(table, version, values=False)
        self._checking = (
            CompiledDecoder(table, version) if any(_has_fields(column.type) for column in table.columns) else None
        )
        self.checks_values = self._checking is not None
        self._columns = frozenset(
            [column.name.encode() for column in (*table.static, *table.regular)]
            + [column.name.encode() for column in table.dropped]
        )
        self.good: tuple[list[bytes], list[bytes]] = ([], [])

    def update(self, data: bytes, pos: int, end: int | None, where: Where, out: list[SourceRecord]) -> int:
        """See ``CassandraTableEvents.update``. With ``end`` the cells are taken on trust: their checksum was right."""
        try:
            start = pos + 16
            if self._version < _WITH_EPOCHS and data[start] < ONE_BYTE:
                key_end = start + 1 + data[start]
                start += 1
            else:
                _, start, key_end, _ = update_head(data, pos, self._version)
            flags = data[key_end]
            if flags & IS_EMPTY:
                return key_end + 1
            at = key_end + 1
            try:
                (word,) = unpack_word(data, at)
            except struct.error:
                word = 0  # fewer than eight bytes, which is all right
            if word >> 57 == SIX_MORE:
                write_time = (word >> 8 & SIX_MORE_BITS) + TIMESTAMP_EPOCH
                at += 7
            else:
                write_time = least_write_time(data, pos, self._version)
                at += SIZE[data[at]]
            at += SIZE[data[at]]
            at += SIZE[data[at]]
            good = self.good[1 if flags & HAS_STATIC_ROW else 0]
            if not (good and data.startswith(good[0], at)):
                self.check_columns(data, pos, at, good, where, lists=2 if flags & HAS_STATIC_ROW else 1)
            if self._checking is not None and self._checking.plain(data, pos) is None:
                self._checking.full(data, pos, self._constants)
                self.full_decodes += 1
            if end is None:
                end = self._passing.read(data, pos, self._constants)[1]
        except (IndexError, BadValue) as error:
            raise Skippable(
                f"{self.table}: the partition update at byte {pos} of the entry that ends at {where.position} of "
                f"segment {where.segment} of node {where.node} is cut off: {error}. Its checksum is right, so "
                "it is what the server wrote: report it with the segment."
            ) from None
        done = where.done
        where.done = done + 1
        milliseconds, read_ms = write_time // 1000, where.read_ms
        out.append(
            SourceRecord(
                where.partition,
                {SEGMENT: where.segment, OFFSET: where.position, INDEX: 0, FINISHED: False}
                if where.last
                else {SEGMENT: where.segment, OFFSET: where.before, INDEX: done + 1, FINISHED: False},
                self.topic,
                {
                    "source": {
                        "schema": self.id,
                        "snapshot": False,
                        "read_time": read_ms,
                        "position": {
                            "node": where.node,
                            "segment": where.segment,
                            "position": where.position,
                            "index": done,
                        },
                    },
                    "write_time": write_time,
                    "update": data[pos:end],
                },
                self.schema,
                data[start:key_end],
                BYTES,
                None,
                (),
                milliseconds if 0 <= milliseconds <= read_ms else record_time(milliseconds, read_ms),
            )
        )
        return end

    def entries(self, data: bytes, entries: Sequence[LogEntry], where: Where, out: list[SourceRecord]) -> int:
        """See ``CassandraTableEvents.entries``."""
        begin = self.begin
        if self.checks_values or not begin:
            return 0
        partition, node, segment, read_ms, topic = where.partition, where.node, where.segment, where.read_ms, self.topic
        schema, identity, size, unpack, add, new = self.schema, self.id, SIZE, unpack_word, out.append, SourceRecord
        before = len(out)
        try:
            for start, end, position in entries:
                key_start = start + KEY_AT
                key_end = key_start + data[key_start - 1]
                flags = data[key_end]
                # A key of more than 127 bytes has a longer length.
                if not data.startswith(begin, start) or data[key_start - 1] >= ONE_BYTE or flags & IS_EMPTY:
                    break
                at = key_end + 8
                (word,) = unpack(data, key_end + 1)
                if word >> 57 != SIX_MORE:
                    break
                at += size[data[at]]
                at += size[data[at]]
                good = self.good[1 if flags & HAS_STATIC_ROW else 0]
                if not (good and data.startswith(good[0], at)):
                    self.check_columns(data, start + 1, at, good, where, lists=2 if flags & HAS_STATIC_ROW else 1)
                write_time = (word >> 8 & SIX_MORE_BITS) + TIMESTAMP_EPOCH
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
                            "write_time": write_time,
                            "update": data[start + 1 : end],
                        },
                        schema,
                        data[key_start:key_end],
                        BYTES,
                        None,
                        (),
                        milliseconds if 0 <= milliseconds <= read_ms else record_time(milliseconds, read_ms),
                    )
                )
        except (IndexError, ValueError, struct.error, Skippable):
            pass  # `update` says what is wrong with it
        return len(out) - before

    def add_snapshot_rows(
        self, update: PartitionUpdate, partition: Position, offset: Position, out: list[SourceRecord]
    ) -> None:
        """See ``CassandraTableEvents.add_snapshot_rows``; a large partition is divided."""
        read = update.source
        source = {"schema": self.id, "snapshot": read.snapshot, "read_time": read.read_time, "position": read.position}
        records = []
        for part in divide_update(update, self._settings.max_rows, self._settings.max_bytes):
            data = write_update(part, self.table, self._version)
            _, start, end, _ = update_head(data, 0, self._version)
            records.append(
                SourceRecord(
                    partition,
                    offset,
                    self.topic,
                    {"source": source, "write_time": least_write_time(data, 0, self._version), "update": data},
                    self.schema,
                    data[start:end],
                    BYTES,
                    None,
                    (),
                    read.read_time,
                )
            )
        out += records

    def check_columns(self, data: bytes, pos: int, at: int, good: list[bytes], where: Where, *, lists: int) -> None:
        """Whether the definition has all columns of the lists that begin at ``at``; those that it has are remembered."""
        for index, checked_columns in enumerate(good):
            if data.startswith(checked_columns, at):
                good.insert(0, good.pop(index))
                return
        end = at
        for _ in range(lists):
            count, end = read_unsigned_vint(data, end)
            for _ in range(count):
                size, start = read_unsigned_vint(data, end)
                end = start + size
                name = data[start:end]
                if name not in self._columns:
                    text = name.decode(errors="replace")
                    raise UnknownColumn(
                        f"The partition update of {self.table} at byte {pos} of the entry that ends at "
                        f"{where.position} of segment {where.segment} of node {where.node} has a column {text} "
                        f"that its definition {self.table.version} lacks. Read the definition again.",
                        text,
                    )
        good.insert(0, data[at:end])
        del good[_REMEMBERED:]


def _has_fields(kind: CqlType) -> bool:
    return kind.name == "udt" or any(map(_has_fields, kind.arguments))
