"""The tables that a run's snapshots find and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from connectors.mysql.model import MySqlColumn, MySqlTable, TableName
from connectors.mysql.snapshot.tables import SnapshotTables
from tests.unit.connectors.mysql.snapshot.run_world import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.mysql.schema.tables import StreamTables
    from connectors.mysql.source.server import SourceServer


class Server:
    """A server with some tables."""

    def __init__(self, *names: str) -> None:
        self._names = [TableName("shop", name) for name in names]

    async def names(self, is_captured: Callable[[TableName], bool]) -> list[TableName]:
        return [name for name in self._names if is_captured(name)]

    async def definitions(self, names: Sequence[TableName]) -> dict[TableName, MySqlTable]:
        return {name: MySqlTable(name=name, columns=(MySqlColumn(name="id", type=3),), key=("id",)) for name in names}


def snapshot_tables(server: Any) -> SnapshotTables:
    return SnapshotTables(cast("SourceServer", server), cast("StreamTables", None), lambda _: True)


@pytest.mark.parametrize(
    "expressions",
    [
        [r"shop\.log_\d{1,2}"],  # of a request over REST, or of a signal
        list(settings(snapshot_include_collection_list=r"shop\.log_\d{1\,2}").snapshot_tables),
    ],
)
async def test_a_comma_in_an_expression_for_tables_is_no_end_of_it(expressions: list[str]) -> None:
    tables = snapshot_tables(Server("log_1", "log_12", "log_123"))
    assert [str(table.name) for table in await tables.find(expressions)] == ["shop.log_1", "shop.log_12"]
