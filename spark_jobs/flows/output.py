"""Log lines and printed text of many flows in one process: each goes to the flow that wrote it."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import struct
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: How long a client may take to read a line, seconds; then its connection counts as broken.
_SEND_S: Final = 30
_LONGEST_LINE: Final = 16_000


class FlowLines:
    """The sending half of a flow's connection: JSON lines, from any thread.

    Blocks while the client does not read, for half a minute at most.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._broken = False
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_S, 0))

    def write(self, line: str) -> int:
        """Send text that ends with a line's end.

        Raises:
            BrokenPipeError: the client is gone, or does not read.
        """
        with self._lock:
            if self._broken:
                raise BrokenPipeError("the client is gone")
            try:
                self._connection.sendall(line.encode())
            except OSError as error:
                # A line may have been cut off: nothing that follows would make sense.
                self._broken = True
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
                raise BrokenPipeError(str(error)) from error
        return len(line)

    def flush(self) -> None:
        """As streams do; everything is sent at once."""

    def send(self, event: str, **fields: Any) -> bool:
        """Send an event of the connection itself; returns False when the client is gone."""
        try:
            self.write(json.dumps({"event": event, **fields}) + "\n")
        except BrokenPipeError:
            return False
        return True

    def say(self, line: str) -> bool:
        """Send one line for the flow's log; returns False when the client is gone."""
        return self.send("log", line=line[:_LONGEST_LINE])


#: The connection of the flow for which the current thread works. A context variable is the one thing that follows work from a
#: thread to the threads that it starts (``copy_context``).
FLOW: Final[ContextVar[FlowLines | None]] = ContextVar("FLOW", default=None)


class FlowOutput(io.TextIOBase):
    """Stands for standard output and error: whole lines go to the flow of the thread that wrote them.

    Args:
        write_other: gets the lines of threads that work for no flow, or for one that has ended.
    """

    def __init__(self, write_other: Callable[[str], None]) -> None:
        super().__init__()
        self._other = write_other
        self._unfinished = threading.local()

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, output_text: str) -> int:
        """Take text; a line is sent when its end comes."""
        *lines, unfinished_line = (getattr(self._unfinished, "text", "") + output_text).split("\n")
        self._unfinished.text = unfinished_line[-_LONGEST_LINE:]
        for line in lines:
            self._send_line(line)
        return len(output_text)

    def _send_line(self, line: str) -> None:
        if not line.strip():
            return
        flow = FLOW.get()
        if flow is None or not flow.say(line):
            self._other(line)
