"""The cost of decoding a row of the binlog or of a snapshot, in microseconds of CPU: ``python -m tests.bench.mysql_decode``.

The events are those of a real MariaDB that is started for it; mysql-replication decodes the very same bytes.
``MILLRACE_TEST_MARIADB=127.0.0.1:port`` names a running server of the local stack to use instead.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pymysql.protocol import MysqlPacket
from pymysqlreplication import row_event
from pymysqlreplication.packet import BinLogPacketWrapper

from compose.local.mariadb import MariaDb
from connectors.mysql.rows.decode import compile_rows
from connectors.mysql.rows.text_rows import compile_text, select_list
from connectors.mysql.schema import table_map
from connectors.mysql.source import binlog_events
from tests.bench._common import environment
from tests.bench.converters import cost
from tests.integration.mysql.rows_world import KINDS, Captured, World, plans, structure, text_packets
from tests.support.settings import mysql_values

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 2000
_NARROW = """CREATE TABLE narrow (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(100) NOT NULL, mail VARCHAR(60),
    quantity INT NOT NULL, price DECIMAL(10,2), active TINYINT(1) NOT NULL, created DATETIME NOT NULL,
    changed TIMESTAMP(3) NULL, note TEXT)"""
_NARROW_ROWS = f"""INSERT INTO narrow SELECT seq, CONCAT('customer name ', seq), CONCAT('first.last.', seq, '@example.com'),
    seq % 50, seq * 1.01, seq % 2, '2020-01-01' + INTERVAL seq * 977 MINUTE, '2020-01-01' + INTERVAL seq * 977 SECOND,
    IF(seq % 4, 'a note of some words', NULL) FROM seq_1_to_{ROWS}"""
_WIDE_COLUMNS = [
    ("INT NOT NULL", "seq"),
    ("BIGINT UNSIGNED", "seq"),
    ("VARCHAR(50)", "CONCAT('v', seq)"),
    ("DOUBLE", "seq / 7"),
    ("DECIMAL(12,4)", "seq / 8"),
    ("DATE", "'2020-01-01' + INTERVAL seq DAY"),
    ("DATETIME(6)", "'2020-01-01 01:02:03.000004' + INTERVAL seq HOUR"),
    ("ENUM('new','old')", "1 + seq % 2"),
    ("VARBINARY(20)", "UNHEX(MD5(seq))"),
    ("SMALLINT", "seq % 1000"),
]
_WIDE = (
    "CREATE TABLE wide (id INT NOT NULL PRIMARY KEY, "
    + ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(_WIDE_COLUMNS * 5))
    + ")"
)
_WIDE_ROWS = (
    "INSERT INTO wide SELECT seq, " + ", ".join(value for _, value in _WIDE_COLUMNS * 5) + f" FROM seq_1_to_{ROWS}"
)


class _Driver(NamedTuple):
    """The part of a connection that mysql-replication uses for control."""

    charset: str = "utf8mb4"

    def _get_dbms(self) -> str:
        return "mariadb"


def _sized(event: bytes) -> bytes:
    """The event without the checksum in its size."""
    return event[:9] + len(event).to_bytes(4, "little") + event[13:]


def _library(events: list[Captured]) -> int:
    """Decode the events by mysql-replication; the number of rows."""
    maps: dict[int, Any] = {}
    rows = 0
    body = b""
    for captured in events:
        packets = [_sized(captured.event)]
        if captured.body != body:
            body = captured.body
            packets.insert(0, _sized(captured.event[:4] + b"\x13" + captured.event[5:19] + body))
        for packet in packets:
            wrapper = BinLogPacketWrapper(
                MysqlPacket(b"\0" + packet, "utf8mb4"),
                maps,
                _Driver(),
                (11, 4, 5),
                use_checksum=False,
                allowed_events=_EVENTS,
                only_tables=None,
                ignored_tables=None,
                only_schemas=None,
                ignored_schemas=None,
                freeze_schema=False,
                ignore_decode_errors=True,
                verify_checksum=False,
                optional_meta_data=None,
                enable_logging=False,
            )
            if isinstance(wrapper.event, row_event.TableMapEvent):
                maps[wrapper.event.table_id] = wrapper.event.get_table()
            else:
                rows += len(wrapper.event.rows)
    return rows


_EVENTS = [row_event.TableMapEvent, row_event.WriteRowsEvent, row_event.UpdateRowsEvent, row_event.DeleteRowsEvent]


def _once(action: Callable[[], int]) -> float:
    """Microseconds of CPU per row, the better of three."""
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        rows = action()
        best = min(best, (time.process_time() - started) / rows * 1e6)
    return best


def _decoders(events: list[Captured], owner: tuple[int, int] | None = None) -> Callable[[], int]:
    """A function that decodes the events and gives the number of row images."""
    options = mysql_values()
    calls = []
    decoders: dict[tuple[bytes, int, bytes], Any] = {}
    for captured in events:
        head = binlog_events.rows_header(captured.event)
        key = captured.body[8:], captured.event[4], head.present
        if key not in decoders:
            table = structure(captured, None)
            decoders[key] = compile_rows(
                table,
                plans(table, options),
                options,
                kind=KINDS[captured.event[4]],
                present=head.present,
                present_after=head.present_after,
                owner=owner,
            )
        calls.append((decoders[key], captured.event, head.start, len(captured.event)))

    def run() -> int:
        return sum(len(decode(event, start, end)) for decode, event, start, end in calls)

    return run


def _server(stack: ExitStack) -> World:
    named = os.environ.get("MILLRACE_TEST_MARIADB")
    if named:
        host, _, port = named.rpartition(":")
        world = World(host, int(port), "millrace", "millrace", "millrace_bench_decode", 2901)
    else:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(MariaDb(Path(folder), port=None, durable=False))
        assert server.port is not None
        world = World("127.0.0.1", server.port, server.user, server.password, "millrace_bench_decode", 2901)
    stack.callback(world.close)
    return world


def main(argv: list[str]) -> int:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    sys.stdout.write(f"{environment()}\n")
    with ExitStack() as stack:
        world = _server(stack)
        for name, create, fill, change in (
            ("narrow", _NARROW, _NARROW_ROWS, "UPDATE narrow SET quantity = quantity + 1"),
            ("wide", _WIDE, _WIDE_ROWS, "UPDATE wide SET c0 = c0 + 1"),
        ):
            inserts, updates = world.capture(create, fill), world.capture(change)
            columns = len(table_map.parse_table_map(inserts[0].body).columns)
            _show(f"{name} ({columns} columns)", inserts, updates)
            _show_snapshot(world, name, columns)
    return 0


def _show(label: str, inserts: list[Captured], updates: list[Captured]) -> None:
    def line(stage: str, ours: float, theirs: float | None = None) -> None:
        peer = "" if theirs is None else f"   mysql-replication {theirs:8.2f} us   {theirs / ours:5.1f} x"
        sys.stdout.write(f"{label + ': ' + stage:<48}{ours:8.3f} us{peer}\n")

    run = _decoders(inserts)
    line("insert, per row", cost(run, run()), _once(lambda: _library(inserts)))
    pairs = _decoders(updates)
    line("update, per row of two images", cost(pairs, pairs() // 2), _once(lambda: _library(updates)))
    others = _decoders(inserts, (1, 2))
    line("a row of another shard", cost(others, others()))
    body = inserts[0].body
    line("table map", cost(lambda: table_map.parse_table_map(body)))
    table = structure(inserts[0], None)
    options = mysql_values()
    chosen, present = plans(table, options), binlog_events.rows_header(inserts[0].event).present
    line("compiling a decoder", cost(lambda: compile_rows(table, chosen, options, kind="write", present=present)))


def _show_snapshot(world: World, name: str, columns: int) -> None:
    table, options = world.definition(name), mysql_values()
    chosen = plans(table, options)
    decode = compile_text(table, chosen, options)
    packets = text_packets(world.driver, f"SELECT {', '.join(select_list(table, chosen))} FROM {name}")
    figure = cost(lambda: [decode(packet) for packet in packets], len(packets))
    sys.stdout.write(f"{f'{name} ({columns} columns): row of a snapshot':<48}{figure:8.3f} us\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
