"""Requests, answers and events over a stream socket: msgpack frames with a length before them.

Both sides are asyncio; either may ask. The handler of a request runs as a task of its own, so a slow answer holds up
nothing. When the stream ends, all pending requests fail with ``PipeClosed`` and ``closed`` is set.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from connectors.errors import ConfigInvalid, Fatal, Fenced, MillraceError, Retriable, Skippable
from worker.protocol import HostMessage, RemoteError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_LENGTH: Final = struct.Struct("<I")
#: Requests and events that are taken before the event loop gets its turn: of thousands that came at once, each begins a task.
#: Not fewer: whether the other side lives is asked in the same line.
_SLICE: Final = 256
_KINDS: Final = (ConfigInvalid, Fatal, Fenced, Retriable, Skippable)
_REQUEST, _ANSWER, _ERROR, _EVENT = range(4)


class PipeClosed(MillraceError):
    """The process at the other end has gone."""


class Outgoing(Protocol):
    """The part of a writer that a ``Peer`` needs; ``asyncio.StreamWriter`` has it."""

    def write(self, data: bytes, /) -> None:
        """Send, or queue to be sent."""

    def is_closing(self) -> bool:
        """Whether ``close`` was called or the other side has gone."""

    def close(self) -> None:
        """Close after what is queued."""


def event_frame(message: HostMessage) -> bytes:
    """An event as it goes over the wire, for a thread that can't use a ``Peer``; the writer must keep frames whole."""
    return _pack_frame(_EVENT, 0, msgspec.msgpack.encode(message))


def _pack_frame(kind: int, number: int, body: bytes) -> bytes:
    head = struct.pack("<BI", kind, number)
    return _LENGTH.pack(len(head) + len(body)) + head + body


class Peer:
    """One end of the pipe.

    Args:
        reader: what the other side sends.
        writer: where this side sends to.
        handler: called with each incoming message; its result answers a request, its exception refuses it.
        incoming: the union of message types that may come in.
        scrub: removes secrets from the messages of refusals, which users see.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: Outgoing,
        handler: Callable[[Any], Awaitable[Any]],
        incoming: Any,
        scrub: Callable[[str], str] = str,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._scrub = scrub
        self._decode = msgspec.msgpack.Decoder(incoming).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._answer = msgspec.msgpack.Decoder().decode
        self._next = 0
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._handlers: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()

    def start(self) -> None:
        """Begin to read; does not block."""
        self._reading = asyncio.create_task(self._read_frames(), name="pipe-reader")

    async def request(self, message: HostMessage, deadline_s: float | None) -> Any:
        """Ask and wait for the answer (a plain msgpack value).

        Raises:
            RemoteError: the other side refused.
            PipeClosed: the other side has gone.
            TimeoutError: no answer within ``deadline_s`` seconds, which None does not limit.
        """
        if self.closed.is_set():
            raise PipeClosed("the process at the other end of the pipe has gone")
        self._next += 1
        number = self._next
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        try:
            async with asyncio.timeout(deadline_s):
                self._send_frame(_REQUEST, number, self._encode(message))
                return await future
        finally:
            self._pending.pop(number, None)

    def event(self, message: HostMessage) -> None:
        """Tell without waiting; dropped silently if the other side has gone (``closed`` tells)."""
        self._send_frame(_EVENT, 0, self._encode(message))

    async def close(self) -> None:
        """Close this end; pending requests fail."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._end_peer()

    def _send_frame(self, kind: int, number: int, body: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(_pack_frame(kind, number, body))

    async def _read_frames(self) -> None:
        frames_read = 0
        try:
            while True:
                size = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))[0]
                frame = await self._reader.readexactly(size)
                kind, number = struct.unpack_from("<BI", frame)
                body = memoryview(frame)[5:]
                if kind in {_REQUEST, _EVENT}:
                    task = asyncio.create_task(
                        self._handle_request(kind, number, self._decode(body)), name="pipe-handler"
                    )
                    self._handlers.add(task)
                    task.add_done_callback(self._handlers.discard)
                    frames_read += 1
                    if frames_read % _SLICE == 0:
                        await asyncio.sleep(0)  # what is in the reader's buffer is read without one
                    continue
                future = self._pending.get(number)
                if future is None or future.done():
                    continue  # the asker gave up
                if kind == _ANSWER:
                    future.set_result(self._answer(body))
                else:
                    future.set_exception(RemoteError(*self._answer(body)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._end_peer()

    async def _handle_request(self, kind: int, number: int, message: Any) -> None:
        try:
            result = await self._handler(message)
            answer = self._encode(result) if kind == _REQUEST else b""
        except Exception as error:  # noqa: BLE001 - whatever the handler raises is the asker's to see
            if kind == _REQUEST:
                # A name of a file, for example, may hold bytes that are no UTF-8.
                reason = self._scrub(str(error)).encode("utf-8", "backslashreplace").decode()
                self._send_frame(_ERROR, number, self._encode((_kind_of(error), reason)))
            else:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"handling {type(message).__name__} failed", "exception": error}
                )
            return
        if kind == _REQUEST:
            self._send_frame(_ANSWER, number, answer)

    def _end_peer(self) -> None:
        self.closed.set()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(PipeClosed("the process at the other end of the pipe has gone"))
        self._writer.close()


def _kind_of(error: Exception) -> str:
    """The name that the other side decides by: an error of a connector's own counts as the kind it is derived from."""
    return next((kind.__name__ for kind in _KINDS if isinstance(error, kind)), type(error).__name__)
