"""A job as a process of its own, as users run it: its events, what it used, ways to end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from worker.process_tree import list_children

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    return [pid, *(member for child in list_children(pid) for member in family(child))]


def cpu_by_kind(pid: int, without: Collection[int] = ()) -> dict[str, float]:
    """CPU seconds of a process and its living descendants: the JVM, Spark's Python workers, the driver's Python.

    Args:
        pid: the process.
        without: descendants that are left out, with theirs.
    """
    seconds = {"driver": 0.0, "jvm": 0.0, "python": 0.0}
    others = {number for root in without for number in family(root)}
    for number in set(family(pid)) - others:
        try:
            fields = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()
            name = Path(f"/proc/{number}/comm").read_text().strip()
        except OSError:
            continue
        kind = "jvm" if name == "java" else "driver" if number == pid else "python"
        seconds[kind] += (int(fields[11]) + int(fields[12])) / _TICKS
    return seconds


def _command(pid: int) -> str:
    """The command line of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    except OSError:
        return ""


def memory(pid: int) -> dict[str, int]:
    """Private and shared resident bytes by kind of process; pages of the memory-mapped state count as shared."""
    sizes = {"jvm": 0, "python": 0, "mapped": 0}
    for number in family(pid):
        try:
            text = Path(f"/proc/{number}/status").read_text()
            name = Path(f"/proc/{number}/comm").read_text().strip()
        except OSError:
            continue
        values = {
            line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Rss")
        }
        kind = "jvm" if name == "java" else "python"
        sizes[kind] += values.get("RssAnon", 0)
        sizes["mapped"] = max(sizes["mapped"], values.get("RssFile", 0))
    return sizes


@dataclass
class Job:
    """A job process, its events and what it used."""

    config: dict[str, Any]
    folder: Path
    process: subprocess.Popen[bytes] = field(init=False)
    #: (seconds, rows so far, CPU by kind) at each progress event.
    samples: list[tuple[float, int, dict[str, float]]] = field(default_factory=list)
    #: The progress events of batches.
    batches: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    #: The numbers of steps that keep a state, by step.
    steps: dict[str, dict[str, float]] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    failure: str = ""
    #: The job's messages about failures that it retries.
    retries: list[dict[str, Any]] = field(default_factory=list)
    first_output_s: float = 0.0

    def start(self) -> None:
        """Start it; its events are read in a thread."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "job.json"
        path.write_text(json.dumps(self.config))
        self._begin = time.monotonic()
        with (self.folder / "job.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spark_jobs.run", str(path)], stdout=subprocess.PIPE, stderr=log
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        rows = 0
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "progress" and event.get("rows"):
                rows += event["rows"]
                self.first_output_s = self.first_output_s or time.monotonic() - self._begin
                self.samples.append((time.monotonic(), rows, cpu_by_kind(self.process.pid)))
                self.batches.append(event)
                self.metrics, self.steps = event.get("metrics", {}), event.get("steps", {})
                for kind, size in memory(self.process.pid).items():
                    self.peak[kind] = max(self.peak.get(kind, 0), size)
            elif event["event"] == "retrying":
                self.retries.append(event)
            elif event["event"] == "failed":
                self.failure = f"{event.get('error')}\n{event.get('trace', '')}"

    @property
    def rows(self) -> int:
        """Input records of this process so far."""
        return self.samples[-1][1] if self.samples else 0

    def wait_rows(self, rows: int, limit: float = 1800.0) -> None:
        """Wait until it has read ``rows`` rows; see ``wait_for``."""
        self.wait_for(lambda: self.rows >= rows, limit, lambda: f"{self.rows} of {rows} rows were read")

    def wait_for(self, condition: Callable[[], bool], limit: float, report: Callable[[], str]) -> None:
        """Wait for a condition while the job runs.

        Raises:
            RuntimeError: it ended, or takes too long: with its failure or what ``report`` says.
        """
        began = time.monotonic()
        deadline = began + limit
        while not condition():
            looked = time.monotonic()
            if self.process.poll() is not None or self.failure:
                raise RuntimeError(f"the job ended: {self.failure or self.log()}")
            if looked > deadline:
                raise RuntimeError(f"after {limit:g} s {report()}; end of the log:\n{self.log()}")
            # A look that takes its time takes the job's too.
            time.sleep(max(0.05, looked - began))
            began = time.monotonic()

    def kill(self) -> None:
        """SIGKILL for the driver and everything that it started, at once."""
        for number in family(self.process.pid):
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        self._reader.join(10)

    def python_workers(self) -> list[int]:
        """Process numbers of what merges and writes: a materializer's own process, then Spark's Python workers.

        Without the JVM and the daemon that forks workers.
        """
        hosts = [number for number in list_children(self.process.pid) if "host_process" in _command(number)]
        return hosts + [
            worker
            for jvm in list_children(self.process.pid)
            for daemon in list_children(jvm)
            for worker in list_children(daemon)
        ]

    def log(self) -> str:
        """The end of its log."""
        return (self.folder / "job.log").read_text(errors="replace")[-3000:]

    def stop(self, limit: float = 60.0) -> int:
        """Gracefully; its exit code. Kills it when it takes too long."""
        self.process.terminate()
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(10)
        return self.process.returncode

    def figures(self) -> str:
        """Rows/s and CPU per row after the first batch, which pays for starting."""
        (begin, first, before), (end, last, after) = self.samples[0], self.samples[-1]
        rows = last - first
        used = {kind: (after[kind] - before[kind]) / max(rows, 1) * 1e6 for kind in after}
        stages = ", ".join(f"{kind} {cost:.1f}" for kind, cost in used.items())
        return (
            f"{rows / max(end - begin, 1e-9):10,.0f} rows/s {sum(used.values()):8.1f} us CPU/row ({stages}) in "
            f"{len(self.samples) - 1} batches after the first; first output {self.first_output_s:.1f} s after the start; "
            f"peak MiB: " + ", ".join(f"{kind} {size / 2**20:,.0f}" for kind, size in self.peak.items())
        )
