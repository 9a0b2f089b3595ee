"""A database with tables of many types, topics whose events the connector's own builders make, and ``millrace verify``."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pymysql
from aiokafka import AIOKafkaProducer

from connectors.mysql.config.settings import CONFIG
from connectors.mysql.model import RowSource
from connectors.mysql.verify import SourceView
from worker.cli import main
from worker.converters.avro import AvroConverter
from worker.converters.json import JsonConverter
from worker.transforms.pipeline import build_pipeline

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from connectors.api import SourceRecord
    from worker.converters.base import Converter

#: Rows of the largest table.
ROWS = 3000


class VerifyWorld:
    """A database of its own with three tables, and topics of its own."""

    def __init__(self, mariadb: Any, kafka: Any, folder: Path) -> None:
        self.kafka: str = kafka.bootstrap
        self.folder = folder
        self.database = f"verify_{uuid.uuid4().hex[:10]}"
        self.prefix = self.database
        self.server = pymysql.connect(
            host="127.0.0.1",
            port=mariadb.port,
            user=mariadb.user,
            password=mariadb.password,
            autocommit=True,
            charset="utf8mb4",
        )
        self.config = {
            "name": self.prefix,
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(mariadb.port),
            "database.user": mariadb.user,
            "database.password": mariadb.password,
            "topic.prefix": self.prefix,
            "database.server.id": "7001",
            "database.include.list": self.database,
            "key.converter": "JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
        }
        self.sql(f"CREATE DATABASE {self.database}")
        self.sql(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(40), price DECIMAL(20,4), at DATETIME(6), raw BLOB, "
            "doc JSON, f FLOAT, flags SET('a','b'))"
        )
        self.sql("CREATE TABLE pair (a VARCHAR(20) COLLATE utf8mb4_bin, b INT, v DOUBLE, PRIMARY KEY (a, b))")
        self.sql("CREATE TABLE loose (v VARCHAR(10))")
        self.sql(
            "INSERT INTO t SELECT seq, CONCAT('näme ', seq), seq / 7, '2026-01-02 03:04:05.678901' + INTERVAL seq SECOND, "
            "UNHEX(MD5(seq)), JSON_OBJECT('n', seq), seq / 3, 'a,b' FROM seq_1_to_3000"
        )
        self.sql("INSERT INTO pair SELECT CONCAT('k', seq DIV 10), seq MOD 10, seq / 9 FROM seq_1_to_500")
        self.sql("INSERT INTO loose VALUES ('x'), ('x'), ('y'), (NULL)")

    def sql(self, statement: str) -> None:
        with self.server.cursor() as cursor:
            if not statement.startswith("CREATE DATABASE"):
                cursor.execute(f"USE {self.database}")
            cursor.execute(statement)

    def close(self) -> None:
        self.sql(f"DROP DATABASE {self.database}")
        self.server.close()

    async def records(self, **config: str) -> list[SourceRecord]:
        """The records that a snapshot would send now."""
        raw = {**self.config, **config}
        view, pipeline, collected = SourceView(CONFIG.parse(raw)), build_pipeline(raw), []
        try:
            await view.open(lambda _table: True)
            for entry in view.tables.values():
                async for records in view.records(entry):
                    collected += [sent for sent in map(pipeline.apply, records) if sent is not None]
        finally:
            await view.close()
        return collected

    async def changed(self, table: str, op: str, rows: list[Any]) -> list[SourceRecord]:
        """The records that the stream would send for a change that is already in the binlog."""
        view = SourceView(CONFIG.parse(self.config))
        out: list[SourceRecord] = []
        try:
            await view.open(lambda name: name.endswith(f".{table}"))
            entry = view.tables[f"{self.database}.{table}"]
            source = RowSource(ts_ms=1, ts_us=1, server_id=1, file=view.position.file, pos=view.position.pos - 1)
            entry.builder.changes(op, rows, source, 0, {}, {}, out)  # type: ignore[arg-type]
        finally:
            await view.close()
        return out

    async def send(self, records: list[SourceRecord], *, schemas: bool = False, registry: str = "") -> None:
        """Send records in JSON, or with the address of a registry in Avro."""
        keys: Converter
        values: Converter
        if registry:
            keys, values = (AvroConverter({"schema.registry.url": registry}, is_key=is_key) for is_key in (True, False))
        else:
            keys = values = JsonConverter({"schemas.enable": "true" if schemas else "false"})
        async with AIOKafkaProducer(bootstrap_servers=self.kafka) as producer:
            for record in records:
                await keys.prepare(record.topic, record.key_schema)
                await values.prepare(record.topic, record.value_schema)
                await producer.send(
                    record.topic,
                    values.from_connect(record.topic, record.value_schema, record.value),
                    keys.from_connect(record.topic, record.key_schema, record.key),
                )
            await producer.flush()
        await keys.close()
        await values.close()

    def verify(self, capsys: pytest.CaptureFixture[str], *more: str, **config: str) -> tuple[int, Any, str]:
        """Run the command: its exit code, its JSON, its complaint without lines that say how far it is."""
        path = self.folder / "connector.json"
        path.write_text(json.dumps({"config": {**self.config, **config}}))
        capsys.readouterr()
        code = main(
            [
                "verify",
                "--connector-config",
                str(path),
                "--bootstrap-servers",
                self.kafka,
                "--settle",
                "0.2",
                "--json",
                "--tmp",
                str(self.folder),
                *more,
            ]
        )
        out, error = capsys.readouterr()
        assert [item.name for item in self.folder.iterdir()] == ["connector.json"]  # nothing is left behind
        return (
            code,
            {table["table"].rpartition(".")[2]: table for table in json.loads(out)["tables"]} if out else None,
            "".join(line for line in error.splitlines(keepends=True) if not line.startswith("millrace: verifying")),
        )
