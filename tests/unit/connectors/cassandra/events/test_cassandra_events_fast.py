from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from connectors.cassandra.events import build_events
from connectors.cassandra.events.contract import Where
from connectors.cassandra.model import LogChunk, LogEntry
from connectors.cassandra.stream import CassandraStream
from connectors.cql.mutations.definition import CqlColumn, make_definition
from connectors.cql.mutations.encode import write_mutation, write_update
from connectors.cql.types import CqlType
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    PartitionUpdate,
    UpdateDeletion,
    UpdateRow,
    UpdateSource,
)
from tests.support.settings import cassandra_events
from worker.converters.avro_form.schema import AvroSettings
from worker.converters.avro_form.write import value_bytes

if TYPE_CHECKING:
    from connectors.api import BadRecord, SourceRecord
    from connectors.cql.mutations.definition import CqlTableDefinition

LOG = logging.LoggerAdapter(logging.getLogger(__name__), {})
FORMS = ("partition-update-raw", "partition-update", "debezium")
T = 1_700_000_000_000_000
TABLE = make_definition(
    "ks",
    "t",
    "0a0a0a0a-0000-11ee-8000-00000000000a",
    [
        CqlColumn("pk", CqlType("text"), "partition_key"),
        CqlColumn("ck", CqlType("int"), "clustering"),
        CqlColumn("a", CqlType("bigint"), "regular"),
        CqlColumn("b", CqlType("boolean"), "regular"),
        CqlColumn("c", CqlType("text"), "regular"),
        CqlColumn("s", CqlType("int"), "static"),
    ],
    cdc=True,
)
SOURCE = UpdateSource(connector="cassandra", cluster="p", keyspace="ks", table="t")


class MemoryDefinitions:
    def by_id(self, table_id: bytes) -> CqlTableDefinition | None:
        return TABLE if table_id.hex() == TABLE.table_id.replace("-", "") else None

    def captured(self, table: CqlTableDefinition, segment: int) -> bool:
        return table.cdc and segment >= 0

    def is_deliverable(self, table: CqlTableDefinition) -> bool:
        return table.cdc

    def is_refused(self, table: CqlTableDefinition) -> bool:
        return bool(table.refusal)

    def list_known_tables(self) -> list[CqlTableDefinition]:
        return [TABLE]


def _row(number: int, stamp: CellStamp, *, live: bool = True, **values: Any) -> UpdateRow:
    cells = tuple(Cell(name, None, value, stamp) for name, value in values.items())
    return UpdateRow(clustering=(number,), liveness=stamp if live else None, cells=cells)


def _mutation(key: str, *rows: UpdateRow, **more: Any) -> bytes:
    update = PartitionUpdate(source=SOURCE, key=(key,), write_time=T, rows=rows, **more)
    return write_mutation([write_update(update, TABLE, 7)], 7)


def _mutations() -> list[bytes]:
    """The fast way's own kind, and between them what it has to leave to the other."""
    mutations = []
    for number in range(6):
        stamp = CellStamp(T + number)
        mutations += [
            _mutation(f"k{number}", _row(number, stamp, a=number, b=bool(number & 1), c="é" * number)),
            _mutation(f"k{number}", _row(number, stamp, live=False, a=None, b=None)),
            _mutation(f"k{number}", _row(number, CellStamp(T, 100, T // 1_000_000 + 100), c="x" * 200)),
            _mutation(f"k{number}", _row(1, stamp, a=1), _row(2, stamp, a=2)),
            _mutation(f"k{number}", static=UpdateRow(cells=(Cell("s", None, 5, stamp),))),
            _mutation(f"k{number}", deletion=UpdateDeletion(T, T // 1_000_000)),
            _mutation("k" * 130, _row(number, stamp, a=1)),
            _mutation(f"k{number}", _row(number, CellStamp(-5), a=1)),
            _mutation(f"k{number}", _row(number, CellStamp(T * 2), a=1)),
            _mutation(f"k{number}", _row(number, stamp, a=number, b=True))[:-9],
            _mutation(f"k{number}", _row(number, stamp, c="y")).replace(b"\x01c", b"\x01z"),
            write_mutation([_mutation(f"k{number}", _row(number, stamp, a=1))[1:]] * 2, 7),
        ]
    return mutations


def _take_records(form: Any, *, fast: bool, limit: int) -> tuple[list[SourceRecord], list[BadRecord], Any, int]:
    data, entries = b"", []
    for number, mutation in enumerate(_mutations()):
        entries.append(LogEntry(len(data), len(data) + len(mutation), 1000 * (number + 1)))
        data += mutation + struct.pack(">III", 0, 0, 0)
    calls = [0]

    def make_events(table: CqlTableDefinition, version: int) -> Any:
        events: Any = build_events(table, version, cassandra_events(topic_prefix="p", output_format=form))
        entries_of = events.entries

        def counted(*arguments: Any) -> int:
            calls[0] += (passed := entries_of(*arguments) if fast else 0)
            return passed

        events.entries = counted
        return events

    stream = CassandraStream(
        Where(partition={"node": "n"}, node="n", segment=0, version=0), None, MemoryDefinitions(), make_events, LOG
    )
    stream._given_up.add((bytes.fromhex(TABLE.table_id.replace("-", "")), "z"))
    out: list[SourceRecord] = []
    bad: list[BadRecord] = []
    chunk, number = LogChunk(77, 7, data, entries, entries[-1].position), 0
    while number < len(entries):
        number = stream.take(chunk, number, len(out) + limit, out, bad)
    return out, bad, stream.counts, calls[0]


def _message(record: SourceRecord) -> SourceRecord:
    """With the value as it is written: members of it that are null may be absent."""
    value = None if record.value is None else value_bytes(record.value_schema, record.value, AvroSettings())
    return msgspec.structs.replace(record, value=value, value_schema=None, key_schema=None)


@pytest.mark.parametrize("limit", [1, 7, 10_000])
@pytest.mark.parametrize("form", FORMS)
def test_the_fast_way_gives_what_the_other_one_does(form: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: (T + 10**9) * 1000)
    fast, slow = _take_records(form, fast=True, limit=limit), _take_records(form, fast=False, limit=limit)
    assert [_message(record) for record in fast[0]] == [_message(record) for record in slow[0]]
    assert [(record.source_offset, str(record.error), record.raw) for record in fast[1]] == [
        (record.source_offset, str(record.error), record.raw) for record in slow[1]
    ]
    assert fast[2] == slow[2]
    assert slow[3] == 0
    assert fast[3] >= 12
