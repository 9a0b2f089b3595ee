"""The SQL of the pages that moves tables of earlier versions to today's order numbers, on the real databases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from connectors.formats.order_number import FILE_UNIT, binlog_number
from tests.integration.spark_jobs.jdbc.conftest import simple
from worker.development.commands import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

#: Rows of a binlog: (file number, position of the event, number of the row in it), in order of the changes.
POSITIONS: Final = [
    (1, 4, 0),
    (1, 4, 1),
    (1, 4, 20),
    (1, 200, 0),
    (103, 12_345_678, 0),
    (103, 12_345_678, 5),
    (103, 1 << 30, 0),
    (104, 4, 0),
    (104, 150_000_000, 0),
    (9_223, (1 << 32) - 1, 7),
]


def _page(page: str, opening: str) -> str:
    """The statement on a page that follows a given string."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    # Pages are wrapped: any space of the text may be the end of a line.
    pattern = r"\s+".join(map(re.escape, opening.split())) + r"(.*?)[;`]"
    statements: list[str] = re.findall(pattern, text, re.DOTALL)
    assert len(statements) == 1, (page, opening)
    return statements[0].strip()


def _debezium(file: int, pos: int, row: int) -> int:
    return (file << 40) + pos + row


def _ums(file: int, pos: int, row: int) -> int:
    return file * FILE_UNIT + pos * 64 + 2 * row + 2


@pytest.mark.parametrize("form", ["debezium", "ums"])
def test_tables_of_earlier_versions_move_to_the_order_numbers_of_today(
    rig: Callable[..., Rig], server_db: Database, table: str, form: str
) -> None:
    old_number = {"debezium": _debezium, "ums": _ums}[form]
    schema = simple(table)
    job = rig(server_db, **{"sink.jdbc.delete.mode": "real"})
    job.write(
        schema, [{"id": key, "name": "old", "ums_id_": old_number(*position)} for key, position in enumerate(POSITIONS)]
    )
    job.write(schema, [{"id": 100, "ums_id_": old_number(103, 500, 0), "ums_op_": "d"}])
    later = binlog_number("mysql-bin.9223", 1 << 33)
    job.write(schema, [{"id": 8, "name": "later", "ums_id_": binlog_number("mysql-bin.000104", 150_000_400)}])
    assert (8, "old") in server_db.rows(table, "id, name"), "the old number is larger: this is what the move is for"

    count = _page("connectors/mysql.md", "-- rows with numbers of a build before 0.1.0")
    move = _page("connectors/mysql.md", f"-- filled from output.format={form}")
    assert server_db.query(count.replace("orders", server_db.quote(table)))[0][0] > 0
    for target in (table, f"{table}_ums"):
        server_db.query(move.replace("orders", server_db.quote(target)))
        assert server_db.query(count.replace("orders", server_db.quote(target))) == [(0,)]

    moved = [number for _, number in sorted(server_db.rows(table, "id, ums_id_"))]
    for (file, pos, row), number in zip(POSITIONS, moved, strict=True):
        # Not below the event's first row, which is above all earlier events; not above today's number of the row.
        assert binlog_number(f"x.{file}", pos) <= number <= binlog_number(f"x.{file}", pos, row)
    assert moved == sorted(moved)
    if form == "debezium":
        assert moved == [binlog_number(f"x.{file}", pos, row) for file, pos, row in POSITIONS]
    assert server_db.rows(f"{table}_ums", "id, ums_id_") == [(100, binlog_number("x.103", 500))]

    job.restart()
    job.write(
        schema,
        [
            {"id": 8, "name": "later", "ums_id_": binlog_number("mysql-bin.000104", 150_000_400)},
            {"id": 4, "name": "older", "ums_id_": binlog_number("mysql-bin.000103", 12_345_600)},
            {"id": 100, "name": "before its delete", "ums_id_": binlog_number("mysql-bin.000103", 499)},
            {"id": 0, "name": "newest", "ums_id_": later},
        ],
    )
    names = dict(server_db.rows(table, "id, name"))
    assert names == {**dict.fromkeys(range(len(POSITIONS)), "old"), 8: "later", 0: "newest"}


def test_tables_over_scylla_move_to_write_times(rig: Callable[..., Rig], server_db: Database, table: str) -> None:
    time_us = 1_780_000_000_123_457
    job = rig(server_db)
    job.write(
        simple(table),
        [{"id": number, "ums_id_": time_us * 2048 + number, "ums_ts_": time_us} for number in (0, 1, 1023, 1024, 2047)],
    )
    server_db.query(_page("jobs/jdbc.md", "(Scylla's UMS: `").replace("UPDATE t ", f"UPDATE {server_db.quote(table)} "))
    assert {number for _, number in server_db.rows(table, "id, ums_id_")} == {time_us}
