# ruff: noqa: S608 - names of our own
"""``millrace verify`` of a flow: rows of a real database with what a topic says; the sink's code reads them back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.sinks.jdbc.read_back import JdbcTables
from spark_jobs.sinks.shared.read_back import ROWS_AT_ONCE
from tests.support.verified import send
from tests.support.verified_target import VerifiedFlow, check_further_types
from worker.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.integration.spark_jobs.jdbc.conftest import Database

MICROS = 1_767_323_045_678_000


def event(op: str, key: int, name: str = "") -> tuple[Any, Any]:
    """An event of Debezium's form."""
    row = {"id": key, "name": name, "price": "1.50", "at": MICROS, "flag": True, "ratio": 123456.7}
    source = {"db": "shop", "table": "orders", "file": "b.1", "pos": key}
    return {"id": key}, {"op": op, "source": source, "before": None, "after": None if op == "d" else row}


def test_rows_of_the_target_are_compared_with_the_topic(
    server_db: Database,
    bootstrap: str,
    unique: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    database = server_db
    topic, table = unique("orders"), f"v{unique('t')[-8:]}"
    moment, single = ("TIMESTAMP", "REAL") if database.name == "postgresql" else ("DATETIME(6)", "FLOAT")
    database.query(
        f"CREATE TABLE {database.quote(table)} (id BIGINT PRIMARY KEY, name VARCHAR(40), price DECIMAL(10,2), at {moment}, "
        f"flag BOOLEAN, ratio {single}, ums_id_ BIGINT, ums_active_ SMALLINT)"
    )
    insert = (
        f"INSERT INTO {database.quote(table)} VALUES (%s, %s, 1.50, '2026-01-02 03:04:05.678', TRUE, 123456.7, 1, %s)"
    )
    for key, name, active in ((1, "one", 1), (2, "two", 1), (3, "three", 0), (4, "other", 1), (6, "six", 1)):
        database.query(insert, (key, name, active))
    send(
        bootstrap,
        topic,
        [
            event("c", 1, "old"),
            event("u", 1, "one"),
            event("r", 2, "two"),
            event("c", 3, "three"),
            event("d", 3),
            event("c", 4, "four"),
            event("c", 5, "five"),
        ],
    )
    config = {
        "name": "flow",
        "connector.class": "spark",
        "source.topics": topic,
        "source.format": "debezium",
        "sink.type": "jdbc",
        "sink.jdbc.table": table,
        **database.options,
    }
    path = tmp_path / "flow.json"
    path.write_text(json.dumps(config))
    command = ["verify", "--connector-config", str(path), "--bootstrap-servers", bootstrap, "--settle", "0.2", "--json"]

    def run() -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(command)
        out, error = capsys.readouterr()
        assert out, error
        return code, json.loads(out)["tables"][0]

    code, report = run()
    assert code == 1
    assert report["examples"] == {"missing": ['{"id":"5"}'], "extra": ['{"id":"6"}'], "different": ['{"id":"4"}']}
    sides = {row["kind"]: (row["source"], row["topic"]) for row in report["differences"]}
    assert sides["different"] == ({"name": '"four"'}, {"name": '"other"'})
    assert sides["missing"][0]["name"] == '"five"'
    assert sides["extra"][1]["name"] == '"six"'
    assert report["rows"] == {"source": 4, "topic": 4}
    assert report["topics"] == [table]
    database.query(f"DELETE FROM {database.quote(table)} WHERE id = 6")
    database.query(f"UPDATE {database.quote(table)} SET name = 'four' WHERE id = 4")
    database.query(insert, (5, "five", 1))
    code, report = run()
    assert (code, report["equal"], report["unsettled"]) == (0, True, 0)
    # What a flow changes on the way can't be compared.
    path.write_text(json.dumps({**config, "steps": "a"}))
    assert main(command) == 2
    assert "changes rows on their way" in capsys.readouterr().err
    path.write_text(json.dumps({**config, "sink.type": "console"}))
    assert main(command) == 2
    database.query(f"DROP TABLE {database.quote(table)}")


def plain(op: str, key: int, name: str) -> tuple[Any, Any]:
    """A flat row; a delete has no value."""
    return {"id": key}, None if op == "d" else {"id": key, "name": name, "__op": op}


def ums(op: str, key: int, name: str) -> tuple[Any, Any]:
    """A UMS message with one row."""
    names = {"ums_id_": "long", "ums_ts_": "datetime", "ums_op_": "string", "id": "long", "name": "string"}
    fields = [{"name": name, "type": kind, "nullable": True} for name, kind in names.items()]
    row = [str(key), "2026-01-02 03:04:05.000", op.replace("c", "i"), str(key), name]
    message = {
        "protocol": {"type": "data_increment_data", "version": "1.3"},
        "schema": {"namespace": "mysql.crm.shop.orders.0.0.0", "fields": fields},
        "payload": [{"tuple": row}],
    }
    return b"data_increment_data.mysql.crm.shop.orders.0.0.0", message


@pytest.mark.parametrize(("form", "make_message"), [("plain", plain), ("ums", ums)])
def test_topics_of_flat_rows_and_of_ums_are_compared(
    form: str,
    make_message: Callable[[str, int, str], tuple[Any, Any]],
    sqlite: Database,
    bootstrap: str,
    unique: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = unique("orders")
    sqlite.query("CREATE TABLE target (id INTEGER PRIMARY KEY, name TEXT, ums_id_ INTEGER, ums_active_ INTEGER)")
    for key, name in ((1, "one"), (2, "other"), (3, "three")):
        sqlite.query("INSERT INTO target VALUES (%s, %s, 1, 1)", (key, name))
    changes = [
        ("c", 1, "one"),
        ("c", 2, "zero"),
        ("u", 2, "two"),
        ("c", 3, "three"),
        ("d", 3, "three"),
        ("c", 4, "four"),
    ]
    send(bootstrap, topic, [make_message(*change) for change in changes])
    flow = {
        "name": "flow",
        "connector.class": "spark",
        "source.topics": topic,
        "source.format": form,
        **({"source.key.columns": "id"} if form == "ums" else {}),
        "sink.type": "jdbc",
        "sink.jdbc.table": "target",
        **sqlite.options,
    }
    path = tmp_path / "flow.json"
    path.write_text(json.dumps(flow))
    command = ["verify", "--connector-config", str(path), "--bootstrap-servers", bootstrap, "--settle", "0.2", "--json"]
    assert main(command) == 1
    (report,) = json.loads(capsys.readouterr().out)["tables"]
    assert report["examples"] == {"missing": ['{"id":"4"}'], "extra": ['{"id":"3"}'], "different": ['{"id":"2"}']}
    for statement in (
        "UPDATE target SET name = 'two' WHERE id = 2",
        "UPDATE target SET ums_active_ = 0 WHERE id = 3",
        "INSERT INTO target VALUES (4, 'four', 1, 1)",
    ):
        sqlite.query(statement)
    assert main(command) == 0, capsys.readouterr()


def test_a_slow_reading_does_not_use_up_the_time_for_differences(
    sqlite: Database, bootstrap: str, unique: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = unique("orders")
    sqlite.query("CREATE TABLE target (id INTEGER PRIMARY KEY, name TEXT, ums_id_ INTEGER, ums_active_ INTEGER)")
    sqlite.query("INSERT INTO target VALUES (1, 'one', 1, 1), (2, 'other', 1, 1), (3, 'three', 1, 1)")
    send(bootstrap, topic, [plain("c", key, name) for key, name in ((1, "one"), (2, "two"), (3, "three"))])
    flow = {"name": "flow", "source.topics": topic, "source.format": "plain", "sink.type": "jdbc"}
    path = tmp_path / "flow.json"
    path.write_text(json.dumps({**flow, "connector.class": "spark", "sink.jdbc.table": "target", **sqlite.options}))
    command = ["verify", "--connector-config", str(path), "--bootstrap-servers", bootstrap, "--settle", "0.2", "--json"]
    assert main([*command, "--rate", "2", "--timeout", "1"]) == 1
    (report,) = json.loads(capsys.readouterr().out)["tables"]
    assert (report["different"], report["unsettled"]) == (1, 0)


def resident_mb() -> int:
    """Memory of this process."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


def test_a_large_target_is_not_read_into_memory(server_db: Database, unique: Callable[[str], str]) -> None:
    database = server_db
    table = f"large{unique('t')[-8:]}"
    database.query(f"CREATE TABLE {database.quote(table)} (id BIGINT PRIMARY KEY, name VARCHAR(4000))")
    database.query(f"INSERT INTO {database.quote(table)} VALUES (0, REPEAT('x', 4000))")
    for bit in range(15):
        database.query(f"INSERT INTO {database.quote(table)} SELECT id + {1 << bit}, name FROM {database.quote(table)}")
    parts = JdbcTables({"sink.type": "jdbc", "sink.jdbc.table": table, **database.options}).rows("shop.orders")
    before = resident_mb()
    assert len(next(parts)) == ROWS_AT_ONCE
    assert resident_mb() - before < 60
    # The rest is not read where a verification ends early.
    parts.close()  # type: ignore[attr-defined]  # it is a generator
    database.query(f"DROP TABLE {database.quote(table)}")


@pytest.mark.parametrize("messages", [[], [plain("d", 1, "")]])
def test_rows_of_a_target_whose_topic_has_no_rows(
    messages: list[tuple[Any, Any]],
    sqlite: Database,
    bootstrap: str,
    unique: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = unique("orders")
    sqlite.query("CREATE TABLE target (id INTEGER PRIMARY KEY, name TEXT, ums_id_ INTEGER, ums_active_ INTEGER)")
    sqlite.query("INSERT INTO target VALUES (2, 'two', 1, 1)")
    send(bootstrap, topic, messages)
    flow = {
        "name": "flow",
        "connector.class": "spark",
        "source.topics": topic,
        "source.format": "plain",
        "sink.type": "jdbc",
        "sink.jdbc.table": "target",
        **sqlite.options,
    }
    path = tmp_path / "flow.json"
    path.write_text(json.dumps(flow))
    command = ["verify", "--connector-config", str(path), "--bootstrap-servers", bootstrap, "--settle", "0.2", "--json"]
    code = main(command)
    (report,) = json.loads(capsys.readouterr().out)["tables"]
    # Messages say which table they are of.
    assert (code, report["extra"], "was not read" in report["note"]) == ((1, 1, False) if messages else (0, 0, True))


def test_further_types_are_compared(
    db: Database, table: str, spark: SparkSession, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"sink.type": "jdbc", "sink.jdbc.table": table, "guarantee": "at-least-once", **db.options}
    check_further_types(VerifiedFlow(spark, bootstrap, tmp_path, capsys, options))
