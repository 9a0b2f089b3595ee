"""Kafka and clusters of workers for chaos tests."""

import itertools
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compose.local.kafka import KafkaCluster, Ports
from compose.local.ports import LOOPBACK, free_ports
from tests.chaos.cluster import Cluster
from tests.chaos.delivery import Load
from tests.chaos.proxy import Proxy
from worker.fetch.java import FAST_START
from worker.terminal import say

#: Workers' sessions shorter than Kafka's usual lower bound save each test some seconds.
QUICK = {"group.min.session.timeout.ms": "1000"}


@dataclass(frozen=True, slots=True)
class ProxiedKafka:
    """One broker with a second listener for clients whose connections a test can cut.

    Attributes:
        cluster: the broker.
        proxy: what clients that bootstrap at ``proxied`` go through, whatever they do.
    """

    cluster: KafkaCluster
    proxy: Proxy

    @property
    def bootstrap(self) -> str:
        """The way without the proxy."""
        return self.cluster.bootstrap

    @property
    def proxied(self) -> str:
        """The way through the proxy."""
        return f"{LOOPBACK}:{self.proxy.port}"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedKafka]:
    """A broker for all chaos tests; who harms it leaves it running and its proxy healed."""
    client, between, controller, behind = free_ports([None] * 4)
    proxy = Proxy(behind)
    names = {"CLIENT": client, "BROKER": between}
    listeners = [f"{name}://{LOOPBACK}:{port}" for name, port in names.items()]
    properties = {
        **QUICK,
        "listeners": ",".join([*listeners, f"PROXIED://{LOOPBACK}:{behind}", f"CONTROLLER://{LOOPBACK}:{controller}"]),
        "advertised.listeners": ",".join([*listeners, f"PROXIED://{LOOPBACK}:{proxy.port}"]),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (*names, "PROXIED", "CONTROLLER")),
    }
    with KafkaCluster(
        tmp_path_factory.mktemp("kafka"),
        port=None,
        ports=[Ports(client, between, controller)],
        properties=properties,
        jvm_options=FAST_START,
        say=say,
    ) as cluster:
        yield ProxiedKafka(cluster, proxy)
        proxy.close()


#: Both guarantees take the same ways through the worker; exactly once adds transactions and fencing.
GUARANTEES = [pytest.param(False, marks=pytest.mark.slow, id="at_least_once"), pytest.param(True, id="exactly_once")]


@pytest.fixture(scope="session", params=GUARANTEES)
def shared_pair(
    request: pytest.FixtureRequest, broker: ProxiedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Two workers for all tests of one guarantee."""
    pair = Cluster(
        tmp_path_factory.mktemp("pair"), broker.bootstrap, f"pair-{secrets.token_hex(4)}", exactly_once=request.param
    )
    try:
        yield pair.start(2)
    finally:
        pair.close()


@pytest.fixture
def pair(shared_pair: Cluster) -> Cluster:
    """Two workers that run and know each other, whatever the test before did; the test runs once for each guarantee."""
    return shared_pair.repair()


@pytest.fixture
def load(pair: Cluster, unique: Callable[[str], str]) -> Iterator[Callable[..., Load]]:
    """Factory of loads, which takes ``Load``'s attributes: ``load()`` has started a connector, which is deleted in the end."""
    with ExitStack() as stack:
        number = itertools.count()

        def start(**attributes: Any) -> Load:
            suffix = next(number)
            # A name that ends in a number could be taken for a task's.
            new_load = Load(f"{unique('c')}-{suffix}x", f"{unique('t')}-{suffix}", **attributes)
            stack.callback(pair.ask, "DELETE", f"/connectors/{new_load.name}")
            pair.create(new_load)
            return new_load

        yield start


@pytest.fixture
def cluster(broker: ProxiedKafka, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Callable[..., Cluster]]:
    """Factory of clusters of a test's own: ``cluster(2, exactly_once=True)`` has two workers that know each other."""
    with ExitStack() as stack:

        def start(count: int, *, processes: int = 1, **attributes: Any) -> Cluster:
            new_cluster = Cluster(tmp_path, broker.bootstrap, unique("g"), **attributes)
            stack.callback(new_cluster.close)
            return new_cluster.start(count, processes)

        yield start
