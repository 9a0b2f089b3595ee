"""The demo with masks: every topic, file, table, log and answer of REST is searched for values that were planted.

Each planted value is masked at another place: at the sources (MariaDB, Scylla's partition updates), in a materializer (of
Cassandra's raw updates), in the jobs with sinks. It may be seen before that place, and nowhere behind it.

The table of requests, of which nothing is masked, is compared with the lines of the log, through a rotation.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from datetime import datetime
from hashlib import md5
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient
from psycopg import sql

from compose.demo import show
from compose.demo.payments import PAYMENTS, Payment
from compose.demo.requests import REQUESTS
from compose.demo.run import (
    CUSTOMERS_SOURCE,
    HISTORY,
    JOBS,
    MATERIALIZERS,
    ORDERS_SOURCE,
    ROWS,
    SOURCES,
    UPDATES,
    WAREHOUSE,
    Demo,
    short_name,
)
from compose.demo.shop import CUSTOMERS, ORDERS, TABLES, Shop
from compose.local.process.service import wait_until
from compose.local.scylla.writes import Delete, Insert, Update
from tests.support.eventually import eventually
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

CITY, ITEM, METHOD, NAME = "planted-city", "planted-item", "planted-method", "planted-name"
#: Where a value may be seen: before it is masked, and in the state of a materializer that masks it.
ALLOWED: dict[str, set[str]] = {
    CITY: set(),
    ITEM: set(),
    METHOD: {UPDATES[PAYMENTS], f"{MATERIALIZERS[PAYMENTS]}-changelog"},
    NAME: {ROWS[CUSTOMERS]},
}
#: Data of servers: what is in Kafka and PostgreSQL is asked for, the databases hold the plain values.
SERVERS = {"kafka", "scylla", "cassandra", "mariadb", "postgres", "registry"}
HISTORY_FOLDER = "history/"
LIMIT_S = 180.0


def masks(columns: str, kind: str) -> dict[str, str]:
    return {"mask.rules": "planted", "mask.planted.columns": columns, "mask.planted.type": kind}


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    options = {
        CUSTOMERS_SOURCE: masks(r"shop\.customers\.city", "hash"),
        ORDERS_SOURCE: masks(r"shop\.orders\.item", "hash"),
        MATERIALIZERS[PAYMENTS]: masks(r"shop\.payments\.method", "md5"),
        **{name: masks(r"shop\.customers\.name", "md5") for name in (HISTORY, WAREHOUSE)},
    }
    demo = Demo(tmp_path, options=options)
    try:
        demo.start()
        yield demo
    finally:
        demo.stop()


def plant(shop: Shop, number: int) -> None:
    """Rows of all tables with the planted values, changed once; and one of each that is deleted again."""
    customer = 1000 + number
    for index in (customer, customer + 500):
        shop._run("INSERT INTO shop.customers VALUES (%s, %s, %s, 'new', '2026-05-28 20:26:40')", (index, NAME, CITY))
        key = {"customer": index, "number": 1}
        shop.client.apply(
            Insert(
                ORDERS, {**key, "item": ITEM, "amount": 1, "price": "1.00", "paid": False, "placed": 1_780_000_000_000}
            )
        )
        shop.payments.apply(
            Payment(
                f"INSERT INTO {PAYMENTS} (customer, number, method) VALUES (?, ?, ?)",  # noqa: S608
                {**key, "method": METHOD},
            )
        )
    shop._run("UPDATE shop.customers SET tags = 'late' WHERE id = %s", (customer,))
    shop.client.apply(Update(ORDERS, {"customer": customer, "number": 1}, {"paid": True}))
    shop.payments.apply(
        Payment(
            f"UPDATE {PAYMENTS} SET refunded = ? WHERE customer = ? AND number = ?",  # noqa: S608
            {"refunded": True, "customer": customer, "number": 1},
        )
    )
    shop._run("DELETE FROM shop.customers WHERE id = %s", (customer + 500,))
    shop.client.apply(Delete(ORDERS, {"customer": customer + 500, "number": 1}))
    shop.payments.apply(Payment(f"DELETE FROM {PAYMENTS} WHERE customer = ?", {"customer": customer + 500}))  # noqa: S608


def found_in(demo: Demo, values: tuple[str, ...]) -> dict[str, set[str]]:
    """The outputs that hold each value."""
    outputs: dict[str, set[str]] = {value: set() for value in values}

    def look(output: str, data: bytes) -> None:
        for value in values:
            if value.encode() in data:
                outputs[value].add(output)

    for topic in AdminClient({"bootstrap.servers": demo.kafka.bootstrap}).list_topics(timeout=30).topics:
        for record in read_topic(demo.kafka.bootstrap, topic):
            look(topic, repr((record.headers, record.key, record.value)).encode())
    for worker in demo.rest.workers:
        paths = [
            "/connectors?expand=status&expand=info",
            "/metrics",
            *(
                f"/connectors/{name}{rest}"
                for name in (*SOURCES, *JOBS)
                for rest in ("", "/status", "/offsets", "/topics", "/tasks", "/snapshots", "/lag", "/tables")
            ),
        ]
        for path in paths:
            look(f"REST {path}", json.dumps(worker.request("GET", path)[1]).encode())
    for file in demo.folder.rglob("*"):
        if file.is_file() and file.relative_to(demo.folder).parts[0] not in SERVERS:
            output = str(file.relative_to(demo.folder))
            look(output, file.read_bytes())
            if file.suffix == ".parquet":
                look(output, repr(pq.read_table(file).to_pylist()).encode())
    with psycopg.connect(demo.postgres.dsn) as connection:
        for table in TABLES:
            rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(short_name(table)))).fetchall()
            look(f"PostgreSQL {short_name(table)}", repr(rows).encode())
    return outputs


def requests_in(log: Path) -> show.Rows:
    """The rows that the requests in the lines of a log and of the one before it are, read without the connector's rules."""
    rows: show.Rows = {}
    for path in (log.with_name(f"{log.name}.1"), log):
        for line in path.read_text(encoding="utf-8").splitlines():
            match = re.fullmatch(
                r'\S+ - customer(\d+) \[(.+)\] "(\S+) (\S+) \S+" (\d+) (\d+) "-" "shop/1.0" (\d+)', line
            )
            if match is None:
                continue
            customer, time, method, target, status, size, number = match.groups()
            rows[(int(number),)] = {
                "request": int(number),
                "customer": int(customer),
                "time": int(datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z").timestamp()) * 1000,
                "method": method,
                "path": target,
                "status": int(status),
                "bytes": int(size),
            }
    return rows


def test_no_output_of_the_demo_shows_a_masked_value(demo: Demo) -> None:
    with ExitStack() as stack:
        shop = demo.open_shop(stack)
        shop.create()
        plant(shop, 0)  # before the connectors: snapshots
        demo.create_sources()
        shop.trade(30)
        plant(shop, 1)
        demo.create_jobs()
        plant(shop, 2)

        def requests() -> show.Rows:
            return show.select_rows(demo.postgres, short_name(REQUESTS), show.KEYS[REQUESTS])

        eventually(lambda: bool(requests()), "the log is read", LIMIT_S)
        demo.requests.rotate()
        shop.trade(30)
        expected = {
            table: {tuple(row[name] for name in show.KEYS[table]) for row in shop.rows(table)} for table in TABLES
        }

        def arrived() -> bool:
            return all(
                set(show.select_rows(demo.postgres, short_name(table), show.KEYS[table])) == expected[table]
                for table in TABLES
            )

        assert wait_until(arrived, LIMIT_S, 0.5), {
            table: set(show.select_rows(demo.postgres, short_name(table), show.KEYS[table])) ^ expected[table]
            for table in TABLES
        }
        lines = requests_in(demo.requests.path)
        assert len(lines) == demo.requests.counts["requests"]
        assert requests() == lines, show.describe_difference(lines, requests())
        hashed = md5(NAME.encode(), usedforsecurity=False).hexdigest()

        def written() -> bool:
            """Whether the history has its file of customers: it is closed later than PostgreSQL has the rows."""
            return any(output.startswith(HISTORY_FOLDER) for output in found_in(demo, (hashed,))[hashed])

        eventually(written, "the masked values are written", LIMIT_S, every=2.0)
        outputs = found_in(demo, (CITY, ITEM, METHOD, NAME, hashed))
    for value, allowed in ALLOWED.items():
        assert outputs[value] <= allowed, (value, outputs[value] - allowed)
    assert UPDATES[PAYMENTS] in outputs[METHOD], "the search finds what is there"
    assert ROWS[CUSTOMERS] in outputs[NAME]
    assert "PostgreSQL customers" in outputs[hashed]
