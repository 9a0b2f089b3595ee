"""Workers that are killed while they read a file that grows."""

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster
from worker.kafka.whole_topics import read_topic

_LINES = 6000
#: Lines that are in the file before the next victim dies.
_STEP = 2000


@pytest.mark.proves("from file", "at-least-once", killed=["worker", "task host"])
@pytest.mark.proves("from file", "exactly-once", killed=["worker", "task host"])
def test_a_growing_file_is_read_to_its_end(pair: Cluster, unique: Callable[[str], str], tmp_path: Path) -> None:
    name, topic, path = unique("f") + "x", unique("t"), tmp_path / "lines.txt"
    config = {
        "connector.class": "FileStreamSource",
        "file": str(path),
        "topic": topic,
        "batch.size": "50",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }

    def lines() -> list[bytes | None]:
        return [record.value for record in read_topic(pair.bootstrap, topic, committed=pair.exactly_once)]

    with closing(path.open("w", encoding="utf-8", buffering=1)) as file:
        pair.running[0].create(name, config)
        try:
            for begin in range(0, _LINES, _STEP):
                for number in range(begin, begin + _STEP):
                    file.write(f"line {number}\n")
                pair.until(lambda: len(lines()) > begin + 50, f"lines behind {begin} were read")  # noqa: B023
                victim = pair.worker(pair.tasks(name)[0].worker)
                if begin == 0:
                    victim.kill()
                    pair.repair()
                elif begin == _STEP:
                    for host in victim.hosts():
                        os.kill(host, signal.SIGKILL)
            expected = [f"line {number}".encode() for number in range(_LINES)]
            pair.until(lambda: set(expected) <= set(lines()), "every line was read")
        finally:
            pair.ask("DELETE", f"/connectors/{name}")
    delivered = lines()
    assert list(dict.fromkeys(delivered)) == expected
    assert not pair.exactly_once or delivered == expected
