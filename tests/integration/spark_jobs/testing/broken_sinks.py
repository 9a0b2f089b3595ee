"""A small sink that writes to a SQLite file, and the ways in which it may be broken."""

# ruff: noqa: S608 - no value is in the statement
from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from connectors.errors import Fatal
from connectors.options import ConfigDef, ConfigKey, ConfigType
from spark_jobs.contract import Sink

if TYPE_CHECKING:
    from spark_jobs.contract import Batch, TableChanges

TABLE = (
    "CREATE TABLE IF NOT EXISTS rows (name TEXT, key TEXT, number INTEGER, alive INTEGER, value TEXT, "
    "PRIMARY KEY (name, key))"
)


class LiteSink(Sink):
    """One row per key, the newest; deletes are remembered. ``sink.lite.fault`` breaks it."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(name="sink.lite.path", type=ConfigType.STRING, doc="The file."),
            ConfigKey(name="sink.lite.fault", type=ConfigType.STRING, default="", doc="What it does wrong."),
        ]
    )
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once",)

    def open(self) -> None:
        self._fault = self.context.config["sink.lite.fault"]
        self._seen: set[int] = set()

    def write(self, batch: Batch) -> int:
        if self._fault == "loses a batch on replay" and batch.id in self._seen:
            with closing(sqlite3.connect(self.context.config["sink.lite.path"])) as connection:
                connection.execute("DELETE FROM rows")
                connection.commit()
            return 0
        self._seen.add(batch.id)
        with closing(sqlite3.connect(self.context.config["sink.lite.path"])) as connection:
            connection.execute(TABLE)
            written = sum(self._open_table(connection, changes) for changes in batch.changes())
            connection.commit()
        return written

    def _open_table(self, connection: sqlite3.Connection, changes: TableChanges) -> int:
        keys = [column.name for column in changes.schema.key]
        rows = [row.asDict(recursive=True) for row in changes.frame.collect()]
        for row in rows:
            if row["ums_op_"] == "b":
                continue
            key = json.dumps([row[name] for name in keys], default=str)
            delete = row["ums_op_"] == "d"
            values = {name: row[name] for name in (column.name for column in changes.schema.columns)}
            if self._fault == "leaves nulls out":
                before = connection.execute(
                    "SELECT value FROM rows WHERE name = ? AND key = ?", (changes.schema.namespace, key)
                ).fetchone()
                values = {
                    **(json.loads(before[0]) if before else {}),
                    **{name: value for name, value in values.items() if value is not None},
                }
            if self._fault == "cuts long values":
                values = {name: value[:65536] if isinstance(value, str) else value for name, value in values.items()}
            if self._fault == "refuses reserved words" and "select" in values:
                raise Fatal('near "select": syntax error')
            condition = "" if self._fault == "ignores order" else " WHERE excluded.number >= rows.number"
            if delete and self._fault == "forgets deletes":
                connection.execute("DELETE FROM rows WHERE name = ? AND key = ?", (changes.schema.namespace, key))
            elif not (delete and self._fault == "ignores deletes"):
                connection.execute(
                    "INSERT INTO rows VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET number = excluded.number, "
                    f"alive = excluded.alive, value = excluded.value{condition}",
                    (changes.schema.namespace, key, row["ums_id_"], not delete, json.dumps(values, default=_text)),
                )
        return len(rows)


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(Fraction(value))
    if isinstance(value, datetime) and value.tzinfo is not None:
        return str(value.astimezone().replace(tzinfo=None))  # as Spark's rows have it
    return bytes(value).hex() if isinstance(value, bytes | bytearray) else str(value)
