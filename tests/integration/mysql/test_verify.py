"""``millrace verify`` against a real MariaDB and Kafka; the topic's events are made by the connector's own builders."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
from aiokafka import AIOKafkaProducer

from connectors.errors import Retriable
from connectors.mysql.config.settings import CONFIG
from connectors.mysql.model import RowSource
from connectors.mysql.verify import SourceView
from worker.cli import main
from worker.converters.json import JsonConverter
from worker.transforms.pipeline import build_pipeline
from worker.verify import rows as verify_rows
from worker.verify.command import build_verification
from worker.verify.messages import VerificationRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connectors.api import SourceRecord

ROWS = 3000


class World:
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

    async def send(self, records: list[SourceRecord], *, schemas: bool = False) -> None:
        converter = JsonConverter({"schemas.enable": "true" if schemas else "false"})
        async with AIOKafkaProducer(bootstrap_servers=self.kafka) as producer:
            for record in records:
                await producer.send(
                    record.topic,
                    converter.from_connect("", record.value_schema, record.value),
                    converter.from_connect("", record.key_schema, record.key),
                )
            await producer.flush()

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


@pytest.fixture
def world(mariadb: Any, kafka: Any, tmp_path: Path) -> Iterator[World]:
    world = World(mariadb, kafka, tmp_path)
    try:
        yield world
    finally:
        world.close()


def test_equal_and_then_not(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    async def fill() -> None:
        await world.send(await world.records())
        await world.send(
            [
                *await world.changed("t", "c", [{"id": 9001, "name": "short-lived"}]),
                *await world.changed("t", "d", [{"id": 9001, "name": "short-lived"}]),
                *await world.changed("loose", "u", [{"v": "y"}, {"v": "z"}]),
                *await world.changed("loose", "u", [{"v": "z"}, {"v": "y"}]),
            ]
        )

    asyncio.run(fill())
    code, tables, error = world.verify(capsys)
    assert (code, error) == (0, ""), f"{error} {json.dumps(tables)}"
    assert {name: (table["rows"]["source"], table["rows"]["topic"]) for name, table in tables.items()} == {
        "t": (ROWS, ROWS),
        "pair": (500, 500),
        "loose": (4, 4),
    }
    assert all(table["checksum"]["source"] == table["checksum"]["topic"] for table in tables.values())

    world.sql("UPDATE t SET name = 'changed' WHERE id = 7")
    world.sql("DELETE FROM t WHERE id = 8")
    world.sql("INSERT INTO t (id) VALUES (8000)")
    world.sql("DELETE FROM loose WHERE v = 'x' LIMIT 1")
    code, tables, _ = world.verify(capsys)
    assert code == 1
    table = tables["t"]
    assert (table["missing"], table["extra"], table["different"], table["equal"]) == (1, 1, 1, False)
    assert table["examples"] == {"missing": ['{"id":8000}'], "extra": ['{"id":8}'], "different": ['{"id":7}']}
    sides = {row["kind"]: (row["source"], row["topic"]) for row in table["differences"]}
    assert sides["different"] == ({"name": '"changed"'}, {"name": '"näme 7"'})
    assert (sides["missing"][0]["id"], sides["missing"][1]) == ("8000", None)
    assert (sides["extra"][0], sides["extra"][1]["name"]) == (None, '"näme 8"')
    assert table["key_ranges"] == [[0, 4095], [4096, 8191]]
    assert (tables["loose"]["extra"], tables["loose"]["examples"]) == (1, {"extra": ['{"v":"x"}']})
    assert tables["pair"]["equal"]
    assert world.verify(capsys, "--tables", r".*\.pair")[0] == 0


@pytest.mark.parametrize("older", [False, True])
def test_topics_are_read_by_another_process_where_they_are_long(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, older: bool
) -> None:
    monkeypatch.setattr(verify_rows, "MANY_ROWS", 0)
    asyncio.run(world.send(asyncio.run(world.records())))
    if older:
        world.sql("ALTER TABLE t ADD COLUMN more INT NOT NULL DEFAULT 5 FIRST, DROP COLUMN doc")
    world.sql("UPDATE t SET name = 'changed' WHERE id = 7")
    world.sql("DELETE FROM pair WHERE a = 'k1' AND b = 3")
    code, tables, error = world.verify(capsys)
    assert (code, error) == (1, "")
    assert tables["t"]["examples"] == {"different": ['{"id":7}']}
    assert tables["t"]["older_structure"] == (ROWS - 1 if older else 0)
    (row,) = tables["t"]["differences"]
    assert (row["source"], row["topic"]) == ({"name": '"changed"'}, {"name": '"näme 7"'})
    assert tables["pair"]["examples"] == {"extra": ['{"a":"k1","b":3}']}
    assert tables["loose"]["equal"]


def test_rows_of_before_a_new_column(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(world.send(asyncio.run(world.records())))
    world.sql("ALTER TABLE t ADD COLUMN more INT NOT NULL DEFAULT 5 FIRST, DROP COLUMN doc")
    code, tables, _ = world.verify(capsys)
    assert code == 0
    assert tables["t"]["older_structure"] == ROWS
    assert tables["pair"]["older_structure"] == 0


@pytest.mark.parametrize(
    "config",
    [
        {"output.format": "ums"},
        {"value.converter.schemas.enable": "true", "key.converter.schemas.enable": "true"},
        {
            "transforms": "u,r",
            "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.u.add.fields": "op,source.ts_ms",
            "transforms.r.type": "RegexRouter",
            "transforms.r.regex": r".*\.(.*)",
            "transforms.r.replacement": "plain.$1",
        },
        {
            "mask.rules": "m",
            "mask.m.columns": r".*\.(name|price)",
            "mask.m.type": "md5",
            "mask.m.salt.field": "id",
            "table.include.list": r".*\.t",
        },
        {"output.format": "ums", "logical.tables": r".*\.t:shop.all:0.1;.*\.pair:shop.all:0.2;.*\.loose:shop.all:0.3"},
        {"logical.tables": r".*\.t:shop.all:0.1;.*\.pair:shop.all:0.2;.*\.loose:shop.all:0.3"},
    ],
    ids=["ums", "schemas", "plain", "masked", "sharded-ums", "sharded"],
)
def test_other_forms(world: World, capsys: pytest.CaptureFixture[str], config: dict[str, str]) -> None:
    config = {name: value.replace("plain.$1", f"{world.prefix}.plain.$1") for name, value in config.items()}
    schemas = config.get("value.converter.schemas.enable") == "true"
    asyncio.run(world.send(asyncio.run(world.records(**config)), schemas=schemas))
    code, tables, error = world.verify(capsys, **config)
    assert (code, error) == (0, ""), f"{error} {json.dumps(tables)}"
    assert tables["t"]["rows"] == {"source": ROWS, "topic": ROWS}
    world.sql("UPDATE t SET name = 'changed' WHERE id = 7")
    code, tables, _ = world.verify(capsys, "--tables", r".*\.t", **config)
    assert (code, tables["t"]["different"]) == (1, 1)
    (row,) = tables["t"]["differences"]
    assert list(row["source"]) == list(row["topic"]) == ["name"]
    assert row["source"] != row["topic"]
    assert (row["source"]["name"] == '"changed"') is ("mask.rules" not in config)


def test_the_command_shows_both_sides_of_rows_that_differ(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.sql("CREATE TABLE dated (at DATE PRIMARY KEY, v VARCHAR(10))")
    world.sql("INSERT INTO dated VALUES ('2026-01-02', 'old'), ('2026-01-03', 'gone')")
    asyncio.run(world.send(asyncio.run(world.records())))
    world.sql("UPDATE dated SET v = 'new' WHERE at = '2026-01-02'")
    world.sql("DELETE FROM dated WHERE at = '2026-01-03'")
    world.sql("INSERT INTO dated VALUES ('2026-01-04', NULL)")
    path = world.folder / "connector.json"
    path.write_text(json.dumps({"config": world.config}))
    command = ["verify", "--connector-config", str(path), "--bootstrap-servers", world.kafka, "--settle", "0.2"]
    capsys.readouterr()
    assert main([*command, "--tables", r".*\.dated"]) == 1
    lines = capsys.readouterr().out.splitlines()
    # A key that is no number and no string can't be a condition: the table is read again.
    assert '    {"at":20455}: v "new" in the source, "old" on the topic' in lines
    assert '    {"at":20456}: at 20456, v "gone"' in lines
    assert '    {"at":20457}: at 20457, v null' in lines


def test_the_connector_is_waited_for_where_it_can_be_asked(world: World) -> None:
    worker = {"bootstrap.servers": world.kafka}
    position = {"file": "", "pos": 4}
    asked: list[int] = []

    def offsets() -> list[dict[str, Any]]:
        asked.append(1)
        if len(asked) == 2:  # the rows come late: between two questions
            asyncio.run(world.send(asyncio.run(world.records())))
            with world.server.cursor() as cursor:
                cursor.execute("SHOW MASTER STATUS")
                position["file"], position["pos"] = cursor.fetchall()[0][:2]
        return [
            {"partition": {"server": world.prefix}, "offset": dict(position)},
            {"partition": {"server": world.prefix, "snapshot": "initial"}, "offset": {"state": "done"}},
        ]

    verification = build_verification(
        world.config,
        worker,
        VerificationRequest(includes=lambda _table: True, offsets=offsets, folder=str(world.folder)),
    )
    reports = asyncio.run(verification.run())
    assert all(report.equal for report in reports)
    assert (len(asked), verification.notes) == (2, [])
    late = build_verification(
        world.config,
        worker,
        VerificationRequest(
            includes=lambda _table: True,
            timeout_s=0.0,
            offsets=lambda: [{"partition": {"server": world.prefix}, "offset": {"file": position["file"], "pos": 4}}],
        ),
    )
    with pytest.raises(Retriable, match=rf"did not reach .* within 0 s; it is at {position['file']}:4"):
        asyncio.run(late.run())


def test_what_cannot_be_done(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for more, config, message in (
        ((), {"database.password": "wrong"}, "refuses the user"),
        (
            (),
            {"connector.class": "FileStreamSource"},
            "only MySQL, MariaDB, Scylla and Cassandra connectors can be verified",
        ),
        ((), {"value.converter": "StringConverter"}, "verify reads JSON and Avro"),
        (("--tables", "nothing"), {}, "no table is captured and selected"),
        (("--rest", "http://127.0.0.1:9", "--timeout", "1"), {}, "is a worker there?"),
    ):
        code, tables, error = world.verify(capsys, *more, **config)
        assert (code, tables) == (2, None)
        assert message in error
    code, tables, _ = world.verify(capsys)
    assert code == 1
    assert tables["t"]["missing"] == ROWS
    asyncio.run(world.send(asyncio.run(world.records())[:1], schemas=True))
    code, _, error = world.verify(
        capsys,
        **{
            "value.converter": "io.confluent.connect.avro.AvroConverter",
            "value.converter.schema.registry.url": "http://127.0.0.1:9",
        },
    )
    assert code == 2
    assert error
