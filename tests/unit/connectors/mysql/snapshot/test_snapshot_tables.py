"""The tables that a run's snapshots find and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from connectors.mysql.config.filters import MySqlTableFilter
from connectors.mysql.events.contract import EventContext
from connectors.mysql.model import MySqlColumn, MySqlTable, Shard, TableName
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema.tables import StreamTables, Structure, TableSelection
from connectors.mysql.schema.versions import VersionBook
from connectors.mysql.snapshot.tables import SnapshotTables
from connectors.mysql.source.statements import classify_statement
from connectors.testing.contexts import LogCapture, make_logger
from tests.support.settings import mysql_events, mysql_topics, mysql_values
from tests.unit.connectors.mysql.snapshot.run_world import settings
from tests.unit.connectors.mysql.synthetic import PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.mysql.schema.types import ValueOptions
    from connectors.mysql.source.server import SourceServer


class Server:
    """A server with some tables."""

    def __init__(self, *names: str) -> None:
        self._names = [TableName("shop", name) for name in names]

    async def names(self, is_captured: Callable[[TableName], bool]) -> list[TableName]:
        return [name for name in self._names if is_captured(name)]

    async def definitions(self, names: Sequence[TableName]) -> dict[TableName, MySqlTable]:
        return {name: MySqlTable(name=name, columns=(MySqlColumn(name="id", type=3),), key=("id",)) for name in names}


def snapshot_tables(server: Any = None, tables: StreamTables | None = None) -> SnapshotTables:
    return SnapshotTables(cast("SourceServer", server), cast("StreamTables", tables), lambda _: True)


def stream_tables(options: ValueOptions | None = None) -> StreamTables:
    form = mysql_events(topics=mysql_topics(prefix="p"))

    async def nothing_known(_names: Sequence[TableName]) -> dict[TableName, MySqlTable]:
        return {}

    return StreamTables(
        TableSelection(MySqlTableFilter(form), {}, Shard()),
        EventContext(form, PARTITION),
        options or mysql_values(),
        VersionBook("p", "", ()),
        nothing_known,
        make_logger("tables", LogCapture()),
    )


def packet(*values: bytes) -> bytes:
    return b"".join(bytes([len(value)]) + value for value in values)


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


@pytest.mark.parametrize(
    ("column", "options", "values"),
    [
        (
            MySqlColumn(name="at", type=codes.DATETIME2, meta=6, nullable=False),
            mysql_values(time_mode="connect"),
            (b"2026-11-29 12:00:00.000001", b"2026-11-29 12:00:00.000002"),
        ),
        (
            MySqlColumn(name="at", type=codes.TIME2, meta=6, nullable=False),
            mysql_values(time_mode="connect"),
            (b"12:00:00.000001", b"12:00:00.000002"),
        ),
        (
            MySqlColumn(name="at", type=codes.DECIMAL, meta=20 << 8 | 2, nullable=False),
            mysql_values(decimal_mode="double"),
            (b"123456789012345678.01", b"123456789012345678.02"),
        ),
    ],
)
def test_rows_whose_keys_look_alike_in_events_are_not_taken_for_one_row(
    column: MySqlColumn, options: ValueOptions, values: tuple[bytes, bytes]
) -> None:
    name = TableName("shop", "readings")
    device = MySqlColumn(name="device", type=codes.LONG, nullable=False)
    table = MySqlTable(name=name, columns=(device, column), key=("device", "at"))
    decoder = snapshot_tables(tables=stream_tables(options)).decoder(table)
    first, second = (decoder.decode(packet(b"7", value)) for value in values)
    assert first == second
    assert decoder.key == ()
    exact = snapshot_tables(tables=stream_tables()).decoder(table)
    assert exact.key == ("device", "at")
    assert exact.decode(packet(b"7", values[0])) != exact.decode(packet(b"7", values[1]))


def test_rows_have_the_version_that_the_stream_has_given_to_their_structure() -> None:
    name = TableName("shop", "t")
    columns = tuple(MySqlColumn(name=letter, type=codes.LONG) for letter in "abc")
    first, second, third = (MySqlTable(name=name, columns=columns[:count], key=("a",)) for count in (1, 2, 3))
    tables = stream_tables()
    tables.versions.version(first, Structure(0, "b.000001", 4, "", ""))
    snapshot = snapshot_tables(tables=tables)
    # The snapshot reads what two statements have made, before the stream comes to them.
    assert snapshot.state(third).version == 2
    tables.versions.version(second, Structure(0, "b.000001", 100, "", ""))
    tables.versions.version(third, Structure(0, "b.000001", 200, "", ""))
    assert snapshot.state(third).version == 3
    assert snapshot.state(third) is snapshot.state(third)


def test_a_snapshot_of_thousands_of_tables_keeps_what_few_of_them_need() -> None:
    snapshot = snapshot_tables(tables=stream_tables())
    columns = (MySqlColumn(name="id", type=codes.LONG),)
    tables = [MySqlTable(name=TableName("shop", f"t{number}"), columns=columns, key=("id",)) for number in range(1000)]
    first = snapshot.state(tables[0])
    states = [first]
    for table in tables[1:]:
        states.append(snapshot.state(table))
        assert snapshot.state(tables[0]) is first, "it is in use"
    kept = sum(snapshot.state(table) is state for table, state in zip(tables[::-1], states[::-1], strict=True))
    assert 50 <= kept <= 100


def test_few_structures_of_tables_that_are_gone_are_remembered() -> None:
    tables = stream_tables()
    states = []
    for number in range(1000):
        name = TableName("shop", f"import_{number}")
        table = MySqlTable(name=name, columns=(MySqlColumn(name="id", type=codes.LONG),), key=("id",))
        states.append(tables.state(table, Structure(0, "b.000001", 4 + number, "", "")))
        tables._current[name] = states[-1]
        tables.forget(classify_statement(f"DROP TABLE {name.table}", "shop"))
    assert tables.of(states[-1].name) is states[-1], "a TRUNCATE before the DROP may come yet"
    kept = sum(tables.of(state.name) is state for state in states)
    assert kept <= 200
