"""The soak from its first server to its last comparison."""

from __future__ import annotations

import random
import secrets
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compose.demo import show
from compose.demo.requests import REQUESTS
from compose.demo.run import CUSTOMERS_SOURCE, ROWS, UNKNOWN, WAREHOUSE, Demo, interrupted_by_sigterm
from compose.local.process.service import wait_until
from compose.soak.faults import FAULTS, list_processes, wait_recovered
from compose.soak.processes import Usage, find_growth, find_processes, measure
from compose.soak.secrets import find_leaks, read_locations
from connectors.errors import ConfigInvalid
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compose.demo.shop import Shop
    from compose.soak.faults import Fault

_MINUTE_S: Final = 60.0
#: Writes before the load begins, so that each table has a topic and jobs find something to do.
_FIRST_WRITES: Final = 100
#: Seconds under load before the first fault: Spark fills its pools of threads and its caches meanwhile.
_WARM_S: Final = 120.0
#: Seconds in which every copy must equal its source once nothing is written any more.
_SETTLED_S: Final = 600.0
#: Seconds in which the last processes must be gone after everything was stopped.
_GONE_S: Final = 30.0


@dataclass
class Load:
    """Writes to the shop at a steady rate, in a thread of its own.

    Attributes:
        shop: What is written to.
        rate: Writes a second.
        writes: How many were done.
    """

    shop: Shop
    rate: float
    writes: int = 0
    _end: threading.Event = field(default_factory=threading.Event)
    _failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def _run(self) -> None:
        begin = time.monotonic()
        try:
            while not self._end.wait(max(0.0, begin + self.writes / self.rate - time.monotonic())):
                self.shop.trade(1)
                self.writes += 1
        except BaseException as error:  # noqa: BLE001 - raised again for the waiting caller
            self._failure = error

    def check(self) -> None:
        """Raise what has ended the writes, if anything has."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End it and wait. Blocks."""
        self._end.set()
        self._thread.join()


def run_soak(hours: float, *, rate: float, pause_s: float, seed: int | None, faults: str = "") -> int:
    """Run the pipeline under load and faults, then compare every row, look for leaks, and say what was found. Blocks.

    Args:
        hours: How long there are faults; starting and comparing come on top.
        rate: Writes to the shop, a second.
        pause_s: Seconds from one fault's recovery to the next fault.
        seed: What the faults follow from; None for another one each time.
        faults: Only faults whose names hold this text.

    Returns:
        0 where every copy equals its source, nothing has leaked and no memory has grown; else 1.

    Raises:
        ConfigInvalid: A soak with these arguments does nothing.
        StackError: A part did not start, did not recover or a copy differs.
    """
    if hours <= 0 or rate <= 0 or pause_s < 0:
        raise ConfigInvalid(
            f"a soak of {hours:g} h with {rate:g} writes/s and pauses of {pause_s:g} s does nothing; give positive numbers "
            "for --hours and --rate, and 0 or more for --pause"
        )
    if seed is None:
        seed = secrets.randbelow(1_000_000)
    chosen = [fault for fault in FAULTS if faults in fault.name]
    if not chosen:
        raise ConfigInvalid(f"no fault's name holds {faults!r}; there are: {'; '.join(fault.name for fault in FAULTS)}")
    folder = Path(tempfile.mkdtemp(prefix="millrace-soak-"))
    planted = {name: f"Planted{secrets.token_hex(12)}" for name in ("password of MariaDB", "password of PostgreSQL")}
    with ExitStack() as stack:
        stack.enter_context(interrupted_by_sigterm())
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        demo = _build_demo(folder, planted)
        stack.callback(demo.stop)
        demo.start()
        shop = demo.open_shop(stack, seed)
        say(f"soak of {hours:g} h, seed {seed}: {rate:g} writes/s, a fault {pause_s:g} s after the last one's recovery")
        shop.create()
        demo.create_sources()
        shop.trade(_FIRST_WRITES)
        demo.create_jobs()
        demo.settled(shop, _SETTLED_S)
        load = Load(shop, rate)
        stack.callback(load.stop)
        soak = _Soak(demo, load, random.Random(seed), pause_s)  # noqa: S311 - the same faults for the same seed
        soak.run(hours * 3600, chosen)
        findings = soak.find_growth()
        load.stop()
        load.check()
        say(f"every copy equals the source, {demo.settled(shop, _SETTLED_S):.1f} s after the last write")
        show.side_by_side(shop, demo.kafka.bootstrap, demo.registry.url, demo.postgres, ROWS, demo.detail)
        findings += _find_repeated_lines(demo)
        findings += find_leaks(read_locations(demo), planted)
    if not wait_until(lambda: not find_processes(str(folder)), _GONE_S):
        findings.append(f"processes live on after everything was stopped: {find_processes(str(folder))}")
    say(f"{load.writes} writes, {sum(soak.counts.values())} faults, seed {seed}:")
    for name, count in sorted(soak.counts.items()):
        say(f"  {count} times: {name}")
    for finding in findings:
        say(f"FOUND: {finding}")
    if not findings:
        say("no row is lost, no line of the log is repeated, nothing has grown or is left over, and no secret leaks")
    return 1 if findings else 0


def _build_demo(folder: Path, planted: Mapping[str, str]) -> Demo:
    """The demo's pipeline, whose passwords come from a config provider alone."""
    path = folder / "secrets.properties"
    mariadb, postgres = planted.values()
    path.write_text(f"mariadb={mariadb}\npostgres={postgres}\n", encoding="utf-8")
    path.chmod(0o600)
    demo = Demo(
        folder,
        options={
            CUSTOMERS_SOURCE: {"database.password": f"${{file:{path}:mariadb}}"},
            WAREHOUSE: {"sink.jdbc.password": f"${{file:{path}:postgres}}"},
        },
        worker_properties={"config.providers": "file", "config.providers.file.class": "FileConfigProvider"},
    )
    demo.mariadb.password, demo.postgres.password = mariadb, postgres
    return demo


def _find_repeated_lines(demo: Demo) -> list[str]:
    """Return the topics of the log that do not have one record for each line. Comparing rows by key can't show repetitions."""
    expected = {REQUESTS: demo.requests.counts["requests"], UNKNOWN: demo.requests.counts["others"]}
    counts = {topic: len(show.read_events(demo.kafka.bootstrap, topic, demo.registry.url)) for topic in expected}
    return [
        f"topic {topic} has {counts[topic]} records for {count} lines of the log"
        for topic, count in expected.items()
        if counts[topic] != count
    ]


@dataclass
class _Soak:
    """The time in which faults happen.

    Attributes:
        demo: The pipeline.
        load: What is written meanwhile.
        chance: Draws the faults.
        pause_s: Seconds from one fault's recovery to the next fault.
        counts: Faults so far, by name.
    """

    demo: Demo
    load: Load
    chance: random.Random
    pause_s: float
    counts: dict[str, int] = field(default_factory=dict)
    _level: Usage = field(default_factory=Usage)
    _begin: float = 0.0
    _last_line: float = 0.0
    _last_writes: int = 0

    def run(self, seconds: float, faults: Sequence[Fault]) -> None:
        """Inflict faults until the time is over, and print a line each minute. Blocks.

        Raises:
            StackError: What a fault hit did not come back.
        """
        self._begin = self._last_line = time.monotonic()
        self._watch(self._begin + _WARM_S)
        self._level = self._measure()
        end = time.monotonic() + seconds
        while True:
            self._watch(min(time.monotonic() + self.pause_s, end))
            if time.monotonic() >= end:
                return
            fault = self.chance.choice(faults)
            fault.inflict(self.demo, self.chance)
            self.counts[fault.name] = self.counts.get(fault.name, 0) + 1
            say(f"{fault.name}; all runs again after {wait_recovered(self.demo):.1f} s")

    def _watch(self, until: float) -> None:
        """Wait, print the lines that are due, and raise what has ended the load. Blocks."""
        while (now := time.monotonic()) < until:
            time.sleep(min(1.0, until - now))
            self.load.check()
            if time.monotonic() - self._last_line >= _MINUTE_S:
                self._print_line()

    def find_growth(self) -> list[str]:
        """Return what the workers use more of than at the beginning; see ``processes.find_growth``."""
        return find_growth("both workers with their jobs", self._level, self._measure())

    def _measure(self) -> Usage:
        return measure(list_processes(self.demo.rest.workers))

    def _print_line(self) -> None:
        usage = self._measure()
        now, writes = time.monotonic(), self.load.writes
        rate = (writes - self._last_writes) / (now - self._last_line)
        self._last_line, self._last_writes = now, writes
        lags = [float(line.rsplit(" ", 1)[1]) for line in self.demo.rest.metrics("millrace_job_lag_records")]
        say(
            f"{(now - self._begin) / 60:.0f} min: {writes} writes, {rate:.1f}/s; "
            f"jobs are {max(lags, default=0):.0f} records behind; {usage.memory_mib} MiB, {usage.files} files, "
            f"{usage.sockets} sockets, {usage.threads} threads, {usage.processes} processes; {sum(self.counts.values())} faults"
        )
