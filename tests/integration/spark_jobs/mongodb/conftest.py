"""One MongoDB for the tests of this folder: a stand-in with a login, or the one that `MILLRACE_MONGODB` names.

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

from compose.local.targets.mongodb import MongoDb

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGIN = ("jobs", "the-secret-of-mongodb")


@dataclass(frozen=True, slots=True)
class Server:
    """A MongoDB that runs, and a client of the tests' own."""

    host: str
    port: int
    user: str
    password: str
    client: Any

    @property
    def login(self) -> dict[str, str]:
        """The options of the sink with it."""
        return {"sink.mongodb.user": self.user, "sink.mongodb.password": self.password}


@pytest.fixture(scope="session")
def mongodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    named = os.environ.get("MILLRACE_MONGODB")
    with ExitStack() as stack:
        if named:
            parts = urlsplit(named)
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
            host, port = parts.hostname or "", parts.port or 27017
        else:
            user, password = LOGIN
            server = MongoDb(tmp_path_factory.mktemp("mongodb"), user=user, password=password)
            stack.enter_context(server)
            host, port = "127.0.0.1", server.port or 0
        client: Any = pymongo.MongoClient(
            host, port, username=user, password=password, tz_aware=True, directConnection=True
        )
        stack.callback(client.close)
        yield Server(host, port, user, password, client)
