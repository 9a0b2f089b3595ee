"""Anything, again and again: random processes die while records flow."""
from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

from tests.chaos.cluster import Cluster
from tests.chaos.delivery import Load

SECONDS = 40
SEED = int(os.environ.get("MILLRACE_CHAOS_SEED", "20261121"))


def test_random_kills(pair: Cluster, load: Callable[..., Load]) -> None:
    choice = random.Random(SEED)
    print(f"MILLRACE_CHAOS_SEED={SEED}")
    stream = load(records=12_000, rate=300)
    until = time.monotonic() + SECONDS
    kills: list[str] = []
    wanted = 0
    while time.monotonic() < until and sum(pair.saved(stream).values()) < stream.records * 0.9:
        victim = choice.choice(pair.workers)
        what = choice.choice(["worker", "host", "host", "control"])
        hosts = victim.hosts() if victim.running else []
        kills.append(f"{what} {pair.workers.index(victim)}")
        if what == "worker":
            victim.kill()
        elif what == "control" and victim.running:
            victim.kill_control()
        elif hosts:
            os.kill(choice.choice(hosts), signal.SIGKILL)
        wanted = max(wanted, sum(pair.saved(stream).values())) + choice.randrange(800)
        for worker in pair.workers:
            worker.service.launch()
        pair.until(lambda wanted=wanted: sum(pair.saved(stream).values()) >= min(wanted, stream.records),
                   f"no progress after {kills}")
    print(f"{len(kills)} kills: {', '.join(kills)}")
    pair.repair()
    pair.until_running(stream)
    pair.finish(stream)

