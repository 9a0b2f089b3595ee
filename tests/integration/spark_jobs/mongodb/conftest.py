"""One MongoDB for the tests of this folder: a stand-in, or the one that `MILLRACE_MONGODB` names.

`MILLRACE_MONGODB=mongodb://user:password@host:27017/?authSource=admin` names a real server, without TLS.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pymongo
import pytest

from compose.local.errors import Unavailable
from tests.support.mongo_server import FerretDb

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Server:
    """A MongoDB that runs, and a client of the tests' own."""

    host: str
    port: int
    user: str
    password: str
    query: str
    client: Any


@pytest.fixture(scope="module")
def mongodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    named = os.environ.get("MILLRACE_MONGODB")
    with ExitStack() as stack:
        if named:
            parts = urlsplit(named)
            login = unquote(parts.username or ""), unquote(parts.password or "")
            client: Any = stack.enter_context(pymongo.MongoClient(named, tz_aware=True))
            yield Server(parts.hostname or "", parts.port or 27017, *login, parts.query, client)
            return
        server = FerretDb(tmp_path_factory.mktemp("mongodb"))
        try:
            _ = server.service
        except Unavailable as reason:
            pytest.skip(str(reason))
        stack.enter_context(server)
        client = stack.enter_context(pymongo.MongoClient("127.0.0.1", server.port, tz_aware=True))
        yield Server("127.0.0.1", server.port or 0, "", "", "", client)
