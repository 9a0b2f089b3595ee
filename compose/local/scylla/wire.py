"""A small blocking CQL client (protocol 4) that sends and receives cells as bytes; what the emulation writes through.

The drivers turn cells into Python objects and back, which loses what tests are about (years before 1, empty values), and they
are too slow to fill a log of millions of rows.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from worker.fetch.errors import StackError

#: A cell that is not part of the statement, which differs from null.
UNSET: Any = object()
Cell = bytes | None

_VERSION = 4
_STARTUP, _QUERY, _PREPARE, _EXECUTE, _BATCH, _AUTH_RESPONSE = 0x01, 0x07, 0x09, 0x0A, 0x0D, 0x0F
_ERROR, _READY, _AUTHENTICATE, _RESULT, _AUTH_SUCCESS = 0x00, 0x02, 0x03, 0x08, 0x10
_ROWS, _PREPARED = 2, 4
_UNPREPARED = 0x2500
_WARNINGS = 0x08  # flag: the body begins with a list of strings
#: Consistency levels by name.
CONSISTENCY = {"ONE": 1, "QUORUM": 4, "LOCAL_QUORUM": 6, "LOCAL_ONE": 10, "SERIAL": 8}


class CqlError(StackError):
    """The server refused a request.

    Attributes:
        code: The error code of the protocol.
    """

    def __init__(self, code: int, message: str, request: str) -> None:
        super().__init__(
            f"the CQL server answered with error 0x{code:04x}: {message}; the request was: {request[:500]}"
        )
        self.code = code


class WireStatement(NamedTuple):
    """A statement with the cells of its markers."""

    cql: str
    cells: Sequence[Any] = ()


def pack_cells(cells: Sequence[Any]) -> bytes:
    """Number and cells as a request has them. Pure."""
    parts = [struct.pack(">H", len(cells))]
    for cell in cells:
        if cell is None:
            parts.append(b"\xff\xff\xff\xff")
        elif cell is UNSET:
            parts.append(b"\xff\xff\xff\xfe")
        else:
            parts.append(struct.pack(">i", len(cell)))
            parts.append(cell)
    return b"".join(parts)


def pack_frame(stream: int, opcode: int, body: bytes) -> bytes:
    """A whole request. Pure."""
    return struct.pack(">BBhBI", _VERSION, 0, stream, opcode, len(body)) + body


def pack_batch(statements: Iterable[bytes], count: int, consistency: int, *, logged: bool = False) -> bytes:
    """The body of a batch of statements that were packed before (kind, id, cells). Pure."""
    head = struct.pack(">BH", 0 if logged else 1, count)
    return b"".join((head, *statements, struct.pack(">HB", consistency, 0)))


@dataclass(slots=True)
class WireConnection:
    """One connection, opened on first use and again after it broke; used by one thread at a time. All methods block.

    Attributes:
        address: `host:port` of the server.
        user: User name and password, where the server wants them.
        timeout: Seconds without an answer after which a request has failed.
        consistency: Consistency level of all requests.
    """

    address: str
    user: tuple[str, str] | None = None
    timeout: float = 60.0
    consistency: str = "ONE"
    _socket: socket.socket | None = field(default=None, init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _prepared: dict[str, bytes] = field(default_factory=dict, init=False)

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None
        self._prepared.clear()

    def query(self, cql: str) -> list[dict[str, Cell]]:
        """Run a statement without markers and return all its rows.

        Raises:
            CqlError: The server refused it.
            OSError: The server cannot be reached or did not answer in time; the statement may have had its effect.
        """
        raw = cql.encode()
        return self._read_pages(_QUERY, struct.pack(">i", len(raw)) + raw, (), cql)

    def execute(self, cql: str, cells: Sequence[Any]) -> list[dict[str, Cell]]:
        """Run a statement, prepared once, and return all its rows; errors as `query`."""
        with self._lock:
            for _ in range(2):
                identity = self.prepare(cql)
                try:
                    return self._read_pages(_EXECUTE, struct.pack(">H", len(identity)) + identity, cells, cql)
                except CqlError as error:
                    if error.code != _UNPREPARED:
                        raise
                    self._prepared.clear()
        raise StackError(f"the server forgets this statement as soon as it is prepared: {cql}")

    def batch(self, statements: Sequence[WireStatement], *, logged: bool = False) -> None:
        """Run statements in one batch, unlogged by default; errors as `query`."""
        with self._lock:
            for last in (False, True):
                packed = [self.packed(*statement) for statement in statements]
                body = pack_batch(packed, len(packed), CONSISTENCY[self.consistency], logged=logged)
                try:
                    self._send_request(_BATCH, body, f"a batch of {len(packed)}, the first: {statements[0].cql}")
                except CqlError as error:
                    if error.code != _UNPREPARED or last:
                        raise
                    self._prepared.clear()
                else:
                    return

    def packed(self, cql: str, cells: Sequence[Any]) -> bytes:
        """A statement as a part of a batch; it is prepared."""
        identity = self.prepare(cql)
        return struct.pack(">BH", 1, len(identity)) + identity + pack_cells(cells)

    def prepare(self, cql: str) -> bytes:
        """The server's name for the statement; errors as `query`."""
        with self._lock:
            statement_id = self._prepared.get(cql)
            if statement_id is None:
                raw = cql.encode()
                body = self._send_request(_PREPARE, struct.pack(">i", len(raw)) + raw, cql)
                if struct.unpack_from(">i", body)[0] != _PREPARED:
                    raise StackError(f"the server did not prepare: {cql}")
                (size,) = struct.unpack_from(">H", body, 4)
                statement_id = self._prepared[cql] = body[6 : 6 + size]
            return statement_id

    def pipelined(self, bodies: Iterable[bytes], in_flight: int = 8) -> None:
        """Send many batches (`pack_batch`), up to `in_flight` before the first answer; errors as `query`."""
        with self._lock:
            connection = self._ensure_connected()
            waiting = 0
            try:
                for body in bodies:
                    if waiting >= in_flight:
                        self._read_answer(connection, "one of many batches")
                        waiting -= 1
                    connection.sendall(pack_frame(1, _BATCH, body))
                    waiting += 1
                for _ in range(waiting):
                    self._read_answer(connection, "one of many batches")
            except BaseException:
                self.close()  # answers are still on their way
                raise

    def _read_pages(self, opcode: int, head: bytes, cells: Sequence[Any], cql: str) -> list[dict[str, Cell]]:
        rows: list[dict[str, Cell]] = []
        state: bytes | None = None
        values = pack_cells(cells) if cells else b""
        while True:
            flags = (1 if cells else 0) | 4 | (8 if state is not None else 0)
            body = struct.pack(">HB", CONSISTENCY[self.consistency], flags) + values + struct.pack(">i", 5000)
            if state is not None:
                body += struct.pack(">i", len(state)) + state
            page, state = parse_rows(self._send_request(opcode, head + body, cql))
            rows += page
            if state is None:
                return rows

    def _send_request(self, opcode: int, body: bytes, cql: str) -> bytes:
        with self._lock:
            connection = self._ensure_connected()
            try:
                connection.sendall(pack_frame(1, opcode, body))
                return self._read_answer(connection, cql)
            except OSError:
                self.close()
                raise

    def _read_answer(self, connection: socket.socket, cql: str) -> bytes:
        opcode, body = _receive_frame(connection)
        if opcode == _ERROR:
            code, size = struct.unpack_from(">iH", body)
            raise CqlError(code, body[6 : 6 + size].decode("utf-8", "replace"), cql)
        return body

    def _ensure_connected(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        host, _, port = self.address.rpartition(":")
        connection = socket.create_connection((host, int(port)), timeout=self.timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            options = struct.pack(">H", 1) + _pack_string("CQL_VERSION") + _pack_string("3.0.0")
            connection.sendall(pack_frame(1, _STARTUP, options))
            opcode, body = _receive_frame(connection)
            if opcode == _AUTHENTICATE:
                name, secret = self.user or ("cassandra", "cassandra")
                token = f"\0{name}\0{secret}".encode()
                connection.sendall(pack_frame(1, _AUTH_RESPONSE, struct.pack(">i", len(token)) + token))
                opcode, body = _receive_frame(connection)
        except BaseException:
            connection.close()
            raise
        if opcode not in {_READY, _AUTH_SUCCESS}:
            connection.close()
            raise StackError(f"{self.address} does not let us in: {body[6:200].decode('utf-8', 'replace')}")
        self._socket = connection
        return connection


def _pack_string(string: str) -> bytes:
    raw = string.encode()
    return struct.pack(">H", len(raw)) + raw


def _receive_frame(connection: socket.socket) -> tuple[int, bytes]:
    head = _receive_exactly(connection, 9)
    body = _receive_exactly(connection, int.from_bytes(head[5:9], "big"))
    if head[1] & _WARNINGS:
        count, at = int.from_bytes(body[:2], "big"), 2
        for _ in range(count):
            at = _skip_text(body, at)
        body = body[at:]
    return head[4], body


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        count = connection.recv_into(view[at:])
        if not count:
            raise ConnectionResetError("the CQL server closed the connection")
        at += count
    return bytes(data)


def parse_rows(body: bytes) -> tuple[list[dict[str, Cell]], bytes | None]:
    """Rows of an answer by column name, and the state to ask for the next page with; an answer may have no rows. Pure."""
    kind, flags, count = struct.unpack_from(">iii", body.ljust(12, b"\0"))
    if kind != _ROWS:
        return [], None
    at, state = 12, None
    if flags & 2:
        (size,) = struct.unpack_from(">i", body, at)
        state = body[at + 4 : at + 4 + size]
        at += 4 + size
    if flags & 1:
        at = _skip_text(body, _skip_text(body, at))
    names: list[str] = []
    for _ in range(count):
        if not flags & 1:
            at = _skip_text(body, _skip_text(body, at))
        end = _skip_text(body, at)
        names.append(body[at + 2 : end].decode())
        at = _skip_type(body, end)
    (rows,) = struct.unpack_from(">i", body, at)
    at += 4
    parsed_rows: list[dict[str, Cell]] = []
    for _ in range(rows):
        row: dict[str, Cell] = {}
        for name in names:
            (size,) = struct.unpack_from(">i", body, at)
            at += 4
            row[name] = body[at : at + size] if size >= 0 else None
            at += max(0, size)
        parsed_rows.append(row)
    return parsed_rows, state


def _skip_text(body: bytes, at: int) -> int:
    return at + 2 + int.from_bytes(body[at : at + 2], "big")


def _skip_type(body: bytes, at: int) -> int:
    kind = int.from_bytes(body[at : at + 2], "big")
    at += 2
    if kind == 0:  # custom: a class name
        return _skip_text(body, at)
    if kind in {0x20, 0x22}:  # list, set
        return _skip_type(body, at)
    if kind == 0x21:  # map
        return _skip_type(body, _skip_type(body, at))
    if kind == 0x30:  # user-defined: keyspace, name, fields
        at = _skip_text(body, _skip_text(body, at))
        count, at = int.from_bytes(body[at : at + 2], "big"), at + 2
        for _ in range(count):
            at = _skip_type(body, _skip_text(body, at))
    elif kind == 0x31:  # tuple
        count, at = int.from_bytes(body[at : at + 2], "big"), at + 2
        for _ in range(count):
            at = _skip_type(body, at)
    return at
