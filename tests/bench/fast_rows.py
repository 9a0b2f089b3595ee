"""CPU of a row between its source's form and bytes for Kafka: ``fast.path=off`` next to ``auto``, in turns in one process.

Without a server: rows of a Scylla log and mutations of a Cassandra log are made here, of the tables that the benches of both
connectors use, and rows events of MySQL, whose rows pass a chain of transforms. ``off`` is taken apart: records, transforms,
bytes, and freeing the records.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import statistics
import struct
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.cassandra.capture import Capture
from connectors.cassandra.events import build_events as cassandra_builder
from connectors.cassandra.events.contract import Where
from connectors.cassandra.model import LogChunk, LogEntry
from connectors.cassandra.schema.catalog import CassandraCatalog, CassandraTableFilter
from connectors.cassandra.stream import CassandraStream
from connectors.cql.types import parse_type
from connectors.encoded_parts import EncodedParts
from connectors.mysql.events import make_builder as mysql_builder
from connectors.mysql.model import MySqlColumn, MySqlTable, Shard, TableName
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema.columns import make_layout as layout_of
from connectors.mysql.schema.tables import MySqlTableState
from connectors.scylla.events import build_events as scylla_builder
from connectors.scylla.events.fast_rows import fast_feed
from connectors.scylla.model import CdcOptions, ScyllaColumn, StreamRun, TableId, TableVersion
from tests.bench._cassandra_stages import FORMS
from tests.bench._common import environment
from tests.bench._log_rows import LOG_VERSION, SCYLLA_COLUMNS, cassandra_log, cassandra_table, scylla_rows
from tests.support.settings import cassandra_events, mysql_values, scylla_events
from tests.support.transform_chains import UNWRAP, chain
from tests.unit.connectors.mysql.events import making
from tests.unit.connectors.mysql.row_strategies import image, rows_event, stored_decimal
from worker.converters.json import JsonConverter
from worker.converters.simple_header import SimpleHeaderConverter
from worker.host.delivery.fast_path import wire_of
from worker.transforms.pipeline import build_pipeline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connectors.api import SourceRecord
    from tests.bench._cassandra_stages import Form
    from tests.support.transform_chains import Stage
    from worker.converters.base import Converter
    from worker.transforms.pipeline import TransformPipeline

_LOG: Final = logging.LoggerAdapter(logging.getLogger(__name__), {})
#: Records that are alive at one time, about as in a task.
_ALIVE: Final = 2000
#: Rows of a run of Scylla's reader.
_RUN: Final = 500
#: Rows of an event of MySQL.
_EVENT: Final = 100
_KAFKA: Final = "org.apache.kafka.connect.transforms"
_STAGES: Final[tuple[Stage, ...]] = (
    {"type": UNWRAP, "add.fields": "op,source.ts_ms"},
    {"type": f"{_KAFKA}.ReplaceField$Value", "exclude": "weight", "renames": "note:text"},
    {"type": f"{_KAFKA}.MaskField$Value", "fields": "item"},
    {"type": f"{_KAFKA}.InsertField$Value", "static.field": "site", "static.value": "eu-1"},
    {"type": f"{_KAFKA}.RegexRouter", "regex": "(.*)\\.(.*)", "replacement": "lake.$2"},
)
_JSON: Final = JsonConverter({"schemas.enable": "false"})


class Turn(NamedTuple):
    """CPU seconds of all rows."""

    build: float
    transform: float
    encode: float
    free: float
    fast: float


def _wire(key: Converter, value: Converter, pipeline: TransformPipeline | None = None) -> Any:
    return wire_of("auto", pipeline or build_pipeline({}), key, value, SimpleHeaderConverter({}))


def _encode(records: list[SourceRecord], key_converter: Converter, value_converter: Converter) -> None:
    key = key_converter.encoder("t", records[0].key_schema)
    value = value_converter.encoder("t", records[0].value_schema)
    for record in records:
        key(record.key)
        value(record.value)


async def scylla(rows: int) -> Callable[[], Turn]:
    """A turn over rows of a Scylla log, in the legacy format."""
    columns = [
        ScyllaColumn(name, parse_type(kind), part, position)  # type: ignore[arg-type]
        for name, kind, part, position in SCYLLA_COLUMNS
    ]
    version = TableVersion(TableId("bench", "t"), tuple(columns), CdcOptions(), "one")
    builder: Any = scylla_builder(version, scylla_events(topic_prefix="bench"))
    log = scylla_rows(rows)
    partition, offset = {"vnode_id": "1"}, {"window_start": "x", "window_end": "y"}
    fast = await fast_feed(_wire(_JSON, _JSON), builder)
    if fast is None:
        raise RuntimeError("the fast path does not take the table")

    def runs(start: int) -> list[StreamRun]:
        return [
            StreamRun(partition, offset, log[first : first + _RUN], None, last=True, may_be_bad=False)
            for first in range(start, min(start + _ALIVE, rows), _RUN)
        ]

    def turn() -> Turn:
        build = encode = free = quick = 0.0
        for start in range(0, rows, _ALIVE):
            chunk = runs(start)
            records: list[SourceRecord] = []
            began = time.process_time()
            for run in chunk:
                builder.feed(run, records, [])
            built = time.process_time()
            _encode(records, _JSON, _JSON)
            encoded = time.process_time()
            records.clear()
            freed = time.process_time()
            parts = EncodedParts()
            for run in chunk:
                fast.take([run], 0, parts)
            if parts.count != sum(len(run.rows) for run in chunk):
                raise RuntimeError("the fast path does not take all rows")
            parts.collect()
            quick += time.process_time() - freed
            build, encode, free = build + built - began, encode + encoded - built, free + freed - encoded
        return Turn(build, 0, encode, free, quick)

    return turn


async def cassandra(rows: int, form: Form) -> Callable[[], Turn]:
    """A turn over mutations of a Cassandra log."""
    table = cassandra_table()
    catalog = CassandraCatalog(CassandraTableFilter(), _LOG)
    catalog.remember([table], {table.table_id: Capture(now=True, ever=True)})
    data, spans = cassandra_log(rows)
    entries = [LogEntry(*span) for span in spans]
    log = LogChunk(1, LOG_VERSION, data, entries, entries[-1].position)
    settings = cassandra_events(topic_prefix="bench", output_format=form.name)
    wire = _wire(form.key, form.value)

    async def stream_of(**more: Any) -> CassandraStream:
        stream = CassandraStream(
            Where(partition={"node": "n"}, node="n", segment=0, version=0),
            None,
            catalog,
            lambda definition, version: cassandra_builder(definition, version, settings),
            _LOG,
            **more,
        )
        stream.take(log, 0, 10, [], [])  # the runtime is asked behind a table's first batch
        await stream.agree()
        return stream

    streams = [await stream_of(), await stream_of(wire=wire)]

    segments = count(2)

    def turn() -> Turn:
        build = encode = free = quick = 0.0
        chunk = log._replace(segment=next(segments))  # a stream passes over what it has read before
        for stream in streams:
            number = 0
            while number < rows:
                records: list[SourceRecord] = []
                began = time.process_time()
                number = stream.take(chunk, number, _ALIVE, records, [])
                built = time.process_time()
                if not records:
                    stream.encoded.collect()
                    quick += time.process_time() - began
                    continue
                if stream is streams[1]:
                    raise RuntimeError("the fast path does not take all rows")
                _encode(records, form.key, form.value)
                encoded = time.process_time()
                records.clear()
                build, encode, free = (
                    build + built - began,
                    encode + encoded - built,
                    free + time.process_time() - encoded,
                )
        return Turn(build, 0, encode, free, quick)

    return turn


async def mysql(rows: int, stages: tuple[Stage, ...] = ()) -> Callable[[], Turn]:
    """A turn over inserted rows of MySQL, a hundred in an event, which pass transforms."""
    members = (
        ("id", codes.LONGLONG, 0),
        ("customer", codes.LONGLONG, 0),
        ("item", codes.VARCHAR, 200),
        ("note", codes.VARCHAR, 200),
        ("price", codes.DECIMAL, 12 << 8 | 2),
        ("weight", codes.DOUBLE, 0),
    )
    columns = tuple(
        MySqlColumn(name=name, type=kind, meta=meta, nullable=name != "id", collation=45 if meta == 200 else None)
        for name, kind, meta in members
    )
    table = MySqlTable(name=TableName("bench", "orders"), columns=columns, key=("id",), completed=True)
    images = [
        image(
            table,
            [
                number.to_bytes(8, "little"),
                (number % 97).to_bytes(8, "little"),
                b"\x0a" + f"{number:010}".encode(),
                b"\x28" + f"{number:040}".encode(),
                stored_decimal(number * 7, 12, 2),
                struct.pack("<d", number / 7 + 1),
            ],
        )
        for number in range(rows)
    ]
    log = [rows_event(table, "write", images[first : first + _EVENT]) for first in range(0, rows, _EVENT)]
    settings, options = making.settings(), mysql_values()
    layout = layout_of(table, settings, options)
    state = MySqlTableState(
        table,
        captured=True,
        kind="",
        shard=Shard(),
        layout=layout,
        table_events=mysql_builder(layout, 1, settings, making.PARTITION),
        version=1,
        options=options,
    )
    pipeline = build_pipeline(chain(*stages))
    await state.agree(_wire(_JSON, _JSON, pipeline))
    fast = state.fast
    if fast is None:
        raise RuntimeError("the fast path does not take the table")

    def turn() -> Turn:
        build = transform = encode = free = quick = 0.0
        for start in range(0, len(log), _ALIVE // _EVENT):
            chunk = log[start : start + _ALIVE // _EVENT]
            records: list[Any] = []
            began = time.process_time()
            for raw in chunk:
                at, decode = state.reader(raw, raw[4])
                decoded = decode(raw, at, len(raw))
                state.events.changes("c", decoded, making.SOURCE, 0, making.BASE, making.AFTER, records)
            built = time.process_time()
            if stages:
                records, _ = pipeline.apply_many(records)
            transformed = time.process_time() if stages else built
            _encode(records, _JSON, _JSON)
            encoded = time.process_time()
            records.clear()
            decoded.clear()
            freed = time.process_time()
            if None in [fast.encode(raw, 0, making.SOURCE, (1, 1, 1)) for raw in chunk]:
                raise RuntimeError("the fast path does not take all rows")
            quick += time.process_time() - freed
            build, transform = build + built - began, transform + transformed - built
            encode, free = encode + encoded - transformed, free + freed - encoded
        return Turn(build, transform, encode, free, quick)

    return turn


async def _run(rows: int, turns: int) -> None:
    turns_of: list[tuple[str, Callable[[int], Awaitable[Callable[[], Turn]]]]] = [("Scylla, legacy", scylla)]
    turns_of += [(f"Cassandra, {form.label}", partial(cassandra, form=form)) for form in FORMS]
    turns_of += [
        ("MySQL", mysql),
        ("MySQL, unwrapped", partial(mysql, stages=_STAGES[:1])),
        ("MySQL, five transforms", partial(mysql, stages=_STAGES)),
    ]
    for name, make_turn in turns_of:
        turn = await make_turn(rows)
        turn()
        gc.collect()
        gc.freeze()
        measured = [turn() for _ in range(turns)]
        gc.unfreeze()
        build, transform, encode, free, fast = (
            statistics.median(seconds) / rows * 1e6 for seconds in zip(*measured, strict=True)
        )
        whole = statistics.median(sum(costs[:-1]) for costs in measured) / rows * 1e6
        transforms = f"transforms {transform:.2f}, " if transform else ""
        print(
            f"{name:38} off: records {build:.2f}, {transforms}bytes {encode:.2f}, freeing {free:.2f}, all {whole:.2f}; "
            f"auto: {fast:.2f}",
            flush=True,
        )


def main(argv: list[str]) -> int:
    """Run it; a few seconds."""
    parser = argparse.ArgumentParser(prog="millrace bench fast_rows", description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args(argv)
    print(environment())
    print("CPU us/row, medians")
    asyncio.run(_run(options.rows, options.turns))
    return 0
