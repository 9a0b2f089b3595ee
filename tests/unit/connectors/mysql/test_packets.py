"""Packets to events: cut at every place, joined, damaged; errors of the server in plain words."""

from __future__ import annotations

import os
import struct
import sys
import threading
from typing import TYPE_CHECKING
from zlib import crc32

import cramjam
import pytest

from connectors.errors import Fatal, Retriable
from connectors.mysql.source import event_types as types
from connectors.mysql.source.gtid import MySqlGtids
from connectors.mysql.source.packets import (
    DuplicateIdError,
    Framer,
    PurgedError,
    TornFileError,
    dump_command,
    dump_error,
    dump_gtid_command,
    transaction_payload,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 0xFFFFFF


def event(kind: int, body: bytes, *, checksum: bool = True, next_pos: int = 100, flags: int = 0) -> bytes:
    data = struct.pack("<IBIIIH", 1, kind, 7, 19 + len(body) + 4 * checksum, next_pos, flags) + body
    return data + struct.pack("<I", crc32(data)) if checksum else data


def format_description(*, checksum: bool) -> bytes:
    body = struct.pack("<H50sIB", 4, b"8.4.0", 0, 19) + bytes([8] * 42) + bytes([checksum])
    data = struct.pack("<IBIIIH", 1, types.FORMAT_DESCRIPTION, 7, 19 + len(body) + 4, 126, 0) + body
    return data + struct.pack("<I", crc32(data) if checksum else 0)


def packets(payloads: Sequence[bytes], first: int = 1) -> bytes:
    parts, number = [], first
    for payload in payloads:
        rest, more = payload, True
        while more:
            part, rest, more = rest[:LONGEST], rest[LONGEST:], len(rest) >= LONGEST
            parts.append(struct.pack("<I", len(part) | (number & 0xFF) << 24) + part)
            number += 1
    return b"".join(parts)


def feed(framer: Framer, data: bytes, step: int) -> list[bytes]:
    events: list[bytes] = []
    at = 0
    while at < len(data):
        room = framer.room()
        count = min(len(room), step, len(data) - at)
        room[:count] = data[at : at + count]
        framer.filled(count)
        at += count
        del room
        if framer.complete:
            events += framer.events()
    return events


def ok(events: Sequence[bytes]) -> list[bytes]:
    return [b"\0" + raw for raw in events]


@pytest.mark.parametrize("step", [1, 3, 50, 4096])
@pytest.mark.parametrize("size", [64, 300, 1 << 16])
def test_events_come_out_as_they_went_in_however_the_bytes_arrive(step: int, size: int) -> None:
    sent = [event(types.QUERY, os.urandom(number * 7)) for number in range(60)] + [event(types.XID, bytes(8))] * 300
    events = feed(Framer(size=size), packets(ok([format_description(checksum=True), *sent])), step)
    assert events == [format_description(checksum=True)[:-4], *(raw[:-4] for raw in sent)]


def test_each_file_says_whether_it_has_checksums() -> None:
    plain = event(types.XID, bytes(8), checksum=False)
    checked = event(types.XID, bytes(8))
    rotate = event(types.ROTATE, struct.pack("<Q", 4) + b"b.000002", next_pos=0, flags=types.ARTIFICIAL)
    bare = event(types.ROTATE, struct.pack("<Q", 4) + b"b.000003", next_pos=0, flags=types.ARTIFICIAL, checksum=False)
    sent = [rotate, format_description(checksum=False), plain, bare, format_description(checksum=True), checked, rotate]
    events = feed(Framer(), packets(ok(sent)), 1 << 20)
    assert events == [rotate[:-4], sent[1][:-4], plain, bare, sent[4][:-4], checked[:-4], rotate[:-4]]


@pytest.mark.parametrize("length", [LONGEST - 2, LONGEST - 1, 2 * LONGEST + 5])
def test_events_of_sixteen_megabytes_are_joined(length: int) -> None:
    large = event(types.WRITE_ROWS, bytes(length - 23))
    small = event(types.XID, bytes(8))
    framer = Framer()
    events = feed(framer, packets(ok([format_description(checksum=True), small, large, small])), 1 << 20)
    assert [len(raw) for raw in events[1:]] == [27, length - 4, 27]
    assert events[2] == large[:-4]
    feed(framer, packets(ok([small]), len(events) + 1 + (length + 1) // LONGEST), 1 << 20)
    assert len(framer.room()) <= 1 << 20  # the buffer is small again


def test_a_damaged_event_is_an_error_once_those_before_it_were_taken() -> None:
    good, bad = event(types.XID, bytes(8)), bytearray(event(types.QUERY, b"update"))
    bad[30 - 8] ^= 1
    framer = Framer()
    data = packets(ok([format_description(checksum=True), good, bytes(bad), good]))
    assert len(feed(framer, data, 1 << 20)) == 2
    with pytest.raises(Retriable, match=r"checksum of a QUERY \(2\) event"):
        framer.events()
    unchecked = Framer(verify=False)
    assert feed(unchecked, data, 1 << 20)[2] == bytes(bad[:-4])


def test_packets_that_are_lost_are_noticed() -> None:
    framer = Framer()
    data = packets(ok([format_description(checksum=True)])) + packets(ok([event(types.XID, bytes(8))]), 3)
    assert len(feed(framer, data, 1 << 20)) == 1
    with pytest.raises(Retriable, match="out of order"):
        framer.events()


def test_an_error_of_the_server_comes_after_the_events_before_it() -> None:
    error = b"\xff" + struct.pack("<H", 1236) + b"#HY000Could not find first log file name in binary log index file"
    framer = Framer()
    assert len(feed(framer, packets([*ok([format_description(checksum=True)]), error]), 1 << 20)) == 1
    with pytest.raises(PurgedError, match=r"1236: Could not find first log file.*snapshot.mode=when_needed"):
        framer.events()
    ended = Framer()
    with pytest.raises(Retriable, match="ended the binlog stream"):
        feed(ended, packets([b"\xfe\0\0\2\0"]), 100)


@pytest.mark.parametrize(("code", "text", "kind", "advice"), [
    (1236, "Could not find first log file name in binary log index file", PurgedError, "snapshot.mode"),
    (1236, "Cannot replicate because the source purged required binary logs.", PurgedError, "snapshot.mode"),
    (1236, "The slave is connecting using CHANGE MASTER TO MASTER_AUTO_POSITION = 1, but the master has purged binary logs",
     PurgedError, "binlog_expire_logs_seconds"),
    (1236, "Client requested source to start replication from position > file size", PurgedError, "snapshot.mode"),
    (1236, "Client requested master to start replication from impossible position", PurgedError, "snapshot.mode"),
    (1236, "Error: connecting slave requested to start from GTID 0-1-9, which is not in the master's binlog", PurgedError,
     "purged"),
    (1236, "Slave has more GTIDs than the master has, using the master's SERVER_UUID.", PurgedError, "another server"),
    (1236, "A slave with the same server_uuid/server_id as this slave has connected to the master", DuplicateIdError,
     "database.server.id"),
    (1236, "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source", Fatal,
     "SET GLOBAL max_allowed"),
    (1236, "binlog truncated in the middle of event; consider out of disk space on master", TornFileError, "disk"),
    (1236, "Binary log is not open", Fatal, "log_bin"),
    (1227, "Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s)", Fatal, "GRANT REPLICATION SLAVE"),
    (1236, "something new", Fatal, "something new"),
    (1053, "Server shutdown in progress", Retriable, "shut down"),
    (1927, "Connection was killed", Retriable, "killed"),
])  # fmt: skip
def test_errors_say_how_to_fix_them(code: int, text: str, kind: type[Exception], advice: str) -> None:
    failure = dump_error(code, text)
    assert type(failure) is kind
    assert advice in str(failure)


def test_dump_commands() -> None:
    assert dump_command("b.000001", 4, 77, 2) == b"\x12\x04\0\0\0\x02\0\x4d\0\0\0b.000001"
    executed = MySqlGtids.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
    data = executed.encoded()
    assert dump_gtid_command(executed, 77) == b"".join(
        (b"\x1e\x04\0\x4d\0\0\0", bytes(4), b"\x04", bytes(7), struct.pack("<I", len(data)), data)
    )


# Compressed transactions of MySQL.


def payload_event(
    inner: bytes, compression: int, *, uncompressed: int | None = None, body: bytes | None = None
) -> bytes:
    def number(value: int) -> bytes:
        return (
            bytes([value])
            if value < 251
            else b"\xfc" + struct.pack("<H", value)
            if value < 1 << 16
            else (b"\xfd" + struct.pack("<I", value)[:3] if value < 1 << 24 else b"\xfe" + struct.pack("<Q", value))
        )

    def field(kind: int, value: int) -> bytes:
        return number(kind) + number(len(number(value))) + number(value)

    if body is None:
        body = bytes(cramjam.zstd.compress(inner)) if compression == 0 else inner
    length = len(inner) if uncompressed is None else uncompressed
    head = field(2, compression) + field(3, length) + field(9, 1) + field(1, len(body)) + b"\0"
    return event(types.TRANSACTION_PAYLOAD, head + body, checksum=False)


INNER = [
    event(types.TABLE_MAP, b"map", checksum=False),
    *(event(types.WRITE_ROWS, os.urandom(20 * number), checksum=False) for number in range(40)),
    event(types.XID, bytes(8), checksum=False),
]


@pytest.mark.parametrize("compression", [0, 255])
@pytest.mark.parametrize("at_once", [1 << 20, 10])
def test_the_events_of_a_compressed_transaction(compression: int, at_once: int) -> None:
    events = transaction_payload(payload_event(b"".join(INNER), compression), at_once=at_once)
    assert list(events) == INNER


def test_a_large_transaction_is_uncompressed_chunk_by_chunk_and_can_be_left() -> None:
    inner = [event(types.WRITE_ROWS, bytes(100_000), checksum=False)] * 300
    before = threading.active_count()
    events = transaction_payload(payload_event(b"".join(inner), 0), at_once=1 << 20)
    assert [next(events) for _ in range(5)] == inner[:5]
    assert threading.active_count() == before + 1  # most is not uncompressed yet
    events.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_a_large_event_of_a_compressed_transaction_is_put_together_once() -> None:
    inner = [event(types.WRITE_ROWS, os.urandom(8 << 20), checksum=False), INNER[0]]  # a pipe gives 64 KiB at a time
    sizes = 0

    def count(_frame: object, kind: str, called: object) -> None:
        nonlocal sizes
        sizes += kind == "c_call" and getattr(called, "__name__", "") == "from_bytes"

    events = transaction_payload(payload_event(b"".join(inner), 0), at_once=1 << 20)
    sys.setprofile(count)
    try:
        result = list(events)
    finally:
        sys.setprofile(None)
    assert result == inner
    assert sizes <= 4, "not all of it again for each part"


@pytest.mark.parametrize("at_once", [1 << 20, 10])
def test_a_damaged_or_unknown_compressed_transaction_is_refused(at_once: int) -> None:
    inner = b"".join(INNER)
    whole = payload_event(inner, 0)
    broken = bytes(cramjam.zstd.compress(inner))[:-10]
    short = payload_event(inner[:-1], 0)
    for bad in (payload_event(inner, 0, body=broken), whole[:-5], whole[:22], short, payload_event(inner, 7)):
        with pytest.raises(Fatal, match="transaction"):
            list(transaction_payload(bad, at_once=at_once))
