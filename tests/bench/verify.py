"""``millrace verify`` on a table of a MariaDB with a million rows and its topic: ``./millrace bench verify --rows 1000000``.

The topic's events are made by the connector's own builders, as a full snapshot would send them, and a few of them are left out
or changed, so that the comparison has something to find. The time is that of the whole command, from its start to its end.
``--formats json avro`` compares the same rows in both, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from compose.local.databases.server_pair import execute_sql
from compose.local.kafka import KafkaCluster
from compose.local.mariadb import MariaDb
from compose.local.registry import SchemaRegistry
from connectors.mysql.config.settings import CONFIG
from connectors.mysql.verify import SourceView
from tests.bench._common import environment
from worker.converters.avro import AvroConverter
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.converters.base import Converter

_TABLE = """CREATE TABLE bench.t (id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL, price DECIMAL(12,2), quantity INT,
    changed DATETIME(3))"""
_ROWS = (
    "INSERT INTO bench.t SELECT seq, CONCAT('customer ', seq), seq / 7, seq MOD 1000, "
    "'2026-01-02 03:04:05.678' + INTERVAL seq SECOND FROM seq_1_to_{}"
)
#: One of this number of rows is not sent.
_LEFT_OUT = 100_000


def _converters(config: Mapping[str, str]) -> tuple[Converter, Converter]:
    """The converters of a connector's keys and values."""
    if config["value.converter"] == "AvroConverter":
        registry = {"schema.registry.url": config["value.converter.schema.registry.url"]}
        return AvroConverter(registry, is_key=True), AvroConverter(registry, is_key=False)
    return JsonConverter({"schemas.enable": "false"}), JsonConverter({"schemas.enable": "false"})


def _converter_options(data_format: str, registry: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for side in ("key", "value"):
        if data_format == "avro":
            options |= {f"{side}.converter": "AvroConverter", f"{side}.converter.schema.registry.url": registry}
        else:
            options |= {f"{side}.converter": "JsonConverter", f"{side}.converter.schemas.enable": "false"}
    return options


async def send(config: dict[str, str], bootstrap: str) -> int:
    """Send the table as a snapshot would, but for some rows; returns how many rows there are."""
    view, (keys, values), number = SourceView(CONFIG.parse(config)), _converters(config), 0
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=50, max_batch_size=1 << 20) as producer:
        await view.open(lambda _table: True)
        try:
            for entry in view.tables.values():
                async for records in view.records(entry):
                    for record in records:
                        if number == 0:
                            await keys.prepare(record.topic, record.key_schema)
                            await values.prepare(record.topic, record.value_schema)
                        number += 1
                        if number % _LEFT_OUT:
                            await producer.send(
                                record.topic,
                                values.from_connect(record.topic, record.value_schema, record.value),
                                keys.from_connect(record.topic, record.key_schema, record.key),
                            )
        finally:
            await asyncio.gather(view.close(), keys.close(), values.close())
        await producer.flush()
    return number


def compare(options: argparse.Namespace, data_format: str) -> bool:
    """Send the rows in one format, compare them, and print the figures; whether all that was left out was missed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(KafkaCluster(folder / "kafka", port=None))
        server = stack.enter_context(MariaDb(folder / "mariadb", port=None))
        registry = ""
        if data_format == "avro":
            registry = stack.enter_context(SchemaRegistry(folder / "registry", port=None)).url
        execute_sql(server, "CREATE DATABASE bench", "USE bench", _TABLE, _ROWS.format(options.rows))
        config = {
            "name": "bench",
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password,
            "database.server.id": "7001",
            "database.include.list": "bench",
            "topic.prefix": "bench",
            **_converter_options(data_format, registry),
        }
        rows = asyncio.run(send(config, kafka.bootstrap))
        path = folder / "connector.json"
        path.write_text(json.dumps(config))
        command = [sys.executable, "-m", "worker.cli", "verify", "--connector-config", str(path), "--json"]
        command += ["--bootstrap-servers", kafka.bootstrap, "--settle", "0.5", "--tmp", str(folder)]
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        elapsed, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if done.returncode not in {0, 1}:
            sys.stderr.write(done.stderr)
            return False
        table: dict[str, Any] = json.loads(done.stdout)["tables"][0]
        print(
            f"{data_format}: {rows} rows compared with {table['rows']['topic']} on the topic in {elapsed:.1f} s "
            f"({rows / elapsed:,.0f} rows/s, {cpu:.1f} s of CPU without the servers): {table['missing']} missing, "
            f"{table['different']} different",
            flush=True,
        )
        return bool(table["missing"] == rows // _LEFT_OUT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--formats", nargs="+", choices=("json", "avro"), default=["json"])
    options = parser.parse_args(argv)
    print(environment())
    return 0 if all(compare(options, data_format) for data_format in options.formats) else 1


if __name__ == "__main__":
    sys.exit(main())
