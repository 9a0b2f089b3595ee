"""The access log of the demo: the rows that its rules make are those that it says, also through a rotation."""

import random
from pathlib import Path

from compose.demo.requests import IDENTITY, RULES, AccessLog
from connectors.logs.connector import LogsConnector
from connectors.testing import Run


async def test_rows_of_the_log_are_those_that_it_says(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / "access.log")
    chance = random.Random(1)
    for _ in range(120):
        log.add(chance, chance.randrange(1, 9))
    config = {
        "file": str(log.path),
        "topic.prefix": "web",
        "rotation.tracking": "true",
        "rules": RULES,
        "row.id.column": IDENTITY,
        "row.timestamp.column": "time",
    }
    async with Run(LogsConnector, config) as run:
        records = await run.read(120 + 2)
        log.rotate()
        for _ in range(40):
            log.add(chance, 3)
        records += await run.read(40 + 1)
    rows = [record.value for record in records if record.topic == "web.requests"]
    assert [{name: value for name, value in row.items() if name != IDENTITY} for row in rows] == log.rows()
    assert len({row[IDENTITY] for row in rows}) == len(rows)
    assert [record.value["line"] for record in records if record.topic == "web.unknown_table"] == [
        "signal process started"
    ] * log.counts["others"]
    assert log.counts == {"requests": 160, "health checks": 16, "others": 3}
