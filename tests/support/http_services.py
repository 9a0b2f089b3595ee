"""Small HTTP servers that tests need besides Kafka: an OAuth 2 token endpoint, and a vault with Vault's key-value API."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from collections.abc import Mapping


class HttpService:
    """A server on a free port of the loopback address; ``with`` starts and ends it."""

    def __init__(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._serve()

            def do_POST(self) -> None:
                self._serve()

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                status, answer = service.answer(self.command, self.path, dict(self.headers), body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        """Status and body of the answer to a request."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class TokenEndpoint(HttpService):
    """Gives unsigned tokens by the client credentials grant; a client's id is the token's subject."""

    def __init__(self, clients: Mapping[str, str]) -> None:
        super().__init__()
        self.clients = dict(clients)
        self.issued: list[str] = []

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        """A token, or 401 for who is not known."""
        del path
        scheme, _, login = headers.get("Authorization", "").partition(" ")
        client, _, secret = base64.b64decode(login).decode().partition(":") if scheme == "Basic" else ("", "", "")
        if method != "POST" or parse_qs(body.decode()).get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        if self.clients.get(client) != secret:
            return 401, {"error": "invalid_client"}
        self.issued.append(client)
        now = int(time.time())
        parts = [
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in ({"alg": "none"}, {"sub": client, "iat": now, "exp": now + 60})
        ]
        return 200, {"access_token": f"{parts[0]}.{parts[1]}.", "token_type": "bearer", "expires_in": 60}


class Vault(HttpService):
    """Secrets under ``/v1/MOUNT/data/PATH`` as HashiCorp Vault's key-value engine, version 2, has them.

    Attributes:
        token: what requests have to show.
        secrets: by path (``secret/data/shop/db``) their values.
        lease_s: the time to live that answers tell.
        down: whether every request is answered with 503.
        reads: paths in the order they were read.
    """

    def __init__(self, token: str, lease_s: int) -> None:
        super().__init__()
        self.token = token
        self.lease_s = lease_s
        self.secrets: dict[str, dict[str, str]] = {}
        self.down = False
        self.reads: list[str] = []

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        """The secret, or Vault's error."""
        del body
        secret_path = path.removeprefix("/v1/")
        if self.down:
            return 503, {"errors": ["Vault is sealed"]}
        if headers.get("X-Vault-Token") != self.token:
            return 403, {"errors": ["permission denied"]}
        if method != "GET" or secret_path not in self.secrets:
            return 404, {"errors": []}
        self.reads.append(secret_path)
        return 200, {
            "request_id": "1",
            "lease_id": "",
            "renewable": False,
            "lease_duration": self.lease_s,
            "data": {"data": self.secrets[secret_path], "metadata": {"version": len(self.reads)}},
        }
