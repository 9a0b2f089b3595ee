"""Anything, again and again: random processes die while records flow."""

import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from compose.local.worker import MillraceWorker
from tests.chaos.cluster import Cluster
from tests.chaos.delivery import Load
from tests.selection import scaled

# One of the longest files: other tests go the same ways in every run.
pytestmark = pytest.mark.slow

SECONDS = scaled(25, 40)
SEED = int(os.environ.get("MILLRACE_CHAOS_SEED", "20261121"))


@pytest.mark.scaled
def test_random_kills(pair: Cluster, load: Callable[..., Load]) -> None:
    choice = random.Random(SEED)
    print(f"MILLRACE_CHAOS_SEED={SEED}")
    stream = load(
        records=250 * SECONDS,
        rate=300,
        options={"transaction.boundary": "interval", "transaction.boundary.interval.ms": "200"},
    )
    until = time.monotonic() + SECONDS
    done: list[str] = []
    goal = 0
    while time.monotonic() < until and goal < stream.records:
        victim = choice.choice(pair.workers)
        kind = choice.choice(["worker", "host", "host", "control", "stop"])
        done.append(f"{kind} {pair.workers.index(victim)}")
        strike(victim, kind)
        for worker in pair.workers:
            worker.service.launch()
        # Another strike may come before all is well again.
        goal = max(goal, sum(pair.saved(stream).values())) + choice.randrange(800)
        pair.until_progress(stream, goal)
    print(f"{len(done)} strikes: {', '.join(done)}")
    pair.repair()
    pair.until_running(stream)
    pair.finish(stream)


def strike(victim: MillraceWorker, kind: str) -> None:
    """Do one thing to a worker; nothing if it has just died of the last one."""
    if not victim.running:
        return
    if kind == "worker":
        victim.kill()
    elif kind == "control":
        victim.kill_control()
    elif kind == "stop":
        victim.stop()
    else:
        for pid in victim.hosts():
            os.kill(pid, signal.SIGKILL)
