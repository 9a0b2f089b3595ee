"""A table, mutations of it as the log has them, and the records that they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from connectors.cassandra.events import build_events
from connectors.cassandra.events.contract import CassandraTableEvents, Where
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, make_definition
from connectors.cql.mutations.encode import write_update
from connectors.cql.types import CqlType, parse_type
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    PartitionUpdate,
    RangeDeletion,
    UpdateDeletion,
    UpdateRow,
    UpdateSource,
)
from tests.support.settings import cassandra_events
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.read import avro_reader
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from connectors.schema import Schema

TABLE_ID = "6a1f2be0-c6f5-11f0-9d3e-3b7c2f5a9e01"
UDT = CqlType(
    "udt", (parse_type("text"), parse_type("inet")), keyspace="ks", udt_name="place", field_names=("street", "host")
)
FROZEN = CqlType("udt", UDT.arguments, frozen=True, keyspace="ks", udt_name="place", field_names=UDT.field_names)
TABLE = make_definition(
    "ks",
    "t",
    TABLE_ID,
    [
        CqlColumn("p", parse_type("int"), "partition_key", 0),
        CqlColumn("q", parse_type("text"), "partition_key", 1),
        CqlColumn("c", parse_type("int"), "clustering", 0),
        CqlColumn("d", parse_type("timestamp"), "clustering", 1, reversed=True),
        CqlColumn("s", parse_type("bigint"), "static"),
        CqlColumn("sl", parse_type("set<int>"), "static"),
        CqlColumn("v", parse_type("text"), "regular"),
        CqlColumn("n", parse_type("int"), "regular"),
        CqlColumn("f", FROZEN, "regular"),
        CqlColumn("l", parse_type("list<int>"), "regular"),
        CqlColumn("m", parse_type("map<text, inet>"), "regular"),
        CqlColumn("u", UDT, "regular"),
    ],
    cdc=True,
)
PLAIN = make_definition(
    "ks",
    "plain",
    TABLE_ID.replace("01", "02"),
    [
        CqlColumn("p", parse_type("int"), "partition_key", 0),
        CqlColumn("v", parse_type("text"), "regular"),
        CqlColumn("w", parse_type("int"), "regular"),
    ],
    cdc=True,
)
KEY = (7, "k")
DAY = 1_790_000_000_000
ROW = (5, DAY)
NOW = CellStamp(1_790_000_000_000_000)
LATER = CellStamp(NOW.write_time + 10)
EXPIRING = CellStamp(NOW.write_time, 60, 1_790_000_060)
SOURCE = UpdateSource(connector="cassandra", cluster="c", keyspace="ks", table="t")
PARTITION = {"cluster": "c", "node": "n1"}
READ_MS = 1_790_000_000_500
SEGMENT = 1_789_000_000_001
_AVRO = AvroSettings()


def deleted(stamp: CellStamp) -> UpdateDeletion:
    return UpdateDeletion(stamp.write_time, 1_790_000_000)


def update(
    *rows: UpdateRow,
    key: tuple[Any, ...] = KEY,
    static: UpdateRow | None = None,
    deletion: UpdateDeletion | None = None,
    ranges: tuple[RangeDeletion, ...] = (),
) -> PartitionUpdate:
    return PartitionUpdate(
        source=SOURCE, key=key, write_time=NOW.write_time, rows=rows, static=static, deletion=deletion, ranges=ranges
    )


def row(
    cells: dict[str, Any], clustering: tuple[Any, ...] = ROW, *, stamp: CellStamp = NOW, inserted: bool = True
) -> UpdateRow:
    """A row whose simple cells have one stamp; None: a tombstone."""
    row_cells = tuple(
        Cell(name, None, value, CellStamp(stamp.write_time) if value is None else stamp)
        for name, value in cells.items()
    )
    return UpdateRow(clustering, stamp if inserted else None, None, row_cells)


def where(*, last: bool = True, done: int = 0, read_ms: int = READ_MS) -> Where:
    return Where(
        partition=PARTITION,
        node="n1",
        segment=SEGMENT,
        version=7,
        before=1000,
        position=1300,
        done=done,
        last=last,
        read_ms=read_ms,
    )


class UpdateFeed:
    """One table's events, fed with updates as bytes."""

    def __init__(self, table: CqlTableDefinition = TABLE, version: int = 7, **settings: Any) -> None:
        self.version = version
        self.events: CassandraTableEvents = build_events(
            table, version, cassandra_events(**{"topic_prefix": "c", "tombstones": True, **settings})
        )

    def __call__(self, update: PartitionUpdate, at: Where | None = None) -> list[SourceRecord]:
        """The records of an update whose bytes are between others."""
        data = b"--" + write_update(update, self.events.table, self.version)
        records: list[SourceRecord] = []
        assert self.events.update(data + b"\x01\x02", 2, None, at or where(), records) == len(data)
        where_copy = msgspec.structs.replace(at) if at is not None else where()
        assert self.events.update(data, 2, len(data), where_copy, []) == len(data)
        return records

    def often(self, update: PartitionUpdate) -> list[SourceRecord]:
        """As a call, once the shape of the update is known and has its own code."""
        for _ in range(5):
            records = self(update)
        return records


def through_json(value: Any, schema: Schema) -> Any:
    """A value as a consumer of JSON without schemas gets it."""
    data = JsonConverter({"schemas.enable": "false"}).encoder("t", schema)(value)
    assert data is not None
    return msgspec.json.decode(data)


def through_avro(value: Any, schema: Schema) -> Any:
    """A value written as Avro and read back."""
    data = compile_avro(schema, _AVRO, b"")(value)
    assert data is not None
    return avro_reader(avro_text(schema, _AVRO), _AVRO).decode(data)
