"""A worker that is cut off from Kafka: its connections stay open and carry nothing."""

from collections.abc import Callable, Iterator

import pytest

from compose.local.worker import MillraceWorker
from tests.chaos.cluster import Cluster, timed
from tests.chaos.conftest import ProxiedKafka
from tests.chaos.delivery import Load

# One of the longest files: other tests go the same ways in every run.
pytestmark = pytest.mark.slow


@pytest.fixture
def healed(broker: ProxiedKafka) -> Iterator[ProxiedKafka]:
    """The broker, whose proxy is healed whatever happens."""
    try:
        yield broker
    finally:
        broker.proxy.heal()


def cut_and_heal(workers: Cluster, far: MillraceWorker, kafka: ProxiedKafka, stream: Load) -> None:
    """Cut ``far`` off in the middle of a stream and let it back, and compare source and topic in the end.

    The stream outlasts the cut: at least once, a save that was held back in the cut takes the saved offset of a source back
    that has nothing more to say (docs/operations.md).
    """
    others = workers.ids - {far.worker_id}
    near = workers.worker(min(others))
    workers.until_saved(stream, 0.15)
    assert far.worker_id in workers.find_workers(stream), "the worker has nothing to lose"
    workers.until(lambda: sum(workers.numbers(far, "millrace_host_tasks")) > 0, "the worker's metrics know of a task")
    kafka.proxy.cut()
    with timed("a cut off worker's tasks ran elsewhere after"):
        workers.until_running(stream, others, by=near)
    with timed("and it had stopped its own after"):
        workers.until(
            lambda: set(workers.numbers(far, "millrace_host_tasks")) == {0.0}, "a cut off worker runs no task"
        )
    assert workers.ask("GET", "/health", by=far)[0] == 500, "a cut off worker thinks that it is well"
    kafka.proxy.heal()
    with timed("after the healing it had joined again after"):
        workers.until_complete()
    with timed("and had a task again after"):
        workers.until(lambda: far.worker_id in workers.find_workers(stream), "the worker that came back gets a task")
        workers.until_running(stream)
    workers.finish(stream)


def test_cut_off_follower(pair: Cluster, load: Callable[..., Load], healed: ProxiedKafka) -> None:
    far = pair.add(bootstrap=healed.proxied)
    try:
        pair.until_complete()
        cut_and_heal(pair, far, healed, load(records=13_200, partitions=3, tasks=3))
    finally:
        pair.drop(far)


def test_cut_off_leader(cluster: Callable[..., Cluster], unique: Callable[[str], str], healed: ProxiedKafka) -> None:
    workers = cluster(0, exactly_once=True)
    far = workers.add(bootstrap=healed.proxied)
    workers.add()
    workers.until_complete()
    assert workers.leader() is far, "the first worker leads"
    stream = Load(unique("c"), unique("t"), records=5000)
    workers.create(stream)
    cut_and_heal(workers, far, healed, stream)
