"""An emulation of ClickHouse's server: its HTTP interface (a part of it) before its real engine, chdb, in one process.

Run as ``python clickhouse_server.py PORT FOLDER PACKAGES USER PASSWORD``; PACKAGES is the folder with chdb. The engine is
ClickHouse's own, with its tables on disk, merges and deduplication; the HTTP interface, the logins and the concurrency (one
statement runs at a time) are not ClickHouse's.
"""

import asyncio
import base64
import importlib
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from aiohttp import web

_INSERT = re.compile(r"(INSERT\s+INTO\s.+?)\s+FORMAT\s+(\w+)\s*\Z", re.IGNORECASE | re.DOTALL)
_CODE = re.compile(r"Code: (\d+)")
#: Parameters of the interface; all others are settings of the statement.
_OF_INTERFACE = ("query", "default_format", "database", "user", "password", "wait_end_of_query")
_REFUSED = 516


class ClickHouseServer:
    """Runs statements, one at a time.

    Args:
        session: of chdb.
        login: the header that requests need; empty for none.
    """

    def __init__(self, session: Any, login: str) -> None:
        self._session = session
        self._login = login
        self._turn = asyncio.Lock()

    async def answer(self, request: web.Request) -> web.Response:
        """One request: a statement in the query, its data in the body, or the statement in the body."""
        if request.path == "/ping":
            return web.Response(text="Ok.\n")
        if self._login and request.headers.get("Authorization") != self._login:
            return _error_response(
                _REFUSED, "default: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)", 403
            )
        body = await request.read()
        statement = request.query.get("query", "")
        if not statement:
            statement, body = body.decode(), b""
        settings = {name: setting for name, setting in request.query.items() if name not in _OF_INTERFACE}
        async with self._turn:
            return await asyncio.to_thread(
                self._run_statement, statement, body, settings, request.query.get("default_format", "")
            )

    def _run_statement(self, statement: str, body: bytes, settings: dict[str, str], form: str) -> web.Response:
        insert = _INSERT.match(statement)
        words = ", ".join(f"{name} = '{setting}'" for name, setting in settings.items())
        with tempfile.NamedTemporaryFile() as data:
            if insert is not None:
                data.write(body)
                data.flush()
                clause = f" SETTINGS {words}" if words else ""
                statement = f"{insert[1]} FROM INFILE '{data.name}'{clause} FORMAT {insert[2]}"
            try:
                result = self._session.query(statement, form or "TabSeparated")
            except Exception as error:  # noqa: BLE001 - chdb has one type of error
                code = _CODE.search(str(error))
                return _error_response(
                    int(code[1]) if code else 1000, str(error).partition("DB::Exception: ")[2] or str(error), 500
                )
        return web.Response(body=result.bytes())


def _error_response(code: int, message: str, status: int) -> web.Response:
    headers = {"X-ClickHouse-Exception-Code": str(code)}
    return web.Response(status=status, text=f"Code: {code}. DB::Exception: {message}\n", headers=headers)


def main(port: int, folder: Path, packages: str, user: str, password: str) -> None:
    """Serve until the process ends."""
    sys.path.insert(0, packages)
    session = importlib.import_module("chdb.session").Session(str(folder))
    login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", ClickHouseServer(session, login).answer)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:6])
