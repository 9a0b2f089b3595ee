"""The logs connector in memory: forms, identities, unknown lines, metrics, options."""

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.api import SameAs, SourceRecord
from connectors.errors import ConfigInvalid
from connectors.logs.config import CONFIG
from connectors.logs.connector import LogsConnector
from connectors.logs.inputs.kafka_records import read_record
from connectors.logs.rules.records import LineOrigin
from connectors.schema import STRING
from connectors.testing import Run

RULES = """
tables:
  - name: requests
    version: 2
    groups:
      - name: access
        steps:
          - drop: {reason: health check}
            when: {contains: /health}
          - split: {by: ' ', names: [time, path, took]}
          - saveAs:
              columns:
                - {name: time, type: datetime}
                - {name: path}
                - {name: took, type: decimal, scale: 1, optional: true}
"""
LINES = "2026-11-26T17:29:00.5Z /cart 1.5\n2026-11-26T17:29:01Z /health 1\nnonsense\n2026-11-26T17:29:02Z /pay \n"


def config_of(folder: Path, **options: str) -> dict[str, str]:
    path = folder / "app.log"
    if not path.exists():
        path.write_text(LINES)
    named = {name.replace("_", "."): value for name, value in options.items()}
    return {"file": str(path), "topic.prefix": "shop", "rules": RULES, "host": "web-1", **named}


async def read(config: dict[str, str], count: int = 3) -> list[SourceRecord]:
    async with Run(LogsConnector, config) as run:
        return await run.read(count)


async def test_plain_rows(tmp_path: Path) -> None:
    config = config_of(tmp_path, row_timestamp_column="time")
    async with Run(LogsConnector, config) as run:
        first, unknown, last = await run.read(3)
        series = {
            (name, *sorted(dict(labels).values())): value
            for (name, labels), value in run.metrics.series.items()
            if value
        }
    assert first.topic == "shop.requests"
    assert first.key == {"log_id": first.value["log_id"]}
    assert {name: value for name, value in first.value.items() if name != "log_id"} | {
        "took": str(first.value["took"])
    } == {
        "time": 1795714140500,
        "path": "/cart",
        "took": "1.5",
    }
    assert first.value_schema is not None
    assert (first.value_schema.name, first.value_schema.version) == ("shop.requests.Value", 2)
    assert first.timestamp == 1795714140500
    assert last.value["took"] is None
    assert unknown.topic == "shop.unknown_table"
    assert (unknown.value["line"], unknown.value["host"], unknown.value["position"]) == ("nonsense", "web-1", 64)
    assert unknown.value["failures"] == [
        {
            "table": "requests",
            "group": "access",
            "step": 2,
            "operator": "split",
            "reason": "there are 1 parts for 3 names",
        }
    ]
    assert series["logs_lines_total", "web-1"] == 4
    assert series["logs_rows_total", "requests", "web-1"] == 2
    assert series["logs_rows_total", "unknown_table", "web-1"] == 1
    assert series["logs_unknown_lines_total", "web-1"] == 1
    assert series["logs_dropped_records_total", "health check", "requests"] == 1
    assert series["logs_delivered_rows_total", "requests", "web-1"] == 2
    assert series["logs_delivery_delay_seconds_total", "requests", "web-1"] > 0


async def test_identities_are_positions(tmp_path: Path) -> None:
    records = await read(config_of(tmp_path))
    path = str(tmp_path / "app.log")
    parts = [record.value["log_id"].removeprefix(f"{path}:").split(":") for record in records]
    assert [(position, number) for _, position, number in parts] == [("0", "0"), ("64", "0"), ("73", "0")]


async def test_change_events(tmp_path: Path) -> None:
    first, *_ = await read(config_of(tmp_path, output="debezium"))
    event = first.value
    assert (event["op"], event["before"], event["after"]["path"]) == ("c", None, "/cart")
    source = event["source"]
    assert (source["connector"], source["table"], source["host"], source["position"]) == (
        "logs",
        "requests",
        "web-1",
        0,
    )
    assert source["ums_id"] == 0


async def test_ums_messages(tmp_path: Path) -> None:
    first, unknown, _ = await read(config_of(tmp_path, output="ums"))
    assert first.key == "data_increment_data.logs.shop.shop.requests.2.0.0"
    fields = [(field["name"], field["type"]) for field in first.value["schema"]["fields"]]
    assert fields[4:] == [("time", "datetime"), ("path", "string"), ("took", "decimal"), ("log_id", "string")]
    (row,) = first.value["payload"]
    assert row["tuple"][4:7] == ["2026-11-26 17:29:00.500000", "/cart", "1.5"]
    assert json.loads(unknown.value["payload"][0]["tuple"][8])[0]["operator"] == "split"


async def test_keys_by_template(tmp_path: Path) -> None:
    first, unknown, last = await read(config_of(tmp_path, row_key_template="{{{@host}}}{path}"))
    assert (first.key, last.key) == ("{web-1}/cart", "{web-1}/pay")
    assert first.key_schema == STRING
    assert unknown.key == {"log_id": unknown.value["log_id"]}, "unknown_table has no such column"
    ums, *_ = await read(config_of(tmp_path, row_key_template="{path}", output="ums"))
    assert ums.key == "data_increment_data.logs.shop.shop.requests.2.0.0"
    assert ums.partition == SameAs("/cart")


@pytest.mark.parametrize(
    ("output", "time"), [("plain", 1795714140500), ("debezium", 1795714140500), ("ums", 1795714140500)]
)
async def test_the_time_of_an_event_is_its_records_timestamp(tmp_path: Path, output: str, time: int) -> None:
    first, *_ = await read(config_of(tmp_path, output=output, row_timestamp_column="time"))
    assert first.timestamp == time


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": ""}, "Give rules, a file with them in rules.file"),
        ({"rules": "tables: []"}, "there is no table"),
        ({"rules_file": "/nowhere/rules.yml"}, "rules and rules.file are set"),
        ({"rules_name": "shop"}, "rules and rules.name are set"),
        ({"rules_version": "1"}, "rules.name, which is not set"),
        ({"rules": "", "rules_file": "/nowhere/rules.yml"}, "The file can't be read"),
        ({"row_id_column": "path"}, "Table requests has a column of this name"),
        ({"row_key_template": "{user}"}, "No table has all of its columns; tables: requests"),
        ({"row_key_template": "{path"}, "has a single '{'"),
        ({"file": ""}, "Give file or directory with input=file"),
        ({"directory": "/var/log"}, "both are set"),
        ({"input": "kafka"}, "It is needed with input=kafka"),
        ({"input": "kafka", "kafka_security_protocol": "SASL_SSL"}, "Give kafka.sasl.username and kafka.sasl.password"),
        ({"rules": RULES + "golden: [{line: x, rows: {requests: []}}]"}, "1 of 1 golden lines make other rows"),
    ],
)
async def test_configurations_that_can_not_work(tmp_path: Path, options: dict[str, str], message: str) -> None:
    problems = await LogsConnector.validate(CONFIG.parse(config_of(tmp_path, **options)))
    assert any(message in problem.message for problem in problems), problems


async def test_rules_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES)
    config = {name: value for name, value in config_of(tmp_path).items() if name != "rules"}
    first, *_ = await read({**config, "rules.file": str(tmp_path / "rules.yml")})
    assert first.value["path"] == "/cart"


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        (({"filename": "a"}, {"position": -1}), "a number 'position'"),
        (({"filename": "a"}, {"position": 1, "rows": "2"}), "a number 'rows'"),
        (({"topic": "a"}, {"position": 1}), "must have the keys filename"),
    ],
)
async def test_offsets_that_can_not_be_resumed_from(tmp_path: Path, offsets: Any, message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        await LogsConnector.alter_offsets(CONFIG.parse(config_of(tmp_path)), [offsets])


@pytest.mark.parametrize(
    ("value", "line", "host", "timestamp"),
    [
        (b"plain", "plain", "d", 5),
        (b'{"a": 1}', '{"a": 1}', "d", 5),
        (b'{"message": "m"}', '{"message": "m"}', "d", 5),
        (b'{"message": "m", "@timestamp": "bad", "agent": {"hostname": "h"}}', "m", "h", 5),
        (b'{"message": "m", "@timestamp": "2026-11-26T17:29:00Z", "beat": {"hostname": "h"}}', "m", "h", 1795714140000),
        (b'{"log": "l", "@timestamp": 1795714140000}', "l", "d", 1795714140000),
        (b'{"log": {"file": 1}}', '{"log": {"file": 1}}', "d", 5),
        (b'{"headers": {}, "body": "b"}', "b", "d", 5),
        (b"{not json", "{not json", "d", 5),
        (b"\x00\x08body", "body", "d", 5),
        (b"\x04\x08host\x02h\x12timestamp\x1a1795714140500\x00\x08body", "body", "h", 1795714140500),
        (b"\x01\x10\x08host\x02h\x00\x08body", "body", "h", 5),  # a block with its size
        (b"\x04\x08host", "\x04\x08host", "d", 5),
        (b"\x00\x08bodies", "\x00\x08bodies", "d", 5),
        (b"\x1b[31mred", "\x1b[31mred", "d", 5),
        (b"", "", "d", 5),
    ],
)
def test_records_of_shippers(value: bytes, line: str, host: str, timestamp: int) -> None:
    shipped = read_record(value, LineOrigin("d", "t/0", 7, 5), recognise=True)
    assert (shipped.line, shipped.origin.host, shipped.origin.timestamp) == (line, host, timestamp)
