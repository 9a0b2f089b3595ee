"""Drivers with a view that are killed again and again: each batch gives the same output, and it is DuckDB's answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.integration.spark_jobs.views.killed_driver import BEGINS, KEPT, READY, WRITTEN, history_of
from tests.integration.spark_jobs.views.test_view_histories import Target, in_order

if TYPE_CHECKING:
    from pathlib import Path

BATCHES = 12
#: Seconds for the whole of a driver's life.
DEADLINE = 300


class Driver:
    """One life of the driver."""

    def __init__(self, folder: Path, seed: int) -> None:
        module = "tests.integration.spark_jobs.views.killed_driver"
        self._log = (folder / "log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder), str(seed), str(BATCHES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    def run(self, until: str, count: int, delay: float | None) -> bool:
        """Let it run until it has said a word that often, and some seconds longer; None: no longer. False: it has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word = line.strip()
            if word not in (READY, BEGINS, WRITTEN, KEPT):
                continue
            count -= word == until
            if count == 0 and delay is None:
                return True
            print(file=self.process.stdin, flush=True)
            if count == 0 and delay is not None:
                return not self._ends_within(delay)
        assert self.process.wait(DEADLINE) == 0
        return False

    def _ends_within(self, seconds: float) -> bool:
        try:
            return self.process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False

    def kill(self) -> None:
        """Kill it with its JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE)
        self._log.close()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_driver_that_is_killed_at_any_moment_gives_the_same_changes(tmp_path: Path, seed: int) -> None:
    source = Random(seed)
    # Before the batch; between the sink's write and the state's; after the state's; in a batch, in the state's commit.
    kills = [(BEGINS, None), (WRITTEN, None), (KEPT, None), (BEGINS, 1.5), (WRITTEN, 0.03), (BEGINS, 0.4)]
    source.shuffle(kills)
    done = 0
    for word, most in kills:
        driver = Driver(tmp_path, seed)
        try:
            alive = driver.run(word, source.randint(1, 2), None if most is None else source.uniform(0, most))
        finally:
            driver.kill()
        done += alive
    driver = Driver(tmp_path, seed)
    try:
        assert not driver.run(KEPT, BATCHES + 1, None)
    finally:
        driver.kill()
    assert done >= len(kills) - 1, "the driver was through before it was killed"

    query, changes = history_of(seed, BATCHES)
    target = Target(query.key, images=False)
    for number, (history, _) in enumerate(changes):
        assert (tmp_path / f"{number}.done").exists()
        attempts = [json.loads(path.read_text("utf-8")) for path in sorted(tmp_path.glob(f"{number}.*.json"))]
        assert attempts
        assert all(sorted(map(repr, rows)) == sorted(map(repr, attempts[0])) for rows in attempts), (
            f"batch {number} gives another output when it is repeated"
        )
        target.write(attempts[0])
        assert in_order(list(target.rows.values())) == in_order(history.answer(query)), f"batch {number}, {query.spark}"
