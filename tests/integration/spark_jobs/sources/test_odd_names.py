"""Whole jobs over tables with odd names of columns: they come into the target as they are, or their one table is refused."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs import history
from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.sources.test_whole_jobs import Jobs, jdbc, jobs
from tests.unit.spark_jobs.sources.support import envelope_schema, member, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compose.local.mariadb import MariaDb
    from compose.local.postgres import Postgres
    from tests.integration.spark_jobs.jdbc.conftest import Database

# One of the longest files: other tests go the same ways in every run.
pytestmark = pytest.mark.slow

__all__ = ["jobs"]

NAMES = (
    'a"b',
    "a\\b",
    "a\tb",
    "a\nb",
    "a\x01b",
    "a`b",
    "a.b",
    "ä日",
    "a'b",
    "a%sb",
    "a b,;{}()=",
    "$x",
    "c0",
    "select",
)
DEBEZIUM = {"source.format": "debezium"}


def row(names: tuple[str, ...], number: int) -> dict[str, Any]:
    return {"id": number, **{name: f'{index}\'s "value"' for index, name in enumerate(names)}}


def with_schema(table: str, names: tuple[str, ...]) -> tuple[bytes, bytes]:
    columns = [{"type": "int64", "optional": False, "field": "id"}, *(member(name, "string") for name in names)]
    event = {"after": row(names, 1), "op": "c", "source": {"db": "d", "table": table}}
    return b'{"id":1}', message(envelope_schema(columns), event)


def without_schema(table: str, names: tuple[str, ...]) -> tuple[bytes, bytes]:
    return b'{"id":2}', json.dumps({"op": "c", "after": row(names, 2), "source": {"db": "d", "table": table}}).encode()


def ums(table: str, names: tuple[str, ...]) -> tuple[None, bytes]:
    fields = {
        "ums_id_": "long",
        "ums_ts_": "datetime",
        "ums_op_": "string",
        "id": "long",
        **dict.fromkeys(names, "string"),
    }
    cells = {"ums_id_": "1", "ums_ts_": "2026-11-21 10:00:00.000", "ums_op_": "i"} | {
        name: str(value) for name, value in row(names, 3).items()
    }
    return None, json.dumps(
        {
            "protocol": {"type": "data_increment_data"},
            "payload": [{"tuple": [cells[name] for name in fields]}],
            "schema": {
                "namespace": f"mysql.i.d.{table}.1.0.0",
                "fields": [{"name": name, "type": kind, "nullable": True} for name, kind in fields.items()],
            },
        }
    ).encode()


def send(jobs: Jobs, names: tuple[str, ...], *refused: tuple[str, ...]) -> list[tuple[bytes, bytes]]:
    """Records of table ``odd`` with and without a schema, of ``plain``, and of ``refused0`` and so on, which are returned."""
    bad = [with_schema(f"refused{number}", columns) for number, columns in enumerate(refused)]
    jobs.send(
        jobs.name, [with_schema("odd", names), *bad, without_schema("plain", ("note",)), without_schema("odd", names)]
    )
    return bad


def letters(jobs: Jobs) -> dict[str, str]:
    return {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{jobs.name}-dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }


def refused(jobs: Jobs, bad: Sequence[tuple[bytes | None, bytes]]) -> list[str]:
    """The reasons of the dead letters, sorted; their records have to be ``bad``."""
    letters = jobs.read(f"{jobs.name}-dead")
    assert sorted((letter.key(), letter.value()) for letter in letters) == sorted(bad)
    return sorted(dict(letter.headers())["__connect.errors.exception.message"].decode() for letter in letters)


def chosen(server: Database, table: str, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    columns = ", ".join(map(server.quote, ("id", *names)))
    return server.query(f"SELECT {columns} FROM {server.quote(table)} ORDER BY id")


def expected(names: tuple[str, ...], *numbers: int) -> list[tuple[Any, ...]]:
    return [tuple(row(names, number).values()) for number in numbers]


def test_postgresql(jobs: Jobs, postgres: Postgres) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    names = (*NAMES, "C0", "Select")  # other names than c0 and select
    bad = send(jobs, names, ("", "x"), ("ctid",))
    options = {**DEBEZIUM, **jdbc(postgres), "sink.jdbc.mode": "split", "sink.jdbc.table": f"{jobs.name}_${{table}}"}
    error = jobs.run(jobs.name, **options)
    assert "table d.refused" in error
    assert "which the database can't hold: " in error
    assert "set errors.tolerance=all: the records of this table are put aside" in error
    assert server.query("SELECT count(*) FROM pg_class WHERE relname LIKE %s", (f"{jobs.name}%",)) == [(0,)]
    assert jobs.run(jobs.name, **options, **letters(jobs)) == ""
    assert chosen(server, f"{jobs.name}_odd", names) == expected(names, 1, 2)
    assert chosen(server, f"{jobs.name}_plain", ("note",)) == expected(("note",), 2)
    reasons = refused(jobs, bad)
    assert "d.refused0 has a column ''" in reasons[0]
    assert "d.refused1 has a column 'ctid'" in reasons[1]


def test_a_table_without_a_key_stops_no_other_table(jobs: Jobs, postgres: Postgres) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    key, value = with_schema("keyed", ("note",))
    # Another column, because a kind of records is known by the text of its schema.
    bare = (None, with_schema("bare", ("text",))[1])
    jobs.send(jobs.name, [(key, value), bare])
    options = {**DEBEZIUM, **jdbc(postgres), "sink.jdbc.table": f"{jobs.name}_${{table}}"}
    error = jobs.run(jobs.name, **options)
    assert "table d.bare has no primary key" in error
    assert "set errors.tolerance=all: the records of this table are put aside" in error
    assert jobs.run(jobs.name, **options, **letters(jobs)) == ""
    assert chosen(server, f"{jobs.name}_keyed", ("note",)) == expected(("note",), 1)
    (text,) = refused(jobs, [bare])
    assert "Name it in sink.jdbc.key.columns, or use sink.jdbc.mode=insert" in text


def test_mariadb(jobs: Jobs, mariadb: MariaDb) -> None:
    server = database(mariadb.url, mariadb.user, mariadb.password)
    bad = send(jobs, NAMES, ("", "x"), ("a😀",), ("a ",), ("name", "Name"))
    emoji, (key, value) = with_schema("🙂", ("x",)), with_schema("large", ("y",))
    large = key, value.replace(b'"id":1', b'"id":%d' % (1 << 70))
    jobs.send(jobs.name, [emoji, large])
    options = {
        **DEBEZIUM,
        **jdbc(mariadb),
        "sink.jdbc.table": f"{jobs.name}_${{table}}",
        "sink.jdbc.delete.mode": "real",
    }
    assert jobs.run(jobs.name, **options, **letters(jobs)) == ""
    assert chosen(server, f"{jobs.name}_odd", NAMES) == expected(NAMES, 1, 2)
    assert chosen(server, f"{jobs.name}_plain", ("note",)) == expected(("note",), 2)
    reasons = refused(jobs, [*bad, emoji, large])
    assert reasons[0].startswith(f"Table d.large, column id: the value {1 << 70} does not fit the type bigint (")
    assert [text.partition(", which")[0].partition(" in the")[0] for text in reasons[1:5]] == [
        "table d.refused0 has a column ''",
        "table d.refused1 has a column 'a😀'",
        "table d.refused2 has a column 'a '",
        "table d.refused3: the columns name and Name have one name",
    ]
    assert "table d.🙂 can't be written to a table" in reasons[5]


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_files(jobs: Jobs, kind: str) -> None:
    names = (*NAMES, "")
    bad = send(jobs, names, ("name", "Name"))
    target = str(jobs.folder / "history")
    options = {**DEBEZIUM, "sink.type": "files", "sink.files.path": target, "sink.files.format": kind}
    if kind == "parquet":
        assert "table d.refused0: columns name and Name differ only in upper and lower case" in jobs.run(
            jobs.name, **options
        )
    assert jobs.run(jobs.name, **options, **letters(jobs)) == ""
    for rows in (history.read(jobs.spark, target, "d.odd"), history.snapshot(jobs.spark, target, "d.odd")):
        read_rows = sorted(tuple(line)[: len(names) + 1] for line in rows.collect())
        assert (rows.columns[1 : len(names) + 1], read_rows) == (list(names), expected(names, 1, 2))
    assert "d.refused0: columns name and Name" in refused(jobs, bad)[0]
    if kind == "json":  # with the other name the table is no longer refused
        jobs.send(jobs.name, [with_schema("refused0", ("name", "other"))])
        assert jobs.run(jobs.name, **options, **letters(jobs)) == ""
        (found_row,) = history.read(jobs.spark, target, "d.refused0").collect()
        assert found_row.asDict().items() >= row(("name", "other"), 1).items()
    assert "odd_at" in history.register(jobs.spark, target, tables=["d.odd"])
    assert jobs.spark.sql("SELECT count(`a``b`) FROM odd_at(TIMESTAMP '9999-01-01 00:00:00')").collect()[0][0] == 2


def test_kafka_with_names_that_differ_in_case_and_masks(jobs: Jobs) -> None:
    names = (*NAMES, "", "C0", "ä😀")
    send(jobs, names)
    options = {
        **DEBEZIUM,
        "sink.type": "kafka",
        "sink.kafka.content": "rows",
        "sink.kafka.key": "columns",
        "sink.kafka.key.columns": "id",
        "sink.kafka.topic": "${topic}-out",
        "mask.rules": "m",
        "mask.m.columns": r"d\.odd\.\$x",
        "mask.m.type": "default",
    }
    assert jobs.run(jobs.name, **options) == ""
    odd_rows = [
        value for value in (json.loads(record.value()) for record in jobs.read(f"{jobs.name}-out")) if "$x" in value
    ]
    expected_rows = [{**row(names, number), "$x": ""} for number in (1, 2)]
    assert (
        sorted(({name: value[name] for name in expected_rows[0]} for value in odd_rows), key=lambda value: value["id"])
        == expected_rows
    )


def test_console_and_ums(jobs: Jobs, capfd: pytest.CaptureFixture[str]) -> None:
    names = (*NAMES, "", "C0", "ä😀")
    jobs.send(jobs.name, [ums("odd", names), ums("plain", ("note",))])
    options = {"source.format": "ums", "sink.type": "console", "sink.console.format": "json"}
    assert jobs.run(jobs.name, **options) == ""
    shown = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith('{"table_"')]
    odd_row = next(line for line in shown if line["table_"] == "mysql.i.d.odd.1.0.0")
    assert {name: odd_row[name] for name in ("id", *names)} == row(names, 3)
    assert len(shown) == 2
