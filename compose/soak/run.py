"""The soak from its first server to its last comparison."""

from __future__ import annotations

import random
import secrets
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compose.demo import show
from compose.demo.payments import Payments
from compose.demo.requests import REQUESTS
from compose.demo.run import CUSTOMERS_SOURCE, ROWS, WAREHOUSE, Demo
from compose.demo.shop import Shop
from compose.local.console import say
from compose.local.errors import StackError
from compose.local.scylla.client import Emulation
from compose.local.service import wait_until
from compose.soak.faults import FAULTS, list_processes, wait_recovered
from compose.soak.processes import Usage, find_growth, find_processes, measure
from compose.soak.secrets import find_leaks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compose.soak.faults import Fault

_MINUTE_S: Final = 60.0
#: Writes before the load begins, so that each table has a topic and jobs find something to do.
_FIRST_WRITES: Final = 100
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
        StackError: A part did not start, did not recover or a copy differs.
    """
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    chosen = [fault for fault in FAULTS if faults in fault.name]
    if not chosen:
        raise StackError(f"no fault's name holds {faults!r}; there are: {'; '.join(fault.name for fault in FAULTS)}")
    folder = Path(tempfile.mkdtemp(prefix="millrace-soak-"))
    planted = {name: f"Planted{secrets.token_hex(12)}" for name in ("password of MariaDB", "password of PostgreSQL")}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        demo = _build_demo(folder, planted)
        stack.callback(demo.stop)
        demo.start()
        client = Emulation(demo.scylla.address)
        stack.callback(client.close)
        database = stack.enter_context(closing(demo.database()))
        payments = Payments(demo.cassandra)
        stack.callback(payments.close)
        shop = Shop(client, database, payments, demo.requests, seed)
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
        show.show_unknown(
            demo.kafka.bootstrap,
            demo.registry.url,
            f"{REQUESTS.partition('.')[0]}.unknown_table",
            demo.requests.counts["others"],
        )
        findings += find_leaks(demo, planted)
        demo.stop()
        if not wait_until(lambda: not find_processes(str(folder)), _GONE_S):
            findings.append(f"processes live on after everything was stopped: {find_processes(str(folder))}")
    say(f"{load.writes} writes, {sum(soak.counts.values())} faults, seed {seed}:")
    for name, count in sorted(soak.counts.items()):
        say(f"  {count} times: {name}")
    for finding in findings:
        say(f"FOUND: {finding}")
    if not findings:
        say("nothing is lost or repeated, nothing has grown or is left over, and no secret leaks")
    return 1 if findings else 0


def _build_demo(folder: Path, planted: Mapping[str, str]) -> Demo:
    """The demo's pipeline, whose passwords come from a config provider alone."""
    path = folder / "secrets.properties"
    mariadb, postgres = planted.values()
    path.write_text(f"mariadb={mariadb}\npostgres={postgres}\n", encoding="utf-8")
    path.chmod(0o600)
    demo = Demo(
        folder,
        detached=False,
        options={
            CUSTOMERS_SOURCE: {"database.password": f"${{file:{path}:mariadb}}"},
            WAREHOUSE: {"sink.jdbc.password": f"${{file:{path}:postgres}}"},
        },
        worker_properties={"config.providers": "file", "config.providers.file.class": "FileConfigProvider"},
    )
    demo.mariadb.password, demo.postgres.password = mariadb, postgres
    return demo


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

    def run(self, seconds: float, faults: Sequence[Fault]) -> None:
        """Inflict faults until the time is over, and print a line each minute. Blocks.

        Raises:
            StackError: What a fault hit did not come back.
        """
        self._level = self._measure()
        begin = last_line = time.monotonic()
        last_writes = 0
        while True:
            pause_end = min(time.monotonic() + self.pause_s, begin + seconds)
            while (now := time.monotonic()) < pause_end:
                time.sleep(min(1.0, pause_end - now))
                self.load.check()
                if time.monotonic() - last_line >= _MINUTE_S:
                    self._print_line(begin, (self.load.writes - last_writes) / (time.monotonic() - last_line))
                    last_line, last_writes = time.monotonic(), self.load.writes
            if time.monotonic() >= begin + seconds:
                return
            fault = self.chance.choice(faults)
            fault.inflict(self.demo, self.chance)
            self.counts[fault.name] = self.counts.get(fault.name, 0) + 1
            say(f"{fault.name}; all runs again after {wait_recovered(self.demo):.1f} s")

    def find_growth(self) -> list[str]:
        """Return what the workers use more of than at the beginning; see ``processes.find_growth``."""
        return find_growth("both workers with their jobs", self._level, self._measure())

    def _measure(self) -> Usage:
        return measure(list_processes(self.demo.rest.workers))

    def _print_line(self, begin: float, rate: float) -> None:
        usage = self._measure()
        lags = [float(line.rsplit(" ", 1)[1]) for line in self.demo.rest.metrics("millrace_job_lag_records")]
        say(
            f"{(time.monotonic() - begin) / 60:.0f} min: {self.load.writes} writes, {rate:.1f}/s; "
            f"jobs are {max(lags, default=0):.0f} records behind; {usage.memory_mib} MiB, {usage.files} files, "
            f"{usage.sockets} sockets, {usage.threads} threads, {usage.processes} processes; {sum(self.counts.values())} faults"
        )
