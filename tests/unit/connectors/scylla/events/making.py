"""A table with every kind of column, its log rows made from column names, and records made of them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from connectors.cql.types import CqlType
from connectors.scylla.events import build_events
from connectors.scylla.model import CdcOptions, LogRow, ScyllaColumn, StreamRun, TableId, TableVersion
from connectors.scylla.positions import OFFSET_STREAM
from tests.support.settings import scylla_events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import BadRecord, SourceRecord

INT, TEXT = CqlType("int"), CqlType("text")
ADDRESS = CqlType("udt", (TEXT, INT), keyspace="ks", udt_name="address", field_names=("street", "zip"))
FROZEN_ADDRESS = CqlType(
    "udt", (TEXT, INT), frozen=True, keyspace="ks", udt_name="address", field_names=("street", "zip")
)
STREAM = b"s" * 16
PARTITION = {"keyspace_name": "ks", "table_name": "t"}
OFFSET = {"window_start": "1", OFFSET_STREAM: "0x" + STREAM.hex()}


def table(*extra: ScyllaColumn, clustering: bool = True) -> TableVersion:
    """``t (pk, c1, c2, st static, v, n, l, m, s, u, fu)``; without clustering: no ``c1``, ``c2``, ``st``."""
    columns = [ScyllaColumn("pk", INT, "partition_key", 0)]
    if clustering:
        columns += [
            ScyllaColumn("c1", TEXT, "clustering", 0),
            ScyllaColumn("c2", INT, "clustering", 1, reversed=True),
            ScyllaColumn("st", TEXT, "static"),
        ]
    regular = [
        ScyllaColumn("fu", FROZEN_ADDRESS, "regular"),
        ScyllaColumn("l", CqlType("list", (INT,)), "regular"),
        ScyllaColumn("m", CqlType("map", (TEXT, INT)), "regular"),
        ScyllaColumn("n", CqlType("bigint"), "regular"),
        ScyllaColumn("s", CqlType("set", (TEXT,)), "regular"),
        ScyllaColumn("u", ADDRESS, "regular"),
        ScyllaColumn("v", TEXT, "regular"),
        *extra,
    ]
    return TableVersion(
        TableId("ks", "t"), (*columns, *sorted(regular, key=lambda column: column.name)), CdcOptions(), "v1"
    )


def time_of(number: int) -> bytes:
    """The time uuid of a change; greater numbers are later, by 1.5 ms."""
    ticks = 0x01B21DD213814000 + (1_700_000_000_000_000 + number * 1_500) * 10
    low, middle, high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF | 0x1000
    return uuid.UUID(fields=(low, middle, high, 0x80, 1, 0x0A0B0C0D0E0F)).bytes


def row(
    version: TableVersion,
    number: int,
    seq: int,
    operation: int,
    *,
    end: bool = False,
    ttl: int | None = None,
    stream: bytes = STREAM,
    **cells: Any,
) -> LogRow:
    """A log row; ``deleted_x`` and ``deleted_elements_x`` stand for the columns with ``cdc$`` before them."""
    names = {name.removeprefix("cdc$"): None for name, _ in version.log_columns}
    assert set(cells) <= set(names), set(cells) - set(names)
    return (stream, time_of(number), seq, operation, ttl, True if end else None, *({**names, **cells}.values()))


def make(
    version: TableVersion,
    rows: Sequence[LogRow],
    bad: list[BadRecord] | None = None,
    *,
    skip: tuple[bytes, int] | None = None,
    **options: Any,
) -> list[SourceRecord]:
    """The records of rows of one stream that come at once."""
    settings = scylla_events(topic_prefix="p", **options)
    out: list[SourceRecord] = []
    refused: list[BadRecord] = []
    build_events(version, settings, lambda: 5.0).feed(
        StreamRun(PARTITION, OFFSET, list(rows), skip, last=True), out, refused
    )
    if bad is None:
        assert not refused
    else:
        bad += refused
    return out
