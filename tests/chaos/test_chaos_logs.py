"""Workers that are killed while they make rows of a log that grows and is rotated."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from compose.local.topics import read_topic
from tests.chaos.cluster import Cluster

_LINES = 6000
#: Lines of each file; between two files the next victim dies.
_STEP = 2000
#: Each line makes two rows, so that a kill may happen between them; every hundredth matches no group.
_RULES = r"""
tables:
  - name: parts
    groups:
      - name: parts
        steps:
          - regexExtract: {pattern: '^line (?P<number>[0-9]+) (?P<parts>\[.*\])$'}
          - flattenJsonArray: {field: parts}
          - saveAs: {columns: [{name: number, type: long}, {name: part, field: parts}]}
"""


def _line(number: int) -> str:
    return f'line {number} ["a", "b"]' if number % 100 else f"other {number}"


@pytest.mark.proves("from logs", "at-least-once", killed=["worker", "task host"])
@pytest.mark.proves("from logs", "exactly-once", killed=["worker", "task host"])
def test_a_rotated_log_becomes_rows(pair: Cluster, unique: Callable[[str], str], tmp_path: Path) -> None:
    name, prefix, path = unique("l") + "x", unique("t"), tmp_path / "app.log"
    config = {
        "connector.class": "logs",
        "file": str(path),
        "topic.prefix": prefix,
        "rules": _RULES,
        "batch.size": "50",
        "rotation.tracking": "true",
        "rotation.wait.ms": "100",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }

    def values(table: str) -> list[dict[str, object]]:
        records = read_topic(pair.bootstrap, f"{prefix}.{table}", committed=pair.exactly_once)
        return [json.loads(record.value or b"null") for record in records]

    path.touch()
    pair.running[0].create(name, config)
    try:
        for begin in range(0, _LINES, _STEP):
            if begin:
                path.rename(tmp_path / f"app.log.{begin}")
            with closing(path.open("w", encoding="utf-8", buffering=1)) as file:
                for number in range(begin, begin + _STEP):
                    file.write(_line(number) + "\n")
            pair.until(lambda: len(values("parts")) > 2 * begin, f"lines behind {begin} were read")  # noqa: B023
            victim = pair.worker(pair.tasks(name)[0].worker)
            if begin == 0:
                # Before its first position is saved, a source does not know a file that is renamed (docs/connectors/file.md).
                pair.until(lambda: pair.ask("GET", f"/connectors/{name}/offsets")[1]["offsets"], "a position is saved")
                victim.kill()
                pair.repair()
            elif begin == _STEP:
                for host in victim.hosts():
                    os.kill(host, signal.SIGKILL)
        expected = [(number, part) for number in range(_LINES) if number % 100 for part in "ab"]
        unknown = [_line(number) for number in range(0, _LINES, 100)]
        pair.until(lambda: len({row["log_id"] for row in values("parts")}) >= len(expected), "every line was read")
        pair.until(
            lambda: len({row["log_id"] for row in values("unknown_table")}) >= len(unknown), "so were the others"
        )
    finally:
        pair.ask("DELETE", f"/connectors/{name}")
    rows = [(row["number"], row["part"]) for row in values("parts")]
    lines = [row["line"] for row in values("unknown_table")]
    assert list(dict.fromkeys(rows)) == expected
    assert list(dict.fromkeys(lines)) == unknown
    assert not pair.exactly_once or (rows == expected and lines == unknown)
    assert len({row["log_id"] for row in values("parts")}) == len(expected)
