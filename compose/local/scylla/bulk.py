"""Fills a log table as quickly as the server takes it, for benchmarks: INSERTs without images, the base table left alone."""

import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from compose.local.scylla.cells.codec import encode_cell, encode_varint
from compose.local.scylla.cells.statements import quote_name
from compose.local.scylla.client import Emulation, now_us
from compose.local.scylla.schema import EmulatedColumn, EmulatedTable
from compose.local.scylla.wire import CONSISTENCY, pack_batch
from connectors.cql.types import CqlType
from worker.fetch.errors import StackError

_EPOCH_TICKS = 0x01B21DD213814000  # of time uuids, 1582-10-15, before 1970
_INSERT = 2
_WHOLE = {"bigint": 8, "counter": 8, "int": 4, "smallint": 2, "timestamp": 8, "tinyint": 1}

#: Cells of all columns of the table for row number i, in the order of `Table.columns`; None leaves a column out.
Cells = Callable[[int], Sequence[bytes | None]]


@dataclass(frozen=True, slots=True)
class Filled:
    """The result of a bulk write.

    Attributes:
        rows: Number of rows.
        streams: Number of streams that the rows are spread over.
        start_us: First write timestamp.
        end_us: All write timestamps are before it.
        seconds: Duration of the writes.
    """

    rows: int
    streams: int
    start_us: int
    end_us: int
    seconds: float


def typical_cells(table: EmulatedTable, payload: int = 107) -> Cells:
    """Cells for any table of simple types, different in each row, of about `payload` bytes in a row. Pure."""
    text_columns = [column for column in table.columns if column.type.name in {"ascii", "blob", "text", "varchar"}]
    fixed = sum(_WHOLE.get(column.type.name, 8) for column in table.columns if column not in text_columns)
    size = max(1, (payload - fixed) // max(1, len(text_columns)))
    makers = [_cell_maker(column, size) for column in table.columns]
    return lambda number: [make(number) for make in makers]


def _cell_maker(column: EmulatedColumn, size: int) -> Callable[[int], bytes | None]:
    kind = column.type.name
    if kind in {"ascii", "blob", "text", "varchar"}:
        filler = (b"millrace " * (size // 9 + 1))[:size]
        return lambda number: (b"%d " % number + filler)[:size]
    if kind in _WHOLE:
        width, mask = _WHOLE[kind], (1 << (8 * _WHOLE[kind] - 1)) - 1
        return lambda number: (number & mask).to_bytes(width, "big")
    if kind == "double":
        return lambda number: struct.pack(">d", number / 7)
    if kind == "boolean":
        return lambda number: b"\x01" if number & 1 else b"\x00"
    if kind in {"uuid", "timeuuid"}:
        return lambda number: struct.pack(
            ">QQ", number * 0x9E3779B97F4A7C15 % (1 << 48) << 16 | 0x1000, 1 << 63 | number
        )
    if kind == "varint":
        return encode_varint
    if kind == "decimal":
        return lambda number: encode_cell(CqlType("decimal"), f"{number}.25")
    return lambda _: None


def fill_log(
    emulation: Emulation, full: str, rows: int, *, start_us: int | None = None, end_us: int | None = None,
    cells: Cells | None = None, payload: int = 107, per_batch: int = 100, in_flight: int = 16,
) -> Filled:  # fmt: skip
    """Write log rows evenly over all streams that are valid at `start_us`, each an INSERT of its own. Blocks.

    Args:
        emulation: The emulation; not a real Scylla, whose log is read-only.
        full: `keyspace.table` with CDC.
        rows: How many.
        start_us: Write timestamp of the first row; one minute before `end_us` when None.
        end_us: Before it lie all write timestamps; now when None.
        cells: Makes the rows' cells, else `typical_cells(table, payload)`.
        payload: About how many bytes a row's cells have.
        per_batch: Rows per request.
        in_flight: Requests on their way at one time.

    Raises:
        StackError: It is a real Scylla, the table has no log, or the server refused a row.
    """
    table = emulation.table(full)
    if not emulation.emulated or not table.enabled:
        raise StackError(
            f"the log of {full} cannot be filled: only the emulation's logs can, of tables with CDC enabled"
        )
    end = now_us() if end_us is None else end_us
    start = end - 60_000_000 if start_us is None else start_us
    ring = emulation.ring(full, start // 1000)
    streams = sorted({stream for item in ring.streams for stream in item})
    connection = emulation.connection
    began = time.monotonic()
    # Null cells are left unset, so the statement names all columns.
    names = ["cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", "cdc$end_of_batch"]
    names += [item.name for item in table.columns]
    statement = f"INSERT INTO {table.log} ({', '.join(map(quote_name, names))}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
    identity = connection.prepare(f"{statement} USING TTL {table.ttl}")
    head = struct.pack(">BH", 1, len(identity)) + identity + struct.pack(">Hi", len(names), 16)
    packed = _pack_rows(head, streams, rows, (start, end), cells or typical_cells(table, payload))
    connection.pipelined(_pack_batches(packed, per_batch, CONSISTENCY[connection.consistency]), in_flight)
    return Filled(rows, min(rows, len(streams)), start, end, time.monotonic() - began)


def _pack_rows(
    head: bytes, streams: Sequence[bytes], rows: int, span: tuple[int, int], cells: Cells
) -> Iterator[bytes]:
    """Rows as parts of batches, stream by stream and in order of time within each."""
    first, last = span[0] * 10 + _EPOCH_TICKS, span[1] * 10 + _EPOCH_TICKS
    node = 1 << 63 | random.getrandbits(30) << 32  # not a secret
    fixed = struct.pack(">i4sicic", 4, b"\0\0\0\0", 1, bytes((_INSERT,)), 1, b"\x01")
    size, time_layout = struct.Struct(">i").pack, struct.Struct(">iIHHQ").pack
    count = len(streams)
    for stream_number, stream in enumerate(streams):
        start = head + stream
        # Row i goes to stream i modulo the number of streams: all streams have changes all the time.
        for number in range(stream_number, rows, count):
            ticks = first + (last - first) * number // rows
            parts = [
                start,
                time_layout(16, ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF | 0x1000, node | number),
                fixed,
            ]
            for cell in cells(number):
                if cell is None:
                    parts.append(b"\xff\xff\xff\xfe")
                else:
                    parts += (size(len(cell)), cell)
            yield b"".join(parts)


def _pack_batches(packed: Iterator[bytes], per_batch: int, consistency: int) -> Iterator[bytes]:
    batch: list[bytes] = []
    for row in packed:
        batch.append(row)
        if len(batch) == per_batch:
            yield pack_batch(batch, per_batch, consistency)
            batch = []
    if batch:
        yield pack_batch(batch, len(batch), consistency)
