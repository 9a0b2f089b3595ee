"""A database whose changes a connector reads, and what its records say of the rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pymysql

from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run
from tests.integration.mysql.dialect import is_mysql, spoken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import SourceRecord
    from connectors.testing.contexts import SavedOffsets
    from tests.conftest import HasMariaDb

LIMIT = 30.0
END = "the_end"


class Source:
    """A database of its own on a server, and a connection to it."""

    def __init__(self, server: HasMariaDb, name: str) -> None:
        self.server = server
        self.name = name
        self.link = self.connection()
        self.sql(
            f"CREATE DATABASE {name} CHARACTER SET utf8mb4", f"USE {name}", f"CREATE TABLE {END} (n INT PRIMARY KEY)"
        )
        self.ends = 0

    def connection(self) -> pymysql.Connection[Any]:
        return pymysql.connect(
            host="127.0.0.1",
            port=int(self.server.port or 0),
            user=self.server.user,
            local_infile=True,
            password=self.server.password,
            autocommit=True,
            charset="utf8mb4",
        )

    def sql(self, *statements: str | bytes) -> list[tuple[Any, ...]]:
        """The rows of the last statement."""
        with self.link.cursor() as cursor:
            for statement in statements:
                cursor.execute(
                    spoken(statement, mysql=is_mysql(self.server)) if isinstance(statement, str) else statement
                )
            return list(cursor.fetchall())

    def config(self, **more: str) -> dict[str, str]:
        return {
            "connector.class": "mysql",
            "topic.prefix": "p",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.include.list": self.name,
            "snapshot.mode": "no_data",
            "include.schema.changes": "false",
            "poll.interval.ms": "20",
            **{key.replace("__", "."): value for key, value in more.items()},
        }

    async def begin(self, **more: str) -> tuple[dict[str, str], SavedOffsets]:
        """A configuration, and the saved place of now."""
        properties = self.config(**more)
        async with Run(MySqlConnector, properties) as run:
            assert await run.take(LIMIT) is not None
            return properties, run.offsets

    async def rest(self, run: Run, seen: list[int] | None = None) -> list[SourceRecord]:
        """All records up to now, but tombstones; the numbers of records of each batch go to ``seen``."""
        self.ends += 1
        self.sql(f"INSERT INTO {END} VALUES ({self.ends})")
        records: list[SourceRecord] = []
        while True:
            batch = await run.take(LIMIT)
            assert batch is not None, f"the end did not come; log:\n{run.log.text()}"
            assert not batch[1].bad, batch[1].bad
            if seen is not None:
                seen.append(len(batch[1].records))
            for record in batch[1].records:
                if record.key == {"n": self.ends} and record.topic.endswith(END):
                    return records
                if record.value is not None and not record.topic.endswith(END):
                    records.append(record)

    async def changes(self, *statements: str | bytes, **more: str) -> list[SourceRecord]:
        """The records of the statements' changes, met while they are made."""
        async with Run(MySqlConnector, self.config(**more)) as run:
            assert await run.take(LIMIT) is not None
            self.sql(*statements)
            return await self.rest(run)


def brief(records: Sequence[SourceRecord]) -> list[tuple[Any, ...]]:
    return [(record.value["op"], record.key, record.value["before"], record.value["after"]) for record in records]


def rows_by_key(records: Sequence[SourceRecord], table: str) -> dict[str, Any]:
    """The rows of a table by key, according to its changes."""
    rows: dict[str, Any] = {}
    for record in records:
        if not record.topic.endswith(f".{table}"):
            continue
        op, key = record.value["op"], json.dumps(record.key)
        if op == "t":
            rows.clear()
        elif op == "d":
            assert key in rows, f"{key} is deleted and was not there"
            del rows[key]
        else:
            assert record.value["after"] is not None
            assert (key in rows) == (op == "u"), f"{op} of {key}"
            rows[key] = record.value["after"]
    return rows


async def read_snapshot(run: Run) -> list[SourceRecord]:
    """All records until the first snapshot is complete, without tombstones."""
    records: list[SourceRecord] = []
    while "completed" not in [offset["state"] for partition, offset in run.offsets.items() if "snapshot" in partition]:
        batch = await run.take(LIMIT)
        assert batch is not None, run.log.text()
        assert not batch[1].bad, batch[1].bad
        records += [record for record in batch[1].records if record.value is not None]
    return records


def contents(source: Source, table: str, *fields: str) -> list[dict[str, Any]]:
    rows = source.sql(f"SELECT {', '.join(fields)} FROM {table}")
    return [dict(zip(fields, row, strict=True)) for row in rows]


def same(first: Any, second: Any) -> bool:
    return sorted(map(repr, first)) == sorted(map(repr, second))
