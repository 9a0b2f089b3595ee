"""The demo's output, and the comparisons behind it: every value is read from the system that it is shown of."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from compose.demo.payments import PAYMENTS
from compose.demo.requests import IDENTITY, REQUESTS
from compose.demo.shop import CUSTOMERS, ORDERS, TABLES
from worker.converters.avro import AvroConverter
from worker.fetch.errors import StackError
from worker.kafka.whole_topics import read_topic
from worker.terminal import Say, say

if TYPE_CHECKING:
    from compose.demo.rest import Rest
    from compose.demo.shop import Shop
    from compose.local.cassandra import CassandraNode
    from compose.local.kafka import KafkaCluster
    from compose.local.mariadb import MariaDb
    from compose.local.postgres import Postgres
    from compose.local.registry import SchemaRegistry
    from compose.local.scylla.emulation import ScyllaEmulation

#: Rows by primary key, values in one form for all systems.
Rows = dict[tuple[Any, ...], dict[str, Any]]

KEYS = {CUSTOMERS: ("id",), ORDERS: ("customer", "number"), PAYMENTS: ("customer", "number"), REQUESTS: ("request",)}
_SHOWN = 3
_METRICS = (
    "millrace_job_lag",
    "millrace_job_rows",
    "kafka_connect_sink_task_sink_record_lag_max",
    "kafka_connect_sink_task_sink_record_send_total",
    "kafka_connect_source_task_source_record_write_total",
)


def plain_value(value: Any) -> Any:
    """One form for what systems show differently: times in ms, decimals as text, sets sorted, nothing for empty."""
    if isinstance(value, datetime):
        return int(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * 1000)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, str) and value[:1] == "[":
        return plain_value(json.loads(value))
    if isinstance(value, list | tuple):
        return sorted(map(plain_value, value)) or None
    return value


def by_key(rows: Iterable[Mapping[str, Any]], key: Sequence[str]) -> Rows:
    """Rows by key; columns without a value left out, as a table does not tell them apart, and what a connector adds."""
    return {
        tuple(row[name] for name in key): {
            name: plain_value(value)
            for name, value in row.items()
            if plain_value(value) is not None and name != IDENTITY
        }
        for row in rows
    }


def read_events(bootstrap: str, topic: str, registry: str) -> list[dict[str, Any]]:
    """Committed events of a topic, decoded; tombstones left out. Blocks."""

    async def decode(values: list[bytes]) -> list[Any]:
        converter = AvroConverter({"schema.registry.url": registry}, is_key=False)
        try:
            decoded_values = []
            for value in values:
                await converter.prepare_data(topic, value)
                decoded_values.append(converter.to_connect(topic, value)[1])
            return decoded_values
        finally:
            await converter.close()

    return asyncio.run(
        decode([record.value for record in read_topic(bootstrap, topic, committed=True) if record.value])
    )


def fold_events(bootstrap: str, topic: str, registry: str, key: Sequence[str]) -> Rows:
    """The table that a topic's events lead to: the last image of each row. Blocks."""
    rows_by_key: Rows = {}
    for event in read_events(bootstrap, topic, registry):
        image = event["after"] or event["before"]
        name = tuple(image[column] for column in key)
        rows_by_key.pop(name, None)
        if event["after"] is not None:
            rows_by_key.update(by_key([event["after"]], key))
    return rows_by_key


def select_rows(postgres: "Postgres", table: str, key: Sequence[str]) -> Rows:
    """The rows of a table in PostgreSQL that are there (not deleted softly), without system columns. Blocks."""
    try:
        with psycopg.connect(postgres.dsn) as connection:
            cursor = connection.execute(sql.SQL("SELECT * FROM {} WHERE ums_active_ = 1").format(sql.Identifier(table)))
            names = [column.name for column in cursor.description or ()]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
    except psycopg.errors.UndefinedTable:
        return {}
    return by_key([{name: value for name, value in row.items() if not name.endswith("_")} for row in rows], key)


def describe_difference(expected_rows: Rows, actual_rows: Rows) -> str:
    """Describe the differences briefly."""
    missing, extra = expected_rows.keys() - actual_rows.keys(), actual_rows.keys() - expected_rows.keys()
    differing_keys = [
        key for key in expected_rows.keys() & actual_rows.keys() if expected_rows[key] != actual_rows[key]
    ]
    example = (
        f"; of {differing_keys[0]}: {expected_rows[differing_keys[0]]} there, {actual_rows[differing_keys[0]]} here"
        if differing_keys
        else ""
    )
    return (
        f"{len(missing)} rows are missing {sorted(missing)[:3]}, {len(extra)} too many {sorted(extra)[:3]}, "
        f"{len(differing_keys)} differ{example}"
    )


def show_topics(bootstrap: str, names: Sequence[str], detail: Say) -> None:
    """Topics with their counts, as a detail."""
    for name in names:
        records = read_topic(bootstrap, name, committed=True)
        detail(
            f"topic {name}: {len(records)} records"
            + (
                f", {tombstones} of them tombstones"
                if (tombstones := sum(record.value is None for record in records))
                else ""
            )
        )


def show_events(bootstrap: str, topic: str, registry: str, detail: Say) -> None:
    """Show how many events of each operation a topic has; as a detail also its last update."""
    events = read_events(bootstrap, topic, registry)
    counts = Counter(item["op"] for item in events)
    say(f"events of {topic}: {', '.join(f'{op}: {count}' for op, count in sorted(counts.items()))}")
    last = next((item for item in reversed(events) if item["op"] == "u"), events[-1])
    for line in json.dumps(last, indent=2, default=str).splitlines():
        detail(f"  {line}")


def side_by_side(
    shop: "Shop", bootstrap: str, registry: str, postgres: "Postgres", topics_of: Mapping[str, str], detail: Say
) -> None:
    """Compare each table with its copies, row by row; some rows are printed as a detail.

    Raises:
        StackError: They differ.
    """
    for table in TABLES:
        key, short, topic_name = KEYS[table], table.rpartition(".")[2], topics_of[table]
        source = by_key(shop.rows(table), key)
        topic, database = fold_events(bootstrap, topic_name, registry, key), select_rows(postgres, short, key)
        for name, copy in (("topic", topic), ("PostgreSQL", database)):
            if copy != source:
                raise StackError(f"{name} differs from {table}: {describe_difference(source, copy)}")
        say(
            f"{table}: {len(source)} rows in the source, {len(topic)} in topic {topic_name}, {len(database)} in PostgreSQL; "
            "equal, row by row"
        )
        for row in sorted(source)[-_SHOWN:]:
            detail(f"  source     {source[row]}")
            detail(f"  topic      {topic[row]}")
            detail(f"  PostgreSQL {database[row]}")


def show_unknown(bootstrap: str, registry: str, topic: str, expected: int) -> None:
    """The lines of the log that no rule accepts, with the reason of the last one.

    Raises:
        StackError: It is not as many as were written.
    """
    lines = [event["after"] for event in read_events(bootstrap, topic, registry)]
    if len(lines) != expected:
        raise StackError(f"topic {topic} has {len(lines)} lines, {expected} were written")
    if lines:
        (failure,) = lines[-1]["failures"]
        say(f"topic {topic}: {len(lines)} lines that no rule accepts; {lines[-1]['line']!r}: {failure['reason']}")


def compare_join(shop: "Shop", postgres: "Postgres") -> None:
    """Customers of MariaDB, orders of Scylla and payments of Cassandra in one query of the database that all came to.

    Raises:
        StackError: It is not what the sources say.
    """
    query = (
        "SELECT c.id, c.name, c.city, count(*) AS orders, coalesce(sum(o.amount * o.price::numeric), 0) AS total, "
        "count(p.customer) FILTER (WHERE NOT p.refunded) AS paid "
        "FROM customers c JOIN orders o ON o.customer = c.id AND o.ums_active_ = 1 "
        "LEFT JOIN payments p ON p.customer = o.customer AND p.number = o.number AND p.ums_active_ = 1 "
        "WHERE c.ums_active_ = 1 GROUP BY c.id, c.name, c.city ORDER BY total DESC, c.id"
    )
    with psycopg.connect(postgres.dsn) as connection:
        joined_rows = connection.execute(query).fetchall()
    customers = {row["id"]: row for row in shop.rows(CUSTOMERS)}
    payments = {(row["customer"], row["number"]): row for row in shop.rows(PAYMENTS)}
    totals: dict[int, tuple[int, Decimal, int]] = {}
    for order in shop.rows(ORDERS):
        if order["customer"] in customers:
            count, total, paid = totals.get(order["customer"], (0, Decimal(0), 0))
            # An update after a delete makes a row of what it sets only.
            price = order["amount"] * Decimal(order["price"]) if order["amount"] and order["price"] else Decimal(0)
            payment = payments.get((order["customer"], order["number"]))
            paid += payment is not None and payment["refunded"] is False
            totals[order["customer"]] = count + 1, total + price, paid
    expected = sorted(
        (
            (key, customers[key]["name"], customers[key]["city"], count, total, paid)
            for key, (count, total, paid) in totals.items()
        ),
        key=lambda row: (-row[4], row[0]),
    )
    if joined_rows != expected:
        raise StackError(
            f"the join in PostgreSQL differs from the sources': {joined_rows[:3]} there, {expected[:3]} expected"
        )
    say(
        f"customers (from MariaDB) joined with their orders (from Scylla) and payments (from Cassandra) in PostgreSQL, "
        f"{len(joined_rows)} rows as the sources say:"
    )
    for key, name, city, orders, total, paid in joined_rows[:_SHOWN]:
        say(f"  customer {key} {name} of {city}: {orders} orders, {total}, {paid} of them paid")


def show_history(path: Path, table: str, seconds: float, earlier: Iterable[Mapping[str, Any]]) -> None:
    """Show the files of a table's history, and the table at an earlier time compared with the source at that time. Blocks.

    Args:
        path: Of all histories.
        table: Its name.
        seconds: Seconds since 1970.
        earlier: The rows that the source held then.

    Raises:
        StackError: They differ, or the command failed.
    """
    files = [
        path_of_file
        for path_of_file in path.rglob("*.parquet")
        if not any(part.startswith(".") for part in path_of_file.parts)
    ]
    at = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    command = ["job", "snapshot", str(path), "--table", table, "--at", at]
    say(f"{len(files)} Parquet files of full history; ./millrace {' '.join(command)}")
    result = subprocess.run([sys.executable, "-m", "worker.cli", *command], capture_output=True, text=True, check=False)
    if result.returncode:
        raise StackError(f"the snapshot failed: {result.stderr[-1500:]}")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    key = KEYS[table]
    snapshot_rows = by_key(
        [{name: parse_time(value) for name, value in row.items() if not name.endswith("_")} for row in rows], key
    )
    earlier_rows = by_key(earlier, key)
    if snapshot_rows != earlier_rows:
        raise StackError(
            f"the snapshot of {table} at {at} differs from what it held then: "
            f"{describe_difference(earlier_rows, snapshot_rows)}"
        )
    say(f"{table} at {at}: {len(snapshot_rows)} rows, equal to what the source held then")


def parse_time(value: Any) -> Any:
    """A time in JSON as a time."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) and "T" in value else value
    except ValueError:
        return value


def show_lag(rest: "Rest", detail: Say) -> None:
    """Lag and throughput as the workers' metrics show them, as a detail."""
    detail(
        f"curl {rest.alive.url}/metrics  (of the worker that is left; what a job is doing: /connectors/NAME/progress)"
    )
    for line in rest.metrics(*_METRICS):
        detail(f"  {line}")


def left_running(
    kafka: "KafkaCluster",
    registry: "SchemaRegistry",
    scylla: "ScyllaEmulation",
    cassandra: "CassandraNode",
    mariadb: "MariaDb",
    postgres: "Postgres",
    rest: "Rest",
    folder: Path,
) -> None:
    """Where everything is, and how to end it."""
    worker = rest.alive
    say("left running:")
    for name, address in (
        ("Kafka", kafka.bootstrap),
        ("Scylla", scylla.address),
        ("Cassandra", cassandra.address),
        ("MariaDB", mariadb.address),
        ("schema registry", registry.url),
        ("PostgreSQL", postgres.dsn),
        ("REST", f"{worker.url}/connectors?expand=status"),
        ("metrics", f"{worker.url}/metrics"),
        ("files", folder),
    ):
        say(f"  {name}: {address}")
    pids = [process.pid for process in rest.workers if process.running] + [
        kafka.broker(0).pid,
        registry.pid,
        scylla.pid,
        cassandra.pid,
        mariadb.pid,
        postgres.pid,
    ]
    say(f"stop it with: kill {' '.join(map(str, pids))}; then remove {folder}")
