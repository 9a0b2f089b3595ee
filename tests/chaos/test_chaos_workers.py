"""Workers that are killed, stopped or lose a process while records flow."""

import os
import signal
from collections.abc import Callable

import pytest

from compose.local.ports import LOOPBACK
from tests.chaos.cluster import PATIENCE, Cluster, gone, timed
from tests.chaos.delivery import Load, verify
from tests.chaos.proxy import Proxy


@pytest.mark.proves("from datagen", "at-least-once", killed=["worker"])
@pytest.mark.proves("from datagen", "exactly-once", killed=["worker"])
@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
def test_killed_worker(pair: Cluster, load: Callable[..., Load], leads: bool) -> None:
    stream = load()
    pair.until_saved(stream, 0.2)
    victim = pair.leader() if leads else pair.followers()[0]
    assert victim.worker_id in pair.find_workers(stream), "the victim has nothing to lose"
    hosts = victim.hosts()
    victim.kill()
    with timed("tasks of a killed worker ran again after"):
        pair.until_running(stream, pair.ids)
    assert all(gone(pid) for pid in hosts)
    log = pair.running[0].log_path.read_text()
    put_out = f"Worker {victim.worker_id} has closed its connections"
    assert put_out in log, f"its tasks waited for the end of its session; the other worker's log: {log[-20_000:]}"
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
    assert pair.find_workers(stream) == pair.ids, "a task left its worker, though only a host of it died"
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


def test_worker_whose_address_refuses_connections(
    cluster: Callable[..., Cluster], unique: Callable[[str], str]
) -> None:
    """Something between the workers refuses connections to one that lives: it is put out, and back before a task stops."""
    workers = cluster(1)
    first, proxy = workers.workers[0], Proxy(0)
    workers.properties = {"rest.advertised.port": str(proxy.port)}
    second = workers.add(wait=False)
    proxy.target = second.port or 0
    second.service.wait_ready(PATIENCE)
    both = {first.worker_id, f"{LOOPBACK}:{proxy.port}"}
    workers.until(lambda: workers.members(first) == both, "the workers have found each other")
    stream = Load(unique("c"), unique("t"), records=5000)
    workers.create(stream)
    workers.until_saved(stream, 0.2)
    assert workers.find_workers(stream) == both, "a worker has nothing to lose"
    generations = workers.generations(first)
    proxy.close()
    workers.until(
        lambda: workers.generations(first) >= generations + 2 and workers.members(first) == both,
        "the worker was put out and is back",
    )
    assert "it is put out of the group" in first.log_path.read_text()
    workers.until_done(stream)
    assert verify(workers.bootstrap, stream, exactly_once=False) == 0, "a record was sent again, so a task was stopped"
    assert sum(workers.starts(stream.name).values()) == stream.tasks, workers.history(stream.name)


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
