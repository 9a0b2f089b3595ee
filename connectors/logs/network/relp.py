"""RELP, rsyslog's protocol with answers: open, syslog, close. Each message is answered by its transaction number. No I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from connectors.logs.network.frames import FrameInvalid, Received

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.logs.network.lines import NetworkLine

_HEAD: Final = re.compile(rb"(\d{1,9}) ([a-zA-Z]{1,32}) (\d{1,9})([ \n])")
#: The longest head: two numbers, a command, spaces.
_LONGEST_HEAD: Final = 55
_OFFERS: Final = b"200 OK\nrelp_version=0\nrelp_software=millrace\ncommands=syslog"


class RelpDecoder:
    """The state of one connection.

    Args:
        make: makes a line of a message; True if it is the start of one that was too long.
        max_size: the longest line in bytes; of a longer one that much is given, and the rest skipped.
    """

    keepalive = b""

    def __init__(self, make: Callable[[bytes, bool], NetworkLine], max_size: int) -> None:
        self._make = make
        self._most = max_size
        self._rest = bytearray()
        #: Bytes of a message that are still to be skipped, with its line feed.
        self._skip = 0

    @property
    def incomplete(self) -> int:
        """As in ``Decoder``."""
        return len(self._rest)

    def feed(self, data: bytes) -> Received:
        """Take some more bytes.

        Raises:
            FrameInvalid: they are not RELP.
        """
        buffer = self._rest
        buffer += data
        lines: list[NetworkLine] = []
        at_once = answer = b""
        position = 0
        while True:
            if self._skip:
                skipped = min(self._skip, len(buffer) - position)
                position += skipped
                self._skip -= skipped
            head = _HEAD.match(buffer, position)
            if head is None:
                if len(buffer) - position > _LONGEST_HEAD:
                    raise FrameInvalid(f"{bytes(buffer[position : position + 40])!r} does not start a RELP frame")
                break
            number, command, size = head[1], head[2], int(head[3])
            start = head.end()
            present = min(size, self._most) if command == b"syslog" else size
            if present > self._most:
                raise FrameInvalid(f"a frame {command!r} has {size} bytes")
            if len(buffer) - start < present:
                break
            content = bytes(buffer[start : start + present])
            position = start + present
            # A line feed ends a frame; behind a head without content it was the separator.
            self._skip = size - present + (1 if head[4] == b" " else 0)
            if command == b"syslog":
                lines.append(self._make(content, size > present))
                answer += _make_response(number, b"200 OK")
            elif command == b"open":
                at_once += _make_response(number, _OFFERS)
            elif command == b"close":
                del buffer[:]
                return Received(lines, at_once, answer + _make_response(number, b"") + b"0 serverclose 0\n", close=True)
            else:
                at_once += _make_response(number, b"500 there is no such command")
        del buffer[:position]
        return Received(lines, at_once, answer)

    def end(self) -> Received:
        """Nothing: what is not complete gets no answer, and is sent again."""
        return Received([])


def _make_response(number: bytes, content: bytes) -> bytes:
    separator = b" " if content else b""
    return b"%b rsp %d%b%b\n" % (number, len(content), separator, content)
