"""A cluster's ``system_schema`` in memory, and catalogs that read it."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from connectors.cassandra.schema.catalog import CassandraCatalog, CassandraTableFilter, id_bytes
from connectors.errors import Retriable

if TYPE_CHECKING:
    import asyncio

    from connectors.cql.mutations.definition import CqlTableDefinition

T1, T2, T3 = (str(uuid.UUID(int=number)) for number in (1, 2, 3))


class Schema:
    """A cluster's ``system_schema`` in memory: rows by table, and the versions that nodes tell."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("tables", "views", "columns", "dropped_columns", "types")
        }
        self.local, self.peers = "v1", ["v1", "v1"]
        self.asked = 0
        self.away = False
        self.gate: asyncio.Event | None = None

    async def query(self, text: str, parameters: Any = (), **_: Any) -> list[dict[str, Any]]:
        assert not parameters
        if self.away:
            raise Retriable("no node answers")
        source = text.split(" FROM ")[1]
        if source == "system.local":
            return [{"broadcast_address": "10.0.0.1", "schema_version": self.local}]
        if source == "system.peers":
            return [
                {"peer": f"10.0.0.{number}", "schema_version": version} for number, version in enumerate(self.peers, 2)
            ]
        if source == "system_schema.tables":
            self.asked += 1
            if self.gate is not None:
                await self.gate.wait()
        return [dict(row) for row in self.rows[source.removeprefix("system_schema.")]]

    def version(self, text: str) -> None:
        self.local, self.peers = text, [text, text]

    def add(self, keyspace: str, table: str, table_id: str, columns: dict[str, str], *, cdc: bool = True) -> None:
        self.drop(keyspace, table)
        self.rows["tables"].append({"keyspace_name": keyspace, "table_name": table, "id": table_id, "cdc": cdc})
        for index, (name, kind) in enumerate(columns.items()):
            self.rows["columns"].append(
                {
                    "keyspace_name": keyspace,
                    "table_name": table,
                    "column_name": name,
                    "type": kind,
                    "clustering_order": "none",
                    "kind": "regular" if index else "partition_key",
                    "position": -1 if index else 0,
                }
            )

    def drop(self, keyspace: str, table: str) -> None:
        for name in ("tables", "columns"):
            self.rows[name] = [
                row for row in self.rows[name] if (row["keyspace_name"], row["table_name"]) != (keyspace, table)
            ]

    def drop_column(self, keyspace: str, table: str, column: str, ms: int) -> None:
        row = next(row for row in self.rows["columns"] if (row["table_name"], row["column_name"]) == (table, column))
        self.rows["columns"].remove(row)
        self.rows["dropped_columns"].append(
            {
                "keyspace_name": keyspace,
                "table_name": table,
                "column_name": column,
                "kind": row["kind"],
                "type": row["type"],
                "dropped_ms": ms,
            }
        )


class Numbers:
    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def set(self, name: str, value: float, labels: Any = None) -> None:
        self.values[" ".join([name, *(labels or {}).values()])] = value

    def add(self, name: str, value: float = 1, labels: Any = None) -> None:
        self.set(name, self.values.get(" ".join([name, *(labels or {}).values()]), 0) + value, labels)


def catalog_of(schema: Any, include: str = "", exclude: str = "", numbers: Numbers | None = None) -> CassandraCatalog:
    return CassandraCatalog(CassandraTableFilter(include, exclude), logging.getLogger("test"), numbers, schema)


def find_table(catalog: CassandraCatalog, table_id: str) -> CqlTableDefinition:
    table = catalog.by_id(id_bytes(table_id))
    assert table is not None
    return table


def columns(table: CqlTableDefinition) -> list[str]:
    return [column.name for column in table.columns]
