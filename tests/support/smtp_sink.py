"""A mail server that keeps what it is sent: it speaks as much SMTP as a client needs who neither logs in nor encrypts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

from compose.local.ports import LOOPBACK


@dataclass(slots=True)
class SmtpSink:
    """Where it is and what came.

    Attributes:
        address: `host:port`.
        mails: The mails, in the order of their arrival.
    """

    address: str = ""
    mails: list[EmailMessage] = field(default_factory=list)


@contextmanager
def smtp_sink() -> Iterator[SmtpSink]:
    """A running mail server; it ends with the block."""
    sink = SmtpSink()

    class Session(StreamRequestHandler):
        def handle(self) -> None:
            self._answer("220 sink")
            for line in self.rfile:
                verb = line.split()[0].upper() if line.strip() else b""
                if verb == b"DATA":
                    self._answer("354 end with a dot")
                    content = b"".join(text.removeprefix(b".") for text in iter(self.rfile.readline, b".\r\n"))
                    sink.mails.append(message_from_bytes(content, policy=policy.default))
                self._answer("221 bye" if verb == b"QUIT" else "250 sink")
                if verb == b"QUIT":
                    return

        def _answer(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with ThreadingTCPServer((LOOPBACK, 0), Session) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        sink.address = f"{LOOPBACK}:{server.server_address[1]}"
        try:
            yield sink
        finally:
            server.shutdown()
            thread.join()
