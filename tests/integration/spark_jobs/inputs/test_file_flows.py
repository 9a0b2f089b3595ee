"""Flows that read files: rows of every format in PostgreSQL, bad rows and files in the dead letter topic, a killed driver."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs import history
from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.sources.test_whole_jobs import Jobs, jdbc, jobs
from tests.support.job_process import Job
from tests.support.job_runs import run_job

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.postgres import Postgres

__all__ = ["jobs"]

#: Two files of a table: the second one changes a row of the first one, and adds a column.
ROWS: list[list[tuple[Any, ...]]] = [
    [(1, "plain", "1.50"), (2, 'quoted "x", and a comma', "2.25"), (3, "", None)],
    [(2, "changed", "9.99"), (4, "ä€😀", "-0.01")],
]
NEWEST = [(1, "plain", "1.50"), (2, "changed", "9.99"), (3, "", None), (4, "ä€😀", "-0.01")]


@dataclass
class FileJobs:
    """Runs jobs over files; each run reads what is there and ends."""

    spark: SparkSession
    folder: Path

    def drop(self, name: str, content: bytes, modified: int) -> Path:
        """Write a file as it was at ``modified`` seconds since 1970."""
        path = self.folder / "drop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (modified, modified))
        return path

    def run(self, kind: str, **options: str) -> str:
        """Run the job to its end.

        Returns:
            The error; empty where the job ended well.
        """
        properties = {
            "name": "file-job",
            "source.type": "files",
            "source.files.path": str(self.folder / "drop"),
            "source.files.format": kind,
            "source.files.namespace": "drop.rows",
            "state.dir": str(self.folder / "state"),
            "trigger.mode": "available-now",
            "errors.retry.timeout.ms": "0",
            **options,
        }
        if "sink.type" not in options:
            properties |= {"sink.type": "files", "sink.files.path": str(self.folder / "out")}
        return run_job(self.spark, properties)

    def output(self, *columns: str) -> list[tuple[Any, ...]]:
        """The rows that the files sink has, in their order."""
        rows = history.read(self.spark, str(self.folder / "out")).orderBy("ums_id_").selectExpr(*columns)
        return [tuple(row) for row in rows.collect()]


@pytest.fixture
def file_jobs(spark: SparkSession, tmp_path: Path) -> FileJobs:
    return FileJobs(spark, tmp_path)


def encode(kind: str, spark: SparkSession, folder: Path, rows: Sequence[tuple[Any, ...]]) -> bytes:
    """The content of a file with the columns id, name and price."""
    if kind == "csv":
        quoted = [["" if value is None else '"' + str(value).replace('"', '""') + '"' for value in row] for row in rows]
        fields = [",".join(values) for values in quoted]
        return ("id,name,price\r\n" + "\r\n".join(fields) + "\r\n").encode()
    if kind == "json":
        return "\n".join(json.dumps(dict(zip(("id", "name", "price"), row, strict=True))) for row in rows).encode()
    frame = spark.createDataFrame(rows, "id long, name string, price string")
    frame = frame.selectExpr("id", "name", "CAST(price AS decimal(10,2)) AS price")
    frame.coalesce(1).write.format(kind).save(str(folder))
    return next(path for path in folder.iterdir() if path.suffix == f".{kind}").read_bytes()


@pytest.mark.parametrize(
    "kind", ["csv", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("json", "avro", "orc")), "parquet"]
)
def test_rows_of_files_are_the_rows_of_the_table(
    kind: str, file_jobs: FileJobs, postgres: Postgres, tmp_path: Path
) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    table = f"f{secrets.token_hex(4)}"
    options = {
        **jdbc(postgres),
        "source.files.namespace": f"drop.{table}",
        "source.files.operation": "update",
        "source.key.columns": "id",
        "source.table.columns": "id bigint, name string, price decimal(10,2)",
        "transform.steps": "all_but_nine",
        "transform.step.all_but_nine.type": "filter",
        "transform.step.all_but_nine.condition": "id <> 9",
    }
    chosen = f"SELECT id, name, price::text FROM {server.quote(table)} ORDER BY id"
    numbers = f"SELECT id, ums_id_, ums_op_ FROM {server.quote(table)} ORDER BY id"
    for number, rows in enumerate(ROWS):
        content = encode(kind, file_jobs.spark, tmp_path / f"made{number}", [*rows, (9, "left out", None)])
        file_jobs.drop(f"a folder/{number} [x].{kind}", content, 1_700_000_000 + number)
        assert file_jobs.run(kind, **options) == ""
    assert server.query(chosen) == NEWEST
    first = server.query(numbers)
    base = 1_700_000_000_000 << 20
    assert first == [
        (1, base, "u"),
        (2, base + (1000 << 20), "u"),
        (3, base + 2, "u"),
        (4, base + (1000 << 20) + 1, "u"),
    ]
    # With the checkpoint lost, all files are read again: every row keeps its number, so nothing changes.
    assert file_jobs.run(kind, **options, **{"checkpoint.location": str(tmp_path / "another")}) == ""
    assert (server.query(chosen), server.query(numbers)) == (NEWEST, first)


def test_lines_of_text(file_jobs: FileJobs) -> None:
    file_jobs.drop("b.txt", b"third\n", 1_700_000_000)
    file_jobs.drop("a.txt", b"first\n\n", 1_700_000_000)
    file_jobs.drop("_part.txt", b"out of sight\n", 1_700_000_000)
    assert file_jobs.run("text", **{"source.files.position.columns": "true"}) == ""
    # Files of one time come by name.
    assert [
        (text, path.rpartition("/")[2], row) for text, path, row in file_jobs.output("value", "file_path_", "file_row_")
    ] == [
        ("first", "a.txt", 1),
        ("", "a.txt", 2),
        ("third", "b.txt", 1),
    ]


def test_columns_and_operations_of_csv(file_jobs: FileJobs) -> None:
    file_jobs.drop("1.csv", b"id;name\n1;one\n2;two\n", 1_700_000_000)
    file_jobs.drop("2.csv", b"name;op;added;id;at\nuno;U;x;1;2024-01-02T03:04:05Z\n;delete;;2;\n", 1_790_000_000)
    options = {
        "source.files.options.sep": ";",
        "source.key.columns": "id",
        "source.table.columns": "id int, at timestamp",
    }
    assert file_jobs.run("csv", **options) == ""
    # Only the second file says what happened: its columns become the table's, whatever their order.
    assert file_jobs.output("id", "name", "op", "added", "ums_op_") == [
        (1, "one", None, None, "i"),
        (2, "two", None, None, "i"),
        (1, "uno", "U", "x", "i"),
        (2, None, "delete", None, "i"),
    ]
    file_jobs.drop("3.csv", b"id;name;op;at\n1;un;U;2024-01-02T03:04:05Z\n2;;delete;\n", 1_790_000_001)
    assert file_jobs.run("csv", **options, **{"source.op.field": "op", "source.time.field": "at"}) == ""
    rows = file_jobs.output("id", "name", "ums_op_", "date_format(ums_ts_, 'yyyy-MM-dd HH:mm:ss')")
    assert rows[4:] == [(1, "un", "u", "2024-01-02 03:04:05"), (2, None, "d", "2026-09-21 14:13:21")]


def test_bad_rows_and_files_are_put_aside(file_jobs: FileJobs, jobs: Jobs) -> None:
    dead = f"{jobs.name}-dead"
    good = file_jobs.drop("good.csv", b"id,price\n1,1.5\n", 1_700_000_000)
    bad = file_jobs.drop("bad.csv", b"id,price\n2,2.5\n3\n4,many\n,5\n6,6\n", 1_700_000_001)
    file_jobs.drop("twice.csv", b"id,id\n1,1\n", 1_700_000_002)
    file_jobs.drop("cut.csv.gz", b"\x1f\x8b\x08\0nonsense", 1_700_000_003)
    options = {
        "source.key.columns": "id",
        "source.table.columns": "id bigint, price double",
        "source.files.max.per.trigger": "3",
    }
    error = file_jobs.run("csv", **options)
    assert "twice.csv can't be read: the header names column id twice. Correct the file in its folder" in error
    assert "errors.tolerance=all" in error
    (file_jobs.folder / "drop" / "twice.csv").write_bytes(b"id,price\n7,7\n")
    error = file_jobs.run("csv", **options)
    assert f"{bad} row 2 can't be decoded: the row has another number of fields than the header" in error
    letters = {
        "kafka.bootstrap.servers": jobs.bootstrap,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead,
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    assert file_jobs.run("csv", **options, **letters) == ""
    assert file_jobs.output("id", "price") == [(1, 1.5), (2, 2.5), (6, 6.0), (7, 7.0)]
    letters_of: dict[tuple[str, str | None], tuple[Any, Any, str]] = {}
    for message in jobs.read(dead):
        headers = {name.removeprefix("__connect.errors."): value.decode() for name, value in message.headers()}
        where = (headers["file.path"].rpartition("/")[2], headers.get("file.row"))
        letters_of[where] = (message.key(), message.value(), headers["exception.message"])
    assert letters_of["bad.csv", "2"][1] == b"3"
    assert letters_of["bad.csv", "2"][2].startswith(
        "the row has another number of fields than the header says, or a quote"
    )
    assert letters_of["bad.csv", "3"][2] == "column price: 'many' is not double"
    assert json.loads(letters_of["bad.csv", "3"][1]) == {"id": "4", "price": "many"}
    assert letters_of["bad.csv", "4"][2] == "the key column id is null"
    key, value, _ = letters_of["cut.csv.gz", None]
    assert key.endswith(b"/drop/cut.csv.gz")
    assert value is None
    assert len(letters_of) == 4
    assert good.exists()


def test_records_of_debezium_in_files(file_jobs: FileJobs) -> None:
    lines = [
        {
            "op": "c",
            "after": {"id": 1, "name": "a"},
            "source": {"db": "shop", "table": "orders", "ts_us": 5, "lsn": 50},
        },
        {
            "op": "d",
            "before": {"id": 1},
            "after": None,
            "source": {"db": "shop", "table": "orders", "ts_us": 6, "lsn": 60},
        },
    ]
    file_jobs.drop("1.jsonl", "\n".join(map(json.dumps, lines)).encode(), 1_700_000_000)
    assert file_jobs.run("json", **{"source.format": "debezium", "source.key.columns": "id"}) == ""
    assert file_jobs.output("id", "name", "ums_op_", "ums_id_") == [(1, "a", "i", 50), (1, None, "d", 60)]


def test_a_folder_that_is_missing_or_empty(file_jobs: FileJobs) -> None:
    error = file_jobs.run("csv")
    assert f"source.files.path: there is nothing at {file_jobs.folder}/drop" in error
    (file_jobs.folder / "drop").mkdir()
    assert file_jobs.run("csv") == ""


@pytest.mark.proves("from files", "exactly-once", killed=["driver"])
@pytest.mark.slow
def test_a_driver_that_is_killed_in_the_middle(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    server = database(postgres.url, postgres.user, postgres.password)
    table = f"k{secrets.token_hex(4)}"
    expected: dict[int, str] = {}
    drop = tmp_path / "drop"
    drop.mkdir()
    for number in range(12):
        # Each file changes half of the keys of the one before it.
        rows = [(number * 50 + row, f"{number}-{row}") for row in range(100)]
        expected |= dict(rows)
        path = drop / f"{number:03d}.csv"
        path.write_text("id,name\n" + "".join(f"{key},{name}\n" for key, name in rows))
        os.utime(path, (1_700_000_000 + number,) * 2)
    options = {
        "name": table,
        "source.type": "files",
        "source.files.path": str(drop),
        "source.files.format": "csv",
        "source.files.namespace": f"drop.{table}",
        "source.files.max.per.trigger": "2",
        "source.key.columns": "id",
        "source.table.columns": "id bigint",
        **jdbc(postgres),
        "state.dir": str(tmp_path / "state"),
        "trigger.interval.ms": "0",
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
    }
    count = f"SELECT count(*) FROM {server.quote(table)}"
    first = Job(options, tmp_path / "first")
    first.start()
    try:
        first.wait_rows(300, 300)
    finally:
        first.kill()
    assert server.query(count)[0][0] < len(expected)
    second = Job(options, tmp_path / "second")
    second.start()
    try:
        second.wait_for(
            lambda: server.query(count)[0][0] == len(expected), 300, lambda: f"{server.query(count)} of {len(expected)}"
        )
        second.wait_for(lambda: second.rows > 0, 60, lambda: "no batch was committed")
    finally:
        assert second.stop() == 0
    assert dict(server.query(f"SELECT id, name FROM {server.quote(table)} WHERE ums_active_ = 1")) == expected
