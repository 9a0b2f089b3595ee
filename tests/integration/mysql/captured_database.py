"""A database of MariaDB that a connector of a real worker captures."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymysql

from compose.local.worker import MillraceWorker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pymysql.cursors import Cursor

    from compose.local.mariadb import MariaDb


@dataclass(frozen=True)
class CapturedDatabase:
    """The database, the connector, which has the same name, and the worker that runs it."""

    name: str
    cursor: Cursor
    worker: MillraceWorker

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask for something of the connector, which the worker must not refuse."""
        status, answer = self.worker.request(method, f"/connectors/{self.name}/{path}", body)
        assert status < 300, answer
        return answer


@contextmanager
def captured_database(
    mariadb: MariaDb, bootstrap: str, folder: Path, name: str, statements: tuple[str, ...], options: Mapping[str, str]
) -> Iterator[CapturedDatabase]:
    """Make the database with ``statements``, start the worker, and create the connector with ``options``."""
    with (
        closing(
            pymysql.connect(
                host="127.0.0.1",
                port=int(mariadb.port or 0),
                user=mariadb.user,
                password=mariadb.password,
                autocommit=True,
            )
        ) as connection,
        connection.cursor() as cursor,
        MillraceWorker(
            folder, bootstrap, group=name, port=None, processes=1, properties={"offset.flush.interval.ms": "300"}
        ) as worker,
    ):
        for statement in (f"CREATE DATABASE {name}", f"USE {name}", *statements):
            cursor.execute(statement)
        worker.create(
            name,
            {
                "topic.prefix": name,
                "database.hostname": "127.0.0.1",
                "database.port": str(mariadb.port),
                "database.user": mariadb.user,
                "database.password": mariadb.password,
                "database.include.list": name,
                **options,
            },
        )
        yield CapturedDatabase(name, cursor, worker)
        cursor.execute(f"DROP DATABASE {name}")
