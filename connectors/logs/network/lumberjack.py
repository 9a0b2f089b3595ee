"""Lumberjack, version 2: the protocol of Beats and Logstash. A window of events is answered by its last number. No I/O."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from connectors.logs.network.frames import FrameInvalid, Received

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.logs.network.lines import NetworkLine

_VERSION: Final = ord("2")
_WINDOW: Final = ord("W")
_JSON: Final = ord("J")
_COMPRESSED: Final = ord("C")
#: The most events of a window: what a connection may hold at one time.
_WIDEST: Final = 65_536


class LumberjackDecoder:
    """The state of one connection.

    Args:
        make: makes a line of a document.
        max_size: the largest frame in bytes, decompressed.
    """

    #: An answer that confirms nothing: it says that the receiver is at work.
    keepalive = b"2A\0\0\0\0"

    def __init__(self, make: Callable[[bytes, bool], NetworkLine], max_size: int) -> None:
        self._make = make
        self._most = max_size
        self._rest = bytearray()
        #: Events of the window that have not come yet.
        self._left = 0

    @property
    def incomplete(self) -> int:
        """As in ``Decoder``."""
        return len(self._rest)

    def feed(self, data: bytes) -> Received:
        """Take some more bytes.

        Raises:
            FrameInvalid: they are not Lumberjack's version 2, or a frame is too large.
        """
        self._rest += data
        lines: list[NetworkLine] = []
        answers: list[bytes] = []
        end = self._take_frames(self._rest, lines, answers, inner=False)
        del self._rest[:end]
        return Received(lines, b"", b"".join(answers))

    def end(self) -> Received:
        """Nothing: a window that is not complete gets no answer, and is sent again."""
        return Received([])

    def _take_frames(
        self, data: bytes | bytearray, lines: list[NetworkLine], answers: list[bytes], *, inner: bool
    ) -> int:
        """Take the complete frames; returns where the rest starts."""
        position = 0
        while len(data) - position >= 6:
            if data[position] != _VERSION:
                raise FrameInvalid(f"{bytes(data[position : position + 20])!r} does not start a frame of version 2")
            kind, number = data[position + 1], int.from_bytes(data[position + 2 : position + 6])
            if kind == _WINDOW:
                if number > _WIDEST:
                    raise FrameInvalid(f"a window has {number} events; {_WIDEST} are allowed")
                self._left = number
                position += 6
            elif kind == _COMPRESSED and not inner:
                self._check_size(number)
                if len(data) - position - 6 < number:
                    break
                content = self._decompress_frame(bytes(data[position + 6 : position + 6 + number]))
                if self._take_frames(content, lines, answers, inner=True) < len(content):
                    raise FrameInvalid("a compressed frame ends in the middle of another")
                position += 6 + number
            elif kind == _JSON:
                if len(data) - position < 10:
                    break
                size = int.from_bytes(data[position + 6 : position + 10])
                self._check_size(size)
                if len(data) - position - 10 < size:
                    break
                if len(lines) == _WIDEST:  # compressed, they may come by the million at one time
                    raise FrameInvalid(f"more than {_WIDEST} events came at one time")
                lines.append(self._make(bytes(data[position + 10 : position + 10 + size]), False))
                position += 10 + size
                self._left -= 1
                if self._left <= 0:
                    answers.append(b"2A" + number.to_bytes(4))
            else:
                raise FrameInvalid(f"there is no frame of type {bytes([kind])!r} in version 2 of Lumberjack")
        return position

    def _check_size(self, size: int) -> None:
        if size > self._most:
            raise FrameInvalid(f"a frame has {size} bytes; listen.request.max.bytes={self._most} are allowed")

    def _decompress_frame(self, data: bytes) -> bytes:
        engine = zlib.decompressobj()
        try:
            content = engine.decompress(data, self._most + 1)
        except zlib.error as error:
            raise FrameInvalid(f"a compressed frame can't be read: {error}") from error
        self._check_size(len(content))
        if not engine.eof:
            raise FrameInvalid("a compressed frame is not complete")
        return content
