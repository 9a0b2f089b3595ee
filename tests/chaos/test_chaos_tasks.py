"""Tasks that stall, or hold up everything in their host."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster, gone, timed
from tests.chaos.delivery import Load


def test_stalled_task(pair: Cluster, load: Callable[..., Load], tmp_path: Path) -> None:
    """A source that waits forever and ignores its cancellation: a restart through REST replaces it."""
    once = tmp_path / "once"
    stream = load(options={"fault.hang.at": "300", "fault.hang.ignore.cancel": "true", "fault.once.file": str(once)})
    pair.until(once.exists, "a task stalls")
    done = dict(enumerate(stream.counts))

    def stalled() -> list[int]:
        """The task that waits, once the other one is through: task n has source partition n."""
        saved = pair.saved(stream)
        missing = [number for number, count in done.items() if saved.get(number, 0) < count]
        return missing if len(missing) == 1 and saved.get(missing[0]) == 300 else []

    pair.until(lambda: len(stalled()) == 1, "the other task gets through")
    (task,) = stalled()
    status, body = pair.ask("POST", f"/connectors/{stream.name}/tasks/{task}/restart")
    assert status == 204, body
    with timed("a stalled task had been replaced after"):
        pair.until(lambda: pair.starts(stream.name).get(f"{stream.name}-{task}") == 2, "the stalled task is replaced")
        pair.until_running(stream)
    pair.finish(stream)
    assert pair.starts(stream.name)[f"{stream.name}-{1 - task}"] == 1, "the other task was restarted too"


@pytest.mark.parametrize(
    "exactly_once", [pytest.param(False, marks=pytest.mark.slow), True], ids=["at_least_once", "exactly_once"]
)
def test_full_event_loop(
    cluster: Callable[..., Cluster], unique: Callable[[str], str], tmp_path: Path, exactly_once: bool
) -> None:
    """A source that blocks its host's event loop: the host is dumped, killed and replaced; the other host continues."""
    alone = cluster(1, processes=2, exactly_once=exactly_once)
    (worker,) = alone.workers
    neighbour = Load(unique("neighbour"), unique("n"))
    alone.create(neighbour)
    before = worker.hosts()
    once = tmp_path / "once"
    blocker = Load(
        unique("blocker"),
        unique("b"),
        records=1000,
        partitions=1,
        tasks=1,
        options={"fault.block.loop.after": "200", "fault.once.file": str(once)},
    )
    worker.create(blocker.name, blocker.config)
    alone.until(once.exists, "the loop is blocked")
    slowest = 0.0

    def replaced() -> bool:
        nonlocal slowest
        began = time.monotonic()
        assert worker.request("GET", f"/connectors/{blocker.name}/status", timeout=10)[0] == 200
        slowest = max(slowest, time.monotonic() - began)
        return any(map(gone, before)) and sum(not gone(pid) for pid in worker.hosts()) == 2

    with timed("a host with a blocked loop had been replaced after"):
        alone.until(replaced, "the host whose loop is blocked is replaced")
    print(f"the slowest answer of REST meanwhile took {slowest:.3f} s")
    (dead,) = filter(gone, before)
    alone.until_running(blocker)
    alone.until_running(neighbour)
    log = worker.log_path.read_text()
    assert f"{blocker.name}-0 is on the CPU" in log, "nobody is blamed"
    assert "faults.py" in log, "the log has no stacks"
    (ended,) = [line for line in log.splitlines() if f"(pid {dead}) has gone" in line]
    lost = {unit for unit in (f"{neighbour.name}-0", f"{neighbour.name}-1") if unit in ended.rpartition("It ran ")[2]}
    assert len(lost) == 1, f"one of two tasks should have been in that host: {ended}"
    alone.finish(neighbour)
    alone.finish(blocker)
    for unit, count in alone.starts(neighbour.name).items():
        assert count == (2 if unit in lost else 1), alone.history(neighbour.name)
    restarts = [
        event for event in alone.history(blocker.name) if event.state == "RESTARTING" and event.unit != blocker.name
    ]
    assert [event.unit for event in restarts] == [f"{blocker.name}-0"]
