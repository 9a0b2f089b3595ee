"""A service that takes rows, as a process of its own: `python receiver.py PORT`. It keeps what it gets in memory.

`/plain/<table>` refuses a request with a record whose `name` is `refused` as a whole (422), `/items/<table>` answers with an
outcome per record (207), `/busy/<table>` answers every second request with 503 and `Retry-After`. All want the login `user`,
`secret`, or a token of `/token`, which is good for three requests. `GET /rows/<table>` and `GET /requests/<table>` show what
came.
"""

from __future__ import annotations

import base64
import json
import sys
from collections import Counter, defaultdict
from typing import Any

from aiohttp import web

LOGIN = "Basic " + base64.b64encode(b"user:secret").decode()
USES = 3


class Receiver:
    """The service."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[str]] = defaultdict(list)
        self.requests: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.tokens: Counter[str] = Counter()
        self.issued = 0

    def allowed(self, request: web.Request) -> bool:
        """Whether the login is right; counts a token's use."""
        login = request.headers.get("Authorization", "")
        token = login.removeprefix("Bearer ")
        if self.tokens[token] > 0:
            self.tokens[token] -= 1
            return True
        return login == LOGIN

    async def token(self, request: web.Request) -> web.Response:
        """OAuth 2, client credentials."""
        form = await request.post()
        if request.headers.get("Authorization") != LOGIN or form.get("grant_type") != "client_credentials":
            return web.json_response({"error": "invalid_client"}, status=401)
        self.issued += 1
        self.tokens[f"token-{self.issued}"] = USES
        return web.json_response({"access_token": f"token-{self.issued}", "expires_in": 3600})

    async def take(self, request: web.Request) -> web.Response:
        """Rows."""
        way, table = request.match_info["way"], request.match_info["table"]
        if not self.allowed(request):
            return web.Response(status=401, text="who are you?")
        if request.method == "OPTIONS":
            return web.Response(status=204)
        body = await request.text()
        seen = self.requests[table]
        seen.append({"method": request.method, "path": request.raw_path, "headers": dict(request.headers)})
        if way == "busy" and len(seen) % 2:
            return web.Response(status=503, headers={"Retry-After": "1"})
        if request.method == "DELETE":
            self.bodies[table].append(json.dumps({"deleted": request.raw_path}))
            return web.Response(status=404)
        lines = body.splitlines() if "ndjson" in request.headers["Content-Type"] else [body]
        documents = [json.loads(line) for line in lines]
        records = documents[0] if isinstance(documents[0], list) else documents
        bad = [isinstance(record, dict) and record.get("name") == "refused" for record in records]
        if way == "items":
            good = [json.dumps(record) for record, refused in zip(records, bad, strict=True) if not refused]
            self.bodies[table] += good if any(bad) else lines
            answers = [
                {"status": 422, "error": "the name is refused"} if refused else {"status": 201} for refused in bad
            ]
            return web.json_response({"items": answers}, status=207)
        if any(bad):
            return web.Response(status=422, text="a name is refused")
        self.bodies[table] += lines
        return web.Response(status=200)

    async def show(self, request: web.Request) -> web.Response:
        """Shows what came."""
        kept: Any = self.bodies if request.match_info["what"] == "rows" else self.requests
        return web.json_response(kept[request.match_info["table"]])


def application() -> web.Application:
    """The service's routes."""
    receiver = Receiver()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/token", receiver.token)
    app.router.add_get("/{what:rows|requests}/{table:.*}", receiver.show)
    app.router.add_route("*", "/{way:plain|items|busy}/{table:.*}", receiver.take)
    return app


if __name__ == "__main__":
    web.run_app(application(), host="127.0.0.1", port=int(sys.argv[1]), print=None, handle_signals=True)
