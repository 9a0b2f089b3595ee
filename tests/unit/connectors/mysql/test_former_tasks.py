"""Rows that the tasks of a former division have delivered are left out, whatever their events hold."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from connectors.mysql.source import event_types as types
from tests.unit.connectors.mysql.synthetic import FILE, UUID, Log, keys, reader, rows_body, table_map

if TYPE_CHECKING:
    from connectors.api import Position

#: In the first block of numbers, and in the second one, which is the other task's.
FIRST, SECOND = 5, 5_000


def saved(done: str) -> Position:
    """The position of one task, after two of which the second one was ahead."""
    return {
        "file": FILE,
        "pos": 1000,
        "gtids": f"{UUID}:1-4",
        "source_server": 1,
        "shard_layout": 2,
        "shard_origin": "new:b.000001:4:0:0",
        "shard_done": done,
    }


def updates(*numbers: int) -> bytes:
    """Updates of ``v`` with MINIMAL images: before it the key, after it what was set."""
    body = (90).to_bytes(6, "little") + b"\x01\0" + b"\x02\0" + b"\x03" + b"\x01" + b"\x02"
    return body + b"".join(b"\0" + struct.pack("<i", number) + b"\0" + struct.pack("<i", 1) for number in numbers)


def unsigned_map() -> bytes:
    """As ``table_map``, with ``id BIGINT UNSIGNED``."""
    return (
        table_map("t", 90).replace(bytes([3, 3, 3, 15]), bytes([3, 8, 3, 15])).replace(b"\x01\x01\0", b"\x01\x01\x80")
    )


def unsigned_body(*numbers: int) -> bytes:
    body = (90).to_bytes(6, "little") + b"\x01\0" + b"\x02\0" + b"\x03" + b"\x01"
    return body + b"".join(b"\0" + struct.pack("<q", number) for number in numbers)


def log_of(table: bytes, kind: int, rows: bytes) -> Log:
    log = Log()
    log.gtid(5)
    log.query("BEGIN", "")
    log.event(types.TABLE_MAP, table, inside=True)
    log.event(kind, rows, inside=True)
    log.xid()
    return log


EVENTS = {
    "whole rows": (table_map("t", 90), types.WRITE_ROWS, rows_body([(FIRST, 1, b""), (SECOND, 1, b"")], 90)),
    "minimal": (table_map("t", 90), types.UPDATE_ROWS, updates(FIRST, SECOND)),
}


@pytest.mark.parametrize("event", EVENTS)
async def test_rows_of_the_task_that_was_ahead_are_left_out(event: str) -> None:
    log = log_of(*EVENTS[event])
    assert keys(await reader(saved("0/2@7:1000:0:0,1/2@7:99000:0:0")).feed(log.since(1000))) == [FIRST]
    assert keys(await reader(saved("")).feed(log.since(1000))) == [FIRST, SECOND]


@pytest.mark.parametrize("how", ["long", "precise"])
async def test_keys_without_sign_are_divided_as_they_are_stored(how: Any) -> None:
    log = log_of(unsigned_map(), types.WRITE_ROWS, unsigned_body(FIRST, SECOND))
    stream = reader(saved("1/2@7:99000:0:0"), unsigned=how)
    assert keys(await stream.feed(log.since(1000))) == [FIRST]
