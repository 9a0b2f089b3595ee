"""A CQL proxy that gives a Cassandra the table names of Scylla; see `dress.RENAMED`.

Only what a client sends is looked into, and of that only the text of QUERY and PREPARE; answers pass as they come. Like Scylla
it speaks the protocol versions 3 and 4; it offers no compression, so that it never has to undo one.
"""

import asyncio
import re
import struct
from typing import TYPE_CHECKING, cast

from compose.local.scylla.dress import RENAMED

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD = 9  # bytes: version, flags, stream (2), opcode, length of the body (4)
_ERROR, _OPTIONS_ANSWER, _READY, _AUTHENTICATE, _QUERY, _PREPARE = 0x00, 0x06, 0x02, 0x03, 0x07, 0x09
_PAYLOAD = 0x04  # flag: the body begins with a map of custom values
_HIGHEST = 4
_PROTOCOL_ERROR = 0x000A
_HINTS = tuple({table.encode() for _, table in RENAMED})
_NAMES = re.compile(
    rb'"?\b(system|system_schema)\b"?\s*\.\s*"?\b(' + b"|".join(_HINTS) + rb')\b"?', re.IGNORECASE
)  # fmt: skip


def rename_tables(query: bytes) -> bytes:
    """The CQL text with Scylla's names replaced by those that the emulation has for them. Pure.

    >>> renamed(b"SELECT * FROM system.cdc_streams WHERE keyspace_name = ?")
    b'SELECT * FROM scylla_emulation.cdc_streams WHERE keyspace_name = ?'
    """

    def name(match: re.Match[bytes]) -> bytes:
        table_name = RENAMED.get((match[1].decode().lower(), match[2].decode().lower()))
        return ".".join(table_name).encode() if table_name else match[0]

    return _NAMES.sub(name, query)


def rewrite_frame(frame: bytes) -> bytes:
    """A frame of a client with names replaced, where it is one that holds CQL text; else the same object. Pure."""
    if frame[4] not in {_QUERY, _PREPARE} or not any(hint in frame.lower() for hint in _HINTS):
        return frame
    at = _HEAD
    if frame[1] & _PAYLOAD:
        at = _skip_payload(frame, at)
    (size,) = struct.unpack_from(">i", frame, at)
    query = rename_tables(frame[at + 4 : at + 4 + size])
    body = frame[_HEAD:at] + struct.pack(">i", len(query)) + query + frame[at + 4 + size :]
    return frame[:5] + struct.pack(">i", len(body)) + body


def _skip_payload(frame: bytes, at: int) -> int:
    (count,) = struct.unpack_from(">H", frame, at)
    at += 2
    for _ in range(count):
        (key,) = struct.unpack_from(">H", frame, at)
        at += 2 + key
        (value,) = struct.unpack_from(">i", frame, at)
        at += 4 + max(0, value)
    return at


def plain_options(frame: bytes) -> bytes:
    """The answer to OPTIONS as Scylla would give it: no compression, no version above 4. Pure."""
    (count,) = struct.unpack_from(">H", frame, _HEAD)
    at, body = _HEAD + 2, struct.pack(">H", count)
    for _ in range(count):
        key, at = _read_string(frame, at)
        (values,) = struct.unpack_from(">H", frame, at)
        at += 2
        kept: list[bytes] = []
        for _ in range(values):
            value, at = _read_string(frame, at)
            if key != b"COMPRESSION" and not (key == b"PROTOCOL_VERSIONS" and int(value.split(b"/")[0]) > _HIGHEST):
                kept.append(value)
        body += b"".join((_pack_string(key), struct.pack(">H", len(kept)), *map(_pack_string, kept)))
    return frame[:5] + struct.pack(">i", len(body)) + body


def _read_string(frame: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(">H", frame, at)
    return frame[at + 2 : at + 2 + size], at + 2 + size


def _pack_string(raw: bytes) -> bytes:
    return struct.pack(">H", len(raw)) + raw


def refuse_version(version: int) -> bytes:
    """The answer to a frame of a version that Scylla does not speak. Pure."""
    message = f"Invalid or unsupported protocol version: {version}; supported versions are 3 and {_HIGHEST}".encode()
    body = struct.pack(">i", _PROTOCOL_ERROR) + _pack_string(message)
    return struct.pack(">BBhBi", 0x80 | _HIGHEST, 0, 0, _ERROR, len(body)) + body


class _ProxySide(asyncio.Protocol):
    """One of the two connections of a client; what it receives goes to `forward`, and it slows down its `other`."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _ProxySide | None = None
        self.forward: Callable[[bytes], None] = self.send
        self.waiting: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=4 << 20)
        for data in self.waiting:
            transport.write(data)
        self.waiting.clear()

    def data_received(self, data: bytes) -> None:
        self.forward(data)

    def send(self, data: bytes) -> None:
        """Write now, or once the connection is there."""
        if self.transport is None:
            self.waiting.append(data)
        else:
            self.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def close(self) -> None:
        """End both connections."""
        for side in (self, self.other):
            if side is not None and side.transport is not None:
                side.transport.close()


class _Pair:
    """A client and its connection to the server."""

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)
        self.client, self.server = _ProxySide(), _ProxySide()
        self.client.other, self.server.other = self.server, self.client
        self.client.forward, self.server.forward = self.from_client, self.from_server
        self.asked, self.answered = bytearray(), bytearray()
        self.dialing: asyncio.Task[None] | None = None

    def accepted(self) -> _ProxySide:
        """For `create_server`: a client came."""
        self.dialing = asyncio.get_running_loop().create_task(self.dial())
        return self.client

    async def dial(self) -> None:
        """Connect to the server; a client is dropped when that fails, as if the node were gone."""
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.server, *self.address)
        except OSError:
            self.client.close()

    def from_client(self, data: bytes) -> None:
        """Look at whole frames, pass on parts of none."""
        buffer = self.asked
        buffer += data
        at, size = 0, len(buffer)
        passed = 0  # the bytes from here to `at` are forwarded unchanged
        while size - at >= _HEAD:
            version = buffer[at] & 0x7F
            if version > _HIGHEST:
                self.client.send(refuse_version(version))
                self.client.close()
                return
            end = at + _HEAD + int.from_bytes(buffer[at + 5 : at + 9], "big")
            if end > size:
                break
            if buffer[at + 4] in {_QUERY, _PREPARE}:
                frame = bytes(buffer[at:end])
                changed = rewrite_frame(frame)
                if changed is not frame:
                    if passed < at:
                        self.server.send(bytes(buffer[passed:at]))
                    self.server.send(changed)
                    passed = end
            at = end
        if passed < at:
            self.server.send(bytes(buffer[passed:at]))
        del buffer[:at]

    def from_server(self, data: bytes) -> None:
        """Until the connection is set up, look for the answer to OPTIONS; from then on pass on all there is."""
        buffer = self.answered
        buffer += data
        while len(buffer) >= _HEAD:
            end = _HEAD + int.from_bytes(buffer[5:9], "big")
            if len(buffer) < end:
                return
            frame = bytes(buffer[:end])
            del buffer[:end]
            self.client.send(plain_options(frame) if frame[4] == _OPTIONS_ANSWER else frame)
            if frame[4] in {_READY, _AUTHENTICATE}:
                self.server.forward = self.client.send
                if buffer:
                    self.client.send(bytes(buffer))
                    buffer.clear()
                return


async def serve_proxy(host: str, port: int, cassandra: tuple[str, int]) -> asyncio.Server:
    """Accept clients on `host:port` and connect each to the Cassandra; the caller closes the server.

    Raises:
        OSError: The port cannot be had.
    """
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Pair(*cassandra).accepted(), host, port, backlog=512)
