"""Brokers that are killed and come back while records flow."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compose.local.kafka import KafkaCluster, live_brokers
from tests.chaos.cluster import Cluster, timed
from tests.chaos.conftest import ProxiedKafka
from tests.chaos.delivery import Load


@pytest.mark.proves("from datagen", "at-least-once", killed=["Kafka"])
@pytest.mark.proves("from datagen", "exactly-once", killed=["Kafka"])
def test_killed_only_broker(pair: Cluster, load: Callable[..., Load], broker: ProxiedKafka) -> None:
    stream = load()
    pair.until_saved(stream, 0.2)
    only = broker.cluster.broker(0)
    only.kill()
    for worker in pair.workers:
        assert pair.ask("GET", f"/connectors/{stream.name}/status", by=worker)[0] == 200, (
            "REST needs the broker to answer"
        )
    # Long enough for the workers to give their tasks up.
    pair.until(
        lambda: all(worker.request("GET", "/health")[0] == 500 for worker in pair.workers),
        "the workers report that Kafka is missing",
    )
    only.start()
    with timed("tasks ran again after the broker's return after"):
        pair.until_complete()
        pair.until_running(stream)
    pair.finish(stream)


@pytest.fixture
def on_three(
    kafka_cluster: KafkaCluster, tmp_path: Path, unique: Callable[[str], str], request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    """Two workers on three brokers, whose internal topics have three replicas."""
    pair = Cluster(
        tmp_path,
        kafka_cluster.bootstrap,
        unique("g"),
        exactly_once=request.param,
        replication=3,
        properties={"session.timeout.ms": "6000"},
    )
    try:
        yield pair.start(2)
    finally:
        pair.close()


@pytest.mark.slow
@pytest.mark.parametrize("on_three", [False, True], ids=["at_least_once", "exactly_once"], indirect=True)
def test_killed_broker_of_three(on_three: Cluster, kafka_cluster: KafkaCluster, unique: Callable[[str], str]) -> None:
    stream = Load(unique("c"), unique("t"), replication=3)
    on_three.create(stream)
    on_three.until_saved(stream, 0.2)
    victim = kafka_cluster.broker(1 if on_three.exactly_once else 0)
    victim.kill()
    with timed("with a broker of three killed, the second half arrived after"):
        on_three.finish(stream)
    victim.start()
    on_three.until_complete()


@pytest.mark.slow
@pytest.mark.parametrize("on_three", [True], ids=["exactly_once"], indirect=True)
def test_hanging_broker_of_three(on_three: Cluster, kafka_cluster: KafkaCluster, unique: Callable[[str], str]) -> None:
    """A broker hangs until others lead its partitions, then resumes as a follower that still answers readers' fetches."""
    stream = Load(unique("c"), unique("t"), replication=3)
    on_three.create(stream)
    on_three.until_saved(stream, 0.2)
    hanging, other = kafka_cluster.broker(2), kafka_cluster.broker(0)
    hanging.pause()
    try:
        on_three.until(lambda: live_brokers(other.ports.client) == 2, "the hanging broker does not count as alive")
    finally:
        hanging.resume()
    # Readers look at who leads by themselves each 60 s: what waits for that does not get there in time.
    with timed("tasks ran after a hanging broker's return after"):
        on_three.until(
            lambda: all(worker.request("GET", "/health")[0] == 200 for worker in on_three.running),
            "the workers are well again",
            30,
        )
        on_three.until_running(stream)
    on_three.finish(stream)
