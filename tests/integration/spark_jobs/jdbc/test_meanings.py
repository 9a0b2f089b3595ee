"""UUIDs, times and times without a zone are that in the database; columns of an earlier version's tables stay as they are."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import uuid
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from connectors.errors import Fatal
from spark_jobs.contract import LOCAL_TIMESTAMP, NUMBER, TIME, UUID, ZONED_TIME, Column, TableSchema
from tests.integration.spark_jobs.jdbc.conftest import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

FIRST_ID, SECOND_ID = "50554d6e-29bb-11e5-b345-feff819cdc9f", "ffffffff-ffff-ffff-ffff-ffffffffffff"
MOMENT = datetime(2026, 3, 29, 2, 30, 0, 123456, UTC)  # a local time that Europe's clocks skip
NANOS = (3 * 3600 + 4 * 60 + 5) * 10**9 + 6_007_008
COLUMNS = (
    Column("id", t.StringType(), nullable=False, key=True, meaning=UUID),
    Column("at", t.LongType(), meaning=TIME),
    Column("zoned", t.StringType(), meaning=ZONED_TIME),
    Column("local", t.TimestampType(), meaning=LOCAL_TIMESTAMP),
    Column("number", t.StringType(), meaning=NUMBER),
    Column("price", t.DecimalType(38, 18), meaning=NUMBER),
)
ROW = {
    "zoned": "10:15:30+02:00",
    "local": MOMENT,
    "number": "1234567890123456789012345678901234567890.0001000",
    "price": Decimal("1.1"),
}
ROWS: list[dict[str, Any]] = [
    {"id": FIRST_ID, "at": NANOS, **ROW, "ums_id_": 1},
    {"id": SECOND_ID, "at": None, "ums_id_": 2},
    {"id": FIRST_ID, "at": NANOS + 10**9, **ROW, "ums_id_": 3},
]


def schema_of(table: str) -> TableSchema:
    return TableSchema(f"shop.{table}", COLUMNS)


def types(db: Database, table: str) -> list[str]:
    column = "data_type" if db.name == "postgresql" else "column_type"
    rows = db.query(
        f"SELECT {column} FROM information_schema.columns WHERE table_name = %s ORDER BY ordinal_position", (table,)
    )
    return [row[0] for row in rows[: len(COLUMNS)]]


@pytest.mark.parametrize("options", [{}, {"sink.jdbc.delete.mode": "real"}], ids=["soft", "real"])
def test_they_arrive_as_such(rig: Callable[..., Rig], server_db: Database, table: str, options: dict[str, str]) -> None:
    job = rig(server_db, **options)
    job.write(schema_of(table), ROWS)
    postgresql = server_db.name == "postgresql"
    assert types(server_db, table) == (
        ["uuid", "time without time zone", "time with time zone", "timestamp without time zone", "numeric", "numeric"]
        if postgresql
        else [
            "char(36)" if server_db.name == "mysql" else "uuid",
            "time(6)",
            "longtext",
            "datetime(6)",
            "longtext",
            "decimal(38,18)",
        ]
    )
    rows = server_db.rows(table, "id, at, local, price")
    local_time = datetime(2026, 3, 29, 2, 30, 0, 123456)  # noqa: DTZ001 - this type has none
    at = time(3, 4, 6, 6007) if postgresql else timedelta(hours=3, minutes=4, seconds=6, microseconds=6007)
    id_type: Any = uuid.UUID if postgresql else str
    assert sorted(rows, key=str) == sorted(
        [(id_type(FIRST_ID), at, local_time, Decimal("1.1")), (id_type(SECOND_ID), None, None, None)], key=str
    )
    shown = "zoned::text, number::text" if postgresql else "zoned, number"
    assert server_db.query(f"SELECT {shown} FROM {table} WHERE at IS NOT NULL") == [
        ("10:15:30+02" if postgresql else ROW["zoned"], ROW["number"])
    ]
    # A delete, an older change of the row, and the same table found again by a new run.
    job.restart()
    job.write(
        schema_of(table), [{"id": FIRST_ID, "ums_op_": "d", "ums_id_": 5}, {"id": FIRST_ID, "at": NANOS, "ums_id_": 4}]
    )
    living = "WHERE ums_active_ = 1" if not options else ""
    assert server_db.query(f"SELECT id FROM {table} {living}") == [(id_type(SECOND_ID),)]


@pytest.fixture(params=["postgresql", "mariadb"])
def uuid_db(request: pytest.FixtureRequest) -> Database:
    """Each database that has a type for UUIDs; text tells spellings apart."""
    chosen: Database = request.getfixturevalue(FIXTURES[request.param])
    return chosen


def test_spellings_of_one_uuid_are_one_key(rig: Callable[..., Rig], uuid_db: Database, table: str) -> None:
    job = rig(uuid_db)
    job.write(
        schema_of(table),
        [
            {"id": FIRST_ID.upper(), "at": 1_000, "ums_id_": 1},
            {"id": FIRST_ID, "at": 2_000, "ums_id_": 2},
            {"id": f"{{{SECOND_ID.upper()}}}", "ums_id_": 3},
        ],
    )
    assert sorted(str(row[0]) for row in uuid_db.rows(table, "id")) == [FIRST_ID, SECOND_ID]
    job.write(
        schema_of(table),
        [{"id": FIRST_ID, "ums_op_": "d", "ums_id_": 5}, {"id": FIRST_ID.upper(), "at": 3_000, "ums_id_": 6}],
    )
    assert sorted((str(row[0]), row[1]) for row in uuid_db.rows(table, "id, ums_active_")) == [
        (FIRST_ID, 1),
        (SECOND_ID, 1),
    ]


@pytest.mark.parametrize("options", [{}, {"sink.jdbc.delete.mode": "real"}], ids=["soft", "real"])
def test_tables_of_an_earlier_version_keep_their_columns(
    rig: Callable[..., Rig], server_db: Database, table: str, options: dict[str, str]
) -> None:
    earlier = TableSchema(
        f"shop.{table}", tuple(Column(column.name, column.type, column.nullable, column.key) for column in COLUMNS)
    )
    rig(server_db, **options).write(earlier, ROWS[:1])
    before = types(server_db, table)
    job = rig(server_db, **options)
    job.write(schema_of(table), ROWS[1:])
    assert types(server_db, table) == before
    assert before[:2] == (
        ["text", "bigint"]
        if server_db.name == "postgresql"
        else ["varchar(255)", "bigint" if server_db.name == "mysql" else "bigint(20)"]
    )
    assert server_db.rows(table, "id, at") == [(FIRST_ID, NANOS + 10**9), (SECOND_ID, None)]
    job.write(schema_of(table), [{"id": FIRST_ID, "ums_op_": "d", "ums_id_": 5}])
    living = "WHERE ums_active_ = 1" if not options else ""
    assert server_db.query(f"SELECT id FROM {table} {living}") == [(SECOND_ID,)]


def test_times_that_are_none_of_a_day(
    rig: Callable[..., Rig], postgresql: Database, maria: Database, table: str
) -> None:
    """MySQL's go from -838:59:59 to 838:59:59; its own type holds them, PostgreSQL's interval does."""
    nanos = -(838 * 3600 + 59 * 60 + 59) * 10**9
    rows = [
        {"id": FIRST_ID, "at": nanos, "ums_id_": 1},
        {"id": SECOND_ID, "at": 24 * 3600 * 10**9 + 1000, "ums_id_": 2},
    ]
    expected = [timedelta(microseconds=nanos // 1000), timedelta(days=1, microseconds=1)]
    rig(maria).write(schema_of(table), rows)
    assert [row[1] for row in maria.rows(table, "id, at")] == expected
    job = rig(postgresql)
    said = rf"column at is negative.*: ALTER TABLE \"{table}\" ALTER COLUMN \"at\" TYPE interval;"
    with pytest.raises(Fatal, match=said) as no:
        job.write(schema_of(table), rows)
    postgresql.query(str(no.value).partition("holds it: ")[2].partition(";")[0])
    assert job.write(schema_of(table), rows) == 2
    assert [row[1] for row in postgresql.rows(table, "id, at")] == expected


def test_times_of_a_key_are_not_cut(rig: Callable[..., Rig], db: Database, table: str) -> None:
    """Two rows would become one."""
    key = Column("at", t.LongType(), nullable=False, key=True, meaning=TIME)
    schema = TableSchema(f"shop.{table}", (key, Column("seen", t.LongType(), meaning=TIME)))
    job = rig(db)
    assert job.write(schema, [{"at": 1_000, "seen": 1, "ums_id_": 1}, {"at": 2_000, "ums_id_": 2}]) == 2
    with pytest.raises(Fatal, match="with at=2001: the time in column at has more digits after the second"):
        job.write(schema, [{"at": 1_000, "ums_id_": 3}, {"at": 2_001, "ums_id_": 4}])
    assert len(db.rows(table)) == 2
