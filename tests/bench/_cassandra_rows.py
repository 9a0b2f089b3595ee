"""The data that the Cassandra benchmark writes: rows of two keys and six columns, each a mutation, and copies of their log."""

# ruff: noqa: S608  # the names in statements are this module's
from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from compose.local.cassandra_cluster import execute_cql
from compose.local.scylla.wire import CONSISTENCY, WireConnection, pack_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compose.local.cassandra import CassandraNode

KEYSPACE: Final = "bench"
TABLE: Final = "events"
FULL: Final = f"{KEYSPACE}.{TABLE}"
#: Names of columns are in every mutation.
_COLUMNS: Final = "pk, ck, customer, note, amount, ratio, active, sent_us"
_NAMES: Final = _COLUMNS.split(", ")
_PER_BATCH: Final = 50
_FILLER: Final = b"a line of text as long as notes of an order are: " * 3


class Written(NamedTuple):
    """The content of the log: rows, bytes of the segments, and the seconds that writing them took."""

    rows: int
    bytes: int
    seconds: float


def make_table(node: CassandraNode) -> None:
    """Make keyspace and table."""
    execute_cql(
        node.address,
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
        f"CREATE TABLE {FULL} (pk bigint, ck int, customer text, note text, amount bigint, ratio double, active boolean, "
        "sent_us bigint, PRIMARY KEY (pk, ck)) WITH cdc = true",
    )


def insert(names: list[str] | None = None) -> str:
    """The statement of one row."""
    names = names or _NAMES
    return f"INSERT INTO {FULL} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def cells(number: int, sent_us: int) -> list[bytes]:
    """Cells of row ``number``; every row has a partition of its own, so that a batch is as many mutations as rows."""
    return [
        number.to_bytes(8, "big"),
        (number & 0xFFFF).to_bytes(4, "big"),
        b"customer-%08d" % (number % 100_000),
        (b"%d " % number + _FILLER)[:78],
        (number * 31).to_bytes(8, "big"),
        struct.pack(">d", number / 7),
        b"\x01" if number & 1 else b"\x00",
        sent_us.to_bytes(8, "big"),
    ]


def write(node: CassandraNode, rows: int) -> Written:
    """Write the rows, and shut the node down and start it, so that all of its segments are complete. Blocks."""
    connection = WireConnection(node.address)
    began = time.monotonic()
    try:
        connection.pipelined(_bodies(connection, rows), 8)
    finally:
        connection.close()
    seconds = time.monotonic() - began
    node.stop()
    node.start()
    size = sum(segment.stat().st_size for segment in finished(node.cdc_raw))
    return Written(rows, size, seconds)


def _bodies(connection: WireConnection, rows: int) -> Iterator[bytes]:
    statement = insert()
    for first in range(1, rows + 1, _PER_BATCH):
        sent = time.time_ns() // 1000
        numbers = range(first, min(first + _PER_BATCH, rows + 1))
        parts = [connection.packed(statement, cells(number, sent)) for number in numbers]
        yield pack_batch(parts, len(parts), CONSISTENCY["ONE"])


def finished(folder: Path) -> list[Path]:
    """Complete segments with changes, in order."""
    index_files = [
        path for path in folder.glob("CommitLog-*_cdc.idx") if "COMPLETED" in path.read_text(encoding="ascii")
    ]
    segments = [index_file.with_name(index_file.name.replace("_cdc.idx", ".log")) for index_file in index_files]
    return sorted(segments, key=lambda segment: int(segment.stem.split("-")[2]))


def remove(folder: Path) -> None:
    """Delete the complete segments."""
    for segment in finished(folder):
        segment.unlink()
        segment.with_name(f"{segment.stem}_cdc.idx").unlink()


def copied(source: Path, target: Path) -> Path:
    """The complete segments linked into a folder of their own, so that a run may delete them; the folder."""
    target.mkdir(parents=True)
    for segment in finished(source):
        for path in (segment, segment.with_name(f"{segment.stem}_cdc.idx")):
            os.link(path, target / path.name)
    return target
