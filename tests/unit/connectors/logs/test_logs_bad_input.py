"""Bad input is accounted for line by line: as a row, as a row of unknown_table, or as a bad record."""

import json
import random
from pathlib import Path

from connectors.api import BadRecord, SourceRecord
from connectors.logs.connector import LogsConnector
from connectors.testing import Run

RULES = r"""
mostCharacters: 100000
tables:
  - name: explosive
    groups:
      - name: explosive
        steps:
          - regexExtract: {pattern: '^(?P<all>(?:a+)+)$'}
          - saveAs: {columns: [{name: all}]}
  - name: documents
    groups:
      - name: numbers
        steps:
          - json: {}
          - saveAs: {columns: [{name: id, type: int}, {name: name}]}
"""


async def read_all(path: Path, count: int) -> tuple[list[SourceRecord], list[BadRecord]]:
    """Read until ``count`` lines became something."""
    records: list[SourceRecord] = []
    bad: list[BadRecord] = []
    config = {"file": str(path), "topic.prefix": "p", "rules": RULES}
    async with Run(LogsConnector, config) as run:
        while len(records) + len(bad) < count:
            step = await run.take(30)
            assert step is not None, f"{len(records)} records and {len(bad)} bad ones of {count}"
            records += step[1].records
            bad += step[1].bad
    return records, bad


async def test_every_line_becomes_something(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    lines = [
        b"a" * 50_000,
        b"a" * 50_000 + b"b",
        b'{"id": 1, "name": "nul \\u0000 and \x7f"}',
        b'{"id": 1, "name": "raw \x00 nul"}',
        b'{"id": "two", "name": "a field that changes its type"}',
        b'{"id": 3, "name": {"first": "Ann"}}',
        b'{"id": 4}',
        b'{"id": 5, "name": "broken \xff\xfe"}',
        b"[" * 100_000,
        b"x" * 10_000_000,
        b"",
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    records, bad = await read_all(path, len(lines))
    rows = {
        table: [record.value for record in records if record.topic == f"p.{table}"]
        for table in ("explosive", "documents", "unknown_table")
    }
    assert [len(row["all"]) for row in rows["explosive"]] == [50_000]
    assert [(row["id"], row["name"]) for row in rows["documents"]] == [
        (1, "nul \0 and \x7f"),
        (3, '{"first":"Ann"}'),
        (5, "broken \ufffd\ufffd"),
    ]
    reasons = [(row["line"][:20], row["failures"][-1]["reason"]) for row in rows["unknown_table"]]
    assert [line for line, _ in reasons] == [
        "a" * 20,
        '{"id": 1, "name": "r',
        '{"id": "two", "name"',
        '{"id": 4}',
        "[" * 20,
        "",
    ]
    assert reasons[2][1] == "column id: 'two' is no whole number"
    assert reasons[3][1] == "column name: there is no field 'name'; the record has id"
    (too_long,) = bad
    assert "a line is longer than 1048576 bytes" in str(too_long.error)


async def test_random_bytes_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(19)
    documents = [json.dumps({"id": number, "name": "x" * chance.randrange(30)}).encode() for number in range(300)]
    lines = []
    for document in documents:
        damaged = bytearray(document)
        for _ in range(chance.randrange(4)):
            damaged[chance.randrange(len(damaged))] = chance.choice(
                [byte for byte in range(256) if byte not in b"\r\n"]
            )
        lines.append(bytes(damaged))
    path = tmp_path / "app.log"
    path.write_bytes(b"\n".join(lines) + b"\n")
    records, bad = await read_all(path, len(lines))
    assert not bad
    positions = [int(record.value["log_id"].rsplit(":", 2)[1]) for record in records]
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    assert positions == starts


async def test_a_line_behind_a_bad_one_has_its_own_position(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    lines = [b"good", b"bad \xff", b"bad \xfe", b"next", b"last", b"bad \xff"]
    path.write_bytes(b"\n".join(lines) + b"\n")
    config = {"file": str(path), "topic.prefix": "p", "rules": RULES, "file.encoding.errors": "report"}
    records: list[SourceRecord] = []
    async with Run(LogsConnector, config) as run:
        while len(records) < 3:
            step = await run.take(30)
            assert step is not None
            records += step[1].records
    assert [(record.value["line"], record.value["position"]) for record in records] == [
        ("good", 0),
        ("next", 17),
        ("last", 22),
    ]
    # A restart from any of these offsets gives the lines behind it the same identity.
    assert [record.value["log_id"].split(":")[-2] for record in records] == ["0", "17", "22"]


async def test_a_restart_within_a_line_that_is_too_long_reports_it_once(tmp_path: Path) -> None:
    """Heartbeats save the position, here while the end of the line has not come."""
    path = tmp_path / "app.log"
    path.write_bytes(b"good\n" + b"x" * 500)
    config = {"file": str(path), "topic.prefix": "p", "rules": RULES, "line.max.bytes": "64"}
    beats = {"heartbeat.interval.ms": "20", "poll.interval.max.ms": "10"}
    async with Run(LogsConnector, config | beats) as run:
        for _ in range(20):
            await run.take(30)
    offsets = run.offsets
    with path.open("ab") as file:
        file.write(b"x" * 10 + b"\nnext\n")
    lines: list[str] = []
    bad: list[BadRecord] = []
    async with Run(LogsConnector, config, offsets=offsets) as run:
        while "next" not in lines:
            step = await run.take(30)
            assert step is not None
            lines += [record.value["line"] for record in step[1].records]
            bad += step[1].bad
    assert lines == ["next"]
    assert [(len(item.raw), item.source_offset["position"]) for item in bad] == [(64, 516)]
