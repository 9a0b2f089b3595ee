"""The stream of packets behind a binlog dump, cut into events. No input or output happens here.

A packet is three bytes of length, a number, and the payload; a payload of 16 MiB - 1 bytes continues in the next packet. In
a dump each payload is a zero byte and an event, or an error.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from connectors.errors import Fatal, MillraceError, Retriable
from connectors.mysql.source import event_types as types
from connectors.mysql.source.binlog_events import HEADER_SIZE
from connectors.mysql.source.payload import transaction_payload

if TYPE_CHECKING:
    from connectors.mysql.source.gtid import MySqlGtids

__all__ = [
    "DuplicateIdError",
    "Framer",
    "PurgedError",
    "dump_command",
    "dump_error",
    "dump_gtid_command",
    "server_error",
    "transaction_payload",
]

#: A payload of this length continues in the next packet.
LONGEST: Final = 0xFFFFFF
BINLOG_DUMP: Final = 0x12
BINLOG_DUMP_GTID: Final = 0x1E
#: Dump flags. MariaDB: send statements before their rows; MySQL: start after a set of GTIDs.
SEND_ANNOTATE_ROWS: Final = 0x02
THROUGH_GTID: Final = 0x04

_U32: Final = struct.Struct("<I")
_HEAD: Final = 4
_CHECKSUM: Final = 4
#: OK byte and header.
_SMALLEST: Final = 1 + HEADER_SIZE
_ROTATE: Final = types.ROTATE
_FORMAT: Final = types.FORMAT_DESCRIPTION
_SPECIAL: Final = (_ROTATE, _FORMAT)


class PurgedError(Fatal):
    """The server does not have the position from which the stream should continue, or not any more."""


class TornFileError(Fatal):
    """The file ends in the middle of an event: MariaDB leaves what it had written of a transaction when it broke down."""


class DuplicateIdError(Fatal):
    """Another reader of the binlog has taken our server id."""


def dump_command(file: str, pos: int, server_id: int, flags: int = 0) -> bytes:
    """COM_BINLOG_DUMP: begin at ``pos`` of ``file``; with MariaDB's ``@slave_connect_state`` set, ``file`` is empty."""
    return struct.pack("<BIHI", BINLOG_DUMP, pos, flags, server_id) + file.encode("utf-8", "surrogateescape")


def dump_gtid_command(executed: MySqlGtids, server_id: int) -> bytes:
    """COM_BINLOG_DUMP_GTID: all transactions but ``executed``; of MySQL only."""
    data = executed.encoded()
    return struct.pack("<BHIIQI", BINLOG_DUMP_GTID, THROUGH_GTID, server_id, 0, 4, len(data)) + data


class Framer:
    """Cuts a stream of packets into events. Not thread-safe.

    Use: receive into ``room()``, say how much with ``filled(n)``, take ``events()``.

    Memory: the buffer, which grows to the largest packet (16 MiB) and shrinks again, and the event that is being put together.

    Attributes:
        checksums: whether events end in a CRC32; the format description of each file says it.
        received: bytes so far.
    """

    def __init__(self, *, verify: bool = True, size: int = 1 << 20, sequence: int = 1) -> None:
        """``verify``: whether checksums are; ``sequence``: number of the first packet."""
        self.checksums = False
        self._verify = verify
        self.received = 0
        self._size = size
        self._buffer = bytearray(size)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._sequence = sequence
        self._parts: list[bytes] = []
        self._failed: MillraceError | None = None

    def room(self) -> memoryview:
        """The free part of the buffer, never empty. Release it (or let it go) before the next call."""
        start, end = self._start, self._end
        required = self._size
        if end - start >= _HEAD:
            required = max(required, _HEAD + (_U32.unpack_from(self._buffer, start)[0] & LONGEST))
        if required != len(self._buffer) and (required > len(self._buffer) or end - start < self._size):
            buffer = bytearray(required)
            buffer[: end - start] = self._view[start:end]
            self._buffer, self._view = buffer, memoryview(buffer)
            self._start, self._end = 0, end - start
        elif start and (start == end or len(self._buffer) - end < self._size >> 1):
            remainder = bytes(self._view[start:end])
            self._buffer[: len(remainder)] = remainder
            self._start, self._end = 0, len(remainder)
        return self._view[self._end :]

    def filled(self, count: int) -> None:
        """Accept ``count`` bytes that the caller has put into ``room()``."""
        self._end += count
        self.received += count

    @property
    def complete(self) -> bool:
        """Whether a whole packet is there."""
        received = self._end - self._start - _HEAD
        return received >= 0 and received >= _U32.unpack_from(self._buffer, self._start)[0] & LONGEST

    def events(self) -> list[bytes]:
        """All events that are there wholly, in order, without their checksums.

        An error is raised once the events before it have been taken.

        Raises:
            Retriable: the server ended the stream, or data is damaged.
            PurgedError: see there.
            Fatal: the server can't send on; or another error of it.
        """
        complete_events: list[bytes] = []
        buffer, view, at, end = self._buffer, self._view, self._start, self._end
        sequence, checksums, verify = self._sequence, self.checksums, self._verify
        unpack = _U32.unpack_from
        try:
            while end - at >= _HEAD and self._failed is None:
                head = unpack(buffer, at)[0]
                length = head & LONGEST
                stop = at + _HEAD + length
                if stop > end:
                    break
                body = at + _HEAD
                if self._parts or length < _SMALLEST or length == LONGEST or buffer[body]:
                    if length and not self._parts and buffer[body]:
                        raise server_error(bytes(view[body:stop]))
                    _check_sequence(head >> 24, sequence)
                    self._parts.append(bytes(view[body:stop]))
                    at, sequence = stop, (sequence + 1) & 0xFF
                    if length == LONGEST:
                        continue
                    event, checksums = self._strip_checksum(b"".join(self._parts)[1:], checksums=checksums)
                    self._parts.clear()
                    complete_events.append(event)
                    continue
                if head >> 24 != sequence:
                    _check_sequence(head >> 24, sequence)
                kind = buffer[at + 9]
                if kind in _SPECIAL or not checksums:
                    event, checksums = self._strip_checksum(bytes(view[at + 5 : stop]), checksums=checksums)
                else:
                    event = bytes(view[at + 5 : stop - 4])
                    if verify and crc32(event) != unpack(buffer, stop - 4)[0]:
                        raise _checksum_error(event)
                complete_events.append(event)
                at, sequence = stop, (sequence + 1) & 0xFF
        except MillraceError as error:
            self._failed = error
        self._start, self._sequence, self.checksums = at, sequence, checksums
        if self._failed is not None and not complete_events:
            raise self._failed
        return complete_events

    def _strip_checksum(self, event: bytes, *, checksums: bool) -> tuple[bytes, bool]:
        """The event without its checksum, and whether the next ones have some."""
        if len(event) < HEADER_SIZE:
            raise Fatal(
                f"the server has sent an event of {len(event)} bytes, shorter than a header; check its error log"
            )
        kind = event[4]
        if kind == _FORMAT:
            # It always ends in the kind of the checksums and one of its own, whatever the kind is.
            return event[:-_CHECKSUM], event[-_CHECKSUM - 1] == 1
        last = _U32.unpack_from(event, len(event) - _CHECKSUM)[0]
        if kind == _ROTATE and _U32.unpack_from(event, 13)[0] == 0:
            # Made for us, also before the first format description: whether it has a checksum, only itself can tell.
            return (event[:-_CHECKSUM] if crc32(event[:-_CHECKSUM]) == last else event), checksums
        if not checksums:
            return event, checksums
        event = event[:-_CHECKSUM]
        if self._verify and crc32(event) != last:
            raise _checksum_error(event)
        return event, checksums


def _check_sequence(received: int, expected: int) -> None:
    if received != expected:
        raise Retriable(
            f"packets of the binlog stream are out of order ({received} in place of {expected}): the connection is damaged"
        )


def _checksum_error(event: bytes) -> Retriable:
    end = _U32.unpack_from(event, 13)[0]
    return Retriable(
        f"the checksum of a {types.type_name(event[4])} event that ends at position {end} of the binlog is wrong; "
        "if it stays so, the file is damaged: look at it with mysqlbinlog --verify-binlog-checksum, "
        "and begin behind it"
    )


def server_error(payload: bytes) -> MillraceError:
    """The error that the server has sent in place of an event."""
    if payload[0] == 0xFE and len(payload) < 9:
        return Retriable("the server has ended the binlog stream: it is being shut down, or the connection was killed")
    if payload[0] != 0xFF or len(payload) < 3:
        return Fatal(f"the server has sent something unknown in the binlog stream: {payload[:32].hex()}")
    code = int.from_bytes(payload[1:3], "little")
    start = 9 if payload[3:4] == b"#" else 3
    return dump_error(code, payload[start:].decode("utf-8", "replace"))


def dump_error(code: int, message: str) -> MillraceError:
    """Return the exception for an error of the server in the binlog stream, with the way to fix it."""
    said = f"({code}: {message})"
    lower = message.lower()
    if code in {1053, 1077, 1078, 1079, 1317, 1927, 2006, 2013, 3168, 3169}:
        return Retriable(
            f"the server has ended the binlog stream {said}: it is being shut down, or the connection was killed"
        )
    if "same server_uuid" in lower or "same server_id" in lower or "same server id" in lower:
        return DuplicateIdError(
            f"another reader of this server's binlog has our server id {said}: give each connector and "
            "each replica its own database.server.id; SHOW REPLICA HOSTS (SHOW SLAVE HOSTS) lists them"
        )
    if any(part in lower for part in _PURGED) or code in {1373, 1945, 1946, 1955, 1956, 1957, 1789}:
        return PurgedError(
            f"the server does not have the place in the binlog where the stream ended {said}. It was purged, or belongs to "
            "another server. Changes since then can only be had by a new snapshot: set snapshot.mode=when_needed (or delete "
            "the connector's offsets) and restart; to avoid it, keep binlogs for longer (binlog_expire_logs_seconds)"
        )
    if "truncated in the middle of event" in lower:
        return TornFileError(
            f"the server's binlog ends in the middle of an event {said}: its disk is full or damaged; its error log tells more"
        )
    if "max_allowed_packet" in lower:
        return Fatal(f"the server can't send a large event {said}: SET GLOBAL max_allowed_packet = 1073741824")
    if code == 1227 or "privilege" in lower or code in {1142, 1045}:
        return Fatal(f"the user may not read the binlog {said}: GRANT REPLICATION SLAVE ON *.* TO the user")
    if "binary log is not open" in lower or "binary log is not enabled" in lower or code == 1381:
        return Fatal(f"the server writes no binlog {said}: set log_bin and server_id in its configuration, restart it")
    return Fatal(f"the server can't continue with the binlog stream {said}; its error log tells more")


#: Parts of the messages, which have different words in each version.
_PURGED: Final = (
    "could not find first log file", "could not find next log", "has purged", "purged required", "purged binary logs",
    "which is not in the master's binlog", "which is not in the primary's binlog", "position > file size",
    "impossible position",
    "missing the gtid", "more gtids than", "could not find gtid state", "unable to find the gtid",
)  # fmt: skip
