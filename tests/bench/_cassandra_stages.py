"""CPU per mutation of the connector's parts, one after the other on the same segments: framing, decoding, events, encoding."""

from __future__ import annotations

import gc
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from connectors.cassandra.config.settings import CONFIG, session_settings
from connectors.cassandra.events import build_events
from connectors.cassandra.events.contract import Where
from connectors.cassandra.log.segment import Segment
from connectors.cassandra.model import CLUSTER, NODE
from connectors.cassandra.schema.catalog import CassandraCatalog, CassandraTableFilter
from connectors.cassandra.stream import CassandraStream
from connectors.cql.cluster.session import CqlSession
from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.cql.mutations.head import read_mutation_head
from tests.bench._cassandra_rows import FULL, finished
from tests.support.local_avro import LocalAvro
from tests.support.settings import cassandra_events
from worker.converters.avro_form.schema import AvroSettings
from worker.converters.base import Converter  # noqa: TC001 - of a NamedTuple
from worker.converters.bytearray import ByteArrayConverter
from worker.converters.json import JsonConverter
from worker.converters.simple_header import SimpleHeaderConverter
from worker.host.delivery.fast_path import wire_of
from worker.transforms.pipeline import build_pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from connectors.api import BadRecord, SourceRecord
    from connectors.cassandra.model import LogChunk
    from connectors.cql.mutations.definition import CqlTableDefinition
    from worker.converters.base import Encode

_LOG = logging.LoggerAdapter(logging.getLogger(__name__), {})
_ALIVE = 2000  # records that are there at one time, about as in a task


_JSON: Final = JsonConverter({"schemas.enable": "false"})
_AVRO: Final = LocalAvro(AvroSettings())
_BYTES: Final = ByteArrayConverter({})


class Form(NamedTuple):
    """An output form with the converters that suit it: how benchmarks print it, the option's value, keys, values."""

    label: str
    name: Literal["partition-update", "partition-update-raw", "debezium"]
    key: Converter
    value: Converter


FORMS: Final = (
    Form("partition-update-raw, Avro", "partition-update-raw", _BYTES, _AVRO),
    Form("partition-update, Avro", "partition-update", _BYTES, _AVRO),
    Form("debezium, JSON", "debezium", _JSON, _JSON),
)


class Costs(NamedTuple):
    """CPU microseconds a mutation, and bytes of a record."""

    build: float
    encode: float
    record_bytes: float


async def definitions(config: Mapping[str, Any]) -> CassandraCatalog:
    """Read the definitions of the server's tables."""
    session = await CqlSession.acquire(session_settings(CONFIG.parse(config)))
    try:
        catalog = CassandraCatalog(CassandraTableFilter(), _LOG)
        catalog.session = session
        await catalog.refresh()
        return catalog
    finally:
        await session.release()


def read_chunks(folder: Path, *, max_bytes: int = 1 << 20) -> tuple[list[LogChunk], float]:
    """Everything in the folder's segments, and the CPU seconds of reading, framing and checksums."""
    chunks: list[LogChunk] = []
    began = time.process_time()
    for path in finished(folder):
        segment = Segment(path, int(path.stem.split("-")[2]))
        try:
            while True:
                chunk = segment.read(None, complete=True, max_bytes=max_bytes)
                if chunk is None or chunk.problem:
                    raise RuntimeError(f"{path} can't be read to its end: {chunk.problem if chunk else 'nothing more'}")
                chunks.append(chunk)
                if chunk.finished:
                    break
        finally:
            segment.close()
    return chunks, time.process_time() - began


def _find_updates(chunks: Sequence[LogChunk], table: CqlTableDefinition) -> list[tuple[bytes, int, int]]:
    """Where the updates of the table begin and end: (data, start, end)."""
    identity = uuid.UUID(table.table_id).bytes
    updates = []
    for chunk in chunks:
        for entry in chunk.entries:
            _, at = read_mutation_head(chunk.data, entry.start, chunk.version)
            if chunk.data[at : at + 16] == identity:
                updates.append((chunk.data, at, entry.end))
    return updates


def decode(chunks: Sequence[LogChunk], table: CqlTableDefinition) -> tuple[float, int, float]:
    """CPU seconds of decoding the table's updates with the compiled decoder; how many; bytes of a mutation."""
    decoder = CompiledDecoder(table, chunks[0].version)
    updates = _find_updates(chunks, table)
    plain = decoder.plain
    for data, at, _ in updates[:1000]:
        plain(data, at)
    began = time.process_time()
    missed = 0
    for data, at, _ in updates:
        if plain(data, at) is None:
            missed += 1
    used = time.process_time() - began
    if missed:
        raise RuntimeError(f"the fast decoder left {missed} of {len(updates)} updates to the complete one")
    return used, len(updates), sum(end - at + 1 for _, at, end in updates) / max(len(updates), 1)


def build(chunks: Sequence[LogChunk], catalog: CassandraCatalog, form: Form) -> Costs:
    """Measure the CPU of turning log chunks into records and of encoding these, for one output form."""
    settings = cassandra_events(topic_prefix="bench", output_format=form.name)
    where = Where(partition={CLUSTER: "bench", NODE: "local"}, node="local", segment=0, version=0)
    stream = CassandraStream(where, None, catalog, lambda table, version: build_events(table, version, settings), _LOG)
    encoders: dict[int, tuple[Encode, Encode]] = {}
    building = encoding = 0.0
    count = size = 0
    for chunk in chunks:
        number = 0
        while True:
            out: list[SourceRecord] = []
            bad: list[BadRecord] = []
            began = time.process_time()
            number = stream.take(chunk, number, _ALIVE, out, bad)
            built = time.process_time()
            if bad:
                raise RuntimeError(f"a mutation can't be read: {bad[0].error}")
            if out:
                schema = out[0].value_schema
                if id(schema) not in encoders:
                    encoders[id(schema)] = (
                        form.key.encoder("t", out[0].key_schema),
                        form.value.encoder("t", schema),
                    )
                    built = time.process_time()
                key, value = encoders[id(schema)]
                for record in out:
                    size += len(key(record.key) or b"") + len(value(record.value) or b"")
            building, encoding = building + built - began, encoding + time.process_time() - built
            count += len(out)
            if number >= len(chunk.entries):
                break
    return Costs(building / count * 1e6, encoding / count * 1e6, size / count)


async def build_fast(chunks: Sequence[LogChunk], catalog: CassandraCatalog, form: Form) -> Costs | None:
    """CPU of everything between a chunk of the log and bytes for Kafka; None if the fast path does not take the form."""
    settings = cassandra_events(topic_prefix="bench", output_format=form.name)
    where = Where(partition={CLUSTER: "bench", NODE: "local"}, node="local", segment=0, version=0)
    wire = wire_of("auto", build_pipeline({}), form.key, form.value, SimpleHeaderConverter({}))
    stream = CassandraStream(
        where, None, catalog, lambda table, version: build_events(table, version, settings), _LOG, wire
    )
    used, count, size, first = 0.0, 0, 0, True
    for chunk in chunks:
        number = 0
        while True:
            await stream.agree()
            out: list[SourceRecord] = []
            bad: list[BadRecord] = []
            began = time.process_time()
            number = stream.take(chunk, number, _ALIVE, out, bad)
            encoded = stream.encoded.collect()
            took = time.process_time() - began
            if out and not first:
                return None
            for part in () if first else encoded:
                count += len(part.values)
                size += sum([len(value or b"") for value in part.values]) + sum(map(len, part.keys or ()))
            used += 0 if first else took
            first = False
            if number >= len(chunk.entries):
                break
    return Costs(used / count * 1e6, 0, size / count) if count else None


async def run(folder: Path, config: Mapping[str, Any]) -> None:
    """Print all stages."""
    read_chunks(folder)  # the files are in memory from now on
    gc.collect()
    chunks, framing = read_chunks(folder)
    entries = sum(len(chunk.entries) for chunk in chunks)
    size = sum(len(chunk.data) for chunk in chunks)
    print(
        f"\nstages, CPU us/mutation, one thread\n{'framing and checksums':34}{framing / entries * 1e6:>8.2f}"
        f"   {entries / framing / 1e6:.2f}M entries/s, {size / framing / 1e6:.0f} MB/s",
        flush=True,
    )
    catalog = await definitions(config)
    table = next(definition for definition in catalog.tables() if str(definition) == FULL)
    gc.collect()
    gc.freeze()  # half a million entries are alive here, and a few thousand in a task
    try:
        used, count, mutation_bytes = decode(chunks, table)
        print(
            f"{'decoding, compiled':34}{used / count * 1e6:>8.2f}   {count / used / 1e3:.0f}k/s, "
            f"{mutation_bytes:.0f} bytes a mutation",
            flush=True,
        )
        for form in FORMS:
            build(chunks[:1], catalog, form)  # the first run makes decoder and builder
            costs = build(chunks, catalog, form)
            print(
                f"{form.label:34}{costs.build:>8.2f} to the record, {costs.encode:.2f} its encoding "
                f"({costs.record_bytes:.0f} bytes)",
                flush=True,
            )
            fast = await build_fast(chunks, catalog, form)
            if fast is not None:
                print(
                    f"{form.label + ', fast path':34}{fast.build:>8.2f} to bytes ({fast.record_bytes:.0f} bytes)",
                    flush=True,
                )
    finally:
        gc.unfreeze()
