"""A reverse proxy that serves a worker under a path prefix, as an operator's nginx does."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 1 << 16


@contextmanager
def prefixed(url: str, prefix: str) -> Iterator[str]:
    """Serve the worker at ``url`` under ``prefix`` (such as ``/millrace``) on a free port; gives the new root."""
    target = urlsplit(url).netloc

    class Handler(BaseHTTPRequestHandler):
        def _forward(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            connection = http.client.HTTPConnection(target, timeout=120)
            try:
                connection.request(self.command, self.path.removeprefix(prefix), body or None, dict(self.headers))
                answer = connection.getresponse()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in {"transfer-encoding", "connection", "content-length", "server", "date"}:
                        self.send_header(name, value)
                self.end_headers()
                while data := answer.read1(_CHUNK):
                    self.wfile.write(data)
                    self.wfile.flush()
            except ConnectionError:
                pass  # the browser has left a stream
            finally:
                connection.close()

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _forward  # noqa: N815 - names of the standard library

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the standard library
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{prefix}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
