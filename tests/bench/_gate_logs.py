"""Stages of rows of the Scylla and Cassandra connectors, as ``_gate_stages`` has MySQL's: ``python _gate_logs.py LOGS``.

LOGS is a pickle of ``gate.logs``. A stage begins at rows of a Scylla log, or at mutations of a Cassandra log, and ends at keys
and values for Kafka: the way that a task with default options goes, or that of ``fast.path=off`` where the environment variable
FAST_PATH says ``off``. Nothing of ``tests`` is imported.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import connectors
from connectors.cassandra.capture import Capture
from connectors.cassandra.config import settings as cassandra_config
from connectors.cassandra.events import build_events as cassandra_builder
from connectors.cassandra.events.contract import Where
from connectors.cassandra.model import LogChunk, LogEntry
from connectors.cassandra.schema.catalog import CassandraCatalog, CassandraTableFilter
from connectors.cassandra.stream import CassandraStream
from connectors.cql.mutations.definition import CqlColumn as CassandraColumn
from connectors.cql.mutations.definition import make_definition
from connectors.cql.types import parse_type
from connectors.encoded_parts import EncodedParts
from connectors.options import ConfigDef
from connectors.scylla.config import settings as scylla_config
from connectors.scylla.events import build_events as scylla_builder
from connectors.scylla.events.fast_rows import fast_feed
from connectors.scylla.model import CdcOptions, ScyllaColumn, StreamRun, TableId, TableVersion
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.rows import AvroRowForm
from worker.converters.avro_form.schema import AvroSettings
from worker.converters.base import Converter
from worker.converters.bytearray import ByteArrayConverter
from worker.converters.json import JsonConverter
from worker.converters.simple_header import SimpleHeaderConverter
from worker.host.delivery.fast_path import wire_of
from worker.metrics.process import settle_heap
from worker.transforms.pipeline import TransformPipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import SourceRecord

_LOG: Final = logging.LoggerAdapter(logging.getLogger("gate"), {})
_HEAD: Final = b"\0\0\0\0\1"
#: Records that are alive at one time, about as in a task.
_ALIVE: Final = 2000
#: Rows of a run of Scylla's reader.
_RUN: Final = 500
_SCYLLA: Final = {
    "scylla.cluster.ip.addresses": "n1:9042",
    "scylla.table.names": "bench.t",
    "topic.prefix": "gate",
}
_CASSANDRA: Final = {"cassandra.hosts": "n1", "cdc.raw.directories": "n1=/cdc_raw", "topic.prefix": "gate"}


class _Avro(Converter):
    """AvroConverter without a registry."""

    config_def = ConfigDef([])
    null_needs_schema = False

    def __init__(self) -> None:
        self._settings = AvroSettings()

    def encoder(self, topic: str, schema: Any) -> Any:
        del topic
        return compile_avro(schema, self._settings, _HEAD)

    def row_form(self, topic: str, encoding: Any, stem: str) -> AvroRowForm:
        del topic
        return AvroRowForm(encoding, self._settings, _HEAD, stem)

    def to_connect(self, topic: str, data: bytes | None) -> Any:
        raise NotImplementedError


_JSON: Final = JsonConverter({"schemas.enable": "false"})
#: By stage: the output form, and the converters that suit it.
_FORMS: Final[dict[str, tuple[str, Converter, Converter]]] = {
    "raw": ("partition-update-raw", ByteArrayConverter({}), _Avro()),
    "update": ("partition-update", ByteArrayConverter({}), _Avro()),
    "debezium": ("debezium", _JSON, _JSON),
}


class _Encoder:
    """Records to bytes; the functions of a schema are looked up as rarely as in a task."""

    def __init__(self, key: Converter, value: Converter) -> None:
        self._converters = key, value
        self._functions: dict[int, tuple[Any, Any]] = {}

    def encode(self, records: Sequence[SourceRecord]) -> None:
        if not records:
            return
        schemas = records[0].key_schema, records[0].value_schema
        functions = self._functions.get(id(schemas[1]))
        if functions is None:
            key, value = (
                converter.encoder("t", schema) for converter, schema in zip(self._converters, schemas, strict=True)
            )
            functions = self._functions[id(schemas[1])] = key, value
        encode_key, encode_value = functions
        for record in records:
            encode_key(record.key)
            encode_value(record.value)


def _wire(key: Converter, value: Converter) -> Any:
    return wire_of(os.environ.get("FAST_PATH", "auto"), TransformPipeline(), key, value, SimpleHeaderConverter({}))


async def _scylla(columns: Sequence[Any], rows: list[Any]) -> Callable[[], None]:
    """A turn over rows of a Scylla log, in the legacy format."""
    members = tuple(ScyllaColumn(name, parse_type(kind), part, position) for name, kind, part, position in columns)
    version = TableVersion(TableId("bench", "t"), members, CdcOptions(), "one")
    builder: Any = scylla_builder(version, scylla_config.event_settings(scylla_config.CONFIG.parse(_SCYLLA)))
    wire = _wire(_JSON, _JSON)
    fast = None if wire is None else await fast_feed(wire, builder)
    encoder = _Encoder(_JSON, _JSON)
    partition, offset = {"vnode_id": "1"}, {"window_start": "x", "window_end": "y"}

    def turn() -> None:
        for start in range(0, len(rows), _ALIVE):
            parts = EncodedParts()
            records: list[SourceRecord] = []
            for first in range(start, min(start + _ALIVE, len(rows)), _RUN):
                run = StreamRun(partition, offset, rows[first : first + _RUN], None, last=True, may_be_bad=False)
                if fast is None or not fast.take([run], 0, parts):
                    builder.feed(run, records, [])
            parts.collect()
            encoder.encode(records)

    return turn


async def _cassandra(columns: Sequence[Any], data: bytes, spans: Sequence[Any], name: str) -> Callable[[], None]:
    """A turn over mutations of a Cassandra log, in one output form."""
    output_format, key, value = _FORMS[name]
    members = [CassandraColumn(column, parse_type(kind), part, position) for column, kind, part, position in columns]
    table = make_definition("bench", "t", "0a0a0a0a-0000-11ee-8000-00000000000a", members, cdc=True)
    catalog = CassandraCatalog(CassandraTableFilter(), _LOG)
    catalog.remember([table], {table.table_id: Capture(now=True, ever=True)})
    entries = [LogEntry(*span) for span in spans]
    log = LogChunk(1, 7, data, entries, entries[-1].position)
    config = {**_CASSANDRA, "output.format": output_format}
    settings = cassandra_config.event_settings(cassandra_config.CONFIG.parse(config))
    stream = CassandraStream(
        Where(partition={"node": "n"}, node="n", segment=0, version=0),
        None,
        catalog,
        lambda definition, version: cassandra_builder(definition, version, settings),
        _LOG,
        _wire(key, value),
    )
    stream.take(log, 0, 10, [], [])  # the runtime is asked behind a table's first batch
    await stream.agree()
    segments = count(2)
    encoder = _Encoder(key, value)

    def turn() -> None:
        chunk = log._replace(segment=next(segments))  # a stream passes over what it has read before
        number = 0
        while number < len(entries):
            records: list[SourceRecord] = []
            number = stream.take(chunk, number, _ALIVE, records, [])
            stream.encoded.collect()
            encoder.encode(records)

    return turn


async def _serve(logs: dict[str, Any]) -> None:
    columns, rows = logs["scylla"]
    turns = {"scylla": (await _scylla(columns, rows), len(rows))}
    columns, data, spans = logs["cassandra"]
    for name in _FORMS:
        turns[name] = await _cassandra(columns, data, spans, name), len(spans)
    for turn, _ in turns.values():
        turn()
    settle_heap()
    print(Path(connectors.__file__).parent.parent, flush=True)
    for line in sys.stdin:
        turn, size = turns[line.strip().partition(" ")[2]]
        gc.collect()
        began = time.process_time()
        turn()
        print((time.process_time() - began) / size * 1e6, flush=True)


if __name__ == "__main__":
    # Made by the parent of this process, in this run.
    asyncio.run(_serve(pickle.loads(Path(sys.argv[1]).read_bytes())))  # noqa: S301
