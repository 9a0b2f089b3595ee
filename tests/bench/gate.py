"""Whether a row costs more CPU than in the commit before: stages of both, in turns in one run; a minute.

Stages are measured in processes of their own, on the same bytes, without a server: from binlog events to records
(``decode``), and to batches that a Kafka client would send (``whole``); from rows of a Scylla log and mutations of a Cassandra
log to keys and values for Kafka (``bytes``). A stage has become slower if it takes 10 % more CPU,
both by the median of the pairs of turns and by the best turns, in three measurements with new processes: other load on the
machine does not hit one side alone so often. Without history, or where nothing that runs has changed, there is nothing to
compare, which counts as passed.
"""

from __future__ import annotations

import argparse
import io
import os
import pickle
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.bench._binlog_events import binlog
from tests.bench._common import environment
from tests.bench._log_rows import CASSANDRA_COLUMNS, SCYLLA_COLUMNS, cassandra_log, scylla_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
#: What a worker runs.
_PRODUCT: Final = ("worker", "connectors", "offsets")
#: By name: table, rows, rows of a transaction, whether they are updates.
_SHAPES: Final = {
    "narrow": ("narrow", 6000, 100, False),
    "updates": ("narrow", 4000, 100, True),
    "wide": ("wide", 1500, 100, False),
    "single": ("narrow", 2500, 1, False),
}
_LOGS: Final = ("scylla", "raw", "update", "debezium")
#: Rows of a Scylla log, and mutations of a Cassandra log.
_LOG_ROWS: Final = 6000
#: By the program that measures them.
_PROGRAMS: Final = {
    "_gate_stages.py": tuple(f"{kind} {name}" for name in _SHAPES for kind in ("decode", "whole")),
    "_gate_logs.py": tuple(f"bytes {name}" for name in _LOGS),
}
_STAGES: Final = tuple(stage for stages in _PROGRAMS.values() for stage in stages)
_LABELS: Final = {
    "narrow": "narrow inserts, 100 rows a transaction",
    "updates": "narrow updates, 100 rows a transaction",
    "wide": "wide inserts, 100 rows a transaction",
    "single": "narrow inserts, 1 row a transaction",
    "scylla": "Scylla, legacy format, JSON",
    "raw": "Cassandra, partition-update-raw, Avro",
    "update": "Cassandra, partition-update, Avro",
    "debezium": "Cassandra, debezium, JSON",
}
#: How often a regression must be measured before it counts.
_TIMES: Final = 3
#: Turns of each side that a stage gets also where time is short.
_LEAST_TURNS: Final = 5


class Unable(Exception):
    """A revision can't be measured; the text says why."""


class Costs(NamedTuple):
    """CPU microseconds per row of both sides, turn by turn."""

    before: Sequence[float]
    now: Sequence[float]

    @property
    def ratio(self) -> float:
        """How many times as much a row costs now: the lower of what the pairs and the best turns say."""
        pairs = statistics.median(now / before for before, now in zip(self.before, self.now, strict=True))
        return min(pairs, min(self.now) / min(self.before))


class Side:
    """A process that measures the code of one folder.

    Args:
        tree: the folder.
        program: the file that measures, in this folder.
        events: what it measures with.
        failure: raised with a message if the code does not run the stages.
    """

    def __init__(self, tree: Path, program: str, events: Path, failure: type[Exception]) -> None:
        """Blocks for some seconds."""
        self._failure = failure
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(program)), str(events)],
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        folder = self._answer()
        if Path(folder).resolve() != tree.resolve():
            self.close()
            raise failure(f"the code of {folder} was measured instead of that in {tree}")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline().strip()
        if not line:
            said = self._process.stderr.read().strip().splitlines()
            raise self._failure(said[-1] if said else "the process ended")
        return line

    def measure(self, stage: str) -> float:
        """CPU microseconds per row of one turn."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{stage}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def compare(
    before: Path, now: Path, events: Mapping[str, Path], stages: Sequence[str], turns: int, until: float
) -> dict[str, Costs]:
    """Measure both in turns, in new processes; with few turns from the time ``until`` on.

    Args:
        before: the folder with the code to compare with.
        now: the folder with that to be judged.
        events: by program: what it measures with.
        stages: all but those that the code of ``before`` does not run are in the result.
        turns: of each side.
        until: ``time.monotonic()``.

    Raises:
        RuntimeError: the code of ``now`` does not run these stages.
    """
    costs: dict[str, Costs] = {}
    for program, all_of_it in _PROGRAMS.items():
        chosen = [stage for stage in stages if stage in all_of_it]
        try:
            costs |= _compare(before, now, program, events[program], chosen, turns, until) if chosen else {}
        except Unable as error:
            print(f"not compared, for the revision does not run the stages: {', '.join(chosen)}: {error}")
    return costs


def _compare(
    before: Path, now: Path, program: str, events: Path, stages: Sequence[str], turns: int, until: float
) -> dict[str, Costs]:
    """As ``compare``, by one program.

    Raises:
        Unable: the code of ``before`` does not run these stages.
        RuntimeError: that of ``now`` does not.
    """
    with ExitStack() as stack:
        sides = []
        for tree, failure in ((before, Unable), (now, RuntimeError)):
            sides.append(Side(tree, program, events, failure))
            stack.callback(sides[-1].close)
        costs: dict[str, Costs] = {}
        for stage in stages:
            values: tuple[list[float], list[float]] = ([], [])
            for turn in range(turns):
                if turn >= _LEAST_TURNS and time.monotonic() > until:
                    break
                for side in (0, 1) if turn % 2 else (1, 0):
                    values[side].append(sides[side].measure(stage))
            costs[stage] = Costs(*values)
        return costs


def slower(
    measure: Callable[[Sequence[str]], Mapping[str, Costs]], *, limit: float, until: float
) -> tuple[dict[str, float], list[str]]:
    """The stages that got slower, with their ratios, and those of which no time was left to be sure.

    Args:
        measure: measures these stages.
        limit: percent that a row may cost more.
        until: ``time.monotonic()`` after which no further measurement begins.
    """
    suspects: dict[str, float] = dict.fromkeys(_STAGES, float("inf"))
    for number in range(_TIMES):
        if number and time.monotonic() > until:
            return {}, list(suspects)
        measured = measure(list(suspects))
        print(f"\n{'CPU us/row, median (best)':52}{'before':>16}{'now':>16}{'ratio':>8}")
        for stage, costs in measured.items():
            kind, _, name = stage.partition(" ")
            shown = [f"{statistics.median(values):.2f} ({min(values):.2f})" for values in costs]
            print(f"{kind + ': ' + _LABELS[name]:52}{shown[0]:>16}{shown[1]:>16}{costs.ratio:>8.2f}", flush=True)
        suspects = {
            stage: min(suspects[stage], costs.ratio)
            for stage, costs in measured.items()
            if costs.ratio > 1 + limit / 100
        }
        if not suspects:
            break
    return suspects, []


def logs() -> dict[str, Any]:
    """The inputs of ``_gate_logs.py``: plain values."""
    data, spans = cassandra_log(_LOG_ROWS)
    return {
        "scylla": (SCYLLA_COLUMNS, scylla_rows(_LOG_ROWS)),
        "cassandra": (CASSANDRA_COLUMNS, data, spans),
    }


def _git(*arguments: str) -> bytes | None:
    """Return git's answer; None if it has none."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _extract(revision: str, folder: Path) -> bool:
    """Put a revision's code into ``folder``; False if there is no such revision."""
    archive = _git("archive", "--format=tar", revision, *_PRODUCT)
    if archive is None:
        return False
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return True


def main(argv: list[str]) -> int:
    """Compare; 1 if a stage has become slower."""
    parser = argparse.ArgumentParser(prog="millrace bench gate", description=__doc__)
    parser.add_argument("--against", default="HEAD~1", help="the revision to compare with (HEAD~1)")
    parser.add_argument("--turns", type=int, default=7, help="turns of each side in a measurement")
    parser.add_argument("--limit", type=float, default=10.0, help="percent that a row may cost more")
    parser.add_argument("--seconds", type=float, default=90.0, help="no further measurement begins after so many")
    options = parser.parse_args(argv)
    until = time.monotonic() + options.seconds
    print(environment())
    if _git("rev-parse", "--verify", "--quiet", f"{options.against}^{{commit}}") is None:
        print(f"not compared: there is no git history with {options.against}")
        return 0
    if _git("diff", "--quiet", options.against, "--", *_PRODUCT) is not None:
        print(f"not compared: what runs is the same as in {options.against}")
        return 0
    with tempfile.TemporaryDirectory(prefix="millrace-gate-") as name:
        folder = Path(name)
        before = folder / "before"
        events = {program: folder / f"{program}.pickle" for program in _PROGRAMS}
        if not _extract(options.against, before):
            print(f"not compared: git does not give the files of {options.against}")
            return 0
        shapes = {
            shape: (binlog(table, rows, size, update=update), rows)
            for shape, (table, rows, size, update) in _SHAPES.items()
        }
        for path, content in zip(events.values(), (shapes, logs()), strict=True):
            path.write_bytes(pickle.dumps(content))
        regressions, unsure = slower(
            lambda stages: compare(before, ROOT, events, stages, options.turns, until),
            limit=options.limit,
            until=until,
        )
    if unsure:
        print(f"perhaps slower than {options.against}, but no time was left to be sure: {', '.join(unsure)}")
    for stage, ratio in regressions.items():
        print(f"slower than {options.against} by {(ratio - 1) * 100:.0f} % in {_TIMES} measurements: {stage}")
    return 1 if regressions else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
