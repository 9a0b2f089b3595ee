"""Frames of streams: bytes come in any portions, messages go out, and what the sender is to be answered. No I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.logs.network.lines import NetworkLine


class FrameInvalid(Exception):
    """The sender does not speak this protocol: the connection is closed. The message says what came."""


class Received(NamedTuple):
    """The content of some bytes.

    Attributes:
        lines: the lines in order.
        at_once: what is written to the sender now.
        answer: what is written to it once Kafka has the lines.
        close: whether the connection ends after that.
    """

    lines: list[NetworkLine]
    at_once: bytes = b""
    answer: bytes = b""
    close: bool = False


class FrameDecoder(Protocol):
    """The state of one connection."""

    #: What is written now and then while the sender waits for its answer; b"" for nothing.
    keepalive: bytes

    @property
    def incomplete(self) -> int:
        """Bytes of a message or frame that is not complete."""

    def feed(self, data: bytes) -> Received:
        """Take some more bytes.

        Raises:
            FrameInvalid: the sender speaks another protocol.
        """

    def end(self) -> Received:
        """The connection has ended: what is left."""


_COUNT: Final = re.compile(rb"([1-9]\d{0,8}) (?=<)")
_MAYBE_COUNT: Final = re.compile(rb"[1-9]\d{0,8} ?\Z")


class SyslogDecoder:
    """Syslog over a stream (RFC 6587): each message has a count of its bytes in front, or a line feed behind it.

    Args:
        make: makes a line of a message.
        max_size: the longest line in bytes; of a longer one that much is given, and the rest skipped.
    """

    keepalive = b""

    def __init__(self, make: Callable[[bytes, bool], NetworkLine], max_size: int) -> None:
        self._make = make
        self._most = max_size
        self._rest = bytearray()
        #: Bytes of a counted message that are still to be skipped; -1: up to the next line feed.
        self._skip = 0

    @property
    def incomplete(self) -> int:
        """As in ``FrameDecoder``."""
        return len(self._rest)

    def feed(self, data: bytes) -> Received:
        """Take some more bytes; nothing is invalid."""
        buffer = self._rest
        buffer += data
        lines: list[NetworkLine] = []
        position = 0
        while position < len(buffer):
            if self._skip:
                position = self._skip_long(position)
                continue
            counted = _COUNT.match(buffer, position)
            if counted is None:
                if _MAYBE_COUNT.match(buffer, position):
                    break
                end = self._take_line(position, lines)
            else:
                end = self._take_counted(counted, lines)
            if end < 0:
                break
            position = end
        del buffer[:position]
        return Received(lines)

    def end(self) -> Received:
        """A last message without its line feed."""
        remainder = bytes(self._rest)
        self._rest.clear()
        if not remainder or self._skip or _COUNT.match(remainder):
            return Received([])  # a counted message that is cut off was not sent
        return Received([self._make(remainder, False)])

    def _skip_long(self, position: int) -> int:
        """Skip what belongs to a message that was too long."""
        buffer = self._rest
        if self._skip < 0:
            end = buffer.find(b"\n", position)
            if end >= 0:
                self._skip = 0
                return end + 1
            return len(buffer)
        count = min(self._skip, len(buffer) - position)
        self._skip -= count
        return position + count

    def _take_line(self, start: int, lines: list[NetworkLine]) -> int:
        """The message up to the next line feed; -1 if it has not come yet."""
        buffer = self._rest
        end = buffer.find(b"\n", start)
        if end < 0:
            if len(buffer) - start <= self._most:
                return -1
            end = start + self._most
            self._skip = -1
            lines.append(self._make(bytes(buffer[start:end]), True))
            return end
        if end > start:
            message = bytes(buffer[start : min(end, start + self._most)])
            lines.append(self._make(message, end - start > self._most))
        return end + 1

    def _take_counted(self, counted: re.Match[bytes], lines: list[NetworkLine]) -> int:
        """The message that a count precedes; -1 if it has not come yet."""
        buffer = self._rest
        size, start = int(counted[1]), counted.end()
        if size > self._most:
            if len(buffer) - start < self._most:
                return -1
            self._skip = size - self._most
            lines.append(self._make(bytes(buffer[start : start + self._most]), True))
            return start + self._most
        if len(buffer) - start < size:
            return -1
        lines.append(self._make(bytes(buffer[start : start + size]), False))
        return start + size
