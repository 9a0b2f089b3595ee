"""Workers that are killed, stopped or lose a process while records flow."""

import os
import signal
from collections.abc import Callable

import pytest

from tests.chaos.cluster import Cluster, gone, timed
from tests.chaos.delivery import Load


@pytest.mark.proves("from datagen", "at-least-once", killed=["worker"])
@pytest.mark.proves("from datagen", "exactly-once", killed=["worker"])
@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
def test_killed_worker(pair: Cluster, load: Callable[..., Load], leads: bool) -> None:
    stream = load()
    pair.until_saved(stream, 0.2)
    victim = pair.leader() if leads else pair.followers()[0]
    assert victim.worker_id in pair.places(stream), "the victim has nothing to lose"
    hosts = victim.hosts()
    victim.kill()
    with timed("tasks of a killed worker ran again after"):
        pair.until_running(stream, pair.ids)
    assert all(gone(pid) for pid in hosts)
    pair.finish(stream)


@pytest.mark.proves("from datagen", "at-least-once", killed=["task host"])
@pytest.mark.proves("from datagen", "exactly-once", killed=["task host"])
def test_killed_task_host(pair: Cluster, load: Callable[..., Load]) -> None:
    stream = load(options={"transaction.boundary": "connector", "transaction.size": "120"})
    pair.until_saved(stream, 0.2)
    victim = pair.workers[0]
    (host,) = victim.hosts()
    os.kill(host, signal.SIGKILL)
    with timed("tasks of a killed host ran again after"):
        pair.until(lambda: gone(host) and len(victim.hosts()) == 1, "the host is replaced")
        pair.until_running(stream)
    assert pair.places(stream) == pair.ids, "a task left its worker, though only a host of it died"
    pair.finish(stream)


def test_killed_control_process(pair: Cluster, load: Callable[..., Load]) -> None:
    stream = load()
    pair.until_saved(stream, 0.2)
    victim = pair.followers()[0]
    hosts = victim.hosts()
    victim.kill_control()
    with timed("hosts without a control process lived for"):
        pair.until(lambda: all(gone(pid) for pid in hosts), "the hosts of a killed control process have ended", 10)
    with timed("its tasks ran again after"):
        pair.until_running(stream, pair.ids)
    pair.finish(stream)


def test_stopped_worker(pair: Cluster, load: Callable[..., Load]) -> None:
    stream = load()
    pair.until_saved(stream, 0.2)
    victim = pair.leader()
    with timed("a worker told to stop took"):
        victim.stop()
    pair.until_running(stream, pair.ids)
    # Each task went over at most once, and in good order: nothing had to be sent again, even at least once.
    assert sum(pair.starts(stream.name).values()) == stream.tasks + 1, pair.history(stream.name)
    assert pair.finish(stream) == 0
