"""Tasks that are moved and restarted, and those that are not, while records flow."""

from collections.abc import Callable

import pytest

from tests.chaos.cluster import Cluster, timed
from tests.chaos.delivery import Load

# One of the longest files: other tests go the same ways in every run.
pytestmark = pytest.mark.slow


def test_other_connectors_come_and_go(pair: Cluster, load: Callable[..., Load]) -> None:
    stream = load()
    pids = {worker.worker_id: worker.hosts() for worker in pair.workers}
    before = pair.history(stream.name)
    assert sorted(event.state for event in before) == ["RUNNING"] * 3, before
    others = [load(records=200, partitions=3, tasks=3) for _ in range(3)]
    for other in others:
        assert pair.ask("PUT", f"/connectors/{other.name}/config", other.config | {"tasks.max": "1"})[0] == 200
        pair.until_tasks(other, 1)
    for other in others:
        assert pair.ask("DELETE", f"/connectors/{other.name}")[0] == 204
        pair.until_tasks(other, -1)
    pair.finish(stream)
    assert pair.history(stream.name) == before, "a connector was touched because others came and went"
    assert pids == {worker.worker_id: worker.hosts() for worker in pair.workers}


def test_returning_worker(pair: Cluster, load: Callable[..., Load]) -> None:
    stream = load(records=6000, rate=250, partitions=4, tasks=4)
    pair.until_saved(stream, 0.1)
    victim = pair.followers()[0]
    assert sorted(task.worker for task in pair.tasks(stream.name).values()) == sorted([*pair.ids, *pair.ids])
    victim.kill()
    pair.until_running(stream, pair.ids)
    victim.start()
    with timed("a returned worker had its share again after"):
        pair.until(
            lambda: [task.worker for task in pair.tasks(stream.name).values()].count(victim.worker_id) == 2,
            "the worker that came back has half of the tasks",
        )
        pair.until_running(stream)
    pair.finish(stream)
    starts = pair.starts(stream.name)
    # Four at first, the two that were lost, and the two that the worker got when it returned.
    assert sum(starts.values()) == 4 + 2 + 2, pair.history(stream.name)


def test_drained_worker(pair: Cluster, load: Callable[..., Load]) -> None:
    stream = load()
    pair.until_saved(stream, 0.2)
    victim = pair.leader()
    (rest,) = pair.ids - {victim.worker_id}
    status, body = pair.ask("PUT", "/admin/drain", by=victim)
    assert status in {200, 202}, body
    with timed("a drained worker had handed everything over after"):
        pair.until_running(stream, {rest})
        pair.until(lambda: pair.numbers(victim, "millrace_host_tasks") == [0.0], "a drained worker runs no task")
    assert victim.running, "draining is not stopping"
    assert sum(pair.starts(stream.name).values()) == stream.tasks + 1, pair.history(stream.name)
    assert pair.finish(stream) == 0, "a hand-over must not repeat anything, not even at least once"
    victim.stop()
