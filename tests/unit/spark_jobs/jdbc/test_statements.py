"""Addresses, names, types, options, errors and the statements of each dialect: all of it pure."""

# ruff: noqa: E501, ISC004 - tables of cases and whole statements
from __future__ import annotations

import pickle
import sqlite3
from typing import Any

import psycopg
import pymysql
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql import types as t

from connectors.errors import ConfigInvalid, Fatal
from connectors.options import ConfigDef
from spark_jobs.contract import Column, TableSchema
from spark_jobs.namespaces import check_template, find_identity, render_template, shorten_name
from spark_jobs.sinks.jdbc import plan as plans
from spark_jobs.sinks.jdbc.address import parse_url
from spark_jobs.sinks.jdbc.config import CONFIG_DEF, JdbcSettings, check_options, parse_settings
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.sinks.jdbc.model import Fault, JdbcColumn, JdbcTable, NeededColumn
from spark_jobs.sinks.jdbc.tables import describe_refusal, find_changes, find_columns, name_problem, unique_problem
from spark_jobs.sinks.jdbc.task import column_of

URLS = {
    "postgresql": "jdbc:postgresql://h/d",
    "mariadb": "jdbc:mariadb://h/d",
    "mysql": "jdbc:mysql://h/d",
    "sqlite": "jdbc:sqlite:/f/shop.db",
}


def chosen(kind: str = "postgresql", **options: str) -> JdbcSettings:
    return parse_settings(
        ConfigDef(list(CONFIG_DEF.keys.values())).parse(
            {
                "sink.jdbc.url": URLS[kind],
                "sink.jdbc.user": "u",
                "sink.jdbc.password": "hunter2",
                **{f"sink.jdbc.{name}": value for name, value in options.items()},
            }
        )
    )


def test_urls() -> None:
    url = parse_url("jdbc:postgresql://a:1,[::1]:2,b/my%20db?x=1")
    assert (url.dialect, url.hosts, url.database, url.query) == (
        "postgresql",
        (("a", 1), ("::1", 2), ("b", 5432)),
        "my db",
        (("x", "1"),),
    )
    assert parse_url("jdbc:mysql://h/d").hosts == (("h", 3306),)
    file = parse_url("jdbc:sqlite:/f/my shop.db?x=1")
    assert (file.hosts, file.database, file.query, file.text) == (
        (),
        "/f/my shop.db",
        (("x", "1"),),
        "sqlite at /f/my shop.db",
    )
    for wrong, said in (
        ("postgresql://h/d", "not a JDBC URL"),
        ("jdbc:oracle://h/d", "there are: mariadb, mysql, postgresql, sqlite .docs/jobs/jdbc.md"),
        ("jdbc:sqlite:shop.db", "it must be jdbc:sqlite:/path/of/file"),
        ("jdbc:sqlite://h/d", "it must be jdbc:sqlite:/path/of/file"),
        ("jdbc:sqlite:/f?password=hunter2", "must not hold 'password'"),
        ("jdbc:mariadb:/f", "it must be jdbc:mariadb://host:port/database"),
        ("jdbc:mariadb://h", "names no database"),
        ("jdbc:mariadb://h:99999/d", "no host:port"),
        ("jdbc:postgresql://u:hunter2@h/d", "must not hold a login"),
        ("jdbc:postgresql://h/d?password=hunter2", "must not hold 'password'"),
    ):
        with pytest.raises(ConfigInvalid, match=said) as no:
            parse_url(wrong)
        assert "hunter2" not in str(no.value)


def test_secrets_show_nowhere() -> None:
    settings = chosen()
    assert "hunter2" not in repr(settings) + settings.login.text
    assert pickle.loads(pickle.dumps(settings)).login.password == "hunter2"  # noqa: S301 - our own
    with pytest.raises(ConfigInvalid) as no:
        CONFIG_DEF.parse({"sink.jdbc.url": "jdbc:postgresql://u:hunter2@h/d", "sink.jdbc.user": "u"})
    assert "hunter2" not in str(no.value)


def test_options_that_do_not_go_together() -> None:
    def said(**options: str) -> list[str]:
        raw = {"sink.jdbc.url": URLS["mariadb"], "sink.jdbc.user": "u"} | {
            f"sink.jdbc.{k}": v for k, v in options.items()
        }
        return [line.partition(":")[0] for line in check_options(CONFIG_DEF.parse(raw))]

    assert said() == []
    assert said(url="jdbc:mariadb://a,b/d?x=1") == ["sink.jdbc.url", "sink.jdbc.url"]
    assert said(user="") == said(user="", url=URLS["postgresql"]) == ["sink.jdbc.user"]
    assert said(url=URLS["sqlite"], password="p") == ["sink.jdbc.user", "sink.jdbc.password"]
    assert said(**{"kafka.columns": "true", "mode": "split"}) == ["sink.jdbc.kafka.columns"]
    assert said(**{"ssl.mode": "verify-full"}) == ["sink.jdbc.ssl.root.cert"]
    assert said(**{"ssl.cert": "f"}) == ["sink.jdbc.ssl.cert"]


def test_templates() -> None:
    full = "mysql.db01.shop.orders.3.0.0"
    assert render_template("${type}-${instance}-${database}-${table}", full) == "mysql-db01-shop-orders"
    assert render_template("${database}_${table}", "shop.orders") == "shop_orders"
    assert render_template("${namespace}", "a.b.c") == "a_b_c"
    assert render_template("${namespace}", full) == "mysql_db01_shop_orders"
    assert render_template("${database}${table}", "topic") == "topic"
    assert (
        find_identity(full)
        == find_identity("mysql.db01.shop.orders.4.0.7")
        != find_identity("mysql.db02.shop.orders.3.0.0")
    )
    assert check_template("${table}x") is None
    assert "${tabel} is not known" in (check_template("${tabel}") or "")


@given(st.text(max_size=90), st.booleans())
def test_names_fit_and_stay_different(name: str, octets: bool) -> None:
    def size(text: str) -> int:
        return len(text.encode()) if octets else len(text)

    short = shorten_name(name, 40, octets=octets)
    assert size(short) <= 40
    assert (short == name) == (size(name) <= 40)
    if size(name) > 40:
        assert shorten_name(name + "x", 40, octets=octets) != short


@pytest.mark.parametrize(
    ("kind", "needed", "present", "serves"),
    [
        ("sqlite", "integer", "INT UNSIGNED", "INT UNSIGNED"),
        ("sqlite", "integer", "varchar(9)", "varchar(9)"),
        ("sqlite", "integer", "", ""),
        ("sqlite", "blob", "", ""),
        ("sqlite", "decimal(12,4)", "decimal(6,2)", "decimal(6,2)"),
        ("sqlite", "decimal(12,4)", "integer", "integer"),
        ("sqlite", "real", "integer", None),
        ("sqlite", "text", "decimal(15,2)", None),
        ("sqlite", "text", "integer", None),
        ("sqlite", "datetime", "date", None),
        ("sqlite", "time", "time", "time"),
        ("sqlite", "time", "bigint", "bigint"),
        ("postgresql", "integer", "bigint", "bigint"),
        ("postgresql", "bigint", "integer", "bigint"),
        ("postgresql", "bigint", "numeric", "numeric"),
        ("postgresql", "bigint", "text", "text"),
        ("postgresql", "text", "character varying(10)", "character varying(10)"),
        ("postgresql", "text", "uuid", "uuid"),
        ("postgresql", "text", "integer", None),
        ("postgresql", "jsonb", "jsonb", "jsonb"),
        ("postgresql", "jsonb", "text", "text"),
        ("postgresql", "double precision", "real", "double precision"),
        ("postgresql", "bigint", "double precision", None),
        ("postgresql", "numeric(12,4)", "numeric(10,2)", "numeric(12,4)"),
        ("postgresql", "numeric(8,4)", "numeric(10,2)", "numeric(12,4)"),
        ("postgresql", "numeric(6,2)", "integer", "numeric(12,2)"),
        ("postgresql", "integer", "numeric(6,2)", "numeric(12,2)"),
        ("postgresql", "timestamp with time zone", "timestamp(3) without time zone", "timestamp(3) without time zone"),
        ("postgresql", "timestamp with time zone", "date", "timestamp with time zone"),
        ("postgresql", "boolean", "integer", None),
        ("mariadb", "int", "int(11)", "int(11)"),
        ("mariadb", "bigint", "int(10) unsigned", "bigint"),
        ("mariadb", "varchar(300)", "varchar(255)", "varchar(300)"),
        ("mariadb", "longtext", "varchar(20)", "varchar(20)"),
        ("mariadb", "json", "longtext", "longtext"),
        ("mariadb", "json", "int(11)", None),
        ("mariadb", "decimal(20,4)", "decimal(10,2)", "decimal(20,4)"),
        ("mariadb", "datetime(6)", "date", "datetime(6)"),
        # Tables of earlier versions keep their columns: text for UUIDs, numbers for times, a zone for times without one.
        ("postgresql", "uuid", "text", "text"),
        ("postgresql", "uuid", "uuid", "uuid"),
        ("postgresql", "time without time zone", "bigint", "bigint"),
        ("postgresql", "time without time zone", "interval", "interval"),
        ("postgresql", "time without time zone", "numeric", "numeric"),
        ("postgresql", "time without time zone", "integer", None),
        ("postgresql", "time without time zone", "time(3) without time zone", "time without time zone"),
        ("postgresql", "bigint", "time without time zone", None),
        ("postgresql", "text", "time without time zone", "time without time zone"),
        ("postgresql", "time with time zone", "text", "text"),
        ("postgresql", "time with time zone", "time with time zone", "time with time zone"),
        ("postgresql", "timestamp without time zone", "timestamp with time zone", "timestamp with time zone"),
        ("postgresql", "numeric", "text", "text"),
        ("postgresql", "numeric", "numeric(38,18)", "numeric"),
        ("postgresql", "numeric(38,18)", "text", "text"),
        ("postgresql", "integer", "numeric(6,-2)", None),
        ("postgresql", "numeric(6,2)", "numeric(6,-2)", None),
        ("mariadb", "double", "double(10,2)", None),
        ("mariadb", "int", "float(7,2)", None),
        ("mariadb", "uuid", "longtext", "longtext"),
        ("mariadb", "uuid", "varchar(255)", "varchar(255)"),
        ("mariadb", "time(6)", "bigint(20)", "bigint(20)"),
        ("mariadb", "time(6)", "time", "time(6)"),
        ("mariadb", "time(6)", "time(6)", "time(6)"),
        ("mariadb", "tinyint(1)", "tinyint(1)", "tinyint(1)"),
        ("mariadb", "longblob", "varbinary(20)", "varbinary(20)"),
    ],
)
def test_which_types_serve(kind: str, needed: str, present: str, serves: str | None) -> None:
    assert load_dialect(kind).fits(needed, present) == serves


@pytest.mark.parametrize(
    ("column", "postgresql", "mariadb"),
    [
        (Column("a", t.ByteType()), "smallint", "tinyint"),
        (Column("a", t.LongType()), "bigint", "bigint"),
        (Column("a", t.DecimalType(20, 3)), "numeric(20,3)", "decimal(20,3)"),
        (Column("a", t.StringType()), "text", "longtext"),
        (Column("a", t.StringType(), length=20), "text", "varchar(20)"),
        (Column("a", t.StringType(), key=True), "text", "varchar(255)"),
        (Column("a", t.BinaryType(), key=True, length=16), "bytea", "varbinary(16)"),
        (Column("a", t.BooleanType()), "boolean", "tinyint(1)"),
        (Column("a", t.TimestampType()), "timestamp with time zone", "datetime(6)"),
        (Column("a", t.TimestampNTZType()), "timestamp without time zone", "datetime(6)"),
        (Column("a", t.ArrayType(t.IntegerType())), "jsonb", "json"),
        (Column("a", t.DayTimeIntervalType()), "text", "longtext"),
        (Column("a", t.StringType(), meaning="uuid"), "uuid", "uuid"),
        (Column("a", t.StringType(), key=True, meaning="uuid"), "uuid", "uuid"),
        (Column("a", t.LongType(), meaning="time"), "time without time zone", "time(6)"),
        (Column("a", t.StringType(), meaning="zoned_time"), "time with time zone", "longtext"),
        (Column("a", t.TimestampType(), meaning="local_timestamp"), "timestamp without time zone", "datetime(6)"),
        (Column("a", t.StringType(), meaning="number"), "numeric", "longtext"),
        (Column("a", t.StringType(), key=True, meaning="number"), "text", "varchar(255)"),
        (Column("a", t.DecimalType(38, 18), meaning="number"), "numeric(38,18)", "decimal(38,18)"),
        (Column("a", t.ArrayType(t.StringType()), meaning="number"), "jsonb", "json"),
    ],
)
def test_types_of_columns(column: Column, postgresql: str, mariadb: str) -> None:
    assert load_dialect("postgresql").column_type(column, 255) == postgresql
    assert load_dialect("mariadb").column_type(column, 255) == mariadb


class Server:
    """A connection that knows how its server calls itself."""

    def __init__(self, version: str) -> None:
        self._version = version

    def get_server_info(self) -> str:
        return self._version


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        ("mariadb", "5.5.5-10.6.21-MariaDB", "char(36) CHARACTER SET ascii COLLATE ascii_bin"),
        ("mariadb", "10.7.1-MariaDB", "uuid"),
        ("mariadb", "11.4.2-MariaDB-log", "uuid"),
        ("mysql", "8.4.0", "char(36) CHARACTER SET ascii COLLATE ascii_bin"),
    ],
)
def test_servers_without_a_type_for_uuids_keep_them_as_text(kind: str, version: str, expected: str) -> None:
    assert (
        load_dialect(kind).suited(Server(version)).column_type(Column("a", t.StringType(), meaning="uuid"), 255)
        == expected
    )


def plan(kind: str, **options: str) -> list[str]:
    write_plan = plans.make_plan(
        chosen(kind, **options), load_dialect(kind), "job", "s.t", ("", "t"), ("id", 'b"`'), ("id",)
    )
    return [*write_plan.setup, write_plan.into, *(step.sql for step in write_plan.steps)]


def test_upsert_statements() -> None:
    assert plan("postgresql") == [
        'CREATE TEMPORARY TABLE "millrace_stage" ON COMMIT DELETE ROWS AS SELECT t."id", t."b""`", t."ums_id_", t."ums_ts_", '
        't."ums_op_", t."ums_active_" FROM "t" AS t WITH NO DATA',
        '"millrace_stage"',
        'INSERT INTO "t" AS t ("id", "b""`", "ums_id_", "ums_ts_", "ums_op_", "ums_active_") SELECT s."id", s."b""`", s."ums_id_", '
        's."ums_ts_", s."ums_op_", s."ums_active_" FROM "millrace_stage" AS s WHERE 1 = 1 ON CONFLICT ("id") DO UPDATE SET '
        '"b""`" = excluded."b""`", "ums_id_" = excluded."ums_id_", "ums_ts_" = excluded."ums_ts_", "ums_op_" = excluded."ums_op_", '
        '"ums_active_" = excluded."ums_active_" WHERE t."ums_id_" IS NULL OR t."ums_id_" <= excluded."ums_id_"',
    ]
    text = plan("mysql")[-1]
    newer = "COALESCE(`t`.`ums_id_` <= s.`ums_id_`, TRUE)"
    assert f'`t`.`b"``` = IF({newer}, s.`b"```, `t`.`b"```)' in text
    assert text.endswith(f"`t`.`ums_id_` = IF({newer}, s.`ums_id_`, `t`.`ums_id_`)"), "the version must be set last"


@pytest.mark.parametrize("kind", URLS)
def test_real_deletes_pass_the_gate_first(kind: str) -> None:
    steps = plans.make_plan(
        chosen(kind, **{"delete.mode": "real"}), load_dialect(kind), "job", "s.t", ("", "t"), ("id",), ("id",)
    ).steps
    verbs = [(step.sql.split()[0], step.deletes) for step in steps]
    assert verbs[-5:] == [("INSERT", False), ("DELETE", False), ("INSERT", True), ("DELETE", True), ("DELETE", False)]
    only_insert = plans.make_plan(
        chosen(kind, mode="insert"), load_dialect(kind), "job", "s.t", ("x", "t"), ("id",), ("id",)
    )
    assert (only_insert.steps, only_insert.keys, only_insert.setup) == ((), (), ())
    assert only_insert.commits.endswith("millrace_commits" + load_dialect(kind).quote("")[-1])


def test_tables_that_must_change() -> None:
    kind = load_dialect("mariadb")
    present = JdbcTable(
        {"ID": JdbcColumn("ID", "int(11)", nullable=False), "x": JdbcColumn("x", "int(11)", nullable=False)},
        (("ID",), ("x",)),
    )
    run, problems, types = find_changes(
        kind,
        "`t`",
        present,
        (NeededColumn("id", "bigint", nullable=False), NeededColumn("n", "date")),
        strict_null=True,
    )
    assert run == ["ALTER TABLE `t` MODIFY COLUMN `id` bigint NOT NULL", "ALTER TABLE `t` ADD COLUMN `n` date"]
    assert problems == ["column x is NOT NULL without a default, and the source has no such column"]
    assert types == {"id": "bigint", "n": "date"}
    assert "another unique index (x)" in (unique_problem(kind, "`t`", present, ("id",)) or "")
    assert unique_problem(load_dialect("postgresql"), '"t"', present, ("ID",)) is None


@pytest.mark.parametrize(
    ("names", "said"),
    [(("id", "ums_id_"), "name of a column of the sink"), (("id", "ID"), "have one name"), (("a",), "no primary key")],
)
def test_columns_that_cannot_be(names: tuple[str, ...], said: str) -> None:
    schema = TableSchema("s.t", tuple(Column(name, t.StringType(), key=name == "id") for name in names))
    with pytest.raises(Fatal, match=said):
        find_columns(chosen("mariadb"), load_dialect("mariadb"), schema)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "has no primary key: sink.jdbc.mode=upsert needs one. Name it in sink.jdbc.key.columns, or"),
        ({"mode": "split"}, "sink.jdbc.mode=split needs one"),
        ({"key.columns": "b"}, "has no primary key and no column b: "),
        ({"key.columns": "a"}, ""),
        ({"mode": "insert"}, ""),
    ],
)
def test_a_table_without_a_key_is_refused_by_name(options: dict[str, str], said: str) -> None:
    bare, keyed = (TableSchema("s.t", (Column("a", t.StringType(), key=key),)) for key in (False, True))
    chosen_ = chosen("postgresql", **{name.replace("_", "."): value for name, value in options.items()})
    reason = describe_refusal(chosen_, load_dialect("postgresql"), bare)
    assert said in reason
    assert reason.startswith("table s.t has no primary key") == bool(said)
    assert bool(reason) == bool(said)
    assert not describe_refusal(chosen_, load_dialect("postgresql"), keyed)


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("mariadb", "", "it is empty"),
        ("mariadb", "a ", "it ends with a space"),
        ("mariadb", "a\0", "NUL"),
        ("mariadb", "a😀", "the character 😀 (U+1F600), and names have characters up to U+FFFF only"),
        ("postgresql", "", "empty"),
        ("postgresql", "a\0", "NUL"),
        ("postgresql", "ctid", "a system column of that name"),
        ("mysql", "😀", "U+FFFF"),
        ("sqlite", "", "it is empty"),
        ("sqlite", "SQLITE_master", "SQLite's own"),
        ("sqlite", "_RowId_", "the place of a row"),
    ],
)
def test_names_that_a_database_cannot_hold(kind: str, name: str, said: str) -> None:
    column = TableSchema("s.t", (Column("id", t.LongType(), key=True), Column(name, t.StringType())))
    problem = name_problem(chosen(kind), load_dialect(kind), column)
    assert problem.startswith(f"table s.t has a column {name!r}, which the database can't hold: ")
    assert said in problem
    plain = TableSchema(f"s.{name}", (Column("id", t.LongType(), key=True),))
    assert said in name_problem(chosen(kind), load_dialect(kind), plain)
    for option in ("schema", "table", "commit.table") if name and min(name[0], name[-1]) > " " else ():
        assert said in name_problem(chosen(kind, **{option: name}), load_dialect(kind), TableSchema("s.t", ()))


@given(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_other_names_are_held(name: str) -> None:
    assume(name.rstrip(" ") not in {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
    for kind in ("postgresql", "mariadb"):
        assert not load_dialect(kind).refuses(name.rstrip(" ") or "x")


def sqlite_error(number: int) -> BaseException:
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = number
    return error


def postgres_error(state: str | None, text: str = "x") -> BaseException:
    if state is None:
        return psycopg.OperationalError(text)
    return psycopg.errors.lookup(state)(text)


@pytest.mark.parametrize(
    ("kind", "error", "fault"),
    [
        ("postgresql", postgres_error("40P01"), Fault.RETRY),
        ("postgresql", postgres_error("40001"), Fault.RETRY),
        ("postgresql", postgres_error("57014"), Fault.RETRY),
        ("postgresql", postgres_error("22001"), Fault.DATA),
        ("postgresql", postgres_error("23502"), Fault.DATA),
        ("postgresql", postgres_error("42501"), Fault.FATAL),
        ("postgresql", postgres_error(None, "the connection is closed"), Fault.RETRY),
        ("postgresql", postgres_error(None, "FATAL:  password authentication failed for user"), Fault.FATAL),
        ("postgresql", postgres_error(None, "FATAL:  the database system is starting up"), Fault.RETRY),
        ("sqlite", sqlite_error(sqlite3.SQLITE_BUSY), Fault.RETRY),
        ("sqlite", sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT), Fault.RETRY),
        ("sqlite", sqlite_error(sqlite3.SQLITE_CONSTRAINT_NOTNULL), Fault.DATA),
        ("sqlite", sqlite_error(sqlite3.SQLITE_READONLY), Fault.FATAL),
        ("sqlite", sqlite3.OperationalError("no folder"), Fault.FATAL),
        ("sqlite", sqlite3.DataError("NaN"), Fault.DATA),
        ("sqlite", ValueError("x"), None),
        ("postgresql", ValueError("x"), None),
        ("mariadb", ValueError("x"), None),
        ("mariadb", pymysql.err.OperationalError(1213, "deadlock"), Fault.RETRY),
        ("mariadb", pymysql.err.OperationalError(2013, "lost"), Fault.RETRY),
        ("mariadb", pymysql.err.InterfaceError(0, ""), Fault.RETRY),
        ("mariadb", pymysql.err.OperationalError(1045, "denied"), Fault.FATAL),
        ("mariadb", pymysql.err.DataError(1406, "too long"), Fault.DATA),
        ("mariadb", pymysql.err.OperationalError(1366, "x"), Fault.DATA),
        ("mariadb", pymysql.err.ProgrammingError(1146, "no table"), Fault.FATAL),
    ],
)
def test_what_is_done_about_errors(kind: str, error: Any, fault: Fault | None) -> None:
    assert load_dialect(kind).classify(error) is fault


class Context:
    context = 'COPY millrace_stage, line 1, column a "b: "70000"'


class PostgresError(psycopg.DataError):
    diag = Context()  # type: ignore[assignment]  # what the server says is read-only


def test_the_column_that_a_database_refuses_is_found() -> None:
    assert column_of(PostgresError("out of range")) == 'a "b'
    assert column_of(pymysql.err.DataError(1264, "Out of range value for column 'a b' at row 1")) == "a b"
    assert (
        column_of(pymysql.err.DataError(1366, "Incorrect string value: 'x' for column `d`.`t`.`it's` at row 1"))
        == "it's"
    )
    assert column_of(pymysql.err.DataError(1062, "Duplicate entry")) == ""
