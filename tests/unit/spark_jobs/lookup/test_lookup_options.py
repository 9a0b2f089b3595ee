"""Options of lookups: what is refused before the start, and with which words."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql import types as t

from spark_jobs.config import job_files as config
from spark_jobs.contract import Column, TableSchema
from spark_jobs.steps.options import build_steps
from spark_jobs.steps.planning.model import StepRefused

JOB = {
    "name": "j",
    "kafka.bootstrap.servers": "b:9092",
    "source.topics": "t",
    "source.format": "debezium",
    "sink.type": "console",
    "transform.steps": "names",
}
DATABASE = {
    "url": "jdbc:postgresql://db/crm",
    "user": "jobs",
    "table": "customers",
    "on": "customer_id = id",
    "columns": "name string AS customer",
}
REDIS = {"url": "redis://r:6379/0", "on": "customer_id = id", "columns": "name string", "redis.key": "c:${id}"}
HTTP = {"url": "https://crm/c/${id}", "on": "customer_id = id", "columns": "name string"}


def checked(options: dict[str, str]) -> tuple[Any, dict[str, str]]:
    prefix = "transform.step.names."
    parsed, problems = config.check_job(
        JOB | {f"{prefix}type": "lookup"} | {prefix + name: text for name, text in options.items()}
    )
    messages: dict[str, str] = {}
    for problem in problems:
        name = problem.name.removeprefix(prefix)
        messages[name] = f"{messages.get(name, '')}{problem.message}\n"
    return parsed, messages


@pytest.mark.parametrize("options", [DATABASE, REDIS, HTTP], ids=["database", "redis", "http"])
def test_options_that_are_complete(options: dict[str, str]) -> None:
    parsed, problems = checked(options | {"header.X-Tenant": "t"})
    assert parsed is not None, problems


@pytest.mark.parametrize(
    ("options", "option", "message"),
    [
        (
            DATABASE | {"url": "jdbc:oracle://db/crm"},
            "url",
            "is not a known address; a URL is one of jdbc:postgresql://",
        ),
        (DATABASE | {"url": "jdbc:postgresql://db"}, "url", "the URL names no database"),
        (
            DATABASE | {"url": "jdbc:postgresql://me:pw@db/crm"},
            "url",
            "the URL must not hold a login: use user and password",
        ),
        (DATABASE | {"topic": "t"}, "url", "set url or topic, one of them"),
        ({name: text for name, text in DATABASE.items() if name != "table"}, "table", "needs the name of the table"),
        ({name: text for name, text in DATABASE.items() if name != "user"}, "user", "needs a login"),
        ({name: text for name, text in DATABASE.items() if name != "on"}, "on", "Missing required configuration"),
        (DATABASE | {"on": "a = b = c"}, "on", "is not `<column of the table> = <column there>`"),
        (DATABASE | {"columns": "name"}, "columns", "is not `<column> <type> [AS <name>]`"),
        (DATABASE | {"ssl.mode": "verify-full"}, "ssl.root.cert", "needs the file of authorities"),
        (DATABASE | {"ssl.cert": "/c"}, "ssl.cert", "needs its key"),
        (DATABASE | {"miss": "skip"}, "miss", "Invalid value skip"),
        (DATABASE | {"cache.row": "1"}, "cache.row", "did you mean transform.step.names.cache.rows?"),
        (DATABASE | {"url": "cassandra://h:1:2"}, "url", "is not host:port; the keyspace is written in table"),
        (REDIS | {"redis.key": "c"}, "redis.key", "needs the key as a template, such as customer:${id}"),
        (REDIS | {"redis.key": "c:${nr}:${id}"}, "redis.key", "${nr} is no column of `on`, which has id"),
        (REDIS | {"on": "id, region"}, "redis.key", "the column region of `on` is not in it"),
        (REDIS | {"table": "t"}, "table", "a lookup in redis has no table"),
        (
            REDIS | {"redis.value": "string", "columns": "a int, b int"},
            "columns",
            "redis.value=string gives one column",
        ),
        (HTTP | {"url": "https://${id}/c"}, "url", "the host must be written out"),
        (HTTP | {"url": "https://crm/${nr}"}, "url", "${nr} is no column of `on`"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], option: str, message: str) -> None:
    parsed, problems = checked(options)
    assert parsed is None
    assert message in problems[option]


TABLE = TableSchema(
    "shop.orders",
    (
        Column("id", t.IntegerType(), nullable=False, key=True),
        Column("customer_id", t.LongType()),
        Column("price", t.DecimalType(10, 2)),
        Column("tags", t.ArrayType(t.StringType())),
    ),
)


def test_the_plan_of_a_lookup() -> None:
    parsed, _ = checked(DATABASE | {"columns": "name string AS customer, since date"})
    (step,) = build_steps(parsed)
    (planned,) = step.plan([TABLE])
    assert isinstance(planned, TableSchema)
    assert planned.columns == (
        *TABLE.columns,
        Column("customer", t.StringType(), volatile=True),
        Column("since", t.DateType(), volatile=True),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            DATABASE | {"on": "customer = id"},
            "table shop.orders has no column customer; did you mean customer_id? It has id,",
        ),
        (DATABASE | {"on": "tags = id"}, "column tags of table shop.orders is a array<string>, which is no key"),
        (DATABASE | {"columns": "x int AS Price"}, "table shop.orders has a column Price already"),
        (DATABASE | {"columns": "x int AS ums_ts_"}, "has a column ums_ts_ already"),
        (
            {"topic": "t", "on": "price = id", "columns": "name string"},
            "keys of topics are strings, whole numbers or booleans; cast it",
        ),
    ],
)
def test_tables_that_do_not_fit(options: dict[str, str], message: str) -> None:
    parsed, problems = checked(options)
    assert parsed is not None, problems
    (step,) = build_steps(parsed)
    with pytest.raises(StepRefused) as refusal:
        step.plan([TABLE])
    assert message in str(refusal.value)


def test_checking_lookups_and_functions_imports_no_spark() -> None:
    program = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(('pyspark', 'py4j', 'pyarrow'))\n"  # importing them fails
        "from spark_jobs.steps.contract import StepContext\n"
        "from spark_jobs.steps.lookup.step import LookupStep\n"
        "from spark_jobs.steps.python.step import PythonStep\n"
        "from spark_jobs.steps.python import functions\n"
        f"options = LookupStep.config_def.parse({DATABASE!r})\n"
        "print(LookupStep(StepContext('s', options, {})).check())\n"
        "options = {'python.file': None, 'python.function': 'os:getcwd', 'columns': 'a int'}\n"
        "print(PythonStep(StepContext('s', options, {})).check())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")
