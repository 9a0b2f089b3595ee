"""Workers and Kafka that are killed while a log grows, and is renamed or copied and truncated: every line is compared."""

import json
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compose.local.kafka import KafkaCluster
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import QUICK
from worker.fetch.java import FAST_START
from worker.kafka.whole_topics import read_topic

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


def _config(path: Path, prefix: str) -> dict[str, str]:
    return {
        "connector.class": "logs",
        "file": str(path),
        "topic.prefix": prefix,
        "rules": _RULES,
        "batch.size": "50",
        "rotation.tracking": "true",
        "rotation.wait.ms": "100",
        "errors.retry.delay.max.ms": "500",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }


@pytest.mark.proves("from logs", "at-least-once", killed=["worker", "task host"])
@pytest.mark.proves("from logs", "exactly-once", killed=["worker", "task host"])
def test_a_rotated_log_becomes_rows(pair: Cluster, unique: Callable[[str], str], tmp_path: Path) -> None:
    name, prefix, path = unique("l") + "x", unique("t"), tmp_path / "app.log"
    config = _config(path, prefix)

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


@pytest.fixture
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker that this test may harm."""
    with KafkaCluster(tmp_path_factory.mktemp("outage"), port=None, properties=QUICK, jvm_options=FAST_START) as kafka:
        yield kafka


@pytest.mark.slow
@pytest.mark.proves("from logs", "at-least-once", killed=["worker", "Kafka"])
@pytest.mark.proves("from logs", "exactly-once", killed=["worker", "Kafka"])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_log_that_is_copied_and_truncated_while_kafka_is_killed(
    own_kafka: KafkaCluster, unique: Callable[[str], str], tmp_path: Path, exactly_once: bool
) -> None:
    name, prefix, path = unique("l") + "x", unique("t"), tmp_path / "logs" / "app.log"
    path.parent.mkdir()
    cluster = Cluster(tmp_path, own_kafka.bootstrap, f"g-{secrets.token_hex(4)}", exactly_once=exactly_once)

    def values(table: str) -> list[dict[str, object]]:
        records = read_topic(own_kafka.bootstrap, f"{prefix}.{table}", committed=exactly_once)
        return [json.loads(record.value or b"null") for record in records]

    expected = [(number, part) for number in range(_LINES) if number % 100 for part in "ab"]
    unknown = [_line(number) for number in range(0, _LINES, 100)]
    path.touch()
    try:
        cluster.start(2)
        cluster.running[0].create(name, _config(path, prefix))
        with closing(path.open("a", encoding="utf-8", buffering=1)) as file:
            for begin in range(0, _LINES, _STEP):
                for number in range(begin, begin + _STEP):
                    file.write(_line(number) + "\n")
                cluster.until(lambda: len(values("parts")) > 2 * begin, f"lines behind {begin} were read")  # noqa: B023
                if begin == 0:
                    cluster.until(
                        lambda: cluster.ask("GET", f"/connectors/{name}/offsets")[1]["offsets"], "it is saved"
                    )
                    own_kafka.broker(0).kill()
                if begin < 2 * _STEP:
                    # What was not read yet is found in the copy.
                    shutil.copyfile(path, path.with_name(f"app.log.{begin}"))
                    path.write_text("")
                if begin == 0:
                    own_kafka.broker(0).start()
                elif begin == _STEP:
                    cluster.worker(cluster.tasks(name)[0].worker).kill()
                    cluster.repair()
        cluster.until(lambda: len({row["log_id"] for row in values("parts")}) >= len(expected), "every line was read")
        cluster.until(
            lambda: len({row["log_id"] for row in values("unknown_table")}) >= len(unknown), "so were the others"
        )
        rows = [(row["number"], row["part"]) for row in values("parts")]
        lines = [row["line"] for row in values("unknown_table")]
        identities = {row["log_id"] for row in values("parts")}
    finally:
        cluster.close()
    assert list(dict.fromkeys(rows)) == expected
    assert list(dict.fromkeys(lines)) == unknown
    assert not exactly_once or (rows == expected and lines == unknown)
    assert len(identities) == len(expected)
