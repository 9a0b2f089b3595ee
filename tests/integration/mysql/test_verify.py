"""``millrace verify`` against a real MariaDB and Kafka; the topic's events are made by the connector's own builders."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Retriable
from tests.integration.mysql.verify_world import ROWS, VerifyWorld
from worker.cli import main
from worker.verify import rows as verify_rows
from worker.verify.command import build_verification
from worker.verify.messages import VerificationRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(mariadb: Any, kafka: Any, tmp_path: Path) -> Iterator[VerifyWorld]:
    """A database of the test's own, with topics of its own, for ``millrace verify``."""
    world = VerifyWorld(mariadb, kafka, tmp_path)
    try:
        yield world
    finally:
        world.close()


def test_equal_and_then_not(world: VerifyWorld, capsys: pytest.CaptureFixture[str]) -> None:
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
    world: VerifyWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, older: bool
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


def test_rows_of_before_a_new_column(world: VerifyWorld, capsys: pytest.CaptureFixture[str]) -> None:
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
def test_other_forms(world: VerifyWorld, capsys: pytest.CaptureFixture[str], config: dict[str, str]) -> None:
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


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"output.format": "ums"},
        {"transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"},
        {"decimal.handling.mode": "double", "time.precision.mode": "connect", "field.name.adjustment.mode": "avro"},
    ],
    ids=["debezium", "ums", "plain", "other-types"],
)
def test_avro(world: VerifyWorld, capsys: pytest.CaptureFixture[str], registry: Any, config: dict[str, str]) -> None:
    name = "`a-name`" if "field.name.adjustment.mode" in config else "a_name"
    # Kafka Connect's times are those of a day.
    first, second = ("12:00:01.5", "0:0") if "time.precision.mode" in config else ("-12:00:01.5", "838:59:59")
    world.sql(
        f"CREATE TABLE types (id INT UNSIGNED PRIMARY KEY, {name} CHAR(3), tiny TINYINT, large BIGINT UNSIGNED, bit1 BIT(1), "
        "bits BIT(12), choice ENUM('x','y'), year YEAR, day DATE, moment TIME(3), stamp TIMESTAMP(6), fixed BINARY(4), "
        "amount DECIMAL(30,10), place POINT)"
    )
    world.sql(
        f"INSERT INTO types VALUES (1, 'ab', -7, 18446744073709551615, b'1', b'101', 'y', 2026, '1969-12-31', '{first}', "
        "'2026-01-02 03:04:05.000001', 'abc', -12345.0000000001, POINT(1.5, -2)), (2, '', 0, 0, b'0', b'0', 'x', 1901, "
        f"'2026-02-28', '{second}', '1970-01-02', '', 0, NULL), (3, " + ", ".join(["NULL"] * 13) + ")"
    )
    registry_url = "schema.registry.url"
    avro = {f"{side}.converter": "AvroConverter" for side in ("key", "value")}
    avro |= {f"{side}.converter.{registry_url}": registry.url for side in ("key", "value")}
    asyncio.run(world.send(asyncio.run(world.records(**config)), registry=registry.url))
    code, tables, error = world.verify(capsys, **config, **avro)
    assert (code, error) == (0, ""), f"{error} {json.dumps(tables)}"
    assert {table: report["rows"]["topic"] for table, report in tables.items()} == {
        "t": ROWS,
        "pair": 500,
        "loose": 4,
        "types": 3,
    }
    world.sql("UPDATE types SET amount = amount + 0.0000000001, moment = NULL WHERE id = 1")
    code, tables, _ = world.verify(capsys, "--tables", r".*\.types", **config, **avro)
    assert (code, tables["types"]["different"]) == (1, 1)
    (row,) = tables["types"]["differences"]
    assert set(row["source"]) == {"amount", "moment"}


def test_the_command_shows_both_sides_of_rows_that_differ(
    world: VerifyWorld, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_the_connector_is_waited_for_where_it_can_be_asked(world: VerifyWorld) -> None:
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


def test_what_cannot_be_done(world: VerifyWorld, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_rows_that_a_transform_refuses_are_left_out(world: VerifyWorld) -> None:
    """With ``errors.tolerance=all`` the connector runs on without them."""
    transforms = {
        "transforms": "unwrap,cast",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.cast.spec": "name:int32",
        "errors.tolerance": "all",
    }
    world.sql("UPDATE t SET name = id")
    asyncio.run(world.send(asyncio.run(world.records(**transforms, **{"table.include.list": f"{world.database}.t"}))))
    world.sql("UPDATE t SET name = 'seven' WHERE id = 7")
    request = VerificationRequest(includes=lambda name: name.endswith(".t"), settle_s=0.2, folder=str(world.folder))
    verification = build_verification({**world.config, **transforms}, {"bootstrap.servers": world.kafka}, request)
    (report,) = asyncio.run(verification.run())
    assert (report.extra, report.missing, report.different) == (1, 0, 0)  # the topic still has what it was
    (note,) = [note for note in verification.notes if "left out" in note]
    assert note.startswith(f"1 rows of {world.database}.t can't be read or sent, and were left out. The first: ")
