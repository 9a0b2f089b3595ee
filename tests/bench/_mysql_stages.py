"""CPU per row of each stage of the connector, one after the other on the same rows: read, decode, build, encode."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from compose.local.databases.server_pair import execute_sql
from connectors.mysql.config.settings import connection_settings
from connectors.mysql.connector import MySqlConnector
from connectors.mysql.model import BinlogPosition, RowSource
from connectors.mysql.source import binlog_events as parse
from connectors.mysql.source import event_types as types
from connectors.mysql.source.binlog import BinlogClient
from connectors.testing import Run, SavedOffsets
from tests.bench import _mysql_rows as rows_of
from tests.bench._mysql_rows import DATABASE
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compose.local.mariadb import MariaDb
    from connectors.api import SourceRecord
    from connectors.mysql.schema.tables import MySqlTableState

_KINDS = {**dict.fromkeys(types.WRITES, ("write", "c", 1)), **dict.fromkeys(types.UPDATES, ("update", "u", 2))}


class Costs(NamedTuple):
    """CPU microseconds a row, and bytes a row in the log and as a record."""

    read: float
    decode: float
    build: float
    encode: float
    task: float
    log_bytes: float
    record_bytes: float


def _read_position(server: MariaDb) -> BinlogPosition:
    ((file, pos, *_),) = execute_sql(server, "SHOW MASTER STATUS")
    return BinlogPosition(file=file, pos=pos)


async def _read(config: Mapping[str, str], start: BinlogPosition, end: BinlogPosition) -> tuple[list[bytes], float]:
    """All raw events between two positions, and the CPU seconds that took."""
    client = BinlogClient(
        connection_settings(MySqlConnector.config_def.parse(config)),
        start,
        use_gtid=False,
        log=logging.getLogger(__name__),
    )
    await client.start()
    raws: list[bytes] = []
    cpu = time.process_time()
    try:
        file = start.file
        while True:
            received = await client.read()
            raws += received
            for raw in received:
                if raw[4] == types.ROTATE:
                    file = parse.read_rotate(raw).file
                elif file == end.file and int.from_bytes(raw[13:17], "little") >= end.pos:
                    return raws, time.process_time() - cpu
    finally:
        await client.close()


async def _task(config: Mapping[str, str], start: BinlogPosition, rows: int) -> tuple[MySqlTableState, float]:
    """The state of the table after a whole task has read the rows, and its CPU seconds from the first record on."""
    saved = SavedOffsets()
    saved.put({"server": config["topic.prefix"]}, {"file": start.file, "pos": start.pos})
    async with Run(MySqlConnector, config, offsets=saved) as run:
        (task,) = run.tasks
        done, cpu, counted = 0, 0.0, 0
        async for batch in task.batches():
            done += len(batch.records)
            if batch.records and not cpu:
                cpu, counted = time.process_time(), done
            if done >= rows:
                break
        used = (time.process_time() - cpu) * rows / max(rows - counted, 1)
        tables = task._run._reading._statements._tables  # type: ignore[attr-defined]
        states = [state for state in tables._by_map.values() if state is not None and state.captured]
    return states[-1], used


def _source(name: str) -> RowSource:
    return RowSource(ts_ms=1_700_000_000_000, ts_us=1_700_000_000_000_000, server_id=1, file=name, pos=4, gtid="0-1-2")


def _events(state: MySqlTableState, raws: list[bytes]) -> tuple[float, float, float, int, int]:
    """CPU seconds of decoding, building and encoding, with the rows and the bytes of their records."""
    converter = JsonConverter({"schemas.enable": "false"})
    decode = build = encode = 0.0
    count = size = 0
    records: list[SourceRecord] = []
    for raw in raws:
        kind = _KINDS.get(raw[4])
        if kind is None:
            continue
        began = time.process_time()
        head = parse.rows_header(raw)
        rows: list[Any] = state.decoder(kind[0], head.present, head.present_after)(raw, head.start, len(raw))
        decoded = time.process_time()
        base = {"file": "binlog.000001", "pos": 4, "server_id": 1, "event": 2}
        state.events.changes(kind[1], rows, _source("binlog.000001"), 0, base, base, records)  # type: ignore[arg-type]
        built = time.process_time()
        count += len(rows) // kind[2]
        decode, build = decode + decoded - began, build + built - decoded
        if len(records) >= 1000:  # about what is alive at one time in a task
            began = time.process_time()
            key, value = (converter.encoder("t", schema) for schema in (records[0].key_schema, records[0].value_schema))
            for record in records:
                size += len(key(record.key) or b"") + len(value(record.value) or b"")
            encode += time.process_time() - began
            records.clear()
    return decode, build, encode, count, size


async def run(server: MariaDb, rows: int) -> None:
    """Print the stages for inserts and updates of narrow rows and for inserts of wide ones."""
    print(
        f"\nstages, CPU us/row (task: the first three with all between them, measured as a whole)\n{'':30}{'read':>9}"
        f"{'decode':>9}{'build':>9}{'task':>9}{'encode':>9}{'bytes in the log':>20}{'as a record':>14}",
        flush=True,
    )
    for label, table, update in (
        ("narrow inserts", "narrow", False),
        ("narrow updates", "narrow", True),
        ("wide inserts", "wide", False),
    ):
        costs = await _measure(server, table, rows if table == "narrow" else rows // 4, update=update)
        print(
            f"{label:30}{costs.read:>9.2f}{costs.decode:>9.2f}{costs.build:>9.2f}{costs.task:>9.2f}{costs.encode:>9.2f}"
            f"{costs.log_bytes:>20.0f}{costs.record_bytes:>14.0f}",
            flush=True,
        )


async def _measure(server: MariaDb, table: str, rows: int, *, update: bool) -> Costs:
    highest = await asyncio.to_thread(rows_of.highest, server, table)
    if update and highest < rows:
        await asyncio.to_thread(rows_of.insert, server, table, highest + 1, rows - highest, 1000)
    start = await asyncio.to_thread(_read_position, server)
    act, first = (rows_of.update, 1) if update else (rows_of.insert, highest + 1)
    await asyncio.to_thread(act, server, table, first, rows, 100)
    end = await asyncio.to_thread(_read_position, server)
    config = {
        "connector.class": "mysql",
        "topic.prefix": f"t{secrets.token_hex(4)}",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.include.list": DATABASE,
        "snapshot.mode": "no_data",
    }
    raws, read = await _read(config, start, end)
    state, task = await _task(config, start, rows)
    _events(state, raws)  # the first run makes the decoder and the encoder
    gc.collect()
    decode, build, encode, count, size = _events(state, raws)
    scale = 1e6 / count
    return Costs(
        read * scale,
        decode * scale,
        build * scale,
        encode * scale,
        task * scale,
        sum(map(len, raws)) / count,
        size / count,
    )
